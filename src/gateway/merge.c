/* Trackers of kernels' journals: when they read, when they write into notebooks, and what is told
 * to the shim. The work is in merge_track.c and merge_file.c. */
#include "gateway/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"
#include "gateway/kernels.h"
#include "gateway/merge_int.h"
#include "gateway/trust.h"
#include "meta/meta.h"

#define PAUSE_MS 1000      /* between two jobs of a tracker, at least */
#define PAUSE_MAX_MS 60000 /* ... and at most, when the notebook is slow to write */
#define PAUSE_FACTOR 10    /* at most a tenth of the time is spent writing */
#define LEFT_MS 50         /* after the last client has left */
#define JOB_BYTES ((size_t)32 << 20)
#define ACK_STEP 256 /* messages, for kernels without a notebook */
#define ACK_TIMEOUT_MS 10000
#define MERGE_KEY "merge/"

struct merge {
    struct gw *gw;
    struct list trackers;
    size_t active; /* jobs, holds and record operations under way */
    int closing;   /* merge_free() waits for the last jobs */
    int ending;    /* the daemon stops; kernels may live on */
};

struct tracker {
    struct list link;
    struct merge *m;
    char *kid;
    char *path;     /* NULL: no notebook */
    char *reported; /* the session's; the file may have been renamed since */
    char *new_path; /* with `repath` */
    struct track *t;
    struct loop_timer *timer;
    size_t clients;
    unsigned epoch;
    uint64_t head, acked;
    char *stored; /* text of the record "merge/<kid>" */
    uint64_t pause_ms;
    int loaded; /* its record was read */
    int busy;   /* a job or a hold has `t` */
    int again;  /* asked for while busy */
    int repath, gone;
    int failed; /* the last flush failed; said once */
};

struct job {
    struct tracker *tk;
    char *path;
    int flush;
    /* result */
    int more, flushed, rc;
    uint64_t position, ms;
    char *saved;
    struct err err;
};

static void tracker_run(struct tracker *tk);

struct merge *merge_new(struct gw *gw, struct err *e)
{
    (void)e;
    struct merge *m = xcalloc(1, sizeof *m);
    m->gw = gw;
    list_init(&m->trackers);
    return m;
}

static void tracker_free(struct tracker *tk)
{
    list_remove(&tk->link);
    loop_timer_stop(tk->timer);
    track_free(tk->t);
    free(tk->stored);
    free(tk->kid);
    free(tk->path);
    free(tk->new_path);
    free(tk->reported);
    free(tk);
}

void merge_free(struct merge *m)
{
    if (!m)
        return;
    m->closing = 1;
    while (m->active)
        uv_run(m->gw->loop, UV_RUN_ONCE);
    list_foreach(it, &m->trackers) tracker_free(container_of(it, struct tracker, link));
    free(m);
}

static struct tracker *find(const struct gw *gw, const char *kid)
{
    if (!gw->merge)
        return NULL;
    list_foreach(it, &gw->merge->trackers)
    {
        struct tracker *tk = container_of(it, struct tracker, link);
        if (!tk->gone && strcmp(tk->kid, kid) == 0)
            return tk;
    }
    return NULL;
}

/* ---- acknowledging ---- */

struct ack {
    struct merge *m;
    char *kid;
    uint64_t seq;
};

static void ack_send(struct merge *m, const char *kid, uint64_t seq)
{
    if (m->gw->shim)
        shimc_call(m->gw->shim,
                   json_pack("{s:s, s:s, s:I}", "op", "ack", "k", kid, "seq", (json_int_t)seq),
                   ACK_TIMEOUT_MS, NULL, NULL);
}

static void ack_stored(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    struct ack *a = arg;
    (void)kv, (void)n;
    if (rc < 0)
        log_warn("progress of a kernel's outputs could not be stored", "kernel", a->kid, "reason",
                 err_text(rc), NULL);
    else
        ack_send(a->m, a->kid, a->seq);
    a->m->active--;
    free(a->kid);
    free(a);
}

/* What a later daemon needs is stored before the shim may forget the messages. */
static void acknowledge(struct tracker *tk, uint64_t seq, char *saved)
{
    struct merge *m = tk->m;
    autofree char *text = saved;
    if (seq <= tk->acked || tk->gone)
        return;
    tk->acked = seq;
    if (!m->gw->meta || (tk->stored && strcmp(tk->stored, text) == 0)) {
        ack_send(m, tk->kid, seq);
        return;
    }
    autofree char *key = xasprintf(MERGE_KEY "%s", tk->kid);
    struct ack *a = xcalloc(1, sizeof *a);
    *a = (struct ack){m, xstrdup(tk->kid), seq};
    m->active++;
    meta_put(m->gw->meta, key, text, strlen(text), META_ANY, ack_stored, a);
    free(tk->stored);
    tk->stored = STEAL(text);
}

/* ---- jobs ---- */

static void fire(void *arg)
{
    struct tracker *tk = arg;
    tk->timer = loop_timer_stop(tk->timer);
    tracker_run(tk);
}

/* Runs a job in `ms`; one that is planned already stays, unless this one is at once. */
static void kick(struct tracker *tk, uint64_t ms)
{
    if (tk->m->closing || !tk->t)
        return;
    if (tk->timer && ms > LEFT_MS)
        return;
    loop_timer_stop(tk->timer);
    tk->timer = loop_timer_start(tk->m->gw->loop, ms, 0, fire, tk);
}

static void job_work(void *arg)
{
    struct job *j = arg;
    struct track *t = j->tk->t;
    int64_t start = sys.mono_us();
    int rc = track_advance(t, JOB_BYTES, &j->err);
    j->more = rc > 0;
    j->rc = rc < 0 ? rc : 0;
    int full = track_bytes(t) > MERGE_MEMORY;
    if ((j->flush && !j->more) || full) {
        j->flushed = track_dirty(t);
        rc = merge_tracks_flush(contents_env(j->tk->m->gw->contents), j->path, &t, 1, &j->err);
        j->rc = rc < 0 ? rc : j->rc;
    }
    j->position = track_position(t);
    autojson json_t *saved = track_save(t);
    j->saved = json_text(saved);
    j->ms = (uint64_t)(sys.mono_us() - start) / 1000;
}

/* A failure is said once; output that is lost for the file for that reason, too. */
static void report(struct tracker *tk, const struct job *j)
{
    if (j->rc < 0 && !tk->failed && !tk->gone)
        log_warn("outputs cannot be brought into the notebook for now", "path", j->path, "kernel",
                 tk->kid, "reason", j->err.msg, NULL);
    if (j->flushed || j->rc < 0)
        tk->failed = j->rc < 0;
    if (tk->t->lost && !tk->t->warned) {
        log_warn("outputs were left out of the notebook; the journal has them", "path", j->path,
                 "kernel", tk->kid, NULL);
        tk->t->warned = 1;
    }
}

/* After the last flush into the old notebook. */
static void change_path(struct tracker *tk)
{
    tk->repath = 0;
    free(tk->path);
    tk->path = STEAL(tk->new_path);
    if (!tk->path) {
        track_free(tk->t);
        tk->t = NULL;
    }
}

static void job_done(void *arg)
{
    struct job *j = arg;
    struct tracker *tk = j->tk;
    struct merge *m = tk->m;
    const struct cenv *env = contents_env(m->gw->contents);
    if (j->flushed && j->rc == 0) {
        pins_store(env->pins, j->path);
        trust_store(env->trust);
    }
    pathlock_drop(contents_locks(m->gw->contents), j->path);
    report(tk, j);
    acknowledge(tk, j->position - 1, STEAL(j->saved));
    tk->busy = 0;
    tk->pause_ms = j->ms * PAUSE_FACTOR;
    if (tk->pause_ms < PAUSE_MS)
        tk->pause_ms = PAUSE_MS;
    if (tk->pause_ms > PAUSE_MAX_MS || j->rc < 0)
        tk->pause_ms = PAUSE_MAX_MS;
    m->active--;
    int more = j->more || tk->again;
    tk->again = 0;
    free(j->path);
    free(j->saved);
    free(j);
    if (tk->gone && (!more || m->closing)) {
        tracker_free(tk);
        return;
    }
    if (tk->repath && !more)
        change_path(tk);
    if (more)
        kick(tk, tk->gone || tk->repath ? 0 : tk->pause_ms > PAUSE_MS ? tk->pause_ms : LEFT_MS);
}

static void job_locked(void *arg)
{
    struct job *j = arg;
    struct tracker *tk = j->tk;
    if (strcmp(j->path, tk->path) != 0) { /* renamed while this waited */
        autofree char *old = j->path;
        j->path = xstrdup(tk->path);
        pathlock_take(contents_locks(tk->m->gw->contents), j->path, job_locked, j);
        pathlock_drop(contents_locks(tk->m->gw->contents), old);
        return;
    }
    tk->t->clients = tk->clients;
    tk->t->epoch = tk->epoch;
    j->flush = tk->clients == 0 || tk->gone || tk->repath;
    loop_work(tk->m->gw->loop, job_work, job_done, j);
}

static void tracker_run(struct tracker *tk)
{
    if (tk->busy || !tk->loaded || !tk->t) {
        tk->again = tk->busy;
        return;
    }
    struct job *j = xcalloc(1, sizeof *j);
    j->tk = tk;
    j->path = xstrdup(tk->path);
    tk->busy = 1;
    tk->m->active++;
    pathlock_take(contents_locks(tk->m->gw->contents), j->path, job_locked, j);
}

/* ---- what the kernels module reports ---- */

static void on_record(void *arg, int rc, const struct meta_kv *kv, size_t n)
{
    struct ack *a = arg;
    struct tracker *tk = find(a->m->gw, a->kid);
    autojson json_t *saved = NULL;
    if (tk && !tk->loaded) {
        if (rc == 0 && n == 1 && json_parse(kv->value, kv->len, &saved, NULL) == 0 && tk->t)
            track_load(tk->t, saved);
        tk->loaded = 1;
        kick(tk, tk->clients ? PAUSE_MS : LEFT_MS);
    }
    a->m->active--;
    free(a->kid);
    free(a);
}

static void load_record(struct tracker *tk)
{
    if (!tk->m->gw->meta) {
        tk->loaded = 1;
        return;
    }
    autofree char *key = xasprintf(MERGE_KEY "%s", tk->kid);
    struct ack *a = xcalloc(1, sizeof *a);
    *a = (struct ack){tk->m, xstrdup(tk->kid), 0};
    tk->m->active++;
    meta_get(tk->m->gw->meta, key, 0, on_record, a);
}

static struct tracker *tracker_new(struct gw *gw, const char *kid)
{
    struct tracker *tk = xcalloc(1, sizeof *tk);
    const struct kernel *k = kernels_find(gw, kid);
    tk->m = gw->merge;
    tk->kid = xstrdup(kid);
    tk->acked = k ? (uint64_t)json_get_int(k->model, "acked", 0) : 0;
    tk->head = k ? k->head : 0;
    tk->clients = k ? k->nclients : 0;
    tk->pause_ms = PAUSE_MS;
    list_append(&gw->merge->trackers, &tk->link);
    return tk;
}

static void begin(struct tracker *tk, char *path)
{
    tk->path = path;
    tk->t = track_new(shimc_journal_dir(tk->m->gw->shim, tk->kid), tk->acked + 1);
    if (tk->loaded)
        kick(tk, LEFT_MS);
    else
        load_record(tk);
}

void merge_kernel_path(struct gw *gw, const char *kid, const char *path)
{
    if (!gw->merge || gw->merge->closing)
        return;
    struct tracker *tk = find(gw, kid);
    autofree char *clean = NULL;
    if (path && (cpath_clean(path, &clean, NULL) < 0 || !*clean))
        path = NULL;
    if (!tk)
        tk = tracker_new(gw, kid);
    const struct kernel *k = kernels_find(gw, kid);
    if (k)
        merge_kernel_grown(gw, kid, k->head);
    if (tk->reported ? path && strcmp(tk->reported, clean) == 0 : !path)
        return;
    free(tk->reported);
    tk->reported = xstrdup(path ? clean : NULL);
    const char *now = tk->repath ? tk->new_path : tk->path;
    if (now ? path && strcmp(now, clean) == 0 : !path)
        return;
    if (!tk->t) {
        begin(tk, STEAL(clean));
        return;
    }
    tk->repath = 1;
    free(tk->new_path);
    tk->new_path = path ? STEAL(clean) : NULL;
    kick(tk, 0);
}

void merge_kernel_grown(struct gw *gw, const char *kid, uint64_t head)
{
    struct tracker *tk = find(gw, kid);
    if (!tk || head <= tk->head)
        return;
    tk->head = head;
    if (tk->t)
        kick(tk, tk->pause_ms);
    else if (head > tk->acked + ACK_STEP) {
        tk->acked = head;
        ack_send(tk->m, tk->kid, head);
    }
}

void merge_kernel_clients(struct gw *gw, const char *kid, size_t connected)
{
    struct tracker *tk = find(gw, kid);
    if (!tk)
        return;
    tk->clients = connected;
    if (connected)
        return;
    tk->epoch++;
    kick(tk, LEFT_MS);
}

void merge_kernel_stops(struct gw *gw, const char *kid)
{
    struct tracker *tk = find(gw, kid);
    struct err e;
    if (!tk || !tk->t || !tk->loaded || tk->busy)
        return; /* a job that is under way reads to the end itself */
    tk->t->clients = tk->clients;
    tk->t->epoch = tk->epoch;
    if (track_advance(tk->t, JOB_BYTES, &e) < 0)
        log_warn("last outputs could not be read", "kernel", kid, "reason", e.msg, NULL);
}

void merge_kernel_gone(struct gw *gw, const char *kid)
{
    struct tracker *tk = find(gw, kid);
    if (!tk)
        return;
    if (gw->meta && !gw->merge->ending) {
        autofree char *key = xasprintf(MERGE_KEY "%s", kid);
        meta_put(gw->meta, key, NULL, 0, META_ANY, NULL, NULL);
    }
    tk->gone = 1;
    if (tk->busy)
        tk->again = 1;
    else if (tk->t && tk->loaded && !tk->m->closing)
        tracker_run(tk);
    else
        tracker_free(tk);
}

/* The loop does not run on: what can be done is done here. */
void merge_flush_all(struct gw *gw)
{
    if (!gw->merge)
        return;
    list_foreach(it, &gw->merge->trackers)
    {
        struct tracker *tk = container_of(it, struct tracker, link);
        struct pathlocks *locks = contents_locks(gw->contents);
        if (tk->busy || !tk->t || !tk->loaded || pathlock_busy(locks, tk->path)) {
            tk->again = tk->busy;
            continue;
        }
        struct job *j = xcalloc(1, sizeof *j);
        j->tk = tk;
        j->path = xstrdup(tk->path);
        j->flush = tk->busy = 1;
        gw->merge->active++;
        pathlock_take(locks, j->path, job_work, j);
        job_done(j);
    }
}

/* ---- for the contents module ---- */

struct merge_hold *merge_hold(struct gw *gw, const char *path)
{
    struct merge_hold *h = NULL;
    if (!gw->merge)
        return NULL;
    list_foreach(it, &gw->merge->trackers)
    {
        struct tracker *tk = container_of(it, struct tracker, link);
        if (tk->busy || !tk->t || !tk->loaded || !tk->path || strcmp(tk->path, path) != 0)
            continue;
        if (!h) {
            h = xcalloc(1, sizeof *h);
            h->m = gw->merge;
            h->m->active++;
        }
        h->trackers = xrealloc(h->trackers, (h->n + 1) * sizeof *h->trackers);
        h->tracks = xrealloc(h->tracks, (h->n + 1) * sizeof *h->tracks);
        h->trackers[h->n] = tk;
        h->tracks[h->n++] = tk->t;
        tk->busy = 1;
        tk->t->clients = tk->clients;
        tk->t->epoch = tk->epoch;
    }
    return h;
}

void merge_unhold(struct merge_hold *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n; i++) {
        struct tracker *tk = h->trackers[i];
        tk->busy = 0;
        tk->again = 0;
        if (tk->m->closing)
            continue; /* merge_free() ends it */
        autojson json_t *saved = track_save(tk->t);
        acknowledge(tk, track_position(tk->t) - 1, json_text(saved));
        kick(tk, tk->gone || tk->repath || !tk->clients ? LEFT_MS : tk->pause_ms);
    }
    h->m->active--;
    free(h->trackers);
    free(h->tracks);
    free(h);
}

void merge_renamed(struct gw *gw, const char *from, const char *to)
{
    if (!gw->merge)
        return;
    size_t n = strlen(from);
    list_foreach(it, &gw->merge->trackers)
    {
        struct tracker *tk = container_of(it, struct tracker, link);
        if (!tk->path || strncmp(tk->path, from, n) != 0 || (tk->path[n] && tk->path[n] != '/'))
            continue;
        char *moved = xasprintf("%s%s", to, tk->path + n);
        free(tk->path);
        tk->path = moved;
    }
}
