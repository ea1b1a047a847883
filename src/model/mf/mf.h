/* model/mf/ — matrix factorization: a rating r of item i by user u is approached by μ + b_u + c_i + p_u · q_i.
 *
 *   mf       the kind of model itself; data, tables, first values and test error, which both methods share
 *   ratings  ratings brought to the workers that need them, and put into the order in which they are worked on
 *   sgd      stochastic gradient descent: users stay with their worker, blocks of items rotate in the group
 *   tiles    its inner loops, for ratings that are cut into tiles so that factors stay in the cache
 *   als      alternating least squares: rows of the other side are pulled in pipelined batches (also non-negative and
 *            implicit feedback); als_half is one half of a sweep
 *   solve    its arithmetic, a row at a time
 *   file     model.h5: written from the tables, read by the commands
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

#include "job/job.h"
#include "model/mf/ratings.h"
#include "model/model.h"
#include "trireme/trireme.h"

struct tr_mf_sgd;
struct tr_mf_als;

/* What the job says. */
struct tr_mf_options {
    size_t rank;
    bool bias, l2_weighted, nonnegative, implicit;
    double l2, confidence;
    bool als;       /* by alternating least squares; otherwise by gradient descent, and then: */
    bool adagrad;   /* rates of each row fall with its gradients */
    bool average;   /* sync.weight con: what groups push is averaged, not added */
    uint64_t parts; /* clocks of an epoch; 0: chosen */
    double rate, decay, global_rate;
    uint64_t epochs, every; /* in all, and between evaluations */
    uint64_t seed;
    double target;
    uint64_t ahead, row_bytes; /* of pulling: requests that are under way, and bytes of one */
};

struct tr_mf {
    tr_context *tr;
    struct tr_mf_options o;
    tr_data *train, *test; /* test: NULL without data.test */
    uint64_t users,
        items;          /* of training: rows of the tables. Test data may have numbers beyond (cold ones) */
    size_t rank, width; /* factors; elements of a row of a table: rank + bias */
    bool bias;          /* column `rank` of each row */
    bool
        centred; /* the mean is subtracted from ratings: with biases, and by sgd where factors may be negative */
    double mean; /* μ: of all training ratings; 0 if not centred. All ranks know it, and the next two */
    double average, spread; /* mean and standard deviation of all training ratings, centred or not */
    tr_table *user_table, *item_table;

    /* a worker's */
    struct tr_mf_lists tests; /* the test ratings of its users … */
    tr_view *test_items;      /* … and the items that they are of */
    struct tr_mf_sgd *sgd;
    struct tr_mf_als *als;

    /* the scheduler's */
    tr_evaluation last;                     /* the latest evaluation */
    double train_rmse, test_rmse, test_mae; /* of it; NaN without test data */
    double ratings;                         /* trained on in the epoch before it, by all workers */
};

enum tr_mf_side { TR_MF_USER, TR_MF_ITEM };

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
enum tr_mf_sum { TR_MF_SQUARES, TR_MF_RATINGS, TR_MF_TEST_SQUARES, TR_MF_TEST_ABSOLUTES, TR_MF_TEST_RATINGS };
int tr_mf_summarize(void *mf, const tr_report *sums, tr_evaluation *evaluation);

/* A worker's test ratings: their view of items is opened in a stage's prepare function, and their errors are added to
 * the report in evaluate; user() gives the row of the i-th of train->row. Both do nothing without test data. */
int tr_mf_open_tests(struct tr_mf *m);
int tr_mf_add_tests(struct tr_mf *m, const float *(*user)(const struct tr_mf *m, size_t i),
                    tr_report *report);

/* What checkpoints keep of the latest evaluation: in snapshot functions. */
int tr_mf_keep_evaluation(struct tr_mf *m, tr_snapshot *snapshot);

/* The methods: all ranks. Each runs its stage and leaves both tables filled. */
int tr_mf_sgd_train(struct tr_mf *m);
int tr_mf_als_train(struct tr_mf *m);

/* Frees what a method keeps (NULL inside is fine). */
void tr_mf_sgd_free(struct tr_mf_sgd **sgd);
void tr_mf_als_free(struct tr_mf_als **als);

#endif
