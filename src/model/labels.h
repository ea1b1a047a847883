/* Labels as classes: whether they are, and what rows weigh by them (model.class_weights). */
#ifndef TR_MODEL_LABELS_H
#define TR_MODEL_LABELS_H

#include "trireme/trireme.h"

/* Whether labels look like classes, where a job leaves it open: there are two at most, or few, which are whole numbers. */
bool tr_labels_are_classes(const tr_data *train);

/* The place of a label among n that ascend; n: it is none. And of the first of the test data's labels that is none of the training
 * data's; test->labels: all are. */
size_t tr_label_place(const float *labels, size_t n, float label);
size_t tr_label_unknown(const tr_data *train, const tr_data *test);

/* Says how many of the test rows have such a label, where these are a share of data.train, and that is chance. All ranks. */
int tr_labels_note_unknown(tr_context *tr, const tr_data *train, const tr_data *test);

/* Whether the key's text is «balanced», or pairs «label:weight», or empty. TR_ERR_CONFIG. */
int tr_class_weights_check(const tr_job *job, const char *text);

/* The weight of each of n labels, which ascend. count[k] is the weight of the rows with label k by data.weight: «balanced» makes
 * the labels weigh the same. A label that the text does not have weighs 1. TR_ERR_CONFIG: the text has a label that no row has. */
int tr_class_weights_find(const tr_job *job, const char *text, const float *label, const double *count,
                          size_t n, double *weight);

/* Checks model.init: an earlier run in the output folder is moved away before the model is read, so `path` must not be in there.
 * TR_ERR_CONFIG. */
int tr_check_initial(const tr_job *job, const char *path);

#endif
