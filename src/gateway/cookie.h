/* Login sessions in signed cookies, and the XSRF token that belongs to each.
 *
 * A session is stateless: issue time, a random nonce and the user, authenticated by HMAC-SHA256
 * with the installation's secret. The name of the cookie and a binding (a digest of the configured
 * token) are authenticated too, so a changed token ends all sessions. The XSRF token of a session
 * is made of its nonce; before login the page gets a free one, whose nonce becomes the session's.
 * Pure, apart from cookie_key_load(). Any thread.
 */
#ifndef REITOS_GATEWAY_COOKIE_H
#define REITOS_GATEWAY_COOKIE_H

#include <stdint.h>

#include "base/err.h"

#define COOKIE_KEY_BYTES 32
#define COOKIE_NONCE 33 /* 16 bytes in hex, with the NUL */
#define COOKIE_USER_MAX 256
#define COOKIE_MAX_AGE_S (30 * 24 * 3600)
#define XSRF_TEXT 98 /* nonce, a bar, HMAC, NUL */

struct cookie_key {
    uint8_t bytes[COOKIE_KEY_BYTES];
    char binding[65]; /* "" or a hex digest */
};

struct cookie_session {
    int64_t issued_us;
    char nonce[COOKIE_NONCE];
    char user[COOKIE_USER_MAX];
};

/* Reads the secret, making it (0600) on first use. */
int cookie_key_load(const char *path, struct cookie_key *ret, struct err *e) WARN_UNUSED;

char *cookie_name(const char *host); /* "username-" and the Host with other characters as "-" */
char *cookie_make(const struct cookie_key *k, const char *name, const struct cookie_session *s);
/* ERR_DENIED when the value was not made by cookie_make() with this key and name, is from the
 * future, or is older than COOKIE_MAX_AGE_S. */
int cookie_check(const struct cookie_key *k, const char *name, const char *value, int64_t now_us,
                 struct cookie_session *ret) WARN_UNUSED;

void xsrf_make(const struct cookie_key *k, const char *nonce, char out[XSRF_TEXT]);
/* Is `value` an XSRF token of ours? Its nonce goes to ret_nonce. */
int xsrf_check(const struct cookie_key *k, const char *value, char ret_nonce[COOKIE_NONCE]);

#endif
