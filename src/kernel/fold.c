#include "kernel/fold.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "kernel/segment.h"
#include "wire/textfold.h"

#define UPDATES_KEPT 16 /* earlier updates of one comm that are looked at */

int fold_text(const char *old, size_t oldlen, const char *add, size_t addlen, struct buf *out)
{
    struct textfold f;
    textfold_init(&f, out->max);
    int rc = textfold_feed(&f, old, oldlen);
    if (rc == 0)
        rc = textfold_feed(&f, add, addlen);
    if (rc == 0)
        rc = buf_append(out, buf_str(&f.text), f.text.len);
    textfold_free(&f);
    return rc;
}

static int contains(const struct slice *s, const char *word)
{
    return memmem(s->data, s->len, word, strlen(word)) != NULL;
}

int fold_candidate(const struct jmsg *m)
{
    const struct slice *h = &m->parts[JPART_HEADER];
    if (m->channel != JCHAN_IOPUB)
        return 0;
    if (contains(h, "\"stream\""))
        return contains(&m->parts[JPART_CONTENT], "\\r");
    return contains(h, "\"comm_msg\"") || contains(h, "\"update_display_data\"");
}

/* State of one pass. Values are indices of records. */
struct pass {
    struct fold_record *records;
    /* parent id: its last output, when that is "\rtext" without line end on a stream */
    json_t *progress;
    json_t *comms;    /* comm id: [[index, {key: null}], ...] updates not yet superseded */
    json_t *displays; /* display id: last update */
    size_t dropped;
};

static void drop(struct pass *p, size_t i)
{
    p->records[i].dropped = 1;
    p->dropped++;
}

static size_t width(const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xc0) != 0x80;
    return chars;
}

static int set_text(struct fold_record *r, json_t *content, const char *text)
{
    json_object_set_new(content, "text", json_string(text));
    autofree char *s = json_text(content);
    struct slice parts[JPART_BUFFERS];
    memcpy(parts, r->m->parts, sizeof parts);
    parts[JPART_CONTENT] = (struct slice){s, strlen(s)};
    struct jmsg *fresh;
    if (jmsg_new(r->m->channel, parts, JPART_BUFFERS, &fresh, NULL) < 0)
        return 0;
    fresh->seq = r->m->seq;
    jmsg_unref(r->m);
    r->m = fresh;
    return 1;
}

/* Makes the later of two progress lines show what the earlier one leaves visible beside it, so that
 * the earlier one can go. Whoever has seen the earlier one already, or only what came before it,
 * sees the same line afterwards. Returns 1 when that was possible. */
static int overlay(const char *before, struct fold_record *later, const char *text, json_t *content)
{
    size_t first = strcspn(text, "\n"); /* length of its first line */
    if (width(before, strlen(before)) <= width(text, first) && !memchr(text + 1, '\r', first - 1))
        return 1; /* covered wholly */
    autobuf struct buf line = BUF_INIT(BUF_DEFAULT_MAX);
    if (buf_puts(&line, "\r") < 0 || fold_text(before, strlen(before), text, first, &line) < 0)
        return 0;
    /* Without a line end the cursor must stand where the later text leaves it: say it again. */
    if (buf_puts(&line, text[first] ? text + first : text) < 0)
        return 0;
    return set_text(later, content, buf_str(&line));
}

/* The text of a stream message; NULL when it has none or holds NUL characters. */
static const char *stream_text(const json_t *content)
{
    const json_t *text = json_object_get(content, "text");
    const char *s = json_string_value(text);
    return s && strlen(s) == json_string_length(text) ? s : NULL;
}

static void fold_stream(struct pass *p, size_t i, const char *parent)
{
    autojson json_t *content = NULL;
    struct jmsg *m = p->records[i].m;
    const char *text = NULL;
    if (m->nparts == JPART_BUFFERS && jmsg_json(m, JPART_CONTENT, &content, NULL) == 0)
        text = stream_text(content);
    if (!text || text[0] != '\r' || strchr(text, '\b')) {
        json_object_del(p->progress, parent);
        return;
    }
    const char *name = json_get_str(content, "name", "");
    const json_t *last = json_object_get(p->progress, parent);
    int goes_on = !strchr(text, '\n');
    autojson json_t *now = NULL; /* what record i says after that */
    if (last && strcmp(json_get_str(last, "name", ""), name) == 0) {
        autojson json_t *copy = json_copy(content); /* `text` points into the original */
        if (overlay(json_get_str(last, "text", ""), &p->records[i], text, copy))
            drop(p, (size_t)json_get_int(last, "i", 0));
        now = json_incref(json_object_get(copy, "text"));
    }
    if (goes_on)
        json_object_set_new(p->progress, parent,
                            json_pack("{s:I, s:s, s:O}", "i", (json_int_t)i, "name", name, "text",
                                      now ? now : json_object_get(content, "text")));
    else
        json_object_del(p->progress, parent);
}

/* The widget properties that an update sets; NULL when it is none. New reference. */
static json_t *updated_keys(const json_t *content)
{
    const json_t *data = json_object_get(content, "data");
    const json_t *state = json_object_get(data, "state");
    if (strcmp(json_get_str(data, "method", ""), "update") != 0 || !json_is_object(state))
        return NULL;
    json_t *keys = json_object();
    const char *key;
    json_t *v, *path;
    json_object_foreach((json_t *)(uintptr_t)state, key, v)
        json_object_set_new(keys, key, json_null());
    size_t i;
    json_array_foreach(json_object_get(data, "buffer_paths"), i, path)
    {
        const char *first = json_string_value(json_array_get(path, 0));
        if (first)
            json_object_set_new(keys, first, json_null());
    }
    return keys;
}

static int subset(json_t *small, const json_t *large)
{
    const char *key;
    json_t *v;
    json_object_foreach(small, key, v)
    {
        if (!json_object_get(large, key))
            return 0;
    }
    return 1;
}

static void fold_comm(struct pass *p, size_t i)
{
    autojson json_t *content = NULL;
    if (jmsg_json(p->records[i].m, JPART_CONTENT, &content, NULL) < 0)
        return;
    const char *comm = json_get_str(content, "comm_id", "");
    autojson json_t *keys = updated_keys(content);
    if (!keys) {
        json_object_del(p->comms, comm); /* may depend on the state before it */
        return;
    }
    json_t *list = json_object_get(p->comms, comm);
    if (!list) {
        list = json_array();
        json_object_set_new(p->comms, comm, list);
    }
    for (size_t k = json_array_size(list); k-- > 0;) {
        json_t *item = json_array_get(list, k);
        if (subset(json_array_get(item, 1), keys)) {
            drop(p, (size_t)json_integer_value(json_array_get(item, 0)));
            json_array_remove(list, k);
        }
    }
    if (json_array_size(list) >= UPDATES_KEPT)
        json_array_remove(list, 0);
    json_array_append_new(list, json_pack("[I, O]", (json_int_t)i, keys));
}

static void fold_display(struct pass *p, size_t i)
{
    autojson json_t *content = NULL;
    if (jmsg_json(p->records[i].m, JPART_CONTENT, &content, NULL) < 0)
        return;
    const char *id = json_get_str(json_object_get(content, "transient"), "display_id", "");
    const json_t *last = json_object_get(p->displays, id);
    if (!*id)
        return;
    if (last)
        drop(p, (size_t)json_integer_value(last));
    json_object_set_new(p->displays, id, json_integer((json_int_t)i));
}

/* Messages of one request carry the same parent header byte for byte, so that its text serves as
 * the request's name; decoding it would cost as much as all the rest. */
static void fold_one(struct pass *p, size_t i)
{
    struct jmsg *m = p->records[i].m;
    autojson json_t *header = NULL;
    if (m->channel != JCHAN_IOPUB || jmsg_json(m, JPART_HEADER, &header, NULL) < 0)
        return;
    const char *type = json_get_str(header, "msg_type", "");
    autofree char *parent = xstrdup(m->parts[JPART_PARENT].data); /* m may be replaced */
    if (strcmp(type, "stream") == 0) {
        fold_stream(p, i, parent);
        return;
    }
    json_object_del(p->progress, parent); /* what follows is another output */
    if (strcmp(type, "comm_msg") == 0 || strcmp(type, "comm_close") == 0 ||
        strcmp(type, "comm_open") == 0)
        fold_comm(p, i);
    else if (strcmp(type, "update_display_data") == 0)
        fold_display(p, i);
}

size_t fold_records(struct fold_record *records, size_t n)
{
    struct pass p = {records, json_object(), json_object(), json_object(), 0};
    for (size_t i = 0; i < n; i++)
        fold_one(&p, i);
    json_decref(p.progress);
    json_decref(p.comms);
    json_decref(p.displays);
    return p.dropped;
}

static void free_records(struct fold_record *records, int64_t *times, size_t n)
{
    for (size_t i = 0; i < n; i++)
        jmsg_unref(records[i].m);
    free(records);
    free(times);
}

static int write_records(const struct fold_record *records, const int64_t *times, size_t n,
                         struct buf *out)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct jmsg *m = records[i].m;
        if (records[i].dropped)
            continue;
        rc = segment_record_head(m, m->seq, times[i], out);
        for (size_t k = 0; k < m->nparts && rc == 0; k++)
            rc = buf_append(out, m->parts[k].data, m->parts[k].len);
    }
    return rc;
}

/* All records of a segment; negative when one cannot be read. */
static int load_records(struct segment *s, struct fold_record **ret, int64_t **ret_times, size_t *n)
{
    struct segment_record r;
    size_t cap = 0;
    int rc;
    while ((rc = segment_next(s, 0, &r, NULL)) == 1) {
        if (*n == cap) {
            cap = cap ? 2 * cap : 1024;
            *ret = xrealloc(*ret, cap * sizeof **ret);
            *ret_times = xrealloc(*ret_times, cap * sizeof **ret_times);
        }
        (*ret)[*n] = (struct fold_record){NULL, 0};
        (*ret_times)[*n] = r.wall_us;
        if ((rc = segment_message(&r, &(*ret)[*n].m, NULL)) < 0)
            return rc;
        (*n)++;
    }
    return rc;
}

int fold_segment(int dirfd, uint64_t first, struct buf *out)
{
    struct segment s;
    struct stat st;
    segment_init(&s);
    if (segment_open(&s, dirfd, first, NULL) < 0)
        return 0;
    struct fold_record *records = NULL;
    int64_t *times = NULL;
    size_t n = 0;
    int changed = 0;
    if (fstat(s.fd, &st) == 0 && (uint64_t)st.st_size <= FOLD_SEGMENT_MAX &&
        load_records(&s, &records, &times, &n) == 0 && fold_records(records, n) > 0)
        changed = write_records(records, times, n, out) == 0;
    segment_close(&s);
    free_records(records, times, n);
    return changed;
}
