#include "base/json.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sys.h"

void json_setup(void)
{
    size_t seed;
    sys.random(&seed, sizeof seed);
    json_object_seed(seed ? seed : 1);
}

int json_parse(const void *text, size_t len, json_t **ret, struct err *e)
{
    if (len > JSON_TEXT_MAX)
        return err_set(e, ERR_TOO_LARGE, "JSON text of %zu bytes", len);
    json_error_t je;
    json_t *v = json_loadb(len ? text : "", len,
                           JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!v)
        return err_set(e, ERR_PARSE, "malformed JSON: line %d column %d: %s", je.line, je.column,
                       je.text);
    *ret = v;
    return 0;
}

static int write_chunk(const char *data, size_t len, void *arg)
{
    return buf_append(arg, data, len) < 0 ? -1 : 0;
}

int json_write(const json_t *v, struct buf *b)
{
    return json_dump_callback(v, write_chunk, b, JSON_COMPACT | JSON_ENCODE_ANY) < 0 ? ERR_TOO_LARGE
                                                                                     : 0;
}

char *json_text(const json_t *v)
{
    struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    if (json_write(v, &b) < 0) {
        buf_free(&b);
        return xstrdup("null");
    }
    return buf_steal(&b);
}

const char *json_get_str(const json_t *o, const char *key, const char *def)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : def;
}

int64_t json_get_int(const json_t *o, const char *key, int64_t def)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : def;
}

int json_get_bool(const json_t *o, const char *key, int def)
{
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : def;
}
