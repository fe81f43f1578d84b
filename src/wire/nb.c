#include "wire/nb.h"

#include <string.h>

#include "base/alloc.h"

/* A list of strings as one string; NULL when it is anything else. New reference. */
static json_t *joined(const json_t *list)
{
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    size_t i;
    const json_t *item;
    if (!json_is_array(list))
        return NULL;
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item) ||
            buf_append(&b, json_string_value(item), json_string_length(item)) < 0)
            return NULL;
    }
    return json_stringn_nocheck(buf_str(&b), b.len);
}

/* Length of the line end at s, 0 when there is none: those of Python's str.splitlines(). */
static size_t line_end(const unsigned char *s, size_t left)
{
    switch (s[0]) {
    case '\r':
        return left > 1 && s[1] == '\n' ? 2 : 1;
    case '\n':
    case 0x0b:
    case 0x0c:
    case 0x1c:
    case 0x1d:
    case 0x1e:
        return 1;
    case 0xc2:
        return left > 1 && s[1] == 0x85 ? 2 : 0;
    case 0xe2:
        return left > 2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9) ? 3 : 0;
    default:
        return 0;
    }
}

static json_t *split(const json_t *text)
{
    const char *s = json_string_value(text);
    size_t n = json_string_length(text), start = 0, i = 0;
    json_t *list = json_array();
    while (i < n) {
        size_t end = line_end((const unsigned char *)s + i, n - i);
        i += end ? end : 1;
        if (end) {
            json_array_append_new(list, json_stringn_nocheck(s + start, i - start));
            start = i;
        }
    }
    if (start < n)
        json_array_append_new(list, json_stringn_nocheck(s + start, n - start));
    return list;
}

static int is_json_mime(const char *mime)
{
    size_t n = strlen(mime);
    return strcmp(mime, "application/json") == 0 ||
           (strncmp(mime, "application/", 12) == 0 && n >= 5 && strcmp(mime + n - 5, "+json") == 0);
}

static int is_split_mime(const char *mime)
{
    return strncmp(mime, "text/", 5) == 0 || strcmp(mime, "application/javascript") == 0 ||
           strcmp(mime, "image/svg+xml") == 0;
}

/* One of the two directions. */
static void convert(json_t *o, const char *key, int splitting)
{
    const json_t *v = json_object_get(o, key);
    json_t *fresh = NULL;
    if (splitting && json_is_string(v))
        fresh = split(v);
    else if (!splitting && json_is_array(v))
        fresh = joined(v);
    if (fresh)
        json_object_set_new(o, key, fresh);
}

static void convert_bundle(json_t *data, int splitting)
{
    const char *mime;
    json_t *v;
    void *next;
    json_object_foreach_safe(data, next, mime, v)
    {
        if (splitting ? is_split_mime(mime) : !is_json_mime(mime))
            convert(data, mime, splitting);
    }
}

static void convert_output(json_t *output, int splitting)
{
    const char *type = json_get_str(output, "output_type", "");
    if (strcmp(type, "execute_result") == 0 || strcmp(type, "display_data") == 0)
        convert_bundle(json_object_get(output, "data"), splitting);
    else if (splitting ? strcmp(type, "stream") == 0 : *type != '\0')
        convert(output, "text", splitting);
}

static void convert_outputs(json_t *outputs, int splitting)
{
    size_t i;
    json_t *output;
    json_array_foreach(outputs, i, output) convert_output(output, splitting);
}

static void convert_cell(json_t *cell, int splitting)
{
    const char *name;
    json_t *attachment;
    convert(cell, "source", splitting);
    json_object_foreach(json_object_get(cell, "attachments"), name, attachment)
        convert_bundle(attachment, splitting);
    if (strcmp(json_get_str(cell, "cell_type", ""), "code") == 0)
        convert_outputs(json_object_get(cell, "outputs"), splitting);
    json_object_del(json_object_get(cell, "metadata"), "trusted");
}

static void convert_notebook(json_t *notebook, int splitting)
{
    size_t i;
    json_t *cell, *metadata = json_object_get(notebook, "metadata");
    json_array_foreach(json_object_get(notebook, "cells"), i, cell) convert_cell(cell, splitting);
    json_object_del(metadata, "orig_nbformat");
    json_object_del(metadata, "orig_nbformat_minor");
    json_object_del(metadata, "signature");
}

void nb_join_lines(json_t *notebook)
{
    convert_notebook(notebook, 0);
}

void nb_split_lines(json_t *notebook)
{
    convert_notebook(notebook, 1);
}

char *nb_source(const json_t *cell)
{
    const json_t *source = json_object_get(cell, "source");
    autojson json_t *one = joined(source);
    const char *s = json_string_value(one ? one : source);
    return xstrdup(s ? s : "");
}

json_t *nb_new(void)
{
    return json_pack("{s:[], s:{}, s:i, s:i}", "cells", "metadata", "nbformat", 4, "nbformat_minor",
                     5);
}

static int check_cell(const json_t *cell, size_t i, struct err *e)
{
    const char *type = json_get_str(cell, "cell_type", NULL);
    const json_t *source = json_object_get(cell, "source");
    const json_t *outputs = json_object_get(cell, "outputs");
    const json_t *metadata = json_object_get(cell, "metadata");
    if (!type)
        return err_set(e, ERR_INVALID, "notebook: cell %zu has no cell_type", i);
    if (strcmp(type, "code") != 0 && strcmp(type, "markdown") != 0 && strcmp(type, "raw") != 0)
        return err_set(e, ERR_INVALID, "notebook: cell %zu is of the unknown type %.40s", i, type);
    if (source && !json_is_string(source) && !json_is_array(source))
        return err_set(e, ERR_INVALID, "notebook: the source of cell %zu is no text", i);
    if (outputs && !json_is_array(outputs))
        return err_set(e, ERR_INVALID, "notebook: the outputs of cell %zu are no list", i);
    if (metadata && !json_is_object(metadata))
        return err_set(e, ERR_INVALID, "notebook: the metadata of cell %zu is no object", i);
    return 0;
}

int nb_check(const json_t *notebook, struct err *e)
{
    const json_t *cells = json_object_get(notebook, "cells");
    const json_t *metadata = json_object_get(notebook, "metadata");
    int64_t version = json_get_int(notebook, "nbformat", -1);
    if (version < 0)
        return err_set(e, ERR_INVALID, "notebook: nbformat is missing");
    if (version < 4)
        return err_set(e, ERR_INVALID, "notebook: nbformat %d is older than 4", (int)version);
    if (!json_is_array(cells))
        return err_set(e, ERR_INVALID, "notebook: cells is missing or no list");
    if (metadata && !json_is_object(metadata))
        return err_set(e, ERR_INVALID, "notebook: metadata is no object");
    size_t i;
    const json_t *cell;
    json_array_foreach(cells, i, cell)
    {
        int rc = check_cell(cell, i, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static json_t *find_code_cell(const json_t *notebook, const char *id)
{
    size_t i;
    json_t *cell;
    json_array_foreach(json_object_get(notebook, "cells"), i, cell)
    {
        if (strcmp(json_get_str(cell, "id", ""), id) == 0 &&
            strcmp(json_get_str(cell, "cell_type", ""), "code") == 0)
            return cell;
    }
    return NULL;
}

/* A copy with joined lines; an empty list for anything but a list. New reference. */
static json_t *normal_outputs(const json_t *outputs)
{
    json_t *copy = json_is_array(outputs) ? json_deep_copy(outputs) : json_array();
    if (!copy)
        abort(); /* no memory for a copy of what is in memory */
    convert_outputs(copy, 0);
    return copy;
}

int nb_set_outputs(json_t *notebook, const char *cell_id, json_t *outputs, int execution_count,
                   struct err *e)
{
    json_t *cell = *cell_id ? find_code_cell(notebook, cell_id) : NULL;
    if (!cell)
        return err_set(e, ERR_NOT_FOUND, "the notebook has no code cell \"%s\"", cell_id);
    int changed = 0;
    autojson json_t *was = normal_outputs(json_object_get(cell, "outputs"));
    autojson json_t *is = normal_outputs(outputs);
    if (!json_equal(was, is)) {
        json_object_set(cell, "outputs", is);
        changed = 1;
    }
    if (execution_count > 0 && json_get_int(cell, "execution_count", 0) != execution_count) {
        json_object_set_new(cell, "execution_count", json_integer(execution_count));
        changed = 1;
    }
    return changed;
}

/* Whole lines of `part` must begin `all`; its unfinished last line may have been overwritten. */
static int text_begins(const json_t *part, const json_t *all)
{
    const char *p = json_get_str(part, "text", ""), *a = json_get_str(all, "text", "");
    const char *last = strrchr(p, '\n');
    size_t whole = last ? (size_t)(last - p) + 1 : 0;
    return strncmp(p, a, whole) == 0 && (p[whole] == '\0' || a[whole] != '\0');
}

static int last_matches(const json_t *saved, const json_t *full)
{
    if (json_equal(saved, full))
        return 1;
    return strcmp(json_get_str(saved, "output_type", ""), "stream") == 0 &&
           strcmp(json_get_str(full, "output_type", ""), "stream") == 0 &&
           strcmp(json_get_str(saved, "name", ""), json_get_str(full, "name", "")) == 0 &&
           text_begins(saved, full);
}

int nb_outputs_prefix(const json_t *saved, const json_t *full)
{
    autojson json_t *s = normal_outputs(saved), *f = normal_outputs(full);
    size_t n = json_array_size(s);
    if (n > json_array_size(f))
        return 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (!json_equal(json_array_get(s, i), json_array_get(f, i)))
            return 0;
    }
    return n == 0 || last_matches(json_array_get(s, n - 1), json_array_get(f, n - 1));
}
