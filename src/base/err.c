#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
    int http, exitcode;
} err_table[ERR_COUNT] = {
#define X(name, text, http, exitcode) {#name, text, http, exitcode},
    ERR_LIST(X)
#undef X
};

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (!e)
        return code;
    /* The arguments may point into e->msg (re-wording an error), so format aside first. */
    char text[ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->code = code;
    memcpy(e->msg, text, sizeof text);
    return code;
}

static int code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EXDEV: /* openat2(RESOLVE_BENEATH): the path leaves its root */
        return ERR_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
        return ERR_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_DENIED;
    case ENOSPC:
    case EDQUOT:
        return ERR_FULL;
    case ENAMETOOLONG:
    case EINVAL:
        return ERR_INVALID;
    case ENOMEM:
        return ERR_MEMORY;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    case ECONNREFUSED:
        return ERR_UNAVAILABLE;
    default:
        return ERR_IO;
    }
}

int err_errno(struct err *e, int errnum, const char *fmt, ...)
{
    int code = code_of_errno(errnum);
    if (!e)
        return code;
    char text[ERR_MSG_MAX / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, code, "%s: %s", text, strerror(errnum));
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return ERR_INTERNAL;
    char text[ERR_MSG_MAX / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, e->code, "%s: %.*s", text, ERR_MSG_MAX / 2 - 4, e->msg);
}

static int ordinal(int code)
{
    int i = -code - 1;
    return code < 0 && i < ERR_COUNT ? i : ERR_ORD_INTERNAL;
}

const char *err_name(int code)
{
    return code >= 0 ? "OK" : err_table[ordinal(code)].name;
}

const char *err_text(int code)
{
    return code >= 0 ? "ok" : err_table[ordinal(code)].text;
}

int err_http(int code)
{
    return code >= 0 ? 200 : err_table[ordinal(code)].http;
}

int err_exit(int code)
{
    return code >= 0 ? 0 : err_table[ordinal(code)].exitcode;
}
