/* Assignment of rows to the nearest of k centres, where K-means spends most of its time.
 *
 * The nearest centre c of a row x has the smallest score h - x·c with h = |c|²/2. Scores are computed in f32; the two
 * smallest and the index of the smallest are kept. If they are closer than the rounding error of scores, squared distances
 * are summed in f64 column by column, and ties go to the lower index. Labels therefore equal those of f64 and do not depend
 * on the instruction level or on the distribution of rows.
 *
 * Dense rows are processed in tiles by a kernel (trireme/cpu.h) that keeps sums in registers and stores no matrix of
 * products. Compared with cblas_sgemm() on tiles of rows and a search for the two smallest scores (50,000 rows,
 * tests/bench/bench_kmeans, one core with AVX-512): 64 columns and 256 centres 92 against 57 GFLOP/s, 256 and 1000: 94
 * against 65, 784 and 10: 23 against 13, 8 and 12: 23 against 1. For sparse rows the centres are stored by columns, and a
 * row sums the columns that it has.
 *
 * Bounds (Hamerly, Making k-means even faster, SDM 2010): each row has an upper bound of the distance to its own centre and
 * a lower bound of the distance to all others. A row is skipped while the movement of the centres is smaller than the gap
 * between the two.
 */
#ifndef TR_KMEANS_ASSIGN_H
#define TR_KMEANS_ASSIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/cpu.h"
#include "trireme/data.h"

/* Centres per panel, maximum number of rows per tile, and the granularity of the width of centres stored by columns. */
enum { TR_PANEL = 8, TR_TILE_MOST = 48, TR_WIDTH_STEP = 16 };

/* Label of a row without a centre. */
#define TR_NO_CENTRE UINT32_MAX

struct tr_centres {
    size_t k, columns;
    bool sparse;  /* for sparse rows */
    size_t width; /* k, rounded up */
    /* Set by the caller: k × columns by rows; for sparse rows columns × width by columns. */
    float *value;
    /* |c|². For sparse rows set by the caller, because a centre may have columns that this rank does not have. */
    double *norm;
    float *packed;     /* dense: value in panels by columns; zeros after the last centre */
    float *half;       /* |c|²/2; FLT_MAX after the last centre */
    float longest;     /* largest |c|, rounded up */
    float *before;     /* value of the previous pass */
    double *rest;      /* sparse: length of the columns that are not here, in the previous pass */
    float *moved;      /* distance that each centre has moved since the previous pass, rounded up */
    float most[2];     /* largest and second largest of moved */
    uint32_t mover;    /* centre of the largest */
    enum tr_cpu level; /* tr_cpu(); tests lower it */
    float *scratch;
};

int tr_centres_open(size_t k, size_t columns, bool sparse, struct tr_centres *centres);
void tr_centres_close(struct tr_centres *centres);

/* Prepares the centres in value (and norm) for tr_assign() and measures their movement since the last call. */
int tr_centres_ready(struct tr_centres *centres);

/* Labels and bounds of rows. */
struct tr_assigned {
    size_t n;
    uint32_t *label;      /* TR_NO_CENTRE at first */
    float *square;        /* |x|² */
    size_t most;          /* largest number of non-zeros in a row */
    float *upper, *lower; /* bounds of distances; NULL: disabled */
    uint64_t computed;    /* rows whose scores were computed, over all passes */
    uint64_t doubtful;    /* rows that f64 decided, over all passes */
    bool tighten;         /* computing the distance to the own centre first was worth its cost */
};

int tr_assigned_open(const struct tr_centres *centres, const tr_batch *rows, bool bounds,
                     struct tr_assigned *to);
void tr_assigned_close(struct tr_assigned *to);

/* Sets the label of a row and invalidates its bounds. */
void tr_assigned_set(struct tr_assigned *to, size_t row, uint32_t label);

/* Called for each row whose label changes, in the order of rows. */
typedef void tr_changed_fn(void *who, size_t row, uint32_t from, uint32_t to);

/* Assigns the rows first .. last - 1 to the prepared centres.
 *
 * @param [in,out] to       labels and bounds. With bounds, every row must be assigned exactly once between two calls of
 *                          tr_centres_ready()
 * @param [in]     changed  may be NULL
 */
void tr_assign(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
               struct tr_assigned *to, tr_changed_fn *changed, void *who);

/* Returns the squared distance between a row and a centre, in f64; for sparse rows as |c|² - 2 x·c + |x|². */
double tr_distance(const struct tr_centres *centres, const tr_batch *rows, size_t row, uint32_t centre);

/* Returns the sum of the squared distances of rows to their own centres; for dense rows each in f32 precision. */
double tr_inertia(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
                  const struct tr_assigned *assigned);

/* Adds a centre to the search for the nearest centre of n dense rows, in f32 precision.
 *
 * @param [in,out] least  smallest squared distance of each row
 * @param [in,out] which  index of that centre; set to `number` where the new centre is nearer
 */
void tr_lower(const float *rows, size_t n, size_t columns, const float *centre, uint32_t number,
              double *least, uint32_t *which);

#endif
