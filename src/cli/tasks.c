#include "cli/tasks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/folder.h"
#include "store/policy.h"
#include "cli/average.h"
#include "cli/best.h"
#include "cli/task_rows.h"
#include "monitor/monitor.h"
#include "stage/schedule.h"
#include "stage/stage.h"

/* What rank 0 tells the team of a task: its number, how many ranks run it, and which, ascending. */
struct call {
    int task, n, rank[];
};
/* In the place of a task's number: all have ended, and n is the exit code; a team parts, whose ranks get other tasks; no task
 * takes rows n of the node any more. */
enum { ENDED = -1, PART = -2, FORGET = -3 };

/* What a team's first rank reports at the end of its task. */
struct outcome {
    int64_t task, status, rests; /* rests: the team is there for another task */
    uint64_t readings;           /* of its training data, from their files */
    double objective;
    char error[512];
};

/* Of rank 0, which directs. */
struct director {
    tr_context *world;
    struct tr_schedule *schedule;
    struct tr_tasks_folder *folder;
    struct tr_task_rows *rows;
    bool *wanted;            /* of these: some task will take them, or takes them */
    struct tr_task_row *row; /* by task, as the next two */
    struct call **call;      /* NULL before it begins */
    MPI_Request **sent;      /* of its call, by its rank */
    int *rests;              /* by rank: the task whose team is there for another one, or -1 */
    tr_context **resting;    /* rank 0's own */
    int own;                 /* task that rank 0 itself is to run, or -1 */
    int running;
    int failed;   /* exit code of the first task that failed … */
    int worse;    /* … and of the first that is one of those which a best one is to be chosen by */
    bool stopped; /* a task was, on request */
    int status;   /* of directing: nothing begins any more once it is not TR_OK */
    char error[512];
};

static size_t call_bytes(int n)
{
    return sizeof(struct call) + (size_t)n * sizeof(int);
}

/* ---- a team ---- */

/* What a plain job does, or an average. */
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

static tr_poll_fn poll_outcomes;

static bool has_same_ranks(const struct call *a, const struct call *b)
{
    return a->n == b->n && memcmp(a->rank, b->rank, (size_t)a->n * sizeof *a->rank) == 0;
}

/* The team parts, all its ranks together. */
static void part(tr_context **resting)
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

/* Runs a task on this rank, one of its team; its first rank fills the outcome. director: rank 0's, who goes on directing
 * meanwhile; else NULL. *resting: the team, if it was there before and is there for another task; rank 0 has one part before
 * any of its ranks gets a task with others. */
static void run_task(tr_context *world, const struct call *call, const struct tr_run_options *options,
                     struct director *director, tr_context **resting, struct outcome *outcome)
{
    const struct tr_job_task *task = &world->job->task[call->task];
    tr_context *team = *resting;
    *outcome = (struct outcome){.task = call->task, .objective = NAN};
    *resting = NULL;
    int status = team ? tr_team_again(team, task->name, task->job)
                      : tr_team_open(world, call->rank, call->n, call->task, task->name, task->job, &team);
    if (status == TR_OK)
        status = tr_agree(team, director ? tr_poll_add(team, poll_outcomes, director) : TR_OK);
    if (status == TR_OK) status = run_in_team(team, world->job, task, options, &outcome->objective);
    if (status != TR_OK) snprintf(outcome->error, sizeof outcome->error, "%s", tr_error_text());
    outcome->readings = team ? team->readings : 0;
    outcome->rests = team && can_rest(team, status);
    int last = TR_OK;
    if (outcome->rests) {
        tr_team_rest(team);
        *resting = team;
    } else if (team) {
        last = tr_context_close(team);
    }
    outcome->status = status != TR_OK ? status : last;
}

/* All but rank 0; returns the exit code. */
static int follow(tr_context *world, const struct tr_run_options *options, struct tr_task_rows *rows,
                  struct call *call, tr_context **resting)
{
    for (;;) {
        struct outcome outcome;
        MPI_Request request;
        MPI_Irecv(call, (int)call_bytes(world->size), MPI_BYTE, 0, TR_TAG_TEAM, world->wire, &request);
        TR_TRY(tr_wait_request(world, &request, NULL));
        if (call->task == FORGET) tr_task_rows_forget(rows, call->n);
        else if (call->task < 0) part(resting);
        if (call->task == ENDED) return call->n;
        if (call->task < 0) continue;
        run_task(world, call, options, NULL, resting, &outcome);
        if (call->rank[0] != world->rank) continue;
        MPI_Isend(&outcome, sizeof outcome, MPI_BYTE, 0, TR_TAG_OUTCOME, world->wire, &request);
        TR_TRY(tr_wait_request(world, &request, NULL)); /* rank 0 may compute */
    }
}

/* ---- rank 0: who does what ---- */

/* A word so short is gone at once. */
static void tell(const struct director *d, int rank, const struct call *message)
{
    MPI_Request request;
    MPI_Isend(message, sizeof *message, MPI_BYTE, rank, TR_TAG_TEAM, d->world->wire, &request);
    tr_wait_alone(d->world, &request, "a rank to hear what its team does");
}

/* Tells the ranks of a team that rests that it is needed no more. */
static void part_team(struct director *d, int task)
{
    const struct call *team = d->call[task];
    const struct call message = {.task = PART};
    for (int i = 0; i < team->n; i++) {
        d->rests[team->rank[i]] = -1;
        if (team->rank[i] != 0) tell(d, team->rank[i], &message);
    }
    if (team->rank[0] == 0) part(d->resting); /* others are on the way */
}

/* Teams that rest on ranks of the new one part, unless it is the same. */
static void take_ranks(struct director *d, const struct call *call)
{
    for (int i = 0; i < call->n; i++) {
        int before = d->rests[call->rank[i]];
        if (before < 0) continue;
        if (has_same_ranks(d->call[before], call)) d->rests[call->rank[i]] = -1;
        else part_team(d, before);
    }
}

/* A team that rests waits for a task on the same data, if there is one. */
static void keep_team(struct director *d, int task)
{
    const struct tr_schedule *s = d->schedule;
    bool wanted = false;
    for (size_t i = 0; i < s->tasks; i++)
        wanted = wanted || (s->task[i].state == TR_TASK_WAITING && s->task[i].data == s->task[task].data);
    for (int i = 0; i < d->call[task]->n; i++) d->rests[d->call[task]->rank[i]] = task;
    if (!wanted) part_team(d, task);
}

/* Tells its ranks that they run the task; rank 0, if it is one of them, by `own`. */
static int start_task(struct director *d, int task)
{
    const struct tr_schedule *s = d->schedule;
    int n = s->task[task].ranks;
    struct call *call;
    TR_TRY(tr_new((void **)&call, 1, call_bytes(n), "a task"));
    d->call[task] = call;
    TR_TRY(TR_NEW(&d->sent[task], (size_t)n));
    call->task = task;
    for (int rank = 0; rank < s->ranks; rank++)
        if (s->owner[rank] == task) call->rank[call->n++] = rank;
    take_ranks(d, call);
    for (int i = 0; i < n; i++) {
        d->sent[task][i] = MPI_REQUEST_NULL;
        if (call->rank[i] == 0) d->own = task;
        else
            MPI_Isend(call, (int)call_bytes(n), MPI_BYTE, call->rank[i], TR_TAG_TEAM, d->world->wire,
                      &d->sent[task][i]);
    }
    d->running++;
    return TR_OK;
}

static void say_dropped(const struct director *d, int task)
{
    int because = d->schedule->task[task].because;
    fprintf(stderr, "trireme: task %s is not run: it comes after %s, which %s\n", d->row[task].name,
            d->row[because].name,
            d->schedule->task[because].state == TR_TASK_FAILED ? "failed" : "was not run");
}

static void tell_others(const struct director *d, const struct call *message)
{
    for (int rank = 1; rank < d->world->size; rank++) tell(d, rank, message);
}

/* Rows that no task takes any more are given back. */
static void give_rows_back(struct director *d)
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
        tell_others(d, &(struct call){.task = FORGET, .n = i});
        tr_task_rows_forget(d->rows, i);
    }
}

/* The first failure counts, whatever else fails until it can be told. */
static void note_status(struct director *d, int status)
{
    if (status == TR_OK || d->status != TR_OK) return;
    d->status = status;
    snprintf(d->error, sizeof d->error, "%s", tr_error_text());
}

/* Nothing begins any more, so that the job can go on later. */
static bool is_stopping(const struct director *d)
{
    return d->stopped || tr_signals_stop();
}

/* Begins all that can begin now. */
static void start_tasks(struct director *d)
{
    int task;
    bool any;
    while (d->status == TR_OK && !is_stopping(d) && tr_best_choose(d->world, d->schedule, d->row, &any))
        if (!any && d->failed == TR_OK) d->failed = d->worse;
    while (d->status == TR_OK && !is_stopping(d) && tr_schedule_next(d->schedule, tr_now(), &task))
        if (d->schedule->task[task].state == TR_TASK_RUNNING) note_status(d, start_task(d, task));
        else say_dropped(d, task);
    note_status(d, tr_tasks_folder_renew(d->folder, true));
}

static void end_task(struct director *d, const struct outcome *outcome)
{
    struct tr_task_row *row = &d->row[outcome->task];
    bool failed = outcome->status != TR_OK, stopped = outcome->status == TR_ERR_STOPPED;
    d->stopped = d->stopped || stopped;
    row->status = (int)outcome->status;
    row->objective = outcome->objective;
    row->readings = outcome->readings;
    snprintf(row->error, sizeof row->error, "%s", stopped ? "" : outcome->error);
    int *code = tr_best_follows(d->world->job, (size_t)outcome->task) ? &d->worse : &d->failed;
    if (failed && !stopped && *code == TR_OK) *code = row->status;
    d->running--;
    tr_schedule_ended(d->schedule, (int)outcome->task, failed, tr_now());
    if (outcome->rests) keep_team(d, (int)outcome->task);
    start_tasks(d);
    give_rows_back(d);
}

/* Whether a team has ended, and what can begin then; never waits. A failure of directing is not that of the task in whose
 * midst it is met. */
static int poll_outcomes(void *what, int *did)
{
    struct director *d = what;
    struct outcome outcome;
    int from;
    if (!tr_receive_here(d->world, TR_TAG_OUTCOME, &outcome, sizeof outcome, &from)) {
        note_status(d, tr_tasks_folder_renew(d->folder, false));
        return TR_OK;
    }
    end_task(d, &outcome);
    *did = 1;
    return TR_OK;
}

static int direct(struct director *d, const struct tr_run_options *options)
{
    struct tr_waiting waiting = tr_waiting_begin();
    TR_TRY(tr_poll_add(d->world, poll_outcomes, d));
    start_tasks(d);
    while (d->running > 0) {
        if (d->own < 0) {
            note_status(d, tr_waiting_turn(d->world, &waiting, NULL));
            continue;
        }
        struct outcome outcome;
        run_task(d->world, d->call[d->own], options, d, d->resting, &outcome);
        d->own = -1;
        end_task(d, &outcome);
        waiting = tr_waiting_begin();
    }
    tr_poll_remove(d->world, poll_outcomes, d);
    if (!tr_schedule_over(d->schedule) && !is_stopping(d))
        note_status(d, tr_fail(TR_ERR_INTERNAL, "tasks are left, but none can run"));
    return d->status == TR_OK ? TR_OK : tr_fail(d->status, "%s", d->error);
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

/* What the scheduler is to know of a task. More ranks than there are are not waited for. */
static int describe_task(struct director *d, int i)
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
    t->held = task->run == TR_RUN_BEST || task->best > 0;
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

/* Notes which tasks are done, and whether something is there that can be gone on with. */
static bool find_done_tasks(struct director *d)
{
    const tr_job *job = d->world->job;
    bool any = false;
    for (size_t i = 0; i < job->tasks; i++) {
        struct tr_status_seen seen = tr_status_look(d->row[i].output);
        if (seen.done && !d->schedule->task[i].held) { /* whose turn it is, is to be seen */
            d->schedule->task[i].state = TR_TASK_DONE;
            d->row[i].objective = seen.objective;
        }
        any = any || seen.done || has_checkpoints(job->task[i].job);
    }
    return any;
}

/* The job that the folder is of must be this one. */
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

static int open_director(tr_context *world, const struct tr_run_options *options, struct director *d)
{
    const tr_job *job = world->job;
    d->world = world;
    TR_TRY(TR_NEW(&d->row, job->tasks));
    TR_TRY(TR_NEW(&d->call, job->tasks));
    TR_TRY(TR_NEW(&d->sent, job->tasks));
    TR_TRY(TR_NEW(&d->rests, (size_t)world->size));
    for (int rank = 0; rank < world->size; rank++) d->rests[rank] = -1;
    TR_TRY(tr_schedule_open(world->size, world->node_of, job->tasks, &d->schedule));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(describe_task(d, (int)i));
    bool goes_on = false;
    if (!options->fresh) { /* with an earlier run that has not ended */
        struct tr_status_seen seen = tr_status_look(job->output);
        goes_on = seen.any && !seen.done && find_done_tasks(d);
    }
    if (goes_on) TR_TRY(compare_jobs(world));
    return tr_tasks_folder_open(world, d->row, job->tasks, goes_on, &d->folder);
}

static void close_director(struct director *d)
{
    tr_tasks_folder_close(&d->folder, TR_OK);
    for (size_t i = 0; d->schedule && i < d->schedule->tasks; i++) {
        free((void *)d->schedule->task[i].after);
        free(d->call[i]);
        free(d->sent[i]);
    }
    tr_schedule_close(d->schedule);
    free(d->call);
    free(d->sent);
    free(d->rests);
    free(d->row);
    free(d->wanted);
}

/* Tells all others that it is over. What they were told before has arrived then. */
static void dismiss(const struct director *d, int status)
{
    const tr_context *world = d->world;
    tell_others(d, &(struct call){.task = ENDED, .n = status});
    part(d->resting);
    for (size_t i = 0; i < world->job->tasks; i++)
        for (int k = 0; d->sent[i] && k < d->call[i]->n; k++)
            tr_wait_alone(d->world, &d->sent[i][k], "the ranks of a task to hear of it");
}

/* A task that failed has said why. */
static int direct_all(struct director *d, const struct tr_run_options *options)
{
    int status = direct(d, options);
    bool stopped = status == TR_OK && is_stopping(d) && (d->stopped || !tr_schedule_over(d->schedule));
    bool told = status == TR_OK && (stopped || d->failed != TR_OK);
    if (told) status = stopped ? TR_ERR_STOPPED : d->failed;
    status = tr_tasks_folder_close(&d->folder, status);
    if (status != TR_OK && !told) fprintf(stderr, "trireme: error: %s\n", tr_error_text());
    dismiss(d, status);
    return status;
}

/* ---- all ---- */

/* What belongs to the whole job is no task's to change; and what can be known to fail is said before the first begins. */
static int check_task(const tr_job *job, const struct tr_job_task *task)
{
    if (task->job->ranks.node_size != job->ranks.node_size)
        return tr_fail(
            TR_ERR_CONFIG, "%s: ranks.node_size of task %s: it is the same for the whole job, %llu",
            tr_job_where(task->job, "ranks.node_size"), task->name, (unsigned long long)job->ranks.node_size);
    if (task->run == TR_RUN_AVERAGE) return tr_average_check(job, task);
    if (task->run == TR_RUN_BEST || task->best > 0) TR_TRY(tr_best_check(job, task));
    const tr_model_class *class = task->job->class;
    return class->check ? class->check(task->job, task->job->options) : TR_OK;
}

static int check(const tr_job *job)
{
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(check_task(job, &job->task[i]));
    return TR_OK;
}

/* What several tasks learn from is read. */
static int open_rows(tr_context *world, struct director *d, struct tr_task_rows **rows)
{
    size_t tasks = world->job->tasks;
    bool *wanted = NULL;
    int status = world->rank == 0 ? TR_NEW(&wanted, tasks) : TR_OK;
    for (size_t i = 0; status == TR_OK && wanted && i < tasks; i++)
        wanted[i] = d->schedule->task[i].state == TR_TASK_WAITING;
    status = tr_agree(world, status);
    if (status == TR_OK) status = tr_task_rows_open(world, wanted, rows);
    free(wanted);
    if (status != TR_OK || world->rank != 0) return tr_agree(world, status);
    d->rows = *rows;
    tr_tasks_folder_note_readings(d->folder, tr_task_rows_readings(*rows));
    status = TR_NEW(&d->wanted, (size_t)tr_task_rows_count(*rows));
    for (int i = 0; status == TR_OK && i < tr_task_rows_count(*rows); i++) d->wanted[i] = true;
    return tr_agree(world, status);
}

int tr_tasks_run(tr_context *world, const struct tr_run_options *options)
{
    tr_context *resting = NULL;
    struct director d = {.own = -1, .resting = &resting};
    struct call *call = NULL;
    struct tr_task_rows *rows = NULL;
    int status = check(world->job);
    if (status == TR_OK) status = tr_ranks_find_nodes(world, world->job->ranks.node_size);
    if (status == TR_OK && world->rank == 0) status = open_director(world, options, &d);
    if (status == TR_OK && world->rank != 0)
        status = tr_new((void **)&call, 1, call_bytes(world->size), "a task");
    status = tr_agree(world, status);
    if (status == TR_OK) {
        tr_say(world, "tasks:         %zu, on %d rank%s", world->job->tasks, world->size,
               world->size > 1 ? "s" : "");
        status = open_rows(world, &d, &rows);
    }
    if (status == TR_OK)
        status = world->rank == 0 ? direct_all(&d, options) : follow(world, options, rows, call, &resting);
    tr_task_rows_close(world, &rows);
    close_director(&d);
    free(call);
    return status;
}
