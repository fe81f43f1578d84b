#include "cli/kern.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/loop.h"
#include "base/sys.h"
#include "kernel/journal.h"
#include "kernel/kspec.h"

#define START_MS 60000
#define STOP_MS 15000
#define ROUND_MESSAGES 200 /* read in one round of the loop */

struct kern {
    uv_loop_t *loop;
    struct kern_ops ops;
    void *arg;
    struct shimc *shim;
    char id[SYS_UUID_MAX];
    char *journal_dir;
    struct jreader *reader;
    struct loop_timer *again;
    int held;     /* ops.ready said no */
    int stopping; /* kern_stop was called: an end is no news */
    int ended;    /* ops.ended is to be called, or was */
    int told;
    struct err why;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* --- programs ------------------------------------------------------------------------------ */

static char *parent_dir(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
}

void paths_find(struct paths *p, const struct conf *conf)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = 0;
    p->self = xstrdup(exe);
    p->dir = parent_dir(exe);
    p->python = *conf->python ? xstrdup(conf->python) : xasprintf("%s/venv/bin/python", p->dir);
    if (!*conf->python && access(p->python, X_OK) < 0) {
        free(p->python);
        p->python = xstrdup("/usr/bin/python3");
    }
    /* Links are not followed: an environment is named by where its bin/python lies. */
    autofree char *bin = parent_dir(p->python);
    p->prefix = parent_dir(bin);
}

void paths_free(struct paths *p)
{
    free(p->dir);
    free(p->self);
    free(p->python);
    free(p->prefix);
}

json_t *kern_environ(void)
{
    json_t *o = json_object();
    for (char **v = environ; v && *v; v++) {
        const char *eq = strchr(*v, '=');
        if (!eq)
            continue;
        autofree char *name = xstrndup(*v, (size_t)(eq - *v));
        /* A value that is not UTF-8 cannot travel as JSON; it is left out. */
        IGNORE_RESULT(json_object_set_new(o, name, json_string(eq + 1)));
    }
    return o;
}

int kern_connect(uv_loop_t *loop, const struct cli *c, int start, const struct shimc_ops *ops,
                 void *arg, struct shimc **ret, struct err *e)
{
    struct paths p;
    paths_find(&p, &c->conf);
    autofree char *shim = xasprintf("%s/reitos-shim", p.dir);
    struct shimc_conf sc = {.data = c->conf.data,
                            .role = "cli",
                            .shim = shim,
                            .grace_s = (int)c->conf.grace,
                            .journal_limit_mib = (int)c->conf.journal_limit,
                            .start = start};
    int r = shimc_open(loop, &sc, ops, arg, ret, e);
    paths_free(&p);
    return r;
}

/* --- reading the journal ------------------------------------------------------------------- */

static void pump(struct kern *k);

static void pump_again(void *arg)
{
    struct kern *k = arg;
    k->again = loop_timer_stop(k->again);
    pump(k);
}

static void tell_end(struct kern *k)
{
    if (k->told || k->stopping)
        return;
    k->told = 1;
    k->ops.ended(k->arg, &k->why);
}

/* 1: there is more, 0: nothing more now, -1: held. */
static int read_some(struct kern *k, struct err *e)
{
    if (!k->reader) {
        int r = jreader_open(k->journal_dir, 1, &k->reader, e);
        if (r < 0)
            return r == ERR_NOT_FOUND ? 0 : r;
    }
    for (int i = 0; i < ROUND_MESSAGES; i++) {
        autojmsg struct jmsg *m = NULL;
        if (k->ops.ready && !k->ops.ready(k->arg)) {
            k->held = 1;
            return 0;
        }
        int r = jreader_next(k->reader, &m, NULL, e);
        if (r <= 0)
            return r;
        k->ops.message(k->arg, m);
    }
    return 1;
}

static void pump(struct kern *k)
{
    struct err e = {0};
    if (k->again || k->held)
        return;
    int r = read_some(k, &e);
    if (r < 0 && !k->ended) {
        k->ended = 1;
        k->why = e;
        err_wrap(&k->why, "reading what the kernel said");
    }
    if (r > 0)
        k->again = loop_timer_start(k->loop, 0, 0, pump_again, k);
    else if (k->ended && !k->held)
        tell_end(k);
}

void kern_resume(struct kern *k)
{
    k->held = 0;
    pump(k);
}

/* --- events -------------------------------------------------------------------------------- */

static void end_with(struct kern *k, int code, const char *text)
{
    if (!k->ended) {
        k->ended = 1;
        err_set(&k->why, code, "%s", text);
    }
    pump(k);
}

static void on_grown(void *arg, const char *kid, uint64_t head)
{
    struct kern *k = arg;
    (void)head;
    if (!strcmp(kid, k->id))
        pump(k);
}

static void on_changed(void *arg, const char *kid, json_t *model)
{
    struct kern *k = arg;
    if (strcmp(kid, k->id) != 0 || strcmp(json_get_str(model, "state", ""), "dead") != 0)
        return;
    const char *reason = json_get_str(model, "reason", "");
    autofree char *text = xasprintf("the kernel died: %s", reason);
    end_with(k, ERR_KERNEL, *reason ? text : "the kernel was stopped by someone else");
}

static void on_gone(void *arg, const char *kid)
{
    struct kern *k = arg;
    if (!strcmp(kid, k->id))
        end_with(k, ERR_KERNEL, "the kernel was stopped by someone else");
}

static void on_down(void *arg, const struct err *why)
{
    autofree char *text = xasprintf("the connection to reitos-shim was lost: %s", why->msg);
    end_with(arg, ERR_KERNEL, text);
}

static const struct shimc_ops shim_ops = {on_grown, on_changed, on_gone, on_down};

static void on_started(void *arg, const struct err *e, json_t *reply)
{
    struct kern *k = arg;
    if (e) {
        if (!k->ended) {
            k->ended = 1;
            k->why = *e;
        }
        pump(k);
        return;
    }
    if (k->stopping)
        return;
    k->ops.up(k->arg, reply);
    pump(k);
}

/* --- life ---------------------------------------------------------------------------------- */

static int not_python(const json_t *entry, struct err *e)
{
    const json_t *spec = json_object_get(entry, "spec");
    const char *language = json_get_str(spec, "language", "");
    if (!strcmp(language, "python") || !*language)
        return 0;
    return err_set(e, ERR_UNSUPPORTED, "parameters need a Python kernel; %s is for %s",
                   json_get_str(entry, "name", "this kernel"), language);
}

/* What the kernelspec sets wins over the environment of the caller. */
static void add_env(json_t *request, json_t *env)
{
    if (!env)
        return;
    json_t *all = json_copy(env);
    json_t *own = json_object_get(request, "env");
    if (json_is_object(own))
        json_object_update(all, own);
    json_object_set_new(request, "env", all);
}

/* The kernelspec behind one that runs `reitos kernel-proxy`: its --kernel, NULL for other specs. */
static const char *behind_proxy(const json_t *entry)
{
    const json_t *argv = json_object_get(json_object_get(entry, "spec"), "argv");
    const char *what = json_string_value(json_array_get(argv, 1));
    if (!what || strcmp(what, "kernel-proxy") != 0)
        return NULL;
    for (size_t i = 2; i + 1 < json_array_size(argv); i++) {
        const char *word = json_string_value(json_array_get(argv, i));
        if (word && !strcmp(word, "--kernel"))
            return json_string_value(json_array_get(argv, i + 1));
    }
    return "python3";
}

/* The default interpreter's own kernel, whatever kernelspecs say. */
static json_t *plain_python(const char *python)
{
    return json_pack("{s:s,s:{s:[s,s,s,s,s],s:s,s:s,s:{s:b}},s:{},s:s}", "name", "python3", "spec",
                     "argv", python, "-m", "ipykernel_launcher", "-f", "{connection_file}",
                     "display_name", "Python 3", "language", "python", "metadata", "debugger", 1,
                     "resources", "dir", "");
}

/* A proxy is taken for the kernel behind it; a proxy called like that kernel (so that clients get
 * it unasked) stands for the plain Python one. */
static int find_spec(const struct kspec_conf *kc, const char *name, json_t **ret, struct err *e)
{
    autojson json_t *entry = NULL;
    int r = kspec_find(kc, name, &entry, e);
    const char *behind = r < 0 ? NULL : behind_proxy(entry);
    if (!behind) {
        *ret = r < 0 ? NULL : json_incref(entry);
        return r;
    }
    r = kspec_find(kc, behind, ret, e);
    if (r < 0 || !behind_proxy(*ret))
        return r;
    json_decref(*ret);
    *ret = plain_python(kc->default_python);
    return 0;
}

static int make_request(const struct cli *c, const struct kern_conf *conf, json_t **ret,
                        struct err *e)
{
    struct paths p;
    paths_find(&p, &c->conf);
    struct kspec_conf kc = {.prefix = p.prefix,
                            .default_python = p.python,
                            .zygote = c->conf.zygote,
                            .preload = c->conf.preload};
    autojson json_t *entry = NULL;
    json_t *request = NULL;
    int r = find_spec(&kc, conf->spec ? conf->spec : c->conf.default_kernel, &entry, e);
    if (r >= 0 && conf->needs_python)
        r = not_python(entry, e);
    if (r >= 0)
        r = kspec_start_request(&kc, entry, &request, e);
    paths_free(&p);
    if (r < 0)
        return r;
    add_env(request, conf->env);
    for (int i = 0; i < conf->nargs; i++)
        json_array_append_new(json_object_get(request, "argv"), json_string(conf->args[i]));
    json_object_set_new(request, "op", json_string("start"));
    json_object_set_new(request, "cwd", json_string(conf->cwd));
    json_object_set(request, "annotation", conf->annotation);
    json_object_set_new(request, "restart", json_false());
    json_object_set_new(request, "own", json_true()); /* also when we are killed */
    *ret = request;
    return 0;
}

int kern_open(uv_loop_t *loop, const struct cli *c, const struct kern_conf *conf,
              const struct kern_ops *ops, void *arg, struct kern **ret, struct err *e)
{
    json_t *request = NULL;
    int r = make_request(c, conf, &request, e);
    if (r < 0)
        return r;
    struct kern *k = xcalloc(1, sizeof(*k));
    k->loop = loop;
    k->ops = *ops;
    k->arg = arg;
    sys_uuid(k->id);
    r = kern_connect(loop, c, 1, &shim_ops, k, &k->shim, e);
    if (r < 0) {
        json_decref(request);
        free(k);
        return r;
    }
    k->journal_dir = shimc_journal_dir(k->shim, k->id);
    json_object_set_new(request, "k", json_string(k->id));
    shimc_call(k->shim, request, START_MS, on_started, k);
    *ret = k;
    return 0;
}

void kern_send(struct kern *k, struct jmsg *m)
{
    if (!k->ended)
        shimc_send(k->shim, k->id, m);
}

void kern_interrupt(struct kern *k)
{
    shimc_call(k->shim, json_pack("{s:s,s:s}", "op", "interrupt", "k", k->id), STOP_MS, NULL, NULL);
}

static void on_stopped(void *arg, const struct err *e, json_t *reply)
{
    struct kern *k = arg;
    (void)e; /* a kernel that is already gone is stopped */
    (void)reply;
    k->stopped(k->stopped_arg);
}

void kern_stop(struct kern *k, int now, void (*done)(void *arg), void *arg)
{
    k->stopping = 1;
    k->stopped = done;
    k->stopped_arg = arg;
    shimc_call(k->shim, json_pack("{s:s,s:s,s:b}", "op", "stop", "k", k->id, "now", now), STOP_MS,
               on_stopped, k);
}

void kern_close(struct kern *k)
{
    if (!k)
        return;
    k->again = loop_timer_stop(k->again);
    shimc_close(k->shim);
    jreader_close(k->reader);
    free(k->journal_dir);
    free(k);
}
