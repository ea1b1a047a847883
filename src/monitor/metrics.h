/* metrics.csv: one line an evaluation. */
#ifndef TR_MONITOR_METRICS_H
#define TR_MONITOR_METRICS_H

#include "stage/stage.h"

struct tr_metrics {
    int fd; /* -1: closed */
    char *path;
};

/* Begins the file with its header. Close with tr_metrics_close(). */
int tr_metrics_open(const char *folder, struct tr_metrics *metrics);

/* Opens the file of a run that goes on, and begins it where there is none. Lines come behind what is there. */
int tr_metrics_resume(const char *folder, struct tr_metrics *metrics);

/* Bytes of it. */
int64_t tr_metrics_length(const struct tr_metrics *metrics);

/* Cuts it back to so many bytes; *lacking: it has fewer, and is cut to whole lines. */
int tr_metrics_cut(struct tr_metrics *metrics, int64_t length, bool *lacking);

void tr_metrics_close(struct tr_metrics *metrics);

/* Adds a line at once. On failure the file ends with the line before. */
int tr_metrics_add(struct tr_metrics *metrics, const struct tr_progress_row *row);

#endif
