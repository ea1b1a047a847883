/* sgd's solve.rate auto: a rate is tried by training with it for a while, from the beginning, on the first mini-batches, and
 * looking at the objective; then one four times as large, and so on, until that is worse; or one smaller if already the first
 * step was too large (Bottou, "Stochastic gradient descent tricks", 2012, section 5.2). Trials run on all ranks as training
 * does, so that what becomes of updates under the job's consistency and weighting counts. */
#include <math.h>

#include "../linear.h"
#include "../row.h"

/* ---- where to begin ---- */

/* Of all rows, the mean of |x|², and for regression the standard deviation of the labels: what weights are in proportion
 * to. */
static int measure(struct tr_linear *m, double *norm, double *spread)
{
    enum { ROWS, NORMS, LABELS, SQUARES, SUMS };
    double sum[SUMS] = {0};
    const struct tr_problem train = {.rows = m->train->rows, .keys = m->train->n_keys};
    const float *label = m->train->rows.label;
    tr_worker me = tr_linear_self(m->tr);
    bool mine = !m->vertical || me.member == 0;
    for (size_t i = tr_data_part_begin(m->train, &me); i < tr_data_part_end(m->train, &me); i++) {
        struct tr_data_row x = tr_row_of(&train, i);
        sum[NORMS] += tr_row_square(&x);
        sum[ROWS] += mine;
        sum[LABELS] += mine ? (double)label[i] : 0;
        sum[SQUARES] += mine ? (double)label[i] * (double)label[i] : 0;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, SUMS));
    double n = fmax(sum[ROWS], 1), mean = sum[LABELS] / n;
    *norm = sum[NORMS] / n + m->o->bias;
    *spread = sqrt(fmax(sum[SQUARES] / n - mean * mean, 0));
    return TR_OK;
}

/* Plain steps are about as long as the mean loss is curved; those of adaptive optimizers do not depend on the size of
 * gradients, so their rates are a part of what weights are like. */
static int guess(struct tr_linear *m, double *rate)
{
    double norm, spread, plain;
    TR_TRY(measure(m, &norm, &spread));
    double size = m->loss->labels == TR_LABELS_NUMBERS && spread > 0 ? spread : 1;
    plain = norm > 0 ? 1 / norm : 1;
    if (m->loss->bounded_slope) plain *= size;
    switch (m->o->optimizer) {
    case TR_SGD: *rate = plain; break;
    case TR_MOMENTUM:
    case TR_NESTEROV: *rate = plain * (1 - m->o->momentum); break;
    case TR_ADADELTA: *rate = 10 * size; break;
    default: *rate = 0.1 * size; break;
    }
    return TR_OK;
}

/* ---- the search ---- */

struct trials {
    double best, least; /* rate, and the objective that it came to */
    int n;
};

/* From the best rate on, larger or smaller ones until one is worse. */
static int look(struct tr_linear *m, tr_linear_trial_fn *try, double factor, struct trials *t)
{
    enum { MOST_TRIALS = 16 };
    double rate = t->best, reached;
    while (t->n < MOST_TRIALS) {
        rate *= factor;
        TR_TRY(try(m, rate, &reached));
        t->n++;
        bool better = reached < t->least;
        if (!better && (isfinite(t->least) || factor > 1)) break;
        if (better) t->least = reached, t->best = rate;
    }
    return TR_OK;
}

/* Between the best rate and its neighbours. */
static int refine(struct tr_linear *m, tr_linear_trial_fn *try, struct trials *t)
{
    double rate = t->best, reached;
    for (int i = 0; i < 2; i++) {
        double other = i == 0 ? rate / 2 : rate * 2;
        TR_TRY(try(m, other, &reached));
        t->n++;
        if (!(reached < t->least)) continue;
        t->least = reached, t->best = other;
        break;
    }
    return TR_OK;
}

int tr_linear_find_rate(struct tr_linear *m, tr_linear_trial_fn *try)
{
    struct trials t = {.n = 1};
    double first;
    TR_TRY(guess(m, &first));
    t.best = first;
    TR_TRY(try(m, first, &t.least));
    TR_TRY(look(m, try, 4, &t));
    if (t.best == first) TR_TRY(look(m, try, 1. / 4, &t));
    TR_TRY(refine(m, try, &t));
    m->rate = t.best;
    tr_say(m->tr, "rate:          %.3g, the best of %d that were tried", t.best, t.n);
    return TR_OK;
}
