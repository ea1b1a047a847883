/* One run of a stage: its clock limit, its evaluations, the best model, pauses for checkpoints, and the run itself.
 *
 * Workers run all clocks below the clock limit, which the scheduler (rank 0) raises. Checkpoints and the best model are copied in
 * pauses, in which no rank computes. Under BSP the scheduler keeps the limit only a few clocks ahead of the slowest worker, and
 * calls a pause at the limit, so that all workers pause at the same clock. Otherwise every worker pauses when its current clock
 * ends. No message is in flight then, so the copies of all ranks are consistent. */
#include "stage/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "job/schema.h"
#include "trireme/collective.h"

/* Reports of an evaluation that have arrived at the scheduler, until all workers have reported. */
struct tr_collection {
    struct tr_collection *next;
    int64_t evaluation;
    int arrived;
    struct tr_stage_report report[]; /* by worker, which is the order of the sums: so they are reproducible */
};

static const tr_evaluation no_evaluation = {
    .objective = NAN, .gap = NAN, .metric = {NAN, NAN, NAN, NAN}, .epoch = NAN};

/* Returns whether checkpoints are taken of this run. */
static bool run_is_checkpointed(const struct tr_stage_run *run)
{
    return run->evaluated < 0 && run->stage->snapshot && run->tr->checkpoints;
}

/* Returns whether solve.patience applies to the run: the best model is kept, and the stage ends when the metric has not improved
 * for this number of evaluations. */
static bool run_is_patient(const struct tr_stage_run *run)
{
    const tr_stage *stage = run->stage;
    return run->tr->job && run->tr->job->solve.patience > 0 && stage->metric[0].name &&
           stage->evaluate_every > 0 && tr_stage_is_evaluated(run) && run_is_checkpointed(run);
}

/* ---- rank 0: the clock limit, and calling pauses ---- */

/* Time by which the limit is ahead of the slowest worker under BSP. If it were shorter, fast workers would wait for the scheduler;
 * if longer, a pause would be reached later. The limit is ahead by at least two clocks, so that a worker can begin the next one. */
static const double ahead_seconds = 0.02;
enum { LEAST_AHEAD = 2, MOST_AHEAD = 4096 };

/* Finds the clock of the slowest worker; false: all workers have ended their clocks. */
static bool limit_slowest_clock(const struct tr_stage_run *run, int64_t *clock)
{
    int64_t written = tr_clock_get(run->tr->sync->clock, TR_CLOCK_WRITTEN);
    if (written == INT64_MAX) return false;
    *clock = run->met + written;
    return true;
}

/* Under BSP: returns the highest clock to which the limit may be raised now. It is only a little ahead of the slowest worker, so
 * that a pause, which begins at the limit, begins soon. */
static int64_t limit_horizon(struct tr_stage_run *run)
{
    int64_t clock;
    if (run->calling != TR_NOT_DUE || !limit_slowest_clock(run, &clock)) return run->horizon;
    int64_t clocks = clock - run->paced_clock;
    double now = tr_now(), seconds = now - run->paced;
    /* a shorter time would not be accurate, because messages arrive with a delay */
    if (clocks > 0 && seconds > ahead_seconds / 4) {
        double wanted = (double)clocks / seconds * ahead_seconds;
        run->ahead = wanted < MOST_AHEAD ? (int64_t)wanted : MOST_AHEAD;
        run->paced_clock = clock;
        run->paced = now;
    }
    int64_t limit = clock + (run->ahead > LEAST_AHEAD ? run->ahead : LEAST_AHEAD);
    if (limit > run->horizon) run->horizon = limit;
    return run->horizon;
}

/* Sets the clock limit, or stops the workers. Under BSP the limit is at most the next evaluation, so that no worker continues
 * before the evaluation is complete. Otherwise the limit is that of the stage, until it is stopped. */
static void limit_set(struct tr_stage_run *run, bool stop)
{
    const tr_stage *stage = run->stage;
    struct tr_sync *sync = run->tr->sync;
    bool lockstep = tr_sync_lockstep(sync);
    run->stopping = run->stopping || stop;
    run->limit = stage->clocks;
    if (lockstep && tr_stage_is_evaluated(run) && stage->evaluate_every > 0) {
        int64_t next = (run->evaluations + 1) * stage->evaluate_every;
        if (run->stopping) next = run->evaluations * stage->evaluate_every;
        if (next < run->limit) run->limit = next;
    } else if (run->stopping) {
        run->limit = 0;
    }
    if (lockstep && run_is_checkpointed(run)) {
        int64_t most = limit_horizon(run);
        if (most < run->limit) run->limit = most;
    }
    tr_clock_raise(sync->clock, TR_CLOCK_LIMIT, lockstep ? run->limit - run->base : run->limit);
    tr_clock_raise(sync->clock, TR_CLOCK_STOPPED, run->stopping);
}

/* Returns the number of a pause that is called now. Under BSP it is 1 + the clock (in the clock window) of the pause. */
static int64_t pause_next(const struct tr_stage_run *run)
{
    return tr_sync_lockstep(run->tr->sync) ? run->limit - run->base + 1 : run->called + 1;
}

static void pause_call(struct tr_stage_run *run, enum tr_due due)
{
    run->calling = due;
    run->horizon = run->limit;
    tr_clock_raise(run->tr->sync->clock, TR_CLOCK_CALLED, pause_next(run));
}

/* Calls a pause if a checkpoint or another evaluation is due. Called repeatedly while clocks run. */
static void pause_call_if_due(struct tr_stage_run *run)
{
    enum { SELDOM = 16 };
    tr_context *tr = run->tr;
    int64_t clock;
    if (run->calling != TR_NOT_DUE || !tr->sync->counting || !limit_slowest_clock(run, &clock)) return;
    /* while the slowest worker makes no progress, checks only at every SELDOM-th poll, because reading the time may be slow */
    if (clock == run->looked && ++run->turns % SELDOM != 0) return;
    run->looked = clock;
    bool is_short = run->limit - clock <= tr_max_int((int)run->ahead, LEAST_AHEAD) / 2;
    if (tr_sync_lockstep(tr->sync) && is_short && run->limit < run->stage->clocks) limit_set(run, false);
    if (pause_next(run) <= run->called || run->stopping) return;
    enum tr_due due = tr_checkpoint_due(tr, clock);
    if (due == TR_NOT_DUE && (run->is_best || run->seems_over)) due = TR_DUE_EVALUATION;
    if (due != TR_NOT_DUE) pause_call(run, due);
}

bool tr_stage_is_called(const struct tr_stage_run *run)
{
    const struct tr_sync *sync = run->tr->sync;
    int64_t called = tr_clock_get(sync->clock, TR_CLOCK_CALLED);
    return called > run->called && (!tr_sync_lockstep(sync) || called == sync->now + 1);
}

/* ---- rank 0: evaluations ---- */

/* Returns whether `metric` is better than `than`. A metric that is not finite is worse than a finite one. */
static bool metric_is_better(const struct tr_stage_run *run, double metric, double than)
{
    if (!isfinite(metric) || !isfinite(than)) return isfinite(metric);
    return run->stage->metric[0].ascends ? metric > than : metric < than;
}

/* Stops the stage if the evaluation has reached solve.target. An ascending objective may be beyond the target at first, so it must
 * have risen since the last evaluation. */
static void evaluation_check_target(const struct tr_stage_run *run, tr_evaluation *evaluation)
{
    const tr_job *job = run->tr->job;
    double objective = evaluation->objective, before = run->evaluation.objective;
    if (!job || job->solve.target == TR_JOB_AUTO) return;
    if (run->stage->ascends && (before == 0 || !(objective >= before))) return;
    if ((run->stage->ascends ? -objective : objective) <= job->solve.target) evaluation->stop = true;
}

/* Records whether an evaluation is the best so far, and stops the stage if none was better for solve.patience evaluations. */
static void evaluation_judge(struct tr_stage_run *run, tr_evaluation *evaluation)
{
    struct tr_patience *p = &run->patience;
    bool better = run->stage->metric[0].name && metric_is_better(run, evaluation->metric[0], p->best);
    if (better) {
        p->best = evaluation->metric[0];
        p->epoch = run->tr->stages->epoch;
    }
    if (!run_is_patient(run)) return;
    run->is_best = run->is_best || better;
    p->since = better ? 0 : p->since + 1;
    if (p->since >= (int64_t)run->tr->job->solve.patience) evaluation->stop = true;
}

static void reports_drop(struct tr_stage_run *run, struct tr_collection *dropped)
{
    struct tr_collection **link = &run->collections;
    while (*link != dropped) link = &(*link)->next;
    *link = dropped->next;
    free(dropped);
}

void tr_traffic_add(struct tr_traffic *sum, const struct tr_traffic *one)
{
    sum->bytes_pulled += one->bytes_pulled;
    sum->bytes_pushed += one->bytes_pushed;
    sum->pulls += one->pulls;
    sum->pushes += one->pushes;
    sum->messages += one->messages;
    sum->filtered.seen += one->filtered.seen;
    sum->filtered.held += one->filtered.held;
    sum->filtered.dropped += one->filtered.dropped;
    sum->wait_seconds += one->wait_seconds;
    sum->pull_seconds += one->pull_seconds;
    sum->push_seconds += one->push_seconds;
    sum->way_seconds += one->way_seconds;
    sum->hidden_seconds += one->hidden_seconds;
}

/* Sums the reports of the workers. Returns false if a worker has failed. */
static bool reports_sum(const struct tr_stage_run *run, const struct tr_collection *c, tr_report *sums,
                        struct tr_progress_row *row)
{
    int workers = tr_worker_set_size(run->tr->active);
    int64_t clocks = 0;
    bool well = true;
    for (int w = 0; w < workers; w++) {
        const struct tr_stage_report *r = &c->report[w];
        if (r->sums.clock > sums->clock) sums->clock = r->sums.clock;
        for (int i = 0; i < TR_SUMS; i++) sums->sum[i] += r->sums.sum[i];
        tr_traffic_add(&row->traffic, &r->traffic);
        if (w % run->tr->active->of.group_size == 0) row->updates += r->traffic.pushes;
        clocks += r->sums.clock;
        row->compute_seconds += r->compute_seconds;
        row->evaluate_seconds += r->evaluate_seconds / workers;
        row->peak_rss = fmax(row->peak_rss, r->peak_rss);
        well = well && r->status == TR_OK;
    }
    row->epoch = (double)clocks / workers * run->stage->epochs_per_clock;
    return well;
}

/* Computes how much longer the clocks of slowed workers took than those of the other workers. */
static void reports_measure_heterogeneity(struct tr_stage_run *run, const struct tr_collection *c)
{
    int workers = tr_worker_set_size(run->tr->active), count[2] = {0};
    const tr_job *job = run->tr->job;
    double seconds[2] = {0};
    if (!job || tr_slowed_workers(job, workers) == 0) return;
    for (int w = 0; w < workers; w++) {
        const struct tr_stage_report *r = &c->report[w];
        seconds[r->slowed] += r->busy_seconds / (double)r->sums.clock;
        count[r->slowed]++;
    }
    double level = (seconds[true] / count[true]) / (seconds[false] / count[false]);
    run->heterogeneity = (struct tr_heterogeneity){.slowed = count[true],
                                                   .workers = workers,
                                                   .asked = job->experiment.level,
                                                   .reached = isfinite(level) ? level : (double)NAN};
}

/* Adds to the error of a diverged model the first worker that has reported a sum that is not finite. The model knows only
 * totals. */
static int reports_name_worker(const struct tr_stage_run *run, const struct tr_collection *c, int status)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", tr_error_text());
    for (int i = 0; i < TR_SUMS; i++)
        for (int w = 0; w < tr_worker_set_size(run->tr->active); w++)
            if (!isfinite(c->report[w].sums.sum[i]))
                return tr_fail(status, "%s (worker %d is the first whose part is not finite)", text, w);
    return status;
}

/* After all workers have reported: sums, judges and shows the evaluation, and sets the next clock limit. */
static void reports_evaluate(struct tr_stage_run *run, struct tr_collection *c)
{
    struct tr_stages *stages = run->tr->stages;
    bool lockstep = tr_sync_lockstep(run->tr->sync), at_end = c->evaluation == TR_AT_END;
    tr_report sums = {.clock = 0};
    struct tr_progress_row row = {.seconds = tr_now() - run->begin, .evaluation = no_evaluation};
    /* no evaluation after a failure, because an error of summarize() would replace its message */
    bool failed = !reports_sum(run, c, &sums, &row) || run->status != TR_OK ||
                  tr_clock_get(run->tr->sync->clock, TR_CLOCK_FAILED);
    reports_measure_heterogeneity(run, c);
    row.heterogeneity = run->heterogeneity;
    int status = TR_OK;
    if (!failed) status = run->stage->summarize(run->stage->state, &sums, &row.evaluation);
    if (status == TR_ERR_DIVERGED) status = reports_name_worker(run, c, status);
    if (!failed && status == TR_OK) evaluation_check_target(run, &row.evaluation);
    /* exact: all workers have read the same parameters, without rounding */
    row.exact = at_end || (lockstep && !tr_tables_round(run->tr->tables));
    /* an estimate without BSP does not end the stage, if it can be verified in a pause */
    if (row.evaluation.stop && !row.exact && !lockstep && run_is_checkpointed(run)) {
        row.evaluation.stop = false;
        run->seems_over = true;
    }
    row.clock = run->evaluated < 0 ? sums.clock : run->evaluated + run->evaluations + 1;
    if (isfinite(row.evaluation.epoch)) row.epoch = row.evaluation.epoch;
    stages->epoch = row.epoch;
    if (!failed && status == TR_OK && !run->is_over && !run->looks_again)
        evaluation_judge(run, &row.evaluation);
    else if (run->is_over) row.evaluation.stop = true;
    run->evaluation = row.evaluation;
    run->sums = sums;
    if (!failed && stages->observers.progress) {
        int shown = stages->observers.progress(stages->observers.who, run->shown, &row);
        if (status == TR_OK) status = shown;
    }
    if (run->status == TR_OK) run->status = status;
    run->evaluations++;
    run->final = at_end;
    bool stop = row.evaluation.stop || failed || status != TR_OK;
    /* under BSP all workers are at the clock limit, where a pause is called to keep the best model */
    bool keeps = run->is_best && !stop && !at_end && lockstep && run->calling == TR_NOT_DUE;
    if (keeps && pause_next(run) > run->called) pause_call(run, TR_DUE_EVALUATION);
    limit_set(run, stop);
}

/* Poll function of the scheduler: calls pauses, and receives a report of a worker. */
static int reports_poll(void *what, int *did)
{
    struct tr_stage_run *run = what;
    tr_context *tr = run->tr;
    if (tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED) && !tr_sync_lockstep(tr->sync) &&
        !tr_clock_get(tr->sync->clock, TR_CLOCK_STOPPED))
        limit_set(run, true);
    if (run_is_checkpointed(run)) pause_call_if_due(run);
    struct tr_stage_report r;
    int from;
    if (!tr_receive_here(tr, TR_TAG_REPORT, &r, sizeof r, &from)) return TR_OK;
    ++*did;
    struct tr_collection *c = run->collections;
    while (c && c->evaluation != r.evaluation) c = c->next;
    if (!c) {
        size_t workers = (size_t)tr_worker_set_size(tr->active);
        TR_TRY(tr_new((void **)&c, 1, sizeof *c + workers * sizeof c->report[0], "a report"));
        c->evaluation = r.evaluation;
        c->next = run->collections;
        run->collections = c;
    }
    c->report[r.worker] = r;
    tr_clock_hear(tr->sync->clock, from,
                  (struct tr_rank_seen){.state = TR_RANK_STATES,
                                        .clock = run->ended + r.sums.clock,
                                        .seconds = r.compute_seconds});
    if (++c->arrived < tr_worker_set_size(tr->active)) return TR_OK;
    reports_evaluate(run, c);
    reports_drop(run, c);
    return TR_OK;
}

/* ---- evaluating while no worker computes ---- */

/* Runs an exact evaluation on all workers, while no update is in flight. Views are pulled again, because the clock is new. */
static int evaluation_run(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    if (tr_works(tr)) {
        tr->sync->now++;
        tr->tables->exact = true;
        int status = tr_stage_send_reports(run, TR_AT_END, TR_AT_END);
        tr->tables->exact = false;
        TR_TRY(status);
        TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take the last report"));
    }
    /* `final` is not cleared before this wait, because the reports of the workers may have arrived already */
    if (tr->rank == 0) TR_WAIT_UNTIL(tr, run->final, "the last reports of the workers");
    run->final = false;
    return TR_OK;
}

/* In a pause without BSP: evaluates the current parameters exactly. */
static int evaluation_repeat(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int64_t now = tr->sync->now;
    run->looks_again = true;
    TR_TRY(evaluation_run(run));
    run->looks_again = false;
    if (tr_works(tr)) tr->sync->now = now;
    return TR_OK;
}

/* ---- the state of a run in a checkpoint ---- */

/* Snapshot function of a run: lists this worker's clock, the last evaluation, the best model, and then the state of the stage. */
static int run_list(void *what, tr_snapshot *snapshot)
{
    struct tr_stage_run *run = what;
    bool found, same;
    TR_TRY(tr_snapshot_own(snapshot, "clock_of_worker", &run->me.clock, sizeof run->me.clock, &found));
    if (tr_snapshot_restores(snapshot) && !found) run->me.clock = tr_checkpoint_found(run->tr)->facts.clock;
    if (tr_stage_is_evaluated(run)) {
        double number[2 + TR_SUMS] = {(double)run->sums.clock, run->evaluation.stop};
        memcpy(number + 2, run->sums.sum, sizeof run->sums.sum);
        TR_TRY(tr_snapshot_common(snapshot, "last_report", TR_F64, 2 + TR_SUMS, number));
        run->sums.clock = (int64_t)number[0];
        run->evaluation.stop = number[1] != 0;
        memcpy(run->sums.sum, number + 2, sizeof run->sums.sum);
    }
    if (run_is_patient(run) && !snapshot->in_process) {
        struct tr_patience patience = run->patience;
        TR_TRY(tr_snapshot_own(snapshot, "patience", &patience, sizeof patience, &same));
        TR_TRY(tr_best_list(run->tr, snapshot, &found));
        if (tr_snapshot_restores(snapshot) && same) run->patience = patience;
    }
    return run->stage->snapshot(&run->me, run->stage->state, snapshot);
}

/* ---- the best model ---- */

/* In a pause: keeps the model if it is the best. Without BSP the workers have continued since the evaluation, so the current
 * parameters are evaluated first. On all ranks, which return the same status. */
static int best_keep(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int is_best = run->is_best;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &is_best, sizeof is_best));
    if (is_best && !tr_sync_lockstep(tr->sync)) {
        TR_TRY(evaluation_repeat(run));
        is_best = metric_is_better(run, run->evaluation.metric[0], run->patience.kept);
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &is_best, sizeof is_best));
    }
    run->is_best = false;
    if (!is_best) return TR_OK;
    run->patience.kept = run->evaluation.metric[0];
    return tr_best_keep(tr, run_list, run);
}

/* After the last clock: restores and evaluates the best model if it is better than the last model. All ranks. */
static int best_restore(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    double kept = run->patience.kept, last = run->evaluation.metric[0];
    int better = run->status == TR_OK && isfinite(kept) &&
                 (metric_is_better(run, kept, last) ||
                  (run->patience.since > 0 && !metric_is_better(run, last, kept)));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &better, sizeof better));
    run->is_over = true;
    if (better) {
        TR_TRY(tr_best_restore(tr, run_list, run));
        TR_TRY(evaluation_run(run));
        TR_TRY(tr_barrier(tr, tr->active->participants, "the evaluation of the best model"));
    }
    char why[64] = "";
    int64_t since = run->patience.since;
    if (tr->rank != 0 || !isfinite(run->evaluation.metric[0])) return TR_OK;
    if (since >= (int64_t)tr->job->solve.patience)
        snprintf(why, sizeof why, ", none better in %lld evaluations", (long long)since);
    tr_say(tr, "best model:    %s %.5f at epoch %.2f%s", run->stage->metric[0].name,
           run->evaluation.metric[0], tr->stages->epoch, why);
    return tr_context_report(tr, "best_epoch", tr->stages->epoch);
}

/* Prints that an earlier evaluation had a clearly better metric, if the job can keep its model. Rank 0. */
static void best_note(const struct tr_stage_run *run)
{
    const double clear = 5e-3;
    const struct tr_patience *p = &run->patience;
    const tr_job *job = run->tr->job;
    double last = run->evaluation.metric[0];
    struct tr_job_slot slot;
    if (run->tr->rank != 0 || !run->stage->metric[0].name || !job || !metric_is_better(run, p->best, last))
        return;
    if (!(fabs(last - p->best) > clear * fabs(p->best)) || !tr_job_find(job, "solve.patience", &slot)) return;
    if (!tr_job_uses(job, slot.key)) return;
    tr_say(run->tr,
           "note:          %s was %.5f at epoch %.2f, better than at the end: solve.patience keeps the best "
           "model",
           run->stage->metric[0].name, p->best, p->epoch);
}

/* ---- pauses ---- */

static double epochs_per_evaluation(const struct tr_stage_run *run)
{
    const tr_stage *stage = run->stage;
    return stage->evaluate_every > 0 ? (double)stage->evaluate_every * stage->epochs_per_clock : 0;
}

/* Called by all participants when their clocks have stopped. If a pause was called, takes the checkpoint, keeps the best model or
 * verifies the end of the stage, and sets *again to true: clocks continue. Otherwise *again is false: the stage is over.
 * TR_ERR_STOPPED: the run must stop after this checkpoint. */
static int pause_if_called(struct tr_stage_run *run, bool *again)
{
    tr_context *tr = run->tr;
    const tr_stage *stage = run->stage;
    bool lockstep = tr_sync_lockstep(tr->sync);
    *again = false;
    if (!run_is_checkpointed(run)) return TR_OK;
    if (tr->rank == 0 && run->calling == TR_NOT_DUE && !run->end_saved && tr_checkpoint_due_at_end(tr)) {
        run->calling = TR_DUE;
        run->end_saved = true;
    }
    bool well = run->status == TR_OK && tr->tables->status == TR_OK &&
                !tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED);
    /* minima over the participants: whether all are well; -1 × the pause that rank 0 has called; the clock of the slowest worker */
    struct {
        int64_t well, due, clock;
    } vote = {well, -(int64_t)(tr->rank == 0 ? run->calling : TR_NOT_DUE),
              tr_works(tr) ? run->me.clock : INT64_MAX};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &vote, 3, MPI_INT64_T, MPI_MIN, tr->active->participants, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to say whether a checkpoint can be taken"));
    if (!vote.well || vote.due == TR_NOT_DUE) return TR_OK;
    /* waits for all evaluations before the pause, which the checkpoint must contain; that of the last clock follows later */
    if (tr_works(tr)) TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take a report"));
    if (tr->rank == 0 && tr_stage_is_evaluated(run) && stage->evaluate_every > 0 && lockstep) {
        int64_t due = (vote.clock < stage->clocks ? vote.clock : stage->clocks - 1) / stage->evaluate_every;
        TR_WAIT_UNTIL(tr, run->evaluations >= due, "the last reports of the workers");
    }
    *again = true;

    enum tr_due due = (enum tr_due) - vote.due;
    bool stops = due == TR_DUE_AND_STOP;
    struct tr_facts facts = {.clock = vote.clock,
                             .evaluations = run->evaluations,
                             .epochs_per_evaluation = epochs_per_evaluation(run),
                             .epoch = (double)vote.clock * stage->epochs_per_clock};
    snprintf(facts.stage, sizeof facts.stage, "%s", stage->name);
    tr_clock_say(tr->sync->clock, TR_RANK_SAVES);
    if (!tr_works(tr)) run->me.clock = vote.clock; /* ranks without a worker have no clock */
    if (stops || !lockstep) TR_TRY(tr_sync_end(tr->sync));
    int seems_over = run->seems_over, proven = false;
    if (!lockstep) TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &seems_over, sizeof seems_over));
    if (!lockstep && seems_over) { /* an exact evaluation decides whether the stage ends */
        TR_TRY(evaluation_repeat(run));
        run->seems_over = false;
        proven = run->stopping;
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &proven, sizeof proven));
        run->proven = proven;
    }
    if (run_is_patient(run)) TR_TRY(best_keep(run));
    if (due != TR_DUE_EVALUATION) TR_TRY(tr_checkpoint_take(tr, &facts, stops, run_list, run));
    if (stops) return TR_ERR_STOPPED;

    run->called = lockstep ? vote.clock - run->base + 1 : 0;
    if (!lockstep) {
        run->base = run->me.clock;
        run->met = vote.clock;
    }
    TR_TRY(tr_sync_continue(tr->sync));
    if (!lockstep) tr_tables_count_from(tr, vote.clock);
    run->calling = TR_NOT_DUE;
    tr_clock_say(tr->sync->clock, tr_works(tr) ? TR_RANK_WAITS : TR_RANK_STANDS);
    return TR_OK;
}

/* ---- continuing from a checkpoint ---- */

/* Restores the stage if the run resumes from a checkpoint that was taken in this stage. On all ranks, after tr_stage_prepare();
 * they return the same status. Checkpoints do not count stages without a snapshot function. */
static int run_restore(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    bool restores;
    struct tr_facts facts;
    if (!run->stage->snapshot) return TR_OK;
    TR_TRY(tr_agree(tr, tr_checkpoint_enter(tr, run->stage->name, &restores)));
    if (!restores) return TR_OK;
    TR_TRY(tr_checkpoint_restore(tr, run_list, run, &facts));
    /* if the number of ranks or report.every has changed, clocks and evaluations are converted by their numbers of epochs */
    double length = run->stage->epochs_per_clock;
    int64_t clock = length > 0 ? (int64_t)(facts.epoch / length + 1e-6) : facts.clock;
    bool as_often = fabs(facts.epochs_per_evaluation - epochs_per_evaluation(run)) < 1e-6;
    run->evaluations =
        as_often || run->stage->evaluate_every <= 0 ? facts.evaluations : clock / run->stage->evaluate_every;
    run->reported = run->evaluations;
    run->met = run->paced_clock = clock;
    run->me.clock += clock - facts.clock;
    run->base = run->me.clock;
    if (tr_works(tr)) tr_lifeline_clock(tr->lifeline, run->base);
    /* if the last evaluation has ended the stage, judges it again, because the bounds in the job may have changed */
    tr_evaluation evaluation = no_evaluation;
    if (tr->rank != 0 || !run->evaluation.stop) return tr_agree(tr, TR_OK);
    int status = run->stage->summarize(run->stage->state, &run->sums, &evaluation);
    if (status == TR_OK) {
        evaluation_check_target(run, &evaluation);
        evaluation_judge(run, &evaluation);
        run->evaluation = evaluation;
        run->stopping = evaluation.stop;
    }
    return tr_agree(tr, status);
}

/* ---- a run ---- */

void tr_stage_open(tr_context *tr, const tr_stage *stage, struct tr_stage_run *run)
{
    const struct tr_worker_set *set = tr->active;
    *run = (struct tr_stage_run){.tr = tr,
                                 .stage = stage,
                                 .shown = stage,
                                 .evaluated = -1,
                                 .begin = tr_now(),
                                 .sending = MPI_REQUEST_NULL,
                                 .patience = {.best = NAN, .kept = NAN},
                                 .evaluation = no_evaluation,
                                 .me = {.tr = tr,
                                        .group = set->group,
                                        .groups = set->of.groups,
                                        .member = set->member,
                                        .group_size = set->of.group_size,
                                        .worker = set->worker,
                                        .workers = tr_worker_set_size(set),
                                        .clocks = stage->clocks,
                                        .whole = stage->clocks}};
}

/* The barrier in tr_sync_begin() also waits until begin() has returned on all participants. */
int tr_stage_begin(struct tr_stage_run *run)
{
    const tr_stage *stage = run->stage;
    if (stage->begin) tr_stage_note(run, stage->begin(run->tr, stage->state));
    return tr_sync_begin(run->tr->sync);
}

int tr_stage_prepare(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    if (tr_works(tr) && run->stage->prepare)
        tr_stage_note(run,
                      TR_FAULT("prepare") == TR_FAULT_EIO
                          ? tr_fail(TR_ERR_SYSTEM, "a stage is not made ready, as TRIREME_FAULT wants it")
                          : run->stage->prepare(&run->me, run->stage->state));
    tr->failed = run->status;
    TR_TRY(tr_agree(tr, run->status));
    TR_TRY(tr_agree(tr, tr_tables_ready(tr)));
    const struct tr_observers *o = &tr->stages->observers;
    return o->ready ? tr_agree(tr, o->ready(o->ready_who, run->stage)) : TR_OK;
}

/* Runs all clocks and the last evaluation. After a failure of its functions, a rank still takes part in all communication. */
static int run_clocks(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    bool again = true;
    tr_sync_count(tr->sync);
    while (again) {
        if (tr->rank == 0) limit_set(run, false);
        if (tr_works(tr)) TR_TRY(tr_stage_work(run));
        if (tr_works(tr)) run->last = tr_now();
        TR_TRY(tr_sync_barrier(tr->sync));
        TR_TRY(pause_if_called(run, &again));
    }
    TR_TRY(tr_sync_flush(tr->sync, &run->flushed));
    TR_TRY(tr_sync_end(tr->sync));
    if (!tr_works(tr)) run->last = tr_now();
    if (!tr_stage_is_evaluated(run)) return TR_OK;

    /* Evaluates the final parameters, unless the last evaluation was of them: a stage that was stopped under BSP was evaluated at
     * its last clock, and a stage without BSP in the pause that has verified its end. tr_sync_flush() may change parameters
     * later. */
    int64_t now = tr->sync->now;
    bool stopped = tr_clock_get(tr->sync->clock, TR_CLOCK_STOPPED);
    bool evaluated = !run->flushed &&
                     (run->proven || (stopped && tr_sync_lockstep(tr->sync) && !tr_tables_round(tr->tables)));
    if (!evaluated) TR_TRY(evaluation_run(run));
    /* on servers of other nodes, `stopped` may be out of date: nothing below depends on it */
    TR_TRY(tr_barrier(tr, tr->active->participants, "the last evaluation"));
    if (run_is_patient(run)) TR_TRY(best_restore(run));
    else if (run_is_checkpointed(run) && run->stage->evaluate_every > 0) best_note(run);
    if (tr_works(tr)) tr->sync->now = now;
    return TR_OK;
}

int tr_stage_run(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    bool kept = run_is_checkpointed(run);
    if (kept) tr_signals_handle(TR_SIGNALS_END, true);
    if (tr->rank == 0) TR_TRY(tr_poll_add(tr, reports_poll, run));
    if (tr_works(tr)) tr_straggler_open(tr, run->me.worker, &run->straggler);
    run->first = tr_now();
    tr_clock_count(tr->sync->clock,
                   (struct tr_rank_seen){.clock = tr_works(tr) ? run->ended + run->me.clock : -1});
    int status = run_clocks(run);
    tr_clock_say(tr->sync->clock, TR_RANK_STANDS);
    tr_straggler_close(&run->straggler);
    if (tr->rank == 0) tr_poll_remove(tr, reports_poll, run);
    while (run->collections) reports_drop(run, run->collections);
    if (kept) tr_signals_handle(TR_SIGNALS_END, false);
    if (status == TR_ERR_STOPPED) { /* all ranks have this status, which is no error */
        tr_clock_leave(tr->sync->clock);
        if (tr->status == TR_OK) tr->status = TR_ERR_STOPPED;
        return tr_fail(TR_ERR_STOPPED, "stopped on request");
    }
    tr_stage_note(run, status);
    if (tr->tables->status != TR_OK) tr_stage_note(run, tr_fail(tr->tables->status, "%s", tr->tables->why));
    tr_clock_leave(tr->sync->clock);
    return tr_agree_among(tr, tr->active->participants, run->status);
}

int tr_run(tr_context *tr, const tr_stage *stage)
{
    struct tr_stage_run run;
    if (tr->stages->observers.before_run) TR_TRY(tr->stages->observers.before_run(tr));
    tr_stage_open(tr, stage, &run);
    tr_lifeline_stage(tr->lifeline);
    (void)TR_FAULT("stage");
    TR_TRY(tr_stage_begin(&run));
    int status = tr_stage_prepare(&run);
    if (status == TR_OK) status = run_restore(&run);
    tr->tables->traffic = (struct tr_traffic){0};
    if (status == TR_OK) status = tr_stage_run(&run);
    (void)TR_FAULT("stage.end");
    if (run.me.kept && stage->release) stage->release(run.me.kept);
    if (status == TR_OK) tr_heterogeneity_say(tr, &run.heterogeneity);
    return status;
}
