/* Training with variance reduction (M32): an epoch is two stages. The full one computes the gradient at the snapshot, with
 * workers in every group; the inner one takes stochastic steps, with workers of one group on a model in memory that their
 * node shares (FlexPS, sections 3 and 5.3). The table w holds the snapshot, mu the gradient.
 *
 * With a group a node, the rows of a node lie once in shared memory, and inner workers draw from all of them. Of several
 * groups each has its turn in an epoch, so that it draws from all rows: the model goes from node to node directly, and
 * into the tables at the epoch's end alone. Methods whose iterate is not the snapshot keep it, and what else goes on from
 * epoch to epoch, in tables of their own then.
 */
#include <stdlib.h>
#include <string.h>

#include "model/linear/linear.h"
#include "model/linear/parts.h"
#include "solve/variance.h"
#include "stage/stage.h"
#include "table/transfer.h"

enum { FULL, INNER, STAGES };
static const char *const stage_names[STAGES] = {"full", "inner"};

/* Clocks of an inner stage whose number of workers is searched for: each is as much of the epoch's steps. */
enum { SEARCHED_CLOCKS = 20 };

/* Of a small model: else its workers would wait for each other's locks. */
enum { LEAST_CHUNKS = 64 };

/* What inner workers are told. */
enum { EPOCH, TURN, FROM_GROUP };

/* Arrays that go from group to group. */
enum { SNAPSHOT, ITERATE, SECOND, CARRIED };

struct tr_linear_variance {
    struct tr_node_memory memory;
    struct tr_transfer transfer;
    size_t moving[2];               /* what goes from node to node: from here to there in that memory */
    struct tr_variance_model model; /* in that memory */
    void *carried[CARRIED];         /* its arrays; NULL: the method has no such */
    char *slope;                    /* of each of the node's rows at the snapshot */
    struct tr_race race;
    tr_table *mu, *table[CARRIED]; /* [SNAPSHOT] is the table w; NULL: stays in the memory of the only node */
    double smoothness;
    double *gradient; /* a worker's: of all coordinates */
    /* the scheduler's */
    int64_t epoch, epochs; /* begun, and how many there will be */
    int turn;              /* of the groups in this epoch's inner stage */
    double passes;         /* over the data, so far */
};

/* What a worker keeps of the full stage. */
struct full {
    tr_view *w, *mu, *test;
    double loss;
};

/* … and of the inner one: its part of all arrays, coordinates from .. to - 1. */
struct inner {
    struct tr_variance *steps;
    tr_view *carried[CARRIED], *mu;
    size_t from, to;
};

static size_t element(const struct tr_linear *m)
{
    return m->job->model.dtype == TR_DTYPE_F32 ? 4 : 8;
}

/* ---- checking ---- */

int tr_linear_variance_check(const tr_job *job)
{
    TR_TRY(tr_job_check_stages(job, stage_names, STAGES));
    const char *method = tr_job_where(job, "solve.method");
    if (job->model.type == TR_MODEL_SVM)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: variance reduction needs a smooth loss: model.type svm has none, l2svm does",
                       method);
    if (job->sync.mode != TR_SYNC_BSP)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: with variance reduction stages wait for each other: expected sync.mode bsp",
                       tr_job_where(job, "sync.mode"));
    if (job->data.partition != TR_DATA_REPLICATED)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: variance reduction works on the rows of a node: expected data.partition "
                       "replicated",
                       tr_job_where(job, "data.partition"));
    if (job->sync.weight != TR_WEIGHT_SUM || job->solve.optimizer != TR_OPTIMIZER_SGD)
        return tr_fail(TR_ERR_CONFIG, "%s: sync.weight and solve.optimizer are for solve.method sgd", method);
    if (job->table.storage == TR_STORAGE_HASH || job->table.precision != TR_PRECISION_FULL ||
        job->table.filter != TR_FILTER_NONE || job->table.push == TR_PUSH_MESSAGE)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: variance reduction needs dense tables, full precision and no filter", method);
    if (job->model.l1 > 0)
        return tr_fail(TR_ERR_CONFIG, "%s: model.l1 needs solve.method sgd and solve.optimizer ftrl",
                       tr_job_where(job, "model.l1"));
    return TR_OK;
}

/* ---- memory ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static char *take_bytes(char **at, size_t bytes)
{
    char *taken = *at;
    *at += padded(bytes);
    return taken;
}

/* Lays the model out from `at` on (NULL: only to see how much it takes). */
static size_t lay_out(const struct tr_linear *m, struct tr_linear_variance *v, char *at)
{
    char *begin = at;
    struct tr_variance_model *model = &v->model;
    size_t array = model->n * element(m);
    int method = m->job->solve.method;
    v->moving[0] = (size_t)(at - begin);
    model->step = (_Atomic uint64_t *)(void *)take_bytes(&at, 64);
    model->snapshot = v->carried[SNAPSHOT] = take_bytes(&at, array);
    model->w = take_bytes(&at, array);
    if (method != TR_SOLVE_SVRG) v->carried[ITERATE] = model->w;
    if (method == TR_SOLVE_KATYUSHA) model->z = v->carried[SECOND] = take_bytes(&at, array);
    if (method != TR_SOLVE_SVRG) model->sum = (double *)(void *)take_bytes(&at, model->n * sizeof(double));
    model->mu = take_bytes(&at, array);
    v->moving[1] = (size_t)(at - begin);
    model->last = (uint32_t *)(void *)take_bytes(&at, model->n * sizeof *model->last);
    v->slope = take_bytes(&at, m->train->rows.n * element(m));
    v->race.kind = m->job->sync.race;
    size_t chunk = tr_min_size((size_t)m->job->local.chunk, model->n / LEAST_CHUNKS);
    while ((UINT64_C(1) << v->race.shift) < chunk) v->race.shift++;
    size_t words = v->race.kind == TR_RACE_CHUNK ? tr_race_words(model->n, v->race.shift) : 0;
    v->race.lock = (_Atomic uint32_t *)(void *)take_bytes(&at, words * sizeof *v->race.lock);
    return (size_t)(at - begin);
}

/* The rows of a node's ranks lie once in its memory only if they are of one group. */
static int check_groups(const struct tr_linear *m)
{
    const tr_context *tr = m->tr;
    for (int rank = 0; rank < tr->size; rank++) {
        const struct tr_place *place = &tr->layout.place[rank];
        if (tr_same_node(tr, rank) && place->group >= 0 && tr->me.group >= 0 && place->group != tr->me.group)
            return tr_fail(
                TR_ERR_CONFIG,
                "%s: variance reduction needs the workers of a node in one group: leave ranks.groups and "
                "ranks.group_size out, or make a group of each node",
                tr_job_where(m->job, "solve.method"));
    }
    return TR_OK;
}

static int open_tables(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    enum tr_dtype dtype = element(m) == 4 ? TR_F32 : TR_F64;
    static const char *const names[CARRIED] = {NULL, "iterate", "second"};
    tr_table_options options = {.servers = tr_linear_servers(m)};
    TR_TRY(tr_table_create_with(m->tr, "mu", dtype, 1, v->model.n, &options, &v->mu));
    v->table[SNAPSHOT] = m->w;
    for (int i = ITERATE; i < CARRIED; i++)
        if (v->carried[i] && m->tr->layout.groups > 1)
            TR_TRY(tr_table_create_with(m->tr, names[i], dtype, 1, v->model.n, &options, &v->table[i]));
    return TR_OK;
}

static int open_worker(struct tr_linear *m)
{
    if (!tr_is(m->tr, TR_SLAVE)) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(TR_NEW(&m->variance->gradient, m->variance->model.n));
    if (m->test)
        TR_TRY(tr_linear_set_problem(m, m->job->model.bias, m->test, &m->test_problem, &m->test_target));
    return tr_linear_set_problem(m, m->job->model.bias, m->train, &m->problem, &m->target);
}

/* Each worker looks at its part of its group's rows. */
static int find_smoothness(struct tr_linear *m)
{
    tr_context *tr = m->tr;
    double largest = 0;
    if (tr_is(tr, TR_SLAVE)) {
        tr_worker me = {.tr = tr, .member = tr->me.member, .group_size = tr->layout.group_size};
        size_t first = tr_data_part_begin(m->train, &me), end = tr_data_part_end(m->train, &me);
        largest = tr_variance_largest_norm(&m->problem, first, end - first);
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to look over their rows"));
    struct tr_problem p = m->problem; /* of rank 0 too, which may not work */
    p.model = m->job->model.type;
    p.l2 = m->l2;
    m->variance->smoothness = tr_variance_smoothness(&p, largest);
    return TR_OK;
}

int tr_linear_variance_open(struct tr_linear *m)
{
    struct tr_linear_variance *v;
    TR_TRY(tr_agree(m->tr, check_groups(m)));
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->variance, 1)));
    v = m->variance;
    v->model.n = (size_t)m->train->columns + m->job->model.bias;
    uint64_t bytes = lay_out(m, v, NULL), most = 0;
    MPI_Allreduce(&bytes, &most, 1, MPI_UINT64_T, MPI_MAX, m->tr->node); /* rows are with workers alone */
    TR_TRY(tr_node_memory_open(m->tr, most, &v->memory));
    lay_out(m, v, v->memory.at);
    TR_TRY(tr_transfer_open(m->tr, &v->memory, &v->transfer));
    TR_TRY(open_tables(m));
    TR_TRY(tr_agree(m->tr, open_worker(m)));
    return find_smoothness(m);
}

void tr_linear_variance_close(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    if (!v) return;
    tr_transfer_close(&v->transfer);
    tr_node_memory_close(&v->memory);
    free(v->gradient);
    free(v);
    m->variance = NULL;
}

/* ---- views ---- */

static int open_part(tr_table *table, size_t from, size_t to, enum tr_view_use use, tr_view **view)
{
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, to - from));
    for (size_t i = from; i < to; i++) keys[i - from] = i;
    int status = tr_view_open(table, keys, to - from, use, view);
    free(keys);
    return status;
}

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
    TR_TRY(open_part(m->w, 0, n, TR_VIEW_READ, &f->w));
    TR_TRY(open_part(m->variance->mu, 0, n, TR_VIEW_UPDATE, &f->mu));
    return m->test ? open_part(m->w, 0, n, TR_VIEW_READ, &f->test) : TR_OK;
}

static void release_inner(void *kept)
{
    struct inner *in = kept;
    for (int i = 0; i < CARRIED; i++) tr_view_close(&in->carried[i]);
    tr_view_close(&in->mu);
    tr_variance_close(&in->steps);
    free(in);
}

static int prepare_inner(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct inner *in;
    TR_TRY(TR_NEW(&in, 1));
    me->kept = in;
    in->from = v->model.n * (size_t)me->worker / (size_t)me->workers;
    in->to = v->model.n * ((size_t)me->worker + 1) / (size_t)me->workers;
    for (int i = 0; i < CARRIED; i++)
        if (v->table[i]) TR_TRY(open_part(v->table[i], in->from, in->to, TR_VIEW_GIVE, &in->carried[i]));
    return open_part(v->mu, in->from, in->to, TR_VIEW_READ, &in->mu);
}

/* ---- the full stage ---- */

static int clear_gradient(tr_context *tr, void *state)
{
    (void)tr;
    tr_table_clear(((struct tr_linear *)state)->variance->mu);
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
    tr_variance_gradient(&m->problem, first, end - first, f->w->value, &f->loss, v->slope, v->gradient);
    double scale = 1 / m->problem.n;
    if (element(m) == 4)
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

static int judge_full(void *state, const tr_report *report, tr_verdict *verdict)
{
    const struct tr_linear *m = state;
    verdict->epoch = m->variance->passes + 1;
    return tr_linear_judge(state, report, verdict);
}

/* ---- the inner stage ---- */

static uint64_t steps_of_epoch(const struct tr_linear *m, int64_t epoch)
{
    const tr_job *job = m->job;
    size_t batch = job->solve.batch ? job->solve.batch : 1;
    return tr_variance_epoch_steps(job->solve.method, m->problem.n, job->solve.inner, batch, (uint64_t)epoch);
}

/* Brings this worker's part of the arrays to its node. */
static int take(tr_worker *me, struct tr_linear *m, int64_t epoch)
{
    struct tr_linear_variance *v = m->variance;
    struct inner *in = me->kept;
    size_t size = element(m), offset = in->from * size, bytes = (in->to - in->from) * size;
    for (int i = 0; i < CARRIED; i++) {
        if (!in->carried[i]) continue;
        TR_TRY(tr_view_pull(in->carried[i]));
        memcpy((char *)v->carried[i] + offset, in->carried[i]->value, bytes);
    }
    TR_TRY(tr_view_pull(in->mu));
    memcpy((char *)(uintptr_t)v->model.mu + offset, in->mu->value, bytes);
    const char *snapshot = (const char *)v->carried[SNAPSHOT] + offset;
    if (epoch == 0 || m->job->solve.method == TR_SOLVE_SVRG)
        memcpy((char *)v->model.w + offset, snapshot, bytes);
    if (epoch == 0 && v->model.z) memcpy((char *)v->model.z + offset, snapshot, bytes);
    tr_variance_start(in->steps, &v->model, in->from, in->to);
    if (me->worker == 0) atomic_store(v->model.step, 0);
    return tr_barrier(me->tr, me->tr->cast->members, "the workers of the node to take the model over");
}

/* Fetches all from the node that had its turn before, where every coordinate is up to date. */
static int fetch(tr_worker *me, struct tr_linear *m, int group)
{
    struct tr_linear_variance *v = m->variance;
    const struct inner *in = me->kept;
    int node = me->tr->node_of[me->tr->layout.worker_rank[group * me->tr->layout.group_size]];
    size_t bytes = v->moving[1] - v->moving[0], parts = (size_t)me->workers, i = (size_t)me->worker;
    size_t from = bytes / parts * i, to = i + 1 == parts ? bytes : bytes / parts * (i + 1);
    TR_TRY(tr_transfer_fetch(&v->transfer, node, v->moving[0] + from, to - from));
    TR_TRY(tr_barrier(me->tr, me->tr->cast->members, "the workers of the node to fetch the model"));
    for (size_t j = in->from; j < in->to; j++) v->model.last[j] = (uint32_t)*v->model.step;
    return tr_barrier(me->tr, me->tr->cast->members, "the workers of the node to take the model over");
}

static void keep_difference(const struct tr_linear *m, tr_view *view, const void *now)
{
    for (size_t j = 0; j < view->n; j++) {
        if (element(m) == 4)
            ((float *)view->delta)[j] = ((const float *)now)[j] - ((const float *)view->value)[j];
        else ((double *)view->delta)[j] = ((const double *)now)[j] - ((const double *)view->value)[j];
    }
}

/* Puts the new snapshot, and what is carried on, into the tables. What was taken may have been by other workers: so it is
 * read again, which gives the same. */
static int give(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    struct inner *in = me->kept;
    tr_variance_snapshot(in->steps, &v->model, in->from, in->to, v->carried[SNAPSHOT]);
    for (int i = 0; i < CARRIED; i++) {
        if (!in->carried[i]) continue;
        TR_TRY(tr_view_pull(in->carried[i]));
        keep_difference(m, in->carried[i], (const char *)v->carried[i] + in->from * element(m));
        TR_TRY(tr_view_push(in->carried[i]));
    }
    return TR_OK;
}

/* A worker may not have been there in earlier parts of the epoch. */
static int open_steps(const struct tr_linear *m, struct inner *in, int64_t epoch)
{
    const tr_job *job = m->job;
    tr_variance_close(&in->steps);
    struct tr_variance_options options = {.method = job->solve.method,
                                          .smoothness = m->variance->smoothness,
                                          .rate = job->solve.rate == TR_JOB_AUTO ? 0 : job->solve.rate,
                                          .bias_l2 = job->model.bias_l2,
                                          .steps = steps_of_epoch(m, epoch),
                                          .epoch = (uint64_t)epoch,
                                          .batch = job->solve.batch ? job->solve.batch : 1};
    return tr_variance_open(&m->problem, &options, &in->steps);
}

static uint64_t share_of(uint64_t n, int64_t i, int64_t parts)
{
    return (uint64_t)((double)n * (double)(i + 1) / (double)parts) -
           (uint64_t)((double)n * (double)i / (double)parts);
}

static int compute_inner(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct inner *in = me->kept;
    int64_t epoch = me->command.word[EPOCH], turn = me->command.word[TURN], at = me->before + me->clock;
    int turns = m->tr->layout.groups;
    if (me->clock == 0) TR_TRY(open_steps(m, in, epoch));
    if (at == 0) TR_TRY(turn == 0 ? take(me, m, epoch) : fetch(me, m, (int)me->command.word[FROM_GROUP]));
    uint64_t here = share_of(steps_of_epoch(m, epoch), turn, turns);
    uint64_t steps = share_of(share_of(here, at, me->whole), me->worker, me->workers);
    struct tr_rng rng;
    tr_rng_seed(&rng, m->job->seed, (uint64_t)(me->worker + me->group * me->group_size),
                (uint64_t)((epoch * turns + turn) * me->whole + at));
    size_t rows = m->problem.rows.n;
    if (rows > 0)
        tr_variance_steps(in->steps, 0, rows, v->slope, steps, &rng, &v->model,
                          me->workers > 1 ? &v->race : NULL);
    if (at < me->whole - 1) return TR_OK;
    TR_TRY(tr_barrier(me->tr, me->tr->cast->members, "the other workers of the node to take their steps"));
    tr_variance_settle(in->steps, &v->model, in->from, in->to);
    return turn == turns - 1 ? give(me, m) : TR_OK;
}

/* ---- the task ---- */

static int workers_of(const struct tr_linear *m, int stage)
{
    const struct tr_job_stage *s = tr_job_stage_of(m->job, stage_names[stage]);
    if (!s) return stage == FULL ? TR_ALL_WORKERS : 1;
    if (s->parallelism == TR_AUTO_DEGREE) return TR_AUTO_WORKERS;
    return s->parallelism == TR_ALL ? TR_ALL_WORKERS : (int)s->parallelism;
}

static int servers_of(const struct tr_linear *m, int stage)
{
    const struct tr_job_stage *s = tr_job_stage_of(m->job, stage_names[stage]);
    return s ? (int)s->servers : 0;
}

static int64_t clocks_of(const struct tr_linear *m, int stage)
{
    const struct tr_job_stage *s = tr_job_stage_of(m->job, stage_names[stage]);
    if (stage == FULL) return 1;
    if (s && s->clocks > 0) return (int64_t)s->clocks;
    return workers_of(m, stage) == TR_AUTO_WORKERS ? SEARCHED_CLOCKS : 1;
}

static double passes_of_epoch(const struct tr_linear *m, int64_t epoch)
{
    double batch = m->job->solve.batch ? (double)m->job->solve.batch : 1;
    return (double)steps_of_epoch(m, epoch) * batch / m->problem.n;
}

/* Full and inner in turns, and at the end the gradient once more, to see how good the last snapshot is. Of an inner stage
 * every group has a part. */
static int next_stage(void *state, const tr_ran *ran, tr_next *next)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    int turns = m->tr->layout.groups;
    if (ran->stage == FULL) v->passes++;
    if (ran->stage == INNER && ++v->turn < turns) {
        next->command.word[FROM_GROUP] = ran->first_group;
    } else if (ran->stage == INNER) {
        v->passes += passes_of_epoch(m, v->epoch++);
        v->turn = 0;
    }
    bool inner = ran->stage == FULL || v->turn > 0;
    bool over = ran->stage == FULL && (ran->verdict.stop || v->epoch == v->epochs);
    next->stage = over ? -1 : inner ? INNER : FULL;
    if (over) return TR_OK;
    next->clocks = clocks_of(m, next->stage);
    next->workers = workers_of(m, next->stage);
    next->servers = servers_of(m, next->stage);
    next->command.word[EPOCH] = v->epoch;
    next->command.word[TURN] = v->turn;
    return TR_OK;
}

/* As many epochs as make up solve.epochs of equal length: those of svrg++ double. */
static int64_t count_epochs(const struct tr_linear *m)
{
    double budget = (double)m->job->solve.epochs * (1 + m->job->solve.inner), passes = 0;
    int64_t epochs = 0;
    for (; passes < budget * (1 - 1e-9); epochs++) passes += 1 + passes_of_epoch(m, epochs);
    return epochs;
}

static void say_too_many(const struct tr_linear *m, int stage)
{
    int most = stage == INNER ? m->tr->layout.group_size : tr_workers(m->tr), wished = workers_of(m, stage);
    char key[64];
    snprintf(key, sizeof key, "stages.%s.parallelism", stage_names[stage]);
    if (wished > most)
        tr_say(m->tr, "note:          %s: %s is %d, but there %s %d worker%s%s: %d it is",
               tr_job_where(m->job, key), key, wished, most == 1 ? "is" : "are", most, most == 1 ? "" : "s",
               stage == INNER ? " on a node" : "", most);
}

static int check_servers(const struct tr_linear *m, int stage)
{
    char key[64];
    snprintf(key, sizeof key, "stages.%s.servers", stage_names[stage]);
    if (servers_of(m, stage) <= m->tr->layout.servers) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: %s is %d, but there are %d servers: see ranks.servers",
                   tr_job_where(m->job, key), key, servers_of(m, stage), m->tr->layout.servers);
}

int tr_linear_variance_train(struct tr_linear *m)
{
    for (int stage = 0; stage < STAGES; stage++) TR_TRY(tr_agree(m->tr, check_servers(m, stage)));
    m->problem.n = (double)m->train->total_rows; /* on all ranks: rank 0 may not work */
    m->variance->epochs = count_epochs(m);
    for (int stage = 0; stage < STAGES; stage++) say_too_many(m, stage);
    const tr_stage stages[STAGES] = {{.name = stage_names[FULL],
                                      .state = m,
                                      .metric_name = tr_linear_metric(m),
                                      .prepare = prepare_full,
                                      .begin = clear_gradient,
                                      .compute = compute_full,
                                      .evaluate = evaluate_full,
                                      .judge = judge_full,
                                      .release = release_full},
                                     {.name = stage_names[INNER],
                                      .state = m,
                                      .prepare = prepare_inner,
                                      .compute = compute_inner,
                                      .release = release_inner}};
    const bool one_group[STAGES] = {false, true};
    tr_table *tables[CARRIED + 1] = {m->variance->mu};
    size_t n = 1;
    for (int i = 0; i < CARRIED; i++)
        if (m->variance->table[i]) tables[n++] = m->variance->table[i];
    const tr_task task = {.name = "train",
                          .table = tables,
                          .tables = n,
                          .stage = stages,
                          .n = STAGES,
                          .one_group = one_group,
                          .evaluations = m->variance->epochs + 1,
                          .state = m,
                          .next = next_stage};
    return tr_run_task(m->tr, &task);
}
