#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernel/fold.h"
#include "wire/textfold.h"

static void expect_fold(const char *old, const char *add, const char *want)
{
    autobuf struct buf out = BUF_INIT(4096);
    assert_int_equal(fold_text(old, strlen(old), add, strlen(add), &out), 0);
    assert_string_equal(buf_str(&out), want);
}

/* Expected texts are those of JupyterLab 4.6's output model. */
static void test_text(void **state)
{
    (void)state;
    expect_fold("", "", "");
    expect_fold("a", "b", "ab");
    expect_fold("10%", "\r20%", "20%");
    expect_fold("a\nlong line", "\rab", "a\nabng line");
    expect_fold("abc\r", "X\n", "Xbc\n"); /* the line end goes behind the text */
    expect_fold("abc\r\n", "d", "abc\nd");
    expect_fold("abc", "\b\bX", "aX");
    expect_fold("\b\b", "a", "a");
    expect_fold("a\n", "\b\bb", "a\nb"); /* not beyond the line */
    expect_fold("abcd", "\r\b\bX", "Xbcd");
    expect_fold("\xe6\xbc\xa2\xe5\xad\x97", "\rX", "X\xe5\xad\x97"); /* characters, not bytes */
    expect_fold("ab", "\r\xe6\xbc\xa2",
                "\xe6\xbc\xa2"
                "b");
    expect_fold("\xe6\xbc\xa2", "\bX", "X");
    expect_fold("x\r\r\r", "y", "y");
    struct buf small = BUF_INIT(3);
    assert_int_equal(fold_text("ab", 2, "cd", 2, &small), ERR_TOO_LARGE);
    buf_free(&small);
}

/* Wherever the text is cut (kernels send whole characters), the result is the same. */
static void test_pieces(void **state)
{
    (void)state;
    static const char text[] = "one\n 10%\r 20%\r100\b\b\bXY\r\nabc\rQ\b\bzz\n\xe6\xbc\xa2\r-";
    size_t n = sizeof text - 1;
    struct textfold whole;
    textfold_init(&whole, 4096);
    assert_int_equal(textfold_feed(&whole, text, n), 0);
    for (size_t cut = 0; cut <= n; cut++) {
        struct textfold f;
        if ((text[cut] & 0xc0) == 0x80)
            continue;
        textfold_init(&f, 4096);
        assert_int_equal(textfold_feed(&f, text, cut), 0);
        assert_int_equal(textfold_feed(&f, text + cut, n - cut), 0);
        assert_string_equal(buf_str(&f.text), buf_str(&whole.text));
        textfold_free(&f);
    }
    textfold_free(&whole);
}

static struct fold_record record(const char *type, const char *parent, const char *content,
                                 int buffers)
{
    static uint64_t seq;
    autofree char *head = xasprintf("{\"msg_type\":\"%s\"}", type);
    autofree char *up = xasprintf("{\"msg_id\":\"%s\"}", parent);
    struct slice parts[5] = {
        {head, strlen(head)}, {up, strlen(up)}, {"{}", 2}, {content, strlen(content)}, {"buf", 3}};
    struct fold_record r = {NULL, 0};
    assert_int_equal(jmsg_new(JCHAN_IOPUB, parts, buffers ? 5 : 4, &r.m, NULL), 0);
    r.m->seq = ++seq;
    return r;
}

static struct fold_record stream(const char *parent, const char *name, const char *text)
{
    autojson json_t *content = json_pack("{s:s, s:s}", "name", name, "text", text);
    autofree char *s = json_text(content);
    return record("stream", parent, s, 0);
}

static void free_all(struct fold_record *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        jmsg_unref(r[i].m);
}

/* What a client shows that has seen the raw messages [0, from) and then the folded ones. */
static char *shown(const struct fold_record *raw, const struct fold_record *folded, size_t n,
                   size_t from)
{
    struct textfold f;
    textfold_init(&f, 1 << 20);
    for (size_t i = 0; i < n; i++) {
        const struct fold_record *r = i < from ? &raw[i] : &folded[i];
        autojson json_t *content = NULL;
        if (r->dropped)
            continue;
        assert_int_equal(jmsg_json(r->m, JPART_CONTENT, &content, NULL), 0);
        const char *text = json_get_str(content, "text", "");
        assert_int_equal(textfold_feed(&f, text, strlen(text)), 0);
    }
    char *s = xstrdup(buf_str(&f.text));
    textfold_free(&f);
    return s;
}

/* The promise of the journal: from wherever a reader goes on, it ends with the same text. */
static void check_stream(const char *const *texts, size_t n, size_t want_dropped)
{
    struct fold_record raw[16], folded[16];
    for (size_t i = 0; i < n; i++) {
        raw[i] = stream("p", "stdout", texts[i]);
        folded[i] = (struct fold_record){jmsg_ref(raw[i].m), 0};
    }
    size_t dropped = fold_records(folded, n);
    autofree char *want = shown(raw, raw, n, n);
    for (size_t from = 0; from <= n; from++) {
        autofree char *got = shown(raw, folded, n, from);
        assert_string_equal(got, want);
    }
    for (size_t i = 0; i < n; i++)
        assert_int_equal(folded[i].m->seq, raw[i].m->seq);
    if (want_dropped != SIZE_MAX)
        assert_int_equal(dropped, want_dropped);
    free_all(raw, n);
    free_all(folded, n);
}

static void test_progress(void **state)
{
    (void)state;
    const char *const bar[] = {"start\n", "\r 1%", "\r 2%", "\r 3%", "\rdone\n", "end\n"};
    check_stream(bar, 6, 3);
    const char *const shrinking[] = {"\rlong line", "\rshort", "\rx", "y", "\rz\n"};
    check_stream(shrinking, 5, 2);
    const char *const plain[] = {"a", "b\n", "c", "\rd", "e\r", "f"};
    check_stream(plain, 6, 0);
    const char *const inner[] = {"\rabcdef\rX", "\rY\rZ", "\r12\n", "\r\n", "\r"};
    check_stream(inner, 5, SIZE_MAX);
    const char *const back[] = {"\rabc", "\rde\b", "\rf"};
    check_stream(back, 3, 0);
    const char *const wide[] = {"\r\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88", "\rab", "\r\xe2\x96\x88"};
    check_stream(wide, 3, 2);
}

/* Random pieces, always the same text from every position. */
static void test_progress_random(void **state)
{
    (void)state;
    static const char *const pieces[] = {"\r",  "\ra", "\rabc", "\rab\rX",
                                         "b",   "\n",  "\r\n",  "\rq\n",
                                         "c\r", "\b",  "\rx\b", "\r\xc3\xa9"};
    uint32_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        const char *texts[8];
        for (int i = 0; i < 8; i++) {
            seed = seed * 1664525 + 1013904223;
            texts[i] = pieces[(seed >> 16) % COUNTOF(pieces)];
        }
        check_stream(texts, 8, SIZE_MAX);
    }
}

static void test_not_neighbours(void **state)
{
    (void)state;
    struct fold_record r[] = {
        stream("p", "stderr", "\r1"),         stream("p", "stdout", "\r2"),
        stream("p", "stderr", "\r3"),         stream("q", "stderr", "\r4"),
        stream("p", "stderr", "\r5"), /* q is another cell */
        record("display_data", "p", "{}", 0), stream("p", "stderr", "\r6"),
    };
    assert_int_equal(fold_records(r, COUNTOF(r)), 1);
    assert_true(r[2].dropped);
    free_all(r, COUNTOF(r));
}

#define UPDATE(comm, state, paths)                                               \
    "{\"comm_id\":\"" comm "\",\"data\":{\"method\":\"update\",\"state\":" state \
    ",\"buffer_paths\":" paths "}}"

static void test_widgets(void **state)
{
    (void)state;
    struct fold_record r[] = {
        record("comm_msg", "p", UPDATE("c", "{\"a\":1}", "[]"), 0),        /* by 3 */
        record("comm_msg", "p", UPDATE("c", "{\"b\":1}", "[]"), 0),        /* by 4 */
        record("comm_msg", "p", UPDATE("d", "{\"a\":1}", "[]"), 0),        /* other comm */
        record("comm_msg", "q", UPDATE("c", "{\"a\":2}", "[]"), 0),        /* by 4 */
        record("comm_msg", "p", UPDATE("c", "{\"b\":1}", "[[\"a\"]]"), 1), /* before custom */
        record("comm_msg", "p", "{\"comm_id\":\"c\",\"data\":{\"method\":\"custom\"}}", 0),
        record("comm_msg", "p", UPDATE("c", "{\"a\":2,\"b\":3}", "[]"), 0), /* stays */
        record("comm_close", "p", "{\"comm_id\":\"c\"}", 0),
        record("comm_msg", "p", "nonsense", 0),
        record("comm_msg", "p", "[]", 0),
    };
    assert_int_equal(fold_records(r, COUNTOF(r)), 3);
    assert_true(r[0].dropped && r[1].dropped && r[3].dropped);
    free_all(r, COUNTOF(r));
}

static void test_displays(void **state)
{
    (void)state;
#define DISPLAY(id) "{\"data\":{},\"transient\":{\"display_id\":\"" id "\"}}"
    struct fold_record r[] = {
        record("display_data", "p", DISPLAY("x"), 0),
        record("update_display_data", "p", DISPLAY("x"), 0),
        record("update_display_data", "p", DISPLAY("y"), 0),
        record("update_display_data", "q", DISPLAY("x"), 0),
        record("update_display_data", "p", "{}", 0),
        record("update_display_data", "p", "{}", 0),
        record("update_display_data", "p", DISPLAY("x"), 0),
    };
    assert_int_equal(fold_records(r, COUNTOF(r)), 2);
    assert_true(r[1].dropped && r[3].dropped);
    free_all(r, COUNTOF(r));
}

static void test_candidates(void **state)
{
    (void)state;
    struct fold_record yes[] = {stream("p", "stdout", "\ra"), record("comm_msg", "p", "{}", 0),
                                record("update_display_data", "p", "{}", 0)};
    struct fold_record no[] = {stream("p", "stdout", "a\n"), record("status", "p", "\\r", 0)};
    for (size_t i = 0; i < COUNTOF(yes); i++)
        assert_true(fold_candidate(yes[i].m));
    for (size_t i = 0; i < COUNTOF(no); i++)
        assert_false(fold_candidate(no[i].m));
    free_all(yes, COUNTOF(yes));
    free_all(no, COUNTOF(no));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),           cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_progress),       cmocka_unit_test(test_progress_random),
        cmocka_unit_test(test_not_neighbours), cmocka_unit_test(test_widgets),
        cmocka_unit_test(test_displays),       cmocka_unit_test(test_candidates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
