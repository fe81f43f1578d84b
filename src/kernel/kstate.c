#include "kernel/kstate.h"

static const char *const names[] = {
#define X(id, name) name,
    KSTATE_LIST(X)
#undef X
};

#define TO(s) (1u << KSTATE_##s)

static const unsigned allowed[KSTATE_COUNT] = {
    [KSTATE_NEW] = TO(LAUNCHING) | TO(DEAD),
    [KSTATE_LAUNCHING] = TO(CONNECTING) | TO(RESTARTING) | TO(STOPPING) | TO(DEAD),
    [KSTATE_CONNECTING] = TO(READY) | TO(RESTARTING) | TO(STOPPING) | TO(DEAD),
    [KSTATE_READY] = TO(RESTARTING) | TO(STOPPING) | TO(DEAD),
    [KSTATE_RESTARTING] = TO(LAUNCHING) | TO(STOPPING) | TO(DEAD),
    [KSTATE_STOPPING] = TO(DEAD),
    [KSTATE_DEAD] = TO(RESTARTING) | TO(STOPPING),
};

const char *kstate_name(enum kstate s)
{
    return names[s];
}

int kstate_allowed(enum kstate from, enum kstate to)
{
    return (allowed[from] & 1u << to) != 0;
}

int krestarts_again(struct krestarts *r, long ready_us)
{
    if (ready_us >= KSTATE_STABLE_US)
        r->crashes = 0;
    return ++r->crashes <= KSTATE_CRASHES;
}
