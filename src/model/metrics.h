/* Metrics: the area under the ROC curve, the figures of a classifier, and the errors of predicted numbers. Training (the test
 * line), `evaluate` and ensembles use the same functions, for models of all classes. Rows count by their weight (data.weight); the
 * weight of a row without one is 1. */
#ifndef TR_MODEL_METRICS_H
#define TR_MODEL_METRICS_H

#include "loss.h"
#include "trireme/model.h"
#include "trireme/stage.h"
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

/* Replaces the margins of several classes by their probabilities: by their softmax if the loss is one of all classes together,
 * otherwise, as in LIBLINEAR, the probability of each class against the others, divided by the sum of these. */
void tr_margins_to_probabilities(const struct tr_loss *loss, bool joint, size_t n, double *margin);

/* ---- metrics on data.test during training (report.metric) ---- */

enum { TR_METRIC_SUMS = 4 * TR_METRICS };

struct tr_test_metrics {
    const struct tr_loss *loss;
    double shape;   /* of the loss */
    double origin;  /* a number near the targets: squares of targets are summed relative to it */
    size_t outputs; /* margins of a row */
    bool joint;     /* the loss is one of the margins of all classes */
    size_t n;       /* number of metrics */
    int kind[TR_METRICS];
};

/* Sets the metrics of report.metric, by default the metric of the loss, and accuracy of classes or rmse of numbers. The caller
 * has set the other members. TR_ERR_CONFIG if the model does not have one of the metrics. */
int tr_test_metrics_choose(const tr_job *job, struct tr_test_metrics *metrics);

/* Sets stage->metric. Without test data: to none. */
void tr_test_metrics_name(const struct tr_test_metrics *metrics, bool tests, tr_stage *stage);

/* Returns the name of the first metric. */
const char *tr_test_metrics_first(const struct tr_test_metrics *metrics);

/* Adds a row to the sums (TR_METRIC_SUMS).
 *
 * @param [in] margin  of its outputs
 * @param [in] target  the number; of classifiers the index of its class, of two classes 1 for the positive one, NaN if training did
 *                     not have the class: then the prediction is wrong, and the row has no loss
 */
void tr_test_metrics_add(const struct tr_test_metrics *metrics, const double *margin, double target,
                         double weight, double *sum);

/* Computes evaluation->metric from the sums of all rows. */
void tr_test_metrics_find(const struct tr_test_metrics *metrics, const double *sum,
                          tr_evaluation *evaluation);

/* Returns whether a value of the first metric is better than another one. */
bool tr_test_metrics_better(const struct tr_test_metrics *metrics, double value, double than);

/* Sums of the errors of predicted numbers. All zeros: no row. */
struct tr_errors {
    double weight; /* of the rows */
    double squares, absolutes;
    double loss;         /* sum of the metric of the loss */
    double mean, spread; /* of the targets: running mean, and Σ w (y - mean)² (Welford) */
};
void tr_errors_add(struct tr_errors *e, const struct tr_loss *loss, double shape, double margin, double y,
                   double weight);

/* Reports RMSE, MAE, the metric of the loss (NULL: none) if it is another one, and R². */
int tr_errors_figures(const struct tr_errors *e, tr_query *query, const struct tr_loss *loss);

/* Reports the number of rows, and the sum of their weights if it differs from that number. */
int tr_rows_figure(tr_query *query, uint64_t rows, double weight);

#endif
