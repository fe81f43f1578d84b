/* Jupyter's contents service: what its files share.
 *
 * contents.c holds the routes and the jobs; the work itself (contents_model.c, contents_save.c,
 * contents_ops.c, checkpoints.c) runs on the thread pool with a `struct cenv` and knows neither
 * HTTP nor the loop. Paths are API paths: UTF-8, relative to the root, cleaned by cpath_clean().
 */
#ifndef REITOS_GATEWAY_CONTENTS_H
#define REITOS_GATEWAY_CONTENTS_H

#include "base/fs.h"
#include "base/json.h"
#include "gateway/gw.h"
#include "gateway/pathlock.h"
#include "gateway/pins.h"

#define CONTENTS_FILE_MAX ((size_t)1 << 30)

struct trust;
struct merge_hold;

/* What pool work needs. Everything in it is safe to use from any thread. */
struct cenv {
    const struct fs_root *root;
    int hidden; /* names that begin with a dot are served */
    struct pins *pins;
    struct trust *trust;
};

const struct cenv *contents_env(const struct contents *c);
/* Writers of one path take turns. Loop thread. */
struct pathlocks *contents_locks(struct contents *c);

/* Paths. "/a//b/" becomes "a/b"; "." parts vanish; a ".." part is ERR_NOT_FOUND. Heap. */
int cpath_clean(const char *path, char **ret, struct err *e) WARN_UNUSED;
int cpath_hidden(const char *path); /* some part begins with a dot */
const char *cpath_name(const char *path);
char *cpath_parent(const char *path);                /* heap */
char *cpath_join(const char *dir, const char *name); /* heap */
char *cpath_increment(const struct cenv *env, const char *dir, const char *name,
                      const char *insert); /* a name that is free in dir; heap */

/* Models (contents_model.c). `reason` is Jupyter's machine-readable word for some errors, or NULL;
 * it points to static text. */
struct cget {
    const char *type, *format; /* NULL: by name, by content */
    int content, hash;
};
int model_get(const struct cenv *env, const char *path, const struct cget *g, json_t **ret,
              const char **reason, struct err *e) WARN_UNUSED;
/* The times are nanoseconds since 1970. */
json_t *model_time(int64_t ns);
int64_t stat_mtime_ns(const struct stat *st);

/* Notebooks (notebook.c): between the form of clients and the form on disk. */
void notebook_mark(json_t *nb, int trusted); /* sets metadata.trusted of code cells */
int notebook_strip_trust(json_t *nb);        /* removes it; 1 when all output may be trusted */
json_t *notebook_cell(const json_t *nb, const char *id); /* borrowed; NULL when there is none */

/* Saving (contents_save.c). `model` is the parsed body; it is changed. `hold` may be NULL. */
int contents_save(const struct cenv *env, const char *path, json_t *model, struct merge_hold *hold,
                  json_t **ret, const char **reason, struct err *e) WARN_UNUSED;
/* Model fields that a new file gets when the client leaves them out. */
void contents_defaults(const char *path, json_t *model);

/* Other changes (contents_ops.c). Those that return a model give it without content. */
int contents_untitled(const struct cenv *env, const char *dir, const char *type, const char *ext,
                      json_t **ret, struct err *e) WARN_UNUSED;
int contents_copy(const struct cenv *env, const char *from, const char *to, json_t **ret,
                  struct err *e) WARN_UNUSED;
int contents_rename(const struct cenv *env, const char *from, const char *to,
                    struct err *e) WARN_UNUSED;
int contents_delete(const struct cenv *env, const char *path, struct err *e) WARN_UNUSED;
int contents_trust(const struct cenv *env, const char *path, struct err *e) WARN_UNUSED;
/* Replaces `to`, or makes it with the mode of `from`; times are kept when `times`. */
int contents_copy_file(const struct cenv *env, const char *from, const char *to, int times,
                       struct err *e) WARN_UNUSED;

/* Checkpoints (checkpoints.c): one per file, where Jupyter keeps it. */
int checkpoint_list(const struct cenv *env, const char *path, json_t **ret,
                    struct err *e) WARN_UNUSED;
int checkpoint_create(const struct cenv *env, const char *path, json_t **ret,
                      struct err *e) WARN_UNUSED;
int checkpoint_restore(const struct cenv *env, const char *path, const char *id,
                       struct err *e) WARN_UNUSED;
int checkpoint_delete(const struct cenv *env, const char *path, const char *id,
                      struct err *e) WARN_UNUSED;
void checkpoint_rename(const struct cenv *env, const char *from, const char *to);

#endif
