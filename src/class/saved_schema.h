/* The columns of a model's training data, in its file. */
#ifndef TR_CLASS_SAVED_SCHEMA_H
#define TR_CLASS_SAVED_SCHEMA_H

#include "data/schema.h"
#include "ranks/ranks.h"
#include "store/h5.h"

/* schema NULL: there is nothing to write; w: NULL but on the rank that writes. All ranks; agreed on. */
int tr_saved_schema_write(tr_context *tr, const struct tr_schema *schema, struct tr_h5_writer *w);

/* *schema: NULL where the file has none; otherwise with all values of dictionaries. */
int tr_saved_schema_read(struct tr_h5_reader *r, struct tr_schema **schema);

#endif
