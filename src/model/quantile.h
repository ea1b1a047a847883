/* Weighted quantiles of numbers that are distributed over ranks: of the leaves of trees, and of the targets of a regression. */
#ifndef TR_MODEL_QUANTILE_H
#define TR_MODEL_QUANTILE_H

#include "trireme/collective.h"

/* Some rows of a rank; row NULL: 0 .. n - 1. */
struct tr_row_set {
    const uint32_t *row;
    size_t n;
};

/* Computes a quantile of each of n sets of rows: the smallest number such that the rows up to it have at least this part of the
 * weight of the set. An empty set has the quantile 0. The same on any number of ranks. All of these ranks.
 *
 * @param [in] value, weight  of all rows of this rank; weight NULL: all are 1
 */
int tr_weighted_quantiles(tr_context *tr, enum tr_set ranks, const struct tr_row_set *set, size_t n,
                          const float *value, const float *weight, double part, float *quantile);

/* Maps floats to unsigned integers of the same order; -0 and 0 are equal. */
static inline uint32_t tr_key_of_float(float x)
{
    union {
        float value;
        uint32_t bits;
    } u = {x + 0.0f};
    return u.bits & 0x80000000u ? ~u.bits : u.bits | 0x80000000u;
}

static inline float tr_float_of_key(uint32_t key)
{
    union {
        uint32_t bits;
        float value;
    } u = {key & 0x80000000u ? key & 0x7fffffffu : ~key};
    return u.value;
}

#endif
