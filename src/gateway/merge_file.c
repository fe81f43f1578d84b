/* Outputs from the journal into the notebook file, and into what a client saves. Thread pool. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/merge_int.h"
#include "gateway/trust.h"

/* A notebook as it is on disk. */
struct disk {
    json_t *nb;
    char hash[SHA256_HEX];
    struct stat st;
};

static int disk_read(const struct cenv *env, const char *path, struct disk *d, struct err *e)
{
    autobuf struct buf b = BUF_INIT(CONTENTS_FILE_MAX);
    autojson json_t *nb = NULL;
    int rc = fs_stat(env->root, path, &d->st, e);
    if (rc == 0)
        rc = fs_read(env->root, path, CONTENTS_FILE_MAX, &b, e);
    if (rc == 0)
        rc = json_parse(buf_str(&b), b.len, &nb, e);
    if (rc == 0) {
        nb_upgrade(nb);
        rc = nb_check(nb, e);
    }
    if (rc < 0)
        return rc;
    sha256_hex(buf_str(&b), b.len, d->hash);
    nb_join_lines(nb);
    d->nb = STEAL(nb);
    return 0;
}

static const json_t *outputs_of(const json_t *nb, const char *cell_id)
{
    return nb ? json_object_get(notebook_cell(nb, cell_id), "outputs") : NULL;
}

/* Neighbouring streams of one name are one output. */
static void append_output(json_t *list, const json_t *out)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    int joins = strcmp(json_get_str(out, "output_type", ""), "stream") == 0 &&
                strcmp(json_get_str(last, "output_type", ""), "stream") == 0 &&
                strcmp(json_get_str(last, "name", ""), json_get_str(out, "name", "")) == 0;
    autojson json_t *text =
        joins ? json_sprintf("%s%s", json_get_str(last, "text", ""), json_get_str(out, "text", ""))
              : NULL;
    if (text)
        json_object_set(last, "text", text);
    else
        json_array_append_new(list, json_deep_copy(out));
}

/* All outputs of an execution; new reference. */
static json_t *full_outputs(const struct exec *x, const json_t *disk)
{
    json_t *list = json_array();
    for (size_t i = 0; i < x->base && i < json_array_size(disk); i++)
        json_array_append_new(list, json_deep_copy(json_array_get(disk, i)));
    size_t i;
    json_t *out;
    if (x->fold)
        json_array_foreach(nb_cell_outputs(x->fold), i, out) append_output(list, out);
    return list;
}

/* Has the first output of `fold` become part of the last one of the base? */
static int is_joined(const struct exec *x, size_t n)
{
    return x->base && n < x->base + json_array_size(nb_cell_outputs(x->fold));
}

/* The file has the first `n` outputs of the cell, which are all. A fold that has joined the base is
 * not kept: it would join again with the next write. */
static void in_file(struct track *t, struct exec *x, size_t n)
{
    x->dirty = 0;
    if (!x->fold || (!x->done && !is_joined(x, n) && nb_cell_bytes(x->fold) < MERGE_SPILL))
        return;
    x->fold = nb_cell_free(x->fold);
    x->base = n;
    x->first = t->next;
}

/* ---- flush ---- */

struct flush {
    struct disk disk;
    json_t *cells; /* {cell id: false}: those changed */
};

static void put_exec(struct flush *f, struct track *t, struct exec *x)
{
    autojson json_t *full = full_outputs(x, outputs_of(f->disk.nb, x->cell_id));
    int rc = nb_set_outputs(f->disk.nb, x->cell_id, full, x->count, NULL);
    if (rc < 0) {
        track_drop(t, x); /* the user deleted the cell: its outputs stay in the journal */
        return;
    }
    if (rc > 0)
        json_object_set_new(f->cells, x->cell_id, json_false());
    x->saved = json_array_size(full);
    x->verdict = VERDICT_WRITTEN;
}

static int flush_write(const struct cenv *env, const char *path, struct flush *f, struct err *e)
{
    struct pin pin = {.visible_mtime_ns = stat_mtime_ns(&f->disk.st)};
    memcpy(pin.visible_hash, f->disk.hash, sizeof pin.visible_hash);
    struct pin old;
    if (pins_get(env->pins, path, &f->disk.st, &old)) {
        memcpy(pin.visible_hash, old.visible_hash, sizeof pin.visible_hash);
        pin.visible_mtime_ns = old.visible_mtime_ns;
        autojson json_t *before = pins_cells(env->pins, path);
        json_object_update_missing(f->cells, before);
    }
    autobuf struct buf out = BUF_INIT(HTTP_BODY_MAX);
    int rc = nb_write(f->disk.nb, &out);
    if (rc < 0)
        return err_set(e, rc, "%s: %s", path, err_text(rc));
    rc = fs_write(env->root, path, buf_str(&out), out.len, 0, e);
    struct stat st;
    if (rc == 0)
        rc = fs_stat(env->root, path, &st, e);
    if (rc < 0)
        return rc;
    sha256_hex(buf_str(&out), out.len, pin.real_hash);
    pin.real_mtime_ns = stat_mtime_ns(&st);
    pin.size = (uint64_t)st.st_size;
    pin.inode = st.st_ino;
    pins_set(env->pins, path, &pin, f->cells);
    if (trust_has(env->trust, f->disk.hash))
        trust_add(env->trust, pin.real_hash); /* what the user's own kernel says is trusted */
    return 0;
}

/* Outputs that the file cannot take must not fill the memory. */
static void give_up(struct track *t)
{
    list_foreach(it, &t->execs)
    {
        struct exec *x = container_of(it, struct exec, link);
        if (track_bytes(t) < MERGE_MEMORY)
            return;
        if (x->fold) {
            t->lost = 1;
            track_drop(t, x);
        }
    }
}

int merge_tracks_flush(const struct cenv *env, const char *path, struct track *const *tracks,
                       size_t n, struct err *e)
{
    int dirty = 0;
    for (size_t i = 0; i < n; i++)
        dirty |= track_dirty(tracks[i]);
    if (!dirty)
        return 0;
    struct flush f = {.cells = json_object()};
    int rc = disk_read(env, path, &f.disk, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        list_foreach(it, &tracks[i]->execs)
        {
            struct exec *x = container_of(it, struct exec, link);
            x->verdict = VERDICT_NONE;
            if (x->dirty)
                put_exec(&f, tracks[i], x);
        }
    }
    if (rc == 0 && json_object_size(f.cells))
        rc = flush_write(env, path, &f, e);
    for (size_t i = 0; i < n; i++) {
        list_foreach(it, &tracks[i]->execs)
        {
            struct exec *x = container_of(it, struct exec, link);
            if (rc == 0 && x->verdict == VERDICT_WRITTEN)
                in_file(tracks[i], x, x->saved);
            x->verdict = VERDICT_NONE;
        }
        if (rc < 0)
            give_up(tracks[i]);
    }
    json_decref(f.disk.nb);
    json_decref(f.cells);
    return rc;
}

static int advance_all(struct merge_hold *h, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; h && rc == 0 && i < h->n; i++) {
        do
            rc = track_advance(h->tracks[i], MERGE_MEMORY, e);
        while (rc > 0 && track_bytes(h->tracks[i]) < 2 * MERGE_MEMORY);
        rc = rc > 0 ? 0 : rc;
    }
    return rc;
}

int merge_flush(const struct cenv *env, const char *path, struct merge_hold *h, struct err *e)
{
    if (!h)
        return 0;
    int rc = advance_all(h, e);
    return rc < 0 ? rc : merge_tracks_flush(env, path, h->tracks, h->n, e);
}

void merge_seen(const struct cenv *env, const char *path, struct merge_hold *h)
{
    pins_seen(env->pins, path);
    for (size_t i = 0; h && i < h->n; i++) {
        list_foreach(it, &h->tracks[i]->execs)
        {
            struct exec *x = container_of(it, struct exec, link);
            x->seen = x->done && !x->dirty;
        }
    }
}

/* ---- save ---- */

struct saving {
    json_t *nb; /* what the client sends */
    struct disk disk;
    json_t *pinned; /* cells of the pin */
    json_t *kept;
};

static struct exec *find_exec(const struct merge_hold *h, const char *cell_id)
{
    struct exec *x = NULL;
    for (size_t i = 0; h && !x && i < h->n; i++)
        x = track_exec(h->tracks[i], cell_id);
    return x;
}

static int is_cleared(const json_t *cell, const struct exec *x, const json_t *pinned)
{
    if (json_array_size(json_object_get(cell, "outputs")) ||
        json_is_integer(json_object_get(cell, "execution_count")))
        return 0;
    return x ? x->done && (x->seen || !x->gap) : json_is_true(pinned);
}

/* The journal's outputs for a cell, when there are any that the client may not have; new. */
static json_t *known_outputs(const struct saving *s, const struct exec *x, const json_t *pinned,
                             const char *id)
{
    const json_t *disk = outputs_of(s->disk.nb, id);
    if (x && x->started && (x->fold || x->dirty))
        return full_outputs(x, disk);
    return pinned && disk ? json_deep_copy(disk) : NULL;
}

static void save_cell(struct saving *s, const struct merge_hold *h, json_t *cell)
{
    const char *id = json_get_str(cell, "id", "");
    struct exec *x = find_exec(h, id);
    const json_t *pinned = json_object_get(s->pinned, id);
    const json_t *saved = json_object_get(cell, "outputs");
    autojson json_t *full = known_outputs(s, x, pinned, id);
    if (x)
        x->saved = json_array_size(saved);
    if (!full)
        return;
    int same = json_equal(saved, full);
    int client = is_cleared(cell, x, pinned) || !nb_outputs_prefix(saved, full) || same;
    if (x)
        x->verdict = client && !(same && x->base) ? VERDICT_CLIENT : VERDICT_WRITTEN;
    if (client)
        return;
    int count =
        x ? x->count : (int)json_get_int(notebook_cell(s->disk.nb, id), "execution_count", 0);
    IGNORE_RESULT(nb_set_outputs(s->nb, id, full, count, NULL)); /* the cell is there */
    json_object_set_new(s->kept, id, json_boolean(json_is_true(pinned)));
    if (x)
        x->saved = json_array_size(full);
}

static int needs_disk(const struct saving *s, const struct merge_hold *h)
{
    if (json_object_size(s->pinned))
        return 1;
    for (size_t i = 0; h && i < h->n; i++) {
        list_foreach(it,
                     &h->tracks[i]->execs) if (container_of(it, struct exec, link)->base) return 1;
    }
    return 0;
}

json_t *merge_save(const struct cenv *env, const char *path, struct merge_hold *h, json_t *nb)
{
    struct saving s = {.nb = nb, .pinned = pins_cells(env->pins, path), .kept = json_object()};
    struct pin pin;
    struct err e;
    /* Without the journal's or the file's outputs the client's are saved as they come. */
    if (advance_all(h, &e) < 0)
        log_warn("outputs were not looked for before a save", "path", path, "reason", e.msg, NULL);
    if (needs_disk(&s, h) && disk_read(env, path, &s.disk, NULL) < 0)
        s.disk.nb = NULL;
    if (!s.disk.nb || !pins_get(env->pins, path, &s.disk.st, &pin))
        json_object_clear(s.pinned); /* someone else has written the file since */
    size_t i;
    json_t *cell;
    for (size_t k = 0; h && k < h->n; k++)
        list_foreach(it, &h->tracks[k]->execs) container_of(it, struct exec, link)->verdict =
            VERDICT_NONE;
    json_array_foreach(json_object_get(nb, "cells"), i, cell) save_cell(&s, h, cell);
    json_decref(s.disk.nb);
    json_decref(s.pinned);
    return s.kept;
}

/* The client's outputs stand: those of a cell that has ended are forgotten. */
static void accept_client(struct track *t, struct exec *x)
{
    x->base = x->saved < x->base ? x->saved : x->base;
    if (!x->done)
        return;
    x->dirty = 0;
    x->fold = nb_cell_free(x->fold);
    x->base = x->saved;
    x->first = t->next;
}

void merge_saved(struct merge_hold *h)
{
    for (size_t i = 0; h && i < h->n; i++) {
        struct track *t = h->tracks[i];
        list_foreach(it, &t->execs)
        {
            struct exec *x = container_of(it, struct exec, link);
            if (x->verdict == VERDICT_WRITTEN)
                in_file(t, x, x->saved);
            else if (x->verdict == VERDICT_CLIENT)
                accept_client(t, x);
            else if (!x->fold && !x->dirty)
                x->base = x->saved; /* as the client has it */
            x->verdict = VERDICT_NONE;
        }
    }
}
