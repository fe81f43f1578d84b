#include "wire/nb_widgets.h"

#include <string.h>

#include "base/alloc.h"
#include "base/crypto.h"

#define STATE_TYPE "application/vnd.jupyter.widget-state+json"

struct nb_widgets {
    json_t *models; /* comm id -> {"state": {name: value}, "buffers": [as in the notebook]} */
};

struct nb_widgets *nb_widgets_new(void)
{
    struct nb_widgets *w = xcalloc(1, sizeof(*w));
    w->models = json_object();
    return w;
}

struct nb_widgets *nb_widgets_free(struct nb_widgets *w)
{
    if (w) {
        json_decref(w->models);
        free(w);
    }
    return NULL;
}

static const char *first_of(const json_t *buffer_or_path)
{
    const json_t *path =
        json_is_array(buffer_or_path) ? buffer_or_path : json_object_get(buffer_or_path, "path");
    return json_string_value(json_array_get(path, 0));
}

/* A property that is set anew has none of its former buffers. */
static void drop_buffers(json_t *buffers, const char *property)
{
    for (size_t i = json_array_size(buffers); i-- > 0;) {
        const char *of = first_of(json_array_get(buffers, i));
        if (of && strcmp(of, property) == 0)
            json_array_remove(buffers, i);
    }
}

static void add_buffer(json_t *buffers, json_t *path, const struct slice *bytes)
{
    autobuf struct buf text = BUF_INIT(JMSG_MAX_BYTES * 2);
    if (base64_encode(bytes->data, bytes->len, &text) < 0)
        return; /* twice the size of a message is always enough */
    json_array_append_new(buffers, json_pack("{s:O,s:s,s:s}", "path", path, "encoding", "base64",
                                             "data", buf_str(&text)));
}

static void update(json_t *model, const json_t *data, const struct jmsg *m)
{
    json_t *state = json_object_get(model, "state"), *buffers = json_object_get(model, "buffers");
    json_t *value, *path;
    const char *name;
    size_t i;
    json_object_foreach(json_object_get(data, "state"), name, value)
    {
        json_object_set(state, name, value);
        drop_buffers(buffers, name);
    }
    json_array_foreach(json_object_get(data, "buffer_paths"), i, path)
    {
        const char *of = first_of(path);
        if (!of || JPART_BUFFERS + i >= m->nparts)
            continue; /* of a kernel that breaks the protocol */
        if (!json_object_get(json_object_get(data, "state"), of) && json_array_size(path) == 1)
            drop_buffers(buffers, of);
        add_buffer(buffers, path, &m->parts[JPART_BUFFERS + i]);
    }
}

static json_t *open_model(struct nb_widgets *w, const char *id, const json_t *content)
{
    if (strcmp(json_get_str(content, "target_name", ""), "jupyter.widget") != 0 ||
        json_object_size(w->models) >= NB_WIDGETS_MAX)
        return NULL;
    json_object_set_new(w->models, id, json_pack("{s:{},s:[]}", "state", "buffers"));
    return json_object_get(w->models, id);
}

int nb_widgets_feed(struct nb_widgets *w, struct jmsg *m)
{
    autojson json_t *content = NULL;
    int opens = jmsg_is(m, "comm_open");
    if ((!opens && !jmsg_is(m, "comm_msg") && !jmsg_is(m, "comm_close")) ||
        jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return 0;
    const char *id = json_get_str(content, "comm_id", "");
    if (jmsg_is(m, "comm_close"))
        return json_object_del(w->models, id) == 0;
    const json_t *data = json_object_get(content, "data");
    json_t *model = opens ? open_model(w, id, content) : json_object_get(w->models, id);
    int updates = opens || strcmp(json_get_str(data, "method", ""), "update") == 0 ||
                  strcmp(json_get_str(data, "method", ""), "echo_update") == 0;
    if (!model || !updates)
        return 0;
    update(model, data, m);
    return 1;
}

static void put_model(json_t *models, const char *id, const json_t *model)
{
    static const char *const names[][2] = {{"model_name", "_model_name"},
                                           {"model_module", "_model_module"},
                                           {"model_module_version", "_model_module_version"}};
    json_t *state = json_object_get(model, "state"), *buffers = json_object_get(model, "buffers");
    if (!json_object_get(state, "_model_name"))
        return; /* nothing that a page could show */
    json_t *out = json_object();
    for (size_t i = 0; i < COUNTOF(names); i++)
        json_object_set_new(out, names[i][0], json_string(json_get_str(state, names[i][1], "")));
    json_object_set_new(out, "state", json_deep_copy(state));
    if (json_array_size(buffers))
        json_object_set_new(out, "buffers", json_deep_copy(buffers));
    json_object_set_new(models, id, out);
}

void nb_widgets_put(const struct nb_widgets *w, json_t *notebook)
{
    json_t *models = json_object(), *model;
    const char *id;
    json_object_foreach(w->models, id, model) put_model(models, id, model);
    if (!json_object_size(models)) {
        json_decref(models);
        return;
    }
    json_object_set_new(json_object_get(notebook, "metadata"), "widgets",
                        json_pack("{s:{s:o,s:i,s:i}}", STATE_TYPE, "state", models, "version_major",
                                  2, "version_minor", 0));
}
