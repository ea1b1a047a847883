/* A worker: its clocks and rounds, turns (stage.h), sums over its group, and naps of workers that are slowed on purpose. */
#include "stage/run.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "job/schema.h"
#include "stage/scheduler.h"
#include "trireme/collective.h"

/* ---- turns ---- */

/* Maximum number of children of a worker in the tree along which workers exchange the end of all turns. */
enum { FAN_OUT = 16 };

struct turns_stage {
    const char *name;
    uint64_t wished; /* stages.NAME.parallelism: number of workers at a time, TR_ALL or TR_AUTO_DEGREE */
    struct tr_degree degree;
    struct tr_stage_sum sum;
    int64_t counted; /* tr_turns.begun at the last turn in `sum` */
};

struct tr_turns {
    struct turns_stage *stage;
    size_t n;
    int64_t
        begun; /* number of clocks and evaluations that have begun; a stage may have several turns in each */
    struct turns_stage *now; /* stage between tr_turn_begin() and tr_turn_end(), or NULL */
    int parallelism;         /* its current degree; 0: no limit */
    double called, began;    /* tr_now() when this worker called tr_turn_begin(), and when its turn began */
};

int tr_turns_open(tr_context *tr)
{
    const tr_job *job = tr->job;
    const char *const *names = tr_job_chosen_method(job)->stages;
    int workers = tr_layout_workers(&tr->layout);
    struct tr_turns *t;
    if (!names || !names[0]) return TR_OK;
    for (size_t i = 0; i < job->stages; i++) {
        const struct tr_job_stage *stage = &job->stage[i];
        uint64_t wished = stage->parallelism;
        char key[96];
        if (wished == TR_ALL) continue;
        snprintf(key, sizeof key, "stages.%s.parallelism", stage->name);
        if (wished != TR_AUTO_DEGREE && wished > (uint64_t)workers)
            return tr_fail(TR_ERR_CONFIG, "%s: %s is %llu, but there %s %d worker%s", tr_job_where(job, key),
                           key, (unsigned long long)wished, workers == 1 ? "is" : "are", workers,
                           workers == 1 ? "" : "s");
        if (tr->staleness != 0)
            return tr_fail(TR_ERR_CONFIG, "%s: workers take turns in stage %s: expected sync.mode bsp",
                           tr_job_where(job, "sync.mode"), stage->name);
    }
    TR_TRY(TR_NEW(&t, 1));
    tr->stages->turns = t;
    while (names[t->n]) t->n++;
    TR_TRY(TR_NEW(&t->stage, t->n));
    for (size_t i = 0; i < t->n; i++) {
        struct turns_stage *s = &t->stage[i];
        struct tr_degree_options options = {.most = workers,
                                            .clocks = (int64_t)fmax(1, tr_job_number(job, "solve.epochs"))};
        s->name = names[i];
        s->wished = TR_ALL;
        for (size_t k = 0; k < job->stages; k++)
            if (strcmp(job->stage[k].name, s->name) == 0) s->wished = job->stage[k].parallelism;
        snprintf(s->sum.name, sizeof s->sum.name, "%s", s->name);
        s->sum.transition = NAN;
        tr_degree_begin(&s->degree, &options);
    }
    return TR_OK;
}

void tr_turns_close(tr_context *tr)
{
    if (tr->stages->turns) free(tr->stages->turns->stage);
    free(tr->stages->turns);
    tr->stages->turns = NULL;
}

/* Waits for a number from a worker, or until a worker has failed, because that worker may send no message. */
static int turns_receive(tr_context *tr, int worker, double *number)
{
    MPI_Request received, *request = &received;
    MPI_Irecv(number, 1, MPI_DOUBLE, tr_worker_rank(tr, tr->active, worker), TR_TAG_TURN, tr->wire, request);
    enum tr_rank_state before = tr_clock_say(tr->sync->clock, TR_RANK_WAITS);
    TR_WAIT_UNTIL(tr, tr_request_done(request) || tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED),
                  "another worker to end its turn");
    tr_clock_say(tr->sync->clock, before);
    if (*request == MPI_REQUEST_NULL) return TR_OK;
    MPI_Cancel(request);
    tr_wait_alone(tr, request, "the end of a cancelled message");
    return TR_OK;
}

static int turns_send(tr_context *tr, int worker, double number)
{
    MPI_Request request;
    MPI_Isend(&number, 1, MPI_DOUBLE, tr_worker_rank(tr, tr->active, worker), TR_TAG_TURN, tr->wire,
              &request);
    return tr_wait_request(tr, &request, "another worker to take its turn");
}

/* Waits until all workers have ended their turns. Sets *seconds to its maximum over all workers, by messages up and down a tree. */
static int turns_end_together(tr_context *tr, double *seconds)
{
    int me = tr->active->worker, workers = tr_worker_set_size(tr->active);
    int first = me * FAN_OUT + 1, last = tr_min_int(first + FAN_OUT, workers);
    for (int worker = first; worker < last; worker++) {
        double other = 0;
        TR_TRY(turns_receive(tr, worker, &other));
        *seconds = fmax(*seconds, other);
    }
    if (me > 0) TR_TRY(turns_send(tr, (me - 1) / FAN_OUT, *seconds));
    if (me > 0) TR_TRY(turns_receive(tr, (me - 1) / FAN_OUT, seconds));
    for (int worker = first; worker < last; worker++) TR_TRY(turns_send(tr, worker, *seconds));
    return TR_OK;
}

/* Waits until worker (this worker - parallelism) has ended its turn; parallelism 0: does not wait. */
static int turns_wait(tr_context *tr, int parallelism)
{
    int before = parallelism > 0 ? tr->active->worker - parallelism : -1;
    double nothing, begin = tr_now();
    if (before < 0) return TR_OK;
    tr_wait_begin(tr->tables);
    int status = turns_receive(tr, before, &nothing);
    tr_wait_end(tr->tables);
    tr->tables->traffic.wait_seconds += tr_now() - begin;
    return status;
}

/* Tells worker (this worker + parallelism) to begin its turn; parallelism 0: does nothing. */
static int turns_pass(tr_context *tr, int parallelism)
{
    int next = parallelism > 0 ? tr->active->worker + parallelism : INT_MAX;
    return next < tr_worker_set_size(tr->active) ? turns_send(tr, next, 0) : TR_OK;
}

int tr_turn_begin(tr_context *tr, const char *stage)
{
    struct tr_turns *t = tr ? tr->stages->turns : NULL;
    if (!t || !tr_works(tr)) return TR_OK;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->stage[i].name, stage) == 0) t->now = &t->stage[i];
    struct turns_stage *s = t->now;
    if (!s) return TR_OK; /* code of several methods may use stages that this method does not name */
    bool limited = s->wished != TR_ALL && !tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED);
    t->parallelism = !limited                      ? 0
                     : s->wished == TR_AUTO_DEGREE ? tr_degree_next(&s->degree, INT32_MAX).parallelism
                                                   : (int)s->wished;
    t->called = t->began = tr_now();
    int status = turns_wait(tr, t->parallelism);
    t->began = tr_now();
    (void)TR_FAULT("turn");
    return status;
}

int tr_turn_end(tr_context *tr, int status)
{
    struct tr_turns *t = tr ? tr->stages->turns : NULL;
    struct turns_stage *s = t ? t->now : NULL;
    if (!s) return status;
    t->now = NULL;
    double now = tr_now(), seconds = now - t->called;
    tr_timeline_add(tr, s->name, t->began, now);
    int workers = t->parallelism > 0 ? t->parallelism : tr_worker_set_size(tr->active), ended = TR_OK;
    if (t->parallelism > 0) {
        ended = turns_pass(tr, t->parallelism);
        double begin = tr_now();
        tr_wait_begin(tr->tables);
        if (ended == TR_OK) ended = turns_end_together(tr, &seconds);
        tr_wait_end(tr->tables);
        tr->tables->traffic.wait_seconds += tr_now() - begin;
        if (ended == TR_OK && s->wished == TR_AUTO_DEGREE) tr_degree_report(&s->degree, &seconds, 1);
    }
    bool is_first = s->sum.runs == 0 || s->counted != t->begun;
    tr_stage_sum_add(&s->sum, workers, is_first, t->called, tr_now(), seconds);
    s->sum.runs += is_first;
    s->counted = t->begun;
    return status != TR_OK ? status : ended;
}

/* Counts the begin of a clock or an evaluation. */
static void turns_count(tr_context *tr)
{
    if (tr->stages->turns) tr->stages->turns->begun++;
}

bool tr_turns_are_shown(const tr_context *tr)
{
    return !tr->stages->turns || tr->job->stages > 0;
}

int tr_turns_show(tr_context *tr)
{
    struct tr_turns *t = tr->stages->turns;
    TR_FREED struct tr_stage_sum *sums = NULL;
    size_t n = 0;
    if (!t) return TR_OK;
    TR_TRY(tr_agree(tr, TR_NEW(&sums, t->n)));
    for (size_t i = 0; i < t->n; i++) {
        struct turns_stage *s = &t->stage[i];
        if (s->wished == TR_AUTO_DEGREE) tr_degree_describe(&s->degree, s->sum.degree, sizeof s->sum.degree);
        sums[i] = s->sum;
    }
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, tr->layout.worker_rank[0], sums, t->n * sizeof *sums));
    for (size_t i = 0; i < t->n; i++)
        if (sums[i].runs > 0) sums[n++] = sums[i];
    const struct tr_observers *o = &tr->stages->observers;
    return tr->rank == 0 && o->sums && n > 0 ? o->sums(o->who, sums, n) : TR_OK;
}

/* ---- stragglers on purpose (stage.h) ---- */

/* Number of the random stream that chooses the slowed workers. Streams of workers have numbers from 0 on. */
enum { CHOOSE_SLOWED = -18 };

int tr_slowed_workers(const struct tr_job *job, int workers)
{
    if (job->experiment.slow <= 0) return 0;
    return tr_max_int(1, (int)lround(job->experiment.slow * workers));
}

/* Selection sampling: chooses exactly tr_slowed_workers() workers (Knuth, The Art of Computer Programming, volume 2, 3.4.2 S). */
bool tr_is_slowed(const struct tr_job *job, int workers, int worker)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, job->seed, (uint64_t)CHOOSE_SLOWED, 0);
    int wanted = tr_slowed_workers(job, workers);
    for (int w = 0; w <= worker; w++) {
        bool taken = tr_rng_below(&rng, (uint64_t)(workers - w)) < (uint64_t)wanted;
        if (w == worker) return taken;
        wanted -= taken;
    }
    return false;
}

/* Returns the time of computing and transfers in this clock so far, with the nap. */
static double straggler_own_time(const struct tr_straggler *s)
{
    return tr_now() - s->begin - (s->tr->tables->traffic.wait_seconds - s->waited);
}

static double straggler_moving_time(const struct tr_straggler *s)
{
    const struct tr_traffic *t = &s->tr->tables->traffic;
    return t->pull_seconds + t->push_seconds - s->moved - (s->network ? s->nap : 0);
}

/* Naps before the first push of this clock. The slow part of a clock is the time of computing or, if a slow network is simulated,
 * of transfers. All naps together take level - 1 times the total time of computing and transfers; each nap is proportional to the
 * slow part of its own clock. If this yields another total, the next nap corrects it. Transfers after a nap count for the next
 * nap. */
static int straggler_nap(struct tr_straggler *s)
{
    const double shortest = 50e-6, longest = 1e-3;
    s->napped = true;
    s->natural = straggler_own_time(s);
    double transferred = s->transferred + straggler_moving_time(s);
    double computed = s->computed + straggler_own_time(s) - straggler_moving_time(s);
    double slow = s->network ? transferred : computed, all = (s->level - 1) * (computed + transferred);
    double share = slow > 0 ? fmax(0, slow - s->paid) / slow * all : 0;
    double planned = share + s->missed;
    s->missed += all - s->all - planned;
    s->paid = slow;
    s->all = all;
    s->owed += planned;
    double missing = s->level * s->least - s->natural - s->late; /* until the minimum time of a clock */
    double wanted = fmax(s->owed, missing);
    if (wanted <= 0) return TR_OK;
    /* sleeps for at most a millisecond at a time, and shorter after a message, so that other roles of this rank stay responsive */
    double begin = tr_now(), pause = shortest;
    for (double left; (left = begin + wanted - tr_now()) > 0;) {
        int did = 0;
        TR_TRY(tr_progress(s->tr, &did));
        pause = did ? shortest : fmin(1.5 * pause, longest);
        tr_sleep(fmin(pause, left));
    }
    s->nap = tr_now() - begin;
    s->owed = s->owed >= missing ? s->owed - s->nap : 0;
    if (s->network) s->tr->tables->traffic.push_seconds += s->nap;
    return TR_OK;
}

static int straggler_before_push(void *who)
{
    struct tr_straggler *s = who;
    return s->computing && !s->napped ? straggler_nap(s) : TR_OK;
}

void tr_straggler_open(tr_context *tr, int worker, struct tr_straggler *s)
{
    const struct tr_job *job = tr->job;
    *s = (struct tr_straggler){.tr = tr, .level = 1};
    if (!job) return;
    s->on = job->experiment.slow > 0 || job->experiment.clock > 0;
    s->least = job->experiment.clock;
    s->network = job->experiment.kind == TR_SLOW_NETWORK;
    s->slowed = tr_is_slowed(job, tr_layout_workers(&tr->layout), worker);
    if (s->slowed) s->level = job->experiment.level;
    if (!s->on) return;
    tr->before_push = straggler_before_push;
    tr->before_push_state = s;
}

void tr_straggler_close(struct tr_straggler *s)
{
    if (!s->on) return;
    s->tr->before_push = NULL;
    s->tr->before_push_state = NULL;
    s->on = false;
}

void tr_straggler_begin(struct tr_straggler *s)
{
    if (!s->on) return;
    const struct tr_traffic *t = &s->tr->tables->traffic;
    s->begin = tr_now();
    s->waited = t->wait_seconds;
    s->moved = t->pull_seconds + t->push_seconds;
    s->nap = 0;
    s->napped = false;
    s->computing = true;
}

int tr_straggler_end(struct tr_straggler *s)
{
    if (!s->on) return TR_OK;
    s->computing = false;
    if (!s->napped) TR_TRY(straggler_nap(s));
    double own = straggler_own_time(s), moving = straggler_moving_time(s);
    s->transferred += moving;
    s->computed += own - s->nap - moving;
    s->seconds += own;
    /* `late` shortens the next nap, but is limited, so that a worker which was delayed for long does not omit many naps */
    double due = s->level * fmax(s->least, s->natural);
    s->late = fmin(fmax(own + s->late - due, 0), s->least);
    return TR_OK;
}

void tr_heterogeneity_say(const tr_context *tr, const struct tr_heterogeneity *h)
{
    char reached[48] = "";
    if (h->slowed == 0) return;
    if (isfinite(h->reached)) snprintf(reached, sizeof reached, ", reached %.2f", h->reached);
    bool far = fabs(h->reached - h->asked) > 0.15 * h->asked;
    tr_say(tr, "heterogeneity: asked %g%s: %d of %d workers slowed%s", h->asked, reached, h->slowed,
           h->workers,
           far ? "; experiment.clock, longer than a clock takes otherwise, brings it closer" : "");
}

/* ---- evaluating ---- */

static double worker_transfer_seconds(const struct tr_traffic *t)
{
    return t->wait_seconds + t->pull_seconds + t->push_seconds;
}

/* Returns whether a worker may wait in a clock for other workers: for its turn, or for members of its group. */
static bool worker_waits_for_others(const struct tr_stage_run *run)
{
    return run->at_once > 0 || run->tr->stages->turns || run->stage->schedule || run->stage->rotates;
}

/* Returns whether the leader of a group starts and ends each round. Rotating blocks need this without BSP, because a member could
 * start its next clock and pull before other members have pushed. */
static bool worker_has_rounds(const struct tr_stage_run *run)
{
    return run->stage->schedule || (run->stage->rotates && !tr_sync_lockstep(run->tr->sync));
}

/* Polls while this rank computes or evaluates. */
static void worker_poll(void *what)
{
    struct tr_stage_run *run = what;
    int did = 0;
    tr_stage_note(run, tr_progress(run->tr, &did));
    run->tr->tables->service.at_seams += did > 0;
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
    /* pulls and waits are not counted as evaluation, because the next clock would need them without an evaluation, too */
    const struct tr_traffic *t = &tr->tables->traffic;
    double begin = tr_now() - worker_transfer_seconds(t);
    turns_count(tr);
    enum tr_rank_state before = tr_clock_say(tr->sync->clock, TR_RANK_EVALUATES);
    tr_way_compute(tr->tables, true);
    if (tr->size > 1) tr_seam_set(worker_poll, run);
    if (run->status == TR_OK && !tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED))
        tr_stage_note(run, run->stage->evaluate(&run->me, run->stage->state, &r->sums));
    else TR_TRY(tr_sync_stand_in(run->tr->sync, false));
    tr_seam_set(NULL, NULL);
    tr_way_compute(tr->tables, false);
    if (run->status != TR_OK && worker_waits_for_others(run))
        tr_clock_raise(tr->sync->clock, TR_CLOCK_FAILED, 1);
    tr->failed = run->status;
    tr_clock_say(tr->sync->clock, before);
    run->evaluate_seconds += tr_now() - worker_transfer_seconds(t) - begin;
    r->evaluate_seconds = run->evaluate_seconds;
    r->status = run->status;
    for (r->evaluation = first;; r->evaluation++) {
        MPI_Isend(r, sizeof *r, MPI_BYTE, 0, TR_TAG_REPORT, tr->wire, &run->sending);
        if (r->evaluation == last) return TR_OK;
        TR_TRY(tr_wait_request(tr, &run->sending, "the scheduler to take a report"));
    }
}

/* ---- a clock ---- */

/* Takes part in a clock without computing after a failure of any rank, so that no worker waits for this worker. */
static int clock_stand_in(struct tr_stage_run *run)
{
    if (run->status != TR_OK && worker_waits_for_others(run))
        tr_clock_raise(run->tr->sync->clock, TR_CLOCK_FAILED, 1);
    TR_TRY(tr_sync_stand_in(run->tr->sync, true));
    return run->status;
}

/* Computes a clock or round, and measures its time without pulls, pushes and waits. After a failure of another rank, it does not
 * compute. Ranks learn of a failure at different times, so in rounds only the leader checks for it, before the round. */
static int clock_compute(struct tr_stage_run *run)
{
    if (run->status != TR_OK ||
        (!worker_has_rounds(run) && tr_clock_get(run->tr->sync->clock, TR_CLOCK_FAILED)))
        return clock_stand_in(run);
    struct tr_traffic *t = &run->tr->tables->traffic;
    double begin = tr_now() - worker_transfer_seconds(t);
    tr_clock_say(run->tr->sync->clock, TR_RANK_COMPUTES);
    tr_way_compute(run->tr->tables, true);
    tr_stage_note(run, turns_wait(run->tr, run->at_once));
    double turn = tr_now();
    tr_straggler_begin(&run->straggler);
    if (run->tr->size > 1) tr_seam_set(worker_poll, run);
    if (TR_FAULT("compute") == TR_FAULT_EIO)
        tr_stage_note(run, tr_fail(TR_ERR_SYSTEM, "clock %lld fails, as TRIREME_FAULT wants it",
                                   (long long)run->me.clock));
    else tr_stage_note(run, run->stage->compute(&run->me, run->stage->state));
    tr_seam_set(NULL, NULL);
    tr_stage_note(run, tr_straggler_end(&run->straggler));
    if (run->at_once > 0) tr_timeline_add(run->tr, run->stage->name, turn, tr_now());
    tr_stage_note(run, turns_pass(run->tr, run->at_once));
    run->compute_seconds += tr_now() - worker_transfer_seconds(t) - begin;
    tr_way_compute(run->tr->tables, false);
    tr_clock_say(run->tr->sync->clock, TR_RANK_WAITS);
    if (run->status == TR_OK) return TR_OK;
    run->tr->failed = run->status;
    return clock_stand_in(run);
}

/* Message of the leader to each member before a round. The member replies with its status after the round. On a node these messages
 * take 4 µs for two ranks; nonblocking collectives would take 15 µs. */
struct round_order {
    int64_t again; /* 1: a round begins; 0: the clock ends */
    tr_command command;
};

static int rounds_lead(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int members = run->me.group_size, first = run->me.group * members;
    tr_command *commands = NULL;
    struct round_order *orders = NULL; /* not freed after a failure, because MPI may still read them */
    MPI_Request *requests = NULL;
    TR_TRY(TR_NEW(&commands, (size_t)members));
    TR_TRY(TR_NEW(&orders, (size_t)members));
    TR_TRY(TR_NEW(&requests, (size_t)members));
    bool again = true;
    for (run->me.round = 0; again; run->me.round++) {
        again = false;
        bool well = run->status == TR_OK && !run->halted && !tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED);
        if (well && !run->stage->schedule) again = run->me.round == 0;
        else if (well)
            tr_stage_note(run, run->stage->schedule(&run->me, run->stage->state, commands, &again));
        again = again && run->status == TR_OK;
        for (int m = 1; m < members; m++) {
            orders[m] = (struct round_order){.again = again, .command = commands[m]};
            MPI_Isend(&orders[m], sizeof orders[m], MPI_BYTE, tr_worker_rank(tr, tr->active, first + m),
                      TR_TAG_COMMAND, tr->wire, &requests[m]);
        }
        run->me.command = commands[0];
        if (again) clock_compute(run);
        for (int m = 1; m < members; m++)
            TR_TRY(tr_wait_request(tr, &requests[m], "a member of the group to receive its command"));
        for (int m = 1; again && m < members; m++) {
            int64_t status;
            MPI_Irecv(&status, 1, MPI_INT64_T, tr_worker_rank(tr, tr->active, first + m), TR_TAG_DONE,
                      tr->wire, &requests[m]);
            TR_TRY(tr_wait_request(tr, &requests[m], "a member of the group to end its round"));
            if (status != TR_OK) run->halted = true; /* the member itself reports its error */
        }
    }
    TR_FREE_ALL(commands, orders, requests);
    return TR_OK;
}

static int rounds_follow(struct tr_stage_run *run)
{
    tr_context *tr = run->tr;
    int leader = tr_worker_rank(tr, tr->active, run->me.group * run->me.group_size);
    for (run->me.round = 0;; run->me.round++) {
        struct round_order order;
        MPI_Request request;
        MPI_Irecv(&order, sizeof order, MPI_BYTE, leader, TR_TAG_COMMAND, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "the leader's command"));
        if (!order.again) return TR_OK;
        run->me.command = order.command;
        int64_t status = clock_compute(run);
        MPI_Isend(&status, 1, MPI_INT64_T, leader, TR_TAG_DONE, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "the leader to learn that a round has ended"));
    }
}

/* ---- all clocks ---- */

/* Evaluates if an evaluation is due. Under BSP, and in groups of several members, it is due when the worker's own clock has reached
 * it. Otherwise the first worker that reaches an evaluation raises TR_CLOCK_ASKED, and all other workers evaluate when their
 * current clock ends, so that all evaluate parameters of about the same time. */
static int worker_report_if_due(struct tr_stage_run *run)
{
    struct tr_sync *sync = run->tr->sync;
    int64_t every = run->stage->evaluate_every, first = run->reported + 1;
    if (!tr_stage_is_evaluated(run) || every <= 0) return TR_OK;
    int64_t due = run->me.clock / every;
    if (!tr_sync_lockstep(sync) && run->me.group_size == 1) {
        tr_clock_raise(sync->clock, TR_CLOCK_ASKED, due);
        int64_t asked = tr_clock_get(sync->clock, TR_CLOCK_ASKED); /* may be lower on other nodes */
        if (asked > due) due = asked;
    }
    if (due < first) return TR_OK;
    run->reported = due;
    return tr_stage_send_reports(run, first, due);
}

/* Returns the clock limit as a value of me.clock. */
static int64_t clock_limit(const struct tr_stage_run *run)
{
    int64_t clocks = tr_clock_get(run->tr->sync->clock, TR_CLOCK_LIMIT);
    return tr_sync_lockstep(run->tr->sync) ? run->base + clocks : clocks;
}

/* Decides whether another clock begins; *leaves = true: the stage stops or a pause was called. Without BSP, members of a group
 * could learn of this at different clocks, and wait for each other forever. If they wait for each other in every clock, the leader
 * decides, and sends its decision. (After a failure, a broadcast could receive data of an earlier sum.) */
static int clock_decide(struct tr_stage_run *run, bool *leaves)
{
    tr_context *tr = run->tr;
    const struct tr_clock *clock = tr->sync->clock;
    bool lockstep = tr_sync_lockstep(tr->sync), together = run->stage->schedule || run->stage->rotates;
    bool on = !tr_clock_get(clock, TR_CLOCK_STOPPED) || (lockstep && run->me.clock < clock_limit(run));
    *leaves = !on || tr_stage_is_called(run);
    for (size_t i = 0; i < tr->tables->view_count; i++) together = together || tr->tables->views[i]->group;
    if (lockstep || !together || run->me.group_size == 1) return TR_OK;
    int64_t word = *leaves;
    bool leads = run->me.member == 0;
    int first = run->me.group * run->me.group_size;
    int begin = leads ? first + 1 : first, end = leads ? first + run->me.group_size : first + 1;
    for (int worker = begin; worker < end; worker++) {
        MPI_Request request;
        int rank = tr_worker_rank(tr, tr->active, worker);
        if (leads) MPI_Isend(&word, 1, MPI_INT64_T, rank, TR_TAG_COMMAND, tr->wire, &request);
        else MPI_Irecv(&word, 1, MPI_INT64_T, rank, TR_TAG_COMMAND, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "the leader to begin a clock"));
    }
    *leaves = word;
    return TR_OK;
}

int tr_stage_work(struct tr_stage_run *run)
{
    struct tr_sync *sync = run->tr->sync;
    while (run->me.clock < run->stage->clocks && !run->proven) {
        bool leaves;
        TR_TRY(worker_report_if_due(run));
        TR_WAIT_UNTIL(run->tr,
                      run->me.clock < clock_limit(run) || tr_clock_get(sync->clock, TR_CLOCK_STOPPED) ||
                          tr_stage_is_called(run),
                      "the scheduler to evaluate at clock %lld", (long long)run->me.clock);
        TR_TRY(clock_decide(run, &leaves));
        if (leaves) break;
        double begin = tr_now();
        turns_count(run->tr);
        TR_TRY(tr_sync_next(sync));
        if (TR_FAULT("clock") == TR_FAULT_HANG)
            TR_WAIT_UNTIL(run->tr, false, "nothing, as TRIREME_FAULT wants it");
        if (!worker_has_rounds(run)) clock_compute(run);
        else if (run->me.member == 0) TR_TRY(rounds_lead(run));
        else TR_TRY(rounds_follow(run));
        run->me.round = 0;
        TR_TRY(tr_sync_tick(sync));
        run->me.clock = run->base + sync->now;
        tr_lifeline_clock(run->tr->lifeline, run->ended + run->me.clock);
        tr_clock_count(sync->clock, (struct tr_rank_seen){.state = TR_RANK_WAITS,
                                                          .clock = run->ended + run->me.clock,
                                                          .seconds = run->compute_seconds});
        run->times.seconds[run->times.clocks++ % TR_TIMED_CLOCKS] = tr_now() - begin;
    }
    return TR_OK;
}

/* ---- sums over a group ---- */

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

/* List of sums that were not completed because a member failed. They are not freed, because MPI may still write to them. */
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
