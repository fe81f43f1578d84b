/* What people read of the command table, and tables of results. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"

#define WIDTH 96
#define COMMAND_INDENT 16
#define OPTION_INDENT 26

static const char exit_codes[] =
    "0 done; 1 the work failed (a cell raised an error, a kernel died, a file could not be "
    "written, a kernel is unknown); 2 wrong use (option, notebook, kernelspec, configuration); 3 a "
    "service is not available "
    "or too slow; 130 and 143 ended by SIGINT and SIGTERM.";

static void pad(struct buf *b, size_t from, int column)
{
    int at = (int)(b->len - from);
    if (at > column - 2)
        buf_add(b, "\n%*s", column, "");
    else
        buf_add(b, "%*s", column - at, "");
}

static void options_help(struct buf *b, const struct cli_option *o)
{
    for (; o->name; o++) {
        size_t from = b->len;
        if (o->letter)
            buf_add(b, "  -%c, --%s", o->letter, o->name);
        else
            buf_add(b, "  --%s", o->name);
        if (o->meta)
            buf_add(b, " %s", o->meta);
        pad(b, from, OPTION_INDENT);
        conf_wrap(b, o->help, OPTION_INDENT, OPTION_INDENT, WIDTH);
        buf_add(b, "\n");
    }
}

void cli_help(struct buf *b)
{
    buf_add(b, "Usage: reitos [--data DIR] COMMAND [ARGUMENTS]\n\nCommands:\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        size_t from = b->len;
        buf_add(b, "  %s", cli_commands[i]->name);
        pad(b, from, COMMAND_INDENT);
        buf_add(b, "%s\n", cli_commands[i]->summary);
    }
    buf_add(b, "\n\"reitos help COMMAND\" says more.\n\nExit codes:\n  ");
    conf_wrap(b, exit_codes, 2, 2, WIDTH);
    buf_add(b, "\n");
}

/* Indents each line of `text` by two spaces. */
static void indented(struct buf *b, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        buf_add(b, "  %.*s\n", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

static void paragraphs(struct buf *b, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        autofree char *one = xstrndup(text, len);
        buf_add(b, "\n");
        conf_wrap(b, one, 0, 0, WIDTH);
        buf_add(b, "\n");
        text += len + (text[len] == '\n');
    }
}

void cli_help_command(struct buf *b, const struct cli_command *cmd)
{
    buf_add(b, "Usage: reitos %s%s%s%s\n\n%c%s.\n", cmd->name,
            cmd->options->name ? " [OPTIONS]" : "", *cmd->operands ? " " : "", cmd->operands,
            cmd->summary[0] - 'a' + 'A', cmd->summary + 1);
    if (cmd->description)
        paragraphs(b, cmd->description);
    buf_add(b, "\nOptions:\n");
    options_help(b, cmd->options);
    options_help(b, cli_globals);
    if (cmd->examples) {
        buf_add(b, "\nExamples:\n");
        indented(b, cmd->examples);
    }
}

/* --- man page ------------------------------------------------------------------------------ */

static void man_options(struct buf *b, const struct cli_option *o)
{
    for (; o->name; o++) {
        buf_add(b, ".TP\n");
        if (o->letter)
            buf_add(b, "\\fB\\-%c\\fR, ", o->letter);
        buf_add(b, "\\fB\\-\\-");
        conf_roff(b, o->name);
        buf_add(b, "\\fR");
        if (o->meta) {
            buf_add(b, " \\fI");
            conf_roff(b, o->meta);
            buf_add(b, "\\fR");
        }
        buf_add(b, "\n");
        conf_roff(b, o->help);
        buf_add(b, ".\n");
    }
}

static void man_paragraphs(struct buf *b, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        autofree char *one = xstrndup(text, len);
        buf_add(b, ".PP\n");
        conf_roff(b, one);
        buf_add(b, "\n");
        text += len + (text[len] == '\n');
    }
}

static void man_command(struct buf *b, const struct cli_command *cmd)
{
    buf_add(b, ".SS \"reitos ");
    conf_roff(b, cmd->name);
    buf_add(b, "%s%s%s\"\n%c", cmd->options->name ? " [OPTIONS]" : "", *cmd->operands ? " " : "",
            cmd->operands, cmd->summary[0] - 'a' + 'A');
    conf_roff(b, cmd->summary + 1);
    buf_add(b, ".\n");
    if (cmd->description)
        man_paragraphs(b, cmd->description);
    man_options(b, cmd->options);
    if (cmd->examples) {
        buf_add(b, ".PP\n.EX\n");
        conf_roff(b, cmd->examples);
        buf_add(b, "\n.EE\n");
    }
}

void cli_man(struct buf *b)
{
    buf_add(b,
            ".TH REITOS 1 \"\" \"REITOS %s\" \"User commands\"\n.SH NAME\nreitos \\- run notebooks "
            "and look after kernels\n.SH SYNOPSIS\n.B reitos\n[\\fB\\-\\-data\\fR \\fIDIR\\fR] "
            "\\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.SH COMMANDS\n",
            REITOS_VERSION);
    for (size_t i = 0; cli_commands[i]; i++)
        man_command(b, cli_commands[i]);
    buf_add(b, ".SH COMMON OPTIONS\n");
    man_options(b, cli_globals);
    buf_add(b, ".SH EXIT STATUS\n");
    conf_roff(b, exit_codes);
    buf_add(b, "\n.SH ENVIRONMENT\nThe variables \\fBREITOS_*\\fR and the configuration file of "
               "\\fBreitosd\\fR(8) apply.\n.SH SEE ALSO\n\\fBreitosd\\fR(8)\n");
}

/* --- completion ---------------------------------------------------------------------------- */

static void completion_options(struct buf *b, const struct cli_option *o)
{
    for (; o->name; o++)
        buf_add(b, " --%s", o->name);
}

/* What follows an option of this command, where something is known about it. */
static void completion_values(struct buf *b, const struct cli_option *o)
{
    for (; o->name; o++) {
        if (!o->meta)
            continue;
        buf_add(b, "            --%s", o->name);
        if (o->letter)
            buf_add(b, "|-%c", o->letter);
        if (!strcmp(o->meta, "DIR"))
            buf_add(b, ") COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n");
        else if (strstr(o->meta, "FILE"))
            buf_add(b, ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
        else if (strchr(o->meta, '|')) {
            buf_add(b, ") COMPREPLY=($(compgen -W '");
            for (const char *p = o->meta; *p; p++)
                buf_add(b, "%c", *p == '|' ? ' ' : *p);
            buf_add(b, "' -- \"$cur\")); return ;;\n");
        } else
            buf_add(b, ") return ;;\n");
    }
}

void cli_completion(struct buf *b)
{
    buf_add(b, "_reitos()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]} "
               "prev=${COMP_WORDS[COMP_CWORD - 1]}\n    COMPREPLY=()\n    case "
               "${COMP_WORDS[1]} in\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *cmd = cli_commands[i];
        if (cmd->flags & CLI_RAW)
            continue;
        buf_add(b, "    %s)\n        case $prev in\n", cmd->name);
        completion_values(b, cmd->options);
        completion_values(b, cli_globals);
        buf_add(b, "        esac\n        case $cur in -*) COMPREPLY=($(compgen -W '");
        completion_options(b, cmd->options);
        completion_options(b, cli_globals);
        buf_add(b, "' -- \"$cur\")); return ;; esac\n");
        if (strstr(cmd->operands, "NOTEBOOK"))
            buf_add(b, "        COMPREPLY=($(compgen -f -X '!*.ipynb' -- \"$cur\") "
                       "$(compgen -d -- \"$cur\"))\n");
        buf_add(b, "        return ;;\n");
    }
    buf_add(b, "    esac\n    COMPREPLY=($(compgen -W '");
    for (size_t i = 0; cli_commands[i]; i++)
        buf_add(b, "%s%s", i ? " " : "", cli_commands[i]->name);
    buf_add(b, "' -- \"$cur\"))\n}\ncomplete -o filenames -F _reitos reitos\n");
    conf_completion(b, "reitosd");
}

/* --- results ------------------------------------------------------------------------------- */

/* Names come from notebooks and programs: none may steer the terminal. */
static char *printable(char *s)
{
    for (char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return s;
}

/* A cell of a table; heap. */
static char *cell_text(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    if (json_is_string(v))
        return printable(xstrdup(*json_string_value(v) ? json_string_value(v) : "-"));
    if (json_is_integer(v))
        return xasprintf("%lld", (long long)json_integer_value(v));
    if (json_is_real(v))
        return xasprintf("%.1f", json_real_value(v));
    if (json_is_boolean(v))
        return xstrdup(json_is_true(v) ? "yes" : "no");
    return xstrdup("-");
}

/* Columns of a UTF-8 text, one per code point. */
static size_t columns_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void table_cell(struct buf *b, const char *text, size_t width, int right, int last)
{
    size_t n = columns_of(text);
    int fill = (int)(width > n ? width - n : 0);
    if (right)
        buf_add(b, "%*s%s", fill, "", text);
    else
        buf_add(b, "%s%*s", text, last ? 0 : fill, "");
    buf_add(b, "%s", last ? "\n" : "  ");
}

void cli_format_rows(struct buf *out, const json_t *rows, const struct cli_column *columns,
                     size_t n)
{
    autofree size_t *width = xcalloc(n, sizeof(*width));
    for (size_t c = 0; c < n; c++) {
        width[c] = strlen(columns[c].title);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            autofree char *text = cell_text(json_array_get(rows, r), columns[c].key);
            size_t w = columns_of(text);
            width[c] = w > width[c] ? w : width[c];
        }
    }
    for (size_t c = 0; c < n; c++)
        table_cell(out, columns[c].title, width[c], columns[c].right, c + 1 == n);
    for (size_t r = 0; r < json_array_size(rows); r++)
        for (size_t c = 0; c < n; c++) {
            autofree char *text = cell_text(json_array_get(rows, r), columns[c].key);
            table_cell(out, text, width[c], columns[c].right, c + 1 == n);
        }
}

void cli_print_json(const json_t *v)
{
    autofree char *text = json_dumps(v, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
    printf("%s\n", text ? text : "null");
}

void cli_print_rows(const struct cli *c, const json_t *rows, const struct cli_column *columns,
                    size_t n)
{
    if (c->json) {
        cli_print_json(rows);
        return;
    }
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    cli_format_rows(&b, rows, columns, n);
    fputs(buf_str(&b), stdout);
}
