/* The daemon's view of its kernels: models from the shim, the clients of each, their sessions.
 *
 * A session is a record in its kernel's annotation ({"sessions": [{id, path, name, type}]}), which
 * the shim keeps: so sessions live exactly as long as their kernels, also when the daemon is
 * killed. Loop thread only; a `struct kernel` is valid until the shim reports it gone.
 */
#ifndef REITOS_GATEWAY_KERNELS_H
#define REITOS_GATEWAY_KERNELS_H

#include "base/list.h"
#include "base/sys.h"
#include "gateway/gw.h"

struct kernel {
    struct list link;
    struct gw *gw;
    char *id;
    json_t *model; /* as reported by the shim (kernel/shimc.h) */
    uint64_t head; /* journal position known to be written */
    char last_activity[SYS_TIME_MAX];
    int64_t last_activity_us;
    struct list clients; /* struct client of channels.c */
    size_t nclients;
    struct { /* the large message that sockets are busy with, by framing: legacy, v1 */
        uint64_t seq;
        struct ws_shared *frame;
    } large[2];
    struct resume *resume; /* what each client session has received; NULL until first needed */
};

struct kernel *kernels_find(const struct gw *gw, const char *id); /* NULL when unknown */
struct list *kernels_list(const struct gw *gw);                   /* of struct kernel */
const char *kernel_state(const struct kernel *k);
json_t *kernel_rest_model(const struct kernel *k); /* Jupyter's kernel model, new reference */

/* `k` is NULL when `e` is not. */
typedef void (*kernel_cb)(void *arg, const struct err *e, struct kernel *k);
struct kernel_start {
    const char *name; /* kernelspec; NULL: the default */
    const char *id;   /* NULL: a fresh one */
    const char *path; /* notebook path relative to the root: its folder is the cwd; may be NULL */
    json_t *env;      /* borrowed object of strings, or NULL */
    json_t *sessions; /* borrowed array for the annotation, or NULL */
};
void kernels_start(struct gw *gw, const struct kernel_start *s, kernel_cb cb, void *arg);
/* An operation of the shim on one kernel that answers `r` with `status` (or the error). */
/* Starts the zygote of the default kernel and its spares. */
void kernels_prepare(struct gw *gw);
void kernels_op(struct gw *gw, struct http_req *r, const char *op, const char *kid, int status);
/* Replaces the sessions of a kernel (array taken) and tells the shim. */
void kernel_set_sessions(struct kernel *k, json_t *sessions);
json_t *kernel_sessions(const struct kernel *k); /* borrowed array; NULL when there are none */

/* channels.c: something of the kernel changed for its clients. */
void channels_grown(struct kernel *k);
void channels_status(struct kernel *k, const char *state); /* a status message of our own */
void channels_drop(struct kernel *k);                      /* closes every client */

#endif
