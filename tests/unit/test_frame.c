#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/frame.h"

/* What the callback saw, as text: "op/parts:bytes ". */
struct seen {
    struct buf log;
    int fail_at, count;
};

static int on_frame(void *arg, const struct frame *f, struct err *e)
{
    struct seen *s = arg;
    size_t bytes = 0;
    for (size_t i = 0; i < f->nparts; i++)
        bytes += f->parts[i].len;
    buf_add(&s->log, "%s/%zu:%zu ", json_get_str(f->head, "op", "?"), f->nparts, bytes);
    return ++s->count == s->fail_at ? err_set(e, ERR_LIMIT, "enough") : 0;
}

static void put(struct buf *b, const char *op, const struct jmsg *m)
{
    autojson json_t *head = json_pack("{s:s}", "op", op);
    assert_int_equal(frame_encode(b, head, m), 0);
}

static struct jmsg *message(void)
{
    static const struct slice parts[] = {{"{}", 2}, {"{}", 2}, {"", 0}, {"{}", 2}, {"abc", 3}};
    struct jmsg *m;
    assert_int_equal(jmsg_new(JCHAN_SHELL, parts, 5, &m, NULL), 0);
    return m;
}

static void test_round_trip(void **state)
{
    (void)state;
    autojmsg struct jmsg *m = message();
    autobuf struct buf b = BUF_INIT(1 << 20);
    struct seen s = {BUF_INIT(1 << 20), 0, 0};
    put(&b, "hello", NULL);
    put(&b, "msg", m);
    put(&b, "last", NULL);
    assert_int_equal(frame_decode(&b, on_frame, &s, NULL), 0);
    assert_string_equal(buf_str(&s.log), "hello/0:0 msg/5:9 last/0:0 ");
    assert_int_equal(b.len, 0);
    buf_free(&s.log);
}

/* Bytes that come one at a time give the same frames. */
static void test_trickle(void **state)
{
    (void)state;
    autojmsg struct jmsg *m = message();
    autobuf struct buf all = BUF_INIT(1 << 20), in = BUF_INIT(1 << 20);
    struct seen s = {BUF_INIT(1 << 20), 0, 0};
    put(&all, "a", m);
    put(&all, "b", NULL);
    for (size_t i = 0; i < all.len; i++) {
        assert_int_equal(buf_append(&in, all.data + i, 1), 0);
        assert_int_equal(frame_decode(&in, on_frame, &s, NULL), 0);
    }
    assert_string_equal(buf_str(&s.log), "a/5:9 b/0:0 ");
    buf_free(&s.log);
}

static void test_callback_stops(void **state)
{
    (void)state;
    autobuf struct buf b = BUF_INIT(1 << 20);
    struct seen s = {BUF_INIT(1 << 20), 2, 0};
    struct err e = {0};
    put(&b, "a", NULL);
    put(&b, "b", NULL);
    put(&b, "c", NULL);
    assert_int_equal(frame_decode(&b, on_frame, &s, &e), ERR_LIMIT);
    assert_string_equal(e.msg, "enough");
    assert_int_equal(frame_decode(&b, on_frame, &s, &e), 0); /* goes on behind it */
    assert_string_equal(buf_str(&s.log), "a/0:0 b/0:0 c/0:0 ");
    buf_free(&s.log);
}

static void expect_bad(const void *bytes, size_t n)
{
    autobuf struct buf b = BUF_INIT(1 << 20);
    struct seen s = {BUF_INIT(1 << 20), 0, 0};
    struct err e = {0};
    assert_int_equal(buf_append(&b, bytes, n), 0);
    assert_int_equal(frame_decode(&b, on_frame, &s, &e), ERR_PROTOCOL);
    assert_non_null(strstr(e.msg, "malformed"));
    assert_int_equal(s.count, 0);
    buf_free(&s.log);
}

static void test_malformed(void **state)
{
    (void)state;
    expect_bad("\0\0\0\0", 4);                              /* too short for a count */
    expect_bad("\xff\xff\xff\xff", 4);                      /* over the limit: refused at once */
    expect_bad("\x08\0\0\0\0\0\0\0\0\0\0\0", 12);           /* no parts */
    expect_bad("\x08\0\0\0\xff\xff\xff\xff\0\0\0\0", 12);   /* table beyond the frame */
    expect_bad("\x0a\0\0\0\1\0\0\0\3\0\0\0{}", 14);         /* part beyond the frame */
    expect_bad("\x0a\0\0\0\1\0\0\0\xff\xff\xff\xff{}", 14); /* and far beyond */
    expect_bad("\x0b\0\0\0\1\0\0\0\2\0\0\0{}x", 15);        /* a byte left over */
    expect_bad("\x0a\0\0\0\1\0\0\0\2\0\0\0[]", 14);         /* head is no object */
    expect_bad("\x0a\0\0\0\1\0\0\0\2\0\0\0{x", 14);         /* head is no JSON */
}

static void test_limits(void **state)
{
    (void)state;
    autojson json_t *head = json_object();
    struct buf tiny = BUF_INIT(8);
    assert_int_equal(frame_encode(&tiny, head, NULL), ERR_TOO_LARGE);
    assert_int_equal(tiny.len, 0);
    static struct slice parts[JMSG_MAX_PARTS];
    autojmsg struct jmsg *m = NULL;
    assert_int_equal(jmsg_new(JCHAN_SHELL, parts, JMSG_MAX_PARTS, &m, NULL), 0);
    autobuf struct buf b = BUF_INIT(1 << 20);
    struct seen s = {BUF_INIT(1 << 20), 0, 0};
    assert_int_equal(frame_encode(&b, head, m), 0);
    assert_int_equal(frame_decode(&b, on_frame, &s, NULL), 0);
    assert_string_equal(buf_str(&s.log), "?/4096:0 ");
    buf_free(&s.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_trickle),
        cmocka_unit_test(test_callback_stops), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
