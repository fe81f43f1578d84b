/* docs/openapi.yaml, linked into the program; the build says where it lies. */
#include "gateway/openapi.h"

__asm__(".section .rodata\n"
        ".global openapi_text\n"
        "openapi_text:\n"
        ".incbin \"" REITOS_OPENAPI "\"\n"
        ".global openapi_end\n"
        "openapi_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const char openapi_end[];

size_t openapi_len(void)
{
    return (size_t)(openapi_end - openapi_text);
}
