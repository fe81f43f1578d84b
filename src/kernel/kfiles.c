#include "kernel/kfiles.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sys.h"

#define LOG_MAX ((off_t)16 << 20)
#define TAIL_BYTES 4096
#define TAIL_LINES 20
#define RECORD_MAX ((size_t)16 << 20)

int kfiles_init(struct kfiles *f, const char *data, const char *id, struct err *e)
{
    autofree char *ip = xasprintf("%s/run/k/%.12s", data, id);
    if (strlen(ip) + 3 > sizeof((struct sockaddr_un *)NULL)->sun_path)
        return err_set(e, ERR_INVALID, "%s: path too long for a socket; use a shorter data folder",
                       data);
    autofree char *dir = xasprintf("%s/kernels/%s", data, id);
    int rc = fs_mkdirs(dir, 0700, e);
    if (rc < 0)
        return rc;
    memset(f, 0, sizeof *f);
    f->connection = xasprintf("%s/connection.json", dir);
    f->log = xasprintf("%s/stderr.log", dir);
    f->journal = xasprintf("%s/journal", dir);
    f->dir = STEAL(dir);
    f->ip = STEAL(ip);
    sys_random_hex(f->key, KFILES_KEY / 2);
    return 0;
}

void kfiles_free(struct kfiles *f)
{
    free(f->dir);
    free(f->connection);
    free(f->log);
    free(f->journal);
    free(f->ip);
    memset(f, 0, sizeof *f);
}

void kfiles_set_ip(struct kfiles *f, const char *ip, const char *key)
{
    free(f->ip);
    f->ip = xstrdup(ip);
    memcpy(f->key, key, strnlen(key, KFILES_KEY));
}

/* Replaces a file whole, without fsync. */
static int put(const char *path, const json_t *v, struct err *e)
{
    autofree char *text = json_text(v);
    autofree char *temp = xasprintf("%s.new", path);
    autofd int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, errno, "%s", temp);
    int rc = fs_write_all(fd, text, strlen(text), e);
    if (rc < 0)
        return err_wrap(e, "%s", temp);
    return rename(temp, path) < 0 ? err_errno(e, errno, "%s", path) : 0;
}

void kfiles_spare(const char *ip, char **ret_connection, char **ret_log)
{
    *ret_connection = xasprintf("%s.json", ip);
    *ret_log = xasprintf("%s.log", ip);
}

void kfiles_remove_sockets(const char *ip)
{
    autofree char *connection = NULL, *log = NULL;
    kfiles_spare(ip, &connection, &log);
    IGNORE_RESULT(unlink(connection)); /* most kernels were never spares */
    IGNORE_RESULT(unlink(log));
    for (int i = 1; i <= 5; i++) {
        autofree char *path = xasprintf("%s-%d", ip, i);
        IGNORE_RESULT(unlink(path)); /* often absent */
    }
}

int kfiles_write_connection(const char *path, const char *ip, const char *key, const char *name,
                            struct err *e)
{
    autojson json_t *v =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s}", "transport", "ipc", "ip",
                  ip, "shell_port", 1, "iopub_port", 2, "stdin_port", 3, "control_port", 4,
                  "hb_port", 5, "key", key, "signature_scheme", "hmac-sha256", "kernel_name", name);
    if (!v)
        return err_set(e, ERR_INVALID, "%s: not UTF-8", path);
    return put(path, v, e);
}

int kfiles_connection(const struct kfiles *f, const char *kernel_name, struct err *e)
{
    kfiles_remove_sockets(f->ip);
    return kfiles_write_connection(f->connection, f->ip, f->key, kernel_name, e);
}

int kfiles_save(const struct kfiles *f, const json_t *record, struct err *e)
{
    autofree char *path = xasprintf("%s/kernel.json", f->dir);
    return put(path, record, e);
}

int kfiles_load(const char *dir, json_t **ret, struct err *e)
{
    autofree char *path = xasprintf("%s/kernel.json", dir);
    autobuf struct buf b = BUF_INIT(RECORD_MAX);
    int rc = fs_read_path(path, RECORD_MAX, &b, e);
    return rc < 0 ? rc : json_parse(buf_str(&b), b.len, ret, e);
}

char *kfiles_log_tail(const struct kfiles *f)
{
    autofd int fd = open(f->log, O_RDONLY | O_CLOEXEC);
    char text[TAIL_BYTES + 1];
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return xstrdup("");
    off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    ssize_t n = pread(fd, text, TAIL_BYTES, from);
    if (n <= 0)
        return xstrdup("");
    while (n > 0 && text[n - 1] == '\n')
        n--;
    text[n] = '\0';
    char *p = text + n;
    for (int lines = 0; p > text; p--)
        if (p[-1] == '\n' && ++lines == TAIL_LINES)
            break;
    for (char *c = p; *c; c++) /* the text goes into JSON */
        if ((unsigned char)*c >= 0x80 || ((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t'))
            *c = '?';
    return xstrdup(p);
}

void kfiles_trim_log(const struct kfiles *f)
{
    struct stat st;
    if (stat(f->log, &st) == 0 && st.st_size > LOG_MAX)
        IGNORE_RESULT(truncate(f->log, 0)); /* tried again with the next heartbeat */
}

void kfiles_remove_tree(const char *dir)
{
    struct fs_root parent;
    autofree char *up = xstrdup(dir);
    char *name = strrchr(up, '/');
    *name++ = '\0';
    struct err e = {0};
    if (fs_root_open(up, &parent, &e) < 0) {
        log_warn("cannot remove a folder", "path", dir, "reason", e.msg, NULL);
        return;
    }
    if (fs_remove_tree(&parent, name, &e) < 0 && e.code != ERR_NOT_FOUND)
        log_warn("cannot remove a folder", "path", dir, "reason", e.msg, NULL);
    fs_root_close(&parent);
}

void kfiles_remove(const struct kfiles *f)
{
    kfiles_remove_sockets(f->ip);
    kfiles_remove_tree(f->dir);
}
