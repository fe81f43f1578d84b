/* Byte buffer with a ceiling.
 *
 * Every buffer is born with a maximum; growing past it fails with ERR_TOO_LARGE and leaves the
 * content as it was, so remote input cannot grow memory without bound. `data` is always followed
 * by a NUL byte (not counted in `len`), so text can be used as a C string. `BUF_INIT(max)` needs
 * no allocation. Not thread-safe; the owner calls buf_free().
 */
#ifndef REITOS_BASE_BUF_H
#define REITOS_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct buf {
    char *data; /* NULL only while cap == 0 */
    size_t len, cap, max;
};

struct slice { /* borrowed bytes */
    const void *data;
    size_t len;
};

#define BUF_INIT(maximum)     \
    {                         \
        NULL, 0, 0, (maximum) \
    }
#define BUF_DEFAULT_MAX ((size_t)1 << 30)

void buf_init(struct buf *b, size_t max);
void buf_free(struct buf *b); /* the buffer may be used again: empty, same maximum */
void buf_clear(struct buf *b);

/* Makes room for `n` more bytes; *ret points at them (b->data + b->len). ERR_TOO_LARGE. */
int buf_reserve(struct buf *b, size_t n, char **ret) WARN_UNUSED;
int buf_append(struct buf *b, const void *data, size_t n) WARN_UNUSED;
int buf_puts(struct buf *b, const char *s) WARN_UNUSED;
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3) WARN_UNUSED;
void buf_consume(struct buf *b, size_t n); /* drops the first n bytes */
char *buf_steal(struct buf *b);            /* NUL-terminated heap string, buffer left empty */
const char *buf_str(const struct buf *b);  /* "" when empty */

/* For text whose size this program bounds: aborts where buf_printf would fail. */
void buf_add(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

static inline void autobuf_fn(struct buf *b)
{
    buf_free(b);
}
#define autobuf __attribute__((cleanup(autobuf_fn)))

#endif
