#include "gateway/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/alloc.h"

struct slot {
    char session[RESUME_ID_MAX];
    uint64_t seq;
    uint64_t used; /* counter of the last update; 0: free */
};

#define RESUME_MAGIC 0x31656d7573657231u /* a file of another form starts anew */

struct table {
    uint64_t magic;
    uint64_t clock;
    struct slot slots[RESUME_SLOTS];
};

struct resume {
    struct table *t;
};

int resume_open(const char *path, struct resume **ret, struct err *e)
{
    autofd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(e, errno, "%s", path);
    /* Allocate for real: a full disk must show here, not as SIGBUS at the first store. */
    int rc = st.st_size == sizeof(struct table) ? 0 : posix_fallocate(fd, 0, sizeof(struct table));
    if (rc)
        return err_errno(e, rc, "%s", path);
    void *p = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_errno(e, errno, "%s", path);
    struct resume *r = xmalloc(sizeof *r);
    r->t = p;
    if (r->t->magic != RESUME_MAGIC) {
        memset(r->t, 0, sizeof *r->t);
        r->t->magic = RESUME_MAGIC;
    }
    for (size_t i = 0; i < RESUME_SLOTS; i++)
        r->t->slots[i].session[RESUME_ID_MAX - 1] = '\0';
    *ret = r;
    return 0;
}

struct resume *resume_close(struct resume *r)
{
    if (r)
        munmap(r->t, sizeof *r->t);
    free(r);
    return NULL;
}

static struct slot *find(const struct resume *r, const char *session)
{
    for (size_t i = 0; i < RESUME_SLOTS; i++) {
        struct slot *s = &r->t->slots[i];
        if (s->used && !strcmp(s->session, session))
            return s;
    }
    return NULL;
}

int resume_get(const struct resume *r, const char *session, uint64_t *ret_seq)
{
    const struct slot *s = find(r, session);
    if (!s)
        return 0;
    *ret_seq = s->seq;
    return 1;
}

void resume_set(struct resume *r, const char *session, uint64_t seq)
{
    if (!*session || strlen(session) >= RESUME_ID_MAX)
        return;
    struct slot *s = find(r, session);
    if (!s) {
        s = &r->t->slots[0];
        for (size_t i = 1; i < RESUME_SLOTS; i++) {
            if (r->t->slots[i].used < s->used)
                s = &r->t->slots[i];
        }
        memset(s, 0, sizeof *s);
        memcpy(s->session, session, strlen(session) + 1);
    }
    s->seq = seq;
    s->used = ++r->t->clock;
}

uint64_t resume_furthest(const struct resume *r)
{
    uint64_t max = 0;
    for (size_t i = 0; i < RESUME_SLOTS; i++) {
        if (r->t->slots[i].used && r->t->slots[i].seq > max)
            max = r->t->slots[i].seq;
    }
    return max;
}
