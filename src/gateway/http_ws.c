/* WebSocket sessions (RFC 6455) on a connection that was upgraded. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/sys.h"
#include "gateway/http_int.h"

#define JUPYTER_SUBPROTOCOL "v1.kernel.websocket.jupyter.org"
#define ACCEPT_SUFFIX "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

struct ws {
    struct conn *c;
    const struct ws_ops *ops;
    void *arg;
    const char *subprotocol;
    uint8_t head[WS_HEAD_MAX];
    size_t head_len;
    struct ws_frame frame; /* the one being received */
    int in_frame;
    uint64_t got;   /* payload bytes of it */
    int message;    /* opcode of the message being collected, 0: none */
    int over;       /* that message is too large */
    struct buf buf; /* its payload */
    uint8_t control[WS_CONTROL_MAX];
    int told;   /* `closed` was called */
    int deaf;   /* input is ignored after a protocol error */
    int finish; /* end the connection when all is sent */
    int64_t close_at, ping_at;
};

int ws_wanted(const struct http_req *r)
{
    return r->method == HTTP_GET && http_has_token(http_header(r, "upgrade"), "websocket");
}

/* Handshake */

static int key_valid(const char *key)
{
    autobuf struct buf raw = BUF_INIT(64);
    return key && strlen(key) == 24 && base64_decode(key, 24, &raw) == 0 && raw.len == 16;
}

static int handshake_fault(struct http_req *r)
{
    if (!http_has_token(http_header(r, "connection"), "upgrade") || r->head.minor < 1 ||
        !r->body_done || !key_valid(http_header(r, "sec-websocket-key"))) {
        reply_error(r, 400, "malformed WebSocket handshake");
        return 1;
    }
    const char *version = http_header(r, "sec-websocket-version");
    if (!version || strcmp(version, "13") != 0) {
        http_set_header(r, "Sec-WebSocket-Version", "13");
        reply_error(r, 426, "WebSocket version 13 is needed");
        return 1;
    }
    return 0;
}

static void accept_key(const char *key, char *out, size_t size)
{
    uint8_t digest[20];
    char text[64];
    int n = snprintf(text, sizeof text, "%s" ACCEPT_SUFFIX, key);
    net_sha1(text, (size_t)n, digest);
    autobuf struct buf b = BUF_INIT(64);
    IGNORE_RESULT(base64_encode(digest, sizeof digest, &b)); /* 28 characters fit */
    snprintf(out, size, "%s", buf_str(&b));
}

static struct ws *ws_new(struct http_req *r, const struct ws_ops *ops, void *arg)
{
    struct ws *w = xcalloc(1, sizeof *w);
    w->c = r->c;
    w->ops = ops;
    w->arg = arg;
    w->subprotocol = http_has_token(http_header(r, "sec-websocket-protocol"), JUPYTER_SUBPROTOCOL)
                         ? JUPYTER_SUBPROTOCOL
                         : "";
    w->ping_at = sys.mono_us() + T_WS_PING;
    buf_init(&w->buf, WS_MESSAGE_MAX);
    return w;
}

/* A subprotocol that is not known is answered with none: the client decides. */
static void answer_handshake(struct http_req *r, const struct ws *w)
{
    char key[32];
    accept_key(http_header(r, "sec-websocket-key"), key, sizeof key);
    struct buf b;
    buf_init(&b, HTTP_HEAD_MAX * 2);
    buf_add(&b,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: %s\r\n",
            key);
    if (*w->subprotocol)
        buf_add(&b, "Sec-WebSocket-Protocol: %s\r\n", w->subprotocol);
    buf_add(&b, "%s\r\n", buf_str(&r->extra));
    size_t len = b.len;
    conn_queue(r->c, buf_steal(&b), len);
}

void ws_handshake(struct http_req *r)
{
    struct conn *c = r->c;
    if (handshake_fault(r) || !conn_filter(r))
        return;
    const struct ws_ops *ops = NULL;
    void *arg = NULL;
    int status = c->s->conf.upgrade ? c->s->conf.upgrade(c->s->conf.arg, r, &ops, &arg) : 404;
    if (status < 0) {
        r->handed = 1;
        return;
    }
    if (status > 0) {
        reply_error(r, status, status_text(status));
        return;
    }
    struct ws *w = ws_new(r, ops, arg);
    answer_handshake(r, w);
    c->ws = w;
    c->req = NULL;
    c->state = CONN_WS;
    req_finish(r, 101);
    if (ops->open)
        ops->open(w, arg);
}

/* Sending */

static void queue_frame(struct ws *w, int opcode, char *data, size_t len)
{
    struct out *o = conn_queue(w->c, data, len);
    o->head_len = (uint8_t)ws_frame_head(o->head, opcode, len);
}

/* May a frame be queued? */
static int takes(struct ws *w, size_t len)
{
    if (w->close_at || w->told || w->c->doomed)
        return 0;
    if (w->c->out_bytes + len <= WS_QUEUE_MAX)
        return 1;
    log_warn("a WebSocket reader is too slow", "peer", w->c->peer, NULL);
    conn_doom(w->c);
    return 0;
}

void ws_send(struct ws *w, struct buf *frame, int binary)
{
    size_t len = frame->len;
    if (takes(w, len))
        queue_frame(w, binary ? WS_BINARY : WS_TEXT, buf_steal(frame), len);
    else
        buf_free(frame);
}

void ws_share(struct ws *w, struct buf *frame, int binary, struct ws_shared **slot)
{
    ws_unshare(slot);
    struct ws_shared *s = xcalloc(1, sizeof *s);
    s->refs = 1;
    s->binary = binary;
    s->len = frame->len;
    s->data = buf_steal(frame);
    s->slot = slot;
    *slot = s;
    ws_send_again(w, s);
    ws_shared_unref(s);
}

void ws_send_again(struct ws *w, struct ws_shared *s)
{
    if (!takes(w, s->len))
        return;
    struct out *o = conn_queue(w->c, s->data, s->len);
    o->head_len = (uint8_t)ws_frame_head(o->head, s->binary ? WS_BINARY : WS_TEXT, s->len);
    o->shared = s;
    s->refs++;
}

void ws_unshare(struct ws_shared **slot)
{
    if (*slot)
        (*slot)->slot = NULL;
    *slot = NULL;
}

void ws_shared_unref(struct ws_shared *s)
{
    if (--s->refs)
        return;
    if (s->slot)
        *s->slot = NULL;
    free(s->data);
    free(s);
}

void ws_send_text(struct ws *w, const char *text, size_t len)
{
    struct buf b;
    buf_init(&b, WS_QUEUE_MAX);
    if (buf_append(&b, text, len) < 0) {
        log_warn("a WebSocket message is too large", "peer", w->c->peer, NULL);
        conn_doom(w->c);
        return;
    }
    ws_send(w, &b, 0);
}

void ws_ping(struct ws *w, uint64_t mark)
{
    if (w->close_at || w->told)
        return;
    char *data = xmalloc(8);
    for (int i = 0; i < 8; i++)
        data[i] = (char)(mark >> (8 * (7 - i)));
    queue_frame(w, WS_PING, data, 8);
}

/* Pongs overtake queued messages. A waiting one is replaced: only the last ping must be answered
 * (RFC 6455, 5.5.3), and so a flood of pings grows nothing. */
static void send_pong(struct ws *w, const uint8_t *payload, size_t len)
{
    struct conn *c = w->c;
    char *data = xmalloc(len + 1);
    if (len)
        memcpy(data, payload, len);
    list_foreach(it, &c->out)
    {
        struct out *o = container_of(it, struct out, link);
        if (o->head_off == 0 && o->head_len > 0 && o->head[0] == (0x80 | WS_PONG)) {
            c->out_bytes += len;
            c->out_bytes -= o->len;
            free(o->data);
            o->data = data;
            o->len = len;
            o->head_len = (uint8_t)ws_frame_head(o->head, WS_PONG, len);
            return;
        }
        if (o->head_off == 0 && o->head_len > 0 && it != c->out.next)
            break; /* behind the first whole frame none was put */
    }
    queue_frame(w, WS_PONG, data, len);
    struct list *item = c->out.prev, *first = c->out.next;
    if (item == first)
        return;
    const struct out *o = container_of(first, struct out, link);
    int begun = o->head_off > 0 || o->head_len == 0; /* or the answer to the handshake */
    struct list *before = begun ? first->next : first;
    if (before != item) {
        list_remove(item);
        list_append(before, item);
    }
}

size_t ws_pending(const struct ws *w)
{
    return (size_t)w->c->out_bytes + w->c->flight;
}

static void send_close(struct ws *w, int code, const char *reason, size_t len)
{
    if (w->close_at)
        return;
    w->close_at = sys.mono_us();
    if (len > WS_CONTROL_MAX - 2)
        len = WS_CONTROL_MAX - 2;
    while (len > 0 && !utf8_valid(reason, len))
        len--; /* not cut in the middle of a character */
    char *data = xmalloc(len + 2);
    data[0] = (char)(code >> 8);
    data[1] = (char)code;
    if (len)
        memcpy(data + 2, reason, len);
    queue_frame(w, WS_CLOSE, data, code ? len + 2 : 0);
}

void ws_close(struct ws *w, int code, const char *reason)
{
    send_close(w, code, reason ? reason : "", reason ? strlen(reason) : 0);
}

const char *ws_subprotocol(const struct ws *w)
{
    return w->subprotocol;
}

static void tell_closed(struct ws *w)
{
    if (w->told)
        return;
    w->told = 1;
    if (w->ops->closed)
        w->ops->closed(w, w->arg);
}

/* The peer broke the protocol: say so, listen no more. */
static void fail(struct ws *w, int code, const char *reason)
{
    ws_close(w, code, reason);
    w->deaf = 1;
    w->finish = 1;
    net_want_write(w->c);
    tell_closed(w);
}

int ws_drained(struct ws *w)
{
    if (w->finish)
        return 1;
    if (!w->close_at && w->ops->drained)
        w->ops->drained(w, w->arg);
    return 0;
}

/* Receiving */

static int deliverable(const struct ws *w)
{
    return !w->close_at && !w->told && !w->c->doomed;
}

static void deliver(struct ws *w, const uint8_t *data, size_t len)
{
    if (w->message == WS_TEXT && !utf8_valid(data, len))
        fail(w, 1007, "text is not UTF-8");
    else if (deliverable(w) && w->ops->message)
        w->ops->message(w, w->arg, data ? (const void *)data : "", len, w->message == WS_BINARY);
}

static void end_message(struct ws *w)
{
    if (w->over) {
        if (deliverable(w) && w->ops->oversize)
            w->ops->oversize(w, w->arg, buf_str(&w->buf), w->buf.len);
    } else {
        deliver(w, (const uint8_t *)w->buf.data, w->buf.len);
    }
    buf_free(&w->buf);
    w->message = 0;
    w->over = 0;
}

/* Part of a data frame, unmasked. */
static void collect(struct ws *w, const uint8_t *data, size_t len)
{
    if (w->over || len == 0)
        return;
    if (buf_append(&w->buf, data, len) == 0)
        return;
    w->over = 1;
    struct buf head;
    buf_init(&head, WS_MESSAGE_MAX);
    size_t kept = w->buf.len < WS_HEAD_KEPT ? w->buf.len : WS_HEAD_KEPT;
    IGNORE_RESULT(buf_append(&head, buf_str(&w->buf), kept)); /* small */
    buf_free(&w->buf);
    w->buf = head;
}

static void on_close_frame(struct ws *w, const uint8_t *p, size_t len)
{
    int code = len >= 2 ? p[0] << 8 | p[1] : 0;
    if (len == 1 || (len >= 2 && !ws_close_code_valid(code))) {
        fail(w, 1002, "malformed close frame");
        return;
    }
    if (len > 2 && !utf8_valid(p + 2, len - 2)) {
        fail(w, 1007, "the close reason is not UTF-8");
        return;
    }
    send_close(w, code, "", 0);
    w->deaf = 1;
    w->finish = 1;
    net_want_write(w->c); /* the queue may be empty when it was us who closed */
    tell_closed(w);
}

static void on_control(struct ws *w)
{
    const uint8_t *p = w->control;
    size_t len = (size_t)w->frame.len;
    if (w->frame.opcode == WS_CLOSE) {
        on_close_frame(w, p, len);
    } else if (w->frame.opcode == WS_PING) {
        if (!w->close_at)
            send_pong(w, p, len);
    } else if (len == 8 && deliverable(w) && w->ops->pong) {
        uint64_t mark = 0;
        for (int i = 0; i < 8; i++)
            mark = mark << 8 | p[i];
        w->ops->pong(w, w->arg, mark);
    }
}

/* Takes (a part of) a frame's payload from `data`. Returns the bytes used. */
static size_t take_payload(struct ws *w, uint8_t *data, size_t len)
{
    struct ws_frame *f = &w->frame;
    size_t n = len < f->len - w->got ? len : (size_t)(f->len - w->got);
    ws_frame_unmask(data, n, f->mask, w->got);
    int control = f->opcode >= WS_CLOSE;
    int whole = n == f->len && f->fin && w->buf.len == 0 && !w->over; /* needs no copy */
    if (control && n)
        memcpy(w->control + w->got, data, n);
    else if (!control && !whole)
        collect(w, data, n);
    w->got += n;
    if (w->got < f->len)
        return n;
    w->in_frame = 0;
    if (control) {
        on_control(w);
    } else if (whole) {
        deliver(w, data, n);
        w->message = 0;
    } else if (f->fin) {
        end_message(w);
    }
    return n;
}

/* Completes a frame's head. Returns the bytes used, negative for a protocol error. */
static long take_head(struct ws *w, const uint8_t *data, size_t len)
{
    size_t had = w->head_len;
    size_t n = len < WS_HEAD_MAX - had ? len : WS_HEAD_MAX - had;
    memcpy(w->head + had, data, n);
    int size = ws_frame_parse(w->head, had + n, &w->frame);
    if (size < 0)
        return size;
    if (size == 0) {
        w->head_len = had + n;
        return (long)n;
    }
    w->head_len = 0;
    w->in_frame = 1;
    w->got = 0;
    if (w->frame.opcode == WS_CONTINUATION ? !w->message : w->frame.opcode < WS_CLOSE && w->message)
        return ERR_PROTOCOL;
    if (w->frame.opcode == WS_TEXT || w->frame.opcode == WS_BINARY)
        w->message = w->frame.opcode;
    return size - (long)had;
}

int ws_rx(struct ws *w, uint8_t *data, size_t len)
{
    while (!w->deaf && !w->c->doomed) {
        if (!w->in_frame) {
            if (len == 0)
                break;
            long used = take_head(w, data, len);
            if (used < 0) {
                fail(w, 1002, "malformed frame");
                break;
            }
            data += used;
            len -= (size_t)used;
        }
        if (w->in_frame) {
            if (len == 0 && w->frame.len > w->got)
                break;
            size_t used = take_payload(w, data, len);
            data += used;
            len -= used;
        }
    }
    return 0;
}

void ws_tick(struct ws *w, int64_t now)
{
    struct conn *c = w->c;
    int64_t patience = list_empty(&c->out) ? T_WS_CLOSE : T_HEAD;
    if (now - c->last_heard > T_WS_SILENT || (w->close_at && now - w->close_at > patience)) {
        conn_doom(c);
    } else if (now >= w->ping_at && !w->close_at) {
        w->ping_at = now + T_WS_PING;
        queue_frame(w, WS_PING, NULL, 0);
    }
}

void ws_gone(struct ws *w)
{
    tell_closed(w);
    buf_free(&w->buf);
    free(w);
}
