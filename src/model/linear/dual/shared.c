/* Dual coordinate descent by several workers on one w in memory that they share: each takes the next few rows of the epoch's
 * order and changes w number by number, atomically (PASSCoDe-Atomic, Hsieh, Yu and Dhillon 2015).
 *
 * The order is of all the group's rows, and nobody has rows of his own: with parts that each worker has for itself, those
 * who get to run first would finish theirs before others begin, and coordinate descent in such blocks takes many times the
 * passes (a9a to a gap of 1e-3, one processor: 13 in one order, 69 in two parts one after the other, 237 in eight).
 *
 * w lies in a table as well, of which each member pulls and pushes a slice every clock: so other groups and checkpoints see
 * it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dual.h"

/* Rows taken at once. */
enum { TAKEN = 64 };

static size_t element(const struct tr_linear *m)
{
    return m->problem.dtype == TR_F32 ? sizeof(float) : sizeof(double);
}

static bool has_bias_in_slice(const struct tr_linear *m)
{
    const struct tr_linear_dual *d = m->dual;
    return d->key <= m->problem.keys && m->problem.keys < d->key + d->keys;
}

static void *slice(const struct tr_linear *m)
{
    return (char *)m->dual->w + m->dual->key * element(m);
}

/* ---- preparing ---- */

/* Begins and ends at lines of the cache, where w does. */
static size_t slice_begin(const struct tr_linear *m, int member, int members)
{
    size_t n = m->problem.keys + m->problem.bias;
    return member == members ? n : n * (size_t)member / (size_t)members / 16 * 16;
}

static int open_slice(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    tr_key *keys;
    d->key = slice_begin(m, me->member, me->group_size);
    d->keys = slice_begin(m, me->member + 1, me->group_size) - d->key;
    TR_TRY(TR_NEW(&keys, d->keys));
    for (size_t i = 0; i < d->keys; i++)
        keys[i] = d->key + i < m->train->n_keys ? m->train->keys[d->key + i] : m->train->columns;
    int status = tr_view_open(m->w, keys, d->keys, TR_VIEW_UPDATE, &m->view);
    if (!d->table) d->view = m->view;
    else if (status == TR_OK) status = tr_view_open(d->table, keys, d->keys, TR_VIEW_UPDATE, &d->view);
    free(keys);
    return status;
}

/* How much of a row, in the mean, lies along another one: (|Σ x|² - Σ |x|²) / ((n - 1) Σ |x|²), of some rows. w is lent for it. */
static int find_overlap(tr_worker *me, struct tr_linear *m, double *overlap)
{
    enum { SOME = 4096 };
    struct tr_linear_dual *d = m->dual;
    size_t step = m->problem.rows.n / SOME + 1;
    double sum[3] = {0, 0, 0};
    for (size_t i = d->first; i < d->end; i += step) {
        tr_add_rows_shared(&m->problem, i, 1, d->w);
        sum[1] += (double)d->norm[i];
        sum[2]++;
    }
    TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
    for (size_t j = 0; j < d->keys; j++) {
        double x = m->problem.dtype == TR_F32 ? (double)((float *)slice(m))[j] : ((double *)slice(m))[j];
        sum[0] += x * x;
    }
    memset(slice(m), 0, d->keys * element(m));
    TR_TRY(tr_all_reduce(me->tr, TR_SET_GROUP, TR_SUM, TR_F64, sum, 3));
    double others = (sum[2] - 1) * sum[1];
    *overlap = others > 0 ? fmax(0, (sum[0] - sum[1]) / others) : 0;
    return TR_OK;
}

/* Whether each row has a large part of all lines of the cache that w has: then these are always at another processor, which
 * takes longer than the steps (a9a, w8a: two ranks together took three to five times as long as one of them alone). */
static bool has_few_lines(const struct tr_linear *m)
{
    enum { LINE = 64, PART = 8 };
    double lines = (double)(m->train->columns * element(m)) / LINE,
           row = (double)m->train->total_nonzeros / (double)m->train->total_rows;
    return row * PART > lines;
}

/* A step does not see those that others are about to take. These are as many as there are other processors, and each makes
 * up for a part of the same margin, as large as rows overlap: where these parts are more than the whole of it, w swings.
 * (Simulated on a9a, where half of a row lies along another: steps that come 2 too late are as good as those in time, 8 too
 * late diverge. On text and clicks 64 too late do not matter.)
 *
 * Unless sync.mode is auto a run can be repeated bit by bit: one takes the steps of all. That is slower than together, but
 * hardly slower than with a copy for each: where those are merged, passes grow as fast as their number (CoCoA+, also with an
 * exact line search along the sum of their changes, as Lee and Chang 2017 propose; simulated on a9a).
 *
 * Few rows are taken by few, and rows that are nearly the same numbers of w by one; whether several are faster for others is
 * seen in the second clock (leaves()). */
static int choose_working(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    if (!tr_job_is(m->job, "sync.mode", "auto") || has_few_lines(m)) {
        d->working = 1;
        return TR_OK;
    }
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int at_once = processors > 0 ? tr_min_int((int)processors, me->group_size) : me->group_size;
    double overlap;
    TR_TRY(find_overlap(me, m, &overlap));
    d->working = at_once * overlap <= 2 ? me->group_size : tr_max_int(2, (int)(2 / overlap));
    d->working = (int)tr_min_size((size_t)d->working, m->problem.rows.n / TAKEN + 1);
    d->untried = d->working > 1 ? 2 : 0;
    return TR_OK;
}

int tr_linear_dual_prepare_shared(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    TR_TRY(open_slice(me, m));
    if (me->member == 0) {
        struct tr_rng rng;
        tr_rng_seed(&rng, m->seed, (uint64_t)me->group, UINT64_MAX);
        tr_rng_permutation(&rng, d->order, m->problem.rows.n);
    }
    TR_TRY(choose_working(me, m));
    return tr_barrier_of(me->tr, TR_SET_GROUP);
}

/* ---- a clock ---- */

/* The order of an epoch: place s is row order[(step · s + begin) mod n], of an order that is random once and for all. To
 * shuffle anew every time would be work that only one can do. */
struct walk {
    uint64_t step, begin, n;
};

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static struct walk walk_of(const tr_worker *me, const struct tr_linear *m, int64_t epoch)
{
    struct walk walk = {.n = m->problem.rows.n};
    struct tr_rng rng;
    if (walk.n == 0) return walk;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)epoch);
    walk.begin = tr_rng_below(&rng, walk.n);
    do walk.step = tr_rng_below(&rng, walk.n) + 1;
    while (common_divisor(walk.step, walk.n) > 1);
    return walk;
}

static void list_rows(const struct walk *walk, const uint32_t *order, uint64_t at, size_t n, uint32_t *rows)
{
    uint64_t place = (walk->step * (at % walk->n) + walk->begin) % walk->n;
    for (size_t i = 0; i < n; i++) {
        rows[i] = order[place];
        place += walk->step;
        if (place >= walk->n) place -= walk->n;
    }
}

/* Who has taken steps moves the anchor as far as these are a part of the epoch. Others may do so at the same time, from the
 * same anchor: a little more, which does no harm, as the bias moves by the same. */
static void move_anchor(struct tr_linear *m, size_t rows)
{
    struct tr_linear_dual_group *g = m->dual->group;
    void *w = m->dual->w;
    double by = (double)rows / (double)m->problem.rows.n * (tr_linear_bias_of(m, w) - g->anchor);
    tr_add_shared(TR_F64, &g->anchor, 0, by);
    tr_add_shared(TR_F64, &g->moved, 0, by);
    tr_add_shared(m->problem.dtype, w, m->problem.keys, by);
}

/* A clock's rows: places of the epoch's order. In the second clock of a run one worker takes those before `joined`. */
struct clock_rows {
    uint64_t begin, joined, end;
    double sigma;
};

/* Steps of several may be slower than those of one: where rows have numbers of w in common, its lines go to and fro between the
 * processors' caches (rows a second of two ranks, of those of one of them alone: 20 newsgroups 0.4, clicks 0.8 to 1.2,
 * features that are spread evenly 1.3). So one begins the second clock, when all have seen the rows, the others join, and leave
 * again where that is no gain. */
static bool leaves(const tr_worker *me, struct tr_linear *m, const struct clock_rows *rows)
{
    struct tr_linear_dual *d = m->dual;
    struct tr_linear_dual_group *g = d->group;
    if (me->member > 0) return atomic_load_explicit(&g->alone, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&g->next, memory_order_relaxed) - rows->joined;
    if (g->judged || taken < 2 * (rows->joined - rows->begin)) return false;
    double rate = (double)taken / (tr_now() - g->since);
    g->judged = true;
    atomic_store(&g->alone, rate < 1.2 * g->rate);
    return false;
}

static void take_steps(const tr_worker *me, struct tr_linear *m, const struct clock_rows *rows, uint64_t end,
                       bool shared)
{
    struct tr_linear_dual *d = m->dual;
    struct walk walk = walk_of(me, m, me->clock / m->clocks_per_epoch);
    bool moves = tr_linear_has_free_bias(m) && me->group == 0;
    size_t taken = moves ? tr_min_size(TAKEN, m->problem.rows.n / TR_ANCHOR_STEPS + 1) : TAKEN;
    uint32_t row[TAKEN];
    uint64_t at;
    while (!(d->untried == 1 && shared && leaves(me, m, rows)) &&
           (at = atomic_fetch_add_explicit(&d->group->next, taken, memory_order_relaxed)) < end) {
        size_t n = tr_min_size(taken, end - at);
        tr_seam();
        list_rows(&walk, d->order, at, n, row);
        size_t left = tr_linear_dual_leave_out(d, row, n);
        (shared ? tr_dual_pass_shared : tr_dual_pass)(&m->problem, row, left, rows->sigma, d->norm, d->a,
                                                      d->w);
        if (moves) move_anchor(m, n);
        tr_linear_dual_add_to_mean(m, d->w, (double)(at - rows->begin), (double)(at + n - rows->begin),
                                   (double)(rows->end - rows->begin));
    }
}

/* Member 0 takes the first rows of the second clock. */
static int begin_alone(tr_worker *me, struct tr_linear *m, const struct clock_rows *rows)
{
    struct tr_linear_dual_group *g = m->dual->group;
    if (me->member == 0) {
        double begun = tr_now();
        take_steps(me, m, rows, rows->joined, false);
        g->since = tr_now();
        g->rate = (double)(rows->joined - rows->begin) / (g->since - begun);
        atomic_store(&g->next, rows->joined);
    }
    return tr_barrier_of(me->tr, TR_SET_GROUP);
}

/* The view's slice of w goes into the memory of the group. */
static int take_over(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    TR_TRY(tr_view_pull(d->view));
    memcpy(slice(m), d->view->value, d->keys * element(m));
    return TR_OK;
}

static void add(const struct tr_linear *m, void *values, size_t at, double x)
{
    if (m->problem.dtype == TR_F32) ((float *)values)[at] += (float)x;
    else ((double *)values)[at] += x;
}

/* The bias of a regression begins at the mean, which worker 0's group pushes. */
static void begin_bias(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    if (me->worker == 0) d->anchor = d->mean;
    if (!has_bias_in_slice(m)) return;
    add(m, d->w, m->problem.keys, d->mean);
    add(m, d->view->value, m->problem.keys - d->key, d->mean);
}

static void give_back(const tr_worker *me, struct tr_linear *m, double sigma)
{
    struct tr_linear_dual *d = m->dual;
    bool free_bias = tr_linear_has_free_bias(m) && has_bias_in_slice(m);
    double moved = free_bias ? d->group->moved : 0;
    if (moved != 0) add(m, d->w, m->problem.keys, -moved);
    memcpy(d->view->delta, slice(m), d->keys * element(m));
    tr_linear_keep_difference(d->view, m->problem.dtype, sigma);
    if (free_bias && me->clock == 0 && me->group == 0) moved += d->mean;
    if (moved != 0) add(m, d->view->delta, m->problem.keys - d->key, moved);
}

static struct clock_rows rows_of_clock(const tr_worker *me, const struct tr_linear *m)
{
    enum { TRIAL = 16 };
    const struct tr_linear_dual *d = m->dual;
    int64_t first = me->clock % m->clocks_per_epoch * d->every,
            last = first + d->every < d->turns ? first + d->every : d->turns;
    double all = (double)m->problem.rows.n, turns = (double)d->turns;
    struct clock_rows rows = {.begin = (uint64_t)(all * (double)first / turns),
                              .end = (uint64_t)(all * (double)last / turns)};
    rows.joined = rows.begin + (rows.end - rows.begin) / (TRIAL * (uint64_t)d->working);
    rows.sigma = m->o->sigma >= 1 ? m->o->sigma : (double)me->groups;
    return rows;
}

int tr_linear_dual_compute_shared(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    struct clock_rows rows = rows_of_clock(me, m);
    TR_TRY(take_over(m));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(d->view));
    if (me->clock == 0 && tr_linear_has_free_bias(m)) begin_bias(me, m);
    if (d->table) tr_linear_dual_begin_mean(m, d->key, d->keys);
    atomic_fetch_add(&d->group->resting, tr_linear_dual_resting(d));
    if (me->member == 0) {
        atomic_store(&d->group->next, rows.begin);
        d->group->anchor = d->anchor;
        d->group->moved = 0;
    }
    TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
    rows.end =
        rows.begin + (rows.end - rows.begin) * tr_linear_dual_sweeps(m, atomic_load(&d->group->resting));
    if (d->untried == 1) TR_TRY(begin_alone(me, m, &rows));
    TR_TRY(tr_turn_begin(m->tr, "gradient"));
    if (me->member < d->working) take_steps(me, m, &rows, rows.end, d->working > 1);
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
    if (atomic_load(&d->group->alone)) d->working = 1;
    if (d->untried > 0) d->untried--;
    if (me->member == 0) atomic_store(&d->group->resting, 0);
    if (me->worker == 0) d->anchor = d->group->anchor;
    TR_TRY(tr_linear_dual_push_mean(m, d->w, d->key, d->keys));
    give_back(me, m, rows.sigma);
    return tr_view_push(d->view);
}

int tr_linear_dual_evaluate_shared(tr_worker *me, struct tr_linear *m, tr_report *report)
{
    struct tr_linear_dual *d = m->dual;
    TR_TRY(take_over(m));
    if (d->table) {
        TR_TRY(tr_view_pull(m->view));
        memcpy((char *)d->average + d->key * element(m), m->view->value, d->keys * element(m));
    }
    TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
    return tr_linear_evaluate_at(me, m, d->table ? d->average : d->w, report);
}
