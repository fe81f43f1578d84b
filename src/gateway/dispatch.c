/* Dispatch: from a request to the handler of its route. */
#include "gateway/gw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "gateway/dispatch.h"

static const struct route *const tables[] = {
    kernels_routes,   sessions_routes, channels_routes,  contents_routes, files_routes,
    kspecs_routes,    status_routes,   nbconvert_routes, config_routes,   events_routes,
    terminals_routes, metrics_routes,  reitos_routes,    auth_routes,     lab_routes,
};

struct match {
    const struct route *route; /* NULL: nothing serves this path and method */
    int path_known;            /* the path exists with another method */
    const char *params[ROUTE_PARAMS];
    char *storage;
};

/* Matches `path` against `pattern`, cutting `copy` (a writable copy of path) into parameters. */
static int match_pattern(const char *pattern, const char *path, char *copy, const char **params)
{
    size_t n = 0;
    char *c = copy;
    for (;;) {
        if (pattern[0] == '*' && !pattern[1]) {
            if (n < ROUTE_PARAMS)
                params[n] = c;
            return 1;
        }
        if (!strncmp(pattern, "{}", 2)) {
            size_t len = strcspn(path, "/");
            if (!len || n == ROUTE_PARAMS)
                return 0;
            params[n++] = c;
            path += len;
            c += len;
            pattern += 2;
            if (*path) {
                if (*pattern != '/')
                    return 0;
                *c = '\0';
            }
            continue;
        }
        /* a pattern that ends in a slash and a star serves the path without both too */
        if (!*path && !strcmp(pattern, "/*")) {
            if (n < ROUTE_PARAMS)
                params[n] = c;
            return 1;
        }
        if (*pattern != *path)
            return 0;
        if (!*pattern)
            return 1;
        pattern++;
        path++;
        c++;
    }
}

static unsigned method_bit(const struct http_req *r)
{
    enum http_method m = http_method(r);
    return 1u << (m == HTTP_HEAD ? HTTP_GET : m);
}

static void match_find(struct http_req *r, int ws, struct match *m)
{
    const char *path = http_path(r);
    memset(m, 0, sizeof *m);
    m->storage = xstrdup(path);
    for (size_t t = 0; t < COUNTOF(tables); t++) {
        for (const struct route *rt = tables[t]; rt->pattern; rt++) {
            if (ws != (rt->ws != NULL) || !match_pattern(rt->pattern, path, m->storage, m->params))
                continue;
            if (ws || rt->methods & method_bit(r)) {
                m->route = rt;
                return;
            }
            m->path_known = 1;
            memcpy(m->storage, path, strlen(path) + 1);
        }
    }
}

static int is_upgrade(const struct http_req *r)
{
    const char *u = http_header(r, "upgrade");
    return u && !strcasecmp(u, "websocket");
}

int dispatch_filter(void *arg, struct http_req *r)
{
    struct gw *gw = arg;
    struct match m;
    match_find(r, is_upgrade(r), &m);
    unsigned flags = m.route ? m.route->flags : 0;
    free(m.storage);
    return auth_filter(gw, r, flags);
}

void dispatch_handle(void *arg, struct http_req *r)
{
    struct gw *gw = arg;
    struct match m;
    match_find(r, 0, &m);
    autofree char *storage = m.storage;
    if (m.route) {
        if (!(m.route->flags & ROUTE_NO_ACTIVITY) && !http_query(r, "no_track_activity"))
            gw_activity(gw);
        m.route->fn(gw, r, m.params);
    } else if (m.path_known) {
        http_reply_status(r, 405, "Method Not Allowed");
    } else {
        http_reply_status(r, 404, "Not Found");
    }
}

int dispatch_upgrade(void *arg, struct http_req *r, const struct ws_ops **ops, void **ws_arg)
{
    struct gw *gw = arg;
    struct match m;
    match_find(r, 1, &m);
    autofree char *storage = m.storage;
    if (!m.route)
        return 404;
    return m.route->ws(gw, r, m.params, ops, ws_arg);
}

/* The route's pattern names the handler in metrics, so that ids do not make new series. */
void dispatch_done(void *arg, struct http_req *r, int status, double seconds)
{
    struct gw *gw = arg;
    struct match m;
    match_find(r, 0, &m);
    const char *method = http_method_name(http_method(r));
    metrics_request(gw, method, m.route ? m.route->pattern : "none", status, seconds);
    free(m.storage);
    char url[512], took[32], code[16];
    snprintf(took, sizeof took, "%.1f", seconds * 1e3);
    snprintf(code, sizeof code, "%d", status);
    log_event(status >= 500 ? LOG_WARN : LOG_DEBUG, "request", "method", method, "url",
              log_redact(http_raw_uri(r), url, sizeof url), "status", code, "ms", took, NULL);
}

void gw_activity(struct gw *gw)
{
    gw->last_activity_us = sys.wall_us();
}
