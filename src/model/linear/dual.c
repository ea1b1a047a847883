/* Dual coordinate descent: every row has a dual variable, which its worker sets to its minimum, row by row in random order,
 * while w = Σ α x / (λ n) moves along (Hsieh et al. 2008; Yu, Huang and Lin 2011). It needs no step size, and the dual
 * value proves how far from the optimum it is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dual.h"

/* ---- checking ---- */

static int check(const tr_job *job, const struct tr_linear_options *o)
{
    if (!tr_job_is(job, "sync.weight", "sum"))
        return tr_linear_refuse(job, "sync.weight",
                                "sync.weight is for solve.method sgd: the dual needs whole updates");
    if (o->optimizer != TR_PLAIN_SGD)
        return tr_linear_refuse(job, "solve.optimizer", "solve.optimizer is for solve.method sgd");
    if (o->l1 > 0)
        return tr_linear_refuse(job, "model.l1",
                                "model.l1 needs solve.method descent, or sgd with solve.optimizer ftrl");
    if (o->l2 == 0)
        return tr_linear_refuse(job, "model.l2",
                                "solve.method dual needs model.l2 > 0, or use solve.method sgd");
    if (tr_job_is(job, "data.partition", "vertical"))
        return tr_linear_refuse(
            job, "data.partition",
            "data.partition vertical needs solve.method sgd: a dual step needs whole rows");
    return TR_OK;
}

/* ---- opening ---- */

/* Workers that merge often disturb each other less (a9a on two ranks: 44 epochs to a gap of 1e-4 with 22 clocks in
 * each, with 4 not in 100), but a clock costs a pull and a push of the whole view: it should compute on several
 * non-zeros for each key, and longer than a message takes. */
static int64_t usual_turns(const struct tr_linear *m, int workers)
{
    if (workers == 1) return 1;
    double nonzeros = (double)m->train->total_nonzeros / workers, least = tr_nodes(m->tr) == 1 ? 1e4 : 1e5;
    return (int64_t)fmax(1, fmin(64, fmin(nonzeros / least, nonzeros / (4 * (double)m->train->columns))));
}

/* Whether the members of a group have the same rows … */
static bool has_common_rows(const struct tr_linear *m)
{
    return tr_group_size(m->tr) > 1 && tr_job_is(m->job, "data.partition", "replicated");
}

/* … and change one w. Where clocks differ they do not meet. */
static bool shares_w(const struct tr_linear *m)
{
    return has_common_rows(m) && tr_in_lockstep(m->tr);
}

/* Takes the next part of some memory, or of none while its size is found. */
static void *take(char *memory, size_t *at, size_t bytes)
{
    void *part = memory ? memory + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return part;
}

static size_t lay_out(struct tr_linear *m, char *memory)
{
    struct tr_linear_dual *d = m->dual;
    size_t at = 0, rows = m->train->rows.n, keys = m->train->n_keys + 1,
           element = m->o->dtype == TR_F32 ? sizeof(float) : sizeof(double);
    d->group = take(memory, &at, sizeof *d->group);
    d->a = take(memory, &at, rows * sizeof *d->a);
    d->norm = take(memory, &at, rows * sizeof *d->norm);
    d->order = take(memory, &at, rows * sizeof *d->order);
    if (shares_w(m)) d->w = take(memory, &at, keys * element);
    else d->group = NULL;
    return at;
}

static int open_group(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    if (!(tr_roles(m->tr) & TR_SLAVE) || !has_common_rows(m)) return TR_OK;
    TR_TRY(tr_set_memory_open(m->tr, TR_SET_GROUP, lay_out(m, NULL), &d->memory));
    lay_out(m, tr_set_memory_at(d->memory));
    return TR_OK;
}

static int open_dual(struct tr_linear *m)
{
    struct tr_linear_dual *d;
    double rows = (double)m->train->total_rows, batch = (double)m->o->batch;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->dual, 1)));
    d = m->dual;
    d->turns = batch > 0 ? (int64_t)fmax(1, round(rows / batch))
                         : usual_turns(m, shares_w(m) ? tr_groups(m->tr) : tr_workers(m->tr));
    d->every = tr_linear_batches_of_clock(m, d->turns, 1);
    m->clocks_per_epoch = (d->turns + d->every - 1) / d->every;
    return tr_agree(m->tr, open_group(m));
}

static void close_dual(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    if (!d) return;
    if (d->memory) {
        tr_set_memory_close(&d->memory);
    } else {
        free(d->order);
        free(d->a);
        free(d->norm);
    }
    free(d);
    m->dual = NULL;
}

/* ---- a bias that is not regularised ---- */

enum { ANCHOR_STEPS = 64 }; /* of an epoch */

static void add_to_bias(const struct tr_linear *m, void *w, double x)
{
    size_t at = m->problem.keys;
    if (m->problem.dtype == TR_F32) ((float *)w)[at] += (float)x;
    else ((double *)w)[at] += x;
}

/* The dual value for a bias that is held fast is a bound for all weights beside this bias. How much less another bias could
 * cost follows from the slope along it, λ b', and from how far it may be to the best one: its own size, and 1, are taken
 * for that, which is a guess, but b' is nearly 0 when it counts. As part of the conjugate: */
double tr_linear_cost_of_bias(const struct tr_linear *m, double bias)
{
    double own = bias - m->dual->anchor;
    return m->problem.n * m->l2 * (own * bias + fabs(own) * (1 + fabs(bias)));
}

/* ---- the stage ---- */

static int prepare_rows(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    size_t rows = m->problem.rows.n;
    d->first = tr_data_part_begin(m->train, me);
    d->end = tr_data_part_end(m->train, me);
    if (!d->memory) {
        TR_TRY(TR_NEW(&d->order, rows));
        TR_TRY(TR_NEW(&d->a, rows));
        TR_TRY(TR_NEW(&d->norm, rows));
    }
    tr_row_norms(&m->problem, d->first, d->end - d->first, d->norm);
    return TR_OK;
}

static int prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    bool shares = m->dual->group != NULL;
    TR_TRY(shares ? tr_linear_prepare_rows(me, m, 0) : tr_linear_prepare(me, m, 0));
    TR_TRY(prepare_rows(me, m));
    return shares ? tr_linear_dual_prepare_shared(me, m) : TR_OK;
}

/* A new order every epoch, from a stream of its own: a run can be taken up at any clock. */
static void shuffle(struct tr_linear *m, const tr_worker *me, int64_t epoch)
{
    struct tr_linear_dual *d = m->dual;
    struct tr_rng rng;
    if (d->ordered == epoch + 1) return;
    d->ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->worker, (uint64_t)epoch);
    tr_rng_permutation(&rng, d->order + d->first, d->end - d->first);
    for (size_t i = d->first; i < d->end; i++) d->order[i] += (uint32_t)d->first;
}

/* Where the rows of a turn begin in this epoch's order. */
static size_t turn_begin(const struct tr_linear *m, int64_t turn)
{
    const struct tr_linear_dual *d = m->dual;
    return d->first + (size_t)((double)(d->end - d->first) * (double)turn / (double)d->turns);
}

/* Worker 0 moves the anchor by a part of b', and the bias by as much, for b' stays what the dual variables say. If what it
 * sees of others is stale, that is a little more or less, which does no harm: both move by the same. */
static void move_anchor(struct tr_linear *m, double part)
{
    struct tr_linear_dual *d = m->dual;
    double by = part * (tr_linear_bias_of(m, m->view->delta) - d->anchor);
    d->anchor += by;
    d->moved += by;
    add_to_bias(m, m->view->delta, by);
    add_to_bias(m, m->view->value, by);
}

static void pass(const tr_worker *me, struct tr_linear *m, size_t begin, size_t end, double sigma)
{
    struct tr_linear_dual *d = m->dual;
    bool moves = tr_linear_has_free_bias(m) && me->worker == 0;
    size_t rows = d->end - d->first, step = moves ? rows / ANCHOR_STEPS + 1 : end - begin;
    for (size_t at = begin; at < end; at += step) {
        size_t n = tr_min_size(step, end - at);
        tr_dual_pass(&m->problem, d->order + at, n, sigma, d->norm, d->a, m->view->delta);
        if (moves) move_anchor(m, (double)n / (double)rows);
    }
}

/* Each worker minimises the dual over its rows against its view; adding up all their changes is safe when each
 * counts its own sigma times, sigma being the number of workers (CoCoA+, Ma et al. 2015, lemma 4). Measuring
 * what the last merge would have allowed, as sigma for the next, was tried: it saves nothing at 2 to 8 workers
 * and swings when the estimate falls behind. */
static int compute_own(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    shuffle(m, me, me->clock / m->clocks_per_epoch);
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first = me->clock % m->clocks_per_epoch * d->every,
            last = first + d->every < d->turns ? first + d->every : d->turns;
    double sigma = m->o->sigma >= 1 ? m->o->sigma : (double)me->workers;
    d->moved = 0;
    if (me->clock == 0 && tr_linear_has_free_bias(m)) { /* all begin with what worker 0 will push */
        add_to_bias(m, m->view->value, d->mean);
        if (me->worker == 0) d->anchor = d->moved = d->mean;
    }
    tr_linear_copy_to_delta(m->view, m->problem.dtype);
    pass(me, m, turn_begin(m, first), turn_begin(m, last), sigma);
    tr_linear_keep_difference(m->view, m->problem.dtype, sigma);
    if (d->moved != 0) add_to_bias(m, m->view->delta, d->moved);
    return tr_view_push(m->view);
}

static int compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    return m->dual->group ? tr_linear_dual_compute_shared(me, m) : compute_own(me, m);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    TR_TRY(d->group ? tr_linear_dual_evaluate_shared(me, m, report) : tr_linear_evaluate(me, state, report));
    const void *w = d->group ? d->w : m->fresh_view ? m->fresh_view->value : m->view->value;
    if (me->worker == 0 && tr_linear_has_free_bias(m))
        tr_linear_report_conjugate(report, tr_linear_cost_of_bias(m, tr_linear_bias_of(m, w)));
    tr_linear_report_conjugate(report, tr_dual_sum(&m->problem, d->first, d->end - d->first, d->a));
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
                                                .of_classes = &tr_linear_dual_classes,
                                                .weighs_rows = true,
                                                .losses = (1 << TR_LOSS_POISSON) - 1,
                                                .diverged = "raise solve.sigma"};
