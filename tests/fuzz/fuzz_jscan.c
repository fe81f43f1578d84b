/* Message headers: what the scanner takes must be what the JSON parser reads. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "wire/jscan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"msg_id", "msg_type", ""};
    struct slice got[3];
    if (!jscan_strings((const char *)data, size, keys, 3, got))
        return 0;
    json_t *tree = NULL;
    if (json_parse(data, size, &tree, NULL) < 0 || !json_is_object(tree))
        abort();
    for (size_t i = 0; i < 3; i++) {
        const char *want = json_get_str(tree, keys[i], "");
        if (strlen(want) != got[i].len || memcmp(want, got[i].data, got[i].len) != 0)
            abort();
    }
    json_decref(tree);
    return 0;
}
