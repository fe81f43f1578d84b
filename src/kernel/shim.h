/* The server of reitos-shim (docs/protocol.md): clients, kernels, grace period.
 * One thread; shim_run() returns when the shim is to end. */
#ifndef REITOS_KERNEL_SHIM_H
#define REITOS_KERNEL_SHIM_H

#include "base/err.h"

struct shim_conf {
    const char *data;   /* absolute */
    const char *zygote; /* path of zygote.py */
    int grace_s;        /* until a client says otherwise */
    int journal_limit;  /* MiB per kernel */
};

/* Runs until nobody needs it any more. ERR_CONFLICT when another shim serves this data folder. */
int shim_run(const struct shim_conf *conf, struct err *e) WARN_UNUSED;

#endif
