/* JSON5: a recursive descent over one text. */
#include "gateway/json5.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define NUMBER_MAX 400

struct reader {
    const char *text, *p, *end;
    struct err *e;
    int depth;
};

static json_t *read_value(struct reader *r);

/* Sets the error with the place reached; NULL, so that it can be returned. */
static void *fail(struct reader *r, const char *reason)
{
    int line = 1, column = 1;
    for (const char *p = r->text; p < r->p && p < r->end; p++) {
        column = *p == '\n' ? 1 : column + 1;
        line += *p == '\n';
    }
    err_set(r->e, ERR_PARSE, "line %d column %d: %s", line, column, reason);
    return NULL;
}

static int peek(const struct reader *r)
{
    return r->p < r->end ? (unsigned char)*r->p : -1;
}

static int starts(const struct reader *r, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(r->end - r->p) >= n && !memcmp(r->p, s, n);
}

/* White space (Unicode's too) and comments. 0: an open comment. */
static int skip(struct reader *r)
{
    static const char *const wide[] = {"\xC2\xA0", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xEF\xBB\xBF"};
    for (;;) {
        size_t w = 0;
        for (size_t i = 0; i < COUNTOF(wide) && !w; i++)
            w = starts(r, wide[i]) ? strlen(wide[i]) : 0;
        if (w) {
            r->p += w;
        } else if (r->p < r->end && strchr(" \t\n\r\v\f", *r->p) && *r->p) {
            r->p++;
        } else if (starts(r, "//")) {
            while (r->p < r->end && *r->p != '\n')
                r->p++;
        } else if (starts(r, "/*")) {
            const char *close = memmem(r->p + 2, (size_t)(r->end - r->p - 2), "*/", 2);
            if (!close)
                return fail(r, "comment without end") != NULL;
            r->p = close + 2;
        } else {
            return 1;
        }
    }
}

static int hex(struct reader *r, int digits, unsigned *ret)
{
    *ret = 0;
    for (int i = 0; i < digits; i++, r->p++) {
        if (r->p == r->end || !isxdigit((unsigned char)*r->p))
            return fail(r, "hexadecimal digit expected") != NULL;
        unsigned c = (unsigned char)*r->p | 0x20;
        *ret = *ret << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return 1;
}

static void put_utf8(struct buf *b, unsigned c)
{
    if (c < 0x80)
        buf_add(b, "%c", c);
    else if (c < 0x800)
        buf_add(b, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 0x3F));
    else if (c < 0x10000)
        buf_add(b, "%c%c%c", 0xE0 | c >> 12, 0x80 | (c >> 6 & 0x3F), 0x80 | (c & 0x3F));
    else
        buf_add(b, "%c%c%c%c", 0xF0 | c >> 18, 0x80 | (c >> 12 & 0x3F), 0x80 | (c >> 6 & 0x3F),
                0x80 | (c & 0x3F));
}

/* After "\u": one code point, from a surrogate pair if need be. */
static int read_unicode(struct reader *r, struct buf *out)
{
    unsigned c, low;
    if (!hex(r, 4, &c))
        return 0;
    if (c >= 0xD800 && c < 0xDC00 && starts(r, "\\u")) {
        r->p += 2;
        if (!hex(r, 4, &low))
            return 0;
        if (low < 0xDC00 || low > 0xDFFF)
            return fail(r, "half of a surrogate pair") != NULL;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xD800 && c < 0xE000) {
        return fail(r, "half of a surrogate pair") != NULL;
    }
    if (!c)
        return fail(r, "NUL in a string") != NULL;
    put_utf8(out, c);
    return 1;
}

/* After a backslash. */
static int read_escape(struct reader *r, struct buf *out)
{
    static const char from[] = "bfnrtv", to[] = "\b\f\n\r\t\v";
    int c = peek(r);
    unsigned code;
    if (c < 0)
        return fail(r, "string without end") != NULL;
    r->p++;
    if (c == 'u')
        return read_unicode(r, out);
    if (c == 'x') {
        if (!hex(r, 2, &code))
            return 0;
        if (!code)
            return fail(r, "NUL in a string") != NULL;
        put_utf8(out, code);
        return 1;
    }
    if (c == '\n' || c == '\r') {
        if (c == '\r' && peek(r) == '\n')
            r->p++;
        return 1;
    }
    if (isdigit(c) || !c)
        return fail(r, c ? "octal escape" : "NUL in a string") != NULL;
    const char *at = strchr(from, c);
    buf_add(out, "%c", at ? to[at - from] : c);
    return 1;
}

/* A quoted string's content. 0 on failure. */
static int read_string(struct reader *r, struct buf *out)
{
    int quote = *r->p++;
    for (;;) {
        int c = peek(r);
        if (c < 0 || c == '\n' || c == '\r')
            return fail(r, "string without end") != NULL;
        r->p++;
        if (c == quote)
            return 1;
        if (c == '\\') {
            if (!read_escape(r, out))
                return 0;
        } else if (c == '\0') {
            return fail(r, "NUL in a string") != NULL;
        } else {
            buf_add(out, "%c", c);
        }
    }
}

static int is_name_char(int c)
{
    return c >= 0x80 || isalnum(c) || c == '_' || c == '$';
}

/* A key: quoted, or a name. */
static int read_key(struct reader *r, struct buf *out)
{
    int c = peek(r);
    if (c == '"' || c == '\'')
        return read_string(r, out);
    if (c < 0 || isdigit(c) || !(is_name_char(c) || c == '\\'))
        return fail(r, "name expected") != NULL;
    for (; (c = peek(r)) >= 0 && (is_name_char(c) || c == '\\'); r->p++) {
        if (c != '\\') {
            buf_add(out, "%c", c);
            continue;
        }
        r->p++;
        if (peek(r) != 'u')
            return fail(r, "only \\u may stand in a name") != NULL;
        r->p++;
        if (!read_unicode(r, out))
            return 0;
        r->p--;
    }
    return 1;
}

/* Does `c` go on with a number that reads `text` so far? */
static int goes_on(int c, int is_hex, const char *text, size_t n)
{
    if (is_hex)
        return isxdigit(c);
    int after_e = n && (text[n - 1] | 0x20) == 'e';
    return isdigit(c) || c == '.' || (c | 0x20) == 'e' || (after_e && (c == '+' || c == '-'));
}

/* The text is made of the right characters; 0 when they make no number. */
static int number_ok(const char *text, int is_hex)
{
    if (is_hex)
        return *text != '\0';
    int leading_zero = text[0] == '0' && isdigit((unsigned char)text[1]);
    return strpbrk(text, "0123456789") && !leading_zero;
}

static json_t *read_number(struct reader *r)
{
    char text[NUMBER_MAX + 1], *end;
    size_t n = 0;
    int sign = *r->p == '-' ? -1 : 1;
    r->p += *r->p == '-' || *r->p == '+';
    int is_hex = starts(r, "0x") || starts(r, "0X");
    r->p += is_hex ? 2 : 0;
    for (int c; (c = peek(r)) >= 0 && n < NUMBER_MAX && goes_on(c, is_hex, text, n); r->p++)
        text[n++] = (char)c;
    text[n] = '\0';
    if (!number_ok(text, is_hex))
        return fail(r, "malformed number");
    errno = 0;
    long long whole = strtoll(text, &end, is_hex ? 16 : 10);
    if (!errno && !*end)
        return json_integer(sign * whole);
    double d = is_hex ? (double)strtoull(text, &end, 16) : strtod(text, &end);
    if (*end || !isfinite(d))
        return fail(r, "malformed number");
    return json_real(sign * d);
}

/* After a member or element: 1 more may follow, 0 closed, -1 error. */
static int after_item(struct reader *r, int close)
{
    if (!skip(r))
        return -1;
    int c = peek(r);
    if (c == ',') {
        r->p++;
        if (!skip(r))
            return -1;
        c = peek(r);
        if (c != close)
            return 1;
    }
    if (c == close) {
        r->p++;
        return 0;
    }
    fail(r, c < 0 ? "unexpected end" : "\",\" expected");
    return -1;
}

static json_t *read_object(struct reader *r)
{
    autojson json_t *o = json_object();
    r->p++;
    if (!skip(r))
        return NULL;
    if (peek(r) == '}') {
        r->p++;
        return STEAL(o);
    }
    for (int more = 1; more;) {
        autobuf struct buf key = BUF_INIT(JSON_TEXT_MAX);
        if (!read_key(r, &key) || !skip(r))
            return NULL;
        if (peek(r) != ':')
            return fail(r, "\":\" expected");
        r->p++;
        json_t *v = read_value(r);
        if (!v)
            return NULL;
        if (json_object_set_new(o, buf_str(&key), v) < 0)
            return fail(r, "bad UTF-8");
        more = after_item(r, '}');
        if (more < 0)
            return NULL;
    }
    return STEAL(o);
}

static json_t *read_array(struct reader *r)
{
    autojson json_t *a = json_array();
    r->p++;
    if (!skip(r))
        return NULL;
    if (peek(r) == ']') {
        r->p++;
        return STEAL(a);
    }
    for (int more = 1; more;) {
        json_t *v = read_value(r);
        if (!v)
            return NULL;
        json_array_append_new(a, v);
        more = after_item(r, ']');
        if (more < 0)
            return NULL;
    }
    return STEAL(a);
}

static json_t *read_word(struct reader *r)
{
    static const struct {
        const char *word;
        json_t *(*make)(void);
    } words[] = {{"true", json_true}, {"false", json_false}, {"null", json_null}};
    for (size_t i = 0; i < COUNTOF(words); i++) {
        size_t n = strlen(words[i].word);
        if (starts(r, words[i].word) && !(r->p + n < r->end && is_name_char(r->p[n] & 0xFF))) {
            r->p += n;
            return words[i].make();
        }
    }
    return fail(r, r->p == r->end ? "unexpected end" : "value expected");
}

static json_t *read_value(struct reader *r)
{
    if (!skip(r))
        return NULL;
    if (r->depth == JSON5_DEPTH_MAX)
        return fail(r, "nested too deeply");
    r->depth++;
    int c = peek(r);
    json_t *v;
    if (c == '{') {
        v = read_object(r);
    } else if (c == '[') {
        v = read_array(r);
    } else if (c == '"' || c == '\'') {
        autobuf struct buf s = BUF_INIT(JSON_TEXT_MAX);
        v = read_string(r, &s) ? json_stringn(buf_str(&s), s.len) : NULL;
        if (!v && r->e && !r->e->code)
            fail(r, "bad UTF-8");
    } else if (c == '+' || c == '-' || c == '.' || (c >= 0 && isdigit(c))) {
        v = read_number(r);
    } else {
        v = read_word(r);
    }
    r->depth--;
    return v;
}

int json5_parse(const char *text, size_t len, json_t **ret, struct err *e)
{
    struct err local = {0};
    struct reader r = {.text = text, .p = text, .end = text + len, .e = &local};
    autojson json_t *v = read_value(&r);
    if (v && skip(&r) && r.p < r.end)
        fail(&r, "text after the value");
    if (local.code) {
        if (e)
            *e = local;
        return local.code;
    }
    *ret = STEAL(v);
    return 0;
}
