/* Trust marks in notebooks, and their cells. Pure. */
#include <string.h>

#include "gateway/contents.h"

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
