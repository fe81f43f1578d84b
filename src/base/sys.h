/* The seams to the outside: clock, randomness, environment. No other module calls time(),
 * getrandom() or getenv(); tests replace the table. Any thread (the table is set before threads
 * start). */
#ifndef REITOS_BASE_SYS_H
#define REITOS_BASE_SYS_H

#include <stddef.h>
#include <stdint.h>

struct sys_ops {
    int64_t (*wall_us)(void);             /* microseconds since 1970-01-01 UTC */
    int64_t (*mono_us)(void);             /* microseconds, monotonic */
    void (*random)(void *out, size_t n);  /* cryptographically strong bytes */
    const char *(*env)(const char *name); /* borrowed, NULL when unset */
};

extern struct sys_ops sys;

#define SYS_TIME_MAX 40
/* "2026-01-31T23:59:59.000123Z": Jupyter's form, fraction always six digits. Returns `out`. */
const char *sys_time_iso(int64_t wall_us, char out[SYS_TIME_MAX]);

#define SYS_UUID_MAX 37
/* Random (version 4) UUID in canonical lower-case form. Returns `out`. */
const char *sys_uuid(char out[SYS_UUID_MAX]);

/* Hexadecimal text of n random bytes; out holds 2 * n + 1. */
void sys_random_hex(char *out, size_t n);

#endif
