#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void *checked(void *p, size_t n)
{
    if (!p && n) {
        fprintf(stderr, "reitos: out of memory (%zu bytes)\n", n);
        abort();
    }
    return p;
}

void *xmalloc(size_t n)
{
    return checked(malloc(n ? n : 1), n);
}

void *xcalloc(size_t n, size_t size)
{
    return checked(calloc(n ? n : 1, size ? size : 1), n);
}

void *xrealloc(void *p, size_t n)
{
    return checked(realloc(p, n ? n : 1), n);
}

char *xstrdup(const char *s)
{
    return s ? checked(strdup(s), 1) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
    return checked(strndup(s, n), 1);
}

char *xasprintf(const char *fmt, ...)
{
    char *out = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&out, fmt, ap);
    va_end(ap);
    return checked(n < 0 ? NULL : out, 1);
}
