/* What the Hub is asked. */
#include "gateway/hub_api.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sys.h"
#include "gateway/urltext.h"
#include "wire/httpc.h"

#define HUB_ANSWER_MAX ((size_t)1 << 20)

static char *env(const char *name)
{
    autofree char *full = xasprintf("JUPYTERHUB_%s", name);
    const char *v = sys.env(full);
    return xstrdup(v ? v : "");
}

void hub_env_read(struct hub_env *v)
{
    autofree char *scopes = env("OAUTH_ACCESS_SCOPES");
    v->api_token = env("API_TOKEN");
    v->api_url = env("API_URL");
    v->activity_url = env("ACTIVITY_URL");
    v->client_id = env("CLIENT_ID");
    v->callback = env("OAUTH_CALLBACK_URL");
    v->host = env("HOST");
    v->base_url = env("BASE_URL");
    v->prefix = env("SERVICE_PREFIX");
    v->user = env("USER");
    v->server_name = env("SERVER_NAME");
    v->public_url = env("PUBLIC_URL");
    v->scopes = NULL;
    if (json_parse(scopes, strlen(scopes), &v->scopes, NULL) < 0 || !json_is_array(v->scopes)) {
        json_decref(v->scopes);
        v->scopes = json_array();
        /* the rule of Hubs before OAUTH_ACCESS_SCOPES: the owner's own server */
        json_array_append_new(v->scopes,
                              json_sprintf("access:servers!server=%s/%s", v->user, v->server_name));
        json_array_append_new(v->scopes, json_sprintf("access:servers!user=%s", v->user));
    }
}

void hub_env_free(struct hub_env *v)
{
    char **all[] = {&v->api_token, &v->api_url,     &v->activity_url, &v->client_id,
                    &v->callback,  &v->host,        &v->base_url,     &v->prefix,
                    &v->user,      &v->server_name, &v->public_url};
    for (size_t i = 0; i < COUNTOF(all); i++)
        free(*all[i]);
    json_decref(v->scopes);
}

/* One call; `body` NULL: GET. The answer must have status 200 to 299. 4xx is ERR_DENIED. */
static int call(const char *url, const char *token, const char *type, const char *body,
                int timeout_ms, json_t **ret, struct err *e)
{
    autofree char *auth = token ? xasprintf("Authorization: token %s", token) : NULL;
    autofree char *kind = xasprintf("Content-Type: %s", type);
    const char *headers[] = {kind, "Accept: application/json", auth, NULL};
    const struct httpc_request q = {.url = url,
                                    .headers = headers,
                                    .body = body,
                                    .body_len = body ? strlen(body) : 0,
                                    .timeout_ms = timeout_ms,
                                    .max_body = HUB_ANSWER_MAX};
    struct httpc_response a = {0};
    int rc = httpc_call(&q, &a, e);
    if (rc < 0)
        return rc;
    if (a.status >= 400 && a.status < 500)
        rc = err_set(e, ERR_DENIED, "the Hub answers %d", a.status);
    else if (a.status < 200 || a.status > 299)
        rc = err_set(e, ERR_UNAVAILABLE, "the Hub answers %d", a.status);
    else if (ret)
        rc = json_parse(buf_str(&a.body), a.body.len, ret, e);
    buf_free(&a.body);
    return rc;
}

/* "name" opens what "name!filter" does. */
static int scope_covers(const json_t *has, const json_t *wanted)
{
    const char *a = json_string_value(has), *b = json_string_value(wanted);
    if (!a || !b)
        return 0;
    size_t n = strcspn(b, "!");
    return !strcmp(a, b) || (strlen(a) == n && !strncmp(a, b, n));
}

int hub_scopes_ok(const json_t *user, const json_t *scopes)
{
    const json_t *has = json_object_get(user, "scopes"), *a, *b;
    size_t i, k;
    json_array_foreach((json_t *)has, i, a)
    {
        json_array_foreach((json_t *)scopes, k, b)
        {
            if (scope_covers(a, b))
                return 1;
        }
    }
    return 0;
}

int hub_api_user(const struct hub_env *v, const char *token, int timeout_ms, char **ret_user,
                 struct err *e)
{
    autojson json_t *user = NULL;
    autofree char *url = xasprintf("%s/user", v->api_url);
    int rc = call(url, token, "application/json", NULL, timeout_ms, &user, e);
    if (rc < 0)
        return rc;
    const char *name = json_get_str(user, "name", NULL);
    if (!name || !hub_scopes_ok(user, v->scopes))
        return err_set(e, ERR_DENIED, "%.64s may not use this server", name ? name : "this token");
    *ret_user = xstrdup(name);
    return 0;
}

static void put_field(struct buf *b, const char *name, const char *value)
{
    buf_add(b, "%s%s=", b->len ? "&" : "", name);
    url_escape(value, b);
}

int hub_api_exchange(const struct hub_env *v, const char *code, char **ret_token, struct err *e)
{
    autojson json_t *answer = NULL;
    autofree char *url = xasprintf("%s/oauth2/token", v->api_url);
    autobuf struct buf form = BUF_INIT(65536);
    put_field(&form, "client_id", v->client_id);
    put_field(&form, "client_secret", v->api_token);
    put_field(&form, "grant_type", "authorization_code");
    put_field(&form, "code", code);
    put_field(&form, "redirect_uri", v->callback);
    int rc = call(url, NULL, "application/x-www-form-urlencoded", buf_str(&form), 0, &answer, e);
    if (rc < 0)
        return rc;
    const char *token = json_get_str(answer, "access_token", NULL);
    if (!token)
        return err_set(e, ERR_PROTOCOL, "the Hub's answer holds no access_token");
    *ret_token = xstrdup(token);
    return 0;
}

int hub_api_activity(const struct hub_env *v, int64_t last_us, struct err *e)
{
    char when[SYS_TIME_MAX];
    sys_time_iso(last_us, when);
    autojson json_t *o = json_pack("{s:{s:{s:s}},s:s}", "servers", v->server_name, "last_activity",
                                   when, "last_activity", when);
    autofree char *body = json_text(o);
    return call(v->activity_url, v->api_token, "application/json", body, 0, NULL, e);
}

int hub_api_version(const struct hub_env *v, char **ret, struct err *e)
{
    autojson json_t *answer = NULL;
    autofree char *url = xasprintf("%s/", v->api_url);
    int rc = call(url, v->api_token, "application/json", NULL, 0, &answer, e);
    if (rc == 0)
        *ret = xstrdup(json_get_str(answer, "version", ""));
    return rc;
}
