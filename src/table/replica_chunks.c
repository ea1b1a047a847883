/* Who holds a chunk of a local model, and bringing those that are absent.
 *
 * With sync.race chunk, one worker at a time holds a chunk. Otherwise any number hold it together, as elements are
 * changed atomically or without regard; and where no chunk ever makes room for another, none needs to be held. */
#include "table/replica_parts.h"

#include <sched.h>
#include <string.h>

enum { AHEAD = 64 }; /* chunks brought at once */

/* ---- locks ---- */

static bool try_together(struct tr_replica_chunk *chunk)
{
    uint32_t held = atomic_load_explicit(&chunk->lock, memory_order_relaxed);
    return !(held & TR_LOCAL_ALONE) &&
           atomic_compare_exchange_strong_explicit(&chunk->lock, &held, held + 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* One that is here is held for some hundred cycles, unless the core of its holder was taken away, which then needs one to
 * go on; one that is being brought takes longer. */
static int wait_for(struct tr_replica *l, struct tr_replica_chunk *chunk,
                    bool (*try)(struct tr_replica_chunk *))
{
    enum { PATIENCE = 100 };
    struct tr_waiting waiting = tr_waiting_begin();
    for (int turn = 0; !try(chunk); turn++) {
        if (turn < PATIENCE) tr_race_pause();
        else if (tr_replica_is_here(chunk)) sched_yield();
        else
            TR_TRY(tr_waiting_turn(l->tr, &waiting, "another worker of the node to bring a chunk of table %s",
                                   l->table->name));
    }
    return TR_OK;
}

static int hold_alone(struct tr_replica *l, struct tr_replica_chunk *chunk)
{
    return tr_replica_try_alone(chunk) ? TR_OK : wait_for(l, chunk, tr_replica_try_alone);
}

/* ---- bringing ---- */

void tr_replica_clear(struct tr_replica *l, int part, int parts)
{
    size_t from = l->chunks * (size_t)part / (size_t)parts,
           to = l->chunks * ((size_t)part + 1) / (size_t)parts;
    for (size_t c = from; c < to; c++) {
        struct tr_replica_chunk *chunk = &l->chunk[c];
        atomic_store_explicit(&chunk->here, 0, memory_order_relaxed);
        atomic_store_explicit(&chunk->changed, 0, memory_order_relaxed);
        chunk->stored = 0;
        chunk->frame = l->limited ? 0 : (uint32_t)c;
    }
    if (part > 0) return;
    l->head->used = l->head->heaped = 0;
    atomic_store(&l->head->absent, (uint32_t)l->chunks);
    atomic_store(&l->head->all_changed, 0);
}

/* From the file; *n of the chunks in l->list are left, which lie only in the table. */
static int read_stored(struct tr_replica *l, size_t *n)
{
    size_t left = 0;
    for (size_t i = 0; i < *n; i++) {
        uint32_t c = l->list[i];
        if (l->chunk[c].stored)
            TR_TRY(tr_replica_read_back(l, c, tr_replica_base(l, c), tr_replica_value(l, c)));
        else l->list[left++] = c;
    }
    *n = left;
    return TR_OK;
}

static void spread(struct tr_replica *l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t c = l->list[i], bytes = tr_replica_keys_of(l, c) * l->key_bytes;
        memcpy(tr_replica_base(l, c), l->spare + i * l->frame_bytes, bytes);
        memcpy(tr_replica_value(l, c), l->spare + i * l->frame_bytes, bytes);
    }
}

static void note_here(struct tr_replica *l, size_t c)
{
    atomic_store_explicit(&l->chunk[c].here, 1, memory_order_release);
    atomic_fetch_sub_explicit(&l->head->absent, 1, memory_order_release);
    tr_replica_own_counts(l)->misses++;
    if (l->limited) tr_replica_frame_filled(l, c);
}

/* Chunks that have frames, and are held alone. */
static int bring(struct tr_replica *l, const uint32_t *chunks, size_t n)
{
    size_t far = n;
    memcpy(l->list, chunks, n * sizeof *chunks);
    TR_TRY(read_stored(l, &far));
    if (far > 0) TR_TRY(tr_replica_fetch(l, l->list, far, l->spare));
    spread(l, far);
    for (size_t i = 0; i < n; i++) note_here(l, chunks[i]);
    return TR_OK;
}

/* The chunk is held alone, and absent. */
static int bring_one(struct tr_replica *l, uint32_t chunk)
{
    if (l->limited) {
        struct tr_waiting waiting = tr_waiting_begin();
        bool found = false;
        for (;;) {
            TR_TRY(tr_replica_take_frame(l, &l->chunk[chunk].frame, &found));
            if (found) break;
            TR_TRY(tr_replica_failure(l)); /* one that cannot read its chunk back keeps the frame */
            TR_TRY(tr_waiting_turn(l->tr, &waiting, "memory for a chunk of table %s", l->table->name));
        }
    }
    return bring(l, &chunk, 1);
}

/* ---- holding ---- */

static void note_visit(struct tr_replica *l, struct tr_replica_chunk *chunk)
{
    tr_replica_own_counts(l)->hits++;
    if (l->limited && l->replace == TR_REPLACE_LRU)
        atomic_store_explicit(&chunk->stamp,
                              atomic_fetch_add_explicit(&l->head->tick, 1, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static int bring_or_let_go(struct tr_replica *l, size_t c)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    TR_TRY(hold_alone(l, chunk));
    if (tr_replica_is_here(chunk)) {
        note_visit(l, chunk);
        return TR_OK;
    }
    int status = bring_one(l, (uint32_t)c);
    if (status != TR_OK) tr_replica_end_alone(chunk);
    return status;
}

int tr_replica_hold(struct tr_replica *l, size_t c)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    if (l->race == TR_RACE_CHUNK) return bring_or_let_go(l, c);
    bool held = l->limited;
    if (held && !try_together(chunk)) TR_TRY(wait_for(l, chunk, try_together));
    if (tr_replica_is_here(chunk)) {
        note_visit(l, chunk);
        return TR_OK;
    }
    if (held) atomic_fetch_sub_explicit(&chunk->lock, 1, memory_order_relaxed);
    TR_TRY(bring_or_let_go(l, c));
    atomic_store_explicit(&chunk->lock, held, memory_order_release);
    return TR_OK;
}

/* ---- ahead ---- */

/* Takes a chunk into the list if it is absent, free, and has a frame. */
static int list_absent(struct tr_replica *l, size_t c, uint32_t *list, size_t *n)
{
    struct tr_replica_chunk *chunk = &l->chunk[c];
    if (tr_replica_is_here(chunk) || !tr_replica_try_alone(chunk)) return TR_OK;
    bool found = true;
    int status = TR_OK;
    if (tr_replica_is_here(chunk)) found = false;
    else if (l->limited) status = tr_replica_take_frame(l, &chunk->frame, &found);
    if (status == TR_OK && found) list[(*n)++] = (uint32_t)c;
    else tr_replica_end_alone(chunk);
    return status;
}

int tr_replica_bring_ahead(struct tr_replica *l, const tr_key *keys, size_t n)
{
    uint32_t list[AHEAD];
    size_t some = 0, before = SIZE_MAX, most = tr_min_size(AHEAD, l->spares);
    if (l->limited) most = tr_min_size(most, l->frames / (2 * (size_t)l->tr->node_size));
    if (most < 2 || atomic_load_explicit(&l->head->absent, memory_order_relaxed) == 0) return TR_OK;
    int status = TR_OK;
    for (size_t i = 0; i < n && some < most && status == TR_OK; i++) {
        size_t c = (size_t)(keys[i] >> l->shift);
        if (c == before || c >= l->chunks) continue;
        before = c;
        status = list_absent(l, c, list, &some);
    }
    if (status == TR_OK && some > 0) status = bring(l, list, some);
    tr_replica_own_counts(l)->hits -= status == TR_OK ? some : 0; /* that are still to be visited */
    for (size_t i = 0; i < some; i++) tr_replica_end_alone(&l->chunk[list[i]]);
    return status;
}
