/* A server for tests of gateway/http.h: says what it received.
 *
 *     http_echo LISTEN BASE_URL FILE [CERT KEY]
 *
 * Prints "ready PORT" and serves until SIGTERM. It exits with 0 when the loop closed clean. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"
#include "gateway/http.h"

static struct {
    uv_loop_t loop;
    struct http_server *server;
    const char *file;
    int gone, done, ws_open, ws_closed, last_status;
    int64_t leap_us;
    int64_t (*mono_us)(void);
} t;

/* The clock of deadlines, which "leap" puts forward. */
static int64_t leaping_clock(void)
{
    return t.mono_us() + t.leap_us;
}

static long number(const struct http_req *r, const char *key, long def)
{
    const char *v = http_query(r, key);
    return v ? strtol(v, NULL, 10) : def;
}

static void body_sha(const struct http_req *r, char out[SHA256_HEX])
{
    struct sha256 *h = sha256_new();
    uint64_t flen;
    size_t len;
    int fd = http_body_fd(r, &flen);
    if (fd >= 0) {
        char *buf = xmalloc(1 << 20);
        ssize_t n;
        for (off_t at = 0; (n = pread(fd, buf, 1 << 20, at)) > 0; at += n)
            sha256_update(h, buf, (size_t)n);
        free(buf);
    } else {
        const char *body = http_body(r, &len);
        sha256_update(h, body, len);
    }
    sha256_final_hex(h, out);
}

static void set(json_t *o, const char *key, const char *value)
{
    json_object_set_new(o, key, value ? json_string(value) : json_null());
}

static void echo(struct http_req *r)
{
    char sha[SHA256_HEX];
    uint64_t len;
    body_sha(r, sha);
    int fd = http_body_fd(r, &len);
    json_t *o = json_object();
    set(o, "method", http_method_name(http_method(r)));
    set(o, "path", http_path(r));
    set(o, "uri", http_raw_uri(r));
    set(o, "peer", http_peer(r));
    set(o, "q", http_query(r, "q"));
    const char *h = http_query(r, "h"), *c = http_query(r, "c");
    set(o, "header", h ? http_header(r, h) : NULL);
    set(o, "cookie", c ? http_cookie(r, c) : NULL);
    set(o, "sha256", sha);
    json_object_set_new(o, "len", json_integer((json_int_t)len));
    json_object_set_new(o, "spooled", json_boolean(fd >= 0));
    json_object_set_new(o, "tls", json_boolean(http_is_tls(r)));
    http_reply_json(r, 200, o);
}

static void stats(struct http_req *r)
{
    http_reply_json(r, 200,
                    json_pack("{s:i,s:i,s:i,s:i,s:i}", "gone", t.gone, "done", t.done, "ws_open",
                              t.ws_open, "ws_closed", t.ws_closed, "last_status", t.last_status));
}

/* Answers after a while, even when the client is gone by then. */
struct delayed {
    struct http_req *r;
    struct loop_timer *timer;
};

static void count_gone(struct http_req *r)
{
    (void)r;
    t.gone++;
}

static void delayed_answer(void *arg)
{
    struct delayed *d = arg;
    loop_timer_stop(d->timer);
    http_reply(d->r, 200, "text/plain", "late", 4);
    free(d);
}

static void delay(struct http_req *r)
{
    struct delayed *d = xcalloc(1, sizeof *d);
    d->r = r;
    http_on_gone(r, count_gone);
    d->timer = loop_timer_start(&t.loop, (uint64_t)number(r, "ms", 100), 0, delayed_answer, d);
}

static void gone_answers(struct http_req *r)
{
    t.gone++;
    http_reply_status(r, 503, "gone");
}

/* n pieces of `size` bytes, a new one whenever the last has left */
struct stream {
    long left;
    size_t size;
    char *piece;
};

static void stream_free(void *arg)
{
    struct stream *s = arg;
    free(s->piece);
    free(s);
}

static void stream_more(struct http_req *r)
{
    struct stream *s = http_data(r);
    if (s->left-- <= 0)
        http_stream_end(r);
    else if (http_stream_write(r, s->piece, s->size) < 0)
        t.gone += 100; /* not when it was drained */
}

static void stream_gone(struct http_req *r)
{
    t.gone++;
    char c = 'x';
    if (http_stream_write(r, &c, 1) >= 0 || http_stream_pending(r) != 0)
        t.gone += 100;
    http_stream_end(r);
}

static void stream(struct http_req *r)
{
    struct stream *s = xcalloc(1, sizeof *s);
    s->left = number(r, "n", 3);
    s->size = (size_t)number(r, "size", 10);
    s->piece = xmalloc(s->size + 1);
    memset(s->piece, 's', s->size);
    http_set_data(r, s, stream_free);
    http_on_gone(r, stream_gone);
    http_stream_on_drained(r, stream_more);
    http_stream_start(r, 200, "text/plain");
}

static void file(struct http_req *r)
{
    struct stat st;
    int fd = open(t.file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        http_reply_status(r, 404, NULL);
        return;
    }
    long off = number(r, "off", 0);
    http_reply_file(r, 200, "application/octet-stream", fd, (uint64_t)off,
                    (uint64_t)number(r, "len", st.st_size - off));
}

static void bytes(struct http_req *r)
{
    struct buf b;
    size_t n = (size_t)number(r, "n", 1000);
    char *p;
    buf_init(&b, (size_t)1 << 30);
    if (buf_reserve(&b, n, &p) == 0) {
        memset(p, 'b', n);
        b.len = n;
    }
    http_reply_buf(r, (int)number(r, "status", 200), "text/plain", &b);
}

static void json(struct http_req *r)
{
    json_t *v;
    struct err e = {0};
    if (http_body_json(r, &v, &e) < 0)
        http_reply_err(r, &e);
    else
        http_reply_json(r, 201, v);
}

static void headers(struct http_req *r)
{
    http_set_header(r, "X-One", "a\r\nX-Evil: %d", 1);
    http_set_header(r, "Set-Cookie", "n=1");
    http_set_header(r, "Set-Cookie", "m=2");
    http_reply(r, 200, "text/plain", "ok", 2);
}

static void handle(void *arg, struct http_req *r)
{
    (void)arg;
    static const struct {
        const char *path;
        void (*fn)(struct http_req *r);
    } routes[] = {{"stats", stats}, {"delay", delay},     {"stream", stream}, {"file", file},
                  {"bytes", bytes}, {"headers", headers}, {"json", json}};
    const char *path = http_path(r);
    for (size_t i = 0; i < COUNTOF(routes); i++) {
        if (strcmp(path, routes[i].path) == 0) {
            routes[i].fn(r);
            return;
        }
    }
    if (strcmp(path, "hold") == 0)
        http_on_gone(r, gone_answers);
    else if (strcmp(path, "small") == 0)
        http_reply(r, 200, "application/json", "{\"a\": 1, \"b\": [true, null]}", 27);
    else if (strcmp(path, "empty") == 0)
        http_reply_json(r, (int)number(r, "status", 204), NULL);
    else if (strcmp(path, "leap") == 0) {
        t.leap_us += number(r, "s", 0) * 1000000;
        http_reply(r, 200, NULL, NULL, 0);
    } else if (strcmp(path, "redirect") == 0)
        http_redirect(r, "/elsewhere");
    else if (strncmp(path, "echo", 4) == 0)
        echo(r);
    else
        http_reply_status(r, 404, "no such route");
}

static int filter(void *arg, struct http_req *r)
{
    (void)arg;
    if (!http_header(r, "x-deny"))
        return 1;
    http_reply_status(r, 403, "denied");
    return 0;
}

static void done(void *arg, struct http_req *r, int status, double seconds)
{
    (void)arg;
    (void)r;
    (void)seconds;
    t.done++;
    t.last_status = status;
}

/* WebSocket: echoes, except for a few commands. */
static void on_open(struct ws *w, void *arg)
{
    (void)w;
    (void)arg;
    t.ws_open++;
}

static void command(struct ws *w, const char *text)
{
    if (strncmp(text, "close:", 6) == 0) {
        ws_close(w, (int)strtol(text + 6, NULL, 10), "as you wish");
        ws_send_text(w, "too late", 8);
    } else if (strncmp(text, "ping:", 5) == 0) {
        ws_ping(w, strtoull(text + 5, NULL, 10));
    } else if (strcmp(text, "sub:") == 0) {
        const char *s = ws_subprotocol(w);
        ws_send_text(w, s, strlen(s));
    } else if (strncmp(text, "big:", 4) == 0) {
        struct buf b;
        size_t n = (size_t)strtoull(text + 4, NULL, 10);
        char *p;
        buf_init(&b, WS_QUEUE_MAX);
        if (buf_reserve(&b, n, &p) == 0) {
            memset(p, 'w', n);
            b.len = n;
        }
        ws_send(w, &b, 1);
    }
}

static void on_message(struct ws *w, void *arg, const void *data, size_t len, int binary)
{
    (void)arg;
    if (!binary && len < 40 && memchr(data, ':', len)) {
        autofree char *text = xstrndup(data, len);
        command(w, text);
        return;
    }
    struct buf b;
    buf_init(&b, WS_MESSAGE_MAX);
    IGNORE_RESULT(buf_append(&b, data, len)); /* same limit */
    ws_send(w, &b, binary);
}

static void on_pong(struct ws *w, void *arg, uint64_t mark)
{
    (void)arg;
    autofree char *text = xasprintf("pong %llu", (unsigned long long)mark);
    ws_send_text(w, text, strlen(text));
}

static void on_closed(struct ws *w, void *arg)
{
    (void)w;
    (void)arg;
    t.ws_closed++;
}

static void on_oversize(struct ws *w, void *arg, const void *head, size_t len)
{
    (void)arg;
    autofree char *text = xasprintf("oversize %zu %.4s", len, (const char *)head);
    ws_send_text(w, text, strlen(text));
}

static int upgrade(void *arg, struct http_req *r, const struct ws_ops **ops, void **ws_arg)
{
    static const struct ws_ops echo_ops = {.open = on_open,
                                           .message = on_message,
                                           .pong = on_pong,
                                           .closed = on_closed,
                                           .oversize = on_oversize};
    (void)arg;
    *ws_arg = NULL;
    *ops = &echo_ops;
    if (strcmp(http_path(r), "ws-own") == 0) {
        http_reply_json(r, 409, json_pack("{s:s}", "message", "own words"));
        return -1;
    }
    return strcmp(http_path(r), "ws") == 0 ? 0 : 404;
}

static void on_signal(uv_signal_t *s, int signum)
{
    (void)s;
    (void)signum;
    http_server_stop(t.server);
    t.server = NULL;
    uv_stop(&t.loop);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    if (argc < 4)
        return 2;
    log_setup(LOG_INFO, 0, "http_echo");
    json_setup();
    t.mono_us = sys.mono_us;
    sys.mono_us = leaping_clock;
    t.file = argv[3];
    uv_loop_init(&t.loop);
    struct http_conf conf = {.listen = argv[1],
                             .base_url = argv[2],
                             .tls_cert = argc > 5 ? argv[4] : NULL,
                             .tls_key = argc > 5 ? argv[5] : NULL,
                             .filter = filter,
                             .handle = handle,
                             .upgrade = upgrade,
                             .done = done};
    int rc = http_server_start(&t.loop, &conf, &t.server, &e);
    if (rc < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return loop_fini(&t.loop) == 0 ? err_exit(rc) : 9;
    }
    uv_signal_t term;
    uv_signal_init(&t.loop, &term);
    uv_signal_start(&term, on_signal, SIGTERM);
    printf("ready %d\n", http_server_port(t.server));
    fflush(stdout);
    uv_run(&t.loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&term, NULL);
    return loop_fini(&t.loop) == 0 ? 0 : 9;
}
