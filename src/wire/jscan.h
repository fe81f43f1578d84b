/* String members of a flat JSON object, found without building a tree: the headers of Jupyter
 * messages are read several times per message, and are flat objects of short ASCII strings.
 * Whatever looks different is left to the real parser.
 */
#ifndef REITOS_WIRE_JSCAN_H
#define REITOS_WIRE_JSCAN_H

#include "base/buf.h"

#define JSCAN_MEMBERS_MAX 16

/* 1: `text` is a valid object, and ret[i] is the string at keys[i], {"", 0} when it is absent or
 * null. 0: not known; ret is not to be used. Known are at most JSCAN_MEMBERS_MAX different keys,
 * values that are strings or null, and strings of printable ASCII without a backslash: for those
 * the answer is that of json_parse(). Results point into `text`. */
int jscan_strings(const char *text, size_t len, const char *const *keys, size_t n,
                  struct slice *ret);

#endif
