#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/resume.h"

static char path[] = "/tmp/reitos-resume-XXXXXX";

static int setup(void **state)
{
    (void)state;
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    int fd = mkstemp(path);
    close(fd);
    return fd < 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static void survives_reopening(void **state)
{
    (void)state;
    struct resume *r = NULL;
    uint64_t seq = 0;
    assert_int_equal(resume_open(path, &r, NULL), 0);
    assert_int_equal(resume_get(r, "a", &seq), 0);
    resume_set(r, "a", 7);
    resume_set(r, "b", 9);
    resume_set(r, "a", 8);
    resume_close(r);
    assert_int_equal(resume_open(path, &r, NULL), 0);
    assert_int_equal(resume_get(r, "a", &seq), 1);
    assert_int_equal(seq, 8);
    assert_int_equal(resume_furthest(r), 9);
    resume_close(r);
}

static void oldest_gives_way(void **state)
{
    (void)state;
    struct resume *r = NULL;
    char name[16];
    uint64_t seq;
    assert_int_equal(resume_open(path, &r, NULL), 0);
    for (unsigned i = 0; i <= RESUME_SLOTS; i++) {
        snprintf(name, sizeof name, "s%u", i);
        resume_set(r, name, i + 1);
    }
    assert_int_equal(resume_get(r, "s0", &seq), 0);
    assert_int_equal(resume_get(r, "s1", &seq), 1);
    assert_int_equal(seq, 2);
    resume_close(r);
}

static void bad_ids_are_not_kept(void **state)
{
    (void)state;
    struct resume *r = NULL;
    char longest[RESUME_ID_MAX + 1];
    uint64_t seq;
    memset(longest, 'x', RESUME_ID_MAX);
    longest[RESUME_ID_MAX] = '\0';
    assert_int_equal(resume_open(path, &r, NULL), 0);
    resume_set(r, "", 5);
    resume_set(r, longest, 5);
    assert_int_equal(resume_furthest(r), 0);
    assert_int_equal(resume_get(r, longest, &seq), 0);
    longest[RESUME_ID_MAX - 1] = '\0';
    resume_set(r, longest, 5);
    assert_int_equal(resume_get(r, longest, &seq), 1);
    resume_close(r);
}

/* A file of garbage must not be read past its ids. */
static void damaged_file(void **state)
{
    (void)state;
    struct resume *r = NULL;
    uint64_t seq;
    char junk[16384];
    memset(junk, 0xff, sizeof junk);
    int fd = open(path, O_WRONLY);
    assert_true(write(fd, junk, sizeof junk) > 0);
    close(fd);
    assert_int_equal(resume_open(path, &r, NULL), 0);
    assert_int_equal(resume_get(r, "a", &seq), 0);
    resume_set(r, "a", 3);
    assert_int_equal(resume_get(r, "a", &seq), 1);
    resume_close(r);
    assert_true(resume_open("/nonexistent/x", &r, NULL) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(survives_reopening, setup, teardown),
        cmocka_unit_test_setup_teardown(oldest_gives_way, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_ids_are_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
