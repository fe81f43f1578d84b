/* reitos run: a notebook from top to bottom, without a page. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/loop.h"
#include "cli/cli.h"
#include "cli/kern.h"
#include "cli/nbprep.h"
#include "cli/nbrun.h"
#include "wire/nb.h"

struct run {
    uv_loop_t loop;
    uv_signal_t signals[2];
    struct kern *kern;
    struct nbrun *nbrun;
    json_t *notebook;
    char *in, *out, *folder;
    int code;
};

/* --- input and output ---------------------------------------------------------------------- */

static int read_notebook(struct run *r, struct err *e)
{
    autobuf struct buf text = BUF_INIT(JSON_TEXT_MAX);
    struct err why = {0};
    int rc = fs_read_path(r->in, JSON_TEXT_MAX, &text, &why);
    if (rc < 0)
        return err_set(e, ERR_INVALID, "%s", why.msg);
    rc = json_parse(buf_str(&text), text.len, &r->notebook, &why);
    if (rc >= 0) {
        nb_upgrade(r->notebook);
        rc = nb_check(r->notebook, &why);
    }
    /* whatever is wrong with it, naming this notebook was wrong use */
    return rc < 0 ? err_set(e, ERR_INVALID, "%s: %s", r->in, why.msg) : 0;
}

static int collect_params(const struct cli *c, json_t *params, struct err *e)
{
    for (int i = 0;; i++) {
        autofree char *name = NULL;
        autofree char *literal = NULL;
        const char *text = cli_nth(c, "param", i);
        int rc = text ? nbprep_param(text, &name, &literal, e) : 0;
        if (!text || rc < 0)
            return rc;
        json_object_set_new(params, name, json_string(literal));
    }
}

/* "x.ipynb" becomes "x.out.ipynb". */
static char *default_out(const char *in)
{
    size_t n = strlen(in), ext = strlen(".ipynb");
    if (n > ext && !strcmp(in + n - ext, ".ipynb"))
        n -= ext;
    return xasprintf("%.*s.out.ipynb", (int)n, in);
}

/* The kernel's working directory is the notebook's folder, as under Jupyter. */
static int find_folder(struct run *r, struct err *e)
{
    char *real = realpath(r->in, NULL);
    if (!real)
        return err_errno(e, errno, "%s", r->in);
    free(r->in);
    r->in = real;
    char *slash = strrchr(real, '/');
    r->folder = slash == real ? xstrdup("/") : xstrndup(real, (size_t)(slash - real));
    return 0;
}

static int prepare(struct run *r, const struct cli *c, struct err *e)
{
    autojson json_t *params = json_object();
    const char *out = cli_value(c, "output");
    r->in = xstrdup(c->operands[0]);
    int rc = collect_params(c, params, e);
    if (rc < 0 || (rc = read_notebook(r, e)) < 0 || (rc = find_folder(r, e)) < 0)
        return rc;
    r->out = out ? xstrdup(out) : default_out(c->operands[0]);
    nbprep_upgrade(r->notebook);
    if (json_object_size(params))
        nbprep_inject(r->notebook, params);
    return 0;
}

/* --- the run ------------------------------------------------------------------------------- */

static void on_stopped(void *arg)
{
    struct run *r = arg;
    uv_stop(&r->loop);
}

static void on_done(void *arg, int code, int now)
{
    struct run *r = arg;
    r->code = code;
    kern_stop(r->kern, now, on_stopped, r);
}

static void on_send(void *arg, struct jmsg *m)
{
    struct run *r = arg;
    kern_send(r->kern, m);
}

static void on_interrupt(void *arg)
{
    struct run *r = arg;
    kern_interrupt(r->kern);
}

static void on_up(void *arg, json_t *model)
{
    struct run *r = arg;
    (void)model;
    nbrun_start(r->nbrun);
}

static void on_message(void *arg, struct jmsg *m)
{
    struct run *r = arg;
    nbrun_message(r->nbrun, m);
}

static void on_ended(void *arg, const struct err *why)
{
    struct run *r = arg;
    nbrun_lost(r->nbrun, why);
}

static void on_signal(uv_signal_t *s, int signum)
{
    struct run *r = s->data;
    nbrun_stop(r->nbrun, 128 + signum);
}

static void watch_signals(struct run *r)
{
    static const int which[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < COUNTOF(which); i++) {
        uv_signal_init(&r->loop, &r->signals[i]);
        r->signals[i].data = r;
        uv_signal_start(&r->signals[i], on_signal, which[i]);
        uv_unref((uv_handle_t *)&r->signals[i]);
    }
}

static int start_kernel(struct run *r, const struct cli *c, struct err *e)
{
    static const struct kern_ops ops = {on_up, on_message, on_ended, NULL};
    const char *spec = cli_value(c, "kernel");
    autojson json_t *annotation = json_pack("{s:s,s:s}", "path", r->in, "owner", "reitos run");
    autojson json_t *env = kern_environ();
    struct kern_conf kc = {.spec = spec ? spec : nbprep_kernel(r->notebook),
                           .cwd = r->folder,
                           .annotation = annotation,
                           .env = env,
                           .needs_python = cli_given(c, "param")};
    int rc = kern_open(&r->loop, c, &kc, &ops, r, &r->kern, e);
    if (rc != ERR_NOT_FOUND)
        return rc;
    autofree char *why = xstrdup(e->msg);
    return err_set(e, ERR_INVALID, "%s%s", why,
                   spec ? "" : "; the notebook asks for it, choose another with --kernel NAME");
}

static int run_notebook(struct run *r, const struct cli *c, struct err *e)
{
    struct nbrun_conf nc = {.notebook = r->notebook,
                            .out = r->out,
                            .allow_errors = cli_given(c, "allow-errors"),
                            .send = on_send,
                            .interrupt = on_interrupt,
                            .done = on_done,
                            .arg = r};
    int rc = cli_number(c, "timeout", 0, &nc.timeout_s, e);
    if (rc < 0)
        return rc;
    uv_loop_init(&r->loop);
    r->nbrun = nbrun_new(&r->loop, &nc);
    rc = nbrun_save(r->nbrun, e); /* tells now whether the place can be written */
    if (rc >= 0)
        rc = start_kernel(r, c, e);
    if (rc >= 0) {
        watch_signals(r);
        uv_run(&r->loop, UV_RUN_DEFAULT);
        rc = r->code;
    }
    kern_close(r->kern);
    r->nbrun = nbrun_free(r->nbrun);
    loop_fini(&r->loop);
    return rc;
}

static int run_run(struct cli *c, struct err *e)
{
    struct run r = {0};
    int rc = prepare(&r, c, e);
    if (rc >= 0)
        rc = run_notebook(&r, c, e);
    if (rc >= 0)
        fprintf(stderr, "%s: %s\n", rc == 0 ? "Done" : "Stopped", r.out);
    json_decref(r.notebook);
    free(r.in);
    free(r.out);
    free(r.folder);
    return rc;
}

static const struct cli_option options[] = {
    {"output", 'o', "FILE", "notebook to write (default: NAME.out.ipynb beside the input)"},
    {"param", 'p', "NAME=VALUE",
     "set a parameter; may be repeated. VALUE: number, true, false, none, a JSON list or object, "
     "else text"},
    {"timeout", 't', "SECONDS", "interrupt a cell that runs longer, and stop with exit code 1"},
    {"allow-errors", 0, NULL, "go on after a cell that raised an error"},
    {"kernel", 'k', "NAME", "kernelspec to use (default: the notebook's, else the configured one)"},
    CLI_OPTIONS_END,
};

const struct cli_command cli_run = {
    .name = "run",
    .operands = "NOTEBOOK",
    .summary = "run a notebook from top to bottom",
    .description =
        "Starts a kernel in the notebook's folder, runs its code cells in order and stops the "
        "kernel. No daemon is needed. NOTEBOOK stays as it is; the output file is replaced after "
        "each cell, so that what was done is kept when the run is cut short.\n"
        "Parameters are put into a new cell tagged injected-parameters, after the cell tagged "
        "parameters or at the top. The first cell that raises an error ends the run with exit "
        "code 1, unless --allow-errors is given or the cell is tagged raises-exception. Ctrl-C "
        "interrupts the cell, saves, and exits with 130.",
    .examples = "reitos run train.ipynb\n"
                "reitos run train.ipynb -o out/lr3.ipynb -p lr=0.001 -p layers='[64, 32]'\n"
                "reitos run report.ipynb --timeout 600 --allow-errors",
    .options = options,
    .min = 1,
    .max = 1,
    .run = run_run,
};
