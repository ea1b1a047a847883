/* What a model is worth: its objective over the training rows, what the test data show, and how far a method has proven
 * it to be from the optimum. Workers add up their rows; the scheduler makes numbers of the sums. */
#include <math.h>
#include <stdlib.h>

#include "linear.h"

/* What workers sum up for an evaluation. */
enum { LOSS, CONJUGATE, SQUARES, ABSOLUTES, BIAS_SQUARE, TEST_ROWS, TEST_RIGHT, TEST_ERRORS };

int tr_linear_turn_begin(const struct tr_linear *m, const char *stage)
{
    return m->vertical ? TR_OK : tr_turn_begin(m->tr, stage);
}

int tr_linear_turn_end(const struct tr_linear *m, int status)
{
    return m->vertical ? status : tr_turn_end(m->tr, status);
}

/* Adds up something over rows from .. to - 1 of a problem from their margins, a row's at a time. */
static int add_margins(tr_worker *me, struct tr_linear *m, const struct tr_problem *p, size_t from, size_t to,
                       const void *w,
                       void (*add)(const struct tr_problem *p, size_t first, size_t n, const double *margin,
                                   double *sum),
                       double *sum)
{
    size_t most = tr_max_size(TR_LINEAR_MARGINS / p->outputs, 1);
    for (size_t first = from, n; first < to; first += n) {
        n = tr_min_size(most, to - first);
        tr_margins(p, first, n, w, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n * p->outputs));
        if (m->vertical && me->member > 0) continue; /* the same rows as member 0's */
        add(p, first, n, m->margin, sum);
        for (size_t i = 0; i < n && m->see && p == &m->problem; i++) m->see(m, first + i, m->margin[i]);
    }
    return TR_OK;
}

static void add_loss(const struct tr_problem *p, size_t first, size_t n, const double *margin, double *sum)
{
    sum[LOSS] = tr_row_losses(p, first, n, margin, sum[LOSS]);
}

static void add_test(const struct tr_problem *p, size_t first, size_t n, const double *margin, double *sum)
{
    for (size_t i = first; i < first + n; i++, margin += p->outputs) {
        double y = (double)p->target[i], m = *margin; /* NaN: never right */
        sum[TEST_ROWS] += 1;
        if (p->outputs > 1) {
            sum[TEST_RIGHT] += tr_largest(margin, p->outputs) == (size_t)y;
        } else {
            sum[TEST_RIGHT] += m * y > 0 || (m == 0 && y < 0);
            sum[TEST_ERRORS] += p->loss->metric == TR_METRIC_FIGURE
                                    ? p->loss->figure_times * p->loss->value(m, y, p->shape)
                                    : (m - y) * (m - y);
        }
    }
}

static int for_margins(tr_worker *me, struct tr_linear *m, const struct tr_problem *p, size_t from, size_t to,
                       const void *w,
                       void (*add)(const struct tr_problem *p, size_t first, size_t n, const double *margin,
                                   double *sum),
                       double *sum)
{
    TR_TRY(tr_linear_turn_begin(m, "evaluate"));
    return tr_linear_turn_end(m, add_margins(me, m, p, from, to, w, add, sum));
}

int tr_linear_report_size(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report)
{
    if (me->worker != 0) return TR_OK;
    TR_TRY(tr_table_squares(m->w, &report->sum[SQUARES]));
    if (m->o->l1 > 0) {
        size_t bytes = sizeof report->sum[ABSOLUTES];
        TR_TRY(tr_table_ask(m->w, "sum1", NULL, 0, &report->sum[ABSOLUTES], &bytes));
    }
    size_t width = m->problem.outputs, last = m->problem.keys * width;
    for (size_t o = last; m->problem.bias && o < last + width; o++) {
        double bias = m->problem.dtype == TR_F32 ? (double)((const float *)w)[o] : ((const double *)w)[o];
        report->sum[BIAS_SQUARE] += bias * bias;
    }
    return TR_OK;
}

int tr_linear_report_test(tr_worker *me, struct tr_linear *m, tr_view *view, tr_report *report)
{
    TR_TRY(tr_view_pull(view));
    return for_margins(me, m, &m->test_problem, tr_data_part_begin(m->test, me),
                       tr_data_part_end(m->test, me), view->value, add_test, report->sum);
}

void tr_linear_report_loss(tr_report *report, double loss)
{
    report->sum[LOSS] += loss;
}

void tr_linear_report_conjugate(tr_report *report, double conjugate)
{
    report->sum[CONJUGATE] += conjugate;
}

int tr_linear_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    tr_view *view = m->fresh_view ? m->fresh_view : m->view;
    TR_TRY(tr_view_pull(view));
    return tr_linear_evaluate_at(me, m, view->value, report);
}

int tr_linear_evaluate_at(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report)
{
    TR_TRY(for_margins(me, m, &m->problem, tr_data_part_begin(m->train, me), tr_data_part_end(m->train, me),
                       w, add_loss, report->sum));
    TR_TRY(tr_linear_report_size(me, m, w, report));
    return m->test ? tr_linear_report_test(me, m, m->test_view, report) : TR_OK;
}

/* What to try: only what can help a run with these settings. */
static int fail_diverged(const struct tr_linear *m, double epoch, const char *what)
{
    const char *stale = tr_job_is(m->job, "sync.mode", "ssp")   ? ", or lower sync.staleness"
                        : tr_job_is(m->job, "sync.mode", "asp") ? ", or set sync.mode to ssp"
                                                                : "";
    bool adds = m->solver->weighs_updates && m->sums && tr_groups(m->tr) > 1;
    return tr_fail(TR_ERR_DIVERGED, "epoch %.2f: the objective is %s: %s%s%s", epoch, what,
                   m->solver->diverged, stale, adds ? ", or set sync.weight to con or dyn" : "");
}

/* An objective that has grown a thousandfold does not come back, even where it takes long to leave the numbers. */
static int check_divergence(struct tr_linear *m, double epoch, double objective)
{
    double one =
        m->softmax ? log((double)m->outputs) : (double)m->outputs * m->loss->value(0, 1, tr_linear_shape(m));
    if (m->usual == 0) m->usual = fmax(objective, one);
    if (isfinite(objective) && objective <= 1000 * m->usual) return TR_OK;
    char what[64] = "not finite any more";
    if (isfinite(objective))
        snprintf(what, sizeof what, "%.3g, at the beginning it was %.3g", objective, m->usual);
    return fail_diverged(m, epoch, what);
}

double tr_linear_penalty(const struct tr_linear *m, const tr_report *report)
{
    return m->o->l1 * report->sum[ABSOLUTES] +
           0.5 * m->l2 * (report->sum[SQUARES] - (m->o->bias_l2 ? 0 : report->sum[BIAS_SQUARE]));
}

double tr_linear_dual_value(const struct tr_linear *m, const tr_report *report)
{
    return -tr_linear_penalty(m, report) - report->sum[CONJUGATE] / m->total_weight;
}

void tr_linear_prove(struct tr_linear *m, double dual, tr_evaluation *evaluation)
{
    double goal = m->o->target_gap, safe = tr_in_lockstep(m->tr) ? goal : goal / 2;
    /* losses of classifiers are about 1 without a model: where next to nothing is lost, roundings are as large */
    double least = tr_linear_classifies(m) ? 1e-3 : 1e-300;
    evaluation->gap = (evaluation->objective - dual) / fmax(fabs(dual), least);
    if (goal > 0 && fabs(evaluation->gap) <= safe) evaluation->stop = true;
    tr_linear_watch(m, evaluation);
    m->last = *evaluation;
}

double tr_linear_test_metric(const struct tr_linear *m, const tr_report *report)
{
    const double *sum = report->sum;
    double mean = sum[tr_linear_classifies(m) ? TEST_RIGHT : TEST_ERRORS] / sum[TEST_ROWS];
    return m->loss->metric == TR_METRIC_RMSE ? sqrt(mean) : mean;
}

int tr_linear_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    const double *sum = report->sum;
    double n = m->total_weight, target = tr_job_number(m->job, "solve.target");
    double primal = sum[LOSS] / n + tr_linear_penalty(m, report);
    evaluation->objective = primal;
    if (m->test) evaluation->metric = tr_linear_test_metric(m, report);
    if (target != TR_JOB_AUTO && primal <= target) evaluation->stop = true;
    m->last = *evaluation;
    m->epoch = (double)report->clock / (double)m->clocks_per_epoch;
    if (isfinite(evaluation->epoch)) m->epoch = evaluation->epoch;
    return check_divergence(m, m->epoch, primal);
}

int tr_linear_keep_summary(struct tr_linear *m, tr_snapshot *snapshot)
{
    TR_TRY(tr_model_keep_evaluation(snapshot, &m->last));
    TR_TRY(tr_linear_keep_watch(m, snapshot));
    return tr_snapshot_common(snapshot, "usual_objective", TR_F64, 1, &m->usual);
}

const char *tr_linear_metric(const struct tr_linear *m)
{
    const char *const names[] = {
        [TR_METRIC_ACCURACY] = "accuracy", [TR_METRIC_RMSE] = "rmse", [TR_METRIC_FIGURE] = m->loss->figure};
    return m->test ? names[m->loss->metric] : NULL;
}

/* ---- whether training was worth it ---- */

/* Sums over the rows of this worker's part: of weights, and of weights times targets, by output. */
static void sum_targets(const struct tr_linear *m, size_t first, size_t end, double *sums)
{
    const struct tr_problem *p = &m->problem;
    for (size_t i = first; i < end; i++) {
        double weight = p->weight ? (double)p->weight[i] : 1, target = (double)p->target[i];
        sums[0] += weight;
        if (p->outputs == 1) sums[1] += weight * target;
        else sums[1 + (size_t)target] += weight;
    }
}

/* The margins of the best model without weights. */
static void find_constants(const struct tr_linear *m, const double *sums, double *margin)
{
    double mean = sums[1] / sums[0];
    for (size_t k = 0; k < m->outputs; k++) {
        double part = m->outputs > 1 ? sums[1 + k] / sums[0] : (1 + mean) / 2;
        margin[k] =
            m->softmax ? log(fmax(part, 1e-12)) : m->loss->constant(tr_linear_classifies(m) ? part : mean);
    }
}

static int constant_objective(const struct tr_linear *m, double *sums, double *margin, double *objective)
{
    size_t first = 0, end = 0;
    double loss = 0;
    if (tr_roles(m->tr) & TR_SLAVE) {
        tr_worker me = tr_linear_self(m->tr);
        first = tr_data_part_begin(m->train, &me);
        end = m->vertical && me.member > 0 ? first : tr_data_part_end(m->train, &me);
    }
    if (m->o->bias) {
        sum_targets(m, first, end, sums);
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sums, m->outputs + 1));
        find_constants(m, sums, margin);
    }
    for (size_t i = first; i < end; i++) loss = tr_row_losses(&m->problem, i, 1, margin, loss);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &loss, 1));
    *objective = loss / m->total_weight;
    for (size_t k = 0; m->o->bias_l2 && k < m->outputs; k++)
        *objective += 0.5 * m->l2 * margin[k] * margin[k];
    return TR_OK;
}

int tr_linear_check_worth(struct tr_linear *m)
{
    double *sums, constant = 0, objective = m->last.objective;
    if (tr_linear_classifies(m) && m->train->labels < 2) return TR_OK; /* a constant loses nothing then */
    TR_TRY(tr_agree(m->tr, TR_NEW(&sums, 2 * m->outputs + 1)));
    int status = constant_objective(m, sums, sums + m->outputs + 1, &constant);
    free(sums);
    if (status == TR_OK) status = tr_model_tell(m->tr, 1, &objective);
    if (status != TR_OK || objective <= constant * (1 + 1e-3) + 1e-12) return status;
    const char *of = m->o->bias ? "the best constant" : "weights of zero";
    if (tr_job_number(m->job, "solve.patience") > 0) { /* the test data are to say which model is good */
        tr_warn(m->tr,
                "warning:       the objective is %.8g, worse than %.8g of %s: a larger solve.patience may do",
                objective, constant, of);
        return TR_OK;
    }
    return tr_agree(m->tr,
                    tr_fail(TR_ERR_DIVERGED,
                            "the objective is %.8g, worse than %.8g of %s: give it more solve.epochs, %s%s",
                            objective, constant, of, m->solver->diverged,
                            m->train->scaling ? "" : ", or set data.scale to standard"));
}

tr_stage tr_linear_stage(struct tr_linear *m)
{
    return (tr_stage){.name = "train",
                      .state = m,
                      .clocks = m->epochs * m->clocks_per_epoch,
                      .evaluate_every = m->report_every * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .gap_goal = m->o->target_gap,
                      .metric_name = tr_linear_metric(m),
                      .metric_ascends = tr_linear_classifies(m),
                      .evaluate = tr_linear_evaluate,
                      .summarize = tr_linear_summarize};
}

/* ---- the area under the ROC curve ---- */

static int open_test(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    tr_view_close(&m->test_view);
    return tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view);
}

/* The scores of this worker's part of the test rows; in a vertical group, member 0 has those of the group. */
static int score_rows(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    const struct tr_problem *p = &m->test_problem;
    size_t end = tr_data_part_end(m->test, me);
    TR_TRY(tr_view_pull(m->test_view));
    for (size_t first = tr_data_part_begin(m->test, me), n; first < end; first += n) {
        n = tr_min_size(TR_LINEAR_MARGINS, end - first);
        tr_margins(p, first, n, m->test_view->value, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n));
        for (size_t i = 0; i < n && (!m->vertical || me->member == 0); i++)
            if (!isnan(p->target[first + i]))
                tr_area_add(m->area, (float)m->margin[i], p->target[first + i] > 0);
    }
    return TR_OK;
}

int tr_linear_auc(struct tr_linear *m, double *auc)
{
    tr_stage stage = {.name = "test", .state = m, .clocks = 1, .prepare = open_test, .compute = score_rows};
    TR_TRY(tr_agree(m->tr, tr_area_open(m->test->rows.n, &m->area)));
    int status = tr_run(m->tr, &stage);
    if (status == TR_OK) status = tr_area_find(m->tr, m->area, auc);
    tr_area_close(&m->area);
    return status;
}
