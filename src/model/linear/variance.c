/* Training with variance reduction (M32): an epoch is two stages. The full one computes the gradient at the snapshot, with
 * workers in every group; the inner one takes stochastic steps, with workers of one group on a model in memory that their
 * node shares (FlexPS, sections 3 and 5.3). The table w holds the snapshot, mu the gradient.
 *
 * With a group a node, the rows of a node lie once in shared memory, and inner workers draw from all of them. Of several
 * groups each has its turn in an epoch, so that it draws from all rows: the model goes from node to node directly, and
 * into the tables at the epoch's end alone. Methods whose iterate is not the snapshot keep it, and what else goes on from
 * epoch to epoch, in tables of their own then. Each node knows how far the model in its memory has come, and so whether it
 * is the newest: checkpoints keep that one, and put it into the memory of all nodes.
 */
#include "model/linear/variance.h"

#include <stdlib.h>
#include <string.h>

#include "model/linear/parts.h"
#include "stage/stage.h"

/* Clocks of an inner stage whose number of workers is searched for: each is as much of the epoch's steps. */
enum { SEARCHED_CLOCKS = 20 };

/* In a clock of an inner stage, if the job leaves that open: some seconds' work. Between clocks, long runs can be stopped. */
static const double clock_nonzeros = 1e9;

/* What a worker keeps of the full stage. */
struct full {
    tr_view *w, *mu, *test;
    double loss;
};

/* … and of the inner one: its part of all arrays, coordinates from .. to - 1. */
struct inner {
    struct tr_variance *steps;
    tr_view *carried[TR_CARRIED], *mu;
    size_t from, to;
    bool idle; /* a worker of the node has failed */
};

/* ---- views ---- */

static int open_part(tr_table *table, size_t from, size_t to, enum tr_view_use use, tr_view **view)
{
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, to - from));
    for (size_t i = from; i < to; i++) keys[i - from] = i;
    int status = tr_view_open(table, keys, to - from, use, view);
    free(keys);
    return status;
}

static void release_full(void *kept)
{
    struct full *f = kept;
    tr_view_close(&f->w);
    tr_view_close(&f->mu);
    tr_view_close(&f->test);
    free(f);
}

static int prepare_full(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct full *f;
    size_t n = m->variance->model.n;
    TR_TRY(TR_NEW(&f, 1));
    me->kept = f;
    TR_TRY(open_part(m->w, 0, n, TR_VIEW_READ, &f->w));
    TR_TRY(open_part(m->variance->mu, 0, n, TR_VIEW_UPDATE, &f->mu));
    return m->test ? open_part(m->w, 0, n, TR_VIEW_READ, &f->test) : TR_OK;
}

static void release_inner(void *kept)
{
    struct inner *in = kept;
    for (int i = 0; i < TR_CARRIED; i++) tr_view_close(&in->carried[i]);
    tr_view_close(&in->mu);
    tr_variance_close(&in->steps);
    free(in);
}

static int prepare_inner(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct inner *in;
    TR_TRY(TR_NEW(&in, 1));
    me->kept = in;
    in->from = v->model.n * (size_t)me->worker / (size_t)me->workers;
    in->to = v->model.n * ((size_t)me->worker + 1) / (size_t)me->workers;
    for (int i = 0; i < TR_CARRIED; i++)
        if (v->table[i]) TR_TRY(open_part(v->table[i], in->from, in->to, TR_VIEW_GIVE, &in->carried[i]));
    return open_part(v->mu, in->from, in->to, TR_VIEW_READ, &in->mu);
}

/* ---- the full stage ---- */

static int clear_gradient(tr_context *tr, void *state)
{
    (void)tr;
    tr_table_clear(((struct tr_linear *)state)->variance->mu);
    return TR_OK;
}

static int compute_full(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct full *f = me->kept;
    size_t n = v->model.n, first = tr_data_part_begin(m->train, me), end = tr_data_part_end(m->train, me);
    TR_TRY(tr_view_pull(f->w));
    memset(v->gradient, 0, n * sizeof *v->gradient);
    f->loss = 0;
    tr_variance_gradient(&m->problem, first, end - first, f->w->value, &f->loss, v->slope, v->gradient);
    if (me->member == 0) v->held->slope = me->command.word[TR_VARIANCE_EPOCH] + 1;
    double scale = 1 / m->problem.n;
    if (tr_variance_element(m) == 4)
        for (size_t j = 0; j < n; j++) ((float *)f->mu->delta)[j] = (float)(v->gradient[j] * scale);
    else
        for (size_t j = 0; j < n; j++) ((double *)f->mu->delta)[j] = v->gradient[j] * scale;
    return tr_view_push(f->mu);
}

static int evaluate_full(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct full *f = me->kept;
    tr_linear_report_loss(report, f->loss);
    TR_TRY(tr_linear_report_size(me, m, f->w->value, report));
    return m->test ? tr_linear_report_test(me, m, f->test, report) : TR_OK;
}

static int judge_full(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    const struct tr_linear *m = state;
    evaluation->epoch = m->variance->passes + 1;
    return tr_linear_summarize(state, report, evaluation);
}

/* ---- the inner stage ---- */

static uint64_t steps_of_epoch(const struct tr_linear *m, int64_t epoch)
{
    const tr_job *job = m->job;
    size_t batch = job->solve.batch ? job->solve.batch : 1;
    return tr_variance_epoch_steps(job->solve.method, m->problem.n, job->solve.inner, batch, (uint64_t)epoch);
}

struct tr_variance_position tr_variance_position_of(const tr_worker *me)
{
    return (struct tr_variance_position){me->command.word[TR_VARIANCE_EPOCH],
                                         me->command.word[TR_VARIANCE_TURN], me->before};
}

static int pull_carried(struct tr_linear *m, struct inner *in, int i)
{
    size_t size = tr_variance_element(m);
    TR_TRY(tr_view_pull(in->carried[i]));
    memcpy((char *)m->variance->carried[i] + in->from * size, in->carried[i]->value,
           (in->to - in->from) * size);
    return TR_OK;
}

/* Brings this worker's part of snapshot and gradient from the tables to its node. */
static int take_snapshot(struct tr_linear *m, struct inner *in)
{
    size_t size = tr_variance_element(m);
    TR_TRY(pull_carried(m, in, TR_SNAPSHOT));
    TR_TRY(tr_view_pull(in->mu));
    memcpy((char *)(uintptr_t)m->variance->model.mu + in->from * size, in->mu->value,
           (in->to - in->from) * size);
    return TR_OK;
}

/* Begins an epoch. is_here: what goes on from the last one is in the memory of this node. */
static int take(tr_worker *me, struct tr_linear *m, int64_t epoch, bool is_here)
{
    struct tr_linear_variance *v = m->variance;
    struct inner *in = me->kept;
    size_t size = tr_variance_element(m), offset = in->from * size, bytes = (in->to - in->from) * size;
    TR_TRY(take_snapshot(m, in));
    for (int i = TR_ITERATE; i < TR_CARRIED; i++)
        if (in->carried[i] && !is_here) TR_TRY(pull_carried(m, in, i));
    const char *snapshot = (const char *)v->carried[TR_SNAPSHOT] + offset;
    if (epoch == 0 || m->job->solve.method == TR_SOLVE_SVRG)
        memcpy((char *)v->model.w + offset, snapshot, bytes);
    if (epoch == 0 && v->model.z) memcpy((char *)v->model.z + offset, snapshot, bytes);
    tr_variance_start(in->steps, &v->model, in->from, in->to);
    if (me->worker == 0) atomic_store(v->model.step, 0);
    return TR_OK;
}

/* Fetches this worker's part of all from the node that had its turn before. */
static int fetch(tr_worker *me, struct tr_linear *m, int group)
{
    struct tr_linear_variance *v = m->variance;
    int node = me->tr->node_of[me->tr->layout.worker_rank[group * me->tr->layout.group_size]];
    size_t bytes = v->moving, parts = (size_t)me->workers, i = (size_t)me->worker;
    size_t from = bytes / parts * i, to = i + 1 == parts ? bytes : bytes / parts * (i + 1);
    return tr_transfer_fetch(&v->transfer, node, from, to - from);
}

/* Every coordinate is up to date where the model comes from: so it is here. */
static void count_as_seen(const struct tr_linear_variance *v, const struct inner *in)
{
    for (size_t j = in->from; j < in->to; j++) v->model.last[j] = (uint32_t)*v->model.step;
}

/* What is added to the table, and in the place of `now` what that makes of it, as sums are rounded: node and table hold
 * the same bits. */
static void keep_difference(const struct tr_linear *m, tr_view *view, void *now)
{
    for (size_t j = 0; j < view->n; j++) {
        if (tr_variance_element(m) == 4) {
            float *at = (float *)now + j, value = ((const float *)view->value)[j];
            *at = value + (((float *)view->delta)[j] = *at - value);
        } else {
            double *at = (double *)now + j, value = ((const double *)view->value)[j];
            *at = value + (((double *)view->delta)[j] = *at - value);
        }
    }
}

/* Puts the new snapshot, and what is carried on, into the tables. What was taken may have been by other workers: so it is
 * read again, which gives the same. */
static int give(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    struct inner *in = me->kept;
    tr_variance_snapshot(in->steps, &v->model, in->from, in->to, v->carried[TR_SNAPSHOT]);
    for (int i = 0; i < TR_CARRIED; i++) {
        if (!in->carried[i]) continue;
        TR_TRY(tr_view_pull(in->carried[i]));
        keep_difference(m, in->carried[i], (char *)v->carried[i] + in->from * tr_variance_element(m));
        TR_TRY(tr_view_push(in->carried[i]));
    }
    return TR_OK;
}

/* A worker may not have been there in earlier parts of the epoch. */
static int open_steps(const struct tr_linear *m, struct inner *in, int64_t epoch)
{
    const tr_job *job = m->job;
    tr_variance_close(&in->steps);
    struct tr_variance_options options = {.method = job->solve.method,
                                          .smoothness = m->variance->smoothness,
                                          .rate = job->solve.rate == TR_JOB_AUTO ? 0 : job->solve.rate,
                                          .bias_l2 = job->model.bias_l2,
                                          .steps = steps_of_epoch(m, epoch),
                                          .epoch = (uint64_t)epoch,
                                          .batch = job->solve.batch ? job->solve.batch : 1};
    return tr_variance_open(&m->problem, &options, &in->steps);
}

static uint64_t share_of(uint64_t n, int64_t i, int64_t parts)
{
    return (uint64_t)((double)n * (double)(i + 1) / (double)parts) -
           (uint64_t)((double)n * (double)i / (double)parts);
}

/* Waits for the other workers of the node. Where one has failed nobody goes on, so that nobody is waited for in vain. */
static int meet(tr_worker *me, int status, bool *idle)
{
    int failed = status != TR_OK;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, me->tr->active->members, &request);
    TR_TRY(tr_wait_request(me->tr, &request, "the other workers of the node"));
    *idle = failed;
    return status;
}

/* Slopes of the node's rows at the snapshot, where the full stage has not left them: a run goes on from a checkpoint. */
static void find_slopes(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    size_t n = m->problem.rows.n, first = n * (size_t)me->worker / (size_t)me->workers,
           end = n * ((size_t)me->worker + 1) / (size_t)me->workers;
    tr_variance_gradient(&m->problem, first, end - first, v->carried[TR_SNAPSHOT], NULL, v->slope,
                         v->gradient);
}

/* The beginning of a run, or of a part of it. What the node holds is looked at before anybody changes it. */
static int begin_inner(tr_worker *me, struct tr_linear *m)
{
    struct inner *in = me->kept;
    struct tr_linear_variance *v = m->variance;
    struct tr_variance_position at = tr_variance_position_of(me);
    bool is_here = tr_variance_same_position(v->held->model, at), begins = at.turn == 0 && at.done == 0,
         fetches = !begins && !is_here, has_snapshot = v->held->snapshot == at.epoch + 1,
         has_slopes = v->held->slope == at.epoch + 1;
    int status = open_steps(m, in, at.epoch);
    if (status == TR_OK && begins) status = take(me, m, at.epoch, is_here);
    else if (status == TR_OK && fetches) status = fetch(me, m, (int)me->command.word[TR_VARIANCE_FROM_GROUP]);
    else if (status == TR_OK && !has_snapshot) status = take_snapshot(m, in);
    TR_TRY(meet(me, status, &in->idle));
    if (in->idle) return TR_OK;
    if (fetches) count_as_seen(v, in);
    if (!has_slopes) find_slopes(me, m);
    if (me->worker == 0) v->held->snapshot = v->held->slope = at.epoch + 1;
    return fetches || !has_slopes ? meet(me, TR_OK, &in->idle) : TR_OK;
}

static void take_steps(const tr_worker *me, struct tr_linear *m, int64_t at)
{
    struct tr_linear_variance *v = m->variance;
    const struct inner *in = me->kept;
    int64_t epoch = me->command.word[TR_VARIANCE_EPOCH], turn = me->command.word[TR_VARIANCE_TURN],
            turns = me->command.word[TR_VARIANCE_TURNS];
    uint64_t here = share_of(steps_of_epoch(m, epoch), turn, turns);
    uint64_t steps = share_of(share_of(here, at, me->whole), me->worker, me->workers);
    struct tr_rng rng;
    tr_rng_seed(&rng, m->job->seed, (uint64_t)(me->worker + me->group * me->group_size),
                (uint64_t)((epoch * turns + turn) * me->whole + at));
    if (m->problem.rows.n > 0)
        tr_variance_steps(in->steps, 0, m->problem.rows.n, v->slope, steps, &rng, &v->model,
                          me->workers > 1 ? &v->race : NULL);
}

/* After clock `at` of the run. */
static void note_position(const tr_worker *me, struct tr_linear *m, int64_t at)
{
    struct tr_variance_position now = tr_variance_position_of(me);
    now.done = at + 1;
    if (now.done == me->whole) now.turn++, now.done = 0;
    if (now.turn == me->command.word[TR_VARIANCE_TURNS]) now.epoch++, now.turn = 0;
    m->variance->held->model = now;
}

static int compute_inner(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct inner *in = me->kept;
    int64_t at = me->before + me->clock;
    if (me->clock == 0) TR_TRY(begin_inner(me, m));
    if (in->idle) return TR_OK;
    take_steps(me, m, at);
    if (me->worker == 0) note_position(me, m, at);
    if (at < me->whole - 1) return TR_OK;
    TR_TRY(meet(me, TR_OK, &in->idle));
    tr_variance_settle(in->steps, &m->variance->model, in->from, in->to);
    bool is_last = me->command.word[TR_VARIANCE_TURN] == me->command.word[TR_VARIANCE_TURNS] - 1;
    return is_last ? give(me, m) : TR_OK;
}

/* ---- the task ---- */

static int workers_of(const struct tr_linear *m, int stage)
{
    return tr_linear_stage_workers(m, tr_variance_stages[stage], stage == TR_FULL ? TR_ALL_WORKERS : 1);
}

static double passes_of_epoch(const struct tr_linear *m, int64_t epoch)
{
    double batch = m->job->solve.batch ? (double)m->job->solve.batch : 1;
    return (double)steps_of_epoch(m, epoch) * batch / m->problem.n;
}

static int64_t clocks_of(const struct tr_linear *m, int stage)
{
    const struct tr_job_stage *s = tr_job_stage_of(m->job, tr_variance_stages[stage]);
    if (stage == TR_FULL) return 1;
    if (s && s->clocks > 0) return (int64_t)s->clocks;
    if (workers_of(m, stage) == TR_AUTO_WORKERS) return SEARCHED_CLOCKS;
    double nonzeros = passes_of_epoch(m, m->variance->epoch) * (double)m->train->total_nonzeros;
    return (int64_t)(nonzeros / m->variance->turns / clock_nonzeros) + 1;
}

/* Full and inner in turns, and at the end the gradient once more, to see how good the last snapshot is. Of an inner stage
 * every group has a part. */
static int next_stage(void *state, const tr_ran *ran, tr_next *next)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    if (ran->stage == TR_FULL) v->passes++, v->turns = m->tr->layout.groups;
    if (ran->stage == TR_INNER && ++v->turn < v->turns) {
        next->command.word[TR_VARIANCE_FROM_GROUP] = ran->first_group;
    } else if (ran->stage == TR_INNER) {
        v->passes += passes_of_epoch(m, v->epoch++);
        v->turn = 0;
    }
    bool inner = ran->stage == TR_FULL || v->turn > 0;
    bool over = ran->stage == TR_FULL && (ran->evaluation.stop || v->epoch == v->epochs);
    next->stage = over ? -1 : inner ? TR_INNER : TR_FULL;
    if (over) return TR_OK;
    next->clocks = clocks_of(m, next->stage);
    next->workers = workers_of(m, next->stage);
    next->servers = tr_linear_stage_servers(m, tr_variance_stages[next->stage]);
    next->command.word[TR_VARIANCE_EPOCH] = v->epoch;
    next->command.word[TR_VARIANCE_TURN] = v->turn;
    next->command.word[TR_VARIANCE_TURNS] = v->turns;
    return TR_OK;
}

/* As many epochs as make up solve.epochs of equal length: those of svrg++ double. */
static int64_t count_epochs(const struct tr_linear *m)
{
    double budget = (double)m->job->solve.epochs * (1 + m->job->solve.inner), passes = 0;
    int64_t epochs = 0;
    for (; passes < budget * (1 - 1e-9); epochs++) passes += 1 + passes_of_epoch(m, epochs);
    return epochs;
}

int tr_linear_variance_train(struct tr_linear *m)
{
    for (int stage = 0; stage < TR_VARIANCE_STAGES; stage++)
        TR_TRY(tr_linear_check_stage(m, tr_variance_stages[stage], stage == TR_INNER));
    m->problem.n = (double)m->train->total_rows; /* on all ranks: rank 0 may not work */
    m->variance->epochs = count_epochs(m);
    const tr_stage stages[TR_VARIANCE_STAGES] = {{.name = tr_variance_stages[TR_FULL],
                                                  .state = m,
                                                  .metric_name = tr_linear_metric(m),
                                                  .prepare = prepare_full,
                                                  .begin = clear_gradient,
                                                  .compute = compute_full,
                                                  .evaluate = evaluate_full,
                                                  .summarize = judge_full,
                                                  .release = release_full},
                                                 {.name = tr_variance_stages[TR_INNER],
                                                  .state = m,
                                                  .one_group = true,
                                                  .prepare = prepare_inner,
                                                  .compute = compute_inner,
                                                  .release = release_inner}};
    tr_table *tables[TR_CARRIED + 1] = {m->variance->mu};
    size_t n = 1;
    for (int i = 0; i < TR_CARRIED; i++)
        if (m->variance->table[i]) tables[n++] = m->variance->table[i];
    const tr_task task = {.name = "train",
                          .table = tables,
                          .tables = n,
                          .stage = stages,
                          .n = TR_VARIANCE_STAGES,
                          .evaluations = m->variance->epochs + 1,
                          .state = m,
                          .next = next_stage,
                          .snapshot = tr_linear_variance_keep};
    return tr_run_task(m->tr, &task);
}
