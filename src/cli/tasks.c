/* Jobs of several tasks. If several tasks train on the same files, all ranks of a node read them once, before the first task starts
 * (data/dataset.h); the rows are freed when the last of these tasks has ended. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "data/dataset.h"
#include "monitor/monitor.h"
#include "stage/scheduler.h"
#include "store/checkpoint.h"
#include "store/persistent.h"
#include "store/shard.h"
#include "trireme/collective.h"

/* ---- rows that several tasks share ---- */

/* A set of rows: those of files that several tasks train on. */
struct set {
    tr_job job; /* job for reading the rows: a copy of that of the first task, which owns its pointers */
    tr_context *node; /* context of all ranks of this node; NULL: the rows have not been read */
    struct tr_node_rows rows;
    int tasks; /* number of tasks that use the rows */
};

struct task_rows {
    struct set *set; /* n sets */
    int n;
    int *of;                       /* for each task: index of its set; -1: the task reads its own rows */
    struct tr_cache_folder folder; /* a folder in the memory of the node, opened by one of its ranks */
    char *pool; /* subfolder for files with rows that tasks derive from sets and share; may be NULL */
};

/* Finds the sets of rows that several tasks use. Sets r->of and r->n. */
static int rows_find_sets(const tr_job *job, const bool *wanted, struct task_rows *r)
{
    TR_FREED char **key = NULL;
    int status = TR_OK, *of = r->of; /* of[i] is first a task with the rows of task i, later its set */
    TR_TRY(TR_NEW(&key, job->tasks));
    for (size_t i = 0; i < job->tasks && status == TR_OK; i++) {
        const tr_job *own = job->task[i].job;
        bool in_memory = own->data.storage == TR_LEVEL_AUTO || own->data.storage == TR_LEVEL_MEMORY;
        of[i] = -1;
        if (!wanted[i] || !in_memory || own->data.cache == TR_CACHE_MEMORY) continue;
        status = tr_store_rows_key(own, NULL, &key[i]);
        size_t first = 0;
        while (status == TR_OK && first < i && !(of[first] == (int)first && strcmp(key[first], key[i]) == 0))
            first++;
        of[i] = (int)first;
    }
    for (size_t i = 0; i < job->tasks; i++) free(key[i]);
    for (size_t i = 0; i < job->tasks && status == TR_OK; i++) {
        int users = 0;
        for (size_t k = i; k < job->tasks && of[i] == (int)i; k++) users += of[k] == (int)i;
        for (size_t k = job->tasks; users > 0 && k-- > i;)
            if (of[k] == (int)i) of[k] = users > 1 ? -2 - r->n : -1;
        r->n += users > 1;
    }
    for (size_t i = 0; i < job->tasks; i++) of[i] = of[i] < -1 ? -2 - of[i] : -1;
    return status;
}

/* Sets set->job to a copy of the job of the first task of the set, with test files if a task has them, but without held-out rows,
 * scaling and layout: every rank of a node loads all rows as they are in the files. */
static void rows_choose_job(const tr_job *job, const int *of, int which, struct set *set)
{
    const struct tr_job_task *first = NULL;
    const tr_job *tested = NULL;
    for (size_t i = 0; i < job->tasks; i++) {
        if (of[i] != which) continue;
        if (!first) first = &job->task[i];
        struct tr_job_held_out held;
        const tr_job *own = job->task[i].job;
        bool test_files = own->data.test.n > 0 && tr_job_held_out(own, &held) == TR_OK && held.to == 0;
        if (!tested && test_files) tested = own;
        set->tasks++;
    }
    set->rows.task = first->name;
    set->job = tested ? *tested : *first->job;
    if (!tested) set->job.data.test.n = 0;
    set->job.data.partition = TR_DATA_REPLICATED;
    set->job.data.order = TR_ORDER_FILE;
    set->job.data.storage = TR_LEVEL_MEMORY;
    set->job.data.cache = TR_CACHE_NO;
    set->job.data.scale = TR_SCALE_NONE;
    set->job.table.prune = true;
    set->job.ranks.layout = TR_ROLES_AUTO;
    set->job.ranks.servers = set->job.ranks.group_size = 0;
    set->job.ranks.groups = 1;
    set->job.stages = 0;
}

/* Checks that the rows fit into memory. It assumes that rows need at most 3 times the bytes of a text file, 6 times those of an
 * HDF5 file, and 12 times those of a compressed file. */
static int rows_check_memory(const tr_job *job)
{
    struct tr_files files = {.n = 0};
    struct tr_persistent_bases bases;
    tr_persistent_bases(&bases);
    uint64_t need = 0, most = job->data.memory ? job->data.memory : UINT64_MAX,
             room = tr_persistent_free(bases.base[0]), half = tr_memory_free() / 2;
    TR_TRY(tr_data_files(job, false, &files));
    for (size_t i = 0; i < files.n; i++)
        need += files.file[i].size * (files.file[i].packing ? 8 : files.file[i].hdf5 ? 4 : 2);
    tr_files_close(&files);
    need += need / 2;
    if (most > room) most = room;
    if (most > half) most = half;
    return need <= most ? TR_OK
                        : tr_fail(TR_ERR_SYSTEM, "they may need %.1f MB, and a node has %.1f MB for them",
                                  (double)need / 1e6, (double)most / 1e6);
}

static uint64_t rows_bytes(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    if (s->file) return tr_row_file_bytes(s->file);
    uint64_t row = 2 * sizeof(uint64_t) + sizeof(float), number = s->rows.value ? 8 : 4;
    return (data->total_rows + 1) * (row + s->rows.columns * sizeof(float)) +
           (data->dense ? 0 : data->total_nonzeros * number) + data->n_keys * sizeof(tr_key);
}

static void rows_close_set(tr_context *world, struct set *set)
{
    if (!set->node) return;
    tr_node_rows_close(world, &set->rows);
    (void)tr_context_close(set->node);
    set->node = NULL;
}

static int rows_read_set(tr_context *world, int number, struct set *set)
{
    TR_FREED int *rank = NULL;
    int n = 0;
    TR_TRY(TR_NEW(&rank, (size_t)world->size));
    for (int i = 0; i < world->size; i++)
        if (world->node_of[i] == world->node_of[world->rank]) rank[n++] = i;
    TR_TRY(tr_ranks_start_team(world, rank, n, number, &set->node));
    set->node->lent = true;
    set->node->quiet = true;
    TR_TRY(tr_context_assign(set->node, &set->job));
    TR_TRY(tr_agree(set->node, rows_check_memory(&set->job)));
    TR_TRY(tr_node_rows_open(set->node, world, &set->rows));
    const tr_data *train = set->rows.train, *test = set->rows.test;
    double seconds = train->state->load_seconds + (test ? test->state->load_seconds : 0);
    uint64_t bytes = rows_bytes(train) + (test ? rows_bytes(test) : 0);
    char more[64] = "";
    if (test) snprintf(more, sizeof more, " and %llu of test data", (unsigned long long)test->total_rows);
    tr_say(world,
           "rows:          %llu of training data%s, read once for %d tasks in %.2f s, %.1f MB on each node",
           (unsigned long long)train->total_rows, more, set->tasks, seconds, (double)bytes / 1e6);
    return TR_OK;
}

/* Opens the folder r->folder and sets r->pool. Does nothing if nodes are simulated, because they would share the folder. */
static int rows_open_pool(tr_context *world, struct task_rows *r)
{
    TR_FREED char *path = NULL;
    int status = TR_OK;
    if (world->job->ranks.node_size > 0) return TR_OK;
    if (world->node_rank == 0) (void)tr_cache_folder_lock(NULL, world->job->output, &r->folder);
    else status = tr_cache_folder_path(NULL, world->job->output, &path);
    TR_TRY(tr_barrier(world, world->node, "a folder for rows"));
    TR_TRY(status);
    const char *folder = path ? path : r->folder.path;
    if (folder) TR_TRY(tr_format(&r->pool, "%s/" TR_CACHE_FILES, folder));
    if (!r->pool || tr_persistent_is_own(r->pool)) return TR_OK;
    free(r->pool);
    r->pool = NULL;
    return TR_OK;
}

/* Declares that no task will use these rows again. Each rank calls it alone; memory is freed when all ranks of the node have. */
static void rows_forget(struct task_rows *r, int which)
{
    if (r->set[which].node) tr_node_rows_forget(&r->set[which].rows);
}

/* ---- state ---- */

/* Orders of rank 0 to other ranks. RUN: the ranks of a team run a task. PART: a team that rests (is kept for the next task) is
 * closed, because its ranks get other tasks. FORGET: the ranks free a set of rows. */
enum { RUN, PART, FORGET };
struct call {
    struct tr_order order; /* order.number: index of the task (RUN) or of the set (FORGET) */
    int n, rank[];         /* RUN: the ranks of the team in ascending order */
};

/* Report of the first rank of a team to rank 0 when its task has ended. */
struct outcome {
    int64_t task, status;
    int64_t rests;     /* 1: the team rests, and can run another task; 0: it is closed */
    uint64_t readings; /* number of times that the task has read training data from files */
    double objective;
    char error[512];
};

struct tasks {
    tr_context *world; /* context of all ranks */
    const struct tr_run_options *options;
    struct tr_scheduler scheduler;
    struct task_rows rows;
    tr_context *resting; /* a team of this rank that can run another task; may be NULL */
    /* on rank 0: */
    struct tr_schedule *schedule;
    struct tr_tasks_folder *folder;
    struct tr_task_row *row; /* for each task: its line in the status of the job */
    struct call **call;      /* for each task: the order to run it; NULL before it starts */
    bool *wanted;            /* for each set of rows: a task uses it or will use it */
    int *rests;              /* for each rank: the finished task whose team rests on this rank; -1: none */
    uint64_t readings;       /* number of sets of rows that were read */
    int failed;              /* exit code of the first task that failed */
    int worse;               /* exit code of the first failed task that is in the `after` of a candidate */
    bool stopped;            /* a task was stopped on request */
    int status;              /* status of rank 0's own work; after an error no task is started */
    char error[512];         /* error text of status */
};

static size_t call_bytes(int n)
{
    return sizeof(struct call) + (size_t)n * sizeof(int);
}

/* ---- candidates: tasks with run: best or best: K, which start only if the tasks in their `after` are better than others ---- */

/* The result of the tasks in the `after` of a candidate. */
struct merit {
    struct tr_outcome_seen seen; /* of one of these tasks: name of the metric, and whether more is better */
    double mean, deviation;      /* of the metric */
    double seconds;              /* sum of their times */
    size_t n;                    /* number of these tasks; 0: one of them has no result */
};

static bool is_chosen(const struct tr_job_task *task)
{
    return task->run == TR_RUN_BEST || task->best > 0;
}

/* Returns the index of the i-th task in the `after` of a task. */
static size_t task_before(const tr_job *job, size_t task, size_t i)
{
    return (size_t)(tr_job_task_of(job, job->task[task].after.item[i]) - job->task);
}

/* Candidates with different losses have different metrics. Returns NULL if all are judged by the same metric, otherwise one that
 * all classifiers, or all other models, have. */
static const char *common_metric(const tr_job *job, const struct tr_schedule *schedule)
{
    const char *folder = NULL;
    struct tr_outcome_seen first;
    bool differ = false;
    for (size_t i = 0; i < job->tasks; i++) {
        for (size_t k = 0; job->task[i].run == TR_RUN_BEST && k < job->task[i].after.n; k++) {
            size_t before = task_before(job, i, k);
            if (schedule->task[before].state != TR_TASK_DONE) continue;
            struct tr_outcome_seen seen = tr_outcome_look(job->task[before].job->output, NULL);
            if (!folder) first = seen;
            folder = job->task[before].job->output;
            differ = differ || strcmp(first.name, seen.name) != 0;
        }
    }
    if (!differ) return NULL;
    return isfinite(tr_outcome_look(folder, "accuracy").value) ? "accuracy" : "rmse";
}

static struct merit merit_of(const tr_job *job, const struct tr_schedule *schedule, size_t task,
                             const char *metric)
{
    struct merit m = {.n = job->task[task].after.n};
    double squares = 0;
    for (size_t i = 0; i < m.n; i++) {
        size_t one = task_before(job, task, i);
        m.seen = tr_outcome_look(job->task[one].job->output, metric);
        if (schedule->task[one].state != TR_TASK_DONE || !isfinite(m.seen.value)) return (struct merit){0};
        m.mean += m.seen.value / (double)m.n;
        m.seconds += m.seen.seconds;
        squares += m.seen.value * m.seen.value;
    }
    if (m.n > 1) m.deviation = sqrt(fmax(0, squares - (double)m.n * m.mean * m.mean) / (double)(m.n - 1));
    return m;
}

/* Prints a table of the candidates with run: best, with their merits and settings; `best` is the index of the best. */
static void say_merits(const tr_context *world, const struct tr_schedule *schedule, size_t best)
{
    static const char *const own[] = {"run", "after", "ranks", "priority", "output", "data.test"};
    const tr_job *job = world->job;
    const char *metric = common_metric(job, schedule);
    bool headed = false;
    for (size_t i = 0; i < job->tasks; i++) {
        const struct tr_job_task *task = &job->task[i];
        char settings[512] = "";
        size_t at = 0;
        if (task->run != TR_RUN_BEST) continue;
        struct merit m = merit_of(job, schedule, i, metric);
        if (m.n > 0 && !headed)
            tr_say(world, "%-12s  %12s  %10s  %11s  settings", "task", m.seen.name, "deviation", "took");
        headed = headed || m.n > 0;
        for (size_t k = 0; k < task->job->settings && at < sizeof settings; k++) {
            const struct tr_job_setting *set = &task->job->setting[k];
            bool shown = set->value.n == 1;
            for (size_t o = 0; shown && o < sizeof own / sizeof *own; o++)
                shown = strcmp(set->key, own[o]) != 0;
            if (shown)
                at += (size_t)snprintf(settings + at, sizeof settings - at, "%s%s=%s", at > 0 ? " " : "",
                                       set->key, set->value.item[0]);
        }
        if (at == 0) snprintf(settings, sizeof settings, "as the whole %s", job->name);
        bool given_up = schedule->task[task_before(job, i, 0)].state == TR_TASK_DROPPED;
        if (m.n == 0)
            tr_say(world, "%-12s  %12s  %10s  %11s  %s", task->name, given_up ? "given up" : "failed", "-",
                   "-", settings);
        else
            tr_say(world, "%-12s  %12.6g  %10.2g  %11s  %s%s", task->name, m.mean, m.deviation,
                   tr_duration(m.seconds).text, settings, i == best ? "  <- best" : "");
    }
}

/* Returns the index of the candidate with the best merit; the number of tasks if no candidate has a result. */
static size_t find_best(const tr_job *job, const struct tr_schedule *schedule, const bool *candidate)
{
    struct merit most = {0};
    size_t best = job->tasks;
    const char *metric = common_metric(job, schedule);
    for (size_t i = 0; i < job->tasks; i++) {
        struct merit m = candidate[i] ? merit_of(job, schedule, i, metric) : (struct merit){0};
        bool better = m.seen.ascends ? m.mean > most.mean : m.mean < most.mean;
        if (m.n == 0 || (most.n > 0 && !better)) continue;
        most = m;
        best = i;
    }
    return best;
}

/* Chooses among candidates. Rank 0 calls it before it starts tasks. It does nothing until all tasks have ended that are no
 * candidates. Then the best candidates may start (or are done, if an earlier part of the run has completed them), and all others
 * are dropped. The last choice prints a table. Returns true if a choice was made; *any: there was a candidate with a result. */
static bool choose_best(struct tasks *d, bool *any)
{
    const tr_job *job = d->world->job;
    struct tr_schedule *schedule = d->schedule;
    TR_FREED bool *candidate = NULL;
    bool last = true;
    size_t candidates = 0, most = 1;
    for (size_t i = 0; i < job->tasks; i++) {
        const struct tr_scheduled *t = &schedule->task[i];
        if (!t->held && (t->state == TR_TASK_WAITING || t->state == TR_TASK_RUNNING)) return false;
    }
    if (TR_NEW(&candidate, job->tasks) != TR_OK) return false;
    for (size_t i = 0; i < job->tasks; i++) {
        candidate[i] = schedule->task[i].held;
        for (size_t k = 0; k < job->task[i].after.n && candidate[i];
             k++) { /* have all tasks in `after` ended? */
            const struct tr_scheduled *t = &schedule->task[task_before(job, i, k)];
            candidate[i] = !t->held && t->state != TR_TASK_WAITING && t->state != TR_TASK_RUNNING;
        }
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
    *any = best < job->tasks;
    return candidates > 0;
}

/* ---- a team ---- */

static tr_poll_fn poll_tasks;

/* Closes the team of this rank that rests, if there is one. All ranks of the team must call it. */
static void part_team(tr_context **resting)
{
    if (*resting) (void)tr_context_close(*resting);
    *resting = NULL;
}

/* Runs a task on this rank, which belongs to its team. If a team rests on this rank, it consists of the same ranks and runs the
 * task: rank 0 has dismissed any other team. If this is rank 0, it continues to handle reports and to start tasks
 * (poll_tasks()). */
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
    if (status == TR_OK && task->run == TR_RUN_AVERAGE) {
        struct tr_average *average = NULL;
        status = tr_agree(team, tr_average_new(d->world->job, task, &average));
        if (status == TR_OK) {
            status = tr_train_here(team, &tr_average_class, average, d->options, &outcome->objective);
        } else if (average) {
            tr_average_class.close(average);
            free(average);
        }
    } else if (status == TR_OK) {
        status = tr_train_here(team, team->job->class, NULL, d->options, &outcome->objective);
    }
    if (status != TR_OK) snprintf(outcome->error, sizeof outcome->error, "%s", tr_error_text());
    outcome->readings = team ? team->readings : 0;
    if (team) { /* the team can run another task if all its ranks have completed this task */
        int well = status == TR_OK && team->status == TR_OK;
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, &well, 1, MPI_INT, MPI_MIN, team->world, &request);
        outcome->rests = tr_wait_request(team, &request, "the team to end its task") == TR_OK && well;
    }
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
    case FORGET: rows_forget(&d->rows, (int)order->number); break;
    }
    return TR_OK;
}

/* ---- rank 0: starting and ending tasks ---- */

/* Stores the first error of rank 0's own work, which direct() reports. */
static void note_status(struct tasks *d, int status)
{
    if (status == TR_OK || d->status != TR_OK) return;
    d->status = status;
    snprintf(d->error, sizeof d->error, "%s", tr_error_text());
}

/* Orders the ranks of a team that rests to close it. `task` is the task that the team ran last. */
static void dismiss_team(struct tasks *d, int task)
{
    const struct call *team = d->call[task];
    const struct tr_order part = {.kind = PART, .reporter = -1};
    bool own = team->rank[0] == 0;
    for (int i = 0; i < team->n; i++) d->rests[team->rank[i]] = -1;
    note_status(d, tr_scheduler_order(&d->scheduler, &part, sizeof part, team->rank + own, team->n - own));
    if (own) part_team(&d->resting); /* waits for the other ranks, which have received the order */
}

/* Orders the ranks that the schedule has assigned to a task to run it. */
static int start_task(struct tasks *d, int task)
{
    const struct tr_schedule *s = d->schedule;
    struct call *call;
    TR_TRY(tr_new((void **)&call, 1, call_bytes(s->task[task].ranks), "a task"));
    d->call[task] = call;
    for (int rank = 0; rank < s->ranks; rank++)
        if (s->owner[rank] == task) call->rank[call->n++] = rank;
    call->order = (struct tr_order){.kind = RUN, .number = task, .reporter = call->rank[0]};
    for (int i = 0; i < call->n;
         i++) { /* dismiss teams that rest on these ranks, except a team of the same ranks */
        int before = d->rests[call->rank[i]];
        const struct call *team = before >= 0 ? d->call[before] : NULL;
        if (!team) continue;
        if (team->n != call->n || memcmp(team->rank, call->rank, (size_t)call->n * sizeof *call->rank) != 0)
            dismiss_team(d, before);
        else d->rests[call->rank[i]] = -1;
    }
    return tr_scheduler_order(&d->scheduler, &call->order, call_bytes(call->n), call->rank, call->n);
}

/* Returns whether the job stops on request: no more tasks are started, and the job can be resumed. */
static bool is_stopping(const struct tasks *d)
{
    return d->stopped || tr_signals_stop();
}

/* Starts all tasks that can start now. */
static int start_tasks(void *state)
{
    struct tasks *d = state;
    int task;
    bool any;
    while (d->status == TR_OK && !is_stopping(d) && choose_best(d, &any))
        if (!any && d->failed == TR_OK) d->failed = d->worse;
    while (d->status == TR_OK && !is_stopping(d) && tr_schedule_next(d->schedule, tr_now(), &task)) {
        const struct tr_scheduled *t = &d->schedule->task[task];
        if (t->state == TR_TASK_RUNNING) note_status(d, start_task(d, task));
        else
            tr_printf(stderr, "trireme: task %s is not run: it comes after %s, which %s\n", d->row[task].name,
                      d->row[t->because].name,
                      d->schedule->task[t->because].state == TR_TASK_FAILED ? "failed" : "was not run");
    }
    note_status(d, tr_tasks_folder_renew(d->folder, true));
    /* frees the sets of rows that no task will use again, on all ranks */
    const struct tr_schedule *s = d->schedule;
    for (int i = 0; i < d->rows.n; i++) {
        bool wanted = false;
        for (size_t k = 0; k < s->tasks; k++) {
            bool open = s->task[k].state == TR_TASK_WAITING || s->task[k].state == TR_TASK_RUNNING;
            wanted = wanted || (open && d->rows.of[k] == i);
        }
        if (wanted || !d->wanted[i]) continue;
        d->wanted[i] = false;
        const struct tr_order forget = {.kind = FORGET, .number = i, .reporter = -1};
        for (int rank = 1; rank < d->world->size; rank++)
            note_status(d, tr_scheduler_order(&d->scheduler, &forget, sizeof forget, &rank, 1));
        rows_forget(&d->rows, i);
    }
    return TR_OK;
}

/* Handles the report that a task has ended. */
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
    const tr_job *job = d->world->job;
    bool among_others =
        false; /* a candidate depends on this task: if it fails, another candidate is chosen */
    for (size_t i = 0; i < job->tasks; i++)
        for (size_t k = 0; is_chosen(&job->task[i]) && k < job->task[i].after.n; k++)
            among_others = among_others || task_before(job, i, k) == (size_t)outcome->task;
    int *code = among_others ? &d->worse : &d->failed;
    if (failed && !stopped && *code == TR_OK) *code = row->status;
    tr_schedule_ended(d->schedule, (int)outcome->task, failed, tr_now());
    if (!outcome->rests) return;
    const struct tr_schedule *s = d->schedule;
    const struct call *team = d->call[outcome->task];
    bool wanted = false; /* a task on the same data is waiting: keep the team for it */
    for (size_t i = 0; i < s->tasks; i++)
        wanted =
            wanted || (s->task[i].state == TR_TASK_WAITING && s->task[i].data == s->task[outcome->task].data);
    for (int i = 0; i < team->n; i++) d->rests[team->rank[i]] = (int)outcome->task;
    if (!wanted) dismiss_team(d, (int)outcome->task);
}

/* Handles the end of a task, if one has ended, otherwise updates status.json; never waits. It returns TR_OK also after an error,
 * because its caller would report the error as one of the task that rank 0 is running. */
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

/* Adds a task to the schedule. If tasks.NAME.ranks exceeds the number of ranks, the task gets all ranks. */
static int describe_task(struct tasks *d, int i)
{
    const tr_job *job = d->world->job;
    const struct tr_job_task *task = &job->task[i];
    struct tr_scheduled *t = &d->schedule->task[i];
    int *after;
    TR_TRY(TR_NEW(&after, task->after.n));
    for (size_t k = 0; k < task->after.n; k++) after[k] = (int)task_before(job, (size_t)i, k);
    bool enough = task->ranks <= (uint64_t)d->world->size;
    t->priority = task->priority;
    t->wanted = enough ? (int)task->ranks : d->world->size;
    t->after = after;
    t->after_count = task->after.n;
    t->held = is_chosen(task);
    for (const tr_job *other;
         other = job->task[t->data].job, !are_equal(&other->data.train, &task->job->data.train) ||
                                             !are_equal(&other->data.test, &task->job->data.test);)
        t->data++; /* the first task with the same data */
    d->row[i] = (struct tr_task_row){
        .name = task->name, .output = task->job->output, .objective = NAN, .scheduled = t};
    if (!enough)
        tr_say(d->world, "note:          task %s could have %llu ranks, the job has %d", task->name,
               (unsigned long long)task->ranks, d->world->size);
    return TR_OK;
}

/* Marks the tasks that an earlier run has completed. Returns whether a task was completed or has a checkpoint. */
static bool find_done_tasks(struct tasks *d)
{
    const tr_job *job = d->world->job;
    bool any = false;
    for (size_t i = 0; i < job->tasks; i++) {
        const tr_job *own = job->task[i].job;
        struct tr_status_seen seen = tr_status_look(d->row[i].output);
        if (seen.done && !d->schedule->task[i].held) { /* candidates are marked in choose_best() */
            d->schedule->task[i].state = TR_TASK_DONE;
            d->row[i].objective = seen.objective;
        }
        TR_FREED char *to = NULL;
        TR_FREED uint64_t *number = NULL;
        size_t n = 0;
        bool listed = tr_checkpoints_place(own->checkpoint.to, own->output, &to) == TR_OK &&
                      tr_checkpoints_list(to, &number, &n) == TR_OK;
        any = any || seen.done || (listed && n > 0);
    }
    return any;
}

/* Prints a note if the job in the output folder differs from this job. */
static int compare_jobs(const tr_context *world)
{
    TR_FREED char *path = NULL, *text = NULL, *change = NULL;
    size_t length;
    TR_TRY(tr_format(&path, "%s/job.yaml", world->job->output));
    TR_TRY(tr_job_read_text(path, &text, &length));
    TR_TRY(tr_job_compare(world->job, text, &change));
    if (change) tr_say(world, "note:          the job has changed: %s", change);
    return TR_OK;
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
    bool continues = false; /* an earlier run has not ended and is resumed */
    if (!d->options->fresh) {
        struct tr_status_seen seen = tr_status_look(job->output);
        continues = seen.any && !seen.done && find_done_tasks(d);
    }
    if (continues) TR_TRY(compare_jobs(world));
    return tr_tasks_folder_open(world, d->row, job->tasks, continues, &d->folder);
}

/* Runs all tasks. If a task fails, its team has printed the reason. */
static int direct(struct tasks *d)
{
    TR_TRY(tr_poll_add(d->world, poll_tasks, d));
    note_status(d, tr_scheduler_direct(&d->scheduler));
    tr_poll_remove(d->world, poll_tasks, d);
    if (!tr_schedule_over(d->schedule) && !is_stopping(d))
        note_status(d, tr_fail(TR_ERR_INTERNAL, "tasks are left, but none can run"));
    int status = d->status == TR_OK ? TR_OK : tr_fail(d->status, "%s", d->error);
    bool stopped = status == TR_OK && is_stopping(d) && (d->stopped || !tr_schedule_over(d->schedule));
    bool printed = status == TR_OK && (stopped || d->failed != TR_OK); /* a team has printed the reason */
    if (printed) status = stopped ? TR_ERR_STOPPED : d->failed;
    status = tr_tasks_folder_close(&d->folder, d->readings, status);
    if (status != TR_OK && !printed) tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
    int ending = tr_scheduler_end(&d->scheduler, status);
    return status != TR_OK ? status : ending;
}

/* ---- all ranks ---- */

/* Finds errors in a task before the first task starts: it changes a setting of the whole job, or its model class finds an error. */
static int check_task(const tr_job *job, const struct tr_job_task *task)
{
    if (task->job->ranks.node_size != job->ranks.node_size)
        return tr_fail(
            TR_ERR_CONFIG, "%s: ranks.node_size of task %s: it is the same for the whole job, %llu",
            tr_job_where(task->job, "ranks.node_size"), task->name, (unsigned long long)job->ranks.node_size);
    if (task->run == TR_RUN_AVERAGE) return tr_average_check(job, task);
    for (size_t i = 0; i < task->after.n && is_chosen(task); i++) {
        const struct tr_job_task *other = tr_job_task_of(job, task->after.item[i]);
        if (other->job->data.test.n == 0)
            return tr_fail(TR_ERR_CONFIG,
                           "%s: task %s runs the best, but %s has no data.test to be compared by",
                           task->first, task->name, other->name);
    }
    const tr_model_class *class = task->job->class;
    return class->check ? class->check(task->job, task->job->options) : TR_OK;
}

/* Reads the rows that several tasks use. All ranks must call it. */
static int open_rows(struct tasks *d)
{
    enum { LAST_NUMBER = 32767 };
    tr_context *world = d->world;
    struct task_rows *r = &d->rows;
    size_t tasks = world->job->tasks;
    TR_FREED bool *will_run = NULL; /* for each task: no earlier run has completed it */
    int status = TR_NEW(&will_run, tasks);
    for (size_t i = 0; status == TR_OK && world->rank == 0 && i < tasks; i++)
        will_run[i] = d->schedule->task[i].state == TR_TASK_WAITING;
    if (status == TR_OK) status = TR_NEW(&r->of, tasks);
    r->folder.lock = -1;
    TR_TRY(tr_agree(world, status));
    TR_TRY(tr_broadcast(world, TR_SET_ALL, 0, will_run, tasks * sizeof *will_run));
    status = rows_find_sets(world->job, will_run, r);
    if (status == TR_OK) status = TR_NEW(&r->set, (size_t)r->n);
    if (status == TR_OK) status = TR_NEW(&d->wanted, (size_t)r->n);
    TR_TRY(tr_agree(world, status));
    if (r->n > 0) TR_TRY(tr_agree(world, rows_open_pool(world, r)));
    for (int i = 0; i < r->n; i++) {
        struct set *set = &r->set[i];
        rows_choose_job(world->job, r->of, i, set);
        set->rows.folder = r->pool;
        int outcome = rows_read_set(world, LAST_NUMBER - i, set);
        /* ignore errors: the tasks then read the data themselves, and report errors in the data */
        if (outcome == TR_ERR_SYSTEM)
            tr_say(world, "note:          each task reads its rows: %s", tr_error_text());
        if (outcome != TR_OK) rows_close_set(world, set);
        d->wanted[i] = true;
        d->readings += set->node != NULL;
    }
    return TR_OK;
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
    int status = TR_OK;
    for (size_t i = 0; i < world->job->tasks && status == TR_OK; i++)
        status = check_task(world->job, &world->job->task[i]);
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
    for (int i = 0; d.rows.set && i < d.rows.n; i++) rows_close_set(world, &d.rows.set[i]);
    if (d.rows.pool && world->node_rank == 0) tr_cache_folder_remove(&d.rows.folder);
    TR_FREE_ALL(d.rows.pool, d.rows.set, d.rows.of);
    tr_tasks_folder_close(&d.folder, 0, TR_OK);
    for (size_t i = 0; d.schedule && i < d.schedule->tasks; i++) {
        free((void *)d.schedule->task[i].after);
        free(d.call[i]);
    }
    tr_schedule_close(d.schedule);
    TR_FREE_ALL(d.call, d.rests, d.row, d.wanted);
    tr_scheduler_close(&d.scheduler);
    return status;
}
