#include "consistency/functions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* For what is looked up one by one. */
static double element(const tr_share *share, size_t at)
{
    TR_FOR_TYPE(share->dtype, { return (double)((const T *)share->value)[at]; })
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

/* Adds up results word by word; bit i of counts: word i is a uint64_t, not a double. */
static int add_words(void *result, size_t bytes, const void *part, size_t part_bytes, unsigned counts)
{
    if (bytes != part_bytes)
        return tr_fail(TR_ERR_INTERNAL, "parts of an answer differ in size: %zu and %zu bytes", bytes,
                       part_bytes);
    for (size_t i = 0; i < bytes / 8; i++) {
        union {
            double real;
            uint64_t count;
        } sum, more;
        memcpy(&sum, (char *)result + 8 * i, sizeof sum);
        memcpy(&more, (const char *)part + 8 * i, sizeof more);
        if (i < 2 && (counts >> i & 1)) sum.count += more.count;
        else sum.real += more.real;
        memcpy((char *)result + 8 * i, &sum, sizeof sum);
    }
    return TR_OK;
}

int tr_answer_add_doubles(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    (void)room;
    return add_words(result, *bytes, part, part_bytes, 0);
}

static int add_count(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    (void)room;
    return add_words(result, *bytes, part, part_bytes, 1);
}

/* struct tr_dot: a double and a count. */
static int add_dot(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    (void)room;
    return add_words(result, *bytes, part, part_bytes, 2);
}

/* ---- sums over all elements, by four sums at once, in an order that depends on nothing but their number ---- */

/* Makes get_NAME(), which answers the sum of TERM over the share's elements v. */
#define SUM(NAME, RESULT, TERM)                                                                              \
    static int get_##NAME(const tr_share *share, const void *question, size_t question_bytes, void *result,  \
                          size_t *bytes)                                                                     \
    {                                                                                                        \
        RESULT sum[4] = {0, 0, 0, 0};                                                                        \
        size_t n = share->units * share->width, fours = n / 4 * 4;                                           \
        TR_TRY(take_question(#NAME, question, question_bytes, NULL, 0));                                     \
        TR_FOR_TYPE(share->dtype, {                                                                          \
            const T *a = share->value;                                                                       \
            for (size_t i = 0; i < fours; i += 4)                                                            \
                for (size_t k = 0; k < 4; k++) {                                                             \
                    T v = a[i + k];                                                                          \
                    sum[k] += TERM;                                                                          \
                }                                                                                            \
            for (size_t i = fours; i < n; i++) {                                                             \
                T v = a[i];                                                                                  \
                sum[0] += TERM;                                                                              \
            }                                                                                                \
        })                                                                                                   \
        sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);                                                      \
        return give_result(#NAME, sum, sizeof *sum, result, bytes);                                          \
    }

SUM(squares, double, (double)v *(double)v)
SUM(sum1, double, fabs((double)v))
SUM(nonzeros, uint64_t, v != 0)

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

/* ---- top ---- */

/* Below zero where a comes before b. An order of all pairs, so that parts join in any order. NaN is above all
 * numbers: whoever asks wants to see it. */
static int compare_pairs(const void *a, const void *b)
{
    const struct tr_top_pair *p = a, *q = b;
    double x = isnan(p->value) ? INFINITY : fabs(p->value), y = isnan(q->value) ? INFINITY : fabs(q->value);
    if (x != y) return x > y ? -1 : 1;
    return (p->key > q->key) - (p->key < q->key);
}

static size_t top_bytes(uint32_t n)
{
    return sizeof(struct tr_top) + n * sizeof(struct tr_top_pair);
}

/* Sorts n pairs and writes the best k, for which there is room. */
static void give_top(struct tr_top_pair *pair, size_t n, uint32_t k, void *result, size_t *bytes)
{
    struct tr_top top = {.k = k, .n = (uint32_t)tr_min_size(n, k)};
    qsort(pair, n, sizeof *pair, compare_pairs);
    memcpy(result, &top, sizeof top);
    memcpy((char *)result + sizeof top, pair, top.n * sizeof *pair);
    *bytes = top_bytes(top.n);
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
    size_t most = tr_min_size(k, share->units), n = 0;
    struct tr_top_pair *pair;
    TR_TRY(TR_NEW(&pair, 2 * most));
    double least = 0; /* of the best so far, once there are enough: others do not matter */
    for (size_t unit = 0; unit < share->units && most > 0; unit++) {
        double value = element(share, unit);
        if (value == 0 || fabs(value) < least) continue;
        pair[n++] = (struct tr_top_pair){tr_share_key(share, unit), value};
        if (n < 2 * most) continue;
        qsort(pair, n, sizeof *pair, compare_pairs);
        n = most;
        least = isnan(pair[n - 1].value) ? INFINITY : fabs(pair[n - 1].value);
    }
    give_top(pair, n, k, result, bytes);
    free(pair);
    return TR_OK;
}

static int combine_tops(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    struct tr_top a, b;
    struct tr_top_pair *pair;
    memcpy(&a, result, sizeof a);
    memcpy(&b, part, sizeof b);
    if (top_bytes(a.n) != *bytes || top_bytes(b.n) != part_bytes || a.k != b.k || room < top_bytes(a.k))
        return tr_fail(TR_ERR_INTERNAL, "parts of an answer do not belong together");
    TR_TRY(TR_NEW(&pair, (size_t)a.n + b.n));
    memcpy(pair, (char *)result + sizeof a, a.n * sizeof *pair);
    memcpy(pair + a.n, (const char *)part + sizeof b, b.n * sizeof *pair);
    give_top(pair, (size_t)a.n + b.n, a.k, result, bytes);
    free(pair);
    return TR_OK;
}

/* ---- present ---- */

/* Looks through whichever is shorter: what the share has, or what is asked for. */
static int get_present(const tr_share *share, const void *question, size_t question_bytes, void *result,
                       size_t *bytes)
{
    struct tr_range range;
    uint64_t present = 0;
    TR_TRY(take_question("present", question, question_bytes, &range, sizeof range));
    for (size_t unit = 0; unit < share->units && share->units < range.n; unit++)
        present += tr_share_key(share, unit) - range.first < range.n;
    for (tr_key k = 0; k < range.n && share->units >= range.n; k++)
        for (uint32_t piece = 0; piece < tr_share_pieces(share); piece++) {
            size_t unit;
            present += tr_share_find(share, range.first + k, piece, &unit);
        }
    return give_result("present", &present, sizeof present, result, bytes);
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
static const tr_answer nonzeros = {"nonzeros", true, get_nonzeros, add_count};
static const tr_answer dot = {"dot", true, get_dot, add_dot};
static const tr_answer top = {"top", true, get_top, combine_tops};
static const tr_answer present = {"present", true, get_present, add_count};
static const tr_answer soft = {"soft", true, get_soft, tr_answer_add_doubles};

const tr_answer *const tr_builtin_answers[] = {&squares, &sum1, &nonzeros, &dot, &top, &present, &soft};
const size_t tr_builtin_answer_count = sizeof tr_builtin_answers / sizeof *tr_builtin_answers;
