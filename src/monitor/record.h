/* The record of a run, private to this room. Rank 0 keeps it (monitor.c); everything that a run shows or leaves behind is a
 * rendering of it: the five files (files.c), and the table on a terminal and the lines of the log (display.c). A job of
 * several tasks has a record of its own, with a list of the tasks. */
#ifndef TR_MONITOR_RECORD_H
#define TR_MONITOR_RECORD_H

#include "base/terminal.h"
#include "data/dataset.h"
#include "monitor/monitor.h"
#include "store/checkpoint.h"

enum { TR_MONITOR_STATES = TR_STOPPED + 1 };
/* Name of a metric on data.test, as a member of summary.json without «test_». */
struct tr_metric_name {
    char text[32];
};

/* The part of the record that a run continues after a restart. It is saved byte by byte in checkpoints. */
struct tr_account {
    double spent[TR_MONITOR_STATES];          /* seconds in each state */
    double total;                             /* seconds of the earlier parts of the run */
    int64_t metrics_bytes;                    /* length of metrics.csv */
    struct tr_progress_row last;              /* last evaluation */
    struct tr_metric_name metric[TR_METRICS]; /* of its metrics; empty: there are no more */
    int64_t ascends;                          /* 0 or 1: a higher value of the first metric is better */
    int64_t reached_target;                   /* 0 or 1 */
    struct tr_progress_row target;            /* first evaluation that reached solve.target */
    uint64_t restarts, checkpoints, failed;
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
    char host[256], started[32]; /* started: UTC */
    double begin;                /* tr_now() at the start */
    enum tr_monitor_state state;
    double entered; /* when this state began, minus the seconds that the run had spent in it before */
    double loaded;  /* part of the files that has been read, 0 to 1; NaN before */
    double left;    /* seconds until training ends; NaN: not known */
    int code;       /* exit code, once the run has ended */
    const char *error;
    struct tr_account account;
    struct tr_tally before,
        stage; /* until the current stage (or the checkpoint in it that was restored); since then */
    struct tr_stage_sum *stages; /* of the last task with several stages */
    size_t stage_count;
    const struct tr_task_row *task; /* of a job of several tasks; else NULL */
    size_t tasks;
};

/* Whether an evaluation has been recorded. */
static inline bool tr_record_is_evaluated(const struct tr_record *record)
{
    return record->account.last.seconds > 0;
}

/* Starts a record for the job of the context. */
void tr_record_open(tr_context *tr, struct tr_record *record);

/* ---- status.json (files.c) ---- */

/* The text that a signal handler writes to status.json: one for each of two signals. */
enum { TR_LAST_WORDS = 2 };
struct tr_last_words {
    const char *path, *temporary;
    char *text[TR_LAST_WORDS];
    size_t length[TR_LAST_WORDS];
};

/* It must not move between tr_status_guard() and tr_status_close(). */
struct tr_status_file {
    const struct tr_record *record;
    char *path, *temporary;
    double written; /* tr_now() of the last attempt to write it */
    bool stale;     /* that attempt failed */
    int guard;      /* number of its last words among those of the process, from 1; 0: none */
    struct tr_last_words words[2];
};

/* Writes nothing yet. Free with tr_status_close(). */
int tr_status_open(struct tr_status_file *status, const struct tr_record *record);
void tr_status_close(struct tr_status_file *status);

int tr_status_write(struct tr_status_file *status);

/* Whether enough time has passed to write it again. */
bool tr_status_due(const struct tr_status_file *status);

/* From now on SIGTERM and SIGINT, unless the process handles them already, record in status.json that they ended the job.
 * A process can have two such files: of a task, and of the job that the task belongs to. */
void tr_status_guard(struct tr_status_file *status);

/* ---- metrics.csv ---- */

struct tr_metrics {
    int fd; /* -1: closed */
    char *path;
};

/* Creates the file with its header, or opens that of a run that continues, to which lines are appended. Close it with
 * tr_metrics_close(). */
int tr_metrics_open(const char *folder, bool continues, struct tr_metrics *metrics);

/* Its length in bytes. */
int64_t tr_metrics_length(const struct tr_metrics *metrics);

/* Truncates it to `length` bytes. *lacking: it is shorter, and is truncated to whole lines. */
int tr_metrics_cut(struct tr_metrics *metrics, int64_t length, bool *lacking);

void tr_metrics_close(struct tr_metrics *metrics);

/* Appends a line. On failure the file ends with the line before. */
int tr_metrics_add(struct tr_metrics *metrics, const struct tr_progress_row *row);

/* ---- summary.json and ranks.json ---- */

/* Values gathered from all ranks for summary.json when the run ends. */
struct tr_outcome {
    struct tr_service service; /* sums over all servers */
    double peak_rss;
    struct tr_span *spans;
    size_t span_count;
    char layout[256];
    tr_summary_members *more; /* or NULL */
    void *who;
};

/* Writes folder/summary.json of a run. NaN is written as null. */
int tr_summary_write(const struct tr_record *record, const struct tr_outcome *outcome, const char *folder);

/* Writes folder/summary.json of a job of several tasks. readings: of data that several tasks learn from. */
int tr_summary_write_tasks(const struct tr_record *record, uint64_t readings, const char *folder);

/* Writes folder/ranks.json: rank 0. */
int tr_ranks_write(const tr_context *tr, const char *folder);

/* ---- display.c: progress for people. On a terminal an aligned table, as wide as the terminal allows, and below it a bar
 * that is overwritten; plain lines elsewhere. ---- */

enum tr_display_style { TR_DISPLAY_SILENT, TR_DISPLAY_LINES, TR_DISPLAY_TABLE };

/* The number of gaps that are kept, to estimate from their decrease when training ends. */
enum { TR_DISPLAY_GAPS = 64 };

struct tr_display {
    enum tr_display_style style;
    FILE *out;
    const char *task; /* printed at the start of each line; or NULL */
    uint64_t rows;    /* of the training data; 0: the rate is in epochs/s */
    int64_t seen;     /* evaluations */
    tr_evaluation shown;
    double shown_epoch, shown_seconds;
    bool begun, holds;
    struct tr_progress_row held; /* a row that has not been shown yet, as not every row is */
    const char *stage;           /* name of the stage of the last row */
    int64_t clocks;
    double gap_goal; /* of that stage; 0: none */
    int64_t gaps;    /* rows of it that had a gap: row i is at i % TR_DISPLAY_GAPS of the next arrays */
    double gap_seconds[TR_DISPLAY_GAPS], gap[TR_DISPLAY_GAPS];
    const char *objective_name, *metric[TR_METRICS];
    int metrics; /* number of metrics that are shown */
    bool with_gap;
    double loading_shown; /* seconds since loading began, when it was shown last */
    double live_seconds;  /* of the row that was shown as a bar last */
};

/* The style for report.progress (TR_PROGRESS_AUTO, _YES or _NO) on this stream. Auto is a table if a terminal shows the
 * stream, also at the other end of mpirun's pipe. */
enum tr_display_style tr_display_choose(int setting, FILE *out);

/* Shows a row, or holds it back. The 1st, 2nd, 4th, 8th ... row is shown, and one after a pause that grows with the run from
 * a second to a minute. */
void tr_display_row(struct tr_display *display, const tr_stage *stage, const struct tr_progress_row *row);

/* Seconds until training ends, for the last row: when all clocks have run, or before that (*by_gap) if the gap continues to
 * fall at its present rate. */
double tr_display_left(const struct tr_display *display, const struct tr_progress_row *row, bool *by_gap);

/* Shows the last row if it was held back. */
void tr_display_end(struct tr_display *display);

/* Shows the progress of loading as a bar: only in a table, and after the first second. */
void tr_display_loading(struct tr_display *display, const struct tr_loading *loading);

/* Shows a table of n stages at the end. of: the name of the job's task, printed at the start of each line, or NULL. */
void tr_display_stages(FILE *out, const char *of, const struct tr_stage_sum *sums, size_t n);

/* ---- folder.c: the folder of a run ---- */

/* Removes the folder of a run that produced nothing but the files that every run begins with, and gives the earlier run,
 * which tr_output_take() renamed to `moved`, its name back. Returns whether that was possible. */
bool tr_output_put_back(const char *folder, const char *moved);

/* Exchanges the names of the earlier run and of the one that failed. Returns whether that was possible: not every file
 * system can. */
bool tr_output_exchange(const char *folder, const char *moved);

#endif
