/* A small HTTP client on libcurl: one blocking request at a time, for the thread pool and for the
 * command line. No redirects are followed, no cookies kept; TLS certificates are checked unless
 * `own` is set.
 * Any thread.
 */
#ifndef REITOS_WIRE_HTTPC_H
#define REITOS_WIRE_HTTPC_H

#include "base/buf.h"
#include "base/err.h"

#define HTTPC_TIMEOUT_MS 30000
#define HTTPC_BODY_MAX ((size_t)64 << 20)

struct httpc_request {
    const char *method;         /* NULL: GET, or POST with a body */
    const char *url;            /* http: or https: */
    const char *const *headers; /* "Name: value", ended by NULL; may be NULL */
    const void *body;           /* NULL: none */
    size_t body_len;
    int timeout_ms;          /* whole request; 0: HTTPC_TIMEOUT_MS */
    const char *unix_socket; /* connect there instead of the URL's host; may be NULL */
    size_t max_body;         /* of the answer; 0: HTTPC_BODY_MAX */
    int own;                 /* a daemon of ours on this machine, whose certificate is made for
                              * another name: it is not checked, and no proxy is used */
};

struct httpc_response {
    int status;
    struct buf body;
};

/* An answer of any status is success; the caller frees ret->body. ERR_UNAVAILABLE (nobody answers),
 * ERR_TIMEOUT, ERR_TOO_LARGE, ERR_INVALID (URL), ERR_IO. The message never holds the URL's query.
 */
int httpc_call(const struct httpc_request *q, struct httpc_response *ret,
               struct err *e) WARN_UNUSED;

#endif
