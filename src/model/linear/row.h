/* Rows of a problem, sparse or dense, and what dense ones are good for: products by vector instructions, and with many
 * outputs by BLIS. Vectors are f32 or f64, rows always f32.
 */
#ifndef TR_LINEAR_ROW_H
#define TR_LINEAR_ROW_H

#include "pass.h"

/* What a row has, of either form. */
struct tr_data_row {
    size_t n;
    const uint32_t *column; /* NULL: all columns, of a dense row */
    const float *value;     /* NULL: all 1, of a sparse row */
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

/* |x|² of a row, without the bias. */
static inline double tr_row_square(const struct tr_data_row *row)
{
    double sum = 0;
    for (size_t k = 0; k < row->n; k++) sum += (double)tr_row_value(row, k) * (double)tr_row_value(row, k);
    return sum;
}

/* ---- dense rows ---- */

/* x · w; and w += a x. Of many numbers: others are faster added up where they stand. */
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

/* Dense rows first .. first + n - 1 of a problem with several outputs: their margins; and w += by Σ x_i c_i, where a row has
 * a c for each output. With the bias. */
void tr_dense_margins_f32(const struct tr_problem *problem, size_t first, size_t n, const float *w,
                          double *margin);
void tr_dense_margins_f64(const struct tr_problem *problem, size_t first, size_t n, const double *w,
                          double *margin);
void tr_dense_add_rows_f32(const struct tr_problem *problem, size_t first, size_t n, double by,
                           const double *c, float *w);
void tr_dense_add_rows_f64(const struct tr_problem *problem, size_t first, size_t n, double by,
                           const double *c, double *w);

#endif
