/* Divides columns into bins, and stores rows as bins. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "trees.h"

/* ================ bins ================ */

/* Size of the sample of rows from which bins are made: SAMPLE_ROWS, fewer if there are many columns. */
enum { SAMPLE_ROWS = 200000, LEAST_ROWS = 20000, SAMPLE_NUMBERS = 1 << 26 };

/* Approximate number of bytes of a piece of the sample that a worker sends. */
enum { PIECE_BYTES = 1 << 22 };

/* Minimum number of rows of the sample in a bin. */
enum { LEAST_IN_BIN = 3 };

/* The sample of rows from which bins are made. Each worker makes the bins of some columns: its own columns. It receives their
 * numbers in the sample from all workers in pieces; a piece contains some of the own columns of each worker. */
struct sample {
    double part; /* size of the sample as a fraction of all rows */
    double rows; /* sum of the weights of the rows in the sample, over all workers */
    /* Per column: number of entries (stored numbers, or NaN) in this worker's sample; | MISSING if a row of the worker has NaN. */
    uint32_t *count;
    size_t pieces; /* number of pieces */
};
enum { MISSING = 1 << 30 };

/* A distinct number of a column, and the total weight of the rows that have this number. */
struct value_run {
    float value;
    double rows;
};

struct maker {
    tr_context *tr;
    const tr_data *data;
    size_t most;    /* maximum number of bins of a column */
    uint64_t least; /* minimum number of rows that differ from the most frequent number */
    uint64_t seed;
    const uint32_t *number; /* per row: its number among the rows of all workers */
    const float *weight;    /* weights of the rows; NULL: every row has weight 1 */
    double scale;      /* weights are rounded to multiples of 1 / scale: sums do not depend on the order */
    double row;        /* weight that counts as one row: 1, or the mean weight if it is below 1 */
    double total_rows; /* number of rows with a weight above 0, over all workers */
    size_t first, end; /* range of the own columns of this worker */
    const uint32_t *values; /* per column: number of values of a category; 0: numeric; NULL: all numeric */
    uint32_t *info; /* result for the next own column: number of cuts, | MISSING if a row has no number */
    float *cuts;    /* cuts of the own columns so far */
    size_t n_cuts, capacity;
    uint32_t *key, *other; /* sort keys of the numbers of a column; scratch for sorting them */
    uint64_t *weighted;    /* if rows have weights: key << 32 | bits of the weight */
    float *mass;           /* weight of the row of each sorted key */
    size_t key_capacity, other_capacity, run_capacity, weighted_capacity, mass_capacity;
    struct value_run *run;
};

/* Returns the first own column of a worker. */
static size_t bins_column_begin(size_t columns, int worker, int workers)
{
    return (size_t)((double)columns * worker / workers);
}

/* ---- the sample ---- */

static inline double sample_weight(const struct maker *m, size_t row)
{
    return m->weight ? rint((double)m->weight[row] * m->scale) / m->scale : 1;
}

/* Sets scale, row and total_rows of the maker from the weights of all rows. All workers. */
static int sample_weigh(struct maker *m)
{
    double most = 0, sum[2] = {0};
    int exponent;
    m->row = 1;
    m->total_rows = (double)m->data->total_rows;
    if (!m->weight) return TR_OK;
    for (size_t i = 0; i < m->data->rows.n; i++) most = fmax(most, (double)m->weight[i]);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, &most, 1));
    (void)frexp(most, &exponent);
    m->scale = ldexp(1, 24 - exponent);
    for (size_t i = 0; i < m->data->rows.n; i++) {
        double w = sample_weight(m, i);
        sum[0] += w;
        sum[1] += w > 0;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sum, 2));
    m->row = fmin(1, sum[0] / sum[1]);
    m->total_rows = sum[1];
    return TR_OK;
}

static inline bool sample_has_row(const struct maker *m, const struct sample *s, size_t row)
{
    return (double)(tr_mix(tr_mix(m->seed) ^ m->number[row]) >> 11) < s->part * 0x1p53 &&
           sample_weight(m, row) > 0;
}

/* Counts the entries per column in this worker's sample, and adds the weights of its rows. */
static void sample_count(const struct maker *m, struct sample *s)
{
    const tr_batch *rows = &m->data->rows;
    size_t columns = (size_t)m->data->columns;
    double most = fmin(SAMPLE_ROWS, fmax(LEAST_ROWS, SAMPLE_NUMBERS / (double)columns));
    s->part = fmin(1, most / m->total_rows);
    for (size_t i = 0, there = 0; i < rows->n; i++) {
        if (i == there && (there += tr_data_ready(m->data, i, rows->n - i)) == i) return;
        double w = sample_weight(m, i);
        bool drawn = sample_has_row(m, s, i);
        if (w == 0) continue;
        s->rows += drawn ? w : 0;
        for (size_t c = 0; c < columns && rows->dense; c++) {
            float x = rows->dense[i * columns + c];
            s->count[c] += drawn;
            if (x != x) s->count[c] |= MISSING;
        }
        for (uint64_t k = rows->dense ? 0 : rows->begin[i]; !rows->dense && k < rows->begin[i + 1]; k++) {
            uint32_t *c = &s->count[m->data->keys[rows->column[k]]];
            *c += drawn;
            if (rows->value && rows->value[k] != rows->value[k]) *c |= MISSING;
        }
    }
}

/* Returns the own columns of a worker that a piece contains. */
struct range {
    size_t first, end;
};
static struct range sample_columns(const struct maker *m, int worker, size_t piece, size_t pieces)
{
    int workers = tr_workers(m->tr);
    size_t columns = (size_t)m->data->columns, first = bins_column_begin(columns, worker, workers),
           n = bins_column_begin(columns, worker + 1, workers) - first;
    return (struct range){first + n * piece / pieces, first + n * (piece + 1) / pieces};
}

static inline void sample_copy_number(const struct maker *m, size_t row, float x, size_t *at, float *value)
{
    value[(*at)++] = x;
    if (m->weight) value[(*at)++] = (float)sample_weight(m, row);
}

/* ---- one column ---- */

/* Makes cuts between the distinct numbers of a column such that bins have about the same number of rows. A number that is
 * so frequent that its rows fill a bin gets a bin of its own. */
static int bins_cut_runs(struct maker *m, size_t runs, size_t bins)
{
    double left = 0, in_bin = 0;
    for (size_t i = 0; i < runs; i++) left += m->run[i].rows;
    size_t made = 0;
    TR_TRY(TR_GROW(&m->cuts, &m->capacity, m->n_cuts + bins));
    for (size_t i = 0; i + 1 < runs && made + 1 < bins; i++) {
        double share = left / (double)(bins - made);
        in_bin += m->run[i].rows;
        bool enough = runs <= bins || in_bin >= share || (m->run[i + 1].rows >= share && in_bin >= share / 2);
        if (!enough || in_bin < LEAST_IN_BIN * m->row) continue;
        float a = m->run[i].value, b = m->run[i + 1].value, middle = (float)(((double)a + (double)b) / 2);
        m->cuts[m->n_cuts + made++] = middle < b ? middle : a;
        left -= in_bin;
        in_bin = 0;
    }
    m->n_cuts += made;
    m->info[0] = (uint32_t)made;
    return TR_OK;
}

/* ---- all columns of a worker ---- */

/* Numbers that this worker received from all workers. */
struct arrival {
    uint32_t *count; /* count[w * columns + k] is sample.count of worker w for the k-th own column */
    float *value;    /* numbers of the current piece, sorted by worker */
    size_t *at;      /* per worker: index in `value` of its numbers of the next column */
};

/* Sends the numbers of a piece to the workers that own its columns, and receives the numbers of this worker's own columns. */
static int sample_exchange_piece(const struct maker *m, size_t piece, const struct sample *s,
                                 struct arrival *a)
{
    const tr_batch *rows = &m->data->rows;
    size_t workers = (size_t)tr_workers(m->tr), columns = (size_t)m->data->columns, mine = m->end - m->first,
           width = m->weight ? 2 : 1, values = 0, total = 0;
    struct range own = sample_columns(m, tr_set_rank(m->tr, TR_SET_WORKERS), piece, s->pieces);
    TR_FREED size_t *bytes = NULL;
    /* Per column: index of its next number in `value`; SIZE_MAX: another piece contains the column. */
    TR_FREED size_t *at = NULL;
    TR_FREED struct range *range = NULL;
    TR_FREED float *value = NULL; /* numbers to send, by column; if rows have weights, each with its weight */
    TR_TRY(TR_NEW(&bytes, 2 * workers));
    TR_TRY(TR_NEW(&at, columns));
    TR_TRY(TR_NEW(&range, workers));
    for (size_t c = 0; c < columns; c++) at[c] = SIZE_MAX;
    for (size_t w = 0; w < workers; w++) {
        range[w] = sample_columns(m, (int)w, piece, s->pieces);
        for (size_t c = range[w].first; c < range[w].end; c++) {
            at[c] = values;
            values += (s->count[c] & (MISSING - 1)) * width;
            bytes[w] += (s->count[c] & (MISSING - 1)) * width * sizeof *value;
        }
        a->at[w] = total;
        for (size_t c = own.first; c < own.end; c++)
            total += (a->count[w * mine + c - m->first] & (MISSING - 1)) * width;
        bytes[workers + w] = (total - a->at[w]) * sizeof *value;
    }
    TR_TRY(TR_NEW(&value, values));
    for (size_t i = 0, there = 0; i < rows->n; i++) {
        if (i == there && (there += tr_data_ready(m->data, i, rows->n - i)) == i) break;
        if (!sample_has_row(m, s, i)) continue;
        for (size_t w = 0; w < workers && rows->dense; w++)
            for (size_t c = range[w].first; c < range[w].end; c++)
                sample_copy_number(m, i, rows->dense[i * columns + c], &at[c], value);
        for (uint64_t k = rows->dense ? 0 : rows->begin[i]; !rows->dense && k < rows->begin[i + 1]; k++) {
            size_t *to = &at[m->data->keys[rows->column[k]]];
            if (*to != SIZE_MAX) sample_copy_number(m, i, tr_value_at(rows, k), to, value);
        }
    }
    TR_TRY(TR_NEW(&a->value, total));
    return tr_exchange(m->tr, TR_SET_WORKERS, value, bytes, a->value, bytes + workers);
}

/* Makes the cuts of the k-th own column of this worker. */
static int bins_make_column(struct maker *m, struct arrival *a, size_t k, const struct sample *s)
{
    size_t mine = m->end - m->first, n = 0;
    double all = 0, numbers = 0; /* weight of the rows that store an entry; of those whose entry is not NaN */
    uint32_t missing = 0;
    for (int w = 0; w < tr_workers(m->tr); w++) {
        size_t count = a->count[(size_t)w * mine + k] & (MISSING - 1);
        missing |= a->count[(size_t)w * mine + k] & MISSING;
        TR_TRY(TR_GROW(&m->key, &m->key_capacity, n + count));
        if (m->weight) TR_TRY(TR_GROW(&m->weighted, &m->weighted_capacity, n + count));
        for (size_t i = 0; i < count; i++) {
            float x = a->value[a->at[w]++], weight = m->weight ? a->value[a->at[w]++] : 1;
            uint32_t bits;
            all += (double)weight;
            if (x != x) continue;
            numbers += (double)weight;
            memcpy(&bits, &weight, sizeof bits);
            if (m->weight) m->weighted[n] = (uint64_t)tr_key_of_float(x) << 32 | bits;
            m->key[n++] = tr_key_of_float(x);
        }
    }
    uint32_t values = m->values ? m->values[m->first + k] : 0;
    if (values > 0) {
        /* Values of a category are numbered by descending frequency: rare values have no bin. */
        uint32_t cuts = (values < TR_MOST_VALUES ? values : TR_MOST_VALUES) - 1;
        TR_TRY(TR_GROW(&m->cuts, &m->capacity, m->n_cuts + cuts));
        for (uint32_t i = 0; i < cuts; i++) m->cuts[m->n_cuts++] = (float)i + 0.5f;
        *m->info = cuts;
        missing |= values > TR_MOST_VALUES ? MISSING : 0;
    } else {
        TR_TRY(TR_GROW(&m->other, &m->other_capacity, n));
        if (!m->weight) {
            tr_sort_u32(m->key, m->other, n);
        } else {
            TR_TRY(TR_GROW(&m->mass, &m->mass_capacity, n));
            if (n > 0) qsort(m->weighted, n, sizeof *m->weighted, tr_compare_u64);
            for (size_t i = 0; i < n; i++) {
                uint32_t bits = (uint32_t)m->weighted[i];
                m->key[i] = (uint32_t)(m->weighted[i] >> 32);
                memcpy(&m->mass[i], &bits, sizeof bits);
            }
        }
        /* List the distinct numbers of the n sorted keys. Rows without an entry have the number 0; their weight is `zeros`. */
        double zeros = s->rows - all;
        const uint32_t zero = tr_key_of_float(0);
        size_t runs = 0;
        TR_TRY(TR_GROW(&m->run, &m->run_capacity, n + 1));
        for (size_t i = 0; i < n || zeros > 0;) {
            bool is_zero = zeros > 0 && (i == n || m->key[i] >= zero);
            uint32_t key = is_zero ? zero : m->key[i];
            struct value_run *run = &m->run[runs++];
            *run = (struct value_run){tr_float_of_key(key), is_zero ? zeros : 0};
            if (is_zero) zeros = 0;
            for (; i < n && m->key[i] == key; i++) run->rows += m->weight ? (double)m->mass[i] : 1;
        }
        double most = all - numbers; /* weight of the most frequent number, or of rows without a number */
        for (size_t i = 0; i < runs; i++) most = m->run[i].rows > most ? m->run[i].rows : most;
        if (s->rows - most >= (double)m->least * m->row * s->part)
            TR_TRY(bins_cut_runs(m, runs, m->most - (missing > 0)));
        else missing = 0;
    }
    *m->info++ |= missing;
    return TR_OK;
}

/* ---- all columns ---- */

/* Sends the cuts of all columns to all workers. */
static int bins_gather(struct maker *m, const uint32_t *mine, struct tr_bins *bins)
{
    int workers = tr_workers(m->tr);
    size_t columns = bins->columns, total = 0;
    TR_FREED size_t *bytes = NULL;
    TR_FREED uint32_t *info = NULL;
    TR_TRY(TR_NEW(&bytes, (size_t)workers));
    TR_TRY(TR_NEW(&info, columns));
    for (int w = 0; w < workers; w++)
        bytes[w] = (bins_column_begin(columns, w + 1, workers) - bins_column_begin(columns, w, workers)) *
                   sizeof *info;
    TR_TRY(tr_all_gather_lists(m->tr, TR_SET_WORKERS, mine, bytes, info));
    for (int w = 0; w < workers; w++) {
        bytes[w] = 0;
        for (size_t c = bins_column_begin(columns, w, workers);
             c < bins_column_begin(columns, w + 1, workers); c++)
            bytes[w] += (info[c] & (MISSING - 1)) * sizeof(float);
        total += bytes[w] / sizeof(float);
    }
    TR_TRY(TR_NEW(&bins->cuts, total));
    TR_TRY(tr_all_gather_lists(m->tr, TR_SET_WORKERS, m->cuts, bytes, bins->cuts));
    const float *cut = bins->cuts;
    for (size_t c = 0; c < columns; c++) {
        size_t cuts = info[c] & (MISSING - 1);
        bool missing = info[c] & MISSING, category = m->values && m->values[c] > 0;
        bins->column[c] = (struct tr_column_bins){.offset = bins->total,
                                                  .bins = (uint32_t)(cuts + 1 + missing),
                                                  .zero = tr_bin_among(cut, cuts, 0),
                                                  .missing = missing,
                                                  .category = category,
                                                  .most = category ? (float)cuts + 0.5f : INFINITY,
                                                  .cut = cut};
        bins->total += cuts + 1 + missing;
        cut += cuts;
    }
    return TR_OK;
}

static void maker_free(struct maker *m)
{
    TR_FREE_ALL(m->cuts, m->key, m->other, m->run, m->weighted, m->mass);
}

static void arrival_free(struct arrival *a)
{
    TR_FREE_ALL(a->count, a->value, a->at);
}

int tr_bins_make(tr_context *tr, const tr_data *data, const uint32_t *number, const float *weight,
                 const uint32_t *values, size_t most, uint64_t least, uint64_t seed, struct tr_bins *bins)
{
    int worker = tr_set_rank(tr, TR_SET_WORKERS), workers = tr_workers(tr);
    size_t columns = (size_t)data->columns;
    TR_FREED uint32_t *count = NULL;
    TR_FREED uint32_t *info = NULL;
    struct sample sample = {0};
    TR_CLOSED_BY(arrival_free) struct arrival a = {0};
    TR_CLOSED_BY(maker_free)
    struct maker m = {.tr = tr,
                      .data = data,
                      .most = most,
                      .least = least,
                      .values = values,
                      .seed = seed,
                      .number = number,
                      .weight = weight,
                      .first = bins_column_begin(columns, worker, workers),
                      .end = bins_column_begin(columns, worker + 1, workers)};
    *bins = (struct tr_bins){.columns = columns};
    TR_TRY(sample_weigh(&m));
    TR_TRY(TR_NEW(&count, columns));
    sample.count = count;
    sample_count(&m, &sample);
    TR_TRY(TR_NEW(&bins->column, columns));
    TR_TRY(TR_NEW(&info, m.end - m.first));
    double seen[3] = {sample.rows, data->rows.n > 0 && !data->rows.dense};
    for (size_t c = 0; c < columns; c++) seen[2] += count[c] & (MISSING - 1);
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_F64, seen, 3));
    sample.rows = seen[0];
    bins->sparse = seen[1] > 0;
    sample.pieces = (size_t)seen[2] * (weight ? 2 : 1) * sizeof(float) / (size_t)workers / PIECE_BYTES + 1;
    m.info = info;
    /* Each worker receives the counts of its own columns from all workers. */
    size_t mine = m.end - m.first;
    TR_FREED size_t *bytes = NULL; /* bytes to send to each worker, then to receive from each worker */
    TR_TRY(TR_NEW(&a.count, (size_t)workers * mine));
    TR_TRY(TR_NEW(&a.at, (size_t)workers));
    TR_TRY(TR_NEW(&bytes, 2 * (size_t)workers));
    for (int w = 0; w < workers; w++) {
        struct range r = sample_columns(&m, w, 0, 1);
        bytes[w] = (r.end - r.first) * sizeof *a.count;
        bytes[workers + w] = mine * sizeof *a.count;
    }
    TR_TRY(tr_exchange(tr, TR_SET_WORKERS, count, bytes, a.count, bytes + workers));
    for (size_t piece = 0; piece < sample.pieces; piece++) {
        struct range own = sample_columns(&m, worker, piece, sample.pieces);
        TR_TRY(sample_exchange_piece(&m, piece, &sample, &a));
        for (size_t c = own.first; c < own.end; c++) TR_TRY(bins_make_column(&m, &a, c - m.first, &sample));
        free(a.value);
        a.value = NULL;
    }
    return bins_gather(&m, info, bins);
}

void tr_bins_free(struct tr_bins *bins)
{
    TR_FREE_ALL(bins->column, bins->cuts);
    *bins = (struct tr_bins){0};
}

/* ================ binned rows ================ */

/* Dense rows are stored as bytes. Two columns of sparse rows may share a byte if every row is in the bin of 0 in at least one of
 * them (exclusive feature bundling of Ke et al., LightGBM, NIPS 2017, without conflicts): one-hot columns become one column again.
 * If bundles need more memory than lists, rows stay lists. Each worker bundles the columns of its own rows. */

void tr_trees_huge(void *memory, size_t bytes)
{
    const uintptr_t huge = (uintptr_t)2 << 20, at = (uintptr_t)memory, begin = (at + huge - 1) / huge * huge,
                    end = (at + bytes) / huge * huge;
    if (begin < end) (void)madvise((char *)memory + (begin - at), end - begin, MADV_HUGEPAGE);
}

/* ---- bundles ---- */

static int binned_open_bytes(struct tr_binned *rows, size_t bundles)
{
    size_t width = 0;
    rows->bundles = bundles;
    for (size_t k = 0; k * TR_BLOCK < bundles; k++) width += tr_block_width(rows, k);
    TR_TRY(TR_NEW(&rows->block, rows->n * width + 3)); /* + 3: kernels read four bytes together */
    tr_trees_huge(rows->block, rows->n * width);
    return TR_OK;
}

int tr_binned_open(const struct tr_bins *bins, struct tr_binned *rows, size_t bundles)
{
    TR_TRY(TR_NEW(&rows->bundled, bins->columns));
    return binned_open_bytes(rows, bundles);
}

/* Returns whether a column is in a bundle. */
static bool binned_has_byte(const struct tr_column_bins *c)
{
    return c->bins > 1 && !tr_bins_are_wide(c);
}

int tr_binned_list(const struct tr_bins *bins, struct tr_binned *rows)
{
    TR_TRY(TR_NEW(&rows->column, bins->columns));
    TR_TRY(TR_NEW(&rows->column_begin, rows->bundles + 2));
    uint32_t *begin = rows->column_begin + 1;
    for (size_t c = rows->first; c < rows->end; c++)
        if (binned_has_byte(&bins->column[c])) begin[rows->bundled[c].bundle + 1]++;
    for (size_t b = 0; b < rows->bundles; b++) begin[b + 1] += begin[b];
    for (uint32_t c = (uint32_t)rows->first; c < rows->end; c++)
        if (binned_has_byte(&bins->column[c])) rows->column[begin[rows->bundled[c].bundle]++] = c;
    return TR_OK;
}

/* ---- dense rows ---- */

/* Returns the bin of a number; for NaN, the bin of missing numbers, or c->bins if the column has no such bin. */
static uint32_t bin_of_number(const struct tr_column_bins *c, float x)
{
    if (!(x <= c->most)) return c->bins - c->missing;
    return tr_bin_among(c->cut, (size_t)c->bins - 1 - c->missing, x);
}

/* Finds the bins of n <= AT_ONCE numbers of a column. All binary searches advance in parallel, in eight steps of halving size. */
enum { AT_ONCE = 64 };
TR_CPU_CLONES static void bins_of_numbers(const float cut[TR_BINS], const float *x, size_t stride, size_t n,
                                          uint8_t *bin)
{
    float value[AT_ONCE];
    int32_t at[AT_ONCE] = {0};
    for (size_t i = 0; i < AT_ONCE; i++) value[i] = x[(i < n ? i : 0) * stride];
    for (int32_t step = TR_BINS / 2; step > 0; step /= 2)
        for (size_t i = 0; i < AT_ONCE; i++) at[i] += -(cut[at[i] + step - 1] < value[i]) & step;
    for (size_t i = 0; i < n; i++) bin[i] = (uint8_t)at[i];
}

/* Stores the bins of the columns first .. end - 1 in a block. It processes a few rows at a time, so that they stay in the cache. */
static void binned_add_block(const struct tr_bins *bins, size_t first, size_t end, const float *x, size_t n,
                             uint8_t *block, size_t width)
{
    float cut[TR_BLOCK][TR_BINS];
    for (size_t c = first; c < end; c++) {
        const struct tr_column_bins *column = &bins->column[c];
        size_t cuts = (size_t)column->bins - 1 - column->missing;
        for (size_t b = 0; b < TR_BINS; b++) cut[c - first][b] = b < cuts ? column->cut[b] : INFINITY;
    }
    for (size_t i = 0; i < n; i += AT_ONCE)
        for (size_t c = first; c < end; c++) {
            const struct tr_column_bins *column = &bins->column[c];
            if (tr_bins_are_wide(column)) continue;
            const float *number = x + i * bins->columns + c - first;
            uint8_t *to = block + i * width + c - first, bin[AT_ONCE];
            size_t some = tr_min_size(AT_ONCE, n - i);
            bins_of_numbers(cut[c - first], number, bins->columns, some, bin);
            for (size_t k = 0; k < some; k++, number += bins->columns)
                to[k * width] = *number <= column->most ? bin[k] : (uint8_t)bin_of_number(column, *number);
        }
}

/* Number of rows that are converted to bins before their numbers are freed. */
enum { ROWS_AT_ONCE = 65536 };
static int binned_open_dense(const struct tr_bins *bins, const tr_data *data, struct tr_binned *rows)
{
    size_t columns = bins->columns;
    TR_TRY(tr_binned_open(bins, rows, columns));
    TR_TRY(TR_NEW(&rows->wide, columns));
    for (size_t c = 0; c < columns; c++) {
        rows->bundled[c] = (struct tr_bundled){.bundle = (uint32_t)c};
        if (tr_bins_are_wide(&bins->column[c])) TR_TRY(TR_NEW(&rows->wide[c], rows->n));
    }
    for (size_t i = 0, n; (n = tr_data_ready(data, i, tr_min_size(ROWS_AT_ONCE, rows->n - i))) > 0;) {
        const float *x = data->rows.dense + i * columns;
        for (size_t begin = 0; begin < columns; begin += TR_BLOCK)
            binned_add_block(bins, begin, tr_min_size(columns, begin + TR_BLOCK), x + begin, n,
                             tr_byte_of(rows, i, begin), tr_block_width(rows, begin / TR_BLOCK));
        for (size_t c = 0; c < columns; c++)
            for (size_t j = 0; j < n && rows->wide[c]; j++)
                rows->wide[c][i + j] = (uint16_t)bin_of_number(&bins->column[c], x[j * columns + c]);
        tr_data_forget_rows(data, i += n);
    }
    return tr_binned_list(bins, rows);
}

int tr_bins_by_column(struct tr_binned *rows)
{
    size_t n = rows->n;
    if (!rows->block) return TR_OK;
    TR_TRY(TR_NEW(&rows->of_bundle, n * rows->bundles + 3)); /* + 3: kernels read four bytes together */
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

static int binned_open_sparse(const struct tr_bins *bins, const tr_data *data, struct tr_binned *rows)
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
            uint32_t bin = bin_of_number(c, tr_value_at(from, k));
            if (bin != c->zero && bin < c->bins) rows->place[n++] = (uint32_t)(c->offset + bin);
        }
        rows->begin[i + 1] = n;
    }
    return TR_OK;
}

static void bundler_free(uint64_t ***taken)
{
    for (size_t b = 0; *taken && (*taken)[b]; b++) free((*taken)[b]);
    free(*taken);
}

int tr_binned_bundle(const struct tr_bins *bins, struct tr_binned *rows)
{
    uint64_t n = rows->begin[rows->n];
    size_t most = (size_t)(n * sizeof *rows->place / rows->n) + 1, columns = 0, bundles = 0;
    TR_FREED uint32_t *column = NULL; /* per bin: the column that it belongs to */
    /* The rows row[begin[c]] .. row[begin[c + 1] - 1] are not in the bin of 0 of column c. */
    TR_FREED uint64_t *begin = NULL;
    TR_FREED uint32_t *row = NULL;
    /* Columns by descending number of such rows: ascending list of ~(number of rows << 32 | column). */
    TR_FREED uint64_t *order = NULL;
    TR_FREED uint32_t *bytes = NULL; /* per bundle: number of byte values in use */
    /* Per bundle: a bit per row, 1 if the row is not in the bin of 0 in a column of the bundle. NULL follows the last bundle. */
    TR_CLOSED_BY(bundler_free) uint64_t **taken = NULL;
    TR_TRY(TR_NEW(&rows->bundled, bins->columns));
    TR_TRY(TR_NEW(&column, bins->total));
    TR_TRY(TR_NEW(&begin, bins->columns + 2));
    TR_TRY(TR_NEW(&row, (size_t)n));
    TR_TRY(TR_NEW(&order, bins->columns));
    TR_TRY(TR_NEW(&taken, most + 1));
    TR_TRY(TR_NEW(&bytes, most));

    /* Fill `begin` and `row`, then `order`. */
    for (uint32_t c = 0; c < bins->columns; c++)
        for (uint32_t k = 0; k < bins->column[c].bins; k++) column[bins->column[c].offset + k] = c;
    for (uint64_t k = 0; k < n; k++) begin[column[rows->place[k]] + 2]++;
    for (size_t c = 1; c < bins->columns; c++) begin[c + 1] += begin[c];
    for (uint32_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            row[begin[column[rows->place[k]] + 1]++] = i;
    for (uint32_t c = (uint32_t)rows->first; c < rows->end; c++)
        if (bins->column[c].bins > 1) order[columns++] = ~((begin[c + 1] - begin[c]) << 32 | c);
    qsort(order, columns, sizeof *order, tr_compare_u64);

    /* Put each column into the first bundle with enough unused byte values and no common row. */
    for (size_t i = 0; i < columns; i++) {
        uint32_t c = (uint32_t)~order[i], values = bins->column[c].bins - 1u, at = 0;
        for (; at < bundles; at++) {
            uint64_t k = begin[c];
            if (bytes[at] + values > TR_BINS) continue;
            while (k < begin[c + 1] && !(taken[at][row[k] / 64] >> row[k] % 64 & 1)) k++;
            if (k == begin[c + 1]) break;
        }
        if (at == most) return TR_OK;
        if (at == bundles) {
            TR_TRY(TR_NEW(&taken[bundles], rows->n / 64 + 1));
            bytes[bundles++] = 1;
        }
        for (uint64_t k = begin[c]; k < begin[c + 1]; k++)
            taken[at][row[k] / 64] |= (uint64_t)1 << row[k] % 64;
        rows->bundled[c] = (struct tr_bundled){at, bytes[at]};
        bytes[at] += values;
    }

    /* Replace the lists of the rows by bytes. */
    TR_TRY(binned_open_bytes(rows, bundles));
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint32_t c = column[rows->place[k]], bin = rows->place[k] - (uint32_t)bins->column[c].offset;
            struct tr_bundled at = rows->bundled[c];
            *tr_byte_of(rows, i, at.bundle) = (uint8_t)(at.first + bin - (bin > bins->column[c].zero));
        }
    TR_FREE_ALL(rows->begin, rows->place);
    rows->begin = NULL;
    rows->place = NULL;
    return tr_binned_list(bins, rows);
}

int tr_bins_apply(const struct tr_bins *bins, const tr_data *data, bool bundle, struct tr_binned *rows)
{
    *rows = (struct tr_binned){.n = data->rows.n, .columns = bins->columns, .end = bins->columns};
    if (rows->n == 0) return TR_OK;
    if (data->rows.dense) return binned_open_dense(bins, data, rows);
    TR_TRY(binned_open_sparse(bins, data, rows));
    return bundle ? tr_binned_bundle(bins, rows) : TR_OK;
}

void tr_binned_free(struct tr_binned *rows)
{
    for (size_t c = 0; c < rows->columns && rows->wide; c++) free(rows->wide[c]);
    TR_FREE_ALL(rows->block, rows->of_bundle, rows->bundled, rows->column, rows->column_begin, rows->begin,
                rows->place, (void *)rows->wide);
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
