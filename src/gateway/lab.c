/* JupyterLab: its pages and static files. */
#include "gateway/lab.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"
#include "gateway/auth.h"
#include "gateway/hub.h"
#include "gateway/static.h"
#include "gateway/urltext.h"

#define REREAD_US ((int64_t)2000000)

/* --- lifecycle --- */

/* Logs each line of `problems` that was not logged before. */
static void announce(struct lab *l, const char *problems)
{
    while (*problems) {
        size_t n = strcspn(problems, "\n");
        autofree char *line = xstrndup(problems, n);
        if (!json_object_get(l->announced, line))
            log_warn("JupyterLab", "note", line, NULL);
        json_object_set_new(l->announced, line, json_true());
        problems += n + (problems[n] == '\n');
    }
}

/* REITOS's own extension: beside the program in a source tree, or under share/ when installed. */
static char *find_own_ext(const struct gw *gw)
{
    static const char *const places[] = {"../web/labextension", "../share/reitos/labextension"};
    const char *slash = gw->shim_program ? strrchr(gw->shim_program, '/') : NULL;
    if (!slash)
        return NULL;
    for (size_t i = 0; i < COUNTOF(places); i++) {
        autofree char *dir =
            xasprintf("%.*s/%s", (int)(slash - gw->shim_program), gw->shim_program, places[i]);
        char *real = realpath(dir, NULL);
        if (real)
            return real;
    }
    return NULL;
}

struct lab *lab_new(struct gw *gw)
{
    struct lab *l = xcalloc(1, sizeof *l);
    autofree char *dir = xasprintf("%s/share/jupyter/lab", gw->prefix);
    l->gw = gw;
    l->announced = json_object();
    l->own_ext = find_own_ext(gw);
    if (fs_root_open(dir, &l->core, NULL) < 0)
        l->core.fd = -1; /* lab_disk_read() says so */
    l->disk = lab_disk_read(gw->prefix, l->own_ext);
    l->read_us = sys.mono_us();
    announce(l, l->disk->problems);
    return l;
}

void lab_free(struct lab *l)
{
    if (!l)
        return;
    lab_disk_free(l->disk);
    if (l->core.fd >= 0)
        fs_root_close(&l->core);
    json_decref(l->announced);
    free(l->own_ext);
    free(l);
}

/* --- the page --- */

static void set_urls(json_t *c, const char *base_url)
{
    static const struct {
        const char *key, *full, *path;
    } urls[] = {
        {"appUrl", "fullAppUrl", "lab"},
        {"treeUrl", "fullTreeUrl", "lab/tree"},
        {"labextensionsUrl", "fullLabextensionsUrl", "lab/extensions"},
        {"settingsUrl", "fullSettingsUrl", "lab/api/settings"},
        {"workspacesApiUrl", "fullWorkspacesApiUrl", "lab/api/workspaces"},
        {"listingsUrl", "fullListingsUrl", "lab/api/listings"},
        {"themesUrl", "fullThemesUrl", "lab/api/themes"},
        {"licensesUrl", "fullLicensesUrl", "lab/api/licenses"},
        {"translationsApiUrl", "fullTranslationsApiUrl", "lab/api/translations"},
        {"staticUrl", "fullStaticUrl", "static/lab"},
    };
    for (size_t i = 0; i < COUNTOF(urls); i++) {
        json_object_set_new(c, urls[i].key, json_sprintf("/%s", urls[i].path));
        json_object_set_new(c, urls[i].full, json_sprintf("%s%s", base_url, urls[i].path));
    }
}

static void set_app(struct lab *l, json_t *c)
{
    const struct gw *gw = l->gw;
    json_object_update_new(
        c,
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:i}",
                  "appName", "JupyterLab", "appNamespace", "lab", "appVersion", l->disk->version,
                  "serverRoot", gw->root.path, "preferredPath", "/", "token", "", "mode",
                  "multiple-document", "terminalsAvailable", gw->conf->terminals != 0,
                  "buildAvailable", 0, "buildCheck", 0, "devMode", 0, "exposeAppInBrowser", 0,
                  "quitButton", 1, "cacheFiles", 1, "notebookStartsKernel", 1, "copyAbsolutePath",
                  0, "allow_hidden_files", gw->conf->hidden != 0, "store_id", (int)++l->pages));
    json_object_set_new(c, "delete_to_trash", json_false());
    json_object_set_new(c, "news", json_pack("{s:b}", "disabled", 1));
    json_object_set_new(c, "notebookVersion", json_string("[2, 0, 0, \"\", \"\"]"));
    json_object_set_new(c, "reitosVersion", json_string(REITOS_VERSION));
    json_object_set_new(c, "extensionManager", json_object());
    json_object_set_new(c, "baseUrl", json_string(gw->base_url));
    json_object_set_new(c, "ignorePlugins", json_array());
}

/* The part after "workspaces/" up to the next slash, and after "tree/": of "x/workspaces/w/tree/p",
 * where either may be absent. 0: the path is none of Lab's. */
static int parse_page_path(const char *path, json_t *c)
{
    const char *rest = strchr(path, '/');
    autofree char *workspace = xstrdup("default");
    json_object_set_new(c, "treePath", json_string(""));
    if (rest && !strncmp(rest, "/workspaces/", 12)) {
        size_t n = strcspn(rest + 12, "/");
        free(workspace);
        workspace = xstrndup(rest + 12, n);
        rest += 12 + n;
    }
    json_object_set_new(c, "workspace", json_string(workspace));
    if (!rest || !*rest || !strcmp(rest, "/"))
        return 1;
    if (!strcmp(rest, "/tree"))
        return 1;
    if (strncmp(rest, "/tree/", 6))
        return 0;
    json_object_set_new(c, "treePath", json_string(rest + 6));
    return 1;
}

static void send_page(struct lab *l, struct http_req *r)
{
    struct err e = {0};
    if (!l->disk->tmpl) {
        http_reply_status(r, 503, "JupyterLab is not installed in the Python environment served");
        return;
    }
    autojson json_t *c = json_deep_copy(l->disk->page);
    set_app(l, c);
    set_urls(c, l->gw->base_url);
    if (!strncmp(http_path(r), "doc", 3))
        json_object_set_new(c, "mode", json_string("single-document"));
    if (!parse_page_path(http_path(r), c))
        json_object_set_new(c, "notFoundUrl", json_string(http_raw_uri(r)));
    if (l->gw->auth->hub)
        hub_page_config(l->gw->auth->hub, c);
    struct buf out = BUF_INIT(BUF_DEFAULT_MAX);
    if (lab_render(l->disk->tmpl, c, &out, &e) < 0) {
        buf_free(&out);
        http_reply_err(r, &e);
        return;
    }
    http_set_header(r, "Cache-Control", "no-store");
    http_reply_buf(r, 200, "text/html; charset=utf-8", &out);
}

struct reread {
    struct lab *lab;
    struct http_req *req;
    struct lab_disk *disk;
    char *prefix, *own_ext;
};

static void reread_work(void *arg)
{
    struct reread *w = arg;
    w->disk = lab_disk_read(w->prefix, w->own_ext);
}

static void reread_done(void *arg)
{
    struct reread *w = arg;
    struct lab *l = w->lab;
    lab_disk_free(l->disk);
    l->disk = w->disk;
    l->read_us = sys.mono_us();
    announce(l, l->disk->problems);
    send_page(l, w->req);
    free(w->prefix);
    free(w->own_ext);
    free(w);
}

/* Extensions installed since the last page was served appear with the next one. */
static void get_page(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct lab *l = gw->lab;
    if (!strncmp(http_path(r), "lab/api/", 8)) {
        http_reply_status(r, 404, "Not Found");
        return;
    }
    if (sys.mono_us() - l->read_us < REREAD_US) {
        send_page(l, r);
        return;
    }
    struct reread *w = xcalloc(1, sizeof *w);
    w->lab = l;
    w->req = r;
    w->prefix = xstrdup(gw->prefix);
    w->own_ext = xstrdup(l->own_ext);
    loop_work(gw->loop, reread_work, reread_done, w);
}

/* --- other pages --- */

static void get_root(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    autofree char *to = xasprintf("%slab", gw->base_url);
    http_redirect(r, to);
}

/* Addresses of the classic notebook. VS Code takes a 200 for /tree as "no password needed", so this
 * one leads on by a page rather than by a redirect. */
static void get_tree(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    autobuf struct buf path = BUF_INIT(BUF_DEFAULT_MAX);
    url_escape(p[0], &path);
    buf_add(&b,
            "<!doctype html><title>REITOS</title><meta http-equiv=\"refresh\" "
            "content=\"0;url=%slab%s%s\">",
            gw->base_url, path.len ? "/tree/" : "", buf_str(&path));
    http_reply_buf(r, 200, "text/html; charset=utf-8", &b);
}

static void get_notebook(struct gw *gw, struct http_req *r, const char *const *p)
{
    autobuf struct buf to = BUF_INIT(BUF_DEFAULT_MAX);
    buf_add(&to, "%slab/tree/", gw->base_url);
    url_escape(p[0], &to);
    http_redirect(r, to.data);
}

/* JupyterLab asks for language servers; there are none. */
static void get_lsp(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw, (void)p;
    http_reply_json(r, 200, json_pack("{s:i,s:{},s:{}}", "version", 2, "sessions", "specs"));
}

/* --- files --- */

static void get_static(struct gw *gw, struct http_req *r, const char *const *p)
{
    autofree char *rel = xasprintf("static/%s", p[0]);
    if (gw->lab->core.fd < 0)
        http_reply_status(r, 404, "Not Found");
    else
        static_serve(r, &gw->lab->core, rel);
}

/* "@scope/name/rest" or "name/rest". */
static void get_extension(struct gw *gw, struct http_req *r, const char *const *p)
{
    size_t n = strcspn(p[0], "/");
    if (p[0][0] == '@' && p[0][n])
        n += 1 + strcspn(p[0] + n + 1, "/");
    autofree char *name = xstrndup(p[0], n);
    const struct lab_ext *x = lab_ext_find(gw->lab->disk, name);
    if (x && p[0][n] == '/')
        static_serve(r, &x->root, p[0] + n + 1);
    else
        http_reply_status(r, 404, "Not Found");
}

static void get_theme(struct gw *gw, struct http_req *r, const char *const *p)
{
    const struct lab *l = gw->lab;
    autofree char *rel = xasprintf("themes/%s", p[0]);
    if (l->core.fd >= 0 && static_try(r, &l->core, rel))
        return;
    for (size_t i = 0; i < l->disk->n; i++)
        if (static_try(r, &l->disk->exts[i].root, rel))
            return;
    http_reply_status(r, 404, "Not Found");
}

#define QUIET ROUTE_NO_ACTIVITY
const struct route lab_routes[] = {
    {METHOD(GET), "", get_root, NULL, ROUTE_PAGE | QUIET},
    {METHOD(GET), "tree/*", get_tree, NULL, ROUTE_PAGE | QUIET},
    {METHOD(GET), "notebooks/*", get_notebook, NULL, ROUTE_PAGE | QUIET},
    {METHOD(GET), "edit/*", get_notebook, NULL, ROUTE_PAGE | QUIET},
    {METHOD(GET), "lab/extensions/*", get_extension, NULL, QUIET},
    {METHOD(GET), "lab/api/settings/*", lab_settings, NULL, QUIET},
    {METHOD(PUT), "lab/api/settings/*", lab_settings, NULL, 0},
    {METHOD(GET), "lab/api/workspaces/*", lab_workspaces, NULL, QUIET},
    {METHOD(PUT) | METHOD(DELETE), "lab/api/workspaces/*", lab_workspaces, NULL, QUIET},
    {METHOD(GET), "lab/api/themes/*", get_theme, NULL, QUIET},
    {METHOD(GET), "lab/api/translations/*", lab_translations, NULL, QUIET},
    {METHOD(GET), "lab/api/listings/*", lab_listings, NULL, QUIET},
    {METHOD(GET), "lab/api/licenses/*", lab_licenses, NULL, QUIET},
    {METHOD(GET), "lsp/status", get_lsp, NULL, QUIET},
    {METHOD(GET), "static/lab/*", get_static, NULL, ROUTE_PUBLIC | QUIET},
    {METHOD(GET), "static/favicons/{}", lab_favicon, NULL, ROUTE_PUBLIC | QUIET},
    {METHOD(GET), "favicon.ico", lab_favicon, NULL, ROUTE_PUBLIC | QUIET},
    {METHOD(GET), "lab/*", get_page, NULL, ROUTE_PAGE | QUIET},
    {METHOD(GET), "doc/*", get_page, NULL, ROUTE_PAGE | QUIET},
    {0, NULL, NULL, NULL, 0},
};
