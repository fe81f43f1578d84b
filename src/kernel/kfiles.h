/* The files of one kernel: <data>/kernels/<id>/ and its sockets below <data>/run/k/.
 * Small blocking calls on a local disk, without fsync: a crash of the machine ends the kernel too.
 * Loop thread only. */
#ifndef REITOS_KERNEL_KFILES_H
#define REITOS_KERNEL_KFILES_H

#include "base/json.h"

#define KFILES_KEY 64

struct kfiles {
    char *dir;                /* <data>/kernels/<id> */
    char *connection;         /* <dir>/connection.json */
    char *log;                /* <dir>/stderr.log */
    char *journal;            /* <dir>/journal */
    char *ip;                 /* path prefix of the sockets */
    char key[KFILES_KEY + 1]; /* signs messages */
};

/* Paths and a fresh key; makes the folder (0700). ERR_INVALID when a socket path is too long. */
int kfiles_init(struct kfiles *f, const char *data, const char *id, struct err *e) WARN_UNUSED;
void kfiles_free(struct kfiles *f);
void kfiles_set_ip(struct kfiles *f, const char *ip, const char *key);
/* Writes connection.json (0600) and removes sockets that an earlier process left. */
int kfiles_connection(const struct kfiles *f, const char *kernel_name, struct err *e) WARN_UNUSED;
/* connection.json of any connection, for a kernel made ahead. */
int kfiles_write_connection(const char *path, const char *ip, const char *key, const char *name,
                            struct err *e) WARN_UNUSED;
/* Files of a spare, which it opens again if it has to begin anew: they stay as long as the kernel
 * that it becomes. Heap strings. */
void kfiles_spare(const char *ip, char **ret_connection, char **ret_log);
void kfiles_remove_sockets(const char *ip); /* and the files of a spare */
int kfiles_save(const struct kfiles *f, const json_t *record, struct err *e) WARN_UNUSED;
int kfiles_load(const char *dir, json_t **ret, struct err *e) WARN_UNUSED;
/* The last lines (at most 20, 4 KiB) of the log as text; "" when there are none. Heap. */
char *kfiles_log_tail(const struct kfiles *f);
void kfiles_trim_log(const struct kfiles *f); /* empties a log over 16 MiB */
void kfiles_remove(const struct kfiles *f);   /* folder and sockets */
void kfiles_remove_tree(const char *dir);

#endif
