/* What each client session of a kernel has received: journal positions that survive the daemon.
 *
 * A small shared file mapping (<data>/kernels/<id>/clients.map), so that an update costs a store
 * and kill -9 loses nothing. RESUME_SLOTS sessions; the one not seen for longest gives way.
 * Loop thread only.
 */
#ifndef REITOS_GATEWAY_RESUME_H
#define REITOS_GATEWAY_RESUME_H

#include <stdint.h>

#include "base/err.h"

#define RESUME_SLOTS 64
#define RESUME_ID_MAX 88 /* longest session id that is remembered, with the NUL */

struct resume;
int resume_open(const char *path, struct resume **ret, struct err *e) WARN_UNUSED;
struct resume *resume_close(struct resume *r); /* NULL-safe, returns NULL; the file stays */
/* 1 and the position up to which `session` has everything; 0 when it is not known. */
int resume_get(const struct resume *r, const char *session, uint64_t *ret_seq);
void resume_set(struct resume *r, const char *session, uint64_t seq);
/* The furthest position that any session has received; 0 when there was none. */
uint64_t resume_furthest(const struct resume *r);

#endif
