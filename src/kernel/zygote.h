/* Zygotes and the kernels that they make ahead (docs/protocol.md, "Shim and zygote").
 *
 * A zygote is keyed by Python interpreter and preload list. One that fails is logged, and not
 * tried again for a minute; its callers spawn plainly. Spares are refilled when no kernel has been
 * started for a moment. Loop thread only; callbacks never run inside the call that caused them.
 */
#ifndef REITOS_KERNEL_ZYGOTE_H
#define REITOS_KERNEL_ZYGOTE_H

#include <sys/types.h>

#include "kernel/kconn.h"

struct zygotes;
struct zygotes_conf {
    uv_loop_t *loop;
    struct zctx *zctx;
    const char *data;
    const char *script; /* path of zygote.py */
};
struct zygotes *zygotes_new(const struct zygotes_conf *conf);
struct zygotes *zygotes_free(struct zygotes *zs); /* kills zygotes and spares */
size_t zygotes_count(const struct zygotes *zs);
size_t zygotes_spares(const struct zygotes *zs); /* those that are ready */

/* `which` is {python, preload}; `env` the whole environment in which it starts. */
int zygotes_prepare(struct zygotes *zs, const json_t *which, const json_t *env, int spares,
                    struct err *e) WARN_UNUSED;

struct zfork {
    const char *id, *connection, *log, *cwd;
    const json_t *env, *args; /* whole environment; arguments after the connection file */
    const char *go;           /* FIFO of a spare, NULL: serves at once */
};
typedef void (*zfork_cb)(void *arg, pid_t pid, const struct err *e); /* e NULL: forked */

/* Asks for a kernel; `cb` runs once, at the latest after ZYGOTE_FORK_MS. Waits for a zygote that
 * is starting. ERR_UNAVAILABLE when there is none: one is started for the next time. */
#define ZYGOTE_START_MS 30000
#define ZYGOTE_FORK_MS 10000
int zygotes_fork(struct zygotes *zs, const json_t *which, const struct zfork *f, zfork_cb cb,
                 void *arg, struct err *e) WARN_UNUSED;

/* A kernel made ahead, handed over with its connection (not yet asked for kernel_info). */
struct spare_taken {
    pid_t pid;
    struct kconn *conn;
    char *ip;
    char key[65];
};
/* 1 and `ret` when a spare was free and was told to serve: with this folder and environment, its
 * log moved to f->log, its connection file to f->connection. 0 when there is none. */
int zygotes_take(struct zygotes *zs, const json_t *which, const struct zfork *f,
                 struct spare_taken *ret);
void zygotes_busy(struct zygotes *zs); /* a kernel starts now: refill later */

#endif
