/* The command line: a table of commands, from which come dispatch, help, the man page and shell
 * completion. One file per command; each exports a `struct cli_command`.
 *
 * Exit codes: 0 done, 1 the work failed, 2 wrong use, 3 a service is not available, 130 and 143
 * ended by SIGINT and SIGTERM. Results go to stdout; progress and errors to stderr, errors as one
 * line "reitos COMMAND: what happened, to which thing; what to do". One thread.
 */
#ifndef REITOS_CLI_CLI_H
#define REITOS_CLI_CLI_H

#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"
#include "base/json.h"

struct cli_option {
    const char *name; /* without dashes; NULL ends a table */
    char letter;      /* 0: none */
    const char *meta; /* NULL: a switch. "json|table": one of these words */
    const char *help;
};

#define CLI_OUTPUT                                                         \
    {                                                                      \
        "output", 'o', "json|table", "form of the result (default: table)" \
    }
#define CLI_OPTIONS_END     \
    {                       \
        NULL, 0, NULL, NULL \
    }

struct cli;
/* Returns the exit code, or a negative error that the caller prints. */
typedef int (*cli_run_fn)(struct cli *c, struct err *e);

enum {
    CLI_RAW = 1,     /* everything after the name is handed on as it is */
    CLI_NO_CONF = 2, /* works without a valid configuration */
    CLI_PASS = 4,    /* options that are unknown here are operands: another program knows them */
};

struct cli_command {
    const char *name;
    const char *operands;    /* "NOTEBOOK", "[KERNEL...]", "" */
    const char *summary;     /* one line */
    const char *description; /* paragraphs, or NULL */
    const char *examples;    /* lines of commands, or NULL */
    const struct cli_option *options;
    int min, max; /* operands; max -1: any number */
    int flags;
    cli_run_fn run;
};

extern const struct cli_command *const cli_commands[]; /* ended by NULL */
extern const struct cli_option cli_globals[];
extern const struct cli_command cli_up, cli_run, cli_ps, cli_kill, cli_log, cli_status,
    cli_kernel_proxy, cli_kernelspec;

#define CLI_VALUES_MAX 256

struct cli {
    const struct cli_command *command;
    char **operands;
    int noperands;
    struct conf conf; /* of commands without CLI_NO_CONF */
    struct {          /* options as given, in order */
        const struct cli_option *option;
        const char *value; /* "" for switches */
    } values[CLI_VALUES_MAX];
    int nvalues;
    int json; /* -o json */
};

int cli_main(int argc, char **argv);

/* Takes the words after the command's name apart. `c->command` is set; operands are collected in
 * `c->operands` (room for argc pointers is made by the caller). ERR_INVALID. */
int cli_parse(struct cli *c, int argc, char **argv, struct err *e) WARN_UNUSED;
const struct cli_command *cli_find(const char *name); /* NULL when unknown */
int cli_given(const struct cli *c, const char *option);
const char *cli_value(const struct cli *c, const char *option);      /* the last one, or NULL */
const char *cli_nth(const struct cli *c, const char *option, int n); /* n-th from 0, or NULL */
/* A number of seconds or lines; `def` when not given. */
int cli_number(const struct cli *c, const char *option, int64_t def, int64_t *ret,
               struct err *e) WARN_UNUSED;

/* Texts (cli_text.c). */
void cli_help(struct buf *out);
void cli_help_command(struct buf *out, const struct cli_command *cmd);
void cli_man(struct buf *out);
void cli_completion(struct buf *out);

/* Prints `rows` (array of objects, borrowed): as JSON, or the columns as an aligned table. */
struct cli_column {
    const char *key, *title;
    int right; /* aligned */
};
void cli_print_rows(const struct cli *c, const json_t *rows, const struct cli_column *columns,
                    size_t n);
void cli_format_rows(struct buf *out, const json_t *rows, const struct cli_column *columns,
                     size_t n);
void cli_print_json(const json_t *v);

#endif
