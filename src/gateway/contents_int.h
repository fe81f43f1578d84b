/* Shared by contents.c, contents_job.c and files.c only. */
#ifndef REITOS_GATEWAY_CONTENTS_INT_H
#define REITOS_GATEWAY_CONTENTS_INT_H

#include "base/list.h"
#include "gateway/contents.h"

struct contents_job;

struct contents {
    struct gw *gw;
    struct cenv env;
    struct pathlocks *locks;
    int loading;         /* stored records still to come; jobs wait */
    struct list waiting; /* struct contents_job */
    size_t active;       /* jobs that were started and are not answered */
};

void contents_job_begin(struct contents_job *j);

#endif
