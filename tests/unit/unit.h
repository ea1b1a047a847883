/* The frame of a unit test. UNIT_CASE(name) { ... } is a case, UNIT_LOOP(name, n) { ... } one that runs for _i = 0 .. n - 1.
 * Each runs in a process of its own, in the order of the file; main() is here. unit_path() gives a case a folder, which is
 * removed at its end.
 *
 * The limit of a case is CPU time, so that no other load on the machine can make it fail. The limit of wall time is for
 * cases that wait without end; it is below the one of the whole test in meson.build.
 */
#ifndef TR_TESTS_UNIT_H
#define TR_TESTS_UNIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* Checks cost nothing while they hold: Check would write the position of each to a file, which takes longer than most tests. */
#define _mark_point(file, line) ((void)0)

enum { UNIT_CPU_SECONDS = 120, UNIT_WALL_SECONDS = 1500, UNIT_CASES = 128, UNIT_PATHS = 8, UNIT_PATH = 256 };

/* ---- checks ---- */

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
        ck_contains(tr_error_text(), contains);                                                              \
    } while (0)

#define ck_contains(text, part) ck_assert_msg(strstr((text), (part)), "«%s» lacks «%s»", (text), (part))
#define ck_lacks(text, part)    ck_assert_msg(!strstr((text), (part)), "«%s» contains «%s»", (text), (part))

/* The number of elements of an array. */
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- files ---- */

static char unit_folder[32];
static pid_t unit_folder_owner;

static inline void unit_folder_remove(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", unit_folder);
    if (getpid() == unit_folder_owner && system(command) != 0) perror(unit_folder);
}

/* The path of a file in the folder of this case. It is valid until the eighth call after this one. */
static inline char *unit_path(const char *name)
{
    static char path[UNIT_PATHS][UNIT_PATH];
    static int turn;
    if (!unit_folder[0]) {
        /* in memory if there is a gigabyte: fsync() of a disk takes most of the time of cases that write files */
        struct statvfs memory;
        bool fits = statvfs("/dev/shm", &memory) == 0 && memory.f_bavail * memory.f_frsize > 1 << 30;
        snprintf(unit_folder, sizeof unit_folder, "%s/trireme_unit_XXXXXX", fits ? "/dev/shm" : "/tmp");
        ck_assert_ptr_nonnull(mkdtemp(unit_folder));
        unit_folder_owner = getpid();
        atexit(unit_folder_remove);
    }
    turn = (turn + 1) % UNIT_PATHS;
    ck_assert_int_lt(snprintf(path[turn], UNIT_PATH, "%s/%s", unit_folder, name), UNIT_PATH);
    return path[turn];
}

/* For cases that need the folder itself: UNIT_FIXTURE(unit_make_folder, NULL). */
static inline void unit_make_folder(void)
{
    unit_path("");
}

/* A relative name is one in the folder of this case. */
static inline FILE *unit_open(const char *name, const char *mode)
{
    FILE *file = fopen(*name == '/' ? name : unit_path(name), mode);
    ck_assert_msg(file, "%s cannot be opened", name);
    return file;
}

static inline void unit_write(const char *name, const void *bytes, size_t n)
{
    FILE *file = unit_open(name, "wb");
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void unit_write_text(const char *name, const char *text)
{
    unit_write(name, text, strlen(text));
}

/* The bytes of a file with a 0 behind them. To be freed. n may be NULL. */
static inline char *unit_read(const char *name, size_t *n)
{
    FILE *file = unit_open(name, "rb");
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(file);
    char *bytes = malloc(size + 1);
    rewind(file);
    ck_assert_uint_eq(fread(bytes, 1, size, file), size);
    bytes[size] = '\0';
    fclose(file);
    if (n) *n = size;
    return bytes;
}

/* The path of a public data set, or NULL (said) if it is not here. */
static inline char *unit_public_data(const char *name)
{
    static char path[512];
    const char *folder = getenv("TRIREME_DATA");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "datasets", name);
    if (access(path, R_OK) == 0) return path;
    fprintf(stderr, "skipped: no %s\n", path);
    return NULL;
}

/* ---- cases ---- */

static struct {
    const TTest *test;
    int times;
} unit_case[UNIT_CASES];
static size_t unit_case_count;

static inline void unit_add(const TTest *test, int times)
{
    if (unit_case_count == UNIT_CASES) abort();
    unit_case[unit_case_count].test = test;
    unit_case[unit_case_count++].times = times;
}

#define UNIT_LOOP(name, times)                                                                               \
    static void name##_case(int _i);                                                                         \
    static const TTest name = {#name, name##_case, __FILE__, __LINE__};                                      \
    __attribute__((constructor)) static void name##_add_case(void)                                           \
    {                                                                                                        \
        unit_add(&name, times);                                                                              \
    }                                                                                                        \
    static void name##_case(int _i CK_ATTRIBUTE_UNUSED)

#define UNIT_CASE(name) UNIT_LOOP(name, 1)

/* Functions to call before and after each case, in its process. */
static void (*unit_before)(void), (*unit_after)(void);

#define UNIT_FIXTURE(before, after)                                                                          \
    __attribute__((constructor)) static void unit_add_fixture(void)                                          \
    {                                                                                                        \
        unit_before = before;                                                                                \
        unit_after = after;                                                                                  \
    }

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

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL, *name = slash ? slash + 1 : "unit";
    TCase *cases = tcase_create(name);
    Suite *suite = suite_create(name);
    tcase_set_timeout(cases, UNIT_WALL_SECONDS);
    tcase_add_checked_fixture(cases, unit_limit_cpu, NULL);
    if (unit_before || unit_after) tcase_add_checked_fixture(cases, unit_before, unit_after);
    for (size_t i = 0; i < unit_case_count; i++)
        tcase_add_loop_test(cases, unit_case[i].test, 0, unit_case[i].times);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
