/* The text of a configuration file. */
#include <stddef.h>
#include <stdint.h>

#include "base/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf c;
    struct err e = {0};
    conf_defaults(&c);
    IGNORE_RESULT(conf_parse_ini(&c, "fuzz.ini", (const char *)data, size, &e)); /* no crash */
    conf_free(&c);
    return 0;
}
