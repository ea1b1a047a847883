/* Training with variance reduction (steps.h explains the methods). An epoch has two stages. The full stage computes the gradient at
 * the snapshot, with workers of all groups. The inner stage takes stochastic steps, with workers of one group on a replica of the
 * model in the memory of their node (FlexPS, sections 3 and 5.3). The table w holds the snapshot, the table mu the gradient, other
 * tables the state that is kept from epoch to epoch.
 *
 * There is one group per node. The rows of a node are stored once in shared memory, and its workers draw from all of these rows. If
 * there are several groups, the inner stage of an epoch has one turn per group, so that the steps draw from all rows. A complete
 * replica moves from node to node directly, and into the tables only at the end of the epoch. A replica on demand (local.model
 * demand) moves through the tables.
 *
 * Each node stores the position (epoch, turn, clock) of its replica. Checkpoints save the replica with the newest position, and
 * restore it at all nodes. */
#include <stdlib.h>
#include <string.h>

#include "../linear.h"
#include "steps.h"

enum { FULL, INNER, STAGES };
static const char *const stage_names[STAGES] = {"full", "inner"};

/* Arrays of the replica, one element per coordinate (replica_list_arrays()). All but SEEN move from node to node. */
enum { SNAPSHOT, MU, ITERATE, SECOND, SUM, SEEN, ARRAYS };

/* Indices of tr_command.word: epoch; turn and number of turns; group whose node has the replica. */
enum { EPOCH, TURN, TURNS, FROM_GROUP };

/* Minimum number of chunks of a small model. With fewer chunks, workers would often wait for locks. */
enum { LEAST_CHUNKS = 64 };

/* Number of clocks of an inner stage while the best number of workers is searched (stages.inner.parallelism auto). */
enum { SEARCHED_CLOCKS = 20 };

/* Default number of non-zeros per clock of an inner stage: a few seconds of work, because stages stop between clocks only. */
static const double clock_nonzeros = 1e9;

/* Position of an inner stage. */
struct position {
    int64_t epoch, turn; /* index of the epoch, and of the turn in the epoch */
    int64_t done; /* number of completed clocks of the turn; after the last clock, 0 in the next turn */
};

/* Memory that the workers of a node share in addition to the arrays of the replica. */
struct shared {
    _Atomic uint64_t step;
    struct position replica; /* position of the replica of this node */
    int64_t slopes;          /* `slope` belongs to epoch slopes - 1; 0: there are no slopes yet */
    double slope[];          /* slopes of the node's rows at the snapshot, as elements of the model's type */
};

struct tr_linear_variance {
    tr_replica *replica;
    tr_table *table[ARRAYS];
    struct tr_variance_model model; /* its arrays are those of the replica */
    struct shared *shared;
    bool on_demand; /* local.model demand: the replica loads chunks when they are used */
    size_t element; /* bytes of an element of the model's type */
    double smoothness;
    double *gradient; /* full stage: gradient of this worker's rows over all coordinates */
    /* on a worker, for the current run of the inner stage */
    struct tr_variance *steps;
    struct position at; /* position at the start of the run */
    uint64_t began;     /* number of steps of the epoch before the run */
    bool is_last_turn;
    bool restored; /* the replica was restored from a checkpoint, and no run has started since */
    /* on the scheduler */
    int64_t epoch, epochs; /* index of the current epoch; number of epochs */
    uint64_t last_steps;   /* number of steps of the last epoch, if it is shorter; else UINT64_MAX */
    int turn, turns;       /* index of the current turn in this epoch; number of turns */
};

/* ---- checking ---- */

static int variance_check(const tr_job *job, const struct tr_linear_options *o)
{
    TR_TRY(tr_job_check_stages(job, stage_names, STAGES));
    const struct tr_refusal list[] = {
        {!tr_job_is(job, "sync.mode", "bsp"), "sync.mode",
         "with variance reduction stages wait for each other: expected sync.mode bsp"},
        {!tr_job_is(job, "data.partition", "replicated"), "data.partition",
         "variance reduction works on the rows of a node: expected data.partition replicated"},
        {!tr_job_is(job, "table.precision", "full"), "table.precision",
         "variance reduction needs table.precision: full"},
        {tr_job_is(job, "table.storage", "hash"), "table.storage",
         "variance reduction cannot work with table.storage: hash"},
        {!tr_job_is(job, "table.filter", "none"), "table.filter",
         "variance reduction needs table.filter: none"},
        {tr_job_is(job, "table.push", "message"), "table.push",
         "variance reduction cannot work with table.push: message"},
        {o->optimizer != TR_PLAIN_SGD, "solve.method", "solve.optimizer is for solve.method: sgd"},
        {!tr_job_is(job, "sync.weight", "sum"), "solve.method", "sync.weight is for solve.method: sgd"},
        {!tr_job_is(job, "local.replace", "lru") && !tr_job_is(job, "local.model", "demand"), "local.replace",
         "local.replace is of no use where the model is there as a whole: expected local.model demand"},
        {o->l1 > 0, "model.l1", "model.l1 needs solve.method descent, or sgd with solve.optimizer ftrl"},
        {.key = NULL}};
    return tr_linear_refuse_any(job, list);
}

/* Checks that all workers of a node are in one group, because the rows of the group are stored once in the memory of the node; and
 * that a group has only one node, because its replica is the only copy of the model between two full stages. */
static int variance_check_groups(const struct tr_linear *m)
{
    enum { NONE = 1 << 30 };
    int worker = tr_set_rank(m->tr, TR_SET_WORKERS);
    int32_t group = worker / tr_group_size(m->tr), least = worker < 0 ? NONE : group,
            most = worker < 0 ? -1 : group, here = worker >= 0, rows = worker < 0 ? 1 : m->train->rows.n > 0;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_NODE, TR_MIN, TR_I32, &least, 1));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_NODE, TR_MAX, TR_I32, &most, 1));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_NODE, TR_SUM, TR_I32, &here, 1));
    if (most > least || (here > 0 && here != tr_group_size(m->tr)))
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: variance reduction needs the workers of a node in one group, which has no others, and "
            "groups are of equal size: start the same number of ranks on each node, and leave ranks.groups "
            "and "
            "ranks.group_size out",
            tr_job_where(m->job, "solve.method"));
    if (rows == 0)
        return tr_fail(
            TR_ERR_DATA, "%s: variance reduction needs rows in every group, and there are only %llu for %d",
            tr_job_where(m->job, "solve.method"), (unsigned long long)m->train->total_rows, tr_groups(m->tr));
    return TR_OK;
}

/* ---- position ---- */

/* Returns the number of steps of an epoch, by all workers. */
static uint64_t epoch_steps(const struct tr_linear *m, int64_t epoch)
{
    const struct tr_linear_variance *v = m->variance;
    uint64_t steps = tr_variance_epoch_steps(m->method, m->problem.n, m->o->inner,
                                             m->o->batch ? m->o->batch : 1, (uint64_t)epoch);
    return epoch == v->epochs - 1 && v->last_steps < steps ? v->last_steps : steps;
}

/* Divides n into `whole` equal parts. Returns the sum of the first `parts` of them. */
static uint64_t first_of(uint64_t n, int64_t parts, int64_t whole)
{
    return (uint64_t)((double)n * (double)parts / (double)whole);
}

/* Returns part i of n, divided into `parts` equal parts. */
static uint64_t share_of(uint64_t n, int64_t i, int64_t parts)
{
    return first_of(n, i + 1, parts) - first_of(n, i, parts);
}

static struct position position_now(const tr_worker *me)
{
    return (struct position){me->command.word[EPOCH], me->command.word[TURN], me->before};
}

static bool position_is_same(struct position a, struct position b)
{
    return a.epoch == b.epoch && a.turn == b.turn && a.done == b.done;
}

/* ---- opening ---- */

/* Prepares coordinates that were loaded from the tables or from the previous node, with all steps before this turn applied. */
static void coordinates_begin(void *state, tr_key first, size_t n, size_t place)
{
    const struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    size_t offset = place * v->element, bytes = n * v->element;
    const char *snapshot = (const char *)v->model.snapshot + offset;
    bool is_first = v->at.epoch == 0;
    (void)first;
    if (v->at.turn > 0) {
        for (size_t j = place; j < place + n; j++) v->model.last[j] = (uint32_t)v->began;
        return;
    }
    if (is_first || m->method == TR_METHOD_SVRG) memcpy((char *)v->model.w + offset, snapshot, bytes);
    if (is_first && v->model.z) memcpy((char *)v->model.z + offset, snapshot, bytes);
    if (v->model.sum) memset(v->model.sum + place, 0, n * sizeof *v->model.sum);
    memset(v->model.last + place, 0, n * sizeof *v->model.last);
}

/* After the last step of a turn: applies missed steps to coordinates; in the last turn also computes their next snapshot. */
static void coordinates_end(void *state, tr_key first, size_t n, size_t place)
{
    const struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    tr_variance_settle(v->steps, &v->model, first, first + n, place);
    if (v->is_last_turn)
        tr_variance_snapshot(v->steps, &v->model, place, place + n, (void *)(uintptr_t)v->model.snapshot);
}

/* An array of the replica. Tables, the replica and checkpoints follow from the list of arrays. */
struct array {
    const char *name; /* name in checkpoints, and of the table */
    enum tr_dtype dtype;
    void **place;  /* address of its pointer in tr_variance_model */
    bool exists;   /* this method uses the array */
    bool in_table; /* a table keeps the array from epoch to epoch; on demand also from turn to turn */
};

static void replica_list_arrays(struct tr_linear *m, struct array list[ARRAYS])
{
    struct tr_variance_model *model = &m->variance->model;
    enum tr_dtype dtype = (enum tr_dtype)m->o->dtype;
    bool means = m->method != TR_METHOD_SVRG, second = m->method == TR_METHOD_KATYUSHA,
         carries = m->variance->on_demand && tr_groups(m->tr) > 1;
    const struct array arrays[ARRAYS] = {
        [SNAPSHOT] = {"w", dtype, (void **)&model->snapshot, true, true},
        [MU] = {"mu", dtype, (void **)&model->mu, true, true},
        [ITERATE] = {"iterate", dtype, &model->w, true, means || carries},
        [SECOND] = {"second", dtype, &model->z, second, second},
        [SUM] = {"sum", TR_F64, (void **)&model->sum, means, means && carries},
        [SEEN] = {"steps_seen", TR_I32, (void **)&model->last, true, false},
    };
    memcpy(list, arrays, sizeof arrays);
}

/* Opens the problem of a worker, and finds the largest |x|² of the rows that this worker counts (tr_linear_own_rows()). */
static int variance_open_worker(struct tr_linear *m, double *largest)
{
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(TR_NEW(&m->variance->gradient, m->variance->model.n));
    if (m->test) TR_TRY(tr_linear_set_problem(m, m->test, &m->test_problem, &m->test_target));
    TR_TRY(tr_linear_set_problem(m, m->train, &m->problem, &m->target));
    size_t first, end;
    tr_linear_own_rows(m, &first, &end);
    *largest = tr_variance_largest_norm(&m->problem, first, end - first);
    return TR_OK;
}

static int variance_open(struct tr_linear *m)
{
    struct array list[ARRAYS];
    tr_replica_array array[ARRAYS];
    size_t n = 0, chunk = (size_t)tr_job_number(m->job, "local.chunk");
    double largest = 0; /* largest |x|² of a row */
    TR_TRY(tr_agree(m->tr, variance_check_groups(m)));
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->variance, 1)));
    struct tr_linear_variance *v = m->variance;
    v->model.n = (size_t)m->train->columns + m->o->bias;
    v->element = tr_real_size((enum tr_dtype)m->o->dtype);
    v->on_demand = tr_job_is(m->job, "local.model", "demand");
    replica_list_arrays(m, list);
    tr_table_options place = {.servers = tr_linear_few_servers(m)};
    v->table[SNAPSHOT] = m->w;
    for (int i = MU; i < ARRAYS; i++)
        if (list[i].in_table)
            TR_TRY(tr_table_create_with(m->tr, list[i].name, list[i].dtype, 1, v->model.n, &place,
                                        &v->table[i]));
    for (int i = 0; i < ARRAYS; i++)
        if (list[i].exists)
            array[n++] = (tr_replica_array){.table = v->table[i],
                                            .bytes = list[i].dtype == TR_F64 ? sizeof(double) : sizeof(float),
                                            .given = v->table[i] && i != MU};
    tr_replica_options options = {.array = array,
                                  .arrays = n,
                                  .chunk = tr_max_size(1, tr_min_size(chunk, v->model.n / LEAST_CHUNKS)),
                                  .shared = sizeof *v->shared + m->train->rows.n * v->element,
                                  .moves = v->on_demand ? 0 : n - 1,
                                  .state = m,
                                  .fetched = coordinates_begin,
                                  .finish = coordinates_end};
    TR_TRY(tr_replica_open_with(m->tr, &options, &v->replica));
    n = 0;
    for (int i = 0; i < ARRAYS; i++)
        if (list[i].exists) *list[i].place = tr_replica_array_of(v->replica, n++);
    v->shared = tr_replica_shared(v->replica);
    v->model.step = &v->shared->step;

    TR_TRY(tr_agree(m->tr, tr_roles(m->tr) & TR_SLAVE ? variance_open_worker(m, &largest) : TR_OK));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &largest, 1));
    struct tr_problem p = m->problem; /* rank 0 may be no worker, so that its problem is empty */
    p.loss = m->loss;
    p.l2 = m->l2;
    v->smoothness = tr_variance_smoothness(&p, largest);
    return TR_OK;
}

static void variance_close(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    if (!v) return;
    if (v->replica) tr_replica_close(&v->replica);
    tr_variance_close(&v->steps);
    TR_FREE_ALL(v->gradient, v);
    m->variance = NULL;
}

/* ---- the full stage ---- */

static int full_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_views *f;
    size_t n = m->variance->model.n;
    TR_TRY(TR_NEW(&f, 1));
    me->kept = f;
    TR_TRY(tr_linear_open_range(m->w, 0, n, TR_VIEW_READ, &f->w));
    TR_TRY(tr_linear_open_range(m->variance->table[MU], 0, n, TR_VIEW_UPDATE, &f->other));
    return m->test ? tr_linear_open_range(m->w, 0, n, TR_VIEW_READ, &f->test) : TR_OK;
}

static int full_begin(tr_context *tr, void *state)
{
    (void)tr;
    tr_table_clear(((struct tr_linear *)state)->variance->table[MU]);
    return TR_OK;
}

static int full_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct tr_linear_views *f = me->kept;
    size_t n = v->model.n, first = tr_data_part_begin(m->train, me), end = tr_data_part_end(m->train, me);
    TR_TRY(tr_view_pull(f->w));
    memset(v->gradient, 0, n * sizeof *v->gradient);
    f->loss = 0;
    tr_variance_gradient(&m->problem, first, end - first, f->w->value, &f->loss, v->shared->slope,
                         v->gradient);
    if (me->member == 0) v->shared->slopes = me->command.word[EPOCH] + 1;
    double scale = 1 / m->problem.n;
    for (size_t j = 0; j < n; j++) tr_real_set(m->problem.dtype, f->other->delta, j, v->gradient[j] * scale);
    return tr_view_push(f->other);
}

static int full_evaluate(tr_worker *me, void *state, tr_report *report)
{
    const struct tr_linear_views *f = me->kept;
    return tr_linear_report(me, state, f->loss, f->w->value, f->test, report);
}

/* ---- the inner stage ---- */

/* Starts a run of the inner stage on a worker: opens v->steps and brings the newest replica to this node. After a restart in the
 * middle of an epoch, the replica contains the iterate, but snapshot and gradient must be read from the tables (`again`). The
 * position of the node's replica is read here, before the run changes it. */
static int inner_begin(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    int64_t turns = me->command.word[TURNS];
    v->at = position_now(me);
    v->is_last_turn = v->at.turn == turns - 1;
    uint64_t all = epoch_steps(m, v->at.epoch);
    v->began =
        first_of(all, v->at.turn, turns) + first_of(share_of(all, v->at.turn, turns), v->at.done, me->whole);
    bool begins = v->at.turn == 0 && v->at.done == 0, is_here = position_is_same(v->shared->replica, v->at);
    unsigned again = v->restored && is_here ? 1u << SNAPSHOT | 1u << MU : 0;
    v->restored = false;
    tr_variance_close(&v->steps);
    struct tr_variance_options options = {.method = m->method,
                                          .smoothness = v->smoothness,
                                          .rate = m->rate == TR_JOB_AUTO ? 0 : m->rate,
                                          .bias_l2 = m->o->bias_l2,
                                          .steps = all,
                                          .epoch = (uint64_t)v->at.epoch,
                                          .batch = m->o->batch ? m->o->batch : 1};
    TR_TRY(tr_variance_open(&m->problem, &options, &v->steps));
    atomic_store(v->model.step, v->began);
    if (begins || v->on_demand) return tr_replica_take(v->replica, me);
    int group = is_here ? -1 : (int)me->command.word[FROM_GROUP];
    return tr_replica_take_from(v->replica, me, group, again);
}

static int inner_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    int64_t at = me->before + me->clock, turns = me->command.word[TURNS];
    if (me->clock == 0) TR_TRY(inner_begin(me, m));
    if (!tr_replica_ready(v->replica)) return TR_OK; /* another worker has failed */
    uint64_t here = share_of(epoch_steps(m, v->at.epoch), v->at.turn, turns),
             steps = share_of(share_of(here, at, me->whole), me->worker, me->workers);
    struct tr_rng rng;
    tr_updates updates;
    tr_rng_seed(&rng, m->seed, (uint64_t)(me->worker + me->group * me->group_size),
                (uint64_t)((v->at.epoch * turns + v->at.turn) * me->whole + at));
    tr_replica_updates(v->replica, &updates);
    bool alone = me->workers == 1 && !updates.replica, has_slopes = v->shared->slopes == v->at.epoch + 1;
    tr_variance_steps(v->steps, 0, m->problem.rows.n, has_slopes ? v->shared->slope : NULL, steps, &rng,
                      &v->model, alone ? NULL : &updates);
    TR_TRY(tr_replica_status(v->replica));
    if (me->worker == 0) { /* sets the position of the replica after this clock */
        struct position now = position_now(me);
        now.done = at + 1;
        if (now.done == me->whole) now.turn++, now.done = 0;
        if (now.turn == turns) now.epoch++, now.turn = 0;
        v->shared->replica = now;
    }
    if (at < me->whole - 1) return TR_OK;
    if (v->is_last_turn || v->on_demand) return tr_replica_give(v->replica, me);
    return tr_replica_leave(v->replica, me);
}

/* ---- checkpoints ---- */

/* Between two clocks of a turn, and between turns, lists the newest replica; each rank of its node, worker or not, lists an equal
 * part of the coordinates. At the start of an epoch, and if the replica is on demand, the tables have the whole state. */
static int variance_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct position at = position_now(me);
    bool restores = tr_snapshot_restores(snapshot);
    int64_t progress[] = {v->epoch, v->turn, v->turns};
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "passes", TR_F64, 1, &m->passes));
    TR_TRY(tr_snapshot_common(snapshot, "epoch", TR_I64, sizeof progress / sizeof *progress, progress));
    v->epoch = progress[0];
    v->turn = (int)progress[1];
    v->turns = (int)progress[2];
    if ((at.turn == 0 && at.done == 0) || v->on_demand) return TR_OK;
    if (!restores && !position_is_same(v->shared->replica, at)) return TR_OK;
    struct array list[ARRAYS];
    size_t n = v->model.n, rank = (size_t)tr_set_rank(m->tr, TR_SET_NODE),
           ranks = (size_t)tr_set_size(m->tr, TR_SET_NODE), from = n * rank / ranks;
    replica_list_arrays(m, list);
    for (int i = ITERATE; i < ARRAYS; i++) {
        size_t bytes = list[i].dtype == TR_F64 ? sizeof(double) : sizeof(float);
        if (list[i].exists)
            TR_TRY(tr_snapshot_rows(snapshot, list[i].name, list[i].dtype, n, 1, NULL, from,
                                    n * (rank + 1) / ranks - from, (char *)*list[i].place + from * bytes));
    }
    v->restored = restores;
    if (restores && rank == 0) v->shared->replica = at;
    return TR_OK;
}

/* ---- the task ---- */

static double epoch_passes(const struct tr_linear *m, int64_t epoch)
{
    double batch = m->o->batch ? (double)m->o->batch : 1;
    return (double)epoch_steps(m, epoch) * batch / m->problem.n;
}

/* For tr_task.next. Full and inner stages alternate; an inner stage has several turns. A last full stage evaluates the model. */
static int variance_next_stage(void *state, const tr_ran *ran, tr_next *next)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    if (ran->stage == FULL) v->turns = tr_groups(m->tr);
    if (ran->stage == INNER && ++v->turn < v->turns) {
        next->command.word[FROM_GROUP] = ran->first_group;
    } else if (ran->stage == INNER) {
        m->passes += 1 + epoch_passes(m, v->epoch++); /* 1 for the full stage that started the epoch */
        v->turn = 0;
    }
    bool inner = ran->stage == FULL || v->turn > 0;
    bool over = ran->stage == FULL && (ran->evaluation.stop || v->epoch >= v->epochs);
    next->stage = over ? -1 : inner ? INNER : FULL;
    if (over) return TR_OK;
    const char *name = stage_names[next->stage];
    int64_t wished = tr_linear_stage_number(m, name, "clocks");
    next->workers = tr_linear_stage_workers(m, name, inner ? 1 : TR_ALL_WORKERS);
    next->servers = (int)tr_linear_stage_number(m, name, "servers");
    double nonzeros = epoch_passes(m, v->epoch) * (double)m->train->total_nonzeros;
    next->clocks = !inner                             ? 1
                   : wished > 0                       ? wished
                   : next->workers == TR_AUTO_WORKERS ? SEARCHED_CLOCKS
                                                      : (int64_t)(nonzeros / v->turns / clock_nonzeros) + 1;
    next->command.word[EPOCH] = v->epoch;
    next->command.word[TURN] = v->turn;
    next->command.word[TURNS] = v->turns;
    return TR_OK;
}

/* Divides solve.epochs, a number of passes, into epochs of the method: one pass for the full gradient, and the inner steps. The
 * last epoch is shorter if not enough passes are left. The lengths of the epochs of svrg++ double up to the maximum length. */
static void variance_plan_epochs(struct tr_linear *m)
{
    enum { EQUAL = 64 }; /* svrg++: all epochs from this index on have the maximum length */
    struct tr_linear_variance *v = m->variance;
    double left = (double)m->epochs, batch = m->o->batch ? (double)m->o->batch : 1;
    v->last_steps = UINT64_MAX;
    for (v->epochs = 0; left > 1.01; v->epochs++) {
        double passes = 1 + epoch_passes(m, v->epochs);
        if (v->epochs == EQUAL && left > 2 * passes) {
            double equal = fmin(floor(left / passes) - 1, 0x1p62);
            v->epochs += (int64_t)equal;
            left -= equal * passes;
        }
        if (left < passes * (1 - 1e-9)) v->last_steps = (uint64_t)fmax(1, (left - 1) * m->problem.n / batch);
        left -= passes;
    }
}

/* Does nothing, but a stage with a `begin` function is not divided into parts. With a replica on demand, no checkpoint is therefore
 * taken before the tables have the whole state. */
static int inner_begin_whole(tr_context *tr, void *state)
{
    (void)tr;
    (void)state;
    return TR_OK;
}

static int variance_train(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    for (int stage = 0; stage < STAGES; stage++)
        TR_TRY(tr_linear_check_stage(m, stage_names[stage], stage == INNER, stage == INNER));
    m->problem.n = (double)m->train->total_rows; /* rank 0 may be no worker, so that its problem is empty */
    if (m->epochs < 2)
        return tr_agree(
            m->tr, tr_fail(TR_ERR_CONFIG,
                           "%s: solve.epochs is 1, but variance reduction takes a pass for the gradient and "
                           "passes of steps: set 2 or more, or solve.method sgd",
                           tr_job_where(m->job, "solve.epochs")));
    variance_plan_epochs(m);
    tr_stage stages[STAGES] = {{.name = stage_names[FULL],
                                .state = m,
                                .prepare = full_prepare,
                                .begin = full_begin,
                                .compute = full_compute,
                                .evaluate = full_evaluate,
                                .summarize = tr_linear_summarize,
                                .release = tr_linear_release_views},
                               {.name = stage_names[INNER],
                                .state = m,
                                .one_group = true,
                                .begin = v->on_demand ? inner_begin_whole : NULL,
                                .compute = inner_compute}};
    tr_test_metrics_name(&m->metrics, m->test, &stages[FULL]);
    tr_table *tables[ARRAYS];
    size_t n = 0;
    for (int i = 0; i < ARRAYS; i++)
        if (v->table[i]) tables[n++] = v->table[i];
    const tr_task task = {.name = "train",
                          .table = tables,
                          .tables = n,
                          .stage = stages,
                          .n = STAGES,
                          .evaluations = v->epochs + 1,
                          .state = m,
                          .next = variance_next_stage,
                          .snapshot = variance_snapshot};
    TR_TRY(tr_run_task(m->tr, &task));
    tr_replica_counts counts;
    tr_replica_count(v->replica, &counts);
    struct {
        const char *name;
        uint64_t sum; /* sum over all nodes */
    } figure[] = {{"local_chunks_fetched", counts.fetched},      {"local_chunks_evicted", counts.evicted},
                  {"local_bytes_fetched", counts.bytes_fetched}, {"local_bytes_given", counts.bytes_given},
                  {"local_bytes_written", counts.bytes_written}, {"local_bytes_moved", counts.bytes_moved}};
    for (size_t i = 0; i < sizeof figure / sizeof *figure; i++) {
        if (tr_set_rank(m->tr, TR_SET_NODE) != 0) figure[i].sum = 0;
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_I64, &figure[i].sum, 1));
        TR_TRY(tr_report_figure(m->tr, figure[i].name, (double)figure[i].sum));
    }
    return TR_OK;
}

const struct tr_linear_method tr_linear_variance = {.from_w = true,
                                                    .check = variance_check,
                                                    .minimises = TR_LOSS_BOUNDED_CURVE,
                                                    .sparse_rows = true,
                                                    .counts_passes = true,
                                                    .servers = tr_linear_few_servers,
                                                    .open = variance_open,
                                                    .train = variance_train,
                                                    .close = variance_close,
                                                    .weighs_updates = true,
                                                    .diverged = "lower solve.rate"};
