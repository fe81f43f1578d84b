/* Text of URLs and forms: escaping, one field of a form, redirect targets. Pure; any thread. */
#ifndef REITOS_GATEWAY_URLTEXT_H
#define REITOS_GATEWAY_URLTEXT_H

#include "base/buf.h"

/* The decoded value of `key` in application/x-www-form-urlencoded text, as a heap string; NULL
 * when absent, malformed or containing a NUL. The first one wins. */
char *form_field(const char *text, size_t len, const char *key);

void url_escape(const char *s, struct buf *out);  /* everything but A-Za-z0-9-._~/ as %XX */
void html_escape(const char *s, struct buf *out); /* & < > " ' */

/* `uri` (path and query) without any query field called `key`; heap string. Leading slashes are
 * reduced to one, so that it can be redirected to. */
char *url_without(const char *uri, const char *key);

/* Where a login may lead: `next` when it is a path on this host under base_url, else base_url.
 * Anything that a browser could read as another host (//, backslashes, schemes, control
 * characters) or that climbs out with dot segments is refused. Heap string. */
char *url_safe_next(const char *next, const char *base_url);

#endif
