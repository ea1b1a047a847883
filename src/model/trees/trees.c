/* Gradient boosted trees: options, data, training, predict, evaluate, inspect. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

/* Indices into tr_report.sum: weighted loss, weight, and TR_METRIC_SUMS sums of the test rows from TEST on. */
enum { LOSS, WEIGHT, TEST };

/* Maximum number of classes. */
enum { MOST_CLASSES = 1000 };

/* Returns the maximum number of training rows: the sum of their rounded second derivatives must fit into 32 bits. */
static uint64_t most_rows(const struct tr_trees_options *o)
{
    return UINT32_MAX / ((1u << o->bits) - 1);
}

size_t tr_trees_class_of(const struct tr_trees *m, float label)
{
    return tr_label_place(m->label_name, (size_t)m->labels, label);
}

/* ================ model.init ================ */

/* The trees of the model.init model precede the new trees, which learn the residuals. Rank 0 reads the model. */
static int initial_refuse(const struct tr_trees *m, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: model.init %s: %s", tr_job_where(m->job, "model.init"), m->o->init,
                   what);
}

static int initial_add_trees(struct tr_trees *m, const struct tr_trees *from, const tr_saved_values *values)
{
    struct tr_forest *f = &m->forest;
    if (from->columns != m->columns || from->first_index != m->first_index)
        return initial_refuse(m, "its columns differ from those of the training data");
    if (from->loss != m->loss || from->outputs != m->outputs)
        return initial_refuse(m, "its model.objective is different");
    if (from->labels != m->labels ||
        (m->labels > 0 &&
         memcmp(from->label_name, m->label_name, (size_t)m->labels * sizeof *m->label_name) != 0))
        return initial_refuse(m, "its labels differ from those of the training data");
    for (size_t t = 0; t < from->forest.trees; t++) {
        size_t first = (size_t)from->forest.begin[t];
        TR_TRY(tr_forest_add(f, from->forest.node + first, from->forest.note + first,
                             (size_t)from->forest.begin[t + 1] - first));
    }
    TR_FREED uint32_t *number = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < f->nodes; i++) { /* values of categories have other numbers in the new data */
        const struct tr_node old = f->node[i];
        size_t n = 0;
        if (!(old.flags & TR_NODE_CATEGORY)) continue;
        for (uint32_t value = 0; value < old.flags >> TR_NODE_SET_WORDS << 5; value++) {
            if (!tr_node_has(&from->forest, &old, value)) continue;
            TR_TRY(TR_GROW(&number, &capacity, n + 1));
            TR_TRY(tr_saved_value_number(values, old.feature, value, &number[n++]));
        }
        TR_TRY(tr_forest_add_set(f, number, n, &f->node[i]));
    }
    memcpy(m->base, from->base, (size_t)m->outputs * sizeof *m->base);
    return TR_OK;
}

/* ================ model.monotone ================ */

/* Reads pairs «name: up» or «name: down»: as the number of the column rises, the prediction may not fall (up) or rise (down). The
 * values of the children of a split by the column are ordered, and their mean bounds all leaves below (as in LightGBM, basic). */
static int monotone_read(struct tr_trees *m)
{
    const struct tr_job_list *list = &m->o->monotone;
    const char *where = tr_job_where(m->job, "model.monotone");
    double part;
    if (list->n == 0) return TR_OK;
    if (m->outputs > 1 || tr_trees_is_quantile(m, &part))
        return tr_fail(TR_ERR_CONFIG, "%s: model.monotone is not supported for model.objective %s", where,
                       m->loss->objective);
    TR_TRY(TR_NEW(&m->direction, (size_t)m->columns));
    for (size_t i = 0; i < list->n; i++) {
        const char *pair = list->item[i], *colon = strrchr(pair, ':'),
                   *word = colon ? colon + 1 + strspn(colon + 1, " ") : "";
        TR_FREED char *name = NULL;
        uint64_t column;
        int direction = strcmp(word, "up") == 0 ? 1 : strcmp(word, "down") == 0 ? -1 : 0;
        if (direction == 0)
            return tr_fail(TR_ERR_CONFIG, "%s: model.monotone: «%s»: expected «column: up» or «column: down»",
                           where, pair);
        pair += strspn(pair, " ");
        TR_TRY(tr_format(&name, "%.*s", (int)(colon - pair), pair));
        if (!tr_data_column(m->train, name, &column))
            return tr_fail(TR_ERR_CONFIG, "%s: model.monotone: «%s»: no such column in the training data",
                           where, pair);
        if (m->values && m->values[column] > 0)
            return tr_fail(TR_ERR_CONFIG,
                           "%s: model.monotone: «%s»: expected a numeric column, found a category", where,
                           pair);
        m->direction[column] = (int8_t)direction;
    }
    return TR_OK;
}

/* ---- opening ---- */

static int trees_check_data(const struct tr_trees *m)
{
    const tr_data *train = m->train;
    const char *lacks = train->labels == 0                ? "data.train"
                        : m->test && m->test->labels == 0 ? "data.test"
                                                          : NULL;
    if (lacks)
        return tr_fail(TR_ERR_CONFIG, "%s: %s has no labels: expected data.label first or last",
                       tr_job_where(m->job, "data.label"), lacks);
    bool classes = tr_trees_classify(m);
    TR_TRY(tr_labels_check(m->job, train, "model.objective", m->loss->objective,
                           classes ? "squared" : "softmax", classes));
    if (classes && !m->loss->joint && train->labels > 2)
        return tr_fail(TR_ERR_DATA, "%s: expected two labels, or model.objective softmax or squared",
                       tr_data_third_label(train));
    if (m->loss->joint && train->labels > MOST_CLASSES)
        return tr_fail(TR_ERR_DATA,
                       "%s, and there are more than %d labels: expected classes, or model.objective squared",
                       tr_data_third_label(train), MOST_CLASSES);
    if (m->test && tr_trees_classify(m)) TR_TRY(tr_labels_check_test(m->tr, train, m->test));
    if (*m->o->class_weights && !tr_trees_classify(m))
        return tr_fail(TR_ERR_CONFIG, "%s: model.class_weights requires classes, but the labels are numbers",
                       tr_job_where(m->job, "model.class_weights"));
    if (train->labels > 0 && !tr_loss_takes(m->loss, train->label[0]))
        return tr_fail(TR_ERR_DATA, "%s: label %g, expected %s for model.objective %s",
                       tr_job_where(m->job, "model.objective"), (double)train->label[0],
                       m->loss->labels == TR_LABELS_POSITIVE ? "more than 0" : "0 or more",
                       m->loss->objective);
    if (train->total_rows > most_rows(m->o))
        return tr_fail(TR_ERR_CONFIG, "%s: %llu rows are too many for gradients of %llu bits: at most %llu",
                       tr_job_where(m->job, "solve.gradient_bits"), (unsigned long long)train->total_rows,
                       (unsigned long long)m->o->bits, (unsigned long long)most_rows(m->o));
    return TR_OK;
}

/* Checks ranks.layout, and sets m->members and m->member. */
static int find_members(struct tr_trees *m)
{
    if (tr_rank(m->tr) == 0 && !(tr_roles(m->tr) & TR_SLAVE))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: trees have no parameters for servers: expected ranks.layout colocated",
                       tr_job_where(m->job, "ranks.layout"));
    bool divided = m->o->parallel == TR_PARALLEL_FEATURE && tr_roles(m->tr) & TR_SLAVE;
    m->members = divided ? (size_t)tr_set_size(m->tr, TR_SET_GROUP) : 1;
    m->member = divided ? (size_t)tr_set_rank(m->tr, TR_SET_GROUP) : 0;
    if (divided && m->members == 1 && tr_workers(m->tr) > 1)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: groups have one member, but feature divides columns over the members of a group: "
                       "expected ranks.groups=1, or larger groups",
                       tr_job_where(m->job, "solve.parallel"));
    return TR_OK;
}

/* Sets the labels, the numbers of values of categories, constraints, and the numbers of rows. */
static int describe_data(struct tr_trees *m)
{
    const tr_data *train = m->train;
    bool categories = false;
    if (tr_trees_classify(m)) {
        m->labels = train->labels;
        TR_TRY(TR_NEW(&m->label_name, (size_t)m->labels + 1));
        memcpy(m->label_name, train->label, (size_t)m->labels * sizeof *m->label_name);
        if (m->labels == 1) {
            tr_say(m->tr, "note:          all labels of data.train are %.9g: there is nothing to learn",
                   (double)m->label_name[0]);
            m->label_name[m->labels++] = m->label_name[0] + 1;
        }
    }
    TR_TRY(TR_NEW(&m->values, (size_t)m->columns));
    tr_data_values(train, m->values);
    for (size_t c = 0; c < m->columns; c++) categories = categories || m->values[c] > 0;
    if (!categories) {
        free(m->values);
        m->values = NULL;
    }
    TR_TRY(monotone_read(m));
    if (!(tr_roles(m->tr) & TR_SLAVE)) return TR_OK;
    TR_FREED uint64_t *number = NULL;
    m->own_rows = train->rows.n;
    TR_TRY(tr_data_row_numbers(train, &number));
    TR_TRY(TR_NEW(&m->number, m->own_rows));
    for (size_t i = 0; i < m->own_rows; i++)
        m->number[i] = (uint32_t)number[i]; /* most_rows() is below 2^32 */
    return TR_OK;
}

static struct tr_test_metrics metrics_of(const struct tr_trees *m)
{
    return (struct tr_test_metrics){
        .loss = m->loss, .shape = m->shape, .outputs = (size_t)m->outputs, .joint = m->loss->joint};
}

/* Sets m->label. Regression losses depend on the difference of margin and label only: offsets are subtracted from labels. */
static int open_labels(struct tr_trees *m)
{
    const tr_batch *rows = &m->train->rows;
    m->label = rows->label;
    if (!m->train->has_offsets || m->loss->labels != TR_LABELS_NUMBERS) return TR_OK;
    TR_TRY(TR_NEW(&m->from_base, rows->n));
    for (size_t i = 0; i < rows->n; i++) m->from_base[i] = rows->label[i] - rows->offset[i];
    m->label = m->from_base;
    return TR_OK;
}

/* Sets the shape of the loss. The default of model.delta is the scale of the labels. */
static int choose_shape(struct tr_trees *m)
{
    const tr_batch *rows = &m->train->rows;
    double sum[2] = {0}, median;
    const char *name;
    m->shape = tr_loss_shape(m->loss, m->o->delta, m->o->quantile, m->o->power);
    if (m->loss->shape != TR_SHAPE_DELTA || m->o->delta != TR_JOB_AUTO) return TR_OK;
    for (size_t i = 0; i < rows->n; i++) {
        double weight = rows->weight ? (double)rows->weight[i] : 1;
        sum[0] += weight;
        sum[1] += weight * (double)m->label[i];
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 2));
    TR_TRY(tr_targets_measure(m->tr, TR_SET_ALL, m->label, rows->weight, rows->n, sum[1] / sum[0], &median,
                              &m->shape, &name));
    m->shape =
        (double)(float)m->shape; /* the standard deviation is rounded: it depends slightly on the ranks */
    tr_say(m->tr, "scale:         %.6g, %s of the labels, which is model.delta", m->shape, name);
    return TR_OK;
}

/* Sets the rate. The default grows with the rows per round, where a row counts by its weight: a leaf with many rows can be trusted.
 * Classes overfit sooner than numbers: the factors and limits are those that were best on public data. */
static int choose_rate(struct tr_trees *m)
{
    bool classes = tr_trees_classify(m);
    double rows = (double)m->total_rows, epochs = tr_job_number(m->job, "solve.epochs");
    m->rate = m->o->rate == TR_JOB_AUTO ? 0.1 : m->o->rate;
    if (m->o->rate != TR_JOB_AUTO || !(classes || m->loss == &tr_loss_linear)) return TR_OK;
    if (m->weight) { /* a sum of integers does not depend on the order of addition */
        int64_t sum = 0;
        for (size_t i = 0; i < m->train->rows.n; i++) sum += llrint((double)m->weight[i] * m->weight_steps);
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_I64, &sum, 1));
        rows = (double)sum / m->weight_steps;
    }
    double part = rows / epochs / (classes ? 160 : 40);
    m->rate = fmin(fmax(0.1 * sqrt(part), 0.1), classes ? 0.2 : 0.3);
    tr_say(m->tr, "rate:          %.3g", m->rate);
    return tr_report_figure(m->tr, "rate", m->rate);
}

static int trees_open_rows(struct tr_trees *m)
{
    const struct tr_loss *loss = tr_objective_losses[m->o->objective]; /* NULL: model.objective is auto */
    const enum tr_data_part form = TR_DATA_RAW | TR_DATA_DENSE | TR_DATA_CODES | TR_DATA_PASSES |
                                   (!loss                      ? TR_DATA_FEW_CLASSES
                                    : tr_loss_classifies(loss) ? TR_DATA_CLASSES
                                                               : TR_DATA_TRAIN);
    const char *const *tests;
    TR_TRY(tr_data_open(m->tr, TR_DATA_TRAIN | form, NULL, &m->train));
    if (tr_job_files(m->job, "data.test", &tests) > 0)
        TR_TRY(tr_data_open(m->tr, TR_DATA_TEST | form, m->train, &m->test));
    m->columns = m->train->columns;
    m->total_rows = m->train->total_rows;
    m->first_index = m->train->format == TR_FORMAT_CSV ? 1 : m->train->first_index;
    m->label_column = m->train->label_column;
    const tr_data *train = m->train;
    m->loss = tr_objective_losses[m->o->objective];
    if (!m->loss) { /* model.objective is auto: choose by the labels */
        bool classes;
        TR_TRY(tr_labels_decide(m->tr, train, &classes));
        m->loss = !classes ? &tr_loss_linear : train->labels <= 2 ? &tr_loss_logistic : &tr_loss_softmax;
        tr_labels_say(m->tr, train, "model.objective", m->loss->objective, classes ? "squared" : "softmax",
                      classes);
    }
    TR_TRY(tr_agree(m->tr, trees_check_data(m)));
    TR_TRY(tr_agree(m->tr, open_labels(m)));
    TR_TRY(tr_agree(m->tr, choose_shape(m)));
    m->outputs = m->loss->joint ? tr_max_size(train->labels, 2) : 1;
    if (m->loss->joint && train->has_offsets)
        return tr_fail(
            TR_ERR_CONFIG, "%s: data.offset is for models of one output, not for softmax",
            tr_job_where(m->job, tr_job_given(m->job, "data.offset") ? "data.offset" : "data.columns"));
    m->metrics = metrics_of(m);
    TR_TRY(tr_agree(m->tr, tr_test_metrics_choose(m->tr, &m->metrics)));
    TR_TRY(tr_agree(m->tr, describe_data(m)));
    TR_TRY(tr_agree(m->tr, tr_trees_weigh(m)));
    TR_TRY(tr_agree(m->tr, choose_rate(m)));
    m->l2 = m->o->l2 != TR_JOB_AUTO ? m->o->l2 : m->loss == &tr_loss_softmax ? 0.1 : 1;
    void *model = NULL;
    tr_saved_values *values = NULL;
    if (!*m->o->init) return TR_OK;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->base, (size_t)m->outputs)));
    TR_TRY(tr_model_load_coded(m->tr, m->o->init, &model, &values));
    int status = tr_agree(m->tr, model ? initial_add_trees(m, model, values) : TR_OK);
    if (status == TR_OK) status = tr_trees_broadcast(m);
    m->initial = m->forest.trees;
    tr_saved_values_close(&values);
    tr_model_unload(m->tr, &model);
    if (status == TR_OK) tr_say(m->tr, "begins with:   %zu trees of %s", m->initial, m->o->init);
    return status;
}

static int refuse_key(const tr_job *job, const char *key, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s is %s", tr_job_where(job, key), key, why);
}

static int trees_check(const tr_job *job, const void *options)
{
    const struct tr_trees_options *o = options;
    const struct tr_loss *loss = tr_objective_losses[o->objective]; /* NULL: model.objective is auto */
    enum tr_loss_shape shape = loss ? loss->shape : TR_SHAPE_NONE;
    /* The job file in the folder of a run contains all keys, so a key is refused only if its value differs from the default. */
    if (o->quantile != 0.5 && shape != TR_SHAPE_QUANTILE)
        return refuse_key(job, "model.quantile", "for model.objective quantile");
    if (o->delta != TR_JOB_AUTO && o->delta != 1 &&
        shape != TR_SHAPE_DELTA) /* 1: default of older versions */
        return refuse_key(job, "model.delta", "for model.objective huber");
    if (o->power != 1.5 && shape != TR_SHAPE_POWER)
        return refuse_key(job, "model.power", "for model.objective tweedie");
    if (o->votes != 20 && o->parallel != TR_PARALLEL_VOTING)
        return refuse_key(job, "solve.votes", "for solve.parallel voting");
    if (*o->class_weights && loss && !tr_loss_classifies(loss))
        return refuse_key(job, "model.class_weights", "for classes");
    if (o->top > 0 && o->rows >= 1)
        return refuse_key(job, "solve.top_share",
                          "used only if solve.row_share, the share of the other rows, is below 1");
    TR_TRY(tr_test_metrics_check(job, loss));
    if (*o->init) TR_TRY(tr_check_initial(job, o->init));
    return tr_class_weights_check(job, o->class_weights);
}

static int trees_open(tr_context *tr, const void *options, void *model)
{
    struct tr_trees *m = model;
    m->tr = tr;
    m->job = tr_context_job(tr);
    m->o = options;
    TR_TRY(tr_job_integer(m->job, "seed", &m->seed));
    TR_TRY(tr_agree(tr, find_members(m)));
    TR_TRY(trees_open_rows(m));
    TR_TRY(tr_data_describe(m->train, "training data"));
    return m->test ? tr_data_describe(m->test, "test data") : TR_OK;
}

/* ---- before the first tree ---- */

/* The initial score of rows with offsets, for a loss that does not depend on the difference of margin and label only. */
static int find_base_beside_offsets(struct tr_trees *m)
{
    const tr_batch *rows = &m->train->rows;
    TR_FREED float *target = NULL;
    TR_TRY(TR_NEW(&target, rows->n));
    for (size_t i = 0; i < rows->n; i++)
        target[i] = !tr_trees_classify(m) ? m->label[i] : tr_trees_class_of(m, m->label[i]) > 0 ? 1 : -1;
    TR_TRY(tr_constant_beside_offsets(m->tr, TR_SET_WORKERS, m->loss, m->shape, 0, rows->n, target, m->weight,
                                      rows->offset, m->base));
    *m->base = (double)(float)*m->base;
    return TR_OK;
}

/* Computes the initial score of each output: the constant with the least loss. For Huber's loss, the median is close to it. */
static int find_base(struct tr_trees *m)
{
    double most = 1, least = 0.5 / (double)m->total_rows /* half a row as a fraction of all */, part;
    TR_FREED int64_t *sum = NULL;
    size_t outputs = (size_t)m->outputs;
    struct tr_row_set all = {NULL, m->train->rows.n};
    float quantile;
    TR_TRY(TR_NEW(&m->base, outputs));
    if (m->train->has_offsets && m->loss->labels != TR_LABELS_NUMBERS) return find_base_beside_offsets(m);
    if (tr_trees_is_quantile(m, &part) || m->loss->trees.median) {
        TR_TRY(tr_weighted_quantiles(m->tr, TR_SET_WORKERS, &all, 1, m->label, m->weight, part, &quantile));
        m->base[0] = (double)quantile;
        return TR_OK;
    }
    TR_TRY(TR_NEW(&sum, outputs + 1));
    for (size_t i = 0; i < m->train->labels && !tr_trees_classify(m); i++)
        most = fmax(most, fabs((double)m->train->label[i]));
    if (m->train->has_offsets) { /* m->label is label - offset */
        for (size_t i = 0; i < m->train->rows.n; i++) most = fmax(most, fabs((double)m->label[i]));
        TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, &most, 1));
    }
    /* sum[0] is the sum of all weights. Softmax: sum[1 + k] is the weight of class k; otherwise sum[1] sums weight × label.
     * Sums are integers, so that they do not depend on the order of addition. */
    double heaviest = m->weight ? 0 : 1;
    size_t n = m->train->rows.n;
    for (size_t i = 0; i < n && m->weight; i++) heaviest = fmax(heaviest, (double)m->weight[i]);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, &heaviest, 1));
    for (size_t i = 0; i < n; i++) {
        double w = (m->weight ? (double)m->weight[i] : 1) / heaviest, y = (double)m->label[i];
        size_t class = tr_trees_classify(m) ? tr_trees_class_of(m, m->label[i]) : 0;
        sum[0] += llrint(w * 0x1p24);
        if (m->loss->joint) sum[1 + class] += llrint(w * 0x1p24);
        else sum[1] += llrint(w * (tr_trees_classify(m) ? (double)class : y / most) * 0x1p24);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_I64, sum, (size_t)m->outputs + 1));
    for (size_t k = 0; k < outputs; k++) {
        double mean = (double)sum[1 + k] * (m->loss->joint ? 1 : most) / (double)sum[0];
        if (m->loss->joint) mean = fmax(mean, least);
        else if (tr_trees_classify(m)) mean = fmin(fmax(mean, least), 1 - least);
        else if (m->loss->mean) mean = fmax(mean, 1e-9);
        m->base[k] = (double)(float)m->loss->constant(mean);
    }
    return TR_OK;
}

static double offset_of(const tr_data *data, size_t i)
{
    return data->rows.offset ? (double)data->rows.offset[i] : 0;
}

/* Sets the scores of rows to the initial scores plus offsets plus the trees of model.init. */
static int open_scores(const struct tr_trees *m, const tr_data *data, float **score)
{
    size_t n = data->rows.n;
    TR_TRY(TR_NEW(score, n * (size_t)m->outputs));
    for (size_t k = 0; k < m->outputs; k++)
        for (size_t i = 0; i < n; i++)
            (*score)[k * n + i] = m->from_base ? 0 : (float)(m->base[k] + offset_of(data, i));
    if (m->initial == 0) return TR_OK;
    TR_CLOSED_BY(tr_scorer_close) struct tr_scorer *s = NULL;
    TR_TRY(tr_scorer_open(&m->forest, 0, (size_t)m->columns, &s));
    for (size_t i = 0, some; (some = tr_data_ready(data, i, tr_min_size(TR_SIDE, n - i))) > 0; i += some) {
        tr_scorer_read(s, &data->rows, data->keys, (size_t)m->columns, i, some);
        tr_scorer_add(s, (size_t)m->outputs, some, *score + i, n);
    }
    return TR_OK;
}

/* Calls open_scores(), and replaces the numbers of the data by bins. The trees of model.init need the numbers, so then scores are
 * computed first; otherwise last, when the memory of the numbers is free. */
static int bin_rows(const struct tr_trees *m, tr_data *data, bool bundle, struct tr_binned *rows,
                    float **score)
{
    if (m->initial > 0) TR_TRY(open_scores(m, data, score));
    TR_TRY(tr_bins_apply(&m->bins, data, bundle, rows));
    tr_data_forget(data);
    return m->initial > 0 ? TR_OK : open_scores(m, data, score);
}

/* Regression losses depend on the difference of margin and label only. Labels and scores are counted from the base, so that single
 * precision is enough if labels are far from 0. Gradients that have the unit of the labels also determine the least gain. */
static int labels_from_base(struct tr_trees *m)
{
    double sum[2] = {0}; /* Σ weight, Σ weight × |gradient| */
    if (!m->from_base) TR_TRY(TR_NEW(&m->from_base, m->train->rows.n));
    for (size_t i = 0; i < m->train->rows.n; i++) {
        double label = (double)m->label[i] - m->base[0], weight = m->weight ? (double)m->weight[i] : 1;
        m->from_base[i] = (float)label;
        sum[0] += weight;
        sum[1] += weight * fabs(m->loss->slope(0, label, m->shape));
    }
    m->label = m->from_base;
    m->metrics.origin = m->base[0];
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sum, 2));
    if (!m->loss->trees.quantile) m->least_gain *= pow((double)(float)(sum[1] / sum[0]), 2);
    return TR_OK;
}

static int trees_prepare(tr_worker *me, void *state)
{
    struct tr_trees *m = state;
    (void)me;
    TR_TRY(tr_bins_make(m->tr, m->train, m->number, m->weight, m->values, (size_t)m->o->bins, m->o->min_rows,
                        m->seed, &m->bins));
    bool votes = m->o->parallel == TR_PARALLEL_VOTING;
    size_t sent = tr_max_size(2 * tr_split_bytes(m), votes ? tr_votes_bytes(m->o, m->bins.columns) : 0),
           together = votes ? 1 : tr_min_size(TR_MOST_TOGETHER, (size_t)m->o->leaves / 2);
    TR_TRY(tr_trees_merge_open(m->tr, &m->bins, m->members, sent, together, &m->merge));
    if (!m->base) TR_TRY(find_base(m));
    m->least_gain = 1e-6;
    if (m->loss->labels == TR_LABELS_NUMBERS) TR_TRY(labels_from_base(m));
    TR_TRY(bin_rows(m, m->train, m->members == 1, &m->rows, &m->score));
    if (m->test) TR_TRY(bin_rows(m, m->test, true, &m->test_rows, &m->test_score));
    m->tested = m->initial;
    TR_TRY(tr_trees_divide_columns(m));
    if (!m->train->on_disk) TR_TRY(tr_bins_by_column(&m->rows));
    if (m->outputs > 1) {
        TR_TRY(TR_NEW(&m->most, m->rows.n));
        TR_TRY(TR_NEW(&m->sum, m->rows.n));
    }
    return tr_grower_open(m);
}

/* ---- a clock: a tree for each output ---- */

static int trees_compute(tr_worker *me, void *state)
{
    struct tr_trees *m = state;
    tr_gradients_begin(m);
    for (size_t k = 0; k < m->outputs; k++)
        TR_TRY(tr_trees_grow(m, k, (uint64_t)me->clock + m->initial / m->outputs));
    return TR_OK;
}

/* Adds the trees since the last call to the scores of test rows. Called before these scores are used. */
static int score_test(struct tr_trees *m)
{
    if (m->test_rows.n > 0) TR_TRY(tr_trees_score(m, &m->test_rows, m->tested, m->test_score));
    m->tested = m->forest.trees;
    return TR_OK;
}

/* Copies the scores of a row to `margin`. */
static void outputs_of(const struct tr_trees *m, const float *score, size_t apart, double *margin)
{
    for (size_t k = 0; k < m->outputs; k++) margin[k] = (double)score[k * apart];
}

/* Returns the target of tr_judge(): the index of the class of a label, NaN if training does not have it; or the label. */
static double target_of(const struct tr_trees *m, float label)
{
    if (!tr_trees_classify(m)) return (double)label;
    size_t class = tr_trees_class_of(m, label);
    return class < m->labels ? (double)class : (double)NAN;
}

/* Adds the loss of the training rows of this worker to sum[LOSS] and sum[WEIGHT]. constant: that of the initial scores, without
 * trees. */
static void judge_rows(const struct tr_trees *m, bool constant, double *sum)
{
    double margin[MOST_CLASSES];
    for (size_t k = 0; k < m->outputs; k++) margin[k] = m->from_base ? 0 : m->base[k];
    for (size_t i = m->own_first; i < m->own_first + m->own_rows; i++) {
        double weight = m->weight ? (double)m->weight[i] : 1;
        if (!constant) outputs_of(m, m->score + i, m->rows.n, margin);
        else if (m->train->has_offsets && !m->from_base)
            margin[0] = m->base[0] + offset_of(m->train, i - m->own_first);
        sum[LOSS] += weight * tr_judge(&m->metrics, margin, target_of(m, m->label[i])).loss;
        sum[WEIGHT] += weight;
    }
}

/* Adds the test rows of this worker to the metrics and their sums. constant: those of the initial scores. */
static int judge_tests(struct tr_trees *m, bool constant, struct tr_test_metrics *metrics, double *sum)
{
    double margin[MOST_CLASSES];
    const float *weight = m->test->rows.weight;
    size_t n = m->test_rows.n;
    memcpy(margin, m->base, (size_t)m->outputs * sizeof *margin);
    if (!constant) TR_TRY(score_test(m));
    for (size_t i = 0; i < n; i++) {
        if (!constant) outputs_of(m, m->test_score + i, n, margin);
        else if (m->test->has_offsets) margin[0] = m->base[0] + offset_of(m->test, i);
        if (!constant && m->from_base) margin[0] += m->base[0] + offset_of(m->test, i);
        double target = target_of(m, m->test->rows.label[i]);
        TR_TRY(tr_test_metrics_add(metrics, margin, target, weight ? (double)weight[i] : 1, sum));
    }
    return TR_OK;
}

static int trees_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_trees *m = state;
    double *sum = report->sum;
    (void)me;
    judge_rows(m, false, sum);
    if (!m->test) return TR_OK;
    return tr_test_metrics_rank(m->tr, &m->metrics, judge_tests(m, false, &m->metrics, sum + TEST),
                                sum + TEST);
}

static int trees_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_trees *m = state;
    const double *sum = report->sum;
    evaluation->objective = sum[LOSS] / sum[WEIGHT];
    if (m->test) tr_test_metrics_find(&m->metrics, sum + TEST, evaluation->metric);
    if (!isfinite(evaluation->objective))
        return tr_fail(TR_ERR_DIVERGED, "the objective is not finite: lower solve.rate");
    m->last = *evaluation;
    return TR_OK;
}

/* ---- checkpoints: the trees, and the scores of rows ---- */

static int keep_scores(const struct tr_trees *m, const tr_data *data, const char *of, float *score,
                       size_t apart, tr_snapshot *s)
{
    for (size_t k = 0; k < m->outputs && data; k++) {
        char name[64];
        snprintf(name, sizeof name, "%s_sum_%zu", of, k);
        TR_TRY(tr_data_keep(data, s, name, TR_F32, score ? score + k * apart : NULL));
    }
    return TR_OK;
}

static int trees_snapshot(tr_worker *me, void *state, tr_snapshot *s)
{
    struct tr_trees *m = state;
    (void)me;
    if (!tr_snapshot_restores(s)) TR_TRY(score_test(m));
    TR_TRY(tr_model_keep_evaluation(s, &m->last));
    TR_TRY(tr_trees_keep(m, s));
    m->tested = m->forest.trees;
    float *own = m->score ? m->score + m->own_first : NULL;
    TR_TRY(keep_scores(m, m->train, "train", own, m->rows.n, s));
    if (own && m->members > 1 && tr_snapshot_restores(s)) TR_TRY(tr_trees_gather_scores(m, own, m->rows.n));
    return keep_scores(m, m->test, "test", m->test_score, m->test_rows.n, s);
}

/* ---- training ---- */

/* Reports the traffic of histograms, per worker. With solve.parallel feature, also reports the traffic of sides: a bit per row of
 * the leaf for each split. */
enum { SENT, HISTOGRAMS, MERGES, BINS, SIDES, SIDE_BYTES, REPORTED };
static int report_traffic(const struct tr_trees *m)
{
    double workers = tr_workers(m->tr), sum[REPORTED] = {0}, groups = workers;
    char how[160] = "summed in shared memory";
    if (workers < 2) return TR_OK;
    if (tr_roles(m->tr) & TR_SLAVE) {
        groups /= (double)m->members;
        sum[HISTOGRAMS] = m->merge->done.histograms;
        sum[MERGES] = m->merge->done.merges;
        sum[SENT] = m->merge->done.bytes / fmax(sum[HISTOGRAMS], 1);
        sum[BINS] = m->merge->done.bins / fmax(sum[HISTOGRAMS], 1);
        sum[SIDES] = (double)m->sides;
        sum[SIDE_BYTES] = (double)m->side_bytes;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, REPORTED));
    for (size_t i = 0; i < REPORTED; i++) sum[i] /= workers;
    if (groups < 2) snprintf(how, sizeof how, "nothing is sent");
    else if (sum[SENT] > 0)
        snprintf(how, sizeof how,
                 "summed in %.0f reductions, %.0f bytes sent per rank and histogram; "
                 "8 x bins x (%s - 1) / %s: %.0f",
                 sum[MERGES], sum[SENT], m->members > 1 ? "groups" : "ranks",
                 m->members > 1 ? "groups" : "ranks", 8 * sum[BINS] * (groups - 1) / groups);
    tr_say(m->tr, "histograms:    %.0f of %.0f bins, %s", sum[HISTOGRAMS], sum[BINS], how);
    if (m->members > 1)
        tr_say(m->tr,
               "splits:        %.0f, %.0f bytes sent to the group per split: a bit per row of the leaf",
               sum[SIDES], sum[SIDE_BYTES] / fmax(sum[SIDES], 1));
    TR_TRY(tr_report_figure(m->tr, "histograms", sum[HISTOGRAMS]));
    TR_TRY(tr_report_figure(m->tr, "histogram_merges", sum[MERGES]));
    if (m->members > 1) TR_TRY(tr_report_figure(m->tr, "side_bytes", sum[SIDE_BYTES]));
    return tr_report_figure(m->tr, "histogram_bytes", sum[SENT]);
}

/* Warns if the model is worse than a constant on the training or the test rows. After model.init the constant of these rows is not
 * known; a constant has no ranking, on which auc depends. */
static int check_worth(struct tr_trees *m, const tr_stage *stage)
{
    const char *constant = "the best constant";
    char worse[TR_WORSE_TEXT], figure[64];
    double sum[TEST + TR_METRIC_SUMS] = {0}, value[TR_METRICS] = {0};
    struct tr_test_metrics metrics = m->metrics;
    int status = TR_OK;
    if (m->initial > 0) return TR_OK;
    metrics.area = NULL;
    if (tr_roles(m->tr) & TR_SLAVE) {
        judge_rows(m, true, sum);
        if (m->test) status = judge_tests(m, true, &metrics, sum + TEST);
    }
    TR_TRY(tr_agree(m->tr, status));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, sizeof sum / sizeof *sum));
    tr_test_metrics_find(&metrics, sum + TEST, value);
    snprintf(figure, sizeof figure, "%s of data.test", m->test ? stage->metric[0].name : "");
    /* only the scheduler knows the last evaluation */
    if (tr_is_worse("objective", m->last.objective, false, constant, sum[LOSS] / sum[WEIGHT], worse))
        tr_warn(m->tr, "warning:       %s: a lower solve.rate may help", worse);
    else if (m->test &&
             tr_is_worse(figure, m->last.metric[0], stage->metric[0].ascends, constant, value[0], worse))
        tr_warn(m->tr,
                "warning:       %s: fewer solve.epochs, solve.patience or larger model.min_rows may help",
                worse);
    return TR_OK;
}

static int trees_train(void *model)
{
    struct tr_trees *m = model;
    tr_stage stage = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)tr_job_number(m->job, "solve.epochs"),
                      .evaluate_every = (int64_t)tr_job_number(m->job, "report.every"),
                      .epochs_per_clock = 1,
                      .prepare = trees_prepare,
                      .compute = trees_compute,
                      .evaluate = trees_evaluate,
                      .summarize = trees_summarize,
                      .snapshot = trees_snapshot};
    tr_test_metrics_name(&m->metrics, m->test, &stage);
    TR_TRY(tr_run(m->tr, &stage));
    tr_say(m->tr, "model:         %zu trees of %.1f leaves", m->forest.trees,
           ((double)m->forest.nodes / fmax(1, (double)m->forest.trees) + 1) / 2);
    if (m->forest.trees > 0 && m->forest.nodes == m->forest.trees)
        tr_say(m->tr, "note:          all trees are single leaves, so the model is a constant: expected more "
                      "rows, or a "
                      "lower model.min_rows");
    TR_TRY(check_worth(m, &stage));
    TR_TRY(report_traffic(m));
    double auc, ignored[TR_METRIC_SUMS] = {0};
    if (!m->test || !tr_test_metrics_lack_auc(&m->metrics)) return TR_OK;
    int status = m->metrics.area ? TR_OK : tr_area_open(m->test_rows.n, &m->metrics.area);
    TR_TRY(tr_agree(m->tr, status == TR_OK ? judge_tests(m, false, &m->metrics, ignored) : status));
    TR_TRY(tr_area_find(m->tr, m->metrics.area, &auc));
    return tr_report_figure(m->tr, "test_auc", auc);
}

/* ================ predict ================ */

/* Values of tr_trees.output. */
enum {
    PREDICT_LABEL,
    PREDICT_PROBABILITY,
    PREDICT_MARGIN,
    PREDICT_MEAN,
    PREDICT_LEAVES,
    PREDICT_CONTRIBUTIONS
};

/* Maximum number of columns for which predict and evaluate read rows as dense arrays; above, as sparse rows. */
enum { DENSE_COLUMNS = 4096 };

static int trees_ready(void *model, tr_query *q)
{
    struct tr_trees *m = model;
    static const char *const flag[] = {
        [PREDICT_PROBABILITY] = "--probability",
        [PREDICT_MARGIN] = "--margin",
        [PREDICT_LEAVES] = "--leaves",
        [PREDICT_CONTRIBUTIONS] = "--contributions",
    };
    m->output = tr_query_command(q) == TR_EVALUATE ? PREDICT_MARGIN
                : tr_trees_classify(m)             ? PREDICT_LABEL
                                                   : PREDICT_MEAN;
    const char *given = NULL;
    for (int k = 0; k <= PREDICT_CONTRIBUTIONS; k++) {
        if (!flag[k] || !tr_query_given(q, flag[k])) continue;
        if (given) return tr_fail(TR_ERR_USAGE, "predict: unexpected %s beside %s", flag[k], given);
        given = flag[k];
        m->output = k;
    }
    if (m->output == PREDICT_PROBABILITY && !tr_trees_classify(m))
        return tr_fail(TR_ERR_USAGE, "--probability requires classes, but the model has objective %s",
                       m->loss->objective);
    if (m->output == PREDICT_CONTRIBUTIONS && m->columns > DENSE_COLUMNS)
        return tr_fail(TR_ERR_USAGE, "--contributions requires at most %d features, but the model has %llu",
                       DENSE_COLUMNS, (unsigned long long)m->columns);
    m->metrics = metrics_of(m);
    TR_TRY(tr_evaluated_open(&m->metrics, (size_t)m->labels, &m->evaluated));
    if (m->output != PREDICT_CONTRIBUTIONS)
        TR_TRY(tr_scorer_open(&m->forest, 0, (size_t)m->columns, &m->scorer));
    tr_query_rows(q, m->columns <= DENSE_COLUMNS ? TR_ROWS_DENSE : TR_ROWS_SPARSE, m->columns,
                  m->first_index);
    if (m->label_column < TR_LABEL_AUTO) tr_query_label(q, (int)m->label_column);
    if (m->output == PREDICT_LEAVES) {
        /* Number the leaves of each tree from 0 in the order of nodes, as in model.txt. */
        const struct tr_forest *f = &m->forest;
        TR_TRY(TR_NEW(&m->leaf_number, f->nodes));
        for (size_t t = 0; t < f->trees; t++) {
            char name[64];
            uint32_t leaves = 0;
            snprintf(name, sizeof name, "leaf of tree %zu", t);
            TR_TRY(tr_query_output(q, name, 0));
            for (size_t i = (size_t)f->begin[t]; i < f->begin[t + 1]; i++)
                m->leaf_number[i] = f->node[i].feature == TR_LEAF ? leaves++ : 0;
        }
        return TR_OK;
    }
    if (m->output == PREDICT_CONTRIBUTIONS) TR_TRY(tr_contributions_open(&m->forest, &m->contributions));
    /* Name the columns of predict: one per output of the model, with --contributions one per output and feature. */
    static const char *const what[] = {"label", "probability", "margin", "mean"};
    bool by_feature = m->output == PREDICT_CONTRIBUTIONS;
    size_t outputs = m->output == PREDICT_LABEL ? 1 : (size_t)m->outputs,
           each = by_feature ? (size_t)m->columns + 1 : 1;
    for (size_t k = 0; k < outputs * each; k++) {
        char name[2 * TR_LABEL_TEXT + 64], text[TR_LABEL_TEXT] = "base";
        if (by_feature && k % each < m->columns) tr_query_key_text(q, k % each, m->first_index, text);
        int n = snprintf(name, sizeof name, "%s", by_feature ? text : what[m->output]);
        if (outputs > 1) {
            tr_query_label_text(q, m->label_name[k / each], text);
            snprintf(name + n, sizeof name - (size_t)n, " of label %s", text);
        }
        TR_TRY(tr_query_output(q, name, m->output == PREDICT_LABEL ? TR_AS_LABEL : TR_SHORTEST));
    }
    return TR_OK;
}

/* Computes the margins of n rows, row by row. */
static void rows_find_margins(struct tr_trees *m, size_t n, double *margin)
{
    const struct tr_forest *f = &m->forest;
    size_t outputs = (size_t)m->outputs;
    for (size_t i = 0; i < n; i++) memcpy(margin + i * outputs, m->base, outputs * sizeof *margin);
    for (size_t t = 0; t < f->trees; t++) {
        const struct tr_node *tree = f->node + f->begin[t];
        const uint32_t *leaf = tr_scorer_leaves(m->scorer, t);
        double *to = margin + t % outputs;
        for (size_t i = 0; i < n; i++) to[i * outputs] += (double)tree[leaf[i]].number;
    }
}

static void rows_find_leaves(struct tr_trees *m, size_t n, double *out)
{
    const struct tr_forest *f = &m->forest;
    for (size_t t = 0; t < f->trees; t++) {
        const uint32_t *leaf = tr_scorer_leaves(m->scorer, t);
        for (size_t i = 0; i < n; i++) out[i * f->trees + t] = m->leaf_number[f->begin[t] + leaf[i]];
    }
}

/* A function that computes results for the n rows that the scorer has read. */
typedef void find_of_rows(struct tr_trees *m, size_t n, double *out);

/* Calls find() for all rows, TR_SIDE at a time; it computes `each` results per row. */
static void rows_for_all(struct tr_trees *m, const tr_batch *rows, find_of_rows *find, size_t each,
                         double *out)
{
    for (size_t i = 0; i < rows->n; i += TR_SIDE) {
        size_t n = tr_min_size(TR_SIDE, rows->n - i);
        tr_scorer_read(m->scorer, rows, NULL, (size_t)m->columns, i, n);
        find(m, n, out + i * each);
    }
}

static int trees_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    struct tr_trees *m = model;
    const tr_batch *rows = &records->rows;
    size_t n = rows->n, outputs = (size_t)m->outputs;
    TR_FREED double *margin = NULL;
    (void)q;
    if (m->output == PREDICT_LEAVES) rows_for_all(m, rows, rows_find_leaves, m->forest.trees, out);
    if (m->output == PREDICT_CONTRIBUTIONS) {
        const float *row = rows->dense;
        size_t columns = (size_t)m->columns;
        memset(out, 0, n * outputs * (columns + 1) * sizeof *out);
        for (size_t i = 0; i < n; i++, row += columns, out += outputs * (columns + 1)) {
            for (size_t k = 0; k < outputs; k++)
                out[k * (columns + 1) + columns] = m->base[k] + (rows->offset ? (double)rows->offset[i] : 0);
            tr_contributions_add(&m->contributions, &m->forest, outputs, columns, row, out);
        }
    }
    if (m->output == PREDICT_LEAVES || m->output == PREDICT_CONTRIBUTIONS) return TR_OK;
    TR_TRY(TR_NEW(&margin, n * outputs));
    rows_for_all(m, rows, rows_find_margins, outputs, margin);
    for (size_t i = 0; i < n; i++) {
        double *of = margin + i * outputs;
        if (rows->offset) *of += (double)rows->offset[i]; /* models with offsets have one output */
        if (m->output == PREDICT_PROBABILITY && outputs > 1)
            tr_margins_to_probabilities(m->loss, true, outputs, of);
        else if ((m->output == PREDICT_PROBABILITY || m->output == PREDICT_MEAN) && m->loss->mean)
            *of = m->loss->mean(*of);
        if (m->output == PREDICT_LABEL) out[i] = (double)m->label_name[tr_predicted_class(of, outputs)];
    }
    if (m->output != PREDICT_LABEL) memcpy(out, margin, n * outputs * sizeof *out);
    return TR_OK;
}

/* ================ evaluate ================ */

static int trees_evaluate_rows(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_trees *m = model;
    const float *label = records->rows.label;
    (void)q;
    for (size_t i = 0; i < records->rows.n; i++, out += m->outputs) {
        double weight = records->rows.weight ? (double)records->rows.weight[i] : 1;
        if (!label || isnan(label[i])) return tr_records_fail(records, i, "expected a label");
        TR_TRY(tr_evaluated_add(m->evaluated, out, target_of(m, label[i]), weight));
    }
    return TR_OK;
}

static int trees_figures(void *model, tr_query *q, uint64_t rows)
{
    const struct tr_trees *m = model;
    return tr_evaluated_figures(m->evaluated, q, rows, m->label_name);
}

/* ================ inspect ================ */

/* Prints a name. quoted: it is inside quotes of Graphviz, so quotes and backslashes are escaped. */
static int inspect_name(tr_query *q, const char *name, bool quoted)
{
    for (size_t n; quoted && *name; name += n) {
        bool special = *name == '"' || *name == '\\';
        n = special ? 1 : strcspn(name, "\"\\");
        TR_TRY(tr_print(q, "%s%.*s", special ? "\\" : "", (int)n, name));
    }
    return tr_print(q, "%s", name);
}

/* Prints the condition of a node. Rows that fulfil the condition go left. */
static int inspect_question(const struct tr_trees *m, tr_query *q, const struct tr_node *node, bool quoted)
{
    char text[TR_LABEL_TEXT];
    const char *before = "";
    tr_query_key_text(q, node->feature, m->first_index, text);
    TR_TRY(tr_print(q, "feature "));
    TR_TRY(inspect_name(q, text, quoted));
    if (!(node->flags & TR_NODE_CATEGORY))
        return tr_print(q, " <= %.6g%s", (double)node->number,
                        node->flags & TR_NODE_MISSING_LEFT ? " or missing" : "");
    TR_TRY(tr_print(q, " in {"));
    for (uint32_t value = 0; value < node->flags >> TR_NODE_SET_WORDS << 5; value++) {
        if (!tr_node_has(&m->forest, node, value)) continue;
        tr_query_value_text(q, node->feature, value, text);
        TR_TRY(tr_print(q, "%s", before));
        TR_TRY(inspect_name(q, text, quoted));
        before = ", ";
    }
    return tr_print(q, "}");
}

static int inspect_node(const struct tr_trees *m, tr_query *q, const struct tr_node *tree, size_t at,
                        int depth)
{
    const struct tr_node *node = &tree[at];
    if (node->feature == TR_LEAF) return tr_print(q, "%*sleaf %.6g\n", 2 * depth, "", (double)node->number);
    TR_TRY(tr_print(q, "%*s", 2 * depth, ""));
    TR_TRY(inspect_question(m, q, node, false));
    TR_TRY(tr_print(q, "\n"));
    TR_TRY(inspect_node(m, q, tree, node->child, depth + 1));
    return inspect_node(m, q, tree, node->child + (size_t)1, depth + 1);
}

struct importance {
    uint64_t feature, splits; /* a feature, and the number of splits by it */
    double gain;              /* total gain of these splits */
};

static int importance_compare(const void *a, const void *b)
{
    const struct importance *x = a, *y = b;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return (x->feature > y->feature) - (x->feature < y->feature);
}

static int inspect_importance(const struct tr_trees *m, tr_query *q, size_t top)
{
    TR_FREED struct importance *of = NULL;
    double all = 0;
    TR_TRY(TR_NEW(&of, (size_t)m->columns));
    for (size_t c = 0; c < m->columns; c++) of[c].feature = c;
    for (size_t i = 0; i < m->forest.nodes; i++) {
        if (m->forest.node[i].feature == TR_LEAF) continue;
        of[m->forest.node[i].feature].splits++;
        of[m->forest.node[i].feature].gain += (double)m->forest.note[i].gain;
        all += (double)m->forest.note[i].gain;
    }
    qsort(of, (size_t)m->columns, sizeof *of, importance_compare);
    TR_TRY(tr_print(q, "%12s  %10s  %10s  %8s\n", "feature", "share", "gain", "splits"));
    for (size_t c = 0; c < tr_min_size(top, (size_t)m->columns) && of[c].splits > 0; c++) {
        char name[TR_LABEL_TEXT];
        tr_query_key_text(q, of[c].feature, m->first_index, name);
        TR_TRY(tr_print(q, "%12s  %10.6f  %10.6g  %8llu\n", name, of[c].gain / all, of[c].gain,
                        (unsigned long long)of[c].splits));
    }
    return TR_OK;
}

static int trees_inspect(void *model, tr_query *q)
{
    const struct tr_trees *m = model;
    const struct tr_forest *f = &m->forest;
    long tree = tr_query_number(q, "--tree", -1);
    if (tree >= 0 && (size_t)tree >= f->trees)
        return tr_fail(TR_ERR_USAGE, "--tree %ld: the model has %zu trees, numbered from 0", tree, f->trees);
    bool graph = tr_query_given(q, "--graphviz"), all = tr_query_given(q, "--importance");
    if (graph && tree < 0) return tr_fail(TR_ERR_USAGE, "--graphviz requires --tree N");
    if (graph) {
        TR_TRY(tr_print(q, "digraph tree {\n    node [shape=box]\n"));
        for (size_t i = 0; i < ((size_t)(f->begin[tree + 1] - f->begin[tree])); i++) {
            const struct tr_node *node = &(f->node + f->begin[tree])[i];
            bool leaf = node->feature == TR_LEAF;
            TR_TRY(tr_print(q, "    %zu [label=\"", i));
            TR_TRY(leaf ? tr_print(q, "%.6g", (double)node->number) : inspect_question(m, q, node, true));
            TR_TRY(tr_print(q, leaf ? "\", shape=ellipse]\n" : "\"]\n"));
            if (leaf) continue;
            TR_TRY(tr_print(q, "    %zu -> %lu [label=yes]\n", i, (unsigned long)node->child));
            TR_TRY(tr_print(q, "    %zu -> %lu [label=no]\n", i, (unsigned long)node->child + 1));
        }
        return tr_print(q, "}\n");
    }
    if (tree >= 0) return inspect_node(m, q, f->node + f->begin[tree], 0, 0);
    if (all) return inspect_importance(m, q, (size_t)m->columns);
    tr_line(q, "objective", "%s, %.9g", m->loss->objective, m->last.objective);
    tr_line(q, "trees", "%zu, of %.1f leaves on average", f->trees,
            ((double)f->nodes / fmax(1, (double)f->trees) + 1) / 2);
    if (m->outputs > 1) tr_line(q, "outputs", "%llu, one for each label", (unsigned long long)m->outputs);
    tr_line(q, "features", "%llu, the first has index %llu", (unsigned long long)m->columns,
            (unsigned long long)m->first_index);
    tr_line(q, "trained on", "%llu rows", (unsigned long long)m->total_rows);
    TR_TRY(tr_print(q, "\n"));
    return inspect_importance(m, q, (size_t)tr_query_number(q, "--top", 10));
}

/* ================ the class ================ */

static void trees_close(void *model)
{
    struct tr_trees *m = model;
    tr_test_metrics_close(&m->metrics);
    tr_evaluated_close(&m->evaluated);
    tr_contributions_close(&m->contributions);
    tr_scorer_close(&m->scorer);
    tr_forest_free(&m->forest);
    tr_grower_close(m);
    tr_bins_free(&m->bins);
    tr_binned_free(&m->rows);
    tr_binned_free(&m->test_rows);
    TR_FREE_ALL(m->leaf_number, m->label_name, m->base, m->direction, m->values, m->group_label, m->from_base,
                m->number, m->score, m->test_score, m->most, m->sum, m->weight);
    tr_data_close(&m->test);
    tr_data_close(&m->train);
}

/* Estimates memory: the numbers and labels as read, or, after the numbers were freed, bins and data per row (the larger of the two,
 * because their times differ); and histograms. */
static void trees_estimate(const tr_job *job, const void *options, const tr_data_size *size,
                           tr_memory *memory)
{
    const struct tr_trees_options *o = options;
    bool csv = strcmp(size->format, "csv") == 0,
         disk = tr_job_is(job, "data.storage", "disk") || tr_job_is(job, "data.storage", "memory_disk");
    double rows = size->records, numbers = rows * size->features, blocks = 50e6 * size->workers, column = 40,
           read = csv ? 4 * numbers + 12 * rows : 1.2 * size->text,
           trained = csv ? numbers + 20 * rows : 0.6 * size->text + 28 * rows;
    double weights = *o->class_weights || tr_job_given(job, "data.weight") ? 8 * rows : 0;
    /* `bins` is the number of bins of all columns. Rare sparse columns have one bin; no column has more bins than numbers. */
    double most = fmin((double)o->bins, fmin(rows, csv ? rows : size->values + 1)) + 1,
           kept = o->min_rows < TR_FREQUENT_ROWS ? size->occurring : size->frequent,
           bins = csv ? most * size->features : size->features + fmin((most - 1) * kept, size->text / 9);
    double sums = 8 * bins, histograms = sums * (double)o->leaves,
           together = fmin(fmin(TR_MOST_TOGETHER, (double)(o->leaves / 2)) * sums, TR_BYTES_TOGETHER);
    memory->rows = ((disk ? blocks : 0) + trained + weights) / size->workers;
    memory->worker = fmax(histograms, disk ? 0 : read - trained) / size->workers + column * size->features;
    if (size->node_workers == size->workers) memory->node = size->workers * sums;
    else memory->worker += fmax(sums, 2 * together) + together / size->workers;
    memory->server = 0;
}

#define AT(field) offsetof(struct tr_trees_options, field)

static const tr_option options[] = {
    {"model.objective", TR_KIND_CHOICE, AT(objective), "auto", .words = tr_loss_objectives,
     .help = "loss that trees minimise; auto = logistic for two labels, softmax for words and few integers "
             "as model.type auto, "
             "otherwise squared"},
    {"model.quantile", TR_KIND_REAL, AT(quantile), "0.5", .above = true, .most = 1,
     .help = "quantile to predict with model.objective quantile; 0.5 = the median"},
    {"model.delta", TR_KIND_REAL, AT(delta), "auto", .above = true, .words = TR_WORDS("auto"),
     .help = "huber: smaller errors are squared, larger ones count linearly; "
             "auto = the median absolute deviation of the labels"},
    {"model.power", TR_KIND_REAL, AT(power), "1.5", .least = 1.01, .most = 1.99,
     .help = "tweedie: the variance is proportional to this power of the mean; 1 would be poisson, 2 gamma"},
    {"model.class_weights", TR_KIND_TEXT, AT(class_weights), "",
     .help = "weight of rows by label: balanced = equal total weight of all labels, or label:weight pairs, "
             "«1:5 -1:0.5»"},
    {"model.monotone", TR_KIND_PAIRS, AT(monotone), "",
     .help = "columns with which the prediction may only rise or fall: {size: up, age: down}"},
    {"model.init", TR_KIND_TEXT, AT(init), "",
     .help = "folder of a run, or its model.h5: training continues from these trees; the columns must be the "
             "same, categories may have new values; task NAME: of another task of the job"},
    {"model.leaves", TR_KIND_INTEGER, AT(leaves), "31", .least = 2, .most = 65536,
     .help = "maximum number of leaves of a tree"},
    {"model.depth", TR_KIND_INTEGER, AT(depth), "0", .most = 1000,
     .help = "maximum number of splits above a leaf; 0 = no limit"},
    {"model.bins", TR_KIND_INTEGER, AT(bins), "255", .least = 2, .most = 255,
     .help = "maximum number of bins of a column, with about the same number of rows each"},
    {"model.min_rows", TR_KIND_INTEGER, AT(min_rows), "20", .most = INT32_MAX,
     .help = "minimum number of rows of a leaf, measured by second derivatives; columns in which fewer rows "
             "differ from the most frequent number are ignored"},
    {"model.min_weight", TR_KIND_REAL, AT(min_weight), "1e-3",
     .help = "minimum sum of second derivatives of a leaf"},
    {"model.l2", TR_KIND_REAL, AT(l2), "auto", .words = TR_WORDS("auto"),
     .help = "L2 regularization of the values of leaves; auto = 0.1 for softmax, otherwise 1"},
    {"model.gamma", TR_KIND_REAL, AT(gamma), "0", .help = "minimum gain of a split"},
    {"model.category_values", TR_KIND_INTEGER, AT(category_values), "8", .least = 1, .most = TR_SPLIT_VALUES,
     .help =
         "maximum number of values on the smaller side of a split, for categories with more than 4 values"},
    {"model.category_rows", TR_KIND_REAL, AT(category_rows), "100",
     .help = "minimum number of rows on each side of a split by a category"},
    {"model.category_l2", TR_KIND_REAL, AT(category_l2), "10",
     .help = "added to model.l2 for splits by categories with more than 4 values"},
    {"model.category_smoothing", TR_KIND_REAL, AT(category_smoothing), "5",
     .help = "added to the sum of second derivatives when values of a category are sorted by mean gradient; "
             "values with fewer rows are ignored"},
    {"solve.rate", TR_KIND_REAL, AT(rate), "auto", .above = true, .most = 1, .words = TR_WORDS("auto"),
     .help = "learning rate: factor of the values of leaves; auto grows with the rows per epoch, from 0.1 to "
             "0.2 for classes and to 0.3 for model.objective squared; others have 0.1"},
    {"solve.decay", TR_KIND_REAL, AT(decay), "0", .most = 1,
     .help = "decrease of solve.rate per round, as a share"},
    {"solve.row_share", TR_KIND_REAL, AT(rows), "1", .above = true, .most = 1,
     .help = "share of the rows that each tree is grown on, drawn at random"},
    {"solve.top_share", TR_KIND_REAL, AT(top), "0", .most = 1,
     .help = "share of the rows with the largest gradients that are always drawn; solve.row_share applies to "
             "the others, which get a larger weight (GOSS)"},
    {"solve.column_share", TR_KIND_REAL, AT(columns), "1", .above = true, .most = 1,
     .help = "share of the columns that each tree may use, drawn at random"},
    {"solve.parallel", TR_KIND_CHOICE, AT(parallel), "data", .words = TR_WORDS("data", "feature", "voting"),
     .help = "data = rows are distributed, and histograms are summed; feature = the members of a group "
             "(ranks.groups, ranks.group_size) divide the columns and send a bit per row for each split, "
             "between groups as data, with the same trees; voting = as data, but only the columns with most "
             "votes are summed, for wide tables"},
    {"solve.votes", TR_KIND_INTEGER, AT(votes), "20", .least = 1, .most = 1000000,
     .help =
         "solve.parallel voting: number of columns that each worker votes for; twice this number is summed; "
         "with all columns the trees are those of data"},
    {"solve.gradient_bits", TR_KIND_INTEGER, AT(bits), "5", .least = 3, .most = 10,
     .help = "bits of the gradients that splits are found with, rounded at random; the values of leaves are "
             "exact"},
    {.name = NULL},
};

static const tr_method methods[] = {
    {"boost", "every clock grows a tree, or one per class, on the residuals of the earlier ones",
     .in_step = true},
    {.name = NULL},
};

static const tr_rule rules[] = {
    {"data.label", .value = "auto"},
    {"solve.epochs", .value = "100"},
    {"report.every", .value = "10"},
    {"data.partition", .unused = true},
    {"data.vocabulary", .unused = true},
    {"data.duplicates", .unused = true},
    {"data.scale", .unused = true},
    {"sync.*", .unused = true},
    {"table.*", .unused = true},
    {"local.*", .unused = true},
    {"data.hash", .unused = true},
    {"solve.target_gap", .unused = true},
    {.key = NULL},
};

static const tr_flag flags[] = {
    {"--probability", NULL, TR_PREDICT,
     .help = "classifiers: the probability of each class, or of the positive one of two"},
    {"--margin", NULL, TR_PREDICT, .help = "the sums of the trees, without a link function"},
    {"--leaves", NULL, TR_PREDICT, .help = "the index of the leaf that the row reaches in each tree"},
    {"--contributions", NULL, TR_PREDICT,
     .help =
         "the contribution of each feature to the margin (TreeSHAP), and the base: they sum to the margin"},
    {"--top", "N", TR_INSPECT, 0, 100000, "the N most important features"},
    {"--tree", "N", TR_INSPECT, 0, INT32_MAX, "tree N, from 0, as text"},
    {"--graphviz", NULL, TR_INSPECT | TR_ALONE, .help = "with --tree: as a graph for dot"},
    {"--importance", NULL, TR_INSPECT | TR_ALONE,
     .help = "only the importance of features in the trees, by gain"},
    {.name = NULL},
};

const tr_model_class tr_trees_class = {
    .abi = TR_MODEL_ABI,
    .name = "trees",
    .types = TR_WORDS("trees"),
    .help = "gradient boosted trees",
    .predicts = "the label, or the expected number",
    .evaluates = "all metrics of report.metric that apply to the model, the confusion matrix, and precision "
                 "and recall of each class",
    .noun = "trees",
    .format = "trireme-trees",
    .format_version = 1,
    .data_formats = TR_WORDS("csv", "libsvm", "hdf5"),
    .options_size = sizeof(struct tr_trees_options),
    .options = options,
    .methods = methods,
    .rules = rules,
    .flags = flags,
    .model_size = sizeof(struct tr_trees),
    .check = trees_check,
    .open = trees_open,
    .train = trees_train,
    .fields = tr_trees_fields,
    .close = trees_close,
    .memory = trees_estimate,
    .ready = trees_ready,
    .predict = trees_predict,
    .evaluate = trees_evaluate_rows,
    .figures = trees_figures,
    .inspect = trees_inspect,
};
