/* What every unit test needs around its cases: START_TEST(...) … END_TEST, then UNIT_MAIN("name", a, b, c). */
#ifndef TR_TESTS_UNIT_H
#define TR_TESTS_UNIT_H

#include <check.h>
#include <stdlib.h>

#include "trireme/status.h"

#define ck_ok(call)                                                                                          \
    do {                                                                                                     \
        int ck_status_ = (call);                                                                             \
        ck_assert_msg(ck_status_ == TR_OK, "%s: status %d: %s", #call, ck_status_, tr_error_text());         \
    } while (0)

/* The call must fail with this status and a text that contains this. */
#define ck_fails(call, status, contains)                                                                     \
    do {                                                                                                     \
        int ck_status_ = (call);                                                                             \
        ck_assert_msg(ck_status_ == (status), "%s: status %d: %s", #call, ck_status_, tr_error_text());      \
        ck_assert_msg(strstr(tr_error_text(), (contains)), "%s: «%s» lacks «%s»", #call, tr_error_text(),    \
                      (contains));                                                                           \
    } while (0)

#define UNIT_MAIN(name, ...)                                                                                 \
    int main(void)                                                                                           \
    {                                                                                                        \
        const TTest *tests[] = {__VA_ARGS__};                                                                \
        Suite *suite = suite_create(name);                                                                   \
        TCase *cases = tcase_create(name);                                                                   \
        tcase_set_timeout(cases, 120);                                                                       \
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);           \
        suite_add_tcase(suite, cases);                                                                       \
        SRunner *runner = srunner_create(suite);                                                             \
        srunner_run_all(runner, CK_ENV);                                                                     \
        int failed = srunner_ntests_failed(runner);                                                          \
        srunner_free(runner);                                                                                \
        return failed ? EXIT_FAILURE : EXIT_SUCCESS;                                                         \
    }

#endif
