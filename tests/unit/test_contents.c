/* The pure parts of contents and files: paths, media types, ranges, turns, pins, trust. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/contents.h"
#include "gateway/mime.h"
#include "gateway/range.h"
#include "gateway/trust.h"

static void test_paths(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"", ""},
        {"/", ""},
        {"a", "a"},
        {"/a//b/", "a/b"},
        {"./a/./b/.", "a/b"},
        {"a/...", "a/..."},
        {"..a/b..", "..a/b.."},
        {" / ", " / "},
    };
    for (size_t i = 0; i < COUNTOF(good); i++) {
        autofree char *path = NULL;
        assert_int_equal(cpath_clean(good[i][0], &path, NULL), 0);
        assert_string_equal(path, good[i][1]);
    }
    static const char *const bad[] = {"..", "a/..", "../a", "a/../b", "/../", "a//.."};
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        char *path = NULL;
        assert_int_equal(cpath_clean(bad[i], &path, NULL), ERR_NOT_FOUND);
        assert_null(path);
    }
    char *longpath = malloc(100001);
    memset(longpath, 'a', 100000);
    longpath[100000] = '\0';
    char *path;
    assert_int_equal(cpath_clean(longpath, &path, NULL), ERR_NOT_FOUND);
    free(longpath);
    assert_true(cpath_hidden(".a") && cpath_hidden("a/.b/c") && !cpath_hidden("a.b/c."));
    autofree char *parent = cpath_parent("a/b/c"), *none = cpath_parent("a");
    assert_string_equal(parent, "a/b");
    assert_string_equal(none, "");
    assert_string_equal(cpath_name("a/b.c"), "b.c");
}

static void test_mime(void **state)
{
    (void)state;
    const char *enc;
    assert_string_equal(mime_guess("a.txt", &enc), "text/plain");
    assert_null(enc);
    assert_string_equal(mime_guess("dir.d/A.PNG", NULL), "image/png");
    assert_string_equal(mime_guess("x.tar.gz", &enc), "application/x-tar");
    assert_string_equal(enc, "gzip");
    assert_string_equal(mime_guess("x.tgz", &enc), "application/x-tar");
    assert_string_equal(enc, "gzip");
    assert_null(mime_guess("x.gz", &enc));
    assert_string_equal(enc, "gzip");
    assert_null(mime_guess("noext", NULL));
    assert_null(mime_guess(".txt", NULL)); /* a name, not an extension */
    assert_null(mime_guess("a.", NULL));
    assert_null(mime_guess("", NULL));
    assert_null(mime_guess("a.tx", NULL));
    assert_null(mime_guess("a.txtx", NULL));
    assert_string_equal(mime_guess("a.c", NULL), "text/plain");
    assert_string_equal(mime_guess("a.3gp", NULL), "audio/3gpp");
    assert_string_equal(mime_guess("a.zip", NULL), "application/zip");
    assert_string_equal(mime_content_type("a.ipynb"), "application/x-ipynb+json");
    assert_string_equal(mime_content_type("a.txt"), "text/plain; charset=UTF-8");
    assert_string_equal(mime_content_type("a.svgz"), "application/gzip");
    assert_string_equal(mime_content_type("a.bz2"), "application/octet-stream");
    assert_string_equal(mime_content_type("a"), "application/octet-stream");
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t size;
        enum range want;
        uint64_t from, len;
    } cases[] = {
        {NULL, 10, RANGE_NONE, 0, 0},
        {"bytes=0-0", 10, RANGE_OK, 0, 1},
        {"bytes=9-9", 10, RANGE_OK, 9, 1},
        {"bytes=2-", 10, RANGE_OK, 2, 8},
        {"bytes=-1", 10, RANGE_OK, 9, 1},
        {"Bytes = 1-2 ", 10, RANGE_OK, 1, 2},
        {"bytes=5-100", 10, RANGE_OK, 5, 5},
        {"bytes=0-9", 10, RANGE_NONE, 0, 0},
        {"bytes=-10", 10, RANGE_NONE, 0, 0},
        {"bytes=10-", 10, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=10-5", 10, RANGE_NONE, 0, 0},
        {"bytes=-0", 10, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=0-", 0, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-5", 0, RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=", 10, RANGE_NONE, 0, 0},
        {"bytes=-", 10, RANGE_NONE, 0, 0},
        {"bytes", 10, RANGE_NONE, 0, 0},
        {"bytes=1", 10, RANGE_NONE, 0, 0},
        {"bytes=1-2,3-4", 10, RANGE_NONE, 0, 0},
        {"bytes=1-2x", 10, RANGE_NONE, 0, 0},
        {"bytes=+1-2", 10, RANGE_NONE, 0, 0},
        {"bytes=99999999999999999999999-", 10, RANGE_NONE, 0, 0},
        {"bytes=0-9223372036854775807", 10, RANGE_NONE, 0, 0},
        {"chunks=1-2", 10, RANGE_NONE, 0, 0},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        uint64_t from = 0, len = 0;
        assert_int_equal(range_parse(cases[i].header, cases[i].size, &from, &len), cases[i].want);
        assert_int_equal(from, cases[i].from);
        assert_int_equal(len, cases[i].len);
    }
}

struct turn {
    struct pathlocks *l;
    char *log;
    char name;
};

static void held(void *arg)
{
    struct turn *t = arg;
    t->log[strlen(t->log)] = t->name;
}

static void test_pathlock(void **state)
{
    (void)state;
    struct pathlocks *l = pathlocks_new();
    char log[8] = "";
    struct turn a = {l, log, 'a'}, b = {l, log, 'b'}, c = {l, log, 'c'}, d = {l, log, 'd'};
    pathlock_take(l, "x", held, &a);
    pathlock_take(l, "x", held, &b);
    pathlock_take(l, "x", held, &c);
    pathlock_take(l, "y", held, &d);
    assert_string_equal(log, "ad");
    pathlock_drop(l, "x");
    assert_string_equal(log, "adb");
    pathlock_drop(l, "x");
    pathlock_drop(l, "x");
    assert_string_equal(log, "adbc");
    assert_false(pathlock_busy(l, "x"));
    assert_true(pathlock_busy(l, "y"));
    pathlock_take(l, "y", held, &a); /* waits for ever: freed with the rest */
    pathlocks_free(l);
}

static void test_pins(void **state)
{
    (void)state;
    struct pins *p = pins_new(NULL);
    struct stat st = {.st_size = 5, .st_ino = 7, .st_mtim = {1, 2}};
    struct pin pin = {.visible_hash = "v",
                      .visible_mtime_ns = 3,
                      .real_mtime_ns = 1000000002,
                      .size = 5,
                      .inode = 7};
    struct pin got;
    assert_false(pins_get(p, "a/n", &st, &got));
    autojson json_t *cells = json_pack("{s:b, s:b}", "c1", 0, "c2", 1);
    pins_set(p, "a/n", &pin, cells);
    assert_true(pins_get(p, "a/n", &st, &got));
    assert_string_equal(got.visible_hash, "v");
    struct stat other = st; /* each of the three tells that someone else wrote */
    other.st_size = 6;
    assert_false(pins_get(p, "a/n", &other, &got));
    other = st;
    other.st_ino = 8;
    assert_false(pins_get(p, "a/n", &other, &got));
    other = st;
    other.st_mtim.tv_nsec = 3;
    assert_false(pins_get(p, "a/n", &other, &got));
    pins_seen(p, "a/n");
    autojson json_t *seen = pins_cells(p, "a/n");
    assert_true(json_is_true(json_object_get(seen, "c1")));
    pins_set(p, "ab", &pin, cells);
    pins_rename(p, "a", "z/y"); /* the folder */
    assert_false(pins_get(p, "a/n", &st, &got));
    assert_true(pins_get(p, "z/y/n", &st, &got));
    assert_true(pins_get(p, "ab", &st, &got)); /* a sibling with the same beginning */
    pins_forget(p, "z");
    assert_false(pins_get(p, "z/y/n", &st, &got));
    autojson json_t *none = pins_cells(p, "z/y/n");
    assert_int_equal(json_object_size(none), 0);
    pins_seen(p, "z/y/n");
    pins_drop(p, "ab");
    pins_drop(p, "ab");
    pins_free(p);
}

static void test_trust(void **state)
{
    (void)state;
    struct trust *t = trust_new(NULL);
    assert_false(trust_has(t, "x"));
    trust_add(t, "first");
    for (int i = 0; i < TRUST_MAX; i++) {
        char hash[16];
        snprintf(hash, sizeof hash, "%d", i);
        trust_add(t, hash);
    }
    assert_false(trust_has(t, "first")); /* the oldest goes */
    assert_true(trust_has(t, "0") && trust_has(t, "65535"));
    trust_store(t);
    trust_free(t);
}

static json_t *nb_of(const char *text)
{
    json_t *nb = NULL;
    assert_int_equal(json_parse(text, strlen(text), &nb, NULL), 0);
    return nb;
}

static void test_trust_marks(void **state)
{
    (void)state;
    autojson json_t *html =
        nb_of("{\"cells\":[{\"cell_type\":\"code\",\"id\":\"a\",\"metadata\":{},\"outputs\":"
              "[{\"output_type\":\"display_data\",\"data\":{\"text/html\":\"x\"}}]},"
              "{\"cell_type\":\"markdown\",\"id\":\"b\",\"metadata\":{}}]}");
    assert_false(notebook_strip_trust(html));
    notebook_mark(html, 1);
    json_t *meta = json_object_get(notebook_cell(html, "a"), "metadata");
    assert_true(json_get_bool(meta, "trusted", 0));
    assert_int_equal(json_object_size(json_object_get(notebook_cell(html, "b"), "metadata")), 0);
    assert_true(notebook_strip_trust(html));
    assert_int_equal(json_object_size(meta), 0);
    autojson json_t *odd = nb_of("{\"cells\":[5,{\"cell_type\":\"code\",\"metadata\":7}]}");
    notebook_mark(odd, 0);
    assert_true(notebook_strip_trust(odd));
    assert_null(notebook_cell(odd, "a"));
    autojson json_t *none = nb_of("{}");
    notebook_mark(none, 1);
    assert_true(notebook_strip_trust(none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),       cmocka_unit_test(test_mime),
        cmocka_unit_test(test_ranges),      cmocka_unit_test(test_pathlock),
        cmocka_unit_test(test_pins),        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_trust_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
