/* Tables with named columns, ratings and bags of words that a node has once (node_rows.h): as they were read, with each word as its
 * place among those of its column that the node has met. Types of columns, dictionaries, keys and numbers of users are each task's to
 * find, from what it takes. */
#ifndef TR_DATA_NODE_TABLE_H
#define TR_DATA_NODE_TABLE_H

#include "data/part.h"

/* Makes the words that each rank of a node has met those of all, and has the rows count these: data->state->words. All ranks of the
 * node together. TR_ERR_SYSTEM: they are too many for each rank to know. */
int tr_node_table_unite(tr_data *data, struct tr_part *part);

/* The same of ratings and bags of words, which become rows of three numbers, with the users and items that all have met. */
int tr_node_triples_unite(tr_data *data, struct tr_part *part);

/* A reader who takes rows of the node's instead of reading them. */
struct tr_node_table;
int tr_node_table_open(const struct tr_data_state *node, struct tr_reader *r, struct tr_node_table **table);
void tr_node_table_close(struct tr_node_table **table); /* NULL inside is fine */

/* Row `at` of the node's: its slots, and its label (NaN: there is none), as the reader would have read them, who has r->file and
 * r->offset of the row. TR_ERR_DATA: he could not have. */
int tr_node_table_take(struct tr_node_table *table, size_t at, float *row, float *label);

/* The same of a record; *taken: it is one for this reader, who may have to begin anew with users or items as text (see
 * tr_read_report), or leaves out what is malformed. */
int tr_node_triple_take(struct tr_node_table *table, size_t at, struct tr_triple *triple, bool *taken);
struct tr_triple tr_node_triple(const struct tr_data_state *node, size_t at);

#endif
