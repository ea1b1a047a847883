#include "consistency/functions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* For what is looked up one by one. */
static double element(const tr_share *share, size_t at)
{
    switch (share->dtype) {
    case TR_F32: return (double)((const float *)share->value)[at];
    case TR_F64: return ((const double *)share->value)[at];
    case TR_I32: return (double)((const int32_t *)share->value)[at];
    case TR_I64: return (double)((const int64_t *)share->value)[at];
    }
    return 0;
}

/* ---- what answers are made of ---- */

static int take_question(const char *answer, const void *question, size_t bytes, void *into, size_t wanted)
{
    if (bytes != wanted)
        return tr_fail(TR_ERR_INTERNAL, "answer %s: a question of %zu bytes: expected %zu", answer, bytes,
                       wanted);
    if (wanted > 0) memcpy(into, question, wanted);
    return TR_OK;
}

static int give_result(const char *answer, const void *from, size_t n, void *result, size_t *bytes)
{
    if (*bytes < n)
        return tr_fail(TR_ERR_INTERNAL, "answer %s: room for a result of %zu bytes: expected %zu", answer,
                       *bytes, n);
    memcpy(result, from, n);
    *bytes = n;
    return TR_OK;
}

/* Parts of servers agree in size, where it does not depend on what they hold. */
static int check_part(size_t bytes, size_t part_bytes)
{
    if (bytes == part_bytes) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "parts of an answer differ in size: %zu and %zu bytes", bytes,
                   part_bytes);
}

int tr_answer_add_doubles(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    (void)room;
    TR_TRY(check_part(*bytes, part_bytes));
    for (size_t at = 0; at < part_bytes; at += sizeof(double)) {
        double sum, more;
        memcpy(&sum, (char *)result + at, sizeof sum);
        memcpy(&more, (const char *)part + at, sizeof more);
        sum += more;
        memcpy((char *)result + at, &sum, sizeof sum);
    }
    return TR_OK;
}

/* ---- sums over all elements, by four sums at once, in an order that depends on nothing but their number ---- */

#define SUM(NAME, SUFFIX, TYPE, RESULT, TERM)                                                                \
    static RESULT NAME##_##SUFFIX(size_t n, const TYPE *a)                                                   \
    {                                                                                                        \
        RESULT sum[4] = {0, 0, 0, 0};                                                                        \
        size_t i = 0;                                                                                        \
        for (; i + 4 <= n; i += 4)                                                                           \
            for (size_t k = 0; k < 4; k++) {                                                                 \
                TYPE v = a[i + k];                                                                           \
                sum[k] += TERM;                                                                              \
            }                                                                                                \
        for (; i < n; i++) {                                                                                 \
            TYPE v = a[i];                                                                                   \
            sum[0] += TERM;                                                                                  \
        }                                                                                                    \
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);                                                        \
    }

/* The answer of that name: over the share's elements v. */
#define SUMS(NAME, RESULT, TERM)                                                                             \
    SUM(NAME, f32, float, RESULT, TERM)                                                                      \
    SUM(NAME, f64, double, RESULT, TERM)                                                                     \
    SUM(NAME, i32, int32_t, RESULT, TERM)                                                                    \
    SUM(NAME, i64, int64_t, RESULT, TERM)                                                                    \
    static int get_##NAME(const tr_share *share, const void *question, size_t question_bytes, void *result,  \
                          size_t *bytes)                                                                     \
    {                                                                                                        \
        RESULT sum = 0;                                                                                      \
        size_t n = share->units * share->width;                                                              \
        TR_TRY(take_question(#NAME, question, question_bytes, NULL, 0));                                     \
        switch (share->dtype) {                                                                              \
        case TR_F32: sum = NAME##_f32(n, share->value); break;                                               \
        case TR_F64: sum = NAME##_f64(n, share->value); break;                                               \
        case TR_I32: sum = NAME##_i32(n, share->value); break;                                               \
        case TR_I64: sum = NAME##_i64(n, share->value); break;                                               \
        }                                                                                                    \
        return give_result(#NAME, &sum, sizeof sum, result, bytes);                                          \
    }

SUMS(squares, double, (double)v *(double)v)
SUMS(sum1, double, fabs((double)v))
SUMS(nonzeros, uint64_t, v != 0)

static int combine_counts(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    uint64_t count, more;
    (void)room;
    TR_TRY(check_part(*bytes, part_bytes));
    memcpy(&count, result, sizeof count);
    memcpy(&more, part, sizeof more);
    count += more;
    memcpy(result, &count, sizeof count);
    return TR_OK;
}

/* ---- dot ---- */

static int get_dot(const tr_share *share, const void *question, size_t question_bytes, void *result,
                   size_t *bytes)
{
    tr_key key[2];
    struct tr_dot dot = {0};
    TR_TRY(take_question("dot", question, question_bytes, key, sizeof key));
    for (uint32_t piece = 0; piece < tr_share_pieces(share); piece++) {
        size_t a, b;
        if (!tr_share_has_place(share, key[0], piece) || !tr_share_has_place(share, key[1], piece)) continue;
        dot.pieces++;
        if (!tr_share_find(share, key[0], piece, &a) || !tr_share_find(share, key[1], piece, &b)) continue;
        for (size_t i = 0; i < share->width; i++)
            dot.sum += element(share, a * share->width + i) * element(share, b * share->width + i);
    }
    return give_result("dot", &dot, sizeof dot, result, bytes);
}

static int combine_dots(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    struct tr_dot dot, more;
    (void)room;
    TR_TRY(check_part(*bytes, part_bytes));
    memcpy(&dot, result, sizeof dot);
    memcpy(&more, part, sizeof more);
    dot.sum += more.sum;
    dot.pieces += more.pieces;
    memcpy(result, &dot, sizeof dot);
    return TR_OK;
}

/* ---- top: a heap with the least of the best at its root, sorted at last ---- */

/* Below zero where a comes before b. An order of all pairs, so that parts join in any order. NaN is above all
 * numbers: whoever asks wants to see it. */
static int compare_pairs(const void *a, const void *b)
{
    const struct tr_top_pair *p = a, *q = b;
    double x = isnan(p->value) ? INFINITY : fabs(p->value), y = isnan(q->value) ? INFINITY : fabs(q->value);
    if (x != y) return x > y ? -1 : 1;
    return (p->key > q->key) - (p->key < q->key);
}

static void sift(struct tr_top *top, uint32_t at)
{
    struct tr_top_pair *pair = top->pair, moving = pair[at];
    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;
        if (child >= top->n) break;
        if (child + 1 < top->n && compare_pairs(&pair[child + 1], &pair[child]) > 0) child++;
        if (compare_pairs(&moving, &pair[child]) >= 0) break;
        pair[at] = pair[child];
        at = (uint32_t)child;
    }
    pair[at] = moving;
}

static bool may_enter(const struct tr_top *top, double value)
{
    if (value == 0 || top->k == 0) return false;
    return top->n < top->k || !(fabs(value) < fabs(top->pair[0].value));
}

static void add_pair(struct tr_top *top, struct tr_top_pair pair)
{
    if (top->n < top->k) {
        top->pair[top->n++] = pair;
        if (top->n == top->k)
            for (uint32_t at = top->k / 2; at-- > 0;) sift(top, at);
    } else if (compare_pairs(&pair, &top->pair[0]) < 0) {
        top->pair[0] = pair;
        sift(top, 0);
    }
}

static size_t top_bytes(uint32_t n)
{
    return sizeof(struct tr_top) + n * sizeof(struct tr_top_pair);
}

static int get_top(const tr_share *share, const void *question, size_t question_bytes, void *result,
                   size_t *bytes)
{
    uint32_t k = 0;
    TR_TRY(take_question("top", question, question_bytes, &k, sizeof k));
    if (share->width != 1)
        return tr_fail(TR_ERR_INTERNAL, "answer top: table %s has rows of %zu elements: expected one row",
                       share->table, share->width);
    if (*bytes < top_bytes(k))
        return tr_fail(TR_ERR_INTERNAL, "answer top: room for %zu bytes: expected %zu, for %u pairs", *bytes,
                       top_bytes(k), k);
    char *memory;
    TR_TRY(TR_NEW(&memory, top_bytes((uint32_t)tr_min_size(k, share->units))));
    struct tr_top *top = (struct tr_top *)(void *)memory;
    top->k = (uint32_t)tr_min_size(k, share->units);
    for (size_t unit = 0; unit < share->units; unit++) {
        double value = element(share, unit);
        if (!may_enter(top, value)) continue; /* finding a key takes longer */
        add_pair(top, (struct tr_top_pair){tr_share_key(share, unit), value});
    }
    qsort(top->pair, top->n, sizeof *top->pair, compare_pairs);
    top->k = k;
    int status = give_result("top", top, top_bytes(top->n), result, bytes);
    free(memory);
    return status;
}

/* Merges two sorted lists from the best down. */
static int combine_tops(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    struct tr_top a, b, *top;
    memcpy(&a, result, sizeof a);
    memcpy(&b, part, sizeof b);
    if (top_bytes(a.n) != *bytes || top_bytes(b.n) != part_bytes || a.k != b.k)
        return tr_fail(TR_ERR_INTERNAL, "parts of an answer do not belong together");
    char *memory;
    TR_TRY(TR_NEW(&memory, top_bytes(a.n) + top_bytes(b.n)));
    top = (struct tr_top *)(void *)memory;
    memcpy(top->pair, (char *)result + sizeof a, a.n * sizeof *top->pair);
    memcpy(top->pair + a.n, (const char *)part + sizeof b, b.n * sizeof *top->pair);
    qsort(top->pair, (size_t)a.n + b.n, sizeof *top->pair, compare_pairs);
    top->k = a.k;
    top->n = (uint32_t)tr_min_size(a.k, (size_t)a.n + b.n);
    *bytes = room;
    int status = give_result("top", top, top_bytes(top->n), result, bytes);
    free(memory);
    return status;
}

/* ---- soft ---- */

static double soften(double v, double threshold)
{
    double beyond = fabs(v) - threshold;
    return beyond > 0 ? copysign(beyond, v) : isnan(v) ? v : 0;
}

/* Keys that are not here are 0 in the part, so that parts add up. */
static int get_soft(const tr_share *share, const void *question, size_t question_bytes, void *result,
                    size_t *bytes)
{
    struct tr_soft soft;
    TR_TRY(take_question("soft", question, question_bytes, &soft, sizeof soft));
    size_t pieces = tr_share_pieces(share), row = pieces * share->width * sizeof(double);
    if (soft.n > *bytes / row)
        return tr_fail(TR_ERR_INTERNAL, "answer soft: room for %zu bytes: expected %zu for each of %llu keys",
                       *bytes, row, (unsigned long long)soft.n);
    *bytes = (size_t)soft.n * row;
    memset(result, 0, *bytes);
    for (tr_key k = 0; k < soft.n; k++)
        for (uint32_t piece = 0; piece < pieces; piece++) {
            size_t unit;
            if (!tr_share_find(share, soft.first + k, piece, &unit)) continue;
            for (size_t i = 0; i < share->width; i++) {
                double v = soften(element(share, unit * share->width + i), soft.threshold);
                memcpy((char *)result + ((k * pieces + piece) * share->width + i) * sizeof v, &v, sizeof v);
            }
        }
    return TR_OK;
}

/* ---- the list ---- */

static const tr_answer squares = {"squares", true, get_squares, tr_answer_add_doubles};
static const tr_answer sum1 = {"sum1", true, get_sum1, tr_answer_add_doubles};
static const tr_answer nonzeros = {"nonzeros", true, get_nonzeros, combine_counts};
static const tr_answer dot = {"dot", true, get_dot, combine_dots};
static const tr_answer top = {"top", true, get_top, combine_tops};
static const tr_answer soft = {"soft", true, get_soft, tr_answer_add_doubles};

const tr_answer *const tr_builtin_answers[] = {&squares, &sum1, &nonzeros, &dot, &top, &soft};
const size_t tr_builtin_answer_count = sizeof tr_builtin_answers / sizeof *tr_builtin_answers;
