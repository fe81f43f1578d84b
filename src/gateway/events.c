/* api/events: things that happen, for whoever subscribed. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "gateway/events.h"
#include "gateway/gw.h"

#define SUBSCRIBERS_MAX 1024
#define PENDING_MAX ((size_t)4 << 20) /* a subscriber that does not read is let go */

struct subscriber {
    struct list link;
    struct ws *ws;
    struct events *events;
};

struct events {
    struct list subscribers;
    size_t n;
};

static const char *const schemas[] = {
    "https://events.jupyter.org/jupyter_server/contents_service/v1",
    "https://events.jupyter.org/jupyter_server/gateway_client/v1",
    "https://events.jupyter.org/jupyter_server/kernel_actions/v1",
};

struct events *events_new(struct gw *gw)
{
    (void)gw;
    struct events *v = xcalloc(1, sizeof *v);
    list_init(&v->subscribers);
    return v;
}

void events_free(struct events *v)
{
    if (!v)
        return;
    list_foreach(it, &v->subscribers)
    {
        struct subscriber *s = container_of(it, struct subscriber, link);
        list_remove(&s->link);
        free(s);
    }
    free(v);
}

size_t events_subscribers(const struct gw *gw)
{
    return gw->events->n;
}

void events_emit(struct gw *gw, const char *schema_id, const char *version, json_t *data)
{
    (void)version; /* subscribers get the schema's id, which ends in it */
    if (json_is_object(data)) {
        json_object_set_new(data, "schema_id", json_string(schema_id));
        autofree char *text = json_text(data);
        list_foreach(it, &gw->events->subscribers)
        {
            struct subscriber *s = container_of(it, struct subscriber, link);
            if (ws_pending(s->ws) > PENDING_MAX)
                ws_close(s->ws, 1011, "events are not read");
            else
                ws_send_text(s->ws, text, strlen(text));
        }
    }
    json_decref(data);
}

/* --- subscribers --- */

static void sub_open(struct ws *w, void *arg)
{
    struct subscriber *s = arg;
    s->ws = w;
    list_append(&s->events->subscribers, &s->link);
    s->events->n++;
}

static void sub_message(struct ws *w, void *arg, const void *data, size_t len, int binary)
{
    /* nothing is expected from subscribers */
    (void)w, (void)arg, (void)data, (void)len, (void)binary;
}

static void sub_closed(struct ws *w, void *arg)
{
    struct subscriber *s = arg;
    (void)w;
    if (!list_empty(&s->link)) {
        list_remove(&s->link);
        s->events->n--;
    }
    free(s);
}

static const struct ws_ops sub_ops = {
    .open = sub_open, .message = sub_message, .closed = sub_closed};

static int subscribe(struct gw *gw, struct http_req *r, const char *const *p,
                     const struct ws_ops **ops, void **ws_arg)
{
    (void)r, (void)p;
    if (gw->events->n >= SUBSCRIBERS_MAX)
        return 503;
    struct subscriber *s = xcalloc(1, sizeof *s);
    list_init(&s->link);
    s->events = gw->events;
    *ops = &sub_ops;
    *ws_arg = s;
    return 0;
}

/* --- POST --- */

static int check(const json_t *v, struct err *e)
{
    static const char *const keys[] = {"schema_id", "version", "data"};
    for (size_t i = 0; i < COUNTOF(keys); i++)
        if (!json_object_get(v, keys[i]))
            return err_set(e, ERR_INVALID, "Missing `%s` in the JSON request body.", keys[i]);
    const char *id = json_get_str(v, "schema_id", "");
    const json_t *version = json_object_get(v, "version");
    int known = 0;
    for (size_t i = 0; i < COUNTOF(schemas); i++)
        known |= !strcmp(id, schemas[i]);
    if (!known)
        return err_set(e, ERR_INVALID, "Schema %.200s is not registered", id);
    if (json_integer_value(version) != 1 &&
        strcmp(json_is_string(version) ? json_string_value(version) : "", "1"))
        return err_set(e, ERR_INVALID, "Unregistered version of %.200s", id);
    if (!json_is_object(json_object_get(v, "data")))
        return err_set(e, ERR_INVALID, "`data` must be an object");
    return 0;
}

static void post(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct err e;
    autojson json_t *v = NULL;
    if (http_body_json(r, &v, &e) < 0 || check(v, &e) < 0) {
        http_reply_err(r, &e);
        return;
    }
    events_emit(gw, json_get_str(v, "schema_id", ""), "1",
                json_deep_copy(json_object_get(v, "data")));
    http_reply(r, 204, NULL, NULL, 0);
}

const struct route events_routes[] = {
    {METHOD(POST), "api/events", post, NULL, 0},
    {METHOD(GET), "api/events/subscribe", NULL, subscribe, ROUTE_NO_ACTIVITY},
    {0, NULL, NULL, NULL, 0},
};
