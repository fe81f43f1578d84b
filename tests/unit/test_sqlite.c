/* meta/sqlite: puts, gets, revisions, batches, damaged and foreign files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/loop.h"
#include "meta/meta.h"

struct fixture {
    char dir[64], url[128];
    uv_loop_t loop;
    struct meta *m;
};

/* What the last callback brought. */
struct result {
    int calls, rc;
    size_t n;
    char keys[256], value[256];
    uint64_t revision;
};

static void note(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    struct result *r = arg;
    r->calls++;
    r->rc = rc;
    r->n = n;
    r->keys[0] = r->value[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(r->keys);
        snprintf(r->keys + at, sizeof r->keys - at, "%s ", kv[i].key);
        r->revision = kv[i].revision;
        if (kv[i].value)
            snprintf(r->value, sizeof r->value, "%.*s", (int)kv[i].len, (const char *)kv[i].value);
    }
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/test_sqlite.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->url, sizeof f->url, "sqlite:%s/meta.db", f->dir);
    uv_loop_init(&f->loop);
    assert_int_equal(meta_open(&f->loop, f->url, &f->m, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->m)
        meta_close(f->m);
    assert_int_equal(loop_fini(&f->loop), 0);
    struct fs_root tmp;
    assert_int_equal(fs_root_open("/tmp", &tmp, NULL), 0);
    assert_int_equal(fs_remove_tree(&tmp, f->dir + 5, NULL), 0);
    fs_root_close(&tmp);
    free(f);
    return 0;
}

static void run(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_DEFAULT);
}

static void reopen(struct fixture *f)
{
    meta_close(f->m);
    assert_int_equal(meta_open(&f->loop, f->url, &f->m, NULL), 0);
}

static void test_put_get(void **state)
{
    struct fixture *f = *state;
    struct result put = {0}, get = {0}, none = {0};
    meta_put(f->m, "pin/a b\xc3\xa9%.ipynb", "value", 5, META_ANY, note, &put);
    assert_int_equal(put.calls, 0); /* never inside the call */
    meta_get(f->m, "pin/a b\xc3\xa9%.ipynb", 0, note, &get);
    meta_get(f->m, "pin/a", 0, note, &none);
    run(f);
    assert_int_equal(put.calls, 1);
    assert_int_equal(put.rc, 0);
    assert_int_equal(get.n, 1);
    assert_string_equal(get.value, "value");
    assert_int_equal(get.revision, put.revision);
    assert_int_equal(none.rc, 0);
    assert_int_equal(none.n, 0);
    reopen(f);
    meta_get(f->m, "pin/a b\xc3\xa9%.ipynb", 0, note, &get);
    run(f);
    assert_string_equal(get.value, "value");
    meta_put(f->m, "pin/a b\xc3\xa9%.ipynb", NULL, 0, META_ANY, NULL, NULL);
    meta_get(f->m, "pin/", 1, note, &get);
    run(f);
    assert_int_equal(get.n, 0);
}

static void test_prefix(void **state)
{
    struct fixture *f = *state;
    static const char *const keys[] = {"b/2", "a", "b/1", "b0", "b/\xf4\x8f\xbf\xbf", "b/", "b"};
    for (size_t i = 0; i < COUNTOF(keys); i++)
        meta_put(f->m, keys[i], "", 0, META_ANY, NULL, NULL);
    struct result r = {0}, all = {0};
    meta_get(f->m, "b/", 1, note, &r);
    meta_get(f->m, "", 1, note, &all);
    run(f);
    assert_string_equal(r.keys, "b/ b/1 b/2 b/\xf4\x8f\xbf\xbf ");
    assert_int_equal(all.n, COUNTOF(keys));
}

static void test_revisions(void **state)
{
    struct fixture *f = *state;
    struct result first = {0}, again = {0}, stale = {0}, right = {0}, get = {0};
    meta_put(f->m, "k", "1", 1, 0, note, &first); /* must not exist */
    meta_put(f->m, "k", "2", 1, 0, note, &again);
    run(f);
    assert_int_equal(first.rc, 0);
    assert_int_equal(again.rc, ERR_CONFLICT);
    meta_put(f->m, "k", "3", 1, first.revision + 100, note, &stale);
    meta_put(f->m, "k", "4", 1, first.revision, note, &right);
    meta_get(f->m, "k", 0, note, &get);
    run(f);
    assert_int_equal(stale.rc, ERR_CONFLICT);
    assert_int_equal(right.rc, 0);
    assert_true(right.revision > first.revision);
    assert_string_equal(get.value, "4");
    meta_put(f->m, "k", NULL, 0, first.revision, note, &stale);
    meta_put(f->m, "k", NULL, 0, right.revision, note, &right);
    meta_put(f->m, "k", "5", 1, 0, note, &again);
    run(f);
    assert_int_equal(stale.rc, ERR_CONFLICT);
    assert_int_equal(right.rc, 0);
    assert_int_equal(again.rc, 0);
    assert_true(again.revision > get.revision); /* revisions are never used twice */
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    char *big = calloc(1, META_VALUE_MAX + 1);
    struct result over = {0}, at = {0};
    meta_put(f->m, "over", big, META_VALUE_MAX + 1, META_ANY, note, &over);
    meta_put(f->m, "at", big, META_VALUE_MAX, META_ANY, note, &at);
    assert_int_equal(over.calls, 0);
    run(f);
    free(big);
    assert_int_equal(over.rc, ERR_TOO_LARGE);
    assert_int_equal(at.rc, 0);
}

static void count(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    (void)kv, (void)n;
    assert_int_equal(rc, 0);
    ++*(int *)arg;
}

/* A burst costs few transactions: 5,000 synced one by one would take far longer. */
static void test_burst_and_close(void **state)
{
    struct fixture *f = *state;
    int done = 0;
    uint64_t start = uv_hrtime();
    for (int i = 0; i < 5000; i++) {
        char key[32];
        snprintf(key, sizeof key, "n/%d", i);
        meta_put(f->m, key, key, strlen(key), META_ANY, count, &done);
    }
    meta_close(f->m); /* waits */
    f->m = NULL;
    assert_int_equal(done, 5000);
    assert_true(uv_hrtime() - start < 5000000000);
    assert_int_equal(meta_open(&f->loop, f->url, &f->m, NULL), 0);
    struct result r = {0};
    meta_get(f->m, "n/", 1, note, &r);
    run(f);
    assert_int_equal(r.n, 5000);
}

struct chain {
    struct meta *m;
    int left;
};

static void put_again(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    struct chain *c = arg;
    (void)kv, (void)n;
    assert_int_equal(rc, 0);
    if (c->left-- > 0)
        meta_put(c->m, "chain", "x", 1, META_ANY, put_again, c);
}

static void test_put_in_callback(void **state)
{
    struct fixture *f = *state;
    struct chain c = {f->m, 10};
    put_again(&c, 0, NULL, 0);
    run(f);
    assert_int_equal(c.left, -1);
}

static void test_bad_files(void **state)
{
    struct fixture *f = *state;
    struct err e;
    struct meta *m;
    assert_int_equal(meta_open(&f->loop, "etcd://x", &m, &e), ERR_CONFIG);
    assert_int_equal(meta_open(&f->loop, "sqlite:", &m, &e), ERR_CONFIG);
    assert_true(meta_open(&f->loop, "sqlite:/nonexistent/x.db", &m, &e) < 0);
    assert_non_null(strstr(e.msg, "/nonexistent/x.db"));
    autofree char *path = xasprintf("%s/junk.db", f->dir);
    autofree char *url = xasprintf("sqlite:%s", path);
    assert_int_equal(fs_write_path(path, "this is not a database, not at all ......", 40, 0, &e),
                     0);
    assert_int_equal(meta_open(&f->loop, url, &m, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "not a database"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_put_get, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prefix, setup, teardown),
        cmocka_unit_test_setup_teardown(test_revisions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_burst_and_close, setup, teardown),
        cmocka_unit_test_setup_teardown(test_put_in_callback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
