/* One file of a journal: its records as bytes, and reading them while they are written.
 * Internal to the journal. The format is described in kernel/journal.h. */
#ifndef REITOS_KERNEL_SEGMENT_H
#define REITOS_KERNEL_SEGMENT_H

#include <sys/uio.h>

#include "wire/jmsg.h"

#define SEGMENT_NAME_MAX 32
/* "<first, 20 digits>.log" */
const char *segment_name(uint64_t first, char out[SEGMENT_NAME_MAX]);

/* The first positions of all segments in a directory, ascending; heap array. */
int segment_list(int dirfd, uint64_t **ret, size_t *ret_n, struct err *e) WARN_UNUSED;

/* Writes the fixed part and the table of lengths of a record into `out`: what goes before the
 * message's parts. */
int segment_record_head(const struct jmsg *m, uint64_t seq, int64_t wall_us,
                        struct buf *out) WARN_UNUSED;

struct segment_record {
    uint64_t seq, offset;
    int64_t wall_us;
    const char *data; /* whole record, borrowed until the next call */
    size_t len;
};

/* A buffered reader at a position of one file. */
struct segment {
    int fd;          /* -1: none */
    uint64_t first;  /* names the file */
    uint64_t offset; /* of the next record */
    char *buf;
    size_t cap, start, end; /* bytes of the file from `offset` on are buf[start..end) */
};

void segment_init(struct segment *s);
/* Opens the file that begins with `first`. ERR_NOT_FOUND when it has been removed. */
int segment_open(struct segment *s, int dirfd, uint64_t first, struct err *e) WARN_UNUSED;
void segment_close(struct segment *s);
/* 1 and a record; 0 at the end of whole records; ERR_IO for a damaged one, which is skipped by the
 * next call (with the rest of the file when its length cannot be believed).
 * Records with seq < from are passed over unchecked. */
int segment_next(struct segment *s, uint64_t from, struct segment_record *ret,
                 struct err *e) WARN_UNUSED;
int segment_message(const struct segment_record *r, struct jmsg **ret, struct err *e) WARN_UNUSED;
/* Gives back the memory that a large record took; the record must not be looked at afterwards. */
void segment_trim(struct segment *s);

#endif
