#include "stage/run.h"
#include "stage/timeline.h"
#include "stage/turns.h"

#include <stdlib.h>

#include "base/fault.h"

static double transfer_seconds(const struct tr_traffic *t)
{
    return t->wait_seconds + t->pull_seconds + t->push_seconds;
}

/* Workers wait for each other's turns, or for what other members of the group give on. */
static bool waits_for_others(const struct tr_stage_run *run)
{
    return run->at_once > 0 || run->tr->turns || run->stage->schedule || run->stage->rotates;
}

/* The leader begins and ends each round of the group. Blocks that rotate need that where clocks do not: a member that goes on
 * to its next clock may pull what others have not pushed yet. */
static bool has_rounds(const struct tr_stage_run *run)
{
    return run->stage->schedule || (run->stage->rotates && !tr_sync_lockstep(run->tr->sync));
}

/* What ranks do for each other goes on while this one computes. */
static void look_around(void *what)
{
    struct tr_stage_run *run = what;
    int did = 0;
    tr_stage_note(run, tr_progress(run->tr, &did));
    run->tr->tables->service.at_seams += did > 0;
}

static void open_seams(struct tr_stage_run *run)
{
    if (run->tr->size > 1) tr_seam_set(look_around, run);
}

static void close_seams(void)
{
    tr_seam_set(NULL, NULL);
}

int tr_stage_send_reports(struct tr_stage_run *run, int64_t first, int64_t last)
{
    tr_context *tr = run->tr;
    TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take a report"));
    struct tr_stage_report *r = &run->outgoing;
    *r = (struct tr_stage_report){.worker = run->me.worker,
                                  .compute_seconds = run->compute_seconds,
                                  .peak_rss = (double)tr_peak_rss(),
                                  .traffic = tr->tables->traffic,
                                  .slowed = run->straggler.slowed,
                                  .busy_seconds = run->straggler.seconds,
                                  .sums = {.clock = run->me.clock}};
    /* What an evaluation reads and waits for, the next clock would have had to; only the rest is lost on it. */
    const struct tr_traffic *t = &tr->tables->traffic;
    double begin = tr_now() - transfer_seconds(t);
    enum tr_rank_state before = tr_clock_say(tr->sync->clock, TR_RANK_EVALUATES);
    tr_way_compute(tr->tables, true);
    open_seams(run);
    if (run->status == TR_OK && !tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED))
        tr_stage_note(run, run->stage->evaluate(&run->me, run->stage->state, &r->sums));
    else TR_TRY(tr_sync_stand_in(run->tr->sync, false));
    close_seams();
    tr_way_compute(tr->tables, false);
    if (run->status != TR_OK && waits_for_others(run)) tr_turns_fail(tr);
    tr->failed = run->status;
    tr_clock_say(tr->sync->clock, before);
    run->evaluate_seconds += tr_now() - transfer_seconds(t) - begin;
    r->evaluate_seconds = run->evaluate_seconds;
    r->status = run->status;
    for (r->evaluation = first;; r->evaluation++) {
        MPI_Isend(r, sizeof *r, MPI_BYTE, 0, TR_TAG_REPORT, tr->wire, &run->sending);
        if (r->evaluation == last) return TR_OK;
        TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take a report"));
    }
}

/* In the clock of a worker that has failed, or that computes for servers who have. */
static int stand_in(struct tr_stage_run *run)
{
    if (run->status != TR_OK && waits_for_others(run)) tr_turns_fail(run->tr);
    TR_TRY(tr_sync_stand_in(run->tr->sync, true));
    return run->status;
}

static int compute_stage(struct tr_stage_run *run)
{
    if (TR_FAULT("compute") == TR_FAULT_EIO)
        return tr_fail(TR_ERR_SYSTEM, "clock %lld fails, as TRIREME_FAULT wants it",
                       (long long)run->me.clock);
    return run->stage->compute(&run->me, run->stage->state);
}

/* Computes, and keeps the time without that of pulling and pushing. That somebody elsewhere has failed is seen by each
 * rank in its own time: in rounds of a leader, where members may wait for each other, it is the leader who looks, before
 * all begin. */
static int compute(struct tr_stage_run *run)
{
    if (run->status != TR_OK || (!has_rounds(run) && tr_clock_get(run->tr->sync->clock, TR_CLOCK_FAILED)))
        return stand_in(run);
    struct tr_traffic *t = &run->tr->tables->traffic;
    double begin = tr_now() - transfer_seconds(t);
    tr_clock_say(run->tr->sync->clock, TR_RANK_COMPUTES);
    tr_way_compute(run->tr->tables, true);
    tr_stage_note(run, tr_turns_wait(run->tr, run->at_once));
    double turn = tr_now();
    tr_straggler_begin(&run->straggler);
    open_seams(run);
    tr_stage_note(run, compute_stage(run));
    close_seams();
    tr_stage_note(run, tr_straggler_end(&run->straggler));
    if (run->at_once > 0) tr_timeline_add(run->tr, run->stage->name, turn, tr_now());
    tr_stage_note(run, tr_turns_pass(run->tr, run->at_once));
    run->compute_seconds += tr_now() - transfer_seconds(t) - begin;
    tr_way_compute(run->tr->tables, false);
    tr_clock_say(run->tr->sync->clock, TR_RANK_WAITS);
    if (run->status == TR_OK) return TR_OK;
    run->tr->failed = run->status;
    return stand_in(run);
}

/* What the leader sends to each slave before a round, which answers with a status. Messages of their own, since
 * nonblocking collectives take four times as long: 15 against 4 microseconds for two ranks of a node. */
struct order {
    int64_t again; /* a round is to be computed; else the clock ends */
    int64_t status;
    tr_command command;
};

static int next_round(struct tr_stage_run *run, tr_command *commands, bool *again)
{
    if (run->stage->schedule) return run->stage->schedule(&run->me, run->stage->state, commands, again);
    *again = run->me.round == 0;
    return TR_OK;
}

static int run_rounds_as_leader(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int members = run->me.group_size, first = run->me.group * members;
    tr_command *commands = NULL;
    struct order *orders = NULL;
    MPI_Request *requests = NULL;
    TR_TRY(TR_NEW(&commands, (size_t)members));
    TR_TRY(TR_NEW(&orders, (size_t)members));
    TR_TRY(TR_NEW(&requests, (size_t)members));
    bool again = true;
    for (run->me.round = 0; again; run->me.round++) {
        again = false;
        if (run->status == TR_OK && !run->halted && !tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED))
            tr_stage_note(run, next_round(run, commands, &again));
        again = again && run->status == TR_OK;
        requests[0] = MPI_REQUEST_NULL;
        for (int m = 1; m < members; m++) {
            orders[m] = (struct order){.again = again, .command = commands[m]};
            MPI_Isend(&orders[m], sizeof orders[m], MPI_BYTE, tr_worker_rank(tr, tr->active, first + m),
                      TR_TAG_COMMAND, tr->wire, &requests[m]);
        }
        run->me.command = commands[0];
        if (again) compute(run);
        for (int m = 1; m < members; m++)
            TR_TRY(tr_wait_request(tr, &requests[m], "a slave to take its command"));
        for (int m = 1; again && m < members; m++) {
            int64_t status;
            MPI_Irecv(&status, 1, MPI_INT64_T, tr_worker_rank(tr, tr->active, first + m), TR_TAG_DONE,
                      tr->wire, &requests[m]);
            TR_TRY(tr_wait_request(tr, &requests[m], "a slave to end its round"));
            if (status != TR_OK) run->halted = true; /* the slave will say why */
        }
    }
    free(commands);
    free(orders);
    free(requests);
    return TR_OK;
}

static int run_rounds_as_slave(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int leader = tr_worker_rank(tr, tr->active, run->me.group * run->me.group_size);
    for (run->me.round = 0;; run->me.round++) {
        struct order order;
        MPI_Request request;
        MPI_Irecv(&order, sizeof order, MPI_BYTE, leader, TR_TAG_COMMAND, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "the leader's command"));
        if (!order.again) return TR_OK;
        run->me.command = order.command;
        int64_t status = compute(run);
        MPI_Isend(&status, 1, MPI_INT64_T, leader, TR_TAG_DONE, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "the leader to hear of a round's end"));
    }
}

static int one_clock(struct tr_stage_run *run)
{
    TR_TRY(tr_sync_next(run->tr->sync));
    if (TR_FAULT("clock") == TR_FAULT_HANG)
        TR_WAIT_UNTIL(run->tr, false, "nothing, as TRIREME_FAULT wants it");
    if (!has_rounds(run)) compute(run);
    else if (run->me.member == 0) TR_TRY(run_rounds_as_leader(run));
    else TR_TRY(run_rounds_as_slave(run));
    run->me.round = 0;
    TR_TRY(tr_sync_tick(run->tr->sync));
    run->me.clock = run->base + run->tr->sync->now;
    tr_lifeline_clock(run->tr->lifeline, run->ended + run->me.clock);
    tr_clock_count(run->tr->sync->clock, (struct tr_rank_seen){.state = TR_RANK_WAITS,
                                                               .clock = run->ended + run->me.clock,
                                                               .seconds = run->compute_seconds});
    return TR_OK;
}

/* In lockstep, and in groups, whose members evaluate together, it is each worker's clock that says when. Else the
 * first to get to an evaluation asks for it, and the others evaluate as soon as their clock ends: if the slowest one
 * came to it by itself, the sum would be of parameters of different times, and updates be counted when they are long
 * past. */
static int report_what_is_due(struct tr_stage_run *run)
{
    struct tr_sync *sync = run->tr->sync;
    int64_t every = run->stage->evaluate_every, first = run->reported + 1;
    if (!tr_stage_is_evaluated(run) || every <= 0) return TR_OK;
    int64_t due = run->me.clock / every;
    if (!tr_sync_lockstep(sync) && run->me.group_size == 1) {
        tr_clock_raise(sync->clock, TR_CLOCK_ASKED, due);
        int64_t asked =
            tr_clock_get(sync->clock, TR_CLOCK_ASKED); /* which over several nodes need not know of it yet */
        if (asked > due) due = asked;
    }
    if (due < first) return TR_OK;
    run->reported = due;
    return tr_stage_send_reports(run, first, due);
}

/* Members of the group wait for each other in every clock: for a view that they share, or for rounds. */
static bool group_works_together(const struct tr_stage_run *run)
{
    const struct tr_tables *tables = run->tr->tables;
    bool together = run->stage->schedule || run->stage->rotates;
    for (size_t i = 0; i < tables->view_count; i++) together = together || tables->views[i]->group;
    return together && run->me.group_size > 1;
}

/* As this worker counts clocks. */
static int64_t clock_limit(const struct tr_stage_run *run)
{
    int64_t clocks = tr_clock_get(run->tr->sync->clock, TR_CLOCK_LIMIT);
    return tr_sync_lockstep(run->tr->sync) ? run->base + clocks : clocks;
}

enum next { GO, LEAVE };

/* The leader's word, to all. (No broadcast: sums that a failure has left may still be on their way there.) */
static int tell_members(const struct tr_stage_run *run, int64_t *word)
{
    tr_context *tr = run->tr;
    bool leads = run->me.member == 0;
    int first = run->me.group * run->me.group_size;
    int begin = leads ? first + 1 : first, end = leads ? first + run->me.group_size : first + 1;
    for (int worker = begin; worker < end; worker++) {
        MPI_Request request;
        int rank = tr_worker_rank(tr, tr->active, worker);
        if (leads) MPI_Isend(word, 1, MPI_INT64_T, rank, TR_TAG_COMMAND, tr->wire, &request);
        else MPI_Irecv(word, 1, MPI_INT64_T, rank, TR_TAG_COMMAND, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "the leader to begin a clock"));
    }
    return TR_OK;
}

/* Whether another clock begins. Without BSP the members of a group might hear of a stop, or of a pause, at different
 * clocks and wait for each other for ever: there the leader decides. */
static int decide(struct tr_stage_run *run, enum next *next)
{
    tr_context *tr = run->tr;
    const struct tr_clock *clock = tr->sync->clock;
    bool lockstep = tr_sync_lockstep(tr->sync);
    bool on = !tr_clock_get(clock, TR_CLOCK_STOPPED) || (lockstep && run->me.clock < clock_limit(run));
    *next = on && !tr_stage_is_called(run) ? GO : LEAVE;
    if (lockstep || !group_works_together(run)) return TR_OK;
    int64_t word = (int64_t)*next;
    TR_TRY(tell_members(run, &word));
    *next = (enum next)word;
    return TR_OK;
}

int tr_stage_work(struct tr_stage_run *run)
{
    const tr_stage *stage = run->stage;
    struct tr_clock *clock = run->tr->sync->clock;
    while (run->me.clock < stage->clocks && !run->proven) {
        TR_TRY(report_what_is_due(run));
        TR_WAIT_UNTIL(run->tr,
                      run->me.clock < clock_limit(run) || tr_clock_get(clock, TR_CLOCK_STOPPED) ||
                          tr_stage_is_called(run),
                      "the scheduler to evaluate at clock %lld", (long long)run->me.clock);
        enum next next;
        TR_TRY(decide(run, &next));
        if (next == LEAVE) break;
        double begin = tr_now();
        TR_TRY(one_clock(run));
        run->times.seconds[run->times.clocks++ % TR_TIMED_CLOCKS] = tr_now() - begin;
    }
    return TR_OK;
}
