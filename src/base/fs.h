/* The disk seam: files below a root that they cannot leave, and atomic replacement.
 *
 * A `struct fs_root` is an open directory. Every path below it is relative, resolved by
 * openat2(RESOLVE_BENEATH): "..", absolute paths and symbolic links that lead outside give
 * ERR_NOT_FOUND, without saying whether the target exists. A symbolic link that stays inside the
 * root is followed. "" names the root itself.
 * Blocking calls: daemon code runs those that may take long on the thread pool.
 * Any thread; fds are opened close-on-exec.
 */
#ifndef REITOS_BASE_FS_H
#define REITOS_BASE_FS_H

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct fs_root {
    int fd;
    char *path; /* absolute, resolved */
};

int fs_root_open(const char *path, struct fs_root *ret, struct err *e) WARN_UNUSED;
void fs_root_close(struct fs_root *r);

int fs_open(const struct fs_root *r, const char *rel, int flags, mode_t mode,
            struct err *e) WARN_UNUSED; /* returns the fd */
int fs_stat(const struct fs_root *r, const char *rel, struct stat *st, struct err *e) WARN_UNUSED;
/* Opens the directory that holds `rel` and gives the last component (points into rel). */
int fs_parent(const struct fs_root *r, const char *rel, const char **ret_name,
              struct err *e) WARN_UNUSED; /* returns the fd */
int fs_mkdir(const struct fs_root *r, const char *rel, mode_t mode, struct err *e) WARN_UNUSED;
/* ERR_EXISTS when the target exists, ERR_UNSUPPORTED when it is on another file system; both ends
 * stay beneath the root. */
int fs_rename(const struct fs_root *r, const char *from, const char *to, struct err *e) WARN_UNUSED;
/* A file, a link itself, or an empty folder (ERR_EXISTS when it is not empty). */
int fs_unlink(const struct fs_root *r, const char *rel, struct err *e) WARN_UNUSED;
int fs_remove_tree(const struct fs_root *r, const char *rel, struct err *e) WARN_UNUSED;
/* Regular files only (never blocks on a FIFO or device); ERR_TOO_LARGE beyond max. */
int fs_read(const struct fs_root *r, const char *rel, size_t max, struct buf *out,
            struct err *e) WARN_UNUSED;

/* Atomic replacement: a temporary file in the same directory is filled, fsynced, given the mode of
 * the file that it replaces (else 0666 & ~umask, or `mode` if not 0) and renamed over it. A
 * symbolic link is followed to the file it names, which must exist. Nothing is left behind on
 * failure. */
struct fs_writer;
int fs_writer_open(const struct fs_root *r, const char *rel, mode_t mode, struct fs_writer **ret,
                   struct err *e) WARN_UNUSED;
int fs_writer_write(struct fs_writer *w, const void *data, size_t len, struct err *e) WARN_UNUSED;
int fs_writer_fd(const struct fs_writer *w);
int fs_writer_commit(struct fs_writer *w, struct err *e) WARN_UNUSED; /* frees w, also on failure */
void fs_writer_abort(struct fs_writer *w);                            /* NULL-safe */
int fs_write(const struct fs_root *r, const char *rel, const void *data, size_t len, mode_t mode,
             struct err *e) WARN_UNUSED;

/* Plain paths, for the daemon's own folders. */
int fs_mkdirs(const char *path, mode_t mode, struct err *e) WARN_UNUSED; /* as mkdir -p */
int fs_read_path(const char *path, size_t max, struct buf *out, struct err *e) WARN_UNUSED;
int fs_write_path(const char *path, const void *data, size_t len, mode_t mode,
                  struct err *e) WARN_UNUSED; /* atomic, as fs_write */
int fs_write_all(int fd, const void *data, size_t len, struct err *e) WARN_UNUSED;
int fs_read_fd(int fd, size_t max, struct buf *out, struct err *e) WARN_UNUSED;
/* Name of the network file system that holds `path`, NULL for a local one. */
const char *fs_network_type(const char *path);

#endif
