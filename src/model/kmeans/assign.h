/* The nearest of k centres for many rows: what K-means spends its time on.
 *
 * A row x is nearest to the centre c with the least score h - x·c, h = |c|²/2. Scores are computed in f32, and of each
 * row the two least are kept, and which centre the least is of. The outcome is that of f64 all the same: where the two
 * are closer than such scores can be wrong, squared distances are summed in f64, column after column, and of equal
 * ones the lower number wins. So labels do not depend on the level of instructions, nor on who holds which rows.
 *
 * Dense rows go through a tile: what trireme/cpu.h calls a kernel, with sums in registers and no matrix of products. One
 * pass over 50,000 rows against cblas_sgemm() on tiles of rows, and a search for the least two of the products
 * (tests/bench/bench_kmeans, one core with AVX-512): 64 columns and 256 centres 92 against 57 GFLOP/s, 256 and 1000: 94
 * against 65, 784 and 10: 23 against 13, 8 and 12: 23 against 1. Sparse rows add up columns of the centres, which lie column
 * after column for that.
 *
 * Bounds (Hamerly, Making k-means even faster, SDM 2010): each row keeps an upper bound of the distance from its own
 * centre and a lower one of that from all others. While centres have moved by less than what lies between the two, the
 * row need not be looked at.
 */
#ifndef TR_KMEANS_ASSIGN_H
#define TR_KMEANS_ASSIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/cpu.h"
#include "trireme/data.h"

/* Centres of a panel, rows of a tile at most, and what the width of centres that lie column after column is a
 * multiple of. */
enum { TR_PANEL = 8, TR_TILE_MOST = 48, TR_WIDTH_STEP = 16 };

/* No centre: the label of a row that has not been assigned. */
#define TR_NO_CENTRE UINT32_MAX

struct tr_centres {
    size_t k, columns;
    bool sparse;  /* for sparse rows */
    size_t width; /* … k, rounded up */
    float *
        value; /* the caller fills it: k × columns, row after row; sparse: columns × width, column after column */
    double *norm;  /* |c|²; sparse: the caller fills it, since centres may have more columns than are here */
    float *packed; /* dense: in panels, column after column; zeros behind the last */
    float *half;   /* |c|²/2; FLT_MAX behind the last */
    float longest; /* greatest |c|, rounded up */
    float *before; /* value, as of the pass before */
    double *rest;  /* sparse: |c|² less that of the columns here, as of the pass before */
    float *moved;  /* how far each has moved since, rounded up */
    float most[2]; /* greatest and second greatest of moved … */
    uint32_t mover;    /* … and whose the greatest is */
    enum tr_cpu level; /* tr_cpu(); tests lower it */
    float *scratch;
};

int tr_centres_open(size_t k, size_t columns, bool sparse, struct tr_centres *centres);
void tr_centres_close(struct tr_centres *centres);

/* Makes ready what value (and norm) hold, and finds how far it has moved since it was made ready last. */
int tr_centres_ready(struct tr_centres *centres);

/* What is known of rows. */
struct tr_assigned {
    size_t n;
    uint32_t *label;      /* TR_NO_CENTRE at first */
    float *square;        /* |x|² */
    size_t most;          /* non-zeros of a row */
    float *upper, *lower; /* bounds of distances; NULL: not kept */
    uint64_t computed;    /* rows whose scores have been computed, over all passes */
    uint64_t doubtful;    /* of these, rows that f64 had to decide */
    bool tighten;         /* it has paid to compute the distance from the own centre first */
};

int tr_assigned_open(const struct tr_centres *centres, const tr_batch *rows, bool bounds,
                     struct tr_assigned *to);
void tr_assigned_close(struct tr_assigned *to);

/* Forgets a row's label and bounds, or gives it a label that it would not get. */
void tr_assigned_set(struct tr_assigned *to, size_t row, uint32_t label);

/* Called for each row whose label changes, in the order of rows; NULL where nobody wants to know. */
typedef void tr_changed_fn(void *who, size_t row, uint32_t from, uint32_t to);

/* Labels rows first .. last-1 by the centres made ready. Without bounds, any rows in any order; with bounds, all rows
 * once between two tr_centres_ready(). */
void tr_assign(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
               struct tr_assigned *to, tr_changed_fn *changed, void *who);

/* The squared distance of a row from a centre, in f64. Of sparse rows it is |c|² - 2 x·c + |x|². */
double tr_distance(const struct tr_centres *centres, const tr_batch *rows, size_t row, uint32_t centre);

/* Σ of the squared distances of rows from their own centres; of dense rows each to f32's precision. */
double tr_inertia(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
                  const struct tr_assigned *assigned);

/* Lowers least of n dense rows to their squared distance from one more centre, to f32's precision, and notes its number
 * where that is less. */
void tr_lower(const float *rows, size_t n, size_t columns, const float *centre, uint32_t number,
              double *least, uint32_t *which);

#endif
