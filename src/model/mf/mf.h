/* model/mf/ — matrix factorization: the rating r of item i by user u is approximated by μ + b_u + c_i + p_u · q_i.
 *
 *   mf       the model class: data, tables, initial values and test error of both methods; model file, predict, evaluate,
 *            inspect
 *   ratings  distribution of ratings to workers, and their order
 *   sgd      stochastic gradient descent: users stay with their worker, blocks of items rotate through the group
 *   als      alternating least squares: rows of the other side are pulled in pipelined batches (also non-negative and
 *            implicit feedback)
 *   solve    arithmetic of als for one row
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

#include "trireme/base.h"
#include "trireme/collective.h"
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

/* Train by one of the methods, so that both tables contain the model. All ranks.
 *
 * @param [in] limits  NULL: the defaults
 */
struct tr_als_limits;
int tr_mf_sgd_train(struct tr_mf *m);
int tr_mf_als_train(struct tr_mf *m, const struct tr_als_limits *limits);

/* Free the state of a method. The pointer may be NULL. */
void tr_mf_sgd_free(struct tr_mf_sgd **sgd);
void tr_mf_als_free(struct tr_mf_als **als);

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

/* ================ least squares for one row (solve.c) ================ */

/* Least squares for one row, given the rows of the other side: the numerical part of alternating least squares.
 *
 * A row x of `rank` factors, and a bias b if the model has biases, has n ratings. The target of the k-th rating, of row v_k,
 * is t_k = x · v_k + b (mean and bias of v_k are already subtracted). The result minimises
 *
 *   explicit   Σ_k (t_k - b - x · v_k)² + λ' (|x|² + b²),  λ' = λ n (ALS-WR; Zhou et al. 2008, section 3.1) or λ
 *   implicit   Σ_k [(1 + a |t_k|) (p_k - x · v_k)² - (x · v_k)²] + Σ_v (x · v)² + λ' |x|²,
 *              p = 1 where t > 0, else 0; Σ_v over all rows of the other side (Hu, Koren, Volinsky 2008, section 4)
 *
 * by the normal equations and Cholesky or, for few ratings, by the dual equations with one unknown per rating,
 * x = Vᵀ (V Vᵀ + λ')⁻¹ t, which have the same solution. Non-negative factors are computed by coordinate descent on the normal
 * equations, starting from the given x. A row without ratings is 0.
 */
struct tr_solve_problem {
    size_t rank;
    bool bias; /* rows have rank + 1 elements, the last is the bias; not with implicit */
    bool nonnegative, implicit;
    bool weighted;     /* λ' = λ n */
    double l2;         /* λ */
    double confidence; /* a */
};

struct tr_solver;

/* Creates a solver with its buffers. Free it with tr_solver_free(), also after an error. */
int tr_solver_new(const struct tr_solve_problem *problem, enum tr_cpu level, struct tr_solver **solver);
void tr_solver_free(struct tr_solver **solver);

/* Solves for one row.
 *
 * @param [in]     other   n rows v of at least `rank` floats
 * @param [in]     target  n numbers t
 * @param [in,out] x       rank + bias floats: the result; with nonnegative also the start
 * @return TR_ERR_DIVERGED if a value is not finite
 */
int tr_solve(struct tr_solver *solver, size_t n, const float *const *other, const float *target, float *x);

/* The same in parts, for ratings that arrive over time.
 *
 * @param [in,out] sums  tr_solver_sums() floats, zeros at first; tr_solve_sums() destroys them
 * @param [in]     n     of tr_solve_sums(): total number of ratings
 */
size_t tr_solver_sums(const struct tr_solver *solver);
void tr_solve_add(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                  float *sums);
int tr_solve_sums(struct tr_solver *solver, size_t n, float *sums, float *x);

/* The fit of the row that was solved last: the objective is loss + penalty with penalty = λ' (|x|² + b²). The loss is a
 * difference of sums. */
struct tr_solve_fit {
    double loss, penalty;
    bool cancels; /* explicit: the difference is too small to be accurate; use tr_solve_loss() */
};
struct tr_solve_fit tr_solver_fit(const struct tr_solver *solver);

/* explicit: returns the loss of x on some of its ratings. */
double tr_solve_loss(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                     const float *x);

/* implicit: adds Σ v vᵀ over n rows, `stride` floats apart, to a matrix of tr_solver_gram() doubles, which the caller sums over
 * all workers; and sets the matrix for tr_solve(). */
size_t tr_solver_gram(const struct tr_solver *solver);
void tr_gram_add(struct tr_solver *solver, size_t n, const float *rows, size_t stride, double *gram);
void tr_gram_set(struct tr_solver *solver, const double *gram);

/* Statistics since the solver was created: floating-point operations of the equations (sums of the upper halves, n³/3 per
 * factorization), and the number of rows by method. */
struct tr_solve_count {
    double flops;
    uint64_t direct, few, descents, careful; /* careful: in f64, because f32 was not accurate enough */
};
struct tr_solve_count tr_solver_count(const struct tr_solver *solver);

/* ================ alternating least squares (als.c) ================ */

/* A sweep is two clocks. In the first each worker solves for its users, given the rows of the items that they rated; in the
 * second for its items, given the rows of their users. Ratings are stored twice: by user as in the data, and by item,
 * exchanged once at the start. Each worker owns a range of items with a similar amount of work.
 *
 * Pulled rows stay in an arena of bounded memory for the clock, so that each is pulled once. If they do not all fit, the rows
 * to solve for are divided into batches. Two arenas alternate: while the rows of one batch arrive, the previous batch is
 * solved.
 *
 * A row can be solved when all rows that it needs have arrived, which for most rows is near the end. Therefore the sums of the
 * normal equations are accumulated while rows arrive: for the rows with the most ratings that fit into memory, each a few
 * times, if enough has arrived to be worth loading its sums. The time of computation between two polls adapts to
 * the time spent waiting: with shared memory there is no waiting, and everything is solved once all rows are there.
 */
/* Rows of the own side that are solved together, side->turn[first .. end - 1], and the rows of the other side that they
 * need. */
struct tr_als_batch {
    size_t first, end, n;
    uint32_t *place; /* n indices into side->keys, ascending */
};

/* One direction: the rows that this worker solves for, and their ratings. */
struct tr_als_side {
    enum tr_mf_side which;
    tr_table *own, *from;
    tr_view *view;         /* own rows; view->value contains them */
    size_t n;              /* number of own rows */
    const tr_key *number;  /* their numbers */
    const uint64_t *begin; /* own row i has the ratings begin[i] .. begin[i + 1] - 1 */
    const uint32_t *other; /* per rating: index into keys */
    const float *value;    /* per rating: the rating; NULL: all are 1 */
    const tr_key *keys;    /* numbers of the other side, ascending; may include unused ones */
    size_t n_keys;
    uint32_t *turn; /* own rows in the order of solving */
    struct tr_als_batch *batch;
    size_t batches, largest; /* number of batches; maximum number of rows that a batch needs */
    tr_table *gram_table;    /* implicit: Σ v vᵀ over all rows of the own side */
    tr_view *gram;
    double *gram_mine; /* implicit: the part of this worker's rows that was pushed */
    double loss;       /* loss of the own rows when they were last solved */
    double quantum;    /* seconds of computation between two polls, adapted */
};

/* Rows of the other side for a batch, and the progress of the batch. */
struct tr_als_arena {
    const struct tr_als_batch *batch;
    tr_key *key;     /* numbers of the rows */
    uint32_t *order; /* position of each row in the order of arrival; NOT_HERE before */
    uint32_t *slot;  /* for every index into side->keys: index of the row here; undefined for unused keys */
    float *row, *bias;
    size_t arrived; /* number of rows that have arrived */
    size_t solved;  /* next element of side->turn to solve */
};

/* Limits of memory and computation. */
struct tr_als_limits {
    size_t arena_bytes; /* memory for rows of the other side */
    size_t sums_bytes;  /* memory for sums that are accumulated while rows arrive */
    double worth;       /* minimum number of ratings that are added to the sums of a row at a time */
    double quantum;     /* minimum seconds of computation between two polls; default 0 */
};

struct tr_mf_als {
    struct tr_mf *m;
    struct tr_als_limits limits;
    struct tr_solver *solver;
    struct tr_als_side side[2]; /* by enum tr_mf_side */
    struct tr_mf_lists by_item;
    tr_key *item_number;
    bool ahead;          /* rows arrive from other nodes during computation */
    size_t stride;       /* floats per row in an arena */
    const float **other; /* scratch: rows of some ratings */
    float *target;       /* scratch: targets of these ratings */
    float *x;            /* scratch: one row */
    double *gram;        /* implicit: this worker's part of the sum */

    /* state of a clock */
    struct tr_als_side *now;
    struct tr_als_arena arena[2], *filling, *ready; /* ready: all of its rows have arrived; NULL: none */
    float *sums;                                    /* sums of begun_most rows and of one more */
    uint32_t *begun_at;                   /* arena->arrived when the sums of the row were last extended */
    size_t begun, begun_most, next_begun; /* rows with sums; their maximum number; next row to extend */
    double left_at;                       /* time when the last row was processed */
    double waited;                        /* seconds of waiting for rows since the last poll */
    double answered_at;                   /* time when requests of other ranks were last answered */
    size_t until_look, look_every;        /* rows until the next poll; rows between two polls */
};

enum { TR_ALS_CHUNK = 1024 /* number of ratings that are processed at a time */ };

#endif
