#include "stage/run.h"

#include <math.h>
#include <stdlib.h>

/* The scheduler's collection of one evaluation. */
struct tr_collection {
    struct tr_collection *next;
    int64_t evaluation;
    int arrived;
    struct tr_stage_report report[]; /* by worker: summed in this order, so that sums repeat */
};

/* Under BSP nobody starts an epoch before the last evaluation is complete; others go on until told to stop. */
void tr_stage_set_limit(struct tr_stage_run *run, bool stop)
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
    if (lockstep && tr_stage_is_checkpointed(run)) {
        int64_t horizon = tr_stage_horizon(run);
        if (horizon < run->limit) run->limit = horizon;
    }
    tr_clock_raise(sync->clock, TR_CLOCK_LIMIT, lockstep ? run->limit - run->base : run->limit);
    tr_clock_raise(sync->clock, TR_CLOCK_STOPPED, run->stopping);
}

static struct tr_collection *collection_of(struct tr_stage_run *run, int64_t evaluation)
{
    for (struct tr_collection *c = run->collections; c; c = c->next)
        if (c->evaluation == evaluation) return c;
    size_t workers = (size_t)tr_worker_set_size(run->tr->active);
    struct tr_collection *c = calloc(1, sizeof *c + workers * sizeof c->report[0]);
    if (!c) return NULL;
    c->evaluation = evaluation;
    c->next = run->collections;
    return run->collections = c;
}

static void drop_collection(struct tr_stage_run *run, struct tr_collection *dropped)
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

/* Adds up what the workers have reported; false if one of them has failed. */
static bool sum_up(const struct tr_stage_run *run, const struct tr_collection *c, tr_report *sums,
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

/* How much slower the clocks of slowed workers were than those of the others, so far. */
static void measure_heterogeneity(struct tr_stage_run *run, const struct tr_collection *c)
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

/* The model says that and why it diverged, but has only seen the sums: adds the lowest worker that has reported what
 * is no number, in the first sum in which there is one. */
static int name_worker(const struct tr_stage_run *run, const struct tr_collection *c, int status)
{
    char text[1024];
    if (status != TR_ERR_DIVERGED) return status;
    snprintf(text, sizeof text, "%s", tr_error_text());
    for (int i = 0; i < TR_SUMS; i++)
        for (int w = 0; w < tr_worker_set_size(run->tr->active); w++)
            if (!isfinite(c->report[w].sums.sum[i]))
                return tr_fail(status, "%s (worker %d is the first whose part is not finite)", text, w);
    return status;
}

/* All workers have read the same parameters, and as they will be saved. */
static bool is_exact(const struct tr_stage_run *run, const struct tr_collection *c)
{
    const tr_context *tr = run->tr;
    return c->evaluation == TR_AT_END || (tr_sync_lockstep(tr->sync) && !tr_tables_round(tr->tables));
}

/* Estimates do not end a stage, where a pause can tell whether they are right. */
static void doubt(struct tr_stage_run *run, struct tr_progress_row *row)
{
    if (!row->evaluation.stop || row->exact) return;
    if (tr_sync_lockstep(run->tr->sync) || !tr_stage_is_checkpointed(run)) return;
    row->evaluation.stop = false;
    run->seems_over = true;
}

static void summarize(struct tr_stage_run *run, struct tr_collection *c)
{
    tr_report sums = {.clock = 0};
    struct tr_progress_row row = {.seconds = tr_now() - run->begin,
                                  .evaluation = {.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN}};
    /* once something has failed, nothing is evaluated any more: the first words about it are to stay */
    bool failed = !sum_up(run, c, &sums, &row) || run->status != TR_OK ||
                  tr_clock_get(run->tr->sync->clock, TR_CLOCK_FAILED);
    measure_heterogeneity(run, c);
    row.heterogeneity = run->heterogeneity;
    int status = failed
                     ? TR_OK
                     : name_worker(run, c, run->stage->summarize(run->stage->state, &sums, &row.evaluation));
    row.exact = is_exact(run, c);
    doubt(run, &row);
    row.clock = run->evaluated < 0 ? sums.clock : run->evaluated + run->evaluations + 1;
    if (isfinite(row.evaluation.epoch)) row.epoch = row.evaluation.epoch;
    run->tr->epoch = row.epoch;
    if (!failed && status == TR_OK && !run->is_over && !run->looks_again)
        tr_stage_judge(run, &row.evaluation);
    else if (run->is_over) row.evaluation.stop = true;
    run->evaluation = row.evaluation;
    run->sums = sums;
    if (!failed && run->tr->observer) {
        int shown = run->tr->observer(run->tr->observer_state, run->shown, &row);
        if (status == TR_OK) status = shown;
    }
    if (run->status == TR_OK) run->status = status;
    run->evaluations++;
    run->final = c->evaluation == TR_AT_END;
    bool stop = row.evaluation.stop || failed || status != TR_OK;
    if (run->is_best && !stop && !run->final && tr_sync_lockstep(run->tr->sync)) tr_stage_call_for_best(run);
    tr_stage_set_limit(run, stop);
}

int tr_stage_poll_reports(void *what, int *did)
{
    struct tr_stage_run *run = what;
    tr_context *tr = run->tr;
    if (tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED) && !tr_sync_lockstep(tr->sync) &&
        !tr_clock_get(tr->sync->clock, TR_CLOCK_STOPPED))
        tr_stage_set_limit(run, true);
    if (tr_stage_is_checkpointed(run)) tr_stage_pace(run);
    struct tr_stage_report r;
    int from;
    if (!tr_receive_here(tr, TR_TAG_REPORT, &r, sizeof r, &from)) return TR_OK;
    struct tr_collection *c = collection_of(run, r.evaluation);
    if (!c) return tr_fail(TR_ERR_SYSTEM, "out of memory: a report");
    c->report[r.worker] = r;
    tr_clock_hear(tr->sync->clock, from,
                  (struct tr_rank_seen){.state = TR_RANK_STATES,
                                        .clock = run->ended + r.sums.clock,
                                        .seconds = r.compute_seconds});
    ++*did;
    if (++c->arrived < tr_worker_set_size(tr->active)) return TR_OK;
    summarize(run, c);
    drop_collection(run, c);
    return TR_OK;
}

void tr_stage_drop_collections(struct tr_stage_run *run)
{
    while (run->collections) drop_collection(run, run->collections);
}
