/* Merging: under BSP all updates of a clock are added as one sum. On one node, servers read the updates in shared memory;
 * between nodes, updates travel in rounds. See merge.c. */
#ifndef TR_TABLE_MERGE_H
#define TR_TABLE_MERGE_H

#include "table/table.h"

/* All ranks, after the views of a stage are open; does nothing where no view is merged. */
int tr_merge_open(struct tr_table *table);
void tr_merge_close(struct tr_table *table);

/* Takes part in the next merge with this view's delta, or with nothing (NULL). Every rank that serves or updates the table does
 * so in each clock in which the table is updated. */
int tr_merge_start(struct tr_table *table, tr_view *view);
bool tr_merge_busy(const struct tr_table *table);
/* The next clock is 0 again; before the participants begin a stage, and once more if it does not begin with its first clock. */
void tr_merge_begin(struct tr_table *table);
/* Updates of clocks < this are in the table's share here; the next merge is of this clock. INT64_MAX: no merge here. */
int64_t tr_merge_done(const struct tr_table *table);
int tr_merge_poll(void *what, int *did); /* what: the tr_tables */

/* How updates are merged, for --explain; right on ranks that serve. */
void tr_merge_describe(const struct tr_table *table, char *text, size_t size);

/* The view whose delta this rank gives to the table's merges, or NULL. */
struct tr_view_state *tr_merged_view(const struct tr_table *table);

/* The degree of rounds that should be fastest for n participants that together hold `held` units of a table of `units`,
 * each of unit_bytes. */
int tr_merge_choose_degree(int n, double held, double units, size_t unit_bytes);

#endif
