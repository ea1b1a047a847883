/* What a run has taken and shown so far: what goes on when it goes on from a checkpoint. */
#ifndef TR_MONITOR_ACCOUNT_H
#define TR_MONITOR_ACCOUNT_H

#include "monitor/monitor.h"
#include "store/checkpoint.h"

enum { TR_MONITOR_STATES = TR_STOPPED + 1 };
enum tr_test_metric { TR_NO_METRIC, TR_ACCURACY, TR_RMSE };

/* Rank 0's. Saved as it lies here. */
struct tr_account {
    double spent[TR_MONITOR_STATES]; /* seconds in each state */
    double total;                    /* … of the parts of the run before this one, as summary.json counts */
    int64_t metrics_bytes;           /* of metrics.csv */
    struct tr_progress_row last;     /* evaluation */
    int64_t metric;                  /* of it: enum tr_test_metric */
    int64_t reached_target;          /* 0 or 1 */
    struct tr_progress_row target;   /* the first evaluation that reached it */
    uint64_t restarts, checkpoints, failed;
    double copying; /* seconds for which training waited while checkpoints were copied */
};

/* Lists it: all ranks. */
int tr_account_snapshot(struct tr_account *account, tr_snapshot *snapshot);

/* What the workers have counted. Their own counters begin at 0 with each stage, and with each part of the run. On rank 0. */
struct tr_tally {
    struct tr_counts {
        struct tr_traffic traffic;
        uint64_t updates;
    } counts;
    double compute_seconds, evaluate_seconds;
};

/* … before the stage at hand, or before the checkpoint in it that this part of the run goes on from; and since then, as of the
 * last evaluation. */
struct tr_tallies {
    struct tr_tally before, stage;
};

/* Lists what has been counted until now, by ranks: all ranks. Filling: what all have, on rank 0. */
int tr_tallies_snapshot(struct tr_tallies *tallies, tr_context *tr, const struct tr_progress_row *last,
                        tr_snapshot *snapshot);

/* A row of the stage at hand becomes one of the whole run, whatever stages and parts it has. */
void tr_tallies_add(struct tr_tallies *tallies, struct tr_progress_row *row);

/* The stage at hand is over. */
void tr_tallies_end_stage(struct tr_tallies *tallies);

#endif
