/* Media types by file name, as Python's mimetypes module guesses them. Pure; any thread. */
#ifndef REITOS_GATEWAY_MIME_H
#define REITOS_GATEWAY_MIME_H

/* Static text, NULL when unknown. *ret_encoding (may be NULL) is "gzip", "bzip2", ... or NULL. */
const char *mime_guess(const char *name, const char **ret_encoding);
/* The Content-Type of a download; never NULL. */
const char *mime_content_type(const char *name);

#endif
