/* The ways of a local model's values: from and to the table, from and to the node's file. */
#define _GNU_SOURCE
#include "table/channel.h"
#include "table/replica_parts.h"
#include "table/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the table ---- */

/* Some chunks that move, and where their values are. */
struct move {
    struct tr_replica *local;
    const uint32_t *chunks;
    size_t n;
    char *values;
    uint32_t servers;           /* 0: this rank reaches all of them directly */
    struct tr_segment *segment; /* by server: what lies there, as runs */
    struct tr_channel *channel; /* by server */
    char *packed;               /* what is added there */
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
    size_t chunk, key; /* of those that move, of its keys */
    uint32_t piece;
};

static bool next_stretch(const struct move *m, struct stretches *at, struct stretch *s)
{
    const struct tr_replica *l = m->local;
    const struct tr_table *t = l->table;
    if (at->chunk == m->n) return false;
    size_t chunk = m->chunks[at->chunk], keys = tr_replica_keys_of(l, chunk);
    uint64_t unit = at->piece * t->keys + tr_replica_first_key(l, chunk) + at->key;
    at->walker.partition = &t->partition;
    struct tr_location here = tr_walk_to(&at->walker, unit);
    size_t length = t->pieces > 1 ? 1 : tr_min_size(at->walker.end - unit, keys - at->key);
    size_t local = ((at->chunk << l->shift) + at->key) * t->pieces + at->piece;
    *s = (struct stretch){here.server, {(uint32_t)local, here.position, (uint32_t)length}};
    at->key += length;
    if (at->key < keys) return true;
    at->key = 0;
    if (++at->piece < t->pieces) return true;
    at->piece = 0;
    at->chunk++;
    return true;
}

/* What is done with a stretch that this rank reaches directly. */
typedef void near_fn(struct tr_table *t, const struct stretch *s, char *values);

static void copy_near(struct tr_table *t, const struct stretch *s, char *values)
{
    size_t bytes = s->run.length * t->unit_bytes;
    memcpy(values + s->run.local * t->unit_bytes,
           (const char *)t->share[s->server] + s->run.position * t->unit_bytes, bytes);
    t->tr->tables->traffic.bytes_pulled += bytes;
}

static void add_near(struct tr_table *t, const struct stretch *s, char *values)
{
    struct tr_run run = s->run;
    struct tr_segment segment = {.n = run.length, .runs = 1, .run = &run};
    tr_share_add_view(t, s->server, &segment, values);
}

static bool reaches_all(const struct tr_table *t)
{
    for (uint32_t s = 0; s < t->partition.servers; s++)
        if (!t->share[s]) return false;
    return true;
}

/* Lists the stretches at servers of other nodes, in two passes: count, then fill. */
static int open_far(struct move *m)
{
    struct tr_table *t = m->local->table;
    struct stretch s;
    uint32_t servers = t->partition.servers;
    TR_TRY(TR_NEW(&m->segment, servers));
    TR_TRY(TR_NEW(&m->channel, servers));
    m->servers = servers;
    for (struct stretches at = {.piece = 0}; next_stretch(m, &at, &s);)
        if (!t->share[s.server]) m->segment[s.server].runs++;
    for (uint32_t i = 0; i < servers; i++) {
        TR_TRY(TR_NEW(&m->segment[i].run, m->segment[i].runs));
        m->segment[i].runs = 0;
        m->channel[i] = tr_channel_of(t, i, &m->segment[i], 0);
        m->channel[i].route = TR_ROUTE_GET;
    }
    for (struct stretches at = {.piece = 0}; next_stretch(m, &at, &s);) {
        struct tr_segment *segment = &m->segment[s.server];
        if (t->share[s.server]) continue;
        segment->run[segment->runs++] = s.run;
        segment->n += s.run.length;
    }
    for (uint32_t i = 0; i < servers; i++)
        if (m->segment[i].n > 0) TR_TRY(tr_channel_open_types(&m->channel[i]));
    return TR_OK;
}

static void do_near(struct move *m, near_fn *near)
{
    struct tr_table *t = m->local->table;
    struct stretch s;
    for (struct stretches at = {.piece = 0}; next_stretch(m, &at, &s);)
        if (t->share[s.server]) near(t, &s, m->values);
}

static uint64_t bytes_of(const struct move *m)
{
    uint64_t keys = 0;
    for (size_t i = 0; i < m->n; i++) keys += tr_replica_keys_of(m->local, m->chunks[i]);
    return keys * m->local->key_bytes;
}

static bool has_moved(const struct move *m)
{
    bool all = true;
    for (uint32_t s = 0; s < m->servers; s++) all = tr_request_done(&m->channel[s].get) && all;
    return all;
}

static int end_far(const struct move *m)
{
    struct tr_table *t = m->local->table;
    TR_WAIT_UNTIL(t->tr, has_moved(m), "the servers of table %s to move a local model", t->name);
    return TR_OK;
}

static void close_move(struct move *m)
{
    for (uint32_t s = 0; s < m->servers; s++) {
        tr_channel_close(&m->channel[s]);
        free(m->segment[s].run);
    }
    free(m->segment);
    free(m->channel);
    free(m->packed);
}

static int fetch_far(struct move *m)
{
    TR_TRY(open_far(m));
    for (uint32_t s = 0; s < m->servers; s++) tr_channel_read(&m->channel[s], m->values, -1);
    return TR_OK;
}

int tr_replica_fetch(struct tr_replica *l, const uint32_t *chunks, size_t n, char *into)
{
    struct move m = {.local = l, .chunks = chunks, .n = n, .values = into};
    int status = reaches_all(l->table) ? TR_OK : fetch_far(&m);
    if (status == TR_OK) do_near(&m, copy_near); /* while the others are under way */
    if (status == TR_OK) status = end_far(&m);
    close_move(&m);
    l->tr->tables->traffic.pulls++;
    tr_replica_own_counts(l)->fetched += n;
    tr_replica_own_counts(l)->bytes_fetched += bytes_of(&m);
    return status;
}

/* Packs what goes to a server, and starts to add it there; bytes. */
static size_t accumulate(struct tr_channel *c, const char *delta, char *packed)
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

static int put_far(struct move *m)
{
    TR_TRY(open_far(m));
    TR_TRY(TR_NEW(&m->packed, bytes_of(m)));
    char *packed = m->packed;
    for (uint32_t s = 0; s < m->servers; s++)
        if (m->segment[s].n > 0) packed += accumulate(&m->channel[s], m->values, packed);
    return TR_OK;
}

/* A request tells that its values have left; that they are complete at their target, MPI tells only so. */
static void flush(const struct move *m)
{
    for (uint32_t s = 0; s < m->servers; s++)
        if (m->segment[s].n > 0) MPI_Win_flush(m->channel[s].rank, m->local->table->window);
}

/* Nobody else adds to these keys meanwhile, so that adding here and accumulating elsewhere do not meet. */
int tr_replica_put(struct tr_replica *l, const uint32_t *chunks, size_t n, char *delta)
{
    struct tr_traffic *traffic = &l->tr->tables->traffic;
    struct move m = {.local = l, .chunks = chunks, .n = n, .values = delta};
    int status = reaches_all(l->table) ? TR_OK : put_far(&m);
    if (status == TR_OK) do_near(&m, add_near);
    if (status == TR_OK) status = end_far(&m);
    if (status == TR_OK) flush(&m);
    close_move(&m);
    traffic->pushes++;
    traffic->bytes_pushed += bytes_of(&m);
    tr_replica_own_counts(l)->given += n;
    tr_replica_own_counts(l)->bytes_given += bytes_of(&m);
    return status;
}

/* ---- parts ---- */

static size_t part_begin(const struct tr_replica *l, int part, int parts)
{
    return l->chunks * (size_t)part / (size_t)parts;
}

int tr_replica_fetch_part(struct tr_replica *l, int part, int parts)
{
    size_t to = part_begin(l, part + 1, parts);
    for (size_t c = part_begin(l, part, parts), n; c < to; c += n) {
        n = tr_min_size(l->spares, to - c);
        for (size_t i = 0; i < n; i++) l->list[i] = (uint32_t)(c + i);
        TR_TRY(tr_replica_fetch(l, l->list, n, tr_replica_base(l, c)));
        memcpy(tr_replica_value(l, c), tr_replica_base(l, c), n * l->frame_bytes);
        for (size_t i = 0; i < n; i++) atomic_store_explicit(&l->chunk[c + i].here, 1, memory_order_relaxed);
        atomic_fetch_sub(&l->head->absent, (uint32_t)n);
    }
    return TR_OK;
}

/* Whether a chunk has changed, and by how much. */
static int find_delta(struct tr_replica *l, size_t c, bool all, char *delta, bool *changed)
{
    const struct tr_replica_chunk *chunk = &l->chunk[c];
    char *value = l->spare + l->spares * l->frame_bytes, *base = value + l->frame_bytes;
    bool here = atomic_load_explicit(&chunk->here, memory_order_acquire);
    *changed = (here && all) || chunk->stored || atomic_load_explicit(&chunk->changed, memory_order_relaxed);
    if (!*changed) return TR_OK;
    if (here) {
        value = tr_replica_value(l, c);
        base = tr_replica_base(l, c);
    } else {
        TR_TRY(tr_replica_read_back(l, c, base, value));
    }
    size_t elements = tr_replica_keys_of(l, c) * l->table->width;
    *changed = tr_replica_difference(l->table->dtype, elements, value, base, delta);
    return TR_OK;
}

int tr_replica_give_part(struct tr_replica *l, int part, int parts)
{
    bool all = atomic_load(&l->head->all_changed), changed;
    size_t to = part_begin(l, part + 1, parts), n = 0;
    for (size_t c = part_begin(l, part, parts); c < to; c++) {
        TR_TRY(find_delta(l, c, all, l->spare + n * l->frame_bytes, &changed));
        if (changed) l->list[n++] = (uint32_t)c;
        if (n < l->spares) continue;
        TR_TRY(tr_replica_put(l, l->list, n, l->spare));
        n = 0;
    }
    return n > 0 ? tr_replica_put(l, l->list, n, l->spare) : TR_OK;
}

/* ---- the file ---- */

/* All of it, in as many pieces as the system takes; `error` is 0 where the file is too short. */
static bool transfer(struct tr_replica *l, bool writes, char *at, size_t bytes, size_t offset, int *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = writes ? pwrite(l->file, at + done, bytes - done, (off_t)(offset + done))
                           : pread(l->file, at + done, bytes - done, (off_t)(offset + done));
        *error = n < 0 ? errno : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static int transfer_both(struct tr_replica *l, bool writes, size_t chunk, char *base, char *value)
{
    size_t bytes = tr_replica_keys_of(l, chunk) * l->key_bytes, offset = chunk * 2 * l->frame_bytes;
    int error = 0;
    if (transfer(l, writes, base, bytes, offset, &error) &&
        transfer(l, writes, value, bytes, offset + l->frame_bytes, &error))
        return TR_OK;
    return tr_fail(TR_ERR_IO, "%s: a chunk of %zu bytes of the local model of table %s cannot be %s: %s",
                   l->folder, 2 * bytes, l->table->name, writes ? "written" : "read back",
                   error ? strerror(error) : "the file is too short");
}

int tr_replica_write(struct tr_replica *l, size_t chunk, char *base, char *value)
{
    TR_TRY(transfer_both(l, true, chunk, base, value));
    tr_replica_own_counts(l)->written++;
    tr_replica_own_counts(l)->bytes_written += 2 * tr_replica_keys_of(l, chunk) * l->key_bytes;
    return TR_OK;
}

int tr_replica_read_back(struct tr_replica *l, size_t chunk, char *base, char *value)
{
    TR_TRY(transfer_both(l, false, chunk, base, value));
    tr_replica_own_counts(l)->read_back++;
    return TR_OK;
}
