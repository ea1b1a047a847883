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
    if (o->bias && !o->bias_l2)
        return tr_linear_refuse(
            job, "model.bias",
            "solve.method dual needs a regularised bias: set model.bias_l2, or use solve.method sgd");
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
    size_t begin = turn_begin(m, first), end = turn_begin(m, last);
    double sigma = m->o->sigma >= 1 ? m->o->sigma : (double)me->workers;
    tr_linear_copy_to_delta(m->view, m->problem.dtype);
    tr_dual_pass(&m->problem, d->order + begin, end - begin, sigma, d->norm, d->a, m->view->delta);
    tr_linear_keep_difference(m->view, m->problem.dtype, sigma);
    return tr_view_push(m->view);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    tr_linear_report_conjugate(report, tr_dual_sum(&m->problem, m->dual->a));
    return tr_linear_evaluate(me, state, report);
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
    (void)me;
    struct tr_linear *m = state;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    return tr_data_keep(m->train, snapshot, "dual", TR_F32, m->dual->a);
}

static int train(struct tr_linear *m)
{
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = m->epochs * m->clocks_per_epoch,
                      .evaluate_every = m->report_every * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .metric_name = tr_linear_metric(m),
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
                                                .diverged = "raise solve.sigma, or lower sync.staleness"};
