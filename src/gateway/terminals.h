/* Terminals: what terminals.c (API and sockets) and terminal.c (one terminal) share.
 * Loop thread only. */
#ifndef REITOS_GATEWAY_TERMINALS_H
#define REITOS_GATEWAY_TERMINALS_H

#include "base/list.h"
#include "base/loop.h"
#include "gateway/gw.h"

#define TERMINAL_REPLAY ((size_t)256 << 10) /* output kept for who comes later */
#define TERMINAL_INPUT_MAX ((size_t)4 << 20)
#define TERMINALS_MAX 128

struct terminal_client {
    struct list link;
    struct terminal *term; /* NULL once the terminal has ended */
    struct ws *ws;
};

struct terminal {
    struct list link;
    struct gw *gw;
    char *name;
    pid_t pid; /* 0: reaped */
    int fd;
    uv_poll_t *poll; /* heap: outlives the terminal until it is closed */
    int events;      /* being polled for */
    struct list clients;
    struct buf input;  /* not yet taken by the terminal */
    struct buf replay; /* the last output, whole characters */
    struct buf part;   /* bytes of an unfinished character */
    int64_t last_activity_us;
    int ended;
    struct loop_timer *kill_timer;
};

struct terminals {
    struct gw *gw;
    struct list list, dying;
    size_t n;      /* in list */
    unsigned next; /* name of the next one */
    uv_signal_t child;
    struct loop_timer *cull;
};

int terminal_start(struct gw *gw, const char *name, const char *user, const char *cwd,
                   struct terminal **ret, struct err *e) WARN_UNUSED;
/* Tells the clients and hangs up; it moves to the list of the dying. Its processes have a moment to
 * end by themselves, then they are killed. */
void terminal_end(struct terminal *t);
void terminal_kill(struct terminal *t); /* of an ended one, without waiting any longer; frees it */
void terminal_input(struct terminal *t, const char *text, size_t len);
void terminal_resize(struct terminal *t, int rows, int cols);
void terminal_attach(struct terminal *t, struct terminal_client *c); /* setup and replay */
void terminal_flow(struct terminal *t);                              /* a client has read: go on */
void terminal_reap(struct terminal *t); /* a child has ended, perhaps this one's; may free t */

/* Length of the part of `s` that ends on a whole UTF-8 character (bad bytes count as whole). */
size_t terminal_whole(const char *s, size_t n);
/* JSON ["stdout", text]; bytes that are not UTF-8 become U+FFFD. */
void terminal_frame(const char *text, size_t len, struct buf *out);

#endif
