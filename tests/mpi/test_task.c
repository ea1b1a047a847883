/* Tasks: stages in turns, each on workers of its own. */
#include "mpi_unit.h"

#include "store/checkpoint.h"
#include "trireme/replica.h"

enum { KEYS = 60, ADD = 0, READ = 1, ROUNDS = 5 };

#define RUN(which, many, on) ((tr_next){.stage = (which), .clocks = (many), .workers = (on)})

struct play {
    tr_context *tr;
    tr_table *table;
    int prepared[2], ran[2], begun[2]; /* how often on this rank */
    int64_t clocks;                    /* that this worker has added in */
    int next;                          /* rank 0: turns */
    double added;                      /* rank 0: additions to each key so far */
    const tr_next *plan;               /* rank 0: what to run */
    int groups_seen;                   /* rank 0: bits of the groups that have read */
    int fail_at;                       /* run of the stage ADD in which worker 0 fails; -1: none */
};

static const char *task_layout(int i)
{
    static const char *const layouts[] = {
        "ranks.layout=colocated", "ranks.layout=colocated ranks.group_size=2",
        "ranks.node_size=2 ranks.group_size=2 table.route=request",
        "ranks.servers=1 ranks.groups=1 ranks.group_size=1", "ranks.servers=2 ranks.node_size=3"};
    static const int least[] = {1, 2, 4, 3, 6};
    for (int k = 0; k < (int)COUNT(layouts); k++)
        if (mpi_test.size >= least[k] && (k != 1 || mpi_test.size % 2 == 0) &&
            (k != 2 || mpi_test.size % 2 == 0) && i-- == 0)
            return layouts[k];
    return NULL;
}

static int open_adding(tr_worker *me, void *state)
{
    struct play *p = state;
    p->prepared[ADD]++;
    return mpi_open_view(p->table, TR_VIEW_UPDATE, (tr_view **)&me->kept);
}

static int open_reading(tr_worker *me, void *state)
{
    struct play *p = state;
    p->prepared[READ]++;
    return mpi_open_view(p->table, TR_VIEW_READ, (tr_view **)&me->kept);
}

static void close_view(void *kept)
{
    tr_view *view = kept;
    tr_view_close(&view);
}

static int begin_add(tr_context *tr, void *state)
{
    ((struct play *)state)->begun[ADD]++;
    return TR_OK;
}

static int add(tr_worker *me, void *state)
{
    struct play *p = state;
    if (p->fail_at == p->ran[ADD] && me->worker == 0 && me->clock == 0)
        return tr_fail(TR_ERR_DATA, "worker 0 does not like it");
    if (me->clock == me->clocks - 1) p->ran[ADD]++;
    tr_view *view = me->kept;
    TR_TRY(tr_view_pull(view));
    for (int i = 0; i < KEYS; i++) ((double *)view->delta)[i] = 1;
    p->clocks++;
    mpi_check(me->worker >= 0 && me->worker < me->workers, "worker %d of %d", me->worker, me->workers);
    mpi_check(me->workers == me->groups * me->group_size, "%d workers in %d groups of %d", me->workers,
              me->groups, me->group_size);
    return tr_view_push(view);
}

static int look(tr_worker *me, void *state)
{
    ((struct play *)state)->ran[READ]++;
    return tr_view_pull(me->kept);
}

static int report(tr_worker *me, void *state, tr_report *report)
{
    const tr_view *view = me->kept;
    for (int i = 0; i < KEYS; i++) report->sum[0] += ((const double *)view->value)[i];
    report->sum[1] += me->tr->me.group == 0 ? 1 : 1000;
    report->sum[2] += 1;
    return TR_OK;
}

/* Every reader sees all updates of the earlier stages. */
static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    struct play *p = state;
    double expected = p->added * KEYS * sums->sum[2];
    mpi_check(sums->sum[0] == expected, "%g readers see %g, expected %g", sums->sum[2], sums->sum[0],
              expected);
    if (sums->sum[1] > 0 && fmod(sums->sum[1], 1000) > 0) p->groups_seen |= 1;
    if (sums->sum[1] >= 1000) p->groups_seen |= 2;
    evaluation->objective = sums->sum[0];
    return TR_OK;
}

static int next(void *state, const tr_ran *ran, tr_next *next)
{
    struct play *p = state;
    if (ran->stage == ADD) p->added += (double)ran->clocks * ran->workers;
    if (ran->stage == READ)
        mpi_check(ran->evaluation.objective >= 0, "no verdict: %g", ran->evaluation.objective);
    *next = p->plan[p->next++];
    return TR_OK;
}

static void open_play(struct play *p, const char *settings)
{
    *p = (struct play){.tr = mpi_context(settings), .fail_at = -1};
    mpi_ok(tr_table_create(p->tr, "w", TR_F64, 1, KEYS, &p->table));
}

static void close_play(struct play *p)
{
    (void)tr_close(p->tr);
}

static int run_play(struct play *p, const tr_next *plan)
{
    const tr_stage stages[] = {{.name = "add",
                                .state = p,
                                .prepare = open_adding,
                                .begin = begin_add,
                                .compute = add,
                                .release = close_view},
                               {.name = "read",
                                .state = p,
                                .one_group = true,
                                .prepare = open_reading,
                                .compute = look,
                                .release = close_view,
                                .evaluate = report,
                                .summarize = summarize}};
    const tr_task task = {.name = "turns", .stage = stages, .n = 2, .state = p, .next = next};
    p->plan = plan;
    return tr_run_task(p->tr, &task);
}

MPI_CASE(a_stage_sees_all_that_stages_before_have_added)
{
    for (int i = 0; task_layout(i); i++) {
        struct play p;
        open_play(&p, task_layout(i));
        tr_next plan[2 * ROUNDS + 1] = {{0}};
        for (int r = 0; r < ROUNDS; r++) {
            plan[2 * r] = RUN(ADD, 1 + r % 3, r % 2 ? TR_ALL_WORKERS : 1);
            plan[2 * r + 1] = RUN(READ, 1, r % 2 ? 1 : TR_ALL_WORKERS);
        }
        plan[2 * ROUNDS].stage = -1;
        mpi_ok(run_play(&p, plan));
        if (p.tr->rank == 0) mpi_equal(p.next, 2 * ROUNDS + 1);
        if (p.tr->rank == 0 && p.tr->layout.groups > 1) mpi_equal(p.groups_seen, 3);
        close_play(&p);
    }
}

/* What was opened once for a set of workers serves in all later runs; those who have no part in a run do nothing. */
MPI_CASE(what_was_opened_is_kept)
{
    struct play p;
    open_play(&p, "ranks.layout=colocated table.servers=1");
    tr_next plan[ROUNDS * 2 + 2];
    plan[0] = RUN(ADD, 2, TR_ALL_WORKERS);
    for (int r = 0; r < ROUNDS * 2; r++) plan[r + 1] = RUN(READ, 1, 1);
    plan[ROUNDS * 2 + 1] = (tr_next){.stage = -1};
    mpi_ok(run_play(&p, plan));
    mpi_equal(p.prepared[ADD], 1);
    mpi_equal(p.begun[ADD], 1);
    int group = p.tr->me.group, runs = ROUNDS * 2, groups = p.tr->layout.groups;
    int turns = runs / groups + (group < runs % groups);
    if (p.tr->me.member > 0) turns = 0;
    mpi_equal(p.ran[READ], turns);
    mpi_check(p.prepared[READ] == (turns > 0), "prepared %d times for %d runs", p.prepared[READ], turns);
    close_play(&p);
}

/* Updates as messages: servers count who pushes, so that the stage is made ready again every time. */
MPI_CASE(stages_that_cannot_be_kept_are_made_ready_again)
{
    static const char *const ways[] = {"table.push=message", "table.storage=hash", "table.precision=f16",
                                       "sync.mode=asp"};
    for (int i = 0; i < 4; i++) {
        struct play p;
        open_play(&p, ways[i]);
        tr_next plan[] = {RUN(ADD, 2, TR_ALL_WORKERS),
                          RUN(READ, 1, 1),
                          RUN(ADD, 1, TR_ALL_WORKERS),
                          RUN(ADD, 2, 1),
                          RUN(READ, 1, 1),
                          {.stage = -1}};
        mpi_ok(run_play(&p, plan));
        close_play(&p);
    }
}

MPI_CASE(the_number_of_workers_is_found)
{
    struct play p;
    open_play(&p, "ranks.layout=colocated");
    tr_next plan[] = {RUN(ADD, 150, TR_AUTO_WORKERS), RUN(ADD, 20, TR_AUTO_WORKERS), {.stage = -1}};
    mpi_ok(run_play(&p, plan));
    if (p.tr->rank == 0) mpi_equal(p.clocks, 170);
    close_play(&p);
}

MPI_CASE(a_stage_that_fails_ends_the_task_everywhere)
{
    for (int at = 0; at < 2; at++) {
        struct play p;
        open_play(&p, "ranks.layout=colocated");
        p.fail_at = at;
        tr_next plan[] = {
            RUN(ADD, 2, 1), RUN(READ, 1, 1), RUN(ADD, 2, TR_ALL_WORKERS), RUN(READ, 1, 1), {.stage = -1}};
        int status = run_play(&p, plan);
        mpi_equal(status, TR_ERR_DATA);
        if (p.tr->rank == 0) mpi_equal(p.next, (at ? 3 : 1));
        close_play(&p);
    }
}

/* ---- from node to node ---- */

enum { WORDS = 5000, TURNS = 6 };

struct relay {
    tr_table *table;
    tr_replica *replica;
    int turn; /* rank 0 */
};

/* The workers of a node take what the node before had, and each adds 1 to its part. */
static int run_on(tr_worker *me, void *state)
{
    struct relay *r = state;
    size_t from = WORDS * (size_t)me->worker / (size_t)me->workers,
           to = WORDS * ((size_t)me->worker + 1) / (size_t)me->workers;
    int turn = (int)me->command.word[0], group = (int)me->command.word[1];
    TR_TRY(tr_replica_take_from(r->replica, me, turn > 0 ? group : -1, 0));
    double *value = tr_replica_values(r->replica);
    for (size_t i = from; i < to; i++) {
        mpi_check(value[i] == turn, "word %zu is %g in turn %d", i, value[i], turn);
        value[i] += 1;
    }
    mpi_check(me->tr->tables->traffic.bytes_pulled == 0, "servers have been asked");
    return tr_replica_leave(r->replica, me);
}

static int pass_on(void *state, const tr_ran *ran, tr_next *next)
{
    struct relay *r = state;
    if (ran->stage >= 0) mpi_equal(ran->clocks, 1);
    *next = (tr_next){.stage = r->turn < TURNS ? 0 : -1, .clocks = 1, .workers = TR_ALL_WORKERS};
    next->command = (tr_command){{r->turn++, ran->stage < 0 ? -1 : ran->first_group}};
    return TR_OK;
}

MPI_CASE(a_model_goes_from_node_to_node_past_the_servers)
{
    if (mpi_test.size % 2) return;
    struct relay r = {.turn = 0};
    int size = mpi_test.size > 2 ? 2 : 1;
    const char *settings =
        mpi_text("ranks.node_size=%d ranks.group_size=%d", mpi_test.hosts ? 0 : size, size);
    tr_context *tr = mpi_context(settings);
    mpi_ok(tr_table_create(tr, "w", TR_F64, 1, WORDS, &r.table));
    const tr_replica_array array = {.table = r.table, .given = true};
    mpi_ok(tr_replica_open_with(tr, &(tr_replica_options){.array = &array, .arrays = 1, .moves = 1},
                                &r.replica));
    const tr_stage stage = {.name = "run", .state = &r, .one_group = true, .compute = run_on};
    const tr_task task = {.name = "relay", .stage = &stage, .n = 1, .state = &r, .next = pass_on};
    mpi_ok(tr_run_task(tr, &task));
    int groups = tr->layout.groups, mine = tr->me.group, last = -1;
    for (int turn = 0; turn < TURNS; turn++)
        if (turn % groups == mine) last = turn;
    tr_replica_counts counts;
    tr_replica_count(r.replica, &counts);
    uint64_t fetched = tr->node_rank == 0 ? counts.bytes_moved : 0, all = 0,
             turns = (uint64_t)(groups > 1 ? TURNS - 1 : 0);
    MPI_Allreduce(&fetched, &all, 1, MPI_UINT64_T, MPI_SUM, tr->world);
    if (groups > 1) mpi_equal(all, turns * WORDS * sizeof(double));
    if (last >= 0)
        for (size_t i = 0; i < WORDS; i++) {
            double seen = ((double *)tr_replica_array_of(r.replica, 0))[i];
            mpi_check(seen == last + 1, "word %zu: %g after turn %d", i, seen, last);
        }
    tr_replica_close(&r.replica);
    (void)tr_close(tr);
}

/* ---- to more and fewer servers ---- */

enum { MANY = 20000 };

struct moving {
    tr_table *table;
    int turn; /* rank 0 */
};

static int check_many(tr_worker *me, void *state)
{
    tr_view *view = me->kept;
    TR_TRY(tr_view_pull(view));
    for (size_t i = 0; i < view->n; i++) {
        int32_t value = ((const int32_t *)view->value)[i];
        mpi_check(value == (int32_t)i + (int32_t)me->command.word[0] * me->workers, "key %zu is %d", i,
                  (int)value);
        ((int32_t *)view->delta)[i] = 1;
    }
    return tr_view_push(view);
}

static int open_many(tr_worker *me, void *state)
{
    return mpi_open_view(((struct moving *)state)->table, TR_VIEW_UPDATE, (tr_view **)&me->kept);
}

static int fill_many(tr_worker *me, void *state)
{
    tr_view *view = me->kept;
    TR_TRY(tr_view_pull(view));
    for (size_t i = 0; me->worker == 0 && i < view->n; i++) ((int32_t *)view->delta)[i] = (int32_t)i;
    return tr_view_push(view);
}

static int servers_of_turn(const tr_context *tr, int turn)
{
    static const int part[] = {0, 1, 2, 0, 1, 3};
    int all = tr->layout.servers;
    return tr_max_int(1, all - part[turn % 6] * all / 4);
}

static int move_about(void *state, const tr_ran *ran, tr_next *next)
{
    struct moving *m = state;
    int turn = ran->stage < 0 ? 0 : ++m->turn;
    bool over = turn > TURNS;
    *next = (tr_next){.stage = over ? -1 : turn == 0 ? 0 : 1, .clocks = 1, .workers = TR_ALL_WORKERS};
    next->servers = servers_of_turn(m->table->tr, turn);
    next->command.word[0] = turn - 1;
    return TR_OK;
}

MPI_CASE(tables_move_to_other_servers_between_stages)
{
    static const char *const ways[] = {
        "table.partition=ring", "table.partition=range-hash", "table.partition=range",
        "table.partition=ring table.route=get table.push=message", "table.partition=ring ranks.node_size=2"};
    for (int i = 0; i < 5; i++) {
        struct moving state = {NULL, 0};
        tr_context *tr = mpi_context(ways[i]);
        mpi_ok(tr_table_create(tr, "many", TR_I32, 1, MANY, &state.table));
        const tr_stage stages[] = {{.name = "fill",
                                    .state = &state,
                                    .prepare = open_many,
                                    .compute = fill_many,
                                    .release = close_view},
                                   {.name = "check",
                                    .state = &state,
                                    .prepare = open_many,
                                    .compute = check_many,
                                    .release = close_view}};
        const tr_task task = {.name = "moves",
                              .stage = stages,
                              .n = 2,
                              .table = &state.table,
                              .tables = 1,
                              .state = &state,
                              .next = move_about};
        mpi_ok(tr_run_task(tr, &task));
        int last = servers_of_turn(tr, TURNS);
        mpi_equal((int)state.table->partition.servers, last);
        (void)tr_close(tr);
    }
}

/* On a ring a server that comes takes its part, and nothing else moves. */
MPI_CASE(on_a_ring_only_what_must_moves)
{
    if (mpi_test.size < 3) return;
    tr_context *tr = mpi_context("table.partition=ring table.servers=2 table.block=16");
    tr_table *table;
    uint64_t moved = 0, back = 0, least = (uint64_t)(MANY * sizeof(double)) / 3;
    mpi_ok(tr_table_create(tr, "w", TR_F64, 1, MANY, &table));
    mpi_ok(tr_table_resize(table, 3, &moved));
    uint64_t count[3] = {0};
    tr_partition_count(&table->partition, count);
    mpi_equal(moved, count[2] * sizeof(double));
    mpi_check(moved > least / 2 && moved < 2 * least, "%lu bytes", moved);
    mpi_ok(tr_table_resize(table, 2, &back));
    mpi_equal(back, moved);
    mpi_check(tr_table_resize(table, 1000, &moved) == TR_ERR_CONFIG, "1000 servers");
    (void)tr_close(tr);
}

/* What is done after a task finds all as it was before. */
MPI_CASE(stages_by_themselves_go_on_after_a_task)
{
    struct play p;
    open_play(&p, "ranks.layout=colocated");
    tr_next plan[] = {RUN(ADD, 2, TR_ALL_WORKERS), RUN(READ, 1, 1), {.stage = -1}};
    mpi_ok(run_play(&p, plan));
    const tr_stage stage = {.name = "alone",
                            .state = &p,
                            .clocks = 3,
                            .prepare = open_adding,
                            .compute = add,
                            .release = close_view};
    mpi_ok(tr_run(p.tr, &stage));
    p.next = 0;
    p.added += tr_workers(p.tr) * 3;
    tr_next again[] = {RUN(ADD, 1, TR_ALL_WORKERS), RUN(READ, 1, 1), {.stage = -1}};
    mpi_ok(run_play(&p, again));
    close_play(&p);
}

/* ---- checkpoints ---- */

enum { LONG_CLOCKS = 24, KEPT_TURNS = 8, MOST_ROWS = 64 };

/* A task that can be stopped, and its record. */
struct trial {
    tr_context *tr;
    tr_table *table;
    const tr_next *plan;
    double nap;         /* seconds that a clock takes all workers together */
    int stop_turn;      /* next() requests a stop in this turn, */
    int64_t stop_clock; /* or worker 0 in this clock of a run, */
    int stop_workers;   /* or worker 0 of a stage with this number of workers; -1: none */
    int fail_turn;      /* worker 0 fails in this turn; -1: not */
    /* kept */
    int64_t turn;
    double added;
    /* seen */
    /* sum of the clocks of whole runs that this rank has ended; and how many clocks */
    int64_t ordinals, runs_here;
    int first_workers;            /* of the first run on this rank */
    int group[KEPT_TURNS];        /* rank 0: which has read, by turn */
    int64_t row[MOST_ROWS], rows; /* rank 0: clocks of evaluations */
    int asked;                    /* rank 0: next() was, so often */
    struct tr_stage_sum sum[2];
};

static int open_trial_adding(tr_worker *me, void *state)
{
    struct trial *t = state;
    return mpi_open_view(t->table, TR_VIEW_UPDATE, (tr_view **)&me->kept);
}

static int open_trial_reading(tr_worker *me, void *state)
{
    struct trial *t = state;
    return mpi_open_view(t->table, TR_VIEW_READ, (tr_view **)&me->kept);
}

static int trial_add(tr_worker *me, void *state)
{
    struct trial *t = state;
    tr_view *view = me->kept;
    int64_t at = me->before + me->clock;
    if (me->worker == 0 && me->command.word[0] == t->fail_turn)
        return tr_fail(TR_ERR_DATA, "worker 0 does not like it");
    mpi_check(me->whole == me->command.word[1], "clock %ld of %ld, expected %ld", at, me->whole,
              me->command.word[1]);
    if (t->runs_here++ == 0) t->first_workers = me->workers;
    t->ordinals += at + 1;
    if (me->worker == 0 && (at == t->stop_clock || me->workers == t->stop_workers)) {
        t->stop_clock = t->stop_workers = -1;
        tr_signals_pass(true);
    }
    if (t->nap > 0) tr_sleep(t->nap / me->workers);
    TR_TRY(tr_view_pull(view));
    for (int i = 0; i < KEYS; i++) ((double *)view->delta)[i] = 1;
    return tr_view_push(view);
}

static int trial_report(tr_worker *me, void *state, tr_report *report)
{
    report->sum[0] = ((const double *)((tr_view *)me->kept)->value)[KEYS - 1];
    report->sum[1] = 1;
    report->sum[2] = me->tr->me.group;
    return TR_OK;
}

static int trial_look(tr_worker *me, void *state)
{
    return tr_view_pull(me->kept);
}

static int trial_judge(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    struct trial *t = state;
    mpi_check(sums->sum[0] == t->added * sums->sum[1], "turn %d: it reads %g, expected %g", (int)t->turn,
              sums->sum[0] / sums->sum[1], t->added);
    t->group[(t->turn - 1) % KEPT_TURNS] = (int)(sums->sum[2] / sums->sum[1]);
    evaluation->objective = sums->sum[0] / sums->sum[1];
    return TR_OK;
}

static int trial_next(void *state, const tr_ran *ran, tr_next *next)
{
    struct trial *t = state;
    t->asked++;
    const tr_next *before = t->turn > 0 ? &t->plan[t->turn - 1] : NULL;
    mpi_check(ran->stage == (before ? before->stage : -1), "turn %d: stage %d has run", (int)t->turn,
              ran->stage);
    if (before)
        mpi_check(ran->clocks == before->clocks, "turn %d: it has run for %ld clocks, not %ld", (int)t->turn,
                  ran->clocks, before->clocks);
    if (ran->stage == READ)
        mpi_check(ran->evaluation.objective == t->added, "turn %d: verdict %g", (int)t->turn,
                  ran->evaluation.objective);
    if (ran->stage == ADD) t->added += (double)ran->clocks * ran->workers;
    *next = t->plan[t->turn];
    next->command = (tr_command){{t->turn, next->clocks}};
    if (t->turn++ == t->stop_turn) tr_signals_pass(true);
    return TR_OK;
}

static int trial_keep(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct trial *t = state;
    int64_t turn = t->turn - 1; /* rank 0 */
    TR_TRY(tr_snapshot_common(snapshot, "turn", TR_I64, 1, &t->turn));
    TR_TRY(tr_snapshot_common(snapshot, "added", TR_F64, 1, &t->added));
    if (tr_snapshot_restores(snapshot)) turn = t->turn - 1;
    if (tr_snapshot_restores(snapshot) || mpi_test.rank == 0) mpi_equal(me->command.word[0], turn);
    mpi_check(me->whole == t->plan[me->command.word[0]].clocks && me->before < me->whole,
              "clocks %ld of %ld are over", me->before, me->whole);
    return TR_OK;
}

static int trial_row(void *who, const tr_stage *stage, const struct tr_progress_row *row)
{
    struct trial *t = who;
    mpi_check(!strcmp(stage->name, "trial"), "a row of %s, not of the task", stage->name);
    if (t->rows < MOST_ROWS) t->row[t->rows++] = row->clock;
    return TR_OK;
}

static int trial_sums(void *who, const struct tr_stage_sum *sums, size_t n)
{
    memcpy(((struct trial *)who)->sum, sums, n * sizeof *sums);
    return TR_OK;
}

static const struct trial undisturbed = {
    .stop_turn = -1, .stop_clock = -1, .stop_workers = -1, .fail_turn = -1};

/* A run from its beginning (fresh), or from where the last one was stopped. */
static int run_trial(struct trial *t, const char *settings, const tr_next *plan, uint64_t every, bool fresh)
{
    t->tr = mpi_context(mpi_text("%s output=%s", settings, mpi_folder()));
    t->plan = plan;
    t->turn = t->runs_here = 0;
    t->added = 0;
    t->tr->job->checkpoint.every = (struct tr_job_pace){.clocks = every};
    mpi_ok(tr_checkpoints_open(t->tr, fresh));
    mpi_ok(tr_table_create(t->tr, "w", TR_F64, 1, KEYS, &t->table));
    *tr_observers(t->tr) = (struct tr_observers){.who = t, .progress = trial_row, .sums = trial_sums};
    const tr_stage stages[] = {{.name = "add",
                                .state = t,
                                .prepare = open_trial_adding,
                                .compute = trial_add,
                                .release = close_view},
                               {.name = "read",
                                .state = t,
                                .one_group = true,
                                .prepare = open_trial_reading,
                                .compute = trial_look,
                                .release = close_view,
                                .evaluate = trial_report,
                                .summarize = trial_judge}};
    const tr_task task = {.name = "trial",
                          .stage = stages,
                          .n = 2,
                          .table = &t->table,
                          .tables = 1,
                          .state = t,
                          .next = trial_next,
                          .snapshot = trial_keep};
    return tr_run_task(t->tr, &task);
}

static void end_trial(struct trial *t, int status)
{
    mpi_equal(t->tr->status, status);
    (void)tr_checkpoints_close(t->tr, status == TR_OK, status);
    (void)tr_close(t->tr);
}

static void check_stopped(struct trial *t, int status)
{
    mpi_equal(status, TR_ERR_STOPPED);
    end_trial(t, TR_ERR_STOPPED);
}

static void check_sums(const struct trial *t, const struct trial *whole)
{
    for (int i = 0; mpi_test.rank == 0 && i < 2; i++) {
        const struct tr_stage_sum *a = &t->sum[i], *b = &whole->sum[i];
        mpi_check(a->runs == b->runs && a->clocks == b->clocks && a->fewest == b->fewest &&
                      a->most == b->most,
                  "stage %d: %d runs of %d to %d for %ld clocks, expected %d of %d to %d for %ld", i, a->runs,
                  a->fewest, a->most, a->clocks, b->runs, b->fewest, b->most, b->clocks);
    }
}

#define STEP(which, many, on)                                                                                \
    {                                                                                                        \
        .stage = (which), .clocks = (many), .workers = (on)                                                  \
    }
static const tr_next kept_plan[] = {
    STEP(ADD, 2, TR_ALL_WORKERS), STEP(READ, 1, 1), STEP(ADD, 3, 1),  STEP(READ, 1, TR_ALL_WORKERS),
    STEP(ADD, 1, TR_ALL_WORKERS), STEP(READ, 1, 1), STEP(READ, 1, 1), {.stage = -1}};

/* Stopped in every turn; evaluations, the turns of the groups and the table of stages continue after each restart. */
MPI_CASE(a_task_goes_on_where_it_was_stopped)
{
    const char *layout;
    for (int i = 0; (layout = task_layout(i)); i++) {
        struct trial whole = undisturbed;
        mpi_ok(run_trial(&whole, layout, kept_plan, 0, true));
        end_trial(&whole, TR_OK);
        int every = mpi_test.size > 2 ? 3 : 1;
        for (int turn = i % every; turn < KEPT_TURNS - 1; turn += every) {
            struct trial t = undisturbed;
            t.stop_turn = turn;
            check_stopped(&t, run_trial(&t, layout, kept_plan, 0, true));
            t.stop_turn = -1;
            mpi_ok(run_trial(&t, layout, kept_plan, 0, false));
            mpi_check(mpi_test.rank != 0 || t.turn == KEPT_TURNS, "%d turns", (int)t.turn);
            check_sums(&t, &whole);
            for (int k = 0; mpi_test.rank == 0 && k < KEPT_TURNS; k++)
                mpi_check(t.group[k] == whole.group[k],
                          "stopped in turn %d: group %d has turn %d, expected %d", turn, t.group[k], k,
                          whole.group[k]);
            mpi_equal(t.rows, whole.rows);
            for (int64_t k = 0; k < t.rows; k++) mpi_equal(t.row[k], k + 1);
            end_trial(&t, TR_OK);
        }
    }
}

MPI_CASE(a_task_goes_on_with_another_layout)
{
    struct trial t = undisturbed;
    for (int i = 0; task_layout(i); i++) {
        t.stop_turn = i;
        check_stopped(&t, run_trial(&t, task_layout(i), kept_plan, 0, i == 0));
    }
    t.stop_turn = -1;
    mpi_ok(run_trial(&t, "table.partition=hash", kept_plan, 0, false));
    mpi_check(mpi_test.rank != 0 || t.turn == KEPT_TURNS, "%d turns", (int)t.turn);
    end_trial(&t, TR_OK);
}

/* Between two of its clocks, and every clock is run once. */
MPI_CASE(a_long_run_is_stopped_before_its_end)
{
    static const char *const layouts[] = {"ranks.layout=colocated", "ranks.servers=1 ranks.groups=1"};
    const tr_next plan[] = {RUN(ADD, LONG_CLOCKS, TR_ALL_WORKERS), RUN(READ, 1, 1), {.stage = -1}};
    for (int i = 0; i < (mpi_test.size > 2 ? 2 : 1); i++) {
        struct trial t = undisturbed;
        t.stop_clock = 2;
        t.nap = 0.02 * mpi_test.size;
        check_stopped(&t, run_trial(&t, layouts[i], plan, 0, true));
        int64_t ran = t.runs_here;
        mpi_check(ran < LONG_CLOCKS, "%d clocks were run after a stop", (int)ran);
        t.nap = 0;
        mpi_ok(run_trial(&t, layouts[i], plan, 0, false));
        int64_t all = tr_is(t.tr, TR_SLAVE) ? LONG_CLOCKS : 0;
        mpi_check(ran + t.runs_here == all && t.ordinals == all * (all + 1) / 2,
                  "%d clocks, then %d; their sum is %d", (int)ran, (int)t.runs_here, (int)t.ordinals);
        if (mpi_test.rank == 0) mpi_equal(t.sum[ADD].runs, 1);
        end_trial(&t, TR_OK);
    }
}

/* A search for the number of workers begins with one. */
MPI_CASE(a_search_goes_on)
{
    const tr_next plan[] = {RUN(ADD, 600, TR_AUTO_WORKERS), {.stage = -1}};
    struct trial t = undisturbed;
    char layout[64];
    /* of two workers, one are tried again; with a group on each host, two are, if four are slower */
    if (mpi_test.size < 4 || mpi_test.hosts) return;
    snprintf(layout, sizeof layout, "ranks.layout=colocated ranks.group_size=%d", mpi_test.size);
    t.stop_workers = 2;
    t.nap = 0.02;
    check_stopped(&t, run_trial(&t, layout, plan, 0, true));
    t.stop_workers = -1;
    t.nap = 0;
    mpi_ok(run_trial(&t, layout, plan, 0, false));
    if (mpi_test.rank == 0) {
        mpi_check(t.first_workers > t.tr->layout.groups, "it resumes with %d workers", t.first_workers);
        mpi_equal(t.sum[ADD].clocks, 600);
    }
    end_trial(&t, TR_OK);
}

/* Taken on the way, without a stop; then a failure. */
MPI_CASE(a_task_that_failed_goes_on_from_its_last_checkpoint)
{
    for (uint64_t every = 1; every < 6; every += 2) {
        struct trial t = undisturbed;
        struct tr_checkpoint_counts counts;
        t.fail_turn = 4;
        int status = run_trial(&t, "ranks.layout=colocated", kept_plan, every, true);
        mpi_equal(status, TR_ERR_DATA);
        mpi_ok(tr_checkpoint_settle(t.tr));
        tr_checkpoint_count(t.tr, &counts);
        if (mpi_test.rank == 0) mpi_check(counts.written > 0 && counts.failed == 0, "no checkpoint");
        end_trial(&t, TR_ERR_DATA);
        t.fail_turn = -1;
        t.asked = 0;
        mpi_ok(run_trial(&t, "ranks.layout=colocated", kept_plan, every, false));
        mpi_check(mpi_test.rank != 0 || (t.turn == KEPT_TURNS && t.asked < KEPT_TURNS),
                  "%d turns, %d of them here", (int)t.turn, t.asked);
        end_trial(&t, TR_OK);
    }
}

/* Tables are restored at their old servers, and move from there. */
MPI_CASE(moved_tables_are_where_they_were)
{
    int all;
    struct trial t = undisturbed;
    tr_next plan[] = {
        RUN(ADD, 1, 1), RUN(ADD, 2, TR_ALL_WORKERS), RUN(READ, 1, 1), RUN(READ, 1, 1), {.stage = -1}};
    plan[0].servers = 1;
    plan[3].servers = all = tr_max_int(1, mpi_test.size / 2); /* those between leave it where it is */
    t.stop_turn = 1;
    check_stopped(&t, run_trial(&t, "ranks.layout=colocated", plan, 0, true));
    t.stop_turn = 2;
    int status = run_trial(&t, "ranks.layout=colocated", plan, 0, false);
    mpi_equal(t.table->partition.servers, 1);
    check_stopped(&t, status);
    t.stop_turn = -1;
    mpi_ok(run_trial(&t, "ranks.layout=colocated", plan, 0, false));
    mpi_equal((int)t.table->partition.servers, all);
    end_trial(&t, TR_OK);
}

MPI_CASE(a_task_that_keeps_nothing_is_not_stopped)
{
    struct play p;
    open_play(&p, "ranks.layout=colocated");
    p.tr->job->checkpoint.every = (struct tr_job_pace){.clocks = 1};
    char *to = strdup(mpi_folder());
    free(p.tr->job->checkpoint.to);
    p.tr->job->checkpoint.to = to;
    mpi_ok(tr_checkpoints_open(p.tr, true));
    tr_signals_pass(true);
    tr_next plan[] = {RUN(ADD, 2, TR_ALL_WORKERS), RUN(READ, 1, 1), {.stage = -1}};
    mpi_ok(run_play(&p, plan));
    mpi_ok(tr_checkpoints_close(p.tr, true, TR_OK));
    close_play(&p);
}
