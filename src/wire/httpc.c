#include "wire/httpc.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        abort(); /* only without memory at start */
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    return buf_append(arg, data, size * n) < 0 ? 0 : size * n;
}

static int code_of(CURLcode rc)
{
    switch (rc) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return ERR_INVALID;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return ERR_UNAVAILABLE;
    case CURLE_OPERATION_TIMEDOUT:
        return ERR_TIMEOUT;
    case CURLE_WRITE_ERROR:
        return ERR_TOO_LARGE;
    case CURLE_OUT_OF_MEMORY:
        return ERR_MEMORY;
    default:
        return ERR_IO;
    }
}

/* 0, or -1 without memory. */
static int add_headers(struct curl_slist **list, const char *const *headers)
{
    /* "Expect: 100-continue" costs a round trip and confuses small servers. */
    static const char *const own[] = {"Expect:", NULL};
    const char *const *sets[] = {own, headers};
    for (int i = 0; i < 2; i++) {
        for (const char *const *h = sets[i]; h && *h; h++) {
            struct curl_slist *more = curl_slist_append(*list, *h);
            if (!more)
                return -1;
            *list = more;
        }
    }
    return 0;
}

static void set_method(CURL *c, const struct httpc_request *q)
{
    if (q->body) {
        curl_easy_setopt(c, CURLOPT_POST, 1L);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_len);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body);
    }
    if (q->method && strcmp(q->method, "HEAD") == 0)
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    else if (q->method)
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
}

static void set_options(CURL *c, const struct httpc_request *q, struct buf *body, char *why)
{
    curl_easy_setopt(c, CURLOPT_URL, q->url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L); /* timeouts without signals: threads */
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS,
                     (long)(q->timeout_ms ? q->timeout_ms : HTTPC_TIMEOUT_MS));
    curl_easy_setopt(c, CURLOPT_USERAGENT, "reitos/" REITOS_VERSION);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, body);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    if (q->unix_socket)
        curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, q->unix_socket);
    if (q->unix_socket || q->own)
        curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    if (q->own) {
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    set_method(c, q);
}

static int perform(CURL *c, const struct httpc_request *q, struct httpc_response *ret,
                   struct err *e)
{
    char why[CURL_ERROR_SIZE] = "";
    struct httpc_response r = {0, BUF_INIT(q->max_body ? q->max_body : HTTPC_BODY_MAX)};
    set_options(c, q, &r.body, why);
    CURLcode rc = curl_easy_perform(c);
    if (rc != CURLE_OK) {
        buf_free(&r.body);
        int shown = (int)strcspn(q->url, "?");
        return err_set(e, code_of(rc), "%.*s: %s", shown, q->url,
                       *why ? why : curl_easy_strerror(rc));
    }
    long status = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    r.status = (int)status;
    *ret = r;
    return 0;
}

int httpc_call(const struct httpc_request *q, struct httpc_response *ret, struct err *e)
{
    pthread_once(&once, init_curl);
    CURL *c = curl_easy_init();
    struct curl_slist *headers = NULL;
    int rc = ERR_MEMORY;
    if (c && add_headers(&headers, q->headers) == 0) {
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
        rc = perform(c, q, ret, e);
    } else {
        IGNORE_RESULT(err_set(e, rc, "no memory for a request")); /* returned below */
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(c);
    return rc;
}
