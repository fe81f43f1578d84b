/* Notebooks on standard input, one JSON text a line; on standard output each as nb_write() makes
 * it, ended by a NUL byte. With "join", lines are joined first (what clients get). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/nb.h"

static int convert(const char *text, size_t len, int join)
{
    autojson json_t *nb = NULL;
    autobuf struct buf out = BUF_INIT(BUF_DEFAULT_MAX);
    struct err e = {0};
    int rc = json_parse(text, len, &nb, &e);
    if (rc < 0) {
        fprintf(stderr, "nb_tool: %s\n", e.msg);
        return rc;
    }
    if (join)
        nb_join_lines(nb);
    rc = nb_write(nb, &out);
    if (rc == 0 && fwrite(out.data, 1, out.len + 1, stdout) != out.len + 1)
        rc = ERR_IO;
    return rc;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0, join = argc > 1 && strcmp(argv[1], "join") == 0;
    while (rc == 0 && (n = getline(&line, &cap, stdin)) > 0)
        rc = convert(line, (size_t)n, join);
    free(line);
    return rc < 0;
}
