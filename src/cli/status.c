/* reitos status: what the daemon and the shim of this data folder are doing. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "cli/ask.h"
#include "wire/httpc.h"

#define INFO_MAX ((size_t)1 << 16)
#define API_MS 5000
#define STATS_MS 5000

/* What the running daemon has left for us; new reference. */
static int read_info(const struct cli *c, json_t **ret, struct err *e)
{
    autofree char *path = xasprintf("%s/run/reitosd.json", c->conf.data);
    autobuf struct buf text = BUF_INIT(INFO_MAX);
    int r = fs_read_path(path, INFO_MAX, &text, e);
    if (r == ERR_NOT_FOUND)
        return err_set(e, ERR_UNAVAILABLE, "no daemon runs on %s; reitos up starts one",
                       c->conf.data);
    if (r >= 0)
        r = json_parse(buf_str(&text), text.len, ret, e);
    return r < 0 ? err_wrap(e, "%s", path) : 0;
}

/* "unix:/path/of.sock/base/" is the socket's path followed by the base URL: the longest leading
 * part that is a socket is the path. Heap; NULL when there is none. */
static char *socket_of(const char *url)
{
    char *path = xstrdup(url + strlen("unix:"));
    for (char *end = path + strlen(path); end > path; end--) {
        struct stat st;
        *end = 0;
        if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
            return path;
    }
    free(path);
    return NULL;
}

static int ask_daemon(const json_t *info, json_t **ret, struct err *e)
{
    const char *url = json_get_str(info, "url", ""), *token = json_get_str(info, "token", "");
    autofree char *auth = xasprintf("Authorization: token %s", token);
    const char *headers[] = {*token ? auth : NULL, NULL};
    int is_unix = !strncmp(url, "unix:", 5);
    autofree char *sock = is_unix ? socket_of(url) : NULL;
    if (is_unix && !sock)
        return err_set(e, ERR_UNAVAILABLE, "%s: no such socket", url);
    autofree char *target =
        is_unix ? xasprintf("http://localhost%sapi/status", url + strlen("unix:") + strlen(sock))
                : xasprintf("%sapi/status", url);
    struct httpc_request q = {
        .url = target, .headers = headers, .timeout_ms = API_MS, .unix_socket = sock, .own = 1};
    struct httpc_response answer = {0};
    int r = httpc_call(&q, &answer, e);
    if (r < 0)
        return err_wrap(e, "the daemon (process %lld)", (long long)json_get_int(info, "pid", 0));
    if (answer.status != 200)
        r = err_set(e, ERR_UNAVAILABLE, "%s answers with status %d", target, answer.status);
    else
        r = json_parse(buf_str(&answer.body), answer.body.len, ret, e);
    buf_free(&answer.body);
    return r;
}

static void print_counters(const json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        if (json_is_integer(v) && strcmp(key, "re") != 0)
            printf("  %-16s %lld\n", key, (long long)json_integer_value(v));
    }
}

static void print_text(const struct cli *c, const json_t *info, const json_t *api,
                       const json_t *shim)
{
    printf("data      %s\n", c->conf.data);
    if (api)
        printf("daemon    %s (process %lld, since %s)\nroot      %s\nkernels   %lld, "
               "connections %lld\n",
               json_get_str(info, "url", ""), (long long)json_get_int(info, "pid", 0),
               json_get_str(api, "started", json_get_str(info, "started", "")),
               json_get_str(info, "root", ""), (long long)json_get_int(api, "kernels", 0),
               (long long)json_get_int(api, "connections", 0));
    else
        printf("daemon    %s\n", info ? "does not answer" : "not running");
    printf("shim      %s\n", shim ? "running" : "not running");
    if (shim)
        print_counters(shim);
}

static int run_status(struct cli *c, struct err *e)
{
    autojson json_t *info = NULL;
    autojson json_t *api = NULL;
    autojson json_t *shim = NULL;
    struct err quiet = {0};
    int r = read_info(c, &info, e);
    if (r >= 0)
        r = ask_daemon(info, &api, e);
    if (ask_shim(c, json_pack("{s:s}", "op", "stats"), STATS_MS, &shim, &quiet) < 0)
        shim = NULL; /* shown as not running */
    if (c->json) {
        json_object_del(info, "token");
        json_object_del(shim, "re");
        autojson json_t *all = json_pack("{s:s,s:O?,s:O?,s:O?}", "data", c->conf.data, "daemon",
                                         info, "status", api, "shim", shim);
        cli_print_json(all);
    } else
        print_text(c, info, api, shim);
    return r;
}

static const struct cli_option options[] = {CLI_OUTPUT, CLI_OPTIONS_END};

const struct cli_command cli_status = {
    .name = "status",
    .operands = "",
    .summary = "show the daemon and the keeper of its kernels",
    .description = "Exit code 3 when no daemon answers.",
    .examples = "reitos status\nreitos status -o json",
    .options = options,
    .run = run_status,
};
