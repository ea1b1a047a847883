/* Tables in checkpoints: the contents and state of every kind of table are restored bit for bit on other servers, at other
 * positions and in another form of storage. A resumed run takes the same steps as one without interruption, and taking a
 * checkpoint changes no result.
 *
 * A run has CLOCKS clocks under BSP. Each key is changed by one worker, by numbers that follow from key and clock, so that
 * the result does not depend on the worker. At the clock STAND everything is copied, in the middle of the stage. */
#include "mpi_unit.h"

#include "../elements.h"
#include "table/sync.h"
#include "store/shard.h"
#include "store/checkpoint.h"
#include "trireme/function.h"
#include "trireme/table.h"

enum { CLOCKS = 7, STAND = 4 };

/* ---- tables of all kinds ---- */

enum { HASH = 1, ROWS = 2, PLACED = 4, SOME = 8, RESIZED = 16, LEFT_OUT = 32, BY_SHARE = 64, HELD = 128 };

/* BY_SHARE: each server judges its part of an update by itself, so that other parts make another run of it.
 * HELD: of runs in which parts of updates are held back, and of no others. */
static const struct kind {
    const char *name;
    enum tr_dtype dtype;
    uint64_t rows, columns;
    const char *function;
    int flags;
} kinds[] = {
    {"w", TR_F32, 1, 900, "adam", 0},
    {"w_state0", TR_I64, 1, 500, NULL, 0},
    {"a.b", TR_F64, 1, 300, "momentum", 0},
    {"a b", TR_F64, 1, 310, NULL, SOME},
    {"wide", TR_F64, 6, 8192, "nesterov", 0},
    {"matrix", TR_F32, 50, 7, NULL, 0},
    {"hashed", TR_F32, 1, 3000, "ftrl", HASH},
    {"hashed-rows", TR_F64, 400, 3, "adadelta", HASH},
    {"counted", TR_F64, 1, 200, "counting", 0},
    {"stable", TR_F64, 1, 400, "dyn-stable", BY_SHARE},
    {"weighted", TR_F64, 1, 400, "dyn", BY_SHARE},
    {"agreed", TR_F32, 1, 300, "agree", BY_SHARE},
    {"sparse", TR_I32, 120, UINT64_C(1) << 32, NULL, ROWS},
    {"sparse-real", TR_F32, 60, 1000, NULL, ROWS},
    {"placed", TR_F32, 120, 5, NULL, PLACED},
    {"resized", TR_F32, 1, 700, NULL, RESIZED},
    {"made again", TR_F32, 1, 40, NULL, LEFT_OUT},
    {"held", TR_F32, 1, 300, NULL, HELD},
    {"held-hashed", TR_F32, 1, 300, NULL, HELD | HASH},
};
enum { KINDS = COUNT(kinds) };

/* A sparse row, as it is compared. */
struct row {
    uint32_t n, column[8];
    double value[8];
};

/* Bytes of all that a table holds. */
static size_t kind_bytes(const struct kind *k)
{
    return k->flags & ROWS ? k->rows * sizeof(struct row) : k->rows * k->columns * tr_dtype_size(k->dtype);
}

static uint32_t place(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    return (uint32_t)(tr_mix(block + blocks) % servers);
}

/* ---- a function with something of its own: how many updates there were ---- */

struct count {
    int64_t updates;
};

static int open_count(tr_share *share)
{
    struct count *c;
    TR_TRY(TR_NEW(&c, 1));
    share->own = c;
    return TR_OK;
}

static void close_count(tr_share *share)
{
    free(share->own);
}

static int update_count(tr_share *share, const tr_update *u)
{
    struct count *c = share->own;
    double *value = share->value, factor = 1 + 0.25 * (double)c->updates++;
    for (size_t i = 0; i < u->n * share->width; i++) {
        size_t at =
            (u->unit ? u->unit[i / share->width] : i / share->width) * share->width + i % share->width;
        value[at] += factor * ((const double *)u->value)[i];
    }
    return TR_OK;
}

static int save_count(const tr_share *share, void **data, size_t *bytes)
{
    const struct count *c = share->own;
    int64_t *copy;
    TR_TRY(TR_NEW(&copy, 1));
    *copy = c->updates;
    *data = copy;
    *bytes = sizeof *copy;
    return TR_OK;
}

static int load_count(tr_share *share, bool same, int server, int servers, const void *data, size_t bytes)
{
    struct count *c = share->own;
    if (bytes != sizeof c->updates || server >= servers || (same && server != share->server))
        return tr_fail(TR_ERR_INTERNAL, "%zu bytes of server %d of %d", bytes, server, servers);
    memcpy(&c->updates, data, bytes);
    return TR_OK;
}

static const tr_function counting = {.name = "counting",
                                     .merged = true,
                                     .open = open_count,
                                     .close = close_count,
                                     .update = update_count,
                                     .save = save_count,
                                     .load = load_count};

/* ---- a run ---- */

/* What there was at STAND and at the end. */
struct record {
    void *stand[KINDS], *end[KINDS];
    bool made[KINDS];        /* there is such a table */
    uint64_t present[KINDS]; /* hash storage: keys in maps at the end, of all ranks; and in which order */
};

/* A checkpoint: shards in a folder; what would be its manifest, the same on all ranks. */
struct checkpoint {
    const char *folder;
    struct tr_manifest manifest;
    struct tr_shard_seal seal[64];
};

struct run {
    tr_context *tr;
    tr_table *table[KINDS];
    tr_view *view[KINDS], *look[KINDS];
    int64_t first; /* clocks before this part */
    struct checkpoint *takes, *restores;
    bool hash; /* the job says so for all that can be */
    /* taking, in the middle */
    enum { NOT_YET, READY, COPIED, DONE } state;
    int status;
    MPI_Comm meeting; /* others wait for the end of the stage in the world's */
    MPI_Request all;
    struct tr_shard_seal seal;
    struct record *record;
};

static int worker_rank(const tr_context *tr)
{
    return tr->layout.worker_rank[0];
}

/* ---- taking and restoring ---- */

static int write_shard(struct run *r, tr_snapshot *snapshot)
{
    struct checkpoint *c = r->takes;
    struct tr_shard_head head = {c->manifest.run, c->manifest.number, (uint32_t)r->tr->rank,
                                 (uint32_t)r->tr->size, 0};
    char *path;
    TR_TRY(tr_shard_path(c->folder, c->manifest.number, head.shard, &path));
    int status = tr_shard_write(path, &head, snapshot->part, snapshot->parts, false, &r->seal);
    free(path);
    return status;
}

static int take(struct run *r)
{
    tr_snapshot *snapshot = NULL;
    TR_TRY(tr_snapshot_open(r->tr, NULL, NULL, NULL, &snapshot));
    int status = tr_snapshot_tables(r->tr, snapshot);
    if (status == TR_OK) status = write_shard(r, snapshot);
    tr_snapshot_close(&snapshot);
    return status;
}

/* Workers copy after they have read for STAND; other ranks when all earlier updates have arrived. No rank continues before
 * all have copied. */
static int poll_take(void *what, int *did)
{
    struct run *r = what;
    bool works = tr_works(r->tr);
    if (r->state == READY && !works && tr_clock_get(r->tr->sync->clock, TR_CLOCK_WRITTEN) < STAND)
        return TR_OK;
    if (r->state == READY) {
        r->state = COPIED;
        r->status = take(r);
        MPI_Ibarrier(r->meeting, &r->all);
        ++*did;
    }
    if (r->state == COPIED && tr_request_done(&r->all)) r->state = DONE;
    return TR_OK;
}

static int restore(struct run *r)
{
    tr_snapshot *snapshot = NULL;
    TR_TRY(tr_snapshot_open(r->tr, r->restores->folder, NULL, &r->restores->manifest, &snapshot));
    int status = tr_snapshot_tables(r->tr, snapshot);
    tr_snapshot_close(&snapshot);
    return status;
}

static int ready(void *what, const tr_stage *stage)
{
    struct run *r = what;
    if (r->takes && !tr_works(r->tr)) r->state = READY;
    return r->restores ? restore(r) : TR_OK;
}

static void begin_checkpoint(struct checkpoint *c)
{
    memset(c, 0, sizeof *c);
    c->folder = mpi_folder();
    if (mpi_test.rank == 0) mpi_ok(tr_checkpoint_make(c->folder, 1));
    MPI_Barrier(MPI_COMM_WORLD);
    c->manifest =
        (struct tr_manifest){.run = 77, .number = 1, .shards = (uint32_t)mpi_test.size, .seal = c->seal};
}

/* All shards are written. */
static void seal_checkpoint(struct run *r)
{
    struct checkpoint *c = r->takes;
    const struct tr_layout *l = &r->tr->layout;
    mpi_check(r->status == TR_OK && r->state == DONE, "taking: %d, state %d", r->status, (int)r->state);
    MPI_Allgather(&r->seal, sizeof r->seal, MPI_BYTE, c->seal, sizeof r->seal, MPI_BYTE, MPI_COMM_WORLD);
    c->manifest.facts = (struct tr_facts){.clock = STAND,
                                          .ranks = r->tr->size,
                                          .servers = l->servers,
                                          .groups = l->groups,
                                          .group_size = l->group_size};
}

static void remove_checkpoint(const struct checkpoint *c)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test.rank == 0) mpi_ok(tr_checkpoint_remove(c->folder, c->manifest.number, true));
}

/* ---- what happens at a clock ---- */

static bool is_mine(const tr_worker *me, tr_key key)
{
    return key % (uint64_t)me->workers == (uint64_t)me->worker && key % 5 != 4;
}

/* Every fourth key is changed only after STAND. */
static double change(size_t kind, tr_key key, size_t column, int64_t clock)
{
    if (key % 4 == 3 && clock < STAND) return 0;
    uint64_t x = tr_mix(key * 8191 + column * 31 + (uint64_t)clock * 7 + kind);
    return (double)(int64_t)(x % 64) - 25;
}

static void set_delta(const struct run *r, size_t i, const tr_worker *me, int64_t clock)
{
    tr_view *v = r->view[i];
    bool whole = kinds[i].dtype == TR_I32 || kinds[i].dtype == TR_I64;
    for (tr_key key = 0; key < v->n; key++)
        for (size_t c = 0; is_mine(me, key) && c < v->width; c++)
            set_element(kinds[i].dtype, v->delta, key * v->width + c,
                        change(i, key, c, clock) / (whole ? 1 : 16));
}

static int push_rows(struct run *r, size_t i, const tr_worker *me, int64_t clock)
{
    const struct kind *k = &kinds[i];
    for (tr_key key = 0; key < k->rows; key++) {
        uint32_t column[2] = {(uint32_t)(clock % 3 * 100), (uint32_t)(k->columns - 1 - (uint64_t)clock % 2)};
        int32_t whole[2];
        float real[2];
        for (int e = 0; e < 2; e++) {
            whole[e] = (int32_t)change(i, key, column[e] % 3, clock % 4); /* now and then they cancel out */
            real[e] = (float)whole[e] / 8;
        }
        tr_row row = {
            .key = key, .n = 2, .column = column, .value = k->dtype == TR_I32 ? (void *)whole : real};
        if (is_mine(me, key)) TR_TRY(tr_rows_push(r->table[i], &row, 1));
    }
    return TR_OK;
}

struct reading {
    const struct kind *kind;
    struct row *row;
};

static int read_row(void *state, const tr_row *row)
{
    struct reading *reading = state;
    struct row *to = &reading->row[row->key];
    *to = (struct row){.n = (uint32_t)row->n};
    for (uint32_t e = 0; e < row->n && e < 8; e++) {
        to->column[e] = row->column[e];
        to->value[e] = element(reading->kind->dtype, row->value, e);
    }
    return TR_OK;
}

static int look(struct run *r, size_t i, void *to)
{
    const struct kind *k = &kinds[i];
    if (!(k->flags & ROWS)) {
        TR_TRY(tr_view_pull(r->look[i]));
        memcpy(to, r->look[i]->value, kind_bytes(k));
        return TR_OK;
    }
    struct reading reading = {k, to};
    tr_key key[256];
    for (tr_key n = 0; n < k->rows; n++) key[n] = n;
    return tr_rows_pull(r->table[i], key, k->rows, read_row, &reading);
}

static int compute(tr_worker *me, void *state)
{
    struct run *r = state;
    int64_t clock = r->first + me->clock;
    for (size_t i = 0; i < KINDS; i++) {
        if (!r->table[i]) continue;
        if (r->view[i]) TR_TRY(tr_view_pull(r->view[i]));
        if (clock == STAND) TR_TRY(look(r, i, r->record->stand[i]));
        if (clock == CLOCKS) TR_TRY(look(r, i, r->record->end[i]));
    }
    if (clock == STAND && r->takes) {
        r->state = READY;
        TR_WAIT_UNTIL(r->tr, r->state == DONE, "the checkpoint to be taken");
    }
    if (clock == CLOCKS) return TR_OK; /* for looking only */
    for (size_t i = 0; i < KINDS; i++) {
        if (!r->table[i]) continue;
        if (r->view[i]) set_delta(r, i, me, clock);
        else TR_TRY(push_rows(r, i, me, clock));
    }
    for (size_t i = 0; i < KINDS; i++)
        if (r->view[i]) TR_TRY(tr_view_push(r->view[i]));
    return TR_OK;
}

static int prepare(tr_worker *me, void *state)
{
    struct run *r = state;
    tr_key *key;
    TR_TRY(TR_NEW(&key, 8192));
    for (tr_key n = 0; n < 8192; n++) key[n] = n;
    for (size_t i = 0; i < KINDS; i++) {
        if (!r->table[i] || kinds[i].flags & ROWS) continue;
        size_t n = tr_table_keys(r->table[i]);
        TR_TRY(tr_view_open(r->table[i], key, n, TR_VIEW_UPDATE, &r->view[i]));
        TR_TRY(tr_view_open(r->table[i], key, n, TR_VIEW_READ, &r->look[i]));
        if (r->restores) TR_TRY(tr_view_pull(r->look[i])); /* in vain */
    }
    free(key);
    return TR_OK;
}

/* ---- from beginning to end ---- */

static void make_table(struct run *r, size_t i)
{
    const struct kind *k = &kinds[i];
    static const tr_optimizer optimizers[] = {
        {.kind = TR_ADAM, .rate = 0.125, .momentum = 0.875, .decay = 0.5},
        {.kind = TR_MOMENTUM, .rate = 0.125, .momentum = 0.75},
        {.kind = TR_NESTEROV, .rate = 0.125, .momentum = 0.75},
        {.kind = TR_FTRL, .rate = 0.5, .l1 = 0.5},
        {.kind = TR_ADADELTA, .rate = 1}};
    bool fixed = r->hash || tr_layout_workers(&r->tr->layout) == 0;
    tr_table_options options = {
        .hash = k->flags & HASH,
        .sparse = k->flags & ROWS,
        .servers = k->flags & (SOME | RESIZED) ? (uint32_t)(r->tr->layout.servers + 1) / 2 : 0,
        .place = k->flags & PLACED ? place : NULL};
    uint64_t moved;
    mpi_ok(tr_table_create_with(r->tr, k->name, k->dtype, k->rows, k->columns, &options, &r->table[i]));
    if (k->flags & RESIZED && !fixed)
        mpi_ok(tr_table_resize(r->table[i], (uint32_t)r->tr->layout.servers, &moved));
    if (k->flags & LEFT_OUT) tr_table_leave_out(r->table[i]);
    const void *argument = NULL;
    for (size_t o = 0; k->function && o < COUNT(optimizers); o++)
        if (!strcmp(tr_optimizer_name(optimizers[o].kind), k->function)) argument = &optimizers[o];
    if (k->function) mpi_ok(tr_table_use(r->table[i], k->function, argument));
}

/* Of the keys in a map: another number if they came in another order. */
static uint64_t order_of(const tr_table *t)
{
    uint64_t sum = 0;
    for (uint32_t slot = 0; t->map && slot < t->map->count; slot++)
        sum += tr_mix(tr_hashmap_key(t->map, slot) * 65537 + slot);
    return sum;
}

static void share_record(const struct run *r)
{
    for (size_t i = 0; i < KINDS; i++) {
        r->record->made[i] = r->table[i] != NULL;
        if (!r->table[i]) continue;
        int bytes = (int)kind_bytes(&kinds[i]);
        MPI_Bcast(r->record->stand[i], bytes, MPI_BYTE, worker_rank(r->tr), r->tr->world);
        MPI_Bcast(r->record->end[i], bytes, MPI_BYTE, worker_rank(r->tr), r->tr->world);
        r->record->present[i] = order_of(r->table[i]);
        MPI_Allreduce(MPI_IN_PLACE, &r->record->present[i], 1, MPI_UINT64_T, MPI_SUM, r->tr->world);
    }
}

static void open_record(struct record *record)
{
    for (size_t i = 0; i < KINDS; i++) {
        mpi_ok(TR_NEW((char **)&record->stand[i], kind_bytes(&kinds[i])));
        mpi_ok(TR_NEW((char **)&record->end[i], kind_bytes(&kinds[i])));
    }
}

static void close_record(struct record *record)
{
    for (size_t i = 0; i < KINDS; i++) {
        TR_FREE_ALL(record->stand[i], record->end[i]);
    }
}

static void run_stage(struct run *r, int64_t clocks)
{
    tr_stage stage = {.name = "keep", .state = r, .clocks = clocks, .prepare = prepare, .compute = compute};
    tr_observers(r->tr)->ready = ready;
    tr_observers(r->tr)->ready_who = r;
    mpi_ok(tr_poll_add(r->tr, poll_take, r));
    mpi_ok(tr_run(r->tr, &stage));
    tr_poll_remove(r->tr, poll_take, r);
    for (size_t i = 0; i < KINDS; i++) {
        tr_view_close(&r->view[i]);
        tr_view_close(&r->look[i]);
    }
}

/* Runs it all, or from a checkpoint on. */
static void run_all(const char *settings, struct checkpoint *takes, struct checkpoint *restores,
                    struct record *record)
{
    struct run r = {.tr = mpi_context(settings), .takes = takes, .record = record};
    r.hash = strstr(settings, "storage=hash") != NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &r.meeting);
    mpi_ok(tr_function_register(r.tr, &counting));
    bool held = strstr(settings, "table.filter") || strstr(settings, "table.precision");
    for (size_t i = 0; i < KINDS; i++)
        if (held == !!(kinds[i].flags & HELD)) make_table(&r, i);
    if (restores) { /* stages before have left something else in the tables */
        r.first = 100;
        run_stage(&r, 2);
        r.first = STAND;
        r.restores = restores;
    }
    run_stage(&r, CLOCKS + 1 - r.first);
    if (takes) seal_checkpoint(&r);
    share_record(&r);
    MPI_Comm_free(&r.meeting);
    mpi_ok(tr_close(r.tr));
}

/* ---- comparing ---- */

static void compare(const char *what, size_t i, const void *a, const void *b)
{
    const struct kind *k = &kinds[i];
    size_t bytes = kind_bytes(k), size = k->flags & ROWS ? sizeof(struct row) : tr_dtype_size(k->dtype);
    if (!memcmp(a, b, bytes)) return;
    for (size_t e = 0; e < bytes / size; e++)
        if (memcmp((const char *)a + e * size, (const char *)b + e * size, size) != 0) {
            if (k->flags & ROWS) mpi_check(false, "%s: row %zu of table %s differs", what, e, k->name);
            else
                mpi_check(false, "%s: element %zu of table %s is %.17g, expected %.17g", what, e, k->name,
                          element(k->dtype, a, e), element(k->dtype, b, e));
            return;
        }
}

/* same: on the same servers. */
static void compare_records(const char *what, const struct record *a, const struct record *b, bool same,
                            bool goes_on)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (!a->made[i]) continue;
        if (goes_on && kinds[i].flags & LEFT_OUT) {
            mpi_check(memcmp(a->stand[i], b->stand[i], kind_bytes(&kinds[i])) != 0, "table %s is restored",
                      kinds[i].name);
            continue;
        }
        if (same || goes_on || !(kinds[i].flags & BY_SHARE)) compare(what, i, a->stand[i], b->stand[i]);
        if (same || !(kinds[i].flags & BY_SHARE)) compare(what, i, a->end[i], b->end[i]);
        mpi_check(!same || a->present[i] == b->present[i],
                  "%s: other keys of table %s are present, or in another order", what, kinds[i].name);
    }
}

/* ---- cases ---- */

/* Layouts of the tables, from one to the next. Those of few ranks are cheap. */
static const char *setup(int i)
{
    static const struct {
        int least, most;
        const char *settings;
    } all[] = {{1, 2, "table.partition=range-hash"},
               {1, 1, "table.partition=hash"},
               {2, 2, "table.partition=range table.push=message ranks.node_size=1"},
               {3, 99, "table.partition=ring ranks.layout=dedicated table.route=request"},
               {1, 4, "table.partition=range table.storage=hash"},
               {4, 99, "table.partition=range-hash table.block=3 ranks.servers=3 ranks.node_size=2"}};
    for (size_t k = 0; k < COUNT(all); k++)
        if (mpi_test.size >= all[k].least && mpi_test.size <= all[k].most && i-- == 0) return all[k].settings;
    return NULL;
}

static struct record plain, kept, on;

static void open_records(void)
{
    open_record(&plain);
    open_record(&kept);
    open_record(&on);
}

static void close_records(void)
{
    close_record(&plain);
    close_record(&kept);
    close_record(&on);
}

/* Each layout resumes from its own checkpoint and from that of the previous layout. */
MPI_CASE(everything_goes_on)
{
    open_records();
    run_all(setup(0), NULL, NULL, &plain);
    for (int i = 0; setup(i); i++) {
        struct checkpoint c;
        begin_checkpoint(&c);
        run_all(setup(i), &c, NULL, &kept);
        compare_records("a checkpoint disturbs", &kept, &plain, i == 0, false);
        run_all(setup(i), NULL, &c, &on);
        compare_records("going on", &on, &kept, true, true);
        run_all(setup(setup(i + 1) ? i + 1 : 0), NULL, &c, &on);
        compare_records("going on elsewhere", &on, &kept, false, true);
        remove_checkpoint(&c);
    }
    close_records();
}

/* The updates sent before STAND to a table with delayed updates, in sixteenths. */
static double sent(size_t i, tr_key key)
{
    double sum = 0;
    for (int64_t clock = 0; key % 5 != 4 && clock < STAND; clock++) sum += change(i, key, 0, clock) / 16;
    return sum;
}

/* Whether all that was sent is in the values. */
static bool has_all(size_t i, const float *value)
{
    bool all = true;
    for (tr_key key = 0; key < kinds[i].columns; key++) all = all && value[key] == (float)sent(i, key);
    return all;
}

/* Delayed updates and rounding residuals are restored; in another layout they are added to the table. */
MPI_CASE(what_is_held_back_goes_on)
{
    static const char *const holds[] = {"table.filter=threshold table.filter_limit=2", "table.filter=skip",
                                        "table.precision=f8"};
    open_records();
    for (size_t h = 0; mpi_test.size <= 4 && h < COUNT(holds); h++) {
        struct checkpoint c;
        const char *other = mpi_text("table.partition=hash ranks.servers=1 %s", holds[h]);
        begin_checkpoint(&c);
        run_all(holds[h], NULL, NULL, &plain);
        run_all(holds[h], &c, NULL, &kept);
        compare_records("a checkpoint disturbs", &kept, &plain, true, false);
        run_all(holds[h], NULL, &c, &on);
        compare_records("going on", &on, &plain, true, true);
        run_all(other, NULL, &c, &on);
        for (size_t i = 0; i < KINDS; i++) {
            if (!(kinds[i].flags & HELD)) continue;
            mpi_check(!has_all(i, plain.stand[i]), "%s: nothing of table %s is held back", holds[h],
                      kinds[i].name);
            mpi_check(has_all(i, on.stand[i]), "%s: of table %s something is lost", holds[h], kinds[i].name);
        }
        remove_checkpoint(&c);
    }
    close_records();
}

/* Three rows of each rank, of which its neighbours have two or one: of another value. */
enum { OWN_ROWS = 3 };

static void keep_own_rows(struct run *r, int64_t total, tr_snapshot *snapshot)
{
    int64_t value[OWN_ROWS];
    for (int i = 0; i < OWN_ROWS; i++) value[i] = 100 * mpi_test.rank + mpi_test.rank + i;
    mpi_ok(tr_snapshot_rows(snapshot, "row", TR_I64, (uint64_t)total, 1, NULL, (uint64_t)mpi_test.rank,
                            OWN_ROWS, value));
    r->status = write_shard(r, snapshot);
}

static void find_all_rows(int64_t total, tr_snapshot *snapshot)
{
    int64_t *found;
    mpi_ok(TR_NEW(&found, (size_t)total));
    mpi_ok(tr_snapshot_rows(snapshot, "row", TR_I64, (uint64_t)total, 1, NULL, 0, (size_t)total, found));
    for (int64_t row = 0; row < total; row++) {
        int64_t from = found[row] / 100;
        bool own = row >= mpi_test.rank && row < mpi_test.rank + OWN_ROWS;
        mpi_check(found[row] % 100 == row && row >= from && row < from + OWN_ROWS &&
                      (!own || from == mpi_test.rank),
                  "row %d is %d", (int)row, (int)found[row]);
    }
    free(found);
}

/* What several ranks have kept of a row need not be the same: each finds its own, also where it needs others' rows. */
MPI_CASE(each_finds_its_own_rows_first)
{
    struct checkpoint c;
    begin_checkpoint(&c);
    struct run r = {.tr = mpi_context("table.partition=range"), .takes = &c, .state = DONE};
    tr_snapshot *snapshot = NULL;
    int64_t total = mpi_test.size + OWN_ROWS - 1;
    mpi_ok(tr_snapshot_open(r.tr, NULL, NULL, NULL, &snapshot));
    keep_own_rows(&r, total, snapshot);
    tr_snapshot_close(&snapshot);
    seal_checkpoint(&r);
    mpi_ok(tr_snapshot_open(r.tr, c.folder, NULL, &c.manifest, &snapshot));
    find_all_rows(total, snapshot);
    tr_snapshot_close(&snapshot);
    mpi_ok(tr_close(r.tr));
    remove_checkpoint(&c);
}
