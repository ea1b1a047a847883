#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

/* Rows that bins are made of: about so many, fewer if they have many columns. */
enum { SAMPLE_ROWS = 200000, LEAST_ROWS = 20000, SAMPLE_NUMBERS = 1 << 26 };

/* Bytes of the sample that a worker has of its own rows at once, about: it goes to who makes the bins column by column. */
enum { PIECE_BYTES = 1 << 22 };

/* Rows of the sample in a bin, at least. */
enum { LEAST_IN_BIN = 3 };

/* The rows' numbers of the sample, by column. */
struct sample {
    double part;     /* that it is of all rows */
    uint64_t rows;   /* of all workers */
    uint32_t *count; /* of each column; MISSING is added if any of this worker's rows has no number there */
    size_t pieces;   /* each has some of the columns that each worker makes */
    float *value;    /* of one piece */
};
enum { MISSING = 1 << 30 };

/* What is known of a column when its bins are made. */
struct value_run {
    float value;
    uint32_t rows;
};

struct maker {
    tr_context *tr;
    const tr_data *data;
    size_t most;    /* bins of a column */
    uint64_t least; /* rows that lie apart in a column that trees may split by */
    uint64_t seed;
    const uint32_t *number; /* of rows */
    size_t first, end;      /* the columns that this worker makes */
    const uint32_t *values; /* of each column's category */
    uint32_t *info;         /* of each column: cuts, and MISSING */
    float *cuts;
    size_t n_cuts, capacity;
    uint32_t *key, *other; /* for sorting */
    size_t key_capacity, other_capacity, run_capacity;
    struct value_run *run;
};

static size_t column_begin(size_t columns, int worker, int workers)
{
    return (size_t)((double)columns * worker / workers);
}

/* ---- the sample ---- */

static bool is_drawn(uint64_t number, uint64_t seed, double part)
{
    return (double)(tr_mix(tr_mix(seed) ^ number) >> 11) < part * 0x1p53;
}

static void count_dense(const float *row, size_t columns, bool drawn, uint32_t *count)
{
    for (size_t c = 0; c < columns; c++) {
        count[c] += drawn;
        if (row[c] != row[c]) count[c] |= MISSING;
    }
}

static void count_sparse(const tr_data *data, size_t i, bool drawn, uint32_t *count)
{
    const tr_batch *rows = &data->rows;
    for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
        uint32_t *c = &count[data->keys[rows->column[k]]];
        *c += drawn;
        if (rows->value && rows->value[k] != rows->value[k]) *c |= MISSING;
    }
}

/* Of this worker's rows: how many numbers each column has. */
static int draw(const struct maker *m, struct sample *s)
{
    const tr_data *data = m->data;
    size_t columns = (size_t)data->columns, n = data->rows.n;
    double most = fmin(SAMPLE_ROWS, fmax(LEAST_ROWS, SAMPLE_NUMBERS / (double)columns));
    s->part = fmin(1, most / (double)data->total_rows);
    TR_TRY(TR_NEW(&s->count, columns));
    for (size_t i = 0, there = 0; i < n; i++) {
        if (i == there && (there += tr_data_ready(data, i, n - i)) == i) return TR_OK;
        bool drawn = is_drawn(m->number[i], m->seed, s->part);
        s->rows += drawn;
        if (data->rows.dense) count_dense(data->rows.dense + i * columns, columns, drawn, s->count);
        else count_sparse(data, i, drawn, s->count);
    }
    return TR_OK;
}

/* The columns of a piece that a worker makes. */
struct range {
    size_t first, end;
};
static struct range columns_of(const struct maker *m, int worker, size_t piece, size_t pieces)
{
    int workers = tr_workers(m->tr);
    size_t columns = (size_t)m->data->columns, first = column_begin(columns, worker, workers),
           n = column_begin(columns, worker + 1, workers) - first;
    return (struct range){first + n * piece / pieces, first + n * (piece + 1) / pieces};
}

/* at: where the next number of a column goes; SIZE_MAX: it is of another piece. */
static void take_row(const tr_data *data, size_t i, const struct range *range, size_t ranges, size_t *at,
                     float *value)
{
    const tr_batch *rows = &data->rows;
    size_t columns = (size_t)data->columns;
    for (size_t r = 0; r < ranges && rows->dense; r++)
        for (size_t c = range[r].first; c < range[r].end; c++) value[at[c]++] = rows->dense[i * columns + c];
    for (uint64_t k = rows->dense ? 0 : rows->begin[i]; !rows->dense && k < rows->begin[i + 1]; k++) {
        size_t *to = &at[data->keys[rows->column[k]]];
        if (*to != SIZE_MAX) value[(*to)++] = rows->value ? rows->value[k] : 1;
    }
}

static int take_rows(const struct maker *m, const struct sample *s, const struct range *range, size_t *at)
{
    size_t workers = (size_t)tr_workers(m->tr);
    for (size_t i = 0, there = 0, n = m->data->rows.n; i < n; i++) {
        if (i == there && (there += tr_data_ready(m->data, i, n - i)) == i) return TR_OK;
        if (is_drawn(m->number[i], m->seed, s->part)) take_row(m->data, i, range, workers, at, s->value);
    }
    return TR_OK;
}

/* The numbers of a piece, column after column. bytes: for each worker. */
static int take_piece(const struct maker *m, struct sample *s, size_t piece, size_t *bytes)
{
    size_t workers = (size_t)tr_workers(m->tr), columns = (size_t)m->data->columns, values = 0, *at;
    struct range *range = NULL;
    TR_TRY(TR_NEW(&at, columns));
    int status = TR_NEW(&range, workers);
    for (size_t c = 0; c < columns; c++) at[c] = SIZE_MAX;
    for (size_t w = 0; w < workers && status == TR_OK; w++) {
        range[w] = columns_of(m, (int)w, piece, s->pieces);
        bytes[w] = 0;
        for (size_t c = range[w].first; c < range[w].end; c++) {
            at[c] = values;
            values += s->count[c] & (MISSING - 1);
            bytes[w] += (s->count[c] & (MISSING - 1)) * sizeof *s->value;
        }
    }
    if (status == TR_OK) status = TR_NEW(&s->value, values);
    if (status == TR_OK) status = take_rows(m, s, range, at);
    free(range);
    free(at);
    return status;
}

/* ---- one column ---- */

/* The distinct values of so many sorted keys, and of `zeros` rows more that have a 0. */
static int find_runs(struct maker *m, size_t n, uint32_t zeros, size_t *runs)
{
    const uint32_t zero = tr_key_of_float(0);
    *runs = 0;
    TR_TRY(TR_GROW(&m->run, &m->run_capacity, n + 1));
    for (size_t i = 0; i < n || zeros > 0;) {
        bool is_zero = zeros > 0 && (i == n || m->key[i] >= zero);
        uint32_t key = is_zero ? zero : m->key[i];
        struct value_run *run = &m->run[(*runs)++];
        *run = (struct value_run){tr_float_of_key(key), is_zero ? zeros : 0};
        if (is_zero) zeros = 0;
        for (; i < n && m->key[i] == key; i++) run->rows++;
    }
    return TR_OK;
}

/* Between two neighbours: not below the lower, and below the upper. */
static float between(float a, float b)
{
    float middle = (float)(((double)a + (double)b) / 2);
    return middle < b ? middle : a;
}

/* Cuts that leave about equally many rows in each bin; a value of so many rows has one of its own. */
static int cut_runs(struct maker *m, size_t runs, size_t bins)
{
    double left = 0, in_bin = 0;
    for (size_t i = 0; i < runs; i++) left += m->run[i].rows;
    size_t made = 0;
    TR_TRY(TR_GROW(&m->cuts, &m->capacity, m->n_cuts + bins));
    for (size_t i = 0; i + 1 < runs && made + 1 < bins; i++) {
        double share = left / (double)(bins - made);
        in_bin += m->run[i].rows;
        bool enough = runs <= bins || in_bin >= share || (m->run[i + 1].rows >= share && in_bin >= share / 2);
        if (!enough || in_bin < LEAST_IN_BIN) continue;
        m->cuts[m->n_cuts + made++] = between(m->run[i].value, m->run[i + 1].value);
        left -= in_bin;
        in_bin = 0;
    }
    m->n_cuts += made;
    m->info[0] = (uint32_t)made;
    return TR_OK;
}

/* Rows whose number is not the most frequent one. */
static uint64_t rows_apart(const struct maker *m, size_t runs, uint64_t rows, uint64_t missing)
{
    uint64_t most = missing;
    for (size_t i = 0; i < runs; i++) most = m->run[i].rows > most ? m->run[i].rows : most;
    return rows - most;
}

/* ---- all columns of a worker ---- */

struct arrival {
    uint32_t *count; /* of each worker, of each of these columns */
    float *value;    /* of a piece */
    size_t *at;      /* of each worker: where the next column's begin */
};

/* Of a category, the most frequent values. */
static uint32_t values_with_bins(uint32_t values)
{
    return values < TR_MOST_VALUES ? values : TR_MOST_VALUES;
}

static int cut_values(struct maker *m, uint32_t values)
{
    uint32_t cuts = values_with_bins(values) - 1;
    TR_TRY(TR_GROW(&m->cuts, &m->capacity, m->n_cuts + cuts));
    for (uint32_t k = 0; k < cuts; k++) m->cuts[m->n_cuts++] = (float)k + 0.5f;
    *m->info = cuts;
    return TR_OK;
}

/* Gets of all workers how much their samples have of this one's columns … */
static int exchange_counts(const struct maker *m, const struct sample *s, struct arrival *a)
{
    int workers = tr_workers(m->tr);
    size_t w = (size_t)workers, mine = m->end - m->first, *bytes;
    TR_TRY(TR_NEW(&a->count, w * mine));
    TR_TRY(TR_NEW(&a->at, w));
    TR_TRY(TR_NEW(&bytes, 2 * w));
    for (int i = 0; i < workers; i++) {
        struct range r = columns_of(m, i, 0, 1);
        bytes[i] = (r.end - r.first) * sizeof *a->count;
        bytes[w + (size_t)i] = mine * sizeof *a->count;
    }
    int status = tr_exchange(m->tr, TR_SET_WORKERS, s->count, bytes, a->count, bytes + w);
    free(bytes);
    return status;
}

/* … and then that, piece by piece. */
static int exchange_piece(const struct maker *m, struct sample *s, size_t piece, struct arrival *a)
{
    size_t w = (size_t)tr_workers(m->tr), mine = m->end - m->first, total = 0, *bytes;
    struct range own = columns_of(m, tr_set_rank(m->tr, TR_SET_WORKERS), piece, s->pieces);
    TR_TRY(TR_NEW(&bytes, 2 * w));
    int status = take_piece(m, s, piece, bytes);
    for (size_t i = 0; i < w; i++) {
        a->at[i] = total;
        for (size_t c = own.first; c < own.end; c++)
            total += a->count[i * mine + c - m->first] & (MISSING - 1);
        bytes[w + i] = (total - a->at[i]) * sizeof *a->value;
    }
    if (status == TR_OK) status = TR_NEW(&a->value, total);
    if (status == TR_OK) status = tr_exchange(m->tr, TR_SET_WORKERS, s->value, bytes, a->value, bytes + w);
    free(s->value);
    s->value = NULL;
    free(bytes);
    return status;
}

/* The cuts of the k-th column of this worker. */
static int make_column(struct maker *m, struct arrival *a, size_t k, const struct sample *s)
{
    size_t mine = m->end - m->first, n = 0, all = 0;
    uint32_t missing = 0;
    for (int w = 0; w < tr_workers(m->tr); w++) {
        size_t count = a->count[(size_t)w * mine + k] & (MISSING - 1);
        missing |= a->count[(size_t)w * mine + k] & MISSING;
        TR_TRY(TR_GROW(&m->key, &m->key_capacity, n + count));
        for (size_t i = 0; i < count; i++, all++) {
            float x = a->value[a->at[w]++];
            if (x == x) m->key[n++] = tr_key_of_float(x);
        }
    }
    uint32_t values = m->values ? m->values[m->first + k] : 0;
    size_t runs;
    if (values > 0) {
        TR_TRY(cut_values(m, values));
        missing |= values > values_with_bins(values) ? MISSING : 0;
    } else {
        TR_TRY(TR_GROW(&m->other, &m->other_capacity, n));
        tr_sort_u32(m->key, m->other, n);
        TR_TRY(find_runs(m, n, (uint32_t)(s->rows - all), &runs));
        if ((double)rows_apart(m, runs, s->rows, all - n) >= (double)m->least * s->part)
            TR_TRY(cut_runs(m, runs, m->most - (missing > 0)));
        else missing = 0;
    }
    *m->info++ |= missing;
    return TR_OK;
}

static int make_columns(struct maker *m, struct sample *s, uint32_t *info)
{
    struct arrival a = {0};
    m->info = info;
    int status = exchange_counts(m, s, &a);
    for (size_t piece = 0; piece < s->pieces && status == TR_OK; piece++) {
        struct range own = columns_of(m, tr_set_rank(m->tr, TR_SET_WORKERS), piece, s->pieces);
        status = exchange_piece(m, s, piece, &a);
        for (size_t c = own.first; c < own.end && status == TR_OK; c++)
            status = make_column(m, &a, c - m->first, s);
        free(a.value);
        a.value = NULL;
    }
    free(a.count);
    free(a.at);
    return status;
}

/* ---- all columns ---- */

/* Tells all workers the cuts of all. */
static int gather(struct maker *m, const uint32_t *mine, struct tr_bins *bins)
{
    int workers = tr_workers(m->tr);
    size_t columns = bins->columns, *bytes, total = 0;
    uint32_t *info = NULL;
    TR_TRY(TR_NEW(&bytes, (size_t)workers));
    TR_TRY(TR_NEW(&info, columns));
    for (int w = 0; w < workers; w++)
        bytes[w] = (column_begin(columns, w + 1, workers) - column_begin(columns, w, workers)) * sizeof *info;
    int status = tr_all_gather_lists(m->tr, TR_SET_WORKERS, mine, bytes, info);
    for (int w = 0; w < workers; w++) {
        bytes[w] = 0;
        for (size_t c = column_begin(columns, w, workers); c < column_begin(columns, w + 1, workers); c++)
            bytes[w] += (info[c] & (MISSING - 1)) * sizeof(float);
        total += bytes[w] / sizeof(float);
    }
    if (status == TR_OK) status = TR_NEW(&bins->cuts, total);
    if (status == TR_OK) status = tr_all_gather_lists(m->tr, TR_SET_WORKERS, m->cuts, bytes, bins->cuts);
    const float *cut = bins->cuts;
    for (size_t c = 0; c < columns && status == TR_OK; c++) {
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
    free(info);
    free(bytes);
    return status;
}

int tr_bins_make(tr_context *tr, const tr_data *data, const uint32_t *number, const uint32_t *values,
                 size_t most, uint64_t least, uint64_t seed, struct tr_bins *bins)
{
    int worker = tr_set_rank(tr, TR_SET_WORKERS), workers = tr_workers(tr);
    size_t columns = (size_t)data->columns;
    struct sample sample = {0};
    struct maker m = {.tr = tr,
                      .data = data,
                      .most = most,
                      .least = least,
                      .values = values,
                      .seed = seed,
                      .number = number,
                      .first = column_begin(columns, worker, workers),
                      .end = column_begin(columns, worker + 1, workers)};
    uint32_t *info = NULL;
    *bins = (struct tr_bins){.columns = columns};
    int status = draw(&m, &sample);
    if (status == TR_OK) status = TR_NEW(&bins->column, columns);
    if (status == TR_OK) status = TR_NEW(&info, m.end - m.first);
    uint64_t seen[3] = {sample.rows, data->rows.n > 0 && !data->rows.dense};
    for (size_t c = 0; c < columns && sample.count; c++) seen[2] += sample.count[c] & (MISSING - 1);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, seen, 3);
    sample.rows = seen[0];
    bins->sparse = seen[1] > 0;
    sample.pieces = (size_t)seen[2] * sizeof *sample.value / (size_t)workers / PIECE_BYTES + 1;
    if (status == TR_OK) status = make_columns(&m, &sample, info);
    if (status == TR_OK) status = gather(&m, info, bins);
    free(info);
    free(m.cuts);
    free(m.key);
    free(m.other);
    free(m.run);
    free(sample.count);
    free(sample.value);
    return status;
}

void tr_bins_free(struct tr_bins *bins)
{
    free(bins->column);
    free(bins->cuts);
    *bins = (struct tr_bins){0};
}
