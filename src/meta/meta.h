/* Control records: small keys and values with transactions. On one machine: SQLite (sqlite.c).
 *
 * Every operation is asynchronous and ends in its callback, on the loop, exactly once; `rc` is 0, a
 * negative error, or META_UNKNOWN when it cannot be told whether a write happened (never with
 * SQLite). Keys are paths such as "merge/<notebook path>". Values are bytes, at most 1 MiB.
 * Loop thread only.
 */
#ifndef REITOS_META_META_H
#define REITOS_META_META_H

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

#define META_UNKNOWN 1
#define META_VALUE_MAX ((size_t)1 << 20)

struct meta;
struct meta_kv {
    const char *key;
    const void *value;
    size_t len;
    uint64_t revision; /* of the last write of this key */
};

/* `kv` is borrowed. A get of a key that does not exist gives n = 0; a put gives the key and its
 * new revision. */
typedef void (*meta_cb)(void *arg, int rc, const struct meta_kv *kv, size_t n);

/* `url`: "sqlite:PATH". */
int meta_open(uv_loop_t *loop, const char *url, struct meta **ret, struct err *e) WARN_UNUSED;
void meta_close(struct meta *m); /* waits for pending operations */
void meta_get(struct meta *m, const char *prefix_or_key, int prefix, meta_cb cb, void *arg);
/* Writes when the key's revision is `if_revision` (0: must not exist; META_ANY: always), else
 * ERR_CONFLICT. A NULL value deletes. cb may be NULL. */
#define META_ANY UINT64_MAX
void meta_put(struct meta *m, const char *key, const void *value, size_t len, uint64_t if_revision,
              meta_cb cb, void *arg);

#endif
