#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/nb_widgets.h"

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

/* With one buffer, or none. */
static int feed(struct nb_widgets *w, const char *type, const char *content, const char *buffer)
{
    char header[64];
    snprintf(header, sizeof header, "{\"msg_type\":\"%s\"}", type);
    autojson json_t *body = js(content);
    autofree char *text = json_text(body);
    const char *texts[] = {header, "{}", "{}", text, buffer};
    struct slice parts[5];
    for (int i = 0; i < 5; i++)
        parts[i] = (struct slice){texts[i], texts[i] ? strlen(texts[i]) : 0};
    autojmsg struct jmsg *m = NULL;
    assert_int_equal(jmsg_new(JCHAN_IOPUB, parts, buffer ? 5 : 4, &m, NULL), 0);
    return nb_widgets_feed(w, m);
}

static void expect(const struct nb_widgets *w, const char *state)
{
    autojson json_t *nb = json_pack("{s:{}}", "metadata");
    nb_widgets_put(w, nb);
    autojson json_t *want = js(state);
    json_t *kept = json_object_get(json_object_get(json_object_get(nb, "metadata"), "widgets"),
                                   "application/vnd.jupyter.widget-state+json");
    if (!json_equal(json_object_get(kept, "state"), want)) {
        autofree char *got = json_text(nb);
        fail_msg("got %s, want %s", got, state);
    }
    assert_int_equal(json_get_int(kept, "version_major", 0), 2);
    assert_int_equal(json_get_int(kept, "version_minor", 1), 0);
}

#define OPEN(id, state) \
    "{'comm_id':'" id "','target_name':'jupyter.widget','data':{'state':" state "}}"
#define SET(id, data) "{'comm_id':'" id "','data':{'method':'update'," data "}}"

static void test_last_values(void **unused)
{
    (void)unused;
    struct nb_widgets *w = nb_widgets_new();
    assert_int_equal(feed(w, "comm_open", OPEN("a", "{'_model_name':'M','v':1}"), NULL), 1);
    assert_int_equal(feed(w, "comm_msg", SET("a", "'state':{'v':2,'x':null}"), NULL), 1);
    assert_int_equal(
        feed(w, "comm_msg", "{'comm_id':'a','data':{'method':'custom','state':{'v':3}}}", NULL), 0);
    expect(w, "{'a':{'model_name':'M','model_module':'','model_module_version':'',"
              "'state':{'_model_name':'M','v':2,'x':null}}}");
    assert_int_equal(feed(w, "comm_close", "{'comm_id':'a'}", NULL), 1);
    assert_int_equal(feed(w, "comm_close", "{'comm_id':'a'}", NULL), 0);
    assert_int_equal(feed(w, "comm_msg", SET("a", "'state':{'v':4}"), NULL), 0);
    assert_null(nb_widgets_free(w));
}

static void test_buffers(void **unused)
{
    (void)unused;
    struct nb_widgets *w = nb_widgets_new();
    assert_int_equal(feed(w, "comm_open",
                          "{'comm_id':'a','target_name':'jupyter.widget','data':{'state':"
                          "{'_model_name':'M'},'buffer_paths':[['b'],['absent']]}}",
                          "one"),
                     1);
    feed(w, "comm_msg", SET("a", "'state':{},'buffer_paths':[['b']]"), "two");
    feed(w, "comm_msg", SET("a", "'state':{},'buffer_paths':[7,[],[3]]"), "no");
#define HEAD "{'a':{'model_name':'M','model_module':'','model_module_version':'',"
    expect(w, HEAD "'state':{'_model_name':'M'},"
                   "'buffers':[{'path':['b'],'encoding':'base64','data':'dHdv'}]}}");
    feed(w, "comm_msg", SET("a", "'state':{'b':null}"), NULL); /* now without bytes */
    expect(w, HEAD "'state':{'_model_name':'M','b':null}}}");
    nb_widgets_free(w);
}

static void test_what_is_no_widget(void **unused)
{
    (void)unused;
    struct nb_widgets *w = nb_widgets_new();
    autojson json_t *nb = js("{'metadata':{'widgets':'as before'}}");
    autojson json_t *before = json_deep_copy(nb);
    assert_int_equal(feed(w, "comm_open", "{'comm_id':'a','target_name':'other'}", NULL), 0);
    assert_int_equal(feed(w, "comm_open", "[]", NULL), 0);
    assert_int_equal(feed(w, "comm_msg", "7", NULL), 0);
    assert_int_equal(feed(w, "stream", "{'comm_id':'a'}", NULL), 0);
    feed(w, "comm_open", OPEN("b", "{'no model':1}"), NULL);
    feed(w, "comm_open", OPEN("c", "'no object'"), NULL);
    nb_widgets_put(w, nb);
    assert_true(json_equal(nb, before));
    nb_widgets_free(w);
}

static void test_bound(void **unused)
{
    (void)unused;
    struct nb_widgets *w = nb_widgets_new();
    int kept = 0;
    for (int i = 0; i < NB_WIDGETS_MAX + 5; i++) {
        char content[128];
        snprintf(content, sizeof content, OPEN("%d", "{}"), i);
        kept += feed(w, "comm_open", content, NULL);
    }
    assert_int_equal(kept, NB_WIDGETS_MAX);
    nb_widgets_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_values),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_what_is_no_widget),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
