#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/loop.h"
#include "kernel/kfiles.h"
#include "kernel/kproc.h"

struct fixture {
    uv_loop_t loop;
    char dir[64], log[96];
    int exits, status;
    pid_t pid;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/reitos-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->log, sizeof f->log, "%s/log", f->dir);
    uv_loop_init(&f->loop);
    assert_int_equal(kproc_setup(&f->loop, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    kproc_teardown();
    assert_int_equal(loop_fini(&f->loop), 0);
    unlink(f->log);
    rmdir(f->dir);
    free(f);
    return 0;
}

static void on_exit_cb(void *arg, pid_t pid, int status, int oom)
{
    struct fixture *f = arg;
    (void)oom;
    f->exits++;
    f->status = status;
    f->pid = pid;
    uv_stop(&f->loop);
}

static pid_t start(struct fixture *f, const char *script, char *const *env)
{
    static char *none[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    struct kproc_spec s = {
        .argv = argv, .envp = env ? env : none, .cwd = f->dir, .log = f->log, .keep_fd = -1};
    pid_t pid = 0;
    assert_int_equal(kproc_spawn(&s, &pid, NULL), 0);
    assert_true(pid > 1);
    return pid;
}

static const char *run(struct fixture *f, const char *script, char cause[KPROC_CAUSE_MAX])
{
    pid_t pid = start(f, script, NULL);
    kproc_watch(pid, on_exit_cb, f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->pid, pid);
    return kproc_cause(f->status, 0, cause);
}

static char *log_text(const struct fixture *f)
{
    autobuf struct buf b = BUF_INIT(65536);
    int rc = fs_read_path(f->log, b.max, &b, NULL); /* the child may not have made it yet */
    return rc == 0 && b.len ? buf_steal(&b) : xstrdup("");
}

static void causes(void **state)
{
    struct fixture *f = *state;
    char c[KPROC_CAUSE_MAX];
    assert_string_equal(run(f, "exit 0", c), "exit code 0");
    assert_string_equal(run(f, "exit 41", c), "exit code 41");
    assert_string_equal(run(f, "kill -9 $$", c), "killed by signal 9 (SIGKILL)");
    assert_string_equal(run(f, "kill -SEGV $$", c), "killed by signal 11 (SIGSEGV)");
    assert_string_equal(run(f, "kill -15 $$", c), "killed by signal 15 (SIGTERM)");
    assert_string_equal(kproc_cause(9, 1, c), "out of memory");
    assert_int_equal(f->exits, 5);
}

static void memory_counters(void **state)
{
    (void)state;
    assert_int_equal(kproc_parse_oom("low 0\nhigh 0\nmax 5\noom 2\noom_kill 3\n"), 3);
    assert_int_equal(kproc_parse_oom("oom_kill_disable 0\nunder_oom 0\noom_kill 17\n"), 17);
    assert_int_equal(kproc_parse_oom("oom_kill_disable 1\n"), -1);
    assert_int_equal(kproc_parse_oom(""), -1);
    assert_int_equal(kproc_parse_oom("oom_kill"), -1);
    assert_int_equal(kproc_parse_oom("oom_kill 3x\n"), -1);
}

static void the_process_is_set_up(void **state)
{
    struct fixture *f = *state;
    char c[KPROC_CAUSE_MAX];
    autofree char *script =
        xasprintf("echo out; echo err >&2; pwd; read x; echo [$x]; "
                  "set -- $(cut -d' ' -f5,6 /proc/$$/stat); [ $1 = $$ ] && [ $2 = $$ ] && "
                  "echo leader; ls /proc/$$/fd | wc -l; grep SigIgn /proc/$$/status");
    signal(SIGPIPE, SIG_IGN);
    assert_string_equal(run(f, script, c), "exit code 0");
    autofree char *text = log_text(f);
    autofree char *want = xasprintf("out\nerr\n%s\n[]\nleader\n", f->dir);
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
    const char *mask = strstr(text, "SigIgn:");
    assert_non_null(mask);
    /* nothing stays ignored; 32 and 33 belong to the C library, whose posix_spawn ignores them */
    assert_int_equal(strtoull(mask + 7, NULL, 16) & ~(3ULL << 31), 0);
}

static void a_program_that_cannot_run(void **state)
{
    struct fixture *f = *state;
    char *argv[] = {(char *)"/no/such/program", NULL};
    struct kproc_spec s = {
        .argv = argv, .envp = argv + 1, .cwd = "/", .log = f->log, .keep_fd = -1};
    pid_t pid;
    assert_int_equal(kproc_spawn(&s, &pid, NULL), 0);
    kproc_watch(pid, on_exit_cb, f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(WEXITSTATUS(f->status), KPROC_NOEXEC);
    autofree char *text = log_text(f);
    assert_non_null(strstr(text, "/no/such/program"));
    s.argv = argv + 1;
    assert_int_equal(kproc_spawn(&s, &pid, NULL), ERR_INVALID);
}

/* Everything that was killed is gone afterwards; what lives on is not waited for longer than said.
 */
static void waiting_for_the_last(void **state)
{
    struct fixture *f = *state;
    pid_t a = start(f, "exec sleep 60", NULL), b = start(f, "exec sleep 60", NULL);
    kproc_signal(a, SIGKILL);
    kproc_await(500); /* for b, in vain */
    assert_int_equal(kill(a, 0), -1);
    assert_int_equal(kill(b, 0), 0);
    kproc_signal(b, SIGKILL);
    kproc_await(10000);
    assert_int_equal(kill(b, 0), -1);
    kproc_await(10000); /* nobody is there: at once */
}

/* The exit may be reaped before anyone watches for it. */
static void a_watch_that_comes_late(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start(f, "exit 7", NULL);
    siginfo_t si;
    waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT);
    for (int i = 0; i < 20; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    kproc_watch(pid, on_exit_cb, f);
    assert_int_equal(f->exits, 0);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->exits, 1);
    assert_int_equal(WEXITSTATUS(f->status), 7);
}

static void nobody_watches(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start(f, "exit 1", NULL);
    kproc_watch(pid, on_exit_cb, f);
    kproc_unwatch(pid);
    for (int i = 0; i < 200 && kill(pid, 0) == 0; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    assert_int_equal(kill(pid, 0), -1); /* reaped */
    assert_int_equal(f->exits, 0);
}

/* A group member, a child with its own session, an orphan that carries the mark. */
static void sweeping(void **state)
{
    struct fixture *f = *state;
    char *env[] = {(char *)"PATH=/usr/bin:/bin", (char *)KPROC_MARK "=kernel-1", NULL};
    pid_t other = start(f, "sleep 100", NULL);
    pid_t pid = start(f,
                      "sleep 100 & setsid sleep 100 & sh -c 'setsid sleep 100 &'; echo up; "
                      "exec sleep 100",
                      env);
    for (int i = 0; i < 300; i++) {
        autofree char *text = log_text(f);
        if (strstr(text, "up"))
            break;
        usleep(10000);
    }
    usleep(100000);
    assert_int_equal(kproc_sweep(pid, "kernel-2", 0), 3); /* the orphan is somebody else's */
    assert_int_equal(kproc_sweep(pid, "kernel-1", 0), 4);
    assert_int_equal(kproc_sweep(pid, "kernel-1", SIGKILL), 4);
    for (int i = 0; i < 300 && kproc_sweep(pid, "kernel-1", SIGKILL) > 0; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(10000);
    }
    assert_int_equal(kproc_sweep(pid, "kernel-1", 0), 0);
    assert_int_equal(kill(other, 0), 0);
    kproc_watch(other, on_exit_cb, f);
    kproc_signal(other, SIGKILL);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->exits, 1);
}

static void files_of_a_kernel(void **state)
{
    struct fixture *f = *state;
    struct kfiles k;
    struct err e = {0};
    assert_int_equal(kfiles_init(&k, f->dir, "0123456789abcdef", &e), 0);
    assert_non_null(strstr(k.ip, "/run/k/0123456789ab"));
    assert_int_equal(strlen(k.key), KFILES_KEY);
    autofree char *none = kfiles_log_tail(&k);
    assert_string_equal(none, "");
    FILE *log = fopen(k.log, "w");
    for (int i = 0; i < 1000; i++)
        fprintf(log, "line %d\n", i);
    fputs("last \x01\n\n", log);
    fclose(log);
    autofree char *tail = kfiles_log_tail(&k);
    assert_int_equal(strncmp(tail, "line 981\n", 9), 0);
    assert_non_null(strstr(tail, "line 999\nlast ?"));
    autojson json_t *record = json_pack("{s:i}", "a", 1);
    assert_int_equal(kfiles_save(&k, record, &e), 0);
    autojson json_t *back = NULL;
    assert_int_equal(kfiles_load(k.dir, &back, &e), 0);
    assert_true(json_equal(record, back));
    kfiles_remove(&k);
    assert_int_equal(access(k.dir, F_OK), -1);
    kfiles_free(&k);
    char path[200];
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(kfiles_init(&k, path, "0123456789abcdef", &e), ERR_INVALID);
    autofree char *kernels = xasprintf("%s/kernels", f->dir);
    rmdir(kernels);
}

int main(void)
{
    json_setup();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(causes, setup, teardown),
        cmocka_unit_test(memory_counters),
        cmocka_unit_test_setup_teardown(the_process_is_set_up, setup, teardown),
        cmocka_unit_test_setup_teardown(a_program_that_cannot_run, setup, teardown),
        cmocka_unit_test_setup_teardown(waiting_for_the_last, setup, teardown),
        cmocka_unit_test_setup_teardown(a_watch_that_comes_late, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_watches, setup, teardown),
        cmocka_unit_test_setup_teardown(sweeping, setup, teardown),
        cmocka_unit_test_setup_teardown(files_of_a_kernel, setup, teardown),
    };
    return cmocka_run_group_tests_name("kproc", tests, NULL, NULL);
}
