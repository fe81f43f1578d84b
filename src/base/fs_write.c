/* Atomic replacement of files, and what kind of file system a path is on. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"

struct fs_writer {
    int dir, fd;
    char *name;    /* what is replaced, in dir */
    char temp[48]; /* in dir */
    int exists;    /* st is that of the file replaced */
    struct stat st;
};

static void writer_free(struct fs_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->dir >= 0)
        close(w->dir);
    free(w->name);
    free(w);
}

void fs_writer_abort(struct fs_writer *w)
{
    if (!w)
        return;
    if (w->temp[0])
        unlinkat(w->dir, w->temp, 0);
    writer_free(w);
}

/* Where a link leads: the folder that holds the file `fd` (O_PATH), and its name there. */
static int locate(const struct fs_root *r, int fd, const char *rel, struct fs_writer *w,
                  struct err *e)
{
    char link[64], target[PATH_MAX], root[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    snprintf(link, sizeof link, "/proc/self/fd/%d", r->fd);
    ssize_t m = readlink(link, root, sizeof root - 1);
    if (n < 0 || m < 0)
        return err_errno(e, errno, "%s: finding the target of a link", rel);
    target[n] = '\0';
    root[m] = '\0';
    if (m == 1)
        m = 0; /* the root is "/" */
    if (strncmp(target, root, (size_t)m) != 0 || target[m] != '/')
        return err_set(e, ERR_NOT_FOUND, "%s: no such file or folder", rel);
    const char *name;
    w->dir = fs_parent(r, target + m + 1, &name, e);
    if (w->dir < 0)
        return w->dir;
    w->name = xstrdup(name);
    return 0;
}

/* Fills dir, name and, when the file exists, st. */
static int find_target(const struct fs_root *r, const char *rel, struct fs_writer *w, struct err *e)
{
    const char *name;
    w->dir = fs_parent(r, rel, &name, e);
    if (w->dir < 0)
        return w->dir;
    w->name = xstrdup(name);
    if (fstatat(w->dir, name, &w->st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_errno(e, errno, "%s", rel);
    w->exists = 1;
    if (!S_ISLNK(w->st.st_mode))
        return 0;
    autofd int fd = fs_open(r, rel, O_PATH, 0, e);
    if (fd < 0)
        return fd;
    if (fstat(fd, &w->st) < 0)
        return err_errno(e, errno, "%s", rel);
    close(w->dir);
    w->dir = -1;
    free(STEAL(w->name));
    return locate(r, fd, rel, w, e);
}

static int check_target(const struct fs_writer *w, const char *what, struct err *e)
{
    if (!w->exists)
        return 0;
    if (S_ISDIR(w->st.st_mode))
        return err_set(e, ERR_INVALID, "%s: is a folder", what);
    if (!S_ISREG(w->st.st_mode))
        return err_set(e, ERR_INVALID, "%s: not a regular file", what);
    /* Renaming needs only the folder's permission; a write-protected file stays protected. */
    if (faccessat(w->dir, w->name, W_OK, AT_EACCESS) < 0)
        return err_errno(e, errno, "%s", what);
    return 0;
}

static int open_temp(struct fs_writer *w, mode_t mode, const char *what, struct err *e)
{
    char hex[25];
    sys_random_hex(hex, 12);
    snprintf(w->temp, sizeof w->temp, ".reitos-%s.tmp", hex);
    mode_t perm = mode ? mode : w->exists ? w->st.st_mode & 07777 : 0666;
    w->fd = openat(w->dir, w->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, perm);
    if (w->fd < 0) {
        w->temp[0] = '\0';
        return err_errno(e, errno, "%s", what);
    }
    if (w->exists && (w->st.st_uid != geteuid() || w->st.st_gid != getegid()))
        IGNORE_RESULT(fchown(w->fd, w->st.st_uid, w->st.st_gid)); /* only root may; else ours */
    if ((mode || w->exists) && fchmod(w->fd, perm) < 0)
        return err_errno(e, errno, "%s", what);
    return 0;
}

static int writer_start(struct fs_writer *w, mode_t mode, const char *what, struct fs_writer **ret,
                        struct err *e)
{
    int rc = check_target(w, what, e);
    if (rc == 0)
        rc = open_temp(w, mode, what, e);
    if (rc < 0) {
        fs_writer_abort(w);
        return rc;
    }
    *ret = w;
    return 0;
}

int fs_writer_open(const struct fs_root *r, const char *rel, mode_t mode, struct fs_writer **ret,
                   struct err *e)
{
    struct fs_writer *w = xcalloc(1, sizeof *w);
    w->fd = w->dir = -1;
    int rc = find_target(r, rel, w, e);
    if (rc < 0) {
        fs_writer_abort(w);
        return rc;
    }
    return writer_start(w, mode, rel, ret, e);
}

int fs_writer_write(struct fs_writer *w, const void *data, size_t len, struct err *e)
{
    return fs_write_all(w->fd, data, len, e);
}

int fs_writer_fd(const struct fs_writer *w)
{
    return w->fd;
}

int fs_writer_commit(struct fs_writer *w, struct err *e)
{
    if (fsync(w->fd) < 0 || renameat(w->dir, w->temp, w->dir, w->name) < 0) {
        int rc = err_errno(e, errno, "saving %s", w->name);
        fs_writer_abort(w);
        return rc;
    }
    /* The rename itself reaches the disk with the folder; not every file system can sync one. */
    autofd int dir = openat(w->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0)
        IGNORE_RESULT(fsync(dir));
    writer_free(w);
    return 0;
}

static int write_and_commit(struct fs_writer *w, const char *what, const void *data, size_t len,
                            struct err *e)
{
    int rc = fs_writer_write(w, data, len, e);
    if (rc < 0) {
        fs_writer_abort(w);
        IGNORE_RESULT(err_wrap(e, "%s", what)); /* rc is the code */
        return rc;
    }
    return fs_writer_commit(w, e);
}

int fs_write(const struct fs_root *r, const char *rel, const void *data, size_t len, mode_t mode,
             struct err *e)
{
    struct fs_writer *w;
    int rc = fs_writer_open(r, rel, mode, &w, e);
    return rc < 0 ? rc : write_and_commit(w, rel, data, len, e);
}

int fs_write_path(const char *path, const void *data, size_t len, mode_t mode, struct err *e)
{
    autofree char *real = realpath(path, NULL); /* follows a link, as fs_write does */
    const char *p = real ? real : path;
    const char *slash = strrchr(p, '/');
    autofree char *dir = slash ? xstrndup(p, (size_t)(slash - p) + 1) : xstrdup(".");
    struct fs_writer *w = xcalloc(1, sizeof *w);
    w->fd = -1;
    w->name = xstrdup(slash ? slash + 1 : p);
    w->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->dir < 0) {
        int rc = err_errno(e, errno, "%s", path);
        writer_free(w);
        return rc;
    }
    w->exists = fstatat(w->dir, w->name, &w->st, 0) == 0;
    int rc = writer_start(w, mode, path, &w, e);
    return rc < 0 ? rc : write_and_commit(w, path, data, len, e);
}

/* FUSE says nothing of what is behind it; the mount table names the program. */
static const char *fuse_type(const char *path)
{
    static const char *const remote[] = {"sshfs",   "glusterfs", "s3fs", "rclone",
                                         "gcsfuse", "juicefs",   "davfs"};
    struct stat st;
    if (stat(path, &st) < 0)
        return NULL;
    autofree char *dev = xasprintf(" %u:%u ", major(st.st_dev), minor(st.st_dev));
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return NULL;
    const char *found = NULL;
    char *line = NULL;
    size_t cap = 0;
    while (!found && getline(&line, &cap, f) > 0) {
        const char *type = strstr(line, " - ");
        if (!type || !strstr(line, dev))
            continue;
        for (size_t i = 0; i < COUNTOF(remote); i++)
            if (strstr(type, remote[i]))
                found = remote[i];
    }
    free(line);
    fclose(f);
    return found;
}

const char *fs_network_type(const char *path)
{
    static const struct {
        uint32_t magic;
        const char *name;
    } types[] = {
        {0x6969, "NFS"},       {0xff534d42, "CIFS"},     {0xfe534d42, "SMB"}, {0x517b, "SMB"},
        {0x00c36400, "Ceph"},  {0x0bd00bd0, "Lustre"},   {0x5346414f, "AFS"}, {0x6b414653, "AFS"},
        {0x47504653, "GPFS"},  {0x19830326, "BeeGFS"},   {0x01021997, "9p"},  {0x73757245, "Coda"},
        {0xaad7aaea, "PanFS"}, {0x20030528, "OrangeFS"},
    };
    struct statfs fs;
    if (statfs(path, &fs) < 0)
        return NULL;
    uint32_t magic = (uint32_t)fs.f_type;
    for (size_t i = 0; i < COUNTOF(types); i++)
        if (types[i].magic == magic)
            return types[i].name;
    return magic == 0x65735546 ? fuse_type(path) : NULL;
}
