/* 6. A user-defined model class: factorization machines, as a plugin.
 *
 *   cc -shared -fPIC 6-fm.c -o libfm.so $(pkg-config --cflags --libs trireme) -lm
 *   trireme train fm.yaml model.plugin=./libfm.so
 *   trireme predict runs/fm clicks.svm --plugin ./libfm.so     (evaluate and inspect in the same way)
 *
 * A model class is one struct, `tr_plugin` at the end of this file: it lists job keys, methods, the members of a model, and
 * functions. With it `trireme train` (progress, checkpoints, restarts), help, model.h5, predict, evaluate and inspect work.
 *
 * The margin of a row x is w_0 + Σ w_i x_i + Σ_(i<j) <v_i, v_j> x_i x_j. The loss for a label y of -1 or 1 is
 * log(1 + exp(-y margin)). Each column i has a weight w_i and a vector v_i of model.rank numbers; both are stored in one key of the
 * table, which has 1 + rank elements. The constant w_0 is the key after the last column. In each clock a worker pushes the gradient
 * of one mini-batch, and the servers make AdaGrad steps. (Rendle, Factorization machines, ICDM 2010, equations 1, 4 and 5.)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

struct options {
    uint64_t rank, batch;
    double rate, l2;
};

struct fm {
    /* members of model.h5 */
    uint64_t columns, first_index, rank;
    double positive, negative; /* the two labels */
    double *weight; /* (columns + 1) × (1 + rank) numbers of a model that was read; NULL during training */
    /* training */
    const struct options *options;
    tr_context *tr;
    tr_data *data;
    tr_table *table;
    tr_view *view;
    double *sums; /* Σ_i v_i x_i of a row: `rank` numbers */
    int64_t clocks_per_pass;
    int64_t pass,
        batches; /* the current pass over the rows, and the number of its batches that this worker has used */
    /* evaluation */
    uint64_t right; /* number of correct predictions */
    double loss;    /* sum of the losses */
};

/* ---- the model ---- */

static double value_of(const tr_batch *rows, uint64_t e)
{
    return rows->value ? (double)rows->value[e] : 1;
}

/* Returns the margin of row i; `constant` is the index of w_0. Sets m->sums for add_gradient(). */
static double margin_of(const struct fm *m, const tr_batch *rows, size_t i, const double *weight,
                        size_t constant)
{
    size_t width = 1 + (size_t)m->rank;
    double margin = weight[constant * width], squares = 0;
    memset(m->sums, 0, m->rank * sizeof *m->sums);
    for (uint64_t e = rows->begin[i]; e < rows->begin[i + 1]; e++) {
        const double *w = weight + rows->column[e] * width;
        double x = value_of(rows, e);
        margin += w[0] * x;
        for (size_t f = 0; f < m->rank; f++) {
            m->sums[f] += w[1 + f] * x;
            squares += w[1 + f] * w[1 + f] * x * x;
        }
    }
    for (size_t f = 0; f < m->rank; f++) margin += 0.5 * m->sums[f] * m->sums[f];
    return margin - 0.5 * squares;
}

/* Adds slope × the gradient of the margin of row i. margin_of() must have been called for this row last. */
static void add_gradient(const struct fm *m, const tr_batch *rows, size_t i, const double *weight,
                         size_t constant, double slope, double *gradient)
{
    size_t width = 1 + (size_t)m->rank;
    gradient[constant * width] += slope;
    for (uint64_t e = rows->begin[i]; e < rows->begin[i + 1]; e++) {
        const double *w = weight + rows->column[e] * width;
        double *g = gradient + rows->column[e] * width, x = value_of(rows, e);
        g[0] += slope * x;
        for (size_t f = 0; f < m->rank; f++) g[1 + f] += slope * x * (m->sums[f] - w[1 + f] * x);
    }
}

static double sign_of(const struct fm *m, const tr_batch *rows, size_t i)
{
    return (double)rows->label[i] == m->positive ? 1 : -1;
}

/* ---- training ---- */

static int open_model(tr_context *tr, const void *options, void *model)
{
    struct fm *m = model;
    m->tr = tr;
    m->options = options;
    m->rank = m->options->rank;
    TR_TRY(tr_data_open(tr, TR_DATA_TRAIN, NULL, &m->data));
    TR_TRY(tr_data_describe(m->data, "training data"));
    if (m->data->labels != 2)
        return tr_fail(TR_ERR_DATA, "a factorization machine needs labels of two kinds, found %zu",
                       m->data->labels);
    m->negative = (double)m->data->label[0];
    m->positive = (double)m->data->label[1];
    m->columns = m->data->columns;
    m->first_index = m->data->first_index;
    m->pass = -1;
    double together = (double)m->options->batch * tr_workers(tr);
    m->clocks_per_pass = (int64_t)fmax(1, ceil((double)m->data->total_rows / together));
    /* random initial values, because the gradient of factors that are all 0 is 0 */
    tr_table_options start = {.initial = TR_INITIAL_NORMAL, .scale = 0.01, .seed = 6};
    TR_TRY(tr_table_create_with(tr, "weights", TR_F64, m->columns + 1, 1 + m->rank, &start, &m->table));
    tr_optimizer adagrad = {.kind = TR_ADAGRAD, .rate = m->options->rate, .l2 = m->options->l2};
    return tr_table_use(m->table, "adagrad", &adagrad);
}

static int prepare(tr_worker *me, void *model)
{
    (void)me;
    struct fm *m = model;
    size_t n = m->data->n_keys;
    tr_key *keys;
    TR_TRY(TR_NEW(&m->sums, m->rank));
    TR_TRY(TR_NEW(&keys, n + 1));
    if (n > 0) memcpy(keys, m->data->keys, n * sizeof *keys);
    keys[n] = m->columns; /* the constant */
    int status = tr_view_open(m->table, keys, n + 1, TR_VIEW_UPDATE, &m->view);
    free(keys);
    return status;
}

/* Finds the mini-batch of this clock. It depends on the clock only, so that a resumed run uses the same batches. Sets *found to
 * false if this worker has no more rows in this pass. */
static int next_batch(struct fm *m, const tr_worker *me, tr_batch *rows, bool *found)
{
    int64_t pass = me->clock / m->clocks_per_pass, number = me->clock % m->clocks_per_pass;
    if (pass != m->pass) {
        TR_TRY(tr_data_shuffle(m->data, me, (size_t)m->options->batch, (uint64_t)pass));
        m->pass = pass;
        m->batches = 0;
    }
    for (*found = true; *found && m->batches <= number; m->batches++) *found = tr_data_next(m->data, rows);
    return TR_OK;
}

static int compute(tr_worker *me, void *model)
{
    struct fm *m = model;
    tr_batch rows;
    bool found;
    TR_TRY(tr_view_pull(m->view));
    TR_TRY(next_batch(m, me, &rows, &found));
    double rows_of_all = (double)m->options->batch * me->workers;
    for (size_t i = 0; found && i < rows.n; i++) {
        double y = sign_of(m, &rows, i), margin = margin_of(m, &rows, i, m->view->value, m->data->n_keys);
        double slope = -y / (1 + exp(y * margin));
        add_gradient(m, &rows, i, m->view->value, m->data->n_keys, slope / rows_of_all, m->view->delta);
    }
    return tr_view_push(m->view);
}

static int evaluate_clock(tr_worker *me, void *model, tr_report *report)
{
    (void)me;
    struct fm *m = model;
    const tr_batch *rows = &m->data->rows;
    TR_TRY(tr_view_pull(m->view));
    for (size_t i = 0; i < rows->n; i++) {
        double margin = sign_of(m, rows, i) * margin_of(m, rows, i, m->view->value, m->data->n_keys);
        report->sum[0] += log1p(exp(-margin));
        report->sum[1] += margin > 0;
    }
    return TR_OK;
}

static int summarize(void *model, const tr_report *sums, tr_evaluation *evaluation)
{
    struct fm *m = model;
    evaluation->objective = sums->sum[0] / (double)m->data->total_rows;
    evaluation->metric[0] = sums->sum[1] / (double)m->data->total_rows;
    return isfinite(evaluation->objective) ? TR_OK : tr_fail(TR_ERR_DIVERGED, "the objective is not finite");
}

/* Checkpoints contain the table and the state of AdaGrad without a call; all other state depends on the clock only. */
static int snapshot(tr_worker *me, void *model, tr_snapshot *s)
{
    (void)me;
    (void)model;
    (void)s;
    return TR_OK;
}

static int train(void *model)
{
    struct fm *m = model;
    const tr_job *job = tr_context_job(m->tr);
    tr_stage stage = {.name = "train",
                      .state = m,
                      .clocks = m->clocks_per_pass * (int64_t)tr_job_number(job, "solve.epochs"),
                      .evaluate_every = m->clocks_per_pass * (int64_t)tr_job_number(job, "report.every"),
                      .epochs_per_clock = 1 / (double)m->clocks_per_pass,
                      .metric = {{"accuracy", true}},
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate_clock,
                      .summarize = summarize,
                      .snapshot = snapshot};
    return tr_run(m->tr, &stage);
}

static void close_model(void *model)
{
    struct fm *m = model;
    tr_view_close(&m->view);
    tr_data_close(&m->data);
    free(m->sums);
    free(m->weight);
}

/* ---- members of a model: written after training, read by predict, evaluate and inspect ---- */

static int fields(void *model, tr_fields *f)
{
    struct fm *m = model;
    TR_TRY(tr_field_count(f, "columns", &m->columns));
    TR_TRY(tr_field_count(f, "first_index", &m->first_index));
    TR_TRY(tr_field_count(f, "rank", &m->rank));
    TR_TRY(tr_field_real(f, "label_positive", &m->positive));
    TR_TRY(tr_field_real(f, "label_negative", &m->negative));
    return tr_field_table(f, "weights", TR_FIELD_F64, m->table, 0, m->columns + 1, 1 + m->rank,
                          "of each column its weight and its factors; the last row is the constant",
                          &m->weight);
}

/* ---- predict and evaluate ---- */

static int ready(void *model, tr_query *query)
{
    struct fm *m = model;
    TR_TRY(TR_NEW(&m->sums, m->rank));
    tr_query_rows(query, TR_ROWS_SPARSE, m->columns, m->first_index);
    return tr_query_output(query, "probability", 6);
}

static int predict(void *model, tr_query *query, const tr_records *records, double *out)
{
    (void)query;
    struct fm *m = model;
    for (size_t i = 0; i < records->rows.n; i++)
        out[i] = 1 / (1 + exp(-margin_of(m, &records->rows, i, m->weight, (size_t)m->columns)));
    return TR_OK;
}

static int evaluate(void *model, tr_query *query, const tr_records *records, const double *out)
{
    (void)query;
    struct fm *m = model;
    for (size_t i = 0; i < records->rows.n; i++) {
        bool positive = sign_of(m, &records->rows, i) > 0;
        m->right += (out[i] > 0.5) == positive;
        m->loss -= log(positive ? out[i] : 1 - out[i]);
    }
    return TR_OK;
}

static int figures(void *model, tr_query *query, uint64_t rows)
{
    struct fm *m = model;
    double accuracy = (double)m->right / (double)rows, loss = m->loss / (double)rows;
    TR_TRY(tr_figure(query, "accuracy", accuracy, "%.6f", accuracy));
    return tr_figure(query, "log_loss", loss, "%.6f", loss);
}

/* ---- the model class ---- */

#define AT(field) offsetof(struct options, field)

static const tr_option options[] = {
    {"model.rank", TR_KIND_INTEGER, AT(rank), "8", .least = 1, .most = 1024,
     .help = "factors of each column"},
    {"model.l2", TR_KIND_REAL, AT(l2), "1e-5", .help = "weight decay"},
    {"solve.batch", TR_KIND_INTEGER, AT(batch), "500", .least = 1, .help = "rows of a worker in a clock"},
    {"solve.rate", TR_KIND_REAL, AT(rate), "0.1", .above = true, .may_change = true, .help = "of AdaGrad"},
    {.name = NULL},
};

static const tr_method methods[] = {{.name = "adagrad", .help = "mini-batches, stepped by the servers"},
                                    {.name = NULL}};

const tr_model_class tr_plugin = {
    .abi = TR_MODEL_ABI,
    .name = "fm",
    .types = TR_WORDS("fm"),
    .help = "a factorization machine: weights of features, and of their pairs",
    .noun = "a factorization machine",
    .format = "course-fm",
    .format_version = 1,
    .data_formats = TR_WORDS("libsvm"),
    .options_size = sizeof(struct options),
    .options = options,
    .methods = methods,
    .model_size = sizeof(struct fm),
    .open = open_model,
    .train = train,
    .fields = fields,
    .close = close_model,
    .ready = ready,
    .predict = predict,
    .evaluate = evaluate,
    .figures = figures,
};
