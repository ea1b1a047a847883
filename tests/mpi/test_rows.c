/* Rows in any order against plain arrays: for every layout, route and size of requests, each requested row arrives once,
 * with the updates of all workers. Under BSP its value is known exactly at every clock. */
#include "mpi_unit.h"
#include "../elements.h"

#include "table/codec.h"
#include "table/view.h"

enum { CLOCKS = 4 };

struct trial {
    tr_context *tr;
    tr_table *table;
    tr_view *view;
    enum tr_dtype dtype;
    uint64_t rows;
    size_t width;
    int64_t before;   /* clocks of earlier stages */
    double *expected; /* rows × width, at the clock that is read */
    double *least;    /* without BSP: at least that much */
    tr_key *key;      /* of the list that is being pulled */
    uint32_t *seen;   /* by place */
    size_t n, handed;
    bool alike; /* all workers pull the same, without repeats */
    uint64_t turn;
};

/* ---- dense: what workers add ---- */

/* Worker w has two thirds of the rows. */
static bool has(uint64_t worker, uint64_t row)
{
    return tr_mix(worker + tr_mix(row)) % 3 > 0;
}

/* Never negative, so that more updates are never less; exact in every type. */
static double change(uint64_t worker, int64_t clock, uint64_t row, size_t element)
{
    return has(worker, row) ? (double)((worker + (uint64_t)clock + row + element) % 5) : 0;
}

/* Adds to sums what a worker pushes in a clock. */
static void add_clock(const struct trial *t, double *sums, int worker, int64_t clock)
{
    for (uint64_t r = 0; r < t->rows; r++)
        for (size_t e = 0; e < t->width; e++) sums[r * t->width + e] += change((uint64_t)worker, clock, r, e);
}

static int workers(const struct trial *t)
{
    return tr_layout_workers(&t->tr->layout);
}

/* The value in the table at a clock. Without BSP, the minimum: updates that are old enough, and the worker's own. */
static void expect(struct trial *t, int self, int64_t clock)
{
    bool lockstep = tr_in_lockstep(t->tr);
    memset(t->expected, 0, t->rows * t->width * sizeof *t->expected);
    for (int w = 0; w < workers(t); w++)
        for (int64_t c = 0; c < t->before + clock; c++)
            if (lockstep || w == self || c < t->before || c < t->before + clock - t->tr->staleness)
                add_clock(t, t->expected, w, c);
}

static int prepare(tr_worker *me, void *state)
{
    struct trial *t = state;
    size_t n = 0;
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, t->rows));
    for (uint64_t r = 0; r < t->rows; r++)
        if (has((uint64_t)me->worker, r)) keys[n++] = r;
    int status = tr_view_open(t->table, keys, n, TR_VIEW_UPDATE, &t->view);
    free(keys);
    return status;
}

static int push(struct trial *t, const tr_worker *me)
{
    size_t i = 0;
    for (uint64_t r = 0; r < t->rows; r++) {
        if (!has((uint64_t)me->worker, r)) continue;
        for (size_t e = 0; e < t->width; e++)
            set_element(t->dtype, t->view->delta, i * t->width + e,
                        change((uint64_t)me->worker, t->before + me->clock, r, e));
        i++;
    }
    return tr_view_push(t->view);
}

/* ---- pulling ---- */

static int check_row(void *state, const tr_row *row)
{
    struct trial *t = state;
    bool lockstep = tr_in_lockstep(t->tr);
    mpi_check(row->place < t->n && row->key == t->key[row->place], "row %d is at place %d", (int)row->key,
              (int)row->place);
    mpi_check(row->n == t->width && !row->column, "row %d has %d values", (int)row->key, (int)row->n);
    for (size_t e = 0; e < row->n && row->key < t->rows; e++) {
        double value = element(t->dtype, row->value, e), wanted = t->expected[row->key * t->width + e];
        mpi_check(lockstep ? value == wanted : value >= wanted, "row %d, element %d: %g, not %g",
                  (int)row->key, (int)e, value, wanted);
    }
    if (row->place < t->n) t->seen[row->place]++;
    t->handed++;
    return TR_OK;
}

/* Some rows in any order, now and then the same twice; or all. */
static void choose_rows(struct trial *t, int worker)
{
    t->turn++;
    uint64_t seed = tr_mix(t->turn * 100 + (uint64_t)worker);
    t->n = t->alike ? t->rows : (size_t)(seed % (2 * t->rows));
    if (seed % 7 == 0 && !t->alike) t->n = 0;
    for (size_t i = 0; i < t->n; i++) t->key[i] = t->alike ? i : tr_mix(seed + i) % t->rows;
}

static int pull_by(struct trial *t, int worker, int (*check)(void *, const tr_row *))
{
    choose_rows(t, worker);
    memset(t->seen, 0, 2 * t->rows * sizeof *t->seen);
    t->handed = 0;
    TR_TRY(tr_rows_pull(t->table, t->key, t->n, check, t));
    mpi_equal(t->handed, t->n);
    for (size_t i = 0; i < t->n; i++)
        mpi_check(t->seen[i] == 1, "place %d came %u times", (int)i, t->seen[i]);
    return TR_OK;
}

static int pull(struct trial *t, int worker)
{
    return pull_by(t, worker, check_row);
}

/* Workers pull none, one or two lists in a clock. */
static int compute(tr_worker *me, void *state)
{
    struct trial *t = state;
    expect(t, me->worker, me->clock);
    uint64_t lists = t->alike ? 1 : tr_mix(t->turn + (uint64_t)me->worker) % 3;
    for (uint64_t i = 0; i < lists; i++) TR_TRY(pull(t, me->worker));
    t->turn += lists == 0;
    return push(t, me);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct trial *t = state;
    report->sum[0] = 1;
    if (!tr_in_lockstep(t->tr) && me->clock < CLOCKS) return TR_OK;
    expect(t, me->worker, me->clock);
    return pull(t, me->worker);
}

static void begin(struct trial *t, const char *settings, enum tr_dtype dtype, uint64_t rows, size_t width,
                  bool sparse)
{
    *t = (struct trial){.tr = mpi_context(settings), .dtype = dtype, .rows = rows, .width = width};
    tr_table_options options = {.sparse = sparse};
    mpi_ok(tr_table_create_with(t->tr, "m", dtype, rows, width, &options, &t->table));
    mpi_ok(TR_NEW(&t->expected, rows * width));
    mpi_ok(TR_NEW(&t->key, 2 * rows));
    mpi_ok(TR_NEW(&t->seen, 2 * rows));
}

static void end(struct trial *t)
{
    tr_view_close(&t->view);
    TR_FREE_ALL(t->expected, t->key, t->seen);
    mpi_ok(tr_close(t->tr));
}

static tr_stage stage_of(struct trial *t)
{
    return (tr_stage){.name = "rows",
                      .state = t,
                      .clocks = CLOCKS,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = mpi_summarize,
                      .evaluate_every = 2};
}

/* Two stages; after the last, some ranks read the table as for saving a model. */
static void run_dense(const char *settings, enum tr_dtype dtype, uint64_t rows, size_t width, bool alike)
{
    struct trial t;
    begin(&t, settings, dtype, rows, width, false);
    t.alike = alike;
    for (int stage = 0; stage < 2; stage++) {
        tr_stage s = stage_of(&t);
        mpi_ok(tr_run(t.tr, &s));
        tr_view_close(&t.view);
        t.before += CLOCKS;
    }
    memset(t.expected, 0, rows * width * sizeof *t.expected);
    for (int w = 0; w < workers(&t); w++)
        for (int64_t c = 0; c < t.before; c++) add_clock(&t, t.expected, w, c);
    mpi_ok(tr_agree(t.tr, mpi_test.rank % 2 == 0 ? pull(&t, mpi_test.rank) : TR_OK));
    end(&t);
}

static const char *const sizes[] = {"", "table.ahead=0", "table.ahead=1 table.row_bytes=400",
                                    "table.ahead=2 table.row_bytes=700",
                                    "table.ahead=0 table.row_bytes=1000"};
enum { SIZES = COUNT(sizes) };

static const struct {
    enum tr_dtype dtype;
    uint64_t rows;
    size_t width;
} shapes[] = {{TR_F32, 100, 16}, {TR_I64, 37, 11}, {TR_F32, 5, 10240}, {TR_I32, 90, 3}, {TR_F64, 4, 6000}};
enum { SHAPES = COUNT(shapes) };

/* Every layout with another mix of the rest. */
static void all_layouts(const char *mode, uint64_t turn)
{
    static const char *const ways[] = {"",
                                       "table.route=request",
                                       "table.push=message table.partition=ring",
                                       "table.route=get table.partition=hash",
                                       "table.storage=hash",
                                       "table.share_pulls=no table.partition=range"};
    const char *layout;
    for (int i = 0; (layout = mpi_layout(i)); i++)
        for (int k = 0; k < 2; k++, turn++) {
            if (!mpi_chosen(i, k, 2)) continue;
            /* a member's updates are known to arrive under BSP only */
            if (strstr(layout, "group_size") && !strstr(mode, "bsp")) continue;
            const char *settings =
                mpi_text("%s sync.mode=%s %s %s", layout, mode, ways[turn % 6], sizes[turn % SIZES]);
            uint64_t shape = turn % SHAPES;
            if (strstr(settings, "storage=hash") && shapes[shape].width > 5000) shape = 0;
            run_dense(settings, shapes[shape].dtype, shapes[shape].rows, shapes[shape].width, k);
        }
}

MPI_CALLS(bsp_is_exact_at_every_clock, all_layouts("bsp", 0));
MPI_CALLS(ssp_keeps_its_bound, all_layouts("ssp sync.staleness=1", 5));
MPI_CALLS(asp_sees_own_updates, all_layouts("asp", 11));

/* ---- what travels ---- */

static int prepare_nothing(tr_worker *me, void *state)
{
    return TR_OK;
}

static int only_pull(tr_worker *me, void *state)
{
    return pull(state, me->worker);
}

static uint64_t sum_of_node(const struct trial *t, uint64_t mine)
{
    MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_UINT64_T, MPI_SUM, t->tr->node);
    return mine;
}

/* Rows of the table that lie on this node. */
static uint64_t rows_here(const struct trial *t)
{
    uint64_t n = 0;
    for (uint64_t r = 0; r < t->rows; r++)
        n += tr_same_node(
            t->tr, tr_table_server_rank(t->table, tr_partition_locate(&t->table->partition, r).server));
    return n;
}

static uint64_t workers_here(const struct trial *t)
{
    uint64_t n = 0;
    for (int w = 0; w < workers(t); w++) n += tr_same_node(t->tr, t->tr->layout.worker_rank[w]);
    return n;
}

/* All workers pull all rows in every clock. Shared, each row comes to the node once a clock, else to every worker; the
 * bytes say so. */
static void count(const char *layout, const char *mode, bool share)
{
    enum { SHORT = 4 }; /* additional requests to each server, as the first are short */
    struct trial t;
    const char *settings =
        mpi_text("%s sync.mode=%s table.encoding=dense table.row_bytes=2000 table.share_pulls=%s", layout,
                 mode, share ? "yes" : "no");
    begin(&t, settings, TR_F32, 500, 16, false);
    t.alike = true;
    tr_stage stage = {
        .name = "count", .state = &t, .clocks = CLOCKS, .prepare = prepare_nothing, .compute = only_pull};
    mpi_ok(tr_run(t.tr, &stage));
    uint64_t bytes = sum_of_node(&t, t.tr->tables->traffic.bytes_pulled);
    uint64_t messages = sum_of_node(&t, t.tr->tables->traffic.messages);
    uint64_t near = rows_here(&t), far = t.rows - near, all = workers_here(&t), row = 64,
             per_request = 2000 / row;
    uint64_t times = all == 0 ? 0 : share ? 1 : all, least = (far + per_request - 1) / per_request;
    uint64_t head = sizeof(struct tr_message) + sizeof(struct tr_reply_head) + TR_ENCODING_HEADER;
    uint64_t wanted = CLOCKS * (near * all * row + times * far * (row + sizeof(uint32_t))) + messages * head;
    mpi_check(bytes == wanted,
              "the node pulled %lu bytes, not %lu, in %lu messages (%lu rows far, %lu workers)", bytes,
              wanted, messages, far, all);
    mpi_check(messages >= CLOCKS * times * least, "%lu messages are too few", messages);
    if (!share)
        mpi_check(messages <= CLOCKS * times * (least + (1 + SHORT) * t.table->partition.servers),
                  "%lu messages are too many", messages);
    end(&t);
}

static const char *const nodes[] = {"ranks.layout=auto ranks.group_size=1 ranks.node_size=1",
                                    "ranks.layout=auto ranks.group_size=1 ranks.node_size=2",
                                    "ranks.layout=auto ranks.group_size=1 ranks.node_size=3",
                                    "ranks.layout=dedicated ranks.servers=1 ranks.node_size=3"};

MPI_CASE(a_node_fetches_each_row_once_a_clock)
{
    for (int i = 0; mpi_test.size >= 4 && !mpi_test.hosts && i < 4; i++)
        for (int share = 0; share < 2; share++) count(nodes[i], "bsp", share);
}

/* What is kept for answers stays below the bound, and naive pulling has one request. */
MPI_CASE(memory_in_flight_is_bounded)
{
    for (int ahead = 0; ahead < 4; ahead++) {
        struct trial t;
        char settings[MPI_NOTE];
        snprintf(
            settings, sizeof settings,
            "ranks.layout=auto ranks.group_size=1 table.route=request table.ahead=%d table.row_bytes=4096",
            ahead);
        begin(&t, settings, TR_F32, 3000, 32, false);
        t.alike = true;
        tr_stage stage = {
            .name = "bound", .state = &t, .clocks = 2, .prepare = prepare_nothing, .compute = only_pull};
        mpi_ok(tr_run(t.tr, &stage));
        size_t most = ahead == 0 ? 1 : (size_t)(ahead + 1) * t.table->partition.servers, answer = 4096 + 1024;
        size_t bytes = tr_rows_memory(t.table);
        mpi_check(bytes <= most * answer + 2 * 4096, "%d bytes for answers: more than %d of %d", (int)bytes,
                  (int)most, (int)answer);
        if (tr_is(t.tr, TR_SLAVE)) mpi_check(bytes >= 4096, "only %d bytes for answers", (int)bytes);
        end(&t);
    }
}

/* ---- failures ---- */

static int fail_at_once(void *state, const tr_row *row)
{
    return ++((struct trial *)state)->handed == 3 ? tr_fail(TR_ERR_DATA, "enough") : TR_OK;
}

static int pull_inside(void *state, const tr_row *row)
{
    struct trial *t = state;
    int status = tr_rows_pull(t->table, t->key, t->n, check_row, t);
    mpi_equal(status, TR_ERR_INTERNAL);
    return TR_OK;
}

/* A function that fails ends the pull, no rank waits for the requested rows, and the next pull is complete. */
static int fail_and_go_on(tr_worker *me, void *state)
{
    struct trial *t = state;
    tr_key nowhere = t->rows;
    expect(t, me->worker, me->clock);
    choose_rows(t, me->worker);
    t->handed = 0;
    if (me->worker % 2 == 0) {
        int status = tr_rows_pull(t->table, t->key, t->n, fail_at_once, t);
        mpi_check(status == TR_ERR_DATA && !strcmp(tr_error_text(), "enough"), "status %d: %s", status,
                  tr_error_text());
        mpi_equal(t->handed, 3);
        status = tr_rows_pull(t->table, &nowhere, 1, check_row, t);
        mpi_equal(status, TR_ERR_INTERNAL);
        TR_TRY(tr_rows_pull(t->table, t->key, 1, pull_inside, t));
    }
    TR_TRY(pull(t, me->worker));
    TR_TRY(push(t, me));
    if (!tr_in_lockstep(t->tr)) return TR_OK;
    int status = tr_rows_pull(t->table, t->key, 1, check_row, t);
    mpi_equal(status, TR_ERR_INTERNAL);
    return TR_OK;
}

MPI_CASE(failures_leave_nobody_waiting)
{
    for (int i = 0; mpi_layout(i); i++) {
        struct trial t;
        begin(&t, mpi_text("%s %s", mpi_layout(i), sizes[i % SIZES]), TR_F32, 120, 16, false);
        t.alike = true;
        tr_stage stage = {
            .name = "fail", .state = &t, .clocks = CLOCKS, .prepare = prepare, .compute = fail_and_go_on};
        mpi_ok(tr_run(t.tr, &stage));
        end(&t);
    }
}

/* Two tables, each pulled inside the rows of the other: what one worker has claimed for its node comes, although it is
 * busy with another table. */
struct crossed {
    struct trial one, other;
};

static int pull_other(void *state, const tr_row *row)
{
    struct trial *t = state;
    return pull(t, 0);
}

static int compute_crossed(tr_worker *me, void *state)
{
    struct crossed *x = state;
    struct trial *outer = me->worker % 2 ? &x->one : &x->other, *inner = me->worker % 2 ? &x->other : &x->one;
    choose_rows(outer, 0);
    return tr_rows_pull(outer->table, outer->key, 20, pull_other, inner);
}

MPI_CASE(pulls_may_cross)
{
    for (int i = 0; mpi_test.size >= 4 && i < 4; i++) {
        struct crossed x;
        begin(&x.one, nodes[i], TR_F32, 100, 16, false);
        x.other = x.one;
        mpi_ok(tr_table_create(x.one.tr, "n", TR_F32, 100, 16, &x.other.table));
        mpi_ok(TR_NEW(&x.other.key, 200));
        mpi_ok(TR_NEW(&x.other.seen, 200));
        x.one.alike = x.other.alike = true;
        tr_stage stage = {.name = "cross",
                          .state = &x,
                          .clocks = CLOCKS,
                          .prepare = prepare_nothing,
                          .compute = compute_crossed};
        mpi_ok(tr_run(x.one.tr, &stage));
        TR_FREE_ALL(x.other.key, x.other.seen);
        end(&x.one);
    }
}

/* ---- sparse rows ---- */

/* Entry i of a worker's updates in a clock: a row and a column of its own; the next clock subtracts the same from half of
 * them. Without BSP nothing is subtracted. */
enum { ADDED = 60 };

struct entry {
    uint64_t row;
    uint32_t column;
    int value;
};

static struct entry entry_of(const struct trial *t, int worker, int64_t clock, int i)
{
    bool back = clock % 2 && i % 2 && tr_in_lockstep(t->tr);
    uint64_t x =
        tr_mix((uint64_t)worker * 1000 + tr_mix((uint64_t)(back ? clock - 1 : clock) * 100 + (uint64_t)i));
    uint64_t columns = t->width / (uint64_t)workers(t);
    struct entry e = {.row = x % t->rows,
                      .column = (uint32_t)((x >> 20) % columns * (uint64_t)workers(t)) + (uint32_t)worker,
                      .value = 1 + (int)((x >> 8) % 300)};
    if (back) e.value = -e.value;
    return e;
}

static void add_entries(const struct trial *t, double *sums, int worker, int64_t clock)
{
    for (int i = 0; i < ADDED; i++) {
        struct entry e = entry_of(t, worker, clock, i);
        sums[e.row * t->width + e.column] += e.value;
    }
}

static void expect_entries(struct trial *t, int self, int64_t clock)
{
    bool lockstep = tr_in_lockstep(t->tr);
    memset(t->expected, 0, t->rows * t->width * sizeof *t->expected);
    for (int w = 0; w < workers(t); w++)
        for (int64_t c = 0; c < t->before + clock; c++)
            if (lockstep || w == self || c < t->before || c < t->before + clock - t->tr->staleness)
                add_entries(t, t->expected, w, c);
}

static int push_entries(struct trial *t, const tr_worker *me, int first, int end)
{
    for (int i = first; i < end; i++) {
        struct entry e = entry_of(t, me->worker, t->before + me->clock, i);
        double value[1];
        set_element(t->dtype, value, 0, e.value);
        tr_row row = {.key = e.row, .n = 1, .column = &e.column, .value = value};
        TR_TRY(tr_rows_push(t->table, &row, 1));
    }
    return TR_OK;
}

static int check_list(void *state, const tr_row *row)
{
    struct trial *t = state;
    bool lockstep = tr_in_lockstep(t->tr);
    mpi_check(row->place < t->n && row->key == t->key[row->place], "row %d is at place %d", (int)row->key,
              (int)row->place);
    const double *wanted = t->expected + row->key * t->width;
    size_t i = 0;
    for (uint32_t c = 0; c < t->width; c++) {
        double value = 0;
        if (i < row->n && row->column[i] == c) {
            value = element(t->dtype, row->value, i++);
            mpi_check(value != 0, "row %d, column %u: a zero", (int)row->key, c);
        }
        mpi_check(lockstep ? value == wanted[c] : value >= wanted[c], "row %d, column %u: %g, not %g",
                  (int)row->key, c, value, wanted[c]);
    }
    mpi_check(i == row->n, "row %d: columns do not ascend", (int)row->key);
    if (row->place < t->n) t->seen[row->place]++;
    t->handed++;
    return TR_OK;
}

static int pull_lists(struct trial *t, int worker)
{
    return pull_by(t, worker, check_list);
}

/* Pushes before, between and after pulls: under BSP nothing of it shows in this clock. */
static int compute_lists(tr_worker *me, void *state)
{
    struct trial *t = state;
    bool lockstep = tr_in_lockstep(t->tr);
    int middle = (int)(tr_mix(t->turn + (uint64_t)me->worker) % ADDED);
    expect_entries(t, me->worker, me->clock);
    TR_TRY(push_entries(t, me, 0, middle));
    for (int i = 0; i < middle && !lockstep; i++) { /* own updates are visible immediately */
        struct entry e = entry_of(t, me->worker, t->before + me->clock, i);
        t->expected[e.row * t->width + e.column] += e.value;
    }
    TR_TRY(pull_lists(t, me->worker));
    return push_entries(t, me, middle, ADDED);
}

static int evaluate_lists(tr_worker *me, void *state, tr_report *report)
{
    struct trial *t = state;
    report->sum[0] = 1;
    if (!tr_in_lockstep(t->tr) && me->clock < CLOCKS) return TR_OK;
    expect_entries(t, me->worker, me->clock);
    return pull_lists(t, me->worker);
}

static uint64_t bytes_of_all(const struct trial *t)
{
    uint64_t bytes = tr_table_bytes(t->table);
    MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return bytes;
}

static void run_sparse(const char *settings, enum tr_dtype dtype, uint64_t rows, size_t width)
{
    struct trial t;
    begin(&t, settings, dtype, rows, width, true);
    uint64_t empty = bytes_of_all(&t);
    for (int stage = 0; stage < 2; stage++) {
        tr_stage s = stage_of(&t);
        s.prepare = prepare_nothing;
        s.compute = compute_lists;
        s.evaluate = evaluate_lists;
        mpi_ok(tr_run(t.tr, &s));
        t.before += CLOCKS;
    }
    memset(t.expected, 0, rows * width * sizeof *t.expected);
    uint64_t entries = 0;
    for (int w = 0; w < workers(&t); w++)
        for (int64_t c = 0; c < t.before; c++) add_entries(&t, t.expected, w, c);
    for (size_t i = 0; i < rows * width; i++) entries += t.expected[i] != 0;
    mpi_ok(tr_agree(t.tr, mpi_test.rank % 2 == 0 ? pull_lists(&t, mpi_test.rank) : TR_OK));
    uint64_t bytes = bytes_of_all(&t);
    mpi_check(bytes >= empty + 8 * entries && bytes <= empty + 4 * 8 * entries + rows * 64,
              "%d bytes for %d entries", (int)(bytes - empty), (int)entries);
    end(&t);
}

/* Rows come in many parts where requests are small. */
static void all_sparse(const char *mode, uint64_t turn)
{
    static const char *const ways[] = {
        "", "table.ahead=0 table.row_bytes=2000", "table.ahead=1 table.row_bytes=200",
        "table.ahead=2 table.row_bytes=600 table.storage=hash table.partition=ring"};
    for (int i = 0; mpi_layout(i); i++, turn++)
        run_sparse(mpi_text("%s sync.mode=%s %s", mpi_layout(i), mode, ways[turn % 4]),
                   turn / 4 % 2 ? TR_I32 : TR_F32, turn % 3 ? 50 : 3, turn % 3 ? 100 : 1000);
}

MPI_CALLS(sparse_rows_are_exact_under_bsp, all_sparse("bsp", 0));
MPI_CALLS(sparse_rows_keep_the_bound_of_ssp, all_sparse("ssp sync.staleness=2", 1));
MPI_CALLS(sparse_rows_show_own_updates_under_asp, all_sparse("asp", 2));

/* Rows longer than any message, both ways. */
enum { LONG = 200000 };

static int check_long(void *state, const tr_row *row)
{
    struct trial *t = state;
    double wanted = (double)(t->before * workers(t));
    mpi_check(row->n == (wanted > 0 ? LONG : 0), "row %d has %d entries", (int)row->key, (int)row->n);
    for (size_t i = 0; i < row->n; i++)
        mpi_check(row->column[i] == 5 * i && element(t->dtype, row->value, i) == wanted, "entry %d is wrong",
                  (int)i);
    t->handed++;
    return TR_OK;
}

static int compute_long(tr_worker *me, void *state)
{
    struct trial *t = state;
    uint32_t *column;
    float *value;
    t->before = me->clock;
    t->handed = 0;
    TR_TRY(tr_rows_pull(t->table, (const tr_key[]){2, 0, 1}, 3, check_long, t));
    mpi_equal(t->handed, 3);
    TR_TRY(TR_NEW(&column, LONG));
    TR_TRY(TR_NEW(&value, LONG));
    for (uint32_t i = 0; i < LONG; i++) {
        column[i] = 5 * i;
        value[i] = 1;
    }
    tr_row rows[3];
    for (size_t r = 0; r < 3; r++) rows[r] = (tr_row){.key = r, .n = LONG, .column = column, .value = value};
    int status = tr_rows_push(t->table, rows, 3);
    TR_FREE_ALL(column, value);
    return status;
}

MPI_CASE(long_rows_go_in_parts)
{
    static const char *const settings[] = {"", "table.ahead=0", "ranks.node_size=1 table.row_bytes=200000"};
    for (int i = 0; i < 3; i++) {
        struct trial t;
        begin(&t, settings[i], TR_F32, 3, 5 * LONG, true);
        tr_stage stage = {
            .name = "long", .state = &t, .clocks = 2, .prepare = prepare_nothing, .compute = compute_long};
        mpi_ok(tr_run(t.tr, &stage));
        end(&t);
    }
}

static int misuse(tr_worker *me, void *state)
{
    struct trial *t = state;
    const uint32_t twice[] = {4, 4}, beyond = (uint32_t)t->width;
    const int32_t value[] = {1, 1};
    const tr_row wrong[] = {{.key = t->rows, .n = 1, .column = twice, .value = value},
                            {.key = 0, .n = 2, .column = twice, .value = value},
                            {.key = 0, .n = 1, .column = &beyond, .value = value}};
    static const char *const words[] = {"row 50 is pushed", "entry 1", "entry 0"};
    for (size_t i = 0; i < 3; i++) {
        int status = tr_rows_push(t->table, &wrong[i], 1);
        mpi_check(status == TR_ERR_INTERNAL && strstr(tr_error_text(), words[i]), "status %d: %s", status,
                  tr_error_text());
    }
    return TR_OK;
}

/* Servers of such a table get no messages: clocks advance without them. */
static int use_what_rests(tr_worker *me, void *state)
{
    struct trial *t = state;
    const uint32_t column = 0;
    const int32_t value = 1;
    const tr_row row = {.key = 0, .n = 1, .column = &column, .value = &value};
    const tr_key key = 0;
    uint64_t before = t->tr->tables->traffic.bytes_pushed;
    int pushed = tr_rows_push(t->table, &row, 1), pulled = tr_rows_pull(t->table, &key, 1, NULL, NULL);
    mpi_check(pushed == TR_ERR_INTERNAL && pulled == TR_ERR_INTERNAL,
              "status %d and %d of a table that rests", pushed, pulled);
    mpi_equal(before, 0);
    return TR_OK;
}

MPI_CASE(a_table_that_rests_is_told_nothing)
{
    struct trial t;
    begin(&t, "", TR_I32, 50, 100, true);
    tr_table_rest(t.table, true);
    tr_stage stage = {
        .name = "rest", .state = &t, .clocks = 3, .prepare = prepare_nothing, .compute = use_what_rests};
    mpi_ok(tr_run(t.tr, &stage));
    end(&t);
}

/* All workers push to one row in each clock; and at last every one has seen what all have. */
static int push_to_one(tr_worker *me, void *state)
{
    struct trial *t = state;
    const uint32_t column = 0;
    const int32_t value = 1;
    const tr_row row = {.key = 7, .n = 1, .column = &column, .value = &value};
    return tr_rows_push(t->table, &row, 1);
}

static int take_count(void *state, const tr_row *row)
{
    *(int32_t *)state = *(const int32_t *)row->value;
    return TR_OK;
}

MPI_CASE(a_server_is_told_nothing_by_who_has_nothing_for_it)
{
    for (int i = 0; mpi_layout(i); i++) {
        struct trial t;
        begin(&t, mpi_text("%s sync.mode=bsp", mpi_layout(i)), TR_I32, 50, 100, true);
        tr_stage stage = {
            .name = "one", .state = &t, .clocks = CLOCKS, .prepare = prepare_nothing, .compute = push_to_one};
        mpi_ok(tr_run(t.tr, &stage));
        int home = tr_table_server_rank(t.table, tr_partition_locate(&t.table->partition, 7).server);
        bool sends = tr_is(t.tr, TR_SLAVE) && home != t.tr->rank;
        mpi_check(t.tr->tables->traffic.messages == (sends ? CLOCKS : 0),
                  "%lu messages of rows for one other rank in %d clocks", t.tr->tables->traffic.messages,
                  CLOCKS);
        const tr_key key = 7;
        int32_t sum = 0;
        mpi_ok(tr_agree(t.tr, mpi_test.rank == 0 ? tr_rows_pull(t.table, &key, 1, take_count, &sum) : TR_OK));
        mpi_check(mpi_test.rank != 0 || sum == CLOCKS * workers(&t), "the row has %d", (int)sum);
        end(&t);
    }
}

MPI_CASE(misuse_is_an_error)
{
    struct trial t;
    begin(&t, "", TR_I32, 50, 100, true);
    tr_stage stage = {
        .name = "misuse", .state = &t, .clocks = 2, .prepare = prepare_nothing, .compute = misuse};
    mpi_ok(tr_run(t.tr, &stage));
    tr_view *view = NULL;
    tr_key key = 0;
    int status = tr_view_open(t.table, &key, 1, TR_VIEW_READ, &view);
    mpi_check(status == TR_ERR_INTERNAL && !view, "a view of sparse rows: status %d", status);
    end(&t);
}
