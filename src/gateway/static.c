/* Files that ship with the product. */
#include "gateway/static.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/mime.h"

#define HASH_DIGITS 16

int static_is_hashed(const char *name)
{
    const char *slash = strrchr(name, '/');
    for (const char *p = slash ? slash + 1 : name; *p;) {
        size_t n = strcspn(p, ".");
        if (n >= HASH_DIGITS && strspn(p, "0123456789abcdef") >= n)
            return 1;
        p += n + (p[n] == '.');
    }
    return 0;
}

/* Does If-None-Match name this tag? Weak forms count: bytes are not compared. */
static int etag_known(const struct http_req *r, const char *etag)
{
    const char *seen = http_header(r, "if-none-match");
    return seen && (!strcmp(seen, "*") || strstr(seen, etag));
}

/* Within the root nothing leads out, but ".." could still lead from one of its folders to others.
 */
static int climbs(const char *rel)
{
    for (const char *p = rel; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return 1;
        p += n + (p[n] == '/');
    }
    return 0;
}

int static_try(struct http_req *r, const struct fs_root *root, const char *rel)
{
    struct stat st;
    if (!*rel || climbs(rel))
        return 0;
    autofd int fd = fs_open(root, rel, O_RDONLY | O_NONBLOCK, 0, NULL);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    char etag[80];
    snprintf(etag, sizeof etag, "\"%" PRIx64 "-%" PRIx64 "\"",
             (uint64_t)st.st_mtim.tv_sec * 1000000 + (uint64_t)st.st_mtim.tv_nsec / 1000,
             (uint64_t)st.st_size);
    http_set_header(r, "ETag", "%s", etag);
    http_set_header(r, "Cache-Control", "%s",
                    static_is_hashed(rel) ? "private, max-age=31536000, immutable" : "no-cache");
    if (etag_known(r, etag))
        http_reply(r, 304, NULL, NULL, 0);
    else
        http_reply_file(r, 200, mime_content_type(rel), STEAL_FD(fd), 0, (uint64_t)st.st_size);
    return 1;
}

void static_serve(struct http_req *r, const struct fs_root *root, const char *rel)
{
    if (!static_try(r, root, rel))
        http_reply_status(r, 404, "Not Found");
}
