/* Everything of an HTTP request and a WebSocket frame head that is parsed before a handler runs.
 * The first byte chooses the parser. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/http_parse.h"
#include "gateway/ws_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void head(const char *text, size_t size)
{
    struct http_head h;
    struct http_framing f;
    const char *why = NULL;
    size_t scan = 0, len = http_head_end(text, size, &scan);
    if (len == 0)
        return;
    autofree char *copy = xmalloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (http_head_parse(copy, len, &h, &why) == 0) {
        assert(h.target[0] == '/');
        if (http_head_framing(&h, &f, &why) == 0)
            assert(!f.chunked || f.length == 0);
        for (size_t i = 0; i < h.nfields; i++)
            assert(http_head_get(&h, h.fields[i].name, NULL) != NULL);
    } else {
        assert(why);
    }
    free(h.fields);
}

static void url(const char *text, size_t size)
{
    autofree char *out = xmalloc(size + 1);
    int redirect;
    if (http_path_decode(text, size, out) == 0) {
        assert(strlen(out) <= size && utf8_valid(out, strlen(out)));
        const char *rest = http_base_strip(out, "/a/", &redirect);
        assert(!rest || (rest >= out && rest <= out + strlen(out)));
    }
    free(http_query_get(text, "key"));
    free(http_query_get(text, ""));
    free(http_cookie_get(text, "_xsrf"));
    http_has_token(text, "upgrade");
}

/* The result must not depend on how the bytes arrive. */
static size_t unchunk(const char *text, size_t size, size_t step, char *out)
{
    struct http_chunked c = {0};
    size_t n = 0, at = 0;
    while (at < size && !http_chunked_done(&c)) {
        const char *part;
        size_t len, left = size - at < step ? size - at : step;
        long used = http_chunked_feed(&c, text + at, left, &part, &len);
        if (used < 0)
            return SIZE_MAX;
        memcpy(out + n, part, len);
        n += len;
        at += (size_t)used;
    }
    return n;
}

static void chunked(const char *text, size_t size)
{
    autofree char *a = xmalloc(size + 1), *b = xmalloc(size + 1);
    size_t n = unchunk(text, size, 1, a), m = unchunk(text, size, size + 1, b);
    assert(n == m && (n == SIZE_MAX || memcmp(a, b, n) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    autofree char *text = xmalloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    struct ws_frame f;
    switch (data[0] % 4) {
    case 0:
        head(text, size - 1);
        break;
    case 1:
        url(text, size - 1);
        break;
    case 2:
        chunked(text, size - 1);
        break;
    default: {
        int n = ws_frame_parse(data + 1, size - 1, &f);
        assert(n <= (int)size - 1 && n <= WS_HEAD_MAX);
        break;
    }
    }
    return 0;
}
