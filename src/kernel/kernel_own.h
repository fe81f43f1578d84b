/* Shared by kernel.c (object and model), kernel_life.c (processes) and kernel_msg.c (messages). */
#ifndef REITOS_KERNEL_KERNEL_OWN_H
#define REITOS_KERNEL_KERNEL_OWN_H

#include "base/loop.h"
#include "base/sys.h"
#include "kernel/execq.h"
#include "kernel/journal.h"
#include "kernel/kernel.h"
#include "kernel/kfiles.h"
#include "kernel/kproc.h"

#define KERNEL_HELD_MAX 10000 /* messages that wait for a connection or for kernel_info */

struct held {
    struct list link;
    struct jmsg *m;
};

struct kernel {
    struct kernel_link link;
    const struct kernel_host *host;
    char id[SYS_UUID_MAX];
    enum kstate state;
    json_t *spec; /* the start request */
    json_t *annotation;
    struct kfiles files;

    /* process */
    pid_t pid, old_pid; /* old_pid: the last one, while what it left is swept up */
    const char *via;
    char *reason;
    int64_t started_us, ready_us; /* ready_us: monotonic, 0 not ready */
    struct krestarts restarts;
    struct loop_timer *timer; /* next step of stopping, or the next launch */
    struct loop_timer *drain; /* after its exit: until all that it said has arrived */
    int drain_ticks, leftovers;
    uint64_t drain_count;
    int forking;    /* a zygote was asked */
    int escalation; /* next: 0 SIGTERM, 1 SIGKILL */
    int ready_once, shown, keep, restart_asked;
    int wait_status, oom;
    enum { ASKED_NOT, ASKED_SHUTDOWN, ASKED_RESTART } asked; /* by a client's shutdown_request */

    /* messages */
    struct kconn *conn;
    struct execq *queue;
    struct journal *journal;
    json_t *info;                          /* content of kernel_info_reply */
    struct list held, info_waiting, later; /* later: for the process that follows a restart */
    size_t held_count, info_count, later_count;
    int busy, quiet; /* quiet: what is aborted now was asked for; no error output */
    int missed_beats;
    char *journal_error; /* why the journal cannot be written now; NULL as a rule */
    struct list backlog;
    size_t backlog_bytes, backlog_lost;
    struct loop_timer *retry;
    int64_t active_us;
    int64_t execution_count;
    int interrupt_wanted, interrupted;
    struct jmsg *held_interrupt;
    struct loop_timer *no_reply, *settle;
    int64_t cell_us; /* when the running cell began */

    struct list waiters;
};

/* kernel.c */
void kernel_move(struct kernel *k, enum kstate to);
void kernel_save(struct kernel *k);
void kernel_tell(struct kernel *k, enum kernel_event what, const struct err *e);
void kernel_set_reason(struct kernel *k, const char *reason);
void kernel_free(struct kernel *k);

/* kernel_life.c */
void kernel_launch(struct kernel *k);

/* kernel_record.c */
void kernel_record_init(struct kernel *k);
void kernel_record_free(struct kernel *k);
void kernel_record(struct kernel *k, struct jmsg *m);
/* Says something in the kernel's name. `content` is taken. */
void kernel_say(struct kernel *k, enum jchan ch, const char *type, const struct jmsg *parent,
                json_t *content);
void kernel_say_status(struct kernel *k, const char *state, const struct jmsg *parent);
void kernel_status(struct kernel *k, const char *state); /* on iopub, without a parent */

/* kernel_msg.c */
void kernel_messages_init(struct kernel *k);
void kernel_messages_free(struct kernel *k);
extern const struct kconn_ops kernel_conn_ops;
void kernel_on_ready(struct kernel *k);  /* kernel_life.c, called by the connection */
void kernel_serve(struct kernel *k);     /* ready: queued requests go out */
void kernel_connected(struct kernel *k); /* held messages go out */
void kernel_drop_held(struct kernel *k); /* a restart was asked for */
void kernel_push_later(struct kernel *k);
void kernel_died(struct kernel *k, const char *cause);
void kernel_signal_interrupt(struct kernel *k);

#endif
