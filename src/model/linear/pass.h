/* Passes over rows: the inner loops of training. A vector w over the keys of the rows has the type of the model's
 * table, f32 or f64. The last key is the bias, if there is one. A key has one weight for each output, stored
 * contiguously, and so a row has a margin and a slope for each output. */
#ifndef TR_LINEAR_PASS_H
#define TR_LINEAR_PASS_H

#include "../loss.h"
#include "trireme/base.h"
#include "trireme/collective.h"
#include "trireme/data.h"

/* Methods in the order of solve.method. */
enum {
    TR_METHOD_AUTO,
    TR_METHOD_DUAL,
    TR_METHOD_SGD,
    TR_METHOD_SVRG,
    TR_METHOD_SVRGPP,
    TR_METHOD_KATYUSHA,
    TR_METHOD_GROWING,
    TR_METHOD_NEWTON,
    TR_METHOD_DESCENT
};

/* Access to element i of an array of f32 or f64. */
static inline size_t tr_real_size(enum tr_dtype dtype)
{
    return dtype == TR_F32 ? sizeof(float) : sizeof(double);
}

static inline double tr_real_get(enum tr_dtype dtype, const void *values, size_t i)
{
    return dtype == TR_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

static inline void tr_real_set(enum tr_dtype dtype, void *values, size_t i, double x)
{
    if (dtype == TR_F32) ((float *)values)[i] = (float)x;
    else ((double *)values)[i] = x;
}

static inline void tr_real_add(enum tr_dtype dtype, void *values, size_t i, double x)
{
    if (dtype == TR_F32) ((float *)values)[i] += (float)x;
    else ((double *)values)[i] += x;
}

/* Calls the function of a pass for an element type. */
#define TR_BY_TYPE(dtype, name, ...) ((dtype) == TR_F32 ? name##_f32(__VA_ARGS__) : name##_f64(__VA_ARGS__))

/* The data and the loss of a pass. */
struct tr_problem {
    const struct tr_loss *loss;
    double shape; /* shape of the loss */
    enum tr_dtype dtype;
    tr_batch rows;
    const tr_data *data; /* asked for rows before they are used (tr_data_ready()) */
    const float *target; /* targets: ±1, a number, or the index of the row's class */
    const float *weight; /* weights of the rows' losses; NULL: all 1 */
    size_t outputs; /* margins of a row and weights of a key: 1, or the number of classes if more than two */
    bool softmax; /* one softmax over the outputs; else each class has a loss of its own, against the rest */
    bool bias;    /* each row has one more non-zero: 1 at key `keys` */
    double of_bias; /* square of that non-zero in dual steps: 1, or less if the bias is not regularised */
    size_t keys;    /* keys of the rows, without the bias */
    double l2;      /* λ */
    double n;       /* number of rows of the whole data set, or the sum of their weights */
};

/* A row, sparse or dense. */
struct tr_data_row {
    size_t n;
    const uint32_t *column; /* NULL: a dense row, with all columns */
    const float *value;     /* NULL: all values are 1 */
};

static inline struct tr_data_row tr_row_of(const struct tr_problem *p, size_t i)
{
    const tr_batch *rows = &p->rows;
    if (rows->dense) return (struct tr_data_row){p->keys, NULL, rows->dense + i * p->keys};
    uint64_t begin = rows->begin[i];
    return (struct tr_data_row){(size_t)(rows->begin[i + 1] - begin), rows->column + begin,
                                rows->value ? rows->value + begin : NULL};
}

static inline size_t tr_row_key(const struct tr_data_row *row, size_t k)
{
    return row->column ? row->column[k] : k;
}

static inline float tr_row_value(const struct tr_data_row *row, size_t k)
{
    return row->value ? row->value[k] : 1;
}

static inline double tr_row_weight(const struct tr_problem *p, size_t i)
{
    return p->weight ? (double)p->weight[i] : 1;
}

/* Returns |x|² of a row, without the bias. */
static inline double tr_row_square(const struct tr_data_row *row)
{
    double sum = 0;
    for (size_t k = 0; k < row->n; k++) sum += (double)tr_row_value(row, k) * (double)tr_row_value(row, k);
    return sum;
}

/* ---- dense rows ---- */

/* Return x · w, and set w += a x, for rows of at least TR_DENSE_MANY columns, by vector instructions. Shorter rows are
 * faster with the inline functions below. Vectors are f32 or f64, rows always f32. */
double tr_dense_dot_many_f32(size_t n, const float *x, const float *w);
double tr_dense_dot_many_f64(size_t n, const float *x, const double *w);
void tr_dense_add_many_f32(size_t n, float a, const float *x, float *w);
void tr_dense_add_many_f64(size_t n, double a, const float *x, double *w);

enum { TR_DENSE_MANY = 16 };

#define TR_DENSE(REAL, NAME)                                                                                 \
    static inline double NAME(tr_dense_dot)(size_t n, const float *x, const REAL *w)                         \
    {                                                                                                        \
        double sum = 0;                                                                                      \
        if (n >= TR_DENSE_MANY) return NAME(tr_dense_dot_many)(n, x, w);                                     \
        for (size_t j = 0; j < n; j++) sum += (double)((REAL)x[j] * w[j]);                                   \
        return sum;                                                                                          \
    }                                                                                                        \
    static inline void NAME(tr_dense_add)(size_t n, REAL a, const float *restrict x, REAL *restrict w)       \
    {                                                                                                        \
        if (n >= TR_DENSE_MANY) NAME(tr_dense_add_many)(n, a, x, w);                                         \
        else                                                                                                 \
            for (size_t j = 0; j < n; j++) w[j] += a * (REAL)x[j];                                           \
    }
#define TR_F32_NAME(x) x##_f32
#define TR_F64_NAME(x) x##_f64
TR_DENSE(float, TR_F32_NAME)
TR_DENSE(double, TR_F64_NAME)
#undef TR_DENSE
#undef TR_F32_NAME
#undef TR_F64_NAME

/* ---- passes ---- */

/* margin = w · x of the rows first .. first + n - 1, `outputs` elements for each. */
void tr_margins(const struct tr_problem *problem, size_t first, size_t n, const void *w, double *margin);

/* Returns the target of row i for output k: its target, or ±1 if there are several outputs. */
double tr_row_target(const struct tr_problem *problem, size_t i, size_t k);

/* Returns sum + Σ loss × weight over the rows first .. first + n - 1, from their margins. */
double tr_row_losses(const struct tr_problem *problem, size_t first, size_t n, const double *margin,
                     double sum);

/* Replaces the margins of the rows first .. first + n - 1 by slope × weight. */
void tr_row_slopes(const struct tr_problem *problem, size_t first, size_t n, double *margin);

/* w -= rate · Σ slope_i x_i over these rows. If `reg` is given, also w_j -= rate · reg[j] · old[j] for each non-zero
 * (regularisation spread over the rows that have the feature). */
void tr_add_rows(const struct tr_problem *problem, size_t first, size_t n, const double *slope, double rate,
                 const float *reg, const void *old, void *w);

/* Returns how many of these rows are in memory: tr_data_ready(). */
static inline size_t tr_ready(const struct tr_problem *p, size_t first, size_t n)
{
    return p->data ? tr_data_ready(p->data, first, n) : n;
}

/* The same in pieces of a few microseconds, with poll points between them. */
static inline size_t tr_ready_piece(const struct tr_problem *p, size_t first, size_t n)
{
    enum { PIECE = 128 };
    tr_seam();
    return tr_ready(p, first, n < PIECE ? n : PIECE);
}

/* One pass of dual coordinate descent over the rows order[0..n-1], which must be in memory. Sets each a (by row; it
 * counts times the row's weight) to its minimum at w, and updates w by sigma (new - old) x / (λ n) immediately. norm[i] is
 * |x_i|². shared: other processes change w at the same time, on other rows; no change of an element is lost. */
void tr_dual_pass(const struct tr_problem *problem, const uint32_t *order, size_t n, double sigma,
                  const float *norm, float *a, void *w, bool shared);

/* w += x_i, while other processes change w. */
void tr_add_row_shared(const struct tr_problem *problem, size_t i, void *w);

/* w[at] += x, while other processes change w. */
void tr_add_shared(enum tr_dtype dtype, void *w, size_t at, double x);

/* Classes first .. first + n - 1 of several outputs; {0, 1} for a single output. */
struct tr_class_block {
    size_t first, n;
};

/* The same as tr_dual_pass() for these classes, over the rows base + order[0..n-1]. a has own.n elements for each
 * offset in `order`; of a softmax (all classes) they are the probabilities q with α = e_y - q. room: scratch of 3 ×
 * own.n elements. */
void tr_dual_pass_classes(const struct tr_problem *problem, struct tr_class_block own, size_t base,
                          const uint32_t *order, size_t n, double sigma, const float *norm, float *a,
                          double *room, void *w);

/* w += Σ (α - old α) x / (λ n) over n rows from base on. */
void tr_add_changes(const struct tr_problem *problem, struct tr_class_block own, size_t base, size_t n,
                    const float *old, const float *a, double *room, void *w);

/* Returns Σ φ*(-α) over n rows from base on. */
double tr_dual_sum(const struct tr_problem *problem, struct tr_class_block own, size_t base, size_t n,
                   const float *a);

/* norm[i] = |x_i|² of these rows, plus of_bias if there is a bias. */
void tr_row_norms(const struct tr_problem *problem, size_t first, size_t n, float *norm);

/* ---- products of rows and vectors over their keys, in f64. A key and a row have K = outputs elements ---- */

/* z = X w for the rows first .. first + n - 1. */
void tr_newton_times(const struct tr_problem *problem, size_t first, size_t n, const double *w, double *z);

/* w += X' c; and the same with the squares of the elements of X. */
void tr_newton_add(const struct tr_problem *problem, size_t first, size_t n, const double *c, double *w);
void tr_newton_add_squares(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                           double *w);

/* H += X' C X. Rows with few non-zeros are added one by one, others by BLIS in tiles.
 *
 * @param [in]     c      diagonal of C: c[i] ≥ 0 of row i
 * @param [in]     place  column of H for each key of the rows
 * @param [in,out] h      columns × columns by rows; only the lower triangle is changed
 * @return TR_ERR_SYSTEM without memory
 */
int tr_newton_add_outer(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                        const tr_key *place, size_t columns, double *h);

/* H -= Σ (x ⊗ c) (x ⊗ c)' over the rows, with K elements of c for each row and K columns of H for each key. */
int tr_newton_subtract_outer(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                             const tr_key *place, size_t columns, double *h);

/* Returns the time of tr_newton_add_outer() relative to a product X' C X v, for rows with this number of non-zeros. */
double tr_newton_outer_cost(double nonzeros, double columns);

/* Replaces the lower triangle of a symmetric matrix by its Cholesky factor. If a diagonal element is lost to rounding, its
 * column is treated as orthogonal to the previous ones. */
void tr_cholesky(size_t n, double *h);

/* Solves L L' x = b in place for `width` vectors, stored as n × width. */
void tr_cholesky_solve(size_t n, const double *factor, size_t width, double *b);

/* ---- vectors over all columns, for workers whose rows have different columns: `width` f64 elements per column ----
 *
 * Small vectors are replicated at all workers and summed by one collective call. Large vectors are distributed: each
 * worker owns a range of columns and exchanges the columns of its rows with the owners. */

struct tr_columns {
    tr_context *tr; /* NULL: one worker */
    int workers;
    size_t width;
    const tr_key *keys; /* columns of this worker's rows */
    size_t local;       /* their number */
    bool whole;
    uint64_t first; /* first column, and number of columns, that this worker owns */
    size_t n;
    /* distributed: bytes to each worker in a sum, and from each worker; owned column of each received element */
    size_t *to, *from;
    uint32_t *place;
    size_t places;
    double *buffer;
};

/* Opens vectors. All workers. The keys ascend, are below `columns`, and must outlive *c. */
int tr_columns_open(struct tr_columns *c, tr_context *tr, const tr_key *keys, size_t n, uint64_t columns,
                    size_t width);
void tr_columns_close(struct tr_columns *c);

/* own = Σ over workers of `local`, at the owners; local = own at the keys of this worker. All workers. */
int tr_columns_sum(struct tr_columns *c, const double *local, double *own);
int tr_columns_fetch(struct tr_columns *c, const double *own, double *local);

/* Sums n values over the workers: of rows; of parts of vectors, which for replicated vectors are the whole already. All
 * workers. */
int tr_columns_sum_rows(struct tr_columns *c, double *sums, size_t n);
int tr_columns_sum_parts(struct tr_columns *c, double *sums, size_t n);

#endif
