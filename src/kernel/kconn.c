#include "kernel/kconn.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"

#define PROBE_MS 20
#define ASK_AGAIN_IOPUB_US 40000  /* answered, but iopub is silent: it was asked too early */
#define ASK_AGAIN_SHELL_US 500000 /* as a rule the request waits in ZeroMQ for the kernel */

enum { HB = JCHAN_COUNT, SOCKETS };

/* Ports of connection.json, as ipykernel numbers them. */
static const int ports[SOCKETS] = {
    [JCHAN_SHELL] = 1, [JCHAN_IOPUB] = 2, [JCHAN_STDIN] = 3, [JCHAN_CONTROL] = 4, [HB] = 5};

struct chan {
    struct kconn *conn;
    enum jchan ch;
    struct zsock *z;
};

struct kconn {
    struct chan chans[SOCKETS];
    char *key;
    const struct kconn_ops *ops;
    void *arg;
    uv_loop_t *loop;
    struct loop_timer *probe;
    int64_t asked;
    json_t *info;
    int iopub_seen, ready, beats;
    int busy, closed; /* inside a callback; close when it returns */
    uint64_t count;
};

const char *kconn_session(void)
{
    static char session[SYS_UUID_MAX];
    if (!session[0])
        sys_uuid(session);
    return session;
}

static void destroy(struct kconn *c)
{
    for (size_t i = 0; i < SOCKETS; i++)
        zsock_close(c->chans[i].z);
    loop_timer_stop(c->probe);
    json_decref(c->info);
    free(c->key);
    free(c);
}

struct kconn *kconn_close(struct kconn *c)
{
    if (!c)
        return NULL;
    c->ops = NULL;
    c->closed = 1;
    if (!c->busy)
        destroy(c);
    return NULL;
}

static void check_ready(struct kconn *c)
{
    if (c->ready || !c->info || !c->iopub_seen || !c->probe)
        return;
    c->ready = 1;
    c->probe = loop_timer_stop(c->probe);
    if (c->ops)
        c->ops->ready(c->arg);
}

/* The reply to one of our requests, or what the kernel said on iopub about it. Returns 1 when
 * nobody else is to see it. Output that a kernel attributes to our request is passed on. */
static int take_own(struct kconn *c, struct jmsg *m, const struct jhead *h)
{
    if (m->channel == JCHAN_IOPUB) {
        c->iopub_seen = 1;
        if (strcmp(h->msg_type, "iopub_welcome") == 0)
            return 1; /* about our subscription */
    }
    if (strcmp(h->parent_session, kconn_session()) != 0)
        return 0;
    if (strcmp(h->msg_type, "kernel_info_reply") == 0) {
        json_t *info = NULL;
        if (jmsg_json(m, JPART_CONTENT, &info, NULL) == 0) {
            json_decref(c->info);
            c->info = info;
        }
    }
    return m->channel != JCHAN_IOPUB || strcmp(h->msg_type, "status") == 0 ||
           strcmp(h->msg_type, "shutdown_reply") == 0;
}

static void receive(struct chan *ch, const struct slice *frames, size_t n)
{
    struct kconn *c = ch->conn;
    struct err e = {0};
    autojmsg struct jmsg *m = NULL;
    const struct jhead *h;
    if (jmsg_from_zmq(ch->ch, frames, n, c->key, &m, &e) < 0 || jmsg_head(m, &h, &e) < 0) {
        log_warn("message of a kernel dropped", "channel", jchan_name(ch->ch), "reason", e.msg,
                 NULL);
        return;
    }
    c->count++;
    int own = take_own(c, m, h);
    check_ready(c);
    if (!own && c->ops)
        c->ops->message(c->arg, m);
}

static void on_frames(void *arg, const struct slice *frames, size_t n)
{
    struct chan *ch = arg;
    struct kconn *c = ch->conn;
    c->busy++;
    if ((int)ch->ch == HB)
        c->beats = 0;
    else
        receive(ch, frames, n);
    if (--c->busy == 0 && c->closed)
        destroy(c);
}

int kconn_open(struct zctx *ctx, uv_loop_t *loop, const char *ip, const char *key,
               struct kconn **ret, struct err *e)
{
    struct kconn *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->key = xstrdup(key);
    /* One identity on all channels: a kernel asks for input on stdin by that of the request. */
    const char *id = kconn_session();
    for (int i = 0; i < SOCKETS; i++) {
        autofree char *endpoint = xasprintf("ipc://%s-%d", ip, ports[i]);
        struct zsock_conf conf = {.endpoint = endpoint};
        conf.type = i == JCHAN_IOPUB ? ZSOCK_SUB : i == HB ? ZSOCK_REQ : ZSOCK_DEALER;
        if (conf.type == ZSOCK_DEALER) {
            conf.identity = id;
            conf.identity_len = strlen(id);
        }
        c->chans[i] = (struct chan){.conn = c, .ch = (enum jchan)i};
        int rc = zsock_open(ctx, loop, &conf, on_frames, &c->chans[i], &c->chans[i].z, e);
        if (rc < 0) {
            destroy(c);
            return rc;
        }
    }
    *ret = c;
    return 0;
}

void kconn_own(struct kconn *c, const struct kconn_ops *ops, void *arg)
{
    c->ops = ops;
    c->arg = arg;
}

static void ask(struct kconn *c)
{
    autojson json_t *content = json_object();
    autojmsg struct jmsg *m =
        jmsg_make(JCHAN_SHELL, "kernel_info_request", kconn_session(), NULL, content);
    c->asked = sys.mono_us();
    IGNORE_RESULT(kconn_send(c, m, NULL)); /* asked again by the timer */
}

static void on_probe(void *arg)
{
    struct kconn *c = arg;
    if (sys.mono_us() - c->asked > (c->info ? ASK_AGAIN_IOPUB_US : ASK_AGAIN_SHELL_US))
        ask(c);
}

void kconn_probe(struct kconn *c)
{
    if (c->probe || c->ready)
        return;
    c->iopub_seen = 0; /* a kernel made ahead may have begun anew since */
    c->probe = loop_timer_start(c->loop, PROBE_MS, PROBE_MS, on_probe, c);
    ask(c);
}

json_t *kconn_info(const struct kconn *c)
{
    return c->info;
}

int kconn_send(struct kconn *c, const struct jmsg *m, struct err *e)
{
    return zsock_send_jmsg(c->chans[m->channel].z, NULL, 0, m, c->key, e);
}

int kconn_request(struct kconn *c, const char *type, const json_t *content, struct err *e)
{
    autojmsg struct jmsg *m = jmsg_make(JCHAN_CONTROL, type, kconn_session(), NULL, content);
    return kconn_send(c, m, e);
}

int kconn_beat(struct kconn *c)
{
    struct slice ping = {"ping", 4};
    IGNORE_RESULT(zsock_send(c->chans[HB].z, &ping, 1, NULL)); /* shows as not answered */
    return c->beats++;
}

uint64_t kconn_count(const struct kconn *c)
{
    return c->count;
}
