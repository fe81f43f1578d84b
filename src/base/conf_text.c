/* What people read of the option table: help, manual page, completion. */
#include <string.h>

#include "base/alloc.h"
#include "base/conf.h"

#define HELP_INDENT 30
#define HELP_WIDTH 96
#define NAME_MAX_BYTES 64

enum type { TYPE_STR, TYPE_INT, TYPE_BOOL };

static const struct option {
    const char *name;
    enum type type;
    const char *def, *meta, *help;
} options[] = {
#define X(field, name, type, def, meta, help) {name, TYPE_##type, def, meta, help},
    CONF_LIST(X)
#undef X
};

/* Headings, by the first option of each group. */
static const struct {
    const char *first, *title;
} groups[] = {
    {"config", "Service"},     {"token", "Access"}, {"python", "Kernels"},
    {"terminals", "Features"}, {"log", "Logging"},
};

static const char *group_title(const char *name)
{
    for (size_t i = 0; i < COUNTOF(groups); i++)
        if (!strcmp(groups[i].first, name))
            return groups[i].title;
    return NULL;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits (insert, delete, replace) that lead from `a` to `b`; both at most NAME_MAX_BYTES. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_BYTES + 1], n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; *a; a++, i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (*a != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

const char *conf_nearest(const char *word, const char *const *names, size_t n)
{
    size_t len = strlen(word), best = len / 3 < 1 ? 2 : len / 3 + 2;
    const char *near = NULL;
    if (!len || len > NAME_MAX_BYTES)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (strlen(names[i]) > NAME_MAX_BYTES)
            continue;
        size_t d = distance(word, names[i]);
        if (d < best && d * 2 < len) { /* "port" is not near "root" */
            best = d;
            near = names[i];
        }
    }
    return near;
}

void conf_wrap(struct buf *out, const char *text, int column, int indent, int width)
{
    int at = column, first = 1;
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (!first && at + 1 + len > width) {
            buf_add(out, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            buf_add(out, " ");
            at++;
        }
        buf_add(out, "%.*s", len, text);
        at += len;
        first = 0;
        text += len;
        text += strspn(text, " ");
    }
}

void conf_roff(struct buf *out, const char *text)
{
    int line_start = 1;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            buf_add(out, "\\&");
        if (*text == '-')
            buf_add(out, "\\-");
        else if (*text == '\\')
            buf_add(out, "\\e");
        else
            buf_add(out, "%c", *text);
        line_start = *text == '\n';
    }
}

/* "; default: X" is left out where the help says it itself or nothing is set. */
static int default_shown(const struct option *o)
{
    return *o->def && !strstr(o->help, "default");
}

static void help_of(struct buf *b, const struct option *o)
{
    const char *no = o->type == TYPE_BOOL && !strcmp(o->def, "true") ? "no-" : "";
    size_t before = b->len;
    buf_add(b, "  --%s%s%s%s", no, o->name, *o->meta ? " " : "", o->meta);
    int column = (int)(b->len - before);
    if (column > HELP_INDENT - 2) {
        buf_add(b, "\n");
        column = 0;
    }
    buf_add(b, "%*s", HELP_INDENT - column, "");
    const char *not = *no ? "do not " : "";
    autofree char *text = default_shown(o) && o->type != TYPE_BOOL
                              ? xasprintf("%s (default: %s)", o->help, o->def)
                              : xasprintf("%s%s", not, o->help);
    conf_wrap(b, text, HELP_INDENT, HELP_INDENT, HELP_WIDTH);
    buf_add(b, "\n");
}

void conf_help(struct buf *out)
{
    for (size_t i = 0; i < COUNTOF(options); i++) {
        const char *title = group_title(options[i].name);
        if (title)
            buf_add(out, "%s%s:\n", i ? "\n" : "", title);
        help_of(out, &options[i]);
    }
}

static void man_option(struct buf *out, const struct option *o)
{
    buf_add(out, ".TP\n\\fB\\-\\-");
    conf_roff(out, o->name);
    buf_add(out, "\\fR");
    if (o->type == TYPE_BOOL) {
        buf_add(out, ", \\fB\\-\\-no\\-");
        conf_roff(out, o->name);
    } else {
        buf_add(out, " \\fI");
        conf_roff(out, o->meta);
    }
    buf_add(out, "\\fR\n");
    conf_roff(out, o->help);
    buf_add(out, ".\n");
    if (default_shown(o)) {
        buf_add(out, "Default: \\fB");
        conf_roff(out, o->def);
        buf_add(out, "\\fR\n");
    }
}

void conf_man(struct buf *out)
{
    buf_add(out,
            ".TH REITOSD 8 \"\" \"REITOS %s\" \"System administration\"\n.SH NAME\nreitosd \\- "
            "serve notebooks\n.SH SYNOPSIS\n.B reitosd\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\nServes "
            "JupyterLab and the Jupyter API. Kernels live in \\fBreitos\\-shim\\fR and survive the "
            "daemon.\n.SH OPTIONS\n",
            REITOS_VERSION);
    for (size_t i = 0; i < COUNTOF(options); i++) {
        const char *title = group_title(options[i].name);
        if (title)
            buf_add(out, ".SS %s\n", title);
        man_option(out, &options[i]);
    }
    buf_add(
        out,
        ".SH CONFIGURATION\nEach option can be set in the file (section \\fB[reitos]\\fR, "
        "\\fIname = value\\fR) and as environment variable \\fBREITOS_\\fINAME\\fR (in capitals, "
        "dashes as underscores). Flags win over the environment, the environment over the "
        "file.\n.SH SIGNALS\nTERM, INT and HUP end the daemon and its kernels. USR1 ends only the "
        "daemon; its kernels wait \\fB\\-\\-grace\\fR seconds for the next one.\n.SH EXIT STATUS\n"
        "0 ended by a signal; 1 it failed; 2 wrong use or configuration.\n.SH FILES\n.TP\n"
        "\\fI~/.config/reitos/reitos.ini\\fR\nConfiguration.\n.TP\n\\fI~/.local/share/reitos\\fR\n"
        "Data folder: kernels, journals, state.\n.SH SEE ALSO\n\\fBreitos\\fR(1)\n");
}

/* What bash completes after the option: words, files, folders, or nothing known. */
static void completion_value(struct buf *b, const struct option *o)
{
    if (!strcmp(o->meta, "FILE"))
        buf_add(b, "        --%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", o->name);
    else if (!strcmp(o->meta, "DIR"))
        buf_add(b, "        --%s) COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n", o->name);
    else if (strchr(o->meta, '|') && !strpbrk(o->meta, "ABCDEFGHIJKLMNOPQRSTUVWXYZ*")) {
        buf_add(b, "        --%s) COMPREPLY=($(compgen -W '", o->name);
        for (const char *p = o->meta; *p; p++)
            buf_add(b, "%c", *p == '|' ? ' ' : *p);
        buf_add(b, "' -- \"$cur\")); return ;;\n");
    } else if (o->type != TYPE_BOOL)
        buf_add(b, "        --%s) return ;;\n", o->name);
}

void conf_completion(struct buf *out, const char *program)
{
    buf_add(out, "_%s()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]}\n", program);
    buf_add(out, "    COMPREPLY=()\n    case ${COMP_WORDS[COMP_CWORD - 1]} in\n");
    for (size_t i = 0; i < COUNTOF(options); i++)
        completion_value(out, &options[i]);
    buf_add(out, "    esac\n    COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < COUNTOF(options); i++) {
        const char *no = options[i].type == TYPE_BOOL ? options[i].name : NULL;
        buf_add(out, "--%s ", options[i].name);
        if (no)
            buf_add(out, "--no-%s ", no);
    }
    buf_add(out, "--help --version' -- \"$cur\"))\n}\ncomplete -F _%s %s\n", program, program);
}
