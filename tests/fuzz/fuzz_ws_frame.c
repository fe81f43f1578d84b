/* A stream of WebSocket frames from a client. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/ws_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unmasking in two pieces gives what unmasking at once gives. */
static void check_unmask(const struct ws_frame *f, const uint8_t *payload, size_t len)
{
    uint8_t *whole = malloc(len + 1), *pieces = malloc(len + 1);
    if (!whole || !pieces)
        abort();
    memcpy(whole, payload, len);
    memcpy(pieces, payload, len);
    ws_frame_unmask(whole, len, f->mask, 0);
    size_t cut = len / 3;
    ws_frame_unmask(pieces, cut, f->mask, 0);
    ws_frame_unmask(pieces + cut, len - cut, f->mask, cut);
    if (memcmp(whole, pieces, len) != 0)
        abort();
    free(whole);
    free(pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size > 0) {
        struct ws_frame f;
        int n = ws_frame_parse(data, size, &f);
        if (n <= 0) {
            if (n == 0 && size >= WS_HEAD_MAX)
                abort(); /* a whole head was there */
            return 0;
        }
        if ((size_t)n > size || n > WS_HEAD_MAX)
            abort();
        uint8_t head[10];
        size_t own = ws_frame_head(head, f.opcode, f.len);
        if (own + 4 != (size_t)n) /* ours has no mask, and lengths are in their shortest form */
            abort();
        data += n;
        size -= (size_t)n;
        size_t len = f.len < size ? (size_t)f.len : size;
        check_unmask(&f, data, len);
        data += len;
        size -= len;
    }
    return 0;
}
