#define _GNU_SOURCE
#include "table/replica.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/job.h"
#include "trireme/collective.h"

/* Keys of a chunk, where there is no job. */
enum { CHUNK = 1024 };
/* Bytes of a chunk, if it has more keys than one. */
enum { LARGEST = 1 << 27 };
/* Bytes of a transfer: large enough for the latency of a round trip not to matter. */
enum { AT_ONCE = 1 << 22 };

/* ---- memory ---- */

/* The next array in one block of memory, where a line of the cache begins; NULL without memory. */
static void *replica_reserve(char *memory, size_t *taken, size_t bytes)
{
    size_t at = *taken;
    *taken += (bytes + 63) & ~(size_t)63;
    return memory ? memory + at : NULL;
}

/* Lays the memory out from `at` on, which may be NULL, and returns its size. Arrays that other nodes read come first, because the
 * size of the rest may differ between nodes. */
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

static int replica_open_columns(struct tr_replica *l, const tr_replica_options *options)
{
    l->columns = options->arrays;
    for (size_t i = 0; i < options->arrays; i++) {
        const tr_replica_array *array = &options->array[i];
        struct tr_table *t = array->table;
        l->column[i] =
            (struct tr_replica_column){.table = t, .given = array->given, .key_bytes = array->bytes};
        if (!t) continue;
        l->column[i].key_bytes = t->width * tr_dtype_size(t->dtype);
        if (t->hash || t->sparse || t->use)
            return tr_fail(TR_ERR_CONFIG,
                           "table %s: a local model needs dense storage and no server function", t->name);
    }
    return TR_OK;
}

/* Chooses the number of chunks, and of chunks in memory. */
static int replica_choose_sizes(struct tr_replica *l, uint64_t chunk)
{
    const struct tr_table *t = l->table;
    const tr_job *job = l->tr->job;
    uint64_t memory = job ? job->local.memory : 0, keys = chunk ? chunk : job ? job->local.chunk : CHUNK;
    size_t bytes = 0;
    for (size_t i = 0; i < l->columns; i++) bytes += l->column[i].key_bytes;
    keys = tr_min_size(keys, t->keys);
    while ((UINT64_C(1) << l->shift) < keys && ((uint64_t)bytes << l->shift) < LARGEST) l->shift++;
    for (size_t i = 0; i < l->columns; i++) l->column[i].chunk_bytes = l->column[i].key_bytes << l->shift;
    l->frame_bytes = bytes << l->shift;
    l->chunks = (size_t)((t->keys - 1) >> l->shift) + 1;
    if (l->chunks >= TR_LOCKED_ALONE)
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

/* Opens the memory of every node to the ranks of all others. */
static int replica_open_window(struct tr_replica *l)
{
    tr_context *tr = l->tr;
    if (l->moves == 0 || tr->layout.nodes == 1) return TR_OK;
    TR_TRY(tr_agree(tr, TR_NEW(&l->first_of, (size_t)tr->layout.nodes)));
    for (int rank = tr->size - 1; rank >= 0; rank--) l->first_of[tr->node_of[rank]] = rank;
    const struct tr_shm_part *memory = &l->memory.part[0];
    return tr_window_open(tr, memory->at, tr->node_rank == 0 ? memory->bytes : 0, 1,
                          "all ranks to open a local model", &l->window);
}

/* ---- the file ---- */

static int replica_make_file(struct tr_replica *l, char *path, size_t size)
{
    if ((size_t)snprintf(path, size, "%s/trireme-local-XXXXXX", l->folder) >= size) *path = '\0';
    l->file = *path ? mkostemp(path, O_CLOEXEC) : -1;
    if (l->file >= 0) return TR_OK;
    int status = tr_fail(TR_ERR_NO_OUTPUT, "%s: a file for the local model of table %s cannot be made: %s",
                         l->folder, l->table->name, strerror(errno));
    *path = '\0';
    return status;
}

static int replica_open_file(struct tr_replica *l, const char *path)
{
    if (!*path) return TR_OK; /* the first rank says why */
    l->file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (l->file >= 0) return TR_OK;
    return tr_fail(TR_ERR_NO_OUTPUT, "%s: the file of a local model cannot be opened: %s", path,
                   strerror(errno));
}

/* Reads or writes all bytes, with several calls if necessary; *error = 0: the file is too short. */
static bool replica_move_bytes(int file, bool writes, char *at, size_t bytes, size_t offset, int *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = writes ? pwrite(file, at + done, bytes - done, (off_t)(offset + done))
                           : pread(file, at + done, bytes - done, (off_t)(offset + done));
        *error = n < 0 ? errno : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

int tr_replica_transfer(struct tr_replica *l, bool writes, size_t chunk)
{
    size_t offset = chunk * l->frame_bytes, keys = tr_replica_keys_of(l, chunk), all = 0;
    int error = 0;
    for (size_t i = 0; i < l->columns; i++) {
        const struct tr_replica_column *c = &l->column[i];
        char *at = c->values + l->chunk[chunk].frame * c->chunk_bytes;
        if (!replica_move_bytes(l->file, writes, at, keys * c->key_bytes, offset, &error))
            return tr_fail(TR_ERR_IO,
                           "%s: a chunk of %zu bytes of the local model of table %s cannot be %s: %s",
                           l->folder, l->frame_bytes, l->table->name, writes ? "written" : "read back",
                           error ? strerror(error) : "the file is too short");
        offset += c->chunk_bytes;
        all += keys * c->key_bytes;
    }
    tr_replica_counts *counts = tr_replica_own_counts(l);
    if (writes) counts->written++, counts->bytes_written += all;
    else counts->read_back++;
    return TR_OK;
}

/* ---- opening ---- */

static int replica_open_batch(struct tr_replica *l)
{
    size_t given = 0;
    for (size_t i = 0; i < l->columns; i++) given += l->column[i].given ? l->column[i].chunk_bytes : 0;
    l->batch = tr_min_size(l->chunks, tr_max_size(AT_ONCE / tr_max_size(given, 1), 1));
    TR_TRY(TR_NEW(&l->list, l->batch));
    TR_TRY(TR_NEW(&l->chosen, l->batch));
    TR_TRY(TR_NEW(&l->slot, l->batch));
    TR_TRY(TR_NEW(&l->given_to, l->batch));
    return TR_NEW(&l->spare, l->batch * given);
}

static void replica_describe(const struct tr_replica *l)
{
    static const char *const replaced[] = {"lru", "fifo", "random"};
    static const char *const updates[] = {"under locks", "atomic", "plain"};
    char memory[64] = "all at once";
    if (l->limited)
        snprintf(memory, sizeof memory, "%zu in memory, %s makes room", l->frames, replaced[l->replace]);
    tr_say(l->tr, "local model:   %s, %zu chunks of %llu keys and %zu bytes, %s; updates %s",
           l->model == TR_LOCAL_DEMAND ? "on demand" : "integral", l->chunks, 1ull << l->shift,
           l->frame_bytes, memory, updates[l->mode]);
}

static int replica_open(struct tr_replica *l, const tr_replica_options *options)
{
    tr_context *tr = l->tr;
    uint64_t shared = options->shared;
    TR_TRY(tr_agree(tr, replica_open_columns(l, options)));
    TR_TRY(tr_agree(tr, replica_choose_sizes(l, options->chunk)));
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_MAX, TR_I64, &shared, 1));
    size_t bytes = tr->node_rank == 0 ? replica_lay_out(l, shared, NULL) : 0;
    TR_TRY(tr_agree(tr, tr_shm_open(tr, tr->node, bytes, true, &l->memory)));
    replica_lay_out(l, shared, l->memory.part[0].at);
    TR_TRY(replica_open_window(l));
    if (l->limited) {
        if (tr->node_rank == 0) tr_rng_seed(&l->head->random, tr->job->seed, (uint64_t)tr->rank, 0);
        /* Without a name, once all have it open: so it goes with the last of them. */
        char path[PATH_MAX];
        bool makes = l->tr->node_rank == 0;
        l->folder = getenv("TMPDIR");
        if (!l->folder || !*l->folder) l->folder = "/tmp";
        int status = makes ? replica_make_file(l, path, sizeof path) : TR_OK;
        int told = tr_broadcast(l->tr, TR_SET_NODE, 0, path, sizeof path);
        if (!makes) status = told == TR_OK ? replica_open_file(l, path) : told;
        status = tr_agree(l->tr, status);
        if (makes && *path) unlink(path);
        TR_TRY(status);
    }
    TR_TRY(tr_agree(tr, replica_open_batch(l)));
    replica_describe(l);
    return TR_OK;
}

int tr_replica_make(tr_context *tr, const tr_replica_options *options, struct tr_replica **replica)
{
    struct tr_replica *l = NULL;
    const tr_job *job = tr->job;
    int status = tr_agree(tr, TR_NEW(&l, 1));
    if (status != TR_OK) return free(l), status;
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
    status = replica_open(l, options);
    if (status != TR_OK) tr_replica_free(&l);
    else *replica = l;
    return status;
}

void tr_replica_free(struct tr_replica **replica)
{
    struct tr_replica *l = *replica;
    tr_window_close(l->tr, l->tr->world, "all ranks to close a local model", &l->window);
    tr_shm_close(&l->memory);
    if (l->file >= 0) close(l->file);
    void *arrays[] = {l->first_of, l->spare, l->list, l->chosen, l->slot, l->given_to};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(l);
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

/* ---- failures ---- */

int tr_replica_note(struct tr_replica *l, int status)
{
    int none = TR_OK;
    if (status == TR_OK || atomic_load(&l->head->failed) != TR_OK) return status;
    if (atomic_exchange(&l->head->noted, 1)) return status; /* another worker writes its text */
    snprintf(l->head->why, sizeof l->head->why, "%s", tr_error_text());
    atomic_compare_exchange_strong(&l->head->failed, &none, status);
    return status;
}

int tr_replica_failure(const struct tr_replica *l)
{
    int status = atomic_load(&l->head->failed);
    if (status == TR_OK) return TR_OK;
    if (*l->head->why) return tr_fail(status, "%s", l->head->why);
    return tr_fail(status, "table %s: another worker has failed while its local model was used",
                   l->table->name);
}

/* ---- by place ---- */

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

/* All chunks are here to stay, side by side. */
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
    _Static_assert(sizeof *l->chunk == TR_LOCK_STRIDE * sizeof(uint32_t), "a lock for each chunk");
}

size_t tr_replica_hold(tr_replica *l, size_t chunk)
{
    if (!l->astray) l->astray = tr_replica_note(l, tr_replica_get(l, chunk)) != TR_OK;
    return l->astray ? l->frames << l->shift : tr_replica_place(l, chunk);
}

void tr_replica_release(tr_replica *l, size_t chunk, bool changed)
{
    if (l->astray) return;
    if (changed) replica_note_change(&l->chunk[chunk].changed);
    tr_replica_let_go(l, chunk);
}

int tr_replica_status(const tr_replica *l)
{
    return l->astray ? tr_replica_failure(l) : TR_OK;
}

/* ---- by keys ---- */

/* Loops for one element type, of n keys of a chunk whose values begin at `at`: places are of keys, less `first`. `as` is
 * an unsigned integer of its size, which no processor reads or writes in halves. */
#define LOOPS(name, type, as)                                                                                \
    static void read_##name(const type *at, tr_key first, const tr_key *keys, size_t n, size_t width,        \
                            type *out)                                                                       \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            for (size_t j = 0; j < width; j++)                                                               \
                __atomic_load((const as *)(const void *)(at + (keys[i] - first) * width + j),                \
                              (as *)(void *)(out + i * width + j), __ATOMIC_RELAXED);                        \
    }                                                                                                        \
    static void add_##name(type *at, tr_key first, const tr_key *keys, size_t n, size_t width,               \
                           const type *delta, bool atomically)                                               \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            for (size_t j = 0; j < width; j++) {                                                             \
                type *to = at + (keys[i] - first) * width + j, by = delta[i * width + j], seen = *to, next;  \
                if (!atomically) {                                                                           \
                    *to = seen + by;                                                                         \
                    continue;                                                                                \
                }                                                                                            \
                do next = seen + by;                                                                         \
                while (!__atomic_compare_exchange(to, &seen, &next, false, __ATOMIC_RELAXED,                 \
                                                  __ATOMIC_RELAXED));                                        \
            }                                                                                                \
    }
LOOPS(f32, float, uint32_t)
LOOPS(f64, double, uint64_t)
LOOPS(i32, int32_t, uint32_t)
LOOPS(i64, int64_t, uint64_t)
#undef LOOPS

/* What a call does: to `out`, or from `delta`; the other is NULL. */
struct call {
    const tr_key *keys;
    size_t n;
    char *out;
    const char *delta;
};

/* Keys number `from` to `to` - 1 of the call, whose values begin at `at` with key `first`. */
static void replica_work(const struct tr_replica *l, const struct call *c, void *at, tr_key first,
                         size_t from, size_t to)
{
    size_t width = l->table->width, offset = from * l->column[0].key_bytes;
    const tr_key *keys = c->keys + from;
    bool atomically = l->mode == TR_UPDATE_ATOMIC;
#define WORK(name)                                                                                           \
    if (c->out) read_##name(at, first, keys, to - from, width, (void *)(c->out + offset));                   \
    else add_##name(at, first, keys, to - from, width, (const void *)(c->delta + offset), atomically);       \
    return
    switch (l->table->dtype) {
    case TR_F32: WORK(f32);
    case TR_F64: WORK(f64);
    case TR_I32: WORK(i32);
    case TR_I64: WORK(i64);
    }
#undef WORK
}

/* The end of those keys from i on that lie in the chunk. */
static size_t replica_end_of_chunk(const struct tr_replica *l, const tr_key *keys, size_t i, size_t n,
                                   size_t chunk)
{
    while (i < n && keys[i] >> l->shift == chunk) i++;
    return i;
}

static int replica_check_keys(const struct tr_replica *l, const tr_key *keys, size_t n)
{
    tr_key most = 0;
    for (size_t i = 0; i < n; i++) most = keys[i] > most ? keys[i] : most;
    if (most < l->table->keys) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "table %s: there is no key %llu in its local model, but %llu keys",
                   l->table->name, (unsigned long long)most, (unsigned long long)l->table->keys);
}

static int replica_call(struct tr_replica *l, const struct call *c)
{
    if (!l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is not taken: see tr_replica_take()",
                       l->table->name);
    TR_TRY(replica_check_keys(l, c->keys, c->n));
    if (l->mode == TR_UPDATE_LOCKED || !replica_is_whole(l)) {
        TR_TRY(tr_replica_bring_ahead(l, c->keys, c->n));
        for (size_t i = 0, end; i < c->n; i = end) {
            size_t chunk = (size_t)(c->keys[i] >> l->shift);
            TR_TRY(tr_replica_get(l, chunk));
            end = replica_end_of_chunk(l, c->keys, i, c->n, chunk);
            char *at = l->column[0].values + l->chunk[chunk].frame * l->column[0].chunk_bytes;
            replica_work(l, c, at, tr_replica_first_key(l, chunk), i, end);
            if (c->delta) replica_note_change(&l->chunk[chunk].changed);
            tr_replica_let_go(l, chunk);
        }
        return TR_OK;
    }
    if (c->delta) replica_note_change(&l->head->all_changed);
    tr_replica_own_counts(l)->hits++;
    replica_work(l, c, l->column[0].values, 0, 0, c->n);
    return TR_OK;
}

int tr_replica_read(tr_replica *l, const tr_key *keys, size_t n, void *out)
{
    if (l->idle) return memset(out, 0, n * l->column[0].key_bytes), TR_OK;
    return tr_replica_note(l, replica_call(l, &(struct call){.keys = keys, .n = n, .out = out}));
}

int tr_replica_add(tr_replica *l, const tr_key *keys, size_t n, const void *delta)
{
    if (l->idle) return TR_OK;
    return tr_replica_note(l, replica_call(l, &(struct call){.keys = keys, .n = n, .delta = delta}));
}
