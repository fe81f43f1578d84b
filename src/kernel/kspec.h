/* Kernelspecs: finding them as jupyter_client does, and turning one into a start request.
 *
 * Search order (first name wins): $JUPYTER_PATH entries, $JUPYTER_DATA_DIR or
 * ~/.local/share/jupyter, <prefix>/share/jupyter, /usr/local/share/jupyter, /usr/share/jupyter;
 * each with kernels/<name>/kernel.json. Names are matched lower-case; [a-z0-9._- ] only. Specs that
 * are malformed are left out and reported once by `kspec_list` through `warnings`.
 * When no spec is called "python3" one is made for `default_python`.
 * Blocking (small files). One thread.
 */
#ifndef REITOS_KERNEL_KSPEC_H
#define REITOS_KERNEL_KSPEC_H

#include "base/err.h"
#include "base/json.h"

struct kspec_conf {
    const char *prefix;         /* Python environment searched (may be NULL) */
    const char *default_python; /* absolute; stands for "python", "python3", "python3.x" in argv */
    int zygote;                 /* fork Python kernels */
    const char *preload;        /* "numpy,pandas" */
    int no_system;              /* leave /usr and /usr/local out */
};

/* {name: {name, spec: {...}, resources: {file: absolute path}, dir}}; new reference. */
json_t *kspec_list(const struct kspec_conf *c, struct buf *warnings);
/* One entry of that object, or ERR_NOT_FOUND. */
int kspec_find(const struct kspec_conf *c, const char *name, json_t **ret,
               struct err *e) WARN_UNUSED;
/* The fields name, argv, env, interrupt, zygote of the shim's `start` (docs/protocol.md).
 * zygote is an object only when argv runs `-m ipykernel_launcher` or `-m ipykernel` with a Python
 * interpreter; argv[0] is made absolute. ERR_KERNEL when the program does not exist. */
int kspec_start_request(const struct kspec_conf *c, const json_t *entry, json_t **ret,
                        struct err *e) WARN_UNUSED;

#endif
