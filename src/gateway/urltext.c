/* Text of URLs and forms. */
#include "gateway/urltext.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes %XX and + in n bytes to a heap string; NULL when malformed or with a NUL inside. */
static char *form_decode(const char *s, size_t n)
{
    autofree char *out = xmalloc(n + 1);
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            if (n - i < 3 || hex_digit(s[i + 1]) < 0 || hex_digit(s[i + 2]) < 0)
                return NULL;
            c = (char)(hex_digit(s[i + 1]) << 4 | hex_digit(s[i + 2]));
            i += 2;
        }
        if (!c)
            return NULL;
        out[o++] = c;
    }
    out[o] = '\0';
    return STEAL(out);
}

char *form_field(const char *text, size_t len, const char *key)
{
    const char *end = text + len;
    while (text < end) {
        const char *amp = memchr(text, '&', (size_t)(end - text));
        const char *stop = amp ? amp : end;
        const char *eq = memchr(text, '=', (size_t)(stop - text));
        const char *name_end = eq ? eq : stop;
        autofree char *name = form_decode(text, (size_t)(name_end - text));
        if (name && !strcmp(name, key))
            return eq ? form_decode(eq + 1, (size_t)(stop - eq - 1)) : xstrdup("");
        text = amp ? amp + 1 : end;
    }
    return NULL;
}

void url_escape(const char *s, struct buf *out)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (isalnum(c) || strchr("-._~/", c))
            buf_add(out, "%c", c);
        else
            buf_add(out, "%%%02X", c);
    }
}

void html_escape(const char *s, struct buf *out)
{
    for (; *s; s++) {
        switch (*s) {
        case '&':
            buf_add(out, "&amp;");
            break;
        case '<':
            buf_add(out, "&lt;");
            break;
        case '>':
            buf_add(out, "&gt;");
            break;
        case '"':
            buf_add(out, "&quot;");
            break;
        case '\'':
            buf_add(out, "&#39;");
            break;
        default:
            buf_add(out, "%c", *s);
        }
    }
}

char *url_without(const char *uri, const char *key)
{
    while (uri[0] == '/' && (uri[1] == '/' || uri[1] == '\\'))
        uri++;
    struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    size_t path = strcspn(uri, "?"), keylen = strlen(key);
    buf_add(&b, "%.*s", (int)path, uri);
    char sep = '?';
    for (const char *p = uri[path] ? uri + path + 1 : ""; *p;) {
        size_t n = strcspn(p, "&");
        int drop = !strncmp(p, key, keylen) && (p[keylen] == '=' || keylen == n);
        if (!drop && n) {
            buf_add(&b, "%c%.*s", sep, (int)n, p);
            sep = '&';
        }
        p += n + (p[n] == '&');
    }
    return buf_steal(&b);
}

/* A dot segment, plain or percent-encoded, in the path part of `url`? */
static int has_dot_segment(const char *url)
{
    size_t end = strcspn(url, "?#");
    for (size_t i = 0; i < end;) {
        size_t n = strcspn(url + i, "/?#");
        size_t dots = 0, used = 0;
        while (used < n) {
            if (url[i + used] == '.')
                used++;
            else if (n - used >= 3 && !strncasecmp(url + i + used, "%2e", 3))
                used += 3;
            else
                break;
            dots++;
        }
        if (used == n && (dots == 1 || dots == 2))
            return 1;
        i += n + 1;
    }
    return 0;
}

char *url_safe_next(const char *next, const char *base_url)
{
    size_t base_len = strlen(base_url);
    if (!next || next[0] != '/' || next[1] == '/' || has_dot_segment(next))
        return xstrdup(base_url);
    for (const char *p = next; *p; p++)
        if ((unsigned char)*p < 0x21 || (unsigned char)*p == 0x7f || *p == '\\')
            return xstrdup(base_url);
    int under = !strncmp(next, base_url, base_len) ||
                (strlen(next) == base_len - 1 && !strncmp(next, base_url, base_len - 1));
    return xstrdup(under ? next : base_url);
}
