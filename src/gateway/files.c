/* /files: raw downloads of the served folder, with ranges and conditional requests. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/loop.h"
#include "gateway/contents_int.h"
#include "gateway/mime.h"
#include "gateway/range.h"
#include "gateway/urltext.h"

struct download {
    struct gw *gw;
    struct http_req *req;
    char *path;
    int fd;
    struct stat st;
    int rc;
    struct err err;
};

static void open_file(void *arg)
{
    struct download *d = arg;
    d->fd = fs_open(&d->gw->root, d->path, O_RDONLY | O_NONBLOCK, 0, &d->err);
    d->rc = d->fd < 0 ? d->fd : 0;
    if (d->rc == 0 && fstat(d->fd, &d->st) < 0)
        d->rc = err_errno(&d->err, errno, "%s", d->path);
    else if (d->rc == 0 && !S_ISREG(d->st.st_mode))
        d->rc = err_set(&d->err, ERR_DENIED, "%s is not a file", d->path);
}

static void http_date(time_t t, char out[64])
{
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, 64, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        snprintf(out, 64, "Thu, 01 Jan 1970 00:00:00 GMT");
}

/* If-None-Match, else If-Modified-Since. */
static int not_modified(const struct http_req *r, const char *etag, time_t mtime)
{
    const char *match = http_header(r, "if-none-match");
    if (match)
        return strcmp(match, "*") == 0 || strstr(match, etag) != NULL;
    const char *since = http_header(r, "if-modified-since");
    struct tm tm = {0};
    if (!since || !strptime(since, "%a, %d %b %Y %H:%M:%S", &tm))
        return 0;
    return mtime <= timegm(&tm);
}

static void set_headers(const struct download *d, const char *etag, const char *date)
{
    struct http_req *r = d->req;
    const char *name = cpath_name(d->path);
    size_t n = strlen(name);
    http_set_header(r, "Accept-Ranges", "bytes");
    http_set_header(r, "Etag", "%s", etag);
    http_set_header(r, "Last-Modified", "%s", date);
    http_set_header(r, "Cache-Control", "no-cache");
    /* Scripts in a served page get an origin of their own and cannot reach the API. This is in
     * addition to the policy of all answers (auth.c). */
    http_set_header(r, "Content-Security-Policy", "sandbox allow-scripts");
    const char *download = http_query(r, "download");
    if ((download && *download) || (n >= 6 && strcmp(name + n - 6, ".ipynb") == 0)) {
        autobuf struct buf escaped = BUF_INIT(1 << 16);
        url_escape(name, &escaped);
        http_set_header(r, "Content-Disposition", "attachment; filename*=utf-8''%s",
                        buf_str(&escaped));
    }
}

static void send_file(struct download *d)
{
    struct http_req *r = d->req;
    uint64_t size = (uint64_t)d->st.st_size, from = 0, len = size;
    char etag[64], date[64];
    snprintf(etag, sizeof etag, "\"%llx-%llx\"", (unsigned long long)stat_mtime_ns(&d->st),
             (unsigned long long)size);
    http_date(d->st.st_mtim.tv_sec, date);
    set_headers(d, etag, date);
    if (not_modified(r, etag, d->st.st_mtim.tv_sec)) {
        http_reply(r, 304, NULL, NULL, 0);
        return;
    }
    const char *if_range = http_header(r, "if-range");
    int stale = if_range && strcmp(if_range, etag) != 0 && strcmp(if_range, date) != 0;
    enum range range = stale ? RANGE_NONE : range_parse(http_header(r, "range"), size, &from, &len);
    if (range == RANGE_UNSATISFIABLE) {
        http_set_header(r, "Content-Range", "bytes */%llu", (unsigned long long)size);
        http_reply(r, 416, "text/plain", NULL, 0);
        return;
    }
    if (range == RANGE_OK)
        http_set_header(r, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)from,
                        (unsigned long long)(from + len - 1), (unsigned long long)size);
    http_reply_file(r, range == RANGE_OK ? 206 : 200, mime_content_type(d->path), STEAL_FD(d->fd),
                    from, len);
}

static void answer(void *arg)
{
    struct download *d = arg;
    if (d->rc < 0)
        http_reply_err(d->req, &d->err);
    else
        send_file(d);
    if (d->fd >= 0)
        close(d->fd);
    d->gw->contents->active--;
    free(d->path);
    free(d);
}

static void get_file(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct err e;
    autofree char *path = NULL;
    int rc = cpath_clean(p[0], &path, &e);
    if (rc == 0 && !gw->conf->hidden && cpath_hidden(path))
        rc = err_set(&e, ERR_NOT_FOUND, "%s: no such file or folder", path);
    if (rc < 0) {
        http_reply_err(r, &e);
        return;
    }
    struct download *d = xcalloc(1, sizeof *d);
    d->gw = gw;
    d->req = r;
    d->fd = -1;
    d->path = STEAL(path);
    gw->contents->active++;
    loop_work(gw->loop, open_file, answer, d);
}

const struct route files_routes[] = {
    {METHOD(GET), "files/*", get_file, NULL, 0},
    {0, NULL, NULL, NULL, 0},
};
