/* A shelf: rows that one worker of a node has fetched from another node, for the others to take.
 *
 * It lies in memory that the node shares and has a fixed number of places; unit u of the table can only lie at place
 * u modulo their number. So workers that go through their lists in about the same order find what the first of them has
 * fetched as long as they are not a whole shelf behind, and nothing has to be ordered or searched. Whoever needs a unit
 * that is not there claims its place and fetches it; who finds it claimed takes others meanwhile and comes back. That
 * divides the fetching among workers that are in step, without a word between them. Where a place is in use for another
 * unit, the unit is fetched without it: nobody ever waits for a place, only for units whose fetching has begun, and who
 * fetches always ends it.
 *
 * Fetches are numbered. Whether a worker at clock c may take a unit:
 *   BSP        if all updates of clocks < c were in the table when it was asked for; none of clock c can be
 *   SSP, ASP   if all updates of clocks < c - s were; if the fetch began after its own last update had arrived, since a
 *              worker sees its own updates; and after its last but one pull began, so that who only reads sees news
 */
#ifndef TR_TABLE_SHELF_H
#define TR_TABLE_SHELF_H

#include "table/table.h"

struct tr_shelf;

/* What will do. */
struct tr_shelf_terms {
    bool lockstep;
    int64_t least;  /* all updates of clocks < least; in lockstep just these */
    uint64_t after; /* fetches with higher numbers only */
};

enum tr_shelf_state {
    TR_SHELF_HERE,    /* can be taken */
    TR_SHELF_COMING,  /* somebody fetches it */
    TR_SHELF_CLAIMED, /* by the caller, just now */
    TR_SHELF_NONE     /* fetch it without the shelf */
};

/* A shelf of so many bytes of units at most: all ranks of the node with the same. NULL where memory is too small. */
int tr_shelf_open(struct tr_table *table, uint64_t bytes, struct tr_shelf **shelf);
void tr_shelf_close(struct tr_shelf **shelf);

/* The number of the latest fetch. */
uint64_t tr_shelf_number(const struct tr_shelf *shelf);

/* Looks for a unit, and claims its place if nobody fetches it and the place is free. holds: all updates of clocks <
 * holds are in what the caller is about to ask for. */
enum tr_shelf_state tr_shelf_claim(struct tr_shelf *shelf, uint64_t unit, const struct tr_shelf_terms *terms,
                                   int64_t holds);

/* Takes a unit: if it is here, *value stays as it is until tr_shelf_give_back(). TR_SHELF_NONE: it is not there (any
 * more). */
enum tr_shelf_state tr_shelf_take(struct tr_shelf *shelf, uint64_t unit, const struct tr_shelf_terms *terms,
                                  const void **value);
void tr_shelf_give_back(struct tr_shelf *shelf, uint64_t unit);

/* Puts a unit that was claimed on the shelf. value NULL: it could not be fetched. */
void tr_shelf_put(struct tr_shelf *shelf, uint64_t unit, const void *value);

#endif
