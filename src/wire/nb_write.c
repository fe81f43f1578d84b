/* JSON text as Python's json.dumps(indent=1, sort_keys=True, ensure_ascii=False) makes it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/nb.h"

static int write_value(const json_t *v, size_t depth, struct buf *out);

static int line(struct buf *out, size_t depth)
{
    char *p;
    int rc = buf_reserve(out, depth + 1, &p);
    if (rc < 0)
        return rc;
    p[0] = '\n';
    memset(p + 1, ' ', depth);
    out->len += depth + 1;
    out->data[out->len] = '\0';
    return 0;
}

static const char *escape_of(unsigned char c, char tmp[8])
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    default:
        snprintf(tmp, 8, "\\u%04x", c);
        return tmp;
    }
}

static int write_string(const char *s, size_t n, struct buf *out)
{
    size_t start = 0;
    int rc = buf_append(out, "\"", 1);
    for (size_t i = 0; i < n && rc == 0; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        char tmp[8];
        rc = buf_append(out, s + start, i - start);
        if (rc == 0)
            rc = buf_puts(out, escape_of(c, tmp));
        start = i + 1;
    }
    if (rc == 0)
        rc = buf_append(out, s + start, n - start);
    return rc < 0 ? rc : buf_append(out, "\"", 1);
}

/* The shortest digits that read back as `v`, in scientific form. */
static void shortest(double v, char *out, size_t size)
{
    for (int digits = fabs(v) < 1e-300 ? 1 : 15; digits <= 17; digits++) {
        snprintf(out, size, "%.*e", digits - 1, v);
        if (strtod(out, NULL) == v)
            return;
    }
}

/* As Python's repr(): plain from 1e-4 to 1e16, else scientific. */
static int write_real(double v, struct buf *out)
{
    char sci[40], digits[24];
    shortest(v, sci, sizeof sci);
    const char *p = sci + (sci[0] == '-');
    size_t n = 0;
    for (; *p && *p != 'e'; p++) {
        if (*p != '.')
            digits[n++] = *p;
    }
    int exp = (int)strtol(p + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    autobuf struct buf b = BUF_INIT(512);
    buf_add(&b, "%s", sci[0] == '-' ? "-" : "");
    if (exp < -4 || exp >= 16) {
        buf_add(&b, "%c%s%.*se%c%02d", digits[0], n > 1 ? "." : "", (int)n - 1, digits + 1,
                exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        buf_add(&b, "0.%.*s%.*s", -exp - 1, "000", (int)n, digits);
    } else {
        int whole = exp + 1, have = (int)n < whole ? (int)n : whole;
        buf_add(&b, "%.*s%.*s.%.*s", have, digits, whole - have, "0000000000000000",
                (int)n > whole ? (int)n - whole : 1, (int)n > whole ? digits + whole : "0");
    }
    return buf_append(out, b.data, b.len);
}

static int write_array(const json_t *a, size_t depth, struct buf *out)
{
    size_t n = json_array_size(a);
    if (n == 0)
        return buf_puts(out, "[]");
    int rc = buf_puts(out, "[");
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (i)
            rc = buf_puts(out, ",");
        if (rc == 0)
            rc = line(out, depth + 1);
        if (rc == 0)
            rc = write_value(json_array_get(a, i), depth + 1, out);
    }
    if (rc == 0)
        rc = line(out, depth);
    return rc < 0 ? rc : buf_puts(out, "]");
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int write_member(const json_t *o, const char *key, size_t depth, struct buf *out)
{
    int rc = line(out, depth);
    if (rc == 0)
        rc = write_string(key, strlen(key), out);
    if (rc == 0)
        rc = buf_puts(out, ": ");
    return rc < 0 ? rc : write_value(json_object_get(o, key), depth, out);
}

static int write_object(const json_t *o, size_t depth, struct buf *out)
{
    size_t n = json_object_size(o), i = 0;
    if (n == 0)
        return buf_puts(out, "{}");
    autofree const char **keys = xcalloc(n, sizeof *keys);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) keys[i++] = key;
    qsort(keys, n, sizeof *keys, compare_keys);
    int rc = buf_puts(out, "{");
    for (i = 0; i < n && rc == 0; i++) {
        if (i)
            rc = buf_puts(out, ",");
        if (rc == 0)
            rc = write_member(o, keys[i], depth + 1, out);
    }
    if (rc == 0)
        rc = line(out, depth);
    return rc < 0 ? rc : buf_puts(out, "}");
}

static int write_value(const json_t *v, size_t depth, struct buf *out)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return write_object(v, depth, out);
    case JSON_ARRAY:
        return write_array(v, depth, out);
    case JSON_STRING:
        return write_string(json_string_value(v), json_string_length(v), out);
    case JSON_INTEGER:
        return buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL:
        return write_real(json_real_value(v), out);
    case JSON_TRUE:
        return buf_puts(out, "true");
    case JSON_FALSE:
        return buf_puts(out, "false");
    case JSON_NULL:
        break;
    }
    return buf_puts(out, "null");
}

int nb_write_json(const json_t *v, struct buf *out)
{
    return write_value(v, 0, out);
}

int nb_write(const json_t *notebook, struct buf *out)
{
    autojson json_t *copy = json_deep_copy(notebook);
    if (!copy)
        return ERR_MEMORY;
    nb_split_lines(copy);
    int rc = write_value(copy, 0, out);
    return rc < 0 ? rc : buf_puts(out, "\n");
}
