/* JSON: the only place that knows jansson. Trees are jansson's json_t with its reference rules;
 * these helpers add strict parsing with a position, and field access that never fails.
 * Any thread after json_setup(); a tree belongs to one thread at a time. */
#ifndef REITOS_BASE_JSON_H
#define REITOS_BASE_JSON_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

#define JSON_TEXT_MAX ((size_t)1 << 30)

void json_setup(void); /* seeds the hash function; once, before threads */

/* Parses one value, whole input. Rejects duplicate keys, bad UTF-8, excess depth.
 * ERR_PARSE with "line L column C: reason". New reference in *ret. */
int json_parse(const void *text, size_t len, json_t **ret, struct err *e) WARN_UNUSED;

/* Compact text appended to `b`. */
int json_write(const json_t *v, struct buf *b) WARN_UNUSED;
char *json_text(const json_t *v); /* compact heap string */

/* Borrowed values; `def` (or 0/false) when absent or of another type. `o` may be NULL. */
const char *json_get_str(const json_t *o, const char *key, const char *def);
int64_t json_get_int(const json_t *o, const char *key, int64_t def);
int json_get_bool(const json_t *o, const char *key, int def);

static inline void autojson_fn(json_t **v)
{
    json_decref(*v);
}
#define autojson __attribute__((cleanup(autojson_fn)))

#endif
