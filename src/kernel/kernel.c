#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernel/kernel_own.h"

struct waiter {
    struct list link;
    enum kernel_event what;
    kernel_cb cb;
    void *arg;
};

void kernel_move(struct kernel *k, enum kstate to)
{
    if (!kstate_allowed(k->state, to))
        log_error("move of a kernel that should not happen", "kernel", k->id, "from",
                  kstate_name(k->state), "to", kstate_name(to), NULL);
    k->state = to;
    k->host->changed(k->host->arg, k, 1);
}

const char *kernel_id(const struct kernel *k)
{
    return k->id;
}

enum kstate kernel_state(const struct kernel *k)
{
    return k->state;
}

uint64_t kernel_head(const struct kernel *k)
{
    return journal_head(k->journal);
}

uint64_t kernel_journal_bytes(const struct kernel *k)
{
    return journal_bytes(k->journal);
}

static const char *shown_state(const struct kernel *k)
{
    switch (k->state) {
    case KSTATE_READY:
        return k->busy ? "busy" : "idle";
    case KSTATE_RESTARTING:
        return "restarting";
    case KSTATE_STOPPING:
    case KSTATE_DEAD:
        return "dead";
    default:
        return k->ready_once ? "restarting" : "starting";
    }
}

json_t *kernel_model(const struct kernel *k)
{
    char started[SYS_TIME_MAX], active[SYS_TIME_MAX];
    sys_time_iso(k->started_us, started);
    sys_time_iso(k->active_us, active);
    struct jmsg *running = execq_running(k->queue);
    const struct jhead *h = NULL;
    if (running && jmsg_head(running, &h, NULL) < 0)
        h = NULL;
    json_t *model =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:O}", "id", k->id, "name",
                  json_get_str(k->spec, "name", ""), "state", shown_state(k), "reason",
                  k->reason ? k->reason : "", "via", k->via, "pid", (int)k->pid, "started", started,
                  "last_activity", active, "annotation", k->annotation);
    autojson json_t *numbers = json_pack(
        "{s:I, s:I, s:I, s:s, s:I, s:I, s:i, s:s}", "head", (json_int_t)journal_head(k->journal),
        "acked", (json_int_t)journal_acked(k->journal), "waiting",
        (json_int_t)execq_waiting(k->queue), "running", h ? h->msg_id : "", "running_seq",
        (json_int_t)(running ? running->seq : 0), "execution_count", (json_int_t)k->execution_count,
        "missed_beats", k->missed_beats, "journal_error", k->journal_error ? k->journal_error : "");
    json_object_update(model, numbers);
    return model;
}

/* What a shim needs to show the kernel after this one has ended. */
void kernel_save(struct kernel *k)
{
    struct err e = {0};
    autojson json_t *record =
        json_pack("{s:O, s:O, s:s, s:I, s:I}", "spec", k->spec, "annotation", k->annotation,
                  "reason", k->reason ? k->reason : "", "started_us", (json_int_t)k->started_us,
                  "acked", (json_int_t)journal_acked(k->journal));
    if (kfiles_save(&k->files, record, &e) < 0)
        log_warn("kernel.json not written", "kernel", k->id, "reason", e.msg, NULL);
}

void kernel_set_reason(struct kernel *k, const char *reason)
{
    free(k->reason);
    k->reason = xstrdup(reason);
}

void kernel_wait(struct kernel *k, enum kernel_event what, kernel_cb cb, void *arg)
{
    struct waiter *w = xcalloc(1, sizeof *w);
    w->what = what;
    w->cb = cb;
    w->arg = arg;
    list_append(&k->waiters, &w->link);
}

void kernel_tell(struct kernel *k, enum kernel_event what, const struct err *e)
{
    list_foreach(it, &k->waiters)
    {
        struct waiter *w = container_of(it, struct waiter, link);
        if (w->what != what)
            continue;
        list_remove(&w->link);
        w->cb(w->arg, k, e);
        free(w);
    }
}

void kernel_shown(struct kernel *k)
{
    k->shown = 1;
}

static int valid_id(const char *id)
{
    size_t n = strlen(id);
    return n > 0 && n < SYS_UUID_MAX &&
           strspn(id, "0123456789abcdefABCDEFghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ-_") == n;
}

static struct kernel *kernel_new(const struct kernel_host *host, const char *id)
{
    struct kernel *k = xcalloc(1, sizeof *k);
    k->host = host;
    k->via = "";
    snprintf(k->id, sizeof k->id, "%s", id);
    list_init(&k->link.link);
    list_init(&k->waiters);
    kernel_messages_init(k);
    return k;
}

void kernel_free(struct kernel *k)
{
    kernel_messages_free(k);
    loop_timer_stop(k->timer);
    loop_timer_stop(k->drain);
    json_decref(k->spec);
    json_decref(k->annotation);
    kfiles_free(&k->files);
    free(k->reason);
    free(k);
}

static int check_request(const json_t *r, struct err *e)
{
    if (!valid_id(json_get_str(r, "k", "")))
        return err_set(e, ERR_INVALID, "start: k must be an id of 1 to 36 letters and digits");
    const json_t *argv = json_object_get(r, "argv");
    if (!json_is_array(argv) || json_array_size(argv) == 0)
        return err_set(e, ERR_INVALID, "start: argv is missing");
    size_t i;
    json_t *item;
    json_array_foreach(argv, i, item) if (!json_is_string(item)) return err_set(
        e, ERR_INVALID, "start: argv must hold strings");
    const json_t *z = json_object_get(r, "zygote");
    if (json_is_object(z) && !*json_get_str(z, "python", ""))
        return err_set(e, ERR_INVALID, "start: zygote.python is missing");
    return 0;
}

static json_t *object_or_new(const json_t *v)
{
    return json_is_object(v) ? json_deep_copy(v) : json_object();
}

int kernel_start(const struct kernel_host *host, const json_t *request, struct kernel **ret,
                 struct err *e)
{
    int rc = check_request(request, e);
    if (rc < 0)
        return rc;
    struct kernel *k = kernel_new(host, json_get_str(request, "k", ""));
    k->spec = json_deep_copy(request);
    k->annotation = object_or_new(json_object_get(request, "annotation"));
    k->started_us = k->active_us = sys.wall_us();
    if ((rc = kfiles_init(&k->files, host->data, k->id, e)) < 0 ||
        (rc = journal_open(k->files.journal, host->journal_limit, &k->journal, e)) < 0) {
        kernel_free(k);
        return rc;
    }
    kernel_save(k);
    kernel_launch(k);
    *ret = k;
    return 0;
}

int kernel_recover(const struct kernel_host *host, const char *id, struct kernel **ret,
                   struct err *e)
{
    if (!valid_id(id))
        return err_set(e, ERR_INVALID, "%s: not a kernel", id);
    struct kernel *k = kernel_new(host, id);
    autojson json_t *record = NULL;
    int rc = kfiles_init(&k->files, host->data, id, e);
    if (rc == 0)
        rc = kfiles_load(k->files.dir, &record, e);
    if (rc == 0)
        rc = check_request(json_object_get(record, "spec"), e);
    if (rc == 0)
        rc = journal_open(k->files.journal, host->journal_limit, &k->journal, e);
    int64_t acked = json_get_int(record, "acked", 0);
    if (rc == 0 && (int64_t)journal_head(k->journal) <= acked)
        rc = err_set(e, ERR_GONE, "%s: nothing to keep", id);
    if (rc < 0) {
        kernel_free(k);
        return rc;
    }
    journal_ack(k->journal, (uint64_t)acked);
    k->spec = json_incref(json_object_get(record, "spec"));
    k->annotation = object_or_new(json_object_get(record, "annotation"));
    k->started_us = k->active_us = json_get_int(record, "started_us", 0);
    const char *reason = json_get_str(record, "reason", "");
    kernel_set_reason(k, *reason ? reason : "reitos-shim ended");
    k->state = KSTATE_DEAD;
    k->ready_once = k->shown = 1;
    *ret = k;
    return 0;
}

void kernel_annotate(struct kernel *k, json_t *annotation)
{
    json_decref(k->annotation);
    k->annotation = object_or_new(annotation);
    kernel_save(k);
    k->host->changed(k->host->arg, k, 1);
}

void kernel_ack(struct kernel *k, uint64_t seq)
{
    if (seq <= journal_head(k->journal))
        journal_ack(k->journal, seq);
}

void kernel_tick(struct kernel *k)
{
    kfiles_trim_log(&k->files);
    if (k->state != KSTATE_READY || !k->conn)
        return;
    int missed = kconn_beat(k->conn);
    if ((missed > 1) == (k->missed_beats > 1)) {
        k->missed_beats = missed;
        return;
    }
    k->missed_beats = missed;
    log_warn(missed > 1 ? "kernel does not answer heartbeats" : "kernel answers heartbeats again",
             "kernel", k->id, NULL);
    k->host->changed(k->host->arg, k, 1);
}
