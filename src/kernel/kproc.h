/* Kernel processes: plain spawn, signals to their group, reaping, exit causes, clean-up of
 * everything that a kernel left running.
 *
 * The calling process must be a child subreaper (kproc_setup): orphans of kernels become its
 * children and are reaped here. A kernel is the leader of its own session and process group and is
 * killed when the thread that spawned it ends (PR_SET_PDEATHSIG). All calls on the loop thread;
 * nothing here waits.
 */
#ifndef REITOS_KERNEL_KPROC_H
#define REITOS_KERNEL_KPROC_H

#include <sys/types.h>
#include <uv.h>

#include "base/err.h"

#define KPROC_MARK "REITOS_KERNEL_ID" /* environment variable that names a process's kernel */

struct kproc_spec {
    char *const *argv; /* argv[0] is looked up in the PATH of envp */
    char *const *envp;
    const char *cwd;
    const char *log; /* stdout and stderr are appended to this file */
    int keep_fd;     /* becomes descriptor 3; -1: none */
};

/* Becomes subreaper and begins to reap on SIGCHLD. Once per process. */
int kproc_setup(uv_loop_t *loop, struct err *e) WARN_UNUSED;
void kproc_teardown(void);
/* The end of the process is near: waits until its children have ended, for `ms` at most. What was
 * killed a moment ago takes a while to go, and must not outlive us. */
void kproc_await(int ms);

/* Starts a program. When it cannot be executed the child says why in the log and exits with
 * KPROC_NOEXEC: executing may take long on a slow file system, so nobody waits for it here. */
#define KPROC_NOEXEC 127
int kproc_spawn(const struct kproc_spec *s, pid_t *ret, struct err *e) WARN_UNUSED;

/* `cb` runs once, on the loop, after `pid` has been reaped; also when that was moments ago. */
typedef void (*kproc_exit_cb)(void *arg, pid_t pid, int wait_status, int oom);
void kproc_watch(pid_t pid, kproc_exit_cb cb, void *arg);
void kproc_unwatch(pid_t pid); /* forgets it: the process is reaped without a callback */

void kproc_signal(pid_t pid, int sig); /* to the process group that `pid` leads */

/* Sends `sig` to whatever belongs to a kernel: its session and group, descendants of `pid`, and
 * orphans whose environment has KPROC_MARK=`id`. Returns how many processes were found. */
int kproc_sweep(pid_t pid, const char *id, int sig);

/* "killed by signal 9 (SIGKILL)", "exit code 1", "out of memory". Returns `out`. */
#define KPROC_CAUSE_MAX 80
const char *kproc_cause(int wait_status, int oom, char out[KPROC_CAUSE_MAX]);

/* Number in the line "oom_kill N" of a cgroup's memory.events or memory.oom_control; -1: none. */
int64_t kproc_parse_oom(const char *text);

#endif
