#include "wire/jscan.h"

#include <string.h>

#define LEN_MAX 65536

struct cursor {
    const char *p, *end;
};

static void skip_space(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
}

/* After white space; 0 when something else is there. */
static int take(struct cursor *c, char what)
{
    skip_space(c);
    if (c->p == c->end || *c->p != what)
        return 0;
    c->p++;
    return 1;
}

static int take_string(struct cursor *c, struct slice *ret)
{
    if (!take(c, '"'))
        return 0;
    const char *start = c->p;
    while (c->p < c->end && *c->p != '"') {
        if (*c->p < ' ' || *c->p > '~' || *c->p == '\\')
            return 0;
        c->p++;
    }
    *ret = (struct slice){start, (size_t)(c->p - start)};
    return take(c, '"');
}

static int take_value(struct cursor *c, struct slice *ret)
{
    skip_space(c);
    if (c->end - c->p < 4 || memcmp(c->p, "null", 4) != 0)
        return take_string(c, ret);
    c->p += 4; /* what may follow is only a comma, a brace or white space */
    *ret = (struct slice){"", 0};
    return 1;
}

static int is_new(const struct slice *names, size_t n, const struct slice *name)
{
    for (size_t i = 0; i < n; i++)
        if (names[i].len == name->len && memcmp(names[i].data, name->data, name->len) == 0)
            return 0; /* the parser refuses it */
    return 1;
}

static int take_members(struct cursor *c, const char *const *keys, size_t n, struct slice *ret)
{
    struct slice names[JSCAN_MEMBERS_MAX], value;
    size_t seen = 0;
    do {
        if (seen == JSCAN_MEMBERS_MAX)
            return 0;
        struct slice *name = &names[seen];
        if (!take_string(c, name) || !is_new(names, seen, name) || !take(c, ':') ||
            !take_value(c, &value))
            return 0;
        for (size_t i = 0; i < n; i++)
            if (strlen(keys[i]) == name->len && memcmp(keys[i], name->data, name->len) == 0)
                ret[i] = value;
        seen++;
    } while (take(c, ','));
    return take(c, '}');
}

int jscan_strings(const char *text, size_t len, const char *const *keys, size_t n,
                  struct slice *ret)
{
    struct cursor c = {text, text + len};
    if (len > LEN_MAX)
        return 0;
    for (size_t i = 0; i < n; i++)
        ret[i] = (struct slice){"", 0};
    if (!take(&c, '{'))
        return 0;
    if (!take(&c, '}') && !take_members(&c, keys, n, ret))
        return 0;
    skip_space(&c);
    return c.p == c.end;
}
