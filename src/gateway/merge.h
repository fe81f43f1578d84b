/* Outputs into notebook files, by cell id, whether or not a client is connected.
 *
 * For each kernel with a notebook path a tracker follows the kernel's journal from the position
 * that was acknowledged last, folds outputs per cell (wire/nb.h) and brings them into the file:
 * when no client is connected (a moment after the last change), when the last client leaves,
 * before the notebook is read, and when it is saved. A merge changes neither the `hash` nor the
 * `last_modified` that clients see. Loop thread only; disk work runs on the thread pool.
 */
#ifndef REITOS_GATEWAY_MERGE_H
#define REITOS_GATEWAY_MERGE_H

#include "gateway/gw.h"

/* What the kernels module reports. Unknown kernels are ignored. */
void merge_kernel_path(struct gw *gw, const char *kid, const char *path); /* NULL: none (now) */
void merge_kernel_grown(struct gw *gw, const char *kid, uint64_t head);
void merge_kernel_clients(struct gw *gw, const char *kid, size_t connected);
void merge_kernel_gone(struct gw *gw, const char *kid);
/* Writes what is pending at once (blocking): the daemon ends. */
void merge_flush_all(struct gw *gw);

#endif
