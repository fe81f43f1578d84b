#include "kernel/kspec.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"

#define SPEC_MAX ((size_t)1 << 20) /* bytes of a kernel.json */
#define NAME_LEN_MAX 255
#define DIRS_MAX 64 /* folders searched; more JUPYTER_PATH entries than that are left out */

struct dirs {
    char *path[DIRS_MAX];
    size_t n;
};

static void dirs_add(struct dirs *d, char *path)
{
    if (d->n < DIRS_MAX)
        d->path[d->n++] = path;
    else
        free(path);
}

static void dirs_free(struct dirs *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->path[i]);
}
#define autodirs __attribute__((cleanup(dirs_free)))

static const char *env_or(const char *name, const char *def)
{
    const char *v = sys.env(name);
    return v && *v ? v : def;
}

static void dirs_user(struct dirs *d)
{
    const char *own = env_or("JUPYTER_DATA_DIR", NULL);
    const char *xdg = env_or("XDG_DATA_HOME", NULL);
    const char *home = env_or("HOME", NULL);
    if (own)
        dirs_add(d, xasprintf("%s/kernels", own));
    else if (xdg)
        dirs_add(d, xasprintf("%s/jupyter/kernels", xdg));
    else if (home)
        dirs_add(d, xasprintf("%s/.local/share/jupyter/kernels", home));
}

static void dirs_find(const struct kspec_conf *c, struct dirs *d)
{
    const char *p = env_or("JUPYTER_PATH", "");
    while (*p) {
        size_t n = strcspn(p, ":");
        if (n)
            dirs_add(d, xasprintf("%.*s/kernels", (int)n, p));
        p += n + (p[n] == ':');
    }
    dirs_user(d);
    if (c->prefix && *c->prefix)
        dirs_add(d, xasprintf("%s/share/jupyter/kernels", c->prefix));
    if (c->no_system)
        return;
    dirs_add(d, xstrdup("/usr/local/share/jupyter/kernels"));
    dirs_add(d, xstrdup("/usr/share/jupyter/kernels"));
}

/* Lower-case copy, NULL when it is not a kernel's name. */
static char *canonical(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > NAME_LEN_MAX || name[0] == '.')
        return NULL;
    char *s = xstrdup(name);
    for (char *p = s; *p; p++) {
        *p = (char)tolower((unsigned char)*p);
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789._- ", *p)) {
            free(s);
            return NULL;
        }
    }
    return s;
}

/* ---- one spec ---- */

static int all_strings(const json_t *v)
{
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_array(v)) {
        json_array_foreach(v, i, item) if (!json_is_string(item)) return 0;
    } else {
        json_object_foreach((json_t *)v, key, item) if (!json_is_string(item)) return 0;
    }
    return 1;
}

/* What is wrong with a kernel.json, or NULL. */
static const char *complaint(const json_t *spec)
{
    const json_t *argv = json_object_get(spec, "argv");
    const json_t *env = json_object_get(spec, "env");
    const json_t *meta = json_object_get(spec, "metadata");
    const json_t *mode = json_object_get(spec, "interrupt_mode");
    const json_t *language = json_object_get(spec, "language");
    if (!json_is_object(spec))
        return "not an object";
    if (!json_is_array(argv) || json_array_size(argv) == 0 || !all_strings(argv))
        return "argv is not a list of strings";
    if (!*json_string_value(json_array_get(argv, 0)))
        return "argv names no program";
    if (!json_is_string(json_object_get(spec, "display_name")))
        return "display_name is missing";
    if (language && !json_is_string(language))
        return "language is not text";
    if (env && (!json_is_object(env) || !all_strings(env)))
        return "env is not an object of strings";
    if (meta && !json_is_object(meta))
        return "metadata is not an object";
    const char *m = mode ? json_string_value(mode) : "signal";
    if (!m || (strcmp(m, "signal") != 0 && strcmp(m, "message") != 0))
        return "interrupt_mode is neither signal nor message";
    return NULL;
}

/* Clients rely on every field being there. */
static void complete(json_t *spec)
{
    if (!json_object_get(spec, "env"))
        json_object_set_new(spec, "env", json_object());
    if (!json_object_get(spec, "metadata"))
        json_object_set_new(spec, "metadata", json_object());
    if (!json_object_get(spec, "language"))
        json_object_set_new(spec, "language", json_string(""));
    if (!json_object_get(spec, "interrupt_mode"))
        json_object_set_new(spec, "interrupt_mode", json_string("signal"));
}

static int is_resource(const char *name)
{
    return strcmp(name, "kernel.js") == 0 || strcmp(name, "kernel.css") == 0 ||
           strncmp(name, "logo-", 5) == 0;
}

static json_t *resources(const char *dir)
{
    json_t *r = json_object();
    DIR *d = opendir(dir);
    struct dirent *ent;
    while (d && (ent = readdir(d))) {
        struct stat st;
        autofree char *path = xasprintf("%s/%s", dir, ent->d_name);
        if (is_resource(ent->d_name) && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            /* a name that is not UTF-8 cannot be asked for either */
            IGNORE_RESULT(json_object_set_new(r, ent->d_name, json_string(path)));
    }
    if (d)
        closedir(d);
    return r;
}

static json_t *entry_new(const char *name, const char *dir, json_t *spec)
{
    json_t *e = json_object();
    complete(spec);
    json_object_set_new(e, "name", json_string(name));
    json_object_set_new(e, "spec", spec);
    json_object_set_new(e, "resources", *dir ? resources(dir) : json_object());
    json_object_set_new(e, "dir", json_string(dir));
    return e;
}

/* New entry, or NULL and a line in `warnings`. */
static json_t *entry_read(const char *name, const char *dir, struct buf *warnings)
{
    autofree char *path = xasprintf("%s/kernel.json", dir);
    autobuf struct buf text = BUF_INIT(SPEC_MAX);
    autojson json_t *spec = NULL;
    struct err e = {0};
    const char *wrong = NULL;
    if (fs_read_path(path, SPEC_MAX, &text, &e) < 0 ||
        json_parse(text.data, text.len, &spec, &e) < 0)
        wrong = e.msg;
    else
        wrong = complaint(spec);
    if (!wrong)
        return entry_new(name, dir, STEAL(spec));
    if (warnings)
        /* a report that is full says enough */
        IGNORE_RESULT(buf_printf(warnings, "%s: %s\n", path, wrong));
    return NULL;
}

/* ---- all of them ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void list_dir(const char *base, json_t *all, struct buf *warnings)
{
    struct dirent **names = NULL;
    int n = scandir(base, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        autofree char *name = canonical(names[i]->d_name);
        autofree char *dir = xasprintf("%s/%s", base, names[i]->d_name);
        autofree char *json = xasprintf("%s/kernel.json", dir);
        if (name && !json_object_get(all, name) && access(json, F_OK) == 0) {
            json_t *e = entry_read(name, dir, warnings);
            if (e)
                json_object_set_new(all, name, e);
        }
        free(names[i]);
    }
    free(names);
}

static json_t *default_entry(void)
{
    json_t *spec =
        json_pack("{s:[s,s,s,s,s], s:s, s:s, s:{s:b}}", "argv", "python", "-m",
                  "ipykernel_launcher", "-f", "{connection_file}", "display_name",
                  "Python 3 (ipykernel)", "language", "python", "metadata", "debugger", 1);
    return entry_new("python3", "", spec);
}

json_t *kspec_list(const struct kspec_conf *c, struct buf *warnings)
{
    json_t *all = json_object();
    autodirs struct dirs d = {.n = 0};
    dirs_find(c, &d);
    for (size_t i = 0; i < d.n; i++)
        list_dir(d.path[i], all, warnings);
    if (!json_object_get(all, "python3") && c->default_python && *c->default_python)
        json_object_set_new(all, "python3", default_entry());
    return all;
}

int kspec_find(const struct kspec_conf *c, const char *name, json_t **ret, struct err *e)
{
    autofree char *wanted = canonical(name);
    autojson json_t *all = wanted ? kspec_list(c, NULL) : NULL;
    json_t *entry = wanted ? json_object_get(all, wanted) : NULL;
    if (!entry)
        return err_set(e, ERR_NOT_FOUND, "no kernelspec is called \"%.*s\"", NAME_LEN_MAX, name);
    *ret = json_incref(entry);
    return 0;
}

/* ---- start request ---- */

/* "python", "python3", "python3.11": whatever interpreter the caller calls default. */
static int is_plain_python(const char *s)
{
    if (strncmp(s, "python", 6) != 0)
        return 0;
    s += 6;
    if (*s == '3')
        s++;
    else
        return *s == '\0';
    if (*s == '.')
        s += 1 + strspn(s + 1, "0123456789");
    return *s == '\0';
}

static int is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Absolute path of argv[0]; NULL when there is no such program. */
static char *program(const struct kspec_conf *c, const char *arg, const char *dir)
{
    if (is_plain_python(arg) && c->default_python && *c->default_python)
        return is_program(c->default_python) ? xstrdup(c->default_python) : NULL;
    if (strchr(arg, '/')) {
        char *path = arg[0] == '/' ? xstrdup(arg) : xasprintf("%s/%s", dir, arg);
        if (is_program(path))
            return path;
        free(path);
        return NULL;
    }
    const char *p = env_or("PATH", "/usr/local/bin:/usr/bin:/bin");
    while (*p) {
        size_t n = strcspn(p, ":");
        char *path = xasprintf("%.*s/%s", (int)n, p, arg);
        if (path[0] == '/' && is_program(path))
            return path;
        free(path);
        p += n + (p[n] == ':');
    }
    return NULL;
}

static void replace(char **s, const char *what, const char *with)
{
    struct buf out = BUF_INIT(SPEC_MAX);
    const char *p = *s, *hit;
    if (!strstr(p, what))
        return;
    while ((hit = strstr(p, what))) {
        buf_add(&out, "%.*s%s", (int)(hit - p), p, with);
        p = hit + strlen(what);
    }
    buf_add(&out, "%s", p);
    free(*s);
    *s = buf_steal(&out);
}

static json_t *make_argv(const struct kspec_conf *c, const json_t *spec, const char *dir,
                         const char *prog)
{
    json_t *argv = json_array();
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(spec, "argv"), i, item)
    {
        autofree char *s = xstrdup(i ? json_string_value(item) : prog);
        replace(&s, "{resource_dir}", dir);
        replace(&s, "{prefix}", c->prefix ? c->prefix : "");
        json_array_append_new(argv, json_string(s));
    }
    return argv;
}

/* Length of the variable reference at `s` ("$NAME", "${NAME}"), its name in *name; 0: none. */
static size_t reference(const char *s, char **name)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t open = s[1] == '{';
    size_t n = strspn(s + 1 + open, word);
    if (n == 0 || isdigit((unsigned char)s[1 + open]) || (open && s[2 + n] != '}'))
        return 0;
    *name = xstrndup(s + 1 + open, n);
    return 1 + n + 2 * open;
}

/* Values may refer to variables of our environment; unknown ones are left as they stand. */
static char *expand(const char *s)
{
    struct buf out = BUF_INIT(BUF_DEFAULT_MAX);
    buf_add(&out, "%s", "");
    while (*s) {
        autofree char *name = NULL;
        size_t n = *s == '$' ? reference(s, &name) : 0;
        const char *value = n ? sys.env(name) : NULL;
        if (*s == '$' && s[1] == '$') {
            buf_add(&out, "$");
            n = 2;
        } else if (value) {
            buf_add(&out, "%s", value);
        } else {
            n = n ? n : 1;
            buf_add(&out, "%.*s", (int)n, s);
        }
        s += n;
    }
    return buf_steal(&out);
}

static json_t *make_env(const json_t *spec)
{
    json_t *env = json_object();
    const char *key;
    json_t *item;
    json_object_foreach(json_object_get(spec, "env"), key, item)
    {
        autofree char *s = expand(json_string_value(item));
        json_object_set_new(env, key, json_string(s));
    }
    return env;
}

/* A program that is Python by name, wherever it lies: python, python3, python3.11. */
static int is_python(const char *path)
{
    const char *slash = strrchr(path, '/');
    return is_plain_python(slash ? slash + 1 : path);
}

/* Interpreter options before -m, one word each, as `preload` carries them; NULL when argv is not
 * an ipykernel that can be forked. */
static json_t *fork_options(const json_t *argv)
{
    autojson json_t *options = json_array();
    size_t n = json_array_size(argv), i = 1;
    const char *s = NULL;
    for (; i + 1 < n; i++) {
        s = json_string_value(json_array_get(argv, i));
        if (strcmp(s, "-m") == 0)
            break;
        if (strcmp(s, "-X") == 0 && i + 2 < n) {
            autofree char *word = xasprintf("-X%s", json_string_value(json_array_get(argv, ++i)));
            json_array_append_new(options, json_string(word));
        } else if (strncmp(s, "-X", 2) == 0 && s[2]) {
            json_array_append_new(options, json_string(s));
        } else {
            return NULL;
        }
    }
    if (i + 1 >= n)
        return NULL;
    s = json_string_value(json_array_get(argv, i + 1));
    if (strcmp(s, "ipykernel_launcher") != 0 && strcmp(s, "ipykernel") != 0)
        return NULL;
    return STEAL(options);
}

static json_t *make_zygote(const struct kspec_conf *c, const json_t *argv)
{
    const char *python = json_string_value(json_array_get(argv, 0));
    json_t *preload = c->zygote && is_python(python) ? fork_options(argv) : NULL;
    if (!preload)
        return json_null();
    const char *p = c->preload ? c->preload : "";
    while (*p) {
        p += strspn(p, ", ");
        size_t n = strcspn(p, ", ");
        autofree char *name = xstrndup(p, n);
        if (n)
            json_array_append_new(preload, json_string(name));
        p += n;
    }
    return json_pack("{s:s, s:o}", "python", python, "preload", preload);
}

int kspec_start_request(const struct kspec_conf *c, const json_t *entry, json_t **ret,
                        struct err *e)
{
    const json_t *spec = json_object_get(entry, "spec");
    const char *name = json_get_str(entry, "name", "");
    const char *dir = json_get_str(entry, "dir", "");
    const char *first = json_string_value(json_array_get(json_object_get(spec, "argv"), 0));
    if (!first)
        return err_set(e, ERR_INVALID, "kernelspec \"%s\" has no argv", name);
    autofree char *prog = program(c, first, dir);
    if (!prog)
        return err_set(e, ERR_KERNEL, "kernelspec \"%s\": program \"%s\" does not exist", name,
                       is_plain_python(first) && c->default_python ? c->default_python : first);
    json_t *argv = make_argv(c, spec, dir, prog);
    json_t *zygote = make_zygote(c, argv);
    *ret = json_pack("{s:s, s:o, s:o, s:s, s:o}", "name", name, "argv", argv, "env", make_env(spec),
                     "interrupt", json_get_str(spec, "interrupt_mode", "signal"), "zygote", zygote);
    return 0;
}
