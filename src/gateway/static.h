/* Files that ship with the product: with ETag, and cached for ever when their name carries a hash.
 * Loop thread only. */
#ifndef REITOS_GATEWAY_STATIC_H
#define REITOS_GATEWAY_STATIC_H

#include "base/fs.h"
#include "gateway/http.h"

/* Answers with the file, 304 or 404. */
void static_serve(struct http_req *r, const struct fs_root *root, const char *rel);
/* The same, but 0 with nothing answered when there is no such file. */
int static_try(struct http_req *r, const struct fs_root *root, const char *rel);

/* "1014.073326ef5d98db5e.js": a part between dots of 16 or more hexadecimal digits. */
int static_is_hashed(const char *name);

#endif
