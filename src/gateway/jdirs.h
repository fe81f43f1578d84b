/* Jupyter's folders and the configuration found in them, as jupyter_core looks for them.
 *
 * Lists are heap arrays ending in NULL, most important first: jdirs_free(). `prefix` is the Python
 * environment, or NULL. Blocking (small files) except for the names. Any thread.
 */
#ifndef REITOS_GATEWAY_JDIRS_H
#define REITOS_GATEWAY_JDIRS_H

#include "base/json.h"

char **jdirs_data(const char *prefix);   /* $JUPYTER_PATH, user's, prefix/share/jupyter, ... */
char **jdirs_config(const char *prefix); /* $JUPYTER_CONFIG_PATH, ~/.jupyter, prefix/etc, ... */
void jdirs_free(char **list);
char *jdirs_user_config(void); /* $JUPYTER_CONFIG_DIR or ~/.jupyter; heap */

/* As recursive_update of Jupyter: null deletes, objects merge, an emptied object goes. */
void jdirs_merge(json_t *target, const json_t *update);
/* <each config folder>/<sub>/<section>.json and <section>.d/ *.json merged; malformed files are
 * left out. New reference. */
json_t *jdirs_section(const char *prefix, const char *sub, const char *section);
/* An object from a JSON (or, by its name, JSON5) file; ERR_NOT_FOUND, ERR_PARSE. */
int jdirs_read_object(const char *path, json_t **ret, struct err *e) WARN_UNUSED;

/* [A-Za-z0-9_.@-] and, if `slashes`, single slashes between parts; no part begins with a dot. */
int jdirs_name_ok(const char *name, int slashes);

#endif
