/* Glue on libuv: one loop per thread, work on the thread pool, timers. */
#ifndef REITOS_BASE_LOOP_H
#define REITOS_BASE_LOOP_H

#include <uv.h>

/* Runs `work` on the thread pool, then `done` on the loop. */
void loop_work(uv_loop_t *loop, void (*work)(void *), void (*done)(void *), void *arg);

/* Runs the loop until no work of loop_work() is left: before what its `done` functions use goes. */
void loop_drain(uv_loop_t *loop);

/* A timer that owns its memory. `cb` runs once after `ms` (repeat_ms 0) or every repeat_ms. */
struct loop_timer;
struct loop_timer *loop_timer_start(uv_loop_t *loop, uint64_t ms, uint64_t repeat_ms,
                                    void (*cb)(void *), void *arg);
struct loop_timer *loop_timer_stop(struct loop_timer *t); /* NULL-safe, returns NULL; a one-shot
                                   timer must also be stopped after it fired to free it */

/* Closes every handle that is left, runs the loop until it is empty, closes it. Returns 0 when
 * nothing had to be forced. */
int loop_fini(uv_loop_t *loop);

#endif
