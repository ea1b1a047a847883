/* 4. Logistic regression.
 *
 *   mpirun -n 4 ./4-logistic clicks.yaml
 *   mpirun -n 4 ./4-logistic clicks.yaml solve.rate=4 ranks.layout=dedicated
 *
 * Gradient descent on w in F(w) = mean of log(1 + exp(-y x·w)). The data are read in parallel, each worker its part, and
 * their columns are renumbered: row.column counts data->keys, so a view of these keys fits the rows as it is. Settings are
 * read from the job by their names. What evaluate() and summarize() say is shown as the run goes, and stands in metrics.csv
 * and summary.json of the job's folder afterwards.
 */
#include <math.h>
#include <trireme/trireme.h>

struct logistic {
    tr_data *data;
    tr_table *table;
    tr_view *w;
    double rate;
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
    double step = lr->rate / (double)lr->data->total_rows;
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
    evaluation->metric = sums->sum[1] / (double)lr->data->total_rows;
    return TR_OK;
}

int main(int argc, char **argv)
{
    struct logistic lr = {0};
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    uint64_t epochs = 0;
    int status = tr_job_integer(tr_context_job(tr), "solve.epochs", &epochs);
    if (status == TR_OK) status = tr_job_real(tr_context_job(tr), "solve.rate", &lr.rate);
    if (status == TR_OK) status = tr_data_open(tr, TR_DATA_TRAIN, NULL, &lr.data);
    if (status == TR_OK) status = tr_table_create(tr, "w", TR_F32, 1, lr.data->columns, &lr.table);
    tr_stage stage = {.name = "train",
                      .state = &lr,
                      .clocks = (int64_t)epochs,
                      .evaluate_every = 5,
                      .epochs_per_clock = 1,
                      .metric_name = "accuracy",
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize};
    if (status == TR_OK) status = tr_run(tr, &stage);
    tr_view_close(&lr.w);
    tr_data_close(&lr.data);
    return tr_close(tr);
}
