/* The Range header of RFC 9110: one range of bytes. Pure. */
#ifndef REITOS_GATEWAY_RANGE_H
#define REITOS_GATEWAY_RANGE_H

#include <stdint.h>

enum range { RANGE_NONE, RANGE_OK, RANGE_UNSATISFIABLE };

/* RANGE_NONE: absent, malformed, several ranges, or the whole file: the file is sent whole.
 * RANGE_OK: send `len` bytes from `from`. */
enum range range_parse(const char *header, uint64_t size, uint64_t *from, uint64_t *len);

#endif
