#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

#define SOURCE_COLUMNS 60
#define TRACEBACK_LINES 12

void progress_init(struct progress *p, size_t total)
{
    p->terminal = isatty(STDERR_FILENO);
    p->total = total;
}

/* The first line that says something, cut to fit; control characters become blanks. Heap. */
static char *headline(const char *source)
{
    source += strspn(source, " \t\r\n");
    size_t len = strcspn(source, "\n"), n = 0, columns = 0;
    for (; n < len; n++) {
        columns += ((unsigned char)source[n] & 0xc0) != 0x80;
        if (columns > SOURCE_COLUMNS)
            break;
    }
    char *out = xstrndup(source, n);
    for (char *q = out; *q; q++)
        if ((unsigned char)*q < 0x20 || *q == 0x7f)
            *q = ' ';
    return out;
}

void progress_cell(const struct progress *p, size_t n, int64_t elapsed_us, const char *source,
                   int done)
{
    if (!done && !p->terminal)
        return;
    autofree char *line = headline(source);
    autofree char *total = xasprintf("%zu", p->total);
    fprintf(stderr, "%s[%*zu/%s] %7.1f s  %s%s", p->terminal ? "\r\033[K" : "", (int)strlen(total),
            n, total, (double)elapsed_us / 1e6, line, done ? "\n" : "");
    fflush(stderr);
}

void progress_note(const struct progress *p, const char *text)
{
    fprintf(stderr, "%s%s\n", p->terminal ? "\r\033[K" : "", text);
}

/* Writes `text` without escape sequences, so that log files stay readable. */
static void put_plain(const char *text)
{
    while (*text) {
        if (*text == '\033' && text[1] == '[') {
            text += 2 + strspn(text + 2, "0123456789;?");
            text += *text != 0;
            continue;
        }
        if ((unsigned char)*text >= 0x20 || *text == '\n' || *text == '\t')
            fputc(*text, stderr);
        text++;
    }
    fputc('\n', stderr);
}

static const char *last_lines(const char *text, int lines)
{
    const char *p = text + strlen(text);
    while (p > text) {
        if (p[-1] == '\n' && --lines <= 0)
            break;
        p--;
    }
    return p;
}

void progress_error(const struct progress *p, size_t n, const json_t *output)
{
    const char *clear = p->terminal ? "\r\033[K" : "",
               *name = json_get_str(output, "ename", "an error");
    if (!strcmp(name, "KernelDied")) {
        fprintf(stderr, "%sThe kernel died while it ran cell %zu: %s\n", clear, n,
                json_get_str(output, "evalue", ""));
        return;
    }
    const json_t *traceback = json_object_get(output, "traceback"), *line;
    autobuf struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    size_t i;
    json_array_foreach(traceback, i, line)
    {
        const char *text = json_string_value(line);
        buf_add(&b, "%s%s", i ? "\n" : "", text ? text : "");
    }
    if (!b.len)
        buf_add(&b, "%s: %s", json_get_str(output, "ename", "Error"),
                json_get_str(output, "evalue", ""));
    fprintf(stderr, "%sCell %zu raised %s:\n", clear, n, name);
    put_plain(last_lines(buf_str(&b), TRACEBACK_LINES));
}
