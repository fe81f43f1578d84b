#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sys.h"
#include "gateway/http_int.h"

/* Splits and decodes the target. Returns 0 or an HTTP status. */
static int parse_target(struct http_req *r, const char **why)
{
    r->raw_uri = xstrdup(r->head.target);
    size_t len = strcspn(r->raw_uri, "?#");
    if (r->raw_uri[len] == '?') {
        /* a fragment is never sent by a sane client; it is no part of the query */
        r->query = r->raw_uri + len + 1;
    }
    r->path_text = xmalloc(len + 1);
    if (http_path_decode(r->raw_uri, len, r->path_text) < 0) {
        *why = "the path is not percent-encoded UTF-8";
        return 400;
    }
    return 0;
}

struct http_req *req_new(struct conn *c, char *text, size_t len, int *ret_status,
                         const char **ret_why)
{
    struct http_req *r = xcalloc(1, sizeof *r);
    r->c = c;
    r->s = c->s;
    r->tls = c->tls;
    memcpy(r->peer, c->peer, sizeof r->peer);
    list_init(&r->kept);
    buf_init(&r->body, HTTP_BODY_MEMORY + IO_CHUNK);
    buf_init(&r->extra, HTTP_HEAD_MAX);
    r->body_fd = -1;
    r->start_us = sys.mono_us();
    r->text = text;
    r->path = "";
    if (!text)
        return r;
    int status = http_head_parse(text, len, &r->head, ret_why);
    if (!status && r->head.method < 0) {
        status = 501;
        *ret_why = "unknown method";
    }
    if (!status)
        status = http_head_framing(&r->head, &r->framing, ret_why);
    if (!status)
        status = parse_target(r, ret_why);
    if (!status) {
        r->method = (enum http_method)r->head.method;
        const char *connection = http_header(r, "connection");
        r->keep_alive = !http_has_token(connection, "close") &&
                        (r->head.minor >= 1 || http_has_token(connection, "keep-alive"));
        int redirect;
        const char *inside = http_base_strip(r->path_text, c->s->conf.base_url, &redirect);
        r->path = inside;
        r->outside = inside ? 0 : redirect ? 301 : 404;
        if (!inside)
            r->path = "";
    }
    *ret_status = status;
    return r;
}

void req_free(struct http_req *r)
{
    if (r->free_fn)
        r->free_fn(r->data);
    list_foreach(it, &r->kept)
    {
        struct kept *k = container_of(it, struct kept, link);
        free(k->name);
        free(k->value);
        free(k);
    }
    if (r->body_fd >= 0)
        close(r->body_fd);
    buf_free(&r->body);
    buf_free(&r->extra);
    free(r->head.fields);
    free(r->text);
    free(r->raw_uri);
    free(r->path_text);
    free(r->principal.user);
    free(r->principal.display);
    free(r);
}

void req_finish(struct http_req *r, int status)
{
    int waits = !r->answered && !r->gone_called;
    const struct http_conf *conf = &r->s->conf;
    r->c = NULL;
    if (conf->done)
        conf->done(conf->arg, r, status ? status : 499,
                   (double)(sys.mono_us() - r->start_us) / 1e6);
    if (r->answered || !r->handed) {
        req_free(r);
    } else if (waits && r->gone) {
        r->gone_called = 1;
        r->gone(r); /* may answer and so free r */
    }
}

enum http_method http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_path(const struct http_req *r)
{
    return r->path;
}

const char *http_raw_uri(const struct http_req *r)
{
    return r->raw_uri ? r->raw_uri : "";
}

static struct kept *keep(struct http_req *r, char kind, const char *name, char *value)
{
    struct kept *k = xcalloc(1, sizeof *k);
    k->kind = kind;
    k->name = xstrdup(name);
    k->value = value;
    list_append(&r->kept, &k->link);
    return k;
}

static struct kept *kept_find(const struct http_req *r, char kind, const char *name)
{
    list_foreach(it, &r->kept)
    {
        struct kept *k = container_of(it, struct kept, link);
        if (k->kind == kind && strcmp(k->name, name) == 0)
            return k;
    }
    return NULL;
}

/* Decoded texts are remembered in the request, which is logically unchanged by that. */
static struct http_req *mutable_req(const struct http_req *r)
{
    return (struct http_req *)(uintptr_t)r;
}

const char *http_query(const struct http_req *r, const char *key)
{
    struct kept *k = kept_find(r, 'q', key);
    if (!k)
        k = keep(mutable_req(r), 'q', key, http_query_get(r->query, key));
    return k->value;
}

/* Several headers of one name are one list (RFC 9110, 5.2); cookies join by their own sign. */
static char *joined(const struct http_head *h, const char *name)
{
    struct buf b;
    buf_init(&b, HTTP_HEAD_MAX * 2);
    for (size_t i = 0; i < h->nfields; i++)
        if (strcmp(h->fields[i].name, name) == 0)
            buf_add(&b, "%s%s",
                    b.len == 0                    ? ""
                    : strcmp(name, "cookie") == 0 ? "; "
                                                  : ", ",
                    h->fields[i].value);
    return buf_steal(&b);
}

const char *http_header(const struct http_req *r, const char *lower_name)
{
    size_t count;
    const char *first = http_head_get(&r->head, lower_name, &count);
    if (count <= 1)
        return first;
    struct kept *k = kept_find(r, 'h', lower_name);
    if (!k)
        k = keep(mutable_req(r), 'h', lower_name, joined(&r->head, lower_name));
    return k->value;
}

const char *http_cookie(const struct http_req *r, const char *name)
{
    struct kept *k = kept_find(r, 'c', name);
    if (!k)
        k = keep(mutable_req(r), 'c', name, http_cookie_get(http_header(r, "cookie"), name));
    return k->value;
}

const char *http_peer(const struct http_req *r)
{
    return r->peer;
}

int http_is_tls(const struct http_req *r)
{
    return r->tls;
}

struct principal *http_principal(struct http_req *r)
{
    return &r->principal;
}

void http_set_data(struct http_req *r, void *data, void (*free_fn)(void *))
{
    r->data = data;
    r->free_fn = free_fn;
}

void *http_data(const struct http_req *r)
{
    return r->data;
}

void http_on_gone(struct http_req *r, void (*gone)(struct http_req *r))
{
    r->gone = gone;
}
