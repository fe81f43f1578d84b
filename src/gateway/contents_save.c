/* Saving: notebooks, text and binary files, folders, uploads in chunks. Thread pool. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gateway/contents.h"
#include "gateway/merge.h"
#include "gateway/trust.h"
#include "wire/nb.h"

struct save {
    const struct cenv *env;
    const char *path;
    json_t *model;
    struct merge_hold *hold;
    char hash[SHA256_HEX]; /* of what was written; "" when not known */
    struct err invalid;    /* why the notebook is not valid; it is saved all the same */
};

void contents_defaults(const char *path, json_t *model)
{
    size_t n = strlen(path);
    int notebook = n >= 6 && strcmp(path + n - 6, ".ipynb") == 0;
    if (!json_object_get(model, "type"))
        json_object_set_new(model, "type", json_string(notebook ? "notebook" : "file"));
    const char *type = json_get_str(model, "type", "");
    if (json_object_get(model, "content") || strcmp(type, "directory") == 0)
        return;
    if (strcmp(type, "notebook") == 0) {
        json_object_set_new(model, "content", nb_new());
        json_object_set_new(model, "format", json_string("json"));
    } else {
        json_object_set_new(model, "content", json_string(""));
        json_object_set_new(model, "type", json_string("file"));
        json_object_set_new(model, "format", json_string("text"));
    }
}

static int save_folder(const struct save *s, struct err *e)
{
    int rc = fs_mkdir(s->env->root, s->path, 0777, e);
    if (rc != ERR_EXISTS)
        return rc;
    struct stat st;
    rc = fs_stat(s->env->root, s->path, &st, e);
    if (rc < 0)
        return rc;
    return S_ISDIR(st.st_mode) ? 0 : err_set(e, ERR_INVALID, "Not a directory: %s", s->path);
}

/* The bytes of a "file" model: borrowed from the model, or decoded into `b`. */
static int file_bytes(const struct save *s, struct buf *b, struct slice *ret, struct err *e)
{
    const char *format = json_get_str(s->model, "format", "");
    const json_t *content = json_object_get(s->model, "content");
    int base64 = strcmp(format, "base64") == 0;
    if (!base64 && strcmp(format, "text") != 0)
        return err_set(e, ERR_INVALID,
                       "Must specify format of file contents as 'text' or 'base64'");
    if (!json_is_string(content))
        return err_set(e, ERR_INVALID, "Encoding error saving %s: content is not a string",
                       s->path);
    const char *text = json_string_value(content);
    size_t len = json_string_length(content);
    *ret = (struct slice){text, len};
    if (!base64)
        return 0;
    int rc = base64_decode(text, len, b);
    if (rc < 0)
        return err_set(e, rc == ERR_PARSE ? ERR_INVALID : rc, "Encoding error saving %s: %s",
                       s->path, rc == ERR_PARSE ? "not base64" : err_text(rc));
    *ret = (struct slice){buf_str(b), b->len};
    return 0;
}

static int save_file(struct save *s, struct err *e)
{
    autobuf struct buf b = BUF_INIT(HTTP_BODY_MAX);
    struct slice bytes;
    int rc = file_bytes(s, &b, &bytes, e);
    if (rc == 0)
        rc = fs_write(s->env->root, s->path, bytes.data, bytes.len, 0, e);
    if (rc == 0)
        sha256_hex(bytes.data, bytes.len, s->hash);
    return rc;
}

/* A later piece of an upload. A piece that does not fit is taken back whole. */
static int append_chunk(const struct save *s, struct err *e)
{
    autobuf struct buf b = BUF_INIT(HTTP_BODY_MAX);
    struct slice bytes;
    int rc = file_bytes(s, &b, &bytes, e);
    if (rc < 0)
        return rc;
    autofd int fd =
        fs_open(s->env->root, s->path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0666, e);
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, errno, "%s", s->path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s: not a regular file", s->path);
    rc = fs_write_all(fd, bytes.data, bytes.len, e);
    if (rc < 0)
        IGNORE_RESULT(ftruncate(fd, st.st_size)); /* the error is reported either way */
    return rc;
}

static int save_chunk(struct save *s, const json_t *chunk, struct err *e)
{
    const char *type = json_get_str(s->model, "type", NULL);
    if (!type)
        return err_set(e, ERR_INVALID, "No file type provided");
    if (strcmp(type, "file") != 0)
        return err_set(e, ERR_INVALID, "File type \"%s\" is not supported for large file transfer",
                       type);
    if (!json_object_get(s->model, "content"))
        return err_set(e, ERR_INVALID, "No file content provided");
    if (!json_is_integer(chunk))
        return err_set(e, ERR_INVALID, "chunk must be an integer");
    return json_integer_value(chunk) == 1 ? save_file(s, e) : append_chunk(s, e);
}

/* One checkpoint should always exist for a notebook. */
static int first_checkpoint(const struct save *s, struct err *e)
{
    autojson json_t *list = NULL, *made = NULL;
    int rc = checkpoint_list(s->env, s->path, &list, e);
    if (rc < 0 || json_array_size(list))
        return rc;
    return checkpoint_create(s->env, s->path, &made, e);
}

/* Remembers which outputs are ours, so that a client that has not seen them cannot remove them. */
static void pin_saved(const struct save *s, const json_t *kept)
{
    struct stat st;
    if (!json_object_size(kept) || fs_stat(s->env->root, s->path, &st, NULL) < 0) {
        pins_drop(s->env->pins, s->path);
        return;
    }
    struct pin pin = {.visible_mtime_ns = stat_mtime_ns(&st),
                      .real_mtime_ns = stat_mtime_ns(&st),
                      .size = (uint64_t)st.st_size,
                      .inode = st.st_ino};
    memcpy(pin.visible_hash, s->hash, sizeof pin.visible_hash);
    memcpy(pin.real_hash, s->hash, sizeof pin.real_hash);
    pins_set(s->env->pins, s->path, &pin, kept);
}

static int save_notebook(struct save *s, struct err *e)
{
    json_t *nb = json_object_get(s->model, "content");
    if (!json_is_object(nb) || !json_is_integer(json_object_get(nb, "nbformat")))
        return err_set(e, ERR_INVALID, "Unexpected error while saving file: %s is not a notebook",
                       s->path);
    nb_upgrade(nb);
    IGNORE_RESULT(nb_check(nb, &s->invalid)); /* told to the client; the user's work is saved */
    int trusted = notebook_strip_trust(nb);
    nb_join_lines(nb);
    autojson json_t *kept = merge_save(s->env, s->path, s->hold, nb);
    autobuf struct buf out = BUF_INIT(HTTP_BODY_MAX);
    int rc = nb_write(nb, &out);
    if (rc < 0)
        return err_set(e, rc, "%s: %s", s->path, err_text(rc));
    rc = fs_write(s->env->root, s->path, buf_str(&out), out.len, 0, e);
    if (rc < 0)
        return rc;
    sha256_hex(buf_str(&out), out.len, s->hash);
    if (trusted)
        trust_add(s->env->trust, s->hash);
    pin_saved(s, kept);
    merge_saved(s->hold);
    return first_checkpoint(s, e);
}

static int save_any(struct save *s, struct err *e)
{
    const json_t *chunk = json_object_get(s->model, "chunk");
    if (chunk && !json_is_null(chunk))
        return save_chunk(s, chunk, e);
    const char *type = json_get_str(s->model, "type", NULL);
    if (!type)
        return err_set(e, ERR_INVALID, "No file type provided");
    if (strcmp(type, "directory") == 0)
        return save_folder(s, e);
    if (!json_object_get(s->model, "content"))
        return err_set(e, ERR_INVALID, "No file content provided");
    if (strcmp(type, "notebook") == 0)
        return save_notebook(s, e);
    if (strcmp(type, "file") == 0)
        return save_file(s, e);
    return err_set(e, ERR_INVALID, "Unhandled contents type: %s", type);
}

int contents_save(const struct cenv *env, const char *path, json_t *model, struct merge_hold *hold,
                  json_t **ret, const char **reason, struct err *e)
{
    struct save s = {.env = env, .path = path, .model = model, .hold = hold};
    if (!*path && strcmp(json_get_str(model, "type", ""), "directory") != 0)
        return err_set(e, ERR_INVALID, "the root folder is not a file");
    int rc = save_any(&s, e);
    if (rc < 0)
        return rc;
    /* The big tree goes before the answer is made. */
    json_object_del(model, "content");
    struct cget g = {0};
    json_t *m;
    rc = model_get(env, path, &g, &m, reason, e);
    if (rc < 0)
        return rc;
    if (s.hash[0]) {
        json_object_set_new(m, "hash", json_string(s.hash));
        json_object_set_new(m, "hash_algorithm", json_string("sha256"));
    }
    if (s.invalid.code)
        json_object_set_new(m, "message",
                            json_sprintf("Notebook validation failed: %s", s.invalid.msg));
    *ret = m;
    return 0;
}
