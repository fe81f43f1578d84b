#include "cli/routes.h"

#include <string.h>

#include "base/alloc.h"
#include "base/list.h"

#define BUCKETS 1024

struct route {
    struct route *next; /* of its bucket */
    struct list age;
    char *msg_id;
    void *identity;
    size_t len;
    int blocks;
    struct jmsg *held; /* its reply */
};

struct routes {
    struct route *buckets[BUCKETS];
    struct list ages; /* oldest first */
    size_t count, max, nheld;
};

struct routes *routes_new(size_t max)
{
    struct routes *r = xcalloc(1, sizeof(*r));
    list_init(&r->ages);
    r->max = max;
    return r;
}

/* FNV-1a. Clients choose the ids, but only those that hold the key. */
static size_t bucket_of(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h % BUCKETS;
}

static struct route **find(const struct routes *r, const char *msg_id)
{
    struct route *const *at = &r->buckets[bucket_of(msg_id)];
    while (*at && strcmp((*at)->msg_id, msg_id) != 0)
        at = &(*at)->next;
    return (struct route **)at;
}

void routes_drop(struct routes *r, const char *msg_id)
{
    struct route **at = find(r, msg_id), *x = *at;
    if (!x)
        return;
    *at = x->next;
    list_remove(&x->age);
    r->nheld -= x->held != NULL;
    jmsg_unref(x->held);
    free(x->msg_id);
    free(x->identity);
    free(x);
    r->count--;
}

static struct route *oldest(struct routes *r)
{
    return container_of(r->ages.next, struct route, age);
}

struct routes *routes_free(struct routes *r)
{
    while (r && r->count)
        routes_drop(r, oldest(r)->msg_id);
    free(r);
    return NULL;
}

void routes_put(struct routes *r, const char *msg_id, const void *identity, size_t len, int blocks)
{
    routes_drop(r, msg_id);
    if (r->count == r->max)
        routes_drop(r, oldest(r)->msg_id);
    struct route *x = xcalloc(1, sizeof(*x));
    struct route **at = &r->buckets[bucket_of(msg_id)];
    x->msg_id = xstrdup(msg_id);
    x->identity = xmalloc(len + 1);
    memcpy(x->identity, identity, len);
    x->len = len;
    x->blocks = blocks;
    x->next = *at;
    *at = x;
    list_append(&r->ages, &x->age);
    r->count++;
}

int routes_get(const struct routes *r, const char *msg_id, struct slice *ret)
{
    const struct route *x = *find(r, msg_id);
    if (!x)
        return 0;
    *ret = (struct slice){x->identity, x->len};
    return 1;
}

static int is_blocked(const struct routes *r, const struct route *x)
{
    list_foreach(it, &r->ages)
    {
        const struct route *o = container_of(it, struct route, age);
        if (o == x)
            break;
        if (o->blocks && o->len == x->len && !memcmp(o->identity, x->identity, x->len))
            return 1;
    }
    return 0;
}

int routes_hold(struct routes *r, const char *msg_id, struct jmsg *m)
{
    struct route *x = *find(r, msg_id);
    if (!x || x->held || !is_blocked(r, x))
        return 0;
    x->held = jmsg_ref(m);
    r->nheld++;
    return 1;
}

struct jmsg *routes_release(struct routes *r)
{
    if (!r->nheld)
        return NULL;
    list_foreach(it, &r->ages)
    {
        struct route *x = container_of(it, struct route, age);
        if (!x->held || is_blocked(r, x))
            continue;
        r->nheld--;
        return STEAL(x->held);
    }
    return NULL;
}

size_t routes_count(const struct routes *r)
{
    return r->count;
}
