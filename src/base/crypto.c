#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/alloc.h"

static void hex(const unsigned char *in, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[in[i] >> 4];
        out[2 * i + 1] = digits[in[i] & 15];
    }
    out[2 * n] = '\0';
}

/* Fetched once: a fetch per call costs more than hashing a small message. */
static const EVP_MD *sha256_md(void)
{
    static EVP_MD *md;
    if (!md)
        md = EVP_MD_fetch(NULL, "SHA256", NULL);
    return md;
}

struct sha256 {
    EVP_MD_CTX *ctx;
};

struct sha256 *sha256_new(void)
{
    struct sha256 *h = xmalloc(sizeof *h);
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || !EVP_DigestInit_ex2(h->ctx, sha256_md(), NULL))
        abort();
    return h;
}

void sha256_update(struct sha256 *h, const void *data, size_t len)
{
    if (!EVP_DigestUpdate(h->ctx, data, len))
        abort();
}

void sha256_final_hex(struct sha256 *h, char out[SHA256_HEX])
{
    unsigned char d[SHA256_BYTES];
    if (!EVP_DigestFinal_ex(h->ctx, d, NULL))
        abort();
    hex(d, sizeof d, out);
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void sha256_hex(const void *data, size_t len, char out[SHA256_HEX])
{
    struct sha256 *h = sha256_new();
    sha256_update(h, data, len);
    sha256_final_hex(h, out);
}

/* HMAC by its definition (RFC 2104) on the digest: OpenSSL 3's EVP_MAC costs several times more
 * per short message because it allocates and fetches. */
void hmac_sha256_hex(const void *key, size_t keylen, const struct slice *parts, size_t n,
                     char out[SHA256_HEX])
{
    unsigned char block[64] = {0}, inner[SHA256_BYTES];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx)
        abort();
    if (keylen > sizeof block)
        EVP_Digest(key, keylen, block, NULL, sha256_md(), NULL);
    else if (keylen)
        memcpy(block, key, keylen);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36;
    EVP_DigestInit_ex2(ctx, sha256_md(), NULL);
    EVP_DigestUpdate(ctx, block, sizeof block);
    for (size_t i = 0; i < n; i++)
        EVP_DigestUpdate(ctx, parts[i].data, parts[i].len);
    EVP_DigestFinal_ex(ctx, inner, NULL);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36 ^ 0x5c;
    EVP_DigestInit_ex2(ctx, sha256_md(), NULL);
    EVP_DigestUpdate(ctx, block, sizeof block);
    EVP_DigestUpdate(ctx, inner, sizeof inner);
    EVP_DigestFinal_ex(ctx, inner, NULL);
    hex(inner, sizeof inner, out);
    OPENSSL_cleanse(block, sizeof block);
    EVP_MD_CTX_free(ctx);
}

int crypto_equal(const void *a, const void *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}

int crypto_streq(const char *a, const char *b)
{
    size_t n = strlen(a);
    return strlen(b) == n && crypto_equal(a, b, n);
}

static int encode64(const void *data, size_t len, struct buf *out, const char *alphabet, int pad)
{
    const unsigned char *p = data;
    char *w;
    int rc = buf_reserve(out, (len + 2) / 3 * 4, &w);
    if (rc < 0)
        return rc;
    char *start = w;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        unsigned v = (unsigned)p[i] << 16;
        if (left > 1)
            v |= (unsigned)p[i + 1] << 8;
        if (left > 2)
            v |= p[i + 2];
        *w++ = alphabet[v >> 18];
        *w++ = alphabet[v >> 12 & 63];
        if (left > 1)
            *w++ = alphabet[v >> 6 & 63];
        else if (pad)
            *w++ = '=';
        if (left > 2)
            *w++ = alphabet[v & 63];
        else if (pad)
            *w++ = '=';
    }
    out->len += (size_t)(w - start);
    out->data[out->len] = '\0';
    return 0;
}

int base64_encode(const void *data, size_t len, struct buf *out)
{
    return encode64(data, len, out,
                    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 1);
}

int base64url_encode(const void *data, size_t len, struct buf *out)
{
    return encode64(data, len, out,
                    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", 0);
}

static int value64(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *text, size_t len, struct buf *out)
{
    char *w;
    int rc = buf_reserve(out, len / 4 * 3 + 3, &w);
    if (rc < 0)
        return rc;
    char *start = w;
    unsigned acc = 0;
    int bits = 0, pad = 0;
    size_t digits = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n' || c == '\r')
            continue;
        digits++;
        if (c == '=') {
            pad++;
            continue;
        }
        int v = value64(c);
        if (v < 0 || pad)
            return ERR_PARSE;
        acc = acc << 6 | (unsigned)v;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            *w++ = (char)(acc >> bits & 0xff);
        }
    }
    if (digits % 4 || pad > 2)
        return ERR_PARSE;
    out->len += (size_t)(w - start);
    out->data[out->len] = '\0';
    return 0;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    static uint32_t table[256];
    if (!table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++)
                c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
            table[i] = c;
        }
    }
    const unsigned char *p = data;
    crc = ~crc;
    while (len--)
        crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
    return ~crc;
}
