/* Mini-batch gradient descent. Workers push updates of w, which the servers sum or weigh (ConSGD, DynSGD: sync.weight). With an
 * optimizer at the servers workers push gradients; or each worker has its own optimizer and pushes updates. The second part of the
 * file is solve.method growing, in which batches grow. */
#include "../linear.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "steps.h"

/* ---- mini-batches ---- */

/* A mini-batch of a worker consists of consecutive rows. Because files are often sorted, the order of the mini-batches is different
 * in each epoch; it is equal for all members of a group. */

static int batches_prepare_count(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    tr_table *count = m->batches.count;
    TR_TRY(tr_linear_set_problem(m, m->train, &m->problem, &m->target));
    return count ? tr_linear_open_view(m, me, m->train, count, TR_VIEW_UPDATE, &m->batches.count_view)
                 : TR_OK;
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

/* Counts the rows of each feature by a stage of one clock and a table, and sets b->reg: a step on a row regularises only the
 * features of the row, feature w_j by λ n / (number of rows that have it) w_j. The mean over all rows is λ w, and the cost of a
 * step is proportional to its non-zeros. */
static int batches_count_features(struct tr_linear *m)
{
    struct tr_linear_batches *b = &m->batches;
    int status = TR_OK;
    if (m->l2 > 0)
        TR_TRY(tr_table_create(m->tr, "count", TR_F32, 1, m->train->columns + m->o->bias, &b->count));
    tr_stage stage = {.name = "count",
                      .state = m,
                      .clocks = 1,
                      .prepare = batches_prepare_count,
                      .compute = batches_count_rows};
    TR_TRY(tr_run(m->tr, &stage));
    if (b->count_view) {
        size_t n = b->count_view->n;
        status = tr_view_pull(b->count_view);
        if (status == TR_OK) status = TR_NEW(&b->reg, n);
        for (size_t j = 0; j < n && status == TR_OK; j++) {
            double count = (double)((const float *)b->count_view->value)[j];
            b->reg[j] = count > 0 ? (float)(m->l2 * m->problem.n / count) : 0;
        }
        if (status == TR_OK && m->problem.bias && !m->o->bias_l2) b->reg[m->problem.keys] = 0;
        tr_view_close(&b->count_view);
    }
    TR_TRY(tr_agree(m->tr, status));
    return b->count ? tr_table_drop(&b->count) : TR_OK;
}

static void batches_close(struct tr_linear *m)
{
    tr_view_close(&m->batches.count_view);
    TR_FREE_ALL(m->batches.reg, m->batches.order);
}

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
    TR_FREED size_t *begin = NULL;
    struct tr_rng rng;
    if (!m->batches.order) TR_TRY(TR_NEW(&m->batches.order, n));
    for (size_t i = 0; i < n; i++) m->batches.order[i] = (uint32_t)i;
    if (!tr_job_is(m->job, "data.order", "dealt")) return TR_OK;
    TR_TRY(TR_NEW(&begin, n));
    for (size_t i = 0; i < n; i++) begin[i] = batches_begin(m, (int64_t)i);
    tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)epoch);
    return tr_data_permute_parts(m->train, &rng, begin, n, m->batches.order);
}

/* Sets into -= rate × gradient of mini-batch order[turn] at w. If updates are averaged, this is the mean gradient of the group's
 * rows; if updates are summed (m->sums), it is divided by the number of groups. */
static int batches_add_gradient(tr_worker *me, struct tr_linear *m, int64_t turn, double rate, const void *w,
                                void *into)
{
    const struct tr_problem *p = &m->problem;
    int64_t i = m->batches.order[turn];
    size_t begin = batches_begin(m, i), end = batches_begin(m, i + 1), n;
    double rows = p->n / (double)m->batches.n;
    if (!m->sums) rows /= me->groups;
    /* processes the rows that are in memory now, because they may be evicted; but if `into` is w, all margins must be computed
     * before w changes */
    for (; end > begin && (n = w == into ? end - begin : tr_ready(p, begin, end - begin)) > 0; begin += n) {
        tr_margins(p, begin, n, w, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, n * p->outputs));
        tr_row_slopes(p, begin, n, m->margin);
        tr_add_rows(p, begin, n, m->margin, rate / rows, m->batches.reg, w, into);
    }
    return TR_OK;
}

/* ---- sgd ---- */

struct tr_linear_sgd {
    int64_t every;          /* number of mini-batches per clock */
    int64_t ordered;        /* number of the epoch of the current order + 1; 0: there is no order yet */
    tr_optimizer optimizer; /* rate and decay also apply to plain steps */
    /* optimizer at the worker: gradient over all keys of the view; over the keys of a mini-batch; state of the optimizer */
    void *gradient, *packed, *state;
    uint32_t *touched;   /* indices of the keys that the current mini-batch has */
    bool *is_touched;    /* is_touched[key]: the key is in `touched` */
    bool falls;          /* the rate falls linearly to 0 at the last clock */
    int64_t tried;       /* number of training clocks of the current trial (solve.rate auto); 0: no trial */
    tr_report report;    /* sums of the weights at the end of the trial */
    double loss, weight; /* Σ loss and Σ weight of the rows on which this worker measures the trial */
};

/* Values of solve.optimizer_at. */
enum { AT_SERVER, AT_WORKER };

static bool sgd_optimizes(const struct tr_linear *m, int at)
{
    return m->o->optimizer != TR_PLAIN_SGD && m->o->optimizer_at == at;
}

static size_t sgd_view_bytes(const struct tr_linear *m)
{
    return m->view ? m->view->n * m->view->width * tr_real_size((enum tr_dtype)m->o->dtype) : 0;
}

static tr_optimizer sgd_wished_optimizer(const struct tr_linear_options *o, double rate)
{
    return (tr_optimizer){.kind = (enum tr_optimizer_kind)o->optimizer,
                          .rate = rate,
                          .decay = fmax(o->decay, 0),
                          .momentum = o->momentum,
                          .memory = o->memory,
                          .epsilon = o->epsilon};
}

/* Refuses settings that the optimizer or sync.weight would ignore. */
static int sgd_check(const tr_job *job, const struct tr_linear_options *o)
{
    bool weighted = !tr_job_is(job, "sync.weight", "sum"), plain = o->optimizer == TR_PLAIN_SGD;
    tr_optimizer wished = sgd_wished_optimizer(o, o->rate < 0 ? 1 : o->rate), resolved;
    int status = plain ? TR_OK : tr_optimizer_resolve(&wished, &resolved);
    if (status != TR_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", tr_error_text());
        return tr_fail(status, "%s: %s", tr_job_where(job, "solve.optimizer"), why);
    }
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

/* Sets s->optimizer, and selects the server function of w, for a stage of this number of clocks. */
static int sgd_use_function(struct tr_linear *m, int64_t clocks)
{
    struct tr_linear_sgd *s = m->sgd;
    const tr_job *job = m->job;
    int64_t steps = sgd_optimizes(m, AT_WORKER) ? s->every : 1; /* steps of the optimizer per clock */
    s->optimizer = sgd_wished_optimizer(m->o, m->rate);
    /* ftrl applies l1 once to the sum of all gradients of the training, so model.l1 is multiplied by their number */
    s->optimizer.l1 = m->o->l1 * ((double)m->epochs * (double)m->clocks_per_epoch * (double)steps);
    s->optimizer.l1_keys = m->o->bias ? m->train->columns : 0;
    if (s->falls) s->optimizer.horizon = (double)(clocks * steps);
    /* each group pushes the gradient of its own rows only */
    tr_table_filter_l1(m->w, m->o->l1 / tr_groups(m->tr), 1);
    if (sgd_optimizes(m, AT_SERVER))
        return tr_table_use(m->w, tr_optimizer_name(s->optimizer.kind), &s->optimizer);
    double rate = tr_job_number(job, "sync.global_rate");
    if (rate == TR_JOB_AUTO) rate = 1.0 / tr_groups(m->tr);
    if (tr_job_is(job, "sync.weight", "con")) return tr_table_use(m->w, "scale", &rate);
    if (tr_job_is(job, "sync.weight", "auto")) return tr_table_use(m->w, "agree", NULL);
    if (!tr_job_is(job, "sync.weight", "dyn")) return TR_OK;
    return tr_table_use(m->w, tr_job_number(job, "sync.stable") > 0 ? "dyn-stable" : "dyn", NULL);
}

static uint32_t sgd_servers(const struct tr_linear *m)
{
    return tr_job_is(m->job, "sync.weight", "auto") ? tr_linear_few_servers(m) : 0;
}

static int sgd_open(struct tr_linear *m)
{
    const tr_data *train = m->train;
    double rows = (double)train->total_rows, batch = (double)m->o->batch, workers = tr_workers(m->tr),
           nonzeros = (double)train->total_nonzeros, columns = (double)train->columns;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->sgd, 1)));
    /* Default number of rows of a mini-batch. Small batches make more progress in an epoch, but each costs a pull and a push of all
     * keys, and with several workers the latency of a message. A batch should therefore have about an eighth of the keys. */
    double least = fmax(8 * workers, rows / (workers > 1 ? 500 : 2000));
    double usual = fmin(fmax(32, rows / 200), fmax(least, columns / (8 * fmax(nonzeros / rows, 1))));
    m->batches.n = (int64_t)fmax(1, round(rows / (batch > 0 ? batch : usual)));
    /* Default number of mini-batches per clock: computing an update should take as long as exchanging it. A pull and a push access
     * each key of a worker, a mini-batch accesses its non-zeros twice; over a network a key costs several times more. (Angel,
     * section 5.2: an update buffer that is pushed when it is full.) */
    nonzeros /= workers;
    double wanted = (tr_nodes(m->tr) == 1 ? 2 : 8) * fmin(columns, nonzeros), n = (double)m->batches.n;
    double enough = fmax(1, fmin(n, ceil(wanted / fmax(nonzeros / n, 1))));
    m->sgd->every = tr_linear_batches_of_clock(m, m->batches.n, (int64_t)enough);
    m->clocks_per_epoch = (m->batches.n + m->sgd->every - 1) / m->sgd->every;
    m->sgd->falls = m->o->decay < 0 && m->o->rate < 0;
    bool dyn = tr_job_is(m->job, "sync.weight", "dyn");
    if ((!dyn && !tr_job_is(m->job, "sync.weight", "auto")) || !m->vertical) return TR_OK;
    return tr_fail(
        TR_ERR_CONFIG,
        "%s: sync.weight %s takes a group's update as a whole, but with data.partition vertical each "
        "member pushes a part: expected sum or con",
        tr_job_where(m->job, "sync.weight"), dyn ? "dyn" : "auto");
}

static void sgd_free_arrays(struct tr_linear_sgd *s)
{
    TR_FREE_ALL(s->gradient, s->packed, s->state, s->touched, s->is_touched);
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

/* Prepares training or a trial, which needs no views for evaluation. */
static int sgd_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_sgd *s = m->sgd;
    size_t margins = m->problem.rows.n / (size_t)m->batches.n + 1;
    batches_set_rows(me, m);
    if (s->tried == 0) {
        TR_TRY(tr_linear_prepare(me, m, margins));
    } else {
        TR_TRY(tr_linear_open_view(m, me, m->train, m->w, TR_VIEW_UPDATE, &m->view));
        TR_TRY(TR_NEW(&m->margin, margins * m->outputs));
    }
    if (!sgd_optimizes(m, AT_WORKER)) return TR_OK;
    size_t n = m->view->n, bytes = sgd_view_bytes(m);
    TR_TRY(TR_NEW((char **)&s->gradient, bytes));
    TR_TRY(TR_NEW((char **)&s->packed, bytes));
    TR_TRY(TR_NEW((char **)&s->state, bytes * tr_optimizer_arrays(s->optimizer.kind)));
    TR_TRY(TR_NEW(&s->touched, n));
    return TR_NEW(&s->is_touched, n);
}

/* Takes the steps first .. last - 1 of an optimizer at the worker, each on the keys of one mini-batch. */
static int sgd_own_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    struct tr_linear_sgd *s = m->sgd;
    tr_view *view = m->view;
    size_t bytes = m->outputs * tr_real_size(m->problem.dtype);
    void *state[] = {s->state, (char *)s->state + sgd_view_bytes(m)};
    tr_linear_copy_to_delta(view, m->problem.dtype);
    for (int64_t turn = first; turn < last; turn++) {
        TR_TRY(batches_add_gradient(me, m, turn, -1, view->delta, s->gradient));
        int64_t i = m->batches.order[turn];
        size_t n = 0, row = batches_begin(m, i), end = batches_begin(m, i + 1);
        size_t free = end > row && m->problem.bias; /* the bias is the first unit, and has no l1 */
        if (free) s->touched[n++] = (uint32_t)m->problem.keys;
        for (; row < end; row++) {
            struct tr_data_row x = tr_row_of(&m->problem, row);
            for (size_t k = 0; k < x.n; k++) {
                uint32_t key = (uint32_t)tr_row_key(&x, k);
                if (s->is_touched[key]) continue;
                s->is_touched[key] = true;
                s->touched[n++] = key;
            }
        }
        for (size_t t = 0; t < n; t++) { /* moves the gradient of the touched keys to `packed` */
            char *from = (char *)s->gradient + s->touched[t] * bytes;
            memcpy((char *)s->packed + t * bytes, from, bytes);
            memset(from, 0, bytes);
            s->is_touched[s->touched[t]] = false;
        }
        int64_t clock = me->clock * s->every + (turn - first);
        tr_optimizer of_bias = s->optimizer;
        of_bias.l1 = 0;
        tr_optimizer_step(&of_bias, m->problem.dtype, clock, free, m->outputs, s->touched, s->packed,
                          view->delta, state);
        tr_optimizer_step(&s->optimizer, m->problem.dtype, clock, n - free, m->outputs, s->touched + free,
                          (char *)s->packed + free * bytes, view->delta, state);
    }
    tr_linear_keep_difference(view, m->problem.dtype, 1);
    return TR_OK;
}

/* Takes the steps of the mini-batches first .. last - 1, those of a clock. An optimizer at the servers gets the mean gradient of
 * their rows. Several mini-batches of plain steps change a copy of the weights. A single mini-batch is added to zeros instead,
 * because its small steps, in particular those of regularisation, would be rounded away when added to large weights. */
static int sgd_steps(tr_worker *me, struct tr_linear *m, int64_t first, int64_t last)
{
    bool gradients = sgd_optimizes(m, AT_SERVER), copies = !gradients && last - first > 1;
    double rate = gradients ? -1 / (double)(last - first) : tr_optimizer_rate(&m->sgd->optimizer, me->clock);
    if (sgd_optimizes(m, AT_WORKER)) return sgd_own_steps(me, m, first, last);
    if (copies) tr_linear_copy_to_delta(m->view, m->problem.dtype);
    for (int64_t i = first; i < last; i++)
        TR_TRY(
            batches_add_gradient(me, m, i, rate, copies ? m->view->delta : m->view->value, m->view->delta));
    if (copies) tr_linear_keep_difference(m->view, m->problem.dtype, 1);
    return TR_OK;
}

static int sgd_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t epoch = me->clock / m->clocks_per_epoch, first = me->clock % m->clocks_per_epoch * m->sgd->every,
            last = first + m->sgd->every < m->batches.n ? first + m->sgd->every : m->batches.n;
    if (m->sgd->ordered != epoch + 1) TR_TRY(batches_shuffle(me, m, epoch));
    m->sgd->ordered = epoch + 1;
    TR_TRY(tr_linear_turn_begin(m, "gradient"));
    TR_TRY(tr_linear_turn_end(m, sgd_steps(me, m, first, last)));
    /* the filter kkt drops small gradients of weights of 0, but a bias has no l1 */
    size_t bias = m->problem.keys * m->outputs;
    for (size_t o = bias; m->o->l1 > 0 && m->problem.bias && o < bias + m->outputs; o++)
        if (tr_real_get(m->problem.dtype, m->view->value, o) == 0)
            tr_real_set(m->problem.dtype, m->view->value, o, (double)FLT_MIN);
    return tr_view_push(m->view);
}

/* ---- solve.rate auto ---- */

/* A trial trains with one rate from the initial weights on the first mini-batches, and then measures the objective. The next trial
 * has four times the rate, until the objective is worse; or a quarter of it, if the first rate was too large (Bottou, "Stochastic
 * gradient descent tricks", 2012, section 5.2). Trials run on all ranks like training, so that sync.mode and sync.weight have the
 * same effect. */

/* The last clock of a trial sums the loss of the mini-batches that follow those of the trial, from the end of the order to its
 * start. */
static int trial_compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_sgd *s = m->sgd;
    const struct tr_problem *p = &m->problem;
    if (me->clock < s->tried) return sgd_compute(me, state);
    TR_TRY(tr_view_pull(m->view));
    TR_TRY(tr_linear_report_size(me, m, m->view->value, &s->report));
    int64_t n = s->tried * s->every < m->batches.n ? s->tried * s->every : m->batches.n;
    for (int64_t i = n; i < 2 * n; i++) {
        int64_t batch = m->batches.order[i % m->batches.n];
        size_t begin = batches_begin(m, batch), rows = batches_begin(m, batch + 1) - begin;
        tr_margins(p, begin, rows, m->view->value, m->margin);
        if (m->vertical) TR_TRY(tr_group_sum(me, m->margin, rows * p->outputs));
        if (m->vertical && me->member > 0) continue;
        s->loss = tr_row_losses(p, begin, rows, m->margin, s->loss);
        for (size_t r = 0; r < rows; r++) s->weight += p->weight ? (double)p->weight[begin + r] : 1;
    }
    return TR_OK;
}

/* Runs a trial and sets *objective. A trial takes about a quarter of an epoch; for small data the clocks of training, unless that
 * would take too many messages. */
static int trial_run(struct tr_linear *m, double rate, double *objective)
{
    struct tr_linear_sgd *s = m->sgd;
    tr_table *w = m->w;
    double epoch = (double)m->clocks_per_epoch, enough = 4e6 / (double)m->train->total_nonzeros * epoch;
    double most = tr_workers(m->tr) > 1 ? 2000 : 20000;
    double clocks = fmin(fmin(enough, (double)m->epochs * epoch), fmax(most, epoch));
    m->w = NULL;
    m->rate = rate;
    s->tried = (int64_t)ceil(fmax(clocks, 0.25 * epoch));
    s->ordered = 0;
    s->report = (tr_report){.clock = 0};
    s->loss = s->weight = 0;
    TR_TRY(tr_linear_make_table(m, "trial", NULL, &m->w));
    TR_TRY(tr_linear_put_initial(m));
    TR_TRY(sgd_use_function(m, s->tried));
    tr_stage trial = {.name = "trial",
                      .state = m,
                      .clocks = s->tried + 1,
                      .prepare = sgd_prepare,
                      .compute = trial_compute};
    TR_TRY(tr_run(m->tr, &trial));
    tr_view_close(&m->view);
    sgd_free_arrays(s);
    free(m->margin);
    m->margin = NULL;
    s->ordered = s->tried = 0;
    TR_TRY(tr_table_drop(&m->w));
    m->w = w;
    double sum[] = {s->loss, s->weight, tr_linear_penalty(m, &s->report)};
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 3));
    *objective = sum[0] / sum[1] + sum[2];
    if (!isfinite(*objective)) *objective = INFINITY;
    return TR_OK;
}

struct rate_trials {
    double best, least; /* the best rate so far, and its objective */
    int n;              /* number of trials */
};

static int rate_try(struct tr_linear *m, double rate, struct rate_trials *t, bool *better)
{
    double reached;
    TR_TRY(trial_run(m, rate, &reached));
    t->n++;
    *better = reached < t->least;
    if (*better) t->least = reached, t->best = rate;
    return TR_OK;
}

/* Sets m->rate to the best rate of some trials. The first rate of a plain step is the inverse of the mean |x|² of all rows, which
 * is about the inverse of the mean curvature. Steps of adaptive optimizers do not depend on the size of gradients, so their first
 * rate is proportional to the size of weights: for regression, to the standard deviation of the labels. */
static int rate_find(struct tr_linear *m)
{
    enum { ROWS, NORMS, LABELS, SQUARES, SUMS, MOST_TRIALS = 16 };
    double sum[SUMS] = {0};
    const struct tr_problem train = {.rows = m->train->rows, .keys = m->train->n_keys};
    tr_worker me = tr_linear_self(m->tr);
    bool mine = !m->vertical || me.member == 0, better;
    for (size_t i = tr_data_part_begin(m->train, &me); i < tr_data_part_end(m->train, &me); i++) {
        struct tr_data_row x = tr_row_of(&train, i);
        double label = (double)m->train->rows.label[i];
        sum[NORMS] += tr_row_square(&x);
        sum[ROWS] += mine;
        sum[LABELS] += mine ? label : 0;
        sum[SQUARES] += mine ? label * label : 0;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, SUMS));
    double n = fmax(sum[ROWS], 1), mean = sum[LABELS] / n, norm = sum[NORMS] / n + m->o->bias;
    double spread = sqrt(fmax(sum[SQUARES] / n - mean * mean, 0));
    double size = m->loss->labels == TR_LABELS_NUMBERS && spread > 0 ? spread : 1, first = 0.1 * size;
    double plain = (norm > 0 ? 1 / norm : 1) * (m->loss->bounded_slope ? size : 1);
    if (m->o->optimizer == TR_SGD) first = plain;
    if (m->o->optimizer == TR_MOMENTUM || m->o->optimizer == TR_NESTEROV)
        first = plain * (1 - m->o->momentum);
    if (m->o->optimizer == TR_ADADELTA) first = 10 * size;

    struct rate_trials t = {.best = first, .n = 1};
    TR_TRY(trial_run(m, first, &t.least));
    for (double factor = 4; factor > 0; factor = factor > 1 && t.best == first ? 1. / 4 : 0)
        for (double rate = t.best * factor; t.n < MOST_TRIALS; rate *= factor) {
            TR_TRY(rate_try(m, rate, &t, &better));
            if (!better && (isfinite(t.least) || factor > 1)) break;
        }
    double rate = t.best;
    TR_TRY(rate_try(m, rate / 2, &t, &better));
    if (!better) TR_TRY(rate_try(m, rate * 2, &t, &better));
    m->rate = t.best;
    tr_say(m->tr, "rate:          %.3g, the best of %d that were tried", t.best, t.n);
    return TR_OK;
}

/* ---- the stage ---- */

/* The order of mini-batches follows from the seed and the epoch. The rate is listed, because trials on other ranks could find
 * another rate. An optimizer at the worker has a state for each key of the worker. If a run resumes with other workers, a key gets
 * the state that one of the old workers had. It comes from other rows, but is an equally good estimate for the key. */
static int sgd_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    struct tr_linear *m = state;
    struct tr_linear_sgd *s = m->sgd;
    double rate = m->rate;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "rate", TR_F64, 1, &rate));
    if (tr_snapshot_restores(snapshot) && m->o->rate == TR_JOB_AUTO) {
        m->rate = s->optimizer.rate = rate;
        if (sgd_optimizes(m, AT_SERVER)) TR_TRY(tr_table_set_argument(m->w, &s->optimizer));
    }
    if (!sgd_optimizes(m, AT_WORKER)) return TR_OK;
    size_t n = m->view ? m->view->n : 0, bytes = sgd_view_bytes(m);
    TR_FREED uint64_t *key = NULL;
    TR_TRY(TR_NEW(&key, n));
    for (size_t i = 0; i < n; i++) key[i] = i < m->train->n_keys ? m->train->keys[i] : m->train->columns;
    for (size_t a = 0; a < tr_optimizer_arrays(s->optimizer.kind); a++) {
        char name[] = "optimizer_0";
        name[sizeof name - 2] = (char)('0' + a);
        TR_TRY(tr_snapshot_rows(snapshot, name, (enum tr_dtype)m->o->dtype, m->train->columns + 1, m->outputs,
                                key, 0, n, n > 0 ? (char *)s->state + a * bytes : NULL));
    }
    return TR_OK;
}

static int sgd_train(struct tr_linear *m)
{
    TR_TRY(batches_count_features(m));
    /* the snapshot will set the rate */
    if (m->rate == TR_JOB_AUTO && tr_context_continues(m->tr)) m->rate = 1;
    if (m->rate == TR_JOB_AUTO) TR_TRY(rate_find(m));
    TR_TRY(sgd_use_function(m, m->epochs * m->clocks_per_epoch));
    tr_stage train = tr_linear_stage(m);
    TR_TRY(tr_run(m->tr, &train));
    return m->o->rate == TR_JOB_AUTO ? tr_report_figure(m->tr, "rate", m->rate) : TR_OK;
}

const struct tr_linear_method tr_linear_sgd = {.from_w = true,
                                               .check = sgd_check,
                                               .passes = true,
                                               .servers = sgd_servers,
                                               .open = sgd_open,
                                               .train = sgd_train,
                                               .prepare = sgd_prepare,
                                               .compute = sgd_compute,
                                               .snapshot = sgd_snapshot,
                                               .close = sgd_close,
                                               .many_outputs = true,
                                               .weighs_rows = true,
                                               .minimises = TR_LOSS_SLOPE,
                                               .counts_rows = true,
                                               .weighs_updates = true,
                                               .diverged = "lower solve.rate"};

/* ---- batches that grow ---- */

/* Mini-batch gradient descent with batches that grow (FlexPS, sections 3 and 7.2): first many small steps, which are fast and
 * noisy, then fewer large steps, each of which can use more workers. Training is a task of stages. A phase is a stage with its own
 * batch size and number of workers; it runs several times, each time for some clocks. A clock is one mini-batch of all workers of
 * the stage. The evaluation, which visits all rows, is a stage too. */

struct phase {
    struct tr_linear *m;
    int number;         /* index of the phase */
    int64_t iterations; /* number of mini-batches in a pass over the data */
    int64_t clocks;     /* number of mini-batches in the phase */
    int64_t before;     /* number of mini-batches in all earlier phases */
    double rate;        /* learning rate of the phase, before decay */
    char name[32];
};

struct tr_linear_growing {
    int phases;
    struct phase *phase; /* phase[phases], behind the phases, is the stage that evaluates the model */
    struct {             /* on the scheduler; saved in checkpoints */
        int64_t phase;   /* index of the current phase */
        int64_t done;    /* number of completed mini-batches of this phase */
        int64_t leg;     /* number of mini-batches in the current run of this phase */
    } at;
};

static int growing_check(const tr_job *job, const struct tr_linear_options *o)
{
    char name[TR_GROWING_PHASES][32];
    const char *names[TR_GROWING_PHASES + 1];
    if (o->phases > TR_GROWING_PHASES)
        return tr_fail(TR_ERR_CONFIG, "%s: solve.phases is %llu, at most %d are possible",
                       tr_job_where(job, "solve.phases"), (unsigned long long)o->phases, TR_GROWING_PHASES);
    for (int i = 0; i < (int)o->phases; i++) {
        snprintf(name[i], sizeof name[i], "phase-%d", i + 1);
        names[i] = name[i];
    }
    names[o->phases] = "evaluate";
    TR_TRY(tr_job_check_stages(job, names, (size_t)o->phases + 1));
    const struct tr_refusal list[] = {
        {!tr_job_is(job, "sync.mode", "bsp"), "sync.mode",
         "with growing batches all work on one at a time: expected sync.mode bsp"},
        {!tr_job_is(job, "data.partition", "replicated"), "data.partition",
         "with growing batches a phase's workers divide the rows of their group: expected data.partition "
         "replicated"},
        {!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD, "solve.method",
         "sync.weight and solve.optimizer are for solve.method sgd"},
        {.key = NULL}};
    return tr_linear_refuse_any(job, list);
}

static double phase_rows_of_batch(const struct tr_linear *m, int phase)
{
    double rows = (double)m->train->total_rows;
    double first = m->o->batch ? (double)m->o->batch : fmax(rows / 1000, 1);
    return fmin(first * pow(m->o->growth, phase), rows);
}

/* Plans the phases. The mini-batches of a pass have equal size. The phases divide solve.epochs equally, unless stages.NAME.clocks
 * sets the number of mini-batches of a phase. */
static int growing_open(struct tr_linear *m)
{
    struct tr_linear_growing *g;
    /* left: number of passes that belong to no phase yet */
    double left = (double)m->epochs, rows = (double)m->train->total_rows;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->growing, 1)));
    g = m->growing;
    g->phases = (int)m->o->phases;
    TR_TRY(tr_agree(m->tr, TR_NEW(&g->phase, (size_t)g->phases + 1)));
    g->phase[g->phases] = (struct phase){.m = m, .number = g->phases, .name = "evaluate"};
    for (int i = 0; i < g->phases; i++) {
        struct phase *p = &g->phase[i];
        *p = (struct phase){.m = m, .number = i};
        snprintf(p->name, sizeof p->name, "phase-%d", i + 1);
        int64_t clocks = tr_linear_stage_number(m, p->name, "clocks");
        p->iterations = (int64_t)fmax(1, round(rows / phase_rows_of_batch(m, i)));
        p->clocks = (int64_t)(left * (double)p->iterations / (clocks > 0 ? 1 : (double)(g->phases - i)) *
                              (1 + 1e-12));
        if (clocks > 0 && clocks < p->clocks) p->clocks = clocks;
        left = fmax(0, left - (double)p->clocks / (double)p->iterations);
        if (i > 0) p->before = p[-1].before + p[-1].clocks;
    }
    if (!(tr_roles(m->tr) & TR_SLAVE)) return tr_agree(m->tr, TR_OK);
    size_t largest = m->train->rows.n / (size_t)g->phase[g->phases - 1].iterations + 1;
    int status = TR_NEW(&m->margin, tr_max_size(TR_LINEAR_MARGINS, largest));
    if (status == TR_OK) status = TR_NEW(&m->batches.order, (size_t)g->phase[0].iterations);
    if (status == TR_OK && m->test)
        status = tr_linear_set_problem(m, m->test, &m->test_problem, &m->test_target);
    return tr_agree(m->tr, status);
}

static void growing_close(struct tr_linear *m)
{
    if (!m->growing) return;
    batches_close(m);
    TR_FREE_ALL(m->growing->phase, m->growing);
    m->growing = NULL;
}

/* Sets the rates of the phases for solve.rate auto. A step on the mean over b rows can have at least the length 1/(M + m/b), where
 * m is the largest curvature of a row's loss, and M the curvature of the mean over all rows, which is at most the mean curvature
 * (Gower et al. 2019, SGD: General analysis and improved rates, section 3.3). The curvature of logistic loss is below its bound for
 * nearly all rows, so twice this length is better. The hinge has no bound of the curvature and uses that of logistic loss. (On
 * eight data sets of text, one-hot and dense rows this was always better than sgd with its default, and never diverged. Very sparse
 * rows would allow longer steps.) */
static int growing_choose_rates(struct tr_linear *m)
{
    struct tr_linear_growing *g = m->growing;
    struct tr_problem flat = {.loss = m->loss};
    double norms = 0, largest = 0; /* sum and maximum of |x|² over all rows */
    for (int i = 0; i < g->phases; i++) g->phase[i].rate = m->rate;
    if (m->rate != TR_JOB_AUTO) return TR_OK;
    size_t first, end;
    tr_linear_own_rows(m, &first, &end);
    for (size_t i = first; i < end; i++) {
        double norm = tr_variance_largest_norm(&m->problem, i, 1);
        norms += norm;
        largest = fmax(largest, norm);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &norms, 1));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &largest, 1));
    double mean = norms / (double)m->train->total_rows, times = m->loss->rarely_curved ? 2 : 1;
    double curvature = m->loss->corner ? tr_loss_logistic.most_curvature : tr_variance_smoothness(&flat, 1);
    for (int i = 0; i < g->phases; i++) {
        double smoothness = curvature * (mean + largest / phase_rows_of_batch(m, i)) + m->l2;
        g->phase[i].rate = smoothness > 0 ? times / smoothness : 1;
    }
    return TR_OK;
}

/* ---- worker ---- */

static int phase_prepare(tr_worker *me, void *state)
{
    const struct phase *p = state;
    struct tr_linear *m = p->m;
    struct tr_linear_views *views;
    bool evaluates = p->number == m->growing->phases;
    TR_TRY(TR_NEW(&views, 1));
    me->kept = views;
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, evaluates ? TR_VIEW_READ : TR_VIEW_UPDATE, &views->w));
    if (!evaluates || !m->test) return TR_OK;
    return tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &views->test);
}

/* Processes one mini-batch; does nothing in the stage that evaluates. Shuffles at the start of a pass, and at the start of a run,
 * because this worker may not have taken part in earlier runs of the pass. */
static int phase_compute(tr_worker *me, void *state)
{
    const struct phase *p = state;
    struct tr_linear *m = p->m;
    tr_view *view = ((struct tr_linear_views *)me->kept)->w;
    if (p->number == m->growing->phases) return TR_OK;
    int64_t clock = me->command.word[0] + me->before + me->clock, turn = clock % p->iterations;
    double rate = p->rate / sqrt(m->o->decay * (double)(p->before + clock) + 1);
    m->batches.n = p->iterations;
    batches_set_rows(me, m);
    if (turn == 0 || me->clock == 0)
        TR_TRY(batches_shuffle(me, m, (int64_t)p->number << 32 | clock / p->iterations));
    TR_TRY(tr_view_pull(view));
    TR_TRY(batches_add_gradient(me, m, turn, rate, view->value, view->delta));
    return tr_view_push(view);
}

static int growing_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = ((struct phase *)state)->m;
    const struct tr_linear_views *views = me->kept;
    TR_TRY(tr_view_pull(views->w));
    return tr_linear_evaluate_at(me, m, views->w->value, views->test, report);
}

static int growing_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    return tr_linear_summarize(((struct phase *)state)->m, report, evaluation);
}

/* ---- the task ---- */

/* For tr_task.next: selects the next run of a phase. An evaluation follows every report.every passes, and each phase. */
static int growing_next_stage(void *state, const tr_ran *ran, tr_next *next)
{
    struct tr_linear *m = state;
    struct tr_linear_growing *g = m->growing;
    const struct phase *p = &g->phase[g->phases];
    bool evaluates = ran->stage >= 0 && ran->stage < g->phases;
    if (evaluates) {
        g->at.done += g->at.leg;
        m->passes += (double)g->at.leg / (double)g->phase[g->at.phase].iterations;
    } else {
        while (g->at.phase < g->phases && g->at.done >= g->phase[g->at.phase].clocks)
            g->at.phase++, g->at.done = 0;
        *next = (tr_next){.stage = -1};
        if (g->at.phase == g->phases || ran->evaluation.stop) return TR_OK;
        p = &g->phase[g->at.phase];
        int64_t every = m->report_every, left = p->clocks - g->at.done;
        g->at.leg = every < left / p->iterations ? every * p->iterations : left;
    }
    *next = (tr_next){.stage = p->number,
                      .clocks = evaluates ? 1 : g->at.leg,
                      .workers =
                          tr_linear_stage_workers(m, p->name, evaluates ? TR_ALL_WORKERS : TR_AUTO_WORKERS),
                      .servers = (int)tr_linear_stage_number(m, p->name, "servers")};
    next->command.word[0] = evaluates ? 0 : g->at.done;
    return TR_OK;
}

/* Lists only numbers that are equal on all ranks, because workers have no state between clocks. */
static int growing_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    struct tr_linear *m = state;
    struct tr_linear_growing *g = m->growing;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "passes", TR_F64, 1, &m->passes));
    TR_TRY(tr_snapshot_common(snapshot, "phase", TR_I64, sizeof g->at / sizeof(int64_t), &g->at));
    if (g->at.phase >= 0 && g->at.phase < g->phases) return TR_OK;
    return tr_fail(TR_ERR_DATA, "checkpoint: it was taken in phase %lld, there are %d",
                   (long long)g->at.phase + 1, g->phases);
}

static int growing_train(struct tr_linear *m)
{
    struct tr_linear_growing *g = m->growing;
    int64_t evaluations = 0, every = m->report_every;
    TR_FREED tr_stage *stages = NULL;
    TR_TRY(batches_count_features(m));
    TR_TRY(growing_choose_rates(m));
    for (int i = 0; i <= g->phases; i++)
        TR_TRY(tr_linear_check_stage(m, g->phase[i].name, false, i < g->phases));
    TR_TRY(tr_agree(m->tr, TR_NEW(&stages, (size_t)g->phases + 1)));
    for (int i = 0; i < g->phases; i++) {
        struct phase *p = &g->phase[i];
        int64_t passes = p->clocks / p->iterations;
        if (p->clocks > 0) evaluations += passes > every ? (passes + every - 1) / every : 1;
        stages[i] = (tr_stage){.name = p->name,
                               .state = p,
                               .prepare = phase_prepare,
                               .compute = phase_compute,
                               .release = tr_linear_release_views};
    }
    stages[g->phases] = (tr_stage){.name = g->phase[g->phases].name,
                                   .state = &g->phase[g->phases],
                                   .prepare = phase_prepare,
                                   .compute = phase_compute,
                                   .evaluate = growing_evaluate,
                                   .summarize = growing_summarize,
                                   .release = tr_linear_release_views};
    tr_test_metrics_name(&m->metrics, m->test, &stages[g->phases]);
    const tr_task task = {.name = "train",
                          .stage = stages,
                          .n = (size_t)g->phases + 1,
                          .table = &m->w,
                          .tables = 1,
                          .evaluations = evaluations,
                          .state = m,
                          .next = growing_next_stage,
                          .snapshot = growing_snapshot};
    return tr_run_task(m->tr, &task);
}

const struct tr_linear_method tr_linear_growing = {.from_w = true,
                                                   .check = growing_check,
                                                   .minimises = TR_LOSS_BOUNDED_CURVE | TR_LOSS_BOUNDED_SLOPE,
                                                   .sparse_rows = true,
                                                   .counts_passes = true,
                                                   .open = growing_open,
                                                   .train = growing_train,
                                                   .close = growing_close,
                                                   .weighs_updates = true,
                                                   .diverged = "lower solve.rate"};
