/* Contents models: what GET answers. Thread pool. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/sys.h"
#include "gateway/contents.h"
#include "gateway/mime.h"
#include "gateway/trust.h"
#include "wire/nb.h"

int cpath_clean(const char *path, char **ret, struct err *e)
{
    struct buf b = BUF_INIT(1 << 16);
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            buf_free(&b);
            return err_set(e, ERR_NOT_FOUND, "%s: no such file or folder", path);
        }
        if (n && !(n == 1 && p[0] == '.')) {
            if ((b.len && buf_puts(&b, "/") < 0) || buf_append(&b, p, n) < 0) {
                buf_free(&b);
                return err_set(e, ERR_NOT_FOUND, "path too long");
            }
        }
        p += n;
        p += strspn(p, "/");
    }
    *ret = buf_steal(&b);
    return 0;
}

int cpath_hidden(const char *path)
{
    return path[0] == '.' || strstr(path, "/.") != NULL;
}

const char *cpath_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *cpath_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup("");
}

char *cpath_join(const char *dir, const char *name)
{
    return *dir ? xasprintf("%s/%s", dir, name) : xstrdup(name);
}

json_t *model_time(int64_t ns)
{
    char text[SYS_TIME_MAX];
    return json_string(sys_time_iso(ns < 0 ? 0 : ns / 1000, text));
}

int64_t stat_mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int is_notebook_name(const char *path)
{
    size_t n = strlen(path);
    return n >= 6 && strcmp(path + n - 6, ".ipynb") == 0;
}

/* `fd` may be an O_PATH one. */
static int fd_writable(int fd)
{
    return faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS) == 0;
}

static json_t *base_model(const struct cenv *env, const char *path, const char *type,
                          const struct stat *st, int writable)
{
    struct pin pin;
    int pinned = S_ISREG(st->st_mode) && pins_get(env->pins, path, st, &pin);
    int64_t mtime = pinned ? pin.visible_mtime_ns : stat_mtime_ns(st);
    int64_t ctime = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
    const char *mime = strcmp(type, "file") == 0 ? mime_guess(path, NULL) : NULL;
    json_t *size = S_ISDIR(st->st_mode) ? json_null() : json_integer((json_int_t)st->st_size);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:b, s:s?, s:n, s:n, s:n, s:n}", "name",
                     cpath_name(path), "path", path, "type", type, "created", model_time(ctime),
                     "last_modified", model_time(mtime), "size", size, "writable", writable,
                     "mimetype", mime, "content", "format", "hash", "hash_algorithm");
}

static int hide_name(const char *name)
{
    size_t n = strlen(name);
    if (n > 4 && (strcmp(name + n - 4, ".pyc") == 0 || strcmp(name + n - 4, ".pyo") == 0))
        return 1;
    return name[n - 1] == '~' || strcmp(name, "__pycache__") == 0 || strcmp(name, ".DS_Store") == 0;
}

/* One entry of a folder, or NULL when it is not shown. */
static json_t *entry_model(const struct cenv *env, const char *dir, int dirfd, const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || hide_name(name))
        return NULL;
    if (name[0] == '.' && (!env->hidden || strncmp(name, ".reitos-", 8) == 0))
        return NULL; /* also our own temporary files */
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return NULL;
    autofree char *path = cpath_join(dir, name);
    if (S_ISLNK(st.st_mode) && fs_stat(env->root, path, &st, NULL) < 0)
        return NULL; /* dangling, or leads outside */
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return NULL;
    const char *type = S_ISDIR(st.st_mode)      ? "directory"
                       : is_notebook_name(name) ? "notebook"
                                                : "file";
    int writable = faccessat(dirfd, name, W_OK, AT_EACCESS) == 0;
    return base_model(env, path, type, &st, writable); /* NULL when the name is not UTF-8 */
}

static int list_dir(const struct cenv *env, const char *path, json_t *model, struct err *e)
{
    int fd = fs_open(env->root, path, O_RDONLY | O_DIRECTORY, 0, e);
    if (fd < 0)
        return fd;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return err_set(e, ERR_MEMORY, "%s", path);
    }
    json_t *list = json_array();
    const struct dirent *ent;
    while ((ent = readdir(d)) != NULL) {
        json_t *m = entry_model(env, path, fd, ent->d_name);
        if (m)
            json_array_append_new(list, m);
    }
    closedir(d);
    json_object_set_new(model, "content", list);
    json_object_set_new(model, "format", json_string("json"));
    return 0;
}

static int bad(const char **reason, const char *why, struct err *e, const char *fmt,
               const char *path)
{
    *reason = why;
    autofree char *text = xasprintf("%s %s", path, fmt);
    return err_set(e, ERR_INVALID, "%s", text);
}

static int set_text(json_t *model, const char *path, const struct buf *b, const char *format,
                    const char **reason, struct err *e)
{
    json_t *text =
        format && strcmp(format, "base64") == 0 ? NULL : json_stringn(buf_str(b), b->len);
    if (!text && format && strcmp(format, "text") == 0)
        return bad(reason, "bad format", e, "is not UTF-8 encoded", path);
    if (!text) {
        autobuf struct buf b64 = BUF_INIT(2 * CONTENTS_FILE_MAX);
        int rc = base64_encode(buf_str(b), b->len, &b64);
        if (rc < 0)
            return err_set(e, rc, "%s: %s", path, err_text(rc));
        json_object_set_new(model, "content", json_stringn_nocheck(buf_str(&b64), b64.len));
        json_object_set_new(model, "format", json_string("base64"));
    } else {
        json_object_set_new(model, "content", text);
        json_object_set_new(model, "format", json_string("text"));
    }
    if (json_is_null(json_object_get(model, "mimetype")))
        json_object_set_new(model, "mimetype",
                            json_string(text ? "text/plain" : "application/octet-stream"));
    return 0;
}

static int set_notebook(const struct cenv *env, json_t *model, const char *path,
                        const struct buf *b, const char *hash, struct err *e)
{
    struct err why = {0};
    json_t *nb = NULL;
    int rc = json_parse(buf_str(b), b->len, &nb, &why);
    if (rc == 0)
        nb_upgrade(nb);
    if (rc == 0 && !json_is_array(json_object_get(nb, "cells")))
        rc = err_set(&why, ERR_PARSE, "not a notebook of format 4: it has no list of cells");
    if (rc < 0) {
        json_decref(nb);
        return err_set(e, ERR_INVALID, "Unreadable Notebook: %s %s", path, why.msg);
    }
    if (nb_check(nb, &why) < 0) { /* it opens all the same, and the page says what is wrong */
        json_object_set_new(model, "message",
                            json_sprintf("Notebook validation failed: %s", why.msg));
    }
    nb_join_lines(nb);
    notebook_mark(nb, trust_has(env->trust, hash));
    json_object_set_new(model, "content", nb);
    json_object_set_new(model, "format", json_string("json"));
    return 0;
}

static int set_content(const struct cenv *env, int fd, json_t *model, const char *path,
                       const struct cget *g, const char **reason, struct err *e)
{
    struct stat st;
    autobuf struct buf b = BUF_INIT(CONTENTS_FILE_MAX);
    int rc = fs_read_fd(fd, CONTENTS_FILE_MAX, &b, e);
    if (rc == 0 && fstat(fd, &st) < 0)
        rc = err_errno(e, errno, "%s", path);
    if (rc < 0)
        return rc;
    char hash[SHA256_HEX];
    int notebook = strcmp(json_get_str(model, "type", ""), "notebook") == 0;
    if (g->hash || (notebook && g->content))
        sha256_hex(buf_str(&b), b.len, hash);
    if (g->hash) {
        struct pin pin;
        int pinned = pins_get(env->pins, path, &st, &pin);
        json_object_set_new(model, "hash", json_string(pinned ? pin.visible_hash : hash));
        json_object_set_new(model, "hash_algorithm", json_string("sha256"));
    }
    if (!g->content)
        return 0;
    return notebook ? set_notebook(env, model, path, &b, hash, e)
                    : set_text(model, path, &b, g->format, reason, e);
}

static int file_model(const struct cenv *env, const char *path, const struct cget *g, json_t **ret,
                      const char **reason, struct err *e)
{
    int want_bytes = g->content || g->hash;
    autofd int fd = fs_open(env->root, path, want_bytes ? O_RDONLY | O_NONBLOCK : O_PATH, 0, e);
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "Cannot read non-file %s", path);
    int notebook = g->type ? strcmp(g->type, "notebook") == 0 : is_notebook_name(path);
    json_t *model = base_model(env, path, notebook ? "notebook" : "file", &st, fd_writable(fd));
    if (!model)
        return err_set(e, ERR_NOT_FOUND, "the path is not UTF-8");
    int rc = want_bytes ? set_content(env, fd, model, path, g, reason, e) : 0;
    if (rc < 0) {
        json_decref(model);
        return rc;
    }
    *ret = model;
    return 0;
}

int model_get(const struct cenv *env, const char *path, const struct cget *g, json_t **ret,
              const char **reason, struct err *e)
{
    if (!env->hidden && cpath_hidden(path))
        return err_set(e, ERR_NOT_FOUND, "file or directory '%s' does not exist", path);
    autofd int fd = fs_open(env->root, path, O_PATH, 0, e);
    if (fd == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "file or directory '%s' does not exist", path);
    struct stat st;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return err_errno(e, errno, "%s", path);
    int want_dir = g->type && strcmp(g->type, "directory") == 0;
    if (!S_ISDIR(st.st_mode))
        return want_dir ? bad(reason, "bad type", e, "is not a directory", path)
                        : file_model(env, path, g, ret, reason, e);
    if (g->type && !want_dir) {
        autofree char *what = xasprintf("is a directory, not a %s", g->type);
        return bad(reason, "bad type", e, what, path);
    }
    json_t *model = base_model(env, path, "directory", &st, fd_writable(fd));
    if (!model)
        return err_set(e, ERR_NOT_FOUND, "the path is not UTF-8");
    int rc = g->content ? list_dir(env, path, model, e) : 0;
    if (rc < 0) {
        json_decref(model);
        return rc;
    }
    *ret = model;
    return 0;
}
