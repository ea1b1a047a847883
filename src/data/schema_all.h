/* Columns of csv on all ranks: agreed on, and turned into keys, once workers have read their rows. */
#ifndef TR_DATA_SCHEMA_ALL_H
#define TR_DATA_SCHEMA_ALL_H

#include "data/dataset.h"

/* Rank 0 finds out what the columns are, or finds those of the training data (like) in the files of test data; all ranks learn it.
 * The heads are read, on rank 0. All ranks; agreed on. */
int tr_schema_open(tr_data *data, const tr_data *like);

/* Whether somebody has met a word in a column of numbers, which is one of categories then: *again, all are to read again. All
 * ranks; agreed on. */
int tr_schema_change(tr_data *data, const struct tr_column_seen *seen, bool *again);

/* The same by what one process has met: whether a column is another. */
bool tr_schema_take_words(struct tr_schema *s, const struct tr_column_seen *seen);

/* Finds means, dictionaries and names of labels, or takes those of the training data, and makes keys of the workers' rows: those in
 * memory, or those that in->writer will write. Changes the labels that in->report has as rows'. All ranks; agreed on. */
int tr_schema_make_keys(tr_data *data, const tr_data *like, struct tr_reading *in);

/* The same for some more rows that one worker has read like these, and others perhaps too; m: NULL where there are none. All ranks;
 * agreed on. */
int tr_schema_expand_more(const tr_data *data, const struct tr_column_seen *seen, struct tr_matrix *m);

/* One line for rank 0 to say. */
void tr_schema_say(const tr_data *data);

struct tr_column_seen *tr_schema_seen(const struct tr_schema *s);
void tr_schema_seen_free(struct tr_column_seen **seen, const struct tr_schema *s); /* NULL inside is fine */

#endif
