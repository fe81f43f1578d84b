/* HTTP/1.1 and WebSocket server.
 *
 * Everything runs on the loop thread. A handler gets a request whose body is complete (or spooled
 * to an unlinked file when large) and answers now or later; a request that is not answered within
 * HTTP_HOLD_S gets 503. When the client goes away first, `gone` is called if set, and answering is
 * then a no-op; the request stays valid until http_reply*() or http_stream_end() was called on it,
 * and must not be touched afterwards.
 *
 * libwebsockets carries bytes and TLS only (in its raw role); the grammar is checked strictly here:
 * bare line feeds, folded headers, blanks before a colon, a missing or repeated Host, two kinds of
 * body length and unknown transfer codings are refused, so that a proxy in front and this server
 * never see different requests. '+' in a path stays '+'. permessage-deflate is not offered.
 * TCP_NODELAY is set on every socket. A client that closes its sending side counts as gone.
 */
#ifndef REITOS_GATEWAY_HTTP_H
#define REITOS_GATEWAY_HTTP_H

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define HTTP_HOLD_S 120
#define HTTP_BODY_MAX ((uint64_t)2 << 30)
#define HTTP_BODY_MEMORY ((size_t)16 << 20) /* larger bodies are spooled to disk */
#define WS_MESSAGE_MAX ((size_t)256 << 20)
#define WS_QUEUE_MAX ((size_t)1 << 30)
#define WS_HEAD_KEPT ((size_t)64 << 10) /* of a message that is too large */

struct http_server;
struct http_req;
struct ws;

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_METHOD_COUNT
};
const char *http_method_name(enum http_method m);

/* Who makes a request. One user for now; every handler passes it on. */
struct principal {
    char *user;    /* login name */
    char *display; /* shown name */
    int by_cookie; /* XSRF rules apply */
};

/* What a WebSocket calls. */
struct ws_ops {
    void (*open)(struct ws *w, void *arg);
    void (*message)(struct ws *w, void *arg, const void *data, size_t len, int binary);
    /* the socket took everything: send more */
    void (*drained)(struct ws *w, void *arg);
    /* the peer answered the ping that carried `mark` (ws_ping): it has read all sent before it */
    void (*pong)(struct ws *w, void *arg, uint64_t mark);
    void (*closed)(struct ws *w, void *arg); /* last callback; w is invalid afterwards */
    /* message over WS_MESSAGE_MAX: dropped; the socket survives; `head` is its beginning */
    void (*oversize)(struct ws *w, void *arg, const void *head, size_t len);
};

struct http_conf {
    const char *listen;   /* "ADDR:PORT" (port 0: any free one), "[::1]:8888" or "unix:PATH" */
    const char *base_url; /* "/" or "/x/": always with both slashes */
    const char *tls_cert, *tls_key; /* NULL: plain */
    const char *spool; /* folder for large request bodies; NULL: $TMPDIR, else /var/tmp */
    /* Runs for each request and each WebSocket handshake before the handler: checks Host, Origin,
     * authentication, XSRF; may answer itself (returns 0 then) or let it pass (returns 1). It runs
     * before the body is read, so that strangers cannot make the server store one. Only form posts
     * (at most 1 MiB) are read first: a login form carries its own proof. */
    int (*filter)(void *arg, struct http_req *req);
    void (*handle)(void *arg, struct http_req *req);
    /* A WebSocket handshake that passed the filter: return the ws handlers by filling *ops and
     * *ws_arg, 0 to accept, an HTTP status to refuse (with a JSON body), or negative when it has
     * answered the request itself. */
    int (*upgrade)(void *arg, struct http_req *req, const struct ws_ops **ops, void **ws_arg);
    /* After each answer, for the access log and metrics; 499: the client went away first, 101: a
     * WebSocket was opened. May be NULL. */
    void (*done)(void *arg, struct http_req *req, int status, double seconds);
    void *arg;
};

int http_server_start(uv_loop_t *loop, const struct http_conf *conf, struct http_server **ret,
                      struct err *e) WARN_UNUSED;
int http_server_port(const struct http_server *s); /* 0 for a Unix socket */
/* Stops listening, closes WebSockets with 1012, answers what waits with 503, gives all that at most
 * one second to leave, and drops the rest. Blocks for that time. No callback comes after it has
 * returned; its memory goes as the loop runs on. Call it on the loop thread, not from a handler. */
void http_server_stop(struct http_server *s);

/* The request. Paths are percent-decoded UTF-8 without the base URL and without a leading slash. */
enum http_method http_method(const struct http_req *r);
const char *http_path(const struct http_req *r);
const char *http_raw_uri(const struct http_req *r);                /* for logs: redact first */
const char *http_query(const struct http_req *r, const char *key); /* decoded; NULL when absent */
const char *http_header(const struct http_req *r, const char *lower_name); /* NULL when absent */
const char *http_cookie(const struct http_req *r, const char *name);       /* NULL when absent */
const char *http_peer(const struct http_req *r); /* address text, "unix" for a Unix socket */
int http_is_tls(const struct http_req *r);
struct principal *http_principal(struct http_req *r); /* filled by the filter */
/* The body: in memory, or (NULL is returned) in an unlinked file of `len` bytes. */
const char *http_body(const struct http_req *r, size_t *len);
int http_body_fd(const struct http_req *r, uint64_t *len); /* -1 when in memory */
int http_body_json(struct http_req *r, json_t **ret, struct err *e) WARN_UNUSED; /* {} when empty */
/* Per-request arena pointer for handlers; freed by `free_fn` with the request. */
void http_set_data(struct http_req *r, void *data, void (*free_fn)(void *));
void *http_data(const struct http_req *r);
/* `gone` runs once, when the client went away or the hold time is over before an answer; it may
 * answer (to no effect) and so end the request. */
void http_on_gone(struct http_req *r, void (*gone)(struct http_req *r));

/* Answering: exactly one http_reply* per request. Extra headers first. */
void http_set_header(struct http_req *r, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
void http_reply(struct http_req *r, int status, const char *type, const void *body, size_t len);
void http_reply_buf(struct http_req *r, int status, const char *type, struct buf *body); /* taken */
void http_reply_json(struct http_req *r, int status, json_t *v); /* v is taken; NULL: no body */
/* {"message": ..., "reason": ...} with the error's status. */
void http_reply_err(struct http_req *r, const struct err *e);
void http_reply_status(struct http_req *r, int status, const char *message);
/* Sends `len` bytes of fd from `offset`; fd is taken. HEAD sends headers only. */
void http_reply_file(struct http_req *r, int status, const char *type, int fd, uint64_t offset,
                     uint64_t len);
void http_redirect(struct http_req *r, const char *location);
/* Streaming: starts a reply of unknown length (chunked); then any number of writes, then end.
 * http_stream_pending tells the bytes not yet taken by the socket (bound what you queue). */
void http_stream_start(struct http_req *r, int status, const char *type);
int http_stream_write(struct http_req *r, const void *data, size_t len) WARN_UNUSED; /* <0: gone */
size_t http_stream_pending(const struct http_req *r);
/* `drained` runs whenever the socket took everything. It may write and end the stream. */
void http_stream_on_drained(struct http_req *r, void (*drained)(struct http_req *r));
void http_stream_end(struct http_req *r);

/* Sending on a WebSocket. */
/* Queues one frame; takes the buffer's content. Frames are written whole, in order. What is sent
 * after ws_close() is dropped. More than WS_QUEUE_MAX pending breaks the connection: bound it by
 * ws_pending(). The server pings by itself every 30 s and drops a peer that is silent for 90 s. */
void ws_send(struct ws *w, struct buf *frame, int binary);
/* The same for a large frame that further sockets will get too: it is kept once. `*slot` names it
 * until the last of them has written it, and is NULL from then on; what `*slot` named before is
 * let go. ws_unshare() before the slot itself goes. */
struct ws_shared;
void ws_share(struct ws *w, struct buf *frame, int binary, struct ws_shared **slot);
void ws_send_again(struct ws *w, struct ws_shared *s);
void ws_unshare(struct ws_shared **slot);
void ws_send_text(struct ws *w, const char *text, size_t len);
void ws_ping(struct ws *w, uint64_t mark);
size_t ws_pending(const struct ws *w); /* bytes queued and not yet written to the socket */
void ws_close(struct ws *w, int code, const char *reason); /* never 1000/1001 for kernel channels */
const char *ws_subprotocol(const struct ws *w);            /* "" when none was agreed */

#endif
