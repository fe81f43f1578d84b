/* The front of the proxy kernel: the five sockets of a Jupyter connection file, bound.
 *
 * Requests are checked against the file's key and handed on; replies find their way back to the
 * client that asked (by the id of the request), input requests to the one whose cell asks. Header,
 * parent, metadata, content and buffers pass byte for byte; only the signature is ours.
 * Loop thread only.
 */
#ifndef REITOS_CLI_FRONT_H
#define REITOS_CLI_FRONT_H

#include <uv.h>

#include "base/json.h"
#include "wire/jmsg.h"

#define FRONT_ROUTES_MAX \
    20000 /* requests whose reply is awaited; beyond it the oldest is forgotten */

/* A request with a good signature, on shell, control or stdin; borrowed. */
typedef void (*front_cb)(void *arg, struct jmsg *m);

struct front;
/* `file` is the parsed connection file. ERR_CONFIG when it lacks something, ERR_IO when a port is
 * taken. */
int front_open(uv_loop_t *loop, const json_t *file, front_cb cb, void *arg, struct front **ret,
               struct err *e) WARN_UNUSED;
struct front *front_close(struct front *f); /* NULL-safe, returns NULL */

/* From the kernel to whom it concerns; messages that answer nobody here are dropped. */
void front_deliver(struct front *f, struct jmsg *m);
/* A message of the proxy's own on iopub: status. */
void front_status(struct front *f, struct jmsg *request, const char *state);
/* A reply of the proxy's own to a request, with status ok and `content`'s fields (taken). */
void front_reply(struct front *f, struct jmsg *request, const char *type, json_t *content);
/* 1 while subscribers take what is published; else the caller waits. */
int front_ready(const struct front *f);
size_t front_pending(const struct front *f); /* bytes that wait on all sockets */

#endif
