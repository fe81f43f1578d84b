/* The gateway: what its modules share. One file per API area; each exports a table of routes.
 *
 * Loop thread only. Blocking file work goes to the thread pool (base/loop.h) with copies of what it
 * needs; its completion answers the request.
 */
#ifndef REITOS_GATEWAY_GW_H
#define REITOS_GATEWAY_GW_H

#include <uv.h>

#include "base/conf.h"
#include "base/fs.h"
#include "gateway/http.h"
#include "kernel/shimc.h"

struct auth;
struct kernels;
struct contents;
struct merge;
struct events;
struct terminals;
struct metrics;
struct kspecs;
struct lab;
struct meta;

struct gw {
    uv_loop_t *loop;
    const struct conf *conf;
    const char *base_url;     /* "/" or "/x/" */
    const char *shim_program; /* path of reitos-shim */
    const char *python;       /* absolute path of the default interpreter */
    const char *prefix;       /* Python environment whose share/jupyter is served (build/venv) */
    struct fs_root root;      /* served folder */
    char *data;               /* absolute data folder */
    struct http_server *http;
    struct shimc *shim; /* NULL while there is none */
    int conversions;    /* nbconvert's children */
    int ending;         /* the shim was told to end; then the loop does */
    struct auth *auth;
    struct kernels *kernels; /* kernels, sessions, channels */
    struct contents *contents;
    struct merge *merge; /* outputs into notebook files */
    struct events *events;
    struct terminals *terminals;
    struct metrics *metrics;
    struct kspecs *kspecs;
    struct lab *lab; /* JupyterLab's pages and files */
    struct meta *meta;
    int64_t started_us; /* wall clock */
    int64_t last_activity_us;
};

#define METHOD(m) (1u << HTTP_##m)
enum {
    ROUTE_PUBLIC = 1,      /* no authentication */
    ROUTE_PAGE = 2,        /* a browser page: redirect to the login form instead of 403 */
    ROUTE_NO_ACTIVITY = 4, /* does not count as activity */
};
#define ROUTE_PARAMS 3

/* `p` are the decoded texts matched by {}; the last one is the rest when the pattern ends in *. */
typedef void (*route_fn)(struct gw *gw, struct http_req *r, const char *const *p);
/* Accept a WebSocket: as http_conf.upgrade. */
typedef int (*ws_route_fn)(struct gw *gw, struct http_req *r, const char *const *p,
                           const struct ws_ops **ops, void **ws_arg);

struct route {
    unsigned methods; /* HEAD goes to GET handlers by itself */
    const char
        *pattern; /* "api/kernels/{}/interrupt", and a final "*" for the rest, which may be "" */
    route_fn fn;
    ws_route_fn ws; /* for WebSocket routes; fn is then NULL */
    unsigned flags;
};

/* Tables end with a NULL pattern. Known path, other method: 405. Unknown path: 404. */
extern const struct route kernels_routes[], sessions_routes[], channels_routes[],
    reitos_routes[];                                         /* kernels */
extern const struct route contents_routes[], files_routes[]; /* files */
extern const struct route auth_routes[], lab_routes[], config_routes[], terminals_routes[],
    events_routes[], metrics_routes[], kspecs_routes[], status_routes[],
    nbconvert_routes[]; /* the rest */

/* module lifecycles; *_new may return NULL with e */
struct auth *auth_new(struct gw *gw, struct err *e);
void auth_free(struct auth *a);
/* http_conf.filter; the matched route's flags. 1: pass, principal set. 0: answered. */
int auth_filter(struct gw *gw, struct http_req *r, unsigned flags);
const char *auth_token(const struct auth *a);

struct contents *contents_new(struct gw *gw, struct err *e);
void contents_free(struct contents *c);
struct events *events_new(struct gw *gw);
void events_free(struct events *v);
/* Publishes on /api/events; `data` is taken. */
void events_emit(struct gw *gw, const char *schema_id, const char *version, json_t *data);
struct terminals *terminals_new(struct gw *gw);
void terminals_free(struct terminals *t);
int terminals_count(const struct gw *gw);
struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
void metrics_request(struct gw *gw, const char *method, const char *handler, int status,
                     double seconds);
struct kspecs *kspecs_new(struct gw *gw);
void kspecs_free(struct kspecs *k);
struct lab *lab_new(struct gw *gw);
void lab_free(struct lab *l);
struct kernels *kernels_new(struct gw *gw, struct err *e);
void kernels_free(struct kernels *k);
int kernels_count(const struct gw *gw);
int kernels_connections(const struct gw *gw);
struct merge *merge_new(struct gw *gw, struct err *e);
void merge_free(struct merge *m);

void gw_activity(struct gw *gw); /* user work happened now */

#endif
