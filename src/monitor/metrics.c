#define _GNU_SOURCE
#include "monitor/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "monitor/output.h"

static const char header[] =
    "time,epoch,clock,objective,gap,test_metric,bytes_pulled,bytes_pushed,pulls,pushes,"
    "compute_seconds,wait_seconds,pull_seconds,push_seconds,peak_rss_bytes,updates,training_time\n";

/* Whole lines only: what did not fit is taken back. */
static int append(struct tr_metrics *m, const char *text, size_t length)
{
    off_t end = lseek(m->fd, 0, SEEK_END);
    int error = tr_output_write(m->fd, text, length);
    if (!error) return TR_OK;
    if (end >= 0 && ftruncate(m->fd, end) < 0) error = errno;
    return tr_output_failed(m->path, "written", error);
}

int tr_metrics_open(const char *folder, struct tr_metrics *m)
{
    *m = (struct tr_metrics){.fd = -1};
    TR_TRY(tr_format(&m->path, "%s/metrics.csv", folder));
    m->fd = open(m->path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (m->fd < 0) return tr_output_failed(m->path, "created", errno);
    int status = append(m, header, sizeof header - 1);
    if (status != TR_OK) unlink(m->path);
    return status;
}

void tr_metrics_close(struct tr_metrics *m)
{
    if (m->fd >= 0) close(m->fd);
    free(m->path);
    *m = (struct tr_metrics){.fd = -1};
}

struct field {
    char text[32];
};

static struct field number(double value)
{
    struct field f = {""};
    if (isfinite(value)) snprintf(f.text, sizeof f.text, "%.15g", value);
    return f;
}

int tr_metrics_add(struct tr_metrics *m, const struct tr_progress_row *row)
{
    const struct tr_traffic *t = &row->traffic;
    const tr_verdict *v = &row->verdict;
    char line[512];
    int length = snprintf(line, sizeof line,
                          "%.6f,%s,%" PRId64 ",%s,%s,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                          ",%.6f,%.6f,%.6f,%.6f,%.0f,%" PRIu64 ",%.6f\n",
                          row->seconds, number(row->epoch).text, row->clock, number(v->objective).text,
                          number(v->gap).text, number(v->metric).text, t->bytes_pulled, t->bytes_pushed,
                          t->pulls, t->pushes, row->compute_seconds, t->wait_seconds, t->pull_seconds,
                          t->push_seconds, row->peak_rss, row->updates, row->seconds - row->evaluate_seconds);
    return append(m, line, (size_t)length);
}
