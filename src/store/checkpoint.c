#define _GNU_SOURCE
#include "store/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "store/memory.h"
#include "trireme/collective.h"

/* Frequency of checkpoints on the disk, or of checkpoints in memory. */
struct tr_pace {
    double seconds;     /* seconds between two checkpoints; 0: not limited */
    int64_t clocks;     /* number of clocks between two checkpoints; 0: not limited */
    double last;        /* tr_now() of the last checkpoint, or of the start of training */
    int64_t last_clock; /* clock of the last checkpoint */
    double cost;        /* seconds from taking the last checkpoint until it was complete */
};

struct tr_policy {
    struct tr_pace disk, memory;
    double end;         /* tr_now() when the job must have ended (checkpoint.max_time), or infinity */
    double most;        /* checkpoint.max_time in seconds, or infinity */
    bool entered;       /* tr_checkpoint_enter() was called: training has begun */
    int opened, obeyed; /* value of signals_asked at the start, and when the last checkpoint was taken */
};

/* Report of a rank to rank 0 that its shard is written, or has failed. */
struct tr_shard_report {
    int64_t number, status; /* number of the checkpoint; status of writing */
    struct tr_shard_seal seal;
    char error[512];
};

/* A thread writes files during training, because fsync may take seconds, in which all ranks would wait for this rank. Meanwhile no
 * other thread of the rank uses HDF5. The thread does not use MPI. */
struct tr_writer {
    pthread_t thread;
    bool busy;        /* the thread was started and has not been joined yet */
    atomic_bool done; /* the thread has finished */
    int (*write)(struct tr_checkpoints *c);
    int status; /* result of write(), and the error text */
    char error[512];
};

/* A checkpoint that is being written. Rank 0 waits for all shards, then for the manifest; other ranks wait for their shard. */
struct tr_being_written {
    /* any: a checkpoint is being written; in_memory: it is written to memory, not to the disk */
    bool any, in_memory;
    bool reported; /* checkpoint in memory: this rank has sent its report to rank 0 */
    uint64_t number;
    double begin;                /* tr_now() when the checkpoint was taken */
    tr_snapshot *snapshot;       /* the copied parts, which are written to the shard of this rank */
    struct tr_shard_seal seal;   /* size and digest of that shard */
    struct tr_manifest manifest; /* other ranks than 0: only the members that tr_manifest_head() needs */
    uint32_t arrived;            /* rank 0: number of shards that are written, or have failed */
    int status;                  /* rank 0: first failure of a shard */
    char error[512];
};

struct tr_checkpoints {
    tr_context *tr;
    char *to;                      /* folder of the checkpoints on the disk */
    char *locked;                  /* rank 0: path of the lock file, if checkpoint.to is set; else NULL */
    int lock;                      /* descriptor of the lock file, or -1 */
    uint64_t run, attempt, number; /* number: of the last checkpoint that was started */
    /* continues: the run resumes from checkpoint `found`; restored: its state was restored */
    bool continues, restored;
    struct tr_checkpoint_memory *memory;
    bool wants_memory;        /* rank 0: a checkpoint in memory is due, not on the disk */
    struct tr_manifest found; /* the checkpoint that the run resumes from */
    bool found_in_memory;
    int64_t entered;      /* number of stages and tasks that have started */
    double began, before; /* tr_now() at the start of this part of the run; seconds of earlier parts */
    struct tr_policy policy;
    struct tr_lister {
        tr_lister_fn *list;
        void *who;
    } * lister;
    size_t listers, lister_capacity;
    struct tr_writer writer;
    struct tr_being_written now;
    struct tr_shard_report report; /* report that is being sent to rank 0 by `sending` */
    MPI_Request sending, passing;
    /* numbers that `passing` sends to rank 0: 1 if a stop was requested; number of checkpoint requests */
    int64_t passed[2];
    double probed; /* tr_now() of the last probe for signals */
    struct tr_checkpoint_counts counts;
    int failure; /* rank 0: status of the last checkpoint on the disk, with the error text `why` */
    char why[512];
    tr_snapshot *best; /* the best model so far, or NULL */
};

/* Numbers of requests by signals, and of users of the handlers. Global, because signals belong to the process, not to a context. */
static _Atomic int signals_asked, signals_stops, signals_ends, signals_askers, signals_enders;

/* ================ policy ================ */

/* ---- time ---- */

static bool policy_is_due(const struct tr_pace *p, double now, int64_t clock)
{
    return (p->seconds > 0 && now >= p->last + p->seconds) ||
           (p->clocks > 0 && clock >= p->last_clock + p->clocks);
}

/* Records that a checkpoint was taken at this clock, or that the run resumes at this clock. A checkpoint on the disk also counts as
 * one in memory. */
static void policy_taken(struct tr_policy *p, int64_t clock, bool in_memory)
{
    p->memory.last = tr_now();
    p->memory.last_clock = clock;
    if (in_memory) return;
    p->disk.last = p->memory.last;
    p->disk.last_clock = clock;
    p->obeyed = signals_asked;
}

/* ---- signals ---- */

static _Atomic double first_end;           /* tr_now() of the first TERM or INT */
static struct sigaction signals_before[4]; /* previous handlers of USR1, USR2, TERM and INT */

/* USR1 asks for a stop, USR2 for a checkpoint. TERM and INT ask for a stop, and a second TERM or INT ends the process. A signal
 * less than a second after the first does not count as the second, because Slurm and the supervisor may both send it. USR1 does not
 * count, because it may announce a time limit, and other ranks may have received it earlier. */
static void signals_handle(int number)
{
    const double same = 1;
    double now = tr_now();
    atomic_fetch_add(number == SIGUSR2 ? &signals_asked : &signals_stops, 1);
    if (number == SIGUSR1 || number == SIGUSR2) return;
    if (atomic_fetch_add(&signals_ends, 1) == 0) atomic_store(&first_end, now);
    if (now - atomic_load(&first_end) < same) return;
    sigaction(number, &signals_before[number == SIGTERM ? 2 : 3], NULL);
    raise(number);
}

void tr_signals_handle(enum tr_signals which, bool on)
{
    static const int numbers[4] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT};
    struct sigaction handle = {.sa_handler = signals_handle, .sa_flags = SA_RESTART};
    _Atomic int *users = which == TR_SIGNALS_ASK ? &signals_askers : &signals_enders;
    if (on ? atomic_fetch_add(users, 1) > 0 : atomic_fetch_sub(users, 1) > 1) return;
    if (on && which == TR_SIGNALS_ASK) signals_asked = signals_stops = signals_ends = 0;
    for (int i = which; i < (int)which + 2; i++)
        sigaction(numbers[i], on ? &handle : &signals_before[i], on ? &signals_before[i] : NULL);
}

bool tr_signals_stop(void)
{
    return atomic_load(&signals_stops) > 0;
}

void tr_signals_pass(bool stop)
{
    atomic_fetch_add(stop ? &signals_stops : &signals_asked, 1);
}

/* ================ the best model ================ */

/* Every rank stores its part of the best model in memory: a snapshot of tables and stage, from which the same process can restore
 * both. Checkpoints contain this snapshot, for runs that resume with the same layout. */

/* Lists the tables and the state of the stage. */
static int snapshot_model(tr_context *tr, tr_snapshot *snapshot, tr_lister_fn *list, void *who)
{
    snapshot->prefix = NULL;
    TR_TRY(tr_snapshot_tables(tr, snapshot));
    snapshot->prefix = "stage/";
    return list ? list(who, snapshot) : TR_OK;
}

/* ---- in memory ---- */

/* Replaces the best model by an empty snapshot. */
static int best_open(tr_context *tr, tr_snapshot **best)
{
    tr_snapshot_close(best);
    TR_TRY(tr_snapshot_open(tr, NULL, NULL, NULL, best));
    (*best)->in_process = (*best)->same_layout = true;
    return TR_OK;
}

int tr_best_keep(tr_context *tr, tr_lister_fn *list, void *who)
{
    tr_snapshot **best = &tr->checkpoints->best;
    int status = best_open(tr, best);
    if (status == TR_OK) status = snapshot_model(tr, *best, list, who);
    return tr_agree(tr, status);
}

int tr_best_restore(tr_context *tr, tr_lister_fn *list, void *who)
{
    tr_snapshot *best = tr->checkpoints->best;
    if (!best) return tr_agree(tr, tr_fail(TR_ERR_INTERNAL, "no model was kept as the best"));
    best->fills = true;
    int status = tr_agree(tr, snapshot_model(tr, best, list, who));
    best->fills = false;
    return status;
}

/* ---- in checkpoints: bytes of a part of kind own, which contain the struct of each part, followed by its arrays ---- */

struct best_bytes {
    char *at;
    size_t n, capacity;
};

static int best_append(struct best_bytes *b, const void *from, size_t n)
{
    TR_TRY(TR_GROW(&b->at, &b->capacity, b->n + n));
    if (n > 0) memcpy(b->at + b->n, from, n);
    b->n += n;
    return TR_OK;
}

/* Copies the next n bytes to new memory; the copy of 0 bytes is NULL. */
static int best_copy_next(struct best_bytes *b, size_t n, void *copy)
{
    void **to = copy;
    *to = NULL;
    if (n == 0) return TR_OK;
    if (n > b->capacity - b->n) return tr_fail(TR_ERR_DATA, "checkpoint: the best model in it is incomplete");
    TR_TRY(TR_NEW((char **)to, n));
    memcpy(*to, b->at + b->n, n);
    b->n += n;
    return TR_OK;
}

int tr_best_list(tr_context *tr, tr_snapshot *snapshot, bool *found)
{
    tr_snapshot **best = &tr->checkpoints->best;
    TR_FREED struct best_bytes b = {.at = NULL}; /* TR_FREED frees the first member, b.at */
    uint64_t about[2] = {sizeof(struct tr_part), 0};
    bool restores = tr_snapshot_restores(snapshot);
    *found = false;
    for (size_t i = 0; !restores && *best && i < (*best)->parts; i++) {
        const struct tr_part *p = &(*best)->part[i];
        TR_TRY(best_append(&b, p, sizeof *p));
        TR_TRY(best_append(&b, p->run, p->runs * sizeof *p->run));
        if (p->begin) TR_TRY(best_append(&b, p->begin, ((size_t)p->rows + 1) * sizeof *p->begin));
        TR_TRY(best_append(&b, p->data, (size_t)tr_part_elements(p) * tr_part_type_size(p->type)));
    }
    about[1] = b.n;
    TR_TRY(tr_snapshot_own(snapshot, "best_bytes", about, sizeof about, found));
    if (!restores) return tr_snapshot_own(snapshot, "best", b.at, b.n, found);

    *found = *found && about[0] == sizeof(struct tr_part) && about[1] > 0;
    if (!*found) return TR_OK;
    b.capacity = (size_t)about[1];
    TR_TRY(TR_NEW(&b.at, b.capacity));
    TR_TRY(tr_snapshot_own(snapshot, "best", b.at, b.capacity, found));
    if (!*found) {
        tr_snapshot_close(best);
        return TR_OK;
    }
    TR_TRY(best_open(tr, best));
    while (b.n < b.capacity) {
        struct tr_part p TR_CLOSED_BY(tr_part_free) = {.rows = 0};
        if (sizeof p > b.capacity - b.n)
            return tr_fail(TR_ERR_DATA, "checkpoint: the best model in it is incomplete");
        memcpy(&p, b.at + b.n, sizeof p);
        b.n += sizeof p;
        bool lists = p.begin;
        p = tr_part_without_arrays(&p);
        TR_TRY(best_copy_next(&b, p.runs * sizeof *p.run, &p.run));
        if (lists) TR_TRY(best_copy_next(&b, ((size_t)p.rows + 1) * sizeof *p.begin, &p.begin));
        TR_TRY(best_copy_next(&b, (size_t)tr_part_elements(&p) * tr_part_type_size(p.type), &p.data));
        TR_TRY(tr_snapshot_give(*best, &p));
    }
    return TR_OK;
}

/* ================ finding a checkpoint ================ */

/* The run resumes from the newest undamaged checkpoint of a run that has not ended. Rank 0 searches; all ranks verify shards. */
#define ENDED "ended" /* file in the folder of the checkpoints that contains the run that has ended */

/* ---- candidates ---- */

/* Checkpoints that were not examined yet. */
struct find_candidates {
    uint64_t *number;   /* rank 0: all checkpoints on the disk, the newest first */
    uint64_t run;       /* run of the newest checkpoint on the disk that was examined; 0: none */
    size_t numbers, at; /* length of `number`; index of the next checkpoint to examine */
    uint64_t below;     /* checkpoints in memory whose numbers are below this one have not been examined */
    bool over;          /* the run is complete: it resumes only if the job asks for more epochs */
};

/* Rank 0: reads the manifest of the next checkpoint on the disk with a number of at least `least`. The job may resume from it if
 * its run has not ended, or if the job asks for more epochs than that run had. Only checkpoints of the newest run count. */
static bool find_next_on_disk(const struct tr_checkpoints *c, struct find_candidates *all, uint64_t least,
                              struct tr_manifest *m)
{
    uint64_t ended = tr_read_run(c->to, ENDED);
    while (all->at < all->numbers && all->number[all->at] >= least) {
        uint64_t number = all->number[all->at++];
        TR_FREED char *path = NULL;
        if (tr_checkpoint_path(c->to, number, &path) != TR_OK) return false;
        int status = tr_manifest_read(path, m);
        if (status == TR_ERR_DATA)
            tr_warn(c->tr, "warning:       checkpoint %" PRIu64 " is left out: %s", number, tr_error_text());
        if (status != TR_OK) continue;
        bool is_open = (m->run != ended && !all->over) || tr_job_extends(c->tr->job, m->job);
        if (is_open && (all->run == 0 || m->run == all->run)) {
            all->run = m->run;
            return true;
        }
        tr_manifest_free(m);
        return false;
    }
    return false;
}

/* Returns whether a checkpoint is undamaged; then all ranks have its manifest in c->found. When it is called, only rank `rank` has
 * the manifest, or the file in memory that contains the manifest. */
static bool find_is_whole(struct tr_checkpoints *c, uint64_t number, int rank)
{
    tr_context *tr = c->tr;
    struct tr_manifest *m = &c->found;
    bool memory = c->found_in_memory, has = tr->rank == rank;
    TR_FREED char *packed = NULL;
    char why[512] = "";
    size_t bytes = 0;
    int status = memory && has ? tr_memory_manifest(c->memory, number, m) : TR_OK;
    if (status == TR_OK && has) status = tr_manifest_pack(m, &packed, &bytes);
    status = tr_checkpoints_agree(tr, status, why, sizeof why);
    if (status == TR_OK) status = tr_broadcast(tr, TR_SET_ALL, rank, &bytes, sizeof bytes);
    if (status == TR_OK) status = tr_agree(tr, has ? TR_OK : TR_NEW(&packed, bytes));
    if (status == TR_OK) status = tr_broadcast(tr, TR_SET_ALL, rank, packed, bytes);
    if (status == TR_OK)
        status = tr_agree(tr, has ? TR_OK : tr_manifest_unpack(packed, bytes, "manifest", m));
    if (status == TR_OK && memory) status = tr_memory_verify(c->memory, m, why, sizeof why);
    else if (status == TR_OK) {
        for (uint32_t s = (uint32_t)tr->rank; status == TR_OK && s < m->shards; s += (uint32_t)tr->size) {
            TR_FREED char *path = NULL;
            struct tr_shard_head head = tr_manifest_head(m, s);
            status = tr_shard_path(c->to, m->number, s, &path);
            if (status == TR_OK) status = tr_shard_verify(path, &head, &m->seal[s]);
        }
        status = tr_checkpoints_agree(tr, status, why, sizeof why);
    }
    if (status == TR_OK) return true;
    tr_manifest_free(m);
    tr_warn(tr, "warning:       checkpoint %" PRIu64 "%s is left out: %s", number, memory ? " in memory" : "",
            why);
    return false;
}

/* Finds the newest undamaged checkpoint. If there is one in memory and one on the disk with the same number (one of them has
 * failed), the one on the disk is examined first. If job or data have changed so that the run cannot resume, this is an error: the
 * run does not start over, because a typing error must not cost days of training. */
static int find_newest(struct tr_checkpoints *c, struct find_candidates *all)
{
    tr_context *tr = c->tr;
    for (bool found = false; !found;) {
        uint64_t number = 0, on_disk = 0;
        int rank = 0;
        if (all->below > 0) TR_TRY(tr_memory_next(c->memory, all->below, &number, &rank));
        if (tr->rank == 0 && find_next_on_disk(c, all, number, &c->found)) on_disk = c->found.number;
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &on_disk, sizeof on_disk));
        if (on_disk == 0 && number == 0) return TR_OK;
        c->found_in_memory = on_disk == 0;
        if (c->found_in_memory) all->below = number;
        found = find_is_whole(c, on_disk > 0 ? on_disk : number, on_disk > 0 ? 0 : rank);
    }
    c->continues = true;
    c->run = c->found.run;
    if (c->found_in_memory) c->memory->committed = c->found.number;
    if (tr->rank != 0) return tr_agree(tr, TR_OK);
    TR_FREED char *change = NULL;
    uint64_t was = c->found.facts.data, is = tr->data_digest;
    int status = tr_job_compare(tr->job, c->found.job, &change);
    if (change) tr_say(tr, "note:          the job has changed: %s", change);
    if (status == TR_OK && was != 0 && is != 0 && was != is)
        status = tr_fail(TR_ERR_DATA,
                         "%s: the files have changed since checkpoint %" PRIu64
                         " was written: expected the same data; --fresh starts over",
                         tr_job_where(tr->job, "data.train"), c->found.number);
    return tr_agree(tr, status);
}

/* Sets c->run, attempt, number, continues and found. All ranks must call it; they return the same status. */
static int find_checkpoint(struct tr_checkpoints *c, enum tr_beginning beginning)
{
    tr_context *tr = c->tr;
    TR_FREED uint64_t *numbers = NULL;
    struct find_candidates all = {.over = beginning == TR_GO_FURTHER};
    uint64_t random[2], run = 0, most = 0;
    if (getrandom(random, sizeof random, 0) < 0)
        for (int i = 0; i < 2; i++) random[i] = tr_mix((uint64_t)(tr_now() * 1e9) + (uint64_t)i);
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, random, sizeof random));
    c->run = random[0];
    c->attempt = random[1];
    TR_TRY(tr_agree(tr, tr->rank == 0 ? tr_checkpoints_list(c->to, &numbers, &all.numbers) : TR_OK));
    all.number = numbers;
    c->number = all.numbers > 0 ? numbers[0] : 0;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &c->number, sizeof c->number));

    /* finds checkpoints in memory, unless their run has ended */
    if (tr->rank == 0) {
        run = tr_memory_run(c->to);
        if (beginning != TR_GO_ON || tr_read_run(c->to, ENDED) == run) {
            tr_memory_unname(c->to);
            run = 0;
        }
    }
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &run, sizeof run));
    if (c->memory->host_rank == 0) tr_memory_clean(run);
    if (run != 0) TR_TRY(tr_memory_look(c->memory, run, &most));
    if (most > 0) all.below = UINT64_MAX;
    if (most > c->number) c->number = most;

    int status = TR_OK;
    if (beginning != TR_BEGIN_ANEW) TR_TRY(find_newest(c, &all));
    if (c->continues && tr->rank == 0 && tr_read_run(c->to, ENDED) == c->run)
        status = tr_write_run(c->to, ENDED, 0); /* the run resumes, so it is not marked as ended any more */
    if (beginning != TR_GO_ON && !c->continues && *tr->job->checkpoint.to && tr->rank == 0)
        for (size_t i = 0; i < all.numbers; i++) {
            /* marks the run of the newest checkpoint as ended, so that it will not be resumed later */
            struct tr_manifest m TR_CLOSED_BY(tr_manifest_free) = {.seal = NULL};
            TR_FREED char *path = NULL;
            status = tr_checkpoint_path(c->to, numbers[i], &path);
            if (status != TR_OK || tr_manifest_read(path, &m) != TR_OK) continue;
            status = tr_write_run(c->to, ENDED, m.run);
            break;
        }
    TR_TRY(tr_agree(tr, status));
    if (run == 0 || run == c->run) return TR_OK;
    /* removes shards in memory of a run that has no complete checkpoint */
    if (tr->rank == 0) tr_memory_unname(c->to);
    if (c->memory->host_rank == 0) tr_memory_remove(run, 0, 0);
    return TR_OK;
}

/* ================ checkpoints ================ */

/* ---- the thread that writes ---- */

static void *writer_run(void *what)
{
    struct tr_checkpoints *c = what;
    struct tr_writer *w = &c->writer;
    w->status = w->write(c);
    snprintf(w->error, sizeof w->error, "%s", w->status == TR_OK ? "" : tr_error_text());
    atomic_store(&w->done, true);
    return NULL;
}

/* Starts the thread with all signals blocked: the main thread handles signals. Reports to the supervisor that a thread works. */
static int writer_start(struct tr_checkpoints *c, int (*write)(struct tr_checkpoints *c))
{
    struct tr_writer *w = &c->writer;
    sigset_t all, before;
    w->write = write;
    atomic_store(&w->done, false);
    tr_lifeline_work(c->tr->lifeline, true);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&w->thread, NULL, writer_run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->busy = error == 0;
    if (w->busy) return TR_OK;
    tr_lifeline_work(c->tr->lifeline, false);
    return tr_fail(TR_ERR_SYSTEM, "no thread for a checkpoint: %s", strerror(error));
}

static void writer_join(struct tr_checkpoints *c)
{
    if (!c->writer.busy) return;
    pthread_join(c->writer.thread, NULL);
    tr_lifeline_work(c->tr->lifeline, false);
    c->writer.busy = false;
    tr_snapshot_close(&c->now.snapshot);
}

/* Writes the shard of this rank, after the removal of older checkpoints in memory. */
static int writer_shard(struct tr_checkpoints *c)
{
    struct tr_being_written *now = &c->now;
    uint32_t shard = (uint32_t)c->tr->rank;
    struct tr_shard_head head = tr_manifest_head(&now->manifest, shard);
    TR_FREED char *path = NULL;
    if (now->in_memory && c->memory->host_rank == 0)
        tr_memory_remove(c->memory->run, c->memory->number, c->memory->committed);
    TR_TRY(tr_shard_path(now->in_memory ? c->memory->folder : c->to, now->number, shard, &path));
    (void)TR_FAULT("checkpoint.shard");
    return tr_shard_write(path, &head, now->snapshot->part, now->snapshot->parts, !now->in_memory,
                          &now->seal);
}

/* Writes the manifest, then removes old checkpoints. A failure to remove them is only a warning (c->now.error). */
static int writer_manifest(struct tr_checkpoints *c)
{
    size_t keep = c->tr->job->checkpoint.keep;
    TR_FREED char *path = NULL;
    TR_TRY(tr_checkpoint_path(c->to, c->now.number, &path));
    TR_TRY(tr_manifest_write(path, &c->now.manifest, true));
    if (keep > 0 && tr_checkpoints_prune(c->to, keep) != TR_OK)
        snprintf(c->now.error, sizeof c->now.error, "%s", tr_error_text());
    return TR_OK;
}

/* ---- rank 0: the outcome ---- */

/* Counts and prints a failure; a failure in memory is printed only the first time, because these checkpoints are taken often. */
static void checkpoint_warn(struct tr_checkpoints *c, const char *why)
{
    if (c->now.in_memory) {
        c->counts.not_in_memory++;
        if (!c->memory->warned)
            tr_warn(c->tr, "warning:       checkpoint %" PRIu64 " is not in memory: %s", c->now.number, why);
        c->memory->warned = true;
        return;
    }
    c->counts.failed++;
    c->failure = TR_ERR_IO;
    snprintf(c->why, sizeof c->why, "%s", why);
    tr_warn(c->tr, "warning:       checkpoint %" PRIu64 " is not written: %s", c->now.number, why);
}

/* Rank 0: records that the checkpoint is complete or has failed (status, why). */
static void checkpoint_end(struct tr_checkpoints *c, int status, const char *why)
{
    struct tr_being_written *now = &c->now;
    bool in_memory = now->in_memory;
    struct tr_pace *pace = in_memory ? &c->policy.memory : &c->policy.disk;
    now->any = false;
    tr_manifest_free(&now->manifest);
    if (status != TR_OK) {
        checkpoint_warn(c, why);
        if (!in_memory) (void)tr_checkpoint_remove(c->to, now->number, true);
        return;
    }
    if (*now->error) tr_warn(c->tr, "warning:       %s", now->error);
    pace->cost = tr_now() - now->begin;
    tr_lifeline_kept(c->tr->lifeline, pace->last_clock);
    if (in_memory) {
        c->counts.in_memory++;
        c->counts.last_in_memory = c->memory->committed = now->number;
        return;
    }
    c->failure = TR_OK;
    c->counts.written++;
    c->counts.last = now->number;
    c->counts.clock = pace->last_clock;
}

/* Rank 0: handles the report of a shard. If its status is TR_OK, its text is a note that the shard is in slower memory, or "". */
static void checkpoint_read_report(struct tr_checkpoints *c, int from, const struct tr_shard_report *r)
{
    struct tr_being_written *now = &c->now;
    if (!now->any || (uint64_t)r->number != now->number) return;
    now->manifest.seal[from] = r->seal;
    if (r->status == TR_OK && *r->error && !c->memory->noted) {
        tr_warn(c->tr, "warning:       checkpoints in memory: %s", r->error);
        c->memory->noted = true;
    }
    if (r->status != TR_OK && now->status == TR_OK) {
        now->status = (int)r->status;
        snprintf(now->error, sizeof now->error, "%s", r->error);
    }
    if (++now->arrived < now->manifest.shards) return;
    if (now->status == TR_OK && !now->in_memory) {
        now->status = writer_start(c, writer_manifest);
        if (now->status == TR_OK) return;
        snprintf(now->error, sizeof now->error, "%s", tr_error_text());
    }
    checkpoint_end(c, now->status, now->error);
}

/* Sends the outcome of this rank's shard to rank 0. */
static void checkpoint_report(struct tr_checkpoints *c, int status, const char *text)
{
    c->report =
        (struct tr_shard_report){.number = (int64_t)c->now.number, .status = status, .seal = c->now.seal};
    snprintf(c->report.error, sizeof c->report.error, "%s", text);
    if (c->tr->rank == 0) {
        checkpoint_read_report(c, 0, &c->report);
        return;
    }
    MPI_Isend(&c->report, sizeof c->report, MPI_BYTE, 0, TR_TAG_SHARD, c->tr->wire, &c->sending);
    c->now.any = false;
}

static void checkpoint_end_shard(struct tr_checkpoints *c)
{
    if (c->now.in_memory) tr_memory_send(c->memory, c->writer.status, c->writer.error);
    else checkpoint_report(c, c->writer.status, c->writer.error);
}

/* ---- polling ---- */

static int checkpoint_poll(void *what, int *did)
{
    struct tr_checkpoints *c = what;
    struct tr_shard_report r;
    double now = tr_now();
    int from;
    if (now > c->probed + 0.005) { /* at most every 5 ms, because a probe takes long */
        /* Other ranks report signals that they have received to rank 0. Usually mpirun sends a signal to all ranks, therefore rank
         * 0 counts the signals of several ranks only once. */
        int64_t asked[2] = {tr_signals_stop(), signals_asked - c->policy.opened}, got[2];
        c->probed = now;
        if (c->tr->rank == 0 && tr_receive_here(c->tr, TR_TAG_SIGNAL, got, sizeof got, &from)) {
            if (got[0] && !asked[0]) tr_signals_pass(true);
            while (got[1] > signals_asked - c->policy.opened) tr_signals_pass(false);
        } else if (c->tr->rank != 0 && memcmp(asked, c->passed, sizeof asked) != 0 &&
                   tr_request_done(&c->passing)) {
            memcpy(c->passed, asked, sizeof asked);
            MPI_Isend(c->passed, 2, MPI_INT64_T, 0, TR_TAG_SIGNAL, c->tr->wire, &c->passing);
        }
    }
    if (c->writer.busy && atomic_load(&c->writer.done)) {
        writer_join(c);
        ++*did;
        if (c->writer.write == writer_shard) checkpoint_end_shard(c);
        else checkpoint_end(c, c->writer.status, c->writer.error);
    }
    if (c->now.any && c->now.in_memory && !c->now.reported) { /* advances the copies in memory */
        int status;
        bool over;
        const char *error = c->memory->note;
        if (tr_memory_turn(c->memory, &over, &status, &error)) ++*did;
        if (over && !c->writer.busy) {
            ++*did;
            c->now.reported = true;
            bool written = c->writer.status == TR_OK;
            checkpoint_report(c, written ? status : c->writer.status, written ? error : c->writer.error);
            tr_memory_end(c->memory);
        }
    }
    tr_memory_serve(c->memory, did);
    if (c->sending != MPI_REQUEST_NULL) (void)tr_request_done(&c->sending);
    if (c->tr->rank != 0 || !c->now.any || !tr_receive_here(c->tr, TR_TAG_SHARD, &r, sizeof r, &from))
        return TR_OK;
    ++*did;
    checkpoint_read_report(c, from, &r);
    return TR_OK;
}

int tr_checkpoint_settle(tr_context *tr)
{
    struct tr_checkpoints *c = tr->checkpoints;
    if (!c) return TR_OK;
    TR_WAIT_UNTIL(tr, !c->now.any && !c->writer.busy && c->sending == MPI_REQUEST_NULL,
                  "a checkpoint to be written");
    return TR_OK;
}

/* ---- opening and closing ---- */

/* Locks the folder checkpoint.to for this run, if the folder exists. */
static int checkpoint_lock_folder(struct tr_checkpoints *c)
{
    char who[400];
    if (!c->locked || c->lock >= 0) return TR_OK;
    while (c->lock < 0) {
        if (!tr_lock_file(c->locked, &c->lock, who, sizeof who))
            return tr_fail(TR_ERR_NO_OUTPUT,
                           "checkpoint.to %s: another run is writing there now (%s): choose another folder",
                           c->to, who);
        if (c->lock < 0) return TR_OK;
        if (tr_is_still_at(c->lock, c->locked)) break;
        /* after the file was opened, the run that had the lock has ended and removed the file */
        close(c->lock);
        c->lock = -1;
    }
    tr_sign_lock(c->lock);
    return TR_OK;
}

static int checkpoint_make(tr_context *tr, struct tr_checkpoints **out)
{
    const struct tr_job *job = tr->job;
    const struct tr_job_pace *disk = &job->checkpoint.every, *memory = &job->checkpoint.memory;
    struct tr_checkpoints *c;
    TR_TRY(TR_NEW(&c, 1));
    *out = c;
    tr_signals_handle(TR_SIGNALS_ASK, true);
    c->tr = tr;
    c->sending = c->passing = MPI_REQUEST_NULL;
    c->lock = -1;
    c->began = tr_now();
    double most = job->checkpoint.max_time > 0 ? job->checkpoint.max_time : INFINITY;
    c->policy = (struct tr_policy){.disk = {disk->seconds, (int64_t)disk->clocks, .last = c->began},
                                   .memory = {memory->seconds, (int64_t)memory->clocks, .last = c->began},
                                   .most = most,
                                   .end = tr->began + most,
                                   .opened = signals_asked,
                                   .obeyed = signals_asked};
    TR_TRY(tr_checkpoints_place(job->checkpoint.to, job->output, &c->to));
    if (tr->rank == 0 && *job->checkpoint.to) TR_TRY(tr_format(&c->locked, "%s/.lock", c->to));
    TR_TRY(checkpoint_lock_folder(c));
    TR_TRY(tr_memory_open(tr, c->to, &c->memory));
    return tr_poll_add(tr, checkpoint_poll, c);
}

static void checkpoint_destroy(struct tr_checkpoints *c, bool forgets)
{
    if (!c) return;
    tr_poll_remove(c->tr, checkpoint_poll, c);
    writer_join(c);
    tr_memory_close(&c->memory, c->run, forgets);
    if (c->passing != MPI_REQUEST_NULL) MPI_Cancel(&c->passing), MPI_Request_free(&c->passing);
    tr_manifest_free(&c->found);
    tr_manifest_free(&c->now.manifest);
    tr_snapshot_close(&c->best);
    if (c->locked) tr_unlock_file(c->locked, c->lock);
    TR_FREE_ALL(c->locked, c->lister, c->to, c);
    tr_signals_handle(TR_SIGNALS_ASK, false);
}

int tr_checkpoints_open(tr_context *tr, enum tr_beginning beginning)
{
    struct tr_checkpoints *c = NULL;
    int status = tr_agree(tr, checkpoint_make(tr, &c));
    if (status == TR_OK) status = find_checkpoint(c, beginning);
    if (status != TR_OK) {
        checkpoint_destroy(c, false);
        return status;
    }
    if (c->continues) c->before = c->found.facts.seconds;
    tr->checkpoints = c;
    return TR_OK;
}

int tr_checkpoints_close(tr_context *tr, bool ended, int status)
{
    struct tr_checkpoints *c = tr->checkpoints;
    if (!c) return status;
    int outcome = tr_checkpoint_settle(tr);
    /* a run without checkpoints is not marked as ended, because it cannot resume anyway */
    if (tr->rank == 0 && outcome == TR_OK && ended && (c->counts.last > 0 || c->continues))
        outcome = tr_write_run(c->to, ENDED, c->run);
    if (tr->rank == 0 && outcome == TR_OK && status == TR_OK && c->failure != TR_OK)
        outcome = tr_fail(TR_ERR_IO, "the last checkpoint could not be written: %s", c->why);
    /* checkpoints in memory are not needed if the run is complete, if the run was stopped and the disk has its last checkpoint, or
     * if it failed and has no supervisor that restarts it */
    bool forgets =
        ended || (status == TR_ERR_STOPPED ? c->failure == TR_OK : status != TR_OK && !tr->lifeline);
    if (status == TR_OK) status = tr_agree(tr, outcome);
    checkpoint_destroy(c, forgets);
    tr->checkpoints = NULL;
    return status;
}

void tr_checkpoints_leave(tr_context *tr)
{
    checkpoint_destroy(tr->checkpoints, false);
    tr->checkpoints = NULL;
}

const struct tr_manifest *tr_checkpoint_found(const tr_context *tr)
{
    return tr->checkpoints && tr->checkpoints->continues ? &tr->checkpoints->found : NULL;
}

bool tr_checkpoint_found_in_memory(const tr_context *tr)
{
    return tr_checkpoint_found(tr) && tr->checkpoints->found_in_memory;
}

bool tr_context_continues(const tr_context *tr)
{
    return tr->checkpoints && tr->checkpoints->continues && !tr->checkpoints->restored;
}

void tr_on_snapshot(tr_context *tr, tr_lister_fn *list, void *who)
{
    struct tr_checkpoints *c = tr->checkpoints;
    if (!c || TR_GROW(&c->lister, &c->lister_capacity, c->listers + 1) != TR_OK) return;
    c->lister[c->listers++] = (struct tr_lister){list, who};
}

void tr_checkpoint_count(const tr_context *tr, struct tr_checkpoint_counts *counts)
{
    const struct tr_checkpoints *c = tr->checkpoints;
    *counts = c ? c->counts : (struct tr_checkpoint_counts){0};
}

/* ---- taking ---- */

enum tr_due tr_checkpoint_due(tr_context *tr, int64_t clock)
{
    struct tr_checkpoints *c = tr->checkpoints;
    const struct tr_policy *p = &c->policy;
    double now = tr_now();
    /* reserve: seconds before the time limit for a checkpoint, for the end of one in memory before it, and for the other work */
    double reserve = fmax(p->most / 100, fmin(p->most / 5, p->disk.cost + p->memory.cost + 1));
    if (tr_signals_stop() || (isfinite(p->end) && now >= p->end - reserve)) return TR_DUE_AND_STOP;
    if (c->now.any) return TR_NOT_DUE;
    bool due = signals_asked > p->obeyed || policy_is_due(&p->disk, now, clock);
    c->wants_memory = !due && policy_is_due(&p->memory, now, clock);
    return due || c->wants_memory ? TR_DUE : TR_NOT_DUE;
}

bool tr_checkpoint_due_at_end(const tr_context *tr)
{
    const struct tr_checkpoints *c = tr->checkpoints;
    return c->counts.written > 0 || c->continues;
}

/* Lists all state in a checkpoint, in the same order for writing and restoring. */
static int checkpoint_list(struct tr_checkpoints *c, tr_snapshot *snapshot, tr_lister_fn *list, void *who)
{
    TR_TRY(snapshot_model(c->tr, snapshot, list, who));
    snapshot->prefix = "run/";
    for (size_t i = 0; i < c->listers; i++) TR_TRY(c->lister[i].list(c->lister[i].who, snapshot));
    return TR_OK;
}

/* Adds the manifest to shard 0 of a checkpoint in memory. */
static int checkpoint_list_manifest(struct tr_checkpoints *c, tr_snapshot *snapshot)
{
    struct tr_part part TR_CLOSED_BY(tr_part_free) = {
        .name = TR_MANIFEST_PART, .kind = TR_PART_OWN, .type = TR_PART_U8};
    size_t bytes;
    TR_TRY(tr_manifest_pack(&c->now.manifest, &part.data, &bytes));
    part.total_rows = part.rows = bytes;
    part.total_columns = part.columns = part.runs = 1;
    TR_TRY(TR_NEW(&part.run, 1));
    part.run->n = bytes;
    return tr_snapshot_give(snapshot, &part);
}

/* Copies all state, and starts the thread that writes. A failure is reported like a failure of writing. */
static void checkpoint_copy_and_write(struct tr_checkpoints *c, tr_lister_fn *list, void *who)
{
    tr_snapshot **snapshot = &c->now.snapshot;
    int status = tr_snapshot_open(c->tr, NULL, NULL, NULL, snapshot);
    if (status == TR_OK) status = checkpoint_list(c, *snapshot, list, who);
    if (status == TR_OK && c->now.in_memory && c->tr->rank == 0)
        status = checkpoint_list_manifest(c, *snapshot);
    /* tr_memory_begin() is collective over the node, so it is called also after a failure */
    if (c->now.in_memory) {
        char error[512];
        uint64_t bytes = 1 << 16;
        for (size_t i = 0; *snapshot && i < (*snapshot)->parts; i++) {
            const struct tr_part *p = &(*snapshot)->part[i];
            bytes += tr_part_elements(p) * tr_part_type_size(p->type) + p->runs * sizeof *p->run;
        }
        snprintf(error, sizeof error, "%s", status == TR_OK ? "" : tr_error_text());
        int outcome = tr_memory_begin(c->memory, c->run, c->now.number, bytes);
        status = status == TR_OK ? outcome : tr_fail(status, "%s", error);
    }
    if (status == TR_OK) status = writer_start(c, writer_shard);
    if (status == TR_OK) return;
    tr_snapshot_close(snapshot);
    c->writer.status = status;
    snprintf(c->writer.error, sizeof c->writer.error, "%s", tr_error_text());
    checkpoint_end_shard(c);
}

int tr_checkpoint_take(tr_context *tr, const struct tr_facts *facts, bool stops, tr_lister_fn *list,
                       void *who)
{
    struct tr_checkpoints *c = tr->checkpoints;
    double start = tr_now();
    TR_TRY(tr_checkpoint_settle(tr)); /* waits for the previous checkpoint */
    bool in_memory = c->wants_memory && !stops;
    const struct tr_layout *l = &tr->layout;
    struct tr_being_written *now = &c->now;
    c->number++;
    *now = (struct tr_being_written){
        .any = true,
        .in_memory = in_memory,
        .number = c->number,
        .begin = tr_now(),
        .manifest = {
            .run = c->run, .number = c->number, .attempt = c->attempt, .shards = (uint32_t)tr->size}};
    int64_t well = 1;
    if (tr->rank == 0) { /* creates folder and manifest */
        struct tr_manifest *m = &now->manifest;
        m->facts = *facts;
        m->facts.stage_number = c->entered - 1;
        m->facts.ranks = tr->size;
        m->facts.servers = l->servers;
        m->facts.groups = l->groups;
        m->facts.group_size = l->group_size;
        m->facts.data = tr->data_digest;
        m->facts.seconds = c->before + tr_now() - c->began;
        int status = TR_NEW(&m->seal, m->shards);
        if (status == TR_OK) status = tr_job_as_text(tr->job, &m->job);
        if (status == TR_OK)
            status = in_memory ? tr_memory_name(c->to, c->run) : tr_checkpoint_make(c->to, now->number);
        if (status == TR_OK && !in_memory) status = checkpoint_lock_folder(c);
        well = status == TR_OK;
        if (!well) {
            checkpoint_warn(c, tr_error_text());
            tr_manifest_free(m);
        }
    }
    /* rank 0 sends whether this succeeded, and the last complete checkpoint in memory, which must stay */
    MPI_Request request;
    int64_t word[3] = {well, in_memory, (int64_t)c->memory->committed};
    MPI_Ibcast(word, 3, MPI_INT64_T, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "rank 0 to begin a checkpoint"));
    now->any = word[0];
    now->in_memory = word[1];
    c->memory->committed = (uint64_t)word[2];
    if (now->any) checkpoint_copy_and_write(c, list, who);
    c->counts.epoch = facts->epoch;
    policy_taken(&c->policy, facts->clock, now->in_memory);
    c->wants_memory = false;
    TR_TRY(tr_barrier(tr, tr->world, "all ranks to copy a checkpoint"));
    if (stops) TR_TRY(tr_checkpoint_settle(tr));
    c->counts.copying += tr_now() - start;
    return stops ? tr_barrier(tr, tr->world, "the checkpoint to be whole") : TR_OK;
}

/* ---- resuming ---- */

int tr_checkpoint_enter(tr_context *tr, const char *name, bool *restores)
{
    struct tr_checkpoints *c = tr->checkpoints;
    *restores = false;
    if (!c) return TR_OK;
    int64_t number = c->entered++;
    struct tr_policy *p = &c->policy;
    if (!p->entered) p->disk.last = p->memory.last = tr_now();
    p->entered = true;
    p->disk.last_clock = p->memory.last_clock = 0; /* clocks are counted from 0 in each stage */
    if (!c->continues || c->restored || number != c->found.facts.stage_number) return TR_OK;
    *restores = true;
    if (!strcmp(name, c->found.facts.stage)) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "checkpoint %" PRIu64 " was taken in stage %s, number %" PRId64 ", which is %s now",
                   c->found.number, c->found.facts.stage, number, name);
}

int tr_checkpoint_restore(tr_context *tr, tr_lister_fn *list, void *who, struct tr_facts *facts)
{
    struct tr_checkpoints *c = tr->checkpoints;
    tr_snapshot *snapshot = NULL;
    int status = tr_snapshot_open(tr, c->to, c->found_in_memory ? c->memory : NULL, &c->found, &snapshot);
    if (status == TR_OK) status = checkpoint_list(c, snapshot, list, who);
    tr_snapshot_close(&snapshot);
    *facts = c->found.facts;
    c->restored = true;
    policy_taken(&c->policy, facts->clock, false);
    tr_lifeline_kept(tr->lifeline, facts->clock);
    status = tr_agree(tr, status);
    tr_memory_found_end(c->memory);
    return status;
}
