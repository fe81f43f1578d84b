#include "base/loop.h"

#include <stdlib.h>

#include "base/alloc.h"

struct work {
    uv_work_t req;
    void (*work)(void *);
    void (*done)(void *);
    void *arg;
};

/* Of this thread's loop: queued and not yet done. */
static _Thread_local size_t works;

static void run_work(uv_work_t *req)
{
    struct work *w = req->data;
    w->work(w->arg);
}

static void finish_work(uv_work_t *req, int status)
{
    struct work *w = req->data;
    (void)status; /* never cancelled: nothing calls uv_cancel */
    works--;
    w->done(w->arg);
    free(w);
}

void loop_work(uv_loop_t *loop, void (*work)(void *), void (*done)(void *), void *arg)
{
    struct work *w = xcalloc(1, sizeof *w);
    w->work = work;
    w->done = done;
    w->arg = arg;
    w->req.data = w;
    if (uv_queue_work(loop, &w->req, run_work, finish_work) != 0)
        abort(); /* only for a NULL callback */
    works++;
}

void loop_drain(uv_loop_t *loop)
{
    while (works)
        uv_run(loop, UV_RUN_ONCE);
}

struct loop_timer {
    uv_timer_t t;
    void (*cb)(void *);
    void *arg;
};

static void fire(uv_timer_t *t)
{
    struct loop_timer *lt = t->data;
    lt->cb(lt->arg);
}

static void free_timer(uv_handle_t *h)
{
    free(h->data);
}

struct loop_timer *loop_timer_start(uv_loop_t *loop, uint64_t ms, uint64_t repeat_ms,
                                    void (*cb)(void *), void *arg)
{
    struct loop_timer *lt = xcalloc(1, sizeof *lt);
    lt->cb = cb;
    lt->arg = arg;
    uv_timer_init(loop, &lt->t);
    lt->t.data = lt;
    uv_timer_start(&lt->t, fire, ms, repeat_ms);
    return lt;
}

struct loop_timer *loop_timer_stop(struct loop_timer *lt)
{
    if (lt) {
        uv_timer_stop(&lt->t);
        uv_close((uv_handle_t *)&lt->t, free_timer);
    }
    return NULL;
}

static void close_left(uv_handle_t *h, void *arg)
{
    int *forced = arg;
    if (!uv_is_closing(h)) {
        (*forced)++;
        uv_close(h, NULL);
    }
}

int loop_fini(uv_loop_t *loop)
{
    int forced = 0;
    uv_run(loop, UV_RUN_NOWAIT);
    uv_walk(loop, close_left, &forced);
    uv_run(loop, UV_RUN_DEFAULT);
    return uv_loop_close(loop) == 0 && forced == 0 ? 0 : -1;
}
