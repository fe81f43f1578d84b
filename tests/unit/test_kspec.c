#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"
#include "kernel/kspec.h"

#define GOOD                                                                             \
    "{\"argv\":[\"python\",\"-m\",\"ipykernel_launcher\",\"-f\",\"{connection_file}\"]," \
    "\"display_name\":\"P\",\"language\":\"python\"}"

static char root[64];
static struct kspec_conf conf;
static char *prefix, *python, *jupyter_path, *data_dir, *home;

static const char *fake_env(const char *name)
{
    if (strcmp(name, "JUPYTER_PATH") == 0)
        return jupyter_path;
    if (strcmp(name, "JUPYTER_DATA_DIR") == 0)
        return data_dir;
    if (strcmp(name, "HOME") == 0)
        return home;
    if (strcmp(name, "PATH") == 0)
        return "/nowhere:/bin:/usr/bin";
    if (strcmp(name, "WHO") == 0)
        return "me";
    return NULL;
}

static void put(const char *rel, const char *text, mode_t mode)
{
    struct err e = {0};
    autofree char *path = xasprintf("%s/%s", root, rel);
    autofree char *dir = xstrdup(path);
    *strrchr(dir, '/') = '\0';
    assert_int_equal(fs_mkdirs(dir, 0755, &e), 0);
    assert_int_equal(fs_write_path(path, text, strlen(text), mode, &e), 0);
}

static int setup(void **state)
{
    (void)state;
    strcpy(root, "/tmp/kspec-XXXXXX");
    assert_non_null(mkdtemp(root));
    sys.env = fake_env;
    prefix = xasprintf("%s/venv", root);
    python = xasprintf("%s/venv/bin/python", root);
    home = xasprintf("%s/home", root);
    jupyter_path = data_dir = NULL;
    put("venv/bin/python", "#!/bin/sh\n", 0755);
    conf = (struct kspec_conf){prefix, python, 1, "numpy,pandas", 1};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct fs_root tmp;
    struct err e = {0};
    assert_int_equal(fs_root_open("/tmp", &tmp, &e), 0);
    assert_int_equal(fs_remove_tree(&tmp, root + 5, &e), 0);
    fs_root_close(&tmp);
    free(prefix);
    free(python);
    free(home);
    free(jupyter_path);
    free(data_dir);
    return 0;
}

static json_t *find(const char *name)
{
    json_t *entry = NULL;
    struct err e = {0};
    assert_int_equal(kspec_find(&conf, name, &entry, &e), 0);
    return entry;
}

static json_t *request(const char *name)
{
    autojson json_t *entry = find(name);
    json_t *r = NULL;
    struct err e = {0};
    assert_int_equal(kspec_start_request(&conf, entry, &r, &e), 0);
    return r;
}

static const char *str_at(const json_t *array, size_t i)
{
    return json_string_value(json_array_get(array, i));
}

static const char *display(const char *name)
{
    static char text[64];
    autojson json_t *e = find(name);
    const char *s = json_get_str(json_object_get(e, "spec"), "display_name", "");
    return strncpy(text, s, sizeof text - 1);
}

#define SPEC(name) "{\"argv\":[\"/bin/sh\"],\"display_name\":\"" name "\",\"language\":\"x\"}"

static void test_search_order(void **state)
{
    (void)state;
    jupyter_path = xasprintf("%s/a::%s/b", root, root);
    data_dir = xasprintf("%s/data", root);
    put("a/kernels/one/kernel.json", SPEC("one in a"), 0644);
    put("b/kernels/one/kernel.json", SPEC("one in b"), 0644);
    put("b/kernels/two/kernel.json", SPEC("two in b"), 0644);
    put("data/kernels/two/kernel.json", SPEC("two in data"), 0644);
    put("data/kernels/three/kernel.json", SPEC("three in data"), 0644);
    put("home/.local/share/jupyter/kernels/four/kernel.json", SPEC("four"), 0644);
    put("venv/share/jupyter/kernels/three/kernel.json", SPEC("three in prefix"), 0644);
    assert_string_equal(display("one"), "one in a");
    assert_string_equal(display("two"), "two in b");
    assert_string_equal(display("three"), "three in data");
    json_t *entry = NULL;
    struct err e = {0};
    /* JUPYTER_DATA_DIR stands for the folder in the home */
    assert_int_equal(kspec_find(&conf, "four", &entry, &e), ERR_NOT_FOUND);
    free(data_dir);
    data_dir = NULL;
    assert_string_equal(display("four"), "four");
    assert_string_equal(display("three"), "three in prefix");
}

static void test_names(void **state)
{
    (void)state;
    put("venv/share/jupyter/kernels/My.Kernel-1_x/kernel.json", SPEC("mine"), 0644);
    put("venv/share/jupyter/kernels/bad+name/kernel.json", SPEC("bad"), 0644);
    put("venv/share/jupyter/kernels/nojson/readme", "", 0644);
    assert_string_equal(display("my.kernel-1_x"), "mine");
    assert_string_equal(display("MY.KERNEL-1_X"), "mine");
    const char *none[] = {"bad+name", "nojson", "", ".", "..", "../kernels/my.kernel-1_x", "a/b"};
    for (size_t i = 0; i < COUNTOF(none); i++) {
        json_t *entry = NULL;
        struct err e = {0};
        assert_int_equal(kspec_find(&conf, none[i], &entry, &e), ERR_NOT_FOUND);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *reason;
    } bad[] = {
        {"notjson", "{", "malformed JSON"},
        {"list", "[]", "not an object"},
        {"noargv", "{\"display_name\":\"x\",\"language\":\"x\"}", "argv"},
        {"emptyargv", "{\"argv\":[],\"display_name\":\"x\",\"language\":\"x\"}", "argv"},
        {"numargv", "{\"argv\":[1],\"display_name\":\"x\",\"language\":\"x\"}", "argv"},
        {"blank", "{\"argv\":[\"\"],\"display_name\":\"x\",\"language\":\"x\"}", "no program"},
        {"noname", "{\"argv\":[\"x\"],\"language\":\"x\"}", "display_name"},
        {"nolang", "{\"argv\":[\"x\"],\"display_name\":\"x\",\"language\":1}", "language"},
        {"env", "{\"argv\":[\"x\"],\"display_name\":\"x\",\"language\":\"x\",\"env\":{\"A\":1}}",
         "env"},
        {"meta", "{\"argv\":[\"x\"],\"display_name\":\"x\",\"language\":\"x\",\"metadata\":1}",
         "metadata"},
        {"mode",
         "{\"argv\":[\"x\"],\"display_name\":\"x\",\"language\":\"x\",\"interrupt_mode\":\"no\"}",
         "interrupt_mode"},
    };
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        autofree char *rel = xasprintf("venv/share/jupyter/kernels/%s/kernel.json", bad[i].name);
        put(rel, bad[i].text, 0644);
    }
    put("venv/share/jupyter/kernels/good/kernel.json", GOOD, 0644);
    autobuf struct buf w = BUF_INIT(65536);
    autojson json_t *all = kspec_list(&conf, &w);
    assert_non_null(json_object_get(all, "good"));
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        assert_null(json_object_get(all, bad[i].name));
        autofree char *mark = xasprintf("/%s/kernel.json: ", bad[i].name);
        const char *line = strstr(buf_str(&w), mark);
        assert_non_null(line);
        autofree char *text = xstrndup(line, strcspn(line, "\n"));
        assert_non_null(strstr(text, bad[i].reason));
    }
    /* a broken spec does not hide a good one further down */
    jupyter_path = xasprintf("%s/first", root);
    put("first/kernels/good/kernel.json", "{", 0644);
    assert_string_equal(display("good"), "P");
}

static void test_resources(void **state)
{
    (void)state;
    put("venv/share/jupyter/kernels/r/kernel.json", GOOD, 0644);
    put("venv/share/jupyter/kernels/r/logo-64x64.png", "", 0644);
    put("venv/share/jupyter/kernels/r/logo-svg.svg", "", 0644);
    put("venv/share/jupyter/kernels/r/kernel.js", "", 0644);
    put("venv/share/jupyter/kernels/r/secret.txt", "", 0644);
    put("venv/share/jupyter/kernels/r/logo-dir/x", "", 0644);
    autojson json_t *entry = find("r");
    json_t *res = json_object_get(entry, "resources");
    assert_int_equal(json_object_size(res), 3);
    autofree char *logo = xasprintf("%s/share/jupyter/kernels/r/logo-svg.svg", prefix);
    assert_string_equal(json_get_str(res, "logo-svg.svg", ""), logo);
    assert_non_null(json_object_get(res, "kernel.js"));
    json_t *spec = json_object_get(entry, "spec");
    assert_true(json_is_object(json_object_get(spec, "env")));
    assert_true(json_is_object(json_object_get(spec, "metadata")));
    assert_string_equal(json_get_str(spec, "interrupt_mode", ""), "signal");
}

static void test_default(void **state)
{
    (void)state;
    autojson json_t *r = request("python3");
    assert_string_equal(str_at(json_object_get(r, "argv"), 2), "ipykernel_launcher");
    assert_string_equal(str_at(json_object_get(r, "argv"), 0), python);
}

static void test_default_missing(void **state)
{
    (void)state;
    put("venv/share/jupyter/kernels/python3/kernel.json", GOOD, 0644);
    conf.default_python = "/nowhere/python";
    autojson json_t *entry = find("python3");
    json_t *none = NULL;
    struct err e = {0};
    assert_int_equal(kspec_start_request(&conf, entry, &none, &e), ERR_KERNEL);
    assert_non_null(strstr(e.msg, "/nowhere/python"));
}

static void test_request(void **state)
{
    (void)state;
    put("venv/share/jupyter/kernels/k/kernel.json",
        "{\"argv\":[\"sh\",\"{resource_dir}/run\",\"{prefix}/x{prefix}\",\"{connection_file}\"],"
        "\"display_name\":\"K\",\"language\":\"x\",\"interrupt_mode\":\"message\","
        "\"env\":{\"A\":\"$WHO-${WHO}-$NOBODY-${NOBODY}-$$-$-${\",\"B\":\"\"}}",
        0644);
    autojson json_t *r = request("k");
    json_t *argv = json_object_get(r, "argv");
    autofree char *run = xasprintf("%s/share/jupyter/kernels/k/run", prefix);
    autofree char *twice = xasprintf("%s/x%s", prefix, prefix);
    assert_string_equal(json_get_str(r, "name", ""), "k");
    assert_string_equal(str_at(argv, 0), "/bin/sh");
    assert_string_equal(str_at(argv, 1), run);
    assert_string_equal(str_at(argv, 2), twice);
    assert_string_equal(str_at(argv, 3), "{connection_file}");
    assert_string_equal(json_get_str(r, "interrupt", ""), "message");
    assert_true(json_is_null(json_object_get(r, "zygote")));
    json_t *env = json_object_get(r, "env");
    assert_string_equal(json_get_str(env, "A", ""), "me-me-$NOBODY-${NOBODY}-$-$-${");
    assert_string_equal(json_get_str(env, "B", "?"), "");
}

static void test_missing_program(void **state)
{
    (void)state;
    static const char *programs[] = {"/nowhere/prog", "no-such-program-here", "bin/missing",
                                     "/tmp"};
    for (size_t i = 0; i < COUNTOF(programs); i++) {
        autojson json_t *entry = json_pack("{s:s, s:s, s:{s:[s]}}", "name", "m", "dir", root,
                                           "spec", "argv", programs[i]);
        json_t *r = NULL;
        struct err e = {0};
        assert_int_equal(kspec_start_request(&conf, entry, &r, &e), ERR_KERNEL);
        assert_non_null(strstr(e.msg, programs[i]));
        assert_null(r);
    }
}

/* The preload list of a spec's zygote, "none" when it is not forked. */
static char *preload(const char *argv)
{
    autofree char *text =
        xasprintf("{\"argv\":%s,\"display_name\":\"Z\",\"language\":\"python\"}", argv);
    put("venv/share/jupyter/kernels/z/kernel.json", text, 0644);
    autojson json_t *r = request("z");
    json_t *z = json_object_get(r, "zygote");
    if (!json_is_object(z))
        return xstrdup("none");
    assert_string_equal(json_get_str(z, "python", ""), str_at(json_object_get(r, "argv"), 0));
    struct buf b = BUF_INIT(4096);
    buf_add(&b, "%s", "");
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(z, "preload"), i, item)
        buf_add(&b, "%s%s", i ? "," : "", json_string_value(item));
    return buf_steal(&b);
}

static void check_preload(const char *argv, const char *want)
{
    autofree char *got = preload(argv);
    assert_string_equal(got, want);
}

static void test_zygote(void **state)
{
    (void)state;
    put("conda/bin/python3.12", "#!/bin/sh\n", 0755);
    put("conda/bin/pythonista", "#!/bin/sh\n", 0755);
    autofree char *conda =
        xasprintf("[\"%s/conda/bin/python3.12\",\"-m\",\"ipykernel_launcher\",\"-f\",\"x\"]", root);
    autofree char *other =
        xasprintf("[\"%s/conda/bin/pythonista\",\"-m\",\"ipykernel_launcher\",\"-f\",\"x\"]", root);
    check_preload("[\"python\",\"-m\",\"ipykernel_launcher\",\"-f\",\"x\"]", "numpy,pandas");
    check_preload("[\"python3.11\",\"-m\",\"ipykernel\"]", "numpy,pandas");
    check_preload(conda, "numpy,pandas");
    check_preload(other, "none");
    check_preload("[\"python\",\"-Xfrozen_modules=off\",\"-m\",\"ipykernel_launcher\"]",
                  "-Xfrozen_modules=off,numpy,pandas");
    check_preload("[\"python\",\"-X\",\"utf8\",\"-m\",\"ipykernel_launcher\"]",
                  "-Xutf8,numpy,pandas");
    check_preload("[\"python\",\"-O\",\"-m\",\"ipykernel_launcher\"]", "none");
    check_preload("[\"python\",\"-m\",\"other_kernel\"]", "none");
    check_preload("[\"python\",\"-m\"]", "none");
    check_preload("[\"python\",\"-X\"]", "none");
    check_preload("[\"python\"]", "none");
    check_preload("[\"sh\",\"-m\",\"ipykernel_launcher\"]", "none");
    conf.preload = " numpy, ,scipy,";
    check_preload("[\"python\",\"-m\",\"ipykernel\"]", "numpy,scipy");
    conf.preload = "";
    check_preload("[\"python\",\"-m\",\"ipykernel\"]", "");
    conf.zygote = 0;
    check_preload("[\"python\",\"-m\",\"ipykernel\"]", "none");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(test_search_order), T(test_names),           T(test_malformed),
        T(test_resources),    T(test_default),         T(test_default_missing),
        T(test_request),      T(test_missing_program), T(test_zygote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
