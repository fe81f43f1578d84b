#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "kernel/journal.h"
#include "kernel/segment.h"

struct fixture {
    char base[64];
    char *dir;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    snprintf(f->base, sizeof f->base, "/tmp/test-journal-XXXXXX");
    if (!mkdtemp(f->base))
        return -1;
    f->dir = xasprintf("%s/kernel/journal", f->base);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct fs_root root;
    int rc = fs_root_open("/tmp", &root, NULL);
    if (rc == 0) {
        rc = fs_remove_tree(&root, strrchr(f->base, '/') + 1, NULL);
        fs_root_close(&root);
    }
    free(f->dir);
    free(f);
    return rc;
}

static struct journal *must_open(struct fixture *f, uint64_t limit)
{
    struct err e = {0};
    struct journal *j = NULL;
    if (journal_open(f->dir, limit, &j, &e) < 0)
        fail_msg("%s", e.msg);
    return j;
}

static struct jreader *must_read(struct fixture *f, uint64_t from)
{
    struct jreader *r = NULL;
    assert_int_equal(jreader_open(f->dir, from, &r, NULL), 0);
    return r;
}

static struct jmsg *message(enum jchan ch, const char *type, const char *content, size_t len)
{
    autofree char *head = xasprintf("{\"msg_type\":\"%s\"}", type);
    struct slice parts[4] = {{head, strlen(head)}, {"{}", 2}, {"{}", 2}, {content, len}};
    struct jmsg *m;
    assert_int_equal(jmsg_new(ch, parts, 4, &m, NULL), 0);
    return m;
}

static void append_sized(struct journal *j, const char *type, size_t len)
{
    autofree char *text = xcalloc(1, len + 1);
    memset(text, 'x', len);
    autojmsg struct jmsg *m = message(JCHAN_IOPUB, type, text, len);
    struct err e = {0};
    if (journal_append(j, m, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(m->seq, journal_head(j));
}

static void append_text(struct journal *j, const char *type, const char *text)
{
    autojmsg struct jmsg *m = message(JCHAN_IOPUB, type, text, strlen(text));
    assert_int_equal(journal_append(j, m, NULL), 0);
}

/* Next message must have this position. */
static void expect_seq(struct jreader *r, uint64_t seq)
{
    autojmsg struct jmsg *m = NULL;
    struct err e = {0};
    int rc = jreader_next(r, &m, NULL, &e);
    if (rc < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(rc, seq ? 1 : 0);
    if (seq)
        assert_int_equal(m->seq, seq);
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    assert_int_equal(journal_head(j), 0);
    struct slice parts[6] = {{"{\"a\":1}", 7}, {"{}", 2},     {"", 0},
                             {"{}", 2},        {"\0\1\2", 3}, {"", 0}};
    autojmsg struct jmsg *m = NULL;
    assert_int_equal(jmsg_new(JCHAN_STDIN, parts, 6, &m, NULL), 0);
    assert_int_equal(journal_append(j, m, NULL), 0);
    assert_int_equal(m->seq, 1);
    struct jreader *r = must_read(f, 0);
    autojmsg struct jmsg *got = NULL;
    int64_t when = 0;
    assert_int_equal(jreader_next(r, &got, &when, NULL), 1);
    assert_true(when > 1600000000000000);
    assert_int_equal(got->channel, JCHAN_STDIN);
    assert_int_equal(got->nparts, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(got->parts[i].len, parts[i].len);
        assert_memory_equal(got->parts[i].data, parts[i].data, parts[i].len);
    }
    expect_seq(r, 0);
    jreader_close(r);
    journal_close(j);
}

static void test_tail(void **state)
{
    struct fixture *f = *state;
    struct jreader *none = NULL;
    assert_int_equal(jreader_open(f->dir, 1, &none, NULL), ERR_NOT_FOUND);
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    struct jreader *r = must_read(f, 1), *late = NULL;
    expect_seq(r, 0);
    for (uint64_t i = 1; i <= 2000; i++) {
        append_sized(j, "stream", i % 97 * 200);
        if (i % 3 == 0) {
            expect_seq(r, i - 2);
            expect_seq(r, i - 1);
            expect_seq(r, i);
            expect_seq(r, 0);
        }
    }
    late = must_read(f, 1999);
    expect_seq(late, 1999);
    expect_seq(late, 2000);
    expect_seq(late, 0);
    append_sized(j, "stream", 1);
    expect_seq(late, 2001);
    jreader_close(late);
    jreader_close(r);
    journal_close(j);
}

static size_t count_files(const struct fixture *f)
{
    DIR *d = opendir(f->dir);
    assert_non_null(d);
    size_t n = 0;
    const struct dirent *ent;
    while ((ent = readdir(d)))
        n += ent->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_segments(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    struct jreader *slow = must_read(f, 1);
    expect_seq(slow, 0);
    for (int i = 0; i < 40; i++)
        append_sized(j, "stream", 1 << 20);
    assert_int_equal(count_files(f), 5);
    for (uint64_t i = 1; i <= 40; i++)
        expect_seq(slow, i);
    expect_seq(slow, 0);
    struct jreader *mid = must_read(f, 20);
    for (uint64_t i = 20; i <= 40; i++)
        expect_seq(mid, i);
    expect_seq(mid, 0);
    append_sized(j, "stream", 1);
    expect_seq(mid, 41);
    journal_close(j);
    j = must_open(f, JOURNAL_LIMIT);
    assert_int_equal(journal_head(j), 41);
    append_sized(j, "stream", 1);
    expect_seq(slow, 41);
    expect_seq(slow, 42);
    jreader_close(slow);
    jreader_close(mid);
    journal_close(j);
}

static void test_huge_record(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    append_sized(j, "stream", 10);
    append_sized(j, "stream", 30 << 20);
    append_sized(j, "stream", 10);
    struct jreader *r = must_read(f, 1);
    autojmsg struct jmsg *m = NULL;
    expect_seq(r, 1);
    assert_int_equal(jreader_next(r, &m, NULL, NULL), 1);
    assert_int_equal(m->parts[JPART_CONTENT].len, 30 << 20);
    expect_seq(r, 3);
    expect_seq(r, 0);
    jreader_close(r);
    journal_close(j);
}

static void test_many_parts(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    static struct slice parts[JMSG_MAX_PARTS];
    for (size_t i = 0; i < JMSG_MAX_PARTS; i++)
        parts[i] = (struct slice){"{}", i % 3};
    autojmsg struct jmsg *m = NULL, *got = NULL;
    assert_int_equal(jmsg_new(JCHAN_IOPUB, parts, JMSG_MAX_PARTS, &m, NULL), 0);
    assert_int_equal(journal_append(j, m, NULL), 0);
    struct jreader *r = must_read(f, 1);
    assert_int_equal(jreader_next(r, &got, NULL, NULL), 1);
    assert_int_equal(got->nparts, JMSG_MAX_PARTS);
    assert_int_equal(jmsg_bytes(got), jmsg_bytes(m));
    jreader_close(r);
    journal_close(j);
}

static char *segment_path(const struct fixture *f, uint64_t first)
{
    char name[SEGMENT_NAME_MAX];
    return xasprintf("%s/%s", f->dir, segment_name(first, name));
}

/* Whatever the length at which the machine stopped, whole records stay and positions go on. */
static void test_torn_tail(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    append_sized(j, "stream", 50);
    uint64_t one = journal_bytes(j);
    append_sized(j, "stream", 50);
    journal_close(j);
    autofree char *path = segment_path(f, 1);
    for (uint64_t cut = 1; cut < one; cut += 7) {
        assert_int_equal(truncate(path, (off_t)(2 * one - cut)), 0);
        struct jreader *r = must_read(f, 1);
        expect_seq(r, 1);
        expect_seq(r, 0); /* a torn record is as yet unwritten */
        j = must_open(f, JOURNAL_LIMIT);
        assert_int_equal(journal_head(j), 1);
        append_sized(j, "stream", 50);
        expect_seq(r, 2);
        expect_seq(r, 0);
        jreader_close(r);
        journal_close(j);
    }
}

static void test_damage(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    for (int i = 0; i < 3; i++)
        append_sized(j, "stream", 50);
    autofree char *path = segment_path(f, 1);
    off_t one = (off_t)(journal_bytes(j) / 3);
    autofd int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, one + one - 5), 1);
    struct jreader *r = must_read(f, 1);
    expect_seq(r, 1);
    autojmsg struct jmsg *m = NULL;
    struct err e = {0};
    assert_int_equal(jreader_next(r, &m, NULL, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "00000000000000000001.log"));
    assert_non_null(strstr(e.msg, "checksum"));
    expect_seq(r, 3);
    jreader_close(r);
    /* An impossible length: the rest of the segment is given up. */
    assert_int_equal(pwrite(fd, "\xff\xff\xff\xff", 4, one), 4);
    r = must_read(f, 1);
    expect_seq(r, 1);
    assert_int_equal(jreader_next(r, &m, NULL, &e), ERR_IO);
    expect_seq(r, 0);
    append_sized(j, "stream", 50);
    expect_seq(r, 4);
    jreader_close(r);
    journal_close(j);
    /* At the next start everything from the damage on is cut. */
    j = must_open(f, JOURNAL_LIMIT);
    assert_int_equal(journal_head(j), 1);
    journal_close(j);
}

static void test_limit(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, (uint64_t)21 << 20);
    for (int i = 0; i < 60; i++)
        append_sized(j, "stream", 1 << 20);
    assert_true(journal_bytes(j) > (uint64_t)60 << 20); /* nothing acknowledged, nothing removed */
    struct jreader *r = must_read(f, 1);
    for (uint64_t i = 1; i <= 5; i++)
        expect_seq(r, i);
    journal_ack(j, 7); /* within the first segment */
    assert_true(journal_bytes(j) > (uint64_t)60 << 20);
    journal_ack(j, 1000);
    assert_int_equal(journal_acked(j), 60);
    assert_true(journal_bytes(j) <= (uint64_t)21 << 20);
    assert_int_equal(count_files(f), 3);
    /* The open segment is read to its end, then the oldest that is left follows. */
    uint64_t last = 5, seq = 0;
    for (;;) {
        autojmsg struct jmsg *m = NULL;
        int rc = jreader_next(r, &m, NULL, NULL);
        assert_true(rc >= 0);
        if (rc == 0)
            break;
        seq = m->seq;
        assert_true(seq > last);
        last = seq;
    }
    assert_int_equal(last, 60);
    jreader_close(r);
    journal_close(j);
}

/* Sealing folds; a reader inside the old file is not disturbed. */
static void test_sealing(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    struct jreader *r = must_read(f, 1);
    for (int i = 0; i < 100; i++) {
        autofree char *text = xasprintf("{\"name\":\"stderr\",\"text\":\"\\r%3d%%\"}", i);
        append_text(j, "stream", text);
    }
    for (uint64_t i = 1; i <= 50; i++)
        expect_seq(r, i);
    for (int i = 0; i < 9; i++)
        append_sized(j, "status", 1 << 20);
    assert_int_equal(count_files(f), 2);
    for (uint64_t i = 51; i <= 109; i++)
        expect_seq(r, i);
    expect_seq(r, 0);
    jreader_close(r);
    r = must_read(f, 1); /* a new one sees the last of the hundred, and all else */
    expect_seq(r, 100);
    for (uint64_t i = 101; i <= 109; i++)
        expect_seq(r, i);
    expect_seq(r, 0);
    jreader_close(r);
    journal_close(j);
    j = must_open(f, JOURNAL_LIMIT);
    assert_int_equal(journal_head(j), 109);
    journal_close(j);
}

static void test_full_disk(void **state)
{
    struct fixture *f = *state;
    struct journal *j = must_open(f, JOURNAL_LIMIT);
    append_sized(j, "stream", 100);
    uint64_t before = journal_bytes(j);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = before + 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    autofree char *text = xcalloc(1, 5000);
    autojmsg struct jmsg *m = message(JCHAN_IOPUB, "stream", text, 5000);
    struct err e = {0};
    int rc = journal_append(j, m, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(rc == ERR_FULL || rc == ERR_IO || rc == ERR_TOO_LARGE);
    assert_int_equal(m->seq, 0);
    assert_int_equal(journal_bytes(j), before);
    append_sized(j, "stream", 10);
    struct jreader *r = must_read(f, 1);
    expect_seq(r, 1);
    expect_seq(r, 2);
    expect_seq(r, 0);
    jreader_close(r);
    journal_close(j);
}

static void test_unusable(void **state)
{
    struct fixture *f = *state;
    struct journal *j = NULL;
    struct err e = {0};
    assert_true(journal_open("/proc/nowhere", JOURNAL_LIMIT, &j, &e) < 0);
    assert_null(j);
    journal_close(NULL);
    jreader_close(NULL);
    (void)f;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_round_trip), T(test_tail),      T(test_segments), T(test_huge_record),
        T(test_many_parts), T(test_torn_tail), T(test_damage),   T(test_limit),
        T(test_sealing),    T(test_full_disk), T(test_unusable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
