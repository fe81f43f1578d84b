/* gateway/http_parse: what is accepted, and that everything else is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/http.h"
#include "gateway/http_parse.h"

static char text[200000];
static struct http_head head;

/* Parses a copy; the result is in `head` until the next call. */
static int parse_n(const char *s, size_t n)
{
    const char *why = NULL;
    free(head.fields);
    memcpy(text, s, n);
    text[n] = '\0';
    int status = http_head_parse(text, n, &head, &why);
    assert_true(status == 0 || why != NULL);
    return status;
}

static int parse(const char *s)
{
    return parse_n(s, strlen(s));
}

static void test_head(void **state)
{
    (void)state;
    assert_int_equal(parse("PATCH /a?b=c HTTP/1.1\r\nHost: h\r\nX-A:\t v 1 \r\nEmpty:\r\n\r\n"), 0);
    assert_int_equal(head.method, HTTP_PATCH);
    assert_string_equal(head.target, "/a?b=c");
    assert_int_equal(head.minor, 1);
    assert_int_equal(head.nfields, 3);
    assert_string_equal(http_head_get(&head, "x-a", NULL), "v 1");
    assert_string_equal(http_head_get(&head, "empty", NULL), "");
    assert_null(http_head_get(&head, "absent", NULL));
}

static void test_methods(void **state)
{
    (void)state;
    char line[100];
    for (int m = 0; m < HTTP_METHOD_COUNT; m++) {
        snprintf(line, sizeof line, "%s / HTTP/1.1\r\nHost: h\r\n\r\n", http_method_name(m));
        assert_int_equal(parse(line), 0);
        assert_int_equal(head.method, m);
    }
    assert_int_equal(parse("get / HTTP/1.1\r\nHost: h\r\n\r\n"), 0);
    assert_int_equal(head.method, -1); /* methods have a case */
    assert_string_equal(http_method_name(HTTP_METHOD_COUNT), "?");
}

static void test_versions_and_host(void **state)
{
    (void)state;
    assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n"), 0);
    assert_int_equal(head.minor, 0);
    assert_int_equal(parse("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
    assert_int_equal(parse("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
    assert_int_equal(parse("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), 505);
    assert_int_equal(parse("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
    assert_int_equal(parse("GET / http/1.1\r\nHost: a\r\n\r\n"), 400);
}

static void test_malformed_heads(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET /\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \x02\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\x80: 1\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(bad[i]) != 400)
            fail_msg("accepted: %s", bad[i]);
    static const char nul[] = "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n";
    assert_int_equal(parse_n(nul, sizeof nul - 1), 400);
    assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nX: caf\xc3\xa9\r\n\r\n"), 0);
}

static void test_many_fields(void **state)
{
    (void)state;
    char *s = malloc(100000);
    int n = sprintf(s, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 1; i < HTTP_FIELDS_MAX; i++)
        n += sprintf(s + n, "x-%d: %d\r\n", i, i);
    memcpy(s + n, "\r\n", 3);
    assert_int_equal(parse(s), 0);
    assert_string_equal(http_head_get(&head, "x-511", NULL), "511");
    memcpy(s + n, "y: 1\r\n\r\n", 9);
    assert_int_equal(parse(s), 431);
    free(s);
}

static void test_head_end(void **state)
{
    (void)state;
    static const char s[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\n\r\n";
    size_t scan = 0;
    for (size_t len = 0; len < 27; len++)
        assert_int_equal(http_head_end(s, len, &scan), 0);
    assert_int_equal(http_head_end(s, sizeof s - 1, &scan), 27);
    scan = 0;
    assert_int_equal(http_head_end(s, sizeof s - 1, &scan), 27);
    scan = 0;
    assert_int_equal(http_head_end("a\n\nb", 4, &scan), 3); /* found, to be refused */
}

static int framing(const char *fields, struct http_framing *f)
{
    char s[400];
    const char *why = NULL;
    snprintf(s, sizeof s, "PUT / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    assert_int_equal(parse(s), 0);
    return http_head_framing(&head, f, &why);
}

static void test_framing(void **state)
{
    (void)state;
    struct http_framing f;
    assert_int_equal(framing("", &f), 0);
    assert_true(!f.chunked && f.length == 0);
    assert_int_equal(framing("Content-Length: 2147483648\r\n", &f), 0);
    assert_true(f.length == (uint64_t)1 << 31);
    assert_int_equal(framing("Content-Length: 999999999999999999\r\n", &f), 0);
    assert_int_equal(framing("Content-Length: 1000000000000000000\r\n", &f), 400);
    assert_int_equal(framing("Transfer-Encoding: Chunked\r\n", &f), 0);
    assert_true(f.chunked);
    static const char *const lengths[] = {"", "-1", "+1", "1 1", "1,1", "0x1", "1a", " "};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char s[100];
        snprintf(s, sizeof s, "Content-Length: %s\r\n", lengths[i]);
        assert_int_equal(framing(s, &f), 400);
    }
    assert_int_equal(framing("Content-Length: 1\r\nContent-Length: 1\r\n", &f), 400);
    assert_int_equal(framing("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", &f), 400);
    assert_int_equal(framing("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", &f), 400);
    assert_int_equal(framing("Transfer-Encoding: gzip\r\n", &f), 501);
    assert_int_equal(framing("Transfer-Encoding: chunked, chunked\r\n", &f), 501);
    assert_int_equal(framing("Transfer-Encoding: \r\n", &f), 501);
}

static void test_tokens(void **state)
{
    (void)state;
    assert_true(http_has_token("keep-alive, Upgrade", "upgrade"));
    assert_true(http_has_token(" ,,a , b", "B"));
    assert_true(http_has_token("x", "x"));
    assert_false(http_has_token("upgraded", "upgrade"));
    assert_false(http_has_token("a b", "a"));
    assert_false(http_has_token("", "a"));
    assert_false(http_has_token(NULL, "a"));
}

static void test_path_decode(void **state)
{
    (void)state;
    char out[100];
    static const struct {
        const char *in, *out; /* NULL: refused */
    } cases[] = {
        {"/a+b", "/a+b"},
        {"/a%2Bb%20c", "/a+b c"},
        {"/%C3%a4", "/\xc3\xa4"},
        {"/..//./", "/..//./"},
        {"/%2e%2F", "/./"},
        {"", ""},
        {"/%25zz", "/%zz"},
        {"%", NULL},
        {"%4", NULL},
        {"%g0", NULL},
        {"%0g", NULL},
        {"%00", NULL},
        {"%ff", NULL},
        {"%c0%ae", NULL},
        {"%ed%a0%80", NULL},
        {"\xe2\x82", NULL},
        {"%f4%90%80%80", NULL},
        {"%f0%9f%98%80", "\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = http_path_decode(cases[i].in, strlen(cases[i].in), out);
        if (cases[i].out) {
            assert_int_equal(rc, 0);
            assert_string_equal(out, cases[i].out);
        } else {
            assert_int_equal(rc, ERR_PARSE);
        }
    }
    assert_int_equal(http_path_decode("%41", 2, out), ERR_PARSE); /* the length counts */
}

static void check_query(const char *query, const char *key, const char *value)
{
    char *v = http_query_get(query, key);
    if (value) {
        assert_non_null(v);
        assert_string_equal(v, value);
    } else {
        assert_null(v);
    }
    free(v);
}

static void test_query(void **state)
{
    (void)state;
    check_query("a=1&b=2", "b", "2");
    check_query("a=1&a=2", "a", "1");
    check_query("a=x+y%2B%26", "a", "x y+&");
    check_query("a=b=c", "a", "b=c");
    check_query("a", "a", "");
    check_query("a=", "a", "");
    check_query("&&a=1", "a", "1");
    check_query("%61b=1", "ab", "1");
    check_query("a+b=1", "a b", "1");
    check_query("a=%zz%4", "a", "%zz%4");
    check_query("a=x%00y", "a", "xy");
    check_query("aa=1", "a", NULL);
    check_query("", "a", NULL);
    check_query(NULL, "a", NULL);
    check_query("=1", "", "1");
}

static void check_cookie(const char *header, const char *name, const char *value)
{
    char *v = http_cookie_get(header, name);
    if (value) {
        assert_non_null(v);
        assert_string_equal(v, value);
    } else {
        assert_null(v);
    }
    free(v);
}

static void test_cookies(void **state)
{
    (void)state;
    check_cookie("a=1; b=2", "b", "2");
    check_cookie("a=1;b=2 ", "b", "2");
    check_cookie("a=\"q q\"; b", "a", "q q");
    check_cookie("a=x=y", "a", "x=y");
    check_cookie("a=", "a", "");
    check_cookie("aa=1", "a", NULL);
    check_cookie("a=1", "aa", NULL);
    check_cookie("b", "b", NULL);
    check_cookie("=1", "", NULL);
    check_cookie(NULL, "a", NULL);
    check_cookie(";;; ", "a", NULL);
}

static void test_base(void **state)
{
    (void)state;
    int redirect;
    assert_string_equal(http_base_strip("/api", "/", &redirect), "api");
    assert_string_equal(http_base_strip("/", "/", &redirect), "");
    assert_string_equal(http_base_strip("/x/api", "/x/", &redirect), "api");
    assert_null(http_base_strip("/x", "/x/", &redirect));
    assert_true(redirect);
    assert_null(http_base_strip("/xy", "/x/", &redirect));
    assert_false(redirect);
    assert_null(http_base_strip("/", "/x/", &redirect));
    assert_false(redirect);
}

static void test_utf8(void **state)
{
    (void)state;
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("plain ascii of some length, over eight bytes", 44));
    assert_true(utf8_valid("12345678\xc3\xa4", 10));
    assert_false(utf8_valid("1234567\xc3", 8));
    assert_false(utf8_valid("\x80", 1));
    assert_false(utf8_valid("\xc1\x81", 2));
    assert_false(utf8_valid("\xe0\x80\x80", 3));
    assert_false(utf8_valid("\xf5\x80\x80\x80", 4));
    assert_true(utf8_valid("\xef\xbf\xbf\xf4\x8f\xbf\xbf", 7));
}

/* Decodes in pieces of `step` bytes. Returns the payload length, negative on error, -100 when it
 * is not complete; *used: bytes consumed. */
static long unchunk(const char *s, size_t len, size_t step, char *out, size_t *used)
{
    struct http_chunked c = {0};
    size_t n = 0, at = 0;
    while (at < len && !http_chunked_done(&c)) {
        const char *part;
        size_t nparts, left = len - at < step ? len - at : step;
        long took = http_chunked_feed(&c, s + at, left, &part, &nparts);
        if (took < 0)
            return took;
        assert_true(took > 0 && (size_t)took <= left);
        memcpy(out + n, part, nparts);
        n += nparts;
        at += (size_t)took;
    }
    *used = at;
    return http_chunked_done(&c) ? (long)n : -100;
}

static void test_chunked(void **state)
{
    (void)state;
    static const char s[] = "3\r\nabc\r\n0A;ext=\"1\"\r\n0123456789\r\n000\r\nT: 1\r\n\r\nNEXT";
    char out[100];
    size_t used;
    for (size_t step = 1; step < sizeof s; step++) {
        assert_int_equal(unchunk(s, sizeof s - 1, step, out, &used), 13);
        assert_memory_equal(out, "abc0123456789", 13);
        assert_int_equal(used, sizeof s - 1 - 4);
    }
    assert_int_equal(unchunk("0\r\n\r\n", 5, 100, out, &used), 0);
    assert_int_equal(unchunk("0\r\n\r", 4, 100, out, &used), -100);
    static const char *const bad[] = {
        "\r\n",
        "x\r\n",
        ";\r\n",
        "3\nabc",
        "3\r\nabcd",
        "3\r\nabc\n",
        "3\r\nabc\rx",
        "0\r\n\n",
        "0\r\nT\n",
        "0\r\n\rx",
        "3\rx",
        "-1\r\n",
        "0x3\r\n",
        " 3\r\n",
        "0\r\nT\rx",
        "1;a\nb\r\nx",
        "1111111111111111\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (unchunk(bad[i], strlen(bad[i]), 100, out, &used) != ERR_PARSE)
            fail_msg("accepted: %s", bad[i]);
}

static void test_chunked_limits(void **state)
{
    (void)state;
    char *s = malloc(20000), *out = malloc(20000);
    size_t used;
    memset(s, 'e', 20000);
    memcpy(s, "1;", 2);
    assert_int_equal(unchunk(s, 20000, 1000, out, &used), ERR_PARSE);
    memcpy(s, "0\r\n", 3);
    assert_int_equal(unchunk(s, 20000, 1000, out, &used), ERR_PARSE);
    free(s);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_versions_and_host),
        cmocka_unit_test(test_malformed_heads),
        cmocka_unit_test(test_many_fields),
        cmocka_unit_test(test_head_end),
        cmocka_unit_test(test_framing),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_path_decode),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_cookies),
        cmocka_unit_test(test_base),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_chunked),
        cmocka_unit_test(test_chunked_limits),
    };
    int rc = cmocka_run_group_tests_name("http_parse", tests, NULL, NULL);
    free(head.fields);
    return rc;
}
