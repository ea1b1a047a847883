/* One clock of dual coordinate descent; and one of mini-batch gradient descent, and what becomes of its updates: they are
 * added, weighted (ConSGD, DynSGD), or are gradients for an optimizer at the servers; or each worker has an optimizer
 * of its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"

/* ---- clocks and updates ---- */

/* Mini-batches first .. last - 1 of the epoch that clock c belongs to. */
static void batches_of(const struct tr_linear *m, int64_t clock, int64_t *first, int64_t *last)
{
    int64_t of_epoch = clock % m->clocks_per_epoch;
    *first = of_epoch * m->every;
    *last = *first + m->every < m->iterations ? *first + m->every : m->iterations;
}

/* delta is used as the worker's own copy of w while it computes: one array fewer to keep in cache. */
static void copy_to_delta(tr_view *view, enum tr_dtype dtype)
{
    memcpy(view->delta, view->value, view->n * (dtype == TR_F32 ? 4 : 8));
}

static void keep_difference(tr_view *view, enum tr_dtype dtype, double divisor)
{
    if (dtype == TR_F32) {
        float *delta = view->delta, scale = (float)(1 / divisor);
        const float *value = view->value;
        for (size_t i = 0; i < view->n; i++) delta[i] = (delta[i] - value[i]) * scale;
    } else {
        double *delta = view->delta, scale = 1 / divisor;
        const double *value = view->value;
        for (size_t i = 0; i < view->n; i++) delta[i] = (delta[i] - value[i]) * scale;
    }
}

/* ---- dual coordinate descent ---- */

/* A new order every epoch, from a stream of its own: a run can be taken up at any clock. */
static void shuffle(struct tr_linear *m, const tr_worker *me, int64_t epoch)
{
    struct tr_rng rng;
    if (m->ordered == epoch + 1) return;
    m->ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->worker, (uint64_t)epoch);
    tr_rng_permutation(&rng, m->order, m->problem.rows.n);
}

/* Each worker minimises the dual over its rows against its view; adding up all their changes is safe when each
 * counts its own sigma times, sigma being the number of workers (CoCoA+, Ma et al. 2015, lemma 4). Measuring
 * what the last merge would have allowed, as sigma for the next, was tried: it saves nothing at 2 to 8 workers
 * and swings when the estimate falls behind. */
int tr_linear_dual_clock(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    shuffle(m, me, me->clock / m->clocks_per_epoch);
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first, last;
    batches_of(m, me->clock, &first, &last);
    size_t begin = tr_linear_batch_begin(m, first), end = tr_linear_batch_begin(m, last);
    double sigma = m->o->sigma >= 1 ? m->o->sigma : (double)me->workers;
    copy_to_delta(m->view, m->problem.dtype);
    tr_dual_pass(&m->problem, m->order + begin, end - begin, sigma, m->norm, m->dual, m->view->delta);
    keep_difference(m->view, m->problem.dtype, sigma);
    return tr_view_push(m->view);
}

/* ---- mini-batch gradient descent ---- */

static size_t view_bytes(const struct tr_linear *m)
{
    return m->view ? m->view->n * (m->o->dtype == TR_F32 ? sizeof(float) : sizeof(double)) : 0;
}

static bool has_optimizer(const struct tr_linear *m)
{
    return m->o->optimizer != TR_PLAIN_SGD;
}

/* solve.optimizer_at */
enum { AT_SERVER, AT_WORKER };

static bool optimizes_at_worker(const struct tr_linear *m)
{
    return has_optimizer(m) && m->o->optimizer_at == AT_WORKER;
}

/* ---- what the servers do ---- */

/* model.l1 counts once in the mean of the gradients, ftrl's against their sum: so many there will be. */
static double planned_gradients(const struct tr_linear *m)
{
    double clocks = (double)m->epochs * (double)m->clocks_per_epoch;
    return optimizes_at_worker(m) ? clocks * (double)m->every : clocks;
}

static tr_optimizer wished_optimizer(const struct tr_linear_options *o, double rate)
{
    return (tr_optimizer){.kind = (enum tr_optimizer_kind)o->optimizer,
                          .rate = rate,
                          .decay = o->decay,
                          .momentum = o->momentum,
                          .memory = o->memory,
                          .epsilon = o->epsilon};
}

int tr_linear_check_optimizer(const tr_job *job, const struct tr_linear_options *o)
{
    tr_optimizer wished = wished_optimizer(o, o->rate), resolved;
    int status = tr_optimizer_resolve(&wished, &resolved);
    if (status == TR_OK) return TR_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(status, "%s: %s", tr_job_where(job, "solve.optimizer"), why);
}

/* sync.weight auto judges by the directions of updates, and each share by its own part: it should have some thousand
 * keys. (Simulated on a9a: as one share 11 clocks to the target, in 4 parts 18, in 16 parts 21.) And every server of a
 * table takes part in the short stages of variance reduction. */
uint32_t tr_linear_servers(const struct tr_linear *m)
{
    enum { LEAST_KEYS = 4096 };
    uint64_t servers = (uint64_t)tr_job_number(m->job, "table.servers"),
             all = servers ? servers : (uint64_t)tr_servers(m->tr);
    uint64_t most = m->train->columns / LEAST_KEYS + 1;
    bool few = tr_job_is(m->job, "sync.weight", "auto") || tr_linear_reduces_variance(m->method);
    return few && most < all ? (uint32_t)most : 0;
}

/* Versions count updates of groups, and take each as a whole. */
static int check_groups(const struct tr_linear *m)
{
    bool dyn = tr_job_is(m->job, "sync.weight", "dyn");
    if ((!dyn && !tr_job_is(m->job, "sync.weight", "auto")) || !m->vertical) return TR_OK;
    return tr_fail(
        TR_ERR_CONFIG,
        "%s: sync.weight %s takes a group's update as a whole, but with data.partition vertical each "
        "member pushes a part: expected sum or con",
        tr_job_where(m->job, "sync.weight"), dyn ? "dyn" : "auto");
}

int tr_linear_use_function(struct tr_linear *m)
{
    const tr_job *job = m->job;
    TR_TRY(tr_agree(m->tr, check_groups(m)));
    m->optimizer = wished_optimizer(m->o, m->rate);
    m->optimizer.l1 = m->o->l1 * planned_gradients(m);
    /* the gradient that a worker sees of a key is that of its part of the rows */
    tr_table_filter_l1(m->w, m->o->l1 / tr_groups(m->tr), 1);
    if (has_optimizer(m) && !optimizes_at_worker(m))
        return tr_table_use(m->w, tr_optimizer_name(m->optimizer.kind), &m->optimizer);
    double rate = tr_job_number(job, "sync.global_rate");
    if (rate == TR_JOB_AUTO) rate = 1.0 / tr_groups(m->tr);
    if (tr_job_is(job, "sync.weight", "con")) return tr_table_use(m->w, "scale", &rate);
    if (tr_job_is(job, "sync.weight", "auto")) return tr_table_use(m->w, "agree", NULL);
    if (!tr_job_is(job, "sync.weight", "dyn")) return TR_OK;
    return tr_table_use(m->w, tr_job_number(job, "sync.stable") > 0 ? "dyn-stable" : "dyn", NULL);
}

/* ---- mini-batches ---- */

int tr_linear_shuffle_batches(const tr_worker *me, struct tr_linear *m, int64_t epoch)
{
    size_t n = (size_t)m->iterations;
    if (!m->batch) TR_TRY(TR_NEW(&m->batch, n));
    struct tr_rng rng;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)epoch);
    if (tr_job_is(m->job, "data.order", "dealt")) tr_rng_permutation(&rng, m->batch, n);
    else
        for (size_t i = 0; i < n; i++) m->batch[i] = (uint32_t)i;
    return TR_OK;
}

/* Where updates are averaged each group steps as if alone; where they are added it steps for its part of the rows. */
static double batch_rows(const struct tr_worker *me, const struct tr_linear *m)
{
    double all = m->problem.n / (double)m->iterations;
    return m->sums ? all : all / me->groups;
}

/* Subtracts rate times the mean gradient of the turn's mini-batch, at w, from `into`. */
static int add_batch(tr_worker *me, struct tr_linear *m, int64_t turn, double rate, const void *w, void *into)
{
    int64_t i = m->batch[turn];
    size_t begin = tr_linear_batch_begin(m, i), n = tr_linear_batch_begin(m, i + 1) - begin;
    tr_margins(&m->problem, begin, n, w, m->margin);
    if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n));
    for (size_t r = 0; r < n; r++)
        m->margin[r] = tr_loss_slope(m->problem.model, m->margin[r], (double)m->problem.target[begin + r]);
    tr_add_rows(&m->problem, begin, n, m->margin, rate / batch_rows(me, m), m->reg, w, into);
    return TR_OK;
}

int tr_linear_plain_step(tr_worker *me, struct tr_linear *m, int64_t turn, double rate)
{
    return add_batch(me, m, turn, rate, m->view->value, m->view->delta);
}

/* Plain steps. One mini-batch is added up by itself: its small steps, above all those of regularisation, would be
 * rounded away beside large weights. Several need a copy of the weights that moves with them. */
static int plain_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    double rate = m->rate / sqrt(m->o->decay * (double)me->clock + 1);
    if (last - first == 1) return tr_linear_plain_step(me, m, first, rate);
    copy_to_delta(m->view, m->problem.dtype);
    for (int64_t i = first; i < last; i++) TR_TRY(add_batch(me, m, i, rate, m->view->delta, m->view->delta));
    keep_difference(m->view, m->problem.dtype, 1);
    return TR_OK;
}

/* The servers step: they get the mean gradient of the clock's rows. */
static int gradients(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    double part = -1 / (double)(last - first);
    for (int64_t i = first; i < last; i++) TR_TRY(add_batch(me, m, i, part, m->view->value, m->view->delta));
    return TR_OK;
}

/* ---- the worker's own optimizer ---- */

int tr_linear_sgd_prepare(struct tr_linear *m)
{
    if (!optimizes_at_worker(m)) return TR_OK;
    size_t n = m->view->n, bytes = m->problem.dtype == TR_F32 ? sizeof(float) : sizeof(double);
    TR_TRY(TR_NEW((char **)&m->gradient, n * bytes));
    TR_TRY(TR_NEW((char **)&m->packed, n * bytes));
    TR_TRY(TR_NEW((char **)&m->state, n * bytes * tr_optimizer_arrays(m->optimizer.kind)));
    TR_TRY(TR_NEW(&m->touched, n));
    return TR_NEW(&m->is_touched, n);
}

/* Every worker remembers something else of a key; it finds its own again. With another layout a key goes on with what one
 * of them has remembered of it: made from other rows, but no worse an estimate of the key's gradients than any. */
int tr_linear_sgd_keep(struct tr_linear *m, tr_snapshot *snapshot)
{
    if (!optimizes_at_worker(m)) return TR_OK;
    size_t n = m->view ? m->view->n : 0, bytes = view_bytes(m);
    uint64_t *key;
    int status = TR_NEW(&key, n);
    for (size_t i = 0; i < n && status == TR_OK; i++)
        key[i] = i < m->train->n_keys ? m->train->keys[i] : m->train->columns;
    for (size_t a = 0; a < tr_optimizer_arrays(m->optimizer.kind) && status == TR_OK; a++) {
        char name[] = "optimizer_0";
        name[sizeof name - 2] = (char)('0' + a);
        status = tr_snapshot_rows(snapshot, name, (enum tr_dtype)m->o->dtype, m->train->columns + 1, 1, key,
                                  0, n, n > 0 ? (char *)m->state + a * bytes : NULL);
    }
    free(key);
    return status;
}

/* The keys of the rows of a mini-batch, each once. */
static size_t list_touched(struct tr_linear *m, int64_t turn)
{
    int64_t i = m->batch[turn];
    const tr_batch *rows = &m->problem.rows;
    size_t n = 0, first = tr_linear_batch_begin(m, i), end = tr_linear_batch_begin(m, i + 1);
    if (end > first && m->problem.bias) m->touched[n++] = (uint32_t)m->problem.keys;
    for (uint64_t k = rows->begin[first]; k < rows->begin[end]; k++) {
        uint32_t key = rows->column[k];
        if (m->is_touched[key]) continue;
        m->is_touched[key] = true;
        m->touched[n++] = key;
    }
    for (size_t t = 0; t < n; t++) m->is_touched[m->touched[t]] = false;
    return n;
}

/* packed = gradient at the touched keys, where it becomes 0. */
static void take_gradient(struct tr_linear *m, size_t n)
{
    if (m->problem.dtype == TR_F32) {
        float *gradient = m->gradient, *packed = m->packed;
        for (size_t t = 0; t < n; t++) packed[t] = gradient[m->touched[t]], gradient[m->touched[t]] = 0;
    } else {
        double *gradient = m->gradient, *packed = m->packed;
        for (size_t t = 0; t < n; t++) packed[t] = gradient[m->touched[t]], gradient[m->touched[t]] = 0;
    }
}

static int own_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    tr_view *view = m->view;
    size_t bytes = view_bytes(m);
    void *state[] = {m->state, (char *)m->state + bytes};
    copy_to_delta(view, m->problem.dtype);
    for (int64_t i = first; i < last; i++) {
        TR_TRY(add_batch(me, m, i, -1, view->delta, m->gradient));
        size_t n = list_touched(m, i);
        take_gradient(m, n);
        tr_optimizer_step(&m->optimizer, m->problem.dtype, me->clock * m->every + (i - first), n, 1,
                          m->touched, m->packed, view->delta, state);
    }
    keep_difference(view, m->problem.dtype, 1);
    return TR_OK;
}

int tr_linear_sgd_clock(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first, last, epoch = me->clock / m->clocks_per_epoch;
    batches_of(m, me->clock, &first, &last);
    if (m->ordered != epoch + 1) TR_TRY(tr_linear_shuffle_batches(me, m, epoch));
    m->ordered = epoch + 1;
    if (optimizes_at_worker(m)) TR_TRY(own_steps(me, m, first, last));
    else if (has_optimizer(m)) TR_TRY(gradients(me, m, first, last));
    else TR_TRY(plain_steps(me, m, first, last));
    return tr_view_push(m->view);
}
