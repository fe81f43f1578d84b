/* Authentication: every request and WebSocket handshake passes auth_filter(). */
#include "gateway/auth.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"
#include "gateway/hub.h"
#include "gateway/urltext.h"

#define TOKEN_RANDOM_BYTES 24
#define TOKEN_WEAK_CHARS 16
#define XSRF_MISSING "'_xsrf' argument missing from POST"

enum proof { PROOF_NONE, PROOF_TOKEN, PROOF_COOKIE, PROOF_OPEN };

struct delayed {
    struct list link;
    struct auth *auth;
    struct http_req *req;
    struct loop_timer *timer;
    void (*fn)(struct auth *a, struct http_req *r);
};

static void set_token(struct auth *a, const char *configured)
{
    if (!strcmp(configured, "none")) {
        a->open = 1;
        a->token = xstrdup("");
        log_warn("authentication is off: whoever can connect can run code", NULL);
    } else if (!*configured) {
        a->token = xmalloc(2 * TOKEN_RANDOM_BYTES + 1);
        sys_random_hex(a->token, TOKEN_RANDOM_BYTES);
    } else {
        a->token = xstrdup(configured);
        sha256_hex(configured, strlen(configured), a->key.binding);
        if (strlen(configured) < TOKEN_WEAK_CHARS)
            log_warn("the configured token is short and can be guessed", NULL);
    }
}

static void set_user(struct auth *a)
{
    const struct passwd *pw = getpwuid(getuid());
    const char *env = sys.env("USER");
    a->user = xstrdup(pw ? pw->pw_name : env && *env ? env : "user");
    autofree char *gecos = pw && pw->pw_gecos ? xstrdup(pw->pw_gecos) : xstrdup("");
    gecos[strcspn(gecos, ",")] = '\0';
    a->display = xstrdup(*gecos ? gecos : a->user);
}

struct auth *auth_new(struct gw *gw, struct err *e)
{
    struct auth *a = xcalloc(1, sizeof *a);
    a->gw = gw;
    list_init(&a->delayed);
    a->throttle = throttle_new();
    autofree char *path = xasprintf("%s/cookie_secret", gw->data);
    if (cookie_key_load(path, &a->key, e) < 0 ||
        origin_rules_new(gw->conf->allow_origin, gw->conf->allow_origin_pat, &a->origins, e) < 0 ||
        hub_new(a, &a->hub, e) < 0) {
        auth_free(a);
        return NULL;
    }
    set_token(a, gw->conf->token);
    set_user(a);
    return a;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    list_foreach(it, &a->delayed)
    {
        struct delayed *d = container_of(it, struct delayed, link);
        loop_timer_stop(d->timer);
        free(d);
    }
    hub_free(a->hub);
    throttle_free(a->throttle);
    origin_rules_free(a->origins);
    free(a->token);
    free(a->user);
    free(a->display);
    free(a);
}

const char *auth_token(const struct auth *a)
{
    return a->token;
}

int auth_token_ok(const struct auth *a, const char *given)
{
    return given && *given && *a->token && crypto_streq(a->token, given);
}

void auth_principal(struct http_req *r, const char *user, const char *display, int by_cookie)
{
    struct principal *p = http_principal(r);
    free(p->user);
    free(p->display);
    p->user = xstrdup(user);
    p->display = xstrdup(display);
    p->by_cookie = by_cookie;
}

static void delay_over(void *arg)
{
    struct delayed *d = arg;
    list_remove(&d->link);
    loop_timer_stop(d->timer);
    d->fn(d->auth, d->req);
    free(d);
}

void auth_delay(struct auth *a, struct http_req *r, int ms,
                void (*fn)(struct auth *a, struct http_req *r))
{
    struct delayed *d = xcalloc(1, sizeof *d);
    d->auth = a;
    d->req = r;
    d->fn = fn;
    list_append(&a->delayed, &d->link);
    d->timer = loop_timer_start(a->gw->loop, (uint64_t)ms, 0, delay_over, d);
}

/* --- cookies --- */

static const char *secure_attr(const struct http_req *r)
{
    const char *proto = http_header(r, "x-forwarded-proto");
    return http_is_tls(r) || (proto && !strcasecmp(proto, "https")) ? "; Secure" : "";
}

int auth_session(struct auth *a, struct http_req *r, struct cookie_session *ret)
{
    autofree char *name = cookie_name(http_header(r, "host"));
    return cookie_check(&a->key, name, http_cookie(r, name), sys.wall_us(), ret);
}

void auth_xsrf(struct auth *a, struct http_req *r, const char *nonce, char out[XSRF_TEXT])
{
    xsrf_make(&a->key, nonce, out);
    const char *have = http_cookie(r, "_xsrf");
    if (have && !strcmp(have, out))
        return;
    http_set_header(r, "Set-Cookie", "_xsrf=%s; Path=%s; SameSite=Lax%s", out, a->gw->base_url,
                    secure_attr(r));
}

void auth_login(struct auth *a, struct http_req *r, const char *user, char ret_nonce[COOKIE_NONCE])
{
    struct cookie_session s = {.issued_us = sys.wall_us()};
    if (!xsrf_check(&a->key, http_cookie(r, "_xsrf"), s.nonce))
        sys_random_hex(s.nonce, sizeof s.nonce / 2);
    snprintf(s.user, sizeof s.user, "%s", user);
    autofree char *name = cookie_name(http_header(r, "host"));
    autofree char *value = cookie_make(&a->key, name, &s);
    http_set_header(r, "Set-Cookie", "%s=%s; Path=%s; Max-Age=%d; HttpOnly; SameSite=Lax%s", name,
                    value, a->gw->base_url, COOKIE_MAX_AGE_S, secure_attr(r));
    char xsrf[XSRF_TEXT];
    auth_xsrf(a, r, s.nonce, xsrf);
    if (ret_nonce)
        memcpy(ret_nonce, s.nonce, sizeof s.nonce);
}

void auth_logout(struct auth *a, struct http_req *r)
{
    autofree char *name = cookie_name(http_header(r, "host"));
    http_set_header(r, "Set-Cookie", "%s=; Path=%s; Max-Age=0; HttpOnly; SameSite=Lax", name,
                    a->gw->base_url);
    http_set_header(r, "Set-Cookie", "_xsrf=; Path=%s; Max-Age=0; SameSite=Lax", a->gw->base_url);
}

int auth_xsrf_ok(struct auth *a, struct http_req *r, const char *given, const char *nonce)
{
    char of_cookie[COOKIE_NONCE];
    const char *cookie = http_cookie(r, "_xsrf");
    return given && cookie && crypto_streq(cookie, given) &&
           xsrf_check(&a->key, cookie, of_cookie) && (!nonce || crypto_streq(nonce, of_cookie));
}

void auth_no_xsrf(struct http_req *r)
{
    http_reply_status(r, 403, XSRF_MISSING);
}

/* --- the filter --- */

static int is_api(const struct http_req *r)
{
    const char *path = http_path(r);
    return !strncmp(path, "api/", 4) || !strcmp(path, "api") || !strncmp(path, "lab/api/", 8) ||
           !strncmp(path, "reitos/api/", 11);
}

static int is_websocket(const struct http_req *r)
{
    const char *u = http_header(r, "upgrade");
    return u && !strcasecmp(u, "websocket");
}

static int is_safe(const struct http_req *r)
{
    enum http_method m = http_method(r);
    return m == HTTP_GET || m == HTTP_HEAD || m == HTTP_OPTIONS;
}

/* The token that the request carries, in a header or else in the query. */
static const char *given_token(const struct http_req *r, int *ret_in_query)
{
    *ret_in_query = 0;
    const char *h = http_header(r, "authorization");
    if (h) {
        size_t n = !strncasecmp(h, "token ", 6) ? 6 : !strncasecmp(h, "bearer ", 7) ? 7 : 0;
        if (n) {
            h += n + strspn(h + n, " ");
            if (*h)
                return h;
        }
    }
    const char *q = http_query(r, "token");
    *ret_in_query = q && *q;
    return *ret_in_query ? q : NULL;
}

static void security_headers(struct auth *a, struct http_req *r)
{
    http_set_header(r, "X-Content-Type-Options", "nosniff");
    http_set_header(r, "Content-Security-Policy",
                    "frame-ancestors 'self'; report-uri %sapi/security/csp-report%s",
                    a->gw->base_url, is_api(r) ? "; default-src 'none'" : "");
    if (a->hub)
        hub_headers(a->hub, r);
}

static void cors_headers(struct http_req *r, const char *origin, int credentials)
{
    http_set_header(r, "Access-Control-Allow-Origin", "%s", origin);
    http_set_header(r, "Access-Control-Expose-Headers", "Location, X-JupyterHub-Version");
    if (credentials)
        http_set_header(r, "Access-Control-Allow-Credentials", "true");
    http_set_header(r, "Vary", "Origin");
}

/* May a page of this origin use the API with this proof? Sets the CORS headers when so. A wildcard
 * never covers cookies: other sites would act as the user. */
static int origin_ok(struct auth *a, struct http_req *r, enum proof proof)
{
    const char *origin = http_header(r, "origin");
    const char *host = http_header(r, "host");
    if (!origin || (host && origin_is_host(origin, host)))
        return 1;
    int wildcard = !strcmp(a->gw->conf->allow_origin, "*");
    if (origin_allowed(a->origins, origin) && !(wildcard && proof == PROOF_COOKIE)) {
        cors_headers(r, wildcard ? "*" : origin, !wildcard);
        return 1;
    }
    if (proof == PROOF_TOKEN)
        cors_headers(r, origin, 0);
    return proof == PROOF_TOKEN;
}

static int asks_for_authorization(const struct http_req *r)
{
    const char *list = http_header(r, "access-control-request-headers");
    return list && strcasestr(list, "authorization");
}

/* A preflight needs no authentication. A request that will carry a token may come from anywhere. */
static void preflight(struct auth *a, struct http_req *r)
{
    if (origin_ok(a, r, asks_for_authorization(r) ? PROOF_TOKEN : PROOF_NONE)) {
        http_set_header(r, "Access-Control-Allow-Headers",
                        "accept, content-type, authorization, x-xsrftoken");
        http_set_header(r, "Access-Control-Allow-Methods",
                        "GET, PUT, POST, PATCH, DELETE, OPTIONS");
        http_set_header(r, "Access-Control-Max-Age", "600");
    }
    http_reply(r, 204, NULL, NULL, 0);
}

/* A file of the user may be HTML or a script: other sites must not embed it, only link to it. */
static int fetch_site_ok(const struct http_req *r)
{
    const char *path = http_path(r);
    if (strncmp(path, "files/", 6) && strncmp(path, "view/", 5))
        return 1;
    const char *site = http_header(r, "sec-fetch-site");
    if (!site || !strcmp(site, "same-origin") || !strcmp(site, "none"))
        return 1;
    const char *mode = http_header(r, "sec-fetch-mode"), *dest = http_header(r, "sec-fetch-dest");
    return mode && dest && !strcmp(mode, "navigate") && !strcmp(dest, "document");
}

static void refuse_late(struct auth *a, struct http_req *r)
{
    (void)a;
    http_reply_status(r, 403, "Forbidden");
}

/* Nobody, or somebody with a wrong token. */
static void refuse(struct auth *a, struct http_req *r, unsigned flags, int guessed)
{
    int wait_ms = 0;
    if (guessed) {
        throttle_failed(a->throttle, http_peer(r), sys.wall_us());
        wait_ms = throttle_wait_ms(a->throttle, http_peer(r), sys.wall_us());
    }
    if (wait_ms < 0) {
        http_reply_status(r, 429, "Too many failed attempts");
    } else if (!is_websocket(r) && flags & ROUTE_PAGE && is_safe(r) && a->hub) {
        hub_login(a->hub, r);
    } else if (!is_websocket(r) && flags & ROUTE_PAGE && is_safe(r)) {
        autofree char *next = url_without(http_raw_uri(r), "token");
        autobuf struct buf to = BUF_INIT(BUF_DEFAULT_MAX);
        buf_add(&to, "%slogin?next=", a->gw->base_url);
        url_escape(next, &to);
        http_redirect(r, to.data);
    } else if (wait_ms > 0 && !is_websocket(r)) {
        auth_delay(a, r, wait_ms, refuse_late);
    } else {
        http_reply_status(r, 403, "Forbidden");
    }
}

static enum proof prove(struct auth *a, struct http_req *r, struct cookie_session *session,
                        int *ret_in_query)
{
    const char *token = given_token(r, ret_in_query);
    if (a->open)
        return PROOF_OPEN;
    if (auth_token_ok(a, token)) {
        auth_principal(r, a->user, a->display, 0);
        return PROOF_TOKEN;
    }
    if (token && a->hub && hub_token(a->hub, r, token))
        return PROOF_TOKEN;
    if (auth_session(a, r, session) < 0 || (a->hub && !hub_session_ok(a->hub, session)))
        return PROOF_NONE;
    auth_principal(r, session->user, a->hub ? session->user : a->display, 1);
    return PROOF_COOKIE;
}

/* A page loads with the cookies it needs, and with no token in its address. 0: answered. */
static int prepare_page(struct auth *a, struct http_req *r, enum proof proof,
                        const struct cookie_session *session, int token_in_query)
{
    char xsrf[XSRF_TEXT];
    if (proof == PROOF_COOKIE)
        auth_xsrf(a, r, session->nonce, xsrf);
    if (proof == PROOF_TOKEN && token_in_query && !a->hub)
        auth_login(a, r, http_principal(r)->user, NULL);
    if (!token_in_query)
        return 1;
    autofree char *clean = url_without(http_raw_uri(r), "token");
    http_redirect(r, clean);
    return 0;
}

static int xsrf_needed_ok(struct auth *a, struct http_req *r, const struct cookie_session *session)
{
    const char *given = http_header(r, "x-xsrftoken");
    if (!given)
        given = http_query(r, "_xsrf");
    autofree char *field = NULL;
    size_t len = 0;
    const char *type = http_header(r, "content-type"), *body = http_body(r, &len);
    if (!given && body && type && !strncasecmp(type, "application/x-www-form-urlencoded", 33))
        given = field = form_field(body, len, "_xsrf");
    return auth_xsrf_ok(a, r, given, session->nonce);
}

/* The rules for what needs somebody; the origin is in order. */
static int pass(struct auth *a, struct http_req *r, unsigned flags, enum proof proof,
                const struct cookie_session *session, int in_query)
{
    if (proof == PROOF_NONE) {
        refuse(a, r, flags, given_token(r, &in_query) != NULL);
        return 0;
    }
    if (proof != PROOF_TOKEN && !fetch_site_ok(r)) {
        http_reply_status(r, 403, "Other sites may not embed this file");
        return 0;
    }
    if (proof == PROOF_COOKIE && !is_safe(r) && !xsrf_needed_ok(a, r, session)) {
        auth_no_xsrf(r);
        return 0;
    }
    if (flags & ROUTE_PAGE && is_safe(r) && !is_websocket(r))
        return prepare_page(a, r, proof, session, in_query);
    if (proof == PROOF_TOKEN && in_query && !is_websocket(r) && !a->hub)
        auth_login(a, r, http_principal(r)->user, NULL);
    return 1;
}

int auth_filter(struct gw *gw, struct http_req *r, unsigned flags)
{
    struct auth *a = gw->auth;
    struct cookie_session session;
    int in_query;
    security_headers(a, r);
    if (!a->hub &&
        !origin_host_ok(http_header(r, "host"), gw->conf->listen, gw->conf->allow_host)) {
        http_reply_status(r, 403, "This Host name is not served here: see --allow-host");
        return 0;
    }
    if (http_method(r) == HTTP_OPTIONS) {
        preflight(a, r);
        return 0;
    }
    auth_principal(r, a->user, a->display, 0);
    enum proof proof = prove(a, r, &session, &in_query);
    int public_read = flags & ROUTE_PUBLIC && is_safe(r) && !is_websocket(r);
    if (!origin_ok(a, r, proof) && !public_read) {
        http_reply_status(r, is_websocket(r) ? 403 : 404, "Not Found");
        return 0;
    }
    if (flags & ROUTE_PUBLIC)
        return 1;
    return pass(a, r, flags, proof, &session, in_query);
}
