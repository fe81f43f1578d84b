#include "cli/nbrun.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/loop.h"
#include "base/sys.h"
#include "cli/nbprep.h"
#include "cli/progress.h"
#include "wire/nb.h"
#include "wire/nb_widgets.h"

#define INFO_MS 60000      /* for the kernel to answer its first request */
#define INTERRUPT_MS 10000 /* for a cell to end after an interrupt */
#define TICK_MS 200        /* of the progress line */
#define SAVE_US 5000000    /* between saves inside a cell */

struct run_cell {
    json_t *cell; /* borrowed from the notebook */
    struct nb_cell *fold;
};

struct nbrun {
    uv_loop_t *loop;
    struct nbrun_conf conf;
    struct progress progress;
    struct nb_widgets *widgets;
    struct run_cell *cells; /* code cells that hold code */
    size_t ncells, at;
    char session[SYS_UUID_MAX];
    struct jmsg *request; /* the one that is being answered */
    int replied, idle, failed;
    int64_t started_us, saved_us;
    int dirty;      /* outputs arrived since the last save */
    int ending;     /* exit code once the cell has ended; 0: goes on */
    int over;       /* `done` was called */
    char *headline; /* source of the running cell */
    struct loop_timer *tick, *deadline;
};

static void next_cell(struct nbrun *r);

static int is_blank(const char *s)
{
    return !s[strspn(s, " \t\r\n")];
}

struct nbrun *nbrun_new(uv_loop_t *loop, const struct nbrun_conf *conf)
{
    struct nbrun *r = xcalloc(1, sizeof(*r));
    json_t *cells = json_object_get(conf->notebook, "cells"), *cell;
    size_t i;
    r->loop = loop;
    r->conf = *conf;
    r->cells = xcalloc(json_array_size(cells) + 1, sizeof(*r->cells));
    r->widgets = nb_widgets_new();
    sys_uuid(r->session);
    json_array_foreach(cells, i, cell)
    {
        if (strcmp(json_get_str(cell, "cell_type", ""), "code") != 0)
            continue;
        autofree char *source = nb_source(cell);
        if (source && !is_blank(source))
            r->cells[r->ncells++].cell = cell;
    }
    progress_init(&r->progress, r->ncells);
    return r;
}

static void stop_timers(struct nbrun *r)
{
    r->tick = loop_timer_stop(r->tick);
    r->deadline = loop_timer_stop(r->deadline);
}

struct nbrun *nbrun_free(struct nbrun *r)
{
    if (!r)
        return NULL;
    stop_timers(r);
    for (size_t i = 0; i < r->ncells; i++)
        nb_cell_free(r->cells[i].fold);
    jmsg_unref(r->request);
    nb_widgets_free(r->widgets);
    free(r->cells);
    free(r->headline);
    free(r);
    return NULL;
}

/* --- saving -------------------------------------------------------------------------------- */

static void take_outputs(struct run_cell *c)
{
    int count = nb_cell_execution_count(c->fold);
    json_object_set_new(c->cell, "outputs", json_deep_copy(nb_cell_outputs(c->fold)));
    json_object_set_new(c->cell, "execution_count", count ? json_integer(count) : json_null());
}

int nbrun_save(struct nbrun *r, struct err *e)
{
    autobuf struct buf b = BUF_INIT(JSON_TEXT_MAX);
    if (r->at < r->ncells && r->cells[r->at].fold)
        take_outputs(&r->cells[r->at]);
    nb_widgets_put(r->widgets, r->conf.notebook);
    int rc = nb_write(r->conf.notebook, &b);
    if (rc < 0)
        return err_set(e, rc, "%s: the notebook is too large", r->conf.out);
    rc = fs_write_path(r->conf.out, buf_str(&b), b.len, 0, e);
    r->saved_us = sys.mono_us();
    r->dirty = 0;
    return rc;
}

static int is_running(const struct nbrun *r)
{
    return r->at < r->ncells && r->cells[r->at].fold;
}

static void finish(struct nbrun *r, int code)
{
    struct err e = {0};
    if (r->over)
        return;
    r->over = 1;
    stop_timers(r);
    int rc = nbrun_save(r, &e);
    if (rc < 0) {
        progress_note(&r->progress, e.msg);
        code = code ? code : err_exit(rc);
    }
    r->conf.done(r->conf.arg, code, is_running(r));
}

/* --- one cell ------------------------------------------------------------------------------ */

static void give_up(void *arg)
{
    struct nbrun *r = arg;
    r->deadline = loop_timer_stop(r->deadline);
    progress_note(&r->progress, "The cell did not end after the interrupt; its kernel is killed.");
    finish(r, r->ending);
}

/* Interrupts the running cell; the run ends with `code` when the cell has. */
static void end_with(struct nbrun *r, int code)
{
    r->ending = code;
    r->deadline = loop_timer_stop(r->deadline);
    r->deadline = loop_timer_start(r->loop, INTERRUPT_MS, 0, give_up, r);
    r->conf.interrupt(r->conf.arg);
}

static void cell_timeout(void *arg)
{
    struct nbrun *r = arg;
    autofree char *text = xasprintf("Cell %zu ran longer than --timeout %lld s and is interrupted.",
                                    r->at + 1, (long long)r->conf.timeout_s);
    progress_note(&r->progress, text);
    end_with(r, 1);
}

static void on_tick(void *arg)
{
    struct nbrun *r = arg;
    struct err e = {0};
    int64_t now = sys.mono_us();
    progress_cell(&r->progress, r->at + 1, now - r->started_us, r->headline, 0);
    if (!r->dirty || now - r->saved_us < SAVE_US)
        return;
    if (nbrun_save(r, &e) < 0) {
        progress_note(&r->progress, e.msg);
        end_with(r, 1);
    }
}

static void send_request(struct nbrun *r, const char *type, json_t *content)
{
    jmsg_unref(r->request);
    r->request = jmsg_make(JCHAN_SHELL, type, r->session, NULL, content);
    r->replied = r->idle = r->failed = 0;
    json_decref(content);
    r->conf.send(r->conf.arg, r->request);
}

static int is_tolerated(const struct nbrun *r, const struct run_cell *c)
{
    return r->conf.allow_errors || nbprep_tagged(c->cell, "raises-exception");
}

static void start_cell(struct nbrun *r)
{
    struct run_cell *c = &r->cells[r->at];
    int tolerated = is_tolerated(r, c);
    free(r->headline);
    r->headline = nb_source(c->cell);
    c->fold = nb_cell_new();
    r->dirty = 1;
    r->started_us = sys.mono_us();
    if (r->conf.timeout_s > 0)
        r->deadline =
            loop_timer_start(r->loop, (uint64_t)r->conf.timeout_s * 1000, 0, cell_timeout, r);
    progress_cell(&r->progress, r->at + 1, 0, r->headline, 0);
    send_request(r, "execute_request",
                 json_pack("{s:s,s:b,s:b,s:{},s:b,s:b}", "code", r->headline, "silent", 0,
                           "store_history", 1, "user_expressions", "allow_stdin", 0,
                           "stop_on_error", !tolerated));
}

static void next_cell(struct nbrun *r)
{
    if (r->ending || r->at == r->ncells) {
        finish(r, r->ending);
        return;
    }
    start_cell(r);
}

static const json_t *error_output(struct nb_cell *fold)
{
    const json_t *outputs = nb_cell_outputs(fold), *o, *found = NULL;
    size_t i;
    json_array_foreach(outputs, i, o)
    {
        if (!strcmp(json_get_str(o, "output_type", ""), "error"))
            found = o;
    }
    return found;
}

/* The exit code that a failed cell asks for; 0: go on. No tolerance helps when the kernel died or
 * did not take the cell. */
static int judge_failure(const struct nbrun *r, const struct run_cell *c)
{
    const json_t *error = error_output(c->fold);
    if (!error) {
        progress_note(&r->progress, "The kernel did not run the cell.");
        return 1;
    }
    progress_error(&r->progress, r->at + 1, error);
    int died = !strcmp(json_get_str(error, "ename", ""), "KernelDied");
    return died || !is_tolerated(r, c);
}

/* Reply and idle have both arrived. */
static void cell_ended(struct nbrun *r)
{
    struct run_cell *c = &r->cells[r->at];
    struct err e = {0};
    r->deadline = loop_timer_stop(r->deadline);
    progress_cell(&r->progress, r->at + 1, sys.mono_us() - r->started_us, r->headline, 1);
    if (r->failed && !r->ending)
        r->ending = judge_failure(r, c);
    int rc = nbrun_save(r, &e);
    if (rc < 0) {
        progress_note(&r->progress, e.msg);
        r->ending = r->ending ? r->ending : err_exit(rc);
    }
    r->at++;
    next_cell(r);
}

/* --- messages ------------------------------------------------------------------------------ */

static void no_info(void *arg)
{
    struct nbrun *r = arg;
    r->deadline = loop_timer_stop(r->deadline);
    progress_note(&r->progress, "The kernel did not answer; see reitos ps and its stderr.log.");
    finish(r, 1);
}

void nbrun_start(struct nbrun *r)
{
    r->deadline = loop_timer_start(r->loop, INFO_MS, 0, no_info, r);
    send_request(r, "kernel_info_request", json_object());
}

/* The notebook says which language its cells are in, as other clients write it. */
static void take_info(struct nbrun *r, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    r->deadline = loop_timer_stop(r->deadline);
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) >= 0) {
        json_t *info = json_object_get(content, "language_info");
        if (json_is_object(info))
            json_object_set(json_object_get(r->conf.notebook, "metadata"), "language_info", info);
    }
    r->tick = loop_timer_start(r->loop, TICK_MS, TICK_MS, on_tick, r);
    next_cell(r);
}

static void take_reply(struct nbrun *r, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    int rc = jmsg_json(m, JPART_CONTENT, &content, NULL);
    r->failed = rc < 0 || strcmp(json_get_str(content, "status", ""), "ok") != 0;
    r->replied = 1;
}

/* A display that an earlier cell shows may be updated by a later one. */
static void update_displays(struct nbrun *r, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    const char *id = json_get_str(json_object_get(content, "transient"), "display_id", NULL);
    for (size_t i = 0; id && i < r->at; i++)
        if (r->cells[i].fold &&
            nb_cell_update_display(r->cells[i].fold, id, json_object_get(content, "data"),
                                   json_object_get(content, "metadata")) > 0)
            take_outputs(&r->cells[i]);
}

static void take_iopub(struct nbrun *r, struct jmsg *m)
{
    struct nb_cell *fold = r->at < r->ncells ? r->cells[r->at].fold : NULL;
    if (jmsg_is(m, "update_display_data"))
        update_displays(r, m);
    if (nb_widgets_feed(r->widgets, m) || (fold && nb_cell_feed(fold, m) > 0))
        r->dirty = 1;
    if (jmsg_is(m, "status")) {
        autojson json_t *content = NULL;
        if (jmsg_json(m, JPART_CONTENT, &content, NULL) >= 0 &&
            !strcmp(json_get_str(content, "execution_state", ""), "idle"))
            r->idle = 1;
    }
}

void nbrun_message(struct nbrun *r, struct jmsg *m)
{
    const struct jhead *h, *request;
    struct err e = {0};
    if (r->over || !r->request || jmsg_head(m, &h, &e) < 0 ||
        jmsg_head(r->request, &request, &e) < 0)
        return; /* a message that cannot be read belongs to no cell */
    if (strcmp(h->parent_id, request->msg_id) != 0)
        return;
    if (m->channel == JCHAN_SHELL && jmsg_is(m, "kernel_info_reply")) {
        take_info(r, m);
        return;
    }
    if (m->channel == JCHAN_SHELL && jmsg_is(m, "execute_reply"))
        take_reply(r, m);
    else if (m->channel == JCHAN_IOPUB && jmsg_is(r->request, "execute_request"))
        take_iopub(r, m);
    if (r->replied && r->idle)
        cell_ended(r);
}

/* --- ends ---------------------------------------------------------------------------------- */

void nbrun_stop(struct nbrun *r, int code)
{
    if (r->over)
        return;
    if (r->ending || !is_running(r)) {
        r->ending = code;
        finish(r, code);
        return;
    }
    progress_note(&r->progress, "Interrupting; once more to end at once.");
    end_with(r, code);
}

void nbrun_lost(struct nbrun *r, const struct err *why)
{
    if (r->over)
        return;
    autofree char *text =
        is_running(r) ? xasprintf("Cell %zu: %s", r->at + 1, why->msg) : xasprintf("%s", why->msg);
    progress_note(&r->progress, text);
    finish(r, r->ending ? r->ending : err_exit(why->code));
}
