#include "table/subscription.h"

#include <stdlib.h>
#include <string.h>

#include "trireme/rows.h"

struct tr_subscription {
    struct tr_table *table;
    tr_key *key; /* of this worker: what it has subscribed to */
    size_t n;
    int members, member; /* workers of this node, and which this one is; -1: none */
    uint32_t chunk, chunks;

    size_t units;           /* of the node's union: so many slots */
    struct tr_keyset slice; /* what this rank receives, … */
    size_t first;           /* … from this slot on */
    struct tr_shm memory;   /* the first rank's: */
    /* By chunk and member, the number of the merge behind which the rows have come … */
    _Atomic int64_t *behind;
    char *value;    /* … by slot */
    int64_t merge;  /* merges that this rank has taken part in, … */
    int64_t wanted; /* … the last one of this stage, or 0 */

    /* own rows that come, by chunk and member: a part begins at each of these */
    uint32_t *begin, *place, *slot;
    uint32_t *left; /* parts that have not been taken, ascending */
    size_t lefts;
};

int tr_rows_subscribe(struct tr_table *t, const tr_key *keys, size_t n)
{
    if (t->subscribed)
        return tr_fail(TR_ERR_INTERNAL, "table %s: a worker subscribes to rows of it twice", t->name);
    for (size_t i = 0; i < n; i++)
        if (keys[i] >= t->keys || (i > 0 && keys[i] <= keys[i - 1]))
            return tr_fail(TR_ERR_INTERNAL,
                           "table %s: rows that are subscribed to must ascend and lie below %llu", t->name,
                           (unsigned long long)t->keys);
    TR_TRY(TR_NEW(&t->subscribed, n));
    if (n > 0) memcpy(t->subscribed, keys, n * sizeof *keys);
    t->subscribed_n = n;
    return TR_OK;
}

/* ---- the union ---- */

static const char opening[] = "the ranks of this node to find what they subscribe to";

/* A bit for each key of the table, in memory of the node, and how many are set before each word. */
struct bits {
    struct tr_shm memory;
    _Atomic uint64_t *word;
    uint32_t *before;
    size_t words;
};

static bool is_far(const struct tr_table *t, struct tr_location at)
{
    return !t->share[at.server];
}

static int mark(const struct tr_subscription *s, struct bits *bits)
{
    const struct tr_table *t = s->table;
    struct tr_walker walker = {.partition = &t->partition};
    for (size_t i = 0; i < s->n; i++)
        if (is_far(t, tr_walk_to(&walker, s->key[i])))
            atomic_fetch_or_explicit(&bits->word[s->key[i] / 64], UINT64_C(1) << s->key[i] % 64,
                                     memory_order_relaxed);
    tr_meet(t->tr, t->tr->node, opening);
    TR_TRY(TR_NEW(&bits->before, bits->words + 1));
    for (size_t w = 0; w < bits->words; w++)
        bits->before[w + 1] = bits->before[w] + (uint32_t)__builtin_popcountll(bits->word[w]);
    return TR_OK;
}

static uint32_t slot_of(const struct bits *bits, tr_key key)
{
    uint64_t below = bits->word[key / 64] & ((UINT64_C(1) << key % 64) - 1);
    return bits->before[key / 64] + (uint32_t)__builtin_popcountll(below);
}

/* Slices differ by one at most. */
static size_t slice_at(const struct tr_subscription *s, size_t member)
{
    return s->units * member / (size_t)s->members;
}

static int find_slice(struct tr_subscription *s, const struct bits *bits)
{
    const struct tr_table *t = s->table;
    if (s->member < 0) return TR_OK;
    size_t first = s->first = slice_at(s, (size_t)s->member), end = slice_at(s, (size_t)s->member + 1), n = 0;
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, end - first));
    for (size_t w = 0; w < bits->words; w++) {
        if (bits->before[w + 1] <= first || bits->before[w] >= end) continue;
        size_t slot = bits->before[w];
        for (uint64_t left = bits->word[w]; left; left &= left - 1, slot++)
            if (slot >= first && slot < end) keys[n++] = 64 * w + (uint64_t)__builtin_ctzll(left);
    }
    int status = tr_keyset_make(&t->partition, t->keys, 1, keys, n, &s->slice);
    free(keys);
    return status;
}

/* ---- parts ---- */

static size_t part_of(const struct tr_subscription *s, uint32_t slot, uint32_t position)
{
    size_t members = (size_t)s->members, member = slot * members / s->units;
    while (slice_at(s, member + 1) <= slot) member++;
    return position / s->chunk * members + member;
}

/* Own rows by the parts that they come in: first how many, then which. */
static int find_parts(struct tr_subscription *s, const struct bits *bits)
{
    const struct tr_table *t = s->table;
    size_t parts = (size_t)s->members * s->chunks;
    TR_TRY(TR_NEW(&s->begin, parts + 2));
    TR_TRY(TR_NEW(&s->left, parts));
    TR_TRY(TR_NEW(&s->place, s->n));
    TR_TRY(TR_NEW(&s->slot, s->n));
    for (int turn = 0; turn < 2; turn++) {
        struct tr_walker walker = {.partition = &t->partition};
        for (size_t i = 0; i < s->n; i++) {
            struct tr_location at = tr_walk_to(&walker, s->key[i]);
            if (!is_far(t, at)) continue;
            uint32_t slot = slot_of(bits, s->key[i]),
                     *to = &s->begin[part_of(s, slot, at.position) + 2 - (size_t)turn];
            if (turn == 1) {
                s->place[*to] = (uint32_t)i;
                s->slot[*to] = slot;
            }
            ++*to;
        }
        for (size_t p = 2; p <= parts && turn == 0; p++) s->begin[p] += s->begin[p - 1];
    }
    return TR_OK;
}

/* ---- opening and closing ---- */

static void find_members(struct tr_subscription *s)
{
    const tr_context *tr = s->table->tr;
    s->member = -1;
    for (int w = 0; w < tr_worker_set_size(tr->active); w++) {
        int rank = tr_worker_rank(tr, tr->active, w);
        if (rank == tr->rank) s->member = s->members;
        s->members += tr_same_node(tr, rank);
    }
}

/* Memory for the union, if the node has it; without it the node subscribes to nothing. */
static int open_memory(struct tr_subscription *s, const struct bits *bits)
{
    const struct tr_table *t = s->table;
    const size_t most = (size_t)1 << 28;
    size_t flags = (size_t)s->members * s->chunks * sizeof *s->behind, units = bits->before[bits->words];
    flags = (flags + 63) & ~(size_t)63;
    if (units == 0 || units * t->unit_bytes > most) return TR_OK;
    size_t bytes = t->tr->node_rank == 0 ? flags + units * t->unit_bytes : 0;
    if (tr_shm_open(t->tr, t->tr->node, bytes, false, &s->memory) != TR_OK) return TR_OK;
    s->units = units;
    s->behind = (_Atomic int64_t *)(void *)s->memory.part[0].at;
    s->value = s->memory.part[0].at + flags;
    tr_meet(t->tr, t->tr->node, opening);
    TR_TRY(find_slice(s, bits));
    return find_parts(s, bits);
}

int tr_subscription_open(struct tr_table *t, uint32_t chunk, uint32_t chunks)
{
    tr_context *tr = t->tr;
    struct bits bits = {.memory = TR_SHM_CLOSED, .words = t->keys / 64 + 1};
    TR_TRY(TR_NEW(&t->subscription, 1));
    struct tr_subscription *s = t->subscription;
    *s = (struct tr_subscription){.table = t,
                                  .key = t->subscribed,
                                  .n = t->subscribed_n,
                                  .chunk = chunk,
                                  .chunks = chunks,
                                  .memory = TR_SHM_CLOSED};
    t->subscribed = NULL;
    find_members(s);
    if (tr_shm_open(tr, tr->node, tr->node_rank == 0 ? bits.words * sizeof *bits.word : 0, true,
                    &bits.memory) != TR_OK)
        return TR_OK;
    bits.word = (_Atomic uint64_t *)(void *)bits.memory.part[0].at;
    int status = mark(s, &bits);
    if (status == TR_OK) status = open_memory(s, &bits);
    tr_shm_close(&bits.memory);
    free(bits.before);
    return status;
}

void tr_subscription_close(struct tr_table *t)
{
    struct tr_subscription *s = t->subscription;
    if (!s) return;
    t->subscription = NULL;
    tr_shm_close(&s->memory);
    tr_keyset_free(&s->slice);
    void *parts[] = {s->key, s->begin, s->place, s->slot, s->left, s};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* ---- what comes ---- */

const struct tr_segment *tr_subscription_segments(const struct tr_subscription *s)
{
    return s->slice.segment;
}

size_t tr_subscription_units(const struct tr_subscription *s)
{
    return s->slice.units;
}

char *tr_subscription_memory(const struct tr_subscription *s)
{
    return s->value + s->first * s->table->unit_bytes;
}

void tr_subscription_next(struct tr_subscription *s)
{
    s->wanted = ++s->merge;
}

void tr_subscription_put(struct tr_subscription *s, uint32_t chunk)
{
    if (!s->behind || s->member < 0) return;
    atomic_store_explicit(&s->behind[(size_t)chunk * (size_t)s->members + (size_t)s->member], s->merge,
                          memory_order_release);
}

void tr_subscription_reset(struct tr_subscription *s)
{
    s->wanted = 0;
}

/* ---- taking it ---- */

bool tr_subscription_has(const struct tr_table *t, const tr_key *keys, size_t n)
{
    const struct tr_subscription *s = t->subscription;
    return s && s->behind && s->wanted > 0 && n == s->n && memcmp(keys, s->key, n * sizeof *keys) == 0;
}

void tr_subscription_begin(struct tr_subscription *s)
{
    s->lefts = 0;
    for (uint32_t p = 0; p < (uint32_t)s->members * s->chunks; p++)
        if (s->begin[p + 1] > s->begin[p]) s->left[s->lefts++] = p;
}

bool tr_subscription_take(struct tr_subscription *s, struct tr_subscribed *rows)
{
    enum { LOOK = 256 }; /* at these: chunks come about in their order */
    for (size_t i = 0; i < s->lefts && i < LOOK; i++) {
        uint32_t p = s->left[i];
        if (atomic_load_explicit(&s->behind[p], memory_order_acquire) < s->wanted) continue;
        memmove(&s->left[i], &s->left[i + 1], (--s->lefts - i) * sizeof *s->left);
        *rows = (struct tr_subscribed){.n = s->begin[p + 1] - s->begin[p],
                                       .place = s->place + s->begin[p],
                                       .slot = s->slot + s->begin[p],
                                       .value = s->value};
        return true;
    }
    return false;
}
