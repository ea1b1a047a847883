/* Metrics: the area under the ROC curve, the figures of a classifier, and the errors of predicted numbers. Training (the test
 * line), `evaluate` and ensembles use the same functions, for models of all classes. A row counts by its weight (data.weight),
 * which is 1 if the data have no weights. A figure is a named number in the output of `evaluate`. */
#ifndef TR_MODEL_METRICS_H
#define TR_MODEL_METRICS_H

#include "loss.h"
#include "trireme/model.h"
#include "trireme/stage.h"
#include "trireme/trireme.h"

/* The area under the ROC curve: the probability that a positive row scores higher than a negative one, where a tie counts half.
 * Scores are rounded to float. The result is NaN if a score is NaN or if one of the two kinds of rows has no weight. */
struct tr_area;

/* Opens an area without rows. Memory for `rows` rows is reserved; tr_area_add() may add more. */
int tr_area_open(size_t rows, struct tr_area **area);
void tr_area_close(struct tr_area **area); /* *area may be NULL */
int tr_area_add(struct tr_area *area, float score, bool positive, double weight);

/* tr_area_here() computes the area from the rows of this process, tr_area_find() from those of all ranks. Each sorts the rows. All
 * ranks call tr_area_find(), outside tr_run(), once; a rank receives about 1/size of the scores. */
int tr_area_here(struct tr_area *area, double *auc);
int tr_area_find(tr_context *tr, struct tr_area *area, double *auc);

/* Returns the class that n margins predict: that of the largest margin; for n = 1, class 1 if the margin is positive, else 0. */
size_t tr_predicted_class(const double *margin, size_t n);

/* The sums over rows from which the figures of a classifier are computed. */
struct tr_classified;

/* Opens sums without rows, for at least 2 labels. The other functions identify a label by its index below `labels`. */
int tr_classified_open(size_t labels, struct tr_classified **c);
void tr_classified_close(struct tr_classified **c); /* *c may be NULL */

/* Adds a row.
 *
 * @param [in] is, as  index of the label of the row (`labels`: training does not have it), and index of the predicted label
 * @param [in] loss    log loss of the row
 * @param [in] score   used if there are two labels: higher scores make label 1 likelier; log odds if the model has probabilities
 */
int tr_classified_add(struct tr_classified *c, size_t is, size_t as, double loss, double score,
                      double weight);

/* Reports all figures, tables and curves of the rows. With two labels, precision and recall are reported for label 1 only.
 *
 * @param [in] label          the labels in the order of their indices
 * @param [in] probabilities  whether the model has probabilities, so that log loss and calibration are defined
 */
int tr_classified_figures(const struct tr_classified *c, tr_query *query, const float *label,
                          bool probabilities);

/* Replaces the margins of n classes by their probabilities: by their softmax if the loss is joint (tr_loss.joint); otherwise, as in
 * LIBLINEAR, by the probability of each class against the rest, divided by the sum of these. */
void tr_margins_to_probabilities(const struct tr_loss *loss, bool joint, size_t n, double *margin);

/* ---- metrics on data.test during training (report.metric) ---- */

/* Number of sums from which the metrics are computed: four per metric. */
enum { TR_METRIC_SUMS = 4 * TR_METRICS };

struct tr_test_metrics {
    const struct tr_loss *loss;
    double shape;         /* shape of the loss */
    double origin;        /* a number near the targets, which is subtracted before targets are squared */
    size_t outputs;       /* number of margins of a row */
    bool joint;           /* one softmax over the margins of all classes */
    size_t n;             /* number of metrics */
    int kind[TR_METRICS]; /* index of each metric in metric_kinds[] */
};

/* Sets metrics->n and kind from report.metric; by default to the metric of the loss, and accuracy for classes or rmse for numbers.
 * The caller has set the other members. TR_ERR_CONFIG if this model does not have one of the metrics. */
int tr_test_metrics_choose(const tr_job *job, struct tr_test_metrics *metrics);

/* Sets stage->metric to the names of the metrics. tests: there are test data; if not, stage->metric is unchanged. */
void tr_test_metrics_name(const struct tr_test_metrics *metrics, bool tests, tr_stage *stage);

/* Returns the name of the first metric. */
const char *tr_test_metrics_first(const struct tr_test_metrics *metrics);

/* Adds a row to the TR_METRIC_SUMS sums.
 *
 * @param [in] margin  one element per output
 * @param [in] target  a number; for classifiers the index of the class (of two classes, 1 is the positive one), or NaN if no training
 *                     row has the class: then the prediction is wrong, and the row has no loss
 */
void tr_test_metrics_add(const struct tr_test_metrics *metrics, const double *margin, double target,
                         double weight, double *sum);

/* Computes evaluation->metric from the sums over all rows. */
void tr_test_metrics_find(const struct tr_test_metrics *metrics, const double *sum,
                          tr_evaluation *evaluation);

/* Returns whether `value` of the first metric is better than `than`. */
bool tr_test_metrics_better(const struct tr_test_metrics *metrics, double value, double than);

/* Weighted sums over rows of the errors of predicted numbers. All members are 0 before the first row. */
struct tr_errors {
    double weight;             /* Σ w, the weights of the rows */
    double squares, absolutes; /* Σ w (prediction - y)², Σ w |prediction - y| */
    double parts, nonzero;     /* of the targets other than 0: Σ w |prediction - y| / |y|, Σ w */
    double loss;               /* Σ w × loss × metric_times; 0 if metric_times is 0 */
    double mean, spread;       /* running mean of the targets y, and Σ w (y - mean)² (Welford) */
};
void tr_errors_add(struct tr_errors *e, const struct tr_loss *loss, double shape, double margin, double y,
                   double weight);

/* Reports RMSE, MAE, R², and the metric of the loss if metric_times is not 0. loss NULL: without that metric. */
int tr_errors_figures(const struct tr_errors *e, tr_query *query, const struct tr_loss *loss);

/* Reports the number of rows, and the sum of their weights if it differs from that number. */
int tr_rows_figure(tr_query *query, uint64_t rows, double weight);

#endif
