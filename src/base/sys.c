#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int64_t real_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

static int64_t real_mono(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static void real_random(void *out, size_t n)
{
    char *p = out;
    while (n) {
        ssize_t r = getrandom(p, n, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            perror("reitos: getrandom");
            abort();
        }
        p += r;
        n -= (size_t)r;
    }
}

static const char *real_env(const char *name)
{
    return getenv(name);
}

struct sys_ops sys = {real_wall, real_mono, real_random, real_env};

const char *sys_time_iso(int64_t wall_us, char out[SYS_TIME_MAX])
{
    time_t secs = (time_t)(wall_us / 1000000);
    struct tm tm;
    gmtime_r(&secs, &tm);
    char date[24];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, SYS_TIME_MAX, "%s.%06dZ", date, (int)(wall_us % 1000000));
    return out;
}

void sys_random_hex(char *out, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        unsigned char c;
        sys.random(&c, 1);
        out[2 * i] = digits[c >> 4];
        out[2 * i + 1] = digits[c & 15];
    }
    out[2 * n] = '\0';
}

const char *sys_uuid(char out[SYS_UUID_MAX])
{
    unsigned char b[16];
    sys.random(b, sizeof b);
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(out, SYS_UUID_MAX,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    return out;
}
