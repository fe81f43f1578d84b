/* Slows down guessing. */
#include "gateway/throttle.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define PEER_BYTES 64

struct peer {
    char name[PEER_BYTES];
    int failures;
    int64_t last_us; /* of the last failure; 0: free slot */
    int64_t turn_us; /* the next attempt's turn */
};

struct throttle {
    struct peer peers[THROTTLE_PEERS];
};

struct throttle *throttle_new(void)
{
    return xcalloc(1, sizeof(struct throttle));
}

struct throttle *throttle_free(struct throttle *t)
{
    free(t);
    return NULL;
}

static struct peer *find(struct throttle *t, const char *peer)
{
    for (size_t i = 0; i < THROTTLE_PEERS; i++)
        if (t->peers[i].last_us && !strncmp(t->peers[i].name, peer, PEER_BYTES - 1))
            return &t->peers[i];
    return NULL;
}

static struct peer *find_or_make(struct throttle *t, const char *peer)
{
    struct peer *p = find(t, peer);
    if (p)
        return p;
    p = &t->peers[0];
    for (size_t i = 1; i < THROTTLE_PEERS; i++)
        if (t->peers[i].last_us < p->last_us)
            p = &t->peers[i];
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", peer);
    return p;
}

void throttle_failed(struct throttle *t, const char *peer, int64_t now_us)
{
    struct peer *p = find_or_make(t, peer);
    if (p->last_us && now_us - p->last_us > THROTTLE_FORGET_US)
        p->failures = 0;
    p->failures++;
    p->last_us = now_us;
}

void throttle_passed(struct throttle *t, const char *peer)
{
    struct peer *p = find(t, peer);
    if (p)
        memset(p, 0, sizeof *p);
}

int throttle_wait_ms(struct throttle *t, const char *peer, int64_t now_us)
{
    struct peer *p = find(t, peer);
    if (!p || p->failures < THROTTLE_FREE || now_us - p->last_us > THROTTLE_FORGET_US)
        return 0;
    int64_t turn = p->turn_us > now_us ? p->turn_us : now_us;
    int64_t wait_ms = (turn - now_us) / 1000 + THROTTLE_STEP_MS;
    if (wait_ms > THROTTLE_QUEUE_MS)
        return -1;
    p->turn_us = turn + (int64_t)THROTTLE_STEP_MS * 1000;
    return (int)wait_ms;
}
