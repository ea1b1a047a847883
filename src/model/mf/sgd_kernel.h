/* SGD steps on the ratings of one tile, compiled once per instruction level (trireme/cpu.h).
 *
 * A batch is up to 16 ratings of a visit. All errors of a batch use the same row of the user, which stays in registers: inner
 * products are reduced together, and no rating waits for the previous one. A row of more than WIDEST vectors is processed in
 * pieces. `batch` and `width` (vectors per row or piece) are compile-time constants in all calls. */
#ifdef __AVX512F__
#define LANES 16
#define LANE  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#elif defined __AVX__
#define LANES 8
#define LANE  0, 1, 2, 3, 4, 5, 6, 7
#else
#define LANES 4
#define LANE  0, 1, 2, 3
#endif
#define WIDEST 8 /* maximum number of vectors of a row, or of a piece of a row, in registers */
#define ALWAYS static inline __attribute__((always_inline))

typedef float NAME(vec) __attribute__((vector_size(4 * LANES), may_alias));
typedef int NAME(pick) __attribute__((vector_size(4 * LANES)));
/* Vectors of one number per rating of a batch. */
typedef float NAME(batch) __attribute__((vector_size(64), aligned(4), may_alias));
typedef int NAME(ints) __attribute__((vector_size(64)));
typedef uint16_t NAME(shorts) __attribute__((vector_size(32), aligned(2), may_alias));
#define VEC   NAME(vec)
#define BATCH NAME(batch)
#define INTS  NAME(ints)

ALWAYS VEC NAME(all)(float x)
{
    return x - (VEC){0}; /* broadcast */
}

/* Returns max(x, 0). */
ALWAYS VEC NAME(clip)(VEC x)
{
    return (VEC)((NAME(pick))x & (x > 0));
}

/* A step of fold(): lane i of the result is a[i] + a[i + d] if bit d of i is 0, otherwise b[i] + b[i - d]. */
ALWAYS VEC NAME(fold_two)(VEC a, VEC b, const int d)
{
#ifdef __clang__ /* clang shuffles by constants only */
    VEC sum = {0};
    for (int i = 0; i < LANES; i++) sum[i] = i & d ? b[i] + b[i - d] : a[i] + a[i + d];
    return sum;
#else
    const NAME(pick) lane = {LANE}, set = (lane & d) != 0; /* -1 for true */
    return __builtin_shuffle(a, b, lane - LANES * set) +
           __builtin_shuffle(a, b, lane + d + (2 * d - LANES) * set);
#endif
}

/* Reduces n vectors (a power of 2, at most LANES) to one vector: lane j is the sum of the lanes of part[j]. For n < LANES, lane
 * j + n equals lane j. */
ALWAYS VEC NAME(fold)(const int n, VEC *part)
{
#pragma GCC unroll 4
    for (int d = 1, left = n; d < LANES; d *= 2, left = (left + 1) / 2)
#pragma GCC unroll 8
        for (int j = 0; j < (left + 1) / 2; j++)
            part[j] = NAME(fold_two)(part[left > 1 ? 2 * j : j], part[left > 1 ? 2 * j + 1 : j], d);
    return part[0];
}

/* Returns |v|². */
ALWAYS float NAME(square)(size_t width, const VEC *v)
{
    VEC square = v[0] * v[0];
    for (size_t w = 1; w < width; w++) square += v[w] * v[w];
    return NAME(fold)(1, &square)[0];
}

/* Returns a vector of LANES lanes with the same sum as the 16 lanes of x. */
ALWAYS VEC NAME(narrow)(BATCH x)
{
    VEC part[TR_MF_BATCH / LANES];
    memcpy(part, &x, sizeof part);
    for (int i = 1; i < TR_MF_BATCH / LANES; i++) part[0] += part[i];
    return part[0];
}

/* Values per rating of a batch. Unused elements repeat the first rating with an error of 0 and a step of 0. */
struct NAME(turn) {
    INTS valid;              /* -1 for used elements, otherwise 0 */
    INTS index;              /* index of the item in the tile */
    int offset[TR_MF_BATCH]; /* offset of the item's row, in floats */
    /* Inner product of the rows of user and item; error; the item's row v becomes rest × v + step × (row of the user). */
    float dot[TR_MF_BATCH], error[TR_MF_BATCH], step[TR_MF_BATCH], rest[TR_MF_BATCH];
};

ALWAYS void NAME(begin)(struct NAME(turn) * turn, size_t n, size_t width, const uint16_t *item)
{
    const INTS lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    turn->valid = lane < (int)n;
    INTS index = __builtin_convertvector(*(const NAME(shorts) *)item, INTS);
    turn->index = (index & turn->valid) | (item[0] & ~turn->valid);
    *(INTS *)turn->offset = turn->index * (int)width;
    *(BATCH *)turn->dot = (BATCH){0};
}

/* Sets dot[j] = u · (row of the item of rating j) over `width` vectors; more: adds to dot[j] instead. */
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

/* Updates the row of the item of rating j, v ← rest × v + step × u, and adds error × (old v) to sum. */
ALWAYS void NAME(step)(const int width, const bool clip, const VEC *u, float *rows,
                       const struct NAME(turn) * turn, size_t j, VEC *sum)
{
    VEC *v = (VEC *)(rows + turn->offset[j]);
    VEC rest = NAME(all)(turn->rest[j]), step = NAME(all)(turn->step[j]), error = NAME(all)(turn->error[j]);
#pragma GCC unroll 8
    for (int w = 0; w < width; w++) {
        VEC old = v[w], new = rest *old + step *u[w];
        sum[w] += error * old;
        v[w] = clip ? NAME(clip)(new) : new;
    }
}

/* Updates the rows of n items; sum ← Σ error × (old v). Two partial sums make the additions independent. */
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

/* Returns the number from[i] of the item i of each rating. */
ALWAYS BATCH NAME(gather)(const float *from, const struct NAME(turn) * turn)
{
#if LANES == 16
    return (BATCH)_mm512_i32gather_ps((__m512i)turn->index, from, 4);
#else
    BATCH to = {0};
    for (int j = 0; j < TR_MF_BATCH; j++) to[j] = from[turn->index[j]];
    return to;
#endif
}

/* Writes the first n numbers to the elements to[i] of their items i. */
ALWAYS void NAME(scatter)(size_t n, BATCH from, const struct NAME(turn) * turn, float *to)
{
#if LANES == 16
    _mm512_mask_i32scatter_ps(to, (__mmask16)((1u << n) - 1), (__m512i)turn->index, (__m512)from, 4);
#else
    for (size_t j = 0; j < n; j++) to[turn->index[j]] = from[j];
#endif
}

/* Returns rate / √sum, accurate to at least 14 bits. */
ALWAYS BATCH NAME(divide_by_root)(float rate, BATCH sum)
{
#if LANES == 16
    return (BATCH)_mm512_rsqrt14_ps((__m512)sum) * rate;
#else
    for (int j = 0; j < TR_MF_BATCH; j++) sum[j] = rate / sqrtf(sum[j]);
    return sum;
#endif
}

/* Computes the errors of a batch and the steps of the items' rows, and updates the biases and sums of the items. Returns the
 * errors. strength: mean square of the user's factors; times the squared error, it is the mean square of an item's gradient. */
ALWAYS BATCH NAME(errors)(const struct tr_mf_pass *pass, const struct tr_mf_rows *items, size_t n,
                          const float *value, float base, float strength, struct NAME(turn) * turn)
{
    BATCH error = *(const BATCH *)value - base - *(const BATCH *)turn->dot, bias = {0},
          share = 1 - (BATCH){0}, rate = pass->rate - (BATCH){0};
    if (items->bias) error -= bias = NAME(gather)(items->bias, turn);
    error = (BATCH)((INTS)error & turn->valid);
    if (items->share) share = NAME(gather)(items->share, turn);
    if (items->sum) {
        BATCH sum = NAME(gather)(items->sum, turn) + error * error * strength;
        NAME(scatter)(n, sum, turn, items->sum);
        rate = NAME(divide_by_root)(pass->rate, sum);
    }
    rate = (BATCH)((INTS)rate & turn->valid);
    if (items->bias) {
        BATCH by = rate * pass->bias_part;
        NAME(scatter)(n, bias + by * (error - pass->bias_l2 * share * bias), turn, items->bias);
    }
    *(BATCH *)turn->error = error;
    *(BATCH *)turn->step = rate * error;
    *(BATCH *)turn->rest = 1 - rate * pass->l2 * share;
    return error;
}

/* Updates the user's row, bias and sum after a batch of n ratings. sum: Σ error v; errors: Σ error. The user's sum first gets the
 * squares of this batch: otherwise the first gradients, which are large, would have a large rate. */
ALWAYS void NAME(step_user)(const struct tr_mf_pass *pass, const struct tr_mf_rows *user, size_t width,
                            const bool clip, size_t n, float errors, const VEC *sum, VEC *u)
{
    float rate = pass->rate, share = (user->share ? *user->share : 1) * (float)n;
    if (user->sum) {
        *user->sum += NAME(square)(width, sum) * (1 / (float)pass->rank);
        rate /= sqrtf(*user->sum);
    }
    VEC rest = NAME(all)(1 - rate * pass->l2 * share), step = NAME(all)(rate);
#pragma GCC unroll 8
    for (size_t w = 0; w < width; w++) {
        u[w] = rest * u[w] + step * sum[w];
        if (clip) u[w] = NAME(clip)(u[w]);
    }
    if (user->bias) *user->bias += rate * pass->bias_part * (errors - pass->bias_l2 * share * *user->bias);
}

/* Calls DO(vectors, first vector) for a row of `width` vectors; width 0: for each piece of a long row. */
#define EACH_PIECE(DO)                                                                                       \
    do {                                                                                                     \
        size_t at_ = 0;                                                                                      \
        if (width) DO(width, 0);                                                                             \
        for (; !width && at_ + 4 <= vectors; at_ += 4) DO(4, at_);                                           \
        for (; !width && at_ + 2 <= vectors; at_ += 2) DO(2, at_);                                           \
        if (!width && at_ < vectors) DO(1, at_);                                                             \
    } while (0)
#define DOTS16(w, at) NAME(dots)(16, w, at > 0, u + at, rows + at * LANES, &turn)
#define DOTS8(w, at)  NAME(dots)(8, w, at > 0, u + at, rows + at * LANES, &turn)
#define DOTS4(w, at)  NAME(dots)(4, w, at > 0, u + at, rows + at * LANES, &turn)
#define STEPS(w, at)  NAME(steps)(n, w, clip, u + at, rows + at * LANES, &turn, sum + at)

/* Performs the steps of a batch of n <= 16 ratings and returns the sum of squared errors. width 0: the user's row u is long and
 * stays in memory; otherwise it is in registers. */
ALWAYS float NAME(turn)(const struct tr_mf_pass *pass, const struct tr_mf_rows *user,
                        const struct tr_mf_rows *items, const int width, const bool clip, size_t n,
                        const uint16_t *item, const float *value, VEC *u)
{
    _Alignas(64) struct NAME(turn) turn;
    VEC few[WIDEST], *sum = width ? few : (VEC *)pass->spare;
    size_t vectors = width ? (size_t)width : pass->width / LANES;
    float *rows = items->row, base = pass->mean + (user->bias ? *user->bias : 0);
    NAME(begin)(&turn, n, pass->width, item);
    if (n > 8) EACH_PIECE(DOTS16);
    else if (n > 4) EACH_PIECE(DOTS8);
    else EACH_PIECE(DOTS4);
    float strength = items->sum ? NAME(square)(vectors, u) * (1 / (float)pass->rank) * pass->crowd : 0;
    BATCH error = NAME(errors)(pass, items, n, value, base, strength, &turn);
    VEC totals[2] = {NAME(narrow)(error), NAME(narrow)(error * error)};
    VEC total = NAME(fold)(2, totals);
    EACH_PIECE(STEPS);
    NAME(step_user)(pass, user, vectors, clip, n, total[0], sum, u);
    return total[1];
}
#undef EACH_PIECE
#undef DOTS16
#undef DOTS8
#undef DOTS4
#undef STEPS

/* Performs the steps of all visits of a tile. */
ALWAYS double NAME(visits)(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                           const struct tr_mf_rows *users, const struct tr_mf_rows *items, const int width,
                           const bool clip)
{
    const uint16_t *item = tile->item;
    const float *value = tile->value;
    double squares = 0;
    /* Local copies cannot alias the rows, so the compiler keeps them in registers. */
    const struct tr_mf_pass own = *pass;
    const struct tr_mf_rows all = *items;
    for (size_t v = 0; v < tile->visits; v++) {
        if (v % 64 == 63) tr_seam();
        struct tr_mf_rows user = tr_mf_rows_from(users, tile->visit[v].user, own.width);
        VEC few[WIDEST], *row = (VEC *)user.row, *u = width ? few : row;
        for (int w = 0; w < width; w++) u[w] = row[w];
        for (size_t left = tile->visit[v].n, n; left > 0; left -= n, item += n, value += n) {
            n = left < TR_MF_BATCH ? left : TR_MF_BATCH;
            squares += (double)NAME(turn)(&own, &user, &all, width, clip, n, item, value, u);
        }
        for (int w = 0; w < width; w++) row[w] = u[w];
    }
    return squares;
}

/* With AVX-512, common widths are compiled separately. */
static double NAME(tile)(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                         const struct tr_mf_rows *users, const struct tr_mf_rows *items)
{
    if (pass->nonnegative) return NAME(visits)(pass, tile, users, items, 0, true);
#if LANES == 16
    switch (pass->width / LANES) {
    case 1: return NAME(visits)(pass, tile, users, items, 1, false);
    case 2: return NAME(visits)(pass, tile, users, items, 2, false);
    case 3: return NAME(visits)(pass, tile, users, items, 3, false);
    case 4: return NAME(visits)(pass, tile, users, items, 4, false);
    case 8: return NAME(visits)(pass, tile, users, items, 8, false);
    default: break;
    }
#endif
    return NAME(visits)(pass, tile, users, items, 0, false);
}

#undef VEC
#undef BATCH
#undef INTS
#undef LANES
#undef LANE
#undef ALWAYS
#undef WIDEST
