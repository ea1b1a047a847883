/* One clock of mini-batch gradient descent, and what becomes of its updates: they are added, weighted (ConSGD, DynSGD),
 * or are gradients for an optimizer at the servers; or each worker has an optimizer of its own. */
#include <stdlib.h>
#include <string.h>

#include "model/linear/linear.h"
#include "model/linear/parts.h"
#include "model/linear/loss.h"
#include "table/view.h"
#include "trireme/function.h"

static bool has_optimizer(const struct tr_linear *m)
{
    return m->job->solve.optimizer != TR_OPTIMIZER_SGD;
}

static bool optimizes_at_worker(const struct tr_linear *m)
{
    return has_optimizer(m) && m->job->solve.optimizer_at == TR_OPTIMIZE_WORKER;
}

/* ---- what the servers do ---- */

/* model.l1 counts once in the mean of the gradients, ftrl's against their sum: so many there will be. */
static double planned_gradients(const struct tr_linear *m)
{
    double clocks = (double)m->job->solve.epochs * (double)m->clocks_per_epoch;
    return optimizes_at_worker(m) ? clocks * (double)m->every : clocks;
}

static tr_optimizer wished_optimizer(const tr_job *job)
{
    return (tr_optimizer){.kind = (enum tr_optimizer_kind)job->solve.optimizer,
                          .rate = job->solve.rate,
                          .decay = job->solve.decay,
                          .momentum = job->solve.momentum,
                          .memory = job->solve.memory,
                          .epsilon = job->solve.epsilon};
}

int tr_linear_check_optimizer(const tr_job *job)
{
    tr_optimizer wished = wished_optimizer(job), resolved;
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
    const struct tr_job *job = m->job;
    uint64_t all = job->table.servers ? job->table.servers : (uint64_t)m->tr->layout.servers;
    uint64_t most = m->train->columns / LEAST_KEYS + 1;
    bool few = job->sync.weight == TR_WEIGHT_AUTO || tr_linear_reduces_variance(job);
    return few && most < all ? (uint32_t)most : 0;
}

/* Versions count updates of groups, and take each as a whole. */
static int check_groups(const struct tr_linear *m)
{
    const struct tr_job *job = m->job;
    bool versions = job->sync.weight == TR_WEIGHT_DYN || job->sync.weight == TR_WEIGHT_AUTO;
    if (!versions || job->data.partition != TR_DATA_VERTICAL || m->tr->layout.group_size == 1) return TR_OK;
    return tr_fail(
        TR_ERR_CONFIG,
        "%s: sync.weight %s takes a group's update as a whole, but with data.partition vertical each "
        "member pushes a part: expected sum or con",
        tr_job_where(job, "sync.weight"), job->sync.weight == TR_WEIGHT_DYN ? "dyn" : "auto");
}

int tr_linear_use_function(struct tr_linear *m)
{
    const struct tr_job *job = m->job;
    TR_TRY(tr_agree(m->tr, check_groups(m)));
    m->optimizer = wished_optimizer(job);
    m->optimizer.l1 = job->model.l1 * planned_gradients(m);
    /* the gradient that a worker sees of a key is that of its part of the rows */
    tr_table_filter_l1(m->w, job->model.l1 / m->tr->layout.groups, 1);
    if (has_optimizer(m) && !optimizes_at_worker(m))
        return tr_table_use(m->w, tr_optimizer_name(m->optimizer.kind), &m->optimizer);
    double rate = job->sync.global_rate == TR_JOB_AUTO ? 1.0 / m->tr->layout.groups : job->sync.global_rate;
    switch (job->sync.weight) {
    case TR_WEIGHT_CON: return tr_table_use(m->w, "scale", &rate);
    case TR_WEIGHT_DYN: return tr_table_use(m->w, job->sync.stable ? "dyn-stable" : "dyn", NULL);
    case TR_WEIGHT_AUTO: return tr_table_use(m->w, "agree", NULL);
    default: return TR_OK;
    }
}

/* ---- mini-batches ---- */

int tr_linear_shuffle_batches(const tr_worker *me, struct tr_linear *m, int64_t epoch)
{
    size_t n = (size_t)m->iterations;
    if (!m->batch) TR_TRY(TR_NEW(&m->batch, n));
    struct tr_rng rng;
    tr_rng_seed(&rng, m->job->seed, (uint64_t)me->group, (uint64_t)epoch);
    if (m->job->data.order == TR_ORDER_DEALT) tr_rng_permutation(&rng, m->batch, n);
    else
        for (size_t i = 0; i < n; i++) m->batch[i] = (uint32_t)i;
    return TR_OK;
}

/* Where updates are averaged each group steps as if alone; where they are added it steps for its part of the rows. */
static double batch_rows(const struct tr_worker *me, const struct tr_linear *m)
{
    double all = m->problem.n / (double)m->iterations;
    return m->job->sync.weight == TR_WEIGHT_SUM ? all : all / me->groups;
}

/* Subtracts rate times the mean gradient of the turn's mini-batch, at w, from `into`. */
static int add_batch(tr_worker *me, struct tr_linear *m, int64_t turn, double rate, const void *w, void *into)
{
    int64_t i = m->batch[turn];
    size_t begin = tr_linear_batch_begin(m, i), n = tr_linear_batch_begin(m, i + 1) - begin;
    tr_margins(&m->problem, begin, n, w, m->margin);
    if (tr_linear_is_vertical(me, m)) TR_TRY(tr_group_sum(me, m->margin, n));
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
    double rate = m->job->solve.rate / sqrt(m->job->solve.decay * (double)me->clock + 1);
    if (last - first == 1) return tr_linear_plain_step(me, m, first, rate);
    tr_copy_to_delta(m->view, m->problem.dtype);
    for (int64_t i = first; i < last; i++) TR_TRY(add_batch(me, m, i, rate, m->view->delta, m->view->delta));
    tr_keep_difference(m->view, m->problem.dtype, 1);
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
    size_t n = m->view ? m->view->n : 0, bytes = m->view ? tr_view_bytes(m->view) : 0;
    uint64_t *key;
    int status = TR_NEW(&key, n);
    for (size_t i = 0; i < n && status == TR_OK; i++)
        key[i] = i < m->train->n_keys ? m->train->keys[i] : m->train->columns;
    for (size_t a = 0; a < tr_optimizer_arrays(m->optimizer.kind) && status == TR_OK; a++) {
        char name[] = "optimizer_0";
        name[sizeof name - 2] = (char)('0' + a);
        status = tr_snapshot_rows(snapshot, name, m->job->model.dtype == TR_DTYPE_F32 ? TR_F32 : TR_F64,
                                  m->train->columns + 1, 1, key, 0, n,
                                  n > 0 ? (char *)m->state + a * bytes : NULL);
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
    size_t bytes = tr_view_bytes(view);
    void *state[] = {m->state, (char *)m->state + bytes};
    tr_copy_to_delta(view, m->problem.dtype);
    for (int64_t i = first; i < last; i++) {
        TR_TRY(add_batch(me, m, i, -1, view->delta, m->gradient));
        size_t n = list_touched(m, i);
        take_gradient(m, n);
        tr_optimizer_step(&m->optimizer, m->problem.dtype, me->clock * m->every + (i - first), n, 1,
                          m->touched, m->packed, view->delta, state);
    }
    tr_keep_difference(view, m->problem.dtype, 1);
    return TR_OK;
}

int tr_linear_sgd_clock(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first, last, epoch = me->clock / m->clocks_per_epoch;
    tr_linear_batches(m, me->clock, &first, &last);
    if (m->ordered != epoch + 1) TR_TRY(tr_linear_shuffle_batches(me, m, epoch));
    m->ordered = epoch + 1;
    if (optimizes_at_worker(m)) TR_TRY(own_steps(me, m, first, last));
    else if (has_optimizer(m)) TR_TRY(gradients(me, m, first, last));
    else TR_TRY(plain_steps(me, m, first, last));
    return tr_view_push(m->view);
}
