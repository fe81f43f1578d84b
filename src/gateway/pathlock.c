#include "gateway/pathlock.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"

struct waiter {
    struct list link;
    void (*held)(void *);
    void *arg;
};

struct lock {
    struct list link;
    char *path;
    struct list waiters;
};

struct pathlocks {
    struct list locks; /* held ones only: few at a time */
};

struct pathlocks *pathlocks_new(void)
{
    struct pathlocks *l = xcalloc(1, sizeof *l);
    list_init(&l->locks);
    return l;
}

static void lock_free(struct lock *k)
{
    list_foreach(it, &k->waiters) free(container_of(it, struct waiter, link));
    list_remove(&k->link);
    free(k->path);
    free(k);
}

void pathlocks_free(struct pathlocks *l)
{
    if (!l)
        return;
    list_foreach(it, &l->locks) lock_free(container_of(it, struct lock, link));
    free(l);
}

static struct lock *find(const struct pathlocks *l, const char *path)
{
    list_foreach(it, &l->locks)
    {
        struct lock *k = container_of(it, struct lock, link);
        if (strcmp(k->path, path) == 0)
            return k;
    }
    return NULL;
}

int pathlock_busy(const struct pathlocks *l, const char *path)
{
    return find(l, path) != NULL;
}

void pathlock_take(struct pathlocks *l, const char *path, void (*held)(void *), void *arg)
{
    struct lock *k = find(l, path);
    if (k) {
        struct waiter *w = xcalloc(1, sizeof *w);
        w->held = held;
        w->arg = arg;
        list_append(&k->waiters, &w->link);
        return;
    }
    k = xcalloc(1, sizeof *k);
    k->path = xstrdup(path);
    list_init(&k->waiters);
    list_append(&l->locks, &k->link);
    held(arg);
}

void pathlock_drop(struct pathlocks *l, const char *path)
{
    struct lock *k = find(l, path);
    if (!k)
        abort(); /* dropped by one who does not hold it */
    if (list_empty(&k->waiters)) {
        lock_free(k);
        return;
    }
    struct waiter *w = container_of(k->waiters.next, struct waiter, link);
    list_remove(&w->link);
    void (*held)(void *) = w->held;
    void *arg = w->arg;
    free(w);
    held(arg);
}
