/* The passes for one element type. pass.c includes this file once per type, hence no guard; it defines REAL (the type), REALS (a
 * vector of LANES elements), GEMM (the BLAS function) and NAME(x). */

/* ---- dense rows ---- */

#define X(at) __builtin_convertvector(*(const f32s *)(at), REALS)
#define W(at) (*(REALS *)(at))

TR_CPU_CLONES double NAME(tr_dense_dot_many)(size_t n, const float *x, const REAL *w)
{
    REALS sum[SUMS] = {{0}};
    double all = 0;
    size_t j = 0;
    for (; j + SUMS * LANES <= n; j += SUMS * LANES)
#pragma GCC unroll 4
        for (size_t s = 0; s < SUMS; s++)
            sum[s] += X(x + j + s * LANES) * *(const REALS *)(w + j + s * LANES);
    for (; j + LANES <= n; j += LANES) sum[0] += X(x + j) * *(const REALS *)(w + j);
    for (; j < n; j++) all += (double)((REAL)x[j] * w[j]);
    REALS some = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (size_t k = 0; k < LANES; k++) all += (double)some[k];
    return all;
}

TR_CPU_CLONES void NAME(tr_dense_add_many)(size_t n, REAL a, const float *x, REAL *w)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) W(w + j) += a * X(x + j);
    for (; j < n; j++) w[j] += a * (REAL)x[j];
}

/* ---- several outputs ---- */

/* Scratch of dense_margins() and dense_add_rows(). BLIS multiplies numbers of one type, so rows (f32) are converted to REAL, a tile
 * of some rows and columns at a time; of_outputs contains the margins of a tile, or the factors of its rows. */
struct NAME(tile) {
    REAL x[TILE_ROWS * TILE_COLUMNS], of_outputs[TILE_ROWS * TILE_OUTPUTS];
};

TR_CPU_CLONES static void NAME(copy_rows)(const struct tr_problem *p, size_t first, size_t n, size_t column,
                                          size_t columns, REAL *x)
{
    const float *from = p->rows.dense + first * p->keys + column;
    for (size_t i = 0; i < n; i++, from += p->keys, x += columns) {
        size_t j = 0;
        for (; j + LANES <= columns; j += LANES) W(x + j) = X(from + j);
        for (; j < columns; j++) x[j] = (REAL)from[j];
    }
}

static void NAME(dense_margins)(const struct tr_problem *p, size_t first, size_t n, const REAL *w,
                                double *margin)
{
    struct NAME(tile) tile;
    size_t width = p->outputs, rows, columns, outputs;
    for (size_t i = 0; i < n; i += rows) {
        rows = tr_min_size(TILE_ROWS, n - i);
        for (size_t o = 0; o < width; o += outputs) {
            outputs = tr_min_size(TILE_OUTPUTS, width - o);
            for (size_t k = 0; k < rows * outputs; k++)
                tile.of_outputs[k] = p->bias ? w[p->keys * width + o + k % outputs] : 0;
            for (size_t j = 0; j < p->keys; j += columns) {
                columns = tr_min_size(TILE_COLUMNS, p->keys - j);
                NAME(copy_rows)(p, first + i, rows, j, columns, tile.x);
                GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)outputs, (int)columns, 1,
                     tile.x, (int)columns, w + j * width + o, (int)width, 1, tile.of_outputs, (int)outputs);
            }
            for (size_t k = 0; k < rows * outputs; k++)
                margin[(i + k / outputs) * width + o + k % outputs] = (double)tile.of_outputs[k];
        }
    }
}

/* Sets w += by Σ x_i c_i over dense rows with their bias, where c has one element per row and output. */
static void NAME(dense_add_rows)(const struct tr_problem *p, size_t first, size_t n, double by,
                                 const double *c, REAL *w)
{
    struct NAME(tile) tile;
    size_t width = p->outputs, rows, columns, outputs;
    for (size_t i = 0; i < n; i += rows) {
        rows = tr_min_size(TILE_ROWS, n - i);
        for (size_t o = 0; o < width; o += outputs) {
            outputs = tr_min_size(TILE_OUTPUTS, width - o);
            for (size_t k = 0; k < rows * outputs; k++)
                tile.of_outputs[k] = (REAL)(by * c[(i + k / outputs) * width + o + k % outputs]);
            for (size_t k = 0; k < rows * outputs && p->bias; k++)
                w[p->keys * width + o + k % outputs] += tile.of_outputs[k];
            for (size_t j = 0; j < p->keys; j += columns) {
                columns = tr_min_size(TILE_COLUMNS, p->keys - j);
                NAME(copy_rows)(p, first + i, rows, j, columns, tile.x);
                GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, (int)columns, (int)outputs, (int)rows, 1,
                     tile.x, (int)columns, tile.of_outputs, (int)outputs, 1, w + j * width + o, (int)width);
            }
        }
    }
}

#undef X
#undef W

/* ---- rows of both forms ---- */

static inline double NAME(dot)(const struct tr_problem *p, size_t i, const REAL *restrict w)
{
    struct tr_data_row x = tr_row_of(p, i);
    const uint32_t *restrict column = x.column;
    const float *restrict value = x.value;
    double s0 = p->bias ? (double)w[p->keys] : 0, s1 = 0, s2 = 0, s3 = 0;
    size_t k = 0;
    if (!column) return s0 + NAME(tr_dense_dot)(x.n, value, w);
    if (value) {
        for (; k + 4 <= x.n; k += 4) {
            s0 += (double)(value[k] * w[column[k]]);
            s1 += (double)(value[k + 1] * w[column[k + 1]]);
            s2 += (double)(value[k + 2] * w[column[k + 2]]);
            s3 += (double)(value[k + 3] * w[column[k + 3]]);
        }
        for (; k < x.n; k++) s0 += (double)(value[k] * w[column[k]]);
    } else {
        for (; k + 4 <= x.n; k += 4) {
            s0 += (double)w[column[k]];
            s1 += (double)w[column[k + 1]];
            s2 += (double)w[column[k + 2]];
            s3 += (double)w[column[k + 3]];
        }
        for (; k < x.n; k++) s0 += (double)w[column[k]];
    }
    return (s0 + s1) + (s2 + s3);
}

static inline void NAME(add)(const struct tr_problem *p, size_t i, REAL step, REAL *restrict w)
{
    struct tr_data_row x = tr_row_of(p, i);
    const uint32_t *restrict column = x.column;
    const float *restrict value = x.value;
    if (p->bias) w[p->keys] += step * (REAL)p->of_bias;
    if (!column) NAME(tr_dense_add)(x.n, step, value, w);
    else if (value)
        for (size_t k = 0; k < x.n; k++) w[column[k]] += step * value[k];
    else
        for (size_t k = 0; k < x.n; k++) w[column[k]] += step;
}

/* Computes the margins of a row for the outputs `own`. */
static void NAME(dots)(const struct tr_problem *p, size_t i, struct tr_class_block own,
                       const REAL *restrict w, double *restrict margin)
{
    enum { OUTPUTS = 32 };
    struct tr_data_row x = tr_row_of(p, i);
    size_t width = p->outputs;
    for (size_t first = 0, n; first < own.n; first += n) {
        REAL sum[OUTPUTS];
        const REAL *restrict from = w + own.first + first;
        n = own.n - first < OUTPUTS ? own.n - first : OUTPUTS;
        for (size_t o = 0; o < n; o++) sum[o] = p->bias ? from[p->keys * width + o] : 0;
        for (size_t k = 0; k < x.n; k++) {
            const REAL *restrict of_key = from + tr_row_key(&x, k) * width;
            REAL value = tr_row_value(&x, k);
            for (size_t o = 0; o < n; o++) sum[o] += value * of_key[o];
        }
        for (size_t o = 0; o < n; o++) margin[first + o] = (double)sum[o];
    }
}

static void NAME(margins)(const struct tr_problem *p, size_t first, size_t n, const REAL *w, double *margin)
{
    if (p->outputs == 1)
        for (size_t i = 0; i < n; i++) margin[i] = NAME(dot)(p, first + i, w);
    else if (p->rows.dense) NAME(dense_margins)(p, first, n, w, margin);
    else
        for (size_t i = 0; i < n; i++)
            NAME(dots)(p, first + i, (struct tr_class_block){0, p->outputs}, w, margin + i * p->outputs);
}

/* Sets w -= rate · slope x_i for the outputs `own`, with each change multiplied by the factor of its key if spread is not NULL. */
static void NAME(add_outer)(const struct tr_problem *p, size_t i, struct tr_class_block own, double rate,
                            const double *restrict slope, const struct tr_spread *spread, REAL *restrict w)
{
    enum { OUTPUTS = 32 };
    struct tr_data_row x = tr_row_of(p, i);
    size_t width = p->outputs;
    for (size_t first = 0, n; first < own.n; first += n) {
        REAL step[OUTPUTS], *restrict to = w + own.first + first;
        n = own.n - first < OUTPUTS ? own.n - first : OUTPUTS;
        for (size_t o = 0; o < n; o++) step[o] = (REAL)(rate * slope[first + o]);
        for (size_t k = 0; k < x.n; k++) {
            size_t j = tr_row_key(&x, k);
            REAL *restrict of_key = to + j * width;
            REAL value = tr_row_value(&x, k);
            if (spread) value *= (REAL)tr_spread_factor(spread, j);
            for (size_t o = 0; o < n; o++) of_key[o] -= value * step[o];
        }
        REAL of_bias = (REAL)p->of_bias * (spread ? (REAL)tr_spread_factor(spread, p->keys) : 1);
        for (size_t o = 0; o < n && p->bias; o++) to[p->keys * width + o] -= step[o] * of_bias;
    }
}

/* Applies the regularisation of tr_add_rows() to the keys of row i, `rows` times in one step. */
static void NAME(shrink)(const struct tr_problem *p, size_t i, double rate, size_t rows, const float *reg,
                         const REAL *old, REAL *w)
{
    struct tr_data_row x = tr_row_of(p, i);
    size_t width = p->outputs;
    REAL by = (REAL)(rate * (double)rows);
    for (size_t k = 0; k < x.n; k++) {
        size_t j = tr_row_key(&x, k);
        REAL part = by * (REAL)reg[j];
        for (size_t o = 0; o < width; o++) w[j * width + o] -= part * old[j * width + o];
    }
    if (!p->bias) return;
    for (size_t b = p->keys * width, o = 0; o < width; o++) w[b + o] -= by * (REAL)reg[p->keys] * old[b + o];
}

/* tr_add_rows(). Dense rows all have the same keys, so these are regularised in one step for all rows. */
static void NAME(add_rows)(const struct tr_problem *p, size_t first, size_t n, const double *slope,
                           double rate, const float *reg, const REAL *old, REAL *w)
{
    bool dense = p->rows.dense != NULL;
    if (dense && p->outputs > 1) NAME(dense_add_rows)(p, first, n, -rate, slope, w);
    for (size_t i = 0; i < n; i++) {
        if (p->outputs == 1 && slope[i] != 0) NAME(add)(p, first + i, (REAL)(-rate * slope[i]), w);
        else if (p->outputs > 1 && !dense) NAME(add_outer)
        (p, first + i, (struct tr_class_block){0, p->outputs}, rate, slope + i * p->outputs, NULL, w);
        if (reg && !dense) NAME(shrink)(p, first + i, rate, 1, reg, old, w);
    }
    if (reg && dense && n > 0) NAME(shrink)(p, first, rate, n, reg, old, w);
}

/* Prefetches row i, because rows in random order are not in the cache. At most 64 cache lines: the processor prefetches the rest of
 * a long row. */
static inline void NAME(fetch)(const struct tr_problem *p, size_t i)
{
    enum { LINE = 16, MOST = 64 * LINE };
    struct tr_data_row x = tr_row_of(p, i);
    for (size_t k = 0; k < x.n && k < MOST; k += LINE) {
        if (x.column) __builtin_prefetch(&x.column[k]);
        if (x.value) __builtin_prefetch(&x.value[k]);
    }
}

/* NAME(add)(), with each change multiplied by the factor of its key. */
static inline void NAME(add_spread)(const struct tr_problem *p, size_t i, REAL step,
                                    const struct tr_spread *spread, REAL *restrict w)
{
    struct tr_data_row x = tr_row_of(p, i);
    const uint8_t *restrict code = spread->code;
    REAL unit = (REAL)spread->unit;
    if (p->bias) w[p->keys] += step * (REAL)p->of_bias * (1 + unit * (REAL)code[p->keys]);
    if (!x.column)
        for (size_t j = 0; j < x.n; j++) w[j] += step * (REAL)x.value[j] * (1 + unit * (REAL)code[j]);
    else
        for (size_t k = 0; k < x.n; k++) {
            uint32_t j = x.column[k];
            w[j] += step * (REAL)tr_row_value(&x, k) * (1 + unit * (REAL)code[j]);
        }
}

static inline __attribute__((always_inline)) void
NAME(dual_steps)(const struct tr_problem *p, const uint32_t *order, size_t n, double sigma,
                 const struct tr_spread *spread, const float *norm, float *a, REAL *w)
{
    enum { AHEAD = 4 };
    double step = 1 / (p->l2 * p->n);
    bool signs = tr_loss_classifies(p->loss);
    for (size_t s = 0; s < n; s++) {
        if (s + AHEAD < n) NAME(fetch)(p, order[s + AHEAD]);
        size_t i = order[s];
        double y = (double)p->target[i], old = (double)a[i], m = NAME(dot)(p, i, w) + tr_row_offset(p, i);
        double weight = p->weight ? (double)p->weight[i] : 1;
        float moved =
            (float)tr_loss_step(p->loss, old, m, y, weight * sigma * step * (double)norm[i], p->shape);
        double by = (double)moved - old; /* the change after rounding to float, so that w remains w(α) */
        if (by == 0) continue;
        a[i] = moved;
        REAL change = (REAL)(weight * sigma * step * (signs ? y * by : by));
        if (spread) NAME(add_spread)(p, i, change, spread, w);
        else NAME(add)(p, i, change, w);
    }
}

/* dual_pass() and dual_pass_spread() are two functions, so that the compiler inlines dual_steps() without a test of `spread`. */
static __attribute__((noinline)) void NAME(dual_pass)(const struct tr_problem *p, const uint32_t *order,
                                                      size_t n, double sigma, const float *norm, float *a,
                                                      REAL *w)
{
    NAME(dual_steps)(p, order, n, sigma, NULL, norm, a, w);
}

static __attribute__((noinline)) void NAME(dual_pass_spread)(const struct tr_problem *p,
                                                             const uint32_t *order, size_t n, double sigma,
                                                             const struct tr_spread *spread,
                                                             const float *norm, float *a, REAL *w)
{
    NAME(dual_steps)(p, order, n, sigma, spread, norm, a, w);
}

/* Merges the elements begin .. end - 1, in pieces that stay in the cache. */
TR_CPU_CLONES static void NAME(dual_merge_run)(const struct tr_spread *spread, size_t width, size_t begin,
                                               size_t end, REAL *copies, size_t stride, size_t copied,
                                               REAL *w)
{
    enum { PIECE = 1024 };
    REAL sum[PIECE], factor[PIECE], unit = (REAL)spread->unit;
    for (size_t some; begin < end; begin += some) {
        some = tr_min_size(PIECE, end - begin);
        REAL *restrict to = w + begin;
        const uint8_t *restrict code = spread->code + begin / width;
        if (width == 1)
            for (size_t j = 0; j < some; j++) factor[j] = 1 + unit * (REAL)code[j];
        for (size_t j = 0, k = begin % width; j < some && width > 1; j++, k++) {
            if (k == width) k = 0, code++;
            factor[j] = 1 + unit * (REAL)*code;
        }
        for (size_t j = 0; j < some; j++) sum[j] = 0;
        for (size_t c = 0; c < copied; c++) {
            const REAL *restrict from = copies + c * stride + begin;
            for (size_t j = 0; j < some; j++) sum[j] += from[j] - to[j];
        }
        for (size_t j = 0; j < some; j++) to[j] += sum[j] / factor[j];
        for (size_t c = 0; c < copied; c++) memcpy(copies + c * stride + begin, to, some * sizeof *to);
    }
}

/* tr_dual_merge(). The elements of all outputs are contiguous. */
static void NAME(dual_merge)(const struct tr_problem *p, struct tr_class_block own,
                             const struct tr_spread *spread, size_t first, size_t n, REAL *copies,
                             size_t stride, size_t copied, REAL *w)
{
    size_t width = p->outputs, keys = own.n == width ? n : 1;
    for (size_t j = first; j < first + n; j += keys) {
        size_t begin = j * width + own.first, end = (j + keys - 1) * width + own.first + own.n;
        NAME(dual_merge_run)(spread, width, begin, end, copies, stride, copied, w);
    }
}

static void NAME(dual_pass_classes)(const struct tr_problem *p, struct tr_class_block own,
                                    const uint32_t *order, size_t n, double sigma,
                                    const struct tr_spread *spread, const float *norm, float *a, double *room,
                                    REAL *w)
{
    float *old = (float *)(room + 2 * own.n);
    double step = 1 / (p->l2 * p->n);
    for (size_t s = 0; s < n; s++) {
        size_t i = order[s];
        double by = sigma * step * tr_row_weight(p, i);
        float *mine = a + i * p->outputs + own.first;
        NAME(dots)(p, i, own, w, room);
        memcpy(old, mine, own.n * sizeof *old);
        dual_set_row(p, i, own, by * (double)norm[i], mine, room);
        if (dual_find_change(p, i, own, old, mine, room)) NAME(add_outer)(p, i, own, by, room, spread, w);
    }
}

#undef REAL
#undef REALS
#undef GEMM
#undef NAME
