/* Data between ranks: lists of any length from all to all, and the rows and keys of a group. All members of the set call these
 * functions together. */
#ifndef TR_DATA_EXCHANGE_H
#define TR_DATA_EXCHANGE_H

#include "data/matrix.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"

/* Sends count[m] elements of `unit` bytes to each member m of the set, in the order of the members in `from`. *to (to be freed) and
 * to_count receive elements in the same form. */
int tr_all_to_all(tr_context *tr, enum tr_set set, const void *from, const uint64_t *count, size_t unit,
                  void **to, uint64_t *to_count);

/* Concatenates the n elements of each member in *all (to be freed), *total of them. */
int tr_gather_to_all(tr_context *tr, enum tr_set set, const void *from, uint64_t n, size_t unit, void **all,
                     uint64_t *total);

/* The same in place of the array. */
int tr_replicate(tr_context *tr, enum tr_set set, void **array, uint64_t n, size_t unit);

/* The same for rows; m->columns is equal on all members. row_number may be NULL. */
int tr_replicate_rows(tr_context *tr, enum tr_set set, struct tr_matrix *m, uint64_t **row_number);

/* Replaces the sparse rows of this member by the rows of all members of the group, with the columns of this member,
 * tr_column_member(). */
int tr_exchange_columns(tr_context *tr, struct tr_matrix *m);
int tr_column_member(uint32_t column, int members);

/* Divides the union of the ascending keys of all members of the group into ascending pieces of about equal size: *piece (to be freed)
 * is that of this member. */
int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece);

struct tr_triples;

/* Sends all records of ratings or docword to the workers of their rows, in the order of the files.
 *
 * @param [in] rows         the rows are 0 .. rows - 1. Rows belong to buckets, and buckets to workers, such that all workers have
 *                          about the same number of records
 * @param [in] hashed       the bucket is a hash of the row; otherwise rows of a bucket are consecutive
 * @param [in] interleaved  several readers have read pieces of a compressed file, whose order is restored
 */
int tr_shuffle_triples(tr_context *tr, uint64_t rows, bool hashed, size_t files, bool interleaved,
                       struct tr_triples *triples);

#endif
