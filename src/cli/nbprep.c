#include "cli/nbprep.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sys.h"

#define ID_MAX 64
#define LITERAL_MAX ((size_t)1 << 24)

/* --- format -------------------------------------------------------------------------------- */

static int valid_id(const char *id)
{
    size_t n = strlen(id);
    return n > 0 && n <= ID_MAX &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == n;
}

static void fresh_id(json_t *cell)
{
    char id[9];
    sys_random_hex(id, 4);
    json_object_set_new(cell, "id", json_string(id));
}

static void upgrade_cell(json_t *cell)
{
    if (!json_is_object(json_object_get(cell, "metadata")))
        json_object_set_new(cell, "metadata", json_object());
    if (strcmp(json_get_str(cell, "cell_type", ""), "code") != 0)
        return;
    if (!json_is_array(json_object_get(cell, "outputs")))
        json_object_set_new(cell, "outputs", json_array());
    if (!json_object_get(cell, "execution_count"))
        json_object_set_new(cell, "execution_count", json_null());
}

void nbprep_upgrade(json_t *notebook)
{
    json_t *cells = json_object_get(notebook, "cells"), *cell;
    autojson json_t *seen = json_object();
    size_t i;
    json_array_foreach(cells, i, cell)
    {
        while (!valid_id(json_get_str(cell, "id", "")) ||
               json_object_get(seen, json_get_str(cell, "id", "")))
            fresh_id(cell);
        json_object_set_new(seen, json_get_str(cell, "id", ""), json_true());
        upgrade_cell(cell);
    }
    if (!json_is_object(json_object_get(notebook, "metadata")))
        json_object_set_new(notebook, "metadata", json_object());
    if (json_get_int(notebook, "nbformat_minor", 0) < 5)
        json_object_set_new(notebook, "nbformat_minor", json_integer(5));
}

const char *nbprep_kernel(const json_t *notebook)
{
    const json_t *meta = json_object_get(notebook, "metadata");
    const char *name = json_get_str(json_object_get(meta, "kernelspec"), "name", NULL);
    return name && *name ? name : NULL;
}

/* --- parameters ---------------------------------------------------------------------------- */

/* Objects and lists in Python's spelling. JSON strings are Python strings when nothing but what
 * must be is escaped. */
static int put_literal(struct buf *b, const json_t *v)
{
    const char *key, *sep = "";
    json_t *item;
    size_t i;
    int r = 0;
    if (json_is_object(v)) {
        r = buf_puts(b, "{");
        json_object_foreach((json_t *)v, key, item)
        {
            autojson json_t *name = json_string(key);
            if (r < 0 || (r = buf_puts(b, sep)) < 0 || (r = put_literal(b, name)) < 0 ||
                (r = buf_puts(b, ": ")) < 0 || (r = put_literal(b, item)) < 0)
                return r;
            sep = ", ";
        }
        return r < 0 ? r : buf_puts(b, "}");
    }
    if (json_is_array(v)) {
        r = buf_puts(b, "[");
        json_array_foreach(v, i, item)
        {
            if (r < 0 || (r = buf_puts(b, sep)) < 0 || (r = put_literal(b, item)) < 0)
                return r;
            sep = ", ";
        }
        return r < 0 ? r : buf_puts(b, "]");
    }
    if (json_is_boolean(v))
        return buf_puts(b, json_is_true(v) ? "True" : "False");
    if (json_is_null(v))
        return buf_puts(b, "None");
    autofree char *text = json_dumps(v, JSON_ENCODE_ANY);
    return text ? buf_puts(b, text) : ERR_MEMORY;
}

static char *literal_of(const json_t *v)
{
    struct buf b = BUF_INIT(LITERAL_MAX);
    if (put_literal(&b, v) < 0) {
        buf_free(&b);
        return NULL;
    }
    return buf_steal(&b);
}

static const char *skip_digits(const char *p)
{
    return p + strspn(p, "0123456789");
}

/* Numbers as both Python and JSON write them, and ".5" and "1.". */
static int is_number(const char *s)
{
    const char *p = s + (*s == '-' || *s == '+'), *digits = p;
    p = skip_digits(p);
    size_t whole = (size_t)(p - digits), fraction = 0;
    if (whole > 1 && *digits == '0')
        return 0; /* "007" is a name, and no Python number */
    if (*p == '.') {
        const char *from = ++p;
        p = skip_digits(p);
        fraction = (size_t)(p - from);
    }
    if (!whole && !fraction)
        return 0;
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '-' || p[1] == '+');
        if (skip_digits(p) == p)
            return 0;
        p = skip_digits(p);
    }
    return !*p;
}

static const char *constant_of(const char *s)
{
    static const char *const words[][2] = {
        {"true", "True"}, {"True", "True"}, {"false", "False"}, {"False", "False"},
        {"none", "None"}, {"None", "None"}, {"null", "None"},
    };
    for (size_t i = 0; i < COUNTOF(words); i++)
        if (!strcmp(s, words[i][0]))
            return words[i][1];
    return NULL;
}

static int value_literal(const char *value, char **ret, struct err *e)
{
    const char *constant = constant_of(value);
    autojson json_t *v = NULL;
    if (constant || is_number(value)) {
        *ret = xstrdup(constant ? constant : value);
        return 0;
    }
    if (!strchr("[{\"", *value) || !*value || json_parse(value, strlen(value), &v, NULL) < 0)
        v = json_string(value);
    if (!v)
        return err_set(e, ERR_INVALID, "the value is not UTF-8 text");
    *ret = literal_of(v);
    if (!*ret)
        return err_set(e, ERR_TOO_LARGE, "the value is too large");
    return 0;
}

static int is_identifier(const char *s, size_t n)
{
    if (!n || (*s >= '0' && *s <= '9'))
        return 0;
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") >= n;
}

int nbprep_param(const char *text, char **ret_name, char **ret_literal, struct err *e)
{
    const char *eq = strchr(text, '=');
    if (!eq || !is_identifier(text, (size_t)(eq - text)))
        return err_set(e, ERR_INVALID, "-p %.60s: give name=value, the name a Python identifier",
                       text);
    int r = value_literal(eq + 1, ret_literal, e);
    if (r < 0)
        return err_wrap(e, "-p %.*s", (int)(eq - text), text);
    *ret_name = xstrndup(text, (size_t)(eq - text));
    return 0;
}

int nbprep_tagged(const json_t *cell, const char *tag)
{
    const json_t *tags = json_object_get(json_object_get(cell, "metadata"), "tags"), *t;
    size_t i;
    json_array_foreach(tags, i, t)
    {
        if (json_is_string(t) && !strcmp(json_string_value(t), tag))
            return 1;
    }
    return 0;
}

static size_t find_tagged(const json_t *cells, const char *tag)
{
    size_t i, n = json_array_size(cells);
    for (i = 0; i < n; i++)
        if (nbprep_tagged(json_array_get(cells, i), tag))
            break;
    return i;
}

void nbprep_inject(json_t *notebook, const json_t *params)
{
    json_t *cells = json_object_get(notebook, "cells"), *literal;
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    const char *name;
    char id[9];
    buf_add(&b, "# Parameters");
    json_object_foreach((json_t *)params, name, literal)
    {
        buf_add(&b, "\n%s = %s", name, json_string_value(literal));
    }
    sys_random_hex(id, 4);
    json_t *cell = json_pack("{s:s,s:s,s:{s:[s]},s:s,s:[],s:n}", "cell_type", "code", "id", id,
                             "metadata", "tags", "injected-parameters", "source", buf_str(&b),
                             "outputs", "execution_count");
    size_t n = json_array_size(cells), at = find_tagged(cells, "injected-parameters");
    if (at < n) {
        json_array_set_new(cells, at, cell);
        return;
    }
    at = find_tagged(cells, "parameters");
    json_array_insert_new(cells, at < n ? at + 1 : 0, cell);
}
