/* Matrix factorization: the rating r of item i by user u is approximated by μ + b_u + c_i + p_u · q_i. The factors p_u and q_i are
 * vectors of `rank` numbers, b_u and c_i are biases, and μ is the mean.
 *
 *   mf       the model class: data, tables, initial values and test error of both methods; model file, predict, evaluate,
 *            inspect
 *   ratings  distribution of ratings to workers, and their order
 *   sgd      stochastic gradient descent: users stay with their worker, blocks of items rotate through the group
 *   als      alternating least squares, also non-negative and with implicit feedback
 *   solve    arithmetic of als for one row
 *
 * The users are one side, the items the other side. The tables "users" and "items" (f32) have a row per user or item: columns
 * 0 .. rank - 1 are the factors; if the model has biases, column `rank` is the bias. A worker has all ratings and the factors of
 * its users. After training both tables contain the model; saving reads only these tables. A user or item without training
 * ratings is cold.
 *
 * Objective: Σ (r - prediction)² + λ (Σ n_u |p_u|² + Σ n_i |q_i|²) with n the number of ratings, or with model.l2_weighted no
 * λ (Σ |p_u|² + Σ |q_i|²). Biases are regularised like factors, by λ / s, where s is the standard deviation of the ratings: if ratings
 * are multiplied by c, biases must grow by c, but factors by √c. */
#ifndef TR_MODEL_MF_H
#define TR_MODEL_MF_H

#include "trireme/base.h"
#include "trireme/collective.h"
#include "trireme/cpu.h"
#include "trireme/trireme.h"

/* ================ ratings in tiles, and steps of gradient descent (sgd.c) ================ */

/* A tile contains the ratings of a worker's users for some items of a block, whose rows fit into the L2 cache. The ratings of a
 * tile are ordered by user. A visit is one user's ratings in one tile: the user's row stays in registers during a visit. The rows
 * of the users are read from memory once per tile. A rating needs 6 bytes, a visit 8 bytes. */

/* Rows are aligned and padded to this number of floats, one cache line. */
enum { TR_MF_ALIGN = 16 };

struct tr_mf_visit {
    uint32_t user; /* index of the user's row */
    uint32_t n;    /* number of the user's ratings in the tile */
};

struct tr_mf_tile {
    const struct tr_mf_visit *visit;
    size_t visits, ratings;
    const uint16_t *item; /* per rating: index of its item in the tile; distinct within a visit */
    const float *value;   /* per rating: its value; 16 elements after the end of both arrays are readable */
};

/* Factors of some users or items. */
struct tr_mf_rows {
    float *row;   /* tr_mf_pass.width floats each, aligned to a cache line; the padding remains 0 */
    float *bias;  /* per row; NULL: no biases */
    float *sum;   /* adagrad, per row: sum of mean squares of its gradients; NULL: one rate for all rows */
    float *share; /* model.l2_weighted no, per row: fraction 1/n of λ per rating; NULL: λ per rating */
};

/* Returns `rows` without its first i rows. */
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
    float rate;        /* learning rate; adagrad: divided by √sum of the row */
    float l2, bias_l2; /* λ of factors and of biases */
    float bias_part;   /* rate of biases divided by the rate of factors */
    float crowd;       /* adagrad: number of groups that change the same items at the same time */
    bool nonnegative;  /* keep factors (not biases) at 0 or above */
    float *spare;      /* scratch memory for an aligned row */
};

/* Performs one step of gradient descent for every rating of a tile. Up to 16 ratings of a user form a batch: their errors are
 * computed with the same row of the user, which then changes once.
 *
 * @param [in,out] items  rows of the tile's items
 * @return the sum of squared errors before the steps */
double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                       const struct tr_mf_rows *users, const struct tr_mf_rows *items);

/* ================ ratings (ratings.c) ================ */

/* Each worker has all training ratings of its users. For alternating least squares it also needs all ratings of its items. A test
 * rating is sent to the worker that trains its user, because this worker has the user's factors. Gradient descent uses tiles of
 * users × items. */

/* Divides n items of work into contiguous parts with similar amounts of work.
 *
 * @param [in]  work   amount of work of each item
 * @param [out] bound  parts + 1 numbers: part p has the items bound[p] .. bound[p + 1] - 1 */
void tr_mf_divide(size_t n, const double *work, size_t parts, size_t *bound);

/* Ratings by row; a row is a user or an item. */
struct tr_mf_lists {
    size_t n;        /* number of rows */
    uint64_t *begin; /* row i has the ratings begin[i] .. begin[i + 1] - 1 */
    uint32_t *other; /* per rating: index in `key` of the item (if rows are users), or of the user */
    float *value;    /* per rating: its value */
    tr_key *key;     /* numbers of the items (or users) that occur, ascending */
    size_t keys;
};

/* Distributes training ratings by item: each worker receives the ratings of a range of items. The ranges have similar amounts of
 * work. Messages have a few megabytes. All workers.
 *
 * @param [in]  item_work  work per item in addition to its ratings; the work for one rating is 1
 * @param [out] first      first item of this worker's range
 * @param [out] lists      ratings of the range; free them with tr_mf_lists_free(), also after an error */
int tr_mf_by_item(tr_context *tr, const tr_data *train, double item_work, uint64_t *first,
                  struct tr_mf_lists *lists);
void tr_mf_lists_free(struct tr_mf_lists *lists);

/* Distributes test ratings to the workers that train their users. All workers.
 *
 * @param [out] lists  a row for each user of train->row, and a last row for cold users; `other` of cold items equals `keys`.
 *                     Free them with tr_mf_lists_free(), also after an error */
int tr_mf_by_user(tr_context *tr, const tr_data *train, const tr_data *test, struct tr_mf_lists *lists);

/* ---- tiles ---- */

/* A worker's ratings in tiles, sorted by part of its users, then by block of items. Blocks rotate through the group; one rotation
 * trains on one part of the users. The tiling is a copy: the data may be freed. */
struct tr_mf_tiling {
    size_t blocks, parts;
    const uint64_t *first_item; /* blocks + 1 numbers: first item of each block; the caller frees it */
    size_t tile_items;          /* number of items per tile; the last tile of a block may have fewer */
    size_t *first_tile;         /* blocks + 1 numbers: first tile of each block among the tiles of a part */
    struct tr_mf_tile *tile;    /* parts × first_tile[blocks] tiles */
    struct tr_mf_visit *visit;
    uint16_t *item;
    float *value;
    size_t ratings;
};

/* Creates the tiles. Values become (value - mean) × scale.
 *
 * @param [in]  first_item  blocks + 1 numbers; must outlive the tiling
 * @param [out] tiling      free it with tr_mf_tiling_free(), also after an error */
int tr_mf_tile_ratings(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item,
                       size_t tile_items, double mean, double scale, struct tr_mf_tiling *tiling);
void tr_mf_tiling_free(struct tr_mf_tiling *tiling);

/* Returns the *n tiles of a block for a part of the users. Tile t starts with item t × tile_items of the block. */
const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_tiling *tiling, size_t part, size_t block,
                                        size_t *n);

/* ================ the model ================ */

struct tr_mf_sgd;
struct tr_mf_als;

enum tr_mf_side { TR_MF_USER, TR_MF_ITEM };
enum { TR_MF_SGD, TR_MF_ALS };       /* methods */
enum { TR_MF_PLAIN, TR_MF_ADAGRAD }; /* values of solve.optimizer: sgd, adagrad */

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
    float *row, *bias; /* rows of factors and bias, width numbers each; the biases again, NULL: no biases */
    struct tr_name_list names;
};

struct tr_mf {
    /* content of model.h5 */
    uint64_t users, items; /* numbers of table rows; cold ones in test data may have higher indices */
    uint64_t rank, ratings;
    uint64_t bias;     /* 1: the model has biases */
    uint64_t centred;  /* 1: the mean is subtracted from ratings */
    uint64_t implicit; /* 1: ratings are counts of interactions */
    double average;    /* mean of all training ratings */
    double l2;         /* λ */
    /* Last evaluation, on the scheduler or from the file. objective: RMSE on the training ratings; metric[0]: RMSE on the test
     * ratings, NaN without test ratings. */
    tr_evaluation last;
    char *method;
    struct tr_mf_saved saved[2]; /* an element per enum tr_mf_side; empty during training */

    /* derived values */
    size_t width; /* number of elements per row of a table: rank + bias */
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
    tr_view *test_items;      /* rows of the items of these ratings */
    struct tr_mf_sgd *sgd;
    struct tr_mf_als *als;
    double trained;    /* scheduler: number of training ratings in the sums of the last evaluation */
    bool writes_bias;  /* argument of fill_rows(): write biases, otherwise factors */
    tr_table *written; /* argument of fill_rows(): the table that is written */
};

extern const tr_model_class tr_mf_class;

/* Computes the initial values of a row: small random factors, which depend only on seed, side and number; the bias is 0.
 *
 * @param [out] row  width elements */
void tr_mf_first_row(const struct tr_mf *m, enum tr_mf_side side, uint64_t number, float *row);

/* model.nonnegative: sets negative factors of a row to 0. Rounding and sums over groups may leave negative factors in the tables,
 * so every reader of the tables must call it. Does nothing for other models. */
void tr_mf_clip(const struct tr_mf *m, float *row);

/* Returns the predicted rating of an item by a user.
 *
 * @param [in] user, item  rows of width elements; NULL: cold. Then the prediction is the mean plus the bias of the other side */
double tr_mf_predict(const struct tr_mf *m, const float *user, const float *item);

/* Returns the value that the model should predict for a rating: the rating itself; for an implicit model 1 if the count is
 * positive, otherwise 0. */
static inline double tr_mf_wanted(const struct tr_mf *m, float rating)
{
    return m->implicit ? rating > 0 : (double)rating;
}

/* Indices into tr_report.sum: squared errors and numbers of ratings. tr_mf_summarize() computes from them the objective, the RMSE
 * on the training ratings (implicit: root of the mean weighted loss), and the metric, the RMSE on the test ratings. */
enum tr_mf_sum { TR_MF_SQUARES, TR_MF_RATINGS, TR_MF_TEST_SQUARES, TR_MF_TEST_RATINGS };
int tr_mf_summarize(void *mf, const tr_report *sums, tr_evaluation *evaluation);

/* tr_mf_open_tests() opens the view of the test items; the prepare() of a stage calls it. tr_mf_add_tests() adds the errors of
 * this worker's test ratings to the report; evaluate() calls it. Without test data both functions do nothing.
 *
 * @param [in] user  returns the factors of the i-th user of train->row */
int tr_mf_open_tests(struct tr_mf *m);
int tr_mf_add_tests(struct tr_mf *m, const float *(*user)(const struct tr_mf *m, size_t i),
                    tr_report *report);

/* Train by one of the methods. Afterwards both tables contain the model. All ranks.
 *
 * @param [in] limits  NULL: the defaults */
struct tr_als_limits;
int tr_mf_sgd_train(struct tr_mf *m);
int tr_mf_als_train(struct tr_mf *m, const struct tr_als_limits *limits);

/* Free the state of a method. The pointer may be NULL. */
void tr_mf_sgd_free(struct tr_mf_sgd **sgd);
void tr_mf_als_free(struct tr_mf_als **als);

/* Finds the best items of a user, in descending order of predicted rating, ties by number.
 *
 * @param [in]     user    index of the user; m->users or above: a cold user
 * @param [in,out] n       maximum number of items; number found
 * @param [out]    item    numbers; free them with free()
 * @param [out]    rating  predicted ratings; free them with free() */
int tr_mf_best(const struct tr_mf *m, uint64_t user, size_t *n, uint64_t **item, double **rating);

/* Returns the prediction of a model that was read from a file. Indices from m->users or m->items on are cold. */
double tr_mf_predict_saved(const struct tr_mf *m, uint64_t user, uint64_t item);

/* ================ least squares for one row (solve.c) ================ */

/* Least squares for one row, given the rows of the other side: the numerical part of alternating least squares.
 *
 * A row x of `rank` factors, and a bias b if the model has biases, has n ratings. The k-th rating belongs to the row v_k of the
 * other side. Its target t_k, which x · v_k + b should equal, is the rating minus the mean and the bias of v_k. The result
 * minimises
 *
 *   explicit   Σ_k (t_k - b - x · v_k)² + λ' (|x|² + b² / s),  λ' = λ n (ALS-WR; Zhou et al. 2008, section 3.1) or λ
 *   implicit   Σ_k [(1 + a |t_k|) (p_k - x · v_k)² - (x · v_k)²] + Σ_v (x · v)² + λ' |x|²,
 *              p = 1 where t > 0, else 0; Σ_v over all rows of the other side (Hu, Koren, Volinsky 2008, section 4)
 *
 * by the normal equations and Cholesky or, for few ratings, by the dual equations with one unknown per rating, x = Vᵀ (V Vᵀ + λ')⁻¹
 * t, which have the same solution. Non-negative factors are computed by coordinate descent on the normal equations, starting from
 * the given x. A row without ratings is 0. */
struct tr_solve_problem {
    size_t rank;
    bool bias; /* rows have rank + 1 elements, and the last element is the bias; false if implicit */
    bool nonnegative, implicit;
    bool weighted;     /* λ' = λ n, otherwise λ */
    double l2;         /* λ */
    double bias_part;  /* 1 / s, with bias */
    double confidence; /* a, for implicit */
};

struct tr_solver;

/* Creates a solver with its buffers. Free it with tr_solver_free(), also after an error. */
int tr_solver_new(const struct tr_solve_problem *problem, enum tr_cpu level, struct tr_solver **solver);
void tr_solver_free(struct tr_solver **solver);

/* Computes one row.
 *
 * @param [in]     other   n rows v of at least `rank` floats
 * @param [in]     target  n numbers t
 * @param [in,out] x       rank + bias floats: the result; with nonnegative also the initial values
 * @return TR_ERR_DIVERGED if a value is not finite */
int tr_solve(struct tr_solver *solver, size_t n, const float *const *other, const float *target, float *x);

/* Computes one row from ratings that arrive over time: tr_solve_add() adds n ratings to the sums of the normal equations, and
 * tr_solve_sums() computes the row from the sums of all its n ratings.
 *
 * @param [in,out] sums  tr_solver_sums() floats, zeros at first; tr_solve_sums() overwrites them */
size_t tr_solver_sums(const struct tr_solver *solver);
void tr_solve_add(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                  float *sums);
int tr_solve_sums(struct tr_solver *solver, size_t n, float *sums, float *x);

/* The fit of the row that was computed last: the objective is loss + penalty with penalty = λ' (|x|² + b²). The loss is computed as
 * a difference of sums. */
struct tr_solve_fit {
    double loss, penalty;
    bool cancels; /* explicit: the difference is too small to be accurate, so call tr_solve_loss() */
};
struct tr_solve_fit tr_solver_fit(const struct tr_solver *solver);

/* explicit: returns the loss of the row x for n of its ratings. */
double tr_solve_loss(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                     const float *x);

/* implicit: tr_gram_add() adds Σ v vᵀ over n rows, `stride` floats apart, to a matrix of tr_solver_gram() doubles. The caller sums
 * the matrix over all workers. tr_gram_set() sets the matrix that tr_solve() uses. */
size_t tr_solver_gram(const struct tr_solver *solver);
void tr_gram_add(struct tr_solver *solver, size_t n, const float *rows, size_t stride, double *gram);
void tr_gram_set(struct tr_solver *solver, const double *gram);

/* Statistics since the solver was created: floating-point operations of the equations (sums of the upper halves, n³/3 per
 * factorization), and the number of rows by method: Cholesky, dual equations, coordinate descent, and Cholesky again in f64
 * because f32 was not accurate enough. */
struct tr_solve_count {
    double flops;
    uint64_t direct, few, descents, careful;
};
struct tr_solve_count tr_solver_count(const struct tr_solver *solver);

/* ================ alternating least squares (als.c) ================ */

/* A sweep is two clocks. In the first clock each worker computes the rows of its users, given the rows of the items that they
 * rated; in the second clock it computes the rows of its items, given the rows of the users who rated them. The side whose rows are
 * computed is the own side. Ratings are stored twice: by user as in the data, and by item, exchanged once at the start. Each worker
 * owns a range of items with a similar amount of work.
 *
 * Pulled rows of the other side stay in an arena of bounded memory. If all rows that the own rows need do not fit into an arena,
 * the own rows are divided into batches. Two arenas alternate: while the rows for one batch arrive, the previous batch is solved.
 *
 * A row can be solved when all rows that it needs have arrived, which for most rows is near the end. Therefore the sums of the
 * normal equations are extended while rows arrive. Memory limits this to the rows with most ratings. Sums are extended a few times,
 * each time if enough rows have arrived to be worth loading the sums. The time of computation between two polls adapts to the time
 * spent waiting: with shared memory nobody waits, and all rows are solved after everything has arrived. */

/* The own rows side->turn[first .. end - 1], which are solved together, and the n rows of the other side that they need. */
struct tr_als_batch {
    size_t first, end, n;
    uint32_t *place; /* indices of the n rows in side->keys, ascending */
};

/* The own rows of this worker in one of the two clocks of a sweep, and their ratings. */
struct tr_als_side {
    enum tr_mf_side which;
    tr_table *own, *from;  /* table of the own side; table of the other side */
    tr_view *view;         /* view of the own rows; view->value contains the current values */
    size_t n;              /* number of own rows */
    const tr_key *number;  /* number of each own row in its table */
    const uint64_t *begin; /* own row i has the ratings begin[i] .. begin[i + 1] - 1 */
    const uint32_t *other; /* per rating: index in `keys` of the row of the other side */
    const float *value;    /* per rating: its value; NULL: all values are 1 */
    const tr_key *keys;    /* numbers of rows of the other side, ascending; some may be unused */
    size_t n_keys;
    uint32_t *turn; /* indices of the own rows in the order of solving: by descending number of ratings */
    struct tr_als_batch *batch;
    size_t batches, largest; /* number of batches; maximum number of rows that a batch needs */
    tr_table *gram_table;    /* implicit: Σ v vᵀ over the rows of the own side of all workers */
    tr_view *gram;
    double *gram_mine; /* implicit: the sum over this worker's rows that was pushed last */
    double loss;       /* sum of the losses of the own rows when they were last solved */
    double quantum;    /* current time of computation between two polls, in seconds */
};

/* The rows of the other side that a batch needs, and the progress of the batch. */
struct tr_als_arena {
    const struct tr_als_batch *batch;
    tr_key *key;     /* per row: its number */
    uint32_t *order; /* per row: number of rows that arrived before it; NOT_HERE: it has not arrived */
    uint32_t *slot;  /* per index in side->keys: index of the row in this arena; undefined for unused keys */
    float *row, *bias;
    size_t arrived; /* number of rows that have arrived */
    size_t solved;  /* index in side->turn of the next row to solve */
};

/* Limits of memory and computation. */
struct tr_als_limits {
    size_t arena_bytes; /* maximum bytes of rows of the other side */
    size_t sums_bytes;  /* maximum bytes of sums that are extended while rows arrive */
    double worth;   /* rows with fewer ratings keep no sums: theirs are computed when all ratings are there */
    double quantum; /* minimum time of computation between two polls, in seconds; default 0 */
};

struct tr_mf_als {
    struct tr_mf *m;
    struct tr_als_limits limits;
    struct tr_solver *solver;
    struct tr_als_side side[2]; /* an element per enum tr_mf_side */
    struct tr_mf_lists by_item;
    tr_key *item_number;
    bool ahead;          /* whether rows arrive from other machines during computation */
    size_t stride;       /* number of floats per row in an arena */
    const float **other; /* scratch: rows of some ratings */
    float *target;       /* scratch: targets of these ratings */
    float *x;            /* scratch: one row */
    double *gram;        /* implicit: Σ v vᵀ over this worker's rows; before clock 0, over all items */

    /* state of a clock */
    struct tr_als_side *now; /* the own side */
    /* filling: rows arrive in this arena; ready: all rows of this arena have arrived, NULL: there is none */
    struct tr_als_arena arena[2], *filling, *ready;
    float *sums;        /* sums of begun_most rows, and of one more row as scratch memory */
    uint32_t *begun_at; /* per row with sums: arena->arrived when its sums were last extended */
    size_t begun, begun_most, next_begun; /* number of rows with sums; its maximum; next row to extend */
    double left_at;                       /* time when the last arrived row was processed */
    double waited;                        /* time of waiting for rows since the last poll, in seconds */
    double answered_at;                   /* time when requests of other ranks were last answered */
    size_t until_look, look_every;        /* number of rows until the next poll; between two polls */
};

enum { TR_ALS_CHUNK = 1024 /* number of ratings that are processed at a time */ };

#endif
