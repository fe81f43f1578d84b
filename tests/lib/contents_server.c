/* The contents and files routes alone behind the HTTP server, without authentication: for tests of
 * the REST API. Usage: contents_server ROOT DATA; prints its port; ends on SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/loop.h"
#include "gateway/gw.h"
#include "gateway/kernels.h"
#include "meta/meta.h"

/* What the routes need of modules that are not here. */
void events_emit(struct gw *gw, const char *schema_id, const char *version, json_t *data)
{
    (void)gw, (void)schema_id, (void)version;
    json_decref(data);
}

struct kernel *kernels_find(const struct gw *gw, const char *id)
{
    (void)gw, (void)id;
    return NULL;
}

static int pass(void *arg, struct http_req *r)
{
    (void)arg, (void)r;
    return 1;
}

static int refuse(void *arg, struct http_req *r, const struct ws_ops **ops, void **ws_arg)
{
    (void)arg, (void)r, (void)ops, (void)ws_arg;
    return 404;
}

static void done(void *arg, struct http_req *r, int status, double seconds)
{
    (void)arg, (void)r, (void)status, (void)seconds;
}

static int serve(struct gw *gw, struct http_req *r, const struct route *rt)
{
    enum http_method m = http_method(r);
    for (; rt->pattern; rt++) {
        size_t n = strlen(rt->pattern) - 2; /* without the slash and the star */
        const char *path = http_path(r);
        if (strncmp(path, rt->pattern, n) != 0 || (path[n] && path[n] != '/'))
            continue;
        if (!(rt->methods & (1u << (m == HTTP_HEAD ? HTTP_GET : m)))) {
            http_reply_status(r, 405, "Method Not Allowed");
            return 1;
        }
        autofree char *rest = xstrdup(path[n] ? path + n + 1 : "");
        const char *p[ROUTE_PARAMS] = {rest};
        rt->fn(gw, r, p);
        return 1;
    }
    return 0;
}

static void handle(void *arg, struct http_req *r)
{
    if (!serve(arg, r, contents_routes) && !serve(arg, r, files_routes))
        http_reply_status(r, 404, "Not Found");
}

static void stop(uv_signal_t *s, int signum)
{
    (void)signum;
    uv_stop(s->loop);
}

static void die(const struct err *e)
{
    fprintf(stderr, "contents_server: %s\n", e->msg);
    exit(1);
}

int main(int argc, char **argv)
{
    struct err e;
    uv_loop_t loop;
    uv_signal_t term;
    struct conf conf = {0};
    struct gw gw = {.loop = &loop, .conf = &conf, .base_url = "/"};
    if (argc != 3)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    json_setup();
    uv_loop_init(&loop);
    autofree char *url = xasprintf("sqlite:%s/meta.db", argv[2]);
    if (fs_root_open(argv[1], &gw.root, &e) < 0 || meta_open(&loop, url, &gw.meta, &e) < 0)
        die(&e);
    gw.contents = contents_new(&gw, &e);
    struct http_conf hc = {.listen = "127.0.0.1:0",
                           .base_url = "/",
                           .filter = pass,
                           .handle = handle,
                           .upgrade = refuse,
                           .done = done,
                           .arg = &gw};
    if (http_server_start(&loop, &hc, &gw.http, &e) < 0)
        die(&e);
    printf("%d\n", http_server_port(gw.http));
    fflush(stdout);
    uv_signal_init(&loop, &term);
    uv_signal_start(&term, stop, SIGTERM);
    uv_run(&loop, UV_RUN_DEFAULT);
    http_server_stop(gw.http);
    contents_free(gw.contents);
    meta_close(gw.meta);
    uv_close((uv_handle_t *)&term, NULL);
    loop_fini(&loop);
    fs_root_close(&gw.root);
    return 0;
}
