/* Tables with named columns that a node has once (node_rows.h): as they were read, with each word as its place among those of its
 * column that the node has met. Types of columns, dictionaries and keys are each task's to find, from the rows that it takes. */
#ifndef TR_DATA_NODE_TABLE_H
#define TR_DATA_NODE_TABLE_H

#include "data/part.h"

/* Makes the words that each rank of a node has met those of all, and has the rows count these: data->state->words. All ranks of the
 * node together. TR_ERR_SYSTEM: they are too many for each rank to know. */
int tr_node_table_unite(tr_data *data, struct tr_part *part);

/* A reader who takes rows of the node's instead of reading them. */
struct tr_node_table;
int tr_node_table_open(const struct tr_data_state *node, struct tr_reader *r, struct tr_node_table **table);
void tr_node_table_close(struct tr_node_table **table); /* NULL inside is fine */

/* Row `at` of the node's: its slots, and its label (NaN: there is none), as the reader would have read them, who has r->file and
 * r->offset of the row. TR_ERR_DATA: he could not have. */
int tr_node_table_take(struct tr_node_table *table, size_t at, float *row, float *label);

#endif
