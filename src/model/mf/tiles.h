/* Ratings sorted into tiles, and one pass of SGD over a tile: what a worker does with a block of items, without any
 * thought of other workers.
 *
 * A tile is all of a worker's users times so many items that their rows stay in the L2 cache. Its ratings lie user
 * after user (a visit is one user's ratings in one tile), so that the user's row is in registers while they are worked
 * on, and rows of users stream through once a tile. 6 bytes a rating, 8 a visit.
 */
#ifndef TR_MODEL_MF_TILES_H
#define TR_MODEL_MF_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/cpu.h"

/* Floats that rows are padded to, a line of the cache, where they begin too. */
enum { TR_MF_ALIGN = 16 };

struct tr_mf_visit {
    uint32_t user; /* number of its row */
    uint32_t n;    /* ratings */
};

struct tr_mf_tile {
    const struct tr_mf_visit *visit;
    size_t visits, ratings;
    const uint16_t *item; /* of each rating: which of the tile's items, each once in a visit … */
    const float *value;   /* … and the rating; of both 16 more than there are may be read */
};

/* Factors of some users or items. */
struct tr_mf_rows {
    float *row;   /* `width` floats each, on a line of the cache; padding is 0 and stays so */
    float *bias;  /* NULL: none */
    float *sum;   /* adagrad: mean square of the gradients so far, per row; NULL: the same rate for all */
    float *share; /* plain λ: the part of it that counts for each rating, 1/n; NULL: λ for each */
};

/* The same from row i on. */
static inline struct tr_mf_rows tr_mf_rows_from(const struct tr_mf_rows *rows, size_t i, size_t width)
{
    return (struct tr_mf_rows){rows->row + i * width, rows->bias ? rows->bias + i : NULL,
                               rows->sum ? rows->sum + i : NULL, rows->share ? rows->share + i : NULL};
}

/* How a pass steps. */
struct tr_mf_pass {
    enum tr_cpu level;
    size_t width; /* floats of a row: a multiple of TR_MF_ALIGN, padding with it */
    size_t rank;
    float mean;        /* μ */
    float rate;        /* with sums: divided by the root of a row's sum */
    float l2, bias_l2; /* λ of factors and of biases */
    float bias_part;   /* rate of biases, in rates of factors */
    float crowd;       /* who step on the same items at the same time: their squares count, too */
    bool nonnegative;  /* factors (not biases) are kept at 0 or above */
    float *spare;      /* room for a row, like rows on a line of the cache */
};

/* Room for n elements, of any content and on a line of the cache; large ones in huge pages where the system gives them.
 * Free with free(). */
int tr_mf_memory(void **memory, size_t n, size_t size);

/* One step on every rating of the tile; returns Σ of squared errors as they were met. `items` begins at the tile's
 * first. Errors of up to 16 ratings of a user are all computed before its row steps by their sum. */
double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                       const struct tr_mf_rows *users, const struct tr_mf_rows *items);

#endif
