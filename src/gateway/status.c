/* The server about itself: api, api/status, api/me, api/spec.yaml, api/shutdown and the like. */
#include <ctype.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "gateway/gw.h"
#include "gateway/openapi.h"

/* The release of Jupyter Server whose API this is; clients compare it. */
#define API_VERSION "2.17.0"
#define REPORT_LOG_MAX 400

static void get_api(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw, (void)p;
    http_reply_json(r, 200,
                    json_pack("{s:s,s:s}", "version", API_VERSION, "reitos", REITOS_VERSION));
}

static void get_status(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    char started[SYS_TIME_MAX], active[SYS_TIME_MAX];
    int64_t last = gw->last_activity_us > gw->started_us ? gw->last_activity_us : gw->started_us;
    http_reply_json(r, 200,
                    json_pack("{s:s,s:s,s:i,s:i}", "started", sys_time_iso(gw->started_us, started),
                              "last_activity", sys_time_iso(last, active), "connections",
                              kernels_connections(gw), "kernels", kernels_count(gw)));
}

/* {"resource": ["action", ...], ...}: the one user may do everything. */
static int permissions_ok(const json_t *asked)
{
    const char *key;
    json_t *actions, *action;
    size_t i;
    if (!json_is_object(asked))
        return 0;
    json_object_foreach((json_t *)asked, key, actions)
    {
        if (!json_is_array(actions))
            return 0;
        json_array_foreach(actions, i, action)
        {
            if (!json_is_string(action))
                return 0;
        }
    }
    return 1;
}

static void initials(const char *display, char out[3])
{
    size_t n = 0;
    for (const char *p = display; *p && n < 2; p++)
        if (isalpha((unsigned char)*p) && (p == display || p[-1] == ' '))
            out[n++] = (char)toupper((unsigned char)*p);
    out[n] = '\0';
}

static json_t *identity(struct http_req *r)
{
    const struct principal *who = http_principal(r);
    char short_name[3];
    initials(who->display, short_name);
    return json_pack("{s:s,s:s,s:s,s:s,s:n,s:n}", "username", who->user, "name", who->display,
                     "display_name", who->display, "initials", short_name, "avatar_url", "color");
}

static void get_me(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw, (void)p;
    const char *text = http_query(r, "permissions");
    autojson json_t *asked = json_object();
    if (text && *text) {
        json_decref(asked);
        asked = NULL;
        if (json_parse(text, strlen(text), &asked, NULL) < 0 || !permissions_ok(asked)) {
            http_reply_status(r, 400,
                              "permissions should be a JSON dict of {\"resource\": [\"action\",]}");
            return;
        }
    }
    json_object_set_new(asked, "updatable_fields", json_array());
    http_reply_json(r, 200, json_pack("{s:o,s:O}", "identity", identity(r), "permissions", asked));
}

static void patch_me(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw, (void)p;
    http_reply_status(r, 400, "No field of the identity can be changed: it is the login account's");
}

static void get_spec(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw, (void)p;
    http_reply(r, 200, "text/x-yaml", openapi_text, openapi_len());
}

/* The signal takes the same way as one from outside, after this answer is queued. */
static void post_shutdown(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw, (void)p;
    log_info("shutdown requested", "peer", http_peer(r), NULL);
    http_reply_json(r, 200, json_object());
    if (kill(getpid(), SIGTERM) < 0)
        log_error("shutdown failed", NULL);
}

static void post_csp_report(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw, (void)p;
    size_t len = 0;
    const char *body = http_body(r, &len);
    autofree char *text = xstrndup(body ? body : "", len < REPORT_LOG_MAX ? len : REPORT_LOG_MAX);
    log_debug("content security policy report", "body", text, NULL);
    http_reply(r, 204, NULL, NULL, 0);
}

#define QUIET ROUTE_NO_ACTIVITY
const struct route status_routes[] = {
    {METHOD(GET), "api", get_api, NULL, ROUTE_PUBLIC | QUIET},
    {METHOD(GET), "api/status", get_status, NULL, QUIET},
    {METHOD(GET), "api/me", get_me, NULL, QUIET},
    {METHOD(PATCH), "api/me", patch_me, NULL, QUIET},
    {METHOD(GET), "api/spec.yaml", get_spec, NULL, QUIET},
    {METHOD(POST), "api/shutdown", post_shutdown, NULL, 0},
    {METHOD(POST), "api/security/csp-report", post_csp_report, NULL, ROUTE_PUBLIC | QUIET},
    {0, NULL, NULL, NULL, 0},
};
