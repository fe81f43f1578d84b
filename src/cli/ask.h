/* One question to the shim, asked and answered; and what commands ask of /proc. Blocking. */
#ifndef REITOS_CLI_ASK_H
#define REITOS_CLI_ASK_H

#include "cli/cli.h"

/* `request` is taken; *ret is a new reference. ERR_UNAVAILABLE when no shim runs, which means that
 * there are no kernels. */
int ask_shim(const struct cli *c, json_t *request, int timeout_ms, json_t **ret,
             struct err *e) WARN_UNUSED;
/* Array of kernel models, empty when no shim runs; new reference. */
int ask_kernels(const struct cli *c, json_t **ret, struct err *e) WARN_UNUSED;
/* The one model whose id begins with `prefix` (borrowed from `kernels`). ERR_NOT_FOUND, or
 * ERR_INVALID when several do. */
int ask_pick(const json_t *kernels, const char *prefix, const json_t **ret,
             struct err *e) WARN_UNUSED;
/* Proportional share of memory of a process in KiB, -1 when unknown. */
int64_t ask_pss_kib(int64_t pid);

#endif
