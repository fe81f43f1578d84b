/* The output journal of one kernel: everything it says, in order, on disk.
 *
 * The shim is the only writer; it appends each message before anyone is told of it. Readers (the
 * daemon, one cursor per client; the command line) read the files at their own pace, so a slow or
 * absent reader costs disk, not memory. Positions (`seq`) start at 1, grow by one per message and
 * are never reused; folding leaves gaps.
 *
 * Directory: <first seq, 20 digits>.log segments of about JOURNAL_SEGMENT bytes. Record:
 *   u32 bytes (whole record) | u32 crc32c of all after this field | u64 seq | i64 wall_us |
 *   u8 channel | u8 0 | u16 nparts | u32 length[nparts] | parts          (little-endian)
 * A record is written by one writev(2); a torn tail (crash of the machine) is cut at open.
 * A segment that is full is sealed: rewritten without what later messages supersede, then renamed
 * over the old file. Superseded are
 *   - a progress line (stream text "\r..." without line end) followed by another one on the same
 *     stream of the same request; what stays visible of it is put into the later one;
 *   - a comm_msg of method "update" whose keys later updates of the same comm set, no other message
 *     of that comm between;
 *   - update_display_data followed by another one for the same display_id.
 * Whoever has read up to any position and goes on from there therefore ends with what the whole
 * journal shows: messages are left out, never merged across a position that a reader may hold.
 * The journal keeps `limit` bytes: beyond that the oldest segments whose messages are all
 * acknowledged are removed.
 *
 * Survives the death of any process; not fsynced (a message is not a version).
 * One thread per object. Messages read are new references.
 */
#ifndef REITOS_KERNEL_JOURNAL_H
#define REITOS_KERNEL_JOURNAL_H

#include "wire/jmsg.h"

#define JOURNAL_SEGMENT ((size_t)8 << 20)
#define JOURNAL_LIMIT ((uint64_t)1 << 30)

struct journal;
/* Creates the directory (0700) or continues after its last whole record. */
int journal_open(const char *dir, uint64_t limit, struct journal **ret, struct err *e) WARN_UNUSED;
struct journal *journal_close(struct journal *j); /* NULL-safe, returns NULL; files stay */
/* Gives m->seq. On failure (full disk) the message has no position and e says so. */
int journal_append(struct journal *j, struct jmsg *m, struct err *e) WARN_UNUSED;
uint64_t journal_head(const struct journal *j);    /* seq of the last record, 0 when empty */
void journal_ack(struct journal *j, uint64_t seq); /* the daemon has merged up to here */
uint64_t journal_acked(const struct journal *j);
uint64_t journal_bytes(const struct journal *j); /* on disk */

struct jreader;
/* Reads from the first record with seq >= from. The directory may be written, and its segments
 * folded or removed, meanwhile. */
int jreader_open(const char *dir, uint64_t from, struct jreader **ret, struct err *e) WARN_UNUSED;
struct jreader *jreader_close(struct jreader *r);
/* 1 and a message, or 0 at the end of what is written (call again later), or an error. Checks the
 * CRC: a damaged record is ERR_IO naming segment and offset; the next call goes on behind it.
 * `wall_us` may be NULL. */
int jreader_next(struct jreader *r, struct jmsg **ret, int64_t *wall_us, struct err *e) WARN_UNUSED;

/* Text of a stream as a terminal shows it: "\r" returns to the line start, "\b" steps back.
 * Appends to `out` the folding of `old` followed by `add`. */
int fold_text(const char *old, size_t oldlen, const char *add, size_t addlen,
              struct buf *out) WARN_UNUSED;

#endif
