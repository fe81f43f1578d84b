#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "gateway/json5.h"

/* Parses `text`; the result must equal the JSON `want`. */
static void same(const char *text, const char *want)
{
    struct err e = {0};
    autojson json_t *got = NULL;
    autojson json_t *expected = json_loads(want, JSON_DECODE_ANY, NULL);
    if (json5_parse(text, strlen(text), &got, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    assert_non_null(expected);
    if (!json_equal(got, expected)) {
        autofree char *shown = json_dumps(got, JSON_ENCODE_ANY);
        fail_msg("%s gave %s", text, shown);
    }
}

static void bad(const char *text, size_t len, const char *where)
{
    struct err e = {0};
    json_t *got = NULL;
    assert_int_equal(json5_parse(text, len, &got, &e), ERR_PARSE);
    assert_null(got);
    if (!strstr(e.msg, where))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, e.msg, where);
}

static void plain_json(void **state)
{
    (void)state;
    same("{\"a\": [1, -2.5, true, false, null, \"x\"], \"b\": {}}",
         "{\"a\": [1, -2.5, true, false, null, \"x\"], \"b\": {}}");
    same("  7 ", "7");
    same("[]", "[]");
}

static void comments_and_commas(void **state)
{
    (void)state;
    same("// head\n{\n  /* why */ a: 1, // more\n  b: [1, 2,],\n}\n// tail",
         "{\"a\":1,\"b\":[1,2]}");
    same("{/**/}", "{}");
    same("\xEF\xBB\xBF{a:1}", "{\"a\":1}");
}

static void strings(void **state)
{
    (void)state;
    same("'it \"is\"'", "\"it \\\"is\\\"\"");
    same("\"it 'is'\"", "\"it 'is'\"");
    same("'a\\\nb\\\r\nc'", "\"abc\"");
    same("'\\x41\\u00e9\\ud83d\\ude00\\v\\q'", "\"A\\u00e9\\ud83d\\ude00\\u000bq\"");
    same("{$a_1: 1, \\u0062: 2, 'c d': 3, \xC3\xA9: 4}",
         "{\"$a_1\":1,\"b\":2,\"c d\":3,\"\\u00e9\":4}");
    same("{a: 1, a: 2}", "{\"a\":2}");
}

static void numbers(void **state)
{
    (void)state;
    same("[0x1F, -0xff, +5, .5, 5., 1e3, -0, 12E-1]", "[31, -255, 5, 0.5, 5.0, 1000.0, 0, 1.2]");
    same("9223372036854775807", "9223372036854775807");
    same("92233720368547758080", "92233720368547758080.0");
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "unexpected end"},
        {"{a: 1", "unexpected end"},
        {"{a 1}", "\":\" expected"},
        {"{,}", "name expected"},
        {"[,]", "value expected"},
        {"[1 2]", "\",\" expected"},
        {"{a:1} x", "text after the value"},
        {"/* open", "comment without end"},
        {"'open", "string without end"},
        {"'a\nb'", "string without end"},
        {"'\\", "string without end"},
        {"'\\u12'", "hexadecimal"},
        {"'\\ud83d'", "surrogate"},
        {"'\\udc00'", "surrogate"},
        {"'\\ud83d\\u0041'", "surrogate"},
        {"'\\u0000'", "NUL"},
        {"'\\07'", "octal"},
        {"{1a: 1}", "name expected"},
        {"{\\x41: 1}", "only \\u"},
        {"truely", "value expected"},
        {"Infinity", "value expected"},
        {"-NaN", "malformed number"},
        {"1e999", "malformed number"},
        {"0x", "malformed number"},
        {"012", "malformed number"},
        {"1.2.3", "malformed number"},
        {"-", "malformed number"},
        {"'\xff'", "bad UTF-8"},
        {"{'\xff': 1}", "bad UTF-8"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++)
        bad(cases[i].text, strlen(cases[i].text), cases[i].why);
    bad("'a\0b'", 5, "NUL");
    bad("'\\\0'", 4, "NUL");
    bad("\0", 1, "value expected");
    bad("{\n  a: 1,\n  b: ?\n}", 18, "line 3 column 6");
}

static void depth(void **state)
{
    (void)state;
    char text[2 * JSON5_DEPTH_MAX + 8];
    json_t *got = NULL;
    memset(text, '[', JSON5_DEPTH_MAX);
    memset(text + JSON5_DEPTH_MAX, ']', JSON5_DEPTH_MAX);
    assert_int_equal(json5_parse(text, 2 * JSON5_DEPTH_MAX, &got, NULL), 0);
    json_decref(got);
    memset(text, '[', JSON5_DEPTH_MAX + 1);
    bad(text, JSON5_DEPTH_MAX + 1, "too deeply");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_json), cmocka_unit_test(comments_and_commas),
        cmocka_unit_test(strings),    cmocka_unit_test(numbers),
        cmocka_unit_test(refused),    cmocka_unit_test(depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
