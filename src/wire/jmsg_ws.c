/* The two WebSocket framings of Jupyter messages. */
#include <endian.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/jmsg.h"

#define V1_FIXED 6 /* offsets of a message without buffers: channel, four parts, end */

static uint64_t get_le64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

static uint32_t get_be32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return be32toh(v);
}

static int put_le64(struct buf *b, uint64_t v)
{
    v = htole64(v);
    return buf_append(b, &v, sizeof v);
}

static int put_be32(struct buf *b, uint64_t v)
{
    uint32_t w = htobe32((uint32_t)v);
    return buf_append(b, &w, sizeof w);
}

int jmsg_encode_v1(const struct jmsg *m, struct buf *out)
{
    const char *channel = jchan_name(m->channel);
    size_t n = m->nparts + 2, table = 8 * (n + 1), clen = strlen(channel);
    int rc = buf_reserve(out, table + clen + jmsg_bytes(m), NULL);
    if (rc < 0)
        return rc;
    /* Room was made above: these cannot fail. */
    uint64_t at = table;
    IGNORE_RESULT(put_le64(out, n));
    IGNORE_RESULT(put_le64(out, at));
    IGNORE_RESULT(put_le64(out, at += clen));
    for (size_t i = 0; i < m->nparts; i++)
        IGNORE_RESULT(put_le64(out, at += m->parts[i].len));
    IGNORE_RESULT(buf_append(out, channel, clen));
    for (size_t i = 0; i < m->nparts; i++)
        IGNORE_RESULT(buf_append(out, m->parts[i].data, m->parts[i].len));
    return 0;
}

/* A missing channel means shell. */
static int channel_of(const char *name, size_t len, enum jchan *ret, struct err *e)
{
    char text[16];
    if (len == 0) {
        *ret = JCHAN_SHELL;
        return 0;
    }
    if (len >= sizeof text)
        return err_set(e, ERR_INVALID, "unknown channel");
    memcpy(text, name, len);
    text[len] = '\0';
    if (strlen(text) != len || jchan_of(text, ret) < 0)
        return err_set(e, ERR_INVALID, "unknown channel");
    return 0;
}

int jmsg_decode_v1(const void *data, size_t len, struct jmsg **ret, struct err *e)
{
    const char *p = data;
    uint64_t n = len >= 8 ? get_le64(p) : 0;
    if (n < V1_FIXED || n > JMSG_MAX_PARTS + 2 || len < 8 * (n + 1))
        return err_set(e, ERR_PROTOCOL, "malformed message frame: table of offsets");
    autofree struct slice *parts = xcalloc(n, sizeof *parts);
    uint64_t at = get_le64(p + 8);
    if (at < 8 * (n + 1))
        return err_set(e, ERR_PROTOCOL, "malformed message frame: first offset");
    for (size_t i = 0; i + 1 < n; i++) {
        uint64_t end = get_le64(p + 8 * (i + 2));
        if (end < at || end > len)
            return err_set(e, ERR_PROTOCOL, "malformed message frame: offset %zu", i + 1);
        parts[i] = (struct slice){p + at, end - at};
        at = end;
    }
    enum jchan ch;
    int rc = channel_of(parts[0].data, parts[0].len, &ch, e);
    return rc < 0 ? rc : jmsg_new(ch, parts + 1, n - 2, ret, e);
}

/* Length of the UTF-8 sequence at s, 0 when it is none. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
    static const unsigned char low[5] = {0, 0, 0x80, 0xa0, 0x90};
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n <= 1)
        return n;
    if (n > left || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 || s[0] == 0xf0) && s[1] < low[n])
        return 0; /* overlong */
    if ((s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0; /* surrogate, or beyond Unicode */
    return n;
}

/* Kernels can emit bytes that are no UTF-8 (surrogate escapes); a browser closes the socket on
 * such a text frame, so each bad byte becomes U+FFFD. */
static int put_utf8(struct buf *out, const struct slice *part)
{
    const unsigned char *s = part->data;
    size_t start = 0, i = 0;
    while (i < part->len) {
        size_t n = utf8_len(s + i, part->len - i);
        if (n) {
            i += n;
            continue;
        }
        if (buf_append(out, s + start, i - start) < 0 || buf_puts(out, "\xef\xbf\xbd") < 0)
            return ERR_TOO_LARGE;
        start = ++i;
    }
    return buf_append(out, s + start, part->len - start);
}

static int put_member(struct buf *out, const char *name, const struct slice *part)
{
    int rc = buf_printf(out, ",\"%s\":", name);
    return rc < 0 ? rc : put_utf8(out, part);
}

static int put_string_member(struct buf *out, const char *name, const char *text)
{
    autojson json_t *s = json_string(text);
    int rc = buf_printf(out, ",\"%s\":", name);
    return rc < 0 ? rc : json_write(s, out);
}

static int put_legacy_json(struct jmsg *m, int buffers, struct buf *out)
{
    static const char *const names[] = {"header", "parent_header", "metadata", "content"};
    const struct jhead *h;
    int rc = jmsg_head(m, &h, NULL);
    if (rc < 0)
        return rc;
    rc = buf_printf(out, "{\"channel\":\"%s\"", jchan_name(m->channel));
    for (int i = 0; i < JPART_BUFFERS && rc >= 0; i++)
        rc = put_member(out, names[i], &m->parts[i]);
    if (rc >= 0)
        rc = put_string_member(out, "msg_id", h->msg_id);
    if (rc >= 0)
        rc = put_string_member(out, "msg_type", h->msg_type);
    if (rc >= 0)
        rc = buf_puts(out, buffers ? "}" : ",\"buffers\":[]}");
    return rc;
}

int jmsg_encode_legacy(struct jmsg *m, struct buf *out, int *ret_binary)
{
    size_t nbuf = m->nparts - JPART_BUFFERS, start = out->len;
    *ret_binary = nbuf > 0;
    if (!nbuf)
        return put_legacy_json(m, 0, out);
    autobuf struct buf text = BUF_INIT(out->max);
    int rc = put_legacy_json(m, 1, &text);
    if (rc < 0)
        return rc;
    size_t table = 4 * (nbuf + 2);
    if ((rc = buf_reserve(out, table + text.len + jmsg_bytes(m), NULL)) < 0)
        return rc;
    uint64_t at = table;
    IGNORE_RESULT(put_be32(out, nbuf + 1)); /* room was made above */
    IGNORE_RESULT(put_be32(out, at));
    at += text.len;
    for (size_t i = JPART_BUFFERS; i < m->nparts; i++) {
        IGNORE_RESULT(put_be32(out, at));
        at += m->parts[i].len;
    }
    IGNORE_RESULT(buf_append(out, text.data, text.len));
    for (size_t i = JPART_BUFFERS; i < m->nparts; i++)
        IGNORE_RESULT(buf_append(out, m->parts[i].data, m->parts[i].len));
    return out->len - start > UINT32_MAX ? ERR_TOO_LARGE : 0;
}

static int legacy_parts(const void *data, size_t len, int binary, struct slice **ret, size_t *ret_n,
                        struct err *e)
{
    const char *p = data;
    size_t n = binary ? (len >= 4 ? get_be32(p) : 0) : 1;
    if (n < 1 || n > JMSG_MAX_PARTS || (binary && len < 4 * (n + 1)))
        return err_set(e, ERR_PROTOCOL, "malformed message frame: table of offsets");
    autofree struct slice *parts = xcalloc(n, sizeof *parts);
    parts[0] = (struct slice){p, len};
    for (size_t i = 0; binary && i < n; i++) {
        size_t at = get_be32(p + 4 * (i + 1));
        size_t end = i + 1 < n ? get_be32(p + 4 * (i + 2)) : len;
        if (at < 4 * (n + 1) || end < at || end > len)
            return err_set(e, ERR_PROTOCOL, "malformed message frame: offset %zu", i);
        parts[i] = (struct slice){p + at, end - at};
    }
    *ret = STEAL(parts);
    *ret_n = n;
    return 0;
}

/* A member as JSON text; {} when it is absent. */
static int member_text(const json_t *o, const char *key, char **ret, struct err *e)
{
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_object(v))
        return err_set(e, ERR_PROTOCOL, "%s of a message is not a JSON object", key);
    *ret = v ? json_text(v) : xstrdup("{}");
    return 0;
}

static int legacy_object(const json_t *o, struct slice *parts, size_t n, struct jmsg **ret,
                         struct err *e)
{
    const char *name = json_get_str(o, "channel", "");
    enum jchan ch;
    int rc = channel_of(name, strlen(name), &ch, e);
    if (rc < 0)
        return rc;
    if (!json_is_object(json_object_get(o, "header")))
        return err_set(e, ERR_PROTOCOL, "a message without header");
    static const char *const names[] = {"header", "parent_header", "metadata", "content"};
    char *texts[JPART_BUFFERS] = {NULL};
    for (int i = 0; i < JPART_BUFFERS && rc == 0; i++)
        rc = member_text(o, names[i], &texts[i], e);
    for (int i = 0; i < JPART_BUFFERS && rc == 0; i++)
        parts[i] = (struct slice){texts[i], strlen(texts[i])};
    if (rc == 0)
        rc = jmsg_new(ch, parts, n, ret, e);
    for (int i = 0; i < JPART_BUFFERS; i++)
        free(texts[i]);
    return rc;
}

int jmsg_decode_legacy(const void *data, size_t len, int binary, struct jmsg **ret, struct err *e)
{
    autofree struct slice *in = NULL;
    size_t n = 0;
    int rc = legacy_parts(data, len, binary, &in, &n, e);
    if (rc < 0)
        return rc;
    autojson json_t *o = NULL;
    if ((rc = json_parse(in[0].data, in[0].len, &o, e)) < 0)
        return rc;
    if (!json_is_object(o))
        return err_set(e, ERR_PROTOCOL, "a message that is not a JSON object");
    size_t nbuf = n - 1;
    autofree struct slice *parts = xcalloc(JPART_BUFFERS + nbuf, sizeof *parts);
    if (nbuf)
        memcpy(parts + JPART_BUFFERS, in + 1, nbuf * sizeof *parts);
    return legacy_object(o, parts, JPART_BUFFERS + nbuf, ret, e);
}
