/* What the Hub is asked: blocking calls for the thread pool. Pure apart from the network. */
#ifndef REITOS_GATEWAY_HUB_API_H
#define REITOS_GATEWAY_HUB_API_H

#include "base/err.h"
#include "base/json.h"

struct hub_env { /* heap strings; any may be "" */
    char *api_token, *api_url, *activity_url, *client_id, *callback, *host, *base_url, *prefix,
        *user, *server_name, *public_url;
    json_t *scopes; /* array: one of them opens this server */
};

void hub_env_read(struct hub_env *v); /* from JUPYTERHUB_* */
void hub_env_free(struct hub_env *v);

/* The user whom `token` stands for, as a heap string; ERR_DENIED when the Hub does not know it or
 * it may not use this server. */
int hub_api_user(const struct hub_env *v, const char *token, int timeout_ms, char **ret_user,
                 struct err *e) WARN_UNUSED;
/* The token that an OAuth code buys. */
int hub_api_exchange(const struct hub_env *v, const char *code, char **ret_token,
                     struct err *e) WARN_UNUSED;
int hub_api_activity(const struct hub_env *v, int64_t last_us, struct err *e) WARN_UNUSED;
int hub_api_version(const struct hub_env *v, char **ret, struct err *e) WARN_UNUSED;

/* Does the user model of the Hub hold one of the scopes, or one without its "!filter"? */
int hub_scopes_ok(const json_t *user, const json_t *scopes);

#endif
