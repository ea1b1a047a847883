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
typedef float NAME(batch)
    __attribute__((vector_size(64), aligned(4), may_alias)); /* a number for each rating */
typedef int NAME(ints) __attribute__((vector_size(64)));
typedef uint16_t NAME(shorts) __attribute__((vector_size(32), aligned(2), may_alias));
#define WIDEST 8 /* vectors of a row, or a piece of one, that fit in registers */
#define VEC    NAME(vec)
#define BATCH  NAME(batch)
#define INTS   NAME(ints)
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

/* Lane j becomes the sum of all lanes of part[j], for n (a power of 2, at most LANES) vectors; for n < LANES, lane
 * j + n too. */
ALWAYS VEC NAME(fold)(const int n, VEC *part)
{
    const int pairs = n > 1 ? n / 2 : 1, fours = n > 2 ? n / 4 : 1;
#pragma GCC unroll 8
    for (int j = 0; j < pairs; j++) part[j] = FOLD(part[n > 1 ? 2 * j : j], part[n > 1 ? 2 * j + 1 : j], 1);
#pragma GCC unroll 8
    for (int j = 0; j < fours; j++) part[j] = FOLD(part[n > 2 ? 2 * j : j], part[n > 2 ? 2 * j + 1 : j], 2);
#if LANES > 4
    const int eights = n > 4 ? n / 8 : 1;
#pragma GCC unroll 8
    for (int j = 0; j < eights; j++) part[j] = FOLD(part[n > 4 ? 2 * j : j], part[n > 4 ? 2 * j + 1 : j], 4);
#endif
#if LANES > 8
    part[0] = FOLD(part[0], part[n > 8 ? 1 : 0], 8);
#endif
    return part[0];
}

/* What a batch computes with: numbers of its ratings, those behind the last repeat the first with an error of 0 and
 * a step of none. */
struct NAME(turn) {
    INTS valid;              /* -1 for the ratings that are there */
    INTS index;              /* of their items */
    int offset[TR_MF_BATCH]; /* of the items' rows, in floats */
    float dot[TR_MF_BATCH], error[TR_MF_BATCH], step[TR_MF_BATCH], snapshot[TR_MF_BATCH];
};

/* dot[j] = u · (row of rating j), over `width` vectors; with more, it is added to what is there. */
ALWAYS void NAME(dots)(const int batch, const int width, const bool more, const VEC *u, const float *rows,
                       struct NAME(turn) * turn)
{
    const int most = batch < LANES ? batch : LANES;
    for (int first = 0; first < batch; first += LANES) {
        VEC part[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < most; j++) {
            const VEC *v = (const VEC *)(rows + turn->offset[first + j]);
            part[j] = u[0] * v[0];
#pragma GCC unroll 8
            for (int w = 1; w < width; w++) part[j] += u[w] * v[w];
        }
        VEC *dot = (VEC *)(turn->dot + first), all = NAME(fold)(most, part);
        if (more) all += *dot;
        *dot = all;
    }
}

/* One item's row: v ← keep v + step u; sum ← sum + error v as it was. */
ALWAYS void NAME(step)(const int width, const bool clip, const VEC *u, float *rows,
                       const struct NAME(turn) * turn, size_t j, VEC *sum)
{
    VEC *v = (VEC *)(rows + turn->offset[j]);
    VEC snapshot = NAME(all)(turn->snapshot[j]), step = NAME(all)(turn->step[j]),
        error = NAME(all)(turn->error[j]);
#pragma GCC unroll 8
    for (int w = 0; w < width; w++) {
        VEC old = v[w], new = snapshot *old + step *u[w];
        sum[w] += error * old;
        v[w] = clip ? NAME(clip)(new) : new;
    }
}

/* All n of them; sum ← Σ error v. In two sums, so that one need not wait for the other. */
ALWAYS void NAME(steps)(size_t n, const int width, const bool clip, const VEC *u, float *rows,
                        const struct NAME(turn) * turn, VEC *sum)
{
    VEC even[WIDEST], odd[WIDEST];
#pragma GCC unroll 8
    for (int w = 0; w < width; w++) even[w] = odd[w] = (VEC){0};
    for (size_t j = 0; j < n; j += 2) {
        NAME(step)(width, clip, u, rows, turn, j, even);
        NAME(step)(width, clip, u, rows, turn, j + 1, odd);
    }
#pragma GCC unroll 8
    for (int w = 0; w < width; w++) sum[w] = even[w] + odd[w];
}

/* Numbers that belong to the items of a batch. */
ALWAYS BATCH NAME(gather)(const float *from, const struct NAME(turn) * turn)
{
#if LANES == 16
    return (BATCH)_mm512_i32gather_ps((__m512i)turn->index, from, 4);
#else
    BATCH to;
    for (int j = 0; j < TR_MF_BATCH; j++) to[j] = from[turn->index[j]];
    return to;
#endif
}

ALWAYS void NAME(scatter)(size_t n, BATCH from, const struct NAME(turn) * turn, float *to)
{
#if LANES == 16
    _mm512_mask_i32scatter_ps(to, (__mmask16)((1u << n) - 1), (__m512i)turn->index, (__m512)from, 4);
#else
    for (size_t j = 0; j < n; j++) to[turn->index[j]] = from[j];
#endif
}

/* rate / √sum, to 14 bits at least. */
ALWAYS BATCH NAME(divide_by_root)(float rate, BATCH sum)
{
#if LANES == 16
    return (BATCH)_mm512_rsqrt14_ps((__m512)sum) * rate;
#else
    for (int j = 0; j < TR_MF_BATCH; j++) sum[j] = rate / sqrtf(sum[j]);
    return sum;
#endif
}

/* A vector with the same sum. */
ALWAYS VEC NAME(narrow)(BATCH x)
{
    VEC part[TR_MF_BATCH / LANES];
    memcpy(part, &x, sizeof part);
    for (int i = 1; i < TR_MF_BATCH / LANES; i++) part[0] += part[i];
    return part[0];
}

/* |v|² */
ALWAYS float NAME(square)(size_t width, const VEC *v)
{
    VEC square = v[0] * v[0];
    for (size_t w = 1; w < width; w++) square += v[w] * v[w];
    return NAME(fold)(1, &square)[0];
}

/* The errors of a batch's ratings, and how each item's row steps. Returns the errors. */
ALWAYS BATCH NAME(errors)(const struct tr_mf_work *k, size_t n, const float *value, float strength,
                          struct NAME(turn) * turn)
{
    const struct tr_mf_pass *pass = k->pass;
    BATCH error = *(const BATCH *)value - k->base - *(const BATCH *)turn->dot, bias = {0},
          share = 1 - (BATCH){0};
    BATCH rate = pass->rate - (BATCH){0};
    if (k->item.bias) error -= bias = NAME(gather)(k->item.bias, turn);
    error = (BATCH)((INTS)error & turn->valid);
    if (k->item.share) share = NAME(gather)(k->item.share, turn);
    if (k->item.sum) {
        BATCH sum = NAME(gather)(k->item.sum, turn) + error * error * strength;
        NAME(scatter)(n, sum, turn, k->item.sum);
        rate = NAME(divide_by_root)(pass->rate, sum);
    }
    rate = (BATCH)((INTS)rate & turn->valid);
    if (k->item.bias) {
        BATCH by = rate * k->bias_part;
        NAME(scatter)(n, bias + by * (error - pass->bias_l2 * share * bias), turn, k->item.bias);
    }
    *(BATCH *)turn->error = error;
    *(BATCH *)turn->step = rate * error;
    *(BATCH *)turn->snapshot = 1 - rate * pass->l2 * share;
    return error;
}

ALWAYS void NAME(begin)(struct NAME(turn) * turn, size_t n, size_t width, const uint16_t *item)
{
    const INTS lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    turn->valid = lane < (int)n;
    INTS index = __builtin_convertvector(*(const NAME(shorts) *)item, INTS);
    turn->index = (index & turn->valid) | (item[0] & ~turn->valid);
    *(INTS *)turn->offset = turn->index * (int)width;
    *(BATCH *)turn->dot = (BATCH){0};
}

/* Longer rows are worked on in pieces. */
#define EACH_PIECE(width, DO)                                                                                \
    do {                                                                                                     \
        size_t at_ = 0;                                                                                      \
        for (; at_ + 4 <= (width); at_ += 4) DO(4, at_);                                                     \
        if ((width)&2) {                                                                                     \
            DO(2, at_);                                                                                      \
            at_ += 2;                                                                                        \
        }                                                                                                    \
        if ((width)&1) DO(1, at_);                                                                           \
    } while (0)

/* The user's row and what belongs to it, after a batch of n ratings: sum is Σ error v, errors Σ error. Its rate is that
 * with this batch's squares: the large first ones would throw rows far off otherwise, and slow them down for good. */
ALWAYS void NAME(step_user)(struct tr_mf_work *k, size_t width, const bool clip, size_t n, float errors,
                            const VEC *sum, VEC *u)
{
    const struct tr_mf_pass *pass = k->pass;
    float rate = pass->rate, share = k->user_share * (float)n;
    if (k->user_sum) {
        *k->user_sum += NAME(square)(width, sum) * k->per_rank;
        rate /= sqrtf(*k->user_sum);
    }
    VEC snapshot = NAME(all)(1 - rate * pass->l2 * share), step = NAME(all)(rate);
#pragma GCC unroll 8
    for (size_t w = 0; w < width; w++) {
        u[w] = snapshot * u[w] + step * sum[w];
        if (clip) u[w] = NAME(clip)(u[w]);
    }
    if (!k->user_bias) return;
    rate *= k->bias_part;
    *k->user_bias += rate * (errors - pass->bias_l2 * share * *k->user_bias);
    k->base = pass->mean + *k->user_bias;
}

/* Steps on n ratings, at most 16. width 0: a long row; otherwise u is in registers. */
ALWAYS void NAME(turn)(struct tr_mf_work *k, const int width, const bool clip, size_t n, const uint16_t *item,
                       const float *value, VEC *u)
{
    _Alignas(64) struct NAME(turn) turn;
    VEC few[WIDEST], *sum = width ? few : (VEC *)k->spare;
    size_t vectors = width ? (size_t)width : k->pass->width / LANES;
    float *rows = k->item.row;
    NAME(begin)(&turn, n, k->pass->width, item);
#define DOTS16(w, at) NAME(dots)(16, w, at > 0, u + at, rows + at * LANES, &turn)
#define DOTS8(w, at)  NAME(dots)(8, w, at > 0, u + at, rows + at * LANES, &turn)
#define DOTS4(w, at)  NAME(dots)(4, w, at > 0, u + at, rows + at * LANES, &turn)
#define STEPS(w, at)  NAME(steps)(n, w, clip, u + at, rows + at * LANES, &turn, sum + at)
#define ALL(DO)                                                                                              \
    do {                                                                                                     \
        if (width) DO(width, 0);                                                                             \
        else EACH_PIECE(vectors, DO);                                                                        \
    } while (0)
    if (n > 8) ALL(DOTS16);
    else if (n > 4) ALL(DOTS8);
    else ALL(DOTS4);
    float strength = k->item.sum ? NAME(square)(vectors, u) * k->per_rank * k->pass->crowd : 0;
    BATCH error = NAME(errors)(k, n, value, strength, &turn);
    VEC totals[2] = {NAME(narrow)(error), NAME(narrow)(error * error)};
    VEC total = NAME(fold)(2, totals);
    k->squares += (double)total[1];
    ALL(STEPS);
#undef DOTS16
#undef DOTS8
#undef DOTS4
#undef STEPS
#undef ALL
    NAME(step_user)(k, vectors, clip, n, total[0], sum, u);
}

ALWAYS void NAME(visit)(struct tr_mf_work *k, const int width, const bool clip, size_t n,
                        const uint16_t *item, const float *value, float *user)
{
    VEC few[WIDEST], *row = (VEC *)user, *u = width ? few : row;
    for (int w = 0; w < width; w++) u[w] = row[w];
    for (size_t some; n > 0; n -= some, item += some, value += some) {
        some = n < TR_MF_BATCH ? n : TR_MF_BATCH;
        NAME(turn)(k, width, clip, some, item, value, u);
    }
    for (int w = 0; w < width; w++) row[w] = u[w];
}

ALWAYS void NAME(visits)(struct tr_mf_work *k, const int width, const bool clip,
                         const struct tr_mf_tile *tile)
{
    const uint16_t *item = tile->item;
    const float *value = tile->value;
    for (size_t v = 0; v < tile->visits; v++) {
        size_t n = tile->visit[v].n, u = tile->visit[v].user;
        begin_visit(k, u);
        NAME(visit)(k, width, clip, n, item, value, k->user.row + u * k->pass->width);
        item += n;
        value += n;
    }
}

/* With AVX-512, the usual widths have code of their own. */
static void NAME(tile)(struct tr_mf_work *k, const struct tr_mf_tile *tile)
{
    size_t width = k->pass->nonnegative ? 0 : k->pass->width / LANES;
#if LANES == 16
    if (width == 1) NAME(visits)(k, 1, false, tile);
    else if (width == 2) NAME(visits)(k, 2, false, tile);
    else if (width == 3) NAME(visits)(k, 3, false, tile);
    else if (width == 4) NAME(visits)(k, 4, false, tile);
    else if (width == 8) NAME(visits)(k, 8, false, tile);
    else
#endif
        if (k->pass->nonnegative)
        NAME(visits)(k, 0, true, tile);
    else NAME(visits)(k, 0, false, tile);
    (void)width;
}

#undef VEC
#undef BATCH
#undef INTS
#undef LANES
#undef ALWAYS
#undef LOWER
#undef HIGHER
#undef PICK
#undef FOLD
#undef EACH_PIECE
#undef WIDEST
