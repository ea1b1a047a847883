/* Merging: under BSP all updates of a clock are added as one sum. On one node, servers read the updates in shared memory;
 * between nodes, updates travel in rounds. See merge.c. */
#ifndef TR_TABLE_MERGE_H
#define TR_TABLE_MERGE_H

#include "table/table.h"

/* Opens the merge of a table if some view of the stage is merged. Collective over all ranks, after all views are open. */
int tr_merge_open(struct tr_table *table);
void tr_merge_close(struct tr_table *table);

/* Starts the next merge, with view->delta or, view NULL, without a contribution. Each rank that serves the table or works calls
 * it once for each clock in which the table is updated. Precondition: !tr_merge_busy(). */
int tr_merge_start(struct tr_table *table, tr_view *view);
bool tr_merge_busy(const struct tr_table *table);
/* The next merge is that of the first clock again. On all participants, before the stage starts. */
void tr_merge_begin(struct tr_table *table);
/* The clock of the next merge: updates of earlier ones are in this rank's share. INT64_MAX: this rank takes part in none. */
int64_t tr_merge_done(const struct tr_table *table);
int tr_merge_poll(void *what, int *did); /* poll function; what: the tr_tables */

/* One line for --explain, on ranks that serve. */
void tr_merge_describe(const struct tr_table *table, char *text, size_t size);

/* The degree of rounds that should be fastest for n participants that together hold `held` units of a table of `units`,
 * each of unit_bytes. */
int tr_merge_choose_degree(int n, double held, double units, size_t unit_bytes);

#endif
