/* A connection to reitos-shim: start, talk to and stop kernels. Used by the daemon and by the
 * command line (run, ps, kill, log, kernel-proxy).
 *
 * The shim of a data folder listens on <data>/run/shim.sock. It tells its clients when a kernel's
 * journal has grown; clients read the journal files themselves (kernel/journal.h) at the path
 * given by shimc_journal_dir(). Loop thread only. All callbacks run on the loop, never inside the
 * call that caused them. Requests have a deadline.
 *
 * Kernel model, as the shim reports it (JSON object):
 *   id, name (kernelspec), state ("starting" | "idle" | "busy" | "restarting" | "dead"),
 *   reason ("" or why it died: "killed by signal 9 (SIGKILL)", "exit code 1", "out of memory"),
 *   via ("zygote" | "spare" | "spawn"), pid, started, last_activity (ISO text), head (journal
 *   seq), acked, missed_beats (heartbeats without an answer), journal_error ("" or why its output
 *   cannot be written now: it waits in memory, at most 64 MiB), waiting (queued cells), running
 * (msg_id or ""), running_seq (journal position of that request, 0 when none), execution_count,
 *   annotation (object: opaque to the shim, kept with the kernel; the daemon stores sessions
 *   in it)
 */
#ifndef REITOS_KERNEL_SHIMC_H
#define REITOS_KERNEL_SHIMC_H

#include <uv.h>

#include "base/json.h"
#include "wire/jmsg.h"

struct shimc;

struct shimc_ops {
    void (*grown)(void *arg, const char *kid, uint64_t head);   /* journal has new messages */
    void (*changed)(void *arg, const char *kid, json_t *model); /* borrowed; also for new ones */
    void (*gone)(void *arg, const char *kid);                   /* removed for good */
    void (*down)(void *arg, const struct err *why);             /* the shim is gone */
};

/* `e` is NULL on success; `reply` is borrowed. */
typedef void (*shimc_cb)(void *arg, const struct err *e, json_t *reply);

struct shimc_conf {
    const char *data;      /* data folder */
    const char *shim;      /* path of the reitos-shim program */
    const char *role;      /* "daemon" (NULL), "cli" */
    int grace_s;           /* the shim ends its kernels when nobody is attached for so long */
    int journal_limit_mib; /* per kernel */
    int start;             /* start a shim when none answers */
};

/* Connects (blocking, at most 5 s when the shim has to be started). */
int shimc_open(uv_loop_t *loop, const struct shimc_conf *conf, const struct shimc_ops *ops,
               void *arg, struct shimc **ret, struct err *e) WARN_UNUSED;
/* Detaches: kernels live on for the grace period. */
void shimc_close(struct shimc *c);

/* One operation of docs/protocol.md. `request` is taken; "op" names it. cb may be NULL. */
void shimc_call(struct shimc *c, json_t *request, int timeout_ms, shimc_cb cb, void *arg);
/* Sends a client's message to the kernel (any channel); `m` is borrowed. */
void shimc_send(struct shimc *c, const char *kid, struct jmsg *m);
/* "<data>/kernels/<kid>/journal" in the caller's buffer. */
char *shimc_journal_dir(const struct shimc *c, const char *kid); /* heap string */

#endif
