/* Login sessions in signed cookies, and the XSRF token that belongs to each. */
#include "gateway/cookie.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "base/sys.h"

#define COOKIE_VALUE_MAX 1024
#define CLOCK_SLACK_US ((int64_t)60 * 1000000)

static int key_decode(const char *hex, size_t len, uint8_t out[COOKIE_KEY_BYTES])
{
    if (len < 2 * COOKIE_KEY_BYTES || strspn(hex, "0123456789abcdef") < 2 * COOKIE_KEY_BYTES)
        return 0;
    for (size_t i = 0; i < COOKIE_KEY_BYTES; i++) {
        const char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return 1;
}

int cookie_key_load(const char *path, struct cookie_key *ret, struct err *e)
{
    autobuf struct buf text = BUF_INIT(4096);
    struct err why;
    int rc = fs_read_path(path, 4096, &text, &why);
    if (rc < 0 && rc != ERR_NOT_FOUND) {
        if (e)
            *e = why;
        return err_wrap(e, "reading the cookie secret");
    }
    if (rc < 0) {
        char hex[2 * COOKIE_KEY_BYTES + 2];
        sys_random_hex(hex, COOKIE_KEY_BYTES);
        memcpy(hex + 2 * COOKIE_KEY_BYTES, "\n", 2);
        rc = fs_write_path(path, hex, strlen(hex), 0600, e);
        if (rc < 0)
            return err_wrap(e, "writing the cookie secret");
        IGNORE_RESULT(buf_puts(&text, hex)); /* 65 bytes fit */
    }
    if (!key_decode(buf_str(&text), text.len, ret->bytes))
        return err_set(e, ERR_CONFIG, "%s is damaged: delete it to make a new one", path);
    ret->binding[0] = '\0';
    return 0;
}

char *cookie_name(const char *host)
{
    char *name = xasprintf("username-%s", host ? host : "");
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p))
            *p = '-';
    return name;
}

static void sign(const struct cookie_key *k, const char *purpose, const char *name,
                 const char *payload, size_t len, char out[SHA256_HEX])
{
    /* every part but the last ends in a NUL, so no two different inputs read the same */
    const struct slice parts[] = {
        {purpose, strlen(purpose) + 1},
        {name, strlen(name) + 1},
        {k->binding, strlen(k->binding) + 1},
        {payload, len},
    };
    hmac_sha256_hex(k->bytes, sizeof k->bytes, parts, COUNTOF(parts), out);
}

char *cookie_make(const struct cookie_key *k, const char *name, const struct cookie_session *s)
{
    autofree char *payload = xasprintf("%lld|%s|%s", (long long)s->issued_us, s->nonce, s->user);
    char mac[SHA256_HEX];
    sign(k, "login", name, payload, strlen(payload), mac);
    struct buf out = BUF_INIT(4 * COOKIE_VALUE_MAX);
    IGNORE_RESULT(
        base64url_encode(payload, strlen(payload), &out)); /* bounded by COOKIE_USER_MAX */
    buf_add(&out, ".%s", mac);
    return buf_steal(&out);
}

/* base64url text to bytes. */
static int decode_payload(const char *text, size_t n, struct buf *out)
{
    autofree char *std = xstrndup(text, n);
    for (char *p = std; *p; p++)
        *p = (char)(*p == '-' ? '+' : *p == '_' ? '/' : *p);
    autofree char *padded = xasprintf("%s%.*s", std, (int)((4 - n % 4) % 4), "===");
    return base64_decode(padded, strlen(padded), out);
}

static int parse_payload(const char *text, struct cookie_session *s)
{
    char *end;
    errno = 0;
    s->issued_us = strtoll(text, &end, 10);
    if (errno || end == text || *end != '|')
        return 0;
    const char *nonce = end + 1;
    if (strcspn(nonce, "|") != COOKIE_NONCE - 1)
        return 0;
    const char *user = nonce + COOKIE_NONCE;
    if (!*user || strlen(user) >= COOKIE_USER_MAX)
        return 0;
    snprintf(s->nonce, sizeof s->nonce, "%.*s", COOKIE_NONCE - 1, nonce);
    snprintf(s->user, sizeof s->user, "%s", user);
    return 1;
}

int cookie_check(const struct cookie_key *k, const char *name, const char *value, int64_t now_us,
                 struct cookie_session *ret)
{
    const char *dot = value ? strrchr(value, '.') : NULL;
    if (!dot || strlen(value) > COOKIE_VALUE_MAX)
        return ERR_DENIED;
    autobuf struct buf payload = BUF_INIT(COOKIE_VALUE_MAX);
    if (decode_payload(value, (size_t)(dot - value), &payload) < 0)
        return ERR_DENIED;
    char mac[SHA256_HEX];
    sign(k, "login", name, buf_str(&payload), payload.len, mac);
    struct cookie_session s;
    if (!crypto_streq(mac, dot + 1) || strlen(buf_str(&payload)) != payload.len ||
        !parse_payload(buf_str(&payload), &s))
        return ERR_DENIED;
    if (s.issued_us > now_us + CLOCK_SLACK_US ||
        s.issued_us < now_us - (int64_t)COOKIE_MAX_AGE_S * 1000000)
        return ERR_DENIED;
    *ret = s;
    return 0;
}

void xsrf_make(const struct cookie_key *k, const char *nonce, char out[XSRF_TEXT])
{
    char mac[SHA256_HEX];
    sign(k, "xsrf", "", nonce, strlen(nonce), mac);
    snprintf(out, XSRF_TEXT, "%.32s|%.64s", nonce, mac);
}

int xsrf_check(const struct cookie_key *k, const char *value, char ret_nonce[COOKIE_NONCE])
{
    if (!value || strlen(value) != XSRF_TEXT - 1 || value[COOKIE_NONCE - 1] != '|')
        return 0;
    char nonce[COOKIE_NONCE], want[XSRF_TEXT];
    snprintf(nonce, sizeof nonce, "%.*s", COOKIE_NONCE - 1, value);
    if (strspn(nonce, "0123456789abcdef") != COOKIE_NONCE - 1)
        return 0;
    xsrf_make(k, nonce, want);
    if (!crypto_streq(want, value))
        return 0;
    memcpy(ret_nonce, nonce, sizeof nonce);
    return 1;
}
