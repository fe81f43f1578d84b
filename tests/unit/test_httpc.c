#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "wire/httpc.h"

/* A server that answers one connection with a fixed text and keeps what it was asked. */
struct server {
    int fd;
    pthread_t thread;
    const char *answer; /* NULL: never answers */
    char request[4096];
    char url[128], path[64];
};

static void *serve(void *arg)
{
    struct server *s = arg;
    int fd = accept(s->fd, NULL, NULL);
    size_t got = 0;
    while (got < sizeof s->request - 1) {
        ssize_t n = read(fd, s->request + got, sizeof s->request - 1 - got);
        if (n <= 0)
            break;
        got += (size_t)n;
        s->request[got] = '\0';
        const char *end = strstr(s->request, "\r\n\r\n");
        if (end && (!strstr(s->request, "Content-Length: 4") || s->request + got >= end + 8))
            break;
    }
    if (s->answer)
        IGNORE_RESULT(write(fd, s->answer, strlen(s->answer))); /* the client may have gone */
    else
        IGNORE_RESULT(read(fd, s->request, 1)); /* until the client gives up */
    close(fd);
    return NULL;
}

static void start(struct server *s, const char *answer, int local)
{
    memset(s, 0, sizeof *s);
    s->answer = answer;
    if (local) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        snprintf(s->path, sizeof s->path, "/tmp/test-httpc-%d.sock", (int)getpid());
        unlink(s->path);
        memcpy(a.sun_path, s->path, strlen(s->path) + 1);
        s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
        snprintf(s->url, sizeof s->url, "http://localhost/x?token=secret");
    } else {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof a;
        s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &len), 0);
        snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/x?token=secret", ntohs(a.sin_port));
    }
    assert_int_equal(listen(s->fd, 1), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct server *s)
{
    pthread_join(s->thread, NULL);
    close(s->fd);
    if (*s->path)
        unlink(s->path);
}

#define OK_ANSWER "HTTP/1.1 201 Made\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"

static void test_get(void **state)
{
    (void)state;
    struct server s;
    start(&s, OK_ANSWER, 0);
    const char *const headers[] = {"Authorization: token abc", NULL};
    struct httpc_response r;
    struct httpc_request q = {.url = s.url, .headers = headers};
    assert_int_equal(httpc_call(&q, &r, NULL), 0);
    stop(&s);
    assert_int_equal(r.status, 201);
    assert_string_equal(r.body.data, "hello");
    assert_non_null(strstr(s.request, "GET /x?token=secret HTTP/1.1\r\n"));
    assert_non_null(strstr(s.request, "Authorization: token abc\r\n"));
    buf_free(&r.body);
}

static void test_post_unix(void **state)
{
    (void)state;
    struct server s;
    start(&s, OK_ANSWER, 1);
    struct httpc_response r;
    struct httpc_request q = {
        .method = "PUT", .url = s.url, .body = "a\0b!", .body_len = 4, .unix_socket = s.path};
    assert_int_equal(httpc_call(&q, &r, NULL), 0);
    stop(&s);
    assert_int_equal(r.status, 201);
    assert_non_null(strstr(s.request, "PUT /x"));
    assert_memory_equal(strstr(s.request, "\r\n\r\n") + 4, "a\0b!", 4);
    buf_free(&r.body);
}

static void test_no_redirect(void **state)
{
    (void)state;
    struct server s;
    start(&s, "HTTP/1.1 302 Go\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", 0);
    struct httpc_response r;
    struct httpc_request q = {.url = s.url};
    assert_int_equal(httpc_call(&q, &r, NULL), 0);
    stop(&s);
    assert_int_equal(r.status, 302);
    assert_int_equal(r.body.len, 0);
    buf_free(&r.body);
}

static void test_failures(void **state)
{
    (void)state;
    struct server s;
    struct err e;
    struct httpc_response r;
    start(&s, OK_ANSWER, 0);
    struct httpc_request q = {.url = s.url, .max_body = 4};
    assert_int_equal(httpc_call(&q, &r, &e), ERR_TOO_LARGE);
    assert_null(strstr(e.msg, "secret"));
    stop(&s);
    q.max_body = 0;
    assert_int_equal(httpc_call(&q, &r, &e), ERR_UNAVAILABLE); /* nobody listens any more */
    start(&s, NULL, 0);
    q.url = s.url;
    q.timeout_ms = 100;
    assert_int_equal(httpc_call(&q, &r, &e), ERR_TIMEOUT);
    stop(&s);
    q.url = "file:///etc/passwd";
    assert_int_equal(httpc_call(&q, &r, &e), ERR_INVALID);
    q.url = "";
    assert_int_equal(httpc_call(&q, &r, &e), ERR_INVALID);
    q.url = "http://localhost/";
    q.unix_socket = "/nowhere/socket";
    assert_int_equal(httpc_call(&q, &r, &e), ERR_UNAVAILABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get),
        cmocka_unit_test(test_post_unix),
        cmocka_unit_test(test_no_redirect),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
