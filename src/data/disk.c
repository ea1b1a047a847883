#define _GNU_SOURCE
#include "data/row_store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/base.h"
#include "data/dataset.h"
#include "store/checked.h"
#include "trireme/collective.h"
#include "trireme/model.h"

/* A pass in random order uses a group of GROUP blocks from the whole file at the same time, and mixes their rows. A thread, which
 * is started for each stream, reads up to AHEAD blocks in advance. */
enum { GROUP = 8, AHEAD = 8 };

/* ---- n bytes at an address in the file ---- */

static uint64_t disk_offset(const struct tr_row_file *f, const void *at)
{
    return (uint64_t)((const char *)at - (const char *)f->header);
}

/* Extends the range of n bytes from *first to whole pages. last = false: leaves out the last page unless the range fills it. */
static void disk_to_pages(uint64_t *first, uint64_t *n, bool last)
{
    uint64_t page = tr_page_bytes(), end = *first + *n;
    *first = *first / page * page;
    *n = (last ? (end + page - 1) / page * page : end / page * page) - *first;
    if (*first > end) *n = 0;
}

/* Asks the system to read the bytes in the background. */
static void disk_ask(const struct tr_row_file *f, const void *at, uint64_t n)
{
    if (n > 0) (void)posix_fadvise(f->fd, (off_t)disk_offset(f, at), (off_t)n, POSIX_FADV_WILLNEED);
}

/* Reads the bytes into memory before it returns. Returns 0 or an error number (errno). */
static int disk_fetch(const struct tr_row_file *f, const void *at, uint64_t n)
{
    uint64_t first = disk_offset(f, at);
    disk_to_pages(&first, &n, true);
    if (n == 0) return 0;
#ifdef MADV_POPULATE_READ
    while (madvise((char *)f->header + first, n, MADV_POPULATE_READ) < 0)
        if (errno == EFAULT) return EIO;
        else if (errno != EINTR && errno != EAGAIN) break;
        else continue;
#endif
    return 0; /* without MADV_POPULATE_READ the first access reads a page */
}

/* Drops the bytes from memory. sequential: the bytes before them are not needed any more, and leave the page cache, too. */
static void disk_drop(const struct tr_row_file *f, const void *at, uint64_t n, bool sequential)
{
    /* drops 1 MiB before the bytes, too: large pages stay in the cache until all their bytes are dropped */
    const uint64_t read_ahead = sequential ? (uint64_t)1 << 20 : 0;
    uint64_t first = disk_offset(f, at);
    disk_to_pages(&first, &n, false);
    if (n == 0) return;
    (void)madvise((char *)f->header + first, n, MADV_DONTNEED);
    if (f->stays) return;
    uint64_t more = first < read_ahead ? first : read_ahead;
    (void)posix_fadvise(f->fd, (off_t)(first - more), (off_t)(n + more), POSIX_FADV_DONTNEED);
}

/* Waits until the bytes are on the disk, and drops them from memory. */
static void disk_settle(const struct tr_row_file *f, const void *at, uint64_t n)
{
    if (n > 0)
        (void)sync_file_range(f->fd, (off_t)disk_offset(f, at), (off_t)n,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
    disk_drop(f, at, n, true);
}

/* Returns whether the sums of all pieces with these bytes are correct. One thread at a time. */
static bool disk_is_whole(struct tr_row_file *f, const void *at, uint64_t n)
{
    uint64_t first = disk_offset(f, at) - f->area->first;
    if (n == 0) return true;
    if (!f->checked) f->checked = calloc(f->header->sums, sizeof *f->checked);
    for (uint64_t i = first / TR_ROW_PIECE; i <= (first + n - 1) / TR_ROW_PIECE; i++) {
        if (f->checked && f->checked[i]) continue;
        if (tr_row_file_sum_piece(f, i) != f->sum[i]) return false;
        if (f->checked) f->checked[i] = true;
    }
    return true;
}

int tr_disk_sum(struct tr_row_file *f)
{
    const uint64_t sums = f->header->sums, some = 8;
    char *area = (char *)f->header + f->area->first;
    for (uint64_t i = 0; i < sums; i += some) {
        uint64_t end = i + some < sums ? i + some : sums;
        uint64_t n = i + some < sums ? some * TR_ROW_PIECE : f->area->bytes - i * TR_ROW_PIECE;
        disk_ask(f, area + i * TR_ROW_PIECE + n, end + some < sums ? some * TR_ROW_PIECE : 0);
        (void)TR_FAULT("cache.sum");
        for (uint64_t k = i; k < end; k++) f->sum[k] = tr_row_file_sum_piece(f, k);
        disk_settle(f, area + i * TR_ROW_PIECE, n);
    }
    if (sums > 0) (void)mprotect(area, f->area->bytes, PROT_READ);
    return fdatasync(f->fd) < 0 ? tr_fail(TR_ERR_IO, "%s: %s", f->path, strerror(errno)) : TR_OK;
}

/* ---- settings of the job ---- */

static int disk_level(const tr_context *tr)
{
    return tr->storage != TR_LEVEL_AUTO ? tr->storage : tr->job->data.storage;
}

static int disk_refuse(const tr_context *tr, const char *why)
{
    static const char *const words[] = {"auto", "memory", "disk", "memory_disk"};
    return tr_fail(TR_ERR_CONFIG, "%s: data.storage: %s %s", tr_job_where(tr->job, "data.storage"),
                   words[disk_level(tr)], why);
}

static int disk_check(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    struct stat about;
    if (!(s->form & TR_DATA_PASSES))
        return disk_refuse(
            s->tr,
            "is for models that pass over rows, as kmeans, trees, and linear ones with solve.method newton, "
            "dual or sgd; this one needs memory");
    if (!*job->data.scratch) return disk_refuse(s->tr, "needs data.scratch, a folder on a disk of each node");
    if (job->data.partition != TR_DATA_HORIZONTAL && s->tr->layout.group_size > 1)
        return disk_refuse(s->tr, "needs data.partition: horizontal");
    if (job->data.scale != TR_SCALE_AUTO && job->data.scale != TR_SCALE_NONE)
        return disk_refuse(s->tr, "leaves columns as they are: data.scale: none");
    if (stat(job->data.scratch, &about) < 0 || !S_ISDIR(about.st_mode))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: data.scratch: %s: there is no such folder",
                       tr_job_where(job, "data.scratch"), job->data.scratch);
    return TR_OK;
}

int tr_disk_choose(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_job *job = tr->job;
    uint64_t workers = tr_is(tr, TR_SLAVE);
    s->on_disk = disk_level(tr) == TR_LEVEL_DISK || disk_level(tr) == TR_LEVEL_MEMORY_DISK;
    if (!s->on_disk) return TR_OK;
    TR_TRY(tr_agree(tr, disk_check(data)));
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &workers, 1));
    uint64_t memory = job->data.memory ? job->data.memory : tr_memory_free() / 2;
    s->memory = workers > 0 ? memory / workers : 0;
    s->cacheable = workers > 0 ? tr_memory_free() / workers / 4 : 0;
    return TR_OK;
}

/* Lets pages stay in the page cache if it can hold the whole file. A smaller cache does not help: when a pass needs a block again,
 * the blocks after it have replaced it in the cache. */
static void disk_use_page_cache(const struct tr_data_state *s)
{
    bool full = TR_FAULT("data.room") == TR_FAULT_ENOSPC;
    s->file->stays = !full && tr_row_file_bytes(s->file) <= s->cacheable;
}

/* ---- writing: the first pass ---- */

int tr_disk_note_numbers(const struct tr_schema *s, const struct tr_matrix *m, const float *weight,
                         struct tr_disk_column *column)
{
    size_t slots = m->columns;
    TR_FREED double *origin = NULL;
    TR_FREED bool *known = NULL;
    double *n, *sum, *square;
    TR_TRY(TR_NEW(&origin, 4 * slots));
    TR_TRY(TR_NEW(&known, slots));
    n = origin + slots, sum = n + slots, square = sum + slots;

    /* sums of differences from the first number of the column, which lose little precision */
    size_t unknown = slots;
    for (size_t i = 0; i < m->rows; i++) {
        const float *row = m->value + i * slots;
        double w = weight ? (double)weight[i] : 1;
        if (w == 0) continue;
        for (size_t j = 0; j < slots && unknown > 0; j++) {
            if (known[j] || isnan(row[j])) continue;
            known[j] = true;
            origin[j] = (double)row[j];
            unknown--;
        }
        for (size_t j = 0; j < slots; j++) {
            bool there = row[j] == row[j];
            double d = there ? (double)row[j] - origin[j] : 0;
            n[j] += there ? w : 0;
            sum[j] += w * d;
            square[j] += w * d * d;
        }
    }

    for (size_t k = 0; k < s->n; k++) { /* adds two sets of rows (Chan, Golub and LeVeque 1979) */
        size_t j = s->column[k].slot;
        struct tr_disk_column *c = &column[k];
        if (s->column[k].type != TR_COLUMN_NUMBER || !(n[j] > 0)) continue;
        double all = c->n + n[j], apart = origin[j] + sum[j] / n[j] - c->mean;
        c->apart += fmax(0, square[j] - sum[j] * sum[j] / n[j]) + apart * apart * c->n * n[j] / all;
        c->mean += apart * n[j] / all;
        c->n = all;
    }
    return TR_OK;
}

int tr_disk_note(void *writer, struct tr_reader *r)
{
    struct tr_disk_writer *c = writer;
    const struct tr_matrix *m = &r->matrix;
    const struct tr_schema *s = r->options->schema;
    size_t values = tr_matrix_nonzeros(m);
    c->rows += m->rows;
    c->labelled = c->labelled || m->label;
    if (!s) {
        c->valued = c->valued || m->value;
        if (c->expands)
            for (size_t k = 0; k < values; k++) c->nonzeros += m->value[k] != 0;
        else c->nonzeros += values;
        return m->begin && c->prunes ? tr_index_set_add(&c->seen, m->column, values, 1) : TR_OK;
    }
    if (!c->column) TR_TRY(TR_NEW(&c->column, s->n));
    c->columns = s->n;
    for (size_t k = 0; k < s->n; k++) {
        const struct tr_column *column = &s->column[k];
        struct tr_disk_column *note = &c->column[k];
        if (column->type > TR_COLUMN_CATEGORY) continue;
        c->valued = c->valued || column->type == TR_COLUMN_NUMBER || s->hash > 0;
        for (size_t i = 0; i < m->rows && column->type == TR_COLUMN_NUMBER; i++) {
            float x = m->value[i * m->columns + column->slot];
            c->nonzeros += isnan(x) ? 2 : x != 0; /* 2: the mean, and a 1 in the column of missing numbers */
        }
        if (column->type == TR_COLUMN_NUMBER) continue;
        size_t before = note->capacity, n = r->options->seen[k].values.n;
        c->nonzeros += m->rows; /* adds the maximum: a category has at most one key in each row */
        TR_TRY(TR_GROW(&note->count, &note->capacity, n));
        if (note->capacity > before)
            memset(note->count + before, 0, (note->capacity - before) * sizeof *note->count);
        for (size_t i = 0; i < m->rows; i++) {
            uint32_t place = tr_slot_place(m->value[i * m->columns + column->slot]);
            if (place < n) note->count[place]++;
        }
    }
    const float *weight = r->extra[TR_EXTRA_WEIGHT];
    if (s->column->raw) return TR_OK; /* trees need no means */
    return tr_disk_note_numbers(s, m, weight ? weight + r->report.rows : NULL, c->column);
}

/* ---- writing: the file ---- */

int tr_disk_begin(struct tr_disk_writer *c)
{
    tr_data *data = c->data;
    struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    const struct tr_cached *cached = s->cached;
    struct tr_row_shape shape = {.rows = c->rows,
                                 .values = c->dense ? c->rows * data->columns : c->nonzeros,
                                 .keys = data->n_keys,
                                 .arrays = 1u << TR_ROWS_KEYS};
    if (!c->dense) shape.arrays |= 1u << TR_ROWS_BEGIN | 1u << TR_ROWS_COLUMN;
    if (c->dense || c->valued) shape.arrays |= 1u << TR_ROWS_VALUE;
    if (c->labelled) shape.arrays |= 1u << TR_ROWS_LABEL;
    uint64_t bytes[TR_ROW_ARRAYS], sum = tr_row_store_measure(&shape, bytes);

    int status = tr_row_file_create(cached->rows, cached->generation, bytes, TR_ROW_ARRAYS, true, &s->file);
    if (status != TR_OK) {
        struct statvfs fs = {.f_bavail = 0};
        if (errno != ENOSPC && errno != EDQUOT) return status;
        (void)statvfs(job->data.scratch, &fs);
        return tr_fail(
            TR_ERR_IO, "%s: data.scratch: %s: rank %d needs %.1f MB there for its %s, %.1f MB are free",
            tr_job_where(job, "data.scratch"), job->data.scratch, s->tr->rank, (double)sum / 1e6,
            s->test ? "test data" : "training data", (double)fs.f_bavail * (double)fs.f_frsize / 1e6);
    }
    disk_use_page_cache(s);
    memcpy(tr_row_file_at(s->file, TR_ROWS_KEYS), data->keys, data->n_keys * sizeof *data->keys);
    free((void *)(uintptr_t)data->keys);
    s->rows = (struct tr_matrix){.rows = (size_t)c->rows, .columns = c->dense ? (size_t)data->columns : 0};
    tr_row_store_attach(data, shape.arrays);

    /* data.memory has room for four times the blocks of a group and those read in advance */
    const uint64_t least = (uint64_t)16 << 10, usual = (uint64_t)2 << 20;
    uint64_t wanted = s->memory / (4 * (GROUP + AHEAD));
    c->block_bytes = s->memory == 0 || wanted > usual ? usual : wanted < least ? least : wanted;
    return TR_OK;
}

/* ---- writing: the second pass ---- */

static uint64_t disk_values(const struct tr_disk_writer *c)
{
    return c->dense ? c->row * c->data->columns : c->nonzero;
}

/* Arrays 0 .. STREAMED - 1 are read and written in blocks. disk_array_bytes() returns the bytes of array i for a number of rows and
 * values, without the last element of TR_ROWS_BEGIN, the end of the last row. */
enum { STREAMED = TR_ROWS_LABEL + 1 };

static uint64_t disk_array_bytes(size_t i, uint64_t rows, uint64_t values)
{
    bool by_row = i == TR_ROWS_BEGIN || i == TR_ROWS_LABEL;
    return tr_row_unit[i] * (by_row ? rows : values);
}

static int disk_begin_block(struct tr_disk_writer *c)
{
    struct tr_data_state *s = c->data->state;
    TR_TRY(TR_GROW(&s->block, &c->block_capacity, s->blocks + 2));
    s->block[s->blocks] = (struct tr_data_block){c->row, disk_values(c)};
    c->in_block = 0;
    return TR_OK;
}

/* Counts a row that was written, with this number of values, and begins a new block if the current one is large enough. */
static int disk_end_row(struct tr_disk_writer *c, uint64_t values)
{
    const struct tr_matrix *rows = &c->data->state->rows;
    c->row++;
    c->in_block +=
        values * ((rows->column ? sizeof *rows->column : 0) + (rows->value ? sizeof *rows->value : 0));
    c->in_block += (rows->begin ? sizeof *rows->begin : 0) + (rows->label ? sizeof *rows->label : 0);
    if (c->in_block < c->block_bytes) return TR_OK;
    c->data->state->blocks++;
    return disk_begin_block(c);
}

static int disk_write_sparse(struct tr_disk_writer *c, struct tr_matrix *m)
{
    struct tr_matrix *to = &c->data->state->rows;
    uint64_t n = tr_matrix_nonzeros(m), at = c->nonzero;
    if (n > c->nonzeros - c->nonzero) return TR_OK; /* the files have grown: tr_disk_end() fails */
    for (uint64_t k = 0; k < n && c->prunes && !c->expands; k++)
        m->column[k] = tr_index_set_find(&c->seen, m->column[k] + c->first_index);
    for (uint64_t k = 0; k < n; k++) to->column[at + k] = c->united ? c->united[m->column[k]] : m->column[k];
    if (to->value && m->value) memcpy(to->value + at, m->value, n * sizeof *to->value);
    for (uint64_t k = 0; k < n && to->value && !m->value; k++) to->value[at + k] = 1;
    to->begin[0] = 0;
    for (size_t i = 0; i < m->rows; i++) {
        c->nonzero = at + m->begin[i + 1];
        to->begin[c->row + 1] = c->nonzero;
        TR_TRY(disk_end_row(c, m->begin[i + 1] - m->begin[i]));
    }
    return TR_OK;
}

static int disk_write_matrix(struct tr_disk_writer *c, struct tr_matrix *m)
{
    TR_CLOSED_BY(tr_matrix_free) struct tr_matrix sparse = {0};
    if (m->begin) (void)tr_matrix_limit(m, c->first_index, c->data->columns);
    if (!c->dense) {
        if (!m->begin) TR_TRY(tr_matrix_to_sparse(m, &sparse));
        return disk_write_sparse(c, m->begin ? m : &sparse);
    }
    size_t columns = (size_t)c->data->columns;
    for (size_t i = 0; i < m->rows; i++) {
        float *to = c->data->state->rows.value + c->row * columns;
        if (m->begin) {
            memset(to, 0, columns * sizeof *to);
            tr_lists_fill(m->begin + i, 1, m->column, m->value, columns, to);
        } else {
            memcpy(to, m->value + i * columns, columns * sizeof *to);
        }
        TR_TRY(disk_end_row(c, columns));
    }
    return TR_OK;
}

int tr_disk_write(void *writer, struct tr_reader *r)
{
    struct tr_disk_writer *c = writer;
    struct tr_data_state *s = c->data->state;
    const struct tr_matrix *m = &r->matrix;
    (void)TR_FAULT("data.spill");
    if (m->rows > c->rows - c->row) { /* the input files have grown: tr_disk_end() fails */
        c->rows = 0;
        r->enough = true;
        return TR_OK;
    }
    if (s->blocks == 0 && c->row == 0) TR_TRY(disk_begin_block(c));
    if (s->rows.label) memcpy(s->rows.label + c->row, m->label, m->rows * sizeof(float));
    if (c->makes_keys) {
        TR_CLOSED_BY(tr_matrix_free) struct tr_matrix keys = {0};
        uint64_t unknown = 0;
        TR_TRY(tr_schema_keys_of(s->schema, c->number, m, &keys, &unknown));
        s->unknown += unknown;
        TR_TRY(disk_write_matrix(c, &keys));
    } else {
        TR_TRY(disk_write_matrix(c, &r->matrix));
    }
    /* write 4 MiB at a time to the disk: while the next 4 MiB are filled, the last ones are being written */
    const struct tr_row_file *file = s->file;
    const uint64_t piece = (uint64_t)4 << 20;
    for (size_t i = 0; i < STREAMED; i++) {
        const char *at = *tr_row_store_array(c->data, i);
        uint64_t bytes = at ? disk_array_bytes(i, c->row, disk_values(c)) : 0;
        for (; bytes - c->sent[i] >= piece; c->sent[i] += piece) {
            disk_settle(file, at + c->settled[i], c->sent[i] - c->settled[i]);
            c->settled[i] = c->sent[i];
            (void)sync_file_range(file->fd, (off_t)disk_offset(file, at + c->sent[i]), (off_t)piece,
                                  SYNC_FILE_RANGE_WRITE);
        }
    }
    return TR_OK;
}

int tr_disk_end(struct tr_disk_writer *c)
{
    struct tr_data_state *s = c->data->state;
    if (c->row != c->rows)
        return tr_fail(TR_ERR_DATA, "%s: the files have changed while they were read", s->files.file[0].path);
    if (s->rows.begin && c->rows == 0) s->rows.begin[0] = 0;
    if (c->in_block > 0) s->block[++s->blocks] = (struct tr_data_block){c->row, 0};
    if (s->blocks > 0) s->block[s->blocks].nonzero = disk_values(c);
    return TR_OK;
}

void tr_disk_forget(struct tr_disk_writer *c)
{
    for (size_t k = 0; k < c->columns; k++) {
        if (c->column) free(c->column[k].count);
        if (c->number) free(c->number[k]);
    }
    free(c->column);
    free(c->number);
    c->column = NULL;
    c->number = NULL;
    c->columns = 0;
    c->valued = c->labelled = false;
    c->rows = c->nonzeros = 0;
}

void tr_disk_free(struct tr_disk_writer *c)
{
    tr_disk_forget(c);
    tr_index_set_free(&c->seen);
    free(c->united);
}

/* ---- reading: blocks ---- */

/* state of a block: not in memory; being read by the thread; in memory */
enum block_state { ABSENT, READING, PRESENT };

/* A plan: the order in which a pass uses the blocks. */
struct plan {
    uint32_t *block; /* block[i]: the block at position i */
    uint32_t *rank;  /* rank[b]: the position of block b */
    size_t group;    /* number of consecutive blocks that are used at the same time */
};

struct tr_row_stream {
    tr_context *tr;
    struct tr_row_file *file;
    const struct tr_data_block *block;
    size_t n;
    const char *array[STREAMED]; /* addresses of the arrays; NULL: the array does not exist */
    struct {
        enum block_state state; /* state of the block; protected by the lock */
        bool keeps;             /* the block stays in memory after its first use */
        bool checked;           /* the sums of the block were compared and are correct */
        bool listed;            /* scratch: the block is in `order` */
    } * about;                  /* state of each block */
    size_t *held;               /* for the thread only: blocks in memory that do not stay there */
    struct plan plans[2];       /* 0: the order of the file; 1: the order of the last tr_data_permute() */
    uint32_t *order;            /* scratch for an order of the blocks */
    uint64_t *group_row; /* plans[1]: number of rows before each group; the last element: of all rows */
    uint64_t memory;     /* argument `memory` of stream_open(): bytes of blocks that may stay in memory */
    bool whole;          /* argument `checked` of stream_open(): sums need not be compared */
    size_t parts;        /* number of parts for which blocks were cut, see stream_cut_blocks(); 0: none */
    size_t last;         /* the block that was requested last */
    bool mixes;          /* plans[1] has been set */
    size_t mixed_at;     /* value of `at` when plans[1] was used last */
    int strays;          /* number of blocks requested since then that are not near mixed_at in plans[1] */

    pthread_t thread;
    bool runs; /* the thread was started */
    pthread_mutex_t lock;
    pthread_cond_t moved, ready; /* moved: plan, at, aside or ends has changed; ready: a block was read */
    const struct plan *plan;     /* plan of the current pass; the lock protects this and the next members */
    size_t at;    /* position in the plan of the group that the pass uses; n: the pass has not begun */
    size_t aside; /* one more block, which the pass needs now; n: none */
    bool ends;    /* the thread must end */
    int error;    /* error number of reading block `bad`; EBADMSG: its sums are wrong; 0: none */
    size_t bad;
    uint64_t resident; /* bytes of the blocks in memory */
    double count[TR_STREAM_COUNTS];
};

static size_t stream_block_of(const struct tr_row_stream *s, uint64_t row)
{
    size_t low = 0, high = s->n, last = s->last;
    if (row >= s->block[last].row && row < s->block[last + 1].row) return last;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->block[middle].row <= row) low = middle;
        else high = middle;
    }
    return low;
}

static uint64_t stream_bytes_between(const struct tr_row_stream *s, const struct tr_data_block *from,
                                     const struct tr_data_block *to)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < STREAMED; i++)
        if (s->array[i]) sum += disk_array_bytes(i, to->row - from->row, to->nonzero - from->nonzero);
    return sum;
}

static uint64_t stream_block_bytes(const struct tr_row_stream *s, size_t b)
{
    return stream_bytes_between(s, &s->block[b], &s->block[b + 1]);
}

/* Returns the address of the part of array i that belongs to block b, and sets *n to its bytes. The block's rows need one more
 * element of TR_ROWS_BEGIN: it is on the same page, or the first access reads it. */
static const char *stream_range(const struct tr_row_stream *s, size_t i, size_t b, uint64_t *n)
{
    const struct tr_data_block *block = &s->block[b];
    *n = s->array[i] ? disk_array_bytes(i, block[1].row - block->row, block[1].nonzero - block->nonzero) : 0;
    return s->array[i] ? s->array[i] + disk_array_bytes(i, block->row, block->nonzero) : NULL;
}

static void stream_drop_block(struct tr_row_stream *s, size_t b)
{
    uint64_t n;
    for (size_t i = 0; i < STREAMED; i++) {
        const char *at = stream_range(s, i, b, &n);
        if (n > 0) disk_drop(s->file, at, n, s->plan == &s->plans[0]);
    }
}

/* ---- reading: the thread ---- */

static size_t stream_group_end(const struct tr_row_stream *s)
{
    return tr_min_size(s->at + s->plan->group, s->n);
}

static void *stream_read_ahead(void *stream)
{
    struct tr_row_stream *s = stream;
    size_t n = 0; /* number of blocks in s->held */
    pthread_mutex_lock(&s->lock);
    while (!s->ends && !s->error) {
        /* drop a block that the pass does not need within the window: its group and the AHEAD blocks that follow in the plan */
        size_t behind = 0, b, window = tr_min_size(stream_group_end(s) - s->at + AHEAD, s->n);
        while (behind < n && (s->held[behind] == s->aside ||
                              (s->plan->rank[s->held[behind]] + s->n - s->at) % s->n < window))
            behind++;
        if (behind < n) {
            b = s->held[behind];
            s->held[behind] = s->held[--n];
            s->about[b].state = ABSENT;
            s->resident -= stream_block_bytes(s, b);
            if (!s->file->stays) s->count[TR_STREAM_DROPPED_BYTES] += (double)stream_block_bytes(s, b);
            stream_drop_block(s, b);
            continue;
        }

        /* choose the block to read next, and two more that the system may read in the background */
        size_t wanted[3], found = 0;
        if (s->aside < s->n && s->about[s->aside].state == ABSENT) wanted[found++] = s->aside;
        for (size_t i = 0; i < window && found < 3; i++) {
            /* modulo s->n, because the next pass begins with the first block */
            b = s->plan->block[(s->at + i) % s->n];
            if (s->about[b].state == ABSENT && b != s->aside) wanted[found++] = b;
        }
        if (found == 0) {
            pthread_cond_wait(&s->moved, &s->lock);
            continue;
        }

        /* read the block without the lock */
        double begin = tr_now();
        int error = 0;
        b = wanted[0];
        s->about[b].state = READING;
        pthread_mutex_unlock(&s->lock);
        for (size_t k = 0; k < found * STREAMED; k++) {
            uint64_t bytes;
            const char *at = stream_range(s, k % STREAMED, wanted[k / STREAMED], &bytes);
            disk_ask(s->file, at, bytes);
        }
        for (size_t i = 0; i < STREAMED && !error; i++) {
            uint64_t bytes;
            const char *at = stream_range(s, i, b, &bytes);
            if (bytes > 0) error = disk_fetch(s->file, at, bytes);
        }
        if (!error && TR_FAULT("data.block") == TR_FAULT_EIO) error = EIO;
        for (size_t i = 0; i < STREAMED && !error && !s->about[b].checked; i++) {
            uint64_t bytes;
            const char *at = stream_range(s, i, b, &bytes);
            if (bytes > 0 && !disk_is_whole(s->file, at, bytes)) error = EBADMSG;
        }
        if (!error) s->about[b].checked = true;
        pthread_mutex_lock(&s->lock);
        s->count[TR_STREAM_READ_SECONDS] += tr_now() - begin;
        s->count[TR_STREAM_READ_BYTES] += (double)stream_block_bytes(s, b);
        s->resident += stream_block_bytes(s, b);
        if ((double)s->resident > s->count[TR_STREAM_MEMORY_BYTES])
            s->count[TR_STREAM_MEMORY_BYTES] = (double)s->resident;
        s->about[b].state = PRESENT;
        s->error = error;
        s->bad = b;
        if (!s->about[b].keeps) s->held[n++] = b;
        pthread_cond_signal(&s->ready);
    }
    pthread_cond_signal(&s->ready);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- reading: opening ---- */

static int stream_make_plan(struct tr_row_stream *s, struct plan *plan, size_t group)
{
    plan->group = group;
    TR_TRY(TR_NEW(&plan->block, s->n));
    TR_TRY(TR_NEW(&plan->rank, s->n));
    for (size_t b = 0; b < s->n; b++) plan->block[b] = plan->rank[b] = (uint32_t)b;
    return TR_OK;
}

/* Opens the stream of data on a disk and starts its thread. memory: bytes of blocks that may stay in memory from pass to pass;
 * checked: the sums need not be compared; before: initial counts, or NULL. */
static int stream_open(struct tr_data_state *state, uint64_t memory, bool checked,
                       const double before[TR_STREAM_COUNTS])
{
    struct tr_row_stream *s;
    sigset_t all, mask;
    if (state->blocks == 0) return TR_OK;
    TR_TRY(TR_NEW(&s, 1));
    state->stream = s;
    s->tr = state->tr;
    s->file = state->file;
    s->block = state->block;
    s->n = s->at = s->aside = state->blocks;
    s->memory = memory;
    s->whole = checked;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    pthread_cond_init(&s->ready, NULL);
    s->plan = &s->plans[0];
    const void *const arrays[] = {state->rows.begin, state->rows.column, state->rows.value,
                                  state->rows.label};
    for (size_t i = 0; i < STREAMED; i++) s->array[i] = arrays[i];
    TR_TRY(stream_make_plan(s, &s->plans[0], 1));
    TR_TRY(stream_make_plan(s, &s->plans[1], GROUP));
    TR_TRY(TR_NEW(&s->group_row, s->n / GROUP + 2));
    TR_TRY(TR_NEW(&s->about, s->n));
    TR_TRY(TR_NEW(&s->held, s->n));
    TR_TRY(TR_NEW(&s->order, s->n));
    for (size_t b = 0; b < s->n; b++) s->about[b].checked = checked;

    /* blocks that stay in memory are spread evenly over the file: while a pass uses them, the thread reads others */
    uint64_t moving = 0, size = 0, kept = 0;
    for (size_t b = 0; b < s->n; b++) {
        size += stream_block_bytes(s, b);
        if (b < 2 * GROUP + AHEAD) moving += stream_block_bytes(s, b);
    }
    double ratio = memory > moving && size > 0 ? (double)(memory - moving) / (double)size : 0;
    for (size_t b = 0; b < s->n; b++) {
        s->about[b].keeps = (uint64_t)(ratio * (double)(b + 1)) > kept;
        kept += s->about[b].keeps;
    }
    if (before) memcpy(s->count, before, sizeof s->count);
    s->count[TR_STREAM_DISK_BYTES] = (double)size;
    sigfillset(&all); /* blocks all signals in the new thread, because the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    int error = pthread_create(&s->thread, NULL, stream_read_ahead, s);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (error) return tr_fail(TR_ERR_SYSTEM, "a thread to read data cannot be started: %s", strerror(error));
    s->runs = true;
    return TR_OK;
}

int tr_disk_open(tr_data *data, bool found)
{
    struct tr_data_state *s = data->state;
    uint64_t memory = disk_level(s->tr) == TR_LEVEL_MEMORY_DISK && !s->test ? s->memory : 0;
    if (!s->on_disk) return TR_OK;
    if (s->file) disk_use_page_cache(s);
    return tr_agree(s->tr, tr_is(s->tr, TR_SLAVE) ? stream_open(s, memory, !found, NULL) : TR_OK);
}

static void stream_stop(struct tr_row_stream *s)
{
    if (!s->runs) return;
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_signal(&s->moved);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->runs = false;
}

void tr_row_stream_close(struct tr_row_stream **stream)
{
    struct tr_row_stream *s = *stream;
    *stream = NULL;
    if (!s) return;
    stream_stop(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->moved);
    pthread_cond_destroy(&s->ready);
    void *arrays[] = {s->plans[0].block, s->plans[0].rank, s->plans[1].block, s->plans[1].rank,
                      s->group_row,      s->about,         s->held,           s->order};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(s);
}

void tr_row_stream_count(struct tr_row_stream *s, double sum[TR_STREAM_COUNTS])
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < TR_STREAM_COUNTS; i++) sum[i] += s->count[i];
    pthread_mutex_unlock(&s->lock);
}

/* ---- reading: the position of a pass ---- */

/* Unlocks. Returns false after an error of the thread: since passes do not return a status, it is stored in tr->broken, and the
 * stage that runs fails. */
static bool stream_unlock(struct tr_row_stream *s)
{
    bool damaged = s->error == EBADMSG;
    pthread_mutex_unlock(&s->lock);
    if (!s->error) return true;
    const struct tr_data_block *b = &s->block[s->bad];
    if (s->tr->broken != TR_OK) return false;
    if (damaged) (void)unlink(s->file->path); /* unlinks the file, so that the next start does not use it */
    s->tr->broken = tr_fail(damaged ? TR_ERR_DATA : TR_ERR_IO, "%s: rows %llu to %llu: %s", s->file->path,
                            (unsigned long long)b->row, (unsigned long long)b[1].row - 1,
                            damaged ? "damaged: wrong checksum; the next start reads the text again"
                                    : strerror(s->error));
    return false;
}

static void stream_await_block(struct tr_row_stream *s, size_t b)
{
    if (s->about[b].state == PRESENT) {
        s->count[TR_STREAM_READY]++;
        return;
    }
    double begin = tr_now();
    while (s->about[b].state != PRESENT && !s->error) pthread_cond_wait(&s->ready, &s->lock);
    s->count[TR_STREAM_WAITED]++;
    s->count[TR_STREAM_WAITED_SECONDS] += tr_now() - begin;
}

/* Moves the pass to the group with position `rank` of a plan, and waits until the blocks of the group are in memory. */
static void stream_move_to(struct tr_row_stream *s, const struct plan *plan, size_t rank)
{
    size_t at = rank / plan->group * plan->group;
    if (s->plan == plan && s->at == at) return;
    s->plan = plan;
    s->at = at;
    s->aside = s->n;
    if (plan == &s->plans[1]) s->mixed_at = at;
    pthread_cond_signal(&s->moved);
    for (size_t i = at; i < stream_group_end(s); i++) stream_await_block(s, plan->block[i]);
}

size_t tr_data_ready(const tr_data *data, size_t first, size_t n)
{
    struct tr_row_stream *s = data->state->stream;
    if (!s || n == 0) return n;
    const struct plan *file = &s->plans[0], *mixed = &s->plans[1];
    size_t b = stream_block_of(s, first);
    pthread_mutex_lock(&s->lock);

    /* Find out whether the pass follows plans[0] or plans[1]: both passes request consecutive rows, the latter within parts. A part
     * may begin or end in a block at another position of plans[1], which is then read aside. */
    bool follows = b == s->last || b == s->last + 1,
         near = s->mixes && (mixed->rank[b] + s->n - s->mixed_at) % s->n < 2 * GROUP;
    if (b != s->aside) {
        if (s->plan == file ? near && !follows : near) {
            s->strays = 0;
            stream_move_to(s, mixed, mixed->rank[b]);
        } else if (s->plan == mixed && s->strays++ < 2) {
            s->aside = b;
            pthread_cond_signal(&s->moved);
            stream_await_block(s, b);
        } else {
            stream_move_to(s, file, b);
        }
    }
    s->last = b;
    return stream_unlock(s) ? tr_min_size(n, (size_t)s->block[b + 1].row - first) : 0;
}

size_t tr_data_ready_in(const tr_data *data, const uint32_t *order, size_t at, size_t n)
{
    struct tr_row_stream *s = data->state->stream;
    if (!s || n == 0) return n;
    const struct plan *plan = &s->plans[1];
    size_t b = stream_block_of(s, order[at]);
    pthread_mutex_lock(&s->lock);
    stream_move_to(s, plan, plan->rank[b]);
    s->last = b;
    if (!stream_unlock(s)) return 0;
    return tr_min_size(n, (size_t)s->group_row[plan->rank[b] / GROUP + 1] - at);
}

/* ---- reading: orders ---- */

/* Makes an order of the blocks plans[1], which the next pass uses. */
static void stream_set_plan(struct tr_row_stream *s, const uint32_t *block)
{
    struct plan *plan = &s->plans[1];
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++) {
        plan->block[i] = block[i];
        plan->rank[block[i]] = (uint32_t)i;
    }
    s->plan = plan;
    s->at = s->n;
    s->aside = s->n;
    s->mixed_at = 0;
    s->mixes = true;
    s->strays = 0;
    pthread_cond_signal(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

/* Makes a random order of the blocks plans[1], and sets group_row. */
static void stream_mix_blocks(struct tr_row_stream *s, struct tr_rng *rng)
{
    const struct plan *plan = &s->plans[1];
    tr_rng_permutation(rng, s->order, s->n);
    stream_set_plan(s, s->order);
    for (size_t g = 0, i = 0; i < s->n; g++)
        for (s->group_row[g + 1] = s->group_row[g]; i < tr_min_size((g + 1) * GROUP, s->n); i++) {
            const struct tr_data_block *b = &s->block[plan->block[i]];
            s->group_row[g + 1] += b[1].row - b->row;
        }
}

void tr_data_permute(const tr_data *data, struct tr_rng *rng, size_t first, size_t n, uint32_t *order)
{
    struct tr_row_stream *s = data->state->stream;
    if (!s) {
        tr_rng_permutation(rng, order, n);
        for (size_t i = 0; i < n; i++) order[i] += (uint32_t)first;
        return;
    }
    stream_mix_blocks(s, rng);
    for (size_t g = 0; g * GROUP < s->n; g++) { /* mix the rows of a group of blocks */
        const uint32_t *block = &s->plans[1].block[g * GROUP];
        uint32_t *to = order + s->group_row[g];
        uint64_t before[GROUP + 1] = {0};
        size_t blocks = tr_min_size(GROUP, s->n - g * GROUP);
        for (size_t i = 0; i < blocks; i++)
            before[i + 1] = before[i] + s->block[block[i] + 1].row - s->block[block[i]].row;
        tr_rng_permutation(rng, to, (size_t)before[blocks]);
        for (size_t r = 0; r < before[blocks]; r++) {
            size_t i = 0;
            while (to[r] >= before[i + 1]) i++;
            to[r] = (uint32_t)(s->block[block[i]].row + to[r] - before[i]);
        }
    }
}

/* ---- reading: parts ---- */

static struct tr_data_block stream_position(const struct tr_data_state *state, uint64_t row)
{
    const struct tr_matrix *m = &state->rows;
    return (struct tr_data_block){row, m->begin ? m->begin[row] : row * m->columns};
}

/* Divides the rows into blocks again, of about the current size. A block consists of whole parts, or has rows of only one part:
 * otherwise passes over mixed parts would read it twice. */
static int stream_cut_blocks(const struct tr_row_stream *s, const struct tr_data_state *state,
                             const size_t *begin, size_t n, struct tr_data_block **blocks, size_t *count)
{
    struct tr_data_block start = {.row = 0}, last;
    TR_FREED struct tr_data_block *to = NULL;
    uint64_t most = stream_block_bytes(s, 0), rows = state->rows.rows;
    size_t capacity = 0, k = 0;
    for (size_t i = 0; i < n; i++) {
        struct tr_data_block from = stream_position(state, begin[i]);
        last = stream_position(state, i + 1 < n ? begin[i + 1] : rows);
        TR_TRY(TR_GROW(&to, &capacity, k + 3));
        if (start.row < from.row && stream_bytes_between(s, &start, &last) > most) {
            to[k++] = start;
            start = from;
        }
        while (stream_bytes_between(s, &start, &last) > most + most / 4) {
            TR_TRY(TR_GROW(&to, &capacity, k + 3));
            to[k++] = start;
            uint64_t low = start.row + 1, high = last.row; /* the first row with `most` bytes before it */
            while (low < high) {
                uint64_t middle = low + (high - low) / 2;
                struct tr_data_block at = stream_position(state, middle);
                if (stream_bytes_between(s, &start, &at) < most) low = middle + 1;
                else high = middle;
            }
            start = stream_position(state, low);
        }
    }
    if (start.row < rows) to[k++] = start;
    to[k] = stream_position(state, rows);
    *blocks = to;
    to = NULL;
    *count = k;
    return TR_OK;
}

int tr_data_permute_parts(const tr_data *data, struct tr_rng *rng, const size_t *begin, size_t n,
                          uint32_t *order)
{
    struct tr_data_state *state = data->state;
    struct tr_row_stream *s = state->stream;
    if (s && n > 0 && s->parts != n) { /* the blocks were not cut for these parts */
        struct tr_data_block *blocks;
        size_t count;
        TR_TRY(stream_cut_blocks(s, state, begin, n, &blocks, &count));
        stream_stop(s);
        for (size_t b = 0; b < s->n; b++)
            if (s->about[b].state == PRESENT) stream_drop_block(s, b);
        double counts[TR_STREAM_COUNTS];
        memcpy(counts, s->count, sizeof counts);
        uint64_t memory = s->memory;
        bool whole = s->whole;
        tr_row_stream_close(&state->stream);
        free(state->block);
        state->block = blocks;
        state->blocks = count;
        TR_TRY(stream_open(state, memory, whole, counts));
        s = state->stream;
        s->parts = n;
    }
    if (!s || n <= s->n) tr_rng_permutation(rng, order, n);
    if (!s || n == 0) return TR_OK;
    if (n <= s->n) { /* parts are larger than blocks: the blocks follow the order of the parts */
        size_t k = 0;
        for (size_t b = 0; b < s->n; b++) s->about[b].listed = false;
        for (size_t i = 0; i < n; i++) {
            size_t part = order[i], b = stream_block_of(s, begin[part]);
            uint64_t end = part + 1 < n ? begin[part + 1] : s->block[s->n].row;
            for (; b < s->n && s->block[b].row < end; b++) {
                if (s->about[b].listed) continue;
                s->about[b].listed = true;
                s->order[k++] = (uint32_t)b;
            }
        }
        for (size_t b = 0; b < s->n; b++)
            if (!s->about[b].listed) s->order[k++] = (uint32_t)b;
        stream_set_plan(s, s->order);
        return TR_OK;
    }

    /* parts are smaller than blocks: first the parts that begin in the first group of blocks, mixed; then those of the next
     * group */
    TR_FREED uint32_t *mixed = NULL;
    TR_FREED size_t *end = NULL;
    TR_TRY(TR_NEW(&end, s->n / GROUP + 2));
    TR_TRY(TR_NEW(&mixed, n));
    stream_mix_blocks(s, rng);
    tr_rng_permutation(rng, mixed, n);
    const uint32_t *rank = s->plans[1].rank;
    for (size_t i = 0; i < n; i++) end[rank[stream_block_of(s, begin[i])] / GROUP + 1]++;
    for (size_t g = 1; g < s->n / GROUP + 2; g++) end[g] += end[g - 1];
    for (size_t i = 0; i < n; i++) order[end[rank[stream_block_of(s, begin[mixed[i]])] / GROUP]++] = mixed[i];
    return TR_OK;
}
