/* Notebooks between the form of clients and the form on disk. */
#include <string.h>

#include "gateway/contents.h"

/* A list of strings becomes one string in `o`. */
static void join_field(json_t *o, const char *key)
{
    const json_t *list = json_object_get(o, key);
    if (!json_is_array(list))
        return;
    struct buf b = BUF_INIT(CONTENTS_FILE_MAX);
    size_t i;
    json_t *line;
    json_array_foreach(list, i, line)
    {
        if (!json_is_string(line) ||
            buf_append(&b, json_string_value(line), json_string_length(line)) < 0) {
            buf_free(&b);
            return; /* not lines of text: left as it is */
        }
    }
    json_object_set_new(o, key, json_stringn(buf_str(&b), b.len));
    buf_free(&b);
}

/* Media data: JSON types may be lists by themselves. */
static void join_bundle(json_t *bundle)
{
    const char *type;
    void *tmp;
    json_t *v;
    json_object_foreach_safe(bundle, tmp, type, v)
    {
        size_t n = strlen(type);
        int is_json = strcmp(type, "application/json") == 0 ||
                      (n > 17 && strncmp(type, "application/", 12) == 0 &&
                       strcmp(type + n - 5, "+json") == 0);
        if (!is_json && json_is_array(v))
            join_field(bundle, type);
    }
}

void notebook_join(json_t *nb)
{
    size_t i, j;
    json_t *cell, *out, *bundle;
    json_array_foreach(json_object_get(nb, "cells"), i, cell)
    {
        join_field(cell, "source");
        json_array_foreach(json_object_get(cell, "outputs"), j, out)
        {
            join_field(out, "text");
            join_bundle(json_object_get(out, "data"));
        }
        const char *name;
        json_object_foreach(json_object_get(cell, "attachments"), name, bundle) join_bundle(bundle);
    }
}

static int is_code(const json_t *cell)
{
    return strcmp(json_get_str(cell, "cell_type", ""), "code") == 0;
}

void notebook_mark(json_t *nb, int trusted)
{
    size_t i;
    json_t *cell;
    json_array_foreach(json_object_get(nb, "cells"), i, cell)
    {
        if (!is_code(cell))
            continue;
        json_t *meta = json_object_get(cell, "metadata");
        if (!json_is_object(meta)) {
            meta = json_object();
            json_object_set_new(cell, "metadata", meta);
        }
        json_object_set_new(meta, "trusted", json_boolean(trusted));
    }
}

/* Only text streams, errors and empty rich outputs may be shown without trust. */
static int is_harmless(const json_t *cell)
{
    size_t i;
    json_t *out;
    json_array_foreach(json_object_get(cell, "outputs"), i, out)
    {
        const char *type = json_get_str(out, "output_type", "");
        if (strcmp(type, "execute_result") != 0 && strcmp(type, "display_data") != 0)
            continue;
        if (json_object_size(json_object_get(out, "data")))
            return 0;
    }
    return 1;
}

int notebook_strip_trust(json_t *nb)
{
    int all = 1;
    size_t i;
    json_t *cell;
    json_array_foreach(json_object_get(nb, "cells"), i, cell)
    {
        if (!is_code(cell))
            continue;
        json_t *meta = json_object_get(cell, "metadata");
        int trusted = json_get_bool(meta, "trusted", 0);
        json_object_del(meta, "trusted");
        all = all && (trusted || is_harmless(cell));
    }
    return all;
}

json_t *notebook_cell(const json_t *nb, const char *id)
{
    size_t i;
    json_t *cell;
    json_array_foreach(json_object_get(nb, "cells"), i, cell)
    {
        if (strcmp(json_get_str(cell, "id", ""), id) == 0)
            return cell;
    }
    return NULL;
}
