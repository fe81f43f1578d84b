/* /nbconvert: notebooks in other formats, made by the nbconvert of the Python environment.
 *
 * A conversion is a child process that reads the notebook from its stdin and writes the result to
 * its stdout. It runs isolated (-I) and in the root folder, so that nothing that lies beside the
 * notebook is imported or read as configuration. Images are embedded where the format can do it,
 * as only one file is made. Results are sandboxed: a notebook's scripts must not act as the user.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/loop.h"
#include "gateway/contents_int.h"
#include "gateway/gw.h"
#include "gateway/runas.h"
#include "gateway/urltext.h"

#define RESULT_MAX ((size_t)256 << 20)
#define SOURCE_MAX ((size_t)256 << 20)
#define REASON_MAX ((size_t)64 << 10)
#define READ_MAX ((size_t)64 << 10) /* at once */
#define DEADLINE_MS 115000          /* just before the request's own time is over (HTTP_HOLD_S) */
#define RUNNING_MAX 4

static const struct format {
    const char *name, *type, *extension;
} formats[] = {
    {"html", "text/html", ".html"},
    {"markdown", "text/markdown", ".md"},
    {"notebook", "application/json", ".ipynb"},
    {"python", "text/x-python", ".py"},
    {"script", "text/plain",
     ".txt"}, /* the extension of the notebook's language, if it names one */
    {"slides", "text/html", ".slides.html"},
};

struct convert {
    struct gw *gw;
    struct http_req *req;
    const struct format *format;
    char *path, *extension;
    int in; /* the notebook */
    int rc;
    struct err err;
    int gone;
    uv_process_t process;
    uv_pipe_t pipe[2]; /* stdout, stderr */
    struct buf text[2];
    struct loop_timer *deadline;
    int handles; /* open ones */
    int running; /* the child lives */
    int64_t status;
};

/* --- in the pool --- */

/* Is nbconvert in the environment? */
static int installed(const struct gw *gw)
{
    glob_t found = {0};
    autofree char *pattern =
        xasprintf("%s/lib/python3*/site-packages/nbconvert/__init__.py", gw->prefix);
    int yes = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return yes;
}

/* The file extension that the notebook names for its language. Heap; NULL when there is none. */
static char *language_extension(int fd)
{
    autobuf struct buf text = BUF_INIT(SOURCE_MAX);
    autojson json_t *nb = NULL;
    if (fs_read_fd(fd, SOURCE_MAX, &text, NULL) < 0 ||
        json_parse(text.data, text.len, &nb, NULL) < 0)
        return NULL; /* nbconvert says what is wrong with it */
    const json_t *info = json_object_get(json_object_get(nb, "metadata"), "language_info");
    const char *x = json_get_str(info, "file_extension", "");
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t n = *x == '.' ? strspn(x + 1, plain) : 0;
    return n && n < 9 && !x[n + 1] ? xstrdup(x) : NULL;
}

static int open_source(struct convert *c, struct err *e)
{
    struct stat st;
    if (!installed(c->gw))
        return err_set(e, ERR_UNSUPPORTED,
                       "nbconvert is not installed: run \"%s -m pip install nbconvert\"",
                       c->gw->python);
    c->in = fs_open(&c->gw->root, c->path, O_RDONLY | O_NONBLOCK, 0, e);
    if (c->in < 0)
        return c->in;
    if (fstat(c->in, &st) < 0)
        return err_errno(e, errno, "%s", c->path);
    size_t n = strlen(c->path);
    if (!S_ISREG(st.st_mode) || n < 6 || strcmp(c->path + n - 6, ".ipynb") != 0)
        return err_set(e, ERR_INVALID, "%s is not a notebook", c->path);
    if ((uint64_t)st.st_size > SOURCE_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s is too large to convert", c->path);
    if (!strcmp(c->format->name, "script")) {
        c->extension = language_extension(c->in);
        if (lseek(c->in, 0, SEEK_SET) < 0)
            return err_errno(e, errno, "%s", c->path);
    }
    return 0;
}

static void open_work(void *arg)
{
    struct convert *c = arg;
    c->rc = open_source(c, &c->err);
}

/* --- the end --- */

static void convert_free(struct convert *c)
{
    if (c->in >= 0)
        close(c->in);
    c->gw->conversions--;
    buf_free(&c->text[0]);
    buf_free(&c->text[1]);
    free(c->path);
    free(c->extension);
    free(c);
}

/* The last line of what the converter complained about. */
static const char *reason(struct buf *b)
{
    while (b->len && strchr(" \n\r", b->data[b->len - 1]))
        b->data[--b->len] = '\0';
    const char *line = b->len ? strrchr(b->data, '\n') : NULL;
    return line ? line + 1 : buf_str(b);
}

static void send_result(struct convert *c)
{
    struct http_req *r = c->req;
    http_set_header(r, "Content-Security-Policy", "sandbox allow-scripts");
    http_set_header(r, "Cache-Control", "no-store");
    const char *download = http_query(r, "download");
    if (download && !strcmp(download, "true")) {
        const char *name = cpath_name(c->path);
        autofree char *stem = xstrndup(name, strlen(name) - strlen(".ipynb"));
        autofree char *full =
            xasprintf("%s%s", stem, c->extension ? c->extension : c->format->extension);
        autobuf struct buf escaped = BUF_INIT(1 << 16);
        url_escape(full, &escaped);
        http_set_header(r, "Content-Disposition", "attachment; filename*=utf-8''%s",
                        buf_str(&escaped));
    }
    autofree char *type = xasprintf("%s; charset=utf-8", c->format->type);
    http_reply_buf(r, 200, type, &c->text[0]);
}

static void finish(struct convert *c)
{
    c->deadline = loop_timer_stop(c->deadline);
    if (c->gone && c->rc == 0)
        c->rc = err_set(&c->err, ERR_GONE, "the client went away");
    if (c->rc == 0 && c->status != 0)
        c->rc = err_set(&c->err, ERR_INVALID, "%.200s could not be converted: %.600s", c->path,
                        reason(&c->text[1]));
    if (c->rc < 0)
        http_reply_err(c->req, &c->err);
    else
        send_result(c);
    convert_free(c);
}

/* --- the child --- */

static void give_up(struct convert *c, int rc)
{
    if (c->rc == 0)
        c->rc = rc;
    if (c->running)
        uv_process_kill(&c->process, SIGKILL);
}

static void on_closed(uv_handle_t *h)
{
    struct convert *c = h->data;
    if (--c->handles == 0)
        finish(c);
}

static void close_handle(uv_handle_t *h)
{
    if (!uv_is_closing(h))
        uv_close(h, on_closed);
}

static void on_ended(uv_process_t *p, int64_t status, int signum)
{
    struct convert *c = p->data;
    c->running = 0;
    c->status = signum ? 128 + signum : status;
    close_handle((uv_handle_t *)p);
    /* nothing it may have left behind holds the pipes open */
    runas_signal_session(uv_process_get_pid(p), SIGKILL);
}

static struct buf *text_of(struct convert *c, const void *pipe)
{
    return &c->text[pipe == &c->pipe[1]];
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
    struct convert *c = h->data;
    struct buf *text = text_of(c, h);
    char *at;
    if (text == &c->text[1] && text->len > REASON_MAX / 2)
        buf_consume(text, text->len / 2); /* the end is what counts */
    size_t room = text->max - text->len;
    if (room > READ_MAX)
        room = READ_MAX;
    if (room > hint)
        room = hint;
    *b = uv_buf_init(NULL, 0);
    if (room && buf_reserve(text, room, &at) == 0)
        *b = uv_buf_init(at, (unsigned)room);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct convert *c = s->data;
    struct buf *text = text_of(c, s);
    (void)b;
    if (n > 0) {
        text->len += (size_t)n;
        text->data[text->len] = '\0';
    } else if (n < 0) {
        if (n != UV_EOF)
            give_up(c,
                    n == UV_ENOBUFS
                        ? err_set(&c->err, ERR_TOO_LARGE, "%.200s becomes too large", c->path)
                        : err_set(&c->err, ERR_INTERNAL, "%.200s: reading from the converter: %s",
                                  c->path, uv_strerror((int)n)));
        close_handle((uv_handle_t *)s);
    }
}

static void on_deadline(void *arg)
{
    struct convert *c = arg;
    give_up(c, err_set(&c->err, ERR_TIMEOUT, "%.200s: the conversion took too long", c->path));
}

static void on_gone(struct http_req *r)
{
    struct convert *c = http_data(r);
    c->gone = 1; /* and no more: the pool may be at work on it */
    if (c->running)
        uv_process_kill(&c->process, SIGKILL);
}

static void run(struct convert *c)
{
    char *argv[] = {(char *)c->gw->python,
                    (char *)"-I",
                    (char *)"-m",
                    (char *)"nbconvert",
                    (char *)"--to",
                    (char *)c->format->name,
                    (char *)"--stdin",
                    (char *)"--stdout",
                    (char *)"--log-level=ERROR",
                    (char *)"--ExtractOutputPreprocessor.enabled=False",
                    NULL};
    for (int i = 0; i < 2; i++) {
        uv_pipe_init(c->gw->loop, &c->pipe[i], 0);
        c->pipe[i].data = c;
    }
    c->process.data = c;
    c->handles = 3;
    c->rc = runas_program(c->gw->loop, http_principal(c->req)->user, argv, c->in, c->pipe,
                          &c->process, on_ended, &c->err);
    if (c->rc < 0) {
        close_handle((uv_handle_t *)&c->process);
        for (int i = 0; i < 2; i++)
            close_handle((uv_handle_t *)&c->pipe[i]);
        return;
    }
    c->running = 1;
    c->deadline = loop_timer_start(c->gw->loop, DEADLINE_MS, 0, on_deadline, c);
    for (int i = 0; i < 2; i++)
        if (uv_read_start((uv_stream_t *)&c->pipe[i], on_alloc, on_read) < 0)
            close_handle((uv_handle_t *)&c->pipe[i]);
}

static void open_done(void *arg)
{
    struct convert *c = arg;
    if (c->gone || c->rc < 0)
        finish(c);
    else
        run(c);
}

/* --- routes --- */

static void convert(struct gw *gw, struct http_req *r, const char *const *p)
{
    struct err e;
    const struct format *format = NULL;
    autofree char *path = NULL;
    for (size_t i = 0; i < COUNTOF(formats); i++)
        if (!strcmp(formats[i].name, p[0]))
            format = &formats[i];
    int rc = format ? cpath_clean(p[1], &path, &e)
                    : err_set(&e, ERR_NOT_FOUND, "No exporter for format: %.64s", p[0]);
    if (rc == 0 && !gw->conf->hidden && cpath_hidden(path))
        rc = err_set(&e, ERR_NOT_FOUND, "%s: no such file or folder", path);
    if (rc == 0 && gw->conversions >= RUNNING_MAX)
        rc = err_set(&e, ERR_BUSY, "%d conversions are running: try again", RUNNING_MAX);
    if (rc < 0) {
        http_reply_err(r, &e);
        return;
    }
    struct convert *c = xcalloc(1, sizeof *c);
    gw->conversions++;
    c->gw = gw;
    c->req = r;
    c->format = format;
    c->path = STEAL(path);
    c->in = -1;
    buf_init(&c->text[0], RESULT_MAX);
    buf_init(&c->text[1], REASON_MAX);
    http_set_data(r, c, NULL);
    http_on_gone(r, on_gone);
    loop_work(gw->loop, open_work, open_done, c);
}

struct listing {
    struct gw *gw;
    struct http_req *req;
    int found;
};

static void list_work(void *arg)
{
    struct listing *l = arg;
    l->found = installed(l->gw);
}

/* An empty list where there is no nbconvert: JupyterLab then offers no "Save and Export As". */
static void list_done(void *arg)
{
    struct listing *l = arg;
    json_t *all = json_object();
    for (size_t i = 0; l->found && i < COUNTOF(formats); i++)
        json_object_set_new(all, formats[i].name,
                            json_pack("{s:s}", "output_mimetype", formats[i].type));
    http_reply_json(l->req, 200, all);
    free(l);
}

static void list_formats(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    struct listing *l = xcalloc(1, sizeof *l);
    l->gw = gw;
    l->req = r;
    loop_work(gw->loop, list_work, list_done, l);
}

const struct route nbconvert_routes[] = {
    {METHOD(GET), "api/nbconvert", list_formats, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(GET), "nbconvert/{}/*", convert, NULL, 0},
    {0, NULL, NULL, NULL, 0},
};
