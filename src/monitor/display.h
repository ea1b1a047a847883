/* Progress for people: on a terminal an aligned table, as wide as that has room for, and below it a bar that is written over;
 * plain lines elsewhere. */
#ifndef TR_MONITOR_DISPLAY_H
#define TR_MONITOR_DISPLAY_H

#include "data/dataset.h"
#include "stage/stage.h"

enum tr_display_style { TR_DISPLAY_SILENT, TR_DISPLAY_LINES, TR_DISPLAY_TABLE };

/* Gaps that are remembered, to tell from how they fall when training ends. */
enum { TR_DISPLAY_GAPS = 64 };

struct tr_display {
    enum tr_display_style style;
    FILE *out;
    const char *task; /* stands in front of each line; NULL: nothing does */
    uint64_t rows;    /* of the training data; 0: the rate is in epochs/s */
    int64_t seen;     /* evaluations */
    tr_evaluation shown;
    double shown_epoch, shown_seconds;
    bool begun, holds;
    struct tr_progress_row held; /* not shown yet, as not every row is */
    const char *stage;           /* of the row before, its name */
    int64_t clocks;
    double gap_goal; /* of that stage; 0: none */
    int64_t gaps;    /* how many rows of it had a gap: row i at i % TR_DISPLAY_GAPS of … */
    double gap_seconds[TR_DISPLAY_GAPS], gap[TR_DISPLAY_GAPS];
    const char *objective_name, *metric_name;
    bool with_gap;
    double loading_shown; /* seconds since loading began, when it was shown last */
    double live_seconds;  /* of the row that was kept back and shown as a bar last */
};

/* What report.progress (the job's TR_PROGRESS_AUTO, _YES or _NO) means for this stream. Auto is a table where
 * a terminal shows the stream, also at the other end of mpirun's pipe. */
enum tr_display_style tr_display_choose(int setting, FILE *out);

/* Shows a row, or keeps it back. Shown are the 1st, 2nd, 4th, 8th …, and one after a pause that grows with
 * the run from a second to a minute. */
void tr_display_row(struct tr_display *display, const tr_stage *stage, const struct tr_progress_row *row);

/* Seconds until training ends, of the row that was shown last or kept back: after all clocks, or before (*by_gap) if
 * the gap goes on to fall as it does. */
double tr_display_left(const struct tr_display *display, const struct tr_progress_row *row, bool *by_gap);

/* Shows the last row if it was kept back. */
void tr_display_end(struct tr_display *display);

/* Shows how far loading is, but only in the table style and not before a second has gone by: as a line that is written
 * over. */
void tr_display_loading(struct tr_display *display, const struct tr_loading *loading);

/* What n stages have taken, as a table at the end. of: the name of the job's task, in front of each line;
 * NULL in a job that has none. */
void tr_display_stages(FILE *out, const char *of, const struct tr_stage_sum *sums, size_t n);

/* A number as people read it. */
struct tr_number_text {
    char text[32];
};

/* "0.82 s", "12:07 min", "3:05:00 h" */
struct tr_number_text tr_duration(double seconds);

/* "640 B", "45.1 MB", "1.21 GB" */
struct tr_number_text tr_bytes(double bytes);

#endif
