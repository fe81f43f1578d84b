/* Runs the code cells of a notebook, one after the other, in a kernel.
 *
 * A state machine on the loop: it is fed with the kernel's messages and sends requests. The output
 * file is replaced atomically after each cell, and every few seconds inside a long one, so that a
 * kill at any moment leaves a valid notebook with what had been done. Cells that are not reached
 * stay as they were.
 */
#ifndef REITOS_CLI_NBRUN_H
#define REITOS_CLI_NBRUN_H

#include <uv.h>

#include "base/json.h"
#include "wire/jmsg.h"

struct nbrun_conf {
    json_t *notebook;  /* checked and upgraded; borrowed, changed in place */
    const char *out;   /* path of the output file */
    int64_t timeout_s; /* of one cell; 0: none */
    int allow_errors;
    void (*send)(void *arg, struct jmsg *m);
    void (*interrupt)(void *arg);
    /* Once: 0 when all cells ran, else the exit code. `now`: a cell still runs, kill the kernel. */
    void (*done)(void *arg, int code, int now);
    void *arg;
};

struct nbrun;
struct nbrun *nbrun_new(uv_loop_t *loop, const struct nbrun_conf *conf);
struct nbrun *nbrun_free(struct nbrun *r); /* NULL-safe, returns NULL */
int nbrun_save(struct nbrun *r, struct err *e) WARN_UNUSED;
void nbrun_start(struct nbrun *r); /* the kernel is there: asks for its information, then runs */
void nbrun_message(struct nbrun *r, struct jmsg *m);
/* Stops the running cell and ends with `code`: the first time by an interrupt that leaves the cell
 * time to end, the second time at once. */
void nbrun_stop(struct nbrun *r, int code);
/* The kernel is lost. */
void nbrun_lost(struct nbrun *r, const struct err *why);

#endif
