#include "wire/textfold.h"

#include <string.h>

void textfold_init(struct textfold *f, size_t max)
{
    buf_init(&f->text, max);
    f->cursor = 0;
}

void textfold_free(struct textfold *f)
{
    buf_free(&f->text);
    f->cursor = 0;
}

static int is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Offset after `chars` characters from `at`, at most the end. */
static size_t skip_chars(const struct buf *t, size_t at, size_t chars)
{
    while (chars-- && at < t->len) {
        at++;
        while (at < t->len && is_continuation(t->data[at]))
            at++;
    }
    return at;
}

static size_t count_chars(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += !is_continuation(s[i]);
    return count;
}

/* Replaces the bytes [from, to) of the text. */
static int splice(struct buf *t, size_t from, size_t to, const char *s, size_t n)
{
    size_t tail = t->len - to;
    if (n > to - from) {
        int rc = buf_reserve(t, n - (to - from), NULL);
        if (rc < 0)
            return rc;
    }
    if (!t->data)
        return 0; /* nothing replaced by nothing */
    memmove(t->data + from + n, t->data + to, tail);
    memcpy(t->data + from, s, n);
    t->len = from + n + tail;
    t->data[t->len] = '\0';
    return 0;
}

static int put(struct textfold *f, const char *s, size_t n)
{
    int rc;
    if (f->cursor == f->text.len)
        rc = buf_append(&f->text, s, n);
    else
        rc = splice(&f->text, f->cursor, skip_chars(&f->text, f->cursor, count_chars(s, n)), s, n);
    if (rc == 0)
        f->cursor += n;
    return rc;
}

/* With text behind the cursor JupyterLab takes away the character under it too: kept, so that what
 * we fold and what a client saves are the same. */
static void step_back(struct textfold *f)
{
    size_t from = f->cursor;
    if (from == 0 || f->text.data[from - 1] == '\n')
        return;
    do
        from--;
    while (from > 0 && is_continuation(f->text.data[from]));
    IGNORE_RESULT(splice(&f->text, from, skip_chars(&f->text, f->cursor, 1), "", 0)); /* shrinks */
    f->cursor = from;
}

static void line_start(struct textfold *f)
{
    while (f->cursor > 0 && f->text.data[f->cursor - 1] != '\n')
        f->cursor--;
}

static const char *next_special(const char *s, const char *end)
{
    while (s < end && *s != '\n' && *s != '\r' && *s != '\b')
        s++;
    return s;
}

int textfold_feed(struct textfold *f, const char *s, size_t n)
{
    const char *end = s + n;
    while (s < end) {
        const char *stop = next_special(s, end);
        int rc = stop > s ? put(f, s, (size_t)(stop - s)) : 0;
        if (rc == 0 && stop < end && *stop == '\n') {
            rc = buf_append(&f->text, "\n", 1);
            f->cursor = f->text.len;
        }
        if (rc < 0)
            return rc;
        if (stop < end && *stop == '\r')
            line_start(f);
        else if (stop < end && *stop == '\b')
            step_back(f);
        s = stop + (stop < end);
    }
    return 0;
}
