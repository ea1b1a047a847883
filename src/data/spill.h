/* Files of data become rows in a file on a disk, for data that memory has no room for.
 *
 * The files are read twice. The first time rows are only counted, and the columns noted that occur (of tables: how often each
 * value of a category does, and the means of numbers of which some are missing); then it is known how
 * much there will be, and the file is made, with room for all of it. The second time the rows of each chunk of text go where
 * they belong, their columns numbered, and what was written goes to the disk and out of memory. Nothing grows with the
 * number of rows but the file. It can be found by another start once all is written and summed.
 */
#ifndef TR_DATA_SPILL_H
#define TR_DATA_SPILL_H

#include "data/cache.h"
#include "data/renumber.h"
#include "data/stream.h"

/* Of one column of a table. */
struct tr_spill_column {
    uint64_t *count; /* a category: rows with each value, by its place */
    size_t capacity;
    double n, sum, mean, apart; /* a number: how many, Σ x, the running mean, and Σ (x - mean)² (Welford) */
};

struct tr_spill {
    tr_data *data;
    bool dense;           /* rows are to be so */
    bool expands;         /* sparse rows are to be made of dense ones */
    bool prunes;          /* columns are to be numbered by those that occur */
    bool makes_keys;      /* rows of a table are to be made rows of keys */
    uint32_t first_index; /* they count from this, as they are read; known for the second reading */

    /* noted */
    struct tr_columns_seen seen;
    bool valued; /* not all values are 1 */
    bool labelled;
    uint64_t rows, nonzeros;
    struct tr_spill_column *column; /* of a table; so many: */
    size_t columns;

    /* written */
    uint32_t *
        *number;      /* of each column: of each value that was met, by its place; NULL: places are numbers */
    uint32_t *united; /* the number among the group's keys, of each of seen; NULL: the same */
    uint64_t row, nonzero;
    uint64_t sent[TR_CACHE_ARRAYS],
        settled[TR_CACHE_ARRAYS]; /* bytes of each array: on the way; on the disk */
    uint64_t block_bytes, in_block;
    size_t block_capacity;
};

/* Notes the numbers of a column. Returns how many non-zeros they become: a missing one is a mean, and a 1 that says so. */
uint64_t tr_spill_note_numbers(struct tr_spill_column *column, const struct tr_matrix *rows, size_t slot);

/* Functions of tr_reader_options.piece, of the first reading and the second. */
int tr_spill_note(void *spill, struct tr_reader *reader);
int tr_spill_write(void *spill, struct tr_reader *reader);

/* Between the two, when data->keys are known: makes the file, data->state->file, and has room for everything.
 * TR_ERR_IO: there is none. */
int tr_spill_begin(struct tr_spill *spill);

/* After the second: data->state->rows are those of the file. TR_ERR_DATA if there was something else than the first time. */
int tr_spill_end(struct tr_spill *spill);

/* Nothing is noted: all is to be read for the first time again. */
void tr_spill_forget(struct tr_spill *spill);

void tr_spill_free(struct tr_spill *spill);

#endif
