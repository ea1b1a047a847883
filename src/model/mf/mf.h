/* model/mf/ — matrix factorization: the rating r of item i by user u is approximated by μ + b_u + c_i + p_u · q_i.
 *
 *   mf       the model class; data, tables, initial values and test error of both methods
 *   ratings  distribution of ratings to workers, and their order
 *   sgd      stochastic gradient descent: users stay with their worker, blocks of items rotate through the group
 *   tiles    inner loops of sgd: ratings in tiles whose factors fit into the cache
 *   als      alternating least squares: rows of the other side are pulled in pipelined batches (also non-negative and
 *            implicit feedback); als_half is one half of a sweep
 *   solve    arithmetic of als for one row
 *   saved    model file, predict, evaluate, inspect
 *
 * The tables "users" and "items" (f32) have one row per user or item: columns 0 .. rank - 1 are the factors, column `rank` is
 * the bias if the model has biases (width = rank + bias). A worker has all ratings and the factors of its users. After
 * training both tables contain the model; saving reads only them.
 *
 * Objective: Σ (r - prediction)² + λ (Σ n_u |p_u|² + Σ n_i |q_i|²) with n the number of ratings, or with model.l2_weighted no
 * λ (Σ |p_u|² + Σ |q_i|²). Biases are regularised like factors.
 */
#ifndef TR_MODEL_MF_H
#define TR_MODEL_MF_H

#include "ratings.h"
#include "trireme/trireme.h"

struct tr_mf_sgd;
struct tr_mf_als;

enum tr_mf_side { TR_MF_USER, TR_MF_ITEM };
enum { TR_MF_SGD, TR_MF_ALS }; /* methods */
enum { TR_MF_PLAIN, TR_MF_ADAGRAD };

/* Settings of the class. */
struct tr_mf_options {
    uint64_t rank;
    bool bias, l2_weighted, nonnegative, implicit;
    double l2, confidence;
    double rate, decay;
    int optimizer;
};

/* One side of a model file. */
struct tr_mf_saved {
    float *row, *bias; /* n × width, including biases; n biases, NULL if the model has none */
    struct tr_name_list names;
};

struct tr_mf {
    /* content of model.h5 */
    uint64_t users, items; /* rows of the tables; test data may have higher numbers (cold users and items) */
    uint64_t rank, ratings;
    uint64_t bias;                /* 1: the model has biases */
    uint64_t centred;             /* 1: the mean is subtracted from ratings */
    uint64_t implicit;            /* 1: ratings are counts of interactions */
    double average;               /* of all training ratings */
    double l2;                    /* λ */
    double train_rmse, test_rmse; /* last evaluation, on the scheduler; NaN without test data */
    char *method;
    struct tr_mf_saved saved[2]; /* by enum tr_mf_side; empty during training */

    /* derived values */
    size_t width; /* elements per row of a table: rank + bias */
    double mean;  /* μ: average if centred, otherwise 0 */

    /* training */
    tr_context *tr;
    const struct tr_mf_options *o;
    bool by_als, averages;        /* solve.method als; sync.weight con: updates of groups are averaged */
    int64_t epochs, report_every; /* number of epochs; epochs between evaluations */
    uint64_t seed;
    double target, spread; /* spread: standard deviation of all training ratings, on all ranks */
    tr_data *train, *test; /* test: NULL without data.test */
    tr_table *user_table, *item_table;
    struct tr_mf_lists tests; /* test ratings of this worker's users */
    tr_view *test_items;      /* the items of these ratings */
    struct tr_mf_sgd *sgd;
    struct tr_mf_als *als;
    tr_evaluation last; /* on the scheduler: last evaluation */
    double trained;     /* on the scheduler: ratings that all workers trained on in the epoch before it */
    bool writes_bias;   /* while a side is written: its biases, otherwise its factors */
    tr_table *written;  /* table of that side */
};

extern const tr_model_class tr_mf_class;

/* Computes the initial values of a row: small random factors, a function of seed, side and number; the bias is 0.
 *
 * @param [out] row  width elements
 */
void tr_mf_first_row(const struct tr_mf *m, enum tr_mf_side side, uint64_t number, float *row);

/* model.nonnegative: sets negative factors of a row to 0. Rounding and sums over groups may leave some in the tables, so that
 * every reader must call it. Does nothing for other models. */
void tr_mf_clip(const struct tr_mf *m, float *row);

/* Returns the prediction for a pair.
 *
 * @param [in] user, item  rows of width elements; NULL: a cold user or item, predicted from the mean and the other bias
 */
double tr_mf_predict(const struct tr_mf *m, const float *user, const float *item);

/* Returns the value that a rating stands for in all errors: the rating itself; for an implicit model 1 if the count is
 * positive, otherwise 0. */
static inline double tr_mf_wanted(const struct tr_mf *m, float rating)
{
    return m->implicit ? rating > 0 : (double)rating;
}

/* Sums of an evaluation. Objective: RMSE on the training ratings (implicit: mean weighted loss). Metric: RMSE on test
 * ratings. */
enum tr_mf_sum { TR_MF_SQUARES, TR_MF_RATINGS, TR_MF_TEST_SQUARES, TR_MF_TEST_RATINGS };
int tr_mf_summarize(void *mf, const tr_report *sums, tr_evaluation *evaluation);

/* Test error: opens the view of the test items in a stage's prepare function, and adds the errors of this worker's test
 * ratings to the report in evaluate(). Both do nothing without test data.
 *
 * @param [in] user  returns the factors of the i-th user of train->row
 */
int tr_mf_open_tests(struct tr_mf *m);
int tr_mf_add_tests(struct tr_mf *m, const float *(*user)(const struct tr_mf *m, size_t i),
                    tr_report *report);

/* Lists the last evaluation in a snapshot. */
int tr_mf_snapshot_evaluation(struct tr_mf *m, tr_snapshot *snapshot);

/* Train by one of the methods, so that both tables contain the model. All ranks. */
int tr_mf_sgd_train(struct tr_mf *m);
int tr_mf_als_train(struct tr_mf *m);

/* Free the state of a method. The pointer may be NULL. */
void tr_mf_sgd_free(struct tr_mf_sgd **sgd);
void tr_mf_als_free(struct tr_mf_als **als);

/* ---- functions of the model class (saved.c) ---- */

int tr_mf_fields(void *mf, tr_fields *fields);
int tr_mf_answer(void *mf, tr_query *query);
int tr_mf_inspect(void *mf, tr_query *query);
void tr_mf_saved_close(struct tr_mf *m);

/* Finds the best items of a user, in descending order of predicted rating, ties by number.
 *
 * @param [in]     user    m->users or above: a cold user
 * @param [in,out] n       maximum number of items; number found
 * @param [out]    item    numbers; free them with free()
 * @param [out]    rating  predicted ratings; free them with free()
 */
int tr_mf_best(const struct tr_mf *m, uint64_t user, size_t *n, uint64_t **item, double **rating);

/* Returns the prediction of a model that was read. Numbers from m->users or m->items on are cold. */
double tr_mf_predict_saved(const struct tr_mf *m, uint64_t user, uint64_t item);

#endif
