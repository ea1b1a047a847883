/* Tasks: rank 0 says what is next, and tells those who take part; all others wait to be told.
 *
 * A stage and a set of workers that it runs on are a seat. The first time all ranks get it ready together; its views,
 * windows and communicators are then kept, and next time only those who take part act.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "stage/degree.h"
#include "stage/run.h"
#include "stage/schedule.h"

struct seat {
    struct seat *next;
    int stage;
    struct tr_worker_set workers;
    bool prepared, parks;
    struct tr_parked parked;
    void *kept; /* as tr_worker has it */
};

/* What rank 0 tells others: a stage to run, that there is none any more, that tables move to other servers, or that a
 * checkpoint is taken. */
enum { END = -1, MOVE = -2, TAKE = -3 };
struct assignment {
    int64_t stage; /* or END, MOVE or TAKE */
    /* END: the task's status, as far as it is agreed on; MOVE: servers of its tables; TAKE: 1: and stop */
    int64_t clocks;
    int64_t before, whole; /* TAKE: of what runs next, as is the command */
    int64_t ended;         /* clocks of all stages so far */
    struct tr_worker_choice workers;
    tr_command command;
};

/* Rank 0's record of a stage. */
struct record {
    struct tr_degree degree;
    bool searches; /* the degree has begun */
    int64_t left;  /* clocks of the run that next() has asked for */
    tr_ran ran;    /* of these, so far */
    int64_t *last; /* by group: number of the run in which it had the stage last, 0 before */
    bool cut;      /* the part that was planned last was to be longer: the next one is the rest of it */
    bool is_rest;  /* it was that itself */
    double *transition;
    size_t transitions, room;
    struct tr_stage_sum sum;
};

struct task {
    tr_context *tr;
    const tr_task *task;
    struct seat *seats;
    struct tr_parked outer; /* what was open before the task */
    struct record *record;  /* rank 0: by stage */
    double began;
    double compute_seconds, evaluate_seconds; /* of this worker, over all stages */
    double ended;                             /* rank 0: when the last clock of the last stage was over */
    int servers;                              /* rank 0: of its tables, as far as it was said; 0: nothing */
    int64_t judged;                           /* rank 0: evaluations so far */
    int group; /* rank 0: whose turn it is, while parts of one run follow each other; -1 */
    /* What next() has asked for last, and clocks of it that are over: rank 0; others as of a checkpoint. */
    tr_next next;
    int64_t before; /* rank 0: as of a checkpoint, too */
};

/* Checkpoints are taken of it. */
static bool is_kept(const struct task *k)
{
    return k->task->snapshot && tr_checkpoints_are_on(k->tr);
}

/* ---- seats ---- */

static bool same_workers(struct tr_worker_choice a, struct tr_worker_choice b)
{
    return a.first_group == b.first_group && a.groups == b.groups && a.group_size == b.group_size;
}

static struct seat *find_seat(const struct task *k, const struct assignment *a)
{
    for (struct seat *s = k->seats; s; s = s->next)
        if (s->stage == a->stage && same_workers(s->workers.of, a->workers)) return s;
    return NULL;
}

static struct seat *new_seat(struct task *k, const struct assignment *a)
{
    struct seat *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->stage = (int)a->stage;
    s->next = k->seats;
    return k->seats = s;
}

/* Gets a seat ready: all ranks, whoever will take part in running it. */
static int prepare(struct task *k, struct seat *s, const tr_stage *stage)
{
    tr_context *tr = k->tr;
    struct tr_worker_set with_all = s->workers;
    with_all.participants = tr->world;
    with_all.participates = NULL;
    tr->active = &with_all;
    tr_tables_part(tr, &s->parked); /* of a run before, if it could not be kept */
    struct tr_stage_run run;
    tr_stage_open(tr, stage, &run);
    TR_TRY(tr_sync_begin(tr->sync));
    int prepared = tr_stage_prepare(&run);
    s->kept = run.me.kept;
    TR_TRY(prepared);
    bool needed = false;
    int status = tr_tables_needs(tr, &needed, &s->parks);
    if (status == TR_OK && !s->workers.participates) status = tr_worker_set_restrict(tr, &s->workers, needed);
    tr_clock_leave(tr->sync->clock);
    TR_TRY(tr_agree(tr, status));
    tr->active = &s->workers;
    s->prepared = true;
    return TR_OK;
}

static void release(struct task *k, struct seat *s)
{
    const tr_stage *stage = &k->task->stage[s->stage];
    if (s->kept && stage->release) stage->release(s->kept);
    s->kept = NULL;
}

/* Whoever has nothing to do while others run it puts it aside at once. */
static int run_seat(struct task *k, struct seat *s, const struct assignment *a, const tr_stage *stage,
                    struct tr_stage_run *run)
{
    tr_context *tr = k->tr;
    tr_stage_open(tr, stage, run);
    tr_stage shown = *stage;
    shown.name = k->task->name; /* as checkpoints call it, with which counting goes on */
    shown.clocks = k->task->evaluations;
    run->shown = &shown;
    run->judged = k->judged;
    run->ended = a->ended;
    run->begin = k->began;
    run->compute_seconds = k->compute_seconds;
    run->evaluate_seconds = k->evaluate_seconds;
    run->me.kept = s->kept;
    run->me.before = a->before;
    run->me.whole = a->whole;
    run->me.command = a->command;
    if (!tr_participates(&s->workers, tr->rank)) return TR_OK;
    (void)TR_FAULT("stage");
    TR_TRY(tr_stage_begin(run));
    int status = tr_stage_run(run);
    k->judged += run->evaluations;
    k->compute_seconds = run->compute_seconds;
    k->evaluate_seconds = run->evaluate_seconds;
    return status;
}

/* Runs what was assigned, on a rank that takes part in running it or in getting it ready. */
static int play(struct task *k, const struct assignment *a, struct tr_stage_run *run)
{
    tr_context *tr = k->tr;
    struct seat *s = find_seat(k, a);
    bool ready = s && s->prepared;
    if (!s) s = new_seat(k, a);
    if (!s) return tr_agree(tr, tr_fail(TR_ERR_SYSTEM, "out of memory: a stage"));
    if (!s->workers.owned) TR_TRY(tr_worker_set_open(tr, a->workers, &s->workers));
    tr_stage stage = k->task->stage[a->stage];
    stage.clocks = a->clocks;
    tr->active = &s->workers;
    int status = ready ? tr_tables_take_up(tr, &s->parked) : prepare(k, s, &stage);
    if (status == TR_OK) status = run_seat(k, s, a, &stage, run);
    if (!s->parks) release(k, s);
    int parked = tr_tables_park(tr, s->parks, &s->parked);
    if (!s->parks) s->prepared = false;
    tr->active = &tr->all;
    return status == TR_OK ? parked : status;
}

/* Views of the tables are closed by all; what they are needed for again is made ready anew. */
static int move_tables(struct task *k, uint32_t servers)
{
    for (struct seat *s = k->seats; s; s = s->next) {
        tr_tables_part(k->tr, &s->parked);
        release(k, s);
        s->prepared = false;
    }
    for (size_t i = 0; i < k->task->tables; i++) {
        uint64_t moved;
        TR_TRY(tr_table_resize(k->task->table[i], servers, &moved));
    }
    return TR_OK;
}

static void close_seats(struct task *k)
{
    while (k->seats) {
        struct seat *s = k->seats;
        k->seats = s->next;
        tr_tables_part(k->tr, &s->parked);
        release(k, s);
        tr_worker_set_close(&s->workers);
        free(s);
    }
}

/* ---- rank 0 ---- */

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct tr_worker_choice choose_workers(const struct task *k, int stage, int workers)
{
    const struct tr_layout *layout = &k->tr->layout;
    if (k->task->stage[stage].one_group)
        return (struct tr_worker_choice){k->group, 1, tr_min_int(workers, layout->group_size)};
    return (struct tr_worker_choice){0, layout->groups,
                                     tr_min_int(tr_max_int(workers / layout->groups, 1), layout->group_size)};
}

static int most_workers(const struct task *k, int stage)
{
    const struct tr_layout *layout = &k->tr->layout;
    return k->task->stage[stage].one_group ? layout->group_size : tr_layout_workers(layout);
}

static struct tr_substage search(const struct task *k, struct record *r, int stage)
{
    struct tr_degree_wish wish = {.least = 1,
                                  .most = most_workers(k, stage),
                                  .unit = k->task->stage[stage].one_group ? 1 : k->tr->layout.groups,
                                  .clocks = r->left * k->task->evaluations};
    if (!r->searches) tr_degree_begin(&r->degree, &wish);
    r->searches = true;
    return tr_degree_next(&r->degree, r->left);
}

/* Nobody asks while clocks run whether a checkpoint is due: so they run for about so long at a time. The first one shows
 * how long they take. */
static const double part_seconds = 0.1;

static int64_t cut(const struct task *k, const struct record *r, const tr_stage *stage, int64_t clocks)
{
    if (!is_kept(k) || stage->evaluate || stage->begin) return clocks;
    double fit = part_seconds * (double)r->sum.clocks / r->sum.seconds;
    if (r->sum.clocks == 0 || fit < 1) return 1;
    return fit < (double)clocks ? (int64_t)fit : clocks;
}

static int64_t clocks_so_far(const struct task *k)
{
    int64_t clocks = 0;
    for (size_t i = 0; i < k->task->n; i++) clocks += k->record[i].sum.clocks;
    return clocks;
}

/* The next part of what next() has asked for: all of it, or a sub-stage of a search, or as much as runs at a time. */
static struct assignment plan(const struct task *k)
{
    const tr_next *next = &k->next;
    struct record *r = &k->record[next->stage];
    int workers = next->workers == TR_ALL_WORKERS ? most_workers(k, next->stage) : next->workers;
    int64_t clocks = r->left;
    if (next->workers == TR_AUTO_WORKERS) {
        struct tr_substage sub = search(k, r, next->stage);
        workers = sub.parallelism;
        clocks = sub.clocks;
    }
    int64_t all = clocks;
    clocks = cut(k, r, &k->task->stage[next->stage], all);
    r->is_rest = r->cut;
    r->cut = clocks < all;
    return (struct assignment){.stage = next->stage,
                               .clocks = clocks,
                               .before = next->clocks - r->left,
                               .whole = next->clocks,
                               .ended = clocks_so_far(k),
                               .workers = choose_workers(k, next->stage, workers),
                               .command = next->command};
}

/* To all, or to those who take part. */
static int tell(struct task *k, const struct assignment *a)
{
    tr_context *tr = k->tr;
    const struct seat *s = a->stage < 0 ? NULL : find_seat(k, a);
    MPI_Request *requests;
    TR_TRY(TR_NEW(&requests, (size_t)tr->size));
    int n = 0;
    for (int rank = 1; rank < tr->size; rank++)
        if (!s || !s->prepared || tr_participates(&s->workers, rank))
            MPI_Isend(a, sizeof *a, MPI_BYTE, rank, TR_TAG_ASSIGN, tr->wire, &requests[n++]);
    int status = TR_OK;
    for (int i = 0; i < n && status == TR_OK; i++)
        status = tr_wait_request(tr, &requests[i], "the others to take an assignment");
    free(requests);
    return status;
}

/* Worker 0 says how long its clocks took. */
static int hear_times(struct task *k, const struct assignment *a, struct tr_stage_run *run)
{
    tr_context *tr = k->tr;
    const struct seat *s = find_seat(k, a);
    int first = tr_worker_rank(tr, &s->workers, 0);
    if (first == 0) return TR_OK;
    MPI_Request request = MPI_REQUEST_NULL;
    if (tr->rank == first)
        MPI_Isend(&run->times, sizeof run->times, MPI_BYTE, 0, TR_TAG_TIMES, tr->wire, &request);
    if (tr->rank == 0)
        MPI_Irecv(&run->times, sizeof run->times, MPI_BYTE, first, TR_TAG_TIMES, tr->wire, &request);
    return tr_wait_request(tr, &request, "the times of a stage's clocks");
}

static int note_transition(struct task *k, struct record *r, double begin)
{
    if (k->ended == 0) return TR_OK;
    TR_TRY(TR_GROW(&r->transition, &r->room, r->transitions + 1));
    r->transition[r->transitions++] = begin - k->ended;
    return TR_OK;
}

static int keep_record(struct task *k, const struct assignment *a, const struct tr_stage_run *run, bool fresh)
{
    struct record *r = &k->record[a->stage];
    int workers = a->workers.groups * a->workers.group_size;
    double seconds = run->last - run->first;
    size_t timed = (size_t)(run->times.clocks < TR_TIMED_CLOCKS ? run->times.clocks : TR_TIMED_CLOCKS);
    if (r->searches) tr_degree_report(&r->degree, run->times.seconds, timed);
    r->left -= a->clocks;
    r->ran.clocks += run->times.clocks;
    r->ran.workers = workers;
    r->ran.first_group = a->workers.first_group;
    r->ran.seconds += seconds;
    r->ran.evaluation = run->evaluation;
    struct tr_stage_sum *sum = &r->sum;
    sum->fewest = sum->runs == 0 ? workers : tr_min_int(sum->fewest, workers);
    sum->most = tr_max_int(sum->most, workers);
    if (!r->is_rest) sum->runs++;
    for (int g = 0; g < a->workers.groups; g++) r->last[a->workers.first_group + g] = sum->runs;
    sum->clocks += run->times.clocks;
    sum->seconds += seconds;
    sum->worker_seconds += seconds * workers;
    bool goes_over = !fresh && !r->is_rest; /* to get ready is more than that, and to go on is less */
    if (goes_over) TR_TRY(note_transition(k, r, run->first));
    k->ended = run->last;
    return TR_OK;
}

/* ---- checkpoints ---- */

/* Rank 0's position in the task, and where its tables lie. */
enum position {
    AT_STAGE,
    AT_CLOCKS,
    AT_WORKERS,
    AT_SERVERS,
    AT_COMMAND,
    AT_LEFT = AT_COMMAND + sizeof(tr_command) / sizeof(int64_t),
    AT_GROUP,
    AT_TABLE_SERVERS,
    AT_JUDGED,
    AT_STAGES,
    AT_NUMBERS, /* of the records */
    AT_WORDS
};

static void note_position(const struct task *k, int64_t numbers, int64_t at[AT_WORDS])
{
    const tr_next *next = &k->next;
    at[AT_STAGE] = next->stage;
    at[AT_CLOCKS] = next->clocks;
    at[AT_WORKERS] = next->workers;
    at[AT_SERVERS] = next->servers;
    memcpy(&at[AT_COMMAND], &next->command, sizeof next->command);
    at[AT_LEFT] = k->record[next->stage].left;
    at[AT_GROUP] = k->group;
    at[AT_TABLE_SERVERS] = k->servers;
    at[AT_JUDGED] = k->judged;
    at[AT_STAGES] = (int64_t)k->task->n;
    at[AT_NUMBERS] = numbers;
}

/* All ranks, of which rank 0 alone will need most. */
static int find_position(struct task *k, const int64_t at[AT_WORDS])
{
    tr_next *next = &k->next;
    *next = (tr_next){.stage = (int)at[AT_STAGE],
                      .clocks = at[AT_CLOCKS],
                      .workers = (int)at[AT_WORKERS],
                      .servers = (int)at[AT_SERVERS]};
    memcpy(&next->command, &at[AT_COMMAND], sizeof next->command);
    k->group = (int)at[AT_GROUP];
    k->servers = (int)at[AT_TABLE_SERVERS];
    k->judged = at[AT_JUDGED];
    k->before = next->clocks - at[AT_LEFT];
    if (at[AT_STAGES] == (int64_t)k->task->n && next->stage >= 0 && next->stage < (int)k->task->n &&
        at[AT_LEFT] > 0)
        return TR_OK;
    return tr_fail(TR_ERR_DATA, "checkpoint: task %s had %lld stages, it has %zu now", k->task->name,
                   (long long)at[AT_STAGES], k->task->n);
}

/* Records as a row of numbers, in the same order there and back; without memory, they are counted. */
struct numbers {
    double *number;
    size_t n, at;
    bool takes; /* from records; otherwise back */
};

static double pass(struct numbers *to, double value)
{
    size_t at = to->at++;
    if (!to->number || at >= to->n) return to->number ? 0 : value;
    if (to->takes) to->number[at] = value;
    return to->number[at];
}

#define PASS(to, variable) ((variable) = (__typeof__(variable))pass((to), (double)(variable)))

static void pass_ran(struct numbers *to, tr_ran *ran)
{
    PASS(to, ran->stage);
    PASS(to, ran->clocks);
    PASS(to, ran->workers);
    PASS(to, ran->first_group);
    PASS(to, ran->seconds);
    PASS(to, ran->evaluation.objective);
    PASS(to, ran->evaluation.gap);
    PASS(to, ran->evaluation.metric);
    PASS(to, ran->evaluation.epoch);
    PASS(to, ran->evaluation.stop);
}

static void pass_sum(struct numbers *to, struct tr_stage_sum *sum)
{
    PASS(to, sum->runs);
    PASS(to, sum->fewest);
    PASS(to, sum->most);
    PASS(to, sum->clocks);
    PASS(to, sum->seconds);
    PASS(to, sum->worker_seconds);
}

/* What is more than that is left out: it is there for the median alone. */
enum { MOST_TRANSITIONS = 1000 };

static int pass_transitions(struct numbers *to, struct record *r)
{
    size_t n = tr_min_size(r->transitions, MOST_TRANSITIONS), first = r->transitions - n;
    PASS(to, n);
    if (to->number && n > to->n) return tr_fail(TR_ERR_DATA, "checkpoint: %zu transitions of a stage", n);
    if (to->number && !to->takes) {
        TR_TRY(TR_GROW(&r->transition, &r->room, n));
        r->transitions = n;
        first = 0;
    }
    for (size_t i = first; i < first + n; i++) PASS(to, r->transition[i]);
    return TR_OK;
}

/* On another layout the search for the degree begins anew. */
static int pass_degree(struct numbers *to, struct record *r, bool same)
{
    size_t n = r->searches ? tr_degree_numbers(&r->degree) : 0;
    PASS(to, n);
    if (to->number && (to->at > to->n || n > to->n - to->at))
        return tr_fail(TR_ERR_DATA, "checkpoint: %zu numbers of a degree", n);
    if (to->number && to->takes && n > 0) tr_degree_save(&r->degree, to->number + to->at);
    if (to->number && !to->takes) {
        r->searches = n > 0 && same;
        if (n > 0 && !tr_degree_load(&r->degree, to->number + to->at, n))
            return tr_fail(TR_ERR_DATA, "checkpoint: the degree of a stage is not one");
    }
    to->at += n;
    return TR_OK;
}

static int pass_records(struct task *k, struct numbers *to, bool same, int groups)
{
    for (size_t i = 0; i < k->task->n; i++) {
        struct record *r = &k->record[i];
        pass_ran(to, &r->ran);
        pass_sum(to, &r->sum);
        PASS(to, r->cut);
        for (int g = 0; g < groups; g++) {
            double last = pass(to, same ? (double)r->last[g] : 0);
            if (same) r->last[g] = (int64_t)last;
        }
        TR_TRY(pass_transitions(to, r));
        TR_TRY(pass_degree(to, r, same));
    }
    return TR_OK;
}

/* Whether groups and workers are those of the checkpoint, and how many groups there were. */
static bool same_groups(const struct task *k, const tr_snapshot *snapshot, int *groups)
{
    const struct tr_layout *now = &k->tr->layout;
    *groups = now->groups;
    if (!tr_snapshot_restores(snapshot)) return true;
    const struct tr_facts *then = &tr_checkpoint_found(k->tr)->facts;
    *groups = (int)then->groups;
    return then->groups == now->groups && then->group_size == now->group_size;
}

/* Rank 0. */
static int keep_records(struct task *k, tr_snapshot *snapshot, struct numbers *to)
{
    int groups;
    bool same = same_groups(k, snapshot, &groups);
    TR_TRY(TR_NEW(&to->number, to->n));
    int status = to->takes ? pass_records(k, to, same, groups) : TR_OK;
    if (status == TR_OK) status = tr_snapshot_common(snapshot, "task_records", TR_F64, to->n, to->number);
    if (status == TR_OK && !to->takes) status = pass_records(k, to, same, groups);
    free(to->number);
    to->number = NULL;
    if (status == TR_OK && to->at != to->n)
        status = tr_fail(TR_ERR_DATA, "checkpoint: the records of a task do not fit");
    return status;
}

static int keep_task(struct task *k, tr_snapshot *snapshot)
{
    int64_t at[AT_WORDS] = {0};
    struct numbers to = {.takes = !tr_snapshot_restores(snapshot)};
    bool first = k->tr->rank == 0;
    if (to.takes && first) {
        TR_TRY(pass_records(k, &to, true, k->tr->layout.groups)); /* counts */
        to.n = to.at;
        to.at = 0;
        note_position(k, (int64_t)to.n, at);
    }
    TR_TRY(tr_snapshot_common(snapshot, "task_position", TR_I64, AT_WORDS, at));
    if (!to.takes) {
        TR_TRY(find_position(k, at));
        to.n = (size_t)at[AT_NUMBERS];
        if (first) k->record[k->next.stage].left = at[AT_LEFT];
    }
    return first ? keep_records(k, snapshot, &to) : TR_OK;
}

/* What the task has, and its owner, to whom `me` says what runs next. */
static int list(void *what, tr_snapshot *snapshot)
{
    struct task *k = what;
    struct tr_stage_run run;
    TR_TRY(keep_task(k, snapshot));
    tr_stage_open(k->tr, &k->task->stage[0], &run);
    run.me.before = k->before;
    run.me.whole = k->next.clocks;
    run.me.clocks = k->next.clocks - k->before;
    run.me.command = k->next.command;
    return k->task->snapshot(&run.me, k->task->state, snapshot);
}

/* All ranks. *agreed: whether the task is to stop. */
static int take(struct task *k, const struct assignment *a, int *agreed)
{
    struct tr_facts facts = {.clock = a->ended, .evaluations = k->judged};
    bool stops = a->clocks != 0;
    snprintf(facts.stage, sizeof facts.stage, "%s", k->task->name);
    k->before = a->before;
    k->next.clocks = a->whole;
    k->next.command = a->command;
    TR_TRY(tr_checkpoint_take(k->tr, &facts, stops, list, k));
    if (stops) *agreed = tr_fail(TR_ERR_STOPPED, "stopped on request");
    return TR_OK;
}

/* Rank 0: if one is due before what runs next. */
static int pause_if_due(struct task *k, int *agreed)
{
    if (!is_kept(k)) return TR_OK;
    int64_t ended = clocks_so_far(k);
    enum tr_due due = tr_checkpoint_due(k->tr, ended);
    if (due == TR_NOT_DUE) return TR_OK;
    const tr_next *next = &k->next;
    struct assignment a = {.stage = TAKE,
                           .clocks = due == TR_DUE_AND_STOP,
                           .before = next->clocks - k->record[next->stage].left,
                           .whole = next->clocks,
                           .ended = ended,
                           .command = next->command};
    TR_TRY(tell(k, &a));
    return take(k, &a, agreed);
}

/* Goes on where the run stood, if it stood in this task: all ranks. The tables go where they were, as far as there are so
 * many servers. */
static int go_on(struct task *k)
{
    tr_context *tr = k->tr;
    bool restores;
    struct tr_facts facts;
    TR_TRY(tr_agree(tr, tr_checkpoint_enter(tr, k->task->name, &restores)));
    if (!restores) return TR_OK;
    if (!k->task->snapshot)
        return tr_agree(tr, tr_fail(TR_ERR_DATA, "checkpoint: task %s keeps nothing now", k->task->name));
    TR_TRY(tr_checkpoint_restore(tr, list, k, &facts));
    if (tr_works(tr)) tr_lifeline_clock(tr->lifeline, facts.clock);
    tr->tables->before = 0; /* every run begins with clock 0 */
    if (k->group >= tr->layout.groups) k->group = 0;
    if (k->servers > tr->layout.servers) k->servers = 0;
    return k->servers > 0 ? move_tables(k, (uint32_t)k->servers) : TR_OK;
}

/* ---- rank 0: what runs ---- */

/* Where the tables are to lie from now on. *agreed: what all have said of it. */
static int move_where_wished(struct task *k, int *agreed)
{
    int servers = k->next.servers;
    if (servers <= 0 || servers == k->servers) return TR_OK;
    TR_TRY(tell(k, &(struct assignment){.stage = MOVE, .clocks = servers}));
    *agreed = move_tables(k, (uint32_t)servers);
    if (*agreed == TR_OK) k->servers = servers;
    return TR_OK;
}

/* A part of the run that next() has asked for. *agreed: what the participants has said of it. */
static int run_part(struct task *k, int *agreed)
{
    struct record *r = &k->record[k->next.stage];
    TR_TRY(move_where_wished(k, agreed));
    if (*agreed != TR_OK) return TR_OK;
    struct assignment a = plan(k);
    const struct seat *s = find_seat(k, &a);
    bool fresh = !s || !s->prepared;
    struct tr_stage_run run;
    TR_TRY(tell(k, &a));
    *agreed = play(k, &a, &run);
    if (*agreed != TR_OK) return TR_OK;
    TR_TRY(hear_times(k, &a, &run));
    TR_TRY(keep_record(k, &a, &run, fresh));
    if (run.times.clocks < a.clocks) r->left = 0; /* it was stopped */
    return TR_OK;
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
    if (k->next.stage >= 0) ran = k->record[k->next.stage].ran;
    if (k->next.stage >= 0 && k->record[k->next.stage].left > 0) return TR_OK;
    TR_TRY(k->task->next(k->task->state, &ran, &next));
    TR_TRY(check_next(k, &next));
    *over = next.stage < 0;
    if (*over) return TR_OK;
    struct record *r = &k->record[next.stage];
    k->next = next;
    k->group = tr_choose_place(r->last, NULL, k->tr->layout.groups, 0, true);
    r->left = next.clocks;
    r->ran = (tr_ran){.stage = next.stage};
    r->cut = false;
    return TR_OK;
}

static int direct(struct task *k, int *agreed)
{
    bool over = false;
    int status = TR_OK;
    while (status == TR_OK && *agreed == TR_OK) {
        status = ask(k, &over);
        if (status != TR_OK || over) break;
        status = pause_if_due(k, agreed);
        if (status == TR_OK && *agreed == TR_OK) status = run_part(k, agreed);
    }
    if (*agreed == TR_ERR_STOPPED) return status; /* as all know */
    struct assignment end = {.stage = END, .clocks = *agreed};
    int told = tell(k, &end);
    return status == TR_OK ? told : status;
}

static int open_records(struct task *k)
{
    TR_TRY(TR_NEW(&k->record, k->task->n));
    for (size_t i = 0; i < k->task->n; i++) TR_TRY(TR_NEW(&k->record[i].last, (size_t)k->tr->layout.groups));
    return TR_OK;
}

static void finish_sum(struct record *r, const char *name)
{
    snprintf(r->sum.name, sizeof r->sum.name, "%s", name);
    if (r->transitions > 1) qsort(r->transition, r->transitions, sizeof *r->transition, by_seconds);
    r->sum.transition = r->transitions ? r->transition[r->transitions / 2] : NAN;
    if (r->searches) tr_degree_describe(&r->degree, r->sum.degree, sizeof r->sum.degree);
}

static int show_records(struct task *k)
{
    struct tr_stage_sum *sums;
    if (!k->tr->task_observer) return TR_OK;
    TR_TRY(TR_NEW(&sums, k->task->n));
    for (size_t i = 0; i < k->task->n; i++) {
        finish_sum(&k->record[i], k->task->stage[i].name);
        sums[i] = k->record[i].sum;
    }
    int status = k->tr->task_observer(k->tr->task_observer_state, k->task, sums);
    free(sums);
    return status;
}

static void close_records(struct task *k)
{
    for (size_t i = 0; k->record && i < k->task->n; i++) {
        free(k->record[i].last);
        free(k->record[i].transition);
    }
    free(k->record);
}

/* ---- all others ---- */

/* A failure is known to those who took part, and to the others when the task ends. */
static int follow(struct task *k, int *agreed)
{
    while (*agreed != TR_ERR_STOPPED) {
        struct assignment a;
        struct tr_stage_run run;
        MPI_Request request;
        MPI_Irecv(&a, sizeof a, MPI_BYTE, 0, TR_TAG_ASSIGN, k->tr->wire, &request);
        TR_TRY(tr_wait_request(k->tr, &request, NULL));
        if (a.stage == END) {
            *agreed = (int)a.clocks;
            return TR_OK;
        }
        if (a.stage == MOVE) (void)move_tables(k, (uint32_t)a.clocks);
        else if (a.stage == TAKE) TR_TRY(take(k, &a, agreed));
        else if (play(k, &a, &run) == TR_OK) TR_TRY(hear_times(k, &a, &run));
    }
    return TR_OK;
}

int tr_run_task(tr_context *tr, const tr_task *task)
{
    struct task k = {.tr = tr, .task = task, .began = tr_now(), .group = -1, .next = {.stage = -1}};
    int agreed = TR_OK;
    bool kept = is_kept(&k);
    if (tr->before_run) TR_TRY(tr->before_run(tr));
    TR_TRY(tr_agree(tr, tr_tables_park(tr, true, &k.outer)));
    TR_TRY(tr_agree(tr, tr->rank == 0 ? open_records(&k) : TR_OK));
    tr->tables->traffic = (struct tr_traffic){0};
    tr_lifeline_stage(tr->lifeline);
    if (kept) tr_signals_listen();
    agreed = go_on(&k);
    int status = TR_OK;
    if (agreed == TR_OK) status = tr->rank == 0 ? direct(&k, &agreed) : follow(&k, &agreed);
    if (kept) tr_signals_deafen();
    if (status == TR_OK && agreed == TR_OK && tr->rank == 0) status = show_records(&k);
    close_seats(&k);
    close_records(&k);
    if (status == TR_OK) status = tr_tables_take_up(tr, &k.outer);
    status = tr_agree(tr, status);
    if (agreed != TR_OK && tr->status == TR_OK) tr->status = agreed;
    return agreed != TR_OK ? agreed : status;
}

void tr_on_task(tr_context *tr, tr_task_observer *observer, void *who)
{
    tr->task_observer = observer;
    tr->task_observer_state = who;
}
