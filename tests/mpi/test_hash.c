/* Hash storage against plain arrays: keys from all over 2^63, of which some are updated, some only read, and some only
 * updated by zeros. Changes are whole numbers, so that sums are exact in every type and in any order. */
#include "mpi_unit.h"

#include "table/server.h"
#include "../elements.h"

enum { KEYS = 700, CLOCKS = 4 };
static const uint64_t SPACE = UINT64_C(1) << 63;

/* Number i of the keys that are known here: the first ones, some lonely ones, and the last ones of the space. */
static tr_key key_at(size_t i)
{
    if (i < 200) return i;
    if (i < 500) return (i - 199) * (SPACE / 302) + i;
    return SPACE - KEYS + i;
}

/* How many keys the servers have in their maps. All ranks. */
static uint64_t keys_present(const tr_table *table)
{
    uint64_t mine = table->map ? table->map->count : 0, all;
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* ---- sums ---- */

struct trial {
    const struct tr_layout *layout;
    uint64_t seed;
    enum tr_dtype dtype;
    size_t width;
    bool exact; /* BSP: the value is known at every clock */
    bool groups;
    tr_table *table;
    tr_view *view, *all;    /* all: of every known key, to read */
    tr_key key[KEYS];       /* of the view */
    size_t number[KEYS], n; /* numbers of the keys in the view */
    double *expected;       /* KEYS × width */
    bool present[KEYS];
    size_t checked;
};

static int owner_of(const struct trial *t, int worker)
{
    return t->groups ? worker / t->layout->group_size : worker;
}

/* Every eleventh key is read only. */
static bool has_key(const struct trial *t, int owner, size_t i)
{
    switch ((t->seed + (uint64_t)owner) % 4) {
    case 0: return tr_mix(i + t->seed * 77 + (uint64_t)owner) % 2 && i % 11;
    case 1: return i % 3 == 0 && i % 11;
    case 2: return i == (size_t)(tr_mix(t->seed) % (KEYS / 11)) * 11 + 1;
    default: return i % 11;
    }
}

/* The value of all elements of a key: always 0 for every seventh key, and 0 for other keys before their first update. */
static double change(const struct trial *t, int worker, int64_t clock, size_t i)
{
    if (i % 7 == 0 || clock < (int64_t)(i % CLOCKS)) return 0;
    return (double)(tr_mix(t->seed + tr_mix((uint64_t)worker + tr_mix((uint64_t)clock + tr_mix(i)))) % 17) +
           1;
}

static int prepare(tr_worker *me, void *state)
{
    struct trial *t = state;
    tr_key all[KEYS];
    t->n = 0;
    for (size_t i = 0; i < KEYS; i++) {
        all[i] = key_at(i);
        if (!has_key(t, owner_of(t, me->worker), i)) continue;
        t->number[t->n] = i;
        t->key[t->n++] = all[i];
    }
    TR_TRY(tr_view_open(t->table, t->key, t->n, t->groups ? TR_VIEW_GROUP : TR_VIEW_UPDATE, &t->view));
    return tr_view_open(t->table, all, KEYS, TR_VIEW_READ, &t->all);
}

static void check(struct trial *t, const tr_view *view, const size_t *number, int64_t clock)
{
    for (size_t i = 0; i < view->n; i++)
        for (size_t e = 0; e < t->width; e++, t->checked++) {
            size_t k = number ? number[i] : i;
            double found = element(t->dtype, view->value, i * t->width + e),
                   wanted = t->expected[k * t->width + e];
            mpi_check(found == wanted, "clock %ld key %lu element %zu: %g, not %g", clock, key_at(k), e,
                      found, wanted);
        }
}

/* What all workers push in this clock. */
static void expect_clock(struct trial *t, int64_t clock)
{
    for (int worker = 0; worker < tr_layout_workers(t->layout); worker++)
        for (size_t i = 0; i < KEYS; i++) {
            double more = has_key(t, owner_of(t, worker), i) ? change(t, worker, clock, i) : 0;
            for (size_t e = 0; e < t->width; e++) t->expected[i * t->width + e] += more;
            t->present[i] = t->present[i] || more != 0;
        }
}

static int compute(tr_worker *me, void *state)
{
    struct trial *t = state;
    TR_TRY(tr_view_pull(t->view));
    TR_TRY(tr_view_pull(t->all));
    if (t->exact) check(t, t->view, t->number, me->clock);
    if (t->exact) check(t, t->all, NULL, me->clock);
    if (!t->exact && !t->groups) TR_TRY(tr_view_prefetch(t->view));
    for (size_t i = 0; i < t->n * t->width; i++)
        set_element(t->dtype, t->view->delta, i, change(t, me->worker, me->clock, t->number[i / t->width]));
    TR_TRY(tr_view_push(t->view));
    if (t->exact) expect_clock(t, me->clock);
    return TR_OK;
}

static int check_top(const struct trial *t)
{
    enum { TOP = 10 };
    size_t bytes = sizeof(struct tr_top) + TOP * sizeof(struct tr_top_pair);
    struct tr_top *top = malloc(bytes);
    if (!top) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    TR_TRY(tr_table_ask(t->table, "top", &(uint32_t){TOP}, sizeof(uint32_t), top, &bytes));
    mpi_check(top->n <= TOP, "top: %u", top->n);
    for (uint32_t k = 0; k < top->n; k++) {
        size_t i = 0, larger = 0;
        while (i < KEYS && key_at(i) != top->pair[k].key) i++;
        for (size_t j = 0; j < KEYS; j++) larger += t->expected[j] > top->pair[k].value;
        mpi_check(i < KEYS && t->expected[i] == top->pair[k].value && larger <= k, "top %u: key %lu, %g", k,
                  top->pair[k].key, top->pair[k].value);
    }
    free(top);
    return TR_OK;
}

static int check_answers(struct trial *t)
{
    double squares = 0, sum = 0, found = 0;
    uint64_t zeros = 0, nonzeros = 0;
    for (size_t i = 0; i < KEYS * t->width; i++) {
        squares += t->expected[i] * t->expected[i];
        sum += t->expected[i];
        zeros += t->expected[i] == 0;
    }
    size_t bytes = sizeof found;
    TR_TRY(tr_table_squares(t->table, &found));
    mpi_equal(found, squares);
    TR_TRY(tr_table_ask(t->table, "sum1", NULL, 0, &found, &bytes));
    mpi_equal(found, sum);
    TR_TRY(tr_table_ask(t->table, "nonzeros", NULL, 0, &nonzeros, &bytes));
    mpi_equal(nonzeros, KEYS * t->width - zeros);

    struct tr_soft soft = {.first = key_at(500), .n = KEYS - 500, .threshold = 3};
    double *softened;
    bytes = (KEYS - 500) * t->width * sizeof *softened;
    TR_TRY(TR_NEW(&softened, (KEYS - 500) * t->width));
    TR_TRY(tr_table_ask(t->table, "soft", &soft, sizeof soft, softened, &bytes));
    for (size_t i = 0; i < (KEYS - 500) * t->width; i++) {
        double wanted = fmax(t->expected[500 * t->width + i] - 3, 0);
        mpi_check(softened[i] == wanted, "soft %zu: %g, not %g", i, softened[i], wanted);
    }
    free(softened);

    /* one that is there and one that is not, which is of the same block of keys: all its pieces are known */
    for (size_t i = 0; i < 2; i++) {
        size_t a = 1 + i, b = i == 0 ? 8 : 7;
        struct tr_dot dot = {0};
        double wanted = 0;
        bytes = sizeof dot;
        for (size_t e = 0; e < t->width; e++)
            wanted += t->expected[a * t->width + e] * t->expected[b * t->width + e];
        TR_TRY(tr_table_ask(t->table, "dot", (tr_key[]){key_at(a), key_at(b)}, 2 * sizeof(tr_key), &dot,
                            &bytes));
        bool together = tr_partition_locate(&t->table->partition, key_at(a)).server ==
                        tr_partition_locate(&t->table->partition, key_at(b)).server;
        mpi_check(dot.pieces == together, "dot %zu: %lu pieces", i, dot.pieces);
        mpi_check(!together || dot.sum == wanted, "dot %zu: %g, not %g", i, dot.sum, wanted);
    }
    return t->width == 1 ? check_top(t) : TR_OK;
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct trial *t = state;
    for (int64_t clock = 0; !t->exact && clock < CLOCKS; clock++) expect_clock(t, clock);
    TR_TRY(tr_view_pull(t->view));
    TR_TRY(tr_view_pull(t->all));
    check(t, t->view, t->number, me->clock);
    check(t, t->all, NULL, me->clock);
    report->sum[0] = 1;
    return me->worker == 0 ? check_answers(t) : TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    const struct trial *t = state;
    mpi_equal(sums->sum[0], tr_layout_workers(t->layout));
    return TR_OK;
}

/* The keys that were changed are there, and no other. */
static void check_presence(struct trial *t)
{
    uint64_t wanted = 0;
    for (size_t i = 0; i < KEYS; i++) wanted += t->present[i];
    if (!(t->layout->place[mpi_test.rank].roles & TR_SLAVE)) wanted = 0;
    MPI_Allreduce(MPI_IN_PLACE, &wanted, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    uint64_t found = keys_present(t->table);
    mpi_equal(found, wanted);
    for (size_t i = 0; t->table->map && i < KEYS; i++) {
        uint32_t server = tr_partition_locate(&t->table->partition, key_at(i)).server;
        uint32_t slot = tr_hashmap_find(t->table->map, key_at(i));
        mpi_check(slot == TR_NO_SLOT || (int)server == t->table->server, "key number %zu is astray", i);
    }
}

/* Two stages in a row over one table. */
static void run_trial(const char *settings, enum tr_dtype dtype, size_t width, uint64_t seed)
{
    tr_context *tr = mpi_context(settings);
    struct trial t = {.layout = &tr->layout,
                      .seed = seed,
                      .dtype = dtype,
                      .width = width,
                      .exact = !strstr(settings, "ssp") && !strstr(settings, "asp"),
                      .groups = tr->layout.group_size > 1};
    uint64_t rows = width > 1 ? SPACE : 1, columns = width > 1 ? width : SPACE;
    mpi_ok(tr_table_create(tr, "h", dtype, rows, columns, &t.table));
    mpi_ok(TR_NEW(&t.expected, KEYS * width));
    mpi_check(tr_table_keys(t.table) == SPACE && tr_table_width(t.table) == width, "the shape");
    for (int stage = 0; stage < 2; stage++) {
        mpi_ok(tr_run(tr, &(tr_stage){.name = "trial",
                                      .state = &t,
                                      .clocks = CLOCKS,
                                      .prepare = prepare,
                                      .compute = compute,
                                      .evaluate = evaluate,
                                      .summarize = summarize}));
        t.seed++;
        tr_view_close(&t.view);
        tr_view_close(&t.all);
        check_presence(&t);
    }
    free(t.expected);
    mpi_ok(tr_table_drop(&t.table));
    mpi_ok(tr_close(tr));
}

/* Every layout, with another mix of types, widths and partitions each. Rows of 2100 f64 are longer than the longest
 * unit of a dense table. */
static void all_layouts(int way, const char *sync)
{
    static const char *const partitions[] = {"range-hash",
                                             "range",
                                             "hash",
                                             "ring",
                                             "range-hash table.block=3",
                                             "ring table.servers=1",
                                             "hash table.route=request"};
    static const enum tr_dtype dtypes[] = {TR_F32, TR_I64, TR_F64, TR_I32};
    static const size_t widths[] = {1, 3, 1, 1, 2};
    uint64_t turn = 0;
    for (int i = 0; mpi_layout(i); i++)
        for (int more = 0; more < 3; more++, turn++) {
            if (!mpi_chosen(i, more + way, 3)) continue;
            const char *settings = mpi_text("%s %s table.storage=hash table.partition=%s", mpi_layout(i),
                                            sync, partitions[turn % 7]);
            run_trial(settings, dtypes[turn % 4], turn == 6 ? 2100 : widths[turn % 5], turn + 1);
        }
}

MPI_CALLS(bsp_is_exact, all_layouts(0, "sync.mode=bsp"));
MPI_CALLS(ssp_adds_all, all_layouts(1, "sync.mode=ssp sync.staleness=1"));
MPI_CALLS(asp_adds_all, all_layouts(2, "sync.mode=asp table.push=message"));
MPI_CASE(encodings_do_not_matter)
{
    static const char *const encodings[] = {"dense", "sparse", "bitmap"};
    for (uint64_t i = 0; i < 3; i++)
        run_trial(mpi_text("table.storage=hash table.encoding=%s", encodings[i]), i == 1 ? TR_F64 : TR_F32,
                  1 + i, 7 + i);
}

/* ---- growth, while others read: more keys than one message holds ---- */

enum { MANY = 150000, STEPS = 6 };

struct growth {
    tr_table *table;
    tr_view *view;
    int workers;
    double *last;
};

static int prepare_growth(tr_worker *me, void *state)
{
    struct growth *g = state;
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, MANY));
    TR_TRY(TR_NEW(&g->last, MANY));
    for (size_t i = 0; i < MANY; i++) keys[i] = (tr_key)i * (SPACE / MANY) + 5;
    int status = tr_view_open(g->table, keys, MANY, TR_VIEW_UPDATE, &g->view);
    free(keys);
    return status;
}

/* Each worker counts the keys of a part up that moves with the clock and is another one for each. */
static int grow(tr_worker *me, void *state)
{
    struct growth *g = state;
    TR_TRY(tr_view_pull(g->view));
    const float *value = g->view->value;
    for (size_t i = 0; i < MANY; i++) {
        mpi_check(value[i] >= (float)g->last[i], "key %zu went from %g to %g", i, g->last[i],
                  (double)value[i]);
        mpi_check(value[i] <= (float)g->workers, "key %zu: %g", i, (double)value[i]);
        g->last[i] = (double)value[i];
    }
    float *delta = g->view->delta;
    for (size_t i = 0; i < MANY; i++)
        if ((i / 32 + (size_t)me->worker) % STEPS == (size_t)me->clock) delta[i] = 1;
    return tr_view_push(g->view);
}

static int evaluate_growth(tr_worker *me, void *state, tr_report *report)
{
    struct growth *g = state;
    TR_TRY(tr_view_pull(g->view));
    const float *value = g->view->value;
    for (size_t i = 0; i < MANY; i++)
        mpi_check(value[i] == (float)g->workers, "worker %d: key %zu is %g", me->worker, i, (double)value[i]);
    report->sum[0] = 1;
    return TR_OK;
}

MPI_CASE(tables_grow_while_others_read)
{
    static const char *const settings[] = {
        "sync.mode=asp", "sync.mode=ssp sync.staleness=3 ranks.node_size=1", "sync.mode=bsp",
        "sync.mode=ssp sync.staleness=2 ranks.layout=dedicated ranks.servers=1"};
    for (int i = 0; i < (mpi_test.size < 3 ? 3 : 4); i++) {
        tr_context *tr = mpi_context(settings[i]);
        struct growth g = {.workers = tr_layout_workers(&tr->layout)};
        tr_table_options hash = {.hash = true};
        mpi_ok(tr_table_create_with(tr, "g", TR_F32, 1, SPACE, &hash, &g.table));
        mpi_check(keys_present(g.table) == 0, "a new table has keys");
        mpi_ok(tr_run(tr, &(tr_stage){.name = "growth",
                                      .state = &g,
                                      .clocks = STEPS,
                                      .prepare = prepare_growth,
                                      .compute = grow,
                                      .evaluate = evaluate_growth}));
        tr_view_close(&g.view);
        uint64_t keys = keys_present(g.table);
        mpi_equal(keys, MANY);
        size_t bytes = g.table->map ? tr_hashmap_memory(g.table->map) : 0, here = 0;
        if (g.table->map) here = g.table->map->count;
        mpi_check(bytes <= here * 30 + 65536, "%zu bytes for %zu keys", bytes, here);
        free(g.last);
        mpi_ok(tr_close(tr));
    }
}

/* ---- functions: the same as on a dense table that lies on the same servers ---- */

enum { FEW = 900, PAIR = 2 };

struct pair {
    tr_table *table[PAIR];
    tr_view *view[PAIR];
    tr_key key[FEW];
    size_t n;
    int64_t clocks;
    const char *function;
    double tolerance;
    bool lockstep;
};

static int prepare_pair(tr_worker *me, void *state)
{
    struct pair *p = state;
    p->n = 0;
    for (tr_key k = 0; k < FEW; k++)
        if (tr_mix(k * 5 + (uint64_t)me->worker) % 3) p->key[p->n++] = k;
    for (int i = 0; i < PAIR; i++)
        TR_TRY(tr_view_open(p->table[i], p->key, p->n, TR_VIEW_UPDATE, &p->view[i]));
    return TR_OK;
}

static void compare(struct pair *p, int64_t clock)
{
    const double *dense = p->view[0]->value, *hash = p->view[1]->value;
    for (size_t i = 0; i < p->n * p->view[0]->width; i++)
        mpi_check(fabs(dense[i] - hash[i]) <= p->tolerance * (1 + fabs(dense[i])),
                  "%s, clock %ld key %lu: %.17g by hash, %.17g dense", p->function, clock,
                  p->key[i / p->view[0]->width], hash[i], dense[i]);
}

/* Nine of ten keys have their turn in a clock. */
static int compute_pair(tr_worker *me, void *state)
{
    struct pair *p = state;
    for (int i = 0; i < PAIR; i++) TR_TRY(tr_view_pull(p->view[i]));
    if (p->lockstep) compare(p, me->clock);
    for (int i = 0; i < PAIR; i++) {
        double *delta = p->view[i]->delta;
        size_t width = p->view[i]->width;
        for (size_t k = 0; k < p->n * width; k++) {
            uint64_t mixed = tr_mix(p->key[k / width] + tr_mix((uint64_t)(me->worker + 100 * me->clock)));
            delta[k] =
                mixed % 10 == 0 ? 0 : 0.01 * ((double)(mixed % 101) - 30) + 0.001 * (double)(k % width);
        }
        TR_TRY(tr_view_push(p->view[i]));
    }
    return TR_OK;
}

static int evaluate_pair(tr_worker *me, void *state, tr_report *report)
{
    struct pair *p = state;
    for (int i = 0; i < PAIR; i++) TR_TRY(tr_view_pull(p->view[i]));
    if (p->lockstep) compare(p, me->clock);
    report->sum[0] = 1;
    return TR_OK;
}

/* tolerance: for those that add in another order, or judge by sums over shares. */
static void same_as_dense(const char *settings, const char *function, double tolerance, size_t width)
{
    tr_context *tr = mpi_context(settings);
    struct pair p = {.clocks = 6, .function = function, .tolerance = tolerance};
    bool alone = tr_layout_workers(&tr->layout) == 1;
    p.lockstep = !strstr(settings, "ssp") || alone;
    tr_optimizer optimizer = {.rate = 0.05, .momentum = 0.8, .memory = -1, .epsilon = -1};
    for (int kind = 0; tr_optimizer_name((enum tr_optimizer_kind)kind); kind++)
        if (!strcmp(function, tr_optimizer_name((enum tr_optimizer_kind)kind)))
            optimizer.kind = (enum tr_optimizer_kind)kind;
    double rate = 0.25;
    const void *argument = !strcmp(function, "scale") ? (const void *)&rate : &optimizer;
    for (int i = 0; i < PAIR; i++) {
        tr_table_options options = {.hash = i == 1};
        uint64_t rows = width > 1 ? FEW : 1, columns = width > 1 ? width : FEW;
        mpi_ok(tr_table_create_with(tr, i ? "hash" : "dense", TR_F64, rows, columns, &options, &p.table[i]));
        mpi_ok(tr_table_use(p.table[i], "momentum", &(tr_optimizer){.kind = TR_MOMENTUM, .rate = 0.1}));
    }
    /* first with another function, whose state is gone after that */
    for (int stage = 0; stage < 3; stage++) {
        for (int i = 0; stage == 1 && i < PAIR; i++) mpi_ok(tr_table_use(p.table[i], function, argument));
        mpi_ok(tr_run(tr, &(tr_stage){.name = function,
                                      .state = &p,
                                      .clocks = p.clocks,
                                      .prepare = prepare_pair,
                                      .compute = compute_pair,
                                      .evaluate = evaluate_pair}));
        for (int i = 0; i < PAIR; i++) tr_view_close(&p.view[i]);
    }
    mpi_ok(tr_close(tr));
}

static const struct {
    const char *name;
    double tolerance;
} functions[] = {{"add", 0},       {"assign", 0},   {"max", 0},  {"scale", 0},
                 {"adagrad", 0},   {"adam", 0},     {"ftrl", 0}, {"dyn", 1e-10},
                 {"agree", 1e-10}, {"momentum", 0}, {"sgd", 0},  {"rmsprop", 0}};
enum { FUNCTIONS = COUNT(functions) };

MPI_CASE(functions_do_the_same_as_on_dense_tables)
{
    static const char *const layouts[] = {"ranks.layout=auto", "ranks.layout=auto ranks.node_size=1",
                                          "ranks.layout=dedicated"};
    for (int f = 0; f < FUNCTIONS; f++)
        same_as_dense(mpi_text("table.partition=range %s", layouts[mpi_test.size > 2 ? f % 3 : 0]),
                      functions[f].name, functions[f].tolerance, f % 2 ? 1 : 4);
}

MPI_CASE(functions_run_without_lockstep)
{
    for (int f = 0; f < FUNCTIONS; f++)
        same_as_dense(mpi_text("table.partition=range sync.mode=ssp sync.staleness=%d %s", f % 4,
                               f % 3 && mpi_test.size > 1 ? "ranks.node_size=1" : ""),
                      functions[f].name, functions[f].tolerance, f % 2 ? 4 : 1);
}

/* ---- staleness ---- */

static int count_up(tr_worker *me, void *state)
{
    struct pair *p = state;
    TR_TRY(tr_view_pull(p->view[0]));
    double *delta = p->view[0]->delta;
    for (size_t k = 0; k < p->n; k++) delta[k] = p->key[k] % 4 == 3 && me->clock < 2 ? 0 : 1;
    return tr_view_push(p->view[0]);
}

static int prepare_counting(tr_worker *me, void *state)
{
    struct pair *p = state;
    for (p->n = 0; p->n < KEYS; p->n++) p->key[p->n] = key_at(p->n);
    return tr_view_open(p->table[0], p->key, p->n, TR_VIEW_UPDATE, &p->view[0]);
}

/* A version counts as the mean of its updates, which are all 1: a key's value is the number of its versions, at most one
 * for each update and at least one for each clock of a worker, who is a version further each time; unless he is told
 * again to read the stable one that he has read before. */
static int evaluate_counting(tr_worker *me, void *state, tr_report *report)
{
    struct pair *p = state;
    TR_TRY(tr_view_pull(p->view[0]));
    const double *value = p->view[0]->value;
    for (size_t k = 0; k < p->n; k++) {
        double clocks = (double)(p->key[k] % 4 == 3 ? p->clocks - 2 : p->clocks), most = clocks * me->workers;
        double least = strstr(p->function, "stable") ? 1 : clocks;
        mpi_check(value[k] >= least - 1e-9 && value[k] <= most + 1e-9, "key number %zu: %g", k, value[k]);
    }
    report->sum[0] = 1;
    return TR_OK;
}

MPI_CASE(stale_updates_are_weighted)
{
    static const char *const names[] = {"dyn", "dyn-stable"};
    for (int f = 0; f < 2; f++) {
        tr_context *tr = mpi_context("table.storage=hash sync.mode=ssp sync.staleness=2");
        struct pair p = {.clocks = 8, .function = names[f]};
        mpi_ok(tr_table_create(tr, "h", TR_F64, 1, SPACE, &p.table[0]));
        mpi_ok(tr_table_use(p.table[0], names[f], NULL));
        mpi_ok(tr_run(tr, &(tr_stage){.name = names[f],
                                      .state = &p,
                                      .clocks = p.clocks,
                                      .prepare = prepare_counting,
                                      .compute = count_up,
                                      .evaluate = evaluate_counting}));
        tr_view_close(&p.view[0]);
        mpi_ok(tr_close(tr));
    }
}

/* ---- what does not go together ---- */

static uint32_t anywhere(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    return (uint32_t)(block % servers);
}

static void refused(const char *settings, tr_table_options options, uint64_t keys, const char *words)
{
    tr_context *tr = mpi_context(settings);
    tr_table *table;
    int status = tr_table_create_with(tr, "h", TR_F32, 1, keys, &options, &table);
    mpi_equal(status, TR_ERR_CONFIG);
    mpi_check(mpi_test.rank > 0 || strstr(tr_error_text(), words), "%s: not %s", tr_error_text(), words);
    (void)tr_close(tr);
}

MPI_CASE(what_hash_storage_cannot_do_is_refused)
{
    tr_table_options hash = {.hash = true};
    refused("table.route=load", hash, 10, "table.route");
    refused("table.route=get", hash, 10, "table.route");
    refused("table.push=merge", hash, 10, "table.push");
    refused("table.push=accumulate", hash, 10, "table.push");
    refused("table.block=1", hash, SPACE + 1, "2^63");
    refused("table.block=1", (tr_table_options){.hash = true, .place = anywhere}, 10, "function");
    refused("table.block=1", (tr_table_options){0}, SPACE, "table.storage=hash");
    tr_context *tr =
        mpi_context("table.storage=hash"); /* the place function was asked for, this only of the job */
    tr_table *table;
    mpi_ok(tr_table_create_with(tr, "d", TR_F32, 1, 10, &(tr_table_options){.place = anywhere}, &table));
    mpi_check(!table->hash, "hash storage with a place function");
    mpi_ok(tr_close(tr));
}
