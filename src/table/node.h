/* Reads that the workers of a node share: node caches, node pulls and subscriptions.
 *
 * A node cache has values that one worker of a node has fetched from a server of another node, for the other workers. It lies in
 * memory that the node shares, with a fixed number of entries of one size; item i can only be in entry i modulo their number.
 * A worker that needs an item that is not cached claims its entry and fetches it. A worker that finds the entry claimed does
 * other work and returns later. This divides the fetching among workers that run in step. The claim fails if the entry is in use
 * for another item or is being read: workers wait only for items that are being fetched, and each fetch ends.
 *
 * Fetches are numbered. A fetch contains all updates of clocks < holds, because these were in the tables before it started. A
 * worker at clock c may use a fetch
 *   under BSP         if holds = c (no newer update is in it, because none of clock c is visible before all have read for c)
 *   under SSP, ASP    if holds ≥ c - s and its number is above `after`: a worker sees its own updates, so the fetch must have
 *                     started after the last of them had arrived; and a worker that only reads must see new values
 */
#ifndef TR_TABLE_NODE_H
#define TR_TABLE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Which fetches a worker may use. */
struct tr_cache_terms {
    bool lockstep;
    int64_t least;  /* those with all updates of clocks < least and, in lockstep, no others */
    uint64_t after; /* those with higher numbers */
};

enum tr_cache_state {
    TR_CACHE_HERE,    /* cached */
    TR_CACHE_COMING,  /* another worker fetches it */
    TR_CACHE_CLAIMED, /* the caller has claimed it now */
    TR_CACHE_NONE     /* none of these */
};

/* A fetch. */
struct tr_cache_fetch {
    uint64_t number;
    int64_t holds;
    int64_t version; /* of the share */
};

/* Bytes of memory for a cache; and a cache in such memory, which starts on a cache line and is the same for all ranks of the
 * node. One rank clears it before the others use it. */
size_t tr_cache_bytes(uint64_t entries, size_t value_bytes);
struct tr_node_cache tr_cache_at(void *memory, uint64_t entries, size_t value_bytes);
void tr_cache_clear(struct tr_node_cache *cache);

/* Number of the latest fetch. */
uint64_t tr_cache_number(const struct tr_node_cache *cache);

/* Looks up an item. If it is not cached and no worker fetches it, claims its entry unless that is in use. holds: the fetch that
 * the caller will start contains all updates of clocks < holds. */
enum tr_cache_state tr_cache_claim(struct tr_node_cache *cache, uint64_t item,
                                   const struct tr_cache_terms *terms, int64_t holds);

/* The value of an item, for a caller that has taken it (to read) or claimed it (to write). */
void *tr_cache_value(const struct tr_node_cache *cache, uint64_t item);

/* The caller has written the value of an item that it claimed; others may use it after tr_cache_put(). Returns the fetch. */
struct tr_cache_fetch tr_cache_fetched(struct tr_node_cache *cache, uint64_t item, int64_t version);

/* Ends a fetch; fetched = false: it has failed. */
void tr_cache_put(struct tr_node_cache *cache, uint64_t item, bool fetched);

/* Takes an item. TR_CACHE_HERE: its value does not change until tr_cache_give_back(), and *fetch describes it (fetch may be NULL).
 * TR_CACHE_NONE: it is not cached (any more). */
enum tr_cache_state tr_cache_take(struct tr_node_cache *cache, uint64_t item,
                                  const struct tr_cache_terms *terms, struct tr_cache_fetch *fetch);
void tr_cache_give_back(struct tr_node_cache *cache, uint64_t item);

/* ======== pulls ======== */

/* Node pulls: workers of a node that read the same keys of a server on another node fetch them once.
 *
 * The i-th views that the workers of a node have opened of a table for the same use (read, update, group) form a node pull. So
 * workers that open their views in the same order share them, and rounded values are never mixed with exact ones. For each
 * server on another node that several of these views read, and if it saves at least a fifth, the union of their keys is
 * registered once, by one rank of the node, and a node cache with one entry holds its values. Any of the workers may fetch them;
 * then each copies its own keys. Each worker starts with other servers than its neighbours, so that workers in step divide the
 * fetching.
 *
 * Under SSP, a worker cannot use a fetch that started before its own last update had arrived. That would end the sharing: of two
 * workers in step, the update of the second arrives during the fetch of the first, and each would fetch for itself. So if
 * updates are simply added (the condition of tr_view_prefetch()), a worker looks at the latest fetch just before it pushes. If
 * that started after its previous update had arrived, it lacks only the delta that is about to be sent: the worker takes it over
 * with the delta added, as if it had been prefetched. So only a worker that finds no fetch newer than its last clock makes one:
 * about one a clock of the faster workers. The values may be one clock of the worker old, as prefetched ones are; the staleness
 * bound holds. Such views are not prefetched, which would be a second fetch.
 */

struct tr_node_pull;

/* Opens the node pulls of all tables, after all views of the stage are open. Collective over all ranks. On a node without memory
 * for one, each worker fetches for itself. */
int tr_node_pull_open(tr_context *tr);

/* The route of a node pull to a server: TR_ROUTE_GET or TR_ROUTE_REQUEST. */
int tr_node_pull_route(const struct tr_node_pull *pull, uint32_t server);

/* Unregisters the node pulls of a table; and frees them, after all these messages have arrived, collectively over the ranks of
 * the node. */
void tr_node_pull_forget(struct tr_table *table);
void tr_node_pull_free(struct tr_table *table);

/* This rank's view is being closed. */
void tr_node_pull_leave(struct tr_node_pull *pull);

/* The view reads from this server by the node pull. */
bool tr_node_pull_shares(const struct tr_node_pull *pull, uint32_t server);

/* Starts to read the view's keys of a server as its running pull says; and progresses that. */
void tr_node_pull_read(struct tr_node_pull *pull, uint32_t server);
int tr_node_pull_poll(struct tr_node_pull *pull, uint32_t server, bool *done, int *did);

/* An update of the view has arrived: fetches that started before may lack it. */
void tr_node_pull_pushed(struct tr_node_pull *pull);

/* For each server there is a fetch that this view may use, with all updates of clocks < least. */
bool tr_node_pull_has_news(const struct tr_node_pull *pull, int64_t least);

/* ======== subscriptions ======== */

/* Subscriptions: rows that a worker reads after each update of a table (tr_rows_subscribe()). Under BSP they arrive with each
 * merge, without requests.
 *
 * The rows that the workers of a node subscribe to are united. Each worker receives a slice of the union, by rounds (merge.c) that
 * run from the servers down, into memory that the node shares: a row travels to a node once, and all of its workers read it
 * there. It travels in the chunks of the merge, and a number for each slice and chunk says with which merge its rows have come. No
 * rank overwrites them before all workers take part in the next merge, and so have read them.
 *
 * Rows of servers on the node itself are left out: they are read directly. */

struct tr_subscription {
    struct tr_table *table;
    tr_key *key; /* the subscribed list of this worker */
    size_t n;
    int members, member; /* number of workers of this node, and which one this is; -1: none */
    uint32_t chunk, chunks;

    size_t units;         /* slots: units of the node's union */
    struct tr_plan slice; /* the rows that this rank receives */
    char *slice_value;    /* memory in which `local` of the slice counts */
    struct tr_shm memory; /* the first rank's: */
    _Atomic int64_t *
        arrived; /* by chunk and member: the number of the merge with which the rows have arrived; NULL: none do */
    char *value;    /* by slot */
    int64_t merge;  /* number of merges in which this rank has taken part */
    int64_t wanted; /* number of the last merge of this stage, or 0 */

    /* own rows that arrive, by chunk and member: a part begins at each of these */
    uint32_t *begin, *place, *slot;
    uint32_t *left; /* parts that have not been taken, ascending */
    size_t lefts;
};

/* Rows that have arrived: row place[i] of the subscribed list has its values in slot slot[i]. */
struct tr_subscribed {
    size_t n;
    const uint32_t *place, *slot;
    const char *value; /* of slot 0 */
};

/* Opens the subscription of rows that workers have subscribed to since the last call; a chunk has `chunk` positions of each share.
 * Collective over all ranks. A node without memory for its union receives nothing. */
int tr_subscription_open(struct tr_table *table, uint32_t chunk, uint32_t chunks);
void tr_subscription_close(struct tr_table *table);

/* Forgets rows that this worker has subscribed to since the last call of tr_subscription_open(). */
void tr_subscription_discard(struct tr_table *table);

/* A chunk of this rank's slice has arrived with the current merge. */
void tr_subscription_put(struct tr_subscription *subscription, uint32_t chunk);

/* tr_subscription_has(): the rows of this list arrive with the last merge, except those of this node. Then begin, and take until
 * all have been delivered: *rows are some that have arrived, with all updates of earlier clocks and none of later ones. False:
 * none at the moment. */
bool tr_subscription_has(const struct tr_table *table, const tr_key *keys, size_t n);
void tr_subscription_begin(struct tr_subscription *subscription);
bool tr_subscription_take(struct tr_subscription *subscription, struct tr_subscribed *rows);

#endif
