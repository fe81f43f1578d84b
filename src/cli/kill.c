/* reitos kill: stop kernels. */
#include <stdio.h>

#include "cli/ask.h"

#define STOP_MS 20000

static int stop_one(const struct cli *c, const char *id, struct err *e)
{
    autojson json_t *reply = NULL;
    int r =
        ask_shim(c, json_pack("{s:s,s:s,s:b}", "op", "stop", "k", id, "now", cli_given(c, "now")),
                 STOP_MS, &reply, e);
    if (r < 0)
        return err_wrap(e, "%s", id);
    printf("%s\n", id);
    return 0;
}

static int stop_all(const struct cli *c, const json_t *kernels, struct err *e)
{
    const json_t *k;
    size_t i;
    json_array_foreach(kernels, i, k)
    {
        int r = stop_one(c, json_get_str(k, "id", ""), e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* All names are looked up before the first kernel is stopped: a typing error stops none. */
static int pick_all(const struct cli *c, const json_t *kernels, json_t *chosen, struct err *e)
{
    for (int i = 0; i < c->noperands; i++) {
        const json_t *k;
        int r = ask_pick(kernels, c->operands[i], &k, e);
        if (r < 0)
            return r;
        json_array_append(chosen, (json_t *)k);
    }
    return 0;
}

static int run_kill(struct cli *c, struct err *e)
{
    autojson json_t *kernels = NULL;
    autojson json_t *chosen = json_array();
    int all = cli_given(c, "all");
    if (all == (c->noperands > 0))
        return err_set(e, ERR_INVALID, "name kernels or give --all; reitos ps lists them");
    int r = ask_kernels(c, &kernels, e);
    if (r >= 0 && !all)
        r = pick_all(c, kernels, chosen, e);
    return r < 0 ? r : stop_all(c, all ? kernels : chosen, e);
}

static const struct cli_option options[] = {
    {"all", 'a', NULL, "every kernel of the data folder"},
    {"now", 0, NULL, "kill at once instead of asking the kernel to end"},
    CLI_OPTIONS_END,
};

const struct cli_command cli_kill = {
    .name = "kill",
    .operands = "[KERNEL...]",
    .summary = "stop kernels",
    .description = "KERNEL is an id or the beginning of one. Ids of stopped kernels are printed.",
    .examples = "reitos kill 3f2a\nreitos kill --all",
    .options = options,
    .max = -1,
    .run = run_kill,
};
