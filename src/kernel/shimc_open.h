/* Finding or starting the shim of a data folder. Blocking, at most 5 s. */
#ifndef REITOS_KERNEL_SHIMC_OPEN_H
#define REITOS_KERNEL_SHIMC_OPEN_H

#include "kernel/shimc.h"

/* Returns a connected socket. ERR_UNAVAILABLE when there is no shim and conf->start is 0, or when
 * it does not start (with the last line of its log). */
int shimc_connect(const struct shimc_conf *conf, struct err *e) WARN_UNUSED;
/* The code that an error's name stands for; ERR_INTERNAL for one that is not known. */
int err_code_of(const char *name);

#endif
