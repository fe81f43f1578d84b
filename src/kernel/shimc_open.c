#include "kernel/shimc_open.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"

#define START_US 5000000
#define OTHER_US 500000
#define LOG_MAX ((size_t)16 << 20)
#define LIMIT_MIB 1024

int err_code_of(const char *name)
{
    static const struct {
        const char *name;
        int code;
    } codes[] = {
#define X(id, text, http, exitcode) {#id, ERR_##id},
        ERR_LIST(X)
#undef X
    };
    for (size_t i = 0; i < COUNTOF(codes); i++)
        if (strcmp(codes[i].name, name) == 0)
            return codes[i].code;
    return ERR_INTERNAL;
}

static int connect_to(const char *path, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return err_set(e, ERR_INVALID, "%s: path too long for a socket; use a shorter data folder",
                       path);
    memcpy(a.sun_path, path, strlen(path));
    autofd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_errno(e, errno, "socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return STEAL_FD(fd);
    if (errno == ENOENT || errno == ECONNREFUSED)
        return err_set(e, ERR_UNAVAILABLE, "no reitos-shim runs for this data folder");
    return err_errno(e, errno, "%s", path);
}

/* In the second child: nothing of the starter is left but the environment, and descriptor 3, the
 * end of a pipe by which the starter sees whether the shim still runs. */
static void exec_shim(char *const *argv, const char *log, int alive)
{
    int out = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(out < 0 ? null : out, 2) < 0)
        _exit(127);
    if (alive == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(alive, 3) < 0)
        _exit(127);
    if (syscall(SYS_close_range, 4, ~0U, 0) < 0)
        for (int fd = 4; fd < 65536; fd++)
            close(fd);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
    if (chdir("/") == 0)
        execv(argv[0], argv);
    static const char text[] = "reitos: cannot run reitos-shim\n";
    IGNORE_RESULT(write(2, text, sizeof text - 1)); /* nothing else to tell it to */
    _exit(127);
}

/* Starts it as nobody's child, in a session of its own. Returns the other end of the pipe. */
static int spawn_shim(const struct shimc_conf *conf, const char *log, struct err *e)
{
    autofree char *grace = xasprintf("%d", conf->grace_s);
    autofree char *limit =
        xasprintf("%d", conf->journal_limit_mib ? conf->journal_limit_mib : LIMIT_MIB);
    autofree char *data = realpath(conf->data, NULL);
    autofree char *shim = realpath(conf->shim, NULL);
    if (!data || !shim)
        return err_errno(e, errno, "%s", data ? conf->shim : conf->data);
    char *argv[] = {shim,  (char *)"--data",          data,  (char *)"--grace",
                    grace, (char *)"--journal-limit", limit, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, errno, "starting reitos-shim");
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        pid_t second = fork();
        if (second == 0)
            exec_shim(argv, log, ends[1]);
        _exit(second < 0);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return err_errno(e, errno, "starting reitos-shim");
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return ends[0];
}

static size_t log_size(const char *log)
{
    struct stat st;
    return stat(log, &st) == 0 ? (size_t)st.st_size : 0;
}

/* The last line of the log after what was there before, for an error message. */
static char *last_line(const char *log, size_t before)
{
    autobuf struct buf b = BUF_INIT(2 * LOG_MAX);
    if (fs_read_path(log, b.max, &b, NULL) < 0 || b.len <= before)
        return xstrdup("it said nothing");
    while (b.len && b.data[b.len - 1] == '\n')
        b.data[--b.len] = '\0';
    const char *nl = strrchr(b.data, '\n');
    return xstrndup(nl ? nl + 1 : b.data, 500);
}

static int wait_for(const char *path, int alive, struct err *e)
{
    int64_t until = sys.mono_us() + START_US;
    for (int ended = 0;;) {
        int fd = connect_to(path, e);
        if (fd != ERR_UNAVAILABLE || sys.mono_us() > until)
            return fd;
        struct pollfd p = {.fd = ended ? -1 : alive, .events = POLLIN};
        if (poll(&p, 1, 2) > 0) { /* perhaps in favour of one that another client starts */
            ended = 1;
            until = sys.mono_us() + OTHER_US;
        }
    }
}

static int start(const struct shimc_conf *conf, const char *path, const char *log, struct err *e)
{
    size_t before = log_size(log);
    if (before > LOG_MAX && truncate(log, 0) == 0)
        before = 0;
    autofd int alive = spawn_shim(conf, log, e);
    if (alive < 0)
        return alive;
    int fd = wait_for(path, alive, e);
    if (fd != ERR_UNAVAILABLE)
        return fd;
    autofree char *line = last_line(log, before);
    return err_set(e, ERR_UNAVAILABLE, "reitos-shim does not start: %s", line);
}

int shimc_connect(const struct shimc_conf *conf, struct err *e)
{
    autofree char *path = xasprintf("%s/run/shim.sock", conf->data);
    autofree char *log = xasprintf("%s/run/shim.log", conf->data);
    autofree char *run = xasprintf("%s/run", conf->data);
    int fd = connect_to(path, e);
    if (fd != ERR_UNAVAILABLE || !conf->start)
        return fd;
    if (access(conf->shim, X_OK) < 0)
        return err_errno(e, errno, "%s", conf->shim);
    int rc = fs_mkdirs(run, 0700, e);
    if (rc < 0)
        return rc;
    return start(conf, path, log, e);
}
