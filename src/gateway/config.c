/* api/config/SECTION: what front ends keep. Read from all of Jupyter's configuration folders,
 * written to the user's: <config>/serverconfig/SECTION.json. */
#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "gateway/jdirs.h"
#include "gateway/job.h"

#define SECTION_MAX ((size_t)4 << 20)
#define SUBFOLDER "serverconfig"

/* PATCH reads and writes: one at a time, on whatever pool thread. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static int section_write(const char *section, const json_t *v, struct err *e)
{
    autofree char *config = jdirs_user_config();
    autofree char *dir = xasprintf("%s/" SUBFOLDER, config);
    autofree char *path = xasprintf("%s/%s.json", dir, section);
    autofree char *text = json_dumps(v, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (!text)
        return err_set(e, ERR_MEMORY, "no memory for section %s", section);
    int rc = fs_mkdirs(dir, 0755, e);
    return rc < 0 ? rc : fs_write_path(path, text, strlen(text), 0, e);
}

/* The user's own part only, as PATCH does not copy the system's. */
static json_t *section_own(const char *section)
{
    autofree char *config = jdirs_user_config();
    autofree char *path = xasprintf("%s/" SUBFOLDER "/%s.json", config, section);
    json_t *v = NULL;
    return jdirs_read_object(path, &v, NULL) == 0 ? v : json_object();
}

static int body_object(const struct job *j, json_t **ret, struct err *e)
{
    autojson json_t *v = NULL;
    int rc = json_parse(buf_str(&j->body), j->body.len, &v, e);
    if (rc < 0)
        return rc;
    if (!json_is_object(v))
        return err_set(e, ERR_INVALID, "a JSON object is expected");
    *ret = STEAL(v);
    return 0;
}

static int get_work(struct job *j, struct err *e)
{
    (void)e;
    j->reply = jdirs_section(j->prefix, SUBFOLDER, j->name);
    return 0;
}

static int put_work(struct job *j, struct err *e)
{
    autojson json_t *v = NULL;
    int rc = body_object(j, &v, e);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&writing);
    rc = section_write(j->name, v, e);
    pthread_mutex_unlock(&writing);
    return rc;
}

static int patch_work(struct job *j, struct err *e)
{
    autojson json_t *v = NULL;
    int rc = body_object(j, &v, e);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&writing);
    autojson json_t *own = section_own(j->name);
    jdirs_merge(own, v);
    rc = section_write(j->name, own, e);
    pthread_mutex_unlock(&writing);
    if (rc == 0)
        j->reply = STEAL(own);
    return rc;
}

static void config(struct gw *gw, struct http_req *r, const char *const *p)
{
    enum http_method m = http_method(r);
    for (const char *c = p[0]; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-') {
            http_reply_status(r, 404, "Not Found");
            return;
        }
    job_start(gw, r, p[0], SECTION_MAX,
              m == HTTP_PUT     ? put_work
              : m == HTTP_PATCH ? patch_work
                                : get_work);
}

const struct route config_routes[] = {
    {METHOD(GET), "api/config/{}", config, NULL, ROUTE_NO_ACTIVITY},
    {METHOD(PUT) | METHOD(PATCH), "api/config/{}", config, NULL, 0},
    {0, NULL, NULL, NULL, 0},
};
