/* Rows in any order (trireme/rows.h), pulled as a stream and delivered to a function; and updates of sparse rows. sync.c
 * decides when that is allowed.
 *
 * Pulling. The list is split by server. Rows that this rank reads directly are delivered while no answer has arrived. For
 * the others, up to table.ahead requests to each server are in flight, each for the number of rows that fit into
 * table.row_bytes, while the rows of an answer are delivered. Between two rows, but at most every 0.5 ms, the rank polls: it
 * receives answers, sends further requests, and serves other ranks. So a request is sent as soon as there is a free slot. Rows
 * that other workers of the node fetch or have fetched come from a node cache (node.h). The length of a sparse row is known only
 * from the answer: the server fills table.row_bytes, and rows that do not fit, or the rest of a row, are requested again.
 *
 * Pushing. Entries that are added to sparse rows are written into one message for each server. It is sent when it is full,
 * before this worker pulls from the table, and at the end of the clock. Under BSP servers hold such messages, as they do those of
 * views. The last message to each server in a clock is acknowledged, and TR_CLOCK_PUSHED says when those of all workers are:
 * a worker without entries for a server sends it nothing.
 */
#ifndef TR_TABLE_ROWS_H
#define TR_TABLE_ROWS_H

#include "table/table.h"
#include "trireme/rows.h"

/* Terms of a pull, set by sync.c. */
struct tr_rows_terms {
    bool still;    /* no value changes during the pull: rows are delivered without a copy */
    bool exact;    /* values are not rounded */
    bool shared;   /* rows that other workers of the node have fetched may be used; see `least` */
    int64_t least; /* rows must contain all updates of clocks < least and, in lockstep, no others */
    int64_t holds; /* all updates of clocks < holds are in the tables now */
    /* Rows of other nodes arrive with the last merge (subscriptions, node.h), so the pull starts before that is complete. Rows of
     * this node are delivered once all updates of clocks < least are known to be in the tables. */
    bool subscribed;
};

/* tr_rows_pull() without waiting for clocks. *computed: seconds spent in row(). TR_ERR_INTERNAL: a key does not exist, the table
 * rests or keeps versions, or another pull of the table is running. */
int tr_rows_move(struct tr_table *table, const tr_key *keys, size_t n, tr_row_fn *row, void *state,
                 const struct tr_rows_terms *terms, double *computed);

/* tr_rows_push() as part of `clock`. TR_ERR_INTERNAL: the table has no sparse rows or rests, a key does not exist, or columns do
 * not ascend below the width. */
int tr_rows_add(struct tr_table *table, const tr_row *rows, size_t n, int64_t clock);

/* The worker's clock ends: sends the entries that it added; each server acknowledges the last message. */
int tr_rows_end_clock(struct tr_table *table, int64_t clock);

/* Servers hold pushed rows of a clock until those of all workers have arrived. */
static inline bool tr_rows_wait(const struct tr_table *t)
{
    return t->sparse && t->lockstep && !t->rests;
}

/* The lowest clock with pushed rows in flight; INT64_MAX: none. */
int64_t tr_rows_sending(const struct tr_table *table);

/* Bytes of memory for answers that this rank keeps between pulls. */
size_t tr_rows_memory(const struct tr_table *table);

/* For a new table. */
int tr_rows_open(struct tr_table *table);

/* Starts a stage, after all its views are open. Collective over all ranks. */
int tr_rows_begin(struct tr_table *table);

/* An update of a view of this worker has arrived: rows that the node fetched before may lack it. */
void tr_rows_pushed(struct tr_table *table);

int tr_rows_poll(void *what, int *did); /* poll function; what: the tr_tables */

/* Collective over the ranks of the node. */
void tr_rows_free(struct tr_table *table);

#endif
