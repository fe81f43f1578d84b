#include "gateway/trust.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/log.h"
#include "meta/meta.h"

#define TRUST_KEY "trust/"

struct trust {
    uv_mutex_t mutex; /* guards both trees */
    struct meta *meta;
    json_t *known;   /* set of hashes, oldest first (objects keep the order of insertion) */
    json_t *unsaved; /* hashes that trust_store() has to write */
    void (*loaded)(void *);
    void *arg;
};

struct trust *trust_new(struct meta *meta)
{
    struct trust *t = xcalloc(1, sizeof *t);
    uv_mutex_init(&t->mutex);
    t->meta = meta;
    t->known = json_object();
    t->unsaved = json_array();
    return t;
}

void trust_free(struct trust *t)
{
    if (!t)
        return;
    json_decref(t->known);
    json_decref(t->unsaved);
    uv_mutex_destroy(&t->mutex);
    free(t);
}

int trust_has(struct trust *t, const char *hash)
{
    uv_mutex_lock(&t->mutex);
    int has = json_object_get(t->known, hash) != NULL;
    uv_mutex_unlock(&t->mutex);
    return has;
}

static void add(struct trust *t, const char *hash)
{
    if (json_object_size(t->known) >= TRUST_MAX)
        json_object_del(t->known, json_object_iter_key(json_object_iter(t->known)));
    json_object_set_new(t->known, hash, json_true());
}

void trust_add(struct trust *t, const char *hash)
{
    uv_mutex_lock(&t->mutex);
    if (!json_object_get(t->known, hash)) {
        add(t, hash);
        json_array_append_new(t->unsaved, json_string(hash));
    }
    uv_mutex_unlock(&t->mutex);
}

static void on_stored(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    (void)arg, (void)kv, (void)n;
    if (rc < 0)
        log_warn("that a notebook is trusted could not be stored", "reason", err_text(rc), NULL);
}

void trust_store(struct trust *t)
{
    uv_mutex_lock(&t->mutex);
    autojson json_t *list = t->unsaved;
    t->unsaved = json_array();
    uv_mutex_unlock(&t->mutex);
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        autofree char *key = xasprintf(TRUST_KEY "%s", json_string_value(v));
        if (t->meta)
            meta_put(t->meta, key, "1", 1, META_ANY, on_stored, NULL);
    }
}

static void on_loaded(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    struct trust *t = arg;
    if (rc < 0)
        log_warn("trusted notebooks could not be read", "reason", err_text(rc), NULL);
    uv_mutex_lock(&t->mutex);
    for (size_t i = 0; rc == 0 && i < n; i++)
        add(t, kv[i].key + strlen(TRUST_KEY));
    uv_mutex_unlock(&t->mutex);
    t->loaded(t->arg);
}

void trust_load(struct trust *t, void (*done)(void *), void *arg)
{
    if (!t->meta) {
        done(arg);
        return;
    }
    t->loaded = done;
    t->arg = arg;
    meta_get(t->meta, TRUST_KEY, 1, on_loaded, t);
}
