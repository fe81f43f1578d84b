/* Folding of sealed journal segments: what later records make superfluous is removed. Internal to
 * the journal; kernel/journal.h states the rules. */
#ifndef REITOS_KERNEL_FOLD_H
#define REITOS_KERNEL_FOLD_H

#include "kernel/journal.h"

#define FOLD_SEGMENT_MAX                                                     \
    ((uint64_t)64 << 20) /* larger ones (a huge record) are left as they are \
                          */

struct fold_record {
    struct jmsg *m; /* owned by the caller; replaced when its text was joined with earlier text */
    int dropped;
};

/* A quick look, without parsing, for what folding could shorten. */
int fold_candidate(const struct jmsg *m);
/* Marks and rewrites records in place. Returns how many were dropped. */
size_t fold_records(struct fold_record *records, size_t n);
/* Reads the segment; 1 and its folded bytes in `out`, or 0 when nothing can be saved or it cannot
 * be read (then it stays). */
int fold_segment(int dirfd, uint64_t first, struct buf *out);

#endif
