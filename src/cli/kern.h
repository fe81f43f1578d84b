/* A kernel that belongs to one command (`run`, `kernel-proxy`): started through the shim, its
 * journal read from the beginning, stopped at the end.
 *
 * Loop thread only; callbacks run on the loop. kern_close() is not for use in them.
 */
#ifndef REITOS_CLI_KERN_H
#define REITOS_CLI_KERN_H

#include <uv.h>

#include "cli/cli.h"
#include "kernel/shimc.h"
#include "wire/jmsg.h"

/* Programs and interpreter that go with this one. */
struct paths {
    char *dir;    /* of this program */
    char *self;   /* this program */
    char *python; /* of the default kernel */
    char *prefix; /* its environment */
};
void paths_find(struct paths *p, const struct conf *conf);
void paths_free(struct paths *p);

/* Connects to the shim of the configured data folder. `start`: one is started when none runs;
 * without it a missing shim is ERR_UNAVAILABLE. */
int kern_connect(uv_loop_t *loop, const struct cli *c, int start, const struct shimc_ops *ops,
                 void *arg, struct shimc **ret, struct err *e) WARN_UNUSED;

struct kern_ops {
    void (*up)(void *arg, json_t *model);            /* started; borrowed */
    void (*message)(void *arg, struct jmsg *m);      /* the next one of the journal; borrowed */
    void (*ended)(void *arg, const struct err *why); /* it did not start, died or was lost; once */
    /* whether more messages are welcome; NULL: always. After "no" call kern_resume(). */
    int (*ready)(void *arg);
};

struct kern_conf {
    const char *spec; /* kernelspec; NULL: the default one */
    const char *cwd;
    json_t *annotation; /* borrowed object */
    json_t *env;        /* borrowed object, added to the kernelspec's environment */
    char *const *args;  /* nargs further arguments for the kernel's program */
    int nargs;
    int needs_python; /* refuse kernels of other languages, ERR_UNSUPPORTED */
};

struct kern;
int kern_open(uv_loop_t *loop, const struct cli *c, const struct kern_conf *conf,
              const struct kern_ops *ops, void *arg, struct kern **ret, struct err *e) WARN_UNUSED;
void kern_send(struct kern *k, struct jmsg *m); /* borrowed */
void kern_interrupt(struct kern *k);
/* Stops the kernel (at once with `now`), then calls `done`, also when that failed. */
void kern_stop(struct kern *k, int now, void (*done)(void *arg), void *arg);
void kern_resume(struct kern *k);
void kern_close(struct kern *k); /* NULL-safe; detaches from the shim */

/* The environment of this process as an object of strings; new reference. */
json_t *kern_environ(void);

#endif
