#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/http_int.h"

static const struct {
    int status;
    const char *text;
} texts[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {423, "Locked"},
    {424, "Failed Dependency"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *status_text(int status)
{
    for (size_t i = 0; i < COUNTOF(texts); i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "Status";
}

void http_set_header(struct http_req *r, const char *name, const char *fmt, ...)
{
    autofree char *value = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&value, fmt, ap);
    va_end(ap);
    if (n < 0) {
        value = NULL;
        log_error("header dropped", "name", name, "reason", "no memory", NULL);
        return;
    }
    for (char *p = value; *p; p++)
        if ((unsigned char)*p < ' ' && *p != '\t')
            *p = ' '; /* a line break in a value would begin another header */
    if (buf_printf(&r->extra, "%s: %s\r\n", name, value) < 0)
        log_error("header dropped", "name", name, "reason", "too long", NULL);
}

/* May an answer begin? When not, its call has been accounted for and `r` may be gone. */
static int may_begin(struct http_req *r, int last)
{
    if (r->answered || r->stream) {
        log_error("a request was answered twice", "path", r->path, NULL);
        return 0;
    }
    r->answered = last;
    if (r->c)
        return !r->started; /* else the hold limit has answered, and the connection frees it */
    if (last)
        req_free(r);
    return 0;
}

#define NO_LENGTH UINT64_MAX

static int has_body(const struct http_req *r, int status)
{
    return r->method != HTTP_HEAD && status >= 200 && status != 204 && status != 304;
}

/* Queues the head; `first` bytes of the body go with it in one piece. */
static void send_head(struct http_req *r, int status, const char *type, uint64_t length,
                      const void *first, size_t nfirst)
{
    struct conn *c = r->c;
    conn_answer_begin(c);
    r->started = 1;
    r->status = status;
    struct buf b;
    buf_init(&b, HTTP_HEAD_MAX * 2);
    buf_add(&b, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, status_text(status), server_date(c->s));
    if (type && *type && status != 204 && status != 304)
        buf_add(&b, "Content-Type: %s\r\n", type);
    if (length != NO_LENGTH && status != 204 && status != 304)
        buf_add(&b, "Content-Length: %llu\r\n", (unsigned long long)length);
    else if (r->reply_chunked)
        buf_add(&b, "Transfer-Encoding: chunked\r\n");
    if (c->close_after)
        buf_add(&b, "Connection: close\r\n");
    else if (r->head.minor == 0)
        buf_add(&b, "Connection: keep-alive\r\n");
    buf_add(&b, "%s\r\n", buf_str(&r->extra));
    buf_free(&r->extra);
    if (nfirst)
        IGNORE_RESULT(buf_append(&b, first, nfirst)); /* fits: at most HTTP_HEAD_MAX */
    size_t len = b.len;
    conn_queue(c, buf_steal(&b), len);
}

static void reply_memory(struct http_req *r, int status, const char *type, const void *body,
                         size_t len, struct buf *taken)
{
    int small = len <= HTTP_HEAD_MAX / 4;
    int with = has_body(r, status) && len > 0;
    send_head(r, status, type, len, body, with && small ? len : 0);
    if (with && !small) {
        char *data = taken ? buf_steal(taken) : xmalloc(len);
        if (!taken)
            memcpy(data, body, len);
        conn_queue(r->c, data, len);
    }
    conn_answer_queued(r->c);
}

void http_reply(struct http_req *r, int status, const char *type, const void *body, size_t len)
{
    if (may_begin(r, 1))
        reply_memory(r, status, type, body, len, NULL);
}

void http_reply_buf(struct http_req *r, int status, const char *type, struct buf *body)
{
    if (may_begin(r, 1))
        reply_memory(r, status, type, buf_str(body), body->len, body);
    buf_free(body);
}

void http_reply_json(struct http_req *r, int status, json_t *v)
{
    struct buf b;
    buf_init(&b, JSON_TEXT_MAX);
    if (v && json_write(v, &b) < 0) {
        log_error("an answer is too large", "path", r->path, NULL);
        buf_free(&b);
        status = 500;
    }
    json_decref(v);
    if (v)
        http_reply_buf(r, status, "application/json", &b);
    else
        http_reply(r, status, NULL, NULL, 0);
}

static json_t *message_body(const char *message, const char *reason)
{
    json_t *text = json_string(message);
    if (!text) /* not UTF-8: it came from outside */
        text = json_string("error");
    return json_pack("{s:o,s:s?}", "message", text, "reason", reason);
}

void http_reply_err(struct http_req *r, const struct err *e)
{
    http_reply_json(r, err_http(e->code), message_body(e->msg, err_text(e->code)));
}

void http_reply_status(struct http_req *r, int status, const char *message)
{
    http_reply_json(r, status, message_body(message ? message : status_text(status), NULL));
}

void reply_error(struct http_req *r, int status, const char *why)
{
    struct buf b;
    buf_init(&b, JSON_TEXT_MAX);
    autojson json_t *v = message_body(why, NULL);
    IGNORE_RESULT(json_write(v, &b)); /* a constant text */
    r->c->close_after |= !r->body_done;
    reply_memory(r, status, "application/json", buf_str(&b), b.len, &b);
    buf_free(&b);
}

void http_reply_file(struct http_req *r, int status, const char *type, int fd, uint64_t offset,
                     uint64_t len)
{
    if (!may_begin(r, 1)) {
        close(fd);
        return;
    }
    send_head(r, status, type, len, NULL, 0);
    if (has_body(r, status) && len > 0)
        conn_queue_file(r->c, fd, offset, len);
    else
        close(fd);
    conn_answer_queued(r->c);
}

void http_redirect(struct http_req *r, const char *location)
{
    http_set_header(r, "Location", "%s", location);
    http_reply(r, 302, NULL, NULL, 0);
}

void http_stream_start(struct http_req *r, int status, const char *type)
{
    int begin = may_begin(r, 0); /* never frees: it is not the last call */
    r->stream = 1;
    if (!begin)
        return;
    r->reply_chunked = r->head.minor >= 1 && has_body(r, status);
    if (!r->reply_chunked && has_body(r, status))
        r->c->close_after = 1; /* HTTP/1.0: the end of the connection ends the body */
    send_head(r, status, type, NO_LENGTH, NULL, 0);
    r->streaming = 1;
    if (r->body_done)
        r->c->state = CONN_BUSY;
}

int http_stream_write(struct http_req *r, const void *data, size_t len)
{
    if (!r->c || !r->streaming)
        return ERR_GONE;
    if (len == 0 || !has_body(r, r->status))
        return 0; /* an empty chunk would end the body */
    if (!r->reply_chunked) {
        char *copy = xmalloc(len);
        memcpy(copy, data, len);
        conn_queue(r->c, copy, len);
        return 0;
    }
    char *piece = xmalloc(len + 24);
    size_t n = (size_t)snprintf(piece, 20, "%zx\r\n", len);
    memcpy(piece + n, data, len);
    memcpy(piece + n + len, "\r\n", 2);
    conn_queue(r->c, piece, n + len + 2);
    return 0;
}

size_t http_stream_pending(const struct http_req *r)
{
    return r->c ? (size_t)r->c->out_bytes + r->c->flight : 0;
}

void http_stream_on_drained(struct http_req *r, void (*drained)(struct http_req *r))
{
    r->drained = drained;
}

void http_stream_end(struct http_req *r)
{
    r->answered = 1;
    if (!r->c) {
        req_free(r);
        return;
    }
    if (!r->streaming)
        return; /* answered by the hold limit */
    if (r->reply_chunked)
        conn_queue(r->c, xstrdup("0\r\n\r\n"), 5);
    conn_answer_queued(r->c);
}
