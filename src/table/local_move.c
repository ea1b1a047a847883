/* The ways of a local model's values: from and to the table, from and to the node's file. */
#define _GNU_SOURCE
#include "table/channel.h"
#include "table/local_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the table ---- */

static int open_move(struct tr_local *l, tr_key first, size_t n, struct tr_local_move *m)
{
    struct tr_table *t = l->table;
    tr_key *keys;
    *m = (struct tr_local_move){.packed = NULL};
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = first + i;
    int status = tr_keyset_make(&t->partition, t->keys, t->pieces, keys, n, &m->keys);
    free(keys);
    TR_TRY(status);
    TR_TRY(TR_NEW(&m->channel, m->keys.servers));
    for (uint32_t s = 0; s < m->keys.servers; s++) {
        m->channel[s] = tr_channel_of(t, s, &m->keys.segment[s], 0);
        if (m->keys.segment[s].n > 0 && !t->share[s]) TR_TRY(tr_channel_open_types(&m->channel[s]));
    }
    return TR_OK;
}

int tr_local_fetch(struct tr_local *l, tr_key first, size_t n, void *into, struct tr_local_move *m)
{
    struct tr_table *t = l->table;
    TR_TRY(open_move(l, first, n, m));
    for (uint32_t s = 0; s < m->keys.servers; s++) {
        struct tr_channel *c = &m->channel[s];
        c->route = t->share[s] ? TR_ROUTE_LOAD : TR_ROUTE_GET;
        tr_channel_read(c, into, -1);
    }
    t->tr->tables->traffic.pulls++;
    tr_local_own_counts(l)->bytes_fetched += n * l->key_bytes;
    return TR_OK;
}

/* Nobody else adds to these keys meanwhile, so that adding here and accumulating elsewhere do not meet. */
int tr_local_put(struct tr_local *l, tr_key first, size_t n, const void *delta, struct tr_local_move *m)
{
    struct tr_table *t = l->table;
    TR_TRY(open_move(l, first, n, m));
    TR_TRY(TR_NEW(&m->packed, n * l->key_bytes));
    char *packed = m->packed;
    for (uint32_t s = 0; s < m->keys.servers; s++) {
        struct tr_channel *c = &m->channel[s];
        const struct tr_segment *segment = c->segment;
        if (segment->n == 0) continue;
        if (t->share[s]) {
            tr_locked_add(t, s, segment, delta);
            continue;
        }
        tr_copy_view_to_packed(segment, 0, segment->n, t->unit_bytes, delta, packed);
        MPI_Raccumulate(packed, (int)(segment->n * t->unit_width), tr_dtype_mpi(t->dtype), c->rank, 0, 1,
                        c->there, MPI_SUM, t->window, &c->get);
        packed += segment->n * t->unit_bytes;
    }
    t->tr->tables->traffic.pushes++;
    t->tr->tables->traffic.bytes_pushed += n * l->key_bytes;
    tr_local_own_counts(l)->bytes_given += n * l->key_bytes;
    return TR_OK;
}

static bool has_moved(const struct tr_local_move *m)
{
    bool all = true;
    for (uint32_t s = 0; s < m->keys.servers; s++) all = tr_request_done(&m->channel[s].get) && all;
    return all;
}

/* After a failure to open it, too, with no more than was opened. */
int tr_local_moved(struct tr_local *l, struct tr_local_move *m)
{
    if (!m->channel) return TR_OK;
    TR_WAIT_UNTIL(l->tr, has_moved(m), "the servers of table %s to move a local model", l->table->name);
    for (uint32_t s = 0; s < m->keys.servers; s++) tr_channel_close(&m->channel[s]);
    tr_keyset_free(&m->keys);
    free(m->channel);
    free(m->packed);
    *m = (struct tr_local_move){.packed = NULL};
    return TR_OK;
}

/* ---- parts ---- */

static size_t part_begin(const struct tr_local *l, int part, int parts)
{
    return l->chunks * (size_t)part / (size_t)parts;
}

/* As many chunks at once as are worth a round trip, but not so many that lists of their keys need much memory. */
int tr_local_fetch_part(struct tr_local *l, int part, int parts)
{
    enum { BYTES = 1 << 22 };
    size_t to = part_begin(l, part + 1, parts), step = tr_max_size(BYTES / l->frame_bytes, 1);
    for (size_t c = part_begin(l, part, parts), end; c < to; c = end) {
        end = tr_min_size(c + step, to);
        tr_key first = tr_local_first_key(l, c);
        size_t n = tr_local_first_key(l, end - 1) + tr_local_keys_of(l, end - 1) - first;
        struct tr_local_move move;
        TR_TRY(tr_local_fetch(l, first, n, tr_local_base(l, c), &move));
        TR_TRY(tr_local_moved(l, &move));
        memcpy(tr_local_value(l, c), tr_local_base(l, c), n * l->key_bytes);
        for (size_t i = c; i < end; i++) atomic_store_explicit(&l->chunk[i].here, 1, memory_order_relaxed);
        atomic_fetch_sub(&l->head->absent, (uint32_t)(end - c));
        tr_local_own_counts(l)->fetched += end - c;
    }
    return TR_OK;
}

/* A chunk's delta is in l->spare; false: it has not changed. */
static int find_delta(struct tr_local *l, size_t c, bool all, bool *changed)
{
    const struct tr_local_chunk *chunk = &l->chunk[c];
    bool here = atomic_load_explicit(&chunk->here, memory_order_acquire);
    char *value = l->spare + l->frame_bytes, *base = value + l->frame_bytes;
    *changed = all || chunk->stored || atomic_load_explicit(&chunk->changed, memory_order_relaxed);
    if (!*changed) return TR_OK;
    if (here) {
        value = tr_local_value(l, c);
        base = tr_local_base(l, c);
    } else {
        TR_TRY(tr_local_read_back(l, c, base, value));
    }
    *changed =
        tr_local_difference(l->table->dtype, tr_local_keys_of(l, c) * l->table->width, value, base, l->spare);
    return TR_OK;
}

/* A request tells that its values have left; that they are complete at their target, MPI tells only so. */
static void flush(struct tr_local *l)
{
    const struct tr_table *t = l->table;
    for (uint32_t s = 0; s < t->partition.servers; s++)
        if (!t->share[s]) MPI_Win_flush(tr_table_server_rank(t, s), t->window);
}

static int give_chunk(struct tr_local *l, size_t c, bool all, struct tr_local_move *move, bool *given)
{
    bool changed;
    TR_TRY(find_delta(l, c, all, &changed));
    if (!changed) return TR_OK;
    *given = true;
    tr_local_own_counts(l)->given++;
    return tr_local_put(l, tr_local_first_key(l, c), tr_local_keys_of(l, c), l->spare, move);
}

int tr_local_give_part(struct tr_local *l, int part, int parts)
{
    enum { MOVES = 16 }; /* under way at once */
    struct tr_local_move move[MOVES] = {{.packed = NULL}};
    bool all = atomic_load(&l->head->all_changed), given = false;
    size_t to = part_begin(l, part + 1, parts);
    int status = TR_OK;
    for (size_t c = part_begin(l, part, parts); c < to && status == TR_OK; c++) {
        status = tr_local_moved(l, &move[c % MOVES]);
        if (status == TR_OK) status = give_chunk(l, c, all, &move[c % MOVES], &given);
    }
    for (int i = 0; i < MOVES && status == TR_OK; i++) status = tr_local_moved(l, &move[i]);
    if (given) flush(l);
    return status;
}

/* ---- the file ---- */

/* All of it, in as many pieces as the system takes; `error` is 0 where the file is too short. */
static bool transfer(struct tr_local *l, bool writes, char *at, size_t bytes, size_t offset, int *error)
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

static int transfer_both(struct tr_local *l, bool writes, size_t chunk, char *base, char *value)
{
    size_t bytes = tr_local_keys_of(l, chunk) * l->key_bytes, offset = chunk * 2 * l->frame_bytes;
    int error = 0;
    if (transfer(l, writes, base, bytes, offset, &error) &&
        transfer(l, writes, value, bytes, offset + l->frame_bytes, &error))
        return TR_OK;
    return tr_fail(TR_ERR_IO, "%s: a chunk of %zu bytes of the local model of table %s cannot be %s: %s",
                   l->folder, 2 * bytes, l->table->name, writes ? "written" : "read back",
                   error ? strerror(error) : "the file is too short");
}

int tr_local_write(struct tr_local *l, size_t chunk, char *base, char *value)
{
    TR_TRY(transfer_both(l, true, chunk, base, value));
    tr_local_own_counts(l)->written++;
    tr_local_own_counts(l)->bytes_written += 2 * tr_local_keys_of(l, chunk) * l->key_bytes;
    return TR_OK;
}

int tr_local_read_back(struct tr_local *l, size_t chunk, char *base, char *value)
{
    TR_TRY(transfer_both(l, false, chunk, base, value));
    tr_local_own_counts(l)->read_back++;
    return TR_OK;
}
