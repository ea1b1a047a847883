/* Sampling of a block, compiled once per instruction level (trireme/cpu.h). sampler.c includes this file with NAME(f) defined,
 * hence it has no include guard. struct tr_lda_sampler in lda.h defines g and q.
 *
 * Weights w_0, w_1, ... are summed in vectors of 16 lanes: sums[v] is the sum of the vectors 0 .. v, lane by lane. To draw an
 * index, the lane is drawn from the prefix sums over the 16 lanes of the last vector of sums; then the vector is drawn from the
 * sums in this lane. With AVX-512 these steps use intrinsics: a sweep takes half the time of the loops as GCC 12 compiles them (20
 * newsgroups, 100 topics).
 *
 * The conditional probability of a topic excludes the current token. Removing the token from the counts and adding it back would be
 * most of the work once topics rarely change. Therefore the weights include the token, which makes only the weight of its current
 * topic too large. If that topic is drawn, it is accepted with the probability (weight without the token) / (weight with the
 * token); otherwise the draw is repeated. This rejection sampling is exact. Changes of n_k by other workers are unknown here, so
 * n_wk can exceed n_k; then a probability above 1 counts as 1. */

#ifdef __AVX512F__
/* Returns the inclusive prefix sums over the 16 lanes. */
static inline __m512 NAME(scan)(__m512 x)
{
    const __m512i by1 = _mm512_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
    const __m512i by2 = _mm512_setr_epi32(0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
    const __m512i by4 = _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    x = _mm512_add_ps(x, _mm512_maskz_permutexvar_ps(0xfffe, by1, x));
    x = _mm512_add_ps(x, _mm512_maskz_permutexvar_ps(0xfffc, by2, x));
    x = _mm512_add_ps(x, _mm512_maskz_permutexvar_ps(0xfff0, by4, x));
    return _mm512_add_ps(x, _mm512_castsi512_ps(_mm512_maskz_shuffle_i64x2(0xf0, _mm512_castps_si512(x),
                                                                           _mm512_castps_si512(x), 0x40)));
}
#endif

/* Computes d->lanes, the prefix sums over the lanes of the last vector of sums. Returns the sum of all weights. */
static inline float NAME(finish)(struct tr_lda_draw *d, const float *last)
{
#ifdef __AVX512F__
    _mm512_store_ps(d->lanes + LANES, NAME(scan)(_mm512_loadu_ps(last)));
#else
    float sum = 0;
    for (int j = 0; j < LANES; j++) d->lanes[LANES + j] = sum += last[j];
#endif
    return d->lanes[2 * LANES - 1];
}

/* Returns an index with a probability proportional to its weight, if u is uniform below the sum of all weights. Because of rounding
 * errors, the index may have no weight: callers then repeat the draw. */
INLINE size_t NAME(pick)(const struct tr_lda_draw *d, size_t vectors, float u)
{
    const float *sums = d->sums;
    size_t v = 0;
#ifdef __AVX512F__
    unsigned lane = (unsigned)__builtin_popcount(
        _mm512_cmp_ps_mask(_mm512_load_ps(d->lanes + LANES), _mm512_set1_ps(u), _CMP_LE_OQ));
    if (lane > LANES - 1) lane = LANES - 1;
    __m512 rest = _mm512_set1_ps(u - d->lanes[LANES - 1 + lane]);
    __m512i before = _mm512_setzero_si512();
    for (size_t i = 0; i < vectors; i++)
        before = _mm512_mask_add_epi32(before,
                                       _mm512_cmp_ps_mask(_mm512_load_ps(sums + i * LANES), rest, _CMP_LE_OQ),
                                       before, _mm512_set1_epi32(1));
    v = (size_t)(unsigned)_mm_cvtsi128_si32(
        _mm512_castsi512_si128(_mm512_permutexvar_epi32(_mm512_set1_epi32((int)lane), before)));
#else
    unsigned lane = 0;
    for (unsigned j = 1; j < LANES; j++) lane += d->lanes[LANES - 1 + j] <= u;
    float rest = u - d->lanes[LANES - 1 + lane];
    for (size_t i = 0; i < vectors; i++) v += sums[i * LANES + lane] <= rest;
#endif
    return (v < vectors ? v : vectors - 1) * LANES + lane;
}

/* Sums weights, and returns the sum of all. `weight` is an expression for the weight of element i. With AVX-512, `add` is an
 * expression that adds the weights of vector v to `sum`. */
#define WEIGH_EACH(draw, n_vectors, weight)                                                                  \
    float sum[LANES] = {0};                                                                                  \
    for (size_t v = 0; v < (n_vectors); v++)                                                                 \
        for (size_t j = 0, i = v * LANES; j < LANES; j++, i++) (draw)->sums[i] = sum[j] += (weight);         \
    return NAME(finish)((draw), sum)
#ifdef __AVX512F__
#define WEIGH(draw, n_vectors, add, weight)                                                                  \
    float *sums = (draw)->sums;                                                                              \
    __m512 sum = _mm512_setzero_ps();                                                                        \
    for (size_t v = 0; v < (n_vectors); v++) {                                                               \
        sum = add;                                                                                           \
        _mm512_store_ps(sums + v * LANES, sum);                                                              \
    }                                                                                                        \
    _mm512_store_ps((draw)->lanes + LANES, NAME(scan)(sum));                                                 \
    return (draw)->lanes[2 * LANES - 1]
#else
#define WEIGH(draw, n_vectors, add, weight) WEIGH_EACH(draw, n_vectors, weight)
#endif

/* The weigh functions fill *d and return the sum of the weights. Here the weights are (n_dk + α_k) q_k of all topics: dense
 * record. */
INLINE float NAME(weigh_dense)(const struct tr_lda_sampler *s, const uint16_t *count, size_t vectors,
                               struct tr_lda_draw *d)
{
    const float *q = s->q, *alpha = s->alpha;
    WEIGH(d, vectors,
          _mm512_fmadd_ps(_mm512_add_ps(_mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(_mm256_load_si256(
                                            (const __m256i *)(const void *)(count + v * LANES)))),
                                        _mm512_load_ps(alpha + v * LANES)),
                          _mm512_load_ps(q + v * LANES), sum),
          ((float)count[i] + alpha[i]) * q[i]);
}

/* Weights: n_dk q_k of the pairs in a list. Element 0 of a list is its length, which acts as a pair with the count 0. */
static inline float NAME(weigh_list)(const float *q, const uint32_t *list, size_t vectors,
                                     struct tr_lda_draw *d)
{
    WEIGH(d, vectors,
          _mm512_fmadd_ps(
              _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_load_si512(list + v * LANES), 16)),
              _mm512_i32gather_ps(
                  _mm512_and_si512(_mm512_load_si512(list + v * LANES), _mm512_set1_epi32(0xffff)), q, 4),
              sum),
          (float)(int32_t)(list[i] >> 16) * q[list[i] & 0xffff]);
}

/* Weights: n_dk q_k of all topics, for a wide record. */
static float NAME(weigh_wide)(const struct tr_lda_sampler *s, const uint32_t *count, struct tr_lda_draw *d)
{
    WEIGH_EACH(d, s->vectors, (float)count[i] * s->q[i]);
}

/* Weights: α_k q_k of consecutive topics. */
static inline float NAME(weigh_prior)(const float *q, const float *alpha, size_t vectors,
                                      struct tr_lda_draw *d)
{
    WEIGH(d, vectors, _mm512_fmadd_ps(_mm512_load_ps(alpha + v * LANES), _mm512_load_ps(q + v * LANES), sum),
          alpha[i] * q[i]);
}

/* Weights: part[i], the sum of α_k q_k over part i, which is a range of consecutive topics. */
static inline float NAME(weigh_parts)(const double *part, size_t vectors, struct tr_lda_draw *d)
{
    WEIGH(d, vectors,
          _mm512_add_ps(sum, _mm512_insertf32x8(
                                 _mm512_castps256_ps512(_mm512_cvtpd_ps(_mm512_load_pd(part + v * LANES))),
                                 _mm512_cvtpd_ps(_mm512_load_pd(part + v * LANES + LANES / 2)), 1)),
          (float)part[i]);
}

/* Returns the index of a topic's pair in a list, or 0 if there is none. */
static inline size_t NAME(find)(const uint32_t *list, size_t vectors, uint32_t topic)
{
#ifdef __AVX512F__
    const __m512i wanted = _mm512_set1_epi32((int)topic);
    for (size_t v = 0; v < vectors; v++) {
        __m512i x = _mm512_load_si512(list + v * LANES);
        __mmask16 is =
            _mm512_mask_cmpeq_epi32_mask(_mm512_test_epi32_mask(x, _mm512_set1_epi32((int)0xffff0000)),
                                         _mm512_and_si512(x, _mm512_set1_epi32(0xffff)), wanted);
        if (is) return v * LANES + (size_t)__builtin_ctz(is);
    }
#else
    for (size_t i = 1; i < vectors * LANES; i++)
        if ((list[i] & 0xffff) == topic && list[i] >> 16) return i;
#endif
    return 0;
}

/* ---- the current word ---- */

/* Computes s->prior = Σ_k α_k q_k and its sums over parts, which draws for lists use. set_q() then updates them in double
 * precision, so that errors of thousands of small changes do not accumulate. */
static void NAME(parts)(struct tr_lda_sampler *s)
{
    size_t run = (size_t)1 << s->part_shift;
    s->prior = 0;
    for (size_t part = 0, i = 0; part < s->parts; part++) {
        float sum[LANES] = {0};
        double all = 0;
        for (size_t end = i + run; i < end; i += LANES)
            for (size_t j = 0; j < LANES; j++) sum[j] += s->alpha[i + j] * s->q[i + j];
        for (int j = 0; j < LANES; j++) all += (double)sum[j];
        s->prior += s->part[part] = all;
    }
}

/* Computes q from s->count. empty: all counts are 0. */
static void NAME(fill_q)(struct tr_lda_sampler *s, bool empty)
{
    float beta = (float)s->beta;
    for (size_t k = 0; k < s->room; k++) s->q[k] = ((float)(int32_t)s->count[k] + beta) * s->g[k];
    if (s->lists) NAME(parts)(s);
    s->q_empty = empty;
}

/* Reads the row of a word into s->count, and computes q. */
static void NAME(begin_word)(struct tr_lda_sampler *s, enum tr_lda_row kind, const void *row)
{
    uint32_t topics = s->layout->topics;
    if (kind == TR_LDA_LIST) {
        if (!s->q_empty) NAME(fill_q)(s, true);
        begin_list(s, row);
    } else {
        if (kind == TR_LDA_DENSE)
            for (uint32_t k = 0; k < topics; k++) s->count[k] = ((const uint16_t *)row)[k];
        else memcpy(s->count, row, topics * sizeof *s->count);
        NAME(fill_q)(s, false);
    }
}

/* Writes the row of the current word back, and clears s->count. */
static void NAME(end_word)(struct tr_lda_sampler *s, enum tr_lda_row kind, void *row)
{
    uint32_t topics = s->layout->topics;
    if (kind == TR_LDA_LIST) {
        end_list(s, row);
        return;
    }
    if (kind == TR_LDA_DENSE)
        for (uint32_t k = 0; k < topics; k++) ((uint16_t *)row)[k] = (uint16_t)s->count[k];
    else memcpy(row, s->count, topics * sizeof *s->count);
    memset(s->count, 0, topics * sizeof *s->count);
}

/* ---- draws ---- */

/* Draws a topic with weight α_k q_k: first the part, then the topic. Because of rounding errors, the topic may not exist. */
static inline size_t NAME(draw_prior)(struct tr_lda_sampler *s)
{
    struct tr_lda_draw *d = &s->prior_draw;
    uint64_t bits = next(&s->rng);
    float sum = NAME(weigh_parts)(s->part, s->part_vectors, d);
    size_t first = NAME(pick)(d, s->part_vectors, uniform(bits) * sum) << s->part_shift;
    if (first >= s->room) return first;
    size_t vectors = (size_t)1 << (s->part_shift - 4);
    sum = NAME(weigh_prior)(s->q + first, s->alpha + first, vectors, d);
    return first + NAME(pick)(d, vectors, uniform_low(bits) * sum);
}

/* The draw functions draw a new topic for a token whose topic is k, change the counts, and return the topic. Here the document's
 * record is dense. again: the next token of the word has the same document. */
INLINE uint32_t NAME(draw_dense)(struct tr_lda_sampler *s, uint16_t *count, size_t vectors, uint32_t k,
                                 bool again)
{
    struct tr_lda_draw *d = &s->draw;
    if (!d->ready) d->sum = NAME(weigh_dense)(s, count, vectors, d);
    count_weight(s, (double)d->sum);
    d->ready = again;
    for (;;) {
        uint64_t bits = next(&s->rng);
        size_t z = NAME(pick)(d, vectors, uniform(bits) * d->sum);
        if (z >= s->layout->topics) continue;
        if (z != k) {
            d->ready = false;
            move_word(s, k, (uint32_t)z);
            count[k]--;
            count[z]++;
            return (uint32_t)z;
        }
        float n = (float)count[k], a = s->alpha[k];
        if (uniform_low(bits) * (n + a) * s->q[k] < (n - 1 + a) * without_one(s, k)) return k;
    }
}

/* Updates the sums of weigh_list() after the pair at index `at` has changed. */
static inline void NAME(update_sums)(struct tr_lda_draw *d, const float *q, const uint32_t *list, size_t at)
{
    float *sum = d->sums + at, old = at < LANES ? sum[0] : sum[0] - sum[-LANES];
    float by = (float)(int32_t)(list[at] >> 16) * q[list[at] & 0xffff] - old;
    for (size_t i = at; i < d->vectors * LANES; i += LANES, sum += LANES) *sum += by;
}

/* Moves a token from topic k to topic z in a list. If the next token belongs to the same document (again), also updates the sums of
 * weigh_list(): the weights of other pairs have not changed.
 *
 * @param [in] to  index of the pair of z; 0: unknown */
static inline void NAME(move_list)(struct tr_lda_sampler *s, uint32_t *list, uint32_t k, size_t to,
                                   uint32_t z, bool again)
{
    struct tr_lda_draw *d = &s->draw;
    size_t last = list[0], from = NAME(find)(list, last / LANES + 1, k);
    if (!to) to = NAME(find)(list, last / LANES + 1, z);
    move_pair(list, from, to, z);
    d->ready = again && list[0] / LANES < d->vectors;
    if (!d->ready) return;
    NAME(update_sums)(d, s->q, list, from);
    if (to != from) NAME(update_sums)(d, s->q, list, to ? to : list[0]);
    if (last != from && last != to) NAME(update_sums)(d, s->q, list, last);
    d->sum = NAME(finish)(d, d->sums + (d->vectors - 1) * LANES);
}

/* Draws a topic if the document's record is a list: from n_dk q_k of its pairs, or from α_k q_k of all topics. */
static inline uint32_t NAME(draw_list)(struct tr_lda_sampler *s, uint32_t *list, uint32_t k, bool again)
{
    struct tr_lda_draw *d = &s->draw;
    if (!d->ready) {
        d->vectors = list[0] / LANES + 1;
        d->sum = NAME(weigh_list)(s->q, list, d->vectors, d);
    }
    double all = (double)d->sum + s->prior;
    count_weight(s, all);
    d->ready = again;
    for (;;) {
        uint64_t bits = next(&s->rng);
        double u = (double)uniform(bits) * all;
        size_t at = 0;
        uint32_t z;
        if (u < (double)d->sum) {
            at = NAME(pick)(d, d->vectors, (float)u);
            if (!(list[at] >> 16)) continue;
            z = list[at] & 0xffff;
        } else {
            z = (uint32_t)NAME(draw_prior)(s);
            if (z >= s->layout->topics) continue;
        }
        if (z != k) {
            move_word(s, k, z);
            NAME(move_list)(s, list, k, at, z, again);
            return z;
        }
        float q = without_one(s, k);
        float n = at ? (float)(int32_t)(list[at] >> 16) : 1;
        if (uniform_low(bits) * n * s->q[k] < (at ? n - 1 : 1) * q) return k;
    }
}

/* Draws a topic if the document's record is wide. */
static uint32_t NAME(draw_wide)(struct tr_lda_sampler *s, uint32_t *count, uint32_t k)
{
    float sum = NAME(weigh_wide)(s, count, &s->draw);
    double all = (double)sum + s->prior;
    count_weight(s, all);
    for (;;) {
        uint64_t bits = next(&s->rng);
        double u = (double)uniform(bits) * all;
        bool own = u < (double)sum;
        size_t z = own ? NAME(pick)(&s->draw, s->vectors, (float)u) : NAME(draw_prior)(s);
        if (z >= s->layout->topics || (own && !count[z])) continue;
        if (z != k) {
            move_word(s, k, (uint32_t)z);
            count[k]--;
            count[z]++;
            return (uint32_t)z;
        }
        float n = own ? (float)count[k] : 1;
        if (uniform_low(bits) * n * s->q[k] < (own ? n - 1 : 1) * without_one(s, k)) return k;
    }
}

/* ---- a block ---- */

INLINE void NAME(sample_vectors)(struct tr_lda_sampler *s, uint64_t begin, uint64_t end, size_t vectors)
{
    for (uint64_t i = begin; i < end; i++) {
        fetch(s, s->at[i + AHEAD], s->record_lines);
        bool again = i + 1 < end && s->at[i + 1] == s->at[i];
        uint32_t k = topic_of(s, i), z = NAME(draw_dense)(s, record(s, s->at[i]), vectors, k, again);
        if (z != k) set_topic(s, i, z);
    }
}

/* Samples the tokens begin .. end - 1 with dense records. Small numbers of vectors are constants, so that sums stay in
 * registers. */
static void NAME(sample_dense)(struct tr_lda_sampler *s, uint64_t begin, uint64_t end)
{
    switch (s->vectors) {
    case 1: NAME(sample_vectors)(s, begin, end, 1); break;
    case 2: NAME(sample_vectors)(s, begin, end, 2); break;
    case 3: NAME(sample_vectors)(s, begin, end, 3); break;
    case 4: NAME(sample_vectors)(s, begin, end, 4); break;
    case 5: NAME(sample_vectors)(s, begin, end, 5); break;
    case 6: NAME(sample_vectors)(s, begin, end, 6); break;
    case 7: NAME(sample_vectors)(s, begin, end, 7); break;
    case 8: NAME(sample_vectors)(s, begin, end, 8); break;
    default: NAME(sample_vectors)(s, begin, end, s->vectors);
    }
}

/* Samples the tokens begin .. end - 1 with records that are lists or wide. */
static void NAME(sample_lists)(struct tr_lda_sampler *s, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        fetch(s, s->at[i + AHEAD], 1);
        if (s->at[i + AHEAD / 2] != s->at[i + AHEAD / 2 - 1]) fetch_list(s, s->at[i + AHEAD / 2]);
        uint32_t *list = record(s, s->at[i]), k = topic_of(s, i);
        bool again = i + 1 < end && s->at[i + 1] == s->at[i];
        uint32_t z =
            list[0] == WIDE ? NAME(draw_wide)(s, list + LANES, k) : NAME(draw_list)(s, list, k, again);
        if (z != k) set_topic(s, i, z);
    }
}

static void NAME(sample)(struct tr_lda_sampler *s, int number, void *block)
{
    const struct tr_lda_layout *l = s->layout;
    float all = (float)s->words_beta;
    enum { PIECE = 512 }; /* number of tokens between two calls of tr_seam(): tens of microseconds */
    for (uint32_t k = 0; k < l->topics; k++) s->g[k] = 1 / ((float)s->total[k] + all);
    NAME(fill_q)(s, true);
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++) {
        if (s->begin[p] == s->begin[p + 1]) continue;
        if (p % 4 == 0) between_words(s, l->row[p]);
        void *row = (char *)block + l->row[p];
        NAME(begin_word)(s, (enum tr_lda_row)l->kind[p], row);
        for (uint64_t i = s->begin[p], end; i < s->begin[p + 1]; i = end) {
            end = s->begin[p + 1] - i > PIECE ? i + PIECE : s->begin[p + 1];
            if (s->lists) NAME(sample_lists)(s, i, end);
            else NAME(sample_dense)(s, i, end);
            if (end < s->begin[p + 1]) tr_seam();
        }
        NAME(end_word)(s, (enum tr_lda_row)l->kind[p], row);
    }
}

#undef WEIGH
#undef WEIGH_EACH
