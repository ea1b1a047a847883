/* The arithmetic of solve.c, compiled once per instruction level (trireme/cpu.h).
 *
 * The equations of one row are too small for BLIS: with ssyrk, sgemv, strsv, and a blocked Cholesky on ssyrk in place of these
 * functions, a sweep of bench_als took 0.54 s instead of 0.13 s at rank 10, and 1.72 s instead of 0.61 s at rank 64 (3 million
 * ratings of 50000 users and 10000 items); at rank 200, 1.98 s instead of 0.92 s (1 million ratings of 20000 users and 5000
 * items; AVX-512, one core). Only tr_gram_add(), which sums over many rows, uses BLIS.
 *
 * Matrices are f32, row-major with the leading dimension `ld`, of a size n that is a multiple of 16. Of symmetric and
 * triangular matrices only the upper half is stored. A panel is a dense matrix of ratings × factors: each row is a row v of the
 * other side; `stride` is its leading dimension. A vector has V lanes; blocks of the factorization have V rows. */

#if defined(__AVX512F__)
#define V            16
#define FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define SUM(v)       _mm512_reduce_add_ps(v)
#define TILE         8 /* rows per tile: with three vectors of columns, the sums fill the registers */
#elif defined(__AVX2__)
#define V            8
#define FMA(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define SUM(v)       (((v)[0] + (v)[4]) + ((v)[1] + (v)[5]) + (((v)[2] + (v)[6]) + ((v)[3] + (v)[7])))
#define TILE         4
#else
#define V            4
#define FMA(a, b, c) ((a) * (b) + (c))
#define SUM(v)       (((v)[0] + (v)[2]) + ((v)[1] + (v)[3]))
#define TILE         4
#endif
typedef float NAME(vec) __attribute__((vector_size(4 * V)));
typedef float NAME(loose) __attribute__((vector_size(4 * V), aligned(4), may_alias));
#define VEC         NAME(vec)
#define SPLAT(x)    ((x) - (VEC){0})
#define LOAD(p)     (*(const NAME(loose) *)(p))
#define STORE(p, v) (*(NAME(loose) *)(p) = (v))
/* Prevents the compiler from computing all addresses in advance, because the registers are needed for sums. */
#define HIDE(p) __asm__("" : "+r"(p))
#define ALWAYS  static inline __attribute__((always_inline))

/* c[i][j] += sign · Σ a[d][i] b[d][j] over d < depth, for `rows` × `vectors · V` elements in registers. */
ALWAYS void NAME(tile)(const float *a, const float *b, size_t stride, size_t depth, float sign, float *c,
                       size_t ld, const int rows, const int vectors)
{
    VEC sum[V][3];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) sum[i][j] = (VEC){0};
    for (size_t d = 0; d < depth; d++, a += stride, b += stride) {
        VEC right[3];
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) right[j] = LOAD(b + j * V);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            VEC left = SPLAT(a[i]);
#pragma GCC unroll 3
            for (int j = 0; j < vectors; j++) sum[i][j] = FMA(left, right[j], sum[i][j]);
        }
    }
    VEC factor = SPLAT(sign);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, c += ld) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) STORE(c + j * V, FMA(factor, sum[i][j], LOAD(c + j * V)));
        HIDE(c);
    }
}

/* A function per tile size: the compiler then keeps all sums in registers. */
#define TILE_OF(name, rows, vectors)                                                                         \
    static __attribute__((noinline)) void NAME(name)(const float *a, const float *b, size_t stride,          \
                                                     size_t depth, float sign, float *c, size_t ld)          \
    {                                                                                                        \
        NAME(tile)(a, b, stride, depth, sign, c, ld, rows, vectors);                                         \
    }
TILE_OF(tile_1, V, 1)
TILE_OF(tile_2, TILE, 2)
TILE_OF(tile_3, TILE, 3)
#undef TILE_OF

/* Computes a tile of V rows and one to three vectors. */
static void NAME(tile_rows)(const float *a, const float *b, size_t stride, size_t depth, float sign, float *c,
                            size_t ld, size_t vectors)
{
    if (vectors == 1) NAME(tile_1)(a, b, stride, depth, sign, c, ld);
    for (int i = 0; vectors > 1 && i < V; i += TILE, a += TILE, c += TILE * ld)
        if (vectors == 2) NAME(tile_2)(a, b, stride, depth, sign, c, ld);
        else NAME(tile_3)(a, b, stride, depth, sign, c, ld);
}

/* Returns the number of vectors of the next tile, out of `left`: three, or two if three would leave a single vector. */
ALWAYS size_t NAME(next)(size_t left)
{
    return left == 4 ? 2 : left < 3 ? left : 3;
}

/* c += PᵀP for the panel P of depth × n, in strips of up to three vectors of columns, which stay in the L1 cache. */
static void NAME(gram)(const float *panel, size_t stride, size_t depth, float *c, size_t ld, size_t n)
{
    for (size_t j = 0, width; j < n; j += width * V) {
        width = NAME(next)((n - j) / V);
        for (size_t i = 0; i < j + width * V; i += V) {
            size_t from = i > j ? i : j;
            size_t vectors = (j + width * V - from) / V;
            NAME(tile_rows)(panel + i, panel + from, stride, depth, 1, c + i * ld + from, ld, vectors);
        }
    }
}

/* Copies `count` rows of `rank` floats into the panel, padded with zeros up to n. scale: factor of each row; NULL: 1. */
static void NAME(pack)(const float *const *row, const float *scale, size_t count, size_t rank, float *panel,
                       size_t stride, size_t n)
{
    size_t whole = rank / V * V;
    for (size_t r = 0; r < count; r++, panel += stride) {
        const float *from = row[r];
        if (r + 8 < count) __builtin_prefetch(row[r + 8]);
        float by = scale ? scale[r] : 1;
        for (size_t k = 0; k < whole; k += V) STORE(panel + k, LOAD(from + k) * SPLAT(by));
        for (size_t k = whole; k < rank; k++) panel[k] = from[k] * by;
        for (size_t k = rank; k < n; k++) panel[k] = 0;
    }
}

#ifdef __AVX512F__
/* Transposes 16 rows of 16 floats each, row[i][k .. k + 15], in four steps. */
static void NAME(turn_16)(const float *const *row, size_t k, float *to, size_t stride)
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(row[i] + k);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    /* The q-th quarter of a[4 g + c] has column 4 q + c of the rows 4 g .. 4 g + 3. */
    for (int c = 0; c < 4; c++) {
        b[c] = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x44);
        b[4 + c] = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xee);
        b[8 + c] = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x44);
        b[12 + c] = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xee);
    }
    for (int c = 0; c < 4; c++)
        for (int half = 0; half < 2; half++) {
            __m512 left = b[4 * half + c], right = b[8 + 4 * half + c];
            size_t first = (size_t)(8 * half + c);
            _mm512_storeu_ps(to + first * stride, _mm512_shuffle_f32x4(left, right, 0x88));
            _mm512_storeu_ps(to + (first + 4) * stride, _mm512_shuffle_f32x4(left, right, 0xdd));
        }
}
#endif

/* Writes the transposed panel: element (k, r) is the k-th float of row r. Columns up to `width` are padded with zeros. */
static void NAME(turn)(const float *const *row, size_t count, size_t rank, float *panel, size_t stride,
                       size_t width)
{
    size_t r = 0;
#ifdef __AVX512F__
    for (; r + 16 <= count; r += 16) {
        size_t k = 0;
        for (; k + 16 <= rank; k += 16) NAME(turn_16)(row + r, k, panel + k * stride + r, stride);
        for (; k < rank; k++)
            for (size_t i = r; i < r + 16; i++) panel[k * stride + i] = row[i][k];
    }
#endif
    for (size_t k = 0; k < rank; k++) {
        float *to = panel + k * stride;
        for (size_t i = r; i < count; i++) to[i] = row[i][k];
        for (size_t i = count; i < width; i++) to[i] = 0;
    }
}

/* out += Σ weight[r] P[r] over the rows r of a panel, n floats; weight NULL: every weight is 1. */
static void NAME(combine)(const float *panel, size_t stride, size_t depth, const float *weight, float *out,
                          size_t n)
{
    for (size_t k = 0, width; k < n; k += width) {
        width = n - k < 4 * V ? V : 4 * V;
        VEC sum[4] = {LOAD(out + k)};
        const float *p = panel + k;
        if (width == V) {
            for (size_t d = 0; d < depth; d++, p += stride)
                sum[0] = FMA(SPLAT(weight ? weight[d] : 1), LOAD(p), sum[0]);
            STORE(out + k, sum[0]);
            continue;
        }
#pragma GCC unroll 4
        for (int j = 1; j < 4; j++) sum[j] = LOAD(out + k + j * V);
        for (size_t d = 0; d < depth; d++, p += stride) {
            VEC w = SPLAT(weight ? weight[d] : 1);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) sum[j] = FMA(w, LOAD(p + j * V), sum[j]);
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) STORE(out + k + j * V, sum[j]);
    }
}

/* out[r] = P[r] · x over n floats, for `count` rows of the panel. */
static void NAME(dots)(const float *panel, size_t stride, size_t count, const float *x, size_t n, float *out)
{
    for (size_t r = 0; r < count; r++, panel += stride) {
        VEC sum = (VEC){0};
        for (size_t k = 0; k < n; k += V) sum = FMA(LOAD(panel + k), LOAD(x + k), sum);
        out[r] = SUM(sum);
    }
}

/* Factors one diagonal block a = UᵀU in place, and multiplies the right sides by U⁻ᵀ. Returns false if a pivot is not above the
 * fraction `least` of its value before the elimination.
 *
 * @param [in,out] inverse  the original diagonal; then 1 / diagonal of U
 * @param [out]    unit     rows divided by their pivots: eliminate() then has a shorter chain of dependent steps */
ALWAYS bool NAME(factor_block)(float *a, size_t ld, float *inverse, float least, float unit[V][V],
                               float *const *rhs, int sides)
{
    VEC row[V];
    bool definite = true;
#pragma GCC unroll 16
    for (int i = 0; i < V; i++) row[i] = LOAD(a + (size_t)i * ld);
#pragma GCC unroll 16
    for (int i = 0; i < V; i++) {
        float pivot = row[i][i];
        definite &= pivot > least * inverse[i]; /* false for NaN too */
        VEC part = row[i] * SPLAT(1 / pivot);
        STORE(unit[i], part);
#pragma GCC unroll 16
        for (int l = i + 1; l < V; l++) row[l] = FMA(-SPLAT(row[i][l]), part, row[l]);
        float root = sqrtf(pivot);
        inverse[i] = 1 / root;
        STORE(a + (size_t)i * ld, part * SPLAT(root));
    }
    for (int s = 0; s < sides; s++) {
        float *y = rhs[s];
        for (int i = 0; i < V; i++) {
            for (int l = i + 1; l < V; l++) y[l] -= unit[i][l] * y[i];
            y[i] *= inverse[i];
        }
    }
    return definite;
}

/* Multiplies the V rows of a block, to the right of the diagonal block U₁₁, by U₁₁⁻ᵀ, one vector of columns at a time. Subtracts
 * their contributions from the right sides. */
ALWAYS void NAME(eliminate)(float *a, size_t ld, size_t columns, const float *inverse, const float unit[V][V],
                            float *const *rhs, int sides)
{
    for (size_t j = V; j < columns; j += V) {
        VEC x[V];
#pragma GCC unroll 16
        for (int i = 0; i < V; i++) x[i] = LOAD(a + (size_t)i * ld + j);
#pragma GCC unroll 16
        for (int i = 0; i < V; i++)
#pragma GCC unroll 16
            for (int l = i + 1; l < V; l++) x[l] = FMA(-SPLAT(unit[i][l]), x[i], x[l]);
#pragma GCC unroll 16
        for (int i = 0; i < V; i++) {
            x[i] *= SPLAT(inverse[i]);
            STORE(a + (size_t)i * ld + j, x[i]);
        }
        for (int s = 0; s < sides; s++) {
            VEC sum = LOAD(rhs[s] + j), more = (VEC){0};
#pragma GCC unroll 8
            for (int i = 0; i < V; i += 2) {
                sum = FMA(-SPLAT(rhs[s][i]), x[i], sum);
                more = FMA(-SPLAT(rhs[s][i + 1]), x[i + 1], more);
            }
            STORE(rhs[s] + j, sum + more);
        }
    }
}

/* Computes the Cholesky factorization a = UᵀU in place, by block rows: the contributions of all rows above are subtracted first.
 * Multiplies the right sides by U⁻ᵀ. Returns false if a is not numerically positive definite. inverse: gets 1 / diagonal of U. */
static bool NAME(factor)(float *a, size_t ld, size_t n, float least, float *inverse, float *const *rhs,
                         int sides)
{
    _Alignas(64) float unit[V][V];
    for (size_t i = 0; i < n; i++) inverse[i] = a[i * ld + i];
    for (size_t b = 0; b < n; b += V) {
        float *block = a + b * ld + b, *here[2] = {rhs[0] + b, sides > 1 ? rhs[1] + b : NULL};
        for (size_t j = b, width; b > 0 && j < n; j += width * V) {
            width = NAME(next)((n - j) / V);
            NAME(tile_rows)(a + b, a + j, ld, b, -1, a + b * ld + j, ld, width);
        }
        if (!NAME(factor_block)(block, ld, inverse + b, least, unit, here, sides)) return false;
        NAME(eliminate)(block, ld, n - b, inverse + b, (const float(*)[V])unit, here, sides);
    }
    return true;
}

/* Solves U x = y in place, from the last block to the first. */
static void NAME(back)(const float *u, size_t ld, size_t n, const float *inverse, float *y)
{
    for (size_t b = n; b > 0;) {
        b -= V;
        for (size_t i = b; i < b + V; i++) {
            VEC sum = (VEC){0};
            for (size_t k = b + V; k < n; k += V) sum = FMA(LOAD(u + i * ld + k), LOAD(y + k), sum);
            y[i] -= SUM(sum);
        }
        for (size_t i = b + V; i-- > b;) {
            y[i] *= inverse[i];
            for (size_t l = b; l < i; l++) y[l] -= u[l * ld + i] * y[i];
        }
    }
}

/* Performs a sweep of coordinate descent on ½ xᵀAx - cᵀx for x ≥ 0; both halves of A are stored. Updates slope = Ax - c. Returns
 * the largest change of a coordinate. */
static float NAME(descend)(const float *a, size_t ld, size_t n, size_t rank, float *x, float *slope)
{
    float most = 0;
    for (size_t i = 0; i < rank; i++) {
        float old = x[i], best = old - slope[i] / a[i * ld + i], change;
        x[i] = best > 0 ? best : 0;
        change = x[i] - old;
        if (change == 0) continue;
        VEC by = SPLAT(change);
        for (size_t k = 0; k < n; k += V) STORE(slope + k, FMA(by, LOAD(a + i * ld + k), LOAD(slope + k)));
        most = fmaxf(most, fabsf(change));
    }
    return most;
}

static const struct kernel NAME(kernel)[] = {
    {NAME(gram), NAME(pack), NAME(turn), NAME(combine), NAME(dots), NAME(factor), NAME(back), NAME(descend)}};

#undef V
#undef VEC
#undef SPLAT
#undef FMA
#undef LOAD
#undef STORE
#undef SUM
#undef TILE
#undef ALWAYS
#undef HIDE
