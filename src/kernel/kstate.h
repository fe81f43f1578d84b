/* States of a kernel and the moves that are allowed between them. Pure; any thread. */
#ifndef REITOS_KERNEL_KSTATE_H
#define REITOS_KERNEL_KSTATE_H

#define KSTATE_LIST(X)                                                         \
    X(NEW, "new")                                                              \
    X(LAUNCHING, "launching")   /* its process was asked for */                \
    X(CONNECTING, "connecting") /* it has a process that did not answer yet */ \
    X(READY, "ready")                                                          \
    X(STOPPING, "stopping")     /* for good */                                 \
    X(RESTARTING, "restarting") /* the old process ends, or ended by itself */ \
    X(DEAD, "dead")             /* kept until it is stopped or restarted */

enum kstate {
#define X(id, name) KSTATE_##id,
    KSTATE_LIST(X)
#undef X
        KSTATE_COUNT
};

const char *kstate_name(enum kstate s);
int kstate_allowed(enum kstate from, enum kstate to);

/* Automatic restarts after crashes: at most KSTATE_CRASHES in a row, where a kernel that was ready
 * for KSTATE_STABLE_US begins a new row. */
#define KSTATE_CRASHES 5
#define KSTATE_STABLE_US (10 * 1000000L)
struct krestarts {
    int crashes;
};
/* 1 when the kernel is to be started again. `ready_us`: how long it had been ready, 0 never. */
int krestarts_again(struct krestarts *r, long ready_us);

#endif
