/* Records, wherever they were read, as whole rows at the workers that the rows belong to. */
#ifndef TR_DATA_SHUFFLE_H
#define TR_DATA_SHUFFLE_H

#include "data/reader.h"
#include "ranks/ranks.h"

/* Sends all triples, whose rows are the numbers 0 .. rows - 1 of all workers, to the workers of their rows; there they are in
 * the order of the files. Each row belongs to one of some buckets, by its number or (hashed) a hash of it, and each bucket to
 * a worker, so that the non-zeros are balanced. in_turns: pieces of gzip files that several readers had in turns are to be
 * put in order. Workers only, together. */
int tr_shuffle_triples(tr_context *tr, uint64_t rows, bool hashed, size_t files, bool in_turns,
                       struct tr_triples *triples);

/* Puts the triples, which are freed, together as rows in ascending order of their numbers, listed in *numbers (to be
 * freed). The columns of a row, all less than `columns`, ascend; one that occurs several times has its values in the
 * order of the triples. */
int tr_triples_to_rows(struct tr_triples *triples, uint64_t row_numbers, size_t columns, struct tr_matrix *m,
                       uint64_t **numbers);

/* Makes one non-zero of several in a column: TR_DUPLICATES_…. */
void tr_rows_merge(struct tr_matrix *m, int duplicates);

#endif
