/* data/ — from files of text to the rows that a worker trains on.
 *
 *   files, source, text   which bytes of which file are whose, unpacked, and whole lines out of them
 *   head           what the first lines of a file say: its format, its header
 *   reader         one driver for all formats, and the functions of formats: libsvm, csv, triples (ratings, docword)
 *   number, token  what stands in a line
 *   schema…        csv: columns by name and type, and the keys they become
 *   dictionary     csv: values of categories, counted and numbered by all workers together
 *   schema_all     csv: the schema on all ranks, agreed on and turned into keys
 *   quantiles      of numbers, in one pass
 *   records        rows handed out in order, by one process, without keeping them
 *   matrix         sparse or dense rows
 *   ids, names     what users and items are called, numbered: of one reader, of all
 *   exchange       lists of any length between ranks; the rows and keys of a group
 *   shuffle        records as whole rows at the workers that the rows belong to
 *   renumber       the columns that occur, numbered 0..n-1
 *   dataset        the parallel side: every worker reads its part, and all agree on what the whole is
 *   part, fill_rows, fill_triples, describe   what a worker has read; rows made of it; what is shown of them
 *   scale          columns brought to one size
 *   weights        what rows count
 *   batches        a worker's rows in shuffled mini-batches
 *   spill          files, read twice, become rows in a file on a disk
 *   stream         rows that lie on a disk: what is read ahead of a pass, and what stays in memory
 *   share          the rows of a group once, in memory that its members share
 *   store          what was read, kept for all who use it
 *   node_rows, node_table   what a node has read once, for all tasks that learn from it; its words, of csv
 *   cache          what was read, for the next start of the same job, in files of the node's memory
 *   hdf5, hdf5_rows, convert   tables in HDF5; any table made one
 *   first_rows, row_numbers   the first rows of the files; which rows of the files are whose
 *   draw, generate… data made up: clicks, ratings, documents, clusters
 */
#ifndef TR_DATA_DATASET_H
#define TR_DATA_DATASET_H

#include "data/exchange.h"
#include "data/names.h"
#include "data/reader.h"
#include "ranks/ranks.h"
#include "trireme/data.h"

struct tr_store;
struct tr_cached;
struct tr_cache_file;
struct tr_scale;
struct tr_row_stream;
struct tr_data_block;
struct tr_node_rows;

/* Added to enum tr_data_part: rows of a node for all tasks; data->state->row_number says where each stood in the files. */
enum { TR_DATA_NODE = 1 << 16 };

/* Rows at .. at + n - 1 here have the numbers first, first + 1, … among all rows in the order of the files. */
struct tr_stretch {
    uint64_t first;
    size_t at, n;
};

struct tr_data_state {
    tr_context *tr;
    struct tr_store *store; /* which has all this */
    struct tr_files files;
    struct tr_head *heads;           /* of each file */
    struct tr_schema *schema;        /* csv; that of test data is the training data's */
    struct tr_bindings bindings;     /* … of each file to the schema */
    uint64_t unknown, unlabelled;    /* … values of categories that no key stands for; rows left out */
    int form;                        /* TR_DATA_SPARSE and the like, as in tr_data_open() */
    bool full;                       /* rows are of csv, or of libsvm that are made dense */
    struct tr_scale *scale;          /* of training data; NULL: not scaled */
    struct tr_job_held_out held_out; /* of the files' records: for test data, and not for training */
    bool test;                       /* they are test data */
    struct tr_matrix rows;           /* this worker's */
    uint64_t *row_number;            /* as tr_data.row */
    float *weight;                   /* of these rows, this worker's own memory; NULL: all 1 */
    struct tr_stretch *stretch;      /* where that is NULL: the rows here, in the order of their numbers */
    size_t stretches;
    /* in which the rows, their numbers and the keys lie, those of a group once; NULL: in this worker's own memory */
    struct tr_cache_file *file;
    const struct tr_node_rows *node_rows; /* of which the rows were taken; NULL: files were read */
    struct tr_cached *cached;             /* where the next start of the job finds all this; NULL: nowhere */
    bool on_disk;                         /* the file is one on a disk, of which memory has some: stream.h */
    uint64_t memory;                      /* so many bytes of it, of this rank; 0: as few as may be */
    uint64_t
        cacheable; /* bytes of it that the system's cache may keep: a quarter of what was free, of this rank */
    struct tr_data_block *block; /* blocks + 1 of them */
    size_t blocks;
    struct tr_row_stream *stream; /* NULL: rows are in memory */
    tr_names *row_names, *column_names;
    double load_seconds;
    char *third_label;    /* where and what it is, when there are more than two kinds */
    struct tr_ids *words; /* rows of a node: of each column of csv, of users and items, what places count … */
    size_t word_lists;    /* … so many of them */
};

/* A pass over rows in mini-batches: batches.c. */
struct tr_batches {
    uint32_t *order; /* rows of data->rows */
    size_t next, end, size;
    uint64_t *begin; /* the batch at hand, copied together; the next three have room for the largest */
    uint32_t *column;
    float *value, *label, *weight;
    size_t order_capacity, begin_capacity, column_capacity, value_capacity, label_capacity, weight_capacity;
};

void tr_batches_free(struct tr_batches *batches);

/* Who has opened data of a store. */
struct tr_data_user {
    tr_data data; /* a copy of the store's */
    bool forgot;  /* … but for the non-zeros */
    struct tr_batches batches;
};

/* How far loading is. One worker is asked for all, as all have equal parts: rank 0 where it works, else worker 0. So
 * it is an estimate. */
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

/* Opens the files of data.train or data.test, relative paths wherever data.folders has them; a share of the training data that
 * is held out is in the files of these. */
int tr_data_files(const tr_job *job, bool test, struct tr_files *files);

/* The format of a job's data, by what the job says and the files look like. TR_ERR_DATA if the first file certainly has
 * another format than the job says: one line that says which. */
int tr_data_format(const tr_job *job, const struct tr_files *files, enum tr_format *format);

/* What the job says of reading data in their format, like the training data if they are for test (NULL: they are not). */
struct tr_reader_options tr_data_reading(const tr_data *data, const tr_data *like);

/* Numbers the rows that workers hold from what each has read, as data->state->stretch has it. Workers only, together. */
int tr_number_rows(tr_data *data, const struct tr_read_runs *runs);

#endif
