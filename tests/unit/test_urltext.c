#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "gateway/urltext.h"

static void field_is(const char *form, const char *key, const char *want)
{
    autofree char *got = form_field(form, strlen(form), key);
    if (!want)
        assert_null(got);
    else
        assert_string_equal(got, want);
}

static void form_fields(void **state)
{
    (void)state;
    field_is("a=1&b=2", "b", "2");
    field_is("a=1&b=x+y%2B%3d", "b", "x y+=");
    field_is("p%61ss=1", "pass", "1");
    field_is("a", "a", "");
    field_is("a=", "a", "");
    field_is("a=1&a=2", "a", "1");
    field_is("", "a", NULL);
    field_is("&&=&", "a", NULL);
    field_is("ab=1", "a", NULL);
    field_is("a=%", "a", NULL);
    field_is("a=%2", "a", NULL);
    field_is("a=%zz", "a", NULL);
    field_is("a=%00", "a", NULL);
    assert_null(form_field("a=b\0c", 5, "a"));
    autofree char *cut = form_field("a=12345", 4, "a"); /* the length counts, not a NUL */
    assert_string_equal(cut, "12");
}

static void next_is(const char *next, const char *base, const char *want)
{
    autofree char *got = url_safe_next(next, base);
    if (strcmp(got, want))
        fail_msg("%s under %s gave %s", next ? next : "NULL", base, got);
}

static void redirect_targets(void **state)
{
    (void)state;
    next_is("/lab", "/", "/lab");
    next_is("/x/lab/tree/a.ipynb?b=1#c", "/x/", "/x/lab/tree/a.ipynb?b=1#c");
    next_is("/x", "/x/", "/x");
    static const char *const outside[] = {
        NULL,          "",
        "lab",         "//evil.example",
        "///evil",     "/\\evil",
        "\\/evil",     "http://evil",
        "/\t/evil",    "/x\r\nSet-Cookie: a",
        "/x/../y",     "/x/..",
        "/x/%2e%2E/y", "/x/./y",
        "/x/%2e",      "/y/lab",
        "/xy",         "javascript:alert(1)",
        "/ /evil",     "/x/a\\b",
    };
    for (size_t i = 0; i < COUNTOF(outside); i++)
        next_is(outside[i], "/x/", "/x/");
    next_is("/x/...", "/x/", "/x/...");
    next_is("/x/a?q=/../", "/x/", "/x/a?q=/../");
}

static void without_is(const char *uri, const char *want)
{
    autofree char *got = url_without(uri, "token");
    assert_string_equal(got, want);
}

static void dropping_the_token(void **state)
{
    (void)state;
    without_is("/lab?token=abc", "/lab");
    without_is("/lab?token=abc&x=1", "/lab?x=1");
    without_is("/lab?x=1&token=a&y=2&token=b", "/lab?x=1&y=2");
    without_is("/lab?tokens=1&token", "/lab?tokens=1");
    without_is("/lab", "/lab");
    without_is("/lab?", "/lab");
    without_is("//evil.example/?token=a", "/evil.example/");
    without_is("/\\/evil?token=a", "\\/evil");
}

static void escapes(void **state)
{
    (void)state;
    autobuf struct buf u = BUF_INIT(1000), h = BUF_INIT(1000);
    url_escape("/a b&c=\xC3\xA9?", &u);
    assert_string_equal(u.data, "/a%20b%26c%3D%C3%A9%3F");
    html_escape("<a href=\"x\">'&", &h);
    assert_string_equal(h.data, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(form_fields),
        cmocka_unit_test(redirect_targets),
        cmocka_unit_test(dropping_the_token),
        cmocka_unit_test(escapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
