#define _GNU_SOURCE
#include "monitor/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "monitor/display.h"
#include "monitor/output.h"
#include "base/file.h"

static const char header[] =
    "time,epoch,clock,objective,gap,test_metric,bytes_pulled,bytes_pushed,pulls,pushes,"
    "compute_seconds,wait_seconds,pull_seconds,push_seconds,peak_rss_bytes,updates,training_time\n";

/* Whole lines only: what did not fit is taken back. */
static int append(struct tr_metrics *m, const char *text, size_t length)
{
    off_t end = lseek(m->fd, 0, SEEK_END);
    int error = tr_write_all(m->fd, text, length);
    if (!error) return TR_OK;
    if (end >= 0 && ftruncate(m->fd, end) < 0) error = errno;
    return tr_file_failed(m->path, "written", error);
}

static int open_file(const char *folder, int flags, struct tr_metrics *m)
{
    *m = (struct tr_metrics){.fd = -1};
    TR_TRY(tr_format(&m->path, "%s/metrics.csv", folder));
    m->fd = open(m->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    return m->fd < 0 ? tr_file_failed(m->path, "created", errno) : TR_OK;
}

int tr_metrics_open(const char *folder, struct tr_metrics *m)
{
    TR_TRY(open_file(folder, O_TRUNC, m));
    int status = append(m, header, sizeof header - 1);
    if (status != TR_OK) unlink(m->path);
    return status;
}

int tr_metrics_resume(const char *folder, struct tr_metrics *m)
{
    TR_TRY(open_file(folder, 0, m));
    return tr_metrics_length(m) == 0 ? append(m, header, sizeof header - 1) : TR_OK;
}

int64_t tr_metrics_length(const struct tr_metrics *m)
{
    off_t end = lseek(m->fd, 0, SEEK_END);
    return end < 0 ? 0 : (int64_t)end;
}

/* Where the last whole line ends that ends before there. */
static int64_t end_of_line(const struct tr_metrics *m, int64_t end)
{
    char last;
    while (end > 0 && pread(m->fd, &last, 1, (off_t)end - 1) == 1 && last != '\n') end--;
    return end;
}

int tr_metrics_cut(struct tr_metrics *m, int64_t length, bool *lacking)
{
    int64_t there = tr_metrics_length(m);
    *lacking = there < length;
    if (*lacking) length = end_of_line(m, there);
    if (ftruncate(m->fd, (off_t)length) < 0) return tr_file_failed(m->path, "written", errno);
    return length == 0 ? append(m, header, sizeof header - 1) : TR_OK;
}

void tr_metrics_close(struct tr_metrics *m)
{
    if (m->fd >= 0) close(m->fd);
    free(m->path);
    *m = (struct tr_metrics){.fd = -1};
}

/* Empty where there is no number. */
static struct tr_number_text number(double value)
{
    struct tr_number_text n = {""};
    if (isfinite(value)) snprintf(n.text, sizeof n.text, "%.15g", value);
    return n;
}

int tr_metrics_add(struct tr_metrics *m, const struct tr_progress_row *row)
{
    const struct tr_traffic *t = &row->traffic;
    const tr_evaluation *v = &row->evaluation;
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
