/* The nearest of k centres for many rows: what K-means spends its time on.
 *
 * A row x is nearest to the centre c with the least score h - x·c, h = |c|²/2. Scores are computed in f32, with the two
 * least of a row and which centre the least is of. The result is that of exact arithmetic in f64 all the same: where
 * the two are closer than the scores can be wrong, squared distances are summed in f64, column by column, and the lowest
 * number wins a tie. So labels are the same for all levels of instructions, and for any number of workers.
 *
 * Bounds (Hamerly, Making k-means even faster, SDM 2010): each row keeps an upper bound of the distance from its centre
 * and a lower one of that from all others. When centres have moved by less than what lies between, the row need not
 * be looked at.
 */
#ifndef TR_KMEANS_ASSIGN_H
#define TR_KMEANS_ASSIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

enum { TR_PANEL = 8, TR_TILE_MOST = 48, TR_WIDTH_STEP = 16 };

/* Dense centres. Opened once, filled and then made ready before every pass. */
struct tr_centres {
    size_t k, columns;
    float *value;     /* k × columns, row after row */
    float *packed;    /* the same in panels of TR_PANEL centres, column after column; zeros behind the last */
    float *half;      /* |c|²/2; FLT_MAX behind the last */
    double longest;   /* greatest |c| */
    float *turned;    /* a tile of rows, column after column */
    enum tr_cpu level;
};

int tr_centres_open(size_t k, size_t columns, struct tr_centres *centres);
void tr_centres_close(struct tr_centres *centres);

/* Makes ready what value holds. */
void tr_centres_ready(struct tr_centres *centres);

/* What is known of rows, each n long. */
struct tr_assigned {
    uint32_t *label;
    float *square;        /* |x|² */
    float *upper, *lower; /* bounds of distances; NULL: not kept */
    uint64_t computed;    /* rows whose scores were computed so far */
    uint64_t doubtful;    /* rows that had to be decided in f64 */
};

/* |x|² of n rows. */
void tr_squares(const float *x, size_t n, size_t columns, float *square);

/* Labels for rows number row[0..n-1] of x (NULL: 0..n-1), by all centres; bounds are set anew. */
void tr_assign(const struct tr_centres *centres, const float *x, const uint32_t *row, size_t n,
               struct tr_assigned *to);

/* The same in f64 for one row: the number of its nearest centre, and their squared distance. */
uint32_t tr_nearest(const struct tr_centres *centres, const float *x, double *distance);

/* The squared distance from one centre, as tr_nearest() sums it. */
double tr_distance(const float *x, const float *centre, size_t columns);

#endif
