/* A user's class of models: softmax regression. Built and used by test_plugin.sh, which also builds it with a fault.
 *
 * Rows of LIBSVM text with the labels 0 .. model.classes - 1. A key of the table is a column, as wide as there are classes;
 * the last is the constant. Gradient descent, one step a clock.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

struct options {
    uint64_t classes;
    double rate;
};

struct softmax {
    uint64_t classes, columns, first_index; /* of the data file; number of its first column */
    double *weight;                         /* (columns + 1) × classes; NULL in training */
    tr_context *tr;
    tr_data *data;
    tr_table *table;
    tr_view *view;
    double rate, loss;
    uint64_t right, wrong; /* of evaluate */
};

/* Probabilities of a row's classes. Weights of column c are weight[c × classes], the constant's the last. */
static void find_probabilities(const tr_batch *rows, size_t i, const double *weight, size_t constant,
                               size_t classes, double *p)
{
    double most = -INFINITY, sum = 0;
    memcpy(p, weight + constant * classes, classes * sizeof *p);
    for (uint64_t e = rows->begin[i]; e < rows->begin[i + 1]; e++)
        for (size_t k = 0; k < classes; k++)
            p[k] += (rows->value ? (double)rows->value[e] : 1) * weight[rows->column[e] * classes + k];
    for (size_t k = 0; k < classes; k++) most = fmax(most, p[k]);
    for (size_t k = 0; k < classes; k++) sum += p[k] = exp(p[k] - most);
    for (size_t k = 0; k < classes; k++) p[k] /= sum;
}

/* ---- training ---- */

static int open_model(tr_context *tr, const void *options, void *model)
{
    const struct options *o = options;
    struct softmax *m = model;
#ifdef FAIL_ON_ONE
    if (tr_rank(tr) == 1) return tr_fail(TR_ERR_CONFIG, "softmax: one rank does not like it");
#endif
    m->tr = tr;
    m->classes = o->classes;
    m->rate = o->rate;
    TR_TRY(tr_data_open(tr, TR_DATA_TRAIN, NULL, &m->data));
    TR_TRY(tr_data_describe(m->data, "training data"));
    m->columns = m->data->columns;
    m->first_index = m->data->first_index;
    for (size_t i = 0; i < m->data->rows.n; i++)
        if (!(m->data->rows.label[i] >= 0 && m->data->rows.label[i] < (float)m->classes))
            return tr_fail(TR_ERR_DATA, "softmax: label %g, expected 0 to %g", (double)m->data->rows.label[i],
                           (double)m->classes - 1);
    return tr_table_create(tr, "weights", TR_F64, m->columns + 1, m->classes, &m->table);
}

static int prepare(tr_worker *me, void *state)
{
    struct softmax *m = state;
    tr_key *keys;
    size_t n = m->data->n_keys;
    (void)me;
    TR_TRY(TR_NEW(&keys, n + 1));
    if (n > 0) memcpy(keys, m->data->keys, n * sizeof *keys);
    keys[n] = m->columns;
    int status = tr_view_open(m->table, keys, n + 1, TR_VIEW_UPDATE, &m->view);
    free(keys);
    return status;
}

static int compute(tr_worker *me, void *state)
{
    struct softmax *m = state;
    const tr_batch *rows = &m->data->rows;
    size_t classes = (size_t)m->classes, constant = m->data->n_keys;
    double *delta, *p, step = m->rate / (double)m->data->total_rows;
    (void)me;
    TR_TRY(TR_NEW(&p, classes));
    TR_TRY(tr_view_pull(m->view));
    delta = m->view->delta;
    for (size_t i = 0; i < rows->n; i++) {
        find_probabilities(rows, i, m->view->value, constant, classes, p);
        p[(size_t)rows->label[i]] -= 1;
        for (size_t k = 0; k < classes; k++) delta[constant * classes + k] -= step * p[k];
        for (uint64_t e = rows->begin[i]; e < rows->begin[i + 1]; e++)
            for (size_t k = 0; k < classes; k++)
                delta[rows->column[e] * classes + k] -=
                    step * p[k] * (rows->value ? (double)rows->value[e] : 1);
    }
    free(p);
    return tr_view_push(m->view);
}

static int evaluate_clock(tr_worker *me, void *state, tr_report *report)
{
    struct softmax *m = state;
    const tr_batch *rows = &m->data->rows;
    double *p;
    (void)me;
    TR_TRY(TR_NEW(&p, (size_t)m->classes));
    TR_TRY(tr_view_pull(m->view));
    for (size_t i = 0; i < rows->n; i++) {
        find_probabilities(rows, i, m->view->value, m->data->n_keys, (size_t)m->classes, p);
        report->sum[0] -= log(p[(size_t)rows->label[i]]);
    }
    free(p);
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    struct softmax *m = state;
    m->loss = evaluation->objective = sums->sum[0] / (double)m->data->total_rows;
    return TR_OK;
}

static int snapshot(tr_worker *me, void *state, tr_snapshot *s)
{
    (void)me;
    return tr_snapshot_common(s, "loss", TR_F64, 1, &((struct softmax *)state)->loss);
}

static int train(void *model)
{
    struct softmax *m = model;
    const tr_job *job = tr_context_job(m->tr);
    tr_stage stage = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)tr_job_number(job, "solve.epochs"),
                      .evaluate_every = (int64_t)tr_job_number(job, "report.every"),
                      .epochs_per_clock = 1,
                      .objective_name = "loss",
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate_clock,
                      .summarize = summarize,
                      .snapshot = snapshot};
    return tr_run(m->tr, &stage);
}

static int fields(void *model, tr_fields *f)
{
    struct softmax *m = model;
    if (!tr_fields_read(f)) TR_TRY(tr_model_tell(m->tr, 1, &m->loss));
    TR_TRY(tr_field_count(f, "classes", &m->classes));
    TR_TRY(tr_field_count(f, "columns", &m->columns));
    TR_TRY(tr_field_count(f, "first_index", &m->first_index));
    TR_TRY(tr_field_real(f, "loss", &m->loss));
#ifdef FIELD_TWICE
    TR_TRY(tr_field_count(f, "loss", &m->classes));
#endif
    return tr_field_table(f, "weights", TR_FIELD_F64, m->table, 0, m->columns + 1, m->classes,
                          "a row is a feature, the last the constant, a column a class", &m->weight);
}

static void close_model(void *model)
{
    struct softmax *m = model;
    tr_view_close(&m->view);
    tr_data_close(&m->data);
    free(m->weight);
}

/* ---- predicting ---- */

static int ready(void *model, tr_query *q)
{
    struct softmax *m = model;
    tr_query_rows(q, TR_ROWS_SPARSE, m->columns, m->first_index);
    TR_TRY(tr_query_output(q, "class", 0));
    return tr_query_output(q, "probability", 6);
}

static int predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    struct softmax *m = model;
    double *p;
    (void)q;
    TR_TRY(TR_NEW(&p, (size_t)m->classes));
    for (size_t i = 0; i < records->rows.n; i++) {
        size_t best = 0;
        find_probabilities(&records->rows, i, m->weight, (size_t)m->columns, (size_t)m->classes, p);
        for (size_t k = 1; k < m->classes; k++)
            if (p[k] > p[best]) best = k;
        out[2 * i] = (double)best;
        out[2 * i + 1] = p[best];
    }
    free(p);
    return TR_OK;
}

static int evaluate(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct softmax *m = model;
    (void)q;
    for (size_t i = 0; i < records->rows.n; i++)
        if (out[2 * i] == (double)records->rows.label[i]) m->right++;
        else m->wrong++;
    return TR_OK;
}

static int figures(void *model, tr_query *q, uint64_t rows)
{
    const struct softmax *m = model;
    double accuracy = (double)m->right / (double)rows;
    TR_TRY(tr_figure(q, "rows", (double)rows, "%.0f", (double)rows));
    return tr_figure(q, "accuracy", accuracy, "%.6f", accuracy);
}

/* ---- the class ---- */

static const tr_option options[] = {
    {"model.classes", TR_KIND_INTEGER, offsetof(struct options, classes), "2", .least = 2, .most = 1000,
     .help = "how many labels there are, from 0 on"},
#ifdef NO_KIND
    {.name = "model.more", .by_default = "", .help = "of no kind"},
#endif
#ifdef TWICE
    {"model.classes", TR_KIND_INTEGER, offsetof(struct options, classes), "2", .help = "once more"},
#endif
    {"solve.rate", TR_KIND_REAL, offsetof(struct options, rate), "1", .above = true, .may_change = true,
     .help = "size of a step"},
    {.name = NULL},
};
static const tr_method methods[] = {{.name = "descent", .help = "gradient descent"}, {.name = NULL}};

#ifdef NO_SYMBOL
#define tr_plugin another_name
#endif
#ifdef ANOTHER_BUILD
const int tr_another_build = 1;
#endif
#ifdef MARK
/* Shows that code of the plugin has run. */
__attribute__((constructor)) static void mark(void)
{
    FILE *file = fopen(MARK, "w");
    if (file) fclose(file);
}
#endif
#ifdef OTHER_ABI
#define ABI (TR_MODEL_ABI + 1)
#else
#define ABI TR_MODEL_ABI
#endif

const tr_model_class tr_plugin = {
    .abi = ABI,
    .name = "softmax",
    .types = TR_WORDS("softmax"),
    .help = "softmax regression",
    .noun = "a softmax regression",
    .format = "test-softmax",
    .format_version = 1,
    .data_formats = TR_WORDS("libsvm"),
    .options_size = sizeof(struct options),
    .options = options,
    .methods = methods,
    .model_size = sizeof(struct softmax),
    .open = open_model,
    .train = train,
    .fields = fields,
    .close = close_model,
    .ready = ready,
    .predict = predict,
    .evaluate = evaluate,
    .figures = figures,
};
