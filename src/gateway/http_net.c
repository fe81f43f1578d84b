/* The transport: the only file that knows libwebsockets.
 *
 * libwebsockets (4.1.6) carries the bytes in its raw role: polling on our libuv loop, TLS, and
 * what a socket did not take. HTTP and WebSocket grammar is ours, because its own parser answers
 * requests that must be refused (bare line feeds, both kinds of length, blanks before a colon),
 * turns '+' in paths into blanks, knows no chunked bodies, and starts to parse a pipelined request
 * over the one that is being served.
 */
#include "gateway/http_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libwebsockets.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "gateway/http_int.h"

#define ACCEPT_BATCH 64
#define FDS_TABLE 65536 /* libwebsockets allocates 16 bytes per descriptor of the soft limit */

struct net {
    struct http_server *s;
    struct lws_context *ctx;
    struct lws_vhost *vhost;
    struct listener listener;
    uv_poll_t poll;
    int listening, paused, tls;
    uv_prepare_t prepare;
    struct list ready; /* connections that write before the loop sleeps */
    int flushing;
};

/* libwebsockets reports causes only through its log: the first error since this was cleared */
static char lws_error[256];

static void lws_log(int level, const char *line)
{
    char text[sizeof lws_error];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    if (level == LLL_ERR && !*lws_error)
        memcpy(lws_error, text, sizeof text);
    log_debug("libwebsockets", "text", text, NULL);
}

/* Name of the peer: an address, or "unix". */
static void peer_name(int fd, char *out, size_t size)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    snprintf(out, size, "unix");
    if (getpeername(fd, (struct sockaddr *)&sa, &len) != 0 || sa.ss_family == AF_UNIX)
        return;
    if (getnameinfo((struct sockaddr *)&sa, len, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        snprintf(out, size, "?");
}

static int on_adopt(struct lws *wsi)
{
    struct net *n = lws_context_user(lws_get_context(wsi));
    char peer[NI_MAXHOST];
    peer_name(lws_get_socket_fd(wsi), peer, sizeof peer);
    lws_set_opaque_user_data(wsi, conn_open(n->s, wsi, peer, n->tls));
    return 0;
}

static int guarded(struct conn *c, int rc)
{
    c->inside--;
    return rc < 0 || c->doomed ? -1 : 0;
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    (void)user;
    struct conn *c;
    switch (reason) {
    case LWS_CALLBACK_RAW_ADOPT:
        return on_adopt(wsi);
    case LWS_CALLBACK_RAW_RX:
        if (!(c = lws_get_opaque_user_data(wsi)))
            return -1;
        /* ends the limit that libwebsockets sets when a TLS handshake is done */
        lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
        c->inside++;
        return guarded(c, conn_rx(c, in, len));
    case LWS_CALLBACK_RAW_WRITEABLE:
        if (!(c = lws_get_opaque_user_data(wsi)))
            return -1;
        c->inside++;
        c->writing = 0;
        return guarded(c, conn_writable(c));
    case LWS_CALLBACK_RAW_CLOSE:
        if ((c = lws_get_opaque_user_data(wsi)) != NULL) {
            lws_set_opaque_user_data(wsi, NULL);
            conn_closed(c);
        }
        return 0;
    default:
        return 0; /* not lws_callback_http_dummy(): there is no HTTP role */
    }
}

static const struct lws_protocols protocols[] = {{"bytes", callback, 0, 0, 0, NULL, 0},
                                                 {NULL, NULL, 0, 0, 0, NULL, 0}};

/* What callbacks of this turn have queued leaves in one go before the loop sleeps: two changes of
 * the descriptor's interest and a wake-up less than by a writeable callback. Who is not done then,
 * or has a socket that took only a part, waits for that callback. */
static void flush_ready(struct net *n)
{
    struct list now;
    list_init(&now);
    while (!list_empty(&n->ready)) {
        struct list *first = n->ready.next;
        list_remove(first);
        list_append(&now, first);
    }
    n->flushing = 1;
    while (!list_empty(&now)) {
        struct conn *c = container_of(now.next, struct conn, ready);
        list_remove(&c->ready);
        c->inside++;
        c->writing = 0;
        if (guarded(c, conn_writable(c)) < 0)
            net_kill(c);
    }
    n->flushing = 0;
}

static void before_sleep(uv_prepare_t *p)
{
    struct net *n = p->data;
    uv_prepare_stop(p);
    flush_ready(n);
}

void net_want_write(struct conn *c)
{
    struct net *n = c->s->net;
    if (c->writing || !c->wsi)
        return;
    c->writing = 1;
    if (c->flight || n->flushing) {
        lws_callback_on_writable(c->wsi);
        return;
    }
    list_append(&n->ready, &c->ready); /* net_last_words() flushes when the loop no longer does */
    if (n->listening)
        uv_prepare_start(&n->prepare, before_sleep);
}

/* libwebsockets keeps what the socket does not take. Until that is gone it neither reads nor waits
 * for less than "readable", so reading must be off meanwhile or it would spin. */
int net_write(struct conn *c, const void *data, size_t len, int *partial)
{
    if (lws_write(c->wsi, (unsigned char *)(uintptr_t)data, len, LWS_WRITE_RAW) < 0)
        return -1;
    *partial = lws_partial_buffered(c->wsi);
    return 0;
}

void net_pause(struct conn *c, int pause)
{
    if (c->paused == pause || !c->wsi)
        return;
    c->paused = pause;
    lws_rx_flow_control(c->wsi, !pause);
}

void net_shutdown(struct conn *c)
{
    SSL *ssl = c->tls ? lws_get_ssl(c->wsi) : NULL;
    if (ssl)
        IGNORE_RESULT(SSL_shutdown(ssl)); /* the connection ends either way */
    shutdown(lws_get_socket_fd(c->wsi), SHUT_WR);
}

void net_kill(struct conn *c)
{
    lws_set_timeout(c->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_SYNC);
}

void net_sha1(const void *data, size_t len, uint8_t out[20])
{
    lws_SHA1(data, len, out);
}

static void adopt(struct net *n, int fd)
{
    if (n->listener.port) {
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    lws_adopt_desc_t d = {.vh = n->vhost,
                          .type = LWS_ADOPT_SOCKET | LWS_ADOPT_ALLOW_SSL,
                          .fd.sockfd = fd,
                          .vh_prot_name = protocols[0].name};
    /* on failure the descriptor is closed and RAW_CLOSE was called */
    if (!lws_adopt_descriptor_vhost_via_info(&d))
        log_debug("a connection could not be taken over", NULL);
}

static void pause_accept(struct net *n)
{
    n->paused = 1;
    uv_poll_stop(&n->poll);
}

static void on_connect(uv_poll_t *p, int status, int events)
{
    struct net *n = p->data;
    (void)events;
    if (status < 0)
        return;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        if (n->s->nconns >= CONNS_MAX) {
            struct conn *idle = conn_oldest_idle(n->s);
            if (!idle) {
                pause_accept(n);
                return;
            }
            net_kill(idle);
        }
        int fd = accept4(n->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            adopt(n, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_warn("cannot accept connections for now", "cause", strerror(errno), NULL);
            pause_accept(n);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* nobody waits */
        }
    }
}

void net_accept_more(struct http_server *s)
{
    struct net *n = s->net;
    if (n && !s->stopping && n->paused && n->listening && s->nconns < CONNS_MAX) {
        n->paused = 0;
        uv_poll_start(&n->poll, UV_READABLE, on_connect);
    }
}

static int create_context(struct net *n, struct err *e)
{
    void *loops[1] = {n->s->loop};
    struct lws_context_creation_info info = {0};
    info.options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS;
    if (n->tls)
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
    info.foreign_loops = loops;
    info.pt_serv_buf_size = IO_CHUNK;
    info.user = n;
    info.port = CONTEXT_PORT_NO_LISTEN_SERVER;

    struct rlimit old, low;
    int lowered = getrlimit(RLIMIT_NOFILE, &old) == 0 && old.rlim_cur > FDS_TABLE;
    if (lowered) {
        low = old;
        low.rlim_cur = FDS_TABLE;
        lowered = setrlimit(RLIMIT_NOFILE, &low) == 0;
    }
    lws_error[0] = '\0';
    n->ctx = lws_create_context(&info);
    if (lowered && setrlimit(RLIMIT_NOFILE, &old) != 0)
        log_warn("cannot restore the descriptor limit", NULL);
    if (!n->ctx)
        return err_set(e, ERR_CONFIG,
                       "libwebsockets does not start (%s); is the package "
                       "libwebsockets-evlib-uv installed?",
                       lws_error);
    return 0;
}

static int create_vhost(struct net *n, struct err *e)
{
    const struct http_conf *conf = &n->s->conf;
    struct lws_context_creation_info info = {0};
    info.port = CONTEXT_PORT_NO_LISTEN_SERVER;
    info.protocols = protocols;
    info.timeout_secs = (unsigned)(T_HEAD / SEC);
    if (n->tls) {
        if (access(conf->tls_cert, R_OK) != 0)
            return err_set(e, ERR_CONFIG, "TLS certificate %s: %s", conf->tls_cert,
                           strerror(errno));
        if (access(conf->tls_key, R_OK) != 0)
            return err_set(e, ERR_CONFIG, "TLS key %s: %s", conf->tls_key, strerror(errno));
        info.options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
        info.ssl_cert_filepath = conf->tls_cert;
        info.ssl_private_key_filepath = conf->tls_key;
        info.ssl_options_set =
            (long)(SSL_OP_NO_TLSv1 | SSL_OP_NO_TLSv1_1 | SSL_OP_NO_RENEGOTIATION);
        info.alpn = "http/1.1";
    }
    lws_error[0] = '\0';
    n->vhost = lws_create_vhost(n->ctx, &info);
    if (!n->vhost)
        return err_set(e, ERR_CONFIG, "TLS certificate %s with key %s cannot be used: %s",
                       conf->tls_cert, conf->tls_key, lws_error);
    return 0;
}

int net_start(struct http_server *s, struct err *e)
{
    struct net *n = xcalloc(1, sizeof *n);
    n->s = s;
    list_init(&n->ready);
    n->tls = s->conf.tls_cert != NULL;
    s->net = n;
    lws_set_log_level(LLL_ERR | LLL_WARN | LLL_NOTICE, lws_log);
    int rc = listener_open(s->conf.listen, &n->listener, e);
    if (rc >= 0)
        rc = create_context(n, e);
    if (rc >= 0)
        rc = create_vhost(n, e);
    if (rc < 0)
        return rc; /* the caller goes on with net_close() */
    uv_prepare_init(s->loop, &n->prepare);
    uv_unref((uv_handle_t *)&n->prepare);
    n->prepare.data = n;
    uv_poll_init(s->loop, &n->poll, n->listener.fd);
    n->poll.data = n;
    n->listening = 1;
    uv_poll_start(&n->poll, UV_READABLE, on_connect);
    return 0;
}

int net_port(const struct http_server *s)
{
    return s->net->listener.port;
}

void net_listen_stop(struct http_server *s)
{
    struct net *n = s->net;
    if (n->listening) { /* the handles are part of `n`, which outlives them */
        uv_close((uv_handle_t *)&n->poll, NULL);
        uv_close((uv_handle_t *)&n->prepare, NULL);
    }
    n->listening = 0;
    listener_close(&n->listener);
}

static nfds_t fill_pollfds(struct http_server *s, struct pollfd *fds)
{
    nfds_t count = 0;
    list_foreach(it, &s->conns)
    {
        struct conn *c = container_of(it, struct conn, link);
        short events = c->paused ? 0 : POLLIN;
        if (c->writing || c->flight)
            events |= POLLOUT;
        fds[count++] = (struct pollfd){.fd = lws_get_socket_fd(c->wsi), .events = events};
    }
    return count;
}

void net_last_words(struct http_server *s, int64_t us)
{
    int64_t end = sys.mono_us() + us;
    autofree struct pollfd *fds = xcalloc(s->nconns + 1, sizeof *fds);
    for (int64_t left = us; s->nconns > 0 && left > 0; left = end - sys.mono_us()) {
        flush_ready(s->net);
        nfds_t count = fill_pollfds(s, fds);
        int ready = poll(fds, count, (int)(left / 1000) + 1);
        for (nfds_t i = 0; i < count && ready > 0; i++)
            if (fds[i].revents)
                lws_service_fd(s->net->ctx, &fds[i]);
        conn_reap(s);
    }
}

void net_close(struct http_server *s)
{
    net_listen_stop(s);
    if (s->net->ctx)
        lws_context_destroy(s->net->ctx);
}

void net_free(struct http_server *s)
{
    if (s->net->ctx)
        lws_context_destroy(s->net->ctx);
    free(s->net);
    s->net = NULL;
}
