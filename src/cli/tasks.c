#include "cli/tasks.h"

#include <math.h>
#include <stdlib.h>

#include "store/folder.h"
#include "store/when.h"
#include "cli/average.h"
#include "monitor/status.h"
#include "monitor/tasks.h"
#include "stage/schedule.h"
#include "stage/stage.h"

/* A team's task, as its members are told: its number, how many they are, and their ranks, ascending. */
struct call {
    int task, n, rank[];
};
enum { ENDED = -1 }; /* in the place of a task's number: all have ended, and n is the exit code */

/* What a team's first rank tells of its end. */
struct outcome {
    int64_t task, status;
    double objective;
    char error[512];
};

/* A call on its way. */
struct sent {
    struct sent *next;
    MPI_Request *request; /* n - 1 at most */
    int requests;
    struct call *call;
};

/* Rank 0. */
struct director {
    tr_context *world;
    struct tr_schedule *schedule;
    struct tr_tasks_folder *folder;
    struct tr_task_row *row; /* by task */
    struct call *own;        /* to be run by rank 0 itself, or NULL; one of those sent */
    struct sent *sent;
    int running;
    int failed;   /* exit code of the first task that failed */
    bool stopped; /* a task was, on request */
    int status;   /* of directing: nothing begins any more once it is not TR_OK */
    char error[512];
};

/* ---- a team ---- */

static size_t call_bytes(int n)
{
    return sizeof(struct call) + (size_t)n * sizeof(int);
}

/* What a plain job does, or an average. */
static int run_in_team(tr_context *team, const tr_job *job, const struct tr_job_task *task,
                       const struct tr_run_options *options, double *objective)
{
    if (task->run == TR_RUN_TRAIN)
        return tr_train_here(team, tr_model_kind_of(team->job), NULL, options, objective);
    struct tr_average *average = NULL;
    int status = tr_agree(team, tr_average_new(job, task, &average));
    if (status == TR_OK) return tr_train_here(team, &tr_average_kind, average, options, objective);
    void *model = average;
    tr_average_kind.close(&model);
    return status;
}

static tr_poll_fn look_after;

/* Fills the outcome on the team's first rank. director: rank 0's, who goes on directing meanwhile; else NULL. */
static void play(tr_context *world, const struct call *call, const struct tr_run_options *options,
                 struct director *director, struct outcome *outcome)
{
    const struct tr_job_task *task = &world->job->task[call->task];
    tr_context *team = NULL;
    *outcome = (struct outcome){.task = call->task, .objective = NAN};
    int status = tr_team_open(world, call->rank, call->n, call->task, task->name, task->job, &team);
    if (status == TR_OK) status = tr_agree(team, director ? tr_poll_add(team, look_after, director) : TR_OK);
    if (status == TR_OK) status = run_in_team(team, world->job, task, options, &outcome->objective);
    if (status != TR_OK) snprintf(outcome->error, sizeof outcome->error, "%s", tr_error_text());
    int last = team ? tr_context_close(team) : TR_OK;
    outcome->status = status != TR_OK ? status : last;
}

/* ---- all but rank 0 ---- */

static int hear(tr_context *world, struct call *call)
{
    MPI_Request request;
    MPI_Irecv(call, (int)call_bytes(world->size), MPI_BYTE, 0, TR_TAG_TEAM, world->wire, &request);
    struct tr_waiting waiting = tr_waiting_begin();
    while (!tr_request_done(&request)) TR_TRY(tr_waiting_turn(world, &waiting, NULL));
    return TR_OK;
}

static int report(tr_context *world, const struct outcome *outcome)
{
    MPI_Request request;
    MPI_Isend(outcome, sizeof *outcome, MPI_BYTE, 0, TR_TAG_OUTCOME, world->wire, &request);
    struct tr_waiting waiting = tr_waiting_begin(); /* rank 0 may compute */
    while (!tr_request_done(&request)) TR_TRY(tr_waiting_turn(world, &waiting, NULL));
    return TR_OK;
}

static int follow(tr_context *world, struct call *call, const struct tr_run_options *options)
{
    for (;;) {
        struct outcome outcome;
        TR_TRY(hear(world, call));
        if (call->task == ENDED) return call->n;
        play(world, call, options, NULL, &outcome);
        if (call->rank[0] == world->rank) TR_TRY(report(world, &outcome));
    }
}

/* ---- rank 0: who does what ---- */

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void free_sent(struct sent *s)
{
    free(s->request);
    free(s->call);
    free(s);
}

static int new_sent(int n, struct sent **out)
{
    struct sent *s = calloc(1, sizeof *s);
    if (s) s->request = calloc((size_t)n, sizeof *s->request);
    if (s) s->call = calloc(1, call_bytes(n));
    if (s && s->request && s->call) {
        *out = s;
        return TR_OK;
    }
    if (s) free_sent(s);
    return tr_fail(TR_ERR_SYSTEM, "out of memory: a task for %d ranks", n);
}

/* The scheduler takes workers with low numbers first. Rank 0, which directs, is to be the last: while it is in no team it
 * acts at once. */
static int rank_of(const tr_context *world, int worker)
{
    return world->size - 1 - worker;
}

/* Tells its members, and rank 0 by `own`. */
static int send_call(struct director *d, int task, const int *worker, int n)
{
    struct sent *s = NULL;
    TR_TRY(new_sent(n, &s));
    s->call->task = task;
    s->call->n = n;
    for (int i = 0; i < n; i++) s->call->rank[i] = rank_of(d->world, worker[i]);
    qsort(s->call->rank, (size_t)n, sizeof *s->call->rank, by_number);
    for (int i = 0; i < n; i++) {
        if (s->call->rank[i] == 0) d->own = s->call;
        else
            MPI_Isend(s->call, (int)call_bytes(n), MPI_BYTE, s->call->rank[i], TR_TAG_TEAM, d->world->wire,
                      &s->request[s->requests++]);
    }
    s->next = d->sent;
    d->sent = s;
    return TR_OK;
}

/* Forgets calls that have arrived, if rank 0 has not still to run them. */
static void reap(struct director *d)
{
    for (struct sent **at = &d->sent; *at;) {
        struct sent *s = *at;
        int all = 0;
        MPI_Testall(s->requests, s->request, &all, MPI_STATUSES_IGNORE);
        if (all && s->call != d->own) {
            *at = s->next;
            free_sent(s);
        } else {
            at = &s->next;
        }
    }
}

/* One that an earlier part of the run has done is over as soon as it could begin. */
static int begin_task(struct director *d, int task)
{
    if (d->row[task].before) return tr_schedule_task_ended(d->schedule, task, false, tr_now());
    uint64_t wanted = d->world->job->task[task].ranks;
    int all = d->world->size;
    bool enough = wanted <= (uint64_t)all;
    if (!enough)
        tr_say(d->world, "note:          task %s could have %llu ranks, the job has %d", d->row[task].name,
               (unsigned long long)wanted, all);
    return tr_schedule_stage(d->schedule, task,
                             &(struct tr_stage_wish){.name = d->row[task].name,
                                                     .workers = wanted > 0 && enough ? (int)wanted : all,
                                                     .least = wanted > 0 ? 0 : 1},
                             tr_now());
}

static int start_task(struct director *d, const struct tr_decision *decision)
{
    struct tr_task_row *row = &d->row[decision->task];
    TR_TRY(send_call(d, decision->task, decision->worker, decision->workers));
    row->state = TR_TASK_RUNNING;
    row->ranks = decision->workers;
    row->waited = decision->waited;
    row->begin = tr_now();
    d->running++;
    return TR_OK;
}

static void drop_task(struct director *d, const struct tr_decision *decision)
{
    const struct tr_task_row *because = &d->row[decision->because];
    struct tr_task_row *row = &d->row[decision->task];
    row->state = TR_TASK_DROPPED;
    row->because = because->name;
    fprintf(stderr, "trireme: task %s is not run: it comes after %s, which %s\n", row->name, because->name,
            because->state == TR_TASK_FAILED ? "failed" : "was not run");
}

static int act_on(struct director *d, const struct tr_decision *decision)
{
    switch (decision->what) {
    case TR_DECIDE_BEGIN: return begin_task(d, decision->task);
    case TR_DECIDE_RUN: return start_task(d, decision);
    case TR_DECIDE_DROP: return drop_task(d, decision), TR_OK;
    case TR_DECIDE_IMPOSSIBLE: break; /* no rank is ever lost */
    }
    return tr_fail(TR_ERR_INTERNAL, "task %s cannot run", d->row[decision->task].name);
}

/* The first failure counts, whatever else fails until it can be told. */
static void keep_status(struct director *d, int status)
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

/* All that can be done now. */
static void act(struct director *d)
{
    struct tr_decision decision;
    while (d->status == TR_OK && !is_stopping(d) && tr_schedule_next(d->schedule, tr_now(), &decision))
        keep_status(d, act_on(d, &decision));
    keep_status(d, tr_tasks_folder_renew(d->folder, true));
}

static void note_end(struct director *d, const struct outcome *outcome)
{
    struct tr_task_row *row = &d->row[outcome->task];
    bool failed = outcome->status != TR_OK, stopped = outcome->status == TR_ERR_STOPPED;
    row->state = failed ? TR_TASK_FAILED : TR_TASK_DONE;
    d->stopped = d->stopped || stopped;
    row->seconds = tr_now() - row->begin;
    row->status = (int)outcome->status;
    row->objective = outcome->objective;
    snprintf(row->error, sizeof row->error, "%s", stopped ? "" : outcome->error);
    if (failed && !stopped && d->failed == TR_OK) d->failed = row->status;
    d->running--;
    keep_status(d, tr_schedule_task_ended(d->schedule, (int)outcome->task, failed, tr_now()));
    act(d);
}

/* Whether a team has ended, and what can begin then; never waits. A failure of directing is not that of the task in whose
 * midst it is met. */
static int look_after(void *what, int *did)
{
    struct director *d = what;
    MPI_Status from;
    int here = 0;
    reap(d);
    MPI_Iprobe(MPI_ANY_SOURCE, TR_TAG_OUTCOME, d->world->wire, &here, &from);
    if (!here) {
        keep_status(d, tr_tasks_folder_renew(d->folder, false));
        return TR_OK;
    }
    struct outcome outcome;
    MPI_Recv(&outcome, sizeof outcome, MPI_BYTE, from.MPI_SOURCE, TR_TAG_OUTCOME, d->world->wire,
             MPI_STATUS_IGNORE);
    note_end(d, &outcome);
    *did = 1;
    return TR_OK;
}

/* Runs what is rank 0's own, or waits for the others. */
static int turn(struct director *d, struct tr_waiting *waiting, const struct tr_run_options *options)
{
    if (!d->own) return tr_waiting_turn(d->world, waiting, NULL);
    struct outcome outcome;
    play(d->world, d->own, options, d, &outcome);
    d->own = NULL;
    note_end(d, &outcome);
    *waiting = tr_waiting_begin();
    return TR_OK;
}

static int direct(struct director *d, const struct tr_run_options *options)
{
    struct tr_waiting waiting = tr_waiting_begin();
    TR_TRY(tr_poll_add(d->world, look_after, d));
    act(d);
    while (d->running > 0) keep_status(d, turn(d, &waiting, options));
    tr_poll_remove(d->world, look_after, d);
    if (!tr_schedule_over(d->schedule) && !is_stopping(d))
        keep_status(d, tr_fail(TR_ERR_INTERNAL, "tasks are left, but none can run"));
    return d->status == TR_OK ? TR_OK : tr_fail(d->status, "%s", d->error);
}

/* ---- rank 0: before and after ---- */

static int add_tasks(struct director *d)
{
    const tr_job *job = d->world->job;
    for (size_t i = 0; i < job->tasks; i++) {
        struct tr_task_wish wish = {.name = job->task[i].name, .priority = job->task[i].priority};
        int number;
        TR_TRY(tr_schedule_add_task(d->schedule, &wish, &number));
        d->row[i] = (struct tr_task_row){
            .name = job->task[i].name, .output = job->task[i].job->output, .objective = NAN};
    }
    for (size_t i = 0; i < job->tasks; i++)
        for (size_t k = 0; k < job->task[i].after.n; k++) {
            const struct tr_job_task *before = tr_job_task_of(job, job->task[i].after.item[k]);
            TR_TRY(tr_schedule_after(d->schedule, (int)i, (int)(before - job->task)));
        }
    return TR_OK;
}

/* Nodes are counted from the other end as well, rank 0's last. */
static int open_schedule(const tr_context *world, struct tr_schedule **schedule)
{
    int *node_of, nodes = 0;
    TR_TRY(TR_NEW(&node_of, (size_t)world->size));
    for (int rank = 0; rank < world->size; rank++) nodes = tr_max_int(nodes, world->node_of[rank] + 1);
    for (int worker = 0; worker < world->size; worker++)
        node_of[worker] = nodes - 1 - world->node_of[rank_of(world, worker)];
    int status = tr_schedule_open(world->size, node_of, &tr_schedule_defaults, schedule);
    free(node_of);
    return status;
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
static bool look_at_tasks(struct director *d)
{
    const tr_job *job = d->world->job;
    bool any = false;
    for (size_t i = 0; i < job->tasks; i++) {
        struct tr_status_seen seen = tr_status_look(d->row[i].output);
        struct tr_task_row *row = &d->row[i];
        row->before = seen.done;
        if (seen.done) {
            row->state = TR_TASK_DONE;
            row->objective = seen.objective;
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

/* Whether an earlier run of the job is gone on with: one that has not ended. */
static int look_back(struct director *d, bool *goes_on)
{
    struct tr_status_seen seen = tr_status_look(d->world->job->output);
    *goes_on = seen.any && !seen.done && look_at_tasks(d);
    return *goes_on ? compare_jobs(d->world) : TR_OK;
}

static int open_director(tr_context *world, const struct tr_run_options *options, struct director *d)
{
    const tr_job *job = world->job;
    bool goes_on = false;
    d->world = world;
    TR_TRY(TR_NEW(&d->row, job->tasks));
    TR_TRY(open_schedule(world, &d->schedule));
    TR_TRY(add_tasks(d));
    if (!options->fresh) TR_TRY(look_back(d, &goes_on));
    return tr_tasks_folder_open(world, d->row, job->tasks, goes_on, &d->folder);
}

static void close_director(struct director *d)
{
    tr_tasks_folder_close(&d->folder, TR_OK);
    tr_schedule_close(d->schedule);
    free(d->row);
}

/* Tells all others that it is over; what they were told before has arrived. */
static void dismiss(struct director *d, int status)
{
    tr_context *world = d->world;
    struct call end = {.task = ENDED, .n = status};
    for (int rank = 1; rank < world->size; rank++)
        MPI_Send(&end, sizeof end, MPI_BYTE, rank, TR_TAG_TEAM, world->wire);
    while (d->sent) reap(d);
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
    return tr_model_kind_of(task->job)->check(task->job);
}

static int check(const tr_job *job)
{
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(check_task(job, &job->task[i]));
    return TR_OK;
}

int tr_tasks_run(tr_context *world, const struct tr_run_options *options)
{
    struct director d = {0};
    struct call *call = NULL;
    int status = check(world->job);
    if (status == TR_OK) status = tr_ranks_find_nodes(world, world->job->ranks.node_size);
    if (status == TR_OK && world->rank == 0) status = open_director(world, options, &d);
    if (status == TR_OK && world->rank != 0 && !(call = malloc(call_bytes(world->size))))
        status = tr_fail(TR_ERR_SYSTEM, "out of memory: %d ranks", world->size);
    status = tr_agree(world, status);
    if (status == TR_OK) {
        tr_say(world, "tasks:         %zu, on %d rank%s", world->job->tasks, world->size,
               world->size > 1 ? "s" : "");
        status = world->rank == 0 ? direct_all(&d, options) : follow(world, call, options);
    }
    close_director(&d);
    free(call);
    return status;
}
