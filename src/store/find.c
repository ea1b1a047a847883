/* The checkpoint to go on from: the newest that is whole, of a run that has not ended. Rank 0 looks, all ranks verify the
 * shards, each some of them. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "store/folder.h"
#include "store/state.h"
#include "trireme/collective.h"

#define ENDED "ended"

/* Where there is no checkpoint of the run, nobody will go on with it. */
int tr_checkpoints_end(const struct tr_checkpoints *c)
{
    return c->counts.last == 0 && !c->continues ? TR_OK : tr_write_run(c->to, ENDED, c->run);
}

/* In a folder that stays where it is, what a fresh run leaves aside must not be taken up later. */
static int retire(const struct tr_checkpoints *c, const uint64_t *number, size_t n)
{
    int status = TR_ERR_DATA;
    struct tr_manifest m;
    for (size_t i = 0; i < n && status != TR_OK; i++) {
        char *path;
        TR_TRY(tr_checkpoint_path(c->to, number[i], &path));
        status = tr_manifest_read(path, &m);
        free(path);
    }
    if (status != TR_OK) return TR_OK;
    status = tr_write_run(c->to, ENDED, m.run);
    tr_manifest_free(&m);
    return status;
}

/* ---- all ranks know the same ---- */

/* One rank has it; the others get it. */
static int share_manifest(tr_context *tr, int root, struct tr_manifest *m)
{
    char *packed = NULL;
    size_t bytes = 0;
    bool has = tr->rank == root;
    int status = has ? tr_manifest_pack(m, &packed, &bytes) : TR_OK;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, &bytes, sizeof bytes));
    if (!has) status = TR_NEW(&packed, bytes);
    status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_broadcast(tr, TR_SET_ALL, root, packed, bytes);
    if (status == TR_OK && !has) status = tr_manifest_unpack(packed, bytes, "manifest", m);
    free(packed);
    return tr_agree(tr, status);
}

int tr_checkpoints_agree(tr_context *tr, int status, char *why, size_t size)
{
    int lowest = status == TR_OK ? tr->size : tr->rank;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_I32, &lowest, 1));
    if (lowest == tr->size) return TR_OK;
    snprintf(why, size, "%s", lowest == tr->rank ? tr_error_text() : "");
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, lowest, why, size));
    return TR_ERR_DATA;
}

/* ---- what may be gone on with ---- */

/* Numbers on the disk, the newest first (rank 0), and in memory those below a number. */
struct candidates {
    uint64_t *number, run;
    size_t numbers, at;
    uint64_t below;
    bool over; /* the run is: only with more epochs it goes on */
};

/* Whether the run that it is of has not ended, or the job now wants more epochs than it had. */
static bool is_open(const struct tr_checkpoints *c, const struct candidates *all, const struct tr_manifest *m,
                    uint64_t ended)
{
    return (m->run != ended && !all->over) || tr_job_extends(c->tr->job, m->job);
}

/* Rank 0: the manifest of the next checkpoint on the disk, not older than `least`, that could be gone on with. All are of
 * the run that was the last: older runs are over, however they ended. */
static bool next_on_disk(const struct tr_checkpoints *c, struct candidates *all, uint64_t least,
                         struct tr_manifest *m)
{
    uint64_t ended = tr_read_run(c->to, ENDED);
    while (all->at < all->numbers && all->number[all->at] >= least) {
        uint64_t number = all->number[all->at++];
        char *path;
        if (tr_checkpoint_path(c->to, number, &path) != TR_OK) return false;
        int status = tr_manifest_read(path, m);
        free(path);
        if (status == TR_ERR_DATA)
            tr_warn(c->tr, "warning:       checkpoint %" PRIu64 " is left out: %s", number, tr_error_text());
        if (status != TR_OK) continue;
        if (is_open(c, all, m, ended) && (all->run == 0 || m->run == all->run)) {
            all->run = m->run;
            return true;
        }
        tr_manifest_free(m);
        return false;
    }
    return false;
}

static int verify_shards(const struct tr_checkpoints *c, const struct tr_manifest *m)
{
    for (uint32_t s = (uint32_t)c->tr->rank; s < m->shards; s += (uint32_t)c->tr->size) {
        char *path;
        struct tr_shard_head head = tr_manifest_head(m, s);
        TR_TRY(tr_shard_path(c->to, m->number, s, &path));
        int status = tr_shard_verify(path, &head, &m->seal[s]);
        free(path);
        TR_TRY(status);
    }
    return TR_OK;
}

/* Whether the one whose manifest `rank` has, or in memory can read, is whole; then all have the manifest. */
static bool is_whole(struct tr_checkpoints *c, uint64_t number, int rank)
{
    tr_context *tr = c->tr;
    bool memory = c->found_in_memory;
    char why[512] = "";
    int status = memory && tr->rank == rank ? tr_memory_manifest(c->memory, number, &c->found) : TR_OK;
    status = tr_checkpoints_agree(tr, status, why, sizeof why);
    if (status == TR_OK) status = share_manifest(tr, rank, &c->found);
    if (status == TR_OK && memory) status = tr_memory_verify(c->memory, &c->found, why, sizeof why);
    else if (status == TR_OK) status = tr_checkpoints_agree(tr, verify_shards(c, &c->found), why, sizeof why);
    if (status == TR_OK) return true;
    tr_manifest_free(&c->found);
    tr_warn(tr, "warning:       checkpoint %" PRIu64 "%s is left out: %s", number, memory ? " in memory" : "",
            why);
    return false;
}

/* A job or data that have changed where they may not are refused, and not started afresh: nobody wants to lose days by a typing
 * error. */
static int check_job(const struct tr_checkpoints *c)
{
    char *change = NULL;
    TR_TRY(tr_job_compare(c->tr->job, c->found.job, &change));
    if (change) tr_say(c->tr, "note:          the job has changed: %s", change);
    free(change);
    uint64_t was = c->found.facts.data, is = c->tr->data_digest;
    if (was == 0 || is == 0 || was == is) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: the files have changed since checkpoint %" PRIu64
                   " was written: expected the same data; --fresh begins anew",
                   tr_job_where(c->tr->job, "data.train"), c->found.number);
}

/* The newest first, wherever it is; of equal numbers, which there are only where one has failed, that on the disk. */
static int look(struct tr_checkpoints *c, struct candidates *all)
{
    tr_context *tr = c->tr;
    for (bool found = false; !found;) {
        uint64_t number = 0, on_disk = 0;
        int rank = 0;
        if (all->below > 0) TR_TRY(tr_memory_next(c->memory, all->below, &number, &rank));
        if (tr->rank == 0 && next_on_disk(c, all, number, &c->found)) on_disk = c->found.number;
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &on_disk, sizeof on_disk));
        if (on_disk == 0 && number == 0) return TR_OK;
        c->found_in_memory = on_disk == 0;
        if (c->found_in_memory) all->below = number;
        found = is_whole(c, on_disk > 0 ? on_disk : number, on_disk > 0 ? 0 : rank);
    }
    c->continues = true;
    c->run = c->found.run;
    if (c->found_in_memory) c->memory->committed = c->found.number;
    return tr_agree(tr, tr->rank == 0 ? check_job(c) : TR_OK);
}

/* What memory has of the run that `to` names, unless that has ended; and numbers that are taken there. */
static int look_into_memory(struct tr_checkpoints *c, bool fresh, struct candidates *all)
{
    uint64_t run = 0, most = 0;
    if (c->tr->rank == 0) {
        run = tr_memory_run(c->to);
        if (fresh || tr_read_run(c->to, ENDED) == run) {
            tr_memory_unname(c->to);
            run = 0;
        }
    }
    TR_TRY(tr_broadcast(c->tr, TR_SET_ALL, 0, &run, sizeof run));
    if (c->memory->host_rank == 0) tr_memory_clean(run);
    if (run == 0) return TR_OK;
    TR_TRY(tr_memory_look(c->memory, run, &most));
    if (most > 0) all->below = UINT64_MAX;
    if (most > c->number) c->number = most;
    return TR_OK;
}

/* What it has of a run of which nothing was whole: nobody goes on with that. */
static void forget_memory(const struct tr_checkpoints *c)
{
    uint64_t run = c->memory->run;
    if (run == 0 || run == c->run) return;
    if (c->tr->rank == 0) tr_memory_unname(c->to);
    if (c->memory->host_rank == 0) tr_memory_remove(run, 0, 0);
}

/* A run that has ended, and goes on, has not. */
static int reopen(const struct tr_checkpoints *c)
{
    return tr_read_run(c->to, ENDED) == c->run ? tr_write_run(c->to, ENDED, 0) : TR_OK;
}

int tr_checkpoints_find(struct tr_checkpoints *c, enum tr_beginning beginning)
{
    tr_context *tr = c->tr;
    struct candidates all = {.over = beginning == TR_GO_FURTHER};
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) < 0)
        for (int i = 0; i < 2; i++) random[i] = tr_mix((uint64_t)(tr_now() * 1e9) + (uint64_t)i);
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, random, sizeof random));
    c->run = random[0];
    c->attempt = random[1];
    TR_TRY(tr_agree(tr, tr->rank == 0 ? tr_checkpoints_list(c->to, &all.number, &all.numbers) : TR_OK));
    c->number = all.numbers > 0 ? all.number[0] : 0;
    int status = tr_broadcast(tr, TR_SET_ALL, 0, &c->number, sizeof c->number);
    if (status == TR_OK) status = look_into_memory(c, beginning != TR_GO_ON, &all);
    if (status == TR_OK && beginning != TR_BEGIN_ANEW) status = look(c, &all);
    if (status == TR_OK && c->continues) status = tr_agree(tr, tr->rank == 0 ? reopen(c) : TR_OK);
    bool fresh = beginning != TR_GO_ON && !c->continues;
    if (status == TR_OK && fresh && *tr->job->checkpoint.to)
        status = tr_agree(tr, tr->rank == 0 ? retire(c, all.number, all.numbers) : TR_OK);
    if (status == TR_OK) forget_memory(c);
    free(all.number);
    return status;
}
