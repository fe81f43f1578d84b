#include "gateway/ws_frame.h"

#include <string.h>

static int is_control(int opcode)
{
    return opcode & 8;
}

int ws_frame_parse(const uint8_t *p, size_t len, struct ws_frame *ret)
{
    if (len < 2)
        return 0;
    int fin = p[0] >> 7, opcode = p[0] & 15;
    if (p[0] & 0x70 || !(p[1] & 0x80))
        return ERR_PROTOCOL;
    if ((opcode > WS_BINARY && opcode < WS_CLOSE) || opcode > WS_PONG)
        return ERR_PROTOCOL;
    uint64_t n = p[1] & 0x7f;
    if (is_control(opcode) && (!fin || n > WS_CONTROL_MAX))
        return ERR_PROTOCOL;
    size_t extra = n == 127 ? 8 : n == 126 ? 2 : 0;
    if (len < 2 + extra + 4)
        return 0;
    if (extra) {
        n = 0;
        for (size_t i = 0; i < extra; i++)
            n = n << 8 | p[2 + i];
        if (n < 126 || (extra == 8 && (n <= UINT16_MAX || n >> 63)))
            return ERR_PROTOCOL;
    }
    ret->fin = fin;
    ret->opcode = opcode;
    ret->len = n;
    memcpy(ret->mask, p + 2 + extra, 4);
    return (int)(2 + extra + 4);
}

size_t ws_frame_head(uint8_t out[10], int opcode, uint64_t len)
{
    out[0] = (uint8_t)(0x80 | opcode);
    if (len < 126) {
        out[1] = (uint8_t)len;
        return 2;
    }
    size_t bytes = len <= UINT16_MAX ? 2 : 8;
    out[1] = bytes == 2 ? 126 : 127;
    for (size_t i = 0; i < bytes; i++)
        out[2 + i] = (uint8_t)(len >> (8 * (bytes - 1 - i)));
    return 2 + bytes;
}

void ws_frame_unmask(uint8_t *p, size_t len, const uint8_t mask[4], uint64_t offset)
{
    uint8_t turned[8];
    for (size_t i = 0; i < 8; i++)
        turned[i] = mask[(offset + i) & 3];
    uint64_t key, word;
    memcpy(&key, turned, 8);
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        memcpy(&word, p + i, 8);
        word ^= key;
        memcpy(p + i, &word, 8);
    }
    for (; i < len; i++)
        p[i] ^= turned[i & 7];
}

int ws_close_code_valid(int code)
{
    return (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
           (code >= 3000 && code <= 4999);
}
