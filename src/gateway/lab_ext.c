/* Extensions of JupyterLab and the page configuration that comes from files. */
#include <errno.h>
#include <glob.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "gateway/jdirs.h"
#include "gateway/lab.h"

#define EXTS_MAX 512
#define TEMPLATE_MAX ((size_t)1 << 20)

/* Parts of JupyterLab that call other machines or want a server half that is not here. */
static const char *const disabled[] = {
    "@jupyterlab/apputils-extension:announcements",
    "@jupyterlab/extensionmanager-extension",
    "@jupyterlab/pluginmanager-extension",
};

static void note(struct buf *problems, const char *what, const char *why)
{
    buf_add(problems, "%s: %s\n", what, why);
}

/* Reads <dir>/package.json. An extension of the same name that was found earlier wins. */
static void add_ext(struct lab_disk *d, const char *dir, struct buf *problems)
{
    struct err e = {0};
    autojson json_t *package = NULL;
    struct fs_root root;
    autofree char *path = xasprintf("%s/package.json", dir);
    if (d->n == EXTS_MAX || jdirs_read_object(path, &package, &e) < 0) {
        if (e.code && e.code != ERR_NOT_FOUND)
            note(problems, "JupyterLab extension left out", e.msg);
        return;
    }
    const char *name = json_get_str(package, "name", "");
    if (!jdirs_name_ok(name, 1) || lab_ext_find(d, name))
        return;
    const json_t *build = json_object_get(json_object_get(package, "jupyterlab"), "_build");
    if (!json_get_str(build, "load", NULL)) {
        note(problems, name, "no prebuilt JupyterLab extension (jupyterlab._build is missing)");
        return;
    }
    if (fs_root_open(dir, &root, &e) < 0) {
        note(problems, name, e.msg);
        return;
    }
    d->exts[d->n++] = (struct lab_ext){xstrdup(name), root, STEAL(package)};
}

static void scan(struct lab_disk *d, const char *pattern, struct buf *problems)
{
    glob_t g = {0};
    if (glob(pattern, GLOB_ONLYDIR, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            add_ext(d, g.gl_pathv[i], problems);
    globfree(&g);
}

/* Is the Python package `name` installed in the environment? */
static int has_package(const char *prefix, const char *name)
{
    autofree char *module = xstrdup(name);
    for (char *p = module; *p; p++)
        if (*p == '-' || *p == '.')
            *p = '_';
    autofree char *pattern = xasprintf("%s/lib/python3*/site-packages/%s-*-info", prefix, module);
    glob_t g = {0};
    int found = glob(pattern, 0, NULL, &g) == 0;
    globfree(&g);
    return found;
}

/* Extensions whose server half is a Jupyter Server extension: said so that people know why parts
 * of them do not work here. */
static void note_server_half(const struct lab_ext *x, const char *prefix, struct buf *problems)
{
    const json_t *lab = json_object_get(x->package, "jupyterlab");
    const json_t *server = json_object_get(json_object_get(lab, "discovery"), "server");
    const char *base = json_get_str(json_object_get(server, "base"), "name", NULL);
    if (!server)
        return;
    autofree char *why =
        xasprintf("its server half (%s, %s) is an extension of Jupyter Server and is not run here",
                  base ? base : "unnamed",
                  base && prefix && has_package(prefix, base) ? "installed" : "absent");
    note(problems, x->name, why);
}

/* The entry of federated_extensions. */
static json_t *federated_entry(const struct lab_ext *x)
{
    static const char *const keys[] = {"load", "extension", "mimeExtension", "style",
                                       "entrypoints"};
    const json_t *build = json_object_get(json_object_get(x->package, "jupyterlab"), "_build");
    json_t *entry = json_pack("{s:s}", "name", x->name);
    for (size_t i = 0; i < COUNTOF(keys); i++)
        if (json_object_get(build, keys[i]))
            json_object_set(entry, keys[i], json_object_get(build, keys[i]));
    return entry;
}

/* {"a": true, "b": false} and ["a"] are both in use; the page wants the list of what is true. */
static void names_to_list(json_t *page, const char *key)
{
    json_t *v = json_object_get(page, key), *list = json_array(), *on;
    const char *name;
    if (json_is_array(v)) {
        json_decref(list);
        return;
    }
    json_object_foreach(v, name, on)
    {
        if (json_is_true(on))
            json_array_append_new(list, json_string(name));
    }
    json_object_set_new(page, key, list);
}

static void list_to_names(json_t *page, const char *key)
{
    json_t *v = json_object_get(page, key), *item;
    json_t *names = json_object();
    size_t i;
    json_array_foreach(v, i, item)
    {
        if (json_is_string(item))
            json_object_set_new(names, json_string_value(item), json_true());
    }
    if (json_is_object(v))
        json_object_update(names, v);
    json_object_set_new(page, key, names);
}

/* An extension may switch off others, unless it is switched off itself. */
static void disable_by_exts(const struct lab_disk *d, json_t *names)
{
    autojson json_t *before = json_copy(names);
    for (size_t i = 0; i < d->n; i++) {
        json_t *item, *list = json_object_get(json_object_get(d->exts[i].package, "jupyterlab"),
                                              "disabledExtensions");
        size_t k;
        if (json_is_true(json_object_get(before, d->exts[i].name)))
            continue;
        json_array_foreach(list, k, item)
        {
            const char *other = json_string_value(item);
            if (other && !json_object_get(before, other))
                json_object_set_new(names, other, json_true());
        }
    }
}

static json_t *read_page_config(const struct lab_disk *d, const char *prefix)
{
    static const char *const lists[] = {"disabledExtensions", "deferredExtensions",
                                        "lockedExtensions"};
    json_t *page = json_object();
    autofree char *app = xasprintf("%s/share/jupyter/lab/settings/page_config.json", prefix);
    autojson json_t *of_app = NULL;
    if (jdirs_read_object(app, &of_app, NULL) == 0)
        jdirs_merge(page, of_app);
    for (size_t i = 0; i < COUNTOF(lists); i++)
        list_to_names(page, lists[i]);
    autojson json_t *of_user = jdirs_section(prefix, "labconfig", "page_config");
    for (size_t i = 0; i < COUNTOF(lists); i++)
        if (json_object_get(of_user, lists[i]))
            list_to_names(of_user, lists[i]);
    jdirs_merge(page, of_user);
    for (size_t i = 0; i < COUNTOF(lists); i++)
        list_to_names(page, lists[i]);
    json_t *names = json_object_get(page, "disabledExtensions");
    disable_by_exts(d, names);
    for (size_t i = 0; i < COUNTOF(disabled); i++)
        json_object_set_new(names, disabled[i], json_true());
    for (size_t i = 0; i < COUNTOF(lists); i++)
        names_to_list(page, lists[i]);
    json_t *federated = json_array();
    for (size_t i = 0; i < d->n; i++)
        json_array_append_new(federated, federated_entry(&d->exts[i]));
    json_object_set_new(page, "federated_extensions", federated);
    return page;
}

static void read_core(struct lab_disk *d, const char *prefix, struct buf *problems)
{
    struct err e;
    autobuf struct buf tmpl = BUF_INIT(TEMPLATE_MAX);
    autofree char *index = xasprintf("%s/share/jupyter/lab/static/index.html", prefix);
    autofree char *path = xasprintf("%s/share/jupyter/lab/static/package.json", prefix);
    autojson json_t *package = NULL;
    if (fs_read_path(index, TEMPLATE_MAX, &tmpl, &e) < 0) {
        autofree char *why =
            xasprintf("%s; --python names the environment that has JupyterLab", e.msg);
        note(problems, "JupyterLab is not served", why);
    } else
        d->tmpl = buf_steal(&tmpl);
    IGNORE_RESULT(jdirs_read_object(path, &package, NULL)); /* then the version is unknown */
    d->version =
        xstrdup(json_get_str(json_object_get(package, "jupyterlab"), "version", "unknown"));
}

struct lab_disk *lab_disk_read(const char *prefix, const char *own_ext)
{
    struct lab_disk *d = xcalloc(1, sizeof *d);
    struct buf problems = BUF_INIT(BUF_DEFAULT_MAX);
    d->exts = xcalloc(EXTS_MAX, sizeof *d->exts);
    char **dirs = jdirs_data(prefix);
    for (char **dir = dirs; *dir; dir++) {
        autofree char *plain = xasprintf("%s/labextensions/[!@.]*", *dir);
        autofree char *scoped = xasprintf("%s/labextensions/@*/*", *dir);
        scan(d, plain, &problems);
        scan(d, scoped, &problems);
    }
    jdirs_free(dirs);
    if (own_ext)
        add_ext(d, own_ext, &problems);
    for (size_t i = 0; i < d->n; i++)
        note_server_half(&d->exts[i], prefix, &problems);
    read_core(d, prefix, &problems);
    d->page = read_page_config(d, prefix);
    d->problems = buf_steal(&problems);
    return d;
}

struct lab_disk *lab_disk_free(struct lab_disk *d)
{
    if (!d)
        return NULL;
    for (size_t i = 0; i < d->n; i++) {
        free(d->exts[i].name);
        fs_root_close(&d->exts[i].root);
        json_decref(d->exts[i].package);
    }
    json_decref(d->page);
    free(d->exts);
    free(d->version);
    free(d->tmpl);
    free(d->problems);
    free(d);
    return NULL;
}

const struct lab_ext *lab_ext_find(const struct lab_disk *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (!strcmp(d->exts[i].name, name))
            return &d->exts[i];
    return NULL;
}
