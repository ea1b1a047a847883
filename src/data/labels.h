/* The labels that the rows of all workers have. */
#ifndef TR_DATA_LABELS_H
#define TR_DATA_LABELS_H

#include "data/dataset.h"

/* Fills data->label with the distinct labels of all workers, ascending. All ranks. */
int tr_labels_unite(tr_context *tr, const struct tr_labels *labels, tr_data *data);

/* Whether the labels are classes that must be names, because a worker has met an integer that is not a float and the model wants classes
 * (TR_DATA_CLASSES, TR_DATA_FEW_CLASSES). All ranks. */
int tr_labels_need_names(tr_context *tr, const struct tr_read_report *report, const tr_data *data,
                         bool *names);

/* Finds the first three kinds, by rank, and where the third is, because a binary model will want to say so:
 * data->state->third_label. All ranks. */
int tr_labels_find_third(tr_context *tr, const struct tr_labels *labels, tr_data *data);

#endif
