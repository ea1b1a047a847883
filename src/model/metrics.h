/* Metrics of linear models and trees. Training (the test line), `evaluate` and ensembles use the same functions. tr_judge() is the
 * only place that compares a row with its prediction. A row counts by its weight (data.weight), which is 1 if the data have no
 * weights. A figure is a named number in the output of `evaluate`. */
#ifndef TR_MODEL_METRICS_H
#define TR_MODEL_METRICS_H

#include "loss.h"
#include "trireme/model.h"
#include "trireme/stage.h"
#include "trireme/trireme.h"

/* The area under the ROC curve: the probability that a positive row scores higher than a negative one, where a tie counts half.
 * Scores are rounded to float. The result is NaN if a score is NaN or if one of the two kinds of rows has no weight. */
struct tr_area;

/* Opens an area without rows, as a member of struct tr_test_metrics. Memory for `rows` rows is reserved; there may be more. */
int tr_area_open(size_t rows, struct tr_area **area);

/* Computes the area from the rows of all ranks; a rank receives about 1/size of the scores. All ranks call it once, outside
 * tr_run(). */
int tr_area_find(tr_context *tr, struct tr_area *area, double *auc);

/* Returns the class that n margins predict: that of the largest margin; for n = 1, class 1 if the margin is positive, else 0. */
size_t tr_predicted_class(const double *margin, size_t n);

/* Replaces the margins of n classes by their probabilities: by their softmax if the loss is joint (tr_loss.joint); otherwise, as in
 * LIBLINEAR, by the probability of each class against the rest, divided by the sum of these. */
void tr_margins_to_probabilities(const struct tr_loss *loss, bool joint, size_t n, double *margin);

/* ---- metrics: on data.test during training (report.metric), and of `evaluate` ---- */

enum {
    TR_METRIC_KINDS = 10, /* maximum number of metrics that apply to a model; docs/models.md defines them */
    TR_METRIC_TERMS = 4,  /* number of sums from which a metric is computed */
    TR_METRIC_SUMS = TR_METRIC_TERMS * TR_METRICS
};

struct tr_test_metrics {
    const struct tr_loss *loss;
    double shape;   /* shape of the loss; NaN: unknown, so that the metric of the loss does not apply */
    double origin;  /* a number near the targets, which is subtracted before targets are squared */
    size_t outputs; /* number of margins of a row */
    bool joint;     /* one softmax over the margins of all classes */
    size_t n;       /* number of metrics */
    struct {
        int kind;                   /* index in metric_kinds[] */
        const struct tr_loss *loss; /* the loss whose mean is the metric; NULL for other kinds */
    } metric[TR_METRIC_KINDS];
    bool brier;           /* one of the metrics is the Brier score */
    struct tr_area *area; /* the rows of this rank, for auc and pr_auc; NULL: they are not computed */
};

/* Checks report.metric before the data are read. loss: that of the model; NULL: it follows from the data.
 *
 * @return TR_ERR_CONFIG if a metric does not exist, or if no model with this loss has it */
int tr_test_metrics_check(const tr_job *job, const struct tr_loss *loss);

/* Sets the metrics to those of report.metric; by default to the metric of the loss, and accuracy for classes or rmse for numbers.
 * The caller has set loss, shape, origin, outputs and joint. TR_ERR_CONFIG if this model does not have one of the metrics. */
int tr_test_metrics_choose(const tr_context *tr, struct tr_test_metrics *metrics);
void tr_test_metrics_close(struct tr_test_metrics *metrics);

/* Sets stage->metric to the names of the metrics. tests: there are test data; if not, stage->metric is unchanged. */
void tr_test_metrics_name(const struct tr_test_metrics *metrics, bool tests, tr_stage *stage);

/* Returns the name of the first metric. */
const char *tr_test_metrics_first(const struct tr_test_metrics *metrics);

/* The comparison of a row's margins with its target. */
struct tr_judged {
    size_t is;          /* classes: index of the class of the row; SIZE_MAX: no training row has it */
    size_t as;          /* classes: index of the predicted class */
    double loss;        /* that of the model; 0 if is == SIZE_MAX */
    double score;       /* two classes: higher scores make class 1 likelier */
    double probability; /* two classes and metrics->brier: of class 1 */
    double brier; /* metrics->brier: Σ (probability - (class == is))² over the classes; half of it for two */
    double error; /* numbers: prediction - target */
};

/* Judges a row.
 *
 * @param [in] margin  one element per output
 * @param [in] target  a number; for classifiers the index of the class (of two classes, 1 is the positive one), or NaN if no training
 *                     row has the class: then the prediction is wrong, and the row has no loss
 */
struct tr_judged tr_judge(const struct tr_test_metrics *metrics, const double *margin, double target);

/* Judges a row, and adds it to the metrics->n * TR_METRIC_TERMS sums and to metrics->area. */
int tr_test_metrics_add(struct tr_test_metrics *metrics, const double *margin, double target, double weight,
                        double *sum);

/* Completes the sums over the rows of this rank by the terms of auc and pr_auc, and removes the rows from metrics->area. All workers
 * call it under BSP, with the status of adding their rows. Without these metrics it returns the status. */
int tr_test_metrics_rank(tr_context *tr, struct tr_test_metrics *metrics, int status, double *sum);

/* Computes the metrics->n values from the sums over all rows. */
void tr_test_metrics_find(const struct tr_test_metrics *metrics, const double *sum, double *value);

/* Returns whether summary.json needs the figure test_auc: there are two classes, and no metric is auc. */
bool tr_test_metrics_lack_auc(const struct tr_test_metrics *metrics);

/* Returns whether larger values of the metric of this name are better. */
bool tr_metric_ascends(const char *name);

/* Returns whether `value` of the first metric is better than `than`. */
bool tr_test_metrics_better(const struct tr_test_metrics *metrics, double value, double than);

/* Compares a figure of a model with that of the best constant prediction. Returns whether it is worse by more than 0.1 %, and then
 * writes «the FIGURE is VALUE, worse than VALUE of CONSTANT» to `text`.
 *
 * @param [in] ascends  larger values are better
 */
enum { TR_WORSE_TEXT = 160 };
bool tr_is_worse(const char *figure, double value, bool ascends, const char *constant, double of_constant,
                 char text[TR_WORSE_TEXT]);

/* ---- `evaluate` ---- */

/* The rows of an evaluation: all metrics that apply to the model, and for classes the tables and curves. */
struct tr_evaluated;

/* Opens an evaluation without rows.
 *
 * @param [in] metrics  loss, shape, outputs and joint of the model
 * @param [in] labels   number of labels of a classifier, at least 2; ignored for numbers
 */
int tr_evaluated_open(const struct tr_test_metrics *metrics, size_t labels, struct tr_evaluated **e);
void tr_evaluated_close(struct tr_evaluated **e); /* *e may be NULL */

/* Adds a row: see tr_judge(). */
int tr_evaluated_add(struct tr_evaluated *e, const double *margin, double target, double weight);

/* Reports all figures, tables and curves. With two labels, precision and recall are reported for label 1 only.
 *
 * @param [in] label  the labels in the order of their indices; NULL for numbers
 */
int tr_evaluated_figures(struct tr_evaluated *e, tr_query *query, uint64_t rows, const float *label);

#endif
