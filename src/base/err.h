/* Errors as values: one list of codes, and an object that carries the context of one failure.
 *
 * A function that can fail returns int: 0 or positive on success, a negative `enum err_code` on
 * failure. When more than one cause is possible its last parameter is `struct err *e` (may be
 * NULL: the caller does not want the text). A function returns an error or logs it, never both;
 * outputs are untouched on failure. Any thread; a `struct err` belongs to its caller's stack.
 *
 *     if (fs_read_file(path, max, &b, e) < 0)
 *         return err_wrap(e, "reading configuration");
 */
#ifndef REITOS_BASE_ERR_H
#define REITOS_BASE_ERR_H

#include <stddef.h>

/* name, text, HTTP status, CLI exit code (1 the work failed, 2 wrong use, 3 service unavailable) */
#define ERR_LIST(X)                               \
    X(INVALID, "invalid argument", 400, 2)        \
    X(PARSE, "malformed input", 400, 2)           \
    X(CONFIG, "configuration error", 500, 2)      \
    X(DENIED, "permission denied", 403, 1)        \
    X(NOT_FOUND, "not found", 404, 1)             \
    X(EXISTS, "already exists", 409, 1)           \
    X(CONFLICT, "conflict", 409, 1)               \
    X(GONE, "gone", 410, 1)                       \
    X(TOO_LARGE, "too large", 413, 1)             \
    X(UNSUPPORTED, "not supported", 501, 1)       \
    X(IO, "input/output error", 500, 1)           \
    X(FULL, "no space left", 507, 1)              \
    X(LIMIT, "limit reached", 403, 1)             \
    X(BUSY, "busy", 503, 3)                       \
    X(UNAVAILABLE, "service unavailable", 503, 3) \
    X(TIMEOUT, "timed out", 503, 3)               \
    X(PROTOCOL, "protocol violation", 502, 1)     \
    X(KERNEL, "kernel failed", 500, 1)            \
    X(MEMORY, "out of memory", 500, 1)            \
    X(INTERNAL, "internal error", 500, 1)

enum err_ordinal {
#define X(name, text, http, exitcode) ERR_ORD_##name,
    ERR_LIST(X)
#undef X
        ERR_COUNT
};

enum err_code {
#define X(name, text, http, exitcode) ERR_##name = -(ERR_ORD_##name + 1),
    ERR_LIST(X)
#undef X
};

#define ERR_MSG_MAX 1024

struct err {
    int code;              /* 0 or a negative enum err_code */
    char msg[ERR_MSG_MAX]; /* what happened, to which thing, what to do; never a secret */
};

#define WARN_UNUSED __attribute__((warn_unused_result))
/* Where a result is ignored on purpose; say why beside it. */
#define IGNORE_RESULT(x) ((void)!(x))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Sets `e` (if not NULL) and returns `code`, so that `return err_set(...)` reads as one step. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* As err_set, with the code chosen from `errnum` and its text appended ("...: No such file"). */
int err_errno(struct err *e, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Prefixes the message with "context: " and returns the code unchanged. */
int err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

const char *err_name(int code); /* "NOT_FOUND" */
const char *err_text(int code); /* "not found" */
int err_http(int code);         /* HTTP status, 200 for >= 0 */
int err_exit(int code);         /* process exit code, 0 for >= 0 */

#endif
