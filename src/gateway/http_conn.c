#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/sys.h"
#include "gateway/http_int.h"

struct conn *conn_open(struct http_server *s, struct lws *wsi, const char *peer, int tls)
{
    struct conn *c = xcalloc(1, sizeof *c);
    c->s = s;
    c->wsi = wsi;
    c->tls = tls;
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    buf_init(&c->in, HTTP_HEAD_MAX + PIPELINE_MAX + 2 * IO_CHUNK);
    list_init(&c->out);
    list_init(&c->ready);
    c->last_io = c->last_heard = sys.mono_us();
    c->deadline = c->last_io + T_HEAD;
    list_append(&s->conns, &c->link);
    s->nconns++;
    server_tick_start(s);
    return c;
}

void conn_out_free(struct out *o)
{
    list_remove(&o->link);
    if (o->fd >= 0)
        close(o->fd);
    if (o->shared)
        ws_shared_unref(o->shared);
    else
        free(o->data);
    free(o);
}

void conn_closed(struct conn *c)
{
    struct http_server *s = c->s;
    c->wsi = NULL;
    list_remove(&c->link);
    list_remove(&c->ready);
    s->nconns--;
    list_foreach(it, &c->out) conn_out_free(container_of(it, struct out, link));
    buf_free(&c->in);
    struct ws *w = STEAL(c->ws);
    struct http_req *r = STEAL(c->req);
    if (w)
        ws_gone(w);
    if (r)
        req_finish(r, 0);
    free(c);
    net_accept_more(s);
}

void conn_doom(struct conn *c)
{
    if (c->doomed)
        return;
    c->doomed = 1;
    if (!c->inside)
        server_reap_soon(c->s);
}

void conn_reap(struct http_server *s)
{
    list_foreach(it, &s->conns)
    {
        struct conn *c = container_of(it, struct conn, link);
        if (c->doomed && !c->inside)
            net_kill(c);
    }
}

struct conn *conn_oldest_idle(struct http_server *s)
{
    struct conn *best = NULL;
    list_foreach(it, &s->conns)
    {
        struct conn *c = container_of(it, struct conn, link);
        if (c->state == CONN_HEAD && c->in.len == 0 && !c->inside &&
            (!best || c->last_io < best->last_io))
            best = c;
    }
    return best;
}

/* Output */

struct out *conn_queue(struct conn *c, char *data, size_t len)
{
    struct out *o = xcalloc(1, sizeof *o);
    o->data = data;
    o->len = len;
    o->fd = -1;
    list_append(&c->out, &o->link);
    c->out_bytes += len;
    net_want_write(c);
    return o;
}

void conn_queue_file(struct conn *c, int fd, uint64_t pos, uint64_t left)
{
    struct out *o = conn_queue(c, NULL, 0);
    o->fd = fd;
    o->pos = pos;
    o->left = left;
    c->out_bytes += left;
    IGNORE_RESULT(posix_fadvise(fd, (off_t)pos, (off_t)left, POSIX_FADV_SEQUENTIAL)); /* a hint */
}

static size_t smaller(size_t a, uint64_t b)
{
    return a < b ? a : (size_t)b;
}

/* Moves bytes of `o` to `to`. Returns how many, -1 when its file ended early. */
static long out_take(struct out *o, char *to, size_t room)
{
    size_t n = smaller(room, (uint64_t)(o->head_len - o->head_off));
    memcpy(to, o->head + o->head_off, n);
    o->head_off = (uint8_t)(o->head_off + n);
    size_t m = smaller(room - n, o->len - o->off);
    if (m)
        memcpy(to + n, o->data + o->off, m);
    o->off += m;
    n += m;
    m = smaller(room - n, o->left);
    if (m) {
        ssize_t got = pread(o->fd, to + n, m, (off_t)o->pos);
        if (got <= 0)
            return -1;
        o->pos += (uint64_t)got;
        o->left -= (uint64_t)got;
        n += (size_t)got;
    }
    return (long)n;
}

static int out_empty(const struct out *o)
{
    return o->head_off == o->head_len && o->off == o->len && o->left == 0;
}

/* Writes up to one chunk. Returns negative when the connection is broken. */
static int flush(struct conn *c)
{
    size_t n = 0;
    while (n < IO_CHUNK && !list_empty(&c->out)) {
        struct out *o = container_of(c->out.next, struct out, link);
        uint8_t heads = o->head_off;
        long took = out_take(o, c->s->scratch + n, IO_CHUNK - n);
        if (took < 0)
            return -1; /* the length was promised: only closing tells the truth */
        c->out_bytes -= (uint64_t)took - (uint64_t)(o->head_off - heads);
        n += (size_t)took;
        if (out_empty(o))
            conn_out_free(o);
        else if (took == 0)
            break;
    }
    if (n == 0)
        return 0;
    int partial;
    if (net_write(c, c->s->scratch, n, &partial) < 0)
        return -1;
    c->last_io = sys.mono_us();
    c->flight = partial ? n : 0;
    return 0;
}

static int process(struct conn *c);

static void update_reading(struct conn *c)
{
    int busy = c->state == CONN_BUSY && c->in.len >= PIPELINE_MAX;
    net_pause(c, c->flight > 0 || busy);
}

static void linger(struct conn *c)
{
    c->state = CONN_LINGER;
    c->deadline = sys.mono_us() + T_LINGER;
    buf_free(&c->in);
    net_shutdown(c);
}

/* The answer to the current request has left. */
static int request_done(struct conn *c)
{
    struct http_req *r = STEAL(c->req);
    int status = r->status;
    req_finish(r, status);
    c->served = 1;
    if (c->close_after || c->s->stopping) {
        linger(c);
        return 0;
    }
    c->state = CONN_HEAD;
    c->deadline = sys.mono_us() + T_IDLE;
    return process(c);
}

static int queue_drained(struct conn *c)
{
    if (c->state == CONN_WS) {
        if (ws_drained(c->ws))
            linger(c);
        return 0;
    }
    struct http_req *r = c->req;
    if (!r || !r->started)
        return 0;
    if (!r->ended) {
        if (r->drained)
            r->drained(r);
        return 0;
    }
    if (c->state == CONN_BUSY)
        return request_done(c);
    return 0; /* still swallowing the rest of the body */
}

int conn_writable(struct conn *c)
{
    if (c->flight) {
        /* what was left over is out; give reading a turn before the next write */
        c->flight = 0;
        c->last_io = c->last_heard = sys.mono_us();
        if (!list_empty(&c->out)) {
            update_reading(c);
            net_want_write(c);
            return 0;
        }
    } else if (flush(c) < 0) {
        return -1;
    }
    int rc = 0;
    if (list_empty(&c->out) && c->flight == 0)
        rc = queue_drained(c);
    else
        net_want_write(c);
    update_reading(c);
    return rc;
}

void conn_answer_begin(struct conn *c)
{
    const struct http_req *r = c->req;
    /* the rest of a body is read when that is cheap, else the socket is given up */
    if (!r->body_done && (r->framing.chunked || r->framing.length - r->body_len > DISCARD_MAX))
        c->close_after = 1;
}

void conn_answer_queued(struct conn *c)
{
    struct http_req *r = c->req;
    r->ended = 1;
    net_want_write(c);
    c->last_io = sys.mono_us();
    if (r->body_done || c->close_after)
        c->state = CONN_BUSY;
    else
        r->discard = 1;
}

void conn_stop(struct conn *c)
{
    struct http_req *r = c->req;
    c->close_after = 1;
    if (c->state == CONN_WS)
        ws_close(c->ws, 1012, "the server stops");
    else if (r && !r->started)
        reply_error(r, 503, "the server stops");
    else if (!r && c->state == CONN_HEAD)
        conn_doom(c);
}

/* Input */

int conn_filter(struct http_req *r)
{
    r->filtered = 1;
    if (r->s->conf.filter(r->s->conf.arg, r))
        return 1;
    r->handed = 1; /* it answers now or later */
    return 0;
}

static void body_complete(struct conn *c)
{
    struct http_req *r = c->req;
    r->body_done = 1;
    c->state = CONN_BUSY;
    c->deadline = sys.mono_us() + HTTP_HOLD_S * SEC;
    if (r->discard)
        return;
    if (!r->filtered && !conn_filter(r))
        return;
    r->handed = 1;
    c->s->conf.handle(c->s->conf.arg, r);
}

static int is_form(const struct http_req *r)
{
    const char *type = http_header(r, "content-type");
    return type && (strncasecmp(type, "application/x-www-form-urlencoded", 33) == 0 ||
                    strncasecmp(type, "multipart/form-data", 19) == 0);
}

static void body_begin(struct conn *c)
{
    struct http_req *r = c->req;
    const char *expect = http_header(r, "expect");
    uint64_t limit = HTTP_BODY_MAX;
    if (is_form(r)) {
        limit = FORM_MAX; /* not yet authenticated */
    } else if (!conn_filter(r)) {
        return;
    }
    if (r->framing.length > limit) {
        reply_error(r, 413, "the request body is too large");
        return;
    }
    if (expect && strcasecmp(expect, "100-continue") != 0) {
        reply_error(r, 417, "only 100-continue can be expected");
        return;
    }
    if (expect && !r->body_done && c->in.len == 0 && r->head.minor == 1)
        conn_queue(c, xstrdup("HTTP/1.1 100 Continue\r\n\r\n"), 25);
    if (r->body_done)
        body_complete(c);
}

static void request_begin(struct conn *c)
{
    struct http_req *r = c->req;
    c->state = CONN_BODY;
    c->deadline = sys.mono_us() + T_BODY;
    if (!r->framing.chunked && r->framing.length == 0)
        r->body_done = 1;
    if (r->outside == 404) {
        reply_error(r, 404, "not below the base URL");
    } else if (r->outside) {
        autofree char *to =
            xasprintf("%s%s%s", c->s->conf.base_url, r->query ? "?" : "", r->query ? r->query : "");
        http_redirect(r, to);
    } else if (ws_wanted(r)) {
        ws_handshake(r);
    } else {
        body_begin(c);
    }
}

/* Takes one request head off c->in. 1: a request has begun; 0: more bytes are needed. */
static int take_head(struct conn *c)
{
    size_t skip = strspn(buf_str(&c->in), "\r\n"); /* after the body of a sloppy client */
    if (skip > 0 && skip <= 4) {
        buf_consume(&c->in, skip);
        c->scan = 0;
    }
    if (c->in.len == 0)
        return 0;
    size_t len = http_head_end(c->in.data, c->in.len, &c->scan);
    if (len == 0 && c->in.len <= HTTP_HEAD_MAX)
        return 0;
    const char *why = NULL;
    int status = 0;
    if (len == 0 || len > HTTP_HEAD_MAX) {
        status = 431;
        why = "the request head is too large";
        len = 0;
    }
    char *text = NULL;
    if (len) {
        text = xmalloc(len + 1);
        memcpy(text, c->in.data, len);
        text[len] = '\0';
        buf_consume(&c->in, len);
    }
    c->scan = 0;
    int parsed = 0;
    struct http_req *r = req_new(c, text, len, &parsed, &why);
    c->req = r;
    c->close_after = !r->keep_alive || c->s->stopping;
    if (!status)
        status = parsed;
    if (status) {
        c->close_after = 1;
        r->body_done = 1;
        reply_error(r, status, why);
        return 1;
    }
    request_begin(c);
    return 1;
}

/* Feeds the body of the current request. Returns the bytes used. */
static size_t feed_body(struct conn *c, const char *data, size_t len)
{
    struct http_req *r = c->req;
    const char *why;
    size_t used;
    c->deadline = sys.mono_us() + T_BODY;
    int status = body_feed(r, data, len, &used, &why);
    if (status && r->discard) {
        c->close_after = 1;
        c->state = CONN_BUSY;
    } else if (status) {
        c->close_after = 1;
        reply_error(r, status, why);
    } else if (r->body_done) {
        int ended = r->ended;
        body_complete(c);
        if (ended)
            net_want_write(c); /* the answer may have left long ago */
    }
    return used;
}

static int process(struct conn *c)
{
    while (!c->doomed) {
        if (c->state == CONN_HEAD) {
            if (!take_head(c))
                break;
        } else if (c->state == CONN_BODY && c->in.len > 0) {
            buf_consume(&c->in, feed_body(c, c->in.data, c->in.len));
        } else if (c->state == CONN_WS && c->in.len > 0) {
            struct buf first = c->in;
            buf_init(&c->in, first.max);
            int rc = ws_rx(c->ws, (uint8_t *)first.data, first.len);
            buf_free(&first);
            return rc;
        } else {
            break;
        }
    }
    if (c->in.len == 0)
        buf_free(&c->in); /* idle connections stay small */
    return 0;
}

int conn_rx(struct conn *c, char *data, size_t len)
{
    c->last_io = c->last_heard = sys.mono_us();
    if (c->state == CONN_LINGER || c->doomed)
        return 0;
    if (c->state == CONN_WS)
        return ws_rx(c->ws, (uint8_t *)data, len);
    while (len > 0 && c->state == CONN_BODY && c->in.len == 0) {
        size_t used = feed_body(c, data, len);
        data += used;
        len -= used;
    }
    if (len > 0) {
        if (c->state == CONN_BUSY && c->close_after)
            return 0; /* nothing more will be read on it */
        if (c->state == CONN_HEAD && c->in.len == 0)
            c->deadline = c->last_io + T_HEAD;
        if (buf_append(&c->in, data, len) < 0)
            return -1; /* reading was paused long before */
    }
    int rc = process(c);
    update_reading(c);
    return rc;
}

/* Deadlines */

void conn_tick(struct conn *c, int64_t now)
{
    if (c->doomed)
        return;
    if (c->state == CONN_WS) {
        ws_tick(c->ws, now);
        return;
    }
    struct http_req *r = c->req;
    if (r && r->started && c->state == CONN_BUSY) {
        if (now - c->last_io > T_SEND && (c->out_bytes || c->flight))
            conn_doom(c);
        return;
    }
    if (now < c->deadline)
        return;
    if (c->state == CONN_BUSY) {
        reply_error(r, 503, "no answer within the time limit");
        r->gone_called = 1;
        if (r->gone)
            r->gone(r);
    } else if (c->state == CONN_BODY && !r->started) {
        c->close_after = 1;
        reply_error(r, 408, "the request body did not arrive in time");
    } else {
        conn_doom(c);
    }
}
