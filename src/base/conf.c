#include "base/conf.h"

#include <ini.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"

enum type { TYPE_STR, TYPE_INT, TYPE_BOOL };

struct option {
    const char *name;
    enum type type;
    const char *def, *meta, *help;
    size_t offset;
};

static const struct option options[] = {
#define X(field, name, type, def, meta, help) \
    {name, TYPE_##type, def, meta, help, offsetof(struct conf, field)},
    CONF_LIST(X)
#undef X
};

#define INT_MAX_VALUE 1000000000

static int is_enum(const struct option *o)
{
    return strchr(o->meta, '|') &&
           strspn(o->meta, "abcdefghijklmnopqrstuvwxyz|") == strlen(o->meta);
}

int conf_word(const char *words, const char *value)
{
    size_t n = strlen(value);
    for (const char *w = words; *w;) {
        size_t len = strcspn(w, "|");
        if (len == n && !strncmp(w, value, n))
            return 1;
        w += len + (w[len] == '|');
    }
    return 0;
}

static int parse_bool(const char *value)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < COUNTOF(yes); i++) {
        if (!strcasecmp(value, yes[i]))
            return 1;
        if (!strcasecmp(value, no[i]))
            return 0;
    }
    return -1;
}

static int parse_int(const char *value, int64_t *ret)
{
    int64_t n = 0;
    if (!*value)
        return -1;
    for (const char *p = value; *p; p++) {
        if (*p < '0' || *p > '9')
            return -1;
        n = n * 10 + (*p - '0');
        if (n > INT_MAX_VALUE)
            return -1;
    }
    *ret = n;
    return 0;
}

static int is_path(const struct option *o)
{
    return !strcmp(o->meta, "FILE") || !strcmp(o->meta, "DIR");
}

/* "~/" is the home folder: no shell expands it in a file, nor after "--name=". */
static void set_str(struct conf *c, const struct option *o, const char *value)
{
    char **slot = (char **)(void *)((char *)c + o->offset);
    const char *home = sys.env("HOME");
    char *copy = is_path(o) && !strncmp(value, "~/", 2) && home && *home
                     ? xasprintf("%s%s", home, value + 1)
                     : xstrdup(value);
    free(*slot);
    *slot = copy;
}

/* `where` names the source: "reitos.ini:3: listen", "REITOS_LISTEN", "--listen". A token is never
 * repeated in the message. */
static int set_value(struct conf *c, const struct option *o, const char *value, const char *where,
                     struct err *e)
{
    void *slot = (char *)c + o->offset;
    if (o->type == TYPE_BOOL) {
        int b = parse_bool(value);
        if (b < 0)
            return err_set(e, ERR_CONFIG, "%s: \"%.40s\" is neither true nor false", where, value);
        *(int *)slot = b;
    } else if (o->type == TYPE_INT) {
        int64_t n;
        if (parse_int(value, &n) < 0)
            return err_set(e, ERR_CONFIG, "%s: \"%.40s\" is not a whole number from 0 to %d", where,
                           value, INT_MAX_VALUE);
        *(int64_t *)slot = n;
    } else {
        if (is_enum(o) && !conf_word(o->meta, value))
            return err_set(e, ERR_CONFIG, "%s: \"%.40s\" is not one of %s", where, value, o->meta);
        set_str(c, o, value);
    }
    return 0;
}

static const struct option *find(const char *name, size_t len)
{
    for (size_t i = 0; i < COUNTOF(options); i++)
        if (strlen(options[i].name) == len && !strncmp(options[i].name, name, len))
            return &options[i];
    return NULL;
}

/* What other notebook servers call it. */
static const char *elsewhere(const char *name)
{
    static const char *const pairs[][2] = {
        {"port", "listen"}, {"ip", "listen"}, {"notebook-dir", "root"}, {"root-dir", "root"}};
    for (size_t i = 0; i < COUNTOF(pairs); i++)
        if (strcmp(name, pairs[i][0]) == 0)
            return pairs[i][1];
    return NULL;
}

static int unknown(const char *where, const char *dashes, const char *name, struct err *e)
{
    const char *names[COUNTOF(options)];
    for (size_t i = 0; i < COUNTOF(options); i++)
        names[i] = options[i].name;
    const char *near = elsewhere(name);
    if (!near)
        near = conf_nearest(name, names, COUNTOF(names));
    if (near)
        return err_set(e, ERR_CONFIG, "%sunknown option %s%.64s; did you mean %s%s?", where, dashes,
                       name, dashes, near);
    return err_set(e, ERR_CONFIG, "%sunknown option %s%.64s; --help lists all", where, dashes,
                   name);
}

void conf_defaults(struct conf *c)
{
    *c = (struct conf){0};
    for (size_t i = 0; i < COUNTOF(options); i++) {
        struct err e = {0};
        if (set_value(c, &options[i], options[i].def, options[i].name, &e) < 0)
            abort(); /* the table itself is wrong */
    }
}

void conf_free(struct conf *c)
{
    for (size_t i = 0; i < COUNTOF(options); i++) {
        if (options[i].type != TYPE_STR)
            continue;
        char **slot = (char **)(void *)((char *)c + options[i].offset);
        free(*slot);
        *slot = NULL;
    }
}

/* --- INI ----------------------------------------------------------------------------------- */

struct ini_source {
    struct conf *c;
    const char *file, *pos, *end;
    int line;
    int failed; /* `e` is set */
    struct err *e;
};

/* Hands the library one line at a time, without its indentation (which would make the line a
 * continuation). So `line` is right in the handler, and no line is ever split silently. */
static char *ini_line(char *out, int size, void *stream)
{
    struct ini_source *s = stream;
    if (s->pos == s->end || s->failed)
        return NULL;
    const char *nl = memchr(s->pos, '\n', (size_t)(s->end - s->pos));
    const char *eol = nl ? nl : s->end;
    const char *from = s->pos;
    s->line++;
    while (from < eol && (*from == ' ' || *from == '\t'))
        from++;
    size_t len = (size_t)(eol - from);
    if (len + 2 > (size_t)size || memchr(from, 0, len)) {
        s->failed = 1;
        err_set(s->e, ERR_CONFIG, "%s:%d: %s", s->file, s->line,
                len + 2 > (size_t)size ? "the line is too long" : "the line holds a zero byte");
        return NULL;
    }
    memcpy(out, from, len);
    out[len] = '\n';
    out[len + 1] = 0;
    s->pos = nl ? nl + 1 : s->end;
    return out;
}

/* The library wants 1 for success. */
static int ini_pair(void *user, const char *section, const char *name, const char *value)
{
    struct ini_source *s = user;
    autofree char *where = xasprintf("%s:%d: ", s->file, s->line);
    if (strcmp(section, "reitos") != 0) {
        s->failed = 1;
        if (*section)
            err_set(s->e, ERR_CONFIG, "%sunknown section [%.64s]; options stand in [reitos]", where,
                    section);
        else
            err_set(s->e, ERR_CONFIG, "%soption outside a section; put [reitos] above it", where);
        return 0;
    }
    const struct option *o = find(name, strlen(name));
    autofree char *full = xasprintf("%s%.64s", where, name);
    s->failed = o ? set_value(s->c, o, value, full, s->e) < 0 : unknown(where, "", name, s->e) < 0;
    return !s->failed;
}

int conf_parse_ini(struct conf *c, const char *file, const char *text, size_t len, struct err *e)
{
    struct err own = {0};
    struct ini_source s = {c, file, text, text + len, 0, 0, e ? e : &own};
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        s.pos += 3;
    ini_use_stack = 0; /* the stack buffer has a length fixed when the library was built */
    ini_max_line = CONF_LINE_MAX;
    ini_initial_alloc = CONF_LINE_MAX;
    ini_stop_on_first_error = 1;
    int r = ini_parse_stream(ini_line, &s, ini_pair, &s);
    if (s.failed)
        return s.e->code;
    if (r < 0)
        return err_set(e, ERR_MEMORY, "%s: out of memory", file);
    if (r > 0)
        return err_set(e, ERR_CONFIG, "%s:%d: neither \"name = value\" nor \"[section]\"", file, r);
    return 0;
}

static char *home_path(const char *xdg, const char *below_home, const char *name)
{
    const char *dir = sys.env(xdg);
    if (dir && *dir == '/')
        return xasprintf("%s/%s", dir, name);
    const char *home = sys.env("HOME");
    return home && *home ? xasprintf("%s/%s/%s", home, below_home, name) : NULL;
}

int conf_default_data(char **ret, struct err *e)
{
    char *dir = home_path("XDG_DATA_HOME", ".local/share", "reitos");
    if (!dir)
        return err_set(e, ERR_CONFIG,
                       "no data folder: HOME is not set; name one with --data or REITOS_DATA");
    *ret = dir;
    return 0;
}

static int load_file(struct conf *c, const char *path, int must, struct err *e)
{
    autobuf struct buf text = BUF_INIT(CONF_FILE_MAX);
    struct err why = {0};
    int r = fs_read_path(path, CONF_FILE_MAX, &text, &why);
    if (r == ERR_NOT_FOUND && !must)
        return 0;
    if (r < 0)
        return err_set(e, ERR_CONFIG, "configuration file %s", why.msg);
    return conf_parse_ini(c, path, buf_str(&text), text.len, e);
}

/* --- environment and flags ----------------------------------------------------------------- */

static char *env_name(const struct option *o)
{
    char *name = xasprintf("REITOS_%s", o->name);
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    return name;
}

static int load_env(struct conf *c, struct err *e)
{
    for (size_t i = 0; i < COUNTOF(options); i++) {
        autofree char *name = env_name(&options[i]);
        const char *value = sys.env(name);
        int r = value ? set_value(c, &options[i], value, name, e) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

struct flag {
    const struct option *option;
    const char *value;
    int used; /* entries of argv: 1 or 2 */
};

static int unknown_flag(const char *arg, struct err *e)
{
    int dashes = strncmp(arg, "--", 2) ? 1 : 2;
    autofree char *word = xstrndup(arg + dashes, strcspn(arg + dashes, "="));
    return unknown("", dashes == 2 ? "--" : "-", word, e);
}

/* "--no-NAME" */
static int take_no(const char *name, struct flag *ret, struct err *e)
{
    autofree char *word = xstrndup(name, strcspn(name, "="));
    const struct option *o = find(word, strlen(word));
    if (!o)
        return unknown("", "--no-", word, e);
    if (o->type == TYPE_BOOL && name[strlen(word)])
        return err_set(e, ERR_CONFIG, "--no-%s takes no value", word);
    if (o->type != TYPE_BOOL)
        return err_set(e, ERR_CONFIG, "--no-%s is not an option; --%s%s%s is", word, word,
                       *o->meta ? " " : "", o->meta);
    *ret = (struct flag){o, "false", 1};
    return 0;
}

/* Takes the flag at argv[i] apart. */
static int take_flag(int argc, char **argv, int i, struct flag *ret, struct err *e)
{
    const char *name = argv[i] + 2, *eq = strchr(name, '=');
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    const struct option *o = strncmp(argv[i], "--", 2) ? NULL : find(name, len);
    if (!o)
        return strncmp(argv[i], "--no-", 5) ? unknown_flag(argv[i], e) : take_no(name + 3, ret, e);
    if (eq)
        *ret = (struct flag){o, eq + 1, 1};
    else if (o->type == TYPE_BOOL)
        *ret = (struct flag){o, "true", 1};
    else if (i + 1 < argc)
        *ret = (struct flag){o, argv[i + 1], 2};
    else
        return err_set(e, ERR_CONFIG, "--%s needs a value: --%s %s", o->name, o->name, o->meta);
    return 0;
}

/* Applies all flags, or (config_only) just --config. */
static int load_flags(struct conf *c, int argc, char **argv, int config_only, int *ret_used,
                      struct err *e)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        struct flag f = {0};
        int r = take_flag(argc, argv, i, &f, e);
        if (r < 0)
            return r;
        if (!config_only || f.option->offset == offsetof(struct conf, config)) {
            autofree char *where = xasprintf("--%s", f.option->name);
            r = set_value(c, f.option, f.value, where, e);
            if (r < 0)
                return r;
        }
        i += f.used;
    }
    *ret_used = i - 1;
    return 0;
}

/* Kernels run it in other folders. Links stay: an environment is named by where bin/python lies. */
static void absolute_python(struct conf *c)
{
    autofree char *cwd = *c->python && *c->python != '/' ? getcwd(NULL, 0) : NULL;
    if (!cwd)
        return;
    autofree char *whole = xasprintf("%s/%s", cwd, c->python);
    set_str(c, find("python", 6), whole);
}

static int load_all(struct conf *c, int argc, char **argv, int *ret_used, struct err *e)
{
    const char *env = sys.env("REITOS_CONFIG");
    if (env)
        set_str(c, find("config", 6), env);
    int r = load_flags(c, argc, argv, 1, ret_used, e);
    if (r < 0)
        return r;
    autofree char *file = xstrdup(c->config);
    autofree char *usual = home_path("XDG_CONFIG_HOME", ".config", "reitos/reitos.ini");
    if (*file)
        r = load_file(c, file, 1, e);
    else if (usual)
        r = load_file(c, usual, 0, e);
    if (r < 0)
        return r;
    r = load_env(c, e);
    if (r < 0)
        return r;
    r = load_flags(c, argc, argv, 0, ret_used, e);
    if (r < 0)
        return r;
    absolute_python(c);
    if (*c->data)
        return 0;
    char *data = NULL;
    r = conf_default_data(&data, e);
    if (r < 0)
        return r;
    set_str(c, find("data", 4), data);
    free(data);
    return 0;
}

int conf_load(struct conf *c, int argc, char **argv, int *ret_used, struct err *e)
{
    struct conf new;
    int used = 0;
    conf_defaults(&new);
    int r = load_all(&new, argc, argv, &used, e);
    if (r < 0) {
        conf_free(&new);
        *c = (struct conf){0};
        return r;
    }
    *c = new;
    *ret_used = used;
    return 0;
}
