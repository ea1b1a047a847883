/* Ratings in tiles, and one pass of SGD over a tile, the serial work of a worker on a block of items.
 *
 * A tile consists of all users of a worker and of as many items as fit into the L2 cache. Its ratings are ordered by user (a
 * visit is one user's ratings in one tile): the user's row stays in registers during a visit, and the rows of users are
 * streamed once per tile. 6 bytes per rating, 8 per visit.
 */
#ifndef TR_MODEL_MF_TILES_H
#define TR_MODEL_MF_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/cpu.h"

/* Rows are aligned and padded to this number of floats, one cache line. */
enum { TR_MF_ALIGN = 16 };

struct tr_mf_visit {
    uint32_t user; /* index of its row */
    uint32_t n;    /* number of ratings */
};

struct tr_mf_tile {
    const struct tr_mf_visit *visit;
    size_t visits, ratings;
    const uint16_t *item; /* item of each rating, as index in the tile; distinct within a visit */
    const float *value;   /* ratings; both arrays are readable for 16 further elements */
};

/* Factors of some users or items. */
struct tr_mf_rows {
    float *row;  /* `width` floats each, aligned to a cache line; the padding is 0 and remains 0 */
    float *bias; /* NULL: no biases */
    float *
        sum; /* adagrad: sum over steps of the mean square of the gradient, per row; NULL: one rate for all rows */
    float *share; /* model.l2_weighted no: fraction of λ per rating, 1/n; NULL: λ per rating */
};

/* Returns the rows from row i on. */
static inline struct tr_mf_rows tr_mf_rows_from(const struct tr_mf_rows *rows, size_t i, size_t width)
{
    return (struct tr_mf_rows){rows->row + i * width, rows->bias ? rows->bias + i : NULL,
                               rows->sum ? rows->sum + i : NULL, rows->share ? rows->share + i : NULL};
}

/* Parameters of a pass. */
struct tr_mf_pass {
    enum tr_cpu level;
    size_t width; /* floats per row including padding: a multiple of TR_MF_ALIGN */
    size_t rank;
    float mean;        /* μ */
    float rate;        /* with sums: divided by the square root of the row's sum */
    float l2, bias_l2; /* λ of factors and of biases */
    float bias_part;   /* rate of biases divided by the rate of factors */
    float crowd;       /* number of groups that change the same items at the same time; scales the sums */
    bool nonnegative;  /* factors (not biases) are kept at 0 or above */
    float *spare;      /* scratch memory for an aligned row */
};

/* Allocates n uninitialised elements aligned to a cache line, in huge pages if large and available. Free with free(). */
int tr_mf_memory(void **memory, size_t n, size_t size);

/* Performs one step on every rating of a tile. The errors of up to 16 ratings of a user are computed before its row changes
 * by their sum.
 *
 * @param [in,out] items  rows of the tile's items
 * @return the sum of squared errors before the steps
 */
double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                       const struct tr_mf_rows *users, const struct tr_mf_rows *items);

#endif
