/* summary.json: the outcome of a run in flat keys, for scripts. */
#ifndef TR_MONITOR_SUMMARY_H
#define TR_MONITOR_SUMMARY_H

#include "monitor/account.h"
#include "monitor/monitor.h"
#include "stage/timeline.h"

/* All that stands in it besides the job. */
struct tr_outcome {
    const struct tr_account *account; /* as of now */
    const struct tr_summary *model;
    struct tr_service service; /* of all servers */
    double peak_rss;
    const struct tr_stage_sum *stages; /* so many, or NULL */
    size_t stage_count;
    const struct tr_span *spans; /* so many */
    size_t span_count;
    const char *layout, *host;
    int ranks;
};

/* Writes folder/summary.json. Numbers that are NaN become null. */
int tr_outcome_write(const struct tr_outcome *outcome, const struct tr_job *job, const char *folder);

/* Ends a summary: ranks, version, host, and the whole resolved job. */
int tr_summary_end(FILE *file, int ranks, const char *host, const struct tr_job *job);

/* Seconds since this process was started, which is before main(); NaN if the system does not tell. */
double tr_process_seconds(void);

/* Whether the job names an objective to be reached. */
static inline bool tr_has_target(const struct tr_job *job)
{
    return job->solve.target != TR_JOB_AUTO;
}

#endif
