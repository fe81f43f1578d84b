/* The listening socket: TCP on IPv4 or IPv6, or a Unix socket. No state of its own. */
#ifndef REITOS_GATEWAY_HTTP_LISTEN_H
#define REITOS_GATEWAY_HTTP_LISTEN_H

#include "base/err.h"

struct listener {
    int fd;
    int port;   /* 0 for a Unix socket */
    char *path; /* of a Unix socket, else NULL */
};

/* `spec`: "127.0.0.1:8888", "localhost:0", "[::1]:8888", ":8888" (all addresses), "unix:PATH". A
 * Unix socket gets mode 0600; one that nobody answers on any more is replaced. ERR_CONFIG with one
 * line of reason when it cannot be had. */
int listener_open(const char *spec, struct listener *ret, struct err *e) WARN_UNUSED;
void listener_close(struct listener *l); /* removes the Unix socket */

#endif
