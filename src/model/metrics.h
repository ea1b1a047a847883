/* Metrics: the area under the ROC curve, the figures of a classifier, and the errors of predicted numbers. Training (the test
 * line), `evaluate` and ensembles use the same functions, for models of all classes. Rows count by their weight (data.weight); the
 * weight of a row without one is 1. */
#ifndef TR_MODEL_METRICS_H
#define TR_MODEL_METRICS_H

#include "loss.h"
#include "trireme/model.h"
#include "trireme/trireme.h"

/* The area under the ROC curve: the probability that a positive row scores higher than a negative one, where a tie counts half.
 * Scores are rounded to float. The result is NaN if a score is NaN or if one of the two kinds of rows has no weight. */
struct tr_area;

/* Opens an area. rows: capacity that is reserved; more rows may be added. Close with tr_area_close(); *area may be NULL there. */
int tr_area_open(size_t rows, struct tr_area **area);
void tr_area_close(struct tr_area **area);
int tr_area_add(struct tr_area *area, float score, bool positive, double weight);

/* The area of the rows of this process; of the rows of all ranks: all ranks, outside tr_run(), once. No rank receives
 * more than about its share of the scores. Both sort the rows. */
int tr_area_here(struct tr_area *area, double *auc);
int tr_area_find(tr_context *tr, struct tr_area *area, double *auc);

/* The class that margins predict: the largest of several; of a single margin, class 1 if it is positive and else class 0. */
size_t tr_predicted_class(const double *margin, size_t n);

/* The figures of a classifier. */
struct tr_classified;

/* Opens the figures of `labels` labels, 2 or more, which are numbered from 0. Close with tr_classified_close(). */
int tr_classified_open(size_t labels, struct tr_classified **c);
void tr_classified_close(struct tr_classified **c); /* *c may be NULL */

/* Adds a row.
 *
 * @param [in] is, as  its label, and the predicted label
 * @param [in] loss    its log loss
 * @param [in] score   two labels: grows with the evidence for label 1; the logarithm of the odds if the model has probabilities
 */
int tr_classified_add(struct tr_classified *c, size_t is, size_t as, double loss, double score,
                      double weight);

/* Reports all figures, tables and curves of the rows; precision and recall of two labels are those of label 1.
 *
 * @param [in] label          the labels
 * @param [in] probabilities  whether the model has probabilities, so that log loss and calibration are defined
 */
int tr_classified_figures(const struct tr_classified *c, tr_query *query, const float *label,
                          bool probabilities);

/* Sums of the errors of predicted numbers. All zeros: no row. */
struct tr_errors {
    double weight; /* of the rows */
    double squares, absolutes;
    double figure;       /* sum of the loss that `evaluate` shows (loss->figure) */
    double mean, spread; /* of the targets: running mean, and Σ w (y - mean)² (Welford) */
};
void tr_errors_add(struct tr_errors *e, const struct tr_loss *loss, double shape, double margin, double y,
                   double weight);

/* Reports RMSE, MAE, the named mean loss (NULL: none) and R². */
int tr_errors_figures(const struct tr_errors *e, tr_query *query, const char *figure);

/* Reports the number of rows, and the sum of their weights if it differs from that number. */
int tr_rows_figure(tr_query *query, uint64_t rows, double weight);

#endif
