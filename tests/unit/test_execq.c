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
#include "kernel/execq.h"

/* What the queue asked for, as text: "send:a abort:b fail:c ". */
struct fixture {
    struct execq *q;
    struct buf log;
};

static void note(void *arg, const char *what, struct jmsg *m)
{
    struct fixture *f = arg;
    const struct jhead *h;
    assert_int_equal(jmsg_head(m, &h, NULL), 0);
    buf_add(&f->log, "%s:%s ", what, h->msg_id);
}

static void on_send(void *arg, struct jmsg *m)
{
    note(arg, "send", m);
}

static void on_abort(void *arg, struct jmsg *m)
{
    note(arg, "abort", m);
}

static void on_fail(void *arg, struct jmsg *m, const char *cause)
{
    note(arg, cause, m);
}

static const struct execq_ops ops = {on_send, on_abort, on_fail};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    buf_init(&f->log, 1 << 20);
    f->q = execq_new(&ops, f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    f->q = execq_free(f->q);
    buf_free(&f->log);
    free(f);
    return 0;
}

static struct jmsg *make(enum jchan ch, const char *type, const char *id, const char *parent,
                         const char *content)
{
    autofree char *header = xasprintf("{\"msg_id\":\"%s\",\"msg_type\":\"%s\"%s}", id, type,
                                      strncmp(id, "sub", 3) == 0 ? ",\"subshell_id\":\"s1\"" : "");
    autofree char *up = *parent ? xasprintf("{\"msg_id\":\"%s\"}", parent) : xstrdup("{}");
    struct slice parts[4] = {
        {header, strlen(header)}, {up, strlen(up)}, {"{}", 2}, {content, strlen(content)}};
    struct jmsg *m;
    assert_int_equal(jmsg_new(ch, parts, 4, &m, NULL), 0);
    return m;
}

static void push_as(struct fixture *f, const char *type, const char *id, const char *content)
{
    autojmsg struct jmsg *m = make(JCHAN_SHELL, type, id, "", content);
    assert_int_equal(execq_push(f->q, m, NULL), 0);
}

static void push(struct fixture *f, const char *id)
{
    push_as(f, "execute_request", id, "{}");
}

static void reply(struct fixture *f, const char *parent, const char *status)
{
    autofree char *content = xasprintf("{\"status\":\"%s\"}", status);
    autojmsg struct jmsg *m = make(JCHAN_SHELL, "execute_reply", "r", parent, content);
    execq_reply(f->q, m);
}

static void iopub(struct fixture *f, const char *type, const char *parent)
{
    autojmsg struct jmsg *m = make(JCHAN_IOPUB, type, "i", parent, "{}");
    execq_iopub(f->q, m);
}

#define expect(f, text)                                  \
    do {                                                 \
        assert_string_equal(buf_str(&(f)->log), (text)); \
        buf_clear(&(f)->log);                            \
    } while (0)

static void test_one_at_a_time(void **state)
{
    struct fixture *f = *state;
    push(f, "a");
    expect(f, "");
    execq_ready(f->q, 1);
    push(f, "b");
    push(f, "c");
    expect(f, "send:a ");
    assert_int_equal(execq_waiting(f->q), 2);
    reply(f, "other", "ok");
    expect(f, "");
    reply(f, "a", "ok");
    expect(f, "send:b ");
    reply(f, "b", "ok");
    reply(f, "c", "ok");
    expect(f, "send:c ");
    assert_null(execq_running(f->q));
    assert_int_equal(execq_waiting(f->q), 0);
}

static void test_order_of_others(void **state)
{
    struct fixture *f = *state;
    execq_ready(f->q, 1);
    push(f, "a");
    push_as(f, "complete_request", "tab", "{}"); /* nothing waits: the kernel itself orders it */
    expect(f, "send:a send:tab ");
    push(f, "b");
    push_as(f, "comm_msg", "comm", "{}");
    push(f, "c");
    push_as(f, "execute_request", "sub1", "{}"); /* subshells bypass */
    expect(f, "send:sub1 ");
    reply(f, "a", "ok");
    expect(f, "send:b send:comm ");
    reply(f, "b", "ok");
    expect(f, "send:c ");
}

static void test_other_channels(void **state)
{
    struct fixture *f = *state;
    autojmsg struct jmsg *m = make(JCHAN_CONTROL, "debug_request", "d", "", "{}");
    assert_int_equal(execq_push(f->q, m, NULL), 0);
    expect(f, "send:d ");
    push_as(f, "execute_request", "sub1", "{}");
    expect(f, ""); /* no kernel yet, so no subshell */
    execq_ready(f->q, 1);
    expect(f, "send:sub1 ");
    assert_null(execq_running(f->q));
}

static void test_stop_on_error(void **state)
{
    struct fixture *f = *state;
    execq_ready(f->q, 1);
    push(f, "a");
    push(f, "b");
    push_as(f, "comm_msg", "comm", "{}");
    push(f, "c");
    reply(f, "a", "error");
    expect(f, "send:a abort:b abort:c send:comm ");
    push(f, "d");
    expect(f, "send:d ");
    push(f, "e");
    reply(f, "d", "aborted");
    expect(f, "abort:e ");
}

static void test_go_on_after_error(void **state)
{
    struct fixture *f = *state;
    execq_ready(f->q, 1);
    push_as(f, "execute_request", "a", "{\"stop_on_error\":false}");
    push(f, "b");
    reply(f, "a", "error");
    expect(f, "send:a send:b ");
}

static void test_started(void **state)
{
    struct fixture *f = *state;
    execq_ready(f->q, 1);
    push(f, "a");
    assert_int_equal(execq_interrupt(f->q), 2);
    iopub(f, "status", "a");
    iopub(f, "execute_input", "x");
    assert_false(execq_started(f->q));
    iopub(f, "execute_input", "a");
    assert_true(execq_started(f->q));
    assert_int_equal(execq_interrupt(f->q), 1);
    reply(f, "a", "ok");
    assert_false(execq_started(f->q));
    push_as(f, "execute_request", "b", "{\"silent\":true}");
    iopub(f, "status", "b");
    assert_true(execq_started(f->q));
}

static void test_interrupt(void **state)
{
    struct fixture *f = *state;
    push(f, "a");
    push_as(f, "comm_msg", "comm", "{}");
    push(f, "b");
    assert_int_equal(execq_interrupt(f->q), 0);
    expect(f, "abort:a abort:b ");
    push(f, "c"); /* after the interrupt: not concerned */
    execq_ready(f->q, 1);
    expect(f, "send:comm send:c ");
    reply(f, "c", "ok");
    assert_int_equal(execq_interrupt(f->q), 1);
    expect(f, "");
}

static void test_died(void **state)
{
    struct fixture *f = *state;
    execq_ready(f->q, 1);
    push(f, "a");
    push(f, "b");
    push_as(f, "comm_info_request", "info", "{}");
    execq_died(f->q, "killed");
    expect(f, "send:a killed:a abort:b ");
    assert_null(execq_running(f->q));
    push(f, "c");
    expect(f, "");
    execq_ready(f->q, 1);
    expect(f, "send:info send:c ");
    reply(f, "a", "ok"); /* late, from the dead kernel */
    assert_non_null(execq_running(f->q));
}

static void test_limit_and_bad(void **state)
{
    struct fixture *f = *state;
    autojmsg struct jmsg *m = make(JCHAN_SHELL, "execute_request", "a", "", "{}");
    for (int i = 0; i < EXECQ_MAX; i++)
        assert_int_equal(execq_push(f->q, m, NULL), 0);
    struct err e;
    assert_int_equal(execq_push(f->q, m, &e), ERR_BUSY);
    struct slice parts[4] = {{"[", 1}, {"{}", 2}, {"{}", 2}, {"{}", 2}};
    autojmsg struct jmsg *bad = NULL;
    assert_int_equal(jmsg_new(JCHAN_SHELL, parts, 4, &bad, NULL), 0);
    assert_int_equal(execq_push(f->q, bad, &e), ERR_PARSE);
    assert_null(execq_free(NULL));
}

/* Content that is no JSON: the kernel is asked all the same, and the queue goes on. */
static void test_bad_content(void **state)
{
    struct fixture *f = *state;
    execq_ready(f->q, 1);
    push_as(f, "execute_request", "a", "nonsense");
    push(f, "b");
    autojmsg struct jmsg *m = make(JCHAN_SHELL, "execute_reply", "r", "a", "nonsense");
    execq_reply(f->q, m);
    expect(f, "send:a send:b ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_one_at_a_time),     T(test_order_of_others),
        T(test_other_channels),    T(test_stop_on_error),
        T(test_go_on_after_error), T(test_started),
        T(test_interrupt),         T(test_died),
        T(test_limit_and_bad),     T(test_bad_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
