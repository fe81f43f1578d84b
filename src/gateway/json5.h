/* JSON5: what people write into JupyterLab's settings. JSON with comments, trailing commas, single
 * quotes, names without quotes, hexadecimal and sloppy numbers. Infinity and NaN are refused, as
 * JSON cannot carry them. Pure; any thread. */
#ifndef REITOS_GATEWAY_JSON5_H
#define REITOS_GATEWAY_JSON5_H

#include "base/json.h"

#define JSON5_DEPTH_MAX 100

/* One value, whole input; a repeated key's last value counts. ERR_PARSE with "line L column C:
 * reason". New reference in *ret. */
int json5_parse(const char *text, size_t len, json_t **ret, struct err *e) WARN_UNUSED;

#endif
