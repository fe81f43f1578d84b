/* /api/kernels, and the link between shim events and the rest of the gateway. */
#include "gateway/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "gateway/merge.h"
#include "gateway/resume.h"
#include "kernel/kspec.h"

#define START_TIMEOUT_MS 90000
#define OP_TIMEOUT_MS 30000
#define RECONNECT_MS 1000
#define DEAD_KEPT_US ((int64_t)3600 * 1000000)

struct kernels {
    struct list all;
    struct loop_timer *cull;
    struct loop_timer *reconnect;
};

struct list *kernels_list(const struct gw *gw)
{
    return &gw->kernels->all;
}

struct kernel *kernels_find(const struct gw *gw, const char *id)
{
    list_foreach(it, &gw->kernels->all)
    {
        struct kernel *k = container_of(it, struct kernel, link);
        if (!strcmp(k->id, id))
            return k;
    }
    return NULL;
}

int kernels_count(const struct gw *gw)
{
    int n = 0;
    list_foreach(it, &gw->kernels->all) n++;
    return n;
}

int kernels_connections(const struct gw *gw)
{
    size_t n = 0;
    list_foreach(it, &gw->kernels->all) n += container_of(it, struct kernel, link)->nclients;
    return (int)n;
}

const char *kernel_state(const struct kernel *k)
{
    return json_get_str(k->model, "state", "starting");
}

json_t *kernel_sessions(const struct kernel *k)
{
    json_t *s = json_object_get(json_object_get(k->model, "annotation"), "sessions");
    return json_is_array(s) && json_array_size(s) ? s : NULL;
}

json_t *kernel_rest_model(const struct kernel *k)
{
    const char *reason = json_get_str(k->model, "reason", "");
    json_t *m = json_pack("{s:s,s:s,s:s,s:s,s:i}", "id", k->id, "name",
                          json_get_str(k->model, "name", ""), "last_activity", k->last_activity,
                          "execution_state", kernel_state(k), "connections", (int)k->nclients);
    if (*reason)
        json_object_set_new(m, "reason", json_string(reason));
    return m;
}

static void touch(struct kernel *k)
{
    k->last_activity_us = sys.wall_us();
    sys_time_iso(k->last_activity_us, k->last_activity);
}

/* The notebook that outputs belong to: the first session of that type. */
static const char *notebook_path(const struct kernel *k)
{
    size_t i;
    json_t *s;
    json_array_foreach(kernel_sessions(k), i, s)
    {
        if (!strcmp(json_get_str(s, "type", ""), "notebook"))
            return json_get_str(s, "path", NULL);
    }
    return NULL;
}

static void apply_model(struct kernel *k, json_t *model)
{
    int busy_ended =
        !strcmp(kernel_state(k), "busy") && strcmp(json_get_str(model, "state", ""), "busy") != 0;
    json_decref(k->model);
    k->model = json_incref(model);
    uint64_t head = (uint64_t)json_get_int(model, "head", 0);
    if (head > k->head) { /* an answer may be ahead of `grown` */
        k->head = head;
        channels_grown(k);
    }
    const char *t = json_get_str(model, "last_activity", "");
    if (strcmp(t, k->last_activity) > 0 && strlen(t) < sizeof k->last_activity)
        memcpy(k->last_activity, t, strlen(t) + 1);
    if (busy_ended)
        touch(k); /* the idle clock starts when the cell ends */
    merge_kernel_path(k->gw, k->id, notebook_path(k));
}

static struct kernel *add_kernel(struct gw *gw, const char *id, json_t *model)
{
    struct kernel *k = xcalloc(1, sizeof *k);
    k->gw = gw;
    k->id = xstrdup(id);
    list_init(&k->clients);
    list_append(&gw->kernels->all, &k->link);
    touch(k);
    apply_model(k, model);
    return k;
}

static void remove_kernel(struct kernel *k)
{
    channels_drop(k);
    merge_kernel_gone(k->gw, k->id);
    list_remove(&k->link);
    for (size_t i = 0; i < COUNTOF(k->large); i++)
        ws_unshare(&k->large[i].frame);
    resume_close(k->resume);
    json_decref(k->model);
    free(k->id);
    free(k);
}

/* ---- events of the shim ---- */

static void on_grown(void *arg, const char *kid, uint64_t head)
{
    struct gw *gw = arg;
    struct kernel *k = kernels_find(gw, kid);
    if (!k || head <= k->head)
        return;
    k->head = head;
    touch(k);
    gw_activity(gw);
    channels_grown(k);
    merge_kernel_grown(gw, kid, head);
}

static void emit_state(struct gw *gw, const struct kernel *k)
{
    const char *reason = json_get_str(k->model, "reason", "");
    if (!strcmp(kernel_state(k), "dead") && *reason) /* else it was told to end */
        log_warn("kernel died", "kernel", k->id, "reason", reason, NULL);
    events_emit(
        gw, "urn:reitos:kernel_state", "1",
        json_pack("{s:s,s:s,s:s}", "kernel_id", k->id, "state", kernel_state(k), "reason", reason));
}

static void on_changed(void *arg, const char *kid, json_t *model)
{
    struct gw *gw = arg;
    struct kernel *k = kernels_find(gw, kid);
    if (!k) {
        k = add_kernel(gw, kid, model);
        emit_state(gw, k);
        return;
    }
    const char *new_state = json_get_str(model, "state", "");
    int died = !strcmp(new_state, "dead") && strcmp(kernel_state(k), "dead") != 0;
    apply_model(k, model);
    if (died)
        emit_state(gw, k);
}

static void on_gone(void *arg, const char *kid)
{
    struct kernel *k = kernels_find(arg, kid);
    if (k)
        remove_kernel(k);
}

static void shim_connect(void *arg);

/* Without the shim every kernel of it has died too: say so, then start a new one. */
static void on_down(void *arg, const struct err *why)
{
    struct gw *gw = arg;
    if (!gw->kernels) /* the daemon is ending, and the shim was faster */
        return;
    if (gw->ending) {
        shimc_close(gw->shim);
        gw->shim = NULL;
        uv_stop(gw->loop);
        return;
    }
    log_error("the kernels' parent process ended", "reason", why->msg, NULL);
    list_foreach(it, &gw->kernels->all)
    {
        struct kernel *k = container_of(it, struct kernel, link);
        channels_status(k, "dead");
        remove_kernel(k);
    }
    shimc_close(gw->shim);
    gw->shim = NULL;
    gw->kernels->reconnect = loop_timer_stop(gw->kernels->reconnect);
    gw->kernels->reconnect = loop_timer_start(gw->loop, 0, RECONNECT_MS, shim_connect, gw);
}

static int open_shim(struct gw *gw, struct err *e)
{
    static const struct shimc_ops ops = {on_grown, on_changed, on_gone, on_down};
    struct shimc_conf sc = {.data = gw->data,
                            .shim = gw->shim_program,
                            .role = "daemon",
                            .grace_s = (int)gw->conf->grace,
                            .journal_limit_mib = (int)gw->conf->journal_limit,
                            .start = 1};
    return shimc_open(gw->loop, &sc, &ops, gw, &gw->shim, e);
}

static void shim_connect(void *arg)
{
    struct gw *gw = arg;
    struct err e = {0};
    if (!gw->shim && open_shim(gw, &e) < 0) {
        log_error("cannot start the kernels' parent process; trying again", "reason", e.msg, NULL);
        return;
    }
    gw->kernels->reconnect = loop_timer_stop(gw->kernels->reconnect);
    kernels_prepare(gw);
}

/* ---- starting ---- */

static struct kspec_conf spec_conf(const struct gw *gw)
{
    return (struct kspec_conf){.prefix = gw->prefix,
                               .default_python = gw->python,
                               .zygote = gw->conf->zygote,
                               .preload = gw->conf->preload};
}

/* Keeps spares of the default kernel, where its environment allows forking. */
void kernels_prepare(struct gw *gw)
{
    struct kspec_conf sc = spec_conf(gw);
    autojson json_t *entry = NULL;
    autojson json_t *req = NULL;
    struct err e = {0};
    if (!gw->conf->zygote || kspec_find(&sc, gw->conf->default_kernel, &entry, &e) < 0 ||
        kspec_start_request(&sc, entry, &req, &e) < 0) {
        if (e.code)
            log_warn("no default kernel", "name", gw->conf->default_kernel, "reason", e.msg, NULL);
        return;
    }
    json_t *zygote = json_object_get(req, "zygote");
    if (!json_is_object(zygote))
        return;
    shimc_call(gw->shim,
               json_pack("{s:s,s:O,s:I}", "op", "prepare", "zygote", zygote, "spares",
                         (json_int_t)gw->conf->spares),
               START_TIMEOUT_MS, NULL, NULL);
}

struct start_call {
    struct gw *gw;
    kernel_cb cb;
    void *arg;
};

static void started(void *arg, const struct err *e, json_t *reply)
{
    autofree struct start_call *c = arg;
    if (e) {
        c->cb(c->arg, e, NULL);
        return;
    }
    const char *id = json_get_str(reply, "id", "");
    struct kernel *k = kernels_find(c->gw, id);
    if (!k)
        k = add_kernel(c->gw, id, reply);
    else
        apply_model(k, reply);
    c->cb(c->arg, NULL, k);
}

/* The nearest existing folder of a notebook path; the root when there is none. */
static char *start_cwd(const struct gw *gw, const char *path)
{
    autofree char *dir = xstrdup(path ? path : "");
    for (;;) {
        struct stat st;
        if (!*dir || fs_stat(&gw->root, dir, &st, NULL) < 0 || !S_ISDIR(st.st_mode)) {
            char *slash = strrchr(dir, '/');
            if (!*dir || !slash)
                return xstrdup(gw->root.path);
            *slash = '\0';
            continue;
        }
        return xasprintf("%s/%s", gw->root.path, dir);
    }
}

static json_t *start_env(const struct kernel_start *s)
{
    json_t *env = json_object();
    const char *key;
    json_t *value;
    json_object_foreach(s->env, key, value)
    {
        if (json_is_string(value))
            json_object_set(env, key, value);
    }
    if (s->path)
        json_object_set_new(env, "JPY_SESSION_NAME", json_string(s->path));
    return env;
}

void kernels_start(struct gw *gw, const struct kernel_start *s, kernel_cb cb, void *arg)
{
    struct err e = {0};
    struct kspec_conf sc = spec_conf(gw);
    autojson json_t *entry = NULL;
    autojson json_t *req = NULL;
    const char *name = s->name && *s->name ? s->name : gw->conf->default_kernel;
    if (!strcmp(name, "python")) /* the name of old notebooks for any Python */
        name = "python3";
    if (!gw->shim) {
        err_set(&e, ERR_UNAVAILABLE, "the kernels' parent process is being started; try again");
    } else if (kspec_find(&sc, name, &entry, &e) < 0) {
        err_set(&e, ERR_UNSUPPORTED, "No such kernel: %s", name);
    } else {
        (void)!kspec_start_request(&sc, entry, &req, &e);
    }
    if (e.code) {
        cb(arg, &e, NULL);
        return;
    }
    char fresh[SYS_UUID_MAX];
    json_object_set_new(req, "op", json_string("start"));
    json_object_set_new(req, "k", json_string(s->id ? s->id : sys_uuid(fresh)));
    autofree char *cwd = start_cwd(gw, s->path);
    json_object_set_new(req, "cwd", json_string(cwd));
    json_object_set_new(req, "restart", json_true());
    autojson json_t *env = start_env(s);
    json_t *spec_env = json_object_get(req, "env");
    if (spec_env)
        json_object_update(spec_env, env);
    else
        json_object_set(req, "env", env);
    json_t *sessions = s->sessions ? json_incref(s->sessions) : json_array();
    json_object_set_new(req, "annotation", json_pack("{s:o}", "sessions", sessions));
    struct start_call *c = xcalloc(1, sizeof *c);
    *c = (struct start_call){gw, cb, arg};
    shimc_call(gw->shim, STEAL(req), START_TIMEOUT_MS, started, c);
}

void kernel_set_sessions(struct kernel *k, json_t *sessions)
{
    json_t *annotation = json_pack("{s:o}", "sessions", sessions);
    json_object_set(k->model, "annotation", annotation);
    merge_kernel_path(k->gw, k->id, notebook_path(k));
    shimc_call(k->gw->shim,
               json_pack("{s:s,s:s,s:o}", "op", "annotate", "k", k->id, "annotation", annotation),
               OP_TIMEOUT_MS, NULL, NULL);
}

/* ---- REST ---- */

static void no_kernel(struct http_req *r, const char *id)
{
    struct err e;
    err_set(&e, ERR_NOT_FOUND, "Kernel does not exist: %.64s", id);
    http_reply_err(r, &e);
}

static void list_kernels(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    json_t *a = json_array();
    list_foreach(it, &gw->kernels->all)
        json_array_append_new(a, kernel_rest_model(container_of(it, struct kernel, link)));
    http_reply_json(r, 200, a);
}

static void get_kernel(struct gw *gw, struct http_req *r, const char *const *p)
{
    const struct kernel *k = kernels_find(gw, p[0]);
    if (k)
        http_reply_json(r, 200, kernel_rest_model(k));
    else
        no_kernel(r, p[0]);
}

struct post_call {
    struct gw *gw;
    struct http_req *r;
};

static void posted(void *arg, const struct err *e, struct kernel *k)
{
    autofree struct post_call *c = arg;
    if (e) {
        http_reply_err(c->r, e);
        return;
    }
    http_set_header(c->r, "Location", "%sapi/kernels/%s", c->gw->base_url, k->id);
    http_reply_json(c->r, 201, kernel_rest_model(k));
}

/* Names that a gateway client passes on are of the notebook's author: only text, bounded. */
static int check_env(const json_t *env, struct err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)env, key, v)
    {
        if (!json_is_string(v) || json_string_length(v) > 65536 ||
            strlen(json_string_value(v)) != json_string_length(v) || strchr(key, '=') || !*key)
            return err_set(e, ERR_INVALID, "env: %.64s is not a plain text variable", key);
    }
    return 0;
}

static int valid_id(const char *id)
{
    size_t n = strspn(id, "0123456789abcdefABCDEF-");
    return n == strlen(id) && n >= 8 && n <= 64;
}

static void post_kernel(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct err e = {0};
    autojson json_t *body = NULL;
    if (http_body_json(r, &body, &e) < 0 || check_env(json_object_get(body, "env"), &e) < 0) {
        http_reply_err(r, &e);
        return;
    }
    struct kernel_start s = {.name = json_get_str(body, "name", NULL),
                             .id = json_get_str(body, "kernel_id", NULL),
                             .path = json_get_str(body, "path", NULL),
                             .env = json_object_get(body, "env")};
    if (s.id && !valid_id(s.id))
        err_set(&e, ERR_INVALID, "kernel_id must be 8 to 64 hexadecimal digits and dashes");
    else if (s.id && kernels_find(gw, s.id))
        err_set(&e, ERR_CONFLICT, "Kernel already exists: %s", s.id);
    if (e.code) {
        http_reply_err(r, &e);
        return;
    }
    struct post_call *c = xcalloc(1, sizeof *c);
    *c = (struct post_call){gw, r};
    kernels_start(gw, &s, posted, c);
}

struct op_call {
    struct gw *gw;
    struct http_req *r;
    char *kid;
    int status;
};

static void op_done(void *arg, const struct err *e, json_t *reply)
{
    struct op_call *c = arg;
    (void)reply;
    if (e) {
        http_reply_err(c->r, e);
    } else if (c->status == 204) {
        http_reply_json(c->r, 204, NULL);
    } else {
        struct kernel *k = kernels_find(c->gw, c->kid);
        if (k)
            http_reply_json(c->r, c->status, kernel_rest_model(k));
        else
            no_kernel(c->r, c->kid);
    }
    free(c->kid);
    free(c);
}

void kernels_op(struct gw *gw, struct http_req *r, const char *op, const char *kid, int status)
{
    struct kernel *k = kernels_find(gw, kid);
    if (!k) {
        no_kernel(r, kid);
        return;
    }
    struct op_call *c = xcalloc(1, sizeof *c);
    *c = (struct op_call){gw, r, xstrdup(kid), status};
    if (!strcmp(op, "stop"))
        merge_kernel_stops(gw, kid);
    json_t *call = json_pack("{s:s,s:s}", "op", op, "k", kid);
    const char *path = notebook_path(k);
    if (!strcmp(op, "restart") && path) { /* the notebook may have been moved */
        autofree char *cwd = start_cwd(gw, path);
        json_object_set_new(call, "cwd", json_string(cwd));
    }
    shimc_call(gw->shim, call, START_TIMEOUT_MS, op_done, c);
}

static void delete_kernel(struct gw *gw, struct http_req *r, const char *const *p)
{
    kernels_op(gw, r, "stop", p[0], 204);
}

static void interrupt_kernel(struct gw *gw, struct http_req *r, const char *const *p)
{
    kernels_op(gw, r, "interrupt", p[0], 204);
}

static void restart_kernel(struct gw *gw, struct http_req *r, const char *const *p)
{
    kernels_op(gw, r, "restart", p[0], 200);
}

const struct route kernels_routes[] = {
    {METHOD(GET), "api/kernels", list_kernels, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(POST), "api/kernels", post_kernel, NULL, 0},
    {METHOD(GET), "api/kernels/{}", get_kernel, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(DELETE), "api/kernels/{}", delete_kernel, NULL, 0},
    {METHOD(POST), "api/kernels/{}/interrupt", interrupt_kernel, NULL, 0},
    {METHOD(POST), "api/kernels/{}/restart", restart_kernel, NULL, 0},
    {0, NULL, NULL, NULL, 0},
};

/* ---- culling ---- */

static void stop(struct kernel *k, const char *why)
{
    log_info(why, "kernel", k->id, "last_activity", k->last_activity, NULL);
    merge_kernel_stops(k->gw, k->id);
    shimc_call(k->gw->shim, json_pack("{s:s,s:s}", "op", "stop", "k", k->id), OP_TIMEOUT_MS, NULL,
               NULL);
}

/* A dead kernel can be restarted and its output read; nobody has done so for long. */
static int is_forgotten(const struct kernel *k, int64_t idle_us)
{
    return !strcmp(kernel_state(k), "dead") && !k->nclients && idle_us > DEAD_KEPT_US;
}

static int is_idle(const struct kernel *k, int64_t idle_us)
{
    const struct conf *c = k->gw->conf;
    return c->cull_idle > 0 && idle_us >= c->cull_idle * 1000000 &&
           (c->cull_busy || strcmp(kernel_state(k), "busy") != 0) &&
           (c->cull_connected || !k->nclients);
}

static void cull(void *arg)
{
    struct gw *gw = arg;
    list_foreach(it, &gw->kernels->all)
    {
        struct kernel *k = container_of(it, struct kernel, link);
        int64_t idle_us = sys.wall_us() - k->last_activity_us;
        if (!gw->shim)
            return;
        if (is_forgotten(k, idle_us))
            stop(k, "removing a dead kernel");
        else if (is_idle(k, idle_us))
            stop(k, "stopping an idle kernel");
    }
}

struct kernels *kernels_new(struct gw *gw, struct err *e)
{
    struct kernels *ks = xcalloc(1, sizeof *ks);
    list_init(&ks->all);
    gw->kernels = ks;
    if (open_shim(gw, e) < 0) {
        gw->kernels = NULL;
        free(ks);
        return NULL;
    }
    uint64_t interval = (uint64_t)(gw->conf->cull_interval > 0 ? gw->conf->cull_interval : 300);
    ks->cull = loop_timer_start(gw->loop, interval * 1000, interval * 1000, cull, gw);
    kernels_prepare(gw);
    return ks;
}

void kernels_free(struct kernels *ks)
{
    if (!ks)
        return;
    loop_timer_stop(ks->cull);
    loop_timer_stop(ks->reconnect);
    list_foreach(it, &ks->all) remove_kernel(container_of(it, struct kernel, link));
    free(ks);
}
