#include "mf.h"

#include <math.h>
#include <stdlib.h>

/* ---- settings ---- */

static int mf_refuse(const tr_job *job, const char *key, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s %s", tr_job_where(job, key), key, why);
}

static int mf_check(const tr_job *job, const void *options)
{
    const struct tr_mf_options *o = options;
    if (!tr_job_is(job, "data.partition", "horizontal"))
        return mf_refuse(job, "data.partition", "of mf is horizontal: each worker has whole users");
    if (tr_job_method(job) == TR_MF_ALS) return TR_OK;
    if (o->implicit) return mf_refuse(job, "model.implicit", "needs solve.method als");
    if (!tr_job_is(job, "sync.weight", "sum") && !tr_job_is(job, "sync.weight", "con"))
        return mf_refuse(job, "sync.weight", "of mf is sum or con");
    return TR_OK;
}

/* ---- common functions of the methods ---- */

void tr_mf_first_row(const struct tr_mf *m, enum tr_mf_side side, uint64_t number, float *row)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, m->seed, number, (uint64_t)side + 1);
    double rank = (double)m->rank;
    /* Small values around 0; if no mean is subtracted, initial products equal the mean. */
    double low = -0.15 * sqrt(m->spread / rank), high = -low;
    if (!m->centred && m->average > 0) low = 0, high = 2 * sqrt(m->average / rank);
    else if (m->o->nonnegative) low = 0;
    uint64_t bits = 0;
    for (size_t k = 0; k < m->rank; k++, bits >>= 16) {
        if (k % 4 == 0) bits = tr_rng_next(&rng);
        row[k] = (float)(low + (high - low) * ((double)(bits & 0xffff) + 0.5) / 0x10000);
    }
    if (m->bias) row[m->rank] = 0;
}

void tr_mf_clip(const struct tr_mf *m, float *row)
{
    for (size_t k = 0; k < m->rank && m->o->nonnegative; k++)
        if (row[k] < 0) row[k] = 0;
}

double tr_mf_predict(const struct tr_mf *m, const float *user, const float *item)
{
    double sum = m->mean;
    if (user && item)
        for (size_t k = 0; k < m->rank; k++) sum += (double)user[k] * (double)item[k];
    if (m->bias && user) sum += (double)user[m->rank];
    if (m->bias && item) sum += (double)item[m->rank];
    if (!m->bias && (!user || !item)) return m->implicit ? 0 : m->average;
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
    if (!m->test) return TR_OK;
    TR_TRY(tr_view_pull(m->test_items));
    TR_TRY(tr_turn_begin(m->tr, "evaluate"));
    const struct tr_mf_lists *t = &m->tests;
    float *items = m->test_items->value;
    for (size_t i = 0; i < t->keys; i++) tr_mf_clip(m, items + i * m->width);
    for (size_t i = 0; i < t->n; i++) {
        if (t->begin[i] == t->begin[i + 1]) continue;
        const float *row = i + 1 < t->n ? user(m, i) : NULL; /* the last row contains the cold users */
        for (uint64_t k = t->begin[i]; k < t->begin[i + 1]; k++) {
            const float *item = t->other[k] < t->keys ? items + t->other[k] * m->width : NULL;
            double error = tr_mf_wanted(m, t->value[k]) - tr_mf_predict(m, row, item);
            report->sum[TR_MF_TEST_SQUARES] += error * error;
        }
    }
    report->sum[TR_MF_TEST_RATINGS] += (double)t->begin[t->n];
    return tr_turn_end(m->tr, TR_OK);
}

int tr_mf_summarize(void *mf, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_mf *m = mf;
    const double *sum = report->sum;
    m->trained = sum[TR_MF_RATINGS];
    bool tested = sum[TR_MF_TEST_RATINGS] > 0;
    evaluation->objective = sqrt(sum[TR_MF_SQUARES] / m->trained);
    evaluation->metric = tested ? sqrt(sum[TR_MF_TEST_SQUARES] / sum[TR_MF_TEST_RATINGS]) : NAN;
    m->last = *evaluation;
    if (isfinite(evaluation->objective)) return TR_OK;
    return tr_fail(TR_ERR_DIVERGED, "the error is no longer finite: %sraise model.l2",
                   m->by_als ? "" : "lower solve.rate, or ");
}

/* ---- the model class ---- */

static int read_settings(struct tr_mf *m, const tr_job *job, const struct tr_mf_options *o)
{
    m->o = o;
    m->by_als = tr_job_method(job) == TR_MF_ALS;
    double default_l2 = m->by_als ? 0.1 : 0.05; /* both tuned on MovieLens */
    m->rank = o->rank;
    m->implicit = o->implicit;
    m->bias = o->bias && !o->implicit; /* pairs without interaction are 0, not the mean */
    m->width = m->rank + m->bias;
    /* sgd converges faster if the mean is subtracted. als fits it in the first half sweep, and without biases gives better
     * factors if they include the mean. */
    m->centred = !o->implicit && (m->bias || (!m->by_als && !o->nonnegative));
    m->l2 = o->l2 == TR_JOB_AUTO ? default_l2 : o->l2;
    m->averages = tr_job_is(job, "sync.weight", "con");
    m->epochs = (int64_t)tr_job_number(job, "solve.epochs");
    m->report_every = (int64_t)tr_job_number(job, "report.every");
    m->last.objective = m->last.metric = NAN;
    TR_TRY(tr_job_integer(job, "seed", &m->seed));
    return tr_copy_string(m->by_als ? "als" : "sgd", &m->method);
}

static int mf_open(tr_context *tr, const void *options, void *model)
{
    struct tr_mf *m = model;
    m->tr = tr;
    TR_TRY(tr_agree(tr, read_settings(m, tr_context_job(tr), options)));
    const char *const *files;
    bool tests = tr_job_files(tr_context_job(m->tr), "data.test", &files) > 0;
    TR_TRY(tr_data_open(m->tr, TR_DATA_TRAIN, NULL, &m->train));
    if (tests) TR_TRY(tr_data_open(m->tr, TR_DATA_TEST, m->train, &m->test));
    TR_TRY(tr_data_describe(m->train, "training data"));
    if (tests) TR_TRY(tr_data_describe(m->test, "test data"));
    const tr_data *all = tests ? m->test : m->train; /* the numbers of test data include those of training */
    m->users = m->train->row_numbers;
    m->items = m->train->columns;
    m->ratings = m->train->total_nonzeros;
    if (all->row_numbers >= UINT32_MAX || all->columns >= UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "%llu users and %llu items: a factorization takes less than 2^32 of each",
                       (unsigned long long)all->row_numbers, (unsigned long long)all->columns);
    /* mean and standard deviation of all training ratings */
    const tr_batch *rows = &m->train->rows;
    double n = (double)m->ratings, squares = 0;
    m->average = m->train->total_values / n;
    for (uint64_t k = 0; rows->n > 0 && k < rows->begin[rows->n]; k++) {
        double r = (rows->value ? (double)rows->value[k] : 1) - m->average;
        squares += r * r;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &squares, 1));
    m->spread = squares > 0 ? sqrt(squares / n) : 1;
    m->mean = m->centred ? m->average : 0;

    /* Several groups pull and push whole blocks of items in every clock: the items of a block are on few servers. */
    bool in_blocks = !m->by_als && tr_groups(tr) > 1 && !tr_job_given(tr_context_job(tr), "table.block");
    tr_table_options items = {.block = in_blocks ? m->items / (uint64_t)tr_servers(tr) + 1 : 0};
    /* a table of one row would have a key for each column */
    TR_TRY(tr_table_create(tr, "users", TR_F32, m->users + (m->users == 1), m->width, &m->user_table));
    TR_TRY(tr_table_create_with(tr, "items", TR_F32, m->items + (m->items == 1), m->width, &items,
                                &m->item_table));
    bool has_tests = m->test && tr_set_rank(tr, TR_SET_WORKERS) >= 0;
    TR_TRY(tr_agree(tr, has_tests ? tr_mf_by_user(tr, m->train, m->test, &m->tests) : TR_OK));
    if (m->test) tr_data_forget(m->test);
    return TR_OK;
}

static int mf_train(void *model)
{
    struct tr_mf *m = model;
    TR_TRY(m->by_als ? tr_mf_als_train(m) : tr_mf_sgd_train(m));
    if (!m->implicit && m->last.objective > 1.05 * m->spread) /* on the scheduler */
        tr_warn(
            m->tr,
            "warning:       the error of the training ratings is %.6g, worse than %.6g of their mean: lower "
            "model.l2%s",
            m->last.objective, m->spread, m->by_als ? "" : ", or give it more solve.epochs");
    return TR_OK;
}

static void mf_close(void *model)
{
    struct tr_mf *m = model;
    tr_mf_sgd_free(&m->sgd);
    tr_mf_als_free(&m->als);
    tr_view_close(&m->test_items);
    tr_mf_lists_free(&m->tests);
    tr_data_close(&m->test);
    tr_data_close(&m->train);
    tr_mf_saved_close(m);
    free(m->method);
}

/* Estimates memory. Rows: ratings by user and by item, or during reading, 20 bytes each, plus ratings received from others.
 * sgd: factors of this worker's users, and two blocks of items per worker, shared within a node. als: factors of its users
 * and items, the arena of rows of the other side, and the subscriptions of the node for each side. */
static void mf_estimate(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *memory)
{
    double workers = size->workers, row = 4 * (double)((const struct tr_mf_options *)options)->rank,
           all = row * (size->users + size->items), mine = row * (size->users / workers + size->items);
    memory->rows = (workers > 1 ? 25 : 20) * size->records / workers;
    memory->server = all / size->servers;
    if (tr_job_method(job) != TR_MF_ALS) {
        double blocks = workers > 1 ? 2 * row * size->items : 0;
        bool near = size->node_workers == workers;
        memory->worker = 1.2 * mine + (near ? 0 : blocks / workers);
        memory->group = near ? blocks : 0;
        return;
    }
    double others = 1 - size->node_workers / workers;
    memory->worker = 2 * all / workers + fmin(row * fmax(size->users, size->items), 512e6);
    memory->node = fmin(others * row * size->users, 268e6) + fmin(others * row * size->items, 268e6);
}

#define AT(field) offsetof(struct tr_mf_options, field)

static const tr_option options[] = {
    {"model.rank", TR_KIND_INTEGER, AT(rank), "32", .least = 1, .most = 4096,
     .help = "number of factors per user and item"},
    {"model.l2", TR_KIND_REAL, AT(l2), "auto", .words = TR_WORDS("auto"),
     .help = "lambda of the factors; auto = 0.05, with als 0.1"},
    {"model.l2_weighted", TR_KIND_BOOL, AT(l2_weighted), "yes",
     .help = "multiply lambda of a user or item by its number of ratings"},
    {"model.bias", TR_KIND_BOOL, AT(bias), "no",
     .help = "subtract the mean, and fit a constant for each user and item"},
    {"model.nonnegative", TR_KIND_BOOL, AT(nonnegative), "no", .help = "keep factors at 0 or above"},
    {"model.implicit", TR_KIND_BOOL, AT(implicit), "no",
     .help = "als: ratings are counts of interactions; all other pairs are zeros with weight 1"},
    {"model.confidence", TR_KIND_REAL, AT(confidence), "40", .above = true,
     .help = "implicit: a rating r has the weight 1 + confidence r"},
    {"solve.rate", TR_KIND_REAL, AT(rate), "auto", .above = true, .words = TR_WORDS("auto"),
     .may_change = true, .methods = "sgd",
     .help = "initial rate; auto = min(0.16, 0.28/sqrt(solve.epochs)), or 0.1 with solve.decay, or 0.02 with "
             "solve.optimizer sgd"},
    {"solve.decay", TR_KIND_REAL, AT(decay), "0", .may_change = true, .methods = "sgd",
     .help = "the rate of clock c is rate/sqrt(decay*c+1); 0: it decreases to 0 at the last epoch"},
    {"solve.optimizer", TR_KIND_CHOICE, AT(optimizer), "adagrad", .words = TR_WORDS("sgd", "adagrad"),
     .methods = "sgd",
     .help = "adagrad: the rate of each row decreases with its gradients; sgd: one rate for all rows"},
    {.name = NULL},
};

static const tr_method methods[] = {
    [TR_MF_SGD] = {"sgd", "stochastic gradient descent with rotation of items",
                   .stages = TR_WORDS("rotate", "evaluate"), .in_groups = true, .rotates = true},
    [TR_MF_ALS] = {"als", "alternating least squares", .stages = TR_WORDS("users", "items", "evaluate")},
    {.name = NULL},
};

static const tr_rule rules[] = {
    {"sync.weight", "als", .unused = true}, {"sync.stable", .unused = true},
    {"sync.race", .unused = true},          {"local.*", .unused = true},
    {"data.vocabulary", .unused = true},    {"data.scale", .unused = true},
    {"data.weight", .unused = true},        {.key = NULL},
};

static const tr_flag flags[] = {
    {"--top", "N", TR_PREDICT | TR_INSPECT, 1, 1000000,
     "print the N items with the best predicted ratings per user"},
    {"--user", "ID", TR_PREDICT | TR_INSPECT | TR_ALONE, .help = "of this user; without DATA"},
    {.name = NULL},
};

const tr_model_class tr_mf_class = {
    .abi = TR_MODEL_ABI,
    .name = "mf",
    .types = TR_WORDS("mf"),
    .help = "matrix factorization: factors of users and items from ratings",
    .predicts = "the rating of each «user item» line",
    .evaluates =
        "root mean squared and mean absolute error of the ratings (implicit: of 1 for each interaction)",
    .noun = "a factorization",
    .format = "trireme-mf",
    .format_version = 1,
    .data_formats = TR_WORDS("ratings"),
    .options_size = sizeof(struct tr_mf_options),
    .options = options,
    .methods = methods,
    .rules = rules,
    .flags = flags,
    .model_size = sizeof(struct tr_mf),
    .check = mf_check,
    .open = mf_open,
    .train = mf_train,
    .fields = tr_mf_fields,
    .close = mf_close,
    .memory = mf_estimate,
    .answer = tr_mf_answer,
    .inspect = tr_mf_inspect,
};
