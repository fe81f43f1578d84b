/* Folding the iopub messages of one execution into the outputs of a cell. */
#include <string.h>

#include "base/alloc.h"
#include "wire/nb.h"
#include "wire/textfold.h"

struct nb_cell {
    json_t *outputs;
    json_t *displays;     /* display id of each output, or null */
    struct textfold text; /* of the last output, while that is a stream */
    int streaming;        /* the last output is a stream that goes on */
    int text_changed;     /* it is not in `outputs` yet */
    int clear_next;       /* clear_output(wait=True) was said */
    int execution_count;
    size_t bytes; /* of all outputs but the open stream */
};

struct nb_cell *nb_cell_new(void)
{
    struct nb_cell *c = xcalloc(1, sizeof *c);
    c->outputs = json_array();
    c->displays = json_array();
    textfold_init(&c->text, BUF_DEFAULT_MAX);
    return c;
}

struct nb_cell *nb_cell_free(struct nb_cell *c)
{
    if (c) {
        json_decref(c->outputs);
        json_decref(c->displays);
        textfold_free(&c->text);
        free(c);
    }
    return NULL;
}

static void put_text(struct nb_cell *c)
{
    if (!c->text_changed)
        return;
    json_t *last = json_array_get(c->outputs, json_array_size(c->outputs) - 1);
    json_object_set_new(last, "text",
                        json_stringn_nocheck(buf_str(&c->text.text), c->text.text.len));
    c->text_changed = 0;
}

static void end_stream(struct nb_cell *c)
{
    put_text(c);
    c->bytes += c->text.text.len;
    textfold_free(&c->text);
    c->streaming = 0;
}

/* A fresh array: the old one may still be held by who asked for the outputs. */
static void clear(struct nb_cell *c)
{
    json_decref(c->outputs);
    c->outputs = json_array();
    json_array_clear(c->displays);
    textfold_free(&c->text);
    c->streaming = c->text_changed = c->clear_next = 0;
    c->bytes = 0;
}

static void add_output(struct nb_cell *c, json_t *output, const char *display_id)
{
    json_array_append_new(c->outputs, output);
    json_array_append_new(c->displays, display_id ? json_string(display_id) : json_null());
}

static int feed_stream(struct nb_cell *c, const json_t *content)
{
    const char *name = json_get_str(content, "name", "stdout");
    const json_t *text = json_object_get(content, "text");
    const json_t *last = json_array_get(c->outputs, json_array_size(c->outputs) - 1);
    if (json_string_length(text) == 0)
        return 0;
    if (c->streaming && strcmp(json_get_str(last, "name", ""), name) != 0)
        end_stream(c);
    if (!c->streaming) {
        add_output(c,
                   json_pack("{s:s, s:s, s:s}", "output_type", "stream", "name", name, "text", ""),
                   NULL);
        c->streaming = 1;
    }
    c->text_changed = 1;
    /* At the limit the text stays as it is: a cell cannot be larger. */
    IGNORE_RESULT(textfold_feed(&c->text, json_string_value(text), json_string_length(text)));
    return 1;
}

static json_t *object_or_empty(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_object(v) ? json_incref(v) : json_object();
}

static int feed_display(struct nb_cell *c, const json_t *content, int result)
{
    json_t *output = json_pack(
        "{s:s, s:o, s:o}", "output_type", result ? "execute_result" : "display_data", "data",
        object_or_empty(content, "data"), "metadata", object_or_empty(content, "metadata"));
    if (result) {
        json_t *count = json_object_get(content, "execution_count");
        json_object_set_new(output, "execution_count",
                            json_is_integer(count) ? json_incref(count) : json_null());
    }
    add_output(c, output, json_get_str(json_object_get(content, "transient"), "display_id", NULL));
    return 1;
}

static int feed_error(struct nb_cell *c, const json_t *content)
{
    json_t *traceback = json_object_get(content, "traceback");
    add_output(c,
               json_pack("{s:s, s:s, s:s, s:o}", "output_type", "error", "ename",
                         json_get_str(content, "ename", ""), "evalue",
                         json_get_str(content, "evalue", ""), "traceback",
                         json_is_array(traceback) ? json_incref(traceback) : json_array()),
               NULL);
    return 1;
}

static int feed_clear(struct nb_cell *c, const json_t *content)
{
    if (json_get_bool(content, "wait", 0)) {
        if (c->streaming)
            end_stream(c);
        c->clear_next = 1;
        return 0;
    }
    int had = json_array_size(c->outputs) > 0;
    clear(c);
    return had;
}

static int feed_input(struct nb_cell *c, const json_t *content)
{
    int64_t count = json_get_int(content, "execution_count", 0);
    if (count <= 0 || count > INT32_MAX || count == c->execution_count)
        return 0;
    c->execution_count = (int)count;
    return 1;
}

/* Types that make an output. */
enum output_kind { KIND_NONE, KIND_STREAM, KIND_DISPLAY, KIND_RESULT, KIND_ERROR };

static enum output_kind kind_of(const char *type)
{
    static const char *const names[] = {"", "stream", "display_data", "execute_result", "error"};
    for (int i = KIND_STREAM; i <= KIND_ERROR; i++) {
        if (strcmp(type, names[i]) == 0)
            return (enum output_kind)i;
    }
    return KIND_NONE;
}

static int feed_output(struct nb_cell *c, enum output_kind kind, const json_t *content, size_t size)
{
    if (c->clear_next)
        clear(c);
    if (kind == KIND_STREAM)
        return feed_stream(c, content);
    if (c->streaming)
        end_stream(c);
    c->bytes += size;
    if (kind == KIND_ERROR)
        return feed_error(c, content);
    return feed_display(c, content, kind == KIND_RESULT);
}

static int is_other(const char *type)
{
    return strcmp(type, "clear_output") == 0 || strcmp(type, "update_display_data") == 0 ||
           strcmp(type, "execute_input") == 0;
}

int nb_cell_feed(struct nb_cell *c, struct jmsg *m)
{
    const struct jhead *h;
    autojson json_t *content = NULL;
    if (m->channel != JCHAN_IOPUB || jmsg_head(m, &h, NULL) < 0)
        return 0;
    enum output_kind kind = kind_of(h->msg_type);
    if ((kind == KIND_NONE && !is_other(h->msg_type)) ||
        jmsg_json(m, JPART_CONTENT, &content, NULL) < 0 || !json_is_object(content))
        return 0;
    if (kind != KIND_NONE)
        return feed_output(c, kind, content, m->parts[JPART_CONTENT].len);
    if (strcmp(h->msg_type, "clear_output") == 0)
        return feed_clear(c, content);
    if (strcmp(h->msg_type, "execute_input") == 0)
        return feed_input(c, content);
    return nb_cell_update_display(
        c, json_get_str(json_object_get(content, "transient"), "display_id", ""),
        json_object_get(content, "data"), json_object_get(content, "metadata"));
}

int nb_cell_update_display(struct nb_cell *c, const char *display_id, const json_t *data,
                           const json_t *metadata)
{
    int changed = 0;
    size_t i;
    const json_t *id;
    json_array_foreach(c->displays, i, id)
    {
        if (!json_is_string(id) || !*display_id || strcmp(json_string_value(id), display_id) != 0)
            continue;
        json_t *output = json_array_get(c->outputs, i);
        json_t *d = json_is_object(data) ? json_deep_copy(data) : json_object();
        json_t *md = json_is_object(metadata) ? json_deep_copy(metadata) : json_object();
        changed |= !json_equal(json_object_get(output, "data"), d) ||
                   !json_equal(json_object_get(output, "metadata"), md);
        json_object_set_new(output, "data", d);
        json_object_set_new(output, "metadata", md);
    }
    return changed;
}

int nb_cell_execution_count(const struct nb_cell *c)
{
    return c->execution_count;
}

json_t *nb_cell_outputs(struct nb_cell *c)
{
    put_text(c);
    return c->outputs;
}

size_t nb_cell_bytes(const struct nb_cell *c)
{
    return sizeof *c + c->bytes + c->text.text.cap;
}
