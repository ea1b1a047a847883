/* Rows in a file on a disk (data.storage), for data that do not fit into memory.
 *
 * Writing: the input files are read twice. The first pass counts rows and notes which columns occur (of tables: how often each
 * value of a category occurs, and the means of numbers of which some are missing). Then the size is known, and the file is made.
 * The second pass writes the rows of each chunk of text to their places; what was written goes to the disk and out of memory. Only
 * the file grows with the number of rows.
 *
 * Reading: the arrays are mapped, so that code that has their addresses can read them. They are cut into blocks of consecutive rows.
 * A thread of each worker reads the blocks that a pass needs next and drops those behind it: only a few blocks, and those for which
 * data.memory has room, are in memory. A pass reports its position (tr_data_ready() and the like) and waits there for blocks that
 * are not read yet. Code that does not report it gets the same numbers more slowly. A block is checked against its sums before its
 * first use: a damaged one ends the job, and the next start reads the input files again.
 */
#ifndef TR_DATA_DISK_H
#define TR_DATA_DISK_H

#include "data/matrix.h"
#include "data/row_store.h"

struct tr_reader;

/* Before anything is read: sets data->state->on_disk and memory. All ranks. TR_ERR_CONFIG: the model or the job cannot use data on
 * a disk. */
int tr_disk_choose(tr_data *data);

/* ---- writing ---- */

/* Notes about one column of a table. */
struct tr_disk_column {
    uint64_t *count; /* a category: number of rows with each value, by its place */
    size_t capacity;
    double n, sum, mean,
        apart; /* a number: Σ w of the rows that have one, Σ w x, running mean, and Σ w (x - mean)² (West 1979) */
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
        settled[TR_ROW_ARRAYS]; /* bytes of each array that are on the way to the disk; that are there */
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

/* Between the passes, when data->keys are known: makes data->state->file and reserves its space. TR_ERR_IO: the disk is full. */
int tr_disk_begin(struct tr_disk_writer *writer);

/* After the second pass: data->state->rows are those of the file. TR_ERR_DATA: the input files have changed between the passes. */
int tr_disk_end(struct tr_disk_writer *writer);

/* Drops all notes: the first pass is repeated. */
void tr_disk_forget(struct tr_disk_writer *writer);

void tr_disk_free(struct tr_disk_writer *writer);

/* ---- reading ---- */

/* The position of a block; an additional last one is the end of the rows. */
struct tr_data_block {
    uint64_t row, nonzero; /* of dense rows, nonzero counts numbers */
};

struct tr_row_stream;

struct tr_row_stream_counts {
    uint64_t disk_bytes;    /* of all rows */
    uint64_t memory_bytes;  /* the maximum that was in memory at once */
    uint64_t read_bytes;    /* from the disk or the system's page cache */
    uint64_t dropped_bytes; /* of them, those dropped from the page cache, too */
    uint64_t ready, waited; /* blocks that a pass found in memory; blocks that it waited for */
    double read_seconds, waited_seconds;
};

/* When the rows are there: starts to read the rows of data->state->file. found: an earlier start has written them, so their sums are
 * not compared yet. All ranks. Data in memory: does nothing. */
int tr_disk_open(tr_data *data, bool found);

void tr_row_stream_close(struct tr_row_stream **stream); /* *stream may be NULL */

/* Adds the counts of a stream, which may be NULL. */
void tr_row_stream_count(const struct tr_row_stream *stream, struct tr_row_stream_counts *sum);

#endif
