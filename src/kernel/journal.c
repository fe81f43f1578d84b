#include "kernel/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"
#include "kernel/fold.h"
#include "kernel/segment.h"

#define TEMP_NAME "folding.tmp"

struct piece {
    uint64_t first, bytes;
};

struct journal {
    char *dir;
    int dirfd;
    int fd; /* last segment, -1 before its first record */
    struct piece *pieces;
    size_t n, cap;
    uint64_t total, limit;
    uint64_t head, acked;
    int foldable; /* the last segment holds something that folding may shorten */
    struct buf scratch;
};

static void add_piece(struct journal *j, uint64_t first, uint64_t bytes)
{
    if (j->n == j->cap)
        j->pieces = xrealloc(j->pieces, (j->cap = j->cap ? 2 * j->cap : 16) * sizeof *j->pieces);
    j->pieces[j->n++] = (struct piece){first, bytes};
    j->total += bytes;
}

static int open_last(struct journal *j, uint64_t first, int flags, struct err *e)
{
    char name[SEGMENT_NAME_MAX];
    int fd =
        openat(j->dirfd, segment_name(first, name), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0600);
    if (fd < 0)
        return err_errno(e, errno, "journal segment %s/%s", j->dir, name);
    if (j->fd >= 0)
        close(j->fd);
    j->fd = fd;
    return 0;
}

/* Finds the end of the last whole record of the last segment and cuts what follows it. */
static int recover_last(struct journal *j, struct err *e)
{
    struct piece *last = &j->pieces[j->n - 1];
    struct segment s;
    struct segment_record r;
    segment_init(&s);
    int rc = segment_open(&s, j->dirfd, last->first, e);
    if (rc < 0)
        return rc;
    uint64_t end = 0;
    j->head = last->first - 1;
    while ((rc = segment_next(&s, 0, &r, NULL)) == 1) {
        end = r.offset + r.len;
        j->head = r.seq;
    }
    segment_close(&s);
    if (rc < 0 && rc != ERR_IO)
        return err_set(e, rc, "reading the end of the journal %s", j->dir);
    if ((rc = open_last(j, last->first, 0, e)) < 0)
        return rc;
    if (end < last->bytes && ftruncate(j->fd, (off_t)end) < 0)
        return err_errno(e, errno, "cutting the torn end of the journal %s", j->dir);
    j->total -= last->bytes - end;
    last->bytes = end;
    j->foldable = 1; /* not known: look when it is sealed */
    return 0;
}

static int load(struct journal *j, struct err *e)
{
    autofree uint64_t *firsts = NULL;
    size_t n = 0;
    int rc = segment_list(j->dirfd, &firsts, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char name[SEGMENT_NAME_MAX];
        struct stat st;
        if (fstatat(j->dirfd, segment_name(firsts[i], name), &st, 0) < 0)
            return err_errno(e, errno, "journal segment %s/%s", j->dir, name);
        add_piece(j, firsts[i], (uint64_t)st.st_size);
    }
    if (rc < 0 || n == 0)
        return rc;
    return recover_last(j, e);
}

int journal_open(const char *dir, uint64_t limit, struct journal **ret, struct err *e)
{
    int rc = fs_mkdirs(dir, 0700, e);
    if (rc < 0)
        return rc;
    struct journal *j = xcalloc(1, sizeof *j);
    j->dir = xstrdup(dir);
    j->fd = -1;
    j->limit = limit;
    buf_init(&j->scratch, JMSG_MAX_BYTES + ((size_t)1 << 20));
    j->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->dirfd < 0)
        rc = err_errno(e, errno, "journal %s", dir);
    else
        unlinkat(j->dirfd, TEMP_NAME, 0); /* of a folding that was cut short; usually absent */
    if (rc == 0)
        rc = load(j, e);
    if (rc < 0) {
        journal_close(j);
        return rc;
    }
    *ret = j;
    return 0;
}

struct journal *journal_close(struct journal *j)
{
    if (j) {
        if (j->fd >= 0)
            close(j->fd);
        if (j->dirfd >= 0)
            close(j->dirfd);
        buf_free(&j->scratch);
        free(j->pieces);
        free(j->dir);
        free(j);
    }
    return NULL;
}

/* Writes the folded segment beside the old one and renames it over. Readers that have the old file
 * open go on with it. */
static int replace_segment(struct journal *j, struct piece *p, const struct buf *text)
{
    char name[SEGMENT_NAME_MAX];
    int fd = openat(j->dirfd, TEMP_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return ERR_IO;
    int rc = fs_write_all(fd, text->data, text->len, NULL);
    close(fd);
    if (rc == 0 && renameat(j->dirfd, TEMP_NAME, j->dirfd, segment_name(p->first, name)) < 0)
        rc = ERR_IO;
    if (rc < 0) {
        unlinkat(j->dirfd, TEMP_NAME, 0);
        return rc;
    }
    j->total -= p->bytes - text->len;
    p->bytes = text->len;
    return 0;
}

static void seal(struct journal *j)
{
    struct piece *p = &j->pieces[j->n - 1];
    autobuf struct buf text = BUF_INIT(BUF_DEFAULT_MAX);
    if (j->foldable && fold_segment(j->dirfd, p->first, &text) == 1)
        /* A segment that could not be replaced is as good, only larger. */
        IGNORE_RESULT(replace_segment(j, p, &text));
    close(j->fd);
    j->fd = -1;
    j->foldable = 0;
}

/* Removes the oldest segments whose messages are all acknowledged while over the limit; the last
 * one stays. */
static void enforce_limit(struct journal *j)
{
    size_t gone = 0;
    while (j->total > j->limit && gone + 1 < j->n && j->pieces[gone + 1].first <= j->acked + 1) {
        char name[SEGMENT_NAME_MAX];
        if (unlinkat(j->dirfd, segment_name(j->pieces[gone].first, name), 0) < 0 && errno != ENOENT)
            break;
        j->total -= j->pieces[gone++].bytes;
    }
    if (gone) {
        memmove(j->pieces, j->pieces + gone, (j->n - gone) * sizeof *j->pieces);
        j->n -= gone;
    }
}

/* writev() takes IOV_MAX pieces; a message with more is joined first. */
static ssize_t write_once(struct journal *j, const struct jmsg *m)
{
    struct iovec iov[64];
    size_t n = 0;
    if (m->nparts < COUNTOF(iov)) {
        iov[n++] = (struct iovec){j->scratch.data, j->scratch.len};
        for (size_t i = 0; i < m->nparts; i++)
            iov[n++] = (struct iovec){(void *)(uintptr_t)m->parts[i].data, m->parts[i].len};
    } else {
        for (size_t i = 0; i < m->nparts; i++) {
            if (buf_append(&j->scratch, m->parts[i].data, m->parts[i].len) < 0) {
                errno = EFBIG;
                return -1;
            }
        }
        iov[n++] = (struct iovec){j->scratch.data, j->scratch.len};
    }
    ssize_t done;
    do
        done = writev(j->fd, iov, (int)n);
    while (done < 0 && errno == EINTR);
    return done;
}

static int write_record(struct journal *j, const struct jmsg *m, size_t len, struct err *e)
{
    struct piece *p = &j->pieces[j->n - 1];
    ssize_t done = write_once(j, m);
    if (done == (ssize_t)len)
        return 0;
    int why = done < 0 ? errno : ENOSPC; /* a short write to a file: the disk is full */
    if (done > 0 && ftruncate(j->fd, (off_t)p->bytes) < 0)
        return err_errno(e, errno, "taking back a record of the journal %s", j->dir);
    return err_errno(e, why, "writing the journal %s", j->dir);
}

static int begin_segment(struct journal *j, struct err *e)
{
    if (j->fd >= 0 && j->pieces[j->n - 1].bytes >= JOURNAL_SEGMENT)
        seal(j);
    if (j->fd >= 0)
        return 0;
    int rc = open_last(j, j->head + 1, O_CREAT | O_EXCL, e);
    if (rc == 0) {
        add_piece(j, j->head + 1, 0);
        enforce_limit(j);
    }
    return rc;
}

int journal_append(struct journal *j, struct jmsg *m, struct err *e)
{
    int rc = begin_segment(j, e);
    if (rc < 0)
        return rc;
    buf_clear(&j->scratch);
    rc = segment_record_head(m, j->head + 1, sys.wall_us(), &j->scratch);
    if (rc < 0)
        return err_set(e, rc, "a message of %zu bytes for the journal", jmsg_bytes(m));
    size_t len = j->scratch.len + jmsg_bytes(m);
    rc = write_record(j, m, len, e);
    if (j->scratch.cap > (1 << 20))
        buf_free(&j->scratch);
    if (rc < 0)
        return rc;
    j->pieces[j->n - 1].bytes += len;
    j->total += len;
    m->seq = ++j->head;
    j->foldable |= fold_candidate(m);
    return 0;
}

uint64_t journal_head(const struct journal *j)
{
    return j->head;
}

uint64_t journal_bytes(const struct journal *j)
{
    return j->total;
}

void journal_ack(struct journal *j, uint64_t seq)
{
    if (seq > j->head)
        seq = j->head;
    if (seq > j->acked) {
        j->acked = seq;
        enforce_limit(j);
    }
}

uint64_t journal_acked(const struct journal *j)
{
    return j->acked;
}
