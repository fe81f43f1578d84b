/* The execute queue of one kernel: shell messages in order, one execute_request at a time in the
 * kernel, stop_on_error by us.
 *
 * Pure state machine: no I/O, no clock. It lives in the shim, so that a daemon which is killed or
 * upgraded disturbs no queued cell. The caller feeds events and carries out what the callbacks ask.
 *
 * Rules:
 *  - Requests that name a subshell, and the control and stdin channels, bypass the queue.
 *  - Other shell requests keep their order. While no execute_request waits they go straight to the
 *    kernel; behind a waiting execute_request they wait with it.
 *  - kernel_info_request is answered by the caller from its cache and never queued.
 *  - When an execute_reply has status "error" (or "aborted") and its request had stop_on_error
 *    (default true), every execute_request that waits now is answered as aborted.
 *  - execq_interrupt() applies to requests sent before it: with nothing running in the kernel (it
 *    starts or restarts) all waiting execute_requests are aborted.
 *  - When the kernel dies the running request gets an error reply, the waiting ones are aborted;
 *    both are balanced by busy and idle. Other waiting requests stay for the next kernel.
 *  - While the kernel is not ready everything on the shell channel waits.
 * Limit: EXECQ_MAX waiting messages, then ERR_BUSY.
 */
#ifndef REITOS_KERNEL_EXECQ_H
#define REITOS_KERNEL_EXECQ_H

#include "wire/jmsg.h"

#define EXECQ_MAX 100000

struct execq_ops {
    void (*send)(void *arg, struct jmsg *m); /* to the kernel's shell socket */
    /* answer on behalf of the kernel: status busy, reply {status: "aborted"}, status idle */
    void (*abort)(void *arg, struct jmsg *request);
    /* the kernel died while it ran `request`: error output and error reply, idle */
    void (*fail)(void *arg, struct jmsg *request, const char *cause);
};

struct execq;
struct execq *execq_new(const struct execq_ops *ops, void *arg);
struct execq *execq_free(struct execq *q);
/* The kernel takes requests from now on (1) or not (0: starting, restarting, frozen).
 * Callbacks run inside the calls below; they may push, but not free the queue. */
void execq_ready(struct execq *q, int ready);
/* Keeps a reference of its own. ERR_BUSY, or ERR_PARSE for a header that cannot be decoded. */
int execq_push(struct execq *q, struct jmsg *m, struct err *e) WARN_UNUSED;
void execq_reply(struct execq *q, struct jmsg *reply); /* each shell reply of the kernel */
void execq_iopub(struct execq *q, struct jmsg *m);     /* each iopub message: tracks "started" */
/* 1: the caller signals the kernel now (also when it runs no cell: a widget's callback may run);
 * 2: it signals when execq_started() turns true, unless execq_running() changes before;
 * 0: the kernel is not there, what waited was aborted. */
int execq_interrupt(struct execq *q);
int execq_started(const struct execq *q);            /* the running request has reached user code */
void execq_died(struct execq *q, const char *cause); /* not ready from now on */
struct jmsg *execq_running(const struct execq *q);   /* borrowed, NULL when none */
size_t execq_waiting(const struct execq *q);         /* execute_requests that wait */

#endif
