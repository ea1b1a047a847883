/* Tasks: rank 0 says what is next, and tells those who take part; all others wait to be told.
 *
 * A stage and a set of workers that it runs on are a seat. The first time all ranks get it ready together; its views,
 * windows and communicators are then kept, and next time only those who take part act.
 */
#include <math.h>
#include <stdlib.h>

#include "stage/degree.h"
#include "stage/run.h"

struct seat {
    struct seat *next;
    int stage;
    struct tr_cast cast;
    bool prepared, parks;
    struct tr_parked parked;
    void *kept; /* as tr_worker has it */
};

/* What rank 0 tells others: a stage to run, that there is none any more, or that tables move to other servers. */
enum { END = -1, MOVE = -2 };
struct assignment {
    int64_t stage;  /* or END or MOVE */
    int64_t clocks; /* END: the task's status, as far as it is agreed on; MOVE: servers of its tables */
    int64_t before, whole;
    struct tr_cast_choice cast;
    tr_command command;
};

/* Rank 0's record of a stage. */
struct record {
    struct tr_degree degree;
    bool searches; /* the degree has begun */
    int64_t left;  /* clocks of the run that next() has asked for */
    tr_ran ran;    /* of these, so far */
    int *last;     /* by group: number of the run in which it had the stage last, 0 before */
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
    int servers;                              /* rank 0: of its tables, as far as it was said */
    int64_t judged;                           /* rank 0: evaluations so far */
    int group; /* rank 0: whose turn it is, while parts of one run follow each other; -1 */
};

/* ---- seats ---- */

static bool same_cast(struct tr_cast_choice a, struct tr_cast_choice b)
{
    return a.first_group == b.first_group && a.groups == b.groups && a.group_size == b.group_size;
}

static struct seat *find_seat(const struct task *k, const struct assignment *a)
{
    for (struct seat *s = k->seats; s; s = s->next)
        if (s->stage == a->stage && same_cast(s->cast.of, a->cast)) return s;
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
    struct tr_cast with_all = s->cast;
    with_all.crew = tr->world;
    with_all.in_crew = NULL;
    tr->cast = &with_all;
    tr_tables_part(tr, &s->parked); /* of a run before, if it could not be kept */
    struct tr_stage_run run;
    tr_stage_open(tr, stage, &run);
    TR_TRY(tr_sync_begin(tr->sync));
    int prepared = tr_stage_prepare(&run);
    s->kept = run.me.kept;
    TR_TRY(prepared);
    bool needed = false;
    int status = tr_tables_needs(tr, &needed, &s->parks);
    if (status == TR_OK && !s->cast.in_crew) status = tr_cast_set_crew(tr, &s->cast, needed);
    tr_clock_leave(tr->sync->clock);
    TR_TRY(tr_agree(tr, status));
    tr->cast = &s->cast;
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
    shown.clocks = k->task->evaluations;
    run->shown = &shown;
    run->judged = k->judged;
    run->begin = k->began;
    run->compute_seconds = k->compute_seconds;
    run->evaluate_seconds = k->evaluate_seconds;
    run->me.kept = s->kept;
    run->me.before = a->before;
    run->me.whole = a->whole;
    run->me.command = a->command;
    if (!tr_cast_needs(&s->cast, tr->rank)) return TR_OK;
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
    if (!s->cast.owned) TR_TRY(tr_cast_open(tr, a->cast, &s->cast));
    tr_stage stage = k->task->stage[a->stage];
    stage.clocks = a->clocks;
    tr->cast = &s->cast;
    int status = ready ? tr_tables_take_up(tr, &s->parked) : prepare(k, s, &stage);
    if (status == TR_OK) status = run_seat(k, s, a, &stage, run);
    if (!s->parks) release(k, s);
    int parked = tr_tables_park(tr, s->parks, &s->parked);
    if (!s->parks) s->prepared = false;
    tr->cast = &tr->all;
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
        tr_cast_close(&s->cast);
        free(s);
    }
}

/* ---- rank 0 ---- */

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The group that has not had the stage for longest. */
static int longest_unused(const struct record *r, int groups)
{
    int best = 0;
    for (int g = 1; g < groups; g++)
        if (r->last[g] < r->last[best]) best = g;
    return best;
}

static struct tr_cast_choice choose_cast(const struct task *k, int stage, int workers)
{
    const struct tr_layout *layout = &k->tr->layout;
    if (k->task->stage[stage].one_group)
        return (struct tr_cast_choice){k->group, 1, tr_min_int(workers, layout->group_size)};
    return (struct tr_cast_choice){0, layout->groups,
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

/* The next part of what next() has asked for: all of it, or a sub-stage of a search. */
static struct assignment plan(const struct task *k, const tr_next *next)
{
    struct record *r = &k->record[next->stage];
    int workers = next->workers == TR_ALL_WORKERS ? most_workers(k, next->stage) : next->workers;
    int64_t clocks = r->left;
    if (next->workers == TR_AUTO_WORKERS) {
        struct tr_substage sub = search(k, r, next->stage);
        workers = sub.parallelism;
        clocks = sub.clocks;
    }
    return (struct assignment){.stage = next->stage,
                               .clocks = clocks,
                               .before = next->clocks - r->left,
                               .whole = next->clocks,
                               .cast = choose_cast(k, next->stage, workers),
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
        if (!s || !s->prepared || tr_cast_needs(&s->cast, rank))
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
    int first = tr_cast_rank(tr, &s->cast, 0);
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
    int workers = a->cast.groups * a->cast.group_size;
    double seconds = run->last - run->first;
    size_t timed = (size_t)(run->times.clocks < TR_TIMED_CLOCKS ? run->times.clocks : TR_TIMED_CLOCKS);
    if (r->searches) tr_degree_report(&r->degree, run->times.seconds, timed);
    r->left -= a->clocks;
    r->ran.clocks += run->times.clocks;
    r->ran.workers = workers;
    r->ran.first_group = a->cast.first_group;
    r->ran.seconds += seconds;
    r->ran.verdict = run->verdict;
    struct tr_stage_sum *sum = &r->sum;
    sum->fewest = sum->runs == 0 ? workers : tr_min_int(sum->fewest, workers);
    sum->most = tr_max_int(sum->most, workers);
    sum->runs++;
    for (int g = 0; g < a->cast.groups; g++) r->last[a->cast.first_group + g] = sum->runs;
    sum->clocks += run->times.clocks;
    sum->seconds += seconds;
    sum->worker_seconds += seconds * workers;
    if (!fresh) TR_TRY(note_transition(k, r, run->first)); /* to get ready is more than to go over */
    k->ended = run->last;
    return TR_OK;
}

/* One run that next() has asked for, in as many parts as the search for its degree takes. *agreed: what the crew has said
 * of it. */
static int run_next(struct task *k, const tr_next *next, int *agreed)
{
    struct record *r = &k->record[next->stage];
    if (next->servers > 0 && next->servers != k->servers) {
        TR_TRY(tell(k, &(struct assignment){.stage = MOVE, .clocks = next->servers}));
        *agreed = move_tables(k, (uint32_t)next->servers);
        if (*agreed != TR_OK) return TR_OK;
        k->servers = next->servers;
    }
    r->left = next->clocks;
    r->ran = (tr_ran){.stage = next->stage};
    k->group = longest_unused(r, k->tr->layout.groups);
    while (r->left > 0) {
        struct assignment a = plan(k, next);
        const struct seat *s = find_seat(k, &a);
        bool fresh = !s || !s->prepared;
        struct tr_stage_run run;
        TR_TRY(tell(k, &a));
        *agreed = play(k, &a, &run);
        if (*agreed != TR_OK) return TR_OK;
        TR_TRY(hear_times(k, &a, &run));
        TR_TRY(keep_record(k, &a, &run, fresh));
        if (run.times.clocks < a.clocks) r->left = 0; /* it was stopped */
    }
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

static int direct(struct task *k, int *agreed)
{
    tr_ran ran = {.stage = -1, .verdict = {.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN}};
    int status = TR_OK;
    while (status == TR_OK && *agreed == TR_OK) {
        tr_next next = {.stage = -1};
        status = k->task->next(k->task->state, &ran, &next);
        if (status == TR_OK) status = check_next(k, &next);
        if (status != TR_OK || next.stage < 0) break;
        status = run_next(k, &next, agreed);
        ran = k->record[next.stage].ran;
    }
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
    qsort(r->transition, r->transitions, sizeof *r->transition, by_seconds);
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

static int hear(struct task *k, struct assignment *a)
{
    tr_context *tr = k->tr;
    MPI_Request request;
    MPI_Irecv(a, sizeof *a, MPI_BYTE, 0, TR_TAG_ASSIGN, tr->wire, &request);
    struct tr_waiting waiting = tr_waiting_begin();
    while (!tr_request_done(&request)) TR_TRY(tr_waiting_turn(tr, &waiting, NULL));
    return TR_OK;
}

/* A failure is known to those who took part, and to the others when the task ends. */
static int follow(struct task *k, int *agreed)
{
    for (;;) {
        struct assignment a;
        struct tr_stage_run run;
        TR_TRY(hear(k, &a));
        if (a.stage == END) {
            *agreed = (int)a.clocks;
            return TR_OK;
        }
        if (a.stage == MOVE) (void)move_tables(k, (uint32_t)a.clocks);
        else if (play(k, &a, &run) == TR_OK) TR_TRY(hear_times(k, &a, &run));
    }
}

int tr_run_task(tr_context *tr, const tr_task *task)
{
    struct task k = {.tr = tr, .task = task, .began = tr_now(), .group = -1};
    int agreed = TR_OK;
    TR_TRY(tr_agree(tr, tr_tables_park(tr, true, &k.outer)));
    TR_TRY(tr_agree(tr, tr->rank == 0 ? open_records(&k) : TR_OK));
    tr->tables->traffic = (struct tr_traffic){0};
    int status = tr->rank == 0 ? direct(&k, &agreed) : follow(&k, &agreed);
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
