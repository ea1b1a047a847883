#ifndef TR_DATA_WEIGHTS_H
#define TR_DATA_WEIGHTS_H

#include "data/dataset.h"

/* Reads what the files of data.weight say of each row of training data, once these are numbered, into data->state->weight. All
 * ranks. */
int tr_weights_read(tr_data *data);

#endif
