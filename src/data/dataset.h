/* data/ — from input files to the rows that a worker trains on.
 *
 *   input          files, their division among readers, decompression, lines of text
 *   dialect        settings and search of the dialects of text; sniff: the dialect of a sample; rewrite: text in the usual form
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
 *   row_store      where the arrays of rows are: heap, memory shared by a group or by tasks, files for the next start, disk
 *   disk           the row store on disk: written in two passes, read ahead of a pass over the rows
 *   node_rows      rows that a node reads once for several tasks
 *   access         mini-batches, numbers and descriptions of rows for the models
 *   scale          columns brought to one size
 *   generate       artificial data: clicks, ratings, documents, clusters
 *
 * A key is the number of a feature of the model. The non-zeros of rows are their columns and values, without labels and numbers.
 * ranks/ranks.h defines group, member (one worker of a group) and team (the ranks that run one task).
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

/* One more flag of enum tr_data_part: the rows of a node for several tasks (node_rows.c). data->state->row_number[i] is the
 * tr_origin() of row i: its file, and its offset in the file's text. */
enum { TR_DATA_NODE = 1 << 16 };

/* A stretch: the worker's rows with the indices at .. at + n - 1 have the numbers first .. first + n - 1. All rows of the data set
 * are numbered in the order of the files. */
struct tr_stretch {
    uint64_t first;
    size_t at, n;
};

struct tr_data_state {
    tr_context *tr;
    struct tr_store *store; /* the store that contains this data set and frees it */
    struct tr_files files;
    struct tr_head *heads;    /* what the first lines of each file show (reader.h) */
    struct tr_schema *schema; /* csv; test data share the schema of the training data */
    /* libsvm, hdf5: the names of labels, in a schema without columns, which test data share; NULL: labels are numbers */
    struct tr_schema *names;
    struct tr_bindings bindings;     /* csv: the columns of the schema that the files have */
    uint64_t unknown;                /* csv: number of values of categories that have no key */
    uint64_t unlabelled;             /* csv: number of rows without a label, which are left out */
    int form;                        /* flags of enum tr_data_part that the model passed to tr_data_open() */
    bool full;                       /* each row has a value for every column; false: rows are sparse */
    struct tr_scale *scale;          /* training data: how they were scaled; NULL: not scaled */
    struct tr_job_held_out held_out; /* data.test: the share of data.train that is held out as test data */
    struct tr_split split;           /* the held-out rows, if this data set is read from data.train */
    bool test;                       /* this data set is test data */
    bool long_labels;                /* labels are names because some are integers that are not floats */

    /* The rows of this worker, or those of its group (see row_store.h). */
    struct tr_matrix rows;
    /* number of each row in the data set (tr_data.row; with TR_DATA_NODE: its origin) */
    uint64_t *row_number;
    uint64_t *
        row_mark; /* with TR_DATA_NODE: the group or the time of each row, see split.h; NULL: there are none */
    float *extra[TR_EXTRAS];    /* extras of each row, in the heap; NULL: all are usual */
    const float *own_weight;    /* weights of the rows that this worker has read itself; NULL after loading */
    struct tr_stretch *stretch; /* if row_number is NULL: the numbers of all rows, ascending */
    size_t stretches;
    /* mapped file with rows, row numbers and keys; NULL: these arrays are in the heap */
    struct tr_row_file *file;
    struct tr_cached *cached; /* files for the next start of the job, or for other teams; NULL: none */
    const struct tr_node_rows *node_rows; /* the source of the rows; NULL: they were read from files */

    bool on_disk;    /* the rows are in a file on a disk (data.storage) */
    uint64_t memory; /* on_disk: bytes of the file that may stay in memory; 0: as few as possible */
    /* on_disk: bytes of the file that the page cache may hold: a part of the free memory */
    uint64_t cacheable;
    /* on_disk: begins of the blocks of the file; the last of blocks + 1 elements is the end */
    struct tr_data_block *block;
    size_t blocks;
    struct tr_row_stream *stream; /* reads the blocks of rows on a disk; NULL: rows are in memory */

    tr_names *row_names, *column_names;
    double load_seconds;
    char *third_label; /* place and text of the first record with a third distinct label; NULL: at most two */
    /* Rows of a node: word_lists lists of texts, one per csv column, or of users and of items. Rows contain positions in them */
    struct tr_ids *words;
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

/* Returns rows in the form that models use. The caller sets the extras. */
static inline tr_batch tr_matrix_batch(const struct tr_matrix *m)
{
    if (m->begin) return (tr_batch){m->rows, m->begin, m->column, m->value, m->label, NULL, NULL, NULL};
    return (tr_batch){.n = m->rows, .label = m->label, .dense = m->value};
}

/* Returns whether groups have several members, and data.partition has this value. */
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
    uint64_t *records; /* ratings, docword: number of records of each file */
    bool text_rows, text_columns;
    size_t columns;              /* ratings, docword: number of columns */
    struct tr_ids label_seen;    /* libsvm, hdf5: the names of labels, if labels have names */
    struct tr_column_seen *seen; /* csv: what the reader found in each column */
    float *extra[TR_EXTRAS];     /* csv: extras of each row, if a column has them */
    /* For rows that a group will share: the columns that occur, ascending. The rows contain positions in this list */
    uint32_t *keys;
    size_t n_keys;
    struct tr_disk_writer writer; /* for rows on a disk */
    bool second;                  /* this is the second pass over the files, which writes the rows */
};

/* Returns what describes the columns of a table, or at least the names of labels; NULL: neither is there. */
static inline struct tr_schema *tr_data_schema(const tr_data *data)
{
    return data->state->schema ? data->state->schema : data->state->names;
}

/* ---- open data sets ----
 *
 * A store is a data set that tr_data_open() has loaded, with a reference count. While it exists, a task that opens the same files with
 * the same settings uses it, too (FlexPS, section 5.3: data stay in memory over the stages of a task). The last user frees it. */

struct tr_store {
    struct tr_store *next; /* in the list of the context */
    tr_data data;
    char *key;         /* files and settings of the data set, as text */
    uint64_t number;   /* 1 for the first store of the context, and so on; equal on all ranks */
    int opened;        /* number of times that the data set was opened */
    int users;         /* the reference count */
    int readers;       /* users that still need the non-zeros */
    bool forgotten;    /* the non-zeros were freed on this rank */
    bool held;         /* the team is one of the users: the store stays for the next task */
    const tr_job *job; /* job of the task that opened the store last */
};

/* The open stores of a context. */
struct tr_stores {
    struct tr_store *first;
    uint64_t loaded; /* number of stores that were loaded so far */
};

/* Writes the files (NULL: the names of data.train in the job) and the settings of reading them as text (to be freed). Equal texts
 * mean equal rows, before these are scaled and divided among workers. */
int tr_store_rows_key(const tr_job *job, const struct tr_files *files, char **key);

/* Returns the schema of the open training data that were loaded last; NULL: none are open, or they are not csv. */
const struct tr_schema *tr_store_schema(const tr_context *tr);

/* Writes the sums of enum tr_row_stream_count over all data on disks to summary.json. All ranks. */
int tr_store_report(tr_context *tr);

/* A pass over rows in mini-batches: access.c. */
struct tr_batches {
    uint32_t *order; /* indices in data->rows of the rows, in the order of the pass */
    /* next: index in `order` of the next batch; end: end of the pass; size: rows of a batch */
    size_t next, end, size;
    uint64_t *begin; /* this and the next arrays: the current batch, with room for the largest one */
    uint32_t *column;
    float *value, *label, *weight, *offset;
    size_t order_capacity, begin_capacity, column_capacity, value_capacity, label_capacity, weight_capacity,
        offset_capacity;
};

void tr_batches_free(struct tr_batches *batches);

/* One user of a store, as returned by tr_data_open(). */
struct tr_data_user {
    tr_data data; /* a copy of the data set in the store */
    bool forgot;  /* tr_data_forget() was called, so `data` has no non-zeros */
    struct tr_batches batches;
};

/* The progress of loading, estimated from one worker, as all have equal ranges: rank 0 if it is a worker, else worker 0. */
struct tr_loading {
    const char *what;   /* name of the data that are loaded, such as "training data" */
    double done, total; /* stored bytes of all workers */
    double seconds;     /* seconds since loading began */
};

/* Called on rank 0 while data are read; a result other than TR_OK ends the reading. */
typedef int tr_loading_fn(void *who, const struct tr_loading *progress);
void tr_on_loading(tr_context *tr, tr_loading_fn *loading, void *who);

/* Opens files by their names; relative names are searched in data.folders. */
int tr_files_of(const tr_job *job, char *const names[], size_t n, struct tr_files *files);

/* Opens the files of data.train or data.test as tr_files_of() does. Test data that are held out of data.train are in its files. */
int tr_data_files(const tr_job *job, bool test, struct tr_files *files);

/* Determines the format of a job's data from data.format and the first lines of the files. TR_ERR_DATA if the first file certainly
 * has another format than data.format. */
int tr_data_format(const tr_job *job, const struct tr_files *files, enum tr_format *format);

/* Estimates the size of a job's data before they are read, from the beginnings and middles of their files. Sets all members of
 * *size except workers and servers. Any rank, alone. Returns the errors of reading, too. */
int tr_data_guess(const tr_job *job, tr_data_size *size);

/* Returns the options of reading that the job sets. like: the training data, if `data` are test data; otherwise NULL. */
struct tr_reader_options tr_data_reading(const tr_data *data, const tr_data *like);

/* Frees everything that a data set has besides its rows: names, labels, heads, the scale, ... */
void tr_data_free_head(tr_data *data);

/* Numbers the rows of all workers in the order of the files: fills data->state->stretch. Sets *own to the index of the first row
 * that this worker has read, among the rows that it has after its group shares them. Workers only, together. */
int tr_number_rows(tr_data *data, const struct tr_read_runs *runs, size_t *own);

/* ---- scale.c: columns brought to one size (data.scale): x becomes (x - shift) × factor ----
 *
 * Each worker owns an equal range of the columns: it receives the sums that other workers have for these columns, decides how to scale
 * them, and sends the result to the workers that have such columns. So no worker needs more memory than its own columns and its range
 * take. Factors have 12 significant bits and shifts are multiples of the spread / 1024, so that rounding in another order, on another
 * number of ranks, leads to the same result. */

struct tr_scale {
    tr_scaling share; /* tr_data.scaling: this worker's range of the columns */
    double *shift;    /* shift of each column of the range; NULL: no column is centred */
    double *factor;   /* factor of each column of the range */
    /* sizes of columns before scaling: `least`, below which 1 % of the non-zeros lie, and the largest */
    double least, most;
    int how; /* TR_SCALE_STANDARD, TR_SCALE_MAXABS, TR_SCALE_MINMAX or TR_SCALE_CENTRE */
};

/* Returns whether the job and the model allow scaling. With data.scale auto the rows decide whether they are scaled. */
bool tr_scale_is_wanted(const tr_data *data);

/* Scales training data (like = NULL), or test data as their training data `like` were scaled. Call it before rows are replicated
 * and columns numbered. All ranks; workers have the rows. data->state->scale stays NULL if nothing is scaled. */
int tr_scale_rows(tr_data *data, const tr_data *like);

/* Scales other rows with the columns of the data. All workers together, also those without such rows. */
int tr_scale_matrix(const tr_data *data, const struct tr_scale *scale, struct tr_matrix *m);

/* Sets *would: tr_scale_rows() would scale these sparse rows, and centre them if they were dense. Changes no rows. All ranks. */
int tr_scale_would_centre(tr_data *data, bool *would);

/* Prints on rank 0 how columns were scaled. */
void tr_scale_say(const tr_data *data);

void tr_scale_free(struct tr_scale **scale); /* *scale may be NULL */

/* ---- node_rows.c: rows that a node reads once, for all tasks of a job that use the same files ----
 *
 * The ranks of each node read the files together before the first task begins, into memory that they share, as a group in which
 * each has all rows; rows stay as they are in the files. The workers of a task then copy the rows that they would have read, in
 * that order, by the place of each row's line in the files. So a task gets the same rows on any number of ranks, and its own folds
 * of cross-validation; no file is read again. Words of tables, and users and items as text, are numbers in a list that the node
 * has; types of columns, dictionaries and keys are determined by each task. The memory is freed when the last task that needs it
 * has ended. */

struct tr_node_rows {
    struct tr_node_rows *next;  /* in the list of the context */
    const char *task;           /* name of the first task that needs the rows */
    const char *folder;         /* folder of the files of tr_row_store_pool() on this node; NULL: none */
    tr_data *train, *test;      /* test: NULL if the tasks have no files for data.test */
    char *train_key, *test_key; /* tr_store_rows_key() of train and test */
    bool forgotten;             /* tr_node_rows_forget() was called */
};

/* Reads the rows of the node and registers them in `world`, so that teams that begin later use them. The caller has set rows->task.
 * `node`: all ranks of a node in one replicated group, with the job of the task. Errors are returned but not printed. All ranks of a
 * node together. */
int tr_node_rows_open(tr_context *node, tr_context *world, struct tr_node_rows *rows);

/* Releases the rows on this rank, which has closed all data that use them: tr_node_rows_find() does not return them any more. Their
 * memory is freed when all ranks of the node have called this. Any rank, alone. */
void tr_node_rows_forget(struct tr_node_rows *rows);

/* Removes the rows from `world` and frees them. All ranks of a node together, before the node's context ends. */
void tr_node_rows_close(tr_context *world, struct tr_node_rows *rows);

/* Returns the rows that this node has of the data set's files, or NULL. */
const struct tr_node_rows *tr_node_rows_find(const tr_data *data);

/* Does the same as tr_read_matrix() or tr_read_triples(), from data->state->node_rows. */
int tr_node_rows_read(tr_data *data, size_t reader, size_t readers, const struct tr_reader_options *options,
                      struct tr_reading *in);

/* While the node reads a table: unites the words that all ranks have seen in data->state->words, and replaces words in rows by
 * their positions there. tr_node_rows_unite_ids() does this for the users and items of triples. All ranks of the node together.
 * TR_ERR_SYSTEM: the words take too much memory. */
int tr_node_rows_unite_words(tr_data *data, const struct tr_column_seen *seen);
int tr_node_rows_unite_ids(tr_data *data, struct tr_triples *triples);

#endif
