/* One kernel of the shim: its life, its messages, its model (kernel/shimc.h).
 *
 * Lives in a checked state machine (kernel/kstate.h). Everything that it says goes to its journal;
 * requests go through its execute queue. Loop thread only. Callbacks of the host and of waiters
 * may call any function here; a kernel is freed only from the loop, after host->gone.
 */
#ifndef REITOS_KERNEL_KERNEL_H
#define REITOS_KERNEL_KERNEL_H

#include <uv.h>

#include "base/json.h"
#include "base/list.h"
#include "kernel/kstate.h"
#include "kernel/zygote.h"
#include "wire/jmsg.h"

struct kernel;

struct kernel_host {
    uv_loop_t *loop;
    struct zctx *zctx;
    const char *data, *hash_seed;
    uint64_t journal_limit; /* bytes */
    struct zygotes *zygotes;
    void *arg;
    /* `urgent`: more than the start of a cell, of which the one who sent it knows. */
    void (*grown)(void *arg, struct kernel *k, int urgent);
    /* `urgent`: more than busy, idle and times. */
    void (*changed)(void *arg, struct kernel *k, int urgent);
    void (*gone)(void *arg, struct kernel *k); /* take it off the list; it is freed next */
};

struct kernel_link { /* first member of struct kernel: for the host's bookkeeping */
    struct list link;
    int grown, changed;
    int64_t told_us;
};

/* Starts a kernel from a `start` request. Errors before there is a process. */
int kernel_start(const struct kernel_host *host, const json_t *request, struct kernel **ret,
                 struct err *e) WARN_UNUSED;
/* A dead kernel from the folder that a shim left behind, kept when its journal holds messages that
 * nobody acknowledged. ERR_GONE when there is nothing to keep. */
int kernel_recover(const struct kernel_host *host, const char *id, struct kernel **ret,
                   struct err *e) WARN_UNUSED;

const char *kernel_id(const struct kernel *k);
json_t *kernel_model(const struct kernel *k); /* new reference */
uint64_t kernel_head(const struct kernel *k);
uint64_t kernel_journal_bytes(const struct kernel *k);
enum kstate kernel_state(const struct kernel *k);

/* `cb` runs once. READY: it serves (e NULL), or it died or was stopped first. GONE: e is NULL. */
enum kernel_event { KERNEL_READY, KERNEL_GONE };
typedef void (*kernel_cb)(void *arg, struct kernel *k, const struct err *e);
void kernel_wait(struct kernel *k, enum kernel_event what, kernel_cb cb, void *arg);
/* Its model was given out: a failed start leaves it as dead instead of removing it. */
void kernel_shown(struct kernel *k);

/* `cwd`: its folder from now on; NULL: as before. */
void kernel_restart(struct kernel *k, const char *cwd);
void kernel_interrupt(struct kernel *k);
/* `keep`: leave the folder when messages in it were not acknowledged. */
void kernel_stop(struct kernel *k, int now, int keep);
void kernel_annotate(struct kernel *k, json_t *annotation); /* borrowed */
void kernel_ack(struct kernel *k, uint64_t seq);
int kernel_send(struct kernel *k, struct jmsg *m, struct err *e) WARN_UNUSED; /* of a client */
void kernel_tick(struct kernel *k); /* every 10 s: heartbeat, limits */

#endif
