#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>

#include "base/alloc.h"
#include "kernel/kstate.h"

static void life_of_a_kernel(void **state)
{
    (void)state;
    static const enum kstate path[] = {
        KSTATE_NEW,       KSTATE_LAUNCHING,  KSTATE_CONNECTING, KSTATE_READY,    KSTATE_RESTARTING,
        KSTATE_LAUNCHING, KSTATE_CONNECTING, KSTATE_READY,      KSTATE_DEAD,     KSTATE_RESTARTING,
        KSTATE_LAUNCHING, KSTATE_CONNECTING, KSTATE_READY,      KSTATE_STOPPING, KSTATE_DEAD};
    for (size_t i = 0; i + 1 < COUNTOF(path); i++)
        assert_true(kstate_allowed(path[i], path[i + 1]));
}

static void moves_that_are_not_allowed(void **state)
{
    (void)state;
    for (enum kstate s = 0; s < KSTATE_COUNT; s++) {
        assert_false(kstate_allowed(s, s));
        assert_false(kstate_allowed(s, KSTATE_NEW));
        assert_non_null(kstate_name(s));
        if (s != KSTATE_NEW && s != KSTATE_STOPPING)
            assert_true(kstate_allowed(s, KSTATE_STOPPING)); /* anything alive can be stopped */
        if (s != KSTATE_CONNECTING)
            assert_false(kstate_allowed(s, KSTATE_READY)); /* only what has answered */
    }
    assert_false(kstate_allowed(KSTATE_STOPPING, KSTATE_RESTARTING));
    assert_false(kstate_allowed(KSTATE_READY, KSTATE_LAUNCHING));
}

static void quick_crashes_are_counted(void **state)
{
    (void)state;
    struct krestarts r = {0};
    for (int i = 0; i < KSTATE_CRASHES; i++)
        assert_true(krestarts_again(&r, 1000));
    assert_false(krestarts_again(&r, 1000));
    assert_false(krestarts_again(&r, 0));
}

static void a_stable_kernel_begins_anew(void **state)
{
    (void)state;
    struct krestarts r = {0};
    for (int i = 0; i < KSTATE_CRASHES; i++)
        assert_true(krestarts_again(&r, 0));
    assert_true(krestarts_again(&r, KSTATE_STABLE_US));
    for (int i = 1; i < KSTATE_CRASHES; i++)
        assert_true(krestarts_again(&r, KSTATE_STABLE_US - 1));
    assert_false(krestarts_again(&r, KSTATE_STABLE_US - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(life_of_a_kernel),
        cmocka_unit_test(moves_that_are_not_allowed),
        cmocka_unit_test(quick_crashes_are_counted),
        cmocka_unit_test(a_stable_kernel_begins_anew),
    };
    return cmocka_run_group_tests_name("kstate", tests, NULL, NULL);
}
