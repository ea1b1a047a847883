/* Coordinate descent for penalties with |w|₁: proximal Newton steps (newGLMNET, Yuan, Ho and Lin 2012). A step replaces the
 * loss by its quadratic model where the weights stand, and minimises that and the penalty over the columns that matter, in
 * blocks (blocks.h): columns that are not 0, or that the gradient may soon let leave 0; a line search along the step
 * follows. Workers divide the rows. Each block's gradient is summed over them, and all minimise over the block alike, so
 * that steps and passes do not depend on how many they are.
 *
 * The gap is proven: the losses' slopes, scaled until no column's gradient exceeds alpha, are a dual point (as in the
 * gap-safe rules of Fercoq, Gramfort and Salmon 2015). An unpenalised bias is at its minimum whenever it is computed, so the
 * slopes sum to 0, as the dual wants it. */
#include "descent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

static int check(const tr_job *job, const struct tr_linear_options *o)
{
    if (o->l1 == 0)
        return tr_linear_refuse(job, "model.l1",
                                "model.l1 is 0, but solve.method descent is for model.l1 > 0");
    if (o->l1 < 0 && o->target_gap == 0)
        return tr_linear_refuse(
            job, "solve.target_gap",
            "model.l1 path goes on to the next penalty at solve.target_gap: expected > 0");
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

/* The columns that it speaks for, and the bias at the last worker. */
static int open_view(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    bool last = tr_set_rank(m->tr, TR_SET_WORKERS) + 1 == tr_set_size(m->tr, TR_SET_WORKERS);
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, d->n_mine + 1));
    for (size_t i = 0; i < d->n_mine; i++) keys[i] = d->shared.first + d->mine[i];
    keys[d->n_mine] = m->train->columns;
    int status = tr_view_open(m->w, keys, d->n_mine + (m->o->bias && last), TR_VIEW_UPDATE, &d->view);
    free(keys);
    return status;
}

static int open_initial(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    size_t n = d->rows.columns;
    tr_key *keys;
    if (!m->initial) return TR_OK;
    TR_TRY(TR_NEW(&keys, n + 1));
    memcpy(keys, d->key, n * sizeof *keys);
    keys[n] = m->train->columns;
    int status = tr_view_open(m->w, keys, n + m->o->bias, TR_VIEW_READ, &d->initial);
    free(keys);
    return status;
}

/* Of rows that the members of a group all have, each takes a part. */
static void take_part(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    size_t first = tr_data_part_begin(m->train, me);
    d->rows.n = m->problem.rows.n = tr_data_part_end(m->train, me) - first;
    d->margin = d->all_margins + first;
    d->target = m->target + first;
    m->problem.rows.begin += first;
    d->first_row = first;
    d->row_weight = m->problem.weight ? m->problem.weight + first : NULL;
}

static int prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool bias = tr_linear_has_bias(m, me);
    TR_TRY(tr_linear_set_problem(m, bias, m->train, &m->problem, &m->target));
    TR_TRY(TR_NEW(&d->all_margins, m->problem.rows.n));
    for (size_t i = 0; i < m->problem.rows.n; i++) d->all_margins[i] = NAN; /* other members' */
    take_part(me, m);
    for (size_t i = 0; i < d->rows.n; i++) d->margin[i] = 0;
    TR_TRY(TR_NEW(&d->rows.begin, d->rows.n + 1));
    TR_TRY(TR_NEW(&d->model, d->rows.n));
    TR_TRY(TR_NEW(&d->probe, d->rows.n));
    TR_TRY(tr_descent_minimise_bias(m));
    tr_descent_model_rows(m, &d->at);
    TR_TRY(tr_descent_open_folds(me, m));
    TR_TRY(tr_descent_find_columns(m));
    TR_TRY(open_view(m));
    TR_TRY(open_initial(m));
    tr_descent_hold_out(m);
    if (d->folds.n > 0) TR_TRY(tr_descent_minimise_bias(m));
    d->alpha = tr_descent_alpha(m, 0);
    if (!m->test) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view));
    return tr_linear_set_problem(m, bias, m->test, &m->test_problem, &m->test_target);
}

/* ---- the stage ---- */

/* What the table lacks of the weights. */
static int push(struct tr_linear *m)
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

static bool is_proven(const struct tr_linear *m)
{
    return tr_descent_gap(m->descent) <= m->o->target_gap;
}

/* Another penalty: where the weights stand is known, but not what that means. */
static int next_alpha(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double last = d->alpha;
    d->alpha = tr_descent_alpha(m, ++d->value);
    /* the sequential strong rule (Tibshirani et al. 2012): a gradient is expected to change no more than alpha does */
    d->margin_of_zeros = last - d->alpha;
    d->dual = -INFINITY;
    d->steps = 1;
    return tr_descent_look_at_penalty(m);
}

static double element(const struct tr_linear *m, const tr_view *view, size_t i)
{
    return m->o->dtype == TR_F32 ? (double)((const float *)view->value)[i] : ((const double *)view->value)[i];
}

/* model.init: the weights are those of the table; the margins follow. */
static int begin(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_rows *rows = &d->rows;
    TR_TRY(tr_view_pull(d->initial));
    for (size_t j = 0; j < d->n_mine; j++) d->weight[d->mine[j]] = element(m, d->view, j);
    d->bias = m->o->bias ? element(m, d->initial, rows->columns) : 0;
    for (size_t i = 0; i < rows->n; i++) {
        d->margin[i] = d->bias;
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            d->margin[i] += element(m, d->initial, rows->column[k]) * (double)rows->value[k];
    }
    tr_view_close(&d->initial);
    return tr_descent_minimise_bias(m);
}

/* The path again from its beginning, on other rows. */
static int next_fold(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    if (++d->folds.lap == d->folds.n) tr_descent_choose_value(&d->folds, d->values);
    tr_descent_hold_out(m);
    tr_descent_clear_set(d);
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t i = 0; i < d->rows.n; i++) d->margin[i] = 0;
    d->bias = d->margin_of_zeros = 0;
    d->dual = -INFINITY;
    d->steps = 0;
    d->value = 0;
    d->alpha = tr_descent_alpha(m, 0);
    TR_TRY(tr_descent_minimise_bias(m));
    return tr_descent_look(m);
}

static bool is_last_lap(const struct tr_linear_descent *d)
{
    return d->folds.lap == d->folds.n;
}

/* Where the path ends, in this lap. */
static size_t last_value(const struct tr_linear_descent *d)
{
    return d->folds.n > 0 && is_last_lap(d) ? d->folds.chosen : d->values - 1;
}

/* One step, at a penalty that is not done. */
static int compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_view_pull(d->view));
    if (me->clock == 0 && d->initial) TR_TRY(begin(m));
    if (!d->known) TR_TRY(tr_descent_look(m));
    bool done = d->values > 0 && d->told && is_proven(m);
    if (done && d->value < last_value(d)) TR_TRY(next_alpha(m));
    else if (done && !is_last_lap(d)) TR_TRY(next_fold(m));
    else if (done) tr_descent_choose(m);
    if (!is_proven(m)) TR_TRY(tr_descent_step(m));
    return push(m);
}

/* What the first worker reports beside the class's sums. */
enum { NONZEROS = TR_SUMS - 5, PASSES, DONE /* below 0: minus tr_linear_descent.lacking */, ALPHA, CHOSEN };

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool done = d->values > 0 && !d->chosen && is_proven(m);
    TR_TRY(tr_view_pull(d->view)); /* what was pushed has arrived */
    if (me->worker == 0) {         /* what only some rows count for, as if it were all */
        tr_linear_report_loss(report, d->chosen ? d->best.objective : tr_descent_objective(d) / d->share);
        tr_linear_report_conjugate(report, d->chosen ? -d->best.dual : -d->dual / d->share);
        report->sum[NONZEROS] = d->chosen ? d->best.nonzeros : d->at.nonzeros;
        report->sum[PASSES] = d->passes;
        report->sum[DONE] = d->lacking > 0 ? -d->lacking : done && is_last_lap(d) ? (double)d->value + 1 : 0;
        report->sum[ALPHA] = d->alpha / (m->problem.n * d->share);
        report->sum[CHOSEN] = d->chosen;
    }
    if (m->test) TR_TRY(tr_linear_report_test(me, m, m->test_view, report));
    d->told = true;
    if (!done) return TR_OK;
    return is_last_lap(d) ? tr_descent_compare(m, report) : tr_descent_judge(m);
}

static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    tr_linear_prove(m, tr_linear_dual_value(m, report), evaluation);
    d->nonzeros = report->sum[NONZEROS];
    d->all_passes = evaluation->epoch = report->sum[PASSES];
    bool spent = -report->sum[DONE] > d->most_passes;
    if (d->values > 0) evaluation->stop = report->sum[CHOSEN] > 0;
    evaluation->stop = evaluation->stop || spent;
    if (d->values == 0 || !(report->sum[DONE] > 0)) return TR_OK;
    tr_descent_add(m, (size_t)report->sum[DONE] - 1, report->sum[ALPHA], d->nonzeros, evaluation);
    return TR_OK;
}

/* ---- checkpoints ---- */

/* Numbers of the set, so that it can be made again. */
static int restore_set(struct tr_linear_descent *d, const int64_t *key, const double *weight,
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

/* The set is the same at all workers: the first one's is kept. */
static int keep_set(tr_worker *me, struct tr_linear_descent *d, tr_snapshot *snapshot, int64_t n,
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
    if (status == TR_OK && restores && has) status = restore_set(d, key, weight, columns, parts);
    free(key);
    free(weight);
    free(columns);
    return status;
}

/* Rows that were another member's on the ranks that there were: their margins follow from the weights. */
static int restore_margins(struct tr_linear_descent *d)
{
    double *weight;
    TR_TRY(TR_NEW(&weight, d->rows.columns));
    for (size_t j = 0; j < d->set.n; j++)
        if (d->set.column[j] != UINT32_MAX) weight[d->set.column[j]] = d->set.weight[j];
    for (size_t i = 0; i < d->rows.n; i++) {
        if (!isnan(d->margin[i])) continue;
        d->margin[i] = d->bias;
        for (uint64_t k = d->rows.begin[i]; k < d->rows.begin[i + 1]; k++)
            d->margin[i] += weight[d->rows.column[k]] * (double)d->rows.value[k];
    }
    free(weight);
    return TR_OK;
}

/* What follows from margins and weights is computed again. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
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
    TR_TRY(keep_set(me, d, snapshot, (int64_t)number[0], (int64_t)number[1]));
    TR_TRY(tr_data_keep(m->train, snapshot, "margin", TR_F64, d->all_margins));
    TR_TRY(tr_descent_keep_path(me, m, snapshot));
    TR_TRY(tr_descent_keep_folds(me, m, snapshot));
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
    d->alpha = tr_descent_alpha(m, d->value);
    return restore_margins(d);
}

/* ---- the method ---- */

static int open_descent(struct tr_linear *m)
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
    m->clocks_per_epoch = 1;
    TR_TRY(tr_agree(m->tr, tr_descent_make_folds(&d->folds, (size_t)m->o->folds, d->values)));
    d->most_passes = (double)m->epochs * (double)(d->values > 0 ? d->values * (d->folds.n + 1) : 1);
    return tr_agree(m->tr, TR_NEW(&d->done, d->values));
}

static int train(struct tr_linear *m)
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
    train.clocks = (int64_t)d->most_passes; /* a step takes more than a pass */
    train.evaluate_every = d->values > 0 ? 1 : m->report_every;
    train.epochs_per_clock = 1;
    train.prepare = prepare;
    train.compute = compute;
    train.evaluate = evaluate;
    train.summarize = summarize;
    train.snapshot = snapshot;
    TR_TRY(tr_run(m->tr, &train));
    tr_say(m->tr, "non-zeros:     %.0f of %llu weights, after %.1f passes over the data", d->nonzeros,
           (unsigned long long)m->train->columns, d->all_passes);
    TR_TRY(tr_report_figure(m->tr, "nonzero_weights", d->nonzeros));
    TR_TRY(tr_report_figure(m->tr, "passes", d->all_passes));
    if (d->folds.n > 0) TR_TRY(tr_agree(m->tr, tr_descent_tell_folds(m)));
    bool writes = d->values > 0 && (tr_roles(m->tr) & TR_SCHEDULER);
    return tr_agree(m->tr, writes ? tr_descent_write_path(m) : TR_OK);
}

static void close_descent(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    if (!d) return;
    tr_descent_clear_set(d);
    tr_descent_close_folds(&d->folds);
    tr_columns_close(&d->shared);
    tr_view_close(&d->view);
    tr_view_close(&d->initial);
    void *arrays[] = {
        d->probe,    d->mine,        d->rows.entries, d->rows.begin, d->rows.own_column, d->rows.own_value,
        d->key,      d->all_margins, d->model,        d->partial,    d->gradient,        d->weight,
        d->entries,  d->working,     d->set.key,      d->set.weight, d->set.next,        d->set.column,
        d->set.slot, d->set.block,   d->done,         d->best.key,   d->best.weight,     d};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    m->descent = NULL;
}

/* Quadratic models of the loss need its curvature, and the gap its conjugate. Shapes are not passed on. */
static bool minimises(const struct tr_loss *loss)
{
    return loss->conjugate && isfinite(loss->most_curvature) && loss->shape == TR_SHAPE_NONE;
}

const struct tr_linear_method tr_linear_descent = {.check = check,
                                                   .sparse_rows = true,
                                                   .open = open_descent,
                                                   .train = train,
                                                   .close = close_descent,
                                                   .weighs_rows = true,
                                                   .minimises = minimises,
                                                   .diverged = "raise model.l1 or model.l2"};
