/* Replicas (trireme/replica.h): memory and file, chunks, transfers from and to the tables, and workers that share a replica.
 *
 * A chunk is a range of keys. While it is in memory it has a frame: the memory for the values of one chunk in every array. If
 * memory suffices for all chunks, frame and chunk have the same number, and arrays are contiguous. To hold a chunk is to have its
 * lock. A worker that holds a chunk never waits for another chunk, so there is no deadlock. It holds a second chunk, in order to
 * free a frame or to fetch several chunks together, only if the lock is free. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "table/sync.h"
#include "table/view.h"
#include "trireme/collective.h"
#include "trireme/replica.h"

enum {
    USUAL_CHUNK = 1024,      /* keys per chunk if there is no job */
    LARGEST_CHUNK = 1 << 27, /* maximum bytes of a chunk that has several keys */
    AT_ONCE = 1 << 22,       /* bytes per transfer, enough to hide the latency */
    AHEAD = 64               /* maximum number of chunks that an access fetches together */
};

/* Bit of chunk.lock: one worker holds the chunk exclusively. The lower bits are the number of workers that hold the chunk
 * together. */
#define LOCKED_ALONE 0x80000000u

/* State of a chunk, in a cache line of its own. */
struct chunk {
    _Atomic uint32_t lock;
    _Atomic uint32_t here;    /* 1: the chunk is in memory, in its frame; 0: it is absent */
    _Atomic uint32_t changed; /* 1: the chunk was changed since it was fetched or written to the file */
    _Atomic uint32_t stored;  /* 1: the file has the chunk, with changes that the tables lack */
    uint32_t frame;
    uint32_t pad;
    _Atomic uint64_t stamp; /* lru: head->tick at the last access; fifo: at the loading */
    char rest[32];
};
_Static_assert(sizeof(struct chunk) == TR_LOCK_STRIDE * sizeof(uint32_t), "a lock for each chunk");

/* State shared by the workers of a node. */
struct replica_head {
    _Atomic uint32_t arrived, round;    /* barrier: waiting workers; number of completed barriers */
    _Atomic int64_t clock;              /* clock of the workers that wait at the barrier */
    _Atomic uint32_t noted;             /* 1: a worker writes, or has written, `why` */
    char why[512];                      /* error text of the first failure; "": outside of the replica */
    _Atomic int failed;                 /* status of the first failure; set after `why` was written */
    _Atomic uint32_t absent;            /* number of chunks that are not in memory */
    _Atomic uint32_t all_changed;       /* 1: chunks may have been changed without setting their `changed` */
    _Alignas(64) _Atomic uint64_t tick; /* number of stamps (chunk.stamp) that were given so far */
    _Alignas(64) atomic_uint choosing;  /* lock of the following members and of the heap */
    uint32_t used;                      /* number of frames that have had a chunk: frames 0 .. used - 1 */
    uint32_t heaped;                    /* number of frames in the heap */
    struct tr_rng random;
};

/* Counts of one rank, in cache lines of their own. */
struct replica_line {
    _Alignas(64) tr_replica_counts counts;
};

struct replica_column {
    struct tr_table *table; /* NULL: an array without table, which starts with zeros */
    bool given;             /* tr_replica_give() adds changes of this array to its table */
    size_t key_bytes, chunk_bytes;
    char *values; /* values of the chunk in frame 0, then in frame 1 and so on */
};

struct tr_replica {
    tr_context *tr;
    struct tr_table *table; /* table of the first array */
    struct replica_column column[TR_REPLICA_ARRAYS];
    size_t columns;
    void *state;
    tr_replica_fn *fetched, *finish;
    int model, replace; /* TR_LOCAL_INTEGRAL or TR_LOCAL_DEMAND; TR_REPLACE_LRU, FIFO or RANDOM */
    enum tr_update_mode mode;
    bool limited;   /* there are fewer frames than chunks */
    bool taken;     /* tr_replica_take() was called, but not yet tr_replica_give() or tr_replica_leave() */
    bool waiting;   /* this rank waits at the barrier */
    bool idle;      /* taken after another worker has failed: reads return zeros, changes are dropped */
    bool astray;    /* after a failed load, this rank works on a spare frame, whose values are ignored */
    unsigned shift; /* key k is in chunk k >> shift */
    size_t chunks, frames;
    size_t frame_bytes; /* sum of chunk_bytes of all arrays */
    struct tr_shm memory;
    size_t moves;   /* number of arrays, from the first on, that other nodes can read */
    MPI_Win window; /* RMA window over the memory of all nodes; MPI_WIN_NULL if moves == 0 or with one node */
    int *first_of;  /* first_of[node]: the rank that offers the memory of that node in the window */
    struct replica_head *head;
    struct replica_line *line; /* counts of each rank of the node */
    struct chunk *chunk;
    char *shared; /* memory that tr_replica_shared() returns to the model */
    /* The following members are used only if `limited` is set. */
    uint32_t *heap;       /* heap of frames; heap[0] is the frame whose chunk is evicted next */
    uint32_t *owner;      /* owner[f]: the chunk in frame f */
    uint64_t *heap_stamp; /* heap_stamp[f]: stamp by which frame f is ordered in the heap */
    int file;             /* descriptor of the file of chunks that are not in memory; -1: there is no file */
    const char *folder;   /* folder of the file */
    size_t batch;         /* maximum number of chunks in one transfer */
    uint32_t *list;       /* chunks of a transfer; in one allocation with the next three */
    uint32_t *chosen;     /* those chunks of the list that are transferred for one array */
    uint32_t *slot;       /* slot[i]: index of the values of chunk i of a transfer */
    uint32_t *given_to;   /* given_to[k]: bit i is set if array i of chunk list[k] has changed */
    char *spare;          /* for each given array and chunk of the list: table's values, then changes */
};

static tr_replica_counts *replica_own_counts(struct tr_replica *l)
{
    return &l->line[l->tr->node_rank].counts;
}

static tr_key chunk_first_key(const struct tr_replica *l, size_t chunk)
{
    return (tr_key)chunk << l->shift;
}

static size_t chunk_keys(const struct tr_replica *l, size_t chunk)
{
    return tr_min_size((size_t)1 << l->shift, l->table->keys - chunk_first_key(l, chunk));
}

/* Returns the index of a chunk's first key in every array. */
static size_t chunk_place(const struct tr_replica *l, size_t chunk)
{
    return (size_t)l->chunk[chunk].frame << l->shift;
}

/* Returns the first chunk of part `part`, when all chunks are divided into `parts` parts, one for each worker. */
static size_t replica_part(const struct tr_replica *l, int part, int parts)
{
    return l->chunks * (size_t)part / (size_t)parts;
}

static bool chunk_is_here(const struct chunk *chunk)
{
    return atomic_load_explicit(&chunk->here, memory_order_acquire);
}

/* ---- failures ---- */

/* Reports a failure of this worker to the other workers of the node. Returns the status, which may be TR_OK. */
static int replica_note(struct tr_replica *l, int status)
{
    int none = TR_OK;
    if (status == TR_OK || atomic_load(&l->head->failed) != TR_OK) return status;
    if (atomic_exchange(&l->head->noted, 1)) return status; /* another worker was first */
    snprintf(l->head->why, sizeof l->head->why, "%s", tr_error_text());
    atomic_compare_exchange_strong(&l->head->failed, &none, status);
    return status;
}

/* Returns the failure that a worker has reported, with its text, or TR_OK. */
static int replica_failure(const struct tr_replica *l)
{
    int status = atomic_load(&l->head->failed);
    if (status == TR_OK) return TR_OK;
    if (*l->head->why) return tr_fail(status, "%s", l->head->why);
    return tr_fail(status, "table %s: another worker has failed while its local model was used",
                   l->table->name);
}

/* ======== transfers ======== */

/* Copies a chunk from its frame to the file (writes) or back. */
static int chunk_transfer(struct tr_replica *l, bool writes, size_t chunk)
{
    size_t offset = chunk * l->frame_bytes, keys = chunk_keys(l, chunk), all = 0;
    for (size_t i = 0; i < l->columns; i++) {
        const struct replica_column *c = &l->column[i];
        char *at = c->values + l->chunk[chunk].frame * c->chunk_bytes;
        for (size_t done = 0, bytes = keys * c->key_bytes; done < bytes;) {
            ssize_t n = writes ? pwrite(l->file, at + done, bytes - done, (off_t)(offset + done))
                               : pread(l->file, at + done, bytes - done, (off_t)(offset + done));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0)
                return tr_fail(TR_ERR_IO,
                               "%s: a chunk of %zu bytes of the local model of table %s cannot be %s: %s",
                               l->folder, l->frame_bytes, l->table->name, writes ? "written" : "read back",
                               n < 0 ? strerror(errno) : "the file is too short");
            done += (size_t)n;
        }
        offset += c->chunk_bytes;
        all += keys * c->key_bytes;
    }
    tr_replica_counts *counts = replica_own_counts(l);
    if (writes) counts->written++, counts->bytes_written += all;
    else counts->read_back++;
    return TR_OK;
}

/* A transfer of chunks of one array, which are read from its table or added to it. */
struct move {
    struct tr_table *table;
    const uint32_t *chunks, *slots; /* values of chunks[i] begin slots[i] chunks behind `values` */
    size_t n;
    char *values;
    uint64_t bytes;             /* size of the values */
    struct tr_segment *segment; /* segment[s]: the units of the chunks at server s, as runs */
    struct tr_channel *channel; /* channel[s]: access to server s */
};

/* Lists the units of the chunks by server, as runs: turn 0 counts the runs, turn 1 lists them. If rows consist of pieces, each unit
 * is a run, because units that are contiguous in the share are not contiguous in memory. */
static int move_open(const struct tr_replica *l, struct move *m)
{
    struct tr_table *t = m->table;
    const uint32_t servers = t->partition.servers;
    TR_TRY(TR_NEW(&m->segment, servers));
    TR_TRY(TR_NEW(&m->channel, servers));
    for (int turn = 0; turn < 2; turn++) {
        struct tr_walker walker = {.partition = &t->partition};
        for (size_t i = 0; i < m->n * t->pieces; i++) {
            uint32_t chunk = m->chunks[i / t->pieces], piece = (uint32_t)(i % t->pieces);
            size_t keys = chunk_keys(l, chunk), first = (size_t)m->slots[i / t->pieces] << l->shift;
            for (size_t key = 0, length; key < keys; key += length) {
                uint64_t unit = piece * t->keys + chunk_first_key(l, chunk) + key;
                struct tr_location at = tr_walk_to(&walker, unit);
                struct tr_segment *s = &m->segment[at.server];
                length = t->pieces > 1 ? 1 : tr_min_size(walker.end - unit, keys - key);
                uint32_t local = (uint32_t)((first + key) * t->pieces + piece);
                if (turn == 1) s->run[s->runs] = (struct tr_run){local, at.position, (uint32_t)length};
                s->runs++;
                s->n += (uint32_t)length;
            }
            if (turn == 1 && piece == 0) m->bytes += keys * t->pieces * t->unit_bytes;
        }
        for (uint32_t server = 0; server < servers && turn == 0; server++) {
            TR_TRY(TR_NEW(&m->segment[server].run, m->segment[server].runs));
            m->segment[server].runs = m->segment[server].n = 0;
        }
    }
    for (uint32_t server = 0; server < servers; server++) {
        struct tr_channel *c = &m->channel[server];
        *c = tr_channel_of(t, server, &m->segment[server], 0);
        c->route = t->share[server] ? TR_ROUTE_LOAD : TR_ROUTE_GET;
        c->way = t->share[server] ? TR_WAY_ADD : TR_WAY_ACCUMULATE;
    }
    return TR_OK;
}

static void move_close(struct move *m)
{
    for (uint32_t s = 0; m->channel && s < m->table->partition.servers; s++) {
        if (m->channel[s].table) tr_channel_close(&m->channel[s]);
        free(m->segment[s].run);
    }
    TR_FREE_ALL(m->segment, m->channel);
}

/* Reads the chunks from the table, or adds them to it. Adds the number of bytes to *bytes. No other rank changes these keys
 * meanwhile, so direct adding does not conflict with accumulates of other nodes. */
static int replica_move(struct tr_replica *l, struct move m, bool adds, uint64_t *bytes)
{
    struct move move TR_CLOSED_BY(move_close) = m;
    struct tr_table *t = m.table;
    struct tr_traffic *traffic = &t->tr->tables->traffic;
    const uint32_t servers = t->partition.servers;
    traffic->pushes += adds;
    traffic->pulls += !adds;
    TR_TRY(move_open(l, &move));
    *bytes += move.bytes;
    for (uint32_t s = 0; s < servers; s++)
        TR_TRY(adds ? tr_channel_push(&move.channel[s], m.values, NULL, 0)
                    : tr_channel_read(&move.channel[s], m.values, -1));
    for (uint32_t s = 0; s < servers; s++) {
        struct tr_channel *c = &move.channel[s];
        TR_WAIT_UNTIL(t->tr, tr_request_done(&c->get) && tr_request_done(&c->accumulate),
                      "the servers of table %s to move a local model", t->name);
        /* a completed request means only that the values were sent: waits until they have arrived */
        if (adds && !t->share[s] && c->segment->n > 0) MPI_Win_flush(c->rank, t->window);
    }
    return TR_OK;
}

/* Fetches n chunks, which must have frames, from the tables. arrays: bit i is set if array i is fetched. */
static int replica_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n, unsigned arrays)
{
    uint32_t first = UINT32_MAX; /* the lowest frame of these chunks */
    for (size_t i = 0; i < n; i++)
        if (l->chunk[chunks[i]].frame < first) first = l->chunk[chunks[i]].frame;
    for (size_t i = 0; i < n; i++) l->slot[i] = l->chunk[chunks[i]].frame - first;
    for (size_t i = 0; i < l->columns; i++) {
        const struct replica_column *c = &l->column[i];
        struct move m = {.table = c->table,
                         .chunks = chunks,
                         .slots = l->slot,
                         .n = n,
                         .values = c->values + first * c->chunk_bytes};
        if (!(arrays >> i & 1)) continue;
        for (size_t k = 0; k < n && !c->table; k++)
            memset(m.values + l->slot[k] * c->chunk_bytes, 0, c->chunk_bytes);
        if (!c->table) continue;
        TR_TRY(replica_move(l, m, false, &replica_own_counts(l)->bytes_fetched));
    }
    for (size_t k = 0; k < n && l->fetched && arrays == UINT32_MAX; k++)
        l->fetched(l->state, chunk_first_key(l, chunks[k]), chunk_keys(l, chunks[k]),
                   chunk_place(l, chunks[k]));
    replica_own_counts(l)->fetched += n;
    return TR_OK;
}

static int replica_fetch_part(struct tr_replica *l, int part, int parts, unsigned arrays)
{
    size_t to = replica_part(l, part + 1, parts);
    for (size_t c = replica_part(l, part, parts), n; c < to; c += n) {
        n = tr_min_size(l->batch, to - c);
        for (size_t i = 0; i < n; i++) l->list[i] = (uint32_t)(c + i);
        TR_TRY(replica_fetch(l, l->list, n, arrays));
        for (size_t i = 0; i < n && arrays == UINT32_MAX; i++) {
            atomic_store_explicit(&l->chunk[c + i].here, 1, memory_order_relaxed);
            atomic_fetch_sub(&l->head->absent, 1);
        }
    }
    return TR_OK;
}

/* Copies a part of the arrays from another node by RMA, without help of that node. The layout of arrays is equal on all nodes. */
static int replica_fetch_from(struct tr_replica *l, int node, int part, int parts)
{
    enum { PIECE = 1 << 24 };
    size_t first = replica_part(l, part, parts), end = replica_part(l, part + 1, parts);
    size_t keys =
        tr_min_size(end << l->shift, l->table->keys) - tr_min_size(first << l->shift, l->table->keys);
    for (size_t i = 0; i < l->moves; i++) {
        char *at = l->column[i].values + first * l->column[i].chunk_bytes;
        size_t bytes = keys * l->column[i].key_bytes;
        for (size_t done = 0; done < bytes; done += PIECE) {
            int n = (int)tr_min_size(bytes - done, PIECE);
            MPI_Request request;
            MPI_Rget(at + done, n, MPI_BYTE, l->first_of[node], at + done - l->memory.part[0].at, n, MPI_BYTE,
                     l->window, &request);
            TR_TRY(tr_wait_request(l->tr, &request, "the model from the node that had it last"));
        }
        replica_own_counts(l)->bytes_moved += bytes;
    }
    if (keys > 0 && l->fetched) l->fetched(l->state, first << l->shift, keys, first << l->shift);
    return TR_OK;
}

/* ======== chunks ========
 *
 * In mode TR_UPDATE_LOCKED, one worker at a time holds a chunk. In the other modes several workers can hold a chunk together,
 * because they change numbers atomically or accept races. If all chunks fit into memory, workers access a chunk without holding it.
 *
 * To visit a chunk is to access it. Frames are in a heap, ordered by the stamps that their chunks had when the heap was updated. A
 * visit only writes the chunk's stamp. Eviction inspects the top of the heap: if the chunk has a newer stamp, the frame sinks.
 * Stamps only grow, so a frame that stays on top has the chunk that was visited (lru) or loaded (fifo) longest ago. */

/* ---- locks ---- */

typedef bool chunk_try_fn(struct chunk *chunk);

static bool chunk_try_alone(struct chunk *chunk)
{
    uint32_t free = 0;
    return atomic_compare_exchange_strong_explicit(&chunk->lock, &free, LOCKED_ALONE, memory_order_acquire,
                                                   memory_order_relaxed);
}

static bool chunk_try_together(struct chunk *chunk)
{
    uint32_t held = atomic_load_explicit(&chunk->lock, memory_order_relaxed);
    return !(held & LOCKED_ALONE) &&
           atomic_compare_exchange_strong_explicit(&chunk->lock, &held, held + 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void chunk_end_alone(struct chunk *chunk)
{
    atomic_store_explicit(&chunk->lock, 0, memory_order_release);
}

/* Waits until `try` gets the lock of a chunk. Another worker holds a chunk in memory for some hundred cycles only, unless the
 * system has suspended this worker. A chunk that is being fetched is held longer. */
static int chunk_wait(struct tr_replica *l, struct chunk *chunk, chunk_try_fn *try)
{
    enum { PATIENCE = 100 };
    struct tr_waiting waiting = tr_waiting_begin();
    for (int turn = 0; !try(chunk); turn++) {
        if (turn < PATIENCE) continue;
        if (chunk_is_here(chunk)) sched_yield();
        else
            TR_TRY(tr_waiting_turn(l->tr, &waiting, "another worker of the node to bring a chunk of table %s",
                                   l->table->name));
    }
    return TR_OK;
}

/* ---- the heap of frames ---- */

static uint64_t heap_next_tick(struct replica_head *head)
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

/* Chooses a frame whose chunk can be evicted, and holds this chunk exclusively. Returns the frame's index in the heap; UINT32_MAX:
 * all chunks are held. A chunk that another worker holds gets a new stamp, since it is in use. */
static uint32_t heap_choose(struct tr_replica *l)
{
    for (uint32_t tries = 0, n = l->head->heaped; tries < n;) {
        uint32_t i = l->replace == TR_REPLACE_RANDOM ? (uint32_t)tr_rng_below(&l->head->random, n) : 0;
        struct chunk *chunk = &l->chunk[l->owner[l->heap[i]]];
        uint64_t stamp = atomic_load_explicit(&chunk->stamp, memory_order_relaxed);
        bool visited = l->replace == TR_REPLACE_LRU && stamp > l->heap_stamp[l->heap[i]];
        if (!visited && chunk_try_alone(chunk)) return i;
        l->heap_stamp[l->heap[i]] = visited ? stamp : heap_next_tick(l->head);
        heap_sink(l, i);
        tries += !visited;
    }
    return UINT32_MAX;
}

/* Enters the frame of a loaded chunk in the heap, so that the chunk can be evicted. */
static void frame_fill(struct tr_replica *l, size_t c)
{
    struct replica_head *head = l->head;
    struct chunk *chunk = &l->chunk[c];
    uint64_t stamp = heap_next_tick(head);
    atomic_store_explicit(&chunk->stamp, stamp, memory_order_relaxed);
    tr_spin_lock(&head->choosing);
    l->owner[chunk->frame] = (uint32_t)c;
    l->heap_stamp[chunk->frame] = stamp;
    l->heap[head->heaped] = chunk->frame;
    heap_rise(l, head->heaped++);
    tr_spin_unlock(&head->choosing);
}

/* Finds a frame, and evicts its chunk if necessary; *found = false: the chunks of all frames are held. */
static int frame_take(struct tr_replica *l, uint32_t *frame, bool *found)
{
    struct replica_head *head = l->head;
    uint32_t i = UINT32_MAX;
    tr_spin_lock(&head->choosing);
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
    tr_spin_unlock(&head->choosing);
    *found = is_new || i != UINT32_MAX;
    if (is_new || !*found) return TR_OK;
    /* evicts the chunk; if the file cannot be written, the chunk stays, because other workers may wait for it */
    uint32_t c = l->owner[*frame];
    struct chunk *chunk = &l->chunk[c];
    bool changed = atomic_load_explicit(&chunk->changed, memory_order_relaxed);
    int status = changed ? chunk_transfer(l, true, c) : TR_OK;
    if (status == TR_OK) {
        /* set `stored` before `changed` is cleared: see replica_give_part() */
        if (changed) atomic_store(&chunk->stored, 1);
        atomic_store(&chunk->changed, 0);
        atomic_store_explicit(&chunk->here, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&head->absent, 1, memory_order_relaxed);
        replica_own_counts(l)->evicted++;
    } else {
        frame_fill(l, c);
    }
    chunk_end_alone(chunk);
    return status;
}

/* ---- loading and holding ---- */

/* Marks all chunks as in memory (here), or as absent. Each worker marks part `part` of `parts` of them. */
static void chunks_clear(struct tr_replica *l, int part, int parts, bool here)
{
    for (size_t c = replica_part(l, part, parts), to = replica_part(l, part + 1, parts); c < to; c++) {
        struct chunk *chunk = &l->chunk[c];
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

/* Loads chunks that have frames and are held exclusively: from the file if the file has the chunk, otherwise from the tables. */
static int chunks_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n)
{
    uint32_t list[AHEAD];
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (atomic_load(&l->chunk[chunks[i]].stored)) TR_TRY(chunk_transfer(l, false, chunks[i]));
        else list[left++] = chunks[i];
    }
    if (left > 0) TR_TRY(replica_fetch(l, list, left, UINT32_MAX));
    for (size_t i = 0; i < n; i++) {
        atomic_store_explicit(&l->chunk[chunks[i]].here, 1, memory_order_release);
        atomic_fetch_sub_explicit(&l->head->absent, 1, memory_order_release);
        replica_own_counts(l)->misses++;
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
        TR_TRY(replica_failure(l)); /* after a failed read, the frame of that chunk does not become free */
        TR_TRY(tr_waiting_turn(l->tr, &waiting, "memory for a chunk of table %s", l->table->name));
    }
    return chunks_fetch(l, &chunk, 1);
}

/* Holds a chunk as the mode demands, and loads it if it is absent. While a worker loads a chunk, it holds the chunk exclusively. */
static int chunk_get(struct tr_replica *l, size_t c)
{
    struct chunk *chunk = &l->chunk[c];
    const bool together = l->mode != TR_UPDATE_LOCKED, shared = together && l->limited;
    if (shared) TR_TRY(chunk_wait(l, chunk, chunk_try_together));
    bool here = together && chunk_is_here(chunk);
    if (!here) {
        if (shared) atomic_fetch_sub_explicit(&chunk->lock, 1, memory_order_relaxed);
        TR_TRY(chunk_wait(l, chunk, chunk_try_alone));
        here = chunk_is_here(chunk);
        int status = here ? TR_OK : chunk_fetch(l, (uint32_t)c);
        if (status != TR_OK) chunk_end_alone(chunk);
        TR_TRY(status);
        if (together) atomic_store_explicit(&chunk->lock, shared, memory_order_release);
    }
    replica_own_counts(l)->hits += here;
    if (here && l->limited && l->replace == TR_REPLACE_LRU)
        atomic_store_explicit(&chunk->stamp, heap_next_tick(l->head), memory_order_relaxed);
    return TR_OK;
}

static void chunk_release(struct tr_replica *l, size_t c)
{
    struct chunk *chunk = &l->chunk[c];
    if (l->mode == TR_UPDATE_LOCKED) chunk_end_alone(chunk);
    else if (l->limited) atomic_fetch_sub_explicit(&chunk->lock, 1, memory_order_release);
}

/* Fetches some absent chunks of the keys together: those whose lock is free, as long as there are frames. */
static int chunks_bring_ahead(struct tr_replica *l, const tr_key *keys, size_t n)
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
        struct chunk *chunk = &l->chunk[c];
        if (chunk_is_here(chunk) || !chunk_try_alone(chunk)) continue;
        bool found = !chunk_is_here(chunk);
        if (found && l->limited) status = frame_take(l, &chunk->frame, &found);
        if (status == TR_OK && found) list[some++] = (uint32_t)c;
        else chunk_end_alone(chunk);
    }
    if (status == TR_OK && some > 0) status = chunks_fetch(l, list, some);
    /* when these chunks are accessed, they are counted as hits, although they were misses */
    replica_own_counts(l)->hits -= status == TR_OK ? some : 0;
    for (size_t i = 0; i < some; i++) chunk_end_alone(&l->chunk[list[i]]);
    return status;
}

/* ======== the workers of a node ========
 *
 * All workers of a stage take and give a replica together (trireme/replica.h), with a barrier in shared memory. A worker that has
 * failed continues with its clocks without computing, and does not reach the barrier. Therefore replica_watch(), a poll function
 * that also a failed worker calls, releases the waiting workers when this worker is at a later clock than the waiting ones. */

static int replica_watch(void *replica, int *did)
{
    struct tr_replica *l = replica;
    const struct tr_sync *s = l->tr->sync;
    struct replica_head *head = l->head;
    (void)did;
    if (l->waiting || atomic_load_explicit(&head->arrived, memory_order_acquire) == 0) return TR_OK;
    if (!s->running || !tr_works(l->tr) || s->now <= atomic_load(&head->clock)) return TR_OK;
    int none = TR_OK;
    atomic_compare_exchange_strong(&head->failed, &none, TR_ERR_PEER);
    return TR_OK;
}

/* Returns whether another worker has failed outside of the replica. The error of that worker is reported when the stage ends. Until
 * then, other workers report no errors, which could replace that error: their reads return zeros, and their changes are dropped. */
static bool replica_is_left(const struct tr_replica *l)
{
    return atomic_load(&l->head->failed) != TR_OK && !*l->head->why;
}

static int replica_barrier(struct tr_replica *l, const tr_worker *me)
{
    struct replica_head *head = l->head;
    uint32_t round = atomic_load(&head->round);
    TR_TRY(replica_failure(l));
    atomic_store(&head->clock, l->tr->sync->now);
    l->waiting = true;
    int status = TR_OK;
    if (atomic_fetch_add(&head->arrived, 1) + 1 == (uint32_t)me->workers) {
        atomic_store(&head->arrived, 0);
        atomic_store(&head->round, round + 1);
    } else {
        TR_WAIT_UNTIL(l->tr,
                      atomic_load_explicit(&head->round, memory_order_acquire) != round ||
                          atomic_load(&head->failed) != TR_OK,
                      "the other workers of the node that share table %s", l->table->name);
        status = replica_failure(l);
    }
    l->waiting = false;
    return status;
}

/* ======== opening and closing ======== */

/* Reserves `bytes` at offset *taken of `memory`, aligned to a cache line, and returns their address; NULL if memory is NULL. */
static void *replica_reserve(char *memory, size_t *taken, size_t bytes)
{
    size_t at = *taken;
    *taken += (bytes + 63) & ~(size_t)63;
    return memory ? memory + at : NULL;
}

/* Sets the addresses of all arrays to places in the memory at `at`, or sets none if `at` is NULL. Returns the size of this memory.
 * Arrays that other nodes read come first, because the size of the others may differ between nodes. */
static size_t replica_lay_out(struct tr_replica *l, size_t shared, char *at)
{
    size_t taken = 0, heaped = l->limited ? l->frames : 0, spare = l->model == TR_LOCAL_DEMAND;
    for (size_t i = 0; i < l->columns; i++)
        l->column[i].values = replica_reserve(at, &taken, (l->frames + spare) * l->column[i].chunk_bytes);
    l->head = replica_reserve(at, &taken, sizeof *l->head);
    l->line = replica_reserve(at, &taken, (size_t)l->tr->node_size * sizeof *l->line);
    l->chunk = replica_reserve(at, &taken, l->chunks * sizeof *l->chunk);
    l->heap_stamp = replica_reserve(at, &taken, heaped * sizeof *l->heap_stamp);
    l->heap = replica_reserve(at, &taken, heaped * sizeof *l->heap);
    l->owner = replica_reserve(at, &taken, heaped * sizeof *l->owner);
    l->shared = replica_reserve(at, &taken, shared);
    return taken;
}

/* Sets the columns from the options, and chooses the size and number of chunks and the number of frames. */
static int replica_choose_sizes(struct tr_replica *l, const tr_replica_options *options)
{
    const struct tr_table *t = l->table;
    const tr_job *job = l->tr->job;
    uint64_t memory = job ? job->local.memory : 0, keys = options->chunk;
    size_t bytes = 0;
    if (keys == 0) keys = job ? job->local.chunk : USUAL_CHUNK;
    l->columns = options->arrays;
    for (size_t i = 0; i < options->arrays; i++) {
        const tr_replica_array *array = &options->array[i];
        const struct tr_table *copied = array->table;
        struct replica_column *c = &l->column[i];
        *c = (struct replica_column){.table = array->table, .given = array->given, .key_bytes = array->bytes};
        if (copied && (copied->hash || copied->sparse || copied->use))
            return tr_fail(TR_ERR_CONFIG,
                           "table %s: a local model needs dense storage and no server function",
                           copied->name);
        if (copied) c->key_bytes = copied->width * tr_dtype_size(copied->dtype);
        bytes += c->key_bytes;
    }
    keys = tr_min_size(keys, t->keys);
    while ((UINT64_C(1) << l->shift) < keys && ((uint64_t)bytes << l->shift) < LARGEST_CHUNK) l->shift++;
    for (size_t i = 0; i < l->columns; i++) l->column[i].chunk_bytes = l->column[i].key_bytes << l->shift;
    l->frame_bytes = bytes << l->shift;
    l->chunks = (size_t)((t->keys - 1) >> l->shift) + 1;
    if (l->chunks >= LOCKED_ALONE)
        return tr_fail(TR_ERR_CONFIG, "table %s: %zu chunks of a local model are too many: raise local.chunk",
                       t->name, l->chunks);
    uint64_t fit = memory / l->frame_bytes;
    l->limited = memory > 0 && fit < l->chunks;
    l->frames = l->limited ? (size_t)fit : l->chunks;
    if (l->limited && l->model == TR_LOCAL_INTEGRAL)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: local.memory is %llu bytes, but the whole of table %s takes %zu: expected "
                       "local.model demand",
                       tr_job_where(job, "local.memory"), (unsigned long long)memory, t->name,
                       l->chunks * l->frame_bytes);
    if (l->frames == 0)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: local.memory is %llu bytes, but one chunk of table %s takes %zu: raise it, or "
                       "lower local.chunk",
                       tr_job_where(job, "local.memory"), (unsigned long long)memory, t->name,
                       l->frame_bytes);
    return TR_OK;
}

/* Opens the file for chunks that are not in memory. When all ranks of the node have opened it, its name is removed, so that the
 * system deletes the file when the last rank closes it. Collective over all ranks. */
static int replica_open_file(struct tr_replica *l)
{
    char path[PATH_MAX] = "";
    bool makes = l->tr->node_rank == 0;
    int status = TR_OK;
    l->folder = getenv("TMPDIR");
    if (!l->folder || !*l->folder) l->folder = "/tmp";
    if (makes) {
        if ((size_t)snprintf(path, sizeof path, "%s/trireme-local-XXXXXX", l->folder) >= sizeof path)
            *path = '\0';
        l->file = *path ? mkostemp(path, O_CLOEXEC) : -1;
        if (l->file < 0) {
            status =
                tr_fail(TR_ERR_NO_OUTPUT, "%s: a file for the local model of table %s cannot be made: %s",
                        l->folder, l->table->name, strerror(errno));
            *path = '\0';
        }
    }
    int sent = tr_broadcast(l->tr, TR_SET_NODE, 0, path, sizeof path);
    if (status == TR_OK) status = sent;
    if (!makes && status == TR_OK && *path) { /* without a path, the first rank reports the error */
        l->file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (l->file < 0)
            status = tr_fail(TR_ERR_NO_OUTPUT, "%s: the file of a local model cannot be opened: %s", path,
                             strerror(errno));
    }
    status = tr_agree(l->tr, status);
    if (makes && *path) unlink(path);
    return status;
}

int tr_replica_open_with(tr_context *tr, const tr_replica_options *options, tr_replica **replica)
{
    static const char *const replaced[] = {"lru", "fifo", "random"};
    static const char *const updates[] = {"under locks", "atomic", "plain"};
    const tr_job *job = tr->job;
    struct tr_replica *l = NULL;
    int status = tr_agree(tr, TR_NEW(&l, 1));
    if (status != TR_OK) return free(l), status;
    tr_replica *opened TR_CLOSED_BY(tr_replica_close) = l;
    *l = (struct tr_replica){.tr = tr,
                             .table = options->array[0].table,
                             .state = options->state,
                             .fetched = options->fetched,
                             .finish = options->finish,
                             .moves = options->moves,
                             .model = job ? job->local.model : TR_LOCAL_INTEGRAL,
                             .mode = job ? (enum tr_update_mode)job->sync.race : TR_UPDATE_LOCKED,
                             .replace = job ? job->local.replace : TR_REPLACE_LRU,
                             .memory = TR_SHM_CLOSED,
                             .window = MPI_WIN_NULL,
                             .file = -1};
    uint64_t shared = options->shared;
    TR_TRY(tr_agree(tr, replica_choose_sizes(l, options)));
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_MAX, TR_I64, &shared, 1));
    size_t bytes = tr->node_rank == 0 ? replica_lay_out(l, shared, NULL) : 0;
    TR_TRY(tr_agree(tr, tr_shm_open(tr, tr->node, bytes, true, &l->memory)));
    const struct tr_shm_part *memory = &l->memory.part[0];
    replica_lay_out(l, shared, memory->at);
    if (l->moves > 0 && tr->layout.nodes > 1) {
        TR_TRY(tr_agree(tr, TR_NEW(&l->first_of, (size_t)tr->layout.nodes)));
        for (int rank = tr->size - 1; rank >= 0; rank--) l->first_of[tr->node_of[rank]] = rank;
        TR_TRY(tr_window_open(tr, memory->at, tr->node_rank == 0 ? memory->bytes : 0, 1,
                              "all ranks to open a local model", &l->window));
    }
    if (l->limited) {
        if (tr->node_rank == 0) tr_rng_seed(&l->head->random, tr->job->seed, (uint64_t)tr->rank, 0);
        TR_TRY(replica_open_file(l));
    }
    size_t given = 0;
    for (size_t i = 0; i < l->columns; i++) given += l->column[i].given ? l->column[i].chunk_bytes : 0;
    l->batch = tr_min_size(l->chunks, tr_max_size(AT_ONCE / tr_max_size(given, 1), 1));
    status = TR_NEW(&l->list, 4 * l->batch);
    if (status == TR_OK) status = TR_NEW(&l->spare, l->batch * given);
    TR_TRY(tr_agree(tr, status));
    l->chosen = l->list + l->batch;
    l->slot = l->chosen + l->batch;
    l->given_to = l->slot + l->batch;
    char frames[64] = "all in memory";
    if (l->limited)
        snprintf(frames, sizeof frames, "%zu in memory, %s makes room", l->frames, replaced[l->replace]);
    tr_say(tr, "local model:   %s, %zu chunks of %llu keys and %zu bytes, %s; updates %s",
           l->model == TR_LOCAL_DEMAND ? "on demand" : "integral", l->chunks, 1ull << l->shift,
           l->frame_bytes, frames, updates[l->mode]);
    TR_TRY(tr_agree(tr, tr_poll_add(tr, replica_watch, l)));
    *replica = l;
    opened = NULL;
    return TR_OK;
}

int tr_replica_open(tr_table *table, tr_replica **replica)
{
    const tr_replica_array array = {.table = table, .given = true};
    return tr_replica_open_with(table->tr, &(tr_replica_options){.array = &array, .arrays = 1}, replica);
}

void tr_replica_close(tr_replica **replica)
{
    struct tr_replica *l = *replica;
    if (!l) return;
    tr_poll_remove(l->tr, replica_watch, l);
    tr_window_close(l->tr, l->tr->world, "all ranks to close a local model", &l->window);
    tr_shm_close(&l->memory);
    if (l->file >= 0) close(l->file);
    TR_FREE_ALL(l->first_of, l->spare, l->list, l);
    *replica = NULL;
}

void tr_replica_count(const tr_replica *l, tr_replica_counts *counts)
{
    uint64_t *sum = (uint64_t *)counts;
    memset(counts, 0, sizeof *counts);
    for (int r = 0; r < l->tr->node_size; r++)
        for (size_t i = 0; i < sizeof *counts / sizeof *sum; i++)
            sum[i] += ((const uint64_t *)&l->line[r].counts)[i];
}

/* ======== access ======== */

void *tr_replica_array_of(const tr_replica *l, size_t i)
{
    return l->column[i].values;
}

void *tr_replica_shared(const tr_replica *l)
{
    return l->shared;
}

bool tr_replica_ready(const tr_replica *l)
{
    return l->taken && !l->idle;
}

void *tr_replica_values(tr_replica *l)
{
    if (l->model != TR_LOCAL_INTEGRAL || !l->taken) return NULL;
    atomic_store_explicit(&l->head->all_changed, 1, memory_order_relaxed);
    return l->column[0].values;
}

/* Returns whether all chunks are in memory, contiguous, and never evicted. */
static bool replica_is_whole(const struct tr_replica *l)
{
    return !l->limited && atomic_load_explicit(&l->head->absent, memory_order_acquire) == 0;
}

static void replica_note_change(_Atomic uint32_t *changed)
{
    if (!atomic_load_explicit(changed, memory_order_relaxed))
        atomic_store_explicit(changed, 1, memory_order_relaxed);
}

void tr_replica_updates(tr_replica *l, tr_updates *updates)
{
    *updates = (tr_updates){.mode = l->mode,
                            .shift = l->shift,
                            .lock = (uint32_t *)(void *)l->chunk,
                            .replica = replica_is_whole(l) ? NULL : l};
    if (!updates->replica) replica_note_change(&l->head->all_changed);
}

size_t tr_replica_hold(tr_replica *l, size_t chunk)
{
    if (!l->astray) l->astray = replica_note(l, chunk_get(l, chunk)) != TR_OK;
    return l->astray ? l->frames << l->shift : chunk_place(l, chunk);
}

void tr_replica_release(tr_replica *l, size_t chunk, bool changed)
{
    if (l->astray) return;
    if (changed) replica_note_change(&l->chunk[chunk].changed);
    chunk_release(l, chunk);
}

int tr_replica_status(const tr_replica *l)
{
    return l->astray ? replica_failure(l) : TR_OK;
}

/* ---- by keys ---- */

/* Copies the values of n keys to `to`, or adds `from` to them; one of the two is NULL. The value of key `first` is at `at`. */
static void replica_work(const struct tr_replica *l, const tr_key *keys, size_t n, void *to, const void *from,
                         void *at, tr_key first)
{
    const size_t width = l->table->width;
    const bool atomically = l->mode == TR_UPDATE_ATOMIC;
    TR_FOR_TYPE(l->table->dtype, {
        T *values = at, *out = to;
        const T *delta = from;
        for (size_t i = 0; i < n && out; i++)
            for (size_t j = 0; j < width; j++)
                __atomic_load(values + (keys[i] - first) * width + j, out + i * width + j, __ATOMIC_RELAXED);
        for (size_t i = 0; i < n && !out; i++)
            for (size_t j = 0; j < width; j++) {
                T *value = values + (keys[i] - first) * width + j, by = delta[i * width + j], seen = *value,
                  next;
                if (!atomically) {
                    *value = seen + by;
                    continue;
                }
                do next = seen + by;
                while (!__atomic_compare_exchange(value, &seen, &next, false, __ATOMIC_RELAXED,
                                                  __ATOMIC_RELAXED));
            }
    })
}

/* Performs tr_replica_read() if delta is NULL, or tr_replica_add() if out is NULL. */
static int replica_access(struct tr_replica *l, const tr_key *keys, size_t n, char *out, const char *delta)
{
    const struct replica_column *column = &l->column[0];
    if (!l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is not taken: see tr_replica_take()",
                       l->table->name);
    tr_key most = 0;
    for (size_t i = 0; i < n; i++) most = keys[i] > most ? keys[i] : most;
    if (most >= l->table->keys)
        return tr_fail(TR_ERR_INTERNAL, "table %s: there is no key %llu in its local model, but %llu keys",
                       l->table->name, (unsigned long long)most, (unsigned long long)l->table->keys);
    if (l->mode != TR_UPDATE_LOCKED && replica_is_whole(l)) {
        if (delta) replica_note_change(&l->head->all_changed);
        replica_own_counts(l)->hits++;
        replica_work(l, keys, n, out, delta, column->values, 0);
        return TR_OK;
    }
    TR_TRY(chunks_bring_ahead(l, keys, n));
    for (size_t i = 0, end; i < n; i = end) {
        size_t chunk = (size_t)(keys[i] >> l->shift), offset = i * column->key_bytes;
        TR_TRY(chunk_get(l, chunk));
        for (end = i; end < n && keys[end] >> l->shift == chunk;) end++;
        replica_work(l, keys + i, end - i, out ? out + offset : NULL, delta ? delta + offset : NULL,
                     column->values + l->chunk[chunk].frame * column->chunk_bytes, chunk_first_key(l, chunk));
        if (delta) replica_note_change(&l->chunk[chunk].changed);
        chunk_release(l, chunk);
    }
    return TR_OK;
}

int tr_replica_read(tr_replica *l, const tr_key *keys, size_t n, void *out)
{
    if (l->idle) return memset(out, 0, n * l->column[0].key_bytes), TR_OK;
    return replica_note(l, replica_access(l, keys, n, out, NULL));
}

int tr_replica_add(tr_replica *l, const tr_key *keys, size_t n, const void *delta)
{
    if (l->idle) return TR_OK;
    return replica_note(l, replica_access(l, keys, n, NULL, delta));
}

/* ======== taking and giving ======== */

/* For n values: d = *now - *value. Sets *now to *value + d, which the table will contain and which may differ from *now by rounding,
 * and *value to d. Returns whether any d is not zero. */
static bool replica_differ(enum tr_dtype dtype, size_t n, void *now, void *value)
{
    bool some = false;
    TR_FOR_TYPE(dtype, {
        T *new = now, *old = value;
        for (size_t i = 0; i < n; i++) {
            T delta = new[i] - old[i];
            new[i] = old[i] + delta;
            old[i] = delta;
            some |= delta != 0;
        }
    })
    return some;
}

/* Fetches the tables' values of the n chunks in the list to `spare` or, if `adds`, adds the changes in `spare` to the tables. */
static int replica_move_batch(struct tr_replica *l, size_t n, bool adds)
{
    char *spare = l->spare;
    for (size_t i = 0; i < l->columns; i++) {
        const struct replica_column *c = &l->column[i];
        struct move m = {.table = c->table, .chunks = l->chosen, .slots = l->slot, .values = spare};
        if (!c->given) continue;
        for (size_t k = 0; k < n; k++) {
            if (adds && !(l->given_to[k] >> i & 1)) continue;
            l->chosen[m.n] = l->list[k];
            l->slot[m.n++] = (uint32_t)k;
        }
        uint64_t compared = 0;
        tr_replica_counts *counts = replica_own_counts(l);
        if (m.n > 0) TR_TRY(replica_move(l, m, adds, adds ? &counts->bytes_given : &compared));
        counts->given += adds ? m.n : 0;
        spare += l->batch * c->chunk_bytes;
    }
    return TR_OK;
}

static int replica_give_batch(struct tr_replica *l, size_t n, bool gives)
{
    if (n == 0) return TR_OK;
    if (gives) TR_TRY(replica_move_batch(l, n, false));
    for (size_t k = 0; k < n; k++) {
        /* finishes chunk k of the list, and computes its changes */
        size_t c = l->list[k];
        char *spare = l->spare;
        tr_replica_counts *counts = replica_own_counts(l);
        uint64_t hits = counts->hits;
        TR_TRY(chunk_get(l, c));
        counts->hits = hits; /* chunk_get() has counted a hit, but this is not an access of the worker */
        size_t place = chunk_place(l, c), keys = chunk_keys(l, c);
        if (l->finish) l->finish(l->state, chunk_first_key(l, c), keys, place);
        l->given_to[k] = 0;
        for (size_t i = 0; i < l->columns && gives; i++) {
            const struct replica_column *col = &l->column[i];
            if (!col->given) continue;
            if (replica_differ(col->table->dtype, keys * col->table->width,
                               col->values + place * col->key_bytes, spare + k * col->chunk_bytes))
                l->given_to[k] |= 1u << i;
            spare += l->batch * col->chunk_bytes;
        }
        atomic_store(&l->chunk[c].stored, 0);
        atomic_store(&l->chunk[c].changed, 0);
        chunk_release(l, c);
    }
    return gives ? replica_move_batch(l, n, true) : TR_OK;
}

static int replica_give_part(struct tr_replica *l, int part, int parts, bool gives)
{
    bool all = atomic_load(&l->head->all_changed);
    size_t n = 0;
    for (size_t c = replica_part(l, part, parts), to = replica_part(l, part + 1, parts); c < to; c++) {
        /* `changed` is read first: frame_take(), which evicts the chunk, sets `stored` before it clears `changed` */
        const struct chunk *chunk = &l->chunk[c];
        if (l->finish || (all && chunk_is_here(chunk)) || atomic_load(&chunk->changed) ||
            atomic_load(&chunk->stored))
            l->list[n++] = (uint32_t)c;
        if (n < l->batch) continue;
        TR_TRY(replica_give_batch(l, n, gives));
        n = 0;
    }
    return replica_give_batch(l, n, gives);
}

/* Starts the use of a replica with the values of the tables or, if `direct`, with those of the node of worker group `group` (-1:
 * this node). again: bit i is set if array i is fetched from its table nevertheless. */
static int replica_take(struct tr_replica *l, const tr_worker *me, bool direct, int group, unsigned again)
{
    const tr_context *tr = l->tr;
    double begin = tr_now();
    tr_wait_begin(tr->tables);
    int node = tr->node_of[group < 0 ? tr->rank : tr->layout.worker_rank[group * tr->layout.group_size]];
    int status = TR_OK;
    if (!direct && tr->status != TR_OK && atomic_load(&l->head->failed) != TR_OK)
        status = tr_fail(TR_ERR_INTERNAL, "table %s: its local model was left by a stage that has failed",
                         l->table->name);
    for (int w = 0; w < tr_worker_set_size(tr->active) && status == TR_OK; w++)
        if (!tr_same_node(tr, tr_worker_rank(tr, tr->active, w)))
            status =
                tr_fail(TR_ERR_CONFIG,
                        "table %s: the workers of a stage with a local model must be of one node, but worker "
                        "%d is of another: see ranks.groups and ranks.group_size",
                        l->table->name, w);
    if (status == TR_OK && direct && l->model != TR_LOCAL_INTEGRAL)
        status = tr_fail(TR_ERR_INTERNAL, "table %s: a local model on demand goes through its table",
                         l->table->name);
    if (status == TR_OK) {
        chunks_clear(l, me->worker, me->workers, direct);
        if (direct && node != tr->node_of[tr->rank])
            status = replica_fetch_from(l, node, me->worker, me->workers);
        else if (direct) status = again ? replica_fetch_part(l, me->worker, me->workers, again) : TR_OK;
        else if (l->model == TR_LOCAL_INTEGRAL) {
            status = replica_barrier(l, me); /* chunks_clear() must end before `absent` is decremented */
            if (status == TR_OK) status = replica_fetch_part(l, me->worker, me->workers, UINT32_MAX);
        }
    }
    status = replica_note(l, status);
    if (status == TR_OK) status = replica_barrier(l, me);
    l->idle = status != TR_OK && replica_is_left(l);
    if (l->idle) status = TR_OK;
    l->taken = status == TR_OK;
    l->astray = false;
    tr->tables->traffic.pull_seconds += tr_now() - begin;
    tr_wait_end(tr->tables);
    return status;
}

int tr_replica_take(tr_replica *l, tr_worker *me)
{
    return replica_take(l, me, false, -1, 0);
}

int tr_replica_take_from(tr_replica *l, tr_worker *me, int group, unsigned again)
{
    return replica_take(l, me, true, group, again);
}

static int replica_end_using(struct tr_replica *l, const tr_worker *me, bool gives)
{
    struct tr_traffic *traffic = &l->tr->tables->traffic;
    double begin = tr_now();
    if (!l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is given, but was not taken",
                       l->table->name);
    tr_wait_begin(l->tr->tables);
    int status = replica_barrier(l, me);
    double met = tr_now();
    l->taken = false;
    if (status == TR_OK) status = replica_note(l, replica_give_part(l, me->worker, me->workers, gives));
    else if (replica_is_left(l)) status = TR_OK;
    traffic->wait_seconds += met - begin;
    traffic->push_seconds += tr_now() - met;
    tr_wait_end(l->tr->tables);
    return status;
}

int tr_replica_give(tr_replica *l, tr_worker *me)
{
    return replica_end_using(l, me, true);
}

int tr_replica_leave(tr_replica *l, tr_worker *me)
{
    return replica_end_using(l, me, false);
}
