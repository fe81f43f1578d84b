#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/loop.h"
#include "wire/zmq_uv.h"

#define MESSAGES 20000

struct fixture;

/* One end, with what it has seen. */
struct end {
    struct fixture *f;
    struct end *next;
    struct zsock *z;
    int got, want, bad, sent;
    int echo;
    int close_after;
    size_t last_len, last_frames;
    char last[64];
};

struct fixture {
    struct end *ends; /* closed and freed by teardown, also when a test fails */
    uv_loop_t loop;
    struct zctx *ctx;
    uv_timer_t deadline;
    int timed_out;
};

static void on_deadline(uv_timer_t *t)
{
    struct fixture *f = t->data;
    f->timed_out = 1;
    uv_stop(&f->loop);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    uv_loop_init(&f->loop);
    f->ctx = zctx_new();
    uv_timer_init(&f->loop, &f->deadline);
    f->deadline.data = f;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (struct end *it = f->ends; it; it = it->next)
        it->z = zsock_close(it->z);
    uv_close((uv_handle_t *)&f->deadline, NULL);
    int rc = loop_fini(&f->loop);
    while (f->ends) {
        struct end *gone = f->ends;
        f->ends = gone->next;
        free(gone);
    }
    f->ctx = zctx_free(f->ctx);
    free(f);
    return rc;
}

static void run(struct fixture *f, uint64_t ms)
{
    f->timed_out = 0;
    uv_timer_start(&f->deadline, on_deadline, ms, 0);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_timer_stop(&f->deadline);
}

static void on_message(void *arg, const struct slice *frames, size_t n)
{
    struct end *end = arg;
    const struct slice *last = &frames[n - 1];
    end->last_frames = n;
    end->last_len = last->len;
    size_t keep = last->len < sizeof end->last - 1 ? last->len : sizeof end->last - 1;
    memcpy(end->last, last->data, keep);
    end->last[keep] = '\0';
    int number = 0;
    if (last->len == sizeof number) {
        memcpy(&number, last->data, sizeof number);
        end->bad += number != end->got;
    }
    end->got++;
    if (end->echo)
        assert_int_equal(zsock_send(end->z, frames, n, NULL), 0);
    if (end->close_after && end->got == end->close_after)
        end->z = zsock_close(end->z);
    if (end->got == end->want)
        uv_stop(&end->f->loop);
}

static struct end *open_with(struct fixture *f, enum zsock_type type, const char *endpoint,
                             int binds, zsock_cb cb)
{
    struct err e = {0};
    struct zsock_conf conf = {.type = type, .endpoint = endpoint, .bind = binds};
    struct end *end = xcalloc(1, sizeof *end);
    end->f = f;
    end->next = f->ends;
    f->ends = end;
    if (zsock_open(f->ctx, &f->loop, &conf, cb, end, &end->z, &e) < 0)
        fail_msg("%s", e.msg);
    return end;
}

static struct end *open_end(struct fixture *f, enum zsock_type type, const char *endpoint,
                            int binds)
{
    return open_with(f, type, endpoint, binds, on_message);
}

static int send_int(struct zsock *z, int number)
{
    struct slice s = {&number, sizeof number};
    return zsock_send(z, &s, 1, NULL);
}

static void flood(struct fixture *f, const char *endpoint)
{
    struct end *router = open_end(f, ZSOCK_ROUTER, endpoint, 1);
    router->echo = 1;
    struct end *dealer = open_end(f, ZSOCK_DEALER, zsock_endpoint(router->z), 0);
    dealer->want = MESSAGES;
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(send_int(dealer->z, i), 0);
    run(f, 30000);
    assert_false(f->timed_out);
    assert_int_equal(router->got, MESSAGES);
    assert_int_equal(dealer->got, MESSAGES);
    assert_int_equal(router->bad + dealer->bad, 0);
    assert_int_equal(zsock_pending(dealer->z), 0);
}

static void test_flood_tcp(void **state)
{
    flood(*state, "tcp://127.0.0.1:*");
}

static void test_flood_ipc(void **state)
{
    flood(*state, "ipc://*");
}

/* A reply that comes while the socket is only being written to must not wait for the next signal
 * of the descriptor. Each pong sends two pings, so that sends and receives interleave. */
static void on_pong(void *arg, const struct slice *frames, size_t n)
{
    struct end *end = arg;
    (void)frames;
    (void)n;
    if (++end->got == end->want)
        uv_stop(&end->f->loop);
    for (int i = 0; i < 2 && end->sent < end->want; i++, end->sent++)
        assert_int_equal(send_int(end->z, end->sent), 0);
}

static void test_interleaved(void **state)
{
    struct fixture *f = *state;
    struct end *router = open_end(f, ZSOCK_ROUTER, "ipc://*", 1);
    router->echo = 1;
    struct end *dealer = open_with(f, ZSOCK_DEALER, zsock_endpoint(router->z), 0, on_pong);
    dealer->want = 5000;
    dealer->sent = 1;
    assert_int_equal(send_int(dealer->z, 0), 0);
    run(f, 30000);
    assert_false(f->timed_out);
    assert_int_equal(dealer->got, 5000);
}

static void test_waits_for_peer(void **state)
{
    /* Connects before the other end exists; everything sent meanwhile arrives, in order. */
    struct fixture *f = *state;
    struct end *first = open_end(f, ZSOCK_ROUTER, "tcp://127.0.0.1:*", 1);
    autofree char *endpoint = xstrdup(zsock_endpoint(first->z));
    first->z = zsock_close(first->z);
    run(f, 50);
    struct end *dealer = open_end(f, ZSOCK_DEALER, endpoint, 0);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(send_int(dealer->z, i), 0);
    assert_true(zsock_pending(dealer->z) > 0); /* beyond the socket's own mark */
    struct end *router = open_end(f, ZSOCK_ROUTER, endpoint, 1);
    router->want = 5000;
    run(f, 20000);
    assert_false(f->timed_out);
    assert_int_equal(router->bad, 0);
}

static void test_queue_limit(void **state)
{
    struct fixture *f = *state;
    struct end *dealer = open_end(f, ZSOCK_DEALER, "tcp://127.0.0.1:9", 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(send_int(dealer->z, i), 0);
    /* One lie about the length is enough: the limit is checked before a byte is read. */
    struct slice huge = {"", ZSOCK_QUEUE_MAX + 1};
    assert_int_equal(send_int(dealer->z, 1), 0);
    struct err e;
    assert_int_equal(zsock_send(dealer->z, &huge, 1, &e), ERR_LIMIT);
    assert_int_equal(zsock_send(dealer->z, &huge, 0, &e), ERR_INVALID);
}

static void test_publish(void **state)
{
    struct fixture *f = *state;
    struct end *pub = open_end(f, ZSOCK_XPUB, "ipc://*", 1);
    pub->want = 1;
    struct end *sub = open_end(f, ZSOCK_SUB, zsock_endpoint(pub->z), 0);
    sub->want = 5000;
    run(f, 10000); /* the subscription arrives */
    assert_int_equal(pub->last_len, 1);
    assert_int_equal(pub->last[0], 1);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(send_int(pub->z, i), 0);
    run(f, 20000);
    assert_false(f->timed_out);
    assert_int_equal(sub->bad, 0);
}

static void test_heartbeat(void **state)
{
    struct fixture *f = *state;
    struct end *rep = open_end(f, ZSOCK_REP, "ipc://*", 1);
    rep->echo = 1;
    struct end *req = open_end(f, ZSOCK_REQ, zsock_endpoint(rep->z), 0);
    req->want = 2;
    struct slice ping = {"ping", 4};
    assert_int_equal(zsock_send(req->z, &ping, 1, NULL), 0);
    run(f, 200); /* want is 2: one echo, then the deadline */
    assert_int_equal(req->got, 1);
    assert_int_equal(req->last_len, 4);
    assert_int_equal(zsock_send(req->z, &ping, 1, NULL), 0);
    run(f, 10000);
    assert_int_equal(req->got, 2);
}

static void test_unknown_peer(void **state)
{
    struct fixture *f = *state;
    struct end *router = open_end(f, ZSOCK_ROUTER, "ipc://*", 1);
    struct slice frames[2] = {{"nobody", 6}, {"hello", 5}};
    assert_int_equal(zsock_send(router->z, frames, 2, NULL), 0);
    assert_int_equal(zsock_pending(router->z), 0);
}

static void test_close_in_callback(void **state)
{
    struct fixture *f = *state;
    struct end *router = open_end(f, ZSOCK_ROUTER, "ipc://*", 1);
    router->close_after = 3;
    struct end *dealer = open_end(f, ZSOCK_DEALER, zsock_endpoint(router->z), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(send_int(dealer->z, i), 0);
    run(f, 300);
    assert_int_equal(router->got, 3);
    assert_null(router->z);
}

/* A signed message with a large buffer, from end to end. */
static void test_jmsg(void **state)
{
    struct fixture *f = *state;
    struct end *router = open_end(f, ZSOCK_ROUTER, "ipc://*", 1);
    router->want = 1;
    struct end *dealer = open_end(f, ZSOCK_DEALER, zsock_endpoint(router->z), 0);
    size_t big = (size_t)20 << 20;
    autofree char *bytes = xcalloc(1, big);
    struct slice parts[5] = {{"{}", 2}, {"{}", 2}, {"{}", 2}, {"{}", 2}, {bytes, big}};
    autojmsg struct jmsg *m = NULL;
    assert_int_equal(jmsg_new(JCHAN_SHELL, parts, 5, &m, NULL), 0);
    struct slice id = {"id", 2};
    assert_int_equal(zsock_send_jmsg(dealer->z, &id, 1, m, "key", NULL), 0);
    run(f, 10000);
    assert_int_equal(router->last_frames, 1 + 1 + 2 + 5); /* routing id, ours, delimiter, hmac */
    assert_int_equal(router->last_len, big);
}

static void test_errors(void **state)
{
    struct fixture *f = *state;
    struct end *a = open_end(f, ZSOCK_ROUTER, "tcp://127.0.0.1:*", 1);
    struct zsock *z = NULL;
    struct err e;
    struct zsock_conf conf = {.type = ZSOCK_ROUTER, .endpoint = zsock_endpoint(a->z), .bind = 1};
    assert_int_equal(zsock_open(f->ctx, &f->loop, &conf, on_message, NULL, &z, &e), ERR_CONFLICT);
    conf.endpoint = "nonsense";
    assert_int_equal(zsock_open(f->ctx, &f->loop, &conf, on_message, NULL, &z, &e), ERR_IO);
    assert_null(z);
    assert_null(zsock_close(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_flood_tcp),         T(test_flood_ipc), T(test_interleaved), T(test_waits_for_peer),
        T(test_queue_limit),       T(test_publish),   T(test_heartbeat),   T(test_unknown_peer),
        T(test_close_in_callback), T(test_jmsg),      T(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
