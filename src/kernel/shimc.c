#include "kernel/shimc.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/loop.h"
#include "kernel/shimc_open.h"
#include "wire/frame.h"

#define QUEUE_MAX ((size_t)1 << 30) /* requests that the shim did not take yet */
#define PROTOCOL 1

struct call {
    struct list link;
    struct shimc *c;
    json_int_t id;
    shimc_cb cb;
    void *arg;
    struct loop_timer *deadline;
};

struct shimc {
    uv_loop_t *loop;
    uv_pipe_t pipe;
    const struct shimc_ops *ops;
    void *arg;
    char *data;
    json_int_t next_id;
    struct list calls;
    struct buf in, out, sending;
    uv_write_t write;
    struct loop_timer *lost; /* tells the owner, from the loop */
    struct err why;
    int writing, down, closed;
};

static void on_closed(uv_handle_t *h)
{
    struct shimc *c = h->data;
    buf_free(&c->in);
    buf_free(&c->out);
    buf_free(&c->sending);
    free(c->data);
    free(c);
}

static void finish_call(struct call *k, const struct err *e, json_t *reply)
{
    list_remove(&k->link);
    loop_timer_stop(k->deadline);
    if (k->cb)
        k->cb(k->arg, e, reply);
    free(k);
}

/* Runs on the loop: requests fail, then the owner hears of it. */
static void tell_lost(void *arg)
{
    struct shimc *c = arg;
    c->lost = loop_timer_stop(c->lost);
    while (!list_empty(&c->calls) && !c->closed)
        finish_call(container_of(c->calls.next, struct call, link), &c->why, NULL);
    if (!c->closed && c->down == 1) {
        c->down = 2;
        if (c->ops->down)
            c->ops->down(c->arg, &c->why);
    }
}

static void lose(struct shimc *c, const char *why)
{
    if (c->closed)
        return;
    if (!c->down) {
        c->down = 1;
        err_set(&c->why, ERR_UNAVAILABLE, "reitos-shim: %s", why);
        uv_read_stop((uv_stream_t *)&c->pipe);
    }
    if (!c->lost)
        c->lost = loop_timer_start(c->loop, 0, 0, tell_lost, c);
}

/* ---- writing ---- */

static void flush(struct shimc *c);

static void on_written(uv_write_t *w, int status)
{
    struct shimc *c = w->data;
    c->writing = 0;
    buf_clear(&c->sending);
    if (status < 0)
        lose(c, uv_strerror(status));
    else
        flush(c);
}

static void flush(struct shimc *c)
{
    if (c->closed || c->down || c->writing || !c->out.len)
        return;
    uv_buf_t b = uv_buf_init(c->out.data, (unsigned)c->out.len);
    int n = uv_try_write((uv_stream_t *)&c->pipe, &b, 1);
    if (n < 0 && n != UV_EAGAIN) {
        lose(c, uv_strerror(n));
        return;
    }
    if (n > 0)
        buf_consume(&c->out, (size_t)n);
    if (!c->out.len)
        return;
    struct buf rest = c->out;
    c->out = c->sending;
    c->sending = rest;
    b = uv_buf_init(c->sending.data, (unsigned)c->sending.len);
    c->write.data = c;
    c->writing = 1;
    int rc = uv_write(&c->write, (uv_stream_t *)&c->pipe, &b, 1, on_written);
    if (rc < 0) {
        c->writing = 0;
        lose(c, uv_strerror(rc));
    }
}

static void put(struct shimc *c, const json_t *head, const struct jmsg *m)
{
    if (c->down || c->closed)
        return;
    int rc = frame_encode(&c->out, head, m);
    if (rc < 0)
        lose(c, err_text(rc));
    else
        flush(c);
}

/* ---- requests ---- */

static void on_deadline(void *arg)
{
    struct call *k = arg;
    struct err e = {0};
    err_set(&e, ERR_TIMEOUT, "reitos-shim did not answer in time");
    finish_call(k, &e, NULL);
}

void shimc_call(struct shimc *c, json_t *request, int timeout_ms, shimc_cb cb, void *arg)
{
    struct call *k = xcalloc(1, sizeof *k);
    *k = (struct call){.c = c, .id = ++c->next_id, .cb = cb, .arg = arg};
    json_object_set_new(request, "id", json_integer(k->id));
    list_append(&c->calls, &k->link);
    k->deadline = loop_timer_start(c->loop, (uint64_t)timeout_ms, 0, on_deadline, k);
    if (c->down)
        lose(c, "gone");
    else
        put(c, request, NULL);
    json_decref(request);
}

void shimc_send(struct shimc *c, const char *kid, struct jmsg *m)
{
    autojson json_t *head =
        json_pack("{s:s, s:s, s:s}", "op", "msg", "k", kid, "ch", jchan_name(m->channel));
    if (head)
        put(c, head, m);
}

char *shimc_journal_dir(const struct shimc *c, const char *kid)
{
    return xasprintf("%s/kernels/%s/journal", c->data, kid);
}

/* ---- reading ---- */

static void take_answer(struct shimc *c, json_t *head)
{
    json_int_t id = json_get_int(head, "re", 0);
    json_t *error = json_object_get(head, "error");
    struct err e = {0};
    if (error)
        err_set(&e, err_code_of(json_get_str(error, "code", "")), "%s",
                json_get_str(error, "message", "failed"));
    list_foreach(it, &c->calls)
    {
        struct call *k = container_of(it, struct call, link);
        if (k->id == id) {
            finish_call(k, error ? &e : NULL, error ? NULL : head);
            return;
        }
    }
}

static void take_event(struct shimc *c, const char *op, json_t *head)
{
    const char *kid = json_get_str(head, "k", "");
    if (strcmp(op, "grown") == 0) {
        if (c->ops->grown)
            c->ops->grown(c->arg, kid, (uint64_t)json_get_int(head, "head", 0));
    } else if (strcmp(op, "changed") == 0) {
        json_t *model = json_object_get(head, "kernel");
        if (c->ops->changed)
            c->ops->changed(c->arg, json_get_str(model, "id", ""), model);
    } else if (strcmp(op, "gone") == 0) {
        if (c->ops->gone)
            c->ops->gone(c->arg, kid);
    }
}

static int on_frame(void *arg, const struct frame *f, struct err *e)
{
    struct shimc *c = arg;
    if (c->closed)
        return err_set(e, ERR_GONE, "closed");
    const char *op = json_get_str(f->head, "op", "");
    if (json_object_get(f->head, "re"))
        take_answer(c, f->head);
    else
        take_event(c, op, f->head);
    return c->closed ? err_set(e, ERR_GONE, "closed") : 0;
}

static void give_buffer(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    static char space[65536]; /* used up before the next read */
    (void)h;
    (void)suggested;
    *b = uv_buf_init(space, sizeof space);
}

static void destroy(struct shimc *c)
{
    uv_close((uv_handle_t *)&c->pipe, on_closed);
}

static void on_read(uv_stream_t *st, ssize_t n, const uv_buf_t *b)
{
    struct shimc *c = st->data;
    struct err e = {0};
    if (n == 0 || c->closed)
        return;
    if (n < 0) {
        lose(c, n == UV_EOF ? "it ended" : uv_strerror((int)n));
        return;
    }
    int rc = buf_append(&c->in, b->base, (size_t)n);
    if (rc < 0)
        err_set(&e, rc, "answer too large");
    else
        rc = frame_decode(&c->in, on_frame, c, &e);
    if (rc < 0)
        lose(c, e.msg);
}

/* ---- open and close ---- */

static void on_hello(void *arg, const struct err *e, json_t *reply)
{
    struct shimc *c = arg;
    if (e) {
        if (e->code != ERR_UNAVAILABLE)
            lose(c, e->msg);
        return;
    }
    size_t i;
    json_t *model;
    json_array_foreach(json_object_get(reply, "kernels"), i, model)
    {
        if (c->closed)
            return;
        if (c->ops->changed)
            c->ops->changed(c->arg, json_get_str(model, "id", ""), model);
    }
}

int shimc_open(uv_loop_t *loop, const struct shimc_conf *conf, const struct shimc_ops *ops,
               void *arg, struct shimc **ret, struct err *e)
{
    int fd = shimc_connect(conf, e);
    if (fd < 0)
        return fd;
    struct shimc *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->ops = ops;
    c->arg = arg;
    c->data = xstrdup(conf->data);
    list_init(&c->calls);
    buf_init(&c->in, FRAME_MAX + 65540);
    buf_init(&c->out, QUEUE_MAX);
    buf_init(&c->sending, QUEUE_MAX);
    uv_pipe_init(loop, &c->pipe, 0);
    c->pipe.data = c;
    int rc = uv_pipe_open(&c->pipe, fd);
    if (rc == 0)
        rc = uv_read_start((uv_stream_t *)&c->pipe, give_buffer, on_read);
    if (rc < 0) {
        destroy(c);
        return err_set(e, ERR_IO, "reitos-shim: %s", uv_strerror(rc));
    }
    json_t *hello = json_pack("{s:s, s:i, s:s, s:i}", "op", "hello", "version", PROTOCOL, "role",
                              conf->role ? conf->role : "daemon", "grace_s", conf->grace_s);
    shimc_call(c, hello, 5000, on_hello, c);
    *ret = c;
    return 0;
}

void shimc_close(struct shimc *c)
{
    c->closed = 1;
    c->lost = loop_timer_stop(c->lost);
    while (!list_empty(&c->calls)) {
        struct call *k = container_of(c->calls.next, struct call, link);
        k->cb = NULL; /* its owner is going away */
        finish_call(k, NULL, NULL);
    }
    destroy(c);
}
