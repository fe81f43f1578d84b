/* JupyterLab's smaller APIs: workspaces, listings, licences, icons. */
#include <ctype.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "base/sys.h"
#include "gateway/jdirs.h"
#include "gateway/job.h"
#include "gateway/lab.h"

#define WORKSPACE_MAX ((size_t)8 << 20)
#define WORKSPACE_EXT ".jupyterlab-workspace"
#define SLUG_MAX (128 - sizeof WORKSPACE_EXT + 1 - 5)

/* --- workspaces --- */

static char *workspaces_dir(void)
{
    const char *dir = sys.env("JUPYTERLAB_WORKSPACES_DIR");
    if (dir && *dir)
        return xstrdup(dir);
    autofree char *config = jdirs_user_config();
    return xasprintf("%s/lab/workspaces", config);
}

char *lab_workspace_slug(const char *name)
{
    if (*name == '/')
        name++;
    char hash[SHA256_HEX];
    sha256_hex(name, strlen(name), hash);
    struct buf b = BUF_INIT(BUF_DEFAULT_MAX);
    for (const char *p = name; *p && b.len < SLUG_MAX; p++) {
        unsigned char c = (unsigned char)*p;
        int blank = isspace(c) || c == '-';
        if (blank && (!b.len || b.data[b.len - 1] != '-') && (b.len || c == '-'))
            buf_add(&b, "-");
        else if (!blank && (isalnum(c) || c == '_'))
            buf_add(&b, "%c", tolower(c));
    }
    buf_add(&b, "-%.4s", hash);
    return buf_steal(&b);
}

static char *workspace_path(const char *name)
{
    autofree char *dir = workspaces_dir(), *slug = lab_workspace_slug(name);
    return xasprintf("%s/%s%s", dir, slug, WORKSPACE_EXT);
}

static json_t *time_text(struct timespec t)
{
    char text[SYS_TIME_MAX];
    return json_string(sys_time_iso((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000, text));
}

static int read_workspace(const char *path, json_t **ret, struct err *e)
{
    struct stat st;
    int rc = jdirs_read_object(path, ret, e);
    if (rc < 0)
        return rc;
    json_t *meta = json_object_get(*ret, "metadata");
    if (json_is_object(meta) && stat(path, &st) == 0) {
        json_object_set_new(meta, "last_modified", time_text(st.st_mtim));
        json_object_set_new(meta, "created", time_text(st.st_ctim));
    }
    return 0;
}

static int list_workspaces(struct job *j, struct err *e)
{
    (void)e;
    autofree char *dir = workspaces_dir();
    autofree char *pattern = xasprintf("%s/*%s", dir, WORKSPACE_EXT);
    json_t *ids = json_array(), *values = json_array();
    glob_t g = {0};
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            json_t *one = NULL;
            const char *id = NULL;
            if (read_workspace(g.gl_pathv[i], &one, NULL) == 0)
                id = json_get_str(json_object_get(one, "metadata"), "id", NULL);
            if (id) { /* a damaged file is no workspace */
                json_array_append_new(ids, json_string(id));
                json_array_append(values, one);
            }
            json_decref(one);
        }
    }
    globfree(&g);
    j->reply = json_pack("{s:{s:o,s:o}}", "workspaces", "ids", ids, "values", values);
    return 0;
}

static int get_workspace(struct job *j, struct err *e)
{
    autofree char *path = workspace_path(j->name);
    int rc = read_workspace(path, &j->reply, e);
    if (rc != ERR_NOT_FOUND)
        return rc;
    j->reply = json_pack("{s:{},s:{s:s}}", "data", "metadata", "id", j->name);
    return 0;
}

static int put_workspace(struct job *j, struct err *e)
{
    autojson json_t *v = NULL;
    int rc = json_parse(buf_str(&j->body), j->body.len, &v, e);
    if (rc < 0)
        return rc;
    const char *id = json_get_str(json_object_get(v, "metadata"), "id", "");
    if (strcmp(*id == '/' ? id + 1 : id, *j->name == '/' ? j->name + 1 : j->name))
        return err_set(e, ERR_INVALID, "Workspace metadata ID mismatch: expected %.100s got %.100s",
                       j->name, id);
    autofree char *dir = workspaces_dir(), *path = workspace_path(j->name);
    rc = fs_mkdirs(dir, 0777, e);
    return rc < 0 ? rc : fs_write_path(path, buf_str(&j->body), j->body.len, 0, e);
}

static int delete_workspace(struct job *j, struct err *e)
{
    autofree char *path = workspace_path(j->name);
    if (unlink(path) < 0)
        return err_set(e, ERR_NOT_FOUND, "Workspace %.100s not found", j->name);
    return 0;
}

void lab_workspaces(struct gw *gw, struct http_req *r, const char *const *p)
{
    enum http_method m = http_method(r);
    if (m == HTTP_PUT || m == HTTP_DELETE) {
        if (!*p[0])
            http_reply_status(r, 400, "Workspace name is required");
        else
            job_start(gw, r, p[0], WORKSPACE_MAX, m == HTTP_PUT ? put_workspace : delete_workspace);
        return;
    }
    job_start(gw, r, p[0], 0, *p[0] ? get_workspace : list_workspaces);
}

/* --- extension listings: none are fetched --- */

void lab_listings(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw;
    if (strcmp(p[0], "@jupyterlab/extensionmanager-extension/listings.json")) {
        http_reply_status(r, 404, "Not Found");
        return;
    }
    http_reply_json(r, 200,
                    json_pack("{s:[],s:[],s:[],s:[]}", "blocked_extensions_uris",
                              "allowed_extensions_uris", "blocked_extensions",
                              "allowed_extensions"));
}

/* --- licences of what JupyterLab and its extensions contain --- */

static void add_bundle(json_t *bundles, const char *name, const char *path)
{
    autojson json_t *v = NULL;
    /* a bundle without the file says nothing of its licences */
    if (jdirs_read_object(path, &v, NULL) == 0)
        json_object_set_new(bundles, name,
                            json_pack("{s:O?}", "packages", json_object_get(v, "packages")));
}

static int get_licenses(struct job *j, struct err *e)
{
    (void)e;
    json_t *bundles = json_object();
    autofree char *core =
        xasprintf("%s/share/jupyter/lab/static/third-party-licenses.json", j->prefix);
    add_bundle(bundles, "JupyterLab", core);
    struct lab_disk *disk = lab_disk_read(j->prefix, NULL);
    for (size_t i = 0; i < disk->n; i++) {
        autofree char *path =
            xasprintf("%s/static/third-party-licenses.json", disk->exts[i].root.path);
        add_bundle(bundles, disk->exts[i].name, path);
    }
    lab_disk_free(disk);
    j->reply = json_pack("{s:o}", "bundles", bundles);
    return 0;
}

void lab_licenses(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)p;
    job_start(gw, r, "", 0, get_licenses);
}

/* --- icons --- */

void lab_favicon(struct gw *gw, struct http_req *r, const char *const *p)
{
    (void)gw;
    const char *name = strrchr(http_path(r), '/');
    name = name ? name + 1 : http_path(r);
    int busy = !strncmp(name, "favicon-busy-", 13);
    (void)p;
    if (strncmp(name, "favicon", 7)) {
        http_reply_status(r, 404, "Not Found");
        return;
    }
    autofree char *svg =
        xasprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 32 32\">"
                  "<rect width=\"32\" height=\"32\" rx=\"7\" fill=\"%s\"/>"
                  "<path d=\"M10 25V7h7.5a5.5 5.5 0 0 1 1.6 10.8L24 "
                  "25h-4.2l-4.3-6.7H13.6V25zm3.6-9.9h3.5a2.4 "
                  "2.4 0 0 0 0-4.8h-3.5z\" fill=\"#fff\"/></svg>",
                  busy ? "#c2571a" : "#2457c5");
    http_set_header(r, "Cache-Control", "private, max-age=86400");
    http_reply(r, 200, "image/svg+xml", svg, strlen(svg));
}
