/* Rows that lie in a file on a disk (data.storage), used as if they were in memory.
 *
 * The arrays of the rows are mapped, so that whoever has their addresses can read them. They are cut into blocks of
 * neighbouring rows. A thread of each worker reads the blocks that a pass comes to next and lets go of those behind it, so
 * that only a few of them, and those that data.memory has room for, are in memory. A pass says where it is
 * (tr_data_ready() and its like) and waits there for what is not read yet. Who does not say it gets the same numbers, but
 * more slowly, and the system decides what stays in memory.
 *
 * Blocks whose sums have not been compared since this start are, before they are used: a damaged one ends the job, and the
 * next start reads the text files again.
 */
#ifndef TR_DATA_STREAM_H
#define TR_DATA_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/cache_file.h"
#include "trireme/data.h"

/* Where a block begins; behind the last one stands where that ends. */
struct tr_data_block {
    uint64_t row, nonzero; /* of dense rows, nonzero counts numbers */
};

/* So many bytes have the rows of a block, or a little more, where this worker may have so many in memory (0: as many as it
 * likes). */
uint64_t tr_block_bytes(uint64_t memory);

struct tr_row_stream;

/* What has been done so far, by this worker. */
struct tr_row_stream_counts {
    uint64_t disk_bytes;    /* of all rows */
    uint64_t memory_bytes;  /* of the most that were in memory at once */
    uint64_t read_bytes;    /* from the file, or from what the system still had of it */
    uint64_t dropped_bytes; /* of these, which the system was told to forget */
    uint64_t ready, waited; /* blocks that a pass found in memory; that it had to wait for */
    double read_seconds, waited_seconds;
};

/* Begins to read the rows of data, whose arrays lie in data->state->file, in blocks that data->state has; memory:
 * bytes that may stay in memory from pass to pass; checked: the file's sums need not be compared. */
int tr_row_stream_open(tr_data *data, uint64_t memory, bool checked, struct tr_row_stream **stream);
void tr_row_stream_close(struct tr_row_stream **stream); /* *stream may be NULL */

struct tr_row_stream_counts tr_row_stream_count(const struct tr_row_stream *stream);

#endif
