/* Dual coordinate descent for more than two classes: each row has a dual variable for each class, which are set to their
 * minimum one row after the other, while w = Σ α x / (λ n) moves along.
 *   each class against the rest   classes are problems of their own that share the passes over the rows (Hsieh et al. 2008)
 *   one softmax                   a row's variables are e_y - q with probabilities q, which are set together (Yu, Huang and
 *                                 Lin 2011, section 5; here by Newton steps on log q and the multiplier of Σ q = 1)
 *
 * Where the members of a group have the same rows, classes are divided among them: these do not disturb each other, and a
 * pass does for each of them what it does on one worker. Members that step on the same classes by different rows do so on one
 * w in memory, without locks (PASSCoDe-Wild, Hsieh et al. 2015); what they lose is made good at the end of each clock, as
 * each adds up what its rows have really changed. With sync.mode bsp, and between groups, they merge as CoCoA+ does. A bias without λ is learnt as in dual.c, by an anchor that follows it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dual.h"

enum { ANCHOR_STEPS = 64 }; /* of an epoch */

struct tr_linear_dual_classes {
    int64_t turns, every;      /* parts of an epoch's rows, and how many of them a clock takes */
    struct tr_class_block own; /* this worker's classes … */
    size_t begin, end;         /* … and rows */
    double sharing;            /* workers that step on the same classes */
    uint64_t stream;           /* of random numbers */
    bool anchors;              /* it moves the anchors of its classes */
    uint32_t *order;           /* of its rows in this epoch … */
    int64_t ordered;           /* … which is number ordered - 1 */
    float *a, *norm;           /* of each row: its own classes' dual variables, and |x|² */
    double *anchor, *moved;    /* of each class; and what it moved by in this clock */
    tr_set_memory *memory; /* of the group: … */
    void *w;               /* its w, or NULL … */
    float *before;         /* … and what a was before this clock */
};

/* ---- opening ---- */

static bool has_common_rows(const struct tr_linear *m)
{
    return tr_group_size(m->tr) > 1 && tr_job_is(m->job, "data.partition", "replicated");
}

/* In how many parts the classes of a group are divided. */
static size_t parts_of_classes(const struct tr_linear *m)
{
    return has_common_rows(m) && !m->softmax ? tr_min_size((size_t)tr_group_size(m->tr), m->outputs) : 1;
}

/* Whether members that step on the same classes do so on one w. */
static bool shares_w(const struct tr_linear *m)
{
    return has_common_rows(m) && (size_t)tr_group_size(m->tr) > parts_of_classes(m) &&
           tr_job_is(m->job, "sync.mode", "auto");
}

/* Where nobody steps on the same classes, an epoch is one. */
static int64_t usual_turns(const struct tr_linear *m)
{
    int workers = tr_workers(m->tr);
    bool alone = (size_t)workers <= parts_of_classes(m) || (shares_w(m) && tr_groups(m->tr) == 1);
    return tr_linear_dual_usual_turns(m, alone ? 1 : workers);
}

static size_t view_bytes(const struct tr_linear *m)
{
    size_t element = m->o->dtype == TR_F32 ? sizeof(float) : sizeof(double);
    return (m->train->n_keys + m->o->bias) * m->outputs * element;
}

static int open_group(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    if (!(tr_roles(m->tr) & TR_SLAVE) || !shares_w(m)) return TR_OK;
    TR_TRY(tr_set_memory_open(m->tr, TR_SET_GROUP, view_bytes(m), &d->memory));
    d->w = tr_set_memory_at(d->memory);
    return TR_OK;
}

static int open_classes(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->dual_classes, 1)));
    d = m->dual_classes;
    d->turns = tr_linear_dual_turns(m, usual_turns(m), &d->every);
    TR_TRY(tr_agree(m->tr, TR_NEW(&d->anchor, m->outputs)));
    return tr_agree(m->tr, open_group(m));
}

static void close_classes(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    if (!d) return;
    void *arrays[] = {d->order, d->a, d->norm, d->anchor, d->moved, d->before};
    tr_set_memory_close(&d->memory);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(d);
    m->dual_classes = NULL;
}

/* ---- who does what ---- */

/* Member g has part g % C of the classes, and of the rows part g / C of as many as there are whole sets of members; those
 * beyond have nothing to do. */
static void divide(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    size_t rows = m->problem.rows.n, parts = parts_of_classes(m), g = (size_t)me->member;
    size_t row_parts = has_common_rows(m) ? (size_t)me->group_size / parts : 1,
           row_part = has_common_rows(m) ? g / parts : 0, class_part = has_common_rows(m) ? g % parts : 0;
    size_t first = m->outputs * class_part / parts, end = m->outputs * (class_part + 1) / parts;
    d->own = (struct tr_class_block){first, row_part < row_parts ? end - first : 0};
    d->begin = row_part < row_parts ? rows * row_part / row_parts : 0;
    d->end = row_part < row_parts ? rows * (row_part + 1) / row_parts : 0;
    d->sharing = d->w                 ? (double)me->groups
                 : has_common_rows(m) ? (double)(row_parts * (size_t)me->groups)
                                      : (double)me->workers;
    if (m->o->sigma >= 1) d->sharing = m->o->sigma;
    d->stream = has_common_rows(m) ? (uint64_t)me->group * row_parts + row_part : (uint64_t)me->worker;
    d->anchors = m->problem.bias && !m->o->bias_l2 && me->group == 0 && d->own.n > 0 &&
                 (has_common_rows(m) ? row_part == 0 : me->member == 0);
}

static int prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_dual_classes *d = m->dual_classes;
    TR_TRY(tr_linear_prepare(me, m, 2));
    divide(me, m);
    size_t rows = m->problem.rows.n;
    TR_TRY(TR_NEW(&d->order, d->end - d->begin));
    TR_TRY(TR_NEW(&d->a, (d->end - d->begin) * d->own.n));
    if (d->w) TR_TRY(TR_NEW(&d->before, (d->end - d->begin) * d->own.n));
    TR_TRY(TR_NEW(&d->norm, rows));
    TR_TRY(TR_NEW(&d->moved, m->outputs));
    TR_TRY(tr_linear_dual_norms(m, 0, rows, d->norm));
    /* probabilities begin with those of the labels, where α = 0 */
    for (size_t i = d->begin; m->softmax && i < d->end; i++)
        d->a[(i - d->begin) * d->own.n + (size_t)m->problem.target[i]] = 1;
    return TR_OK;
}

/* ---- a clock ---- */

/* A new order every epoch, from a stream of its own: a run can be taken up at any clock. */
static void shuffle(struct tr_linear *m, int64_t epoch)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    struct tr_rng rng;
    if (d->ordered == epoch + 1) return;
    d->ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, d->stream, (uint64_t)epoch);
    tr_data_permute(m->train, &rng, 0, d->end - d->begin, d->order);
}

static double bias_of(const struct tr_linear *m, const void *w, size_t k)
{
    size_t at = m->problem.keys * m->outputs + k;
    return m->problem.dtype == TR_F32 ? (double)((const float *)w)[at] : ((const double *)w)[at];
}

static void add_to_bias(const struct tr_linear *m, void *w, size_t k, double x)
{
    size_t at = m->problem.keys * m->outputs + k;
    if (m->problem.dtype == TR_F32) ((float *)w)[at] += (float)x;
    else ((double *)w)[at] += x;
}

static void move_anchors(struct tr_linear *m, double part, void *w)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    for (size_t k = d->own.first; k < d->own.first + d->own.n; k++) {
        double by = part * (bias_of(m, w, k) - d->anchor[k]);
        d->anchor[k] += by;
        d->moved[k] += by;
        add_to_bias(m, w, k, by);
        if (!d->w) add_to_bias(m, m->view->value, k, by);
    }
}

/* Where the rows of a turn begin in this epoch's order. */
static size_t turn_begin(const struct tr_linear_dual_classes *d, int64_t turn)
{
    return (size_t)((double)(d->end - d->begin) * (double)turn / (double)d->turns);
}

static void pass(struct tr_linear *m, size_t begin, size_t end, void *w)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    enum { PIECE = 256 };
    size_t step = d->anchors ? (d->end - d->begin) / ANCHOR_STEPS + 1 : PIECE, n;
    for (size_t at = begin; at < end; at += n) {
        tr_seam();
        n = tr_data_ready_in(m->train, d->order, at, tr_min_size(step, end - at));
        if (n == 0) break;
        tr_dual_pass_classes(&m->problem, d->own, d->begin, d->order + at, n, d->sharing, d->norm, d->a,
                             m->margin, w);
        if (d->anchors) move_anchors(m, (double)n / (double)(d->end - d->begin), w);
    }
}

/* All members begin with the same w, each having put a part of it there, and end with the sum of what rows have changed. */
static int pass_together(tr_worker *me, struct tr_linear *m, size_t begin, size_t end)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    size_t bytes = view_bytes(m), members = (size_t)me->group_size, g = (size_t)me->member,
           from = bytes * g / members, to = bytes * (g + 1) / members;
    memcpy((char *)d->w + from, (char *)m->view->value + from, to - from);
    memcpy(d->before, d->a, (d->end - d->begin) * d->own.n * sizeof *d->a);
    TR_TRY(tr_barrier_of(m->tr, TR_SET_GROUP));
    TR_TRY(tr_turn_begin(m->tr, "gradient"));
    pass(m, begin, end, d->w);
    tr_add_changes(&m->problem, d->own, d->begin, d->end - d->begin, d->before, d->a, m->margin,
                   m->view->delta);
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    return tr_barrier_of(m->tr, TR_SET_GROUP);
}

/* Anchors that another worker had. (Not in the first clock: without BSP a worker may have ended its last one.) */
static int find_anchors(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, d->anchor, m->outputs));
    for (size_t k = 0; k < m->outputs; k++)
        if (!d->anchors || k < d->own.first || k >= d->own.first + d->own.n) d->anchor[k] = 0;
    return TR_OK;
}

static int compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_dual_classes *d = m->dual_classes;
    shuffle(m, me->clock / m->clocks_per_epoch);
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first = me->clock % m->clocks_per_epoch * d->every,
            last = first + d->every < d->turns ? first + d->every : d->turns;
    memset(d->moved, 0, m->outputs * sizeof *d->moved);
    size_t begin = turn_begin(d, first), end = turn_begin(d, last);
    if (d->w) {
        TR_TRY(pass_together(me, m, begin, end));
    } else {
        tr_linear_copy_to_delta(m->view, m->problem.dtype);
        TR_TRY(tr_turn_begin(m->tr, "gradient"));
        pass(m, begin, end, m->view->delta);
        TR_TRY(tr_turn_end(m->tr, TR_OK));
        tr_linear_keep_difference(m->view, m->problem.dtype, d->sharing);
    }
    for (size_t k = 0; d->anchors && k < m->outputs; k++) add_to_bias(m, m->view->delta, k, d->moved[k]);
    return tr_view_push(m->view);
}

/* ---- evaluation, checkpoints ---- */

static double cost_of_biases(const struct tr_linear *m, const void *w)
{
    const struct tr_linear_dual_classes *d = m->dual_classes;
    double sum = 0;
    for (size_t k = d->own.first; k < d->own.first + d->own.n; k++) {
        double bias = bias_of(m, w, k);
        sum += tr_linear_cost_of_bias(m, bias, bias - d->anchor[k]);
    }
    return sum;
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    const struct tr_linear_dual_classes *d = m->dual_classes;
    TR_TRY(tr_linear_evaluate(me, m, report));
    const void *w = m->fresh_view ? m->fresh_view->value : m->view->value;
    if (d->anchors) tr_linear_report_conjugate(report, cost_of_biases(m, w));
    tr_linear_report_conjugate(report,
                               tr_dual_sum_classes(&m->problem, d->own, d->begin, d->end - d->begin, d->a));
    return TR_OK;
}

static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    TR_TRY(tr_linear_summarize(state, report, evaluation));
    tr_linear_prove(state, tr_linear_dual_value(state, report), evaluation);
    return TR_OK;
}

/* All members know what each of them has of a class: so it is found again however classes are divided. */
static int keep_class(struct tr_linear *m, tr_snapshot *snapshot, size_t k, float *all)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    size_t rows = m->train->rows.n, i = k - d->own.first;
    bool mine = d->norm && k >= d->own.first && i < d->own.n;
    char name[32];
    snprintf(name, sizeof name, "dual_%zu", k);
    memset(all, 0, rows * sizeof *all);
    for (size_t r = d->begin; mine && r < d->end; r++) all[r] = d->a[(r - d->begin) * d->own.n + i];
    if (has_common_rows(m) && tr_set_rank(m->tr, TR_SET_GROUP) >= 0)
        TR_TRY(tr_all_reduce(m->tr, TR_SET_GROUP, TR_SUM, TR_F32, all, rows));
    TR_TRY(tr_data_keep(m->train, snapshot, name, TR_F32, all));
    if (!tr_snapshot_restores(snapshot)) return TR_OK;
    for (size_t r = d->begin; mine && r < d->end; r++) d->a[(r - d->begin) * d->own.n + i] = all[r];
    return TR_OK;
}

/* The order of rows follows from the seed and the epoch. An anchor is moved by one worker: sums are of nothing else. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    float *all;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_model_keep_sums(me, snapshot, "anchor", m->outputs, m->dual_classes->anchor));
    if (tr_snapshot_restores(snapshot) && me->worker >= 0) TR_TRY(find_anchors(m));
    TR_TRY(TR_NEW(&all, m->train->rows.n));
    int status = TR_OK;
    for (size_t k = 0; k < m->outputs && status == TR_OK; k++) status = keep_class(m, snapshot, k, all);
    free(all);
    return status;
}

static int train(struct tr_linear *m)
{
    tr_stage train = tr_linear_stage(m);
    train.prepare = prepare;
    train.compute = compute;
    train.evaluate = evaluate;
    train.summarize = summarize;
    train.snapshot = snapshot;
    return tr_run(m->tr, &train);
}

const struct tr_linear_method tr_linear_dual_classes = {.open = open_classes,
                                                        .train = train,
                                                        .close = close_classes,
                                                        .many_outputs = true,
                                                        .weighs_rows = true,
                                                        .diverged =
                                                            "raise solve.sigma, or lower sync.staleness"};
