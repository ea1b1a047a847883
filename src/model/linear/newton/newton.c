/* solve.method newton. A clock is one step of the solver (newton.h), after which the weights are written to the table
 * in its type. */
#include "newton.h"

#include <math.h>
#include <stdlib.h>

/* ---- checking, opening ---- */

static int newton_check(const tr_job *job, const struct tr_linear_options *o)
{
    const struct tr_refusal list[] = {
        {o->l1 > 0, "model.l1", "model.l1 is not smooth: not for solve.method newton"},
        {!tr_job_is(job, "sync.mode", "bsp") && !tr_job_is(job, "sync.mode", "auto"), "sync.mode",
         "with newton all workers step together: expected bsp"},
        {!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD, "solve.method",
         "sync.weight and solve.optimizer are for solve.method sgd"},
        {tr_job_is(job, "data.partition", "vertical"), "data.partition",
         "data.partition vertical is not for solve.method newton, which needs whole rows"},
        {.key = NULL}};
    return tr_linear_refuse_any(job, list);
}

static int newton_open(struct tr_linear *m)
{
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->newton, 1)));
    if (!m->target)
        m->problem = (struct tr_problem){
            .outputs = m->outputs, .softmax = m->softmax, .bias = m->o->bias, .n = m->total_weight};
    m->newton->options = (struct tr_newton_options){.tr = m->tr,
                                                    .problem = &m->problem,
                                                    .keys = m->train->keys,
                                                    .columns = m->train->columns,
                                                    .bias_l2 = m->o->bias_l2,
                                                    .start = m->start,
                                                    .scale = m->unit,
                                                    .nonzeros = (double)m->train->total_nonzeros};
    return TR_OK;
}

static void newton_close(struct tr_linear *m)
{
    struct tr_linear_newton *s = m->newton;
    if (!s) return;
    tr_newton_close(&s->solver);
    tr_view_close(&s->own);
    free(s);
    m->newton = NULL;
}

/* ---- the stage ---- */

static int newton_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_newton *s = m->newton;
    TR_TRY(tr_linear_prepare_rows(me, m, 1));
    s->options.first = tr_data_part_begin(m->train, me);
    s->options.n = tr_data_part_end(m->train, me) - s->options.first;
    s->options.passes = (double)m->epochs - tr_linear_epochs_before(m);
    TR_TRY(tr_newton_open(&s->options, &s->solver));
    struct tr_newton_weights weights = tr_newton_weights(s->solver);
    return tr_linear_open_range(m->w, weights.first, weights.n,
                                weights.whole && me->worker > 0 ? TR_VIEW_READ : TR_VIEW_UPDATE, &s->own);
}

/* Starts from the weights in the table, if another method has computed them and they are better than zeros. Far from
 * the optimum the losses are nearly linear, and Newton steps fail. */
static int newton_start(struct tr_linear *m)
{
    struct tr_linear_newton *s = m->newton;
    struct tr_newton_weights weights = tr_newton_weights(s->solver);
    size_t n = weights.n * m->outputs;
    double sum = 0, zeros;
    s->started = true;
    for (size_t i = 0; i < n; i++) sum += fabs(tr_real_get(m->problem.dtype, s->own->value, i));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, &sum, 1));
    if (sum == 0) return TR_OK;
    TR_TRY(tr_newton_look(s->solver, &s->state));
    zeros = s->state.objective;
    for (size_t i = 0; i < n; i++) weights.value[i] = tr_real_get(m->problem.dtype, s->own->value, i);
    TR_TRY(tr_newton_moved(s->solver));
    TR_TRY(tr_newton_look(s->solver, &s->state));
    if (s->state.objective <= zeros) return TR_OK;
    bool free_bias = m->o->bias && !m->o->bias_l2 && weights.first + weights.n > m->train->columns;
    for (size_t i = 0; i < n; i++) weights.value[i] = free_bias && i + m->outputs >= n ? m->start : 0;
    return tr_newton_moved(s->solver);
}

static int newton_compute(tr_worker *me, void *state)
{
    (void)me;
    struct tr_linear *m = state;
    struct tr_linear_newton *s = m->newton;
    TR_TRY(tr_view_pull(s->own));
    if (!s->started) TR_TRY(newton_start(m));
    TR_TRY(tr_newton_look(s->solver, &s->state));
    /* a resumed run does not continue after its last step */
    double goal = m->o->target_gap * (m->l2 > 0 ? 1 : 0.9); /* as in tr_linear_prove() */
    if (!(s->state.gap <= goal * (s->state.objective - s->state.gap)))
        TR_TRY(tr_newton_step(s->solver, &s->state));
    if (!s->own->delta) return TR_OK;
    struct tr_newton_weights weights = tr_newton_weights(s->solver);
    for (size_t i = 0; i < weights.n * m->outputs; i++) {
        if (m->problem.dtype == TR_F32)
            ((float *)s->own->delta)[i] = (float)weights.value[i] - ((const float *)s->own->value)[i];
        else ((double *)s->own->delta)[i] = weights.value[i] - ((const double *)s->own->value)[i];
    }
    return tr_view_push(s->own);
}

/* All workers have the same state; the first one reports it. */
static int newton_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    const struct tr_newton_state *at = &m->newton->state;
    if (me->worker == 0) {
        report->sum[TR_LINEAR_LOSS] += at->objective * m->problem.n;
        report->sum[TR_LINEAR_OWN_SUMS] = at->gap;
        report->sum[TR_LINEAR_OWN_SUMS + 1] = at->decrease + at->excess / at->objective;
        report->sum[TR_LINEAR_OWN_SUMS + 2] = at->passes;
        report->sum[TR_LINEAR_OWN_SUMS + 3] = at->stuck ? -1 : at->next;
    }
    return m->test ? tr_linear_report_test(me, m, m->test_view, report) : TR_OK;
}

static int newton_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    const double *sum = report->sum + TR_LINEAR_OWN_SUMS;
    evaluation->epoch = tr_linear_epochs_before(m) + sum[2];
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    /* Without λ nothing is proven. The solver estimates the distance of losses with corners; that of others is estimated from the
     * decrease that the last step promised, and training ends when steps promise little, or when the objective of separable rows
     * is close to 0. */
    double goal = m->o->target_gap, objective = evaluation->objective;
    bool stop = evaluation->stop, small = tr_linear_classifies(m) && objective < goal * m->usual;
    tr_linear_prove(m, isnan(sum[0]) ? sum[1] * objective : sum[0], m->l2 > 0, evaluation);
    if (isnan(sum[0])) evaluation->stop = stop || (goal > 0 && (sum[1] < goal / 10 || small));
    if (sum[3] < 0 || evaluation->epoch + sum[3] > (double)m->epochs) evaluation->stop = true;
    m->stuck = sum[3] < 0;
    m->last = *evaluation;
    return TR_OK;
}

static int newton_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    struct tr_linear *m = state;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    if (tr_snapshot_restores(snapshot)) m->newton->started = true;
    return tr_newton_keep(&m->newton->options, m->newton->solver, m->train, snapshot);
}

static int newton_train(struct tr_linear *m)
{
    tr_stage train = tr_linear_stage(m);
    int least = tr_newton_least_passes(&m->newton->options);
    if (m->epochs < least)
        return tr_agree(m->tr,
                        tr_fail(TR_ERR_CONFIG,
                                "%s: solve.epochs is %lld, but a step of Newton's method takes %d passes "
                                "over the rows: set %d or more, or solve.method dual",
                                tr_job_where(m->job, "solve.epochs"), (long long)m->epochs, least, least));
    train.name = "newton";
    train.clocks = m->epochs;
    train.evaluate_every = 1;
    train.epochs_per_clock = 1;
    if (m->l2 == 0)
        tr_say(
            m->tr,
            "note:          without model.l2 the gap is estimated from the step, and no method can prove it: "
            "model.l2 > 0 by newton or dual, or model.l1 > 0 by descent, has a proof");
    return tr_run(m->tr, &train);
}

const struct tr_linear_method tr_linear_newton = {.check = newton_check,
                                                  .passes = true,
                                                  .open = newton_open,
                                                  .train = newton_train,
                                                  .prepare = newton_prepare,
                                                  .compute = newton_compute,
                                                  .evaluate = newton_evaluate,
                                                  .summarize = newton_summarize,
                                                  .snapshot = newton_snapshot,
                                                  .close = newton_close,
                                                  .many_outputs = true,
                                                  .weighs_rows = true,
                                                  .minimises = TR_LOSS_CURVED,
                                                  .diverged = "set model.dtype to f64"};
