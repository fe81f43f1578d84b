/* Shared by merge.c (loop), merge_track.c and merge_file.c (thread pool). */
#ifndef REITOS_GATEWAY_MERGE_INT_H
#define REITOS_GATEWAY_MERGE_INT_H

#include "base/list.h"
#include "gateway/merge.h"
#include "kernel/journal.h"
#include "wire/nb.h"

/* Folded outputs that one kernel may have in memory; beyond it they go into the file early. */
#define MERGE_MEMORY ((size_t)64 << 20)
/* A running cell with more than this goes on from what is in the file. */
#define MERGE_SPILL ((size_t)8 << 20)
#define MERGE_EXECS_MAX 1000
#define MERGE_SAVED_MAX 64

/* One execution of a cell: what the journal says of it.
 * Its outputs are: the first `base` ones in the file, then those of `fold`. */
struct exec {
    struct list link; /* oldest first */
    char *msg_id, *cell_id;
    uint64_t first;       /* journal position of what `fold` holds at most */
    unsigned epoch;       /* track.epoch at the request */
    struct nb_cell *fold; /* NULL: empty */
    size_t base;
    int count;      /* execution count, 0 unknown */
    int started;    /* it has reached the kernel's code */
    int done;       /* the kernel said idle */
    int dirty;      /* the file does not have all of it */
    int gap;        /* there was a time without a client since the request */
    int seen;       /* a client was given the file with all of it */
    int clear_wait; /* clear_output(wait=True) while part of the outputs is in the file */
    int verdict;    /* of the save in progress: VERDICT_* */
    size_t saved;   /* outputs that the save in progress leaves in the cell */
};

enum { VERDICT_NONE, VERDICT_WRITTEN, VERDICT_CLIENT };

/* The pool's half of a tracker. Used by one job at a time. */
struct track {
    char *dir;     /* journal folder */
    uint64_t next; /* where reading begins */
    struct jreader *reader;
    struct list execs;
    size_t nexecs;
    size_t clients; /* connected, as of the start of the job */
    unsigned epoch; /* counts the times that the last client left */
    int warned;     /* about a file that cannot be merged into */
    int lost;       /* outputs were dropped: the file cannot take them */
};

struct track *track_new(char *dir, uint64_t next); /* dir is taken */
void track_free(struct track *t);
/* Reads on. 1: the budget (bytes) is used up and there may be more; 0: all read. */
int track_advance(struct track *t, size_t budget, struct err *e) WARN_UNUSED;
struct exec *track_exec(const struct track *t, const char *cell_id); /* the last one, or NULL */
void track_drop(struct track *t, struct exec *x);
int track_dirty(const struct track *t);
size_t track_bytes(const struct track *t);
uint64_t track_position(const struct track *t); /* all before this is in the file or dropped */
/* What a later daemon needs to go on in the middle of an execution: array; and back. */
json_t *track_save(const struct track *t);
void track_load(struct track *t, const json_t *saved);

struct merge_hold {
    struct merge *m;
    size_t n;
    struct tracker **trackers;
    struct track **tracks; /* of the same order */
};

/* merge_file.c */
int merge_tracks_flush(const struct cenv *env, const char *path, struct track *const *tracks,
                       size_t n, struct err *e) WARN_UNUSED;

#endif
