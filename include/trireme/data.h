/* Training data: rows of numbers, sparse or dense, read in parallel, each worker its part.
 *
 * What the formats of data.format become:
 *   libsvm    sparse rows with a label, or dense ones where that suits them
 *   csv       dense rows of numbers, and a label where data.label says which column has it
 *   ratings   a row for each user, a column for each item, in value the rating; ids of the files are numbered
 *   docword   a row for each document, a column for each word, in value how often it occurs
 *   hdf5      as csv where it has a dense array, as libsvm where it has lists of non-zeros; columns count from 0
 */
#ifndef TRIREME_DATA_H
#define TRIREME_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base.h"
#include "trireme/context.h"
#include "trireme/records.h"
#include "trireme/snapshot.h"
#include "trireme/stage.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* To one of the first two are added
 *   TR_DATA_SPARSE      by models that know sparse rows only: those of csv are made so, without the zeros
 *   TR_DATA_DENSE       by models that know both: sparse rows of files become dense where half of their cells or more are not
 *                       zero, or a fifth if they are to be centred
 *   TR_DATA_SCALED      by models that can turn their parameters back to the files' numbers: data.scale auto is for them
 *   TR_DATA_UNCENTRED   by models without a bias: data.scale only divides
 *   TR_DATA_FREE_BIAS   by models with a bias that nothing shrinks: centred columns are no other problem for them, only an easier
 *                       one, so data.scale auto centres dense rows whose columns have larger means than deviations
 *   TR_DATA_RAW         where rows are to be as in the files, whatever data.scale says
 *   TR_DATA_PASSES      by models that only pass over rows, and ask tr_data_ready() for them: data.storage may be disk
 *   TR_DATA_CODES       by models that take a column of a table as one: of csv, categories are the numbers of their values, from 0,
 *                       the most frequent, on (tr_data_values()); missing numbers, and values that have no number, are NaN */
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
    TR_DATA_FREE_BIAS = 256
};

/* What data.scale has made of the files' numbers x: (x - shift) × factor. Each worker knows that of the columns first ..
 * first + n - 1; all workers together, of all. */
typedef struct tr_scaling {
    uint64_t first;
    size_t n;
    bool centred;         /* known on all ranks; otherwise all shifts are 0 and … */
    const double *shift;  /* … NULL */
    const double *factor; /* above 0 */
} tr_scaling;

/* What the rows or columns of ratings are called in the files; each worker has some of the names. */
typedef struct tr_names tr_names;

/* What one worker holds of a data set. Inside a group the rows are divided as data.partition says:
 *   horizontal  each member has its own rows; all members number the same keys (the union of theirs)
 *   replicated  each member has all rows of the group (for docword and ratings whole, too), in the same order and
 *               with the same keys; where all members share memory they lie there once, to be read only
 *   vertical    each member has all rows of the group, but only its own columns of them (libsvm only)
 *
 * Of ratings and docword a row is whole at one worker, and has its non-zeros in ascending order of columns, each once:
 * a pair that occurs twice is what data.duplicates says (of ratings) or the sum (of words). Users and items are
 * numbered from 0 in ascending order of their ids, by number if all are whole numbers, by bytes otherwise: the same
 * numbers for any number of ranks. In test data they have the numbers of training; those that training has not seen
 * follow behind: row_numbers and columns are larger than training's then. Documents are numbered as in the files, those
 * of the second file behind the first's, each file's first is 0; a document without words is no row. */
typedef struct tr_data {
    uint64_t total_rows, total_nonzeros; /* over all workers; known on all ranks, as are the next two */
    uint64_t columns;                    /* features, items, words: keys are 0..columns-1 */
    uint32_t first_index;                /* the file's index of key 0: 0 or 1 */
    enum tr_format format;               /* what the files are, never auto; known on all ranks */
    int label_column;                    /* csv: TR_LABEL_…, never auto; known on all ranks */
    size_t labels;      /* distinct labels, known on all ranks: 65536 stand for as many or more … */
    const float *label; /* … ascending */
    uint64_t skipped;   /* malformed records left out (data.on_error: skip) */
    bool dense;         /* rows are; known on all ranks */
    bool on_disk;  /* rows lie there (data.storage), so that memory has little room; known on all ranks */
    tr_batch rows; /* of this worker */
    const tr_key *keys; /* n_keys of them, ascending: what rows.column counts */
    size_t n_keys;
    const uint64_t *row; /* ratings, docword: the numbers of this worker's rows, ascending; NULL otherwise */
    /* ratings, docword: users, documents: these numbers are 0..row_numbers-1; 0 otherwise */
    uint64_t row_numbers;
    /* ratings: what these numbers are called; NULL otherwise. Of test data: those that training has not seen, numbered
     * on */
    const tr_names *row_names, *column_names;
    double total_values; /* the sum of all values: of ratings, of words in all documents; 0 for others */
    bool weighted;       /* rows.weight is there at all who have rows; known on all ranks */
    const tr_scaling *scaling; /* of training data; NULL on all ranks where they are as in the files */
    struct tr_data_state *state;
} tr_data;

/* Reads the files of data.train or data.test. All ranks, outside tr_run(); servers and the scheduler learn
 * the totals only. For test data, `like` is the training data whose columns count: others are dropped, but of ratings
 * kept; and they are scaled as those are. Errors are agreed on. Free with tr_data_close(). While data of the same files (not written meanwhile) are open
 * in this context, with the same settings and `like`, these are taken: nothing is read, and the rows are the same memory
 * for all who have opened them. */
int tr_data_open(tr_context *tr, enum tr_data_part part, const tr_data *like, tr_data **data);

/* All ranks together, outside tr_run(), before tr_close(); NULL is fine. Rows go with the last who has opened them. */
void tr_data_close(tr_data **data);

/* What was read, and how rows and non-zeros lie over the workers: smallest, median, largest; rank 0 says it. All ranks.
 * what: "training data" or the like. */
int tr_data_describe(const tr_data *data, const char *what);

/* Of each of data->columns, how many values its category has, 0 of numbers; values: room for all. Any rank, alone. */
void tr_data_values(const tr_data *data, uint32_t *values);

/* Which of data->columns is called so in the files: by its name, or its number, of csv counted from 1. false: none. Any rank, alone. */
bool tr_data_column(const tr_data *data, const char *name, uint64_t *column);

/* Frees the non-zeros of this worker's rows, for a model that has them in another form; their labels, numbers and counts
 * stay. Any rank, alone. Others who use the same data keep them; rows that a group has once go with its last member. */
void tr_data_forget(tr_data *data);

/* The first n of this worker's rows will not be read again: what memory of their non-zeros is nobody else's is given back already.
 * Any rank, alone, and tr_data_forget() once all have come so far. */
void tr_data_forget_rows(const tr_data *data, size_t n);

/* A file that the job names: a relative path wherever data.folders has it. *found is to be freed. */
int tr_data_find(const tr_job *job, const char *path, char **found);

/* Which of data->rows are for this worker in a stage that may run on some members of each group only: rows first ..
 * end - 1. Of replicated rows each of the stage's members has an equal part (n m / g .. n (m + 1) / g - 1 for member m of
 * g), otherwise all that it holds. */
size_t tr_data_part_begin(const tr_data *data, const tr_worker *me);
size_t tr_data_part_end(const tr_data *data, const tr_worker *me);

/* Rows that lie on a disk (data.storage) are read ahead of a pass over them, and go out of memory behind it. A pass asks, at
 * each step, how many of the rows first .. first + n - 1 are there: n where rows are in memory; otherwise 1 at least, after it
 * has waited for them; they stay until it asks for others. 0: they cannot be read, and the stage will fail of itself. The
 * quickest are passes from the first row to the last. A worker, alone. */
size_t tr_data_ready(const tr_data *data, size_t first, size_t n);

/* A new order of these rows, which are all of this worker's, for a pass over rows by chance. Where they lie on a disk, some
 * blocks of rows from all over the file are mixed, then some others. And how many of order[at .. at + n - 1] are there, as
 * above. */
void tr_data_permute(const tr_data *data, struct tr_rng *rng, size_t first, size_t n, uint32_t *order);
size_t tr_data_ready_in(const tr_data *data, const uint32_t *order, size_t at, size_t n);

/* The same of n parts of this worker's rows, of which part i begins with row begin[i], and ends where the next one begins. */
int tr_data_permute_parts(const tr_data *data, struct tr_rng *rng, const size_t *begin, size_t n,
                          uint32_t *order);

/* Begins a pass over the rows that are for this worker, in mini-batches of so many rows (the last may have fewer): in an order
 * that follows from the job's seed, the worker and the number of the pass alone, so that a run that goes on from a checkpoint
 * draws the same. A worker of a stage, alone. */
int tr_data_shuffle(tr_data *data, const tr_worker *me, size_t rows, uint64_t pass);

/* The next mini-batch of the pass, valid until the next call; false: there is no more. Columns count data->keys. */
bool tr_data_next(tr_data *data, tr_batch *batch);

/* The numbers of data->rows, in their order; number: room for all. */
void tr_data_numbers(const tr_data *data, uint64_t *number);

/* For snapshot functions: a number of this type for each of data->rows. They are kept by the rows' numbers, which for libsvm
 * and csv count all rows in the order of the files, and so find their rows on any number of workers. All ranks that take
 * part. */
int tr_data_keep(const tr_data *data, tr_snapshot *snapshot, const char *name, enum tr_dtype dtype,
                 void *values);

/* The numbers of data->rows, one each, which for libsvm and csv count all rows in the order of the files; to be freed. Any rank,
 * alone. */
int tr_data_row_numbers(const tr_data *data, uint64_t **number);

/* Where the third kind of label was met, and what it is; for messages, if there are more than two. */
const char *tr_data_third_label(const tr_data *data);

/* Whether these are test data that are a share of data.train. */
bool tr_data_is_held_out(const tr_data *data);

/* The first n rows of the files of libsvm or csv data, in their order, whoever has them; only rows that differ from all
 * before where they must be distinct. Fewer if there are not so many. Their columns are keys, 0..data->columns-1, not
 * numbers of this worker's keys. All ranks, outside tr_run(); errors are agreed on. Free with tr_batch_free(). */
int tr_data_first_rows(const tr_data *data, size_t n, bool distinct, tr_batch **rows);
void tr_batch_free(tr_batch **rows);

/* ---- names ---- */

/* Some neighbours in the list of names. */
typedef struct tr_names_piece {
    uint64_t first; /* number of the first */
    size_t n;
    const uint64_t *number; /* names that are whole numbers, ascending; NULL for text */
    const uint64_t *begin;  /* text: name i is text[begin[i]] .. text[begin[i + 1] - 1], n + 1 of them */
    const char *text;       /* ascending by bytes; not ended by NUL */
} tr_names_piece;

typedef int tr_names_fn(void *state, const tr_names_piece *piece);

/* How many names there are on all workers, the number of the first, and whether all are whole numbers. Any rank. */
uint64_t tr_names_count(const tr_names *names);
uint64_t tr_names_first(const tr_names *names);
bool tr_names_are_numbers(const tr_names *names);

/* All ranks together, outside tr_run(): hands all names to rank 0, in order, in pieces that no one needs to keep (about
 * 1 MiB each). Elsewhere piece is not called, and may be NULL. Errors are agreed on. */
int tr_names_each(const tr_names *names, tr_names_fn *piece, void *state);

/* x_i · w for a vector w over the keys. */
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

/* w += a x_i */
static inline void tr_row_add(const tr_batch *b, size_t i, float a, float *w)
{
    for (uint64_t k = b->begin[i]; k < b->begin[i + 1]; k++)
        w[b->column[k]] += b->value ? a * b->value[k] : a;
}

#ifdef __cplusplus
}
#endif
#endif
