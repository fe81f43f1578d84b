/* reitos-shim: parent of kernels and keeper of their output (docs/protocol.md). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"
#include "kernel/shim.h"

static const char usage[] =
    "usage: reitos-shim --data DIR [--grace SECONDS] [--journal-limit MIB] [--log text|json]\n"
    "Started by reitosd and reitos; not meant to be started by hand.\n";

struct options {
    const char *data, *log;
    int grace, journal_limit;
};

static int number(const char *text, long max, int *ret)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (!*text || *end || n < 0 || n > max)
        return -1;
    *ret = (int)n;
    return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        int rc = 0;
        if (!value)
            return -1;
        if (strcmp(name, "--data") == 0)
            o->data = value;
        else if (strcmp(name, "--log") == 0)
            o->log = value;
        else if (strcmp(name, "--grace") == 0)
            rc = number(value, 86400, &o->grace);
        else if (strcmp(name, "--journal-limit") == 0)
            rc = number(value, 1 << 20, &o->journal_limit);
        else
            return -1;
        if (rc < 0)
            return -1;
    }
    return o->data && (strcmp(o->log, "text") == 0 || strcmp(o->log, "json") == 0) ? 0 : -1;
}

/* zygote.py of the source tree that this program was built in, or of the installation. */
static char *find_zygote(void)
{
    static const char *const places[] = {"../python/reitos/zygote.py",
                                         "../share/reitos/python/reitos/zygote.py",
                                         "../lib/reitos/python/reitos/zygote.py"};
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return xstrdup("");
    exe[n] = '\0';
    *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < COUNTOF(places); i++) {
        autofree char *path = xasprintf("%s/%s", exe, places[i]);
        char *real = realpath(path, NULL);
        if (real)
            return real;
    }
    return xstrdup("");
}

int main(int argc, char **argv)
{
    struct options o = {.log = "text", .grace = 60, .journal_limit = 1024};
    if (parse(argc, argv, &o) < 0) {
        fputs(usage, stderr);
        return 2;
    }
    log_setup(LOG_INFO, strcmp(o.log, "json") == 0, "reitos-shim");
    json_setup();
    autofree char *data = realpath(o.data, NULL);
    autofree char *zygote = find_zygote();
    if (!data) {
        fprintf(stderr, "reitos-shim: %s: no such folder\n", o.data);
        return 2;
    }
    struct shim_conf conf = {
        .data = data, .zygote = zygote, .grace_s = o.grace, .journal_limit = o.journal_limit};
    struct err e = {0};
    int rc = shim_run(&conf, &e);
    if (rc < 0) {
        log_error("cannot start", "reason", e.msg, NULL);
        return err_exit(rc);
    }
    return 0;
}
