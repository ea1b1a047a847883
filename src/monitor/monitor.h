/* monitor/: the record of a run, its output folder, and the output of the record: progress, state and summary.
 *
 *   monitor   the record of a run (record.h) and its states; the record of a job of several tasks
 *   files     JSON; status.json, metrics.csv, summary.json, ranks.json and events.csv
 *   display   a table on a terminal, lines elsewhere; at the end a table of the stages
 *   folder    the output folder of a run, locked while the run lasts
 *
 * A run that resumes from a checkpoint remains the same run; the time from one start of its processes to their end is a
 * part of the run. Only rank 0 prints and writes; the others call the same functions, so that a full disk is an error on
 * all ranks. Nothing here depends on the model class. The files of a run in its folder:
 *
 *   job.yaml      the job with every key resolved; reading it gives the same job
 *   status.json   the current state; replaced at every change of state, and about once a second
 *   metrics.csv   one line for each evaluation; a field is empty if there is no number
 *   summary.json  the outcome as a flat list of members, and the whole resolved job as `job`
 *   ranks.json    what each rank does while it trains, rewritten with status.json
 *   events.csv    a line for each checkpoint, restart and failure
 *
 * While a run lasts it holds a lock, the file .lock, so that no other run uses or renames the folder.
 *
 * Members of status.json:
 *
 *   state             starting, loading, training, writing, done, failed, stopped (on request; the run can resume)
 *   name              of the job
 *   epoch, clock, objective, gap, estimated_gap, metric   as in summary.json
 *   loaded            estimated fraction of the current files (training, then test data) that has been read
 *   seconds           since the start of this part of the run
 *   left              upper bound of the seconds until training ends, as of the last evaluation
 *   rows              number of rows of the training data; 0 before they are read
 *   continued         number of times that the run has resumed from a checkpoint
 *   status, error     exit code and error text, null until the end; after SIGTERM or SIGINT 128 + signal
 *   pid, host, started, updated (UTC)
 *
 * Members of ranks.json, lists by rank except `does` and `updated`:
 *
 *   does              string of one letter for each rank: c computes, e evaluates, p pulls, u pushes, w waits for other
 *                     workers, s saves a checkpoint, - none of these, ? unknown, because the rank is on another node
 *   node              number of the node of the rank
 *   clock             clock of a worker; -1 for other ranks
 *   compute           seconds of computing in this stage
 *   serving, held     of a server on the node of rank 0: seconds of handling messages in this run, and bytes of its shards
 *                     of tables; 0 for other ranks
 *   updated           time when the file was written, in seconds since 1970
 *
 * On other nodes than that of rank 0, clock and compute are those of the last evaluation.
 *
 * Columns of events.csv: when (seconds since 1970); time, epoch and updates as in metrics.csv; rank; event (checkpoint,
 * restart, failure); text (the rest of the line). A field is empty if its value is unknown.
 *
 * Columns of metrics.csv, in this order; new columns are added at the end:
 *
 *   time              seconds since training began, without times between the parts of the run
 *   epoch, clock, objective
 *   gap               relative distance from the optimum, proven or estimated; the summary has two members for these
 *   test_metric       value on data.test of the metric that decides which model is best (member `metric` of summary.json)
 *   bytes_pulled, bytes_pushed, pulls, pushes, compute_seconds, wait_seconds, pull_seconds, push_seconds
 *                     sums over the workers and over all stages that are evaluated
 *   peak_rss_bytes    highest resident memory of a worker
 *   updates           number of pushes of all groups; a push of all members of a group together counts once
 *   training_time     time minus the time of evaluating, which is the mean over the workers
 *
 * Members of summary.json, null if there is no value:
 *
 *   objective, test_accuracy, test_auc, test_rmse, test_perplexity, epochs
 *   gap, estimated_gap  relative distance from the optimum: gap if it is proven, otherwise gap is null
 *   metric, metric_ascends  name of the metric that decides which model is best, or null; whether a greater value is better
 *   load_seconds, train_seconds
 *   total_seconds     since the process started, plus the seconds of earlier parts of the run
 *   bytes_pulled, bytes_pushed, updates
 *   reached_target    whether an exact evaluation reached solve.target: true, false
 *   target_time, target_training_time, target_updates
 *                     time, training_time and updates of the first evaluation that reached solve.target
 *   slowed_workers    number of workers that the job slows (experiment.slow)
 *   level_reached     mean time of a clock of slowed workers divided by that of other workers
 *   peak_rss_bytes    highest resident memory of a rank
 *   stages            for a method with several stages: a list of name, runs, fewest and most workers, clocks, seconds,
 *                     worker_seconds, transition_seconds (median time from the end of the stage before), and how the
 *                     number of workers was found (search)
 *   restarts          number of times that the run has resumed from a checkpoint
 *   checkpoints, checkpoints_failed   numbers of checkpoints that were written, and that could not be written
 *   checkpoint_seconds  seconds in which training waited for checkpoints to be copied
 *   rows, features, nonzeros, dense, layout, ranks, version, host, job
 *
 * A run that resumes keeps its folder: metrics.csv is truncated to its length when the checkpoint was taken, and all counts and
 * sums continue as if the run had never stopped, in another layout as well.
 *
 * The folder of a job of several tasks contains job.yaml, status.json and summary.json of the job, and a folder for each task. Both
 * JSON files of the job have a member `tasks`, a list of an object for each task in the order of the job:
 *
 *   name, state       state: waiting, running, done, failed, stopped, not run (it follows a task that failed)
 *   ranks             number of ranks of the task; null before it starts, and if an earlier part of the run has done it
 *   waited, seconds   seconds from the time when the task could have started until its start; seconds from its start on
 *   objective         of the last evaluation, or null
 *   status, error     exit code and error text, null until the end
 *   output            folder of the task
 *
 * Other members of summary.json of the job: total_seconds, status (exit code of the first task that failed, or 0), readings
 * (number of times that training data were read from their files, by one task or for several), ranks, version, host, job.
 */
#ifndef TR_MONITOR_H
#define TR_MONITOR_H

#include <stdint.h>
#include <stdio.h>

#include "stage/stage.h"

struct tr_monitor;
struct tr_scheduled;

enum tr_monitor_state { TR_STARTING, TR_LOADING, TR_TRAINING, TR_WRITING, TR_DONE, TR_FAILED, TR_STOPPED };

/* Prepares the job's folder, with job.yaml and status.json in it, and records the evaluations of tr_run(). The folder of an earlier
 * run is renamed to <folder>.1, .2, ... and never overwritten, unless this run resumes from a checkpoint of that run (call
 * tr_checkpoints_open() before). The earlier run gets its folder name back if this run fails before its first evaluation. All
 * ranks; agreed on. TR_ERR_NO_OUTPUT: the folder cannot be created. */
int tr_monitor_open(tr_context *tr, struct tr_monitor **monitor);

/* Changes the state of the run. The first stage sets TR_TRAINING without a call. All ranks; agreed on. */
int tr_monitor_enter(struct tr_monitor *monitor, enum tr_monitor_state state);

/* Returns the objective of the last evaluation on rank 0, and NaN before the first one and on other ranks. */
double tr_monitor_objective(const struct tr_monitor *monitor);

/* A function of the caller that writes additional members to summary.json, each followed by a comma. */
typedef void tr_summary_members(FILE *file, void *who);

/* Writes summary.json, with the figures that the model has reported (tr_report_figure()). more may be NULL. All ranks;
 * agreed on. */
int tr_monitor_summary(struct tr_monitor *monitor, tr_summary_members *more, void *who);

/* Prints that the run has stopped on request and can resume. */
void tr_monitor_say_stopped(struct tr_monitor *monitor);

/* Records how the job ended, and frees the monitor (*monitor may be NULL). All ranks, with the agreed status. Returns this status;
 * if it is TR_OK, returns the status of writing the record. */
int tr_monitor_close(struct tr_monitor **monitor, int status);

/* ---- a job of several tasks: called on rank 0 only ---- */

/* State of one task. */
struct tr_task_row {
    const char *name, *output;            /* output: folder of the task */
    const struct tr_scheduled *scheduled; /* state done and ranks 0: an earlier part of the run has done it */
    double objective;                     /* of the last evaluation; NaN: none */
    uint64_t readings;                    /* number of times that the team has read training data */
    int status;                           /* exit code of the task, once it has ended */
    char error[512];                      /* error text; "" if there is no error */
};

struct tr_tasks_folder;

/* Prepares the folder of the job of `world`; continues: uses the folder of the run that resumes. The caller owns and updates the n
 * rows. TR_ERR_NO_OUTPUT: the folder cannot be created. */
int tr_tasks_folder_open(tr_context *world, const struct tr_task_row *row, size_t n, bool continues,
                         struct tr_tasks_folder **folder);

/* Writes status.json if it is due. changed: the state of a task has changed. */
int tr_tasks_folder_renew(struct tr_tasks_folder *folder, bool changed);

/* Records how the job ended, prints the table of tasks, and frees the folder (*folder may be NULL). readings: number of times that
 * training data were read for several tasks. Returns the status; if it is TR_OK, the status of writing the record. */
int tr_tasks_folder_close(struct tr_tasks_folder **folder, uint64_t readings, int status);

/* ---- folders of other runs, on one rank or in another process ---- */

/* Creates the folder of a new run and locks it until tr_output_release() or the end of this process. A folder that another run has
 * locked is an error, which names that run's process and host. A folder with an earlier run (its status.json or a checkpoint) is
 * renamed to the first free name of <folder>.1, .2, ... An empty folder is used as it is. A folder with other files is an error, as
 * they may be valuable. If `folder` is a symbolic link, all this applies to the folder to which it points.
 *
 * @param [out] moved  new name of the folder of the earlier run, or NULL. Free it. moved = NULL: a run resumes in its folder
 */
int tr_output_take(const char *folder, char **moved, int *lock);

void tr_output_release(const char *folder, int lock); /* lock may be -1 */

/* Members of the status.json in a folder. */
struct tr_status_seen {
    bool any, done;          /* whether the file exists; whether its state is done */
    uint64_t continued, pid; /* pid of rank 0 */
    double objective, epoch; /* NaN: none */
};

/* Reads the status.json in a folder. A file that cannot be read counts as missing. */
struct tr_status_seen tr_status_look(const char *folder);

/* The result of a run from its summary.json: the value of a metric on data.test; if the model has none, the objective. */
struct tr_outcome_seen {
    char name[32];  /* "accuracy", "rmse", ..., or "objective" */
    double value;   /* NaN: none */
    bool ascends;   /* a greater value is better */
    double seconds; /* duration of the whole run */
};
/* Reads the result. metric: name of a metric; NULL: the metric that decides which model of this run is best. */
struct tr_outcome_seen tr_outcome_look(const char *folder, const char *metric);

/* Returns a number from the summary.json of a run; if it is not there, from its status.json; NaN: none. */
double tr_run_number(const char *folder, const char *name);

/* ---- valid JSON for any text and any number (files.c) ---- */

/* Writes a string by tr_put_quoted() (base/escape.h); null for NULL. */
void tr_json_text(FILE *file, const char *text);

/* Writes the fewest digits that read back as the same number; null for NaN and infinities, which JSON does not have. */
void tr_json_real(FILE *file, double number);

/* These two functions write «, "name": value» after other members in a line. */
void tr_json_text_behind(FILE *file, const char *name, const char *text);
void tr_json_real_behind(FILE *file, const char *name, double number);

/* ---- events ---- */

/* Position of an event in a run: columns time, epoch and updates of metrics.csv; NaN: unknown. */
struct tr_event_place {
    double seconds, epoch, updates;
};

/* Appends a line to folder/events.csv; rank -1: the event concerns no single rank. A failure to write is not reported. */
void tr_event_add(const char *folder, const char *event, struct tr_event_place place, long rank,
                  const char *text);

#endif
