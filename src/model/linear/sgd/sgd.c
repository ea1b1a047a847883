/* Mini-batch gradient descent. The updates are summed, weighted (ConSGD, DynSGD), or are gradients for an optimizer at
 * the servers; or each worker has an optimizer of its own. solve.method growing has batches that grow (below). */
#include "../linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "steps.h"

/* ---- mini-batches ---- */

/* The rows of each mini-batch, the order of mini-batches in an epoch, and a plain gradient step on one.
 *
 * Files are often sorted, and a worker's rows keep the order of the file. The mini-batches of a worker therefore come
 * in another order in each epoch, the same for all members of a group. */

/* ---- number of rows that have a feature: one clock over a table ---- */

static int batches_prepare_count(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_set_problem(m, tr_linear_has_bias(m, me), m->train, &m->problem, &m->target));
    if (!m->batches.count) return TR_OK;
    return tr_linear_open_view(m, me, m->train, m->batches.count, TR_VIEW_UPDATE, &m->batches.count_view);
}

static int batches_count_rows(tr_worker *me, void *state)
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

/* Spreads λ w over the rows: a step on a row shrinks only its features, by λ n / (number of rows that have the
 * feature). The mean over all rows is λ w, and the cost of a step is proportional to its non-zeros. Dense rows have all
 * features. */
static int batches_spread_regularisation(struct tr_linear *m)
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

static int batches_count_features(struct tr_linear *m)
{
    if (m->l2 > 0)
        TR_TRY(tr_table_create(m->tr, "count", TR_F32, 1, m->train->columns + m->o->bias, &m->batches.count));
    tr_stage count = {.name = "count",
                      .state = m,
                      .clocks = 1,
                      .prepare = batches_prepare_count,
                      .compute = batches_count_rows};
    TR_TRY(tr_run(m->tr, &count));
    TR_TRY(tr_agree(m->tr, batches_spread_regularisation(m)));
    return m->batches.count ? tr_table_drop(&m->batches.count) : TR_OK;
}

static void batches_close(struct tr_linear *m)
{
    tr_view_close(&m->batches.count_view);
    free(m->batches.reg);
    free(m->batches.order);
}

/* ---- rows and order ---- */

static void batches_set_rows(const tr_worker *me, struct tr_linear *m)
{
    m->batches.first_row = tr_data_part_begin(m->train, me);
    m->batches.end_row = tr_data_part_end(m->train, me);
}

static size_t batches_begin(const struct tr_linear *m, int64_t i)
{
    const struct tr_linear_batches *b = &m->batches;
    return b->first_row + (size_t)((double)(b->end_row - b->first_row) * (double)i / (double)b->n);
}

static int batches_shuffle(const tr_worker *me, struct tr_linear *m, int64_t epoch)
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
    for (size_t i = 0; i < n; i++) begin[i] = batches_begin(m, (int64_t)i);
    tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)epoch);
    int status = tr_data_permute_parts(m->train, &rng, begin, n, m->batches.order);
    free(begin);
    return status;
}

/* ---- a gradient step: into -= rate × mean gradient of mini-batch `turn` at w ---- */

/* If updates are averaged, the step of a group is that of a single group; if they are summed, it is for its share of
 * the rows. */
static double batches_rows(const struct tr_worker *me, const struct tr_linear *m)
{
    double all = m->problem.n / (double)m->batches.n;
    return m->sums ? all : all / me->groups;
}

static int batches_add_gradient(tr_worker *me, struct tr_linear *m, int64_t turn, double rate, const void *w,
                                void *into)
{
    int64_t i = m->batches.order[turn];
    size_t begin = batches_begin(m, i), n = batches_begin(m, i + 1) - begin;
    const struct tr_problem *p = &m->problem;
    size_t end = begin + n, width = p->outputs;
    /* uses rows that are in memory first, because they may be evicted; but if w changes, all margins are computed
     * before */
    for (; end > begin && (n = w == into ? end - begin : tr_ready(p, begin, end - begin)) > 0; begin += n) {
        tr_margins(p, begin, n, w, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n * width));
        tr_row_slopes(p, begin, n, m->margin);
        tr_add_rows(p, begin, n, m->margin, rate / batches_rows(me, m), m->batches.reg, w, into);
    }
    return TR_OK;
}

static int batches_plain_step(tr_worker *me, struct tr_linear *m, int64_t turn, double rate)
{
    return batches_add_gradient(me, m, turn, rate, m->view->value, m->view->delta);
}

struct tr_linear_sgd {
    int64_t every;          /* mini-batches per clock */
    int64_t ordered;        /* number of the epoch of the current order + 1 */
    tr_optimizer optimizer; /* unless it is the plain one */
    void *gradient, *packed,
        *state; /* optimizer at the worker: gradient of a mini-batch by keys; of its keys only; state */
    uint32_t *touched; /* keys of a mini-batch */
    bool *is_touched;
    bool falls;          /* the rate falls linearly to 0 at the last clock */
    int64_t tried;       /* clocks of a trial */
    tr_report report;    /* size of the weights after the trial */
    double loss, weight; /* of this worker's rows after the trial */
};

static size_t sgd_view_bytes(const struct tr_linear *m)
{
    return m->view ? m->view->n * m->view->width * tr_real_size((enum tr_dtype)m->o->dtype) : 0;
}

static bool sgd_has_optimizer(const struct tr_linear *m)
{
    return m->o->optimizer != TR_PLAIN_SGD;
}

/* solve.optimizer_at */
enum { AT_SERVER, AT_WORKER };

static bool sgd_optimizes_at_worker(const struct tr_linear *m)
{
    return sgd_has_optimizer(m) && m->o->optimizer_at == AT_WORKER;
}

/* ---- checking ---- */

static tr_optimizer sgd_wished_optimizer(const struct tr_linear_options *o, double rate)
{
    return (tr_optimizer){.kind = (enum tr_optimizer_kind)o->optimizer,
                          .rate = rate,
                          .decay = fmax(o->decay, 0),
                          .momentum = o->momentum,
                          .memory = o->memory,
                          .epsilon = o->epsilon};
}

static int sgd_check_optimizer(const tr_job *job, const struct tr_linear_options *o)
{
    tr_optimizer wished = sgd_wished_optimizer(o, o->rate < 0 ? 1 : o->rate), resolved;
    int status = tr_optimizer_resolve(&wished, &resolved);
    if (status == TR_OK) return TR_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(status, "%s: %s", tr_job_where(job, "solve.optimizer"), why);
}

/* Refuses settings that an optimizer or a weighting ignores. */
static int sgd_check(const tr_job *job, const struct tr_linear_options *o)
{
    bool weighted = !tr_job_is(job, "sync.weight", "sum"), plain = o->optimizer == TR_PLAIN_SGD;
    if (!plain) TR_TRY(sgd_check_optimizer(job, o));
    if (weighted && !plain && tr_job_is(job, "solve.optimizer_at", "server"))
        return tr_linear_refuse(
            job, "sync.weight",
            "sync.weight weighs steps, but the servers get gradients: set solve.optimizer_at to worker, or "
            "leave sync.weight sum");
    if (o->l1 > 0 && !tr_job_is(job, "solve.optimizer", "ftrl"))
        return tr_linear_refuse(job, "model.l1",
                                "model.l1 needs solve.method descent, or sgd with solve.optimizer ftrl");
    return TR_OK;
}

/* ---- functions of the servers ---- */

/* Number of gradients of the training. model.l1 applies once to the mean gradient, but ftrl applies it to their sum. */
static double sgd_planned_gradients(const struct tr_linear *m)
{
    double clocks = (double)m->epochs * (double)m->clocks_per_epoch;
    return sgd_optimizes_at_worker(m) ? clocks * (double)m->sgd->every : clocks;
}

/* Versions count updates of whole groups. */
static int sgd_check_groups(const struct tr_linear *m)
{
    bool dyn = tr_job_is(m->job, "sync.weight", "dyn");
    if ((!dyn && !tr_job_is(m->job, "sync.weight", "auto")) || !m->vertical) return TR_OK;
    return tr_fail(
        TR_ERR_CONFIG,
        "%s: sync.weight %s takes a group's update as a whole, but with data.partition vertical each "
        "member pushes a part: expected sum or con",
        tr_job_where(m->job, "sync.weight"), dyn ? "dyn" : "auto");
}

/* clocks: number of clocks of the stage. */
static int sgd_use_function(struct tr_linear *m, int64_t clocks)
{
    const tr_job *job = m->job;
    m->sgd->optimizer = sgd_wished_optimizer(m->o, m->rate);
    m->sgd->optimizer.l1 = m->o->l1 * sgd_planned_gradients(m);
    if (m->sgd->falls)
        m->sgd->optimizer.horizon = (double)(clocks * (sgd_optimizes_at_worker(m) ? m->sgd->every : 1));
    /* the gradient that a worker computes for a key is that of its share of the rows */
    tr_table_filter_l1(m->w, m->o->l1 / tr_groups(m->tr), 1);
    if (sgd_has_optimizer(m) && !sgd_optimizes_at_worker(m))
        return tr_table_use(m->w, tr_optimizer_name(m->sgd->optimizer.kind), &m->sgd->optimizer);
    double rate = tr_job_number(job, "sync.global_rate");
    if (rate == TR_JOB_AUTO) rate = 1.0 / tr_groups(m->tr);
    if (tr_job_is(job, "sync.weight", "con")) return tr_table_use(m->w, "scale", &rate);
    if (tr_job_is(job, "sync.weight", "auto")) return tr_table_use(m->w, "agree", NULL);
    if (!tr_job_is(job, "sync.weight", "dyn")) return TR_OK;
    return tr_table_use(m->w, tr_job_number(job, "sync.stable") > 0 ? "dyn-stable" : "dyn", NULL);
}

/* ---- opening ---- */

static uint32_t sgd_servers(const struct tr_linear *m)
{
    return tr_job_is(m->job, "sync.weight", "auto") ? tr_linear_few_servers(m) : 0;
}

/* Default number of mini-batches per clock: an update is worth sending when its computation took as long as its
 * exchange. A pull and a push touch each key of a worker, a mini-batch touches its non-zeros twice; over a network a
 * key costs several times more. (Angel, section 5.2: an update buffer that is pushed when it is full.) */
static int64_t sgd_enough_batches(const struct tr_linear *m)
{
    double workers = tr_workers(m->tr), nonzeros = (double)m->train->total_nonzeros / workers;
    double keys = fmin((double)m->train->columns, nonzeros);
    double wanted = (tr_nodes(m->tr) == 1 ? 2 : 8) * keys, batch = nonzeros / (double)m->batches.n;
    return (int64_t)fmax(1, fmin((double)m->batches.n, ceil(wanted / fmax(batch, 1))));
}

/* Default number of rows of a mini-batch. Small batches make more progress in an epoch, but each costs a pull and a
 * push of all keys, and with several workers the latency of a message: a batch should have a share of the keys. */
static double sgd_usual_batch(const struct tr_linear *m)
{
    double rows = (double)m->train->total_rows, of_row = fmax((double)m->train->total_nonzeros / rows, 1);
    double workers = tr_workers(m->tr), least = fmax(8 * workers, rows / (workers > 1 ? 500 : 2000));
    return fmin(fmax(32, rows / 200), fmax(least, (double)m->train->columns / (8 * of_row)));
}

static int sgd_open(struct tr_linear *m)
{
    double rows = (double)m->train->total_rows, batch = (double)m->o->batch;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->sgd, 1)));
    m->batches.n = (int64_t)fmax(1, round(rows / (batch > 0 ? batch : sgd_usual_batch(m))));
    m->sgd->every = tr_linear_batches_of_clock(m, m->batches.n, sgd_enough_batches(m));
    m->clocks_per_epoch = (m->batches.n + m->sgd->every - 1) / m->sgd->every;
    m->sgd->falls = m->o->decay < 0 && m->o->rate < 0;
    return tr_agree(m->tr, sgd_check_groups(m));
}

static void sgd_free_arrays(struct tr_linear_sgd *s)
{
    void *arrays[] = {s->gradient, s->packed, s->state, s->touched, s->is_touched};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    s->gradient = s->packed = s->state = s->touched = NULL;
    s->is_touched = NULL;
}

static void sgd_close(struct tr_linear *m)
{
    if (!m->sgd) return;
    batches_close(m);
    sgd_free_arrays(m->sgd);
    free(m->sgd);
    m->sgd = NULL;
}

/* ---- steps ---- */

/* Plain steps. A single mini-batch is summed separately: its small steps, in particular those of regularisation, would
 * be rounded away next to large weights. Several mini-batches need a copy of the weights that changes with them. */
static int sgd_plain_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    double rate = tr_optimizer_rate(&m->sgd->optimizer, me->clock);
    if (last - first == 1) return batches_plain_step(me, m, first, rate);
    tr_linear_copy_to_delta(m->view, m->problem.dtype);
    for (int64_t i = first; i < last; i++)
        TR_TRY(batches_add_gradient(me, m, i, rate, m->view->delta, m->view->delta));
    tr_linear_keep_difference(m->view, m->problem.dtype, 1);
    return TR_OK;
}

/* Sends the mean gradient of the clock's rows; the servers take the step. */
static int sgd_gradients(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    double part = -1 / (double)(last - first);
    for (int64_t i = first; i < last; i++)
        TR_TRY(batches_add_gradient(me, m, i, part, m->view->value, m->view->delta));
    return TR_OK;
}

/* ---- optimizers at workers ---- */

static int sgd_prepare_optimizer(struct tr_linear *m)
{
    if (!sgd_optimizes_at_worker(m)) return TR_OK;
    size_t n = m->view->n, bytes = sgd_view_bytes(m);
    TR_TRY(TR_NEW((char **)&m->sgd->gradient, bytes));
    TR_TRY(TR_NEW((char **)&m->sgd->packed, bytes));
    TR_TRY(TR_NEW((char **)&m->sgd->state, bytes * tr_optimizer_arrays(m->sgd->optimizer.kind)));
    TR_TRY(TR_NEW(&m->sgd->touched, n));
    return TR_NEW(&m->sgd->is_touched, n);
}

/* Each worker has its own state for a key and restores it. With another layout, a key gets the state of one of the
 * workers: it stems from other rows, but estimates the gradients of the key as well as any other. */
static int sgd_keep_optimizer(struct tr_linear *m, tr_snapshot *snapshot)
{
    if (!sgd_optimizes_at_worker(m)) return TR_OK;
    size_t n = m->view ? m->view->n : 0, bytes = sgd_view_bytes(m);
    uint64_t *key;
    int status = TR_NEW(&key, n);
    for (size_t i = 0; i < n && status == TR_OK; i++)
        key[i] = i < m->train->n_keys ? m->train->keys[i] : m->train->columns;
    for (size_t a = 0; a < tr_optimizer_arrays(m->sgd->optimizer.kind) && status == TR_OK; a++) {
        char name[] = "optimizer_0";
        name[sizeof name - 2] = (char)('0' + a);
        status = tr_snapshot_rows(snapshot, name, (enum tr_dtype)m->o->dtype, m->train->columns + 1,
                                  m->outputs, key, 0, n, n > 0 ? (char *)m->sgd->state + a * bytes : NULL);
    }
    free(key);
    return status;
}

/* Lists each key of the rows of a mini-batch once. */
static size_t sgd_list_touched(struct tr_linear *m, int64_t turn)
{
    int64_t i = m->batches.order[turn];
    size_t n = 0, first = batches_begin(m, i), end = batches_begin(m, i + 1);
    if (end > first && m->problem.bias) m->sgd->touched[n++] = (uint32_t)m->problem.keys;
    for (size_t r = first; r < end; r++) {
        struct tr_data_row x = tr_row_of(&m->problem, r);
        for (size_t k = 0; k < x.n; k++) {
            uint32_t key = (uint32_t)tr_row_key(&x, k);
            if (m->sgd->is_touched[key]) continue;
            m->sgd->is_touched[key] = true;
            m->sgd->touched[n++] = key;
        }
    }
    for (size_t t = 0; t < n; t++) m->sgd->is_touched[m->sgd->touched[t]] = false;
    return n;
}

/* Moves the gradient of the listed keys to `packed` and sets it to 0. */
static void sgd_take_gradient(struct tr_linear *m, size_t n)
{
    size_t bytes = m->outputs * tr_real_size(m->problem.dtype);
    for (size_t t = 0; t < n; t++) {
        char *from = (char *)m->sgd->gradient + m->sgd->touched[t] * bytes;
        memcpy((char *)m->sgd->packed + t * bytes, from, bytes);
        memset(from, 0, bytes);
    }
}

static int sgd_own_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    tr_view *view = m->view;
    size_t bytes = sgd_view_bytes(m);
    void *state[] = {m->sgd->state, (char *)m->sgd->state + bytes};
    tr_linear_copy_to_delta(view, m->problem.dtype);
    for (int64_t i = first; i < last; i++) {
        TR_TRY(batches_add_gradient(me, m, i, -1, view->delta, m->sgd->gradient));
        size_t n = sgd_list_touched(m, i);
        sgd_take_gradient(m, n);
        tr_optimizer_step(&m->sgd->optimizer, m->problem.dtype, me->clock * m->sgd->every + (i - first), n,
                          m->outputs, m->sgd->touched, m->sgd->packed, view->delta, state);
    }
    tr_linear_keep_difference(view, m->problem.dtype, 1);
    return TR_OK;
}

/* Finds the mini-batches first .. last - 1 of a clock. */
static void sgd_batches_of_clock(const struct tr_linear *m, int64_t clock, int64_t *first, int64_t *last)
{
    int64_t of_epoch = clock % m->clocks_per_epoch;
    *first = of_epoch * m->sgd->every;
    *last = *first + m->sgd->every < m->batches.n ? *first + m->sgd->every : m->batches.n;
}

static int sgd_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first, last, epoch = me->clock / m->clocks_per_epoch;
    sgd_batches_of_clock(m, me->clock, &first, &last);
    if (m->sgd->ordered != epoch + 1) TR_TRY(batches_shuffle(me, m, epoch));
    m->sgd->ordered = epoch + 1;
    TR_TRY(tr_linear_turn_begin(m, "gradient"));
    int status = sgd_optimizes_at_worker(m) ? sgd_own_steps(me, m, first, last)
                 : sgd_has_optimizer(m)     ? sgd_gradients(me, m, first, last)
                                            : sgd_plain_steps(me, m, first, last);
    TR_TRY(tr_linear_turn_end(m, status));
    return tr_view_push(m->view);
}

/* ---- a trial of a rate ---- */

/* About a quarter of an epoch; for small data the whole training, if that does not take too many messages. */
static int64_t sgd_clocks_of_trial(const struct tr_linear *m)
{
    double quarter = 0.25 * (double)m->clocks_per_epoch, most = tr_workers(m->tr) > 1 ? 2000 : 20000;
    double enough = 4e6 / (double)m->train->total_nonzeros * (double)m->clocks_per_epoch,
           whole = (double)m->epochs * (double)m->clocks_per_epoch;
    double clocks = fmin(fmin(enough, whole), fmax(most, (double)m->clocks_per_epoch));
    return (int64_t)ceil(fmax(clocks, quarter));
}

static int sgd_prepare_trial(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    batches_set_rows(me, m);
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_UPDATE, &m->view));
    TR_TRY(TR_NEW(&m->margin, (m->problem.rows.n / (size_t)m->batches.n + 1) * m->outputs));
    return sgd_prepare_optimizer(m);
}

/* Sums the loss of the mini-batches after those of the trial, or of the same ones if there are no others. */
static int sgd_add_losses(tr_worker *me, struct tr_linear *m)
{
    int64_t n = m->sgd->tried * m->sgd->every < m->batches.n ? m->sgd->tried * m->sgd->every : m->batches.n;
    const struct tr_problem *p = &m->problem;
    for (int64_t i = n; i < 2 * n; i++) {
        int64_t batch = m->batches.order[i % m->batches.n];
        size_t begin = batches_begin(m, batch), rows = batches_begin(m, batch + 1) - begin;
        tr_margins(p, begin, rows, m->view->value, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, rows * p->outputs));
        if (m->vertical && me->member > 0) continue;
        m->sgd->loss = tr_row_losses(p, begin, rows, m->margin, m->sgd->loss);
        for (size_t r = 0; r < rows; r++) m->sgd->weight += p->weight ? (double)p->weight[begin + r] : 1;
    }
    return TR_OK;
}

static int sgd_compute_trial(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    if (me->clock < m->sgd->tried) return sgd_compute(me, state);
    TR_TRY(tr_view_pull(m->view));
    TR_TRY(tr_linear_report_size(me, m, m->view->value, &m->sgd->report));
    return sgd_add_losses(me, m);
}

static int sgd_try_rate(struct tr_linear *m, double rate, double *objective)
{
    tr_table *w = m->w;
    m->w = NULL;
    m->rate = rate;
    m->sgd->tried = sgd_clocks_of_trial(m);
    m->sgd->ordered = 0;
    m->sgd->report = (tr_report){.clock = 0};
    m->sgd->loss = m->sgd->weight = 0;
    TR_TRY(tr_linear_make_table(m, "trial", NULL, &m->w));
    TR_TRY(tr_linear_put_initial(m));
    TR_TRY(sgd_use_function(m, m->sgd->tried));
    tr_stage trial = {.name = "trial",
                      .state = m,
                      .clocks = m->sgd->tried + 1,
                      .prepare = sgd_prepare_trial,
                      .compute = sgd_compute_trial};
    TR_TRY(tr_run(m->tr, &trial));
    tr_view_close(&m->view);
    sgd_free_arrays(m->sgd);
    free(m->margin);
    m->margin = NULL;
    m->sgd->ordered = 0;
    TR_TRY(tr_table_drop(&m->w));
    m->w = w;
    double sum[] = {m->sgd->loss, m->sgd->weight, tr_linear_penalty(m, &m->sgd->report)};
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 3));
    *objective = sum[0] / sum[1] + sum[2];
    if (!isfinite(*objective)) *objective = INFINITY;
    return TR_OK;
}

/* ---- solve.rate auto ---- */

/* solve.rate auto. A trial trains with a rate from the initial weights on the first mini-batches and measures the
 * objective. The next rate is four times as large, until the objective is worse; or a quarter, if already the first
 * rate was too large (Bottou, "Stochastic gradient descent tricks", 2012, section 5.2). Trials run on all ranks like
 * training, so consistency and weighting of updates are taken into account. */

/* ---- the first rate ---- */

/* Computes the mean |x|² of all rows, and for regression the standard deviation of the labels, to which weights are
 * proportional. */
static int rate_measure(struct tr_linear *m, double *norm, double *spread)
{
    enum { ROWS, NORMS, LABELS, SQUARES, SUMS };
    double sum[SUMS] = {0};
    const struct tr_problem train = {.rows = m->train->rows, .keys = m->train->n_keys};
    const float *label = m->train->rows.label;
    tr_worker me = tr_linear_self(m->tr);
    bool mine = !m->vertical || me.member == 0;
    for (size_t i = tr_data_part_begin(m->train, &me); i < tr_data_part_end(m->train, &me); i++) {
        struct tr_data_row x = tr_row_of(&train, i);
        sum[NORMS] += tr_row_square(&x);
        sum[ROWS] += mine;
        sum[LABELS] += mine ? (double)label[i] : 0;
        sum[SQUARES] += mine ? (double)label[i] * (double)label[i] : 0;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, SUMS));
    double n = fmax(sum[ROWS], 1), mean = sum[LABELS] / n;
    *norm = sum[NORMS] / n + m->o->bias;
    *spread = sqrt(fmax(sum[SQUARES] / n - mean * mean, 0));
    return TR_OK;
}

/* A plain step is about the inverse of the mean curvature. Steps of adaptive optimizers do not depend on the size of
 * gradients, so their rates are proportional to the size of weights. */
static int rate_guess(struct tr_linear *m, double *rate)
{
    double norm, spread, plain;
    TR_TRY(rate_measure(m, &norm, &spread));
    double size = m->loss->labels == TR_LABELS_NUMBERS && spread > 0 ? spread : 1;
    plain = norm > 0 ? 1 / norm : 1;
    if (m->loss->bounded_slope) plain *= size;
    switch (m->o->optimizer) {
    case TR_SGD: *rate = plain; break;
    case TR_MOMENTUM:
    case TR_NESTEROV: *rate = plain * (1 - m->o->momentum); break;
    case TR_ADADELTA: *rate = 10 * size; break;
    default: *rate = 0.1 * size; break;
    }
    return TR_OK;
}

/* ---- the search ---- */

struct rate_trials {
    double best, least; /* the best rate, and its objective */
    int n;
};

/* Tries rates larger or smaller by a factor until the objective is worse. */
static int rate_search(struct tr_linear *m, double factor, struct rate_trials *t)
{
    enum { MOST_TRIALS = 16 };
    double rate = t->best, reached;
    while (t->n < MOST_TRIALS) {
        rate *= factor;
        TR_TRY(sgd_try_rate(m, rate, &reached));
        t->n++;
        bool better = reached < t->least;
        if (!better && (isfinite(t->least) || factor > 1)) break;
        if (better) t->least = reached, t->best = rate;
    }
    return TR_OK;
}

/* Tries half and twice the best rate. */
static int rate_refine(struct tr_linear *m, struct rate_trials *t)
{
    double rate = t->best, reached;
    for (int i = 0; i < 2; i++) {
        double other = i == 0 ? rate / 2 : rate * 2;
        TR_TRY(sgd_try_rate(m, other, &reached));
        t->n++;
        if (!(reached < t->least)) continue;
        t->least = reached, t->best = other;
        break;
    }
    return TR_OK;
}

static int rate_find(struct tr_linear *m)
{
    struct rate_trials t = {.n = 1};
    double first;
    TR_TRY(rate_guess(m, &first));
    t.best = first;
    TR_TRY(sgd_try_rate(m, first, &t.least));
    TR_TRY(rate_search(m, 4, &t));
    if (t.best == first) TR_TRY(rate_search(m, 1. / 4, &t));
    TR_TRY(rate_refine(m, &t));
    m->rate = t.best;
    tr_say(m->tr, "rate:          %.3g, the best of %d that were tried", t.best, t.n);
    return TR_OK;
}

/* ---- the stage ---- */

static int sgd_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    batches_set_rows(me, m);
    TR_TRY(tr_linear_prepare(me, m, m->problem.rows.n / (size_t)m->batches.n + 1));
    return sgd_prepare_optimizer(m);
}

/* The rate is saved, because a search on other ranks could find another one. */
static int sgd_keep_rate(struct tr_linear *m, tr_snapshot *snapshot)
{
    double rate = m->rate;
    TR_TRY(tr_snapshot_common(snapshot, "rate", TR_F64, 1, &rate));
    if (!tr_snapshot_restores(snapshot) || m->o->rate != TR_JOB_AUTO) return TR_OK;
    m->rate = m->sgd->optimizer.rate = rate;
    return sgd_has_optimizer(m) && !sgd_optimizes_at_worker(m)
               ? tr_table_set_argument(m->w, &m->sgd->optimizer)
               : TR_OK;
}

/* The order of mini-batches follows from the seed and the epoch. */
static int sgd_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    TR_TRY(tr_linear_keep_summary(state, snapshot));
    TR_TRY(sgd_keep_rate(state, snapshot));
    return sgd_keep_optimizer(state, snapshot);
}

static int sgd_train(struct tr_linear *m)
{
    TR_TRY(batches_count_features(m));
    if (m->rate == TR_JOB_AUTO && tr_context_continues(m->tr)) m->rate = 1; /* until it is restored */
    if (m->rate == TR_JOB_AUTO) TR_TRY(rate_find(m));
    TR_TRY(sgd_use_function(m, m->epochs * m->clocks_per_epoch));
    tr_stage train = tr_linear_stage(m);
    train.prepare = sgd_prepare;
    train.compute = sgd_compute;
    train.snapshot = sgd_snapshot;
    TR_TRY(tr_run(m->tr, &train));
    return m->o->rate == TR_JOB_AUTO ? tr_report_figure(m->tr, "rate", m->rate) : TR_OK;
}

static bool sgd_minimises(const struct tr_loss *loss)
{
    return loss->slope != NULL;
}

const struct tr_linear_method tr_linear_sgd = {.check = sgd_check,
                                               .passes = true,
                                               .servers = sgd_servers,
                                               .open = sgd_open,
                                               .train = sgd_train,
                                               .close = sgd_close,
                                               .many_outputs = true,
                                               .weighs_rows = true,
                                               .minimises = sgd_minimises,
                                               .counts_rows = true,
                                               .weighs_updates = true,
                                               .diverged = "lower solve.rate"};

/* ---- batches that grow ---- */

/* Mini-batch gradient descent with batches that grow (FlexPS, sections 3 and 7.2): first many small steps, which are
 * fast and noisy, then fewer steps that can use more workers each. Each phase has a batch size and is a stage with its
 * own number of workers. A clock is one mini-batch of all workers of the stage. Evaluation, which visits all rows, is a
 * stage too. */

static const char evaluate_name[] = "evaluate";

struct phase {
    struct tr_linear *m;
    int number;         /* index */
    int64_t iterations; /* mini-batches in a pass over the data */
    int64_t clocks;     /* mini-batches in the phase */
    int64_t before;     /* mini-batches in earlier phases */
    double rate;        /* rate before decay */
    char name[32];
};

struct tr_linear_growing {
    int phases;
    struct phase *phase;
    /* scheduler */
    double passes;
    int at;       /* index of the phase */
    int64_t done; /* completed mini-batches of the phase */
    int64_t leg;  /* mini-batches in the current run */
};

/* Views of a worker in a stage. */
struct phase_views {
    tr_view *view, *test;
};

/* ---- phases ---- */

static void phase_name(struct phase *p, int number)
{
    p->number = number;
    snprintf(p->name, sizeof p->name, "phase-%d", number + 1);
}

/* Checks the names of stages in the job: the phases and `evaluate`. */
static int phase_check_stages(const tr_job *job, int phases)
{
    struct phase phase[TR_GROWING_PHASES];
    const char *names[TR_GROWING_PHASES + 1];
    for (int i = 0; i < phases; i++) {
        phase_name(&phase[i], i);
        names[i] = phase[i].name;
    }
    names[phases] = evaluate_name;
    return tr_job_check_stages(job, names, (size_t)phases + 1);
}

static int growing_check(const tr_job *job, const struct tr_linear_options *o)
{
    if (o->phases > TR_GROWING_PHASES)
        return tr_fail(TR_ERR_CONFIG, "%s: solve.phases is %llu, at most %d are possible",
                       tr_job_where(job, "solve.phases"), (unsigned long long)o->phases, TR_GROWING_PHASES);
    TR_TRY(phase_check_stages(job, (int)o->phases));
    if (!tr_job_is(job, "sync.mode", "bsp"))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: with growing batches all work on one at a time: expected sync.mode bsp",
                       tr_job_where(job, "sync.mode"));
    if (!tr_job_is(job, "data.partition", "replicated"))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: with growing batches a phase's workers divide the rows of their group: expected "
                       "data.partition replicated",
                       tr_job_where(job, "data.partition"));
    if (!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD)
        return tr_fail(TR_ERR_CONFIG, "%s: sync.weight and solve.optimizer are for solve.method sgd",
                       tr_job_where(job, "solve.method"));
    return TR_OK;
}

static double phase_rows_of_batch(const struct tr_linear *m, int phase)
{
    double rows = (double)m->train->total_rows;
    double first = m->o->batch ? (double)m->o->batch : fmax(rows / 1000, 1);
    return fmin(first * pow(m->o->growth, phase), rows);
}

/* Plans a phase. The mini-batches of a pass have equal size. The remaining phases share the remaining passes equally,
 * unless stages.NAME.clocks gives the number of mini-batches. *left: remaining passes of solve.epochs. */
static void phase_plan(struct tr_linear *m, struct phase *p, double *left)
{
    int64_t clocks = tr_linear_stage_clocks(m, p->name);
    double phases = m->growing->phases - p->number;
    p->m = m;
    p->iterations = (int64_t)fmax(1, round((double)m->train->total_rows / phase_rows_of_batch(m, p->number)));
    p->clocks = (int64_t)(*left * (double)p->iterations / (clocks > 0 ? 1 : phases) * (1 + 1e-12));
    if (clocks > 0 && clocks < p->clocks) p->clocks = clocks;
    *left = fmax(0, *left - (double)p->clocks / (double)p->iterations);
}

/* Allocates margins for the largest batch of a worker. */
static int growing_open_worker(struct tr_linear *m)
{
    const struct tr_linear_growing *g = m->growing;
    size_t largest = m->train->rows.n / (size_t)g->phase[g->phases - 1].iterations + 1;
    if (!(tr_roles(m->tr) & TR_SLAVE)) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, tr_max_size(TR_LINEAR_MARGINS, largest)));
    TR_TRY(TR_NEW(&m->batches.order, (size_t)g->phase[0].iterations));
    if (!m->test) return TR_OK;
    return tr_linear_set_problem(m, m->o->bias, m->test, &m->test_problem, &m->test_target);
}

static int growing_open(struct tr_linear *m)
{
    struct tr_linear_growing *g;
    double left = (double)m->epochs;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->growing, 1)));
    g = m->growing;
    m->clocks_per_epoch = 1;
    g->phases = (int)m->o->phases;
    TR_TRY(tr_agree(m->tr, TR_NEW(&g->phase, (size_t)g->phases)));
    for (int i = 0; i < g->phases; i++) {
        phase_name(&g->phase[i], i);
        phase_plan(m, &g->phase[i], &left);
        if (i > 0) g->phase[i].before = g->phase[i - 1].before + g->phase[i - 1].clocks;
    }
    return tr_agree(m->tr, growing_open_worker(m));
}

static void growing_close(struct tr_linear *m)
{
    if (!m->growing) return;
    batches_close(m);
    free(m->growing->phase);
    free(m->growing);
    m->growing = NULL;
}

/* ---- rate ---- */

struct norms {
    double mean, largest;
};

/* Computes |x|² of all rows. Each worker processes its share of the rows of its group. */
static int growing_measure_rows(const struct tr_linear *m, struct norms *norms)
{
    double sum = 0, largest = 0;
    if (tr_roles(m->tr) & TR_SLAVE) {
        tr_worker me = tr_linear_self(m->tr);
        for (size_t i = tr_data_part_begin(m->train, &me); i < tr_data_part_end(m->train, &me); i++) {
            double norm = tr_variance_largest_norm(&m->problem, i, 1);
            sum += norm;
            largest = fmax(largest, norm);
        }
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &sum, 1));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &largest, 1));
    *norms = (struct norms){sum / (double)m->train->total_rows, largest};
    return TR_OK;
}

/* A step on a mean over b rows can have at least the length 1/(M + m/b), with m the largest curvature of a row's loss,
 * and M that of the mean over all rows, which is at most the mean of m (Gower et al. 2019, SGD: General analysis and
 * improved rates, section 3.3). The curvature of logistic loss is below its bound for nearly all rows, so twice this
 * length is better. The hinge has no bound and uses that of logistic loss. (On eight data sets of text, one-hot and
 * dense rows this was better than sgd with its default everywhere and never diverged. Very sparse rows would allow
 * longer steps.) */
static double growing_good_rate(const struct tr_linear *m, double batch, struct norms norms)
{
    struct tr_problem flat = {.loss = m->loss};
    double curvature = m->loss->corner ? tr_loss_logistic.most_curvature : tr_variance_smoothness(&flat, 1);
    double smoothness = curvature * (norms.mean + norms.largest / batch) + m->l2;
    double times = m->loss->rarely_curved ? 2 : 1;
    return smoothness > 0 ? times / smoothness : 1;
}

static int growing_choose_rates(struct tr_linear *m)
{
    struct tr_linear_growing *g = m->growing;
    double wished = m->rate;
    struct norms norms = {0};
    if (wished == TR_JOB_AUTO) TR_TRY(growing_measure_rows(m, &norms));
    for (int i = 0; i < g->phases; i++)
        g->phase[i].rate =
            wished == TR_JOB_AUTO ? growing_good_rate(m, phase_rows_of_batch(m, i), norms) : wished;
    return TR_OK;
}

static double phase_rate_at(const struct phase *p, int64_t clock)
{
    return p->rate / sqrt(p->m->o->decay * (double)(p->before + clock) + 1);
}

/* ---- worker ---- */

static void growing_release(void *kept)
{
    struct phase_views *views = kept;
    tr_view_close(&views->view);
    tr_view_close(&views->test);
    free(views);
}

static int phase_open_views(tr_worker *me, struct tr_linear *m, enum tr_view_use use, bool test)
{
    struct phase_views *views;
    TR_TRY(TR_NEW(&views, 1));
    me->kept = views;
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, use, &views->view));
    return test ? tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &views->test) : TR_OK;
}

static int phase_prepare(tr_worker *me, void *state)
{
    return phase_open_views(me, ((struct phase *)state)->m, TR_VIEW_UPDATE, false);
}

static int growing_prepare_evaluate(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    return phase_open_views(me, m, TR_VIEW_READ, m->test != NULL);
}

/* Processes one mini-batch. A worker that joins in the middle of a pass has not shuffled at its beginning. */
static int phase_compute(tr_worker *me, void *state)
{
    const struct phase *p = state;
    struct tr_linear *m = p->m;
    int64_t clock = me->command.word[0] + me->before + me->clock, turn = clock % p->iterations;
    m->view = ((struct phase_views *)me->kept)->view;
    m->batches.n = p->iterations;
    batches_set_rows(me, m);
    if (turn == 0 || me->clock == 0)
        TR_TRY(batches_shuffle(me, m, (int64_t)p->number << 32 | clock / p->iterations));
    TR_TRY(tr_view_pull(m->view));
    TR_TRY(batches_plain_step(me, m, turn, phase_rate_at(p, clock)));
    m->view = NULL;
    return tr_view_push(((struct phase_views *)me->kept)->view);
}

static int growing_compute_nothing(tr_worker *me, void *state)
{
    (void)me;
    (void)state;
    return TR_OK;
}

static int growing_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct phase_views *views = me->kept;
    m->view = views->view;
    m->test_view = views->test;
    int status = tr_linear_evaluate(me, m, report);
    m->view = m->test_view = NULL;
    return status;
}

static int growing_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    evaluation->epoch = m->growing->passes;
    return tr_linear_summarize(m, report, evaluation);
}

/* ---- the task ---- */

static void phase_run(struct tr_linear *m, const struct phase *p, tr_next *next)
{
    struct tr_linear_growing *g = m->growing;
    int64_t every = m->report_every, left = p->clocks - g->done;
    g->leg = every < left / p->iterations ? every * p->iterations : left;
    *next = (tr_next){.stage = p->number,
                      .clocks = g->leg,
                      .workers = tr_linear_stage_workers(m, p->name, TR_AUTO_WORKERS),
                      .servers = tr_linear_stage_servers(m, p->name)};
    next->command.word[0] = g->done;
}

/* Schedules the next run. An evaluation follows every report.every passes, and each phase. */
static int growing_next_stage(void *state, const tr_ran *ran, tr_next *next)
{
    struct tr_linear *m = state;
    struct tr_linear_growing *g = m->growing;
    if (ran->stage >= 0 && ran->stage < g->phases) {
        g->done += g->leg;
        g->passes += (double)g->leg / (double)g->phase[g->at].iterations;
        *next = (tr_next){.stage = g->phases,
                          .clocks = 1,
                          .workers = tr_linear_stage_workers(m, evaluate_name, TR_ALL_WORKERS),
                          .servers = tr_linear_stage_servers(m, evaluate_name)};
        return TR_OK;
    }
    while (g->at < g->phases && g->done >= g->phase[g->at].clocks) g->at++, g->done = 0;
    if (g->at == g->phases || ran->evaluation.stop) *next = (tr_next){.stage = -1};
    else phase_run(m, &g->phase[g->at], next);
    return TR_OK;
}

/* Workers have no state between clocks. */
static int growing_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    struct tr_linear *m = state;
    struct tr_linear_growing *g = m->growing;
    int64_t at[] = {g->at, g->done, g->leg};
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "passes", TR_F64, 1, &g->passes));
    TR_TRY(tr_snapshot_common(snapshot, "phase", TR_I64, sizeof at / sizeof *at, at));
    if (at[0] < 0 || at[0] >= g->phases)
        return tr_fail(TR_ERR_DATA, "checkpoint: it was taken in phase %lld, there are %d",
                       (long long)at[0] + 1, g->phases);
    g->at = (int)at[0];
    g->done = at[1];
    g->leg = at[2];
    return TR_OK;
}

static int64_t growing_count_evaluations(const struct tr_linear *m)
{
    int64_t n = 0, every = m->report_every;
    for (int i = 0; i < m->growing->phases; i++) {
        const struct phase *p = &m->growing->phase[i];
        int64_t passes = p->clocks / p->iterations;
        if (p->clocks > 0) n += passes > every ? (passes + every - 1) / every : 1;
    }
    return n;
}

static int growing_run_task(struct tr_linear *m, tr_stage *stages)
{
    struct tr_linear_growing *g = m->growing;
    for (int i = 0; i < g->phases; i++)
        stages[i] = (tr_stage){.name = g->phase[i].name,
                               .state = &g->phase[i],
                               .prepare = phase_prepare,
                               .compute = phase_compute,
                               .release = growing_release};
    stages[g->phases] = (tr_stage){.name = evaluate_name,
                                   .state = m,
                                   .metric_name = tr_linear_metric(m),
                                   .metric_ascends = tr_linear_classifies(m),
                                   .prepare = growing_prepare_evaluate,
                                   .compute = growing_compute_nothing,
                                   .evaluate = growing_evaluate,
                                   .summarize = growing_summarize,
                                   .release = growing_release};
    const tr_task task = {.name = "train",
                          .stage = stages,
                          .n = (size_t)g->phases + 1,
                          .table = &m->w,
                          .tables = 1,
                          .evaluations = growing_count_evaluations(m),
                          .state = m,
                          .next = growing_next_stage,
                          .snapshot = growing_snapshot};
    return tr_run_task(m->tr, &task);
}

static int growing_train(struct tr_linear *m)
{
    struct tr_linear_growing *g = m->growing;
    tr_stage *stages;
    TR_TRY(batches_count_features(m));
    TR_TRY(growing_choose_rates(m));
    for (int i = 0; i < g->phases; i++) TR_TRY(tr_linear_check_stage(m, g->phase[i].name, false, true));
    TR_TRY(tr_linear_check_stage(m, evaluate_name, false, false));
    TR_TRY(tr_agree(m->tr, TR_NEW(&stages, (size_t)g->phases + 1)));
    int status = growing_run_task(m, stages);
    free(stages);
    return status;
}

/* The rate needs a bound of the curvature or the slope. Shape parameters are not supported. */
static bool growing_minimises(const struct tr_loss *loss)
{
    return (isfinite(loss->most_curvature) || loss->bounded_slope) && loss->shape == TR_SHAPE_NONE;
}

const struct tr_linear_method tr_linear_growing = {.check = growing_check,
                                                   .minimises = growing_minimises,
                                                   .sparse_rows = true,
                                                   .open = growing_open,
                                                   .train = growing_train,
                                                   .close = growing_close,
                                                   .weighs_updates = true,
                                                   .diverged = "lower solve.rate"};
