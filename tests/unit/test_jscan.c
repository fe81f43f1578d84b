#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "wire/jscan.h"

static const char *const keys[] = {"msg_id", "msg_type", "session"};

/* What is known must be what the parser says, of a copy without anything behind its end. */
static int compare(const char *text, size_t len)
{
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    struct slice got[3];
    int known = jscan_strings(copy, len, keys, 3, got);
    autojson json_t *tree = NULL;
    int rc = json_parse(copy, len, &tree, NULL);
    if (known) {
        assert_int_equal(rc, 0);
        assert_true(json_is_object(tree));
        for (size_t i = 0; i < 3; i++) {
            const char *want = json_get_str(tree, keys[i], "");
            assert_int_equal(strlen(want), got[i].len);
            assert_memory_equal(want, got[i].data, got[i].len);
        }
    }
    free(copy);
    return known;
}

static int known(const char *text)
{
    return compare(text, strlen(text));
}

static void test_headers(void **state)
{
    (void)state;
    struct slice got[3];
    const char *text = "{\"msg_id\": \"a-1\", \"msg_type\":\"status\" , \"username\":\"u\",\n"
                       "\"session\": null, \"version\": \"5.4\"} ";
    assert_int_equal(jscan_strings(text, strlen(text), keys, 3, got), 1);
    assert_int_equal(got[0].len, 3);
    assert_memory_equal(got[0].data, "a-1", 3);
    assert_memory_equal(got[1].data, "status", 6);
    assert_int_equal(got[2].len, 0);
    assert_true(known(text));
    assert_true(known("{}"));
    assert_true(known(" { } "));
    assert_true(known("{\"\":\"\"}"));
}

static void test_left_to_the_parser(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "}",
        "[]",
        "\"msg_id\"",
        "{\"msg_id\"}",
        "{\"msg_id\":}",
        "{\"msg_id\":\"a\",}",
        "{,\"msg_id\":\"a\"}",
        "{\"msg_id\":\"a\"",
        "{\"msg_id\":\"a\"}}",
        "{\"msg_id\":\"a\"} x",
        "{\"msg_id\":\"a\\u0062\"}",
        "{\"msg_\\u0069d\":\"a\"}",
        "{\"msg_id\":\"\xc3\xa9\"}",
        "{\"msg_id\":\"\x01\"}",
        "{\"msg_id\":1}",
        "{\"msg_id\":{}}",
        "{\"msg_id\":nul}",
        "{\"msg_id\":nullx}",
        "{\"msg_id\":\"a\",\"msg_id\":\"b\"}",
        "{\"x\":\"a\",\"x\":\"b\"}",
        "{\"x\":\"a\" \"y\":\"b\"}",
    };
    for (size_t i = 0; i < COUNTOF(texts); i++)
        assert_false(known(texts[i]));
    assert_false(compare("{\"msg_id\":\"a\0b\"}", 16));
    assert_false(compare("{}\0", 3));
}

static void test_many_members(void **state)
{
    (void)state;
    for (int n = 1; n <= JSCAN_MEMBERS_MAX + 2; n++) {
        char text[512];
        size_t at = 0;
        for (int i = 0; i < n; i++)
            at +=
                (size_t)snprintf(text + at, sizeof text - at, "%c\"k%d\":\"v\"", i ? ',' : '{', i);
        snprintf(text + at, sizeof text - at, "}");
        assert_int_equal(known(text), n <= JSCAN_MEMBERS_MAX);
        snprintf(text + at, sizeof text - at, ",}");
        assert_false(known(text));
    }
}

/* Changed at random places, by bytes that matter in JSON: agreement with the parser throughout. */
static void test_mutations(void **state)
{
    (void)state;
    static const char bytes[] = "{}[]\",:\\ \n\t\r0anulmsg_id\x7f\x1f";
    static const char text[] =
        "{\"msg_id\": \"a\", \"msg_type\":null, \"session\": \"s\", \"x\":\"y\"}";
    unsigned seed = 1;
    size_t agreed = 0;
    for (int i = 0; i < 200000; i++) {
        char copy[sizeof text];
        memcpy(copy, text, sizeof text);
        for (int j = 0; j <= i % 3; j++) {
            seed = seed * 1103515245u + 12345u;
            size_t where = (seed >> 8) % (sizeof text - 1);
            seed = seed * 1103515245u + 12345u;
            copy[where] = bytes[(seed >> 8) % sizeof bytes]; /* the NUL too */
        }
        agreed += compare(copy, sizeof text - 1) ? 1 : 0;
    }
    assert_true(agreed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_left_to_the_parser),
        cmocka_unit_test(test_many_members),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
