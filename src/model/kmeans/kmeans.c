#include "model/kmeans/kmeans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/dataset.h"
#include "model/model.h"
#include "stage/stage.h"

/* What workers sum up for an evaluation. */
enum { INERTIA, MOVED, TEST_INERTIA };

/* Sparse rows of which at least one number in so many is there are faster as dense ones. */
enum { DENSE_FROM = 3 };

/* Empty centres that get a row in one clock, at most. */
enum { SEEDS = 64 };

/* ---- settings ---- */

static int check(const tr_job *job)
{
    TR_TRY(tr_job_check_stages(job, NULL, 0));
    if (job->solve.method != TR_SOLVE_LLOYD && job->solve.method != TR_SOLVE_MINIBATCH)
        return tr_fail(TR_ERR_CONFIG, "%s: expected solve.method lloyd or minibatch for model.type kmeans",
                       tr_job_where(job, "solve.method"));
    if (job->data.partition == TR_DATA_VERTICAL)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.partition vertical is not for kmeans: expected horizontal or replicated",
                       tr_job_where(job, "data.partition"));
    if (job->sync.weight != TR_WEIGHT_SUM)
        return tr_fail(TR_ERR_CONFIG, "%s: kmeans needs whole updates: expected sync.weight sum",
                       tr_job_where(job, "sync.weight"));
    if (job->table.filter != TR_FILTER_NONE)
        return tr_fail(TR_ERR_CONFIG, "%s: kmeans needs whole updates: expected table.filter none",
                       tr_job_where(job, "table.filter"));
    return TR_OK;
}

/* ---- opening ---- */

static bool is_dense(const tr_data *data)
{
    double all = (double)data->total_rows * (double)data->columns;
    return data->rows.dense || (double)data->total_nonzeros * DENSE_FROM >= all;
}

/* Sparse rows that are dense enough. */
static int make_dense(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    const tr_data *data = side->data;
    const tr_batch *rows = &data->rows;
    size_t columns = (size_t)m->columns;
    TR_TRY(TR_NEW(&side->made_dense, rows->n * columns));
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            side->made_dense[i * columns + data->keys[rows->column[k]]] = rows->value ? rows->value[k] : 1;
    side->rows = (tr_batch){.n = rows->n, .label = rows->label, .dense = side->made_dense};
    return TR_OK;
}

static int take_rows(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    side->rows = side->data->rows;
    if (m->sparse) {
        side->keys = side->data->keys;
        side->n_keys = side->data->n_keys;
        return TR_OK;
    }
    side->n_keys = (size_t)m->columns;
    return side->rows.dense || !tr_is(m->tr, TR_SLAVE) ? TR_OK : make_dense(m, side);
}

static int check_rows(const struct tr_kmeans *m)
{
    uint64_t rows = m->train.data->total_rows;
    if (m->k <= rows) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: model.clusters is %zu, but there are %llu rows",
                   tr_job_where(m->job, "model.clusters"), m->k, (unsigned long long)rows);
}

/* Rows of a mini-batch if the job leaves it open: some of them for every centre, and so many that computing on them is
 * worth a pull of all columns. */
static double enough_rows(const struct tr_kmeans *m)
{
    const tr_data *data = m->train.data;
    double rows = (double)data->total_rows, numbers = (double)data->total_nonzeros / rows;
    double worth = 4 * (double)m->columns / fmax(1, numbers) * tr_workers(m->tr);
    return fmax(fmax(1024, rows / 100), fmax(10 * (double)m->k, m->sparse ? worth : 0));
}

static void plan_epoch(struct tr_kmeans *m)
{
    double rows = (double)m->train.data->total_rows, batch = (double)m->job->solve.batch;
    if (batch == 0) batch = enough_rows(m);
    m->clocks_per_epoch = m->batches ? (int64_t)fmax(1, round(rows / batch)) : 1;
}

static int open_rows(struct tr_kmeans *m)
{
    TR_TRY(tr_data_open(m->tr, TR_DATA_TRAIN, NULL, &m->train.data));
    if (m->job->data.test.n > 0) TR_TRY(tr_data_open(m->tr, TR_DATA_TEST, m->train.data, &m->test.data));
    m->columns = m->train.data->columns;
    m->counted_from = m->train.data->format == TR_FORMAT_CSV ? 1 : m->train.data->first_index;
    TR_TRY(tr_agree(m->tr, check_rows(m)));
    double dense = is_dense(m->train.data); /* where a worker has no rows, it is not seen from the batch */
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &dense, 1, MPI_DOUBLE, MPI_MAX, m->tr->world, &request);
    TR_TRY(tr_wait_request(m->tr, &request, "all workers to look over their rows"));
    m->sparse = dense == 0;
    int status = take_rows(m, &m->train);
    if (status == TR_OK && m->test.data) status = take_rows(m, &m->test);
    return tr_agree(m->tr, status);
}

static int open_model(tr_context *tr, struct tr_result *result, void **model)
{
    struct tr_kmeans *m;
    TR_TRY(TR_NEW(&m, 1));
    *model = m;
    m->tr = tr;
    m->job = tr_context_job(tr);
    m->k = (size_t)m->job->model.clusters;
    m->before = NAN;
    m->batches = m->job->solve.method == TR_SOLVE_MINIBATCH;
    m->replicated = m->job->data.partition == TR_DATA_REPLICATED && tr->layout.group_size > 1;
    TR_TRY(open_rows(m));
    plan_epoch(m);
    const tr_data *data = m->train.data;
    *result = (struct tr_result){.rows = data->total_rows,
                                 .columns = data->columns,
                                 .nonzeros = data->total_nonzeros,
                                 .test_auc = NAN,
                                 .test_perplexity = NAN};
    TR_TRY(tr_data_describe(data, "training data"));
    if (m->test.data) TR_TRY(tr_data_describe(m->test.data, "test data"));
    TR_TRY(tr_kmeans_make_steps(m));
    return tr_kmeans_make_table(m);
}

static void close_side(struct tr_kmeans_side *side)
{
    tr_view_close(&side->view);
    if (side->label != side->assigned.label) free(side->label);
    tr_centres_close(&side->centres);
    tr_assigned_close(&side->assigned);
    free(side->least);
    free(side->made_dense);
}

static void close_model(void **model)
{
    struct tr_kmeans *m = *model;
    if (!m) return;
    close_side(&m->train);
    close_side(&m->test);
    tr_data_close(&m->test.data);
    tr_data_close(&m->train.data);
    tr_start_free(&m->start);
    void *arrays[] = {m->round, m->shift,      m->total,  m->total_count,
                      m->sent,  m->sent_count, m->pushed, m->order};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(m);
    *model = NULL;
}

/* ---- before the first clock ---- */

/* Where each column of the start's rows is among the columns here, if it is. */
static size_t place_of(const struct tr_kmeans_side *side, uint32_t column)
{
    size_t low = 0, high = side->n_keys;
    if (!side->keys) return column;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (side->keys[middle] < column) low = middle + 1;
        else high = middle;
    }
    return low < side->n_keys && side->keys[low] == column ? low : side->n_keys;
}

void tr_kmeans_start_at(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    struct tr_centres *c = &side->centres;
    const tr_batch *start = &m->start.rows;
    for (size_t j = 0; j < m->mine && start->n > 0; j++) {
        size_t row = m->first + j;
        if (!m->sparse) {
            memcpy(c->value + j * c->columns, start->dense + row * c->columns, c->columns * sizeof *c->value);
            continue;
        }
        for (uint64_t i = start->begin[row]; i < start->begin[row + 1]; i++) {
            size_t place = place_of(side, start->column[i]);
            c->norm[j] += (double)start->value[i] * (double)start->value[i];
            if (place < side->n_keys) c->value[place * c->width + j] = start->value[i];
        }
    }
}

static int prepare_side(struct tr_kmeans *m, struct tr_kmeans_side *side, bool training)
{
    bool bounds = training && !m->batches && !m->replicated && m->job->solve.bounds != TR_BOUNDS_NO;
    TR_TRY(tr_kmeans_open_view(m, side, training));
    TR_TRY(tr_centres_open(m->mine, side->n_keys, m->sparse, &side->centres));
    TR_TRY(tr_assigned_open(&side->centres, &side->rows, bounds, &side->assigned));
    tr_kmeans_start_at(m, side);
    side->label = side->assigned.label;
    if (!m->replicated) return TR_OK;
    TR_TRY(TR_NEW(&side->label, side->rows.n));
    memset(side->label, 0xff, side->rows.n * sizeof *side->label);
    return TR_NEW(&side->least, side->rows.n);
}

static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct tr_kmeans *m = state;
    TR_TRY(prepare_side(m, &m->train, true));
    if (m->test.data) TR_TRY(prepare_side(m, &m->test, false));
    TR_TRY(TR_NEW(&m->order, (size_t)m->clocks_per_epoch));
    TR_TRY(TR_NEW(&m->pushed, m->train.rows.n));
    memset(m->pushed, 0xff, m->train.rows.n * sizeof *m->pushed);
    if (m->sparse) return TR_OK;
    size_t n = m->mine * (size_t)m->columns;
    TR_TRY(TR_NEW(&m->total, n));
    TR_TRY(TR_NEW(&m->sent, n));
    TR_TRY(TR_NEW(&m->total_count, m->mine));
    return TR_NEW(&m->sent_count, m->mine);
}

/* ---- labels ---- */

static void count_change(void *state, size_t row, uint32_t from, uint32_t to)
{
    struct tr_kmeans *m = state;
    m->moved++;
    tr_kmeans_change(m, row, from, to);
}

static void ignore_change(void *state, size_t row, uint32_t from, uint32_t to)
{
    (void)state;
    (void)row;
    (void)from;
    (void)to;
}

/* Where members of a group have the same rows but each other centres: the nearest of each, then of all. */
static int assign_together(struct tr_kmeans *m, tr_worker *me, struct tr_kmeans_side *side, size_t first,
                           size_t last, tr_changed_fn *changed)
{
    if (m->mine > 0)
        tr_assign(&side->centres, &side->rows, first, last, &side->assigned, ignore_change, NULL);
    for (size_t i = first; i < last; i++) {
        uint32_t label = side->assigned.label[i];
        side->least[i] = (tr_least){INFINITY, (int)m->k};
        if (m->mine > 0)
            side->least[i] =
                (tr_least){tr_distance(&side->centres, &side->rows, i, label), (int)(m->first + label)};
    }
    TR_TRY(tr_group_least(me, side->least + first, last - first));
    for (size_t i = first; i < last; i++) {
        uint32_t from = side->label[i], to = (uint32_t)side->least[i].place;
        side->label[i] = to;
        if (from != to) changed(m, i, from, to);
    }
    return TR_OK;
}

static int assign(struct tr_kmeans *m, tr_worker *me, struct tr_kmeans_side *side, size_t first, size_t last,
                  tr_changed_fn *changed)
{
    if (m->replicated) return assign_together(m, me, side, first, last, changed);
    tr_assign(&side->centres, &side->rows, first, last, &side->assigned, changed, m);
    return TR_OK;
}

/* This worker's part of the inertia; in a group whose members have the same rows, the leader's is of all. */
static double inertia_of(const struct tr_kmeans *m, const tr_worker *me, const struct tr_kmeans_side *side)
{
    double sum = 0;
    if (!m->replicated) return tr_inertia(&side->centres, &side->rows, &side->assigned);
    for (size_t i = 0; i < side->rows.n && me->member == 0; i++) sum += side->least[i].value;
    return sum;
}

/* Pulls, and labels all rows, unless that has been done in this clock. */
static int refresh(struct tr_kmeans *m, tr_worker *me)
{
    if (m->fresh) return TR_OK;
    m->moved = 0;
    if (!m->sparse && !m->batches) memcpy(m->pushed, m->train.label, m->train.rows.n * sizeof *m->pushed);
    TR_TRY(tr_kmeans_pull(m, &m->train));
    TR_TRY(assign(m, me, &m->train, 0, m->train.rows.n, m->batches ? ignore_change : count_change));
    bool from_sums = !m->sparse && !m->batches && !m->replicated;
    m->inertia = from_sums ? tr_kmeans_inertia(m) : inertia_of(m, me, &m->train);
    if (m->batches && m->sparse) memcpy(m->pushed, m->train.label, m->train.rows.n * sizeof *m->pushed);
    m->fresh = !m->batches;
    return TR_OK;
}

/* ---- empty centres ---- */

/* A row that may get a centre of its own. */
struct seed {
    double distance;
    uint64_t hash;
    int32_t group, worker;
    uint32_t row;
};

/* The farthest rows come first, then by what is in them. */
static int by_distance(const void *a, const void *b)
{
    const struct seed *x = a, *y = b;
    if (x->distance != y->distance) return x->distance > y->distance ? -1 : 1;
    if (x->hash != y->hash) return x->hash > y->hash ? 1 : -1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

static double distance_of(const struct tr_kmeans *m, size_t row)
{
    const struct tr_kmeans_side *side = &m->train;
    return m->replicated ? side->least[row].value
                         : tr_distance(&side->centres, &side->rows, row, side->label[row]);
}

/* This worker's farthest rows, at most n. */
static int propose(const struct tr_kmeans *m, const tr_worker *me, struct seed *seeds, size_t n)
{
    struct seed *all;
    size_t rows = m->train.rows.n, kept = 0;
    TR_TRY(TR_NEW(&all, 2 * n));
    for (size_t i = 0; i < rows; i++) {
        struct seed s = {
            .distance = distance_of(m, i), .group = me->group, .worker = me->worker, .row = (uint32_t)i};
        if (kept >= n && s.distance < all[n - 1].distance) continue;
        s.hash = tr_kmeans_hash(&m->train, m->columns, i);
        all[kept++] = s;
        if (kept < 2 * n) continue;
        qsort(all, kept, sizeof *all, by_distance);
        kept = n;
    }
    qsort(all, kept, sizeof *all, by_distance);
    for (size_t i = 0; i < n; i++) seeds[i] = i < kept ? all[i] : (struct seed){.distance = -1};
    free(all);
    return TR_OK;
}

/* Gives a row to an empty centre; where members of a group have the same rows, they all do. */
static void plant(struct tr_kmeans *m, const tr_worker *me, const struct seed *seed, uint32_t centre)
{
    bool mine = m->replicated ? seed->group == me->group : seed->worker == me->worker;
    if (!mine) return;
    struct tr_kmeans_side *side = &m->train;
    tr_kmeans_change(m, seed->row, side->label[seed->row], centre);
    side->label[seed->row] = centre;
    if (!m->replicated) tr_assigned_set(&side->assigned, seed->row, centre);
}

/* All workers have pulled the same counts, and so see the same centres empty. */
static int seed_empty(struct tr_kmeans *m, tr_worker *me, const uint32_t *empty, size_t n)
{
    tr_context *tr = m->tr;
    struct seed *mine, *all;
    size_t total = n * (size_t)me->workers;
    TR_TRY(TR_NEW(&mine, n));
    TR_TRY(TR_NEW(&all, total));
    TR_TRY(propose(m, me, mine, n));
    MPI_Request request;
    int bytes = (int)(n * sizeof *mine);
    MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, tr->workers, &request);
    TR_TRY(tr_wait_request(tr, &request, "the farthest rows of all workers"));
    qsort(all, total, sizeof *all, by_distance);
    for (size_t i = 0, used = 0; i < total && used < n && all[i].distance > 0; i++)
        if (i == 0 || all[i].hash != all[i - 1].hash) plant(m, me, &all[i], empty[used++]);
    free(mine);
    free(all);
    return TR_OK;
}

/* Lists the centres that have no rows; in a group whose members have a share of them each, over all shares. */
static int find_empty(struct tr_kmeans *m, tr_worker *me, uint32_t *empty, size_t *n)
{
    double *count;
    const double *pulled = (const double *)m->train.view->value + m->train.n_keys * m->span;
    TR_TRY(TR_NEW(&count, m->k));
    memcpy(count + m->first, pulled, m->mine * sizeof *count);
    int status = m->replicated ? tr_group_sum(me, count, m->k) : TR_OK;
    *n = 0;
    for (size_t j = 0; j < m->k && *n < SEEDS; j++)
        if (!(count[j] > 0)) empty[(*n)++] = (uint32_t)j;
    free(count);
    return status;
}

/* Only in lockstep; otherwise workers do not see the same, and an empty centre stays where it is. */
static int fill_empty(struct tr_kmeans *m, tr_worker *me)
{
    uint32_t empty[SEEDS];
    size_t n = 0;
    if (me->clock == 0 || !tr_in_lockstep(m->tr)) return TR_OK;
    TR_TRY(find_empty(m, me, empty, &n));
    return n > 0 ? seed_empty(m, me, empty, n) : TR_OK;
}

/* ---- a clock ---- */

static int lloyd(tr_worker *me, void *state)
{
    struct tr_kmeans *m = state;
    TR_TRY(refresh(m, me));
    TR_TRY(fill_empty(m, me));
    m->fresh = false;
    return tr_kmeans_push(m);
}

/* A new order of mini-batches, the same for all members of a group. */
static void shuffle(struct tr_kmeans *m, const tr_worker *me, int64_t epoch)
{
    struct tr_rng rng;
    if (m->ordered == epoch + 1) return;
    m->ordered = epoch + 1;
    tr_rng_seed(&rng, m->job->seed, (uint64_t)me->group, (uint64_t)epoch);
    for (int64_t i = 0; i < m->clocks_per_epoch; i++) {
        int64_t j = (int64_t)tr_rng_below(&rng, (uint64_t)i + 1);
        m->order[i] = m->order[j];
        m->order[j] = i;
    }
}

static int minibatch(tr_worker *me, void *state)
{
    struct tr_kmeans *m = state;
    struct tr_kmeans_side *side = &m->train;
    int64_t turn = me->clock % m->clocks_per_epoch;
    shuffle(m, me, me->clock / m->clocks_per_epoch);
    double rows = (double)side->rows.n, parts = (double)m->clocks_per_epoch, part = (double)m->order[turn];
    size_t first = (size_t)(rows * part / parts), last = (size_t)(rows * (part + 1) / parts);
    TR_TRY(tr_kmeans_pull(m, side));
    for (size_t i = first; i < last; i++) {
        side->label[i] = TR_NO_CENTRE;
        side->assigned.label[i] = TR_NO_CENTRE;
        if (m->sparse) m->pushed[i] = TR_NO_CENTRE;
    }
    TR_TRY(assign(m, me, side, first, last, count_change));
    return tr_kmeans_push(m);
}

/* ---- evaluation ---- */

/* Centres without rows are where they are for training. */
static void stay(struct tr_kmeans *m)
{
    const struct tr_centres *c = &m->train.centres;
    memcpy(m->test.centres.value, c->value, c->k * c->columns * sizeof *c->value);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_kmeans *m = state;
    TR_TRY(refresh(m, me));
    report->sum[INERTIA] += m->inertia;
    report->sum[MOVED] += (double)m->moved;
    if (!m->test.data) return TR_OK;
    if (!m->sparse) stay(m);
    TR_TRY(tr_kmeans_pull(m, &m->test));
    TR_TRY(assign(m, me, &m->test, 0, m->test.rows.n, ignore_change));
    report->sum[TEST_INERTIA] += inertia_of(m, me, &m->test);
    return TR_OK;
}

static bool has_settled(const struct tr_kmeans *m, const tr_report *report)
{
    double tolerance = m->job->solve.tolerance, now = report->sum[INERTIA], fall = m->before - now;
    if (m->batches) return false;
    if (!tr_in_lockstep(m->tr)) fall = fabs(fall);
    return tolerance > 0 ? fall <= tolerance * now : report->sum[MOVED] == 0 && tr_in_lockstep(m->tr);
}

static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_kmeans *m = state;
    double inertia = report->sum[INERTIA];
    evaluation->objective = inertia;
    if (m->test.data) evaluation->metric = report->sum[TEST_INERTIA];
    if (!isfinite(inertia))
        return tr_fail(TR_ERR_DIVERGED, "the inertia is not finite: the data's numbers are too large");
    evaluation->stop = has_settled(m, report) || inertia <= m->job->solve.target;
    m->before = inertia;
    m->last = *evaluation;
    return TR_OK;
}

static int train_model(void *model)
{
    struct tr_kmeans *m = model;
    if (!tr_context_continues(m->tr)) TR_TRY(tr_kmeans_choose(m));
    tr_stage stage = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)m->job->solve.epochs * m->clocks_per_epoch,
                      .evaluate_every = (int64_t)m->job->report.every * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .objective_name = "inertia",
                      .metric_name = m->test.data ? "test inertia" : NULL,
                      .prepare = prepare,
                      .compute = m->batches ? minibatch : lloyd,
                      .evaluate = evaluate,
                      .summarize = summarize,
                      .snapshot = tr_kmeans_keep};
    return tr_run(m->tr, &stage);
}

static int save_model(void *model, const char *folder, struct tr_result *result)
{
    (void)result;
    return tr_kmeans_save(model, folder);
}

const struct tr_model_kind tr_kmeans_kind = {check, open_model, train_model, save_model, close_model};
