/* Checkpoints: one copy per file in .ipynb_checkpoints beside it. Thread pool. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/contents.h"

#define CHECKPOINT_DIR ".ipynb_checkpoints"
#define CHECKPOINT_ID "checkpoint"

/* "a/b.ipynb" has its checkpoint in "a/.ipynb_checkpoints/b-checkpoint.ipynb". Heap. */
static char *checkpoint_path(const char *path, const char *id)
{
    autofree char *dir = cpath_parent(path);
    autofree char *folder = cpath_join(dir, CHECKPOINT_DIR);
    const char *name = cpath_name(path);
    const char *stem = name + strspn(name, ".");
    const char *dot = strrchr(stem, '.');
    if (!dot)
        dot = name + strlen(name);
    return xasprintf("%s/%.*s-%s%s", folder, (int)(dot - name), name, id, dot);
}

static int check(const struct cenv *env, const char *path, const char *id, struct err *e)
{
    if (!*path || (!env->hidden && cpath_hidden(path)))
        return err_set(e, ERR_NOT_FOUND, "file or directory '%s' does not exist", path);
    for (const char *p = id; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-')
            return err_set(e, ERR_NOT_FOUND, "Checkpoint does not exist: %s@%s", path, id);
    return 0;
}

static json_t *checkpoint_model(const struct stat *st)
{
    return json_pack("{s:s, s:o}", "id", CHECKPOINT_ID, "last_modified",
                     model_time(stat_mtime_ns(st)));
}

/* ERR_NOT_FOUND in Jupyter's words when the file has none. */
static int find(const struct cenv *env, const char *path, const char *id, char **ret,
                struct stat *st, struct err *e)
{
    int rc = check(env, path, id, e);
    if (rc < 0)
        return rc;
    autofree char *cp = checkpoint_path(path, id);
    rc = fs_stat(env->root, cp, st, e);
    if (rc == ERR_NOT_FOUND || (rc == 0 && !S_ISREG(st->st_mode)))
        return err_set(e, ERR_NOT_FOUND, "Checkpoint does not exist: %s@%s", path, id);
    if (rc == 0)
        *ret = STEAL(cp);
    return rc;
}

int checkpoint_list(const struct cenv *env, const char *path, json_t **ret, struct err *e)
{
    autofree char *cp = NULL;
    struct stat st;
    int rc = check(env, path, CHECKPOINT_ID, e);
    if (rc < 0)
        return rc;
    json_t *list = json_array();
    if (find(env, path, CHECKPOINT_ID, &cp, &st, NULL) == 0)
        json_array_append_new(list, checkpoint_model(&st));
    *ret = list;
    return 0;
}

int checkpoint_create(const struct cenv *env, const char *path, json_t **ret, struct err *e)
{
    int rc = check(env, path, CHECKPOINT_ID, e);
    if (rc < 0)
        return rc;
    struct stat st;
    rc = fs_stat(env->root, path, &st, e);
    if (rc < 0)
        return rc;
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is not a file", path);
    autofree char *cp = checkpoint_path(path, CHECKPOINT_ID);
    autofree char *dir = cpath_parent(cp);
    rc = fs_mkdir(env->root, dir, 0777, e);
    if (rc < 0 && rc != ERR_EXISTS)
        return rc;
    rc = contents_copy_file(env, path, cp, 1, e);
    if (rc == 0)
        rc = fs_stat(env->root, cp, &st, e);
    if (rc == 0)
        *ret = checkpoint_model(&st);
    return rc;
}

int checkpoint_restore(const struct cenv *env, const char *path, const char *id, struct err *e)
{
    autofree char *cp = NULL;
    struct stat st;
    int rc = find(env, path, id, &cp, &st, e);
    return rc < 0 ? rc : contents_copy_file(env, cp, path, 1, e);
}

int checkpoint_delete(const struct cenv *env, const char *path, const char *id, struct err *e)
{
    autofree char *cp = NULL;
    struct stat st;
    int rc = find(env, path, id, &cp, &st, e);
    return rc < 0 ? rc : fs_unlink(env->root, cp, e);
}

void checkpoint_rename(const struct cenv *env, const char *from, const char *to)
{
    autofree char *old = checkpoint_path(from, CHECKPOINT_ID);
    autofree char *new = checkpoint_path(to, CHECKPOINT_ID);
    autofree char *dir = cpath_parent(new);
    struct stat st;
    if (fs_stat(env->root, old, &st, NULL) < 0)
        return;
    /* A checkpoint left behind is harmless: the next save makes a new one. */
    IGNORE_RESULT(fs_mkdir(env->root, dir, 0777, NULL));
    IGNORE_RESULT(fs_unlink(env->root, new, NULL));
    IGNORE_RESULT(fs_rename(env->root, old, new, NULL));
}
