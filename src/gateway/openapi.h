/* docs/openapi.yaml, linked into the program. */
#ifndef REITOS_GATEWAY_OPENAPI_H
#define REITOS_GATEWAY_OPENAPI_H

#include <stddef.h>

extern const char openapi_text[];
size_t openapi_len(void);

#endif
