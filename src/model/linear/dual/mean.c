/* The mean of w over the last quarter of a clock's steps, which is the model that dual coordinate descent gives.
 *
 * A step makes one row right, and so w swings about where it is going, the more the more rows have in common: by hinge loss
 * on a9a its objective is worse than a constant's for ten passes, which that of the mean is never. (To 1.001 times the
 * optimum, simulated: a9a 100 passes by w and 26 by the mean for svm, 95 and 25 for l2svm; clicks 8 and 7.) Shalev-Shwartz and
 * Zhang 2013 prove their bounds of the gap for such means. Any weights bound the optimum from above, so the gap is proven
 * by the dual variables as they are and the mean of what w has been.
 *
 * Where several groups merge their changes, w is the model. So the table w has what steps go on from in every layout, which
 * a job that continues may change, and the model is in another table beside it. */
#include <math.h>
#include <string.h>

#include "dual.h"

/* Additions of a clock, each of which is a pass over all keys. */
enum { LEAST_ADDED = 2, MOST_ADDED = 32, NONZEROS_FOR_KEY = 32 };

int tr_linear_dual_open_mean(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    double clocks = (double)m->clocks_per_epoch, nonzeros = (double)m->train->total_nonzeros / clocks;
    d->adds = (size_t)fmax(LEAST_ADDED,
                           fmin(MOST_ADDED, nonzeros / (NONZEROS_FOR_KEY * (double)m->train->columns)));
    d->table = m->w;
    return tr_linear_make_table(m, "mean", "w", &m->w);
}

/* Where in the clock, as a number of additions, these rows of it are. */
static double additions(const struct tr_linear_dual *d, double row, double rows)
{
    return fmax(0, row / rows - 0.75) * 4 * (double)d->adds;
}

size_t tr_linear_dual_rows_between_additions(const struct tr_linear_dual *d, size_t rows)
{
    return rows / (4 * d->adds) + 1;
}

static void add(enum tr_dtype dtype, size_t n, const void *from, double scale, void *to)
{
    if (dtype == TR_F32)
        for (size_t i = 0; i < n; i++) ((float *)to)[i] += (float)scale * ((const float *)from)[i];
    else
        for (size_t i = 0; i < n; i++) ((double *)to)[i] += scale * ((const double *)from)[i];
}

static size_t element(const struct tr_linear *m)
{
    return m->problem.dtype == TR_F32 ? sizeof(float) : sizeof(double);
}

void tr_linear_dual_begin_mean(struct tr_linear *m, size_t first, size_t n)
{
    struct tr_linear_dual *d = m->dual;
    memset((char *)d->average + first * element(m), 0, n * element(m));
    if (first == 0) d->added->n = 0;
}

void tr_linear_dual_add_to_mean(struct tr_linear *m, const void *w, double from, double to, double rows)
{
    struct tr_linear_dual *d = m->dual;
    if (!d->table || floor(additions(d, from, rows)) == floor(additions(d, to, rows))) return;
    if (atomic_flag_test_and_set(&d->added->busy)) return;
    add(m->problem.dtype, m->problem.keys + m->problem.bias, w, 1, d->average);
    d->added->n++;
    atomic_flag_clear(&d->added->busy);
}

/* With w as it is in the end. */
static void finish(struct tr_linear *m, const void *w, size_t first, size_t n)
{
    struct tr_linear_dual *d = m->dual;
    char *mean = (char *)d->average + first * element(m);
    double all = (double)d->added->n + 1;
    add(m->problem.dtype, n, (const char *)w + first * element(m), 1, mean);
    add(m->problem.dtype, n, mean, 1 / all - 1, mean);
}

int tr_linear_dual_push_mean(struct tr_linear *m, const void *w, size_t first, size_t n)
{
    if (!m->dual->table) return TR_OK;
    finish(m, w, first, n);
    TR_TRY(tr_view_pull(m->view));
    memcpy(m->view->delta, (char *)m->dual->average + first * element(m), n * element(m));
    tr_linear_keep_difference(m->view, m->problem.dtype, 1);
    return tr_view_push(m->view);
}
