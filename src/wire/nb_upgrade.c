/* Notebooks of the formats 2 and 3 as format 4. Field names: nbformat's documentation of its
 * formats ("Changes" of the notebook format description). */
#include <string.h>

#include "base/alloc.h"
#include "wire/nb.h"

static void rename_key(json_t *o, const char *from, const char *to)
{
    json_t *v = json_object_get(o, from);
    if (!v)
        return;
    json_object_set(o, to, v);
    json_object_del(o, from);
}

static void want(json_t *o, const char *key, json_t *value)
{
    if (!json_object_get(o, key))
        json_object_set(o, key, value);
    json_decref(value);
}

/* Rich outputs had a key per kind; now they have one `data` object with MIME types. */
static void bundle(json_t *out)
{
    static const char *const kinds[][2] = {
        {"text", "text/plain"},       {"html", "text/html"},
        {"svg", "image/svg+xml"},     {"png", "image/png"},
        {"jpeg", "image/jpeg"},       {"latex", "text/latex"},
        {"json", "application/json"}, {"javascript", "application/javascript"},
    };
    json_t *data = json_object();
    for (size_t i = 0; i < COUNTOF(kinds); i++) {
        json_t *v = json_object_get(out, kinds[i][0]);
        if (!v)
            continue;
        json_object_set(data, kinds[i][1], v);
        json_object_del(out, kinds[i][0]);
    }
    json_object_set_new(out, "data", data);
    want(out, "metadata", json_object());
}

static void upgrade_output(json_t *out)
{
    const char *type = json_get_str(out, "output_type", "");
    if (!strcmp(type, "pyout")) {
        rename_key(out, "prompt_number", "execution_count");
        want(out, "execution_count", json_null());
        bundle(out);
        json_object_set_new(out, "output_type", json_string("execute_result"));
    } else if (!strcmp(type, "display_data")) {
        bundle(out);
    } else if (!strcmp(type, "pyerr")) {
        json_object_set_new(out, "output_type", json_string("error"));
    } else if (!strcmp(type, "stream")) {
        rename_key(out, "stream", "name");
        want(out, "name", json_string("stdout"));
    }
}

static void upgrade_code(json_t *cell)
{
    size_t i;
    json_t *out;
    rename_key(cell, "input", "source");
    rename_key(cell, "prompt_number", "execution_count");
    json_object_del(cell, "language");
    json_t *collapsed = json_object_get(cell, "collapsed");
    if (collapsed)
        json_object_set(json_object_get(cell, "metadata"), "collapsed", collapsed);
    json_object_del(cell, "collapsed");
    want(cell, "execution_count", json_null());
    want(cell, "outputs", json_array());
    json_array_foreach(json_object_get(cell, "outputs"), i, out) upgrade_output(out);
}

/* Headings are Markdown now: one line, "#" as often as the level says. */
static void upgrade_heading(json_t *cell)
{
    int64_t level = json_get_int(cell, "level", 1);
    int marks = level < 1 ? 1 : level > 6 ? 6 : (int)level;
    autofree char *text = nb_source(cell);
    for (char *p = text; *p; p++)
        if (*p == '\n')
            *p = ' ';
    autofree char *line = xasprintf("%.*s %s", marks, "######", text);
    json_object_set_new(cell, "source", json_string(line));
    json_object_set_new(cell, "cell_type", json_string("markdown"));
    json_object_del(cell, "level");
}

static void upgrade_cell(json_t *cell)
{
    const char *type = json_get_str(cell, "cell_type", "");
    want(cell, "metadata", json_object());
    if (!strcmp(type, "code"))
        upgrade_code(cell);
    else if (!strcmp(type, "heading"))
        upgrade_heading(cell);
    else if (!strcmp(type, "html"))
        json_object_set_new(cell, "cell_type", json_string("markdown"));
    want(cell, "source", json_string(""));
}

int nb_upgrade(json_t *notebook)
{
    int64_t version = json_get_int(notebook, "nbformat", -1);
    json_t *sheets = json_object_get(notebook, "worksheets");
    if (version < 2 || version > 3 || !json_is_array(sheets))
        return 0;
    json_t *cells = json_array(), *sheet, *cell;
    size_t i, k;
    json_array_foreach(sheets, i, sheet)
    {
        json_array_foreach(json_object_get(sheet, "cells"), k, cell)
        {
            if (!json_is_object(cell))
                continue;
            upgrade_cell(cell);
            json_array_append(cells, cell);
        }
    }
    json_object_set_new(notebook, "cells", cells);
    json_object_del(notebook, "worksheets");
    want(notebook, "metadata", json_object());
    json_t *metadata = json_object_get(notebook, "metadata");
    json_object_del(metadata, "name");
    json_object_set_new(metadata, "orig_nbformat", json_integer(version));
    json_object_del(notebook, "orig_nbformat");
    json_object_del(notebook, "orig_nbformat_minor");
    json_object_set_new(notebook, "nbformat", json_integer(4));
    json_object_set_new(notebook, "nbformat_minor", json_integer(4));
    return 1;
}
