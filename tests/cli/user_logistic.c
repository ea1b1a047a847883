/* What a user of the installed library writes; built and run by test_install.sh, which reads the objectives. */
#include <math.h>
#include <stdio.h>
#include <trireme/trireme.h>

struct options {
    double rate;
};

struct logistic {
    tr_data *data;
    tr_table *table;
    tr_view *w;
    const struct options *options;
};

static int prepare(tr_worker *me, void *state)
{
    struct logistic *lr = state;
    lr->options = tr_options(me->tr);
    return tr_view_open(lr->table, lr->data->keys, lr->data->n_keys, TR_VIEW_UPDATE, &lr->w);
}

static int compute(tr_worker *me, void *state)
{
    struct logistic *lr = state;
    const tr_batch *rows = &lr->data->rows;
    TR_TRY(tr_view_pull(lr->w));
    for (size_t i = 0; i < rows->n; i++) {
        double y = rows->label[i] > 0 ? 1 : -1, slope = -y / (1 + exp(y * tr_row_dot(rows, i, lr->w->value)));
        tr_row_add(rows, i, (float)(-lr->options->rate * slope / (double)lr->data->total_rows), lr->w->delta);
    }
    return tr_view_push(lr->w);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct logistic *lr = state;
    tr_batch rows = lr->data->rows;
    TR_TRY(tr_view_pull(lr->w));
    for (size_t i = 0; i < rows.n; i++)
        report->sum[0] += log1p(exp((rows.label[i] > 0 ? -1 : 1) * tr_row_dot(&rows, i, lr->w->value)));
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    evaluation->objective = sums->sum[0] / (double)((struct logistic *)state)->data->total_rows;
    return printf("%lld %.6f\n", (long long)sums->clock, evaluation->objective) > 0 ? TR_OK : TR_ERR_IO;
}

static const tr_option options[] = {
    {"solve.rate", TR_KIND_REAL, offsetof(struct options, rate), "0.1", .help = "of steps"}, {.name = NULL}};
static const tr_method methods[] = {{.name = "descent", .help = "gradient descent"}, {.name = NULL}};
static const tr_model_class class = {.abi = TR_MODEL_ABI,
                                     .name = "user-logistic",
                                     .types = TR_WORDS("logistic"),
                                     .help = "logistic regression",
                                     .noun = "a user's logistic regression",
                                     .format = "user-logistic",
                                     .data_formats = TR_WORDS("libsvm"),
                                     .options_size = sizeof(struct options),
                                     .options = options,
                                     .methods = methods};

int main(int argc, char **argv)
{
    struct logistic lr = {0};
    tr_context *tr;
    TR_TRY(tr_open_as(&argc, &argv, &class, &tr));
    int status = tr_data_open(tr, TR_DATA_TRAIN, NULL, &lr.data);
    if (status == TR_OK) status = tr_table_create(tr, "w", TR_F32, 1, lr.data->columns, &lr.table);
    tr_stage stage = {.state = &lr,
                      .clocks = 20,
                      .evaluate_every = 1,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize};
    if (status == TR_OK) status = tr_run(tr, &stage);
    tr_view_close(&lr.w);
    tr_data_close(&lr.data);
    return tr_close(tr); /* the status that all ranks have agreed on */
}
