/* The operations of docs/protocol.md, one function each. */
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "kernel/kenv.h"
#include "kernel/shim_own.h"

#define WAIT_S 3
#define WAIT_MAX_S 3600
#define SPARES_MAX 64

/* An answer that waits for a kernel. Its client may go before. */
struct answer {
    struct list link;
    struct client *client;
    json_int_t id;
    struct kernel *kernel;
    struct loop_timer *late;
};

static void reply(struct client *c, json_int_t id, json_t *result, const struct err *e)
{
    autojson json_t *head = result ? json_incref(result) : json_object();
    json_object_set_new(head, "re", json_integer(id));
    if (e)
        json_object_set_new(head, "error",
                            json_pack("{s:s, s:s}", "code", err_name(e->code), "message", e->msg));
    client_send(c, head);
}

void shim_forget_answers(struct client *c)
{
    list_foreach(it, &c->answers)
    {
        container_of(it, struct answer, link)->client = NULL;
        list_remove(it);
    }
}

static void answer_now(struct answer *a, const struct err *e, int model)
{
    a->late = loop_timer_stop(a->late);
    if (!a->client)
        return;
    autojson json_t *result = !e && model ? kernel_model(a->kernel) : json_object();
    if (!result)
        result = json_object();
    reply(a->client, a->id, result, e);
    list_remove(&a->link);
    a->client = NULL;
}

static void on_kernel_ready(void *arg, struct kernel *k, const struct err *e)
{
    struct answer *a = arg;
    if (!e)
        kernel_shown(k);
    answer_now(a, e, 1);
    free(a);
}

static void on_kernel_gone(void *arg, struct kernel *k, const struct err *e)
{
    struct answer *a = arg;
    (void)k;
    answer_now(a, e, 0);
    free(a);
}

static void on_wait_over(void *arg)
{
    struct answer *a = arg;
    kernel_shown(a->kernel);
    answer_now(a, NULL, 1); /* freed when the kernel is ready or gone */
}

static struct answer *answer_later(struct client *c, json_int_t id, struct kernel *k)
{
    struct answer *a = xcalloc(1, sizeof *a);
    *a = (struct answer){.client = c, .id = id, .kernel = k};
    list_append(&c->answers, &a->link);
    return a;
}

static void answer_when_ready(struct client *c, const json_t *r, json_int_t id, struct kernel *k)
{
    struct answer *a = answer_later(c, id, k);
    double s = json_number_value(json_object_get(r, "wait_s"));
    if (!json_is_number(json_object_get(r, "wait_s")) || s < 0 || s > WAIT_MAX_S)
        s = WAIT_S;
    a->late = loop_timer_start(&c->shim->loop, (uint64_t)(s * 1000), 0, on_wait_over, a);
    kernel_wait(k, KERNEL_READY, on_kernel_ready, a);
}

/* ---- operations: 0 with an answer in *ret, 1 when it comes later, negative ---- */

struct op_call {
    struct client *client;
    struct shim *shim;
    json_t *r; /* the request */
    json_int_t id;
    struct kernel *kernel; /* named by "k"; NULL for operations without */
    json_t *result;        /* filled by the operation */
};

static json_t *models(struct shim *s)
{
    json_t *list = json_array();
    list_foreach(it, &s->kernels)
        json_array_append_new(list, kernel_model((struct kernel *)(void *)it));
    return list;
}

static int op_hello(struct op_call *o, struct err *e)
{
    struct shim *s = o->shim;
    if (json_get_int(o->r, "version", 0) != SHIM_PROTOCOL)
        return err_set(e, ERR_UNSUPPORTED, "reitos-shim speaks protocol %d; end it, then try again",
                       SHIM_PROTOCOL);
    if (!o->client->hello) {
        o->client->hello = 1;
        s->nhello++;
    }
    int64_t grace = json_get_int(o->r, "grace_s", s->grace_s);
    s->grace_s = grace < 0 ? 0 : grace > 86400 ? 86400 : (int)grace;
    s->served = 1;
    shim_check_idle(s);
    json_object_set_new(o->result, "version", json_integer(SHIM_PROTOCOL));
    json_object_set_new(o->result, "pid", json_integer(getpid()));
    json_object_set_new(o->result, "kernels", models(s));
    return 0;
}

static int op_start(struct op_call *o, struct err *e)
{
    struct kernel *k;
    const char *id = json_get_str(o->r, "k", "");
    if (o->shim->ending)
        return err_set(e, ERR_UNAVAILABLE, "reitos-shim is ending");
    if (shim_find(o->shim, id))
        return err_set(e, ERR_EXISTS, "kernel %s exists already", id);
    int rc = kernel_start(&o->shim->host, o->r, &k, e);
    if (rc < 0)
        return rc;
    shim_add(o->shim, k);
    if (json_get_bool(o->r, "own", 0))
        client_own(o->client, id);
    answer_when_ready(o->client, o->r, o->id, k);
    return 1;
}

static int op_stop(struct op_call *o, struct err *e)
{
    (void)e;
    struct answer *a = answer_later(o->client, o->id, o->kernel);
    kernel_wait(o->kernel, KERNEL_GONE, on_kernel_gone, a);
    kernel_stop(o->kernel, json_get_bool(o->r, "now", 0), 0);
    return 1;
}

static int op_restart(struct op_call *o, struct err *e)
{
    if (kernel_state(o->kernel) == KSTATE_STOPPING)
        return err_set(e, ERR_GONE, "kernel %s is being stopped", kernel_id(o->kernel));
    kernel_restart(o->kernel, json_get_str(o->r, "cwd", NULL));
    answer_when_ready(o->client, o->r, o->id, o->kernel);
    return 1;
}

static int op_interrupt(struct op_call *o, struct err *e)
{
    (void)e;
    kernel_interrupt(o->kernel);
    return 0;
}

static int op_annotate(struct op_call *o, struct err *e)
{
    json_t *a = json_object_get(o->r, "annotation");
    if (!json_is_object(a))
        return err_set(e, ERR_INVALID, "annotate: annotation must be an object");
    kernel_annotate(o->kernel, a);
    return 0;
}

static int op_list(struct op_call *o, struct err *e)
{
    (void)e;
    json_object_set_new(o->result, "kernels", models(o->shim));
    return 0;
}

static int op_ack(struct op_call *o, struct err *e)
{
    (void)e;
    int64_t seq = json_get_int(o->r, "seq", 0);
    if (seq > 0)
        kernel_ack(o->kernel, (uint64_t)seq);
    return 0;
}

static int op_prepare(struct op_call *o, struct err *e)
{
    struct shim *s = o->shim;
    int64_t n = json_get_int(o->r, "spares", 0);
    if (n < 0 || n > SPARES_MAX)
        return err_set(e, ERR_INVALID, "prepare: spares must be 0 to %d", SPARES_MAX);
    autojson json_t *env = kenv_make(json_object_get(o->r, "env"), s->host.hash_seed, NULL);
    return zygotes_prepare(s->host.zygotes, json_object_get(o->r, "zygote"), env, (int)n, e);
}

static int64_t own_rss(void)
{
    autobuf struct buf b = BUF_INIT(256);
    if (fs_read_path("/proc/self/statm", b.max, &b, NULL) < 0)
        return 0;
    const char *second = strchr(buf_str(&b), ' ');
    return second ? strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
}

static int op_stats(struct op_call *o, struct err *e)
{
    struct shim *s = o->shim;
    json_int_t kernels = 0, bytes = 0;
    (void)e;
    list_foreach(it, &s->kernels)
    {
        kernels++;
        bytes += (json_int_t)kernel_journal_bytes((struct kernel *)(void *)it);
    }
    autojson json_t *v = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kernels", kernels,
                                   "spares", (json_int_t)zygotes_spares(s->host.zygotes), "zygotes",
                                   (json_int_t)zygotes_count(s->host.zygotes), "messages",
                                   (json_int_t)s->messages, "journal_bytes", bytes, "rss_bytes",
                                   (json_int_t)own_rss(), "clients", (json_int_t)s->nclients);
    json_object_update(o->result, v);
    return 0;
}

static int op_shutdown(struct op_call *o, struct err *e)
{
    (void)e;
    reply(o->client, o->id, NULL, NULL);
    shim_end(o->shim, json_get_bool(o->r, "now", 0), 0);
    return 1;
}

static const struct op {
    const char *name;
    int (*run)(struct op_call *o, struct err *e);
    int needs_kernel;
} ops[] = {
    {"hello", op_hello, 0},         {"start", op_start, 0},
    {"stop", op_stop, 1},           {"restart", op_restart, 1},
    {"interrupt", op_interrupt, 1}, {"annotate", op_annotate, 1},
    {"list", op_list, 0},           {"ack", op_ack, 1},
    {"prepare", op_prepare, 0},     {"stats", op_stats, 0},
    {"shutdown", op_shutdown, 0},
};

static int run_op(struct op_call *o, const char *name, struct err *e)
{
    for (size_t i = 0; i < COUNTOF(ops); i++) {
        if (strcmp(ops[i].name, name) != 0)
            continue;
        if (ops[i].needs_kernel && !o->kernel)
            return err_set(e, ERR_NOT_FOUND, "no kernel %.64s", json_get_str(o->r, "k", ""));
        return ops[i].run(o, e);
    }
    return err_set(e, ERR_UNSUPPORTED, "unknown operation %.64s", name);
}

/* A client's message to a kernel. What is wrong with it is the client's affair: it is logged. */
static void take_message(struct shim *s, const struct frame *f)
{
    struct err e = {0};
    enum jchan ch;
    autojmsg struct jmsg *m = NULL;
    struct kernel *k = shim_find(s, json_get_str(f->head, "k", ""));
    int rc = k ? 0 : err_set(&e, ERR_NOT_FOUND, "no such kernel");
    if (rc == 0)
        rc = jchan_of(json_get_str(f->head, "ch", ""), &ch);
    if (rc == 0)
        rc = jmsg_new(ch, f->parts, f->nparts, &m, &e);
    if (rc == 0)
        rc = kernel_send(k, m, &e);
    if (rc < 0)
        log_warn("message dropped", "kernel", json_get_str(f->head, "k", ""), "reason",
                 e.code ? e.msg : err_text(rc), NULL);
}

int shim_dispatch(struct client *c, const struct frame *f, struct err *e)
{
    const char *name = json_get_str(f->head, "op", "");
    if (strcmp(name, "msg") == 0) {
        take_message(c->shim, f);
        return 0;
    }
    if (!*name)
        return err_set(e, ERR_PROTOCOL, "frame without op");
    struct err oe = {0};
    autojson json_t *result = json_object();
    struct op_call o = {.client = c, .shim = c->shim, .r = f->head, .result = result};
    o.id = json_get_int(f->head, "id", 0);
    o.kernel = shim_find(c->shim, json_get_str(f->head, "k", ""));
    int rc = run_op(&o, name, &oe);
    if (rc == 1 || (rc == 0 && strcmp(name, "ack") == 0))
        return 0;
    reply(c, o.id, result, rc < 0 ? &oe : NULL);
    return 0;
}
