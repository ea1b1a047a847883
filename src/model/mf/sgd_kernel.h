/* Steps on the ratings of one tile, for one level of vector instructions; see base/cpu.h for how it is included.
 *
 * A visit's ratings are taken up to 16 at a time: all their errors come from the same row of the user, which stays in
 * registers, so that their sums can be folded together and nothing waits for the rating before. BATCH and WIDTH
 * (vectors in a row, or in a piece of a long row) are constants wherever these functions are used.
 */
#ifdef __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif

typedef float NAME(vec) __attribute__((vector_size(4 * LANES), may_alias));
typedef int NAME(pick) __attribute__((vector_size(4 * LANES)));
#define VEC NAME(vec)
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS VEC NAME(all)(float x)
{
    return x - (VEC){0}; /* x in every lane */
}

/* What is below 0 becomes 0. */
ALWAYS VEC NAME(clip)(VEC x)
{
    return (VEC)((NAME(pick))x & (x > 0));
}

/* Lane i is of a where bit d of i is 0 and of b where it is 1, plus its neighbour across that bit: half of what it
 * takes to turn sums of vectors into a vector of sums. */
#if LANES == 16
#define LOWER(d, i)  (((i) & (d)) ? 16 + (i) : (i))
#define HIGHER(d, i) (((i) & (d)) ? 16 + (i) - (d) : (i) + (d))
#define PICK(f, d)                                                                                           \
    (NAME(pick))                                                                                             \
    {                                                                                                        \
        f(d, 0), f(d, 1), f(d, 2), f(d, 3), f(d, 4), f(d, 5), f(d, 6), f(d, 7), f(d, 8), f(d, 9), f(d, 10),  \
            f(d, 11), f(d, 12), f(d, 13), f(d, 14), f(d, 15)                                                 \
    }
#elif LANES == 8
#define LOWER(d, i)  (((i) & (d)) ? 8 + (i) : (i))
#define HIGHER(d, i) (((i) & (d)) ? 8 + (i) - (d) : (i) + (d))
#define PICK(f, d)                                                                                           \
    (NAME(pick))                                                                                             \
    {                                                                                                        \
        f(d, 0), f(d, 1), f(d, 2), f(d, 3), f(d, 4), f(d, 5), f(d, 6), f(d, 7)                               \
    }
#else
#define LOWER(d, i)  (((i) & (d)) ? 4 + (i) : (i))
#define HIGHER(d, i) (((i) & (d)) ? 4 + (i) - (d) : (i) + (d))
#define PICK(f, d)                                                                                           \
    (NAME(pick))                                                                                             \
    {                                                                                                        \
        f(d, 0), f(d, 1), f(d, 2), f(d, 3)                                                                   \
    }
#endif
#define FOLD(a, b, d) (__builtin_shuffle(a, b, PICK(LOWER, d)) + __builtin_shuffle(a, b, PICK(HIGHER, d)))

/* out[j] += the sum of all lanes of part[j], for n (a power of 2, at most LANES) vectors. */
ALWAYS void NAME(fold)(const int n, VEC *part, float *out)
{
    int left = n;
    if (left > 1) {
        left /= 2;
        for (int j = 0; j < left; j++) part[j] = FOLD(part[2 * j], part[2 * j + 1], 1);
    } else part[0] = FOLD(part[0], part[0], 1);
    if (left > 1) {
        left /= 2;
        for (int j = 0; j < left; j++) part[j] = FOLD(part[2 * j], part[2 * j + 1], 2);
    } else part[0] = FOLD(part[0], part[0], 2);
#if LANES > 4
    if (left > 1) {
        left /= 2;
        for (int j = 0; j < left; j++) part[j] = FOLD(part[2 * j], part[2 * j + 1], 4);
    } else part[0] = FOLD(part[0], part[0], 4);
#endif
#if LANES > 8
    if (left > 1) {
        left /= 2;
        for (int j = 0; j < left; j++) part[j] = FOLD(part[2 * j], part[2 * j + 1], 8);
    } else part[0] = FOLD(part[0], part[0], 8);
#endif
    for (int j = 0; j < n; j++) out[j] += part[0][j];
}

/* out[j] += u · (row of rating j), over `width` vectors. */
ALWAYS void NAME(dots)(const int batch, const int width, const VEC *u, float *const *row, float *out)
{
    enum { MOST = LANES };
    for (int first = 0; first < batch; first += MOST) {
        VEC part[MOST];
        const int n = batch < MOST ? batch : MOST;
#pragma GCC unroll 16
        for (int j = 0; j < n; j++) {
            const VEC *v = (const VEC *)row[first + j];
            part[j] = u[0] * v[0];
#pragma GCC unroll 8
            for (int w = 1; w < width; w++) part[j] += u[w] * v[w];
        }
        NAME(fold)(n, part, out + first);
    }
}

/* Rows of items: v ← keep_j v + step_j u; sum ← Σ error_j v as they were. */
ALWAYS void NAME(steps)(const int batch, const int width, const bool clip, const VEC *u, VEC *sum,
                        float *const *row, const struct tr_mf_turn *turn)
{
#pragma GCC unroll 4
    for (int j = 0; j < batch; j++) {
        VEC *v = (VEC *)row[j];
        VEC keep = NAME(all)(turn->keep[j]), step = NAME(all)(turn->step[j]), error = NAME(all)(turn->error[j]);
#pragma GCC unroll 8
        for (int w = 0; w < width; w++) {
            VEC old = v[w], new = keep *old + step *u[w];
            sum[w] += error * old;
            v[w] = clip ? NAME(clip)(new) : new;
        }
    }
}

/* Numbers that belong to the items of a batch, one for each; behind the first n: 0. */
ALWAYS void NAME(gather)(const int batch, size_t n, const float *from, const uint16_t *item, float *to)
{
#if LANES == 16
    __mmask16 some = (__mmask16)((1u << n) - 1);
    __m512i where = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, item));
    _mm512_storeu_ps(to, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), some, where, from, 4));
    (void)batch;
#else
    for (int j = 0; j < batch; j++) to[j] = (size_t)j < n ? from[item[j]] : 0;
#endif
}

ALWAYS void NAME(scatter)(size_t n, const float *from, const uint16_t *item, float *to)
{
#if LANES == 16
    __mmask16 some = (__mmask16)((1u << n) - 1);
    __m512i where = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, item));
    _mm512_mask_i32scatter_ps(to, some, where, _mm512_loadu_ps(from), 4);
#else
    for (size_t j = 0; j < n; j++) to[item[j]] = from[j];
#endif
}

/* rate / √sum, to 14 bits at least. */
ALWAYS void NAME(divide_by_root)(const int batch, float rate, const float *sum, float *to)
{
#if LANES == 16
    (void)batch;
    __m512 root = _mm512_rsqrt14_ps(_mm512_loadu_ps(sum));
    _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_set1_ps(rate), root));
#else
    for (int j = 0; j < batch; j++) to[j] = rate / sqrtf(sum[j]);
#endif
}

/* The errors of a batch's ratings, and how each item's row steps; padding stays 0. Returns Σ error². */
ALWAYS double NAME(errors)(const struct tr_mf_work *k, const int batch, size_t n, const uint16_t *item,
                           const float *value, float strength, const float *dot, struct tr_mf_turn *turn)
{
    const struct tr_mf_pass *pass = k->pass;
    float rate[TR_MF_BATCH], share[TR_MF_BATCH], bias[TR_MF_BATCH], sum[TR_MF_BATCH];
    float squares = 0;
    if (k->item.bias) NAME(gather)(batch, n, k->item.bias, item, bias);
    for (int j = 0; j < batch; j++) {
        float error = ((size_t)j < n ? value[j] - k->base : 0) - dot[j];
        turn->error[j] = k->item.bias ? error - bias[j] : error;
        squares += turn->error[j] * turn->error[j];
        rate[j] = pass->rate;
        share[j] = 1;
    }
    if (k->item.share) NAME(gather)(batch, n, k->item.share, item, share);
    if (k->item.sum) {
        NAME(gather)(batch, n, k->item.sum, item, sum);
        for (int j = 0; j < batch; j++) sum[j] += turn->error[j] * turn->error[j] * strength;
        NAME(scatter)(n, sum, item, k->item.sum);
        NAME(divide_by_root)(batch, pass->rate, sum, rate);
    }
    if (k->item.bias) {
        for (int j = 0; j < batch; j++) {
            float by = k->item.sum ? rate[j] : pass->bias_rate;
            bias[j] += by * (turn->error[j] - pass->bias_l2 * share[j] * bias[j]);
        }
        NAME(scatter)(n, bias, item, k->item.bias);
    }
    for (int j = 0; j < batch; j++) {
        turn->step[j] = (size_t)j < n ? rate[j] * turn->error[j] : 0;
        turn->keep[j] = (size_t)j < n ? 1 - rate[j] * pass->l2 * share[j] : 0;
    }
    return (double)squares;
}

/* The sum over all lanes of |v|². */
ALWAYS float NAME(square)(const int width, const VEC *v)
{
    VEC square = v[0] * v[0];
    for (int w = 1; w < width; w++) square += v[w] * v[w];
    float sum = 0;
    NAME(fold)(1, &square, &sum);
    return sum;
}

/* Steps on n ratings, at most `batch` of them: the row u of the user is in registers. */
ALWAYS void NAME(turn)(struct tr_mf_work *k, const int batch, const int width, const bool clip, size_t n,
                       const uint16_t *item, const float *value, VEC *u)
{
    struct tr_mf_turn turn;
    float *row[TR_MF_BATCH], dot[TR_MF_BATCH] = {0};
    for (int j = 0; j < batch; j++)
        row[j] = (size_t)j < n ? k->item.row + (size_t)item[j] * k->pass->width : k->spare;
    NAME(dots)(batch, width, u, row, dot);
    float strength = k->item.sum ? NAME(square)(width, u) * k->per_rank : 0;
    k->squares += NAME(errors)(k, batch, n, item, value, strength, dot, &turn);
    VEC sum[8] = {0};
    NAME(steps)(batch, width, clip, u, sum, row, &turn);
    float rate = k->pass->rate;
    if (k->user_sum) {
        *k->user_sum += NAME(square)(width, sum) * k->per_rank;
        rate /= sqrtf(*k->user_sum);
    }
    VEC keep = NAME(all)(1 - rate * k->pass->l2 * k->user_share * (float)n), step = NAME(all)(rate);
    for (int w = 0; w < width; w++) {
        u[w] = keep * u[w] + step * sum[w];
        if (clip) u[w] = NAME(clip)(u[w]);
    }
    if (k->user_bias) {
        float all = 0, by = k->user_sum ? rate : k->pass->bias_rate;
        for (int j = 0; j < batch; j++) all += turn.error[j];
        *k->user_bias += by * (all - k->pass->bias_l2 * k->user_share * (float)n * *k->user_bias);
        k->base = k->pass->mean + *k->user_bias;
    }
}

ALWAYS void NAME(visit)(struct tr_mf_work *k, const int width, const bool clip, const struct tr_mf_visit *visit,
                        const uint16_t *item, const float *value)
{
    VEC u[8], *row = (VEC *)(k->user.row + (size_t)visit->user * k->pass->width);
    for (int w = 0; w < width; w++) u[w] = row[w];
    size_t n = visit->n;
    for (; n > 16; n -= 16, item += 16, value += 16) NAME(turn)(k, 16, width, clip, 16, item, value, u);
    if (n > 8) NAME(turn)(k, 16, width, clip, n, item, value, u);
    else if (n > 4) NAME(turn)(k, 8, width, clip, n, item, value, u);
    else if (n > 0) NAME(turn)(k, 4, width, clip, n, item, value, u);
    for (int w = 0; w < width; w++) row[w] = u[w];
}

static void NAME(pass2)(struct tr_mf_work *k, const struct tr_mf_tile *tile)
{
    size_t at = 0;
    for (size_t v = 0; v < tile->visits; v++) {
        const struct tr_mf_visit *visit = &tile->visit[v];
        tr_mf_begin_visit(k, visit);
        NAME(visit)(k, 32 / LANES, false, visit, tile->item + at, tile->value + at);
        at += visit->n;
    }
}
