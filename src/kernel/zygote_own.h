/* Shared by zygote.c (processes and requests) and spare.c (kernels made ahead). */
#ifndef REITOS_KERNEL_ZYGOTE_OWN_H
#define REITOS_KERNEL_ZYGOTE_OWN_H

#include "base/list.h"
#include "base/loop.h"
#include "kernel/zygote.h"

enum zstate { ZSTATE_DOWN, ZSTATE_STARTING, ZSTATE_READY };

struct zygote {
    struct list link;
    struct zygotes *all;
    char *python, *preload; /* preload: names joined by commas */
    json_t *env;            /* whole environment that it starts with */
    enum zstate state;
    pid_t pid;
    int fd;
    uv_poll_t *poll;
    struct loop_timer *deadline;
    int64_t failed_at; /* 0: did not fail */
    struct list requests;
    int want_spares, spare_failures;
    struct list spares;
};

struct zygotes {
    struct zygotes_conf conf;
    struct list list;
    struct loop_timer *refill;
};

int zygote_fork(struct zygote *z, const struct zfork *f, zfork_cb cb, void *arg,
                struct err *e) WARN_UNUSED;
struct zygote *zygote_find(struct zygotes *zs, const json_t *which);
void zygote_start(struct zygote *z);
void spares_refill(struct zygote *z);
void spares_drop(struct zygote *z); /* kills all */
size_t spares_count(const struct zygote *z);

#endif
