/* Which origins and Host names may talk to the server. */
#include "gateway/origin.h"

#include <arpa/inet.h>
#include <limits.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"

#define NAME_BYTES 256

struct origin_rules {
    char *allow;
    regex_t pattern;
    int has_pattern;
};

int origin_rules_new(const char *allow, const char *pattern, struct origin_rules **ret,
                     struct err *e)
{
    struct origin_rules *o = xcalloc(1, sizeof *o);
    if (*pattern) {
        /* anchored here, and checked again on use: alternatives bind weaker than anchors */
        autofree char *whole = xasprintf("^(%s)$", pattern);
        int rc = regcomp(&o->pattern, whole, REG_EXTENDED | REG_ICASE);
        if (rc) {
            char why[128];
            regerror(rc, &o->pattern, why, sizeof why);
            free(o);
            return err_set(e, ERR_CONFIG, "allow-origin-pat \"%s\": %s", pattern, why);
        }
        o->has_pattern = 1;
    }
    o->allow = xstrdup(allow);
    *ret = o;
    return 0;
}

struct origin_rules *origin_rules_free(struct origin_rules *o)
{
    if (!o)
        return NULL;
    if (o->has_pattern)
        regfree(&o->pattern);
    free(o->allow);
    free(o);
    return NULL;
}

int origin_allowed(const struct origin_rules *o, const char *origin)
{
    if (!strcmp(o->allow, "*"))
        return 1;
    if (*o->allow && !strcasecmp(o->allow, origin))
        return 1;
    regmatch_t m[1];
    return o->has_pattern && !regexec(&o->pattern, origin, 1, m, 0) && m[0].rm_so == 0 &&
           (size_t)m[0].rm_eo == strlen(origin);
}

/* Splits "name:port", "[v6]:port" or a bare name; brackets are dropped. 0 when malformed. */
static int split_host(const char *host, char name[NAME_BYTES], const char **ret_port)
{
    const char *start = host, *end;
    if (*host == '[') {
        start++;
        end = strchr(host, ']');
        if (!end || (end[1] && end[1] != ':'))
            return 0;
        *ret_port = end[1] ? end + 2 : "";
    } else {
        end = host + strcspn(host, ":");
        *ret_port = *end ? end + 1 : "";
    }
    size_t n = (size_t)(end - start);
    if (!n || n >= NAME_BYTES || strspn(*ret_port, "0123456789") != strlen(*ret_port))
        return 0;
    memcpy(name, start, n);
    name[n] = '\0';
    if (n > 1 && name[n - 1] == '.') /* the DNS root may be written out */
        name[n - 1] = '\0';
    return 1;
}

int origin_is_host(const char *origin, const char *host)
{
    const char *default_port;
    if (!strncasecmp(origin, "http://", 7)) {
        default_port = "80";
        origin += 7;
    } else if (!strncasecmp(origin, "https://", 8)) {
        default_port = "443";
        origin += 8;
    } else {
        return 0;
    }
    char a[NAME_BYTES], b[NAME_BYTES];
    const char *pa, *pb;
    if (!split_host(origin, a, &pa) || !split_host(host, b, &pb) || strcasecmp(a, b))
        return 0;
    return !strcmp(*pa ? pa : default_port, *pb ? pb : default_port);
}

static int is_loopback(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;
    size_t n = strlen(name);
    if (inet_pton(AF_INET, name, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, name, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return !strcasecmp(name, "localhost") || (n > 10 && !strcasecmp(name + n - 10, ".localhost"));
}

static int is_address(const char *name)
{
    struct in6_addr any;
    return inet_pton(AF_INET, name, &any) == 1 || inet_pton(AF_INET6, name, &any) == 1;
}

static int in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    while (*list) {
        list += strspn(list, ", ");
        size_t len = strcspn(list, ", ");
        if ((len == n && !strncasecmp(list, name, n)) || (len == 1 && *list == '*'))
            return 1;
        list += len;
    }
    return 0;
}

static int is_own_name(const char *name)
{
    char own[HOST_NAME_MAX + 1];
    if (gethostname(own, sizeof own) < 0)
        return 0;
    own[HOST_NAME_MAX] = '\0';
    size_t n = strlen(own);
    return !strncasecmp(name, own, n) && (!name[n] || name[n] == '.');
}

int origin_host_ok(const char *host, const char *listen, const char *extra)
{
    if (!strncmp(listen, "unix:", 5) || in_list(extra, "*"))
        return 1;
    char name[NAME_BYTES], own[NAME_BYTES];
    const char *port;
    if (!host || !split_host(host, name, &port))
        return 0;
    if (is_loopback(name) || in_list(extra, name))
        return 1;
    if (!split_host(listen, own, &port))
        return 0;
    if (!strcasecmp(own, name))
        return 1;
    return !is_loopback(own) && (is_address(name) || is_own_name(name));
}
