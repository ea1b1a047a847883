/* Exchange of data between ranks: lists of any length from all to all, and the rows and keys of a group. All members of a set call
 * these functions together. `unit` is the size of one element in bytes. */
#ifndef TR_DATA_EXCHANGE_H
#define TR_DATA_EXCHANGE_H

#include "data/matrix.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"

/* Sends count[m] elements to each member m of the set; `from` has those for member 0 first. *to (to be freed) receives the elements
 * from member 0 first, to_count[m] from member m. */
int tr_all_to_all(tr_context *tr, enum tr_set set, const void *from, const uint64_t *count, size_t unit,
                  void **to, uint64_t *to_count);

/* Concatenates the n elements of each member in *all (to be freed). *total is their number. */
int tr_gather_to_all(tr_context *tr, enum tr_set set, const void *from, uint64_t n, size_t unit, void **all,
                     uint64_t *total);

/* Replaces an array of n elements by the arrays of all members, concatenated. */
int tr_replicate(tr_context *tr, enum tr_set set, void **array, uint64_t n, size_t unit);

/* Replaces rows and their numbers (row_number may be NULL) by those of all members. m->columns is equal on all members. */
int tr_replicate_rows(tr_context *tr, enum tr_set set, struct tr_matrix *m, uint64_t **row_number);

/* Replaces the sparse rows of this member by the rows of all members of the group, with only the columns that belong to this
 * member: those for which tr_column_member() returns its number in the group. */
int tr_exchange_columns(tr_context *tr, struct tr_matrix *m);
int tr_column_member(uint32_t column, int members);

/* Unites the ascending keys of all members of the group, and divides the union into one range of about equal size per member.
 * *piece (to be freed) has the n_piece keys of this member's range. */
int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece);

struct tr_triples;

/* Sends all records of ratings or docword to the workers of their rows, in the order of the files.
 *
 * @param [in] rows         row numbers are below this. Rows belong to buckets, and each bucket to one worker, such that all workers
 *                          have about the same number of records
 * @param [in] hashed       the bucket is a hash of the row; otherwise rows of a bucket are consecutive
 * @param [in] interleaved  several readers have read pieces of one compressed file: the order of the pieces is restored
 */
int tr_shuffle_triples(tr_context *tr, uint64_t rows, bool hashed, size_t files, bool interleaved,
                       struct tr_triples *triples);

#endif
