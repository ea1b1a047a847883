/* Quantiles of many numbers in one pass: a sketch (Manku, Rajagopalan, Lindsay, SIGMOD 1998, section 3).
 *
 * Numbers gather in a buffer of TR_QUANTILES_BUFFER. One that is full is sorted, and every second of its numbers goes to the next
 * buffer, where each stands for twice as many. That moves the rank of a number by at most one of them, and happens once for so many
 * numbers in each of the log2(n / TR_QUANTILES_BUFFER) buffers. So the rank of what is found is wrong by at most n / 65536 for each
 * of these: exact up to 65536 numbers, 1/9362 of the rows at 8 million, 1/2621 at 2 · 10^12.
 */
#ifndef TR_DATA_QUANTILES_H
#define TR_DATA_QUANTILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_QUANTILES_BUFFER = 65536, TR_QUANTILES_LEVELS = 48 };

struct tr_quantiles {
    uint64_t n; /* numbers that were added */
    struct {
        uint32_t *key; /* numbers as keys of the same order; each stands for 2^level */
        size_t n, capacity;
        bool odd; /* which of the two halves went on last */
    } level[TR_QUANTILES_LEVELS];
};

/* x: not NaN. TR_ERR_SYSTEM. */
int tr_quantiles_add(struct tr_quantiles *q, float x);

/* Adds n numbers that another sketch has in one of its levels, which stand for 2^level each. TR_ERR_SYSTEM. */
int tr_quantiles_join(struct tr_quantiles *q, size_t level, const uint32_t *key, size_t n);

/* The numbers below or at which these shares (0 to 1) of all numbers lie; there is one at least. TR_ERR_SYSTEM. */
int tr_quantiles_at(const struct tr_quantiles *q, const double *share, size_t n, float *x);

void tr_quantiles_free(struct tr_quantiles *q); /* it is empty afterwards */

#endif
