/* /api/sessions: which document a kernel belongs to. Stored in the kernel's annotation. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/kernels.h"
#include "gateway/merge.h"

#define STOP_MS 30000

struct found {
    struct kernel *k;
    json_t *s; /* borrowed record */
    size_t index;
};

static struct found find_by(const struct gw *gw, const char *key, const char *value)
{
    list_foreach(it, kernels_list(gw))
    {
        struct kernel *k = container_of(it, struct kernel, link);
        size_t i;
        json_t *s;
        json_array_foreach(kernel_sessions(k), i, s)
        {
            if (!strcmp(json_get_str(s, key, ""), value))
                return (struct found){k, s, i};
        }
    }
    return (struct found){NULL, NULL, 0};
}

/* The kernel other than `except` that has session `id`; NULL when none. */
static struct kernel *kernel_with(const struct gw *gw, const char *id, const struct kernel *except)
{
    list_foreach(it, kernels_list(gw))
    {
        struct kernel *k = container_of(it, struct kernel, link);
        size_t i;
        json_t *s;
        json_array_foreach(kernel_sessions(k), i, s)
        {
            if (k != except && !strcmp(json_get_str(s, "id", ""), id))
                return k;
        }
    }
    return NULL;
}

static json_t *model(const struct kernel *k, const json_t *s)
{
    const char *path = json_get_str(s, "path", ""), *name = json_get_str(s, "name", "");
    const char *type = json_get_str(s, "type", "");
    json_t *m = json_pack("{s:s,s:s,s:s,s:s,s:o}", "id", json_get_str(s, "id", ""), "path", path,
                          "name", name, "type", type, "kernel", kernel_rest_model(k));
    if (!strcmp(type, "notebook"))
        json_object_set_new(m, "notebook", json_pack("{s:s,s:s}", "path", path, "name", name));
    return m;
}

static void reply_model(struct gw *gw, struct http_req *r, int status, const struct found *f)
{
    if (status == 201)
        http_set_header(r, "Location", "%sapi/sessions/%s", gw->base_url,
                        json_get_str(f->s, "id", ""));
    http_reply_json(r, status, model(f->k, f->s));
}

static void no_session(struct http_req *r, const char *id)
{
    struct err e;
    err_set(&e, ERR_NOT_FOUND, "Session not found: session_id='%.64s'", id);
    http_reply_err(r, &e);
}

static void list_sessions(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    json_t *a = json_array();
    list_foreach(it, kernels_list(gw))
    {
        struct kernel *k = container_of(it, struct kernel, link);
        size_t i;
        json_t *s;
        json_array_foreach(kernel_sessions(k), i, s) json_array_append_new(a, model(k, s));
    }
    http_reply_json(r, 200, a);
}

static void get_session(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct found f = find_by(gw, "id", p[0]);
    if (f.k)
        reply_model(gw, r, 200, &f);
    else
        no_session(r, p[0]);
}

/* ---- create and modify ---- */

struct call {
    struct gw *gw;
    struct http_req *r;
    char *session_id; /* PATCH: the session that moves to the new kernel */
    json_t *record;   /* the session as it shall be */
    int status;
};

static void free_call(struct call *c)
{
    free(c->session_id);
    json_decref(c->record);
    free(c);
}

/* 501 with short_message: what a client shows when there is no such kernel. */
static void reply_start_error(struct http_req *r, const struct err *e)
{
    json_t *body = json_pack("{s:s,s:s}", "message", e->msg, "short_message", e->msg);
    http_reply_json(r, e->code == ERR_UNSUPPORTED ? 501 : err_http(e->code), body);
}

static void drop_record(struct kernel *k, const char *session_id)
{
    json_t *rest = json_array();
    size_t i;
    json_t *s;
    json_array_foreach(kernel_sessions(k), i, s)
    {
        if (strcmp(json_get_str(s, "id", ""), session_id) != 0)
            json_array_append(rest, s);
    }
    kernel_set_sessions(k, rest);
}

/* ---- answering when the kernel that a session left is gone ---- */

struct leaving {
    struct gw *gw;
    struct http_req *r;
    json_t *record;
    char *kid; /* the kernel that the session has now */
    int status;
};

static void answer_leaving(void *arg, const struct err *e, json_t *reply)
{
    struct leaving *l = arg;
    (void)e; /* a kernel that does not end is the shim's to report; the session has moved */
    (void)reply;
    struct found f = {kernels_find(l->gw, l->kid), l->record, 0};
    if (f.k)
        reply_model(l->gw, l->r, l->status, &f);
    else
        http_reply_status(l->r, 410, "the kernel of this session has ended");
    json_decref(l->record);
    free(l->kid);
    free(l);
}

/* The session is with `now`; `old` ends when nothing else uses it, then the request is answered. */
static void leave(struct http_req *r, json_t *record, struct kernel *old, struct kernel *now,
                  int status)
{
    struct leaving *l = xcalloc(1, sizeof *l);
    *l = (struct leaving){now->gw, r, json_incref(record), xstrdup(now->id), status};
    merge_kernel_stops(old->gw, old->id); /* as far as it is this session's notebook */
    drop_record(old, json_get_str(record, "id", ""));
    if (kernel_sessions(old) || !old->gw->shim)
        answer_leaving(l, NULL, NULL);
    else
        shimc_call(old->gw->shim, json_pack("{s:s,s:s}", "op", "stop", "k", old->id), STOP_MS,
                   answer_leaving, l);
}

static void on_started(void *arg, const struct err *e, struct kernel *k)
{
    struct call *c = arg;
    if (e) {
        reply_start_error(c->r, e);
        free_call(c);
        return;
    }
    if (c->session_id) { /* PATCH with a new kernel name: the old kernel ends */
        struct kernel *old = kernel_with(c->gw, c->session_id, k);
        if (old) {
            leave(c->r, c->record, old, k, c->status);
            free_call(c);
            return;
        }
    }
    struct found f = {k, c->record, 0};
    reply_model(c->gw, c->r, c->status, &f);
    free_call(c);
}

static void start_for(struct gw *gw, struct http_req *r, json_t *record, const char *kernel_name,
                      const char *replaces, int status)
{
    struct call *c = xcalloc(1, sizeof *c);
    *c = (struct call){gw, r, xstrdup(replaces), json_incref(record), status};
    autojson json_t *sessions = json_pack("[O]", record);
    struct kernel_start s = {
        .name = kernel_name, .path = json_get_str(record, "path", NULL), .sessions = sessions};
    kernels_start(gw, &s, on_started, c);
}

static void attach(struct kernel *k, json_t *record)
{
    json_t *have = kernel_sessions(k);
    json_t *all = have ? json_copy(have) : json_array();
    json_array_append(all, record);
    kernel_set_sessions(k, all);
}

/* A session from a POST body; defaults as Jupyter has them. */
static int parse_record(const json_t *body, json_t **ret, struct err *e)
{
    const json_t *nb = json_object_get(body, "notebook"); /* the form of old clients */
    const char *path = json_get_str(body, "path", json_get_str(nb, "path", NULL));
    const char *type = json_get_str(body, "type", nb ? "notebook" : NULL);
    if (!path)
        return err_set(e, ERR_INVALID, "Missing field in JSON data: path");
    if (!type)
        return err_set(e, ERR_INVALID, "Missing field in JSON data: type");
    char id[SYS_UUID_MAX];
    *ret = json_pack("{s:s,s:s,s:s,s:s}", "id", sys_uuid(id), "path", path, "name",
                     json_get_str(body, "name", json_get_str(nb, "name", "")), "type", type);
    if (!*ret)
        return err_set(e, ERR_INVALID, "session: path, name and type must be text");
    return 0;
}

static void post_session(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct err e = {0};
    autojson json_t *body = NULL;
    autojson json_t *record = NULL;
    if (http_body_json(r, &body, &e) < 0 || parse_record(body, &record, &e) < 0) {
        http_reply_err(r, &e);
        return;
    }
    struct found f = find_by(gw, "path", json_get_str(record, "path", ""));
    if (f.k) {
        reply_model(gw, r, 201, &f);
        return;
    }
    const json_t *kernel = json_object_get(body, "kernel");
    const char *id = json_get_str(kernel, "id", NULL);
    const char *name = json_get_str(kernel, "name", NULL);
    struct kernel *k = id ? kernels_find(gw, id) : NULL;
    if (!k && (!id || name)) { /* a kernel that is gone is replaced by one of the same kind */
        start_for(gw, r, record, name, NULL, 201);
        return;
    }
    if (!k) {
        err_set(&e, ERR_NOT_FOUND, "Kernel does not exist: %.64s", id);
        http_reply_err(r, &e);
        return;
    }
    attach(k, record);
    f = (struct found){k, record, 0};
    reply_model(gw, r, 201, &f);
}

/* Moves a session to another running kernel; the old one ends when nothing else uses it. */
static void move_session(struct gw *gw, struct http_req *r, struct found *f, json_t *record,
                         const char *kernel_id)
{
    struct kernel *to = kernels_find(gw, kernel_id);
    if (!to) {
        http_reply_status(r, 400, "No such kernel");
        return;
    }
    if (to != f->k) {
        attach(to, record);
        leave(r, record, f->k, to, 200);
        return;
    }
    struct found now = {to, record, 0};
    reply_model(gw, r, 200, &now);
}

static void patch_session(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct err e = {0};
    autojson json_t *body = NULL;
    if (http_body_json(r, &body, &e) < 0) {
        http_reply_err(r, &e);
        return;
    }
    struct found f = find_by(gw, "id", p[0]);
    if (!f.k) {
        no_session(r, p[0]);
        return;
    }
    autojson json_t *record = json_copy(f.s);
    static const char *const fields[] = {"path", "name", "type"};
    const json_t *nb = json_object_get(body, "notebook");
    for (size_t i = 0; i < COUNTOF(fields); i++) {
        const char *v = json_get_str(body, fields[i], json_get_str(nb, fields[i], NULL));
        if (v)
            json_object_set_new(record, fields[i], json_string(v));
    }
    json_t *all = json_copy(kernel_sessions(f.k));
    json_array_set(all, f.index, record);
    kernel_set_sessions(f.k, all);
    const json_t *kernel = json_object_get(body, "kernel");
    const char *id = json_get_str(kernel, "id", NULL);
    const char *name = json_get_str(kernel, "name", NULL);
    if (id)
        move_session(gw, r, &f, record, id);
    else if (name)
        start_for(gw, r, record, name, p[0], 200);
    else {
        f.s = record;
        reply_model(gw, r, 200, &f);
    }
}

static void delete_session(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct found f = find_by(gw, "id", p[0]);
    if (!f.k) {
        no_session(r, p[0]);
        return;
    }
    if (!strcmp(kernel_state(f.k), "dead")) {
        drop_record(f.k, p[0]);
        if (!kernel_sessions(f.k) && gw->shim)
            shimc_call(gw->shim, json_pack("{s:s,s:s}", "op", "stop", "k", f.k->id), STOP_MS, NULL,
                       NULL);
        http_reply_status(r, 410, "Kernel deleted before session");
        return;
    }
    /* As Jupyter does: the kernel of a deleted session ends, also when others share it. */
    kernels_op(gw, r, "stop", f.k->id, 204);
}

const struct route sessions_routes[] = {
    {METHOD(GET), "api/sessions", list_sessions, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(POST), "api/sessions", post_session, NULL, 0},
    {METHOD(GET), "api/sessions/{}", get_session, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(PATCH), "api/sessions/{}", patch_session, NULL, 0},
    {METHOD(DELETE), "api/sessions/{}", delete_session, NULL, 0},
    {0, NULL, NULL, NULL, 0},
};
