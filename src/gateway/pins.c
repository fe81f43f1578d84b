#include "gateway/pins.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/log.h"
#include "meta/meta.h"

#define PIN_KEY "pin/"

struct entry {
    struct entry *next;
    char *path;
    struct pin pin;
    char *cells; /* JSON text: trees belong to one thread */
};

#define BUCKETS 256

struct pins {
    uv_mutex_t mutex;
    struct entry *bucket[BUCKETS];
    struct meta *meta;
    void (*loaded)(void *);
    void *arg;
};

struct pins *pins_new(struct meta *meta)
{
    struct pins *p = xcalloc(1, sizeof *p);
    uv_mutex_init(&p->mutex);
    p->meta = meta;
    return p;
}

static void entry_free(struct entry *en)
{
    free(en->path);
    free(en->cells);
    free(en);
}

void pins_free(struct pins *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (p->bucket[i]) {
            struct entry *en = p->bucket[i];
            p->bucket[i] = en->next;
            entry_free(en);
        }
    }
    uv_mutex_destroy(&p->mutex);
    free(p);
}

static struct entry **slot(struct pins *p, const char *path)
{
    uint32_t h = crc32c(0, path, strlen(path));
    struct entry **s = &p->bucket[h % BUCKETS];
    while (*s && strcmp((*s)->path, path) != 0)
        s = &(*s)->next;
    return s;
}

static void put(struct pins *p, const char *path, const struct pin *pin, char *cells)
{
    struct entry **s = slot(p, path);
    if (!*s) {
        *s = xcalloc(1, sizeof **s);
        (*s)->path = xstrdup(path);
    }
    (*s)->pin = *pin;
    free((*s)->cells);
    (*s)->cells = cells;
}

static struct entry *take(struct pins *p, const char *path)
{
    struct entry **s = slot(p, path);
    struct entry *en = *s;
    if (en)
        *s = en->next;
    return en;
}

int pins_get(struct pins *p, const char *path, const struct stat *st, struct pin *ret)
{
    uv_mutex_lock(&p->mutex);
    const struct entry *en = *slot(p, path);
    int64_t mtime = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    int holds = en && en->pin.real_mtime_ns == mtime && en->pin.size == (uint64_t)st->st_size &&
                en->pin.inode == st->st_ino;
    if (holds)
        *ret = en->pin;
    uv_mutex_unlock(&p->mutex);
    return holds;
}

void pins_set(struct pins *p, const char *path, const struct pin *pin, const json_t *cells)
{
    char *text = json_text(cells);
    uv_mutex_lock(&p->mutex);
    put(p, path, pin, text);
    uv_mutex_unlock(&p->mutex);
}

void pins_drop(struct pins *p, const char *path)
{
    uv_mutex_lock(&p->mutex);
    struct entry *en = take(p, path);
    uv_mutex_unlock(&p->mutex);
    if (en)
        entry_free(en);
}

json_t *pins_cells(struct pins *p, const char *path)
{
    uv_mutex_lock(&p->mutex);
    const struct entry *en = *slot(p, path);
    char *text = en ? xstrdup(en->cells) : NULL;
    uv_mutex_unlock(&p->mutex);
    json_t *cells = NULL;
    if (text && json_parse(text, strlen(text), &cells, NULL) < 0)
        cells = NULL;
    free(text);
    if (json_is_object(cells))
        return cells;
    json_decref(cells);
    return json_object();
}

void pins_seen(struct pins *p, const char *path)
{
    autojson json_t *cells = pins_cells(p, path);
    const char *id;
    json_t *v;
    json_object_foreach(cells, id, v) json_object_set_new(cells, id, json_true());
    char *text = json_text(cells);
    uv_mutex_lock(&p->mutex);
    struct entry *en = *slot(p, path);
    if (en) {
        free(en->cells);
        en->cells = STEAL(text);
    }
    uv_mutex_unlock(&p->mutex);
    free(text);
}

static json_t *to_json(const struct pin *n, const char *cells)
{
    json_t *list;
    if (json_parse(cells, strlen(cells), &list, NULL) < 0)
        list = json_object();
    return json_pack("{s:s, s:I, s:s, s:I, s:I, s:I, s:o}", "visible_hash", n->visible_hash,
                     "visible_mtime", (json_int_t)n->visible_mtime_ns, "hash", n->real_hash,
                     "mtime", (json_int_t)n->real_mtime_ns, "size", (json_int_t)n->size, "inode",
                     (json_int_t)n->inode, "cells", list);
}

static int copy_hash(char out[SHA256_HEX], const char *hex)
{
    if (strlen(hex) != SHA256_HEX - 1)
        return ERR_PARSE;
    memcpy(out, hex, SHA256_HEX);
    return 0;
}

static int from_json(const json_t *v, struct pin *n)
{
    *n = (struct pin){.visible_mtime_ns = json_get_int(v, "visible_mtime", 0),
                      .real_mtime_ns = json_get_int(v, "mtime", 0),
                      .size = (uint64_t)json_get_int(v, "size", 0),
                      .inode = (uint64_t)json_get_int(v, "inode", 0)};
    if (copy_hash(n->visible_hash, json_get_str(v, "visible_hash", "")) < 0)
        return ERR_PARSE;
    return copy_hash(n->real_hash, json_get_str(v, "hash", ""));
}

static void on_stored(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    (void)arg, (void)kv, (void)n;
    if (rc < 0)
        log_warn("a pin could not be stored", "reason", err_text(rc), NULL);
}

void pins_store(struct pins *p, const char *path)
{
    if (!p->meta)
        return;
    autofree char *key = xasprintf(PIN_KEY "%s", path);
    uv_mutex_lock(&p->mutex);
    const struct entry *en = *slot(p, path);
    autojson json_t *v = en ? to_json(&en->pin, en->cells) : NULL;
    uv_mutex_unlock(&p->mutex);
    autofree char *text = v ? json_text(v) : NULL;
    meta_put(p->meta, key, text, text ? strlen(text) : 0, META_ANY, on_stored, NULL);
}

static void on_loaded(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    struct pins *p = arg;
    if (rc < 0)
        log_warn("stored pins could not be read", "reason", err_text(rc), NULL);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        autojson json_t *v = NULL;
        struct pin pin;
        if (json_parse(kv[i].value, kv[i].len, &v, NULL) < 0 || from_json(v, &pin) < 0)
            continue; /* an old or damaged record: the file then counts as changed outside */
        const json_t *cells = json_object_get(v, "cells");
        pins_set(p, kv[i].key + strlen(PIN_KEY), &pin, cells);
    }
    p->loaded(p->arg);
}

void pins_load(struct pins *p, void (*done)(void *), void *arg)
{
    if (!p->meta) {
        done(arg);
        return;
    }
    p->loaded = done;
    p->arg = arg;
    meta_get(p->meta, PIN_KEY, 1, on_loaded, p);
}

/* The pinned paths that are `path` or lie below it; NULL-terminated, heap. */
static char **affected(struct pins *p, const char *path)
{
    size_t n = 0, len = strlen(path);
    char **list = xcalloc(1, sizeof *list);
    uv_mutex_lock(&p->mutex);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (const struct entry *en = p->bucket[i]; en; en = en->next) {
            if (strncmp(en->path, path, len) != 0 || (en->path[len] && en->path[len] != '/'))
                continue;
            list = xrealloc(list, (n + 2) * sizeof *list);
            list[n++] = xstrdup(en->path);
            list[n] = NULL;
        }
    }
    uv_mutex_unlock(&p->mutex);
    return list;
}

void pins_rename(struct pins *p, const char *from, const char *to)
{
    char **list = affected(p, from);
    for (char **it = list; *it; it++) {
        autofree char *path = *it;
        autofree char *moved = xasprintf("%s%s", to, path + strlen(from));
        uv_mutex_lock(&p->mutex);
        struct entry *en = take(p, path);
        if (en) {
            put(p, moved, &en->pin, en->cells);
            en->cells = NULL;
            entry_free(en);
        }
        uv_mutex_unlock(&p->mutex);
        pins_store(p, path);
        pins_store(p, moved);
    }
    free(list);
}

void pins_forget(struct pins *p, const char *path)
{
    char **list = affected(p, path);
    for (char **it = list; *it; it++) {
        autofree char *each = *it;
        pins_drop(p, each);
        pins_store(p, each);
    }
    free(list);
}
