#include "linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../labels.h"
#include "newton/newton.h"

/* ---- methods ---- */

/* clang-format off */
#define STAGES TR_WORDS("gradient", "evaluate")

static const tr_method methods[] = {
    [TR_METHOD_AUTO] = {.name = "auto", .help = "follows from the data: descent for model.l1, newton for few columns and for a hinge on several nodes, otherwise dual, and newton when dual becomes slow", .stages = STAGES, .in_groups = true, .in_step = true},
    [TR_METHOD_DUAL] = {.name = "dual", .help = "dual coordinate descent; needs no step size and proves the gap", .stages = STAGES, .in_groups = true, .in_step = true},
    [TR_METHOD_SGD] = {.name = "sgd", .help = "mini-batch gradient descent", .stages = STAGES},
    [TR_METHOD_SVRG] = {.name = "svrg", .help = "variance reduction, for smooth losses", .stages = TR_WORDS(NULL), .in_groups = true},
    [TR_METHOD_SVRGPP] = {.name = "svrg++", .help = "the same with ever longer epochs", .stages = TR_WORDS(NULL), .in_groups = true},
    [TR_METHOD_KATYUSHA] = {.name = "katyusha", .help = "variance reduction with momentum", .stages = TR_WORDS(NULL), .in_groups = true},
    [TR_METHOD_GROWING] = {.name = "growing", .help = "mini-batches that grow from phase to phase", .stages = TR_WORDS(NULL), .in_groups = true},
    [TR_METHOD_NEWTON] = {.name = "newton", .help = "Newton's method: the same number of passes on any number of ranks, and any target gap", .stages = STAGES},
    [TR_METHOD_DESCENT] = {.name = "descent", .help = "coordinate descent, for model.l1: all workers take steps together, and the gap is proven", .stages = STAGES},
    {.name = NULL},
};

static const struct tr_linear_method *const solvers[] = {
    [TR_METHOD_AUTO] = &tr_linear_auto,
    [TR_METHOD_DUAL] = &tr_linear_dual,
    [TR_METHOD_SGD] = &tr_linear_sgd,
    [TR_METHOD_SVRG] = &tr_linear_variance,
    [TR_METHOD_SVRGPP] = &tr_linear_variance,
    [TR_METHOD_KATYUSHA] = &tr_linear_variance,
    [TR_METHOD_GROWING] = &tr_linear_growing,
    [TR_METHOD_NEWTON] = &tr_linear_newton,
    [TR_METHOD_DESCENT] = &tr_linear_descent,
};
/* clang-format on */

/* Returns the method that trains. With an l1 penalty, auto is descent. Without an l2 penalty there is no dual problem, so that
 * dual is newton. */
static const struct tr_linear_method *solver_of(const tr_job *job, const struct tr_linear_options *o)
{
    int method = tr_job_method(job);
    if (method == TR_METHOD_DUAL && o->l2 == 0 && o->l1 == 0) return &tr_linear_newton;
    return method == TR_METHOD_AUTO && o->l1 != 0 ? &tr_linear_descent : solvers[method];
}

static bool solver_minimises(const struct tr_linear_method *method, const struct tr_loss *loss)
{
    bool bounded = isfinite(loss->most_curvature), plain = loss->shape == TR_SHAPE_NONE;
    unsigned has = (loss->slope ? TR_LOSS_SLOPE : 0) | (loss->step ? TR_LOSS_STEP : 0) |
                   (loss->curvature || loss->corner ? TR_LOSS_CURVED : 0) |
                   (bounded ? TR_LOSS_BOUNDED_CURVE : 0) | (loss->bounded_slope ? TR_LOSS_BOUNDED_SLOPE : 0) |
                   (bounded && plain && loss->conjugate ? TR_LOSS_QUADRATIC_MODEL : 0);
    return has & method->minimises;
}

/* ---- checking ---- */

int tr_linear_refuse(const tr_job *job, const char *key, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s", tr_job_where(job, key), why);
}

int tr_linear_refuse_any(const tr_job *job, const struct tr_refusal *list)
{
    while (list->key && !list->applies) list++;
    return list->key ? tr_linear_refuse(job, list->key, list->why) : TR_OK;
}

const struct tr_loss *tr_linear_loss(const tr_job *job)
{
    const struct tr_loss *loss = tr_losses[tr_job_type(job)];
    return loss ? loss : &tr_loss_logistic;
}

static int linear_check(const tr_job *job, const void *options)
{
    const struct tr_linear_options *o = options;
    const struct tr_loss *loss = tr_linear_loss(job);
    const struct tr_linear_method *solver = solver_of(job, o);
    bool classifies = tr_loss_classifies(loss);
    /* Refuses keys that the loss does not use. The job file in the folder of a run contains all keys, so a key is refused only if
     * its value differs from the default. The default of model.delta was 1 in older versions. */
    const struct tr_refusal of_loss[] = {
        {o->delta != TR_JOB_AUTO && o->delta != 1 && loss->shape != TR_SHAPE_DELTA, "model.delta",
         "model.delta is for model.type huber and logcosh"},
        {o->quantile != 0.5 && loss->shape != TR_SHAPE_QUANTILE, "model.quantile",
         "model.quantile is for model.type quantile"},
        {o->power != 1.5 && loss->shape != TR_SHAPE_POWER, "model.power",
         "model.power is for model.type tweedie"},
        {o->classes == TR_CLASSES_SOFTMAX && classifies && loss != &tr_loss_logistic, "model.classes",
         "model.classes softmax is for model.type logistic"},
        {o->classes != TR_CLASSES_AUTO && !classifies, "model.classes", "model.classes is for classifiers"},
        {*o->class_weights && !classifies, "model.class_weights", "model.class_weights is for classifiers"},
        {.key = NULL}};
    TR_TRY(tr_linear_refuse_any(job, of_loss));
    TR_TRY(tr_test_metrics_check(job, tr_losses[tr_job_type(job)]));
    if (!solver_minimises(solver, loss)) { /* the message names methods that minimise the loss */
        char others[128] = "sgd with solve.optimizer ftrl, for model.l1 > 0";
        size_t n = 0, length = 0;
        for (size_t i = 0; o->l1 == 0 && methods[i].name; i++)
            if (solver_minimises(solvers[i], loss) && solvers[i] != &tr_linear_descent)
                length += (size_t)snprintf(others + length, sizeof others - length, "%s%s",
                                           n++ > 0 ? ", " : "", methods[i].name);
        return tr_fail(
            TR_ERR_CONFIG, "%s: solve.method %s does not minimise the loss of model.type %s: use %s",
            tr_job_where(job, "solve.method"), methods[tr_job_method(job)].name, loss->type, others);
    }
    TR_TRY(tr_class_weights_check(job, o->class_weights));
    const struct tr_refusal of_weights[] = {
        {!solver->weighs_rows && *o->class_weights, "model.class_weights",
         "model.class_weights is not for this solve.method: use dual, newton or sgd"},
        {!solver->weighs_rows && tr_job_has_extra(job, "weight"),
         tr_job_given(job, "data.weight") ? "data.weight" : "data.columns",
         "data.weight (or a column of weights) is not for this solve.method: use dual, newton or sgd"},
        {.key = NULL}};
    TR_TRY(tr_linear_refuse_any(job, of_weights));
    TR_TRY(tr_check_initial(job, o->init));
    const char *const stages[] = {"stages.gradient.parallelism", "stages.evaluate.parallelism"};
    bool vertical = tr_job_is(job, "data.partition", "vertical");
    const char *of_stage = "stages are of workers with rows of their own: not for data.partition vertical";
    const struct tr_refusal of_method[] = {
        {tr_job_number(job, "sync.stable") > 0 && !tr_job_is(job, "sync.weight", "dyn"), "sync.stable",
         "sync.stable needs sync.weight dyn: others keep no versions"},
        {tr_job_is(job, "table.filter", "kkt") && o->l1 == 0, "table.filter",
         "table.filter kkt is for model.l1 > 0"},
        {o->l1 < 0 && solver != &tr_linear_descent, "model.l1", "model.l1 path needs solve.method descent"},
        {o->folds > 0 && o->l1 >= 0, "solve.folds",
         "solve.folds chooses among penalties: expected model.l1 path"},
        {vertical && tr_job_given(job, stages[0]), stages[0], of_stage},
        {vertical && tr_job_given(job, stages[1]), stages[1], of_stage},
        {.key = NULL}};
    TR_TRY(tr_linear_refuse_any(job, of_method));
    return solver->check(job, o);
}

/* Checks the labels and the size of the model. The size counts all features: a table may store only the features that occur, but
 * model.h5 and model.txt contain all. Test labels that no training row has are refused only if no other test label occurs. */
static int linear_check_data(const struct tr_linear *m)
{
    const uint64_t most = (uint64_t)1 << 32;
    const tr_data *train = m->train, *test = m->test;
    const float *label = train->rows.label;
    const char *lacks = train->labels == 0 ? "data.train" : test && test->labels == 0 ? "data.test" : NULL;
    if (lacks)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: %s has no labels, but linear models learn them: expected data.label first or last",
            tr_job_where(m->job, "data.label"), lacks);
    bool classes = tr_linear_classifies(m);
    TR_TRY(tr_labels_check(m->job, train, "model.type", m->loss->type, classes ? "linear" : "logistic",
                           classes));
    if (classes && train->labels > TR_LINEAR_CLASSES)
        return tr_fail(TR_ERR_DATA, "%s, and there are more than %d: expected classes, or model.type linear",
                       tr_data_third_label(train), TR_LINEAR_CLASSES);
    if (m->outputs > 1 && train->has_offsets)
        return tr_fail(
            TR_ERR_CONFIG, "%s: data.offset is for models of one output: %s",
            tr_job_where(m->job, tr_job_given(m->job, "data.offset") ? "data.offset" : "data.columns"),
            tr_data_third_label(train));
    if (m->outputs > 1 && !m->solver->many_outputs)
        return tr_fail(TR_ERR_DATA, "%s: expected two kinds for solve.method %s", tr_data_third_label(train),
                       methods[m->method].name);
    if (tr_linear_classifies(m) && train->labels == 1)
        tr_say(m->tr, "note:          all labels of data.train are %.9g: there is nothing to tell apart",
               (double)train->label[0]);
    if (test && tr_linear_classifies(m) && train->labels > 1)
        TR_TRY(tr_labels_check_test(m->tr, train, test));
    for (size_t i = 0; label && i < train->rows.n; i++)
        if (!tr_loss_takes(m->loss, label[i]))
            return tr_fail(
                TR_ERR_DATA, "data.train: label %.9g, expected %s for model.type %s", (double)label[i],
                m->loss->labels == TR_LABELS_POSITIVE ? "more than 0" : "0 or more", m->loss->type);
    if (train->columns <= most / m->outputs) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "data.train: %llu features, %zu weight(s) each: the files of a model have all, expected "
                   "at most 2^32 weights",
                   (unsigned long long)train->columns, m->outputs);
}

/* ---- weights of rows ---- */

/* Returns the weight of row i of the training or test data. model.class_weights apply to training rows only. */
static double weight_of_row(const struct tr_linear *m, const tr_data *data, size_t i)
{
    double own = data->rows.weight ? (double)data->rows.weight[i] : 1;
    bool by_class = m->class_weight && data == m->train;
    return by_class
               ? own * m->class_weight[tr_label_place(m->train->label, m->train->labels, data->rows.label[i])]
               : own;
}

void tr_linear_own_rows(const struct tr_linear *m, size_t *first, size_t *end)
{
    tr_worker me = tr_linear_self(m->tr);
    bool mine = m->train->rows.n > 0 && !(m->vertical && me.member > 0);
    *first = mine ? tr_data_part_begin(m->train, &me) : 0;
    *end = mine ? tr_data_part_end(m->train, &me) : 0;
}

/* Sets m->class_weight, m->total_weight and the default of m->l2, which is 1 / total weight. A row that several workers have counts
 * once. All ranks, after the training data are open. */
static int weigh_rows(struct tr_linear *m)
{
    const tr_data *train = m->train;
    bool by_class = *m->o->class_weights != '\0';
    size_t first, end;
    tr_linear_own_rows(m, &first, &end);
    m->total_weight = (double)train->total_rows;
    if (by_class) {
        TR_FREED double *count = NULL;
        TR_TRY(tr_agree(m->tr, TR_NEW(&m->class_weight, train->labels)));
        TR_TRY(tr_agree(m->tr, TR_NEW(&count, train->labels)));
        for (size_t i = first; i < end; i++)
            count[tr_label_place(train->label, train->labels, train->rows.label[i])] +=
                train->rows.weight ? (double)train->rows.weight[i] : 1;
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, count, train->labels));
        TR_TRY(tr_agree(m->tr, tr_class_weights_find(m->job, m->o->class_weights, train->label, count,
                                                     train->labels, m->class_weight)));
    }
    if (!by_class && !train->weighted) return TR_OK;
    double sum = 0;
    for (size_t i = first; i < end; i++) sum += weight_of_row(m, train, i);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &sum, 1));
    const char *key = by_class ? "model.class_weights" : "data.weight";
    if (!(sum > 0))
        return tr_fail(TR_ERR_CONFIG, "%s: %s leaves no row a weight above 0", tr_job_where(m->job, key),
                       key);
    m->total_weight = sum;
    if (m->o->l2 < 0) m->l2 = 1 / sum;
    return TR_OK;
}

/* For a regression: sets m->start (the best constant), m->unit (the scale of the targets), and the defaults of model.delta and
 * model.l2, which depend on the scale. Most losses depend on target - margin only: offsets are subtracted from targets. All ranks. */
static int measure_targets(struct tr_linear *m)
{
    const struct tr_loss *loss = m->loss;
    const float *label = m->train->rows.label, *weight = m->train->rows.weight,
                *offset = m->train->rows.offset;
    double sum[2] = {0}, bound[2] = {-INFINITY, -INFINITY};
    size_t first, end;
    m->unit = 1;
    m->shape = tr_loss_shape(loss, fmax(m->o->delta, 0), m->o->quantile, m->o->power);
    if (tr_linear_classifies(m)) return TR_OK;
    tr_linear_own_rows(m, &first, &end);
    if (m->train->has_offsets && loss->labels != TR_LABELS_NUMBERS)
        return tr_constant_beside_offsets(m->tr, TR_SET_ALL, loss, m->shape, first, end, label, weight,
                                          offset, &m->start);
    for (size_t i = first; i < end; i++) {
        double y = (double)label[i] - (offset ? (double)offset[i] : 0), c = weight ? (double)weight[i] : 1;
        sum[0] += c;
        sum[1] += c * y;
        bound[0] = fmax(bound[0], y);
        bound[1] = fmax(bound[1], -y);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 2));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, bound, 2));
    double mean = fmin(fmax(sum[1] / sum[0], -bound[1]), bound[0]); /* exact if all targets are equal */
    if (loss->constant) {
        m->start = loss->constant(mean);
        return TR_OK;
    }
    size_t n = end - first;
    TR_FREED float *target = NULL;
    TR_TRY(TR_NEW(&target, n));
    for (size_t i = 0; i < n; i++) target[i] = label[first + i] - (offset ? offset[first + i] : 0);
    const float *weights = weight ? weight + first : NULL;
    const char *of;
    TR_TRY(tr_targets_measure(m->tr, TR_SET_ALL, target, weights, n, mean, &m->start, &m->unit, &of));
    if (loss->shape == TR_SHAPE_QUANTILE) {
        struct tr_row_set rows = {NULL, n};
        float start;
        TR_TRY(tr_weighted_quantiles(m->tr, TR_SET_ALL, &rows, 1, target, weights, m->shape, &start));
        m->start = (double)start;
    }
    if (loss->shape == TR_SHAPE_DELTA && m->o->delta < 0) m->shape = m->unit;
    if (loss->corner && m->o->l2 < 0) m->l2 /= m->unit;
    char follows[64] = "";
    if (loss->shape == TR_SHAPE_DELTA && m->o->delta < 0)
        snprintf(follows, sizeof follows, ", which is model.delta");
    if (loss->corner && m->o->l2 < 0)
        snprintf(follows, sizeof follows, ": model.l2 is %.3g, 1/n of it", m->l2);
    tr_say(m->tr, "scale:         %.6g, %s of the targets%s", m->unit, of, follows);
    return TR_OK;
}

/* ---- opening, training, closing ---- */

int tr_linear_make_table(struct tr_linear *m, const char *name, const char *fallback, tr_table **table)
{
    uint64_t columns = m->train->columns + m->o->bias;
    tr_table_options place = {.servers = m->solver->servers ? m->solver->servers(m) : 0,
                              .fallback = fallback};
    return tr_table_create_with(m->tr, name, (enum tr_dtype)m->o->dtype, m->outputs > 1 ? columns : 1,
                                m->outputs > 1 ? m->outputs : columns, &place, table);
}

static int linear_open(tr_context *tr, const void *options, void *model)
{
    struct tr_linear *m = model;
    const tr_job *job = m->job = tr_context_job(tr);
    m->tr = tr;
    m->o = options;
    m->loss = tr_losses[tr_job_type(job)]; /* auto: NULL, until the labels are known */
    m->method = tr_job_method(job);
    m->solver = solver_of(job, m->o);
    m->rate = m->o->rate;
    m->epochs = (int64_t)tr_job_number(job, "solve.epochs");
    m->report_every = (int64_t)tr_job_number(job, "report.every");
    m->clocks_per_epoch = 1;
    m->sums = tr_job_is(job, "sync.weight", "sum");
    m->vertical = tr_group_size(tr) > 1 && tr_job_is(job, "data.partition", "vertical");
    TR_TRY(tr_job_integer(job, "seed", &m->seed));
    int form = (m->solver->sparse_rows ? TR_DATA_SPARSE : TR_DATA_DENSE) | TR_DATA_SCALED |
               (m->o->bias ? 0 : TR_DATA_UNCENTRED) | (m->o->bias && !m->o->bias_l2 ? TR_DATA_FREE_BIAS : 0) |
               (m->solver->passes ? TR_DATA_PASSES : 0) |
               (!m->loss                      ? TR_DATA_FEW_CLASSES
                : tr_loss_classifies(m->loss) ? TR_DATA_CLASSES
                                              : 0);
    TR_TRY(tr_data_open(tr, (enum tr_data_part)(TR_DATA_TRAIN | form), NULL, &m->train));
    if (tr_job_number(job, "data.test") > 0)
        TR_TRY(tr_data_open(tr, (enum tr_data_part)(TR_DATA_TEST | form), m->train, &m->test));
    if (!m->loss) { /* model.type auto */
        bool classes, given = tr_job_given(job, "model.classes") || tr_job_given(job, "model.class_weights");
        TR_TRY(tr_labels_decide(tr, m->train, &classes));
        classes = classes || given;
        m->loss = classes ? &tr_loss_logistic : &tr_loss_linear;
        if (m->train->labels > 2)
            tr_labels_say(tr, m->train, "model.type", m->loss->type, classes ? "linear" : "logistic",
                          classes);
    }
    m->l2 = m->o->l2 < 0 ? 1 / (double)m->train->total_rows : m->o->l2;
    m->outputs = tr_linear_classifies(m) && m->train->labels > 2 ? m->train->labels : 1;
    bool softmax =
        m->o->classes == TR_CLASSES_AUTO ? m->loss == &tr_loss_logistic : m->o->classes == TR_CLASSES_SOFTMAX;
    m->softmax = m->outputs > 1 && softmax;
    TR_TRY(tr_agree(tr, linear_check_data(m)));
    TR_TRY(weigh_rows(m));
    TR_TRY(tr_agree(tr, measure_targets(m)));
    m->metrics = (struct tr_test_metrics){.loss = m->loss,
                                          .shape = m->shape,
                                          .origin = tr_linear_classifies(m) ? 0 : m->start,
                                          .outputs = m->outputs,
                                          .joint = m->softmax};
    TR_TRY(tr_agree(tr, tr_test_metrics_choose(tr, &m->metrics)));
    TR_TRY(tr_linear_make_table(m, "w", NULL, &m->w));
    TR_TRY(tr_linear_read_initial(m));
    TR_TRY(m->solver->open(m));
    TR_TRY(tr_data_describe(m->train, "training data"));
    if (m->outputs > 1)
        tr_say(m->tr, "classes:       %zu, %s", m->outputs,
               m->softmax ? "one softmax" : "each against the rest");
    return m->test ? tr_data_describe(m->test, "test data") : TR_OK;
}

static int solver_train(struct tr_linear *m)
{
    if (m->solver->train) return m->solver->train(m);
    tr_stage stage = tr_linear_stage(m);
    return tr_run(m->tr, &stage);
}

/* Trains the model. Prints a note if the last evaluation, the only one that is always exact, misses solve.target_gap or
 * has no gap. */
static int linear_train(void *model)
{
    struct tr_linear *m = model;
    double goal = m->o->target_gap;
    TR_TRY(tr_linear_put_initial(m));
    TR_TRY(solver_train(m));
    if (m->solver == &tr_linear_dual) TR_TRY(tr_linear_dual_prove(m));
    TR_TRY(tr_linear_check_worth(m));
    if (goal > 0 && isnan(m->last.gap)) {
        const char *proves = m->o->l1 > 0 ? "solve.method descent proves one"
                             : m->l2 > 0  ? "solve.method newton proves one, from this model with model.init"
                                          : "without model.l2 and model.l1 no method can prove one";
        tr_say(
            m->tr,
            "note:          solve.target_gap %g has no effect, because this solve.method computes no gap: %s",
            goal, proves);
    }
    if (goal > 0 && m->last.gap > goal) {
        char gap[64] = "nothing is proven yet";
        if (isfinite(m->last.gap))
            snprintf(gap, sizeof gap, "the gap is %s%.2e", m->last.estimated ? "estimated: " : "",
                     m->last.gap);
        bool dual = m->solver == &tr_linear_dual && m->method == TR_METHOD_DUAL;
        tr_say(m->tr, "note:          solve.target_gap %g is not reached, %s: %s", goal, gap,
               m->stuck ? "rounding prevents any further decrease"
               : dual   ? "more solve.epochs, or solve.method auto, may help"
                        : "more solve.epochs may help");
    }
    return tr_linear_report_figures(m);
}

static void linear_close(void *model)
{
    struct tr_linear *m = model;
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++) solvers[i]->close(m);
    tr_view *views[] = {m->view, m->test_view, m->fresh_view};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) tr_view_close(&views[i]);
    tr_test_metrics_close(&m->metrics);
    tr_data_close(&m->train);
    tr_data_close(&m->test);
    TR_FREE_ALL(m->target, m->test_target, m->margin, m->initial, m->class_weight);
    tr_linear_saved_close(m);
}

/* ---- views and problems of workers ---- */

/* The key of the bias follows behind the keys of the data. If the members of a group divide the columns (vertical), only member 0
 * has the key of the bias; otherwise all members have it. */
int tr_linear_open_view(struct tr_linear *m, tr_worker *me, const tr_data *data, tr_table *table,
                        enum tr_view_use use, tr_view **view)
{
    bool bias = m->o->bias && (!m->vertical || me->member == 0);
    TR_FREED tr_key *keys = NULL;
    TR_TRY(TR_NEW(&keys, data->n_keys + 1));
    memcpy(keys, data->keys, data->n_keys * sizeof *keys);
    keys[data->n_keys] = data->columns;
    if (use == TR_VIEW_UPDATE && !m->vertical) use = TR_VIEW_GROUP;
    return tr_view_open(table, keys, data->n_keys + bias, use, view);
}

int tr_linear_open_range(tr_table *table, tr_key first, size_t n, enum tr_view_use use, tr_view **view)
{
    TR_FREED tr_key *keys = NULL;
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = first + i;
    return tr_view_open(table, keys, n, use, view);
}

tr_worker tr_linear_self(tr_context *tr)
{
    return (tr_worker){.tr = tr, .member = tr_set_rank(tr, TR_SET_GROUP), .group_size = tr_group_size(tr)};
}

int tr_linear_set_problem(const struct tr_linear *m, const tr_data *data, struct tr_problem *p,
                          float **target)
{
    tr_worker me = tr_linear_self(m->tr);
    bool whole = !m->vertical || me.member == 0; /* margins include bias and offset */
    *p = (struct tr_problem){.loss = m->loss,
                             .dtype = (enum tr_dtype)m->o->dtype,
                             .shape = m->shape,
                             .rows = data->rows,
                             .data = data,
                             .outputs = m->outputs,
                             .softmax = m->softmax,
                             .offset = whole ? data->rows.offset : NULL,
                             .bias = m->o->bias && whole,
                             .of_bias = 1,
                             .keys = data->n_keys,
                             .l2 = m->l2,
                             .n = m->total_weight};
    bool weighs = data->weighted || (m->class_weight && data == m->train);
    size_t rows = data->rows.n;
    TR_TRY(TR_NEW(target, weighs ? 2 * rows : rows));
    float positive = m->train->label[m->train->labels > 0 ? m->train->labels - 1 : 0];
    for (size_t i = 0; i < data->rows.n; i++) {
        float label = data->rows.label[i];
        size_t place = tr_linear_classifies(m) ? tr_label_place(m->train->label, m->train->labels, label) : 0;
        bool unknown = m->train->labels > 1 && place == m->train->labels;
        (*target)[i] = !tr_linear_classifies(m) ? label
                       : unknown                ? NAN
                       : m->outputs > 1         ? (float)place
                       : label == positive      ? 1.0f
                                                : -1.0f;
    }
    p->target = *target;
    if (weighs) p->weight = *target + rows;
    for (size_t i = 0; weighs && i < rows; i++) (*target)[rows + i] = (float)weight_of_row(m, data, i);
    return TR_OK;
}

int tr_linear_prepare_rows(tr_worker *me, struct tr_linear *m, size_t margins)
{
    if (!m->target) TR_TRY(tr_linear_set_problem(m, m->train, &m->problem, &m->target));
    if (m->test && !m->test_view) {
        TR_TRY(tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view));
        TR_TRY(tr_linear_set_problem(m, m->test, &m->test_problem, &m->test_target));
    }
    return m->margin
               ? TR_OK
               : TR_NEW(&m->margin, tr_max_size(TR_LINEAR_MARGINS, tr_max_size(margins, 3) * m->outputs));
}

int tr_linear_prepare(tr_worker *me, struct tr_linear *m, size_t margins)
{
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_UPDATE, &m->view));
    /* with sync.pull stale, m->view may be old, but evaluations need the values of the servers */
    if (tr_job_is(m->job, "sync.pull", "stale") && !tr_in_lockstep(m->tr))
        TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_READ, &m->fresh_view));
    return tr_linear_prepare_rows(me, m, margins);
}

void tr_linear_copy_to_delta(tr_view *view, enum tr_dtype dtype)
{
    memcpy(view->delta, view->value, view->n * view->width * tr_real_size(dtype));
}

void tr_linear_keep_difference(tr_view *view, enum tr_dtype dtype, double divisor)
{
    size_t n = view->n * view->width;
    if (dtype == TR_F32) {
        float *delta = view->delta, scale = (float)(1 / divisor);
        const float *value = view->value;
        for (size_t i = 0; i < n; i++) delta[i] = (delta[i] - value[i]) * scale;
    } else {
        double *delta = view->delta, scale = 1 / divisor;
        const double *value = view->value;
        for (size_t i = 0; i < n; i++) delta[i] = (delta[i] - value[i]) * scale;
    }
}

/* ---- for methods ---- */

void tr_linear_release_views(void *kept)
{
    struct tr_linear_views *views = kept;
    tr_view_close(&views->w);
    tr_view_close(&views->other);
    tr_view_close(&views->test);
    free(views);
}

uint32_t tr_linear_few_servers(const struct tr_linear *m)
{
    enum { LEAST_KEYS = 4096 };
    uint64_t servers = (uint64_t)tr_job_number(m->job, "table.servers"),
             all = servers ? servers : (uint64_t)tr_servers(m->tr);
    uint64_t most = m->train->columns / LEAST_KEYS + 1;
    return most < all ? (uint32_t)most : 0;
}

int64_t tr_linear_batches_of_clock(const struct tr_linear *m, int64_t batches, int64_t usual)
{
    struct tr_job_often push = {.unit = TR_OFTEN_AUTO};
    (void)tr_job_often(m->job, "sync.push", &push);
    int64_t n = (int64_t)push.n;
    switch (push.unit) {
    case TR_OFTEN_EVERY: return n < batches ? n : batches;
    case TR_OFTEN_PER_EPOCH: return (batches + n - 1) / n;
    default: return usual;
    }
}

/* ---- settings of stages ---- */

/* Reads stages.STAGE.KEY into *n. Returns whether the job sets the key. */
static bool stage_setting(const struct tr_linear *m, const char *stage, const char *key, uint64_t *n)
{
    char name[96];
    snprintf(name, sizeof name, "stages.%s.%s", stage, key);
    return tr_job_given(m->job, name) && tr_job_integer(m->job, name, n) == TR_OK;
}

int tr_linear_stage_workers(const struct tr_linear *m, const char *stage, int usual)
{
    uint64_t n;
    if (!stage_setting(m, stage, "parallelism", &n)) return usual;
    return n == UINT64_MAX ? TR_AUTO_WORKERS : n == 0 ? TR_ALL_WORKERS : (int)n;
}

int64_t tr_linear_stage_number(const struct tr_linear *m, const char *stage, const char *key)
{
    uint64_t n;
    return stage_setting(m, stage, key, &n) && n < UINT64_MAX ? (int64_t)n : 0;
}

int tr_linear_check_stage(const struct tr_linear *m, const char *stage, bool one_group, bool has_clocks)
{
    int workers = one_group ? tr_group_size(m->tr) : tr_workers(m->tr),
        wished = tr_linear_stage_workers(m, stage, TR_ALL_WORKERS);
    int64_t servers = tr_linear_stage_number(m, stage, "servers");
    char key[96];
    int status = TR_OK;
    if (!has_clocks && tr_linear_stage_number(m, stage, "clocks") > 0) {
        snprintf(key, sizeof key, "stages.%s.clocks", stage);
        status = tr_linear_refuse(m->job, key, "clocks are of no use to this stage, which has one");
    } else if (servers > tr_servers(m->tr)) {
        snprintf(key, sizeof key, "stages.%s.servers", stage);
        status = tr_fail(TR_ERR_CONFIG, "%s: %s is %d, but there are %d servers: see ranks.servers",
                         tr_job_where(m->job, key), key, (int)servers, tr_servers(m->tr));
    } else if (wished > workers) {
        snprintf(key, sizeof key, "stages.%s.parallelism", stage);
        status = tr_fail(TR_ERR_CONFIG, "%s: %s is %d, but there %s %d worker%s%s", tr_job_where(m->job, key),
                         key, wished, workers == 1 ? "is" : "are", workers, workers == 1 ? "" : "s",
                         one_group ? " on a node" : "");
    }
    return tr_agree(m->tr, status);
}

/* ---- solve.method auto ---- */

/* Chooses the method before and during training. With few columns Newton's method is best from the start. Otherwise training begins
 * with dual coordinate descent, whose passes are cheap and reduce the gap most at first. Newton's method takes over when the
 * estimated gaps predict that it reaches solve.target_gap sooner. */

/* WATCHED: maximum number of evaluations that a prediction uses; LEAST_WATCHED: minimum number. */
enum { WATCHED = 64, LEAST_WATCHED = 6 };

/* Typical number of passes of Newton's method on data on which dual coordinate descent is slow. (To a gap of 1e-3, with the
 * diagonal preconditioner: 20 newsgroups 14 to 40, w8a 40 to 90, a9a 50 to 90.) */
static const double passes_of_newton = 50;

/* Minimum of solve.epochs for Newton's method with corners (quantile regression): with fewer passes its result is poor. */
enum { LEAST_OF_CORNERS = 20 };

/* Newton's method takes over only if this number of passes is left: it compares the weights with zeros first; some steps follow. */
static const double least_of_newton = 10;

struct tr_linear_auto {
    const struct tr_linear_method *first; /* the method at the start */
    bool may_change;                      /* Newton's method may take over */
    bool may_advise; /* it could with another sync.mode, and the hint that says so has not been printed */
    /* on the scheduler */
    int64_t n;                           /* number of evaluations so far */
    double epoch[WATCHED], gap[WATCHED]; /* [i % WATCHED]: epoch and estimated gap of evaluation i */
    double changed; /* epoch at which dual coordinate descent stopped for Newton's method; -1: it did not */
};

static bool auto_dual_can(const struct tr_loss *loss, const struct tr_linear_options *o)
{
    return solver_minimises(&tr_linear_dual, loss) && o->l2 != 0;
}

/* solve.patience returns to an earlier model, which Newton's method does not support. any_mode: ignore sync.mode. */
static bool auto_newton_can(const struct tr_loss *loss, const tr_job *job, bool any_mode)
{
    return solver_minimises(&tr_linear_newton, loss) && !(tr_job_number(job, "solve.patience") > 0) &&
           (any_mode || tr_job_is(job, "sync.mode", "bsp"));
}

static int auto_check(const tr_job *job, const struct tr_linear_options *o)
{
    const struct tr_loss *loss = tr_linear_loss(job);
    bool newton = auto_newton_can(loss, job, false);
    if (tr_job_number(job, "solve.patience") > 0 && !auto_dual_can(loss, o))
        return tr_linear_refuse(job, "solve.patience", "solve.patience needs solve.method sgd here");
    if (!newton && !solver_minimises(&tr_linear_dual, loss))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: model.type %s needs sync.mode bsp, for Newton's method: or use solve.method sgd",
                       tr_job_where(job, "sync.mode"), loss->type);
    if (*o->init && !newton)
        return tr_linear_refuse(
            job, "model.init",
            "model.init needs Newton's method here, and that sync.mode bsp: or use solve.method sgd");
    return newton ? tr_linear_newton.check(job, o) : tr_linear_dual.check(job, o);
}

/* Dual coordinate descent begins with zeros, so that model.init needs Newton's method. Newton's method is also the first method
 *   for few columns;
 *   for a hinge and more than two classes (letter takes 57 passes to a gap of 1e-3, the ten digits of usps 109; dual coordinate
 *   descent more than 1000);
 *   for a hinge, two classes and several groups: a9a, w8a, 20 newsgroups and clicks take 34, 86, 86 and 95 passes. Dual coordinate
 *   descent takes 29, 49, 8 and 7 passes in one group, but more than 200 in two groups, which merge their copies of w. */
static int auto_open(struct tr_linear *m)
{
    bool newton = auto_newton_can(m->loss, m->job, false),
         dual = auto_dual_can(m->loss, m->o) && !*m->o->init;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->chooser, 1)));
    struct tr_linear_auto *a = m->chooser;
    a->changed = -1;
    a->first = &tr_linear_dual;
    if (newton) {
        TR_TRY(tr_linear_newton.open(m));
        const struct tr_newton_options *o = &m->newton->options;
        bool hinge = m->loss == &tr_loss_svm, corners = m->loss->corner && !tr_linear_classifies(m);
        bool enough = m->epochs >= (corners ? LEAST_OF_CORNERS : tr_newton_least_passes(o));
        bool better =
            (hinge && tr_groups(m->tr) > 1) || ((!hinge || m->outputs > 1) && tr_newton_is_exact(o));
        if (!dual || (enough && better)) a->first = &tr_linear_newton;
    }
    a->may_change = newton && a->first != &tr_linear_newton && m->o->target_gap > 0;
    a->may_advise = !newton && auto_newton_can(m->loss, m->job, true) && m->o->target_gap > 0;
    return a->first == &tr_linear_newton ? TR_OK : a->first->open(m);
}

static void auto_close(struct tr_linear *m)
{
    free(m->chooser);
    m->chooser = NULL;
}

/* Predicts the number of epochs to the target from the later half of the evaluations. The prediction is the mean of two: that the
 * gap falls by a constant factor per epoch, and that it falls as a power of the epoch, as it does if workers merge copies of w.
 * has_left: the run resumes from a checkpoint of a later stage, so that Newton's method had taken over before. */
void tr_linear_watch(struct tr_linear *m, tr_evaluation *evaluation)
{
    struct tr_linear_auto *a = m->chooser;
    if (!a || !(a->may_change || a->may_advise) || m->solver != a->first || !evaluation->estimated) return;
    double epoch = (double)((a->n + 1) * m->report_every);
    bool has_left = tr_context_continues(m->tr);
    a->epoch[a->n % WATCHED] = epoch;
    a->gap[a->n % WATCHED] = fabs(evaluation->gap);
    a->n++;
    if ((evaluation->stop || a->n < LEAST_WATCHED) && !has_left) return;
    int64_t last = a->n - 1, before = last - (a->n < WATCHED ? a->n : WATCHED) / 2;
    double gap = a->gap[last % WATCHED], old = a->gap[before % WATCHED], first = a->epoch[before % WATCHED];
    bool falls = gap > 0 && old > gap;
    /* how often the gap must still fall by the factor old / gap */
    double factors = falls ? log(gap / m->o->target_gap) / log(old / gap) : INFINITY;
    double left = (factors * (epoch - first) + epoch * (pow(epoch / first, factors) - 1)) / 2;
    if (falls && left <= passes_of_newton && !has_left) return;
    if (epoch + least_of_newton > (double)m->epochs && !has_left) return;
    if (a->may_advise) {
        tr_say(m->tr, "hint:          the gap of %.2g falls slowly: in sync.mode bsp, newton would take over",
               evaluation->gap);
        a->may_advise = false;
        return;
    }
    if (!has_left)
        tr_say(m->tr, "method:        newton from epoch %g on, as the gap of %.2g falls slowly", epoch,
               evaluation->gap);
    a->changed = epoch;
    evaluation->stop = true;
}

double tr_linear_epochs_before(const struct tr_linear *m)
{
    return m->chooser ? fmax(m->chooser->changed, 0) : 0;
}

int tr_linear_keep_watch(struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_auto *a = m->chooser;
    if (!a) return TR_OK;
    TR_TRY(tr_snapshot_common(snapshot, "watched", TR_I64, 1, &a->n));
    TR_TRY(tr_snapshot_common(snapshot, "watched_epochs", TR_F64, WATCHED, a->epoch));
    TR_TRY(tr_snapshot_common(snapshot, "watched_gaps", TR_F64, WATCHED, a->gap));
    return tr_snapshot_common(snapshot, "changed", TR_F64, 1, &a->changed);
}

static int auto_train(struct tr_linear *m)
{
    struct tr_linear_auto *a = m->chooser;
    m->solver = a->first;
    TR_TRY(solver_train(m));
    if (m->solver == &tr_linear_newton) return tr_report_figure(m->tr, "newton_from_epoch", 0);
    TR_TRY(tr_model_tell(m->tr, 1, &a->changed));
    if (a->changed < 0) return TR_OK;
    tr_view_close(&m->view);
    m->solver = &tr_linear_newton;
    m->clocks_per_epoch = 1;
    TR_TRY(solver_train(m));
    return tr_report_figure(m->tr, "newton_from_epoch", a->changed);
}

const struct tr_linear_method tr_linear_auto = {.check = auto_check,
                                                .passes = true,
                                                .open = auto_open,
                                                .train = auto_train,
                                                .close = auto_close,
                                                .many_outputs = true,
                                                .weighs_rows = true,
                                                .minimises = TR_LOSS_STEP | TR_LOSS_CURVED,
                                                .diverged = "set solve.method"};

/* ---- memory ---- */

/* Estimates the memory of each rank from the size of the data files. Rows take 0.6 times the size of their text. A worker also has
 * some vectors over the keys of its rows. */
static void linear_estimate(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *m)
{
    const struct tr_linear_options *o = options;
    const struct tr_linear_method *solver = solvers[tr_job_method(job)];
    double element = (double)tr_real_size((enum tr_dtype)o->dtype), workers = size->workers;
    double text = size->text / workers, keys = fmin(size->features, text / 9),
           records = size->records / workers;
    bool disk = tr_job_is(job, "data.storage", "disk"), some = tr_job_is(job, "data.storage", "memory_disk");
    double rows = 0.6 * text, of_row = 24, blocks = 50e6;
    if (disk || some)
        rows = fmin(rows, some ? tr_job_number(job, "data.memory") : 0) + blocks + of_row * records;
    double merged = workers > 1; /* a view has a second copy: new values arrive while the old ones are read */
    m->rows = solver->passes ? rows : 0.6 * text;
    m->worker = (3 + merged) * element * keys;
    if (solver == &tr_linear_newton) /* vectors over the columns of a worker */
        m->worker += 64 * size->features / workers + 16 * keys + 40 * records;
    if (solver == &tr_linear_dual) { /* dual variables and norms of the rows; the mean of w */
        m->rows += 20 * records;
        m->worker += 2 * element * keys;
    }
    if (solver == &tr_linear_growing) { /* views of each phase and of the evaluation, sums of the node */
        double phases = fmin((double)o->phases, TR_GROWING_PHASES);
        double group_keys = fmin(size->occurring, text * size->node_workers / 9);
        m->worker = ((3 * element + 8) * phases + element + 8) * group_keys;
        m->node = 2 * element * group_keys * phases * size->node_workers;
    }
    if (solver == &tr_linear_descent) m->worker += 0.6 * text; /* a copy of the rows, stored by columns */
    if (solver == &tr_linear_variance) { /* vectors over all features, the replica of the node */
        m->worker += (32 + element) * size->features;
        m->node = (5 + 4 * (tr_job_method(job) != TR_METHOD_SVRG)) * element * size->features;
    }
    double wished = tr_job_number(job, "table.servers"), servers = wished > 0 ? wished : size->servers;
    double tables = solver->counts_rows ? 1.5 : 1;
    double used = fmin(size->features, size->text / 9), lists = 12 * keys * workers;
    m->server = tr_job_is(job, "table.storage", "dense") ? tables * element * size->features / servers
                                                         : (tables * (element + 20) * used + lists) / servers;
}

/* ---- the class ---- */

#define AT(field) offsetof(struct tr_linear_options, field)

/* clang-format off */
static const tr_option options[] = {
    {"model.l2", TR_KIND_REAL, AT(l2), "auto", .words = TR_WORDS("auto", "1/n"),
     .help = "lambda in F(w) = mean loss + lambda/2 |w|^2, where auto = 1/n (with model.l1, by descent: 0) and LIBLINEAR's C is 1/(lambda n)"},
    {"model.l1", TR_KIND_REAL, AT(l1), "0", .words = TR_WORDS("path"),
     .help = "alpha in F(w) = mean loss + lambda/2 |w|^2 + alpha |w|_1, for solve.method descent or solve.optimizer ftrl; "
             "path = from the least that leaves no weight to a thousandth of it, the best by data.test or else the last"},
    {"model.bias", TR_KIND_BOOL, AT(bias), "yes",
     .help = "whether a constant is learnt besides the weights"},
    {"model.bias_l2", TR_KIND_BOOL, AT(bias_l2), "no",
     .help = "whether the bias is regularised (as LIBLINEAR does)"},
    {"model.classes", TR_KIND_CHOICE, AT(classes), "auto", .words = TR_WORDS("auto", "softmax", "one-against-rest"),
     .help = "more than two labels: weights for each, and probabilities by one softmax, or each against the rest; auto = softmax for logistic"},
    {"model.delta", TR_KIND_REAL, AT(delta), "auto", .above = true, .words = TR_WORDS("auto"),
     .help = "huber, logcosh: errors beyond it count in proportion to their size, smaller ones by their squares; "
             "auto = the median absolute deviation of the targets"},
    {"model.quantile", TR_KIND_REAL, AT(quantile), "0.5", .most = 1,
     .help = "quantile: the share of the rows that lie below the prediction; 0.5 = the median"},
    {"model.power", TR_KIND_REAL, AT(power), "1.5", .least = 1.01, .most = 1.99,
     .help = "tweedie: the variance is proportional to this power of the mean; 1 would be poisson, 2 gamma"},
    {"model.init", TR_KIND_TEXT, AT(init), "", .methods = "auto newton descent sgd svrg svrg++ katyusha growing",
     .help = "a run's folder or a file, model.h5 or LIBLINEAR's model.txt: training begins with its weights, by the features' indices; "
             "task NAME: of another task of the job"},
    {"model.class_weights", TR_KIND_TEXT, AT(class_weights), "",
     .help = "weight of rows by label: balanced = equal total weight of all labels, or label:weight pairs, «1:5 -1:0.5»; the objective is the weighted mean"},
    {"model.dtype", TR_KIND_CHOICE, AT(dtype), "f32", .words = TR_WORDS("f32", "f64"),
     .help = "single or double precision"},
    {"solve.target_gap", TR_KIND_REAL, AT(target_gap), "0", .may_change = true,
     .help = "stop when the objective is proven within this relative distance of the optimum; 0 = off"},
    {"solve.rate", TR_KIND_REAL, AT(rate), "auto", .above = true, .words = TR_WORDS("auto"), .may_change = true,
     .methods = "sgd svrg svrg++ katyusha growing",
     .help = "size of the first step; auto = for sgd the best of some that are tried on a part of the data, for variance reduction and growing batches as the data's smoothness allows"},
    {"solve.decay", TR_KIND_REAL, AT(decay), "auto", .words = TR_WORDS("auto"), .may_change = true,
     .methods = "sgd growing",
     .help = "the rate of clock c is rate/sqrt(decay*c+1); auto = with solve.rate auto it falls on a line to 0 at the last epoch, "
             "else it does not fall"},
    {"solve.batch", TR_KIND_INTEGER, AT(batch), "0",
     .help = "rows over all groups of one mini-batch (sgd; growing: of the first phase) or one turn (dual); 0 = chosen "
             "from the data"},
    {"solve.sigma", TR_KIND_REAL, AT(sigma), "auto", .least = 1, .words = TR_WORDS("auto"),
     .methods = "auto dual",
     .help = "factor by which each copy of the weights damps its steps for the other copies; auto = for each feature about the number "
             "of copies that change it, without BSP the number of copies, which is safe"},
    {"solve.optimizer", TR_KIND_CHOICE, AT(optimizer), "sgd",
     .words = TR_WORDS("sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "ftrl"),
     .help = "what becomes of a mini-batch's gradient"},
    {"solve.optimizer_at", TR_KIND_CHOICE, AT(optimizer_at), "server", .words = TR_WORDS("server", "worker"),
     .help = "who keeps the optimizer's state: the servers, who get gradients, or each worker for itself"},
    {"solve.momentum", TR_KIND_REAL, AT(momentum), "0.9", .most = 1,
     .help = "momentum, nesterov, adam: how much of the last step's direction is kept"},
    {"solve.memory", TR_KIND_REAL, AT(memory), "auto", .most = 1, .words = TR_WORDS("auto"),
     .help = "adadelta, rmsprop, adam: how much is kept of the mean of squares; auto = 0.99, 0.99, 0.999"},
    {"solve.epsilon", TR_KIND_REAL, AT(epsilon), "auto", .above = true, .words = TR_WORDS("auto"),
     .help = "adaptive optimizers: added to the divisor; auto = 1e-8, for adadelta 1e-6"},
    {"solve.inner", TR_KIND_REAL, AT(inner), "2", .above = true, .most = 1e6,
     .methods = "svrg svrg++ katyusha",
     .help = "passes of stochastic steps between two full gradients; svrg++: the first time"},
    {"solve.growth", TR_KIND_REAL, AT(growth), "10", .least = 1,
     .methods = "growing",
     .help = "how many times larger the batches of each phase are than those of the phase before"},
    {"solve.phases", TR_KIND_INTEGER, AT(phases), "3", .least = 1,
     .methods = "growing",
     .help = "number of phases; they share solve.epochs equally"},
    {"solve.path", TR_KIND_INTEGER, AT(path), "100", .least = 1,
     .methods = "auto descent",
     .help = "model.l1 path: how many penalties, at equal ratios"},
    {"solve.folds", TR_KIND_INTEGER, AT(folds), "0", .most = 1000,
     .methods = "auto descent",
     .help = "model.l1 path: number of parts of the rows; each is held out in turn to choose the penalty; 0: data.test does"},
    {.name = NULL},
};

static const tr_rule rules[] = {
    {"data.label", NULL, "auto", false},
    {"solve.decay", "growing", "0", false},
    {"solve.rate", "auto dual newton", "0.1", true},
    {"solve.epochs", "auto dual newton", "1000", false},
    {"solve.target_gap", "auto dual newton", "1e-3", false},
    {"solve.epochs", "growing", "3", false},
    {"solve.epochs", "svrg svrg++ katyusha", "60", false},
    {"solve.epochs", "descent", "100", false},
    {"solve.target_gap", "descent", "1e-3", false},
    {"table.filter", "descent", "none", true},
    {"data.partition", "auto dual", "replicated", false},
    {"data.partition", "svrg svrg++ katyusha growing", "replicated", false},
    {"table.prune", "svrg svrg++ katyusha", "no", true},
    {"local.*", "auto dual sgd newton descent growing", NULL, true},
    {"sync.race", "auto dual sgd newton descent growing", NULL, true},
    {"solve.patience", "svrg svrg++ katyusha growing descent newton", NULL, true},
    {"solve.batch", "newton descent", NULL, true},
    {"sync.push", "newton descent", NULL, true},
    {"data.vocabulary", NULL, NULL, true},
    {"data.duplicates", NULL, NULL, true},
    {.key = NULL},
};

static const tr_flag flags[] = {
    {"--probability", NULL, TR_PREDICT, 0, 0, "logistic: the probability of the positive label, or of each if there are more than two, in place of the label"},
    {"--margin", NULL, TR_PREDICT, 0, 0, "w x + bias in place of the label, of each if there are more than two"},
    {"--top", "N", TR_INSPECT, 1, 1000000, "how many of the largest weights are shown, 10 without it"},
    {.name = NULL},
};
/* clang-format on */

const tr_model_class tr_linear_class = {
    .abi = TR_MODEL_ABI,
    .name = "linear",
    .types = tr_loss_types,
    .help =
        "logistic regression, support vectors with hinge (svm) or squared hinge loss (l2svm); regression by "
        "least squares (linear), robust (huber, logcosh), of quantiles, and with a log link of counts "
        "(poisson), "
        "of amounts (gamma) and of amounts that may be 0 (tweedie)",
    .predicts = "the label, or the value for regression",
    .evaluates = "all metrics of report.metric that apply to the model, the confusion matrix, and precision "
                 "and recall "
                 "of each class",
    .noun = "a linear model",
    .format = "trireme-linear",
    .format_version = 1,
    .text_begins = "solver_type",
    .data_formats = TR_WORDS("libsvm", "csv", "hdf5"),
    .options_size = sizeof(struct tr_linear_options),
    .options = options,
    .methods = methods,
    .rules = rules,
    .flags = flags,
    .model_size = sizeof(struct tr_linear),
    .check = linear_check,
    .open = linear_open,
    .train = linear_train,
    .fields = tr_linear_fields,
    .read_text = tr_linear_read_text,
    .close = linear_close,
    .memory = linear_estimate,
    .ready = tr_linear_ready,
    .predict = tr_linear_predict,
    .evaluate = tr_linear_evaluate_rows,
    .figures = tr_linear_figures,
    .mean = tr_linear_mean,
    .keys = tr_linear_keys,
    .inspect = tr_linear_inspect,
};
