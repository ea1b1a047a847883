/* Rows in any order: what one rank has asked servers for and not yet handed over, and what it adds to sparse rows and
 * has not yet sent. trireme/rows.h says what it is for; sync.c decides when it is allowed.
 *
 * Pulling. The list is split by server. Rows that this rank reaches directly wait until nothing else is there to do;
 * for the others there are requests: up to table.ahead are under way to each server, each for as many rows as fit
 * into table.row_bytes, while the rows of one that has arrived are handed over. Between any two rows, if some time
 * has gone by, messages are looked after: answers are taken, further requests leave, and this rank's own server
 * answers others; the more is here and the fewer ranks wait for this one, the less often, since looks are time taken
 * from computing. So a request leaves as soon as there is room, not when the caller has got round to it. What other
 * workers of the node are fetching or have fetched is taken from a node cache (node.h). A sparse row tells its
 * length only in the answer: the server fills table.row_bytes, and rows that it did not get to, or the rest of one,
 * are asked for again at once.
 *
 * Pushing. What is added to sparse rows is written into a message for each server, which leaves when it is full, before
 * this worker pulls from the table, and at the end of the clock. Under BSP servers hold such messages like those of
 * views; the last one to each server in a clock is acknowledged, and the clock window says when those of all workers are.
 * So who has nothing for a server tells it nothing.
 */
#ifndef TR_TABLE_ROWS_H
#define TR_TABLE_ROWS_H

#include "table/table.h"
#include "trireme/rows.h"

/* What a pull may do, as the consistency has it. */
struct tr_rows_terms {
    bool still;    /* no value changes meanwhile: rows are handed over where they lie */
    bool exact;    /* nothing is rounded */
    bool shared;   /* other workers of the node may have fetched a row, if … */
    int64_t least; /* … all updates of clocks < least are in it; in lockstep, no others either */
    int64_t holds; /* all updates of clocks < holds are in the tables now */
    /* Rows of other nodes come behind the last merge (node.h), so pulling has not waited for it: those of this node are taken
     * when all updates of clocks < least are known to be in the tables. */
    bool subscribed;
};

/* tr_rows_pull(), at once. *computed: seconds spent in row(). */
int tr_rows_move(struct tr_table *table, const tr_key *keys, size_t n, tr_row_fn *row, void *state,
                 const struct tr_rows_terms *terms, double *computed);

/* tr_rows_push(), as part of a clock. */
int tr_rows_add(struct tr_table *table, const tr_row *rows, size_t n, int64_t clock);

/* The worker's clock ends: what it has added to sparse tables leaves, and each server acknowledges the last of it. */
int tr_rows_end_clock(struct tr_table *table, int64_t clock);

/* Whether rows that are pushed are held back until those of all workers are there, if somebody pushes any in this stage. */
static inline bool tr_rows_wait(const struct tr_table *t)
{
    return t->sparse && t->lockstep && !t->rests;
}

/* The lowest clock of which something that was sent has not arrived; INT64_MAX: nothing. */
int64_t tr_rows_sending(const struct tr_table *table);

/* Bytes of this rank that are kept for answers, while nothing is under way. */
size_t tr_rows_memory(const struct tr_table *table);

/* Of a table that is being made. */
int tr_rows_open(struct tr_table *table);

/* A stage begins, all its views are open: all ranks. */
int tr_rows_begin(struct tr_table *table);

/* An update of a view of this worker has arrived: what the node has fetched before may lack it. */
void tr_rows_pushed(struct tr_table *table);

int tr_rows_poll(void *what, int *did); /* what: the tr_tables */

/* With all ranks of the node. */
void tr_rows_free(struct tr_table *table);

#endif
