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

/* Workers that merge often disturb each other less. On the way to a gap of 1e-3 nodes need so many merges rather than so many
 * passes, until those are as few as on one of them (two nodes, with 1, 4 and 16 turns in a pass: amazon-access 172, 41 and 15
 * passes, frappe 41, 18 and 17, rcv1 15, 4 and 4; four nodes: frappe above 100, 63 and 32). But a turn costs a pull and a push
 * of the whole view: beyond four it should compute on several non-zeros for each key, and longer than a message takes. */
int64_t tr_linear_dual_usual_turns(const struct tr_linear *m, int workers)
{
    double nonzeros = (double)m->train->total_nonzeros / workers;
    double most = fmin(64, fmin(nonzeros / 1e4, nonzeros / (4 * (double)m->train->columns)));
    return workers == 1 ? 1 : (int64_t)fmax(tr_nodes(m->tr) > 1 ? 4 : 1, most);
}

int64_t tr_linear_dual_turns(struct tr_linear *m, int64_t usual, int64_t *every)
{
    double rows = (double)m->train->total_rows, batch = (double)m->o->batch;
    struct tr_job_often push;
    int64_t turns = batch > 0 ? (int64_t)fmax(1, round(rows / batch)) : usual;
    if (tr_job_often(m->job, "sync.push", &push) == TR_OK && push.unit == TR_OFTEN_PER_EPOCH)
        turns = (int64_t)fmax((double)turns, (double)push.n);
    *every = tr_linear_batches_of_clock(m, turns, 1);
    m->clocks_per_epoch = (turns + *every - 1) / *every;
    return turns;
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
    if (!shares_w(m)) {
        d->group = NULL;
        return at;
    }
    d->w = take(memory, &at, keys * element);
    if (d->table) {
        d->added = take(memory, &at, sizeof *d->added);
        d->average = take(memory, &at, keys * element);
    }
    if (tr_linear_dual_rests(m)) d->rests = take(memory, &at, rows * sizeof *d->rests);
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
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->dual, 1)));
    d = m->dual;
    d->turns = tr_linear_dual_turns(
        m, tr_linear_dual_usual_turns(m, shares_w(m) ? tr_groups(m->tr) : tr_workers(m->tr)), &d->every);
    if (tr_workers(m->tr) == 1 || (shares_w(m) && tr_groups(m->tr) == 1)) TR_TRY(tr_linear_dual_open_mean(m));
    return tr_agree(m->tr, open_group(m));
}

static void close_dual(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    if (!d) return;
    if (d->table) tr_view_close(&d->view);
    if (!d->group) {
        free(d->added);
        free(d->average);
        free(d->rests);
    }
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

static void add_to_bias(const struct tr_linear *m, void *w, double x)
{
    size_t at = m->problem.keys;
    if (m->problem.dtype == TR_F32) ((float *)w)[at] += (float)x;
    else ((double *)w)[at] += x;
}

int tr_linear_dual_norms(struct tr_linear *m, size_t first, size_t n, float *norm)
{
    struct tr_problem *p = &m->problem;
    double sum[2] = {0, (double)n};
    bool is_free = tr_linear_has_free_bias(m);
    if (is_free) p->of_bias = 0;
    tr_row_norms(p, first, n, norm);
    if (!is_free) return TR_OK;
    for (size_t i = first; i < first + n; i++) sum[0] += (double)norm[i];
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sum, 2));
    p->of_bias = fmin(1, fmax(0.03 * sum[0] / fmax(sum[1], 1), 400 * m->l2));
    for (size_t i = first; i < first + n; i++) norm[i] += (float)p->of_bias;
    return TR_OK;
}

/* The dual value for a bias that is held fast is a bound for all weights beside this bias. How much less another bias could
 * cost follows from the slope along it, Σ α / n, and from how far it may be to the best one: the bias's own size, and 1, are
 * taken for that, which is a guess, but the slope is nearly 0 when it counts. As part of the conjugate: */
double tr_linear_cost_of_bias(const struct tr_linear *m, double bias, double own)
{
    return m->problem.n * m->l2 / m->problem.of_bias * (own * bias + fabs(own) * (1 + fabs(bias)));
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
    return tr_linear_dual_norms(m, d->first, d->end - d->first, d->norm);
}

static int prepare_own(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    TR_TRY(tr_linear_prepare(me, m, 0));
    TR_TRY(prepare_rows(me, m));
    if (!d->table) {
        d->view = m->view;
        return TR_OK;
    }
    TR_TRY(tr_linear_open_view(m, me, m->train, d->table, TR_VIEW_UPDATE, &d->view));
    TR_TRY(TR_NEW(&d->added, 1));
    if (tr_linear_dual_rests(m)) TR_TRY(TR_NEW(&d->rests, m->problem.rows.n));
    size_t element = m->problem.dtype == TR_F32 ? sizeof(float) : sizeof(double);
    return TR_NEW((char **)&d->average, (d->view->n + 1) * element);
}

static int prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    if (tr_linear_dual_rests(m)) m->see = tr_linear_dual_see;
    if (!m->dual->group) return prepare_own(me, m);
    TR_TRY(tr_linear_prepare_rows(me, m, 0));
    TR_TRY(prepare_rows(me, m));
    return tr_linear_dual_prepare_shared(me, m);
}

/* A new order every epoch, from a stream of its own: a run can be taken up at any clock. */
static void shuffle(struct tr_linear *m, const tr_worker *me, int64_t epoch)
{
    struct tr_linear_dual *d = m->dual;
    struct tr_rng rng;
    if (d->ordered == epoch + 1) return;
    d->ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->worker, (uint64_t)epoch);
    tr_data_permute(m->train, &rng, d->first, d->end - d->first, d->order + d->first);
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
    double by = part * (tr_linear_bias_of(m, d->view->delta) - d->anchor);
    d->anchor += by;
    d->moved += by;
    add_to_bias(m, d->view->delta, by);
    add_to_bias(m, d->view->value, by);
}

/* Takes steps for so many rows of the order. */
static void take_steps(struct tr_linear *m, size_t at, size_t n, double sigma)
{
    enum { LISTED = 256 };
    struct tr_linear_dual *d = m->dual;
    uint32_t rows[LISTED];
    for (size_t end = at + n; at < end; at += LISTED) {
        size_t listed = tr_min_size(LISTED, end - at);
        tr_seam();
        memcpy(rows, d->order + at, listed * sizeof *rows);
        listed = tr_linear_dual_leave_out(d, rows, listed);
        tr_dual_pass(&m->problem, rows, listed, sigma, d->norm, d->a, d->view->delta);
    }
}

static void pass(const tr_worker *me, struct tr_linear *m, size_t begin, size_t end, double sigma)
{
    struct tr_linear_dual *d = m->dual;
    bool moves = tr_linear_has_free_bias(m) && me->worker == 0;
    size_t rows = d->end - d->first, part = end - begin;
    size_t all = part * tr_linear_dual_sweeps(m, tr_linear_dual_resting(d));
    size_t step = moves ? rows / TR_ANCHOR_STEPS + 1 : part;
    if (d->table) step = tr_min_size(step, tr_linear_dual_rows_between_additions(d, part));
    for (size_t at = 0, n; at < all; at += n) {
        size_t place = begin + at % part;
        n = tr_min_size(step, end - place);
        n = tr_data_ready_in(m->train, d->order + d->first, place - d->first, n);
        if (n == 0) break;
        take_steps(m, place, n, sigma);
        if (moves) move_anchor(m, (double)n / (double)rows);
        tr_linear_dual_add_to_mean(m, d->view->delta, (double)at, (double)(at + n), (double)all);
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
    TR_TRY(tr_view_pull(d->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(d->view));
    int64_t first = me->clock % m->clocks_per_epoch * d->every,
            last = first + d->every < d->turns ? first + d->every : d->turns;
    double sigma = m->o->sigma >= 1 ? m->o->sigma : (double)me->workers;
    d->moved = 0;
    if (me->clock == 0 && tr_linear_has_free_bias(m)) { /* all begin with what worker 0 will push */
        add_to_bias(m, d->view->value, d->mean);
        if (me->worker == 0) d->anchor = d->moved = d->mean;
    }
    tr_linear_copy_to_delta(d->view, m->problem.dtype);
    if (d->table) tr_linear_dual_begin_mean(m, 0, d->view->n);
    TR_TRY(tr_turn_begin(m->tr, "gradient"));
    pass(me, m, turn_begin(m, first), turn_begin(m, last), sigma);
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    TR_TRY(tr_linear_dual_push_mean(m, d->view->delta, 0, d->view->n));
    tr_linear_keep_difference(d->view, m->problem.dtype, sigma);
    if (d->moved != 0) add_to_bias(m, d->view->delta, d->moved);
    return tr_view_push(d->view);
}

static int compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    return m->dual->group ? tr_linear_dual_compute_shared(me, m) : compute_own(me, m);
}

/* What w's size and the bias take from the dual value, as part of the conjugate. */
static int report_size(struct tr_linear *m, const void *w, tr_report *report)
{
    struct tr_linear_dual *d = m->dual;
    double squares, bias = m->problem.bias ? tr_linear_bias_of(m, w) : 0;
    TR_TRY(tr_table_squares(d->table ? d->table : m->w, &squares));
    if (!m->o->bias_l2) squares -= bias * bias;
    tr_linear_report_conjugate(report, m->problem.n * 0.5 * m->l2 * squares);
    if (tr_linear_has_free_bias(m))
        tr_linear_report_conjugate(report, tr_linear_cost_of_bias(m, bias, bias - d->anchor));
    return TR_OK;
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    TR_TRY(d->group ? tr_linear_dual_evaluate_shared(me, m, report) : tr_linear_evaluate(me, state, report));
    if (d->table && !d->group) TR_TRY(tr_view_pull(d->view));
    const void *w = d->group ? d->w : m->fresh_view && !d->table ? m->fresh_view->value : d->view->value;
    if (me->worker == 0) TR_TRY(report_size(m, w, report));
    tr_linear_report_conjugate(report, tr_dual_sum(&m->problem, d->first, d->end - d->first, d->a));
    return TR_OK;
}

static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    double dual = tr_linear_dual_value(m, report) + tr_linear_penalty(m, report); /* w's own size is in it */
    tr_linear_prove(m, dual, evaluation);
    return TR_OK;
}

/* The order of rows follows from the seed and the epoch. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_model_keep_sums(me, snapshot, "anchor", 1, &m->dual->anchor));
    int32_t rests = tr_linear_dual_rests(m);
    TR_TRY(tr_snapshot_common(snapshot, "rows_rest", TR_I32, 1, &rests));
    if (rests && tr_linear_dual_rests(m)) /* not from a layout where none does, nor to one */
        TR_TRY(tr_data_keep(m->train, snapshot, "rests", TR_I32, m->dual->rests));
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
    tr_stage train = tr_linear_stage(m);
    train.prepare = prepare;
    train.compute = compute;
    train.evaluate = evaluate;
    train.summarize = summarize;
    train.snapshot = snapshot;
    int status = tr_run(m->tr, &train);
    m->see = NULL;
    return status;
}

static bool minimises(const struct tr_loss *loss)
{
    return loss->step != NULL;
}

const struct tr_linear_method tr_linear_dual = {.check = check,
                                                .open = open_dual,
                                                .train = train,
                                                .close = close_dual,
                                                .of_classes = &tr_linear_dual_classes,
                                                .weighs_rows = true,
                                                .passes = true,
                                                .minimises = minimises,
                                                .diverged = "raise solve.sigma"};
