/* JupyterHub: this server as a user's single-user server. */
#include "gateway/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"
#include "gateway/auth.h"
#include "gateway/hub_api.h"
#include "gateway/urltext.h"

#define KNOWN_MAX 256
#define FRESH_US ((int64_t)300 * 1000000)
#define STALE_US ((int64_t)600 * 1000000) /* the Hub could not be asked for so long */
#define QUIET_US ((int64_t)10 * 1000000)  /* no token is asked about after one without an answer */
#define ACTIVITY_MS 300000
#define STATE_COOKIE "reitos-oauth-state"
#define STATE_MAX_US ((int64_t)600 * 1000000)

/* A session or token that the Hub has judged. */
struct known {
    char key[SHA256_HEX]; /* of the session's nonce, or of the token */
    char *token, *user;
    int64_t checked_us; /* 0: free */
    int good, checking;
};

struct hub {
    struct auth *auth;
    struct hub_env env;
    struct known known[KNOWN_MAX];
    struct loop_timer *activity;
    char *version; /* the Hub's; NULL until told */
    int64_t lookups_second;
    int lookups;
    int64_t quiet_until_us;
    int refs; /* work on the pool */
    int dead;
};

int hub_apply_conf(struct conf *c, struct err *e)
{
    const char *url = sys.env("JUPYTERHUB_SERVICE_URL"), *token = sys.env("JUPYTERHUB_API_TOKEN");
    const char *prefix = sys.env("JUPYTERHUB_SERVICE_PREFIX");
    if (!token || !*token)
        return 0;
    if (url && *url) {
        const char *host = strstr(url, "://");
        size_t n = host ? strcspn(host + 3, "/") : 0;
        if (!n)
            return err_set(e, ERR_CONFIG, "JUPYTERHUB_SERVICE_URL: %s is not a URL", url);
        free((char *)c->listen);
        c->listen = strchr(host + 3, ':') && strchr(host + 3, ':') < host + 3 + n
                        ? xstrndup(host + 3, n)
                        : xasprintf("%.*s:80", (int)n, host + 3);
        c->allow_remote = 1; /* where to listen was the Hub's choice */
    }
    if (prefix && *prefix) {
        free((char *)c->base_url);
        c->base_url = xstrdup(prefix);
    }
    return 0;
}

static void hub_unref(struct hub *h)
{
    if (--h->refs)
        return;
    for (size_t i = 0; i < KNOWN_MAX; i++) {
        free(h->known[i].token);
        free(h->known[i].user);
    }
    hub_env_free(&h->env);
    free(h->version);
    free(h);
}

/* --- work on the pool --- */

struct ask {
    struct hub *hub;
    struct http_req *req; /* of the OAuth callback */
    char *token, *code, *user, *next, *version;
    char key[SHA256_HEX];
    int64_t last_us;
    int rc;
    struct err err;
};

static struct ask *ask_new(struct hub *h)
{
    struct ask *a = xcalloc(1, sizeof *a);
    a->hub = h;
    h->refs++;
    return a;
}

static void ask_free(struct ask *a)
{
    hub_unref(a->hub);
    free(a->token);
    free(a->code);
    free(a->user);
    free(a->next);
    free(a->version);
    free(a);
}

static void report_work(void *arg)
{
    struct ask *a = arg;
    a->rc = hub_api_activity(&a->hub->env, a->last_us, &a->err);
}

static void report_done(void *arg)
{
    struct ask *a = arg;
    if (a->rc < 0)
        log_warn("activity could not be reported to the Hub", "why", a->err.msg, NULL);
    ask_free(a);
}

/* Every 300 s give or take 10 %, so that many servers do not call at once. */
static void report(void *arg)
{
    struct hub *h = arg;
    struct gw *gw = h->auth->gw;
    uint8_t dice;
    struct ask *a = ask_new(h);
    a->last_us = gw->last_activity_us > gw->started_us ? gw->last_activity_us : gw->started_us;
    loop_work(gw->loop, report_work, report_done, a);
    sys.random(&dice, 1);
    loop_timer_stop(h->activity);
    h->activity = loop_timer_start(
        gw->loop, ACTIVITY_MS * 9 / 10 + (uint64_t)dice * (ACTIVITY_MS / 5) / 256, 0, report, h);
}

static void version_work(void *arg)
{
    struct ask *a = arg;
    a->rc = hub_api_version(&a->hub->env, &a->version, &a->err);
}

static void version_done(void *arg)
{
    struct ask *a = arg;
    if (a->rc < 0) {
        log_warn("the Hub does not tell its version", "why", a->err.msg, NULL);
    } else {
        free(a->hub->version);
        a->hub->version = STEAL(a->version);
    }
    ask_free(a);
}

int hub_new(struct auth *a, struct hub **ret, struct err *e)
{
    const char *token = sys.env("JUPYTERHUB_API_TOKEN");
    if (!token || !*token)
        return 0;
    struct hub *h = xcalloc(1, sizeof *h);
    h->auth = a;
    h->refs = 1;
    hub_env_read(&h->env);
    if (!*h->env.api_url || !*h->env.client_id) {
        hub_unref(h);
        return err_set(e, ERR_CONFIG,
                       "JUPYTERHUB_API_TOKEN is set, but JUPYTERHUB_API_URL or _CLIENT_ID is not");
    }
    if (*h->env.activity_url)
        h->activity = loop_timer_start(a->gw->loop, 1000, 0, report, h);
    loop_work(a->gw->loop, version_work, version_done, ask_new(h));
    log_info("serving for JupyterHub", "user", h->env.user, NULL);
    *ret = h;
    return 0;
}

void hub_free(struct hub *h)
{
    if (!h)
        return;
    h->activity = loop_timer_stop(h->activity);
    h->dead = 1;
    hub_unref(h);
}

/* --- what is known --- */

static struct known *known_find(struct hub *h, const char *key)
{
    for (size_t i = 0; i < KNOWN_MAX; i++)
        if (h->known[i].checked_us && !strcmp(h->known[i].key, key))
            return &h->known[i];
    return NULL;
}

static void known_set(struct hub *h, const char *key, const char *token, const char *user, int good)
{
    struct known *k = known_find(h, key);
    for (size_t i = 0; !k && i < KNOWN_MAX; i++)
        if (!h->known[i].checked_us)
            k = &h->known[i];
    if (!k) {
        k = &h->known[0];
        for (size_t i = 1; i < KNOWN_MAX; i++)
            if (h->known[i].checked_us < k->checked_us)
                k = &h->known[i];
    }
    free(k->token);
    free(k->user);
    memset(k, 0, sizeof *k);
    snprintf(k->key, sizeof k->key, "%s", key);
    k->token = xstrdup(token);
    k->user = xstrdup(user);
    k->good = good;
    k->checked_us = sys.mono_us();
}

static int may_look_up(struct hub *h)
{
    int64_t second = sys.mono_us() / 1000000;
    if (second != h->lookups_second) {
        h->lookups_second = second;
        h->lookups = 0;
    }
    return h->lookups++ < HUB_LOOKUPS_S;
}

/* The answer is waited for here, with nothing else served: so a Hub that gives none is left alone
 * for a while, and what it said before holds meanwhile. */
static struct known *look_up(struct hub *h, const char *key, const char *token, struct known *old)
{
    struct err e;
    autofree char *user = NULL;
    int64_t now = sys.mono_us();
    if (old && now - old->checked_us > STALE_US)
        old = NULL;
    if (now < h->quiet_until_us || !may_look_up(h))
        return old;
    int rc = hub_api_user(&h->env, token, HUB_LOOKUP_MS, &user, &e);
    if (rc < 0 && rc != ERR_DENIED) {
        log_warn("the Hub could not be asked about a token", "why", e.msg, NULL);
        h->quiet_until_us = sys.mono_us() + QUIET_US;
        return old;
    }
    known_set(h, key, token, user ? user : "", rc == 0);
    return known_find(h, key);
}

int hub_token(struct hub *h, struct http_req *r, const char *token)
{
    char key[SHA256_HEX];
    sha256_hex(token, strlen(token), key);
    struct known *k = known_find(h, key);
    if (!k || sys.mono_us() - k->checked_us > FRESH_US)
        k = look_up(h, key, token, k);
    if (!k || !k->good)
        return 0;
    auth_principal(r, k->user, k->user, 0);
    return 1;
}

static void recheck_work(void *arg)
{
    struct ask *a = arg;
    a->rc = hub_api_user(&a->hub->env, a->token, 0, &a->user, &a->err);
}

static void recheck_done(void *arg)
{
    struct ask *a = arg;
    struct known *k = known_find(a->hub, a->key);
    if (k) {
        k->checking = 0;
        if (a->rc == 0 || a->rc == ERR_DENIED) {
            k->good = a->rc == 0;
            k->checked_us = sys.mono_us();
        } else {
            log_warn("the Hub could not be asked about a session", "why", a->err.msg, NULL);
        }
    }
    ask_free(a);
}

int hub_session_ok(struct hub *h, const struct cookie_session *s)
{
    struct known *k = known_find(h, s->nonce);
    if (!k)
        return 0; /* of an earlier daemon: the Hub logs in again without asking */
    int64_t age_us = sys.mono_us() - k->checked_us;
    if (age_us > FRESH_US && !k->checking) {
        struct ask *a = ask_new(h);
        k->checking = 1;
        a->token = xstrdup(k->token);
        snprintf(a->key, sizeof a->key, "%s", k->key);
        loop_work(h->auth->gw->loop, recheck_work, recheck_done, a);
    }
    return k->good && age_us < STALE_US;
}

/* --- OAuth --- */

/* The state travels in a signed cookie whose "user" is the address to return to. */
void hub_login(struct hub *h, struct http_req *r)
{
    const char *base = h->auth->gw->base_url;
    autofree char *here = url_without(http_raw_uri(r), "token");
    autofree char *next = url_safe_next(here, base);
    autofree char *login = xasprintf("%slogin", base);
    struct cookie_session s = {.issued_us = sys.wall_us()};
    sys_random_hex(s.nonce, sizeof s.nonce / 2);
    int fits = strlen(next) < sizeof s.user && strncmp(next, login, strlen(login));
    snprintf(s.user, sizeof s.user, "%s", fits ? next : base);
    autofree char *value = cookie_make(&h->auth->key, STATE_COOKIE, &s);
    http_set_header(r, "Set-Cookie",
                    STATE_COOKIE "=%s; Path=%s; Max-Age=600; HttpOnly; SameSite=Lax", value, base);
    autobuf struct buf to = BUF_INIT(65536);
    buf_add(&to, "%s%shub/api/oauth2/authorize?response_type=code&client_id=", h->env.host,
            h->env.base_url);
    url_escape(h->env.client_id, &to);
    buf_add(&to, "&redirect_uri=");
    url_escape(h->env.callback, &to);
    buf_add(&to, "&state=%s", s.nonce);
    http_set_header(r, "Cache-Control", "no-store");
    http_redirect(r, buf_str(&to));
}

static void exchange_work(void *arg)
{
    struct ask *a = arg;
    a->rc = hub_api_exchange(&a->hub->env, a->code, &a->token, &a->err);
    if (a->rc == 0)
        a->rc = hub_api_user(&a->hub->env, a->token, 0, &a->user, &a->err);
}

static void exchange_done(void *arg)
{
    struct ask *a = arg;
    struct hub *h = a->hub;
    if (a->rc < 0) {
        log_warn("login through the Hub failed", "why", a->err.msg, NULL);
        http_reply_err(a->req, &a->err);
    } else if (h->dead) {
        http_reply_status(a->req, 503, "the server is ending");
    } else {
        char nonce[COOKIE_NONCE];
        auth_login(h->auth, a->req, a->user, nonce);
        known_set(h, nonce, a->token, a->user, 1);
        http_redirect(a->req, a->next);
    }
    ask_free(a);
}

void hub_callback(struct hub *h, struct http_req *r)
{
    struct cookie_session s;
    const char *state = http_query(r, "state"), *code = http_query(r, "code");
    int rc =
        cookie_check(&h->auth->key, STATE_COOKIE, http_cookie(r, STATE_COOKIE), sys.wall_us(), &s);
    if (rc < 0 || !state || !crypto_streq(state, s.nonce) ||
        sys.wall_us() - s.issued_us > STATE_MAX_US) {
        http_reply_status(r, 403, "This login was not begun here, or too long ago: try again");
        return;
    }
    if (!code || !*code) {
        http_reply_status(r, 403, "The Hub did not grant access");
        return;
    }
    struct ask *a = ask_new(h);
    a->req = r;
    a->code = xstrdup(code);
    a->next = url_safe_next(s.user, h->auth->gw->base_url);
    loop_work(h->auth->gw->loop, exchange_work, exchange_done, a);
}

void hub_logout(struct hub *h, struct http_req *r)
{
    struct cookie_session s;
    struct known *k = auth_session(h->auth, r, &s) == 0 ? known_find(h, s.nonce) : NULL;
    if (k)
        k->good = 0;
    autofree char *to = xasprintf("%s%shub/logout", h->env.host, h->env.base_url);
    http_redirect(r, to);
}

void hub_headers(const struct hub *h, struct http_req *r)
{
    if (h->version)
        http_set_header(r, "X-JupyterHub-Version", "%s", h->version);
}

void hub_page_config(const struct hub *h, json_t *config)
{
    autofree char *prefix = xasprintf("%shub/", h->env.base_url);
    json_object_set_new(config, "hubPrefix", json_string(prefix));
    json_object_set_new(config, "hubHost", json_string(h->env.host));
    json_object_set_new(config, "hubUser", json_string(h->env.user));
    json_object_set_new(config, "hubServerUser", json_string(h->env.user));
    json_object_set_new(config, "hubServerName", json_string(h->env.server_name));
    json_object_set_new(config, "shareUrl", json_sprintf("%suser-redirect", prefix));
    json_object_set_new(config, "token", json_string(""));
}
