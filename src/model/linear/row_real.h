/* The arithmetic of dense rows for one element type: included by row.c with REAL, REALS (some of them), GEMM and NAME(x)
 * defined. No include guard. */

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

/* BLIS takes numbers of one type: so rows are copied, some of their columns at a time, and what comes of them is. */
struct NAME(tile) {
    REAL x[TILE_ROWS * TILE_COLUMNS], of_outputs[TILE_ROWS * TILE_OUTPUTS];
};

TR_CPU_CLONES static void NAME(copy_row)(size_t n, const float *from, REAL *to)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) W(to + j) = X(from + j);
    for (; j < n; j++) to[j] = (REAL)from[j];
}

static void NAME(copy_rows)(const struct tr_problem *p, size_t first, size_t n, size_t column, size_t columns,
                            REAL *x)
{
    const float *from = p->rows.dense + first * p->keys + column;
    for (size_t i = 0; i < n; i++, from += p->keys, x += columns) NAME(copy_row)(columns, from, x);
}

void NAME(tr_dense_margins)(const struct tr_problem *p, size_t first, size_t n, const REAL *w, double *margin)
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

void NAME(tr_dense_add_rows)(const struct tr_problem *p, size_t first, size_t n, double by, const double *c,
                             REAL *w)
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
#undef REAL
#undef REALS
#undef GEMM
#undef NAME
