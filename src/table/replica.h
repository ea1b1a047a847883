/* Replicas from inside: see trireme/replica.h.
 *
 *   replica         memory and file; reading and adding; transfers from and to the tables, and from other nodes
 *   replica_chunks  locks of chunks, loading of absent chunks, and eviction
 *
 * A chunk has a frame while it is in memory: a part of every array. Where all fit, frame and chunk have one number, and
 * arrays are contiguous. A worker that holds a chunk never waits for another one, so there is no deadlock: it takes a second
 * chunk, to free a frame or to fetch several chunks together, only if that one is free.
 */
#ifndef TR_TABLE_REPLICA_H
#define TR_TABLE_REPLICA_H

#include "ranks/ranks.h"
#include "table/table.h"
#include "trireme/replica.h"

/* Bit of a lock: held exclusively; the lower bits count the shared holders. */
#define TR_LOCKED_ALONE 0x80000000u

/* One cache line, so that neighbours do not share one. */
struct tr_replica_chunk {
    _Atomic uint32_t lock;
    _Atomic uint32_t here;    /* in its frame */
    _Atomic uint32_t changed; /* since it was fetched or written to the file */
    _Atomic uint32_t stored;  /* the file has a later version than the tables */
    uint32_t frame;
    uint32_t pad;
    _Atomic uint64_t stamp; /* lru: tick of the last visit; fifo: of its loading */
    char rest[32];
};

/* State shared by the workers of a node. */
struct tr_replica_head {
    _Atomic uint32_t arrived, round; /* barrier: workers that wait, and number of completed barriers */
    _Atomic int64_t clock;           /* of the workers that wait */
    _Atomic uint32_t noted;          /* a worker writes, or has written, `why` */
    char why[512];                   /* text of the first failure; "": outside of the replica */
    _Atomic int failed;              /* its status, which others test first */
    _Atomic uint32_t absent;         /* chunks */
    _Atomic uint32_t all_changed;    /* any chunk may have been changed without setting its `changed` */
    _Alignas(64) _Atomic uint64_t tick;
    _Alignas(64) _Atomic uint32_t choosing; /* lock of the following members */
    uint32_t used;                          /* frames below have had a chunk */
    uint32_t heaped;                        /* frames that are in the heap */
    struct tr_rng random;
};

/* Of one rank, in cache lines of its own. */
struct tr_replica_line {
    _Alignas(64) tr_replica_counts counts;
};

struct tr_replica_column {
    struct tr_table *table; /* NULL: the workers' own */
    bool given;
    size_t key_bytes, chunk_bytes;
    char *values; /* by frame */
};

struct tr_replica {
    tr_context *tr;
    struct tr_table *table; /* of the first array */
    struct tr_replica_column column[TR_REPLICA_ARRAYS];
    size_t columns;
    void *state;
    tr_replica_fn *fetched, *finish;
    int model, replace; /* TR_LOCAL_INTEGRAL or TR_LOCAL_DEMAND; TR_REPLACE_LRU, FIFO or RANDOM */
    enum tr_update_mode mode;
    bool limited; /* fewer frames than chunks */
    bool taken, waiting;
    bool idle;      /* taken in a stage that has failed elsewhere: it has no values */
    bool astray;    /* a chunk could not be loaded: this rank works on the spare frame */
    unsigned shift; /* key >> shift is its chunk */
    size_t chunks, frames;
    size_t frame_bytes; /* in all arrays */
    struct tr_shm memory;
    size_t moves;   /* number of arrays that other nodes may read */
    MPI_Win window; /* over the memory of all nodes; MPI_WIN_NULL: moves = 0 or one node */
    int *first_of;  /* by node: the rank whose window has its memory */
    struct tr_replica_head *head;
    struct tr_replica_line *line; /* by rank of the node */
    struct tr_replica_chunk *chunk;
    char *shared;
    /* limited: a heap of frames, the next one to be evicted on top; by frame: its stamp in the heap, and its chunk */
    uint32_t *heap, *owner;
    uint64_t *heap_stamp;
    int file;           /* of chunks that are not in memory; -1: none */
    const char *folder; /* of the file */
    size_t batch;       /* maximum number of chunks in one transfer */
    uint32_t *list;     /* chunks of a transfer */
    uint32_t *chosen;   /* chunks of a transfer of one array */
    uint32_t *slot;     /* their slots in a buffer or an array */
    uint32_t *given_to; /* by chunk of the transfer: bit i: array i has changed */
    char *spare;        /* by given array: the changes of the chunks of a transfer */
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

/* Position of a chunk's first key in every array. */
static inline size_t tr_replica_place(const struct tr_replica *l, size_t chunk)
{
    return (size_t)l->chunk[chunk].frame << l->shift;
}

static inline size_t tr_replica_part(const struct tr_replica *l, int part, int parts)
{
    return l->chunks * (size_t)part / (size_t)parts;
}

/* The failure of another worker: its status and text, or TR_OK. */
int tr_replica_failure(const struct tr_replica *l);

/* Reads or writes a chunk in the file, in or from its frame. */
int tr_replica_transfer(struct tr_replica *l, bool writes, size_t chunk);

/* ---- chunks ---- */

static inline bool tr_replica_is_here(const struct tr_replica_chunk *chunk)
{
    return atomic_load_explicit(&chunk->here, memory_order_acquire);
}

/* Starts with all chunks in memory, or none: worker `part` of `parts` sets its part of them. */
void tr_replica_clear(struct tr_replica *l, int part, int parts, bool here);

/* Waits until the chunk is in memory and holds it as the mode demands; releases it. */
int tr_replica_get(struct tr_replica *l, size_t chunk);
void tr_replica_let_go(struct tr_replica *l, size_t chunk);

/* Fetches some absent chunks of the keys together. */
int tr_replica_bring_ahead(struct tr_replica *l, const tr_key *keys, size_t n);

/* Fetches n chunks, which have frames, from the tables of the arrays in the set `arrays` (a bit each). */
int tr_replica_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n, unsigned arrays);

#endif
