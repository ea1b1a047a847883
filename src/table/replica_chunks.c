/* Locks of chunks, loading of absent chunks, and eviction.
 *
 * In mode locked, one worker at a time holds a chunk. In the other modes any number of workers hold it together, because they
 * change numbers atomically or accept races. If all chunks fit into memory, none is evicted, and none needs to be held.
 *
 * Frames lie in a heap ordered by the stamps that their chunks had when they were inspected last. A visit only writes the
 * chunk's stamp. Eviction inspects the top: if the chunk has a newer stamp, the frame sinks. Stamps only grow, so the frame
 * that stays on top has the least stamp: exactly the chunk that was visited (lru) or loaded (fifo) the longest time ago. */
#include <sched.h>
#include <string.h>

#include "job/job.h"
#include "table/replica.h"

enum { AHEAD = 64 }; /* maximum number of chunks fetched together */

/* ---- locks ---- */

typedef bool try_fn(struct tr_replica_chunk *chunk);

static bool chunk_try_alone(struct tr_replica_chunk *chunk)
{
    uint32_t free = 0;
    return atomic_compare_exchange_strong_explicit(&chunk->lock, &free, TR_LOCKED_ALONE, memory_order_acquire,
                                                   memory_order_relaxed);
}

static bool chunk_try_together(struct tr_replica_chunk *chunk)
{
    uint32_t held = atomic_load_explicit(&chunk->lock, memory_order_relaxed);
    return !(held & TR_LOCKED_ALONE) &&
           atomic_compare_exchange_strong_explicit(&chunk->lock, &held, held + 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void chunk_end_alone(struct tr_replica_chunk *chunk)
{
    atomic_store_explicit(&chunk->lock, 0, memory_order_release);
}

/* Waits for a chunk. A chunk in memory is held for some hundred cycles, unless its holder has lost its core; a chunk that is being
 * fetched takes longer. */
static int chunk_wait(struct tr_replica *l, struct tr_replica_chunk *chunk, try_fn *try)
{
    enum { PATIENCE = 100 };
    struct tr_waiting waiting = tr_waiting_begin();
    for (int turn = 0; !try(chunk); turn++) {
        if (turn < PATIENCE) continue;
        if (tr_replica_is_here(chunk)) sched_yield();
        else
            TR_TRY(tr_waiting_turn(l->tr, &waiting, "another worker of the node to bring a chunk of table %s",
                                   l->table->name));
    }
    return TR_OK;
}

/* ---- the heap of frames ---- */

static void heap_lock(struct tr_replica_head *head)
{
    while (atomic_exchange_explicit(&head->choosing, 1, memory_order_acquire)) sched_yield();
}

static void heap_unlock(struct tr_replica_head *head)
{
    atomic_store_explicit(&head->choosing, 0, memory_order_release);
}

static uint64_t heap_next_tick(struct tr_replica_head *head)
{
    return atomic_fetch_add_explicit(&head->tick, 1, memory_order_relaxed) + 1;
}

static bool heap_goes_before(const struct tr_replica *l, uint32_t i, uint32_t j)
{
    return l->heap_stamp[l->heap[i]] < l->heap_stamp[l->heap[j]];
}

static void heap_swap(struct tr_replica *l, uint32_t i, uint32_t j)
{
    uint32_t frame = l->heap[i];
    l->heap[i] = l->heap[j];
    l->heap[j] = frame;
}

static void heap_rise(struct tr_replica *l, uint32_t i)
{
    for (; i > 0 && heap_goes_before(l, i, (i - 1) / 2); i = (i - 1) / 2) heap_swap(l, i, (i - 1) / 2);
}

static void heap_sink(struct tr_replica *l, uint32_t i)
{
    for (uint32_t n = l->head->heaped, child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap_goes_before(l, child + 1, child)) child++;
        if (!heap_goes_before(l, child, i)) return;
        heap_swap(l, i, child);
    }
}

static void heap_restamp(struct tr_replica *l, uint32_t i, uint64_t stamp)
{
    l->heap_stamp[l->heap[i]] = stamp;
    heap_sink(l, i);
}

/* The index in the heap of a frame whose chunk can be evicted and is held exclusively then; UINT32_MAX: none. A chunk that others
 * hold gets a new stamp, since it is in use. */
static uint32_t heap_choose(struct tr_replica *l)
{
    for (uint32_t tries = 0, n = l->head->heaped; tries < n;) {
        uint32_t i = l->replace == TR_REPLACE_RANDOM ? (uint32_t)tr_rng_below(&l->head->random, n) : 0;
        struct tr_replica_chunk *chunk = &l->chunk[l->owner[l->heap[i]]];
        uint64_t stamp = atomic_load_explicit(&chunk->stamp, memory_order_relaxed);
        if (l->replace == TR_REPLACE_LRU && stamp > l->heap_stamp[l->heap[i]]) {
            heap_restamp(l, i, stamp);
            continue;
        }
        if (chunk_try_alone(chunk)) return i;
        heap_restamp(l, i, heap_next_tick(l->head));
        tries++;
    }
    return UINT32_MAX;
}

/* The chunk lies in its frame from now on, and can be evicted. */
static void frame_fill(struct tr_replica *l, size_t c)
{
    struct tr_replica_head *head = l->head;
    struct tr_replica_chunk *chunk = &l->chunk[c];
    uint64_t stamp = heap_next_tick(head);
    atomic_store_explicit(&chunk->stamp, stamp, memory_order_relaxed);
    heap_lock(head);
    l->owner[chunk->frame] = (uint32_t)c;
    l->heap_stamp[chunk->frame] = stamp;
    l->heap[head->heaped] = chunk->frame;
    heap_rise(l, head->heaped++);
    heap_unlock(head);
}

/* A chunk that cannot be written stays in its frame: other workers may wait for it. */
static int chunk_evict(struct tr_replica *l, uint32_t c)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    bool changed = atomic_load_explicit(&chunk->changed, memory_order_relaxed);
    int status = changed ? tr_replica_transfer(l, true, c) : TR_OK;
    if (status == TR_OK) {
        if (changed) atomic_store(&chunk->stored, 1); /* before it counts as unchanged */
        atomic_store(&chunk->changed, 0);
        atomic_store_explicit(&chunk->here, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&l->head->absent, 1, memory_order_relaxed);
        tr_replica_own_counts(l)->evicted++;
    } else {
        frame_fill(l, c);
    }
    chunk_end_alone(chunk);
    return status;
}

/* Finds a frame for a chunk, and evicts another one if necessary; *found = false: all frames are in use now. */
static int frame_take(struct tr_replica *l, uint32_t *frame, bool *found)
{
    struct tr_replica_head *head = l->head;
    uint32_t i = UINT32_MAX;
    *found = true;
    heap_lock(head);
    bool is_new = head->used < l->frames;
    if (is_new) *frame = head->used++;
    else i = heap_choose(l);
    if (i != UINT32_MAX) {
        *frame = l->heap[i];
        l->heap[i] = l->heap[--head->heaped];
        if (i < head->heaped) {
            heap_rise(l, i);
            heap_sink(l, i);
        }
    }
    heap_unlock(head);
    if (is_new) return TR_OK;
    *found = i != UINT32_MAX;
    return *found ? chunk_evict(l, l->owner[*frame]) : TR_OK;
}

/* ---- loading ---- */

void tr_replica_clear(struct tr_replica *l, int part, int parts, bool here)
{
    for (size_t c = tr_replica_part(l, part, parts), to = tr_replica_part(l, part + 1, parts); c < to; c++) {
        struct tr_replica_chunk *chunk = &l->chunk[c];
        atomic_store_explicit(&chunk->here, here, memory_order_relaxed);
        atomic_store_explicit(&chunk->changed, 0, memory_order_relaxed);
        atomic_store_explicit(&chunk->stored, 0, memory_order_relaxed);
        chunk->frame = l->limited ? 0 : (uint32_t)c;
    }
    if (part > 0) return;
    l->head->used = l->head->heaped = 0;
    atomic_store(&l->head->absent, here ? 0 : (uint32_t)l->chunks);
    atomic_store(&l->head->all_changed, here);
}

/* Loads chunks that have frames and are held exclusively: from the file, or else from the tables. */
static int chunks_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n)
{
    uint32_t list[AHEAD];
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (atomic_load(&l->chunk[chunks[i]].stored)) TR_TRY(tr_replica_transfer(l, false, chunks[i]));
        else list[left++] = chunks[i];
    }
    if (left > 0) TR_TRY(tr_replica_fetch(l, list, left, UINT32_MAX));
    for (size_t i = 0; i < n; i++) {
        atomic_store_explicit(&l->chunk[chunks[i]].here, 1, memory_order_release);
        atomic_fetch_sub_explicit(&l->head->absent, 1, memory_order_release);
        tr_replica_own_counts(l)->misses++;
        if (l->limited) frame_fill(l, chunks[i]);
    }
    return TR_OK;
}

/* Loads an absent chunk that is held exclusively. */
static int chunk_fetch(struct tr_replica *l, uint32_t chunk)
{
    struct tr_waiting waiting = tr_waiting_begin();
    for (bool found = !l->limited; !found;) {
        TR_TRY(frame_take(l, &l->chunk[chunk].frame, &found));
        if (found) break;
        TR_TRY(tr_replica_failure(l)); /* a worker that cannot read its chunk back keeps the frame */
        TR_TRY(tr_waiting_turn(l->tr, &waiting, "memory for a chunk of table %s", l->table->name));
    }
    return chunks_fetch(l, &chunk, 1);
}

/* ---- holding ---- */

static void chunk_note_visit(struct tr_replica *l, struct tr_replica_chunk *chunk)
{
    tr_replica_own_counts(l)->hits++;
    if (l->limited && l->replace == TR_REPLACE_LRU)
        atomic_store_explicit(&chunk->stamp, heap_next_tick(l->head), memory_order_relaxed);
}

static int chunk_get_alone(struct tr_replica *l, size_t c)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    if (!chunk_try_alone(chunk)) TR_TRY(chunk_wait(l, chunk, chunk_try_alone));
    if (tr_replica_is_here(chunk)) return chunk_note_visit(l, chunk), TR_OK;
    int status = chunk_fetch(l, (uint32_t)c);
    if (status != TR_OK) chunk_end_alone(chunk);
    return status;
}

int tr_replica_get(struct tr_replica *l, size_t c)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    if (l->mode == TR_UPDATE_LOCKED) return chunk_get_alone(l, c);
    if (l->limited && !chunk_try_together(chunk)) TR_TRY(chunk_wait(l, chunk, chunk_try_together));
    if (tr_replica_is_here(chunk)) return chunk_note_visit(l, chunk), TR_OK;
    if (l->limited) atomic_fetch_sub_explicit(&chunk->lock, 1, memory_order_relaxed);
    TR_TRY(chunk_get_alone(l, c));
    atomic_store_explicit(&chunk->lock, l->limited, memory_order_release);
    return TR_OK;
}

void tr_replica_let_go(struct tr_replica *l, size_t c)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    if (l->mode == TR_UPDATE_LOCKED) chunk_end_alone(chunk);
    else if (l->limited) atomic_fetch_sub_explicit(&chunk->lock, 1, memory_order_release);
}

/* Appends a chunk to the list if it is absent and free, and a frame is found for it. */
static int chunks_list_absent(struct tr_replica *l, size_t c, uint32_t *list, size_t *n)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    if (tr_replica_is_here(chunk) || !chunk_try_alone(chunk)) return TR_OK;
    bool found = !tr_replica_is_here(chunk);
    int status = found && l->limited ? frame_take(l, &chunk->frame, &found) : TR_OK;
    if (status == TR_OK && found) list[(*n)++] = (uint32_t)c;
    else chunk_end_alone(chunk);
    return status;
}

int tr_replica_bring_ahead(struct tr_replica *l, const tr_key *keys, size_t n)
{
    uint32_t list[AHEAD];
    size_t some = 0, before = SIZE_MAX, most = tr_min_size(AHEAD, l->batch);
    if (l->limited) most = tr_min_size(most, l->frames / (2 * (size_t)l->tr->node_size));
    if (((uint64_t)l->frames << l->shift) * l->table->pieces > UINT32_MAX) return TR_OK;
    if (most < 2 || atomic_load_explicit(&l->head->absent, memory_order_relaxed) == 0) return TR_OK;
    int status = TR_OK;
    for (size_t i = 0; i < n && some < most && status == TR_OK; i++) {
        size_t c = (size_t)(keys[i] >> l->shift);
        if (c == before || c >= l->chunks) continue;
        before = c;
        status = chunks_list_absent(l, c, list, &some);
    }
    if (status == TR_OK && some > 0) status = chunks_fetch(l, list, some);
    tr_replica_own_counts(l)->hits -= status == TR_OK ? some : 0; /* the visits come later */
    for (size_t i = 0; i < some; i++) chunk_end_alone(&l->chunk[list[i]]);
    return status;
}
