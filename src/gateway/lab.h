/* JupyterLab: what its files share. lab.c (pages, routes), lab_ext.c (extensions and page
 * configuration), lab_tmpl.c (the page), lab_settings.c, lab_translations.c, lab_api.c. */
#ifndef REITOS_GATEWAY_LAB_H
#define REITOS_GATEWAY_LAB_H

#include "gateway/gw.h"

/* A prebuilt extension. */
struct lab_ext {
    char *name;          /* package name, "@scope/x" */
    struct fs_root root; /* its folder */
    json_t *package;     /* package.json */
};

/* What is on disk, read as a whole; never changed afterwards. */
struct lab_disk {
    struct lab_ext *exts;
    size_t n;
    json_t *page;   /* page configuration from files: disabledExtensions is a list here */
    char *version;  /* of JupyterLab */
    char *tmpl;     /* index.html; NULL: JupyterLab is not installed */
    char *problems; /* lines for the log, "" */
};

struct lab {
    struct gw *gw;
    struct fs_root core; /* <prefix>/share/jupyter/lab; fd -1: absent */
    struct lab_disk *disk;
    char *own_ext;     /* folder of REITOS's own extension, NULL when not installed */
    json_t *announced; /* lines already logged */
    int64_t read_us;
    unsigned pages; /* served */
};

/* Reads extensions and configuration. Blocking; any thread. `own_ext` may be NULL. */
struct lab_disk *lab_disk_read(const char *prefix, const char *own_ext);
struct lab_disk *lab_disk_free(struct lab_disk *d);
const struct lab_ext *lab_ext_find(const struct lab_disk *d, const char *name);

/* Renders JupyterLab's index.html: its placeholders are few, and the rest of its template language
 * (comments, set, blocks, the custom_css condition) is dropped. ERR_PARSE names what is unknown. */
int lab_render(const char *tmpl, const json_t *config, struct buf *out, struct err *e) WARN_UNUSED;

/* handlers */
void lab_settings(struct gw *gw, struct http_req *r, const char *const *p);
void lab_workspaces(struct gw *gw, struct http_req *r, const char *const *p);
void lab_translations(struct gw *gw, struct http_req *r, const char *const *p);
void lab_listings(struct gw *gw, struct http_req *r, const char *const *p);
void lab_licenses(struct gw *gw, struct http_req *r, const char *const *p);
void lab_favicon(struct gw *gw, struct http_req *r, const char *const *p);

/* The file name under which workspace `name` is kept (without extension), as JupyterLab's own
 * server makes it for ASCII names; heap. */
char *lab_workspace_slug(const char *name);

#endif
