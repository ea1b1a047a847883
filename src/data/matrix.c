#define _GNU_SOURCE
#include "data/matrix.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
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

void tr_matrix_replace(struct tr_matrix *m, struct tr_matrix *by)
{
    float *label = m->label;
    m->label = NULL;
    tr_matrix_free(m);
    *m = *by;
    m->label = label;
    *by = (struct tr_matrix){0};
}

int tr_matrix_make_sparse(struct tr_matrix *m)
{
    TR_CLOSED_BY(tr_matrix_free) struct tr_matrix sparse = {0};
    TR_TRY(tr_matrix_to_sparse(m, &sparse));
    tr_matrix_replace(m, &sparse);
    return TR_OK;
}

int tr_matrix_make_dense(struct tr_matrix *m, size_t columns)
{
    struct tr_matrix dense = {.rows = m->rows, .columns = columns};
    if (!m->begin) return TR_OK; /* rows are dense already, or there are none */
    TR_TRY(TR_NEW(&dense.value, m->rows * columns));
    tr_lists_fill(m->begin, m->rows, m->column, m->value, columns, dense.value);
    tr_matrix_replace(m, &dense);
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

/* Does the work of tr_renumber() with a hash table. If that would take more than most_bytes, sets *fits to false and changes
 * nothing. */
static int renumber_by_hash(struct tr_matrix *m, size_t most_bytes, bool *fits, uint32_t **keys, size_t *n)
{
    TR_CLOSED_BY(tr_ids_free) struct tr_ids ids = {.are_text = false};
    TR_FREED uint32_t *order = NULL, *rank = NULL;
    size_t nonzeros = tr_matrix_nonzeros(m);
    uint32_t at;
    *fits = true;
    for (size_t k = 0; k < nonzeros; k++) {
        TR_TRY(tr_ids_number(&ids, m->column[k], &at));
        size_t bytes = 3 * ids.slots * sizeof *ids.slot + (size_t)ids.direct_size * sizeof *ids.direct;
        *fits = bytes + 24 * ids.n <= most_bytes;
        if (!*fits) return TR_OK;
    }
    TR_TRY(tr_ids_sort(&ids, &order));
    TR_TRY(TR_NEW(keys, ids.n));
    TR_TRY(TR_NEW(&rank, ids.n));
    for (size_t i = 0; i < ids.n; i++) {
        (*keys)[i] = (uint32_t)ids.number[order[i]];
        rank[order[i]] = (uint32_t)i;
    }
    for (size_t k = 0; k < nonzeros; k++) {
        TR_TRY(tr_ids_number(&ids, m->column[k], &at));
        m->column[k] = rank[at];
    }
    *n = ids.n;
    return TR_OK;
}

/* An index set is fast and takes 1/4 byte for each index of the range. It is used unless it may take more memory than the columns
 * themselves and 4 MiB. Otherwise a hash table is tried, since there may be few distinct columns; if the table becomes larger than
 * the set would be, the set is used. */
int tr_renumber(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n)
{
    size_t nonzeros = tr_matrix_nonzeros(m);
    bool outside = nonzeros > 0 && (lowest > highest || highest == UINT32_MAX), fits = false;
    for (size_t i = 0; i < nonzeros; i++) outside |= m->column[i] < lowest || m->column[i] > highest;
    if (outside)
        return tr_fail(TR_ERR_INTERNAL, "columns outside of %u..%u", (unsigned)lowest, (unsigned)highest);
    *n = 0;
    if (nonzeros == 0) return TR_NEW(keys, 0);
    size_t set_bytes = (size_t)(highest - lowest) / 4;
    if (set_bytes > nonzeros * sizeof *m->column + ((size_t)4 << 20))
        TR_TRY(renumber_by_hash(m, set_bytes, &fits, keys, n));
    if (fits) return TR_OK;
    TR_CLOSED_BY(tr_index_set_free) struct tr_index_set set = {NULL};
    TR_TRY(tr_index_set_add(&set, m->column, nonzeros, 1));
    TR_TRY(tr_index_set_number(&set, 0, (uint64_t)1 << 32, keys, n));
    for (size_t k = 0; k < nonzeros; k++) m->column[k] = tr_index_set_find(&set, m->column[k]);
    return TR_OK;
}

int tr_keys_sort(uint32_t *keys, size_t *n)
{
    TR_FREED uint32_t *scratch = NULL;
    size_t kept = 0;
    TR_TRY(TR_NEW(&scratch, *n));
    tr_sort_u32(keys, scratch, *n);
    for (size_t i = 0; i < *n; i++)
        if (i == 0 || keys[i] != keys[kept - 1]) keys[kept++] = keys[i];
    *n = kept;
    return TR_OK;
}

/* ---- rows of triples ---- */

int tr_triples_to_rows(struct tr_triples *t, uint64_t row_numbers, size_t columns, struct tr_matrix *m,
                       uint64_t **numbers)
{
    const size_t some = 1 << 16; /* number of triples whose memory is freed together */
    struct entry {
        uint32_t row;
        float value;
    };
    TR_FREED struct entry *entry = NULL; /* row and value of each triple, sorted by column */
    TR_FREED uint64_t *begin = NULL;
    uint64_t *next;
    size_t n = t->n;
    bool sorted = true;
    *m = (struct tr_matrix){0};
    for (size_t i = 1; i < n && sorted; i++) {
        const struct tr_triple *a = &t->triple[i - 1], *b = &t->triple[i];
        sorted = a->row < b->row || (a->row == b->row && a->column <= b->column);
    }

    /* Replace the row of each triple by its index among the rows that occur; *numbers has their numbers. Set m->begin[i + 1] to the
     * position of the first non-zero of row i. It is incremented when a non-zero of the row is stored, and so becomes the row's
     * end. */
    TR_CLOSED_BY(tr_index_set_free) struct tr_index_set rows = {NULL};
    TR_FREED uint32_t *list = NULL;
    const size_t stride = sizeof *t->triple / sizeof t->triple->row;
    if (n > 0) TR_TRY(tr_index_set_add(&rows, &t->triple->row, n, stride));
    TR_TRY(tr_index_set_number(&rows, 0, (uint64_t)1 << 32, &list, &m->rows));
    TR_TRY(TR_NEW(numbers, m->rows));
    TR_TRY(TR_NEW(&m->begin, m->rows + 2));
    next = m->begin + 1;
    for (size_t i = 0; i < m->rows; i++) (*numbers)[i] = list[i];
    for (size_t i = 0; i < n; i++) {
        if (m->rows != row_numbers) t->triple[i].row = tr_index_set_find(&rows, t->triple[i].row);
        next[t->triple[i].row + 1]++;
    }
    for (size_t row = 0; row < m->rows; row++) next[row + 1] += next[row];
    tr_index_set_free(&rows);

    if (sorted) {
        TR_TRY(TR_NEW(&m->column, n));
        TR_TRY(TR_NEW(&m->value, n));
    } else {
        TR_TRY(TR_NEW(&begin, columns + 2));
        TR_TRY(TR_NEW(&entry, n));
        next = begin + 1; /* in the end, entries begin[c] .. begin[c + 1] - 1 have column c */
        for (size_t i = 0; i < n; i++) next[t->triple[i].column + 1]++;
        for (size_t c = 0; c < columns; c++) next[c + 1] += next[c];
    }
    for (size_t first = 0; first < n; first += some) {
        size_t end = tr_min_size(first + some, n);
        for (size_t i = first; i < end; i++) {
            const struct tr_triple *a = &t->triple[i];
            if (sorted) {
                m->begin[a->row + 1]++;
                m->column[i] = a->column;
                m->value[i] = a->value;
            } else {
                entry[next[a->column]++] = (struct entry){a->row, a->value};
            }
        }
        tr_pages_give_back(t->triple + first, (end - first) * sizeof *t->triple);
    }
    free(t->triple);
    t->triple = NULL;
    t->n = t->triple_capacity = 0;
    if (sorted) return TR_OK;

    /* entries are sorted by column; sort them by row, too: both passes are stable */
    TR_TRY(TR_NEW(&m->column, n));
    TR_TRY(TR_NEW(&m->value, n));
    next = m->begin + 1;
    for (size_t c = 0; c < columns; c++)
        for (uint64_t k = begin[c]; k < begin[c + 1]; k++) {
            uint64_t to = next[entry[k].row]++;
            m->column[to] = (uint32_t)c;
            m->value[to] = entry[k].value;
        }
    return TR_OK;
}

void tr_rows_merge(struct tr_matrix *m, int duplicates)
{
    uint64_t kept = 0, k = 0;
    for (size_t i = 0; i < m->rows; i++) {
        uint64_t end = m->begin[i + 1];
        while (k < end) {
            uint64_t first = k;
            double sum = 0;
            while (k < end && m->column[k] == m->column[first]) k++;
            float value = m->value[k - 1];
            if (k - first > 1 && duplicates != TR_DUPLICATES_LAST) {
                for (uint64_t j = first; j < k; j++) sum += (double)m->value[j];
                value = (float)(duplicates == TR_DUPLICATES_MEAN ? sum / (double)(k - first) : sum);
            }
            m->column[kept] = m->column[first];
            m->value[kept++] = value;
        }
        m->begin[i + 1] = kept;
    }
}

/* ---- quantiles ---- */

static int quantiles_push(struct tr_quantiles *q, size_t level, uint32_t key)
{
    size_t n = q->level[level].n;
    if (n == q->level[level].capacity)
        TR_TRY(TR_GROW(&q->level[level].key, &q->level[level].capacity, n + 1));
    uint32_t *list = q->level[level].key, *other;
    list[n++] = key;
    q->level[level].n = n;
    if (n < TR_QUANTILES_BUFFER) return TR_OK;
    TR_TRY(TR_NEW(&other, n)); /* the buffer is full: half of its numbers (`other`) go to the next level */
    tr_sort_u32(list, other, n);
    free(other);
    q->level[level].n = 0;
    q->level[level].odd = !q->level[level].odd;
    for (size_t i = q->level[level].odd; i < n; i += 2) TR_TRY(quantiles_push(q, level + 1, list[i]));
    return TR_OK;
}

int tr_quantiles_add(struct tr_quantiles *q, float x)
{
    uint32_t bits;
    x += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &x, sizeof bits);
    q->n++;
    return quantiles_push(q, 0, bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

int tr_quantiles_join(struct tr_quantiles *q, size_t level, const uint32_t *key, size_t n)
{
    q->n += (uint64_t)n << level;
    for (size_t i = 0; i < n; i++) TR_TRY(quantiles_push(q, level, key[i]));
    return TR_OK;
}

struct weighed_key {
    uint32_t key;
    uint64_t weight;
};

static int quantiles_by_key(const void *a, const void *b)
{
    const struct weighed_key *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

int tr_quantiles_at(const struct tr_quantiles *q, const double *share, size_t n, float *x)
{
    TR_FREED struct weighed_key *all = NULL;
    size_t count = 0, at = 0;
    for (size_t level = 0; level < TR_QUANTILES_LEVELS; level++) count += q->level[level].n;
    TR_TRY(TR_NEW(&all, count));
    for (size_t level = 0; level < TR_QUANTILES_LEVELS; level++)
        for (size_t i = 0; i < q->level[level].n; i++)
            all[at++] = (struct weighed_key){q->level[level].key[i], (uint64_t)1 << level};
    qsort(all, count, sizeof *all, quantiles_by_key);
    for (size_t k = 0; k < n; k++) {
        double wanted = fmax(1, ceil(share[k] * (double)q->n));
        uint64_t sum = 0;
        size_t i = 0;
        while (i + 1 < count && (double)(sum += all[i].weight) < wanted) i++;
        uint32_t key = all[i].key, bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
        memcpy(&x[k], &bits, sizeof bits);
    }
    return TR_OK;
}

void tr_quantiles_free(struct tr_quantiles *q)
{
    for (size_t level = 0; level < TR_QUANTILES_LEVELS; level++) free(q->level[level].key);
    memset(q, 0, sizeof *q);
}
