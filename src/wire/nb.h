/* Notebook outputs: from Jupyter messages to nbformat 4.5 cells, and back into a notebook.
 *
 * `struct nb_cell` folds the iopub messages of one execution into outputs by the rules of
 * nbformat: neighbouring streams of one name join (carriage returns and backspaces applied),
 * clear_output(wait), display ids updated in place, execute_input sets the execution count.
 * Pure functions on JSON trees; no I/O. Used by the gateway's merging and by `reitos run`.
 */
#ifndef REITOS_WIRE_NB_H
#define REITOS_WIRE_NB_H

#include "wire/jmsg.h"

struct nb_cell;
struct nb_cell *nb_cell_new(void);
struct nb_cell *nb_cell_free(struct nb_cell *c);
/* One iopub message whose parent is this cell's execution. Returns 1 when outputs changed. */
int nb_cell_feed(struct nb_cell *c, struct jmsg *m);
/* update_display_data of another cell that names a display of this one; 1 when changed. */
int nb_cell_update_display(struct nb_cell *c, const char *display_id, const json_t *data,
                           const json_t *metadata);
int nb_cell_execution_count(const struct nb_cell *c); /* 0 when unknown */
json_t *nb_cell_outputs(struct nb_cell *c);    /* borrowed array, valid until the next feed */
size_t nb_cell_bytes(const struct nb_cell *c); /* approximate memory */

/* Puts outputs and execution count into the code cell `cell_id` of a notebook tree (borrowed).
 * ERR_NOT_FOUND when no such cell. Returns 1 when the notebook changed. */
int nb_set_outputs(json_t *notebook, const char *cell_id, json_t *outputs, int execution_count,
                   struct err *e) WARN_UNUSED;
/* 1 when `saved` (array) is what a client shows part of the way through `full`: equal, or a
 * prefix where the last stream's text may be shorter (its unfinished last line may also differ:
 * progress bars). Lines may be split in either. */
int nb_outputs_prefix(const json_t *saved, const json_t *full);
/* A notebook of format 2 or 3 becomes 4.4 in place; 1 when it did, 0 when there was nothing to do.
 */
int nb_upgrade(json_t *notebook);
/* Structure check for saves: nbformat >= 4 with a cells array; ERR_INVALID naming the defect. */
int nb_check(const json_t *notebook, struct err *e) WARN_UNUSED;
/* Appends the notebook byte for byte as nbformat's Python writer does: lines split, transient
 * fields left out, 1 space of indentation, sorted keys, numbers as Python prints them, a line end
 * last. Integers beyond 64 bits and NaN do not exist here (base/json.h refuses them). */
int nb_write(const json_t *notebook, struct buf *out) WARN_UNUSED;
/* Any value in that form, without the notebook's rules and without the last line end. */
int nb_write_json(const json_t *v, struct buf *out) WARN_UNUSED;
/* In place: source, stream text, text/..., application/javascript, image/svg+xml and attachments
 * as one string (what clients get), or as lists of lines (what files hold). Both drop the fields
 * that must not be stored (nbformat: orig_nbformat, signature, trusted). */
void nb_join_lines(json_t *notebook);
void nb_split_lines(json_t *notebook);
json_t *nb_new(void); /* empty 4.5 notebook */
/* Cell source as one string (source may be a list of lines); heap. */
char *nb_source(const json_t *cell);

#endif
