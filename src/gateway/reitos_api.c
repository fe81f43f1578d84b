/* /reitos/api: what Jupyter's API has no words for. docs/openapi.yaml describes it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/kernels.h"
#include "kernel/journal.h"

/* The shim's models, with everything that Jupyter's leave out. */
static void list_models(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    json_t *a = json_array();
    list_foreach(it, kernels_list(gw))
    {
        const struct kernel *k = container_of(it, struct kernel, link);
        json_t *m = json_copy(k->model);
        json_object_set_new(m, "head", json_integer((json_int_t)k->head));
        json_object_set_new(m, "connections", json_integer((json_int_t)k->nclients));
        json_array_append_new(a, m);
    }
    http_reply_json(r, 200, json_pack("{s:o}", "kernels", a));
}

/* The journal's record of the request that runs now. */
static int read_running(const struct kernel *k, struct jmsg **ret, struct err *e)
{
    uint64_t seq = (uint64_t)json_get_int(k->model, "running_seq", 0);
    if (!seq)
        return err_set(e, ERR_NOT_FOUND, "no cell runs in kernel %s", k->id);
    autofree char *dir = shimc_journal_dir(k->gw->shim, k->id);
    struct jreader *reader = NULL;
    int rc = jreader_open(dir, seq, &reader, e);
    if (rc == 0)
        rc = jreader_next(reader, ret, NULL, e);
    jreader_close(reader);
    if (rc == 0)
        return err_set(e, ERR_NOT_FOUND, "the running request is not in the journal");
    return rc < 0 ? rc : 0;
}

static void get_running(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct err e = {0};
    autojmsg struct jmsg *m = NULL;
    autojson json_t *meta = NULL;
    const struct jhead *h;
    const struct kernel *k = kernels_find(gw, p[0]);
    if (!k)
        err_set(&e, ERR_NOT_FOUND, "Kernel does not exist: %.64s", p[0]);
    else if (read_running(k, &m, &e) == 0 && jmsg_head(m, &h, &e) == 0 &&
             jmsg_json(m, JPART_METADATA, &meta, &e) == 0) {
        http_reply_json(r, 200,
                        json_pack("{s:s,s:s,s:s}", "msg_id", h->msg_id, "session", h->session,
                                  "cell_id", json_get_str(meta, "cellId", "")));
        return;
    }
    http_reply_err(r, &e);
}

static void stats_done(void *arg, const struct err *e, json_t *reply)
{
    if (e)
        http_reply_err(arg, e);
    else
        http_reply_json(arg, 200, json_incref(reply));
}

static void get_stats(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    if (gw->shim)
        shimc_call(gw->shim, json_pack("{s:s}", "op", "stats"), 5000, stats_done, r);
    else
        http_reply_status(r, 503, "the kernels' parent process is being started");
}

const struct route reitos_routes[] = {
    {METHOD(GET), "reitos/api/kernels", list_models, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(GET), "reitos/api/kernels/{}/running", get_running, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(GET), "reitos/api/stats", get_stats, NULL, ROUTE_NO_ACTIVITY},
    {0, NULL, NULL, NULL, 0},
};
