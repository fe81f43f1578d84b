#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/nbprep.h"
#include "cli/routes.h"

/* --- the command table --------------------------------------------------------------------- */

static void check_width(const char *text, size_t width)
{
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        if (len > width)
            fail_msg("%zu columns: %.*s", len, (int)len, line);
        line += len + (line[len] == '\n');
    }
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        autobuf struct buf help = BUF_INIT(1 << 16);
        assert_non_null(c->run);
        assert_non_null(c->options);
        assert_true(c->summary[0] >= 'a' && c->summary[0] <= 'z');
        assert_ptr_equal(cli_find(c->name), c);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(cli_commands[j]->name, c->name);
        cli_help_command(&help, c);
        check_width(buf_str(&help), 100);
        for (const struct cli_option *o = c->options; o->name; o++) {
            assert_non_null(strstr(buf_str(&help), o->name));
            for (const struct cli_option *p = c->options; p != o; p++)
                assert_true(!p->letter || p->letter != o->letter);
        }
    }
    assert_null(cli_find("nothing"));
}

static void test_texts(void **state)
{
    (void)state;
    autobuf struct buf help = BUF_INIT(1 << 20), man = BUF_INIT(1 << 20), comp = BUF_INIT(1 << 20);
    cli_help(&help);
    check_width(buf_str(&help), 100);
    cli_man(&man);
    cli_completion(&comp);
    for (size_t i = 0; cli_commands[i]; i++) {
        assert_non_null(strstr(buf_str(&help), cli_commands[i]->name));
        assert_non_null(strstr(buf_str(&comp), cli_commands[i]->name));
    }
    assert_non_null(strstr(buf_str(&man),
                           ".SS \"reitos kernel\\-proxy [OPTIONS] [ARGUMENTS OF THE KERNEL]\"\n"));
    assert_non_null(strstr(buf_str(&man), "\\fB\\-\\-allow\\-errors\\fR\n"));
    assert_non_null(strstr(buf_str(&man), ".SH EXIT STATUS\n"));
    assert_non_null(strstr(buf_str(&comp), "complete -o filenames -F _reitos reitos\n"));
}

/* --- arguments ----------------------------------------------------------------------------- */

static int parse(struct cli *c, const char *command, struct err *e, ...)
{
    static char *argv[32], *operands[32];
    va_list ap;
    int argc = 0;
    *c = (struct cli){.command = cli_find(command), .operands = operands};
    va_start(ap, e);
    for (char *s = va_arg(ap, char *); s; s = va_arg(ap, char *))
        argv[argc++] = s;
    va_end(ap);
    return cli_parse(c, argc, argv, e);
}

static void test_arguments(void **state)
{
    (void)state;
    struct cli c;
    struct err e = {0};
    int64_t n = 0;
    assert_int_equal(parse(&c, "run", &e, "-p", "a=1", "in.ipynb", "-o", "x", "--timeout=30",
                           "--param=b=2", "-oy", "--allow-errors", NULL),
                     0);
    assert_int_equal(c.noperands, 1);
    assert_string_equal(c.operands[0], "in.ipynb");
    assert_string_equal(cli_value(&c, "output"), "y");
    assert_string_equal(cli_nth(&c, "output", 0), "x");
    assert_string_equal(cli_nth(&c, "param", 1), "b=2");
    assert_null(cli_nth(&c, "param", 2));
    assert_true(cli_given(&c, "allow-errors"));
    assert_false(cli_given(&c, "kernel"));
    assert_false(c.json);
    assert_int_equal(cli_number(&c, "timeout", 5, &n, &e), 0);
    assert_int_equal(n, 30);
    assert_int_equal(parse(&c, "ps", &e, "-o", "json", "--data", "/d", NULL), 0);
    assert_true(c.json);
    assert_string_equal(cli_value(&c, "data"), "/d");
    assert_int_equal(parse(&c, "kill", &e, "--", "-x", "--all", NULL), 0);
    assert_int_equal(c.noperands, 2);
    assert_int_equal(parse(&c, "run", &e, "--help", NULL), 0);
    assert_int_equal(parse(&c, "kernel-proxy", &e, "-f", "x", "--profile-dir", "y", "--a=b", NULL),
                     0);
    assert_int_equal(c.noperands, 3); /* what the kernel's program is to get */
    assert_string_equal(c.operands[2], "--a=b");
    assert_int_equal(parse(&c, "log", &e, "-", NULL), 0); /* a lone dash is an operand */
}

static void test_bad_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *command, *a, *b, *says;
    } cases[] = {
        {"run", NULL, NULL, "needs NOTEBOOK"},
        {"run", "a", "b", "unexpected argument b"},
        {"run", "--time-out", "3", "did you mean --timeout?"},
        {"run", "-z", NULL, "unknown option -z"},
        {"run", "a", "--timeout", "--timeout needs a value: SECONDS"},
        {"run", "a", "--allow-errors=1", "--allow-errors takes no value"},
        {"ps", "-o", "xml", "\"xml\" is not one of json|table"},
        {"ps", "-o", "", "is not one of"},
        {"kernelspec", NULL, NULL, "needs install"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct cli c;
        struct err e = {0};
        assert_int_equal(parse(&c, cases[i].command, &e, cases[i].a, cases[i].b, NULL),
                         ERR_INVALID);
        if (!strstr(e.msg, cases[i].says))
            fail_msg("case %zu: %s", i, e.msg);
    }
}

static void test_too_many_options(void **state)
{
    (void)state;
    static char *argv[2 * CLI_VALUES_MAX + 4], *operands[4];
    struct cli c = {.command = cli_find("run"), .operands = operands};
    struct err e = {0};
    int argc = 0;
    while (argc < 2 * CLI_VALUES_MAX + 2) {
        argv[argc++] = "-p";
        argv[argc++] = "a=1";
    }
    assert_int_equal(cli_parse(&c, argc, argv, &e), ERR_INVALID);
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {"-1", "1s", "", "1.5", "99999999999999999999"};
    struct cli c;
    struct err e = {0};
    int64_t n = 7;
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        assert_int_equal(parse(&c, "run", &e, "x", "-t", bad[i], NULL), 0);
        assert_int_equal(cli_number(&c, "timeout", 0, &n, &e), ERR_INVALID);
    }
    assert_int_equal(parse(&c, "run", &e, "x", NULL), 0);
    assert_int_equal(cli_number(&c, "timeout", 12, &n, &e), 0);
    assert_int_equal(n, 12);
}

/* --- tables -------------------------------------------------------------------------------- */

static void test_rows(void **state)
{
    (void)state;
    static const struct cli_column columns[] = {{"id", "ID", 0}, {"n", "N", 1}, {"t", "T", 0}};
    autojson json_t *rows = json_pack("[{s:s,s:i,s:s},{s:s,s:n}]", "id",
                                      "\xc3\xa4"
                                      "b",
                                      "n", 12345, "t", "x\033[2Jy\n", "id", "longer", "n");
    autobuf struct buf b = BUF_INIT(1 << 16);
    cli_format_rows(&b, rows, columns, 3);
    assert_string_equal(buf_str(&b), "ID          N  T\n\xc3\xa4"
                                     "b      12345  x?[2Jy?\nlonger      -  -\n");
    buf_clear(&b);
    autojson json_t *none = json_array();
    cli_format_rows(&b, none, columns, 3);
    assert_string_equal(buf_str(&b), "ID  N  T\n");
}

static void test_pick(void **state)
{
    (void)state;
    autojson json_t *k = json_pack("[{s:s},{s:s}]", "id", "ab12", "id", "ab34");
    const json_t *found = NULL;
    struct err e = {0};
    assert_int_equal(ask_pick(k, "ab3", &found, &e), 0);
    assert_string_equal(json_get_str(found, "id", ""), "ab34");
    assert_int_equal(ask_pick(k, "ab", &found, &e), ERR_INVALID);
    assert_int_equal(ask_pick(k, "", &found, &e), ERR_NOT_FOUND);
    assert_int_equal(ask_pick(k, "ab345", &found, &e), ERR_NOT_FOUND);
    assert_int_equal(ask_pss_kib(-1), -1);
    assert_int_equal(ask_pss_kib(0), -1);
}

/* --- parameters ---------------------------------------------------------------------------- */

static void test_literals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *literal;
    } cases[] = {
        {"a=1", "1"},
        {"a=-12.5e-3", "-12.5e-3"},
        {"a=.5", ".5"},
        {"a=1.", "1."},
        {"a=123456789012345678901234567890", "123456789012345678901234567890"},
        {"a=007", "\"007\""},
        {"a=0", "0"},
        {"a=0.5", "0.5"},
        {"a=1e", "\"1e\""},
        {"a=.", "\".\""},
        {"a=-", "\"-\""},
        {"a=1_000", "\"1_000\""},
        {"a=true", "True"},
        {"a=False", "False"},
        {"a=null", "None"},
        {"a=None", "None"},
        {"a=", "\"\""},
        {"a=b=c", "\"b=c\""},
        {"a=two words", "\"two words\""},
        {"a=it's \"x\"\\", "\"it's \\\"x\\\"\\\\\""},
        {"a=\"quoted\\n\"", "\"quoted\\n\""},
        {"a=\"unfinished", "\"\\\"unfinished\""},
        {"a=[1, true, null, \"x\", {\"k\": [false]}]", "[1, True, None, \"x\", {\"k\": [False]}]"},
        {"a={}", "{}"},
        {"a=[a-z]+", "\"[a-z]+\""},
        {"a=\xc3\xa4", "\"\xc3\xa4\""},
        {"_x9=1", "1"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        autofree char *name = NULL;
        autofree char *literal = NULL;
        struct err e = {0};
        assert_int_equal(nbprep_param(cases[i].text, &name, &literal, &e), 0);
        assert_string_equal(literal, cases[i].literal);
        assert_int_equal(strlen(name), strcspn(cases[i].text, "="));
    }
}

static void test_bad_params(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "a", "=1", "1a=2", "a-b=1", "a b=1", "", "import os;x=1", "a=\xff\xfe", "a.b=1"};
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        char *name = NULL, *literal = NULL;
        struct err e = {0};
        assert_int_equal(nbprep_param(bad[i], &name, &literal, &e), ERR_INVALID);
        assert_null(name);
        assert_null(literal);
    }
}

static json_t *notebook(const char *text)
{
    json_t *nb = NULL;
    struct err e = {0};
    if (json_parse(text, strlen(text), &nb, &e) < 0)
        fail_msg("%s", e.msg);
    return nb;
}

static void test_inject(void **state)
{
    (void)state;
    autojson json_t *params = json_pack("{s:s,s:s}", "lr", "0.1", "name", "\"x\"");
    autojson json_t *nb = notebook(
        "{\"cells\": [{\"cell_type\": \"markdown\", \"metadata\": {}, \"source\": \"\"},"
        "{\"cell_type\": \"code\", \"metadata\": {\"tags\": [1, \"parameters\"]}, \"source\": "
        "\"lr = 1\"}, {\"cell_type\": \"code\", \"metadata\": {}, \"source\": \"lr\"}],"
        "\"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 2}");
    json_t *cells = json_object_get(nb, "cells");
    nbprep_upgrade(nb);
    nbprep_inject(nb, params);
    assert_int_equal(json_array_size(cells), 4);
    json_t *cell = json_array_get(cells, 2);
    assert_true(nbprep_tagged(cell, "injected-parameters"));
    assert_string_equal(json_get_str(cell, "source", ""), "# Parameters\nlr = 0.1\nname = \"x\"");
    /* once more: the injected cell is replaced */
    json_object_set_new(params, "lr", json_string("0.2"));
    nbprep_inject(nb, params);
    assert_int_equal(json_array_size(cells), 4);
    assert_non_null(strstr(json_get_str(json_array_get(cells, 2), "source", ""), "lr = 0.2\n"));
    /* without a tagged cell: at the top */
    autojson json_t *plain = notebook("{\"cells\": [{\"cell_type\": \"code\", \"source\": \"1\"}],"
                                      "\"nbformat\": 4}");
    nbprep_inject(plain, params);
    assert_true(
        nbprep_tagged(json_array_get(json_object_get(plain, "cells"), 0), "injected-parameters"));
}

static void test_upgrade(void **state)
{
    (void)state;
    autojson json_t *nb = notebook(
        "{\"cells\": [{\"cell_type\": \"code\", \"id\": \"same\", \"source\": \"\"},"
        "{\"cell_type\": \"code\", \"id\": \"same\", \"source\": \"\"},"
        "{\"cell_type\": \"code\", \"id\": \"not valid\", \"source\": \"\", \"outputs\": [1]},"
        "{\"cell_type\": \"markdown\", \"source\": \"\"}], \"nbformat\": 4}");
    json_t *cells = json_object_get(nb, "cells"), *cell;
    size_t i;
    nbprep_upgrade(nb);
    assert_int_equal(json_get_int(nb, "nbformat_minor", 0), 5);
    assert_true(json_is_object(json_object_get(nb, "metadata")));
    assert_string_equal(json_get_str(json_array_get(cells, 0), "id", ""), "same");
    assert_string_not_equal(json_get_str(json_array_get(cells, 1), "id", ""), "same");
    json_array_foreach(cells, i, cell)
    {
        const char *id = json_get_str(cell, "id", "");
        assert_true(*id && strlen(id) <= 64 && !strchr(id, ' '));
        assert_true(json_is_object(json_object_get(cell, "metadata")));
        assert_int_equal(i < 3, json_is_array(json_object_get(cell, "outputs")));
    }
    assert_int_equal(json_array_size(json_object_get(json_array_get(cells, 2), "outputs")), 1);
    json_object_set_new(nb, "nbformat_minor", json_integer(6));
    nbprep_upgrade(nb);
    assert_int_equal(json_get_int(nb, "nbformat_minor", 0), 6);
}

static void test_notebook_kernel(void **state)
{
    (void)state;
    autojson json_t *nb = json_pack("{s:{s:{s:s}}}", "metadata", "kernelspec", "name", "ir");
    autojson json_t *no = json_pack("{s:{s:{s:s}}}", "metadata", "kernelspec", "name", "");
    assert_string_equal(nbprep_kernel(nb), "ir");
    assert_null(nbprep_kernel(no));
}

/* --- routes -------------------------------------------------------------------------------- */

static void test_routes(void **state)
{
    (void)state;
    struct routes *r = routes_new(3);
    struct slice s;
    routes_put(r, "a", "\0\1id", 4, 0);
    routes_put(r, "b", "B", 1, 0);
    routes_put(r, "a", "\0\2", 2, 0); /* now the youngest */
    assert_int_equal(routes_count(r), 2);
    assert_true(routes_get(r, "a", &s));
    assert_int_equal(s.len, 2);
    assert_memory_equal(s.data, "\0\2", 2);
    routes_put(r, "c", "C", 1, 0);
    routes_put(r, "d", "D", 1, 0);
    assert_int_equal(routes_count(r), 3);
    assert_false(routes_get(r, "b", &s));
    assert_true(routes_get(r, "a", &s));
    routes_drop(r, "a");
    routes_drop(r, "a");
    assert_false(routes_get(r, "a", &s));
    assert_int_equal(routes_count(r), 2);
    assert_null(routes_free(r));
    assert_null(routes_free(NULL));
}

static struct jmsg *reply(void)
{
    autojson json_t *none = json_object();
    return jmsg_make(JCHAN_SHELL, "kernel_info_reply", "s", NULL, none);
}

static void test_held_replies(void **state)
{
    (void)state;
    struct routes *r = routes_new(10);
    struct slice s;
    autojmsg struct jmsg *m = reply();
    routes_put(r, "info0", "A", 1, 0);
    routes_put(r, "cell1", "A", 1, 1);
    routes_put(r, "cell2", "A", 1, 1);
    routes_put(r, "info", "A", 1, 0);
    routes_put(r, "other", "B", 1, 0);
    assert_false(routes_hold(r, "info0", m)); /* older than the cells */
    assert_false(routes_hold(r, "other", m)); /* another sender's */
    assert_false(routes_hold(r, "unknown", m));
    assert_null(routes_release(r));
    assert_true(routes_hold(r, "info", m));
    assert_int_equal(m->refs, 2);
    assert_null(routes_release(r));
    routes_drop(r, "cell1");
    assert_null(routes_release(r));
    routes_drop(r, "cell2");
    struct jmsg *out = routes_release(r);
    assert_ptr_equal(out, m);
    jmsg_unref(out);
    assert_null(routes_release(r));
    assert_true(routes_get(r, "info", &s)); /* the caller drops it with the reply */
    routes_put(r, "cell3", "B", 1, 1);
    routes_put(r, "last", "B", 1, 0);
    assert_true(routes_hold(r, "last", m));
    routes_free(r); /* with a reply still held */
    assert_int_equal(m->refs, 1);
}

static void test_many_routes(void **state)
{
    (void)state;
    struct routes *r = routes_new(5000);
    struct slice s;
    char id[16];
    for (int i = 0; i < 20000; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        routes_put(r, id, &i, sizeof(i), 0);
    }
    assert_int_equal(routes_count(r), 5000);
    for (int i = 0; i < 20000; i += 7) {
        snprintf(id, sizeof(id), "m%d", i);
        assert_int_equal(routes_get(r, id, &s), i >= 15000);
        if (i >= 15000)
            assert_memory_equal(s.data, &i, sizeof(i));
    }
    routes_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_too_many_options),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_pick),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_bad_params),
        cmocka_unit_test(test_inject),
        cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_notebook_kernel),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_many_routes),
        cmocka_unit_test(test_held_replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
