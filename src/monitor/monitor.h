/* monitor/: the record of a run, its folder, and the renderings of the record: progress, state and summary.
 *
 *   monitor   the record of a run (record.h) and its states; the record of a job of several tasks
 *   files     JSON; status.json, metrics.csv, summary.json, ranks.json and events.csv
 *   display   a table on a terminal, lines elsewhere; at the end a table of the stages
 *   folder    the folder of a run, locked while the run lasts
 *
 * Only rank 0 prints and writes; the others call the same functions, so that a full disk is an error on all ranks.
 * Nothing here depends on the class of models. The files of a run in its folder:
 *
 *   job.yaml      the job with every key resolved; reads back as the same job
 *   status.json   always complete; rewritten at every change of state, and about once a second
 *   metrics.csv   one line for each evaluation; a field is empty if there is no number
 *   summary.json  the outcome, flat, and the whole resolved job as `job`
 *   ranks.json    what each rank does while it trains, rewritten with status.json
 *   events.csv    a line for each checkpoint, restart and failure
 *
 * A run holds a lock, the file .lock, while it lasts, so that no other run takes the folder for that of an earlier run.
 *
 * Members of status.json:
 *
 *   state             starting, loading, training, writing, done, failed, stopped (on request; it can continue)
 *   name              of the job
 *   epoch, clock, objective, gap, estimated_gap   as in summary.json
 *   loaded            part of the files being read (training, then test data) that is done, an estimate
 *   seconds           since the start
 *   left              seconds until training ends, at most, as of the last evaluation
 *   rows              of the training data; 0 before they are read
 *   continued         how often the run continued from a checkpoint
 *   status, error     exit code and text, both null until the end; SIGTERM and SIGINT leave 128 + signal
 *   pid, host, started, updated (UTC)
 *
 * Members of ranks.json, by rank:
 *
 *   does              one letter for each rank: c computes, e evaluates, p pulls, u pushes, w waits for other workers, s
 *                     saves a checkpoint, - none of these (it serves or does not take part), ? not known: on another node
 *   node              its node
 *   clock             of a worker, else -1
 *   compute           seconds of computing in this stage
 *   serving, held     of a server on the node of rank 0: seconds of handling messages in this run, and bytes of its shards
 *                     of tables; elsewhere 0
 *   updated           when the file was written, in seconds since 1970
 *
 * On other nodes than that of rank 0, clock and compute are those of the last evaluation.
 *
 * Columns of events.csv: when (seconds since 1970), time, epoch and updates as in metrics.csv, rank, event (checkpoint,
 * restart, failure), text (the rest of the line). A field that is not known is empty.
 *
 * Columns of metrics.csv, in this order; new columns are added at the end:
 *
 *   time              seconds since training began, as train_seconds of the summary counts
 *   epoch, clock, objective
 *   gap               relative distance from the optimum, proven or estimated; the summary tells which for the last row
 *   test_metric       as the model names it: accuracy, rmse
 *   bytes_pulled, bytes_pushed, pulls, pushes, compute_seconds, wait_seconds, pull_seconds, push_seconds
 *                     summed over the workers, and all stages that are evaluated
 *   peak_rss_bytes    of the largest worker
 *   updates           pushes of all groups; a push of all members of a group together counts once
 *   training_time     time minus the time of evaluating, the mean over the workers. Under BSP they evaluate at the same
 *                     time, otherwise each on its own
 *
 * Members of summary.json, null if there is no value:
 *
 *   objective, test_accuracy, test_auc, test_rmse, test_perplexity, epochs
 *   gap               proven relative distance from the optimum; null, and estimated_gap a number, without a proof
 *   load_seconds, train_seconds
 *   total_seconds     since the process started
 *   bytes_pulled, bytes_pushed, updates
 *   reached_target    whether an exact evaluation reached solve.target: true, false
 *   target_time, target_training_time, target_updates   columns of the first evaluation that did
 *   slowed_workers    the number of workers that the job slows (experiment.slow)
 *   level_reached     the mean time of a clock of these workers divided by that of the others
 *   peak_rss_bytes    of the largest rank
 *   stages            of a method with several stages: a list of name, runs, fewest and most workers, clocks, seconds,
 *                     worker_seconds, transition_seconds (median, from the stage before), and how the number of workers
 *                     was found (search)
 *   restarts          how often the run continued from a checkpoint
 *   checkpoints, checkpoints_failed   written; that could not be written
 *   checkpoint_seconds  seconds in which training waited for checkpoints to be copied
 *   rows, features, nonzeros, dense, layout, ranks, version, host, job
 *
 * A run that continues does so in its folder: metrics.csv is truncated to its length when the checkpoint was taken, and all
 * counts and sums continue as if the run had never stopped, in another layout as well.
 *
 * A job of several tasks has job.yaml, status.json and summary.json of its own in its folder; each task has a folder of its
 * own in it, where total_seconds is that of the task. Both JSON files of the job have a member `tasks`, an object for each
 * task in the order of the job:
 *
 *   name, state       waiting, running, done, failed, stopped, not run (a task that it comes after failed)
 *   ranks             on which it runs or ran; null before, and if an earlier part of the run has done it
 *   waited, seconds   from when it could have begun until it did; since then
 *   objective         of the last evaluation, or null
 *   status, error     exit code and text, null while there is none
 *   output            its own folder
 *
 * summary.json of the job has besides: total_seconds, status (exit code of the first task that failed, or 0), readings (how
 * often training data were read from their files, by one task or for several), ranks, version, host, job.
 */
#ifndef TR_MONITOR_H
#define TR_MONITOR_H

#include <stdint.h>
#include <stdio.h>

#include "stage/stage.h"

struct tr_monitor;
struct tr_scheduled;

enum tr_monitor_state { TR_STARTING, TR_LOADING, TR_TRAINING, TR_WRITING, TR_DONE, TR_FAILED, TR_STOPPED };

/* Prepares the job's folder, with job.yaml and status.json in it, and records the evaluations of tr_run(). The folder of an
 * earlier run is renamed to <folder>.1, .2, ... and never overwritten, unless the context continues from a checkpoint of that
 * run (tr_checkpoints_open(), before). It gets its name back if this run fails before its first evaluation. All ranks;
 * agreed on. TR_ERR_NO_OUTPUT: there can be no such folder. */
int tr_monitor_open(tr_context *tr, struct tr_monitor **monitor);

/* Changes the state of the run; it becomes training by itself when the first stage runs. All ranks; agreed on. */
int tr_monitor_enter(struct tr_monitor *monitor, enum tr_monitor_state state);

/* The objective of the last evaluation, on rank 0; NaN before. */
double tr_monitor_objective(const struct tr_monitor *monitor);

/* Writes members of the caller's own to summary.json, each followed by a comma. */
typedef void tr_summary_members(FILE *file, void *who);

/* Writes summary.json, with the figures that the model has reported (tr_report_figure()). more may be NULL. All ranks;
 * agreed on. */
int tr_monitor_summary(struct tr_monitor *monitor, tr_summary_members *more, void *who);

/* Prints one line if the run stops on request and can continue. */
void tr_monitor_say_stopped(struct tr_monitor *monitor);

/* Records how the job ended, and frees the monitor (*monitor may be NULL). All ranks, with the agreed status; returns it,
 * or, if that is TR_OK, the status of this last write. */
int tr_monitor_close(struct tr_monitor **monitor, int status);

/* ---- a job of several tasks: rank 0 alone ---- */

struct tr_task_row {
    const char *name, *output;
    const struct tr_scheduled *scheduled; /* done without ranks: an earlier part of the run has done it */
    double objective;                     /* NaN: none */
    uint64_t readings;                    /* of training data by its team */
    int status;                           /* once it has ended */
    char error[512];                      /* "" if there is none */
};

struct tr_tasks_folder;

/* Prepares the folder of the job of `world`, or takes that of the run that continues. The n rows stay the caller's, who
 * updates them. TR_ERR_NO_OUTPUT: there can be no such folder. */
int tr_tasks_folder_open(tr_context *world, const struct tr_task_row *row, size_t n, bool continues,
                         struct tr_tasks_folder **folder);

/* Writes status.json, immediately or if about a second has passed. */
int tr_tasks_folder_renew(struct tr_tasks_folder *folder, bool at_once);

/* Records how the job ended, prints the table of tasks, and frees the folder (*folder may be NULL). readings: how often training
 * data were read for several tasks. Returns the status, or, if that is TR_OK, the status of this last write. */
int tr_tasks_folder_close(struct tr_tasks_folder **folder, uint64_t readings, int status);

/* ---- folders of other runs, on one rank or in another process ---- */

/* Creates the folder of a new run and locks it until tr_output_release() or the end of this process. A folder that another
 * run has locked is an error, which names that run's process and host. A folder with an earlier run (job.yaml, status.json
 * or checkpoints) is renamed to the first free name of <folder>.1, .2, ..., which is put in *moved (to be freed; else NULL).
 * An empty folder is taken as it is; any other is an error, as its files may be valuable. moved NULL: a run that continues takes
 * its folder with everything in it. */
int tr_output_take(const char *folder, char **moved, int *lock);

void tr_output_release(const char *folder, int lock); /* lock may be -1 */

/* What the status.json in a folder says. */
struct tr_status_seen {
    bool any, done;
    uint64_t continued, pid; /* pid: of rank 0 */
    double objective, epoch; /* NaN: none */
};

/* A file that cannot be read counts as missing. */
struct tr_status_seen tr_status_look(const char *folder);

/* The result of a run that is done, from its summary.json: its value of `metric` on data.test ("accuracy" or "rmse"), or with
 * NULL of the metric that decides for this run, or else its objective. */
struct tr_outcome_seen {
    char name[32];  /* "accuracy" */
    double value;   /* NaN: none */
    bool ascends;   /* a greater value is better */
    double seconds; /* of the whole run */
};
struct tr_outcome_seen tr_outcome_look(const char *folder, const char *metric);

/* A number in the summary.json of a run, or else in its status.json; NaN: none. */
double tr_run_number(const char *folder, const char *name);

/* ---- valid JSON for any text and any number (files.c) ---- */

/* tr_put_quoted() of base/escape.h; null for NULL. */
void tr_json_text(FILE *file, const char *text);

/* The fewest digits that give the same number when read; null for NaN and infinities, which JSON does not have. */
void tr_json_real(FILE *file, double number);

/* «  "name": value,» on a line of its own. */
void tr_json_text_member(FILE *file, const char *name, const char *text);
void tr_json_real_member(FILE *file, const char *name, double number);
void tr_json_count_member(FILE *file, const char *name, uint64_t number);

/* «, "name": value» after other members in a line. */
void tr_json_text_behind(FILE *file, const char *name, const char *text);
void tr_json_real_behind(FILE *file, const char *name, double number);

/* Rounds seconds to three decimals. */
double tr_milliseconds(double seconds);

/* ---- events ---- */

/* Where in a run an event happened; NaN: not known. */
struct tr_event_place {
    double seconds, epoch, updates;
};

/* Appends a line to folder/events.csv; rank -1: none in particular. Failing to write it is not reported. */
void tr_event_add(const char *folder, const char *event, struct tr_event_place place, long rank,
                  const char *text);

#endif
