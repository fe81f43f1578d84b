/* GET /metrics: Prometheus text. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"
#include "gateway/events.h"
#include "gateway/kernels.h"

#define SERIES_MAX 2048 /* methods, handlers and statuses are few; more are not counted apart */

static const double bounds[] = {.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10};

struct series {
    const char *method, *handler; /* static text: method names and route patterns */
    int status;
    uint64_t buckets[COUNTOF(bounds)], count;
    double sum;
};

struct metrics {
    struct series series[SERIES_MAX];
    size_t n;
};

struct metrics *metrics_new(void)
{
    return xcalloc(1, sizeof(struct metrics));
}

void metrics_free(struct metrics *m)
{
    free(m);
}

void metrics_request(struct gw *gw, const char *method, const char *handler, int status,
                     double seconds)
{
    struct metrics *m = gw->metrics;
    struct series *s = NULL;
    for (size_t i = 0; i < m->n && !s; i++) {
        struct series *it = &m->series[i];
        if (it->status == status && !strcmp(it->handler, handler) && !strcmp(it->method, method))
            s = it;
    }
    if (!s && m->n == SERIES_MAX)
        return;
    if (!s) {
        s = &m->series[m->n++];
        s->method = method;
        s->handler = handler;
        s->status = status;
    }
    for (size_t i = 0; i < COUNTOF(bounds); i++)
        s->buckets[i] += seconds <= bounds[i];
    s->count++;
    s->sum += seconds;
}

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_add(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct buf *b, const char *name, const char *help, double v)
{
    head(b, name, "gauge", help);
    buf_add(b, "%s %.17g\n", name, v);
}

static void put_requests(const struct metrics *m, struct buf *b)
{
    static const char name[] = "http_request_duration_seconds";
    head(b, name, "histogram", "duration in seconds for all HTTP requests");
    for (size_t i = 0; i < m->n; i++) {
        const struct series *s = &m->series[i];
        char labels[256];
        snprintf(labels, sizeof labels, "method=\"%s\",handler=\"%s\",status_code=\"%d\"",
                 s->method, s->handler, s->status);
        for (size_t k = 0; k < COUNTOF(bounds); k++)
            buf_add(b, "%s_bucket{%s,le=\"%g\"} %llu\n", name, labels, bounds[k],
                    (unsigned long long)s->buckets[k]);
        buf_add(b, "%s_bucket{%s,le=\"+Inf\"} %llu\n%s_sum{%s} %.9g\n%s_count{%s} %llu\n", name,
                labels, (unsigned long long)s->count, name, labels, s->sum, name, labels,
                (unsigned long long)s->count);
    }
}

static void put_label(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buf_add(b, "\\%c", *s);
        else if (*s == '\n')
            buf_add(b, "\\n");
        else
            buf_add(b, "%c", *s);
    }
}

static void put_kernels(const struct gw *gw, struct buf *b)
{
    autojson json_t *by_type = json_object();
    autojson json_t *by_state = json_object();
    list_foreach(it, kernels_list(gw))
    {
        const struct kernel *k = container_of(it, struct kernel, link);
        const char *type = json_get_str(k->model, "name", "");
        const char *state = kernel_state(k);
        json_object_set_new(by_type, type, json_integer(json_get_int(by_type, type, 0) + 1));
        json_object_set_new(by_state, state, json_integer(json_get_int(by_state, state, 0) + 1));
    }
    const struct {
        const char *name, *label, *help;
        json_t *counts;
    } families[] = {
        {"kernel_currently_running_total", "type",
         "counter for how many kernels are running labeled by type", by_type},
        {"reitos_kernels", "state", "kernels by execution state", by_state},
    };
    for (size_t i = 0; i < COUNTOF(families); i++) {
        const char *key;
        json_t *n;
        head(b, families[i].name, "gauge", families[i].help);
        json_object_foreach(families[i].counts, key, n)
        {
            buf_add(b, "%s{%s=\"", families[i].name, families[i].label);
            put_label(b, key);
            buf_add(b, "\"} %lld\n", (long long)json_integer_value(n));
        }
    }
}

static void put_process(struct buf *b)
{
    autobuf struct buf statm = BUF_INIT(4096);
    struct rusage u;
    if (fs_read_path("/proc/self/statm", 4096, &statm, NULL) == 0) {
        const char *resident = strchr(buf_str(&statm), ' ');
        double pages = resident ? (double)strtoll(resident, NULL, 10) : 0;
        gauge(b, "process_resident_memory_bytes", "Resident memory size in bytes.",
              pages * (double)sysconf(_SC_PAGESIZE));
    }
    int fds = -3; /* ".", ".." and the folder itself */
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        fds++;
    if (d) {
        closedir(d);
        gauge(b, "process_open_fds", "Number of open file descriptors.", fds);
    }
    if (getrusage(RUSAGE_SELF, &u) == 0) {
        head(b, "process_cpu_seconds_total", "counter",
             "Total user and system CPU time spent in seconds.");
        buf_add(b, "process_cpu_seconds_total %.6f\n",
                (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                    (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    }
}

static void get_metrics(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    put_requests(gw->metrics, &b);
    put_kernels(gw, &b);
    gauge(&b, "terminal_currently_running_total", "counter for how many terminals are running",
          terminals_count(gw));
    gauge(&b, "jupyter_server_last_activity_timestamp_seconds",
          "Timestamp of last seen activity on this Jupyter Server",
          (double)gw->last_activity_us / 1e6);
    gauge(&b, "jupyter_server_started_timestamp_seconds",
          "Timestamp of when this Jupyter Server was started", (double)gw->started_us / 1e6);
    gauge(&b, "jupyter_server_active_duration_seconds",
          "Number of seconds this Jupyter Server has been active",
          (double)(sys.wall_us() - gw->started_us) / 1e6);
    gauge(&b, "reitos_kernel_connections", "open WebSockets of kernels", kernels_connections(gw));
    gauge(&b, "reitos_event_subscribers", "open WebSockets of event subscribers",
          (double)events_subscribers(gw));
    head(&b, "reitos_info", "gauge", "version of REITOS");
    buf_add(&b, "reitos_info{version=\"" REITOS_VERSION "\"} 1\n");
    put_process(&b);
    http_reply_buf(r, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

const struct route metrics_routes[] = {
    {METHOD(GET), "metrics", get_metrics, NULL, ROUTE_NO_ACTIVITY},
    {0, NULL, NULL, NULL, 0},
};
