/* The functions of the losses that most models use, inline for the loops over rows. tr_loss_value() and the like are the members of
 * struct tr_loss of the same names: other losses, and all of them elsewhere, are called through the struct. */
#ifndef TR_LOSS_INLINE_H
#define TR_LOSS_INLINE_H

#include "loss.h"

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
