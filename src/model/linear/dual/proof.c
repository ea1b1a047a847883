/* The proof of the gap after dual coordinate descent.
 *
 * During training the gap is an estimate: w contains the rounding errors of millions of steps, and a free bias (without penalty) is
 * not at its optimum. The proof needs one pass. It computes the objective of the stored weights in double precision, makes the dual
 * variables feasible, and computes the dual value of the feasible variables u, as slopes dφ/dm:
 *   F* ≥ D(u) = -(1/n) Σ φ*(u) - |X' u / n|² / (2 λ), where Σ u = 0 is required for each output if the bias is free.
 * With offsets o of the rows, φ*(u) - u o takes the place of φ*(u). A projection makes Σ u = 0. If the positive variables have the larger sum they are multiplied by the ratio of the sums, else the
 * negative ones; the probabilities of a softmax are mixed with another distribution. The results stay in the domain of φ*.
 *
 * A free bias of a smooth loss is adjusted first. Even if the gap is small, the bias may be off by some hundredths, which changes
 * the labels of rows close to the decision boundary (rcv1 at a gap of 2e-4: 0.02, and 4 of 500 test rows). One Newton step of the
 * bias alone brings it to its optimum; it needs only the margins of all rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../linear.h"

enum { BLOCK_ROWS = 256 };

struct proof {
    struct tr_linear *m;
    bool settles;    /* the bias is adjusted before the gap is computed */
    tr_view *bias;   /* view of the bias in m->w; NULL if the bias is not adjusted */
    double *margin;  /* margins of all rows of this worker if settles, otherwise of a block of rows */
    double *w;       /* one element per key of this worker: first the weights, then X' u */
    double *u;       /* dual variables of a block of rows */
    double *project; /* three parameters of the projection per output, see proof_find_projection() */
    /* The following members are equal on all workers. */
    double loss;           /* Σ weight × loss over all rows */
    double dual, rounding; /* n D(u); n times a bound of the rounding errors of D and F */
    bool known;            /* all workers have the dual variables of their rows */
};

static int proof_prepare(tr_worker *me, void *state)
{
    struct proof *s = state;
    struct tr_linear *m = s->m;
    size_t outputs = m->outputs, rows = tr_data_part_end(m->train, me) - tr_data_part_begin(s->m->train, me);
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_READ, &m->view));
    if (s->settles) TR_TRY(tr_linear_open_range(m->w, m->train->columns, 1, TR_VIEW_UPDATE, &s->bias));
    TR_TRY(TR_NEW(&s->w, (m->problem.keys + 1) * outputs));
    TR_TRY(TR_NEW(&s->u, BLOCK_ROWS * outputs));
    TR_TRY(TR_NEW(&s->project, 3 * outputs));
    return TR_NEW(&s->margin, s->settles ? rows : BLOCK_ROWS * outputs);
}

/* ---- the bias ---- */

/* Takes one Newton step of the bias. A step that predicts a large decrease is not taken: the bias is far from its optimum. */
static int proof_settle_bias(tr_worker *me, struct proof *s)
{
    struct tr_linear *m = s->m;
    const struct tr_problem *p = &m->problem;
    size_t first = tr_data_part_begin(m->train, me), end = tr_data_part_end(m->train, me);
    /* sums over all rows of loss, slope and curvature: [0] without the step, [1] with it */
    double by = 0, sum[2][3] = {{0}};
    TR_TRY(tr_view_pull(s->bias));
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = first; i < end; i++) {
            double margin = s->margin[i - first] + by, weight = tr_row_weight(p, i), y = (double)p->target[i];
            double slope = p->loss->slope(margin, y, p->shape);
            sum[turn][0] = tr_row_losses(p, i, 1, &margin, sum[turn][0]);
            sum[turn][1] += weight * slope;
            sum[turn][2] += weight * p->loss->curvature(margin, y, slope, p->shape);
        }
        TR_TRY(tr_all_reduce(me->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sum[turn], 3));
        if (turn == 1) break;
        bool near = sum[0][2] > 0 && sum[0][1] * sum[0][1] < 0.1 * sum[0][0] * sum[0][2];
        double old = tr_real_get(p->dtype, s->bias->value, 0);
        by = near ? -sum[0][1] / sum[0][2] : 0;
        /* rounds the step so that the new bias is a float, as the table stores it */
        if (p->dtype == TR_F32) by = (double)(float)(old + by) - old;
    }
    if (!(sum[1][0] < sum[0][0])) by = 0;
    s->loss = sum[by != 0][0];
    if (me->worker == 0) tr_real_set(p->dtype, s->bias->delta, 0, by);
    return tr_view_push(s->bias);
}

/* ---- the dual value ---- */

/* Sets s->project, three numbers per output. They are first the sums over all rows of the negative variables, of the positive
 * variables, and of the probabilities of a softmax. They become the factors of negative and of positive variables; for a softmax,
 * the added probability and the fraction that the added distribution has in the mixture. */
static int proof_find_projection(tr_worker *me, struct proof *s)
{
    const struct tr_linear *m = s->m;
    const struct tr_problem *p = &m->problem;
    size_t outputs = m->outputs;
    double *sums = s->project, mix = 0;
    memset(sums, 0, 3 * outputs * sizeof *sums);
    for (size_t i = 0; i < p->rows.n; i++) {
        if (!tr_linear_dual_variables(m, i, s->u)) continue;
        for (size_t k = 0; k < outputs; k++) {
            double c = tr_row_weight(p, i);
            sums[3 * k + (s->u[k] > 0)] += c * fabs(s->u[k]);
            if (m->softmax) sums[3 * k + 2] += c * (s->u[k] + ((size_t)p->target[i] == k));
        }
    }
    TR_TRY(tr_all_reduce(me->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sums, 3 * outputs));
    bool is_free = p->bias && !m->o->bias_l2;
    for (size_t k = 0; k < outputs && m->softmax && is_free; k++) {
        double over = sums[3 * k + 1] - sums[3 * k];
        if (sums[3 * k + 2] > 0) mix = fmax(mix, over / sums[3 * k + 2]);
    }
    for (size_t k = 0; k < outputs; k++) {
        double negative = sums[3 * k], positive = sums[3 * k + 1], all = sums[3 * k + 2];
        double most = fmax(negative, positive),
               ratio = is_free && most > 0 ? fmin(negative, positive) / most : 1;
        sums[3 * k] = negative > positive ? ratio : 1;
        sums[3 * k + 1] = positive > negative ? ratio : 1;
        if (!m->softmax) continue;
        sums[3 * k] = is_free ? fmax(0, mix * all / p->n - (positive - negative) / p->n) : 0;
        sums[3 * k + 1] = mix;
    }
    return TR_OK;
}

/* Sets s->dual and s->rounding. */
static int proof_find_dual(tr_worker *me, struct proof *s)
{
    struct tr_linear *m = s->m;
    const struct tr_problem *p = &m->problem;
    TR_CLOSED_BY(tr_columns_close) struct tr_columns columns = {0};
    TR_FREED tr_key *keys = NULL;
    TR_FREED double *own = NULL;
    size_t outputs = m->outputs, n_keys = m->train->n_keys;
    bool is_free = p->bias && !m->o->bias_l2;
    double sums[3] = {0}, rows = (double)p->rows.n; /* Σ φ*(u), Σ |φ*(u)|, |X' u|² */
    TR_TRY(proof_find_projection(me, s));
    memset(s->w, 0, (p->keys + 1) * outputs * sizeof *s->w);
    for (size_t first = 0, n; first < p->rows.n; first += n) {
        n = tr_min_size(BLOCK_ROWS, p->rows.n - first);
        double block[2] = {0};
        for (size_t i = first; i < first + n; i++) {
            double *u = s->u + (i - first) * outputs, c = tr_row_weight(p, i);
            bool known = tr_linear_dual_variables(m, i, u);
            if (!known) memset(u, 0, outputs * sizeof *u);
            for (size_t k = 0; k < outputs && known; k++) { /* makes the variables feasible */
                double y = tr_row_target(p, i, k), conjugate = 0;
                if (m->softmax) {
                    double q = u[k] + (y > 0);
                    q = (1 - s->project[3 * k + 1]) * q + s->project[3 * k];
                    u[k] = q - (y > 0);
                    if (q > 0) conjugate = q * log(q);
                } else if (u[k] != 0) {
                    u[k] *= s->project[3 * k + (u[k] > 0)];
                    conjugate = p->loss->conjugate(-u[k] * (tr_linear_classifies(m) ? y : 1), y) -
                                u[k] * tr_row_offset(p, i);
                }
                u[k] *= c;
                block[0] += c * conjugate;
                block[1] += c * fabs(conjugate);
            }
        }
        tr_newton_add(p, first, n, s->u, s->w);
        sums[0] += block[0];
        sums[1] += block[1];
    }
    TR_TRY(TR_NEW(&keys, n_keys + 1));
    memcpy(keys, m->train->keys, n_keys * sizeof *keys);
    keys[n_keys] = m->train->columns;
    TR_TRY(tr_columns_open(&columns, m->tr, keys, n_keys + p->bias, m->train->columns + p->bias, outputs));
    TR_TRY(TR_NEW(&own, columns.n * outputs));
    TR_TRY(tr_columns_sum(&columns, s->w, own));
    size_t last = is_free && columns.first + columns.n > m->train->columns;
    for (size_t j = 0; j < (columns.n - last) * outputs; j++) sums[2] += own[j] * own[j];
    TR_TRY(tr_columns_sum_parts(&columns, &sums[2], 1));
    TR_TRY(tr_all_reduce(me->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sums, 2));
    TR_TRY(tr_all_reduce(me->tr, TR_SET_WORKERS, TR_MAX, TR_F64, &rows, 1));
    double of_weights = sums[2] / (2 * m->l2 * p->n);
    s->dual = -sums[0] - of_weights;
    s->rounding = 2.3e-16 * (64 + rows / BLOCK_ROWS) * (sums[1] + of_weights + s->loss);
    return TR_OK;
}

/* ---- the stage ---- */

static int proof_compute(tr_worker *me, void *state)
{
    struct proof *s = state;
    struct tr_linear *m = s->m;
    const struct tr_problem *p = &m->problem;
    size_t first = tr_data_part_begin(s->m->train, me), end = tr_data_part_end(m->train, me);
    double unknown = !m->dual, loss = 0;
    TR_TRY(tr_view_pull(m->view));
    for (size_t j = 0; j < (p->keys + p->bias) * m->outputs; j++)
        s->w[j] = tr_real_get(p->dtype, m->view->value, j);
    for (size_t at = first, n; at < end; at += n) {
        n = tr_min_size(BLOCK_ROWS, end - at);
        double *margin = s->settles ? s->margin + (at - first) : s->margin;
        tr_newton_times(p, at, n, s->w, margin);
        tr_add_offsets(p, at, n, margin);
        if (!s->settles) loss += tr_row_losses(p, at, n, margin, 0);
    }
    if (s->settles) TR_TRY(proof_settle_bias(me, s));
    else TR_TRY(tr_all_reduce(me->tr, TR_SET_WORKERS, TR_SUM, TR_F64, &loss, 1));
    if (!s->settles) s->loss = loss;
    TR_TRY(tr_all_reduce(me->tr, TR_SET_WORKERS, TR_MAX, TR_F64, &unknown, 1));
    s->known = unknown == 0;
    return s->known ? proof_find_dual(me, s) : TR_OK;
}

/* Only the bias has changed since proof_compute() pulled w, so that only the bias is pulled again. */
static int proof_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct proof *s = state;
    struct tr_linear *m = s->m;
    size_t bytes = tr_real_size(m->problem.dtype);
    if (m->view->clock < 0) TR_TRY(tr_view_pull(m->view)); /* the run resumed after proof_compute() */
    if (s->settles) {
        TR_TRY(tr_view_pull(s->bias));
        memcpy((char *)m->view->value + m->problem.keys * bytes, s->bias->value, bytes);
    }
    if (me->worker == 0) {
        report->sum[TR_LINEAR_LOSS] += s->loss;
        report->sum[TR_LINEAR_CONJUGATE] += -s->dual;
        report->sum[TR_LINEAR_OWN_SUMS] = s->rounding;
        report->sum[TR_LINEAR_OWN_SUMS + 1] = s->known;
    }
    TR_TRY(tr_linear_report_size(me, m, m->view->value, report));
    return m->test ? tr_linear_report_test(me, m, m->test_view, report) : TR_OK;
}

static int proof_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = ((struct proof *)state)->m;
    tr_evaluation before = m->last;
    evaluation->epoch = m->epoch;
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    double dual = tr_linear_dual_value(m, report) + tr_linear_penalty(m, report);
    double distance =
        fmax(0, evaluation->objective - dual) + report->sum[TR_LINEAR_OWN_SUMS] / m->total_weight;
    if (report->sum[TR_LINEAR_OWN_SUMS + 1] > 0) {
        tr_linear_prove(m, distance, true, evaluation);
    } else {
        evaluation->gap = before.gap;
        evaluation->estimated = true;
    }
    evaluation->stop = true;
    m->last = *evaluation;
    return TR_OK;
}

int tr_linear_dual_prove(struct tr_linear *m)
{
    struct proof s = {.m = m};
    bool is_free = m->o->bias && !m->o->bias_l2 && m->outputs == 1 && !m->loss->corner;
    /* does not check the gap, because the test data selected the model */
    if (tr_job_number(m->job, "solve.patience") > 0) return TR_OK;
    s.settles = is_free && tr_job_is(m->job, "table.filter", "none");
    tr_view_close(&m->view);
    tr_stage stage = {.name = "proof",
                      .state = &s,
                      .clocks = 1,
                      .epochs_per_clock = 0,
                      .prepare = proof_prepare,
                      .compute = proof_compute,
                      .evaluate = proof_evaluate,
                      .summarize = proof_summarize};
    tr_test_metrics_name(&m->metrics, m->test, &stage);
    int status = tr_run(m->tr, &stage);
    tr_view_close(&s.bias);
    void *arrays[] = {s.margin, s.w, s.u, s.project};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return status;
}
