/* The frame of a test under mpirun. MPI_CASE(name) { ... } is a case; main() is here.
 *
 * All ranks run all cases in the order of the file. A rank that finds something wrong notes it (the first one
 * counts) and continues, so that the others are not left waiting; after each case all agree on the outcome, and
 * rank 0 prints the note of the lowest failing rank. A case that hangs is ended by a timer that names it: one of CPU
 * time, so that no other load on the machine can make it fail, or one of wall time for ranks that sleep, which is long.
 */
#ifndef TR_TESTS_MPI_UNIT_H
#define TR_TESTS_MPI_UNIT_H

#define _GNU_SOURCE

#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "stage/stage.h"

enum {
    MPI_CPU_SECONDS = 120,
    MPI_WALL_SECONDS = 1500,
    MPI_NOTE = 512,
    MPI_SETTINGS = 32,
    MPI_TEXTS = 16,
    MPI_CASES = 32
};

static struct {
    const char *name; /* of the case that runs */
    int rank, size;
    bool hosts;  /* the ranks lie on several */
    bool failed; /* on this rank, in this case */
    char note[MPI_NOTE];
    char place[MPI_NOTE]; /* settings of the context that is open */
    char folder[MPI_NOTE / 2];
} mpi_test;

__attribute__((format(printf, 3, 4))) static inline void mpi_note(const char *file, int line,
                                                                  const char *format, ...)
{
    if (mpi_test.failed) return;
    mpi_test.failed = true;
    char text[MPI_NOTE / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(mpi_test.note, sizeof mpi_test.note, "%.60s:%d: %s [%.180s]", file, line, text, mpi_test.place);
}

/* The number of elements of an array. */
#define COUNT(array) (sizeof(array) / sizeof *(array))

#define mpi_check(condition, ...)                                                                            \
    do {                                                                                                     \
        if (!(condition)) mpi_note(__FILE__, __LINE__, __VA_ARGS__);                                         \
    } while (0)

#define mpi_ok(call)                                                                                         \
    do {                                                                                                     \
        int mpi_status_ = (call);                                                                            \
        mpi_check(mpi_status_ == TR_OK, "%s: status %d: %s", #call, mpi_status_, tr_error_text());           \
    } while (0)

/* Two numbers must be equal. */
#define mpi_equal(a, b)                                                                                      \
    do {                                                                                                     \
        long double mpi_a_ = (long double)(a), mpi_b_ = (long double)(b);                                    \
        mpi_check(mpi_a_ == mpi_b_, "%s is %.20Lg, expected %.20Lg", #a, mpi_a_, mpi_b_);                    \
    } while (0)

/* A text like "ranks.groups=2". It is valid until the sixteenth call after this one. */
__attribute__((format(printf, 1, 2))) static inline const char *mpi_text(const char *format, ...)
{
    static char text[MPI_TEXTS][MPI_NOTE];
    static int turn;
    va_list arguments;
    turn = (turn + 1) % MPI_TEXTS;
    va_start(arguments, format);
    if (vsnprintf(text[turn], MPI_NOTE, format, arguments) >= MPI_NOTE) abort();
    va_end(arguments);
    return text[turn];
}

/* Restarts both timers; 0 stops one. */
static inline void mpi_limit(int cpu_seconds, unsigned wall_seconds)
{
    struct itimerval cpu = {.it_value.tv_sec = cpu_seconds};
    setitimer(ITIMER_PROF, &cpu, NULL);
    alarm(wall_seconds);
}

/* Opens a context with settings like "table.route=get sync.mode=ssp"; any step that fails ends the program,
 * since no later step works without it. */
static inline tr_context *mpi_context(const char *settings)
{
    static const char text[] =
        "data: {train: x, partition: horizontal}\n"; /* independent of the preference of the default model */
    char copy[MPI_NOTE], *overrides[MPI_SETTINGS], *rest = copy;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", settings);
    snprintf(mpi_test.place, sizeof mpi_test.place, "%s", settings);
    /* Each job of a case has the whole time. */
    mpi_limit(MPI_CPU_SECONDS, MPI_WALL_SECONDS);
    for (char *word; n < MPI_SETTINGS && (word = strtok_r(rest, " ", &rest));) overrides[n++] = word;
    tr_context *tr = NULL;
    tr_job *job = NULL;
    int status = tr_ranks_start(NULL, NULL, &tr);
    if (status == TR_OK) status = tr_job_parse(text, sizeof text - 1, "test", n, overrides, &job);
    if (status == TR_OK) status = tr_context_assign(tr, job);
    if (status == TR_OK) return tr;
    fprintf(stderr, "%s: no context with %s: %s\n", mpi_test.name, settings, tr_error_text());
    MPI_Abort(MPI_COMM_WORLD, 1);
    return NULL;
}

/* The name of a folder for this program, equal on all ranks of all hosts. The first call is collective. Rank 0 removes
 * the folder after the last case. */
static inline const char *mpi_folder(void)
{
    const char *temporary = getenv("TMPDIR");
    if (*mpi_test.folder) return mpi_test.folder;
    snprintf(mpi_test.folder, sizeof mpi_test.folder, "%s/trireme-test-%d", temporary ? temporary : "/tmp",
             (int)getpid());
    MPI_Bcast(mpi_test.folder, sizeof mpi_test.folder, MPI_CHAR, 0, MPI_COMM_WORLD);
    return mpi_test.folder;
}

/* The path of a file in this folder, which is there when this returns. It is valid until the sixteenth call
 * after this one. Collective. */
static inline const char *mpi_path(const char *name)
{
    static char path[MPI_TEXTS][MPI_NOTE];
    static int turn;
    const char *folder = mpi_folder();
    if (mpi_test.rank == 0) mkdir(folder, 0700);
    MPI_Barrier(MPI_COMM_WORLD);
    turn = (turn + 1) % MPI_TEXTS;
    if (snprintf(path[turn], MPI_NOTE, "%s/%s", folder, name) >= MPI_NOTE) abort();
    return path[turn];
}

/* Rank 0 writes a file into this folder; returns its path when it is there. Collective. */
static inline const char *mpi_write(const char *name, const char *content, size_t n)
{
    const char *path = mpi_path(name);
    FILE *file = mpi_test.rank == 0 ? fopen(path, "wb") : NULL;
    if (mpi_test.rank == 0) mpi_check(file && fwrite(content, 1, n, file) == n, "%s is not written", path);
    if (file) mpi_check(fclose(file) == 0, "%s is not written", path);
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
}

static inline int mpi_remove_one(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

/* Removes a folder with all that is in it. */
static inline void mpi_remove(const char *folder)
{
    nftw(folder, mpi_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void mpi_hangs(int signal)
{
    (void)signal;
    char text[2 * MPI_NOTE];
    int n = snprintf(text, sizeof text, "case %s hangs on rank %d of %d [%s] %s\n", mpi_test.name,
                     mpi_test.rank, mpi_test.size, mpi_test.place, mpi_test.note);
    if (write(STDERR_FILENO, text, (size_t)n) < 0) _exit(2);
    _exit(1);
}

static struct mpi_case {
    const char *name;
    void (*run)(void);
} mpi_cases[MPI_CASES];
static size_t mpi_case_count;

static inline void mpi_add(const char *name, void (*run)(void))
{
    if (mpi_case_count == MPI_CASES) abort();
    mpi_cases[mpi_case_count++] = (struct mpi_case){name, run};
}

#define MPI_CASE(name)                                                                                       \
    static void name##_run(void);                                                                            \
    __attribute__((constructor)) static void name##_add(void)                                                \
    {                                                                                                        \
        mpi_add(#name, name##_run);                                                                          \
    }                                                                                                        \
    static void name##_run(void)

/* A case that is one call. */
#define MPI_CALLS(name, call)                                                                                \
    MPI_CASE(name)                                                                                           \
    {                                                                                                        \
        call;                                                                                                \
    }                                                                                                        \
    static void name##_run(void)

/* True if some rank failed; rank 0 has printed why. */
static inline bool mpi_case_failed(void)
{
    int mine = mpi_test.failed ? mpi_test.rank : INT32_MAX, first;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == INT32_MAX) return false;
    MPI_Bcast(mpi_test.note, MPI_NOTE, MPI_CHAR, first, MPI_COMM_WORLD);
    if (mpi_test.rank == 0)
        fprintf(stderr, "FAILED %s (%d ranks): rank %d: %s\n", mpi_test.name, mpi_test.size, first,
                mpi_test.note);
    return true;
}

/* True if not all ranks share memory. */
static inline bool mpi_several_hosts(void)
{
    MPI_Comm host;
    int size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &size);
    MPI_Comm_free(&host);
    int several = size < mpi_test.size;
    MPI_Allreduce(MPI_IN_PLACE, &several, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return several;
}

/* An argument chooses the cases whose names contain it. */
int main(int argc, char **argv)
{
    int failed = 0;
    tr_mpi_environment();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_test.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi_test.size);
    mpi_test.hosts = mpi_several_hosts();
    signal(SIGALRM, mpi_hangs);
    signal(SIGPROF, mpi_hangs);
    for (size_t i = 0; i < mpi_case_count; i++) {
        if (argc > 1 && !strstr(mpi_cases[i].name, argv[1])) continue;
        mpi_test.name = mpi_cases[i].name;
        mpi_test.failed = false;
        mpi_test.note[0] = mpi_test.place[0] = '\0';
        double begin = tr_now();
        mpi_limit(MPI_CPU_SECONDS, MPI_WALL_SECONDS);
        mpi_cases[i].run();
        failed += mpi_case_failed();
        mpi_limit(0, 0);
        if (mpi_test.rank == 0) printf("%-48s %.2f s\n", mpi_cases[i].name, tr_now() - begin);
    }
    if (*mpi_test.folder && mpi_test.rank == 0) mpi_remove(mpi_test.folder);
    MPI_Finalize();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- layouts and nodes to test for the current number of ranks ---- */

/* The i-th set of settings, or NULL behind the last. */
static inline const char *mpi_layout(int i)
{
    static const struct {
        int ranks; /* at least */
        const char *settings;
    } all[] = {{1, "ranks.layout=auto"},
               {3, "ranks.layout=dedicated"},
               {2, "ranks.layout=colocated ranks.group_size=2"},
               {4, "ranks.layout=dedicated ranks.servers=1 ranks.group_size=2"},
               {4, "ranks.layout=colocated ranks.servers=2"},
               {2, "ranks.layout=auto ranks.node_size=1"},
               {3, "ranks.layout=dedicated ranks.node_size=1"},
               {4, "ranks.layout=auto ranks.node_size=2"},
               {4, "ranks.layout=dedicated ranks.servers=2 ranks.node_size=2"},
               {4, "ranks.layout=colocated ranks.group_size=2 ranks.node_size=2"},
               {4, "ranks.layout=colocated ranks.group_size=2 ranks.node_size=1"}};
    int n = (int)COUNT(all);
    for (int k = 0; k < n; k++)
        if (mpi_test.size >= all[k].ranks && i-- == 0) return all[k].settings;
    return NULL;
}

/* Whether the i-th layout is tried in this way, one of several. With one or two ranks, where that costs little: always.
 * With more: in every n-th way, in others with 4 ranks than with 7, and in others with one host than with two. */
static inline bool mpi_chosen(int i, int way, int n)
{
    if (mpi_test.size <= 2) return true;
    uint64_t turn = (uint64_t)way + tr_mix((uint64_t)i) + (mpi_test.size > 4 || mpi_test.hosts);
    return turn % (uint64_t)n == 0;
}

/* Consistency of each kind, for sync.mode. */
static const char *const mpi_modes[] __attribute__((unused)) = {"bsp", "ssp sync.staleness=1", "asp"};

/* A view of all keys of a table. */
static inline int mpi_open_view(tr_table *table, enum tr_view_use use, tr_view **view)
{
    size_t n = (size_t)tr_table_keys(table);
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = i;
    int status = tr_view_open(table, keys, n, use, view);
    free(keys);
    return status;
}

/* For stages whose evaluation checks something by itself. */
static inline int mpi_summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    evaluation->objective = 1;
    return TR_OK;
}

/* Sleeps, but looks after the other roles of this rank. */
static inline int mpi_nap(tr_context *tr, double seconds)
{
    double end = tr_now() + seconds;
    int did = 0;
    while (tr_now() < end) {
        TR_TRY(tr_progress(tr, &did));
        tr_sleep(2e-4);
    }
    return TR_OK;
}

#endif
