/* Data between ranks: lists of any length from all to all, and the rows and keys of a group. */
#ifndef TR_DATA_EXCHANGE_H
#define TR_DATA_EXCHANGE_H

#include "data/matrix.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"

/* Hands each member m of the set count[m] units of so many bytes, which lie one after the other by member in `from`, and gets
 * what it sends us: *to (to be freed) and to_count are alike. All members together. */
int tr_all_to_all(tr_context *tr, enum tr_set set, const void *from, const uint64_t *count, size_t unit,
                  void **to, uint64_t *to_count);

/* Hands all members what each has: *all (to be freed) has the n units of member 0 first. *total units in all. */
int tr_gather_to_all(tr_context *tr, enum tr_set set, const void *from, uint64_t n, size_t unit, void **all,
                     uint64_t *total);

/* The same for an array that becomes that of all members. */
int tr_replicate(tr_context *tr, enum tr_set set, void **array, uint64_t n, size_t unit);

/* The same for rows: each member's become those of all in their order. row_number may be NULL. Members without rows know how many
 * columns dense ones have. */
int tr_replicate_rows(tr_context *tr, enum tr_set set, struct tr_matrix *m, uint64_t **row_number);

/* ---- inside a group: members only, together ---- */

/* Hands each member the columns that are its own of all the group's rows: rows of all members in their order, columns of
 * which tr_column_member() is this member. Sparse rows. */
int tr_exchange_columns(tr_context *tr, struct tr_matrix *m);
int tr_column_member(uint32_t column, int members);

/* The union of the ascending keys of all members, in ascending pieces of about equal size, one a member: *piece (to be
 * freed). */
int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece);

#endif
