/* Small file work for one request, off the loop. */
#include "gateway/job.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/loop.h"

static void job_work(void *arg)
{
    struct job *j = arg;
    j->rc = j->work(j, &j->err);
}

static void job_done(void *arg)
{
    struct job *j = arg;
    if (j->rc < 0) {
        http_reply_err(j->req, &j->err);
        json_decref(j->reply);
    } else {
        int status = j->status ? j->status : j->reply ? 200 : 204;
        http_reply_json(j->req, status, j->reply);
    }
    buf_free(&j->body);
    free(j->name);
    free(j);
}

void job_start(struct gw *gw, struct http_req *r, const char *name, size_t body_max,
               int (*work)(struct job *j, struct err *e))
{
    size_t len = 0;
    uint64_t spooled = 0;
    const char *body = http_body(r, &len);
    if (http_body_fd(r, &spooled) >= 0 || len > body_max) {
        http_reply_status(r, 413, "Request body too large");
        return;
    }
    struct job *j = xcalloc(1, sizeof *j);
    j->gw = gw;
    j->prefix = gw->prefix;
    j->base_url = gw->base_url;
    j->req = r;
    j->name = xstrdup(name);
    j->method = http_method(r);
    j->work = work;
    buf_init(&j->body, body_max + 1);
    if (body)
        IGNORE_RESULT(buf_append(&j->body, body, len)); /* len <= body_max */
    loop_work(gw->loop, job_work, job_done, j);
}
