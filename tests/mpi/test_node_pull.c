/* Pulling together: workers of a node that need the same keys of other nodes' servers fetch them once. Every worker
 * adds 1 to each of its keys in every clock, so that a value shows which updates it contains. */
#include "mpi_unit.h"

#include "table/codec.h"
#include "table/view.h"

enum { KEYS = 1200, CLOCKS = 5 };

typedef int compute_fn(tr_worker *me, void *state);

struct trial {
    tr_context *tr;
    tr_table *table;
    tr_view *view;
    MPI_Comm workers; /* of this node */
    int turn, turns;  /* this worker's number among them */
    int64_t clocks, clock;
    int64_t before; /* clocks of earlier stages */
    int slow;       /* naps in each clock; -1: nobody */
    bool prefetch, ahead;
    bool few; /* workers have less in common */
};

/* What a worker wants: the last none of the first half, else most keys, each worker a bit different. */
static bool wants(const struct trial *h, int worker, tr_key k)
{
    int workers = tr_layout_workers(&h->tr->layout), size = h->tr->layout.group_size;
    int group = worker / size;
    if (workers > 2 && worker / size == workers / size - 1 && k < KEYS / 2) return false;
    return tr_mix(k * 17 + (uint64_t)group) % 8 >= (h->few ? 4 : 1);
}

/* How many workers add to a key. */
static int64_t adders(const struct trial *h, tr_key k)
{
    int64_t n = 0;
    for (int w = 0; w < tr_layout_workers(&h->tr->layout); w++) n += wants(h, w, k);
    return n;
}

static enum tr_view_use use_of(const struct trial *h)
{
    return h->tr->layout.group_size > 1 ? TR_VIEW_GROUP : TR_VIEW_UPDATE;
}

static size_t list_keys(const struct trial *h, int worker, tr_key *keys)
{
    size_t n = 0;
    for (tr_key k = 0; k < KEYS; k++)
        if (wants(h, worker, k)) keys[n++] = k;
    return n;
}

static int prepare(tr_worker *me, void *state)
{
    struct trial *h = state;
    tr_key keys[KEYS];
    size_t n = list_keys(h, me->worker, keys);
    return h->view ? TR_OK : tr_view_open(h->table, keys, n, use_of(h), &h->view);
}

static void add_one(tr_view *view)
{
    for (size_t i = 0; i < view->n; i++)
        if (view->table->dtype == TR_I64) ((int64_t *)view->delta)[i] = 1;
        else ((float *)view->delta)[i] = 1;
}

static int push_and_wait(struct trial *h)
{
    add_one(h->view);
    TR_TRY(tr_view_push(h->view));
    TR_WAIT_UNTIL(h->tr, !tr_push_busy(h->view), "an update to arrive");
    return TR_OK;
}

/* At clock c just the updates of all clocks before. */
static void check_exact(const struct trial *h, int worker, int64_t clock)
{
    tr_key keys[KEYS];
    size_t n = list_keys(h, worker, keys);
    for (size_t i = 0; i < n; i++) {
        int64_t value = ((const int64_t *)h->view->value)[i];
        mpi_check(value == (h->before + clock) * adders(h, keys[i]),
                  "clock %ld, key %d: %ld updates, not %ld", clock, (int)keys[i], value,
                  (h->before + clock) * adders(h, keys[i]));
    }
}

static int compute_exactly(tr_worker *me, void *state)
{
    struct trial *h = state;
    if (me->worker == h->slow) TR_TRY(mpi_nap(h->tr, 2e-3));
    TR_TRY(tr_view_pull(h->view));
    check_exact(h, me->worker, me->clock);
    if (h->prefetch) TR_TRY(tr_view_prefetch(h->view));
    add_one(h->view);
    h->clock = me->clock + 1;
    return tr_view_push(h->view);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct trial *h = state;
    TR_TRY(tr_view_pull(h->view));
    if (tr_in_lockstep(h->tr) || me->clock == h->clocks) check_exact(h, me->worker, me->clock);
    return TR_OK;
}

static void begin(struct trial *h, enum tr_dtype dtype, const char *settings)
{
    *h = (struct trial){
        .tr = mpi_context(settings), .workers = MPI_COMM_NULL, .clocks = CLOCKS, .slow = -1, .turns = 1};
    bool works = tr_is(h->tr, TR_SLAVE);
    MPI_Comm_split(h->tr->node, works ? 0 : MPI_UNDEFINED, h->tr->rank, &h->workers);
    if (works) {
        MPI_Comm_rank(h->workers, &h->turn);
        MPI_Comm_size(h->workers, &h->turns);
    }
    mpi_ok(tr_table_create(h->tr, "w", dtype, 1, KEYS, &h->table));
}

static void end(struct trial *h)
{
    tr_view_close(&h->view);
    if (h->workers != MPI_COMM_NULL) MPI_Comm_free(&h->workers);
    mpi_ok(tr_close(h->tr));
}

static tr_stage stage_of(struct trial *h, compute_fn *compute)
{
    return (tr_stage){
        .name = "together", .state = h, .clocks = h->clocks, .prepare = prepare, .compute = compute};
}

/* The i-th layout on several nodes, or NULL behind the last. */
static const char *layout_of_nodes(int i)
{
    static const struct {
        int ranks;
        const char *settings;
    } all[] = {{2, "ranks.layout=auto ranks.group_size=1 ranks.node_size=1"},
               {3, "ranks.layout=auto ranks.group_size=1 ranks.node_size=2"},
               {4, "ranks.layout=auto ranks.group_size=1 ranks.node_size=3"},
               {4, "ranks.layout=dedicated ranks.servers=1 ranks.node_size=2"},
               {7, "ranks.layout=dedicated ranks.servers=2 ranks.node_size=3"},
               {4, "ranks.layout=colocated ranks.group_size=2 ranks.node_size=3"},
               {6, "ranks.layout=colocated ranks.group_size=2 ranks.groups=3 ranks.node_size=4"}};
    int n = (int)COUNT(all);
    for (int k = 0; k < n; k++)
        if (mpi_test.size >= all[k].ranks && i-- == 0) return all[k].settings;
    return NULL;
}

/* How many servers this rank reads together with others of its node. */
static int shared_servers(const struct trial *h)
{
    int n = 0;
    const struct tr_node_pull *pull = h->view ? h->view->state->node_pull : NULL;
    for (uint32_t s = 0; pull && s < h->table->partition.servers; s++) n += tr_node_pull_route(pull, s) >= 0;
    return n;
}

static bool anybody(const struct trial *h, bool mine)
{
    int any = mine;
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, h->tr->world);
    return any;
}

/* ---- BSP ---- */

static void bsp(const char *route, const char *push)
{
    const char *layout;
    for (int i = 0; (layout = layout_of_nodes(i)); i++) {
        const char *settings = mpi_text("%s table.route=%s %s", layout, route, push);
        struct trial h;
        begin(&h, TR_I64, settings);
        for (int turn = 0; turn < 3; turn++) { /* with the same view, and with a new one */
            h.slow = turn == 1 ? 0 : tr_layout_workers(&h.tr->layout) - 1;
            h.prefetch = turn > 0;
            tr_stage stage = stage_of(&h, compute_exactly);
            if (turn != 1) {
                stage.evaluate = evaluate;
                stage.summarize = mpi_summarize;
                stage.evaluate_every = 2;
            }
            mpi_ok(tr_run(h.tr, &stage));
            if (turn == 0 && !strstr(layout, "node_size=1") && h.tr->layout.group_size == 1)
                mpi_check(anybody(&h, shared_servers(&h) > 0),
                          "nothing is read together: this shows nothing");
            h.before += h.clocks;
            if (turn == 1) tr_view_close(&h.view);
        }
        end(&h);
    }
}

MPI_CALLS(bsp_is_exact_by_request, bsp("request", "table.push=auto"));
MPI_CALLS(bsp_is_exact_by_get, bsp("get", "table.push=message"));
MPI_CALLS(bsp_is_exact_by_auto, bsp("auto", "table.push=merge table.merge=rounds"));

/* ---- what travels ---- */

static uint64_t bytes_of_request(const tr_table *table, uint64_t n)
{
    uint64_t chunk = TR_MESSAGE_BYTES / table->unit_bytes, chunks = (n + chunk - 1) / chunk;
    return n * table->unit_bytes +
           chunks * (sizeof(struct tr_message) + sizeof(struct tr_reply_head) + TR_ENCODING_HEADER);
}

/* What the workers of this node should pull in a clock: from near servers the keys of each worker, from others the union of their
 * keys where that saves a fifth, else the keys of each. */
static void expect_bytes(const struct trial *h, bool together, uint64_t *near, uint64_t *far)
{
    const struct tr_layout *layout = &h->tr->layout;
    *near = *far = 0;
    for (uint32_t s = 0; s < h->table->partition.servers; s++) {
        bool here = tr_same_node(h->tr, tr_table_server_rank(h->table, s));
        uint64_t all = 0, sum = 0, each = 0, readers = 0;
        for (int w = 0; w < tr_layout_workers(layout); w++) {
            uint64_t own = 0;
            if (!tr_same_node(h->tr, layout->worker_rank[w])) continue;
            for (tr_key k = 0; k < KEYS; k++)
                own += wants(h, w, k) && tr_partition_locate(&h->table->partition, k).server == s;
            sum += own;
            if (own > 0) each += bytes_of_request(h->table, own);
            readers += own > 0;
        }
        for (tr_key k = 0; k < KEYS; k++) {
            bool any = false;
            if (tr_partition_locate(&h->table->partition, k).server != s) continue;
            for (int w = 0; w < tr_layout_workers(layout); w++)
                any = any || (tr_same_node(h->tr, layout->worker_rank[w]) && wants(h, w, k));
            all += any;
        }
        uint64_t fifths = h->table->lockstep ? 5 : 4 + readers;
        if (here) *near += each;
        else *far += together && all > 0 && fifths * all <= 4 * sum ? bytes_of_request(h->table, all) : each;
    }
}

static void check_bytes(const struct trial *h, bool together)
{
    uint64_t pulled = h->tr->tables->traffic.bytes_pulled, near, far;
    MPI_Allreduce(MPI_IN_PLACE, &pulled, 1, MPI_UINT64_T, MPI_SUM, h->tr->node);
    expect_bytes(h, together, &near, &far);
    uint64_t wanted = (uint64_t)h->clocks * (near + far);
    mpi_check(pulled == wanted, "the node pulled %lu bytes, not %lu (%lu near and %lu far a clock)", pulled,
              wanted, near, far);
}

static int pull_and_push(tr_worker *me, void *state)
{
    struct trial *h = state;
    TR_TRY(tr_view_pull(h->view));
    add_one(h->view);
    return tr_view_push(h->view);
}

static const char *const counted[] = {"ranks.layout=auto ranks.group_size=1 ranks.node_size=1",
                                      "ranks.layout=auto ranks.group_size=1 ranks.node_size=2",
                                      "ranks.layout=auto ranks.group_size=1 ranks.node_size=3",
                                      "ranks.layout=dedicated ranks.servers=1 ranks.node_size=3"};

static void count(int way, bool together, const char *mode, compute_fn *compute)
{
    const char *settings =
        mpi_text("%s table.route=request table.encoding=dense table.share_pulls=%s sync.mode=%s",
                 counted[way], together ? "yes" : "no", mode);
    struct trial h;
    begin(&h, TR_F32, settings);
    tr_stage stage = stage_of(&h, compute);
    mpi_ok(tr_run(h.tr, &stage));
    check_bytes(&h, together);
    end(&h);
}

MPI_CASE(a_node_fetches_once_a_clock)
{
    for (int way = 0; mpi_test.size >= 4 && way < 4; way++)
        for (int together = 0; together < 2; together++) count(way, together, "bsp", pull_and_push);
}

/* One worker of the node after the other pulls and pushes, and nobody begins a clock before all have pushed for the
 * last one: the first fetch of a clock is new enough for all. */
static int compute_in_turn(tr_worker *me, void *state)
{
    struct trial *h = state;
    for (int turn = 0; turn < h->turns; turn++) {
        if (turn == h->turn) {
            TR_TRY(tr_view_pull(h->view));
            TR_TRY(push_and_wait(h));
        }
        TR_TRY(tr_barrier(h->tr, h->workers, "the others' turn"));
    }
    return TR_OK;
}

MPI_CASE(workers_in_step_share_without_bsp)
{
    static const char *const modes[] = {"ssp sync.staleness=2", "asp"};
    for (int way = 0; mpi_test.size >= 4 && way < 4; way++)
        for (int mode = 0; mode < 2; mode++)
            for (int together = 0; together < 2; together++)
                count(way, together, modes[mode], compute_in_turn);
}

/* The node's first worker is a clock ahead of the others, who need not fetch at all: when they push, what the first
 * has read is theirs, with their own update added. */
static int compute_behind(tr_worker *me, void *state)
{
    struct trial *h = state;
    bool first = h->turn == 0, meets = first ? me->clock > 0 : me->clock < h->clocks - 1;
    if (!first || !meets) TR_TRY(tr_view_pull(h->view));
    if (meets) TR_TRY(tr_barrier(h->tr, h->workers, "the others to have read for their clock"));
    if (first && meets) TR_TRY(tr_view_pull(h->view));
    if (meets) TR_TRY(tr_barrier(h->tr, h->workers, "the first to have read for its clock"));
    float least = INFINITY;
    for (size_t i = 0; i < h->view->n; i++) least = fminf(least, ((const float *)h->view->value)[i]);
    mpi_check(least >= (float)me->clock, "clock %ld: own updates are missing, %g seen", me->clock,
              (double)least);
    TR_TRY(push_and_wait(h));
    if (meets) return tr_barrier(h->tr, h->workers, "all updates to arrive");
    /* the others begin after the first has pushed for its first clock */
    if (first && me->clock == 0) return tr_barrier(h->tr, h->workers, "the others to begin");
    return TR_OK;
}

static int wait_for_the_first(tr_worker *me, void *state)
{
    struct trial *h = state;
    if (h->turn > 0 && me->clock == 0)
        TR_TRY(tr_barrier(h->tr, h->workers, "the first worker's first clock"));
    return compute_behind(me, state);
}

MPI_CASE(what_others_have_read_is_taken_over)
{
    static const char *const modes[] = {"ssp sync.staleness=3", "asp"};
    for (int way = 0; mpi_test.size >= 4 && way < 4; way++)
        for (int mode = 0; mode < 2; mode++) count(way, true, modes[mode], wait_for_the_first);
}

/* ---- SSP ---- */

/* At least the updates of all clocks before bound, and a worker's own. */
static void check_bound(const struct trial *h, int worker, int64_t clock, int64_t bound)
{
    tr_key keys[KEYS];
    size_t n = list_keys(h, worker, keys);
    for (size_t i = 0; i < n; i++) {
        int64_t value = ((const int64_t *)h->view->value)[i];
        mpi_check(value >= bound * adders(h, keys[i]) && value >= clock,
                  "clock %ld, key %d: only %ld updates", clock, (int)keys[i], value);
        mpi_check(value <= h->clocks * adders(h, keys[i]), "clock %ld, key %d: %ld updates are too many",
                  clock, (int)keys[i], value);
    }
}

static int compute_within_bound(tr_worker *me, void *state)
{
    struct trial *h = state;
    int64_t bound = h->tr->staleness < me->clock ? me->clock - h->tr->staleness : 0;
    if (me->worker == h->slow) TR_TRY(mpi_nap(h->tr, 5e-3));
    TR_TRY(tr_view_pull(h->view));
    check_bound(h, me->worker, me->clock, bound);
    if (h->prefetch) TR_TRY(tr_view_prefetch(h->view));
    add_one(h->view);
    h->clock = me->clock + 1;
    return tr_view_push(h->view);
}

static void ssp(const char *mode, const char *push)
{
    for (int i = 0; layout_of_nodes(i); i++) {
        const char *settings = mpi_text("%s sync.mode=%s %s table.route=%s", layout_of_nodes(i), mode, push,
                                        i % 2 ? "auto" : "request");
        struct trial h;
        begin(&h, TR_I64, settings);
        h.slow = tr_layout_workers(&h.tr->layout) - 1;
        h.prefetch = i % 2;
        h.clocks = 12;
        tr_stage stage = stage_of(&h, compute_within_bound);
        stage.evaluate = evaluate;
        stage.summarize = mpi_summarize;
        mpi_ok(tr_run(h.tr, &stage));
        end(&h);
    }
}

MPI_CASE(ssp_keeps_its_bound)
{
    ssp("ssp sync.staleness=1", "table.push=message");
    ssp("ssp sync.staleness=3", "table.push=auto");
}
MPI_CALLS(ssp_with_copies_kept_keeps_its_bound,
          ssp("ssp sync.staleness=2 sync.pull=stale", "table.push=auto"));
MPI_CALLS(asp_sees_own_updates, ssp("asp", "table.push=message"));

/* Worker 0, which is behind worker 1 of its node, fetches while the other nodes have not written their first clock:
 * good enough for itself, and newer than worker 1's last update, but not what worker 1 must see. */
static int compute_far_apart(tr_worker *me, void *state)
{
    struct trial *h = state;
    MPI_Comm all = h->tr->workers;
    bool behind = me->worker == 0, ahead = me->worker == 1, other = !behind && !ahead;
    if (!ahead && me->clock == 0) TR_TRY(tr_barrier(h->tr, all, "worker 1 to have pushed for two clocks"));
    if ((other && me->clock == 0) || (ahead && me->clock == 2))
        TR_TRY(tr_barrier(h->tr, all, "worker 0 to have read"));
    TR_TRY(tr_view_pull(h->view));
    check_bound(h, me->worker, me->clock, me->clock - 1);
    if (behind && me->clock == 1) TR_TRY(tr_barrier(h->tr, all, "worker 0 to have read"));
    TR_TRY(push_and_wait(h));
    if (ahead && me->clock == 1) TR_TRY(tr_barrier(h->tr, all, "worker 1 to have pushed for two clocks"));
    return TR_OK;
}

MPI_CASE(what_is_too_old_is_fetched_again)
{
    if (mpi_test.size < 4) return;
    struct trial h;
    begin(&h, TR_I64,
          "ranks.layout=colocated ranks.node_size=2 table.route=request sync.mode=ssp sync.staleness=1");
    h.clocks = 3;
    tr_stage stage = stage_of(&h, compute_far_apart);
    mpi_ok(tr_run(h.tr, &stage));
    end(&h);
}

/* ---- ends ---- */

static int stop_soon(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    evaluation->stop = sums->clock >= 2;
    return TR_OK;
}

static int report_nothing(tr_worker *me, void *state, tr_report *report)
{
    return TR_OK;
}

static int nap_pull_push(tr_worker *me, void *state)
{
    struct trial *h = state;
    if (me->worker == h->slow) TR_TRY(mpi_nap(h->tr, 2e-3));
    TR_TRY(tr_view_pull(h->view));
    TR_TRY(tr_view_prefetch(h->view));
    add_one(h->view);
    h->clock = me->clock + 1;
    return tr_view_push(h->view);
}

MPI_CASE(an_early_stop_leaves_nobody_waiting)
{
    for (size_t mode = 0; mode < 3; mode++) {
        const char *layout;
        for (int i = 0; (layout = layout_of_nodes(i)); i++) {
            char settings[MPI_NOTE];
            if (mode > 0 && strstr(layout, "group_size=2"))
                continue; /* without BSP, members stop by themselves */
            snprintf(settings, sizeof settings, "%s table.route=request sync.mode=%s", layout,
                     mpi_modes[mode]);
            struct trial h;
            begin(&h, TR_I64, settings);
            h.clocks = 40;
            h.slow = tr_layout_workers(&h.tr->layout) - 1;
            tr_stage stage = stage_of(&h, nap_pull_push);
            stage.evaluate = report_nothing;
            stage.summarize = stop_soon;
            stage.evaluate_every = 2;
            mpi_ok(tr_run(h.tr, &stage));
            mpi_check(mode > 0 || !tr_is(h.tr, TR_SLAVE) || h.clock == 2, "stopped at clock %ld", h.clock);
            end(&h);
        }
    }
}

/* ---- the same model ---- */

struct walk {
    struct trial trial;
    tr_view *all;
    float end[KEYS];
};

static int open_walk(tr_worker *me, void *state)
{
    struct walk *w = state;
    TR_TRY(prepare(me, &w->trial));
    return mpi_open_view(w->trial.table, TR_VIEW_READ, &w->all);
}

/* Sums whose rounding depends on the values read and on the order of additions. */
static int step_walk(tr_worker *me, void *state)
{
    struct walk *w = state;
    tr_view *view = w->trial.view;
    TR_TRY(tr_view_pull(view));
    const float *value = view->value;
    float *delta = view->delta;
    for (size_t k = 0; k < view->n; k++)
        delta[k] = 0.3f * value[k] / (float)(me->worker + 3) +
                   (float)(tr_mix(k + (uint64_t)me->clock) % 1000) * 1e-3f;
    return tr_view_push(view);
}

static int read_walk(tr_worker *me, void *state, tr_report *report)
{
    struct walk *w = state;
    TR_TRY(tr_view_pull(w->all));
    memcpy(w->end, w->all->value, sizeof w->end);
    return TR_OK;
}

static void take_walk(const char *layout, const char *more, struct walk *w)
{
    const char *settings = mpi_text("%s table.route=request %s", layout, more);
    memset(w, 0, sizeof *w);
    begin(&w->trial, TR_F32, settings);
    mpi_ok(tr_run(w->trial.tr, &(tr_stage){.name = "walk",
                                           .state = w,
                                           .clocks = CLOCKS,
                                           .prepare = open_walk,
                                           .compute = step_walk,
                                           .evaluate = read_walk,
                                           .summarize = mpi_summarize,
                                           .evaluate_every = 2}));
    tr_view_close(&w->all);
    end(&w->trial);
}

/* With rounding, too: exact and rounded reads must not share a copy. */
MPI_CASE(sharing_changes_no_bit)
{
    static const char *const ways[] = {"", "table.precision=f16"};
    for (int way = 0; way < 2; way++) {
        const char *layout;
        for (int i = 0; (layout = layout_of_nodes(i)); i++) {
            struct walk with, without;
            char more[128];
            snprintf(more, sizeof more, "%s table.share_pulls=yes", ways[way]);
            take_walk(layout, more, &with);
            snprintf(more, sizeof more, "%s table.share_pulls=no", ways[way]);
            take_walk(layout, more, &without);
            mpi_check(!memcmp(with.end, without.end, sizeof with.end), "sharing makes a difference");
        }
    }
}

/* ---- choice of the route ---- */

/* Two workers of a node with half of the keys each: what both want as one is three quarters of these, which saves a quarter
 * where it is fetched once a clock, and nothing where it is fetched more often. */
MPI_CASE(what_few_have_in_common_is_fetched_as_one_in_step_only)
{
    static const char *const modes[] = {"bsp", "ssp", "asp"};
    for (int mode = 0; mode < 3 && mpi_test.size >= 4; mode++) {
        struct trial h;
        begin(&h, TR_I64,
              mpi_text(
                  "ranks.layout=auto ranks.groups=4 ranks.group_size=1 ranks.node_size=2 table.route=request "
                  "sync.mode=%s",
                  modes[mode]));
        h.few = true;
        tr_stage stage = stage_of(&h, pull_and_push);
        mpi_ok(tr_run(h.tr, &stage));
        bool shared = anybody(&h, shared_servers(&h) > 0);
        mpi_check(shared == (mode == 0), "the keys of the node are %s together",
                  shared ? "fetched" : "not fetched");
        end(&h);
    }
}
