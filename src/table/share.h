/* Shares: the memory in which the servers of a table keep their units. A share lies in memory that its node shares, where
 * ranks of the node read and add directly; an RMA window opens it to others. Behind the values lie a line of facts, and a
 * lock for every so many units, which adding takes. */
#ifndef TR_TABLE_SHARE_H
#define TR_TABLE_SHARE_H

#include "table/keyset.h"
#include "table/table.h"

/* Allocates the share of this rank with its initial values and finds those of its node; opens them to other nodes where
 * these will read or write them. All ranks. The memory is freed with tr_share_close(), by all ranks too. */
int tr_share_open(struct tr_table *table, const tr_table_options *options);
void tr_share_close(struct tr_table *table);

/* Adds a view's slice to a share that this rank reaches directly: the workers of its node and its server may do so at the
 * same time. */
void tr_share_add_view(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                       const void *view);

/* Adds n packed units to the own share: at these ascending positions, or (NULL) side by side from `first` on. */
void tr_share_add(struct tr_table *table, const uint32_t *position, uint32_t first, uint32_t n,
                  const char *values);

/* Copies a unit of a share that this rank reaches directly, as it is between two additions. */
void tr_share_copy(const struct tr_table *table, uint32_t server, uint32_t position, void *to);

#endif
