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
void tr_metrics_close(struct tr_metrics *metrics);

/* Adds a line at once. On failure the file ends with the line before. */
int tr_metrics_add(struct tr_metrics *metrics, const struct tr_progress_row *row);

#endif
