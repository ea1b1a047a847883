/* Coordinate descent for penalties with |w|₁, by proximal Newton steps (newGLMNET, Yuan, Ho and Lin 2012).
 * A step minimises the quadratic model of the loss at the current weights, plus the penalty, over a working set of
 * columns in blocks (blocks.h). The set has the columns that are not 0 or whose gradient could let them leave 0. A line
 * search follows. Workers divide the rows; the gradient of each block is summed over the workers, and all of them
 * compute the same minimum. Steps and passes therefore do not depend on the number of workers.
 *
 * The gap is proven: the slopes of the losses, scaled until no column's gradient exceeds alpha, are a dual point (as in
 * the gap-safe rules of Fercoq, Gramfort and Salmon 2015). An unpenalised bias is minimised before each evaluation, so
 * the slopes sum to 0, as the dual requires. */
#define _GNU_SOURCE
#include "descent.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- folds ---- */

/* Cross-validation over the path of penalties. Each lap trains the whole path without the rows of one fold, and
 * measures the loss of these rows for each penalty. The final lap trains on all rows down to the chosen penalty: the
 * largest one whose mean held-out loss is within one standard error of the least (Breiman et al. 1984). Held-out rows
 * have weight 0. The fold of a row follows from the seed and the row number, for any number of ranks. */

/* A penalty, and the held-out loss: mean and standard error over the folds. */
struct folds_worth {
    double l1, nonzeros, loss, error;
};

/* Number of values stored for each penalty: loss and non-zeros of each fold, and model.l1. */
static size_t fold_numbers(const struct tr_descent_folds *f)
{
    return 2 * f->n + 1;
}

static double *fold_of_value(const struct tr_descent_folds *f, size_t value)
{
    return f->told + value * fold_numbers(f);
}

/* Distributes each n consecutive rows over the n folds in random order, and computes the share of the total weight outside of each
 * fold. */
static int folds_open(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    uint64_t *number, drawn = UINT64_MAX;
    uint32_t *order = NULL;
    if (f->n == 0) return TR_OK;
    TR_TRY(TR_NEW(&f->of, d->rows.n));
    TR_TRY(TR_NEW(&f->weight, d->rows.n));
    TR_TRY(TR_NEW(&f->share, f->n + 1));
    TR_TRY(TR_NEW(&number, m->train->rows.n));
    int status = TR_NEW(&order, f->n);
    tr_data_numbers(m->train, number);
    const uint64_t *own = number + tr_data_part_begin(m->train, me);
    for (size_t i = 0; i < d->rows.n && status == TR_OK; i++) {
        struct tr_rng rng;
        if (own[i] / f->n != drawn) {
            drawn = own[i] / f->n;
            tr_rng_seed(&rng, m->seed, UINT32_MAX, drawn);
            tr_rng_permutation(&rng, order, f->n);
        }
        f->of[i] = order[own[i] % f->n];
        f->share[f->of[i]] += tr_descent_weight(d, i);
    }
    free(order);
    free(number);
    TR_TRY(status);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, f->share, f->n + 1));
    for (size_t k = 0; k <= f->n; k++) {
        f->share[k] = 1 - f->share[k] / m->total_weight;
        if (k < f->n && !(f->share[k] > 0 && f->share[k] < 1))
            return tr_fail(TR_ERR_DATA, "solve.folds: fold %zu of %zu has all rows that count, or none",
                           k + 1, f->n);
    }
    return TR_OK;
}

static void folds_hold_out(struct tr_linear *m)
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

/* ---- the loss of held-out rows ---- */

static int folds_judge(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    double sums[2] = {0, 0}, *told = fold_of_value(f, d->value);
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

static struct folds_worth folds_worth(const struct tr_descent_folds *f, size_t value)
{
    const double *told = fold_of_value(f, value);
    struct folds_worth worth = {.l1 = told[2 * f->n]};
    double squares = 0, n = (double)f->n;
    for (size_t k = 0; k < f->n; k++) worth.loss += told[k] / n, worth.nonzeros += told[f->n + k] / n;
    for (size_t k = 0; k < f->n; k++) squares += (told[k] - worth.loss) * (told[k] - worth.loss);
    worth.error = sqrt(squares / (n - 1) / n);
    return worth;
}

static void folds_choose_value(struct tr_descent_folds *f, size_t values)
{
    struct folds_worth least = folds_worth(f, f->least = 0), at;
    for (size_t i = 1; i < values; i++)
        if ((at = folds_worth(f, i)).loss < least.loss) least = at, f->least = i;
    f->chosen = 0;
    while (folds_worth(f, f->chosen).loss > least.loss + least.error) f->chosen++;
}

/* ---- report after training: all ranks ---- */

static int folds_report(struct tr_linear *m)
{
    enum { LINES = 20 };
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    double chosen = d->chosen;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &chosen, 1));
    if (chosen == 0)
        return tr_fail(TR_ERR_DIVERGED,
                       "the folds are not done: give it more solve.epochs, or raise solve.target_gap");
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, f->told, d->values * fold_numbers(f)));
    folds_choose_value(f, d->values);
    tr_say(m->tr,
           "folds:         %zu; model.l1, weights that are not 0, loss of rows held out ± standard error",
           f->n);
    size_t every = (d->values + LINES - 1) / LINES;
    for (size_t i = 0; i < d->values; i++) {
        struct folds_worth at = folds_worth(f, i);
        if (i % every != 0 && i != f->least && i != f->chosen) continue;
        tr_say(m->tr, "  %-12.4g %10.1f   %.6g ± %.2g%s%s", at.l1, at.nonzeros, at.loss, at.error,
               i == f->least ? "   the least" : "", i == f->chosen ? "   chosen" : "");
    }
    tr_say(m->tr, "chosen:        the largest model.l1 whose loss is within a standard error of the least");
    struct folds_worth worth = folds_worth(f, f->chosen);
    TR_TRY(tr_report_figure(m->tr, "chosen_l1", worth.l1));
    TR_TRY(tr_report_figure(m->tr, "chosen_loss", worth.loss));
    TR_TRY(tr_report_figure(m->tr, "chosen_error", worth.error));
    worth = folds_worth(f, f->least);
    TR_TRY(tr_report_figure(m->tr, "least_l1", worth.l1));
    return tr_report_figure(m->tr, "least_loss", worth.loss);
}

/* ---- opening, checkpoints, closing ---- */

/* All workers have the same values; the first one saves them. */
static int folds_keep(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    double lap = (double)f->lap;
    if (f->n == 0) return TR_OK;
    TR_TRY(tr_snapshot_rows(snapshot, "lap", TR_F64, 1, 1, NULL, 0, has, &lap));
    TR_TRY(
        tr_snapshot_rows(snapshot, "folds", TR_F64, 1, d->values * fold_numbers(f), NULL, 0, has, f->told));
    if (!restores || me->worker < 0) return TR_OK;
    f->lap = (size_t)lap;
    if (f->lap == f->n) folds_choose_value(f, d->values);
    folds_hold_out(m);
    return TR_OK;
}

/* ---- the path of penalties ---- */

/* The regularisation path: the first penalty is the smallest for which all weights are 0, the last one is a thousandth
 * of it. Each penalty starts from the weights of the previous one. */

static double path_alpha(const struct tr_linear *m, size_t i)
{
    const struct tr_linear_descent *d = m->descent;
    const double last = 1e-3;
    if (d->values == 0) return m->o->l1 * m->problem.n;
    return d->share * d->first_alpha * (d->values > 1 ? pow(last, (double)i / (double)(d->values - 1)) : 1);
}

/* ---- the best penalty ---- */

static int path_remember(struct tr_linear *m, double metric)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_best *b = &d->best;
    const struct tr_descent_set *s = &d->set;
    free(b->key);
    free(b->weight);
    *b = (struct tr_descent_best){.metric = metric,
                                  .objective = tr_descent_objective(d),
                                  .distance = tr_descent_distance(d),
                                  .bias = d->bias,
                                  .nonzeros = d->at.nonzeros,
                                  .value = d->value + 1};
    TR_TRY(TR_NEW(&b->key, s->n));
    TR_TRY(TR_NEW(&b->weight, s->n));
    for (size_t j = 0; j < s->n; j++)
        if (s->weight[j] != 0) b->key[b->n] = s->key[j], b->weight[b->n++] = s->weight[j];
    return TR_OK;
}

/* Saves the weights of the penalty that the folds have chosen; without folds those with the best test metric; without
 * test data those of the last penalty. */
static int path_compare(struct tr_linear *m, const tr_report *report)
{
    struct tr_linear_descent *d = m->descent;
    tr_report all = *report;
    if (d->folds.n > 0) return d->value == d->folds.chosen ? path_remember(m, 0) : TR_OK;
    if (!m->test) return path_remember(m, 0);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, all.sum, TR_SUMS));
    double metric = tr_linear_test_metric(m, &all);
    bool better = tr_linear_classifies(m) ? metric > d->best.metric : metric < d->best.metric;
    return better || d->best.value == 0 ? path_remember(m, metric) : TR_OK;
}

static void path_choose(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_best *b = &d->best;
    d->chosen = true;
    d->bias = b->bias;
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t i = 0; i < b->n; i++) {
        uint32_t slot = tr_descent_slot(d, b->key[i]);
        if (slot != UINT32_MAX) d->weight[slot] = b->weight[i];
    }
}

/* ---- path.csv ---- */

static int path_write(const struct tr_linear *m)
{
    const struct tr_linear_descent *d = m->descent;
    const char *folder, *metric = tr_linear_metric(m);
    struct tr_target target;
    TR_TRY(tr_job_string(m->job, "output", &folder));
    int status = tr_target_open(&target, TR_TARGET_DURABLE, "%s/path.csv", folder);
    if (status == TR_OK) {
        fprintf(target.file, "l1,nonzeros,objective,gap%s%s%s\n", metric ? "," : "", metric ? metric : "",
                d->folds.n > 0 ? ",held_out_loss,standard_error" : "");
        for (size_t i = 0; i < d->values && (d->done[i].alpha > 0 || d->folds.n > 0); i++) {
            const struct tr_descent_value *v = &d->done[i];
            struct folds_worth worth = {0};
            if (d->folds.n > 0) worth = folds_worth(&d->folds, i);
            if (v->alpha > 0)
                fprintf(target.file, "%.9g,%.0f,%.9g,%.3g", v->alpha, v->nonzeros, v->objective, v->gap);
            else fprintf(target.file, "%.9g,,,", worth.l1); /* below the chosen penalty */
            if (metric && v->alpha > 0) fprintf(target.file, ",%.9g", v->metric);
            else if (metric) fputc(',', target.file);
            if (d->folds.n > 0) fprintf(target.file, ",%.9g,%.9g", worth.loss, worth.error);
            fputc('\n', target.file);
        }
    }
    return tr_target_close(&target, status);
}

/* ---- checkpoints ---- */

/* All workers have the same best weights; the first one saves them. */
static int path_keep(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_best *b = &d->best;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    double number[7] = {b->metric,   b->objective, b->distance,     b->bias,
                        b->nonzeros, (double)b->n, (double)b->value};
    if (d->values == 0) return TR_OK;
    TR_TRY(
        tr_snapshot_common(snapshot, "path", TR_F64, d->values * sizeof *d->done / sizeof(double), d->done));
    TR_TRY(tr_snapshot_rows(snapshot, "best", TR_F64, 1, 7, NULL, 0, has, number));
    size_t n = has ? (size_t)number[5] : 0;
    if (restores) {
        free(b->key);
        free(b->weight);
        *b = (struct tr_descent_best){.metric = number[0],
                                      .objective = number[1],
                                      .distance = number[2],
                                      .bias = number[3],
                                      .nonzeros = number[4],
                                      .n = n,
                                      .value = (size_t)number[6]};
        TR_TRY(TR_NEW(&b->key, n));
        TR_TRY(TR_NEW(&b->weight, n));
    }
    TR_TRY(tr_snapshot_rows(snapshot, "best_key", TR_I64, n, 1, NULL, 0, n, b->key));
    return tr_snapshot_rows(snapshot, "best_weight", TR_F64, n, 1, NULL, 0, n, b->weight);
}

/* ---- columns that can leave 0 ---- */

/* Sums for each column, which bound its gradient at all points whose objective is not above the first one: Σ |x|, Σ x²,
 * gradient at the start; and the number of rows that have the column. The result of the test replaces the first sum. */
enum { ABSOLUTES, SQUARES, GRADIENT, ENTRIES, SUMS };
enum { STAYS = -1, LEAVES };

/* Columns are accessed in random order, so their sums are prefetched this many entries ahead. */
enum { AHEAD = 24 };

static void screen_sum_columns(const struct tr_linear *m, double *sums)
{
    const tr_batch *rows = &m->problem.rows;
    uint64_t end = rows->begin[rows->n];
    for (size_t i = 0; i < rows->n; i++) {
        double weight = tr_descent_weight(m->descent, i), slope = m->descent->model[i].slope;
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            double x = rows->value ? (double)rows->value[k] : 1, *sum = sums + (size_t)rows->column[k] * SUMS;
            if (k + AHEAD < end) __builtin_prefetch(sums + (size_t)rows->column[k + AHEAD] * SUMS, 1);
            sum[ABSOLUTES] += weight * fabs(x);
            sum[SQUARES] += weight * x * x;
            sum[GRADIENT] += slope * x;
            sum[ENTRIES] += 1;
        }
    }
}

/* Returns whether the weight of a column is 0 for this alpha. |Σ x φ'| ≤ Σ |x| if |φ'| ≤ 1; and |Σ x φ'| ≤ |x| |φ'|
 * with |φ'|² ≤ 2 L Σ φ, because φ ≥ 0 and φ'' ≤ L. */
static bool screen_stays(const struct tr_linear *m, const double *sum, double alpha)
{
    double limit = sqrt(sum[SQUARES] * 2 * m->loss->most_curvature * m->descent->zeros_loss);
    if (m->loss->bounded_slope) limit = fmin(limit, sum[ABSOLUTES]);
    return limit * (1 + 1e-6) <= alpha;
}

/* Sums over the workers. The owners of the columns find those whose weights stay 0. If these columns have few of the
 * entries, removing them is not worth a copy of the rows, and all columns are kept. */
static int screen_columns(struct tr_linear *m, struct tr_columns *columns, double *local, double *own)
{
    const double few = 0.2;
    struct tr_linear_descent *d = m->descent;
    double most = 0, entries[2] = {0, 0}; /* of kept columns; of columns that stay 0 */
    screen_sum_columns(m, local);
    for (size_t j = 0; j < columns->local; j++) d->rows.entries[j] = (uint32_t)local[j * SUMS + ENTRIES];
    TR_TRY(tr_columns_sum(columns, local, own));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, &d->at.loss, 1));
    d->zeros_loss = d->at.loss + 0.5 * d->bias_l2 * d->bias * d->bias;
    for (size_t j = 0; j < columns->n; j++) most = fmax(most, fabs(own[j * SUMS + GRADIENT]));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, &most, 1));
    d->first_alpha = most;
    double least = path_alpha(m, d->values > 0 ? d->values - 1 : 0), share = 1;
    for (size_t k = 0; k < d->folds.n; k++) share = fmin(share, d->folds.share[k]);
    for (size_t j = 0; j < columns->n; j++) {
        double *sum = own + j * SUMS;
        bool is_zero = screen_stays(m, sum, share * least);
        entries[is_zero] += sum[ENTRIES];
        sum[0] = is_zero ? STAYS : LEAVES;
    }
    TR_TRY(tr_columns_sum_parts(columns, entries, 2));
    bool all = entries[1] < few * entries[0];
    for (size_t j = 0; all && j < columns->n; j++) own[j * SUMS] = LEAVES;
    return tr_columns_fetch(columns, own, local);
}

/* Renumbers the columns that can leave 0, and copies the rows without the others. If no column is removed, the rows of the data are
 * used in place. */
static int screen_open_rows(struct tr_linear *m, const double *local)
{
    const tr_batch *from = &m->problem.rows;
    struct tr_descent_rows *to = &m->descent->rows;
    uint32_t *number;
    uint64_t n = 0, first = from->begin[0];
    TR_TRY(TR_NEW(&number, m->train->n_keys));
    for (size_t j = 0; j < m->train->n_keys; j++) {
        number[j] = UINT32_MAX;
        if (local[j * SUMS] < 0) continue;
        m->descent->key[to->columns] = m->train->keys[j];
        to->entries[to->columns] = to->entries[j];
        n += to->entries[j];
        number[j] = (uint32_t)to->columns++;
    }
    bool all = to->columns == m->train->n_keys;
    int status = TR_OK;
    if (!all) status = TR_NEW(&to->own_column, n);
    if (status == TR_OK && (!all || !from->value)) status = TR_NEW(&to->own_value, n);
    to->column = all && from->column ? from->column + first : to->own_column;
    to->value = all && from->value ? from->value + first : to->own_value;
    n = 0;
    for (size_t i = 0; i < from->n && status == TR_OK; i++) {
        for (uint64_t k = from->begin[i]; k < from->begin[i + 1]; k++) {
            uint32_t j = number[from->column[k]];
            if (j == UINT32_MAX) continue;
            if (to->own_column) to->own_column[n] = j;
            if (to->own_value) to->own_value[n] = from->value ? from->value[k] : 1;
            n++;
        }
        to->begin[i + 1] = n;
    }
    free(number);
    return status;
}

/* Opens vectors of these columns, and lists the columns that this worker reports: those of its vectors, or a share of them if all
 * workers have the same vectors. */
static int screen_open_columns(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_columns *c = &d->shared;
    TR_TRY(tr_columns_open(c, m->tr, d->key, d->rows.columns, m->train->columns, 1));
    TR_TRY(TR_NEW(&d->partial, d->rows.columns));
    TR_TRY(TR_NEW(&d->gradient, c->n));
    TR_TRY(TR_NEW(&d->weight, c->n));
    TR_TRY(TR_NEW(&d->entries, c->n));
    TR_TRY(TR_NEW(&d->working, c->n));
    for (size_t j = 0; j < d->rows.columns; j++) d->partial[j] = (double)d->rows.entries[j];
    TR_TRY(tr_columns_sum(c, d->partial, d->entries));
    uint64_t rank = (uint64_t)tr_set_rank(m->tr, TR_SET_WORKERS),
             workers = (uint64_t)tr_set_size(m->tr, TR_SET_WORKERS);
    uint64_t first = c->whole ? c->n * rank / workers : 0,
             end = c->whole ? c->n * (rank + 1) / workers : c->n;
    TR_TRY(TR_NEW(&d->mine, end - first));
    for (uint64_t j = first; j < end; j++)
        if (d->entries[j] > 0) d->mine[d->n_mine++] = (uint32_t)j;
    return TR_OK;
}

static int screen_find_columns(struct tr_linear *m)
{
    struct tr_columns columns = {.n = 0};
    double *local = NULL, *own = NULL;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(TR_NEW(&d->key, m->train->n_keys));
    TR_TRY(TR_NEW(&d->rows.entries, m->train->n_keys));
    int status = tr_columns_open(&columns, m->tr, m->train->keys, m->train->n_keys, m->train->columns, SUMS);
    if (status == TR_OK) status = TR_NEW(&local, columns.local * SUMS);
    if (status == TR_OK) status = TR_NEW(&own, columns.n * SUMS);
    if (status == TR_OK) status = screen_columns(m, &columns, local, own);
    if (status == TR_OK) status = screen_open_rows(m, local);
    free(local);
    free(own);
    tr_columns_close(&columns);
    return status == TR_OK ? screen_open_columns(m) : status;
}

/* ---- checking ---- */

static int descent_check(const tr_job *job, const struct tr_linear_options *o)
{
    if (o->l1 == 0)
        return tr_linear_refuse(job, "model.l1",
                                "model.l1 is 0, but solve.method descent is for model.l1 > 0");
    if (o->l1 < 0 && o->target_gap == 0)
        return tr_linear_refuse(job, "solve.target_gap",
                                "model.l1 path starts the next penalty at solve.target_gap: expected > 0");
    if (o->l1 < 0 && *o->init)
        return tr_linear_refuse(job, "model.init",
                                "model.l1 path begins with the largest penalty, where weights are 0");
    if (!tr_job_is(job, "sync.mode", "bsp") && !tr_job_is(job, "sync.mode", "auto"))
        return tr_linear_refuse(job, "sync.mode",
                                "solve.method descent takes steps of all workers together: expected bsp");
    if (tr_job_is(job, "data.partition", "vertical"))
        return tr_linear_refuse(job, "data.partition",
                                "solve.method descent divides the rows: expected horizontal or replicated");
    if (o->folds == 1)
        return tr_linear_refuse(
            job, "solve.folds",
            "solve.folds is 1, which leaves no row to learn from: expected 0, or 2 or more");
    if (o->folds > 0 && tr_job_given(job, "solve.target"))
        return tr_linear_refuse(job, "solve.target",
                                "solve.target would end solve.folds before they are done: expected none");
    if (!tr_job_is(job, "table.filter", "none"))
        return tr_linear_refuse(job, "table.filter",
                                "solve.method descent writes whole weights: expected none");
    if (!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD)
        return tr_linear_refuse(job, "solve.method",
                                "sync.weight and solve.optimizer are for solve.method sgd");
    return TR_OK;
}

/* ---- preparing ---- */

/* Opens a view of the columns that this worker owns, at the last worker also of the bias; for model.init one of the columns of its
 * rows and the bias. */
static int descent_open_views(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    bool last = tr_set_rank(m->tr, TR_SET_WORKERS) + 1 == tr_set_size(m->tr, TR_SET_WORKERS);
    size_t n = d->rows.columns;
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, tr_max_size(d->n_mine, n) + 1));
    for (size_t i = 0; i < d->n_mine; i++) keys[i] = d->shared.first + d->mine[i];
    keys[d->n_mine] = m->train->columns;
    int status = tr_view_open(m->w, keys, d->n_mine + (m->o->bias && last), TR_VIEW_UPDATE, &d->view);
    memcpy(keys, d->key, n * sizeof *keys);
    keys[n] = m->train->columns;
    if (status == TR_OK && m->initial)
        status = tr_view_open(m->w, keys, n + m->o->bias, TR_VIEW_READ, &d->initial);
    free(keys);
    return status;
}

/* If all members of a group have the same rows, each member processes a share of them. */
static int descent_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool bias = tr_linear_has_bias(m, me);
    TR_TRY(tr_linear_set_problem(m, bias, m->train, &m->problem, &m->target));
    size_t rows = m->problem.rows.n, first = tr_data_part_begin(m->train, me);
    d->first_row = first;
    d->rows.n = m->problem.rows.n = tr_data_part_end(m->train, me) - first;
    m->problem.rows.begin += first;
    d->target = m->target + first;
    d->row_weight = m->problem.weight ? m->problem.weight + first : NULL;
    TR_TRY(TR_NEW(&d->all_margins, rows));
    d->margin = d->all_margins + first;
    for (size_t i = 0; i < rows; i++) /* NaN: rows of other members */
        d->all_margins[i] = i >= first && i < first + d->rows.n ? 0 : (double)NAN;
    TR_TRY(TR_NEW(&d->rows.begin, d->rows.n + 1));
    TR_TRY(TR_NEW(&d->model, d->rows.n));
    TR_TRY(TR_NEW(&d->probe, d->rows.n));
    TR_TRY(tr_descent_minimise_bias(m));
    TR_TRY(tr_descent_model_rows(m));
    TR_TRY(folds_open(me, m));
    TR_TRY(screen_find_columns(m));
    TR_TRY(descent_open_views(m));
    folds_hold_out(m);
    if (d->folds.n > 0) TR_TRY(tr_descent_minimise_bias(m));
    d->alpha = path_alpha(m, 0);
    if (!m->test) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view));
    return tr_linear_set_problem(m, bias, m->test, &m->test_problem, &m->test_target);
}

/* ---- the stage ---- */

/* Pushes the differences between the weights and the table. */
static int descent_push(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const tr_view *view = d->view;
    for (size_t j = 0; j < view->n; j++) {
        double x = j < d->n_mine ? d->weight[d->mine[j]] : d->bias;
        if (m->o->dtype == TR_F32) ((float *)view->delta)[j] = (float)x - ((const float *)view->value)[j];
        else ((double *)view->delta)[j] = x - ((const double *)view->value)[j];
    }
    return tr_view_push(d->view);
}

static bool descent_is_proven(const struct tr_linear *m)
{
    return tr_descent_gap(m->descent) <= m->o->target_gap;
}

/* Moves to the next penalty. The gradient of the loss remains valid. */
static int descent_next_alpha(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double last = d->alpha;
    d->alpha = path_alpha(m, ++d->value);
    /* the sequential strong rule (Tibshirani et al. 2012): no gradient is expected to change by more than alpha */
    d->margin_of_zeros = last - d->alpha;
    d->dual = -INFINITY;
    d->steps = 1;
    return tr_descent_look_at_penalty(m);
}

/* model.init: reads the weights from the table and computes the margins. */
static int descent_read_initial(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_rows *rows = &d->rows;
    TR_TRY(tr_view_pull(d->initial));
    for (size_t j = 0; j < d->n_mine; j++)
        d->weight[d->mine[j]] = tr_real_get((enum tr_dtype)m->o->dtype, d->view->value, j);
    d->bias = m->o->bias ? tr_real_get((enum tr_dtype)m->o->dtype, d->initial->value, rows->columns) : 0;
    for (size_t i = 0; i < rows->n; i++) {
        d->margin[i] = d->bias;
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            d->margin[i] += tr_real_get((enum tr_dtype)m->o->dtype, d->initial->value, rows->column[k]) *
                            (double)rows->value[k];
    }
    tr_view_close(&d->initial);
    return tr_descent_minimise_bias(m);
}

/* Restarts the path for the next fold. */
static int descent_next_fold(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    if (++d->folds.lap == d->folds.n) folds_choose_value(&d->folds, d->values);
    folds_hold_out(m);
    tr_descent_clear_set(d);
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t i = 0; i < d->rows.n; i++) d->margin[i] = 0;
    d->bias = d->margin_of_zeros = 0;
    d->dual = -INFINITY;
    d->steps = 0;
    d->value = 0;
    d->alpha = path_alpha(m, 0);
    TR_TRY(tr_descent_minimise_bias(m));
    return tr_descent_look(m);
}

static bool descent_is_last_lap(const struct tr_linear_descent *d)
{
    return d->folds.lap == d->folds.n;
}

/* Takes one step, unless the last penalty is complete. */
static int descent_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_view_pull(d->view));
    if (me->clock == 0 && d->initial) TR_TRY(descent_read_initial(m));
    if (!d->known) TR_TRY(tr_descent_look(m));
    bool done = d->values > 0 && d->told && descent_is_proven(m);
    size_t last = d->folds.n > 0 && descent_is_last_lap(d) ? d->folds.chosen : d->values - 1;
    if (done && d->value < last) TR_TRY(descent_next_alpha(m));
    else if (done && !descent_is_last_lap(d)) TR_TRY(descent_next_fold(m));
    else if (done) path_choose(m);
    if (!descent_is_proven(m)) TR_TRY(tr_descent_step(m));
    return descent_push(m);
}

/* Sums that the first worker reports in addition to those of the class. */
enum { GAP = TR_SUMS - 6, NONZEROS, PASSES, DONE /* negative: -lacking */, ALPHA, CHOSEN };

static int descent_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool done = d->values > 0 && !d->chosen && descent_is_proven(m);
    TR_TRY(tr_view_pull(d->view)); /* all pushes have been applied */
    if (me->worker == 0) {         /* values of a part of the rows are scaled to all rows */
        tr_linear_report_loss(report, d->chosen ? d->best.objective : tr_descent_objective(d) / d->share);
        report->sum[GAP] = (d->chosen ? d->best.distance : tr_descent_distance(d) / d->share) / m->problem.n;
        report->sum[NONZEROS] = d->chosen ? d->best.nonzeros : d->at.nonzeros;
        report->sum[PASSES] = d->passes;
        report->sum[DONE] = d->lacking > 0                   ? -d->lacking
                            : done && descent_is_last_lap(d) ? (double)d->value + 1
                                                             : 0;
        report->sum[ALPHA] = d->alpha / (m->problem.n * d->share);
        report->sum[CHOSEN] = d->chosen;
    }
    if (m->test) TR_TRY(tr_linear_report_test(me, m, m->test_view, report));
    d->told = true;
    if (!done) return TR_OK;
    return descent_is_last_lap(d) ? path_compare(m, report) : folds_judge(m);
}

static int descent_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    tr_linear_prove(m, report->sum[GAP], true, evaluation);
    d->nonzeros = report->sum[NONZEROS];
    d->all_passes = evaluation->epoch = report->sum[PASSES];
    bool spent = -report->sum[DONE] > d->most_passes;
    if (d->values > 0) evaluation->stop = report->sum[CHOSEN] > 0;
    evaluation->stop = evaluation->stop || spent;
    if (d->values == 0 || !(report->sum[DONE] > 0)) return TR_OK;
    d->done[(size_t)report->sum[DONE] - 1] = (struct tr_descent_value){.alpha = report->sum[ALPHA],
                                                                       .nonzeros = d->nonzeros,
                                                                       .objective = evaluation->objective,
                                                                       .gap = evaluation->gap,
                                                                       .metric = evaluation->metric};
    return TR_OK;
}

/* ---- checkpoints ---- */

/* Rebuilds the set from its keys, weights and block sizes. */
static int descent_restore_set(struct tr_linear_descent *d, const int64_t *key, const double *weight,
                               const int64_t *block_columns, size_t blocks)
{
    size_t at = 0;
    tr_descent_clear_set(d);
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t b = 0; b < blocks; at += (size_t)block_columns[b++])
        TR_TRY(tr_descent_add_columns(d, (const tr_key *)key + at, weight + at, (size_t)block_columns[b]));
    for (size_t j = 0; j < d->set.n; j++)
        if (d->set.slot[j] != UINT32_MAX) d->weight[d->set.slot[j]] = weight[j];
    d->known = false;
    return TR_OK;
}

/* All workers have the same set; the first one saves it. */
static int descent_keep_set(tr_worker *me, struct tr_linear_descent *d, tr_snapshot *snapshot, int64_t n,
                            int64_t blocks)
{
    const struct tr_descent_set *s = &d->set;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    int64_t *key = NULL, *columns = NULL;
    double *weight = NULL;
    size_t rows = has ? (size_t)n : 0, parts = has ? (size_t)blocks : 0;
    int status = TR_NEW(&key, rows);
    if (status == TR_OK) status = TR_NEW(&weight, rows);
    if (status == TR_OK) status = TR_NEW(&columns, parts);
    for (size_t j = 0; status == TR_OK && !restores && j < rows; j++)
        key[j] = (int64_t)s->key[j], weight[j] = s->weight[j];
    for (size_t b = 0; status == TR_OK && !restores && b < parts; b++) columns[b] = (int64_t)s->block[b].n;
    if (status == TR_OK)
        status = tr_snapshot_rows(snapshot, "set", TR_I64, (uint64_t)n, 1, NULL, 0, rows, key);
    if (status == TR_OK)
        status = tr_snapshot_rows(snapshot, "set_weight", TR_F64, (uint64_t)n, 1, NULL, 0, rows, weight);
    if (status == TR_OK)
        status =
            tr_snapshot_rows(snapshot, "set_blocks", TR_I64, (uint64_t)blocks, 1, NULL, 0, parts, columns);
    if (status == TR_OK && restores && has) status = descent_restore_set(d, key, weight, columns, parts);
    free(key);
    free(weight);
    free(columns);
    return status;
}

/* Values that follow from margins and weights are not saved. */
static int descent_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *s = &d->set;
    enum { NUMBERS = 9 };
    double number[NUMBERS] = {(double)s->n, (double)s->blocks,  d->bias,
                              d->dual,      d->margin_of_zeros, (double)d->value,
                              d->passes,    d->chosen,          (double)d->steps};
    double scheduler[2] = {d->nonzeros, d->all_passes};
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "reported", TR_F64, 2, scheduler));
    TR_TRY(tr_snapshot_rows(snapshot, "numbers", TR_F64, 1, NUMBERS, NULL, 0, me->worker >= 0, number));
    TR_TRY(descent_keep_set(me, d, snapshot, (int64_t)number[0], (int64_t)number[1]));
    TR_TRY(tr_data_keep(m->train, snapshot, "margin", TR_F64, d->all_margins));
    TR_TRY(path_keep(me, m, snapshot));
    TR_TRY(folds_keep(me, m, snapshot));
    if (!tr_snapshot_restores(snapshot)) return TR_OK;
    d->bias = number[2];
    d->dual = number[3];
    d->margin_of_zeros = number[4];
    d->value = (size_t)number[5];
    d->passes = number[6];
    d->chosen = number[7] > 0;
    d->steps = (int)number[8];
    d->told = true;
    d->nonzeros = scheduler[0];
    d->all_passes = scheduler[1];
    if (me->worker < 0) return TR_OK;
    d->alpha = path_alpha(m, d->value);
    d->drift = 0;
    return tr_descent_find_margins(d, false); /* of rows that another member had before the restart */
}

/* ---- the method ---- */

static int descent_open(struct tr_linear *m)
{
    struct tr_linear_descent *d;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->descent, 1)));
    d = m->descent;
    if (m->o->l2 == TR_JOB_AUTO) m->l2 = 0;
    d->l2 = m->l2 * m->total_weight;
    d->bias_l2 = m->o->bias && m->o->bias_l2 ? d->l2 : 0;
    d->dual = -INFINITY;
    d->share = 1;
    d->values = m->o->l1 < 0 ? m->o->path : 0;
    d->folds.n = (size_t)m->o->folds;
    m->clocks_per_epoch = 1;
    TR_TRY(tr_agree(m->tr, TR_NEW(&d->folds.told, d->folds.n > 0 ? d->values * fold_numbers(&d->folds) : 0)));
    d->most_passes = (double)m->epochs * (double)(d->values > 0 ? d->values * (d->folds.n + 1) : 1);
    return tr_agree(m->tr, TR_NEW(&d->done, d->values));
}

static int descent_train(struct tr_linear *m)
{
    enum { LEAST = 3 };
    const struct tr_linear_descent *d = m->descent;
    tr_stage train = tr_linear_stage(m);
    if (m->epochs < LEAST)
        return tr_agree(
            m->tr, tr_fail(TR_ERR_CONFIG,
                           "%s: solve.epochs is %lld, but a step of descent takes up to %d passes over the "
                           "rows: set %d or more",
                           tr_job_where(m->job, "solve.epochs"), (long long)m->epochs, LEAST, LEAST));
    train.clocks = (int64_t)d->most_passes; /* each step takes more than one pass */
    train.evaluate_every = d->values > 0 ? 1 : m->report_every;
    train.epochs_per_clock = 1;
    train.prepare = descent_prepare;
    train.compute = descent_compute;
    train.evaluate = descent_evaluate;
    train.summarize = descent_summarize;
    train.snapshot = descent_snapshot;
    TR_TRY(tr_run(m->tr, &train));
    tr_say(m->tr, "non-zeros:     %.0f of %llu weights, after %.1f passes over the data", d->nonzeros,
           (unsigned long long)m->train->columns, d->all_passes);
    TR_TRY(tr_report_figure(m->tr, "nonzero_weights", d->nonzeros));
    TR_TRY(tr_report_figure(m->tr, "passes", d->all_passes));
    if (d->folds.n > 0) TR_TRY(tr_agree(m->tr, folds_report(m)));
    bool writes = d->values > 0 && (tr_roles(m->tr) & TR_SCHEDULER);
    return tr_agree(m->tr, writes ? path_write(m) : TR_OK);
}

static void descent_close(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    if (!d) return;
    tr_descent_clear_set(d);
    tr_columns_close(&d->shared);
    tr_view_close(&d->view);
    tr_view_close(&d->initial);
    void *arrays[] = {d->probe,
                      d->mine,
                      d->rows.entries,
                      d->rows.begin,
                      d->rows.own_column,
                      d->rows.own_value,
                      d->key,
                      d->all_margins,
                      d->model,
                      d->partial,
                      d->gradient,
                      d->weight,
                      d->entries,
                      d->working,
                      d->set.key,
                      d->set.weight,
                      d->set.next,
                      d->set.column,
                      d->folds.of,
                      d->folds.weight,
                      d->folds.share,
                      d->folds.told,
                      d->set.slot,
                      d->set.block,
                      d->done,
                      d->best.key,
                      d->best.weight,
                      d};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    m->descent = NULL;
}

/* The quadratic model needs the curvature, the gap needs the conjugate. Shape parameters are not supported. */
static bool descent_minimises(const struct tr_loss *loss)
{
    return loss->conjugate && isfinite(loss->most_curvature) && loss->shape == TR_SHAPE_NONE;
}

const struct tr_linear_method tr_linear_descent = {.check = descent_check,
                                                   .sparse_rows = true,
                                                   .open = descent_open,
                                                   .train = descent_train,
                                                   .close = descent_close,
                                                   .weighs_rows = true,
                                                   .minimises = descent_minimises,
                                                   .diverged = "raise model.l1 or model.l2"};
