/* Data between ranks: lists of any length from all to all, and the rows and keys of a group. */
#ifndef TR_DATA_EXCHANGE_H
#define TR_DATA_EXCHANGE_H

#include "data/matrix.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"

/* Sends each member m of the set count[m] elements of `unit` bytes, which lie in `from` in the order of the members. Received elements
 * are in *to (to be freed) and to_count in the same way. All members together. */
int tr_all_to_all(tr_context *tr, enum tr_set set, const void *from, const uint64_t *count, size_t unit,
                  void **to, uint64_t *to_count);

/* *all (to be freed): the n elements of each member, those of member 0 first; *total of them. All members together. */
int tr_gather_to_all(tr_context *tr, enum tr_set set, const void *from, uint64_t n, size_t unit, void **all,
                     uint64_t *total);

/* The same in place of the array. */
int tr_replicate(tr_context *tr, enum tr_set set, void **array, uint64_t n, size_t unit);

/* The same for rows. row_number may be NULL. Precondition: m->columns is the same on all members, also on those without rows. */
int tr_replicate_rows(tr_context *tr, enum tr_set set, struct tr_matrix *m, uint64_t **row_number);

/* ---- inside a group: members only, together ---- */

/* Sparse rows of this member become rows of all members, in the order of the members, with the columns that belong to this member by
 * tr_column_member(). */
int tr_exchange_columns(tr_context *tr, struct tr_matrix *m);
int tr_column_member(uint32_t column, int members);

/* The union of the ascending keys of all members, divided into ascending pieces of about equal size: *piece (to be freed) is that of
 * this member. */
int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece);

/* ---- records of ratings and bags of words ---- */

struct tr_triples;

/* Sends all triples, whose rows are 0 .. rows - 1, to the workers that own their rows, where they are in the order of the files. Rows
 * belong to buckets, by number or (hashed) by a hash of it, and buckets to workers, so that all workers have about the same number of
 * triples. interleaved: several readers have read a packed file in pieces, whose order is restored. Workers only, together. */
int tr_shuffle_triples(tr_context *tr, uint64_t rows, bool hashed, size_t files, bool interleaved,
                       struct tr_triples *triples);

#endif
