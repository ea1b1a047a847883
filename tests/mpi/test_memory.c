/* Checkpoints in memory: killed runs resume from them, for every combination of lost ranks. */
#include "resumed.h"

#include <sys/stat.h>

#include "store/checkpoint.h"
#include "store/memory.h"

enum { CLOCKS = 150, LARGE = 700000 };

struct play {
    tr_context *tr;
    struct resumed of;
    int64_t begun;     /* the first clock that it computed */
    int takes, enough; /* checkpoints so far; the run fails after `enough`; 0: never */
    float *large;      /* of this worker; NULL: nothing */
    struct tr_checkpoint_counts counts;
};

static int prepare(tr_worker *me, void *state)
{
    return resumed_prepare(&((struct play *)state)->of, me);
}

static int compute(tr_worker *me, void *state)
{
    struct play *p = state;
    if (p->begun < 0) p->begun = me->clock;
    TR_TRY(resumed_compute(&p->of, me->clock));
    if (p->enough > 0 && p->takes >= p->enough && me->worker == 0) return tr_fail(TR_ERR_DATA, "on purpose");
    if (p->large) p->large[me->clock] = (float)me->clock;
    if (p->enough > 0) tr_sleep(2e-3);
    return tr_view_push(p->of.view);
}

static int snapshot(tr_worker *me, void *state, tr_snapshot *k)
{
    struct play *p = state;
    bool found;
    p->takes += !tr_snapshot_restores(k);
    TR_TRY(resumed_keep(&p->of, me, k));
    return p->large ? tr_snapshot_own(k, "large", p->large, LARGE * sizeof *p->large, &found) : TR_OK;
}

/* The folder of those on the disk. */
static const char *checkpoints(void)
{
    static char to[MPI_NOTE];
    snprintf(to, sizeof to, "%s/checkpoints", mpi_folder());
    return to;
}

/* A run from its start or its checkpoint, until `enough` checkpoints have been taken; 0: to its end. */
static void run(struct play *p, const char *settings, uint64_t memory, uint64_t disk, bool fresh, int enough,
                float *large)
{
    const char *all = mpi_text("%s output=%s", settings, mpi_folder());
    *p = (struct play){.tr = mpi_context(all), .begun = -1, .large = large, .enough = enough};
    p->tr->job->checkpoint.every = (struct tr_job_pace){.clocks = disk};
    p->tr->job->checkpoint.memory = (struct tr_job_pace){.clocks = memory};
    mpi_ok(tr_checkpoints_open(p->tr, fresh));
    mpi_ok(tr_table_create(p->tr, "w", TR_F64, 1, KEYS, &p->of.table));
    const tr_stage stage = {.name = "train",
                            .state = p,
                            .clocks = CLOCKS,
                            .epochs_per_clock = 1,
                            .prepare = prepare,
                            .compute = compute,
                            .snapshot = snapshot};
    int status = tr_run(p->tr, &stage), expected = enough == 0 ? TR_OK : TR_ERR_DATA;
    mpi_check(status == expected, "status %d, expected %d: %s", status, expected, tr_error_text());
    if (tr_checkpoint_settle(p->tr) != TR_OK) mpi_note(__FILE__, __LINE__, "cannot settle");
    tr_checkpoint_count(p->tr, &p->counts);
    MPI_Bcast(&p->counts, sizeof p->counts, MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* The number of the checkpoint from which the run resumes; 0: none. */
static uint64_t found(const struct play *p)
{
    const struct tr_manifest *from = tr_checkpoint_found(p->tr);
    if (tr_is(p->tr, TR_SLAVE) && from) mpi_equal(p->begun, from->facts.clock);
    return from ? from->number : 0;
}

/* Leaves everything as it is, as a run does that is killed. */
static void kill_run(struct play *p)
{
    tr_view_close(&p->of.view);
    (void)tr_checkpoints_close(p->tr, false, TR_OK);
    (void)tr_close(p->tr);
}

/* Ends it; nothing is left in memory. */
static void end_run(struct play *p)
{
    resumed_check(p->tr, &p->of, CLOCKS);
    if (p->large && tr_is(p->tr, TR_SLAVE))
        for (int64_t c = 0; c < CLOCKS; c++)
            mpi_check(p->large[c] == (float)c, "number %d is %g", (int)c, (double)p->large[c]);
    tr_view_close(&p->of.view);
    mpi_ok(tr_checkpoints_close(p->tr, true, TR_OK));
    (void)tr_close(p->tr);
    MPI_Barrier(MPI_COMM_WORLD);
    mpi_check(tr_memory_run(checkpoints()) == 0, "%s names a run in memory", checkpoints());
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test.rank == 0) mpi_remove(mpi_folder());
}

/* What this host has of the run in memory, seen by all of its ranks at the same time. */
static struct tr_memory_file *files_of(uint64_t run_number, size_t *n)
{
    struct tr_memory_file *file = NULL;
    *n = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    mpi_ok(tr_memory_list(run_number, &file, n));
    MPI_Barrier(MPI_COMM_WORLD);
    return file;
}

static void check_nothing_left(uint64_t run_number)
{
    size_t n;
    struct tr_memory_file *file = files_of(run_number, &n);
    mpi_check(n == 0, "%s is left behind, and %d more", n > 0 ? file[0].path : "", (int)n - 1);
    tr_memory_files_free(file, n);
}

MPI_CASE(what_was_killed_goes_on_from_memory)
{
    const char *layout;
    for (int i = 0; (layout = mpi_layout(i)); i++) {
        struct play p;
        if (!mpi_chosen(i, 0, mpi_test.hosts ? 4 : mpi_test.size > 4 ? 3 : 2)) continue;
        run(&p, layout, 3, 0, true, 1, NULL);
        uint64_t last = p.counts.last_in_memory, which = tr_memory_run(checkpoints());
        mpi_check(p.counts.in_memory > 0 && p.counts.not_in_memory == 0, "%d in memory, %d not",
                  (int)p.counts.in_memory, (int)p.counts.not_in_memory);
        kill_run(&p);
        run(&p, layout, 3, 0, false, 0, NULL);
        mpi_equal(found(&p), last);
        end_run(&p);
        check_nothing_left(which);
    }
}

/* The newest checkpoint is used, in memory or on disk; checkpoints in memory of earlier runs are ignored. */
MPI_CASE(the_newest_of_disk_and_memory_counts)
{
    struct play p;
    run(&p, "sync.mode=bsp", 0, 2, true, 1, NULL);
    uint64_t disk = p.counts.last;
    kill_run(&p);
    run(&p, "sync.mode=bsp", 2, 0, false, 1, NULL);
    uint64_t memory = p.counts.last_in_memory, which = tr_memory_run(checkpoints());
    mpi_equal(found(&p), disk);
    kill_run(&p);
    mpi_check(disk > 0 && memory > disk, "%d on the disk, then %d in memory", (int)disk, (int)memory);
    run(&p, "sync.mode=bsp", 0, 3, false, 1, NULL);
    mpi_equal(found(&p), memory);
    disk = p.counts.last;
    mpi_check(disk > memory, "%d in memory, then %d on the disk", (int)memory, (int)disk);
    kill_run(&p);
    MPI_Barrier(MPI_COMM_WORLD);
    tr_memory_remove(which, 0, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    run(&p, "sync.mode=bsp", 2, 0, false, 1, NULL);
    mpi_equal(found(&p), disk);
    kill_run(&p);
    run(&p, "sync.mode=bsp", 2, 0, true, 0, NULL);
    mpi_equal(found(&p), 0);
    end_run(&p);
    check_nothing_left(which);
}

/* Files of one node of this host, or of all (-1), are removed or cut off: all, or those of a shard of a checkpoint. */
static void lose(uint64_t run_number, int node, bool truncates, uint64_t number, int64_t shard)
{
    char part[32];
    size_t n;
    struct tr_memory_file *file = files_of(run_number, &n);
    snprintf(part, sizeof part, ".%d/", node);
    for (size_t i = 0; i < n; i++) {
        if (node >= 0 && !strstr(file[i].path, part)) continue;
        if (shard >= 0 && (file[i].number != number || file[i].shard != shard)) continue;
        struct stat about;
        if (!truncates) (void)unlink(file[i].path);
        else if (stat(file[i].path, &about) == 0 && about.st_size > 100 && truncate(file[i].path, 100) < 0)
            mpi_note(__FILE__, __LINE__, "%s cannot be cut", file[i].path);
    }
    tr_memory_files_free(file, n);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The first node or the last, which are hosts or not. */
static void lose_node(uint64_t run_number, int node)
{
    bool mine = true;
    if (mpi_test.hosts) {
        mine = mpi_test.rank == (node == 0 ? 0 : mpi_test.size - 1);
        node = 0;
    }
    lose(mine ? run_number : 1, node, false, 0, -1);
}

MPI_CASE(a_lost_node_is_made_good_by_its_neighbour)
{
    float *large = calloc(LARGE, sizeof *large);
    for (int node = 0; node < 2 && mpi_test.size > 1 && large; node++) {
        const char *settings = mpi_test.hosts ? "sync.mode=bsp" : "ranks.node_size=1";
        struct play p;
        run(&p, settings, 10, 0, true, 1, large);
        uint64_t last = p.counts.last_in_memory, which = tr_memory_run(checkpoints());
        kill_run(&p);
        memset(large, 0, LARGE * sizeof *large);
        lose_node(which, node == 0 ? 0 : mpi_test.size - 1);
        run(&p, settings, 10, 0, false, 0, large);
        uint64_t from = found(&p);
        mpi_check(last > 0 && from == last, "it resumes from %d, expected %d", (int)from, (int)last);
        end_run(&p);
        check_nothing_left(which);
    }
    free(large);
}

/* Of other ranks, in other roles, on other nodes. */
MPI_CASE(another_layout_goes_on_from_memory)
{
    const char *from[] = {"ranks.node_size=1", "ranks.node_size=2",
                          "ranks.layout=dedicated ranks.node_size=1"};
    const char *to[] = {"ranks.node_size=2", "ranks.layout=colocated ranks.group_size=2 ranks.node_size=1",
                        "table.partition=hash"};
    for (int i = 0; i < 3 && mpi_test.size > 2 && !mpi_test.hosts; i++) {
        struct play p;
        run(&p, from[i], 3, 0, true, 1, NULL);
        uint64_t last = p.counts.last_in_memory, which = tr_memory_run(checkpoints());
        kill_run(&p);
        lose_node(which, i == 1 ? 1 : mpi_test.size - 1);
        run(&p, to[i], 3, 0, false, 0, NULL);
        uint64_t number = found(&p);
        mpi_check(last > 0 && number == last, "it resumes from %d, expected %d", (int)number, (int)last);
        end_run(&p);
        check_nothing_left(which);
    }
}

/* What is torn everywhere leaves the one before. */
MPI_CASE(a_torn_copy_leaves_the_one_before)
{
    for (int everywhere = mpi_test.hosts; everywhere < 2; everywhere++) {
        const char *settings = mpi_test.size > 1 ? "ranks.node_size=1" : "sync.mode=bsp";
        struct play p;
        run(&p, settings, 1, 0, true, 2, NULL);
        uint64_t last = p.counts.last_in_memory, which = tr_memory_run(checkpoints());
        mpi_check(p.counts.in_memory > 1, "only %d in memory", (int)p.counts.in_memory);
        kill_run(&p);
        bool covered = !everywhere && mpi_test.size > 1 && !mpi_test.hosts;
        lose(which, covered ? 0 : -1, true, last, 0);
        run(&p, settings, 1, 0, false, 0, NULL);
        uint64_t from = found(&p), expected = covered ? last : last - 1;
        mpi_check(from == expected, "it resumes from %d, expected %d of %d", (int)from, (int)expected,
                  (int)last);
        end_run(&p);
        check_nothing_left(which);
    }
}
