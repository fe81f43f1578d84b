/* base/fs: paths that try to leave the root, atomic replacement, full disks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"

/* top/root is served; top/outside is not. */
struct fixture {
    char top[64];
    struct fs_root root;
};

static char *at(const struct fixture *f, const char *rel)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", f->top, rel);
    return path[turn];
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->top, "/tmp/test_fs.XXXXXX");
    assert_non_null(mkdtemp(f->top));
    assert_int_equal(mkdir(at(f, "root"), 0755), 0);
    assert_int_equal(mkdir(at(f, "root/sub"), 0755), 0);
    assert_int_equal(mkdir(at(f, "rootkit"), 0755), 0);
    put(at(f, "root/a.txt"), "alpha");
    put(at(f, "root/sub/b.txt"), "beta");
    put(at(f, "outside"), "secret");
    put(at(f, "rootkit/x"), "secret");
    assert_int_equal(fs_root_open(at(f, "root"), &f->root, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    fs_root_close(&f->root);
    struct fs_root tmp;
    assert_int_equal(fs_root_open("/tmp", &tmp, NULL), 0);
    assert_int_equal(fs_remove_tree(&tmp, f->top + 5, NULL), 0);
    fs_root_close(&tmp);
    free(f);
    return 0;
}

static void assert_content(const struct fixture *f, const char *rel, const char *want)
{
    autobuf struct buf b = BUF_INIT(1 << 20);
    struct err e = {0};
    assert_int_equal(fs_read(&f->root, rel, 1 << 20, &b, &e), 0);
    assert_string_equal(buf_str(&b), want);
}

/* Entries of a folder below top, without the dots. */
static int entries(const struct fixture *f, const char *rel)
{
    DIR *d = opendir(at(f, rel));
    assert_non_null(d);
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_root_missing(void **state)
{
    (void)state;
    struct fs_root r;
    struct err e;
    assert_int_equal(fs_root_open("/nonexistent/x", &r, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "/nonexistent/x"));
    assert_int_equal(fs_root_open("/etc/passwd", &r, &e), ERR_NOT_FOUND);
}

static void test_read(void **state)
{
    struct fixture *f = *state;
    assert_content(f, "a.txt", "alpha");
    assert_content(f, "sub/b.txt", "beta");
    assert_content(f, "sub/../a.txt", "alpha");
    autobuf struct buf b = BUF_INIT(100);
    struct err e;
    assert_int_equal(fs_read(&f->root, "a.txt", 5, &b, &e), 0);
    assert_int_equal(fs_read(&f->root, "a.txt", 4, &b, &e), ERR_TOO_LARGE);
    assert_string_equal(buf_str(&b), "alpha"); /* untouched on failure */
    assert_int_equal(fs_read(&f->root, "sub", 100, &b, &e), ERR_INVALID);
    assert_int_equal(fs_read(&f->root, "a.txt/x", 100, &b, &e), ERR_NOT_FOUND);
    struct stat st;
    assert_int_equal(fs_stat(&f->root, "", &st, &e), 0);
    assert_true(S_ISDIR(st.st_mode));
}

static void test_escapes(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(symlink("../outside", at(f, "root/out")), 0);
    assert_int_equal(symlink("..", at(f, "root/up")), 0);
    assert_int_equal(symlink(at(f, "outside"), at(f, "root/abs")), 0);
    assert_int_equal(symlink(at(f, "rootkit"), at(f, "root/sibling")), 0);
    assert_int_equal(symlink("loop", at(f, "root/loop")), 0);
    assert_int_equal(symlink("/proc/self/root", at(f, "root/magic")), 0);
    const char *const bad[] = {
        "../outside", "../missing", "sub/../../outside", "/etc/passwd",   "..",
        "out",        "up/outside", "up/missing",        "abs",           "sibling/x",
        "loop",       "magic/etc",  "../rootkit/x",      "../root/a.txt", "missing",
    };
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        struct err e = {0};
        struct stat st;
        assert_int_equal(fs_stat(&f->root, bad[i], &st, &e), ERR_NOT_FOUND);
        autofree char *want = xasprintf("%s: no such file or folder", bad[i]);
        assert_string_equal(e.msg, want); /* the same whether it exists or not */
        assert_int_equal(fs_open(&f->root, bad[i], O_RDONLY, 0, NULL), ERR_NOT_FOUND);
    }
    assert_int_equal(fs_write(&f->root, "out", "x", 1, 0, NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_write(&f->root, "up/new", "x", 1, 0, NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_write(&f->root, "sibling/x", "x", 1, 0, NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_mkdir(&f->root, "up/dir", 0777, NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_rename(&f->root, "a.txt", "../stolen", NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_rename(&f->root, "../outside", "got", NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_unlink(&f->root, "../outside", NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_remove_tree(&f->root, "..", NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_remove_tree(&f->root, "", NULL), ERR_NOT_FOUND);
    assert_int_equal(fs_remove_tree(&f->root, "sibling", NULL), 0); /* the link only */
    assert_int_equal(access(at(f, "rootkit/x"), F_OK), 0);
}

static void test_links_inside(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(symlink("sub/b.txt", at(f, "root/link")), 0);
    assert_int_equal(symlink(at(f, "root/sub"), at(f, "root/absdir")), 0);
    assert_int_equal(symlink(at(f, "root/sub/b.txt"), at(f, "root/abslink")), 0);
    assert_content(f, "link", "beta");
    assert_content(f, "absdir/b.txt", "beta");
    assert_content(f, "abslink", "beta");
    assert_int_equal(chmod(at(f, "root/sub/b.txt"), 0640), 0);
    assert_int_equal(fs_write(&f->root, "link", "gamma", 5, 0, NULL), 0);
    assert_content(f, "sub/b.txt", "gamma");
    struct stat st;
    assert_int_equal(lstat(at(f, "root/link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode)); /* the link is still one */
    assert_int_equal(stat(at(f, "root/sub/b.txt"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(fs_write(&f->root, "abslink", "delta", 5, 0, NULL), 0);
    assert_int_equal(fs_write(&f->root, "absdir/new", "n", 1, 0, NULL), 0);
    assert_content(f, "sub/b.txt", "delta");
    assert_content(f, "sub/new", "n");
    assert_int_equal(symlink("nowhere", at(f, "root/dangling")), 0);
    assert_int_equal(fs_write(&f->root, "dangling", "x", 1, 0, NULL), ERR_NOT_FOUND);
}

static void test_write_modes(void **state)
{
    struct fixture *f = *state;
    mode_t old = umask(027);
    struct stat st;
    assert_int_equal(fs_write(&f->root, "new", "1", 1, 0, NULL), 0);
    assert_int_equal(fs_stat(&f->root, "new", &st, NULL), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(fs_write(&f->root, "given", "1", 1, 0604, NULL), 0);
    assert_int_equal(fs_stat(&f->root, "given", &st, NULL), 0);
    assert_int_equal(st.st_mode & 07777, 0604);
    assert_int_equal(chmod(at(f, "root/a.txt"), 0755), 0);
    assert_int_equal(fs_write(&f->root, "a.txt", "changed", 7, 0, NULL), 0);
    assert_int_equal(fs_stat(&f->root, "a.txt", &st, NULL), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    umask(old);
    assert_content(f, "a.txt", "changed");
    assert_int_equal(fs_write(&f->root, "sub", "x", 1, 0, NULL), ERR_INVALID);
    assert_int_equal(mkfifo(at(f, "root/fifo"), 0600), 0);
    assert_int_equal(fs_write(&f->root, "fifo", "x", 1, 0, NULL), ERR_INVALID);
    autobuf struct buf b = BUF_INIT(100);
    alarm(5); /* reading a FIFO must not block */
    assert_int_equal(fs_read(&f->root, "fifo", 100, &b, NULL), ERR_INVALID);
    alarm(0);
    assert_int_equal(entries(f, "root"), 5);
}

static void test_writer_abort(void **state)
{
    struct fixture *f = *state;
    struct fs_writer *w;
    assert_int_equal(fs_writer_open(&f->root, "a.txt", 0, &w, NULL), 0);
    assert_int_equal(fs_writer_write(w, "half", 4, NULL), 0);
    assert_content(f, "a.txt", "alpha"); /* nothing is seen before the commit */
    assert_int_equal(entries(f, "root"), 3);
    fs_writer_abort(w);
    fs_writer_abort(NULL);
    assert_int_equal(entries(f, "root"), 2);
    assert_int_equal(fs_writer_open(&f->root, "a.txt", 0, &w, NULL), 0);
    assert_int_equal(fs_writer_write(w, "one", 3, NULL), 0);
    assert_int_equal(fs_writer_write(w, "two", 3, NULL), 0);
    assert_int_equal(fs_writer_commit(w, NULL), 0);
    assert_content(f, "a.txt", "onetwo");
    assert_int_equal(fs_writer_open(&f->root, "missing/a.txt", 0, &w, NULL), ERR_NOT_FOUND);
}

static void test_rename_unlink(void **state)
{
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(fs_rename(&f->root, "a.txt", "sub/b.txt", &e), ERR_EXISTS);
    assert_content(f, "a.txt", "alpha");
    assert_int_equal(fs_rename(&f->root, "a.txt", "sub/c \xc3\xa9 %25+.txt", &e), 0);
    assert_content(f, "sub/c \xc3\xa9 %25+.txt", "alpha");
    assert_int_equal(fs_rename(&f->root, "a.txt", "z", &e), ERR_NOT_FOUND);
    assert_int_equal(fs_mkdir(&f->root, "d", 0777, &e), 0);
    assert_int_equal(fs_mkdir(&f->root, "d", 0777, &e), ERR_EXISTS);
    assert_int_equal(fs_unlink(&f->root, "sub", &e), ERR_EXISTS);
    assert_int_equal(fs_unlink(&f->root, "d", &e), 0);
    assert_int_equal(fs_unlink(&f->root, "d", &e), ERR_NOT_FOUND);
    assert_int_equal(fs_unlink(&f->root, "sub/", &e), ERR_NOT_FOUND);
    assert_int_equal(fs_unlink(&f->root, "sub/b.txt", &e), 0);
    char longname[300];
    memset(longname, 'n', sizeof longname - 1);
    longname[sizeof longname - 1] = '\0';
    assert_int_equal(fs_mkdir(&f->root, longname, 0777, &e), ERR_INVALID);
}

static void test_remove_tree(void **state)
{
    struct fixture *f = *state;
    char rel[512] = "t";
    for (int i = 0; i < 60; i++) {
        assert_int_equal(fs_mkdir(&f->root, rel, 0777, NULL), 0);
        size_t n = strlen(rel);
        snprintf(rel + n, sizeof rel - n, "/f");
        assert_int_equal(fs_write(&f->root, rel, "x", 1, 0, NULL), 0);
        snprintf(rel + n, sizeof rel - n, "/d");
    }
    assert_int_equal(symlink("../../outside", at(f, "root/t/link")), 0);
    assert_int_equal(fs_remove_tree(&f->root, "t", NULL), 0);
    struct stat st;
    assert_int_equal(fs_stat(&f->root, "t", &st, NULL), ERR_NOT_FOUND);
    assert_int_equal(access(at(f, "outside"), F_OK), 0);
    assert_int_equal(fs_remove_tree(&f->root, "a.txt", NULL), 0);
}

static void test_size_limit(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, small = {.rlim_cur = 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char *big = calloc(1, 100000);
    struct err e = {0};
    int rc = fs_write(&f->root, "a.txt", big, 100000, 0, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    free(big);
    assert_int_equal(rc, ERR_FULL);
    assert_content(f, "a.txt", "alpha");
    assert_int_equal(entries(f, "root"), 2);
}

static void test_full_disk(void **state)
{
    struct fixture *f = *state;
    if (mount("tmpfs", at(f, "root/sub"), "tmpfs", 0, "size=64k") < 0)
        skip(); /* needs the right to mount */
    char *big = calloc(1, 1000000);
    assert_int_equal(fs_write(&f->root, "sub/x", "old", 3, 0600, NULL), 0);
    struct err e = {0};
    int rc = fs_write(&f->root, "sub/x", big, 1000000, 0, &e);
    int left = entries(f, "root/sub");
    autobuf struct buf b = BUF_INIT(100);
    int read = fs_read(&f->root, "sub/x", 100, &b, NULL);
    int moved = fs_rename(&f->root, "sub/x", "y", NULL);
    assert_int_equal(umount(at(f, "root/sub")), 0);
    free(big);
    assert_int_equal(rc, ERR_FULL);
    assert_non_null(strstr(e.msg, "sub/x"));
    assert_int_equal(left, 1);
    assert_int_equal(read, 0);
    assert_string_equal(buf_str(&b), "old");
    assert_int_equal(moved, ERR_UNSUPPORTED); /* another file system */
}

static void test_plain_paths(void **state)
{
    struct fixture *f = *state;
    struct err e;
    char *deep = at(f, "m/n/o");
    assert_int_equal(fs_mkdirs(deep, 0700, &e), 0);
    assert_int_equal(fs_mkdirs(deep, 0700, &e), 0);
    struct stat st;
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_true(fs_mkdirs(at(f, "outside/x"), 0700, &e) < 0);
    assert_int_equal(fs_mkdirs(at(f, "outside"), 0700, &e), ERR_EXISTS);
    char *file = at(f, "m/n/o/secret");
    assert_int_equal(fs_write_path(file, "abc", 3, 0600, &e), 0);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(fs_write_path(file, "abcdef", 6, 0, &e), 0);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    autobuf struct buf b = BUF_INIT(100);
    assert_int_equal(fs_read_path(file, 100, &b, &e), 0);
    assert_string_equal(buf_str(&b), "abcdef");
    assert_int_equal(entries(f, "m/n/o"), 1);
    assert_int_equal(fs_write_path(at(f, "no/dir"), "x", 1, 0, &e), ERR_NOT_FOUND);
    assert_int_equal(fs_read_path(at(f, "none"), 100, &b, &e), ERR_NOT_FOUND);
    assert_null(fs_network_type(f->top));
    assert_null(fs_network_type("/nonexistent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root_missing),
        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_escapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_modes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writer_abort, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rename_unlink, setup, teardown),
        cmocka_unit_test_setup_teardown(test_remove_tree, setup, teardown),
        cmocka_unit_test_setup_teardown(test_size_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain_paths, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
