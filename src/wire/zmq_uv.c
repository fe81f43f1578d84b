#include "wire/zmq_uv.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/list.h"

#define ROUND_MESSAGES 128
#define ROUND_BYTES ((size_t)8 << 20)
#define FRAMES_MAX (JMSG_MAX_PARTS + 16)
#define SOCKETS_MAX 16384 /* five per kernel; libzmq's default is 1023 */
#define HANDSHAKE_MS 10000
#define RECONNECT_MS 2      /* a kernel that is about to bind is found at once */
#define RECONNECT_MAX_MS 10 /* doubling further would miss the moment by its own length */
#define SEND_HWM 1000

struct zctx {
    void *ctx;
};

/* A message that waits for its peer. */
struct waiting {
    struct list link;
    size_t n, bytes;
    struct slice frames[];
};

struct zsock {
    void *sock;
    zsock_cb cb;
    void *arg;
    uv_poll_t poll;
    uv_idle_t idle; /* active: there is more to do, the loop must not sleep */
    struct list queue;
    size_t pending;
    int closed, handles;
    char endpoint[512];
};

struct zctx *zctx_new(void)
{
    struct zctx *c = xcalloc(1, sizeof *c);
    c->ctx = zmq_ctx_new();
    if (!c->ctx)
        abort(); /* only without memory or descriptors at start */
    zmq_ctx_set(c->ctx, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
    return c;
}

struct zctx *zctx_free(struct zctx *c)
{
    if (c) {
        while (zmq_ctx_term(c->ctx) < 0 && zmq_errno() == EINTR)
            ;
        free(c);
    }
    return NULL;
}

static int zerr(struct err *e, const char *what, const char *endpoint)
{
    int n = zmq_errno();
    return err_set(e, n == EADDRINUSE ? ERR_CONFLICT : ERR_IO, "%s %s: %s", what, endpoint,
                   zmq_strerror(n));
}

static unsigned events(const struct zsock *z)
{
    int ev = 0;
    size_t len = sizeof ev;
    return zmq_getsockopt(z->sock, ZMQ_EVENTS, &ev, &len) < 0 ? 0 : (unsigned)ev;
}

/* 1 sent or dropped for good, 0 the peer takes none now, negative: failed. */
static int send_now(struct zsock *z, const struct slice *frames, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        int flags = ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0);
        while (zmq_send(z->sock, frames[i].data, frames[i].len, flags) < 0) {
            int why = zmq_errno();
            if (why == EINTR)
                continue;
            if (i == 0 && why == EAGAIN)
                return 0;
            if (why == EHOSTUNREACH)
                return 1; /* a ROUTER's peer that has gone */
            return zerr(e, "sending to", z->endpoint);
        }
    }
    return 1;
}

static void drop_waiting(struct zsock *z, struct waiting *w)
{
    list_remove(&w->link);
    z->pending -= w->bytes;
    free(w);
}

static void flush(struct zsock *z)
{
    while (!list_empty(&z->queue)) {
        struct waiting *w = container_of(z->queue.next, struct waiting, link);
        if (send_now(z, w->frames, w->n, NULL) == 0)
            return;
        drop_waiting(z, w); /* sent; or refused, and then it would be refused for ever */
    }
}

static void service(struct zsock *z);

static void on_idle(uv_idle_t *h)
{
    service(h->data);
}

static void on_poll(uv_poll_t *h, int status, int ev)
{
    (void)status; /* an error of the descriptor shows in the socket's own calls */
    (void)ev;
    service(h->data);
}

/* Rule: after any call on the socket its events are looked at before the loop may sleep. */
static void recheck(struct zsock *z)
{
    unsigned ev = events(z);
    int more = (ev & ZMQ_POLLIN) || (!list_empty(&z->queue) && (ev & ZMQ_POLLOUT));
    if (more)
        uv_idle_start(&z->idle, on_idle);
    else
        uv_idle_stop(&z->idle);
}

/* The frames of one message while it is received and handed on. */
struct incoming {
    zmq_msg_t *msgs;
    struct slice *frames;
    size_t n, cap, bytes;
    int why;
};

static void incoming_free(struct incoming *in)
{
    for (size_t i = 0; i < in->n; i++)
        zmq_msg_close(&in->msgs[i]);
    free(in->msgs);
    free(in->frames);
}

/* Frames beyond the limit are read and dropped; what is left still has more parts than a Jupyter
 * message may have, so it is refused and not taken for a whole one. 0 and `why` when there is
 * none. */
static int receive_frame(struct zsock *z, struct incoming *in, int *more)
{
    zmq_msg_t msg;
    zmq_msg_init(&msg);
    while (zmq_msg_recv(&msg, z->sock, ZMQ_DONTWAIT) < 0) {
        in->why = zmq_errno();
        if (in->why != EINTR) {
            zmq_msg_close(&msg);
            return 0;
        }
    }
    *more = zmq_msg_more(&msg);
    if (in->n == FRAMES_MAX) {
        zmq_msg_close(&msg);
        return 1;
    }
    if (in->n == in->cap) {
        in->cap = in->cap ? in->cap * 2 : 8;
        in->msgs = xrealloc(in->msgs, in->cap * sizeof *in->msgs);
        in->frames = xrealloc(in->frames, in->cap * sizeof *in->frames);
    }
    in->bytes += zmq_msg_size(&msg);
    zmq_msg_init(&in->msgs[in->n]);
    zmq_msg_move(&in->msgs[in->n++], &msg);
    zmq_msg_close(&msg);
    return 1;
}

/* Bytes received and handed on; 0 when there was no message, and then why. */
static size_t receive(struct zsock *z, int *why)
{
    struct incoming in = {0};
    int more = 1;
    while (more && receive_frame(z, &in, &more))
        ;
    size_t bytes = in.n ? in.bytes + 1 : 0;
    /* Only now: growing the array moves small messages, whose bytes lie inside zmq_msg_t. */
    for (size_t i = 0; i < in.n; i++)
        in.frames[i] = (struct slice){zmq_msg_data(&in.msgs[i]), zmq_msg_size(&in.msgs[i])};
    if (in.n)
        z->cb(z->arg, in.frames, in.n);
    *why = in.why;
    incoming_free(&in);
    return bytes;
}

/* A receive that ends with EAGAIN has taken in everything that the descriptor announced, as a look
 * at the events does, and no call on the socket follows it: the look, which costs system calls, is
 * only needed after another end, or to learn whether the queue can go on. */
static void service(struct zsock *z)
{
    size_t bytes = 0;
    int why = 0;
    flush(z);
    for (int i = 0; i < ROUND_MESSAGES && bytes < ROUND_BYTES; i++) {
        if (z->closed)
            break;
        size_t got = receive(z, &why);
        if (!got)
            break;
        bytes += got;
        why = 0;
    }
    if (z->closed)
        return;
    if (why == EAGAIN && list_empty(&z->queue))
        uv_idle_stop(&z->idle);
    else
        recheck(z);
}

static int set_int(void *sock, int option, int value)
{
    return zmq_setsockopt(sock, option, &value, sizeof value);
}

static int set_common(void *sock)
{
    int64_t max = (int64_t)JMSG_MAX_BYTES;
    return set_int(sock, ZMQ_LINGER, 0) < 0 || set_int(sock, ZMQ_RCVHWM, 0) < 0 ||
                   set_int(sock, ZMQ_SNDHWM, SEND_HWM) < 0 || set_int(sock, ZMQ_IPV6, 1) < 0 ||
                   set_int(sock, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) < 0 ||
                   set_int(sock, ZMQ_RECONNECT_IVL, RECONNECT_MS) < 0 ||
                   set_int(sock, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) < 0 ||
                   zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &max, sizeof max) < 0
               ? -1
               : 0;
}

/* Options by which a full peer shows as EAGAIN instead of a message dropped in silence. */
static int set_for_type(void *sock, enum zsock_type type)
{
    switch (type) {
    case ZSOCK_ROUTER:
        if (set_int(sock, ZMQ_ROUTER_MANDATORY, 1) < 0)
            return -1;
        return set_int(sock, ZMQ_ROUTER_HANDOVER, 1);
    case ZSOCK_PUB:
    case ZSOCK_XPUB:
        return set_int(sock, ZMQ_XPUB_NODROP, 1);
    case ZSOCK_SUB:
        return zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "", 0);
    case ZSOCK_REQ:
        return set_int(sock, ZMQ_REQ_RELAXED, 1) < 0 ? -1 : set_int(sock, ZMQ_REQ_CORRELATE, 1);
    case ZSOCK_DEALER:
    case ZSOCK_REP:
        break;
    }
    return 0;
}

static int zmq_type(enum zsock_type type)
{
    static const int types[] = {
        [ZSOCK_DEALER] = ZMQ_DEALER, [ZSOCK_ROUTER] = ZMQ_ROUTER, [ZSOCK_PUB] = ZMQ_PUB,
        [ZSOCK_SUB] = ZMQ_SUB,       [ZSOCK_XPUB] = ZMQ_XPUB,     [ZSOCK_REQ] = ZMQ_REQ,
        [ZSOCK_REP] = ZMQ_REP};
    return types[type];
}

static int set_up(void *sock, const struct zsock_conf *conf, struct err *e)
{
    if (set_common(sock) < 0 || set_for_type(sock, conf->type) < 0)
        return zerr(e, "setting options for", conf->endpoint);
    if (conf->identity_len &&
        zmq_setsockopt(sock, ZMQ_ROUTING_ID, conf->identity, conf->identity_len) < 0)
        return zerr(e, "setting the identity for", conf->endpoint);
    if (conf->bind && zmq_bind(sock, conf->endpoint) < 0)
        return zerr(e, "binding", conf->endpoint);
    if (!conf->bind && zmq_connect(sock, conf->endpoint) < 0)
        return zerr(e, "connecting to", conf->endpoint);
    return 0;
}

static int watch(struct zsock *z, uv_loop_t *loop, struct err *e)
{
    uv_os_sock_t fd;
    size_t len = sizeof fd;
    if (zmq_getsockopt(z->sock, ZMQ_FD, &fd, &len) < 0)
        return zerr(e, "descriptor of", z->endpoint);
    int rc = uv_poll_init(loop, &z->poll, fd);
    if (rc < 0)
        return err_set(e, ERR_IO, "watching %s: %s", z->endpoint, uv_strerror(rc));
    uv_idle_init(loop, &z->idle);
    z->poll.data = z->idle.data = z;
    z->handles = 2;
    uv_poll_start(&z->poll, UV_READABLE, on_poll);
    recheck(z);
    return 0;
}

int zsock_open(struct zctx *ctx, uv_loop_t *loop, const struct zsock_conf *conf, zsock_cb cb,
               void *arg, struct zsock **ret, struct err *e)
{
    struct zsock *z = xcalloc(1, sizeof *z);
    z->cb = cb;
    z->arg = arg;
    list_init(&z->queue);
    z->sock = zmq_socket(ctx->ctx, zmq_type(conf->type));
    int rc = z->sock ? set_up(z->sock, conf, e) : zerr(e, "socket for", conf->endpoint);
    if (rc == 0) {
        size_t len = sizeof z->endpoint;
        if (zmq_getsockopt(z->sock, ZMQ_LAST_ENDPOINT, z->endpoint, &len) < 0)
            rc = zerr(e, "endpoint of", conf->endpoint);
    }
    if (rc == 0)
        rc = watch(z, loop, e);
    if (rc < 0) {
        if (z->sock)
            zmq_close(z->sock);
        free(z);
        return rc;
    }
    *ret = z;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct zsock *z = h->data;
    if (--z->handles == 0)
        free(z);
}

struct zsock *zsock_close(struct zsock *z)
{
    if (z && !z->closed) {
        z->closed = 1;
        list_foreach(it, &z->queue) drop_waiting(z, container_of(it, struct waiting, link));
        uv_close((uv_handle_t *)&z->poll, on_closed); /* before the descriptor goes */
        uv_close((uv_handle_t *)&z->idle, on_closed);
        zmq_close(z->sock);
    }
    return NULL;
}

static int enqueue(struct zsock *z, const struct slice *frames, size_t n, struct err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += frames[i].len;
    if (bytes > ZSOCK_QUEUE_MAX - z->pending)
        return err_set(e, ERR_LIMIT, "%s takes no messages: %zu bytes wait", z->endpoint,
                       z->pending);
    size_t table = sizeof(struct waiting) + n * sizeof *frames;
    struct waiting *w = malloc(table + bytes);
    if (!w)
        return err_set(e, ERR_MEMORY, "no memory for a message of %zu bytes", bytes);
    char *p = (char *)w + table;
    w->n = n;
    w->bytes = bytes;
    for (size_t i = 0; i < n; i++) {
        if (frames[i].len)
            memcpy(p, frames[i].data, frames[i].len);
        w->frames[i] = (struct slice){p, frames[i].len};
        p += frames[i].len;
    }
    list_append(&z->queue, &w->link);
    z->pending += bytes;
    return 0;
}

int zsock_send(struct zsock *z, const struct slice *frames, size_t n, struct err *e)
{
    if (n == 0 || z->closed)
        return err_set(e, ERR_INVALID, "nothing can be sent to %s", z->endpoint);
    int rc = list_empty(&z->queue) ? send_now(z, frames, n, e) : 0;
    if (rc == 0)
        rc = enqueue(z, frames, n, e);
    recheck(z);
    return rc < 0 ? rc : 0;
}

int zsock_send_jmsg(struct zsock *z, const struct slice *ids, size_t nids, const struct jmsg *m,
                    const char *key, struct err *e)
{
    char signature[65];
    jmsg_sign(m, key, signature);
    autofree struct slice *frames = xcalloc(nids + 2 + m->nparts, sizeof *frames);
    if (nids)
        memcpy(frames, ids, nids * sizeof *frames);
    frames[nids] = (struct slice){"<IDS|MSG>", 9};
    frames[nids + 1] = (struct slice){signature, strlen(signature)};
    memcpy(frames + nids + 2, m->parts, m->nparts * sizeof *frames);
    return zsock_send(z, frames, nids + 2 + m->nparts, e);
}

size_t zsock_pending(const struct zsock *z)
{
    return z->pending;
}

const char *zsock_endpoint(const struct zsock *z)
{
    return z->endpoint;
}
