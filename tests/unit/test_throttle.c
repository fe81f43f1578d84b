#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "gateway/throttle.h"

#define T0 ((int64_t)1000000000)

static void fail_times(struct throttle *t, const char *peer, int n, int64_t now)
{
    for (int i = 0; i < n; i++)
        throttle_failed(t, peer, now);
}

static void ten_are_free(void **state)
{
    (void)state;
    struct throttle *t = throttle_new();
    fail_times(t, "a", THROTTLE_FREE - 1, T0);
    assert_int_equal(throttle_wait_ms(t, "a", T0), 0);
    throttle_failed(t, "a", T0);
    assert_int_equal(throttle_wait_ms(t, "a", T0), 1000);
    assert_int_equal(throttle_wait_ms(t, "a", T0), 2000); /* attempts at once queue up */
    assert_int_equal(throttle_wait_ms(t, "a", T0 + 2000000), 1000);
    assert_int_equal(throttle_wait_ms(t, "b", T0), 0); /* others are not held up */
    throttle_free(t);
}

static void the_queue_is_short(void **state)
{
    (void)state;
    struct throttle *t = throttle_new();
    fail_times(t, "a", THROTTLE_FREE, T0);
    int refused = 0;
    for (int i = 0; i < 100; i++)
        refused += throttle_wait_ms(t, "a", T0) < 0;
    assert_int_equal(refused, 100 - THROTTLE_QUEUE_MS / THROTTLE_STEP_MS);
    throttle_free(t);
}

static void forgetting(void **state)
{
    (void)state;
    struct throttle *t = throttle_new();
    fail_times(t, "a", THROTTLE_FREE, T0);
    assert_int_equal(throttle_wait_ms(t, "a", T0 + THROTTLE_FORGET_US + 1), 0);
    throttle_failed(t, "a", T0 + THROTTLE_FORGET_US + 1); /* counts from one again */
    assert_int_equal(throttle_wait_ms(t, "a", T0 + THROTTLE_FORGET_US + 2), 0);
    fail_times(t, "b", THROTTLE_FREE, T0);
    throttle_passed(t, "b");
    assert_int_equal(throttle_wait_ms(t, "b", T0), 0);
    throttle_free(t);
}

static void many_peers(void **state)
{
    (void)state;
    struct throttle *t = throttle_new();
    char peer[32];
    fail_times(t, "old", THROTTLE_FREE, T0);
    for (int i = 0; i < THROTTLE_PEERS; i++) {
        snprintf(peer, sizeof peer, "p%d", i);
        throttle_failed(t, peer, T0 + 1 + i);
    }
    assert_int_equal(throttle_wait_ms(t, "old", T0 + 1000), 0); /* pushed out, nothing overrun */
    throttle_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_are_free),
        cmocka_unit_test(the_queue_is_short),
        cmocka_unit_test(forgetting),
        cmocka_unit_test(many_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
