#define _GNU_SOURCE
#include "data/hdf5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES = 4 << 20,
    LARGEST_BLOCK = 256 << 20,
    SPARSE_ROWS = 1 << 16,
    SPARSE_PAIRS = 1 << 19,
    AT_ONCE = 64
};

/* Between the table of a file and the rows of a reader. */
struct pass {
    struct tr_reader *r;
    struct tr_hdf5 table;
    struct tr_hdf5_columns *columns; /* which have names; NULL: they have none */
    uint64_t *begin;                 /* sparse: where the rows at hand begin */
    float *value;                    /* sparse: their values, while all before are 1 */
    size_t begin_capacity, value_room;
    struct tr_files rows; /* the files as lists of rows */
    uint64_t done;        /* rows of all files that are read */
};

/* ---- rows that are wrong ---- */

/* Notes what is wrong with an element of an array, and makes it the error, or one more record skipped. */
static int reject(struct pass *p, const struct tr_hdf5_array *a, uint64_t row, uint64_t column,
                  const char *what)
{
    char place[64];
    if (a->dimensions > 1)
        snprintf(place, sizeof place, "%llu,%llu", (unsigned long long)row, (unsigned long long)column);
    else snprintf(place, sizeof place, "%llu", (unsigned long long)row);
    if (!p->r->options->skip_errors)
        return tr_fail(TR_ERR_DATA, "%s:%s[%s]: %s", p->table.path, a->name, place, what);
    tr_reader_bad(p->r, NULL, ' ', "%s", what);
    return tr_reader_reject(p->r);
}

static const char *not_finite(float value)
{
    return isnan(value) ? "is not a number (NaN), expected an ordinary number"
                        : "is too large for a 32-bit float, or infinite";
}

/* The place of the first value that is not finite; n: all are. */
static size_t find_odd(const float *value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(value[i])) return i;
    return n;
}

static uint32_t is_odd(float value)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & exponent) == exponent;
}

/* A number of iterations that is known makes vectors of them. */
bool tr_are_finite(const float *value, size_t n)
{
    uint32_t odd = 0;
    for (; n >= AT_ONCE; n -= AT_ONCE, value += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i++) odd |= is_odd(value[i]);
    for (size_t i = 0; i < n; i++) odd |= is_odd(value[i]);
    return odd == 0;
}

/* How many are not above the number before them. */
static size_t count_falls(const uint32_t *index, size_t n)
{
    size_t falls = 0, k = 1;
    for (; k + AT_ONCE <= n; k += AT_ONCE) {
        uint32_t here = 0;
        for (int i = 0; i < AT_ONCE; i++) here += index[k + (size_t)i] <= index[k + (size_t)i - 1];
        falls += here;
    }
    for (; k < n; k++) falls += index[k] <= index[k - 1];
    return falls;
}

/* Whether the columns of all rows ascend: they fall only where a row begins. */
static bool all_ascend(const uint32_t *index, const uint64_t *begin, size_t rows)
{
    size_t n = (size_t)(begin[rows] - begin[0]), falls = count_falls(index, n);
    for (size_t i = 1; i < rows; i++) {
        size_t at = (size_t)(begin[i] - begin[0]);
        if (begin[i + 1] > begin[i] && at > 0) falls -= index[at] <= index[at - 1];
    }
    return falls == 0;
}

/* ---- rows that are right ---- */

/* Whether the row is for this reader, and its label is fine. */
static int check_label(struct pass *p, uint64_t row, float label, bool *wanted)
{
    struct tr_reader *r = p->r;
    r->offset = row;
    *wanted = !tr_hdf5_leaves_out(r, row);
    if (!*wanted || !p->table.labelled || isfinite(label)) return TR_OK;
    *wanted = false;
    return reject(p, &p->table.y, row, 0, not_finite(label));
}

/* The row behind the last one is complete. */
static int add_row(struct tr_reader *r, float label)
{
    struct tr_matrix *m = &r->matrix;
    if (m->label) {
        TR_TRY(tr_reader_note_label(r, label));
        m->label[m->rows] = label;
    }
    if (r->place) r->place[m->rows] = r->offset;
    r->enough = ++m->rows == r->options->most_rows; /* 0 is never reached here */
    return TR_OK;
}

static int make_room(struct tr_reader *r, size_t more)
{
    struct tr_matrix *m = &r->matrix;
    if (r->options->piece || r->options->places)
        TR_TRY(TR_GROW(&r->place, &r->place_capacity, m->rows + more));
    return r->head->labelled ? TR_GROW(&m->label, &r->label_capacity, m->rows + more) : TR_OK;
}

/* ---- dense rows ---- */

static size_t dense_block(const struct tr_hdf5_array *x)
{
    uint64_t bytes = x->columns * x->size, rows = BLOCK_BYTES / bytes + 1, chunk = x->chunk_rows;
    if (chunk > 0 && chunk * bytes <= LARGEST_BLOCK) rows = (rows + chunk - 1) / chunk * chunk;
    return (size_t)rows;
}

/* The rows first .. first + n - 1 of the file. Labels are read to where those of the rows will be: these are no more. */
static int take_dense(struct pass *p, uint64_t first, size_t n)
{
    struct tr_reader *r = p->r;
    struct tr_matrix *m = &r->matrix;
    size_t columns = m->columns, old = m->rows;
    TR_TRY(make_room(r, n));
    TR_TRY(TR_GROW(&m->value, &r->value_capacity, (old + n) * columns));
    float *value = m->value + old * columns, *label = m->label ? m->label + old : NULL;
    TR_TRY(tr_hdf5_read_reals(&p->table, &p->table.x, first, n, value));
    if (label) TR_TRY(tr_hdf5_read_reals(&p->table, &p->table.y, first, n, label));
    bool clean = tr_are_finite(value, n * columns);
    for (size_t i = 0; i < n && !r->enough; i++, value += columns) {
        bool wanted;
        TR_TRY(check_label(p, first + i, label ? label[i] : 0, &wanted));
        if (!wanted) continue;
        size_t odd = clean ? columns : find_odd(value, columns);
        if (odd < columns) {
            TR_TRY(reject(p, &p->table.x, first + i, odd, not_finite(value[odd])));
            continue;
        }
        if (m->rows < old + i) memcpy(m->value + m->rows * columns, value, columns * sizeof *value);
        TR_TRY(add_row(r, label ? label[i] : 0));
    }
    return TR_OK;
}

/* ---- sparse rows ---- */

struct pair {
    uint32_t index;
    float value;
};

static int by_index(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int sort_row(uint32_t *index, float *value, size_t n)
{
    struct pair *pairs;
    TR_TRY(TR_NEW(&pairs, n));
    for (size_t k = 0; k < n; k++) pairs[k] = (struct pair){index[k], value[k]};
    qsort(pairs, n, sizeof *pairs, by_index);
    for (size_t k = 0; k < n; k++) {
        index[k] = pairs[k].index;
        value[k] = pairs[k].value;
    }
    free(pairs);
    return TR_OK;
}

/* Names the first element of a row that is wrong. */
static int reject_row(struct pass *p, uint64_t at, const uint32_t *index, const float *value, size_t n)
{
    const struct tr_hdf5 *t = &p->table;
    for (size_t k = 0; k < n; k++) {
        if (index[k] >= t->columns)
            return reject(p, &t->indices, at + k, 0, "is negative, or beyond the columns of shape");
        if (!isfinite(value[k])) return reject(p, &t->x, at + k, 0, not_finite(value[k]));
    }
    return reject(p, &t->indices, at, 0,
                  "begins a row that has a column twice, expected each once (scipy: .sum_duplicates())");
}

/* Brings the columns of a row in ascending order; at: where the row begins in the arrays of the file. clean: values are
 * finite; ascends: the columns are known to. */
static int check_row(struct pass *p, uint64_t at, uint32_t *index, float *value, size_t n, bool clean,
                     bool ascends, bool *fine)
{
    if (!ascends) ascends = count_falls(index, n) == 0;
    if (!ascends) {
        TR_TRY(sort_row(index, value, n));
        ascends = count_falls(index, n) == 0;
    }
    *fine = ascends && (n == 0 || index[n - 1] < p->table.columns) && (clean || tr_are_finite(value, n));
    return *fine ? TR_OK : reject_row(p, at, index, value, n);
}

/* Where values are read to: behind those of the rows before; elsewhere while all of these are 1. */
static int open_values(struct pass *p, size_t pairs, float **value)
{
    struct tr_reader *r = p->r;
    if (r->matrix.value) {
        TR_TRY(TR_GROW(&r->matrix.value, &r->value_capacity, r->nonzeros + pairs));
        *value = r->matrix.value + r->nonzeros;
        return TR_OK;
    }
    TR_TRY(TR_GROW(&p->value, &p->value_room, pairs));
    *value = p->value;
    return TR_OK;
}

/* The first value that is not 1: all before these were. */
static int start_values(struct pass *p, size_t pairs, float **value)
{
    struct tr_reader *r = p->r;
    bool ones = true;
    for (size_t k = 0; k < pairs && !r->matrix.value && ones; k++) ones = (*value)[k] == 1;
    if (r->matrix.value || ones) return TR_OK;
    TR_TRY(TR_GROW(&r->matrix.value, &r->value_capacity, r->column_capacity));
    for (size_t i = 0; i < r->nonzeros; i++) r->matrix.value[i] = 1;
    memcpy(r->matrix.value + r->nonzeros, *value, pairs * sizeof **value);
    *value = r->matrix.value + r->nonzeros;
    return TR_OK;
}

/* The non-zeros of a row, which are read already, behind those of the last one. */
static void add_pairs(struct tr_reader *r, const uint32_t *index, const float *value, size_t n)
{
    struct tr_matrix *m = &r->matrix;
    if (index != m->column + r->nonzeros) {
        memmove(m->column + r->nonzeros, index, n * sizeof *index);
        if (m->value) memmove(m->value + r->nonzeros, value, n * sizeof *value);
    }
    if (n > 0) {
        if (index[0] < r->report.lowest) r->report.lowest = index[0];
        if (index[n - 1] > r->report.highest) r->report.highest = index[n - 1];
    }
    r->nonzeros += n;
    m->begin[m->rows + 1] = r->nonzeros;
}

/* Rows whose begins are known: n of them, the first of which begins at begin[0]. */
static int take_lists(struct pass *p, uint64_t first, const uint64_t *begin, size_t n)
{
    struct tr_reader *r = p->r;
    struct tr_matrix *m = &r->matrix;
    size_t pairs = (size_t)(begin[n] - begin[0]), old = m->rows;
    float *value;
    TR_TRY(make_room(r, n));
    TR_TRY(TR_GROW(&m->begin, &r->begin_capacity, old + n + 1));
    TR_TRY(TR_GROW(&m->column, &r->column_capacity, r->nonzeros + pairs));
    TR_TRY(open_values(p, pairs, &value));
    uint32_t *index = m->column + r->nonzeros;
    TR_TRY(tr_hdf5_read_indices(&p->table, &p->table.indices, begin[0], pairs, index));
    TR_TRY(tr_hdf5_read_reals(&p->table, &p->table.x, begin[0], pairs, value));
    TR_TRY(start_values(p, pairs, &value));
    bool clean = tr_are_finite(value, pairs), ascend = all_ascend(index, begin, n);
    float *label = m->label ? m->label + old : NULL;
    if (label) TR_TRY(tr_hdf5_read_reals(&p->table, &p->table.y, first, n, label));
    for (size_t i = 0; i < n && !r->enough; i++) {
        size_t at = (size_t)(begin[i] - begin[0]), length = (size_t)(begin[i + 1] - begin[i]);
        bool wanted;
        TR_TRY(check_label(p, first + i, label ? label[i] : 0, &wanted));
        if (wanted) TR_TRY(check_row(p, begin[i], index + at, value + at, length, clean, ascend, &wanted));
        if (!wanted) continue;
        add_pairs(r, index + at, value + at, length);
        TR_TRY(add_row(r, label ? label[i] : 0));
    }
    return TR_OK;
}

/* Where n rows begin, and the last one ends: nothing can be read where these fall. */
static int read_begins(struct pass *p, uint64_t first, size_t n)
{
    const struct tr_hdf5 *t = &p->table;
    TR_TRY(TR_GROW(&p->begin, &p->begin_capacity, n + 1));
    TR_TRY(tr_hdf5_read_wholes(&p->table, &t->indptr, first, n + 1, p->begin));
    for (size_t i = 0; i <= n; i++) {
        const char *what = NULL;
        unsigned long long number = p->begin[i], before = i > 0 ? p->begin[i - 1] : 0;
        if (number > t->nonzeros) what = "is beyond the end of the non-zeros";
        else if (number < before) what = "is less than the number before it, expected ascending ones";
        else if (first + i == 0 && number > 0) what = "is not 0, as the first is expected to be";
        if (what)
            return tr_fail(TR_ERR_DATA, "%s:%s[%llu]: %lld %s", t->path, t->indptr.name,
                           (unsigned long long)(first + i), (long long)number, what);
    }
    return TR_OK;
}

static int take_sparse(struct pass *p, uint64_t first, size_t n)
{
    TR_TRY(read_begins(p, first, n));
    for (size_t at = 0; at < n && !p->r->enough;) {
        size_t end = at + 1;
        while (end < n && p->begin[end + 1] - p->begin[at] <= SPARSE_PAIRS) end++;
        TR_TRY(take_lists(p, first + at, p->begin + at, end - at));
        at = end;
    }
    return TR_OK;
}

/* ---- the share of a reader ---- */

static int say_progress(const struct pass *p)
{
    const struct tr_reader_options *o = p->r->options;
    double share = (double)p->done / (double)p->rows.total;
    return o->progress ? o->progress(o->progress_state, (uint64_t)(share * (double)p->r->files->total))
                       : TR_OK;
}

/* Rows begin .. end - 1 of a file, some at a time. */
static int take_rows(struct pass *p, uint64_t begin, uint64_t end)
{
    struct tr_reader *r = p->r;
    const struct tr_hdf5 *t = &p->table;
    uint64_t block = t->sparse ? SPARSE_ROWS : dense_block(&t->x);
    for (uint64_t at = begin, n; at < end && !r->enough; at += n) {
        n = block - (t->sparse ? 0 : at % block); /* whole chunks */
        if (n > end - at) n = end - at;
        if (r->options->most_rows > 0 && n > r->options->most_rows) n = r->options->most_rows;
        size_t before = r->matrix.rows;
        TR_TRY(tr_hdf5_read_origins(&p->table, r, at, (size_t)n));
        TR_TRY(p->columns  ? tr_hdf5_columns_take(p->columns, &p->table, r, at, (size_t)n)
               : t->sparse ? take_sparse(p, at, (size_t)n)
                           : take_dense(p, at, (size_t)n));
        TR_TRY(tr_reader_note_run(r, at, at + n, r->matrix.rows - before));
        p->done += n;
        r->report.text_bytes += n * r->files->total / (p->rows.total + 1);
        TR_TRY(say_progress(p));
        TR_TRY(tr_reader_hand_out(r));
    }
    return TR_OK;
}

/* What another file has become since its head was read. */
static int check_table(const struct pass *p)
{
    const struct tr_hdf5 *t = &p->table;
    const struct tr_head *h = p->r->head;
    if (t->rows == h->rows && t->columns == h->fields && t->sparse == h->sparse && t->labelled == h->labelled)
        return TR_OK;
    return tr_fail(TR_ERR_IO, "%s: has become another while it was read", t->path);
}

static int take_part(struct pass *p, struct tr_file_part part)
{
    TR_TRY(check_table(p));
    for (; part.end < part.limit + part.bytes && !p->r->enough; part.end += part.stride) {
        uint64_t begin = part.end > part.bytes ? part.end - part.bytes : 0;
        TR_TRY(take_rows(p, begin, part.end < part.limit ? part.end : part.limit));
    }
    return TR_OK;
}

/* Chunks to be dealt are whole ones of the file, where these are not so large that readers would lack some. */
static uint64_t whole_chunks(uint64_t rows, uint64_t chunk, const struct tr_files *all, size_t readers)
{
    if (chunk < 2 || chunk * readers * 4 > all->total) return rows;
    return (rows + chunk - 1) / chunk * chunk;
}

/* Rows of a chunk to be dealt, or of the one share of each reader: by the bytes that they take in memory. */
static uint64_t chunk_rows(const struct tr_reader *r, const struct tr_files *rows, size_t readers)
{
    uint64_t bytes = 4 * r->head->fields, share = (rows->total + readers - 1) / readers;
    if (r->options->deal == 0 || readers == 1) return share;
    if (r->head->sparse) {
        uint64_t nonzeros = 0;
        for (size_t i = 0; i < rows->n; i++) nonzeros += r->options->heads[i].nonzeros;
        bytes = 8 * (nonzeros / rows->total + 1);
    }
    struct tr_files all = {.total = rows->total * bytes};
    uint64_t dealt = tr_files_chunk(&all, readers) / bytes;
    return dealt > 0 ? dealt : 1;
}

int tr_hdf5_rows(const struct tr_reader *r, size_t readers, struct tr_files *rows, uint64_t *chunk)
{
    *rows = (struct tr_files){.n = r->files->n};
    TR_TRY(TR_NEW(&rows->file, rows->n));
    for (size_t i = 0; i < rows->n; i++) {
        rows->file[i].size = r->options->heads[i].rows;
        rows->total += rows->file[i].size;
    }
    *chunk =
        rows->total > 0 ? whole_chunks(chunk_rows(r, rows, readers), r->head->chunk_rows, rows, readers) : 0;
    return TR_OK;
}

/* Files are divided by their rows, as files of text are by their bytes. */
static int take_file(void *state, const struct tr_file_part *part)
{
    struct pass *p = state;
    if (p->r->enough) return TR_OK;
    TR_TRY(tr_reader_enter(p->r, part->file));
    bool named = p->r->options->schema != NULL;
    int status = tr_hdf5_table_open(&p->r->files->file[part->file], &p->table);
    if (status == TR_OK && named) status = tr_hdf5_columns_open(&p->table, p->r, &p->columns);
    if (status == TR_OK) status = take_part(p, *part);
    tr_hdf5_columns_close(&p->columns);
    tr_hdf5_table_close(&p->table);
    return status;
}

/* Room for all rows of the share at once where they are kept, so that none is moved. */
static int reserve(struct tr_reader *r, const struct tr_files *rows, size_t readers)
{
    const struct tr_reader_options *o = r->options;
    struct tr_matrix *m = &r->matrix;
    bool all = !o->piece && o->most_rows == 0 && !o->reads_held_out;
    size_t share = all ? (size_t)(rows->total / readers) + 1 : 1;
    uint64_t nonzeros = 0;
    if (o->schema) return tr_csv_make_room(r, share);
    TR_TRY(make_room(r, share));
    if (!r->head->sparse) return TR_GROW(&m->value, &r->value_capacity, share * m->columns);
    for (size_t i = 0; i < rows->n && all; i++) nonzeros += o->heads[i].nonzeros;
    TR_TRY(TR_GROW(&m->begin, &r->begin_capacity, share + 1));
    m->begin[0] = 0;
    return TR_GROW(&m->column, &r->column_capacity, (size_t)(nonzeros / readers) + 1);
}

int tr_hdf5_read_share(struct tr_reader *r, size_t reader, size_t readers)
{
    struct pass p = {.r = r};
    uint64_t chunk;
    struct tr_matrix *m = &r->matrix;
    TR_TRY(tr_reader_enter(r, tr_heads_first(r->options->heads, r->files->n)));
    TR_TRY(tr_hdf5_rows(r, readers, &p.rows, &chunk));
    const struct tr_schema *schema = r->options->schema;
    m->columns = schema ? schema->slots : r->head->sparse ? 0 : (size_t)r->head->fields;
    int status = reserve(r, &p.rows, readers);
    if (status == TR_OK) status = tr_files_each_part(&p.rows, reader, readers, chunk, take_file, &p);
    free(p.rows.file);
    free(p.begin);
    free(p.value);
    return status;
}
