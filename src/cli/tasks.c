#include "cli/tasks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "cli/average.h"
#include "cli/task_rows.h"
#include "monitor/monitor.h"
#include "stage/scheduler.h"
#include "stage/stage.h"
#include "store/shard.h"
#include "store/checkpoint.h"

/* Orders: the team of a task runs it; a team parts, as its ranks get other tasks; rows of the node are not needed any more. */
enum { RUN, PART, FORGET };
struct call {
    struct tr_order order; /* number: of the task or of the rows */
    int n, rank[];         /* RUN: the ranks of the team, ascending */
};

/* What the first rank of a team reports when its task has ended. */
struct outcome {
    int64_t task, status, rests; /* rests: the team can run another task */
    uint64_t readings;           /* of its training data, from their files */
    double objective;
    char error[512];
};

struct tasks {
    tr_context *world;
    const struct tr_run_options *options;
    struct tr_scheduler scheduler;
    struct tr_task_rows *rows;
    tr_context *resting; /* a team of this rank that can run another task; or NULL */
    /* rank 0: */
    struct tr_schedule *schedule;
    struct tr_tasks_folder *folder;
    struct tr_task_row *row; /* by task */
    struct call **call;      /* by task; NULL before it begins */
    bool *wanted;            /* by set of rows: a task takes it or will take it */
    int *rests;              /* by rank: the task whose team can run another one, or -1 */
    int failed;              /* exit code of the first task that failed */
    int worse;               /* of the first failed task among those from which the best is chosen */
    bool stopped;            /* a task was, on request */
    int status;              /* of directing: nothing begins any more once it is not TR_OK */
    char error[512];
};

static size_t call_bytes(int n)
{
    return sizeof(struct call) + (size_t)n * sizeof(int);
}

/* ---- tasks that are chosen: run: best, and best: K ---- */

/* The mean result of the tasks before a task; n = 0: they cannot be compared. */
struct merit {
    struct tr_outcome_seen seen;
    double mean, deviation, seconds;
    size_t n;
};

/* Whether a task begins only if the tasks before it are better than others. */
static bool is_chosen(const struct tr_job_task *task)
{
    return task->run == TR_RUN_BEST || task->best > 0;
}

/* The i-th task that `task` comes after. */
static size_t task_before(const tr_job *job, size_t task, size_t i)
{
    return (size_t)(tr_job_task_of(job, job->task[task].after.item[i]) - job->task);
}

/* The tasks before it can be compared. */
static int check_chosen(const tr_job *job, const struct tr_job_task *task)
{
    for (size_t i = 0; i < task->after.n; i++) {
        const struct tr_job_task *other = tr_job_task_of(job, task->after.item[i]);
        if (other->job->data.test.n == 0)
            return tr_fail(TR_ERR_CONFIG,
                           "%s: task %s runs the best, but %s has no data.test to be compared by",
                           task->first, task->name, other->name);
    }
    return TR_OK;
}

/* Whether a task that is chosen comes after this one: if this one fails, the others still have a best one. */
static bool has_chosen_after(const tr_job *job, size_t task)
{
    for (size_t i = 0; i < job->tasks; i++)
        for (size_t k = 0; is_chosen(&job->task[i]) && k < job->task[i].after.n; k++)
            if (task_before(job, i, k) == task) return true;
    return false;
}

static struct merit merit_of(const tr_job *job, const struct tr_schedule *schedule, size_t task)
{
    struct merit m = {.n = job->task[task].after.n};
    double squares = 0;
    for (size_t i = 0; i < m.n; i++) {
        size_t one = task_before(job, task, i);
        m.seen = tr_outcome_look(job->task[one].job->output);
        if (schedule->task[one].state != TR_TASK_DONE || !isfinite(m.seen.value)) return (struct merit){0};
        m.mean += m.seen.value / (double)m.n;
        m.seconds += m.seen.seconds;
        squares += m.seen.value * m.seen.value;
    }
    if (m.n > 1) m.deviation = sqrt(fmax(0, squares - (double)m.n * m.mean * m.mean) / (double)(m.n - 1));
    return m;
}

static bool is_better(const struct merit *a, const struct merit *b)
{
    if (b->n == 0 || a->n == 0) return a->n > 0;
    return a->seen.ascends ? a->mean > b->mean : a->mean < b->mean;
}

/* The settings of a task, except for its output and its test data. */
static void name_settings(const tr_job *job, const struct tr_job_task *task, char *text, size_t size)
{
    static const char *const own[] = {"run", "after", "ranks", "priority", "output", "data.test"};
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < task->job->settings && at < size; i++) {
        const struct tr_job_setting *s = &task->job->setting[i];
        bool tells = s->value.n == 1;
        for (size_t k = 0; tells && k < sizeof own / sizeof *own; k++) tells = strcmp(s->key, own[k]) != 0;
        if (tells)
            at += (size_t)snprintf(text + at, size - at, "%s%s=%s", at > 0 ? " " : "", s->key,
                                   s->value.item[0]);
    }
    if (at == 0) snprintf(text, size, "as the whole %s", job->name);
}

static void say_merits(const tr_context *world, const struct tr_schedule *schedule, size_t best)
{
    const tr_job *job = world->job;
    bool headed = false;
    for (size_t i = 0; i < job->tasks; i++) {
        char settings[512];
        if (job->task[i].run != TR_RUN_BEST) continue;
        struct merit m = merit_of(job, schedule, i);
        if (m.n > 0 && !headed)
            tr_say(world, "%-12s  %12s  %10s  %11s  settings", "task", m.seen.name, "deviation", "took");
        headed = headed || m.n > 0;
        name_settings(job, &job->task[i], settings, sizeof settings);
        bool given_up = schedule->task[task_before(job, i, 0)].state == TR_TASK_DROPPED;
        if (m.n == 0)
            tr_say(world, "%-12s  %12s  %10s  %11s  %s", job->task[i].name, given_up ? "given up" : "failed",
                   "-", "-", settings);
        else
            tr_say(world, "%-12s  %12.6g  %10.2g  %11s  %s%s", job->task[i].name, m.mean, m.deviation,
                   tr_duration(m.seconds).text, settings, i == best ? "  <- best" : "");
    }
}

/* Whether all tasks before it have ended, and it still waits to be chosen. */
static bool can_be_judged(const tr_job *job, const struct tr_schedule *schedule, size_t task)
{
    for (size_t i = 0; i < job->task[task].after.n; i++) {
        const struct tr_scheduled *t = &schedule->task[task_before(job, task, i)];
        if (t->held || t->state == TR_TASK_WAITING || t->state == TR_TASK_RUNNING) return false;
    }
    return schedule->task[task].held;
}

/* The candidate with the best merit; the number of tasks: none. */
static size_t find_best(const tr_job *job, const struct tr_schedule *schedule, const bool *candidate)
{
    struct merit most = {0};
    size_t best = job->tasks;
    for (size_t i = 0; i < job->tasks; i++) {
        struct merit m = candidate[i] ? merit_of(job, schedule, i) : (struct merit){0};
        if (!is_better(&m, &most)) continue;
        most = m;
        best = i;
    }
    return best;
}

/* Rank 0, when a task has ended and before others begin. Once all other tasks are over, the best ones of those to be chosen can
 * begin (or are done, if an earlier part of the run has done them), and the other candidates are dropped; after the last choice
 * a table shows why. Returns true if that happened, and can happen again: *any is whether there is a best one. */
static bool choose_best(struct tasks *d, bool *any)
{
    const tr_job *job = d->world->job;
    struct tr_schedule *schedule = d->schedule;
    bool *candidate, last = true;
    size_t candidates = 0, most = 1;
    for (size_t i = 0; i < job->tasks; i++) {
        const struct tr_scheduled *t = &schedule->task[i];
        if (!t->held && (t->state == TR_TASK_WAITING || t->state == TR_TASK_RUNNING)) return false;
    }
    if (TR_NEW(&candidate, job->tasks) != TR_OK) return false;
    for (size_t i = 0; i < job->tasks; i++) {
        candidate[i] = can_be_judged(job, schedule, i);
        candidates += candidate[i];
        if (!candidate[i] || job->task[i].run == TR_RUN_BEST) continue;
        last = false;
        most = (size_t)job->task[i].best;
    }
    size_t best = find_best(job, schedule, candidate);
    if (candidates > 0 && last) say_merits(d->world, schedule, best);
    for (size_t i = best; i < job->tasks && most > 0; i = find_best(job, schedule, candidate), most--) {
        struct tr_status_seen seen = tr_status_look(d->row[i].output);
        candidate[i] = schedule->task[i].held = false;
        schedule->task[i].state = seen.done ? TR_TASK_DONE : TR_TASK_WAITING;
        if (seen.done) d->row[i].objective = seen.objective;
    }
    for (size_t i = 0; i < job->tasks; i++) {
        if (!candidate[i]) continue;
        schedule->task[i].held = false;
        schedule->task[i].state = TR_TASK_DROPPED;
    }
    free(candidate);
    *any = best < job->tasks;
    return candidates > 0;
}

/* ---- a team ---- */

/* Trains as a plain job does, or computes an average. */
static int run_in_team(tr_context *team, const tr_job *job, const struct tr_job_task *task,
                       const struct tr_run_options *options, double *objective)
{
    if (task->run != TR_RUN_AVERAGE) return tr_train_here(team, team->job->class, NULL, options, objective);
    struct tr_average *average = NULL;
    int status = tr_agree(team, tr_average_new(job, task, &average));
    if (status == TR_OK) return tr_train_here(team, &tr_average_class, average, options, objective);
    if (average) tr_average_class.close(average);
    free(average);
    return status;
}

static tr_poll_fn poll_tasks;

/* The team of this rank parts, all its ranks together. */
static void part_team(tr_context **resting)
{
    if (*resting) (void)tr_context_close(*resting);
    *resting = NULL;
}

/* Whether all ranks of the team have done the task. */
static bool can_rest(tr_context *team, int status)
{
    int well = status == TR_OK && team->status == TR_OK;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &well, 1, MPI_INT, MPI_MIN, team->world, &request);
    return tr_wait_request(team, &request, "the team to end its task") == TR_OK && well;
}

/* Runs a task on this rank, one of its team. Rank 0 continues to direct meanwhile. The team of the task before is used again if
 * it is still there: rank 0 makes it part before one of its ranks gets a task with other ranks. */
static void run_task(struct tasks *d, const struct call *call, struct outcome *outcome)
{
    int number = (int)call->order.number, last = TR_OK;
    const struct tr_job_task *task = &d->world->job->task[number];
    tr_context *team = d->resting;
    *outcome = (struct outcome){.task = number, .objective = NAN};
    d->resting = NULL;
    int status = team ? tr_team_again(team, task->name, task->job)
                      : tr_team_open(d->world, call->rank, call->n, number, task->name, task->job, &team);
    if (status == TR_OK)
        status = tr_agree(team, d->world->rank == 0 ? tr_poll_add(team, poll_tasks, d) : TR_OK);
    if (status == TR_OK) status = run_in_team(team, d->world->job, task, d->options, &outcome->objective);
    if (status != TR_OK) snprintf(outcome->error, sizeof outcome->error, "%s", tr_error_text());
    outcome->readings = team ? team->readings : 0;
    outcome->rests = team && can_rest(team, status);
    if (outcome->rests) {
        tr_team_rest(team);
        d->resting = team;
    } else if (team) {
        last = tr_context_close(team);
    }
    outcome->status = status != TR_OK ? status : last;
}

static int run_order(void *state, const struct tr_order *order, void *report)
{
    struct tasks *d = state;
    switch (order->kind) {
    case RUN: run_task(d, (const struct call *)order, report); break;
    case PART: part_team(&d->resting); break;
    case FORGET: tr_task_rows_forget(d->rows, (int)order->number); break;
    }
    return TR_OK;
}

/* ---- rank 0: who does what ---- */

/* Keeps the first failure until it can be reported. */
static void note_status(struct tasks *d, int status)
{
    if (status == TR_OK || d->status != TR_OK) return;
    d->status = status;
    snprintf(d->error, sizeof d->error, "%s", tr_error_text());
}

/* Tells the ranks of a team that rests that it is not needed any more. */
static void dismiss_team(struct tasks *d, int task)
{
    const struct call *team = d->call[task];
    const struct tr_order part = {.kind = PART, .reporter = -1};
    bool own = team->rank[0] == 0;
    for (int i = 0; i < team->n; i++) d->rests[team->rank[i]] = -1;
    note_status(d, tr_scheduler_order(&d->scheduler, &part, sizeof part, team->rank + own, team->n - own));
    if (own) part_team(&d->resting); /* the others will do so soon */
}

/* Dismisses teams that rest on ranks of the new one, unless it has the same ranks. */
static void take_ranks(struct tasks *d, const struct call *call)
{
    for (int i = 0; i < call->n; i++) {
        int before = d->rests[call->rank[i]];
        if (before < 0) continue;
        const struct call *team = d->call[before];
        bool same =
            team->n == call->n && memcmp(team->rank, call->rank, (size_t)call->n * sizeof *call->rank) == 0;
        if (same) d->rests[call->rank[i]] = -1;
        else dismiss_team(d, before);
    }
}

/* A team rests for a task on the same data, if there is one. */
static void keep_team(struct tasks *d, int task)
{
    const struct tr_schedule *s = d->schedule;
    bool wanted = false;
    for (size_t i = 0; i < s->tasks; i++)
        wanted = wanted || (s->task[i].state == TR_TASK_WAITING && s->task[i].data == s->task[task].data);
    for (int i = 0; i < d->call[task]->n; i++) d->rests[d->call[task]->rank[i]] = task;
    if (!wanted) dismiss_team(d, task);
}

/* Orders the ranks that the schedule has chosen to run the task. */
static int start_task(struct tasks *d, int task)
{
    const struct tr_schedule *s = d->schedule;
    struct call *call;
    TR_TRY(tr_new((void **)&call, 1, call_bytes(s->task[task].ranks), "a task"));
    d->call[task] = call;
    for (int rank = 0; rank < s->ranks; rank++)
        if (s->owner[rank] == task) call->rank[call->n++] = rank;
    call->order = (struct tr_order){.kind = RUN, .number = task, .reporter = call->rank[0]};
    take_ranks(d, call);
    return tr_scheduler_order(&d->scheduler, &call->order, call_bytes(call->n), call->rank, call->n);
}

static void say_dropped(const struct tasks *d, int task)
{
    int because = d->schedule->task[task].because;
    tr_printf(stderr, "trireme: task %s is not run: it comes after %s, which %s\n", d->row[task].name,
              d->row[because].name,
              d->schedule->task[because].state == TR_TASK_FAILED ? "failed" : "was not run");
}

/* Frees rows that no task takes any more, on all ranks. */
static void free_rows(struct tasks *d)
{
    const struct tr_schedule *s = d->schedule;
    for (int i = 0; i < tr_task_rows_count(d->rows); i++) {
        bool wanted = false;
        for (size_t k = 0; k < s->tasks; k++) {
            bool open = s->task[k].state == TR_TASK_WAITING || s->task[k].state == TR_TASK_RUNNING;
            wanted = wanted || (open && tr_task_rows_of(d->rows, k) == i);
        }
        if (wanted || !d->wanted[i]) continue;
        d->wanted[i] = false;
        const struct tr_order forget = {.kind = FORGET, .number = i, .reporter = -1};
        for (int rank = 1; rank < d->world->size; rank++)
            note_status(d, tr_scheduler_order(&d->scheduler, &forget, sizeof forget, &rank, 1));
        tr_task_rows_forget(d->rows, i);
    }
}

/* Nothing begins any more, so that the job can continue later. */
static bool is_stopping(const struct tasks *d)
{
    return d->stopped || tr_signals_stop();
}

/* Begins all tasks that can begin now. */
static int start_tasks(void *state)
{
    struct tasks *d = state;
    int task;
    bool any;
    while (d->status == TR_OK && !is_stopping(d) && choose_best(d, &any))
        if (!any && d->failed == TR_OK) d->failed = d->worse;
    while (d->status == TR_OK && !is_stopping(d) && tr_schedule_next(d->schedule, tr_now(), &task))
        if (d->schedule->task[task].state == TR_TASK_RUNNING) note_status(d, start_task(d, task));
        else say_dropped(d, task);
    note_status(d, tr_tasks_folder_renew(d->folder, true));
    free_rows(d);
    return TR_OK;
}

static void end_task(void *state, const void *report)
{
    struct tasks *d = state;
    const struct outcome *outcome = report;
    struct tr_task_row *row = &d->row[outcome->task];
    bool failed = outcome->status != TR_OK, stopped = outcome->status == TR_ERR_STOPPED;
    d->stopped = d->stopped || stopped;
    row->status = (int)outcome->status;
    row->objective = outcome->objective;
    row->readings = outcome->readings;
    snprintf(row->error, sizeof row->error, "%s", stopped ? "" : outcome->error);
    int *code = has_chosen_after(d->world->job, (size_t)outcome->task) ? &d->worse : &d->failed;
    if (failed && !stopped && *code == TR_OK) *code = row->status;
    tr_schedule_ended(d->schedule, (int)outcome->task, failed, tr_now());
    if (outcome->rests) keep_team(d, (int)outcome->task);
}

/* Handles the end of a task, or else keeps status.json up to date; never waits. A failure here is not a failure of the task that
 * rank 0 runs meanwhile. */
static int poll_tasks(void *what, int *did)
{
    struct tasks *d = what;
    int ended = 0;
    note_status(d, tr_scheduler_poll(&d->scheduler, &ended));
    if (!ended) note_status(d, tr_tasks_folder_renew(d->folder, false));
    *did += ended;
    return TR_OK;
}

/* ---- rank 0: before and after ---- */

static bool are_equal(const struct tr_job_list *x, const struct tr_job_list *y)
{
    bool same = x->n == y->n;
    for (size_t i = 0; same && i < x->n; i++) same = strcmp(x->item[i], y->item[i]) == 0;
    return same;
}

static bool has_same_data(const tr_job *a, const tr_job *b)
{
    return are_equal(&a->data.train, &b->data.train) && are_equal(&a->data.test, &b->data.test);
}

/* Describes a task to the schedule. A task that wants more ranks than there are gets all of them. */
static int describe_task(struct tasks *d, int i)
{
    const tr_job *job = d->world->job;
    const struct tr_job_task *task = &job->task[i];
    struct tr_scheduled *t = &d->schedule->task[i];
    int *after;
    TR_TRY(TR_NEW(&after, task->after.n));
    for (size_t k = 0; k < task->after.n; k++)
        after[k] = (int)(tr_job_task_of(job, task->after.item[k]) - job->task);
    bool enough = task->ranks <= (uint64_t)d->world->size;
    t->priority = task->priority;
    t->wanted = enough ? (int)task->ranks : d->world->size;
    t->after = after;
    t->after_count = task->after.n;
    t->held = is_chosen(task);
    while (!has_same_data(job->task[t->data].job, task->job)) t->data++;
    d->row[i] = (struct tr_task_row){
        .name = task->name, .output = task->job->output, .objective = NAN, .scheduled = t};
    if (!enough)
        tr_say(d->world, "note:          task %s could have %llu ranks, the job has %d", task->name,
               (unsigned long long)task->ranks, d->world->size);
    return TR_OK;
}

static bool has_checkpoints(const tr_job *job)
{
    char *to = NULL;
    uint64_t *number = NULL;
    size_t n = 0;
    int status = tr_checkpoints_place(job->checkpoint.to, job->output, &to);
    if (status == TR_OK) status = tr_checkpoints_list(to, &number, &n);
    free(number);
    free(to);
    return status == TR_OK && n > 0;
}

/* Notes which tasks are done, and returns whether there is something to continue. */
static bool find_done_tasks(struct tasks *d)
{
    const tr_job *job = d->world->job;
    bool any = false;
    for (size_t i = 0; i < job->tasks; i++) {
        struct tr_status_seen seen = tr_status_look(d->row[i].output);
        if (seen.done && !d->schedule->task[i].held) { /* others are chosen first */
            d->schedule->task[i].state = TR_TASK_DONE;
            d->row[i].objective = seen.objective;
        }
        any = any || seen.done || has_checkpoints(job->task[i].job);
    }
    return any;
}

/* The job of the folder must be this one. */
static int compare_jobs(const tr_context *world)
{
    char *path, *text = NULL, *change = NULL;
    size_t length;
    TR_TRY(tr_format(&path, "%s/job.yaml", world->job->output));
    int status = tr_job_read_text(path, &text, &length);
    free(path);
    if (status == TR_OK) status = tr_job_compare(world->job, text, &change);
    if (change) tr_say(world, "note:          the job has changed: %s", change);
    free(change);
    free(text);
    return status;
}

static int open_director(struct tasks *d)
{
    tr_context *world = d->world;
    const tr_job *job = world->job;
    TR_TRY(TR_NEW(&d->row, job->tasks));
    TR_TRY(TR_NEW(&d->call, job->tasks));
    TR_TRY(TR_NEW(&d->rests, (size_t)world->size));
    for (int rank = 0; rank < world->size; rank++) d->rests[rank] = -1;
    TR_TRY(tr_schedule_open(world->size, world->node_of, job->tasks, &d->schedule));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(describe_task(d, (int)i));
    bool continues = false; /* an earlier run that has not ended */
    if (!d->options->fresh) {
        struct tr_status_seen seen = tr_status_look(job->output);
        continues = seen.any && !seen.done && find_done_tasks(d);
    }
    if (continues) TR_TRY(compare_jobs(world));
    return tr_tasks_folder_open(world, d->row, job->tasks, continues, &d->folder);
}

static void close_director(struct tasks *d)
{
    tr_tasks_folder_close(&d->folder, TR_OK);
    for (size_t i = 0; d->schedule && i < d->schedule->tasks; i++) {
        free((void *)d->schedule->task[i].after);
        free(d->call[i]);
    }
    tr_schedule_close(d->schedule);
    free(d->call);
    free(d->rests);
    free(d->row);
    free(d->wanted);
}

/* Runs all tasks. A task that failed has printed the reason. */
static int direct(struct tasks *d)
{
    TR_TRY(tr_poll_add(d->world, poll_tasks, d));
    note_status(d, tr_scheduler_direct(&d->scheduler));
    tr_poll_remove(d->world, poll_tasks, d);
    if (!tr_schedule_over(d->schedule) && !is_stopping(d))
        note_status(d, tr_fail(TR_ERR_INTERNAL, "tasks are left, but none can run"));
    int status = d->status == TR_OK ? TR_OK : tr_fail(d->status, "%s", d->error);
    bool stopped = status == TR_OK && is_stopping(d) && (d->stopped || !tr_schedule_over(d->schedule));
    bool told = status == TR_OK && (stopped || d->failed != TR_OK);
    if (told) status = stopped ? TR_ERR_STOPPED : d->failed;
    status = tr_tasks_folder_close(&d->folder, status);
    if (status != TR_OK && !told) tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
    int ending = tr_scheduler_end(&d->scheduler, status);
    return status != TR_OK ? status : ending;
}

/* ---- all ---- */

/* A task cannot change settings of the whole job; and errors that can be found now are reported before the first task begins. */
static int check_task(const tr_job *job, const struct tr_job_task *task)
{
    if (task->job->ranks.node_size != job->ranks.node_size)
        return tr_fail(
            TR_ERR_CONFIG, "%s: ranks.node_size of task %s: it is the same for the whole job, %llu",
            tr_job_where(task->job, "ranks.node_size"), task->name, (unsigned long long)job->ranks.node_size);
    if (task->run == TR_RUN_AVERAGE) return tr_average_check(job, task);
    if (is_chosen(task)) TR_TRY(check_chosen(job, task));
    const tr_model_class *class = task->job->class;
    return class->check ? class->check(task->job, task->job->options) : TR_OK;
}

static int check_tasks(const tr_job *job)
{
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(check_task(job, &job->task[i]));
    return TR_OK;
}

/* Reads the rows that several tasks take. */
static int open_rows(struct tasks *d)
{
    tr_context *world = d->world;
    size_t tasks = world->job->tasks;
    bool *wanted = NULL;
    int status = world->rank == 0 ? TR_NEW(&wanted, tasks) : TR_OK;
    for (size_t i = 0; status == TR_OK && wanted && i < tasks; i++)
        wanted[i] = d->schedule->task[i].state == TR_TASK_WAITING;
    status = tr_agree(world, status);
    if (status == TR_OK) status = tr_task_rows_open(world, wanted, &d->rows);
    free(wanted);
    if (status != TR_OK || world->rank != 0) return tr_agree(world, status);
    tr_tasks_folder_note_readings(d->folder, tr_task_rows_readings(d->rows));
    status = TR_NEW(&d->wanted, (size_t)tr_task_rows_count(d->rows));
    for (int i = 0; status == TR_OK && i < tr_task_rows_count(d->rows); i++) d->wanted[i] = true;
    return tr_agree(world, status);
}

int tr_tasks_run(tr_context *world, const struct tr_run_options *options)
{
    struct tasks d = {.world = world, .options = options};
    d.scheduler = (struct tr_scheduler){.tr = world,
                                        .order_bytes = call_bytes(world->size),
                                        .report_bytes = sizeof(struct outcome),
                                        .state = &d,
                                        .next = start_tasks,
                                        .run = run_order,
                                        .ended = end_task};
    int status = check_tasks(world->job);
    if (status == TR_OK) status = tr_ranks_find_nodes(world, world->job->ranks.node_size);
    if (status == TR_OK && world->rank == 0) status = open_director(&d);
    if (status == TR_OK) status = tr_scheduler_open(&d.scheduler);
    status = tr_agree(world, status);
    if (status == TR_OK) {
        tr_say(world, "tasks:         %zu, on %d rank%s", world->job->tasks, world->size,
               world->size > 1 ? "s" : "");
        status = open_rows(&d);
    }
    if (status == TR_OK && world->rank == 0) {
        status = direct(&d);
    } else if (status == TR_OK) {
        int outcome = TR_OK;
        status = tr_scheduler_follow(&d.scheduler, &outcome);
        if (status == TR_OK) status = outcome;
    }
    part_team(&d.resting);
    tr_task_rows_close(world, &d.rows);
    close_director(&d);
    tr_scheduler_close(&d.scheduler);
    return status;
}
