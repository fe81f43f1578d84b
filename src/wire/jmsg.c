#include "wire/jmsg.h"

#include <string.h>

#include "base/alloc.h"
#include "base/crypto.h"
#include "base/sys.h"
#include "wire/jscan.h"

enum head_state { HEAD_UNKNOWN, HEAD_DECODED, HEAD_BAD };

struct jmsg_full {
    struct jmsg pub;
    enum head_state state;
    struct jhead head;
    char *head_text; /* the strings of `head`, one allocation */
    size_t bytes;
    struct slice parts[];
};

static const char *const chan_names[JCHAN_COUNT] = {"shell", "control", "stdin", "iopub"};

const char *jchan_name(enum jchan ch)
{
    return (unsigned)ch < JCHAN_COUNT ? chan_names[ch] : "";
}

int jchan_of(const char *name, enum jchan *ret)
{
    for (int i = 0; i < JCHAN_COUNT; i++) {
        if (strcmp(name, chan_names[i]) == 0) {
            *ret = (enum jchan)i;
            return 0;
        }
    }
    return ERR_INVALID;
}

/* The public part comes first; the cache behind it changes although the message does not. */
static struct jmsg_full *full_of(const struct jmsg *m)
{
    return (struct jmsg_full *)(uintptr_t)m;
}

/* Every part is followed by a NUL byte so that JSON parts can be used as C strings. */
int jmsg_new(enum jchan ch, const struct slice *parts, size_t nparts, struct jmsg **ret,
             struct err *e)
{
    if (nparts < JPART_BUFFERS || nparts > JMSG_MAX_PARTS)
        return err_set(e, ERR_PROTOCOL, "Jupyter message of %zu parts", nparts);
    size_t bytes = 0;
    for (size_t i = 0; i < nparts; i++) {
        if (parts[i].len > JMSG_MAX_BYTES - bytes)
            return err_set(e, ERR_PROTOCOL, "Jupyter message over %zu bytes", JMSG_MAX_BYTES);
        bytes += parts[i].len;
    }
    size_t table = sizeof(struct jmsg_full) + nparts * sizeof(struct slice);
    struct jmsg_full *m = malloc(table + bytes + nparts);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a message of %zu bytes", bytes);
    *m = (struct jmsg_full){.pub = {.refs = 1, .channel = ch, .nparts = nparts, .parts = m->parts},
                            .bytes = bytes};
    char *p = (char *)m + table;
    for (size_t i = 0; i < nparts; i++) {
        if (parts[i].len)
            memcpy(p, parts[i].data, parts[i].len);
        p[parts[i].len] = '\0';
        m->parts[i] = (struct slice){p, parts[i].len};
        p += parts[i].len + 1;
    }
    *ret = &m->pub;
    return 0;
}

/* For messages of our own, whose size is bounded by what they are made of. */
static struct jmsg *new_or_abort(enum jchan ch, const struct slice *parts)
{
    struct jmsg *m;
    if (jmsg_new(ch, parts, JPART_BUFFERS, &m, NULL) < 0)
        abort();
    return m;
}

static struct slice text_slice(const char *s)
{
    return (struct slice){s, strlen(s)};
}

struct jmsg *jmsg_from_json(enum jchan ch, const json_t *header, const json_t *parent,
                            const json_t *metadata, const json_t *content)
{
    const json_t *trees[JPART_BUFFERS] = {header, parent, metadata, content};
    char *texts[JPART_BUFFERS];
    struct slice parts[JPART_BUFFERS];
    for (int i = 0; i < JPART_BUFFERS; i++) {
        texts[i] = trees[i] ? json_text(trees[i]) : xstrdup("{}");
        parts[i] = text_slice(texts[i]);
    }
    struct jmsg *m = new_or_abort(ch, parts);
    for (int i = 0; i < JPART_BUFFERS; i++)
        free(texts[i]);
    return m;
}

struct jmsg *jmsg_make(enum jchan ch, const char *type, const char *session,
                       const struct jmsg *parent, const json_t *content)
{
    char id[SYS_UUID_MAX], date[SYS_TIME_MAX];
    autojson json_t *header =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", sys_uuid(id), "msg_type", type,
                  "username", "reitos", "session", session ? session : "", "date",
                  sys_time_iso(sys.wall_us(), date), "version", "5.3");
    if (!header)
        abort(); /* only for text that is not UTF-8 */
    autofree char *head = json_text(header);
    autofree char *body = content ? json_text(content) : xstrdup("{}");
    struct slice parts[JPART_BUFFERS] = {text_slice(head),
                                         parent ? parent->parts[JPART_HEADER] : text_slice("{}"),
                                         text_slice("{}"), text_slice(body)};
    return new_or_abort(ch, parts);
}

struct jmsg *jmsg_ref(struct jmsg *m)
{
    m->refs++;
    return m;
}

struct jmsg *jmsg_unref(struct jmsg *m)
{
    if (m && --m->refs == 0) {
        free(full_of(m)->head_text);
        free(full_of(m));
    }
    return NULL;
}

size_t jmsg_bytes(const struct jmsg *m)
{
    return full_of(m)->bytes;
}

int jmsg_json(const struct jmsg *m, int part, json_t **ret, struct err *e)
{
    if (part < 0 || (size_t)part >= m->nparts)
        return err_set(e, ERR_INVALID, "no part %d in a message of %zu", part, m->nparts);
    return json_parse(m->parts[part].data, m->parts[part].len, ret, e);
}

static const char *const header_keys[] = {"msg_id", "msg_type", "session", "subshell_id"};
static const char *const parent_keys[] = {"msg_id", "msg_type", "session"};
#define HEAD_FIELDS (COUNTOF(header_keys) + COUNTOF(parent_keys))

/* Values point into the message, or into the tree that was made for what is unusual. */
static int read_part(const struct jmsg_full *m, int part, const char *const *keys, size_t n,
                     struct slice *values, json_t **ret_tree, struct err *e)
{
    const struct slice *text = &m->parts[part];
    if (jscan_strings(text->data, text->len, keys, n, values))
        return 0;
    int rc = jmsg_json(&m->pub, part, ret_tree, e);
    if (rc < 0)
        return err_wrap(e, part == JPART_HEADER ? "message header" : "parent header");
    if (!json_is_object(*ret_tree))
        return err_set(e, ERR_PARSE, "a message header is not a JSON object");
    for (size_t i = 0; i < n; i++)
        values[i] = text_slice(json_get_str(*ret_tree, keys[i], ""));
    return 0;
}

static void fill_head(struct jmsg_full *m, const struct slice values[HEAD_FIELDS])
{
    const char **const fields[HEAD_FIELDS] = {
        &m->head.msg_id,    &m->head.msg_type,    &m->head.session,       &m->head.subshell_id,
        &m->head.parent_id, &m->head.parent_type, &m->head.parent_session};
    size_t total = HEAD_FIELDS;
    for (size_t i = 0; i < HEAD_FIELDS; i++)
        total += values[i].len;
    m->head_text = xmalloc(total);
    char *p = m->head_text;
    for (size_t i = 0; i < HEAD_FIELDS; i++) {
        memcpy(p, values[i].data, values[i].len);
        *fields[i] = p;
        p += values[i].len;
        *p++ = '\0';
    }
}

static int decode_head(struct jmsg_full *m, struct err *e)
{
    autojson json_t *header = NULL, *parent = NULL;
    struct slice values[HEAD_FIELDS];
    int rc = read_part(m, JPART_HEADER, header_keys, COUNTOF(header_keys), values, &header, e);
    if (rc == 0)
        rc = read_part(m, JPART_PARENT, parent_keys, COUNTOF(parent_keys),
                       values + COUNTOF(header_keys), &parent, e);
    if (rc < 0)
        return rc;
    fill_head(m, values);
    return 0;
}

int jmsg_head(struct jmsg *m, const struct jhead **ret, struct err *e)
{
    struct jmsg_full *f = full_of(m);
    if (f->state == HEAD_UNKNOWN) {
        int rc = decode_head(f, e);
        f->state = rc < 0 ? HEAD_BAD : HEAD_DECODED;
        if (rc < 0)
            return ERR_PARSE;
    }
    if (f->state == HEAD_BAD)
        return err_set(e, ERR_PARSE, "a message header cannot be decoded");
    *ret = &f->head;
    return 0;
}

int jmsg_is(struct jmsg *m, const char *type)
{
    const struct jhead *h;
    return jmsg_head(m, &h, NULL) == 0 && strcmp(h->msg_type, type) == 0;
}

static void sign(const struct slice *parts, const char *key, char out[65])
{
    if (*key)
        hmac_sha256_hex(key, strlen(key), parts, JPART_BUFFERS, out);
    else
        out[0] = '\0';
}

void jmsg_sign(const struct jmsg *m, const char *key, char out[65])
{
    sign(m->parts, key, out);
}

static int is_delimiter(const struct slice *f)
{
    return f->len == 9 && memcmp(f->data, "<IDS|MSG>", 9) == 0;
}

int jmsg_from_zmq(enum jchan ch, const struct slice *frames, size_t n, const char *key,
                  struct jmsg **ret, struct err *e)
{
    size_t i = 0;
    while (i < n && !is_delimiter(&frames[i]))
        i++;
    if (n < 2 + JPART_BUFFERS || i > n - 2 - JPART_BUFFERS)
        return err_set(e, ERR_PROTOCOL, "ZeroMQ message of %zu frames is no Jupyter message", n);
    const struct slice *sig = &frames[i + 1], *parts = &frames[i + 2];
    if (*key) {
        char want[65];
        sign(parts, key, want);
        if (sig->len != 64 || !crypto_equal(sig->data, want, 64))
            return err_set(e, ERR_DENIED, "Jupyter message with a wrong signature");
    }
    return jmsg_new(ch, parts, n - i - 2, ret, e);
}
