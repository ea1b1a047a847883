/* Checkpoints of a stage: pauses in which all stand still for one, and going on from one.
 *
 * Under BSP the scheduler keeps the clock limit only some way ahead of the slowest worker, and calls the pause at the
 * clock of that limit: all come to it, and none gets past it. Otherwise every worker comes when its clock ends. There
 * they have nothing under way, so what all ranks copy fits together. */
#include "stage/run.h"

#include <math.h>
#include <string.h>

bool tr_stage_is_checkpointed(const struct tr_stage_run *run)
{
    return run->evaluated < 0 && run->stage->snapshot && tr_checkpoints_are_on(run->tr);
}

/* ---- calling ---- */

/* The limit is ahead by clocks of about so long: less would keep fast workers waiting for the scheduler's
 * word, more lets a stop wait. Two at least: while one is computed, the next must not have to be asked for. */
static const double ahead_seconds = 0.02;
enum { LEAST_AHEAD = 2, MOST_AHEAD = 4096 };

/* Of those who have not left; false: all have. */
static bool slowest(const struct tr_stage_run *run, int64_t *clock)
{
    int64_t written = tr_clock_get(run->tr->sync->clock, TR_CLOCK_WRITTEN);
    if (written == INT64_MAX) return false;
    *clock = run->met + written;
    return true;
}

int64_t tr_stage_horizon(struct tr_stage_run *run)
{
    int64_t clock;
    if (run->calling != TR_NOT_DUE || !slowest(run, &clock)) return run->horizon;
    int64_t clocks = clock - run->paced_clock;
    double now = tr_now(), seconds = now - run->paced;
    if (clocks > 0 && seconds > ahead_seconds / 4) { /* sooner, one heard of late looks fast */
        double wanted = (double)clocks / seconds * ahead_seconds;
        run->ahead = wanted < MOST_AHEAD ? (int64_t)wanted : MOST_AHEAD;
        run->paced_clock = clock;
        run->paced = now;
    }
    int64_t horizon = clock + (run->ahead > LEAST_AHEAD ? run->ahead : LEAST_AHEAD);
    if (horizon > run->horizon) run->horizon = horizon;
    return run->horizon;
}

/* The number of the pause that could be called now. */
static int64_t next_pause(const struct tr_stage_run *run)
{
    return tr_sync_lockstep(run->tr->sync) ? run->limit - run->base + 1 : run->called + 1;
}

/* Whether to look what time it is: not in every turn of a wait, as clocks can be shorter than looking. */
static bool is_worth_looking(struct tr_stage_run *run, int64_t clock)
{
    enum { SELDOM = 16 };
    if (clock == run->looked && ++run->turns % SELDOM != 0) return false;
    run->looked = clock;
    return true;
}

static void call(struct tr_stage_run *run)
{
    run->horizon = run->limit;
    tr_clock_raise(run->tr->sync->clock, TR_CLOCK_CALLED, next_pause(run));
}

void tr_stage_pace(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int64_t clock;
    if (run->calling != TR_NOT_DUE || !tr->sync->counting || !slowest(run, &clock)) return;
    if (!is_worth_looking(run, clock)) return;
    bool is_short = run->limit - clock <= tr_max_int((int)run->ahead, LEAST_AHEAD) / 2;
    if (tr_sync_lockstep(tr->sync) && is_short && run->limit < run->stage->clocks)
        tr_stage_set_limit(run, false);
    if (next_pause(run) <= run->called || run->stopping) return;
    run->calling = tr_checkpoint_due(tr, clock);
    if (run->calling == TR_NOT_DUE && (run->is_best || run->seems_over)) run->calling = TR_DUE_EVALUATION;
    if (run->calling != TR_NOT_DUE) call(run);
}

void tr_stage_call_for_best(struct tr_stage_run *run)
{
    if (run->calling != TR_NOT_DUE || next_pause(run) <= run->called)
        return; /* there is a pause here anyway */
    run->calling = TR_DUE_EVALUATION;
    call(run);
}

bool tr_stage_is_called(const struct tr_stage_run *run)
{
    const struct tr_sync *sync = run->tr->sync;
    int64_t called = tr_clock_get(sync->clock, TR_CLOCK_CALLED);
    return called > run->called && (!tr_sync_lockstep(sync) || called == sync->now + 1);
}

/* ---- pausing ---- */

/* Where a run goes on: with other ranks, clocks may be of another length. */
static int64_t clock_of(const struct tr_stage_run *run, const struct tr_facts *facts)
{
    double length = run->stage->epochs_per_clock;
    return length > 0 ? (int64_t)(facts->epoch / length + 1e-6) : facts->clock;
}

/* The last sums of the workers' reports, and whether they ended the stage. */
static int list_verdict(struct tr_stage_run *run, tr_snapshot *snapshot)
{
    double number[2 + TR_SUMS] = {(double)run->sums.clock, run->evaluation.stop};
    memcpy(number + 2, run->sums.sum, sizeof run->sums.sum);
    TR_TRY(tr_snapshot_common(snapshot, "last_report", TR_F64, 2 + TR_SUMS, number));
    run->sums.clock = (int64_t)number[0];
    run->evaluation.stop = number[1] != 0;
    memcpy(run->sums.sum, number + 2, sizeof run->sums.sum);
    return TR_OK;
}

int tr_stage_list(void *what, tr_snapshot *snapshot)
{
    struct tr_stage_run *run = what;
    bool found;
    TR_TRY(tr_snapshot_own(snapshot, "clock_of_worker", &run->me.clock, sizeof run->me.clock, &found));
    if (tr_snapshot_restores(snapshot) && !found)
        run->me.clock = tr_checkpoint_found(run->tr)->facts.clock;
    if (tr_stage_is_evaluated(run)) TR_TRY(list_verdict(run, snapshot));
    if (tr_stage_is_patient(run)) TR_TRY(tr_stage_list_best(run, snapshot));
    return run->stage->snapshot(&run->me, run->stage->state, snapshot);
}

/* All participants: whether somebody has failed, what rank 0 wants, and the clock of the slowest worker. */
struct vote {
    int64_t well, due, clock; /* the least of all; due is negative */
};

static int count_votes(struct tr_stage_run *run, struct vote *vote)
{
    tr_context *tr = run->tr;
    if (tr->rank == 0 && run->calling == TR_NOT_DUE && !run->end_saved && tr_checkpoint_due_at_end(tr)) {
        run->calling = TR_DUE;
        run->end_saved = true;
    }
    bool well = run->status == TR_OK && tr->tables->status == TR_OK &&
                !tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED);
    *vote = (struct vote){well, -(int64_t)(tr->rank == 0 ? run->calling : TR_NOT_DUE),
                          tr_works(tr) ? run->me.clock : INT64_MAX};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, vote, 3, MPI_INT64_T, MPI_MIN, tr->active->participants, &request);
    return tr_wait_request(tr, &request, "all ranks to say whether a checkpoint can be taken");
}

/* What workers have reported so far is evaluated before it is saved; that of the last clock is reported later. */
static int settle_reports(struct tr_stage_run *run, int64_t clock)
{
    tr_context *tr = run->tr;
    const tr_stage *stage = run->stage;
    if (tr_works(tr)) TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take a report"));
    if (tr->rank != 0 || !tr_stage_is_evaluated(run) || stage->evaluate_every <= 0) return TR_OK;
    int64_t due = (clock < stage->clocks ? clock : stage->clocks - 1) / stage->evaluate_every;
    if (tr_sync_lockstep(tr->sync))
        TR_WAIT_UNTIL(tr, run->evaluations >= due, "the last reports of the workers");
    return TR_OK;
}

static double epochs_per_evaluation(const struct tr_stage_run *run)
{
    const tr_stage *stage = run->stage;
    return stage->evaluate_every > 0 ? (double)stage->evaluate_every * stage->epochs_per_clock : 0;
}

static int take(struct tr_stage_run *run, int64_t clock, enum tr_due due)
{
    bool stops = due == TR_DUE_AND_STOP;
    tr_context *tr = run->tr;
    struct tr_facts facts = {.clock = clock,
                             .evaluations = run->evaluations,
                             .epochs_per_evaluation = epochs_per_evaluation(run),
                             .epoch = (double)clock * run->stage->epochs_per_clock};
    snprintf(facts.stage, sizeof facts.stage, "%s", run->stage->name);
    tr_clock_say(tr->sync->clock, TR_RANK_SAVES);
    if (!tr_works(tr)) run->me.clock = clock; /* others have none of their own */
    if (stops || !tr_sync_lockstep(tr->sync)) TR_TRY(tr_sync_end(tr->sync));
    TR_TRY(tr_stage_prove(run));
    if (tr_stage_is_patient(run)) TR_TRY(tr_stage_keep_best(run));
    if (due != TR_DUE_EVALUATION) TR_TRY(tr_checkpoint_take(tr, &facts, stops, tr_stage_list, run));
    if (stops) return TR_ERR_STOPPED;
    run->called = tr_sync_lockstep(tr->sync) ? clock - run->base + 1 : 0;
    if (!tr_sync_lockstep(tr->sync)) {
        run->base = run->me.clock;
        run->met = clock;
    }
    TR_TRY(tr_sync_continue(tr->sync));
    if (!tr_sync_lockstep(tr->sync)) tr_tables_count_from(tr, clock);
    run->calling = TR_NOT_DUE;
    tr_clock_say(tr->sync->clock, tr_works(tr) ? TR_RANK_WAITS : TR_RANK_STANDS);
    return TR_OK;
}

int tr_stage_pause(struct tr_stage_run *run, bool *again)
{
    *again = false;
    if (!tr_stage_is_checkpointed(run)) return TR_OK;
    struct vote vote;
    TR_TRY(count_votes(run, &vote));
    if (!vote.well || vote.due == TR_NOT_DUE) return TR_OK;
    TR_TRY(settle_reports(run, vote.clock));
    *again = true;
    return take(run, vote.clock, (enum tr_due) - vote.due);
}

/* ---- going on ---- */

/* A stage that was over stays so, unless the job has been given other bounds meanwhile. */
static int judge_again(struct tr_stage_run *run)
{
    tr_evaluation evaluation = {.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN};
    if (run->tr->rank != 0 || !run->evaluation.stop) return TR_OK;
    TR_TRY(run->stage->summarize(run->stage->state, &run->sums, &evaluation));
    tr_stage_judge(run, &evaluation);
    run->evaluation = evaluation;
    run->stopping = evaluation.stop;
    return TR_OK;
}

/* Evaluations that are behind a run that goes on at this clock: as many as were made, unless report.every was another one. */
static int64_t evaluated_by(const struct tr_stage_run *run, int64_t clock, const struct tr_facts *facts)
{
    bool as_often = fabs(facts->epochs_per_evaluation - epochs_per_evaluation(run)) < 1e-6;
    return as_often || run->stage->evaluate_every <= 0 ? facts->evaluations
                                                       : clock / run->stage->evaluate_every;
}

int tr_stage_restore(struct tr_stage_run *run)
{
    bool restores;
    struct tr_facts facts;
    if (!run->stage->snapshot)
        return TR_OK; /* it is not counted: how many there are may depend on the ranks */
    TR_TRY(tr_agree(run->tr, tr_checkpoint_enter(run->tr, run->stage->name, &restores)));
    if (!restores) return TR_OK;
    TR_TRY(tr_checkpoint_restore(run->tr, tr_stage_list, run, &facts));
    run->met = run->paced_clock = clock_of(run, &facts);
    run->me.clock += run->met - facts.clock;
    run->base = run->me.clock;
    if (tr_works(run->tr)) tr_lifeline_clock(run->tr->lifeline, run->base);
    run->evaluations = run->reported = evaluated_by(run, run->met, &facts);
    return tr_agree(run->tr, judge_again(run));
}
