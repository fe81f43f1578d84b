/* Shared by shim.c (server), shim_client.c (connections) and shim_ops.c (operations). */
#ifndef REITOS_KERNEL_SHIM_OWN_H
#define REITOS_KERNEL_SHIM_OWN_H

#include "base/list.h"
#include "base/loop.h"
#include "kernel/kernel.h"
#include "kernel/shim.h"
#include "wire/frame.h"

#define SHIM_CLIENT_QUEUE ((size_t)64 << 20) /* a client that reads slower is dropped */
#define SHIM_CLIENTS_MAX 1000
#define SHIM_PROTOCOL 1

struct shim {
    const struct shim_conf *conf;
    uv_loop_t loop;
    struct kernel_host host;
    struct list kernels, clients;
    size_t nclients, nhello;
    uv_pipe_t listener;
    uv_prepare_t flush; /* tells clients what happened in this round of the loop */
    uv_signal_t term, intr;
    uv_timer_t late; /* runs while a kernel's growth is held back */
    struct loop_timer *tick, *grace, *soft, *end;
    int grace_s;
    int ending, ended;
    int served; /* somebody said hello once */
    int idle;   /* the grace timer runs because there is nothing to keep */
    uint64_t messages;
    char *socket_path;
    int lock;
};

struct client {
    struct list link;
    struct shim *shim;
    uv_pipe_t pipe;
    struct buf in, out, sending;
    uv_write_t write;
    int writing, hello, closed;
    struct list answers; /* that wait for something */
    json_t *owned;       /* ids of kernels that end with this connection; NULL: none */
};

/* shim.c */
struct kernel *shim_find(struct shim *s, const char *id);
void shim_add(struct shim *s, struct kernel *k);
void shim_check_idle(struct shim *s); /* a client or kernel went or came: grace, end */
void shim_end(struct shim *s, int now, int keep);
void shim_broadcast(struct shim *s, const json_t *head);

/* shim_client.c */
void client_accept(struct shim *s);
void client_close(struct client *c);
void client_send(struct client *c, const json_t *head);
void client_flush(struct client *c);
void client_own(struct client *c, const char *kid); /* the kernel is stopped when it closes */

/* shim_ops.c */
int shim_dispatch(struct client *c, const struct frame *f, struct err *e);
void shim_forget_answers(struct client *c);

#endif
