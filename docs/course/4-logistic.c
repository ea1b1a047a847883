/* 4. Logistic regression.
 *
 *   mpirun -n 4 ./4-logistic clicks.yaml
 *   mpirun -n 4 ./4-logistic clicks.yaml solve.rate=4 ranks.layout=dedicated
 *
 * Gradient descent on w in F(w) = mean of log(1 + exp(-y x·w)). Each worker reads a part of the data. Column numbers in its rows
 * are indices of data->keys, so that a view of these keys can be used with the rows directly. The results of evaluate() and
 * summarize() are printed during the run, and written to metrics.csv and summary.json in the output folder.
 *
 * The program defines a job key, solve.rate, and a model file: the struct `class` below describes both. Keys of Trireme, such as
 * solve.epochs, are read by name. A key that neither Trireme nor the program defines is an error, as is a key that `rules` declares
 * as unused.
 */
#include <math.h>
#include <trireme/trireme.h>

struct options {
    double rate;
};

struct logistic {
    const struct options *options;
    tr_data *data;
    tr_table *table;
    tr_view *w;
};

static double sign_of(const tr_batch *rows, size_t i)
{
    return rows->label[i] > 0 ? 1 : -1;
}

static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct logistic *lr = state;
    return tr_view_open(lr->table, lr->data->keys, lr->data->n_keys, TR_VIEW_UPDATE, &lr->w);
}

static int compute(tr_worker *me, void *state)
{
    (void)me;
    struct logistic *lr = state;
    const tr_batch *rows = &lr->data->rows;
    double step = lr->options->rate / (double)lr->data->total_rows;
    TR_TRY(tr_view_pull(lr->w));
    for (size_t i = 0; i < rows->n; i++) {
        double y = sign_of(rows, i), slope = -y / (1 + exp(y * tr_row_dot(rows, i, lr->w->value)));
        tr_row_add(rows, i, (float)(-step * slope), lr->w->delta);
    }
    return tr_view_push(lr->w);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct logistic *lr = state;
    const tr_batch *rows = &lr->data->rows;
    TR_TRY(tr_view_pull(lr->w));
    for (size_t i = 0; i < rows->n; i++) {
        double margin = sign_of(rows, i) * tr_row_dot(rows, i, lr->w->value);
        report->sum[0] += log1p(exp(-margin));
        report->sum[1] += margin > 0;
    }
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    const struct logistic *lr = state;
    evaluation->objective = sums->sum[0] / (double)lr->data->total_rows;
    evaluation->metric[0] = sums->sum[1] / (double)lr->data->total_rows;
    return TR_OK;
}

/* Lists the members of model.h5. */
static int fields(void *model, tr_fields *f)
{
    struct logistic *lr = model;
    return tr_field_table(f, "w", TR_FIELD_F32, lr->table, 0, lr->data->columns, 0, "weights of the features",
                          NULL);
}

static const tr_option options[] = {{"solve.rate", TR_KIND_REAL, offsetof(struct options, rate), "1",
                                     .above = true, .may_change = true, .help = "step size"},
                                    {0}};
static const tr_method methods[] = {{.name = "descent", .help = "gradient descent"}, {0}};
static const tr_rule rules[] = {{.key = "data.test", .unused = true}, {0}};
static const tr_model_class class = {.abi = TR_MODEL_ABI,
                                     .name = "course-logistic",
                                     .types = TR_WORDS("course-logistic"),
                                     .help = "logistic regression by gradient descent",
                                     .noun = "the course's logistic regression",
                                     .format = "course-logistic",
                                     .format_version = 1,
                                     .data_formats = TR_WORDS("libsvm"),
                                     .options_size = sizeof(struct options),
                                     .options = options,
                                     .methods = methods,
                                     .rules = rules,
                                     .fields = fields};

int main(int argc, char **argv)
{
    struct logistic lr = {0};
    tr_context *tr;
    TR_TRY(tr_open_as(&argc, &argv, &class, &tr));
    uint64_t epochs = 0;
    lr.options = tr_options(tr);
    int status = tr_job_integer(tr_context_job(tr), "solve.epochs", &epochs);
    if (status == TR_OK) status = tr_data_open(tr, TR_DATA_TRAIN, NULL, &lr.data);
    if (status == TR_OK) status = tr_table_create(tr, "w", TR_F32, 1, lr.data->columns, &lr.table);
    tr_stage stage = {.name = "train",
                      .state = &lr,
                      .clocks = (int64_t)epochs,
                      .evaluate_every = 5,
                      .epochs_per_clock = 1,
                      .metric = {{"accuracy", true}},
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize};
    if (status == TR_OK) status = tr_run(tr, &stage);
    if (status == TR_OK) status = tr_model_save(tr, &lr);
    tr_view_close(&lr.w);
    tr_data_close(&lr.data);
    return tr_close(tr);
}
