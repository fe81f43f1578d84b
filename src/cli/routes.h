/* Who asked what: from the id of a request to the ZeroMQ identity of its sender. Bounded: beyond
 * the maximum the oldest entry goes. One thread. */
#ifndef REITOS_CLI_ROUTES_H
#define REITOS_CLI_ROUTES_H

#include "base/buf.h"

struct routes;
struct routes *routes_new(size_t max);
struct routes *routes_free(struct routes *r); /* NULL-safe, returns NULL */
/* Remembers the sender; a known id is overwritten. */
void routes_put(struct routes *r, const char *msg_id, const void *identity, size_t len);
/* 1 and the identity (borrowed until the next put or drop), 0 when unknown. */
int routes_get(const struct routes *r, const char *msg_id, struct slice *ret);
void routes_drop(struct routes *r, const char *msg_id);
size_t routes_count(const struct routes *r);

#endif
