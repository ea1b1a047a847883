#define _GNU_SOURCE
#include "monitor/monitor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/terminal.h"
#include "stage/timeline.h"
#include "stage/turns.h"
#include "store/folder.h"
#include "monitor/account.h"
#include "monitor/display.h"
#include "monitor/metrics.h"
#include "monitor/output.h"
#include "monitor/ranks.h"
#include "monitor/status.h"
#include "monitor/summary.h"
#include "trireme/collective.h"
#include "base/file.h"

struct tr_monitor {
    tr_context *tr;
    bool writes; /* rank 0, once the folder is there */
    int lock;    /* what keeps other runs out of it, or -1 */
    char *moved; /* where the earlier run in the folder is now; NULL: there was none */
    struct tr_status_file status;
    struct tr_metrics metrics;
    struct tr_display display, logged; /* on the terminal, or where that is led; in the file `log` */
    enum tr_monitor_state state;
    double entered;              /* when the state was, less what the run had spent in it before */
    struct tr_account account;   /* of rank 0 */
    struct tr_tallies tallies;   /* of all workers, on rank 0 */
    struct tr_stage_sum *stages; /* of the last task that had several; so many */
    size_t stage_count;
    double ranks_due;    /* when ranks.json is to be renewed */
    int64_t checkpoints; /* of this part of the run, as events.csv has them */
};

/* ---- while it runs ---- */

static void add_event(const struct tr_monitor *m, const char *event, double epoch, uint64_t checkpoint,
                      int64_t clock)
{
    char text[96];
    bool trains = m->state == TR_TRAINING;
    double seconds = trains ? tr_now() - m->entered : m->account.spent[TR_TRAINING];
    snprintf(text, sizeof text, "checkpoint %" PRIu64 " at clock %" PRId64, checkpoint, clock);
    tr_event_add(m->tr->job->output, event,
                 (struct tr_event_place){seconds, epoch, (double)m->account.last.updates}, -1, text);
}

/* status.json, and what goes with it for those who watch. */
static int renew_status(struct tr_monitor *m)
{
    struct tr_checkpoint_counts counts;
    tr_checkpoint_count(m->tr, &counts);
    if (counts.written > m->checkpoints) add_event(m, "checkpoint", counts.epoch, counts.last, counts.clock);
    m->checkpoints = counts.written;
    double begin = tr_now();
    if (m->state == TR_TRAINING && begin >= m->ranks_due) {
        TR_TRY(tr_ranks_write(m->tr, m->tr->job->output));
        m->ranks_due = begin + fmin(1000 * (tr_now() - begin), 10); /* it is to cost next to nothing */
    }
    return tr_status_write(&m->status);
}

/* Renews status.json while the others work. That it cannot be written is said at the next evaluation: here,
 * in the middle of a wait, the others would not learn of it. */
static int poll(void *what, int *did)
{
    struct tr_monitor *m = what;
    (void)did;
    if (!m->status.stale && tr_status_due(&m->status)) (void)renew_status(m);
    return TR_OK;
}

/* Estimates do not count. What is to rise, and begins high, has to be rising. */
static void look_for_target(struct tr_monitor *m, bool ascends, double before)
{
    struct tr_account *a = &m->account;
    double objective = a->last.evaluation.objective;
    if (!tr_has_target(m->tr->job) || !a->last.exact || a->reached_target ||
        (ascends && !(objective >= before)))
        return;
    if (!((ascends ? -objective : objective) <= m->tr->job->solve.target)) return;
    a->reached_target = true;
    a->target = a->last;
}

static enum tr_test_metric metric_of(const tr_stage *stage)
{
    if (!stage->metric_name) return TR_NO_METRIC;
    if (!strcmp(stage->metric_name, "accuracy")) return TR_ACCURACY;
    return strstr(stage->metric_name, "rmse") ? TR_RMSE : TR_NO_METRIC;
}

static void show_in_status(struct tr_monitor *m)
{
    const struct tr_progress_row *row = &m->account.last;
    m->status.epoch = row->epoch;
    m->status.clock = row->clock;
    m->status.objective = row->evaluation.objective;
    m->status.gap = row->evaluation.gap;
    bool by_gap;
    m->status.left = m->display.clocks ? tr_display_left(&m->display, row, &by_gap) : (double)NAN;
}

/* Stages that run again because they came before the one that was checkpointed have been seen. */
static int observe(void *who, const tr_stage *stage, const struct tr_progress_row *seen)
{
    struct tr_monitor *m = who;
    if (tr_context_continues(m->tr)) return tr_status_due(&m->status) ? tr_status_write(&m->status) : TR_OK;
    struct tr_progress_row *row = &m->account.last;
    double before = row->evaluation.objective;
    *row = *seen;
    row->seconds = tr_now() - m->entered; /* since training began, of which the stage is the last part */
    tr_tallies_add(&m->tallies, row);
    look_for_target(m, stage->ascends, before);
    m->account.metric = metric_of(stage);
    tr_display_row(&m->display, stage, row);
    tr_display_row(&m->logged, stage, row);
    show_in_status(m);
    TR_TRY(tr_metrics_add(&m->metrics, row));
    return tr_status_due(&m->status) ? renew_status(m) : TR_OK;
}

static void end_rows(struct tr_monitor *m)
{
    tr_display_end(&m->display);
    tr_display_end(&m->logged);
}

static int on_task(void *who, const struct tr_stage_sum *sums, size_t n)
{
    struct tr_monitor *m = who;
    bool shows = tr_turns_are_shown(m->tr);
    end_rows(m);
    if (shows && m->display.style != TR_DISPLAY_SILENT)
        tr_display_stages(m->display.out, m->tr->team, sums, n);
    if (shows && m->logged.style != TR_DISPLAY_SILENT) tr_display_stages(m->logged.out, NULL, sums, n);
    free(m->stages);
    TR_TRY(TR_NEW(&m->stages, n));
    memcpy(m->stages, sums, n * sizeof *sums);
    m->stage_count = n;
    return TR_OK;
}

static int on_loading(void *who, const struct tr_loading *loading)
{
    struct tr_monitor *m = who;
    m->status.loaded = loading->total > 0 ? loading->done / loading->total : 1;
    tr_display_loading(&m->display, loading);
    return tr_status_due(&m->status) ? tr_status_write(&m->status) : TR_OK;
}

/* ---- going on ---- */

static double total_seconds(const struct tr_monitor *m)
{
    double here = tr_now() - m->status.begin, process = m->tr->team ? here : tr_process_seconds();
    return m->account.total + (process >= here ? process : here);
}

/* With what has been done in this part of the run. */
static struct tr_account account_until_now(const struct tr_monitor *m)
{
    struct tr_account now = m->account;
    struct tr_checkpoint_counts counts;
    tr_checkpoint_count(m->tr, &counts);
    now.spent[m->state] += tr_now() - m->entered;
    now.total = total_seconds(m);
    now.checkpoints += (uint64_t)counts.written;
    now.failed += (uint64_t)counts.failed;
    now.copying += counts.copying;
    return now;
}

/* metrics.csv as it was then; the seconds of training count on. */
static int resume(struct tr_monitor *m, uint64_t restarts)
{
    struct tr_account *a = &m->account;
    bool lacking;
    if (restarts > a->restarts) a->restarts = restarts;
    else a->restarts++;
    m->status.continued = a->restarts;
    a->checkpoints++; /* the one that all this comes from */
    m->entered = tr_now() - a->spent[m->state];
    a->spent[m->state] = 0;
    show_in_status(m);
    const struct tr_manifest *from = tr_checkpoint_found(m->tr);
    add_event(m, "restart", a->last.epoch, from->number, from->facts.clock);
    m->display.shown_epoch = m->logged.shown_epoch = a->last.epoch;
    m->display.shown_seconds = m->logged.shown_seconds = a->last.seconds;
    TR_TRY(tr_metrics_cut(&m->metrics, a->metrics_bytes, &lacking));
    if (lacking) tr_say(m->tr, "note:          metrics.csv has lost lines, and goes on from what there is");
    return TR_OK;
}

static int snapshot_account(void *who, tr_snapshot *snapshot)
{
    struct tr_monitor *m = who;
    bool fills = tr_snapshot_restores(snapshot);
    uint64_t restarts = m->account.restarts;
    struct tr_account now = m->account;
    if (!fills && m->writes) {
        now = account_until_now(m);
        now.metrics_bytes = tr_metrics_length(&m->metrics);
    }
    TR_TRY(tr_account_snapshot(&now, snapshot));
    TR_TRY(tr_tallies_snapshot(&m->tallies, m->tr, &now.last, snapshot));
    if (!fills || !m->writes) return TR_OK;
    m->account = now;
    return resume(m, restarts);
}

/* ---- beginning ---- */

static int write_job(const struct tr_job *job)
{
    char *text = NULL;
    int status = tr_job_as_text(job, &text);
    if (status == TR_OK) status = tr_replace_file(job->output, "job.yaml", text, strlen(text), true);
    free(text);
    return status;
}

int tr_monitor_folder(tr_context *tr, bool goes_on, char **moved, int *lock)
{
    const struct tr_job *job = tr->job;
    *moved = NULL;
    TR_TRY(goes_on ? tr_output_resume(job->output, lock) : tr_output_prepare(job->output, moved, lock));
    if (*moved) tr_say(tr, "output:        the earlier run in %s is now %s", job->output, *moved);
    return write_job(job);
}

/* When its manifest was written, which is last; NaN where that cannot be known. */
static double checkpoint_age(const struct tr_job *job, uint64_t number)
{
    char *to = NULL, *folder = NULL, *path = NULL;
    struct stat file;
    struct timespec now;
    double age = NAN;
    if (tr_checkpoints_place(job->checkpoint.to, job->output, &to) == TR_OK &&
        tr_checkpoint_path(to, number, &folder) == TR_OK &&
        tr_format(&path, "%s/manifest.h5", folder) == TR_OK && stat(path, &file) == 0 &&
        clock_gettime(CLOCK_REALTIME, &now) == 0)
        age =
            (double)(now.tv_sec - file.st_mtim.tv_sec) + 1e-9 * (double)(now.tv_nsec - file.st_mtim.tv_nsec);
    free(to);
    free(folder);
    free(path);
    return age;
}

static void say_continues(const struct tr_monitor *m, const struct tr_manifest *from)
{
    if (tr_checkpoint_found_in_memory(m->tr)) {
        tr_say(m->tr,
               "continues:     from checkpoint %" PRIu64 " in memory, at epoch %.2f (clock %" PRId64 ")",
               from->number, from->facts.epoch, from->facts.clock);
        return;
    }
    tr_say(m->tr,
           "continues:     from checkpoint %" PRIu64 " at epoch %.2f (clock %" PRId64 "), written %s ago",
           from->number, from->facts.epoch, from->facts.clock,
           tr_duration(checkpoint_age(m->tr->job, from->number)).text);
}

/* The folder, and the files in it that there are from the beginning. */
static int begin_folder(struct tr_monitor *m)
{
    const struct tr_job *job = m->tr->job;
    const struct tr_manifest *from = tr_checkpoint_found(m->tr);
    TR_TRY(tr_monitor_folder(m->tr, from != NULL, &m->moved, &m->lock));
    if (from) m->account.restarts = tr_status_look(job->output).continued + 1;
    TR_TRY(tr_status_open(&m->status, job->output, job->name));
    m->status.continued = m->account.restarts;
    TR_TRY(tr_log_open(m->tr, job->output, from != NULL));
    m->writes = true;
    tr_status_guard(&m->status);
    TR_TRY(tr_status_write(&m->status));
    if (from) say_continues(m, from);
    return from ? tr_metrics_resume(job->output, &m->metrics) : tr_metrics_open(job->output, &m->metrics);
}

static int begin(struct tr_monitor *m)
{
    tr_context *tr = m->tr;
    TR_TRY(begin_folder(m));
    enum tr_display_style style = tr_display_choose(tr->job->report.progress, stderr);
    if (tr->team && style == TR_DISPLAY_TABLE) style = TR_DISPLAY_LINES; /* several tasks take turns */
    m->display = (struct tr_display){.style = style, .out = stderr, .task = tr->team};
    m->logged = (struct tr_display){.style = tr->log ? TR_DISPLAY_LINES : TR_DISPLAY_SILENT, .out = tr->log};
    tr_observe(tr, observe, m);
    tr_on_loading(tr, on_loading, m);
    tr_on_task(tr, on_task, m);
    return tr_poll_add(tr, poll, m);
}

static int begin_stage(tr_context *tr)
{
    tr_tallies_end_stage(&tr->monitor->tallies); /* of the last one */
    return tr->monitor->state < TR_TRAINING ? tr_monitor_enter(tr->monitor, TR_TRAINING) : TR_OK;
}

int tr_monitor_open(tr_context *tr, struct tr_monitor **monitor)
{
    struct tr_monitor *m = NULL;
    int status = TR_NEW(&m, 1);
    if (status == TR_OK) {
        m->tr = tr;
        m->metrics.fd = m->lock = -1;
        m->entered = tr_now();
        m->account.last.evaluation =
            (tr_evaluation){.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN};
        m->account.target.seconds = NAN;
        if (tr->rank == 0) status = begin(m);
        tr_on_snapshot(tr, snapshot_account, m);
        tr->before_run = begin_stage;
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
    m->account.spent[m->state] += now - m->entered;
    m->entered = now;
    m->state = m->status.state = state;
    if (state == TR_TRAINING) m->status.loaded = 1;
    m->display.rows = m->logged.rows = m->status.rows = m->tr->trained_on.rows;
    if (!m->writes) return TR_OK;
    tr_live_end();
    end_rows(m);
    return renew_status(m);
}

int tr_monitor_enter(struct tr_monitor *m, enum tr_monitor_state state)
{
    return tr_agree(m->tr, enter(m, state));
}

double tr_monitor_objective(const struct tr_monitor *m)
{
    return m->account.last.evaluation.objective;
}

/* ---- the end ---- */

/* What all servers together have done and hold. */
static int sum_service(tr_context *tr, struct tr_service *sum)
{
    const struct tr_service *own = &tr->tables->service;
    double parts[] = {own->seconds, 0, own->version_bytes, own->at_seams, own->under_way};
    for (size_t i = 0; i < tr->tables->count; i++) parts[1] += (double)tr_table_bytes(tr->tables->table[i]);
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, parts, sizeof parts / sizeof *parts));
    *sum = (struct tr_service){.seconds = parts[0],
                               .share_bytes = parts[1],
                               .version_bytes = parts[2],
                               .at_seams = parts[3],
                               .under_way = parts[4]};
    return TR_OK;
}

/* One line on whether and when. */
static void say_target(const struct tr_monitor *m)
{
    const struct tr_account *a = &m->account;
    const struct tr_progress_row *t = &a->target;
    if (!tr_has_target(m->tr->job)) return;
    if (a->reached_target)
        tr_say(m->tr,
               "target:        %g reached after %s (%s without evaluating), %" PRIu64 " updates, epoch %.2f",
               m->tr->job->solve.target, tr_duration(t->seconds).text,
               tr_duration(t->seconds - t->evaluate_seconds).text, t->updates, t->epoch);
    else
        tr_say(
            m->tr,
            "note:          solve.target %g is not reached, the objective is %.8g: more solve.epochs may do",
            m->tr->job->solve.target, a->last.evaluation.objective);
}

int tr_monitor_summary(struct tr_monitor *m, const struct tr_summary *summary)
{
    char layout[256];
    TR_TRY(tr_turns_show(m->tr));
    struct tr_account account = account_until_now(m);
    struct tr_outcome outcome = {.account = &account,
                                 .model = summary,
                                 .peak_rss = (double)tr_peak_rss(),
                                 .stages = m->stages,
                                 .stage_count = m->stage_count,
                                 .layout = layout,
                                 .host = m->status.host,
                                 .ranks = m->tr->size};
    tr_layout_describe(&m->tr->layout, layout, sizeof layout);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &outcome.peak_rss, 1));
    TR_TRY(sum_service(m->tr, &outcome.service));
    struct tr_span *spans;
    TR_TRY(tr_timeline_gather(m->tr, &spans, &outcome.span_count));
    outcome.spans = spans;
    if (m->writes) say_target(m);
    int status =
        tr_agree(m->tr, m->writes ? tr_outcome_write(&outcome, m->tr->job, m->tr->job->output) : TR_OK);
    free(spans);
    return status;
}

void tr_monitor_say_stopped(struct tr_monitor *m)
{
    if (!m || !m->writes) return;
    end_rows(m);
    struct tr_checkpoint_counts counts;
    tr_checkpoint_count(m->tr, &counts);
    double after = total_seconds(m) - m->account.total;
    if (counts.written > 0)
        tr_say(m->tr,
               "stopped:       after %s at epoch %.2f, checkpoint %" PRIu64
               " written; the same command continues",
               tr_duration(after).text, counts.epoch, counts.last);
    else
        tr_say(m->tr, "stopped:       after %s; no checkpoint could be written, the same command %s",
               tr_duration(after).text,
               tr_checkpoint_found(m->tr) ? "continues from the last one" : "starts anew");
}

/* A run that failed before it had learnt anything, or that has no model to go on to, must not stand where a model was. */
static void put_back(const struct tr_monitor *m, int status)
{
    const char *folder = m->tr->job->output;
    if (!m->moved || status == TR_OK || status == TR_ERR_STOPPED) return;
    bool evaluated = m->account.last.seconds > 0;
    if (!evaluated && tr_output_put_back(folder, m->moved))
        tr_say(m->tr, "output:        the earlier run is in %s again", folder);
    else if (status == TR_ERR_DIVERGED && tr_output_exchange(folder, m->moved))
        tr_say(m->tr, "output:        the earlier run is in %s again, this one in %s", folder, m->moved);
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
        m->status.error = status == TR_OK || status == TR_ERR_STOPPED ? NULL : error;
        outcome = enter(m, status == TR_OK ? TR_DONE : status == TR_ERR_STOPPED ? TR_STOPPED : TR_FAILED);
        tr_poll_remove(m->tr, poll, m);
        tr_observe(m->tr, NULL, NULL);
        tr_on_loading(m->tr, NULL, NULL);
        tr_metrics_close(&m->metrics);
        tr_status_close(&m->status);
    }
    m->tr->before_run = NULL;
    tr_output_release(m->tr->job->output, m->lock);
    if (m->writes) put_back(m, status);
    if (status == TR_OK) status = tr_agree(m->tr, outcome);
    free(m->stages);
    free(m->moved);
    free(m);
    *monitor = NULL;
    return status;
}
