/* Dual coordinate descent: every row has a dual variable, which its worker sets to its minimum, row by row in random order,
 * while w = Σ α x / (λ n) moves along (Hsieh et al. 2008; Yu, Huang and Lin 2011). It needs no step size, and the dual
 * value proves how far from the optimum it is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"

struct tr_linear_dual {
    int64_t turns, every; /* parts of an epoch's rows, and how many of them a clock takes */
    uint32_t *order;      /* rows in this epoch's order … */
    int64_t ordered;      /* … which is number ordered - 1 */
    float *a, *norm;      /* of each row: its dual variable, and |x|² */
    double mean; /* of the targets: where the bias of a regression begins, if it is not regularised */
    double anchor, moved; /* worker 0's: see move_anchor(); and what it moved by in this clock */
};

/* ---- checking ---- */

static int check(const tr_job *job, const struct tr_linear_options *o)
{
    if (!tr_job_is(job, "sync.weight", "sum"))
        return tr_linear_refuse(job, "sync.weight",
                                "sync.weight is for solve.method sgd: the dual needs whole updates");
    if (o->optimizer != TR_PLAIN_SGD)
        return tr_linear_refuse(job, "solve.optimizer", "solve.optimizer is for solve.method sgd");
    if (o->l1 > 0)
        return tr_linear_refuse(job, "model.l1", "model.l1 needs solve.method sgd and solve.optimizer ftrl");
    if (o->l2 == 0)
        return tr_linear_refuse(job, "model.l2",
                                "solve.method dual needs model.l2 > 0, or use solve.method sgd");
    if (tr_job_is(job, "data.partition", "vertical"))
        return tr_linear_refuse(
            job, "data.partition",
            "data.partition vertical needs solve.method sgd: a dual step needs whole rows");
    if (tr_job_is(job, "data.partition", "replicated"))
        return tr_linear_refuse(
            job, "data.partition",
            "data.partition replicated is not for solve.method dual: a row has one dual variable, at one "
            "worker");
    return TR_OK;
}

/* ---- opening ---- */

/* Workers that merge often disturb each other less (a9a on two ranks: 44 epochs to a gap of 1e-4 with 22 clocks in
 * each, with 4 not in 100), but a clock costs a pull and a push of the whole view: it should compute on several
 * non-zeros for each key, and longer than a message takes. */
static int64_t usual_turns(const struct tr_linear *m)
{
    int workers = tr_workers(m->tr);
    if (workers == 1) return 1;
    double nonzeros = (double)m->train->total_nonzeros / workers, least = tr_nodes(m->tr) == 1 ? 1e4 : 1e5;
    return (int64_t)fmax(1, fmin(64, fmin(nonzeros / least, nonzeros / (4 * (double)m->train->columns))));
}

static int open_dual(struct tr_linear *m)
{
    struct tr_linear_dual *d;
    double rows = (double)m->train->total_rows, batch = (double)m->o->batch;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->dual, 1)));
    d = m->dual;
    d->turns = batch > 0 ? (int64_t)fmax(1, round(rows / batch)) : usual_turns(m);
    d->every = tr_linear_batches_of_clock(m, d->turns, 1);
    m->clocks_per_epoch = (d->turns + d->every - 1) / d->every;
    return TR_OK;
}

static void close_dual(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    if (!d) return;
    free(d->order);
    free(d->a);
    free(d->norm);
    free(d);
    m->dual = NULL;
}

/* ---- a bias that is not regularised ----
 *
 * It is learnt as anchor + b', where b' = Σ α / (λ n) is regularised as if it were one more weight, and the anchor follows
 * the bias: the proximal point method, whose dual is the method of multipliers (Rockafellar 1976). In the end b' is nearly
 * 0 and costs nothing. The anchor moves in many small steps: the rows behind a large one would have to make up for it. */

enum { ANCHOR_STEPS = 64 }; /* of an epoch */

static bool has_free_bias(const struct tr_linear *m)
{
    return m->problem.bias && !m->o->bias_l2;
}

static double bias_of(const struct tr_linear *m, const void *w)
{
    size_t at = m->problem.keys;
    return m->problem.dtype == TR_F32 ? (double)((const float *)w)[at] : ((const double *)w)[at];
}

static void add_to_bias(const struct tr_linear *m, void *w, double x)
{
    size_t at = m->problem.keys;
    if (m->problem.dtype == TR_F32) ((float *)w)[at] += (float)x;
    else ((double *)w)[at] += x;
}

/* The dual value for a bias that is held fast is a bound for all weights beside this bias. How much less another bias could
 * cost follows from the slope along it, λ b', and from how far it may be to the best one: its own size, and 1, are taken
 * for that, which is a guess, but b' is nearly 0 when it counts. As part of the conjugate: */
static double cost_of_bias(const struct tr_linear *m, double bias)
{
    double own = bias - m->dual->anchor;
    return m->problem.n * m->l2 * (own * bias + fabs(own) * (1 + fabs(bias)));
}

/* ---- the stage ---- */

static int prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    TR_TRY(tr_linear_prepare(me, m, TR_LINEAR_MARGINS));
    size_t rows = m->problem.rows.n;
    TR_TRY(TR_NEW(&d->order, rows));
    TR_TRY(TR_NEW(&d->a, rows));
    TR_TRY(TR_NEW(&d->norm, rows));
    tr_row_norms(&m->problem, d->norm);
    return TR_OK;
}

/* A new order every epoch, from a stream of its own: a run can be taken up at any clock. */
static void shuffle(struct tr_linear *m, const tr_worker *me, int64_t epoch)
{
    struct tr_rng rng;
    if (m->dual->ordered == epoch + 1) return;
    m->dual->ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->worker, (uint64_t)epoch);
    tr_rng_permutation(&rng, m->dual->order, m->problem.rows.n);
}

/* Where the rows of a turn begin in this epoch's order. */
static size_t turn_begin(const struct tr_linear *m, int64_t turn)
{
    return (size_t)((double)m->problem.rows.n * (double)turn / (double)m->dual->turns);
}

/* Worker 0 moves the anchor by a part of b', and the bias by as much, for b' stays what the dual variables say. If what it
 * sees of others is stale, that is a little more or less, which does no harm: both move by the same. */
static void move_anchor(struct tr_linear *m, double part)
{
    struct tr_linear_dual *d = m->dual;
    double by = part * (bias_of(m, m->view->delta) - d->anchor);
    d->anchor += by;
    d->moved += by;
    add_to_bias(m, m->view->delta, by);
    add_to_bias(m, m->view->value, by);
}

static void pass(const tr_worker *me, struct tr_linear *m, size_t begin, size_t end, double sigma)
{
    struct tr_linear_dual *d = m->dual;
    bool moves = has_free_bias(m) && me->worker == 0;
    size_t step = moves ? m->problem.rows.n / ANCHOR_STEPS + 1 : end - begin;
    for (size_t at = begin; at < end; at += step) {
        size_t n = tr_min_size(step, end - at);
        tr_dual_pass(&m->problem, d->order + at, n, sigma, d->norm, d->a, m->view->delta);
        if (moves) move_anchor(m, (double)n / (double)m->problem.rows.n);
    }
}

/* Each worker minimises the dual over its rows against its view; adding up all their changes is safe when each
 * counts its own sigma times, sigma being the number of workers (CoCoA+, Ma et al. 2015, lemma 4). Measuring
 * what the last merge would have allowed, as sigma for the next, was tried: it saves nothing at 2 to 8 workers
 * and swings when the estimate falls behind. */
static int compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    shuffle(m, me, me->clock / m->clocks_per_epoch);
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first = me->clock % m->clocks_per_epoch * d->every,
            last = first + d->every < d->turns ? first + d->every : d->turns;
    double sigma = m->o->sigma >= 1 ? m->o->sigma : (double)me->workers;
    d->moved = 0;
    if (me->clock == 0 && has_free_bias(m)) { /* all begin with what worker 0 will push */
        add_to_bias(m, m->view->value, d->mean);
        if (me->worker == 0) d->anchor = d->moved = d->mean;
    }
    tr_linear_copy_to_delta(m->view, m->problem.dtype);
    pass(me, m, turn_begin(m, first), turn_begin(m, last), sigma);
    tr_linear_keep_difference(m->view, m->problem.dtype, sigma);
    if (d->moved != 0) add_to_bias(m, m->view->delta, d->moved);
    return tr_view_push(m->view);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_evaluate(me, state, report));
    const void *w = m->fresh_view ? m->fresh_view->value : m->view->value;
    if (me->worker == 0 && has_free_bias(m))
        tr_linear_report_conjugate(report, cost_of_bias(m, bias_of(m, w)));
    tr_linear_report_conjugate(report, tr_dual_sum(&m->problem, m->dual->a));
    return TR_OK;
}

/* w is the dual's own, so its size counts in both values. */
static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    TR_TRY(tr_linear_summarize(state, report, evaluation));
    tr_linear_prove(state, tr_linear_dual_value(state, report), evaluation);
    return TR_OK;
}

/* The order of rows follows from the seed and the epoch. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_model_keep_sums(me, snapshot, "anchor", 1, &m->dual->anchor));
    return tr_data_keep(m->train, snapshot, "dual", TR_F32, m->dual->a);
}

/* Of the targets of all workers. */
static int find_mean(struct tr_linear *m)
{
    const tr_batch *rows = &m->train->rows;
    double sum[2] = {0, (double)rows->n};
    if (tr_linear_classifies(m) || m->o->bias_l2) return TR_OK;
    for (size_t i = 0; i < rows->n; i++) sum[0] += (double)rows->label[i];
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 2));
    m->dual->mean = sum[0] / fmax(sum[1], 1);
    return TR_OK;
}

static int train(struct tr_linear *m)
{
    TR_TRY(find_mean(m));
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = m->epochs * m->clocks_per_epoch,
                      .evaluate_every = m->report_every * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .metric_name = tr_linear_metric(m),
                      .metric_ascends = tr_linear_classifies(m),
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize,
                      .snapshot = snapshot};
    return tr_run(m->tr, &train);
}

const struct tr_linear_method tr_linear_dual = {.check = check,
                                                .open = open_dual,
                                                .train = train,
                                                .close = close_dual,
                                                .weighs_rows = true,
                                                .losses = (1 << TR_LOSS_POISSON) - 1,
                                                .diverged = "raise solve.sigma"};
