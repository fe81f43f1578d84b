/* reitos up: the daemon, in the foreground. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/kern.h"

static int run_up(struct cli *c, struct err *e)
{
    static const struct conf none = {.python = ""};
    const char *data = cli_value(c, "data");
    struct paths p;
    paths_find(&p, &none);
    autofree char *program = xasprintf("%s/reitosd", p.dir);
    paths_free(&p);
    autofree char **argv = xcalloc((size_t)c->noperands + 4, sizeof(char *));
    int n = 0;
    argv[n++] = program;
    if (data) {
        argv[n++] = (char *)"--data";
        argv[n++] = (char *)data;
    }
    for (int i = 0; i < c->noperands; i++)
        argv[n++] = c->operands[i];
    execv(program, argv);
    return err_errno(e, errno, "%s", program);
}

static const struct cli_option options[] = {CLI_OPTIONS_END};

const struct cli_command cli_up = {
    .name = "up",
    .operands = "[OPTIONS OF reitosd]",
    .summary = "start the daemon here and print its address",
    .description = "Runs reitosd in the foreground with the same options: see reitosd --help.",
    .examples = "reitos up\nreitos up --root ~/notebooks --listen 127.0.0.1:0",
    .options = options,
    .max = -1,
    .flags = CLI_RAW | CLI_NO_CONF,
    .run = run_up,
};
