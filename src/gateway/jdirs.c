/* Jupyter's folders and the configuration found in them. */
#include "gateway/jdirs.h"

#include <ctype.h>
#include <glob.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"
#include "gateway/json5.h"

#define DIRS_MAX 64
#define CONFIG_FILE_MAX ((size_t)4 << 20)

static const char *home(void)
{
    const char *h = sys.env("HOME");
    return h && *h ? h : "/";
}

static void add(char **list, size_t *n, char *dir)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp(list[i], dir)) {
            free(dir);
            return;
        }
    if (*n < DIRS_MAX)
        list[(*n)++] = dir;
    else
        free(dir);
}

static void add_path_list(char **list, size_t *n, const char *text)
{
    while (text && *text) {
        size_t len = strcspn(text, ":");
        if (len)
            add(list, n, xstrndup(text, len));
        text += len + (text[len] == ':');
    }
}

char *jdirs_user_config(void)
{
    const char *dir = sys.env("JUPYTER_CONFIG_DIR");
    return dir && *dir ? xstrdup(dir) : xasprintf("%s/.jupyter", home());
}

char **jdirs_data(const char *prefix)
{
    char **list = xcalloc(DIRS_MAX + 1, sizeof *list);
    size_t n = 0;
    const char *own = sys.env("JUPYTER_DATA_DIR"), *xdg = sys.env("XDG_DATA_HOME");
    add_path_list(list, &n, sys.env("JUPYTER_PATH"));
    if (own && *own)
        add(list, &n, xstrdup(own));
    else if (xdg && *xdg)
        add(list, &n, xasprintf("%s/jupyter", xdg));
    else
        add(list, &n, xasprintf("%s/.local/share/jupyter", home()));
    if (prefix)
        add(list, &n, xasprintf("%s/share/jupyter", prefix));
    add(list, &n, xstrdup("/usr/local/share/jupyter"));
    add(list, &n, xstrdup("/usr/share/jupyter"));
    return list;
}

char **jdirs_config(const char *prefix)
{
    char **list = xcalloc(DIRS_MAX + 1, sizeof *list);
    size_t n = 0;
    add_path_list(list, &n, sys.env("JUPYTER_CONFIG_PATH"));
    add(list, &n, jdirs_user_config());
    if (prefix)
        add(list, &n, xasprintf("%s/etc/jupyter", prefix));
    add(list, &n, xstrdup("/usr/local/etc/jupyter"));
    add(list, &n, xstrdup("/etc/jupyter"));
    return list;
}

void jdirs_free(char **list)
{
    for (char **p = list; p && *p; p++)
        free(*p);
    free(list);
}

void jdirs_merge(json_t *target, const json_t *update)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)update, key, v)
    {
        if (json_is_null(v)) {
            json_object_del(target, key);
        } else if (json_is_object(v)) {
            json_t *old = json_object_get(target, key);
            if (!json_is_object(old)) {
                old = json_object();
                json_object_set_new(target, key, old);
            }
            jdirs_merge(old, v);
            if (!json_object_size(old))
                json_object_del(target, key);
        } else {
            json_object_set(target, key, v);
        }
    }
}

int jdirs_read_object(const char *path, json_t **ret, struct err *e)
{
    autobuf struct buf text = BUF_INIT(CONFIG_FILE_MAX);
    autojson json_t *v = NULL;
    size_t n = strlen(path);
    int rc = fs_read_path(path, CONFIG_FILE_MAX, &text, e);
    if (rc < 0)
        return rc;
    int is5 = n > 6 && !strcmp(path + n - 6, ".json5");
    rc = is5 ? json5_parse(buf_str(&text), text.len, &v, e)
             : json_parse(buf_str(&text), text.len, &v, e);
    if (rc < 0)
        return err_wrap(e, "%s", path);
    if (!json_is_object(v))
        return err_set(e, ERR_PARSE, "%s: an object is expected", path);
    *ret = STEAL(v);
    return 0;
}

static void merge_file(json_t *target, const char *path)
{
    autojson json_t *v = NULL;
    /* one damaged or missing file of many must not take the others away */
    if (jdirs_read_object(path, &v, NULL) == 0)
        jdirs_merge(target, v);
}

json_t *jdirs_section(const char *prefix, const char *sub, const char *section)
{
    json_t *out = json_object();
    char **dirs = jdirs_config(prefix);
    size_t n = 0;
    while (dirs[n])
        n++;
    while (n--) { /* the most important last */
        autofree char *pattern = xasprintf("%s/%s/%s.d/*.json", dirs[n], sub, section);
        autofree char *file = xasprintf("%s/%s/%s.json", dirs[n], sub, section);
        glob_t g = {0};
        if (glob(pattern, 0, NULL, &g) == 0)
            for (size_t i = 0; i < g.gl_pathc; i++)
                merge_file(out, g.gl_pathv[i]);
        globfree(&g);
        merge_file(out, file);
    }
    jdirs_free(dirs);
    return out;
}

int jdirs_name_ok(const char *name, int slashes)
{
    int start = 1;
    for (const char *p = name; *p; p++) {
        if (*p == '/') {
            if (!slashes || start)
                return 0;
            start = 1;
            continue;
        }
        if ((start && *p == '.') || !(isalnum((unsigned char)*p) || strchr("_.@-", *p)))
            return 0;
        start = 0;
    }
    return !start;
}
