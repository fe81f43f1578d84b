/* reitosd: the daemon. Reads the configuration, puts the parts together, runs the loop. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"
#include "gateway/dispatch.h"
#include "gateway/hub.h"
#include "gateway/kernels.h"
#include "gateway/merge.h"
#include "meta/meta.h"

#define SHUTDOWN_MS 15000

struct daemon {
    uv_loop_t loop;
    struct conf conf;
    struct gw gw;
    uv_signal_t signals[4];
    int lock_fd;
    char *base_url, *program_dir, *shim_program, *python, *prefix;
    int stopping, announced;
    struct loop_timer *deadline; /* of the end */
    int detach;                  /* leave the kernels to the next daemon */
};

static void usage(FILE *out)
{
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    conf_help(&b);
    fprintf(out,
            "Usage: reitosd [OPTIONS]\n\n"
            "Serves JupyterLab and the Jupyter API; kernels live in reitos-shim.\n\n%s\n"
            "Signals: TERM, INT, HUP end the daemon and its kernels; USR1 ends only the daemon\n"
            "(its kernels wait --grace seconds for the next one).\n\n"
            "Examples:\n"
            "  reitosd --root ~/notebooks\n"
            "  reitosd --listen unix:/run/user/1000/reitos.sock --token none\n"
            "  reitosd --listen 0.0.0.0:8888 --tls-cert cert.pem --tls-key key.pem\n",
            buf_str(&b));
}

static int is_word(int argc, char **argv, const char *word)
{
    return argc == 2 && !strcmp(argv[1], word);
}

/* --help, --version, --man, --completion: 1 when one of them was served. */
static int informational(int argc, char **argv)
{
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    if (is_word(argc, argv, "--help") || is_word(argc, argv, "-h"))
        usage(stdout);
    else if (is_word(argc, argv, "--version"))
        printf("reitosd %s\n", REITOS_VERSION);
    else if (is_word(argc, argv, "--man"))
        conf_man(&b);
    else if (is_word(argc, argv, "--completion"))
        conf_completion(&b, "reitosd");
    else
        return 0;
    fputs(buf_str(&b), stdout);
    return 1;
}

static int valid_base_url(const char *u)
{
    return u[strspn(u, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/@%+")] ==
           '\0';
}

/* "/x" and "x/" are read as "/x/". */
static int normalise_base_url(struct daemon *d, struct err *e)
{
    const char *u = d->conf.base_url;
    if (!valid_base_url(u) || strstr(u, "//"))
        return err_set(e, ERR_CONFIG, "base-url: %s is not a URL path", u);
    size_t n = strlen(u);
    d->base_url = xasprintf("%s%s%s", *u == '/' ? "" : "/", u, n && u[n - 1] == '/' ? "" : "/");
    if (!n)
        d->base_url[1] = '\0';
    return 0;
}

static int is_loopback(const char *listen)
{
    return !strncmp(listen, "unix:", 5) || !strncmp(listen, "127.", 4) ||
           !strncmp(listen, "[::1]:", 6) || !strncmp(listen, "localhost:", 10);
}

static int check_conf(struct daemon *d, struct err *e)
{
    const struct conf *c = &d->conf;
    int tls = *c->tls_cert != '\0';
    if (tls != (*c->tls_key != '\0'))
        return err_set(e, ERR_CONFIG, "tls-cert and tls-key belong together: give both");
    if (strncmp(c->listen, "unix:", 5) != 0 && !strchr(c->listen, ':'))
        return err_set(e, ERR_CONFIG, "listen: %s is neither ADDR:PORT nor unix:PATH", c->listen);
    if (!is_loopback(c->listen) && !tls && !c->allow_remote)
        return err_set(e, ERR_CONFIG,
                       "listen: %s can be reached from other machines; give --tls-cert and "
                       "--tls-key, or --allow-remote when something in front encrypts",
                       c->listen);
    if (*c->python && access(c->python, X_OK) < 0)
        return err_set(e, ERR_CONFIG, "python: %s: %s", c->python, strerror(errno));
    return normalise_base_url(d, e);
}

static void find_programs(struct daemon *d)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    d->program_dir = xstrndup(exe, slash ? (size_t)(slash - exe) : 0);
    d->shim_program = xasprintf("%s/reitos-shim", d->program_dir);
    if (*d->conf.python) {
        d->python = xstrdup(d->conf.python);
    } else {
        d->python = xasprintf("%s/venv/bin/python", d->program_dir);
        if (access(d->python, X_OK) < 0) {
            free(d->python);
            d->python = xstrdup("/usr/bin/python3");
        }
    }
    /* Not resolved: an environment is named by where its bin/python lies, often a link. */
    d->prefix = xstrdup(d->python);
    for (int i = 0; i < 2; i++) {
        slash = strrchr(d->prefix, '/');
        if (slash)
            *slash = '\0';
    }
}

static int lock_data(struct daemon *d, struct err *e)
{
    const char *data = d->conf.data;
    const char *net = fs_network_type(data);
    autofree char *run = xasprintf("%s/run", data);
    if (fs_mkdirs(data, 0700, e) < 0 || fs_mkdirs(run, 0700, e) < 0)
        return err_wrap(e, "data");
    if (!net)
        net = fs_network_type(data);
    if (net)
        return err_set(e, ERR_CONFIG,
                       "data: %s is on a network file system (%s), where journals and locks are "
                       "not safe; use a local folder, for example --data /var/tmp/reitos-%s",
                       data, net, sys.env("USER") ? sys.env("USER") : "me");
    d->gw.data = realpath(data, NULL);
    if (!d->gw.data)
        return err_errno(e, errno, "data: %s", data);
    autofree char *lock = xasprintf("%s/reitosd.lock", run);
    d->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock_fd < 0)
        return err_errno(e, errno, "%s", lock);
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, ERR_CONFIG,
                       "data: another reitosd uses %s; stop it, or give this one --data DIR", data);
    return 0;
}

static int open_root(struct daemon *d, struct err *e)
{
    if (fs_root_open(d->conf.root, &d->gw.root, e) < 0) {
        err_wrap(e, "root");
        e->code = ERR_CONFIG;
        return e->code;
    }
    return 0;
}

static int start_modules(struct daemon *d, struct err *e)
{
    struct gw *gw = &d->gw;
    autofree char *url = xasprintf("sqlite:%s/meta.db", gw->data);
    int rc = meta_open(gw->loop, url, &gw->meta, e);
    if (rc < 0)
        return rc;
    gw->metrics = metrics_new();
    gw->events = events_new(gw);
    gw->kspecs = kspecs_new(gw);
    gw->terminals = terminals_new(gw);
    gw->lab = lab_new(gw);
    gw->auth = auth_new(gw, e);
    gw->contents = gw->auth ? contents_new(gw, e) : NULL;
    gw->merge = gw->contents ? merge_new(gw, e) : NULL;
    gw->kernels = gw->merge ? kernels_new(gw, e) : NULL;
    return gw->kernels ? 0 : e->code;
}

static int start_http(struct daemon *d, struct err *e)
{
    const struct conf *c = &d->conf;
    struct http_conf hc = {
        .listen = c->listen,
        .base_url = d->base_url,
        .tls_cert = *c->tls_cert ? c->tls_cert : NULL,
        .tls_key = *c->tls_key ? c->tls_key : NULL,
        .filter = dispatch_filter,
        .handle = dispatch_handle,
        .upgrade = dispatch_upgrade,
        .done = dispatch_done,
        .arg = &d->gw,
    };
    return http_server_start(d->gw.loop, &hc, &d->gw.http, e);
}

/* The address for people and for `reitos status`; heap. */
static char *public_url(const struct daemon *d)
{
    const struct conf *c = &d->conf;
    if (!strncmp(c->listen, "unix:", 5))
        return xasprintf("%s%s", c->listen, d->base_url);
    const char *colon = strrchr(c->listen, ':');
    int hostlen = colon ? (int)(colon - c->listen) : (int)strlen(c->listen);
    int any = !strncmp(c->listen, "0.0.0.0", 7) || !strncmp(c->listen, "[::]", 4);
    return xasprintf("http%s://%.*s:%d%s", *c->tls_cert ? "s" : "", any ? 9 : hostlen,
                     any ? "127.0.0.1" : c->listen, http_server_port(d->gw.http), d->base_url);
}

static int announce(struct daemon *d, struct err *e)
{
    const char *token = auth_token(d->gw.auth);
    autofree char *url = public_url(d);
    char started[SYS_TIME_MAX];
    autojson json_t *info =
        json_pack("{s:s,s:s,s:i,s:s,s:s}", "url", url, "token", token, "pid", (int)getpid(),
                  "started", sys_time_iso(d->gw.started_us, started), "root", d->gw.root.path);
    autofree char *text = json_text(info);
    autofree char *path = xasprintf("%s/run/reitosd.json", d->gw.data);
    int rc = fs_write_path(path, text, strlen(text), 0600, e);
    if (rc < 0)
        return rc;
    d->announced = 1;
    printf("REITOS %s serves %s\n\n    %slab%s%s\n\nStop it with Ctrl-C.\n", REITOS_VERSION,
           d->gw.root.path, url, *token ? "?token=" : "", token);
    fflush(stdout);
    return 0;
}

/* ---- the end ---- */

static void shutdown_asked(void *arg, const struct err *e, json_t *reply)
{
    struct daemon *d = arg;
    (void)reply; /* the loop ends when the shim has ended (gw.ending) */
    if (!e)
        return;
    log_warn("the kernels' parent process does not answer", "reason", e->msg, NULL);
    uv_stop(&d->loop);
}

static void shutdown_late(void *arg)
{
    struct daemon *d = arg;
    log_warn("kernels have not ended in time", NULL);
    uv_stop(&d->loop);
}

static void begin_stop(uv_signal_t *s, int signum)
{
    struct daemon *d = s->data;
    if (d->stopping++) {
        if (d->stopping > 2) /* asked a third time: do not wait for kernels */
            uv_stop(&d->loop);
        return;
    }
    d->detach = signum == SIGUSR1;
    log_info("stopping", "signal", strsignal(signum), NULL);
    merge_flush_all(&d->gw);
    http_server_stop(d->gw.http);
    d->gw.http = NULL;
    if (d->detach || !d->gw.shim) {
        uv_stop(&d->loop);
        return;
    }
    d->gw.ending = 1;
    d->deadline = loop_timer_start(&d->loop, SHUTDOWN_MS, 0, shutdown_late, d);
    shimc_call(d->gw.shim, json_pack("{s:s,s:b}", "op", "shutdown", "now", 0), SHUTDOWN_MS,
               shutdown_asked, d);
}

static void watch_signals(struct daemon *d)
{
    static const int which[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < COUNTOF(which); i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], begin_stop, which[i]);
        uv_unref((uv_handle_t *)&d->signals[i]);
    }
}

static void fini(struct daemon *d)
{
    struct gw *gw = &d->gw;
    if (gw->http)
        http_server_stop(gw->http);
    loop_timer_stop(d->deadline);
    loop_drain(&d->loop);
    kernels_free(gw->kernels);
    gw->kernels = NULL;
    merge_free(gw->merge);
    contents_free(gw->contents);
    lab_free(gw->lab);
    terminals_free(gw->terminals);
    events_free(gw->events);
    kspecs_free(gw->kspecs);
    if (gw->shim)
        shimc_close(gw->shim);
    auth_free(gw->auth);
    metrics_free(gw->metrics);
    if (gw->meta)
        meta_close(gw->meta);
    if (d->announced) { /* else the file may be another daemon's */
        autofree char *path = xasprintf("%s/run/reitosd.json", gw->data);
        unlink(path);
    }
    loop_fini(&d->loop);
    fs_root_close(&gw->root);
    free(gw->data);
    free(d->base_url);
    free(d->program_dir);
    free(d->shim_program);
    free(d->python);
    free(d->prefix);
    conf_free(&d->conf);
}

static int serve(struct daemon *d, struct err *e)
{
    int rc;
    find_programs(d);
    d->gw = (struct gw){.loop = &d->loop,
                        .conf = &d->conf,
                        .base_url = d->base_url,
                        .shim_program = d->shim_program,
                        .python = d->python,
                        .prefix = d->prefix,
                        .root = {.fd = -1},
                        .started_us = sys.wall_us(),
                        .last_activity_us = sys.wall_us()};
    if ((rc = open_root(d, e)) < 0 || (rc = lock_data(d, e)) < 0 ||
        (rc = start_modules(d, e)) < 0 || (rc = start_http(d, e)) < 0 || (rc = announce(d, e)) < 0)
        return rc;
    uv_run(&d->loop, UV_RUN_DEFAULT);
    return 0;
}

static enum log_level level_of(const char *name)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    for (size_t i = 0; i < COUNTOF(names); i++) {
        if (!strcmp(name, names[i]))
            return (enum log_level)i;
    }
    return LOG_INFO;
}

int main(int argc, char **argv)
{
    static struct daemon d = {.lock_fd = -1};
    struct err e = {0};
    int used = 0;
    if (informational(argc, argv))
        return 0;
    json_setup();
    d.gw.root.fd = -1;
    int rc = conf_load(&d.conf, argc, argv, &used, &e);
    if (rc == 0 && used < argc - 1)
        rc = err_set(&e, ERR_CONFIG, "unexpected argument: %s", argv[used + 1]);
    if (rc == 0)
        rc = hub_apply_conf(&d.conf, &e);
    if (rc == 0)
        rc = check_conf(&d, &e);
    if (rc < 0) {
        fprintf(stderr, "reitosd: %s\n", e.msg);
        conf_free(&d.conf);
        return 2;
    }
    log_setup(level_of(d.conf.log_level), !strcmp(d.conf.log, "json"), "reitosd");
    uv_loop_init(&d.loop);
    watch_signals(&d);
    rc = serve(&d, &e);
    if (rc < 0)
        fprintf(stderr, "reitosd: %s\n", e.msg);
    fini(&d);
    return err_exit(rc);
}
