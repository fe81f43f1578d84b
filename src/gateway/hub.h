/* JupyterHub: this server as a user's single-user server.
 *
 * Active when JUPYTERHUB_API_TOKEN is in the environment. Pages are authenticated by the Hub's
 * OAuth, tokens by the Hub's API (cached for five minutes), and activity is reported. Loop thread
 * only; requests to the Hub run on the thread pool.
 */
#ifndef REITOS_GATEWAY_HUB_H
#define REITOS_GATEWAY_HUB_H

#include "base/conf.h"
#include "gateway/cookie.h"
#include "gateway/http.h"

struct auth;
struct hub;

#define HUB_LOOKUPS_S 10
#define HUB_LOOKUP_MS 3000

/* Takes listen address and base URL from JUPYTERHUB_SERVICE_URL and _SERVICE_PREFIX. Call after
 * conf_load() and before the configuration is used; the values become conf's. */
int hub_apply_conf(struct conf *c, struct err *e) WARN_UNUSED;

/* *ret is NULL when no Hub started this server. */
int hub_new(struct auth *a, struct hub **ret, struct err *e) WARN_UNUSED;
void hub_free(struct hub *h);

void hub_login(struct hub *h, struct http_req *r);    /* redirects to the Hub's authorize page */
void hub_callback(struct hub *h, struct http_req *r); /* /oauth_callback */
void hub_logout(struct hub *h, struct http_req *r);
/* A Hub token in a request: 1 and the principal set when the Hub says that it may use this server.
 * Unknown tokens are looked up at once, at most HUB_LOOKUPS_S a second and for HUB_LOOKUP_MS, as
 * no request may wait here for its body; after a lookup without an answer none is made for a while.
 */
int hub_token(struct hub *h, struct http_req *r, const char *token);
/* Is the session (made by hub_callback()) still good? The Hub is asked again every five minutes,
 * meanwhile the last answer holds. */
int hub_session_ok(struct hub *h, const struct cookie_session *s);
void hub_headers(const struct hub *h, struct http_req *r); /* X-JupyterHub-Version */
void hub_page_config(const struct hub *h, json_t *config); /* hubUser, hubPrefix, ... */

#endif
