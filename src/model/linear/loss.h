/* Losses of linear models.
 *
 * A linear model minimises F(w) = (1/n) Σ φ(y_i, m_i) + (λ/2) |w|², with the margin m_i = w · x_i. Labels are
 * ±1 for the classifiers and real for regression:
 *
 *   logistic  φ = log(1 + exp(-y m))        svm    φ = max(0, 1 - y m)
 *   linear    φ = (m - y)² / 2              l2svm  φ = max(0, 1 - y m)²
 *   poisson   φ = exp(m) - y m + y log y - y, half the deviance where exp(m) is the mean
 *
 * and two that have a shape s (Huber 1964; Koenker and Bassett 1978), with r = y - m:
 *
 *   huber     φ = r² / 2 where |r| ≤ s, s |r| - s² / 2 beyond
 *   quantile  φ = s r where r > 0, (s - 1) r otherwise
 *
 * For Newton's method the hinge has a corner that is rounded over a width s (Nesterov 2005, with -a (1 - a) / 2 for the prox
 * function), where z = y m is near 1; s = 0 is the hinge itself:
 *
 *   svm       φ = max over 0 ≤ a ≤ 1 of a (1 - z) + s a (1 - a) / 2 = (1 - z + s/2)² / (2 s) where |1 - z| < s/2
 *
 * The dual of each is D(α) = -(λ/2) |w(α)|² - (1/n) Σ φ*(-α_i), w(α) = Σ α_i x_i / (λ n); for the classifiers
 * α_i = y_i a_i with a_i ≥ 0 (Hsieh et al. 2008; Yu, Huang and Lin 2011). F(w) - D(α) bounds the distance
 * from the optimum.
 */
#ifndef TR_LINEAR_LOSS_H
#define TR_LINEAR_LOSS_H

#include <math.h>
#include <stdbool.h>

/* In the order of model.type. */
enum {
    TR_LOSS_LOGISTIC,
    TR_LOSS_LINEAR,
    TR_LOSS_SVM,
    TR_LOSS_L2SVM,
    TR_LOSS_HUBER,
    TR_LOSS_QUANTILE,
    TR_LOSS_POISSON,
    TR_LOSSES,
    TR_LOSS_AUTO = TR_LOSSES /* follows from the labels, before anything is learnt */
};

/* Whether labels are kinds, and not numbers. */
static inline bool tr_loss_classifies(int model)
{
    return model == TR_LOSS_LOGISTIC || model == TR_LOSS_SVM || model == TR_LOSS_L2SVM;
}

/* Whether it has a slope everywhere. */
static inline bool tr_loss_is_smooth(int model)
{
    return model != TR_LOSS_SVM && model != TR_LOSS_QUANTILE;
}

/* ---- losses without a shape ---- */

static inline double tr_loss(int model, double m, double y)
{
    double z = y * m;
    switch (model) {
    case TR_LOSS_LOGISTIC: return z > 0 ? log1p(exp(-z)) : log1p(exp(z)) - z;
    case TR_LOSS_SVM: return z < 1 ? 1 - z : 0;
    case TR_LOSS_L2SVM: return z < 1 ? (1 - z) * (1 - z) : 0;
    case TR_LOSS_POISSON: return exp(m) - z + (y > 0 ? y * log(y) - y : 0);
    default: return 0.5 * (m - y) * (m - y);
    }
}

/* dφ/dm */
static inline double tr_loss_slope(int model, double m, double y)
{
    double z = y * m;
    switch (model) {
    case TR_LOSS_LOGISTIC: return -y / (1 + exp(z));
    case TR_LOSS_SVM: return z < 1 ? -y : 0;
    case TR_LOSS_L2SVM: return z < 1 ? -2 * y * (1 - z) : 0;
    case TR_LOSS_POISSON: return exp(m) - y;
    default: return m - y;
    }
}

/* φ*(-α), where a is α for regression and y α for the classifiers. */
static inline double tr_loss_conjugate(int model, double a, double y)
{
    switch (model) {
    case TR_LOSS_LOGISTIC: return (a > 0 ? a * log(a) : 0) + (a < 1 ? (1 - a) * log1p(-a) : 0);
    case TR_LOSS_SVM: return -a;
    case TR_LOSS_L2SVM: return a * (a / 4 - 1);
    default: return a * (a / 2 - y);
    }
}

/* Minimises z log z + (1-z) log(1-z) + b (z - a) + q/2 (z - a)² over 0 < z < 1 by Newton steps. */
static inline double tr_logistic_step(double a, double b, double q)
{
    double z = a > 0 && a < 1 ? a : 1 / (1 + exp(fmin(fmax(b, -30), 30)));
    for (int i = 0; i < 20; i++) {
        double slope = log(z / (1 - z)) + b + q * (z - a), curve = 1 / (z * (1 - z)) + q;
        double next = z - slope / curve;
        if (next <= 0) next = 0.1 * z;
        if (next >= 1) next = 1 - 0.1 * (1 - z);
        double change = fabs(next - z);
        z = next;
        if (change < 1e-2 * fmin(z, 1 - z) || 1 - z < 1e-12)
            break; /* the error is about the square of that */
    }
    return z;
}

/* The new a (or α) of one row: minimises φ*(-α) + m (α - α_old) + q/2 (α - α_old)². */
static inline double tr_dual_step(int model, double a, double m, double y, double q)
{
    switch (model) {
    case TR_LOSS_LOGISTIC: return tr_logistic_step(a, y * m, q);
    case TR_LOSS_SVM: {
        if (q <= 0) return y * m < 1 ? 1 : 0;
        double z = a + (1 - y * m) / q;
        return z < 0 ? 0 : z > 1 ? 1 : z;
    }
    case TR_LOSS_L2SVM: {
        double z = (1 - y * m + q * a) / (q + 0.5);
        return z < 0 ? 0 : z;
    }
    default: return (y - m + q * a) / (1 + q);
    }
}

/* ---- the same of all losses ---- */

static inline double tr_shaped_loss(int model, double shape, double m, double y)
{
    double r = model == TR_LOSS_SVM ? 1 - y * m : y - m, size = fabs(r);
    switch (model) {
    case TR_LOSS_SVM: return size < shape / 2 ? (r + shape / 2) * (r + shape / 2) / (2 * shape) : fmax(r, 0);
    case TR_LOSS_HUBER: return size <= shape ? 0.5 * r * r : shape * (size - 0.5 * shape);
    case TR_LOSS_QUANTILE: return r > 0 ? shape * r : (shape - 1) * r;
    default: return tr_loss(model, m, y);
    }
}

static inline double tr_shaped_slope(int model, double shape, double m, double y)
{
    switch (model) {
    case TR_LOSS_SVM:
        return shape > 0 ? -y * fmin(fmax((1 - y * m) / shape + 0.5, 0), 1) : tr_loss_slope(model, m, y);
    case TR_LOSS_HUBER: return fmin(fmax(m - y, -shape), shape);
    case TR_LOSS_QUANTILE: return y > m ? -shape : y < m ? 1 - shape : 0;
    default: return tr_loss_slope(model, m, y);
    }
}

/* d²φ/dm², where there is one; of the squared hinge and Huber's loss a generalised one. */
static inline double tr_shaped_curvature(int model, double shape, double m, double y)
{
    double slope = tr_shaped_slope(model, shape, m, y);
    switch (model) {
    case TR_LOSS_LOGISTIC: return fabs(slope) * (1 - fabs(slope));
    case TR_LOSS_L2SVM: return slope != 0 ? 2 : 0;
    case TR_LOSS_SVM: return fabs(1 - y * m) < shape / 2 ? 1 / shape : 0;
    case TR_LOSS_POISSON: return exp(m);
    case TR_LOSS_HUBER: return fabs(m - y) <= shape;
    case TR_LOSS_LINEAR: return 1;
    default: return 0;
    }
}

/* The dual variables of Huber's loss are those of squares, held between -s and s; those of the quantiles lie between s - 1
 * and s. */
static inline double tr_shaped_conjugate(int model, double a, double y)
{
    switch (model) {
    case TR_LOSS_HUBER: return tr_loss_conjugate(TR_LOSS_LINEAR, a, y);
    case TR_LOSS_QUANTILE: return -a * y;
    default: return tr_loss_conjugate(model, a, y);
    }
}

static inline double tr_shaped_step(int model, double shape, double a, double m, double y, double q)
{
    switch (model) {
    case TR_LOSS_HUBER: return fmin(fmax(tr_dual_step(TR_LOSS_LINEAR, a, m, y, q), -shape), shape);
    case TR_LOSS_QUANTILE: {
        double z = q > 0 ? a + (y - m) / q : y > m ? 1 : y < m ? -1 : a;
        return fmin(fmax(z, shape - 1), shape);
    }
    default: return tr_dual_step(model, a, m, y, q);
    }
}

#endif
