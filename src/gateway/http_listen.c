#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "gateway/http_listen.h"

#define BACKLOG 512

static int open_unix(const char *path, struct listener *ret, struct err *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof sa.sun_path)
        return err_set(e, ERR_CONFIG, "listen unix:%s: the path must have 1 to %zu bytes", path,
                       sizeof sa.sun_path - 1);
    memcpy(sa.sun_path, path, strlen(path));
    autofd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(e, ERR_CONFIG, "listen unix:%s: %s", path, strerror(errno));
    struct stat st;
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return err_set(e, ERR_CONFIG, "listen unix:%s: a file of that name exists", path);
        if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0 || errno == EAGAIN)
            return err_set(e, ERR_CONFIG, "listen unix:%s: another server answers there", path);
        if (errno != ECONNREFUSED)
            return err_set(e, ERR_CONFIG, "listen unix:%s: %s", path, strerror(errno));
        unlink(path); /* left behind by a server that was killed */
    }
    /* no permission from the first moment on: the mode is set before bind() by the umask */
    mode_t old = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&sa, sizeof sa);
    int saved = errno;
    umask(old);
    if (rc != 0 || listen(fd, BACKLOG) != 0)
        return err_set(e, ERR_CONFIG, "listen unix:%s: %s", path, strerror(rc ? saved : errno));
    ret->path = xstrdup(path);
    ret->fd = STEAL_FD(fd);
    return 0;
}

/* "[::1]:80", "host:80", ":80" into host (may become "") and port. */
static int split_spec(const char *spec, char **host, const char **port)
{
    const char *colon = strrchr(spec, ':');
    if (!colon)
        return ERR_CONFIG;
    size_t len = (size_t)(colon - spec);
    if (*spec == '[') {
        if (len < 2 || spec[len - 1] != ']')
            return ERR_CONFIG;
        *host = xstrndup(spec + 1, len - 2);
    } else {
        if (memchr(spec, ':', len))
            return ERR_CONFIG; /* a bare IPv6 address is ambiguous */
        *host = xstrndup(spec, len);
    }
    *port = colon + 1;
    size_t n = strlen(*port);
    return n >= 1 && n <= 5 && strspn(*port, "0123456789") == n && strtol(*port, NULL, 10) <= 65535
               ? 0
               : ERR_CONFIG;
}

static int bound_port(int fd)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    if (getsockname(fd, (struct sockaddr *)&sa, &len) != 0)
        return 0;
    if (sa.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&sa)->sin6_port);
    return ntohs(((struct sockaddr_in *)&sa)->sin_port);
}

static int bind_address(const struct addrinfo *ai, int *ret_fd)
{
    autofd int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    int one = 1, zero = 0;
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6) /* "[::]" serves IPv4, too */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)
        return errno;
    *ret_fd = STEAL_FD(fd);
    return 0;
}

static int open_tcp(const char *spec, struct listener *ret, struct err *e)
{
    autofree char *host = NULL;
    const char *port;
    if (split_spec(spec, &host, &port) < 0)
        return err_set(e, ERR_CONFIG, "listen %s: not ADDR:PORT, [ADDR6]:PORT or unix:PATH", spec);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(*host ? host : NULL, port, &hints, &list);
    if (rc != 0)
        return err_set(e, ERR_CONFIG, "listen %s: %s", spec, gai_strerror(rc));
    int cause = EADDRNOTAVAIL;
    for (const struct addrinfo *ai = list; ai && cause != 0; ai = ai->ai_next)
        cause = bind_address(ai, &ret->fd);
    freeaddrinfo(list);
    if (cause == EADDRINUSE)
        return err_set(e, ERR_CONFIG, "listen %s: the port is in use; choose another or 0", spec);
    if (cause != 0)
        return err_set(e, ERR_CONFIG, "listen %s: %s", spec, strerror(cause));
    ret->port = bound_port(ret->fd);
    return 0;
}

int listener_open(const char *spec, struct listener *ret, struct err *e)
{
    *ret = (struct listener){.fd = -1};
    if (strncmp(spec, "unix:", 5) == 0)
        return open_unix(spec + 5, ret, e);
    return open_tcp(spec, ret, e);
}

void listener_close(struct listener *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->path)
        unlink(l->path);
    free(l->path);
    *l = (struct listener){.fd = -1};
}
