#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf)BUF_INIT(max);
}

void buf_free(struct buf *b)
{
    free(b->data);
    buf_init(b, b->max);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t n, char **ret)
{
    if (n > b->max || b->len > b->max - n)
        return ERR_TOO_LARGE;
    size_t need = b->len + n + 1;
    if (need > b->cap) {
        size_t cap = b->cap < 64 ? 64 : b->cap;
        while (cap < need)
            cap += cap / 2;
        char *p = realloc(b->data, cap);
        if (!p)
            return ERR_MEMORY;
        b->data = p;
        b->cap = cap;
        b->data[b->len] = '\0';
    }
    if (ret)
        *ret = b->data + b->len;
    return 0;
}

int buf_append(struct buf *b, const void *data, size_t n)
{
    char *p;
    int rc = buf_reserve(b, n, &p);
    if (rc < 0)
        return rc;
    if (n)
        memcpy(p, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

PRINTF_LIKE(2, 0) static int vprint(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        return ERR_INTERNAL;
    char *p;
    int rc = buf_reserve(b, (size_t)n, &p);
    if (rc < 0)
        return rc;
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    b->len += (size_t)n;
    return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = vprint(b, fmt, ap);
    va_end(ap);
    return rc;
}

void buf_add(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = vprint(b, fmt, ap);
    va_end(ap);
    if (rc < 0) {
        fprintf(stderr, "reitos: buffer: %s\n", err_text(rc));
        abort();
    }
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= b->len) {
        buf_clear(b);
        return;
    }
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

char *buf_steal(struct buf *b)
{
    char *p = b->data ? b->data : xstrdup("");
    b->data = NULL;
    buf_init(b, b->max);
    return p;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}
