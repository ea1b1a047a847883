/* What is looked at in pauses, while all stand still. Without BSP, whether a stage that seems to be over by an estimate is.
 * Early stopping: the scheduler compares the metric of each evaluation with the best so far. When it is better, a pause is
 * called, as for a checkpoint, in which all ranks keep what they have in memory: under BSP at the clock that was evaluated,
 * otherwise soon after it. When training ends, the best model takes the place of the last. */
#include <math.h>

#include "stage/run.h"
#include "trireme/collective.h"

bool tr_stage_is_patient(const struct tr_stage_run *run)
{
    const tr_stage *stage = run->stage;
    return run->tr->job && run->tr->job->solve.patience > 0 && stage->metric_name &&
           stage->evaluate_every > 0 && tr_stage_is_evaluated(run) && tr_stage_is_checkpointed(run);
}

static bool is_better(const struct tr_stage_run *run, double metric, double than)
{
    if (!isfinite(metric) || !isfinite(than)) return isfinite(metric);
    return run->stage->metric_ascends ? metric > than : metric < than;
}

void tr_stage_judge(struct tr_stage_run *run, tr_evaluation *evaluation)
{
    struct tr_patience *p = &run->patience;
    if (!tr_stage_is_patient(run)) return;
    bool better = is_better(run, evaluation->metric, p->best);
    if (better) p->best = evaluation->metric;
    run->is_best = run->is_best || better;
    p->since = better ? 0 : p->since + 1;
    if (p->since >= (int64_t)run->tr->job->solve.patience) evaluation->stop = true;
}

/* Without BSP, in a pause: what there is while all stand still. */
static int evaluate_again(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int64_t now = tr->sync->now;
    run->looks_again = true;
    TR_TRY(tr_stage_evaluate_now(run));
    run->looks_again = false;
    if (tr_works(tr)) tr->sync->now = now;
    return TR_OK;
}

int tr_stage_prove(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int seems_over = run->seems_over, stops;
    if (tr_sync_lockstep(tr->sync)) return TR_OK;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &seems_over, sizeof seems_over));
    if (!seems_over) return TR_OK;
    TR_TRY(evaluate_again(run));
    run->seems_over = false;
    stops = run->stopping;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &stops, sizeof stops));
    run->proven = stops;
    return TR_OK;
}

/* Without BSP workers have gone on since the evaluation: what there is now is evaluated before it takes the place of
 * another. */
static int look_again(struct tr_stage_run *run, int *is_best)
{
    tr_context *tr = run->tr;
    if (!*is_best || tr_sync_lockstep(tr->sync)) return TR_OK;
    TR_TRY(evaluate_again(run));
    *is_best = is_better(run, run->evaluation.metric, run->patience.kept);
    return tr_broadcast(tr, TR_SET_ALL, 0, is_best, sizeof *is_best);
}

int tr_stage_keep_best(struct tr_stage_run *run)
{
    int is_best = run->is_best;
    TR_TRY(tr_broadcast(run->tr, TR_SET_ALL, 0, &is_best, sizeof is_best));
    TR_TRY(look_again(run, &is_best));
    run->is_best = false;
    if (!is_best) return TR_OK;
    run->patience.kept = run->evaluation.metric;
    return tr_best_keep(run->tr, tr_stage_list, run);
}

int tr_stage_restore_best(struct tr_stage_run *run, bool *restored)
{
    double kept = run->patience.kept, last = run->evaluation.metric;
    int better = run->status == TR_OK &&
                 (is_better(run, kept, last) || (run->patience.since > 0 && !is_better(run, last, kept)));
    better = better && isfinite(kept);
    TR_TRY(tr_broadcast(run->tr, TR_SET_ALL, 0, &better, sizeof better));
    *restored = better;
    run->is_over = true;
    return better ? tr_best_restore(run->tr, tr_stage_list, run) : TR_OK;
}

int tr_stage_tell_best(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    char why[64] = "";
    int64_t since = run->patience.since;
    if (tr->rank != 0 || !isfinite(run->evaluation.metric)) return TR_OK;
    if (since >= (int64_t)tr->job->solve.patience)
        snprintf(why, sizeof why, ", none better in %lld evaluations", (long long)since);
    tr_say(tr, "best model:    %s %.5f at epoch %.2f%s", run->stage->metric_name, run->evaluation.metric,
           run->tr->epoch, why);
    return tr_context_report(tr, "best_epoch", run->tr->epoch);
}

int tr_stage_list_best(struct tr_stage_run *run, tr_snapshot *snapshot)
{
    struct tr_patience patience = run->patience;
    bool same, found;
    if (tr_snapshot_in_process(snapshot)) return TR_OK;
    TR_TRY(tr_snapshot_own(snapshot, "patience", &patience, sizeof patience, &same));
    TR_TRY(tr_best_list(run->tr, snapshot, &found));
    if (tr_snapshot_restores(snapshot) && same) run->patience = patience;
    return TR_OK;
}
