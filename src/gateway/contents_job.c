#include "gateway/contents_job.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/loop.h"
#include "gateway/contents_int.h"
#include "gateway/merge.h"
#include "gateway/trust.h"
#include "gateway/urltext.h"

#define REPLY_MAX ((size_t)3 << 30)

struct contents_job *contents_job_new(struct gw *gw, struct http_req *r, char *path,
                                      int (*work)(struct contents_job *j, struct err *e))
{
    struct contents_job *j = xcalloc(1, sizeof *j);
    j->gw = gw;
    j->req = r;
    j->env = &gw->contents->env;
    j->path = path;
    j->work = work;
    j->status = 200;
    size_t len;
    j->body_fd = http_body_fd(r, &j->body_len);
    if (j->body_fd < 0) {
        j->body = http_body(r, &len);
        j->body_len = len;
    }
    buf_init(&j->out, REPLY_MAX);
    list_init(&j->link);
    return j;
}

static void job_free(struct contents_job *j)
{
    free(j->path);
    free(j->from);
    free(j->id);
    free(j->type);
    free(j->ext);
    free(j->other);
    free(j->lock[0]);
    free(j->lock[1]);
    json_decref(j->reply);
    buf_free(&j->out);
    free(j);
}

void contents_job_lock(struct contents_job *j, const char *path)
{
    /* In one order everywhere, so that two jobs cannot wait for each other. */
    int first = j->nlocks && strcmp(path, j->lock[0]) < 0;
    if (first)
        j->lock[1] = j->lock[0];
    j->lock[first ? 0 : j->nlocks] = xstrdup(path);
    j->nlocks++;
}

static void run(void *arg)
{
    struct contents_job *j = arg;
    j->rc = j->work(j, &j->err);
    if (j->rc == 0 && j->reply) {
        j->rc = json_write(j->reply, &j->out);
        if (j->rc < 0)
            err_set(&j->err, ERR_TOO_LARGE, "%s: the answer is too large", j->path);
    }
}

/* "Sat, 31 Jan 2026 23:59:59 GMT" of a model's ISO time. */
static void set_last_modified(struct http_req *r, const json_t *model)
{
    struct tm tm = {0};
    char text[64];
    const char *iso = json_get_str(model, "last_modified", "");
    if (!strptime(iso, "%Y-%m-%dT%H:%M:%S", &tm))
        return;
    time_t t = timegm(&tm);
    if (gmtime_r(&t, &tm) && strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        http_set_header(r, "Last-Modified", "%s", text);
}

static void reply_error(struct contents_job *j)
{
    if (!j->reason) {
        http_reply_err(j->req, &j->err);
        return;
    }
    http_reply_json(j->req, err_http(j->rc),
                    json_pack("{s:s, s:s}", "message", j->err.msg, "reason", j->reason));
}

static void reply(struct contents_job *j)
{
    if (j->rc < 0) {
        reply_error(j);
        return;
    }
    if (!j->reply) {
        http_reply(j->req, j->status, NULL, NULL, 0);
        return;
    }
    if (json_is_object(j->reply))
        set_last_modified(j->req, j->reply);
    if (j->location) {
        autobuf struct buf url = BUF_INIT(1 << 18);
        url_escape(json_get_str(j->reply, "path", j->path), &url);
        http_set_header(j->req, "Location", "%sapi/contents/%s%s", j->gw->base_url, buf_str(&url),
                        j->id ? "/checkpoints/checkpoint" : "");
    }
    http_reply_buf(j->req, j->status, "application/json", &j->out);
}

static void emit(const struct contents_job *j)
{
    const char *path = json_get_str(j->reply, "path", j->path);
    json_t *data = json_pack("{s:s, s:s}", "action", j->action, "path", path);
    if (j->other)
        json_object_set_new(data, "source_path", json_string(j->other));
    events_emit(j->gw, "https://events.jupyter.org/jupyter_server/contents_service/v1", "1", data);
}

static void make_known(const struct contents_job *j)
{
    if (j->changed & CHANGED_PIN)
        pins_store(j->env->pins, j->path);
    if (j->changed & CHANGED_TRUST)
        trust_store(j->env->trust);
    if (j->changed & CHANGED_NAME) {
        pins_rename(j->env->pins, j->from, j->path);
        merge_renamed(j->gw, j->from, j->path);
    }
    if (j->changed & CHANGED_GONE)
        pins_forget(j->env->pins, j->path);
}

static void finish(void *arg)
{
    struct contents_job *j = arg;
    struct contents *c = j->gw->contents;
    merge_unhold(j->hold);
    if (j->rc == 0)
        make_known(j);
    if (j->rc == 0 && j->action)
        emit(j);
    reply(j);
    while (j->nheld)
        pathlock_drop(c->locks, j->lock[--j->nheld]);
    c->active--;
    job_free(j);
}

static void next_lock(void *arg)
{
    struct contents_job *j = arg;
    j->nheld++;
    if (j->nheld < j->nlocks) {
        pathlock_take(j->gw->contents->locks, j->lock[j->nheld], next_lock, j);
        return;
    }
    j->hold = merge_hold(j->gw, j->path);
    loop_work(j->gw->loop, run, finish, j);
}

void contents_job_begin(struct contents_job *j)
{
    if (j->nlocks)
        pathlock_take(j->gw->contents->locks, j->lock[0], next_lock, j);
    else
        loop_work(j->gw->loop, run, finish, j);
}

void contents_job_start(struct contents_job *j)
{
    struct contents *c = j->gw->contents;
    c->active++;
    if (c->loading)
        list_append(&c->waiting, &j->link);
    else
        contents_job_begin(j);
}
