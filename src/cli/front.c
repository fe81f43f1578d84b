#include "cli/front.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "cli/routes.h"
#include "wire/zmq_uv.h"

#define IOPUB_PENDING_MAX ((size_t)4 << 20) /* beyond it the journal, on disk, is the queue */
#define IDENTITY_MAX 255

enum { SOCK_SHELL, SOCK_CONTROL, SOCK_STDIN, SOCK_IOPUB, SOCK_HB, SOCK_COUNT };

struct front_sock {
    struct front *front;
    struct zsock *z;
};

struct front {
    struct zctx *ctx;
    struct front_sock socks[SOCK_COUNT];
    char *key;
    char session[SYS_UUID_MAX];
    struct routes *routes;
    front_cb cb;
    void *arg;
};

static const struct {
    const char *port; /* of the connection file */
    enum zsock_type type;
    enum jchan channel;
} kinds[SOCK_COUNT] = {
    [SOCK_SHELL] = {"shell_port", ZSOCK_ROUTER, JCHAN_SHELL},
    [SOCK_CONTROL] = {"control_port", ZSOCK_ROUTER, JCHAN_CONTROL},
    [SOCK_STDIN] = {"stdin_port", ZSOCK_ROUTER, JCHAN_STDIN},
    [SOCK_IOPUB] = {"iopub_port", ZSOCK_XPUB, JCHAN_IOPUB},
    [SOCK_HB] = {"hb_port", ZSOCK_REP, JCHAN_COUNT},
};

static int sock_of(enum jchan ch)
{
    for (int i = 0; i < SOCK_HB; i++)
        if (kinds[i].channel == ch)
            return i;
    return SOCK_IOPUB;
}

/* --- from clients -------------------------------------------------------------------------- */

static void reject(const char *why)
{
    log_warn("message of a client was dropped", "reason", why, NULL);
}

static void on_request(void *arg, const struct slice *frames, size_t n)
{
    struct front_sock *s = arg;
    struct front *f = s->front;
    autojmsg struct jmsg *m = NULL;
    const struct jhead *h;
    struct err e = {0};
    enum jchan ch = kinds[s - f->socks].channel;
    if (jmsg_from_zmq(ch, frames, n, f->key, &m, &e) < 0 || jmsg_head(m, &h, &e) < 0) {
        reject(e.msg);
        return;
    }
    /* the first frame is what the ROUTER socket knows the sender by */
    if (ch != JCHAN_STDIN && frames[0].len <= IDENTITY_MAX)
        routes_put(f->routes, h->msg_id, frames[0].data, frames[0].len,
                   !strcmp(h->msg_type, "execute_request") && !*h->subshell_id);
    f->cb(f->arg, m);
}

static void on_heartbeat(void *arg, const struct slice *frames, size_t n)
{
    struct front_sock *s = arg;
    struct err e = {0};
    if (zsock_send(s->z, frames, n, &e) < 0)
        reject(e.msg);
}

static void publish(struct front *f, struct jmsg *m)
{
    struct err e = {0};
    const struct jhead *h;
    autofree char *topic =
        jmsg_head(m, &h, &e) < 0 ? xstrdup("kernel") : xasprintf("kernel.%s", h->msg_type);
    struct slice id = {topic, strlen(topic)};
    if (zsock_send_jmsg(f->socks[SOCK_IOPUB].z, &id, 1, m, f->key, &e) < 0)
        log_warn("output could not be published", "reason", e.msg, NULL);
}

/* A subscription: the client learns that it will miss nothing from here on. */
static void on_subscription(void *arg, const struct slice *frames, size_t n)
{
    struct front_sock *s = arg;
    const char *bytes = n == 1 ? frames[0].data : NULL;
    if (!bytes || !frames[0].len || *bytes != 1)
        return;
    autojson json_t *content =
        json_pack("{s:o}", "subscription", json_stringn(bytes + 1, frames[0].len - 1));
    if (!content)
        return; /* a topic that is not text is nobody's */
    autojmsg struct jmsg *m =
        jmsg_make(JCHAN_IOPUB, "iopub_welcome", s->front->session, NULL, content);
    publish(s->front, m);
}

/* --- to clients ---------------------------------------------------------------------------- */

static void send_to(struct front *f, enum jchan ch, struct slice identity, struct jmsg *m)
{
    struct err e = {0};
    if (zsock_send_jmsg(f->socks[sock_of(ch)].z, &identity, 1, m, f->key, &e) < 0)
        log_warn("a reply could not be sent", "reason", e.msg, NULL);
}

static int ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && !strcmp(s + n - t, tail);
}

static void release_held(struct front *f);

static void deliver_reply(struct front *f, struct jmsg *m, const struct jhead *h)
{
    struct slice identity;
    if (!routes_get(f->routes, h->parent_id, &identity))
        return;
    send_to(f, m->channel, identity, m);
    if (m->channel != JCHAN_STDIN && ends_with(h->msg_type, "_reply"))
        routes_drop(f->routes, h->parent_id);
    if (!strcmp(h->msg_type, "execute_reply"))
        release_held(f);
}

/* kernel_info is answered from a cache, at once also for a busy kernel; but a client that has a
 * cell running itself expects its replies in order. */
static void release_held(struct front *f)
{
    for (struct jmsg *m = routes_release(f->routes); m; m = routes_release(f->routes)) {
        const struct jhead *h;
        struct err e = {0};
        if (jmsg_head(m, &h, &e) >= 0)
            deliver_reply(f, m, h);
        jmsg_unref(m);
    }
}

void front_deliver(struct front *f, struct jmsg *m)
{
    const struct jhead *h;
    struct err e = {0};
    if (jmsg_head(m, &h, &e) < 0) {
        log_warn("message of the kernel was dropped", "reason", e.msg, NULL);
        return;
    }
    if (m->channel == JCHAN_IOPUB) {
        /* what the kernel tells its own subscriber, and what front_status() says instead */
        if (!strcmp(h->msg_type, "iopub_welcome") ||
            (!strcmp(h->msg_type, "status") && !strcmp(h->parent_type, "kernel_info_request")))
            return;
        publish(f, m);
        return;
    }
    /* The journal holds execute requests too; those are not for clients. */
    if (m->channel != JCHAN_STDIN && ends_with(h->msg_type, "_request"))
        return;
    if (strcmp(h->msg_type, "kernel_info_reply") || !routes_hold(f->routes, h->parent_id, m))
        deliver_reply(f, m, h);
}

void front_status(struct front *f, struct jmsg *request, const char *state)
{
    autojson json_t *content = json_pack("{s:s}", "execution_state", state);
    autojmsg struct jmsg *m = jmsg_make(JCHAN_IOPUB, "status", f->session, request, content);
    publish(f, m);
}

void front_reply(struct front *f, struct jmsg *request, const char *type, json_t *content)
{
    autojson json_t *body = content;
    const struct jhead *h;
    struct err e = {0};
    json_object_set_new(body, "status", json_string("ok"));
    autojmsg struct jmsg *m = jmsg_make(request->channel, type, f->session, request, body);
    if (jmsg_head(m, &h, &e) >= 0)
        deliver_reply(f, m, h);
}

int front_ready(const struct front *f)
{
    return zsock_pending(f->socks[SOCK_IOPUB].z) < IOPUB_PENDING_MAX;
}

size_t front_pending(const struct front *f)
{
    size_t n = 0;
    for (int i = 0; i < SOCK_COUNT; i++)
        n += zsock_pending(f->socks[i].z);
    return n;
}

/* --- life ---------------------------------------------------------------------------------- */

/* Heap. */
static char *endpoint_of(const json_t *file, const char *port_name, struct err *e)
{
    const char *transport = json_get_str(file, "transport", "tcp");
    const char *ip = json_get_str(file, "ip", "127.0.0.1");
    int64_t port = json_get_int(file, port_name, 0);
    if (port <= 0 || port > 65535) {
        err_set(e, ERR_CONFIG, "connection file: %s is missing or no port", port_name);
        return NULL;
    }
    if (!strcmp(transport, "ipc"))
        return xasprintf("ipc://%s-%lld", ip, (long long)port);
    if (!strcmp(transport, "tcp"))
        return xasprintf("tcp://%s:%lld", ip, (long long)port);
    err_set(e, ERR_CONFIG, "connection file: unknown transport %.40s", transport);
    return NULL;
}

static int open_sock(struct front *f, uv_loop_t *loop, const json_t *file, int which, struct err *e)
{
    autofree char *endpoint = endpoint_of(file, kinds[which].port, e);
    if (!endpoint)
        return ERR_CONFIG;
    struct zsock_conf zc = {.type = kinds[which].type, .endpoint = endpoint, .bind = 1};
    zsock_cb cb = which == SOCK_HB      ? on_heartbeat
                  : which == SOCK_IOPUB ? on_subscription
                                        : on_request;
    f->socks[which].front = f;
    return zsock_open(f->ctx, loop, &zc, cb, &f->socks[which], &f->socks[which].z, e);
}

int front_open(uv_loop_t *loop, const json_t *file, front_cb cb, void *arg, struct front **ret,
               struct err *e)
{
    const char *scheme = json_get_str(file, "signature_scheme", "hmac-sha256");
    if (strcmp(scheme, "hmac-sha256") != 0)
        return err_set(e, ERR_CONFIG, "connection file: unknown signature_scheme %.40s", scheme);
    struct front *f = xcalloc(1, sizeof(*f));
    f->ctx = zctx_new();
    f->key = xstrdup(json_get_str(file, "key", ""));
    f->routes = routes_new(FRONT_ROUTES_MAX);
    f->cb = cb;
    f->arg = arg;
    sys_uuid(f->session);
    for (int i = 0; i < SOCK_COUNT; i++) {
        int r = open_sock(f, loop, file, i, e);
        if (r < 0) {
            front_close(f);
            return r;
        }
    }
    *ret = f;
    return 0;
}

struct front *front_close(struct front *f)
{
    if (!f)
        return NULL;
    for (int i = 0; i < SOCK_COUNT; i++)
        zsock_close(f->socks[i].z);
    zctx_free(f->ctx);
    routes_free(f->routes);
    free(f->key);
    free(f);
    return NULL;
}
