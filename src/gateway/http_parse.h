/* Parsers of the HTTP server, free of sockets: request heads, URLs, queries, cookies, chunked
 * bodies, UTF-8.
 *
 * They are strict where leniency lets two servers read one message differently: bare line feeds,
 * folded headers, blanks before a colon, repeated or signed lengths and unknown transfer codings
 * are refused. Any thread; no global state.
 */
#ifndef REITOS_GATEWAY_HTTP_PARSE_H
#define REITOS_GATEWAY_HTTP_PARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HTTP_HEAD_MAX ((size_t)64 << 10) /* request line and headers together */
#define HTTP_FIELDS_MAX 512
#define HTTP_QUERY_MAX 1024 /* parameters that are looked at */

struct http_field {
    const char *name;  /* lower case */
    const char *value; /* without blanks around it */
};

struct http_head {
    int method;         /* enum http_method, -1 when unknown */
    const char *target; /* as sent, without "http://host" of the absolute form */
    int minor;          /* 0 or 1 of HTTP/1.x */
    struct http_field *fields;
    size_t nfields;
};

/* Length of the head at the start of `data` including its final empty line; 0 when it is not
 * complete yet. `*scan` remembers how far was searched (start with 0). */
size_t http_head_end(const char *data, size_t len, size_t *scan);

/* Parses a whole head of `len` bytes in place: names and values point into `text`, which must be
 * writable and stay. Returns 0, or the HTTP status of the refusal (400, 431, 505) with *why set to
 * a constant text. The caller frees h->fields, also on failure. */
int http_head_parse(char *text, size_t len, struct http_head *h, const char **why) WARN_UNUSED;

/* First field of that name, NULL when absent; `*count` (may be NULL) is how many there are. */
const char *http_head_get(const struct http_head *h, const char *lower_name, size_t *count);

/* How the body is delimited: Returns 0 or an HTTP status (400, 501) with *why. */
struct http_framing {
    int chunked;
    uint64_t length; /* when not chunked */
};
int http_head_framing(const struct http_head *h, struct http_framing *ret,
                      const char **why) WARN_UNUSED;

/* 1 when the comma-separated list holds `token`, compared without case. `list` may be NULL. */
int http_has_token(const char *list, const char *token);

/* Decodes %XX of a path into `out` (len + 1 bytes); '+' stays. ERR_PARSE for a malformed escape, a
 * NUL byte or what is not UTF-8. */
int http_path_decode(const char *raw, size_t len, char *out) WARN_UNUSED;

/* Decodes a query component into `out` (len + 1 bytes): '+' is a blank; a malformed escape stays as
 * it is; NUL bytes are dropped. Returns the length. */
size_t http_query_decode(const char *raw, size_t len, char *out);

/* Value of a parameter, decoded, as a heap string; NULL when absent. The first one counts. */
char *http_query_get(const char *query, const char *key);

/* Value of a cookie as a heap string, quotes removed; NULL when absent. */
char *http_cookie_get(const char *header, const char *name);

/* Strips `base` ("/" or "/x/") from a decoded path. Returns the rest without a leading slash, NULL
 * when the path is outside; *ret_redirect is 1 when it is the base without its final slash. */
const char *http_base_strip(const char *path, const char *base, int *ret_redirect);

int utf8_valid(const void *data, size_t len);

/* Decoder of a chunked body, fed in any pieces. */
struct http_chunked {
    int state;
    uint64_t left; /* of the current chunk */
    unsigned digits, line;
};
/* Consumes bytes of `data`; *ret_data and *ret_len are the payload found (a part of data, may be
 * empty). Returns the bytes consumed, or ERR_PARSE. Call again until all is consumed or
 * http_chunked_done(). */
long http_chunked_feed(struct http_chunked *c, const char *data, size_t len, const char **ret_data,
                       size_t *ret_len) WARN_UNUSED;
int http_chunked_done(const struct http_chunked *c);

#endif
