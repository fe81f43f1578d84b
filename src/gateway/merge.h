/* Outputs into notebook files, by cell id, whether or not a client is connected.
 *
 * For each kernel with a notebook path a tracker follows the kernel's journal from the position
 * that was acknowledged last, folds outputs per cell (wire/nb.h) and brings them into the file:
 * when no client is connected (a moment after the last change), when the last client leaves,
 * before the notebook is read, and when it is saved. A merge changes neither the `hash` nor the
 * `last_modified` that clients see (gateway/pins.h). Loop thread, except where said otherwise;
 * disk work runs on the thread pool.
 *
 * Rules of a save (a client's PUT), for each cell:
 *  - outputs that are a prefix of the journal's for the cell's last execution are replaced by the
 *    journal's: the client had not seen the rest yet;
 *  - anything else is what the user wants, and the journal's are forgotten;
 *  - no outputs and no execution count, in a cell that had ended under the eyes of a client, means
 *    that the user cleared it;
 *  - outputs of a cell that is not in the notebook any more are dropped (the journal keeps them).
 */
#ifndef REITOS_GATEWAY_MERGE_H
#define REITOS_GATEWAY_MERGE_H

#include "gateway/contents.h"
#include "gateway/gw.h"

/* What the kernels module reports. Unknown kernels are ignored. */
void merge_kernel_path(struct gw *gw, const char *kid, const char *path); /* NULL: none (now) */
void merge_kernel_grown(struct gw *gw, const char *kid, uint64_t head);
void merge_kernel_clients(struct gw *gw, const char *kid, size_t connected);
/* The kernel is about to be stopped, and its journal removed: what it has said is read now
 * (blocking, at most a few megabytes: trackers keep up). */
void merge_kernel_stops(struct gw *gw, const char *kid);
void merge_kernel_gone(struct gw *gw, const char *kid);
/* Writes what is pending at once (blocking): the daemon ends. */
void merge_flush_all(struct gw *gw);

/* For the contents module, which holds the path's lock (contents_locks) around all of this. */
/* The trackers of `path`; NULL when it has none. */
struct merge_hold *merge_hold(struct gw *gw, const char *path);
void merge_unhold(struct merge_hold *h); /* NULL-safe */
/* A file or folder has a new path. */
void merge_renamed(struct gw *gw, const char *from, const char *to);

/* Thread pool, between merge_hold and merge_unhold; `h` may be NULL. */
/* Brings what is pending into the file. Failure leaves the file as it was. */
int merge_flush(const struct cenv *env, const char *path, struct merge_hold *h,
                struct err *e) WARN_UNUSED;
/* A client has been given the file's content. */
void merge_seen(const struct cenv *env, const char *path, struct merge_hold *h);
/* Applies the rules above to a notebook that is about to be saved. Gives the cells whose outputs
 * were put in and that the client did not have, as pins_set() takes them (new reference). */
json_t *merge_save(const struct cenv *env, const char *path, struct merge_hold *h, json_t *nb);
/* The notebook was written. */
void merge_saved(struct merge_hold *h);

#endif
