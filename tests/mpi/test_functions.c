/* Server functions: what reaches them and in which order, what becomes of it, and what servers answer. Values are
 * small whole numbers that tell who pushed them, when and for which key, so that what arrives can be checked where it
 * arrives. */
#include "mpi_unit.h"

#include "table/server.h"
#include "../elements.h"

enum { CLOCKS = 4, PUSHERS = 16, STATES = 2 };

/* Who pushes what. An owner is a worker, or a group that pushes together. */
struct plan {
    uint64_t seed;
    enum tr_dtype dtype;
    uint64_t rows, columns;
    size_t keys, width;
    int owners, order[PUSHERS]; /* owners by their ranks: the order of pushers */
    bool lockstep, merged, sparse;
    int64_t clocks;
};

static bool has_key(const struct plan *p, int owner, tr_key key)
{
    switch ((p->seed + (uint64_t)owner) % 5) {
    case 0: return tr_mix(key + p->seed * 77 + (uint64_t)owner) % 2;
    case 1: return false;
    case 2: return key == tr_mix(p->seed) % p->keys;
    case 3: return true;
    default: return key % 3 == 0;
    }
}

/* The value of all elements of the key. Every fifth key gets zeros; f16 represents all these numbers. */
static double change(int owner, int64_t clock, tr_key key)
{
    return key % 5 == 4 ? 0 : 1 + owner + 8 * (double)clock + 128 * (double)(key % 7);
}

/* ---- a user's function, which includes trireme/function.h only: it records its arguments ---- */

/* What one server has seen. */
struct book {
    const struct plan *plan;
    const tr_share *share;
    int opened, closed;
    int64_t updates, next[PUSHERS]; /* next: the clock of each pusher's next update */
    int64_t expired, fails_at;      /* fails_at: the update that is refused; 0: none */
    double first[CLOCKS];           /* when the first update of a clock was handed over */
    char wrong[160];                /* the first error */
};

__attribute__((format(printf, 2, 3))) static void note_in(struct book *b, const char *format, ...)
{
    if (b->wrong[0]) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b->wrong, sizeof b->wrong, format, arguments);
    va_end(arguments);
}

#define book_check(condition, ...)                                                                           \
    do {                                                                                                     \
        if (!(condition)) note_in(b, __VA_ARGS__);                                                           \
    } while (0)

/* The argument is where the book lies. */
static struct book *book_of(const tr_share *share)
{
    struct book *b;
    memcpy(&b, share->argument, sizeof b);
    return b;
}

static int open_book(tr_share *share)
{
    struct book *b = book_of(share);
    b->opened++;
    b->share = share;
    share->own = malloc(100);
    return share->own ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory");
}

static void close_book(tr_share *share)
{
    book_of(share)->closed++;
    free(share->own);
}

static size_t book_memory(const tr_share *share)
{
    return share->own ? 100 : 0;
}

static int book_version(const tr_share *share, const tr_update *u, int64_t *version)
{
    *version = 2 * u->clock + 1;
    return TR_OK;
}

static double expected_change(const struct plan *p, int pusher, int64_t clock, tr_key key, bool *due)
{
    double sum = 0;
    *due = false;
    for (int i = 0; i < p->owners; i++) {
        if ((pusher >= 0 && i != pusher) || !has_key(p, p->order[i], key)) continue;
        *due = true;
        sum += change(p->order[i], clock, key);
    }
    return sum;
}

/* All units that are due, each with the right numbers, and no other, in ascending order. */
static void check_units(struct book *b, const tr_share *share, const tr_update *u)
{
    size_t j = 0;
    for (size_t unit = 0; unit < share->units; unit++) {
        tr_key key = tr_share_key(share, unit);
        bool due = false, here = j < u->n && (u->unit ? u->unit[j] : j) == unit;
        double wanted = key == UINT64_MAX ? 0 : expected_change(b->plan, u->pusher, u->clock, key, &due);
        book_check(here == due || (!here && b->plan->sparse && wanted == 0),
                   "pusher %d clock %lld: unit %zu is %s", u->pusher, (long long)u->clock, unit,
                   here ? "there" : "missing");
        for (size_t e = 0; here && e < share->width; e++) {
            double found = element(share->dtype, u->value, j * share->width + e);
            book_check(found == wanted, "pusher %d clock %lld unit %zu: %g, not %g", u->pusher,
                       (long long)u->clock, unit, found, wanted);
        }
        j += here;
    }
    book_check(j == u->n, "pusher %d clock %lld: %zu units, %zu of them in order", u->pusher,
               (long long)u->clock, u->n, j);
}

static void check_turn(struct book *b, const tr_share *share, const tr_update *u)
{
    const struct plan *p = b->plan;
    book_check(share->pushers == p->owners, "%d pushers, not %d", share->pushers, p->owners);
    book_check(u->version == 2 * u->clock + 1, "clock %lld is version %lld", (long long)u->clock,
               (long long)u->version);
    book_check(u->seen >= u->clock && (!p->lockstep || u->seen == u->clock), "clock %lld has seen %lld",
               (long long)u->clock, (long long)u->seen);
    if (p->merged && p->lockstep) {
        book_check(u->pusher == -1 && u->clock == b->updates, "sum %lld: pusher %d clock %lld",
                   (long long)b->updates, u->pusher, (long long)u->clock);
        return;
    }
    if (u->pusher < 0 || u->pusher >= p->owners) {
        note_in(b, "pusher %d", u->pusher);
        return;
    }
    int64_t next = b->next[u->pusher]++;
    book_check(u->clock == next, "pusher %d: clock %lld, not %lld", u->pusher, (long long)u->clock,
               (long long)next);
    book_check(!p->lockstep || b->updates == u->clock * p->owners + u->pusher,
               "update %lld is of pusher %d, clock %lld", (long long)b->updates, u->pusher,
               (long long)u->clock);
}

/* Adds up; counts in the first array of the state, and keeps the clock in the second. */
static void add_up(tr_share *share, const tr_update *u)
{
    for (size_t i = 0; i < u->n * share->width; i++) {
        size_t at =
            (u->unit ? u->unit[i / share->width] : i / share->width) * share->width + i % share->width;
        double sum = element(share->dtype, share->value, at) + element(share->dtype, u->value, i);
        set_element(share->dtype, share->value, at, sum);
        set_element(share->dtype, share->state[0], at, element(share->dtype, share->state[0], at) + 1);
        set_element(share->dtype, share->state[1], at, (double)u->clock + 1);
    }
}

static int update_book(tr_share *share, const tr_update *u)
{
    struct book *b = book_of(share);
    if (b->fails_at && b->updates + 1 == b->fails_at)
        return tr_fail(TR_ERR_DATA, "update %lld is too much", (long long)b->fails_at);
    check_turn(b, share, u);
    check_units(b, share, u);
    if (u->clock < CLOCKS && b->first[u->clock] == 0) b->first[u->clock] = tr_now();
    add_up(share, u);
    b->updates++;
    return TR_OK;
}

static int expire_book(tr_share *share, int64_t version)
{
    struct book *b = book_of(share);
    int64_t least = INT64_MAX;
    for (int i = 0; i < share->pushers; i++)
        if (b->next[i] < least) least = b->next[i];
    book_check(version > b->expired, "version %lld expires after %lld", (long long)version,
               (long long)b->expired);
    book_check(version == INT64_MAX || version <= 2 * least + 1,
               "version %lld expires while clock %lld is to come", (long long)version, (long long)least);
    b->expired = version;
    return TR_OK;
}

static const tr_function book_function = {.name = "book",
                                          .state_arrays = STATES,
                                          .argument = sizeof(struct book *),
                                          .open = open_book,
                                          .close = close_book,
                                          .map = book_version,
                                          .update = update_book,
                                          .expire = expire_book,
                                          .memory = book_memory};

/* Answers with a sum over the state, which only its server has. */
static int sum_counts(const tr_share *share, const void *question, size_t question_bytes, void *result,
                      size_t *bytes)
{
    double sum = 0;
    if (question_bytes != 0 || *bytes < sizeof sum || !share->state[0])
        return tr_fail(TR_ERR_INTERNAL, "not like this");
    for (size_t i = 0; i < share->units * share->width; i++) sum += element(share->dtype, share->state[0], i);
    memcpy(result, &sum, *bytes = sizeof sum);
    return TR_OK;
}

static int know_nothing(const tr_share *share, const void *question, size_t question_bytes, void *result,
                        size_t *bytes)
{
    return tr_fail(TR_ERR_DATA, "there is no answer to %d", 42);
}

static const tr_answer counts_answer = {"counts", false, sum_counts, tr_answer_add_doubles};
static const tr_answer nothing_answer = {"nothing", false, know_nothing, tr_answer_add_doubles};

/* ---- a trial: a table with a function, and what its workers should read ---- */

struct trial {
    tr_context *tr;
    struct plan plan;
    struct book book;
    tr_table *table;
    tr_view *view;
    tr_key *key;
    bool groups, rounded; /* views of groups; values read are rounded */
    int64_t before;       /* clocks of earlier stages */
    double pushed[CLOCKS];
    double (*expect)(const struct trial *, tr_key key, int64_t clocks);
    int (*ask)(struct trial *, int64_t clocks); /* one worker, after its pull */
    bool unknown_meanwhile;                     /* the order of arrival decides */
};

static int owner_of(const struct trial *t, int worker)
{
    return t->groups ? worker / t->tr->layout.group_size : worker;
}

static double sum_of_owner(int owner, tr_key key, int64_t clocks)
{
    double sum = 0;
    for (int64_t c = 0; c < clocks; c++) sum += change(owner, c, key);
    return sum;
}

static double expect_sum(const struct trial *t, tr_key key, int64_t clocks)
{
    double sum = 0, stages = (double)(t->before / t->plan.clocks);
    for (int o = 0; o < t->plan.owners; o++)
        if (has_key(&t->plan, o, key))
            sum += sum_of_owner(o, key, clocks) + stages * sum_of_owner(o, key, t->plan.clocks);
    return sum;
}

static int prepare(tr_worker *me, void *state)
{
    struct trial *t = state;
    size_t n = 0;
    int owner = owner_of(t, me->worker);
    TR_TRY(TR_NEW(&t->key, t->plan.keys));
    for (tr_key key = 0; key < t->plan.keys; key++)
        if (has_key(&t->plan, owner, key)) t->key[n++] = key;
    return tr_view_open(t->table, t->key, n, t->groups ? TR_VIEW_GROUP : TR_VIEW_UPDATE, &t->view);
}

static void check_view(const struct trial *t, int64_t clocks)
{
    for (size_t i = 0; i < t->view->n; i++) {
        double wanted = t->expect(t, t->key[i], clocks);
        double tolerance = fabs(wanted) * (t->rounded ? 1e-3 : 1e-6);
        for (size_t e = 0; e < t->view->width; e++) {
            double found = element(t->plan.dtype, t->view->value, i * t->view->width + e);
            mpi_check(fabs(found - wanted) <= tolerance, "clock %ld key %lu element %zu: %g, not %g", clocks,
                      t->key[i], e, found, wanted);
        }
    }
}

/* The members of a group push parts of the number that is to come of them. */
static double part_of(const struct trial *t, const tr_worker *me, double number)
{
    if (!t->groups) return number;
    return me->member == 0 ? number - (me->group_size - 1) : 1;
}

static int compute(tr_worker *me, void *state)
{
    struct trial *t = state;
    int owner = owner_of(t, me->worker);
    TR_TRY(tr_view_pull(t->view));
    if (t->plan.lockstep) check_view(t, me->clock);
    if (t->plan.lockstep && t->ask && me->worker == 0) TR_TRY(t->ask(t, me->clock));
    if (me->worker == me->workers - 1 && me->clock == 1)
        TR_TRY(mpi_nap(t->tr, 0.005)); /* the others come first */
    for (size_t i = 0; i < t->view->n; i++)
        for (size_t e = 0; e < t->view->width; e++)
            set_element(t->plan.dtype, t->view->delta, i * t->view->width + e,
                        part_of(t, me, change(owner, me->clock, t->key[i])));
    t->pushed[me->clock] = tr_now();
    return tr_view_push(t->view);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct trial *t = state;
    TR_TRY(tr_view_pull(t->view));
    if (t->plan.lockstep || !t->unknown_meanwhile) check_view(t, t->plan.clocks);
    return t->ask && me->worker == 0 ? t->ask(t, t->plan.clocks) : TR_OK;
}

static int run(struct trial *t)
{
    return tr_run(t->tr, &(tr_stage){.name = "trial",
                                     .state = t,
                                     .clocks = t->plan.clocks,
                                     .prepare = prepare,
                                     .compute = compute,
                                     .evaluate = evaluate,
                                     .summarize = mpi_summarize});
}

static void order_owners(struct trial *t)
{
    const struct tr_layout *layout = &t->tr->layout;
    int step = t->groups ? layout->group_size : 1, *order = t->plan.order;
    for (int o = 0; o < t->plan.owners; o++) {
        int at = o;
        for (; at > 0 && layout->worker_rank[order[at - 1] * step] > layout->worker_rank[o * step]; at--)
            order[at] = order[at - 1];
        order[at] = o;
    }
}

static void open_trial(struct trial *t, const char *settings, const struct plan *plan)
{
    *t = (struct trial){.tr = mpi_context(settings), .plan = *plan, .expect = expect_sum};
    struct plan *p = &t->plan;
    t->groups = t->tr->layout.group_size > 1 && p->seed % 2;
    t->rounded = strstr(settings, "precision=f16") != NULL;
    p->owners = t->groups ? t->tr->layout.groups : tr_layout_workers(&t->tr->layout);
    p->lockstep = tr_in_lockstep(t->tr);
    if (p->clocks == 0) p->clocks = CLOCKS;
    t->book.plan = p;
    order_owners(t);
    mpi_ok(tr_table_create(t->tr, "ledger", p->dtype, p->rows, p->columns, &t->table));
    p->keys = (size_t)tr_table_keys(t->table);
    p->width = tr_table_width(t->table);
}

static void use_book(struct trial *t)
{
    tr_function function = book_function;
    struct book *b = &t->book;
    function.merged = t->plan.merged;
    function.sparse = t->plan.sparse;
    mpi_ok(tr_function_register(t->tr, &function));
    mpi_ok(tr_table_use(t->table, "book", &b));
}

static void close_views(struct trial *t)
{
    tr_view_close(&t->view);
    free(t->key);
    t->key = NULL;
}

/* What the state should hold of a unit of this key. */
static double expected_count(const struct trial *t, tr_key key, int64_t clocks)
{
    double owners = 0;
    for (int o = 0; o < t->plan.owners; o++) owners += has_key(&t->plan, o, key);
    if (t->plan.merged && t->plan.lockstep) owners = owners > 0;
    return owners * (double)(clocks + t->before);
}

static void check_book(const struct trial *t)
{
    const struct book *b = &t->book;
    const struct plan *p = &t->plan;
    bool serves = t->table->server >= 0;
    mpi_equal(b->opened, serves);
    if (!serves) return;
    mpi_check(!b->wrong[0], "%s", b->wrong);
    mpi_equal(b->updates, p->clocks * (p->merged && p->lockstep ? 1 : p->owners));
    mpi_equal(b->expired, INT64_MAX);
    const struct tr_use *use = t->table->use;
    mpi_equal(use->function.memory(&use->share), 100);

    for (size_t unit = 0; unit < b->share->units; unit++) {
        tr_key key = tr_share_key(b->share, unit);
        double wanted = key == UINT64_MAX ? 0 : expected_count(t, key, p->clocks);
        if (p->sparse && key % 5 == 4) continue; /* zeros may or may not have travelled */
        double found = element(p->dtype, b->share->state[0], unit * b->share->width);
        mpi_check(found == wanted, "unit %zu: %g updates, not %g", unit, found, wanted);
        double last = element(p->dtype, b->share->state[1], unit * b->share->width);
        mpi_check(last == (wanted > 0 ? (double)p->clocks : 0), "unit %zu: last at clock %g", unit, last);
    }
}

/* Under BSP nothing of a clock may be handed over before all of it is on its way. */
static void check_times(struct trial *t)
{
    double first[CLOCKS], pushed[CLOCKS];
    for (int c = 0; c < CLOCKS; c++) first[c] = t->book.first[c] > 0 ? t->book.first[c] : INFINITY;
    MPI_Allreduce(first, pushed, CLOCKS, MPI_DOUBLE, MPI_MIN, t->tr->world);
    memcpy(first, pushed, sizeof first);
    MPI_Allreduce(t->pushed, pushed, CLOCKS, MPI_DOUBLE, MPI_MAX, t->tr->world);
    for (int c = 0; c < t->plan.clocks && t->plan.lockstep && !mpi_test.hosts; c++)
        mpi_check(first[c] >= pushed[c], "clock %d: an update was used before the last was pushed", c);
}

static void try_book(const char *settings, const struct plan *plan, int stages)
{
    struct trial t;
    open_trial(&t, settings, plan);
    use_book(&t);
    for (int stage = 0; stage < stages; stage++) {
        memset(t.book.next, 0, sizeof t.book.next);
        memset(t.book.first, 0, sizeof t.book.first);
        t.book.updates = t.book.expired = 0;
        mpi_ok(run(&t));
        check_book(&t);
        check_times(&t);
        t.before += t.plan.clocks;
        close_views(&t);
    }
    bool serves = t.table->server >= 0;
    mpi_ok(tr_table_drop(&t.table));
    mpi_equal(t.book.closed, serves);
    mpi_ok(tr_close(t.tr));
}

static const struct plan shapes[] = {{.dtype = TR_F32, .rows = 1, .columns = 1500},
                                     {.dtype = TR_I64, .rows = 37, .columns = 10, .sparse = true},
                                     {.dtype = TR_F64, .rows = 5, .columns = 6000}, /* in pieces */
                                     {.dtype = TR_F32, .rows = 1, .columns = 3, .sparse = true},
                                     {.dtype = TR_I32, .rows = 1, .columns = 700}};
enum { SHAPES = COUNT(shapes) };

static void all_layouts(int turn, const char *mode, bool merged)
{
    static const char *const ways[] = {"table.encoding=auto",
                                       "table.encoding=dense table.route=request",
                                       "table.encoding=sparse table.partition=hash",
                                       "table.encoding=bitmap table.partition=ring",
                                       "table.precision=f16 table.partition=range-hash table.block=16",
                                       "table.encoding=bitmap table.precision=f16 table.route=request",
                                       "table.encoding=sparse table.servers=1 table.filter=none"};
    for (int i = 0; mpi_layout(i); i++)
        for (int way = i % 2; way < 7; way += 2) {
            if (!mpi_chosen(i, way / 2 + turn, 2)) continue;
            const char *settings = mpi_text("%s sync.mode=%s %s", mpi_layout(i), mode, ways[way]);
            struct plan plan = shapes[(i + way + 2 * merged) % SHAPES];
            plan.seed = (uint64_t)(i + 3 * way);
            plan.merged = merged;
            if (way % 3 == 0) plan.sparse = !plan.sparse;
            try_book(settings, &plan, way == 0 ? 2 : 1);
        }
}

MPI_CALLS(updates_come_whole_and_in_order_under_bsp, all_layouts(0, "bsp", false));
MPI_CALLS(updates_come_once_under_ssp, all_layouts(1, "ssp sync.staleness=2", false));
MPI_CALLS(updates_come_once_under_asp, all_layouts(2, "asp", false));
MPI_CASE(merged_functions_get_one_sum_a_clock)
{
    all_layouts(3, "bsp", true);
    all_layouts(4, "ssp sync.staleness=1", true); /* there, one by one all the same */
}

/* Over 256 KiB for one server. */
MPI_CASE(long_updates_come_as_one)
{
    static const char *const ways[] = {"sync.mode=bsp table.encoding=dense",
                                       "sync.mode=asp table.precision=f16",
                                       "sync.mode=ssp table.encoding=bitmap table.partition=hash",
                                       "sync.mode=bsp table.encoding=sparse table.route=request"};
    const char *layout;
    for (int i = 0; i < 4; i++) {
        if (!(layout = mpi_layout(i))) layout = mpi_layout(0);
        const char *settings = mpi_text("%s %s table.servers=1", layout, ways[i]);
        struct plan plan = {
            .dtype = TR_F64, .rows = 1, .columns = 120000, .clocks = 2, .seed = (uint64_t)(2 + i)};
        plan.merged = i == 3;
        plan.sparse = i >= 2;
        try_book(settings, &plan, 1);
    }
}

/* ---- the arithmetic that is built in ---- */

static double expect_half(const struct trial *t, tr_key key, int64_t clocks)
{
    return expect_sum(t, key, clocks) / 2;
}

static double expect_mean(const struct trial *t, tr_key key, int64_t clocks)
{
    return expect_sum(t, key, clocks) / t->plan.owners;
}

static double expect_max(const struct trial *t, tr_key key, int64_t clocks)
{
    double most = 0;
    for (int o = 0; clocks > 0 && o < t->plan.owners; o++)
        if (has_key(&t->plan, o, key)) most = fmax(most, change(o, clocks - 1, key));
    return most;
}

/* Under BSP the last worker wins. */
static double expect_last(const struct trial *t, tr_key key, int64_t clocks)
{
    double last = 0;
    for (int i = 0; clocks > 0 && i < t->plan.owners; i++)
        if (has_key(&t->plan, t->plan.order[i], key)) last = change(t->plan.order[i], clocks - 1, key);
    return last;
}

MPI_CASE(arithmetic_is_done_where_values_lie)
{
    static const double half = 0.5;
    static const struct {
        const char *name;
        const void *argument;
        double (*expect)(const struct trial *, tr_key, int64_t);
        bool reals, unknown_meanwhile;
    } functions[] = {{"add", NULL, expect_sum, false, false},   {"assign", NULL, expect_last, false, true},
                     {"max", NULL, expect_max, false, false},   {"scale", &half, expect_half, true, false},
                     {"scale", NULL, expect_mean, true, false}, {NULL, NULL, expect_sum, false, false}};
    for (int i = 0; mpi_layout(i); i++)
        for (int f = 0; f < 6; f++) {
            if (!mpi_chosen(i, f, 2)) continue;
            const char *settings = mpi_text("%s sync.mode=%s table.route=%s", mpi_layout(i),
                                            mpi_modes[(i + f) % 3], (i + f) % 2 ? "request" : "auto");
            struct plan plan = shapes[(i + f) % SHAPES];
            plan.seed = (uint64_t)(i + f);
            if (functions[f].reals) plan.dtype = TR_F64;
            struct trial t;
            open_trial(&t, settings, &plan);
            t.expect = functions[f].expect;
            t.unknown_meanwhile = functions[f].unknown_meanwhile;
            mpi_ok(tr_table_use(t.table, functions[f].name, functions[f].argument));
            mpi_ok(run(&t));
            close_views(&t);
            mpi_ok(tr_close(t.tr));
        }
}

/* ---- answers ---- */

enum { TOP = 10 };

static int ask_sums(struct trial *t, int64_t clocks)
{
    double squares = 0, sum = 0, found[2] = {NAN, NAN};
    uint64_t nonzeros = 0, count = 0;
    size_t bytes[3] = {sizeof(double), sizeof(double), sizeof count};
    for (tr_key key = 0; key < t->plan.keys; key++) {
        double v = t->expect(t, key, clocks);
        squares += v * v;
        sum += v;
        nonzeros += v != 0;
    }
    TR_TRY(tr_table_ask(t->table, "squares", NULL, 0, &found[0], &bytes[0]));
    TR_TRY(tr_table_ask(t->table, "sum1", NULL, 0, &found[1], &bytes[1]));
    TR_TRY(tr_table_ask(t->table, "nonzeros", NULL, 0, &count, &bytes[2]));
    double width = (double)t->plan.width;
    mpi_check(found[0] == squares * width && bytes[0] == sizeof(double), "squares: %g, not %g", found[0],
              squares * width);
    mpi_equal(found[1], sum * width);
    mpi_equal(count, nonzeros * t->plan.width);
    return TR_OK;
}

static int ask_top(struct trial *t, int64_t clocks)
{
    union {
        struct tr_top head;
        char room[sizeof(struct tr_top) + TOP * sizeof(struct tr_top_pair)];
    } top;
    const struct tr_top_pair *pair = top.head.pair;
    uint32_t k = TOP;
    size_t bytes = sizeof top;
    bool taken[2000] = {false};
    TR_TRY(tr_table_ask(t->table, "top", &k, sizeof k, &top, &bytes));
    for (uint32_t i = 0; i < TOP; i++) {
        tr_key best = 0;
        double most = 0;
        for (tr_key key = 0; key < t->plan.keys; key++)
            if (!taken[key] && t->expect(t, key, clocks) > most) most = t->expect(t, best = key, clocks);
        if (most == 0) {
            mpi_equal(top.head.n, i);
            return TR_OK;
        }
        mpi_check(top.head.n > i && pair[i].key == best && pair[i].value == most,
                  "place %u of %u: key %lu with %g, not %lu with %g", i, top.head.n, pair[i].key,
                  pair[i].value, best, most);
        taken[best] = true;
    }
    return TR_OK;
}

static int ask_soft(struct trial *t, int64_t clocks)
{
    enum { FROM = 100, N = 50 };
    struct tr_soft soft = {.first = FROM, .n = N, .threshold = 100};
    double found[N];
    size_t bytes = sizeof found;
    TR_TRY(tr_table_ask(t->table, "soft", &soft, sizeof soft, found, &bytes));
    mpi_equal(bytes, sizeof found);
    for (tr_key i = 0; i < N; i++)
        mpi_check(found[i] == fmax(t->expect(t, FROM + i, clocks) - 100, 0), "soft %lu: %g", i, found[i]);
    return TR_OK;
}

static int ask_counts(struct trial *t, int64_t clocks)
{
    double wanted = 0, found = NAN;
    size_t bytes = sizeof found;
    for (tr_key key = 0; key < t->plan.keys; key++) wanted += expected_count(t, key, clocks);
    TR_TRY(tr_table_ask(t->table, "counts", NULL, 0, &found, &bytes));
    mpi_check(found == wanted * (double)t->plan.width, "counts: %g, not %g", found, wanted);
    return TR_OK;
}

/* Every caller gets the text, even with a small buffer for it. */
static int ask_in_vain(struct trial *t, int64_t clocks)
{
    double nothing;
    size_t bytes = sizeof nothing;
    mpi_check(tr_table_ask(t->table, "nothing", NULL, 0, &nothing, &bytes) == TR_ERR_PEER, "an answer");
    mpi_check(strstr(tr_error_text(), "nothing") && strstr(tr_error_text(), "there is no answer to 42"),
              "the asker hears: %s", tr_error_text());
    bytes = sizeof nothing;
    mpi_check(tr_table_ask(t->table, "anything", NULL, 0, &nothing, &bytes) == TR_ERR_CONFIG, "an answer");
    mpi_check(strstr(tr_error_text(), "anything"), "the asker hears: %s", tr_error_text());
    return TR_OK;
}

static int ask_all(struct trial *t, int64_t clocks)
{
    TR_TRY(ask_sums(t, clocks));
    TR_TRY(ask_top(t, clocks));
    TR_TRY(ask_soft(t, clocks));
    TR_TRY(ask_counts(t, clocks));
    return ask_in_vain(t, clocks);
}

/* Wide rows: the parts of a product may lie on several servers, but those of two rows lie together or not at all. */
static int ask_rows(struct trial *t, int64_t clocks)
{
    TR_TRY(ask_sums(t, clocks));
    TR_TRY(ask_counts(t, clocks));
    for (tr_key a = 0; a < t->plan.keys; a++) {
        tr_key rows[2] = {a, (a + 1) % t->plan.keys};
        struct tr_dot dot;
        size_t bytes = sizeof dot;
        double part = t->expect(t, rows[0], clocks) * t->expect(t, rows[1], clocks) *
                      (double)(t->plan.width / t->table->pieces);
        TR_TRY(tr_table_ask(t->table, "dot", rows, sizeof rows, &dot, &bytes));
        mpi_check(dot.pieces <= t->table->pieces && dot.sum == part * (double)dot.pieces,
                  "rows %lu and %lu: %g of %lu pieces", rows[0], rows[1], dot.sum, dot.pieces);
        mpi_check(t->table->partition.servers > 1 || dot.pieces == t->table->pieces, "%lu of %u pieces",
                  dot.pieces, t->table->pieces);
    }
    return TR_OK;
}

MPI_CASE(servers_answer_where_values_lie)
{
    for (int i = 0; mpi_layout(i); i++)
        for (int rows = 0; rows < 3; rows++) {
            if (!mpi_chosen(i, rows, 2)) continue;
            const char *settings = mpi_text("%s sync.mode=%s table.partition=%s", mpi_layout(i),
                                            i % 3 == 2 ? "ssp" : "bsp", i % 2 ? "hash" : "range");
            struct plan plan = {.dtype = TR_F64, .rows = 1, .columns = 1500, .seed = (uint64_t)i};
            if (rows) plan.rows = 6, plan.columns = rows == 1 ? 10 : 6000;
            struct trial t;
            open_trial(&t, settings, &plan);
            use_book(&t);
            mpi_ok(tr_answer_register(t.tr, &counts_answer));
            mpi_ok(tr_answer_register(t.tr, &nothing_answer));
            t.ask = rows ? ask_rows : ask_all;
            mpi_ok(run(&t));
            check_book(&t);
            close_views(&t);
            mpi_ok(tr_close(t.tr));
        }
}

/* ---- refusals and failures ---- */

MPI_CASE(unknown_names_are_refused_everywhere)
{
    struct trial t;
    open_trial(&t, mpi_layout(0), &shapes[0]);
    mpi_check(tr_table_use(t.table, "bock", NULL) == TR_ERR_CONFIG, "there is no such function");
    for (int i = 0; mpi_test.rank == 0 && i < 3; i++) {
        static const char *const parts[] = {"table ledger", "bock", "expected add, assign"};
        mpi_check(strstr(tr_error_text(), parts[i]), "«%s» lacks «%s»", tr_error_text(), parts[i]);
    }
    mpi_check(tr_close(t.tr) == TR_ERR_CONFIG, "the context ends otherwise");
    for (int wrong = 0; wrong < 3; wrong++) {
        tr_context *tr = mpi_context(mpi_layout(0));
        tr_function function = book_function;
        if (wrong == 0) function.name = "add";
        if (wrong == 1) function.name = NULL;
        if (wrong == 2) function.update = NULL;
        mpi_check(tr_function_register(tr, &function) == TR_ERR_INTERNAL, "trial %d: registered", wrong);
        mpi_check(tr_close(tr) == TR_ERR_INTERNAL, "trial %d: the context ends otherwise", wrong);
    }
}

MPI_CASE(a_function_that_fails_ends_the_job)
{
    for (int i = 0; mpi_layout(i); i++) {
        const char *settings = mpi_text("%s sync.mode=%s", mpi_layout(i), mpi_modes[i % 3]);
        struct plan plan = shapes[0];
        plan.merged = i % 2;
        struct trial t;
        open_trial(&t, settings, &plan);
        use_book(&t);
        if (t.table->server == 0) t.book.fails_at = 3;
        t.plan.lockstep = false; /* do not check the values read */
        t.unknown_meanwhile = true;
        mpi_check(run(&t) == TR_ERR_DATA, "the stage ends otherwise");
        const char *text = tr_error_text();
        static const char *const parts[] = {"function book", "table ledger", "server 0",
                                            "update 3 is too much"};
        for (int k = 0; t.table->server == 0 && k < 4; k++)
            mpi_check(strstr(text, parts[k]), "«%s» lacks «%s»", text, parts[k]);
        if (t.table->server == 0) mpi_equal(t.book.updates, 2);
        close_views(&t);
        mpi_check(tr_close(t.tr) == TR_ERR_DATA, "the context ends otherwise");
    }
}

/* ---- weights by staleness ---- */

enum { UNITS = 600, SHARE = 1024, VERSIONS = 64, STEPS = 12 }; /* a share may have room for more */

/* What a server hands on to the function that is built in, by version. */
struct watch {
    double sum[VERSIONS][SHARE], count[VERSIONS];
    int64_t expired;
    size_t most; /* bytes */
    char wrong[160];
    const tr_share *share;
};

static struct watch *watch_of(const tr_share *share)
{
    struct watch *w;
    memcpy(&w, share->argument, sizeof w);
    return w;
}

static void watch_update(struct watch *w, const tr_share *share, const tr_update *u)
{
    w->share = share;
    if (u->version < w->expired || u->version >= VERSIONS || share->units > SHARE) {
        snprintf(w->wrong, sizeof w->wrong, "pusher %d clock %lld: version %lld, and %lld have expired",
                 u->pusher, (long long)u->clock, (long long)u->version, (long long)w->expired);
        return;
    }
    for (size_t i = 0; i < u->n; i++)
        w->sum[u->version][u->unit ? u->unit[i] : i] += ((const double *)u->value)[i];
    w->count[u->version]++;
}

static const tr_function *builtin(const char *name)
{
    size_t i = 0;
    while (strcmp(tr_builtin_functions[i].name, name) != 0) i++;
    return &tr_builtin_functions[i];
}

static int update_dyn(tr_share *share, const tr_update *u)
{
    struct watch *w = watch_of(share);
    watch_update(w, share, u);
    TR_TRY(builtin("dyn")->update(share, u));
    w->most = tr_max_size(w->most, builtin("dyn")->memory(share));
    return TR_OK;
}

static int update_stable(tr_share *share, const tr_update *u)
{
    struct watch *w = watch_of(share);
    watch_update(w, share, u);
    TR_TRY(builtin("dyn-stable")->update(share, u));
    w->most = tr_max_size(w->most, builtin("dyn-stable")->memory(share));
    return TR_OK;
}

static int expire_dyn(tr_share *share, int64_t version)
{
    watch_of(share)->expired = version;
    return builtin("dyn")->expire(share, version);
}

static int expire_stable(tr_share *share, int64_t version)
{
    watch_of(share)->expired = version;
    return builtin("dyn-stable")->expire(share, version);
}

struct walk {
    tr_context *tr;
    tr_table *table;
    tr_view *view;
    struct watch watch;
    int slow;
    bool equal;        /* all workers push 1 to all keys: a value is the number of versions */
    int64_t staleness; /* -1: without bound */
};

static int open_walk(tr_worker *me, void *state)
{
    struct walk *w = state;
    return mpi_open_view(w->table, TR_VIEW_UPDATE, &w->view);
}

static double step_of(int worker, int64_t clock, tr_key key)
{
    uint64_t mixed = tr_mix(key + UNITS * ((uint64_t)clock + 100 * (uint64_t)worker));
    return mixed % 3 == 0 ? (double)(mixed % 1000) / 7 : 0;
}

/* All servers' parts are of one version, which is no older than the consistency allows. */
static void check_equal(const struct walk *w, int64_t clock)
{
    const double *value = w->view->value;
    for (size_t k = 1; k < UNITS; k++)
        mpi_check(value[k] == value[0], "clock %ld: key 0 holds %g versions, key %zu %g", clock, value[0], k,
                  value[k]);
    mpi_check(value[0] >= (double)clock, "clock %ld reads %g versions only", clock, value[0]);
    mpi_check(w->staleness != 0 || value[0] == (double)clock, "clock %ld reads %g versions", clock, value[0]);
}

/* Under BSP each version is the mean of a clock's updates. */
static void check_means(const struct walk *w, const tr_worker *me)
{
    const double *value = w->view->value;
    for (tr_key k = 0; k < UNITS; k++) {
        double wanted = 0;
        for (int64_t c = 0; c < me->clock; c++)
            for (int worker = 0; worker < me->workers; worker++)
                wanted += step_of(worker, c, k) / me->workers;
        mpi_check(fabs(value[k] - wanted) < 1e-9, "clock %ld key %lu: %g, not %g", me->clock, k, value[k],
                  wanted);
    }
}

static void check_walk(const struct walk *w, const tr_worker *me)
{
    if (w->equal) check_equal(w, me->clock);
    else if (w->staleness == 0) check_means(w, me);
}

static int step(tr_worker *me, void *state)
{
    struct walk *w = state;
    if (me->worker == w->slow) TR_TRY(mpi_nap(w->tr, 0.002));
    TR_TRY(tr_view_pull(w->view));
    check_walk(w, me);
    for (tr_key k = 0; k < UNITS; k++)
        ((double *)w->view->delta)[k] = w->equal ? 1 : step_of(me->worker, me->clock, k);
    return tr_view_push(w->view);
}

static int end_walk(tr_worker *me, void *state, tr_report *report)
{
    struct walk *w = state;
    TR_TRY(tr_view_pull(w->view));
    check_walk(w, me);
    return TR_OK;
}

/* The value is the sum of the means of all versions. */
static void check_watch(const struct walk *w)
{
    const struct watch *seen = &w->watch;
    if (w->table->server < 0) return;
    mpi_check(!seen->wrong[0], "%s", seen->wrong);
    double updates = 0;
    for (int v = 0; v < VERSIONS; v++) updates += seen->count[v];
    mpi_equal(updates, STEPS * tr_layout_workers(&w->tr->layout));
    for (size_t unit = 0; seen->share && unit < seen->share->units; unit++) {
        double wanted = 0, found = ((const double *)seen->share->value)[unit];
        for (int v = 0; v < VERSIONS; v++)
            if (seen->count[v] > 0) wanted += seen->sum[v][unit] / seen->count[v];
        mpi_check(fabs(found - wanted) < 1e-9, "unit %zu: %g, not %g", unit, found, wanted);
    }
    size_t copy = seen->share ? seen->share->units * sizeof(double) : 0;
    /* a slow worker may read, and push for, one version more than the fastest has pushed; stable versions are known
     * late */
    int64_t most = w->staleness + (w->table->use->function.read ? 4 : 2);
    if (w->staleness >= 0)
        mpi_check(seen->most <= (size_t)most * copy + 4096, "%zu bytes, a copy has %zu", seen->most, copy);
}

static void walk(const char *settings, const tr_function *function, bool equal, int64_t staleness)
{
    struct walk *w;
    mpi_ok(TR_NEW(&w, 1));
    struct watch *watch = &w->watch;
    tr_function watched = *function;
    watched.name = "watched";
    watched.argument = sizeof watch;
    watched.update = function->read ? update_stable : update_dyn;
    watched.expire = function->read ? expire_stable : expire_dyn;
    w->tr = mpi_context(settings);
    w->slow = tr_layout_workers(&w->tr->layout) - 1;
    w->equal = equal;
    w->staleness = staleness;
    mpi_ok(tr_function_register(w->tr, &watched));
    mpi_ok(tr_table_create(w->tr, "walk", TR_F64, 1, UNITS, &w->table));
    mpi_ok(tr_table_use(w->table, "watched", &watch));
    mpi_ok(tr_run(w->tr, &(tr_stage){.name = "walk",
                                     .state = w,
                                     .clocks = STEPS,
                                     .prepare = open_walk,
                                     .compute = step,
                                     .evaluate = w->equal ? NULL : end_walk,
                                     .summarize = mpi_summarize}));
    check_watch(w);
    tr_view_close(&w->view);
    mpi_ok(tr_close(w->tr));
    free(w);
}

static void walk_everywhere(int turn, const tr_function *function, bool equal)
{
    static const char *const modes[] = {"bsp", "ssp sync.staleness=0", "ssp sync.staleness=1",
                                        "ssp sync.staleness=3", "asp"};
    static const int64_t staleness[] = {0, 0, 1, 3, -1};
    for (int i = 0; mpi_layout(i); i++)
        for (int mode = 0; mode < 5; mode++) {
            if (!mpi_chosen(i, mode + turn, 3)) continue;
            walk(mpi_text("%s table.route=%s sync.mode=%s", mpi_layout(i),
                          (i + mode) % 2 ? "request" : "auto", modes[mode]),
                 function, equal, staleness[mode]);
        }
}

MPI_CALLS(versions_add_up_their_means, walk_everywhere(0, builtin("dyn"), false));
MPI_CALLS(stable_versions_add_up_their_means, walk_everywhere(1, builtin("dyn-stable"), false));
MPI_CALLS(a_stable_pull_is_of_one_version, walk_everywhere(2, builtin("dyn-stable"), true));

/* ---- copies that are kept while they may be ---- */

struct saver {
    tr_context *tr;
    tr_table *table;
    tr_view *view;
    int64_t staleness, pulls;
    int slow;
};

static int prepare_saver(tr_worker *me, void *state)
{
    struct saver *s = state;
    return mpi_open_view(s->table, TR_VIEW_UPDATE, &s->view);
}

static int step_saving(tr_worker *me, void *state)
{
    struct saver *s = state;
    const struct tr_view_state *v = s->view->state;
    int64_t held = s->view->clock < 0 ? -1 : v->holds, needed = me->clock - s->staleness;
    uint64_t before = s->tr->tables->traffic.pulls;
    if (me->worker == s->slow) TR_TRY(mpi_nap(s->tr, 0.002));
    TR_TRY(tr_view_pull(s->view));
    int64_t pulls = (int64_t)(s->tr->tables->traffic.pulls - before);
    mpi_check(pulls == (held < 0 || held < needed), "clock %ld: %ld pulls of a copy that held clocks < %ld",
              me->clock, pulls, held);
    s->pulls += pulls;
    const int64_t *value = s->view->value;
    for (int k = 0; k < UNITS / 2; k++)
        mpi_check(value[k] >= (needed > 0 ? needed * me->workers : 0), "clock %ld: %ld updates of key %d",
                  me->clock, value[k], k);
    mpi_equal(value[UNITS / 2 + me->worker], me->clock);
    int64_t *delta = s->view->delta;
    for (int k = 0; k < UNITS / 2; k++) delta[k] = 1;
    delta[UNITS / 2 + me->worker] = 1;
    return tr_view_push(s->view);
}

static int end_saving(tr_worker *me, void *state, tr_report *report)
{
    const struct saver *s = state;
    TR_TRY(tr_view_pull(s->view));
    const int64_t *value = s->view->value;
    for (int k = 0; k < UNITS / 2; k++)
        mpi_check(value[k] == STEPS * me->workers, "key %d ends at %ld", k, value[k]);
    return TR_OK;
}

MPI_CASE(copies_are_kept_while_they_may_be)
{
    for (int i = 0; mpi_layout(i); i++)
        for (int way = 0; way < 4; way++) {
            if (!mpi_chosen(i, way, 2)) continue;
            int staleness = 1 + way;
            const char *settings =
                mpi_text("%s sync.mode=ssp sync.staleness=%d sync.pull=stale table.route=%s", mpi_layout(i),
                         staleness, (i + way) % 2 ? "request" : "auto");
            struct saver s = {.tr = mpi_context(settings), .staleness = staleness};
            s.slow = tr_layout_workers(&s.tr->layout) - 1;
            mpi_ok(tr_table_create(s.tr, "w", TR_I64, 1, UNITS, &s.table));
            if (way % 2) mpi_ok(tr_table_use(s.table, "add", NULL));
            mpi_ok(tr_run(s.tr, &(tr_stage){.name = "saving",
                                            .state = &s,
                                            .clocks = STEPS,
                                            .prepare = prepare_saver,
                                            .compute = step_saving,
                                            .evaluate = end_saving,
                                            .summarize = mpi_summarize}));
            if (tr_is(s.tr, TR_SLAVE)) mpi_check(s.pulls > 0, "never pulled");
            int saved = tr_is(s.tr, TR_SLAVE) && s.pulls < STEPS;
            MPI_Allreduce(MPI_IN_PLACE, &saved, 1, MPI_INT, MPI_MAX, s.tr->world);
            mpi_check(saved, "nobody ever kept a copy: this shows nothing");
            tr_view_close(&s.view);
            mpi_ok(tr_close(s.tr));
        }
}
