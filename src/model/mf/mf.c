/* Matrix factorization: settings, data, initial values, test error, model file, predict, evaluate, inspect. */
#include "mf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../metrics.h"

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
    /* Values are small and around 0. If the mean is not subtracted, initial predictions equal the mean on average. */
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
        const float *row = i + 1 < t->n ? user(m, i) : NULL; /* the last row has the ratings by cold users */
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
    evaluation->metric[0] = tested ? sqrt(sum[TR_MF_TEST_SQUARES] / sum[TR_MF_TEST_RATINGS]) : NAN;
    m->last = *evaluation;
    if (isfinite(evaluation->objective)) return TR_OK;
    return tr_fail(TR_ERR_DIVERGED, "the error is no longer finite: %sraise model.l2",
                   m->by_als ? "" : "lower solve.rate, or ");
}

/* ================ training ================ */

static int read_settings(struct tr_mf *m, const tr_job *job, const struct tr_mf_options *o)
{
    m->o = o;
    m->by_als = tr_job_method(job) == TR_MF_ALS;
    m->rank = o->rank;
    m->implicit = o->implicit;
    /* implicit: pairs without interaction should be predicted as 0; factors of 0 and above are additive parts of the ratings */
    m->bias = o->bias && !o->implicit && (!o->nonnegative || tr_job_given(job, "model.bias"));
    m->width = m->rank + m->bias;
    /* sgd converges faster if the mean is subtracted. als fits the mean in the first clock, and without biases it gives better
     * factors if the mean is not subtracted. */
    m->centred = !o->implicit && (m->bias || (!m->by_als && !o->nonnegative));
    m->averages = tr_job_is(job, "sync.weight", "con");
    m->epochs = (int64_t)tr_job_number(job, "solve.epochs");
    m->report_every = (int64_t)tr_job_number(job, "report.every");
    m->last.objective = m->last.metric[0] = NAN;
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
    const tr_data *all = tests ? m->test : m->train; /* numbers of test data include those of training */
    m->users = m->train->row_numbers;
    m->items = m->train->columns;
    m->ratings = m->train->total_nonzeros;
    if (all->row_numbers >= UINT32_MAX || all->columns >= UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "%llu users and %llu items: a factorization takes less than 2^32 of each",
                       (unsigned long long)all->row_numbers, (unsigned long long)all->columns);
    /* Compute mean and standard deviation of all training ratings. */
    const tr_batch *rows = &m->train->rows;
    double n = (double)m->ratings, squares = 0;
    m->average = m->train->total_values / n;
    for (uint64_t k = 0; rows->n > 0 && k < rows->begin[rows->n]; k++) {
        double r = (double)tr_value_at(rows, k) - m->average;
        squares += r * r;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &squares, 1));
    m->spread = squares > 0 ? sqrt(squares / n) : 1;
    m->mean = m->centred ? m->average : 0;
    m->l2 = m->o->l2;
    if (m->l2 == TR_JOB_AUTO) {
        /* best on MovieLens, jester and anime together; ratings in another unit need lambda in this unit */
        double part = m->by_als ? 0.1 : 0.055;
        m->l2 = part * (m->implicit ? 1 : m->spread);
        if (!m->implicit)
            tr_say(m->tr, "model.l2:      %.3g, %.3g of the standard deviation of the ratings", m->l2, part);
    }

    /* Several groups pull and push whole blocks of items in every clock: place the items of a block on few servers. */
    bool in_blocks = !m->by_als && tr_groups(tr) > 1 && !tr_job_given(tr_context_job(tr), "table.block");
    tr_table_options items = {.block = in_blocks ? m->items / (uint64_t)tr_servers(tr) + 1 : 0};
    /* A table of one row would have a key for each column, so tables get at least two rows. */
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
    TR_TRY(m->by_als ? tr_mf_als_train(m, NULL) : tr_mf_sgd_train(m));
    char worse[TR_WORSE_TEXT]; /* only the scheduler knows the objective */
    if (!m->implicit && tr_is_worse("error of the training ratings", m->last.objective, false, "their mean",
                                    m->spread, worse))
        tr_warn(m->tr, "warning:       %s: lower model.l2%s", worse,
                m->by_als ? "" : ", or give it more solve.epochs");
    return TR_OK;
}

/* ================ the model file ================ */

/* Datasets of model.h5: /users and /items (rows of `rank` factors), /user_bias and /item_bias (if the model has biases), /user_ids
 * and /item_ids (names of the rows in the data: whole numbers, or texts padded with zeros). A prediction is the inner product of
 * the two rows, plus the mean if centred, plus both biases. */

/* Writes factors or biases of the rows first .. first + n - 1 of the table m->written to `values`. */
static int fill_rows(void *mf, uint64_t first, size_t n, void *values)
{
    enum { AT_ONCE = 4096 }; /* rows that are read together: a piece of the biases has many more */
    const struct tr_mf *m = mf;
    size_t from = m->writes_bias ? (size_t)m->rank : 0, columns = m->writes_bias ? 1 : (size_t)m->rank, some;
    float *to = values;
    TR_FREED float *rows = NULL;
    TR_TRY(TR_NEW(&rows, tr_min_size(n, AT_ONCE) * m->width));
    for (uint64_t end = first + n; first < end; first += some) {
        some = tr_min_size((size_t)(end - first), AT_ONCE);
        TR_TRY(tr_table_read(m->written, first, some, rows));
        for (size_t i = 0; i < some; i++, to += columns) {
            if (!m->writes_bias) tr_mf_clip(m, rows + i * m->width);
            memcpy(to, rows + i * m->width + from, columns * sizeof *to);
        }
    }
    return TR_OK;
}

static int list_side(struct tr_mf *m, tr_fields *f, enum tr_mf_side which)
{
    static const char *const rows[] = {"users", "items"}, *const biases[] = {"user_bias", "item_bias"};
    struct tr_mf_saved *side = &m->saved[which];
    uint64_t n = which == TR_MF_USER ? m->users : m->items;
    m->written = which == TR_MF_USER ? m->user_table : m->item_table;
    m->writes_bias = false;
    TR_TRY(tr_field_filled(f, rows[which], TR_FIELD_F32, n, m->rank, "factors", fill_rows, &side->row));
    m->writes_bias = true;
    if (m->bias)
        TR_TRY(tr_field_filled(f, biases[which], TR_FIELD_F32, n, 0, "biases", fill_rows, &side->bias));
    if (!tr_fields_read(f) || !m->bias) return TR_OK;
    float *row; /* rows as in the tables: factors followed by the bias */
    TR_TRY(TR_NEW(&row, n * m->width));
    for (uint64_t i = 0; i < n; i++) {
        memcpy(row + i * m->width, side->row + i * m->rank, m->rank * sizeof *row);
        row[i * m->width + m->rank] = side->bias[i];
    }
    free(side->row);
    side->row = row;
    return TR_OK;
}

static int mf_fields(void *mf, tr_fields *f)
{
    static const char names[] = "names of the rows in the data";
    struct tr_mf *m = mf;
    const tr_names *users = m->train ? m->train->row_names : NULL,
                   *items = m->train ? m->train->column_names : NULL;
    TR_TRY(tr_field_text(f, "method", &m->method));
    const tr_member numbers[] = {{"rank", TR_FIELD_U64, .value = &m->rank},
                                 {"users", TR_FIELD_U64, .value = &m->users},
                                 {"items", TR_FIELD_U64, .value = &m->items},
                                 {"ratings", TR_FIELD_U64, .value = &m->ratings},
                                 {"mean", TR_FIELD_F64, .value = &m->average},
                                 {"centred", TR_FIELD_U64, .value = &m->centred},
                                 {"bias", TR_FIELD_U64, .value = &m->bias},
                                 {"implicit", TR_FIELD_U64, .value = &m->implicit},
                                 {"l2", TR_FIELD_F64, .value = &m->l2},
                                 {"train_rmse", TR_FIELD_F64, &m->last.objective, .of_scheduler = true},
                                 {"test_rmse", TR_FIELD_F64, &m->last.metric[0], .of_scheduler = true}};
    TR_TRY(tr_field_members(f, numbers, sizeof numbers / sizeof *numbers));
    m->width = (size_t)(m->rank + m->bias);
    m->mean = m->centred ? m->average : 0;
    TR_TRY(tr_field_names(f, "user_ids", users, m->users, names, &m->saved[TR_MF_USER].names));
    TR_TRY(tr_field_names(f, "item_ids", items, m->items, names, &m->saved[TR_MF_ITEM].names));
    TR_TRY(list_side(m, f, TR_MF_USER));
    return list_side(m, f, TR_MF_ITEM);
}

/* ================ predict, evaluate, inspect ================ */

double tr_mf_predict_saved(const struct tr_mf *m, uint64_t user, uint64_t item)
{
    const float *u = user < m->users ? m->saved[TR_MF_USER].row + user * m->width : NULL;
    const float *v = item < m->items ? m->saved[TR_MF_ITEM].row + item * m->width : NULL;
    return tr_mf_predict(m, u, v);
}

struct candidate {
    double rating;
    uint64_t item;
};

static int mf_by_rating(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->rating != y->rating) return x->rating > y->rating ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

int tr_mf_best(const struct tr_mf *m, uint64_t user, size_t *n, uint64_t **item, double **rating)
{
    TR_FREED struct candidate *all = NULL;
    *n = tr_min_size(*n, (size_t)m->items);
    TR_TRY(TR_NEW(&all, (size_t)m->items));
    TR_TRY(TR_NEW(item, *n));
    TR_TRY(TR_NEW(rating, *n));
    for (uint64_t i = 0; i < m->items; i++) all[i] = (struct candidate){tr_mf_predict_saved(m, user, i), i};
    qsort(all, (size_t)m->items, sizeof *all, mf_by_rating);
    for (size_t i = 0; i < *n; i++) (*item)[i] = all[i].item, (*rating)[i] = all[i].rating;
    return TR_OK;
}

/* State of predict and evaluate. */
struct asking {
    struct tr_mf *m;
    tr_query *query;
    bool *seen; /* --top, per user: whether its items were printed */
    char *cold; /* --top: name of the last unknown user whose items were printed */
    uint64_t cold_users, cold_items, ratings;
    double squares, absolutes;
};

/* Returns the index of the user or item with this name, or UINT64_MAX if the name is unknown. */
static uint64_t number_of(const struct tr_mf *m, enum tr_mf_side side, const char *id, size_t length)
{
    uint64_t number;
    return tr_name_find(&m->saved[side].names, id, length, &number) ? number : UINT64_MAX;
}

static double mf_predicted(struct asking *a, const tr_rating *rating)
{
    uint64_t user = number_of(a->m, TR_MF_USER, rating->user, rating->user_length);
    uint64_t item = number_of(a->m, TR_MF_ITEM, rating->item, rating->item_length);
    a->cold_users += user == UINT64_MAX;
    a->cold_items += item == UINT64_MAX;
    a->ratings++;
    return tr_mf_predict_saved(a->m, user, item);
}

/* Prints a note about unknown users and items, if there were some. */
static void note_cold(const struct asking *a)
{
    if (a->cold_users + a->cold_items == 0) return;
    tr_printf(stderr,
              "trireme: note: of %llu ratings %llu have users and %llu have items that the model does not "
              "know: %s\n",
              (unsigned long long)a->ratings, (unsigned long long)a->cold_users,
              (unsigned long long)a->cold_items,
              a->m->bias ? "predicted by the mean and the bias of the other side" : "predicted by the mean");
}

/* Prints a note about unknown users for --top. */
static void note_cold_users(const struct asking *a)
{
    if (a->cold_users == 0) return;
    tr_printf(stderr, "trireme: note: the model does not know %llu of the users: %s\n",
              (unsigned long long)a->cold_users,
              a->m->bias ? "items are predicted by the mean and their bias"
                         : "all items are predicted by the mean");
}

static int print_rating(tr_query *query, double value)
{
    char text[TR_NUMBER_ROOM + 1];
    *tr_put_f32(text, (float)value) = '\0';
    return tr_print(query, "%s\n", text);
}

static int print_item(const struct tr_mf *m, tr_query *query, uint64_t item)
{
    const struct tr_name_list *names = &m->saved[TR_MF_ITEM].names;
    if (names->number) return tr_print(query, "%llu", (unsigned long long)names->number[item]);
    return tr_print(query, "%.*s", (int)(names->begin[item + 1] - names->begin[item]),
                    names->text + names->begin[item]);
}

static int predict_pair(void *state, const tr_rating *rating)
{
    struct asking *a = state;
    const char *id = tr_query_id(a->query);
    bool user = id && strcmp(id, "item") != 0, item = id && strcmp(id, "user") != 0;
    if (user && item) TR_TRY(tr_print(a->query, "%.*s ", (int)rating->user_length, rating->user));
    if (item) TR_TRY(tr_print_id(a->query, rating->item, rating->item_length));
    else if (user) TR_TRY(tr_print_id(a->query, rating->user, rating->user_length));
    return print_rating(a->query, mf_predicted(a, rating));
}

/* Prints lines «user item rating», best first. */
static int print_best(struct asking *a, const char *user, size_t length, uint64_t number)
{
    size_t n = (size_t)tr_query_number(a->query, "--top", 0);
    TR_FREED uint64_t *item = NULL;
    TR_FREED double *rating = NULL;
    TR_TRY(tr_mf_best(a->m, number, &n, &item, &rating));
    for (size_t i = 0; i < n; i++) {
        TR_TRY(tr_print(a->query, "%.*s ", (int)length, user));
        TR_TRY(print_item(a->m, a->query, item[i]));
        TR_TRY(tr_print(a->query, " "));
        TR_TRY(print_rating(a->query, rating[i]));
    }
    return TR_OK;
}

/* Prints the best items of a user, unless they were printed before (of an unknown user: for the previous line). */
static int predict_user(void *state, const tr_rating *rating)
{
    struct asking *a = state;
    size_t n = rating->user_length;
    uint64_t user = number_of(a->m, TR_MF_USER, rating->user, n);
    if (user < a->m->users) {
        if (a->seen[user]) return TR_OK;
        a->seen[user] = true;
    } else {
        if (a->cold && strlen(a->cold) == n && memcmp(a->cold, rating->user, n) == 0) return TR_OK;
        free(a->cold);
        TR_TRY(tr_format(&a->cold, "%.*s", (int)n, rating->user));
        a->cold_users++;
    }
    return print_best(a, rating->user, n, user);
}

static int unknown_user(const char *id)
{
    return tr_fail(TR_ERR_USAGE, "the model knows no user %s", id);
}

static int mf_predict(struct asking *a)
{
    size_t n;
    char *const *files = tr_query_files(a->query, &n);
    const char *id = tr_query_text(a->query, "--user");
    bool top = tr_query_given(a->query, "--top");
    const char *shown = tr_query_id(a->query);
    if (shown && strcmp(shown, "user") != 0 && strcmp(shown, "item") != 0 && strcmp(shown, "pair") != 0)
        return tr_fail(TR_ERR_USAGE, "predict: --id %s: expected user, item or pair", shown);
    if (shown && top)
        return tr_fail(TR_ERR_USAGE, "predict: --id is of no use with --top, which prints users and items");
    if (id && !top) return tr_fail(TR_ERR_USAGE, "predict: --user needs --top N");
    if (id && n > 0) return tr_fail(TR_ERR_USAGE, "predict: unexpected %s beside --user", files[0]);
    if (id) {
        uint64_t user = number_of(a->m, TR_MF_USER, id, strlen(id));
        if (user == UINT64_MAX && !a->m->bias) return unknown_user(id);
        a->cold_users = user == UINT64_MAX;
        note_cold_users(a);
        return print_best(a, id, strlen(id), user);
    }
    if (top) TR_TRY(TR_NEW(&a->seen, (size_t)a->m->users));
    TR_TRY(tr_query_ratings(a->query, false, top ? predict_user : predict_pair, a));
    if (top) note_cold_users(a);
    else note_cold(a);
    return TR_OK;
}

static int evaluate_rating(void *state, const tr_rating *rating)
{
    struct asking *a = state;
    double error = tr_mf_wanted(a->m, rating->value) - mf_predicted(a, rating);
    a->squares += error * error;
    a->absolutes += fabs(error);
    return TR_OK;
}

static int mf_evaluate(struct asking *a)
{
    size_t files;
    char *const *file = tr_query_files(a->query, &files);
    TR_TRY(tr_query_ratings(a->query, true, evaluate_rating, a));
    if (a->ratings == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: it contains no rating", file[0]);
    double n = (double)a->ratings, rmse = sqrt(a->squares / n), mae = a->absolutes / n;
    TR_TRY(tr_figure(a->query, "ratings", n, "%llu", (unsigned long long)a->ratings));
    TR_TRY(tr_figure(a->query, "rmse", rmse, "%.6f", rmse));
    TR_TRY(tr_figure(a->query, "mae", mae, "%.6f", mae));
    TR_TRY(tr_figure(a->query, "of_unknown_users", (double)a->cold_users, NULL));
    TR_TRY(tr_figure(a->query, "of_unknown_items", (double)a->cold_items, NULL));
    note_cold(a);
    return TR_OK;
}

static int mf_answer(void *mf, tr_query *query)
{
    struct asking a = {.m = mf, .query = query};
    int status = tr_query_command(query) == TR_PREDICT ? mf_predict(&a) : mf_evaluate(&a);
    free(a.seen);
    free(a.cold);
    return status;
}

static void show_side(const struct tr_mf *m, tr_query *query, enum tr_mf_side which)
{
    double squares = 0, least = INFINITY, most = 0;
    uint64_t n = which == TR_MF_USER ? m->users : m->items;
    for (uint64_t i = 0; i < n; i++) {
        const float *row = m->saved[which].row + i * m->width;
        double square = 0;
        for (uint64_t k = 0; k < m->rank; k++) square += (double)row[k] * (double)row[k];
        squares += square;
        least = fmin(least, square);
        most = fmax(most, square);
    }
    tr_line(query, which == TR_MF_USER ? "users" : "items",
            "%llu, length of a row %.4g to %.4g, root mean square %.4g", (unsigned long long)n, sqrt(least),
            sqrt(most), sqrt(squares / (double)n));
}

static int mf_inspect(void *mf, tr_query *query)
{
    struct tr_mf *m = mf;
    const char *id = tr_query_text(query, "--user");
    tr_line(query, "method", "%s%s", m->method, m->implicit ? ", implicit" : "");
    tr_line(query, "rank", "%llu%s", (unsigned long long)m->rank, m->bias ? ", and biases" : "");
    show_side(m, query, TR_MF_USER);
    show_side(m, query, TR_MF_ITEM);
    tr_line(query, "mean", "%.6g", m->average);
    tr_line(query, "l2", "%.6g", m->l2);
    tr_line(query, "trained on", "%llu ratings", (unsigned long long)m->ratings);
    if (isfinite(m->last.objective)) tr_line(query, "train rmse", "%.6f", m->last.objective);
    if (isfinite(m->last.metric[0])) tr_line(query, "test rmse", "%.6f", m->last.metric[0]);
    if (!id) return TR_OK;
    enum { TOP = 10 };
    uint64_t user = number_of(m, TR_MF_USER, id, strlen(id));
    size_t n = (size_t)tr_query_number(query, "--top", TOP);
    TR_FREED uint64_t *item = NULL;
    TR_FREED double *rating = NULL;
    if (user == UINT64_MAX) return unknown_user(id);
    TR_TRY(tr_mf_best(m, user, &n, &item, &rating));
    TR_TRY(tr_print(query, "\nbest items of user %s\n", id));
    for (size_t i = 0; i < n; i++) {
        TR_TRY(tr_print(query, "%10.4f  ", rating[i]));
        TR_TRY(print_item(m, query, item[i]));
        TR_TRY(tr_print(query, "\n"));
    }
    return TR_OK;
}

/* ================ the class ================ */

static void mf_close(void *model)
{
    struct tr_mf *m = model;
    tr_mf_sgd_free(&m->sgd);
    tr_mf_als_free(&m->als);
    tr_view_close(&m->test_items);
    tr_mf_lists_free(&m->tests);
    tr_data_close(&m->test);
    tr_data_close(&m->train);
    for (int s = 0; s < 2; s++) {
        TR_FREE_ALL(m->saved[s].row, m->saved[s].bias);
        tr_name_list_free(&m->saved[s].names);
    }
    free(m->method);
}

/* Estimates memory. Rows: ratings by user and by item, or while reading, 20 bytes each, plus ratings received from other workers.
 * sgd: factors of the worker's users, and two blocks of items per worker, shared on a machine. als: factors of the worker's users
 * and items, the arenas, and the subscriptions of the machine for each side. */
static void mf_estimate(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *memory)
{
    const struct tr_mf_options *o = options;
    double workers = size->workers, row = 4 * (double)(o->rank + o->bias),
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
     .help = "lambda of the factors; auto = 0.055 of the standard deviation of the ratings, with als 0.1 of "
             "it; implicit: 0.1"},
    {"model.l2_weighted", TR_KIND_BOOL, AT(l2_weighted), "yes",
     .help = "multiply lambda of a user or item by its number of ratings"},
    {"model.bias", TR_KIND_BOOL, AT(bias), "yes",
     .help = "subtract the mean, and fit a constant for each user and item; without effect for implicit "
             "ratings, and for "
             "nonnegative factors only if set"},
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
    {"data.weight", .unused = true},        {"data.offset", .unused = true},
    {"report.metric", .unused = true},      {.key = NULL},
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
    .fields = mf_fields,
    .close = mf_close,
    .memory = mf_estimate,
    .answer = mf_answer,
    .inspect = mf_inspect,
};
