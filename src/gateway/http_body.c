/* Request bodies: collected in memory, large ones in an unlinked file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"
#include "gateway/http_int.h"

static int refuse(int status, const char **why, const char *text)
{
    *why = text;
    return status;
}

static int spool_open(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    autofree char *name = xasprintf("%s/reitos-body-XXXXXX", dir); /* no O_TMPFILE there */
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* From memory to a file. */
static int spool_begin(struct http_req *r, const char **why)
{
    const char *dir = r->s->conf.spool;
    if (!dir)
        dir = sys.env("TMPDIR");
    r->body_fd = spool_open(dir && *dir ? dir : "/var/tmp");
    if (r->body_fd < 0)
        return refuse(507, why, "no place for the request body");
    struct err e = {0};
    if (r->body.len && fs_write_all(r->body_fd, r->body.data, r->body.len, &e) < 0)
        return refuse(507, why, "no space for the request body");
    buf_free(&r->body);
    return 0;
}

static int store(struct http_req *r, const char *data, size_t len, const char **why)
{
    uint64_t whole = r->body_len + len;
    if (whole < r->framing.length)
        whole = r->framing.length;
    if (whole > (r->filtered ? HTTP_BODY_MAX : FORM_MAX))
        return refuse(413, why, "the request body is too large");
    if (r->body_fd < 0 && whole > HTTP_BODY_MEMORY) {
        int status = spool_begin(r, why);
        if (status)
            return status;
    }
    struct err e = {0};
    if (r->body_fd >= 0) {
        if (fs_write_all(r->body_fd, data, len, &e) < 0)
            return refuse(e.code == ERR_FULL ? 507 : 500, why, "cannot store the request body");
    } else if (buf_append(&r->body, data, len) < 0) {
        return refuse(503, why, "no memory for the request body");
    }
    r->body_len += len;
    return 0;
}

int body_feed(struct http_req *r, const char *data, size_t len, size_t *ret_used, const char **why)
{
    const char *part = data;
    size_t n = len;
    *ret_used = len; /* on failure the rest is of no use */
    if (r->framing.chunked) {
        long used = http_chunked_feed(&r->chunked, data, len, &part, &n);
        if (used < 0)
            return refuse(400, why, "malformed chunked body");
        *ret_used = (size_t)used;
        r->body_done = http_chunked_done(&r->chunked);
    } else {
        if (n > r->framing.length - r->body_len)
            n = (size_t)(r->framing.length - r->body_len);
        *ret_used = n;
        r->body_done = n == r->framing.length - r->body_len;
    }
    if (r->discard) {
        r->body_len += n;
        return 0;
    }
    return n ? store(r, part, n, why) : 0;
}

const char *http_body(const struct http_req *r, size_t *len)
{
    *len = (size_t)r->body_len;
    return r->body_fd >= 0 ? NULL : buf_str(&r->body);
}

int http_body_fd(const struct http_req *r, uint64_t *len)
{
    *len = r->body_len;
    return r->body_fd;
}

int http_body_json(struct http_req *r, json_t **ret, struct err *e)
{
    if (r->body_len == 0) {
        *ret = json_object();
        return 0;
    }
    if (r->body_fd < 0)
        return json_parse(r->body.data, r->body.len, ret, e);
    void *p = mmap(NULL, (size_t)r->body_len, PROT_READ, MAP_PRIVATE, r->body_fd, 0);
    if (p == MAP_FAILED)
        return err_errno(e, errno, "reading the request body");
    int rc = json_parse(p, (size_t)r->body_len, ret, e);
    munmap(p, (size_t)r->body_len);
    return rc;
}
