/* Vectors over all columns, for workers whose rows have different columns: `width` f64 elements per column.
 *
 * Small vectors are replicated at all workers and summed by one collective call. Large vectors are distributed: each
 * worker owns a range of columns and exchanges the columns of its rows with the owners. */
#ifndef TR_LINEAR_COLUMNS_H
#define TR_LINEAR_COLUMNS_H

#include "trireme/collective.h"

struct tr_columns {
    tr_context *tr; /* NULL: one worker */
    int workers;
    size_t width;
    const tr_key *keys; /* columns of this worker's rows */
    size_t local;       /* their number */
    bool whole;
    uint64_t first; /* first column, and number of columns, that this worker owns */
    size_t n;
    /* distributed: bytes to each worker in a sum, and from each worker; owned column of each received element */
    size_t *to, *from;
    uint32_t *place;
    size_t places;
    double *buffer;
};

/* Opens vectors. All workers. The keys ascend, are below `columns`, and must outlive *c. */
int tr_columns_open(struct tr_columns *c, tr_context *tr, const tr_key *keys, size_t n, uint64_t columns,
                    size_t width);
void tr_columns_close(struct tr_columns *c);

/* own = Σ over workers of `local`, at the owners; local = own at the keys of this worker. All workers. */
int tr_columns_sum(struct tr_columns *c, const double *local, double *own);
int tr_columns_fetch(struct tr_columns *c, const double *own, double *local);

/* Sums n values over the workers: of rows; of parts of vectors, which for replicated vectors are the whole already. All
 * workers. */
int tr_columns_sum_rows(struct tr_columns *c, double *sums, size_t n);
int tr_columns_sum_parts(struct tr_columns *c, double *sums, size_t n);

#endif
