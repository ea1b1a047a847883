/* Mini-batch gradient descent with batches that grow (FlexPS, sections 3 and 7.2): first many small steps, which are
 * quick and noisy, then fewer that are worth more workers each. Every size of batch is a stage of its own, with a
 * number of workers of its own; a clock is one mini-batch of all of them together. Evaluating, which takes all rows, is
 * a stage too. */
#include <math.h>
#include <stdlib.h>

#include "../linear.h"
#include "steps.h"

static const char evaluate_name[] = "evaluate";

struct phase {
    struct tr_linear *m;
    int number;         /* from 0 */
    int64_t iterations; /* mini-batches of a pass over the data */
    int64_t clocks;     /* … of the phase */
    int64_t before;     /* … of the phases before it */
    double rate;        /* of a step, before it decays */
    char name[32];
};

struct tr_linear_growing {
    int phases;
    struct phase *phase;
    /* the scheduler's */
    double passes;
    int at;       /* phase */
    int64_t done; /* mini-batches of it */
    int64_t leg;  /* … of the run that next() has asked for last */
};

/* What a worker keeps of a stage. */
struct phase_views {
    tr_view *view, *test;
};

/* ---- phases ---- */

static void name_phase(struct phase *p, int number)
{
    p->number = number;
    snprintf(p->name, sizeof p->name, "phase-%d", number + 1);
}

/* The stages that a job may speak of: those of the phases, and evaluating. */
static int check_stages(const tr_job *job, int phases)
{
    struct phase phase[TR_GROWING_PHASES];
    const char *names[TR_GROWING_PHASES + 1];
    for (int i = 0; i < phases; i++) {
        name_phase(&phase[i], i);
        names[i] = phase[i].name;
    }
    names[phases] = evaluate_name;
    return tr_job_check_stages(job, names, (size_t)phases + 1);
}

static int check(const tr_job *job, const struct tr_linear_options *o)
{
    if (o->phases > TR_GROWING_PHASES)
        return tr_fail(TR_ERR_CONFIG, "%s: solve.phases is %llu, at most %d are possible",
                       tr_job_where(job, "solve.phases"), (unsigned long long)o->phases, TR_GROWING_PHASES);
    TR_TRY(check_stages(job, (int)o->phases));
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

static double rows_of_batch(const struct tr_linear *m, int phase)
{
    double rows = (double)m->train->total_rows;
    double first = m->o->batch ? (double)m->o->batch : fmax(rows / 1000, 1);
    return fmin(first * pow(m->o->growth, phase), rows);
}

/* Mini-batches of a pass are of equal size, as far as rows can be divided. The phases that are left share the passes that are
 * left equally, unless stages.NAME.clocks says how many mini-batches a phase has: *left is of solve.epochs. */
static void plan_phase(struct tr_linear *m, struct phase *p, double *left)
{
    int64_t clocks = tr_linear_stage_clocks(m, p->name);
    double phases = m->growing->phases - p->number;
    p->m = m;
    p->iterations = (int64_t)fmax(1, round((double)m->train->total_rows / rows_of_batch(m, p->number)));
    p->clocks = (int64_t)(*left * (double)p->iterations / (clocks > 0 ? 1 : phases) * (1 + 1e-12));
    if (clocks > 0 && clocks < p->clocks) p->clocks = clocks;
    *left = fmax(0, *left - (double)p->clocks / (double)p->iterations);
}

/* Margins of the largest batch's rows at one worker. */
static int open_worker(struct tr_linear *m)
{
    const struct tr_linear_growing *g = m->growing;
    size_t largest = m->train->rows.n / (size_t)g->phase[g->phases - 1].iterations + 1;
    if (!(tr_roles(m->tr) & TR_SLAVE)) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, tr_max_size(TR_LINEAR_MARGINS, largest)));
    TR_TRY(TR_NEW(&m->batches.order, (size_t)g->phase[0].iterations));
    if (!m->test) return TR_OK;
    return tr_linear_set_problem(m, m->o->bias, m->test, &m->test_problem, &m->test_target);
}

static int open_growing(struct tr_linear *m)
{
    struct tr_linear_growing *g;
    double left = (double)m->epochs;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->growing, 1)));
    g = m->growing;
    m->clocks_per_epoch = 1;
    g->phases = (int)m->o->phases;
    TR_TRY(tr_agree(m->tr, TR_NEW(&g->phase, (size_t)g->phases)));
    for (int i = 0; i < g->phases; i++) {
        name_phase(&g->phase[i], i);
        plan_phase(m, &g->phase[i], &left);
        if (i > 0) g->phase[i].before = g->phase[i - 1].before + g->phase[i - 1].clocks;
    }
    return tr_agree(m->tr, open_worker(m));
}

static void close_growing(struct tr_linear *m)
{
    if (!m->growing) return;
    free(m->growing->phase);
    free(m->growing);
    m->growing = NULL;
}

/* ---- how far a step goes ---- */

struct norms {
    double mean, largest;
};

/* |x|² of all rows. Each worker looks at its part of its group's. */
static int measure_rows(const struct tr_linear *m, struct norms *norms)
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

/* A step on a mean over b rows can be at least 1/(M + m/b) long, where m is the largest curvature of a row's loss and M
 * that of the mean over all rows, at most the mean of the rows' (Gower et al. 2019, SGD: General analysis and improved
 * rates, section 3.3). The curvature of logistic loss is below its bound nearly everywhere, so twice that does better;
 * the hinge has none, and does well with the steps of logistic loss by its bound. (On eight data sets, text, one-hot
 * and dense, it was better than sgd at its default everywhere and never diverged; very sparse rows would bear longer
 * steps.) */
static double good_rate(const struct tr_linear *m, double batch, struct norms norms)
{
    struct tr_problem flat = {.loss = m->loss};
    double curvature = m->loss->corner ? tr_loss_logistic.most_curvature : tr_variance_smoothness(&flat, 1);
    double smoothness = curvature * (norms.mean + norms.largest / batch) + m->l2;
    double times = m->loss->rarely_curved ? 2 : 1;
    return smoothness > 0 ? times / smoothness : 1;
}

static int choose_rates(struct tr_linear *m)
{
    struct tr_linear_growing *g = m->growing;
    double wished = m->rate;
    struct norms norms = {0};
    if (wished == TR_JOB_AUTO) TR_TRY(measure_rows(m, &norms));
    for (int i = 0; i < g->phases; i++)
        g->phase[i].rate = wished == TR_JOB_AUTO ? good_rate(m, rows_of_batch(m, i), norms) : wished;
    return TR_OK;
}

static double rate_at(const struct phase *p, int64_t clock)
{
    return p->rate / sqrt(p->m->o->decay * (double)(p->before + clock) + 1);
}

/* ---- a worker's part of a stage ---- */

static void release(void *kept)
{
    struct phase_views *views = kept;
    tr_view_close(&views->view);
    tr_view_close(&views->test);
    free(views);
}

static int open_views(tr_worker *me, struct tr_linear *m, enum tr_view_use use, bool test)
{
    struct phase_views *views;
    TR_TRY(TR_NEW(&views, 1));
    me->kept = views;
    TR_TRY(tr_linear_open_view(m, me, m->train, m->w, use, &views->view));
    return test ? tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &views->test) : TR_OK;
}

static int prepare_phase(tr_worker *me, void *state)
{
    return open_views(me, ((struct phase *)state)->m, TR_VIEW_UPDATE, false);
}

static int prepare_evaluate(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    return open_views(me, m, TR_VIEW_READ, m->test != NULL);
}

/* One mini-batch. Who takes part in the middle of a pass may not have seen its beginning. */
static int compute_phase(tr_worker *me, void *state)
{
    const struct phase *p = state;
    struct tr_linear *m = p->m;
    int64_t clock = me->command.word[0] + me->before + me->clock, turn = clock % p->iterations;
    m->view = ((struct phase_views *)me->kept)->view;
    m->batches.n = p->iterations;
    tr_linear_take_part(me, m);
    if (turn == 0 || me->clock == 0)
        TR_TRY(tr_linear_shuffle_batches(me, m, (int64_t)p->number << 32 | clock / p->iterations));
    TR_TRY(tr_view_pull(m->view));
    TR_TRY(tr_linear_plain_step(me, m, turn, rate_at(p, clock)));
    m->view = NULL;
    return tr_view_push(((struct phase_views *)me->kept)->view);
}

static int compute_nothing(tr_worker *me, void *state)
{
    (void)me;
    (void)state;
    return TR_OK;
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct phase_views *views = me->kept;
    m->view = views->view;
    m->test_view = views->test;
    int status = tr_linear_evaluate(me, m, report);
    m->view = m->test_view = NULL;
    return status;
}

static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    evaluation->epoch = m->growing->passes;
    return tr_linear_summarize(m, report, evaluation);
}

/* ---- the task ---- */

static void run_phase(struct tr_linear *m, const struct phase *p, tr_next *next)
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

/* An evaluation follows every report.every passes, and each phase. */
static int next_stage(void *state, const tr_ran *ran, tr_next *next)
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
    else run_phase(m, &g->phase[g->at], next);
    return TR_OK;
}

/* Workers keep nothing from clock to clock. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
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

static int64_t count_evaluations(const struct tr_linear *m)
{
    int64_t n = 0, every = m->report_every;
    for (int i = 0; i < m->growing->phases; i++) {
        const struct phase *p = &m->growing->phase[i];
        int64_t passes = p->clocks / p->iterations;
        if (p->clocks > 0) n += passes > every ? (passes + every - 1) / every : 1;
    }
    return n;
}

static int run_task(struct tr_linear *m, tr_stage *stages)
{
    struct tr_linear_growing *g = m->growing;
    for (int i = 0; i < g->phases; i++)
        stages[i] = (tr_stage){.name = g->phase[i].name,
                               .state = &g->phase[i],
                               .prepare = prepare_phase,
                               .compute = compute_phase,
                               .release = release};
    stages[g->phases] = (tr_stage){.name = evaluate_name,
                                   .state = m,
                                   .metric_name = tr_linear_metric(m),
                                   .metric_ascends = tr_linear_classifies(m),
                                   .prepare = prepare_evaluate,
                                   .compute = compute_nothing,
                                   .evaluate = evaluate,
                                   .summarize = summarize,
                                   .release = release};
    const tr_task task = {.name = "train",
                          .stage = stages,
                          .n = (size_t)g->phases + 1,
                          .table = &m->w,
                          .tables = 1,
                          .evaluations = count_evaluations(m),
                          .state = m,
                          .next = next_stage,
                          .snapshot = snapshot};
    return tr_run_task(m->tr, &task);
}

static int train(struct tr_linear *m)
{
    struct tr_linear_growing *g = m->growing;
    tr_stage *stages;
    TR_TRY(tr_linear_count_rows(m));
    TR_TRY(choose_rates(m));
    for (int i = 0; i < g->phases; i++) TR_TRY(tr_linear_check_stage(m, g->phase[i].name, false, true));
    TR_TRY(tr_linear_check_stage(m, evaluate_name, false, false));
    TR_TRY(tr_agree(m->tr, TR_NEW(&stages, (size_t)g->phases + 1)));
    int status = run_task(m, stages);
    free(stages);
    return status;
}

/* The step needs a bound. Shapes are not passed on. */
static bool minimises(const struct tr_loss *loss)
{
    return (isfinite(loss->most_curvature) || loss->bounded_slope) && loss->shape == TR_SHAPE_NONE;
}

const struct tr_linear_method tr_linear_growing = {.check = check,
                                                   .minimises = minimises,
                                                   .sparse_rows = true,
                                                   .open = open_growing,
                                                   .train = train,
                                                   .close = close_growing,
                                                   .weighs_updates = true,
                                                   .diverged = "lower solve.rate"};
