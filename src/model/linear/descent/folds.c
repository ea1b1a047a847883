/* Folds choose a penalty of the path: one lap over the path for each fold, on the rows of all others, after which the fold's
 * rows tell what each penalty is worth; then the path on all rows, down to the penalty that was chosen. That is the largest
 * whose mean loss on rows held out is within one standard error of the least (Breiman et al. 1984). Rows are held out by a weight
 * of 0, and which ones follows from the seed and their numbers: the same on any number of ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "descent.h"

/* Of a penalty: the loss of each fold's rows, the weights that are not 0 of each, and the penalty. */
static size_t numbers(const struct tr_descent_folds *f)
{
    return 2 * f->n + 1;
}

static double *of_value(const struct tr_descent_folds *f, size_t value)
{
    return f->told + value * numbers(f);
}

/* ---- which rows ---- */

/* Of every n rows that follow each other, each is in another fold, in an order drawn for them. */
static int deal(const struct tr_linear *m, const uint64_t *number)
{
    struct tr_descent_folds *f = &m->descent->folds;
    uint32_t *order;
    TR_TRY(TR_NEW(&order, f->n));
    uint64_t drawn = UINT64_MAX;
    for (size_t i = 0; i < m->descent->rows.n; i++) {
        struct tr_rng rng;
        if (number[i] / f->n != drawn) {
            drawn = number[i] / f->n;
            tr_rng_seed(&rng, m->seed, UINT32_MAX, drawn);
            tr_rng_permutation(&rng, order, f->n);
        }
        f->of[i] = order[number[i] % f->n];
    }
    free(order);
    return TR_OK;
}

/* What the rows outside of each fold weigh, of all. */
static int weigh(struct tr_linear *m)
{
    const struct tr_linear_descent *d = m->descent;
    const struct tr_descent_folds *f = &d->folds;
    for (size_t k = 0; k <= f->n; k++) f->share[k] = 0;
    for (size_t i = 0; i < d->rows.n; i++) f->share[f->of[i]] += tr_descent_weight(d, i);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, f->share, f->n + 1));
    for (size_t k = 0; k <= f->n; k++) {
        f->share[k] = 1 - f->share[k] / m->total_weight;
        if (k < f->n && !(f->share[k] > 0 && f->share[k] < 1))
            return tr_fail(TR_ERR_DATA, "solve.folds: fold %zu of %zu has all rows that count, or none",
                           k + 1, f->n);
    }
    return TR_OK;
}

int tr_descent_open_folds(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    uint64_t *number;
    if (f->n == 0) return TR_OK;
    TR_TRY(TR_NEW(&f->of, d->rows.n));
    TR_TRY(TR_NEW(&f->weight, d->rows.n));
    TR_TRY(TR_NEW(&f->share, f->n + 1));
    TR_TRY(TR_NEW(&number, m->train->rows.n));
    tr_data_numbers(m->train, number);
    int status = deal(m, number + tr_data_part_begin(m->train, me));
    free(number);
    return status == TR_OK ? weigh(m) : status;
}

void tr_descent_hold_out(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    double share = f->n > 0 ? f->share[f->lap] : 1;
    for (size_t i = 0; i < d->rows.n && f->n > 0; i++)
        f->weight[i] = f->of[i] == f->lap ? 0 : m->problem.weight ? m->problem.weight[d->first_row + i] : 1;
    if (f->n > 0) d->row_weight = f->weight;
    d->share = share;
    d->l2 = m->l2 * m->total_weight * share;
    d->bias_l2 = m->o->bias && m->o->bias_l2 ? d->l2 : 0;
}

/* ---- what a penalty is worth ---- */

int tr_descent_judge(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    double sums[2] = {0, 0}, *told = of_value(f, d->value);
    for (size_t i = 0; i < d->rows.n; i++) {
        if (f->of[i] != f->lap) continue;
        double weight = m->problem.weight ? (double)m->problem.weight[d->first_row + i] : 1;
        sums[0] += weight * m->loss->value(d->margin[i], (double)d->target[i], 0);
        sums[1] += weight;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sums, 2));
    told[f->lap] = sums[0] / sums[1];
    told[f->n + f->lap] = d->at.nonzeros;
    told[2 * f->n] = d->alpha / (m->total_weight * d->share);
    return TR_OK;
}

struct tr_descent_worth tr_descent_worth(const struct tr_descent_folds *f, size_t value)
{
    const double *told = of_value(f, value);
    struct tr_descent_worth worth = {.l1 = told[2 * f->n]};
    double squares = 0, n = (double)f->n;
    for (size_t k = 0; k < f->n; k++) worth.loss += told[k] / n, worth.nonzeros += told[f->n + k] / n;
    for (size_t k = 0; k < f->n; k++) squares += (told[k] - worth.loss) * (told[k] - worth.loss);
    worth.error = sqrt(squares / (n - 1) / n);
    return worth;
}

void tr_descent_choose_value(struct tr_descent_folds *f, size_t values)
{
    struct tr_descent_worth least = tr_descent_worth(f, f->least = 0), at;
    for (size_t i = 1; i < values; i++)
        if ((at = tr_descent_worth(f, i)).loss < least.loss) least = at, f->least = i;
    f->chosen = 0;
    while (tr_descent_worth(f, f->chosen).loss > least.loss + least.error) f->chosen++;
}

/* ---- what is told of it, after training: all ranks ---- */

static void say_value(const struct tr_linear *m, size_t value)
{
    const struct tr_descent_folds *f = &m->descent->folds;
    struct tr_descent_worth worth = tr_descent_worth(f, value);
    tr_say(m->tr, "  %-12.4g %10.1f   %.6g ± %.2g%s%s", worth.l1, worth.nonzeros, worth.loss, worth.error,
           value == f->least ? "   the least" : "", value == f->chosen ? "   chosen" : "");
}

int tr_descent_tell_folds(struct tr_linear *m)
{
    enum { LINES = 20 };
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    double chosen = d->chosen;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &chosen, 1));
    if (chosen == 0)
        return tr_fail(TR_ERR_DIVERGED,
                       "the folds are not done: give it more solve.epochs, or raise solve.target_gap");
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, f->told, d->values * numbers(f)));
    tr_descent_choose_value(f, d->values);
    tr_say(m->tr,
           "folds:         %zu; model.l1, weights that are not 0, loss of rows held out ± standard error",
           f->n);
    size_t every = (d->values + LINES - 1) / LINES;
    for (size_t i = 0; i < d->values; i++)
        if (i % every == 0 || i == f->least || i == f->chosen) say_value(m, i);
    tr_say(m->tr, "chosen:        the largest model.l1 whose loss is within a standard error of the least");
    struct tr_descent_worth worth = tr_descent_worth(f, f->chosen);
    TR_TRY(tr_report_figure(m->tr, "chosen_l1", worth.l1));
    TR_TRY(tr_report_figure(m->tr, "chosen_loss", worth.loss));
    TR_TRY(tr_report_figure(m->tr, "chosen_error", worth.error));
    worth = tr_descent_worth(f, f->least);
    TR_TRY(tr_report_figure(m->tr, "least_l1", worth.l1));
    return tr_report_figure(m->tr, "least_loss", worth.loss);
}

/* ---- opening, checkpoints, closing ---- */

int tr_descent_make_folds(struct tr_descent_folds *f, size_t n, size_t values)
{
    f->n = n;
    return TR_NEW(&f->told, n > 0 ? values * numbers(f) : 0);
}

/* What was told is the same at all workers: the first one's is kept. */
int tr_descent_keep_folds(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    double lap = (double)f->lap;
    if (f->n == 0) return TR_OK;
    TR_TRY(tr_snapshot_rows(snapshot, "lap", TR_F64, 1, 1, NULL, 0, has, &lap));
    TR_TRY(tr_snapshot_rows(snapshot, "folds", TR_F64, 1, d->values * numbers(f), NULL, 0, has, f->told));
    if (!restores || me->worker < 0) return TR_OK;
    f->lap = (size_t)lap;
    if (f->lap == f->n) tr_descent_choose_value(f, d->values);
    tr_descent_hold_out(m);
    return TR_OK;
}

void tr_descent_close_folds(struct tr_descent_folds *f)
{
    free(f->of);
    free(f->weight);
    free(f->share);
    free(f->told);
}
