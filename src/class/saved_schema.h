/* The columns of the training data in the file of a model. */
#ifndef TR_CLASS_SAVED_SCHEMA_H
#define TR_CLASS_SAVED_SCHEMA_H

#include "data/schema.h"
#include "ranks/ranks.h"
#include "store/h5.h"

/* Writes the schema. All ranks.
 *
 * @param [in] schema  NULL: nothing to write
 * @param [in] w       NULL except on the writing rank
 * @return the agreed status
 */
int tr_saved_schema_write(tr_context *tr, const struct tr_schema *schema, struct tr_h5_writer *w);

/* Reads the schema with all values of the dictionaries.
 *
 * @param [out] schema  NULL if the file has none
 */
int tr_saved_schema_read(struct tr_h5_reader *r, struct tr_schema **schema);

#endif
