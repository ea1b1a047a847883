/* model/mf/ — matrix factorization (M35): a rating r of item i by user u is approached by μ + b_u + c_i + p_u · q_i.
 *
 *   mf       data, tables, first values, RMSE: what the two methods share, and the kind of model itself
 *   sgd      stochastic gradient descent: users stay with their worker, blocks of items rotate in the group
 *   sgd_open what it begins with: test ratings, blocks, first biases; sgd_keep what checkpoints keep of it
 *   tiles    its inner loops, for ratings that are cut so that factors stay in the cache
 *   cut      cutting them
 *   meet     test ratings, brought to the workers that have their users
 *   als      alternating least squares: rows of the other side are pulled in pipelined batches (also non-negative and
 *            implicit feedback); als_open has what a worker holds for it, als_half one half of a sweep
 *   solve    its arithmetic, a row at a time
 *   by_item  ratings exchanged, so that each worker has those of some items
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
#include "model/model.h"
#include "trireme/trireme.h"

struct tr_mf_sgd;
struct tr_mf_als;

struct tr_mf {
    tr_context *tr;
    const tr_job *job;
    tr_data *train, *test; /* test: NULL without data.test */
    uint64_t users,
        items;          /* of training: rows of the tables. Test data may have numbers beyond (cold ones) */
    size_t rank, width; /* factors; elements of a row of a table: rank + bias */
    bool bias;          /* model.bias: column `rank` of each row */
    bool centred;       /* factors learn what differs from the mean: with biases, and by sgd where they may be
                           negative */
    double l2;          /* λ */
    double mean; /* μ: of all training ratings; 0 if not centred. All ranks know it, and the next two */
    double average,
        spread; /* of all training ratings, with bias or without: their mean and standard deviation */
    tr_table *user_table, *item_table;

    /* a worker's: of the method that trains */
    struct tr_mf_sgd *sgd;
    struct tr_mf_als *als;

    /* the scheduler's */
    tr_evaluation last;                     /* the latest evaluation */
    double train_rmse, test_rmse, test_mae; /* of it; NaN without test data */
};

/* What workers sum up for an evaluation; tr_mf_judge() makes a evaluation of it: objective = RMSE on the training ratings
 * (implicit: the mean weighted loss), metric = RMSE on test ratings. */
enum tr_mf_sum {
    TR_MF_SQUARES, /* Σ (r - prediction)² over this worker's training ratings … */
    TR_MF_RATINGS, /* … and how many */
    TR_MF_PENALTY, /* λ terms of its users, and of the items it answers for: each item once over all workers */
    TR_MF_TEST_SQUARES,
    TR_MF_TEST_ABSOLUTES,
    TR_MF_TEST_RATINGS
};
int tr_mf_judge(void *mf, const tr_report *sums, tr_evaluation *evaluation);
int tr_mf_keep_judged(struct tr_mf *m,
                      tr_snapshot *snapshot); /* what is saved of it: in snapshot functions */

/* All ranks, once the data are there: what sgd needs and is no part of training. Errors are agreed on. */
int tr_mf_sgd_open(struct tr_mf *m);

/* The methods: all ranks. Each runs its stage and leaves both tables filled. */
int tr_mf_sgd_train(struct tr_mf *m);
int tr_mf_als_train(struct tr_mf *m);

/* Frees what a method keeps (NULL is fine). */
void tr_mf_sgd_free(struct tr_mf_sgd **sgd);
void tr_mf_als_free(struct tr_mf_als **als);

enum tr_mf_side { TR_MF_USER, TR_MF_ITEM };

/* The first values of a row of `width` elements: small random factors, by (seed, side, number) alone and so the same
 * for every layout; the bias is 0. */
void tr_mf_first_row(const struct tr_mf *m, enum tr_mf_side side, uint64_t number, float *row);

/* model.nonnegative: rounding, and sums of what several groups have made of a row, may leave factors below 0 in the
 * tables. Whoever reads rows puts them back to 0; does nothing in other models. */
void tr_mf_settle(const struct tr_mf *m, float *row);

/* What is predicted of a pair: rows of `width` elements; NULL for a cold user or item, who counts with what is known
 * of the other side: mean and bias. */
double tr_mf_predict(const struct tr_mf *m, const float *user, const float *item);

/* λ where the job leaves it open (model.l2 auto), by method. */
double tr_mf_default_l2(const tr_job *job);

#endif
