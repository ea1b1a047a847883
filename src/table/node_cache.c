#include "table/node_cache.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

struct entry {
    atomic_uint lock;
    uint32_t readers;
    enum { EMPTY, COMING, HERE } state;
    uint64_t item;
    struct tr_cache_fetch fetch;
};

struct tr_cache_head {
    _Atomic uint64_t fetches;
    char pad[56];
    struct entry entry[];
};

/* ---- memory ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t values_at(uint64_t entries)
{
    return padded(sizeof(struct tr_cache_head) + entries * sizeof(struct entry));
}

size_t tr_cache_bytes(uint64_t entries, size_t value_bytes)
{
    return values_at(entries) + entries * padded(value_bytes);
}

struct tr_node_cache tr_cache_at(void *memory, uint64_t entries, size_t value_bytes)
{
    return (struct tr_node_cache){memory, (char *)memory + values_at(entries), entries, padded(value_bytes)};
}

void tr_cache_clear(struct tr_node_cache *c)
{
    memset(c->head, 0, values_at(c->entries));
}

uint64_t tr_cache_number(const struct tr_node_cache *c)
{
    return atomic_load(&c->head->fetches);
}

void *tr_cache_value(const struct tr_node_cache *c, uint64_t item)
{
    return c->value + item % c->entries * c->stride;
}

/* ---- entries ---- */

static struct entry *lock(struct tr_node_cache *c, uint64_t item)
{
    struct entry *e = &c->head->entry[item % c->entries];
    while (atomic_exchange_explicit(&e->lock, 1, memory_order_acquire)) sched_yield();
    return e;
}

static void unlock(struct entry *e)
{
    atomic_store_explicit(&e->lock, 0, memory_order_release);
}

/* Whether an entry has the item, or will have it, new enough; and with what is wanted. */
static bool is_new(const struct entry *e, uint64_t item, const struct tr_cache_terms *terms)
{
    return e->state != EMPTY && e->item == item && e->fetch.number > terms->after;
}

static bool suits(const struct entry *e, uint64_t item, const struct tr_cache_terms *terms)
{
    bool holds = terms->lockstep ? e->fetch.holds == terms->least : e->fetch.holds >= terms->least;
    return holds && is_new(e, item, terms);
}

enum tr_cache_state tr_cache_claim(struct tr_node_cache *c, uint64_t item, const struct tr_cache_terms *terms,
                                   int64_t holds)
{
    struct entry *e = lock(c, item);
    enum tr_cache_state state = TR_CACHE_NONE;
    if (suits(e, item, terms)) {
        state = e->state == HERE ? TR_CACHE_HERE : TR_CACHE_COMING;
    } else if (e->state != COMING && e->readers == 0) {
        e->state = COMING;
        e->item = item;
        e->fetch.holds = holds;
        e->fetch.number = atomic_fetch_add(&c->head->fetches, 1) + 1;
        state = TR_CACHE_CLAIMED;
    }
    unlock(e);
    return state;
}

struct tr_cache_fetch tr_cache_fetched(struct tr_node_cache *c, uint64_t item, int64_t version)
{
    struct entry *e = lock(c, item);
    e->fetch.version = version;
    struct tr_cache_fetch fetch = e->fetch;
    unlock(e);
    return fetch;
}

void tr_cache_put(struct tr_node_cache *c, uint64_t item, bool fetched)
{
    struct entry *e = lock(c, item);
    e->state = fetched ? HERE : EMPTY;
    unlock(e);
}

enum tr_cache_state tr_cache_take(struct tr_node_cache *c, uint64_t item, const struct tr_cache_terms *terms,
                                  struct tr_cache_fetch *fetch)
{
    struct entry *e = lock(c, item);
    enum tr_cache_state state = TR_CACHE_NONE;
    if (suits(e, item, terms)) {
        state = e->state == HERE ? TR_CACHE_HERE : TR_CACHE_COMING;
        e->readers += state == TR_CACHE_HERE;
        if (fetch) *fetch = e->fetch;
    }
    unlock(e);
    return state;
}

void tr_cache_give_back(struct tr_node_cache *c, uint64_t item)
{
    struct entry *e = lock(c, item);
    e->readers--;
    unlock(e);
}

bool tr_cache_has_news(struct tr_node_cache *c, uint64_t item, const struct tr_cache_terms *terms)
{
    struct entry *e = lock(c, item);
    bool news = is_new(e, item, terms) && (e->state == COMING || e->fetch.holds >= terms->least);
    unlock(e);
    return news;
}
