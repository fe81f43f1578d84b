#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernel/shim_own.h"

static void on_closed(uv_handle_t *h)
{
    struct client *c = h->data;
    buf_free(&c->in);
    buf_free(&c->out);
    buf_free(&c->sending);
    free(c);
}

void client_own(struct client *c, const char *kid)
{
    if (!c->owned)
        c->owned = json_array();
    json_array_append_new(c->owned, json_string(kid));
}

/* The program that these kernels were started for is gone. */
static void stop_owned(struct client *c)
{
    json_t *id;
    size_t i;
    json_array_foreach(c->owned, i, id)
    {
        struct kernel *k = shim_find(c->shim, json_string_value(id));
        if (k)
            kernel_stop(k, 0, 0);
    }
    json_decref(c->owned);
    c->owned = NULL;
}

void client_close(struct client *c)
{
    if (c->closed)
        return;
    struct shim *s = c->shim;
    c->closed = 1;
    shim_forget_answers(c);
    stop_owned(c);
    list_remove(&c->link);
    s->nclients--;
    s->nhello -= c->hello ? 1 : 0;
    uv_close((uv_handle_t *)&c->pipe, on_closed);
    shim_check_idle(s);
}

void client_send(struct client *c, const json_t *head)
{
    if (c->closed)
        return;
    int rc = frame_encode(&c->out, head, NULL);
    if (rc < 0) {
        log_warn("client dropped", "reason", err_text(rc), NULL);
        client_close(c);
    }
}

static void on_written(uv_write_t *w, int status)
{
    struct client *c = w->data;
    c->writing = 0;
    buf_clear(&c->sending);
    if (status < 0)
        client_close(c);
    else
        client_flush(c);
}

/* Writes what it can at once; the rest goes out when the client reads. */
void client_flush(struct client *c)
{
    if (c->closed || c->writing || !c->out.len)
        return;
    uv_buf_t b = uv_buf_init(c->out.data, (unsigned)c->out.len);
    int n = uv_try_write((uv_stream_t *)&c->pipe, &b, 1);
    if (n < 0 && n != UV_EAGAIN) {
        client_close(c);
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
    if (uv_write(&c->write, (uv_stream_t *)&c->pipe, &b, 1, on_written) < 0)
        client_close(c);
}

static void give_buffer(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    static char space[65536]; /* used up before the next read of any client */
    (void)h;
    (void)suggested;
    *b = uv_buf_init(space, sizeof space);
}

static int on_frame(void *arg, const struct frame *f, struct err *e)
{
    struct client *c = arg;
    int rc = shim_dispatch(c, f, e);
    return c->closed ? err_set(e, ERR_GONE, "closed") : rc;
}

static void on_read(uv_stream_t *st, ssize_t n, const uv_buf_t *b)
{
    struct client *c = st->data;
    struct err e = {0};
    if (n == 0 || c->closed)
        return;
    if (n < 0) {
        client_close(c);
        return;
    }
    int rc = buf_append(&c->in, b->base, (size_t)n);
    if (rc < 0)
        err_set(&e, rc, "request too large");
    else
        rc = frame_decode(&c->in, on_frame, c, &e);
    if (rc < 0 && !c->closed) {
        log_warn("client dropped", "reason", e.msg, NULL);
        client_close(c);
    }
}

void client_accept(struct shim *s)
{
    struct client *c = xcalloc(1, sizeof *c);
    c->shim = s;
    buf_init(&c->in, FRAME_MAX + 65540);
    buf_init(&c->out, SHIM_CLIENT_QUEUE);
    buf_init(&c->sending, SHIM_CLIENT_QUEUE);
    list_init(&c->answers);
    list_append(&s->clients, &c->link);
    s->nclients++;
    uv_pipe_init(&s->loop, &c->pipe, 0);
    c->pipe.data = c;
    if (uv_accept((uv_stream_t *)&s->listener, (uv_stream_t *)&c->pipe) < 0 ||
        s->nclients > SHIM_CLIENTS_MAX ||
        uv_read_start((uv_stream_t *)&c->pipe, give_buffer, on_read) < 0)
        client_close(c);
}
