/* Slows down guessing: after THROTTLE_FREE failed attempts of one peer, each further one waits for
 * its turn, one a second. Bounded: of more peers than THROTTLE_PEERS the least recent is forgotten.
 * The caller gives the time. Not thread-safe. */
#ifndef REITOS_GATEWAY_THROTTLE_H
#define REITOS_GATEWAY_THROTTLE_H

#include <stdint.h>

#define THROTTLE_FREE 10
#define THROTTLE_PEERS 256
#define THROTTLE_FORGET_US ((int64_t)15 * 60 * 1000000)
#define THROTTLE_STEP_MS 1000
#define THROTTLE_QUEUE_MS 20000 /* more waiting than this is refused */

struct throttle;
struct throttle *throttle_new(void);
struct throttle *throttle_free(struct throttle *t);

void throttle_failed(struct throttle *t, const char *peer, int64_t now_us);
void throttle_passed(struct throttle *t, const char *peer); /* the count begins anew */
/* Milliseconds that an attempt of `peer` has to wait, taking its place in the queue; -1: refuse. */
int throttle_wait_ms(struct throttle *t, const char *peer, int64_t now_us);

#endif
