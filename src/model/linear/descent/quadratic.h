/* The minimum of a quadratic with an l1 penalty, for some hundred coordinates:
 *
 *   min over x   gᵀ(x - x₀) + ½ (x - x₀)ᵀ G (x - x₀) + alpha Σ |x_j|
 *
 * Coordinate descent finds which coordinates are 0; between its sweeps conjugate gradients minimise over the others, as far
 * as no sign changes, since coordinate descent alone is slow where columns resemble each other.
 */
#ifndef TR_LINEAR_QUADRATIC_H
#define TR_LINEAR_QUADRATIC_H

#include <stddef.h>

struct tr_quadratic {
    size_t n, penalised; /* coordinates; the first so many have the penalty */
    const float *gram;   /* G, n × n, with a positive diagonal */
    double alpha;
    double *x;        /* where it stands, and ends */
    double *gradient; /* … of the smooth part there: g at first */
    double *work;     /* room for 4 n */
};

/* alpha |x| beside ½ (x - value)²: the x with the least sum. */
static inline double tr_soft_threshold(double value, double alpha)
{
    return value > alpha ? value - alpha : value < -alpha ? value + alpha : 0;
}

/* Until a sweep changes no gradient by more than the tolerance, or after so many sweeps. Returns the most that the first
 * sweep has changed one. */
double tr_quadratic_minimise(struct tr_quadratic *q, double tolerance, int sweeps);

#endif
