/* Which chunk of a local model makes room for another where not all of them are held in memory.
 *
 * Frames lie in a heap by the stamps that their chunks had when they were last looked at. A visit only writes the chunk's
 * stamp; who looks for room sees whether the top has one that is newer, and lets it sink. Stamps only grow, so what stays
 * on top is the least of all: exactly the chunk that was visited (lru) or brought (fifo) longest ago. */
#include "table/replica_parts.h"

#include <sched.h>
#include <string.h>

static void lock(struct tr_replica_head *head)
{
    while (atomic_exchange_explicit(&head->choosing, 1, memory_order_acquire)) sched_yield();
}

static void unlock(struct tr_replica_head *head)
{
    atomic_store_explicit(&head->choosing, 0, memory_order_release);
}

static uint64_t next_tick(struct tr_replica_head *head)
{
    return atomic_fetch_add_explicit(&head->tick, 1, memory_order_relaxed) + 1;
}

/* ---- the heap ---- */

static void swap(struct tr_replica *l, uint32_t i, uint32_t j)
{
    uint32_t frame = l->heap[i];
    l->heap[i] = l->heap[j];
    l->heap[j] = frame;
}

static bool goes_before(const struct tr_replica *l, uint32_t i, uint32_t j)
{
    return l->heap_stamp[l->heap[i]] < l->heap_stamp[l->heap[j]];
}

static void sink(struct tr_replica *l, uint32_t i)
{
    for (uint32_t n = l->head->heaped, child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && goes_before(l, child + 1, child)) child++;
        if (!goes_before(l, child, i)) return;
        swap(l, i, child);
    }
}

static void rise(struct tr_replica *l, uint32_t i)
{
    for (; i > 0 && goes_before(l, i, (i - 1) / 2); i = (i - 1) / 2) swap(l, i, (i - 1) / 2);
}

static void stamp_anew(struct tr_replica *l, uint32_t i, uint64_t stamp)
{
    l->heap_stamp[l->heap[i]] = stamp;
    sink(l, i);
}

static uint32_t take_out(struct tr_replica *l, uint32_t i)
{
    uint32_t frame = l->heap[i];
    l->heap[i] = l->heap[--l->head->heaped];
    if (i < l->head->heaped) {
        rise(l, i);
        sink(l, i);
    }
    return frame;
}

/* Whether the i-th of the heap can go: it is held alone then. One that is held by others just now is needed, and so gets
 * another turn. */
static bool can_go(struct tr_replica *l, uint32_t i)
{
    if (tr_replica_try_alone(&l->chunk[l->owner[l->heap[i]]])) return true;
    stamp_anew(l, i, next_tick(l->head));
    return false;
}

static uint64_t stamp_of(const struct tr_replica *l, uint32_t i)
{
    return atomic_load_explicit(&l->chunk[l->owner[l->heap[i]]].stamp, memory_order_relaxed);
}

/* The place in the heap of a frame whose chunk can go, or UINT32_MAX. */
static uint32_t choose(struct tr_replica *l)
{
    for (uint32_t tries = 0, n = l->head->heaped; tries < n;) {
        uint32_t i = l->replace == TR_REPLACE_RANDOM ? (uint32_t)tr_rng_below(&l->head->random, n) : 0;
        uint64_t stamp = stamp_of(l, i);
        if (l->replace == TR_REPLACE_LRU && stamp > l->heap_stamp[l->heap[i]]) {
            stamp_anew(l, i, stamp);
            continue;
        }
        if (can_go(l, i)) return i;
        tries++;
    }
    return UINT32_MAX;
}

/* ---- frames ---- */

void tr_replica_frame_filled(struct tr_replica *l, size_t c)
{
    struct tr_replica_head *head = l->head;
    struct tr_replica_chunk *chunk = &l->chunk[c];
    uint64_t stamp = next_tick(head);
    atomic_store_explicit(&chunk->stamp, stamp, memory_order_relaxed);
    lock(head);
    l->owner[chunk->frame] = (uint32_t)c;
    l->heap_stamp[chunk->frame] = stamp;
    l->heap[head->heaped] = chunk->frame;
    rise(l, head->heaped++);
    unlock(head);
}

/* A chunk that cannot be written stays, in its frame: others may wait for that one. */
static int evict(struct tr_replica *l, uint32_t c)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    int status = TR_OK;
    if (atomic_load_explicit(&chunk->changed, memory_order_relaxed))
        status = tr_replica_write(l, c, tr_replica_base(l, c), tr_replica_value(l, c));
    if (status == TR_OK) {
        chunk->stored |= atomic_exchange_explicit(&chunk->changed, 0, memory_order_relaxed);
        atomic_store_explicit(&chunk->here, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&l->head->absent, 1, memory_order_relaxed);
        tr_replica_own_counts(l)->evicted++;
    } else {
        tr_replica_frame_filled(l, c);
    }
    tr_replica_end_alone(chunk);
    return status;
}

int tr_replica_take_frame(struct tr_replica *l, uint32_t *frame, bool *found)
{
    struct tr_replica_head *head = l->head;
    *found = true;
    lock(head);
    if (head->used < l->frames) {
        *frame = head->used++;
        unlock(head);
        return TR_OK;
    }
    uint32_t i = choose(l);
    if (i != UINT32_MAX) *frame = take_out(l, i);
    else *found = false;
    unlock(head);
    return *found ? evict(l, l->owner[*frame]) : TR_OK;
}
