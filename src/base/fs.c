#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"

#define FS_DEPTH_MAX 200
#define FS_RACES_MAX 16

int fs_root_open(const char *path, struct fs_root *ret, struct err *e)
{
    autofree char *resolved = realpath(path, NULL);
    if (!resolved)
        return err_errno(e, errno, "%s", path);
    int fd = open(resolved, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, errno, "%s", path);
    ret->fd = fd;
    ret->path = STEAL(resolved);
    return 0;
}

void fs_root_close(struct fs_root *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    free(STEAL(r->path));
}

/* One message for all ways in which a path is not there, so that it tells nothing about what lies
 * outside the root. */
static int path_error(struct err *e, int errnum, const char *rel)
{
    switch (errnum) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EXDEV:
        return err_set(e, ERR_NOT_FOUND, "%s: no such file or folder", rel);
    case EISDIR:
        return err_set(e, ERR_INVALID, "%s: is a folder", rel);
    case ENXIO:
    case ENODEV:
        return err_set(e, ERR_INVALID, "%s: not a regular file", rel);
    case ENOSYS:
        return err_set(e, ERR_UNSUPPORTED, "%s: openat2 is missing: Linux 5.6 or newer is needed",
                       rel);
    default:
        return err_errno(e, errnum, "%s", rel);
    }
}

/* Returns the fd or -errno. */
static int open_beneath(int dirfd, const char *rel, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY)),
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    for (int i = 0; i < FS_RACES_MAX; i++) {
        long fd = syscall(SYS_openat2, dirfd, *rel ? rel : ".", &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno != EAGAIN && errno != EINTR) /* EAGAIN: a rename raced with the walk */
            return -errno;
    }
    return -EAGAIN;
}

static int has_dotdot(const char *rel)
{
    for (const char *p = rel; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return 1;
    }
    return 0;
}

/* The path below the root of an absolute one, NULL when it lies outside. */
static const char *below(const struct fs_root *r, const char *abs)
{
    size_t n = strlen(r->path);
    if (n == 1)
        return abs + 1;
    if (strncmp(abs, r->path, n) != 0)
        return NULL;
    return abs[n] == '/' ? abs + n + 1 : abs[n] == '\0' ? abs + n : NULL;
}

/* A symbolic link with an absolute target inside the root is refused by RESOLVE_BENEATH. Gives the
 * path without links; the caller opens it beneath the root again, so a race cannot escape. The
 * last component need not exist. */
static char *without_links(const struct fs_root *r, const char *rel)
{
    if (*rel == '/' || has_dotdot(rel))
        return NULL;
    autofree char *full = xasprintf("%s/%s", r->path, rel);
    autofree char *real = realpath(full, NULL);
    autofree char *joined = NULL;
    if (!real && errno == ENOENT) {
        char *slash = strrchr(full, '/');
        *slash = '\0';
        autofree char *dir = realpath(full, NULL);
        if (dir)
            joined = xasprintf("%s/%s", dir, slash + 1);
    }
    const char *found = real ? real : joined;
    const char *inside = found ? below(r, found) : NULL;
    return inside ? xstrdup(inside) : NULL;
}

int fs_open(const struct fs_root *r, const char *rel, int flags, mode_t mode, struct err *e)
{
    int fd = open_beneath(r->fd, rel, flags, mode);
    if (fd == -EXDEV) {
        autofree char *real = without_links(r, rel);
        if (real)
            fd = open_beneath(r->fd, real, flags, mode);
    }
    return fd >= 0 ? fd : path_error(e, -fd, rel);
}

int fs_stat(const struct fs_root *r, const char *rel, struct stat *st, struct err *e)
{
    autofd int fd = fs_open(r, rel, O_PATH, 0, e);
    if (fd < 0)
        return fd;
    struct stat found;
    if (fstat(fd, &found) < 0)
        return path_error(e, errno, rel);
    *st = found;
    return 0;
}

int fs_parent(const struct fs_root *r, const char *rel, const char **ret_name, struct err *e)
{
    const char *slash = strrchr(rel, '/');
    const char *name = slash ? slash + 1 : rel;
    if (*rel == '/' || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return path_error(e, ENOENT, rel);
    autofree char *dir = slash ? xstrndup(rel, (size_t)(slash - rel)) : xstrdup("");
    int fd = fs_open(r, dir, O_PATH | O_DIRECTORY, 0, e);
    if (fd >= 0)
        *ret_name = name;
    return fd;
}

int fs_mkdir(const struct fs_root *r, const char *rel, mode_t mode, struct err *e)
{
    const char *name;
    autofd int dir = fs_parent(r, rel, &name, e);
    if (dir < 0)
        return dir;
    return mkdirat(dir, name, mode) < 0 ? path_error(e, errno, rel) : 0;
}

/* File systems without RENAME_NOREPLACE (some network ones) get the check and the move apart. */
static int rename_noreplace(int fromdir, const char *from, int todir, const char *to)
{
    if (renameat2(fromdir, from, todir, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    struct stat st;
    if (fstatat(todir, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    return renameat(fromdir, from, todir, to) == 0 ? 0 : -errno;
}

int fs_rename(const struct fs_root *r, const char *from, const char *to, struct err *e)
{
    const char *from_name, *to_name;
    autofd int fromdir = fs_parent(r, from, &from_name, e);
    if (fromdir < 0)
        return fromdir;
    autofd int todir = fs_parent(r, to, &to_name, e);
    if (todir < 0)
        return todir;
    int rc = rename_noreplace(fromdir, from_name, todir, to_name);
    if (rc == 0)
        return 0;
    if (rc == -EXDEV)
        return err_set(e, ERR_UNSUPPORTED, "%s to %s: on another file system", from, to);
    return path_error(e, -rc, rc == -EEXIST ? to : from);
}

static int unlink_at(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0)
        return 0;
    if (errno == EISDIR || errno == EPERM) {
        int first = errno;
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
            return 0;
        if (errno == ENOTDIR)
            errno = first;
    }
    return -errno;
}

int fs_unlink(const struct fs_root *r, const char *rel, struct err *e)
{
    const char *name;
    autofd int dir = fs_parent(r, rel, &name, e);
    if (dir < 0)
        return dir;
    int rc = unlink_at(dir, name);
    return rc < 0 ? path_error(e, -rc, rel) : 0;
}

/* Empties and removes the folder `name` in `dir`. Returns 0 or -errno. */
static int remove_dir(int dir, const char *name, int depth)
{
    if (depth > FS_DEPTH_MAX)
        return -ENAMETOOLONG;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return -ENOMEM;
    }
    int rc = 0;
    struct dirent *ent;
    while (rc == 0 && (ent = readdir(d)) != NULL) {
        if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
            continue;
        rc = unlink_at(fd, ent->d_name);
        if (rc == -ENOTEMPTY || rc == -EEXIST)
            rc = remove_dir(fd, ent->d_name, depth + 1);
        else if (rc == -ENOENT) /* someone else removed it */
            rc = 0;
    }
    closedir(d);
    if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
        rc = -errno;
    return rc;
}

int fs_remove_tree(const struct fs_root *r, const char *rel, struct err *e)
{
    const char *name;
    autofd int dir = fs_parent(r, rel, &name, e);
    if (dir < 0)
        return dir;
    int rc = unlink_at(dir, name);
    if (rc == -ENOTEMPTY || rc == -EEXIST)
        rc = remove_dir(dir, name, 0);
    return rc < 0 ? path_error(e, -rc, rel) : 0;
}

int fs_read_fd(int fd, size_t max, struct buf *out, struct err *e)
{
    struct buf b = BUF_INIT(max);
    struct stat st;
    size_t chunk = 65536;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        chunk = (size_t)st.st_size + 1; /* one byte more, to see the end at once */
    for (;;) {
        size_t left = max - b.len;
        size_t want = chunk < left + 1 ? chunk : left + 1;
        b.max = max + 1;
        char *p;
        int rc = buf_reserve(&b, want, &p);
        if (rc < 0) {
            buf_free(&b);
            return err_set(e, rc, "reading: %s", err_text(rc));
        }
        ssize_t n = read(fd, p, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int errnum = errno;
            buf_free(&b);
            return err_errno(e, errnum, "reading");
        }
        b.len += (size_t)n;
        b.data[b.len] = '\0';
        if (b.len > max) {
            buf_free(&b);
            return err_set(e, ERR_TOO_LARGE, "larger than %zu bytes", max);
        }
        if (n == 0)
            break;
        chunk = 65536;
    }
    b.max = max;
    buf_free(out);
    *out = b;
    return 0;
}

static int read_regular(int fd, const char *what, size_t max, struct buf *out, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, errno, "%s", what);
    if (!S_ISREG(st.st_mode))
        return path_error(e, S_ISDIR(st.st_mode) ? EISDIR : ENXIO, what);
    int rc = fs_read_fd(fd, max, out, e);
    if (rc < 0)
        IGNORE_RESULT(err_wrap(e, "%s", what)); /* rc is the code */
    return rc;
}

int fs_read(const struct fs_root *r, const char *rel, size_t max, struct buf *out, struct err *e)
{
    autofd int fd = fs_open(r, rel, O_RDONLY | O_NONBLOCK, 0, e);
    return fd < 0 ? fd : read_regular(fd, rel, max, out, e);
}

int fs_read_path(const char *path, size_t max, struct buf *out, struct err *e)
{
    autofd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? err_errno(e, errno, "%s", path) : read_regular(fd, path, max, out, e);
}

int fs_write_all(int fd, const void *data, size_t len, struct err *e)
{
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EFBIG)
            return err_set(e, ERR_FULL, "writing: file size limit reached");
        if (n < 0)
            return err_errno(e, errno, "writing");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int fs_mkdirs(const char *path, mode_t mode, struct err *e)
{
    autofree char *p = xstrdup(path);
    for (char *s = p + (*p == '/');; s++) {
        if (*s && *s != '/')
            continue;
        char end = *s;
        *s = '\0';
        if (*p && mkdir(p, mode) < 0 && errno != EEXIST)
            return err_errno(e, errno, "%s", p);
        *s = end;
        if (!end)
            break;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return err_errno(e, errno, "%s", path);
    return S_ISDIR(st.st_mode) ? 0 : err_set(e, ERR_EXISTS, "%s: not a folder", path);
}
