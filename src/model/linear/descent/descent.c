/* Coordinate descent for penalties with |w|₁, by proximal Newton steps (newGLMNET, Yuan, Ho and Lin 2012). A step minimises the
 * quadratic model of the loss at the current weights, plus the penalty, over a working set of columns, in blocks (descent.h). The
 * set has the columns whose weight is not 0, and those whose gradient is so large that their weight could leave 0. A line search
 * follows. Workers divide the rows. The gradient of each block is summed over the workers, and every worker computes the same
 * minimum. Steps and passes therefore do not depend on the number of workers.
 *
 * The gap is proven: if the slopes of the losses are scaled until no column's gradient exceeds alpha, they are feasible dual
 * variables (as in the gap-safe rules of Fercoq, Gramfort and Salmon 2015). A bias without penalty is minimised before each
 * evaluation, so that the slopes sum to 0, as the dual requires. */
#define _GNU_SOURCE
#include "descent.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- folds ---- */

/* Cross-validation over the path of penalties. The rows are divided into folds. Each lap trains the whole path without the rows of
 * one fold, which have weight 0 (are held out), and measures the loss of these rows for each penalty. The final lap trains on all
 * rows down to the chosen penalty: the largest penalty whose mean held-out loss is within one standard error of the least (Breiman
 * et al. 1984). The fold of a row follows from the seed and the row number, for any number of ranks. */

/* Results for a penalty: model.l1; mean number of non-zeros; mean and standard error of the held-out loss over the folds. */
struct folds_mean {
    double l1, nonzeros, loss, error;
};

/* Returns the part of f->results for one penalty: loss of each fold, non-zeros of each fold, model.l1. */
static double *folds_numbers(const struct tr_descent_folds *f, size_t value)
{
    return f->results + value * (2 * f->n + 1);
}

/* Assigns each n consecutive rows to the n folds in random order, and computes the fraction of the weight outside each fold. */
static int folds_open(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    uint64_t drawn = UINT64_MAX;
    TR_FREED uint64_t *number = NULL;
    TR_FREED uint32_t *order = NULL;
    if (f->n == 0) return TR_OK;
    TR_TRY(TR_NEW(&f->of, d->rows.n));
    TR_TRY(TR_NEW(&f->weight, d->rows.n));
    TR_TRY(TR_NEW(&f->share, f->n + 1));
    TR_TRY(TR_NEW(&number, m->train->rows.n));
    TR_TRY(TR_NEW(&order, f->n));
    tr_data_numbers(m->train, number);
    const uint64_t *own = number + tr_data_part_begin(m->train, me);
    for (size_t i = 0; i < d->rows.n; i++) {
        struct tr_rng rng;
        if (own[i] / f->n != drawn) {
            drawn = own[i] / f->n;
            tr_rng_seed(&rng, m->seed, UINT32_MAX, drawn);
            tr_rng_permutation(&rng, order, f->n);
        }
        f->of[i] = order[own[i] % f->n];
        f->share[f->of[i]] += tr_descent_weight(d, i);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, f->share, f->n + 1));
    for (size_t k = 0; k <= f->n; k++) {
        f->share[k] = 1 - f->share[k] / m->total_weight;
        if (k < f->n && !(f->share[k] > 0 && f->share[k] < 1))
            return tr_fail(TR_ERR_DATA, "solve.folds: fold %zu of %zu has all rows that count, or none",
                           k + 1, f->n);
    }
    return TR_OK;
}

/* Sets the weights of rows and the penalties for the current lap. */
static void folds_hold_out(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_folds *f = &d->folds;
    for (size_t i = 0; i < d->rows.n && f->n > 0; i++)
        f->weight[i] = f->of[i] == f->lap ? 0 : m->problem.weight ? m->problem.weight[d->first_row + i] : 1;
    if (f->n > 0) d->row_weight = f->weight;
    d->share = f->n > 0 ? f->share[f->lap] : 1;
    d->l2 = m->l2 * m->total_weight * d->share;
    d->bias_l2 = m->o->bias && m->o->bias_l2 ? d->l2 : 0;
}

static struct folds_mean folds_mean(const struct tr_descent_folds *f, size_t value)
{
    const double *results = folds_numbers(f, value);
    struct folds_mean mean = {.l1 = results[2 * f->n]};
    double squares = 0, n = (double)f->n;
    for (size_t k = 0; k < f->n; k++) mean.loss += results[k] / n, mean.nonzeros += results[f->n + k] / n;
    for (size_t k = 0; k < f->n; k++) squares += (results[k] - mean.loss) * (results[k] - mean.loss);
    mean.error = sqrt(squares / (n - 1) / n);
    return mean;
}

/* Sets f->least and f->chosen from the results of all laps but the final one. */
static void folds_choose_value(struct tr_descent_folds *f, size_t values)
{
    struct folds_mean least = folds_mean(f, f->least = 0), at;
    for (size_t i = 1; i < values; i++)
        if ((at = folds_mean(f, i)).loss < least.loss) least = at, f->least = i;
    f->chosen = 0;
    while (folds_mean(f, f->chosen).loss > least.loss + least.error) f->chosen++;
}

/* Prints the results of the folds, and adds the chosen penalty to summary.json. All ranks, after training. */
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
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, f->results, d->values * (2 * f->n + 1)));
    folds_choose_value(f, d->values);
    tr_say(m->tr,
           "folds:         %zu; model.l1, weights that are not 0, loss of rows held out ± standard error",
           f->n);
    size_t every = (d->values + LINES - 1) / LINES;
    for (size_t i = 0; i < d->values; i++) {
        struct folds_mean at = folds_mean(f, i);
        if (i % every != 0 && i != f->least && i != f->chosen) continue;
        tr_say(m->tr, "  %-12.4g %10.1f   %.6g ± %.2g%s%s", at.l1, at.nonzeros, at.loss, at.error,
               i == f->least ? "   the least" : "", i == f->chosen ? "   chosen" : "");
    }
    tr_say(m->tr, "chosen:        the largest model.l1 whose loss is within a standard error of the least");
    struct folds_mean mean = folds_mean(f, f->chosen);
    TR_TRY(tr_report_figure(m->tr, "chosen_l1", mean.l1));
    TR_TRY(tr_report_figure(m->tr, "chosen_loss", mean.loss));
    TR_TRY(tr_report_figure(m->tr, "chosen_error", mean.error));
    mean = folds_mean(f, f->least);
    TR_TRY(tr_report_figure(m->tr, "least_l1", mean.l1));
    return tr_report_figure(m->tr, "least_loss", mean.loss);
}

/* ---- the path of penalties ---- */

/* The regularisation path. The first penalty is the smallest one for which all weights are 0, the last penalty is a thousandth of
 * the first. Each penalty starts from the weights of the previous penalty. */

/* Returns alpha for penalty i of the path; without a path for model.l1. */

static double path_alpha(const struct tr_linear *m, size_t i)
{
    const struct tr_linear_descent *d = m->descent;
    const double last = 1e-3;
    if (d->values == 0) return m->o->l1 * m->problem.n;
    return d->share * d->first_alpha * (d->values > 1 ? pow(last, (double)i / (double)(d->values - 1)) : 1);
}

/* Copies the current weights to d->best. */
static int path_remember(struct tr_linear *m, double metric)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_best *b = &d->best;
    const struct tr_descent_set *s = &d->set;
    size_t n = 0;
    TR_FREE_ALL(b->key, b->weight);
    *b = (struct tr_descent_best){.of = {.metric = metric,
                                         .objective = tr_descent_objective(d),
                                         .distance = tr_descent_distance(d),
                                         .bias = d->bias,
                                         .nonzeros = d->at.nonzeros,
                                         .value = (double)d->value + 1}};
    TR_TRY(TR_NEW(&b->key, s->n));
    TR_TRY(TR_NEW(&b->weight, s->n));
    for (size_t j = 0; j < s->n; j++)
        if (s->weight[j] != 0) b->key[n] = s->key[j], b->weight[n++] = s->weight[j];
    b->of.n = (double)n;
    return TR_OK;
}

/* Writes path.csv. */
static int path_write(const struct tr_linear *m)
{
    const struct tr_linear_descent *d = m->descent;
    const char *folder, *metric = m->test ? tr_test_metrics_first(&m->metrics) : NULL;
    bool folds = d->folds.n > 0;
    struct tr_target target;
    TR_TRY(tr_job_string(m->job, "output", &folder));
    TR_TRY(tr_target_open(&target, TR_TARGET_DURABLE, "%s/path.csv", folder));
    fprintf(target.file, "l1,nonzeros,objective,gap%s%s%s\n", metric ? "," : "", metric ? metric : "",
            folds ? ",held_out_loss,standard_error" : "");
    for (size_t i = 0; i < d->values && (d->done[i].alpha > 0 || folds); i++) {
        const struct tr_descent_value *v = &d->done[i];
        struct folds_mean mean = {0};
        if (folds) mean = folds_mean(&d->folds, i);
        if (v->alpha > 0)
            fprintf(target.file, "%.9g,%.0f,%.9g,%.3g", v->alpha, v->nonzeros, v->objective, v->gap);
        /* the final lap has no result, because it ended at a larger penalty */
        else fprintf(target.file, "%.9g,,,", mean.l1);
        if (metric && v->alpha > 0) fprintf(target.file, ",%.9g", v->metric);
        else if (metric) fputc(',', target.file);
        if (folds) fprintf(target.file, ",%.9g,%.9g", mean.loss, mean.error);
        fputc('\n', target.file);
    }
    return tr_target_close(&target, TR_OK);
}

/* For snapshots: lists the path and the folds. All workers have the same best weights and results; worker 0 saves them. */
static int path_keep(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot)
{
    enum { NUMBERS = sizeof(((struct tr_descent_best *)NULL)->of) / sizeof(double) };
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_best *b = &d->best;
    struct tr_descent_folds *f = &d->folds;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    double lap = (double)f->lap;
    if (d->values == 0) return TR_OK;
    TR_TRY(
        tr_snapshot_common(snapshot, "path", TR_F64, d->values * sizeof *d->done / sizeof(double), d->done));
    TR_TRY(tr_snapshot_rows(snapshot, "best", TR_F64, 1, NUMBERS, NULL, 0, has, &b->of));
    size_t n = has ? (size_t)b->of.n : 0, numbers = d->values * (2 * f->n + 1);
    if (restores) {
        TR_FREE_ALL(b->key, b->weight);
        b->key = NULL;
        b->weight = NULL;
        TR_TRY(TR_NEW(&b->key, n));
        TR_TRY(TR_NEW(&b->weight, n));
    }
    TR_TRY(tr_snapshot_rows(snapshot, "best_key", TR_I64, n, 1, NULL, 0, n, b->key));
    TR_TRY(tr_snapshot_rows(snapshot, "best_weight", TR_F64, n, 1, NULL, 0, n, b->weight));
    if (f->n == 0) return TR_OK;
    TR_TRY(tr_snapshot_rows(snapshot, "lap", TR_F64, 1, 1, NULL, 0, has, &lap));
    TR_TRY(tr_snapshot_rows(snapshot, "folds", TR_F64, 1, numbers, NULL, 0, has, f->results));
    if (!restores || me->worker < 0) return TR_OK;
    f->lap = (size_t)lap;
    if (f->lap == f->n) folds_choose_value(f, d->values);
    folds_hold_out(m);
    return TR_OK;
}

/* ---- columns that can leave 0 ---- */

/* Four sums for each column: Σ |x|, Σ x², the gradient at zero weights, and the number of rows that have the column. They bound the
 * gradient at all weights whose objective is at most that of zero weights. A column with a small bound has weight 0 at all
 * penalties (STAYS), the others may leave 0 (LEAVES). This result replaces Σ |x|. */
enum { ABSOLUTES, SQUARES, GRADIENT, ENTRIES, SUMS };
enum { STAYS = -1, LEAVES };

/* Columns are accessed in random order, so their sums are prefetched this many entries ahead. */
enum { AHEAD = 24 };

/* Computes the sums of the columns. Their owners find the columns that stay 0 by two bounds of the gradient: |Σ x φ'| is at most Σ
 * |x| if |φ'| ≤ 1, and at most |x| |φ'| with |φ'|² ≤ 2 L Σ φ, because φ ≥ 0 and φ'' ≤ L. If these columns have few of the entries,
 * removing them is not worth a copy of the rows, and all columns are kept. The result replaces the first sum in `local`. */
static int screen_columns(struct tr_linear *m, struct tr_columns *columns, double *local, double *own)
{
    const double few = 0.2;
    struct tr_linear_descent *d = m->descent;
    const tr_batch *rows = &m->problem.rows;
    /* entries: number of entries of columns that may leave 0, and of columns that stay 0 */
    double most = 0, entries[2] = {0, 0};
    for (size_t i = 0; i < rows->n; i++) {
        double weight = tr_descent_weight(d, i), slope = d->model[i].slope;
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            double x = rows->value ? (double)rows->value[k] : 1,
                   *sum = local + (size_t)rows->column[k] * SUMS;
            if (k + AHEAD < rows->begin[rows->n])
                __builtin_prefetch(local + (size_t)rows->column[k + AHEAD] * SUMS, 1);
            sum[ABSOLUTES] += weight * fabs(x);
            sum[SQUARES] += weight * x * x;
            sum[GRADIENT] += slope * x;
            sum[ENTRIES] += 1;
        }
    }
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
        double limit = sqrt(sum[SQUARES] * 2 * m->loss->most_curvature * d->zeros_loss);
        if (m->loss->bounded_slope) limit = fmin(limit, sum[ABSOLUTES]);
        bool is_zero = limit * (1 + 1e-6) <= share * least;
        entries[is_zero] += sum[ENTRIES];
        sum[0] = is_zero ? STAYS : LEAVES;
    }
    TR_TRY(tr_columns_sum_parts(columns, entries, 2));
    bool all = entries[1] < few * entries[0];
    for (size_t j = 0; all && j < columns->n; j++) own[j * SUMS] = LEAVES;
    return tr_columns_fetch(columns, own, local);
}

/* Numbers the columns that can leave 0, and copies the rows without other columns. If no column is removed, the rows of the data
 * are used in place. */
static int screen_open_rows(struct tr_linear *m, const double *local)
{
    const tr_batch *from = &m->problem.rows;
    struct tr_descent_rows *to = &m->descent->rows;
    TR_FREED uint32_t *number = NULL;
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
    if (!all) TR_TRY(TR_NEW(&to->own_column, n));
    if (!all || !from->value) TR_TRY(TR_NEW(&to->own_value, n));
    to->column = all && from->column ? from->column + first : to->own_column;
    to->value = all && from->value ? from->value + first : to->own_value;
    n = 0;
    for (size_t i = 0; i < from->n; i++) {
        for (uint64_t k = from->begin[i]; k < from->begin[i + 1]; k++) {
            uint32_t j = number[from->column[k]];
            if (j == UINT32_MAX) continue;
            if (to->own_column) to->own_column[n] = j;
            if (to->own_value) to->own_value[n] = from->value ? from->value[k] : 1;
            n++;
        }
        to->begin[i + 1] = n;
    }
    return TR_OK;
}

/* Finds the columns that can leave 0, and sets d->rows and d->key. */
static int screen_find_columns(struct tr_linear *m)
{
    TR_CLOSED_BY(tr_columns_close) struct tr_columns all = {.n = 0};
    TR_FREED double *local = NULL;
    TR_FREED double *own = NULL;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(TR_NEW(&d->key, m->train->n_keys));
    TR_TRY(TR_NEW(&d->rows.entries, m->train->n_keys));
    TR_TRY(tr_columns_open(&all, m->tr, m->train->keys, m->train->n_keys, m->train->columns, SUMS));
    TR_TRY(TR_NEW(&local, all.local * SUMS));
    TR_TRY(TR_NEW(&own, all.n * SUMS));
    TR_TRY(screen_columns(m, &all, local, own));
    return screen_open_rows(m, local);
}

/* Opens the vectors over all columns, and lists d->mine: the columns that this worker owns; if all workers own all columns, an
 * equal part of them. */
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

/* ---- checking ---- */

static int descent_check(const tr_job *job, const struct tr_linear_options *o)
{
    const struct tr_refusal list[] = {
        {o->l1 == 0, "model.l1", "model.l1 is 0, but solve.method descent is for model.l1 > 0"},
        {o->l1 < 0 && o->target_gap == 0, "solve.target_gap",
         "model.l1 path starts the next penalty at solve.target_gap: expected > 0"},
        {o->l1 < 0 && *o->init, "model.init",
         "model.l1 path begins with the largest penalty, where weights are 0"},
        {!tr_job_is(job, "sync.mode", "bsp"), "sync.mode",
         "solve.method descent takes steps of all workers together: expected bsp"},
        {tr_job_is(job, "data.partition", "vertical"), "data.partition",
         "solve.method descent divides the rows: expected horizontal or replicated"},
        {o->folds == 1, "solve.folds",
         "solve.folds is 1, which leaves no row to learn from: expected 0, or 2 or more"},
        {o->folds > 0 && (tr_job_given(job, "data.group") || tr_job_given(job, "data.time")), "solve.folds",
         "solve.folds divides rows, whatever their group or time: expected trireme sweep for data.group and "
         "data.time"},
        {o->folds > 0 && tr_job_number(job, "solve.target") != TR_JOB_AUTO, "solve.target",
         "solve.target would end solve.folds before they are done: expected none"},
        {o->l1 < 0 && tr_job_number(job, "solve.target") != TR_JOB_AUTO, "solve.target",
         "solve.target is not for model.l1 path, which trains every penalty: expected none"},
        {!tr_job_is(job, "table.filter", "none"), "table.filter",
         "solve.method descent writes whole weights: expected none"},
        {!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD, "solve.method",
         "sync.weight and solve.optimizer are for solve.method sgd"},
        {.key = NULL}};
    return tr_linear_refuse_any(job, list);
}

/* ---- preparing ---- */

/* If all members of a group have the same rows, each member processes an equal part of these rows. */
static int descent_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool last = me->worker + 1 == me->workers;
    TR_TRY(tr_linear_set_problem(m, m->train, &m->problem, &m->target));
    size_t rows = m->problem.rows.n, first = tr_data_part_begin(m->train, me);
    d->first_row = first;
    d->rows.n = m->problem.rows.n = tr_data_part_end(m->train, me) - first;
    m->problem.rows.begin += first;
    d->target = m->target + first;
    d->row_weight = m->problem.weight ? m->problem.weight + first : NULL;
    d->row_offset = m->problem.offset ? m->problem.offset + first : NULL;
    TR_TRY(TR_NEW(&d->all_margins, rows));
    d->margin = d->all_margins + first;
    for (size_t i = 0; i < rows; i++) /* the margins of rows of other members are not known: NaN */
        d->all_margins[i] = i >= first && i < first + d->rows.n ? tr_row_offset(&m->problem, i) : (double)NAN;
    TR_TRY(TR_NEW(&d->rows.begin, d->rows.n + 1));
    TR_TRY(TR_NEW(&d->model, d->rows.n));
    TR_TRY(TR_NEW(&d->probe, d->rows.n));
    TR_TRY(tr_descent_minimise_bias(m));
    TR_TRY(tr_descent_model_rows(m));
    TR_TRY(folds_open(me, m));
    TR_TRY(screen_find_columns(m));
    TR_TRY(screen_open_columns(m));

    /* opens views of w: d->view at d->mine, at the last worker also at the bias; for model.init at d->key and the bias */
    TR_FREED tr_key *keys = NULL;
    size_t n = d->rows.columns;
    TR_TRY(TR_NEW(&keys, tr_max_size(d->n_mine, n) + 1));
    for (size_t i = 0; i < d->n_mine; i++) keys[i] = d->shared.first + d->mine[i];
    keys[d->n_mine] = m->train->columns;
    TR_TRY(tr_view_open(m->w, keys, d->n_mine + (m->o->bias && last), TR_VIEW_UPDATE, &d->view));
    memcpy(keys, d->key, n * sizeof *keys);
    keys[n] = m->train->columns;
    if (m->initial) TR_TRY(tr_view_open(m->w, keys, n + m->o->bias, TR_VIEW_READ, &d->initial));

    folds_hold_out(m);
    if (d->folds.n > 0) TR_TRY(tr_descent_minimise_bias(m));
    d->alpha = path_alpha(m, 0);
    if (!m->test) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view));
    return tr_linear_set_problem(m, m->test, &m->test_problem, &m->test_target);
}

/* ---- the stage ---- */

static bool descent_is_proven(const struct tr_linear *m)
{
    return tr_descent_gap(m->descent) <= m->o->target_gap;
}

static bool descent_is_last_lap(const struct tr_linear_descent *d)
{
    return d->folds.lap == d->folds.n;
}

/* Takes one step, unless the last penalty is complete, and pushes the differences between the weights and the table. */
static int descent_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_rows *rows = &d->rows;
    const tr_view *view = d->view;
    enum tr_dtype dtype = (enum tr_dtype)m->o->dtype;
    TR_TRY(tr_view_pull(d->view));
    if (me->clock == 0 && d->initial) { /* model.init: reads its weights and computes the margins */
        TR_TRY(tr_view_pull(d->initial));
        for (size_t j = 0; j < d->n_mine; j++) d->weight[d->mine[j]] = tr_real_get(dtype, view->value, j);
        d->bias = m->o->bias ? tr_real_get(dtype, d->initial->value, rows->columns) : 0;
        for (size_t i = 0; i < rows->n; i++) {
            d->margin[i] = d->bias + tr_descent_offset(d, i);
            for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
                d->margin[i] +=
                    tr_real_get(dtype, d->initial->value, rows->column[k]) * (double)rows->value[k];
        }
        tr_view_close(&d->initial);
        TR_TRY(tr_descent_minimise_bias(m));
    }
    if (!d->known) TR_TRY(tr_descent_look(m, true));
    bool done = d->values > 0 && d->reported && descent_is_proven(m);
    size_t last = d->folds.n > 0 && descent_is_last_lap(d) ? d->folds.chosen : d->values - 1;
    if (done && d->value < last) {
        /* starts the next penalty; the gradient of the loss remains valid. By the sequential strong rule (Tibshirani et al. 2012),
         * no element of the gradient is expected to change by more than alpha does */
        double before = d->alpha;
        d->alpha = path_alpha(m, ++d->value);
        d->margin_of_zeros = before - d->alpha;
        d->dual = -INFINITY;
        d->steps = 1;
        TR_TRY(tr_descent_look(m, false));
    } else if (done && !descent_is_last_lap(d)) {
        /* starts the next lap: restarts the path from zero weights. */
        if (++d->folds.lap == d->folds.n) folds_choose_value(&d->folds, d->values);
        folds_hold_out(m);
        tr_descent_clear_set(d);
        memset(d->weight, 0, d->shared.n * sizeof *d->weight);
        for (size_t i = 0; i < d->rows.n; i++) d->margin[i] = tr_descent_offset(d, i);
        d->bias = d->margin_of_zeros = 0;
        d->dual = -INFINITY;
        d->steps = 0;
        d->value = 0;
        d->alpha = path_alpha(m, 0);
        TR_TRY(tr_descent_minimise_bias(m));
        TR_TRY(tr_descent_look(m, true));
    } else if (done) { /* the last lap is complete: the model gets the best weights */
        const struct tr_descent_best *b = &d->best;
        d->chosen = true;
        d->bias = b->of.bias;
        memset(d->weight, 0, d->shared.n * sizeof *d->weight);
        for (size_t i = 0; i < (size_t)b->of.n; i++) {
            uint32_t slot = tr_descent_slot(d, b->key[i]);
            if (slot != UINT32_MAX) d->weight[slot] = b->weight[i];
        }
    }
    if (!descent_is_proven(m)) TR_TRY(tr_descent_step(m));
    for (size_t j = 0; j < view->n; j++) {
        double x = j < d->n_mine ? d->weight[d->mine[j]] : d->bias;
        if (dtype == TR_F32) ((float *)view->delta)[j] = (float)x - ((const float *)view->value)[j];
        else ((double *)view->delta)[j] = x - ((const double *)view->value)[j];
    }
    return tr_view_push(d->view);
}

/* Sums that worker 0 reports in addition to those of linear.h. DONE: index + 1 of a penalty of the final lap that is complete; if
 * negative, -d->lacking. */
enum { GAP = TR_SUMS - 6, NONZEROS, PASSES, DONE, ALPHA, CHOSEN };

static int descent_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool done = d->values > 0 && !d->chosen && descent_is_proven(m);
    TR_TRY(tr_view_pull(d->view)); /* the pull waits until all pushes have been applied */
    if (me->worker == 0) {         /* scales sums over the training rows of this lap to all rows */
        report->sum[TR_LINEAR_LOSS] += d->chosen ? d->best.of.objective : tr_descent_objective(d) / d->share;
        report->sum[GAP] =
            (d->chosen ? d->best.of.distance : tr_descent_distance(d) / d->share) / m->problem.n;
        report->sum[NONZEROS] = d->chosen ? d->best.of.nonzeros : d->at.nonzeros;
        report->sum[PASSES] = d->passes;
        report->sum[DONE] = d->lacking > 0                   ? -d->lacking
                            : done && descent_is_last_lap(d) ? (double)d->value + 1
                                                             : 0;
        report->sum[ALPHA] = d->alpha / (m->problem.n * d->share);
        report->sum[CHOSEN] = d->chosen;
    }
    if (m->test) TR_TRY(tr_linear_report_test(me, m, m->test_view, report));
    d->reported = true;
    if (!done) return TR_OK;
    if (!descent_is_last_lap(d)) { /* computes the loss of the held-out rows */
        struct tr_descent_folds *f = &d->folds;
        double sums[2] = {0, 0}, *results = folds_numbers(f, d->value);
        for (size_t i = 0; i < d->rows.n; i++) {
            if (f->of[i] != f->lap) continue;
            double weight = tr_row_weight(&m->problem, d->first_row + i);
            sums[0] += weight * m->loss->value(d->margin[i], (double)d->target[i], 0);
            sums[1] += weight;
        }
        TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sums, 2));
        results[f->lap] = sums[0] / sums[1];
        results[f->n + f->lap] = d->at.nonzeros;
        results[2 * f->n] = d->alpha / (m->total_weight * d->share);
        return TR_OK;
    }

    /* remembers the weights if this is the penalty that the folds have chosen; without folds, if the test metric is the best so
     * far; without test data, at each penalty */
    if (d->folds.n > 0) return d->value == d->folds.chosen ? path_remember(m, 0) : TR_OK;
    if (!m->test) return path_remember(m, 0);
    tr_report all = *report;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, all.sum, TR_SUMS));
    double tested[TR_METRICS];
    tr_test_metrics_find(&m->metrics, all.sum + TR_LINEAR_TEST, tested);
    bool better = tr_test_metrics_better(&m->metrics, tested[0], d->best.of.metric);
    return better || d->best.of.value == 0 ? path_remember(m, tested[0]) : TR_OK;
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
                                                                       .metric = evaluation->metric[0]};
    return TR_OK;
}

/* ---- checkpoints ---- */

/* For snapshots: lists keys, weights and sizes of blocks of the working set. All workers have the same set; worker 0 saves it. */
static int descent_keep_set(tr_worker *me, struct tr_linear_descent *d, tr_snapshot *snapshot, int64_t n,
                            int64_t blocks)
{
    struct tr_descent_set *s = &d->set;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    TR_FREED int64_t *key = NULL;
    TR_FREED int64_t *columns = NULL;
    TR_FREED double *weight = NULL;
    size_t rows = has ? (size_t)n : 0, parts = has ? (size_t)blocks : 0, at = 0;
    TR_TRY(TR_NEW(&key, rows));
    TR_TRY(TR_NEW(&weight, rows));
    TR_TRY(TR_NEW(&columns, parts));
    for (size_t j = 0; !restores && j < rows; j++) key[j] = (int64_t)s->key[j], weight[j] = s->weight[j];
    for (size_t b = 0; !restores && b < parts; b++) columns[b] = (int64_t)s->block[b].n;
    TR_TRY(tr_snapshot_rows(snapshot, "set", TR_I64, (uint64_t)n, 1, NULL, 0, rows, key));
    TR_TRY(tr_snapshot_rows(snapshot, "set_weight", TR_F64, (uint64_t)n, 1, NULL, 0, rows, weight));
    TR_TRY(tr_snapshot_rows(snapshot, "set_blocks", TR_I64, (uint64_t)blocks, 1, NULL, 0, parts, columns));
    if (!restores || !has) return TR_OK;
    tr_descent_clear_set(d);
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t b = 0; b < parts; at += (size_t)columns[b++])
        TR_TRY(tr_descent_add_columns(d, (const tr_key *)key + at, weight + at, (size_t)columns[b]));
    for (size_t j = 0; j < s->n; j++)
        if (s->slot[j] != UINT32_MAX) d->weight[s->slot[j]] = weight[j];
    d->known = false;
    return TR_OK;
}

/* Values that follow from margins and weights are not listed. */
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
    if (!tr_snapshot_restores(snapshot)) return TR_OK;
    d->bias = number[2];
    d->dual = number[3];
    d->margin_of_zeros = number[4];
    d->value = (size_t)number[5];
    d->passes = number[6];
    d->chosen = number[7] > 0;
    d->steps = (int)number[8];
    d->reported = true;
    d->nonzeros = scheduler[0];
    d->all_passes = scheduler[1];
    if (me->worker < 0) return TR_OK;
    d->alpha = path_alpha(m, d->value);
    d->drift = 0;
    /* computes the margins of rows that another member had in the checkpoint */
    return tr_descent_find_margins(d, false);
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
    TR_TRY(tr_agree(m->tr, TR_NEW(&d->folds.results, d->folds.n > 0 ? d->values * (2 * d->folds.n + 1) : 0)));
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
    train.clocks = (int64_t)d->most_passes; /* an upper bound, because each step takes more than one pass */
    train.evaluate_every = d->values > 0 ? 1 : m->report_every;
    train.epochs_per_clock = 1;
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
    /* clang-format off */
    void *arrays[] = {d->probe, d->mine, d->rows.entries, d->rows.begin, d->rows.own_column, d->rows.own_value, d->key,
                      d->all_margins, d->model, d->partial, d->gradient, d->weight, d->entries, d->working, d->set.key,
                      d->set.weight, d->set.next, d->set.column, d->set.slot, d->set.block, d->folds.of, d->folds.weight,
                      d->folds.share, d->folds.results, d->done, d->best.key, d->best.weight, d};
    /* clang-format on */
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    m->descent = NULL;
}

const struct tr_linear_method tr_linear_descent = {.check = descent_check,
                                                   .sparse_rows = true,
                                                   .open = descent_open,
                                                   .train = descent_train,
                                                   .prepare = descent_prepare,
                                                   .compute = descent_compute,
                                                   .evaluate = descent_evaluate,
                                                   .summarize = descent_summarize,
                                                   .snapshot = descent_snapshot,
                                                   .close = descent_close,
                                                   .weighs_rows = true,
                                                   .minimises = TR_LOSS_QUADRATIC_MODEL,
                                                   .diverged = "raise model.l1 or model.l2"};
