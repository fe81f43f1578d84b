/* Processes of the user. */
#include "gateway/runas.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"

#define EXEC_FAILED 127

extern char **environ;

/* What programs of the user must not learn from the daemon's environment. */
static int is_secret(const char *entry)
{
    static const char *const names[] = {"REITOS_TOKEN=", "JPY_API_TOKEN=", "JUPYTERHUB_API_TOKEN="};
    for (size_t i = 0; i < COUNTOF(names); i++)
        if (!strncmp(entry, names[i], strlen(names[i])))
            return 1;
    return 0;
}

/* NULL-terminated; entries borrowed from environ. */
static char **make_env(void)
{
    size_t n = 0, o = 0;
    while (environ[n])
        n++;
    char **env = xcalloc(n + 2, sizeof *env);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "TERM=", 5) && !is_secret(environ[i]))
            env[o++] = environ[i];
    env[o] = (char *)"TERM=xterm-256color";
    return env;
}

static const char *login_shell(void)
{
    const char *env = sys.env("SHELL");
    const struct passwd *pw = getpwuid(getuid());
    if (env && *env == '/' && access(env, X_OK) == 0)
        return env;
    if (pw && pw->pw_shell && access(pw->pw_shell, X_OK) == 0 && !strstr(pw->pw_shell, "nologin"))
        return pw->pw_shell;
    return "/bin/sh";
}

/* In the child, between fork and exec: nothing but system calls. */
static void become(const char *tty, const char *cwd, const char *shell, char **env)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int s = 1; s < NSIG; s++)
        sigaction(s, &plain, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    int fd = open(tty, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0 || chdir(cwd) < 0)
        _exit(EXEC_FAILED);
    for (int i = 0; i < 3; i++)
        if (dup2(fd, i) < 0)
            _exit(EXEC_FAILED);
    close_range(3, ~0U, 0);
    char *argv[] = {(char *)shell, (char *)"-l", NULL};
    execve(shell, argv, env);
    _exit(EXEC_FAILED);
}

static int open_master(char tty[64], struct err *e)
{
    autofd int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || grantpt(fd) < 0 || unlockpt(fd) < 0 || ptsname_r(fd, tty, 64))
        return err_errno(e, errno, "no pseudo-terminal");
    const struct winsize size = {.ws_row = 24, .ws_col = 80};
    if (ioctl(fd, TIOCSWINSZ, &size) < 0)
        return err_errno(e, errno, "size of a terminal");
    return STEAL_FD(fd);
}

int runas_shell(const char *user, const char *cwd, int *ret_fd, pid_t *ret_pid, struct err *e)
{
    (void)user;
    char tty[64];
    autofd int fd = open_master(tty, e);
    if (fd < 0)
        return e ? e->code : ERR_IO;
    autofree char **env = make_env();
    const char *shell = login_shell();
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(e, errno, "no process for a terminal");
    if (pid == 0)
        become(tty, cwd, shell, env);
    *ret_fd = STEAL_FD(fd);
    *ret_pid = pid;
    return 0;
}

int runas_program(uv_loop_t *loop, const char *user, char *const argv[], int in, uv_pipe_t out[2],
                  uv_process_t *process, uv_exit_cb ended, struct err *e)
{
    (void)user;
    autofree char **env = make_env();
    uv_stdio_container_t io[3] = {{.flags = UV_INHERIT_FD, .data.fd = in}};
    for (int i = 0; i < 2; i++) {
        io[i + 1].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
        io[i + 1].data.stream = (uv_stream_t *)&out[i];
    }
    const uv_process_options_t options = {.file = argv[0],
                                          .args = (char **)argv,
                                          .env = env,
                                          .cwd = "/",
                                          .flags = UV_PROCESS_DETACHED,
                                          .stdio_count = 3,
                                          .stdio = io,
                                          .exit_cb = ended};
    int rc = uv_spawn(loop, process, &options);
    return rc < 0 ? err_errno(e, -rc, "%s could not be started", argv[0]) : 0;
}

/* The session of a process, from /proc/PID/stat: the fourth field after the name in brackets. */
static long session_of(const char *pid)
{
    autofree char *path = xasprintf("/proc/%s/stat", pid);
    autobuf struct buf text = BUF_INIT(4096);
    if (fs_read_path(path, 4096, &text, NULL) < 0)
        return -1; /* it has just ended */
    const char *p = strrchr(buf_str(&text), ')');
    if (!p)
        return -1;
    p++;
    for (int field = 0; field < 4; field++) /* after state, parent and group */
        p += strspn(p, " ") + (field < 3 ? strcspn(p + strspn(p, " "), " ") : 0);
    char *end;
    long session = strtol(p, &end, 10);
    return end == p ? -1 : session;
}

int runas_signal_session(pid_t leader, int sig)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *it; d && (it = readdir(d));) {
        if (!isdigit((unsigned char)it->d_name[0]) || session_of(it->d_name) != leader)
            continue;
        if (kill((pid_t)strtol(it->d_name, NULL, 10), sig) == 0)
            n++;
    }
    if (d)
        closedir(d);
    return n;
}
