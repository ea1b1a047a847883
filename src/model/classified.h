/* How good a classifier is on rows whose labels are known: what `trireme evaluate` tells of it, whatever the model. */
#ifndef TR_MODEL_CLASSIFIED_H
#define TR_MODEL_CLASSIFIED_H

#include "trireme/model.h"

struct tr_classified;

/* Of so many labels, 2 or more, which are numbered from 0. */
int tr_classified_open(size_t labels, struct tr_classified **c);
void tr_classified_close(struct tr_classified **c); /* NULL inside is fine */

/* Adds a row of one label that is predicted as another or the same. loss: the log loss of the row. score: of two labels, how
 * much more speaks for label 1 than for label 0; where the model knows probabilities the logarithm of their ratio. */
int tr_classified_add(struct tr_classified *c, size_t is, size_t as, double loss, double score);

/* Tells all figures, tables and curves of the rows so far, precision and recall of two labels for label 1. label[i] is what
 * label i is; probabilities: whether there are any, so that losses and calibration mean something. */
int tr_classified_figures(const struct tr_classified *c, tr_query *query, const float *label,
                          bool probabilities);

#endif
