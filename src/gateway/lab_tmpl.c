/* The page of JupyterLab from its template. */
#include <string.h>

#include "base/alloc.h"
#include "gateway/lab.h"
#include "gateway/urltext.h"

/* JSON inside a <script> element: no "</script" and no "<!--" may appear. */
static void put_script_json(const json_t *v, struct buf *out)
{
    autofree char *text = json_text(v);
    for (const char *p = text; *p; p++) {
        if (*p == '<' || *p == '>' || *p == '&' || *p == '\'')
            buf_add(out, "\\u%04x", *p);
        else
            buf_add(out, "%c", *p);
    }
}

/* One {{...}}; `name` has no spaces. */
static int put_value(const char *name, const json_t *config, struct buf *out, struct err *e)
{
    static const char page_prefix[] = "page_config.";
    if (!strcmp(name, "page_config_full|tojson")) {
        put_script_json(config, out);
        return 0;
    }
    const char *value = NULL;
    if (!strcmp(name, "base_url|escape") || !strcmp(name, "base_url"))
        value = json_get_str(config, "baseUrl", NULL);
    else if (!strncmp(name, page_prefix, sizeof page_prefix - 1))
        value = json_get_str(config, name + sizeof page_prefix - 1, NULL);
    if (!value)
        return err_set(e, ERR_PARSE, "JupyterLab's index.html: unknown placeholder %s", name);
    html_escape(value, out);
    return 0;
}

/* After "{% if": the end of the whole condition. They are not nested. */
static const char *skip_condition(const char *p)
{
    const char *end = strstr(p, "endif");
    end = end ? strstr(end, "%}") : NULL;
    return end ? end + 2 : NULL;
}

int lab_render(const char *tmpl, const json_t *config, struct buf *out, struct err *e)
{
    for (const char *p = tmpl; *p;) {
        size_t n = strcspn(p, "{");
        int rc = buf_append(out, p, n);
        if (rc < 0)
            return err_set(e, rc, "JupyterLab's index.html is too large");
        p += n;
        if (!*p)
            break;
        const char *close = p[1] == '{' ? "}}" : p[1] == '%' ? "%}" : p[1] == '#' ? "#}" : NULL;
        if (!close) {
            buf_add(out, "{");
            p++;
            continue;
        }
        const char *end = strstr(p + 2, close);
        if (!end)
            return err_set(e, ERR_PARSE, "JupyterLab's index.html: %.2s without end", p);
        const char *inner = p + 2 + strspn(p + 2, " -");
        autobuf struct buf name = BUF_INIT(BUF_DEFAULT_MAX);
        for (const char *c = p + 2; c < end; c++)
            if (*c != ' ')
                buf_add(&name, "%c", *c);
        if (*close == '}' && (rc = put_value(buf_str(&name), config, out, e)) < 0)
            return rc;
        p = *close == '%' && !strncmp(inner, "if ", 3) ? skip_condition(p) : end + 2;
        if (!p)
            return err_set(e, ERR_PARSE, "JupyterLab's index.html: condition without end");
    }
    return 0;
}
