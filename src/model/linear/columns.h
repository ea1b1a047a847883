/* Vectors over all columns, of workers whose rows have some of them each: width numbers of a column, in doubles.
 *
 * Small vectors are whole at every worker and summed by one collective call. Large ones are divided: each worker has a range
 * of columns, and exchanges with the others what their rows have of it.
 */
#ifndef TR_LINEAR_COLUMNS_H
#define TR_LINEAR_COLUMNS_H

#include "trireme/collective.h"

struct tr_columns {
    tr_context *tr; /* NULL: one worker */
    int workers;
    size_t width;
    const tr_key *keys; /* of the rows here … */
    size_t local;       /* … so many */
    bool whole;
    uint64_t first; /* columns that this worker has */
    size_t n;
    /* divided: bytes that go to each worker in a sum, and that come; where what comes belongs */
    size_t *to, *from;
    uint32_t *place;
    size_t places;
    double *buffer;
};

/* All workers. The keys ascend, are below `columns`, and stay where they are. */
int tr_columns_open(struct tr_columns *c, tr_context *tr, const tr_key *keys, size_t n, uint64_t columns,
                    size_t width);
void tr_columns_close(struct tr_columns *c);

/* own = Σ over workers of what each has in local; local = the values of own at its keys. All workers. */
int tr_columns_sum(struct tr_columns *c, const double *local, double *own);
int tr_columns_fetch(struct tr_columns *c, const double *own, double *local);

/* Sums over the workers of what each has found of its rows; or of its part of vectors, which where these are whole is all
 * there is. All workers. */
int tr_columns_sum_rows(struct tr_columns *c, double *sums, size_t n);
int tr_columns_sum_parts(struct tr_columns *c, double *sums, size_t n);

#endif
