/* What strangers may send: form bodies, addresses, cookies, XSRF tokens, Host and Origin. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/cookie.h"
#include "gateway/origin.h"
#include "gateway/urltext.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct cookie_key key = {.bytes = {7}};
    struct cookie_session s;
    char nonce[COOKIE_NONCE];
    char *text = xstrndup((const char *)data, size);
    free(form_field((const char *)data, size, "password"));
    free(url_without(text, "token"));
    char *next = url_safe_next(text, "/x/");
    if (strncmp(next, "/x", 2) || (next[2] && next[2] != '/') || strchr(next, '\\'))
        abort();
    if (cookie_check(&key, "n", text, 1, &s) == 0 || xsrf_check(&key, text, nonce))
        abort();
    size_t half = strlen(text) / 2;
    char *host = xstrndup(text, half);
    origin_is_host(text + half, host);
    origin_host_ok(host, "127.0.0.1:1", text + half);
    free(host);
    free(next);
    free(text);
    return 0;
}
