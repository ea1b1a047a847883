#include "model/mf/mf.h"

#include <math.h>
#include <stdlib.h>

#include "model/mf/file.h"
#include "trireme/collective.h"

/* ---- settings ---- */

static int refuse(const tr_job *job, const char *key, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s %s", tr_job_where(job, key), key, why);
}

static int check_sgd(const tr_job *job)
{
    if (job->model.implicit) return refuse(job, "model.implicit", "needs solve.method als");
    if (job->solve.optimizer != TR_OPTIMIZER_SGD && job->solve.optimizer != TR_OPTIMIZER_ADAGRAD)
        return refuse(job, "solve.optimizer", "of mf is sgd or adagrad");
    if (job->sync.weight != TR_WEIGHT_SUM && job->sync.weight != TR_WEIGHT_CON)
        return refuse(job, "sync.weight", "of mf is sum or con");
    return TR_OK;
}

static int check(const tr_job *job)
{
    TR_TRY(tr_job_check_stages(job, NULL, 0));
    if (job->solve.method != TR_SOLVE_SGD && job->solve.method != TR_SOLVE_ALS)
        return refuse(job, "solve.method", "of mf is sgd or als");
    if (job->data.partition != TR_DATA_HORIZONTAL)
        return refuse(job, "data.partition", "of mf is horizontal: users are one worker's");
    if (job->model.l1 > 0) return refuse(job, "model.l1", "is for linear models");
    if (job->model.dtype != TR_DTYPE_F32) return refuse(job, "model.dtype", "of mf is f32");
    return job->solve.method == TR_SOLVE_SGD ? check_sgd(job) : TR_OK;
}

static struct tr_mf_options options_of(const tr_job *job)
{
    bool als = job->solve.method == TR_SOLVE_ALS;
    double default_l2 = als ? 0.1 : 0.05; /* both found on MovieLens */
    return (struct tr_mf_options){.rank = (size_t)job->model.rank,
                                  .bias = job->model.bias &&
                                          !job->model.implicit, /* what is not rated is 0, not the mean */
                                  .l2_weighted = job->model.l2_weighted,
                                  .nonnegative = job->model.nonnegative,
                                  .implicit = job->model.implicit,
                                  .l2 = job->model.l2 < 0 ? default_l2 : job->model.l2,
                                  .confidence = job->model.confidence,
                                  .als = als,
                                  .adagrad = job->solve.optimizer == TR_OPTIMIZER_ADAGRAD,
                                  .average = job->sync.weight == TR_WEIGHT_CON,
                                  .parts = job->sync.push.unit == TR_OFTEN_PER_EPOCH ? job->sync.push.n : 0,
                                  .rate = job->solve.rate,
                                  .decay = job->solve.decay,
                                  .global_rate = job->sync.global_rate,
                                  .epochs = job->solve.epochs,
                                  .every = job->report.every,
                                  .seed = job->seed,
                                  .target = job->solve.target,
                                  .ahead = job->table.ahead,
                                  .row_bytes = job->table.row_bytes};
}

/* ---- what the methods share ---- */

void tr_mf_first_row(const struct tr_mf *m, enum tr_mf_side side, uint64_t number, float *row)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, m->o.seed, number, (uint64_t)side + 1);
    double rank = (double)m->rank;
    /* around 0, so small that they do not matter; where no mean is subtracted, products are the mean at first */
    double low = -0.15 * sqrt(m->spread / rank), high = -low;
    if (!m->centred && m->average > 0) low = 0, high = 2 * sqrt(m->average / rank);
    else if (m->o.nonnegative) low = 0;
    uint64_t bits = 0;
    for (size_t k = 0; k < m->rank; k++, bits >>= 16) {
        if (k % 4 == 0) bits = tr_rng_next(&rng);
        row[k] = (float)(low + (high - low) * ((double)(bits & 0xffff) + 0.5) / 0x10000);
    }
    if (m->bias) row[m->rank] = 0;
}

void tr_mf_clip(const struct tr_mf *m, float *row)
{
    for (size_t k = 0; k < m->rank && m->o.nonnegative; k++)
        if (row[k] < 0) row[k] = 0;
}

double tr_mf_predict(const struct tr_mf *m, const float *user, const float *item)
{
    double sum = m->mean;
    if (user && item)
        for (size_t k = 0; k < m->rank; k++) sum += (double)user[k] * (double)item[k];
    if (m->bias && user) sum += (double)user[m->rank];
    if (m->bias && item) sum += (double)item[m->rank];
    if (!m->bias && (!user || !item)) return m->o.implicit ? 0 : m->average;
    return sum;
}

/* ---- evaluation ---- */

int tr_mf_open_tests(struct tr_mf *m)
{
    if (!m->test) return TR_OK;
    return tr_view_open(m->item_table, m->tests.key, m->tests.keys, TR_VIEW_READ, &m->test_items);
}

int tr_mf_add_tests(struct tr_mf *m, const float *(*user)(const struct tr_mf *m, size_t i), tr_report *report)
{
    const struct tr_mf_lists *t = &m->tests;
    if (!m->test) return TR_OK;
    TR_TRY(tr_view_pull(m->test_items));
    float *items = m->test_items->value;
    for (size_t i = 0; i < t->keys; i++) tr_mf_clip(m, items + i * m->width);
    for (size_t i = 0; i < t->n; i++) {
        if (t->begin[i] == t->begin[i + 1]) continue;
        const float *row =
            i + 1 < t->n ? user(m, i) : NULL; /* the last is of users that training has not seen */
        for (uint64_t k = t->begin[i]; k < t->begin[i + 1]; k++) {
            const float *item = t->other[k] < t->keys ? items + t->other[k] * m->width : NULL;
            double wanted = m->o.implicit ? t->value[k] > 0 : (double)t->value[k];
            double error = wanted - tr_mf_predict(m, row, item);
            report->sum[TR_MF_TEST_SQUARES] += error * error;
            report->sum[TR_MF_TEST_ABSOLUTES] += fabs(error);
        }
    }
    report->sum[TR_MF_TEST_RATINGS] += (double)t->begin[t->n];
    return TR_OK;
}

int tr_mf_summarize(void *mf, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_mf *m = mf;
    const double *sum = report->sum;
    m->ratings = sum[TR_MF_RATINGS];
    m->train_rmse = sqrt(sum[TR_MF_SQUARES] / m->ratings);
    bool tested = sum[TR_MF_TEST_RATINGS] > 0;
    m->test_rmse = tested ? sqrt(sum[TR_MF_TEST_SQUARES] / sum[TR_MF_TEST_RATINGS]) : NAN;
    m->test_mae = tested ? sum[TR_MF_TEST_ABSOLUTES] / sum[TR_MF_TEST_RATINGS] : NAN;
    evaluation->objective = m->train_rmse;
    evaluation->metric = m->test_rmse;
    evaluation->stop = m->o.target != TR_JOB_AUTO && evaluation->objective <= m->o.target;
    m->last = *evaluation;
    if (isfinite(m->train_rmse)) return TR_OK;
    return tr_fail(TR_ERR_DIVERGED, "the error is not finite any more: lower solve.rate, or raise model.l2");
}

int tr_mf_keep_evaluation(struct tr_mf *m, tr_snapshot *snapshot)
{
    double errors[] = {m->train_rmse, m->test_rmse, m->test_mae};
    TR_TRY(tr_model_keep_evaluation(snapshot, &m->last));
    TR_TRY(tr_snapshot_common(snapshot, "errors_judged", TR_F64, 3, errors));
    m->train_rmse = errors[0];
    m->test_rmse = errors[1];
    m->test_mae = errors[2];
    return TR_OK;
}

/* ---- as a kind of model ---- */

static int open_data(struct tr_mf *m)
{
    bool tests = tr_context_job(m->tr)->data.test.n > 0;
    TR_TRY(tr_data_open(m->tr, TR_DATA_TRAIN, NULL, &m->train));
    if (tests) TR_TRY(tr_data_open(m->tr, TR_DATA_TEST, m->train, &m->test));
    TR_TRY(tr_data_describe(m->train, "training data"));
    if (tests) TR_TRY(tr_data_describe(m->test, "test data"));
    const tr_data *all = tests ? m->test : m->train; /* counts those of training, too */
    m->users = m->train->row_numbers;
    m->items = m->train->columns;
    if (all->row_numbers >= UINT32_MAX || all->columns >= UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "%llu users and %llu items: a factorization takes less than 2^32 of each",
                       (unsigned long long)all->row_numbers, (unsigned long long)all->columns);
    return TR_OK;
}

/* Mean and spread of all training ratings, on all ranks. */
static int describe_ratings(struct tr_mf *m)
{
    const tr_batch *rows = &m->train->rows;
    double n = (double)m->train->total_nonzeros, squares = 0;
    m->average = m->train->total_values / n;
    for (uint64_t k = 0; rows->n > 0 && k < rows->begin[rows->n]; k++) {
        double r = (rows->value ? (double)rows->value[k] : 1) - m->average;
        squares += r * r;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &squares, 1));
    m->spread = squares > 0 ? sqrt(squares / n) : 1;
    m->mean = m->centred ? m->average : 0;
    return TR_OK;
}

static int open_model(tr_context *tr, struct tr_result *result, void **model)
{
    struct tr_mf *m;
    TR_TRY(TR_NEW(&m, 1));
    *model = m;
    m->tr = tr;
    m->o = options_of(tr_context_job(tr));
    m->rank = m->o.rank;
    m->bias = m->o.bias;
    m->width = m->rank + m->bias;
    /* steps from around the mean are far quicker than steps to it; least squares get there at once, and without biases
     * do better if factors have it to themselves */
    m->centred = !m->o.implicit && (m->bias || (!m->o.als && !m->o.nonnegative));
    m->train_rmse = m->test_rmse = m->test_mae = NAN;
    TR_TRY(open_data(m));
    *result = (struct tr_result){.rows = m->train->total_rows,
                                 .columns = m->train->columns,
                                 .nonzeros = m->train->total_nonzeros,
                                 .test_auc = NAN,
                                 .test_perplexity = NAN};
    TR_TRY(describe_ratings(m));
    /* a table of one row would have a key for each column */
    TR_TRY(tr_table_create(tr, "users", TR_F32, m->users + (m->users == 1), m->width, &m->user_table));
    TR_TRY(tr_table_create(tr, "items", TR_F32, m->items + (m->items == 1), m->width, &m->item_table));
    bool has_tests = m->test && tr_set_rank(tr, TR_SET_WORKERS) >= 0;
    TR_TRY(tr_agree(tr, has_tests ? tr_mf_by_user(tr, m->train, m->test, &m->tests) : TR_OK));
    if (m->test) tr_data_forget(m->test);
    return TR_OK;
}

static int train_model(void *model)
{
    struct tr_mf *m = model;
    return m->o.als ? tr_mf_als_train(m) : tr_mf_sgd_train(m);
}

static int save_model(void *model, const char *folder, struct tr_result *result)
{
    (void)result;
    return tr_mf_save(model, folder);
}

static void close_model(void **model)
{
    struct tr_mf *m = *model;
    if (!m) return;
    tr_mf_sgd_free(&m->sgd);
    tr_mf_als_free(&m->als);
    tr_view_close(&m->test_items);
    tr_mf_lists_free(&m->tests);
    tr_data_close(&m->test);
    tr_data_close(&m->train);
    free(m);
    *model = NULL;
}

const struct tr_model_kind tr_mf_kind = {check, open_model, train_model, save_model, close_model};
