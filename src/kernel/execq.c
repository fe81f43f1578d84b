#include "kernel/execq.h"

#include <string.h>

#include "base/alloc.h"
#include "base/list.h"

struct item {
    struct list link;
    struct jmsg *m;
    int execute;
};

struct execq {
    const struct execq_ops *ops;
    void *arg;
    int ready;
    struct list waiting; /* items in order of arrival */
    size_t count;        /* all of them */
    size_t executes;     /* the execute_requests among them */
    struct jmsg *running;
    int silent, stop_on_error; /* of the running request */
    int started;
};

struct execq *execq_new(const struct execq_ops *ops, void *arg)
{
    struct execq *q = xcalloc(1, sizeof *q);
    q->ops = ops;
    q->arg = arg;
    list_init(&q->waiting);
    return q;
}

/* Off the queue; the caller gets its message. */
static struct jmsg *take(struct execq *q, struct item *it)
{
    struct jmsg *m = it->m;
    list_remove(&it->link);
    q->count--;
    q->executes -= it->execute ? 1 : 0;
    free(it);
    return m;
}

struct execq *execq_free(struct execq *q)
{
    if (q) {
        while (!list_empty(&q->waiting))
            jmsg_unref(take(q, container_of(q->waiting.next, struct item, link)));
        jmsg_unref(q->running);
        free(q);
    }
    return NULL;
}

/* Takes over the reference. */
static void start(struct execq *q, struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        content = NULL; /* the kernel will complain about it */
    q->running = m;
    q->started = 0;
    q->silent = json_get_bool(content, "silent", 0);
    q->stop_on_error = json_get_bool(content, "stop_on_error", 1);
    q->ops->send(q->arg, m);
}

static void pump(struct execq *q)
{
    while (q->ready && !list_empty(&q->waiting)) {
        struct item *it = container_of(q->waiting.next, struct item, link);
        if (it->execute && q->running)
            return;
        int execute = it->execute;
        struct jmsg *m = take(q, it);
        if (execute) {
            start(q, m);
        } else {
            q->ops->send(q->arg, m);
            jmsg_unref(m);
        }
    }
}

void execq_ready(struct execq *q, int ready)
{
    q->ready = ready;
    pump(q);
}

int execq_push(struct execq *q, struct jmsg *m, struct err *e)
{
    const struct jhead *h;
    int rc = jmsg_head(m, &h, e);
    if (rc < 0)
        return rc;
    if (m->channel != JCHAN_SHELL || (*h->subshell_id && q->ready)) {
        q->ops->send(q->arg, m);
        return 0;
    }
    if (q->count >= EXECQ_MAX)
        return err_set(e, ERR_BUSY, "%d requests wait for this kernel already", EXECQ_MAX);
    struct item *it = xcalloc(1, sizeof *it);
    it->m = jmsg_ref(m);
    it->execute = !*h->subshell_id && strcmp(h->msg_type, "execute_request") == 0;
    list_append(&q->waiting, &it->link);
    q->count++;
    q->executes += it->execute ? 1 : 0;
    pump(q);
    return 0;
}

/* Requests that arrive while the callbacks run are not concerned: they came later. */
static void abort_waiting(struct execq *q)
{
    struct list gone;
    list_init(&gone);
    list_foreach(l, &q->waiting)
    {
        struct item *it = container_of(l, struct item, link);
        if (it->execute) {
            list_remove(l);
            list_append(&gone, l);
        }
    }
    while (!list_empty(&gone)) {
        struct jmsg *m = take(q, container_of(gone.next, struct item, link));
        q->ops->abort(q->arg, m);
        jmsg_unref(m);
    }
}

static struct jmsg *finish(struct execq *q)
{
    q->started = 0;
    return STEAL(q->running);
}

static int is_child_of_running(struct execq *q, const struct jhead *h)
{
    const struct jhead *r;
    return q->running && jmsg_head(q->running, &r, NULL) == 0 &&
           strcmp(h->parent_id, r->msg_id) == 0;
}

static int failed(const struct jmsg *reply)
{
    autojson json_t *content = NULL;
    if (jmsg_json(reply, JPART_CONTENT, &content, NULL) < 0)
        return 0;
    const char *status = json_get_str(content, "status", "");
    return strcmp(status, "error") == 0 || strcmp(status, "aborted") == 0;
}

void execq_reply(struct execq *q, struct jmsg *reply)
{
    const struct jhead *h;
    if (jmsg_head(reply, &h, NULL) < 0 || strcmp(h->msg_type, "execute_reply") != 0 ||
        !is_child_of_running(q, h))
        return;
    int stop = q->stop_on_error && failed(reply);
    jmsg_unref(finish(q));
    if (stop)
        abort_waiting(q);
    pump(q);
}

void execq_iopub(struct execq *q, struct jmsg *m)
{
    const struct jhead *h;
    if (q->started || !q->running || jmsg_head(m, &h, NULL) < 0 || !is_child_of_running(q, h))
        return;
    /* "busy" comes before the kernel has armed its interrupt handler, execute_input after; a
     * silent request has only the former. */
    if (q->silent || strcmp(h->msg_type, "status") != 0)
        q->started = 1;
}

int execq_interrupt(struct execq *q)
{
    if (q->running)
        return q->started ? 1 : 2;
    abort_waiting(q);
    return q->ready ? 1 : 0;
}

int execq_started(const struct execq *q)
{
    return q->started;
}

void execq_died(struct execq *q, const char *cause)
{
    q->ready = 0;
    if (q->running) {
        struct jmsg *m = finish(q);
        q->ops->fail(q->arg, m, cause);
        jmsg_unref(m);
    }
    abort_waiting(q);
}

struct jmsg *execq_running(const struct execq *q)
{
    return q->running;
}

size_t execq_waiting(const struct execq *q)
{
    return q->executes;
}
