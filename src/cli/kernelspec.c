/* reitos kernelspec: makes REITOS kernels known to every Jupyter client of this machine. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/sys.h"
#include "cli/kern.h"
#include "kernel/kspec.h"

#define LOGO_MAX ((size_t)1 << 20)

/* <jupyter data>/kernels/NAME; heap. */
static int spec_dir(const struct cli *c, const char *name, char **ret, struct err *e)
{
    const char *prefix = cli_value(c, "prefix"), *data = sys.env("JUPYTER_DATA_DIR");
    const char *xdg = sys.env("XDG_DATA_HOME"), *home = sys.env("HOME");
    if (prefix && cli_given(c, "user"))
        return err_set(e, ERR_INVALID, "--user and --prefix exclude each other");
    if (prefix)
        *ret = xasprintf("%s/share/jupyter/kernels/%s", prefix, name);
    else if (data && *data)
        *ret = xasprintf("%s/kernels/%s", data, name);
    else if (xdg && *xdg)
        *ret = xasprintf("%s/jupyter/kernels/%s", xdg, name);
    else if (home && *home)
        *ret = xasprintf("%s/.local/share/jupyter/kernels/%s", home, name);
    else
        return err_set(e, ERR_CONFIG, "HOME is not set; name a place with --prefix DIR");
    return 0;
}

static int valid_name(const char *name)
{
    return *name && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(name) &&
           *name != '.';
}

/* The kernelspec of the proxy; `entry` is the kernel's behind it. New reference. */
static json_t *make_spec(const struct cli *c, const char *self, const char *kernel,
                         const json_t *entry)
{
    const json_t *spec = json_object_get(entry, "spec");
    const char *shown = cli_value(c, "display-name"), *data = cli_value(c, "data");
    autofree char *title =
        shown ? xstrdup(shown)
              : xasprintf("%s (REITOS)", json_get_str(spec, "display_name", kernel));
    json_t *argv = json_pack("[s,s,s,s,s,s]", self, "kernel-proxy", "-f", "{connection_file}",
                             "--kernel", kernel);
    if (data) {
        json_array_append_new(argv, json_string("--data"));
        json_array_append_new(argv, json_string(c->conf.data));
    }
    json_t *theirs = json_object_get(spec, "metadata");
    json_t *metadata = json_is_object(theirs) ? json_deep_copy(theirs) : json_object();
    json_object_del(metadata, "supported_encryption"); /* the proxy's sockets are signed only */
    return json_pack("{s:o,s:s,s:s,s:s,s:o}", "argv", argv, "display_name", title, "language",
                     json_get_str(spec, "language", "python"), "interrupt_mode", "message",
                     "metadata", metadata);
}

/* Logos make the kernel recognisable; a missing one is no failure. */
static void copy_logos(const json_t *entry, const char *dir)
{
    const char *file;
    json_t *path;
    json_object_foreach(json_object_get(entry, "resources"), file, path)
    {
        autobuf struct buf image = BUF_INIT(LOGO_MAX);
        autofree char *to = xasprintf("%s/%s", dir, file);
        if (strncmp(file, "logo-", 5) || strchr(file, '/') || !json_is_string(path))
            continue;
        if (fs_read_path(json_string_value(path), LOGO_MAX, &image, NULL) >= 0)
            IGNORE_RESULT(fs_write_path(to, buf_str(&image), image.len, 0644, NULL));
    }
}

static int write_spec(const struct cli *c, const char *dir, const char *kernel, const json_t *entry,
                      const char *self, struct err *e)
{
    autojson json_t *spec = make_spec(c, self, kernel, entry);
    autofree char *text = json_dumps(spec, JSON_INDENT(1));
    autofree char *path = xasprintf("%s/kernel.json", dir);
    int r = fs_mkdirs(dir, 0755, e);
    if (r >= 0)
        r = fs_write_path(path, text, strlen(text), 0644, e);
    if (r >= 0)
        copy_logos(entry, dir);
    return r;
}

static int install(const struct cli *c, struct err *e)
{
    const char *kernel = cli_value(c, "kernel") ? cli_value(c, "kernel") : c->conf.default_kernel;
    autofree char *usual = xasprintf("reitos-%s", kernel);
    const char *name = cli_value(c, "name") ? cli_value(c, "name") : usual;
    autofree char *dir = NULL;
    autojson json_t *entry = NULL;
    struct paths p;
    if (!valid_name(name))
        return err_set(e, ERR_INVALID, "--name %.60s: use a-z, 0-9, dot, dash, underscore", name);
    int r = spec_dir(c, name, &dir, e);
    if (r < 0)
        return r;
    paths_find(&p, &c->conf);
    struct kspec_conf kc = {.prefix = p.prefix,
                            .default_python = p.python,
                            .zygote = c->conf.zygote,
                            .preload = c->conf.preload};
    r = kspec_find(&kc, kernel, &entry, e);
    if (r == ERR_NOT_FOUND)
        r = e->code = ERR_INVALID; /* wrong use, as for reitos run */
    if (r >= 0)
        r = write_spec(c, dir, kernel, entry, p.self, e);
    paths_free(&p);
    if (r >= 0)
        printf("%s\n", dir);
    return r;
}

static int run_kernelspec(struct cli *c, struct err *e)
{
    if (strcmp(c->operands[0], "install") != 0)
        return err_set(e, ERR_INVALID, "unknown action %.40s; known: install", c->operands[0]);
    return install(c, e);
}

static const struct cli_option options[] = {
    {"user", 0, NULL, "install for this user (the default)"},
    {"prefix", 0, "DIR", "install into DIR/share/jupyter, for example a Python environment"},
    {"name", 0, "NAME", "name of the new kernelspec (default: reitos-KERNEL)"},
    {"kernel", 'k', "NAME", "kernelspec to run behind it (default: the configured one)"},
    {"display-name", 0, "TEXT", "what Jupyter shows (default: that of the kernel, and REITOS)"},
    CLI_OPTIONS_END,
};

const struct cli_command cli_kernelspec = {
    .name = "kernelspec",
    .operands = "install",
    .summary = "make REITOS kernels known to every Jupyter client",
    .description = "Writes a kernelspec whose program is reitos kernel-proxy, so that nbclient, "
                   "papermill, nbconvert, qtconsole, VS Code and an unmodified Jupyter server "
                   "drive REITOS kernels. Its folder is printed.",
    .examples = "reitos kernelspec install\n"
                "reitos kernelspec install --prefix ~/venv --name python3",
    .options = options,
    .min = 1,
    .max = 1,
    .run = run_kernelspec,
};
