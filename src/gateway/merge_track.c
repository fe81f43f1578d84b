/* Following a kernel's journal: which cell an output belongs to, and its outputs so far. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/merge_int.h"

struct track *track_new(char *dir, uint64_t next)
{
    struct track *t = xcalloc(1, sizeof *t);
    t->dir = dir;
    t->next = next;
    list_init(&t->execs);
    return t;
}

void track_drop(struct track *t, struct exec *x)
{
    list_remove(&x->link);
    t->nexecs--;
    nb_cell_free(x->fold);
    free(x->msg_id);
    free(x->cell_id);
    free(x);
}

void track_free(struct track *t)
{
    if (!t)
        return;
    list_foreach(it, &t->execs) track_drop(t, container_of(it, struct exec, link));
    jreader_close(t->reader);
    free(t->dir);
    free(t);
}

struct exec *track_exec(const struct track *t, const char *cell_id)
{
    list_foreach(it, &t->execs)
    {
        struct exec *x = container_of(it, struct exec, link);
        if (strcmp(x->cell_id, cell_id) == 0)
            return x;
    }
    return NULL;
}

static struct exec *by_request(const struct track *t, const char *msg_id)
{
    for (struct list *it = t->execs.prev; it != &t->execs; it = it->prev) {
        struct exec *x = container_of(it, struct exec, link);
        if (strcmp(x->msg_id, msg_id) == 0)
            return x;
    }
    return NULL;
}

/* Forgets executions of which the file has everything, oldest first; late output of such a one is
 * then left in the journal. */
static void limit_execs(struct track *t)
{
    list_foreach(it, &t->execs)
    {
        struct exec *x = container_of(it, struct exec, link);
        if (t->nexecs <= MERGE_EXECS_MAX)
            return;
        if (x->done && !x->dirty)
            track_drop(t, x);
    }
}

static struct exec *add_exec(struct track *t, const char *msg_id, const char *cell_id, uint64_t seq)
{
    struct exec *x = xcalloc(1, sizeof *x);
    x->msg_id = xstrdup(msg_id);
    x->cell_id = xstrdup(cell_id);
    x->first = seq;
    x->epoch = t->epoch;
    x->gap = t->clients == 0;
    list_append(&t->execs, &x->link);
    t->nexecs++;
    limit_execs(t);
    return x;
}

/* The journal's copy of a request: from here on its outputs are those of its cell. */
static void on_request(struct track *t, const struct jmsg *m, const struct jhead *h)
{
    autojson json_t *metadata = NULL, *content = NULL;
    if (jmsg_json(m, JPART_METADATA, &metadata, NULL) < 0 ||
        jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    const char *cell = json_get_str(metadata, "cellId", "");
    if (!*cell || !*h->msg_id || json_get_bool(content, "silent", 0))
        return;
    struct exec *same = by_request(t, h->msg_id); /* known from an earlier daemon */
    if (same)
        return;
    struct exec *older = track_exec(t, cell);
    if (older)
        track_drop(t, older);
    add_exec(t, h->msg_id, cell, m->seq);
}

static void on_reply(struct track *t, struct exec *x, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    const char *status = json_get_str(content, "status", "");
    if (strcmp(status, "aborted") == 0 && !x->started) {
        track_drop(t, x); /* never ran: the cell keeps what it shows */
        return;
    }
    int64_t count = json_get_int(content, "execution_count", 0);
    if (count > 0 && count <= INT32_MAX && x->started && x->count != (int)count) {
        x->count = (int)count;
        x->dirty = 1;
    }
}

static void on_status(struct track *t, struct exec *x, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0 ||
        strcmp(json_get_str(content, "execution_state", ""), "idle") != 0)
        return;
    if (!x->started) { /* refused before it ran: nothing to bring in */
        track_drop(t, x);
        return;
    }
    x->done = 1;
    x->gap |= x->epoch != t->epoch;
}

/* clear_output() while part of the outputs is only in the file. */
static void clear_base(struct exec *x, const struct jmsg *m, const char *type)
{
    if (strcmp(type, "clear_output") != 0) {
        if (x->clear_wait) {
            x->base = 0;
            x->clear_wait = 0;
        }
        return;
    }
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    if (json_get_bool(content, "wait", 0)) {
        x->clear_wait = 1;
    } else {
        x->base = 0;
        x->dirty = 1;
    }
}

static int is_output(const char *type)
{
    static const char *const types[] = {"stream",       "display_data",        "execute_result",
                                        "error",        "update_display_data", "clear_output",
                                        "execute_input"};
    for (size_t i = 0; i < COUNTOF(types); i++)
        if (strcmp(type, types[i]) == 0)
            return 1;
    return 0;
}

/* A display may be updated by any cell. */
static void update_displays(struct track *t, const struct exec *own, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    const char *id = json_get_str(json_object_get(content, "transient"), "display_id", "");
    list_foreach(it, &t->execs)
    {
        struct exec *x = container_of(it, struct exec, link);
        if (x != own && x->fold &&
            nb_cell_update_display(x->fold, id, json_object_get(content, "data"),
                                   json_object_get(content, "metadata")))
            x->dirty = 1;
    }
}

static void on_output(struct track *t, struct exec *x, struct jmsg *m, const char *type)
{
    if (m->seq < x->first)
        return; /* an earlier daemon has put it into the file */
    if (!x->started) {
        x->started = x->dirty = 1; /* the outputs of the run before go */
    }
    if (x->base && strcmp(type, "execute_input") != 0)
        clear_base(x, m, type);
    if (!x->fold)
        x->fold = nb_cell_new();
    if (nb_cell_feed(x->fold, m)) {
        x->dirty = 1;
        x->seen = 0;
    }
    int count = nb_cell_execution_count(x->fold);
    if (count)
        x->count = count;
    if (strcmp(type, "update_display_data") == 0)
        update_displays(t, x, m);
}

static void feed(struct track *t, struct jmsg *m)
{
    const struct jhead *h;
    if (jmsg_head(m, &h, NULL) < 0)
        return;
    if (m->channel == JCHAN_SHELL && strcmp(h->msg_type, "execute_request") == 0) {
        on_request(t, m, h);
        return;
    }
    struct exec *x = *h->parent_id ? by_request(t, h->parent_id) : NULL;
    if (m->channel == JCHAN_SHELL && x && strcmp(h->msg_type, "execute_reply") == 0)
        on_reply(t, x, m);
    if (m->channel != JCHAN_IOPUB)
        return;
    if (x && strcmp(h->msg_type, "status") == 0)
        on_status(t, x, m);
    else if (x && is_output(h->msg_type))
        on_output(t, x, m, h->msg_type);
    else if (!x && strcmp(h->msg_type, "update_display_data") == 0)
        update_displays(t, NULL, m);
}

int track_advance(struct track *t, size_t budget, struct err *e)
{
    int rc = t->reader ? 0 : jreader_open(t->dir, t->next, &t->reader, e);
    if (rc < 0)
        return rc;
    for (size_t used = 0; used < budget;) {
        autojmsg struct jmsg *m = NULL;
        rc = jreader_next(t->reader, &m, NULL, e);
        if (rc <= 0)
            return rc;
        t->next = m->seq + 1;
        used += jmsg_bytes(m) + 256;
        feed(t, m);
    }
    return 1;
}

int track_dirty(const struct track *t)
{
    list_foreach(it, &t->execs) if (container_of(it, struct exec, link)->dirty) return 1;
    return 0;
}

size_t track_bytes(const struct track *t)
{
    size_t sum = 0;
    list_foreach(it, &t->execs)
    {
        const struct exec *x = container_of(it, struct exec, link);
        sum += x->fold ? nb_cell_bytes(x->fold) : 0;
    }
    return sum;
}

uint64_t track_position(const struct track *t)
{
    uint64_t pos = t->next;
    list_foreach(it, &t->execs)
    {
        const struct exec *x = container_of(it, struct exec, link);
        if ((x->dirty || x->fold || !x->done) && x->first < pos)
            pos = x->first;
    }
    return pos;
}

json_t *track_save(const struct track *t)
{
    json_t *list = json_array();
    for (struct list *it = t->execs.prev; it != &t->execs; it = it->prev) {
        const struct exec *x = container_of(it, struct exec, link);
        if (json_array_size(list) == MERGE_SAVED_MAX)
            break;
        if (x->base || x->done)
            json_array_insert_new(list, 0,
                                  json_pack("{s:s, s:s, s:I, s:I, s:i, s:b}", "msg", x->msg_id,
                                            "cell", x->cell_id, "base", (json_int_t)x->base,
                                            "first", (json_int_t)x->first, "count", x->count,
                                            "done", x->done));
    }
    return list;
}

void track_load(struct track *t, const json_t *saved)
{
    size_t i;
    json_t *v;
    json_array_foreach(saved, i, v)
    {
        const char *msg = json_get_str(v, "msg", ""), *cell = json_get_str(v, "cell", "");
        int64_t base = json_get_int(v, "base", -1), first = json_get_int(v, "first", -1);
        if (!*msg || !*cell || base < 0 || first < 0 || track_exec(t, cell))
            continue;
        struct exec *x = add_exec(t, msg, cell, (uint64_t)first);
        x->base = (size_t)base;
        x->count = (int)json_get_int(v, "count", 0);
        x->done = json_get_bool(v, "done", 0);
        x->started = x->gap = 1;
    }
}
