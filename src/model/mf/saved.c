/* The model file of factorizations, and predict, evaluate and inspect.
 *
 * Datasets: /users and /items (rows of `rank` factors), /user_bias and /item_bias (if the model has biases), /user_ids and
 * /item_ids (names of the rows in the data: whole numbers, or texts padded with zeros). A prediction is the inner product of
 * the rows, plus the mean if centred, plus both biases.
 */
#include "mf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

/* Reads factors or biases of the table that is written. */
static int fill_rows(void *mf, uint64_t first, size_t n, void *values)
{
    const struct tr_mf *m = mf;
    size_t from = m->writes_bias ? (size_t)m->rank : 0, columns = m->writes_bias ? 1 : (size_t)m->rank;
    float *to = values;
    TR_FREED float *rows = NULL;
    TR_TRY(TR_NEW(&rows, n * m->width));
    TR_TRY(tr_table_read(m->written, first, n, rows));
    for (size_t i = 0; i < n; i++) {
        if (!m->writes_bias) tr_mf_clip(m, rows + i * m->width);
        memcpy(to + i * columns, rows + i * m->width + from, columns * sizeof *to);
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
    float *row; /* in the form of the tables: factors followed by the bias */
    TR_TRY(TR_NEW(&row, n * m->width));
    for (uint64_t i = 0; i < n; i++) {
        memcpy(row + i * m->width, side->row + i * m->rank, m->rank * sizeof *row);
        row[i * m->width + m->rank] = side->bias[i];
    }
    free(side->row);
    side->row = row;
    return TR_OK;
}

int tr_mf_fields(void *mf, tr_fields *f)
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
                                 {"test_rmse", TR_FIELD_F64, &m->last.metric, .of_scheduler = true}};
    TR_TRY(tr_field_members(f, numbers, sizeof numbers / sizeof *numbers));
    m->width = (size_t)(m->rank + m->bias);
    m->mean = m->centred ? m->average : 0;
    TR_TRY(tr_field_names(f, "user_ids", users, m->users, names, &m->saved[TR_MF_USER].names));
    TR_TRY(tr_field_names(f, "item_ids", items, m->items, names, &m->saved[TR_MF_ITEM].names));
    TR_TRY(list_side(m, f, TR_MF_USER));
    return list_side(m, f, TR_MF_ITEM);
}

void tr_mf_saved_close(struct tr_mf *m)
{
    for (int s = 0; s < 2; s++) {
        free(m->saved[s].row);
        free(m->saved[s].bias);
        tr_name_list_free(&m->saved[s].names);
    }
}

/* ---- predictions ---- */

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

/* ---- predict and evaluate ---- */

struct asking {
    struct tr_mf *m;
    tr_query *query;
    bool *seen; /* --top: users whose items were printed */
    char *cold; /* --top: the last unknown user whose items were printed */
    uint64_t cold_users, cold_items, ratings;
    double squares, absolutes;
};

/* Returns the number of a name, or UINT64_MAX if it is unknown. */
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

/* The same for --top. */
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

/* Prints the best items of each user once; for unknown users once per run of consecutive lines. */
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
    TR_TRY(tr_read_ratings(files, n, true, top ? predict_user : predict_pair, a));
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
    TR_TRY(tr_read_ratings(file, files, false, evaluate_rating, a));
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

int tr_mf_answer(void *mf, tr_query *query)
{
    struct asking a = {.m = mf, .query = query};
    int status = tr_query_command(query) == TR_PREDICT ? mf_predict(&a) : mf_evaluate(&a);
    free(a.seen);
    free(a.cold);
    return status;
}

/* ---- inspect ---- */

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

int tr_mf_inspect(void *mf, tr_query *query)
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
    if (isfinite(m->last.metric)) tr_line(query, "test rmse", "%.6f", m->last.metric);
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
