/* ZeroMQ sockets on a libuv loop: the only place that knows libzmq.
 *
 * The descriptor of a ZeroMQ socket is edge-triggered and signals its mailbox, not data, so this
 * module watches it for reading only, drains the socket, looks at its events again after each call
 * on it, and limits the work of one loop round so that other handles keep their turn.
 * Sockets linger 0; messages wait in memory without a high-water mark on the receiving side, so
 * nothing that a kernel says is dropped. Loop thread only; never fork with a live context.
 */
#ifndef REITOS_WIRE_ZMQ_UV_H
#define REITOS_WIRE_ZMQ_UV_H

#include <uv.h>

#include "wire/jmsg.h"

struct zctx;
struct zctx *zctx_new(void);
struct zctx *zctx_free(struct zctx *c); /* NULL-safe, returns NULL; after all its sockets */

enum zsock_type {
    ZSOCK_DEALER,
    ZSOCK_ROUTER, /* a message to an unknown peer is dropped */
    ZSOCK_PUB,
    ZSOCK_SUB, /* subscribes to everything */
    ZSOCK_XPUB,
    ZSOCK_REQ, /* relaxed: a new request may be sent while a reply is missing */
    ZSOCK_REP,
};

#define ZSOCK_QUEUE_MAX ((size_t)1 << 30) /* bytes that wait because the peer takes none */

/* One whole message. Frames are borrowed until return. May call any zsock_ function, also
 * zsock_close() of its own socket. */
typedef void (*zsock_cb)(void *arg, const struct slice *frames, size_t n);

struct zsock_conf {
    enum zsock_type type;
    const char *endpoint; /* "ipc:///path", "tcp://127.0.0.1:*" */
    int bind;             /* 1: bind, 0: connect (the peer may appear later) */
    const void *identity; /* routing id; NULL: none */
    size_t identity_len;
};

struct zsock;
int zsock_open(struct zctx *ctx, uv_loop_t *loop, const struct zsock_conf *conf, zsock_cb cb,
               void *arg, struct zsock **ret, struct err *e) WARN_UNUSED;
/* Stops callbacks at once, drops what was not sent; memory goes when the loop has run.
 * NULL-safe, returns NULL. */
struct zsock *zsock_close(struct zsock *z);

/* Sends one message, or queues it while the peer takes none. Copies the frames.
 * ERR_LIMIT when more than ZSOCK_QUEUE_MAX bytes wait already; ERR_INVALID for no frames. */
int zsock_send(struct zsock *z, const struct slice *frames, size_t n, struct err *e) WARN_UNUSED;
/* A signed Jupyter message: [ids...] <IDS|MSG> signature parts. `ids` may be NULL with nids 0. */
int zsock_send_jmsg(struct zsock *z, const struct slice *ids, size_t nids, const struct jmsg *m,
                    const char *key, struct err *e) WARN_UNUSED;
size_t zsock_pending(const struct zsock *z);       /* bytes queued by us */
const char *zsock_endpoint(const struct zsock *z); /* as bound: "*" replaced by the real port */

#endif
