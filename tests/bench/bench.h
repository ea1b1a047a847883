/* What programs under mpirun share: a context without data, with the settings at the end of the command line; medians; and the
 * view of a small table that workers of stages pull and push. */
#ifndef TR_TESTS_BENCH_H
#define TR_TESTS_BENCH_H

#include <stdlib.h>

#include "stage/stage.h"
#include "trireme/trireme.h"

/* argv[first] and the following arguments are settings. After a failure the caller closes the context, too, if there is one. */
static inline int bench_open(int argc, char **argv, int first, tr_context **tr)
{
    static const char text[] = "data: {train: none}\n";
    tr_job *job = NULL;
    int settings = argc - first;
    TR_TRY(tr_ranks_start(&argc, &argv, tr));
    TR_TRY(tr_agree(*tr, tr_job_parse(text, sizeof text - 1, "bench", settings, argv + first, &job)));
    return tr_context_assign(*tr, job);
}

/* Closes the context with the status of the benchmark. */
static inline int bench_close(tr_context *tr, int status)
{
    int outcome = tr ? tr_close(tr) : TR_OK;
    return status != TR_OK ? status : outcome;
}

/* Sorts the values; [n / 2] is then the median. */
static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void bench_sort(double *value, size_t n)
{
    qsort(value, n, sizeof *value, bench_by_value);
}

enum { BENCH_KEYS = 64 };

/* Opens the view of all keys of a table of BENCH_KEYS keys as me->kept; bench_release() closes it. */
static inline int bench_open_view(tr_worker *me, tr_table *table)
{
    tr_key key[BENCH_KEYS];
    for (tr_key k = 0; k < BENCH_KEYS; k++) key[k] = k;
    return tr_view_open(table, key, BENCH_KEYS, TR_VIEW_UPDATE, (tr_view **)&me->kept);
}

static inline void bench_release(void *kept)
{
    tr_view *view = kept;
    tr_view_close(&view);
}

/* Pulls the view and sets an update for all its keys, to be pushed. */
static inline int bench_pull(tr_view *view)
{
    TR_TRY(tr_view_pull(view));
    for (int k = 0; k < BENCH_KEYS; k++) ((float *)view->delta)[k] = 1;
    return TR_OK;
}

#endif
