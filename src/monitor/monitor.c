#define _GNU_SOURCE
#include "monitor/monitor.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "monitor/record.h"
#include "stage/scheduler.h"
#include "store/shard.h"
#include "trireme/collective.h"

struct tr_monitor {
    tr_context *tr;
    bool writes; /* this is rank 0, and the output folder exists */
    int lock;    /* descriptor of the locked file .lock, or -1 */
    char *moved; /* new name of the folder of the earlier run; NULL: there was none */
    struct tr_record record;
    struct tr_status_file status;
    struct tr_metrics metrics;
    struct tr_display display, logged; /* the displays on stderr and in the file `log` */
    double ranks_due;                  /* tr_now() from which on ranks.json is rewritten */
    int64_t checkpoints;               /* number of checkpoints of this part of the run in events.csv */
};

/* ---- sums over stages ---- */

static void add_counts(struct tr_counts *sum, const struct tr_counts *one)
{
    tr_traffic_add(&sum->traffic, &one->traffic);
    sum->updates += one->updates;
}

/* ---- while it runs ---- */

static void add_event(const struct tr_monitor *m, const char *event, double epoch, uint64_t checkpoint,
                      int64_t clock)
{
    char text[96];
    const struct tr_record *r = &m->record;
    double seconds = r->state == TR_TRAINING ? tr_now() - r->entered : r->account.spent[TR_TRAINING];
    snprintf(text, sizeof text, "checkpoint %" PRIu64 " at clock %" PRId64, checkpoint, clock);
    tr_event_add(m->tr->job->output, event,
                 (struct tr_event_place){seconds, epoch, (double)r->account.last.updates}, -1, text);
}

/* Rewrites status.json and ranks.json, and adds a new checkpoint to events.csv. */
static int renew_status(struct tr_monitor *m)
{
    struct tr_checkpoint_counts counts;
    tr_checkpoint_count(m->tr, &counts);
    if (counts.written > m->checkpoints) add_event(m, "checkpoint", counts.epoch, counts.last, counts.clock);
    m->checkpoints = counts.written;
    double begin = tr_now();
    if (m->record.state == TR_TRAINING && begin >= m->ranks_due) {
        TR_TRY(tr_ranks_write(m->tr, m->tr->job->output));
        m->ranks_due = begin + fmin(1000 * (tr_now() - begin), 10); /* writing takes 0.1 % of the time */
    }
    return tr_status_write(&m->status);
}

/* Rewrites status.json while the workers compute. A failure is ignored here, because other ranks would not learn of it. The next
 * evaluation writes again and reports a failure. */
static int poll(void *what, int *did)
{
    struct tr_monitor *m = what;
    (void)did;
    if (!m->status.stale && tr_status_due(&m->status, false)) (void)renew_status(m);
    return TR_OK;
}

static void estimate_time_left(struct tr_monitor *m)
{
    bool by_gap;
    m->record.left =
        m->display.clocks ? tr_display_left(&m->display, &m->record.account.last, &by_gap) : (double)NAN;
}

/* Converts the name of a metric in the output, such as «test rmse», to that of its member: rmse. NULL becomes "". */
static struct tr_metric_name metric_name(const char *name)
{
    struct tr_metric_name made = {""};
    if (name && !strncmp(name, "test ", 5)) name += 5;
    if (name) snprintf(made.text, sizeof made.text, "%s", name);
    for (char *at = made.text; *at; at++)
        if (*at == ' ') *at = '_';
    return made;
}

/* Records an evaluation. After a restart, stages before that of the checkpoint run again; their evaluations are ignored, because
 * the record already contains them. */
static int observe(void *who, const tr_stage *stage, const struct tr_progress_row *seen)
{
    struct tr_monitor *m = who;
    struct tr_record *r = &m->record;
    struct tr_account *a = &r->account;
    double target = m->tr->job->solve.target, before = a->last.evaluation.objective;
    if (tr_context_continues(m->tr))
        return tr_status_due(&m->status, false) ? tr_status_write(&m->status) : TR_OK;
    struct tr_progress_row *row = &a->last;
    *row = *seen;
    row->seconds = tr_now() - r->entered; /* since training began */
    /* adds the sums of earlier stages and of earlier parts of the run to those of the current stage */
    r->stage = (struct tr_tally){{row->traffic, row->updates}, row->compute_seconds, row->evaluate_seconds};
    tr_traffic_add(&row->traffic, &r->before.counts.traffic);
    row->updates += r->before.counts.updates;
    row->compute_seconds += r->before.compute_seconds;
    row->evaluate_seconds += r->before.evaluate_seconds;
    /* Stores the first exact evaluation that reaches solve.target. An objective that is maximized can start above the target; an
     * evaluation counts only if the objective has not fallen. */
    double objective = row->evaluation.objective;
    bool counts = row->exact && !a->reached_target && (!stage->ascends || objective >= before);
    if (target != TR_JOB_AUTO && counts && (stage->ascends ? -objective : objective) <= target) {
        a->reached_target = true;
        a->target = *row;
    }
    a->ascends = stage->metric[0].name ? stage->metric[0].ascends : stage->ascends;
    for (int k = 0; k < TR_METRICS; k++) a->metric[k] = metric_name(stage->metric[k].name);
    tr_display_row(&m->display, stage, row);
    tr_display_row(&m->logged, stage, row);
    estimate_time_left(m);
    TR_TRY(tr_metrics_add(&m->metrics, row));
    return tr_status_due(&m->status, false) ? renew_status(m) : TR_OK;
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
    free(m->record.stages);
    TR_TRY(TR_NEW(&m->record.stages, n));
    memcpy(m->record.stages, sums, n * sizeof *sums);
    m->record.stage_count = n;
    return TR_OK;
}

static int on_loading(void *who, const struct tr_loading *loading)
{
    struct tr_monitor *m = who;
    m->record.loaded = loading->total > 0 ? loading->done / loading->total : 1;
    tr_display_loading(&m->display, loading);
    return tr_status_due(&m->status, false) ? tr_status_write(&m->status) : TR_OK;
}

/* ---- continuing from a checkpoint ---- */

/* Returns the seconds since this process was started, before main(); NaN if they are unknown. */
static double process_seconds(void)
{
    uint64_t ticks = tr_start_ticks();
    struct timespec now;
    if (ticks == 0 || clock_gettime(CLOCK_BOOTTIME, &now) < 0) return NAN;
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double total_seconds(const struct tr_monitor *m)
{
    double here = tr_now() - m->record.begin, process = m->tr->team ? here : process_seconds();
    return m->record.account.total + (process >= here ? process : here);
}

/* Returns the account of all parts of the run, including the current part. */
static struct tr_account account_until_now(const struct tr_monitor *m)
{
    struct tr_account now = m->record.account;
    struct tr_checkpoint_counts counts;
    tr_checkpoint_count(m->tr, &counts);
    now.spent[m->record.state] += tr_now() - m->record.entered;
    now.total = total_seconds(m);
    now.checkpoints += (uint64_t)counts.written;
    now.failed += (uint64_t)counts.failed;
    now.copying += counts.copying;
    return now;
}

/* Checkpoints contain these structs as numbers of 8 bytes: their count. */
enum {
    ACCOUNT = sizeof(struct tr_account) / sizeof(int64_t),
    COUNTS = sizeof(struct tr_counts) / sizeof(int64_t)
};
static_assert(sizeof(struct tr_account) % sizeof(int64_t) == 0 &&
                  sizeof(struct tr_counts) % sizeof(int64_t) == 0,
              "both are saved as numbers of 8 bytes");

static int snapshot_account(void *who, tr_snapshot *snapshot)
{
    struct tr_monitor *m = who;
    struct tr_record *r = &m->record;
    struct tr_account now = r->account, *a = &r->account;
    const tr_context *tr = r->tr;
    uint64_t restarts = a->restarts;
    if (!tr_snapshot_restores(snapshot)) {
        if (m->writes) now = account_until_now(m);
        if (m->writes) now.metrics_bytes = tr_metrics_length(&m->metrics);
        TR_TRY(tr_snapshot_common(snapshot, "account", TR_I64, ACCOUNT, &now));
        const struct tr_traffic *t = &tr->tables->traffic;
        struct tr_counts counts = r->before.counts; /* counts of earlier stages; zeros on ranks except 0 */
        if (tr_works(tr))
            add_counts(&counts, &(struct tr_counts){*t, tr->active->member == 0 ? t->pushes : 0});
        return tr_snapshot_rows(snapshot, "counted", TR_I64, (uint64_t)tr->size, COUNTS, NULL,
                                (uint64_t)tr->rank, 1, &counts);
    }
    TR_TRY(tr_snapshot_common(snapshot, "account", TR_I64, ACCOUNT, &now));
    /* rank 0 sums the counts of the ranks that took the checkpoint; their number may differ from tr->size */
    const struct tr_manifest *from = tr_checkpoint_found(tr);
    size_t ranks = (size_t)from->facts.ranks, mine = tr->rank == 0 ? ranks : 0;
    struct tr_counts *each;
    r->before = (struct tr_tally){.compute_seconds = now.last.compute_seconds,
                                  .evaluate_seconds = now.last.evaluate_seconds};
    r->stage = (struct tr_tally){.compute_seconds = 0};
    TR_TRY(TR_NEW(&each, ranks));
    int status = tr_snapshot_rows(snapshot, "counted", TR_I64, ranks, COUNTS, NULL, 0, mine, each);
    for (size_t i = 0; status == TR_OK && i < mine; i++) add_counts(&r->before.counts, &each[i]);
    free(each);
    if (status != TR_OK || !m->writes) return status;
    /* the seconds of training continue, and metrics.csv is truncated to its length at the checkpoint */
    bool lacking;
    *a = now;
    a->restarts = restarts > a->restarts ? restarts : a->restarts + 1;
    a->checkpoints++; /* the account was saved before its own checkpoint was counted */
    r->entered = tr_now() - a->spent[r->state];
    a->spent[r->state] = 0;
    estimate_time_left(m);
    add_event(m, "restart", a->last.epoch, from->number, from->facts.clock);
    m->display.shown_epoch = m->logged.shown_epoch = a->last.epoch;
    m->display.shown_seconds = m->logged.shown_seconds = a->last.seconds;
    TR_TRY(tr_metrics_cut(&m->metrics, a->metrics_bytes, &lacking));
    if (lacking)
        tr_say(m->tr,
               "note:          metrics.csv has lost lines, and continues with the lines that are left");
    return TR_OK;
}

/* ---- start ---- */

/* Creates and locks the output folder of the job, and writes job.yaml. continues: the run resumes in its folder. *moved: new name
 * of the folder of an earlier run, or NULL; free it. */
static int take_folder(tr_context *tr, bool continues, char **moved, int *lock)
{
    const struct tr_job *job = tr->job;
    TR_FREED char *text = NULL;
    *moved = NULL;
    TR_TRY(tr_output_take(job->output, continues ? NULL : moved, lock));
    if (*moved) tr_say(tr, "output:        the earlier run in %s is now %s", job->output, *moved);
    TR_TRY(tr_job_as_text(job, &text));
    return tr_replace_file(job->output, "job.yaml", text, strlen(text), true);
}

/* Prints the checkpoint from which the run resumes, and the age of its manifest. */
static void say_continues(const struct tr_monitor *m, const struct tr_manifest *from)
{
    const struct tr_job *job = m->tr->job;
    TR_FREED char *to = NULL, *folder = NULL, *path = NULL;
    struct stat file;
    struct timespec now;
    double age = NAN;
    if (tr_checkpoint_found_in_memory(m->tr)) {
        tr_say(m->tr,
               "continues:     from checkpoint %" PRIu64 " in memory, at epoch %.2f (clock %" PRId64 ")",
               from->number, from->facts.epoch, from->facts.clock);
        return;
    }
    if (tr_checkpoints_place(job->checkpoint.to, job->output, &to) == TR_OK &&
        tr_checkpoint_path(to, from->number, &folder) == TR_OK &&
        tr_format(&path, "%s/manifest.h5", folder) == TR_OK && stat(path, &file) == 0 &&
        clock_gettime(CLOCK_REALTIME, &now) == 0)
        age =
            (double)(now.tv_sec - file.st_mtim.tv_sec) + 1e-9 * (double)(now.tv_nsec - file.st_mtim.tv_nsec);
    tr_say(m->tr,
           "continues:     from checkpoint %" PRIu64 " at epoch %.2f (clock %" PRId64 "), written %s ago",
           from->number, from->facts.epoch, from->facts.clock, tr_duration(age).text);
}

/* On rank 0: prepares the folder, its first files, and the displays on stderr and in the log. */
static int start(struct tr_monitor *m)
{
    tr_context *tr = m->tr;
    const struct tr_job *job = tr->job;
    const struct tr_manifest *from = tr_checkpoint_found(tr);
    TR_TRY(take_folder(tr, from != NULL, &m->moved, &m->lock));
    if (from) m->record.account.restarts = tr_status_look(job->output).continued + 1;
    TR_TRY(tr_status_open(&m->status, &m->record));
    TR_TRY(tr_log_open(tr, job->output, from != NULL));
    m->writes = true;
    tr_status_guard(&m->status);
    TR_TRY(tr_status_write(&m->status));
    if (from) say_continues(m, from);
    TR_TRY(tr_metrics_open(job->output, from != NULL, &m->metrics));
    enum tr_display_style style = tr_display_choose(job->report.progress, stderr);
    if (tr->team && style == TR_DISPLAY_TABLE)
        style = TR_DISPLAY_LINES; /* no table, because lines of several tasks alternate */
    m->display = (struct tr_display){.style = style, .out = stderr, .task = tr->team};
    m->logged = (struct tr_display){.style = tr->log ? TR_DISPLAY_LINES : TR_DISPLAY_SILENT, .out = tr->log};
    struct tr_observers *o = tr_observers(tr);
    o->who = m;
    o->progress = observe;
    o->sums = on_task;
    tr_on_loading(tr, on_loading, m);
    return tr_poll_add(tr, poll, m);
}

static int begin_stage(tr_context *tr)
{
    struct tr_record *r = &tr->monitor->record;
    add_counts(&r->before.counts, &r->stage.counts); /* adds the counts of the stage before */
    r->before.compute_seconds += r->stage.compute_seconds;
    r->before.evaluate_seconds += r->stage.evaluate_seconds;
    r->stage = (struct tr_tally){.compute_seconds = 0};
    return r->state < TR_TRAINING ? tr_monitor_enter(tr->monitor, TR_TRAINING) : TR_OK;
}

int tr_monitor_open(tr_context *tr, struct tr_monitor **monitor)
{
    struct tr_monitor *m = NULL;
    int status = TR_NEW(&m, 1);
    if (status == TR_OK) {
        m->tr = tr;
        m->metrics.fd = m->lock = -1;
        tr_record_open(tr, &m->record);
        if (tr->rank == 0) status = start(m);
        tr_on_snapshot(tr, snapshot_account, m);
        tr_observers(tr)->before_run = begin_stage;
    }
    int outcome = tr_agree(tr, status);
    if (outcome == TR_OK) *monitor = m;
    else tr_monitor_close(&m, outcome);
    return outcome;
}

/* ---- from state to state ---- */

static int enter(struct tr_monitor *m, enum tr_monitor_state state)
{
    struct tr_record *r = &m->record;
    double now = tr_now();
    r->account.spent[r->state] += now - r->entered;
    r->entered = now;
    r->state = state;
    if (state == TR_TRAINING) r->loaded = 1;
    m->display.units = m->logged.units = m->tr->trained_on.units;
    m->display.rate = m->logged.rate = m->tr->trained_on.rate;
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
    return m->record.account.last.evaluation.objective;
}

/* ---- the end ---- */

int tr_monitor_summary(struct tr_monitor *m, tr_summary_members *more, void *who)
{
    tr_context *tr = m->tr;
    TR_TRY(tr_turns_show(tr));
    struct tr_record record = m->record;
    record.account = account_until_now(m);
    struct tr_outcome outcome = {.peak_rss = (double)tr_peak_rss(), .more = more, .who = who};
    tr_layout_describe(&tr->layout, outcome.layout, sizeof outcome.layout);
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_F64, &outcome.peak_rss, 1));
    const struct tr_service *own = &tr->tables->service; /* of this server; added over all servers below */
    double parts[] = {own->seconds, 0, own->version_bytes, own->at_seams, own->under_way};
    for (size_t i = 0; i < tr->tables->count; i++) parts[1] += (double)tr_table_bytes(tr->tables->table[i]);
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, parts, sizeof parts / sizeof *parts));
    outcome.service = (struct tr_service){.seconds = parts[0],
                                          .share_bytes = parts[1],
                                          .version_bytes = parts[2],
                                          .at_seams = parts[3],
                                          .under_way = parts[4]};
    TR_TRY(tr_timeline_gather(tr, &outcome.spans, &outcome.span_count));
    const struct tr_account *a = &m->record.account;
    if (m->writes && tr->job->solve.target != TR_JOB_AUTO && a->reached_target)
        tr_say(tr,
               "target:        %g reached after %s (%s without evaluating), %" PRIu64 " updates, epoch %.2f",
               tr->job->solve.target, tr_duration(a->target.seconds).text,
               tr_duration(a->target.seconds - a->target.evaluate_seconds).text, a->target.updates,
               a->target.epoch);
    else if (m->writes && tr->job->solve.target != TR_JOB_AUTO)
        tr_say(tr,
               "note:          solve.target %g is not reached, the objective is %.8g: increase solve.epochs",
               tr->job->solve.target, a->last.evaluation.objective);
    int status = tr_agree(tr, m->writes ? tr_summary_write(&record, &outcome, tr->job->output) : TR_OK);
    free(outcome.spans);
    return status;
}

void tr_monitor_say_stopped(struct tr_monitor *m)
{
    if (!m || !m->writes) return;
    end_rows(m);
    struct tr_checkpoint_counts counts;
    tr_checkpoint_count(m->tr, &counts);
    double after = total_seconds(m) - m->record.account.total;
    if (counts.written > 0)
        tr_say(m->tr,
               "stopped:       after %s at epoch %.2f, checkpoint %" PRIu64
               " written; the same command continues",
               tr_duration(after).text, counts.epoch, counts.last);
    else
        tr_say(m->tr, "stopped:       after %s; no checkpoint could be written, the same command %s",
               tr_duration(after).text,
               tr_checkpoint_found(m->tr) ? "continues from the last one" : "starts over");
}

int tr_monitor_close(struct tr_monitor **monitor, int status)
{
    struct tr_monitor *m = *monitor;
    if (!m) return status;
    int outcome = TR_OK;
    if (m->writes) {
        char error[1024];
        snprintf(error, sizeof error, "%s", tr_error_text()); /* writing could replace the error text */
        m->record.code = status;
        m->record.error = status == TR_OK || status == TR_ERR_STOPPED ? NULL : error;
        outcome = enter(m, status == TR_OK ? TR_DONE : status == TR_ERR_STOPPED ? TR_STOPPED : TR_FAILED);
        tr_poll_remove(m->tr, poll, m);
        tr_observers(m->tr)->progress = NULL;
        tr_on_loading(m->tr, NULL, NULL);
        tr_metrics_close(&m->metrics);
        tr_status_close(&m->status);
    }
    tr_observers(m->tr)->before_run = NULL;
    tr_output_release(m->tr->job->output, m->lock);
    /* A run that failed before its first evaluation, or diverged, must not replace an earlier model: the folder of the earlier run
     * gets its name back. */
    const char *folder = m->tr->job->output;
    if (!m->writes || !m->moved || status == TR_OK || status == TR_ERR_STOPPED) {
        /* this run keeps the folder */
    } else if (!tr_record_is_evaluated(&m->record) && tr_output_put_back(folder, m->moved)) {
        tr_say(m->tr, "output:        the earlier run is in %s again", folder);
    } else if (status == TR_ERR_DIVERGED && tr_output_exchange(folder, m->moved)) {
        tr_say(m->tr, "output:        the earlier run is in %s again, this one in %s", folder, m->moved);
    }
    if (status == TR_OK) status = tr_agree(m->tr, outcome);
    TR_FREE_ALL(m->record.stages, m->moved, m);
    *monitor = NULL;
    return status;
}

/* ---- a job of several tasks ---- */

struct tr_tasks_folder {
    struct tr_record record;
    struct tr_status_file status;
    int lock;
};

static void tasks_say_table(const struct tr_record *r)
{
    int width = 4;
    for (size_t i = 0; i < r->tasks; i++) width = tr_max_int(width, (int)strlen(r->task[i].name));
    tr_say(r->tr, "%-*s  %5s  %11s  %11s  outcome", width, "task", "ranks", "waited", "took");
    for (const struct tr_task_row *row = r->task; row < r->task + r->tasks; row++) {
        const struct tr_scheduled *t = row->scheduled;
        bool done = t->state == TR_TASK_DONE, after = !done && t->because >= 0;
        char outcome[64] = "done";
        if (t->ranks == 0) {
            tr_say(r->tr, "%-*s  %5s  %11s  %11s  %s%s%s", width, row->name, "-", "-", "-",
                   done ? "done before" : "not run", after ? ": it comes after " : "",
                   after ? r->task[t->because].name : "");
            continue;
        }
        if (t->state == TR_TASK_FAILED && row->status == TR_ERR_STOPPED)
            snprintf(outcome, sizeof outcome, "stopped");
        else if (t->state == TR_TASK_FAILED)
            snprintf(outcome, sizeof outcome, "failed, exit code %d", row->status);
        else if (isfinite(row->objective))
            snprintf(outcome, sizeof outcome, "done, objective %.8g", row->objective);
        tr_say(r->tr, "%-*s  %5d  %11s  %11s  %s", width, row->name, t->ranks,
               tr_duration(t->begin - t->since).text, tr_duration(t->end - t->begin).text, outcome);
    }
}

static size_t tasks_count_done(const struct tr_record *r)
{
    size_t done = 0;
    for (size_t i = 0; i < r->tasks; i++) done += r->task[i].scheduled->state == TR_TASK_DONE;
    return done;
}

static void tasks_folder_free(struct tr_tasks_folder **folder)
{
    struct tr_tasks_folder *f = *folder;
    tr_status_close(&f->status);
    tr_output_release(f->record.tr->job->output, f->lock);
    free(f);
    *folder = NULL;
}

int tr_tasks_folder_open(tr_context *world, const struct tr_task_row *row, size_t n, bool continues,
                         struct tr_tasks_folder **folder)
{
    struct tr_tasks_folder *f;
    TR_TRY(TR_NEW(&f, 1));
    tr_record_open(world, &f->record);
    f->record.task = row;
    f->record.tasks = n;
    f->lock = -1;
    *folder = f;
    struct tr_record *r = &f->record;
    char *moved;
    int status = take_folder(world, continues, &moved, &f->lock);
    free(moved);
    if (status == TR_OK && continues) r->account.restarts = tr_status_look(world->job->output).continued + 1;
    if (status == TR_OK) status = tr_status_open(&f->status, r);
    if (status == TR_OK) {
        r->state = TR_TRAINING;
        tr_status_guard(&f->status);
        if (continues) tr_say(world, "continues:     %zu of %zu tasks are done", tasks_count_done(r), n);
        status = tr_status_write(&f->status);
    }
    if (status != TR_OK) tasks_folder_free(folder);
    return status;
}

int tr_tasks_folder_renew(struct tr_tasks_folder *f, bool changed)
{
    return tr_status_due(&f->status, changed) ? tr_status_write(&f->status) : TR_OK;
}

int tr_tasks_folder_close(struct tr_tasks_folder **folder, uint64_t readings, int status)
{
    struct tr_tasks_folder *f = *folder;
    if (!f) return status;
    struct tr_record *r = &f->record;
    char error[1024]; /* text of the first task that failed with this status, otherwise of this rank */
    snprintf(error, sizeof error, "%s", tr_error_text());
    for (size_t i = r->tasks; i-- > 0;)
        if (r->task[i].scheduled->state == TR_TASK_FAILED && r->task[i].status == status)
            snprintf(error, sizeof error, "task %s: %s", r->task[i].name, r->task[i].error);
    bool stopped = status == TR_ERR_STOPPED;
    r->state = status == TR_OK ? TR_DONE : stopped ? TR_STOPPED : TR_FAILED;
    r->code = status;
    r->error = status == TR_OK || stopped ? NULL : error;
    r->account.total = process_seconds();
    int outcome = tr_summary_write_tasks(r, readings, r->tr->job->output);
    int last = tr_status_write(&f->status);
    if (outcome == TR_OK) outcome = last;
    tasks_say_table(r);
    if (stopped)
        tr_say(r->tr, "stopped:       after %s, %zu of %zu tasks done; the same command continues",
               tr_duration(process_seconds()).text, tasks_count_done(r), r->tasks);
    if (outcome == TR_OK) tr_say(r->tr, "output:        %s", r->tr->job->output);
    tasks_folder_free(folder);
    return status != TR_OK ? status : outcome;
}
