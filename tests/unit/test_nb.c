#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/nb.h"

/* JSON with single quotes, for readable tests. */
static json_t *js(const char *text)
{
    autofree char *s = xstrdup(text);
    for (char *p = s; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *v = NULL;
    struct err e = {0};
    if (json_parse(s, strlen(s), &v, &e) < 0)
        fail_msg("%s in %s", e.msg, s);
    return v;
}

static int feed(struct nb_cell *c, const char *type, const char *content)
{
    autojson json_t *header = json_pack("{s:s}", "msg_type", type);
    autojson json_t *body = js(content);
    autojmsg struct jmsg *m = jmsg_from_json(JCHAN_IOPUB, header, NULL, NULL, body);
    return nb_cell_feed(c, m);
}

static void expect_outputs(struct nb_cell *c, const char *want)
{
    autojson json_t *w = js(want);
    if (!json_equal(nb_cell_outputs(c), w)) {
        autofree char *got = json_text(nb_cell_outputs(c));
        fail_msg("got %s, want %s", got, want);
    }
}

static void test_streams(void **state)
{
    (void)state;
    struct nb_cell *c = nb_cell_new();
    expect_outputs(c, "[]");
    assert_int_equal(feed(c, "stream", "{'name':'stdout','text':'a'}"), 1);
    assert_int_equal(feed(c, "stream", "{'name':'stdout','text':'b\\n 10%'}"), 1);
    assert_int_equal(feed(c, "status", "{'execution_state':'busy'}"), 0);
    expect_outputs(c, "[{'output_type':'stream','name':'stdout','text':'ab\\n 10%'}]");
    feed(c, "stream", "{'name':'stdout','text':'\\r 20%'}");
    feed(c, "stream", "{'name':'stderr','text':'e'}");
    feed(c, "stream", "{'name':'stdout','text':'c\\b'}");
    feed(c, "stream", "{'name':'stdout','text':''}");
    expect_outputs(c, "[{'output_type':'stream','name':'stdout','text':'ab\\n 20%'},"
                      "{'output_type':'stream','name':'stderr','text':'e'},"
                      "{'output_type':'stream','name':'stdout','text':''}]");
    assert_true(nb_cell_bytes(c) > 8);
    assert_null(nb_cell_free(c));
    assert_null(nb_cell_free(NULL));
}

static void test_displays(void **state)
{
    (void)state;
    struct nb_cell *c = nb_cell_new();
    feed(c, "display_data",
         "{'data':{'text/plain':'1'},'metadata':{},'transient':{'display_id':'x'}}");
    feed(c, "execute_result", "{'data':{'text/plain':'2'},'execution_count':7}");
    feed(c, "stream", "{'name':'stdout','text':'s'}");
    assert_int_equal(feed(c, "update_display_data",
                          "{'data':{'text/plain':'3'},'metadata':{'m':1},"
                          "'transient':{'display_id':'x'}}"),
                     1);
    assert_int_equal(feed(c, "update_display_data",
                          "{'data':{'text/plain':'3'},'metadata':{'m':1},"
                          "'transient':{'display_id':'x'}}"),
                     0); /* the same again */
    assert_int_equal(feed(c, "update_display_data", "{'data':{},'transient':{'display_id':'y'}}"),
                     0);
    assert_int_equal(feed(c, "update_display_data", "{'data':{}}"), 0);
    feed(c, "stream", "{'name':'stdout','text':'t'}"); /* an update does not end a stream */
    expect_outputs(c,
                   "[{'output_type':'display_data','data':{'text/plain':'3'},'metadata':{'m':1}},"
                   "{'output_type':'execute_result','data':{'text/plain':'2'},'metadata':{},"
                   "'execution_count':7},{'output_type':'stream','name':'stdout','text':'st'}]");
    autojson json_t *data = js("{'a/b':1}");
    assert_int_equal(nb_cell_update_display(c, "x", data, NULL), 1);
    assert_int_equal(nb_cell_update_display(c, "", data, NULL), 0);
    nb_cell_free(c);
}

static void test_clear(void **state)
{
    (void)state;
    struct nb_cell *c = nb_cell_new();
    assert_int_equal(feed(c, "clear_output", "{'wait':false}"), 0);
    feed(c, "stream", "{'name':'stdout','text':'a'}");
    assert_int_equal(feed(c, "clear_output", "{'wait':true}"), 0);
    expect_outputs(c, "[{'output_type':'stream','name':'stdout','text':'a'}]");
    feed(c, "stream", "{'name':'stdout','text':'b'}"); /* replaces, does not join */
    expect_outputs(c, "[{'output_type':'stream','name':'stdout','text':'b'}]");
    feed(c, "clear_output", "{'wait':true}");
    feed(c, "error", "{'ename':'E','evalue':'v','traceback':['t']}");
    expect_outputs(c, "[{'output_type':'error','ename':'E','evalue':'v','traceback':['t']}]");
    assert_int_equal(feed(c, "clear_output", "{}"), 1);
    expect_outputs(c, "[]");
    nb_cell_free(c);
}

static void test_execution_count(void **state)
{
    (void)state;
    struct nb_cell *c = nb_cell_new();
    assert_int_equal(nb_cell_execution_count(c), 0);
    assert_int_equal(feed(c, "execute_input", "{'code':'1','execution_count':12}"), 1);
    assert_int_equal(feed(c, "execute_input", "{'execution_count':12}"), 0);
    assert_int_equal(feed(c, "execute_input", "{'execution_count':99999999999}"), 0);
    assert_int_equal(nb_cell_execution_count(c), 12);
    nb_cell_free(c);
}

/* Content that is malformed in any way leaves a valid cell. */
static void test_bad_messages(void **state)
{
    (void)state;
    struct nb_cell *c = nb_cell_new();
    static const char *const types[] = {
        "clear_output", "stream",        "display_data", "execute_result",
        "error",        "execute_input", "comm_msg",     "update_display_data"};
    for (size_t i = 0; i < COUNTOF(types); i++) {
        feed(c, types[i], "[]");
        feed(c, types[i], "{}");
        feed(c, types[i],
             "{'name':5,'text':[],'data':[],'metadata':3,'transient':'x','ename':{},"
             "'traceback':'x','wait':1,'execution_count':'x'}");
    }
    size_t i;
    const json_t *output;
    json_array_foreach(nb_cell_outputs(c), i, output)
        assert_true(json_is_string(json_object_get(output, "output_type")));
    assert_int_equal(json_array_size(nb_cell_outputs(c)), 6);
    nb_cell_free(c);
}

#define NOTEBOOK                                                                             \
    "{'nbformat':4,'nbformat_minor':5,'metadata':{},'cells':["                               \
    "{'cell_type':'code','id':'a','metadata':{},'source':['1\\n','2'],'outputs':["           \
    "{'output_type':'stream','name':'stdout','text':['x\\n','y']}],'execution_count':null}," \
    "{'cell_type':'markdown','id':'b','metadata':{},'source':'text'}]}"

static void test_set_outputs(void **state)
{
    (void)state;
    autojson json_t *nb = js(NOTEBOOK);
    autojson json_t *same = js("[{'output_type':'stream','name':'stdout','text':'x\\ny'}]");
    autojson json_t *other = js("[{'output_type':'stream','name':'stdout','text':'x\\nz'}]");
    struct err e;
    assert_int_equal(nb_set_outputs(nb, "a", same, 0, &e), 0);
    assert_int_equal(nb_set_outputs(nb, "a", same, 3, &e), 1);
    assert_int_equal(nb_set_outputs(nb, "a", same, 3, &e), 0);
    assert_int_equal(nb_set_outputs(nb, "a", other, 3, &e), 1);
    const json_t *cell = json_array_get(json_object_get(nb, "cells"), 0);
    assert_true(json_equal(json_object_get(cell, "outputs"), other));
    assert_int_equal(json_get_int(cell, "execution_count", 0), 3);
    assert_int_equal(nb_set_outputs(nb, "b", other, 3, &e), ERR_NOT_FOUND); /* no code cell */
    assert_int_equal(nb_set_outputs(nb, "zz", other, 3, &e), ERR_NOT_FOUND);
    assert_int_equal(nb_set_outputs(nb, "", other, 3, &e), ERR_NOT_FOUND);
}

static void test_prefix(void **state)
{
    (void)state;
#define OUT(text) "{'output_type':'stream','name':'stdout','text':" text "}"
#define DATA(v) "{'output_type':'display_data','data':{'text/plain':" v "},'metadata':{}}"
    static const struct {
        const char *saved, *full;
        int want;
    } cases[] = {
        {"[]", "[]", 1},
        {"[]", "[" OUT("'a'") "]", 1},
        {"[" OUT("'a'") "]", "[" OUT("'ab'") "]", 1},
        {"[" OUT("'ab'") "]", "[" OUT("'a'") "]", 1}, /* an unfinished line may be overwritten */
        {"[" OUT("'a\\n'") "]", "[" OUT("'a\\nb'") "]", 1},
        {"[" OUT("['a\\n','b']") "]", "[" OUT("'a\\nbc'") "," DATA("'1'") "]", 1},
        {"[" OUT("'x\\n'") "]", "[" OUT("'a\\nb'") "]", 0},
        {"[" OUT("'a\\nb\\n'") "]", "[" OUT("'a\\n'") "]", 0},
        {"[" OUT("' 10%'") "]", "[" OUT("'100%\\n'") "]", 1},
        {"[" OUT("'a'") "," DATA("'1'") "]", "[" OUT("'a'") "," DATA("'1'") "]", 1},
        {"[" OUT("'a'") "," DATA("'1'") "]", "[" OUT("'b'") "," DATA("'1'") "]", 0},
        {"[" DATA("'1'") "]", "[" DATA("'2'") "]", 0},
        {"[" DATA("['1\\n','2']") "]", "[" DATA("'1\\n2'") "]", 1},
        {"[" DATA("'1'") "," DATA("'1'") "]", "[" DATA("'1'") "]", 0},
        {"[" OUT("'a'") "]", "[" DATA("'1'") "]", 0},
        {"null", "[" DATA("'1'") "]", 1},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        autojson json_t *saved = js(cases[i].saved), *full = js(cases[i].full);
        if (nb_outputs_prefix(saved, full) != cases[i].want)
            fail_msg("case %zu", i);
    }
}

static void test_check(void **state)
{
    (void)state;
    static const char *const bad[] = {"[]",
                                      "{}",
                                      "{'nbformat':3,'cells':[]}",
                                      "{'nbformat':4}",
                                      "{'nbformat':4,'cells':{}}",
                                      "{'nbformat':'4','cells':[]}",
                                      "{'nbformat':4,'cells':[],'metadata':[]}",
                                      "{'nbformat':4,'cells':[1]}",
                                      "{'nbformat':4,'cells':[{}]}",
                                      "{'nbformat':4,'cells':[{'cell_type':'code','source':1}]}",
                                      "{'nbformat':4,'cells':[{'cell_type':'code','outputs':{}}]}",
                                      "{'nbformat':4,'cells':[{'cell_type':'code','metadata':1}]}"};
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        autojson json_t *v = js(bad[i]);
        struct err e = {0};
        assert_int_equal(nb_check(v, &e), ERR_INVALID);
        assert_true(strncmp(e.msg, "notebook: ", 10) == 0);
    }
    autojson json_t *good = js(NOTEBOOK), *fresh = nb_new();
    assert_int_equal(nb_check(good, NULL), 0);
    assert_int_equal(nb_check(fresh, NULL), 0);
}

static void test_lines(void **state)
{
    (void)state;
    autojson json_t *nb = js(NOTEBOOK);
    const json_t *code = json_array_get(json_object_get(nb, "cells"), 0);
    autofree char *split = nb_source(code);
    assert_string_equal(split, "1\n2");
    nb_join_lines(nb);
    assert_string_equal(json_get_str(code, "source", ""), "1\n2");
    autofree char *joined = nb_source(code);
    assert_string_equal(joined, "1\n2");
    autofree char *none = nb_source(NULL);
    assert_string_equal(none, "");
    nb_split_lines(nb);
    assert_int_equal(json_array_size(json_object_get(code, "source")), 2);
}

static void test_write(void **state)
{
    (void)state;
    autobuf struct buf out = BUF_INIT(4096);
    autojson json_t *nb = nb_new();
    assert_int_equal(nb_write(nb, &out), 0);
    assert_string_equal(out.data, "{\n \"cells\": [],\n \"metadata\": {},\n \"nbformat\": 4,\n"
                                  " \"nbformat_minor\": 5\n}\n");
    struct buf small = BUF_INIT(10);
    assert_int_equal(nb_write(nb, &small), ERR_TOO_LARGE);
    buf_free(&small);
}

/* Texts of Python's repr() of the same numbers. */
static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {0.1, "0.1"},
        {1.0, "1.0"},
        {-2.5, "-2.5"},
        {100.0, "100.0"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {9999999999999998.0, "9999999999999998.0"},
        {123456789.125, "123456789.125"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {1.5e-7, "1.5e-07"},
        {1e22, "1e+22"},
        {1e100, "1e+100"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {0.30000000000000004, "0.30000000000000004"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        autojson json_t *v = json_real(cases[i].v);
        autobuf struct buf out = BUF_INIT(100);
        assert_int_equal(nb_write_json(v, &out), 0);
        assert_string_equal(out.data, cases[i].text);
    }
}

static void test_upgrade(void **state)
{
    (void)state;
    static const char old[] =
        "{\"nbformat\":3,\"nbformat_minor\":0,\"metadata\":{\"name\":\"x\",\"k\":1},"
        "\"worksheets\":[{\"cells\":["
        "{\"cell_type\":\"heading\",\"level\":2,\"source\":[\"A\\n\",\"b\"]},"
        "{\"cell_type\":\"code\",\"input\":\"1\",\"prompt_number\":7,\"language\":\"python\","
        "\"collapsed\":true,\"outputs\":["
        "{\"output_type\":\"stream\",\"stream\":\"stderr\",\"text\":\"t\"},"
        "{\"output_type\":\"pyout\",\"prompt_number\":7,\"text\":\"1\",\"html\":\"<b>\"},"
        "{\"output_type\":\"pyerr\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]}]}]},"
        "{\"cells\":[{\"cell_type\":\"html\",\"source\":\"<i>\"},5]}]}";
    static const char new[] =
        "{\"nbformat\":4,\"nbformat_minor\":4,\"metadata\":{\"k\":1,\"orig_nbformat\":3},"
        "\"cells\":[{\"cell_type\":\"markdown\",\"metadata\":{},\"source\":\"## A b\"},"
        "{\"cell_type\":\"code\",\"execution_count\":7,\"metadata\":{\"collapsed\":true},"
        "\"source\":\"1\",\"outputs\":["
        "{\"output_type\":\"stream\",\"name\":\"stderr\",\"text\":\"t\"},"
        "{\"output_type\":\"execute_result\",\"execution_count\":7,\"metadata\":{},"
        "\"data\":{\"text/plain\":\"1\",\"text/html\":\"<b>\"}},"
        "{\"output_type\":\"error\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]}]},"
        "{\"cell_type\":\"markdown\",\"metadata\":{},\"source\":\"<i>\"}]}";
    autojson json_t *got = NULL;
    autojson json_t *wanted = NULL;
    assert_int_equal(json_parse(old, sizeof old - 1, &got, NULL), 0);
    assert_int_equal(json_parse(new, sizeof new - 1, &wanted, NULL), 0);
    assert_int_equal(nb_upgrade(got), 1);
    assert_true(json_equal(got, wanted));
    assert_int_equal(nb_upgrade(got), 0);
    assert_int_equal(nb_check(got, NULL), 0);
    autojson json_t *odd = json_pack("{s:i,s:s}", "nbformat", 3, "worksheets", "no list");
    assert_int_equal(nb_upgrade(odd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),      cmocka_unit_test(test_displays),
        cmocka_unit_test(test_clear),        cmocka_unit_test(test_execution_count),
        cmocka_unit_test(test_bad_messages), cmocka_unit_test(test_set_outputs),
        cmocka_unit_test(test_prefix),       cmocka_unit_test(test_check),
        cmocka_unit_test(test_lines),        cmocka_unit_test(test_write),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_upgrade),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
