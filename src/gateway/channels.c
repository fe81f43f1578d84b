/* Kernel channels over WebSocket: api/kernels/{id}/channels.
 *
 * A client is a cursor in the kernel's journal. Whatever the kernel says is read from there at the
 * client's own pace, so that a slow client costs nothing but its place, and a client that comes
 * back goes on where it stopped. How far a client has really got is known from the answers to
 * pings that carry positions (WebSocket frames arrive in order).
 *
 * Where a client starts:
 *  - a session that was here before: after the last position that it confirmed;
 *  - a new one (reloaded page, second client): at the request that runs now, or after the furthest
 *    position that any session has confirmed, whichever is earlier. Widget traffic of the past is
 *    left out then: a new page asks the kernel for the widgets' present state.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "gateway/kernels.h"
#include "gateway/merge.h"
#include "gateway/resume.h"
#include "kernel/journal.h"

#define V1_PROTOCOL "v1.kernel.websocket.jupyter.org"
#define PENDING_MAX ((size_t)1 << 20) /* bytes queued on a socket before we wait for it */
#define SHARED_MIN ((size_t)64 << 10) /* frames of this size are kept once for all sockets */
#define SESSIONS_MAX 8
#define PING_DELAY_MS 20

struct client {
    struct list link;
    struct kernel *k; /* NULL once the kernel is gone */
    struct ws *ws;    /* NULL before open */
    int v1;
    char *session;                /* session_id of the URL, "" when none */
    char *sessions[SESSIONS_MAX]; /* further sessions seen in what the client sent */
    struct jreader *reader;
    uint64_t cursor; /* everything up to here was sent or is not for this client */
    struct loop_timer *ping_timer;
    uint64_t pinged;    /* position in the ping on its way; 0: none */
    uint64_t confirmed; /* what the peer is known to have read */
    uint64_t past;      /* up to here: history for a new session */
    uint64_t replay;    /* up to here: said before this connection was made */
};

static int open_resume(struct kernel *k)
{
    if (k->resume)
        return 0;
    autofree char *journal = shimc_journal_dir(k->gw->shim, k->id);
    char *slash = strrchr(journal, '/');
    if (slash)
        *slash = '\0';
    autofree char *path = xasprintf("%s/clients.map", journal);
    struct err e;
    int rc = resume_open(path, &k->resume, &e);
    if (rc < 0)
        log_warn("clients of this kernel cannot resume", "kernel", k->id, "reason", e.msg, NULL);
    return rc;
}

/* Another socket of the same session is a stale one (a half-open connection, say): take over. */
static void take_over(struct client *c)
{
    if (!*c->session)
        return;
    list_foreach(it, &c->k->clients)
    {
        struct client *old = container_of(it, struct client, link);
        if (old != c && old->ws && !strcmp(old->session, c->session))
            ws_close(old->ws, 1012, "another connection of this session took over");
    }
}

static void set_start(struct client *c)
{
    struct kernel *k = c->k;
    uint64_t at = 0;
    if (open_resume(k) < 0) {
        c->cursor = k->head;
        return;
    }
    if (*c->session && resume_get(k->resume, c->session, &at)) {
        c->cursor = at;
    } else {
        uint64_t running = (uint64_t)json_get_int(k->model, "running_seq", 0);
        uint64_t furthest = resume_furthest(k->resume);
        c->cursor = running && running - 1 < furthest ? running - 1 : furthest;
        c->past = k->head;
    }
    c->confirmed = c->cursor;
}

/* ---- kernel to client ---- */

static int knows_session(const struct client *c, const char *session)
{
    if (!*session)
        return 0;
    if (!strcmp(c->session, session))
        return 1;
    for (size_t i = 0; i < SESSIONS_MAX && c->sessions[i]; i++) {
        if (!strcmp(c->sessions[i], session))
            return 1;
    }
    return 0;
}

/* Status "restarting" or "dead": JupyterLab answers the one by connecting anew and the other by
 * giving up, so they are told as they happen, never again later. */
static int is_turn(struct jmsg *m, const struct jhead *h)
{
    autojson json_t *content = NULL;
    if (strcmp(h->msg_type, "status") != 0 || jmsg_json(m, JPART_CONTENT, &content, NULL) < 0)
        return 0;
    const char *state = json_get_str(content, "execution_state", "");
    return !strcmp(state, "restarting") || !strcmp(state, "dead");
}

static int is_for(const struct client *c, struct jmsg *m)
{
    const struct jhead *h;
    if (jmsg_head(m, &h, NULL) < 0)
        return 0;
    if (m->seq <= c->past && !strncmp(h->msg_type, "comm_", 5))
        return 0;
    if (m->channel == JCHAN_IOPUB)
        return m->seq > c->replay || !is_turn(m, h);
    if (!strcmp(h->msg_type, "execute_request"))
        return 0; /* the journal's record of what a client asked */
    return knows_session(c, h->parent_session);
}

static void send_message(struct client *c, struct jmsg *m)
{
    struct buf frame = BUF_INIT(JMSG_MAX_BYTES * 2);
    int binary = 1, large = m->seq && jmsg_bytes(m) >= SHARED_MIN, form = c->v1 != 0;
    if (large && c->k->large[form].frame && c->k->large[form].seq == m->seq) {
        ws_send_again(c->ws, c->k->large[form].frame);
        return;
    }
    int rc = c->v1 ? jmsg_encode_v1(m, &frame) : jmsg_encode_legacy(m, &frame, &binary);
    if (rc < 0) {
        log_warn("message not delivered", "kernel", c->k->id, "reason", err_text(rc), NULL);
        buf_free(&frame);
        return;
    }
    if (!large) {
        ws_send(c->ws, &frame, binary);
        return;
    }
    c->k->large[form].seq = m->seq;
    ws_share(c->ws, &frame, binary, &c->k->large[form].frame);
}

static void ping_now(void *arg)
{
    struct client *c = arg;
    c->ping_timer = loop_timer_stop(c->ping_timer);
    if (!c->ws || c->cursor <= c->confirmed)
        return;
    c->pinged = c->cursor;
    ws_ping(c->ws, c->cursor);
}

/* One ping for a burst: each costs both sides a wake-up. */
static void ping(struct client *c)
{
    if (!c->pinged && !c->ping_timer && c->cursor > c->confirmed)
        c->ping_timer = loop_timer_start(c->k->gw->loop, PING_DELAY_MS, 0, ping_now, c);
}

/* Sends what the client has not had, as far as its socket takes it. */
static void pump(struct client *c)
{
    if (!c->ws || !c->k)
        return;
    struct err e = {0};
    if (!c->reader && c->cursor < c->k->head) {
        autofree char *dir = shimc_journal_dir(c->k->gw->shim, c->k->id);
        if (jreader_open(dir, c->cursor + 1, &c->reader, &e) < 0)
            c->cursor = c->k->head;
    }
    while (!e.code && c->cursor < c->k->head && ws_pending(c->ws) < PENDING_MAX) {
        autojmsg struct jmsg *m = NULL;
        int rc = jreader_next(c->reader, &m, NULL, &e);
        if (rc <= 0) /* the end, or positions that folding has removed */
            break;
        if (m->seq > c->cursor && is_for(c, m))
            send_message(c, m);
        c->cursor = m->seq;
    }
    if (e.code) {
        log_error("journal", "kernel", c->k->id, "reason", e.msg, NULL);
        ws_close(c->ws, 1011, "the kernel's journal cannot be read");
        return;
    }
    ping(c);
}

void channels_grown(struct kernel *k)
{
    list_foreach(it, &k->clients) pump(container_of(it, struct client, link));
}

void channels_status(struct kernel *k, const char *state)
{
    autojson json_t *content = json_pack("{s:s}", "execution_state", state);
    autojmsg struct jmsg *m = jmsg_make(JCHAN_IOPUB, "status", "reitosd", NULL, content);
    list_foreach(it, &k->clients)
    {
        struct client *c = container_of(it, struct client, link);
        if (c->ws)
            send_message(c, m);
    }
}

void channels_drop(struct kernel *k)
{
    list_foreach(it, &k->clients)
    {
        struct client *c = container_of(it, struct client, link);
        list_remove(&c->link);
        c->reader = jreader_close(c->reader);
        c->k = NULL;
        if (c->ws)
            ws_close(c->ws, 1011, "the kernel was shut down");
    }
    k->nclients = 0;
}

/* ---- client to kernel ---- */

static void remember_session(struct client *c, const char *session)
{
    if (!*session || knows_session(c, session))
        return;
    size_t i = 0;
    while (i < SESSIONS_MAX - 1 && c->sessions[i])
        i++;
    free(c->sessions[i]); /* only the last place is ever reused */
    c->sessions[i] = xstrdup(session);
}

static void on_message(struct ws *w, void *arg, const void *data, size_t len, int binary)
{
    (void)w;
    struct client *c = arg;
    if (!c->k)
        return;
    struct err e;
    autojmsg struct jmsg *m = NULL;
    const struct jhead *h;
    int rc =
        c->v1 ? jmsg_decode_v1(data, len, &m, &e) : jmsg_decode_legacy(data, len, binary, &m, &e);
    if (rc < 0 || (rc = jmsg_head(m, &h, &e)) < 0) {
        log_warn("malformed message from a client", "kernel", c->k->id, "reason", e.msg, NULL);
        return;
    }
    if (m->channel == JCHAN_IOPUB || !*h->msg_type || !c->k->gw->shim)
        return;
    remember_session(c, h->session);
    gw_activity(c->k->gw);
    shimc_send(c->k->gw->shim, c->k->id, m);
}

/* A message beyond the limit: its sender learns of it, the socket stays. */
static void on_oversize(struct ws *w, void *arg, const void *head, size_t len)
{
    (void)w;
    (void)head;
    (void)len;
    struct client *c = arg;
    if (!c->k)
        return;
    log_warn("message from a client is too large", "kernel", c->k->id, NULL);
    autojson json_t *content =
        json_pack("{s:s,s:s}", "name", "stderr", "text",
                  "REITOS: a message to the kernel was larger than the limit and was not sent.\n");
    autojmsg struct jmsg *m = jmsg_make(JCHAN_IOPUB, "stream", "reitosd", NULL, content);
    send_message(c, m);
}

/* ---- life of a client ---- */

static void on_open(struct ws *w, void *arg)
{
    struct client *c = arg;
    c->ws = w;
    c->v1 = !strcmp(ws_subprotocol(w), V1_PROTOCOL);
    if (!c->k) {
        ws_close(w, 1011, "the kernel was shut down");
        return;
    }
    take_over(c);
    set_start(c);
    c->replay = c->k->head;
    c->k->nclients++;
    merge_kernel_clients(c->k->gw, c->k->id, c->k->nclients);
    const char *state = kernel_state(c->k);
    if (!strcmp(state, "restarting"))
        state = "starting"; /* see is_turn() */
    if (strcmp(state, "idle") != 0) {
        autojson json_t *content = json_pack("{s:s}", "execution_state", state);
        autojmsg struct jmsg *m = jmsg_make(JCHAN_IOPUB, "status", "reitosd", NULL, content);
        send_message(c, m);
    }
    pump(c);
}

static void on_drained(struct ws *w, void *arg)
{
    (void)w;
    pump(arg);
}

static void on_pong(struct ws *w, void *arg, uint64_t mark)
{
    (void)w;
    struct client *c = arg;
    if (mark != c->pinged)
        return;
    c->pinged = 0;
    c->confirmed = mark;
    if (!c->k)
        return;
    if (*c->session && c->k->resume)
        resume_set(c->k->resume, c->session, mark);
    ping(c);
}

static void on_closed(struct ws *w, void *arg)
{
    (void)w;
    struct client *c = arg;
    int was_open = c->ws != NULL; /* a handshake can also fail before that */
    c->ws = NULL;
    if (c->k)
        list_remove(&c->link);
    if (c->k && was_open) {
        c->k->nclients--;
        merge_kernel_clients(c->k->gw, c->k->id, c->k->nclients);
    }
    jreader_close(c->reader);
    loop_timer_stop(c->ping_timer);
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        free(c->sessions[i]);
    free(c->session);
    free(c);
}

static const struct ws_ops client_ops = {
    .open = on_open,
    .message = on_message,
    .drained = on_drained,
    .pong = on_pong,
    .closed = on_closed,
    .oversize = on_oversize,
};

static int upgrade(struct gw *gw, struct http_req *r, const char *const *p,
                   const struct ws_ops **ops, void **ws_arg)
{
    struct kernel *k = kernels_find(gw, p[0]);
    if (!k)
        return 404;
    const char *session = http_query(r, "session_id");
    struct client *c = xcalloc(1, sizeof *c);
    c->k = k;
    c->session = xstrdup(session && strlen(session) < RESUME_ID_MAX ? session : "");
    list_append(&k->clients, &c->link);
    *ops = &client_ops;
    *ws_arg = c;
    return 0;
}

const struct route channels_routes[] = {
    {0, "api/kernels/{}/channels", NULL, upgrade, 0},
    {0, NULL, NULL, NULL, 0},
};
