/* Who asked what: from the id of a request to the ZeroMQ identity of its sender. Bounded: beyond
 * the maximum the oldest entry goes. One thread. */
#ifndef REITOS_CLI_ROUTES_H
#define REITOS_CLI_ROUTES_H

#include "base/buf.h"
#include "wire/jmsg.h"

struct routes;
struct routes *routes_new(size_t max);
struct routes *routes_free(struct routes *r); /* NULL-safe, returns NULL */
/* Remembers the sender; a known id is overwritten. `blocks`: later requests of the same sender that
 * are answered early (see routes_hold) wait for the reply to this one. */
void routes_put(struct routes *r, const char *msg_id, const void *identity, size_t len, int blocks);
/* 1 and the identity (borrowed until the next put or drop), 0 when unknown. */
int routes_get(const struct routes *r, const char *msg_id, struct slice *ret);
void routes_drop(struct routes *r, const char *msg_id);
/* The reply `m` to `msg_id` came while an older request of the same sender that blocks is not yet
 * answered: keeps a reference and returns 1. Returns 0 when nothing is in the way. */
int routes_hold(struct routes *r, const char *msg_id, struct jmsg *m);
/* A held reply that nothing is in the way of any more, with the caller's reference; or NULL. */
struct jmsg *routes_release(struct routes *r);
size_t routes_count(const struct routes *r);

#endif
