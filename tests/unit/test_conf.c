#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/conf.h"
#include "base/fs.h"
#include "base/sys.h"

/* An environment of our own: name, value, name, value, NULL. */
static const char *vars[16];

static const char *fake_env(const char *name)
{
    for (size_t i = 0; vars[i]; i += 2)
        if (!strcmp(vars[i], name))
            return vars[i + 1];
    return NULL;
}

static void set_vars(const char *first, ...)
{
    va_list ap;
    size_t n = 0;
    va_start(ap, first);
    for (const char *s = first; s && n < COUNTOF(vars) - 1; s = va_arg(ap, const char *))
        vars[n++] = s;
    va_end(ap);
    vars[n] = NULL;
}

static int setup(void **state)
{
    (void)state;
    sys.env = fake_env;
    set_vars("HOME", "/nonexistent/home", NULL);
    return 0;
}

#define LOAD(c, used, e, ...)                                  \
    __extension__({                                            \
        char *argv_[] = {"reitosd", __VA_ARGS__, NULL};        \
        conf_load(c, (int)COUNTOF(argv_) - 1, argv_, used, e); \
    })

static void test_defaults(void **state)
{
    (void)state;
    struct conf c;
    struct err e = {0};
    char *argv[] = {"reitosd", NULL};
    int used = 7;
    assert_int_equal(conf_load(&c, 1, argv, &used, &e), 0);
    assert_int_equal(used, 0);
    assert_string_equal(c.listen, "127.0.0.1:8888");
    assert_string_equal(c.data, "/nonexistent/home/.local/share/reitos");
    assert_int_equal(c.grace, 60);
    assert_true(c.zygote);
    assert_false(c.cull_busy);
    conf_free(&c);
    set_vars("HOME", "/h", "XDG_DATA_HOME", "/x", NULL);
    assert_int_equal(conf_load(&c, 1, argv, &used, &e), 0);
    assert_string_equal(c.data, "/x/reitos");
    conf_free(&c);
}

static void test_no_home(void **state)
{
    (void)state;
    struct conf c;
    struct err e = {0};
    int used;
    set_vars(NULL, NULL);
    char *argv[] = {"reitosd", NULL};
    assert_int_equal(conf_load(&c, 1, argv, &used, &e), ERR_CONFIG);
    assert_non_null(strstr(e.msg, "--data"));
    assert_int_equal(LOAD(&c, &used, &e, "--data", "/d"), 0);
    assert_string_equal(c.data, "/d");
    conf_free(&c);
}

static void test_flags(void **state)
{
    (void)state;
    struct conf c;
    struct err e = {0};
    int used;
    assert_int_equal(LOAD(&c, &used, &e, "--root", "/r", "--grace=5", "--no-zygote", "--cull-busy",
                          "--token=", "rest", "--grace", "9"),
                     0);
    assert_int_equal(used, 6);
    assert_string_equal(c.root, "/r");
    assert_int_equal(c.grace, 5);
    assert_false(c.zygote);
    assert_true(c.cull_busy);
    assert_string_equal(c.token, "");
    conf_free(&c);
    assert_int_equal(LOAD(&c, &used, &e, "--terminals=off", "--", "--grace"), 0);
    assert_int_equal(used, 2);
    assert_false(c.terminals);
    conf_free(&c);
}

struct bad {
    const char *arg, *arg2, *says;
};

static void test_bad_flags(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"--lissten", "x", "did you mean --listen?"},
        {"--no-zygot", NULL, "did you mean --no-zygote?"},
        {"--qqqqqqqqqqqq", NULL, "--help lists all"},
        {"-v", NULL, "unknown option -v"},
        {"--grace", NULL, "--grace needs a value: --grace SECONDS"},
        {"--grace", "-1", "--grace: \"-1\" is not a whole number"},
        {"--grace=1e3", NULL, "not a whole number"},
        {"--grace=", NULL, "not a whole number"},
        {"--grace=99999999999999999999", NULL, "not a whole number"},
        {"--zygote=maybe", NULL, "--zygote: \"maybe\" is neither true nor false"},
        {"--log=xml", NULL, "--log: \"xml\" is not one of text|json"},
        {"--log=tex", NULL, "not one of"},
        {"--no-grace", NULL, "--no-grace is not an option; --grace SECONDS is"},
        {"--no-terminals=1", NULL, "--no-terminals takes no value"},
        {"--=x", NULL, "unknown option"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct conf c;
        struct err e = {0};
        int used = 42;
        char *argv[] = {"reitosd", (char *)cases[i].arg, (char *)cases[i].arg2, NULL};
        assert_int_equal(conf_load(&c, cases[i].arg2 ? 3 : 2, argv, &used, &e), ERR_CONFIG);
        if (!strstr(e.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].arg, e.msg);
        assert_null(strchr(e.msg, '\n'));
        assert_int_equal(used, 42);
    }
}

static void test_secret_not_repeated(void **state)
{
    (void)state;
    struct conf c;
    struct err e = {0};
    int used;
    assert_int_equal(LOAD(&c, &used, &e, "--tokn=s3cret"), ERR_CONFIG);
    assert_null(strstr(e.msg, "s3cret"));
    assert_non_null(strstr(e.msg, "--token"));
}

static void test_precedence(void **state)
{
    (void)state;
    char path[] = "/tmp/test_conf_XXXXXX";
    int fd = mkstemp(path);
    const char text[] = "[reitos]\ngrace = 1\nspares = 1\nroot = /file\n";
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    set_vars("HOME", "/h", "REITOS_CONFIG", path, "REITOS_GRACE", "2", "REITOS_SPARES", "2",
             "REITOS_CULL_IDLE_TIMEOUT", "77", "REITOS_KERNEL_ID", "other", NULL);
    struct conf c;
    struct err e = {0};
    int used;
    assert_int_equal(LOAD(&c, &used, &e, "--grace", "3"), 0);
    assert_int_equal(c.grace, 3);
    assert_int_equal(c.spares, 2);
    assert_string_equal(c.root, "/file");
    assert_int_equal(c.cull_idle, 77);
    assert_string_equal(c.config, path);
    conf_free(&c);
    set_vars("HOME", "/h", "REITOS_GRACE", "soon", NULL);
    assert_int_equal(LOAD(&c, &used, &e, "--config", path), ERR_CONFIG);
    assert_non_null(strstr(e.msg, "REITOS_GRACE: \"soon\""));
    set_vars("HOME", "/h", NULL);
    unlink(path);
    assert_int_equal(LOAD(&c, &used, &e, "--config", path), ERR_CONFIG);
    assert_non_null(strstr(e.msg, path));
}

static void test_usual_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_conf_XXXXXX", sub[64], path[80];
    struct err e = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(sub, sizeof(sub), "%s/reitos", dir);
    snprintf(path, sizeof(path), "%s/reitos.ini", sub);
    assert_int_equal(fs_mkdirs(sub, 0700, &e), 0);
    assert_int_equal(fs_write_path(path, "[reitos]\nspares=9", 17, 0600, &e), 0);
    set_vars("HOME", "/h", "XDG_CONFIG_HOME", dir, NULL);
    struct conf c;
    int used;
    assert_int_equal(LOAD(&c, &used, &e, "--no-zygote"), 0);
    assert_int_equal(c.spares, 9);
    conf_free(&c);
    unlink(path);
    rmdir(sub);
    rmdir(dir);
}

static int ini(struct conf *c, const char *text, struct err *e)
{
    return conf_parse_ini(c, "x.ini", text, strlen(text), e);
}

static void test_ini(void **state)
{
    (void)state;
    struct conf c;
    struct err e = {0};
    conf_defaults(&c);
    assert_int_equal(ini(&c,
                         "\xef\xbb\xbf; comment\r\n\n[reitos]\r\n  listen = 0.0.0.0:1  ; why\r\n"
                         "# other\nbase-url: /x/\ntoken = a=b;c\ntoken = later\n",
                         &e),
                     0);
    assert_string_equal(c.listen, "0.0.0.0:1");
    assert_string_equal(c.base_url, "/x/");
    assert_string_equal(c.token, "later");
    assert_int_equal(ini(&c, "", &e), 0);
    assert_int_equal(ini(&c, "[reitos]\n  allow-host = a\n  allow-origin = b", &e), 0);
    assert_string_equal(c.allow_host, "a"); /* an indented line does not continue the one above */
    conf_free(&c);
}

static void test_bad_ini(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"[reitos]\n\ngraze = 3\n", NULL, "x.ini:3: unknown option graze; did you mean grace?"},
        {"[reitos]\ngrace = x\n", NULL, "x.ini:2: grace: \"x\" is not a whole number"},
        {"[reitos]\nlog = json\nzygote = perhaps", NULL, "x.ini:3: zygote: \"perhaps\""},
        {"[reitos]\nnonsense\n", NULL, "x.ini:2: neither"},
        {"[reitos\n", NULL, "x.ini:1: neither"},
        {"grace = 1\n", NULL, "x.ini:1: option outside a section"},
        {"[other]\ngrace = 1\n", NULL, "x.ini:2: unknown section [other]"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct conf c;
        struct err e = {0};
        conf_defaults(&c);
        assert_int_equal(ini(&c, cases[i].arg, &e), ERR_CONFIG);
        if (!strstr(e.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].arg, e.msg);
        assert_int_equal(ini(&c, cases[i].arg, NULL), ERR_CONFIG);
        conf_free(&c);
    }
}

static void test_ini_limits(void **state)
{
    (void)state;
    struct conf c;
    struct err e = {0};
    conf_defaults(&c);
    static const char head[] = "[reitos]\nroot = ";
    char text[CONF_LINE_MAX + 64];
    size_t fits = CONF_LINE_MAX - 2 - strlen("root = ");
    memcpy(text, head, sizeof(head) - 1);
    memset(text + sizeof(head) - 1, 'r', sizeof(text) - sizeof(head));
    text[sizeof(head) - 1 + fits] = 0;
    assert_int_equal(ini(&c, text, &e), 0);
    assert_int_equal(strlen(c.root), fits);
    text[sizeof(head) - 1 + fits] = 'r';
    text[sizeof(head) + fits] = 0;
    assert_int_equal(ini(&c, text, &e), ERR_CONFIG);
    assert_string_equal(e.msg, "x.ini:2: the line is too long");
    assert_int_equal(conf_parse_ini(&c, "x.ini", "[reitos]\nro\0ot=1", 16, &e), ERR_CONFIG);
    assert_string_equal(e.msg, "x.ini:2: the line holds a zero byte");
    conf_free(&c);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"run", "status", "kernelspec"};
    char longer[200];
    assert_string_equal(conf_nearest("stats", names, 3), "status");
    assert_string_equal(conf_nearest("kernel-spec", names, 3), "kernelspec");
    assert_string_equal(conf_nearest("rum", names, 3), "run");
    assert_null(conf_nearest("zzzzzz", names, 3));
    assert_null(conf_nearest("tin", names, 3));
    assert_null(conf_nearest("", names, 3));
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = 0;
    assert_null(conf_nearest(longer, names, 3));
}

static void check_width(const char *text, size_t width)
{
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        if (len > width)
            fail_msg("%zu columns: %.*s", len, (int)len, line);
        line += len + (line[len] == '\n');
    }
}

static void test_names_of_other_servers(void **state)
{
    (void)state;
    struct conf c;
    struct err e;
    int used;
    char *port[] = {"p", "--port=9999"}, *folder[] = {"p", "--notebook-dir", "x"};
    assert_int_equal(conf_load(&c, 2, port, &used, &e), ERR_CONFIG);
    assert_string_equal(e.msg, "unknown option --port; did you mean --listen?");
    assert_int_equal(conf_load(&c, 3, folder, &used, &e), ERR_CONFIG);
    assert_string_equal(e.msg, "unknown option --notebook-dir; did you mean --root?");
}

static void test_help(void **state)
{
    (void)state;
    autobuf struct buf b = BUF_INIT(1 << 16);
    conf_help(&b);
    check_width(buf_str(&b), 100);
#define X(field, name, type, def, meta, help) assert_non_null(strstr(buf_str(&b), name));
    CONF_LIST(X)
#undef X
    assert_non_null(strstr(buf_str(&b), "Service:\n  --config FILE"));
    assert_non_null(strstr(buf_str(&b), "\n\nAccess:\n"));
    assert_non_null(strstr(buf_str(&b), "\n\nKernels:\n"));
    assert_non_null(strstr(buf_str(&b), "\n\nFeatures:\n"));
    assert_non_null(strstr(buf_str(&b), "\n\nLogging:\n"));
    assert_non_null(strstr(buf_str(&b), "--no-zygote"));
    assert_non_null(strstr(buf_str(&b), "(default: 60)"));
}

static void test_paths(void **state)
{
    (void)state;
    struct conf c;
    struct err e;
    int used;
    autofree char *cwd = getcwd(NULL, 0);
    autofree char *python = xasprintf("%s/venv/bin/python", cwd);
    char *relative[] = {"p", "--python", "venv/bin/python", "--root", "~/books", "--token", "~/t"};
    assert_int_equal(conf_load(&c, COUNTOF(relative), relative, &used, &e), 0);
    assert_string_equal(c.python, python);
    assert_string_equal(c.root, "/nonexistent/home/books");
    assert_string_equal(c.token, "~/t");
    conf_free(&c);
    char *home[] = {"p", "--python=~/v/bin/python", "--root=~", "--data=a~/b"};
    assert_int_equal(conf_load(&c, COUNTOF(home), home, &used, &e), 0);
    assert_string_equal(c.python, "/nonexistent/home/v/bin/python");
    assert_string_equal(c.root, "~");
    assert_string_equal(c.data, "a~/b");
    conf_free(&c);
    char *absent[] = {"p", "--config", "~/no.ini"};
    assert_int_equal(conf_load(&c, COUNTOF(absent), absent, &used, &e), ERR_CONFIG);
    assert_non_null(strstr(e.msg, "/nonexistent/home/no.ini: No such file"));
}

static void test_man_and_completion(void **state)
{
    (void)state;
    autobuf struct buf b = BUF_INIT(1 << 16);
    conf_man(&b);
    assert_non_null(strstr(buf_str(&b), "Default: \\fB\\&.\\fR\n"));
    assert_non_null(strstr(buf_str(&b), "\\fB\\-\\-cull\\-idle\\-timeout\\fR \\fISECONDS\\fR\n"));
    assert_non_null(strstr(buf_str(&b), ".TP\n\\fB\\-\\-zygote\\fR, \\fB\\-\\-no\\-zygote\\fR\n"));
    buf_clear(&b);
    conf_completion(&b, "reitosd");
    assert_non_null(strstr(buf_str(&b), "complete -F _reitosd reitosd\n"));
    assert_non_null(strstr(buf_str(&b), "--no-terminals "));
    assert_non_null(strstr(buf_str(&b), "--log) COMPREPLY=($(compgen -W 'text json'"));
    buf_clear(&b);
    conf_roff(&b, ".a-b\\n\n'c");
    assert_string_equal(buf_str(&b), "\\&.a\\-b\\en\n\\&'c");
    buf_clear(&b);
    conf_wrap(&b, "aaa bbb  ccc", 4, 2, 9);
    assert_string_equal(buf_str(&b), "aaa\n  bbb ccc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_defaults, setup),
        cmocka_unit_test_setup(test_no_home, setup),
        cmocka_unit_test_setup(test_flags, setup),
        cmocka_unit_test_setup(test_bad_flags, setup),
        cmocka_unit_test_setup(test_secret_not_repeated, setup),
        cmocka_unit_test_setup(test_precedence, setup),
        cmocka_unit_test_setup(test_usual_file, setup),
        cmocka_unit_test_setup(test_ini, setup),
        cmocka_unit_test_setup(test_bad_ini, setup),
        cmocka_unit_test_setup(test_ini_limits, setup),
        cmocka_unit_test_setup(test_nearest, setup),
        cmocka_unit_test_setup(test_names_of_other_servers, setup),
        cmocka_unit_test_setup(test_help, setup),
        cmocka_unit_test_setup(test_paths, setup),
        cmocka_unit_test_setup(test_man_and_completion, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
