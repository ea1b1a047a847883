/* A node cache: values that one worker of a node has fetched from a server of another node, for the others to take.
 *
 * It lies in memory that the node shares and has a fixed number of entries of one size; item i can only be in entry i
 * modulo their number, so nothing has to be ordered or searched. Whoever needs an item that is not there claims its
 * entry and fetches it; who finds it claimed does something else meanwhile and comes back. That divides the fetching
 * among workers that are in step, without a word between them. Where an entry is in use for another item, or is being
 * read, the claim fails: nobody ever waits for an entry, only for items whose fetching has begun, and who fetches
 * always ends it.
 *
 * Fetches are numbered, and say `holds`: all updates of clocks < holds are in them, because all of them were in the
 * tables before they were asked for. Whether a worker at clock c may use one:
 *   BSP        if holds = c. Nothing newer can be in it, as no update of clock c shows before all have read for c
 *   SSP, ASP   if holds ≥ c - s, and if its number is above those that the worker rules out: it sees its own updates, so
 *              the fetch must have begun after the last of them had arrived; and who only reads is to see news
 */
#ifndef TR_TABLE_NODE_H
#define TR_TABLE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "table/route.h"
#include "table/plan.h"
#include "table/table.h"
#include "table/view.h"

struct tr_cache_head;

struct tr_node_cache {
    struct tr_cache_head *head; /* NULL: there is none */
    char *value;                /* by entry */
    uint64_t entries;
    size_t stride; /* of a value */
};

/* What will do. */
struct tr_cache_terms {
    bool lockstep;
    int64_t least;  /* all updates of clocks < least; in lockstep just these */
    uint64_t after; /* fetches with higher numbers only */
};

enum tr_cache_state {
    TR_CACHE_HERE,    /* can be taken */
    TR_CACHE_COMING,  /* somebody fetches it */
    TR_CACHE_CLAIMED, /* by the caller, just now */
    TR_CACHE_NONE     /* none of these */
};

/* What is known of a fetch. */
struct tr_cache_fetch {
    uint64_t number;
    int64_t holds;
    int64_t version; /* of the share */
};

/* Bytes of memory for a cache, and a cache in such memory: of all ranks of the node in the same, which begins on a
 * cache line. One of them empties it before the others use it. */
size_t tr_cache_bytes(uint64_t entries, size_t value_bytes);
struct tr_node_cache tr_cache_at(void *memory, uint64_t entries, size_t value_bytes);
void tr_cache_clear(struct tr_node_cache *cache);

/* The number of the latest fetch. */
uint64_t tr_cache_number(const struct tr_node_cache *cache);

/* Looks for an item, and claims its entry if nobody fetches it and the entry is free. holds: all updates of clocks <
 * holds are in what the caller is about to ask for. */
enum tr_cache_state tr_cache_claim(struct tr_node_cache *cache, uint64_t item,
                                   const struct tr_cache_terms *terms, int64_t holds);

/* Where the value of an item lies; whoever has claimed it may write there. */
void *tr_cache_value(const struct tr_node_cache *cache, uint64_t item);

/* Of an item that the caller has claimed: its value is there, but for others only after the next. */
struct tr_cache_fetch tr_cache_fetched(struct tr_node_cache *cache, uint64_t item, int64_t version);

/* Ends a fetch: the value can be taken, or (false) could not be fetched. */
void tr_cache_put(struct tr_node_cache *cache, uint64_t item, bool fetched);

/* Takes an item: if it is here, its value stays as it is until tr_cache_give_back(), and *fetch (NULL: not wanted) says
 * what it is. TR_CACHE_NONE: it is not there (any more). */
enum tr_cache_state tr_cache_take(struct tr_node_cache *cache, uint64_t item,
                                  const struct tr_cache_terms *terms, struct tr_cache_fetch *fetch);
void tr_cache_give_back(struct tr_node_cache *cache, uint64_t item);

/* Whether tr_cache_take() gets an item, now or when a fetch ends whose `holds` does not matter. */
bool tr_cache_has_news(struct tr_node_cache *cache, uint64_t item, const struct tr_cache_terms *terms);

/* ======== pulls ======== */

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

/* ======== subscriptions ======== */

/* Subscriptions: rows that workers have said they read after each update of a table (tr_rows_subscribe()). Under BSP they come
 * behind each merge, and nobody asks for them.
 *
 * What the workers of a node subscribe to is united. Each worker receives a slice of the union, by rounds of its own
 * (rounds.h) that run from the servers down, into memory that the node shares: so a row comes to a node once, and all of its
 * workers read it there. It travels in the chunks of the merge; a number for each slice and chunk says behind which merge its
 * rows have come. Nobody writes the next ones before all workers take part in the next merge, and are done with these.
 *
 * Rows that lie on the node itself are left out: they are read where they lie. */

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

/* Forgets what this worker has subscribed to since the last call of tr_subscription_open(). */
void tr_subscription_discard(struct tr_table *table);

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
