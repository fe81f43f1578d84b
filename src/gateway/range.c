#include "gateway/range.h"

#include <string.h>
#include <strings.h>

/* Decimal digits up to 2^63; -1 when malformed, 0 when there are none, else 1. */
static int number(const char **p, uint64_t *ret)
{
    uint64_t v = 0;
    const char *s = *p;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (v > (uint64_t)INT64_MAX / 10 - 1)
            return -1;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    int any = s > *p;
    *p = s;
    *ret = v;
    return any;
}

static void skip(const char **p)
{
    *p += strspn(*p, " \t");
}

/* What stands between "bytes=" and the end; 0 when it is not one well-formed range. */
static int parse_bytes(const char *p, int *has_first, uint64_t *first, int *has_last,
                       uint64_t *last)
{
    if (strncasecmp(p, "bytes", 5) != 0)
        return 0;
    p += 5;
    skip(&p);
    if (*p++ != '=')
        return 0;
    skip(&p);
    *has_first = number(&p, first);
    if (*has_first < 0 || *p++ != '-')
        return 0;
    *has_last = number(&p, last);
    skip(&p);
    return *has_last >= 0 && !*p && (*has_first || *has_last);
}

enum range range_parse(const char *header, uint64_t size, uint64_t *from, uint64_t *len)
{
    int has_first, has_last;
    uint64_t first, last;
    if (!header || !parse_bytes(header, &has_first, &first, &has_last, &last))
        return RANGE_NONE;
    if (!has_first) { /* the last N bytes */
        if (last == 0 || size == 0)
            return RANGE_UNSATISFIABLE;
        first = last < size ? size - last : 0;
        last = size - 1;
    } else if (has_last && last < first) {
        return RANGE_NONE;
    } else if (!has_last || last >= size) {
        last = size - 1;
    }
    if (first >= size)
        return RANGE_UNSATISFIABLE;
    if (first == 0 && last == size - 1)
        return RANGE_NONE;
    *from = first;
    *len = last - first + 1;
    return RANGE_OK;
}
