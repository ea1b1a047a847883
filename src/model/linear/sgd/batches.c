/* Mini-batches of rows: which rows they are of, in which order they come, and a plain gradient step on one. */
#include <stdlib.h>

#include "../linear.h"
#include "../row.h"

/* ---- how many rows have a feature: one clock over a table of its own ---- */

static int prepare_count(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_set_problem(m, tr_linear_has_bias(m, me), m->train, &m->problem, &m->target));
    if (!m->batches.count) return TR_OK;
    return tr_linear_open_view(m, me, m->train, m->batches.count, TR_VIEW_UPDATE, &m->batches.count_view);
}

static int count_rows(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    if (!m->batches.count) return TR_OK;
    float *count = m->batches.count_view->delta;
    size_t first = tr_data_part_begin(m->train, me), end = tr_data_part_end(m->train, me);
    if (m->problem.bias) count[m->problem.keys] += (float)(end - first);
    for (size_t some; (some = tr_ready(&m->problem, first, end - first)) > 0;)
        for (size_t stop = first + some; first < stop; first++) {
            struct tr_data_row x = tr_row_of(&m->problem, first);
            for (size_t k = 0; k < x.n; k++) count[tr_row_key(&x, k)] += 1;
        }
    return tr_view_push(m->batches.count_view);
}

/* Spreads λ w over the rows: a step on a row shrinks just its features, by λ n / (rows that have it), so that the
 * mean over all rows is λ w, and the step costs no more than its non-zeros. Dense rows have all features. */
static int spread_regularisation(struct tr_linear *m)
{
    if (!m->batches.count_view) return TR_OK;
    TR_TRY(tr_view_pull(m->batches.count_view));
    const float *count = m->batches.count_view->value;
    size_t n = m->batches.count_view->n;
    TR_TRY(TR_NEW(&m->batches.reg, n));
    for (size_t j = 0; j < n; j++)
        m->batches.reg[j] = count[j] > 0 ? (float)(m->l2 * m->problem.n / (double)count[j]) : 0;
    if (m->problem.bias && !m->o->bias_l2) m->batches.reg[m->problem.keys] = 0;
    tr_view_close(&m->batches.count_view);
    return TR_OK;
}

int tr_linear_count_rows(struct tr_linear *m)
{
    if (m->l2 > 0)
        TR_TRY(tr_table_create(m->tr, "count", TR_F32, 1, m->train->columns + m->o->bias, &m->batches.count));
    tr_stage count = {
        .name = "count", .state = m, .clocks = 1, .prepare = prepare_count, .compute = count_rows};
    TR_TRY(tr_run(m->tr, &count));
    TR_TRY(tr_agree(m->tr, spread_regularisation(m)));
    return m->batches.count ? tr_table_drop(&m->batches.count) : TR_OK;
}

void tr_linear_close_batches(struct tr_linear *m)
{
    tr_view_close(&m->batches.count_view);
    free(m->batches.reg);
    free(m->batches.order);
}

/* ---- which rows, and when ---- */

void tr_linear_take_part(const tr_worker *me, struct tr_linear *m)
{
    m->batches.first_row = tr_data_part_begin(m->train, me);
    m->batches.end_row = tr_data_part_end(m->train, me);
}

size_t tr_linear_batch_begin(const struct tr_linear *m, int64_t i)
{
    const struct tr_linear_batches *b = &m->batches;
    return b->first_row + (size_t)((double)(b->end_row - b->first_row) * (double)i / (double)b->n);
}

int tr_linear_shuffle_batches(const tr_worker *me, struct tr_linear *m, int64_t epoch)
{
    size_t n = (size_t)m->batches.n;
    struct tr_rng rng;
    if (!m->batches.order) TR_TRY(TR_NEW(&m->batches.order, n));
    if (!tr_job_is(m->job, "data.order", "dealt")) {
        for (size_t i = 0; i < n; i++) m->batches.order[i] = (uint32_t)i;
        return TR_OK;
    }
    size_t *begin;
    TR_TRY(TR_NEW(&begin, n));
    for (size_t i = 0; i < n; i++) begin[i] = tr_linear_batch_begin(m, (int64_t)i);
    tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)epoch);
    int status = tr_data_permute_parts(m->train, &rng, begin, n, m->batches.order);
    free(begin);
    return status;
}

/* ---- steps ---- */

/* Where updates are averaged each group steps as if alone; where they are added it steps for its part of the rows. */
static double batch_rows(const struct tr_worker *me, const struct tr_linear *m)
{
    double all = m->problem.n / (double)m->batches.n;
    return m->sums ? all : all / me->groups;
}

int tr_linear_add_batch(tr_worker *me, struct tr_linear *m, int64_t turn, double rate, const void *w,
                        void *into)
{
    int64_t i = m->batches.order[turn];
    size_t begin = tr_linear_batch_begin(m, i), n = tr_linear_batch_begin(m, i + 1) - begin;
    const struct tr_problem *p = &m->problem;
    size_t end = begin + n, width = p->outputs;
    /* rows of a batch that are there are taken first, as they may go; but if w moves, all margins come before */
    for (; end > begin && (n = w == into ? end - begin : tr_ready(p, begin, end - begin)) > 0; begin += n) {
        tr_margins(p, begin, n, w, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n * width));
        for (size_t r = 0; r < n; r++) tr_row_slopes(p, begin + r, m->margin + r * width);
        tr_add_rows(p, begin, n, m->margin, rate / batch_rows(me, m), m->batches.reg, w, into);
    }
    return TR_OK;
}

int tr_linear_plain_step(tr_worker *me, struct tr_linear *m, int64_t turn, double rate)
{
    return tr_linear_add_batch(me, m, turn, rate, m->view->value, m->view->delta);
}
