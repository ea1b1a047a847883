/* Tables against a plain array: for every layout, partition, route and way of pushing, a worker reads the updates of
 * all workers. Under BSP the values are known exactly at every clock, so every pull is checked. */
#include "mpi_unit.h"
#include "../elements.h"
#include "table/server.h"
#include "table/table.h"
#include "table/view.h"

enum { CLOCKS = 3, TABLES = 3, KEYS_READ = 4000 };

struct shape {
    enum tr_dtype dtype;
    uint64_t rows, columns;
};

struct trial {
    struct tr_layout *layout;
    uint64_t seed;
    struct one {
        struct shape shape;
        size_t keys, width;
        tr_table *table;
        tr_view *view;
        tr_key *key; /* of this worker's view */
        size_t n;
        double *expected; /* keys × width: what the table should hold */
        bool *chosen;     /* by key: scratch */
    } one[TABLES];
    int tables;
    bool groups; /* views of groups */
    int64_t checked;
};

/* Small whole numbers, so that sums are exact in every type; floats get a factor that is not. */
static double change(const struct trial *t, int table, int worker, int64_t clock, size_t element)
{
    uint64_t mixed =
        tr_mix(t->seed + tr_mix((uint64_t)table +
                                tr_mix((uint64_t)worker + tr_mix((uint64_t)clock + tr_mix(element)))));
    double whole = (double)(mixed % 17) - 8;
    return t->one[table].shape.dtype <= TR_F64 ? whole * 0.37 : whole;
}

/* Which keys the owner-th view has: some, none, one, all, every third. */
static void choose(const struct trial *t, int table, int owner, bool *chosen)
{
    const struct one *o = &t->one[table];
    struct tr_rng rng;
    tr_rng_seed(&rng, t->seed, (uint64_t)owner, (uint64_t)table);
    uint64_t kind = (t->seed + (uint64_t)owner + (uint64_t)table) % 5, single = tr_rng_below(&rng, o->keys);
    for (size_t k = 0; k < o->keys; k++) switch (kind) {
        case 0: chosen[k] = tr_rng_below(&rng, 2); break;
        case 1: chosen[k] = false; break;
        case 2: chosen[k] = k == single; break;
        case 3: chosen[k] = true; break;
        default: chosen[k] = k % 3 == 0; break;
        }
}

static int owner_of(const struct trial *t, int worker)
{
    return t->groups ? worker / t->layout->group_size : worker;
}

static int prepare(tr_worker *me, void *state)
{
    struct trial *t = state;
    for (int k = 0; k < t->tables; k++) {
        struct one *o = &t->one[k];
        choose(t, k, owner_of(t, me->worker), o->chosen);
        TR_TRY(TR_NEW(&o->key, o->keys));
        o->n = 0;
        for (size_t key = 0; key < o->keys; key++)
            if (o->chosen[key]) o->key[o->n++] = key;
        TR_TRY(tr_view_open(o->table, o->key, o->n, t->groups ? TR_VIEW_GROUP : TR_VIEW_UPDATE, &o->view));
    }
    return TR_OK;
}

static void check_view(struct trial *t, int table, int64_t clock)
{
    struct one *o = &t->one[table];
    double tolerance = o->shape.dtype == TR_F32 ? 1e-4 : o->shape.dtype == TR_F64 ? 1e-11 : 0;
    for (size_t i = 0; i < o->n; i++)
        for (size_t e = 0; e < o->width; e++) {
            double found = element(o->shape.dtype, o->view->value, i * o->width + e);
            double wanted = o->expected[o->key[i] * o->width + e];
            mpi_check(fabs(found - wanted) <= tolerance, "table %d clock %ld key %lu element %zu: %g, not %g",
                      table, clock, o->key[i], e, found, wanted);
            t->checked++;
        }
}

/* What all workers push in this clock. */
static void expect_clock(struct trial *t, int table, int64_t clock)
{
    struct one *o = &t->one[table];
    for (int worker = 0; worker < tr_layout_workers(t->layout); worker++) {
        choose(t, table, owner_of(t, worker), o->chosen);
        for (size_t key = 0; key < o->keys; key++)
            for (size_t e = key * o->width; o->chosen[key] && e < (key + 1) * o->width; e++)
                o->expected[e] += change(t, table, worker, clock, e);
    }
}

static int compute(tr_worker *me, void *state)
{
    struct trial *t = state;
    for (int k = 0; k < t->tables; k++) {
        TR_TRY(tr_view_pull(t->one[k].view));
        check_view(t, k, me->clock);
    }
    for (int k = 0; k < t->tables; k++) {
        struct one *o = &t->one[k];
        for (size_t i = 0; i < o->n; i++)
            for (size_t e = 0; e < o->width; e++)
                set_element(o->shape.dtype, o->view->delta, i * o->width + e,
                            change(t, k, me->worker, me->clock, o->key[i] * o->width + e));
        if (k != 1 || me->clock != 1) TR_TRY(tr_view_push(o->view)); /* else it is pushed as the clock ends */
        expect_clock(t, k, me->clock);
    }
    return TR_OK;
}

/* What the tables hold in the end, and its squares. */
static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct trial *t = state;
    for (int k = 0; k < t->tables; k++) {
        struct one *o = &t->one[k];
        TR_TRY(tr_view_pull(o->view));
        check_view(t, k, me->clock);
        if (me->worker != 0) continue;
        double sum = 0, squares = 0;
        TR_TRY(tr_table_squares(o->table, &squares));
        for (size_t i = 0; i < o->keys * o->width; i++) sum += o->expected[i] * o->expected[i];
        mpi_check(fabs(sum - squares) <= 1e-5 * sum, "table %d: squares %g, not %g", k, squares, sum);
    }
    report->sum[0] = 1;
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    const struct trial *t = state;
    mpi_equal(sums->sum[0], tr_layout_workers(t->layout));
    return TR_OK;
}

static uint32_t unevenly(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    return (uint32_t)(tr_mix(block + *(uint64_t *)who) % (blocks + servers) % servers);
}

static uint32_t nowhere(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    return block == blocks - 1 ? servers : 0;
}

/* Zeros, a constant, random numbers. */
static enum tr_initial initial_of(uint64_t turn)
{
    return (enum tr_initial)(turn / 2 % 4);
}

static void expect_initial(struct one *o, uint64_t turn)
{
    for (size_t i = 0; i < o->keys * o->width; i++) {
        double x = tr_initial_element(initial_of(turn), 2.5, turn, i / o->width, i % o->width);
        o->expected[i] = o->shape.dtype <= TR_F64 ? x : rint(x);
    }
}

/* On some or all servers; now and then by a function of the user's own. */
static int create(tr_context *tr, const struct shape *shape, uint64_t turn, tr_table **table)
{
    tr_table_options options = {.who = &turn, .initial = initial_of(turn), .scale = 2.5, .seed = turn};
    if (turn % 3 != 0) options.servers = 1 + (uint32_t)(turn % (uint64_t)tr->layout.servers);
    if (turn % 5 == 4) options.place = unevenly;
    return tr_table_create_with(tr, "t", shape->dtype, shape->rows, shape->columns, &options, table);
}

/* Two stages in a row over the same tables, in a context with these settings. */
static void run_trial(const char *settings, const struct shape *shapes, int tables, uint64_t seed, int stages)
{
    tr_context *tr = mpi_context(settings);
    struct trial t = {
        .layout = &tr->layout, .seed = seed, .tables = tables, .groups = tr->layout.group_size > 1};
    for (int k = 0; k < tables; k++) {
        struct one *o = &t.one[k];
        o->shape = shapes[k];
        mpi_ok(create(tr, &shapes[k], seed + (uint64_t)k, &o->table));
        o->keys = tr_table_keys(o->table);
        o->width = tr_table_width(o->table);
        mpi_ok(TR_NEW(&o->expected, o->keys * o->width));
        expect_initial(o, seed + (uint64_t)k);
        mpi_ok(TR_NEW(&o->chosen, o->keys));
    }
    for (int stage = 0; stage < stages; stage++) {
        mpi_ok(tr_run(tr, &(tr_stage){.name = "trial",
                                      .state = &t,
                                      .clocks = CLOCKS,
                                      .prepare = prepare,
                                      .compute = compute,
                                      .evaluate = evaluate,
                                      .summarize = summarize}));
        t.seed++;
        for (int k = 0; k < tables; k++) {
            tr_view_close(&t.one[k].view);
            free(t.one[k].key);
            t.one[k].key = NULL;
        }
    }
    for (int k = 0; k < tables; k++) {
        TR_FREE_ALL(t.one[k].expected, t.one[k].chosen);
    }
    mpi_ok(tr_close(tr));
}

/* Some shapes of every type: vectors, matrices, rows wider than 16 KiB, fewer keys than servers. */
static const struct shape shapes[][TABLES] = {
    {{TR_F32, 1, 1500}, {TR_I64, 37, 10}, {TR_F64, 1, 3}},
    {{TR_I32, 1, 1500}, {TR_F64, 5, 3 * 2000}, {TR_I64, 1, 700}},
    {{TR_F64, 1, 1500}, {TR_I32, 29, 7}, {TR_F32, 7, 8192}},
    {{TR_I64, 1, 1500}, {TR_F32, 41, 5}, {TR_I32, 3, 5000}},
};

static const char *const partitions[] = {"range",
                                         "hash",
                                         "range-hash",
                                         "range-hash table.block=16",
                                         "ring",
                                         "ring table.block=16 table.virtual_nodes=2",
                                         "range-hash table.servers=1"};
enum { PARTITIONS = COUNT(partitions) };

/* Every way of pushing with every route, each with another mix of types, shapes and partitions. */
static void all_routes(int way, const char *push)
{
    static const char *const routes[] = {"auto", "load", "get", "request"};
    uint64_t turn = 0;
    const char *layout;
    for (int i = 0; (layout = mpi_layout(i)); i++)
        for (size_t r = 0; r < 4; r++) {
            bool nodes = mpi_test.hosts || strstr(layout, "node_size");
            if (r == 1 && nodes) continue;                              /* load is for one node */
            if (r > 0 && nodes && strstr(push, "accumulate")) continue; /* MPI takes long for each element */
            turn++;
            if (!mpi_chosen(i, (int)r + way, 3)) continue;
            run_trial(mpi_text("%s table.route=%s %s table.partition=%s", layout, routes[r], push,
                               partitions[(turn + turn / 4) % PARTITIONS]),
                      shapes[turn % 4], TABLES, turn, 1 + (r == 3));
        }
}

MPI_CALLS(direct_merge_adds_all, all_routes(0, "table.push=merge table.merge=direct"));
MPI_CALLS(merge_in_rounds_adds_all, all_routes(1, "table.push=auto table.merge=rounds"));
MPI_CALLS(accumulate_adds_all, all_routes(2, "table.push=accumulate"));
MPI_CALLS(messages_add_all, all_routes(3, "table.push=message"));

/* Long enough for several chunks of every kind. */
MPI_CASE(large_tables_go_in_chunks)
{
    static const char *const ways[] = {
        "table.push=merge table.merge=direct ranks.servers=1",
        "table.push=merge table.merge=rounds table.route=request ranks.servers=1",
        "table.push=message table.route=request ranks.servers=1",
        "table.push=accumulate table.route=auto ranks.servers=1",
        "table.push=merge table.merge=direct ranks.node_size=1 table.virtual_nodes=1", /* of unequal shares */
        "table.push=merge table.merge=rounds ranks.node_size=1 table.virtual_nodes=1"};
    static const struct shape vector = {TR_I64, 1, 300000};
    for (size_t i = 0; i < COUNT(ways); i++) {
        run_trial(mpi_text("%s table.partition=%s %s", ways[i], i < 4 ? partitions[i] : "ring",
                           mpi_test.size > 2 && i == 1 ? "ranks.node_size=1" : ""),
                  &vector, 1, 3 * (i + 1), 1); /* on all servers */
    }
    /* Open MPI 5 takes a second for each 100k scattered elements that are fetched one-sidedly */
    static const struct shape shorter = {TR_I64, 1, 40000};
    run_trial("table.route=get ranks.servers=1 table.partition=range", &shorter, 1, 3, 1);
}

/* Small tables begin where the last one ended; one on all servers begins at the first. */
MPI_CASE(small_tables_spread)
{
    tr_context *tr = mpi_context("table.servers=1");
    int all = tr->layout.servers;
    for (int i = 0; i < 2 * all; i++) {
        tr_table *table, *wide;
        mpi_ok(tr_table_create(tr, "small", TR_F32, 1, 10, &table));
        mpi_check(table->first_server == (uint32_t)(i % all), "table %d begins at server %u", i,
                  table->first_server);
        int rank = tr_table_server_rank(table, 0);
        mpi_check(tr->layout.place[rank].server == i % all, "table %d lies on rank %d", i, rank);
        mpi_check(table->server == (tr->rank == rank ? 0 : -1), "table %d: here is server %d", i,
                  table->server);
        mpi_check((table->share_units > 0) == (tr->rank == rank), "table %d: %lu units", i,
                  table->share_units);
        mpi_ok(tr_table_create_with(tr, "wide", TR_F32, 1, 10, &(tr_table_options){.servers = (uint32_t)all},
                                    &wide));
        for (int server = 0; server < all; server++)
            mpi_check(tr_table_server_rank(wide, (uint32_t)server) == tr->layout.server_rank[server],
                      "server %d of a table on all is another", server);
        mpi_ok(tr_table_drop(&wide));
    }
    mpi_ok(tr_close(tr));
}

/* What the ranks do not agree on, and servers that do not exist: an error on all ranks alike. */
MPI_CASE(wrong_places_are_refused)
{
    for (int wrong = 0; wrong < 3; wrong++) {
        tr_context *tr = mpi_context("table.partition=hash");
        uint64_t salt = wrong == 0 && mpi_test.rank == mpi_test.size - 1;
        uint32_t servers = (uint32_t)tr->layout.servers;
        tr_table *table;
        tr_table_options options = {.block = 1, .place = unevenly, .who = &salt};
        if (wrong == 1) options.servers = servers + 1;
        if (wrong == 2) options.place = nowhere;
        int status = tr_table_create_with(tr, "t", TR_F32, 1, 1000, &options, &table);
        bool fine = wrong == 0 && servers == 1; /* it cannot but be the same */
        mpi_check(status == (fine ? TR_OK : TR_ERR_CONFIG), "trial %d: status %d", wrong, status);
        mpi_check(tr_close(tr) == status, "trial %d: the context ends otherwise", wrong);
    }
}

/* What random initial values promise: their mean, spread and range. */
MPI_CASE(random_values_are_as_random_as_said)
{
    enum { N = 20000 };
    double sum = 0, squares = 0, most = 0;
    for (tr_key key = 0; key < N; key++) {
        double normal = tr_initial_element(TR_INITIAL_NORMAL, 3, 1, key, 0);
        sum += normal;
        squares += normal * normal;
        most = fmax(most, fabs(tr_initial_element(TR_INITIAL_UNIFORM, 3, 1, 0, key)));
    }
    mpi_check(fabs(sum / N) < 0.1 && fabs(squares / N - 9) < 0.4, "mean %g, variance %g", sum / N,
              squares / N);
    mpi_check(most > 2.99 && most <= 3, "uniform up to %g", most);
}

/* Keys that a map does not have are zeros. */
MPI_CASE(only_dense_tables_have_initial_values)
{
    tr_context *tr = mpi_context("table.storage=hash");
    tr_table *table;
    tr_table_options options = {.initial = TR_INITIAL_CONSTANT, .scale = 1};
    int status = tr_table_create_with(tr, "t", TR_F32, 1, 1000, &options, &table);
    mpi_equal(status, TR_ERR_CONFIG);
    mpi_check(tr_close(tr) == status, "the context ends otherwise");
}

/* Closes a view while its servers cannot answer its request, because they wait for this rank. */
static int close_while_read(tr_worker *me, void *state)
{
    struct one *o = state;
    tr_key keys[KEYS_READ];
    tr_view *view;
    size_t awaited = 0;
    for (tr_key k = 0; k < KEYS_READ; k++) keys[k] = k;
    TR_TRY(tr_view_open(o->table, keys, KEYS_READ, TR_VIEW_READ, &view));
    tr_context *tr = o->table->tr;
    TR_TRY(tr_barrier(tr, tr->world, "all workers to have registered"));
    MPI_Barrier(MPI_COMM_WORLD);
    TR_TRY(tr_pull_start(view, view->value, TR_PULL_SERVERS, -1));
    tr_view_close(&view);
    for (struct tr_sending *m = tr->tables->sending; m; m = m->next)
        awaited += m->acknowledged != MPI_REQUEST_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    mpi_check(awaited > 0, "nobody keeps the memory of an answer that is still to come");
    return TR_OK;
}

MPI_CASE(answers_to_closed_views_have_memory)
{
    struct one o = {0};
    if (mpi_test.size == 1) return;
    tr_context *tr =
        mpi_context("ranks.layout=colocated ranks.node_size=1 table.route=request table.partition=range");
    mpi_ok(tr_table_create(tr, "t", TR_F32, 1, KEYS_READ, &o.table));
    mpi_ok(tr_run(tr, &(tr_stage){.name = "close", .state = &o, .clocks = 1, .compute = close_while_read}));
    mpi_ok(tr_tables_forget_views(tr));
    mpi_check(!tr->tables->sending, "an answer has not come");
    mpi_ok(tr_close(tr));
}
