/* Processes of the user. Every program that a gateway starts for a person is started here, so that
 * it can run under that person's uid where the installation has several users. Kernels are started
 * by the shim, which has its own place for this. Loop thread only. */
#ifndef REITOS_GATEWAY_RUNAS_H
#define REITOS_GATEWAY_RUNAS_H

#include <sys/types.h>
#include <uv.h>

#include "base/err.h"

/* Starts the user's login shell on a new pseudo-terminal, in its own session, in folder `cwd`.
 * The environment is the daemon's without its secrets. *ret_fd is the terminal's master side,
 * non-blocking. `user` is the principal; for now it must be who runs the daemon. */
int runas_shell(const char *user, const char *cwd, int *ret_fd, pid_t *ret_pid,
                struct err *e) WARN_UNUSED;

/* Starts argv[0] without a terminal, in its own session and in folder "/", with the same
 * environment. Its stdin is `in`; out[0] and out[1], initialised pipes, read its stdout and stderr.
 * Whether it succeeds or not, the caller closes `process` and the pipes. */
int runas_program(uv_loop_t *loop, const char *user, char *const argv[], int in, uv_pipe_t out[2],
                  uv_process_t *process, uv_exit_cb ended, struct err *e) WARN_UNUSED;

/* Sends `sig` to every process of the session that `leader` began. Returns how many there were. */
int runas_signal_session(pid_t leader, int sig);

#endif
