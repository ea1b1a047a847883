/* The record of a run: its state, times, last evaluation and sums. Private to src/monitor. Rank 0 updates it (monitor.c), writes
 * the files from it (files.c), and prints it as a table on a terminal or as lines of the log (display.c). A job of several tasks
 * has another record with a list of the tasks. */
#ifndef TR_MONITOR_RECORD_H
#define TR_MONITOR_RECORD_H

#include "base/terminal.h"
#include "data/dataset.h"
#include "monitor/monitor.h"
#include "store/checkpoint.h"

enum { TR_MONITOR_STATES = TR_STOPPED + 1 };
/* Name of a metric on data.test: that of its member in summary.json without «test_»; "": no metric. */
struct tr_metric_name {
    char text[32];
};

/* The members of the record that continue after a restart. Checkpoints contain this struct as numbers of 8 bytes. */
struct tr_account {
    double spent[TR_MONITOR_STATES];          /* seconds in each state */
    double total;                             /* seconds of the earlier parts of the run */
    int64_t metrics_bytes;                    /* length of metrics.csv */
    struct tr_progress_row last;              /* last evaluation */
    struct tr_metric_name metric[TR_METRICS]; /* names of the metrics of the last evaluation */
    int64_t ascends;                          /* 0 or 1: a higher first metric, or objective, is better */
    int64_t reached_target;                   /* 0 or 1 */
    struct tr_progress_row target;            /* first evaluation that reached solve.target */
    uint64_t restarts, checkpoints, failed;   /* numbers of restarts, of written and of failed checkpoints */
    double copying; /* seconds in which training waited for checkpoints to be copied */
};

/* Sums over the workers, on rank 0. The workers' own counters start at 0 with each stage and with each part of the run. */
struct tr_tally {
    struct tr_counts {
        struct tr_traffic traffic;
        uint64_t updates;
    } counts;
    double compute_seconds, evaluate_seconds;
};

struct tr_record {
    tr_context *tr;
    char host[256], started[32]; /* name of this host; time of the start, UTC */
    double begin;                /* tr_now() at the start */
    enum tr_monitor_state state;
    double entered; /* tr_now() when this state began, minus its seconds in earlier parts of the run */
    double loaded;  /* fraction of the files that has been read; NaN before reading */
    double left;    /* seconds until training ends; NaN: unknown */
    int code;       /* exit code, once the run has ended */
    const char *error;
    struct tr_account account;
    struct tr_tally before, stage; /* sums until the start of the stage (or its checkpoint); since then */
    struct tr_stage_sum *stages;   /* stages of the last task that has several; NULL: none */
    size_t stage_count;
    const struct tr_task_row *task; /* tasks of a job of several tasks; NULL: a run */
    size_t tasks;
};

/* Returns whether an evaluation has been recorded. */
static inline bool tr_record_is_evaluated(const struct tr_record *record)
{
    return record->account.last.seconds > 0;
}

/* Starts a record for the job of the context. */
void tr_record_open(tr_context *tr, struct tr_record *record);

/* ---- status.json (files.c) ---- */

/* The contents of status.json that the handlers of SIGTERM and SIGINT write: path, name of the temporary file, text per signal. */
enum { TR_LAST_WORDS = 2 };
struct tr_last_words {
    const char *path, *temporary;
    char *text[TR_LAST_WORDS];
    size_t length[TR_LAST_WORDS];
};

/* A status.json. Its address must not change between tr_status_guard() and tr_status_close(). */
struct tr_status_file {
    const struct tr_record *record;
    char *path, *temporary;
    double written, took;          /* last attempt to write the file: tr_now(), and its duration */
    bool stale;                    /* the last attempt failed */
    int guard;                     /* 1 + index in current[] (files.c); 0: tr_status_guard() was not called */
    struct tr_last_words words[2]; /* signal handlers use one while the other is prepared */
};

/* Writes no file yet. Free with tr_status_close(). */
int tr_status_open(struct tr_status_file *status, const struct tr_record *record);
void tr_status_close(struct tr_status_file *status);

int tr_status_write(struct tr_status_file *status);

/* Returns whether the file should be written again: after a second, or after a failure; after a change at once, or, if writing takes
 * more than a millisecond, as soon as it takes at most a tenth of the time. */
bool tr_status_due(const struct tr_status_file *status, bool changed);

/* Installs handlers of SIGTERM and SIGINT, unless the process has some, which record in status.json that the signal ended the job.
 * A process can have two such files: of a task, and of the job of that task. */
void tr_status_guard(struct tr_status_file *status);

/* ---- metrics.csv ---- */

struct tr_metrics {
    int fd; /* -1: closed */
    char *path;
};

/* Creates the file with its header; continues: opens the file of the run that resumes. Close it with tr_metrics_close(). */
int tr_metrics_open(const char *folder, bool continues, struct tr_metrics *metrics);

/* Returns the length of the file in bytes. */
int64_t tr_metrics_length(const struct tr_metrics *metrics);

/* Truncates the file to `length` bytes. Sets *lacking if the file is shorter; then an incomplete last line is removed. */
int tr_metrics_cut(struct tr_metrics *metrics, int64_t length, bool *lacking);

void tr_metrics_close(struct tr_metrics *metrics);

/* Appends a line. On failure the file is as before. */
int tr_metrics_add(struct tr_metrics *metrics, const struct tr_progress_row *row);

/* ---- summary.json and ranks.json ---- */

/* Values gathered from all ranks for summary.json when the run ends. */
struct tr_outcome {
    struct tr_service service; /* sums over all servers */
    double peak_rss;           /* highest resident memory of a rank, in bytes */
    struct tr_span *spans;     /* intervals in which ranks ran stages, by rank */
    size_t span_count;
    char layout[256];         /* from tr_layout_describe() */
    tr_summary_members *more; /* writes additional members; NULL: there are none */
    void *who;                /* argument of more() */
};

/* Writes folder/summary.json of a run. NaN is written as null. */
int tr_summary_write(const struct tr_record *record, const struct tr_outcome *outcome, const char *folder);

/* Writes folder/summary.json of a job of several tasks. readings: number of times that data were read for several tasks. */
int tr_summary_write_tasks(const struct tr_record *record, uint64_t readings, const char *folder);

/* Writes folder/ranks.json. Rank 0. */
int tr_ranks_write(const tr_context *tr, const char *folder);

/* ---- display.c: progress for people. On a terminal a table with a progress bar below it, elsewhere lines of text ---- */

enum tr_display_style { TR_DISPLAY_SILENT, TR_DISPLAY_LINES, TR_DISPLAY_TABLE };

/* Number of recent gaps that are stored, to estimate from their decrease when training ends. */
enum { TR_DISPLAY_GAPS = 64 };

struct tr_display {
    enum tr_display_style style;
    FILE *out;
    const char *task; /* name of the task, which starts each line; NULL: a job without tasks */
    double units; /* number of training rows, ratings or tokens, for the rate; 0: the rate is in epochs/s */
    const char *rate; /* unit of the rate, "rows/s" */
    int64_t seen;     /* number of evaluations so far */
    tr_evaluation shown;
    double shown_epoch, shown_seconds; /* epoch and seconds of the last row that was shown */
    bool begun, holds;                 /* a row was shown; `held` is a row that was not shown */
    struct tr_progress_row held;
    const char *stage; /* name of the stage of the last row */
    int64_t clocks;    /* number of clocks of that stage */
    double gap_goal;   /* gap at which that stage ends; 0: none */
    int64_t gaps;      /* number of rows of that stage with a gap; row i is at [i % TR_DISPLAY_GAPS] of: */
    double gap_seconds[TR_DISPLAY_GAPS], gap[TR_DISPLAY_GAPS];
    const char *objective_name, *metric[TR_METRICS]; /* names in the output */
    int metrics;                                     /* number of metrics that are shown */
    bool with_gap;                                   /* the rows have gaps */
    double loading_shown; /* seconds since loading began when its bar was last updated */
    double live_seconds;  /* seconds of the last row that was shown as a bar */
};

/* Returns the style for a value of report.progress (TR_PROGRESS_AUTO, _YES or _NO) on this stream. Auto is a table if a terminal
 * shows the stream, directly or through mpirun. */
enum tr_display_style tr_display_choose(int setting, FILE *out);

/* Shows a row, or stores it for tr_display_end(). Row 1, 2, 4, 8, ... is shown, and each row after a pause, which grows with the
 * run from a second to a minute. */
void tr_display_row(struct tr_display *display, const tr_stage *stage, const struct tr_progress_row *row);

/* Returns the seconds from the last row until training ends: when all clocks have run, or, if that is earlier (*by_gap), when the
 * gap reaches its goal at its present rate. */
double tr_display_left(const struct tr_display *display, const struct tr_progress_row *row, bool *by_gap);

/* Shows the last row if it was not shown. */
void tr_display_end(struct tr_display *display);

/* Shows the progress of loading as a bar: only in a table, and after the first second. */
void tr_display_loading(struct tr_display *display, const struct tr_loading *loading);

/* Shows a table of n stages. of: name of the task, which starts each line; NULL: a job without tasks. */
void tr_display_stages(FILE *out, const char *of, const struct tr_stage_sum *sums, size_t n);

/* ---- folder.c: the folder of a run ---- */

/* Removes the folder of a run that has written only the files that each run writes before its first evaluation. Renames the folder
 * of the earlier run from `moved`, the name from tr_output_take(), to `folder`. Returns whether that was possible. */
bool tr_output_put_back(const char *folder, const char *moved);

/* Exchanges the names of two folders: of the earlier run and of the run that failed. Returns false if the file system cannot. */
bool tr_output_exchange(const char *folder, const char *moved);

#endif
