/* JupyterLab's settings: schemas that ship with it and its extensions, and the user's values, kept
 * as the JSON5 text that the user wrote. Works on the thread pool; reads everything from disk each
 * time, as people edit these files by hand. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/list.h"
#include "base/sys.h"
#include "gateway/jdirs.h"
#include "gateway/job.h"
#include "gateway/json5.h"
#include "gateway/lab.h"

#define SETTINGS_MAX ((size_t)4 << 20)

static char *user_settings_dir(void)
{
    const char *dir = sys.env("JUPYTERLAB_SETTINGS_DIR");
    if (dir && *dir)
        return xstrdup(dir);
    autofree char *config = jdirs_user_config();
    return xasprintf("%s/lab/user-settings", config);
}

/* --- schemas: {id: path}, extensions' over the core's --- */

static int has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && !strcmp(name + n - s, suffix);
}

/* Adds <dir>/ *.json as "<package>:<name>". */
static void add_package(json_t *schemas, const char *dir, const char *package)
{
    DIR *d = opendir(dir);
    for (struct dirent *it; d && (it = readdir(d));) {
        if (it->d_name[0] == '.' || !has_suffix(it->d_name, ".json"))
            continue;
        autofree char *id =
            xasprintf("%s:%.*s", package, (int)(strlen(it->d_name) - 5), it->d_name);
        if (!json_object_get(schemas, id))
            json_object_set_new(schemas, id, json_sprintf("%s/%s", dir, it->d_name));
    }
    if (d)
        closedir(d);
}

/* Packages are folders of `dir`, or of its @scope folders. */
static void add_tree(json_t *schemas, const char *dir, const char *scope)
{
    DIR *d = opendir(dir);
    for (struct dirent *it; d && (it = readdir(d));) {
        if (it->d_name[0] == '.')
            continue;
        autofree char *path = xasprintf("%s/%s", dir, it->d_name);
        autofree char *package =
            xasprintf("%s%s%s", scope ? scope : "", scope ? "/" : "", it->d_name);
        if (it->d_name[0] == '@' && !scope)
            add_tree(schemas, path, it->d_name);
        else
            add_package(schemas, path, package);
    }
    if (d)
        closedir(d);
}

static json_t *all_schemas(const char *prefix)
{
    json_t *schemas = json_object();
    struct lab_disk *disk = lab_disk_read(prefix, NULL);
    for (size_t i = 0; i < disk->n; i++) {
        autofree char *dir = xasprintf("%s/schemas", disk->exts[i].root.path);
        add_tree(schemas, dir, NULL);
    }
    lab_disk_free(disk);
    autofree char *core = xasprintf("%s/share/jupyter/lab/schemas", prefix);
    add_tree(schemas, core, NULL);
    return schemas;
}

/* --- defaults that an administrator or the environment overrides: {id: {property: value}} --- */

static json_t *read_overrides(const char *prefix)
{
    static const char *const names[] = {"overrides.json", "overrides.json5"};
    json_t *all = json_object();
    for (size_t i = 0; i < COUNTOF(names); i++) {
        autojson json_t *one = NULL;
        autofree char *path = xasprintf("%s/share/jupyter/lab/settings/%s", prefix, names[i]);
        if (jdirs_read_object(path, &one, NULL) == 0)
            jdirs_merge(all, one);
    }
    autojson json_t *user = jdirs_section(prefix, "labconfig", "default_setting_overrides");
    jdirs_merge(all, user);
    return all;
}

static void apply_overrides(json_t *schema, const json_t *values)
{
    json_t *props = json_object_get(schema, "properties");
    const char *key;
    json_t *v;
    if (!json_is_object(props))
        return;
    json_object_foreach((json_t *)values, key, v)
    {
        json_t *prop = json_object_get(props, key);
        json_t *old = json_object_get(prop, "default");
        if (!json_is_object(prop))
            json_object_set_new(props, key, json_pack("{s:O}", "default", v));
        else if (json_is_object(old) && json_is_object(v))
            jdirs_merge(old, v);
        else
            json_object_set(prop, "default", v);
    }
}

/* --- one plugin --- */

static json_t *file_time(struct timespec t)
{
    char text[SYS_TIME_MAX];
    return json_string(sys_time_iso((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000, text));
}

/* The user's values; text that does not parse is given as raw, for its author to mend. */
static void add_user_part(json_t *o, const char *dir, const char *package, const char *plugin)
{
    autofree char *path = xasprintf("%s/%s/%s.jupyterlab-settings", dir, package, plugin);
    autobuf struct buf raw = BUF_INIT(SETTINGS_MAX);
    autojson json_t *settings = NULL;
    struct stat st;
    struct err e = {0};
    if (stat(path, &st) < 0 || fs_read_path(path, SETTINGS_MAX, &raw, &e) < 0) {
        json_object_update_new(o, json_pack("{s:s,s:{},s:n,s:n}", "raw", "{}", "settings",
                                            "last_modified", "created"));
        return;
    }
    if (raw.len && json5_parse(buf_str(&raw), raw.len, &settings, &e) < 0)
        json_object_set_new(o, "warning", json_sprintf("%s: %s", path, e.msg));
    json_t *text = json_stringn(raw.len ? buf_str(&raw) : "{}", raw.len ? raw.len : 2);
    json_object_set_new(o, "raw", text ? text : json_string("{}"));
    json_object_set_new(o, "settings",
                        json_is_object(settings) ? json_incref(settings) : json_object());
    json_object_set_new(o, "last_modified", file_time(st.st_mtim));
    json_object_set_new(o, "created", file_time(st.st_ctim));
}

/* The package's version, from the copy of its package.json beside the schemas. */
static json_t *schema_version(const char *path)
{
    autojson json_t *package = NULL;
    const char *slash = strrchr(path, '/');
    autofree char *orig = xasprintf("%.*s/package.json.orig", (int)(slash - path), path);
    if (jdirs_read_object(orig, &package, NULL) < 0)
        return json_string("N/A");
    return json_string(json_get_str(package, "version", "N/A"));
}

static int read_plugin(const char *id, const char *path, const char *dir, const json_t *overrides,
                       json_t **ret, struct err *e)
{
    autojson json_t *schema = NULL;
    int rc = jdirs_read_object(path, &schema, e);
    if (rc < 0)
        return rc;
    apply_overrides(schema, json_object_get(overrides, id));
    const char *colon = strrchr(id, ':');
    autofree char *package = xstrndup(id, (size_t)(colon - id));
    json_t *o = json_object();
    json_object_set_new(o, "id", json_string(id));
    json_object_set(o, "schema", schema);
    json_object_set_new(o, "version", schema_version(path));
    add_user_part(o, dir, package, colon + 1);
    *ret = o;
    return 0;
}

static int list_plugins(struct job *j, int ids_only)
{
    autofree char *dir = user_settings_dir();
    autojson json_t *schemas = all_schemas(j->prefix), *overrides = read_overrides(j->prefix);
    json_t *list = json_array(), *path;
    const char *id;
    json_object_foreach(schemas, id, path)
    {
        json_t *o = NULL;
        struct err e;
        if (ids_only)
            json_array_append_new(list, json_pack("{s:s}", "id", id));
        /* one damaged schema must not take away all settings: it is left out */
        else if (read_plugin(id, json_string_value(path), dir, overrides, &o, &e) == 0)
            json_array_append_new(list, o);
    }
    j->reply = json_pack("{s:o}", "settings", list);
    return 0;
}

static int list_full(struct job *j, struct err *e)
{
    (void)e;
    return list_plugins(j, 0);
}

static int list_ids(struct job *j, struct err *e)
{
    (void)e;
    return list_plugins(j, 1);
}

/* --- requests --- */

/* The path of the schema called j->name; ERR_NOT_FOUND. */
static int find_schema(const struct job *j, char **ret, struct err *e)
{
    autojson json_t *schemas = all_schemas(j->prefix);
    const char *path = json_string_value(json_object_get(schemas, j->name));
    if (!path)
        return err_set(e, ERR_NOT_FOUND, "Schema not found: %.200s", j->name);
    *ret = xstrdup(path);
    return 0;
}

static int get_one(struct job *j, struct err *e)
{
    autofree char *path = NULL, *dir = user_settings_dir();
    int rc = find_schema(j, &path, e);
    if (rc < 0)
        return rc;
    autojson json_t *overrides = read_overrides(j->prefix);
    return read_plugin(j->name, path, dir, overrides, &j->reply, e);
}

static int put_one(struct job *j, struct err *e)
{
    autojson json_t *body = NULL, *settings = NULL;
    autofree char *path = NULL;
    int rc = json_parse(buf_str(&j->body), j->body.len, &body, e);
    if (rc < 0)
        return rc;
    const json_t *raw = json_object_get(body, "raw");
    if (!json_is_string(raw))
        return err_set(e, ERR_INVALID, "the text of the settings (\"raw\") is missing");
    const char *text = json_string_value(raw);
    rc = json5_parse(text, json_string_length(raw), &settings, e);
    if (rc < 0)
        return err_wrap(e, "settings");
    if (!json_is_object(settings))
        return err_set(e, ERR_INVALID, "settings must be an object");
    rc = find_schema(j, &path, e);
    if (rc < 0)
        return rc;
    const char *colon = strrchr(j->name, ':');
    autofree char *dir = user_settings_dir();
    autofree char *folder = xasprintf("%s/%.*s", dir, (int)(colon - j->name), j->name);
    autofree char *file = xasprintf("%s/%s.jupyterlab-settings", folder, colon + 1);
    rc = fs_mkdirs(folder, 0777, e);
    return rc < 0 ? rc : fs_write_path(file, text, strlen(text), 0, e);
}

void lab_settings(struct gw *gw, struct http_req *r, const char *const *p)
{
    const char *ids = http_query(r, "ids_only");
    int put = http_method(r) == HTTP_PUT;
    if (put && !*p[0])
        http_reply_status(r, 400, "Name the settings to change");
    else if (put)
        job_start(gw, r, p[0], SETTINGS_MAX, put_one);
    else if (*p[0])
        job_start(gw, r, p[0], 0, get_one);
    else
        job_start(gw, r, "", 0, ids && !strcmp(ids, "true") ? list_ids : list_full);
}
