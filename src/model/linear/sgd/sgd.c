/* Mini-batch gradient descent, and what becomes of its updates: they are added, weighted (ConSGD, DynSGD), or are gradients
 * for an optimizer at the servers; or each worker has an optimizer of its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../linear.h"
#include "../row.h"

struct tr_linear_sgd {
    int64_t every;                   /* mini-batches of a clock */
    int64_t ordered;                 /* epochs for which an order was made: one more than its number */
    tr_optimizer optimizer;          /* if not the plain one … */
    void *gradient, *packed, *state; /* … at the worker: of a mini-batch, by key; of its keys; its memory … */
    uint32_t *touched;               /* … and the keys that a mini-batch has */
    bool *is_touched;
    bool falls;          /* the rate, to 0 at the last clock */
    int64_t tried;       /* clocks of a trial */
    tr_report report;    /* … behind it: of the size of the weights, … */
    double loss, weight; /* … and of this worker's rows */
};

static size_t view_bytes(const struct tr_linear *m)
{
    size_t element = m->o->dtype == TR_F32 ? sizeof(float) : sizeof(double);
    return m->view ? m->view->n * m->view->width * element : 0;
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

/* ---- checking ---- */

static tr_optimizer wished_optimizer(const struct tr_linear_options *o, double rate)
{
    return (tr_optimizer){.kind = (enum tr_optimizer_kind)o->optimizer,
                          .rate = rate,
                          .decay = fmax(o->decay, 0),
                          .momentum = o->momentum,
                          .memory = o->memory,
                          .epsilon = o->epsilon};
}

static int check_optimizer(const tr_job *job, const struct tr_linear_options *o)
{
    tr_optimizer wished = wished_optimizer(o, o->rate < 0 ? 1 : o->rate), resolved;
    int status = tr_optimizer_resolve(&wished, &resolved);
    if (status == TR_OK) return TR_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(status, "%s: %s", tr_job_where(job, "solve.optimizer"), why);
}

/* What is wished for beside an optimizer or a weighting that has no use for it. */
static int check_sgd(const tr_job *job, const struct tr_linear_options *o)
{
    bool weighted = !tr_job_is(job, "sync.weight", "sum"), plain = o->optimizer == TR_PLAIN_SGD;
    if (!plain) TR_TRY(check_optimizer(job, o));
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

/* ---- what the servers do ---- */

/* model.l1 counts once in the mean of the gradients, ftrl's against their sum: so many there will be. */
static double planned_gradients(const struct tr_linear *m)
{
    double clocks = (double)m->epochs * (double)m->clocks_per_epoch;
    return optimizes_at_worker(m) ? clocks * (double)m->sgd->every : clocks;
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

/* clocks: of the stage. */
static int use_function(struct tr_linear *m, int64_t clocks)
{
    const tr_job *job = m->job;
    m->sgd->optimizer = wished_optimizer(m->o, m->rate);
    m->sgd->optimizer.l1 = m->o->l1 * planned_gradients(m);
    if (m->sgd->falls)
        m->sgd->optimizer.horizon = (double)(clocks * (optimizes_at_worker(m) ? m->sgd->every : 1));
    /* the gradient that a worker sees of a key is that of its part of the rows */
    tr_table_filter_l1(m->w, m->o->l1 / tr_groups(m->tr), 1);
    if (has_optimizer(m) && !optimizes_at_worker(m))
        return tr_table_use(m->w, tr_optimizer_name(m->sgd->optimizer.kind), &m->sgd->optimizer);
    double rate = tr_job_number(job, "sync.global_rate");
    if (rate == TR_JOB_AUTO) rate = 1.0 / tr_groups(m->tr);
    if (tr_job_is(job, "sync.weight", "con")) return tr_table_use(m->w, "scale", &rate);
    if (tr_job_is(job, "sync.weight", "auto")) return tr_table_use(m->w, "agree", NULL);
    if (!tr_job_is(job, "sync.weight", "dyn")) return TR_OK;
    return tr_table_use(m->w, tr_job_number(job, "sync.stable") > 0 ? "dyn-stable" : "dyn", NULL);
}

/* ---- opening ---- */

static uint32_t servers(const struct tr_linear *m)
{
    return tr_job_is(m->job, "sync.weight", "auto") ? tr_linear_few_servers(m) : 0;
}

/* Mini-batches of a clock if the job leaves it open: an update is worth sending when as much has been computed into it
 * as it costs to exchange it. A pull and a push touch every key of a worker, a mini-batch touches its non-zeros twice;
 * over a network a key costs several times more. (Angel, section 5.2: an update buffer that is pushed when it is full.) */
static int64_t enough_batches(const struct tr_linear *m)
{
    double workers = tr_workers(m->tr), nonzeros = (double)m->train->total_nonzeros / workers;
    double keys = fmin((double)m->train->columns, nonzeros);
    double wanted = (tr_nodes(m->tr) == 1 ? 2 : 8) * keys, batch = nonzeros / (double)m->batches.n;
    return (int64_t)fmax(1, fmin((double)m->batches.n, ceil(wanted / fmax(batch, 1))));
}

/* Rows of a mini-batch if the job leaves it open. Small ones come further in an epoch, but each costs a pull and a push of
 * all keys, and several workers a message's time: a part of the keys should be in it. */
static double usual_batch(const struct tr_linear *m)
{
    double rows = (double)m->train->total_rows, of_row = fmax((double)m->train->total_nonzeros / rows, 1);
    double workers = tr_workers(m->tr), least = fmax(8 * workers, rows / (workers > 1 ? 500 : 2000));
    return fmin(fmax(32, rows / 200), fmax(least, (double)m->train->columns / (8 * of_row)));
}

static int open_sgd(struct tr_linear *m)
{
    double rows = (double)m->train->total_rows, batch = (double)m->o->batch;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->sgd, 1)));
    m->batches.n = (int64_t)fmax(1, round(rows / (batch > 0 ? batch : usual_batch(m))));
    m->sgd->every = tr_linear_batches_of_clock(m, m->batches.n, enough_batches(m));
    m->clocks_per_epoch = (m->batches.n + m->sgd->every - 1) / m->sgd->every;
    m->sgd->falls = m->o->decay < 0 && m->o->rate < 0;
    return tr_agree(m->tr, check_groups(m));
}

static void free_arrays(struct tr_linear_sgd *s)
{
    void *arrays[] = {s->gradient, s->packed, s->state, s->touched, s->is_touched};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    s->gradient = s->packed = s->state = s->touched = NULL;
    s->is_touched = NULL;
}

static void close_sgd(struct tr_linear *m)
{
    if (!m->sgd) return;
    free_arrays(m->sgd);
    free(m->sgd);
    m->sgd = NULL;
}

/* ---- steps ---- */

/* Plain steps. One mini-batch is added up by itself: its small steps, above all those of regularisation, would be
 * rounded away beside large weights. Several need a copy of the weights that moves with them. */
static int plain_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    double rate = tr_optimizer_rate(&m->sgd->optimizer, me->clock);
    if (last - first == 1) return tr_linear_plain_step(me, m, first, rate);
    tr_linear_copy_to_delta(m->view, m->problem.dtype);
    for (int64_t i = first; i < last; i++)
        TR_TRY(tr_linear_add_batch(me, m, i, rate, m->view->delta, m->view->delta));
    tr_linear_keep_difference(m->view, m->problem.dtype, 1);
    return TR_OK;
}

/* The servers step: they get the mean gradient of the clock's rows. */
static int gradients(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    double part = -1 / (double)(last - first);
    for (int64_t i = first; i < last; i++)
        TR_TRY(tr_linear_add_batch(me, m, i, part, m->view->value, m->view->delta));
    return TR_OK;
}

/* ---- the worker's own optimizer ---- */

static int prepare_optimizer(struct tr_linear *m)
{
    if (!optimizes_at_worker(m)) return TR_OK;
    size_t n = m->view->n, bytes = view_bytes(m);
    TR_TRY(TR_NEW((char **)&m->sgd->gradient, bytes));
    TR_TRY(TR_NEW((char **)&m->sgd->packed, bytes));
    TR_TRY(TR_NEW((char **)&m->sgd->state, bytes * tr_optimizer_arrays(m->sgd->optimizer.kind)));
    TR_TRY(TR_NEW(&m->sgd->touched, n));
    return TR_NEW(&m->sgd->is_touched, n);
}

/* Every worker remembers something else of a key; it finds its own again. With another layout a key goes on with what one
 * of them has remembered of it: made from other rows, but no worse an estimate of the key's gradients than any. */
static int keep_optimizer(struct tr_linear *m, tr_snapshot *snapshot)
{
    if (!optimizes_at_worker(m)) return TR_OK;
    size_t n = m->view ? m->view->n : 0, bytes = view_bytes(m);
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

/* The keys of the rows of a mini-batch, each once. */
static size_t list_touched(struct tr_linear *m, int64_t turn)
{
    int64_t i = m->batches.order[turn];
    size_t n = 0, first = tr_linear_batch_begin(m, i), end = tr_linear_batch_begin(m, i + 1);
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

/* packed = gradient at the touched keys, where it becomes 0. */
static void take_gradient(struct tr_linear *m, size_t n)
{
    size_t bytes = m->outputs * (m->problem.dtype == TR_F32 ? sizeof(float) : sizeof(double));
    for (size_t t = 0; t < n; t++) {
        char *from = (char *)m->sgd->gradient + m->sgd->touched[t] * bytes;
        memcpy((char *)m->sgd->packed + t * bytes, from, bytes);
        memset(from, 0, bytes);
    }
}

static int own_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    tr_view *view = m->view;
    size_t bytes = view_bytes(m);
    void *state[] = {m->sgd->state, (char *)m->sgd->state + bytes};
    tr_linear_copy_to_delta(view, m->problem.dtype);
    for (int64_t i = first; i < last; i++) {
        TR_TRY(tr_linear_add_batch(me, m, i, -1, view->delta, m->sgd->gradient));
        size_t n = list_touched(m, i);
        take_gradient(m, n);
        tr_optimizer_step(&m->sgd->optimizer, m->problem.dtype, me->clock * m->sgd->every + (i - first), n,
                          m->outputs, m->sgd->touched, m->sgd->packed, view->delta, state);
    }
    tr_linear_keep_difference(view, m->problem.dtype, 1);
    return TR_OK;
}

/* Mini-batches first .. last - 1 of the epoch that clock c belongs to. */
static void batches_of(const struct tr_linear *m, int64_t clock, int64_t *first, int64_t *last)
{
    int64_t of_epoch = clock % m->clocks_per_epoch;
    *first = of_epoch * m->sgd->every;
    *last = *first + m->sgd->every < m->batches.n ? *first + m->sgd->every : m->batches.n;
}

static int compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first, last, epoch = me->clock / m->clocks_per_epoch;
    batches_of(m, me->clock, &first, &last);
    if (m->sgd->ordered != epoch + 1) TR_TRY(tr_linear_shuffle_batches(me, m, epoch));
    m->sgd->ordered = epoch + 1;
    TR_TRY(tr_linear_turn_begin(m, "gradient"));
    int status = optimizes_at_worker(m) ? own_steps(me, m, first, last)
                 : has_optimizer(m)     ? gradients(me, m, first, last)
                                        : plain_steps(me, m, first, last);
    TR_TRY(tr_linear_turn_end(m, status));
    return tr_view_push(m->view);
}

/* ---- a trial: see rate.c ---- */

/* About a quarter of an epoch; small data all of training, as far as that is not many messages. */
static int64_t clocks_of_trial(const struct tr_linear *m)
{
    double quarter = 0.25 * (double)m->clocks_per_epoch, most = tr_workers(m->tr) > 1 ? 2000 : 20000;
    double enough = 4e6 / (double)m->train->total_nonzeros * (double)m->clocks_per_epoch,
           whole = (double)m->epochs * (double)m->clocks_per_epoch;
    double clocks = fmin(fmin(enough, whole), fmax(most, (double)m->clocks_per_epoch));
    return (int64_t)ceil(fmax(clocks, quarter));
}

static int prepare_trial(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    tr_linear_take_part(me, m);
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_UPDATE, &m->view));
    TR_TRY(TR_NEW(&m->margin, (m->problem.rows.n / (size_t)m->batches.n + 1) * m->outputs));
    return prepare_optimizer(m);
}

/* The loss of the mini-batches that come next, or of the same if there are no others. */
static int add_losses(tr_worker *me, struct tr_linear *m)
{
    int64_t n = m->sgd->tried * m->sgd->every < m->batches.n ? m->sgd->tried * m->sgd->every : m->batches.n;
    const struct tr_problem *p = &m->problem;
    for (int64_t i = n; i < 2 * n; i++) {
        int64_t batch = m->batches.order[i % m->batches.n];
        size_t begin = tr_linear_batch_begin(m, batch), rows = tr_linear_batch_begin(m, batch + 1) - begin;
        tr_margins(p, begin, rows, m->view->value, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, rows * p->outputs));
        for (size_t r = 0; r < rows && (!m->vertical || me->member == 0); r++) {
            m->sgd->loss += tr_row_loss(p, begin + r, m->margin + r * p->outputs);
            m->sgd->weight += p->weight ? (double)p->weight[begin + r] : 1;
        }
    }
    return TR_OK;
}

static int compute_trial(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    if (me->clock < m->sgd->tried) return compute(me, state);
    TR_TRY(tr_view_pull(m->view));
    TR_TRY(tr_linear_report_size(me, m, m->view->value, &m->sgd->report));
    return add_losses(me, m);
}

static int try_rate(struct tr_linear *m, double rate, double *objective)
{
    tr_table *w = m->w;
    m->w = NULL;
    m->rate = rate;
    m->sgd->tried = clocks_of_trial(m);
    m->sgd->ordered = 0;
    m->sgd->report = (tr_report){.clock = 0};
    m->sgd->loss = m->sgd->weight = 0;
    TR_TRY(tr_linear_make_table(m, "trial", NULL, &m->w));
    TR_TRY(tr_linear_put_initial(m));
    TR_TRY(use_function(m, m->sgd->tried));
    tr_stage trial = {.name = "trial",
                      .state = m,
                      .clocks = m->sgd->tried + 1,
                      .prepare = prepare_trial,
                      .compute = compute_trial};
    TR_TRY(tr_run(m->tr, &trial));
    tr_view_close(&m->view);
    free_arrays(m->sgd);
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

/* ---- the stage ---- */

static int prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    tr_linear_take_part(me, m);
    TR_TRY(tr_linear_prepare(me, m, m->problem.rows.n / (size_t)m->batches.n + 1));
    return prepare_optimizer(m);
}

/* A rate that was found is not looked for again: other ranks would find another. */
static int keep_rate(struct tr_linear *m, tr_snapshot *snapshot)
{
    double rate = m->rate;
    TR_TRY(tr_snapshot_common(snapshot, "rate", TR_F64, 1, &rate));
    if (!tr_snapshot_restores(snapshot) || m->o->rate != TR_JOB_AUTO) return TR_OK;
    m->rate = m->sgd->optimizer.rate = rate;
    return has_optimizer(m) && !optimizes_at_worker(m) ? tr_table_set_argument(m->w, &m->sgd->optimizer)
                                                       : TR_OK;
}

/* The order of mini-batches follows from the seed and the epoch. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    TR_TRY(tr_linear_keep_summary(state, snapshot));
    TR_TRY(keep_rate(state, snapshot));
    return keep_optimizer(state, snapshot);
}

static int train(struct tr_linear *m)
{
    TR_TRY(tr_linear_count_rows(m));
    if (m->rate == TR_JOB_AUTO && tr_context_continues(m->tr)) m->rate = 1; /* until it is restored */
    if (m->rate == TR_JOB_AUTO) TR_TRY(tr_linear_find_rate(m, try_rate));
    TR_TRY(use_function(m, m->epochs * m->clocks_per_epoch));
    tr_stage train = tr_linear_stage(m);
    train.prepare = prepare;
    train.compute = compute;
    train.snapshot = snapshot;
    TR_TRY(tr_run(m->tr, &train));
    return m->o->rate == TR_JOB_AUTO ? tr_report_figure(m->tr, "rate", m->rate) : TR_OK;
}

static bool minimises(const struct tr_loss *loss)
{
    return loss->slope != NULL;
}

const struct tr_linear_method tr_linear_sgd = {.check = check_sgd,
                                               .passes = true,
                                               .servers = servers,
                                               .open = open_sgd,
                                               .train = train,
                                               .close = close_sgd,
                                               .many_outputs = true,
                                               .weighs_rows = true,
                                               .minimises = minimises,
                                               .counts_rows = true,
                                               .weighs_updates = true,
                                               .diverged = "lower solve.rate"};
