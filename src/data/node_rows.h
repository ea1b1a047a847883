/* Rows that a node reads once, for all tasks of a job that use the same files.
 *
 * The ranks of each node read the files together before the first task begins, into memory that they share (cache.h), as a group in
 * which each has all rows; rows stay as they are in the files. The workers of a task then copy the rows that they would have read, in
 * that order, by the place of each row's line in the files. So a task gets the same rows on any number of ranks, and its own folds of
 * cross-validation; no file is read again. Words of tables, and users and items as text, are numbers in a list that the node has;
 * types of columns, dictionaries and keys are each task's to determine. The memory is freed when the last task that needs it has ended.
 */
#ifndef TR_DATA_NODE_ROWS_H
#define TR_DATA_NODE_ROWS_H

#include "data/dataset.h"

struct tr_node_rows {
    struct tr_node_rows *next; /* of the same context */
    const char *task;          /* the first task that needs them */
    const char *folder;        /* of the node, for rows that tasks make of them; NULL: there is none */
    tr_data *train, *test;     /* test: NULL if tasks have no files for it */
    char *train_key, *test_key;
    bool forgotten;
};

/* Reads them, and adds them to `world`, where teams that begin later find them; rows->task is set. `node`: all ranks of a node in one
 * replicated group, with the job of the task. Errors are not shown. All ranks of a node together. */
int tr_node_rows_open(tr_context *node, tr_context *world, struct tr_node_rows *rows);

/* They are not found any more on this rank; their memory is freed when all ranks of the node have called this. Any rank, alone, that
 * has no data of them. */
void tr_node_rows_forget(struct tr_node_rows *rows);

/* All ranks of a node together; before the node's context ends. */
void tr_node_rows_close(tr_context *world, struct tr_node_rows *rows);

/* The rows of the data set's files on this node, or NULL. */
const struct tr_node_rows *tr_node_rows_find(const tr_data *data);

/* Does what tr_read_matrix() or tr_read_triples() would do, from data->state->node_rows. */
int tr_node_rows_read(tr_data *data, size_t reader, size_t readers, const struct tr_reader_options *options,
                      struct tr_reading *in);

/* The rows that a worker has made of them lie once on the node, for the workers of all teams that make the same rows. Not of models
 * that forget their rows, since the pool would keep them. Any rank, alone. */
void tr_node_rows_pool(tr_data *data);

/* While the node reads: unites the words of all ranks into data->state->words, and makes the rows or triples count these. seen: of each
 * column of a table. All ranks of the node together. TR_ERR_SYSTEM: too many bytes for each rank. */
int tr_node_rows_unite_words(tr_data *data, const struct tr_column_seen *seen);
int tr_node_rows_unite_ids(tr_data *data, struct tr_triples *triples);

#endif
