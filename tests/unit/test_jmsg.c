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
#include "wire/jmsg.h"

#define S(text)                  \
    {                            \
        (text), sizeof(text) - 1 \
    }
#define HEADER "{\"msg_id\":\"1\",\"msg_type\":\"execute_request\"}"
#define CONTENT "{\"code\":\"\xc3\xa9\xe6\xbc\xa2\"}"

static struct jmsg *make(enum jchan ch, const struct slice *parts, size_t n)
{
    struct jmsg *m = NULL;
    struct err e = {0};
    if (jmsg_new(ch, parts, n, &m, &e) < 0)
        fail_msg("%s", e.msg);
    return m;
}

static const struct slice sample[] = {S(HEADER), S("{}"), S("{\"a\":1}"), S(CONTENT), S("\0\1")};

static void expect_same(const struct jmsg *a, const struct jmsg *b)
{
    assert_int_equal(a->channel, b->channel);
    assert_int_equal(a->nparts, b->nparts);
    for (size_t i = 0; i < a->nparts; i++) {
        assert_int_equal(a->parts[i].len, b->parts[i].len);
        assert_memory_equal(a->parts[i].data, b->parts[i].data, a->parts[i].len);
    }
}

static void test_channels(void **state)
{
    (void)state;
    enum jchan ch;
    for (int i = 0; i < JCHAN_COUNT; i++) {
        assert_int_equal(jchan_of(jchan_name((enum jchan)i), &ch), 0);
        assert_int_equal(ch, i);
    }
    assert_int_equal(jchan_of("hb", &ch), ERR_INVALID);
    assert_int_equal(jchan_of("", &ch), ERR_INVALID);
    assert_string_equal(jchan_name((enum jchan)77), "");
}

static void test_new(void **state)
{
    (void)state;
    struct jmsg *m = make(JCHAN_SHELL, sample, 5);
    assert_int_equal(jmsg_bytes(m), strlen(HEADER) + 2 + 7 + strlen(CONTENT) + 2);
    assert_string_equal(m->parts[JPART_CONTENT].data, CONTENT); /* a NUL follows each part */
    struct jmsg *again = jmsg_ref(m);
    assert_null(jmsg_unref(m));
    assert_string_equal(again->parts[0].data, HEADER);
    jmsg_unref(again);
    assert_null(jmsg_unref(NULL));
    struct err e;
    struct jmsg *none = NULL;
    assert_int_equal(jmsg_new(JCHAN_SHELL, sample, 3, &none, &e), ERR_PROTOCOL);
    struct slice huge[4] = {S("{}"), S("{}"), {"", JMSG_MAX_BYTES}, {"", SIZE_MAX}};
    assert_int_equal(jmsg_new(JCHAN_SHELL, huge, 4, &none, &e), ERR_PROTOCOL);
    autofree struct slice *many = xcalloc(JMSG_MAX_PARTS + 1, sizeof *many);
    assert_int_equal(jmsg_new(JCHAN_SHELL, many, JMSG_MAX_PARTS + 1, &none, &e), ERR_PROTOCOL);
    assert_null(none);
}

static void test_head(void **state)
{
    (void)state;
    const struct slice parts[] = {S("{\"msg_id\":\"i\",\"msg_type\":\"t\",\"session\":\"s\","
                                    "\"subshell_id\":\"u\",\"x\":[1]}"),
                                  S("{\"msg_id\":\"pi\",\"msg_type\":\"pt\",\"session\":\"ps\"}"),
                                  S("{}"), S("{\"k\":5}")};
    autojmsg struct jmsg *m = make(JCHAN_SHELL, parts, 4);
    const struct jhead *h = NULL;
    assert_int_equal(jmsg_head(m, &h, NULL), 0);
    assert_string_equal(h->msg_id, "i");
    assert_string_equal(h->msg_type, "t");
    assert_string_equal(h->session, "s");
    assert_string_equal(h->subshell_id, "u");
    assert_string_equal(h->parent_id, "pi");
    assert_string_equal(h->parent_type, "pt");
    assert_string_equal(h->parent_session, "ps");
    assert_true(jmsg_is(m, "t"));
    assert_false(jmsg_is(m, "pt"));
    autojson json_t *content = NULL;
    assert_int_equal(jmsg_json(m, JPART_CONTENT, &content, NULL), 0);
    assert_int_equal(json_get_int(content, "k", 0), 5);
    assert_int_equal(jmsg_json(m, 4, &content, NULL), ERR_INVALID);
    assert_int_equal(jmsg_json(m, -1, &content, NULL), ERR_INVALID);
}

static void test_bad_heads(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "[]", "{", "7", "null", "{\"a\":1,\"a\":2}", "{} x"};
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        for (int where = 0; where < 2; where++) {
            struct slice parts[4] = {S("{}"), S("{}"), S("{}"), S("{}")};
            parts[where] = (struct slice){bad[i], strlen(bad[i])};
            autojmsg struct jmsg *m = make(JCHAN_SHELL, parts, 4);
            const struct jhead *h;
            struct err e;
            assert_int_equal(jmsg_head(m, &h, &e), ERR_PARSE);
            assert_int_equal(jmsg_head(m, &h, &e), ERR_PARSE); /* also from the cache */
            assert_false(jmsg_is(m, ""));
        }
    }
    const struct slice odd[] = {S("{\"msg_id\":5,\"msg_type\":null}"), S("{}"), S(""), S("")};
    autojmsg struct jmsg *m = make(JCHAN_SHELL, odd, 4);
    const struct jhead *h;
    assert_int_equal(jmsg_head(m, &h, NULL), 0);
    assert_string_equal(h->msg_id, "");
    assert_string_equal(h->msg_type, "");
}

static void test_make(void **state)
{
    (void)state;
    autojson json_t *content = json_pack("{s:s}", "status", "ok");
    autojmsg struct jmsg *q = make(JCHAN_SHELL, sample, 5);
    autojmsg struct jmsg *m = jmsg_make(JCHAN_IOPUB, "status", "sess", q, content);
    const struct jhead *h;
    assert_int_equal(jmsg_head(m, &h, NULL), 0);
    assert_int_equal(strlen(h->msg_id), 36);
    assert_string_equal(h->session, "sess");
    assert_string_equal(h->parent_id, "1");
    assert_string_equal(m->parts[JPART_PARENT].data, HEADER);
    assert_string_equal(m->parts[JPART_CONTENT].data, "{\"status\":\"ok\"}");
    autojson json_t *head = NULL;
    assert_int_equal(jmsg_json(m, JPART_HEADER, &head, NULL), 0);
    assert_string_equal(json_get_str(head, "version", ""), "5.3");
    assert_string_equal(json_get_str(head, "username", ""), "reitos");
    assert_int_equal(strlen(json_get_str(head, "date", "")), strlen("2026-01-31T23:59:59.000123Z"));
    autojmsg struct jmsg *bare = jmsg_make(JCHAN_IOPUB, "status", NULL, NULL, NULL);
    assert_string_equal(bare->parts[JPART_PARENT].data, "{}");
    autojmsg struct jmsg *tree = jmsg_from_json(JCHAN_SHELL, head, NULL, NULL, content);
    assert_string_equal(tree->parts[JPART_METADATA].data, "{}");
    assert_true(jmsg_is(tree, "status"));
}

/* Made by jupyter_server's serialize_msg_to_ws_v1 from the same parts. */
static const char v1_hex[] =
    "07000000000000004000000000000000450000000000000070000000000000007200000000000000790000000000"
    "000089000000000000008b00000000000000696f7075627b226d73675f6964223a2231222c226d73675f74797065"
    "223a22657865637574655f72657175657374227d7b7d7b2261223a317d7b22636f6465223a22c3a9e6bca2227d00"
    "01";

static void unhex(const char *hex, struct buf *out)
{
    for (; hex[0] && hex[1]; hex += 2) {
        char pair[3] = {hex[0], hex[1], 0}, c = (char)strtol(pair, NULL, 16);
        assert_int_equal(buf_append(out, &c, 1), 0);
    }
}

static void test_v1(void **state)
{
    (void)state;
    autobuf struct buf want = BUF_INIT(4096), got = BUF_INIT(4096);
    unhex(v1_hex, &want);
    autojmsg struct jmsg *m = make(JCHAN_IOPUB, sample, 5), *back = NULL;
    assert_int_equal(jmsg_encode_v1(m, &got), 0);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
    assert_int_equal(jmsg_decode_v1(want.data, want.len, &back, NULL), 0);
    expect_same(m, back);
    struct buf small = BUF_INIT(20);
    assert_int_equal(jmsg_encode_v1(m, &small), ERR_TOO_LARGE);
    assert_int_equal(small.len, 0);
}

/* Every truncation and every single-byte change of the table is refused or gives a message whose
 * parts lie inside the frame (the sanitizers watch). */
static void test_v1_malformed(void **state)
{
    (void)state;
    autobuf struct buf frame = BUF_INIT(4096);
    unhex(v1_hex, &frame);
    for (size_t n = 0; n < frame.len; n++) {
        autofree char *copy = xmalloc(n + 1);
        memcpy(copy, frame.data, n);
        struct jmsg *m = NULL;
        struct err e;
        assert_true(jmsg_decode_v1(copy, n, &m, &e) < 0);
        assert_null(m);
    }
    for (size_t at = 0; at < 64; at++) {
        for (int v = 0; v < 256; v += 5) {
            autofree char *copy = xmalloc(frame.len);
            memcpy(copy, frame.data, frame.len);
            copy[at] = (char)v;
            autojmsg struct jmsg *m = NULL;
            IGNORE_RESULT(jmsg_decode_v1(copy, frame.len, &m, NULL)); /* any result, no crash */
        }
    }
    frame.data[64] = 'x'; /* "xopub" */
    struct jmsg *m = NULL;
    assert_int_equal(jmsg_decode_v1(frame.data, frame.len, &m, NULL), ERR_INVALID);
}

static void test_legacy_text(void **state)
{
    (void)state;
    int binary = 1;
    autobuf struct buf text = BUF_INIT(4096);
    autojmsg struct jmsg *m = make(JCHAN_IOPUB, sample, 4), *back = NULL;
    assert_int_equal(jmsg_encode_legacy(m, &text, &binary), 0);
    assert_false(binary);
    autojson json_t *o = NULL;
    assert_int_equal(json_parse(text.data, text.len, &o, NULL), 0);
    assert_string_equal(json_get_str(o, "channel", ""), "iopub");
    assert_string_equal(json_get_str(o, "msg_id", ""), "1");
    assert_string_equal(json_get_str(o, "msg_type", ""), "execute_request");
    assert_int_equal(json_array_size(json_object_get(o, "buffers")), 0);
    assert_true(json_is_array(json_object_get(o, "buffers")));
    assert_int_equal(jmsg_decode_legacy(text.data, text.len, 0, &back, NULL), 0);
    expect_same(m, back);
}

static void test_legacy_binary(void **state)
{
    (void)state;
    int binary = 0;
    autobuf struct buf frame = BUF_INIT(4096);
    const struct slice parts[] = {S(HEADER), S("{}"), S("{\"a\":1}"), S(CONTENT), S("\0\1"), S("")};
    autojmsg struct jmsg *m = make(JCHAN_SHELL, parts, 6), *back = NULL;
    assert_int_equal(jmsg_encode_legacy(m, &frame, &binary), 0);
    assert_true(binary);
    assert_memory_equal(frame.data, "\0\0\0\3\0\0\0\x10", 8); /* parts and first offset */
    assert_int_equal(jmsg_decode_legacy(frame.data, frame.len, 1, &back, NULL), 0);
    expect_same(m, back);
    for (size_t n = 0; n < frame.len - 2; n++) {
        autofree char *copy = xmalloc(n + 1);
        memcpy(copy, frame.data, n);
        struct jmsg *none = NULL;
        assert_true(jmsg_decode_legacy(copy, n, 1, &none, NULL) < 0);
    }
}

/* Made by jupyter_server's serialize_binary_message. */
static void test_legacy_binary_of_others(void **state)
{
    (void)state;
    autobuf struct buf frame = BUF_INIT(4096);
    unhex(
        "000000030000001000000080000000827b22686561646572223a207b226d73675f6964223a202231227d2c2022"
        "706172656e745f686561646572223a207b7d2c20226d65746164617461223a207b7d2c2022636f6e74656e74"
        "223a207b2261223a20225c7530306539227d2c20226368616e6e656c223a20227368656c6c227d6162",
        &frame);
    autojmsg struct jmsg *m = NULL;
    assert_int_equal(jmsg_decode_legacy(frame.data, frame.len, 1, &m, NULL), 0);
    assert_int_equal(m->nparts, 6);
    assert_string_equal(m->parts[JPART_CONTENT].data, "{\"a\":\"\xc3\xa9\"}");
    assert_string_equal(m->parts[4].data, "ab");
    assert_int_equal(m->parts[5].len, 0);
}

static void test_legacy_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
    } bad[] = {
        {"", ERR_PARSE},
        {"[]", ERR_PROTOCOL},
        {"{}", ERR_PROTOCOL},
        {"{\"header\":[]}", ERR_PROTOCOL},
        {"{\"header\":{},\"content\":5}", ERR_PROTOCOL},
        {"{\"header\":{},\"channel\":\"nope\"}", ERR_INVALID},
        {"{\"header\":{},\"channel\":\"a very long channel name\"}", ERR_INVALID},
        {"{\"header\":{},\"channel\":\"shell\\u0000\"} x", ERR_PARSE},
    };
    struct jmsg *m = NULL;
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        struct err e;
        assert_int_equal(jmsg_decode_legacy(bad[i].text, strlen(bad[i].text), 0, &m, &e),
                         bad[i].code);
    }
    const char *least = "{\"header\":{}}"; /* no channel: shell */
    assert_int_equal(jmsg_decode_legacy(least, strlen(least), 0, &m, NULL), 0);
    assert_int_equal(m->channel, JCHAN_SHELL);
    assert_string_equal(m->parts[JPART_METADATA].data, "{}");
    jmsg_unref(m);
}

static void test_legacy_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
        {"\"a\xff"
         "b\"",
         "\"a\xef\xbf\xbd"
         "b\""},
        {"\"\xed\xa0\x80\"", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* surrogate */
        {"\"\xc0\x80\"", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong */
        {"\"\xe0\x80\x80\"", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\"\xf4\x90\x80\x80\"", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\"\xc3\"", "\"\xef\xbf\xbd\""},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct slice parts[4] = {S("{}"), S("{}"), S("{}"), {cases[i].in, strlen(cases[i].in)}};
        autojmsg struct jmsg *m = make(JCHAN_IOPUB, parts, 4);
        autobuf struct buf text = BUF_INIT(4096);
        int binary;
        assert_int_equal(jmsg_encode_legacy(m, &text, &binary), 0);
        autofree char *want = xasprintf("\"content\":%s,", cases[i].out);
        assert_non_null(strstr(text.data, want));
    }
    const struct slice parts[4] = {S("nonsense"), S("{}"), S("{}"), S("{}")};
    autojmsg struct jmsg *m = make(JCHAN_IOPUB, parts, 4);
    autobuf struct buf text = BUF_INIT(4096);
    int binary;
    assert_int_equal(jmsg_encode_legacy(m, &text, &binary), ERR_PARSE);
}

/* Signatures made by jupyter_client.session.Session. */
static void test_sign(void **state)
{
    (void)state;
    static const char *const keys[] = {"a0436f6c-1916-498b-8eb9-e81ab9368e84", "k",
                                       "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                       "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                       "xxxx"};
    static const char *const want[] = {
        "33450dc67ec15c0bd3f5399e961238ab87f36eec9bae675f0f55d5360b8d5c07",
        "f959e28f52bbfcfeb4895dd92b3c38dca8a2e066220da164f9de73a7e722c019",
        "4d3ebb0c3e70d2679246439fe4505015fe34c90c40b09ffbfe4155bc356bd118"};
    autojmsg struct jmsg *m = make(JCHAN_SHELL, sample, 5);
    char out[65];
    for (size_t i = 0; i < COUNTOF(keys); i++) {
        jmsg_sign(m, keys[i], out);
        assert_string_equal(out, want[i]);
    }
    jmsg_sign(m, "", out);
    assert_string_equal(out, "");
}

static void test_zmq(void **state)
{
    (void)state;
    struct slice frames[8] = {S("id"), S("<IDS|MSG>"), S(""),      S(HEADER),
                              S("{}"), S("{\"a\":1}"), S(CONTENT), S("\0\1")};
    char good[] = "f959e28f52bbfcfeb4895dd92b3c38dca8a2e066220da164f9de73a7e722c019";
    struct err e;
    struct jmsg *m = NULL;
    assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames, 8, "k", &m, &e), ERR_DENIED);
    frames[2] = (struct slice){good, 64};
    assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames, 8, "k", &m, &e), 0);
    assert_int_equal(m->nparts, 5);
    assert_string_equal(m->parts[0].data, HEADER);
    m = jmsg_unref(m);
    assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames + 1, 7, "k", &m, &e), 0); /* no identity */
    m = jmsg_unref(m);
    assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames, 8, "other", &m, &e), ERR_DENIED);
    good[63] ^= 1;
    assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames, 8, "k", &m, &e), ERR_DENIED);
    assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames, 8, "", &m, &e), 0); /* unsigned */
    m = jmsg_unref(m);
    for (size_t n = 0; n < 7; n++)
        assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames, n, "", &m, &e), ERR_PROTOCOL);
    assert_int_equal(jmsg_from_zmq(JCHAN_IOPUB, frames + 2, 6, "", &m, &e), ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels),      cmocka_unit_test(test_new),
        cmocka_unit_test(test_head),          cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_make),          cmocka_unit_test(test_v1),
        cmocka_unit_test(test_v1_malformed),  cmocka_unit_test(test_legacy_text),
        cmocka_unit_test(test_legacy_binary), cmocka_unit_test(test_legacy_binary_of_others),
        cmocka_unit_test(test_legacy_bad),    cmocka_unit_test(test_legacy_utf8),
        cmocka_unit_test(test_sign),          cmocka_unit_test(test_zmq),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
