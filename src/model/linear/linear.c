#include "model/linear/linear.h"

#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "model/linear/auc.h"
#include "model/linear/parts.h"
#include "model/linear/save.h"
#include "model/model.h"
#include "model/linear/loss.h"

/* What workers sum up for an evaluation. */
enum { LOSS, CONJUGATE, SQUARES, ABSOLUTES, BIAS_SQUARE, TEST_ROWS, TEST_RIGHT, TEST_SQUARES };

static bool classifies(const struct tr_linear *m)
{
    return m->job->model.type != TR_MODEL_LINEAR;
}

bool tr_linear_reduces_variance(const tr_job *job)
{
    int method = job->solve.method;
    return method == TR_SOLVE_SVRG || method == TR_SOLVE_SVRGPP || method == TR_SOLVE_KATYUSHA;
}

bool tr_linear_grows(const tr_job *job)
{
    return job->solve.method == TR_SOLVE_GROWING;
}

static bool is_dual(const struct tr_linear *m)
{
    return m->job->solve.method == TR_SOLVE_DUAL;
}

bool tr_linear_is_vertical(const tr_worker *me, const struct tr_linear *m)
{
    return me->group_size > 1 && m->job->data.partition == TR_DATA_VERTICAL;
}

/* ---- before the first clock ---- */

/* A label that training has not seen would count as the smaller kind. */
static int check_test_labels(const struct tr_linear *m)
{
    const tr_data *train = m->train;
    if (!m->test || !classifies(m) || train->labels < 2) return TR_OK;
    for (size_t i = 0; i < m->test->labels; i++)
        if (m->test->label[i] != train->label[0] && m->test->label[i] != train->label[1])
            return tr_fail(TR_ERR_DATA, "%s: label %.9g, expected %.9g or %.9g as in the training data",
                           m->job->data.test.item[0], (double)m->test->label[i], (double)train->label[0],
                           (double)train->label[1]);
    return TR_OK;
}

static int check_labels(const struct tr_linear *m)
{
    const tr_job *job = m->job;
    if (classifies(m) && m->train->labels > 2)
        return tr_fail(TR_ERR_DATA, "%s: expected two kinds for model.type %s", tr_data_third_label(m->train),
                       job->model.type == TR_MODEL_LOGISTIC ? "logistic" : "svm");
    return check_test_labels(m);
}

/* What is wished for beside a method, an optimizer or a weighting that has no use for it. */
static int check_ways(const tr_job *job)
{
    bool dual = job->solve.method == TR_SOLVE_DUAL, weighted = job->sync.weight != TR_WEIGHT_SUM;
    bool at_server =
        job->solve.optimizer != TR_OPTIMIZER_SGD && job->solve.optimizer_at == TR_OPTIMIZE_SERVER;
    if (dual && weighted)
        return tr_fail(TR_ERR_CONFIG, "%s: sync.weight is for solve.method sgd: the dual needs whole updates",
                       tr_job_where(job, "sync.weight"));
    if (dual && job->solve.optimizer != TR_OPTIMIZER_SGD)
        return tr_fail(TR_ERR_CONFIG, "%s: solve.optimizer is for solve.method sgd",
                       tr_job_where(job, "solve.optimizer"));
    if (job->solve.method == TR_SOLVE_SGD && job->solve.optimizer != TR_OPTIMIZER_SGD)
        TR_TRY(tr_linear_check_optimizer(job));
    if (weighted && at_server)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: sync.weight weighs steps, but the servers get gradients: set solve.optimizer_at to "
            "worker, or leave sync.weight sum",
            tr_job_where(job, "sync.weight"));
    if (job->model.l1 > 0 && (dual || job->solve.optimizer != TR_OPTIMIZER_FTRL))
        return tr_fail(TR_ERR_CONFIG, "%s: model.l1 needs solve.method sgd and solve.optimizer ftrl",
                       tr_job_where(job, "model.l1"));
    if (job->table.filter == TR_FILTER_KKT && job->model.l1 == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: table.filter kkt is for model.l1 > 0",
                       tr_job_where(job, "table.filter"));
    if (job->sync.stable && job->sync.weight != TR_WEIGHT_DYN)
        return tr_fail(TR_ERR_CONFIG, "%s: sync.stable needs sync.weight dyn: others keep no versions",
                       tr_job_where(job, "sync.stable"));
    return TR_OK;
}

static bool is_for_linear(int method)
{
    return method == TR_SOLVE_DUAL || method == TR_SOLVE_SGD || method >= TR_SOLVE_SVRG;
}

static int check_job(const tr_job *job)
{
    if (!is_for_linear(job->solve.method))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: linear models learn by dual, sgd, svrg, svrg++, katyusha or growing, not by this "
                       "solve.method",
                       tr_job_where(job, "solve.method"));
    TR_TRY(check_ways(job));
    if (tr_linear_reduces_variance(job)) return tr_linear_variance_check(job);
    if (tr_linear_grows(job)) return tr_linear_growing_check(job);
    TR_TRY(tr_job_check_stages(job, NULL, 0));
    if (job->solve.method != TR_SOLVE_DUAL) return TR_OK;
    if (job->model.bias && !job->model.bias_l2)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: solve.method dual needs a regularised bias: set model.bias_l2, or use solve.method sgd",
            tr_job_where(job, "model.bias"));
    if (job->model.l2 == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: solve.method dual needs model.l2 > 0, or use solve.method sgd",
                       tr_job_where(job, "model.l2"));
    if (job->data.partition == TR_DATA_VERTICAL)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.partition vertical needs solve.method sgd: a dual step needs whole rows",
                       tr_job_where(job, "data.partition"));
    if (job->data.partition == TR_DATA_REPLICATED)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: data.partition replicated is not for solve.method dual: a row has one dual variable, at "
            "one worker",
            tr_job_where(job, "data.partition"));
    return TR_OK;
}

/* Workers that merge often disturb each other less (a9a on two ranks: 44 epochs to a gap of 1e-4 with 22 clocks in
 * each, with 4 not in 100), but a clock costs a pull and a push of the whole view: it should compute on several
 * non-zeros for each key, and longer than a message takes. */
static int64_t dual_clocks(const struct tr_linear *m)
{
    int workers = tr_workers(m->tr);
    if (workers == 1) return 1;
    double nonzeros = (double)m->train->total_nonzeros / workers, least = tr_nodes(m->tr) == 1 ? 1e4 : 1e5;
    return (int64_t)fmax(1, fmin(64, fmin(nonzeros / least, nonzeros / (4 * (double)m->train->columns))));
}

/* Mini-batches of a clock if the job leaves it open: an update is worth sending when as much has been computed into it
 * as it costs to exchange it. A pull and a push touch every key of a worker, a mini-batch touches its non-zeros twice;
 * over a network a key costs several times more. (Angel, section 5.2: an update buffer that is pushed when it is full.) */
static int64_t enough_batches(const struct tr_linear *m)
{
    double workers = tr_workers(m->tr), nonzeros = (double)m->train->total_nonzeros / workers;
    double keys = fmin((double)m->train->columns, nonzeros);
    double wanted = (tr_nodes(m->tr) == 1 ? 2 : 8) * keys, batch = nonzeros / (double)m->iterations;
    return (int64_t)fmax(1, fmin((double)m->iterations, ceil(wanted / fmax(batch, 1))));
}

static int64_t batches_of_clock(const struct tr_linear *m)
{
    const struct tr_job_often *push = &m->job->sync.push;
    int64_t n = (int64_t)push->n;
    switch (push->unit) {
    case TR_OFTEN_EVERY: return n < m->iterations ? n : m->iterations;
    case TR_OFTEN_PER_EPOCH: return (m->iterations + n - 1) / n;
    default: return is_dual(m) ? 1 : enough_batches(m);
    }
}

/* Mini-batches and clocks of an epoch; all ranks come to the same. */
static void plan_epoch(struct tr_linear *m)
{
    double n = (double)m->train->total_rows, batch = (double)m->job->solve.batch;
    if (batch > 0) m->iterations = (int64_t)fmax(1, round(n / batch));
    else m->iterations = is_dual(m) ? dual_clocks(m) : (int64_t)fmax(1, round(n / fmax(32, n / 200)));
    m->every = batches_of_clock(m);
    m->clocks_per_epoch = (m->iterations + m->every - 1) / m->every;
}

/* Reads the data and makes the tables. *out is set even where it fails. */
static int open_linear(tr_context *tr, void **out)
{
    struct tr_linear *m;
    TR_TRY(TR_NEW(&m, 1));
    m->tr = tr;
    m->job = tr_context_job(tr);
    *out = m;
    TR_TRY(tr_data_open(tr, TR_DATA_TRAIN, NULL, &m->train));
    if (m->job->data.test.n > 0) TR_TRY(tr_data_open(tr, TR_DATA_TEST, m->train, &m->test));
    m->l2 = m->job->model.l2 < 0 ? 1 / (double)m->train->total_rows : m->job->model.l2;
    TR_TRY(tr_agree(tr, check_labels(m)));
    plan_epoch(m);
    enum tr_dtype dtype = m->job->model.dtype == TR_DTYPE_F32 ? TR_F32 : TR_F64;
    uint64_t columns = m->train->columns + m->job->model.bias;
    tr_table_options options = {.servers = tr_linear_servers(m)};
    TR_TRY(tr_table_create_with(tr, "w", dtype, 1, columns, &options, &m->w));
    TR_TRY(tr_linear_use_function(m));
    if (tr_linear_reduces_variance(m->job)) return tr_linear_variance_open(m);
    if (!is_dual(m) && m->l2 > 0) TR_TRY(tr_table_create(tr, "count", TR_F32, 1, columns, &m->count));
    return tr_linear_grows(m->job) ? tr_linear_growing_open(m) : TR_OK;
}

/* ---- what a worker needs of the data ---- */

static bool has_bias(const struct tr_linear *m, const tr_worker *me)
{
    return m->job->model.bias && (!tr_linear_is_vertical(me, m) || me->member == 0);
}

/* The keys of the data, and the bias behind them on one member of the group or on all of a horizontal one. */
int tr_linear_open_view(struct tr_linear *m, tr_worker *me, const tr_data *data, tr_table *table,
                        enum tr_view_use use, tr_view **view)
{
    bool bias = has_bias(m, me);
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, data->n_keys + 1));
    memcpy(keys, data->keys, data->n_keys * sizeof *keys);
    keys[data->n_keys] = data->columns;
    if (use == TR_VIEW_UPDATE && !tr_linear_is_vertical(me, m)) use = TR_VIEW_GROUP;
    int status = tr_view_open(table, keys, data->n_keys + bias, use, view);
    free(keys);
    return status;
}

int tr_linear_open_range(tr_table *table, tr_key first, size_t n, enum tr_view_use use, tr_view **view)
{
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = first + i;
    int status = tr_view_open(table, keys, n, use, view);
    free(keys);
    return status;
}

tr_worker tr_linear_self(tr_context *tr)
{
    return (tr_worker){.tr = tr, .member = tr_set_rank(tr, TR_SET_GROUP), .group_size = tr_group_size(tr)};
}

int tr_linear_set_problem(const struct tr_linear *m, bool bias, const tr_data *data, struct tr_problem *p,
                          float **target)
{
    *p = (struct tr_problem){.model = m->job->model.type,
                             .dtype = m->job->model.dtype == TR_DTYPE_F32 ? TR_F32 : TR_F64,
                             .rows = data->rows,
                             .bias = bias,
                             .keys = data->n_keys,
                             .l2 = m->l2,
                             .n = (double)data->total_rows};
    TR_TRY(TR_NEW(target, data->rows.n));
    float positive = m->train->label[m->train->labels > 0 ? m->train->labels - 1 : 0];
    for (size_t i = 0; i < data->rows.n; i++) {
        float label = data->rows.label[i];
        (*target)[i] = !classifies(m) ? label : label == positive ? 1.0f : -1.0f;
    }
    p->target = *target;
    return TR_OK;
}

/* ---- how many rows have a feature: one clock over a table of its own ---- */

static int prepare_count(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_set_problem(m, has_bias(m, me), m->train, &m->problem, &m->target));
    if (!m->count) return TR_OK;
    return tr_linear_open_view(m, me, m->train, m->count, TR_VIEW_UPDATE, &m->count_view);
}

static int count_rows(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    if (!m->count) return TR_OK;
    float *count = m->count_view->delta;
    const tr_batch *rows = &m->problem.rows;
    size_t first = tr_data_part_begin(m->train, me), end = tr_data_part_end(m->train, me);
    if (end > first)
        for (uint64_t k = rows->begin[first]; k < rows->begin[end]; k++) count[rows->column[k]] += 1;
    if (m->problem.bias) count[m->problem.keys] += (float)(end - first);
    return tr_view_push(m->count_view);
}

/* Spreads λ w over the rows: a step on a row shrinks just its features, by λ n / (rows that have it), so that the
 * mean over all rows is λ w, and the step costs no more than its non-zeros. */
static int spread_regularisation(struct tr_linear *m)
{
    if (!m->count_view) return TR_OK;
    TR_TRY(tr_view_pull(m->count_view));
    const float *count = m->count_view->value;
    size_t n = m->count_view->n;
    TR_TRY(TR_NEW(&m->reg, n));
    for (size_t j = 0; j < n; j++)
        m->reg[j] = count[j] > 0 ? (float)(m->l2 * m->problem.n / (double)count[j]) : 0;
    if (m->problem.bias && !m->job->model.bias_l2) m->reg[m->problem.keys] = 0;
    tr_view_close(&m->count_view);
    return TR_OK;
}

/* ---- preparing to train ---- */

static int prepare_train(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_UPDATE, &m->view));
    if (m->job->sync.pull == TR_PULL_STALE && !tr_in_lockstep(m->tr)) /* to evaluate what the servers have */
        TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_READ, &m->fresh_view));
    if (m->test) {
        TR_TRY(tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view));
        TR_TRY(tr_linear_set_problem(m, has_bias(m, me), m->test, &m->test_problem, &m->test_target));
    }
    size_t rows = m->problem.rows.n;
    tr_linear_take_part(me, m);
    TR_TRY(TR_NEW(&m->margin, tr_max_size(TR_LINEAR_MARGINS, rows / (size_t)m->iterations + 1)));
    if (!is_dual(m)) return tr_linear_sgd_prepare(m);
    TR_TRY(TR_NEW(&m->order, rows));
    TR_TRY(TR_NEW(&m->dual, rows));
    TR_TRY(TR_NEW(&m->norm, rows));
    tr_row_norms(&m->problem, m->norm);
    return TR_OK;
}

/* ---- what the methods share ---- */

void tr_linear_take_part(const tr_worker *me, struct tr_linear *m)
{
    m->first_row = tr_data_part_begin(m->train, me);
    m->end_row = tr_data_part_end(m->train, me);
}

/* The rows of this worker that belong to mini-batch i of an epoch. */
size_t tr_linear_batch_begin(const struct tr_linear *m, int64_t i)
{
    return m->first_row + (size_t)((double)(m->end_row - m->first_row) * (double)i / (double)m->iterations);
}

/* Mini-batches first .. last - 1 of the epoch that clock c belongs to. */
void tr_linear_batches(const struct tr_linear *m, int64_t clock, int64_t *first, int64_t *last)
{
    int64_t of_epoch = clock % m->clocks_per_epoch;
    *first = of_epoch * m->every;
    *last = *first + m->every < m->iterations ? *first + m->every : m->iterations;
}

/* delta is used as the worker's own copy of w while it computes: one array fewer to keep in cache. */
void tr_copy_to_delta(tr_view *view, enum tr_dtype dtype)
{
    memcpy(view->delta, view->value, view->n * (dtype == TR_F32 ? 4 : 8));
}

void tr_keep_difference(tr_view *view, enum tr_dtype dtype, double divisor)
{
    if (dtype == TR_F32) {
        float *delta = view->delta, scale = (float)(1 / divisor);
        const float *value = view->value;
        for (size_t i = 0; i < view->n; i++) delta[i] = (delta[i] - value[i]) * scale;
    } else {
        double *delta = view->delta, scale = 1 / divisor;
        const double *value = view->value;
        for (size_t i = 0; i < view->n; i++) delta[i] = (delta[i] - value[i]) * scale;
    }
}

/* ---- evaluation ---- */

/* Adds up something over rows from .. to - 1 of a problem from their margins. */
static int for_margins(tr_worker *me, struct tr_linear *m, const struct tr_problem *p, size_t from, size_t to,
                       const void *w,
                       void (*add)(const struct tr_problem *p, double margin, double y, double *sum),
                       double *sum)
{
    for (size_t first = from; first < to; first += TR_LINEAR_MARGINS) {
        size_t n = tr_min_size(TR_LINEAR_MARGINS, to - first);
        tr_margins(p, first, n, w, m->margin);
        if (tr_linear_is_vertical(me, m)) TR_TRY(tr_group_sum(me, m->margin, n));
        if (tr_linear_is_vertical(me, m) && me->member > 0) continue; /* the same rows as member 0's */
        for (size_t i = 0; i < n; i++) add(p, m->margin[i], (double)p->target[first + i], sum);
    }
    return TR_OK;
}

static void add_loss(const struct tr_problem *p, double margin, double y, double *sum)
{
    sum[LOSS] += tr_loss(p->model, margin, y);
}

static void add_test(const struct tr_problem *p, double margin, double y, double *sum)
{
    (void)p;
    sum[TEST_ROWS] += 1;
    sum[TEST_RIGHT] += margin * y > 0 || (margin == 0 && y < 0);
    sum[TEST_SQUARES] += (margin - y) * (margin - y);
}

int tr_linear_report_size(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report)
{
    if (me->worker != 0) return TR_OK;
    TR_TRY(tr_table_squares(m->w, &report->sum[SQUARES]));
    if (m->job->model.l1 > 0) {
        size_t bytes = sizeof report->sum[ABSOLUTES];
        TR_TRY(tr_table_ask(m->w, "sum1", NULL, 0, &report->sum[ABSOLUTES], &bytes));
    }
    size_t last = m->problem.keys;
    double bias = !m->problem.bias             ? 0
                  : m->problem.dtype == TR_F32 ? (double)((const float *)w)[last]
                                               : ((const double *)w)[last];
    report->sum[BIAS_SQUARE] = bias * bias;
    return TR_OK;
}

int tr_linear_report_test(tr_worker *me, struct tr_linear *m, tr_view *view, tr_report *report)
{
    TR_TRY(tr_view_pull(view));
    return for_margins(me, m, &m->test_problem, tr_data_part_begin(m->test, me),
                       tr_data_part_end(m->test, me), view->value, add_test, report->sum);
}

void tr_linear_report_loss(tr_report *report, double loss)
{
    report->sum[LOSS] += loss;
}

int tr_linear_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    tr_view *view = m->fresh_view ? m->fresh_view : m->view;
    TR_TRY(tr_view_pull(view));
    TR_TRY(for_margins(me, m, &m->problem, tr_data_part_begin(m->train, me), tr_data_part_end(m->train, me),
                       view->value, add_loss, report->sum));
    if (is_dual(m)) report->sum[CONJUGATE] += tr_dual_sum(&m->problem, m->dual);
    TR_TRY(tr_linear_report_size(me, m, view->value, report));
    return m->test ? tr_linear_report_test(me, m, m->test_view, report) : TR_OK;
}

/* An objective that has grown a thousandfold does not come back, even where it takes long to leave the numbers. */
static int check_divergence(struct tr_linear *m, double epoch, double objective)
{
    if (m->usual == 0) m->usual = fmax(objective, tr_loss(m->job->model.type, 0, 1));
    if (isfinite(objective) && objective <= 1000 * m->usual) return TR_OK;
    char what[64] = "not finite any more";
    if (isfinite(objective))
        snprintf(what, sizeof what, "%.3g, at the beginning it was %.3g", objective, m->usual);
    return tr_fail(TR_ERR_DIVERGED, "epoch %.2f: the objective is %s: %s", epoch, what,
                   is_dual(m) ? "raise solve.sigma, or lower sync.staleness"
                              : "lower solve.rate or sync.staleness, or set sync.weight to con or dyn");
}

int tr_linear_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    const double *sum = report->sum;
    double n = (double)m->train->total_rows;
    double squares = sum[SQUARES] - (m->job->model.bias_l2 ? 0 : sum[BIAS_SQUARE]);
    double primal = sum[LOSS] / n + 0.5 * m->l2 * squares + m->job->model.l1 * sum[ABSOLUTES];
    evaluation->objective = primal;
    if (is_dual(m)) {
        double dual = -0.5 * m->l2 * squares - sum[CONJUGATE] / n;
        evaluation->gap = (primal - dual) / fmax(fabs(dual), 1e-300);
        /* under SSP and ASP the workers' parts are of different parameters: an estimate, which may even be negative */
        double goal = m->job->solve.target_gap, safe = tr_in_lockstep(m->tr) ? goal : goal / 2;
        evaluation->stop = goal > 0 && fabs(evaluation->gap) <= safe;
    }
    if (m->test)
        evaluation->metric =
            classifies(m) ? sum[TEST_RIGHT] / sum[TEST_ROWS] : sqrt(sum[TEST_SQUARES] / sum[TEST_ROWS]);
    if (m->job->solve.target != TR_JOB_AUTO && primal <= m->job->solve.target) evaluation->stop = true;
    m->last = *evaluation;
    double epoch = (double)report->clock / (double)m->clocks_per_epoch;
    return check_divergence(m, isfinite(evaluation->epoch) ? evaluation->epoch : epoch, primal);
}

int tr_linear_keep_judged(struct tr_linear *m, tr_snapshot *snapshot)
{
    TR_TRY(tr_model_keep_evaluation(snapshot, &m->last));
    return tr_snapshot_common(snapshot, "usual_objective", TR_F64, 1, &m->usual);
}

/* The order of rows follows from the seed and the epoch. */
static int keep_train(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    struct tr_linear *m = state;
    TR_TRY(tr_linear_keep_judged(m, snapshot));
    return is_dual(m) ? tr_data_keep(m->train, snapshot, "dual", TR_F32, m->dual)
                      : tr_linear_sgd_keep(m, snapshot);
}

const char *tr_linear_metric(const struct tr_linear *m)
{
    if (!m->test) return NULL;
    return classifies(m) ? "accuracy" : "rmse";
}

/* ---- tasks: what they have opened is closed when they end ---- */

static int prepare_test(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    return tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view);
}

static int compute_nothing(tr_worker *me, void *state)
{
    (void)me;
    (void)state;
    return TR_OK;
}

/* For the area under the curve. */
static int open_test(struct tr_linear *m, int status)
{
    tr_stage stage = {
        .name = "test", .state = m, .clocks = 1, .prepare = prepare_test, .compute = compute_nothing};
    return status == TR_OK && m->test && classifies(m) ? tr_run(m->tr, &stage) : status;
}

static int run_stages(struct tr_linear *m)
{
    if (tr_linear_reduces_variance(m->job)) return open_test(m, tr_linear_variance_train(m));
    tr_stage count = {
        .name = "count", .state = m, .clocks = 1, .prepare = prepare_count, .compute = count_rows};
    TR_TRY(tr_run(m->tr, &count));
    TR_TRY(tr_agree(m->tr, spread_regularisation(m)));
    if (m->count) TR_TRY(tr_table_drop(&m->count));
    if (tr_linear_grows(m->job)) return open_test(m, tr_linear_growing_train(m));
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)m->job->solve.epochs * m->clocks_per_epoch,
                      .evaluate_every = (int64_t)m->job->report.every * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .metric_name = tr_linear_metric(m),
                      .prepare = prepare_train,
                      .compute = is_dual(m) ? tr_linear_dual_clock : tr_linear_sgd_clock,
                      .evaluate = tr_linear_evaluate,
                      .summarize = tr_linear_summarize,
                      .snapshot = keep_train};
    return tr_run(m->tr, &train);
}

/* ---- as a kind of model ---- */

static int open_model(tr_context *tr, struct tr_result *result, void **model)
{
    TR_TRY(open_linear(tr, model));
    const struct tr_linear *m = *model;
    *result = (struct tr_result){.rows = m->train->total_rows,
                                 .columns = m->train->columns,
                                 .nonzeros = m->train->total_nonzeros,
                                 .test_auc = NAN,
                                 .test_perplexity = NAN};
    TR_TRY(tr_data_describe(m->train, "training data"));
    return m->test ? tr_data_describe(m->test, "test data") : TR_OK;
}

/* Only the last evaluation is exact under every consistency, and epochs may run out. */
static void say_missed_goal(const struct tr_linear *m)
{
    double goal = m->job->solve.target_gap, gap = m->last.gap;
    if (is_dual(m) && goal > 0 && gap > goal)
        tr_say(m->tr,
               "note:          solve.target_gap %g is not reached, the gap is %.2e: more solve.epochs may do",
               goal, gap);
}

static int train_model(void *model)
{
    TR_TRY(run_stages(model));
    say_missed_goal(model);
    return TR_OK;
}

static int save_model(void *model, const char *folder, struct tr_result *result)
{
    struct tr_linear *m = model;
    TR_TRY(tr_linear_save(m, folder));
    return m->test && classifies(m) ? tr_linear_auc(m, &result->test_auc) : TR_OK;
}

static void close_model(void **model)
{
    struct tr_linear *m = *model;
    if (!m) return;
    tr_linear_variance_close(m);
    tr_linear_growing_close(m);
    tr_view_close(&m->view);
    tr_view_close(&m->test_view);
    tr_view_close(&m->count_view);
    tr_view_close(&m->fresh_view);
    tr_data_close(&m->train);
    tr_data_close(&m->test);
    void *arrays[] = {m->target,   m->test_target, m->order, m->dual,    m->norm,       m->reg,  m->margin,
                      m->gradient, m->packed,      m->state, m->touched, m->is_touched, m->batch};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(m);
    *model = NULL;
}

const struct tr_model_kind tr_linear_kind = {check_job, open_model, train_model, save_model, close_model};
