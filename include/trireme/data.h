/* Training data: rows that all workers read in parallel, each a part of the files.
 *
 * Result of each data.format:
 *   libsvm    sparse rows with a label; dense rows if that is smaller
 *   csv       dense rows, with a label if data.label names its column
 *   ratings   a row per user, a column per item, the rating as value; ids of the files are numbered
 *   docword   a row per document, a column per word, the number of occurrences as value
 *   hdf5      as csv for a dense array, as libsvm for lists of non-zeros; columns count from 0
 *
 * Example: a gradient of logistic regression, inside compute().
 *
 *     tr_batch b;
 *     TR_TRY(tr_data_shuffle(data, me, 256, (uint64_t)me->clock));
 *     while (tr_data_next(data, &b))
 *         for (size_t i = 0; i < b.n; i++)
 *             tr_row_add(&b, i, -rate * slope(tr_row_dot(&b, i, w), b.label[i]), delta);
 */
#ifndef TRIREME_DATA_H
#define TRIREME_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base.h"
#include "trireme/context.h"
#include "trireme/records.h"
#include "trireme/stage.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maximum number of distinct integers that are taken for classes although the job does not say so. */
enum { TR_GUESSED_CLASSES = 100 };

/* Returns whether labels may be classes if the job does not say so. integers: all of them are integers. */
static inline bool tr_labels_may_be_classes(uint64_t labels, bool integers)
{
    return integers && labels <= TR_GUESSED_CLASSES;
}

/* The data set to open, TR_DATA_TRAIN or TR_DATA_TEST, combined with the properties of the model:
 *   TR_DATA_SPARSE      the model supports sparse rows only: rows of csv are converted to lists of non-zeros
 *   TR_DATA_DENSE       the model supports sparse and dense rows: sparse rows become dense if at least half of their cells are
 *                       non-zero, or a fifth if they will be centred
 *   TR_DATA_SCALED      the model can convert its parameters back to the units of the files: enables data.scale auto
 *   TR_DATA_UNCENTRED   the model has no bias: data.scale divides columns, but does not centre them
 *   TR_DATA_FREE_BIAS   the model has a bias without penalty. Centring does not change its optimum but improves the condition
 *                       number, so data.scale auto centres dense columns whose mean exceeds their deviation
 *   TR_DATA_RAW         rows as in the files; data.scale is ignored
 *   TR_DATA_PASSES      the model accesses rows only in passes and calls tr_data_ready(): enables data.storage disk
 *   TR_DATA_CODES       the model needs one number per column of a csv file: a value of a category is a code from 0, the most
 *                       frequent value first (tr_data_values()); missing numbers and unknown values are NaN
 *   TR_DATA_CLASSES     labels are classes: integers beyond 2^24, which a float cannot represent exactly, become names
 *   TR_DATA_FEW_CLASSES labels are classes if they are at most TR_GUESSED_CLASSES distinct integers */
enum tr_data_part {
    TR_DATA_TRAIN = 0,
    TR_DATA_TEST = 1,
    TR_DATA_SPARSE = 2,
    TR_DATA_DENSE = 4,
    TR_DATA_SCALED = 8,
    TR_DATA_UNCENTRED = 16,
    TR_DATA_RAW = 32,
    TR_DATA_PASSES = 64,
    TR_DATA_CODES = 128,
    TR_DATA_FREE_BIAS = 256,
    TR_DATA_CLASSES = 512,
    TR_DATA_FEW_CLASSES = 1024
};

/* The result of data.scale: the scaled value is (x - shift) × factor, where x is the value in the file. Each worker stores shift
 * and factor for its part of the columns. */
typedef struct tr_scaling {
    uint64_t first;       /* this worker has the columns first .. first + n - 1 */
    size_t n;             /* number of these columns */
    bool centred;         /* equal on all ranks; false: all shifts are 0 and shift is NULL */
    const double *shift;  /* n shifts; NULL if not centred */
    const double *factor; /* n factors above 0 */
} tr_scaling;

/* Names of the rows or columns of ratings; each worker has some of them. */
typedef struct tr_names tr_names;

/* The part of a data set that one worker has. data.partition selects how the rows of a group are divided:
 *   horizontal  each member has different rows; all members have the same keys, the union of theirs
 *   replicated  each member has all rows of the group (of docword and ratings whole rows), in the same order and with the
 *               same keys; members that share memory share one read-only copy
 *   vertical    each member has all rows of the group, but only some of the columns (libsvm only)
 *
 * A row of ratings or docword is complete on one worker. Its columns are distinct and ascend: repeated pairs are combined as
 * data.duplicates requests (ratings) or summed (docword). Users and items are numbered from 0 in ascending order of their ids, by
 * value if all ids are whole numbers, otherwise by bytes; the numbers do not depend on the number of ranks. Test data use the
 * numbers of the training data. Users and items that occur only in the test data have higher numbers, so that row_numbers and
 * columns may be larger than those of the training data. Documents are numbered from 0 in the order of the files; documents without
 * words have no row. */
typedef struct tr_data {
    /* The same on all ranks: */
    uint64_t total_rows, total_nonzeros; /* over all workers */
    uint64_t columns;                    /* number of features, items or words: keys are 0 .. columns - 1 */
    uint32_t first_index;                /* index of key 0 in the files: 0 or 1 */
    enum tr_format format;               /* format of the files, not auto */
    int label_column;                    /* csv: TR_LABEL_..., not auto */
    size_t labels;                       /* number of distinct labels; 65536: at least that many */
    const float *label;                  /* distinct labels in ascending order */
    uint64_t skipped;                    /* malformed records that were skipped (data.on_error: skip) */
    bool dense;                          /* rows are dense */
    bool on_disk;                        /* rows are stored on disk (data.storage) and need tr_data_ready() */

    /* Of this worker: */
    tr_batch rows;       /* all rows of this worker */
    const tr_key *keys;  /* n_keys keys in ascending order; rows.column contains indices of this array */
    size_t n_keys;       /* number of keys that this worker needs */
    const uint64_t *row; /* ratings, docword: numbers of the rows in ascending order; NULL otherwise */

    /* The same on all ranks: */
    uint64_t row_numbers; /* ratings, docword: row numbers are 0 .. row_numbers - 1; 0 otherwise */
    /* ratings: names of rows and columns; NULL for other formats. Test data have only names that training data do not have. */
    const tr_names *row_names, *column_names;
    double total_values;         /* ratings, docword: sum of all values; 0 otherwise */
    bool weighted;               /* rows have weights: rows.weight is set on all workers that have rows */
    bool has_offsets;            /* rows have offsets: rows.offset is set on all workers that have rows */
    const tr_scaling *scaling;   /* how training data were scaled; NULL if values are as in the files */
    struct tr_data_state *state; /* private */
} tr_data;

/* ---- opening and closing ---- */

/* Reads the files of data.train or data.test. All ranks must call it, outside tr_run(). Servers and the scheduler receive the
 * totals only.
 *
 * @param [in]  part  a set of enum tr_data_part
 * @param [in]  like  for test data: the training data. Columns that the training data do not have are dropped (not for ratings),
 *                    and rows are scaled in the same way. NULL for training data
 * @param [out] data  free it with tr_data_close()
 * @return the agreed status
 *
 * If data of the same unchanged files are open in this context with the same settings and `like`, the call shares their
 * rows and reads nothing.
 */
int tr_data_open(tr_context *tr, enum tr_data_part part, const tr_data *like, tr_data **data);

/* Closes data and sets *data to NULL. All ranks must call it, outside tr_run(), before tr_close(). *data may be NULL. Shared rows
 * are freed by the last close. */
void tr_data_close(tr_data **data);

/* Prints the size of the data and the distribution of rows and non-zeros over the workers (minimum, median, maximum) on rank
 * 0. All ranks must call it.
 *
 * @param [in] what  for example "training data"
 */
int tr_data_describe(const tr_data *data, const char *what);

/* Returns the number of categories of each column, 0 for numeric columns. Any rank may call it.
 *
 * @param [out] values  data->columns numbers
 */
void tr_data_values(const tr_data *data, uint32_t *values);

/* Finds a column by its name in the files or by its number (csv: from 1). Any rank may call it.
 *
 * @param [out] column  index below data->columns; unchanged if not found
 * @return whether the column exists
 */
bool tr_data_column(const tr_data *data, const char *name, uint64_t *column);

/* Frees the non-zeros of this worker's rows, for a model that has copied them; labels, numbers and counts remain. Any rank may call
 * it. Other tr_data that share these rows still have them. Rows that a group shares are freed when its last member calls this. */
void tr_data_forget(tr_data *data);

/* Declares that the first n rows of this worker will not be read again: memory of their non-zeros that is not shared is
 * freed. Any rank may call it. tr_data_forget() must follow after the last row. */
void tr_data_forget_rows(const tr_data *data, size_t n);

/* Finds a file that the job names. Relative paths are searched in the folders of data.folders.
 *
 * @param [out] found  its path; free it with free()
 */
int tr_data_find(const tr_job *job, const char *path, char **found);

/* ---- passes over the rows of a worker; no other rank takes part ---- */

/* Return the range begin .. end - 1 of data->rows that this worker processes in a stage, in which only some members of its group
 * may take part. If rows are replicated, the m-th of g such members processes the rows n m / g .. n (m + 1) / g - 1; otherwise each
 * worker processes all its rows. */
size_t tr_data_part_begin(const tr_data *data, const tr_worker *me);
size_t tr_data_part_end(const tr_data *data, const tr_worker *me);

/* Waits for rows that are stored on disk (data.storage). Rows are read before a pass needs them and removed from memory after
 * their use; passes in ascending order are fastest.
 *
 * @return k: the rows first .. first + k - 1 are in memory until the next call, 1 <= k <= n; k = n for data in memory. 0: the rows
 *         cannot be read, and the stage will fail
 */
size_t tr_data_ready(const tr_data *data, size_t first, size_t n);

/* Fills `order` with a random order of the rows first .. first + n - 1, which must be all rows of this worker. Rows on disk are
 * shuffled within groups of blocks; the blocks of a group are drawn from the whole file. */
void tr_data_permute(const tr_data *data, struct tr_rng *rng, size_t first, size_t n, uint32_t *order);

/* As tr_data_ready(), for the rows order[at] .. order[at + n - 1]. */
size_t tr_data_ready_in(const tr_data *data, const uint32_t *order, size_t at, size_t n);

/* As tr_data_permute(), for n parts of this worker's rows: part i starts at row begin[i] and ends before row begin[i + 1]. */
int tr_data_permute_parts(const tr_data *data, struct tr_rng *rng, const size_t *begin, size_t n,
                          uint32_t *order);

/* Starts a pass over the rows of this worker in mini-batches of `rows` rows (the last may be smaller). The order depends on
 * the job's seed, the worker and the number of the pass only, so that a resumed run uses the same order. */
int tr_data_shuffle(tr_data *data, const tr_worker *me, size_t rows, uint64_t pass);

/* Returns the next mini-batch of the pass.
 *
 * @param [out] batch  valid until the next call
 * @return false if the pass is complete
 */
bool tr_data_next(tr_data *data, tr_batch *batch);

/* ---- rows and labels ---- */

/* Writes the number of each row of this worker into `number` (data->rows.n elements). */
void tr_data_numbers(const tr_data *data, uint64_t *number);

/* As tr_data_numbers(), but allocates the array. Rows of libsvm and csv are numbered in the order of the files. Any rank may call
 * it.
 *
 * @param [out] number  free it with free()
 */
int tr_data_row_numbers(const tr_data *data, uint64_t **number);

/* For snapshot functions: lists an array with one element per row. Elements are stored by row number, so that they are restored to
 * the same rows on any number of workers. All ranks that take part must call it.
 *
 * @param [in,out] values  data->rows.n elements
 */
int tr_data_keep(const tr_data *data, tr_snapshot *snapshot, const char *name, enum tr_dtype dtype,
                 void *values);

/* Returns a text for messages: file, line and value of the first record whose label is the third distinct one. */
const char *tr_data_third_label(const tr_data *data);

/* Returns whether labels are names, label k the k-th name: words, or integers that a float cannot represent exactly. */
bool tr_data_labels_are_names(const tr_data *data);

/* Returns the name of a label, or the label as a number, also if data is NULL: a terminated string, truncated if necessary. */
enum { TR_LABEL_TEXT = 96 };
void tr_data_label_text(const tr_data *data, float label, char text[TR_LABEL_TEXT]);

/* Returns the first n rows of libsvm or csv files, in their order, on all ranks. Columns of these rows are keys (0 ..
 * data->columns - 1), not indices of data->keys. All ranks must call it, outside tr_run().
 *
 * @param [in]  distinct  skip rows that are equal to an earlier one
 * @param [out] rows      at most n rows; free them with tr_batch_free()
 * @return the agreed status
 */
int tr_data_first_rows(const tr_data *data, size_t n, bool distinct, tr_batch **rows);
void tr_batch_free(tr_batch **rows);

/* ---- names ---- */

/* Some consecutive names of a tr_names list. */
typedef struct tr_names_piece {
    uint64_t first;         /* number of the first name */
    size_t n;               /* number of names */
    const uint64_t *number; /* names that are whole numbers, in ascending order; NULL for text */
    const uint64_t *begin;  /* text: name i is text[begin[i]] .. text[begin[i + 1] - 1], n + 1 offsets */
    const char *text;       /* bytes of all names, in ascending order of names; not terminated */
} tr_names_piece;

typedef int tr_names_fn(void *state, const tr_names_piece *piece);

/* Return the number of names on all workers, the number of the first name, and whether all names are whole numbers. */
uint64_t tr_names_count(const tr_names *names);
uint64_t tr_names_first(const tr_names *names);
bool tr_names_are_numbers(const tr_names *names);

/* Sends all names to rank 0, in order, in pieces of about 1 MiB. All ranks must call it, outside tr_run().
 *
 * @param [in] piece  called on rank 0 only; may be NULL on other ranks
 * @return the agreed status
 */
int tr_names_each(const tr_names *names, tr_names_fn *piece, void *state);

/* ---- sparse rows ---- */

/* Returns the value of the k-th non-zero of sparse rows. */
static inline float tr_value_at(const tr_batch *b, uint64_t k)
{
    return b->value ? b->value[k] : 1;
}

/* Returns the inner product of row i and w, a vector over the keys. */
static inline double tr_row_dot(const tr_batch *b, size_t i, const float *w)
{
    double sum[2] = {0, 0};
    uint64_t k = b->begin[i], end = b->begin[i + 1];
    if (b->value)
        for (; k < end; k++) sum[k & 1] += (double)b->value[k] * (double)w[b->column[k]];
    else
        for (; k < end; k++) sum[k & 1] += (double)w[b->column[k]];
    return sum[0] + sum[1];
}

/* Adds a times row i to w. */
static inline void tr_row_add(const tr_batch *b, size_t i, float a, float *w)
{
    for (uint64_t k = b->begin[i]; k < b->begin[i + 1]; k++)
        w[b->column[k]] += b->value ? a * b->value[k] : a;
}

#ifdef __cplusplus
}
#endif
#endif
