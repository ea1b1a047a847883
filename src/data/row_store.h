/* The row store: the arrays of a worker's rows in memory or on a disk.
 *
 * The rows of a worker are a few arrays (enum tr_row_array). They lie in the heap of the process, or in one file that is mapped as a
 * whole. Code that measures, moves, maps, reads or frees rows loops over the arrays.
 *
 *   heap             rows that were read; everything below starts from these
 *   shared           data.partition: replicated: the rows of a group are one file in the memory of the node, which its members map
 *   kept             data.cache: a file in the memory of the node until the job ends. If a job that failed starts again and all ranks
 *                    find their files undamaged, made at the same time from the same files with the same settings for the same
 *                    ranks, then no input file is read
 *   pooled           tasks that make the same rows of the same files map one file in the memory of the node
 *   disk             data.storage: a file in data.scratch, written in two passes over the input and read in blocks (disk.c). It is
 *                    kept until the job ends, or longer with data.cache
 *
 * Moving rows from the heap into a file takes twice their memory for a moment, unless a group shares them.
 *
 * A row file is a checked file (store/checked.h) without HDF5 inside: a header, then one area of all arrays, each of which begins a
 * page, with a sum of each MiB. The directory in the header has a key, which identifies the source of the arrays, and their offsets.
 * The digest is written last, so that an incomplete file is refused.
 */
#ifndef TR_DATA_ROW_STORE_H
#define TR_DATA_ROW_STORE_H

#include "data/matrix.h"
#include "trireme/data.h"

/* ---- arrays ---- */

/* In the order in which they lie in a file. tr_data_forget() frees the first three. */
enum tr_row_array {
    TR_ROWS_BEGIN,
    TR_ROWS_COLUMN,
    TR_ROWS_VALUE,
    TR_ROWS_LABEL,
    TR_ROWS_NUMBER,
    TR_ROWS_KEYS,
    TR_ROW_ARRAYS
};

/* Bytes of one element of each array. */
extern const size_t tr_row_unit[TR_ROW_ARRAYS];

/* The size of a block of rows. */
struct tr_row_shape {
    uint64_t rows, values, keys; /* values: non-zeros of sparse rows, all numbers of dense rows */
    uint64_t arrays;             /* bit i: array i of enum tr_row_array exists */
};

/* Bytes of each array of such rows. Returns the size of all of them in a file, each in whole pages. */
uint64_t tr_row_store_measure(const struct tr_row_shape *shape, uint64_t bytes[TR_ROW_ARRAYS]);

/* The address of the pointer to array i. */
void **tr_row_store_array(tr_data *data, size_t i);

/* Sets the pointers to the arrays of the bit mask to data->state->file. */
void tr_row_store_attach(tr_data *data, uint64_t arrays);

/* ---- files ---- */

struct tr_row_key {
    uint64_t word[2];
};

struct tr_checked_header;
struct tr_checked_area;

/* A file of arrays, mapped as a whole. */
struct tr_row_file {
    char *path;
    int fd;
    struct tr_checked_header *header; /* the address of the mapping */
    struct tr_checked_area *area;
    uint64_t *sum;
    struct tr_row_directory *directory;
    bool unnamed;  /* the file has no name: its memory is freed when the last process closes it */
    bool stays;    /* pages that are dropped may stay in the page cache of the system */
    bool *checked; /* of each MiB: its sum has been compared and is correct; NULL: none has */
};

#define TR_ROW_PIECE ((uint64_t)1 << 20) /* bytes of the area that have one sum */

/* Creates a file for n arrays of bytes[i] bytes, and replaces an older file of that name. reserve: reserves its space, too. errno is
 * set after an error. TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_row_file_create(const char *path, struct tr_row_key key, const uint64_t *bytes, size_t n, bool reserve,
                       struct tr_row_file **file);

/* The address of array i. */
void *tr_row_file_at(const struct tr_row_file *file, size_t i);

/* The sum of a piece of the area, as it is now. */
uint64_t tr_row_file_sum_piece(const struct tr_row_file *file, uint64_t piece);

/* *file may be NULL. The file stays. */
void tr_row_file_close(struct tr_row_file **file);

/* Bytes of memory or disk that it takes. */
uint64_t tr_row_file_bytes(const struct tr_row_file *file);

/* ---- rows that outlast the process, or that several processes use ---- */

/* The files of a data set. */
struct tr_cached {
    char *head;                        /* path of this rank's file of everything but rows */
    char *rows;                        /* path of the file of rows, which may be the group's */
    struct tr_row_key key, generation; /* hash of the source; of the time and process that made it */
    bool found;                        /* an earlier start, or another team, has made it */
    bool pooled;                       /* only the file of rows exists, which other teams use, too */
};

/* Looks for the data set that an earlier start has kept. *found: it exists, except for data->rows. what: "training data" or "test
 * data"; key: the source. All ranks together; agreed on. */
int tr_row_store_find(tr_data *data, const char *what, const char *key, bool *found);

/* Keeps a data set that was read for the next start, if that is wanted and possible. All ranks together. */
int tr_row_store_keep(tr_data *data);

/* Rows that a worker has made of rows of the node: moves them into a file of the node, or uses the file of another team that has made
 * the same rows. Not those of models that forget their rows, since the pool would keep them. The rows stay in the heap if that
 * fails. Any rank, alone. */
void tr_row_store_pool(tr_data *data);

/* Whether this rank's group stores its rows once, in memory that its members share. */
bool tr_data_is_shared(const tr_context *tr);

/* Moves the rows of each such group into one file: those of member 0 first, and so on. Each member has its rows in data->state; their
 * columns count its own keys (ascending, n_keys of them) or, if all_columns, all columns. Afterwards data->state and data->keys
 * point into the file, and columns count the keys of the group. All ranks (those without such a group do nothing); errors are
 * agreed on. TR_ERR_SYSTEM: shared memory is too small. */
int tr_row_store_share(tr_data *data, const uint32_t *keys, size_t n_keys, bool all_columns);

/* Frees begin, column and value, on the heap or in the file. Memory that a group shares is freed by its last member. */
void tr_row_store_forget(tr_data *data);

/* Frees all arrays and closes the file, but keeps it for the next start; a pooled file is removed by its last user. */
void tr_row_store_close(tr_data *data);

/* ---- folders of row files ---- */

/* A folder of a job in the memory of this host, or in a folder on a disk: <base>/trireme-data-<user>-<hash of the output folder and
 * the host>. The file `owner` in it names the run; the process that is responsible for the folder holds a lock on that file, which
 * ends with the process. A folder without a lock belongs to a run that is over, or that is about to start again. */
struct tr_cache_folder {
    char *path; /* NULL: none */
    int lock;   /* descriptor of the locked file; -1: this process is not responsible for the folder */
};

#define TR_CACHE_FILES "data" /* the folder in it that has the files */

/* The path of the folder, whether or not it exists; to be freed. base = NULL: the memory of the host. The same for all processes
 * of a run on this host. */
int tr_cache_folder_path(const char *base, const char *output, char **path);

/* Creates the folder if necessary, and locks it. TR_ERR_NO_OUTPUT: it cannot be created, or another process has locked it. */
int tr_cache_folder_lock(const char *base, const char *output, struct tr_cache_folder *folder);

/* Removes it with its contents, if this process has locked it. */
void tr_cache_folder_remove(struct tr_cache_folder *folder);

/* Removes the files of dead processes from the memory of this host: shared files that were not yet unlinked, and this user's unlocked
 * folders of runs that are over. A run is over if it has ended, or if its status.json is older than an hour and the process that
 * writes it is not alive on this host. Runs in the folder `ended` (NULL: none) are over in any case. Folders of runs that see other
 * files, in a container or chroot, stay. Any process, with or without MPI. */
void tr_cache_clean(const char *ended);

/* ---- rows on a disk (data.storage): disk.c ----
 *
 * Writing: the input files are read twice. The first pass counts rows and notes which columns occur (of tables: how often each
 * value of a category occurs, and the means of numbers of which some are missing). Then the size is known, and the file is created.
 * The second pass writes the rows of each chunk of text to their places; written pages go to the disk and out of memory. Only the
 * file grows with the number of rows.
 *
 * Reading: the arrays are mapped, so that code that has their addresses can read them. They are cut into blocks of consecutive rows.
 * A thread of each worker reads the blocks that a pass needs next and drops those behind it: only a few blocks, and those that fit
 * into data.memory, are in memory. A pass reports its position (tr_data_ready() and the like) and waits there for blocks that are not
 * read yet. Code that does not report it gets the same numbers more slowly. A block is checked against its sums before its first
 * use: a damaged one ends the job, and the next start reads the input files again. */

struct tr_reader;

/* Before anything is read: sets data->state->on_disk and memory. All ranks. TR_ERR_CONFIG: the model or the job cannot use data on
 * a disk. */
int tr_disk_choose(tr_data *data);

/* Notes about one column of a table. */
struct tr_disk_column {
    uint64_t *count; /* a category: number of rows with each value, by its place */
    size_t capacity;
    double n, sum, mean,
        apart; /* numbers: Σ w of the rows that have one, Σ w x, mean, Σ w (x - mean)² (West 1979) */
};

struct tr_disk_writer {
    tr_data *data;
    bool dense;           /* the form of the rows in the file */
    bool expands;         /* dense rows are read and become sparse ones */
    bool prunes;          /* columns are numbered by those that occur */
    bool makes_keys;      /* rows of a table become rows of keys */
    uint32_t first_index; /* of columns as they are read; known for the second pass */

    /* noted in the first pass */
    struct tr_index_set seen; /* columns */
    bool valued;              /* not all values are 1 */
    bool labelled;
    uint64_t rows, nonzeros;
    struct tr_disk_column *column; /* of a table: `columns` of them */
    size_t columns;

    /* written in the second pass */
    uint32_t **number; /* by column, and place of a value: its number; NULL: places are numbers */
    uint32_t *united;  /* by key of this worker: its number among the group's keys; NULL: the same */
    uint64_t row, nonzero;
    uint64_t sent[TR_ROW_ARRAYS],
        settled[TR_ROW_ARRAYS]; /* bytes of each array on the way to the disk; on it */
    uint64_t block_bytes, in_block;
    size_t block_capacity;
};

/* Notes the numbers of a column. Returns the number of non-zeros that they become: a missing number becomes a mean, and a 1 that marks
 * it. */
uint64_t tr_disk_note_numbers(struct tr_disk_column *column, const struct tr_matrix *rows,
                              const float *weight, size_t slot);

/* tr_reader_options.piece of the first and of the second pass; writer: a struct tr_disk_writer. */
int tr_disk_note(void *writer, struct tr_reader *reader);
int tr_disk_write(void *writer, struct tr_reader *reader);

/* Between the passes, when data->keys are known: creates data->state->file and reserves its space. TR_ERR_IO: the disk is full. */
int tr_disk_begin(struct tr_disk_writer *writer);

/* After the second pass: data->state->rows are those of the file. TR_ERR_DATA: the input files have changed between the passes. */
int tr_disk_end(struct tr_disk_writer *writer);

/* Discards the results of the first pass, which is repeated. */
void tr_disk_forget(struct tr_disk_writer *writer);

void tr_disk_free(struct tr_disk_writer *writer);

/* Computes all sums of a file on a disk, and writes it to the disk and drops it from memory at the same time. */
int tr_disk_sum(struct tr_row_file *file);

/* The position of a block; an additional last one is the end of the rows. */
struct tr_data_block {
    uint64_t row, nonzero; /* of dense rows, nonzero counts numbers */
};

/* Figures of a stream; dropped: read bytes that were dropped from the page cache, too; read: from the disk or the page cache; ready,
 * waited: blocks that a pass found in memory, and those that it waited for. */
enum tr_row_stream_count {
    TR_STREAM_DISK_BYTES,
    TR_STREAM_MEMORY_BYTES, /* the maximum at any time */
    TR_STREAM_READ_BYTES,
    TR_STREAM_DROPPED_BYTES,
    TR_STREAM_READY,
    TR_STREAM_WAITED,
    TR_STREAM_READ_SECONDS,
    TR_STREAM_WAITED_SECONDS,
    TR_STREAM_COUNTS
};

/* Once the rows exist: starts to read the rows of data->state->file. found: an earlier start has written them, so their sums are not
 * compared yet. All ranks. Data in memory: does nothing. */
int tr_disk_open(tr_data *data, bool found);

struct tr_row_stream;

void tr_row_stream_close(struct tr_row_stream **stream); /* *stream may be NULL */

/* Adds the counts of a stream, which may be NULL. */
void tr_row_stream_count(struct tr_row_stream *stream, double sum[TR_STREAM_COUNTS]);

#endif
