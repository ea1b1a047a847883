/* The first centres: rows, chosen by all ranks together.
 *
 * Chance is a hash of a row's numbers and the job's seed, so what is drawn does not depend on who holds which rows; rows
 * that are equal count as one. A row is drawn with a probability in proportion to its weight by a race: the least of
 * -log(u) / weight wins.
 *
 *   first      the first distinct rows of the files
 *   random     any rows
 *   kmeans++   one after the other, each by its squared distance from the nearest so far (Arthur and Vassilvitskii,
 *              SODA 2007)
 *   kmeans||   about k in each of some rounds, in the same way; of these, weighted by the rows nearest to them, kmeans++
 *              takes k (Bahmani et al., VLDB 2012)
 */
#ifndef TR_KMEANS_START_H
#define TR_KMEANS_START_H

#include "trireme/data.h"

/* Rows over all columns, the same on all ranks; dense or sparse as the data. */
struct tr_start {
    size_t n;
    tr_batch rows;
    float *dense, *value;
    uint64_t *begin;
    uint32_t *column;
    size_t dense_room, value_room, begin_room, column_room;
};

struct tr_kmeans;

/* Chooses m->k rows of m->train into m->start: all ranks, outside tr_run(). TR_ERR_CONFIG where the data have fewer
 * distinct rows. */
int tr_kmeans_choose(struct tr_kmeans *m);
void tr_start_free(struct tr_start *start);

/* k rows: in snapshot functions. */
int tr_start_keep(struct tr_start *start, tr_snapshot *snapshot, size_t k, uint64_t columns, bool sparse);

/* A hash of the numbers of a row. */
struct tr_kmeans_side;
uint64_t tr_kmeans_hash(const struct tr_kmeans_side *side, uint64_t columns, size_t row);

#endif
