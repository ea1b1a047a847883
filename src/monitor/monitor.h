/* monitor/ — what a run shows and leaves behind: its folder, its progress, its state, its summary.
 *
 *   output    the folder, and files that are whole or not there
 *   json      text and numbers that any reader of JSON takes
 *   status    status.json: what the job is doing now, and how it ended
 *   display   a table on a terminal, lines elsewhere; at the end what the stages of a task have taken
 *   metrics   metrics.csv: every evaluation
 *   account   what a run has taken so far, also where it goes on from a checkpoint
 *   summary   summary.json: the outcome
 *   tasks     the folder of a job of several tasks, each of which has its own in it
 *
 * Only rank 0 shows and writes; the others call the same functions, so that a full disk is everybody's error.
 * Nothing here knows what is being learnt. What a run leaves in its folder:
 *
 *   job.yaml      the job with every key resolved; reads back as the same job
 *   status.json   always whole; renewed at every change of state, and about once a second meanwhile
 *   metrics.csv   one line an evaluation, empty where there is no number
 *   summary.json  the outcome, flat, and the whole resolved job as `job`
 *   ranks.json    what each rank does while it trains, renewed with status.json
 *   events.csv    a line for each checkpoint, restart and failure
 *
 * While it lasts a run holds a lock, the file .lock, so that no other run takes the folder for an old one.
 *
 * Members of status.json:
 *
 *   state             starting, loading, training, writing, done, failed, stopped (on request, to be gone on with)
 *   name              of the job
 *   epoch, clock, objective, gap
 *   loaded            part of the files being read (training, then test data) that is done, an estimate
 *   seconds           since the start
 *   left              … until training ends, at most, as of the last evaluation
 *   rows              of the training data; 0 before they are read
 *   continued         how often the run went on from a checkpoint
 *   status, error     exit code and text, both null until the end; SIGTERM and SIGINT leave 128 + signal
 *   pid, host, started, updated (UTC)
 *
 * Members of ranks.json, by rank:
 *
 *   does              a letter for each: c computes, e evaluates, p pulls, u pushes, w waits for other workers, s saves a
 *                     checkpoint, - none of these (it serves, or takes no part), ? not known: it is on another node
 *   node              that it runs on
 *   clock             of a worker, else -1; on another node than rank 0 as of its last evaluation, as is:
 *   compute           seconds that it has computed in this stage
 *   serving, held     of a server of the node of rank 0: seconds that messages have taken it in this run, and bytes of its
 *                     shares of tables; elsewhere 0
 *   updated           when that was, in seconds since 1970
 *
 * Columns of events.csv: when (seconds since 1970), time, epoch and updates as in metrics.csv, rank, event (checkpoint,
 * restart, failure), text (the rest of the line). What is not known is empty.
 *
 * Columns of metrics.csv, in this order; new ones will come last:
 *
 *   time              seconds since training began, as train_seconds of the summary counts
 *   epoch, clock, objective
 *   gap               proven relative distance from the optimum; under SSP and ASP an estimate, but in the
 *                     last line
 *   test_metric       as the model names it: accuracy, rmse
 *   bytes_pulled, bytes_pushed, pulls, pushes, compute_seconds, wait_seconds, pull_seconds, push_seconds
 *                     summed over the workers, and all stages that are evaluated
 *   peak_rss_bytes    of the largest worker
 *   updates           pushes of all groups; what the members of a group push together is one
 *   training_time     time without evaluating: less what evaluating has taken the workers in the mean. Under BSP they
 *                     evaluate side by side, otherwise each when it gets there, without the others
 *
 * Members of summary.json; null where there is none:
 *
 *   objective, gap, test_accuracy, test_auc, test_rmse, test_perplexity, epochs
 *   load_seconds, train_seconds
 *   total_seconds     since the process started
 *   bytes_pulled, bytes_pushed, updates
 *   reached_target    whether an exact evaluation found solve.target: true, false; and the columns of the first that did:
 *   target_time, target_training_time, target_updates
 *   slowed_workers    where the job slows some (experiment.slow), and what that came to: the mean time of a clock of
 *   level_reached     theirs over that of the others
 *   peak_rss_bytes    of the largest rank
 *   stages            where a method has several: a list of name, runs, fewest and most workers, clocks, seconds,
 *                     worker_seconds, transition_seconds (median, from the stage before), and how the number of workers
 *                     was found (search)
 *   restarts          how often the run went on from a checkpoint
 *   checkpoints       that were written
 *   checkpoints_failed
 *   checkpoint_seconds  for which training waited while they were copied
 *   rows, features, nonzeros, dense, layout, ranks, version, host, job
 *
 * A run that goes on does so in its folder: metrics.csv is cut back to what it was when the checkpoint was taken, and all
 * that counts and sums does so as if the run had never stopped, in another layout as well.
 *
 * A job of several tasks has status.json, summary.json and job.yaml of its own, with a list of its tasks: see tasks.h. In
 * the folder of a task total_seconds are those of the task.
 */
#ifndef TR_MONITOR_H
#define TR_MONITOR_H

#include <stdint.h>
#include <stdio.h>

#include "stage/stage.h"

struct tr_monitor;

enum tr_monitor_state { TR_STARTING, TR_LOADING, TR_TRAINING, TR_WRITING, TR_DONE, TR_FAILED, TR_STOPPED };

/* Prepares the job's folder, with job.yaml and status.json in it, and listens to what tr_run() evaluates. The
 * folder of an earlier run is renamed <folder>.1, .2, … and never overwritten, unless the context goes on from a
 * checkpoint of that run (tr_checkpoints_open(), before); it gets its name back if this run fails before its first
 * evaluation. All ranks; agreed on. TR_ERR_NO_OUTPUT: there can be no such folder. */
int tr_monitor_open(tr_context *tr, struct tr_monitor **monitor);

/* The first part of that, on one rank: a folder, locked, with job.yaml in it, for the context's job. goes_on: that of the
 * earlier run. *moved: the new name of the earlier run that was in it (to be freed), or NULL. */
int tr_monitor_folder(tr_context *tr, bool goes_on, char **moved, int *lock);

/* The job turns to something else; it turns to training by itself when the first stage is run. All ranks; agreed on. */
int tr_monitor_enter(struct tr_monitor *monitor, enum tr_monitor_state state);

/* What only the model knows of a run. */
struct tr_summary {
    uint64_t rows, features, nonzeros;
    bool dense;                          /* rows are */
    double test_auc, test_perplexity;    /* NaN: none */
    double test_accuracy, test_rmse;     /* … these two where no evaluation of the run has told them */
    void (*more)(FILE *file, void *who); /* writes members of its own, each with a comma behind it; or NULL */
    void *who;
};

/* The last objective that was evaluated, on rank 0; NaN before. */
double tr_monitor_objective(const struct tr_monitor *monitor);

/* Writes summary.json. All ranks; agreed on. */
int tr_monitor_summary(struct tr_monitor *monitor, const struct tr_summary *summary);

/* One line, where the run stops on request and could go on. */
void tr_monitor_say_stopped(struct tr_monitor *monitor);

/* Writes down how the job ended, and forgets the monitor (NULL is fine). All ranks, with the agreed status;
 * returns it, or, where all was well until here, that of this last write. */
int tr_monitor_close(struct tr_monitor **monitor, int status);

#endif
