#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "kernel/journal.h"
#include "kernel/segment.h"

struct jreader {
    int dirfd;
    struct segment seg;
    uint64_t from; /* next position wanted */
    uint64_t next; /* a later segment that was seen: the open one is complete; 0: none */
};

int jreader_open(const char *dir, uint64_t from, struct jreader **ret, struct err *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, errno, "journal %s", dir);
    struct jreader *r = xcalloc(1, sizeof *r);
    r->dirfd = fd;
    r->from = from ? from : 1;
    segment_init(&r->seg);
    *ret = r;
    return 0;
}

struct jreader *jreader_close(struct jreader *r)
{
    if (r) {
        segment_close(&r->seg);
        close(r->dirfd);
        free(r);
    }
    return NULL;
}

/* The segment to read after the open one, or where `from` lies at first; 0: none. */
static int find_next(struct jreader *r, uint64_t *ret, struct err *e)
{
    autofree uint64_t *firsts = NULL;
    size_t n = 0;
    int rc = segment_list(r->dirfd, &firsts, &n, e);
    if (rc < 0)
        return rc;
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if (firsts[i] <= r->seg.first)
            continue;
        if (!found || firsts[i] <= r->from)
            found = firsts[i];
    }
    *ret = found;
    return 0;
}

static int enter(struct jreader *r, uint64_t first, struct err *e)
{
    int rc = segment_open(&r->seg, r->dirfd, first, e);
    if (rc == ERR_NOT_FOUND)
        r->seg.first = first; /* removed since it was listed: on to the one after it */
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

/* 1: there may be more to read, 0: this is the end. A later segment is entered only after the open
 * one was read once more: its last record may have come just before the later one appeared. */
static int move_on(struct jreader *r, struct err *e)
{
    if (r->next) {
        uint64_t first = r->next;
        r->next = 0;
        int rc = enter(r, first, e);
        return rc < 0 ? rc : 1;
    }
    int rc = find_next(r, &r->next, e);
    if (rc < 0)
        return rc;
    return r->next ? 1 : 0;
}

int jreader_next(struct jreader *r, struct jmsg **ret, int64_t *wall_us, struct err *e)
{
    struct segment_record rec;
    for (;;) {
        int rc = r->seg.fd >= 0 ? segment_next(&r->seg, r->from, &rec, e) : 0;
        if (rc < 0)
            return rc;
        if (rc == 1)
            break;
        if ((rc = move_on(r, e)) <= 0)
            return rc;
    }
    int rc = segment_message(&rec, ret, e);
    segment_trim(&r->seg); /* the message is a copy, and its reader may pause here for long */
    r->from = rec.seq + 1;
    if (rc < 0)
        return rc;
    if (wall_us)
        *wall_us = rec.wall_us;
    return 1;
}
