/* reitos ps: the kernels of this data folder. */
#include <string.h>

#include "base/alloc.h"
#include "cli/ask.h"

/* The notebook: as `run` and the proxy note it, else of the first session. */
static const char *path_of(const json_t *model)
{
    const json_t *annotation = json_object_get(model, "annotation");
    const json_t *session = json_array_get(json_object_get(annotation, "sessions"), 0);
    return json_get_str(annotation, "path", json_get_str(session, "path", ""));
}

/* For people: as much of the time stamp as is needed. Heap. */
static char *short_time(const char *iso)
{
    char *s = xstrndup(iso, 19);
    char *t = strchr(s, 'T');
    if (t)
        *t = ' ';
    return s;
}

static json_t *row_of(const json_t *model, int json)
{
    int64_t pid = json_get_int(model, "pid", 0), pss = ask_pss_kib(pid);
    const char *id = json_get_str(model, "id", ""), *started = json_get_str(model, "started", "");
    autofree char *brief = short_time(started);
    json_t *row = json_object();
    if (json)
        json_object_set_new(row, "id", json_string(id));
    else
        json_object_set_new(row, "id", json_stringn(id, strnlen(id, 8)));
    json_object_set_new(row, "name", json_string(json_get_str(model, "name", "")));
    json_object_set_new(row, "state", json_string(json_get_str(model, "state", "")));
    json_object_set_new(row, "reason", json_string(json_get_str(model, "reason", "")));
    json_object_set_new(row, "via", json_string(json_get_str(model, "via", "")));
    json_object_set_new(row, "pid", json_integer(pid));
    json_object_set_new(row, "memory_mib",
                        pss < 0 ? json_null() : json_real((double)(pss * 10 / 1024) / 10));
    json_object_set_new(row, "waiting", json_integer(json_get_int(model, "waiting", 0)));
    json_object_set_new(row, "started", json_string(json ? started : brief));
    json_object_set_new(row, "path", json_string(path_of(model)));
    return row;
}

static int run_ps(struct cli *c, struct err *e)
{
    static const struct cli_column columns[] = {
        {"id", "ID", 0},
        {"name", "NAME", 0},
        {"state", "STATE", 0},
        {"via", "VIA", 0},
        {"pid", "PID", 1},
        {"memory_mib", "MEM(MIB)", 1},
        {"started", "STARTED(UTC)", 0},
        {"path", "NOTEBOOK", 0},
    };
    autojson json_t *kernels = NULL;
    int r = ask_kernels(c, &kernels, e);
    if (r < 0)
        return r;
    autojson json_t *rows = json_array();
    json_t *model;
    size_t i;
    json_array_foreach(kernels, i, model)
    {
        json_array_append_new(rows, row_of(model, c->json));
    }
    cli_print_rows(c, rows, columns, COUNTOF(columns));
    return 0;
}

static const struct cli_option options[] = {CLI_OUTPUT, CLI_OPTIONS_END};

const struct cli_command cli_ps = {
    .name = "ps",
    .operands = "",
    .summary = "list kernels",
    .description = "Memory is the proportional share (PSS) of the kernel's process: what forks "
                   "share is counted once.",
    .examples = "reitos ps\nreitos ps -o json | jq '.[].id'",
    .options = options,
    .run = run_ps,
};
