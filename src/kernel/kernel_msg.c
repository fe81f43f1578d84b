/* The messages of a kernel: from clients through the queue, from the kernel to the journal. */
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernel/kernel_own.h"

#define NO_REPLY_MS 400       /* an interrupted request that went idle is given up after this */
#define NO_REPLY_IDLE_MS 5000 /* ... and any other one */
/* ipykernel loses a signal that comes between execute_input and the cell's own code. */
#define SETTLE_MS 30

static void set_busy(struct kernel *k, int busy)
{
    k->active_us = sys.wall_us();
    k->busy = busy;
    k->host->changed(k->host->arg, k, 0);
}

/* ---- to the kernel ---- */

static int hold(struct kernel *k, struct list *l, size_t *count, struct jmsg *m)
{
    if (*count >= KERNEL_HELD_MAX) {
        log_warn("request to a kernel dropped: too many wait", "kernel", k->id, NULL);
        return ERR_BUSY;
    }
    struct held *h = xcalloc(1, sizeof *h);
    h->m = jmsg_ref(m);
    list_append(l, &h->link);
    (*count)++;
    return 0;
}

static struct jmsg *unhold(struct list *l, size_t *count)
{
    if (list_empty(l))
        return NULL;
    struct held *h = container_of(l->next, struct held, link);
    struct jmsg *m = h->m;
    list_remove(&h->link);
    (*count)--;
    free(h);
    return m;
}

static void unhold_all(struct list *l, size_t *count)
{
    for (struct jmsg *m; (m = unhold(l, count));)
        jmsg_unref(m);
}

static void transmit(struct kernel *k, struct jmsg *m)
{
    struct err e = {0};
    if (!k->conn || !k->pid)
        IGNORE_RESULT(hold(k, &k->held, &k->held_count, m)); /* logged there */
    else if (kconn_send(k->conn, m, &e) < 0)
        log_warn("request to a kernel dropped", "kernel", k->id, "reason", e.msg, NULL);
}

void kernel_connected(struct kernel *k)
{
    for (size_t n = k->held_count; n > 0; n--) {
        autojmsg struct jmsg *m = unhold(&k->held, &k->held_count);
        transmit(k, m);
    }
}

void kernel_drop_held(struct kernel *k)
{
    unhold_all(&k->held, &k->held_count);
    k->held_interrupt = jmsg_unref(k->held_interrupt);
}

/* stop_on_error is the queue's business: a kernel that also drops requests would hit one that was
 * sent just after the error. NULL when the content is left as it is. */
static struct jmsg *without_stop_on_error(struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0 || !json_is_object(content) ||
        !json_get_bool(content, "stop_on_error", 1))
        return NULL;
    json_object_set_new(content, "stop_on_error", json_false());
    autofree char *text = json_text(content);
    autofree struct slice *parts = xcalloc(m->nparts, sizeof *parts);
    memcpy(parts, m->parts, m->nparts * sizeof *parts);
    parts[JPART_CONTENT] = (struct slice){text, strlen(text)};
    struct jmsg *copy = NULL;
    return jmsg_new(m->channel, parts, m->nparts, &copy, NULL) < 0 ? NULL : copy;
}

static void on_queue_send(void *arg, struct jmsg *m)
{
    struct kernel *k = arg;
    const struct jhead *h;
    if (jmsg_head(m, &h, NULL) < 0 || strcmp(h->msg_type, "execute_request") != 0) {
        transmit(k, m);
        return;
    }
    kernel_record(k, m);
    autojmsg struct jmsg *copy = *h->subshell_id ? NULL : without_stop_on_error(m);
    transmit(k, copy ? copy : m);
    k->interrupted = 0;
    k->host->changed(k->host->arg, k, 0);
}

static void on_queue_abort(void *arg, struct jmsg *request)
{
    struct kernel *k = arg;
    kernel_say_status(k, "busy", request);
    kernel_say(
        k, JCHAN_SHELL, "execute_reply", request,
        json_pack("{s:s, s:s, s:s, s:[]}", "status", "aborted", "ename", "Aborted", "evalue",
                  "not run: an earlier cell failed, or the kernel was interrupted or restarted",
                  "traceback"));
    kernel_say_status(k, "idle", request);
}

static json_t *error_content(const char *ename, const char *evalue, int64_t count)
{
    json_t *c = json_pack("{s:s, s:s, s:[s]}", "ename", ename, "evalue", evalue, "traceback", "");
    autofree char *line = xasprintf("%s: %s", ename, evalue);
    json_array_set_new(json_object_get(c, "traceback"), 0, json_string(line));
    if (count >= 0) {
        json_object_set_new(c, "status", json_string("error"));
        json_object_set_new(c, "execution_count", json_integer(count));
    }
    return c;
}

static void on_queue_fail(void *arg, struct jmsg *request, const char *cause)
{
    struct kernel *k = arg;
    if (!k->quiet)
        kernel_say(k, JCHAN_IOPUB, "error", request, error_content("KernelDied", cause, -1));
    kernel_say(k, JCHAN_SHELL, "execute_reply", request,
               error_content("KernelDied", cause, k->execution_count));
    kernel_say_status(k, "idle", request);
}

static const struct execq_ops queue_ops = {on_queue_send, on_queue_abort, on_queue_fail};

void kernel_died(struct kernel *k, const char *cause)
{
    k->no_reply = loop_timer_stop(k->no_reply);
    k->settle = loop_timer_stop(k->settle);
    execq_died(k->queue, cause);
    k->busy = 0;
}

/* ---- kernel_info ---- */

/* The page shows what the last status says: after the answer's "idle" comes the truth. */
static void answer_info(struct kernel *k, struct jmsg *request)
{
    kernel_say(k, JCHAN_SHELL, "kernel_info_reply", request, json_incref(k->info));
    kernel_say_status(k, "idle", request);
    if (k->busy && k->state == KSTATE_READY)
        kernel_say_status(k, "busy", execq_running(k->queue));
}

void kernel_serve(struct kernel *k)
{
    json_decref(k->info);
    k->info = json_incref(kconn_info(k->conn));
    set_busy(k, 0);
    for (struct jmsg *m; (m = unhold(&k->info_waiting, &k->info_count));) {
        answer_info(k, m);
        jmsg_unref(m);
    }
    execq_ready(k->queue, 1);
}

/* ---- requests that were sent while the old process ends ---- */

void kernel_push_later(struct kernel *k)
{
    for (struct jmsg *m; (m = unhold(&k->later, &k->later_count));) {
        struct err e = {0};
        if (execq_push(k->queue, m, &e) < 0)
            log_warn("request to a kernel dropped", "kernel", k->id, "reason", e.msg, NULL);
        jmsg_unref(m);
    }
}

static void abort_later(struct kernel *k)
{
    for (size_t n = k->later_count; n > 0; n--) {
        autojmsg struct jmsg *m = unhold(&k->later, &k->later_count);
        if (jmsg_is(m, "execute_request"))
            on_queue_abort(k, m);
        else
            IGNORE_RESULT(hold(k, &k->later, &k->later_count, m)); /* there was room for it */
    }
}

/* ---- interrupts ---- */

void kernel_signal_interrupt(struct kernel *k)
{
    k->interrupt_wanted = 0;
    k->interrupted = 1;
    if (!k->pid || !k->conn)
        return;
    autojmsg struct jmsg *asked = STEAL(k->held_interrupt);
    if (asked) { /* a client's own interrupt_request */
        transmit(k, asked);
        return;
    }
    if (strcmp(json_get_str(k->spec, "interrupt", "signal"), "message") == 0) {
        autojson json_t *content = json_object();
        struct err e = {0};
        if (kconn_request(k->conn, "interrupt_request", content, &e) < 0)
            log_warn("interrupt not sent", "kernel", k->id, "reason", e.msg, NULL);
        return;
    }
    kproc_signal(k->pid, SIGINT);
}

static void on_settled(void *arg)
{
    struct kernel *k = arg;
    k->settle = loop_timer_stop(k->settle);
    if (k->state == KSTATE_READY)
        kernel_signal_interrupt(k);
}

static void signal_when_settled(struct kernel *k)
{
    int64_t ran = (sys.mono_us() - k->cell_us) / 1000;
    if (k->settle)
        return;
    if (!execq_running(k->queue) || ran >= SETTLE_MS)
        kernel_signal_interrupt(k);
    else
        k->settle = loop_timer_start(k->host->loop, (uint64_t)(SETTLE_MS - ran), 0, on_settled, k);
}

void kernel_interrupt(struct kernel *k)
{
    int rc = execq_interrupt(k->queue);
    abort_later(k);
    if (k->state != KSTATE_READY)
        return;
    if (rc == 2)
        k->interrupt_wanted = 1;
    else if (rc == 1)
        signal_when_settled(k);
}

static void on_no_reply(void *arg)
{
    struct kernel *k = arg;
    k->no_reply = loop_timer_stop(k->no_reply);
    struct jmsg *running = execq_running(k->queue);
    if (!running)
        return;
    autojson json_t *content =
        k->interrupted ? error_content("KeyboardInterrupt", "", k->execution_count)
                       : error_content("NoReply", "the kernel gave no reply to this request",
                                       k->execution_count);
    autojmsg struct jmsg *reply =
        jmsg_make(JCHAN_SHELL, "execute_reply", kconn_session(), running, content);
    kernel_record(k, reply);
    execq_reply(k->queue, reply);
}

static int is_reply_to(const struct jhead *h, struct jmsg *request)
{
    const struct jhead *r;
    return request && jmsg_head(request, &r, NULL) == 0 && strcmp(h->parent_id, r->msg_id) == 0;
}

/* A kernel may go idle without a reply, when it is interrupted between announcing a cell and
 * running it, or when it does not understand the request: the queue would wait for ever. */
static void watch_reply(struct kernel *k, const struct jhead *h)
{
    if (!k->no_reply && is_reply_to(h, execq_running(k->queue)))
        k->no_reply = loop_timer_start(
            k->host->loop, k->interrupted ? NO_REPLY_MS : NO_REPLY_IDLE_MS, 0, on_no_reply, k);
}

/* ---- from clients ---- */

static void note_shutdown(struct kernel *k, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    k->asked = json_get_bool(content, "restart", 0) ? ASKED_RESTART : ASKED_SHUTDOWN;
}

static int send_control(struct kernel *k, struct jmsg *m)
{
    if (jmsg_is(m, "interrupt_request") && k->state == KSTATE_READY) {
        jmsg_unref(k->held_interrupt);
        k->held_interrupt = jmsg_ref(m);
        kernel_interrupt(k);
    } else {
        transmit(k, m);
    }
    return 0;
}

/* Whatever asks a dead kernel is told so. */
static int send_dead(struct kernel *k, struct jmsg *m, const struct jhead *h)
{
    size_t n = strlen(h->msg_type);
    if (m->channel == JCHAN_STDIN || n < 9 || strcmp(h->msg_type + n - 8, "_request") != 0)
        return 0;
    autofree char *type = xasprintf("%.*s_reply", (int)(n - 8), h->msg_type);
    autofree char *why = xasprintf("the kernel is dead (%s); restart it", k->reason);
    kernel_say_status(k, "busy", m);
    kernel_say(k, m->channel, type, m, error_content("KernelDied", why, k->execution_count));
    kernel_say_status(k, "idle", m);
    return 0;
}

int kernel_send(struct kernel *k, struct jmsg *m, struct err *e)
{
    const struct jhead *h;
    int rc = jmsg_head(m, &h, e);
    if (rc < 0)
        return rc;
    if (strcmp(h->msg_type, "shutdown_request") == 0)
        note_shutdown(k, m);
    int info = m->channel == JCHAN_SHELL && strcmp(h->msg_type, "kernel_info_request") == 0 &&
               !*h->subshell_id;
    if (info && k->info) {
        answer_info(k, m);
        return 0;
    }
    if (k->state == KSTATE_DEAD || k->state == KSTATE_STOPPING)
        return send_dead(k, m, h);
    if (info)
        return hold(k, &k->info_waiting, &k->info_count, m);
    if (m->channel == JCHAN_SHELL && k->restart_asked)
        return hold(k, &k->later, &k->later_count, m);
    if (m->channel == JCHAN_SHELL)
        return execq_push(k->queue, m, e);
    if (m->channel == JCHAN_CONTROL)
        return send_control(k, m);
    if (m->channel == JCHAN_STDIN && k->state == KSTATE_READY)
        transmit(k, m); /* an answer to a process that has ended is of no use to another */
    return 0;
}

/* ---- from the kernel ---- */

/* Parents whose busy and idle are not work: what pages ask by themselves. */
static int is_housekeeping(const char *type)
{
    static const char *const types[] = {
        "kernel_info_request",     "comm_info_request",       "shutdown_request",
        "interrupt_request",       "debug_request",           "usage_request",
        "create_subshell_request", "delete_subshell_request", "list_subshell_request"};
    for (size_t i = 0; i < COUNTOF(types); i++)
        if (strcmp(type, types[i]) == 0)
            return 1;
    return 0;
}

static void on_status(struct kernel *k, struct jmsg *m, const struct jhead *h)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return;
    const char *state = json_get_str(content, "execution_state", "");
    int idle = strcmp(state, "idle") == 0;
    if (idle)
        watch_reply(k, h);
    if (*h->parent_id && !is_housekeeping(h->parent_type) && (idle || strcmp(state, "busy") == 0))
        set_busy(k, !idle);
}

static void take_count(struct kernel *k, const struct jmsg *m)
{
    autojson json_t *content = NULL;
    if (jmsg_json(m, JPART_CONTENT, &content, NULL) == 0)
        k->execution_count = json_get_int(content, "execution_count", k->execution_count);
}

static void on_iopub(struct kernel *k, struct jmsg *m, const struct jhead *h)
{
    kernel_record(k, m);
    int started = execq_started(k->queue);
    execq_iopub(k->queue, m);
    if (!started && execq_started(k->queue)) {
        k->cell_us = sys.mono_us();
        if (k->interrupt_wanted)
            signal_when_settled(k);
    }
    if (strcmp(h->msg_type, "execute_input") == 0)
        take_count(k, m); /* should the kernel die in the cell, its answer has the right number */
    if (strcmp(h->msg_type, "status") == 0)
        on_status(k, m, h);
    else if (!is_housekeeping(h->parent_type))
        k->active_us = sys.wall_us();
}

/* The cell that an interrupt was meant for has ended. A client's own request still wants its
 * answer. */
static void forget_interrupt(struct kernel *k)
{
    k->settle = loop_timer_stop(k->settle);
    k->no_reply = loop_timer_stop(k->no_reply);
    k->interrupt_wanted = k->interrupted = 0;
    autojmsg struct jmsg *asked = STEAL(k->held_interrupt);
    if (asked)
        transmit(k, asked);
}

static void on_shell(struct kernel *k, struct jmsg *m, const struct jhead *h)
{
    kernel_record(k, m);
    if (strcmp(h->msg_type, "execute_reply") == 0) {
        take_count(k, m);
        if (is_reply_to(h, execq_running(k->queue)))
            forget_interrupt(k);
    }
    execq_reply(k->queue, m);
}

static void on_message(void *arg, struct jmsg *m)
{
    struct kernel *k = arg;
    const struct jhead *h;
    if (jmsg_head(m, &h, NULL) < 0)
        return; /* decoded by the connection already */
    if (m->channel == JCHAN_IOPUB)
        on_iopub(k, m, h);
    else if (m->channel == JCHAN_SHELL)
        on_shell(k, m, h);
    else
        kernel_record(k, m);
}

static void on_ready(void *arg)
{
    kernel_on_ready(arg);
}

const struct kconn_ops kernel_conn_ops = {on_message, on_ready};

void kernel_messages_init(struct kernel *k)
{
    list_init(&k->held);
    list_init(&k->info_waiting);
    list_init(&k->later);
    kernel_record_init(k);
    k->queue = execq_new(&queue_ops, k);
}

void kernel_messages_free(struct kernel *k)
{
    unhold_all(&k->held, &k->held_count);
    unhold_all(&k->info_waiting, &k->info_count);
    unhold_all(&k->later, &k->later_count);
    kernel_record_free(k);
    jmsg_unref(k->held_interrupt);
    loop_timer_stop(k->no_reply);
    loop_timer_stop(k->settle);
    kconn_close(k->conn);
    execq_free(k->queue);
    journal_close(k->journal);
    json_decref(k->info);
}
