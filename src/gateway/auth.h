/* Authentication: what auth.c (the filter) and login.c (the pages) share. Loop thread only. */
#ifndef REITOS_GATEWAY_AUTH_H
#define REITOS_GATEWAY_AUTH_H

#include "base/list.h"
#include "gateway/cookie.h"
#include "gateway/gw.h"
#include "gateway/origin.h"
#include "gateway/throttle.h"

struct hub;

struct auth {
    struct gw *gw;
    char *token; /* "" when open */
    int open;    /* no authentication: configured by --token none */
    struct cookie_key key;
    struct origin_rules *origins;
    struct throttle *throttle;
    struct list delayed; /* answers that wait for their turn */
    char *user, *display;
    struct hub *hub; /* NULL unless JupyterHub started this server */
};

/* Runs `fn` after `ms` unless the gateway ends first. */
void auth_delay(struct auth *a, struct http_req *r, int ms,
                void (*fn)(struct auth *a, struct http_req *r));

/* The session of the request's cookie; 0 when there is a valid one. */
int auth_session(struct auth *a, struct http_req *r, struct cookie_session *ret) WARN_UNUSED;
/* Sets the login cookie and the XSRF cookie that belongs to it. The nonce of an XSRF cookie that
 * the client already holds becomes the session's, so a token read before login stays good.
 * ret_nonce may be NULL. */
void auth_login(struct auth *a, struct http_req *r, const char *user, char ret_nonce[COOKIE_NONCE]);
void auth_logout(struct auth *a, struct http_req *r);
/* Sets an XSRF cookie for the nonce unless the client has just that. Gives its text. */
void auth_xsrf(struct auth *a, struct http_req *r, const char *nonce, char out[XSRF_TEXT]);
/* Do the cookie and `given` (header, form or query) agree, and belong to `nonce` (NULL: any)? */
int auth_xsrf_ok(struct auth *a, struct http_req *r, const char *given, const char *nonce);
void auth_no_xsrf(struct http_req *r); /* the 403 that clients know */
int auth_token_ok(const struct auth *a, const char *given);
void auth_principal(struct http_req *r, const char *user, const char *display, int by_cookie);

#endif
