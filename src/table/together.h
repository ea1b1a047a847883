/* Pulling together: workers of a node that need the same keys of a server on another node fetch them once.
 *
 * The i-th view that each worker of a node has opened of a table for the same use (reading, updating, as a group)
 * belong together; so workers that open their views alike share what each of them is for, and rounded values are
 * never mixed with exact ones. For each server that several of them reach by messages or RMA, and where that saves
 * at least a fifth, the union of their keys is registered once, by one rank of the node, and there are buffers for
 * its values in memory that the node shares. Any of the workers may fetch into them: whoever needs a fetch that
 * nobody has made claims it by compare-and-swap, and the others wait for its stamp, looking after their other
 * roles meanwhile; then each copies its own keys. A worker that has several servers to read starts with other ones
 * than its neighbours, so that workers in step divide the fetching.
 *
 * A fetch is stamped with `holds`: all updates of clocks < holds are in it, because all of them were in the tables
 * before it was asked for. Whether a worker at clock c may use a fetch:
 *
 *   BSP        if holds = c. Nothing newer can be in it, as no update of clock c shows before all have read for c.
 *              One fetch a clock and server, whoever does it, and reading ahead starts it.
 *   SSP, ASP   if holds ≥ c - s; if it has not used it before, so that an old buffer cannot keep a worker that only
 *              reads from seeing news; and if the fetch began after its own last update had arrived, because a
 *              worker sees its own updates.
 *
 * The last rule alone would let sharing die: of two workers in step, the second one's update arrives while the
 * first one's fetch is on its way, and each would fetch for itself. So where updates are simply added (the same
 * condition as for tr_view_prefetch()), a worker that is about to push looks at the latest fetch first: if that began
 * after the update before had arrived, it has everything but the delta about to leave, and is taken over with the
 * delta added, as what was read ahead. So of the workers of a node only the one that finds no fetch newer than its
 * last clock makes one: about one a clock of the faster workers, whether they are in step or spread over the clock.
 * The price is freshness: what is read may be a clock of the worker old, as what is read ahead is; the staleness
 * bound holds all the same. Such views are not read ahead, which would be a fetch more.
 *
 * A buffer that is being copied is not written: readers count themselves in and look again whether it is still what
 * they wanted; the fetch after the next, which needs the same buffer, waits until nobody is in. Under BSP all have
 * copied before the next clock can be fetched, and one buffer is enough.
 */
#ifndef TR_TABLE_TOGETHER_H
#define TR_TABLE_TOGETHER_H

#include "table/view.h"

struct tr_together;

/* Finds what views of the stage have in common, for all tables: all ranks, after all views are open. Where memory is
 * too small for it, every worker of the node fetches for itself. */
int tr_together_open(tr_context *tr);

/* Lets servers forget what a table's views have in common, and after all such messages have arrived, frees it: the
 * latter with all ranks of the node. */
void tr_together_forget(struct tr_table *table);
void tr_together_free(struct tr_table *table);

/* This rank's view is being closed. */
void tr_together_leave(struct tr_together *together);

/* Whether the view reads from this server together with others. */
bool tr_together_shares(const struct tr_together *together, uint32_t server);

/* Starts to read the view's keys of a server, to where and as the view says, and carries that on. */
void tr_together_read(struct tr_together *together, uint32_t server);
int tr_together_poll(struct tr_together *together, uint32_t server, bool *done, int *did);

/* An update of the view has arrived everywhere: what was fetched before may lack it. */
void tr_together_pushed(struct tr_together *together);

/* Whether there are fetches that this view may use, all with the updates of clocks < least. */
bool tr_together_has_news(const struct tr_together *together, int64_t least);

/* " (2 together with the node)", behind the routes of a view */
void tr_together_describe(const struct tr_together *together, char *text, size_t size);

#endif
