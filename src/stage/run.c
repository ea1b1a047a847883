#include "stage/stage.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a worker sends to the scheduler at an evaluation. */
struct report {
    int64_t evaluation; /* number of it, or AT_END */
    int64_t worker;
    int64_t status;
    double compute_seconds, evaluate_seconds, peak_rss;
    struct tr_traffic traffic;
    struct tr_worker_time time;
    tr_report sums;
};
enum { AT_END = -1 };

/* The scheduler's collection of one evaluation. */
struct collection {
    struct collection *next;
    int64_t evaluation;
    int arrived;
    struct report report[]; /* by worker: summed in this order, so that sums repeat */
};

struct run {
    tr_context *tr;
    const tr_stage *stage;
    double begin;
    /* worker */
    tr_worker me;
    int status;  /* what this worker's functions returned first; the protocol goes on, the work does not */
    bool halted; /* a slave of this leader failed: no more rounds */
    double compute_seconds, evaluate_seconds;
    struct tr_straggler straggler;
    int64_t reported; /* evaluations */
    struct report outgoing;
    MPI_Request sending;
    /* scheduler */
    struct collection *collections;
    int64_t evaluations, granted;
    bool final;                            /* the last evaluation has been judged */
    struct tr_heterogeneity heterogeneity; /* as of then */
};

static bool judged(const struct run *run)
{
    return run->stage->evaluate && run->stage->judge;
}

/* ---- scheduler ---- */

/* Under BSP nobody starts an epoch before the last one is judged; others go on until told to stop. */
static int grant_more(struct run *run, bool stop)
{
    const tr_stage *stage = run->stage;
    struct tr_sync *sync = run->tr->sync;
    run->granted = stage->clocks;
    if (tr_sync_lockstep(sync) && judged(run) && stage->evaluate_every > 0) {
        int64_t next = (run->evaluations + 1) * stage->evaluate_every;
        if (stop) next = run->evaluations * stage->evaluate_every;
        if (next < run->granted) run->granted = next;
    } else if (stop) {
        run->granted = 0;
    }
    return tr_clock_grant(sync->clock, run->granted, stop);
}

static struct collection *collection_of(struct run *run, int64_t evaluation)
{
    for (struct collection *c = run->collections; c; c = c->next)
        if (c->evaluation == evaluation) return c;
    size_t workers = (size_t)tr_layout_workers(&run->tr->layout);
    struct collection *c = calloc(1, sizeof *c + workers * sizeof c->report[0]);
    if (!c) return NULL;
    c->evaluation = evaluation;
    c->next = run->collections;
    return run->collections = c;
}

static void drop_collection(struct run *run, struct collection *dropped)
{
    struct collection **link = &run->collections;
    while (*link != dropped) link = &(*link)->next;
    *link = dropped->next;
    free(dropped);
}

static void add_traffic(struct tr_traffic *sum, const struct tr_traffic *one)
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
}

/* Adds up what the workers have reported; false if one of them has failed. */
static bool sum_up(const struct run *run, const struct collection *c, tr_report *sums,
                   struct tr_progress_row *row)
{
    int workers = tr_layout_workers(&run->tr->layout);
    int64_t clocks = 0;
    bool well = true;
    for (int w = 0; w < workers; w++) {
        const struct report *r = &c->report[w];
        if (r->sums.clock > sums->clock) sums->clock = r->sums.clock;
        for (int i = 0; i < TR_SUMS; i++) sums->sum[i] += r->sums.sum[i];
        add_traffic(&row->traffic, &r->traffic);
        if (w % run->tr->layout.group_size == 0) row->updates += r->traffic.pushes;
        clocks += r->sums.clock;
        row->compute_seconds += r->compute_seconds;
        row->evaluate_seconds += r->evaluate_seconds / workers;
        row->peak_rss = fmax(row->peak_rss, r->peak_rss);
        well = well && r->status == TR_OK;
    }
    row->epoch = (double)clocks / workers * run->stage->epochs_per_clock;
    return well;
}

static int measure_heterogeneity(struct run *run, const struct collection *c)
{
    int workers = tr_layout_workers(&run->tr->layout);
    const tr_job *job = run->tr->job;
    struct tr_worker_time *time;
    if (!job || tr_slowed_workers(job, workers) == 0) return TR_OK;
    TR_TRY(TR_NEW(&time, (size_t)workers));
    for (int w = 0; w < workers; w++) time[w] = c->report[w].time;
    tr_heterogeneity_measure(job, time, workers, &run->heterogeneity);
    free(time);
    return TR_OK;
}

/* The lowest worker that has reported what is no number, in the first sum in which there is one; or -1. */
static int first_lost(const struct run *run, const struct collection *c)
{
    for (int i = 0; i < TR_SUMS; i++)
        for (int w = 0; w < tr_layout_workers(&run->tr->layout); w++)
            if (!isfinite(c->report[w].sums.sum[i])) return w;
    return -1;
}

/* The model says that and why it diverged, but has only seen the sums. */
static int name_lost(const struct run *run, const struct collection *c, int status)
{
    int lost = status == TR_ERR_DIVERGED ? first_lost(run, c) : -1;
    if (lost < 0) return status;
    char text[1024];
    snprintf(text, sizeof text, "%s", tr_error_text());
    return tr_fail(status, "%s (worker %d is the first whose part is not finite)", text, lost);
}

static int judge(struct run *run, struct collection *c)
{
    tr_report sums = {.clock = 0};
    struct tr_progress_row row = {.seconds = tr_now() - run->begin,
                                  .verdict = {.objective = NAN, .gap = NAN, .metric = NAN}};
    /* once something has failed, nothing is judged any more: the first words about it are to stay */
    bool failed =
        !sum_up(run, c, &sums, &row) || run->status != TR_OK || tr_clock_failed(run->tr->sync->clock);
    TR_TRY(measure_heterogeneity(run, c));
    row.heterogeneity = run->heterogeneity;
    int status =
        failed ? TR_OK : name_lost(run, c, run->stage->judge(run->stage->state, &sums, &row.verdict));
    row.exact = tr_sync_lockstep(run->tr->sync) || c->evaluation == AT_END;
    row.clock = sums.clock;
    if (!failed && run->tr->observer) {
        int shown = run->tr->observer(run->tr->observer_state, run->stage, &row);
        if (status == TR_OK) status = shown;
    }
    if (run->status == TR_OK) run->status = status;
    run->evaluations++;
    run->final = c->evaluation == AT_END;
    return grant_more(run, row.verdict.stop || failed || status != TR_OK);
}

static int poll_reports(void *what, int *did)
{
    struct run *run = what;
    tr_context *tr = run->tr;
    if (tr_clock_failed(tr->sync->clock) && !tr_sync_lockstep(tr->sync) && !tr_clock_stopped(tr->sync->clock))
        TR_TRY(grant_more(run, true));
    int here = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, TR_TAG_REPORT, tr->wire, &here, &status);
    if (!here) return TR_OK;
    struct report r;
    MPI_Recv(&r, sizeof r, MPI_BYTE, status.MPI_SOURCE, TR_TAG_REPORT, tr->wire, MPI_STATUS_IGNORE);
    struct collection *c = collection_of(run, r.evaluation);
    if (!c) return tr_fail(TR_ERR_SYSTEM, "out of memory: a report");
    c->report[r.worker] = r;
    ++*did;
    if (++c->arrived < tr_layout_workers(&tr->layout)) return TR_OK;
    TR_TRY(judge(run, c));
    drop_collection(run, c);
    return TR_OK;
}

/* ---- worker ---- */

/* Takes note of a failure; what follows is done without it. */
static void note(struct run *run, int status)
{
    if (run->status == TR_OK) run->status = status;
}

static double transfer_seconds(const struct tr_traffic *t)
{
    return t->wait_seconds + t->pull_seconds + t->push_seconds;
}

/* Evaluates, and reports that as evaluation first .. last: who is slow may have been asked for several at once. */
static int send_reports(struct run *run, int64_t first, int64_t last)
{
    tr_context *tr = run->tr;
    TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take a report"));
    struct report *r = &run->outgoing;
    *r = (struct report){.worker = run->me.worker,
                         .compute_seconds = run->compute_seconds,
                         .peak_rss = (double)tr_peak_rss(),
                         .traffic = tr->tables->traffic,
                         .time = {run->straggler.slowed, run->me.clock, run->straggler.seconds},
                         .sums = {.clock = run->me.clock}};
    /* What an evaluation reads and waits for, the next clock would have had to; only the rest is lost on it. */
    const struct tr_traffic *t = &tr->tables->traffic;
    double begin = tr_now() - transfer_seconds(t);
    if (run->status == TR_OK && !tr_clock_failed(tr->sync->clock))
        note(run, run->stage->evaluate(&run->me, run->stage->state, &r->sums));
    run->evaluate_seconds += tr_now() - transfer_seconds(t) - begin;
    r->evaluate_seconds = run->evaluate_seconds;
    r->status = run->status;
    for (r->evaluation = first;; r->evaluation++) {
        MPI_Isend(r, sizeof *r, MPI_BYTE, 0, TR_TAG_REPORT, tr->wire, &run->sending);
        if (r->evaluation == last) return TR_OK;
        TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take a report"));
    }
}

/* A worker that has failed, or that computes for servers who have, takes part in what its group does together in a
 * clock: pulling and pushing the views of the group, so that the other members are not left waiting. */
static int stand_in(struct run *run)
{
    const struct tr_tables *tables = run->tr->tables;
    int64_t now = run->tr->sync->now;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (!v->group) continue;
        TR_TRY(tr_view_pull(&v->view));
        if (v->view.delta && v->push_clock < now) TR_TRY(tr_view_push(&v->view));
    }
    return run->status;
}

/* Computes, and keeps the time without that of pulling and pushing. That somebody elsewhere has failed is seen by each
 * rank in its own time: in a round, where members may wait for each other, it is the leader who looks, before all begin. */
static int compute(struct run *run)
{
    bool in_round = run->stage->schedule != NULL;
    if (run->status != TR_OK || (!in_round && tr_clock_failed(run->tr->sync->clock))) return stand_in(run);
    const struct tr_traffic *t = &run->tr->tables->traffic;
    double begin = tr_now() - transfer_seconds(t);
    tr_straggler_begin(&run->straggler);
    note(run, run->stage->compute(&run->me, run->stage->state));
    note(run, tr_straggler_end(&run->straggler));
    run->compute_seconds += tr_now() - transfer_seconds(t) - begin;
    return run->status == TR_OK ? TR_OK : stand_in(run);
}

/* What travels between leader and slave. */
struct order {
    int64_t again; /* a round is to be computed; else the clock ends */
    int64_t status;
    tr_command command;
};

static int run_rounds_as_leader(struct run *run)
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
        if (run->status == TR_OK && !run->halted && !tr_clock_failed(tr->sync->clock))
            note(run, run->stage->schedule(&run->me, run->stage->state, commands, &again));
        again = again && run->status == TR_OK;
        requests[0] = MPI_REQUEST_NULL;
        for (int m = 1; m < members; m++) {
            orders[m] = (struct order){.again = again, .command = commands[m]};
            MPI_Isend(&orders[m], sizeof orders[m], MPI_BYTE, tr->layout.worker_rank[first + m],
                      TR_TAG_COMMAND, tr->wire, &requests[m]);
        }
        run->me.command = commands[0];
        if (again) compute(run);
        for (int m = 1; m < members; m++)
            TR_TRY(tr_wait_request(tr, &requests[m], "a slave to take its command"));
        for (int m = 1; again && m < members; m++) {
            int64_t status;
            MPI_Irecv(&status, 1, MPI_INT64_T, tr->layout.worker_rank[first + m], TR_TAG_DONE, tr->wire,
                      &requests[m]);
            TR_TRY(tr_wait_request(tr, &requests[m], "a slave to end its round"));
            if (status != TR_OK) run->halted = true; /* the slave will say why */
        }
    }
    free(commands);
    free(orders);
    free(requests);
    return TR_OK;
}

static int run_rounds_as_slave(struct run *run)
{
    tr_context *tr = run->tr;
    int leader = tr->layout.worker_rank[run->me.group * run->me.group_size];
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

static int one_clock(struct run *run)
{
    TR_TRY(tr_sync_next(run->tr->sync));
    if (!run->stage->schedule) compute(run);
    else if (run->me.member == 0) TR_TRY(run_rounds_as_leader(run));
    else TR_TRY(run_rounds_as_slave(run));
    run->me.round = 0;
    TR_TRY(tr_sync_tick(run->tr->sync));
    run->me.clock = run->tr->sync->now;
    return TR_OK;
}

/* In lockstep, and in groups, whose members evaluate together, it is each worker's clock that says when. Else the
 * first to get to an evaluation asks for it, and the others evaluate as soon as their clock ends: if the slowest one
 * came to it by itself, the sum would be of parameters of different times, and updates be counted when they are long
 * past. */
static int report_what_is_due(struct run *run)
{
    struct tr_sync *sync = run->tr->sync;
    int64_t every = run->stage->evaluate_every, first = run->reported + 1;
    if (!judged(run) || every <= 0) return TR_OK;
    int64_t due = run->me.clock / every;
    if (!tr_sync_lockstep(sync) && run->me.group_size == 1) {
        if (due > tr_clock_asked(sync->clock)) TR_TRY(tr_clock_ask(sync->clock, due));
        int64_t asked = tr_clock_asked(sync->clock); /* which over several nodes need not know of it yet */
        if (asked > due) due = asked;
    }
    if (due < first) return TR_OK;
    run->reported = due;
    return send_reports(run, first, due);
}

/* Members of the group wait for each other in every clock: for a view that they share, or for rounds. */
static bool group_works_together(const struct run *run)
{
    const struct tr_tables *tables = run->tr->tables;
    bool together = run->stage->schedule != NULL;
    for (size_t i = 0; i < tables->view_count; i++) together = together || tables->views[i]->group;
    return together && run->me.group_size > 1;
}

/* Whether another clock begins. Without BSP the members of a group might hear of a stop at different clocks and wait for
 * each other for ever: there the leader decides. */
static int goes_on(struct run *run, bool *on)
{
    tr_context *tr = run->tr;
    const struct tr_clock *clock = tr->sync->clock;
    bool lockstep = tr_sync_lockstep(tr->sync);
    *on = !tr_clock_stopped(clock) || (lockstep && run->me.clock < tr_clock_granted(clock));
    if (lockstep || !group_works_together(run)) return TR_OK;
    MPI_Request request;
    int word = *on;
    MPI_Ibcast(&word, 1, MPI_INT, 0, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the leader to begin a clock"));
    *on = word;
    return TR_OK;
}

static int work(struct run *run)
{
    const tr_stage *stage = run->stage;
    struct tr_clock *clock = run->tr->sync->clock;
    while (run->me.clock < stage->clocks) {
        TR_TRY(report_what_is_due(run));
        TR_WAIT_UNTIL(run->tr, run->me.clock < tr_clock_granted(clock) || tr_clock_stopped(clock),
                      "the scheduler to judge the evaluation at clock %lld", (long long)run->me.clock);
        bool on;
        TR_TRY(goes_on(run, &on));
        if (!on) break;
        TR_TRY(one_clock(run));
    }
    return TR_OK;
}

/* The evaluation of what the stage leaves behind; everything has arrived, so all workers see the same. Under
 * BSP a stage that was stopped has been evaluated where it stopped. */
static int evaluate_end(struct run *run)
{
    tr_context *tr = run->tr;
    bool again = judged(run) && !(tr_sync_lockstep(tr->sync) && tr_clock_stopped(tr->sync->clock));
    if (again && tr_is(tr, TR_SLAVE)) {
        tr->sync->now++; /* what views hold may be of before the end */
        run->me.clock = tr->sync->now - 1;
        TR_TRY(send_reports(run, AT_END, AT_END));
        TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take the last report"));
        tr->sync->now--;
    }
    if (again && tr->rank == 0) TR_WAIT_UNTIL(tr, run->final, "the last reports of the workers");
    return tr_barrier(tr, tr->world, "the last evaluation");
}

/* For stages that are judged: from the others the scheduler hears nothing. */
static void say_heterogeneity(const struct run *run)
{
    char text[256];
    if (run->heterogeneity.slowed == 0) return;
    tr_heterogeneity_describe(&run->heterogeneity, text, sizeof text);
    tr_say(run->tr, "%s", text);
}

int tr_run(tr_context *tr, const tr_stage *stage)
{
    struct run run = {.tr = tr, .stage = stage, .begin = tr_now(), .sending = MPI_REQUEST_NULL};
    bool works = tr_is(tr, TR_SLAVE);
    TR_TRY(tr_sync_begin(tr->sync));
    run.me = (tr_worker){.tr = tr,
                         .group = tr->me.group,
                         .groups = tr->layout.groups,
                         .member = tr->me.member,
                         .group_size = tr->layout.group_size,
                         .worker = tr->me.group * tr->layout.group_size + tr->me.member,
                         .workers = tr_layout_workers(&tr->layout)};
    if (works && stage->prepare) note(&run, stage->prepare(&run.me, stage->state));
    TR_TRY(tr_agree(tr, run.status));
    TR_TRY(tr_agree(tr, tr_tables_ready(tr)));
    if (tr->ready) TR_TRY(tr_agree(tr, tr->ready(tr->ready_state, stage)));
    tr->tables->traffic = (struct tr_traffic){0};
    tr_sync_count(tr->sync);
    if (tr->rank == 0) {
        TR_TRY(tr_poll_add(tr, poll_reports, &run));
        TR_TRY(grant_more(&run, false));
    }
    if (works) tr_straggler_open(tr, run.me.worker, &run.straggler);
    int status = works ? work(&run) : TR_OK;
    tr_straggler_close(&run.straggler);
    if (status == TR_OK) status = tr_sync_end(tr->sync);
    if (status == TR_OK) status = evaluate_end(&run);
    if (tr->rank == 0) tr_poll_remove(tr, poll_reports, &run);
    while (run.collections) drop_collection(&run, run.collections);
    note(&run, status);
    if (tr->tables->status != TR_OK) note(&run, tr_fail(tr->tables->status, "%s", tr->tables->why));
    TR_TRY(tr_agree(tr, run.status));
    say_heterogeneity(&run);
    return TR_OK;
}

int tr_group_sum(tr_worker *me, double *numbers, size_t n)
{
    if (me->group_size == 1) return TR_OK;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, numbers, (int)n, MPI_DOUBLE, MPI_SUM, me->tr->group, &request);
    return tr_wait_request(me->tr, &request, "the margins of the other members of the group");
}

int tr_group_least(tr_worker *me, tr_least *least, size_t n)
{
    for (size_t at = 0; me->group_size > 1 && at < n; at += INT_MAX) {
        MPI_Request request;
        int some = (int)tr_min_size(n - at, INT_MAX);
        MPI_Iallreduce(MPI_IN_PLACE, least + at, some, MPI_DOUBLE_INT, MPI_MINLOC, me->tr->group, &request);
        TR_TRY(tr_wait_request(me->tr, &request, "the nearest of the other members of the group"));
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
