/* Checkpoints of stages: a run that was stopped and resumed equals a run without interruption. */
#include "resumed.h"

#include "store/checkpoint.h"

enum { CLOCKS = 23, MANY_CLOCKS = 200, EVERY = 4 };

struct play {
    tr_context *tr;
    struct resumed of;
    int64_t clocks;
    int64_t stop;                            /* the clock in which a worker asks for a stop; -1: none */
    int stopper;                             /* which one */
    int64_t begun, ran;                      /* the first clock that it computed; how many */
    int64_t judged[MANY_CLOCKS], judgements; /* rank 0: clocks that were evaluated */
    int64_t common;                          /* rank 0: the sum of them */
};

static int prepare(tr_worker *me, void *state)
{
    return resumed_prepare(&((struct play *)state)->of, me);
}

static int compute(tr_worker *me, void *state)
{
    struct play *p = state;
    if (p->begun < 0) p->begun = me->clock;
    p->ran++;
    TR_TRY(resumed_compute(&p->of, me->clock));
    if (p->ran == p->stop && me->worker == p->stopper % me->workers) tr_signals_pass(true);
    if (p->stop >= 0) tr_sleep(p->ran < p->stop ? 2e-3 : 20e-3); /* the stop must arrive before the end */
    return tr_view_push(p->of.view);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    report->sum[0] = 1;
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    struct play *p = state;
    if (p->judgements < MANY_CLOCKS) p->judged[p->judgements] = sums->clock;
    p->judgements++;
    p->common += sums->clock;
    return TR_OK;
}

static int snapshot(tr_worker *me, void *state, tr_snapshot *k)
{
    struct play *p = state;
    TR_TRY(resumed_keep(&p->of, me, k));
    return tr_snapshot_common(k, "common", TR_I64, 1, &p->common);
}

static enum tr_initial initial; /* what the table of the next run begins with */

/* A run from its beginning, or from where the last one was stopped. */
static int run(struct play *p, int64_t clocks, const char *settings, uint64_t every, bool fresh, int64_t stop)
{
    const char *all = mpi_text("%s output=%s", settings, mpi_folder());
    *p = (struct play){
        .tr = mpi_context(all), .clocks = clocks, .stop = stop, .stopper = mpi_test.size - 1, .begun = -1};
    p->tr->job->checkpoint.every = (struct tr_job_pace){.clocks = every};
    mpi_ok(tr_checkpoints_open(p->tr, fresh));
    tr_table_options options = {.initial = initial, .scale = 1};
    mpi_ok(tr_table_create_with(p->tr, "w", TR_F64, 1, KEYS, &options, &p->of.table));
    const tr_stage stage = {.name = "train",
                            .state = p,
                            .clocks = clocks,
                            .evaluate_every = EVERY,
                            .epochs_per_clock = 1,
                            .prepare = prepare,
                            .compute = compute,
                            .evaluate = evaluate,
                            .summarize = summarize,
                            .snapshot = snapshot};
    return tr_run(p->tr, &stage);
}

static void end(struct play *p, int status)
{
    tr_view_close(&p->of.view);
    status = tr_checkpoints_close(p->tr, status == TR_OK, status);
    (void)tr_close(p->tr);
}

static const struct {
    const char *settings;
    uint64_t every;
} ways[] = {{"sync.mode=bsp", 0},
            {"sync.mode=bsp", 1},
            {"sync.mode=ssp sync.staleness=2", 0},
            {"sync.mode=asp", 0},
            {"sync.mode=ssp", 4}};

/* Each layout with some ways, all ways with some layouts. Each checkpoint waits for the disk. */
MPI_CASE(what_was_stopped_goes_on)
{
    size_t n = COUNT(ways), step = mpi_test.size > 2 ? 3 : 1;
    for (int i = 0; mpi_layout(i); i++)
        for (size_t w = (size_t)i % 3; w < n; w += step) {
            struct play p;
            const char *settings = mpi_text("%s %s", mpi_layout(i), ways[w].settings);
            int64_t stop = 2 + (i * 5 + (int)w * 3) % (CLOCKS - 12), done = 0;
            int status = run(&p, CLOCKS, settings, ways[w].every, true, stop);
            mpi_equal(status, TR_ERR_STOPPED);
            if (tr_is(p.tr, TR_SLAVE)) done = p.ran;
            end(&p, status);
            status = run(&p, CLOCKS, settings, ways[w].every, false, -1);
            mpi_check(status == TR_OK, "status %d: %s", status, tr_error_text());
            if (tr_is(p.tr, TR_SLAVE)) /* under ASP it may have been through */
                mpi_check((p.begun == done || done == CLOCKS) && p.ran == CLOCKS - done,
                          "it resumes at clock %d for %d, expected %d", (int)p.begun, (int)p.ran, (int)done);
            resumed_check(p.tr, &p.of, p.clocks);
            end(&p, status);
        }
}

MPI_CASE(evaluations_go_on)
{
    struct play p;
    int status = run(&p, CLOCKS, "sync.mode=bsp", 0, true, 9);
    int64_t before = p.judgements;
    mpi_equal(status, TR_ERR_STOPPED);
    end(&p, status);
    status = run(&p, CLOCKS, "sync.mode=bsp", 0, false, -1);
    if (mpi_test.rank == 0) {
        int64_t expected = 0;
        for (int64_t c = EVERY; c < CLOCKS; c += EVERY) expected += c;
        mpi_check(before + p.judgements == CLOCKS / EVERY + 1, "%d evaluations, then %d", (int)before,
                  (int)p.judgements);
        mpi_equal(p.judged[0], (before < CLOCKS / EVERY ? (before + 1) * EVERY : CLOCKS));
        mpi_equal(p.common, expected + CLOCKS);
    }
    end(&p, status);
}

/* A finished run is not resumed. */
MPI_CASE(what_has_ended_begins_again)
{
    for (int turn = 0; turn < 2; turn++) {
        struct play p;
        int status = run(&p, CLOCKS, "sync.mode=bsp", 5, false, -1);
        mpi_check(status == TR_OK, "status %d: %s", status, tr_error_text());
        if (tr_is(p.tr, TR_SLAVE)) mpi_equal(p.begun, 0);
        end(&p, status);
    }
}

/* Checks that this part of a run started at the clock where the previous part stopped. Returns the clock at its end. */
static int64_t check_begun(const struct play *p, int64_t stood)
{
    int64_t stands = 0;
    if (tr_is(p->tr, TR_SLAVE)) {
        mpi_equal(p->begun, stood);
        stands = p->begun + p->ran;
    }
    MPI_Allreduce(MPI_IN_PLACE, &stands, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return stands;
}

/* BSP: any layout resumes from the checkpoint of any other. */
MPI_CASE(another_layout_goes_on)
{
    struct play p;
    int status = TR_OK;
    int64_t stood = 0;
    for (int i = 0; mpi_layout(i); i++) {
        initial = i == 0 ? TR_INITIAL_ZERO : TR_INITIAL_CONSTANT; /* which a checkpoint restores over */
        status = run(&p, MANY_CLOCKS, mpi_layout(i), 0, i == 0, 1 + i);
        mpi_check(status == TR_ERR_STOPPED, "part %d: status %d: %s", i, status, tr_error_text());
        stood = check_begun(&p, stood);
        end(&p, status);
    }
    status = run(&p, MANY_CLOCKS, "table.partition=hash", 0, false, -1);
    initial = TR_INITIAL_ZERO;
    mpi_check(status == TR_OK, "status %d: %s", status, tr_error_text());
    check_begun(&p, stood);
    resumed_check(p.tr, &p.of, p.clocks);
    end(&p, status);
}

/* The folder is not writable: training continues, and the message at the end reports it. */
MPI_CASE(what_cannot_be_written_stops_nothing)
{
    static const char *const modes[] = {"sync.mode=bsp", "sync.mode=ssp"};
    for (size_t i = 0; i < COUNT(modes); i++) {
        struct play p;
        struct tr_checkpoint_counts counts;
        int status = run(&p, CLOCKS, mpi_text("%s checkpoint.to=/proc/nowhere/kept", modes[i]), 5, false, -1);
        mpi_check(status == TR_OK, "status %d: %s", status, tr_error_text());
        resumed_check(p.tr, &p.of, p.clocks);
        tr_checkpoint_count(p.tr, &counts);
        if (mpi_test.rank == 0)
            mpi_check(counts.written == 0 && counts.failed > 0, "%d are written, %d failed",
                      (int)counts.written, (int)counts.failed);
        tr_view_close(&p.of.view);
        status = tr_checkpoints_close(p.tr, true, TR_OK);
        mpi_equal(status, TR_ERR_IO);
        (void)tr_close(p.tr);
    }
}
