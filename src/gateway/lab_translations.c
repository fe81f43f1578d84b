/* Translations of JupyterLab: the language packs (`pip install jupyterlab-language-pack-fr-FR`) in
 * its Python environment. */
#include <glob.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/jdirs.h"
#include "gateway/job.h"
#include "gateway/lab.h"

#define PACKS "lib*/python3*/site-packages/jupyterlab_language_pack_"

static const struct language {
    const char *locale, *name, *own_name;
} languages[] = {
    {"ar_SA", "Arabic", "العربية"},
    {"ca_ES", "Catalan", "Català"},
    {"cs_CZ", "Czech", "Čeština"},
    {"da_DK", "Danish", "Dansk"},
    {"de_DE", "German", "Deutsch"},
    {"el_GR", "Greek", "Ελληνικά"},
    {"es_ES", "Spanish", "Español"},
    {"et_EE", "Estonian", "Eesti"},
    {"fi_FI", "Finnish", "Suomi"},
    {"fr_FR", "French", "Français"},
    {"he_IL", "Hebrew", "עברית"},
    {"hu_HU", "Hungarian", "Magyar"},
    {"hy_AM", "Armenian", "Հայերեն"},
    {"id_ID", "Indonesian", "Indonesia"},
    {"it_IT", "Italian", "Italiano"},
    {"ja_JP", "Japanese", "日本語"},
    {"ko_KR", "Korean", "한국어"},
    {"lt_LT", "Lithuanian", "Lietuvių"},
    {"nl_NL", "Dutch", "Nederlands"},
    {"no_NO", "Norwegian", "Norsk"},
    {"pl_PL", "Polish", "Polski"},
    {"pt_BR", "Portuguese (Brazil)", "Português (Brasil)"},
    {"ro_RO", "Romanian", "Română"},
    {"ru_RU", "Russian", "Русский"},
    {"tr_TR", "Turkish", "Türkçe"},
    {"uk_UA", "Ukrainian", "Українська"},
    {"vi_VN", "Vietnamese", "Tiếng Việt"},
    {"zh_CN", "Chinese (simplified)", "中文 (简体)"},
    {"zh_TW", "Chinese (traditional)", "中文 (繁體)"},
};

/* A locale without a name here goes by its code. */
static json_t *names_of(const char *locale)
{
    const char *name = locale, *own_name = locale;
    for (size_t i = 0; i < COUNTOF(languages); i++) {
        if (strcmp(languages[i].locale, locale) == 0) {
            name = languages[i].name;
            own_name = languages[i].own_name;
        }
    }
    return json_pack("{s:s,s:s}", "displayName", name, "nativeName", own_name);
}

static int list_locales(struct job *j, struct err *e)
{
    (void)e;
    json_t *data =
        json_pack("{s:{s:s,s:s}}", "en", "displayName", "English", "nativeName", "English");
    autofree char *pattern =
        xasprintf("%s/" PACKS "*/locale/*/LC_MESSAGES/jupyterlab.json", j->prefix);
    glob_t g = {0};
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            char *end = strstr(g.gl_pathv[i], "/LC_MESSAGES/");
            *end = '\0';
            const char *locale = strrchr(g.gl_pathv[i], '/') + 1;
            json_object_set_new(data, locale, names_of(locale));
        }
    }
    globfree(&g);
    j->reply = json_pack("{s:o,s:s}", "data", data, "message", "");
    return 0;
}

static int is_locale(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return n && !s[n];
}

static json_t *read_pack(const char *prefix, const char *locale)
{
    json_t *data = json_object();
    autofree char *pattern =
        xasprintf("%s/" PACKS "%s/locale/%s/LC_MESSAGES/*.json", prefix, locale, locale);
    glob_t g = {0};
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            autojson json_t *one = NULL;
            autofree char *domain = xstrdup(strrchr(g.gl_pathv[i], '/') + 1);
            domain[strlen(domain) - strlen(".json")] = '\0';
            if (jdirs_read_object(g.gl_pathv[i], &one, NULL) == 0) /* else these stay English */
                json_object_set(data, domain, one);
        }
    }
    globfree(&g);
    return data;
}

/* "default" is the page's own language. */
static int get_locale(struct job *j, struct err *e)
{
    if (!is_locale(j->name))
        return err_set(e, ERR_NOT_FOUND, "Language pack '%.40s' not installed!", j->name);
    autojson json_t *data = read_pack(j->prefix, j->name);
    int own = strcmp(j->name, "default") == 0 || strcmp(j->name, "en") == 0;
    autofree char *message = own || json_object_size(data)
                                 ? xstrdup("")
                                 : xasprintf("Language pack '%.40s' not installed!", j->name);
    j->reply = json_pack("{s:O,s:s}", "data", data, "message", message);
    return 0;
}

void lab_translations(struct gw *gw, struct http_req *r, const char *const *p)
{
    job_start(gw, r, p[0], 0, *p[0] ? get_locale : list_locales);
}
