/* reitos kernel-proxy: the program of a kernelspec, through which any Jupyter client drives a
 * REITOS kernel. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "cli/front.h"
#include "cli/kern.h"

#define FILE_MAX ((size_t)1 << 16)
#define POLL_MS 500     /* is the parent alive */
#define DRAIN_MS 5      /* do subscribers take more */
#define FLUSH_MS 2000   /* for the last messages to leave */
#define SUSPECT_MS 1000 /* for the kernel's end to follow the reply that tells of it */
#define LINGER_MS 100   /* for what libzmq has taken to reach the clients */

struct proxy {
    uv_loop_t loop;
    uv_signal_t signals[3];
    struct front *front;
    struct kern *kern;
    struct loop_timer *poll, *drain, *last, *doubt;
    struct jmsg *suspect; /* the reply to the cell in which the kernel died, as it seems */
    pid_t parent;         /* 0: the proxy outlives its parent */
    int stopping;
    int64_t flush_until_us;
    int code;
};

/* --- the end ------------------------------------------------------------------------------- */

static void leave(void *arg)
{
    struct proxy *p = arg;
    p->last = loop_timer_stop(p->last);
    uv_stop(&p->loop);
}

/* Ends the program once the sockets have taken what is left. */
static void flush(void *arg)
{
    struct proxy *p = arg;
    int more = front_pending(p->front) > 0 && sys.mono_us() < p->flush_until_us;
    p->last = loop_timer_stop(p->last);
    p->last = loop_timer_start(&p->loop, more ? 20 : LINGER_MS, 0, more ? flush : leave, p);
}

static void finish(struct proxy *p)
{
    p->flush_until_us = sys.mono_us() + FLUSH_MS * 1000;
    flush(p);
}

static void on_stopped(void *arg)
{
    finish(arg);
}

static void stop(struct proxy *p, int code)
{
    if (p->stopping)
        return;
    p->stopping = 1;
    p->code = code;
    kern_stop(p->kern, 0, on_stopped, p);
}

/* --- requests ------------------------------------------------------------------------------ */

static void on_shutdown(struct proxy *p, struct jmsg *m)
{
    autojson json_t *content = NULL;
    int restart =
        jmsg_json(m, JPART_CONTENT, &content, NULL) >= 0 && json_get_bool(content, "restart", 0);
    /* After a restart it is the client that starts this program again. */
    front_status(p->front, m, "busy");
    front_reply(p->front, m, "shutdown_reply", json_pack("{s:b}", "restart", restart));
    front_status(p->front, m, "idle");
    stop(p, 0);
}

static void on_interrupt(struct proxy *p, struct jmsg *m)
{
    front_status(p->front, m, "busy");
    kern_interrupt(p->kern);
    front_reply(p->front, m, "interrupt_reply", json_object());
    front_status(p->front, m, "idle");
}

static void on_request(void *arg, struct jmsg *m)
{
    struct proxy *p = arg;
    if (p->stopping || !p->kern)
        return;
    if (jmsg_is(m, "shutdown_request"))
        on_shutdown(p, m);
    else if (jmsg_is(m, "interrupt_request"))
        on_interrupt(p, m);
    else if (jmsg_is(m, "kernel_info_request")) {
        /* answered from a cache, without the status messages that clients wait for */
        front_status(p->front, m, "busy");
        kern_send(p->kern, m);
        front_status(p->front, m, "idle");
    } else
        kern_send(p->kern, m);
}

/* --- the kernel ---------------------------------------------------------------------------- */

static void on_up(void *arg, json_t *model)
{
    struct proxy *p = arg;
    (void)p;
    log_debug("kernel is up", "kernel", json_get_str(model, "id", ""), NULL);
}

static int tells_of_death(struct jmsg *m)
{
    autojson json_t *content = NULL;
    return m->channel == JCHAN_SHELL && jmsg_is(m, "execute_reply") &&
           memmem(m->parts[JPART_CONTENT].data, m->parts[JPART_CONTENT].len, "KernelDied", 10) &&
           jmsg_json(m, JPART_CONTENT, &content, NULL) >= 0 &&
           !strcmp(json_get_str(content, "ename", ""), "KernelDied");
}

/* The kernel lives: the reply was about an error of the user's that is called like that. */
static void on_doubt(void *arg)
{
    struct proxy *p = arg;
    p->doubt = loop_timer_stop(p->doubt);
    front_deliver(p->front, p->suspect);
    p->suspect = jmsg_unref(p->suspect);
}

/* Clients know a dead kernel by its process, and tell it from a failed cell by the reply that does
 * not come; so the one made on the kernel's behalf stays here. Its error output has told why. */
static void on_message(void *arg, struct jmsg *m)
{
    struct proxy *p = arg;
    if (p->suspect || !tells_of_death(m)) {
        front_deliver(p->front, m);
        return;
    }
    p->suspect = jmsg_ref(m);
    p->doubt = loop_timer_start(&p->loop, SUSPECT_MS, 0, on_doubt, p);
}

static void on_drain(void *arg)
{
    struct proxy *p = arg;
    if (!front_ready(p->front))
        return;
    p->drain = loop_timer_stop(p->drain);
    kern_resume(p->kern);
}

/* While subscribers are slow the journal is not read: it is the queue. */
static int on_ready(void *arg)
{
    struct proxy *p = arg;
    if (front_ready(p->front))
        return 1;
    if (!p->drain)
        p->drain = loop_timer_start(&p->loop, DRAIN_MS, DRAIN_MS, on_drain, p);
    return 0;
}

static void on_ended(void *arg, const struct err *why)
{
    struct proxy *p = arg;
    fprintf(stderr, "reitos kernel-proxy: %s\n", why->msg);
    p->code = err_exit(why->code);
    p->stopping = 1;
    p->doubt = loop_timer_stop(p->doubt);
    finish(p);
}

/* --- life ---------------------------------------------------------------------------------- */

static void on_poll(void *arg)
{
    struct proxy *p = arg;
    if (p->parent && getppid() != p->parent)
        stop(p, 0);
}

static void on_signal(uv_signal_t *s, int signum)
{
    struct proxy *p = s->data;
    if (signum == SIGINT)
        kern_interrupt(p->kern);
    else
        stop(p, 0);
}

static void watch_signals(struct proxy *p)
{
    static const int which[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < COUNTOF(which); i++) {
        uv_signal_init(&p->loop, &p->signals[i]);
        p->signals[i].data = p;
        uv_signal_start(&p->signals[i], on_signal, which[i]);
        uv_unref((uv_handle_t *)&p->signals[i]);
    }
}

static int read_connection_file(const char *path, json_t **ret, struct err *e)
{
    autobuf struct buf text = BUF_INIT(FILE_MAX);
    int r = fs_read_path(path, FILE_MAX, &text, e);
    if (r >= 0)
        r = json_parse(buf_str(&text), text.len, ret, e);
    if (r < 0)
        err_wrap(e, "connection file %s", path);
    return r;
}

static int start_kernel(struct proxy *p, const struct cli *c, const json_t *file, struct err *e)
{
    static const struct kern_ops ops = {on_up, on_message, on_ended, on_ready};
    char cwd[PATH_MAX];
    if (!getcwd(cwd, sizeof(cwd)))
        return err_errno(e, errno, "the current folder");
    autojson json_t *env = kern_environ();
    /* jupyter_client watches this process, and this process the kernel */
    json_object_del(env, "JPY_PARENT_PID");
    const char *notebook = sys.env("JPY_SESSION_NAME");
    autojson json_t *annotation =
        json_pack("{s:s,s:s,s:s}", "path", notebook ? notebook : "", "owner", "reitos kernel-proxy",
                  "kernel_name", json_get_str(file, "kernel_name", ""));
    struct kern_conf kc = {.spec = cli_value(c, "kernel"),
                           .cwd = cwd,
                           .annotation = annotation,
                           .env = env,
                           .args = c->operands,
                           .nargs = c->noperands};
    return kern_open(&p->loop, c, &kc, &ops, p, &p->kern, e);
}

static int serve(struct proxy *p, const struct cli *c, const json_t *file, struct err *e)
{
    int r = front_open(&p->loop, file, on_request, p, &p->front, e);
    if (r >= 0)
        r = start_kernel(p, c, file, e);
    if (r < 0)
        return r;
    p->parent = sys.env("JPY_PARENT_PID") ? getppid() : 0;
    watch_signals(p);
    p->poll = loop_timer_start(&p->loop, POLL_MS, POLL_MS, on_poll, p);
    uv_run(&p->loop, UV_RUN_DEFAULT);
    return p->code;
}

static int run_proxy(struct cli *c, struct err *e)
{
    const char *path = cli_value(c, "file");
    autojson json_t *file = NULL;
    if (!path)
        return err_set(e, ERR_INVALID, "-f CONNECTION_FILE is missing");
    int r = read_connection_file(path, &file, e);
    if (r < 0)
        return r;
    struct proxy p = {0};
    log_setup(LOG_WARN, 0, "reitos kernel-proxy");
    uv_loop_init(&p.loop);
    r = serve(&p, c, file, e);
    p.poll = loop_timer_stop(p.poll);
    p.drain = loop_timer_stop(p.drain);
    p.last = loop_timer_stop(p.last);
    p.doubt = loop_timer_stop(p.doubt);
    p.suspect = jmsg_unref(p.suspect);
    kern_close(p.kern);
    front_close(p.front);
    loop_fini(&p.loop);
    return r;
}

static const struct cli_option options[] = {
    {"file", 'f', "FILE", "connection file, as Jupyter writes it"},
    {"kernel", 'k', "NAME", "kernelspec to run behind it (default: the configured one)"},
    CLI_OPTIONS_END,
};

const struct cli_command cli_kernel_proxy = {
    .name = "kernel-proxy",
    .operands = "[ARGUMENTS OF THE KERNEL]",
    .summary = "serve a kernel to any Jupyter client",
    .description =
        "Started by Jupyter from a kernelspec that reitos kernelspec install writes: binds the "
        "sockets of the connection file and relays to a kernel under reitos-shim, with this "
        "process's folder and environment. Ends when the kernel or Jupyter does. SIGINT "
        "interrupts the kernel, SIGTERM stops it.",
    .examples = "reitos kernel-proxy -f /run/user/1000/kernel-1.json --kernel python3",
    .options = options,
    .max = -1,
    .flags = CLI_PASS,
    .run = run_proxy,
};
