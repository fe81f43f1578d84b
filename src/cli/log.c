/* reitos log: what a kernel has said, from its journal. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "kernel/journal.h"
#include "wire/nb.h"

#define FOLLOW_MS 100
#define SUMMARY_COLUMNS 60
#define CELLS_MAX 4096 /* running at once, by as many clients */
#define TEXT_MAX ((size_t)1 << 30)

struct view {
    int outputs, json;
    /* the last n pieces, when only those are wanted */
    char **ring;
    int64_t keep, seen; /* keep 0: everything, at once */
    json_t *cells;      /* outputs: request id -> index into folds */
    struct nb_cell *folds[CELLS_MAX];
    char *heads[CELLS_MAX]; /* "In [3]: source" */
};

/* --- finding the kernel -------------------------------------------------------------------- */

/* The folder of the one kernel whose id begins with `prefix`; heap. Works without a shim. */
static int find_kernel(const char *data, const char *prefix, char **ret, struct err *e)
{
    autofree char *dir = xasprintf("%s/kernels", data);
    autofree char *found = NULL;
    int many = 0;
    DIR *d = opendir(dir);
    for (struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        if (x->d_name[0] == '.' || strncmp(x->d_name, prefix, strlen(prefix)) != 0)
            continue;
        many += found != NULL;
        free(found);
        found = xstrdup(x->d_name);
    }
    if (d)
        closedir(d);
    if (!*prefix || !found)
        return err_set(e, ERR_NOT_FOUND, "%s: no such kernel; reitos ps lists all", prefix);
    if (many)
        return err_set(e, ERR_INVALID, "%s: more than one kernel begins so; give more of the id",
                       prefix);
    *ret = xasprintf("%s/%s/journal", dir, found);
    return 0;
}

/* --- output -------------------------------------------------------------------------------- */

static void emit(struct view *v, char *text) /* taken */
{
    if (!v->keep) {
        fputs(text, stdout);
        free(text);
        return;
    }
    char **slot = &v->ring[v->seen++ % v->keep];
    free(*slot);
    *slot = text;
}

/* From here on everything is printed as it comes. */
static void flush_ring(struct view *v)
{
    for (int64_t i = 0; i < v->keep; i++) {
        char **slot = &v->ring[(v->seen + i) % v->keep];
        if (*slot)
            fputs(*slot, stdout);
        free(*slot);
        *slot = NULL;
    }
    v->keep = 0;
    fflush(stdout);
}

/* --- messages ------------------------------------------------------------------------------ */

/* What a person looks for in a message; heap, one line. */
static char *summary_of(const json_t *content)
{
    static const char *const keys[] = {"execution_state", "text",   "code",   "ename",
                                       "prompt",          "status", "comm_id"};
    const char *text = "";
    for (size_t i = 0; i < COUNTOF(keys) && !*text; i++)
        text = json_get_str(content, keys[i], "");
    if (!*text)
        text = json_get_str(json_object_get(content, "data"), "text/plain", "");
    autobuf struct buf b = BUF_INIT(1 << 12);
    for (size_t n = 0; *text && n < SUMMARY_COLUMNS; text++) {
        unsigned char ch = (unsigned char)*text;
        n += (ch & 0xc0) != 0x80;
        if (ch == '\n')
            buf_add(&b, "\\n");
        else
            buf_add(&b, "%c", ch < 0x20 || ch == 0x7f ? ' ' : ch);
    }
    return buf_steal(&b);
}

static char *message_line(const struct view *v, struct jmsg *m, const struct jhead *h,
                          int64_t wall_us)
{
    char when[SYS_TIME_MAX];
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        content = json_object();
    sys_time_iso(wall_us, when);
    if (v->json) {
        autojson json_t *row = json_pack(
            "{s:I,s:s,s:s,s:s,s:s,s:s,s:i,s:O}", "seq", (json_int_t)m->seq, "time", when, "channel",
            jchan_name(m->channel), "msg_type", h->msg_type, "msg_id", h->msg_id, "parent_id",
            h->parent_id, "buffers", (int)m->nparts - 4, "content", content);
        autofree char *text = json_text(row);
        return xasprintf("%s\n", text ? text : "{}");
    }
    autofree char *summary = summary_of(content);
    when[19] = 0;
    return xasprintf("%8llu  %s  %-7s  %-20s  %-8.8s  %s\n", (unsigned long long)m->seq, when,
                     jchan_name(m->channel), h->msg_type, h->parent_id, summary ? summary : "");
}

/* --- outputs ------------------------------------------------------------------------------- */

static int put_joined(struct buf *b, const json_t *v, const char *sep)
{
    const json_t *line;
    size_t i;
    int r = json_is_string(v) ? buf_puts(b, json_string_value(v)) : 0;
    json_array_foreach(v, i, line)
    {
        if (r >= 0 && json_is_string(line))
            r = buf_puts(b, json_string_value(line));
        if (r >= 0)
            r = buf_puts(b, sep);
    }
    return r;
}

/* An output as a terminal would show it, ending in a newline. */
static int put_output(struct buf *b, const json_t *o)
{
    size_t before = b->len;
    int r;
    const char *type = json_get_str(o, "output_type", "");
    if (!strcmp(type, "stream"))
        r = put_joined(b, json_object_get(o, "text"), "");
    else if (!strcmp(type, "error"))
        r = put_joined(b, json_object_get(o, "traceback"), "\n");
    else
        r = put_joined(b, json_object_get(json_object_get(o, "data"), "text/plain"), "");
    if (r >= 0 && b->len > before && b->data[b->len - 1] != '\n')
        r = buf_puts(b, "\n");
    return r;
}

static void close_cell(struct view *v, size_t at)
{
    struct buf b = BUF_INIT(TEXT_MAX);
    const json_t *o;
    size_t i;
    int r = buf_puts(&b, v->heads[at] ? v->heads[at] : "");
    json_array_foreach(nb_cell_outputs(v->folds[at]), i, o)
    {
        if (r >= 0)
            r = put_output(&b, o); /* past the limit the rest is left out */
    }
    int quiet = !b.len;
    char *text = quiet ? NULL : buf_steal(&b);
    if (text)
        emit(v, text);
    buf_free(&b);
    v->folds[at] = nb_cell_free(v->folds[at]);
    free(v->heads[at]);
    v->heads[at] = NULL;
}

static size_t cell_of(struct view *v, const char *request)
{
    const json_t *known = json_object_get(v->cells, request);
    if (known)
        return (size_t)json_integer_value(known);
    size_t at = 0;
    while (at < CELLS_MAX && v->folds[at])
        at++;
    if (at == CELLS_MAX)
        return at;
    v->folds[at] = nb_cell_new();
    json_object_set_new(v->cells, request, json_integer((json_int_t)at));
    return at;
}

static void take_head(struct view *v, size_t at, const json_t *content)
{
    free(v->heads[at]);
    const char *code = json_get_str(content, "code", "");
    size_t n = strlen(code);
    while (n && code[n - 1] == '\n')
        n--;
    v->heads[at] = xasprintf("In [%lld]: %.*s\n",
                             (long long)json_get_int(content, "execution_count", 0), (int)n, code);
}

static void take_output(struct view *v, struct jmsg *m, const struct jhead *h)
{
    if (m->channel != JCHAN_IOPUB || strcmp(h->parent_type, "execute_request") != 0)
        return;
    autojson json_t *content = NULL;
    size_t at = cell_of(v, h->parent_id);
    if (at == CELLS_MAX || jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    if (!strcmp(h->msg_type, "execute_input"))
        take_head(v, at, content);
    IGNORE_RESULT(nb_cell_feed(v->folds[at], m)); /* whether it changed does not matter here */
    if (!strcmp(h->msg_type, "status") &&
        !strcmp(json_get_str(content, "execution_state", ""), "idle")) {
        close_cell(v, at);
        json_object_del(v->cells, h->parent_id);
    }
}

static int is_output(const char *type)
{
    return !strcmp(type, "error") || !strcmp(type, "execute_result") ||
           !strcmp(type, "display_data");
}

/* A live view: text goes out as it arrives, the terminal applies carriage returns. */
static void live_output(struct jmsg *m, const struct jhead *h)
{
    autojson json_t *content = NULL;
    autobuf struct buf b = BUF_INIT(TEXT_MAX);
    if (m->channel != JCHAN_IOPUB || jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    if (!strcmp(h->msg_type, "stream")) {
        fputs(json_get_str(content, "text", ""), stdout);
    } else if (!strcmp(h->msg_type, "execute_input")) {
        printf("In [%lld]: %s\n", (long long)json_get_int(content, "execution_count", 0),
               json_get_str(content, "code", ""));
    } else if (is_output(h->msg_type)) {
        json_object_set_new(content, "output_type", json_string(h->msg_type));
        if (put_output(&b, content) >= 0)
            fputs(buf_str(&b), stdout);
    }
}

/* --- reading ------------------------------------------------------------------------------- */

static void show(struct view *v, struct jmsg *m, int64_t wall_us, int live)
{
    const struct jhead *h;
    struct err e = {0};
    if (jmsg_head(m, &h, &e) < 0)
        return; /* the writer checks headers; a foreign record is nothing to show */
    if (!v->outputs)
        emit(v, message_line(v, m, h, wall_us));
    else if (live)
        live_output(m, h);
    else
        take_output(v, m, h);
}

static int read_all(struct view *v, struct jreader *r, int live, struct err *e)
{
    for (;;) {
        autojmsg struct jmsg *m = NULL;
        int64_t wall_us = 0;
        int n = jreader_next(r, &m, &wall_us, e);
        if (n <= 0)
            return n;
        show(v, m, wall_us, live);
    }
}

/* Cells that still run show what they have. */
static void close_cells(struct view *v)
{
    for (size_t i = 0; i < CELLS_MAX; i++)
        if (v->folds[i])
            close_cell(v, i);
}

static int follow(struct view *v, struct jreader *r, const char *dir, struct err *e)
{
    for (;;) {
        struct stat st;
        int n = read_all(v, r, 1, e);
        if (n < 0)
            return n;
        if (fflush(stdout) != 0 || stat(dir, &st) < 0)
            return 0; /* nobody reads, or the kernel is gone with its journal */
        poll(NULL, 0, FOLLOW_MS);
    }
}

static int view_journal(struct view *v, const char *dir, int following, struct err *e)
{
    struct jreader *r = NULL;
    int n = jreader_open(dir, 1, &r, e);
    if (n < 0)
        return n;
    n = read_all(v, r, 0, e);
    close_cells(v);
    flush_ring(v);
    if (n >= 0 && following)
        n = follow(v, r, dir, e);
    jreader_close(r);
    return n;
}

static int run_log(struct cli *c, struct err *e)
{
    struct view *v = xcalloc(1, sizeof(*v));
    autofree char *dir = NULL;
    v->outputs = cli_given(c, "outputs");
    v->json = c->json;
    v->cells = json_object();
    int r = cli_number(c, "lines", 0, &v->keep, e);
    if (r >= 0 && v->outputs && v->json)
        r = err_set(e, ERR_INVALID, "--outputs is text; leave out -o json");
    if (r >= 0)
        r = find_kernel(c->conf.data, c->operands[0], &dir, e);
    if (r >= 0) {
        v->ring = xcalloc((size_t)v->keep + 1, sizeof(char *));
        r = view_journal(v, dir, cli_given(c, "follow"), e);
    }
    free(v->ring);
    json_decref(v->cells);
    free(v);
    return r;
}

static const struct cli_option options[] = {
    {"outputs", 0, NULL, "show cells and their text outputs as a notebook would"},
    {"follow", 'f', NULL, "go on with what comes, until the kernel is gone"},
    {"lines", 'n', "N", "only the last N messages, or cells with --outputs"},
    {"output", 'o', "json|table", "form of the messages; json is one object per line"},
    CLI_OPTIONS_END,
};

const struct cli_command cli_log = {
    .name = "log",
    .operands = "KERNEL",
    .summary = "show what a kernel has said",
    .description = "KERNEL is an id or the beginning of one. Reads the kernel's journal: also what "
                   "was said while no client was connected.",
    .examples = "reitos log 3f2a -n 20\nreitos log 3f2a --outputs\nreitos log 3f2a -f -o json",
    .options = options,
    .min = 1,
    .max = 1,
    .run = run_log,
};
