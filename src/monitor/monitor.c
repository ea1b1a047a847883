#define _GNU_SOURCE
#include "monitor/monitor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/display.h"
#include "monitor/metrics.h"
#include "monitor/output.h"
#include "monitor/stages.h"
#include "monitor/status.h"
#include "monitor/summary.h"

enum { STATES = TR_FAILED + 1 };

struct tr_monitor {
    tr_context *tr;
    bool writes; /* rank 0, once the folder is there */
    int lock;    /* what keeps other runs out of it, or -1 */
    struct tr_status_file status;
    struct tr_metrics metrics;
    struct tr_display display;
    enum tr_monitor_state state;
    double entered, spent[STATES]; /* seconds */
    struct tr_progress_row last;   /* evaluation */
    bool reached_target;
    struct tr_progress_row target; /* the first evaluation that reached it */
    const char *metric_name;       /* of it, or NULL */
    struct tr_stage_sum *stages;   /* of the last task that had several; so many */
    size_t stage_count;
};

/* ---- while it runs ---- */

/* Renews status.json while the others work. That it cannot be written is said at the next evaluation: here,
 * in the middle of a wait, the others would not learn of it. */
static int poll(void *what, int *did)
{
    struct tr_monitor *m = what;
    (void)did;
    if (!m->status.stale && tr_status_due(&m->status)) (void)tr_status_write(&m->status);
    return TR_OK;
}

static bool has_target(const struct tr_monitor *m)
{
    return m->tr->job->solve.target != TR_JOB_AUTO;
}

/* What is to rise, and begins high, has to be rising. */
static void look_for_target(struct tr_monitor *m, bool ascends, double before)
{
    double objective = m->last.verdict.objective;
    if (!has_target(m) || m->reached_target || (ascends && !(objective >= before))) return;
    if (!((ascends ? -objective : objective) <= m->tr->job->solve.target)) return;
    m->reached_target = true;
    m->target = m->last;
}

static int observe(void *who, const tr_stage *stage, const struct tr_progress_row *row)
{
    struct tr_monitor *m = who;
    double before = m->last.verdict.objective;
    m->last = *row;
    m->last.seconds = tr_now() - m->entered; /* since training began, of which the stage is the last part */
    row = &m->last;
    look_for_target(m, stage->ascends, before);
    m->metric_name = stage->metric_name;
    m->status.epoch = row->epoch;
    m->status.clock = row->clock;
    m->status.objective = row->verdict.objective;
    m->status.gap = row->verdict.gap;
    tr_display_row(&m->display, stage, row);
    TR_TRY(tr_metrics_add(&m->metrics, row));
    return tr_status_due(&m->status) ? tr_status_write(&m->status) : TR_OK;
}

static int on_task(void *who, const tr_task *task, const struct tr_stage_sum *sums)
{
    struct tr_monitor *m = who;
    tr_display_end(&m->display);
    if (m->display.style != TR_DISPLAY_SILENT) tr_show_stages(m->display.out, m->tr->team, task, sums);
    free(m->stages);
    TR_TRY(TR_NEW(&m->stages, task->n));
    memcpy(m->stages, sums, task->n * sizeof *sums);
    m->stage_count = task->n;
    return TR_OK;
}

static int on_loading(void *who, const struct tr_loading *loading)
{
    struct tr_monitor *m = who;
    m->status.loaded = loading->total > 0 ? loading->done / loading->total : 1;
    tr_display_loading(&m->display, loading);
    return tr_status_due(&m->status) ? tr_status_write(&m->status) : TR_OK;
}

/* ---- beginning ---- */

static int write_job(const struct tr_job *job)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (!file) return tr_fail(TR_ERR_SYSTEM, "out of memory: job.yaml");
    int status = tr_job_write_yaml(job, file);
    if (fclose(file) != 0) status = tr_fail(TR_ERR_SYSTEM, "out of memory: job.yaml");
    if (status == TR_OK) status = tr_output_replace(job->output, "job.yaml", text, length, true);
    free(text);
    return status;
}

int tr_monitor_folder(tr_context *tr, int *lock)
{
    const struct tr_job *job = tr->job;
    char *moved;
    TR_TRY(tr_output_prepare(job->output, &moved, lock));
    if (moved) tr_say(tr, "output:        the earlier run in %s is now %s", job->output, moved);
    free(moved);
    return write_job(job);
}

static int begin(struct tr_monitor *m)
{
    tr_context *tr = m->tr;
    TR_TRY(tr_monitor_folder(tr, &m->lock));
    TR_TRY(tr_status_open(&m->status, tr->job->output, tr->job->name));
    m->writes = true;
    tr_status_guard(&m->status);
    TR_TRY(tr_status_write(&m->status));
    TR_TRY(tr_metrics_open(tr->job->output, &m->metrics));
    enum tr_display_style style = tr_display_choose(tr->job->report.progress, stderr);
    if (tr->team && style == TR_DISPLAY_TABLE) style = TR_DISPLAY_LINES; /* several tasks take turns */
    m->display = (struct tr_display){.style = style, .out = stderr, .task = tr->team};
    tr_observe(tr, observe, m);
    tr_on_loading(tr, on_loading, m);
    tr_on_task(tr, on_task, m);
    return tr_poll_add(tr, poll, m);
}

int tr_monitor_open(tr_context *tr, struct tr_monitor **monitor)
{
    struct tr_monitor *m = NULL;
    int status = TR_NEW(&m, 1);
    if (status == TR_OK) {
        m->tr = tr;
        m->metrics.fd = m->lock = -1;
        m->entered = tr_now();
        m->last.verdict = (tr_verdict){.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN};
        m->target.seconds = NAN;
        if (tr->rank == 0) status = begin(m);
    }
    int outcome = tr_agree(tr, status);
    if (outcome == TR_OK) *monitor = m;
    else tr_monitor_close(&m, outcome);
    return outcome;
}

/* ---- from state to state ---- */

static int enter(struct tr_monitor *m, enum tr_monitor_state state)
{
    double now = tr_now();
    m->spent[m->state] += now - m->entered;
    m->entered = now;
    m->state = m->status.state = state;
    if (state == TR_TRAINING) m->status.loaded = 1;
    if (!m->writes) return TR_OK;
    tr_display_end(&m->display);
    return tr_status_write(&m->status);
}

int tr_monitor_enter(struct tr_monitor *m, enum tr_monitor_state state)
{
    return tr_agree(m->tr, enter(m, state));
}

double tr_monitor_objective(const struct tr_monitor *m)
{
    return m->last.verdict.objective;
}

void tr_monitor_count_rows(struct tr_monitor *m, uint64_t rows)
{
    m->display.rows = rows;
}

/* ---- the end ---- */

static int largest_rss(tr_context *tr, uint64_t *peak)
{
    uint64_t mine = tr_peak_rss();
    MPI_Request request;
    MPI_Ireduce(&mine, peak, 1, MPI_UINT64_T, MPI_MAX, 0, tr->world, &request);
    return tr_wait_request(tr, &request, "all ranks to say how much memory they used");
}

/* What all servers together have done and hold, on rank 0. */
static int sum_service(tr_context *tr, struct tr_service *sum)
{
    struct tr_service mine = tr->tables->service;
    for (size_t i = 0; i < tr->tables->count; i++)
        mine.share_bytes += (double)tr_table_bytes(tr->tables->table[i]);
    double parts[3] = {mine.seconds, mine.share_bytes, mine.version_bytes}, sums[3] = {0};
    MPI_Request request;
    MPI_Ireduce(parts, sums, 3, MPI_DOUBLE, MPI_SUM, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all servers to say what they hold"));
    *sum = (struct tr_service){.seconds = sums[0], .share_bytes = sums[1], .version_bytes = sums[2]};
    return TR_OK;
}

/* One line on whether and when. */
static void say_target(const struct tr_monitor *m)
{
    const struct tr_progress_row *t = &m->target;
    if (!has_target(m)) return;
    if (m->reached_target)
        tr_say(m->tr,
               "target:        %g reached after %s (%s without evaluating), %" PRIu64 " updates, epoch %.2f",
               m->tr->job->solve.target, tr_duration(t->seconds).text,
               tr_duration(t->seconds - t->evaluate_seconds).text, t->updates, t->epoch);
    else
        tr_say(
            m->tr,
            "note:          solve.target %g is not reached, the objective is %.8g: more solve.epochs may do",
            m->tr->job->solve.target, m->last.verdict.objective);
}

static int write_summary(const struct tr_monitor *m, const struct tr_summary *s, uint64_t peak,
                         const struct tr_service *service)
{
    const struct tr_progress_row *last = &m->last, *target = &m->target;
    int slowed = last->heterogeneity.slowed;
    double spent = tr_now() - m->status.begin, total = m->tr->team ? spent : tr_process_seconds();
    char layout[256];
    tr_layout_describe(&m->tr->layout, layout, sizeof layout);
    bool accuracy = m->metric_name && !strcmp(m->metric_name, "accuracy");
    bool rmse = m->metric_name && strstr(m->metric_name, "rmse");
    struct tr_outcome outcome = {.objective = last->verdict.objective,
                                 .gap = last->verdict.gap,
                                 .epochs = last->epoch,
                                 .test_accuracy = accuracy ? last->verdict.metric : s->test_accuracy,
                                 .test_auc = s->test_auc,
                                 .test_perplexity = s->test_perplexity,
                                 .test_rmse = rmse ? last->verdict.metric : s->test_rmse,
                                 .load_seconds = m->spent[TR_LOADING],
                                 .train_seconds = m->spent[TR_TRAINING],
                                 .total_seconds = total >= spent ? total : spent,
                                 .bytes_pulled = last->traffic.bytes_pulled,
                                 .bytes_pushed = last->traffic.bytes_pushed,
                                 .updates = last->updates,
                                 .filter_seen = last->traffic.filtered.seen,
                                 .filter_held = last->traffic.filtered.held,
                                 .filter_dropped = last->traffic.filtered.dropped,
                                 .serve_seconds = service->seconds,
                                 .table_bytes = (uint64_t)service->share_bytes,
                                 .version_bytes = (uint64_t)service->version_bytes,
                                 .has_target = has_target(m),
                                 .reached_target = m->reached_target,
                                 .target_time = target->seconds,
                                 .target_training_time = target->seconds - target->evaluate_seconds,
                                 .target_updates = m->reached_target ? (double)target->updates : (double)NAN,
                                 .slowed_workers = slowed ? slowed : (double)NAN,
                                 .level_reached = slowed ? last->heterogeneity.reached : (double)NAN,
                                 .peak_rss_bytes = peak,
                                 .rows = s->rows,
                                 .features = s->features,
                                 .nonzeros = s->nonzeros,
                                 .stages = m->stages,
                                 .stage_count = m->stage_count,
                                 .layout = layout,
                                 .host = m->status.host,
                                 .ranks = m->tr->size,
                                 .more = s->more,
                                 .who = s->who};
    return tr_outcome_write(&outcome, m->tr->job, m->tr->job->output);
}

int tr_monitor_summary(struct tr_monitor *m, const struct tr_summary *summary)
{
    uint64_t peak = 0;
    TR_TRY(largest_rss(m->tr, &peak));
    struct tr_service service;
    TR_TRY(sum_service(m->tr, &service));
    if (m->writes) say_target(m);
    return tr_agree(m->tr, m->writes ? write_summary(m, summary, peak, &service) : TR_OK);
}

int tr_monitor_close(struct tr_monitor **monitor, int status)
{
    struct tr_monitor *m = *monitor;
    if (!m) return status;
    int outcome = TR_OK;
    if (m->writes) {
        char error[1024];
        snprintf(error, sizeof error, "%s", tr_error_text()); /* writing may fail, too, and then says so */
        m->status.code = status;
        m->status.error = status == TR_OK ? NULL : error;
        outcome = enter(m, status == TR_OK ? TR_DONE : TR_FAILED);
        tr_poll_remove(m->tr, poll, m);
        tr_observe(m->tr, NULL, NULL);
        tr_on_loading(m->tr, NULL, NULL);
        tr_metrics_close(&m->metrics);
        tr_status_close(&m->status);
    }
    tr_output_release(m->tr->job->output, m->lock);
    if (status == TR_OK) status = tr_agree(m->tr, outcome);
    free(m->stages);
    free(m);
    *monitor = NULL;
    return status;
}
