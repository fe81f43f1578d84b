/* /api/contents: routes, and what each request asks for. */
#include "gateway/contents.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/contents_int.h"
#include "gateway/contents_job.h"
#include "gateway/merge.h"
#include "gateway/trust.h"
#include "gateway/urltext.h"

#define SMALL_BODY_MAX ((uint64_t)1 << 20)

static void loaded(void *arg)
{
    struct contents *c = arg;
    if (--c->loading)
        return;
    list_foreach(it, &c->waiting)
    {
        struct contents_job *j = container_of(it, struct contents_job, link);
        list_remove(&j->link);
        contents_job_begin(j);
    }
}

struct contents *contents_new(struct gw *gw, struct err *e)
{
    (void)e;
    struct contents *c = xcalloc(1, sizeof *c);
    c->gw = gw;
    c->locks = pathlocks_new();
    c->env = (struct cenv){.root = &gw->root,
                           .hidden = gw->conf->hidden,
                           .pins = pins_new(gw->meta),
                           .trust = trust_new(gw->meta)};
    list_init(&c->waiting);
    c->loading = 2;
    pins_load(c->env.pins, loaded, c);
    trust_load(c->env.trust, loaded, c);
    return c;
}

void contents_free(struct contents *c)
{
    if (!c)
        return;
    while (c->active || c->loading)
        uv_run(c->gw->loop, UV_RUN_ONCE); /* disk work that has begun ends first */
    pathlocks_free(c->locks);
    pins_free(c->env.pins);
    trust_free(c->env.trust);
    free(c);
}

const struct cenv *contents_env(const struct contents *c)
{
    return &c->env;
}

struct pathlocks *contents_locks(struct contents *c)
{
    return c->locks;
}

static void reply_bad(struct http_req *r, int code, const char *text)
{
    struct err e;
    err_set(&e, code, "%s", text);
    http_reply_err(r, &e);
}

/* The cleaned path, or NULL when the request was answered. */
static char *clean(struct http_req *r, const char *raw)
{
    struct err e;
    char *path;
    if (cpath_clean(raw, &path, &e) == 0)
        return path;
    http_reply_err(r, &e);
    return NULL;
}

/* A small JSON object; NULL when the request was answered. An empty body gives {}. */
static json_t *small_body(struct http_req *r)
{
    struct err e = {0};
    json_t *body = NULL;
    uint64_t len;
    size_t n;
    if (http_body_fd(r, &len) >= 0 || (http_body(r, &n), n > SMALL_BODY_MAX)) {
        reply_bad(r, ERR_TOO_LARGE, "the body is too large for this request");
        return NULL;
    }
    if (http_body_json(r, &body, &e) < 0) {
        http_reply_err(r, &e);
        return NULL;
    }
    if (json_is_null(body)) {
        json_decref(body);
        return json_object();
    }
    if (!json_is_object(body)) {
        json_decref(body);
        reply_bad(r, ERR_INVALID, "the body must be a JSON object");
        return NULL;
    }
    return body;
}

/* "directory", "notebook", "file" (also for words that are none of these), or NULL. */
static const char *known_type(const char *type)
{
    if (!type || !*type)
        return NULL;
    if (strcmp(type, "directory") == 0)
        return "directory";
    return strcmp(type, "notebook") == 0 ? "notebook" : "file";
}

static int is_notebook(const char *path)
{
    size_t n = strlen(path);
    return n >= 6 && strcmp(path + n - 6, ".ipynb") == 0;
}

/* ---- GET ---- */

/* When outputs cannot be brought in, the file as it is is still the right answer. */
static void bring_outputs_in(struct contents_job *j)
{
    struct err e;
    if (merge_flush(j->env, j->path, j->hold, &e) < 0)
        log_warn("outputs cannot be brought into the notebook for now", "path", j->path, "reason",
                 e.msg, NULL);
    j->changed = CHANGED_PIN | CHANGED_TRUST;
}

static int work_get(struct contents_job *j, struct err *e)
{
    if (j->get.content && j->nlocks)
        bring_outputs_in(j);
    int rc = model_get(j->env, j->path, &j->get, &j->reply, &j->reason, e);
    if (rc == 0 && j->get.content)
        merge_seen(j->env, j->path, j->hold);
    return rc;
}

/* "0" or "1"; -1 when answered. */
static int flag(struct http_req *r, const char *key, int def)
{
    const char *v = http_query(r, key);
    if (!v)
        return def;
    if (strcmp(v, "0") == 0 || strcmp(v, "1") == 0)
        return *v == '1';
    autofree char *text = xasprintf("%s '%.64s' is invalid", key, v);
    reply_bad(r, ERR_INVALID, text);
    return -1;
}

static void get_model(struct gw *gw, struct http_req *r, char *owned)
{
    autofree char *path = owned;
    const char *format = http_query(r, "format");
    struct cget g = {.type = known_type(http_query(r, "type"))};
    if (format && strcmp(format, "text") != 0 && strcmp(format, "base64") != 0) {
        autofree char *text = xasprintf("Format '%.64s' is invalid", format);
        reply_bad(r, ERR_INVALID, text);
        return;
    }
    g.format = !format ? NULL : *format == 't' ? "text" : "base64";
    if ((g.content = flag(r, "content", 1)) < 0 || (g.hash = flag(r, "hash", 0)) < 0)
        return;
    struct contents_job *j = contents_job_new(gw, r, STEAL(path), work_get);
    j->get = g;
    j->action = "get";
    /* While a merge is half done the pin and the file do not fit together. */
    if (is_notebook(j->path) || (g.type && *g.type == 'n'))
        contents_job_lock(j, j->path);
    contents_job_start(j);
}

/* ---- PUT ---- */

static int parse_body(const struct contents_job *j, json_t **ret, struct err *e)
{
    if (j->body || !j->body_len)
        return j->body_len ? json_parse(j->body, j->body_len, ret, e) : 0;
    void *map = mmap(NULL, j->body_len, PROT_READ, MAP_PRIVATE, j->body_fd, 0);
    if (map == MAP_FAILED)
        return err_set(e, ERR_MEMORY, "reading the body");
    int rc = json_parse(map, j->body_len, ret, e);
    munmap(map, j->body_len);
    return rc;
}

static int is_file(const struct cenv *env, const char *path)
{
    struct stat st;
    return fs_stat(env->root, path, &st, NULL) == 0 && S_ISREG(st.st_mode);
}

static int put_untitled(struct contents_job *j, struct err *e)
{
    j->status = 201;
    j->changed = CHANGED_TRUST;
    return contents_untitled(j->env, j->path, "", "", &j->reply, e);
}

static int put_save(struct contents_job *j, json_t *model, struct err *e)
{
    const json_t *type = json_object_get(model, "type");
    if (json_is_null(type))
        json_object_del(model, "type");
    else if (type && known_type(json_string_value(type)))
        json_object_set_new(model, "type", json_string(known_type(json_string_value(type))));
    if (!is_file(j->env, j->path)) {
        contents_defaults(j->path, model);
        j->status = 201;
    }
    j->changed = CHANGED_PIN | CHANGED_TRUST;
    return contents_save(j->env, j->path, model, j->hold, &j->reply, &j->reason, e);
}

static int work_put(struct contents_job *j, struct err *e)
{
    autojson json_t *model = NULL;
    int rc = parse_body(j, &model, e);
    if (rc < 0)
        return rc;
    if (!model || json_is_null(model) || (json_is_object(model) && !json_object_size(model)))
        return put_untitled(j, e);
    if (!json_is_object(model))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    const char *copy = json_get_str(model, "copy_from", "");
    if (*copy)
        return err_set(e, ERR_INVALID, "Cannot copy with PUT, only POST");
    const char *named = json_get_str(model, "path", "");
    if (!j->env->hidden && (cpath_hidden(j->path) || cpath_hidden(named)))
        return err_set(e, ERR_INVALID, "Cannot create file or directory '%s'", j->path);
    return put_save(j, model, e);
}

static void put_model(struct gw *gw, struct http_req *r, char *path)
{
    struct contents_job *j = contents_job_new(gw, r, path, work_put);
    j->location = 1;
    j->action = "save";
    contents_job_lock(j, j->path);
    contents_job_start(j);
}

/* ---- POST ---- */

static int work_post(struct contents_job *j, struct err *e)
{
    if (is_file(j->env, j->path))
        return err_set(e, ERR_INVALID, "Cannot POST to files, use PUT instead.");
    if (j->from)
        return contents_copy(j->env, j->from, j->path, &j->reply, e);
    return contents_untitled(j->env, j->path, j->type, j->ext, &j->reply, e);
}

static void post_model(struct gw *gw, struct http_req *r, char *owned)
{
    autofree char *path = owned;
    autofree char *from = NULL;
    autojson json_t *body = small_body(r);
    if (!body)
        return;
    const char *copy_from = json_get_str(body, "copy_from", "");
    if (*copy_from && (from = clean(r, copy_from)) == NULL)
        return;
    struct contents_job *j = contents_job_new(gw, r, STEAL(path), work_post);
    const char *type = known_type(json_get_str(body, "type", NULL));
    j->type = xstrdup(type ? type : "");
    j->ext = xstrdup(json_get_str(body, "ext", ""));
    j->from = STEAL(from);
    j->status = 201;
    j->location = 1;
    j->action = j->from ? "copy" : "create";
    j->other = xstrdup(j->from);
    j->changed = CHANGED_TRUST;
    /* Names are chosen one after the other. */
    autofree char *lock = xasprintf("%s/", j->path);
    contents_job_lock(j, lock);
    contents_job_start(j);
}

/* ---- PATCH, DELETE ---- */

static int work_patch(struct contents_job *j, struct err *e)
{
    if (strcmp(j->from, j->path) != 0) {
        int rc = contents_rename(j->env, j->from, j->path, e);
        if (rc < 0)
            return rc;
        j->changed = CHANGED_NAME;
        j->action = "rename";
    }
    return model_get(j->env, j->path, &j->get, &j->reply, &j->reason, e);
}

static void patch_model(struct gw *gw, struct http_req *r, char *owned)
{
    autofree char *from = owned;
    size_t len;
    uint64_t spooled;
    if (http_body_fd(r, &spooled) < 0 && (http_body(r, &len), len == 0)) {
        reply_bad(r, ERR_INVALID, "JSON body missing");
        return;
    }
    autojson json_t *body = small_body(r);
    if (!body)
        return;
    const json_t *path = json_object_get(body, "path");
    if (path && !json_is_string(path)) {
        reply_bad(r, ERR_INVALID, "path must be a string");
        return;
    }
    char *to = path ? clean(r, json_string_value(path)) : xstrdup(from);
    if (!to)
        return;
    struct contents_job *j = contents_job_new(gw, r, to, work_patch);
    j->from = STEAL(from);
    j->other = xstrdup(j->from);
    j->location = 1;
    contents_job_lock(j, j->from);
    if (strcmp(j->from, j->path) != 0)
        contents_job_lock(j, j->path);
    contents_job_start(j);
}

static int work_delete(struct contents_job *j, struct err *e)
{
    return contents_delete(j->env, j->path, e);
}

static void delete_model(struct gw *gw, struct http_req *r, char *path)
{
    struct contents_job *j = contents_job_new(gw, r, path, work_delete);
    j->status = 204;
    j->action = "delete";
    j->changed = CHANGED_GONE;
    contents_job_lock(j, j->path);
    contents_job_start(j);
}

/* ---- checkpoints, trust ---- */

static int work_checkpoints(struct contents_job *j, struct err *e)
{
    return checkpoint_list(j->env, j->path, &j->reply, e);
}

static int work_checkpoint(struct contents_job *j, struct err *e)
{
    bring_outputs_in(j);
    return checkpoint_create(j->env, j->path, &j->reply, e);
}

static int work_restore(struct contents_job *j, struct err *e)
{
    return checkpoint_restore(j->env, j->path, j->id, e);
}

static int work_checkpoint_delete(struct contents_job *j, struct err *e)
{
    return checkpoint_delete(j->env, j->path, j->id, e);
}

static int work_trust(struct contents_job *j, struct err *e)
{
    j->changed = CHANGED_TRUST;
    return contents_trust(j->env, j->path, e);
}

static void checkpoints(struct gw *gw, struct http_req *r, char *path, const char *id)
{
    enum http_method m = http_method(r);
    int list = m == HTTP_GET || m == HTTP_HEAD;
    if (id ? (m != HTTP_POST && m != HTTP_DELETE) : (!list && m != HTTP_POST)) {
        free(path);
        http_reply_status(r, 405, "Method Not Allowed");
        return;
    }
    struct contents_job *j = contents_job_new(gw, r, path, NULL);
    j->work = id     ? (m == HTTP_POST ? work_restore : work_checkpoint_delete)
              : list ? work_checkpoints
                     : work_checkpoint;
    j->status = id ? 204 : list ? 200 : 201;
    j->location = !id && !list;
    j->id = xstrdup(id ? id : j->location ? "checkpoint" : NULL);
    if (!list)
        contents_job_lock(j, j->path);
    contents_job_start(j);
}

static void trust(struct gw *gw, struct http_req *r, char *path)
{
    struct contents_job *j = contents_job_new(gw, r, path, work_trust);
    j->status = 201;
    contents_job_start(j);
}

/* Splits "a/b.ipynb/checkpoints[/id]" and "a/b.ipynb/trust". Only files have these, so that a
 * folder may have such a name; the one stat is done on the loop. Gives the word, or NULL. */
static const char *cut_word(const struct cenv *env, char *path, const char **ret_id)
{
    static const char *const words[] = {"checkpoints", "trust"};
    char *slash = strrchr(path, '/');
    *ret_id = NULL;
    for (int with_id = 0; slash && with_id < 2; with_id++) {
        for (size_t i = 0; i < COUNTOF(words) - (size_t)with_id; i++) {
            size_t n = strlen(words[i]);
            if (strncmp(slash + 1, words[i], n) != 0 || slash[1 + n] != (with_id ? '/' : '\0'))
                continue;
            *slash = '\0';
            if (is_file(env, path)) {
                *ret_id = with_id ? slash + n + 2 : NULL;
                return words[i];
            }
            *slash = '/';
        }
        while (slash > path && *--slash != '/')
            ;
        if (*slash != '/')
            slash = NULL;
    }
    return NULL;
}

static void handle(struct gw *gw, struct http_req *r, const char *const *p)
{
    autofree char *path = clean(r, p[0]);
    if (!path)
        return;
    autofree char *file = xstrdup(path);
    const char *id;
    const char *word = cut_word(&gw->contents->env, file, &id);
    enum http_method m = http_method(r);
    if (word && *word == 'c') {
        checkpoints(gw, r, xstrdup(file), id);
        return;
    }
    if (word && m == HTTP_POST) {
        trust(gw, r, xstrdup(file));
        return;
    }
    switch (m) {
    case HTTP_PUT:
        put_model(gw, r, STEAL(path));
        break;
    case HTTP_POST:
        post_model(gw, r, STEAL(path));
        break;
    case HTTP_PATCH:
        patch_model(gw, r, STEAL(path));
        break;
    case HTTP_DELETE:
        delete_model(gw, r, STEAL(path));
        break;
    default:
        get_model(gw, r, STEAL(path));
    }
}

/* The old name of the service. */
static void redirect(struct gw *gw, struct http_req *r, const char *const *p)
{
    autobuf struct buf url = BUF_INIT(1 << 18);
    buf_add(&url, "%sapi/contents/", gw->base_url);
    url_escape(p[0], &url);
    http_redirect(r, buf_str(&url));
}

#define CONTENTS_METHODS (METHOD(GET) | METHOD(PUT) | METHOD(POST) | METHOD(PATCH) | METHOD(DELETE))

const struct route contents_routes[] = {
    {CONTENTS_METHODS, "api/contents/*", handle, NULL, 0},
    {CONTENTS_METHODS, "api/notebooks/*", redirect, NULL, 0},
    {0, NULL, NULL, NULL, 0},
};
