/* The bias once more, behind dual coordinate descent: where it is not regularised the proven gap hardly sees it, and it may be
 * off by some hundredths, with the labels of all rows that lie that near (rcv1 at a gap of 2e-4: 0.02, and 4 of 500 test
 * rows). One Newton step of the bias alone, for which the margins of all rows are enough, brings it to its optimum. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"
#include "trireme/collective.h"

struct settling {
    struct tr_linear *m;
    tr_view *bias;
    double *margin; /* of this worker's rows */
    double loss;    /* of all rows, on all workers */
};

static double element(const struct tr_linear *m, const tr_view *view)
{
    return m->problem.dtype == TR_F32 ? (double)*(const float *)view->value : *(const double *)view->value;
}

static int prepare(tr_worker *me, void *state)
{
    struct settling *s = state;
    struct tr_linear *m = s->m;
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_READ, &m->view));
    TR_TRY(tr_linear_open_range(m->w, m->train->columns, 1, TR_VIEW_UPDATE, &s->bias));
    return TR_NEW(&s->margin, m->problem.rows.n);
}

/* The sums of these rows if the bias moves by so much: loss, its slope and its curvature. */
static int sum_up(tr_worker *me, const struct settling *s, double by, double *sum)
{
    const struct tr_problem *p = &s->m->problem;
    sum[0] = sum[1] = sum[2] = 0;
    for (size_t i = tr_data_part_begin(s->m->train, me); i < tr_data_part_end(s->m->train, me); i++) {
        double margin = s->margin[i] + by, weight = p->weight ? (double)p->weight[i] : 1;
        sum[0] += tr_row_loss(p, i, &margin);
        double y = (double)p->target[i], slope = p->loss->slope(margin, y, p->shape);
        sum[1] += weight * slope;
        sum[2] += weight * p->loss->curvature(margin, y, slope, p->shape);
    }
    return tr_all_reduce(me->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sum, 3);
}

/* A step that promises much is not from near the optimum, and may lead anywhere. */
static int compute(tr_worker *me, void *state)
{
    struct settling *s = state;
    struct tr_linear *m = s->m;
    double here[3], there[3];
    size_t begin = tr_data_part_begin(m->train, me), end = tr_data_part_end(m->train, me);
    TR_TRY(tr_view_pull(m->view));
    TR_TRY(tr_view_pull(s->bias));
    tr_margins(&m->problem, begin, end - begin, m->view->value, s->margin + begin);
    TR_TRY(sum_up(me, s, 0, here));
    bool near = here[2] > 0 && here[1] * here[1] < 0.1 * here[0] * here[2];
    double old = element(m, s->bias), by = near ? -here[1] / here[2] : 0;
    if (m->problem.dtype == TR_F32) by = (double)(float)(old + by) - old; /* what the table can have */
    TR_TRY(sum_up(me, s, by, there));
    if (!(there[0] < here[0])) by = 0;
    s->loss = by == 0 ? here[0] : there[0];
    if (me->worker == 0 && m->problem.dtype == TR_F32) *(float *)s->bias->delta = (float)by;
    else if (me->worker == 0) *(double *)s->bias->delta = by;
    return tr_view_push(s->bias);
}

/* Nothing but the bias has changed since w was read. */
static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct settling *s = state;
    struct tr_linear *m = s->m;
    size_t bytes = m->problem.dtype == TR_F32 ? sizeof(float) : sizeof(double);
    TR_TRY(tr_view_pull(s->bias));
    if (m->view->clock < 0) TR_TRY(tr_view_pull(m->view)); /* a run that goes on from here */
    memcpy((char *)m->view->value + m->problem.keys * bytes, s->bias->value, bytes);
    if (me->worker == 0) tr_linear_report_loss(report, s->loss);
    TR_TRY(tr_linear_report_size(me, m, m->view->value, report));
    return m->test ? tr_linear_report_test(me, m, m->test_view, report) : TR_OK;
}

/* The dual value stays. */
static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = ((struct settling *)state)->m;
    tr_evaluation before = m->last;
    evaluation->epoch = m->epoch;
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    double fall = before.objective - evaluation->objective;
    evaluation->gap = before.gap - fall * (1 + before.gap) / fmax(before.objective, 1e-300);
    evaluation->stop = true;
    m->last = *evaluation;
    return TR_OK;
}

int tr_linear_settle_bias(struct tr_linear *m)
{
    struct settling s = {.m = m};
    bool is_free = m->o->bias && !m->o->bias_l2 && m->outputs == 1 && !m->loss->corner;
    if (!is_free || tr_job_number(m->job, "solve.patience") > 0 || !tr_job_is(m->job, "table.filter", "none"))
        return TR_OK;
    tr_view_close(&m->view);
    tr_stage stage = {.name = "bias",
                      .state = &s,
                      .clocks = 1,
                      .epochs_per_clock = 0,
                      .metric_name = tr_linear_metric(m),
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize};
    int status = tr_run(m->tr, &stage);
    tr_view_close(&s.bias);
    free(s.margin);
    return status;
}
