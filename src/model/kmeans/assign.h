/* The nearest of k centres for many rows: what K-means spends its time on.
 *
 * A row x is nearest to the centre c with the least score h - x·c, h = |c|²/2. Scores are computed in f32, and of each
 * row the two least are kept, and which centre the least is of. The outcome is that of f64 all the same: where the two
 * are closer than such scores can be wrong, squared distances are summed in f64, column after column, and of equal
 * ones the lower number wins. So labels do not depend on the level of instructions, nor on who holds which rows.
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

#include "base/cpu.h"

/* Centres of a panel, rows of a tile at most, and what the width of centres that lie column after column is a
 * multiple of. */
enum { TR_PANEL = 8, TR_TILE_MOST = 48, TR_WIDTH_STEP = 16 };

/* No centre: the label of a row that has not been assigned. */
#define TR_NO_CENTRE UINT32_MAX

struct tr_centres {
    size_t k, columns;
    float *value;      /* k × columns, row after row: the caller fills it */
    float *packed;     /* the same in panels, column after column; zeros behind the last */
    float *half;       /* |c|²/2; FLT_MAX behind the last */
    float *before;     /* value, as of the pass before */
    float *moved;      /* how far each has moved since, rounded up */
    float longest;     /* greatest |c|, rounded up */
    float most[2];     /* greatest and second greatest of moved … */
    uint32_t mover;    /* … and whose the greatest is */
    bool seen;         /* before is of a pass */
    enum tr_cpu level; /* tr_cpu(); tests lower it */
    void *scratch;     /* a tile of rows, column after column */
};

int tr_centres_open(size_t k, size_t columns, struct tr_centres *centres);
void tr_centres_close(struct tr_centres *centres);

/* Makes ready what value holds, and finds how far it has moved since it was made ready last. */
void tr_centres_ready(struct tr_centres *centres);

/* What is known of rows. */
struct tr_assigned {
    size_t n;
    uint32_t *label;      /* TR_NO_CENTRE at first */
    float *square;        /* |x|² */
    float *upper, *lower; /* bounds of distances; NULL: not kept */
    uint64_t computed;    /* rows whose scores have been computed, over all passes */
    uint64_t doubtful;    /* of these, rows that f64 had to decide */
    bool tighten;         /* it has paid to compute the distance from the own centre first */
};

int tr_assigned_open(const struct tr_centres *centres, const float *x, size_t n, bool bounds,
                     struct tr_assigned *to);
void tr_assigned_close(struct tr_assigned *to);

/* Called for each row whose label changes, in the order of rows. */
typedef void tr_changed_fn(void *who, size_t row, uint32_t from, uint32_t to);

/* Labels rows first .. last-1 of x (n × columns) by the centres made ready. Without bounds, any rows in any order; with
 * bounds, all rows once between two tr_centres_ready(). */
void tr_assign(const struct tr_centres *centres, const float *x, size_t first, size_t last,
               struct tr_assigned *to, tr_changed_fn *changed, void *who);

/* The nearest centre of one row by f64, and the squared distance from it. */
uint32_t tr_nearest(const struct tr_centres *centres, const float *x, double *distance);

/* The squared distance of two vectors, summed in f64 column after column. */
double tr_distance(const float *x, const float *c, size_t columns);

#endif
