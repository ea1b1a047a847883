/* The row store: the arrays of a worker's rows in memory or on a disk. The rows of a worker are a few arrays (enum tr_row_array).
 * They are in the heap of the process, or in one file that is mapped as a whole. Code that measures, moves, maps, reads or frees
 * rows loops over the arrays. They are stored in one of these ways:
 *   heap             where rows are after reading; all other ways except disk start from it
 *   shared           data.partition: replicated: the rows of a group are one file in the memory of the node, which its members map
 *   kept             data.cache: a file in the memory of the node until the job ends. If a job that failed starts again and all ranks
 *                    find their files undamaged, made at the same time from the same files with the same settings for the same
 *                    ranks, then no input file is read
 *   pooled           tasks that need the same rows of the same files map one file in the memory of the node
 *   disk             data.storage: a file in data.scratch, written in two passes over the input and read in blocks (disk.c). It is
 *                    kept until the job ends, or longer with data.cache
 *
 * Moving rows from the heap into a file takes twice their memory for a moment, unless a group shares them. A row file is a checked
 * file (store/checked.h) without HDF5: a header, then one area with all arrays. Each array begins at a page. The area is divided
 * into pieces of 1 MiB, each of which has a checksum in the header (sum). The directory in the header has the offsets of the arrays
 * and a key, which identifies their source. The digest is written last, so that an incomplete file is refused.
 */
#ifndef TR_DATA_ROW_STORE_H
#define TR_DATA_ROW_STORE_H

#include "data/matrix.h"
#include "trireme/data.h"

/* ---- arrays ---- */

/* The arrays in the order in which a file has them. tr_data_forget() frees the first three, the non-zeros. */
enum tr_row_array {
    TR_ROWS_BEGIN,
    TR_ROWS_COLUMN,
    TR_ROWS_VALUE,
    TR_ROWS_LABEL,
    TR_ROWS_NUMBER,
    TR_ROWS_MARK,
    TR_ROWS_KEYS,
    TR_ROW_ARRAYS
};

/* tr_row_unit[i]: bytes of one element of array i. */
extern const size_t tr_row_unit[TR_ROW_ARRAYS];

/* The number of elements of the arrays. */
struct tr_row_shape {
    uint64_t rows, values, keys; /* values: non-zeros of sparse rows, all numbers of dense rows */
    uint64_t arrays;             /* bit i: array i of enum tr_row_array exists */
};

/* Sets bytes[i] to the size of array i. Returns the size of all arrays in a file, where each takes whole pages. */
uint64_t tr_row_store_measure(const struct tr_row_shape *shape, uint64_t bytes[TR_ROW_ARRAYS]);

/* Returns the address of the pointer to array i, a member of data or data->state. */
void **tr_row_store_array(tr_data *data, size_t i);

/* Makes the pointer to each array i whose bit is set in `arrays` (bit i) point into data->state->file. */
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
    struct tr_checked_header *header; /* address at which the file is mapped */
    struct tr_checked_area *area;
    uint64_t *sum; /* sum (checksum) of each piece */
    struct tr_row_directory *directory;
    bool unnamed;  /* the file is unlinked: its memory is freed when the last process closes it */
    bool stays;    /* after its last use, a page may stay in the page cache of the system */
    bool *checked; /* for each piece, whether its sum was compared and is correct; NULL: not for any piece */
};

#define TR_ROW_PIECE ((uint64_t)1 << 20) /* bytes of a piece */

/* Creates a file for n arrays of bytes[i] bytes, and replaces an older file of that name. reserve: allocates its space on the file
 * system, too. Sets errno on errors: TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_row_file_create(const char *path, struct tr_row_key key, const uint64_t *bytes, size_t n, bool reserve,
                       struct tr_row_file **file);

/* Returns the address of array i. */
void *tr_row_file_at(const struct tr_row_file *file, size_t i);

/* Computes the sum of a piece from its current bytes. */
uint64_t tr_row_file_sum_piece(const struct tr_row_file *file, uint64_t piece);

/* Unmaps and closes a file, but does not unlink it. *file may be NULL. */
void tr_row_file_close(struct tr_row_file **file);

/* Returns the bytes of memory or disk that a file takes. */
uint64_t tr_row_file_bytes(const struct tr_row_file *file);

/* ---- rows that outlast the process, or that several processes use ---- */

/* The files of a data set: head (everything except rows) and rows. */
struct tr_cached {
    char *head; /* path of this rank's file with everything except the rows */
    char *rows; /* path of the row file; members of a group that shares its rows have the same path */
    struct tr_row_key key;        /* hash of input files, settings and layout */
    struct tr_row_key generation; /* hash of the time and of the process that made the files */
    bool found;                   /* an earlier start, or another team, has made the files */
    bool pooled;                  /* there is only a row file, which other teams use, too */
};

/* Looks for the data set that an earlier start has kept. If *found, `data` is complete except for data->rows. what: "training data"
 * or "test data"; key: the text of files and settings. All ranks together; errors are agreed on. */
int tr_row_store_find(tr_data *data, const char *what, const char *key, bool *found);

/* Keeps a data set that was read for the next start, if data.cache demands it and memory suffices. All ranks together. */
int tr_row_store_keep(tr_data *data);

/* For rows that were copied from the node's rows: moves them into a file of the node or, if another team has made the same rows,
 * uses its file. If this fails, the rows stay in the heap. Does nothing for models that forget their rows, since other teams would
 * keep the memory. Any rank, alone. */
void tr_row_store_pool(tr_data *data);

/* Returns whether this rank's group stores its rows once, in memory that its members share. */
bool tr_data_is_shared(const tr_context *tr);

/* Moves the rows of a group that shares them into one file: first the rows of member 0, then those of member 1, and so on. Before,
 * each member has its rows in data->state; column c of them is its own key keys[c] or, if all_columns, key c. Afterwards
 * data->state and data->keys point into the file, and a column is a position in data->keys, the keys of the group. All ranks (those
 * without such a group do nothing); errors are agreed on. TR_ERR_SYSTEM: shared memory is too small. */
int tr_row_store_share(tr_data *data, const uint32_t *keys, size_t n_keys, bool all_columns);

/* Frees begin, column and value, on the heap or in the file. Memory that a group shares is freed by its last member. */
void tr_row_store_forget(tr_data *data);

/* Frees all arrays and closes the file, but keeps it for the next start; a pooled file is removed by its last user. */
void tr_row_store_close(tr_data *data);

/* ---- folders of row files ---- */

/* A folder for the files of one run, in the memory of this host or on a disk: <base>/trireme-data-<user>-<hash of the output folder
 * and the host>. Its file `owner` names the run. The process that is responsible for the folder locks this file, and the system
 * unlocks it when the process ends. If it is not locked, the run is over, or will start again soon. */
struct tr_cache_folder {
    char *path; /* NULL: there is no folder */
    int lock;   /* descriptor of the locked file; -1: this process is not responsible for the folder */
};

#define TR_CACHE_FILES "data" /* name of the subfolder with the files */

/* Sets *path (to be freed) to the path of the folder of a run, which need not exist: the same for all processes of the run on this
 * host. base = NULL: the folder is in the memory of the host. */
int tr_cache_folder_path(const char *base, const char *output, char **path);

/* Creates the folder if necessary, and locks it. TR_ERR_NO_OUTPUT: it cannot be created, or another process has locked it. */
int tr_cache_folder_lock(const char *base, const char *output, struct tr_cache_folder *folder);

/* Removes the folder with its contents, if this process has locked it. */
void tr_cache_folder_remove(struct tr_cache_folder *folder);

/* Removes the files of dead processes from the memory of this host: shared files that were not yet unlinked, and this user's unlocked
 * folders of runs that are over. A run is over if it has ended, or if its status.json is older than an hour and the process that
 * writes it is not alive on this host. Runs in the folder `ended` (NULL: none) are over in any case. Folders of runs that see other
 * files, in a container or chroot, stay. Any process, with or without MPI. */
void tr_cache_clean(const char *ended);

/* ---- rows on a disk (data.storage): disk.c ----
 *
 * Writing: the input files are read twice. The first pass counts rows and notes which columns occur (of tables: how often each
 * value of a category occurs, and the means of numbers). Then the size is known, and the file is created.
 * The second pass writes the rows of each chunk of text to their places in the file; written pages go to the disk and out of
 * memory. Only the file grows with the number of rows.
 *
 * Reading: the arrays are mapped, so that code that has their addresses can read them. They are cut into blocks of consecutive rows.
 * A thread of each worker reads the blocks that a pass needs next and drops those behind it: only a few blocks, and those that fit
 * into data.memory, are in memory. A pass reports its position (tr_data_ready() and the like) and waits there for blocks that are not
 * read yet. Code that does not report it gets the same numbers more slowly. A block is checked against its sums before its first
 * use: a damaged one ends the job, and the next start reads the input files again. */

struct tr_reader;
struct tr_schema;

/* Decides by data.storage whether the rows will be on a disk: sets data->state->on_disk and memory. Call it before reading. All
 * ranks. TR_ERR_CONFIG: the model or the job cannot use data on a disk. */
int tr_disk_choose(tr_data *data);

/* Counts and sums of one column of a table; w is the weight of a row. */
struct tr_disk_column {
    uint64_t *count; /* category: number of rows with each value, by the value's place (names.h) */
    size_t capacity;
    /* numbers x, over the rows in which x is not missing: Σ w, mean of x, Σ w (x - mean)² */
    double n, mean, apart;
};

struct tr_disk_writer {
    tr_data *data;
    bool dense;           /* rows are dense in the row file */
    bool expands;         /* rows are dense when they are read, but sparse in the row file */
    bool prunes;          /* only columns that occur get a number */
    bool makes_keys;      /* rows of a table are converted to rows of keys (schema.h) */
    uint32_t first_index; /* index of the first column in the input files; set before the second pass */

    /* results of the first pass */
    struct tr_index_set seen; /* the columns that occur */
    bool valued;              /* some values are not 1 */
    bool labelled;
    uint64_t rows, nonzeros;
    struct tr_disk_column *column; /* tables: counts and sums of each column */
    size_t columns;

    /* state of the second pass */
    /* number[column][place of a value]: number of the value in the dictionary; NULL: places are numbers */
    uint32_t **number;
    /* united[k]: index of key k of this worker among the group's keys; NULL: the indices are equal */
    uint32_t *united;
    uint64_t row, nonzero;           /* number of rows and non-zeros written so far */
    uint64_t sent[TR_ROW_ARRAYS];    /* bytes of each array for which writing to the disk was started */
    uint64_t settled[TR_ROW_ARRAYS]; /* bytes of each array on the disk, out of memory */
    uint64_t block_bytes, in_block;  /* minimum bytes of a block; bytes of the current block so far */
    size_t block_capacity;
};

/* Adds the rows, multiplied by the weights (NULL: all are 1), to the sums of all columns of numbers. column: one per column. */
int tr_disk_note_numbers(const struct tr_schema *s, const struct tr_matrix *rows, const float *weight,
                         struct tr_disk_column *column);

/* tr_reader_options.piece is tr_disk_note() in the first pass, tr_disk_write() in the second. writer: a struct tr_disk_writer. */
int tr_disk_note(void *writer, struct tr_reader *reader);
int tr_disk_write(void *writer, struct tr_reader *reader);

/* Creates data->state->file and reserves its space, between the passes, when data->keys are known. TR_ERR_IO: the disk is full. */
int tr_disk_begin(struct tr_disk_writer *writer);

/* Ends the second pass: data->state->rows are complete. TR_ERR_DATA: the input files have changed between the passes. */
int tr_disk_end(struct tr_disk_writer *writer);

/* Discards the results of the first pass, which is repeated. */
void tr_disk_forget(struct tr_disk_writer *writer);

void tr_disk_free(struct tr_disk_writer *writer);

/* Computes all sums of a file on a disk. Each part whose sums are known is written to the disk and dropped from memory. */
int tr_disk_sum(struct tr_row_file *file);

/* The begin of a block. Behind the blocks there is one more element, the end of the rows. */
struct tr_data_block {
    uint64_t row, nonzero; /* number of rows, and of non-zeros (dense: of values), before the block */
};

/* A stream is the reading of one row file in blocks. These are its counts. */
enum tr_row_stream_count {
    TR_STREAM_DISK_BYTES,
    TR_STREAM_MEMORY_BYTES,  /* maximum so far of the bytes of blocks in memory */
    TR_STREAM_READ_BYTES,    /* bytes that were read from the disk or from the page cache */
    TR_STREAM_DROPPED_BYTES, /* bytes that were dropped from memory and from the page cache */
    TR_STREAM_READY,         /* number of blocks that a pass found in memory */
    TR_STREAM_WAITED,        /* number of blocks for which a pass waited */
    TR_STREAM_READ_SECONDS,
    TR_STREAM_WAITED_SECONDS,
    TR_STREAM_COUNTS
};

/* Starts to read the rows of data->state->file, which is complete; does nothing for data in memory. found: an earlier start has
 * written the file, so sums must be compared. All ranks. */
int tr_disk_open(tr_data *data, bool found);

struct tr_row_stream;

void tr_row_stream_close(struct tr_row_stream **stream); /* *stream may be NULL */

/* Adds the counts of a stream (may be NULL) to `sum`. */
void tr_row_stream_count(struct tr_row_stream *stream, double sum[TR_STREAM_COUNTS]);

#endif
