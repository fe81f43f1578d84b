/* One contents request: taken apart on the loop, done on the thread pool under the locks of its
 * paths, answered on the loop. */
#ifndef REITOS_GATEWAY_CONTENTS_JOB_H
#define REITOS_GATEWAY_CONTENTS_JOB_H

#include "base/list.h"
#include "gateway/contents.h"

struct contents_job {
    struct gw *gw;
    struct http_req *req;
    const struct cenv *env;
    int (*work)(struct contents_job *j, struct err *e);
    /* input; all strings owned */
    char *path, *from, *id;
    char *type, *ext;
    struct cget get;
    const char *body; /* borrowed from the request; NULL: in body_fd */
    int body_fd;
    uint64_t body_len;
    /* result */
    int status;
    json_t *reply;
    const char *reason;
    int location;       /* a Location header for the model's path */
    const char *action; /* of the event; NULL: none */
    char *other;        /* source path of the event */
    unsigned changed;   /* what has to be made known: CHANGED_* */
    /* private to contents_job.c */
    struct list link;
    char *lock[2];
    int nlocks, nheld;
    struct merge_hold *hold;
    struct buf out;
    struct err err;
    int rc;
};

enum {
    CHANGED_PIN = 1,   /* the pin of path */
    CHANGED_TRUST = 2, /* trusted hashes were added */
    CHANGED_NAME = 4,  /* from was renamed to path */
    CHANGED_GONE = 8   /* path was deleted */
};

struct contents_job *contents_job_new(struct gw *gw, struct http_req *r, char *path,
                                      int (*work)(struct contents_job *j, struct err *e));
/* Takes a lock on `path` for the duration of the job (two at most). */
void contents_job_lock(struct contents_job *j, const char *path);
void contents_job_start(struct contents_job *j);

#endif
