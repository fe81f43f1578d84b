/* Structured log lines on stderr: text for people, or JSON lines (--log json).
 *
 * Only boundaries log (a request, an RPC, a command); inner code returns errors. Values never hold
 * a token, cookie or key: log_redact() masks them in URLs. Any thread; one write(2) per line.
 *
 *     log_info("kernel started", "kernel", id, "via", "zygote", NULL);
 */
#ifndef REITOS_BASE_LOG_H
#define REITOS_BASE_LOG_H

#include <stddef.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_setup(enum log_level min, int json, const char *program);

/* Key/value pairs of C strings follow, ended by NULL; a NULL value is printed as "". */
void log_event(enum log_level level, const char *what, ...) __attribute__((sentinel));

#define log_debug(...) log_event(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_event(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_event(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_event(LOG_ERROR, __VA_ARGS__)

/* Copies `url` to `out`, values of query keys that name a secret (token, _xsrf, code, state,
 * password) replaced by "[secret]". Always terminates. Returns `out`. */
const char *log_redact(const char *url, char *out, size_t size);

#endif
