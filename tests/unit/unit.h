/* Every unit test includes this: START_TEST(...) ... END_TEST, then UNIT_MAIN("name", a, b, c).
 *
 * The limit of a case is CPU time, so that no other load on the machine can make it fail. The limit of wall time is for
 * cases that wait without end; it is below the one of the whole test in meson.build.
 */
#ifndef TR_TESTS_UNIT_H
#define TR_TESTS_UNIT_H

#include <check.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "trireme/base.h"

enum { UNIT_CPU_SECONDS = 120, UNIT_WALL_SECONDS = 1500 };

/* Runs in the process of each case. Without fork (CK_FORK=no) all cases share a process, so the limit moves. */
static inline void unit_limit_cpu(void)
{
    const char *multiplier = getenv("CK_TIMEOUT_MULTIPLIER"); /* as for the limit of Check */
    double seconds = UNIT_CPU_SECONDS * (multiplier ? atof(multiplier) : 1);
    struct rlimit limit;
    getrlimit(RLIMIT_CPU, &limit);
    limit.rlim_cur = (rlim_t)(seconds + (double)clock() / CLOCKS_PER_SEC);
    setrlimit(RLIMIT_CPU, &limit);
}

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

/* An empty list of cases with their limits, for a main() that fills it by itself, and then runs it. */
static inline TCase *unit_cases(const char *name)
{
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, UNIT_WALL_SECONDS);
    tcase_add_checked_fixture(cases, unit_limit_cpu, NULL);
    return cases;
}

static inline int unit_run(const char *name, TCase *cases)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#define UNIT_MAIN(name, ...)                                                                                 \
    int main(void)                                                                                           \
    {                                                                                                        \
        const TTest *tests[] = {__VA_ARGS__};                                                                \
        TCase *cases = unit_cases(name);                                                                     \
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);           \
        return unit_run(name, cases);                                                                        \
    }

#endif
