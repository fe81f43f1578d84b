/* api/terminals and terminals/websocket. */
#include "gateway/terminals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sys.h"
#include "gateway/jdirs.h"

#define NAME_MAX_CHARS 64
#define QUIT_MS 500 /* for shells to end when the daemon does */

static void on_child(uv_signal_t *s, int signum)
{
    struct terminals *ts = s->data;
    struct list *both[] = {&ts->list, &ts->dying};
    (void)signum;
    for (size_t i = 0; i < COUNTOF(both); i++) {
        list_foreach(it, both[i])
        {
            struct terminal *t = container_of(it, struct terminal, link);
            if (t->pid)
                terminal_reap(t);
        }
    }
}

static void cull(void *arg)
{
    struct terminals *ts = arg;
    int64_t limit_us = ts->gw->conf->cull_terminals * 1000000;
    list_foreach(it, &ts->list)
    {
        struct terminal *t = container_of(it, struct terminal, link);
        if (sys.wall_us() - t->last_activity_us < limit_us)
            continue;
        log_info("idle terminal closed", "name", t->name, NULL);
        terminal_end(t);
    }
}

struct terminals *terminals_new(struct gw *gw)
{
    struct terminals *ts = xcalloc(1, sizeof *ts);
    int64_t limit_s = gw->conf->cull_terminals;
    ts->gw = gw;
    ts->next = 1;
    list_init(&ts->list);
    list_init(&ts->dying);
    uv_signal_init(gw->loop, &ts->child);
    ts->child.data = ts;
    uv_signal_start(&ts->child, on_child, SIGCHLD);
    uv_unref((uv_handle_t *)&ts->child);
    if (limit_s > 0) {
        uint64_t every_ms = (uint64_t)(limit_s < 40 ? limit_s : 40) * 250;
        ts->cull = loop_timer_start(gw->loop, every_ms, every_ms, cull, ts);
    }
    return ts;
}

static void on_signal_closed(uv_handle_t *h)
{
    free(h->data);
}

void terminals_free(struct terminals *ts)
{
    if (!ts)
        return;
    loop_timer_stop(ts->cull);
    list_foreach(it, &ts->list)
    {
        terminal_end(container_of(it, struct terminal, link));
    }
    for (int ms = 0; !list_empty(&ts->dying) && ms < QUIT_MS; ms += 10) {
        on_child(&ts->child, SIGCHLD);
        usleep(10000);
    }
    list_foreach(it, &ts->dying)
    {
        terminal_kill(container_of(it, struct terminal, link));
    }
    ts->gw->terminals = NULL;
    uv_close((uv_handle_t *)&ts->child, on_signal_closed);
}

int terminals_count(const struct gw *gw)
{
    return gw->terminals ? (int)gw->terminals->n : 0;
}

static struct terminal *find(const struct gw *gw, const char *name)
{
    list_foreach(it, &gw->terminals->list)
    {
        struct terminal *t = container_of(it, struct terminal, link);
        if (!strcmp(t->name, name))
            return t;
    }
    return NULL;
}

static json_t *model(const struct terminal *t)
{
    char when[SYS_TIME_MAX];
    return json_pack("{s:s,s:s}", "name", t->name, "last_activity",
                     sys_time_iso(t->last_activity_us, when));
}

/* --- REST --- */

static int offered(const struct gw *gw, struct http_req *r)
{
    if (!gw->conf->terminals)
        http_reply_status(r, 404, "Terminals are switched off");
    return gw->conf->terminals;
}

static void list_all(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    if (!offered(gw, r))
        return;
    json_t *a = json_array();
    list_foreach(it, &gw->terminals->list)
    {
        json_array_append_new(a, model(container_of(it, struct terminal, link)));
    }
    http_reply_json(r, 200, a);
}

/* The name asked for, or the first free number; heap. */
static int choose_name(struct gw *gw, const json_t *body, char **ret, struct err *e)
{
    const char *asked = json_get_str(body, "name", "");
    if (*asked && (!jdirs_name_ok(asked, 0) || strlen(asked) > NAME_MAX_CHARS))
        return err_set(e, ERR_INVALID, "a terminal's name is made of letters, digits, _ . and -");
    if (*asked && find(gw, asked))
        return err_set(e, ERR_CONFLICT, "terminal %s exists", asked);
    if (gw->terminals->n >= TERMINALS_MAX)
        return err_set(e, ERR_LIMIT, "%d terminals are open: close one first", TERMINALS_MAX);
    autofree char *name = xstrdup(*asked ? asked : NULL);
    while (!name || (!*asked && find(gw, name))) {
        free(name);
        name = xasprintf("%u", gw->terminals->next++);
    }
    *ret = STEAL(name);
    return 0;
}

/* The folder asked for, relative to the root or absolute within it. Jupyter falls back to the root
 * when it is not there. */
static char *choose_cwd(const struct gw *gw, const json_t *body)
{
    const char *asked = json_get_str(body, "cwd", "");
    size_t n = strlen(gw->root.path);
    if (!strncmp(asked, gw->root.path, n) && (asked[n] == '/' || !asked[n]))
        asked += n + (asked[n] == '/');
    autofd int fd = fs_open(&gw->root, asked, O_PATH | O_DIRECTORY, 0, NULL);
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    char *real = fd >= 0 ? realpath(link, NULL) : NULL;
    return real ? real : xstrdup(gw->root.path);
}

static void create(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct err e;
    autojson json_t *body = NULL;
    autofree char *name = NULL, *cwd = NULL;
    struct terminal *t;
    if (!offered(gw, r))
        return;
    if (http_body_json(r, &body, &e) < 0 || choose_name(gw, body, &name, &e) < 0) {
        http_reply_err(r, &e);
        return;
    }
    cwd = choose_cwd(gw, body);
    if (terminal_start(gw, name, http_principal(r)->user, cwd, &t, &e) < 0) {
        http_reply_err(r, &e);
        return;
    }
    list_append(&gw->terminals->list, &t->link);
    gw->terminals->n++;
    http_reply_json(r, 200, model(t));
}

static void not_found(struct http_req *r, const char *name)
{
    struct err e;
    err_set(&e, ERR_NOT_FOUND, "Terminal not found: %.200s", name);
    http_reply_err(r, &e);
}

static void get_one(struct gw *gw, struct http_req *r, const char *const *p)
{
    const struct terminal *t = offered(gw, r) ? find(gw, p[0]) : NULL;
    if (t)
        http_reply_json(r, 200, model(t));
    else if (gw->conf->terminals)
        not_found(r, p[0]);
}

static void delete_one(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct terminal *t = offered(gw, r) ? find(gw, p[0]) : NULL;
    if (t) {
        terminal_end(t);
        http_reply(r, 204, NULL, NULL, 0);
    } else if (gw->conf->terminals) {
        not_found(r, p[0]);
    }
}

/* --- WebSocket --- */

static void ws_opened(struct ws *w, void *arg)
{
    struct terminal_client *c = arg;
    c->ws = w;
    if (c->term)
        terminal_attach(c->term, c);
}

/* ["stdin", text] or ["set_size", rows, cols, height, width]. */
static void ws_message(struct ws *w, void *arg, const void *data, size_t len, int binary)
{
    struct terminal_client *c = arg;
    autojson json_t *m = NULL;
    (void)w, (void)binary;
    if (!c->term || json_parse(data, len, &m, NULL) < 0)
        return; /* nothing can be said to a terminal's client about it */
    const char *kind = json_string_value(json_array_get(m, 0));
    const json_t *first = json_array_get(m, 1);
    if (!kind)
        return;
    gw_activity(c->term->gw);
    if (!strcmp(kind, "stdin") && json_is_string(first))
        terminal_input(c->term, json_string_value(first), json_string_length(first));
    else if (!strcmp(kind, "set_size"))
        terminal_resize(c->term, (int)json_integer_value(first),
                        (int)json_integer_value(json_array_get(m, 2)));
}

static void ws_drained(struct ws *w, void *arg)
{
    struct terminal_client *c = arg;
    (void)w;
    if (c->term)
        terminal_flow(c->term);
}

static void ws_closed(struct ws *w, void *arg)
{
    struct terminal_client *c = arg;
    (void)w;
    list_remove(&c->link);
    if (c->term)
        terminal_flow(c->term);
    free(c);
}

static const struct ws_ops client_ops = {
    .open = ws_opened, .message = ws_message, .drained = ws_drained, .closed = ws_closed};

static int attach(struct gw *gw, struct http_req *r, const char *const *p,
                  const struct ws_ops **ops, void **ws_arg)
{
    (void)r;
    struct terminal *t = gw->conf->terminals ? find(gw, p[0]) : NULL;
    if (!t)
        return 404;
    struct terminal_client *c = xcalloc(1, sizeof *c);
    list_init(&c->link);
    c->term = t;
    *ops = &client_ops;
    *ws_arg = c;
    return 0;
}

const struct route terminals_routes[] = {
    {METHOD(GET), "api/terminals", list_all, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(POST), "api/terminals", create, NULL, 0},
    {METHOD(GET), "api/terminals/{}", get_one, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(DELETE), "api/terminals/{}", delete_one, NULL, 0},
    {METHOD(GET), "terminals/websocket/{}", NULL, attach, ROUTE_NO_ACTIVITY},
    {0, NULL, NULL, NULL, 0},
};
