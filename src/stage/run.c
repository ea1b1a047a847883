#include "stage/run.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

static int report_now(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    tr->sync->now++;
    tr->tables->exact = true;
    int status = tr_stage_send_reports(run, TR_AT_END, TR_AT_END);
    tr->tables->exact = false;
    TR_TRY(status);
    return tr_wait_request(tr, &run->sending, "the scheduler to take the last report");
}

int tr_stage_evaluate_now(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    if (tr_works(tr)) TR_TRY(report_now(run));
    /* not cleared before: the workers' reports may be here already */
    if (tr->rank == 0) TR_WAIT_UNTIL(tr, run->final, "the last reports of the workers");
    run->final = false;
    return TR_OK;
}

/* Under BSP a stage that was stopped has been evaluated where it stopped, and otherwise in a pause that proved that it is to
 * stop; but what filters had held back until then came later. */
static bool is_evaluated(const struct tr_stage_run *run)
{
    const tr_context *tr = run->tr;
    bool stopped = tr_clock_get(tr->sync->clock, TR_CLOCK_STOPPED);
    if (run->flushed) return false;
    return run->proven || (stopped && tr_sync_lockstep(tr->sync) && !tr_tables_round(tr->tables));
}

/* The evaluation of what the stage leaves behind; everything has arrived, so all workers see the same. */
static int evaluate_end(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int64_t now = tr->sync->now;
    bool restored = false;
    if (!tr_stage_is_evaluated(run)) return TR_OK;
    if (!is_evaluated(run)) TR_TRY(tr_stage_evaluate_now(run));
    /* that the stage was stopped a server of another node may not have heard: it is not to decide by that */
    TR_TRY(tr_barrier(tr, tr->active->participants, "the last evaluation"));
    if (tr_stage_is_patient(run)) TR_TRY(tr_stage_restore_best(run, &restored));
    if (restored) {
        TR_TRY(tr_stage_evaluate_now(run));
        TR_TRY(tr_barrier(tr, tr->active->participants, "the evaluation of the best model"));
    }
    if (tr_works(tr)) tr->sync->now = now;
    return tr_stage_is_patient(run) ? tr_stage_tell_best(run) : TR_OK;
}

static void describe_worker(struct tr_stage_run *run)
{
    const struct tr_worker_set *set = run->tr->active;
    run->me = (tr_worker){.tr = run->tr,
                          .group = set->group,
                          .groups = set->of.groups,
                          .member = set->member,
                          .group_size = set->of.group_size,
                          .worker = set->worker,
                          .workers = tr_worker_set_size(set),
                          .clocks = run->stage->clocks,
                          .whole = run->stage->clocks};
}

void tr_stage_open(tr_context *tr, const tr_stage *stage, struct tr_stage_run *run)
{
    *run = (struct tr_stage_run){.tr = tr,
                                 .stage = stage,
                                 .shown = stage,
                                 .evaluated = -1,
                                 .begin = tr_now(),
                                 .sending = MPI_REQUEST_NULL,
                                 .patience = {.best = NAN, .kept = NAN},
                                 .evaluation = {.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN}};
    describe_worker(run);
}

/* Clocks begin behind a barrier, which is there for what the stage begins with, too. */
int tr_stage_begin(struct tr_stage_run *run)
{
    const tr_stage *stage = run->stage;
    if (stage->begin) tr_stage_note(run, stage->begin(run->tr, stage->state));
    return tr_sync_begin(run->tr->sync);
}

static int make_ready(struct tr_stage_run *run)
{
    if (TR_FAULT("prepare") == TR_FAULT_EIO)
        return tr_fail(TR_ERR_SYSTEM, "a stage is not made ready, as TRIREME_FAULT wants it");
    return run->stage->prepare(&run->me, run->stage->state);
}

int tr_stage_prepare(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    if (tr_works(tr) && run->stage->prepare) tr_stage_note(run, make_ready(run));
    tr->failed = run->status;
    TR_TRY(tr_agree(tr, run->status));
    TR_TRY(tr_agree(tr, tr_tables_ready(tr)));
    return tr->ready ? tr_agree(tr, tr->ready(tr->ready_state, run->stage)) : TR_OK;
}

/* Everything between the first clock and the last evaluation. Whoever fails goes on with the protocol. */
static int run_clocks(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    bool again = true;
    tr_sync_count(tr->sync);
    while (again) {
        if (tr->rank == 0) tr_stage_set_limit(run, false);
        if (tr_works(tr)) TR_TRY(tr_stage_work(run));
        if (tr_works(tr)) run->last = tr_now();
        TR_TRY(tr_sync_barrier(tr->sync));
        TR_TRY(tr_stage_pause(run, &again));
    }
    TR_TRY(tr_sync_flush(tr->sync, &run->flushed));
    TR_TRY(tr_sync_end(tr->sync));
    if (!tr_works(tr)) run->last = tr_now();
    return evaluate_end(run);
}

/* All know that the run stops, and that this is no error. */
static int stop(tr_context *tr)
{
    tr_clock_leave(tr->sync->clock);
    if (tr->status == TR_OK) tr->status = TR_ERR_STOPPED;
    return tr_fail(TR_ERR_STOPPED, "stopped on request");
}

int tr_stage_run(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    bool kept = tr_stage_is_checkpointed(run);
    if (kept) tr_signals_catch();
    if (tr->rank == 0) TR_TRY(tr_poll_add(tr, tr_stage_poll_reports, run));
    if (tr_works(tr)) tr_straggler_open(tr, run->me.worker, &run->straggler);
    run->first = tr_now();
    tr_clock_count(tr->sync->clock,
                   (struct tr_rank_seen){.clock = tr_works(tr) ? run->ended + run->me.clock : -1});
    int status = run_clocks(run);
    tr_clock_say(tr->sync->clock, TR_RANK_STANDS);
    tr_straggler_close(&run->straggler);
    if (tr->rank == 0) tr_poll_remove(tr, tr_stage_poll_reports, run);
    tr_stage_drop_collections(run);
    if (kept) tr_signals_release();
    if (status == TR_ERR_STOPPED) return stop(tr);
    tr_stage_note(run, status);
    if (tr->tables->status != TR_OK) tr_stage_note(run, tr_fail(tr->tables->status, "%s", tr->tables->why));
    tr_clock_leave(tr->sync->clock);
    return tr_agree_among(tr, tr->active->participants, run->status);
}

int tr_run(tr_context *tr, const tr_stage *stage)
{
    struct tr_stage_run run;
    if (tr->before_run) TR_TRY(tr->before_run(tr));
    tr_stage_open(tr, stage, &run);
    tr_lifeline_stage(tr->lifeline);
    (void)TR_FAULT("stage");
    TR_TRY(tr_stage_begin(&run));
    int status = tr_stage_prepare(&run);
    if (status == TR_OK) status = tr_stage_restore(&run);
    tr->tables->traffic = (struct tr_traffic){0};
    if (status == TR_OK) status = tr_stage_run(&run);
    (void)TR_FAULT("stage.end");
    if (run.me.kept && stage->release) stage->release(run.me.kept);
    if (status == TR_OK) tr_heterogeneity_say(tr, &run.heterogeneity);
    return status;
}

int tr_group_sum(tr_worker *me, double *numbers, size_t n)
{
    if (me->group_size == 1) return TR_OK;
    MPI_Request request;
    tr_wait_begin(me->tr->tables);
    MPI_Iallreduce(MPI_IN_PLACE, numbers, (int)n, MPI_DOUBLE, MPI_SUM, me->tr->active->members, &request);
    int status = tr_wait_request(me->tr, &request, "the margins of the other members of the group");
    tr_wait_end(me->tr->tables);
    return status;
}

struct tr_sum {
    size_t n;
    MPI_Request request;
    struct tr_sum *next;
    double numbers[];
};

/* Sums that never ended, since a member has failed: MPI may still write into them. */
static struct tr_sum *never_ended;

int tr_group_sum_begin(tr_worker *me, const double *numbers, size_t n, tr_sum **sum)
{
    tr_sum *s = malloc(sizeof *s + n * sizeof *numbers);
    if (!s) return tr_fail(TR_ERR_SYSTEM, "out of memory: a sum of %zu numbers", n);
    s->n = n;
    s->request = MPI_REQUEST_NULL;
    memcpy(s->numbers, numbers, n * sizeof *numbers);
    if (me->group_size > 1)
        MPI_Iallreduce(MPI_IN_PLACE, s->numbers, (int)n, MPI_DOUBLE, MPI_SUM, me->tr->active->members,
                       &s->request);
    *sum = s;
    return TR_OK;
}

int tr_group_sum_end(tr_worker *me, tr_sum **sum, double *numbers)
{
    tr_sum *s = *sum;
    tr_context *tr = me->tr;
    double begin = tr_now();
    tr_wait_begin(tr->tables);
    TR_WAIT_UNTIL(tr, tr_request_done(&s->request) || tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED),
                  "the numbers of the other members of the group");
    tr_wait_end(tr->tables);
    tr->tables->traffic.wait_seconds += tr_now() - begin;
    if (s->request != MPI_REQUEST_NULL) {
        s->next = never_ended;
        never_ended = s;
        return TR_OK;
    }
    memcpy(numbers, s->numbers, s->n * sizeof *numbers);
    free(s);
    *sum = NULL;
    return TR_OK;
}

int tr_group_least(tr_worker *me, tr_least *least, size_t n)
{
    for (size_t at = 0; me->group_size > 1 && at < n; at += INT_MAX) {
        MPI_Request request;
        int some = (int)tr_min_size(n - at, INT_MAX);
        tr_wait_begin(me->tr->tables);
        MPI_Iallreduce(MPI_IN_PLACE, least + at, some, MPI_DOUBLE_INT, MPI_MINLOC, me->tr->active->members,
                       &request);
        TR_TRY(tr_wait_request(me->tr, &request, "the nearest of the other members of the group"));
        tr_wait_end(me->tr->tables);
    }
    return TR_OK;
}

void tr_observe(tr_context *tr, tr_observer *observer, void *who)
{
    tr->observer = observer;
    tr->observer_state = who;
}

void tr_on_ready(tr_context *tr, tr_ready_fn *ready, void *who)
{
    tr->ready = ready;
    tr->ready_state = who;
}
