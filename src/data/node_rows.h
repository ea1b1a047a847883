/* Rows that a node has once, for all tasks of a job that learn from the same files.
 *
 * The ranks of each node read the files together before the first task begins, into memory that they share (store.h), as a
 * group with all rows: as they are in the files, whatever tasks do with them. The workers of a task then take the rows that
 * they would have read, in that order, by the place of each row's line in the files; so a task learns the same, on any
 * number of ranks, and of folds each gets its own. No file is read again. When the last task that wants them has ended, the
 * memory is given back.
 */
#ifndef TR_DATA_NODE_ROWS_H
#define TR_DATA_NODE_ROWS_H

#include "data/part.h"

/* What a node has of some files. */
struct tr_node_rows {
    struct tr_node_rows *next; /* of the same context */
    const char *task;          /* the first that wanted them */
    const char *folder;        /* of the node, for rows that tasks have made of them; NULL: there is none */
    tr_data *train, *test;     /* test: NULL, where tasks have no files for it */
    char *train_key, *test_key;
    bool forgotten;
};

/* Reads them, and puts them where the teams of `world`, which begin later, find them: rows->task is set. `node`: all ranks of a
 * node, in one group of which each has all rows, whose job is that of the task. Errors are not said. All ranks of a node together. */
int tr_node_rows_open(tr_context *node, tr_context *world, struct tr_node_rows *rows);

/* They are found no more on this rank; their memory is given back when all ranks of the node have come so far. Any rank, alone,
 * that has no data of them any more. */
void tr_node_rows_forget(struct tr_node_rows *rows);

/* All ranks of a node together; before the node's context ends. */
void tr_node_rows_close(tr_context *world, struct tr_node_rows *rows);

/* What the files of the data set are on this node, or NULL. */
const struct tr_node_rows *tr_node_rows_find(const tr_data *data);

/* What tr_read_matrix() would have read, out of data->state->node_rows: into data->state->rows, part->report and part->runs. */
int tr_node_rows_take(tr_data *data, size_t reader, size_t readers, const struct tr_reader_options *options,
                      struct tr_part *part);

/* Rows that a worker has made of them lie in the node once, for the workers of all teams who have made the same. Not of models that
 * forget them, which would stay then. Any rank, alone. */
void tr_node_rows_pool(tr_data *data);

#endif
