/* api/kernelspecs and the files of kernelspecs. What is installed is looked up for each request,
 * off the loop: a kernelspec that was just installed is there. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "gateway/gw.h"
#include "gateway/static.h"
#include "gateway/urltext.h"
#include "kernel/kspec.h"

#define WARNINGS_MAX 65536

struct kspecs {
    char *warned; /* warnings already logged */
};

/* A request that waits for the list. */
struct ask {
    struct gw *gw;
    struct http_req *req;
    char *name, *file; /* both NULL: all; file NULL: the model of one */
    json_t *list;
    struct buf warnings;
};

struct kspecs *kspecs_new(struct gw *gw)
{
    (void)gw;
    return xcalloc(1, sizeof(struct kspecs));
}

void kspecs_free(struct kspecs *k)
{
    if (!k)
        return;
    free(k->warned);
    free(k);
}

/* Jupyter names a logo without its extension: {"logo-64x64": url}. */
static json_t *model(const struct gw *gw, const char *name, const json_t *entry)
{
    json_t *resources = json_object(), *path;
    const char *file;
    json_object_foreach(json_object_get(entry, "resources"), file, path)
    {
        autobuf struct buf url = BUF_INIT(BUF_DEFAULT_MAX);
        buf_add(&url, "%skernelspecs/", gw->base_url);
        url_escape(name, &url);
        buf_add(&url, "/");
        url_escape(file, &url);
        int logo = !strncmp(file, "logo-", 5);
        const char *dot = strrchr(file, '.');
        autofree char *key = xstrndup(file, logo && dot ? (size_t)(dot - file) : strlen(file));
        json_object_set_new(resources, key, json_string(buf_str(&url)));
    }
    return json_pack("{s:s,s:O,s:o}", "name", name, "spec", json_object_get(entry, "spec"),
                     "resources", resources);
}

static void serve_all(const struct ask *a)
{
    json_t *specs = json_object(), *entry;
    const char *name;
    json_object_foreach(a->list, name, entry)
    {
        json_object_set_new(specs, name, model(a->gw, name, entry));
    }
    const char *first = json_object_iter_key(json_object_iter(a->list));
    const char *chosen = a->gw->conf->default_kernel;
    if (!json_object_get(a->list, chosen) && first)
        chosen = first;
    http_reply_json(a->req, 200, json_pack("{s:s,s:o}", "default", chosen, "kernelspecs", specs));
}

static void serve_file(const struct ask *a, const json_t *entry)
{
    const char *dir = json_get_str(entry, "dir", "");
    struct fs_root root;
    if (!*dir || a->file[0] == '.' || strstr(a->file, "/.") || fs_root_open(dir, &root, NULL) < 0) {
        http_reply_status(a->req, 404, "Kernelspec resource not found");
        return;
    }
    static_serve(a->req, &root, a->file);
    fs_root_close(&root);
}

static void serve(const struct ask *a)
{
    const json_t *entry = a->name ? json_object_get(a->list, a->name) : NULL;
    if (!a->name)
        serve_all(a);
    else if (!entry)
        http_reply_status(a->req, 404, "Kernel spec not found");
    else if (a->file)
        serve_file(a, entry);
    else
        http_reply_json(a->req, 200, model(a->gw, a->name, entry));
}

static void look(void *arg)
{
    struct ask *a = arg;
    const struct gw *gw = a->gw; /* the configuration does not change */
    const struct kspec_conf c = {.prefix = gw->prefix,
                                 .default_python = gw->python,
                                 .zygote = gw->conf->zygote,
                                 .preload = gw->conf->preload};
    a->list = kspec_list(&c, &a->warnings);
}

static void ask_free(struct ask *a)
{
    json_decref(a->list);
    buf_free(&a->warnings);
    free(a->name);
    free(a->file);
    free(a);
}

static void looked(void *arg)
{
    struct ask *a = arg;
    struct kspecs *k = a->gw->kspecs;
    const char *w = buf_str(&a->warnings);
    if (*w && (!k->warned || strcmp(w, k->warned)))
        log_warn("kernelspecs left out", "why", w, NULL);
    free(k->warned);
    k->warned = xstrdup(w);
    serve(a);
    ask_free(a);
}

static void ask(struct gw *gw, struct http_req *r, const char *name, const char *file)
{
    struct ask *a = xcalloc(1, sizeof *a);
    a->gw = gw;
    a->req = r;
    a->name = xstrdup(name);
    a->file = xstrdup(file);
    for (char *p = a->name; p && *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p | 0x20);
    buf_init(&a->warnings, WARNINGS_MAX);
    loop_work(gw->loop, look, looked, a);
}

static void get_all(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    ask(gw, r, NULL, NULL);
}

static void get_one(struct gw *gw, struct http_req *r, const char *const *p)
{
    ask(gw, r, p[0], NULL);
}

static void get_file(struct gw *gw, struct http_req *r, const char *const *p)
{
    ask(gw, r, p[0], p[1]);
}

const struct route kspecs_routes[] = {
    {METHOD(GET), "api/kernelspecs", get_all, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(GET), "api/kernelspecs/{}", get_one, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(GET), "kernelspecs/{}/*", get_file, NULL, ROUTE_NO_ACTIVITY},
    {0, NULL, NULL, NULL, 0},
};
