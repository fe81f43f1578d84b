/* Kernels made ahead: initialised, connected, waiting for one line on their FIFO. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "kernel/kfiles.h"
#include "kernel/kproc.h"
#include "kernel/zygote_own.h"

#define FAILURES_MAX 3
#define PIPE_BYTES (1 << 20)

struct spare {
    struct list link;
    struct zygote *z;
    char *ip, *connection, *log, *go;
    char key[65];
    pid_t pid; /* 0: not forked yet */
    struct kconn *conn;
    int dropped; /* while its fork was under way */
    int given;   /* its files go with the kernel */
};

static void spare_free(struct spare *s)
{
    list_remove(&s->link);
    kconn_close(s->conn);
    IGNORE_RESULT(unlink(s->go)); /* may never have been made */
    if (!s->given)
        kfiles_remove_sockets(s->ip);
    free(s->ip);
    free(s->connection);
    free(s->log);
    free(s->go);
    free(s);
}

static void spare_exited(void *arg, pid_t pid, int status, int oom)
{
    struct spare *s = arg;
    char cause[KPROC_CAUSE_MAX];
    (void)pid;
    log_warn("spare kernel ended", "reason", kproc_cause(status, oom, cause), NULL);
    s->z->spare_failures++;
    struct zygotes *zs = s->z->all;
    spare_free(s);
    zygotes_busy(zs);
}

static void spare_forked(void *arg, pid_t pid, const struct err *e)
{
    struct spare *s = arg;
    if (e && !s->dropped) {
        log_warn("no spare kernel", "reason", e->msg, NULL);
        s->z->spare_failures++;
    }
    if (!e && s->dropped)
        kproc_signal(pid, SIGKILL);
    struct err ce = {0};
    if (e || s->dropped) {
        spare_free(s);
        return;
    }
    s->pid = pid;
    struct zygotes_conf *c = &s->z->all->conf;
    if (kconn_open(c->zctx, c->loop, s->ip, s->key, &s->conn, &ce) < 0) {
        log_warn("no spare kernel", "reason", ce.msg, NULL);
        s->z->spare_failures++;
        kproc_signal(pid, SIGKILL);
        spare_free(s);
        return;
    }
    kproc_watch(pid, spare_exited, s);
}

static int spare_make(struct zygote *z, struct err *e)
{
    char id[13];
    sys_random_hex(id, 6);
    const char *data = z->all->conf.data;
    struct spare *s = xcalloc(1, sizeof *s);
    list_init(&s->link);
    s->z = z;
    s->ip = xasprintf("%s/run/k/%s", data, id);
    kfiles_spare(s->ip, &s->connection, &s->log);
    s->go = xasprintf("%s.go", s->ip);
    sys_random_hex(s->key, 32);
    autojson json_t *args = json_array();
    struct zfork f = {.id = id,
                      .connection = s->connection,
                      .log = s->log,
                      .cwd = "/",
                      .env = z->env,
                      .args = args,
                      .go = s->go};
    int rc = kfiles_write_connection(s->connection, s->ip, s->key, "python3", e);
    if (rc == 0 && mkfifo(s->go, 0600) < 0)
        rc = err_errno(e, errno, "%s", s->go);
    if (rc == 0)
        rc = zygote_fork(z, &f, spare_forked, s, e);
    if (rc < 0) {
        spare_free(s);
        return rc;
    }
    list_append(&z->spares, &s->link);
    return 0;
}

static size_t length(const struct list *l)
{
    size_t n = 0;
    for (const struct list *it = l->next; it != l; it = it->next)
        n++;
    return n;
}

void spares_refill(struct zygote *z)
{
    struct err e = {0};
    if (z->want_spares > 0 && z->state == ZSTATE_DOWN)
        zygote_start(z);
    while (z->state == ZSTATE_READY && length(&z->spares) < (size_t)z->want_spares &&
           z->spare_failures < FAILURES_MAX)
        if (spare_make(z, &e) < 0) {
            log_warn("no spare kernel", "reason", e.msg, NULL);
            z->spare_failures++;
            return;
        }
}

void spares_drop(struct zygote *z)
{
    list_foreach(it, &z->spares)
    {
        struct spare *s = container_of(it, struct spare, link);
        if (!s->pid) {
            s->dropped = 1; /* freed when its fork is answered */
            list_remove(&s->link);
            continue;
        }
        kproc_unwatch(s->pid);
        kproc_signal(s->pid, SIGKILL);
        spare_free(s);
    }
}

size_t spares_count(const struct zygote *z)
{
    size_t n = 0;
    list_foreach(it, &((struct zygote *)z)->spares) n +=
        container_of(it, struct spare, link)->conn != NULL;
    return n;
}

/* Writes the line that makes it serve. A spare that is still initialising has no reader: ENXIO. */
static int send_go(const struct spare *s, const struct zfork *f)
{
    autofd int fd = open(s->go, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (link(s->log, f->log) < 0) /* one file under two names: it may open the old one again */
        log_warn("log of a spare kernel not kept", "path", f->log, NULL);
    autojson json_t *m = json_pack("{s:s, s:O, s:s, s:s}", "cwd", f->cwd, "env", f->env,
                                   "connection_file", f->connection, "stderr", f->log);
    if (!m)
        return -1;
    autofree char *text = json_text(m);
    autofree char *line = xasprintf("%s\n", text);
    IGNORE_RESULT(fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)); /* 64 KiB are enough as a rule */
    size_t len = strlen(line);
    return write(fd, line, len) == (ssize_t)len ? 0 : -1;
}

static void give(struct spare *s, struct spare_taken *ret)
{
    kproc_unwatch(s->pid);
    ret->pid = s->pid;
    ret->conn = STEAL(s->conn);
    ret->ip = xstrdup(s->ip);
    memcpy(ret->key, s->key, sizeof ret->key);
    s->given = 1;
    spare_free(s);
}

int zygotes_take(struct zygotes *zs, const json_t *which, const struct zfork *f,
                 struct spare_taken *ret)
{
    struct zygote *z = zygote_find(zs, which);
    if (!z || json_array_size(f->args) > 0)
        return 0;
    list_foreach(it, &z->spares)
    {
        struct spare *s = container_of(it, struct spare, link);
        if (!s->conn || send_go(s, f) < 0)
            continue;
        z->spare_failures = 0;
        give(s, ret);
        return 1;
    }
    return 0;
}
