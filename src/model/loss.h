/* The losses of linear models and of trees. Each loss is one struct in loss.c; everything that the engine knows of a loss is a
 * member of it. A new loss is a struct there, and its name in the list at the end of that file.
 *
 * A model minimises F = (1/n) Σ φ(m_i, y_i) + penalty, where m_i is the margin of row i (w · x_i, or the sum of the leaves) and
 * y_i its label: ±1 for classifiers, a number for regression. A shape s is a parameter of the loss itself (enum
 * tr_loss_shape).
 *
 * The dual of a linear model is D(α) = -(λ/2) |w(α)|² - (1/n) Σ φ*(-α_i), w(α) = Σ α_i x_i / (λ n). F(w) - D(α) bounds the
 * distance from the optimum. Dual variables are stored as a = y α for classifiers, where a ≥ 0, and as a = α for regression
 * (Hsieh et al. 2008; Yu, Huang and Lin 2011).
 */
#ifndef TR_LOSS_H
#define TR_LOSS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tr_loss_labels { TR_LABELS_CLASSES, TR_LABELS_NUMBERS, TR_LABELS_COUNTS };

/* The job key that a shape is read from, without «model.». */
enum tr_loss_shape { TR_SHAPE_NONE, TR_SHAPE_DELTA, TR_SHAPE_QUANTILE, TR_SHAPES };
extern const char *const tr_shape_name[TR_SHAPES];

/* Gradients g and curvatures h of n scores for the next tree. parameter: the label of the positive class for classifiers,
 * otherwise the shape. */
typedef void tr_loss_gradients(const float *score, const float *label, size_t n, float parameter, float *g,
                               float *h);

struct tr_loss {
    const char *type;      /* value of model.type of linear models; NULL: not for them */
    const char *objective; /* value of model.objective of trees; NULL: not for them */
    enum tr_loss_labels labels;
    enum tr_loss_shape shape;
    bool joint; /* one loss of the margins of all classes: the functions of one margin are NULL */

    double (*value)(double m, double y, double s);
    double (*slope)(double m, double y, double s);                   /* dφ/dm */
    double (*curvature)(double m, double y, double slope, double s); /* d²φ/dm²; NULL: 0 almost everywhere */
    double (*conjugate)(double a, double y);                         /* φ*(-α); NULL: unknown */
    /* The coordinate step of the dual: the a' that minimises φ*(-α') + m (α' - α) + q/2 (α' - α)², q ≥ 0. NULL together with
     * conjugate. */
    double (*step)(double a, double m, double y, double q, double s);

    double most_curvature; /* an upper bound of the curvature; INFINITY: there is none */
    bool bounded_slope;    /* |slope| ≤ 1, or at most the shape's size */
    bool rarely_curved;    /* the curvature is far below its bound for nearly all rows */
    bool quadratic;        /* the curvature is constant */
    /* A piecewise linear loss, whose slope jumps at m = y: φ(m) = the maximum of u (m - y) over low ≤ u ≤ high. NULL: others. */
    void (*corner)(double y, double s, double *low, double *high);

    /* Link: the mean (of classes, the probability) that a margin stands for. NULL: regression predicts the margin, classes have no
     * probabilities. */
    double (*mean)(double margin);
    /* Margin of the best constant, from the mean label (of classes, the share of the positive one). NULL: it is a quantile of the
     * labels, at least about the median. */
    double (*constant)(double mean);

    /* The metric on test data that corresponds to this loss: the mean loss times metric_times, or, if that is 0, one that all
     * models have (rmse, mae). Without report.metric it decides which model is best. */
    const char *metric;
    double metric_times;

    /* Names of solver_type in model.txt, the first is written. NULL: that of squares; type and shape stand behind the weights. */
    const char *liblinear;
    struct {
        tr_loss_gradients *gradients;
        bool unit_curvature; /* h is 1 for all rows */
        bool quantile;       /* leaves and the base are quantiles of the rows, by the shape or the median */
        bool median;         /* the base is the median of the labels */
        const char *lightgbm;
        struct {
            const char *name, *group, *key, *value; /* value NULL: the number of classes */
            const char *base_score;                 /* the mean of margin 0 */
        } xgboost;
    } trees;
};

/* The losses in the order of model.type, and these values followed by «auto». NULL ends both lists. */
extern const struct tr_loss *const tr_losses[];
extern const char *const tr_loss_types[];

/* The losses in the order of model.objective, whose first value is «auto» and has no loss. NULL ends the list of values. */
extern const struct tr_loss *const tr_objective_losses[];
extern const char *const tr_loss_objectives[];

/* The losses that code refers to by name. */
extern const struct tr_loss tr_loss_logistic, tr_loss_linear, tr_loss_svm, tr_loss_l2svm, tr_loss_huber,
    tr_loss_quantile, tr_loss_poisson, tr_loss_softmax;

/* The loss with this value of model.type or model.objective, or NULL. */
const struct tr_loss *tr_loss_of_type(const char *type);
const struct tr_loss *tr_loss_of_objective(const char *objective);

/* The shape of a loss, from the values of the job keys model.delta and model.quantile; 0 without a shape. */
double tr_loss_shape(const struct tr_loss *loss, double delta, double quantile);

static inline bool tr_loss_classifies(const struct tr_loss *loss)
{
    return loss->labels == TR_LABELS_CLASSES;
}

/* exp(x) for |x| up to 87 by a minimax polynomial of 2^f for f from -1/2 to 1/2. Without a call, so the compiler vectorises
 * loops of it. The relative error is at most 3e-7, for |x| > 1 about 1e-7 |x|. */
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
 * tr_loss_value() and the like are the members of struct tr_loss of the same names. Other losses are called through the struct. */

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
            break; /* the error is about the square of the change */
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

/* A generalised one: the slope has a corner. */
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

/* The dual variables are those of squares, between -s and s. */
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
