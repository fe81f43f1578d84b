#include "kernel/shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sys.h"
#include "kernel/kenv.h"
#include "kernel/kfiles.h"
#include "kernel/kproc.h"
#include "kernel/shim_own.h"

#define TICK_MS 10000
#define SOFT_MS 20        /* busy, idle and times are told at most this often per kernel */
#define PRELUDE_MS 5      /* so long the start of a cell may wait for what follows it */
#define FIRST_CLIENT_S 10 /* whoever started us has so long to say hello */
#define IDLE_MS 300       /* without kernels and clients */
#define AWAIT_MS 1000     /* for the zygotes that are killed last */
#define END_MS 6000       /* after this the remaining kernels are killed */

/* ---- kernels ---- */

static struct kernel_link *link_of(struct list *it)
{
    return container_of(it, struct kernel_link, link);
}

static struct kernel *kernel_of(struct list *it)
{
    return (struct kernel *)(void *)link_of(it);
}

struct kernel *shim_find(struct shim *s, const char *id)
{
    list_foreach(it,
                 &s->kernels) if (strcmp(kernel_id(kernel_of(it)), id) == 0) return kernel_of(it);
    return NULL;
}

void shim_add(struct shim *s, struct kernel *k)
{
    struct kernel_link *l = (struct kernel_link *)(void *)k;
    list_append(&s->kernels, &l->link);
    shim_check_idle(s);
}

void shim_broadcast(struct shim *s, const json_t *head)
{
    list_foreach(it, &s->clients)
    {
        struct client *c = container_of(it, struct client, link);
        if (c->hello)
            client_send(c, head);
    }
}

static void raise_to(int *level, int urgent)
{
    int want = urgent ? 2 : 1;
    if (want > *level)
        *level = want;
}

static void on_grown(void *arg, struct kernel *k, int urgent)
{
    ((struct shim *)arg)->messages++;
    raise_to(&((struct kernel_link *)(void *)k)->grown, urgent);
}

static void on_changed(void *arg, struct kernel *k, int urgent)
{
    (void)arg;
    raise_to(&((struct kernel_link *)(void *)k)->changed, urgent);
}

static void on_gone(void *arg, struct kernel *k)
{
    struct shim *s = arg;
    struct kernel_link *l = (struct kernel_link *)(void *)k;
    list_remove(&l->link);
    autojson json_t *head = json_pack("{s:s, s:s}", "op", "gone", "k", kernel_id(k));
    shim_broadcast(s, head);
    shim_check_idle(s);
}

/* ---- telling clients ---- */

static void on_soft(void *arg)
{
    struct shim *s = arg;
    s->soft = loop_timer_stop(s->soft); /* the round of the loop that ends now does the rest */
}

static void on_late(uv_timer_t *t)
{
    struct shim *s = t->data;
    list_foreach(it, &s->kernels) if (link_of(it)->grown) link_of(it)->grown = 2;
}

static void tell_grown(struct shim *s, struct kernel_link *l)
{
    const struct kernel *k = (const struct kernel *)(void *)l;
    autojson json_t *head = json_pack("{s:s, s:s, s:I}", "op", "grown", "k", kernel_id(k), "head",
                                      (json_int_t)kernel_head(k));
    l->grown = 0;
    shim_broadcast(s, head);
}

/* 1: something is held back for the timer. */
static int tell(struct shim *s, struct kernel_link *l)
{
    struct kernel *k = (struct kernel *)(void *)l;
    int64_t now = l->changed ? sys.mono_us() : 0;
    int soft = l->changed == 1 && now - l->told_us < SOFT_MS * 1000;
    if (soft && !s->soft)
        s->soft = loop_timer_start(&s->loop, SOFT_MS, 0, on_soft, s);
    int model_now = l->changed && !soft;
    if (l->grown == 2 || (l->grown && model_now)) /* no model runs ahead of the growth */
        tell_grown(s, l);
    if (!model_now)
        return l->grown;
    autojson json_t *model = kernel_model(k);
    autojson json_t *head = json_pack("{s:s, s:O}", "op", "changed", "kernel", model);
    l->changed = 0;
    l->told_us = now;
    if (head)
        shim_broadcast(s, head);
    return 0;
}

static void on_flush(uv_prepare_t *p)
{
    struct shim *s = p->data;
    int held = 0;
    list_foreach(it, &s->kernels) held |= tell(s, link_of(it));
    if (!held)
        uv_timer_stop(&s->late);
    else if (!uv_is_active((uv_handle_t *)&s->late))
        uv_timer_start(&s->late, on_late, PRELUDE_MS, 0);
    list_foreach(it, &s->clients) client_flush(container_of(it, struct client, link));
}

/* ---- grace and end ---- */

static size_t living(struct shim *s)
{
    size_t n = 0;
    list_foreach(it, &s->kernels) n += kernel_state(kernel_of(it)) != KSTATE_DEAD;
    return n;
}

static void on_grace(void *arg)
{
    struct shim *s = arg;
    s->grace = loop_timer_stop(s->grace);
    if (s->idle && s->nclients > 0) { /* one that is about to say hello */
        s->grace = loop_timer_start(&s->loop, IDLE_MS, 0, on_grace, s);
        return;
    }
    if (!s->idle)
        log_info("nobody came back: kernels are ended", NULL);
    shim_end(s, 0, 1);
}

static void stop_loop(struct shim *s)
{
    list_foreach(it, &s->clients) client_flush(container_of(it, struct client, link));
    s->ended = 1;
    uv_stop(&s->loop);
}

void shim_check_idle(struct shim *s)
{
    if (s->ending) {
        if (list_empty(&s->kernels) && !s->ended)
            stop_loop(s);
        return;
    }
    if (s->nhello > 0) {
        s->grace = loop_timer_stop(s->grace);
        return;
    }
    int idle = s->served && !living(s);
    if (s->grace && idle == s->idle)
        return;
    loop_timer_stop(s->grace);
    s->idle = idle;
    uint64_t ms = idle ? IDLE_MS : (uint64_t)(s->served ? s->grace_s : FIRST_CLIENT_S) * 1000;
    s->grace = loop_timer_start(&s->loop, ms, 0, on_grace, s);
}

static void on_end_late(void *arg)
{
    struct shim *s = arg;
    s->end = loop_timer_stop(s->end);
    list_foreach(it, &s->kernels) kernel_stop(kernel_of(it), 1, 0);
}

void shim_end(struct shim *s, int now, int keep)
{
    if (!s->ending) {
        s->ending = 1;
        log_info("ending", NULL);
        IGNORE_RESULT(unlink(s->socket_path)); /* a client that comes now starts another shim */
        s->end = loop_timer_start(&s->loop, END_MS, 0, on_end_late, s);
    }
    list_foreach(it, &s->kernels) kernel_stop(kernel_of(it), now, keep);
    shim_check_idle(s);
}

static void on_term(uv_signal_t *h, int signum)
{
    struct shim *s = h->data;
    (void)signum;
    shim_end(s, s->ending, 1); /* the second one does not wait */
}

static void on_tick(void *arg)
{
    struct shim *s = arg;
    list_foreach(it, &s->kernels) kernel_tick(kernel_of(it));
}

/* ---- start ---- */

static int make_folders(const char *data, struct err *e)
{
    static const char *const subs[] = {"run/k", "kernels"};
    int rc = 0;
    for (size_t i = 0; i < COUNTOF(subs) && rc == 0; i++) {
        autofree char *path = xasprintf("%s/%s", data, subs[i]);
        rc = fs_mkdirs(path, 0700, e);
    }
    return rc;
}

static int take_lock(struct shim *s, struct err *e)
{
    autofree char *path = xasprintf("%s/run/shim.lock", s->conf->data);
    autofd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, errno, "%s", path);
    int64_t until = sys.mono_us() + END_MS * 1000;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        /* One that is ending has removed its socket, and has kernels to wait for. */
        if (access(s->socket_path, F_OK) == 0 || sys.mono_us() > until)
            return err_set(e, ERR_CONFLICT, "%s: another reitos-shim serves this folder",
                           s->conf->data);
        poll(NULL, 0, 20);
    }
    char text[16];
    int n = snprintf(text, sizeof text, "%d\n", getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return err_errno(e, errno, "%s", path);
    s->lock = STEAL_FD(fd);
    return 0;
}

/* Removes the sockets of a shim that ended without doing so. */
static void clean_run(const char *data)
{
    autofree char *path = xasprintf("%s/run/k", data);
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *de; (de = readdir(d));)
        if (de->d_name[0] != '.')
            IGNORE_RESULT(unlinkat(dirfd(d), de->d_name, 0)); /* else it stays */
    closedir(d);
}

static void recover_one(struct shim *s, const char *id)
{
    struct kernel *k;
    struct err e = {0};
    if (kernel_recover(&s->host, id, &k, &e) == 0) {
        log_info("output of an earlier kernel is kept", "kernel", id, NULL);
        shim_add(s, k);
        return;
    }
    if (e.code != ERR_GONE)
        log_warn("folder of an earlier kernel removed", "kernel", id, "reason", e.msg, NULL);
    autofree char *dir = xasprintf("%s/kernels/%s", s->conf->data, id);
    kfiles_remove_tree(dir);
}

static void recover(struct shim *s)
{
    autofree char *path = xasprintf("%s/kernels", s->conf->data);
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *de; (de = readdir(d));)
        if (de->d_name[0] != '.')
            recover_one(s, de->d_name);
    closedir(d);
}

static void on_connection(uv_stream_t *st, int status)
{
    if (status == 0)
        client_accept(st->data);
}

static int listen_at(struct shim *s, struct err *e)
{
    if (strlen(s->socket_path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return err_set(e, ERR_INVALID, "%s: path too long for a socket; use a shorter data folder",
                       s->socket_path);
    IGNORE_RESULT(unlink(s->socket_path)); /* of a dead shim: we hold the lock */
    uv_pipe_init(&s->loop, &s->listener, 0);
    s->listener.data = s;
    int rc = uv_pipe_bind(&s->listener, s->socket_path);
    if (rc == 0)
        rc = uv_listen((uv_stream_t *)&s->listener, 128, on_connection);
    return rc < 0 ? err_set(e, ERR_IO, "%s: %s", s->socket_path, uv_strerror(rc)) : 0;
}

static void watch_signal(struct shim *s, uv_signal_t *h, int signum)
{
    uv_signal_init(&s->loop, h);
    h->data = s;
    uv_signal_start(h, on_term, signum);
}

static void init(struct shim *s, const struct shim_conf *conf)
{
    s->conf = conf;
    s->lock = -1;
    s->grace_s = conf->grace_s;
    s->socket_path = xasprintf("%s/run/shim.sock", conf->data);
    list_init(&s->kernels);
    list_init(&s->clients);
    uv_loop_init(&s->loop);
    uv_prepare_init(&s->loop, &s->flush);
    s->flush.data = s;
    uv_prepare_start(&s->flush, on_flush);
    uv_timer_init(&s->loop, &s->late);
    s->late.data = s;
    watch_signal(s, &s->term, SIGTERM);
    watch_signal(s, &s->intr, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error like a full disk */
}

static void init_host(struct shim *s)
{
    const char *data = s->conf->data;
    struct zctx *z = zctx_new();
    struct zygotes_conf zc = {.loop = &s->loop, .zctx = z, .data = data, .script = s->conf->zygote};
    s->host = (struct kernel_host){.loop = &s->loop,
                                   .zctx = z,
                                   .data = data,
                                   .hash_seed = kenv_hash_seed(data),
                                   .journal_limit = (uint64_t)s->conf->journal_limit << 20,
                                   .zygotes = zygotes_new(&zc),
                                   .arg = s,
                                   .grown = on_grown,
                                   .changed = on_changed,
                                   .gone = on_gone};
}

static void finish(struct shim *s)
{
    IGNORE_RESULT(unlink(s->socket_path)); /* nothing can be done about it now */
    loop_timer_stop(s->tick);
    loop_timer_stop(s->grace);
    loop_timer_stop(s->soft);
    loop_timer_stop(s->end);
    s->tick = s->grace = s->soft = s->end = NULL;
    zygotes_free(s->host.zygotes);
    kproc_await(AWAIT_MS); /* before the clients learn that we are gone */
    list_foreach(it, &s->clients) client_close(container_of(it, struct client, link));
    kproc_teardown();
    if (loop_fini(&s->loop) < 0)
        log_debug("handles were open at the end", NULL);
    zctx_free(s->host.zctx);
    clean_run(s->conf->data);
    free((char *)s->host.hash_seed);
}

int shim_run(const struct shim_conf *conf, struct err *e)
{
    struct shim *s = xcalloc(1, sizeof *s);
    init(s, conf);
    int rc = make_folders(conf->data, e);
    if (rc == 0)
        rc = take_lock(s, e);
    if (rc == 0)
        rc = kproc_setup(&s->loop, e);
    if (rc == 0) {
        clean_run(conf->data);
        rc = listen_at(s, e);
    }
    if (rc == 0) {
        init_host(s);
        recover(s);
        s->tick = loop_timer_start(&s->loop, TICK_MS, TICK_MS, on_tick, s);
        shim_check_idle(s);
        log_info("listening", "socket", s->socket_path, NULL);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        finish(s);
    }
    if (s->lock >= 0)
        close(s->lock);
    free(s->socket_path);
    free(s);
    return rc;
}
