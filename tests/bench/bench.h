/* What programs under mpirun have in common: a context without data, with the settings that end the command line. */
#ifndef TR_TESTS_BENCH_H
#define TR_TESTS_BENCH_H

#include "stage/stage.h"

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

#endif
