#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

static int run_help(struct cli *c, struct err *e);
static int run_version(struct cli *c, struct err *e);
static int run_completion(struct cli *c, struct err *e);

static const struct cli_option no_options[] = {CLI_OPTIONS_END};
static const struct cli_option version_options[] = {CLI_OUTPUT, CLI_OPTIONS_END};

const struct cli_option cli_globals[] = {
    {"data", 0, "DIR", "data folder (default: as configured for reitosd)"},
    {"help", 'h', NULL, "explain the command"},
    CLI_OPTIONS_END,
};

static const struct cli_command cmd_help = {
    "help", "[COMMAND]", "explain a command", NULL, NULL, no_options, 0, 1, CLI_NO_CONF, run_help};
static const struct cli_command cmd_version = {
    "version", "", "print the version", NULL,       NULL, version_options,
    0,         0,  CLI_NO_CONF,         run_version};
static const struct cli_command cmd_completion = {"completion",
                                                  "bash",
                                                  "print shell completion",
                                                  NULL,
                                                  "eval \"$(reitos completion bash)\"",
                                                  no_options,
                                                  1,
                                                  1,
                                                  CLI_NO_CONF,
                                                  run_completion};

const struct cli_command *const cli_commands[] = {
    &cli_up,         &cli_run,          &cli_ps,   &cli_log,     &cli_kill,       &cli_status,
    &cli_kernelspec, &cli_kernel_proxy, &cmd_help, &cmd_version, &cmd_completion, NULL};

const struct cli_command *cli_find(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++)
        if (!strcmp(cli_commands[i]->name, name))
            return cli_commands[i];
    return NULL;
}

/* --- options ------------------------------------------------------------------------------- */

static const struct cli_option *find_in(const struct cli_option *o, const char *name, size_t len)
{
    for (; o->name; o++)
        if (strlen(o->name) == len && !strncmp(o->name, name, len))
            return o;
    return NULL;
}

static const struct cli_option *find_long(const struct cli *c, const char *name, size_t len)
{
    const struct cli_option *o = find_in(c->command->options, name, len);
    return o ? o : find_in(cli_globals, name, len);
}

static const struct cli_option *find_letter(const struct cli *c, char letter)
{
    const struct cli_option *tables[] = {c->command->options, cli_globals};
    for (size_t t = 0; t < COUNTOF(tables); t++)
        for (const struct cli_option *o = tables[t]; o->name; o++)
            if (o->letter && o->letter == letter)
                return o;
    return NULL;
}

static int unknown_option(const struct cli *c, const char *arg, struct err *e)
{
    const char *names[64];
    size_t n = 0;
    for (const struct cli_option *o = c->command->options; o->name && n < COUNTOF(names); o++)
        names[n++] = o->name;
    for (const struct cli_option *o = cli_globals; o->name && n < COUNTOF(names); o++)
        names[n++] = o->name;
    autofree char *word = xstrndup(arg, strcspn(arg, "="));
    const char *near = strncmp(word, "--", 2) ? NULL : conf_nearest(word + 2, names, n);
    if (near)
        return err_set(e, ERR_INVALID, "unknown option %.64s; did you mean --%s?", word, near);
    return err_set(e, ERR_INVALID, "unknown option %.64s; see reitos help %s", word,
                   c->command->name);
}

/* Whether `value` is one of the words of "a|b"; metavars in capitals allow anything. */
static int word_allowed(const char *words, const char *value)
{
    if (!strchr(words, '|') || strpbrk(words, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        return 1;
    return conf_word(words, value);
}

static int add_value(struct cli *c, const struct cli_option *o, const char *value, struct err *e)
{
    if (c->nvalues == CLI_VALUES_MAX)
        return err_set(e, ERR_INVALID, "more than %d options", CLI_VALUES_MAX);
    if (o->meta && !word_allowed(o->meta, value))
        return err_set(e, ERR_INVALID, "--%s: \"%.40s\" is not one of %s", o->name, value, o->meta);
    c->values[c->nvalues].option = o;
    c->values[c->nvalues++].value = value;
    return 0;
}

/* Takes argv[i], which begins with a dash. Returns the number of entries used. */
static int parse_option(struct cli *c, int argc, char **argv, int i, struct err *e)
{
    const char *arg = argv[i], *inline_value = NULL;
    const struct cli_option *o;
    if (arg[1] == '-') {
        size_t len = strcspn(arg + 2, "=");
        o = find_long(c, arg + 2, len);
        inline_value = arg[2 + len] ? arg + 3 + len : NULL;
    } else {
        o = find_letter(c, arg[1]);
        inline_value = arg[2] ? arg + 2 : NULL;
    }
    if (!o && (c->command->flags & CLI_PASS)) {
        c->operands[c->noperands++] = argv[i];
        return 1;
    }
    if (!o)
        return unknown_option(c, arg, e);
    if (!o->meta && inline_value)
        return err_set(e, ERR_INVALID, "--%s takes no value", o->name);
    if (o->meta && !inline_value && i + 1 >= argc)
        return err_set(e, ERR_INVALID, "--%s needs a value: %s", o->name, o->meta);
    int used = o->meta && !inline_value ? 2 : 1;
    const char *value = used == 2 ? argv[i + 1] : inline_value ? inline_value : "";
    int r = add_value(c, o, value, e);
    return r < 0 ? r : used;
}

static int check_operands(const struct cli *c, struct err *e)
{
    const struct cli_command *cmd = c->command;
    if (cli_given(c, "help"))
        return 0;
    if (c->noperands < cmd->min)
        return err_set(e, ERR_INVALID, "needs %s; see reitos help %s", cmd->operands, cmd->name);
    if (cmd->max >= 0 && c->noperands > cmd->max)
        return err_set(e, ERR_INVALID, "unexpected argument %.64s; see reitos help %s",
                       c->operands[cmd->max], cmd->name);
    return 0;
}

int cli_parse(struct cli *c, int argc, char **argv, struct err *e)
{
    int only_operands = 0;
    for (int i = 0; i < argc;) {
        if (!only_operands && !strcmp(argv[i], "--")) {
            only_operands = 1;
            i++;
        } else if (only_operands || argv[i][0] != '-' || !argv[i][1]) {
            c->operands[c->noperands++] = argv[i++];
        } else {
            int used = parse_option(c, argc, argv, i, e);
            if (used < 0)
                return used;
            i += used;
        }
    }
    const char *output = find_in(c->command->options, "output", 6) ? cli_value(c, "output") : NULL;
    c->json = output && !strcmp(output, "json");
    return check_operands(c, e);
}

const char *cli_nth(const struct cli *c, const char *option, int n)
{
    for (int i = 0; i < c->nvalues; i++)
        if (!strcmp(c->values[i].option->name, option) && n-- == 0)
            return c->values[i].value;
    return NULL;
}

const char *cli_value(const struct cli *c, const char *option)
{
    const char *last = NULL;
    for (int i = 0; i < c->nvalues; i++)
        if (!strcmp(c->values[i].option->name, option))
            last = c->values[i].value;
    return last;
}

int cli_given(const struct cli *c, const char *option)
{
    return cli_value(c, option) != NULL;
}

int cli_number(const struct cli *c, const char *option, int64_t def, int64_t *ret, struct err *e)
{
    const char *text = cli_value(c, option);
    int64_t n = 0;
    *ret = def;
    if (!text)
        return 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || n > 100000000)
            return err_set(e, ERR_INVALID, "--%s: \"%.40s\" is not a whole number", option, text);
        n = n * 10 + (*p - '0');
    }
    if (!*text)
        return err_set(e, ERR_INVALID, "--%s: the number is missing", option);
    *ret = n;
    return 0;
}

/* --- small commands ------------------------------------------------------------------------ */

static int print_text(struct buf *b)
{
    fputs(buf_str(b), stdout);
    return 0;
}

static int unknown_command(const char *name, struct err *e)
{
    const char *names[32];
    size_t n = 0;
    while (cli_commands[n] && n < COUNTOF(names)) {
        names[n] = cli_commands[n]->name;
        n++;
    }
    const char *near = conf_nearest(name, names, n);
    if (near)
        return err_set(e, ERR_INVALID, "unknown command %.64s; did you mean %s?", name, near);
    return err_set(e, ERR_INVALID, "unknown command %.64s; see reitos help", name);
}

static int run_help(struct cli *c, struct err *e)
{
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    if (!c->noperands) {
        cli_help(&b);
        return print_text(&b);
    }
    const struct cli_command *cmd = cli_find(c->operands[0]);
    if (!cmd)
        return unknown_command(c->operands[0], e);
    cli_help_command(&b, cmd);
    return print_text(&b);
}

static int run_version(struct cli *c, struct err *e)
{
    (void)e;
    if (c->json)
        printf("{\"version\": \"%s\"}\n", REITOS_VERSION);
    else
        printf("reitos %s\n", REITOS_VERSION);
    return 0;
}

static int run_completion(struct cli *c, struct err *e)
{
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    if (strcmp(c->operands[0], "bash") != 0)
        return err_set(e, ERR_INVALID, "no completion for %.40s; known: bash", c->operands[0]);
    cli_completion(&b);
    return print_text(&b);
}

/* --- entry --------------------------------------------------------------------------------- */

/* The commands read the daemon's configuration, so that all agree on folders and kernels. */
static int load_conf(struct cli *c, struct err *e)
{
    const char *data = cli_value(c, "data");
    char *argv[] = {(char *)"reitos", (char *)"--data", (char *)data, NULL};
    int used;
    if (data && !*data)
        return err_set(e, ERR_INVALID, "--data: the folder's name is empty");
    return conf_load(&c->conf, data ? 3 : 1, argv, &used, e);
}

static int run_command(struct cli *c, int argc, char **argv, struct err *e)
{
    const struct cli_command *cmd = c->command;
    if (cmd->flags & CLI_RAW) {
        for (int i = 0; i < argc; i++)
            c->operands[c->noperands++] = argv[i];
    } else {
        int r = cli_parse(c, argc, argv, e);
        if (r < 0)
            return r;
    }
    if (cli_given(c, "help")) {
        autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
        cli_help_command(&b, cmd);
        return print_text(&b);
    }
    if (!(cmd->flags & CLI_NO_CONF)) {
        int r = load_conf(c, e);
        if (r < 0)
            return r;
    }
    return cmd->run(c, e);
}

/* Words before the command: --data DIR, --help, --version, --man. Returns the index of the
 * command's name, argc when there is none. */
static int leading_options(struct cli *c, int argc, char **argv, struct err *e)
{
    static const struct cli_command none = {"",         "", "", NULL,        NULL,
                                            no_options, 0,  0,  CLI_NO_CONF, NULL};
    int i = 1;
    c->command = &none;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        int used = parse_option(c, argc, argv, i, e);
        if (used < 0)
            return used;
        i += used;
    }
    return i;
}

/* "--man" and "--version", alone: 1 when served. */
static int informational(int argc, char **argv)
{
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return printf("reitos %s\n", REITOS_VERSION) > 0;
    if (argc != 2 || strcmp(argv[1], "--man") != 0)
        return 0;
    cli_man(&b);
    print_text(&b);
    return 1;
}

static int dispatch(struct cli *c, int argc, char **argv, struct err *e)
{
    int i = leading_options(c, argc, argv, e);
    if (i < 0)
        return i;
    if (i >= argc) {
        autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
        cli_help(&b);
        if (!cli_given(c, "help")) {
            fputs(buf_str(&b), stderr);
            return 2;
        }
        return print_text(&b);
    }
    c->command = cli_find(argv[i]);
    if (!c->command)
        return unknown_command(argv[i], e);
    return run_command(c, argc - i - 1, argv + i + 1, e);
}

int cli_main(int argc, char **argv)
{
    struct err e = {0};
    if (informational(argc, argv))
        return 0;
    struct cli *c = xcalloc(1, sizeof(*c));
    c->operands = xcalloc((size_t)argc + 1, sizeof(char *));
    json_setup();
    signal(SIGPIPE, SIG_IGN);
    int r = dispatch(c, argc, argv, &e);
    const char *name = c->command ? c->command->name : "";
    if (r < 0)
        fprintf(stderr, "reitos%s%s: %s\n", *name ? " " : "", name, e.msg);
    if (fflush(stdout) != 0 && r >= 0)
        r = 1; /* the reader of our output went away, or the disk is full */
    conf_free(&c->conf);
    free(c->operands);
    free(c);
    return r < 0 ? err_exit(r) : r;
}
