#include "quadratic.h"

#include <math.h>
#include <string.h>

static void move(struct tr_quadratic *q, size_t j, double x)
{
    const float *row = q->gram + j * q->n;
    double change = x - q->x[j], *gradient = q->gradient;
    q->x[j] = x;
    for (size_t k = 0; k < q->n; k++) gradient[k] += change * (double)row[k];
}

/* Each coordinate in turn to its minimum: the most that one has changed its own gradient. */
static double sweep(struct tr_quadratic *q)
{
    double most = 0;
    for (size_t j = 0; j < q->n; j++) {
        double curve = (double)q->gram[j * q->n + j], old = q->x[j], x = old - q->gradient[j] / curve;
        if (j < q->penalised) x = tr_soft_threshold(x, q->alpha / curve);
        if (x == old) continue;
        most = fmax(most, fabs(x - old) * curve);
        move(q, j, x);
    }
    return most;
}

/* ---- the coordinates that are not 0 ---- */

static int is_free(const struct tr_quadratic *q, size_t j)
{
    return j >= q->penalised || q->x[j] != 0;
}

static void multiply(const struct tr_quadratic *q, const double *vector, double *product)
{
    memset(product, 0, q->n * sizeof *product);
    for (size_t j = 0; j < q->n; j++) {
        const float *row = q->gram + j * q->n;
        double factor = vector[j];
        if (factor == 0) continue;
        for (size_t k = 0; k < q->n; k++) product[k] += factor * (double)row[k];
    }
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += a[k] * b[k];
    return sum;
}

/* Σ r²/G_jj: the residual's size, preconditioned by the diagonal. */
static double size_of(const struct tr_quadratic *q, const double *residual)
{
    double sum = 0;
    for (size_t j = 0; j < q->n; j++) sum += residual[j] * residual[j] / (double)q->gram[j * q->n + j];
    return sum;
}

/* The step from x to the minimum over the free coordinates with their signs kept: conjugate gradients, preconditioned by
 * the diagonal. */
static void find_step(const struct tr_quadratic *q, double *step)
{
    size_t n = q->n;
    double *residual = step + n, *direction = residual + n, *product = direction + n;
    for (size_t j = 0; j < n; j++) {
        double sign = j < q->penalised ? (q->x[j] > 0) - (q->x[j] < 0) : 0;
        step[j] = 0;
        residual[j] = is_free(q, j) ? -(q->gradient[j] + q->alpha * sign) : 0;
        direction[j] = residual[j] / (double)q->gram[j * n + j];
    }
    double size = size_of(q, residual), enough = 1e-10 * size;
    for (size_t i = 0; i < n && size > enough; i++) {
        multiply(q, direction, product);
        double curve = dot(direction, product, n);
        if (!(curve > 0)) return;
        double t = size / curve, last = size;
        for (size_t j = 0; j < n; j++) {
            step[j] += t * direction[j];
            residual[j] = is_free(q, j) ? residual[j] - t * product[j] : 0;
        }
        size = size_of(q, residual);
        for (size_t j = 0; j < n; j++)
            direction[j] = residual[j] / (double)q->gram[j * n + j] + size / last * direction[j];
    }
}

/* The objective's change from x to where t times the step leads, coordinates that would change their sign staying at 0. */
static double change_to(const struct tr_quadratic *q, const double *step, double t, double *change,
                        double *product)
{
    double absolutes = 0;
    for (size_t j = 0; j < q->n; j++) {
        double x = q->x[j] + t * step[j];
        if (j < q->penalised && x * q->x[j] < 0) x = 0;
        if (j < q->penalised) absolutes += fabs(x) - fabs(q->x[j]);
        change[j] = x - q->x[j];
    }
    multiply(q, change, product);
    return dot(q->gradient, change, q->n) + 0.5 * dot(change, product, q->n) + q->alpha * absolutes;
}

/* The longest of some parts of the step that lowers the objective. */
static void take_step(struct tr_quadratic *q, const double *step)
{
    double *change = q->work + q->n, *product = change + q->n;
    for (double t = 1; t > 1e-3; t /= 2) {
        if (!(change_to(q, step, t, change, product) < 0)) continue;
        for (size_t j = 0; j < q->n; j++) {
            q->x[j] += change[j];
            q->gradient[j] += product[j];
        }
        return;
    }
}

double tr_quadratic_minimise(struct tr_quadratic *q, double tolerance, int sweeps)
{
    enum { SWEEPS_BETWEEN = 4 };
    double first = 0;
    for (int i = 0; i < sweeps; i++) {
        double most = sweep(q);
        if (i == 0) first = most;
        if (most <= tolerance) break;
        if (i % SWEEPS_BETWEEN != SWEEPS_BETWEEN - 1) continue;
        find_step(q, q->work);
        take_step(q, q->work);
    }
    return first;
}
