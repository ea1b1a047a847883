/* summary.json: the outcome of a run in flat keys, for scripts. */
#ifndef TR_MONITOR_SUMMARY_H
#define TR_MONITOR_SUMMARY_H

#include "monitor/monitor.h"

/* All that stands in it besides the job. Numbers that are NaN become null. */
struct tr_outcome {
    double objective, gap, epochs;
    double test_accuracy, test_auc, test_rmse, test_perplexity;
    double load_seconds, train_seconds, total_seconds;
    uint64_t bytes_pulled, bytes_pushed, updates, peak_rss_bytes;
    uint64_t filter_seen, filter_held, filter_dropped; /* entries of updates that were not 0 */
    double serve_seconds;                              /* of all servers, as the next */
    uint64_t table_bytes, version_bytes;               /* the latter at most */
    bool has_target, reached_target;                   /* what follows is NaN where it is not reached */
    double target_time, target_training_time, target_updates;
    double slowed_workers, level_reached;
    uint64_t rows, features, nonzeros;
    uint64_t restarts, checkpoints, checkpoints_failed;
    double checkpoint_seconds;
    const struct tr_stage_sum *stages; /* so many, or NULL */
    size_t stage_count;
    const char *layout, *host;
    int ranks;
    void (*more)(FILE *file, void *who); /* as in struct tr_summary */
    void *who;
};

/* Writes folder/summary.json. */
int tr_outcome_write(const struct tr_outcome *outcome, const struct tr_job *job, const char *folder);

/* Seconds since this process was started, which is before main(); NaN if the system does not tell. */
double tr_process_seconds(void);

#endif
