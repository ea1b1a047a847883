/* The losses of linear models and of trees. Each loss is one struct tr_loss in loss.c; the engine knows no other properties of a
 * loss than its members. A new loss is a struct in loss.c, and its name in the list at the end of that file.
 *
 * A model minimises F = (1/n) Σ φ(m_i, y_i) + penalty, where m_i is the margin of row i (w · x_i, or the sum of the leaves) and
 * y_i its label: ±1 for classifiers, a number for regression. The shape s is a parameter of the loss, for example the delta of
 * huber (enum tr_loss_shape).
 *
 * The dual of a linear model with the penalty (λ/2) |w|² is D(α) = -(λ/2) |w(α)|² - (1/n) Σ φ*(-α_i), where α_i is the dual
 * variable of row i, φ* the convex conjugate of φ, and w(α) = Σ α_i x_i / (λ n). F(w) is at most F(w) - D(α) above its minimum.
 * Variables are stored as a = y α for classifiers, where a ≥ 0, and as a = α for regression (Hsieh et al. 2008; Yu et al. 2011). */
#ifndef TR_LOSS_H
#define TR_LOSS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tr_loss_labels { TR_LABELS_CLASSES, TR_LABELS_NUMBERS, TR_LABELS_COUNTS, TR_LABELS_POSITIVE };

/* The job key whose value is the shape of a loss. tr_shape_name: the key without «model.»; NULL for TR_SHAPE_NONE. */
enum tr_loss_shape { TR_SHAPE_NONE, TR_SHAPE_DELTA, TR_SHAPE_QUANTILE, TR_SHAPE_POWER, TR_SHAPES };
extern const char *const tr_shape_name[TR_SHAPES];

/* Computes the gradient g and the curvature h of the loss at each of n scores, from which trees grow the next tree. parameter: the
 * label of the positive class for classifiers, otherwise the shape. */
typedef void tr_loss_gradients(const float *score, const float *label, size_t n, float parameter, float *g,
                               float *h);

struct tr_loss {
    const char *type;      /* value of model.type that selects the loss; NULL: not for linear models */
    const char *objective; /* value of model.objective that selects the loss; NULL: not for trees */
    enum tr_loss_labels labels;
    enum tr_loss_shape shape;
    bool joint; /* the loss depends on the margins of all classes; value, slope and so on are NULL */

    double (*value)(double m, double y, double s);                   /* φ(m, y) */
    double (*slope)(double m, double y, double s);                   /* dφ/dm */
    double (*curvature)(double m, double y, double slope, double s); /* d²φ/dm²; NULL: 0 almost everywhere */
    double (*conjugate)(double a, double y);                         /* φ*(-α); NULL: unknown */
    /* The coordinate step of the dual: returns the a' that minimises φ*(-α') + m (α' - α) + q/2 (α' - α)², where q ≥ 0. NULL if
     * conjugate is NULL. */
    double (*step)(double a, double m, double y, double q, double s);

    double most_curvature; /* upper bound of the curvature; INFINITY: the curvature has no bound */
    bool bounded_slope;    /* |slope| is at most 1, or at most s if the shape is model.delta */
    bool rarely_curved;    /* the curvature is far below its bound for nearly all rows */
    bool quadratic;        /* the curvature is constant */
    /* Only for piecewise linear losses, whose slope jumps at m = y: φ(m) is the maximum of u (m - y) over low ≤ u ≤ high. Sets low
     * and high. NULL for other losses. */
    void (*corner)(double y, double s, double *low, double *high);

    /* Returns the mean (for classes, the probability) that a margin predicts. NULL: regression predicts the margin itself; classes
     * have no probabilities. */
    double (*mean)(double margin);
    /* Returns the margin of the best constant model, from the mean label (for classes, from the share of the positive class). NULL:
     * the best margin is a quantile of the labels, or near their median. */
    double (*constant)(double mean);

    /* Name of the metric on test data that corresponds to this loss: the mean loss times metric_times, or, if metric_times is 0, a
     * metric that all models have (rmse, mae). Without report.metric this metric selects the best model. */
    const char *metric;
    double metric_times;

    /* Values of solver_type in model.txt that mean this loss; the first is written. NULL: the value of squares is written, and
     * lines behind the weights contain the type and shape. */
    const char *liblinear;
    struct {
        tr_loss_gradients *gradients;
        bool unit_curvature; /* h is 1 for all rows */
        bool quantile;       /* leaf values and the base score are quantiles: at the shape, or else medians */
        bool median;         /* the base score is the median of the labels */
        const char *lightgbm; /* value of objective in a model file of LightGBM */
        /* For a model file of XGBoost: name of the objective; object of its parameters, with one key and its value (NULL: the
         * number of classes, or with TR_SHAPE_POWER the shape); base_score that stands for margin 0. */
        struct {
            const char *name, *group, *key, *value, *base_score;
        } xgboost;
    } trees;
};

/* tr_losses: the losses in the order of the values of model.type. tr_loss_types: these values, then «auto». NULL ends each list. */
extern const struct tr_loss *const tr_losses[];
extern const char *const tr_loss_types[];

/* tr_loss_objectives: the values of model.objective, «auto» first. tr_objective_losses: the loss of each value, NULL for «auto».
 * NULL ends each list. */
extern const struct tr_loss *const tr_objective_losses[];
extern const char *const tr_loss_objectives[];

/* The losses to which code outside loss.c refers by name. */
extern const struct tr_loss tr_loss_logistic, tr_loss_linear, tr_loss_svm, tr_loss_l2svm, tr_loss_huber,
    tr_loss_quantile, tr_loss_poisson, tr_loss_softmax;

/* Return the loss with this value of model.type, or of model.objective; NULL if no loss has the value. */
const struct tr_loss *tr_loss_of_type(const char *type);
const struct tr_loss *tr_loss_of_objective(const char *objective);

/* Returns the shape of a loss: one of the values of the job keys model.delta and model.quantile; 0 if the loss has no shape. */
double tr_loss_shape(const struct tr_loss *loss, double delta, double quantile, double power);

/* Returns whether the loss takes this label of a regression: counts are 0 or more, positive labels are above 0. */
static inline bool tr_loss_takes(const struct tr_loss *loss, float label)
{
    return loss->labels == TR_LABELS_COUNTS     ? label >= 0
           : loss->labels == TR_LABELS_POSITIVE ? label > 0
                                                : true;
}

static inline bool tr_loss_classifies(const struct tr_loss *loss)
{
    return loss->labels == TR_LABELS_CLASSES;
}

/* Returns exp(x), where x is limited to ±87, by a minimax polynomial of 2^f for f from -1/2 to 1/2. It calls no function, so that
 * the compiler vectorises loops. The relative error is at most 3e-7, for |x| > 1 about 1e-7 |x|. */
static inline float tr_fast_exp(float x)
{
    x = x > 87 ? 87 : x < -87 ? -87 : x;
    float t = x * 1.44269504f, whole = (t + 12582912.0f) - 12582912.0f, f = t - whole;
    float p = 1.3254603e-3f;
    p = p * f + 9.6719991e-3f;
    p = p * f + 5.5507794e-2f;
    p = p * f + 2.4022232e-1f;
    p = p * f + 6.9314694e-1f;
    p = p * f + 1;
    union {
        int32_t bits;
        float value;
    } power = {((int32_t)whole + 127) << 23};
    return p * power.value;
}

/* ==== inline functions of the losses that most models use, for loops over rows ====
 *
 * tr_loss_value(), _slope(), _curvature() and _step() compute the members value, slope, curvature and step of struct tr_loss. For
 * losses without inline functions they call the members. */

/* ---- logistic ---- */

static inline double logistic_value(double m, double y, double s)
{
    double z = y * m;
    (void)s;
    return z > 0 ? log1p(exp(-z)) : log1p(exp(z)) - z;
}

static inline double logistic_slope(double m, double y, double s)
{
    (void)s;
    return -y / (1 + exp(y * m));
}

static inline double logistic_curvature(double m, double y, double slope, double s)
{
    (void)m, (void)y, (void)s;
    return fabs(slope) * (1 - fabs(slope));
}

/* Minimises z log z + (1-z) log(1-z) + b (z - a) + q/2 (z - a)², b = y m, over 0 < z < 1 by Newton steps. */
static inline double logistic_step(double a, double m, double y, double q, double s)
{
    double b = y * m, z = a > 0 && a < 1 ? a : 1 / (1 + exp(fmin(fmax(b, -30), 30)));
    (void)s;
    for (int i = 0; i < 20; i++) {
        double slope = log(z / (1 - z)) + b + q * (z - a), curve = 1 / (z * (1 - z)) + q;
        double next = z - slope / curve;
        if (next <= 0) next = 0.1 * z;
        if (next >= 1) next = 1 - 0.1 * (1 - z);
        double change = fabs(next - z);
        z = next;
        if (change < 1e-2 * fmin(z, 1 - z) || 1 - z < 1e-12)
            break; /* the error of a Newton step is about the square of the change */
    }
    return z;
}

/* ---- linear ---- */

static inline double linear_value(double m, double y, double s)
{
    (void)s;
    return 0.5 * (m - y) * (m - y);
}

static inline double linear_slope(double m, double y, double s)
{
    (void)s;
    return m - y;
}

static inline double linear_curvature(double m, double y, double slope, double s)
{
    (void)m, (void)y, (void)slope, (void)s;
    return 1;
}

static inline double linear_step(double a, double m, double y, double q, double s)
{
    (void)s;
    return (y - m + q * a) / (1 + q);
}

/* ---- svm ---- */

static inline double svm_value(double m, double y, double s)
{
    (void)s;
    return fmax(1 - y * m, 0);
}

static inline double svm_slope(double m, double y, double s)
{
    (void)s;
    return y * m < 1 ? -y : 0;
}

static inline double svm_step(double a, double m, double y, double q, double s)
{
    (void)s;
    if (q <= 0) return y * m < 1 ? 1 : 0;
    double z = a + (1 - y * m) / q;
    return z < 0 ? 0 : z > 1 ? 1 : z;
}

/* ---- l2svm ---- */

static inline double l2svm_value(double m, double y, double s)
{
    double z = y * m;
    (void)s;
    return z < 1 ? (1 - z) * (1 - z) : 0;
}

static inline double l2svm_slope(double m, double y, double s)
{
    double z = y * m;
    (void)s;
    return z < 1 ? -2 * y * (1 - z) : 0;
}

/* A generalised second derivative, because the slope has a corner at y m = 1. */
static inline double l2svm_curvature(double m, double y, double slope, double s)
{
    (void)m, (void)y, (void)s;
    return slope != 0 ? 2 : 0;
}

static inline double l2svm_step(double a, double m, double y, double q, double s)
{
    double z = (1 - y * m + q * a) / (q + 0.5);
    (void)s;
    return z < 0 ? 0 : z;
}

/* ---- huber ---- */

static inline double huber_value(double m, double y, double s)
{
    double r = y - m, size = fabs(r);
    return size <= s ? 0.5 * r * r : s * (size - 0.5 * s);
}

static inline double huber_slope(double m, double y, double s)
{
    return fmin(fmax(m - y, -s), s);
}

static inline double huber_curvature(double m, double y, double slope, double s)
{
    (void)slope;
    return fabs(m - y) <= s;
}

/* The dual variables are those of the squared loss, limited to -s .. s. */
static inline double huber_step(double a, double m, double y, double q, double s)
{
    return fmin(fmax(linear_step(a, m, y, q, 0), -s), s);
}

/* ---- quantile ---- */

static inline double quantile_value(double m, double y, double s)
{
    double r = y - m;
    return r > 0 ? s * r : (s - 1) * r;
}

static inline double quantile_slope(double m, double y, double s)
{
    return y > m ? -s : y < m ? 1 - s : 0;
}

/* The dual variables lie between s - 1 and s. */
static inline double quantile_step(double a, double m, double y, double q, double s)
{
    double z = q > 0 ? a + (y - m) / q : y > m ? 1 : y < m ? -1 : a;
    return fmin(fmax(z, s - 1), s);
}

/* ---- calls ---- */

#define TR_SMOOTH_LOSSES(X) X(logistic) X(linear) X(l2svm) X(huber)
#define TR_INLINE_LOSSES(X) TR_SMOOTH_LOSSES(X) X(svm) X(quantile)

static inline double tr_loss_value(const struct tr_loss *loss, double m, double y, double s)
{
#define CALL(name)                                                                                           \
    if (loss == &tr_loss_##name) return name##_value(m, y, s);
    TR_INLINE_LOSSES(CALL)
#undef CALL
    return loss->value(m, y, s);
}

static inline double tr_loss_slope(const struct tr_loss *loss, double m, double y, double s)
{
#define CALL(name)                                                                                           \
    if (loss == &tr_loss_##name) return name##_slope(m, y, s);
    TR_INLINE_LOSSES(CALL)
#undef CALL
    return loss->slope(m, y, s);
}

static inline double tr_loss_curvature(const struct tr_loss *loss, double m, double y, double slope, double s)
{
#define CALL(name)                                                                                           \
    if (loss == &tr_loss_##name) return name##_curvature(m, y, slope, s);
    TR_SMOOTH_LOSSES(CALL)
#undef CALL
    return loss->curvature(m, y, slope, s);
}

static inline double tr_loss_step(const struct tr_loss *loss, double a, double m, double y, double q,
                                  double s)
{
#define CALL(name)                                                                                           \
    if (loss == &tr_loss_##name) return name##_step(a, m, y, q, s);
    TR_INLINE_LOSSES(CALL)
#undef CALL
    return loss->step(a, m, y, q, s);
}

#endif
