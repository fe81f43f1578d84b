/* Small file work for one request, off the loop. */
#ifndef REITOS_GATEWAY_JOB_H
#define REITOS_GATEWAY_JOB_H

#include "gateway/gw.h"

struct job {
    /* for the work function, which runs on the thread pool: copies, and what never changes */
    const char *prefix;   /* gw's */
    const char *base_url; /* gw's */
    char *name;           /* as given */
    enum http_method method;
    struct buf body;
    /* results */
    int status;
    json_t *reply; /* NULL: none */
    /* not for the work function */
    struct gw *gw;
    struct http_req *req;
    int (*work)(struct job *j, struct err *e);
    int rc;
    struct err err;
};

/* Runs `work`, then answers `r` with its status (default 200, or 204 without a reply) and JSON, or
 * its error. The body is copied; one larger than `body_max` is refused with 413. */
void job_start(struct gw *gw, struct http_req *r, const char *name, size_t body_max,
               int (*work)(struct job *j, struct err *e));

#endif
