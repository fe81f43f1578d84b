/* Memory for control structures, and cleanup attributes.
 *
 * The x-functions never return NULL: a process that cannot get a few bytes for its own bookkeeping
 * prints one line and aborts. They are for sizes that the program itself bounds. Sizes chosen by a
 * peer go through `struct buf` (base/buf.h), which has a ceiling and fails with an error.
 * Any thread. Memory is released with free().
 */
#ifndef REITOS_BASE_ALLOC_H
#define REITOS_BASE_ALLOC_H

#include <stddef.h>
#include <stdlib.h>

void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size); /* checks n * size for overflow */
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s); /* NULL gives NULL */
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* `autofree char *p = NULL;` frees at scope end; `return STEAL(p);` hands it on. */
static inline void autofree_fn(void *p)
{
    free(*(void **)p);
}
static inline void autofd_fn(int *fd);
#define autofree __attribute__((cleanup(autofree_fn), unused))
#define autofd __attribute__((cleanup(autofd_fn)))
#define STEAL(p)                    \
    __extension__({                 \
        __typeof__(p) steal_ = (p); \
        (p) = NULL;                 \
        steal_;                     \
    })
#define STEAL_FD(fd)       \
    __extension__({        \
        int steal_ = (fd); \
        (fd) = -1;         \
        steal_;            \
    })

#define COUNTOF(a) (sizeof(a) / sizeof((a)[0]))

#include <unistd.h>
static inline void autofd_fn(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#endif
