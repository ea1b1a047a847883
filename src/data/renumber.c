#include "data/renumber.h"

#include <string.h>

#include "base/base.h"

/* ---- dense: one bit for every index between the lowest and the highest ---- */

/* 32 indices: which of them occur, and how many occur before the first. One read answers both. */
struct word {
    uint32_t bits, rank;
};

static uint32_t count_bits(uint32_t x)
{
    x -= (x >> 1) & 0x55555555u;
    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
    return (((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;
}

static void mark(struct word *words, const struct tr_matrix *m, uint32_t lowest)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    for (size_t i = 0; i < nonzeros; i++) {
        uint32_t index = m->column[i] - lowest;
        words[index / 32].bits |= 1u << index % 32;
    }
}

static size_t rank(struct word *words, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        words[i].rank = sum;
        sum += count_bits(words[i].bits);
    }
    return sum;
}

static void list_marked(const struct word *words, size_t n, uint32_t lowest, uint32_t *keys)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t bits = words[i].bits; bits; bits &= bits - 1)
            *keys++ = lowest + (uint32_t)(32 * i) + (uint32_t)__builtin_ctz(bits);
}

static void apply_ranks(struct tr_matrix *m, const struct word *words, uint32_t lowest)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    for (size_t i = 0; i < nonzeros; i++) {
        uint32_t index = m->column[i] - lowest;
        struct word word = words[index / 32];
        m->column[i] = word.rank + count_bits(word.bits & ((1u << index % 32) - 1));
    }
}

static int renumber_dense(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n)
{
    struct word *words;
    size_t length = (size_t)(highest - lowest) / 32 + 1;
    TR_TRY(TR_NEW(&words, length));
    mark(words, m, lowest);
    size_t distinct = rank(words, length);
    int result = TR_NEW(keys, distinct);
    if (result == TR_OK) {
        list_marked(words, length, lowest, *keys);
        apply_ranks(m, words, lowest);
        *n = distinct;
    }
    free(words);
    return result;
}

/* ---- sparse: a hash table of the keys that occur ---- */

#define FREE UINT32_MAX /* no index: the largest is 2^32 - 2 */

struct slot {
    uint32_t key, rank;
};

/* Open addressing, linear probing, at most half full. */
struct keyset {
    struct slot *slots;
    unsigned shift; /* 64 - log2 of the number of slots */
    size_t n;       /* keys */
};

static size_t slots_of(const struct keyset *set)
{
    return (size_t)1 << (64 - set->shift);
}

static int keyset_new(struct keyset *set, unsigned shift)
{
    *set = (struct keyset){.shift = shift};
    TR_TRY(TR_NEW(&set->slots, slots_of(set)));
    memset(set->slots, 0xff, slots_of(set) * sizeof *set->slots); /* FREE everywhere */
    return TR_OK;
}

/* The slot of the key, or the free one where it belongs. Neighbouring keys spread out (Fibonacci hashing). */
static inline struct slot *find(const struct keyset *set, uint32_t key)
{
    size_t i = (size_t)((key * (uint64_t)0x9e3779b97f4a7c15u) >> set->shift), last = slots_of(set) - 1;
    while (set->slots[i].key != key && set->slots[i].key != FREE) i = (i + 1) & last;
    return &set->slots[i];
}

static int enlarge(struct keyset *set)
{
    struct keyset larger;
    TR_TRY(keyset_new(&larger, set->shift - 1));
    for (size_t i = 0; i < slots_of(set); i++)
        if (set->slots[i].key != FREE) find(&larger, set->slots[i].key)->key = set->slots[i].key;
    larger.n = set->n;
    free(set->slots);
    *set = larger;
    return TR_OK;
}

/* *fits is false if the table would take more than this many bytes while it is enlarged. */
static int insert_columns(struct keyset *set, const struct tr_matrix *m, size_t most_bytes, bool *fits)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    *fits = true;
    for (size_t i = 0; i < nonzeros; i++) {
        struct slot *slot = find(set, m->column[i]);
        if (slot->key != FREE) continue;
        slot->key = m->column[i];
        if (2 * ++set->n <= slots_of(set)) continue;
        *fits = 3 * slots_of(set) * sizeof *set->slots <= most_bytes;
        if (!*fits) return TR_OK;
        TR_TRY(enlarge(set));
    }
    return TR_OK;
}

/* Radix sort, 11 bits a pass; three passes bring the result from `keys` into `scratch`. */
static void sort_keys(uint32_t *keys, uint32_t *scratch, size_t n)
{
    for (unsigned shift = 0; shift < 33; shift += 11) {
        size_t start[2049] = {0};
        for (size_t i = 0; i < n; i++) start[(keys[i] >> shift & 2047) + 1]++;
        for (size_t i = 0; i < 2048; i++) start[i + 1] += start[i];
        for (size_t i = 0; i < n; i++) scratch[start[keys[i] >> shift & 2047]++] = keys[i];
        uint32_t *swap = keys;
        keys = scratch;
        scratch = swap;
    }
}

int tr_keys_sort(uint32_t *keys, size_t *n)
{
    uint32_t *sorted;
    size_t kept = 0;
    TR_TRY(TR_NEW(&sorted, *n));
    sort_keys(keys, sorted, *n);
    for (size_t i = 0; i < *n; i++)
        if (i == 0 || sorted[i] != sorted[i - 1]) keys[kept++] = sorted[i];
    free(sorted);
    *n = kept;
    return TR_OK;
}

/* The keys of the set, ascending, and their places in it as their ranks. */
static int sorted_keys(struct keyset *set, uint32_t **keys)
{
    uint32_t *unsorted, *sorted;
    TR_TRY(TR_NEW(&unsorted, set->n));
    int result = TR_NEW(&sorted, set->n);
    if (result == TR_OK) {
        size_t n = 0;
        for (size_t i = 0; i < slots_of(set); i++)
            if (set->slots[i].key != FREE) unsorted[n++] = set->slots[i].key;
        sort_keys(unsorted, sorted, n);
        for (size_t i = 0; i < n; i++) find(set, sorted[i])->rank = (uint32_t)i;
        *keys = sorted;
    }
    free(unsorted);
    return result;
}

/* Changes nothing, *fits being false, if it would take too much memory. */
static int renumber_sparse(struct tr_matrix *m, size_t most_bytes, bool *fits, uint32_t **keys, size_t *n)
{
    struct keyset set;
    size_t nonzeros = tr_matrix_nonzeros(m);
    TR_TRY(keyset_new(&set, 64 - 12));
    int result = insert_columns(&set, m, most_bytes, fits);
    if (result == TR_OK && *fits) result = sorted_keys(&set, keys);
    if (result == TR_OK && *fits) {
        for (size_t i = 0; i < nonzeros; i++) m->column[i] = find(&set, m->column[i])->rank;
        *n = set.n;
    }
    free(set.slots);
    return result;
}

/* ---- the choice ---- */

static int check_range(const struct tr_matrix *m, uint32_t lowest, uint32_t highest)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    bool outside = nonzeros > 0 && (lowest > highest || highest == FREE);
    for (size_t i = 0; i < nonzeros; i++) outside |= m->column[i] < lowest || m->column[i] > highest;
    if (!outside) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "columns outside of %u..%u", (unsigned)lowest, (unsigned)highest);
}

/* Bits cost a quarter byte an index and are fast: they are taken as long as they need no more than the
 * columns themselves, or nothing worth mentioning. Otherwise the table is tried, since the distinct keys may
 * be few; should it become larger than the bits, the bits it is. */
int tr_renumber(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    TR_TRY(check_range(m, lowest, highest));
    if (nonzeros == 0) {
        *n = 0;
        return TR_NEW(keys, 0);
    }
    size_t bits_bytes = (size_t)(highest - lowest) / 4;
    bool fits = false;
    if (bits_bytes > nonzeros * sizeof *m->column + ((size_t)4 << 20))
        TR_TRY(renumber_sparse(m, bits_bytes, &fits, keys, n));
    return fits ? TR_OK : renumber_dense(m, lowest, highest, keys, n);
}

void tr_columns_apply(struct tr_matrix *m, const uint32_t *old_to_new)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    for (size_t i = 0; i < nonzeros; i++) m->column[i] = old_to_new[m->column[i]];
}
