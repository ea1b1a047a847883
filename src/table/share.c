#include "table/share.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, LOCK_UNITS = 1024 }; /* units under one lock */

/* ---- memory ---- */

static size_t values_bytes(const struct tr_table *t, uint64_t units)
{
    return (units * t->unit_bytes + LINE - 1) / LINE * LINE;
}

double tr_initial_element(enum tr_initial initial, double scale, uint64_t seed, tr_key key, uint64_t column)
{
    uint64_t mixed = tr_mix(tr_mix(tr_mix(seed) ^ key) ^ column);
    double u = (double)(mixed >> 11) * 0x1p-53, v = (double)(tr_mix(mixed) >> 11) * 0x1p-53;
    switch (initial) {
    case TR_INITIAL_ZERO: return 0;
    case TR_INITIAL_CONSTANT: return scale;
    case TR_INITIAL_UNIFORM: return scale * (2 * u - 1);
    case TR_INITIAL_NORMAL: return scale * sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    }
    return 0;
}

/* Writes the initial values of this rank's share. */
static void fill_share(struct tr_table *t, const tr_table_options *options)
{
    void *share = t->share[t->server];
    for (uint64_t position = 0; position < t->share_units; position++) {
        uint64_t unit = tr_partition_unit(&t->partition, (uint32_t)t->server, (uint32_t)position);
        if (unit == UINT64_MAX) continue; /* padding stays 0 */
        uint64_t key = unit % t->keys, column = unit / t->keys * t->unit_width;
        for (size_t i = 0, at = position * t->unit_width; i < t->unit_width; i++, at++) {
            double x = tr_initial_element(options->initial, options->scale, options->seed, key, column + i);
            switch (t->dtype) {
            case TR_F32: ((float *)share)[at] = (float)x; break;
            case TR_F64: ((double *)share)[at] = x; break;
            case TR_I32: ((int32_t *)share)[at] = (int32_t)lrint(x); break;
            case TR_I64: ((int64_t *)share)[at] = llrint(x); break;
            }
        }
    }
}

/* Opens the shares to ranks that cannot read them directly. */
static int open_window(struct tr_table *t)
{
    tr_context *tr = t->tr;
    bool far = tr->layout.nodes > 1 || t->route == TR_ROUTE_GET;
    if (!far || t->hash || t->sparse) return TR_OK;
    void *own = t->server >= 0 ? t->share[t->server] : NULL;
    return tr_window_open(tr, own, own ? values_bytes(t, t->share_units) : 0, 1, "all ranks to open a table",
                          &t->window);
}

int tr_share_open(struct tr_table *t, const tr_table_options *options)
{
    tr_context *tr = t->tr;
    size_t bytes = t->server < 0 ? 0
                                 : values_bytes(t, t->share_units) + sizeof **t->line +
                                       (t->share_units / LOCK_UNITS + 1) * sizeof(atomic_uint);
    int status = tr_shm_open(tr, tr->node, bytes, false, &t->memory);
    if (status == TR_OK && bytes > 0) /* zeros already, but of pages that are to be near this rank */
        memset(t->memory.part[tr->node_rank].at, 0, bytes);
    TR_TRY(tr_agree(tr, status));
    for (uint32_t server = 0; server < t->partition.servers; server++) {
        int rank = tr_table_server_rank(t, server);
        if (!tr_same_node(tr, rank)) continue;
        uint64_t units = t->sparse ? 0 : tr_partition_share(&t->partition, server);
        char *share = t->memory.part[tr_node_rank(tr, rank)].at;
        t->line[server] = (struct tr_share_line *)(void *)(share + values_bytes(t, units));
        if (units > 0) t->share[server] = share;
    }
    if (options->initial == TR_INITIAL_ZERO) return open_window(t);
    if (t->share_units > 0) fill_share(t, options);
    tr_meet(tr, tr->node,
            "the ranks of this node to fill a table"); /* nobody reads before the values are written */
    return open_window(t);
}

void tr_share_close(struct tr_table *t)
{
    tr_window_close(t->tr, t->tr->world, "all ranks to close a table", &t->window);
    tr_shm_close(&t->memory);
}

/* ---- adding under locks ---- */

static atomic_uint *lock(const struct tr_table *t, uint32_t server, uint32_t position)
{
    atomic_uint *locks = (atomic_uint *)(void *)(t->line[server] + 1), *its = &locks[position / LOCK_UNITS];
    while (atomic_exchange_explicit(its, 1, memory_order_acquire)) sched_yield();
    return its;
}

static void unlock(atomic_uint *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* Entries first .. end - 1 of a list of positions lie under one lock: the end. */
static uint32_t end_of_lock(const uint32_t *position, uint32_t n, uint32_t first)
{
    uint32_t chunk = position[first] / LOCK_UNITS, end = first + 1;
    while (end < n && position[end] / LOCK_UNITS == chunk) end++;
    return end;
}

/* n units side by side, from position first on. */
static void add_run(struct tr_table *t, uint32_t server, uint32_t first, uint32_t n, const char *values)
{
    for (uint32_t i = 0, length; i < n; i += length) {
        uint32_t position = first + i, left = LOCK_UNITS - position % LOCK_UNITS;
        length = n - i < left ? n - i : left;
        atomic_uint *its = lock(t, server, position);
        tr_add_elements(t->dtype, length * t->unit_width, values + i * t->unit_bytes,
                        (char *)t->share[server] + position * t->unit_bytes);
        unlock(its);
    }
}

void tr_share_add(struct tr_table *t, const uint32_t *position, uint32_t first, uint32_t n,
                  const char *values)
{
    uint32_t server = (uint32_t)t->server;
    if (!position) add_run(t, server, first, n, values);
    for (uint32_t i = 0, end; position && i < n; i = end) {
        end = end_of_lock(position, n, i);
        atomic_uint *its = lock(t, server, position[i]);
        tr_add_packed_to_share(t->dtype, position + i, end - i, t->unit_width, values + i * t->unit_bytes,
                               t->share[server]);
        unlock(its);
    }
}

void tr_share_add_view(struct tr_table *t, uint32_t server, const struct tr_segment *s, const void *view)
{
    for (uint32_t r = 0; r < s->runs; r++)
        add_run(t, server, s->run[r].position, s->run[r].length,
                (const char *)view + s->run[r].local * t->unit_bytes);
    for (uint32_t i = 0, end; s->runs == 0 && i < s->n; i = end) {
        end = end_of_lock(s->position, s->n, i);
        atomic_uint *its = lock(t, server, s->position[i]);
        tr_add_view_to_share(t->dtype, s, i, end - i, t->unit_width, view, t->share[server]);
        unlock(its);
    }
}

void tr_share_copy(const struct tr_table *t, uint32_t server, uint32_t position, void *to)
{
    atomic_uint *its = lock(t, server, position);
    memcpy(to, (const char *)t->share[server] + position * t->unit_bytes, t->unit_bytes);
    unlock(its);
}
