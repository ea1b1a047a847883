/* Tasks: rank 0 says what is next, and tells those who take part; all others wait to be told.
 *
 * A stage and the workers that it runs on are an instance of the stage. The first time all ranks get it ready
 * together; its views, windows and communicators are then put aside, and next time only its participants act. / */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "stage/degree.h"
#include "stage/run.h"
#include "stage/schedule.h"
#include "stage/timeline.h"

struct instance {
    struct instance *next;
    int stage;
    struct tr_worker_set workers;
    bool prepared, can_suspend; /* what it has opened can be suspended and resumed */
    struct tr_suspended suspended;
    void *kept; /* as tr_worker has it */
};

/* Where the task stands. Rank 0 sends it along with what it tells. Saved as it lies here: numbers of 8 bytes. */
struct position {
    int64_t stages;      /* of the task */
    tr_next next;        /* what next() has asked for last; its stage is -1 before */
    int64_t before;      /* clocks of that which are over */
    int64_t ended;       /* clocks of all stages which are over */
    int64_t evaluations; /* so far */
    int64_t group;       /* that has the stage, if it is of one group */
    int64_t servers;     /* of the tables, as far as it was said; 0: nothing */
};
static_assert(sizeof(struct position) % sizeof(int64_t) == 0, "");

/* What rank 0 tells others: a part of a stage to run, that there is none any more, that tables move to as many servers as
 * at.next says, or that a checkpoint is taken. */
enum { END = -1, MOVE = -2, TAKE = -3 };
struct assignment {
    int64_t stage;  /* or END, MOVE or TAKE */
    int64_t number; /* clocks to run; END: status, as far as it is agreed on; TAKE: whether the run stops */
    struct tr_worker_choice workers;
    int at_once; /* of these, if not all: groups have equally many, and the degree is no multiple of them */
    struct position at;
};

/* Rank 0's record of a stage. Saved as it lies here. */
enum { TRANSITIONS = 128 };
struct record {
    tr_ran ran; /* the run that next() has asked for, so far */
    struct tr_stage_sum sum;
    struct tr_degree degree;
    bool searches;       /* the degree has begun */
    bool cut;            /* the part that was planned last was to be longer: the next one is the rest of it */
    bool is_rest;        /* it was that itself */
    int64_t transitions; /* so many there were; the i-th took … */
    double transition[TRANSITIONS]; /* … [i % TRANSITIONS], in seconds */
};
static_assert(sizeof(struct record) % sizeof(int64_t) == 0, "");

struct task {
    tr_context *tr;
    const tr_task *task;
    struct instance *instances;
    struct tr_suspended outer; /* what was open before the task */
    struct position at;        /* rank 0; others: as rank 0 said it last */
    struct record *record;     /* rank 0: by stage */
    int64_t
        *last; /* rank 0: by stage and group: number of the run in which the group had it last; 0 before */
    double began;
    double compute_seconds, evaluate_seconds; /* of this worker, over all stages */
    double ended;                             /* rank 0: when the last clock of the last stage was over */
};

/* Checkpoints are taken of it. */
static bool is_checkpointed(const struct task *k)
{
    return k->task->snapshot && tr_checkpoints_are_on(k->tr);
}

static int64_t clocks_left(const struct task *k)
{
    return k->at.next.stage < 0 ? 0 : k->at.next.clocks - k->at.before;
}

/* ---- instances of stages ---- */

static struct instance *find_instance(const struct task *k, const struct assignment *a)
{
    for (struct instance *s = k->instances; s; s = s->next)
        if (s->stage == a->stage && memcmp(&s->workers.of, &a->workers, sizeof a->workers) == 0) return s;
    return NULL;
}

/* Gets an instance ready: all ranks, whoever will take part in running it. */
static int prepare(struct task *k, struct instance *s, const tr_stage *stage)
{
    tr_context *tr = k->tr;
    struct tr_worker_set with_all = s->workers;
    with_all.participants = tr->world;
    with_all.participates = NULL;
    tr->active = &with_all;
    tr_tables_end(tr, &s->suspended); /* of a run before, if it could not be kept */
    struct tr_stage_run run;
    tr_stage_open(tr, stage, &run);
    TR_TRY(tr_sync_begin(tr->sync));
    int prepared = tr_stage_prepare(&run);
    s->kept = run.me.kept;
    TR_TRY(prepared);
    bool needed = false;
    int status = tr_tables_needs(tr, &needed, &s->can_suspend);
    if (status == TR_OK && !s->workers.participates) status = tr_worker_set_restrict(tr, &s->workers, needed);
    tr_clock_leave(tr->sync->clock);
    TR_TRY(tr_agree(tr, status));
    tr->active = &s->workers;
    s->prepared = true;
    return TR_OK;
}

static void release(const struct task *k, struct instance *s)
{
    const tr_stage *stage = &k->task->stage[s->stage];
    if (s->kept && stage->release) stage->release(s->kept);
    s->kept = NULL;
}

static int run_instance(struct task *k, struct instance *s, const tr_stage *stage, int at_once,
                        struct tr_stage_run *run)
{
    const struct position *at = &k->at;
    tr_stage_open(k->tr, stage, run);
    tr_stage shown = *stage;
    shown.name = k->task->name; /* as checkpoints call it, with which counting goes on */
    shown.clocks = k->task->evaluations;
    run->shown = &shown;
    run->evaluated = at->evaluations;
    run->ended = at->ended;
    run->at_once = at_once;
    run->begin = k->began;
    run->compute_seconds = k->compute_seconds;
    run->evaluate_seconds = k->evaluate_seconds;
    run->me.kept = s->kept;
    run->me.before = at->before;
    run->me.whole = at->next.clocks;
    run->me.command = at->next.command;
    if (!tr_participates(&s->workers, k->tr->rank)) return TR_OK;
    (void)TR_FAULT("stage");
    TR_TRY(tr_stage_begin(run));
    int status = tr_stage_run(run);
    if (tr_works(k->tr) && at_once == 0) tr_timeline_add(k->tr, stage->name, run->first, run->last);
    k->compute_seconds = run->compute_seconds;
    k->evaluate_seconds = run->evaluate_seconds;
    return status;
}

/* Runs what was assigned, on a rank that takes part in running it or in getting it ready. */
static int run_assignment(struct task *k, const struct assignment *a, struct tr_stage_run *run)
{
    tr_context *tr = k->tr;
    struct instance *s = find_instance(k, a);
    bool ready = s && s->prepared;
    if (!s) {
        if (TR_NEW(&s, 1) != TR_OK) return tr_agree(tr, TR_ERR_SYSTEM);
        s->stage = (int)a->stage;
        s->next = k->instances;
        k->instances = s;
        TR_TRY(tr_worker_set_open(tr, a->workers, &s->workers));
    }
    tr_stage stage = k->task->stage[a->stage];
    stage.clocks = a->number;
    tr->active = &s->workers;
    int status = ready ? tr_tables_resume(tr, &s->suspended) : prepare(k, s, &stage);
    if (status == TR_OK) status = run_instance(k, s, &stage, a->at_once, run);
    if (!s->can_suspend) release(k, s);
    int suspending = tr_tables_suspend(tr, s->can_suspend, &s->suspended);
    if (!s->can_suspend) s->prepared = false;
    tr->active = &tr->all;
    return status == TR_OK ? suspending : status;
}

/* Closes the views of an instance, which has to be made ready anew. All ranks. */
static void part(struct task *k, struct instance *s)
{
    tr_tables_end(k->tr, &s->suspended);
    release(k, s);
    s->prepared = false;
}

static int move_tables(struct task *k, int64_t servers)
{
    for (struct instance *s = k->instances; s; s = s->next) part(k, s);
    for (size_t i = 0; i < k->task->tables; i++) {
        uint64_t moved;
        TR_TRY(tr_table_resize(k->task->table[i], (uint32_t)servers, &moved));
    }
    return TR_OK;
}

static void close_instances(struct task *k)
{
    for (struct instance *s; (s = k->instances);) {
        k->instances = s->next;
        part(k, s);
        tr_worker_set_close(&s->workers);
        free(s);
    }
}

/* ---- rank 0: what is next ---- */

static int most_workers(const struct task *k, int stage)
{
    const struct tr_layout *layout = &k->tr->layout;
    return k->task->stage[stage].one_group ? layout->group_size : tr_layout_workers(layout);
}

static struct tr_worker_choice choose_workers(const struct task *k, int workers)
{
    const struct tr_layout *layout = &k->tr->layout;
    if (k->task->stage[k->at.next.stage].one_group)
        return (struct tr_worker_choice){(int)k->at.group, 1, workers};
    return (struct tr_worker_choice){0, layout->groups, (workers + layout->groups - 1) / layout->groups};
}

static struct tr_substage search(const struct task *k, struct record *r)
{
    int stage = k->at.next.stage;
    struct tr_degree_options options = {.least = 1,
                                        .most = most_workers(k, stage),
                                        .unit = k->task->stage[stage].one_group ? 1 : k->tr->layout.groups,
                                        .clocks = clocks_left(k) * k->task->evaluations};
    if (!r->searches) tr_degree_begin(&r->degree, &options);
    r->searches = true;
    return tr_degree_next(&r->degree, clocks_left(k));
}

/* Nobody asks while clocks run whether a checkpoint is due: so they run for about so long at a time. The first one shows
 * how long they take. */
static const double part_seconds = 0.1;

static int64_t length_of_part(const struct task *k, const struct record *r, int64_t clocks)
{
    const tr_stage *stage = &k->task->stage[k->at.next.stage];
    if (!is_checkpointed(k) || stage->evaluate || stage->begin) return clocks;
    double fit = part_seconds * (double)r->sum.clocks / r->sum.seconds;
    if (r->sum.clocks == 0 || fit < 1) return 1;
    return fit < (double)clocks ? (int64_t)fit : clocks;
}

/* The next part of what next() has asked for: all of it, or a sub-stage of a search, or as much as runs at a time. */
static struct assignment plan(const struct task *k)
{
    const tr_next *next = &k->at.next;
    struct record *r = &k->record[next->stage];
    struct tr_substage sub = {.parallelism = next->workers, .clocks = clocks_left(k)};
    if (next->workers == TR_ALL_WORKERS) sub.parallelism = most_workers(k, next->stage);
    if (next->workers == TR_AUTO_WORKERS) sub = search(k, r);
    int64_t clocks = length_of_part(k, r, sub.clocks);
    r->is_rest = r->cut;
    r->cut = clocks < sub.clocks;
    int workers = tr_min_int(sub.parallelism, most_workers(k, next->stage));
    struct tr_worker_choice choice = choose_workers(k, workers);
    bool all = workers == choice.groups * choice.group_size;
    return (struct assignment){next->stage, clocks, choice, all ? 0 : workers, k->at};
}

static int check_next(const struct task *k, const tr_next *next)
{
    bool right = next->stage < (int)k->task->n &&
                 (next->stage < 0 || (next->clocks > 0 && next->workers >= TR_AUTO_WORKERS));
    return right ? TR_OK
                 : tr_fail(TR_ERR_INTERNAL, "task %s: no stage %d for %lld clocks on %d workers",
                           k->task->name, next->stage, (long long)next->clocks, next->workers);
}

/* Asks what is next, unless that is the rest of what was asked for before. */
static int ask(struct task *k, bool *over)
{
    tr_ran ran = {.stage = -1, .evaluation = {.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN}};
    tr_next next = {.stage = -1};
    int groups = k->tr->layout.groups;
    if (clocks_left(k) > 0) return TR_OK;
    if (k->at.next.stage >= 0) ran = k->record[k->at.next.stage].ran;
    TR_TRY(k->task->next(k->task->state, &ran, &next));
    TR_TRY(check_next(k, &next));
    *over = next.stage < 0;
    if (*over) return TR_OK;
    k->at.next = next;
    k->at.before = 0;
    k->at.group = tr_choose_place(k->last + next.stage * groups, NULL, groups, 0, true);
    k->record[next.stage].ran = (tr_ran){.stage = next.stage};
    k->record[next.stage].cut = false;
    return TR_OK;
}

/* ---- rank 0: what was ---- */

static void note_run(struct task *k, const struct assignment *a, const struct tr_stage_run *run, bool fresh)
{
    struct record *r = &k->record[a->stage];
    struct tr_stage_sum *sum = &r->sum;
    int64_t clocks = run->times.clocks;
    int all = a->workers.groups * a->workers.group_size, workers = a->at_once > 0 ? a->at_once : all;
    double seconds = run->last - run->first;
    if (r->searches)
        tr_degree_report(&r->degree, run->times.seconds,
                         (size_t)(clocks < TR_TIMED_CLOCKS ? clocks : TR_TIMED_CLOCKS));
    r->ran.clocks += clocks;
    r->ran.workers = all;
    r->ran.first_group = a->workers.first_group;
    r->ran.seconds += seconds;
    r->ran.evaluation = run->evaluation;
    sum->fewest = sum->runs == 0 ? workers : tr_min_int(sum->fewest, workers);
    sum->most = tr_max_int(sum->most, workers);
    if (!r->is_rest) sum->runs++;
    for (int g = 0; g < a->workers.groups; g++)
        k->last[a->stage * k->tr->layout.groups + a->workers.first_group + g] = sum->runs;
    if (sum->clocks == 0) sum->began = run->first;
    sum->ended = run->last;
    sum->clocks += clocks;
    sum->seconds += seconds;
    sum->worker_seconds += seconds * workers;
    /* to get ready is more than to go over from one stage to another, and to go on is less */
    if (!fresh && !r->is_rest && k->ended > 0)
        r->transition[r->transitions++ % TRANSITIONS] = run->first - k->ended;
    k->ended = run->last;
    k->at.ended += clocks;
    k->at.before = clocks < a->number ? k->at.next.clocks : k->at.before + clocks; /* fewer: it was stopped */
    k->at.evaluations += run->evaluations;
}

static int open_records(struct task *k)
{
    TR_TRY(TR_NEW(&k->record, k->task->n));
    return TR_NEW(&k->last, k->task->n * (size_t)k->tr->layout.groups);
}

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int show_records(struct task *k)
{
    struct tr_stage_sum *sums;
    if (!k->tr->task_observer) return TR_OK;
    TR_TRY(TR_NEW(&sums, k->task->n));
    for (size_t i = 0; i < k->task->n; i++) {
        struct record *r = &k->record[i];
        size_t n = (size_t)(r->transitions < TRANSITIONS ? r->transitions : TRANSITIONS);
        qsort(r->transition, n, sizeof *r->transition, by_seconds);
        sums[i] = r->sum;
        sums[i].transition = n > 0 ? r->transition[n / 2] : NAN;
        snprintf(sums[i].name, sizeof sums[i].name, "%s", k->task->stage[i].name);
        if (r->searches) tr_degree_describe(&r->degree, sums[i].degree, sizeof sums[i].degree);
    }
    int status = k->tr->task_observer(k->tr->task_observer_state, sums, k->task->n);
    free(sums);
    return status;
}

/* ---- messages ---- */

/* To all, or to those who take part. */
static int tell(const struct task *k, const struct assignment *a)
{
    tr_context *tr = k->tr;
    const struct instance *s = a->stage < 0 ? NULL : find_instance(k, a);
    MPI_Request *requests;
    TR_TRY(TR_NEW(&requests, (size_t)tr->size));
    int n = 0, status = TR_OK;
    for (int rank = 1; rank < tr->size; rank++)
        if (!s || !s->prepared || tr_participates(&s->workers, rank))
            MPI_Isend(a, sizeof *a, MPI_BYTE, rank, TR_TAG_ASSIGN, tr->wire, &requests[n++]);
    for (int i = 0; i < n && status == TR_OK; i++)
        status = tr_wait_request(tr, &requests[i], "the others to take an assignment");
    free(requests);
    return status;
}

/* Worker 0 sends to rank 0 how long its clocks took. */
static int collect_times(const struct task *k, const struct assignment *a, struct tr_stage_run *run)
{
    tr_context *tr = k->tr;
    int first = tr_worker_rank(tr, &find_instance(k, a)->workers, 0);
    MPI_Request request = MPI_REQUEST_NULL;
    if (first != 0 && tr->rank == first)
        MPI_Isend(&run->times, sizeof run->times, MPI_BYTE, 0, TR_TAG_TIMES, tr->wire, &request);
    if (first != 0 && tr->rank == 0)
        MPI_Irecv(&run->times, sizeof run->times, MPI_BYTE, first, TR_TAG_TIMES, tr->wire, &request);
    return tr_wait_request(tr, &request, "the times of a stage's clocks");
}

/* ---- checkpoints ---- */

/* Rank 0's records. On another layout searches for degrees, and turns of groups, begin anew. */
static int snapshot_records(struct task *k, tr_snapshot *snapshot)
{
    const struct tr_layout *now = &k->tr->layout;
    size_t n = k->task->n;
    bool same = true;
    if (tr_snapshot_restores(snapshot)) {
        const struct tr_facts *then = &tr_checkpoint_found(k->tr)->facts;
        same = then->groups == now->groups && then->group_size == now->group_size;
    }
    TR_TRY(tr_snapshot_common(snapshot, "task_records", TR_I64, n * sizeof *k->record / sizeof(int64_t),
                              k->record));
    if (same) return tr_snapshot_common(snapshot, "task_turns", TR_I64, n * (size_t)now->groups, k->last);
    for (size_t i = 0; i < n; i++) k->record[i].searches = false;
    return TR_OK;
}

/* What the task has, and its owner, to whom `me` says what runs next. */
static int list(void *what, tr_snapshot *snapshot)
{
    struct task *k = what;
    struct position *at = &k->at;
    struct tr_stage_run run;
    int stages = (int)k->task->n;
    at->stages = stages;
    TR_TRY(tr_snapshot_common(snapshot, "task_position", TR_I64, sizeof *at / sizeof(int64_t), at));
    if (at->stages != stages || at->next.stage < 0 || at->next.stage >= stages || clocks_left(k) <= 0)
        return tr_fail(TR_ERR_DATA, "checkpoint: task %s had %lld stages, it has %d now", k->task->name,
                       (long long)at->stages, stages);
    if (k->tr->rank == 0) TR_TRY(snapshot_records(k, snapshot));
    tr_stage_open(k->tr, &k->task->stage[0], &run);
    run.me.before = at->before;
    run.me.whole = at->next.clocks;
    run.me.clocks = clocks_left(k);
    run.me.command = at->next.command;
    return k->task->snapshot(&run.me, k->task->state, snapshot);
}

/* All ranks. *agreed: whether the task is to stop. */
static int take_checkpoint(struct task *k, bool stops, int *agreed)
{
    struct tr_facts facts = {.clock = k->at.ended, .evaluations = k->at.evaluations, .epoch = k->tr->epoch};
    snprintf(facts.stage, sizeof facts.stage, "%s", k->task->name);
    TR_TRY(tr_checkpoint_take(k->tr, &facts, stops, list, k));
    if (stops) *agreed = tr_fail(TR_ERR_STOPPED, "stopped on request");
    return TR_OK;
}

/* Rank 0: if one is due before what runs next. */
static int checkpoint_if_due(struct task *k, int *agreed)
{
    enum tr_due due = is_checkpointed(k) ? tr_checkpoint_due(k->tr, k->at.ended) : TR_NOT_DUE;
    bool stops = due == TR_DUE_AND_STOP;
    if (due == TR_NOT_DUE) return TR_OK;
    TR_TRY(tell(k, &(struct assignment){.stage = TAKE, .number = stops, .at = k->at}));
    return take_checkpoint(k, stops, agreed);
}

/* Goes on where the run stood, if it stood in this task: all ranks. The tables go where they were, as far as there are so
 * many servers. */
static int restore(struct task *k)
{
    tr_context *tr = k->tr;
    bool restores;
    struct tr_facts facts;
    TR_TRY(tr_agree(tr, tr_checkpoint_enter(tr, k->task->name, &restores)));
    if (!restores) return TR_OK;
    if (!k->task->snapshot)
        return tr_agree(tr, tr_fail(TR_ERR_DATA, "checkpoint: task %s keeps nothing now", k->task->name));
    TR_TRY(tr_checkpoint_restore(tr, list, k, &facts));
    tr->epoch = facts.epoch;
    if (tr_works(tr)) tr_lifeline_clock(tr->lifeline, facts.clock);
    tr->tables->before = 0; /* every run begins with clock 0 */
    if (k->at.group >= tr->layout.groups) k->at.group = 0;
    if (k->at.servers > tr->layout.servers) k->at.servers = 0;
    return k->at.servers > 0 ? move_tables(k, k->at.servers) : TR_OK;
}

/* ---- all of it ---- */

/* To as many servers as next() has said. *agreed: the outcome, as all know it. */
static int move_tables_if_asked(struct task *k, int *agreed)
{
    int servers = k->at.next.servers;
    if (servers <= 0 || servers == k->at.servers) return TR_OK;
    TR_TRY(tell(k, &(struct assignment){.stage = MOVE, .at = k->at}));
    *agreed = move_tables(k, servers);
    if (*agreed == TR_OK) k->at.servers = servers;
    return TR_OK;
}

/* A part of the run that next() has asked for. *agreed: the outcome, as the participants know it. */
static int run_part(struct task *k, int *agreed)
{
    TR_TRY(move_tables_if_asked(k, agreed));
    if (*agreed != TR_OK) return TR_OK;
    struct assignment a = plan(k);
    const struct instance *s = find_instance(k, &a);
    bool fresh = !s || !s->prepared;
    struct tr_stage_run run;
    TR_TRY(tell(k, &a));
    *agreed = run_assignment(k, &a, &run);
    if (*agreed != TR_OK) return TR_OK;
    TR_TRY(collect_times(k, &a, &run));
    note_run(k, &a, &run, fresh);
    return TR_OK;
}

static int direct(struct task *k, int *agreed)
{
    bool over = false;
    int status = TR_OK;
    while (status == TR_OK && *agreed == TR_OK) {
        status = ask(k, &over);
        if (status != TR_OK || over) break;
        status = checkpoint_if_due(k, agreed);
        if (status == TR_OK && *agreed == TR_OK) status = run_part(k, agreed);
    }
    if (*agreed == TR_ERR_STOPPED) return status; /* as all know */
    int told = tell(k, &(struct assignment){.stage = END, .number = *agreed});
    return status == TR_OK ? told : status;
}

/* All but rank 0. A failure is known to those who took part, and to the others when the task ends. */
static int follow(struct task *k, int *agreed)
{
    while (*agreed != TR_ERR_STOPPED) {
        struct assignment a;
        struct tr_stage_run run;
        MPI_Request request;
        MPI_Irecv(&a, sizeof a, MPI_BYTE, 0, TR_TAG_ASSIGN, k->tr->wire, &request);
        TR_TRY(tr_wait_request(k->tr, &request, NULL));
        if (a.stage == END) {
            *agreed = (int)a.number;
            return TR_OK;
        }
        k->at = a.at;
        if (a.stage == MOVE) (void)move_tables(k, a.at.next.servers);
        else if (a.stage == TAKE) TR_TRY(take_checkpoint(k, a.number, agreed));
        else if (run_assignment(k, &a, &run) == TR_OK) TR_TRY(collect_times(k, &a, &run));
    }
    return TR_OK;
}

int tr_run_task(tr_context *tr, const tr_task *task)
{
    struct task k = {.tr = tr, .task = task, .began = tr_now(), .at = {.next = {.stage = -1}}};
    int agreed = TR_OK;
    bool kept = is_checkpointed(&k);
    if (tr->before_run) TR_TRY(tr->before_run(tr));
    TR_TRY(tr_agree(tr, tr_tables_suspend(tr, true, &k.outer)));
    TR_TRY(tr_agree(tr, tr->rank == 0 ? open_records(&k) : TR_OK));
    tr->tables->traffic = (struct tr_traffic){0};
    tr_lifeline_stage(tr->lifeline);
    if (kept) tr_signals_catch();
    agreed = restore(&k);
    int status = TR_OK;
    if (agreed == TR_OK) status = tr->rank == 0 ? direct(&k, &agreed) : follow(&k, &agreed);
    if (kept) tr_signals_release();
    if (status == TR_OK && agreed == TR_OK && tr->rank == 0) status = show_records(&k);
    close_instances(&k);
    free(k.record);
    free(k.last);
    if (status == TR_OK) status = tr_tables_resume(tr, &k.outer);
    status = tr_agree(tr, status);
    if (agreed != TR_OK && tr->status == TR_OK) tr->status = agreed;
    return agreed != TR_OK ? agreed : status;
}

void tr_on_task(tr_context *tr, tr_task_observer *observer, void *who)
{
    tr->task_observer = observer;
    tr->task_observer_state = who;
}
