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
#ifndef TR_TABLE_NODE_CACHE_H
#define TR_TABLE_NODE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
