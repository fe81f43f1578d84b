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
#define LOG_MAX (16 << 20)

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

/* In the second child: nothing of the starter is left but the environment. */
static void exec_shim(const struct shimc_conf *conf, const char *log, char *const *argv)
{
    int out = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(out < 0 ? null : out, 2) < 0)
        _exit(127);
    if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
        for (int fd = 3; fd < 65536; fd++)
            close(fd);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
    if (chdir("/") == 0)
        execv(conf->shim, argv);
    static const char text[] = "reitos: cannot run reitos-shim\n";
    IGNORE_RESULT(write(2, text, sizeof text - 1)); /* nothing else to tell it to */
    _exit(127);
}

/* Starts it as nobody's child, in a session of its own. */
static int spawn_shim(const struct shimc_conf *conf, const char *log, struct err *e)
{
    char grace[16], limit[16];
    snprintf(grace, sizeof grace, "%d", conf->grace_s);
    snprintf(limit, sizeof limit, "%d", conf->journal_limit_mib ? conf->journal_limit_mib : 1024);
    autofree char *data = realpath(conf->data, NULL);
    if (!data)
        return err_errno(e, errno, "%s", conf->data);
    char *argv[] = {(char *)conf->shim,
                    (char *)"--data",
                    data,
                    (char *)"--grace",
                    grace,
                    (char *)"--journal-limit",
                    limit,
                    NULL};
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(e, errno, "starting reitos-shim");
    if (pid == 0) {
        setsid();
        pid_t second = fork();
        if (second == 0)
            exec_shim(conf, log, argv);
        _exit(second < 0);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

/* The last line of the log, for an error message. */
static char *last_line(const char *log)
{
    autobuf struct buf b = BUF_INIT(LOG_MAX);
    if (fs_read_path(log, LOG_MAX, &b, NULL) < 0 || !b.len)
        return xstrdup("it left no log");
    while (b.len && b.data[b.len - 1] == '\n')
        b.data[--b.len] = '\0';
    const char *nl = strrchr(b.data, '\n');
    return xstrndup(nl ? nl + 1 : b.data, 500);
}

static int wait_for(const char *path, const char *log, struct err *e)
{
    int64_t until = sys.mono_us() + START_US;
    for (;;) {
        int fd = connect_to(path, e);
        if (fd != ERR_UNAVAILABLE)
            return fd;
        if (sys.mono_us() > until)
            break;
        poll(NULL, 0, 2);
    }
    autofree char *line = last_line(log);
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
    struct stat st;
    if (stat(log, &st) == 0 && st.st_size > LOG_MAX)
        IGNORE_RESULT(truncate(log, 0)); /* a log is no reason not to start */
    if ((rc = spawn_shim(conf, log, e)) < 0)
        return rc;
    return wait_for(path, log, e);
}
