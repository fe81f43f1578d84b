#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "gateway/origin.h"

static int allowed(const char *allow, const char *pattern, const char *origin)
{
    struct origin_rules *o;
    struct err e = {0};
    if (origin_rules_new(allow, pattern, &o, &e) < 0)
        fail_msg("%s", e.msg);
    int yes = origin_allowed(o, origin);
    origin_rules_free(o);
    return yes;
}

static void configured(void **state)
{
    (void)state;
    assert_false(allowed("", "", "http://a"));
    assert_true(allowed("*", "", "http://a"));
    assert_true(allowed("https://a.example", "", "https://A.example"));
    assert_false(allowed("https://a.example", "", "https://a.example.evil"));
    assert_false(allowed("https://a.example", "", "https://a.example:8443"));
}

static void patterns_match_whole(void **state)
{
    (void)state;
    const char *p = "https://[a-z]+\\.example";
    assert_true(allowed("", p, "https://lab.example"));
    assert_false(allowed("", p, "https://lab.example.evil.com"));
    assert_false(allowed("", p, "xhttps://lab.example"));
    /* alternatives must not escape the anchors */
    assert_false(allowed("", "https://a|https://b", "https://a.evil"));
    assert_false(allowed("", "https://a|https://b", "evil https://b"));
    assert_true(allowed("", "https://a|https://b", "https://b"));
    assert_false(allowed("", "https://a)|(https://b", "https://a.evil"));
    struct origin_rules *o = NULL;
    struct err e = {0};
    assert_int_equal(origin_rules_new("", "[", &o, &e), ERR_CONFIG);
    assert_non_null(strstr(e.msg, "allow-origin-pat"));
    assert_null(o);
}

static void same_host(void **state)
{
    (void)state;
    assert_true(origin_is_host("http://127.0.0.1:8888", "127.0.0.1:8888"));
    assert_true(origin_is_host("https://Lab.Example", "lab.example"));
    assert_true(origin_is_host("https://lab.example", "lab.example:443"));
    assert_true(origin_is_host("http://lab.example:80", "lab.example"));
    assert_true(origin_is_host("http://[::1]:8888", "[::1]:8888"));
    static const char *const other[][2] = {
        {"null", "127.0.0.1:8888"},
        {"", "127.0.0.1"},
        {"http://127.0.0.1:9999", "127.0.0.1:8888"},
        {"http://localhost:8888", "127.0.0.1:8888"},
        {"http://evil", "lab"},
        {"http://lab.evil", "lab"},
        {"http://user@lab", "lab"},
        {"file://lab", "lab"},
        {"http://lab/", "lab"},
        {"http://", ""},
        {"http://[::1", "[::1"},
    };
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (origin_is_host(other[i][0], other[i][1]))
            fail_msg("%s is not %s", other[i][0], other[i][1]);
}

static void hosts_on_loopback(void **state)
{
    (void)state;
    const char *listen = "127.0.0.1:8888";
    static const char *const good[] = {"127.0.0.1:8888", "localhost:9999", "localhost",
                                       "127.0.0.5",      "[::1]:8888",     "a.localhost",
                                       "LOCALHOST",      "localhost."};
    static const char *const bad[] = {
        "evil.example",   "evil.example:8888", "10.0.0.1", "",
        "localhost.evil", "127.0.0.1.evil",    "a b",      "localhost:x",
        "[::2]",          "notlocalhost"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(origin_host_ok(good[i], listen, ""));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (origin_host_ok(bad[i], listen, ""))
            fail_msg("\"%s\" is accepted", bad[i]);
    assert_false(origin_host_ok(NULL, listen, ""));
}

static void hosts_elsewhere(void **state)
{
    (void)state;
    char own[256];
    assert_int_equal(gethostname(own, sizeof own), 0);
    assert_true(origin_host_ok("lab.example", "127.0.0.1:1", "x, lab.example"));
    assert_false(origin_host_ok("sub.lab.example", "127.0.0.1:1", "x,lab.example"));
    assert_true(origin_host_ok("whatever", "127.0.0.1:1", "*"));
    assert_true(origin_host_ok("whatever", "unix:/run/x", ""));
    assert_true(origin_host_ok(NULL, "unix:/run/x", ""));
    assert_true(origin_host_ok("10.1.2.3:8888", "0.0.0.0:8888", ""));
    assert_true(origin_host_ok(own, "0.0.0.0:8888", ""));
    assert_false(origin_host_ok("evil.example", "0.0.0.0:8888", ""));
    assert_true(origin_host_ok("10.1.2.3", "10.1.2.3:8888", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configured),      cmocka_unit_test(patterns_match_whole),
        cmocka_unit_test(same_host),       cmocka_unit_test(hosts_on_loopback),
        cmocka_unit_test(hosts_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
