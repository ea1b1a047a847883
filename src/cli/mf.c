/* predict, evaluate and inspect of matrix factorization. */
#define _GNU_SOURCE
#include "cli/kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/printout.h"
#include "trireme/records.h"
#include "model/mf/file.h"

enum { TOP = 10 };

struct reading {
    const struct tr_options *options;
    struct tr_mf_saved *model;
    struct tr_printout output;
    bool *seen; /* --top: users that have their lines */
    char *cold; /* the last user that is unknown, and has them too */
    uint64_t cold_users, cold_items, ratings;
    double squares, absolutes;
};

/* Calls rating() for all lines of DATA. */
static int each_rating(struct reading *r, bool third_may_miss,
                       int (*rating)(void *, const struct tr_rating *))
{
    const struct tr_options *o = r->options;
    return tr_read_ratings(o->word + 1, o->words - 1, third_may_miss, rating, r);
}

/* The number of an id; one that no row has where it is unknown. */
static uint64_t number_of(const struct tr_mf_saved_side *side, const char *id, size_t length,
                          uint64_t *unknown)
{
    uint64_t number;
    if (tr_name_find(&side->names, id, length, &number)) return number;
    if (unknown) ++*unknown;
    return UINT64_MAX;
}

static double predicted(struct reading *r, const struct tr_rating *rating)
{
    uint64_t user = number_of(&r->model->user, rating->user, rating->user_length, &r->cold_users);
    uint64_t item = number_of(&r->model->item, rating->item, rating->item_length, &r->cold_items);
    r->ratings++;
    return tr_mf_saved_predict(r->model, user, item);
}

static void say_cold(const struct reading *r)
{
    if (r->cold_users + r->cold_items == 0) return;
    fprintf(stderr,
            "trireme: note: of %llu ratings %llu are of users and %llu of items that the model does not "
            "know: %s\n",
            (unsigned long long)r->ratings, (unsigned long long)r->cold_users,
            (unsigned long long)r->cold_items,
            r->model->bias ? "they count with the mean and what is known of the other side"
                           : "they count with the mean of all");
}

/* ================ predict ================ */

static int put_number(struct reading *r, double value, char end)
{
    char text[TR_NUMBER_ROOM + 2];
    char *at = tr_put_f32(text, (float)value);
    *at++ = end;
    *at = '\0';
    return fputs(text, r->output.file) < 0 ? tr_printout_failed(&r->output) : TR_OK;
}

static int predict_pair(void *state, const struct tr_rating *rating)
{
    struct reading *r = state;
    return put_number(r, predicted(r, rating), '\n');
}

/* «user item rating» lines, best first. */
static int put_best(struct reading *r, const char *user, size_t length, uint64_t number)
{
    size_t n = tr_min_size((size_t)r->options->top, r->model->item.n);
    uint64_t *item = NULL;
    double *rating = NULL;
    int status = TR_NEW(&item, n);
    if (status == TR_OK) status = TR_NEW(&rating, n);
    if (status == TR_OK) status = tr_mf_saved_best(r->model, number, &n, item, rating);
    for (size_t i = 0; i < n && status == TR_OK; i++) {
        fprintf(r->output.file, "%.*s ", (int)length, user);
        status = tr_name_print(&r->model->item.names, (size_t)item[i], r->output.file);
        if (status == TR_OK && putc(' ', r->output.file) < 0) status = tr_printout_failed(&r->output);
        if (status == TR_OK) status = put_number(r, rating[i], '\n');
    }
    free(item);
    free(rating);
    return status;
}

/* Once for each user; of unknown ones, once for neighbouring lines. */
static int predict_user(void *state, const struct tr_rating *rating)
{
    struct reading *r = state;
    uint64_t user = number_of(&r->model->user, rating->user, rating->user_length, NULL);
    if (user < r->model->user.n) {
        if (r->seen[user]) return TR_OK;
        r->seen[user] = true;
    } else {
        size_t n = rating->user_length;
        if (r->cold && strlen(r->cold) == n && memcmp(r->cold, rating->user, n) == 0) return TR_OK;
        free(r->cold);
        TR_TRY(tr_format(&r->cold, "%.*s", (int)n, rating->user));
    }
    return put_best(r, rating->user, rating->user_length, user);
}

static int predict_one(struct reading *r)
{
    const char *id = r->options->user;
    uint64_t user = number_of(&r->model->user, id, strlen(id), NULL);
    if (user == UINT64_MAX && !r->model->bias)
        return tr_fail(TR_ERR_USAGE, "%s: the model knows no user %s", r->model->path, id);
    return put_best(r, id, strlen(id), user);
}

static int check_wish(const struct tr_options *o)
{
    bool top = tr_given(o, TR_OPTION_TOP), user = tr_given(o, TR_OPTION_USER);
    if (user && !top) return tr_fail(TR_ERR_USAGE, "predict: --user needs --top N");
    if (user && o->words > 1)
        return tr_fail(TR_ERR_USAGE, "predict: unexpected %s beside --user", o->word[1]);
    if (tr_given(o, TR_OPTION_FORMAT) && strcmp(o->format, "ratings") != 0)
        return tr_fail(TR_ERR_USAGE, "predict: --format %s, but a factorization expects ratings", o->format);
    return TR_OK;
}

static int predict_all(struct reading *r)
{
    const struct tr_options *o = r->options;
    if (tr_given(o, TR_OPTION_USER)) return predict_one(r);
    if (!tr_given(o, TR_OPTION_TOP)) return each_rating(r, true, predict_pair);
    TR_TRY(TR_NEW(&r->seen, r->model->user.n));
    return each_rating(r, true, predict_user);
}

static int predict(const struct tr_options *o)
{
    struct reading r = {.options = o};
    TR_TRY(check_wish(o));
    TR_TRY(tr_mf_load(o->word[0], &r.model));
    int status = tr_printout_open(o->output, &r.output);
    if (status == TR_OK) status = tr_printout_close(&r.output, predict_all(&r));
    if (status == TR_OK) say_cold(&r);
    free(r.seen);
    free(r.cold);
    tr_mf_saved_free(&r.model);
    return status;
}

/* ================ evaluate ================ */

static int evaluate_rating(void *state, const struct tr_rating *rating)
{
    struct reading *r = state;
    double error = (double)rating->value - predicted(r, rating);
    r->squares += error * error;
    r->absolutes += fabs(error);
    return TR_OK;
}

static void show_errors(const struct reading *r, bool json)
{
    double n = (double)r->ratings, rmse = sqrt(r->squares / n), mae = r->absolutes / n;
    if (json) {
        printf("{\"model\": \"mf\", \"ratings\": %llu, \"rmse\": %.17g, \"mae\": %.17g, "
               "\"of_unknown_users\": %llu, "
               "\"of_unknown_items\": %llu}\n",
               (unsigned long long)r->ratings, rmse, mae, (unsigned long long)r->cold_users,
               (unsigned long long)r->cold_items);
        return;
    }
    printf("%-8s  %llu\n", "ratings", (unsigned long long)r->ratings);
    printf("%-8s  %.6f\n%-8s  %.6f\n", "rmse", rmse, "mae", mae);
    say_cold(r);
}

static int evaluate(const struct tr_options *o)
{
    struct reading r = {.options = o};
    TR_TRY(tr_mf_load(o->word[0], &r.model));
    int status = each_rating(&r, false, evaluate_rating);
    if (status == TR_OK && r.ratings == 0)
        status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no rating in it", o->word[1]);
    if (status == TR_OK) show_errors(&r, tr_given(o, TR_OPTION_JSON));
    tr_mf_saved_free(&r.model);
    return status;
}

/* ================ inspect ================ */

static void show_side(const struct tr_mf_saved *m, const struct tr_mf_saved_side *side, const char *name)
{
    double squares = 0, least = INFINITY, most = 0;
    for (uint64_t i = 0; i < side->n; i++) {
        double row = 0;
        for (uint64_t k = 0; k < m->rank; k++)
            row += (double)side->row[i * m->rank + k] * (double)side->row[i * m->rank + k];
        squares += row;
        least = fmin(least, row);
        most = fmax(most, row);
    }
    tr_show(name, "%llu, length of a row %.4g to %.4g, %.4g in the mean of squares",
            (unsigned long long)side->n, sqrt(least), sqrt(most), sqrt(squares / (double)side->n));
}

static void show_head(const struct tr_mf_saved *m)
{
    tr_show("model", "matrix factorization (%s%s)", m->method, m->implicit ? ", implicit" : "");
    tr_show("rank", "%llu%s", (unsigned long long)m->rank, m->bias ? ", and biases" : "");
    show_side(m, &m->user, "users");
    show_side(m, &m->item, "items");
    tr_show("mean", "%.6g", m->mean);
    tr_show("l2", "%.6g", m->l2);
    tr_show("trained on", "%llu ratings", (unsigned long long)m->ratings);
    if (isfinite(m->train_rmse)) tr_show("train rmse", "%.6f", m->train_rmse);
    if (isfinite(m->test_rmse)) tr_show("test rmse", "%.6f", m->test_rmse);
}

static int show_best(struct reading *r, const char *id)
{
    struct tr_mf_saved *m = r->model;
    uint64_t user = number_of(&m->user, id, strlen(id), NULL), *item = NULL;
    if (user == UINT64_MAX) return tr_fail(TR_ERR_USAGE, "%s: the model knows no user %s", m->path, id);
    size_t n = tr_given(r->options, TR_OPTION_TOP) ? (size_t)r->options->top : TOP;
    double *rating = NULL;
    int status = TR_NEW(&item, n);
    if (status == TR_OK) status = TR_NEW(&rating, n);
    if (status == TR_OK) status = tr_mf_saved_best(m, user, &n, item, rating);
    if (status == TR_OK) printf("\nbest items of user %s\n", id);
    for (size_t i = 0; i < n && status == TR_OK; i++) {
        printf("%10.4f  ", rating[i]);
        status = tr_name_print(&m->item.names, (size_t)item[i], stdout);
        putchar('\n');
    }
    free(item);
    free(rating);
    return status;
}

static int inspect(const char *path, const struct tr_options *o)
{
    struct reading r = {.options = o};
    TR_TRY(tr_mf_load(path, &r.model));
    int status = TR_OK;
    show_head(r.model);
    if (tr_given(o, TR_OPTION_USER)) status = show_best(&r, o->user);
    else if (r.model->job) printf("\njob\n%s", r.model->job);
    tr_mf_saved_free(&r.model);
    return status;
}

const struct tr_command_kind tr_mf_commands = {
    .format = TR_MF_FORMAT,
    .what = "a factorization",
    .predicts_with = TR_OPTION_TOP | TR_OPTION_USER | TR_OPTION_FORMAT,
    .inspects_with = TR_OPTION_TOP | TR_OPTION_USER,
    .predict = predict,
    .evaluate = evaluate,
    .inspect = inspect,
};
