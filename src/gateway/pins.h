/* Pins: what clients are told about a notebook whose file we have changed by merging outputs.
 *
 * After a merge the file's hash and modification time are ours, not the client's; clients go on
 * seeing those of the last client save, so that they do not report a change on disk. A pin holds
 * for exactly the file that we wrote: when size, time or inode differ, someone else changed it and
 * the pin is void. A pin also names the cells whose outputs we put in and that no client has saved
 * since: a save by one that has not seen them must not take them away (merge.h).
 *
 * pins_store() and pins_load() keep pins in the control records (key "pin/<path>"); loop thread.
 * Everything else: any thread.
 */
#ifndef REITOS_GATEWAY_PINS_H
#define REITOS_GATEWAY_PINS_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/crypto.h"
#include "base/json.h"

struct meta;
struct pins;

struct pin {
    char visible_hash[SHA256_HEX];
    int64_t visible_mtime_ns;
    /* the file as we left it */
    char real_hash[SHA256_HEX];
    int64_t real_mtime_ns;
    uint64_t size, inode;
};

struct pins *pins_new(struct meta *meta); /* NULL meta: in memory only */
void pins_free(struct pins *p);
/* Reads the stored pins, then calls `done`. */
void pins_load(struct pins *p, void (*done)(void *), void *arg);

/* 1 and a copy when the path has a pin that holds for `st`. */
int pins_get(struct pins *p, const char *path, const struct stat *st, struct pin *ret);
/* Sets or replaces. `cells`: {cell id: true when a client was given the outputs since} (borrowed;
 * copied). Call pins_store() afterwards. */
void pins_set(struct pins *p, const char *path, const struct pin *pin, const json_t *cells);
void pins_drop(struct pins *p, const char *path);
/* The cells of the pin: new object, empty when there is none. */
json_t *pins_cells(struct pins *p, const char *path);
/* A client was given the file: all its cells become true. */
void pins_seen(struct pins *p, const char *path);
/* Follows a rename; a folder's pins move with it. Loop thread (stores the change). */
void pins_rename(struct pins *p, const char *from, const char *to);
void pins_forget(struct pins *p, const char *path); /* deleted, with all below it; loop thread */
void pins_store(struct pins *p, const char *path);

#endif
