#include "kernel/kenv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sys.h"
#include "kernel/kproc.h"

#define PLACE "{connection_file}"

extern char **environ;

json_t *kenv_make(const json_t *add, const char *hash_seed, const char *id)
{
    json_t *env = json_object();
    for (char **p = environ; p && *p; p++) {
        const char *eq = strchr(*p, '=');
        if (!eq || eq == *p || strncmp(*p, "REITOS_TOKEN=", 13) == 0)
            continue;
        autofree char *name = xstrndup(*p, (size_t)(eq - *p));
        /* A value that is not UTF-8 cannot be carried and is left out. */
        IGNORE_RESULT(json_object_set_new(env, name, json_string(eq + 1)));
    }
    IGNORE_RESULT(json_object_set_new(env, "PYTHONHASHSEED", json_string(hash_seed)));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)add, name,
                        value) if (json_is_string(value) && *name && !strchr(name, '='))
        json_object_set(env, name, value);
    if (id)
        json_object_set_new(env, KPROC_MARK, json_string(id));
    return env;
}

char **kenv_array(const json_t *env)
{
    char **v = xcalloc(json_object_size(env) + 1, sizeof *v);
    size_t n = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)env, name, value) if (json_is_string(value)) v[n++] =
        xasprintf("%s=%s", name, json_string_value(value));
    return v;
}

static char *substitute(const char *s, const char *value)
{
    struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    for (const char *hit; (hit = strstr(s, PLACE)); s = hit + strlen(PLACE))
        buf_add(&b, "%.*s%s", (int)(hit - s), s, value);
    buf_add(&b, "%s", s);
    return buf_steal(&b);
}

char **kenv_argv(const json_t *argv, const char *connection_file)
{
    if (!json_is_array(argv) || json_array_size(argv) == 0)
        return NULL;
    char **v = xcalloc(json_array_size(argv) + 1, sizeof *v);
    size_t i;
    json_t *item;
    json_array_foreach(argv, i, item)
    {
        const char *s = json_string_value(item);
        if (!s) {
            kenv_free(v);
            return NULL;
        }
        v[i] = substitute(s, connection_file);
    }
    return v;
}

void kenv_free(char **v)
{
    for (char **p = v; p && *p; p++)
        free(*p);
    free(v);
}

json_t *kenv_zygote_args(const json_t *argv)
{
    json_t *args = json_array();
    size_t n = json_array_size(argv), i = 0;
    while (i < n && strcmp(json_string_value(json_array_get(argv, i)), "-m") != 0)
        i++;
    for (i += 2; i < n; i++) {
        json_t *item = json_array_get(argv, i);
        json_t *next = json_array_get(argv, i + 1);
        if (next && strcmp(json_string_value(next), PLACE) == 0)
            i++; /* "-f {connection_file}" */
        else if (!strstr(json_string_value(item), PLACE))
            json_array_append(args, item);
    }
    return args;
}

char *kenv_hash_seed(const char *data)
{
    autofree char *path = xasprintf("%s/hashseed", data);
    autobuf struct buf b = BUF_INIT(16);
    if (fs_read_path(path, b.max, &b, NULL) == 0 && b.len > 0 &&
        strspn(b.data, "0123456789") == b.len)
        return buf_steal(&b);
    uint32_t r;
    sys.random(&r, sizeof r);
    char *seed = xasprintf("%u", r);
    struct err e = {0};
    if (fs_write_path(path, seed, strlen(seed), 0600, &e) < 0)
        log_warn("hash seed not kept", "reason", e.msg, NULL);
    return seed;
}
