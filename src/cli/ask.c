#include "cli/ask.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/loop.h"
#include "cli/kern.h"

#define LIST_MS 5000

struct question {
    uv_loop_t loop;
    json_t *reply;
    struct err why;
    int answered;
};

static void on_answer(void *arg, const struct err *e, json_t *reply)
{
    struct question *q = arg;
    q->answered = 1;
    if (e)
        q->why = *e;
    else
        q->reply = json_incref(reply);
    uv_stop(&q->loop);
}

static void on_grown(void *arg, const char *kid, uint64_t head)
{
    (void)arg;
    (void)kid;
    (void)head;
}

static void on_changed(void *arg, const char *kid, json_t *model)
{
    (void)arg;
    (void)kid;
    (void)model;
}

static void on_gone(void *arg, const char *kid)
{
    (void)arg;
    (void)kid;
}

static void on_down(void *arg, const struct err *why)
{
    struct question *q = arg;
    if (q->answered)
        return;
    q->answered = 1;
    q->why = *why;
    uv_stop(&q->loop);
}

int ask_shim(const struct cli *c, json_t *request, int timeout_ms, json_t **ret, struct err *e)
{
    static const struct shimc_ops ops = {on_grown, on_changed, on_gone, on_down};
    struct question q = {0};
    struct shimc *shim = NULL;
    uv_loop_init(&q.loop);
    int r = kern_connect(&q.loop, c, 0, &ops, &q, &shim, e);
    if (r < 0) {
        json_decref(request);
    } else {
        shimc_call(shim, request, timeout_ms, on_answer, &q);
        uv_run(&q.loop, UV_RUN_DEFAULT);
        shimc_close(shim);
        r = q.reply ? 0 : err_set(e, q.why.code ? q.why.code : ERR_UNAVAILABLE, "%s", q.why.msg);
    }
    loop_fini(&q.loop);
    if (r == 0)
        *ret = q.reply;
    return r;
}

int ask_kernels(const struct cli *c, json_t **ret, struct err *e)
{
    autojson json_t *reply = NULL;
    int r = ask_shim(c, json_pack("{s:s}", "op", "list"), LIST_MS, &reply, e);
    if (r == ERR_UNAVAILABLE || r == ERR_NOT_FOUND) {
        *ret = json_array();
        return 0;
    }
    if (r < 0)
        return r;
    json_t *kernels = json_object_get(reply, "kernels");
    *ret = json_is_array(kernels) ? json_incref(kernels) : json_array();
    return 0;
}

int ask_pick(const json_t *kernels, const char *prefix, const json_t **ret, struct err *e)
{
    const json_t *found = NULL, *k;
    size_t i, n = strlen(prefix);
    json_array_foreach(kernels, i, k)
    {
        if (!n || strncmp(json_get_str(k, "id", ""), prefix, n) != 0)
            continue;
        if (found)
            return err_set(e, ERR_INVALID,
                           "%s: more than one kernel begins so; give more of the id", prefix);
        found = k;
    }
    if (!found)
        return err_set(e, ERR_NOT_FOUND, "%s: no such kernel; reitos ps lists all", prefix);
    *ret = found;
    return 0;
}

int64_t ask_pss_kib(int64_t pid)
{
    autofree char *path = xasprintf("/proc/%lld/smaps_rollup", (long long)pid);
    autobuf struct buf text = BUF_INIT(1 << 16);
    if (pid <= 0 || fs_read_path(path, 1 << 16, &text, NULL) < 0)
        return -1;
    const char *pss = strstr(buf_str(&text), "\nPss:");
    return pss ? strtoll(pss + 5, NULL, 10) : -1;
}
