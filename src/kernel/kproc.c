#include "kernel/kproc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/list.h"
#include "base/sys.h"

#define RECENT 128               /* exits of processes that nobody watched yet */
#define RECENT_US (5 * 1000000L) /* a pid may be reused later */
#define PATH_LIMIT 4096

struct watch {
    struct list link;
    pid_t pid;
    kproc_exit_cb cb;
    void *arg;
};

struct recent {
    pid_t pid;
    int status, oom;
    int64_t when;
};

static struct {
    uv_signal_t sigchld;
    uv_timer_t late; /* delivers exits that came before their kproc_watch() */
    struct list watches;
    struct recent recent[RECENT];
    size_t next_recent;
    char oom_path[PATH_LIMIT];
    int64_t oom_kills;
    struct rlimit files; /* as it was: children get it back */
} st;

int64_t kproc_parse_oom(const char *text)
{
    static const char word[] = "oom_kill ";
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, word, sizeof word - 1) != 0)
            continue;
        char *end;
        int64_t n = strtoll(p + sizeof word - 1, &end, 10);
        return *end == '\n' || !*end ? n : -1;
    }
    return -1;
}

static int64_t read_oom(const char *path)
{
    autobuf struct buf b = BUF_INIT(4096);
    if (!*path || fs_read_path(path, b.max, &b, NULL) < 0)
        return -1;
    return kproc_parse_oom(buf_str(&b));
}

/* The memory controller's counter of this process's cgroup, version 2 or 1; none is no fault. */
static void find_oom_file(void)
{
    autobuf struct buf b = BUF_INIT(65536);
    if (fs_read_path("/proc/self/cgroup", b.max, &b, NULL) < 0 || !b.len)
        return;
    for (char *line = b.data, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = '\0';
        const char *dir = strrchr(line, ':');
        if (!dir)
            continue;
        const char *form = NULL;
        if (strncmp(line, "0::", 3) == 0)
            form = "/sys/fs/cgroup%s/memory.events";
        else if (strstr(line, ":memory:"))
            form = "/sys/fs/cgroup/memory%s/memory.oom_control";
        if (!form)
            continue;
        const char *tail = strchr(form, '%') + 2;
        snprintf(st.oom_path, sizeof st.oom_path, "%.*s%s%s", (int)(tail - 2 - form), form, dir + 1,
                 tail);
        st.oom_kills = read_oom(st.oom_path);
        if (st.oom_kills >= 0)
            return;
    }
    st.oom_path[0] = '\0';
}

static int saw_oom(int status)
{
    int64_t now = read_oom(st.oom_path);
    int hit = now > st.oom_kills && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (now >= 0)
        st.oom_kills = now;
    return hit;
}

static struct watch *find_watch(pid_t pid)
{
    list_foreach(it, &st.watches)
    {
        struct watch *w = container_of(it, struct watch, link);
        if (w->pid == pid)
            return w;
    }
    return NULL;
}

static void deliver(struct watch *w, int status, int oom)
{
    list_remove(&w->link);
    struct watch copy = *w;
    free(w);
    copy.cb(copy.arg, copy.pid, status, oom);
}

static void reap(uv_signal_t *h, int signum)
{
    (void)h;
    (void)signum;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int oom = saw_oom(status);
        struct watch *w = find_watch(pid);
        if (w) {
            deliver(w, status, oom);
            continue;
        }
        st.recent[st.next_recent] = (struct recent){pid, status, oom, sys.mono_us()};
        st.next_recent = (st.next_recent + 1) % RECENT;
    }
}

static struct recent *find_recent(pid_t pid)
{
    for (size_t i = 0; i < RECENT; i++) {
        struct recent *r = &st.recent[i];
        if (r->pid == pid && sys.mono_us() - r->when < RECENT_US)
            return r;
    }
    return NULL;
}

static void deliver_late(uv_timer_t *t)
{
    (void)t;
    for (size_t i = 0; i < RECENT; i++) {
        struct recent r = st.recent[i];
        struct watch *w = r.pid ? find_watch(r.pid) : NULL;
        if (!w)
            continue;
        st.recent[i].pid = 0;
        deliver(w, r.status, r.oom);
    }
}

/* A kernel costs us a dozen descriptors; a hundred of them are over the usual limit. */
static void raise_files(void)
{
    if (getrlimit(RLIMIT_NOFILE, &st.files) < 0)
        return;
    struct rlimit want = {st.files.rlim_max, st.files.rlim_max};
    IGNORE_RESULT(setrlimit(RLIMIT_NOFILE, &want)); /* then it stays as it is */
}

int kproc_setup(uv_loop_t *loop, struct err *e)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return err_errno(e, errno, "becoming the parent of orphans");
    memset(&st, 0, sizeof st);
    list_init(&st.watches);
    find_oom_file();
    raise_files();
    uv_timer_init(loop, &st.late);
    uv_signal_init(loop, &st.sigchld);
    int rc = uv_signal_start(&st.sigchld, reap, SIGCHLD);
    if (rc < 0)
        return err_set(e, ERR_INTERNAL, "watching SIGCHLD: %s", uv_strerror(rc));
    return 0;
}

void kproc_teardown(void)
{
    reap(NULL, 0);
    list_foreach(it, &st.watches)
    {
        list_remove(it);
        free(container_of(it, struct watch, link));
    }
    uv_close((uv_handle_t *)&st.late, NULL);
    uv_close((uv_handle_t *)&st.sigchld, NULL);
}

void kproc_await(int ms)
{
    pid_t pid = 0;
    for (int64_t end = sys.mono_us() + ms * 1000L; pid >= 0 && sys.mono_us() < end;) {
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0)
            uv_sleep(1);
    }
}

void kproc_watch(pid_t pid, kproc_exit_cb cb, void *arg)
{
    struct watch *w = xcalloc(1, sizeof *w);
    *w = (struct watch){.pid = pid, .cb = cb, .arg = arg};
    list_append(&st.watches, &w->link);
    if (find_recent(pid))
        uv_timer_start(&st.late, deliver_late, 0, 0);
}

void kproc_unwatch(pid_t pid)
{
    struct watch *w = find_watch(pid);
    if (w) {
        list_remove(&w->link);
        free(w);
    }
}

/* ---- spawn ---- */

static void die(const char *what, const char *name, int errnum)
{
    char line[512];
    int n = snprintf(line, sizeof line, "reitos: %s %s: %s\n", what, name, strerror(errnum));
    if (n > 0)
        IGNORE_RESULT(write(2, line, (size_t)n)); /* nothing else to tell it to */
    _exit(KPROC_NOEXEC);
}

static void child_setup(const struct kproc_spec *s, pid_t parent)
{
    setsid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(KPROC_NOEXEC);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
    if (st.files.rlim_max)
        IGNORE_RESULT(setrlimit(RLIMIT_NOFILE, &st.files)); /* the child works either way */
    int log = open(s->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (log < 0)
        log = null;
    if (dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(KPROC_NOEXEC);
    unsigned first = 3;
    if (s->keep_fd >= 0) {
        if (s->keep_fd == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(s->keep_fd, 3) < 0)
            die("keeping", "descriptor 3", errno);
        first = 4;
    }
    /* Some libraries open descriptors without close-on-exec. */
    if (syscall(SYS_close_range, first, ~0U, 0) < 0)
        for (int fd = (int)first; fd < 65536; fd++)
            close(fd);
    if (s->cwd && chdir(s->cwd) < 0)
        die("folder", s->cwd, errno);
}

int kproc_spawn(const struct kproc_spec *s, pid_t *ret, struct err *e)
{
    if (!s->argv || !s->argv[0])
        return err_set(e, ERR_INVALID, "empty argv");
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(e, errno, "starting %s", s->argv[0]);
    if (pid == 0) {
        child_setup(s, parent);
        execvpe(s->argv[0], s->argv, s->envp);
        die("cannot run", s->argv[0], errno);
    }
    *ret = pid;
    return 0;
}

void kproc_signal(pid_t pid, int sig)
{
    if (pid > 1 && kill(-pid, sig) < 0 && errno == ESRCH)
        IGNORE_RESULT(kill(pid, sig)); /* before its setsid(); it may have ended by itself */
}

const char *kproc_cause(int status, int oom, char out[KPROC_CAUSE_MAX])
{
    if (oom)
        snprintf(out, KPROC_CAUSE_MAX, "out of memory");
    else if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(out, KPROC_CAUSE_MAX, name ? "killed by signal %d (SIG%s)" : "killed by signal %d",
                 WTERMSIG(status), name);
    } else
        snprintf(out, KPROC_CAUSE_MAX, "exit code %d", WEXITSTATUS(status));
    return out;
}
