/* model/mf/ — matrix factorization: a rating r of item i by user u is approached by μ + b_u + c_i + p_u · q_i.
 *
 *   mf       the kind of model itself; data, tables, first values and test error, which both methods share
 *   ratings  ratings brought to the workers that need them, and put into the order in which they are worked on
 *   sgd      stochastic gradient descent: users stay with their worker, blocks of items rotate in the group
 *   tiles    its inner loops, for ratings that are cut into tiles so that factors stay in the cache
 *   als      alternating least squares: rows of the other side are pulled in pipelined batches (also non-negative and
 *            implicit feedback); als_half is one half of a sweep
 *   solve    its arithmetic, a row at a time
 *   saved    model.h5, and what is asked of a model that has been read
 *
 * Two tables of f32, "users" and "items", a row for each: columns 0 .. rank-1 are the factors, column rank is the bias
 * where the model has one (width = rank + bias). Workers hold whole rows of the data (users), so ratings and factors of
 * a user are one worker's. After training both tables hold the model; saving reads nothing else.
 *
 * What is minimised: Σ (r - prediction)² + λ (Σ n_u |p_u|² + Σ n_i |q_i|²), with n the numbers of ratings, or plainly
 * λ (Σ |p_u|² + Σ |q_i|²) (model.l2_weighted no); biases are regularised like factors.
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

/* One side of a model that has been read. */
struct tr_mf_saved {
    float *row, *bias; /* n × width, in which biases are then; n, NULL without them */
    struct tr_name_list names;
};

struct tr_mf {
    /* what model.h5 has */
    uint64_t users,
        items; /* of training: rows of the tables. Test data may have numbers beyond (cold ones) */
    uint64_t rank, ratings;
    uint64_t bias; /* 1: column `rank` of each row of the tables */
    uint64_t
        centred; /* 1: the mean is subtracted from ratings: with biases, and by sgd where factors may be negative */
    uint64_t implicit; /* 1: ratings count how often something was chosen */
    double average;    /* of all training ratings */
    double l2;
    double train_rmse,
        test_rmse; /* of the latest evaluation, known to the scheduler; NaN without test data */
    char *method;
    struct tr_mf_saved saved[2]; /* by enum tr_mf_side; nothing while it is trained */

    /* what follows from it */
    size_t width; /* elements of a row of a table: rank + bias */
    double mean;  /* μ, which is subtracted: the average, or 0 if not centred */

    /* training */
    tr_context *tr;
    const struct tr_mf_options *o;
    bool by_als, averages; /* by alternating least squares; sync.weight con: what groups push is averaged */
    int64_t epochs, report_every; /* in all, and between evaluations */
    uint64_t seed;
    double target, spread; /* spread: standard deviation of all training ratings; known to all ranks */
    tr_data *train, *test; /* test: NULL without data.test */
    tr_table *user_table, *item_table;
    struct tr_mf_lists tests; /* a worker's: the test ratings of its users … */
    tr_view *test_items;      /* … and the items that they are of */
    struct tr_mf_sgd *sgd;
    struct tr_mf_als *als;
    tr_evaluation last; /* the scheduler's: the latest … */
    double trained;     /* … and the ratings trained on in the epoch before it, by all workers */
    bool writes_bias;   /* while rows are written: of a side the biases, or the factors */
    tr_table *written;
};

extern const tr_model_class tr_mf_class;

/* The first values of a row of `width` elements: small random factors, by (seed, side, number) alone and so the same
 * for every layout; the bias is 0. */
void tr_mf_first_row(const struct tr_mf *m, enum tr_mf_side side, uint64_t number, float *row);

/* model.nonnegative: rounding, and sums of what several groups have made of a row, may leave factors below 0 in the
 * tables. Whoever reads rows puts them back to 0; does nothing in other models. */
void tr_mf_clip(const struct tr_mf *m, float *row);

/* What is predicted of a pair: rows of `width` elements; NULL for a cold user or item, who counts with what is known
 * of the other side: mean and bias. */
double tr_mf_predict(const struct tr_mf *m, const float *user, const float *item);

/* What workers sum up for an evaluation: objective = RMSE on the training ratings (implicit: the mean weighted loss),
 * metric = RMSE on test ratings. */
enum tr_mf_sum { TR_MF_SQUARES, TR_MF_RATINGS, TR_MF_TEST_SQUARES, TR_MF_TEST_RATINGS };
int tr_mf_summarize(void *mf, const tr_report *sums, tr_evaluation *evaluation);

/* A worker's test ratings: their view of items is opened in a stage's prepare function, and their errors are added to
 * the report in evaluate; user() gives the row of the i-th of train->row. Both do nothing without test data. */
int tr_mf_open_tests(struct tr_mf *m);
int tr_mf_add_tests(struct tr_mf *m, const float *(*user)(const struct tr_mf *m, size_t i),
                    tr_report *report);

/* What checkpoints keep of the latest evaluation: in snapshot functions. */
int tr_mf_snapshot_evaluation(struct tr_mf *m, tr_snapshot *snapshot);

/* The methods: all ranks. Each runs its stage and leaves both tables filled. */
int tr_mf_sgd_train(struct tr_mf *m);
int tr_mf_als_train(struct tr_mf *m);

/* Frees what a method keeps (NULL inside is fine). */
void tr_mf_sgd_free(struct tr_mf_sgd **sgd);
void tr_mf_als_free(struct tr_mf_als **als);

/* model.h5, and what is asked of it: functions of the class (trireme/model.h). */
int tr_mf_fields(void *mf, tr_fields *fields);
int tr_mf_answer(void *mf, tr_query *query);
int tr_mf_inspect(void *mf, tr_query *query);
void tr_mf_saved_close(struct tr_mf *m);

/* The best items of a user of a model that was read, best first: at most *n of them, whose numbers and ratings are
 * to be freed; equal ones by their number. A user not below m->users is cold. */
int tr_mf_best(const struct tr_mf *m, uint64_t user, size_t *n, uint64_t **item, double **rating);

/* What is predicted by it; cold ones have numbers that are not below m->users, m->items. */
double tr_mf_predict_saved(const struct tr_mf *m, uint64_t user, uint64_t item);

#endif
