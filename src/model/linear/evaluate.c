/* Evaluation: the objective over the training rows, the metric of the test rows, the proven gap. Workers sum over their rows; the
 * scheduler computes the numbers from the sums. */
#include <math.h>
#include <stdlib.h>

#include "../labels.h"
#include "../metrics.h"
#include "linear.h"

int tr_linear_turn_begin(const struct tr_linear *m, const char *stage)
{
    return m->vertical ? TR_OK : tr_turn_begin(m->tr, stage);
}

int tr_linear_turn_end(const struct tr_linear *m, int status)
{
    return m->vertical ? status : tr_turn_end(m->tr, status);
}

/* Adds sums over this worker's training or test rows at w to sum[TR_LINEAR_...]. In a vertical group member 0 adds those of all
 * rows of the group. A test row whose label no training row has counts as wrong; the area under the ROC curve omits it. */
static int evaluate_rows(tr_worker *me, struct tr_linear *m, const tr_data *data, const void *w, double *sum)
{
    const struct tr_problem *p = data == m->test ? &m->test_problem : &m->problem;
    size_t most = tr_max_size(TR_LINEAR_MARGINS / p->outputs, 1), end = tr_data_part_end(data, me);
    for (size_t first = tr_data_part_begin(data, me), n; first < end; first += n) {
        n = tr_min_size(most, end - first);
        tr_margins(p, first, n, w, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n * p->outputs));
        if (m->vertical && me->member > 0) continue;
        if (data == m->train) {
            sum[TR_LINEAR_LOSS] = tr_row_losses(p, first, n, m->margin, sum[TR_LINEAR_LOSS]);
            for (size_t i = 0; i < n && m->see; i++) m->see(m, first + i, m->margin[i]);
            continue;
        }
        const double *margin = m->margin;
        for (size_t i = first; i < first + n; i++, margin += p->outputs) {
            double y = (double)p->target[i], weight = tr_row_weight(p, i);
            bool two = tr_linear_classifies(m) && p->outputs == 1 && !isnan(y);
            TR_TRY(tr_test_metrics_add(&m->metrics, margin, two ? y > 0 : y, weight, sum + TR_LINEAR_TEST));
        }
    }
    return TR_OK;
}

int tr_linear_report_size(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report)
{
    if (me->worker != 0) return TR_OK;
    TR_TRY(tr_table_squares(m->w, &report->sum[TR_LINEAR_SQUARES]));
    if (m->o->l1 > 0) {
        size_t bytes = sizeof report->sum[TR_LINEAR_ABSOLUTES];
        TR_TRY(tr_table_ask(m->w, "sum1", NULL, 0, &report->sum[TR_LINEAR_ABSOLUTES], &bytes));
    }
    size_t width = m->problem.outputs, last = m->problem.keys * width;
    for (size_t o = last; m->problem.bias && o < last + width; o++) {
        double bias = tr_real_get(m->problem.dtype, w, o);
        report->sum[TR_LINEAR_BIAS_SQUARE] += bias * bias;
        if (m->o->l1 > 0) report->sum[TR_LINEAR_ABSOLUTES] -= fabs(bias);
    }
    return TR_OK;
}

int tr_linear_report_test(tr_worker *me, struct tr_linear *m, tr_view *view, tr_report *report)
{
    TR_TRY(tr_view_pull(view));
    if (m->metrics.area && me->workers < tr_workers(me->tr))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: report.metric: auc and pr_auc need all workers in stages that evaluate",
                       tr_job_where(m->job, "report.metric"));
    TR_TRY(tr_linear_turn_begin(m, "evaluate"));
    int status = tr_linear_turn_end(m, evaluate_rows(me, m, m->test, view->value, report->sum));
    return tr_test_metrics_rank(me->tr, &m->metrics, status, report->sum + TR_LINEAR_TEST);
}

int tr_linear_report(tr_worker *me, struct tr_linear *m, double loss, const void *w, tr_view *test,
                     tr_report *report)
{
    report->sum[TR_LINEAR_LOSS] += loss;
    TR_TRY(tr_linear_report_size(me, m, w, report));
    return m->test ? tr_linear_report_test(me, m, test, report) : TR_OK;
}

int tr_linear_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    tr_view *view = m->fresh_view ? m->fresh_view : m->view;
    TR_TRY(tr_view_pull(view));
    return tr_linear_evaluate_at(me, m, view->value, m->test_view, report);
}

int tr_linear_evaluate_at(tr_worker *me, struct tr_linear *m, const void *w, tr_view *test, tr_report *report)
{
    TR_TRY(tr_linear_turn_begin(m, "evaluate"));
    TR_TRY(tr_linear_turn_end(m, evaluate_rows(me, m, m->train, w, report->sum)));
    return tr_linear_report(me, m, 0, w, test, report);
}

double tr_linear_penalty(const struct tr_linear *m, const tr_report *report)
{
    return m->o->l1 * report->sum[TR_LINEAR_ABSOLUTES] +
           0.5 * m->l2 *
               (report->sum[TR_LINEAR_SQUARES] - (m->o->bias_l2 ? 0 : report->sum[TR_LINEAR_BIAS_SQUARE]));
}

double tr_linear_dual_value(const struct tr_linear *m, const tr_report *report)
{
    return -tr_linear_penalty(m, report) - report->sum[TR_LINEAR_CONJUGATE] / m->total_weight;
}

void tr_linear_prove(struct tr_linear *m, double gap, bool proven, tr_evaluation *evaluation)
{
    double goal = m->o->target_gap, dual = evaluation->objective - gap;
    double safe = proven ? goal : tr_in_lockstep(m->tr) ? 0.9 * goal : goal / 2;
    if (proven) evaluation->gap = gap <= 0 ? 0 : dual > 0 ? gap / dual : (double)INFINITY;
    else evaluation->gap = fabs(gap) / fmax(fabs(dual), 1e-300);
    evaluation->estimated = !proven;
    if (goal > 0 && evaluation->gap <= safe) evaluation->stop = true;
    tr_linear_watch(m, evaluation);
    m->last = *evaluation;
}

/* Fails if the objective is not finite or is 1000 times m->usual, from which no run recovers. The message names only settings that
 * can help. */
int tr_linear_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    double target = tr_job_number(m->job, "solve.target"),
           objective = report->sum[TR_LINEAR_LOSS] / m->total_weight + tr_linear_penalty(m, report);
    evaluation->objective = objective;
    if (m->test) tr_test_metrics_find(&m->metrics, report->sum + TR_LINEAR_TEST, evaluation->metric);
    if (target != TR_JOB_AUTO && objective <= target) evaluation->stop = true;
    m->last = *evaluation;
    if (m->solver->counts_passes) evaluation->epoch = m->passes;
    m->epoch = (double)report->clock / (double)m->clocks_per_epoch;
    if (isfinite(evaluation->epoch)) m->epoch = evaluation->epoch;

    double zero = m->softmax ? log((double)m->outputs) : (double)m->outputs * m->loss->value(0, 1, m->shape);
    if (m->usual == 0) m->usual = fmax(objective, zero);
    if (isfinite(objective) && objective <= 1000 * m->usual) return TR_OK;
    char what[64] = "not finite any more";
    if (isfinite(objective))
        snprintf(what, sizeof what, "%.3g, at the beginning it was %.3g", objective, m->usual);
    const char *stale = tr_job_is(m->job, "sync.mode", "ssp")   ? ", or lower sync.staleness"
                        : tr_job_is(m->job, "sync.mode", "asp") ? ", or set sync.mode to ssp"
                                                                : "";
    bool adds = m->solver->weighs_updates && m->sums && tr_groups(m->tr) > 1;
    return tr_fail(TR_ERR_DIVERGED, "epoch %.2f: the objective is %s: %s%s%s", m->epoch, what,
                   m->solver->diverged, stale, adds ? ", or set sync.weight to con or dyn" : "");
}

int tr_linear_keep_summary(struct tr_linear *m, tr_snapshot *snapshot)
{
    TR_TRY(tr_model_keep_evaluation(snapshot, &m->last));
    TR_TRY(tr_linear_keep_watch(m, snapshot));
    return tr_snapshot_common(snapshot, "usual_objective", TR_F64, 1, &m->usual);
}

/* ---- comparison with the best constant ---- */

int tr_linear_check_worth(struct tr_linear *m)
{
    const struct tr_problem *p = &m->problem;
    /* Σ weight; Σ weight × target, or Σ weight of each class; then the margins of the best constant */
    TR_FREED double *sums = NULL;
    double loss = 0, objective = m->last.objective;
    size_t first, end;
    /* no check with one label: the best constant has loss 0 */
    if (tr_linear_classifies(m) && m->train->labels < 2) return TR_OK;
    TR_TRY(tr_agree(m->tr, TR_NEW(&sums, 2 * m->outputs + 1)));
    double *margin = sums + m->outputs + 1;
    tr_linear_own_rows(m, &first, &end);
    if (m->o->bias) {
        for (size_t i = first; i < end; i++) {
            double weight = tr_row_weight(p, i), target = (double)p->target[i];
            sums[0] += weight;
            if (m->outputs == 1) sums[1] += weight * target;
            else sums[1 + (size_t)target] += weight;
        }
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sums, m->outputs + 1));
        double mean = sums[1] / sums[0];
        for (size_t k = 0; k < m->outputs; k++) {
            double part = m->outputs > 1 ? sums[1 + k] / sums[0] : (1 + mean) / 2;
            margin[k] = !tr_linear_classifies(m) ? m->start
                        : m->softmax             ? log(fmax(part, 1e-12))
                                                 : m->loss->constant(part);
        }
    }
    if (m->o->bias && m->train->has_offsets && tr_linear_classifies(m))
        TR_TRY(tr_constant_beside_offsets(m->tr, TR_SET_ALL, m->loss, m->shape, first, end, p->target,
                                          p->weight, p->offset, margin));
    for (size_t i = first; i < end; i++) {
        double at = margin[0] + tr_row_offset(p, i);
        loss = tr_row_losses(p, i, 1, p->offset ? &at : margin, loss);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &loss, 1));
    double constant = loss / m->total_weight;
    for (size_t k = 0; m->o->bias_l2 && k < m->outputs; k++) constant += 0.5 * m->l2 * margin[k] * margin[k];
    TR_TRY(tr_model_tell(m->tr, 1, &objective));
    char worse[TR_WORSE_TEXT];
    if (!tr_is_worse("objective", objective, false, m->o->bias ? "the best constant" : "weights of zero",
                     constant, worse))
        return TR_OK;
    /* only a warning, because the test data selected the model */
    if (tr_job_number(m->job, "solve.patience") > 0) {
        tr_warn(m->tr, "warning:       %s: a larger solve.patience may help", worse);
        return TR_OK;
    }
    return tr_agree(m->tr,
                    tr_fail(TR_ERR_DIVERGED, "%s: give it more solve.epochs, %s%s", worse,
                            m->solver->diverged, m->train->scaling ? "" : ", or set data.scale to standard"));
}

tr_stage tr_linear_stage(struct tr_linear *m)
{
    tr_stage stage = {.name = "train",
                      .state = m,
                      .clocks = m->epochs * m->clocks_per_epoch,
                      .evaluate_every = m->report_every * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .gap_goal = m->o->target_gap,
                      .prepare = m->solver->prepare,
                      .compute = m->solver->compute,
                      .evaluate = m->solver->evaluate ? m->solver->evaluate : tr_linear_evaluate,
                      .summarize = m->solver->summarize ? m->solver->summarize : tr_linear_summarize,
                      .snapshot = m->solver->snapshot};
    tr_test_metrics_name(&m->metrics, m->test, &stage);
    return stage;
}

/* ---- figures of summary.json ---- */

static int area_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    tr_view_close(&m->test_view);
    return tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view);
}

static int area_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    tr_report ignored = {0};
    TR_TRY(tr_view_pull(m->test_view));
    return evaluate_rows(me, m, m->test, m->test_view->value, ignored.sum);
}

int tr_linear_report_figures(struct tr_linear *m)
{
    double auc;
    if (!m->test || !tr_test_metrics_lack_auc(&m->metrics)) return TR_OK;
    tr_stage stage = {
        .name = "test", .state = m, .clocks = 1, .prepare = area_prepare, .compute = area_compute};
    TR_TRY(tr_agree(m->tr, m->metrics.area ? TR_OK : tr_area_open(m->test->rows.n, &m->metrics.area)));
    TR_TRY(tr_run(m->tr, &stage));
    TR_TRY(tr_area_find(m->tr, m->metrics.area, &auc));
    return tr_report_figure(m->tr, "test_auc", auc);
}
