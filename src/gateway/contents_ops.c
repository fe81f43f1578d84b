/* New, copied, renamed and deleted files. Thread pool. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gateway/contents.h"
#include "gateway/trust.h"

#define COPY_FOLDER_MAX ((uint64_t)500 << 20)
#define COPY_DEPTH_MAX 64
#define NAMES_MAX 100000

static int exists(const struct cenv *env, const char *path)
{
    struct stat st;
    return fs_stat(env->root, path, &st, NULL) == 0;
}

static int is_dir(const struct cenv *env, const char *path)
{
    struct stat st;
    return fs_stat(env->root, path, &st, NULL) == 0 && S_ISDIR(st.st_mode);
}

/* Where the number goes: before ".ipynb", else before the first dot. */
static const char *suffix(const char *name)
{
    const char *last = strrchr(name, '.');
    if (last && strcmp(last, ".ipynb") == 0)
        return last;
    const char *first = strchr(name, '.');
    return first ? first : name + strlen(name);
}

char *cpath_increment(const struct cenv *env, const char *dir, const char *name, const char *insert)
{
    const char *end = suffix(name);
    for (int i = 0; i < NAMES_MAX; i++) {
        char *tried =
            i ? xasprintf("%.*s%s%d%s", (int)(end - name), name, insert, i, end) : xstrdup(name);
        autofree char *path = cpath_join(dir, tried);
        if (!exists(env, path))
            return tried;
        free(tried);
    }
    return xstrdup(name); /* creating it then fails with "already exists" */
}

static int no_content(const struct cenv *env, const char *path, json_t **ret, struct err *e)
{
    struct cget g = {0};
    const char *reason;
    return model_get(env, path, &g, ret, &reason, e);
}

int contents_untitled(const struct cenv *env, const char *dir, const char *type, const char *ext,
                      json_t **ret, struct err *e)
{
    if (!is_dir(env, dir))
        return err_set(e, ERR_NOT_FOUND, "No such directory: %s", dir);
    if ((!env->hidden && cpath_hidden(dir)) || strchr(ext, '/'))
        return err_set(e, ERR_INVALID, "Cannot create file or directory '%s'", dir);
    if (!*type)
        type = strcmp(ext, ".ipynb") == 0 ? "notebook" : "file";
    int folder = strcmp(type, "directory") == 0, notebook = strcmp(type, "notebook") == 0;
    autofree char *base = xasprintf("%s%s",
                                    folder     ? "Untitled Folder"
                                    : notebook ? "Untitled"
                                               : "untitled",
                                    notebook ? ".ipynb" : ext);
    autofree char *name = cpath_increment(env, dir, base, folder ? " " : "");
    autofree char *path = cpath_join(dir, name);
    autojson json_t *model = json_pack("{s:s}", "type", type);
    contents_defaults(path, model);
    const char *reason;
    return contents_save(env, path, model, NULL, ret, &reason, e);
}

static int copy_bytes(int from, struct fs_writer *w, struct err *e)
{
    autofree char *block = xmalloc(1 << 18);
    for (;;) {
        ssize_t n = read(from, block, 1 << 18);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, errno, "reading");
        if (n == 0)
            return 0;
        int rc = fs_writer_write(w, block, (size_t)n, e);
        if (rc < 0)
            return rc;
    }
}

int contents_copy_file(const struct cenv *env, const char *from, const char *to, int times,
                       struct err *e)
{
    autofd int fd = fs_open(env->root, from, O_RDONLY | O_NONBLOCK, 0, e);
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, errno, "%s", from);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "Cannot read non-file %s", from);
    struct fs_writer *w;
    mode_t mode = exists(env, to) ? 0 : st.st_mode & 0777; /* a checkpoint's file keeps its own */
    int rc = fs_writer_open(env->root, to, mode, &w, e);
    if (rc < 0)
        return rc;
    rc = copy_bytes(fd, w, e);
    if (rc < 0) {
        fs_writer_abort(w);
        IGNORE_RESULT(err_wrap(e, "copying %s", from)); /* rc is the code */
        return rc;
    }
    struct pin pin;
    int64_t mtime =
        pins_get(env->pins, from, &st, &pin) ? pin.visible_mtime_ns : stat_mtime_ns(&st);
    struct timespec ts[2] = {st.st_atim, {mtime / 1000000000, mtime % 1000000000}};
    if (times)
        IGNORE_RESULT(futimens(fs_writer_fd(w), ts)); /* the time is only shown */
    return fs_writer_commit(w, e);
}

/* "a-Copy2.ipynb" is copied to "a-Copy3.ipynb", not "a-Copy2-Copy1.ipynb". Heap. */
static char *without_copy(const char *name)
{
    struct buf b = BUF_INIT(1 << 16);
    for (const char *p = name; *p;) {
        if (strncmp(p, "-Copy", 5) == 0) {
            const char *q = p + 5;
            while (isdigit((unsigned char)*q))
                q++;
            if (*q == '.') {
                p = q;
                continue;
            }
        }
        buf_add(&b, "%c", *p++);
    }
    return buf_steal(&b);
}

struct tree_copy {
    const struct cenv *env;
    uint64_t bytes; /* of the files seen so far */
    int dry;        /* only count */
};

static int copy_tree(struct tree_copy *t, const char *from, const char *to, int depth,
                     struct err *e);

static int copy_entry(struct tree_copy *t, const char *from, const char *to, const char *name,
                      int depth, struct err *e)
{
    autofree char *src = cpath_join(from, name);
    autofree char *dst = cpath_join(to, name);
    struct stat st;
    if (fs_stat(t->env->root, src, &st, NULL) < 0)
        return 0; /* a link that leads nowhere, or outside */
    if (S_ISDIR(st.st_mode))
        return copy_tree(t, src, dst, depth + 1, e);
    if (!S_ISREG(st.st_mode))
        return 0;
    t->bytes += (uint64_t)st.st_size;
    if (t->bytes > COPY_FOLDER_MAX)
        return err_set(e, ERR_INVALID, "Can't copy folders larger than %dMB",
                       (int)(COPY_FOLDER_MAX >> 20));
    return t->dry ? 0 : contents_copy_file(t->env, src, dst, 1, e);
}

static int copy_tree(struct tree_copy *t, const char *from, const char *to, int depth,
                     struct err *e)
{
    if (depth > COPY_DEPTH_MAX)
        return err_set(e, ERR_INVALID, "Can't copy '%s': too many folders in folders", from);
    int fd = fs_open(t->env->root, from, O_RDONLY | O_DIRECTORY, 0, e);
    if (fd < 0)
        return fd;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return err_set(e, ERR_MEMORY, "%s", from);
    }
    int rc = t->dry ? 0 : fs_mkdir(t->env->root, to, 0777, e);
    const struct dirent *ent;
    while (rc == 0 && (ent = readdir(d)) != NULL) {
        if (strcmp(ent->d_name, ".") != 0 && strcmp(ent->d_name, "..") != 0)
            rc = copy_entry(t, from, to, ent->d_name, depth, e);
    }
    closedir(d);
    return rc;
}

static int copy_folder(const struct cenv *env, const char *from, const char *to, struct err *e)
{
    size_t n = strlen(from);
    if (strncmp(to, from, n) == 0 && (to[n] == '/' || !n))
        return err_set(e, ERR_INVALID, "Can't copy '%s' into itself", from);
    struct tree_copy t = {.env = env, .dry = 1};
    int rc = copy_tree(&t, from, to, 0, e);
    if (rc < 0)
        return rc;
    t = (struct tree_copy){.env = env};
    rc = copy_tree(&t, from, to, 0, e);
    if (rc < 0)
        IGNORE_RESULT(fs_remove_tree(env->root, to, NULL)); /* the first error is reported */
    return rc;
}

int contents_copy(const struct cenv *env, const char *from, const char *to, json_t **ret,
                  struct err *e)
{
    if (!env->hidden && (cpath_hidden(from) || cpath_hidden(to)))
        return err_set(e, ERR_INVALID, "Cannot copy file or directory '%s'", to);
    struct stat st;
    if (!*from || fs_stat(env->root, from, &st, NULL) < 0)
        return err_set(e, ERR_NOT_FOUND, "file or directory '%s' does not exist", from);
    autofree char *target = xstrdup(to);
    if (is_dir(env, to)) {
        autofree char *plain = without_copy(cpath_name(from));
        autofree char *name = cpath_increment(env, to, plain, "-Copy");
        free(target);
        target = cpath_join(to, name);
    } else {
        autofree char *parent = cpath_parent(to);
        if (!is_dir(env, parent))
            return err_set(e, ERR_NOT_FOUND, "No such parent directory: %s to copy file in",
                           parent);
    }
    int rc = S_ISDIR(st.st_mode) ? copy_folder(env, from, target, e)
                                 : contents_copy_file(env, from, target, 0, e);
    return rc < 0 ? rc : no_content(env, target, ret, e);
}

/* To another file system, which no rename can do. Folders are left to the user: a move of many
 * files that fails half way would leave two halves. */
static int move_file(const struct cenv *env, const char *from, const char *to, struct err *e)
{
    if (is_dir(env, from))
        return err_set(e, ERR_INVALID,
                       "'%s' is on another file system than '%s': copy the folder, then delete it",
                       from, to);
    if (exists(env, to))
        return err_set(e, ERR_EXISTS, "%s exists", to);
    int rc = contents_copy_file(env, from, to, 1, e);
    return rc < 0 ? rc : fs_unlink(env->root, from, e);
}

int contents_rename(const struct cenv *env, const char *from, const char *to, struct err *e)
{
    if (!env->hidden && (cpath_hidden(from) || cpath_hidden(to)))
        return err_set(e, ERR_INVALID, "Cannot rename file or directory '%s'", from);
    if (!*from || !*to)
        return err_set(e, ERR_INVALID, "Cannot rename the root folder");
    int rc = fs_rename(env->root, from, to, e);
    if (rc == ERR_UNSUPPORTED)
        rc = move_file(env, from, to, e);
    if (rc == ERR_EXISTS)
        return err_set(e, rc, "File already exists: %s", to);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, rc, "File or directory does not exist: %s", from);
    if (rc == 0)
        checkpoint_rename(env, from, to);
    return rc;
}

/* 1 when the folder holds nothing but checkpoints. */
static int is_empty(const struct cenv *env, const char *path, struct err *e)
{
    int fd = fs_open(env->root, path, O_RDONLY | O_DIRECTORY, 0, e);
    if (fd < 0)
        return fd;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return err_set(e, ERR_MEMORY, "%s", path);
    }
    int empty = 1;
    const struct dirent *ent;
    while (empty && (ent = readdir(d)) != NULL)
        empty = strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0 ||
                strcmp(ent->d_name, ".ipynb_checkpoints") == 0;
    closedir(d);
    return empty;
}

static int is_link(const struct cenv *env, const char *path)
{
    const char *name;
    autofd int dir = fs_parent(env->root, path, &name, NULL);
    struct stat st;
    return dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

int contents_delete(const struct cenv *env, const char *path, struct err *e)
{
    if (!*path)
        return err_set(e, ERR_INVALID, "Can't delete root");
    if (!env->hidden && cpath_hidden(path))
        return err_set(e, ERR_INVALID, "Cannot delete file or directory '%s'", path);
    struct stat st;
    int link = is_link(env, path);
    int rc = link ? 0 : fs_stat(env->root, path, &st, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, rc, "file or directory does not exist: '%s'", path);
    if (rc < 0)
        return rc;
    if (link || !S_ISDIR(st.st_mode)) {
        rc = fs_unlink(env->root, path, e);
        if (rc == 0)
            IGNORE_RESULT(checkpoint_delete(env, path, "checkpoint", NULL)); /* if there is one */
        return rc;
    }
    rc = is_empty(env, path, e);
    if (rc == 0)
        return err_set(e, ERR_INVALID, "Directory %s not empty", path);
    return rc < 0 ? rc : fs_remove_tree(env->root, path, e);
}

int contents_trust(const struct cenv *env, const char *path, struct err *e)
{
    if (!env->hidden && cpath_hidden(path))
        return err_set(e, ERR_NOT_FOUND, "file or directory '%s' does not exist", path);
    autobuf struct buf b = BUF_INIT(CONTENTS_FILE_MAX);
    autojson json_t *nb = NULL;
    int rc = fs_read(env->root, path, CONTENTS_FILE_MAX, &b, e);
    if (rc < 0)
        return rc;
    if (json_parse(buf_str(&b), b.len, &nb, NULL) < 0 ||
        !json_is_array(json_object_get(nb, "cells")))
        return err_set(e, ERR_INVALID, "Unreadable Notebook: %s", path);
    char hash[SHA256_HEX];
    sha256_hex(buf_str(&b), b.len, hash);
    trust_add(env->trust, hash);
    return 0;
}
