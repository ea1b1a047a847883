/* Local models: copies of a table on one node, on which the workers of a stage work. */
#include "mpi_unit.h"

#include <limits.h>
#include <sys/resource.h>

#include "trireme/replica.h"
#include "../elements.h"

enum { KEYS = 1000, RUNS = 3, CLOCKS = 2, ROWS = 5, ROW = 7, WIDEST = 3 };
enum { WORK, LOOK, STAGES };

struct play;
typedef int play_fn(struct play *p, tr_worker *me);

struct play {
    tr_context *tr;
    tr_table *table;
    tr_replica *local;
    size_t width;
    int64_t runs[STAGES];           /* on rank 0 */
    play_fn *work;                  /* one clock of the first stage */
    double expected[KEYS * WIDEST]; /* what the runs so far should have made of the table */
};

/* ---- playing ---- */

static int work(tr_worker *me, void *state)
{
    struct play *p = state;
    return p->work(p, me);
}

static int open_look(tr_worker *me, void *state)
{
    struct play *p = state;
    return mpi_open_view(p->table, TR_VIEW_READ, (tr_view **)&me->kept);
}

static void close_look(void *kept)
{
    tr_view *view = kept;
    tr_view_close(&view);
}

static int look(tr_worker *me, void *state)
{
    struct play *p = state;
    tr_view *view = me->kept;
    TR_TRY(tr_view_pull(view));
    for (size_t i = 0; i < view->n * view->width; i++) {
        double seen = element(p->table->dtype, view->value, i);
        mpi_check(seen == p->expected[i], "element %zu is %g, expected %g", i, seen, p->expected[i]);
    }
    return TR_OK;
}

static int next(void *state, const tr_ran *ran, tr_next *next)
{
    struct play *p = state;
    int64_t run = p->runs[WORK];
    int stage = run < RUNS ? WORK : p->runs[LOOK] == 0 ? LOOK : -1;
    *next = (tr_next){.stage = stage, .clocks = stage == WORK ? CLOCKS : 1, .command.word[0] = run};
    if (stage >= 0) p->runs[stage]++;
    return TR_OK;
}

static int play(struct play *p)
{
    const tr_stage stages[] = {
        {.name = "work", .state = p, .one_group = true, .compute = work},
        {.name = "look", .state = p, .prepare = open_look, .compute = look, .release = close_look}};
    const tr_task task = {.name = "local", .stage = stages, .n = STAGES, .state = p, .next = next};
    memset(p->runs, 0, sizeof p->runs);
    return tr_run_task(p->tr, &task);
}

static void open_play(struct play *p, const char *settings, enum tr_dtype dtype, size_t rows, size_t columns)
{
    *p = (struct play){.tr = mpi_context(settings), .width = rows == 1 ? 1 : columns};
    mpi_ok(tr_table_create(p->tr, "w", dtype, rows, columns, &p->table));
}

static void close_play(struct play *p)
{
    tr_replica_close(&p->local);
    (void)tr_close(p->tr);
}

/* Settings in which every group is of one node. */
static const char *local_layout(int i)
{
    static char all[64];
    snprintf(all, sizeof all, "ranks.group_size=%d", mpi_test.size);
    const struct {
        int least, multiple;
        const char *settings;
    } layouts[] = {
        {1, 1, all},
        {2, 1, "ranks.layout=colocated"},
        {2, 2, "ranks.node_size=1"},
        {4, 2, "ranks.node_size=2 ranks.group_size=2 table.partition=hash"},
        {4, 1, "ranks.layout=dedicated ranks.servers=2 ranks.groups=1 ranks.group_size=1 ranks.node_size=2"},
        {6, 1, "ranks.servers=2 ranks.node_size=3 table.block=7"},
        {7, 1, "ranks.layout=dedicated ranks.servers=2 ranks.node_size=1"}};
    for (size_t k = 0; k < COUNT(layouts); k++)
        if (mpi_test.size >= layouts[k].least && mpi_test.size % layouts[k].multiple == 0 && i-- == 0)
            return mpi_test.hosts && k == 0 ? "ranks.layout=colocated" : layouts[k].settings;
    return NULL;
}

/* ---- sums ---- */

/* What a worker adds to in a clock: rows of ascending keys, small numbers. */
static void make_row(struct tr_rng *rng, size_t keys, tr_key *key, int *number)
{
    size_t step = keys / ROW;
    for (size_t i = 0; i < ROW; i++) {
        key[i] = i * step + tr_rng_below(rng, step);
        number[i] = (int)tr_rng_below(rng, 7) - 3;
    }
}

static void seed_rows(struct tr_rng *rng, int64_t run, int64_t clock, int worker)
{
    tr_rng_seed(rng, (uint64_t)run, (uint64_t)clock, (uint64_t)worker);
}

/* Element j of a key gets number + j. */
static void add_to_expected(struct play *p, int workers)
{
    tr_key key[ROW];
    int number[ROW];
    struct tr_rng rng;
    for (int64_t run = 0; run < RUNS; run++)
        for (int64_t clock = 0; clock < CLOCKS; clock++)
            for (int w = 0; w < workers; w++) {
                seed_rows(&rng, run, clock, w);
                for (int r = 0; r < ROWS; r++) {
                    make_row(&rng, p->table->keys, key, number);
                    for (size_t i = 0; i < ROW * p->width; i++)
                        p->expected[key[i / p->width] * p->width + i % p->width] +=
                            number[i / p->width] + (int)(i % p->width);
                }
            }
}

static int add_row(struct play *p, struct tr_rng *rng)
{
    tr_key key[ROW];
    int number[ROW];
    double seen[ROW * WIDEST], delta[ROW * WIDEST]; /* room for any type */
    make_row(rng, p->table->keys, key, number);
    for (size_t i = 0; i < ROW * p->width; i++)
        set_element(p->table->dtype, delta, i, number[i / p->width] + (int)(i % p->width));
    TR_TRY(tr_replica_read(p->local, key, ROW, seen));
    return tr_replica_add(p->local, key, ROW, delta);
}

static int add_rows(struct play *p, tr_worker *me)
{
    struct tr_rng rng;
    seed_rows(&rng, me->command.word[0], me->clock, me->worker);
    if (me->clock == 0) TR_TRY(tr_replica_take(p->local, me));
    for (int r = 0; r < ROWS; r++) TR_TRY(add_row(p, &rng));
    return me->clock == me->clocks - 1 ? tr_replica_give(p->local, me) : TR_OK;
}

static void play_sums(const char *settings, enum tr_dtype dtype, size_t rows, size_t columns)
{
    struct play p;
    open_play(&p, settings, dtype, rows, columns);
    mpi_ok(tr_replica_open(p.table, &p.local));
    p.work = add_rows;
    add_to_expected(&p, p.tr->layout.group_size);
    mpi_ok(play(&p));
    if (mpi_test.rank == 0) mpi_check(p.runs[WORK] == RUNS && p.runs[LOOK] == 1, "not all stages have run");
    close_play(&p);
}

static const char *const ways[] = {
    "",
    "sync.race=atomic",
    "local.model=demand",
    "local.model=demand sync.race=atomic",
    "local.model=demand local.memory=400",
    "local.model=demand local.memory=128 local.replace=fifo",
    "local.model=demand local.memory=4096 local.replace=random sync.race=atomic",
    "local.model=demand local.memory=1000 sync.race=atomic"};

/* Where there are several layouts, each is tried with every third way. */
MPI_CASE(all_ways_give_the_sums_of_one_worker)
{
    size_t step = mpi_test.size > 1 ? 3 : 1;
    for (int i = 0; local_layout(i); i++)
        for (size_t w = (size_t)i % step; w < COUNT(ways); w += step)
            play_sums(mpi_text("%s %s local.chunk=16", local_layout(i), ways[w]), TR_F64, 1, KEYS);
}

MPI_CASE(all_types_and_widths)
{
    const char *layout = NULL;
    const char *settings;
    for (int i = 0; local_layout(i); i++) layout = local_layout(i);
    settings = mpi_text("%s local.model=demand local.memory=1500 local.chunk=5", layout);
    play_sums(settings, TR_F32, 1, KEYS);
    play_sums(settings, TR_I32, KEYS / 3, WIDEST);
    settings = mpi_text("%s sync.race=atomic", layout);
    play_sums(settings, TR_I64, KEYS / 10, 1);
    play_sums(settings, TR_F64, KEYS / 5, WIDEST);
}

/* ---- the same keys ---- */

enum { OFTEN = 3000 };

static int add_to_the_same(struct play *p, tr_worker *me)
{
    static const tr_key key[] = {3, 5, 500};
    static const double one[] = {1, 1, 1};
    if (me->clock == 0) TR_TRY(tr_replica_take(p->local, me));
    for (int i = 0; i < OFTEN; i++) TR_TRY(tr_replica_add(p->local, key, 3, one));
    return me->clock == me->clocks - 1 ? tr_replica_give(p->local, me) : TR_OK;
}

MPI_CASE(no_update_is_lost)
{
    for (size_t w = 0; w < COUNT(ways); w++) {
        struct play p;
        open_play(&p, mpi_text("%s %s local.chunk=16", local_layout(0), ways[w]), TR_F64, 1, KEYS);
        mpi_ok(tr_replica_open(p.table, &p.local));
        p.work = add_to_the_same;
        p.expected[3] = p.expected[5] = p.expected[500] =
            (double)RUNS * CLOCKS * OFTEN * p.tr->layout.group_size;
        mpi_ok(play(&p));
        close_play(&p);
    }
}

/* ---- by oneself ---- */

static int add_by_oneself(struct play *p, tr_worker *me)
{
    if (me->clock == 0) {
        mpi_check(!tr_replica_values(p->local), "values before they are taken");
        TR_TRY(tr_replica_take(p->local, me));
    }
    double *value = tr_replica_values(p->local);
    for (int k = me->worker; k < KEYS / 2; k += me->workers) value[k] += k;
    return me->clock == me->clocks - 1 ? tr_replica_give(p->local, me) : TR_OK;
}

MPI_CASE(values_are_changed_where_they_lie)
{
    for (int i = 0; local_layout(i); i++) {
        struct play p;
        tr_replica_counts counts;
        open_play(&p, mpi_text("%s local.chunk=64", local_layout(i)), TR_F64, 1, KEYS);
        mpi_ok(tr_replica_open(p.table, &p.local));
        p.work = add_by_oneself;
        for (int k = 0; k < KEYS / 2; k++) p.expected[k] = RUNS * CLOCKS * k;
        mpi_ok(play(&p));
        tr_replica_count(p.local, &counts);
        mpi_check(counts.fetched % 16 == 0 && counts.given == counts.fetched / 2,
                  "%lu chunks fetched, %lu given", counts.fetched, counts.given);
        close_play(&p);
    }
}

/* ---- which chunk makes room ---- */

enum { CHUNK = 16 };

static int add_one(struct play *p, tr_key key)
{
    double one = 1;
    return tr_replica_add(p->local, &key, 1, &one);
}

static int read_one(struct play *p, tr_key key, double expected)
{
    double seen = -1;
    TR_TRY(tr_replica_read(p->local, &key, 1, &seen));
    mpi_check(seen == expected, "key %d is %g, expected %g", (int)key, seen, expected);
    return TR_OK;
}

/* Three chunks fit. The first is used again before a fourth is needed; of the others, one was changed. */
static int use_four_chunks(struct play *p, tr_worker *me)
{
    if (me->clock == 0) TR_TRY(tr_replica_take(p->local, me));
    if (me->clock == 0 && me->worker == 0) {
        double before = (double)me->command.word[0];
        TR_TRY(read_one(p, 0, 0));
        TR_TRY(add_one(p, CHUNK));
        TR_TRY(read_one(p, 2 * CHUNK, 0));
        TR_TRY(read_one(p, 0, 0));
        TR_TRY(read_one(p, 3 * CHUNK, 0)); /* in the place of: lru the second, fifo the first */
        TR_TRY(read_one(p, 0, 0));         /* lru: there; fifo: in the place of the second */
        TR_TRY(read_one(p, CHUNK, before + 1));
    }
    return me->clock == me->clocks - 1 ? tr_replica_give(p->local, me) : TR_OK;
}

static void count_all(const struct play *p, tr_replica_counts *sum)
{
    tr_replica_counts own;
    tr_replica_count(p->local, &own);
    if (p->tr->node_rank != 0) own = (tr_replica_counts){0};
    MPI_Allreduce(&own, sum, sizeof own / sizeof(uint64_t), MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

#define EXPECT(name, of) mpi_equal(c.name, (of)*RUNS)

static void play_four_chunks(const char *layout, const char *settings, tr_replica_counts *counts)
{
    struct play p;
    open_play(&p,
              mpi_text("%s local.chunk=%d local.model=demand local.memory=%d %s", layout, CHUNK,
                       3 * CHUNK * (int)sizeof(double), settings),
              TR_F64, 1, KEYS);
    mpi_ok(tr_replica_open(p.table, &p.local));
    p.work = use_four_chunks;
    p.expected[CHUNK] = RUNS;
    mpi_ok(play(&p));
    count_all(&p, counts);
    close_play(&p);
}

MPI_CASE(the_right_chunk_makes_room)
{
    const char *layout;
    for (int i = 0; (layout = local_layout(i)); i++) {
        const char *race = i % 2 ? "sync.race=atomic" : "sync.race=chunk";
        char settings[64];
        tr_replica_counts c;
        snprintf(settings, sizeof settings, "%s local.replace=lru", race);
        play_four_chunks(layout, settings, &c);
        EXPECT(misses, 5); /* the four, and the second again */
        EXPECT(hits, 2);
        EXPECT(fetched, 4);
        EXPECT(evicted, 2);
        EXPECT(written, 1);
        EXPECT(read_back, 1);
        EXPECT(given, 1);
        EXPECT(bytes_given, CHUNK * sizeof(double));
        EXPECT(bytes_fetched, 4 * CHUNK * sizeof(double));
        EXPECT(bytes_written, CHUNK * sizeof(double));
        snprintf(settings, sizeof settings, "%s local.replace=fifo", race);
        play_four_chunks(layout, settings, &c);
        EXPECT(misses, 6); /* and the first chunk */
        EXPECT(hits, 1);
        EXPECT(fetched, 5);
        EXPECT(evicted, 3);
        EXPECT(written, 1);
        EXPECT(read_back, 1);
        snprintf(settings, sizeof settings, "%s local.replace=random", race);
        play_four_chunks(layout, settings, &c);
        mpi_check(c.misses + c.hits == 7 * RUNS && c.evicted == c.misses - 3 * RUNS,
                  "%lu misses, %lu evicted", c.misses, c.evicted);
    }
}

/* ---- rows touch many chunks ---- */

/* The first rank that needs a chunk fetches it, once; untouched chunks are not fetched. */
static int touch(struct play *p, tr_worker *me)
{
    tr_key key[KEYS / CHUNK];
    double zero[KEYS / CHUNK] = {0};
    if (me->clock == 0) TR_TRY(tr_replica_take(p->local, me));
    for (int i = 0; i < KEYS / CHUNK / 2; i++) key[i] = (tr_key)(i * 2 * CHUNK);
    TR_TRY(tr_replica_read(p->local, key, KEYS / CHUNK / 2, zero));
    TR_TRY(tr_replica_add(p->local, key, KEYS / CHUNK / 2, zero));
    return me->clock == me->clocks - 1 ? tr_replica_give(p->local, me) : TR_OK;
}

MPI_CASE(a_chunk_is_fetched_once_and_given_if_it_differs)
{
    for (int i = 0; local_layout(i); i++) {
        struct play p;
        tr_replica_counts c;
        open_play(&p, mpi_text("%s local.chunk=%d local.model=demand", local_layout(i), CHUNK), TR_F64, 1,
                  KEYS);
        mpi_ok(tr_replica_open(p.table, &p.local));
        p.work = touch;
        mpi_ok(play(&p));
        count_all(&p, &c);
        int chunks = KEYS / CHUNK / 2, visits = chunks * 2 * CLOCKS * p.tr->layout.group_size;
        EXPECT(fetched, chunks);
        EXPECT(misses, chunks);
        EXPECT(hits + c.misses, visits);
        EXPECT(given, 0);
        close_play(&p);
    }
}

/* ---- what goes wrong ---- */

enum { BEFORE_TAKING, BEFORE_GIVING, WRONG_KEY, NOT_TAKEN, FULL_DISK, FAILURES };
static int how;

static int fail(struct play *p, tr_worker *me)
{
    bool last = me->worker == me->workers - 1;
    if (how == NOT_TAKEN) return add_one(p, 0);
    if (how == BEFORE_TAKING && last && me->clock == 0)
        return tr_fail(TR_ERR_DATA, "the last worker is late");
    if (me->clock == 0) TR_TRY(tr_replica_take(p->local, me));
    if (how == BEFORE_GIVING && last && me->clock == 1)
        return tr_fail(TR_ERR_DATA, "the last worker gives up");
    if (how == WRONG_KEY && last) TR_TRY(add_one(p, KEYS));
    for (tr_key k = 0; how == FULL_DISK && k < KEYS; k += CHUNK) TR_TRY(add_one(p, k));
    return me->clock == me->clocks - 1 ? tr_replica_give(p->local, me) : TR_OK;
}

static void limit_files(bool limited)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limited ? 100 : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void play_failure(const char *layout, const char *model)
{
    static const int expected[] = {TR_ERR_DATA, TR_ERR_DATA, TR_ERR_INTERNAL, TR_ERR_INTERNAL, TR_ERR_IO};
    struct play p;
    open_play(&p, mpi_text("%s local.chunk=%d %s", layout, CHUNK, model), TR_F64, 1, KEYS);
    mpi_ok(tr_replica_open(p.table, &p.local));
    p.work = fail;
    if (how == FULL_DISK) limit_files(true);
    int status = play(&p);
    limit_files(false);
    mpi_equal(status, expected[how]);
    mpi_check(p.runs[LOOK] == 0, "the task did not stop");
    close_play(&p);
}

MPI_CASE(a_worker_that_fails_leaves_nobody_waiting)
{
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; local_layout(i); i++)
        for (how = 0; how < FAILURES; how++) {
            bool demand = how == FULL_DISK || (i + how) % 2 == 0;
            play_failure(local_layout(i), demand ? "local.model=demand local.memory=512" : "");
        }
}

static void open_badly(const char *settings, bool hash, int expected)
{
    struct play p;
    open_play(&p, settings, TR_F64, 1, KEYS);
    tr_table_options options = {.hash = hash};
    if (hash) mpi_ok(tr_table_create_with(p.tr, "h", TR_F64, 1, KEYS, &options, &p.table));
    int status = tr_replica_open(p.table, &p.local);
    mpi_equal(status, expected);
    mpi_check(!p.local, "it is open");
    close_play(&p);
}

static int take_only(struct play *p, tr_worker *me)
{
    return tr_replica_take(p->local, me);
}

MPI_CASE(what_cannot_be_is_said)
{
    open_badly("local.memory=100", false, TR_ERR_CONFIG);
    open_badly("local.memory=100 local.model=demand local.chunk=16", false, TR_ERR_CONFIG);
    open_badly("local.model=demand", true, TR_ERR_CONFIG);
    char folder[PATH_MAX];
    const char *before = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s", before ? before : "/tmp");
    setenv("TMPDIR", "/no/such/folder", 1);
    open_badly("local.memory=1000 local.model=demand local.chunk=16", false, TR_ERR_NO_OUTPUT);
    setenv("TMPDIR", folder, 1);
    if (mpi_test.size % 2) return;
    struct play p;
    open_play(&p, "ranks.node_size=1 ranks.group_size=2", TR_F64, 1, KEYS);
    mpi_ok(tr_replica_open(p.table, &p.local));
    p.work = take_only;
    int status = play(&p);
    mpi_equal(status, TR_ERR_CONFIG);
    close_play(&p);
}
