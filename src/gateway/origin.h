/* Which origins and Host names may talk to the server. Pure apart from the machine's own name;
 * any thread once made. */
#ifndef REITOS_GATEWAY_ORIGIN_H
#define REITOS_GATEWAY_ORIGIN_H

#include "base/err.h"

struct origin_rules;

/* `allow`: one origin, "*" or "". `pattern`: POSIX extended regular expression that must match the
 * whole origin, or "". ERR_CONFIG when the expression is malformed. */
int origin_rules_new(const char *allow, const char *pattern, struct origin_rules **ret,
                     struct err *e) WARN_UNUSED;
struct origin_rules *origin_rules_free(struct origin_rules *o);
int origin_allowed(const struct origin_rules *o, const char *origin); /* by configuration */

/* Does `origin` ("https://name:port") name the host that the Host header names? Default ports
 * count as written out. "null" never matches. */
int origin_is_host(const char *origin, const char *host);

/* The Host header check against DNS rebinding: `listen` is the daemon's address ("ADDR:PORT",
 * "unix:..."), `extra` is "NAME,..." ("*": any). Accepted: loopback names and addresses, the
 * address listened on, and names in `extra`; when listening beyond loopback also any literal
 * address (rebinding needs a name) and this machine's own name. On a Unix socket anything. */
int origin_host_ok(const char *host, const char *listen, const char *extra);

#endif
