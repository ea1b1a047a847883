/* Rows as numbers of bins: bytes, or where rows are sparse and their columns do not fit together, lists. Of sparse rows columns that
 * are never both in other bins than that of 0 share a byte (Ke et al., LightGBM, NIPS 2017: exclusive feature bundling, here without
 * conflicts): what was one column before it became many of 0 and 1 is one again. Each worker bundles as its own rows are. */
#define _GNU_SOURCE /* madvise */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "trees.h"

/* Asked for in the middle of what calloc has got: from the first boundary on to the last. */
void tr_trees_huge(void *memory, size_t bytes)
{
    const uintptr_t huge = (uintptr_t)2 << 20, at = (uintptr_t)memory, begin = (at + huge - 1) / huge * huge,
                    end = (at + bytes) / huge * huge;
    if (begin < end) (void)madvise((char *)memory + (begin - at), end - begin, MADV_HUGEPAGE);
}

/* ---- bundles ---- */

static int open_bytes(struct tr_binned *rows, size_t bundles)
{
    size_t width = 0;
    rows->bundles = bundles;
    for (size_t k = 0; k * TR_BLOCK < bundles; k++) width += tr_block_width(rows, k);
    TR_TRY(TR_NEW(&rows->block, rows->n * width + 3)); /* three more may be read, but mean nothing */
    tr_trees_huge(rows->block, rows->n * width);
    return TR_OK;
}

int tr_binned_open(const struct tr_bins *bins, struct tr_binned *rows, size_t bundles)
{
    TR_TRY(TR_NEW(&rows->bundled, bins->columns));
    return open_bytes(rows, bundles);
}

static bool has_byte(const struct tr_column_bins *c)
{
    return c->bins > 1 && c->bins <= TR_BINS;
}

int tr_binned_list(const struct tr_bins *bins, struct tr_binned *rows)
{
    TR_TRY(TR_NEW(&rows->column, bins->columns));
    TR_TRY(TR_NEW(&rows->column_begin, rows->bundles + 2));
    uint32_t *begin = rows->column_begin + 1;
    for (size_t c = rows->first; c < rows->end; c++)
        if (has_byte(&bins->column[c])) begin[rows->bundled[c].bundle + 1]++;
    for (size_t b = 0; b < rows->bundles; b++) begin[b + 1] += begin[b];
    for (uint32_t c = (uint32_t)rows->first; c < rows->end; c++)
        if (has_byte(&bins->column[c])) rows->column[begin[rows->bundled[c].bundle]++] = c;
    return TR_OK;
}

/* ---- dense rows ---- */

static uint32_t bin_in(const struct tr_column_bins *c, float x)
{
    if (!(x <= c->most)) return c->bins - c->missing;
    return tr_bin_among(c->cut, (size_t)c->bins - 1 - c->missing, x);
}

/* The bins of some rows of a column, all at once: in each of eight steps a row's place goes up by a power of two or not. */
enum { AT_ONCE = 64 };
TR_CPU_CLONES static void find_bins(const float cut[TR_BINS], const float *x, size_t stride, size_t n,
                                    uint8_t *bin)
{
    float value[AT_ONCE];
    int32_t at[AT_ONCE] = {0};
    for (size_t i = 0; i < AT_ONCE; i++) value[i] = x[(i < n ? i : 0) * stride];
    for (int32_t step = TR_BINS / 2; step > 0; step /= 2)
        for (size_t i = 0; i < AT_ONCE; i++) at[i] += -(cut[at[i] + step - 1] < value[i]) & step;
    for (size_t i = 0; i < n; i++) bin[i] = (uint8_t)at[i];
}

/* Columns of more bins than a byte can say. */
static int open_wide(const struct tr_bins *bins, struct tr_binned *rows)
{
    TR_TRY(TR_NEW(&rows->wide, bins->columns));
    for (size_t c = 0; c < bins->columns; c++)
        if (bins->column[c].bins > TR_BINS) TR_TRY(TR_NEW(&rows->wide[c], rows->n));
    return TR_OK;
}

static void apply_wide(const struct tr_bins *bins, const float *x, size_t first, size_t n,
                       struct tr_binned *rows)
{
    for (size_t c = 0; c < bins->columns; c++)
        for (size_t i = 0; i < n && rows->wide[c]; i++)
            rows->wide[c][first + i] = (uint16_t)bin_in(&bins->column[c], x[i * bins->columns + c]);
}

/* One column of some rows. */
static void apply_column(const struct tr_column_bins *c, const float cut[TR_BINS], const float *x,
                         size_t stride, size_t n, uint8_t *block, size_t width)
{
    uint8_t bin[AT_ONCE];
    find_bins(cut, x, stride, n, bin);
    for (size_t i = 0; i < n; i++) {
        float number = x[i * stride];
        block[i * width] = number <= c->most ? bin[i] : (uint8_t)bin_in(c, number);
    }
}

/* The columns of a block, a few rows at a time, so that these stay in cache. */
static void apply_block(const struct tr_bins *bins, size_t first, size_t end, const float *x, size_t n,
                        uint8_t *block, size_t width)
{
    float cut[TR_BLOCK][TR_BINS];
    for (size_t c = first; c < end; c++) {
        const struct tr_column_bins *column = &bins->column[c];
        size_t cuts = (size_t)column->bins - 1 - column->missing;
        for (size_t b = 0; b < TR_BINS; b++) cut[c - first][b] = b < cuts ? column->cut[b] : INFINITY;
    }
    for (size_t i = 0; i < n; i += AT_ONCE)
        for (size_t c = first; c < end; c++)
            if (bins->column[c].bins <= TR_BINS)
                apply_column(&bins->column[c], cut[c - first], x + i * bins->columns + c - first,
                             bins->columns, tr_min_size(AT_ONCE, n - i), block + i * width + c - first,
                             width);
}

/* Some rows at a time: what has become bins is let go of. */
enum { ROWS_AT_ONCE = 65536 };
static int apply_dense(const struct tr_bins *bins, const tr_data *data, struct tr_binned *rows)
{
    size_t columns = bins->columns;
    TR_TRY(tr_binned_open(bins, rows, columns));
    TR_TRY(open_wide(bins, rows));
    for (size_t c = 0; c < columns; c++) rows->bundled[c] = (struct tr_bundled){.bundle = (uint32_t)c};
    for (size_t i = 0, n; (n = tr_data_ready(data, i, tr_min_size(ROWS_AT_ONCE, rows->n - i))) > 0;) {
        const float *x = data->rows.dense + i * columns;
        for (size_t begin = 0; begin < columns; begin += TR_BLOCK)
            apply_block(bins, begin, tr_min_size(columns, begin + TR_BLOCK), x + begin, n,
                        tr_byte_of(rows, i, begin), tr_block_width(rows, begin / TR_BLOCK));
        apply_wide(bins, x, i, n, rows);
        tr_data_forget_rows(data, i += n);
    }
    return tr_binned_list(bins, rows);
}

int tr_bins_by_column(struct tr_binned *rows)
{
    size_t n = rows->n;
    if (!rows->block) return TR_OK;
    TR_TRY(TR_NEW(&rows->of_bundle, n * rows->bundles + 3)); /* three more may be read, but mean nothing */
    tr_trees_huge(rows->of_bundle, n * rows->bundles);
    const uint8_t *block = rows->block;
    for (size_t k = 0; k * TR_BLOCK < rows->bundles; k++) {
        size_t first = k * TR_BLOCK, end = tr_min_size(rows->bundles, first + TR_BLOCK),
               width = tr_block_width(rows, k);
        for (size_t i = 0; i < n; i += AT_ONCE)
            for (size_t b = first; b < end; b++)
                for (size_t j = i; j < tr_min_size(n, i + AT_ONCE); j++)
                    rows->of_bundle[b * n + j] = block[j * width + b - first];
        block += n * width;
    }
    return TR_OK;
}

/* ---- sparse rows ---- */

static int apply_sparse(const struct tr_bins *bins, const tr_data *data, struct tr_binned *rows)
{
    const tr_batch *from = &data->rows;
    size_t n = 0;
    TR_TRY(TR_NEW(&rows->begin, rows->n + 1));
    TR_TRY(TR_NEW(&rows->place, (size_t)from->begin[rows->n]));
    for (size_t i = 0, there = 0; i < rows->n; i++) {
        if (i % ROWS_AT_ONCE == 0) tr_data_forget_rows(data, i);
        if (i == there && (there += tr_data_ready(data, i, rows->n - i)) == i) return TR_OK;
        for (uint64_t k = from->begin[i]; k < from->begin[i + 1]; k++) {
            const struct tr_column_bins *c = &bins->column[data->keys[from->column[k]]];
            uint32_t bin = bin_in(c, from->value ? from->value[k] : 1);
            if (bin != c->zero && bin < c->bins) rows->place[n++] = (uint32_t)(c->offset + bin);
        }
        rows->begin[i + 1] = n;
    }
    return TR_OK;
}

/* Columns with the rows that are not in their bin of 0, and bundles with the rows of all their columns. */
struct bundler {
    const struct tr_bins *bins;
    struct tr_binned *rows;
    uint32_t *column; /* of each bin */
    uint64_t *begin;  /* column c has the rows row[begin[c]] .. */
    uint32_t *row;
    uint32_t *order;  /* columns, those of many rows first */
    uint64_t **taken; /* of each bundle, a bit for each row */
    uint32_t *bytes;  /* numbers of each bundle that are in use */
    size_t bundles, most;
};

static int list_rows(struct bundler *b)
{
    const struct tr_bins *bins = b->bins;
    const struct tr_binned *rows = b->rows;
    uint64_t n = rows->begin[rows->n];
    TR_TRY(TR_NEW(&b->column, bins->total));
    TR_TRY(TR_NEW(&b->begin, bins->columns + 2));
    TR_TRY(TR_NEW(&b->row, (size_t)n));
    for (uint32_t c = 0; c < bins->columns; c++)
        for (uint32_t k = 0; k < bins->column[c].bins; k++) b->column[bins->column[c].offset + k] = c;
    for (uint64_t k = 0; k < n; k++) b->begin[b->column[rows->place[k]] + 2]++;
    for (size_t c = 1; c < bins->columns; c++) b->begin[c + 1] += b->begin[c];
    for (uint32_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            b->row[b->begin[b->column[rows->place[k]] + 1]++] = i;
    return TR_OK;
}

/* By how many rows they have, and then by number: as one number of both. */
static int by_rows(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

static int order_columns(struct bundler *b, size_t *n)
{
    uint64_t *key;
    *n = 0;
    TR_TRY(TR_NEW(&key, b->bins->columns));
    int status = TR_NEW(&b->order, b->bins->columns);
    for (uint32_t c = (uint32_t)b->rows->first; c < b->rows->end; c++)
        if (b->bins->column[c].bins > 1) key[(*n)++] = (b->begin[c + 1] - b->begin[c]) << 32 | c;
    qsort(key, *n, sizeof *key, by_rows);
    for (size_t i = 0; i < *n && status == TR_OK; i++) b->order[i] = (uint32_t)key[i];
    free(key);
    return status;
}

static bool is_free(const struct bundler *b, size_t bundle, uint32_t column)
{
    const uint64_t *taken = b->taken[bundle];
    if (b->bytes[bundle] + b->bins->column[column].bins - 1u > TR_BINS) return false;
    for (uint64_t k = b->begin[column]; k < b->begin[column + 1]; k++)
        if (taken[b->row[k] / 64] >> b->row[k] % 64 & 1) return false;
    return true;
}

/* Puts each column into the first bundle where it fits. *fit: there are not too many of these. */
static int fill_bundles(struct bundler *b, size_t columns, bool *fit)
{
    TR_TRY(TR_NEW(&b->taken, b->most));
    TR_TRY(TR_NEW(&b->bytes, b->most));
    *fit = false;
    for (size_t i = 0; i < columns; i++) {
        uint32_t c = b->order[i], at = 0;
        while (at < b->bundles && !is_free(b, at, c)) at++;
        if (at == b->most) return TR_OK;
        if (at == b->bundles) {
            TR_TRY(TR_NEW(&b->taken[b->bundles], b->rows->n / 64 + 1));
            b->bytes[b->bundles++] = 1;
        }
        for (uint64_t k = b->begin[c]; k < b->begin[c + 1]; k++)
            b->taken[at][b->row[k] / 64] |= (uint64_t)1 << b->row[k] % 64;
        b->rows->bundled[c] = (struct tr_bundled){at, b->bytes[at]};
        b->bytes[at] += b->bins->column[c].bins - 1u;
    }
    *fit = true;
    return TR_OK;
}

/* Bytes instead of lists. */
static int pack(struct bundler *b)
{
    struct tr_binned *rows = b->rows;
    TR_TRY(open_bytes(rows, b->bundles));
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint32_t c = b->column[rows->place[k]],
                     bin = rows->place[k] - (uint32_t)b->bins->column[c].offset;
            struct tr_bundled at = rows->bundled[c];
            *tr_byte_of(rows, i, at.bundle) = (uint8_t)(at.first + bin - (bin > b->bins->column[c].zero));
        }
    free(rows->begin);
    free(rows->place);
    rows->begin = NULL;
    rows->place = NULL;
    return tr_binned_list(b->bins, rows);
}

int tr_binned_bundle(const struct tr_bins *bins, struct tr_binned *rows)
{
    struct bundler b = {.bins = bins, .rows = rows};
    size_t columns = 0;
    bool fit = false;
    b.most = (size_t)(rows->begin[rows->n] * sizeof *rows->place / rows->n) + 1;
    int status = TR_NEW(&rows->bundled, bins->columns);
    if (status == TR_OK) status = list_rows(&b);
    if (status == TR_OK) status = order_columns(&b, &columns);
    if (status == TR_OK) status = fill_bundles(&b, columns, &fit);
    if (status == TR_OK && fit) status = pack(&b);
    for (size_t i = 0; i < b.bundles; i++) free(b.taken[i]);
    void *arrays[] = {b.column, b.begin, b.row, b.order, b.taken, b.bytes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return status;
}

int tr_bins_apply(const struct tr_bins *bins, const tr_data *data, bool bundle, struct tr_binned *rows)
{
    *rows = (struct tr_binned){.n = data->rows.n, .columns = bins->columns, .end = bins->columns};
    if (rows->n == 0) return TR_OK;
    if (data->rows.dense) return apply_dense(bins, data, rows);
    TR_TRY(apply_sparse(bins, data, rows));
    return bundle ? tr_binned_bundle(bins, rows) : TR_OK;
}

void tr_binned_free(struct tr_binned *rows)
{
    free(rows->block);
    free(rows->of_bundle);
    free(rows->bundled);
    free(rows->column);
    free(rows->column_begin);
    free(rows->begin);
    free(rows->place);
    for (size_t c = 0; c < rows->columns && rows->wide; c++) free(rows->wide[c]);
    free(rows->wide);
    *rows = (struct tr_binned){0};
}

uint32_t tr_bin_of_sparse(const struct tr_bins *bins, const struct tr_binned *rows, size_t row, size_t column)
{
    const struct tr_column_bins *c = &bins->column[column];
    const uint32_t *place = rows->place + rows->begin[row];
    size_t n = (size_t)(rows->begin[row + 1] - rows->begin[row]),
           at = tr_place_u32(place, n, (uint32_t)c->offset);
    return at < n && place[at] < c->offset + c->bins ? (uint32_t)(place[at] - c->offset) : c->zero;
}
