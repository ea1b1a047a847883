/* data/ — from input files to the rows that a worker trains on.
 *
 *   files, source, text   which reader reads which bytes of which file, unpacked and cut into lines
 *   head           what the first lines of a file show: its format, its header
 *   reader         one driver for all formats, and the functions of formats: libsvm, csv, triples (ratings, docword)
 *   number, token  fields of a line
 *   schema…        csv: columns by name and type, and the keys that they become
 *   dictionary     csv: values of categories, counted and numbered by all workers together
 *   schema_all     csv: the schema on all ranks, agreed on and turned into keys
 *   quantiles      of numbers, in one pass
 *   records        one process reads rows in order, without keeping them
 *   matrix         sparse or dense rows; numbers for the columns that occur; rows of records
 *   ids, names     users and items by text or number, numbered: of one reader, of all
 *   exchange       lists of any length between ranks; rows and keys of a group; records to the workers of their rows
 *   dataset        tr_data_open(): each worker reads a range of the files, all agree on the whole, rows are made
 *   store          data sets that are open, with a reference count
 *   row_store      the arrays of rows, and files of them
 *   cache          rows in files of the node: shared by a group or by teams, or kept for the next start
 *   disk           rows in a file on a disk: written in two passes, read ahead of a pass over them
 *   node_rows      rows that a node reads once for several tasks
 *   access         mini-batches, numbers and descriptions of rows for the models
 *   scale          columns brought to one size
 *   hdf5, hdf5_rows, convert   tables in HDF5; any table made one
 *   generate       artificial data: clicks, ratings, documents, clusters
 */
#ifndef TR_DATA_DATASET_H
#define TR_DATA_DATASET_H

#include "data/disk.h"
#include "data/exchange.h"
#include "data/names.h"
#include "data/reader.h"
#include "ranks/ranks.h"
#include "trireme/data.h"

struct tr_store;
struct tr_cached;
struct tr_scale;
struct tr_node_rows;

/* Added to enum tr_data_part: rows of a node for several tasks; data->state->row_number is the place of each row in the files. */
enum { TR_DATA_NODE = 1 << 16 };

/* Rows at .. at + n - 1 here have the numbers first, first + 1, … among all rows in the order of the files. */
struct tr_stretch {
    uint64_t first;
    size_t at, n;
};

struct tr_data_state {
    tr_context *tr;
    struct tr_store *store; /* the owner of all this */
    struct tr_files files;
    struct tr_head *heads;       /* of each file */
    struct tr_schema *schema;    /* csv; test data use that of the training data */
    struct tr_bindings bindings; /* csv: of each file to the schema */
    uint64_t unknown,
        unlabelled;         /* csv: values of categories that have no key; rows without a label, left out */
    int form;               /* TR_DATA_SPARSE and the like, as in tr_data_open() */
    bool full;              /* rows are those of a table, or dense */
    struct tr_scale *scale; /* of training data; NULL: not scaled */
    struct tr_job_held_out held_out; /* the records that are test data, and not training data */
    bool test;                       /* these are test data */
    bool long_labels;                /* csv: labels are names because some are integers that are not floats */

    /* The rows of this worker, or those of its group (see row_store.h). */
    struct tr_matrix rows;
    uint64_t *row_number;       /* as tr_data.row */
    float *weight;              /* of these rows, in the heap; NULL: all 1 … */
    const float *own_weight;    /* … from the first row that this worker has read, until rows are shared */
    struct tr_stretch *stretch; /* if row_number is NULL: the rows here, in the order of their numbers */
    size_t stretches;
    struct tr_row_file *file; /* holds the rows, their numbers and the keys; NULL: they lie in the heap */
    struct tr_cached *cached; /* the files for the next start of the job; NULL: none */
    const struct tr_node_rows *node_rows; /* the rows were copied from these; NULL: files were read */

    bool on_disk;    /* the file lies on a disk (disk.h) */
    uint64_t memory; /* bytes of it that this rank may keep in memory; 0: as few as possible */
    uint64_t
        cacheable; /* bytes that the page cache may hold of it: a quarter of the free memory, of this rank */
    struct tr_data_block *block; /* blocks + 1 of them */
    size_t blocks;
    struct tr_row_stream *stream; /* NULL: rows are in memory */

    tr_names *row_names, *column_names;
    double load_seconds;
    char *third_label; /* its place and text, if there are more than two labels */
    struct tr_ids
        *words; /* rows of a node: for each csv column, or for users and items, the texts by number */
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

/* What a worker has read of the files, before it becomes data->state. */
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
        *keys; /* of rows that a group is to share: the columns that occur, ascending; the rows count these */
    size_t n_keys;
    struct tr_disk_writer writer; /* of rows on a disk */
    bool second;                  /* this is the second pass of the writer */
};

/* A pass over rows in mini-batches: access.c. */
struct tr_batches {
    uint32_t *order; /* rows of data->rows */
    size_t next, end, size;
    uint64_t *begin; /* the present batch; the following arrays have the size of the largest one */
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

/* Opens files by their names, relative ones wherever data.folders has them. */
int tr_files_of(const tr_job *job, char *const names[], size_t n, struct tr_files *files);

/* Opens the files of data.train or data.test, relative paths wherever data.folders has them. Test data that are held out of the training
 * data are in the files of data.train. */
int tr_data_files(const tr_job *job, bool test, struct tr_files *files);

/* The format of a job's data, from the job and the first lines of the files. TR_ERR_DATA if the first file certainly has another format
 * than the job says. */
int tr_data_format(const tr_job *job, const struct tr_files *files, enum tr_format *format);

/* The job's options of reading data. like: the training data, for test data; otherwise NULL. */
struct tr_reader_options tr_data_reading(const tr_data *data, const tr_data *like);

/* Numbers the rows of all workers in the order of the files: fills data->state->stretch. Workers only, together. */
int tr_number_rows(tr_data *data, const struct tr_read_runs *runs);

#endif
