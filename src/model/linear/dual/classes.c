/* Dual coordinate descent for more than two classes. Each row has a dual variable for each class. The variables of a
 * row are set to their minimum, row by row, and w = Σ α x / (λ n) is updated at once.
 *   one-against-rest   the classes are separate problems that share the passes over the rows (Hsieh et al. 2008)
 *   softmax            the variables of a row are e_y - q with probabilities q, which are set together (Yu, Huang and Lin
 *                      2011, section 5; here by Newton steps on log q and the multiplier of Σ q = 1)
 *
 * If the members of a group have the same rows, the classes are divided among them. Different classes do not interact,
 * so a pass has the same effect as on one worker. Members that process different rows of the same classes update one w
 * in shared memory without locks (PASSCoDe-Wild, Hsieh et al. 2015). Lost updates are repaired at the end of each
 * clock: each member sums the changes of its dual variables. With sync.mode bsp, and between groups, they merge as
 * CoCoA+ does. A bias without λ is learnt with an anchor (dual.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dual.h"

struct tr_linear_dual_classes {
    int64_t turns, every;      /* turns in an epoch; turns in a clock */
    struct tr_class_block own; /* classes of this worker */
    size_t begin, end;         /* rows of this worker */
    double sharing;            /* number of workers that process the same classes */
    uint64_t stream;           /* stream of random numbers */
    bool anchors;              /* this worker moves the anchors of its classes */
    uint32_t *order;           /* order of its rows in this epoch */
    int64_t ordered;           /* number of that epoch + 1 */
    float *a, *norm;           /* of each row: dual variables of its own classes; |x|² + c² */
    double *anchor, *moved;    /* of each class; and its movement in this clock */
    tr_set_memory *memory;     /* memory of the group */
    void *w;                   /* w in that memory, or NULL */
    float *before;             /* values of a before this clock */
};

/* ---- opening ---- */

/* Number of parts that the classes of a group are divided into. */
static size_t parts_of_classes(const struct tr_linear *m)
{
    return tr_linear_dual_has_common_rows(m) && !m->softmax
               ? tr_min_size((size_t)tr_group_size(m->tr), m->outputs)
               : 1;
}

/* Returns whether members that process the same classes share one w. */
static bool classes_shares_w(const struct tr_linear *m)
{
    return tr_linear_dual_has_common_rows(m) && (size_t)tr_group_size(m->tr) > parts_of_classes(m) &&
           tr_job_is(m->job, "sync.mode", "auto");
}

/* If no two workers process the same classes, an epoch is one turn. */
static int64_t classes_usual_turns(const struct tr_linear *m)
{
    int workers = tr_workers(m->tr);
    bool alone = (size_t)workers <= parts_of_classes(m) || (classes_shares_w(m) && tr_groups(m->tr) == 1);
    return tr_linear_dual_usual_turns(m, alone ? 1 : workers);
}

static size_t classes_view_bytes(const struct tr_linear *m)
{
    return (m->train->n_keys + m->o->bias) * m->outputs * tr_real_size((enum tr_dtype)m->o->dtype);
}

static int classes_open_group(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    if (!(tr_roles(m->tr) & TR_SLAVE) || !classes_shares_w(m)) return TR_OK;
    TR_TRY(tr_set_memory_open(m->tr, TR_SET_GROUP, classes_view_bytes(m), &d->memory));
    d->w = tr_set_memory_at(d->memory);
    return TR_OK;
}

static int classes_open(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->dual_classes, 1)));
    d = m->dual_classes;
    d->turns = tr_linear_dual_turns(m, classes_usual_turns(m), &d->every);
    TR_TRY(tr_agree(m->tr, TR_NEW(&d->anchor, m->outputs)));
    return tr_agree(m->tr, classes_open_group(m));
}

static void classes_close(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    if (!d) return;
    void *arrays[] = {d->order, d->a, d->norm, d->anchor, d->moved, d->before};
    tr_set_memory_close(&d->memory);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(d);
    m->dual_classes = NULL;
}

/* ---- distribution of classes and rows ---- */

/* Member g has part g % C of the classes. Members with the same classes divide the rows; members beyond the last
 * complete set of classes are idle. */
static void classes_divide(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    size_t rows = m->problem.rows.n, parts = parts_of_classes(m), g = (size_t)me->member;
    size_t row_parts = tr_linear_dual_has_common_rows(m) ? (size_t)me->group_size / parts : 1,
           row_part = tr_linear_dual_has_common_rows(m) ? g / parts : 0,
           class_part = tr_linear_dual_has_common_rows(m) ? g % parts : 0;
    size_t first = m->outputs * class_part / parts, end = m->outputs * (class_part + 1) / parts;
    d->own = (struct tr_class_block){first, row_part < row_parts ? end - first : 0};
    d->begin = row_part < row_parts ? rows * row_part / row_parts : 0;
    d->end = row_part < row_parts ? rows * (row_part + 1) / row_parts : 0;
    d->sharing = d->w                                ? (double)me->groups
                 : tr_linear_dual_has_common_rows(m) ? (double)(row_parts * (size_t)me->groups)
                                                     : (double)me->workers;
    if (m->o->sigma >= 1) d->sharing = m->o->sigma;
    d->stream =
        tr_linear_dual_has_common_rows(m) ? (uint64_t)me->group * row_parts + row_part : (uint64_t)me->worker;
    d->anchors = m->problem.bias && !m->o->bias_l2 && me->group == 0 && d->own.n > 0 &&
                 (tr_linear_dual_has_common_rows(m) ? row_part == 0 : me->member == 0);
}

static int classes_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_dual_classes *d = m->dual_classes;
    TR_TRY(tr_linear_prepare(me, m, 2));
    classes_divide(me, m);
    size_t rows = m->problem.rows.n;
    TR_TRY(TR_NEW(&d->order, d->end - d->begin));
    TR_TRY(TR_NEW(&d->a, (d->end - d->begin) * d->own.n));
    if (d->w) TR_TRY(TR_NEW(&d->before, (d->end - d->begin) * d->own.n));
    TR_TRY(TR_NEW(&d->norm, rows));
    TR_TRY(TR_NEW(&d->moved, m->outputs));
    TR_TRY(tr_linear_dual_norms(m, 0, rows, d->norm));
    /* at α = 0 the probabilities are those of the labels */
    for (size_t i = d->begin; m->softmax && i < d->end; i++)
        d->a[(i - d->begin) * d->own.n + (size_t)m->problem.target[i]] = 1;
    return TR_OK;
}

/* ---- a clock ---- */

/* Each epoch has a new order from its own random stream, so a run can resume at any clock. */
static void classes_shuffle(struct tr_linear *m, int64_t epoch)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    struct tr_rng rng;
    if (d->ordered == epoch + 1) return;
    d->ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, d->stream, (uint64_t)epoch);
    tr_data_permute(m->train, &rng, 0, d->end - d->begin, d->order);
}

static void classes_move_anchors(struct tr_linear *m, double part, void *w)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    for (size_t k = d->own.first; k < d->own.first + d->own.n; k++) {
        double by =
            part * (tr_real_get(m->problem.dtype, w, m->problem.keys * m->outputs + k) - d->anchor[k]);
        d->anchor[k] += by;
        d->moved[k] += by;
        tr_real_add(m->problem.dtype, w, m->problem.keys * m->outputs + k, by);
        if (!d->w) tr_real_add(m->problem.dtype, m->view->value, m->problem.keys * m->outputs + k, by);
    }
}

/* Offset of the first row of a turn in this epoch's order. */
static size_t classes_turn_begin(const struct tr_linear_dual_classes *d, int64_t turn)
{
    return (size_t)((double)(d->end - d->begin) * (double)turn / (double)d->turns);
}

static void classes_pass(struct tr_linear *m, size_t begin, size_t end, void *w)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    enum { PIECE = 256 };
    size_t step = d->anchors ? (d->end - d->begin) / TR_ANCHOR_STEPS + 1 : PIECE, n;
    for (size_t at = begin; at < end; at += n) {
        tr_seam();
        n = tr_data_ready_in(m->train, d->order, at, tr_min_size(step, end - at));
        if (n == 0) break;
        tr_dual_pass_classes(&m->problem, d->own, d->begin, d->order + at, n, d->sharing, d->norm, d->a,
                             m->margin, w);
        if (d->anchors) classes_move_anchors(m, (double)n / (double)(d->end - d->begin), w);
    }
}

/* All members start from the same w, to which each copies a part. The view's delta becomes the sum of the rows'
 * changes. */
static int classes_pass_together(tr_worker *me, struct tr_linear *m, size_t begin, size_t end)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    size_t bytes = classes_view_bytes(m), members = (size_t)me->group_size, g = (size_t)me->member,
           from = bytes * g / members, to = bytes * (g + 1) / members;
    memcpy((char *)d->w + from, (char *)m->view->value + from, to - from);
    memcpy(d->before, d->a, (d->end - d->begin) * d->own.n * sizeof *d->a);
    TR_TRY(tr_barrier_of(m->tr, TR_SET_GROUP));
    TR_TRY(tr_turn_begin(m->tr, "gradient"));
    classes_pass(m, begin, end, d->w);
    tr_add_changes(&m->problem, d->own, d->begin, d->end - d->begin, d->before, d->a, m->margin,
                   m->view->delta);
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    return tr_barrier_of(m->tr, TR_SET_GROUP);
}

/* Restores the anchors after the number of workers has changed: the sum over all workers has the value of each anchor.
 * (Not done in the first clock: without BSP a worker may have finished its last one.) */
static int classes_find_anchors(struct tr_linear *m)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, d->anchor, m->outputs));
    for (size_t k = 0; k < m->outputs; k++)
        if (!d->anchors || k < d->own.first || k >= d->own.first + d->own.n) d->anchor[k] = 0;
    return TR_OK;
}

static int classes_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_dual_classes *d = m->dual_classes;
    classes_shuffle(m, me->clock / m->clocks_per_epoch);
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first = me->clock % m->clocks_per_epoch * d->every,
            last = first + d->every < d->turns ? first + d->every : d->turns;
    memset(d->moved, 0, m->outputs * sizeof *d->moved);
    size_t begin = classes_turn_begin(d, first), end = classes_turn_begin(d, last);
    if (d->w) {
        TR_TRY(classes_pass_together(me, m, begin, end));
    } else {
        tr_linear_copy_to_delta(m->view, m->problem.dtype);
        TR_TRY(tr_turn_begin(m->tr, "gradient"));
        classes_pass(m, begin, end, m->view->delta);
        TR_TRY(tr_turn_end(m->tr, TR_OK));
        tr_linear_keep_difference(m->view, m->problem.dtype, d->sharing);
    }
    for (size_t k = 0; d->anchors && k < m->outputs; k++)
        tr_real_add(m->problem.dtype, m->view->delta, m->problem.keys * m->outputs + k, d->moved[k]);
    return tr_view_push(m->view);
}

/* ---- evaluation, checkpoints ---- */

static double classes_cost_of_biases(const struct tr_linear *m, const void *w)
{
    const struct tr_linear_dual_classes *d = m->dual_classes;
    double sum = 0;
    for (size_t k = d->own.first; k < d->own.first + d->own.n; k++) {
        double bias = tr_real_get(m->problem.dtype, w, m->problem.keys * m->outputs + k);
        sum += tr_linear_cost_of_bias(m, bias, bias - d->anchor[k]);
    }
    return sum;
}

static int classes_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    const struct tr_linear_dual_classes *d = m->dual_classes;
    TR_TRY(tr_linear_evaluate(me, m, report));
    const void *w = m->fresh_view ? m->fresh_view->value : m->view->value;
    if (d->anchors) tr_linear_report_conjugate(report, classes_cost_of_biases(m, w));
    tr_linear_report_conjugate(report, tr_dual_sum(&m->problem, d->own, d->begin, d->end - d->begin, d->a));
    return TR_OK;
}

static int classes_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    TR_TRY(tr_linear_summarize(state, report, evaluation));
    tr_linear_prove(state, tr_linear_dual_value(state, report), evaluation);
    return TR_OK;
}

/* Each member gets the variables of a class from all members, so they can be restored for any distribution of
 * classes. */
static int keep_class(struct tr_linear *m, tr_snapshot *snapshot, size_t k, float *all)
{
    struct tr_linear_dual_classes *d = m->dual_classes;
    size_t rows = m->train->rows.n, i = k - d->own.first;
    bool mine = d->norm && k >= d->own.first && i < d->own.n;
    char name[32];
    snprintf(name, sizeof name, "dual_%zu", k);
    memset(all, 0, rows * sizeof *all);
    for (size_t r = d->begin; mine && r < d->end; r++) all[r] = d->a[(r - d->begin) * d->own.n + i];
    if (tr_linear_dual_has_common_rows(m) && tr_set_rank(m->tr, TR_SET_GROUP) >= 0)
        TR_TRY(tr_all_reduce(m->tr, TR_SET_GROUP, TR_SUM, TR_F32, all, rows));
    TR_TRY(tr_data_keep(m->train, snapshot, name, TR_F32, all));
    if (!tr_snapshot_restores(snapshot)) return TR_OK;
    for (size_t r = d->begin; mine && r < d->end; r++) d->a[(r - d->begin) * d->own.n + i] = all[r];
    return TR_OK;
}

/* The order of rows follows from the seed and the epoch. One worker moves each anchor, so the sum over workers is its
 * value. */
static int classes_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    float *all;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_model_keep_sums(me, snapshot, "anchor", m->outputs, m->dual_classes->anchor));
    if (tr_snapshot_restores(snapshot) && me->worker >= 0) TR_TRY(classes_find_anchors(m));
    TR_TRY(TR_NEW(&all, m->train->rows.n));
    int status = TR_OK;
    for (size_t k = 0; k < m->outputs && status == TR_OK; k++) status = keep_class(m, snapshot, k, all);
    free(all);
    return status;
}

static int classes_train(struct tr_linear *m)
{
    tr_stage train = tr_linear_stage(m);
    train.prepare = classes_prepare;
    train.compute = classes_compute;
    train.evaluate = classes_evaluate;
    train.summarize = classes_summarize;
    train.snapshot = classes_snapshot;
    return tr_run(m->tr, &train);
}

const struct tr_linear_method tr_linear_dual_classes = {.open = classes_open,
                                                        .train = classes_train,
                                                        .close = classes_close,
                                                        .many_outputs = true,
                                                        .weighs_rows = true,
                                                        .diverged =
                                                            "raise solve.sigma, or lower sync.staleness"};
