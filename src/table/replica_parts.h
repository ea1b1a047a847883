/* A local model from inside: see trireme/replica.h.
 *
 *   local_open      its memory and its file; when it is taken and given is decided in consistency/
 *   local_chunks    who holds a chunk, and bringing absent ones
 *   local_frames    which chunk makes room for another
 *   local_move      from and to the table, from and to the file
 *   local_access    reading and adding
 *
 * A chunk has a frame of memory while it is here: its own where there is one for each, else any. A worker holds one chunk
 * at a time and waits for no other while it does, so that workers never wait in a circle: where it takes a second one, to
 * make room or to bring several at once, it does so only if that one is free.
 */
#ifndef TR_TABLE_LOCAL_PARTS_H
#define TR_TABLE_LOCAL_PARTS_H

#include "table/replica.h"
#include "table/race.h"
#include "trireme/replica.h"

/* Of a lock: one holds it alone; below, how many hold it together. */
#define TR_LOCAL_ALONE 0x80000000u

/* A line of the cache, so that neighbours do not slow each other. */
struct tr_replica_chunk {
    _Atomic uint32_t lock;
    _Atomic uint32_t here;    /* in its frame */
    _Atomic uint32_t changed; /* since it was fetched or written */
    /* a later version than the table's lies in the file, and was the last before `changed` */
    uint32_t stored;
    uint32_t frame;
    uint32_t pad;
    _Atomic uint64_t stamp; /* lru: when it was visited last; fifo: brought */
    char rest[32];
};

/* What the workers of a node have in common. */
struct tr_replica_head {
    _Atomic uint32_t arrived, round; /* workers that wait for the others, and how often all have come */
    _Atomic int64_t clock;           /* of those who wait */
    _Atomic int failed;              /* status of the first failure … */
    char why[512];                   /* … and its text; "": not of ours */
    _Atomic uint32_t absent;         /* chunks */
    _Atomic uint32_t all_changed;    /* chunks may have been changed by those who do it for themselves */
    _Alignas(64) _Atomic uint64_t tick;
    _Alignas(64) _Atomic uint32_t choosing; /* lock of all that follows */
    uint32_t used;                          /* frames below have had a chunk */
    uint32_t heaped;                        /* frames that are in the heap */
    struct tr_rng random;
};

/* A rank's own, a cache line or two. */
struct tr_replica_line {
    _Alignas(64) tr_replica_counts counts;
};

struct tr_replica {
    struct tr_table *table;
    tr_context *tr;
    int model, race, replace;
    bool limited; /* fewer frames than chunks */
    bool taken, waiting;
    bool idle;      /* taken in a stage that has failed elsewhere: there is nothing in it */
    unsigned shift; /* key >> shift is its chunk */
    size_t chunks, frames;
    size_t key_bytes, frame_bytes;
    struct tr_node_memory memory;
    struct tr_replica_head *head;
    struct tr_replica_line *line; /* by rank of the node */
    struct tr_replica_chunk *chunk;
    char *value, *base; /* by frame: as it is now, and as it was fetched */
    /* limited: frames, the one to go first on top; by frame its stamp when it was put there, and its chunk */
    uint32_t *heap, *owner;
    uint64_t *heap_stamp;
    int file;           /* -1: none */
    const char *folder; /* … it is in */
    size_t spares;      /* frames that this rank has for itself, and two more … */
    char *spare;        /* … for what travels */
    uint32_t *list;     /* chunks that are in them */
};

static inline tr_replica_counts *tr_replica_own_counts(struct tr_replica *l)
{
    return &l->line[l->tr->node_rank].counts;
}

static inline tr_key tr_replica_first_key(const struct tr_replica *l, size_t chunk)
{
    return (tr_key)chunk << l->shift;
}

static inline size_t tr_replica_keys_of(const struct tr_replica *l, size_t chunk)
{
    return tr_min_size((size_t)1 << l->shift, l->table->keys - tr_replica_first_key(l, chunk));
}

static inline char *tr_replica_value(const struct tr_replica *l, size_t chunk)
{
    return l->value + l->chunk[chunk].frame * l->frame_bytes;
}

static inline char *tr_replica_base(const struct tr_replica *l, size_t chunk)
{
    return l->base + l->chunk[chunk].frame * l->frame_bytes;
}

/* What tr_replica_open() and tr_replica_close() do here: all ranks. */
int tr_replica_make(struct tr_table *table, struct tr_replica **local);
void tr_replica_free(struct tr_replica **local);

/* Lets the other workers of the node know if this one has failed, and how; returns the status. */
int tr_replica_note(struct tr_replica *l, int status);

/* What another worker has met: its status and text, or TR_OK. */
int tr_replica_failure(const struct tr_replica *l);

/* ---- chunks ---- */

/* Waits until the chunk is here and held as sync.race wants it. */
int tr_replica_hold(struct tr_replica *l, size_t chunk);

/* Brings some of those chunks at once that the keys need and that are absent. */
int tr_replica_bring_ahead(struct tr_replica *l, const tr_key *keys, size_t n);

static inline bool tr_replica_is_here(const struct tr_replica_chunk *chunk)
{
    return atomic_load_explicit(&chunk->here, memory_order_acquire);
}

static inline bool tr_replica_try_alone(struct tr_replica_chunk *chunk)
{
    uint32_t free = 0;
    return atomic_compare_exchange_strong_explicit(&chunk->lock, &free, TR_LOCAL_ALONE, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void tr_replica_end_alone(struct tr_replica_chunk *chunk)
{
    atomic_store_explicit(&chunk->lock, 0, memory_order_release);
}

static inline void tr_replica_let_go(struct tr_replica *l, struct tr_replica_chunk *chunk)
{
    if (l->race == TR_RACE_CHUNK) tr_replica_end_alone(chunk);
    else if (l->limited) atomic_fetch_sub_explicit(&chunk->lock, 1, memory_order_release);
}

/* The same as tr_replica_hold() where that is quick; the caller counts the hit. */
static inline bool tr_replica_hold_quickly(struct tr_replica *l, struct tr_replica_chunk *chunk)
{
    if (l->limited) return false;
    if (l->race != TR_RACE_CHUNK) return tr_replica_is_here(chunk);
    if (!tr_replica_try_alone(chunk)) return false;
    if (tr_replica_is_here(chunk)) return true;
    tr_replica_end_alone(chunk);
    return false;
}

/* Begins with no chunk here: worker `part` of `parts` for its part of them. */
void tr_replica_clear(struct tr_replica *l, int part, int parts);

/* ---- frames ---- */

/* A frame for a chunk; *found false where all are in use just now. Another chunk may have made room. */
int tr_replica_take_frame(struct tr_replica *l, uint32_t *frame, bool *found);

/* The chunk lies in its frame from now on, and may make room. */
void tr_replica_frame_filled(struct tr_replica *l, size_t chunk);

/* ---- moving ---- */

/* Fetches n chunks, or adds to them in the table. Values of the i-th lie i × frame_bytes behind the first's. */
int tr_replica_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n, char *into);
int tr_replica_put(struct tr_replica *l, const uint32_t *chunks, size_t n, char *delta);

/* The whole part of an integral model, and what has changed in a part of any. */
int tr_replica_fetch_part(struct tr_replica *l, int part, int parts);
int tr_replica_give_part(struct tr_replica *l, int part, int parts);

/* A chunk's base and value to and from the file. */
int tr_replica_write(struct tr_replica *l, size_t chunk, char *base, char *value);
int tr_replica_read_back(struct tr_replica *l, size_t chunk, char *base, char *value);

/* delta = value - base; false if that is all zeros. */
bool tr_replica_difference(enum tr_dtype dtype, size_t n, const void *value, const void *base, void *delta);

#endif
