/* Reading a local model, and adding to it. */
#include "table/replica_parts.h"

#include <string.h>

/* ---- elements ---- */

/* Loops for one element type, of n keys of a chunk whose values begin at `at`: places are of keys, less `first`. `as` is
 * an unsigned integer of its size, which no processor reads or writes in halves. */
#define LOOPS(name, type, as, add_atomic)                                                                    \
    static void read_##name(const type *at, tr_key first, const tr_key *keys, size_t n, size_t width,        \
                            type *out)                                                                       \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            for (size_t j = 0; j < width; j++) {                                                             \
                as bits = __atomic_load_n((const as *)(const void *)(at + (keys[i] - first) * width + j),    \
                                          __ATOMIC_RELAXED);                                                 \
                memcpy(out + i * width + j, &bits, sizeof bits);                                             \
            }                                                                                                \
    }                                                                                                        \
    static void add_##name(type *at, tr_key first, const tr_key *keys, size_t n, size_t width,               \
                           const type *delta)                                                                \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            for (size_t j = 0; j < width; j++) at[(keys[i] - first) * width + j] += delta[i * width + j];    \
    }                                                                                                        \
    static void add_atomically_##name(type *at, tr_key first, const tr_key *keys, size_t n, size_t width,    \
                                      const type *delta)                                                     \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            for (size_t j = 0; j < width; j++)                                                               \
                add_atomic(at + (keys[i] - first) * width + j, delta[i * width + j]);                        \
    }                                                                                                        \
    static bool subtract_##name(size_t n, const type *value, const type *base, type *delta)                  \
    {                                                                                                        \
        bool some = false;                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                                     \
            delta[i] = value[i] - base[i];                                                                   \
            some |= delta[i] != 0;                                                                           \
        }                                                                                                    \
        return some;                                                                                         \
    }

static void add_to_f32(float *at, float delta)
{
    float seen = *at;
    while (!tr_race_swap_f32(at, &seen, seen + delta)) {
    }
}

static void add_to_f64(double *at, double delta)
{
    double seen = *at;
    while (!tr_race_swap_f64(at, &seen, seen + delta)) {
    }
}

static void add_to_i32(int32_t *at, int32_t delta)
{
    __atomic_fetch_add(at, delta, __ATOMIC_RELAXED);
}

static void add_to_i64(int64_t *at, int64_t delta)
{
    __atomic_fetch_add(at, delta, __ATOMIC_RELAXED);
}

LOOPS(f32, float, uint32_t, add_to_f32)
LOOPS(f64, double, uint64_t, add_to_f64)
LOOPS(i32, int32_t, uint32_t, add_to_i32)
LOOPS(i64, int64_t, uint64_t, add_to_i64)

bool tr_replica_difference(enum tr_dtype dtype, size_t n, const void *value, const void *base, void *delta)
{
    switch (dtype) {
    case TR_F32: return subtract_f32(n, value, base, delta);
    case TR_F64: return subtract_f64(n, value, base, delta);
    case TR_I32: return subtract_i32(n, value, base, delta);
    case TR_I64: return subtract_i64(n, value, base, delta);
    }
    return false;
}

/* Of keys whose values begin at `at` with key `first`. */
static void read_some(const struct tr_replica *l, const void *at, tr_key first, const tr_key *keys, size_t n,
                      void *out)
{
    size_t width = l->table->width;
    switch (l->table->dtype) {
    case TR_F32: read_f32(at, first, keys, n, width, out); return;
    case TR_F64: read_f64(at, first, keys, n, width, out); return;
    case TR_I32: read_i32(at, first, keys, n, width, out); return;
    case TR_I64: read_i64(at, first, keys, n, width, out); return;
    }
}

#define ADD(name)                                                                                            \
    (l->race == TR_RACE_ATOMIC ? add_atomically_##name : add_##name)(at, first, keys, n, width, delta)

static void add_some(const struct tr_replica *l, void *at, tr_key first, const tr_key *keys, size_t n,
                     const void *delta)
{
    size_t width = l->table->width;
    switch (l->table->dtype) {
    case TR_F32: ADD(f32); return;
    case TR_F64: ADD(f64); return;
    case TR_I32: ADD(i32); return;
    case TR_I64: ADD(i64); return;
    }
}

/* ---- keys ---- */

int tr_replica_note(struct tr_replica *l, int status)
{
    int none = TR_OK;
    if (status == TR_OK || atomic_load(&l->head->failed) != TR_OK) return status;
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

/* The end of those keys from i on that lie in the chunk. */
static size_t end_of_chunk(const struct tr_replica *l, const tr_key *keys, size_t i, size_t n, size_t chunk)
{
    tr_key first = tr_replica_first_key(l, chunk);
    size_t length = tr_replica_keys_of(l, chunk);
    while (i < n && keys[i] - first < length) i++; /* a key before the first one is a huge number */
    return i;
}

static int check_keys(const struct tr_replica *l, const tr_key *keys, size_t n)
{
    tr_key most = 0;
    for (size_t i = 0; i < n; i++) most = keys[i] > most ? keys[i] : most;
    if (most < l->table->keys) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "table %s: there is no key %llu in its local model, but %llu keys",
                   l->table->name, (unsigned long long)most, (unsigned long long)l->table->keys);
}

/* What a call does: to `out`, or from `delta`; the other is NULL. */
struct call {
    const tr_key *keys;
    size_t n;
    char *out;
    const char *delta;
};

static void work(struct tr_replica *l, const struct call *c, char *at, tr_key first, size_t from, size_t to)
{
    size_t offset = from * l->key_bytes;
    if (c->out) read_some(l, at, first, c->keys + from, to - from, c->out + offset);
    else add_some(l, at, first, c->keys + from, to - from, c->delta + offset);
}

static void note_change(_Atomic uint32_t *changed)
{
    if (!atomic_load_explicit(changed, memory_order_relaxed))
        atomic_store_explicit(changed, 1, memory_order_relaxed);
}

static int work_by_chunk(struct tr_replica *l, const struct call *c)
{
    size_t hits = 0;
    TR_TRY(tr_replica_bring_ahead(l, c->keys, c->n));
    for (size_t i = 0, end; i < c->n; i = end) {
        size_t number = (size_t)(c->keys[i] >> l->shift);
        struct tr_replica_chunk *chunk = &l->chunk[number];
        bool quick = tr_replica_hold_quickly(l, chunk);
        hits += quick;
        if (!quick) TR_TRY(tr_replica_hold(l, number));
        end = end_of_chunk(l, c->keys, i, c->n, number);
        work(l, c, tr_replica_value(l, number), tr_replica_first_key(l, number), i, end);
        if (c->delta) note_change(&chunk->changed);
        tr_replica_let_go(l, chunk);
    }
    tr_replica_own_counts(l)->hits += hits;
    return TR_OK;
}

/* All chunks are here to stay, side by side, and nobody locks them: they are as one. */
static bool is_one(const struct tr_replica *l)
{
    return l->race != TR_RACE_CHUNK && !l->limited &&
           atomic_load_explicit(&l->head->absent, memory_order_acquire) == 0;
}

static int call(struct tr_replica *l, const struct call *c)
{
    if (!l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is not taken: see tr_local_take()",
                       l->table->name);
    TR_TRY(check_keys(l, c->keys, c->n));
    if (!is_one(l)) return work_by_chunk(l, c);
    if (c->delta) note_change(&l->head->all_changed);
    tr_replica_own_counts(l)->hits++;
    work(l, c, l->value, 0, 0, c->n);
    return TR_OK;
}

int tr_replica_read(tr_replica *l, const tr_key *keys, size_t n, void *out)
{
    if (l->idle) return memset(out, 0, n * l->key_bytes), TR_OK;
    return tr_replica_note(l, call(l, &(struct call){.keys = keys, .n = n, .out = out}));
}

int tr_replica_add(tr_replica *l, const tr_key *keys, size_t n, const void *delta)
{
    if (l->idle) return TR_OK;
    return tr_replica_note(l, call(l, &(struct call){.keys = keys, .n = n, .delta = delta}));
}
