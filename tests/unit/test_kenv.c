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
#include "kernel/kenv.h"

static json_t *parse(const char *text)
{
    json_t *v = NULL;
    assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
    return v;
}

static void environment(void **state)
{
    (void)state;
    setenv("REITOS_TOKEN", "secret", 1);
    setenv("FROM_PARENT", "a=b", 1);
    setenv("BROKEN", "\xff\xfe", 1);
    autojson json_t *add =
        parse("{\"X\": \"1\", \"FROM_CHILD\": \"gr\\u00fcn\", \"N\": 5, \"a=b\": "
              "\"no\", \"\": \"no\"}");
    autojson json_t *env = kenv_make(add, "42", "some-id");
    assert_string_equal(json_get_str(env, "FROM_PARENT", ""), "a=b");
    assert_string_equal(json_get_str(env, "FROM_CHILD", ""), "gr\xc3\xbcn");
    assert_string_equal(json_get_str(env, "PYTHONHASHSEED", ""), "42");
    assert_string_equal(json_get_str(env, "REITOS_KERNEL_ID", ""), "some-id");
    assert_null(json_object_get(env, "REITOS_TOKEN"));
    assert_null(json_object_get(env, "BROKEN"));
    assert_null(json_object_get(env, "N"));
    assert_null(json_object_get(env, "a=b"));
    assert_null(json_object_get(env, ""));
    char **v = kenv_array(env);
    int found = 0;
    for (char **p = v; *p; p++)
        found += strcmp(*p, "FROM_PARENT=a=b") == 0;
    assert_int_equal(found, 1);
    kenv_free(v);
}

static void a_request_may_choose_the_hash_seed(void **state)
{
    (void)state;
    autojson json_t *add = parse("{\"PYTHONHASHSEED\": \"7\"}");
    autojson json_t *env = kenv_make(add, "42", NULL);
    assert_string_equal(json_get_str(env, "PYTHONHASHSEED", ""), "7");
    assert_null(json_object_get(env, "REITOS_KERNEL_ID"));
}

static void command_line(void **state)
{
    (void)state;
    autojson json_t *argv =
        parse("[\"R\", \"--args\", \"x={connection_file}:{connection_file}\", \"{connection\"]");
    char **v = kenv_argv(argv, "/c.json");
    assert_string_equal(v[0], "R");
    assert_string_equal(v[2], "x=/c.json:/c.json");
    assert_string_equal(v[3], "{connection");
    assert_null(v[4]);
    kenv_free(v);
    autojson json_t *empty = json_array();
    assert_null(kenv_argv(empty, "/c"));
    assert_null(kenv_argv(NULL, "/c"));
    autojson json_t *wrong = parse("[\"a\", 1]");
    assert_null(kenv_argv(wrong, "/c"));
}

static void arguments_for_a_zygote(void **state)
{
    (void)state;
    static const struct {
        const char *argv, *args;
    } cases[] = {
        {"[\"py\",\"-m\",\"ipykernel_launcher\",\"-f\",\"{connection_file}\"]", "[]"},
        {"[\"py\",\"-Xfrozen_modules=off\",\"-m\",\"ipykernel_launcher\",\"-f\","
         "\"{connection_file}\",\"--a=1\"]",
         "[\"--a=1\"]"},
        {"[\"py\",\"-m\",\"ipykernel\",\"--a=1\",\"-f={connection_file}\",\"-b\"]",
         "[\"--a=1\",\"-b\"]"},
        {"[\"py\"]", "[]"},
        {"[\"py\",\"-m\"]", "[]"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        autojson json_t *argv = parse(cases[i].argv);
        autojson json_t *args = kenv_zygote_args(argv);
        autofree char *text = json_text(args);
        assert_string_equal(text, cases[i].args);
    }
}

static void hash_seed_is_kept(void **state)
{
    (void)state;
    char dir[] = "/tmp/reitos-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    autofree char *a = kenv_hash_seed(dir);
    autofree char *b = kenv_hash_seed(dir);
    assert_string_equal(a, b);
    assert_true(strlen(a) > 0 && strspn(a, "0123456789") == strlen(a));
    autofree char *path = xasprintf("%s/hashseed", dir);
    FILE *f = fopen(path, "w");
    fputs("not a number", f);
    fclose(f);
    autofree char *c = kenv_hash_seed(dir);
    assert_true(strspn(c, "0123456789") == strlen(c));
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment),       cmocka_unit_test(a_request_may_choose_the_hash_seed),
        cmocka_unit_test(command_line),      cmocka_unit_test(arguments_for_a_zygote),
        cmocka_unit_test(hash_seed_is_kept),
    };
    return cmocka_run_group_tests_name("kenv", tests, NULL, NULL);
}
