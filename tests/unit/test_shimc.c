#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/loop.h"
#include "kernel/shimc.h"
#include "kernel/shimc_open.h"
#include "wire/frame.h"

/* A shim that writes down what it is asked ("hello 1 cli; list; ...") and answers as told. */
struct fixture {
    uv_loop_t loop;
    uv_pipe_t listener, peer;
    int connected, mute;
    struct buf in, asked, told; /* told: what the client's owner heard */
    char dir[64];
    struct shimc *c;
    struct shimc_conf conf;
};

static void send_head(struct fixture *f, json_t *head)
{
    struct buf b = BUF_INIT(FRAME_MAX);
    assert_int_equal(frame_encode(&b, head, NULL), 0);
    uv_buf_t u = uv_buf_init(b.data, (unsigned)b.len);
    assert_int_equal(uv_try_write((uv_stream_t *)&f->peer, &u, 1), (int)b.len);
    buf_free(&b);
    json_decref(head);
}

static int serve(void *arg, const struct frame *fr, struct err *e)
{
    struct fixture *f = arg;
    const char *op = json_get_str(fr->head, "op", "");
    json_int_t id = json_get_int(fr->head, "id", 0);
    (void)e;
    buf_add(&f->asked, "%s", op);
    if (strcmp(op, "hello") == 0) {
        buf_add(&f->asked, " %d %s %d", (int)json_get_int(fr->head, "version", 0),
                json_get_str(fr->head, "role", ""), (int)json_get_int(fr->head, "grace_s", -1));
        send_head(
            f, json_pack("{s:I, s:i, s:[{s:s}]}", "re", id, "version", 1, "kernels", "id", "old"));
    } else if (strcmp(op, "msg") == 0) {
        buf_add(&f->asked, " %s %s %zu %.*s", json_get_str(fr->head, "k", ""),
                json_get_str(fr->head, "ch", ""), fr->nparts, (int)fr->parts[3].len,
                (const char *)fr->parts[3].data);
    } else if (!f->mute) {
        if (strcmp(op, "bad") == 0)
            send_head(f, json_pack("{s:I, s:{s:s, s:s}}", "re", id, "error", "code", "NOT_FOUND",
                                   "message", "no kernel x"));
        else
            send_head(f, json_pack("{s:I, s:s}", "re", id, "got", op));
    }
    buf_add(&f->asked, "; ");
    return 0;
}

static void give(uv_handle_t *h, size_t n, uv_buf_t *b)
{
    static char space[65536];
    (void)h;
    (void)n;
    *b = uv_buf_init(space, sizeof space);
}

static void on_read(uv_stream_t *st, ssize_t n, const uv_buf_t *b)
{
    struct fixture *f = st->data;
    if (n <= 0)
        return;
    assert_int_equal(buf_append(&f->in, b->base, (size_t)n), 0);
    assert_int_equal(frame_decode(&f->in, serve, f, NULL), 0);
}

static void on_connection(uv_stream_t *st, int status)
{
    struct fixture *f = st->data;
    assert_int_equal(status, 0);
    uv_pipe_init(&f->loop, &f->peer, 0);
    f->peer.data = f;
    assert_int_equal(uv_accept(st, (uv_stream_t *)&f->peer), 0);
    uv_read_start((uv_stream_t *)&f->peer, give, on_read);
    f->connected = 1;
}

static void on_grown(void *arg, const char *kid, uint64_t head)
{
    buf_add(&((struct fixture *)arg)->told, "grown %s %d; ", kid, (int)head);
}

static void on_changed(void *arg, const char *kid, json_t *model)
{
    assert_true(json_is_object(model));
    buf_add(&((struct fixture *)arg)->told, "changed %s; ", kid);
}

static void on_gone(void *arg, const char *kid)
{
    buf_add(&((struct fixture *)arg)->told, "gone %s; ", kid);
}

static void on_down(void *arg, const struct err *why)
{
    buf_add(&((struct fixture *)arg)->told, "down %s; ", err_name(why->code));
}

static const struct shimc_ops ops = {on_grown, on_changed, on_gone, on_down};

static void on_answer(void *arg, const struct err *e, json_t *reply)
{
    struct fixture *f = arg;
    assert_true(!e == !!reply);
    buf_add(&f->told, "%s; ", e ? err_name(e->code) : json_get_str(reply, "got", "?"));
}

static void turn(struct fixture *f, int ms)
{
    for (int i = 0; i < ms; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/reitos-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->conf =
        (struct shimc_conf){.data = f->dir, .shim = "/bin/false", .role = "cli", .grace_s = 5};
    buf_init(&f->in, FRAME_MAX);
    buf_init(&f->asked, 65536);
    buf_init(&f->told, 65536);
    uv_loop_init(&f->loop);
    *state = f;
    return 0;
}

static int setup_open(void **state)
{
    setup(state);
    struct fixture *f = *state;
    autofree char *run = xasprintf("%s/run", f->dir);
    autofree char *path = xasprintf("%s/shim.sock", run);
    assert_int_equal(mkdir(run, 0700), 0);
    uv_pipe_init(&f->loop, &f->listener, 0);
    f->listener.data = f;
    assert_int_equal(uv_pipe_bind(&f->listener, path), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&f->listener, 8, on_connection), 0);
    assert_int_equal(shimc_open(&f->loop, &f->conf, &ops, f, &f->c, NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->c)
        shimc_close(f->c);
    turn(f, 3);
    if (f->connected && !uv_is_closing((uv_handle_t *)&f->peer))
        uv_close((uv_handle_t *)&f->peer, NULL);
    if (f->listener.data)
        uv_close((uv_handle_t *)&f->listener, NULL);
    assert_int_equal(loop_fini(&f->loop), 0);
    struct fs_root tmp;
    assert_int_equal(fs_root_open("/tmp", &tmp, NULL), 0);
    assert_int_equal(fs_remove_tree(&tmp, f->dir + 5, NULL), 0);
    fs_root_close(&tmp);
    buf_free(&f->in);
    buf_free(&f->asked);
    buf_free(&f->told);
    free(f);
    return 0;
}

static void hello_tells_of_kernels(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->told.len, 0); /* never inside the call */
    turn(f, 5);
    assert_string_equal(buf_str(&f->asked), "hello 1 cli 5; ");
    assert_string_equal(buf_str(&f->told), "changed old; ");
    autofree char *dir = shimc_journal_dir(f->c, "abc");
    autofree char *want = xasprintf("%s/kernels/abc/journal", f->dir);
    assert_string_equal(dir, want);
}

static void answers_and_errors(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    buf_clear(&f->told);
    shimc_call(f->c, json_pack("{s:s}", "op", "list"), 1000, on_answer, f);
    shimc_call(f->c, json_pack("{s:s}", "op", "bad"), 1000, on_answer, f);
    shimc_call(f->c, json_pack("{s:s}", "op", "ack"), 1000, NULL, NULL);
    assert_int_equal(f->told.len, 0);
    turn(f, 5);
    assert_string_equal(buf_str(&f->told), "list; NOT_FOUND; ");
}

static void an_answer_that_does_not_come(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    buf_clear(&f->told);
    f->mute = 1;
    shimc_call(f->c, json_pack("{s:s}", "op", "list"), 20, on_answer, f);
    turn(f, 40);
    assert_string_equal(buf_str(&f->told), "TIMEOUT; ");
    send_head(f, json_pack("{s:i, s:s}", "re", 2, "got", "late"));
    turn(f, 5);
    assert_string_equal(buf_str(&f->told), "TIMEOUT; ");
}

static void events(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    buf_clear(&f->told);
    send_head(f, json_pack("{s:s, s:s, s:i}", "op", "grown", "k", "a", "head", 17));
    send_head(f, json_pack("{s:s, s:{s:s}}", "op", "changed", "kernel", "id", "a"));
    send_head(f, json_pack("{s:s, s:s}", "op", "unknown", "k", "a"));
    send_head(f, json_pack("{s:s, s:s}", "op", "gone", "k", "a"));
    turn(f, 5);
    assert_string_equal(buf_str(&f->told), "grown a 17; changed a; gone a; ");
}

static void messages(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    buf_clear(&f->asked);
    autojson json_t *content = json_pack("{s:s}", "value", "x");
    autojmsg struct jmsg *m = jmsg_make(JCHAN_STDIN, "input_reply", "s", NULL, content);
    shimc_send(f->c, "kid", m);
    turn(f, 5);
    assert_string_equal(buf_str(&f->asked), "msg kid stdin 4 {\"value\":\"x\"}; ");
}

/* More than a socket takes at once: the rest follows, whole and in order. */
static void large_messages(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    size_t n = 3000000;
    autofree char *text = xmalloc(n + 1);
    memset(text, 'y', n);
    text[n] = '\0';
    autojson json_t *content = json_pack("{s:s}", "code", text);
    autojmsg struct jmsg *m = jmsg_make(JCHAN_SHELL, "execute_request", "s", NULL, content);
    f->asked.max = 20000000;
    buf_clear(&f->asked);
    shimc_send(f->c, "k", m);
    shimc_send(f->c, "k", m);
    shimc_call(f->c, json_pack("{s:s}", "op", "list"), 5000, NULL, NULL);
    turn(f, 300);
    assert_true(f->asked.len > 2 * n);
    assert_string_equal(f->asked.data + f->asked.len - 6, "list; ");
}

static void the_shim_ends(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    buf_clear(&f->told);
    f->mute = 1;
    shimc_call(f->c, json_pack("{s:s}", "op", "list"), 10000, on_answer, f);
    turn(f, 3);
    uv_close((uv_handle_t *)&f->peer, NULL);
    turn(f, 5);
    assert_string_equal(buf_str(&f->told), "UNAVAILABLE; down UNAVAILABLE; ");
    shimc_call(f->c, json_pack("{s:s}", "op", "list"), 10000, on_answer, f);
    assert_string_equal(buf_str(&f->told), "UNAVAILABLE; down UNAVAILABLE; ");
    turn(f, 5);
    assert_string_equal(buf_str(&f->told), "UNAVAILABLE; down UNAVAILABLE; UNAVAILABLE; ");
}

static void nonsense_from_the_shim(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    buf_clear(&f->told);
    uv_buf_t u = uv_buf_init((char *)"\xff\xff\xff\xff....", 8);
    uv_try_write((uv_stream_t *)&f->peer, &u, 1);
    turn(f, 5);
    assert_string_equal(buf_str(&f->told), "down UNAVAILABLE; ");
}

static void on_answer_close(void *arg, const struct err *e, json_t *reply)
{
    struct fixture *f = arg;
    on_answer(arg, e, reply);
    shimc_close(f->c);
    f->c = NULL;
}

static void closing_in_a_callback(void **state)
{
    struct fixture *f = *state;
    turn(f, 5);
    buf_clear(&f->told);
    shimc_call(f->c, json_pack("{s:s}", "op", "a"), 1000, on_answer_close, f);
    shimc_call(f->c, json_pack("{s:s}", "op", "b"), 1000, on_answer, f);
    turn(f, 10);
    assert_string_equal(buf_str(&f->told), "a; ");
}

static void no_shim(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    assert_int_equal(shimc_open(&f->loop, &f->conf, &ops, f, &f->c, &e), ERR_UNAVAILABLE);
    f->conf.start = 1;
    f->conf.shim = "/no/such/reitos-shim";
    assert_int_equal(shimc_open(&f->loop, &f->conf, &ops, f, &f->c, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "/no/such/reitos-shim"));
    assert_null(f->c);
}

static void names_of_errors(void **state)
{
    (void)state;
    assert_int_equal(err_code_of("GONE"), ERR_GONE);
    assert_int_equal(err_code_of("INVALID"), ERR_INVALID);
    assert_int_equal(err_code_of("nonsense"), ERR_INTERNAL);
}

int main(void)
{
    json_setup();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hello_tells_of_kernels, setup_open, teardown),
        cmocka_unit_test_setup_teardown(answers_and_errors, setup_open, teardown),
        cmocka_unit_test_setup_teardown(an_answer_that_does_not_come, setup_open, teardown),
        cmocka_unit_test_setup_teardown(events, setup_open, teardown),
        cmocka_unit_test_setup_teardown(messages, setup_open, teardown),
        cmocka_unit_test_setup_teardown(large_messages, setup_open, teardown),
        cmocka_unit_test_setup_teardown(the_shim_ends, setup_open, teardown),
        cmocka_unit_test_setup_teardown(nonsense_from_the_shim, setup_open, teardown),
        cmocka_unit_test_setup_teardown(closing_in_a_callback, setup_open, teardown),
        cmocka_unit_test_setup_teardown(no_shim, setup, teardown),
        cmocka_unit_test(names_of_errors),
    };
    return cmocka_run_group_tests_name("shimc", tests, NULL, NULL);
}
