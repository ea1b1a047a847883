#include "linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What workers sum up for an evaluation. */
enum { LOSS, CONJUGATE, SQUARES, ABSOLUTES, BIAS_SQUARE, TEST_ROWS, TEST_RIGHT, TEST_SQUARES };

bool tr_linear_reduces_variance(int method)
{
    return method >= TR_METHOD_SVRG && method <= TR_METHOD_KATYUSHA;
}

static bool is_dual(const struct tr_linear *m)
{
    return m->method == TR_METHOD_DUAL;
}

/* ---- checking ---- */

/* A label that training has not seen would count as the smaller kind. */
static int check_test_labels(const struct tr_linear *m)
{
    const tr_data *train = m->train;
    const char *const *files;
    if (!m->test || !tr_linear_classifies(m) || train->labels < 2) return TR_OK;
    (void)tr_job_files(m->job, "data.test", &files);
    for (size_t i = 0; i < m->test->labels; i++)
        if (m->test->label[i] != train->label[0] && m->test->label[i] != train->label[1])
            return tr_fail(TR_ERR_DATA, "%s: label %.9g, expected %.9g or %.9g as in the training data",
                           files[0], (double)m->test->label[i], (double)train->label[0],
                           (double)train->label[1]);
    return TR_OK;
}

static int check_labels(const struct tr_linear *m)
{
    const char *lacks = m->train->labels == 0             ? "data.train"
                        : m->test && m->test->labels == 0 ? "data.test"
                                                          : NULL;
    if (lacks)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: %s has no labels, but linear models learn them: expected data.label first or last",
            tr_job_where(m->job, "data.label"), lacks);
    if (tr_linear_classifies(m) && m->train->labels > 2)
        return tr_fail(TR_ERR_DATA, "%s: expected two kinds for model.type %s", tr_data_third_label(m->train),
                       m->type == TR_LOSS_LOGISTIC ? "logistic" : "svm");
    return check_test_labels(m);
}

static int refuse(const tr_job *job, const char *key, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s", tr_job_where(job, key), why);
}

/* What is wished for beside an optimizer or a weighting that has no use for it. */
static int check_sgd(const tr_job *job, const struct tr_linear_options *o)
{
    bool weighted = !tr_job_is(job, "sync.weight", "sum"), plain = o->optimizer == TR_PLAIN_SGD;
    if (!plain) TR_TRY(tr_linear_check_optimizer(job, o));
    if (weighted && !plain && tr_job_is(job, "solve.optimizer_at", "server"))
        return refuse(
            job, "sync.weight",
            "sync.weight weighs steps, but the servers get gradients: set solve.optimizer_at to worker, or "
            "leave sync.weight sum");
    if (o->l1 > 0 && !tr_job_is(job, "solve.optimizer", "ftrl"))
        return refuse(job, "model.l1", "model.l1 needs solve.method sgd and solve.optimizer ftrl");
    return TR_OK;
}

static int check_dual(const tr_job *job, const struct tr_linear_options *o)
{
    if (!tr_job_is(job, "sync.weight", "sum"))
        return refuse(job, "sync.weight",
                      "sync.weight is for solve.method sgd: the dual needs whole updates");
    if (o->optimizer != TR_PLAIN_SGD)
        return refuse(job, "solve.optimizer", "solve.optimizer is for solve.method sgd");
    if (o->l1 > 0) return refuse(job, "model.l1", "model.l1 needs solve.method sgd and solve.optimizer ftrl");
    if (o->bias && !o->bias_l2)
        return refuse(
            job, "model.bias",
            "solve.method dual needs a regularised bias: set model.bias_l2, or use solve.method sgd");
    if (o->l2 == 0)
        return refuse(job, "model.l2", "solve.method dual needs model.l2 > 0, or use solve.method sgd");
    if (tr_job_is(job, "data.partition", "vertical"))
        return refuse(job, "data.partition",
                      "data.partition vertical needs solve.method sgd: a dual step needs whole rows");
    if (tr_job_is(job, "data.partition", "replicated"))
        return refuse(
            job, "data.partition",
            "data.partition replicated is not for solve.method dual: a row has one dual variable, at one "
            "worker");
    return TR_OK;
}

static int check(const tr_job *job, const void *options)
{
    const struct tr_linear_options *o = options;
    int method = tr_job_method(job);
    if (tr_job_number(job, "sync.stable") > 0 && !tr_job_is(job, "sync.weight", "dyn"))
        return refuse(job, "sync.stable", "sync.stable needs sync.weight dyn: others keep no versions");
    if (tr_job_is(job, "table.filter", "kkt") && o->l1 == 0)
        return refuse(job, "table.filter", "table.filter kkt is for model.l1 > 0");
    if (tr_linear_reduces_variance(method)) return tr_linear_variance_check(job, o);
    if (method == TR_METHOD_GROWING) return tr_linear_growing_check(job, o);
    return method == TR_METHOD_DUAL ? check_dual(job, o) : check_sgd(job, o);
}

/* ---- opening ---- */

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
    struct tr_job_often push = {.unit = TR_OFTEN_AUTO};
    (void)tr_job_often(m->job, "sync.push", &push);
    int64_t n = (int64_t)push.n;
    switch (push.unit) {
    case TR_OFTEN_EVERY: return n < m->iterations ? n : m->iterations;
    case TR_OFTEN_PER_EPOCH: return (m->iterations + n - 1) / n;
    default: return is_dual(m) ? 1 : enough_batches(m);
    }
}

/* Mini-batches and clocks of an epoch; all ranks come to the same. */
static void plan_epoch(struct tr_linear *m)
{
    double n = (double)m->train->total_rows, batch = (double)m->o->batch;
    if (batch > 0) m->iterations = (int64_t)fmax(1, round(n / batch));
    else m->iterations = is_dual(m) ? dual_clocks(m) : (int64_t)fmax(1, round(n / fmax(32, n / 200)));
    m->every = batches_of_clock(m);
    m->clocks_per_epoch = (m->iterations + m->every - 1) / m->every;
}

static int open_linear(tr_context *tr, const void *options, void *model)
{
    struct tr_linear *m = model;
    const tr_job *job = m->job = tr_context_job(tr);
    m->tr = tr;
    m->o = options;
    m->type = tr_job_type(job);
    m->method = tr_job_method(job);
    m->rate = m->o->rate;
    m->epochs = (int64_t)tr_job_number(job, "solve.epochs");
    m->report_every = (int64_t)tr_job_number(job, "report.every");
    m->sums = tr_job_is(job, "sync.weight", "sum");
    m->vertical = tr_group_size(tr) > 1 && tr_job_is(job, "data.partition", "vertical");
    TR_TRY(tr_job_integer(job, "seed", &m->seed));
    TR_TRY(tr_data_open(tr, TR_DATA_TRAIN | TR_DATA_SPARSE, NULL, &m->train));
    if (tr_job_number(job, "data.test") > 0)
        TR_TRY(tr_data_open(tr, TR_DATA_TEST | TR_DATA_SPARSE, m->train, &m->test));
    m->l2 = m->o->l2 < 0 ? 1 / (double)m->train->total_rows : m->o->l2;
    TR_TRY(tr_agree(tr, check_labels(m)));
    plan_epoch(m);
    uint64_t columns = m->train->columns + m->o->bias;
    tr_table_options place = {.servers = tr_linear_servers(m)};
    TR_TRY(tr_table_create_with(tr, "w", (enum tr_dtype)m->o->dtype, 1, columns, &place, &m->w));
    TR_TRY(tr_linear_use_function(m));
    if (tr_linear_reduces_variance(m->method)) TR_TRY(tr_linear_variance_open(m));
    else if (!is_dual(m) && m->l2 > 0) TR_TRY(tr_table_create(tr, "count", TR_F32, 1, columns, &m->count));
    if (m->method == TR_METHOD_GROWING) TR_TRY(tr_linear_growing_open(m));
    TR_TRY(tr_data_describe(m->train, "training data"));
    return m->test ? tr_data_describe(m->test, "test data") : TR_OK;
}

/* ---- what a worker needs of the data ---- */

static bool has_bias(const struct tr_linear *m, const tr_worker *me)
{
    return m->o->bias && (!m->vertical || me->member == 0);
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
    if (use == TR_VIEW_UPDATE && !m->vertical) use = TR_VIEW_GROUP;
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
    *p = (struct tr_problem){.model = m->type,
                             .dtype = (enum tr_dtype)m->o->dtype,
                             .rows = data->rows,
                             .bias = bias,
                             .keys = data->n_keys,
                             .l2 = m->l2,
                             .n = (double)data->total_rows};
    TR_TRY(TR_NEW(target, data->rows.n));
    float positive = m->train->label[m->train->labels > 0 ? m->train->labels - 1 : 0];
    for (size_t i = 0; i < data->rows.n; i++) {
        float label = data->rows.label[i];
        (*target)[i] = !tr_linear_classifies(m) ? label : label == positive ? 1.0f : -1.0f;
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
    if (m->problem.bias && !m->o->bias_l2) m->reg[m->problem.keys] = 0;
    tr_view_close(&m->count_view);
    return TR_OK;
}

/* ---- preparing to train ---- */

static int prepare_train(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_UPDATE, &m->view));
    if (tr_job_is(m->job, "sync.pull", "stale") &&
        !tr_in_lockstep(m->tr)) /* to evaluate what the servers have */
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
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n));
        if (m->vertical && me->member > 0) continue; /* the same rows as member 0's */
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
    if (m->o->l1 > 0) {
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
    if (m->usual == 0) m->usual = fmax(objective, tr_loss(m->type, 0, 1));
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
    double n = (double)m->train->total_rows, target = tr_job_number(m->job, "solve.target");
    double squares = sum[SQUARES] - (m->o->bias_l2 ? 0 : sum[BIAS_SQUARE]);
    double primal = sum[LOSS] / n + 0.5 * m->l2 * squares + m->o->l1 * sum[ABSOLUTES];
    evaluation->objective = primal;
    if (is_dual(m)) {
        double dual = -0.5 * m->l2 * squares - sum[CONJUGATE] / n;
        evaluation->gap = (primal - dual) / fmax(fabs(dual), 1e-300);
        /* under SSP and ASP the workers' parts are of different parameters: an estimate, which may even be negative */
        double goal = m->o->target_gap, safe = tr_in_lockstep(m->tr) ? goal : goal / 2;
        evaluation->stop = goal > 0 && fabs(evaluation->gap) <= safe;
    }
    if (m->test)
        evaluation->metric = tr_linear_classifies(m) ? sum[TEST_RIGHT] / sum[TEST_ROWS]
                                                     : sqrt(sum[TEST_SQUARES] / sum[TEST_ROWS]);
    if (target != TR_JOB_AUTO && primal <= target) evaluation->stop = true;
    m->last = *evaluation;
    double epoch = (double)report->clock / (double)m->clocks_per_epoch;
    return check_divergence(m, isfinite(evaluation->epoch) ? evaluation->epoch : epoch, primal);
}

int tr_linear_keep_summary(struct tr_linear *m, tr_snapshot *snapshot)
{
    TR_TRY(tr_model_keep_evaluation(snapshot, &m->last));
    return tr_snapshot_common(snapshot, "usual_objective", TR_F64, 1, &m->usual);
}

/* The order of rows follows from the seed and the epoch. */
static int keep_train(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    struct tr_linear *m = state;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    return is_dual(m) ? tr_data_keep(m->train, snapshot, "dual", TR_F32, m->dual)
                      : tr_linear_sgd_keep(m, snapshot);
}

const char *tr_linear_metric(const struct tr_linear *m)
{
    if (!m->test) return NULL;
    return tr_linear_classifies(m) ? "accuracy" : "rmse";
}

/* ---- what the job says of stages ---- */

/* UINT64_MAX where it says nothing. */
static uint64_t stage_number(const struct tr_linear *m, const char *stage, const char *key)
{
    char name[96];
    uint64_t n;
    snprintf(name, sizeof name, "stages.%s.%s", stage, key);
    return tr_job_given(m->job, name) && tr_job_integer(m->job, name, &n) == TR_OK ? n : UINT64_MAX - 1;
}

int tr_linear_stage_workers(const struct tr_linear *m, const char *stage, int usual)
{
    uint64_t n = stage_number(m, stage, "parallelism");
    return n == UINT64_MAX - 1 ? usual : n == UINT64_MAX ? TR_AUTO_WORKERS : n == 0 ? TR_ALL_WORKERS : (int)n;
}

int tr_linear_stage_servers(const struct tr_linear *m, const char *stage)
{
    uint64_t n = stage_number(m, stage, "servers");
    return n >= UINT64_MAX - 1 ? 0 : (int)n;
}

int64_t tr_linear_stage_clocks(const struct tr_linear *m, const char *stage)
{
    uint64_t n = stage_number(m, stage, "clocks");
    return n >= UINT64_MAX - 1 ? 0 : (int64_t)n;
}

int tr_linear_check_stage(const struct tr_linear *m, const char *stage, bool one_group)
{
    int workers = one_group ? tr_group_size(m->tr) : tr_workers(m->tr), servers = tr_servers(m->tr);
    int wished = tr_linear_stage_workers(m, stage, TR_ALL_WORKERS),
        wished_servers = tr_linear_stage_servers(m, stage);
    char key[96];
    snprintf(key, sizeof key, "stages.%s.servers", stage);
    if (wished_servers > servers)
        return tr_agree(m->tr,
                        tr_fail(TR_ERR_CONFIG, "%s: %s is %d, but there are %d servers: see ranks.servers",
                                tr_job_where(m->job, key), key, wished_servers, servers));
    snprintf(key, sizeof key, "stages.%s.parallelism", stage);
    if (wished > workers)
        tr_say(m->tr, "note:          %s: %s is %d, but there %s %d worker%s%s: %d it is",
               tr_job_where(m->job, key), key, wished, workers == 1 ? "is" : "are", workers,
               workers == 1 ? "" : "s", one_group ? " on a node" : "", workers);
    return TR_OK;
}

/* ---- training ---- */

static int run_stages(struct tr_linear *m)
{
    if (tr_linear_reduces_variance(m->method)) return tr_linear_variance_train(m);
    tr_stage count = {
        .name = "count", .state = m, .clocks = 1, .prepare = prepare_count, .compute = count_rows};
    TR_TRY(tr_run(m->tr, &count));
    TR_TRY(tr_agree(m->tr, spread_regularisation(m)));
    if (m->count) TR_TRY(tr_table_drop(&m->count));
    if (m->method == TR_METHOD_GROWING) return tr_linear_growing_train(m);
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = m->epochs * m->clocks_per_epoch,
                      .evaluate_every = m->report_every * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .metric_name = tr_linear_metric(m),
                      .prepare = prepare_train,
                      .compute = is_dual(m) ? tr_linear_dual_clock : tr_linear_sgd_clock,
                      .evaluate = tr_linear_evaluate,
                      .summarize = tr_linear_summarize,
                      .snapshot = keep_train};
    return tr_run(m->tr, &train);
}

/* Only the last evaluation is exact under every consistency, and epochs may run out. */
static int train(void *model)
{
    struct tr_linear *m = model;
    double goal = is_dual(m) ? m->o->target_gap : 0, area;
    TR_TRY(run_stages(m));
    if (goal > 0 && m->last.gap > goal)
        tr_say(m->tr,
               "note:          solve.target_gap %g is not reached, the gap is %.2e: more solve.epochs may do",
               goal, m->last.gap);
    if (!m->test || !tr_linear_classifies(m)) return TR_OK;
    TR_TRY(tr_linear_auc(m, &area));
    return tr_report_figure(m->tr, "test_auc", area);
}

static void close_linear(void *model)
{
    struct tr_linear *m = model;
    tr_linear_variance_close(m);
    tr_linear_growing_close(m);
    tr_view *views[] = {m->view, m->test_view, m->count_view, m->fresh_view};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) tr_view_close(&views[i]);
    tr_data_close(&m->train);
    tr_data_close(&m->test);
    void *arrays[] = {m->target,   m->test_target, m->order, m->dual,    m->norm,       m->reg,  m->margin,
                      m->gradient, m->packed,      m->state, m->touched, m->is_touched, m->batch};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    tr_linear_saved_close(m);
}

/* ---- memory ---- */

/* Text of the rows becomes numbers of about the same size at workers, with views of their keys. */
static double server_bytes(const tr_job *job, const tr_data_size *size, double element, double view_keys)
{
    double some = tr_job_number(job, "table.servers"), servers = some > 0 ? some : size->servers;
    double tables = tr_job_method(job) == TR_METHOD_SGD ? 1.5 : 1;
    if (tr_job_is(job, "table.storage", "dense")) return tables * element * size->features / servers;
    double used = fmin(size->features, size->text / 9), lists = 12 * view_keys * size->workers;
    return (tables * (element + 20) * used + lists) / servers;
}

static void estimate(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *m)
{
    double element = ((const struct tr_linear_options *)options)->dtype == TR_F32 ? 4 : 8;
    double text = size->text / size->workers, keys = fmin(size->features, text / 9);
    m->worker = 0.6 * text + 3 * element * keys;
    m->server = server_bytes(job, size, element, keys);
}

/* ---- the class ---- */

#define AT(field) offsetof(struct tr_linear_options, field)

/* clang-format off */
static const tr_option options[] = {
    {"model.l2", TR_KIND_REAL, AT(l2), "auto", .words = TR_WORDS("auto", "1/n"),
     .help = "lambda in F(w) = mean loss + lambda/2 |w|^2, where auto = 1/n and LIBLINEAR's C is 1/(lambda n)"},
    {"model.l1", TR_KIND_REAL, AT(l1), "0",
     .help = "alpha in F(w) = mean loss + lambda/2 |w|^2 + alpha |w|_1; needs solve.optimizer ftrl"},
    {"model.bias", TR_KIND_BOOL, AT(bias), "no",
     .help = "whether a constant is learnt besides the weights"},
    {"model.bias_l2", TR_KIND_BOOL, AT(bias_l2), "no",
     .help = "whether the bias is regularised (as LIBLINEAR does)"},
    {"model.dtype", TR_KIND_CHOICE, AT(dtype), "f32", .words = TR_WORDS("f32", "f64"),
     .help = "single or double precision"},
    {"solve.target_gap", TR_KIND_REAL, AT(target_gap), "0", .may_change = true,
     .help = "stop when the objective is proven within this relative distance of the optimum; 0 = off"},
    {"solve.rate", TR_KIND_REAL, AT(rate), "auto", .above = true, .words = TR_WORDS("auto"), .may_change = true,
     .methods = "sgd svrg svrg++ katyusha growing",
     .help = "size of the first step; auto = 0.1 for sgd, for variance reduction and growing batches as the data's smoothness allows"},
    {"solve.decay", TR_KIND_REAL, AT(decay), "0", .may_change = true,
     .methods = "sgd growing",
     .help = "the rate of clock c is rate/sqrt(decay*c+1)"},
    {"solve.batch", TR_KIND_INTEGER, AT(batch), "0",
     .help = "rows over all groups of one mini-batch (sgd; growing: of the first phase) or one turn (dual); 0 = chosen "
             "from the data"},
    {"solve.sigma", TR_KIND_REAL, AT(sigma), "auto", .least = 1, .words = TR_WORDS("auto"),
     .methods = "dual",
     .help = "how much each worker damps its steps for the others; auto = their number, which is safe"},
    {"solve.optimizer", TR_KIND_CHOICE, AT(optimizer), "sgd",
     .words = TR_WORDS("sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "ftrl"),
     .help = "what becomes of a mini-batch's gradient"},
    {"solve.optimizer_at", TR_KIND_CHOICE, AT(optimizer_at), "server", .words = TR_WORDS("server", "worker"),
     .help = "who keeps the optimizer's state: the servers, who get gradients, or each worker for itself"},
    {"solve.momentum", TR_KIND_REAL, AT(momentum), "0.9", .most = 1,
     .help = "momentum, nesterov, adam: how much of the last step's direction is kept"},
    {"solve.memory", TR_KIND_REAL, AT(memory), "auto", .most = 1, .words = TR_WORDS("auto"),
     .help = "adadelta, rmsprop, adam: how much is kept of the mean of squares; auto = 0.95, 0.9, 0.999"},
    {"solve.epsilon", TR_KIND_REAL, AT(epsilon), "auto", .above = true, .words = TR_WORDS("auto"),
     .help = "adaptive optimizers: added to what is divided by; auto = 1e-8, for adadelta 1e-6"},
    {"solve.inner", TR_KIND_REAL, AT(inner), "2", .above = true,
     .methods = "svrg svrg++ katyusha",
     .help = "passes of stochastic steps between two full gradients; svrg++: the first time"},
    {"solve.growth", TR_KIND_REAL, AT(growth), "10", .least = 1,
     .methods = "growing",
     .help = "how many times larger the batches of each phase are than those of the phase before"},
    {"solve.phases", TR_KIND_INTEGER, AT(phases), "3", .least = 1,
     .methods = "growing",
     .help = "how many phases there are"},
    {.name = NULL},
};

static const tr_method methods[] = {
    [TR_METHOD_DUAL] = {"dual", "dual coordinate descent, merged as CoCoA does; needs no step size and proves how far it is", NULL, false},
    [TR_METHOD_SGD] = {"sgd", "mini-batch gradient descent", NULL, false},
    [TR_METHOD_SVRG] = {"svrg", "variance reduction, for smooth losses", TR_WORDS(NULL), true},
    [TR_METHOD_SVRGPP] = {"svrg++", "the same with ever longer epochs", TR_WORDS(NULL), true},
    [TR_METHOD_KATYUSHA] = {"katyusha", "variance reduction with momentum", TR_WORDS(NULL), true},
    [TR_METHOD_GROWING] = {"growing", "mini-batches that grow from phase to phase", TR_WORDS(NULL), true},
    {.name = NULL},
};

static const tr_rule rules[] = {
    {"data.format", NULL, "libsvm", false},
    {"solve.rate", "sgd", "0.1", false},
    {"solve.rate", "dual", "0.1", true},
    {"solve.epochs", "growing", "1", false},
    {"data.partition", "svrg svrg++ katyusha growing", "replicated", false},
    {"table.prune", "svrg svrg++ katyusha", "no", true},
    {"local.*", "dual sgd", NULL, true},
    {"sync.race", "dual sgd", NULL, true},
    {"data.vocabulary", NULL, NULL, true},
    {"data.duplicates", NULL, NULL, true},
    {.key = NULL},
};

static const tr_flag flags[] = {
    {"--probability", NULL, TR_PREDICT, 0, 0, "logistic: the probability of the positive label in place of the label"},
    {"--margin", NULL, TR_PREDICT, 0, 0, "w x + bias in place of the label"},
    {"--top", "N", TR_INSPECT, 1, 1000000, "how many of the largest weights are shown, 10 without it"},
    {.name = NULL},
};
/* clang-format on */

const tr_model_class tr_linear_class = {
    .abi = TR_MODEL_ABI,
    .name = "linear",
    .types = TR_WORDS("logistic", "linear", "svm", "l2svm"),
    .help = "logistic regression, least squares, and support vectors with hinge (svm) or squared hinge loss "
            "(l2svm)",
    .predicts = "the label, or the value for regression",
    .evaluates = "accuracy, area under the ROC curve and mean log-loss of a classifier; root mean squared "
                 "error and R²",
    .noun = "a linear model",
    .format = "trireme-linear",
    .format_version = 1,
    .text_begins = "solver_type",
    .data_formats = TR_WORDS("libsvm", "csv"),
    .options_size = sizeof(struct tr_linear_options),
    .options = options,
    .methods = methods,
    .rules = rules,
    .flags = flags,
    .model_size = sizeof(struct tr_linear),
    .check = check,
    .open = open_linear,
    .train = train,
    .fields = tr_linear_fields,
    .read_text = tr_linear_read_text,
    .close = close_linear,
    .memory = estimate,
    .ready = tr_linear_ready,
    .predict = tr_linear_predict,
    .evaluate = tr_linear_evaluate_rows,
    .figures = tr_linear_figures,
    .keys = tr_linear_keys,
    .inspect = tr_linear_inspect,
};
