/* gateway/ws_frame: heads of WebSocket frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gateway/ws_frame.h"

static int parse(const void *p, size_t len, struct ws_frame *f)
{
    return ws_frame_parse(p, len, f);
}

static void test_lengths(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, (uint64_t)1 << 40};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t p[WS_HEAD_MAX];
        size_t n = ws_frame_head(p, WS_BINARY, lengths[i]);
        assert_int_equal(n, lengths[i] < 126 ? 2 : lengths[i] < 65536 ? 4 : 10);
        p[1] |= 0x80; /* as a client */
        memcpy(p + n, "mask", 4);
        struct ws_frame f;
        for (size_t len = 0; len < n + 4; len++)
            assert_int_equal(parse(p, len, &f), 0);
        assert_int_equal(parse(p, n + 4, &f), n + 4);
        assert_true(f.len == lengths[i] && f.fin && f.opcode == WS_BINARY);
        assert_memory_equal(f.mask, "mask", 4);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x81\x01",                                     /* not masked */
        "\xc1\x81",                                     /* reserved bits */
        "\xa1\x81", "\x91\x81", "\x83\x81", "\x8b\x81", /* reserved opcodes */
        "\x09\x81",                                     /* a ping in fragments */
        "\x89\xfe",                                     /* a long ping */
        "\x88\xff",
    };
    struct ws_frame f;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse(bad[i], 2, &f), ERR_PROTOCOL);
    assert_int_equal(parse("\x82\xfe\x00\x7d"
                           "mask",
                           8, &f),
                     ERR_PROTOCOL);
    assert_int_equal(parse("\x82\xff\0\0\0\0\0\0\xff\xff"
                           "mask",
                           14, &f),
                     ERR_PROTOCOL);
    assert_int_equal(parse("\x82\xff\x80\0\0\0\0\0\0\0"
                           "mask",
                           14, &f),
                     ERR_PROTOCOL);
    assert_int_equal(parse("\x02\x80"
                           "mask",
                           6, &f),
                     6);
    assert_false(f.fin);
}

static void test_unmask(void **state)
{
    (void)state;
    static const uint8_t mask[4] = {1, 2, 3, 250};
    uint8_t whole[100], pieces[100];
    for (int i = 0; i < 100; i++)
        whole[i] = pieces[i] = (uint8_t)(i ^ mask[i & 3]);
    ws_frame_unmask(whole, 100, mask, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(whole[i], i);
    for (size_t at = 0, step = 1; at < 100; at += step, step = step % 13 + 1) {
        if (step > 100 - at)
            step = 100 - at;
        ws_frame_unmask(pieces + at, step, mask, at);
    }
    assert_memory_equal(pieces, whole, 100);
}

static void test_close_codes(void **state)
{
    (void)state;
    static const int good[] = {1000, 1001, 1003, 1007, 1011, 1012, 3000, 4999};
    static const int bad[] = {0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(ws_close_code_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ws_close_code_valid(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_unmask),
        cmocka_unit_test(test_close_codes),
    };
    return cmocka_run_group_tests_name("ws_frame", tests, NULL, NULL);
}
