/* Kernels that compute the scores of rows for centres, compiled once per instruction level (trireme/cpu.h). assign.c includes this
 * file. kmeans.h defines score, tile and panel.
 *
 * Each vector lane is a row. The TILE rows of a tile are transposed, so that one column of them is RUNS vectors. The values of a
 * panel's centres in one column are contiguous; each is broadcast to a vector. BLOCK × RUNS sums stay in registers over all
 * columns; then each lane updates the smallest score, the second smallest and the index of the smallest. */
#undef LANES
#undef RUNS
#undef BLOCK
#undef TILE
#undef vf
#undef vi
#undef SPREAD
#undef SPREAD_INT
#undef LESS_PRODUCT
#undef LOWER
#undef HIGHER
#undef WHERE_LESS

#if defined __AVX512F__
#define LANES                  16
#define RUNS                   3
#define BLOCK                  8
#define vf                     __m512
#define vi                     __m512i
#define SPREAD(x)              _mm512_set1_ps(x)
#define SPREAD_INT(x)          _mm512_set1_epi32(x)
#define LESS_PRODUCT(a, b, c)  _mm512_fnmadd_ps(b, c, a)
#define LOWER(a, b)            _mm512_min_ps(a, b)
#define HIGHER(a, b)           _mm512_max_ps(a, b)
#define WHERE_LESS(a, b, x, y) _mm512_mask_mov_epi32(y, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x)
#elif defined __AVX2__
#define LANES                  8
#define RUNS                   3
#define BLOCK                  4
#define vf                     __m256
#define vi                     __m256i
#define SPREAD(x)              _mm256_set1_ps(x)
#define SPREAD_INT(x)          _mm256_set1_epi32(x)
#define LESS_PRODUCT(a, b, c)  _mm256_fnmadd_ps(b, c, a)
#define LOWER(a, b)            _mm256_min_ps(a, b)
#define HIGHER(a, b)           _mm256_max_ps(a, b)
#define WHERE_LESS(a, b, x, y) _mm256_blendv_epi8(y, x, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)))
#else
#define LANES                  4
#define RUNS                   2
#define BLOCK                  4
#define vf                     tr_f32x4
#define vi                     tr_i32x4
#define SPREAD(x)              ((tr_f32x4){(x), (x), (x), (x)})
#define SPREAD_INT(x)          ((tr_i32x4){(x), (x), (x), (x)})
#define LESS_PRODUCT(a, b, c)  ((a) - (b) * (c))
#define LOWER(a, b)            NAME(choose)((a) < (b), a, b)
#define HIGHER(a, b)           NAME(choose)((a) < (b), b, a)
#define WHERE_LESS(a, b, x, y) ((((a) < (b)) & (x)) | (~((a) < (b)) & (y)))
static inline tr_f32x4 NAME(choose)(tr_i32x4 where, tr_f32x4 a, tr_f32x4 b)
{
    return (tr_f32x4)((where & (tr_i32x4)a) | (~where & (tr_i32x4)b));
}
#endif
#define TILE ((size_t)LANES * RUNS)
enum { NAME(tile) = LANES * RUNS };

/* Transposes the columns p .. p + 3 of LANES rows; turned[i * TILE + r] receives column p + i of row r. */
static inline void NAME(turn)(const float *const *row, size_t p, float *turned)
{
    for (size_t r = 0; r < LANES; r += 4) {
        tr_f32x4 a, b, c, d;
        memcpy(&a, row[r] + p, sizeof a);
        memcpy(&b, row[r + 1] + p, sizeof b);
        memcpy(&c, row[r + 2] + p, sizeof c);
        memcpy(&d, row[r + 3] + p, sizeof d);
        tr_f32x4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        tr_f32x4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        tr_f32x4 ef = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        tr_f32x4 gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
        b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
        c = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
        d = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
        memcpy(turned + r, &a, sizeof a);
        memcpy(turned + TILE + r, &b, sizeof b);
        memcpy(turned + 2 * TILE + r, &c, sizeof c);
        memcpy(turned + 3 * TILE + r, &d, sizeof d);
    }
}

/* Transposes all columns of a tile. */
static void NAME(turn_tile)(const float *const *row, size_t columns, float *turned)
{
    size_t p = 0;
    for (; p + 4 <= columns; p += 4)
        for (size_t v = 0; v < TILE; v += LANES) NAME(turn)(row + v, p, turned + p * TILE + v);
    for (; p < columns; p++)
        for (size_t r = 0; r < TILE; r++) turned[p * TILE + r] = row[r][p];
}

/* Computes the scores of a transposed tile for the centres first .. first + BLOCK - 1, and updates the results in *at. */
static inline __attribute__((always_inline)) void NAME(block)(const float *turned, const float *packed,
                                                              const float *half, size_t columns, int first,
                                                              struct tr_leaders *at)
{
    vf sum[BLOCK][RUNS];
#pragma GCC unroll 8
    for (int c = 0; c < BLOCK; c++)
#pragma GCC unroll 3
        for (int v = 0; v < RUNS; v++) sum[c][v] = SPREAD(half[c]);
    for (size_t p = 0; p < columns; p++) {
        const vf *x = (const vf *)(turned + p * TILE);
#pragma GCC unroll 8
        for (int c = 0; c < BLOCK; c++) {
            vf centre = SPREAD(packed[p * TR_PANEL + (size_t)c]);
#pragma GCC unroll 3
            for (int v = 0; v < RUNS; v++) sum[c][v] = LESS_PRODUCT(sum[c][v], centre, x[v]);
        }
    }
#pragma GCC unroll 3
    for (int v = 0; v < RUNS; v++) {
        vf best = ((vf *)at->best)[v], second = ((vf *)at->second)[v];
        vi which = ((vi *)at->which)[v];
#pragma GCC unroll 8
        for (int c = 0; c < BLOCK; c++) {
            which = WHERE_LESS(sum[c][v], best, SPREAD_INT(first + c), which);
            second = LOWER(second, HIGHER(best, sum[c][v]));
            best = LOWER(best, sum[c][v]);
        }
        ((vf *)at->best)[v] = best;
        ((vf *)at->second)[v] = second;
        ((vi *)at->which)[v] = which;
    }
}

/* Finds the two smallest scores of each row of a dense tile. */
static void NAME(lead)(const float *const *row, const struct tr_centres *centres, float *turned,
                       struct tr_leaders *at)
{
    size_t columns = centres->columns, panels = (centres->k + TR_PANEL - 1) / TR_PANEL;
    NAME(turn_tile)(row, columns, turned);
    for (size_t r = 0; r < TILE; r++) {
        at->best[r] = at->second[r] = FLT_MAX;
        at->which[r] = 0;
    }
    for (size_t j = 0; j < panels * TR_PANEL; j += BLOCK) {
        size_t panel = j / TR_PANEL * TR_PANEL;
        const float *packed = centres->packed + panel * columns + (j - panel);
        NAME(block)(turned, packed, centres->half + j, columns, (int)j, at);
    }
}

/* Computes the bounds of distances from the two smallest scores, and whether the smallest score may be wrong.
 * wrong: bound of the rounding error of a score, relative to |c|²/2 + |x| |c| + |x|². */
static void NAME(conclude)(struct tr_leaders *at, size_t rows, float wrong, float longest)
{
    float half = longest * longest / 2;
    for (size_t r = 0; r < rows; r++) {
        float square = at->square[r];
        float error = wrong * (half + sqrtf(square) * longest + square);
        float upper = square + 2 * (at->best[r] + error), lower = square + 2 * (at->second[r] - error);
        at->upper[r] = sqrtf(upper > 0 ? upper : 0) * (1 + 4 * ROUNDING);
        at->lower[r] = sqrtf(lower > 0 ? lower : 0) * (1 - 4 * ROUNDING);
        at->doubt[r] = !(at->second[r] - at->best[r] > 2 * error);
    }
}

/* Computes vectors × LANES scores of a sparse row for centres that are stored by columns. */
static inline __attribute__((always_inline)) void NAME(score_some)(const struct tr_sparse_row *x,
                                                                   const float *value, size_t width,
                                                                   const float *half, float *score,
                                                                   int vectors)
{
    vf sum[8];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[v] = ((const vf *)half)[v];
    for (size_t i = 0; i < x->n; i++) {
        vf factor = SPREAD(x->value ? x->value[i] : 1);
        const vf *c = (const vf *)(value + x->column[i] * width);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) sum[v] = LESS_PRODUCT(sum[v], factor, c[v]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) ((vf *)score)[v] = sum[v];
}

/* Computes the scores of a sparse row for all centres. */
static void NAME(score)(const struct tr_sparse_row *x, const struct tr_centres *c, float *score)
{
    size_t j = 0;
    for (; j + 8 * LANES <= c->width; j += 8 * LANES)
        NAME(score_some)(x, c->value + j, c->width, c->half + j, score + j, 8);
    for (; j + 2 * LANES <= c->width; j += 2 * LANES)
        NAME(score_some)(x, c->value + j, c->width, c->half + j, score + j, 2);
    for (; j < c->width; j += LANES) NAME(score_some)(x, c->value + j, c->width, c->half + j, score + j, 1);
}

/* Finds the smallest and the second smallest of the scores of one row. */
static void NAME(pick)(const float *score, size_t width, float *best, float *second, int *which)
{
    vf least = *(const vf *)score, next = SPREAD(FLT_MAX);
    vi lead = SPREAD_INT(0);
    for (size_t j = LANES; j < width; j += LANES) {
        vf s = *(const vf *)(score + j);
        lead = WHERE_LESS(s, least, SPREAD_INT((int)j), lead);
        next = LOWER(next, HIGHER(least, s));
        least = LOWER(least, s);
    }
    float lane_best[LANES], lane_next[LANES];
    int lane_lead[LANES];
    memcpy(lane_best, &least, sizeof least);
    memcpy(lane_next, &next, sizeof next);
    memcpy(lane_lead, &lead, sizeof lead);
    *best = *second = FLT_MAX;
    *which = 0;
    for (int l = 0; l < LANES; l++) {
        float s = lane_best[l];
        if (s < *best) {
            *second = *best;
            *best = s;
            *which = lane_lead[l] + l;
        } else if (s < *second) *second = s;
        if (lane_next[l] < *second) *second = lane_next[l];
    }
}

/* Computes the squared distances of a dense row to the centres of at most four panels, summed in f64 in the order of columns. */
static inline __attribute__((always_inline)) void
NAME(exact_some)(const float *x, const float *packed, size_t columns, int panels, double *distance)
{
    tr_f64x8 sum[4];
#pragma GCC unroll 4
    for (int i = 0; i < panels; i++) sum[i] = (tr_f64x8){0};
    for (size_t p = 0; p < columns; p++) {
        double value = (double)x[p];
#pragma GCC unroll 4
        for (int i = 0; i < panels; i++) {
            tr_f32x8 c;
            memcpy(&c, packed + ((size_t)i * columns + p) * TR_PANEL, sizeof c);
            tr_f64x8 apart = value - __builtin_convertvector(c, tr_f64x8);
            sum[i] += apart * apart;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < panels; i++) memcpy(distance + i * TR_PANEL, &sum[i], sizeof sum[i]);
}

/* Calls exact_some() with a constant number of panels, so that the compiler unrolls its loops. */
static void NAME(exact)(const float *x, const float *packed, size_t columns, size_t panels, double *distance)
{
    if (panels == 4) {
        NAME(exact_some)(x, packed, columns, 4, distance);
        return;
    }
    for (size_t i = 0; i < panels; i++)
        NAME(exact_some)(x, packed + i * columns * TR_PANEL, columns, 1, distance + i * TR_PANEL);
}

/* Returns the squared distance of two dense vectors, in f32 precision. */
static float NAME(apart)(const float *x, const float *c, size_t columns)
{
    vf sum[2] = {SPREAD(0), SPREAD(0)};
    size_t p = 0;
    for (; p + 2 * LANES <= columns; p += 2 * LANES)
#pragma GCC unroll 2
        for (size_t v = 0; v < 2; v++) {
            vf a, b;
            memcpy(&a, x + p + v * LANES, sizeof a);
            memcpy(&b, c + p + v * LANES, sizeof b);
            sum[v] = LESS_PRODUCT(sum[v], a - b, b - a);
        }
    sum[0] += sum[1];
    float total = 0, lane[LANES];
    memcpy(lane, &sum[0], sizeof lane);
    for (int l = 0; l < LANES; l++) total += lane[l];
    for (; p < columns; p++) total += (x[p] - c[p]) * (x[p] - c[p]);
    return total;
}
