/* One terminal: a shell on a pseudo-terminal, its replay buffer and its clients. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/sys.h"
#include "gateway/runas.h"
#include "gateway/terminals.h"

#define READ_BYTES 65536
#define CLIENT_FULL ((size_t)1 << 20)  /* when all clients have so much to read, the shell waits */
#define CLIENT_LOST ((size_t)16 << 20) /* one that has so much to read is let go */
#define HANGUP_MS 300

static void on_poll(uv_poll_t *poll, int status, int events);

/* The least that any client has yet to read; 0 without clients. */
static size_t least_pending(const struct terminal *t)
{
    size_t least = SIZE_MAX;
    list_foreach(it, (struct list *)&t->clients)
    {
        size_t n = ws_pending(container_of(it, struct terminal_client, link)->ws);
        least = n < least ? n : least;
    }
    return least == SIZE_MAX ? 0 : least;
}

void terminal_flow(struct terminal *t)
{
    if (t->ended)
        return;
    int want =
        (least_pending(t) < CLIENT_FULL ? UV_READABLE : 0) | (t->input.len ? UV_WRITABLE : 0);
    if (want == t->events)
        return;
    t->events = want;
    if (want)
        uv_poll_start(t->poll, want, on_poll);
    else
        uv_poll_stop(t->poll);
}

static void broadcast(struct terminal *t, const char *text, size_t len)
{
    list_foreach(it, &t->clients)
    {
        struct terminal_client *c = container_of(it, struct terminal_client, link);
        if (ws_pending(c->ws) > CLIENT_LOST) {
            ws_close(c->ws, 1011, "output is not read");
            continue;
        }
        struct buf frame = BUF_INIT(BUF_DEFAULT_MAX);
        terminal_frame(text, len, &frame);
        ws_send(c->ws, &frame, 0);
    }
}

/* Keeps the last TERMINAL_REPLAY bytes, cut at a line if one begins soon. */
static void remember(struct terminal *t, const char *text, size_t len)
{
    IGNORE_RESULT(buf_append(&t->replay, text, len)); /* its maximum leaves room for one read */
    if (t->replay.len <= TERMINAL_REPLAY)
        return;
    size_t drop = t->replay.len - TERMINAL_REPLAY;
    const char *line = memchr(t->replay.data + drop, '\n', 4096);
    if (line)
        drop = (size_t)(line - t->replay.data) + 1;
    while (drop < t->replay.len && ((unsigned char)t->replay.data[drop] & 0xC0) == 0x80)
        drop++;
    buf_consume(&t->replay, drop);
}

static void output(struct terminal *t, const char *data, size_t len)
{
    t->last_activity_us = sys.wall_us();
    IGNORE_RESULT(buf_append(&t->part, data, len)); /* at most READ_BYTES + 3 */
    size_t whole = terminal_whole(t->part.data, t->part.len);
    if (!whole)
        return;
    remember(t, t->part.data, whole);
    broadcast(t, t->part.data, whole);
    buf_consume(&t->part, whole);
}

/* 0: it is at its end. */
static int read_some(struct terminal *t)
{
    char data[READ_BYTES];
    ssize_t n = read(t->fd, data, sizeof data);
    if (n > 0)
        output(t, data, (size_t)n);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void write_some(struct terminal *t)
{
    ssize_t n = write(t->fd, t->input.data, t->input.len);
    if (n > 0)
        buf_consume(&t->input, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        buf_clear(&t->input); /* the reading side reports the end */
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct terminal *t = poll->data;
    if (t->input.len && events & UV_WRITABLE)
        write_some(t);
    if ((status < 0 || events & UV_READABLE) && !read_some(t))
        terminal_end(t);
    else
        terminal_flow(t);
}

int terminal_start(struct gw *gw, const char *name, const char *user, const char *cwd,
                   struct terminal **ret, struct err *e)
{
    int fd;
    pid_t pid;
    int rc = runas_shell(user, cwd, &fd, &pid, e);
    if (rc < 0)
        return rc;
    struct terminal *t = xcalloc(1, sizeof *t);
    t->gw = gw;
    t->name = xstrdup(name);
    t->pid = pid;
    t->fd = fd;
    t->last_activity_us = sys.wall_us();
    list_init(&t->link);
    list_init(&t->clients);
    buf_init(&t->input, TERMINAL_INPUT_MAX);
    buf_init(&t->replay, TERMINAL_REPLAY + READ_BYTES + 8);
    buf_init(&t->part, READ_BYTES + 8);
    t->poll = xcalloc(1, sizeof *t->poll);
    t->poll->data = t;
    uv_poll_init(gw->loop, t->poll, fd);
    terminal_flow(t);
    *ret = t;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    free(h);
}

/* The shell of an ended terminal is gone: so is the terminal. */
static void finish(struct terminal *t)
{
    list_remove(&t->link);
    loop_timer_stop(t->kill_timer);
    buf_free(&t->input);
    buf_free(&t->replay);
    buf_free(&t->part);
    free(t->name);
    free(t);
}

void terminal_reap(struct terminal *t)
{
    if (waitpid(t->pid, NULL, WNOHANG) != t->pid)
        return;
    /* jobs that ignore the hangup would otherwise live on unseen */
    runas_signal_session(t->pid, SIGKILL);
    t->pid = 0;
    if (t->ended)
        finish(t);
    else
        t->last_activity_us = sys.wall_us(); /* the terminal's end of file ends it */
}

void terminal_kill(struct terminal *t)
{
    if (t->pid) {
        runas_signal_session(t->pid, SIGKILL);
        kill(t->pid, SIGKILL); /* also when it has not begun its session yet */
        if (waitpid(t->pid, NULL, 0) < 0)
            log_warn("terminal's shell could not be reaped", "name", t->name, NULL);
        t->pid = 0;
    }
    finish(t);
}

static void kill_late(void *arg)
{
    terminal_kill(arg);
}

void terminal_end(struct terminal *t)
{
    static const char over[] = "[\"disconnect\",1]";
    if (t->ended)
        return;
    t->ended = 1;
    list_remove(&t->link);
    t->gw->terminals->n--;
    list_append(&t->gw->terminals->dying, &t->link);
    /* in this order, and both now: the descriptor's number may soon be another's */
    uv_close((uv_handle_t *)t->poll, on_closed);
    close(t->fd); /* the kernel hangs up as well */
    list_foreach(it, &t->clients)
    {
        struct terminal_client *c = container_of(it, struct terminal_client, link);
        list_remove(&c->link);
        c->term = NULL;
        ws_send_text(c->ws, over, sizeof over - 1);
        ws_close(c->ws, 1000, "the terminal has ended");
    }
    if (!t->pid) {
        finish(t);
        return;
    }
    runas_signal_session(t->pid, SIGHUP);
    runas_signal_session(t->pid, SIGCONT); /* a stopped job cannot hear the hangup */
    t->kill_timer = loop_timer_start(t->gw->loop, HANGUP_MS, 0, kill_late, t);
}

void terminal_input(struct terminal *t, const char *text, size_t len)
{
    t->last_activity_us = sys.wall_us();
    if (buf_append(&t->input, text, len) < 0)
        log_warn("terminal does not read: input dropped", "name", t->name, NULL);
    else
        write_some(t);
    terminal_flow(t);
}

void terminal_resize(struct terminal *t, int rows, int cols)
{
    const struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
    if (rows > 0 && cols > 0 && rows < 10000 && cols < 10000 && ioctl(t->fd, TIOCSWINSZ, &size) < 0)
        log_debug("terminal not resized", "name", t->name, NULL);
}

void terminal_attach(struct terminal *t, struct terminal_client *c)
{
    static const char setup[] = "[\"setup\",{}]";
    ws_send_text(c->ws, setup, sizeof setup - 1);
    if (t->replay.len) {
        struct buf frame = BUF_INIT(BUF_DEFAULT_MAX);
        terminal_frame(t->replay.data, t->replay.len, &frame);
        ws_send(c->ws, &frame, 0);
    }
    c->term = t;
    list_append(&t->clients, &c->link);
}
