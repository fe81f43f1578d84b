/* Hashes, message authentication and encodings: the only place that knows OpenSSL's digests.
 * Any thread. */
#ifndef REITOS_BASE_CRYPTO_H
#define REITOS_BASE_CRYPTO_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define SHA256_BYTES 32
#define SHA256_HEX 65 /* with the NUL */

void sha256_hex(const void *data, size_t len, char out[SHA256_HEX]);

/* HMAC-SHA256 over the concatenation of `n` slices, as lower-case hex. */
void hmac_sha256_hex(const void *key, size_t keylen, const struct slice *parts, size_t n,
                     char out[SHA256_HEX]);

/* Incremental SHA-256 for streams. */
struct sha256;
struct sha256 *sha256_new(void);
void sha256_update(struct sha256 *h, const void *data, size_t len);
void sha256_final_hex(struct sha256 *h, char out[SHA256_HEX]); /* frees h */

int crypto_equal(const void *a, const void *b, size_t n); /* constant time */
int crypto_streq(const char *a, const char *b); /* constant time in the content of equal lengths */

int base64_encode(const void *data, size_t len, struct buf *out) WARN_UNUSED;
/* Accepts line breaks, as MIME does. ERR_PARSE on anything else. */
int base64_decode(const char *text, size_t len, struct buf *out) WARN_UNUSED;
int base64url_encode(const void *data, size_t len, struct buf *out) WARN_UNUSED; /* no padding */

uint32_t crc32c(uint32_t crc, const void *data, size_t len);

#endif
