/* data/ — from input files to the rows that a worker trains on.
 *
 *   input          files, their division among readers, decompression, lines of text
 *   field          numbers and fields of lines
 *   reader         one driver for all formats of text: libsvm, csv, triples (ratings, docword); their detection
 *   hdf5, convert  tables in HDF5; conversion of any table
 *   records        reading by one process without storing rows; estimates of the size of data
 *   schema         csv: values, columns and their keys; schema_make: from files and job; schema_all: on all ranks
 *   names          numbering of texts and numbers, by one reader (ids) and by all workers: users, items, and values of categories with
 *                  their counts; structs as bytes, for other ranks and for the next start
 *   exchange       lists of any length between ranks; rows and keys of a group; records to the workers of their rows
 *   matrix         sparse or dense rows; numbers for the columns that occur; rows of records; quantiles of numbers
 *   dataset        tr_data_open(): each worker reads a range of the files, all agree on the whole, rows are made; data sets that are
 *                  open, with a reference count
 *   row_store      the arrays of rows: in the heap, in memory that a group or several tasks share, kept for the next start, on disk
 *   disk           the row store on disk: written in two passes, read ahead of a pass over the rows
 *   node_rows      rows that a node reads once for several tasks
 *   access         mini-batches, numbers and descriptions of rows for the models
 *   scale          columns brought to one size
 *   generate       artificial data: clicks, ratings, documents, clusters
 */
#ifndef TR_DATA_DATASET_H
#define TR_DATA_DATASET_H

#include "data/exchange.h"
#include "data/names.h"
#include "data/reader.h"
#include "data/row_store.h"
#include "ranks/ranks.h"
#include "trireme/data.h"

struct tr_store;
struct tr_node_rows;

/* Added to enum tr_data_part: rows of a node for several tasks; data->state->row_number is the place of each row in the files. */
enum { TR_DATA_NODE = 1 << 16 };

/* Rows at .. at + n - 1 here have the numbers first, first + 1, ... among all rows in the order of the files. */
struct tr_stretch {
    uint64_t first;
    size_t at, n;
};

struct tr_data_state {
    tr_context *tr;
    struct tr_store *store; /* the owner of all this */
    struct tr_files files;
    struct tr_head *heads;           /* of each file */
    struct tr_schema *schema;        /* csv; test data use that of the training data */
    struct tr_bindings bindings;     /* csv: of each file to the schema */
    uint64_t unknown;                /* csv: values of categories that have no key */
    uint64_t unlabelled;             /* csv: rows without a label, which are left out */
    int form;                        /* TR_DATA_SPARSE and the like, as in tr_data_open() */
    bool full;                       /* each row has a value for every column; false: rows are sparse */
    struct tr_scale *scale;          /* of training data; NULL: not scaled */
    struct tr_job_held_out held_out; /* the records that are test data, and not training data */
    bool test;                       /* these are test data */
    bool long_labels;                /* csv: labels are names because some are integers that are not floats */

    /* The rows of this worker, or those of its group (see row_store.h). */
    struct tr_matrix rows;
    uint64_t *row_number;    /* as tr_data.row */
    float *weight;           /* of these rows, in the heap; NULL: all 1 */
    const float *own_weight; /* weight from the first row that this worker has read, until rows are shared */
    struct tr_stretch *stretch; /* if row_number is NULL: the rows here, in the order of their numbers */
    size_t stretches;
    struct tr_row_file *file; /* holds the rows, their numbers and the keys; NULL: they lie in the heap */
    struct tr_cached *cached; /* the files for the next start of the job; NULL: none */
    const struct tr_node_rows *node_rows; /* the rows were copied from these; NULL: files were read */

    bool on_disk;    /* the file lies on a disk (data.storage) */
    uint64_t memory; /* bytes of it that this rank may keep in memory; 0: as few as possible */
    uint64_t
        cacheable; /* bytes that the page cache may hold of it: this rank's share of a quarter of the free memory */
    struct tr_data_block *block; /* blocks + 1 of them */
    size_t blocks;
    struct tr_row_stream *stream; /* NULL: rows are in memory */

    tr_names *row_names, *column_names;
    double load_seconds;
    char *third_label; /* its place and text, if there are more than two labels */
    struct tr_ids
        *words; /* rows of a node: the texts of each csv column, or of users and of items, by number */
    size_t word_lists;
};

static inline bool tr_data_is_triples(const tr_data *data)
{
    return data->format == TR_FORMAT_RATINGS || data->format == TR_FORMAT_DOCWORD;
}

static inline bool tr_data_is_dense(const tr_data *data)
{
    return data->state->full && !(data->state->form & TR_DATA_SPARSE);
}

/* Rows as models see them, without weights. */
static inline tr_batch tr_matrix_batch(const struct tr_matrix *m)
{
    if (m->begin) return (tr_batch){m->rows, m->begin, m->column, m->value, m->label, NULL, NULL};
    return (tr_batch){.n = m->rows, .label = m->label, .dense = m->value};
}

/* There are groups, and they have their rows in this way (data.partition). */
static inline bool tr_data_is_partitioned(const tr_context *tr, int partition)
{
    return tr->layout.group_size > 1 && tr->job->data.partition == partition;
}

static inline const struct tr_head *tr_data_hdf5_head(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    return &s->heads[tr_heads_first(s->heads, s->files.n)];
}

/* The result of reading the files on one worker, before it is stored in data->state. */
struct tr_reading {
    struct tr_read_report report;
    struct tr_read_runs runs;
    struct tr_triples triples;
    uint64_t *records; /* ratings, docword: of each file */
    bool text_rows, text_columns;
    size_t columns;              /* triples: columns are below this */
    struct tr_column_seen *seen; /* csv: of each column */
    float *weight;               /* csv: of each row, if a column has weights */
    uint32_t
        *keys; /* rows that a group will share: the columns that occur, ascending; the rows count these */
    size_t n_keys;
    struct tr_disk_writer writer; /* of rows on a disk */
    bool second;                  /* this is the second pass of the writer */
};

/* ---- open data sets ----
 *
 * A store is a data set that tr_data_open() has loaded, with a reference count. While it exists, a task that opens the same files with
 * the same settings uses it, too (FlexPS, section 5.3: data stay in memory over the stages of a task). The last user frees it. */

struct tr_store {
    struct tr_store *next; /* of the same context */
    tr_data data;
    char *key;         /* its files and settings, as text */
    uint64_t number;   /* counts the stores that were loaded, from 1; the same on all ranks */
    int opened;        /* number of times */
    int users;         /* the reference count */
    int readers;       /* users that still need the non-zeros */
    bool forgotten;    /* the non-zeros were freed on this rank */
    bool held;         /* one of the users is the team, for its next task */
    const tr_job *job; /* the task that opened it last */
};

/* All stores of a context; NULL if there is none. */
struct tr_stores {
    struct tr_store *first;
    uint64_t loaded; /* number of stores that were loaded so far */
};

/* The files (NULL: the names of data.train in the job) and the settings of reading them, as text; to be freed. Equal keys: equal rows
 * before they are scaled or divided. */
int tr_store_rows_key(const tr_job *job, const struct tr_files *files, char **key);

/* The schema of the training data that were loaded last and are still open; NULL: there are none, or they are not csv. */
const struct tr_schema *tr_store_schema(const tr_context *tr);

/* Reports the figures of all data on disks for summary.json. All ranks. */
int tr_store_report(tr_context *tr);

/* A pass over rows in mini-batches: access.c. */
struct tr_batches {
    uint32_t *order; /* rows of data->rows */
    size_t next, end, size;
    uint64_t *begin; /* the current batch; the following arrays have the size of the largest one */
    uint32_t *column;
    float *value, *label, *weight;
    size_t order_capacity, begin_capacity, column_capacity, value_capacity, label_capacity, weight_capacity;
};

void tr_batches_free(struct tr_batches *batches);

/* A user of a store. */
struct tr_data_user {
    tr_data data; /* a copy of the store's */
    bool forgot;  /* tr_data_forget() was called: without the non-zeros */
    struct tr_batches batches;
};

/* The progress of loading, estimated from one worker, as all have equal ranges: rank 0 if it is a worker, else worker 0. */
struct tr_loading {
    const char *what;   /* "training data" */
    double done, total; /* stored bytes of all workers */
    double seconds;     /* since it began */
};

/* Called on rank 0 while data are read; anything but TR_OK ends it. */
typedef int tr_loading_fn(void *who, const struct tr_loading *progress);
void tr_on_loading(tr_context *tr, tr_loading_fn *loading, void *who);

/* Opens files by their names; relative names are searched in data.folders. */
int tr_files_of(const tr_job *job, char *const names[], size_t n, struct tr_files *files);

/* Opens the files of data.train or data.test, relative paths are searched in data.folders. Test data that are held out of the training
 * data are in the files of data.train. */
int tr_data_files(const tr_job *job, bool test, struct tr_files *files);

/* The format of a job's data, from the job and the first lines of the files. TR_ERR_DATA if the first file certainly has another format
 * than the job says. */
int tr_data_format(const tr_job *job, const struct tr_files *files, enum tr_format *format);

/* Estimates the size of a job's data before they are read, from the beginnings and middles of their files; all members except
 * workers and servers. Any rank, alone. Errors as those of reading. */
int tr_data_guess(const tr_job *job, tr_data_size *size);

/* The job's options of reading data. like: the training data, for test data; otherwise NULL. */
struct tr_reader_options tr_data_reading(const tr_data *data, const tr_data *like);

/* Frees everything that a data set has besides its rows: names, labels, heads, the scale, ... */
void tr_data_free_head(tr_data *data);

/* Numbers the rows of all workers in the order of the files: fills data->state->stretch. *own: the index of the first row that this
 * worker has read among the rows that it stores (after they are shared). Workers only, together. */
int tr_number_rows(tr_data *data, const struct tr_read_runs *runs, size_t *own);

/* ---- scale.c: columns brought to one size (data.scale): x becomes (x - shift) × factor ----
 *
 * Each worker owns an equal range of the columns: it receives the sums that other workers have for these columns, decides how to scale
 * them, and sends the result to the workers that have such columns. So no worker needs more memory than its own columns and its range
 * take. Factors have 12 significant bits and shifts are multiples of the spread / 1024, so that rounding in another order, on another
 * number of ranks, leads to the same result. */

struct tr_scale {
    tr_scaling share; /* the value of tr_data.scaling */
    double
        *shift; /* of this worker's range of columns, see `share`; NULL: dense rows are not centred either */
    double *factor;     /* the same */
    double least, most; /* sizes of columns in the files: 1 % of the non-zeros are smaller; the largest */
    int how;            /* TR_SCALE_... */
};

/* Whether the job and the model want scaled rows, if data.scale auto finds that useful. */
bool tr_scale_is_wanted(const tr_data *data);

/* Before rows are replicated and columns numbered: decides how to scale the training data (like: NULL), or scales test data as their
 * training data. All ranks; workers have the rows. data->state->scale stays NULL if nothing is scaled. */
int tr_scale_rows(tr_data *data, const tr_data *like);

/* Scales other rows of the same columns: all workers together, possibly without rows. */
int tr_scale_matrix(const tr_data *data, const struct tr_scale *scale, struct tr_matrix *m);

/* Whether rows that are still sparse would be scaled, and, if they were dense, centred: all ranks. Changes nothing. */
int tr_scale_would_centre(tr_data *data, bool *would);

/* Prints one line on rank 0. */
void tr_scale_say(const tr_data *data);

void tr_scale_free(struct tr_scale **scale); /* *scale may be NULL */

/* ---- node_rows.c: rows that a node reads once, for all tasks of a job that use the same files ----
 *
 * The ranks of each node read the files together before the first task begins, into memory that they share, as a group in which each
 * has all rows; rows stay as they are in the files. The workers of a task then copy the rows that they would have read, in that
 * order, by the place of each row's line in the files. So a task gets the same rows on any number of ranks, and its own folds of
 * cross-validation; no file is read again. Words of tables, and users and items as text, are numbers in a list that the node has;
 * types of columns, dictionaries and keys are determined by each task. The memory is freed when the last task that needs it has
 * ended. */

struct tr_node_rows {
    struct tr_node_rows *next; /* of the same context */
    const char *task;          /* the first task that needs them */
    const char *folder;        /* of the node, for rows that tasks make of them; NULL: there is none */
    tr_data *train, *test;     /* test: NULL if tasks have no files for it */
    char *train_key, *test_key;
    bool forgotten;
};

/* Reads the rows of the node and registers them in `world`, so that teams that begin later use them. The caller has set rows->task.
 * `node`: all ranks of a node in one replicated group, with the job of the task. Errors are returned but not printed. All ranks of a
 * node together. */
int tr_node_rows_open(tr_context *node, tr_context *world, struct tr_node_rows *rows);

/* They are not found any more on this rank; their memory is freed when all ranks of the node have called this. Any rank, alone, that
 * has no data of them. */
void tr_node_rows_forget(struct tr_node_rows *rows);

/* All ranks of a node together; before the node's context ends. */
void tr_node_rows_close(tr_context *world, struct tr_node_rows *rows);

/* The rows of the data set's files on this node, or NULL. */
const struct tr_node_rows *tr_node_rows_find(const tr_data *data);

/* Does the same as tr_read_matrix() or tr_read_triples(), from data->state->node_rows. */
int tr_node_rows_read(tr_data *data, size_t reader, size_t readers, const struct tr_reader_options *options,
                      struct tr_reading *in);

/* While the node reads: unites the words of all ranks into data->state->words, and makes the rows or triples count these. seen: of each
 * column of a table. All ranks of the node together. TR_ERR_SYSTEM: too many bytes for each rank. */
int tr_node_rows_unite_words(tr_data *data, const struct tr_column_seen *seen);
int tr_node_rows_unite_ids(tr_data *data, struct tr_triples *triples);

#endif
