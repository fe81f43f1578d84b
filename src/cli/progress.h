/* Progress of a run on stderr: one line per cell; on a terminal the line of the running cell is
 * kept up to date. */
#ifndef REITOS_CLI_PROGRESS_H
#define REITOS_CLI_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

struct progress {
    int terminal;
    size_t total;
};

void progress_init(struct progress *p, size_t total);
/* `n` counts from 1; `source` is the cell's text. Without a terminal only `done` prints. */
void progress_cell(const struct progress *p, size_t n, int64_t elapsed_us, const char *source,
                   int done);
/* The last lines of an error output's traceback. */
void progress_error(const struct progress *p, size_t n, const json_t *output);
/* A line of its own. */
void progress_note(const struct progress *p, const char *text);

#endif
