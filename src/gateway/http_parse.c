#include "gateway/http_parse.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "gateway/http.h"

static const char *const method_names[HTTP_METHOD_COUNT] = {"GET",   "HEAD",   "POST",   "PUT",
                                                            "PATCH", "DELETE", "OPTIONS"};

const char *http_method_name(enum http_method m)
{
    return m < HTTP_METHOD_COUNT ? method_names[m] : "?";
}

size_t http_head_end(const char *data, size_t len, size_t *scan)
{
    size_t i = *scan;
    while (i < len) {
        const char *lf = memchr(data + i, '\n', len - i);
        if (!lf) {
            *scan = len;
            return 0;
        }
        size_t at = (size_t)(lf - data);
        /* a lone line feed also ends the search, so that the parser can refuse it at once */
        if ((at >= 1 && data[at - 1] == '\n') ||
            (at >= 3 && data[at - 1] == '\r' && data[at - 2] == '\n'))
            return at + 1;
        i = at + 1;
        *scan = i;
    }
    return 0;
}

static int is_token_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

static int refuse(int status, const char **why, const char *text)
{
    *why = text;
    return status;
}

/* "http://host/path" -> "/path"; other targets are returned as they are. */
static char *origin_form(char *target)
{
    char *authority;
    if (strncasecmp(target, "http://", 7) == 0)
        authority = target + 7;
    else if (strncasecmp(target, "https://", 8) == 0)
        authority = target + 8;
    else
        return target;
    char *slash = strchr(authority, '/');
    return slash ? slash : target;
}

static int parse_request_line(char *line, struct http_head *h, const char **why)
{
    char *sp = strchr(line, ' ');
    if (!sp || sp == line)
        return refuse(400, why, "malformed request line");
    *sp = '\0';
    for (const char *p = line; *p; p++)
        if (!is_token_char((unsigned char)*p))
            return refuse(400, why, "malformed method");
    h->method = -1;
    for (int m = 0; m < HTTP_METHOD_COUNT; m++)
        if (strcmp(line, method_names[m]) == 0)
            h->method = m;
    char *target = sp + 1;
    char *end = strchr(target, ' ');
    if (!end || end == target)
        return refuse(400, why, "malformed request line");
    *end = '\0';
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return refuse(400, why, "control character in the URL");
    const char *version = end + 1;
    if (strncmp(version, "HTTP/", 5) != 0 || strlen(version) != 8)
        return refuse(400, why, "malformed protocol version");
    if (strcmp(version, "HTTP/1.1") == 0)
        h->minor = 1;
    else if (strcmp(version, "HTTP/1.0") == 0)
        h->minor = 0;
    else
        return refuse(505, why, "only HTTP/1.1 is spoken here");
    target = origin_form(target);
    if (*target != '/')
        return refuse(400, why, "URL is not absolute");
    h->target = target;
    return 0;
}

static int parse_field(char *line, struct http_field *f, const char **why)
{
    char *p = line;
    while (is_token_char((unsigned char)*p)) {
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p + ('a' - 'A'));
        p++;
    }
    if (p == line || *p != ':')
        return refuse(400, why, "malformed header");
    *p++ = '\0';
    while (*p == ' ' || *p == '\t')
        p++;
    char *end = p + strlen(p);
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    for (const char *q = p; *q; q++)
        if (((unsigned char)*q < ' ' && *q != '\t') || *q == 0x7f)
            return refuse(400, why, "control character in a header");
    f->name = line;
    f->value = p;
    return 0;
}

/* Cuts the text into lines at CR LF. NULL at the end; *bad for anything else. */
static char *next_line(char **pos, char *end, int *bad)
{
    char *line = *pos;
    char *lf = memchr(line, '\n', (size_t)(end - line));
    if (!lf || lf == line || lf[-1] != '\r' ||
        memchr(line, '\r', (size_t)(lf - 1 - line)) != NULL) {
        *bad = 1;
        return NULL;
    }
    lf[-1] = '\0';
    *pos = lf + 1;
    return line;
}

int http_head_parse(char *text, size_t len, struct http_head *h, const char **why)
{
    memset(h, 0, sizeof *h);
    if (memchr(text, '\0', len))
        return refuse(400, why, "NUL byte in the request head");
    char *pos = text, *end = text + len;
    int bad = 0;
    char *line = next_line(&pos, end, &bad);
    if (!line)
        return refuse(400, why, "malformed line ending");
    int status = parse_request_line(line, h, why);
    if (status)
        return status;
    size_t cap = 0;
    while ((line = next_line(&pos, end, &bad)) != NULL && *line) {
        if (h->nfields == HTTP_FIELDS_MAX)
            return refuse(431, why, "too many headers");
        if (h->nfields == cap) {
            cap = cap ? cap * 2 : 16;
            h->fields = xrealloc(h->fields, cap * sizeof *h->fields);
        }
        status = parse_field(line, &h->fields[h->nfields], why);
        if (status)
            return status;
        h->nfields++;
    }
    if (bad)
        return refuse(400, why, "malformed line ending");
    size_t hosts;
    if (!http_head_get(h, "host", &hosts) ? h->minor >= 1 : hosts != 1)
        return refuse(400, why, "one Host header is needed");
    return 0;
}

const char *http_head_get(const struct http_head *h, const char *lower_name, size_t *count)
{
    const char *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < h->nfields; i++) {
        if (strcmp(h->fields[i].name, lower_name) == 0) {
            if (n++ == 0)
                first = h->fields[i].value;
            if (!count)
                break;
        }
    }
    if (count)
        *count = n;
    return first;
}

int http_head_framing(const struct http_head *h, struct http_framing *ret, const char **why)
{
    size_t nlen, ncoding;
    const char *length = http_head_get(h, "content-length", &nlen);
    const char *coding = http_head_get(h, "transfer-encoding", &ncoding);
    ret->chunked = 0;
    ret->length = 0;
    if (length && coding)
        return refuse(400, why, "both Content-Length and Transfer-Encoding");
    if (nlen > 1 || ncoding > 1)
        return refuse(400, why, "repeated Content-Length or Transfer-Encoding");
    if (coding) {
        if (strcasecmp(coding, "chunked") != 0)
            return refuse(501, why, "unknown transfer coding");
        if (h->minor == 0)
            return refuse(400, why, "transfer coding in HTTP/1.0");
        ret->chunked = 1;
        return 0;
    }
    if (!length)
        return 0;
    if (!*length || strlen(length) > 18 || strspn(length, "0123456789") != strlen(length))
        return refuse(400, why, "malformed Content-Length");
    for (const char *p = length; *p; p++)
        ret->length = ret->length * 10 + (uint64_t)(*p - '0');
    return 0;
}

int http_has_token(const char *list, const char *token)
{
    size_t n = strlen(token);
    for (const char *p = list; p && *p;) {
        p += strspn(p, " \t,");
        size_t len = strcspn(p, ",");
        size_t item = len;
        while (item > 0 && (p[item - 1] == ' ' || p[item - 1] == '\t'))
            item--;
        if (item == n && strncasecmp(p, token, n) == 0)
            return 1;
        p += len;
    }
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Byte value of "%XX" at p, -1 when it is not one. */
static int escape(const char *p, size_t left)
{
    if (left < 3 || *p != '%')
        return -1;
    int hi = hex_digit(p[1]), lo = hex_digit(p[2]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

int http_path_decode(const char *raw, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)raw[i];
        if (c == '%') {
            c = escape(raw + i, len - i);
            i += 2;
        }
        if (c <= 0)
            return ERR_PARSE;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return utf8_valid(out, n) ? 0 : ERR_PARSE;
}

size_t http_query_decode(const char *raw, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int c = raw[i] == '+' ? ' ' : (unsigned char)raw[i];
        int e = escape(raw + i, len - i);
        if (e >= 0) {
            c = e;
            i += 2;
        }
        if (c)
            out[n++] = (char)c;
    }
    out[n] = '\0';
    return n;
}

char *http_query_get(const char *query, const char *key)
{
    size_t want = strlen(key);
    int seen = 0;
    for (const char *p = query; p && *p && seen < HTTP_QUERY_MAX; seen++) {
        size_t len = strcspn(p, "&");
        const char *eq = memchr(p, '=', len);
        size_t klen = eq ? (size_t)(eq - p) : len;
        /* decoding never lengthens, so a shorter raw key cannot match */
        if (klen >= want && len > 0) {
            autofree char *name = xmalloc(klen + 1);
            if (http_query_decode(p, klen, name) == want && memcmp(name, key, want) == 0) {
                size_t vlen = eq ? len - klen - 1 : 0;
                char *value = xmalloc(vlen + 1);
                http_query_decode(eq ? eq + 1 : p, vlen, value);
                return value;
            }
        }
        p += len + (p[len] == '&');
    }
    return NULL;
}

char *http_cookie_get(const char *header, const char *name)
{
    size_t want = strlen(name);
    for (const char *p = header; p && *p;) {
        p += strspn(p, " \t;");
        size_t len = strcspn(p, ";");
        if (want > 0 && len > want && p[want] == '=' && memcmp(p, name, want) == 0) {
            const char *v = p + want + 1;
            size_t vlen = len - want - 1;
            while (vlen > 0 && (v[vlen - 1] == ' ' || v[vlen - 1] == '\t'))
                vlen--;
            if (vlen >= 2 && v[0] == '"' && v[vlen - 1] == '"') {
                v++;
                vlen -= 2;
            }
            return xstrndup(v, vlen);
        }
        p += len;
    }
    return NULL;
}

const char *http_base_strip(const char *path, const char *base, int *ret_redirect)
{
    size_t n = strlen(base);
    *ret_redirect = 0;
    if (strncmp(path, base, n) == 0)
        return path + n;
    if (n > 1 && strlen(path) == n - 1 && strncmp(path, base, n - 1) == 0)
        *ret_redirect = 1;
    return NULL;
}

/* Length of the valid UTF-8 sequence at p, 0 when there is none. */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
    unsigned char c = p[0];
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || left < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) || (c == 0xf0 && p[1] < 0x90) ||
        (c == 0xf4 && p[1] > 0x8f))
        return 0; /* overlong, surrogate, beyond U+10FFFF */
    return n;
}

int utf8_valid(const void *data, size_t len)
{
    const unsigned char *p = data, *end = p + len;
    while (p < end) {
        uint64_t word;
        while (end - p >= 8) { /* eight ASCII bytes at a time */
            memcpy(&word, p, 8);
            if (word & 0x8080808080808080ULL)
                break;
            p += 8;
        }
        if (p == end)
            break;
        if (*p < 0x80) {
            p++;
            continue;
        }
        size_t n = utf8_sequence(p, (size_t)(end - p));
        if (n == 0)
            return 0;
        p += n;
    }
    return 1;
}

/* Chunked coding: SIZE [;extension] CRLF data CRLF ... 0 CRLF trailers CRLF. */
enum { CH_SIZE, CH_EXTENSION, CH_SIZE_LF, CH_DATA, CH_DATA_CR, CH_DATA_LF, CH_TRAILER, CH_DONE };
#define CHUNK_LINE_MAX 4096 /* of one extension or of all trailers */

static int chunk_size_byte(struct http_chunked *c, char ch)
{
    int d = hex_digit(ch);
    if (d >= 0) {
        if (++c->digits > 15)
            return ERR_PARSE;
        c->left = c->left * 16 + (uint64_t)d;
        return 0;
    }
    if (c->digits == 0)
        return ERR_PARSE;
    if (ch == '\r')
        c->state = CH_SIZE_LF;
    else if (ch == ';' || ch == ' ' || ch == '\t')
        c->state = CH_EXTENSION;
    else
        return ERR_PARSE;
    return 0;
}

/* `line` is the place in a trailer line: 0 start, 1 after CR at the start, 2 text, 3 after its CR;
 * `digits` counts all trailer bytes. */
static int trailer_byte(struct http_chunked *c, char ch)
{
    if (++c->digits > CHUNK_LINE_MAX)
        return ERR_PARSE;
    switch (c->line) {
    case 0:
        c->line = ch == '\r' ? 1 : 2;
        return ch == '\n' ? ERR_PARSE : 0;
    case 1:
        c->state = CH_DONE;
        return ch == '\n' ? 0 : ERR_PARSE;
    case 2:
        if (ch == '\r')
            c->line = 3;
        return ch == '\n' ? ERR_PARSE : 0;
    default:
        c->line = 0;
        return ch == '\n' ? 0 : ERR_PARSE;
    }
}

static int chunk_byte(struct http_chunked *c, char ch)
{
    switch (c->state) {
    case CH_SIZE:
        return chunk_size_byte(c, ch);
    case CH_EXTENSION:
        if (ch == '\r')
            c->state = CH_SIZE_LF;
        else if (ch == '\n' || ++c->line > CHUNK_LINE_MAX)
            return ERR_PARSE;
        return 0;
    case CH_SIZE_LF:
        c->state = c->left ? CH_DATA : CH_TRAILER;
        c->digits = c->line = 0;
        return ch == '\n' ? 0 : ERR_PARSE;
    case CH_DATA_CR:
        c->state = CH_DATA_LF;
        return ch == '\r' ? 0 : ERR_PARSE;
    case CH_DATA_LF:
        c->state = CH_SIZE;
        return ch == '\n' ? 0 : ERR_PARSE;
    default:
        return trailer_byte(c, ch);
    }
}

long http_chunked_feed(struct http_chunked *c, const char *data, size_t len, const char **ret_data,
                       size_t *ret_len)
{
    size_t i = 0;
    *ret_data = data;
    *ret_len = 0;
    while (i < len && c->state != CH_DONE) {
        if (c->state == CH_DATA) {
            size_t n = len - i;
            if (n > c->left)
                n = (size_t)c->left;
            c->left -= n;
            if (c->left == 0)
                c->state = CH_DATA_CR;
            *ret_data = data + i;
            *ret_len = n;
            return (long)(i + n);
        }
        if (chunk_byte(c, data[i++]) < 0)
            return ERR_PARSE;
    }
    return (long)i;
}

int http_chunked_done(const struct http_chunked *c)
{
    return c->state == CH_DONE;
}
