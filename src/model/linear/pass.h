/* Passes over rows: the inner loops of training. A vector w over the keys of a worker's rows has the type of the model's table,
 * f32 or f64. The last key is the bias, if the model has one. A key has one weight per output, stored contiguously. A row x has one
 * margin w · x, plus the offset of the row, and one slope dφ/dm per output. ../loss.h defines φ, α, λ and the shape. */
#ifndef TR_LINEAR_PASS_H
#define TR_LINEAR_PASS_H

#include "../loss.h"
#include "trireme/base.h"
#include "trireme/collective.h"
#include "trireme/data.h"

/* Values of solve.method, in the order of the job key. */
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

/* Access to element i of an array of f32 or f64, as dtype says. */
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

/* Calls name_f32() or name_f64(). */
#define TR_BY_TYPE(dtype, name, ...) ((dtype) == TR_F32 ? name##_f32(__VA_ARGS__) : name##_f64(__VA_ARGS__))

/* The rows and the loss of a pass. */
struct tr_problem {
    const struct tr_loss *loss;
    double shape;        /* shape of the loss */
    enum tr_dtype dtype; /* type of vectors w */
    tr_batch rows;
    const tr_data *data; /* data set of the rows, for tr_data_ready(); NULL: all rows are in memory */
    /* target of each row: ±1, a number or, with several outputs, the index of its class */
    const float *target;
    const float *weight; /* factors of the losses of rows; NULL: all are 1 */
    const float *offset; /* numbers that are added to the margins of rows, one output; NULL: all are 0 */
    size_t outputs; /* margins of a row and weights of a key: 1, or the number of classes if more than two */
    bool softmax; /* one softmax over the outputs; else each output has a loss: its class against the rest */
    bool bias;    /* each row has one more non-zero, which is 1 and has the key `keys` */
    double of_bias; /* dual steps: square of the bias's non-zero: 1, or less if the bias is not regularised */
    size_t keys;    /* number of keys of the rows, without the bias */
    double l2;      /* λ, the factor of ½ |w|² */
    double n;       /* number of rows of all workers, or the sum of their weights */
};

/* A row, sparse or dense. */
struct tr_data_row {
    size_t n;               /* number of non-zeros; of a dense row, number of columns */
    const uint32_t *column; /* keys of the non-zeros; NULL: a dense row */
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

static inline double tr_row_offset(const struct tr_problem *p, size_t i)
{
    return p->offset ? (double)p->offset[i] : 0;
}

/* Adds the offsets of the rows first .. first + n - 1 to their margins. */
static inline void tr_add_offsets(const struct tr_problem *p, size_t first, size_t n, double *margin)
{
    for (size_t i = 0; p->offset && i < n; i++) margin[i] += (double)p->offset[first + i];
}

/* Returns |x|² of a row x, without the bias. */
static inline double tr_row_square(const struct tr_data_row *row)
{
    double sum = 0;
    for (size_t k = 0; k < row->n; k++) sum += (double)tr_row_value(row, k) * (double)tr_row_value(row, k);
    return sum;
}

/* ---- dense rows ---- */

/* tr_dense_dot_many() returns x · w, and tr_dense_add_many() sets w += a x, by vector instructions. The inline functions below,
 * tr_dense_dot() and tr_dense_add(), call them for rows of at least TR_DENSE_MANY columns; shorter rows are faster in a loop. */
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

/* Sets margin = w · x + offset for the rows first .. first + n - 1, `outputs` elements per row. */
void tr_margins(const struct tr_problem *problem, size_t first, size_t n, const void *w, double *margin);

/* Returns the target of row i for output k: the target of the row, or with several outputs 1 if k is its class and else -1. */
double tr_row_target(const struct tr_problem *problem, size_t i, size_t k);

/* Returns sum + Σ loss × weight over the rows first .. first + n - 1, from their margins. */
double tr_row_losses(const struct tr_problem *problem, size_t first, size_t n, const double *margin,
                     double sum);

/* Replaces the margins of the rows first .. first + n - 1 by weight × slope. */
void tr_row_slopes(const struct tr_problem *problem, size_t first, size_t n, double *margin);

/* Sets w -= rate · Σ slope_i x_i over the rows first .. first + n - 1. If reg is not NULL, each non-zero j of a row also sets
 * w_j -= rate · reg[j] · old[j]: the regularisation of a feature is divided among the rows that have the feature. */
void tr_add_rows(const struct tr_problem *problem, size_t first, size_t n, const double *slope, double rate,
                 const float *reg, const void *old, void *w);

/* Returns how many of the rows first .. first + n - 1 are in memory: see tr_data_ready(). */
static inline size_t tr_ready(const struct tr_problem *p, size_t first, size_t n)
{
    return p->data ? tr_data_ready(p->data, first, n) : n;
}

/* Does the same as tr_ready(), but for at most 128 rows, which take some microseconds. Calls tr_seam(), the poll point of a long
 * computation. */
static inline size_t tr_ready_piece(const struct tr_problem *p, size_t first, size_t n)
{
    enum { PIECE = 128 };
    tr_seam();
    return tr_ready(p, first, n < PIECE ? n : PIECE);
}

/* Factors of the keys for workers that step on private copies of w and then add their changes. Steps of one worker do not see those
 * of the others, so a worker moves key j of its copy by 1 + unit × code[j] times its change of w: about the number of workers that
 * change w_j. See dual.c. */
struct tr_spread {
    const uint8_t *code; /* one element per key; the last is that of the bias */
    float unit;
};

static inline double tr_spread_factor(const struct tr_spread *spread, size_t key)
{
    return 1 + (double)spread->unit * spread->code[key];
}

/* The outputs first .. first + n - 1; {0, 1} for a single output. */
struct tr_class_block {
    size_t first, n;
};

/* One pass of dual coordinate descent over the rows order[0 .. n-1], which must be in memory. Sets the dual variables of each row i
 * for the outputs `own` to their minimum at w, and adds weight × sigma (new - old) x_i / (λ n) to w immediately, multiplied by the
 * factors of the keys if spread is not NULL. norm[i] is |x_i|² by tr_row_norms() with the same spread.
 *
 * @param [in]     own   all outputs, if the problem has one output or one softmax
 * @param [in,out] a     `outputs` dual variables per row; of a softmax the probabilities q: α = e_y - q
 * @param          room  scratch of 3 × own.n elements, unused for one output
 */
void tr_dual_pass(const struct tr_problem *problem, struct tr_class_block own, const uint32_t *order,
                  size_t n, double sigma, const struct tr_spread *spread, const float *norm, float *a,
                  double *room, void *w);

/* Adds to the keys first .. first + n - 1 of w, for the outputs `own`, the changes of `copied` copies of w, and sets the copies to
 * the sum.
 *
 * @param [in,out] copies  copy c begins at the element c × stride */
void tr_dual_merge(const struct tr_problem *problem, struct tr_class_block own,
                   const struct tr_spread *spread, size_t first, size_t n, void *copies, size_t stride,
                   size_t copied, void *w);

/* Returns Σ weight × (φ*(-α) + α offset) over the rows first .. first + n - 1: φ(m + offset) has the conjugate φ*(u) - u offset. */
double tr_dual_sum(const struct tr_problem *problem, size_t first, size_t n, const float *a);

/* Sets norm[i] = |x_i|² for the rows first .. first + n - 1, plus of_bias if there is a bias. spread: squares are multiplied by the
 * factors of their keys; NULL: all factors are 1. */
void tr_row_norms(const struct tr_problem *problem, const struct tr_spread *spread, size_t first, size_t n,
                  float *norm);

/* ---- products in f64 ---- */

/* Sets z = X w, where X is the matrix of the rows first .. first + n - 1. w has `outputs` elements per key, and z per row. */
void tr_newton_times(const struct tr_problem *problem, size_t first, size_t n, const double *w, double *z);

/* Sets w += X' c, where c has `outputs` elements per row. */
void tr_newton_add(const struct tr_problem *problem, size_t first, size_t n, const double *c, double *w);

/* Sets w += S' c, where S contains the squares of the elements of X. */
void tr_newton_add_squares(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                           double *w);

/* Sets H += X' C X. Rows with few non-zeros are added one by one, other rows in tiles by BLIS.
 *
 * @param [in]     c      diagonal of C: one element ≥ 0 per row
 * @param [in]     place  index of the column of H for each key
 * @param [in,out] h      columns × columns, row-major; only the lower triangle is changed
 * @return TR_ERR_SYSTEM if memory is exhausted
 */
int tr_newton_add_outer(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                        const tr_key *place, size_t columns, double *h);

/* Sets H -= Σ (x ⊗ c) (x ⊗ c)' over the rows x, where H has `outputs` columns per key. */
int tr_newton_subtract_outer(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                             const tr_key *place, size_t columns, double *h);

/* Returns the time of tr_newton_add_outer() as a multiple of the time of a product X' C X v. nonzeros: mean number per row. */
double tr_newton_outer_cost(double nonzeros, double columns);

/* Replaces the lower triangle of a symmetric matrix by its Cholesky factor L. If rounding errors exceed a diagonal element, its
 * column is treated as orthogonal to the previous columns. */
void tr_cholesky(size_t n, double *h);

/* Solves L L' x = b in place for `width` vectors, stored as n × width. */
void tr_cholesky_solve(size_t n, const double *factor, size_t width, double *b);

/* ---- vectors over all columns, for workers whose rows have different columns: `width` f64 elements per column ----
 *
 * A vector has two forms. `local`: at each worker, the columns of its rows. `own`: each column once, at the worker that owns it;
 * of small vectors every worker owns all columns, so that one all-reduce sums them; of large vectors each owns a range. */

struct tr_columns {
    tr_context *tr; /* NULL: there is one worker */
    int workers;
    size_t width;
    const tr_key *keys; /* columns of this worker's rows */
    size_t local;       /* number of elements of `keys` */
    bool whole;         /* every worker owns all columns; the members from `to` on are NULL then */
    uint64_t first;     /* this worker owns the columns first .. first + n - 1 */
    size_t n;
    size_t *to, *from; /* for each worker: bytes that tr_columns_sum() sends to it, and receives from it */
    uint32_t *place;   /* place[i]: index of the i-th received column among the owned columns */
    size_t places;     /* number of received columns */
    double *buffer;    /* elements of the received columns */
};

/* Opens vectors over `columns` columns, with the n ascending keys of this worker, which must outlive *c. All workers. */
int tr_columns_open(struct tr_columns *c, tr_context *tr, const tr_key *keys, size_t n, uint64_t columns,
                    size_t width);
void tr_columns_close(struct tr_columns *c);

/* tr_columns_sum() sets own = Σ local over the workers; tr_columns_fetch() sets local to the elements of own. All workers. */
int tr_columns_sum(struct tr_columns *c, const double *local, double *own);
int tr_columns_fetch(struct tr_columns *c, const double *own, double *local);

/* Sum n values over the workers: tr_columns_sum_rows() values of their rows, tr_columns_sum_parts() values of their owned columns,
 * which it leaves unchanged if every worker owns all columns. All workers. */
int tr_columns_sum_rows(struct tr_columns *c, double *sums, size_t n);
int tr_columns_sum_parts(struct tr_columns *c, double *sums, size_t n);

#endif
