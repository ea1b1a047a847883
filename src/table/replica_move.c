#include "table/replica.h"

#include <stdlib.h>
#include <string.h>

#include "table/sync.h"
#include "job/job.h"
#include "table/view.h"
#include "table/storage.h"

/* ======== moving ======== */

/* The ways of a replica's values: from and to the tables, and directly from another node. */

/* ---- some chunks of one array, from or to its table ---- */

struct move {
    struct tr_replica *replica;
    struct tr_table *table;
    const uint32_t *chunks, *slots; /* n chunks; the values of chunk i are those of slot i behind `values` */
    size_t n;
    char *values;
    uint32_t servers;           /* 0: this rank reaches all of them directly */
    struct tr_segment *segment; /* by server: what lies there, as runs */
    struct tr_channel *channel; /* by server */
    char *packed;               /* values to be added */
};

/* Units of the table that follow each other where they lie, and in memory. */
struct stretch {
    uint32_t server;
    struct tr_run run;
};

/* Goes through all stretches of a move; begins with zeros. In a table whose rows are cut, units of a row are not
 * neighbours, and each is a stretch. */
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

static bool move_reaches_all(const struct tr_table *t)
{
    for (uint32_t s = 0; s < t->partition.servers; s++)
        if (!t->share[s]) return false;
    return true;
}

/* Lists the stretches at servers of other nodes, in two passes: count, then fill. */
static int move_open_far(struct move *m)
{
    struct tr_table *t = m->table;
    struct stretch s;
    uint32_t servers = t->partition.servers;
    if (move_reaches_all(t)) return TR_OK;
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

/* Packs what goes to a server, and starts to add it there; bytes. */
static size_t move_accumulate(struct tr_channel *c, const char *delta, char *packed)
{
    struct tr_table *t = c->table;
    const struct tr_segment *s = c->segment;
    size_t bytes = 0;
    for (uint32_t r = 0; r < s->runs; r++) {
        size_t length = s->run[r].length * t->unit_bytes;
        memcpy(packed + bytes, delta + s->run[r].local * t->unit_bytes, length);
        bytes += length;
    }
    MPI_Raccumulate(packed, (int)(s->n * t->unit_width), tr_dtype_mpi(t->dtype), c->rank, 0, 1, c->there,
                    MPI_SUM, t->window, &c->get);
    return bytes;
}

static int move_start_to_add(struct move *m)
{
    TR_TRY(move_open_far(m));
    if (m->servers == 0) return TR_OK;
    TR_TRY(TR_NEW(&m->packed, move_bytes_of(m)));
    char *packed = m->packed;
    for (uint32_t s = 0; s < m->servers; s++)
        if (m->segment[s].n > 0) packed += move_accumulate(&m->channel[s], m->values, packed);
    return TR_OK;
}

/* Nobody else adds to these keys meanwhile, so that adding here and accumulating elsewhere do not meet. A request tells
 * that its values have left; that they are complete at their target, MPI tells only by a flush. */
static int move_add(struct move *m)
{
    struct tr_table *t = m->table;
    struct stretch s;
    int status = move_start_to_add(m);
    for (struct stretches at = {.piece = 0}; status == TR_OK && stretch_next(m, &at, &s);) {
        struct tr_run run = s.run;
        struct tr_segment segment = {.n = run.length, .runs = 1, .run = &run};
        if (t->share[s.server]) tr_share_add_view(t, s.server, &segment, m->values);
    }
    if (status == TR_OK) status = move_end_far(m);
    for (uint32_t i = 0; i < m->servers && status == TR_OK; i++)
        if (m->segment[i].n > 0) MPI_Win_flush(m->channel[i].rank, t->window);
    uint64_t bytes = move_bytes_of(m);
    move_close(m);
    t->tr->tables->traffic.pushes++;
    t->tr->tables->traffic.bytes_pushed += bytes;
    tr_replica_own_counts(m->replica)->given += m->n;
    tr_replica_own_counts(m->replica)->bytes_given += bytes;
    return status;
}

/* ---- taking ---- */

/* An array's part in these chunks, into its frames. */
static int replica_fetch_column(struct tr_replica *l, const struct tr_replica_column *c,
                                const uint32_t *chunks, size_t n)
{
    uint32_t first = l->chunk[chunks[0]].frame;
    for (size_t i = 0; i < n; i++)
        first = l->chunk[chunks[i]].frame < first ? l->chunk[chunks[i]].frame : first;
    for (size_t i = 0; i < n; i++) l->slot[i] = l->chunk[chunks[i]].frame - first;
    struct move m = {.replica = l,
                     .table = c->table,
                     .chunks = chunks,
                     .slots = l->slot,
                     .n = n,
                     .values = c->values + first * c->chunk_bytes};
    TR_TRY(move_fetch(&m));
    tr_replica_own_counts(l)->bytes_fetched += move_bytes_of(&m);
    return TR_OK;
}

int tr_replica_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n, unsigned arrays)
{
    for (size_t i = 0; i < l->columns; i++) {
        const struct tr_replica_column *c = &l->column[i];
        if (!(arrays >> i & 1)) continue;
        if (c->table) TR_TRY(replica_fetch_column(l, c, chunks, n));
        for (size_t k = 0; k < n && !c->table; k++)
            memset(c->values + l->chunk[chunks[k]].frame * c->chunk_bytes, 0, c->chunk_bytes);
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

/* The memory of all nodes is laid out in the same way, as far as arrays go. The node that has them need do nothing, so
 * that its ranks may rest or be at something else. */
static int replica_fetch_from(struct tr_replica *l, int node, int part, int parts)
{
    enum { AT_ONCE = 1 << 24 };
    size_t first = tr_replica_part(l, part, parts), end = tr_replica_part(l, part + 1, parts);
    size_t keys =
        tr_min_size(end << l->shift, l->table->keys) - tr_min_size(first << l->shift, l->table->keys);
    for (size_t i = 0; i < l->moves; i++) {
        char *at = l->column[i].values + first * l->column[i].chunk_bytes;
        size_t bytes = keys * l->column[i].key_bytes;
        for (size_t done = 0; done < bytes; done += AT_ONCE) {
            int n = (int)tr_min_size(bytes - done, AT_ONCE);
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

/* In place of n values, which begin as the table's, by how much they differ from `now`; and in the place of `now` what
 * adding that makes of them, as sums are rounded: node and table hold the same bits. Whether anything differs. */
#define DIFFER(name, type)                                                                                   \
    static bool differ_##name(size_t n, type *now, type *value)                                              \
    {                                                                                                        \
        bool some = false;                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                                     \
            type delta = now[i] - value[i];                                                                  \
            now[i] = value[i] + delta;                                                                       \
            value[i] = delta;                                                                                \
            some |= delta != 0;                                                                              \
        }                                                                                                    \
        return some;                                                                                         \
    }
DIFFER(f32, float)
DIFFER(f64, double)
DIFFER(i32, int32_t)
DIFFER(i64, int64_t)
#undef DIFFER

static bool replica_differ(enum tr_dtype dtype, size_t n, void *now, void *value)
{
    switch (dtype) {
    case TR_F32: return differ_f32(n, now, value);
    case TR_F64: return differ_f64(n, now, value);
    case TR_I32: return differ_i32(n, now, value);
    case TR_I64: return differ_i64(n, now, value);
    }
    return false;
}

/* Fetches what the tables have of the chunks in the list, each array's behind the one before; or adds what differs. */
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

/* What has been written to the file counts as stored before it counts as unchanged. */
static bool replica_is_changed(const struct tr_replica *l, size_t c, bool all)
{
    const struct tr_replica_chunk *chunk = &l->chunk[c];
    return l->finish || (all && tr_replica_is_here(chunk)) || atomic_load(&chunk->changed) ||
           atomic_load(&chunk->stored);
}

static int replica_give_part(struct tr_replica *l, int part, int parts, bool gives)
{
    bool all = atomic_load(&l->head->all_changed);
    size_t n = 0;
    for (size_t c = tr_replica_part(l, part, parts), to = tr_replica_part(l, part + 1, parts); c < to; c++) {
        if (replica_is_changed(l, c, all)) l->list[n++] = (uint32_t)c;
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
    struct tr_replica *l;
    TR_TRY(tr_replica_make(tr, options, &l));
    int status = tr_agree(tr, tr_poll_add(tr, replica_watch, l));
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
    if (!*replica) return;
    tr_poll_remove((*replica)->tr, replica_watch, *replica);
    tr_replica_free(replica);
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

static int replica_check_workers(const struct tr_replica *l)
{
    const tr_context *tr = l->tr;
    for (int w = 0; w < tr_worker_set_size(tr->active); w++)
        if (!tr_same_node(tr, tr_worker_rank(tr, tr->active, w)))
            return tr_fail(
                TR_ERR_CONFIG,
                "table %s: the workers of a stage with a local model must be of one node, but worker "
                "%d is of another: see ranks.groups and ranks.group_size",
                l->table->name, w);
    return TR_OK;
}

static int replica_take_part(struct tr_replica *l, const tr_worker *me)
{
    if (l->tr->status != TR_OK && atomic_load(&l->head->failed) != TR_OK)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model was left by a stage that has failed",
                       l->table->name);
    TR_TRY(replica_check_workers(l));
    tr_replica_clear(l, me->worker, me->workers, false);
    if (l->model != TR_LOCAL_INTEGRAL) return TR_OK;
    TR_TRY(replica_barrier(l, me)); /* before absent chunks are counted down */
    return replica_fetch_part(l, me->worker, me->workers, UINT32_MAX);
}

static int replica_take_part_from(struct tr_replica *l, const tr_worker *me, int group, unsigned again)
{
    const tr_context *tr = l->tr;
    int node = tr->node_of[group < 0 ? tr->rank : tr->layout.worker_rank[group * tr->layout.group_size]];
    TR_TRY(replica_check_workers(l));
    if (l->model != TR_LOCAL_INTEGRAL)
        return tr_fail(TR_ERR_INTERNAL, "table %s: a local model on demand goes through its table",
                       l->table->name);
    tr_replica_clear(l, me->worker, me->workers, true);
    if (node != tr->node_of[tr->rank]) TR_TRY(replica_fetch_from(l, node, me->worker, me->workers));
    else if (again) TR_TRY(replica_fetch_part(l, me->worker, me->workers, again));
    return TR_OK;
}

static int replica_end_taking(struct tr_replica *l, const tr_worker *me, double begin, int status)
{
    status = tr_replica_note(l, status);
    if (status == TR_OK) status = replica_barrier(l, me);
    l->idle = status != TR_OK && replica_is_left(l);
    if (l->idle) status = TR_OK;
    l->taken = status == TR_OK;
    l->astray = false;
    l->tr->tables->traffic.pull_seconds += tr_now() - begin;
    tr_wait_end(l->tr->tables);
    return status;
}

int tr_replica_take(tr_replica *l, tr_worker *me)
{
    double begin = tr_now();
    tr_wait_begin(l->tr->tables);
    return replica_end_taking(l, me, begin, replica_take_part(l, me));
}

int tr_replica_take_from(tr_replica *l, tr_worker *me, int group, unsigned again)
{
    double begin = tr_now();
    tr_wait_begin(l->tr->tables);
    return replica_end_taking(l, me, begin, replica_take_part_from(l, me, group, again));
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
    if (status == TR_OK) status = tr_replica_note(l, replica_give_part(l, me->worker, me->workers, gives));
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
