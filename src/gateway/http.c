#include "gateway/http.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/sys.h"
#include "gateway/http_int.h"

#define TICK_MS 1000
#define CLOSING_ROUNDS 3

static void on_tick(uv_timer_t *t)
{
    struct http_server *s = t->data;
    int64_t now = sys.mono_us();
    list_foreach(it, &s->conns) conn_tick(container_of(it, struct conn, link), now);
    net_accept_more(s);
    if (s->nconns == 0)
        uv_timer_stop(t);
}

void server_tick_start(struct http_server *s)
{
    if (!s->stopping && !uv_is_active((uv_handle_t *)&s->tick))
        uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
}

static void on_reap(uv_timer_t *t)
{
    conn_reap(t->data);
}

void server_reap_soon(struct http_server *s)
{
    if (!s->stopping) /* then the stop itself reaps */
        uv_timer_start(&s->reap, on_reap, 0, 0);
}

const char *server_date(struct http_server *s)
{
    time_t now = (time_t)(sys.wall_us() / SEC);
    struct tm tm;
    if (now != s->date_s && gmtime_r(&now, &tm)) {
        strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        s->date_s = now;
    }
    return s->date;
}

static void own_conf(struct http_server *s, const struct http_conf *conf)
{
    s->conf = *conf;
    s->conf.listen = xstrdup(conf->listen);
    s->conf.base_url = xstrdup(conf->base_url);
    int tls = conf->tls_cert && *conf->tls_cert;
    s->conf.tls_cert = tls ? xstrdup(conf->tls_cert) : NULL;
    s->conf.tls_key =
        tls ? xstrdup(conf->tls_key && *conf->tls_key ? conf->tls_key : conf->tls_cert) : NULL;
    s->conf.spool = xstrdup(conf->spool);
}

static void free_server(struct http_server *s)
{
    net_free(s);
    free((char *)(uintptr_t)s->conf.listen);
    free((char *)(uintptr_t)s->conf.base_url);
    free((char *)(uintptr_t)s->conf.tls_cert);
    free((char *)(uintptr_t)s->conf.tls_key);
    free((char *)(uintptr_t)s->conf.spool);
    free(s->scratch);
    free(s);
}

/* libwebsockets closes its handles in two rounds of the loop, the second begun by callbacks of the
 * first; ours are gone after the first. A handle that is closed again and again outlasts both. */
static void on_round_over(uv_handle_t *h)
{
    struct http_server *s = h->data;
    if (++s->rounds == CLOSING_ROUNDS) {
        free_server(s);
        return;
    }
    uv_timer_init(s->loop, &s->tick);
    s->tick.data = s;
    uv_close((uv_handle_t *)&s->tick, on_round_over);
}

static void release(struct http_server *s)
{
    net_close(s);
    uv_close((uv_handle_t *)&s->reap, NULL);
    uv_close((uv_handle_t *)&s->tick, on_round_over);
}

int http_server_start(uv_loop_t *loop, const struct http_conf *conf, struct http_server **ret,
                      struct err *e)
{
    struct http_server *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    own_conf(s, conf);
    list_init(&s->conns);
    s->scratch = xmalloc(IO_CHUNK);
    uv_timer_init(loop, &s->tick);
    uv_timer_init(loop, &s->reap);
    s->tick.data = s->reap.data = s;
    int rc = net_start(s, e);
    if (rc < 0) {
        s->stopping = 1;
        release(s);
        return rc;
    }
    *ret = s;
    return 0;
}

int http_server_port(const struct http_server *s)
{
    return net_port(s);
}

void http_server_stop(struct http_server *s)
{
    s->stopping = 1;
    net_listen_stop(s);
    list_foreach(it, &s->conns) conn_stop(container_of(it, struct conn, link));
    conn_reap(s);
    net_last_words(s, T_STOP);
    while (!list_empty(&s->conns))
        net_kill(container_of(s->conns.next, struct conn, link));
    release(s);
}
