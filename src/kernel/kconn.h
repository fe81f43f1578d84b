/* The ZeroMQ connection to one kernel process: five sockets, signing, and the shim's own requests,
 * whose answers never reach the owner.
 *
 * A connection may be opened before the kernel has bound its sockets. It is ready when the kernel
 * has answered kernel_info and something has arrived on iopub, so that nothing said later is lost.
 * Loop thread only. Callbacks may close the connection.
 */
#ifndef REITOS_KERNEL_KCONN_H
#define REITOS_KERNEL_KCONN_H

#include "wire/jmsg.h"
#include "wire/zmq_uv.h"

struct kconn;

struct kconn_ops {
    void (*message)(void *arg, struct jmsg *m); /* borrowed; what the kernel said to clients */
    void (*ready)(void *arg);                   /* once */
};

/* `ip` is the path prefix of the sockets, `key` signs. No callback before kconn_own(). */
int kconn_open(struct zctx *ctx, uv_loop_t *loop, const char *ip, const char *key,
               struct kconn **ret, struct err *e) WARN_UNUSED;
struct kconn *kconn_close(struct kconn *c); /* NULL-safe, returns NULL */
void kconn_own(struct kconn *c, const struct kconn_ops *ops, void *arg);

void kconn_probe(struct kconn *c);         /* asks for kernel_info until ready */
json_t *kconn_info(const struct kconn *c); /* content of kernel_info_reply, borrowed; or NULL */

int kconn_send(struct kconn *c, const struct jmsg *m, struct err *e) WARN_UNUSED;
/* A request of the shim's own on the control channel. */
int kconn_request(struct kconn *c, const char *type, const json_t *content,
                  struct err *e) WARN_UNUSED;

/* One heartbeat; call every 10 s. Returns how many were not answered in a row. */
int kconn_beat(struct kconn *c);
uint64_t kconn_count(const struct kconn *c); /* messages received */
const char *kconn_session(void);             /* session id of the shim's own messages */

#endif
