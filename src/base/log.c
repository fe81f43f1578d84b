#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/sys.h"

#define LINE_MAX_BYTES 8192

static struct {
    enum log_level min;
    int json;
    const char *program;
} conf = {LOG_INFO, 0, "reitos"};

void log_setup(enum log_level min, int json, const char *program)
{
    conf.min = min;
    conf.json = json;
    conf.program = program;
}

/* Appends `s` escaped for a JSON string or, quoted when needed, for a text line. A full buffer cuts
 * the value short, never the process: hence the ignored results. */
static void put_escaped(struct buf *b, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (b->len + 8 > b->max - 64)
            return;
        if (c == '"' || c == '\\')
            IGNORE_RESULT(buf_printf(b, "\\%c", c));
        else if (c == '\n')
            IGNORE_RESULT(buf_puts(b, "\\n"));
        else if (c < 0x20 || c == 0x7f)
            IGNORE_RESULT(buf_printf(b, "\\u%04x", c));
        else
            IGNORE_RESULT(buf_append(b, s, 1));
    }
}

static void put_pair(struct buf *b, const char *key, const char *value)
{
    int bare = *value && strcspn(value, " \"\\\n\t=") == strlen(value);
    if (conf.json)
        IGNORE_RESULT(buf_printf(b, ",\"%s\":\"", key));
    else
        IGNORE_RESULT(buf_printf(b, bare ? " %s=" : " %s=\"", key));
    put_escaped(b, value);
    if (conf.json || !bare)
        IGNORE_RESULT(buf_puts(b, "\""));
}

void log_event(enum log_level level, const char *what, ...)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    if (level < conf.min)
        return;
    autobuf struct buf b = BUF_INIT(LINE_MAX_BYTES);
    char ts[SYS_TIME_MAX];
    sys_time_iso(sys.wall_us(), ts);
    if (conf.json) {
        IGNORE_RESULT(
            buf_printf(&b, "{\"time\":\"%s\",\"level\":\"%s\",\"program\":\"%s\",\"event\":\"", ts,
                       names[level], conf.program));
        put_escaped(&b, what);
        IGNORE_RESULT(buf_puts(&b, "\""));
    } else {
        IGNORE_RESULT(buf_printf(&b, "%.23s %s[%s] %s", ts, conf.program, names[level], what));
    }
    va_list ap;
    va_start(ap, what);
    for (const char *key; (key = va_arg(ap, const char *));) {
        const char *value = va_arg(ap, const char *);
        put_pair(&b, key, value ? value : "");
    }
    va_end(ap);
    IGNORE_RESULT(buf_puts(&b, conf.json ? "}\n" : "\n"));
    /* A log that cannot be written has nowhere to report to. */
    if (write(STDERR_FILENO, buf_str(&b), b.len) < 0)
        return;
}

const char *log_redact(const char *url, char *out, size_t size)
{
    static const char *const secret[] = {"token", "_xsrf", "code", "state", "password"};
    size_t n = 0;
    int in_query = 0;
    while (*url && n + 10 < size) {
        out[n++] = *url;
        int starts_pair = *url == '?' || (in_query && *url == '&');
        in_query |= *url == '?';
        url++;
        if (!starts_pair)
            continue;
        for (size_t i = 0; i < sizeof secret / sizeof *secret; i++) {
            size_t len = strlen(secret[i]);
            if (strncasecmp(url, secret[i], len) || url[len] != '=' || n + len + 10 >= size)
                continue;
            n += (size_t)snprintf(out + n, size - n, "%s=[secret]", secret[i]);
            url += strcspn(url, "&#");
            break;
        }
    }
    out[n] = '\0';
    return out;
}
