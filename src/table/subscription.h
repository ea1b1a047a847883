/* Subscriptions: rows that workers have said they read after each update of a table (tr_rows_subscribe()). Under BSP they come
 * behind each merge, and nobody asks for them.
 *
 * What the workers of a node subscribe to is united. Each worker receives a slice of the union, by rounds of its own
 * (rounds.h) that run from the servers down, into memory that the node shares: so a row comes to a node once, and all of its
 * workers read it there. It travels in the chunks of the merge; a number for each slice and chunk says behind which merge its
 * rows have come. Nobody writes the next ones before all workers take part in the next merge, and are done with these.
 *
 * Rows that lie on the node itself are left out: they are read where they lie. */
#ifndef TR_TABLE_SUBSCRIPTION_H
#define TR_TABLE_SUBSCRIPTION_H

#include "table/keyset.h"
#include "table/table.h"

struct tr_subscription;

/* Rows that have come: entry i is row number place[i] of the list that was subscribed to, and its values are those of this slot. */
struct tr_subscribed {
    size_t n;
    const uint32_t *place, *slot;
    const char *value; /* of slot 0 */
};

/* Unites what the workers of each node have subscribed to since the last call, in chunks of so many positions of each share: all
 * ranks. A node whose union is too large for its memory gets nothing. */
int tr_subscription_open(struct tr_table *table, uint32_t chunk, uint32_t chunks);
void tr_subscription_close(struct tr_table *table);

/* What comes to this rank: by server, entry i goes to unit local[i] of the memory; and how many units that are. */
const struct tr_segment *tr_subscription_segments(const struct tr_subscription *subscription);
size_t tr_subscription_units(const struct tr_subscription *subscription);
char *tr_subscription_memory(const struct tr_subscription *subscription);

/* This rank takes part in the next merge; a chunk of its rows behind that has come; the stage begins, and none has. */
void tr_subscription_next(struct tr_subscription *subscription);
void tr_subscription_put(struct tr_subscription *subscription, uint32_t chunk);
void tr_subscription_reset(struct tr_subscription *subscription);

/* Whether the rows of this list come behind the last merge, but for those on the node itself. Then begins to take them; takes some
 * that have come: what no later update is in, and all earlier ones are. False: none now. */
bool tr_subscription_has(const struct tr_table *table, const tr_key *keys, size_t n);
void tr_subscription_begin(struct tr_subscription *subscription);
bool tr_subscription_take(struct tr_subscription *subscription, struct tr_subscribed *rows);

#endif
