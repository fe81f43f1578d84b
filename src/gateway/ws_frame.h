/* WebSocket frames (RFC 6455), free of sockets. Any thread. */
#ifndef REITOS_GATEWAY_WS_FRAME_H
#define REITOS_GATEWAY_WS_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10
};

#define WS_HEAD_MAX 14 /* of a frame from a client */
#define WS_CONTROL_MAX 125

struct ws_frame {
    int fin, opcode;
    uint64_t len;
    uint8_t mask[4];
};

/* Reads the head of a client's frame. Returns its size, 0 when more bytes are needed, or
 * ERR_PROTOCOL: not masked, reserved bits or opcodes, long or fragmented control frames, lengths
 * not in their shortest form. */
int ws_frame_parse(const uint8_t *p, size_t len, struct ws_frame *ret) WARN_UNUSED;

/* Writes the head of an unfragmented server frame; returns its size (2, 4 or 10). */
size_t ws_frame_head(uint8_t out[10], int opcode, uint64_t len);

/* Unmasks in place; `offset` is the position of p in the frame's payload. */
void ws_frame_unmask(uint8_t *p, size_t len, const uint8_t mask[4], uint64_t offset);

int ws_close_code_valid(int code); /* may a peer send this code? */

#endif
