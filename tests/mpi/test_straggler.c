/* Stragglers: who is slowed, how much, and that only the worker is. Nothing here measures how fast anything is; levels
 * are sleeps, of which none is shorter than it was asked for. */
#include "mpi_unit.h"

enum { KEYS = 64, ROWS = 64 };

struct trial {
    tr_context *tr;
    tr_table *table;
    tr_view *view;
    int64_t clocks, every;
    double seconds;                   /* inside compute(), all clocks */
    int64_t polls, polls_in_pushes;   /* of this rank */
    int64_t others_when_done;         /* the slowest clock as this worker ended its last one */
    struct tr_progress_row row[ROWS]; /* rank 0: the evaluations */
    int rows;
};

static int count_poll(void *what, int *did)
{
    struct trial *t = what;
    t->polls++;
    return TR_OK;
}

static int prepare(tr_worker *me, void *state)
{
    struct trial *t = state;
    return mpi_open_view(t->table, TR_VIEW_GROUP, &t->view);
}

static int compute(tr_worker *me, void *state)
{
    struct trial *t = state;
    double begin = tr_now();
    TR_TRY(tr_view_pull(t->view));
    for (int k = 0; k < KEYS; k++) ((int64_t *)t->view->delta)[k] = 1;
    int64_t polls = t->polls;
    TR_TRY(tr_view_push(t->view));
    t->polls_in_pushes += t->polls - polls;
    t->seconds += tr_now() - begin;
    if (me->clock + 1 == t->clocks) t->others_when_done = tr_clock_get(t->tr->sync->clock, TR_CLOCK_WRITTEN);
    return TR_OK;
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    report->sum[0] = 1;
    return TR_OK;
}

static int observe(void *who, const tr_stage *stage, const struct tr_progress_row *row)
{
    struct trial *t = who;
    if (t->rows < ROWS) t->row[t->rows++] = *row;
    return TR_OK;
}

/* Runs a stage; its table and view are closed, its context not. */
static void run(struct trial *t, const char *settings, int64_t clocks, int64_t every)
{
    const char *text = mpi_text("%s report.progress=no", settings);
    *t = (struct trial){.tr = mpi_context(text), .clocks = clocks, .every = every};
    mpi_ok(tr_table_create(t->tr, "w", TR_I64, 1, KEYS, &t->table));
    mpi_ok(tr_poll_add(t->tr, count_poll, t));
    tr_observers(t->tr)->who = t;
    if (t->tr->rank == 0) tr_observers(t->tr)->progress = observe;
    tr_stage stage = {.name = "slow",
                      .state = t,
                      .clocks = clocks,
                      .evaluate_every = every,
                      .epochs_per_clock = 1,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = mpi_summarize};
    mpi_ok(tr_run(t->tr, &stage));
    tr_view_close(&t->view);
    tr_poll_remove(t->tr, count_poll, t);
}

static int worker_of(const struct trial *t)
{
    return t->tr->me.group < 0 ? -1 : t->tr->me.group * t->tr->layout.group_size + t->tr->me.member;
}

static bool is_slowed(const struct trial *t)
{
    return worker_of(t) >= 0 && tr_is_slowed(t->tr->job, tr_workers(t->tr), worker_of(t));
}

/* ---- who ---- */

static tr_job *job_with(double slow, uint64_t seed)
{
    static const char text[] = "data: {train: x}\n";
    char part[64], number[64];
    snprintf(part, sizeof part, "experiment.slow=%g", slow);
    snprintf(number, sizeof number, "seed=%llu", (unsigned long long)seed);
    tr_job *job = NULL;
    mpi_ok(tr_job_parse(text, sizeof text - 1, "test", 2, (char *[]){part, number}, &job));
    return job;
}

MPI_CASE(as_many_are_slowed_as_asked)
{
    static const struct {
        double slow;
        int workers, slowed;
    } all[] = {{0, 8, 0},   {0.2, 8, 2}, {0.01, 8, 1}, {1, 8, 8},       {0.5, 3, 2},
               {0.5, 1, 1}, {0.3, 1, 1}, {0.4, 4, 2},  {0.25, 400, 100}};
    for (size_t i = 0; i < COUNT(all); i++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            tr_job *job = job_with(all[i].slow, seed);
            int slowed = 0;
            for (int w = 0; w < all[i].workers; w++) slowed += tr_is_slowed(job, all[i].workers, w);
            mpi_check(slowed == all[i].slowed && tr_slowed_workers(job, all[i].workers) == slowed,
                      "%g of %d workers: %d are slowed, %d announced", all[i].slow, all[i].workers, slowed,
                      tr_slowed_workers(job, all[i].workers));
            tr_job_free(job);
        }
    }
}

MPI_CASE(the_seed_decides_who_is_slowed)
{
    enum { WORKERS = 8, SEEDS = 200 };
    int times[WORKERS] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        tr_job *one = job_with(0.2, seed), *other = job_with(0.2, seed);
        for (int w = 0; w < WORKERS; w++) {
            times[w] += tr_is_slowed(one, WORKERS, w);
            mpi_check(tr_is_slowed(one, WORKERS, w) == tr_is_slowed(other, WORKERS, w),
                      "seed %lu, worker %d: slowed just once", seed, w);
        }
        tr_job_free(one);
        tr_job_free(other);
    }
    for (int w = 0; w < WORKERS; w++) /* 50 are expected, with a standard deviation of 6 */
        mpi_check(times[w] > 20 && times[w] < 80, "worker %d is slowed by %d of %d seeds", w, times[w],
                  SEEDS);
}

/* ---- how much ---- */

/* Under other load a pause, and the work around it, may take longer. Only its minimum is guaranteed. */
static void level(const char *settings)
{
    enum { CLOCKS = 12 };
    const double least = 0.04, times = 2;
    struct trial t;
    const char *text =
        mpi_text("%s experiment.slow=0.3 experiment.level=%g experiment.clock=%g", settings, times, least);
    run(&t, text, CLOCKS, 0);
    int slowed = is_slowed(&t), works = worker_of(&t) >= 0, workers = tr_workers(t.tr);
    double wanted = CLOCKS * least * (slowed ? times : 1);
    mpi_check(!works || t.seconds > 0.95 * wanted, "%g s for clocks of %g s", t.seconds, wanted);
    MPI_Allreduce(MPI_IN_PLACE, &slowed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    mpi_equal(slowed, tr_slowed_workers(t.tr->job, workers));
    if (t.tr->rank == 0) {
        struct tr_heterogeneity h = t.row[t.rows - 1].heterogeneity;
        mpi_check(h.slowed == slowed && h.workers == workers && h.asked == times,
                  "%d of %d are said to be slowed", h.slowed, h.workers);
        mpi_check(workers == 1 ? isnan(h.reached) : h.reached > 0, "level %g is said to be reached",
                  h.reached);
    }
    mpi_ok(tr_close(t.tr));
}

MPI_CASE(slowed_clocks_are_longer)
{
    level("sync.mode=bsp");
    level("sync.mode=bsp table.push=accumulate");
    level("sync.mode=ssp sync.staleness=2");
    level("sync.mode=asp");
    level("sync.mode=asp experiment.kind=network");
    level("sync.mode=asp ranks.node_size=1");
}

/* Without a minimum clock, pauses follow the measured times: nearly 0 here, but the sums must be right. */
MPI_CASE(naps_add_up_to_the_level)
{
    struct trial t;
    run(&t, "sync.mode=asp experiment.slow=1 experiment.level=3", 1, 0);
    struct tr_straggler s;
    for (int network = 0; worker_of(&t) >= 0 && network < 2; network++) {
        tr_straggler_open(t.tr, worker_of(&t), &s);
        s.network = network;
        struct tr_traffic *traffic = &t.tr->tables->traffic;
        for (int i = 0; i < 10;
             i++) { /* each clock: some computing, which the wall adds to, and 2 ms of pulling */
            tr_straggler_begin(&s);
            double end = tr_now() + 0.002;
            while (tr_now() < end) continue;
            traffic->pull_seconds += 0.002;
            s.begin -= 0.002;
            mpi_ok(t.tr->before_push(t.tr->before_push_state));
            mpi_ok(tr_straggler_end(&s));
        }
        double natural = s.computed + s.transferred;
        mpi_check(fabs(s.transferred - 0.02) < 1e-6, "%g s are said to be transferred", s.transferred);
        /* time slept too long, or moved to the next clock, is not in the sum; on a busy machine it is large */
        double naps = s.seconds - natural + s.owed + s.missed;
        mpi_check(fabs(naps - 2 * natural) < 0.05 * natural, "naps for %g s of %g s", naps, natural);
        tr_straggler_close(&s);
    }
    mpi_ok(tr_close(t.tr));
}

MPI_CASE(without_an_experiment_nobody_naps)
{
    struct trial t;
    run(&t, "experiment.level=5", 3, 0);
    mpi_check(t.tr->before_push == NULL, "pushes are held up");
    if (t.tr->rank == 0) mpi_check(t.row[t.rows - 1].heterogeneity.slowed == 0, "somebody is slowed");
    mpi_ok(tr_close(t.tr));
}

/* ---- only the worker ---- */

/* The fast workers ask the slow one's server for its share in every clock, while the slow worker sleeps in its first
 * ones. If the server slept as well, they would come no faster than it. */
MPI_CASE(a_slow_worker_is_no_slow_server)
{
    struct trial t;
    run(&t,
        "sync.mode=asp ranks.layout=auto table.partition=hash table.route=request table.push=message "
        "experiment.slow=0.01 experiment.level=100 experiment.clock=0.004",
        6, 0);
    if (is_slowed(&t)) mpi_check(t.polls_in_pushes > 60, "%ld polls in 6 naps", t.polls_in_pushes);
    else mpi_check(t.others_when_done <= 2, "the slow worker was at clock %ld", t.others_when_done);
    mpi_ok(tr_close(t.tr));
}

/* ---- counts ---- */

MPI_CASE(updates_are_the_pushes_of_groups)
{
    for (int i = 0; mpi_layout(i); i++) {
        struct trial t;
        run(&t, mpi_layout(i), 4, 2);
        if (t.tr->rank == 0) {
            mpi_equal(t.rows, 2);
            for (int r = 0; r < t.rows; r++)
                mpi_check(t.row[r].updates == (uint64_t)(t.row[r].clock * t.tr->layout.groups),
                          "%lu updates at %ld", t.row[r].updates, t.row[r].clock);
        }
        mpi_ok(tr_close(t.tr));
    }
}

/* The fastest worker says when all evaluate, so that the slow one has pushed less by then than it has. */
static void evaluate_together(const char *layout)
{
    struct trial t;
    int64_t before = 0;
    const char *settings =
        mpi_text("%s sync.mode=asp experiment.slow=0.01 experiment.level=4 experiment.clock=0.004", layout);
    run(&t, settings, 24, 2);
    if (t.tr->rank == 0) mpi_equal(t.rows, 12); /* at 2, 4 .. 22, and at the end */
    for (int r = 0; r < t.rows; before = t.row[r++].clock) {
        const struct tr_progress_row *row = &t.row[r];
        uint64_t most = (uint64_t)row->clock * (uint64_t)tr_workers(t.tr);
        mpi_check(row->clock > before, "clock %ld after clock %ld", row->clock, before);
        if (tr_workers(t.tr) == 1 || r == t.rows - 1)
            mpi_check(row->updates == most, "clock %ld: %lu updates", row->clock, row->updates);
        else if (row->clock >= 12)
            mpi_check(row->updates < most - 3, "clock %ld: already %lu updates", row->clock, row->updates);
    }
    mpi_ok(tr_close(t.tr));
}

MPI_CASE(evaluations_are_of_one_time)
{
    evaluate_together("ranks.layout=auto");
    evaluate_together("ranks.layout=auto ranks.node_size=1");
}
