#define _GNU_SOURCE
#include "data/matrix.h"

#include <string.h>

#include "base/pages.h"
#include "data/reader.h"

/* ---- forms ---- */

uint64_t tr_matrix_limit(struct tr_matrix *m, uint32_t first_index, uint64_t columns)
{
    uint64_t kept = 0, k = 0, all = tr_matrix_nonzeros(m);
    if (first_index == 0 && columns == 0) return 0;
    if (columns == 0) columns = UINT64_MAX;
    for (size_t i = 0; i < m->rows; i++) {
        for (uint64_t end = m->begin[i + 1]; k < end; k++) {
            uint32_t column = m->column[k] - first_index;
            if (column >= columns) continue;
            m->column[kept] = column;
            if (m->value) m->value[kept] = m->value[k];
            kept++;
        }
        m->begin[i + 1] = kept;
    }
    return all - kept;
}

void tr_lists_fill(const uint64_t *begin, size_t n, const uint32_t *column, const float *value,
                   size_t columns, float *dense)
{
    for (size_t i = 0; i < n; i++, dense += columns)
        for (uint64_t k = begin[i]; k < begin[i + 1]; k++) dense[column[k]] = value ? value[k] : 1;
}

int tr_matrix_to_sparse(const struct tr_matrix *dense, struct tr_matrix *sparse)
{
    size_t n = tr_matrix_nonzeros(dense), kept = 0;
    *sparse = (struct tr_matrix){.rows = dense->rows};
    for (size_t k = 0; k < n; k++) kept += dense->value[k] != 0;
    TR_TRY(TR_NEW(&sparse->begin, dense->rows + 1));
    TR_TRY(TR_NEW(&sparse->column, kept));
    TR_TRY(TR_NEW(&sparse->value, kept));
    kept = 0;
    for (size_t i = 0; i < dense->rows; i++) {
        const float *row = dense->value + i * dense->columns;
        for (size_t c = 0; c < dense->columns; c++) {
            if (row[c] == 0) continue;
            sparse->column[kept] = (uint32_t)c;
            sparse->value[kept++] = row[c];
        }
        sparse->begin[i + 1] = kept;
    }
    return TR_OK;
}

int tr_matrix_make_sparse(struct tr_matrix *m)
{
    struct tr_matrix sparse;
    int status = tr_matrix_to_sparse(m, &sparse);
    if (status != TR_OK) {
        tr_matrix_free(&sparse);
        return status;
    }
    free(m->value);
    sparse.label = m->label;
    *m = sparse;
    return TR_OK;
}

int tr_matrix_make_dense(struct tr_matrix *m, size_t columns)
{
    float *value;
    if (!m->begin) return TR_OK; /* it is, or has no rows */
    TR_TRY(TR_NEW(&value, m->rows * columns));
    tr_lists_fill(m->begin, m->rows, m->column, m->value, columns, value);
    free(m->begin);
    free(m->column);
    free(m->value);
    *m = (struct tr_matrix){.rows = m->rows, .columns = columns, .value = value, .label = m->label};
    return TR_OK;
}

/* ---- numbers for indices ---- */

enum { INDEX_PAGES = 1 << (32 - TR_INDEX_PAGE_BITS) };

int tr_index_set_add(struct tr_index_set *set, const uint32_t *index, size_t n, size_t stride)
{
    if (!set->page) TR_TRY(TR_NEW(&set->page, INDEX_PAGES));
    for (size_t k = 0; k < n; k++) {
        uint32_t i = index[k * stride];
        struct tr_index_word **page = &set->page[i >> TR_INDEX_PAGE_BITS];
        if (!*page) TR_TRY(TR_NEW(page, TR_INDEX_PAGE_WORDS));
        (*page)[i / 32 % TR_INDEX_PAGE_WORDS].bits |= 1u << i % 32;
    }
    return TR_OK;
}

int tr_index_set_number(struct tr_index_set *set, uint64_t first, uint64_t end, uint32_t **list, size_t *n)
{
    const uint64_t size = 1 << TR_INDEX_PAGE_BITS;
    uint32_t sum = 0;
    for (uint64_t p = 0; p < INDEX_PAGES && set->page; p++) {
        struct tr_index_word *word = set->page[p];
        if (!word) continue;
        for (uint64_t i = p * size; i < (p + 1) * size && (p * size < first || (p + 1) * size > end); i++)
            if (i < first || i >= end) word[i / 32 % TR_INDEX_PAGE_WORDS].bits &= ~(1u << i % 32);
        for (size_t w = 0; w < TR_INDEX_PAGE_WORDS; w++) {
            word[w].rank = sum;
            sum += tr_count_bits(word[w].bits);
        }
    }
    *n = sum;
    TR_TRY(TR_NEW(list, sum));
    uint32_t *to = *list;
    for (uint64_t p = 0; p < INDEX_PAGES && set->page; p++)
        for (size_t w = 0; set->page[p] && w < TR_INDEX_PAGE_WORDS; w++)
            for (uint32_t bits = set->page[p][w].bits; bits; bits &= bits - 1)
                *to++ = (uint32_t)(p * size + 32 * w + (uint64_t)__builtin_ctz(bits) - first);
    return TR_OK;
}

void tr_index_set_free(struct tr_index_set *set)
{
    for (size_t p = 0; p < INDEX_PAGES && set->page; p++) free(set->page[p]);
    free(set->page);
    set->page = NULL;
}

static int renumber_by_set(struct tr_matrix *m, uint32_t **keys, size_t *n)
{
    struct tr_index_set set = {NULL};
    size_t nonzeros = tr_matrix_nonzeros(m);
    int status = tr_index_set_add(&set, m->column, nonzeros, 1);
    if (status == TR_OK) status = tr_index_set_number(&set, 0, (uint64_t)1 << 32, keys, n);
    for (size_t k = 0; k < nonzeros && status == TR_OK; k++)
        m->column[k] = tr_index_set_find(&set, m->column[k]);
    tr_index_set_free(&set);
    return status;
}

static size_t ids_bytes(const struct tr_ids *ids)
{
    return 3 * ids->slots * sizeof *ids->slot + (size_t)ids->direct_size * sizeof *ids->direct + 24 * ids->n;
}

/* Sets the keys, ascending, and replaces columns by their positions among them. */
static int renumber_by_order(struct tr_matrix *m, struct tr_ids *ids, const uint32_t *order, uint32_t *keys)
{
    uint32_t *rank, at;
    TR_TRY(TR_NEW(&rank, ids->n));
    for (size_t i = 0; i < ids->n; i++) {
        keys[i] = (uint32_t)ids->number[order[i]];
        rank[order[i]] = (uint32_t)i;
    }
    int status = TR_OK;
    for (size_t k = 0; k < tr_matrix_nonzeros(m) && status == TR_OK; k++) {
        status = tr_ids_number(ids, m->column[k], &at);
        m->column[k] = rank[at];
    }
    free(rank);
    return status;
}

/* By a hash table. *fits = false: it would take more than most_bytes, and nothing was changed. */
static int renumber_by_hash(struct tr_matrix *m, size_t most_bytes, bool *fits, uint32_t **keys, size_t *n)
{
    struct tr_ids ids = {.are_text = false};
    uint32_t *order = NULL, at;
    int status = TR_OK;
    *fits = true;
    for (size_t k = 0; k < tr_matrix_nonzeros(m) && status == TR_OK && *fits; k++) {
        status = tr_ids_number(&ids, m->column[k], &at);
        *fits = ids_bytes(&ids) <= most_bytes;
    }
    if (status == TR_OK && *fits) {
        status = tr_ids_sort(&ids, &order);
        if (status == TR_OK) status = TR_NEW(keys, ids.n);
        if (status == TR_OK) status = renumber_by_order(m, &ids, order, *keys);
        *n = ids.n;
    }
    free(order);
    tr_ids_free(&ids);
    return status;
}

/* A set takes 1/4 byte for each index of the range and is fast: it is used unless it may take more than the columns themselves and
 * 4 MiB. Otherwise a hash table is tried, since the distinct columns may be few; if it becomes larger than the set, the set is used. */
int tr_renumber(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    bool outside = nonzeros > 0 && (lowest > highest || highest == UINT32_MAX), fits = false;
    for (size_t i = 0; i < nonzeros; i++) outside |= m->column[i] < lowest || m->column[i] > highest;
    if (outside)
        return tr_fail(TR_ERR_INTERNAL, "columns outside of %u..%u", (unsigned)lowest, (unsigned)highest);
    if (nonzeros == 0) {
        *n = 0;
        return TR_NEW(keys, 0);
    }
    size_t set_bytes = (size_t)(highest - lowest) / 4;
    if (set_bytes > nonzeros * sizeof *m->column + ((size_t)4 << 20))
        TR_TRY(renumber_by_hash(m, set_bytes, &fits, keys, n));
    return fits ? TR_OK : renumber_by_set(m, keys, n);
}

/* Radix sort in three passes of 11 bits; the result is in `scratch`. */
static void keys_radix_sort(uint32_t *keys, uint32_t *scratch, size_t n)
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
    keys_radix_sort(keys, sorted, *n);
    for (size_t i = 0; i < *n; i++)
        if (i == 0 || sorted[i] != sorted[i - 1]) keys[kept++] = sorted[i];
    free(sorted);
    *n = kept;
    return TR_OK;
}

/* ---- rows of triples ---- */

static bool triples_are_sorted(const struct tr_triples *t)
{
    for (size_t i = 1; i < t->n; i++) {
        const struct tr_triple *a = &t->triple[i - 1], *b = &t->triple[i];
        if (a->row > b->row || (a->row == b->row && a->column > b->column)) return false;
    }
    return true;
}

/* A triple's row becomes its position among the rows that occur; *numbers are their numbers. m->begin[i + 1] becomes the position of
 * the first non-zero of row i, and, as non-zeros are stored, of the next one: its end at last. */
static int triples_number_rows(struct tr_triples *t, uint64_t row_numbers, struct tr_matrix *m,
                               uint64_t **numbers)
{
    struct tr_index_set rows = {NULL};
    uint32_t *list = NULL;
    const size_t stride = sizeof *t->triple / sizeof t->triple->row;
    int status = t->n > 0 ? tr_index_set_add(&rows, &t->triple->row, t->n, stride) : TR_OK;
    if (status == TR_OK) status = tr_index_set_number(&rows, 0, (uint64_t)1 << 32, &list, &m->rows);
    if (status == TR_OK) status = TR_NEW(numbers, m->rows);
    if (status == TR_OK) status = TR_NEW(&m->begin, m->rows + 2);
    if (status == TR_OK) {
        uint64_t *next = m->begin + 1;
        bool all = m->rows == row_numbers;
        for (size_t i = 0; i < m->rows; i++) (*numbers)[i] = list[i];
        for (size_t i = 0; i < t->n; i++) {
            if (!all) t->triple[i].row = tr_index_set_find(&rows, t->triple[i].row);
            next[t->triple[i].row + 1]++;
        }
        for (size_t row = 0; row < m->rows; row++) next[row + 1] += next[row];
    }
    free(list);
    tr_index_set_free(&rows);
    return status;
}

enum { SOME = 1 << 16 }; /* triples whose memory is freed at a time */

static void triples_free_records(struct tr_triples *t)
{
    free(t->triple);
    t->triple = NULL;
    t->n = t->triple_capacity = 0;
}

/* A triple without its column. */
struct entry {
    uint32_t row;
    float value;
};

/* The entries of column c become begin[c] .. begin[c + 1] - 1. */
static int triples_sort_by_column(struct tr_triples *t, size_t columns, struct entry **entry,
                                  uint64_t **begin)
{
    uint64_t *next;
    TR_TRY(TR_NEW(begin, columns + 2));
    TR_TRY(TR_NEW(entry, t->n));
    next = *begin + 1;
    for (size_t i = 0; i < t->n; i++) next[t->triple[i].column + 1]++;
    for (size_t c = 0; c < columns; c++) next[c + 1] += next[c];
    for (size_t first = 0; first < t->n; first += SOME) {
        size_t end = tr_min_size(first + SOME, t->n);
        for (size_t i = first; i < end; i++)
            (*entry)[next[t->triple[i].column]++] = (struct entry){t->triple[i].row, t->triple[i].value};
        tr_pages_give_back(t->triple + first, (end - first) * sizeof *t->triple);
    }
    return TR_OK;
}

/* Sorts triples by columns, and then by rows: two stable passes. */
static int triples_by_columns(struct tr_triples *t, size_t columns, struct tr_matrix *m)
{
    struct entry *entry;
    uint64_t *begin, *next = m->begin + 1;
    size_t n = t->n;
    TR_TRY(triples_sort_by_column(t, columns, &entry, &begin));
    triples_free_records(t);
    TR_TRY(TR_NEW(&m->column, n));
    TR_TRY(TR_NEW(&m->value, n));
    for (size_t c = 0; c < columns; c++)
        for (uint64_t k = begin[c]; k < begin[c + 1]; k++) {
            uint64_t to = next[entry[k].row]++;
            m->column[to] = (uint32_t)c;
            m->value[to] = entry[k].value;
        }
    free(entry);
    free(begin);
    return TR_OK;
}

int tr_triples_to_rows(struct tr_triples *t, uint64_t row_numbers, size_t columns, struct tr_matrix *m,
                       uint64_t **numbers)
{
    *m = (struct tr_matrix){0};
    bool sorted = triples_are_sorted(t);
    TR_TRY(triples_number_rows(t, row_numbers, m, numbers));
    if (!sorted) return triples_by_columns(t, columns, m);
    TR_TRY(TR_NEW(&m->column, t->n));
    TR_TRY(TR_NEW(&m->value, t->n));
    for (size_t first = 0; first < t->n; first += SOME) {
        size_t end = tr_min_size(first + SOME, t->n);
        for (size_t i = first; i < end; i++) {
            m->begin[t->triple[i].row + 1]++;
            m->column[i] = t->triple[i].column;
            m->value[i] = t->triple[i].value;
        }
        tr_pages_give_back(t->triple + first, (end - first) * sizeof *t->triple);
    }
    triples_free_records(t);
    return TR_OK;
}

/* One value for the non-zeros first .. end - 1 of one row and column. */
static float merge_values(const float *value, uint64_t first, uint64_t end, int duplicates)
{
    double sum = 0;
    if (duplicates == TR_DUPLICATES_LAST) return value[end - 1];
    for (uint64_t k = first; k < end; k++) sum += (double)value[k];
    return (float)(duplicates == TR_DUPLICATES_MEAN ? sum / (double)(end - first) : sum);
}

void tr_rows_merge(struct tr_matrix *m, int duplicates)
{
    uint64_t kept = 0, k = 0;
    for (size_t i = 0; i < m->rows; i++) {
        uint64_t end = m->begin[i + 1];
        while (k < end) {
            uint64_t first = k;
            while (k < end && m->column[k] == m->column[first]) k++;
            float value = k - first == 1 ? m->value[first] : merge_values(m->value, first, k, duplicates);
            m->column[kept] = m->column[first];
            m->value[kept++] = value;
        }
        m->begin[i + 1] = kept;
    }
}
