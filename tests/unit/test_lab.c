#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "gateway/hub_api.h"
#include "gateway/jdirs.h"
#include "gateway/lab.h"
#include "gateway/static.h"
#include "gateway/terminals.h"

static void rendered(const char *tmpl, const char *want)
{
    autojson json_t *config = json_pack("{s:s,s:s,s:s}", "baseUrl", "/a&b/", "fullStaticUrl", "/s",
                                        "treePath", "</script><b>'");
    autobuf struct buf out = BUF_INIT(10000);
    struct err e = {0};
    if (lab_render(tmpl, config, &out, &e) < 0)
        fail_msg("%s: %s", tmpl, e.msg);
    assert_string_equal(buf_str(&out), want);
}

static void template_values(void **state)
{
    (void)state;
    rendered("a{b}c {x", "a{b}c {x");
    rendered("{{ base_url | escape }}x", "/a&amp;b/x");
    rendered("{{page_config.fullStaticUrl}}", "/s");
    rendered("{# gone #}{% set x = y.copy() %}{% block f %}kept{% endblock %}", "kept");
    rendered("1{% if custom_css %}no{{base_url}}{% endif %}2", "12");
    rendered("{{ page_config_full | tojson }}",
             "{\"baseUrl\":\"/a\\u0026b/\",\"fullStaticUrl\":\"/s\","
             "\"treePath\":\"\\u003c/script\\u003e\\u003cb\\u003e\\u0027\"}");
}

static void template_errors(void **state)
{
    (void)state;
    static const char *const bad[] = {"{{ nothing }}", "{{ open", "{% open", "{% if x %} open",
                                      "{{page_config.absent}}"};
    autojson json_t *config = json_object();
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        autobuf struct buf out = BUF_INIT(1000);
        struct err e = {0};
        assert_int_equal(lab_render(bad[i], config, &out, &e), ERR_PARSE);
    }
}

static void workspace_names(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"default", "default-37a8"},
        {"/default", "default-37a8"},
        {"My  Work/space!", "my-workspace-"},
        {"../../etc/passwd", "etcpasswd-"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        autofree char *slug = lab_workspace_slug(cases[i][0]);
        assert_int_equal(strncmp(slug, cases[i][1], strlen(cases[i][1])), 0);
        assert_null(strchr(slug, '/'));
    }
    char longest[1000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    autofree char *slug = lab_workspace_slug(longest);
    assert_true(strlen(slug) < 128);
}

static void merging(void **state)
{
    (void)state;
    autojson json_t *t = json_loads("{\"a\":{\"b\":1,\"c\":2},\"d\":3,\"e\":{\"f\":1}}", 0, NULL);
    autojson json_t *u = json_loads("{\"a\":{\"b\":null},\"d\":null,\"e\":{\"f\":null},"
                                    "\"g\":[1]}",
                                    0, NULL);
    autojson json_t *want = json_loads("{\"a\":{\"c\":2},\"g\":[1]}", 0, NULL);
    jdirs_merge(t, u);
    assert_true(json_equal(t, want));
}

static void safe_names(void **state)
{
    (void)state;
    assert_true(jdirs_name_ok("@a/b-c.d_1", 1));
    static const char *const bad[] = {"",       "/",  "a/",   "/a",  "a//b", "..",
                                      "a/../b", ".a", "a/.b", "a b", "a\\b", "a:b"};
    for (size_t i = 0; i < COUNTOF(bad); i++)
        assert_false(jdirs_name_ok(bad[i], 1));
    assert_false(jdirs_name_ok("a/b", 0));
}

static void hashed_names(void **state)
{
    (void)state;
    assert_true(static_is_hashed("static/1014.073326ef5d98db5e.js"));
    assert_true(static_is_hashed("0031b1860ea4ad75.woff"));
    assert_false(static_is_hashed("index.html"));
    assert_false(static_is_hashed("073326ef5d98db5e/index.js"));
    assert_false(static_is_hashed("a.073326ef5d98db5.js"));
}

static void extension_scan(void **state)
{
    (void)state;
    char dir[] = "/tmp/test-lab-XXXXXX";
    struct err e = {0};
    assert_non_null(mkdtemp(dir));
    static const struct {
        const char *folder, *package;
    } exts[] = {
        {"good", "{\"name\":\"good\",\"jupyterlab\":{\"_build\":{\"load\":\"s/r.js\","
                 "\"extension\":\"./e\"},\"disabledExtensions\":[\"other:x\"],"
                 "\"discovery\":{\"server\":{\"base\":{\"name\":\"good-server\"}}}}}"},
        {"@s/scoped", "{\"name\":\"@s/scoped\",\"jupyterlab\":{\"_build\":{\"load\":\"r.js\","
                      "\"style\":\"./st\"}}}"},
        {"source", "{\"name\":\"source\",\"jupyterlab\":{\"extension\":true}}"},
        {"broken", "{"},
        {"evil", "{\"name\":\"../../evil\",\"jupyterlab\":{\"_build\":{\"load\":\"r.js\"}}}"},
    };
    for (size_t i = 0; i < COUNTOF(exts); i++) {
        autofree char *folder = xasprintf("%s/share/jupyter/labextensions/%s", dir, exts[i].folder);
        autofree char *path = xasprintf("%s/package.json", folder);
        assert_int_equal(fs_mkdirs(folder, 0755, &e), 0);
        assert_int_equal(fs_write_path(path, exts[i].package, strlen(exts[i].package), 0644, &e),
                         0);
    }
    setenv("HOME", dir, 1);
    struct lab_disk *d = lab_disk_read(dir, NULL);
    assert_non_null(lab_ext_find(d, "good"));
    assert_non_null(lab_ext_find(d, "@s/scoped"));
    assert_null(lab_ext_find(d, "source"));
    assert_null(lab_ext_find(d, "../../evil"));
    assert_null(d->tmpl); /* no JupyterLab there */
    assert_non_null(strstr(d->problems, "good: its server half (good-server, absent)"));
    assert_non_null(strstr(d->problems, "source: "));
    assert_non_null(strstr(d->problems, "broken/package.json"));
    autofree char *page = json_dumps(d->page, JSON_SORT_KEYS);
    assert_non_null(strstr(page, "\"other:x\""));
    assert_non_null(strstr(page, "announcements"));
    assert_non_null(strstr(page, "\"style\": \"./st\""));
    lab_disk_free(d);
    struct fs_root root;
    assert_int_equal(fs_root_open("/tmp", &root, &e), 0);
    assert_int_equal(fs_remove_tree(&root, dir + 5, &e), 0);
    fs_root_close(&root);
}

static void terminal_text(void **state)
{
    (void)state;
    assert_int_equal(terminal_whole("abc", 3), 3);
    assert_int_equal(terminal_whole("a\xC3", 2), 1);
    assert_int_equal(terminal_whole("a\xC3\xA9", 3), 3);
    assert_int_equal(terminal_whole("a\xF0\x9F\x98", 4), 1);
    assert_int_equal(terminal_whole("\xA9\xA9\xA9\xA9", 4), 4); /* never waits for more than 3 */
    assert_int_equal(terminal_whole("\xff", 1), 1);
    assert_int_equal(terminal_whole("", 0), 0);
    autobuf struct buf b = BUF_INIT(1000);
    terminal_frame("a\"\\\x1b[0m\xC3\xA9\xff\xED\xA0\x80", 13, &b);
    assert_string_equal(buf_str(&b), "[\"stdout\",\"a\\u0022\\u005c\\u001b[0m\xC3\xA9\\ufffd"
                                     "\\ufffd\\ufffd\\ufffd\"]");
    autojson json_t *parsed = json_loads(b.data, 0, NULL);
    assert_int_equal(json_array_size(parsed), 2);
}

static void hub_scopes(void **state)
{
    (void)state;
    autojson json_t *user = json_loads("{\"scopes\":[\"a\",\"access:servers!user=x\"]}", 0, NULL);
    autojson json_t *yes = json_loads("[\"access:servers!user=x\"]", 0, NULL);
    autojson json_t *no = json_loads("[\"access:servers!user=y\"]", 0, NULL);
    autojson json_t *odd = json_loads("{\"scopes\":\"access\"}", 0, NULL);
    assert_true(hub_scopes_ok(user, yes));
    assert_false(hub_scopes_ok(user, no));
    assert_false(hub_scopes_ok(odd, yes));
    assert_false(hub_scopes_ok(NULL, yes));
    autojson json_t *any = json_loads("{\"scopes\":[\"access:servers\"]}", 0, NULL);
    autojson json_t *part =
        json_loads("{\"scopes\":[\"access\",\"access:servers!\",\"\"]}", 0, NULL);
    assert_true(hub_scopes_ok(any, yes));
    assert_false(hub_scopes_ok(part, yes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(template_values), cmocka_unit_test(template_errors),
        cmocka_unit_test(workspace_names), cmocka_unit_test(merging),
        cmocka_unit_test(safe_names),      cmocka_unit_test(hashed_names),
        cmocka_unit_test(extension_scan),  cmocka_unit_test(terminal_text),
        cmocka_unit_test(hub_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
