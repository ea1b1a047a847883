/* Training with variance reduction. An epoch has two stages. The full stage computes the gradient at the snapshot, with
 * workers of all groups. The inner stage takes stochastic steps, with workers of one group on a replica in the memory
 * of their node (FlexPS, sections 3 and 5.3). The table w holds the snapshot, mu the gradient, other tables the state
 * that is kept from epoch to epoch.
 *
 * With one group per node, the rows of a node are stored once in shared memory, and inner workers draw from all of
 * them. Of several groups, each takes a turn in an epoch, so the steps draw from all rows. A complete replica moves
 * from node to node directly, and into the tables only at the end of the epoch; on demand it moves through the tables.
 * Each node knows the position of its replica, and so whether it is the newest: checkpoints save the newest one, and
 * restore it at all nodes. */
#include <stdlib.h>
#include <string.h>

#include "../linear.h"
#include "steps.h"

enum { FULL, INNER, STAGES };
static const char *const stage_names[STAGES] = {"full", "inner"};

/* Arrays of the replica, one element per coordinate. All but the last move from node to node. */
enum { SNAPSHOT, MU, ITERATE, SECOND, SUM, SEEN, ARRAYS };

/* Words of the command to the workers of both stages. */
enum { EPOCH, TURN, TURNS, FROM_GROUP };

/* Minimum number of chunks of a small model; with fewer, workers would wait for locks. */
enum { LEAST_CHUNKS = 64 };

/* Clocks of an inner stage whose number of workers is searched. They have equal numbers of steps. */
enum { SEARCHED_CLOCKS = 20 };

/* Default number of non-zeros per clock of an inner stage, a few seconds of work. Long runs can be stopped between
 * clocks. */
static const double clock_nonzeros = 1e9;

/* Position of an inner stage. */
struct position {
    int64_t epoch, turn; /* turn: index of the group's turn */
    int64_t done;        /* completed clocks of the turn; the last clock of a turn gives 0 of the next one */
};

/* Memory that the workers of a node share in addition to the arrays of the replica. */
struct shared {
    _Atomic uint64_t step;
    struct position replica; /* position of the replica */
    int64_t slopes;          /* the slopes of the node's rows belong to epoch slopes - 1; 0: none */
    double slope[];          /* elements of the model's type */
};

struct tr_linear_variance {
    tr_replica *replica;
    tr_table *table[ARRAYS];
    struct tr_variance_model model; /* arrays of the replica */
    struct shared *shared;
    bool on_demand;
    size_t element; /* bytes */
    double smoothness;
    double *gradient; /* of a worker: all coordinates */
    /* State of a worker in the current inner stage. */
    struct tr_variance *steps;
    struct position at;
    uint64_t began; /* steps of the epoch before it */
    bool is_last_turn;
    bool restored; /* the state was restored from a checkpoint */
    /* scheduler */
    int64_t epoch, epochs; /* number of started epochs; total number */
    uint64_t last_steps;   /* steps of the last epoch, if it is shorter */
    int turn, turns;       /* turn in this epoch's inner stage; number of turns */
    double passes;         /* passes over the data so far */
};

/* ---- checking ---- */

static int check(const tr_job *job, const struct tr_linear_options *o)
{
    TR_TRY(tr_job_check_stages(job, stage_names, STAGES));
    const char *method = tr_job_where(job, "solve.method");
    if (!tr_job_is(job, "sync.mode", "bsp"))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: with variance reduction stages wait for each other: expected sync.mode bsp",
                       tr_job_where(job, "sync.mode"));
    if (!tr_job_is(job, "data.partition", "replicated"))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: variance reduction works on the rows of a node: expected data.partition "
                       "replicated",
                       tr_job_where(job, "data.partition"));
    if (!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD)
        return tr_fail(TR_ERR_CONFIG, "%s: %s is for solve.method: sgd", method,
                       o->optimizer != TR_PLAIN_SGD ? "solve.optimizer" : "sync.weight");
    const char *exact[][2] = {{"table.precision", "full"}, {"table.filter", "none"}},
               *never[][2] = {{"table.storage", "hash"}, {"table.push", "message"}};
    for (size_t i = 0; i < 2; i++) {
        if (!tr_job_is(job, exact[i][0], exact[i][1]))
            return tr_fail(TR_ERR_CONFIG, "%s: variance reduction needs %s: %s",
                           tr_job_where(job, exact[i][0]), exact[i][0], exact[i][1]);
        if (tr_job_is(job, never[i][0], never[i][1]))
            return tr_fail(TR_ERR_CONFIG, "%s: variance reduction cannot work with %s: %s",
                           tr_job_where(job, never[i][0]), never[i][0], never[i][1]);
    }
    if (!tr_job_is(job, "local.replace", "lru") && !tr_job_is(job, "local.model", "demand"))
        return tr_linear_refuse(job, "local.replace",
                                "local.replace is of no use where the model is there as a whole: "
                                "expected local.model demand");
    if (o->l1 > 0)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: model.l1 needs solve.method descent, or sgd with solve.optimizer ftrl",
                       tr_job_where(job, "model.l1"));
    return TR_OK;
}

/* Checks that the rows of a node belong to one group, because they are stored once in its memory; and that a group has
 * only one node, because its replica is the only copy of the model between two full stages. */
static int check_groups(const struct tr_linear *m)
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
            "groups are of equal size: start as many ranks on each node, and leave ranks.groups and "
            "ranks.group_size out",
            tr_job_where(m->job, "solve.method"));
    if (rows == 0)
        return tr_fail(
            TR_ERR_DATA, "%s: variance reduction needs rows in every group, and there are only %llu for %d",
            tr_job_where(m->job, "solve.method"), (unsigned long long)m->train->total_rows, tr_groups(m->tr));
    return TR_OK;
}

/* ---- position ---- */

static uint64_t steps_of_epoch(const struct tr_linear *m, int64_t epoch)
{
    const struct tr_linear_variance *v = m->variance;
    uint64_t steps = tr_variance_epoch_steps(m->method, m->problem.n, m->o->inner,
                                             m->o->batch ? m->o->batch : 1, (uint64_t)epoch);
    return epoch == v->epochs - 1 && v->last_steps < steps ? v->last_steps : steps;
}

/* Sum of the first `parts` of `whole` equal parts of n. */
static uint64_t first_of(uint64_t n, int64_t parts, int64_t whole)
{
    return (uint64_t)((double)n * (double)parts / (double)whole);
}

static uint64_t share_of(uint64_t n, int64_t i, int64_t parts)
{
    return first_of(n, i + 1, parts) - first_of(n, i, parts);
}

/* Number of steps of the epoch before the next run. */
static uint64_t steps_before(const tr_worker *me, const struct tr_linear *m, struct position at)
{
    int64_t turns = me->command.word[TURNS];
    uint64_t all = steps_of_epoch(m, at.epoch);
    return first_of(all, at.turn, turns) + first_of(share_of(all, at.turn, turns), at.done, me->whole);
}

static struct position position_of(const tr_worker *me)
{
    return (struct position){me->command.word[EPOCH], me->command.word[TURN], me->before};
}

static bool is_same(struct position a, struct position b)
{
    return a.epoch == b.epoch && a.turn == b.turn && a.done == b.done;
}

/* ---- opening ---- */

/* Prepares coordinates that came from the tables, or from the previous node, where they have all steps. */
static void begin_coordinates(void *state, tr_key first, size_t n, size_t place)
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

/* After the last step of a turn: applies missed steps to coordinates, and computes their next snapshot. */
static void end_coordinates(void *state, tr_key first, size_t n, size_t place)
{
    const struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    tr_variance_settle(v->steps, &v->model, first, first + n, place);
    if (v->is_last_turn)
        tr_variance_snapshot(v->steps, &v->model, place, place + n, (void *)(uintptr_t)v->model.snapshot);
}

/* Opens tables for the state that is kept from epoch to epoch, and on demand from turn to turn. */
static int open_tables(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    enum tr_dtype dtype = v->element == 4 ? TR_F32 : TR_F64;
    bool means = m->method != TR_METHOD_SVRG, carries = v->on_demand && tr_groups(m->tr) > 1;
    const struct {
        const char *name;
        bool wanted;
        enum tr_dtype dtype;
    } tables[ARRAYS] = {[MU] = {"mu", true, dtype},
                        [ITERATE] = {"iterate", means || carries, dtype},
                        [SECOND] = {"second", m->method == TR_METHOD_KATYUSHA, dtype},
                        [SUM] = {"sum", means && carries, TR_F64}};
    tr_table_options options = {.servers = tr_linear_few_servers(m)};
    v->table[SNAPSHOT] = m->w;
    for (int i = MU; i < ARRAYS; i++)
        if (tables[i].wanted)
            TR_TRY(tr_table_create_with(m->tr, tables[i].name, tables[i].dtype, 1, v->model.n, &options,
                                        &v->table[i]));
    return TR_OK;
}

static int open_replica(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    struct tr_variance_model *model = &v->model;
    int method = m->method;
    size_t bytes[ARRAYS] = {[ITERATE] = v->element,
                            [SECOND] = method == TR_METHOD_KATYUSHA ? v->element : 0,
                            [SUM] = method != TR_METHOD_SVRG ? sizeof *model->sum : 0,
                            [SEEN] = sizeof *model->last};
    void **place[ARRAYS] = {(void **)&model->snapshot, (void **)&model->mu,  &model->w, &model->z,
                            (void **)&model->sum,      (void **)&model->last};
    tr_replica_array array[ARRAYS];
    int number[ARRAYS], n = 0;
    for (int i = 0; i < ARRAYS; i++) {
        if (!v->table[i] && bytes[i] == 0) continue;
        array[n] =
            (tr_replica_array){.table = v->table[i], .bytes = bytes[i], .given = v->table[i] && i != MU};
        number[n++] = i;
    }
    tr_replica_options options = {.array = array,
                                  .arrays = (size_t)n,
                                  .chunk =
                                      tr_max_size(1, tr_min_size((size_t)tr_job_number(m->job, "local.chunk"),
                                                                 model->n / LEAST_CHUNKS)),
                                  .shared = sizeof *v->shared + m->train->rows.n * v->element,
                                  .moves = v->on_demand ? 0 : (size_t)n - 1,
                                  .state = m,
                                  .fetched = begin_coordinates,
                                  .finish = end_coordinates};
    TR_TRY(tr_replica_open_with(m->tr, &options, &v->replica));
    for (int i = 0; i < n; i++) *place[number[i]] = tr_replica_array_of(v->replica, (size_t)i);
    v->shared = tr_replica_shared(v->replica);
    model->step = &v->shared->step;
    return TR_OK;
}

static int open_worker(struct tr_linear *m)
{
    if (!(tr_roles(m->tr) & TR_SLAVE)) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(TR_NEW(&m->variance->gradient, m->variance->model.n));
    if (m->test) TR_TRY(tr_linear_set_problem(m, m->o->bias, m->test, &m->test_problem, &m->test_target));
    return tr_linear_set_problem(m, m->o->bias, m->train, &m->problem, &m->target);
}

/* Each worker processes its share of the rows of its group. */
static int find_smoothness(struct tr_linear *m)
{
    double largest = 0;
    if (tr_roles(m->tr) & TR_SLAVE) {
        tr_worker me = tr_linear_self(m->tr);
        size_t first = tr_data_part_begin(m->train, &me), end = tr_data_part_end(m->train, &me);
        largest = tr_variance_largest_norm(&m->problem, first, end - first);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &largest, 1));
    struct tr_problem p = m->problem; /* also on rank 0, which may not work */
    p.loss = m->loss;
    p.l2 = m->l2;
    m->variance->smoothness = tr_variance_smoothness(&p, largest);
    return TR_OK;
}

static int open_variance(struct tr_linear *m)
{
    TR_TRY(tr_agree(m->tr, check_groups(m)));
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->variance, 1)));
    struct tr_linear_variance *v = m->variance;
    m->clocks_per_epoch = 1;
    v->model.n = (size_t)m->train->columns + m->o->bias;
    v->element = m->o->dtype == TR_F32 ? sizeof(float) : sizeof(double);
    v->on_demand = tr_job_is(m->job, "local.model", "demand");
    TR_TRY(open_tables(m));
    TR_TRY(open_replica(m));
    TR_TRY(tr_agree(m->tr, open_worker(m)));
    return find_smoothness(m);
}

static void close_variance(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    if (!v) return;
    if (v->replica) tr_replica_close(&v->replica);
    tr_variance_close(&v->steps);
    free(v->gradient);
    free(v);
    m->variance = NULL;
}

/* ---- the full stage ---- */

struct full {
    tr_view *w, *mu, *test;
    double loss;
};

static void release_full(void *kept)
{
    struct full *f = kept;
    tr_view_close(&f->w);
    tr_view_close(&f->mu);
    tr_view_close(&f->test);
    free(f);
}

static int prepare_full(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct full *f;
    size_t n = m->variance->model.n;
    TR_TRY(TR_NEW(&f, 1));
    me->kept = f;
    TR_TRY(tr_linear_open_range(m->w, 0, n, TR_VIEW_READ, &f->w));
    TR_TRY(tr_linear_open_range(m->variance->table[MU], 0, n, TR_VIEW_UPDATE, &f->mu));
    return m->test ? tr_linear_open_range(m->w, 0, n, TR_VIEW_READ, &f->test) : TR_OK;
}

static int clear_gradient(tr_context *tr, void *state)
{
    (void)tr;
    tr_table_clear(((struct tr_linear *)state)->variance->table[MU]);
    return TR_OK;
}

static int compute_full(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct full *f = me->kept;
    size_t n = v->model.n, first = tr_data_part_begin(m->train, me), end = tr_data_part_end(m->train, me);
    TR_TRY(tr_view_pull(f->w));
    memset(v->gradient, 0, n * sizeof *v->gradient);
    f->loss = 0;
    tr_variance_gradient(&m->problem, first, end - first, f->w->value, &f->loss, v->shared->slope,
                         v->gradient);
    if (me->member == 0) v->shared->slopes = me->command.word[EPOCH] + 1;
    double scale = 1 / m->problem.n;
    if (v->element == 4)
        for (size_t j = 0; j < n; j++) ((float *)f->mu->delta)[j] = (float)(v->gradient[j] * scale);
    else
        for (size_t j = 0; j < n; j++) ((double *)f->mu->delta)[j] = v->gradient[j] * scale;
    return tr_view_push(f->mu);
}

static int evaluate_full(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct full *f = me->kept;
    tr_linear_report_loss(report, f->loss);
    TR_TRY(tr_linear_report_size(me, m, f->w->value, report));
    return m->test ? tr_linear_report_test(me, m, f->test, report) : TR_OK;
}

/* The full gradient counts with the epoch that it starts. The last one only evaluates. */
static int summarize_full(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    const struct tr_linear *m = state;
    evaluation->epoch = m->variance->passes;
    return tr_linear_summarize(state, report, evaluation);
}

/* ---- the inner stage ---- */

/* Opens the steps again in each run, because a worker may not have been in earlier runs of the epoch. */
static int open_steps(struct tr_linear *m, int64_t epoch)
{
    tr_variance_close(&m->variance->steps);
    struct tr_variance_options options = {.method = m->method,
                                          .smoothness = m->variance->smoothness,
                                          .rate = m->rate == TR_JOB_AUTO ? 0 : m->rate,
                                          .bias_l2 = m->o->bias_l2,
                                          .steps = steps_of_epoch(m, epoch),
                                          .epoch = (uint64_t)epoch,
                                          .batch = m->o->batch ? m->o->batch : 1};
    return tr_variance_open(&m->problem, &options, &m->variance->steps);
}

/* Starts a run of the inner stage. A run resumed in the middle of an epoch has the iterate in the replica, and snapshot
 * and gradient in the tables. The position of the node's replica is read before any worker changes it. */
static int begin_inner(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    v->at = position_of(me);
    v->is_last_turn = v->at.turn == me->command.word[TURNS] - 1;
    v->began = steps_before(me, m, v->at);
    bool begins = v->at.turn == 0 && v->at.done == 0, is_here = is_same(v->shared->replica, v->at);
    unsigned again = v->restored && is_here ? 1u << SNAPSHOT | 1u << MU : 0;
    v->restored = false;
    TR_TRY(open_steps(m, v->at.epoch));
    atomic_store(v->model.step, v->began);
    if (begins || v->on_demand) return tr_replica_take(v->replica, me);
    int group = is_here ? -1 : (int)me->command.word[FROM_GROUP];
    return tr_replica_take_from(v->replica, me, group, again);
}

static void take_steps(const tr_worker *me, struct tr_linear *m, int64_t at)
{
    struct tr_linear_variance *v = m->variance;
    int64_t turn = v->at.turn, turns = me->command.word[TURNS];
    uint64_t here = share_of(steps_of_epoch(m, v->at.epoch), turn, turns);
    uint64_t steps = share_of(share_of(here, at, me->whole), me->worker, me->workers);
    struct tr_rng rng;
    tr_updates updates;
    tr_rng_seed(&rng, m->seed, (uint64_t)(me->worker + me->group * me->group_size),
                (uint64_t)((v->at.epoch * turns + turn) * me->whole + at));
    tr_replica_updates(v->replica, &updates);
    bool alone = me->workers == 1 && !updates.replica;
    bool has_slopes = v->shared->slopes == v->at.epoch + 1;
    tr_variance_steps(v->steps, 0, m->problem.rows.n, has_slopes ? v->shared->slope : NULL, steps, &rng,
                      &v->model, alone ? NULL : &updates);
}

/* Stores the position after clock `at` of the run. */
static void note_position(const tr_worker *me, struct tr_linear *m, int64_t at)
{
    struct position now = position_of(me);
    now.done = at + 1;
    if (now.done == me->whole) now.turn++, now.done = 0;
    if (now.turn == me->command.word[TURNS]) now.epoch++, now.turn = 0;
    m->variance->shared->replica = now;
}

static int compute_inner(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    int64_t at = me->before + me->clock;
    if (me->clock == 0) TR_TRY(begin_inner(me, m));
    if (!tr_replica_ready(v->replica)) return TR_OK; /* another worker has failed */
    take_steps(me, m, at);
    TR_TRY(tr_replica_status(v->replica));
    if (me->worker == 0) note_position(me, m, at);
    if (at < me->whole - 1) return TR_OK;
    if (v->is_last_turn || v->on_demand) return tr_replica_give(v->replica, me);
    return tr_replica_leave(v->replica, me);
}

/* ---- checkpoints: the newest replica of all nodes, between any two clocks of a turn ---- */

/* Saves or restores this rank's share of the coordinates. All ranks of the node take part, also those that do not
 * work. */
static int keep_array(struct tr_linear *m, tr_snapshot *snapshot, const char *name, enum tr_dtype dtype,
                      void *array)
{
    size_t n = m->variance->model.n, rank = (size_t)tr_set_rank(m->tr, TR_SET_NODE),
           ranks = (size_t)tr_set_size(m->tr, TR_SET_NODE), from = n * rank / ranks,
           size = dtype == TR_F64 ? sizeof(double) : sizeof(float);
    if (!array) return TR_OK;
    return tr_snapshot_rows(snapshot, name, dtype, n, 1, NULL, from, n * (rank + 1) / ranks - from,
                            (char *)array + from * size);
}

static int keep_replica(struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_variance *v = m->variance;
    enum tr_dtype dtype = v->element == 4 ? TR_F32 : TR_F64;
    TR_TRY(keep_array(m, snapshot, "iterate", dtype, v->model.w));
    TR_TRY(keep_array(m, snapshot, "second", dtype, v->model.z));
    TR_TRY(keep_array(m, snapshot, "sum", TR_F64, v->model.sum));
    return keep_array(m, snapshot, "steps_seen", TR_I32, v->model.last);
}

static int keep_progress(struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_variance *v = m->variance;
    int64_t at[] = {v->epoch, v->turn, v->turns};
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "passes", TR_F64, 1, &v->passes));
    TR_TRY(tr_snapshot_common(snapshot, "epoch", TR_I64, sizeof at / sizeof *at, at));
    v->epoch = at[0];
    v->turn = (int)at[1];
    v->turns = (int)at[2];
    return TR_OK;
}

/* At the start of an epoch, and on demand between any two stages, the tables have the whole state. */
static int keep(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct position at = position_of(me);
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(keep_progress(m, snapshot));
    if ((at.turn == 0 && at.done == 0) || v->on_demand) return TR_OK;
    if (!restores && !is_same(v->shared->replica, at)) return TR_OK;
    TR_TRY(keep_replica(m, snapshot));
    v->restored = restores;
    if (restores && tr_set_rank(m->tr, TR_SET_NODE) == 0) v->shared->replica = at;
    return TR_OK;
}

/* ---- the task ---- */

static int workers_of(const struct tr_linear *m, int stage)
{
    return tr_linear_stage_workers(m, stage_names[stage], stage == FULL ? TR_ALL_WORKERS : 1);
}

static double passes_of_epoch(const struct tr_linear *m, int64_t epoch)
{
    double batch = m->o->batch ? (double)m->o->batch : 1;
    return (double)steps_of_epoch(m, epoch) * batch / m->problem.n;
}

static int64_t clocks_of(const struct tr_linear *m, int stage)
{
    int64_t wished = tr_linear_stage_clocks(m, stage_names[stage]);
    if (stage == FULL) return 1;
    if (wished > 0) return wished;
    if (workers_of(m, stage) == TR_AUTO_WORKERS) return SEARCHED_CLOCKS;
    double nonzeros = passes_of_epoch(m, m->variance->epoch) * (double)m->train->total_nonzeros;
    return (int64_t)(nonzeros / m->variance->turns / clock_nonzeros) + 1;
}

/* Full and inner stages alternate. The last full gradient evaluates the last snapshot. Each group has a turn in an
 * inner stage. */
static int next_stage(void *state, const tr_ran *ran, tr_next *next)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    if (ran->stage == FULL) v->turns = tr_groups(m->tr);
    if (ran->stage == INNER && ++v->turn < v->turns) {
        next->command.word[FROM_GROUP] = ran->first_group;
    } else if (ran->stage == INNER) {
        v->passes += 1 + passes_of_epoch(m, v->epoch++);
        v->turn = 0;
    }
    bool inner = ran->stage == FULL || v->turn > 0;
    bool over = ran->stage == FULL && (ran->evaluation.stop || v->epoch >= v->epochs);
    next->stage = over ? -1 : inner ? INNER : FULL;
    if (over) return TR_OK;
    next->clocks = clocks_of(m, next->stage);
    next->workers = workers_of(m, next->stage);
    next->servers = tr_linear_stage_servers(m, stage_names[next->stage]);
    next->command.word[EPOCH] = v->epoch;
    next->command.word[TURN] = v->turn;
    next->command.word[TURNS] = v->turns;
    return TR_OK;
}

/* Divides solve.epochs passes into epochs of the method: one pass for the full gradient, and the inner steps. The last
 * epoch is shorter if not enough passes are left. The epochs of svrg++ double up to the maximum length. */
static void plan_epochs(struct tr_linear *m)
{
    enum { EQUAL = 64 }; /* epochs from this one on have the maximum length */
    struct tr_linear_variance *v = m->variance;
    double left = (double)m->epochs, batch = m->o->batch ? (double)m->o->batch : 1;
    v->last_steps = UINT64_MAX;
    for (v->epochs = 0; left > 1.01; v->epochs++) {
        double passes = 1 + passes_of_epoch(m, v->epochs);
        if (v->epochs == EQUAL && left > 2 * passes) {
            double equal = fmin(floor(left / passes) - 1, 0x1p62);
            v->epochs += (int64_t)equal;
            left -= equal * passes;
        }
        if (left < passes * (1 - 1e-9)) v->last_steps = (uint64_t)fmax(1, (left - 1) * m->problem.n / batch);
        left -= passes;
    }
}

/* A stage with a `begin` function runs in one piece: on demand, checkpoints wait until the tables have the whole
 * state. */
static int begin_whole(tr_context *tr, void *state)
{
    (void)tr;
    (void)state;
    return TR_OK;
}

/* Reports the counts of the replicas of all nodes in summary.json. */
static int report_replicas(struct tr_linear *m)
{
    tr_replica_counts counts;
    uint64_t sum[6] = {0};
    tr_replica_count(m->variance->replica, &counts);
    if (tr_set_rank(m->tr, TR_SET_NODE) == 0) {
        const uint64_t of_node[] = {counts.fetched,     counts.evicted,       counts.bytes_fetched,
                                    counts.bytes_given, counts.bytes_written, counts.bytes_moved};
        memcpy(sum, of_node, sizeof sum);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_I64, sum, 6));
    static const char *const names[] = {"local_chunks_fetched", "local_chunks_evicted", "local_bytes_fetched",
                                        "local_bytes_given",    "local_bytes_written",  "local_bytes_moved"};
    for (int i = 0; i < 6; i++) TR_TRY(tr_report_figure(m->tr, names[i], (double)sum[i]));
    return TR_OK;
}

static int train(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    for (int stage = 0; stage < STAGES; stage++)
        TR_TRY(tr_linear_check_stage(m, stage_names[stage], stage == INNER, stage == INNER));
    m->problem.n = (double)m->train->total_rows; /* on all ranks: rank 0 may not work */
    if (m->epochs < 2)
        return tr_agree(
            m->tr, tr_fail(TR_ERR_CONFIG,
                           "%s: solve.epochs is 1, but variance reduction takes a pass for the gradient and "
                           "passes of steps: set 2 or more, or solve.method sgd",
                           tr_job_where(m->job, "solve.epochs")));
    plan_epochs(m);
    const tr_stage stages[STAGES] = {{.name = stage_names[FULL],
                                      .state = m,
                                      .metric_name = tr_linear_metric(m),
                                      .metric_ascends = tr_linear_classifies(m),
                                      .prepare = prepare_full,
                                      .begin = clear_gradient,
                                      .compute = compute_full,
                                      .evaluate = evaluate_full,
                                      .summarize = summarize_full,
                                      .release = release_full},
                                     {.name = stage_names[INNER],
                                      .state = m,
                                      .one_group = true,
                                      .begin = v->on_demand ? begin_whole : NULL,
                                      .compute = compute_inner}};
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
                          .next = next_stage,
                          .snapshot = keep};
    TR_TRY(tr_run_task(m->tr, &task));
    return report_replicas(m);
}

/* The rate needs a bound of the curvature. Shape parameters are not supported. */
static bool minimises(const struct tr_loss *loss)
{
    return isfinite(loss->most_curvature) && loss->shape == TR_SHAPE_NONE;
}

const struct tr_linear_method tr_linear_variance = {.check = check,
                                                    .minimises = minimises,
                                                    .sparse_rows = true,
                                                    .servers = tr_linear_few_servers,
                                                    .open = open_variance,
                                                    .train = train,
                                                    .close = close_variance,
                                                    .weighs_updates = true,
                                                    .diverged = "lower solve.rate"};
