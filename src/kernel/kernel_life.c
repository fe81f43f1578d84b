/* The process of a kernel: launching, readiness, exit, restart, stop. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernel/kenv.h"
#include "kernel/kernel_own.h"

#define STOP_ASK_MS 2000 /* after shutdown_request, before SIGTERM */
#define STOP_TERM_MS 1000
#define RESTART_ASK_MS 500
#define RESTART_TERM_MS 400
#define DRAIN_MS 10 /* a kernel that has ended is silent when nothing came for so long */
#define DRAIN_TICKS 300
#define BACKOFF_MS 200

static void finish_stop(struct kernel *k);
static void crashed(struct kernel *k);
static void ended(struct kernel *k);

static json_t *zygote_of(const struct kernel *k)
{
    json_t *z = json_object_get(k->spec, "zygote");
    return json_is_object(z) ? z : NULL;
}

/* Where the process is to run. A kernel that has run before is not kept from starting again by the
 * removal of its folder: it runs in the nearest one above. Heap. */
static char *folder_of(const struct kernel *k)
{
    const char *cwd = json_get_str(k->spec, "cwd", "");
    char *dir = xstrdup(*cwd == '/' ? cwd : "/");
    struct stat st;
    while (k->ready_once && dir[1] && (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))) {
        char *slash = strrchr(dir, '/');
        slash[slash == dir] = '\0'; /* the first one stays */
    }
    return dir;
}

/* There is nothing to run: dead at once, from the loop. */
static void launch_failed(void *arg)
{
    struct kernel *k = arg;
    k->timer = loop_timer_stop(k->timer);
    k->wait_status = 0;
    ended(k);
}

static void fail_launch(struct kernel *k, const struct err *e)
{
    kernel_set_reason(k, e->msg);
    loop_timer_stop(k->timer);
    k->timer = loop_timer_start(k->host->loop, 0, 0, launch_failed, k);
}

static void on_exit_cb(void *arg, pid_t pid, int status, int oom);

/* A process exists: connect and ask until it answers. */
static void launched(struct kernel *k, pid_t pid, const char *via)
{
    struct err e = {0};
    k->pid = pid;
    k->via = via;
    kproc_watch(pid, on_exit_cb, k);
    if (!k->conn &&
        kconn_open(k->host->zctx, k->host->loop, k->files.ip, k->files.key, &k->conn, &e) < 0) {
        log_error("cannot connect to a kernel", "kernel", k->id, "reason", e.msg, NULL);
        kproc_signal(pid, SIGKILL);
        return;
    }
    kconn_own(k->conn, &kernel_conn_ops, k);
    kernel_move(k, KSTATE_CONNECTING);
    kconn_probe(k->conn);
    kernel_connected(k);
}

static void spawn(struct kernel *k, const json_t *env)
{
    struct err e = {0};
    pid_t pid;
    char **argv = kenv_argv(json_object_get(k->spec, "argv"), k->files.connection);
    char **envp = kenv_array(env);
    autofree char *cwd = folder_of(k);
    struct kproc_spec s = {
        .argv = argv, .envp = envp, .cwd = cwd, .log = k->files.log, .keep_fd = -1};
    int rc = kproc_spawn(&s, &pid, &e);
    kenv_free(argv);
    kenv_free(envp);
    if (rc < 0)
        fail_launch(k, &e);
    else
        launched(k, pid, "spawn");
}

static json_t *kernel_environment(const struct kernel *k)
{
    return kenv_make(json_object_get(k->spec, "env"), k->host->hash_seed, k->id);
}

static void on_forked(void *arg, pid_t pid, const struct err *e)
{
    struct kernel *k = arg;
    k->forking = 0;
    if (e && k->state == KSTATE_LAUNCHING) {
        log_warn("kernel is spawned plainly", "kernel", k->id, "reason", e->msg, NULL);
        autojson json_t *env = kernel_environment(k);
        spawn(k, env);
    } else if (e) {
        launch_failed(k); /* it is being stopped */
    } else if (k->state == KSTATE_LAUNCHING) {
        launched(k, pid, "zygote");
    } else {
        k->pid = pid;
        kproc_watch(pid, on_exit_cb, k);
        kproc_signal(pid, SIGKILL);
    }
}

static int take_spare(struct kernel *k, const struct zfork *f)
{
    struct spare_taken t;
    if (k->ready_once || !zygotes_take(k->host->zygotes, zygote_of(k), f, &t))
        return 0;
    kfiles_set_ip(&k->files, t.ip, t.key);
    free(t.ip);
    struct err e = {0};
    if (kfiles_write_connection(k->files.connection, k->files.ip, k->files.key,
                                json_get_str(k->spec, "name", ""), &e) < 0)
        log_warn("connection file not written", "kernel", k->id, "reason", e.msg, NULL);
    k->conn = t.conn;
    launched(k, t.pid, "spare");
    return 1;
}

void kernel_launch(struct kernel *k)
{
    struct err e = {0};
    kernel_move(k, KSTATE_LAUNCHING);
    k->asked = ASKED_NOT;
    k->interrupt_wanted = k->interrupted = 0;
    k->no_reply = loop_timer_stop(k->no_reply);
    zygotes_busy(k->host->zygotes);
    autojson json_t *env = kernel_environment(k);
    autojson json_t *args = kenv_zygote_args(json_object_get(k->spec, "argv"));
    autofree char *cwd = folder_of(k);
    struct zfork f = {.id = k->id,
                      .connection = k->files.connection,
                      .log = k->files.log,
                      .cwd = cwd,
                      .env = env,
                      .args = args};
    if (zygote_of(k) && take_spare(k, &f))
        return;
    if (kfiles_connection(&k->files, json_get_str(k->spec, "name", ""), &e) < 0) {
        fail_launch(k, &e);
        return;
    }
    if (zygote_of(k)) {
        k->forking = 1;
        if (zygotes_fork(k->host->zygotes, zygote_of(k), &f, on_forked, k, &e) == 0)
            return;
        k->forking = 0;
        log_info("kernel is spawned plainly", "kernel", k->id, "reason", e.msg, NULL);
    }
    spawn(k, env);
}

void kernel_on_ready(struct kernel *k)
{
    if (k->state != KSTATE_CONNECTING)
        return;
    kernel_move(k, KSTATE_READY);
    k->ready_us = sys.mono_us();
    if (k->ready_once) /* clients that were answered from the cache heard "starting" last */
        kernel_status(k, "idle");
    k->ready_once = 1;
    k->missed_beats = 0;
    kernel_set_reason(k, "");
    zygotes_busy(k->host->zygotes);
    log_info("kernel ready", "kernel", k->id, "via", k->via, NULL);
    kernel_serve(k);
    kernel_tell(k, KERNEL_READY, NULL);
}

/* ---- exit ---- */

/* A kernel has ended: what it had said may still be on its way to us, and what it had started may
 * still run. */
static void on_drain(void *arg)
{
    struct kernel *k = arg;
    uint64_t count = k->conn ? kconn_count(k->conn) : 0;
    int more = count != k->drain_count;
    k->drain_count = count;
    if (k->leftovers)
        more |= (k->leftovers = kproc_sweep(k->old_pid, k->id, SIGKILL)) > 0;
    if (more && ++k->drain_ticks < DRAIN_TICKS)
        return;
    k->drain = loop_timer_stop(k->drain);
    ended(k);
}

static void on_exit_cb(void *arg, pid_t pid, int status, int oom)
{
    struct kernel *k = arg;
    char cause[KPROC_CAUSE_MAX];
    k->timer = loop_timer_stop(k->timer);
    k->old_pid = pid;
    k->pid = 0;
    k->wait_status = status;
    k->oom = oom;
    kernel_set_reason(k, kproc_cause(status, oom, cause));
    log_info("kernel process ended", "kernel", k->id, "cause", cause, "state",
             kstate_name(k->state), NULL);
    k->leftovers = kproc_sweep(pid, k->id, SIGKILL);
    k->drain_ticks = 0;
    k->drain_count = k->conn ? kconn_count(k->conn) : 0;
    k->drain = loop_timer_start(k->host->loop, DRAIN_MS, DRAIN_MS, on_drain, k);
}

/* Nothing of the process is left. */
static void ended(struct kernel *k)
{
    k->conn = kconn_close(k->conn);
    k->old_pid = 0;
    k->interrupt_wanted = 0;
    execq_ready(k->queue, 0);
    if (k->state == KSTATE_STOPPING) {
        finish_stop(k);
    } else if (k->state == KSTATE_RESTARTING) {
        k->quiet = 1;
        kernel_died(k, "restarted");
        k->quiet = 0;
        k->ready_us = 0;
        k->restart_asked = 0;
        kernel_push_later(k);
        kernel_launch(k);
    } else {
        crashed(k);
    }
}

static void finish_stop(struct kernel *k)
{
    struct err e = {0};
    k->quiet = 1;
    kernel_push_later(k);
    kernel_died(k, "the kernel was stopped");
    err_set(&e, ERR_GONE, "kernel %s was stopped", k->id);
    kernel_tell(k, KERNEL_READY, &e);
    kernel_save(k);
    int keep = k->keep && journal_head(k->journal) > journal_acked(k->journal);
    if (keep)
        kfiles_remove_sockets(k->files.ip);
    else
        kfiles_remove(&k->files);
    k->state = KSTATE_DEAD;
    k->host->gone(k->host->arg, k);
    kernel_tell(k, KERNEL_GONE, NULL);
    kernel_free(k);
}

static void go_dead(struct kernel *k)
{
    struct err e = {0};
    autofree char *tail = kfiles_log_tail(&k->files);
    err_set(&e, ERR_KERNEL, "kernel died: %s%s%s", k->reason, *tail ? "\n" : "", tail);
    kernel_move(k, KSTATE_DEAD);
    log_warn("kernel is dead", "kernel", k->id, "reason", k->reason, NULL);
    if (!k->ready_once && !k->shown) {
        kernel_tell(k, KERNEL_READY, &e);
        kernel_stop(k, 1, 0); /* nobody has seen it: leave nothing behind */
        return;
    }
    if (!k->ready_once && *tail) {
        autofree char *reason = xasprintf("%s\n%s", k->reason, tail);
        kernel_set_reason(k, reason);
    }
    kernel_status(k, "dead");
    kernel_save(k);
    kernel_tell(k, KERNEL_READY, &e);
}

static void relaunch(void *arg)
{
    struct kernel *k = arg;
    k->timer = loop_timer_stop(k->timer);
    kernel_launch(k);
}

static void crashed(struct kernel *k)
{
    long ready = k->ready_us ? (long)(sys.mono_us() - k->ready_us) : 0;
    k->ready_us = 0;
    k->quiet = k->asked != ASKED_NOT;
    kernel_died(k, k->reason);
    k->quiet = 0;
    if (k->asked == ASKED_SHUTDOWN)
        kernel_set_reason(k, "shut down by a client");
    if (k->asked == ASKED_SHUTDOWN || !k->ready_once ||
        (k->asked == ASKED_NOT &&
         (!json_get_bool(k->spec, "restart", 0) || !krestarts_again(&k->restarts, ready)))) {
        go_dead(k);
        return;
    }
    kernel_move(k, KSTATE_RESTARTING);
    if (k->asked == ASKED_NOT)
        kernel_status(k, "restarting");
    int backoff = k->asked == ASKED_NOT ? (k->restarts.crashes - 1) * BACKOFF_MS : 0;
    k->timer = loop_timer_start(k->host->loop, (uint64_t)backoff, 0, relaunch, k);
}

/* ---- ending it ---- */

static void escalate(void *arg)
{
    struct kernel *k = arg;
    k->timer = loop_timer_stop(k->timer);
    if (!k->pid)
        return;
    if (k->escalation++ == 0) {
        kproc_signal(k->pid, SIGTERM);
        unsigned ms = k->state == KSTATE_RESTARTING ? RESTART_TERM_MS : STOP_TERM_MS;
        k->timer = loop_timer_start(k->host->loop, ms, 0, escalate, k);
    } else {
        kproc_sweep(k->pid, k->id, SIGKILL);
    }
}

/* Asks the process to end, and makes sure that it does. */
static void end_process(struct kernel *k, int now, int restart, unsigned ask_ms)
{
    k->timer = loop_timer_stop(k->timer);
    k->escalation = 0;
    if (now || !k->ready_us) {
        kproc_sweep(k->pid, k->id, SIGKILL); /* what has not served yet has nothing to save */
        return;
    }
    if (execq_running(k->queue))
        kproc_signal(k->pid, SIGINT);
    autojson json_t *content = json_pack("{s:b}", "restart", restart);
    struct err e = {0};
    if (!k->conn || kconn_request(k->conn, "shutdown_request", content, &e) < 0) {
        k->escalation = 1;
        kproc_signal(k->pid, SIGTERM);
    }
    k->timer = loop_timer_start(k->host->loop, ask_ms, 0, escalate, k);
}

static void finish_later(void *arg)
{
    struct kernel *k = arg;
    k->timer = loop_timer_stop(k->timer);
    ended(k);
}

void kernel_stop(struct kernel *k, int now, int keep)
{
    if (k->state == KSTATE_STOPPING) {
        if (now && k->pid)
            end_process(k, 1, 0, 0);
        return;
    }
    k->keep = keep;
    kernel_move(k, KSTATE_STOPPING);
    execq_ready(k->queue, 0);
    if (k->pid) {
        end_process(k, now, 0, STOP_ASK_MS);
    } else if (!k->forking && !k->drain) {
        loop_timer_stop(k->timer);
        k->timer = loop_timer_start(k->host->loop, 0, 0, finish_later, k);
    }
}

/* A kernel that is starting or restarting is fresh already, or will be. */
void kernel_restart(struct kernel *k, const char *cwd)
{
    if (k->state == KSTATE_STOPPING)
        return;
    if (cwd)
        json_object_set_new(k->spec, "cwd", json_string(cwd));
    kernel_drop_held(k);
    k->restarts.crashes = 0;
    if (k->state == KSTATE_READY || k->state == KSTATE_CONNECTING) {
        k->restart_asked = 1;
        kernel_move(k, KSTATE_RESTARTING);
        execq_ready(k->queue, 0);
        if (k->pid) /* else it crashed just now */
            end_process(k, 0, 1, RESTART_ASK_MS);
    } else if (k->state == KSTATE_DEAD) {
        kernel_move(k, KSTATE_RESTARTING);
        loop_timer_stop(k->timer);
        k->timer = loop_timer_start(k->host->loop, 0, 0, finish_later, k);
    }
}
