/* model/mf/ — matrix factorization: the rating r of item i by user u is approximated by μ + b_u + c_i + p_u · q_i.
 *
 *   mf       the model class; data, tables, initial values and test error of both methods
 *   ratings  distribution of ratings to workers, and their order
 *   sgd      stochastic gradient descent: users stay with their worker, blocks of items rotate through the group
 *   als      alternating least squares: rows of the other side are pulled in pipelined batches (also non-negative and
 *            implicit feedback)
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

#include "trireme/cpu.h"
#include "trireme/trireme.h"

/* ================ ratings in tiles, and steps of gradient descent (sgd.c) ================ */

/* Ratings in tiles, and one pass of SGD over a tile, the serial work of a worker on a block of items.
 *
 * A tile consists of all users of a worker and of the number of items that fits into the L2 cache. Its ratings are ordered by user (a
 * visit is one user's ratings in one tile): the user's row stays in registers during a visit, and the rows of users are
 * streamed once per tile. 6 bytes per rating, 8 per visit.
 */

/* Rows are aligned and padded to this number of floats, one cache line. */
enum { TR_MF_ALIGN = 16 };

struct tr_mf_visit {
    uint32_t user; /* index of its row */
    uint32_t n;    /* number of ratings */
};

struct tr_mf_tile {
    const struct tr_mf_visit *visit;
    size_t visits, ratings;
    const uint16_t *item; /* item of each rating, as index in the tile; distinct within a visit */
    const float *value;   /* ratings; both arrays are readable for 16 further elements */
};

/* Factors of some users or items. */
struct tr_mf_rows {
    float *row;  /* `width` floats each, aligned to a cache line; the padding is 0 and remains 0 */
    float *bias; /* NULL: no biases */
    float *
        sum; /* adagrad: sum over steps of the mean square of the gradient, per row; NULL: one rate for all rows */
    float *share; /* model.l2_weighted no: fraction of λ per rating, 1/n; NULL: λ per rating */
};

/* Returns the rows from row i on. */
static inline struct tr_mf_rows tr_mf_rows_from(const struct tr_mf_rows *rows, size_t i, size_t width)
{
    return (struct tr_mf_rows){rows->row + i * width, rows->bias ? rows->bias + i : NULL,
                               rows->sum ? rows->sum + i : NULL, rows->share ? rows->share + i : NULL};
}

/* Parameters of a pass. */
struct tr_mf_pass {
    enum tr_cpu level;
    size_t width; /* floats per row including padding: a multiple of TR_MF_ALIGN */
    size_t rank;
    float mean;        /* μ */
    float rate;        /* with sums: divided by the square root of the row's sum */
    float l2, bias_l2; /* λ of factors and of biases */
    float bias_part;   /* rate of biases divided by the rate of factors */
    float crowd;       /* number of groups that change the same items at the same time; scales the sums */
    bool nonnegative;  /* factors (not biases) are kept at 0 or above */
    float *spare;      /* scratch memory for an aligned row */
};

/* Allocates n uninitialised elements aligned to a cache line, in huge pages if large and available. Free with free(). */
int tr_mf_memory(void **memory, size_t n, size_t size);

/* Performs one step on every rating of a tile. The errors of up to 16 ratings of a user are computed before its row changes
 * by their sum.
 *
 * @param [in,out] items  rows of the tile's items
 * @return the sum of squared errors before the steps
 */
double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                       const struct tr_mf_rows *users, const struct tr_mf_rows *items);

/* ================ ratings (ratings.c) ================ */

/* Distribution of ratings to workers, and their order.
 *
 * Each worker has all training ratings of its users. Alternating least squares needs all ratings of its items as well. Test
 * ratings are sent to the workers that train their users, because these have the factors. Gradient descent uses tiles of
 * users × items.
 */

/* Divides n pieces of work into parts of similar work.
 *
 * @param [in]  work   work of each piece
 * @param [out] bound  parts + 1 numbers: part p has the pieces bound[p] .. bound[p + 1] - 1
 */
void tr_mf_divide(size_t n, const double *work, size_t parts, size_t *bound);

/* Ratings by row; a row is a user or an item. */
struct tr_mf_lists {
    size_t n;        /* rows */
    uint64_t *begin; /* row i has the ratings begin[i] .. begin[i + 1] - 1 */
    uint32_t *other; /* index in `key` of the row of the other side */
    float *value;
    tr_key *key; /* numbers of the other side that occur, ascending */
    size_t keys;
};

/* Distributes training ratings by item: each worker receives a range of items with similar work. All workers. Messages have a
 * few megabytes.
 *
 * @param [in]  item_work  work per item besides its ratings, in units of one rating
 * @param [out] first      first item of this worker's range
 * @param [out] lists      ratings of the range; free them with tr_mf_lists_free(), also after an error
 */
int tr_mf_by_item(tr_context *tr, const tr_data *train, double item_work, uint64_t *first,
                  struct tr_mf_lists *lists);
void tr_mf_lists_free(struct tr_mf_lists *lists);

/* Distributes test ratings to the workers that train their users. All workers.
 *
 * @param [out] lists  a row for each user of train->row, and a last row for cold users; cold items have other = keys. Free
 *                     them with tr_mf_lists_free(), also after an error
 */
int tr_mf_by_user(tr_context *tr, const tr_data *train, const tr_data *test, struct tr_mf_lists *lists);

/* ---- tiles ---- */

/* A worker's ratings in tiles: by part of its users, by block of items, by tile of the block. Blocks rotate through the group;
 * a part is trained on in one rotation. 6 bytes per rating and 8 per visit. Independent of the data it was made from. */
struct tr_mf_tiling {
    size_t blocks, parts;
    const uint64_t *first_item; /* blocks + 1 numbers: first item of each block; not owned */
    size_t tile_items;          /* items per tile; the last tile of a block may have fewer */
    size_t *first_tile;         /* blocks + 1 numbers: first tile of each block in a part */
    struct tr_mf_tile *tile;    /* parts × first_tile[blocks] */
    struct tr_mf_visit *visit;
    uint16_t *item;
    float *value;
    size_t ratings;
};

/* Creates the tiles. Values become (value - mean) × scale.
 *
 * @param [in]  first_item  blocks + 1 numbers; must outlive the tiling
 * @param [out] tiling      free it with tr_mf_tiling_free(), also after an error
 */
int tr_mf_tile_ratings(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item,
                       size_t tile_items, double mean, double scale, struct tr_mf_tiling *tiling);
void tr_mf_tiling_free(struct tr_mf_tiling *tiling);

/* Returns the *n tiles of a part and a block. Tile t starts with item t × tile_items of the block. */
const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_tiling *tiling, size_t part, size_t block,
                                        size_t *n);

/* ================ the model ================ */

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
    uint64_t bias;     /* 1: the model has biases */
    uint64_t centred;  /* 1: the mean is subtracted from ratings */
    uint64_t implicit; /* 1: ratings are counts of interactions */
    double average;    /* of all training ratings */
    double l2;         /* λ */
    /* Last evaluation, on the scheduler and from the file. objective: RMSE on the training ratings; metric: on the test
     * ratings, NaN without them. */
    tr_evaluation last;
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
    double spread;         /* standard deviation of all training ratings, on all ranks */
    tr_data *train, *test; /* test: NULL without data.test */
    tr_table *user_table, *item_table;
    struct tr_mf_lists tests; /* test ratings of this worker's users */
    tr_view *test_items;      /* the items of these ratings */
    struct tr_mf_sgd *sgd;
    struct tr_mf_als *als;
    double trained;    /* on the scheduler: ratings that all workers trained on in the epoch before it */
    bool writes_bias;  /* while a side is written: its biases, otherwise its factors */
    tr_table *written; /* table of that side */
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
