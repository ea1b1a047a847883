/* The area under the ROC curve: how probable it is that a positive row scores higher than a negative one, a tie counting half.
 * Exact for scores rounded to float; NaN where a score is NaN or one of the kinds is missing. */
#ifndef TR_MODEL_AUC_H
#define TR_MODEL_AUC_H

#include "trireme/trireme.h"

/* Of n scores; positive[i] > 0 says which are. NaN also where there is no memory for it. */
double tr_auc(const float *score, const signed char *positive, size_t n);

/* Of n scores, too: for each score that occurs, from the highest down, how many positive and negative rows score at least so much.
 * *counts is to be freed; there are at most n points. */
int tr_score_counts(const float *score, const signed char *positive, size_t n, uint64_t (**counts)[2],
                    size_t *points);

/* Of the rows of all ranks: each adds its own, at most as many as it has opened it for; then all ranks find it, outside
 * tr_run(). No rank gets more than about its share of the scores. */
struct tr_area;
int tr_area_open(size_t rows, struct tr_area **area);
void tr_area_add(struct tr_area *area, float score, bool positive);
int tr_area_find(tr_context *tr, struct tr_area *area, double *auc);
void tr_area_close(struct tr_area **area); /* NULL inside is fine */

#endif
