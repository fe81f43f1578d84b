#include "wire/frame.h"

#include <endian.h>
#include <string.h>

#include "base/alloc.h"

#define PARTS_MAX (JMSG_MAX_PARTS + 1)

static uint32_t get_le32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static void put_le32(struct buf *b, size_t v)
{
    uint32_t w = htole32((uint32_t)v);
    IGNORE_RESULT(buf_append(b, &w, sizeof w)); /* the caller made room */
}

int frame_encode(struct buf *out, const json_t *head, const struct jmsg *m)
{
    autobuf struct buf text = BUF_INIT(FRAME_MAX);
    int rc = json_write(head, &text);
    if (rc < 0)
        return rc;
    size_t n = 1 + (m ? m->nparts : 0);
    size_t rest = 4 + 4 * n + text.len + (m ? jmsg_bytes(m) : 0);
    if (n > PARTS_MAX || rest > FRAME_MAX)
        return ERR_TOO_LARGE;
    if ((rc = buf_reserve(out, 4 + rest, NULL)) < 0)
        return rc;
    put_le32(out, rest);
    put_le32(out, n);
    put_le32(out, text.len);
    for (size_t i = 0; i + 1 < n; i++)
        put_le32(out, m->parts[i].len);
    IGNORE_RESULT(buf_append(out, text.data, text.len)); /* room was made above */
    for (size_t i = 0; i + 1 < n; i++)
        IGNORE_RESULT(buf_append(out, m->parts[i].data, m->parts[i].len));
    return 0;
}

/* Fills `parts` from the body of one frame (count, lengths, bytes). */
static int split(const char *body, size_t len, struct slice *parts, size_t n, struct err *e)
{
    size_t at = 4 + 4 * n;
    for (size_t i = 0; i < n; i++) {
        size_t part = get_le32(body + 4 + 4 * i);
        if (part > len - at)
            return err_set(e, ERR_PROTOCOL, "malformed frame: part %zu too long", i);
        parts[i] = (struct slice){body + at, part};
        at += part;
    }
    if (at != len)
        return err_set(e, ERR_PROTOCOL, "malformed frame: %zu bytes left over", len - at);
    return 0;
}

static int deliver(const char *body, size_t len, frame_cb cb, void *arg, struct err *e)
{
    size_t n = get_le32(body);
    if (n < 1 || n > PARTS_MAX || 4 + 4 * n > len)
        return err_set(e, ERR_PROTOCOL, "malformed frame: %zu parts", n);
    autofree struct slice *parts = xcalloc(n, sizeof *parts);
    int rc = split(body, len, parts, n, e);
    if (rc < 0)
        return rc;
    autojson json_t *head = NULL;
    if (json_parse(parts[0].data, parts[0].len, &head, NULL) < 0 || !json_is_object(head))
        return err_set(e, ERR_PROTOCOL, "malformed frame: its head is not a JSON object");
    struct frame f = {head, parts + 1, n - 1};
    rc = cb(arg, &f, e);
    return rc < 0 ? rc : 0;
}

int frame_decode(struct buf *in, frame_cb cb, void *arg, struct err *e)
{
    size_t at = 0;
    int rc = 0;
    while (rc == 0 && in->len - at >= 4) {
        size_t len = get_le32(in->data + at);
        if (len < 8 || len > FRAME_MAX) {
            rc = err_set(e, ERR_PROTOCOL, "malformed frame of %zu bytes", len);
            break;
        }
        if (in->len - at - 4 < len)
            break;
        rc = deliver(in->data + at + 4, len, cb, arg, e);
        at += 4 + len;
    }
    buf_consume(in, at);
    return rc;
}
