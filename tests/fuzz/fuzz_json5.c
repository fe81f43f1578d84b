/* Settings as people write them. What is read must be valid JSON. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "gateway/json5.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *v = NULL;
    if (json5_parse((const char *)data, size, &v, NULL) < 0)
        return 0;
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    json_t *again = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    if (!again)
        abort();
    json_decref(again);
    free(text);
    json_decref(v);
    return 0;
}
