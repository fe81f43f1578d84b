#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "gateway/cookie.h"

#define NOW ((int64_t)1800000000 * 1000000)
#define NONCE "0123456789abcdef0123456789abcdef"

static const struct cookie_key key = {.bytes = {1, 2, 3}};

static char *made(int64_t issued)
{
    struct cookie_session s = {.issued_us = issued, .nonce = NONCE, .user = "ada|lovelace"};
    return cookie_make(&key, "n", &s);
}

static void round_trip(void **state)
{
    (void)state;
    autofree char *v = made(NOW);
    struct cookie_session s;
    assert_int_equal(cookie_check(&key, "n", v, NOW + 5, &s), 0);
    assert_string_equal(s.user, "ada|lovelace");
    assert_string_equal(s.nonce, NONCE);
    assert_true(s.issued_us == NOW);
    assert_null(strpbrk(v, "=;, \"")); /* safe in a Cookie header */
}

static void forged(void **state)
{
    (void)state;
    autofree char *v = made(NOW);
    struct cookie_session s;
    struct cookie_key other = key;
    assert_int_equal(cookie_check(&key, "m", v, NOW, &s), ERR_DENIED);
    other.bytes[31] = 1;
    assert_int_equal(cookie_check(&other, "n", v, NOW, &s), ERR_DENIED);
    other = key;
    strcpy(other.binding, "abc");
    assert_int_equal(cookie_check(&other, "n", v, NOW, &s), ERR_DENIED);
    for (size_t i = 0; v[i]; i++) { /* no single changed character passes */
        autofree char *bent = xstrdup(v);
        bent[i] = bent[i] == 'A' ? 'B' : 'A';
        if (cookie_check(&key, "n", bent, NOW, &s) == 0)
            fail_msg("changed at %zu", i);
    }
    static const char *const bad[] = {NULL, "", ".", "a.b", "....", "=.=", "\xff.\xff"};
    for (size_t i = 0; i < COUNTOF(bad); i++)
        assert_int_equal(cookie_check(&key, "n", bad[i], NOW, &s), ERR_DENIED);
}

static void ages(void **state)
{
    (void)state;
    autofree char *v = made(NOW);
    struct cookie_session s;
    int64_t life = (int64_t)COOKIE_MAX_AGE_S * 1000000;
    assert_int_equal(cookie_check(&key, "n", v, NOW + life, &s), 0);
    assert_int_equal(cookie_check(&key, "n", v, NOW + life + 1, &s), ERR_DENIED);
    assert_int_equal(cookie_check(&key, "n", v, NOW - 59000000, &s), 0);
    assert_int_equal(cookie_check(&key, "n", v, NOW - 61000000, &s), ERR_DENIED);
}

static void names(void **state)
{
    (void)state;
    autofree char *a = cookie_name("127.0.0.1:8888"), *b = cookie_name("a;b=c\"\r\n");
    assert_string_equal(a, "username-127-0-0-1-8888");
    assert_string_equal(b, "username-a-b-c---");
}

static void xsrf(void **state)
{
    (void)state;
    char v[XSRF_TEXT], nonce[COOKIE_NONCE];
    struct cookie_key other = {.bytes = {9}};
    xsrf_make(&key, NONCE, v);
    assert_int_equal(strlen(v), XSRF_TEXT - 1);
    assert_true(xsrf_check(&key, v, nonce));
    assert_string_equal(nonce, NONCE);
    assert_false(xsrf_check(&other, v, nonce));
    v[0] = '1';
    assert_false(xsrf_check(&key, v, nonce));
    assert_false(xsrf_check(&key, NULL, nonce));
    assert_false(xsrf_check(&key, "", nonce));
    assert_false(xsrf_check(&key, NONCE "|", nonce));
}

static void secret_on_disk(void **state)
{
    (void)state;
    char dir[] = "/tmp/test-cookie-XXXXXX";
    struct cookie_key a, b;
    struct stat st;
    struct err e = {0};
    assert_non_null(mkdtemp(dir));
    autofree char *path = xasprintf("%s/secret", dir);
    assert_int_equal(cookie_key_load(path, &a, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(cookie_key_load(path, &b, &e), 0);
    assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
    assert_int_equal(fs_write_path(path, "short", 5, 0600, &e), 0);
    assert_int_equal(cookie_key_load(path, &b, &e), ERR_CONFIG);
    assert_non_null(strstr(e.msg, "damaged"));
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(forged), cmocka_unit_test(ages),
        cmocka_unit_test(names),      cmocka_unit_test(xsrf),   cmocka_unit_test(secret_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
