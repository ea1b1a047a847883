/* model.class_weights: what rows weigh by their labels. */
#ifndef TR_MODEL_CLASS_WEIGHTS_H
#define TR_MODEL_CLASS_WEIGHTS_H

#include "trireme/trireme.h"

/* Whether the key's text is «balanced», or pairs «label:weight», or empty. TR_ERR_CONFIG. */
int tr_class_weights_check(const tr_job *job, const char *text);

/* The weight of each of n labels, which ascend: count[k] rows have label k, which «balanced» makes weigh the same together; labels
 * that the text does not have weigh 1. TR_ERR_CONFIG, if it has others. */
int tr_class_weights_find(const tr_job *job, const char *text, const float *label, const double *count,
                          size_t n, double *weight);

/* The place of a label among n that ascend; n: it is none. */
size_t tr_label_place(const float *labels, size_t n, float label);

#endif
