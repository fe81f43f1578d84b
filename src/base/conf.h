/* Configuration: one option table for the daemon, from which come the values, --help, the man page
 * and shell completion.
 *
 * Precedence: defaults < INI file ([reitos] section, key = option name) < environment
 * REITOS_<NAME> (dashes as underscores) < flags. An unknown key, flag or malformed value is
 * ERR_CONFIG naming where it stands. Set up once before threads; read-only afterwards.
 */
#ifndef REITOS_BASE_CONF_H
#define REITOS_BASE_CONF_H

#include "base/buf.h"
#include "base/err.h"

/* field, option name, type (STR, INT, BOOL), default, metavar, help */
#define CONF_LIST(X)                                                                             \
    X(config, "config", STR, "", "FILE",                                                         \
      "configuration file (default: $XDG_CONFIG_HOME/reitos/reitos.ini if present)")             \
    X(listen, "listen", STR, "127.0.0.1:8888", "ADDR:PORT|unix:PATH",                            \
      "where to listen; port 0 takes any free one")                                              \
    X(root, "root", STR, ".", "DIR", "folder that is served; nothing outside it can be reached") \
    X(data, "data", STR, "", "DIR",                                                              \
      "kernels, journals, state (default: $XDG_DATA_HOME/reitos); a local disk")                 \
    X(token, "token", STR, "", "TOKEN",                                                          \
      "access token; none: no login (default: random, printed once)")                            \
    X(base_url, "base-url", STR, "/", "/PATH/", "prefix of every URL")                           \
    X(tls_cert, "tls-cert", STR, "", "FILE", "TLS certificate chain (PEM)")                      \
    X(tls_key, "tls-key", STR, "", "FILE", "TLS private key (PEM)")                              \
    X(allow_remote, "allow-remote", BOOL, "false", "",                                           \
      "permit listening beyond loopback without TLS")                                            \
    X(allow_origin, "allow-origin", STR, "", "ORIGIN|*", "origin whose pages may use the API")   \
    X(allow_origin_pat, "allow-origin-pat", STR, "", "REGEX", "origins allowed, matched whole")  \
    X(allow_host, "allow-host", STR, "", "NAME,...", "further Host names that are accepted")     \
    X(python, "python", STR, "", "FILE",                                                         \
      "interpreter of the default kernel (default: build/venv)")                                 \
    X(preload, "preload", STR, "numpy,pandas", "NAMES", "modules that a zygote imports ahead")   \
    X(spares, "spares", INT, "1", "N", "kernels initialised ahead")                              \
    X(zygote, "zygote", BOOL, "true", "", "start Python kernels by fork")                        \
    X(default_kernel, "default-kernel", STR, "python3", "NAME",                                  \
      "kernelspec used when none is named")                                                      \
    X(grace, "grace", INT, "60", "SECONDS", "kernels outlive a vanished daemon for so long")     \
    X(cull_idle, "cull-idle-timeout", INT, "0", "SECONDS",                                       \
      "stop kernels idle for so long; 0: never")                                                 \
    X(cull_interval, "cull-interval", INT, "300", "SECONDS",                                     \
      "how often idle kernels are looked for")                                                   \
    X(cull_connected, "cull-connected", BOOL, "false", "", "also stop kernels with open pages")  \
    X(cull_busy, "cull-busy", BOOL, "false", "", "also stop busy kernels")                       \
    X(cull_terminals, "cull-terminals", INT, "0", "SECONDS",                                     \
      "close terminals idle for so long; 0: never")                                              \
    X(terminals, "terminals", BOOL, "true", "", "offer terminals")                               \
    X(journal_limit, "journal-limit", INT, "1024", "MIB", "journal kept per kernel")             \
    X(hidden, "allow-hidden", BOOL, "false", "", "serve files whose name begins with a dot")     \
    X(log, "log", STR, "text", "text|json", "form of the log on stderr")                         \
    X(log_level, "log-level", STR, "info", "debug|info|warning|error", "least level that is logged")

#define CONF_TYPE_STR const char *
#define CONF_TYPE_INT int64_t
#define CONF_TYPE_BOOL int

struct conf {
#define X(field, name, type, def, meta, help) CONF_TYPE_##type field;
    CONF_LIST(X)
#undef X
};

/* Fills `c` from all sources. Flags are "--name value", "--name=value", "--flag", "--no-flag".
 * Stops at the first non-option, or after "--"; *ret_used is the number of argv entries consumed
 * (argv[0] is skipped and not counted, so argv[1 + used] is what follows). Strings are owned by
 * `c` until conf_free(). An empty `data` has become the default folder, a relative `python` an
 * absolute path, "~/" at the start of any file or folder the home folder. On failure `c` is empty.
 * --help, --man, --version and the like are the program's: look for them before. */
int conf_load(struct conf *c, int argc, char **argv, int *ret_used, struct err *e) WARN_UNUSED;
void conf_free(struct conf *c);

/* The layers of conf_load one by one, on a `c` that conf_defaults() has filled. `file` is the name
 * that errors carry ("reitos.ini:3: ..."). */
void conf_defaults(struct conf *c);
int conf_parse_ini(struct conf *c, const char *file, const char *text, size_t len,
                   struct err *e) WARN_UNUSED;
#define CONF_FILE_MAX ((size_t)1 << 20)
#define CONF_LINE_MAX 4096

/* The data folder when none is configured: $XDG_DATA_HOME/reitos or ~/.local/share/reitos.
 * Heap string; ERR_CONFIG when there is no home folder. */
int conf_default_data(char **ret, struct err *e) WARN_UNUSED;

/* The member of `names` (n of them) nearest to `word`, NULL when none is near. */
const char *conf_nearest(const char *word, const char *const *names, size_t n);
/* Appends `text` in lines of at most `width` columns; all but the first begin with `indent`
 * spaces; `column` is where the first one starts. */
void conf_wrap(struct buf *out, const char *text, int column, int indent, int width);
/* Whether `value` is one of the words of "a|b|c". */
int conf_word(const char *words, const char *value);
/* Appends `text` safe for roff: dashes and backslashes escaped, no line begins a request. */
void conf_roff(struct buf *out, const char *text);

void conf_help(struct buf *out);                            /* option list for --help, grouped */
void conf_man(struct buf *out);                             /* the manual page reitosd(8) */
void conf_completion(struct buf *out, const char *program); /* bash completion */

#endif
