#define _GNU_SOURCE
#include "table/replica.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/job.h"
#include "table/codec.h"
#include "table/storage.h"
#include "table/sync.h"
#include "table/view.h"
#include "trireme/collective.h"

/* Keys of a chunk without a job. */
enum { CHUNK = 1024 };
/* Bytes of a chunk, if it has more keys than one. */
enum { LARGEST = 1 << 27 };
/* Bytes of a transfer: large enough to hide the latency of a round trip. */
enum { AT_ONCE = 1 << 22 };

/* ---- memory ---- */

/* Returns the next array in one block of memory, aligned to a cache line; NULL if memory is NULL. */
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

/* Notes the arrays, and chooses the number of chunks, and of chunks in memory. */
static int replica_choose_sizes(struct tr_replica *l, const tr_replica_options *options)
{
    const struct tr_table *t = l->table;
    const tr_job *job = l->tr->job;
    uint64_t memory = job ? job->local.memory : 0, keys = options->chunk;
    size_t bytes = 0;
    if (keys == 0) keys = job ? job->local.chunk : CHUNK;
    l->columns = options->arrays;
    for (size_t i = 0; i < options->arrays; i++) {
        const tr_replica_array *array = &options->array[i];
        const struct tr_table *copied = array->table;
        struct tr_replica_column *c = &l->column[i];
        *c = (struct tr_replica_column){
            .table = array->table, .given = array->given, .key_bytes = array->bytes};
        if (copied && (copied->hash || copied->sparse || copied->use))
            return tr_fail(TR_ERR_CONFIG,
                           "table %s: a local model needs dense storage and no server function",
                           copied->name);
        if (copied) c->key_bytes = copied->width * tr_dtype_size(copied->dtype);
        bytes += c->key_bytes;
    }
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

/* ---- the file ---- */

/* Opens the file of chunks that are not in memory. It has no name once all ranks of the node have opened it, so it is removed when
 * the last of them ends. Collective over all ranks. */
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
    if (!makes && status == TR_OK && *path) { /* no path: the first rank reports the error */
        l->file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (l->file < 0)
            status = tr_fail(TR_ERR_NO_OUTPUT, "%s: the file of a local model cannot be opened: %s", path,
                             strerror(errno));
    }
    status = tr_agree(l->tr, status);
    if (makes && *path) unlink(path);
    return status;
}

int tr_replica_transfer(struct tr_replica *l, bool writes, size_t chunk)
{
    size_t offset = chunk * l->frame_bytes, keys = tr_replica_keys_of(l, chunk), all = 0;
    for (size_t i = 0; i < l->columns; i++) {
        const struct tr_replica_column *c = &l->column[i];
        char *at = c->values + l->chunk[chunk].frame * c->chunk_bytes;
        for (size_t done = 0, bytes = keys * c->key_bytes;
             done < bytes;) { /* one call may transfer a part only */
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
    tr_replica_counts *counts = tr_replica_own_counts(l);
    if (writes) counts->written++, counts->bytes_written += all;
    else counts->read_back++;
    return TR_OK;
}

/* ---- opening ---- */

static int replica_open(struct tr_replica *l, const tr_replica_options *options)
{
    static const char *const replaced[] = {"lru", "fifo", "random"};
    static const char *const updates[] = {"under locks", "atomic", "plain"};
    tr_context *tr = l->tr;
    uint64_t shared = options->shared;
    TR_TRY(tr_agree(tr, replica_choose_sizes(l, options)));
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_MAX, TR_I64, &shared, 1));
    size_t bytes = tr->node_rank == 0 ? replica_lay_out(l, shared, NULL) : 0;
    TR_TRY(tr_agree(tr, tr_shm_open(tr, tr->node, bytes, true, &l->memory)));
    const struct tr_shm_part *memory = &l->memory.part[0];
    replica_lay_out(l, shared, memory->at);
    if (l->moves > 0 && tr->layout.nodes > 1) {
        /* opens the memory of every node to the ranks of all others */
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
    int status = TR_NEW(&l->list, l->batch);
    if (status == TR_OK) status = TR_NEW(&l->chosen, l->batch);
    if (status == TR_OK) status = TR_NEW(&l->slot, l->batch);
    if (status == TR_OK) status = TR_NEW(&l->given_to, l->batch);
    if (status == TR_OK) status = TR_NEW(&l->spare, l->batch * given);
    TR_TRY(tr_agree(tr, status));
    char frames[64] = "all in memory";
    if (l->limited)
        snprintf(frames, sizeof frames, "%zu in memory, %s makes room", l->frames, replaced[l->replace]);
    tr_say(tr, "local model:   %s, %zu chunks of %llu keys and %zu bytes, %s; updates %s",
           l->model == TR_LOCAL_DEMAND ? "on demand" : "integral", l->chunks, 1ull << l->shift,
           l->frame_bytes, frames, updates[l->mode]);
    return TR_OK;
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

/* Reports a failure of this worker to the other workers of the node; returns the status. */
static int replica_note(struct tr_replica *l, int status)
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

/* All chunks are in memory, contiguously, and are never evicted. */
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
    if (!l->astray) l->astray = replica_note(l, tr_replica_get(l, chunk)) != TR_OK;
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

/* A call reads to `out` or adds `delta`; the other is NULL. */
struct call {
    const tr_key *keys;
    size_t n;
    void *out;
    const void *delta;
};

/* Keys number `from` to `to` - 1 of the call, whose values begin at `at` with key `first`. */
static void replica_work(const struct tr_replica *l, const struct call *c, void *at, tr_key first,
                         size_t from, size_t to)
{
    const size_t width = l->table->width;
    const tr_key *keys = c->keys;
    const bool atomically = l->mode == TR_UPDATE_ATOMIC, reads = c->out != NULL;
    TR_FOR_TYPE(l->table->dtype, {
        T *values = at, *out = c->out;
        const T *delta = c->delta;
        for (size_t i = from; i < to && reads; i++)
            for (size_t j = 0; j < width; j++)
                __atomic_load(values + (keys[i] - first) * width + j, out + i * width + j, __ATOMIC_RELAXED);
        for (size_t i = from; i < to && !reads; i++)
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

static int replica_call(struct tr_replica *l, const struct call *c)
{
    if (!l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is not taken: see tr_replica_take()",
                       l->table->name);
    tr_key most = 0;
    for (size_t i = 0; i < c->n; i++) most = c->keys[i] > most ? c->keys[i] : most;
    if (most >= l->table->keys)
        return tr_fail(TR_ERR_INTERNAL, "table %s: there is no key %llu in its local model, but %llu keys",
                       l->table->name, (unsigned long long)most, (unsigned long long)l->table->keys);
    if (l->mode == TR_UPDATE_LOCKED || !replica_is_whole(l)) {
        TR_TRY(tr_replica_bring_ahead(l, c->keys, c->n));
        for (size_t i = 0, end; i < c->n; i = end) {
            size_t chunk = (size_t)(c->keys[i] >> l->shift);
            TR_TRY(tr_replica_get(l, chunk));
            for (end = i; end < c->n && c->keys[end] >> l->shift == chunk;) end++;
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
    return replica_note(l, replica_call(l, &(struct call){.keys = keys, .n = n, .out = out}));
}

int tr_replica_add(tr_replica *l, const tr_key *keys, size_t n, const void *delta)
{
    if (l->idle) return TR_OK;
    return replica_note(l, replica_call(l, &(struct call){.keys = keys, .n = n, .delta = delta}));
}

/* ======== moving ======== */

/* Transfers of values from and to the tables, and directly from another node. */

/* ---- some chunks of one array, from or to its table ---- */

struct move {
    struct tr_replica *replica;
    struct tr_table *table;
    const uint32_t *chunks, *slots; /* n chunks; the values of chunk i are those of slot i behind `values` */
    size_t n;
    char *values;
    uint32_t servers;           /* 0: this rank reaches all of them directly */
    struct tr_segment *segment; /* by server: its units, as runs */
    struct tr_channel *channel; /* by server */
    char *packed;               /* values to be added */
};

/* Units of the table that are contiguous in the share and in memory. */
struct stretch {
    uint32_t server;
    struct tr_run run;
};

/* Iterator over all stretches of a move; starts as zeros. In a table whose rows are cut, units of a row are not neighbours, and
 * each is a stretch. */
struct stretches {
    struct tr_walker walker;
    size_t chunk, key; /* index of the chunk in the move, and of the key in the chunk */
    uint32_t piece;
};

static bool stretch_next(const struct move *m, struct stretches *at, struct stretch *s)
{
    const struct tr_replica *l = m->replica;
    const struct tr_table *t = m->table;
    if (at->chunk == m->n) return false;
    size_t chunk = m->chunks[at->chunk], keys = tr_replica_keys_of(l, chunk);
    uint64_t unit = at->piece * t->keys + tr_replica_first_key(l, chunk) + at->key;
    at->walker.partition = &t->partition;
    struct tr_location here = tr_walk_to(&at->walker, unit);
    size_t length = t->pieces > 1 ? 1 : tr_min_size(at->walker.end - unit, keys - at->key);
    size_t local = (((size_t)m->slots[at->chunk] << l->shift) + at->key) * t->pieces + at->piece;
    *s = (struct stretch){here.server, {(uint32_t)local, here.position, (uint32_t)length}};
    at->key += length;
    if (at->key < keys) return true;
    at->key = 0;
    if (++at->piece < t->pieces) return true;
    at->piece = 0;
    at->chunk++;
    return true;
}

/* Lists the stretches at servers of other nodes, in two passes: count, then fill. */
static int move_open_far(struct move *m)
{
    struct tr_table *t = m->table;
    struct stretch s;
    uint32_t servers = t->partition.servers;
    bool near = true;
    for (uint32_t i = 0; i < servers; i++) near = near && t->share[i];
    if (near) return TR_OK;
    TR_TRY(TR_NEW(&m->segment, servers));
    TR_TRY(TR_NEW(&m->channel, servers));
    m->servers = servers;
    for (struct stretches at = {.piece = 0}; stretch_next(m, &at, &s);)
        if (!t->share[s.server]) m->segment[s.server].runs++;
    for (uint32_t i = 0; i < servers; i++) {
        TR_TRY(TR_NEW(&m->segment[i].run, m->segment[i].runs));
        m->segment[i].runs = 0;
        m->channel[i] = tr_channel_of(t, i, &m->segment[i], 0);
        m->channel[i].route = TR_ROUTE_GET;
    }
    for (struct stretches at = {.piece = 0}; stretch_next(m, &at, &s);) {
        struct tr_segment *segment = &m->segment[s.server];
        if (t->share[s.server]) continue;
        segment->run[segment->runs++] = s.run;
        segment->n += s.run.length;
    }
    for (uint32_t i = 0; i < servers; i++)
        if (m->segment[i].n > 0) TR_TRY(tr_channel_open_types(&m->channel[i]));
    return TR_OK;
}

static uint64_t move_bytes_of(const struct move *m)
{
    uint64_t keys = 0;
    for (size_t i = 0; i < m->n; i++) keys += tr_replica_keys_of(m->replica, m->chunks[i]);
    return keys * m->table->width * tr_dtype_size(m->table->dtype);
}

static bool move_is_done(const struct move *m)
{
    bool all = true;
    for (uint32_t s = 0; s < m->servers; s++) all = tr_request_done(&m->channel[s].get) && all;
    return all;
}

static int move_end_far(const struct move *m)
{
    TR_WAIT_UNTIL(m->table->tr, move_is_done(m), "the servers of table %s to move a local model",
                  m->table->name);
    return TR_OK;
}

static void move_close(struct move *m)
{
    for (uint32_t s = 0; s < m->servers; s++) {
        tr_channel_close(&m->channel[s]);
        free(m->segment[s].run);
    }
    free(m->segment);
    free(m->channel);
    free(m->packed);
}

static int move_fetch(struct move *m)
{
    struct tr_table *t = m->table;
    struct stretch s;
    struct tr_traffic *traffic = &t->tr->tables->traffic;
    int status = move_open_far(m);
    for (uint32_t i = 0; i < m->servers && status == TR_OK; i++)
        tr_channel_read(&m->channel[i], m->values, -1);
    for (struct stretches at = {.piece = 0}; status == TR_OK && stretch_next(m, &at, &s);) {
        if (!t->share[s.server]) continue;
        size_t bytes = s.run.length * t->unit_bytes;
        memcpy(m->values + s.run.local * t->unit_bytes,
               (const char *)t->share[s.server] + s.run.position * t->unit_bytes, bytes);
        traffic->bytes_pulled += bytes;
    }
    if (status == TR_OK) status = move_end_far(m);
    move_close(m);
    traffic->pulls++;
    return status;
}

/* No other rank adds to these keys meanwhile, so adds in shared memory and accumulates at other nodes do not meet. */
static int move_add(struct move *m)
{
    struct tr_table *t = m->table;
    struct stretch s;
    uint64_t bytes = move_bytes_of(m);
    int status = move_open_far(m);
    if (status == TR_OK && m->servers > 0) status = TR_NEW(&m->packed, bytes);
    char *packed = m->packed;
    for (uint32_t i = 0; i < m->servers && status == TR_OK; i++) {
        struct tr_channel *c = &m->channel[i];
        const struct tr_segment *segment = c->segment;
        char *first = packed;
        if (segment->n == 0) continue;
        for (uint32_t r = 0; r < segment->runs; r++) {
            size_t length = segment->run[r].length * t->unit_bytes;
            memcpy(packed, m->values + segment->run[r].local * t->unit_bytes, length);
            packed += length;
        }
        MPI_Raccumulate(first, (int)(segment->n * t->unit_width), tr_dtype_mpi(t->dtype), c->rank, 0, 1,
                        c->there, MPI_SUM, t->window, &c->get);
    }
    for (struct stretches at = {.piece = 0}; status == TR_OK && stretch_next(m, &at, &s);) {
        struct tr_run run = s.run;
        struct tr_segment segment = {.n = run.length, .runs = 1, .run = &run};
        if (t->share[s.server]) tr_share_add_view(t, s.server, &segment, m->values);
    }
    if (status == TR_OK) status = move_end_far(m);
    /* completion of a request means that the values have left; only a flush means that they have arrived */
    for (uint32_t i = 0; i < m->servers && status == TR_OK; i++)
        if (m->segment[i].n > 0) MPI_Win_flush(m->channel[i].rank, t->window);
    move_close(m);
    t->tr->tables->traffic.pushes++;
    t->tr->tables->traffic.bytes_pushed += bytes;
    tr_replica_own_counts(m->replica)->given += m->n;
    tr_replica_own_counts(m->replica)->bytes_given += bytes;
    return status;
}

/* ---- taking ---- */

int tr_replica_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n, unsigned arrays)
{
    uint32_t first = UINT32_MAX; /* frame */
    for (size_t i = 0; i < n; i++)
        if (l->chunk[chunks[i]].frame < first) first = l->chunk[chunks[i]].frame;
    for (size_t i = 0; i < n; i++) l->slot[i] = l->chunk[chunks[i]].frame - first;
    for (size_t i = 0; i < l->columns; i++) {
        const struct tr_replica_column *c = &l->column[i];
        struct move m = {.replica = l,
                         .table = c->table,
                         .chunks = chunks,
                         .slots = l->slot,
                         .n = n,
                         .values = c->values + first * c->chunk_bytes};
        if (!(arrays >> i & 1)) continue;
        for (size_t k = 0; k < n && !c->table; k++)
            memset(m.values + l->slot[k] * c->chunk_bytes, 0, c->chunk_bytes);
        if (!c->table) continue;
        TR_TRY(move_fetch(&m));
        tr_replica_own_counts(l)->bytes_fetched += move_bytes_of(&m);
    }
    for (size_t k = 0; k < n && l->fetched && arrays == UINT32_MAX; k++)
        l->fetched(l->state, tr_replica_first_key(l, chunks[k]), tr_replica_keys_of(l, chunks[k]),
                   tr_replica_place(l, chunks[k]));
    tr_replica_own_counts(l)->fetched += n;
    return TR_OK;
}

static int replica_fetch_part(struct tr_replica *l, int part, int parts, unsigned arrays)
{
    size_t to = tr_replica_part(l, part + 1, parts);
    for (size_t c = tr_replica_part(l, part, parts), n; c < to; c += n) {
        n = tr_min_size(l->batch, to - c);
        for (size_t i = 0; i < n; i++) l->list[i] = (uint32_t)(c + i);
        TR_TRY(tr_replica_fetch(l, l->list, n, arrays));
        for (size_t i = 0; i < n && arrays == UINT32_MAX; i++) {
            atomic_store_explicit(&l->chunk[c + i].here, 1, memory_order_relaxed);
            atomic_fetch_sub(&l->head->absent, 1);
        }
    }
    return TR_OK;
}

/* Copies a part of the arrays from another node by RMA: arrays have the same layout on all nodes. The other node takes no part. */
static int replica_fetch_from(struct tr_replica *l, int node, int part, int parts)
{
    enum { PIECE = 1 << 24 };
    size_t first = tr_replica_part(l, part, parts), end = tr_replica_part(l, part + 1, parts);
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
        tr_replica_own_counts(l)->bytes_moved += bytes;
    }
    if (keys > 0 && l->fetched) l->fetched(l->state, first << l->shift, keys, first << l->shift);
    return TR_OK;
}

/* ---- giving ---- */

/* Replaces n values, which are the table's at first, by their differences from `now`, and `now` by the result of adding these: sums
 * are rounded, and node and table must hold the same bits. Returns whether there is any difference. */
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

/* Fetches the tables' values of the chunks in the list to `spare`, array after array; or adds the differences to the tables. */
static int replica_move_batch(struct tr_replica *l, size_t n, bool adds)
{
    char *spare = l->spare;
    for (size_t i = 0; i < l->columns; i++) {
        const struct tr_replica_column *c = &l->column[i];
        struct move m = {
            .replica = l, .table = c->table, .chunks = l->chosen, .slots = l->slot, .values = spare};
        if (!c->given) continue;
        for (size_t k = 0; k < n; k++) {
            if (adds && !(l->given_to[k] >> i & 1)) continue;
            l->chosen[m.n] = l->list[k];
            l->slot[m.n++] = (uint32_t)k;
        }
        if (m.n > 0) TR_TRY(adds ? move_add(&m) : move_fetch(&m));
        spare += l->batch * c->chunk_bytes;
    }
    return TR_OK;
}

static int replica_give_batch(struct tr_replica *l, size_t n, bool gives)
{
    if (n == 0) return TR_OK;
    if (gives) TR_TRY(replica_move_batch(l, n, false));
    for (size_t k = 0; k < n; k++) {
        /* finish chunk k of the list, and find the changes in it */
        size_t c = l->list[k];
        char *spare = l->spare;
        tr_replica_counts *counts = tr_replica_own_counts(l);
        uint64_t hits = counts->hits;
        TR_TRY(tr_replica_get(l, c));
        counts->hits = hits; /* this visit is not one of a worker's */
        size_t place = tr_replica_place(l, c), keys = tr_replica_keys_of(l, c);
        if (l->finish) l->finish(l->state, tr_replica_first_key(l, c), keys, place);
        l->given_to[k] = 0;
        for (size_t i = 0; i < l->columns && gives; i++) {
            const struct tr_replica_column *col = &l->column[i];
            if (!col->given) continue;
            if (replica_differ(col->table->dtype, keys * col->table->width,
                               col->values + place * col->key_bytes, spare + k * col->chunk_bytes))
                l->given_to[k] |= 1u << i;
            spare += l->batch * col->chunk_bytes;
        }
        atomic_store(&l->chunk[c].stored, 0);
        atomic_store(&l->chunk[c].changed, 0);
        tr_replica_let_go(l, c);
    }
    return gives ? replica_move_batch(l, n, true) : TR_OK;
}

static int replica_give_part(struct tr_replica *l, int part, int parts, bool gives)
{
    bool all = atomic_load(&l->head->all_changed);
    size_t n = 0;
    for (size_t c = tr_replica_part(l, part, parts), to = tr_replica_part(l, part + 1, parts); c < to; c++) {
        /* a chunk that has been written to the file counts as stored before it counts as unchanged */
        const struct tr_replica_chunk *chunk = &l->chunk[c];
        if (l->finish || (all && tr_replica_is_here(chunk)) || atomic_load(&chunk->changed) ||
            atomic_load(&chunk->stored))
            l->list[n++] = (uint32_t)c;
        if (n < l->batch) continue;
        TR_TRY(replica_give_batch(l, n, gives));
        n = 0;
    }
    return replica_give_batch(l, n, gives);
}

/* ======== taking and giving ======== */

/* A replica is taken and given by all workers of a stage together (trireme/replica.h). They wait for each other at a barrier in
 * shared memory. A worker that fails continues with its clocks, but does not compute, and would never reach the barrier: its polls
 * find that it is at a later clock than the workers that wait, and release them. */

static int replica_watch(void *replica, int *did)
{
    struct tr_replica *l = replica;
    const struct tr_sync *s = l->tr->sync;
    struct tr_replica_head *head = l->head;
    (void)did;
    if (l->waiting || atomic_load_explicit(&head->arrived, memory_order_acquire) == 0) return TR_OK;
    if (!s->running || !tr_works(l->tr) || s->now <= atomic_load(&head->clock)) return TR_OK;
    int none = TR_OK;
    atomic_compare_exchange_strong(&head->failed, &none, TR_ERR_PEER);
    return TR_OK;
}

int tr_replica_open_with(tr_context *tr, const tr_replica_options *options, tr_replica **replica)
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
    if (status == TR_OK) status = tr_agree(tr, tr_poll_add(tr, replica_watch, l));
    if (status != TR_OK) tr_replica_close(&l);
    else *replica = l;
    return status;
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
    void *arrays[] = {l->first_of, l->spare, l->list, l->chosen, l->slot, l->given_to};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(l);
    *replica = NULL;
}

/* ---- waiting for each other ---- */

/* Another worker has failed outside of the replica. It reports its own error when the stage ends, which errors of the waiting workers
 * must not replace. Until then reads return zeros, and changes are dropped. */
static bool replica_is_left(const struct tr_replica *l)
{
    return atomic_load(&l->head->failed) != TR_OK && !*l->head->why;
}

static int replica_wait(struct tr_replica *l, uint32_t round)
{
    struct tr_replica_head *head = l->head;
    TR_WAIT_UNTIL(l->tr,
                  atomic_load_explicit(&head->round, memory_order_acquire) != round ||
                      atomic_load(&head->failed) != TR_OK,
                  "the other workers of the node that share table %s", l->table->name);
    return tr_replica_failure(l);
}

static int replica_barrier(struct tr_replica *l, const tr_worker *me)
{
    struct tr_replica_head *head = l->head;
    uint32_t round = atomic_load(&head->round);
    TR_TRY(tr_replica_failure(l));
    atomic_store(&head->clock, l->tr->sync->now);
    l->waiting = true;
    int status = TR_OK;
    if (atomic_fetch_add(&head->arrived, 1) + 1 == (uint32_t)me->workers) {
        atomic_store(&head->arrived, 0);
        atomic_store(&head->round, round + 1);
    } else {
        status = replica_wait(l, round);
    }
    l->waiting = false;
    return status;
}

/* ---- taking and giving ---- */

/* Starts the use of a replica: of the tables' values or, direct, of the replica of another node. */
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
        tr_replica_clear(l, me->worker, me->workers, direct);
        if (direct && node != tr->node_of[tr->rank])
            status = replica_fetch_from(l, node, me->worker, me->workers);
        else if (direct) status = again ? replica_fetch_part(l, me->worker, me->workers, again) : TR_OK;
        else if (l->model == TR_LOCAL_INTEGRAL) {
            status = replica_barrier(l, me); /* before absent chunks are counted down */
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
