/* Clocks: what a worker may see when. Every worker adds 1 to every key in every clock, the w-th worker to an
 * element of its own as well, so that a value shows which updates it contains. */
#include "mpi_unit.h"

enum { CLOCKS = 6, KEYS = 600, RECORDS = 64 };

struct record {
    int64_t least, most; /* of all common keys */
    int64_t own;
    int64_t slowest; /* the minimum of the clocks when the pull came back */
};

struct history {
    tr_context *tr;
    tr_table *table, *quiet; /* quiet: pushed to, never read */
    tr_view *view, *quiet_view;
    int64_t clocks, clock;
    int slow; /* this worker naps before its pulls */
    double nap;
    bool prefetch;
    struct record record[RECORDS];
};

static int prepare(tr_worker *me, void *state)
{
    struct history *h = state;
    TR_TRY(mpi_open_view(h->table, TR_VIEW_UPDATE, &h->view));
    return h->quiet ? mpi_open_view(h->quiet, TR_VIEW_UPDATE, &h->quiet_view) : TR_OK;
}

static int compute(tr_worker *me, void *state)
{
    struct history *h = state;
    bool slow = me->worker == h->slow;
    if (slow) TR_TRY(mpi_nap(h->tr, h->nap));
    TR_TRY(tr_view_pull(h->view));
    const int64_t *value = h->view->value;
    struct record *r = &h->record[me->clock];
    *r = (struct record){INT64_MAX, INT64_MIN, value[KEYS + me->worker],
                         tr_clock_get(h->tr->sync->clock, TR_CLOCK_WRITTEN)};
    for (int k = 0; k < KEYS; k++) {
        if (value[k] < r->least) r->least = value[k];
        if (value[k] > r->most) r->most = value[k];
    }
    if (h->prefetch) TR_TRY(tr_view_prefetch(h->view));
    int64_t *delta = h->view->delta;
    for (int k = 0; k < KEYS; k++) delta[k] = 1;
    delta[KEYS + me->worker] = 1;
    TR_TRY(tr_view_push(h->view));
    if (h->quiet) {
        ((int64_t *)h->quiet_view->delta)[me->worker] = 1;
        TR_TRY(tr_view_push(h->quiet_view));
    }
    h->clock = me->clock + 1;
    return TR_OK;
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct history *h = state;
    TR_TRY(tr_view_pull(h->view));
    const int64_t *value = h->view->value;
    if (me->clock == h->clocks)
        for (int k = 0; k < KEYS; k++)
            mpi_check(value[k] == h->clocks * me->workers, "at the end key %d is %ld", k, value[k]);
    report->sum[0] = 1;
    return TR_OK;
}

static tr_stage stage_of(struct history *h)
{
    return (tr_stage){.name = "clocks",
                      .state = h,
                      .clocks = h->clocks,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = mpi_summarize};
}

static bool works(const struct history *h)
{
    return tr_is(h->tr, TR_SLAVE);
}

static int workers(const struct history *h)
{
    return tr_layout_workers(&h->tr->layout);
}

/* A context of a layout with settings, its table, and the last worker slow. Ended by end(). */
__attribute__((format(printf, 3, 4))) static void begin(struct history *h, const char *layout,
                                                        const char *settings, ...)
{
    char rest[MPI_NOTE / 2];
    va_list values;
    va_start(values, settings);
    vsnprintf(rest, sizeof rest, settings, values);
    va_end(values);
    const char *all = mpi_text("%s %s", layout, rest);
    *h = (struct history){.tr = mpi_context(all), .clocks = CLOCKS, .nap = 0.004};
    h->slow = workers(h) - 1;
    mpi_ok(tr_table_create(h->tr, "w", TR_I64, 1, KEYS + 16, &h->table));
}

static void end(struct history *h)
{
    tr_view_close(&h->view);
    tr_view_close(&h->quiet_view);
    mpi_equal(h->tr->tables->way.under_way, 0);
    bool to_the_end = h->clock >= h->clocks; /* who is stopped early may have nothing to tell yet */
    mpi_check(!works(h) || !to_the_end || h->tr->tables->traffic.way_seconds > 0, "nothing was on its way");
    mpi_check(h->tr->tables->traffic.hidden_seconds <= h->tr->tables->traffic.way_seconds,
              "more is hidden than travels");
    mpi_ok(tr_close(h->tr));
}

/* Under BSP, after c clocks every key is exactly the sum of the clocks < c. */
static void check_bsp(const struct history *h)
{
    for (int64_t c = 0; works(h) && c < h->clocks; c++) {
        const struct record *r = &h->record[c];
        mpi_check(r->least == c * workers(h) && r->most == c * workers(h) && r->own == c,
                  "clock %ld: keys hold %ld to %ld updates, not %ld", c, r->least, r->most, c * workers(h));
    }
}

static void bsp(int way, const char *push, bool quiet)
{
    for (int i = 0; mpi_layout(i); i++) {
        if (!mpi_chosen(i, way, 2)) continue;
        struct history h;
        begin(&h, mpi_layout(i), "%s table.route=%s", push, i % 2 ? "request" : "auto");
        if (quiet) mpi_ok(tr_table_create(h.tr, "quiet", TR_I64, 1, 16, &h.quiet));
        for (int turn = 0; turn < 2;
             turn++) { /* a second stage starts at clock 0 with the values of the first */
            if (turn) h.slow = 0;
            if (turn) h.prefetch = true;
            tr_stage stage = stage_of(&h);
            if (turn) stage.evaluate = NULL;
            mpi_ok(tr_run(h.tr, &stage));
            if (turn == 0) check_bsp(&h);
            for (int64_t c = 0; turn == 1 && works(&h) && c < h.clocks; c++)
                mpi_check(h.record[c].least == (h.clocks + c) * workers(&h) &&
                              h.record[c].most == h.record[c].least,
                          "clock %ld of the second stage: keys hold %ld to %ld updates", c, h.record[c].least,
                          h.record[c].most);
            tr_view_close(&h.view);
            tr_view_close(&h.quiet_view);
        }
        end(&h);
    }
}

MPI_CALLS(bsp_is_exact_with_direct_merge, bsp(0, "table.push=merge table.merge=direct", false));
MPI_CALLS(bsp_is_exact_with_merge_in_rounds, bsp(1, "table.push=merge table.merge=rounds", true));
MPI_CALLS(bsp_is_exact_with_messages, bsp(2, "table.push=message", true));
MPI_CALLS(bsp_is_exact_with_accumulate, bsp(3, "table.push=accumulate", false));

/* Runs the stage in layouts, in each way. */
static void run_ways(const char *const ways[3], tr_stage like, void (*check)(const struct history *))
{
    for (int way = 0; way < 3; way++)
        for (int i = 0; mpi_layout(i); i++) {
            if (!mpi_chosen(i, way, 2)) continue;
            struct history h;
            begin(&h, mpi_layout(i), "%s", ways[way]);
            like.state = &h;
            like.clocks = h.clocks;
            mpi_ok(tr_run(h.tr, &like));
            if (check) check(&h);
            end(&h);
        }
}

/* A worker that only pushes runs ahead of those who read: its updates must not count for an earlier clock. */
static int push_only(tr_worker *me, void *state)
{
    struct history *h = state;
    if (me->worker > 0) return compute(me, state);
    for (int k = 0; k < KEYS; k++) ((int64_t *)h->view->delta)[k] = 1;
    ((int64_t *)h->view->delta)[KEYS] = 1;
    h->record[me->clock] = (struct record){me->clock * me->workers, me->clock * me->workers, me->clock, 0};
    h->clock = me->clock + 1;
    return tr_view_push(h->view);
}

MPI_CASE(who_only_pushes_does_not_confuse_clocks)
{
    tr_stage stage = {.name = "clocks", .prepare = prepare, .compute = push_only};
    stage.evaluate = evaluate;
    stage.summarize = mpi_summarize;
    run_ways((const char *const[]){"table.push=message", "table.push=merge", "table.push=accumulate"}, stage,
             check_bsp);
}

/* A slow worker that only reads, and sends no values with a merge, must be waited for too. */
static int prepare_reader(tr_worker *me, void *state)
{
    struct history *h = state;
    return mpi_open_view(h->table, me->worker == h->slow ? TR_VIEW_READ : TR_VIEW_UPDATE, &h->view);
}

static int read_only(tr_worker *me, void *state)
{
    struct history *h = state;
    if (me->worker != h->slow) return compute(me, state);
    TR_TRY(mpi_nap(h->tr, h->nap));
    TR_TRY(tr_view_pull(h->view));
    int64_t wanted = me->clock * (me->workers - 1);
    for (int k = 0; k < KEYS; k++) {
        int64_t value = ((const int64_t *)h->view->value)[k];
        mpi_check(value == wanted, "clock %ld: a reader sees %ld updates, not %ld", me->clock, value, wanted);
    }
    return TR_OK;
}

MPI_CASE(a_slow_reader_is_waited_for)
{
    tr_stage stage = {.name = "clocks", .prepare = prepare_reader, .compute = read_only};
    run_ways((const char *const[]){"table.merge=direct", "table.merge=rounds", "table.push=accumulate"},
             stage, NULL);
}

/* With staleness s, a value read at clock c contains all updates of clocks < c - s, and no worker is further ahead.
 */
static void ssp(int way, const char *push, int64_t staleness, bool prefetch)
{
    for (int i = 0; mpi_layout(i); i++) {
        if (!mpi_chosen(i, way, 2)) continue;
        struct history h;
        begin(&h, mpi_layout(i), "%s sync.mode=ssp sync.staleness=%d table.route=%s", push, (int)staleness,
              i % 2 ? "request" : "auto");
        h.clocks = 8;
        h.nap = 0.02;
        h.prefetch = prefetch;
        tr_stage stage = stage_of(&h);
        mpi_ok(tr_run(h.tr, &stage));
        int ahead = 0;
        for (int64_t c = 0; works(&h) && c < h.clocks; c++) {
            const struct record *r = &h.record[c];
            int64_t bound = c > staleness ? c - staleness : 0;
            mpi_check(r->slowest >= c - staleness, "clock %ld was read while the slowest was at %ld", c,
                      r->slowest);
            mpi_check(r->least >= bound * workers(&h), "clock %ld: only %ld updates of %ld seen", c, r->least,
                      bound * workers(&h));
            mpi_equal(r->own, c);
            ahead |= r->slowest < c;
        }
        MPI_Allreduce(MPI_IN_PLACE, &ahead, 1, MPI_INT, MPI_MAX, h.tr->world);
        mpi_check(ahead || workers(&h) == 1 || h.tr->layout.group_size > 1,
                  "nobody ran ahead: this shows nothing");
        end(&h);
    }
}

MPI_CALLS(ssp_keeps_its_bound, ssp(0, "table.push=auto", 2, false));
MPI_CALLS(ssp_keeps_its_bound_with_messages, ssp(1, "table.push=message", 1, true));
MPI_CALLS(ssp_keeps_its_bound_with_accumulate, ssp(2, "table.push=accumulate", 2, true));

/* Without bound, the fast workers end all their clocks before the slow one has ended its second. */
static int compute_until_alone(tr_worker *me, void *state)
{
    struct history *h = state;
    TR_TRY(tr_view_pull(h->view));
    const int64_t *value = h->view->value;
    mpi_equal(value[KEYS + me->worker], me->clock);
    if (me->worker == h->slow && me->clock == 1) { /* waits until all others have ended all clocks */
        double until = tr_now() + 10;
        for (int64_t done = 0; done < h->clocks * (me->workers - 1) + 1 && tr_now() < until;) {
            TR_TRY(mpi_nap(h->tr, 1e-3));
            TR_TRY(tr_pull_start(h->view, h->view->value, TR_PULL_SERVERS, -1));
            TR_WAIT_UNTIL(h->tr, !tr_pull_busy(h->view), "a read");
            done = value[0];
        }
        mpi_check(value[0] == h->clocks * (me->workers - 1) + 1,
                  "the others did not end without the slow one");
    }
    if (h->prefetch) TR_TRY(tr_view_prefetch(h->view));
    for (int k = 0; k < KEYS; k++) ((int64_t *)h->view->delta)[k] = 1;
    ((int64_t *)h->view->delta)[KEYS + me->worker] = 1;
    return tr_view_push(h->view);
}

MPI_CASE(asp_waits_for_nobody)
{
    static const char *const ways[] = {"table.push=auto", "table.push=message", "table.push=accumulate"};
    for (int i = 0; mpi_layout(i); i++) {
        struct history h;
        begin(&h, mpi_layout(i), "%s sync.mode=asp table.route=%s", ways[i % 3], i % 2 ? "request" : "auto");
        h.prefetch = i % 2;
        tr_stage stage = stage_of(&h);
        stage.compute = compute_until_alone;
        mpi_ok(tr_run(h.tr, &stage));
        end(&h);
    }
}

/* Computes, with nothing but seams, until the others have pushed all that they will to the share that lies here: for each
 * of their clocks they have to be answered from here. */
static int compute_with_seams(tr_worker *me, void *state)
{
    struct history *h = state;
    TR_TRY(tr_view_pull(h->view));
    if (me->worker == h->slow && me->clock == 1 && h->table->server >= 0) {
        const _Atomic int64_t *value = (void *)h->table->share[h->table->server];
        int64_t all = h->clocks * (me->workers - 1) + 1;
        double until = tr_now() + 20;
        while (*value < all && tr_now() < until) tr_seam();
        mpi_equal(*value, all);
        mpi_check(me->workers == 1 || h->tr->tables->service.at_seams > 0, "seams did nothing");
    }
    for (int k = 0; k < KEYS; k++) ((int64_t *)h->view->delta)[k] = 1;
    return tr_view_push(h->view);
}

MPI_CASE(servers_answer_while_their_rank_computes)
{
    struct history h;
    begin(&h, "ranks.layout=colocated", "sync.mode=asp table.route=request table.push=message");
    tr_stage stage = stage_of(&h);
    stage.compute = compute_with_seams;
    stage.evaluate = NULL;
    mpi_ok(tr_run(h.tr, &stage));
    end(&h);
}

/* ---- going on while an update is on its way ---- */

enum { WORD = 77 };

static int rank_of(const struct history *h, int worker)
{
    return tr_worker_rank(h->tr, h->tr->active, worker);
}

static void send_word(const struct history *h, int worker)
{
    MPI_Send(NULL, 0, MPI_BYTE, rank_of(h, worker), WORD, MPI_COMM_WORLD);
}

/* Waits for a worker's word, and answers others meanwhile or does not; false: it does not come. */
static bool word_comes(const struct history *h, int worker, bool answers)
{
    double until = tr_now() + 20;
    int here = 0, did = 0;
    while (!here && tr_now() < until) {
        if (answers) mpi_ok(tr_progress(h->tr, &did));
        MPI_Iprobe(rank_of(h, worker), WORD, MPI_COMM_WORLD, &here, MPI_STATUS_IGNORE);
    }
    if (here) MPI_Recv(NULL, 0, MPI_BYTE, rank_of(h, worker), WORD, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return here;
}

/* Worker 0 has read ahead for clock 2. From then until it has begun to compute that clock, the last worker answers nobody:
 * the update of clock 1 cannot arrive. */
static int compute_beside_silence(tr_worker *me, void *state)
{
    struct history *h = state;
    if (me->worker == h->slow && me->clock == 0) {
        mpi_check(word_comes(h, 0, true), "worker 0 has not read ahead");
        send_word(h, 0);
        mpi_check(word_comes(h, 0, false), "worker 0 waits for its update to arrive");
    }
    TR_TRY(tr_view_pull(h->view));
    const int64_t *value = h->view->value;
    mpi_equal(value[KEYS + me->worker], me->clock);
    if (me->worker == 0 && me->clock == 2) send_word(h, h->slow);
    TR_TRY(tr_view_prefetch(h->view));
    if (me->worker == 0 && me->clock == 1) {
        TR_WAIT_UNTIL(h->tr, h->view->state->ahead_started && !tr_pull_busy(h->view), "reading ahead");
        send_word(h, h->slow);
        mpi_check(word_comes(h, h->slow, true), "the last worker does not know");
    }
    for (int k = 0; k < KEYS; k++) ((int64_t *)h->view->delta)[k] = 1;
    ((int64_t *)h->view->delta)[KEYS + me->worker] = 1;
    return tr_view_push(h->view);
}

MPI_CASE(a_clock_begins_while_the_last_update_is_on_its_way)
{
    struct history h;
    begin(&h, "ranks.layout=colocated",
          "sync.mode=ssp sync.staleness=2 table.route=request table.push=message table.share_pulls=no");
    tr_stage stage = stage_of(&h);
    stage.compute = compute_beside_silence;
    if (workers(&h) > 1) {
        mpi_ok(tr_run(h.tr, &stage));
        bool first = rank_of(&h, 0) == h.tr->rank;
        mpi_check(!first || h.tr->tables->service.under_way >= 1, "no clock began before its update arrived");
    }
    tr_view_close(&h.view);
    mpi_ok(tr_close(h.tr));
}

/* Told to stop while the fast workers wait for the slow one, all end. */
static int stop_soon(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    evaluation->stop = sums->clock >= 2;
    return TR_OK;
}

static int count_workers(tr_worker *me, void *state, tr_report *report)
{
    report->sum[0] = me->worker;
    return TR_OK;
}

MPI_CASE(an_early_stop_leaves_nobody_waiting)
{
    for (size_t mode = 0; mode < 3; mode++) {
        for (int i = 0; mpi_layout(i); i++) {
            if (!mpi_chosen(i, (int)mode, 2)) continue;
            struct history h;
            begin(&h, mpi_layout(i), "sync.mode=%s", mpi_modes[mode]);
            h.clocks = 40;
            h.nap = 0.002;
            h.prefetch = true;
            tr_stage stage = stage_of(&h);
            stage.evaluate = count_workers;
            stage.summarize = stop_soon;
            stage.evaluate_every = 2;
            mpi_ok(tr_run(h.tr, &stage));
            if (works(&h) && mode == 0) mpi_equal(h.clock, 2);
            if (tr_is(h.tr, TR_SLAVE) && h.tr->me.group * h.tr->layout.group_size + h.tr->me.member == h.slow)
                mpi_check(h.clock < h.clocks, "nobody stopped");
            end(&h);
        }
    }
}

/* Reads ahead as computing does. That is for the next clock, if there is one: else nobody would wait for it, and servers would
 * answer into memory of a view that is closed. */
static int evaluate_and_read_ahead(tr_worker *me, void *state, tr_report *report)
{
    struct history *h = state;
    const struct tr_view_state *v = h->view->state;
    TR_TRY(tr_view_pull(h->view));
    TR_TRY(tr_view_prefetch(h->view));
    bool over = me->clock == h->clocks, ahead = v->ahead_wanted || v->ahead_started || tr_pull_busy(h->view);
    mpi_check(!over || !ahead, "a view is read for a clock that does not come");
    report->sum[0] = 1;
    return TR_OK;
}

MPI_CASE(an_evaluation_of_the_end_leaves_nothing_on_its_way)
{
    for (int i = 0; mpi_layout(i); i++) {
        struct history h;
        begin(&h, mpi_layout(i), "sync.mode=%s table.route=request", mpi_modes[i % 3]);
        h.prefetch = true;
        tr_stage stage = stage_of(&h);
        stage.evaluate = evaluate_and_read_ahead;
        stage.evaluate_every = 2;
        mpi_ok(tr_run(h.tr, &stage));
        end(&h);
    }
}

/* ---- runs repeat ---- */

struct walk {
    tr_table *table;
    tr_view *view;
    float end[KEYS];
};

static int open_walk(tr_worker *me, void *state)
{
    struct walk *w = state;
    tr_key keys[KEYS];
    size_t n = 0;
    for (tr_key k = 0; k < KEYS; k++)
        if (tr_mix(k * 31 + (uint64_t)me->worker) % 4) keys[n++] = k;
    return tr_view_open(w->table, keys, n, TR_VIEW_UPDATE, &w->view);
}

/* Sums whose rounding depends on their order. */
static int step_walk(tr_worker *me, void *state)
{
    struct walk *w = state;
    TR_TRY(tr_view_pull(w->view));
    const float *value = w->view->value;
    float *delta = w->view->delta;
    for (size_t k = 0; k < w->view->n; k++)
        delta[k] = 0.3f * value[k] / (float)(me->worker + 3) +
                   (float)(tr_mix(k + (uint64_t)me->clock) % 1000) * 1e-3f;
    return tr_view_push(w->view);
}

static int read_walk(tr_worker *me, void *state, tr_report *report)
{
    struct walk *w = state;
    if (me->worker != 0) return TR_OK;
    tr_view *all;
    TR_TRY(mpi_open_view(w->table, TR_VIEW_READ, &all));
    TR_TRY(tr_view_pull(all));
    memcpy(w->end, all->value, sizeof w->end);
    tr_view_close(&all);
    return TR_OK;
}

static void take_walk(const char *settings, struct walk *w)
{
    tr_context *tr = mpi_context(settings);
    *w = (struct walk){0};
    mpi_ok(tr_table_create(tr, "walk", TR_F32, 1, KEYS, &w->table));
    mpi_ok(tr_run(tr, &(tr_stage){.name = "walk",
                                  .state = w,
                                  .clocks = CLOCKS,
                                  .prepare = open_walk,
                                  .compute = step_walk,
                                  .evaluate = read_walk,
                                  .summarize = mpi_summarize}));
    tr_view_close(&w->view);
    mpi_ok(tr_close(tr));
}

MPI_CASE(bsp_repeats_to_the_bit_and_ssp_of_0_is_bsp)
{
    static const char *const ways[] = {"table.push=merge table.merge=direct",
                                       "table.push=merge table.merge=rounds", "table.push=message"};
    for (size_t way = 0; way < 3; way++) {
        for (int i = 0; mpi_layout(i); i++) {
            if (!mpi_chosen(i, (int)way, 2)) continue;
            struct walk first, next;
            for (int again = 0; again < 3; again++) {
                take_walk(mpi_text("%s %s %s", mpi_layout(i), ways[way],
                                   again == 2 ? "sync.mode=ssp sync.staleness=0" : ""),
                          again ? &next : &first);
                if (again) mpi_check(!memcmp(first.end, next.end, sizeof first.end), "run %d differs", again);
            }
        }
    }
}

/* ---- filters ---- */

struct held {
    tr_table *table;
    tr_view *view;
};

enum { HELD_KEYS = 50, HELD_CLOCKS = 6 };

static int prepare_held(tr_worker *me, void *state)
{
    struct held *h = state;
    return mpi_open_view(h->table, TR_VIEW_UPDATE, &h->view);
}

static int push_little(tr_worker *me, void *state)
{
    struct held *h = state;
    TR_TRY(tr_view_pull(h->view)); /* own updates may be seen */
    for (size_t i = 0; i < HELD_KEYS; i++) {
        mpi_check(((float *)h->view->value)[i] <= 0.5F * (float)me->clock, "key %zu came before the end", i);
        ((float *)h->view->delta)[i] = 0.5F;
    }
    return tr_view_push(h->view);
}

static int find_all(tr_worker *me, void *state, tr_report *report)
{
    const struct held *h = state;
    TR_TRY(tr_view_pull(h->view));
    float value = *(float *)h->view->value, wanted = 0.5F * HELD_CLOCKS * (float)me->workers;
    mpi_equal(value, wanted);
    report->sum[0] = 1;
    return TR_OK;
}

/* The last evaluation sees all updates that a filter had delayed. */
MPI_CASE(what_filters_hold_comes_at_the_end)
{
    static const char *const modes[] = {"bsp", "ssp", "asp"};
    for (int i = 0; i < 6; i++) {
        tr_context *tr = mpi_context(mpi_text("sync.mode=%s table.filter=threshold table.filter_limit=100%s",
                                              modes[i % 3], i >= 3 ? " ranks.node_size=1" : ""));
        struct held held = {0};
        mpi_ok(tr_table_create(tr, "t", TR_F32, 1, HELD_KEYS, &held.table));
        mpi_ok(tr_run(tr, &(tr_stage){.name = "hold",
                                      .state = &held,
                                      .clocks = HELD_CLOCKS,
                                      .prepare = prepare_held,
                                      .compute = push_little,
                                      .evaluate = find_all}));
        tr_view_close(&held.view);
        mpi_ok(tr_close(tr));
    }
}
