/* Node pulls: workers of a node that need the same keys of a server on another node fetch them once.
 *
 * The i-th view that each worker of a node has opened of a table for the same use (reading, updating, as a group)
 * belong together; so workers that open their views alike share what each of them is for, and rounded values are
 * never mixed with exact ones. For each server that several of them reach by messages or RMA, and where that is likely to
 * save at least a fifth, the union of their keys is registered once, by one rank of the node, and a node cache
 * (node_cache.h) has an entry for its values. Any of the workers may fetch them; then each copies its own keys. A worker
 * that has several servers to read starts with other ones than its neighbours, so that workers in step divide the
 * fetching.
 *
 * That a worker takes no fetch which began before its own last update had arrived would let sharing die under SSP: of
 * two workers in step, the second one's update arrives while the first one's fetch is on its way, and each would
 * fetch for itself. So where updates are simply added (the same condition as for tr_view_prefetch()), a worker that
 * is about to push looks at the latest fetch first: if that began after the update before had arrived, it has
 * everything but the delta about to leave, and is taken over with the delta added, as what was read ahead. So of the
 * workers of a node only the one that finds no fetch newer than its last clock makes one: about one a clock of the
 * faster workers, whether they are in step or spread over the clock. The price is freshness: what is read may be a
 * clock of the worker old, as what is read ahead is; the staleness bound holds all the same. Such views are not read
 * ahead, which would be a fetch more.
 */
#ifndef TR_TABLE_NODE_PULL_H
#define TR_TABLE_NODE_PULL_H

#include "table/channel.h"
#include "table/view.h"

struct tr_node_pull;

/* Finds what views of the stage have in common, for all tables: all ranks, after all views are open. Where memory is
 * too small for it, every worker of the node fetches for itself. */
int tr_node_pull_open(tr_context *tr);

/* Measures whether get or request brings what views have in common faster; all ranks. What was measured here. */
int tr_node_pull_measure(tr_context *tr);
void tr_node_pull_measured(const struct tr_node_pull *pull, struct tr_measured *measured);

/* How what views have in common is read from a server: TR_ROUTE_… */
int tr_node_pull_route(const struct tr_node_pull *pull, uint32_t server);

/* Lets servers forget what a table's views have in common, and after all such messages have arrived, frees it: the
 * latter with all ranks of the node. */
void tr_node_pull_forget(struct tr_table *table);
void tr_node_pull_free(struct tr_table *table);

/* This rank's view is being closed. */
void tr_node_pull_leave(struct tr_node_pull *pull);

/* Whether the view reads from this server together with others. */
bool tr_node_pull_shares(const struct tr_node_pull *pull, uint32_t server);

/* Starts to read the view's keys of a server, to where and as the view says, and carries that on. */
void tr_node_pull_read(struct tr_node_pull *pull, uint32_t server);
int tr_node_pull_poll(struct tr_node_pull *pull, uint32_t server, bool *done, int *did);

/* An update of the view has arrived everywhere: what was fetched before may lack it. */
void tr_node_pull_pushed(struct tr_node_pull *pull);

/* Whether there are fetches that this view may use, all with the updates of clocks < least. */
bool tr_node_pull_has_news(const struct tr_node_pull *pull, int64_t least);

/* " (2 together with the node)", behind the routes of a view */
void tr_node_pull_describe(const struct tr_node_pull *pull, char *text, size_t size);

#endif
