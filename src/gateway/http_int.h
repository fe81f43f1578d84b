/* What the files of the HTTP server share; nobody else includes this.
 *
 *   http_net.c    libwebsockets: accepting, TLS, reading and writing bytes
 *   http_conn.c   a connection: request heads and bodies in, output queue, deadlines
 *   http_body.c   request bodies
 *   http_req.c    what handlers ask a request
 *   http_reply.c  answers
 *   http_ws.c     WebSocket sessions
 *   http.c        server start, stop, clock
 *
 * A connection serves one request at a time; pipelined bytes wait in `in`. Connections are freed
 * only by conn_closed(), which libwebsockets causes when a callback returns -1 or from
 * conn_reap(); code in between marks them with conn_doom(). So no pointer dies under a caller.
 */
#ifndef REITOS_GATEWAY_HTTP_INT_H
#define REITOS_GATEWAY_HTTP_INT_H

#include "base/list.h"
#include "gateway/http.h"
#include "gateway/http_parse.h"
#include "gateway/ws_frame.h"

#define CONNS_MAX 4096
#define IO_CHUNK ((size_t)128 << 10)    /* one read or write */
#define PIPELINE_MAX ((size_t)64 << 10) /* read ahead while a request is being served */
#define DISCARD_MAX ((uint64_t)1 << 20) /* rest of a body that is read to keep a connection */
#define FORM_MAX ((uint64_t)1 << 20)    /* form posts are read before the filter runs */

#define SEC ((int64_t)1000000)
#define T_HEAD (30 * SEC)    /* from connect or first byte to the whole head */
#define T_IDLE (75 * SEC)    /* between requests */
#define T_BODY (60 * SEC)    /* without a byte of the body */
#define T_SEND (120 * SEC)   /* without progress of the answer */
#define T_LINGER (2 * SEC)   /* for the peer to close after us */
#define T_WS_PING (30 * SEC) /* between our pings */
#define T_WS_SILENT (90 * SEC)
#define T_WS_CLOSE (5 * SEC) /* for the peer's close frame */
#define T_STOP (1 * SEC)

struct lws;
struct net;

struct http_server {
    uv_loop_t *loop;
    struct http_conf conf; /* strings are owned */
    struct net *net;
    struct list conns;
    size_t nconns;
    uv_timer_t tick, reap;
    int rounds; /* of the loop since the stop */
    int stopping;
    char *scratch; /* IO_CHUNK bytes */
    int64_t date_s;
    char date[40];
};

/* A WebSocket frame in the queues of several connections. */
struct ws_shared {
    int refs;
    int binary;
    char *data;
    size_t len;
    struct ws_shared **slot; /* NULL: nobody asks for it any more */
};

/* A piece of output: a few head bytes, then memory, then a range of a file. */
struct out {
    struct list link;
    uint8_t head[12], head_len, head_off;
    char *data;
    struct ws_shared *shared; /* whose `data` is; NULL: ours */
    size_t len, off;
    int fd; /* -1: none */
    uint64_t pos, left;
};

enum conn_state { CONN_HEAD, CONN_BODY, CONN_BUSY, CONN_WS, CONN_LINGER };

struct conn {
    struct list link;
    struct http_server *s;
    struct lws *wsi;
    enum conn_state state;
    int inside; /* depth of libwebsockets callbacks */
    int doomed; /* to be closed as soon as possible */
    int paused; /* not reading */
    int tls;
    int served;      /* a request was answered on it */
    int close_after; /* after the current answer */
    int writing;     /* a writeable callback was asked for */
    size_t flight;   /* bytes that libwebsockets still holds */
    struct buf in;
    size_t scan;
    struct list ready; /* in the transport's list of those that may write at once */
    struct list out;
    uint64_t out_bytes;
    int64_t deadline, last_io;
    int64_t last_heard; /* of the peer: it sent something, or took what it had refused before */
    struct http_req *req;
    struct ws *ws;
    char peer[56];
};

/* Texts that live as long as a request: decoded parameters, cookies, joined headers. */
struct kept {
    struct list link;
    char kind;
    char *name, *value; /* value NULL: known to be absent */
};

struct http_req {
    struct conn *c; /* NULL once the client is gone */
    struct http_server *s;
    enum http_method method;
    char *text; /* the head, cut up */
    struct http_head head;
    char *raw_uri, *path_text;
    const char *path, *query; /* within the two above; query may be NULL */
    char peer[56];
    int tls;
    struct list kept;
    struct http_framing framing;
    struct http_chunked chunked;
    struct buf body;
    uint64_t body_len; /* bytes received */
    int body_fd, body_done;
    int filtered, discard, keep_alive;
    int outside;   /* the base URL: status of the answer, else 0 */
    int handed;    /* a handler or filter knows it */
    int answered;  /* that one made its last call */
    int started;   /* an answer is being sent */
    int ended;     /* all of it is queued */
    int stream;    /* http_stream_start() was called */
    int streaming; /* and is what is being sent */
    int gone_called, reply_chunked;
    int status;
    int64_t start_us;
    struct buf extra; /* header lines */
    struct principal principal;
    void *data;
    void (*free_fn)(void *);
    void (*gone)(struct http_req *r);
    void (*drained)(struct http_req *r);
};

/* http_net.c */
int net_start(struct http_server *s, struct err *e) WARN_UNUSED;
int net_port(const struct http_server *s);
void net_listen_stop(struct http_server *s);
void net_accept_more(struct http_server *s); /* after a pause for lack of descriptors */
/* Serves the connections for up to `us` without the loop, until none is left. */
void net_last_words(struct http_server *s, int64_t us);
/* Two steps, the second when the loop has closed the handles of the first. */
void net_close(struct http_server *s);
void net_free(struct http_server *s);
void net_want_write(struct conn *c);
int net_write(struct conn *c, const void *data, size_t len, int *partial) WARN_UNUSED;
void net_pause(struct conn *c, int pause);
void net_shutdown(struct conn *c); /* no more output */
void net_kill(struct conn *c);     /* never from within its own callback */
void net_sha1(const void *data, size_t len, uint8_t out[20]);

/* http_conn.c; those that return int: negative closes the connection */
struct conn *conn_open(struct http_server *s, struct lws *wsi, const char *peer, int tls);
int conn_rx(struct conn *c, char *data, size_t len) WARN_UNUSED;
int conn_writable(struct conn *c) WARN_UNUSED;
void conn_closed(struct conn *c);
void conn_doom(struct conn *c);
void conn_reap(struct http_server *s);
void conn_tick(struct conn *c, int64_t now);
struct conn *conn_oldest_idle(struct http_server *s);
/* Queues; data is taken. Returns the new piece. */
struct out *conn_queue(struct conn *c, char *data, size_t len);
void conn_queue_file(struct conn *c, int fd, uint64_t pos, uint64_t left);
void conn_out_free(struct out *o);
void conn_answer_begin(struct conn *c);  /* decides whether the connection stays */
void conn_answer_queued(struct conn *c); /* the whole answer to c->req is in the queue */
void conn_stop(struct conn *c);          /* the server stops */
int conn_filter(struct http_req *r);     /* 1: pass */

/* http_body.c */
int body_feed(struct http_req *r, const char *data, size_t len, size_t *ret_used,
              const char **why) WARN_UNUSED; /* 0 or an HTTP status */

/* http_req.c */
struct http_req *req_new(struct conn *c, char *text, size_t len, int *ret_status,
                         const char **ret_why);
void req_free(struct http_req *r);
void req_finish(struct http_req *r, int status); /* the connection is done with it */

/* http_reply.c */
void reply_error(struct http_req *r, int status, const char *why); /* by the server itself */
const char *status_text(int status);

/* http_ws.c */
int ws_wanted(const struct http_req *r);
void ws_handshake(struct http_req *r);
int ws_rx(struct ws *w, uint8_t *data, size_t len) WARN_UNUSED;
int ws_drained(struct ws *w); /* 1: all is said, end the connection */
void ws_tick(struct ws *w, int64_t now);
void ws_gone(struct ws *w); /* frees */
void ws_shared_unref(struct ws_shared *s);

/* http.c */
const char *server_date(struct http_server *s);
void server_reap_soon(struct http_server *s);
void server_tick_start(struct http_server *s);

#endif
