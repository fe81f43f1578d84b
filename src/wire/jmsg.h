/* Jupyter messages: one value for the ZeroMQ side, both WebSocket framings and the journal.
 *
 * A message is its raw parts: header, parent_header, metadata, content (JSON text, forwarded
 * byte for byte), then any number of binary buffers. It is one allocation with a reference count;
 * immutable once made. The few header fields that routing needs are decoded on demand.
 * One thread at a time (reference counts are not atomic).
 * Formats: jupyter_client messaging 5.5; v1.kernel.websocket.jupyter.org (little-endian u64
 * offsets); the legacy framing (JSON text; with buffers, big-endian u32 offsets).
 */
#ifndef REITOS_WIRE_JMSG_H
#define REITOS_WIRE_JMSG_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

enum jchan { JCHAN_SHELL, JCHAN_CONTROL, JCHAN_STDIN, JCHAN_IOPUB, JCHAN_COUNT };
const char *jchan_name(enum jchan ch);                       /* "shell" ... */
int jchan_of(const char *name, enum jchan *ret) WARN_UNUSED; /* ERR_INVALID */

enum { JPART_HEADER, JPART_PARENT, JPART_METADATA, JPART_CONTENT, JPART_BUFFERS };
#define JMSG_MAX_PARTS 4096
#define JMSG_MAX_BYTES ((size_t)1 << 30)

/* Fields of the two headers, all "" when absent. Owned by the message. */
struct jhead {
    const char *msg_id, *msg_type, *session, *subshell_id;
    const char *parent_id, *parent_type, *parent_session;
};

struct jmsg {
    unsigned refs;
    enum jchan channel;
    uint64_t seq;  /* journal position; 0: not journalled */
    size_t nparts; /* >= 4 */
    const struct slice *parts;
};

/* Copies the parts. ERR_PROTOCOL when fewer than 4 or over the limits. */
int jmsg_new(enum jchan ch, const struct slice *parts, size_t nparts, struct jmsg **ret,
             struct err *e) WARN_UNUSED;
/* From trees (borrowed); NULL parent or metadata is {}. */
struct jmsg *jmsg_from_json(enum jchan ch, const json_t *header, const json_t *parent,
                            const json_t *metadata, const json_t *content);
/* A message of our own: fresh msg_id and date, username "reitos", version 5.3. `parent` is the
 * message that it answers, or NULL. `content` is borrowed. */
struct jmsg *jmsg_make(enum jchan ch, const char *type, const char *session,
                       const struct jmsg *parent, const json_t *content);
struct jmsg *jmsg_ref(struct jmsg *m);
struct jmsg *jmsg_unref(struct jmsg *m); /* NULL-safe, returns NULL */
size_t jmsg_bytes(const struct jmsg *m); /* sum of the parts */

/* Decodes once, then cached. ERR_PARSE when a header is not a JSON object. */
int jmsg_head(struct jmsg *m, const struct jhead **ret, struct err *e) WARN_UNUSED;
/* One part as a tree; new reference. */
int jmsg_json(const struct jmsg *m, int part, json_t **ret, struct err *e) WARN_UNUSED;
int jmsg_is(struct jmsg *m, const char *type); /* msg_type equals; 0 when undecodable */

/* WebSocket framings. Encoders append to `out`; *ret_binary tells the frame's opcode. */
int jmsg_encode_v1(const struct jmsg *m, struct buf *out) WARN_UNUSED;
int jmsg_decode_v1(const void *data, size_t len, struct jmsg **ret, struct err *e) WARN_UNUSED;
int jmsg_encode_legacy(struct jmsg *m, struct buf *out, int *ret_binary) WARN_UNUSED;
int jmsg_decode_legacy(const void *data, size_t len, int binary, struct jmsg **ret,
                       struct err *e) WARN_UNUSED;

/* ZeroMQ wire: [identities...] <IDS|MSG> signature header parent metadata content [buffers...]. */
void jmsg_sign(const struct jmsg *m, const char *key, char out[65]); /* "" for an empty key */
/* Skips identities, checks the signature. ERR_PROTOCOL, ERR_DENIED (bad signature). */
int jmsg_from_zmq(enum jchan ch, const struct slice *frames, size_t n, const char *key,
                  struct jmsg **ret, struct err *e) WARN_UNUSED;

static inline void autojmsg_fn(struct jmsg **m)
{
    jmsg_unref(*m);
}
#define autojmsg __attribute__((cleanup(autojmsg_fn)))

#endif
