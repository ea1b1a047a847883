#include "data/renumber.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/ids.h"

/* ---- dense: one bit for every index between the lowest and the highest ---- */

/* 32 indices: which of them occur, and how many occur before the first. One read answers both. */
struct tr_column_word {
    uint32_t bits, rank;
};

static uint32_t count_bits(uint32_t x)
{
    x -= (x >> 1) & 0x55555555u;
    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
    return (((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;
}

static void mark(struct tr_column_word *words, const struct tr_matrix *m, uint32_t lowest)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    for (size_t i = 0; i < nonzeros; i++) {
        uint32_t index = m->column[i] - lowest;
        words[index / 32].bits |= 1u << index % 32;
    }
}

static size_t rank(struct tr_column_word *words, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        words[i].rank = sum;
        sum += count_bits(words[i].bits);
    }
    return sum;
}

static void list_marked(const struct tr_column_word *words, size_t n, uint32_t lowest, uint32_t *keys)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t bits = words[i].bits; bits; bits &= bits - 1)
            *keys++ = lowest + (uint32_t)(32 * i) + (uint32_t)__builtin_ctz(bits);
}

static void apply_ranks(struct tr_matrix *m, const struct tr_column_word *words, uint32_t lowest)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    for (size_t i = 0; i < nonzeros; i++) {
        uint32_t index = m->column[i] - lowest;
        struct tr_column_word word = words[index / 32];
        m->column[i] = word.rank + count_bits(word.bits & ((1u << index % 32) - 1));
    }
}

static int renumber_dense(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n)
{
    struct tr_column_word *words;
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

/* ---- sparse: a hash table of the columns that occur ---- */

static size_t bytes_of(const struct tr_ids *ids)
{
    return 3 * ids->slots * sizeof *ids->slot + (size_t)ids->direct_size * sizeof *ids->direct + 24 * ids->n;
}

/* Ascending keys, and each column's place among them. */
static int apply_order(struct tr_matrix *m, struct tr_ids *ids, const uint32_t *order, uint32_t *keys)
{
    uint32_t *rank, place;
    TR_TRY(TR_NEW(&rank, ids->n));
    for (size_t i = 0; i < ids->n; i++) {
        keys[i] = (uint32_t)ids->number[order[i]];
        rank[order[i]] = (uint32_t)i;
    }
    int status = TR_OK;
    for (size_t k = 0; k < tr_matrix_nonzeros(m) && status == TR_OK; k++) {
        status = tr_ids_number(ids, m->column[k], &place);
        m->column[k] = rank[place];
    }
    free(rank);
    return status;
}

/* Changes nothing, *fits being false, if it would take too much memory. */
static int renumber_sparse(struct tr_matrix *m, size_t most_bytes, bool *fits, uint32_t **keys, size_t *n)
{
    struct tr_ids ids = {.are_text = false};
    uint32_t *order = NULL, place;
    int status = TR_OK;
    *fits = true;
    for (size_t k = 0; k < tr_matrix_nonzeros(m) && status == TR_OK && *fits; k++) {
        status = tr_ids_number(&ids, m->column[k], &place);
        *fits = bytes_of(&ids) <= most_bytes;
    }
    if (status == TR_OK && *fits) {
        status = tr_ids_sort(&ids, &order);
        if (status == TR_OK) status = TR_NEW(keys, ids.n);
        if (status == TR_OK) status = apply_order(m, &ids, order, *keys);
        *n = ids.n;
    }
    free(order);
    tr_ids_free(&ids);
    return status;
}

/* ---- sorting ---- */

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

/* ---- the choice ---- */

static int check_range(const struct tr_matrix *m, uint32_t lowest, uint32_t highest)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    bool outside = nonzeros > 0 && (lowest > highest || highest == UINT32_MAX);
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

/* ---- rows that come some at a time ---- */

enum { PAGE_BITS = 16, PAGES = 1 << (32 - PAGE_BITS), PAGE_WORDS = (1 << PAGE_BITS) / 32 };

int tr_columns_note(struct tr_columns_seen *seen, const struct tr_matrix *m)
{
    if (!seen->page) TR_TRY(TR_NEW(&seen->page, PAGES));
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) {
        struct tr_column_word **page = &seen->page[m->column[k] >> PAGE_BITS];
        if (!*page) TR_TRY(TR_NEW(page, PAGE_WORDS));
        (*page)[m->column[k] / 32 % PAGE_WORDS].bits |= 1u << m->column[k] % 32;
    }
    return TR_OK;
}

/* The words of a page whose columns are kept, one that lies partly outside with the others' bits cleared. */
static void cut_page(struct tr_column_word *words, uint64_t first, uint64_t least, uint64_t end)
{
    for (uint64_t c = first; c < first + PAGE_WORDS * 32; c++)
        if (c < least || c >= end) words[(c - first) / 32].bits &= ~(1u << c % 32);
}

int tr_columns_number(struct tr_columns_seen *seen, uint32_t first_index, uint64_t columns, uint32_t **keys,
                      size_t *n)
{
    uint64_t end = columns > UINT32_MAX ? (uint64_t)1 << 32 : first_index + columns, size = PAGE_WORDS * 32;
    uint32_t sum = 0;
    for (uint64_t p = 0; p < PAGES && seen->page; p++) {
        struct tr_column_word *words = seen->page[p];
        if (words && (p * size < first_index || (p + 1) * size > end))
            cut_page(words, p * size, first_index, end);
        for (size_t i = 0; words && i < PAGE_WORDS; i++) {
            words[i].rank = sum;
            sum += count_bits(words[i].bits);
        }
    }
    *n = sum;
    TR_TRY(TR_NEW(keys, sum));
    for (uint64_t p = 0, at = 0; p < PAGES && seen->page; p++) {
        const struct tr_column_word *words = seen->page[p];
        if (!words) continue;
        list_marked(words, PAGE_WORDS, (uint32_t)(p * size), *keys + at);
        for (size_t i = 0; i < PAGE_WORDS; i++) at += count_bits(words[i].bits);
    }
    for (size_t i = 0; i < sum; i++) (*keys)[i] -= first_index;
    return TR_OK;
}

void tr_columns_apply(const struct tr_columns_seen *seen, uint32_t first_index, struct tr_matrix *m)
{
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) {
        uint32_t column = m->column[k] + first_index;
        struct tr_column_word word = seen->page[column >> PAGE_BITS][column / 32 % PAGE_WORDS];
        m->column[k] = word.rank + count_bits(word.bits & ((1u << column % 32) - 1));
    }
}

void tr_columns_free(struct tr_columns_seen *seen)
{
    for (size_t p = 0; p < PAGES && seen->page; p++) free(seen->page[p]);
    free(seen->page);
    seen->page = NULL;
}
