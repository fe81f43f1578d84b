#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "kernel/kenv.h"
#include "kernel/kproc.h"
#include "kernel/zygote_own.h"

#define PACKET_MAX 65536         /* from the zygote */
#define SEND_BUFFER (4 << 20)    /* for whole environments */
#define RETRY_US (60 * 1000000L) /* a zygote that failed is tried again after this */
#define REFILL_MS 200

struct request {
    struct list link;
    struct zygote *z;
    char *id;
    char *packet; /* until it is sent */
    zfork_cb cb;
    void *arg;
    struct loop_timer *deadline;
};

static void finish(struct request *r, pid_t pid, const struct err *e)
{
    list_remove(&r->link);
    loop_timer_stop(r->deadline);
    r->cb(r->arg, pid, e);
    free(r->id);
    free(r->packet);
    free(r);
}

static void close_poll(uv_handle_t *h)
{
    free(h);
}

static void zygote_exited(void *arg, pid_t pid, int status, int oom);

/* Ends the process; every request that waits for it fails. */
static void zygote_down(struct zygote *z, const char *why, int failed)
{
    if (z->state == ZSTATE_DOWN)
        return;
    z->state = ZSTATE_DOWN;
    z->deadline = loop_timer_stop(z->deadline);
    if (z->poll)
        uv_close((uv_handle_t *)z->poll, close_poll);
    z->poll = NULL;
    if (z->fd >= 0)
        close(z->fd);
    z->fd = -1;
    if (z->pid) {
        kproc_unwatch(z->pid);
        kproc_signal(z->pid, SIGKILL);
    }
    z->pid = 0;
    z->failed_at = failed ? sys.mono_us() : 0;
    log_event(failed ? LOG_WARN : LOG_INFO, "zygote ended", "python", z->python, "reason", why,
              NULL);
    struct err e = {0};
    err_set(&e, ERR_UNAVAILABLE, "zygote: %s", why);
    while (!list_empty(&z->requests))
        finish(container_of(z->requests.next, struct request, link), 0, &e);
}

static void zygote_exited(void *arg, pid_t pid, int status, int oom)
{
    struct zygote *z = arg;
    char cause[KPROC_CAUSE_MAX];
    (void)pid;
    z->pid = 0;
    zygote_down(z, kproc_cause(status, oom, cause), 1);
}

static int send_packet(struct zygote *z, const char *text, struct err *e)
{
    ssize_t n = send(z->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? err_errno(e, errno, "asking the zygote") : 0;
}

static void send_waiting(struct zygote *z)
{
    list_foreach(it, &z->requests)
    {
        struct request *r = container_of(it, struct request, link);
        struct err e = {0};
        if (!r->packet)
            continue;
        if (send_packet(z, r->packet, &e) < 0) {
            finish(r, 0, &e);
            continue;
        }
        free(r->packet);
        r->packet = NULL;
    }
}

static void on_answer(struct zygote *z, const json_t *m, int forked)
{
    const char *id = json_get_str(m, "id", "");
    struct err e = {0};
    if (!forked)
        err_set(&e, ERR_UNAVAILABLE, "zygote: %s", json_get_str(m, "message", "refused"));
    pid_t pid = (pid_t)json_get_int(m, "pid", 0);
    list_foreach(it, &z->requests)
    {
        struct request *r = container_of(it, struct request, link);
        if (strcmp(r->id, id) == 0) {
            finish(r, pid, forked ? NULL : &e);
            return;
        }
    }
    if (forked && pid > 1) { /* its request has timed out */
        log_warn("kernel forked too late", "id", id, NULL);
        kproc_signal(pid, SIGKILL);
    }
}

static void on_packet(struct zygote *z, const json_t *m)
{
    const char *op = json_get_str(m, "op", "");
    if (strcmp(op, "ready") == 0 && z->state == ZSTATE_STARTING) {
        z->state = ZSTATE_READY;
        z->deadline = loop_timer_stop(z->deadline);
        log_info("zygote ready", "python", z->python, "version", json_get_str(m, "python", ""),
                 "ipykernel", json_get_str(m, "ipykernel", ""), NULL);
        send_waiting(z);
        zygotes_busy(z->all);
    } else if (strcmp(op, "forked") == 0) {
        on_answer(z, m, 1);
    } else if (strcmp(op, "refused") == 0) {
        on_answer(z, m, 0);
        if (json_get_bool(m, "discard", 1)) {
            spares_drop(z);
            zygote_down(z, json_get_str(m, "message", "refused"), 0);
            zygote_start(z);
        }
    } else if (strcmp(op, "failed") == 0) {
        zygote_down(z, json_get_str(m, "message", "failed"), 1);
    }
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    struct zygote *z = p->data;
    char text[PACKET_MAX];
    (void)events;
    while (z->poll == p) {
        ssize_t n = status < 0 ? 0 : recv(z->fd, text, sizeof text, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            uv_poll_stop(p); /* its exit is reported by kproc */
            return;
        }
        autojson json_t *m = NULL;
        struct err e = {0};
        if (json_parse(text, (size_t)n, &m, &e) < 0)
            zygote_down(z, e.msg, 1);
        else
            on_packet(z, m);
    }
}

static void start_late(void *arg)
{
    zygote_down(arg, "did not become ready in time", 1);
}

static int launch(struct zygote *z, int fd, struct err *e)
{
    struct zygotes_conf *c = &z->all->conf;
    autofree char *log = xasprintf("%s/run/zygote.log", c->data);
    char *argv[] = {z->python, (char *)c->script, (char *)"--preload", z->preload, NULL};
    char **env = kenv_array(z->env);
    struct kproc_spec s = {.argv = argv, .envp = env, .cwd = "/", .log = log, .keep_fd = fd};
    int rc = kproc_spawn(&s, &z->pid, e);
    kenv_free(env);
    return rc;
}

void zygote_start(struct zygote *z)
{
    if (z->state != ZSTATE_DOWN || (z->failed_at && sys.mono_us() - z->failed_at < RETRY_US))
        return;
    int sv[2];
    struct err e = {0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0) {
        err_errno(&e, errno, "socketpair");
        log_warn("zygote not started", "reason", e.msg, NULL);
        return;
    }
    int size = SEND_BUFFER;
    IGNORE_RESULT(setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size)); /* best effort */
    int rc = launch(z, sv[1], &e);
    close(sv[1]);
    if (rc < 0) {
        close(sv[0]);
        z->failed_at = sys.mono_us();
        log_warn("zygote not started", "reason", e.msg, NULL);
        return;
    }
    z->fd = sv[0];
    z->state = ZSTATE_STARTING;
    z->failed_at = 0;
    z->poll = xcalloc(1, sizeof *z->poll);
    z->poll->data = z;
    uv_poll_init(z->all->conf.loop, z->poll, z->fd);
    uv_poll_start(z->poll, UV_READABLE, on_readable);
    z->deadline = loop_timer_start(z->all->conf.loop, ZYGOTE_START_MS, 0, start_late, z);
    kproc_watch(z->pid, zygote_exited, z);
}

static char *join_preload(const json_t *which)
{
    struct buf b = BUF_INIT(65536);
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(which, "preload"), i, name) if (json_is_string(name))
        buf_add(&b, "%s%s", b.len ? "," : "", json_string_value(name));
    return b.len ? buf_steal(&b) : xstrdup("");
}

struct zygote *zygote_find(struct zygotes *zs, const json_t *which)
{
    autofree char *preload = join_preload(which);
    const char *python = json_get_str(which, "python", "");
    list_foreach(it, &zs->list)
    {
        struct zygote *z = container_of(it, struct zygote, link);
        if (strcmp(z->python, python) == 0 && strcmp(z->preload, preload) == 0)
            return z;
    }
    return NULL;
}

static struct zygote *zygote_add(struct zygotes *zs, const json_t *which, const json_t *env)
{
    struct zygote *z = xcalloc(1, sizeof *z);
    z->all = zs;
    z->python = xstrdup(json_get_str(which, "python", ""));
    z->preload = join_preload(which);
    z->env = json_deep_copy(env);
    z->fd = -1;
    list_init(&z->requests);
    list_init(&z->spares);
    list_append(&zs->list, &z->link);
    return z;
}

static char *fork_packet(const struct zfork *f)
{
    autojson json_t *m = json_pack("{s:s, s:s, s:s, s:s, s:s, s:O, s:O, s:s?}", "op", "fork", "id",
                                   f->id, "connection_file", f->connection, "stderr", f->log, "cwd",
                                   f->cwd, "env", f->env, "args", f->args, "go", f->go);
    return m ? json_text(m) : NULL;
}

static void fork_late(void *arg)
{
    struct request *r = arg;
    zygote_down(r->z, "did not fork in time", 1);
}

int zygote_fork(struct zygote *z, const struct zfork *f, zfork_cb cb, void *arg, struct err *e)
{
    if (z->state == ZSTATE_DOWN)
        zygote_start(z);
    if (z->state == ZSTATE_DOWN)
        return err_set(e, ERR_UNAVAILABLE, "zygote: it failed before");
    autofree char *packet = fork_packet(f);
    if (!packet)
        return err_set(e, ERR_INVALID, "zygote: request is not UTF-8");
    if (z->state == ZSTATE_READY) {
        int rc = send_packet(z, packet, e);
        if (rc < 0)
            return rc;
    }
    struct request *r = xcalloc(1, sizeof *r);
    *r = (struct request){.z = z, .id = xstrdup(f->id), .cb = cb, .arg = arg};
    unsigned ms = ZYGOTE_FORK_MS;
    if (z->state == ZSTATE_STARTING) {
        r->packet = STEAL(packet);
        ms += ZYGOTE_START_MS;
    }
    r->deadline = loop_timer_start(z->all->conf.loop, ms, 0, fork_late, r);
    list_append(&z->requests, &r->link);
    return 0;
}

int zygotes_fork(struct zygotes *zs, const json_t *which, const struct zfork *f, zfork_cb cb,
                 void *arg, struct err *e)
{
    struct zygote *z = zygote_find(zs, which);
    if (z)
        return zygote_fork(z, f, cb, arg, e);
    /* A plain start is faster than waiting for a zygote to import everything. */
    zygote_start(zygote_add(zs, which, f->env));
    return err_set(e, ERR_UNAVAILABLE, "zygote: not started yet");
}

/* ---- all of them ---- */

struct zygotes *zygotes_new(const struct zygotes_conf *conf)
{
    struct zygotes *zs = xcalloc(1, sizeof *zs);
    zs->conf = *conf;
    zs->conf.data = xstrdup(conf->data);
    zs->conf.script = xstrdup(conf->script);
    list_init(&zs->list);
    return zs;
}

struct zygotes *zygotes_free(struct zygotes *zs)
{
    list_foreach(it, &zs->list)
    {
        struct zygote *z = container_of(it, struct zygote, link);
        spares_drop(z);
        zygote_down(z, "the shim ends", 0);
        free(z->python);
        free(z->preload);
        json_decref(z->env);
        free(z);
    }
    loop_timer_stop(zs->refill);
    free((char *)zs->conf.data);
    free((char *)zs->conf.script);
    free(zs);
    return NULL;
}

size_t zygotes_count(const struct zygotes *zs)
{
    size_t n = 0;
    list_foreach(it, &((struct zygotes *)zs)->list) n +=
        container_of(it, struct zygote, link)->state == ZSTATE_READY;
    return n;
}

size_t zygotes_spares(const struct zygotes *zs)
{
    size_t n = 0;
    list_foreach(it, &((struct zygotes *)zs)->list) n +=
        spares_count(container_of(it, struct zygote, link));
    return n;
}

static void refill(void *arg)
{
    struct zygotes *zs = arg;
    zs->refill = loop_timer_stop(zs->refill);
    list_foreach(it, &zs->list) spares_refill(container_of(it, struct zygote, link));
}

void zygotes_busy(struct zygotes *zs)
{
    loop_timer_stop(zs->refill);
    zs->refill = loop_timer_start(zs->conf.loop, REFILL_MS, 0, refill, zs);
}

int zygotes_prepare(struct zygotes *zs, const json_t *which, const json_t *env, int spares,
                    struct err *e)
{
    if (!*json_get_str(which, "python", ""))
        return err_set(e, ERR_INVALID, "prepare: zygote.python is missing");
    struct zygote *z = zygote_find(zs, which);
    if (!z)
        z = zygote_add(zs, which, env);
    z->want_spares = spares;
    z->spare_failures = 0;
    if (z->state == ZSTATE_DOWN)
        zygote_start(z);
    else
        zygotes_busy(zs);
    return 0;
}
