/* Intrusive doubly linked list. A list head and a member are the same type; an element on no list
 * is one that was list_init()ed or removed. No allocation, no locking. */
#ifndef REITOS_BASE_LIST_H
#define REITOS_BASE_LIST_H

#include <stddef.h>

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline int list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_append(struct list *head, struct list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Safe against removal of `it` inside the loop. */
#define list_foreach(it, head)                                                \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)

#endif
