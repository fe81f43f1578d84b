/* What goes into the journal of a kernel, from it or on its behalf. While the disk takes nothing,
 * messages wait in memory, in order. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernel/kernel_own.h"

#define BACKLOG_MAX ((size_t)64 << 20)
#define RETRY_MS 500

struct unwritten {
    struct list link;
    struct jmsg *m;
};

/* What comes before the output of a cell: busy, execute_input, and our record of the request. More
 * follows in a moment as a rule, and to tell of each would wake every client for it. */
static int is_prelude(struct jmsg *m)
{
    const struct slice *c = &m->parts[JPART_CONTENT];
    if (jmsg_is(m, "status"))
        return memmem(c->data, c->len, "\"busy\"", 6) != NULL;
    return jmsg_is(m, "execute_input") || jmsg_is(m, "execute_request");
}

static int append(struct kernel *k, struct jmsg *m, struct err *e)
{
    int rc = journal_append(k->journal, m, e);
    if (rc == 0)
        k->host->grown(k->host->arg, k, !is_prelude(m));
    return rc;
}

static void set_error(struct kernel *k, const char *text)
{
    free(k->journal_error);
    k->journal_error = text ? xstrdup(text) : NULL;
    k->host->changed(k->host->arg, k, 1);
}

static void take_first(struct kernel *k)
{
    struct unwritten *u = container_of(k->backlog.next, struct unwritten, link);
    list_remove(&u->link);
    k->backlog_bytes -= jmsg_bytes(u->m);
    jmsg_unref(u->m);
    free(u);
}

static void on_retry(void *arg)
{
    struct kernel *k = arg;
    while (!list_empty(&k->backlog)) {
        if (append(k, container_of(k->backlog.next, struct unwritten, link)->m, NULL) < 0)
            return;
        take_first(k);
    }
    k->retry = loop_timer_stop(k->retry);
    k->backlog_lost = 0;
    log_info("journal of a kernel is written again", "kernel", k->id, NULL);
    set_error(k, NULL);
}

static void wait_for_disk(struct kernel *k, struct jmsg *m)
{
    if (k->backlog_bytes + jmsg_bytes(m) > BACKLOG_MAX) {
        if (!k->backlog_lost++) /* each of them would say the same */
            log_error("output of a kernel is lost", "kernel", k->id, "reason", k->journal_error,
                      NULL);
        return;
    }
    struct unwritten *u = xcalloc(1, sizeof *u);
    u->m = jmsg_ref(m);
    list_append(&k->backlog, &u->link);
    k->backlog_bytes += jmsg_bytes(m);
}

void kernel_record(struct kernel *k, struct jmsg *m)
{
    struct err e = {0};
    if (!k->retry) {
        if (append(k, m, &e) == 0)
            return;
        log_error("journal of a kernel not written", "kernel", k->id, "reason", e.msg, NULL);
        set_error(k, e.msg);
        k->retry = loop_timer_start(k->host->loop, RETRY_MS, RETRY_MS, on_retry, k);
    }
    wait_for_disk(k, m);
}

void kernel_say(struct kernel *k, enum jchan ch, const char *type, const struct jmsg *parent,
                json_t *content)
{
    autojmsg struct jmsg *m = jmsg_make(ch, type, kconn_session(), parent, content);
    json_decref(content);
    kernel_record(k, m);
}

void kernel_say_status(struct kernel *k, const char *state, const struct jmsg *parent)
{
    kernel_say(k, JCHAN_IOPUB, "status", parent, json_pack("{s:s}", "execution_state", state));
}

void kernel_status(struct kernel *k, const char *state)
{
    kernel_say_status(k, state, NULL);
}

void kernel_record_init(struct kernel *k)
{
    list_init(&k->backlog);
}

void kernel_record_free(struct kernel *k)
{
    while (!list_empty(&k->backlog))
        take_first(k);
    loop_timer_stop(k->retry);
    free(k->journal_error);
}
