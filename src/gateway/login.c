/* The login form: GET and POST /login, /logout. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "gateway/auth.h"
#include "gateway/hub.h"
#include "gateway/urltext.h"

#define FORM_MAX 16384

static const char page_head[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
    "<title>REITOS</title><style>"
    "body{font:16px/1.5 system-ui,sans-serif;background:#f6f7f9;color:#1d2330;margin:0}"
    "main{max-width:22rem;margin:16vh auto;padding:2rem;background:#fff;border-radius:10px;"
    "box-shadow:0 1px 4px #0002}h1{margin:0 0 1rem;font-size:1.4rem}"
    "label{display:block;margin-bottom:.3rem}input{width:100%;box-sizing:border-box;"
    "font:inherit;padding:.5rem;border:1px solid #9aa3b2;border-radius:6px}"
    "button{font:inherit;margin-top:1rem;padding:.5rem 1.2rem;border:0;border-radius:6px;"
    "background:#2457c5;color:#fff;cursor:pointer}p{font-size:.9rem;color:#566}"
    ".bad{color:#b3261e}</style></head><body><main><h1>REITOS</h1>";

static const char page_tail[] =
    "<p>The token was printed where the server was started, as part of its address.</p>"
    "</main></body></html>";

static void login_page(struct auth *a, struct http_req *r, int status, const char *next,
                       const char *problem)
{
    struct cookie_session s;
    char nonce[COOKIE_NONCE], xsrf[XSRF_TEXT];
    if (auth_session(a, r, &s) == 0)
        memcpy(nonce, s.nonce, sizeof nonce);
    else if (!xsrf_check(&a->key, http_cookie(r, "_xsrf"), nonce))
        sys_random_hex(nonce, sizeof nonce / 2);
    auth_xsrf(a, r, nonce, xsrf);
    autofree char *safe = url_safe_next(next, a->gw->base_url);
    struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    buf_add(&b, "%s", page_head);
    if (problem)
        buf_add(&b, "<p class=\"bad\" role=\"alert\">%s</p>", problem);
    buf_add(&b, "<form method=\"post\" action=\"%slogin?next=", a->gw->base_url);
    url_escape(safe, &b);
    buf_add(&b,
            "\"><input type=\"hidden\" name=\"_xsrf\" value=\"%s\">"
            "<label for=\"password\">Token</label><input id=\"password\" name=\"password\" "
            "type=\"password\" autocomplete=\"current-password\" autofocus required>"
            "<button>Log in</button></form>%s",
            xsrf, page_tail);
    http_set_header(r, "Cache-Control", "no-store");
    http_reply_buf(r, status, "text/html; charset=utf-8", &b);
}

static int logged_in(struct auth *a, struct http_req *r)
{
    struct cookie_session s;
    return a->open || (!a->hub && auth_session(a, r, &s) == 0);
}

static void login_get(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct auth *a = gw->auth;
    const char *next = http_query(r, "next");
    if (a->hub) {
        hub_login(a->hub, r);
    } else if (logged_in(a, r) && next) {
        autofree char *safe = url_safe_next(next, gw->base_url);
        http_redirect(r, safe);
    } else {
        login_page(a, r, 200, next, NULL);
    }
}

/* Password check; the XSRF token has been seen to. */
static void login_try(struct auth *a, struct http_req *r)
{
    size_t len;
    const char *body = http_body(r, &len);
    autofree char *given = form_field(body ? body : "", body ? len : 0, "password");
    const char *next = http_query(r, "next");
    autofree char *form_next = form_field(body ? body : "", body ? len : 0, "next");
    if (!next)
        next = form_next;
    if (!a->open && !auth_token_ok(a, given)) {
        throttle_failed(a->throttle, http_peer(r), sys.wall_us());
        log_warn("login failed", "peer", http_peer(r), NULL);
        login_page(a, r, 401, next, "This is not the token.");
        return;
    }
    throttle_passed(a->throttle, http_peer(r));
    auth_login(a, r, a->user, NULL);
    autofree char *safe = url_safe_next(next, a->gw->base_url);
    http_redirect(r, safe);
}

static void login_post(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct auth *a = gw->auth;
    size_t len;
    const char *body = http_body(r, &len);
    if (a->hub) {
        http_reply_status(r, 405, "Log in at the Hub");
        return;
    }
    if (!body || len > FORM_MAX) {
        http_reply_status(r, body ? 413 : 400, body ? "Form too large" : "Form expected");
        return;
    }
    autofree char *field = form_field(body, len, "_xsrf");
    const char *given = field ? field : http_header(r, "x-xsrftoken");
    if (!a->open && !auth_xsrf_ok(a, r, given, NULL)) {
        auth_no_xsrf(r);
        return;
    }
    int wait_ms = throttle_wait_ms(a->throttle, http_peer(r), sys.wall_us());
    if (wait_ms < 0)
        http_reply_status(r, 429, "Too many failed attempts");
    else if (wait_ms > 0)
        auth_delay(a, r, wait_ms, login_try);
    else
        login_try(a, r);
}

/* A link on another site must not log people out, but that it could does little harm: Jupyter
 * clients call this with GET. */
static void logout_get(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    autofree char *to = xasprintf("%slogin", gw->base_url);
    auth_logout(gw->auth, r);
    if (gw->auth->hub)
        hub_logout(gw->auth->hub, r);
    else
        http_redirect(r, to);
}

static void oauth_callback(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    if (gw->auth->hub)
        hub_callback(gw->auth->hub, r);
    else
        http_reply_status(r, 404, "Not Found");
}

const struct route auth_routes[] = {
    {METHOD(GET), "login", login_get, NULL, ROUTE_PUBLIC | ROUTE_NO_ACTIVITY},
    {METHOD(POST), "login", login_post, NULL, ROUTE_PUBLIC},
    {METHOD(GET), "logout", logout_get, NULL, ROUTE_PUBLIC},
    {METHOD(GET), "oauth_callback", oauth_callback, NULL, ROUTE_PUBLIC},
    {0, NULL, NULL, NULL, 0},
};
