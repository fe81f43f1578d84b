/* Frames between reitosd, the command line and reitos-shim on a Unix stream socket.
 *
 * u32 length of the rest | u32 n | n x u32 part length | parts, all little-endian. Part 0 is a JSON
 * object with "op"; the others are the parts of a Jupyter message. Limits are checked before
 * anything is allocated. Loop thread only. docs/protocol.md lists the operations.
 */
#ifndef REITOS_WIRE_FRAME_H
#define REITOS_WIRE_FRAME_H

#include "base/json.h"
#include "wire/jmsg.h"

#define FRAME_MAX (JMSG_MAX_BYTES + ((size_t)1 << 20))

struct frame {
    json_t *head;        /* part 0 */
    struct slice *parts; /* parts 1.. (borrowed from the reader until the callback returns) */
    size_t nparts;
};

typedef int (*frame_cb)(void *arg, const struct frame *f, struct err *e); /* < 0 stops reading */

/* Appends one frame. `m` may be NULL. */
int frame_encode(struct buf *out, const json_t *head, const struct jmsg *m) WARN_UNUSED;
/* Calls `cb` for each whole frame at the front of `in` and drops it from `in`.
 * ERR_PROTOCOL on a malformed frame: the connection must be closed. */
int frame_decode(struct buf *in, frame_cb cb, void *arg, struct err *e) WARN_UNUSED;

#endif
