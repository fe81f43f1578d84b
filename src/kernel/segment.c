#include "kernel/segment.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crypto.h"

#define HEAD_BYTES 28 /* before the table of lengths */
#define CRC_FROM 8    /* length and checksum are not covered */
#define READ_BYTES ((size_t)128 << 10)
#define KEEP_BYTES ((size_t)256 << 10) /* a larger buffer is given back after its record */
#define RECORD_MAX (HEAD_BYTES + 4 * JMSG_MAX_PARTS + JMSG_MAX_BYTES)

const char *segment_name(uint64_t first, char out[SEGMENT_NAME_MAX])
{
    snprintf(out, SEGMENT_NAME_MAX, "%020" PRIu64 ".log", first);
    return out;
}

/* 0 for any other name: positions start at 1. */
static uint64_t parse_name(const char *name)
{
    uint64_t v = 0;
    if (strlen(name) != 24 || strcmp(name + 20, ".log") != 0)
        return 0;
    for (int i = 0; i < 20; i++) {
        if (name[i] < '0' || name[i] > '9')
            return 0;
        v = v * 10 + (uint64_t)(name[i] - '0');
    }
    return v;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int segment_list(int dirfd, uint64_t **ret, size_t *ret_n, struct err *e)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return err_errno(e, why, "listing the journal");
    }
    uint64_t *list = NULL;
    size_t n = 0, cap = 0;
    const struct dirent *ent;
    while ((ent = readdir(d))) {
        uint64_t first = parse_name(ent->d_name);
        if (!first)
            continue;
        if (n == cap)
            list = xrealloc(list, (cap = cap ? 2 * cap : 16) * sizeof *list);
        list[n++] = first;
    }
    closedir(d);
    if (n)
        qsort(list, n, sizeof *list, compare);
    *ret = list;
    *ret_n = n;
    return 0;
}

static void put32(char *p, uint64_t v)
{
    uint32_t w = htole32((uint32_t)v);
    memcpy(p, &w, sizeof w);
}

static void put64(char *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof v);
}

static uint32_t get32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static uint64_t get64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

int segment_record_head(const struct jmsg *m, uint64_t seq, int64_t wall_us, struct buf *out)
{
    size_t head = HEAD_BYTES + 4 * m->nparts;
    char *p;
    int rc = buf_reserve(out, head, &p);
    if (rc < 0)
        return rc;
    put32(p, head + jmsg_bytes(m));
    put64(p + 8, seq);
    put64(p + 16, (uint64_t)wall_us);
    p[24] = (char)m->channel;
    p[25] = 0;
    p[26] = (char)(m->nparts & 0xff);
    p[27] = (char)(m->nparts >> 8);
    for (size_t i = 0; i < m->nparts; i++)
        put32(p + HEAD_BYTES + 4 * i, m->parts[i].len);
    uint32_t crc = crc32c(0, p + CRC_FROM, head - CRC_FROM);
    for (size_t i = 0; i < m->nparts; i++)
        crc = crc32c(crc, m->parts[i].data, m->parts[i].len);
    put32(p + 4, crc);
    out->len += head;
    return 0;
}

void segment_init(struct segment *s)
{
    *s = (struct segment){.fd = -1};
}

void segment_close(struct segment *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->buf);
    segment_init(s);
}

int segment_open(struct segment *s, int dirfd, uint64_t first, struct err *e)
{
    char name[SEGMENT_NAME_MAX];
    int fd = openat(dirfd, segment_name(first, name), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, errno, "journal segment %s", name);
    segment_close(s);
    s->fd = fd;
    s->first = first;
    return 0;
}

/* What was read beyond the last whole record may be a record being written, or one that the writer
 * takes back: it is read anew next time. */
static void forget(struct segment *s)
{
    s->start = s->end = 0;
    if (s->cap > KEEP_BYTES) {
        free(s->buf);
        s->buf = NULL;
        s->cap = 0;
    }
}

void segment_trim(struct segment *s)
{
    if (s->cap > KEEP_BYTES)
        forget(s);
}

/* Makes at least `need` bytes available. 1, or 0 when the file has fewer. */
static int fill(struct segment *s, size_t need, struct err *e)
{
    if (s->end - s->start >= need)
        return 1;
    if (s->start) {
        memmove(s->buf, s->buf + s->start, s->end - s->start);
        s->end -= s->start;
        s->start = 0;
    }
    size_t want = need < READ_BYTES ? READ_BYTES : need;
    /* No memory for a length that the file does not have (yet, or because it is damaged). */
    struct stat st;
    if (want > READ_BYTES && fstat(s->fd, &st) == 0 && (uint64_t)st.st_size < s->offset + need)
        return 0;
    if (s->cap < want) {
        char *p = realloc(s->buf, want);
        if (!p)
            return err_set(e, ERR_MEMORY, "no memory for a record of %zu bytes", need);
        s->buf = p;
        s->cap = want;
    }
    while (s->end < need) {
        ssize_t n = pread(s->fd, s->buf + s->end, s->cap - s->end, (off_t)(s->offset + s->end));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, errno, "reading the journal");
        if (n == 0)
            return 0;
        s->end += (size_t)n;
    }
    return 1;
}

static void advance(struct segment *s, size_t n)
{
    s->start += n;
    s->offset += n;
    if (s->start == s->end)
        forget(s);
}

static int damaged(const struct segment *s, uint64_t offset, const char *what, struct err *e)
{
    char name[SEGMENT_NAME_MAX];
    return err_set(e, ERR_IO, "journal segment %s is damaged at offset %" PRIu64 ": %s",
                   segment_name(s->first, name), offset, what);
}

static int check_record(const char *p, size_t len)
{
    size_t n = (size_t)(unsigned char)p[26] | (size_t)(unsigned char)p[27] << 8;
    size_t sum = HEAD_BYTES + 4 * n;
    if (n < JPART_BUFFERS || n > JMSG_MAX_PARTS || sum > len || (unsigned char)p[24] >= JCHAN_COUNT)
        return -1;
    for (size_t i = 0; i < n && sum <= len; i++)
        sum += get32(p + HEAD_BYTES + 4 * i);
    return sum == len && crc32c(0, p + CRC_FROM, len - CRC_FROM) == get32(p + 4) ? 0 : -1;
}

static void skip_to_end(struct segment *s)
{
    off_t end = lseek(s->fd, 0, SEEK_END);
    if (end > 0 && (uint64_t)end > s->offset)
        s->offset = (uint64_t)end;
    forget(s);
}

/* 1 and the record at the position, 0 at the end, negative: see segment_next(). */
static int peek(struct segment *s, uint64_t from, struct segment_record *r, struct err *e)
{
    int rc = fill(s, HEAD_BYTES, e);
    if (rc <= 0)
        return rc;
    size_t len = get32(s->buf + s->start);
    if (len < HEAD_BYTES + 4 * JPART_BUFFERS || len > RECORD_MAX) {
        uint64_t at = s->offset;
        skip_to_end(s);
        return damaged(s, at, "impossible length", e);
    }
    if ((rc = fill(s, len, e)) <= 0)
        return rc;
    const char *p = s->buf + s->start;
    *r = (struct segment_record){.seq = get64(p + 8),
                                 .offset = s->offset,
                                 .wall_us = (int64_t)get64(p + 16),
                                 .data = p,
                                 .len = len};
    if (r->seq >= from && check_record(p, len) < 0) {
        uint64_t at = s->offset;
        advance(s, len);
        return damaged(s, at, "wrong checksum", e);
    }
    return 1;
}

int segment_next(struct segment *s, uint64_t from, struct segment_record *ret, struct err *e)
{
    struct segment_record r;
    int rc;
    while ((rc = peek(s, from, &r, e)) == 1 && r.seq < from)
        advance(s, r.len);
    if (rc == 0)
        forget(s);
    if (rc == 1) {
        *ret = r;
        s->start += r.len; /* the bytes stay where they are until the next call */
        s->offset += r.len;
    }
    return rc;
}

int segment_message(const struct segment_record *r, struct jmsg **ret, struct err *e)
{
    const char *p = r->data;
    size_t n = (size_t)(unsigned char)p[26] | (size_t)(unsigned char)p[27] << 8;
    autofree struct slice *parts = xcalloc(n, sizeof *parts);
    size_t at = HEAD_BYTES + 4 * n;
    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct slice){p + at, get32(p + HEAD_BYTES + 4 * i)};
        at += parts[i].len;
    }
    int rc = jmsg_new((enum jchan)p[24], parts, n, ret, e);
    if (rc == 0)
        (*ret)->seq = r->seq;
    return rc;
}
