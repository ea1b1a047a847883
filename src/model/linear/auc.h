/* The area under the ROC curve: how probable it is that a positive row scores higher than a negative one, a
 * tie counting half. Exact for scores rounded to float; NaN where a score is NaN or one of the kinds is
 * missing.
 */
#ifndef TR_LINEAR_AUC_H
#define TR_LINEAR_AUC_H

#include "model/linear/linear.h"

/* Of the test data under the model as it is in the table now: all ranks, outside tr_run(); all get the
 * result. NaN without test data and for regression. No rank gets more than about its share of the scores. */
int tr_linear_auc(struct tr_linear *model, double *auc);

/* Of n scores; positive[i] > 0 says which are. NaN also where there is no memory for it. */
double tr_auc(const float *score, const signed char *positive, size_t n);

#endif
