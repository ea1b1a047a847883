/* The checkpoint to go on from: the newest that is whole, of a run that has not ended. Rank 0 looks, all ranks verify the
 * shards, each some of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "store/folder.h"
#include "store/state.h"

#define ENDED "ended"

/* ---- runs that have ended ---- */

static bool read_ended(const char *to, uint64_t *run)
{
    char *path;
    if (tr_format(&path, "%s/" ENDED, to) != TR_OK) return false;
    FILE *file = fopen(path, "r");
    free(path);
    if (!file) return false;
    bool read = fscanf(file, "%16" SCNx64, run) == 1;
    fclose(file);
    return read;
}

static int write_ended(const char *to, uint64_t run)
{
    char *path;
    TR_TRY(tr_format(&path, "%s/" ENDED, to));
    FILE *file = fopen(path, "w");
    bool written = file && fprintf(file, "%016" PRIx64 "\n", run) > 0;
    if (file && fclose(file) != 0) written = false;
    int status = written
                     ? TR_OK
                     : tr_fail(TR_ERR_IO, "%s: cannot be written: %s; the job would go on with an old run",
                               path, strerror(errno));
    free(path);
    return status;
}

/* Where there is no checkpoint of the run, nobody will go on with it. */
int tr_checkpoints_end(const struct tr_checkpoints *c)
{
    return c->counts.last == 0 && !c->continues ? TR_OK : write_ended(c->to, c->run);
}

/* In a folder that stays where it is, what a fresh run leaves aside must not be taken up later. */
static int retire(const struct tr_checkpoints *c, const uint64_t *number, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct tr_manifest m;
        char *path;
        TR_TRY(tr_checkpoint_path(c->to, number[i], &path));
        int status = tr_manifest_read(path, &m);
        free(path);
        if (status != TR_OK) continue;
        status = write_ended(c->to, m.run);
        tr_manifest_free(&m);
        return status;
    }
    return TR_OK;
}

/* ---- manifests to all ranks ---- */

static int send_from(tr_context *tr, int root, void *data, size_t bytes)
{
    MPI_Request request;
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, tr->world, &request);
    return tr_wait_request(tr, &request, "a rank to tell of a checkpoint");
}

static int send_all(tr_context *tr, void *data, size_t bytes)
{
    return send_from(tr, 0, data, bytes);
}

/* One rank has it; the others get it. */
static int share_manifest(tr_context *tr, int root, struct tr_manifest *m)
{
    struct tr_manifest copy = *m;
    bool has = tr->rank == root;
    uint64_t length = has ? strlen(m->job) + 1 : 0;
    TR_TRY(send_from(tr, root, &copy, sizeof copy));
    TR_TRY(send_from(tr, root, &length, sizeof length));
    if (!has) {
        *m = copy;
        m->job = NULL;
        m->seal = NULL;
    }
    int status = has ? TR_OK : TR_NEW(&m->job, length);
    if (status == TR_OK && !has) status = TR_NEW(&m->seal, m->shards);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(send_from(tr, root, m->job, length));
    return send_from(tr, root, m->seal, m->shards * sizeof *m->seal);
}

/* ---- verifying ---- */

static int verify_shard(const struct tr_checkpoints *c, const struct tr_manifest *m, uint32_t shard)
{
    char *path;
    struct tr_shard_head head = {m->run, m->number, shard, m->shards};
    TR_TRY(tr_shard_path(c->to, m->number, shard, &path));
    int status = tr_shard_verify(path, &head, &m->seal[shard]);
    free(path);
    return status;
}

int tr_checkpoints_hear(tr_context *tr, int status, char *why, size_t room)
{
    int lowest = status == TR_OK ? tr->size : tr->rank;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to verify a checkpoint"));
    if (lowest == tr->size) return TR_OK;
    snprintf(why, room, "%s", lowest == tr->rank ? tr_error_text() : "");
    MPI_Ibcast(why, (int)room, MPI_CHAR, lowest, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "what is wrong with a checkpoint"));
    return TR_ERR_DATA;
}

static int verify(struct tr_checkpoints *c, const struct tr_manifest *m)
{
    tr_context *tr = c->tr;
    int status = TR_OK;
    for (uint32_t s = (uint32_t)tr->rank; s < m->shards && status == TR_OK; s += (uint32_t)tr->size)
        status = verify_shard(c, m, s);
    char why[512] = "";
    status = tr_checkpoints_hear(tr, status, why, sizeof why);
    if (status != TR_OK) tr_warn(tr, "warning:       checkpoint %" PRIu64 " is left out: %s", m->number, why);
    return status;
}

/* ---- looking ---- */

/* Rank 0: the manifest of the next checkpoint in the list that could be gone on with; *at behind it. All are of the run
 * that was the last: older runs are over, however they ended. */
static bool next_manifest(const struct tr_checkpoints *c, const uint64_t *number, size_t n, size_t *at,
                          uint64_t *run, struct tr_manifest *m)
{
    uint64_t ended = 0;
    bool any_ended = read_ended(c->to, &ended);
    while (*at < n) {
        char *path;
        if (tr_checkpoint_path(c->to, number[(*at)++], &path) != TR_OK) return false;
        int status = tr_manifest_read(path, m);
        free(path);
        if (status == TR_ERR_DATA)
            tr_warn(c->tr, "warning:       checkpoint %" PRIu64 " is left out: %s", number[*at - 1],
                    tr_error_text());
        if (status != TR_OK) continue;
        if (!(any_ended && m->run == ended) && (*run == 0 || m->run == *run)) {
            *run = m->run;
            return true;
        }
        tr_manifest_free(m);
        return false;
    }
    return false;
}

/* A job that has changed where it may not is refused, and not started afresh: nobody wants to lose days by a typing
 * error. */
static int check_job(const struct tr_checkpoints *c)
{
    char *change = NULL;
    TR_TRY(tr_job_compare(c->tr->job, c->found.job, &change));
    if (change) tr_say(c->tr, "note:          the job has changed: %s", change);
    free(change);
    return TR_OK;
}

/* What may be gone on with: numbers on the disk, sets in memory, both with the newest first. Rank 0. */
struct candidates {
    uint64_t *number, run;
    size_t numbers, at;
    struct tr_memory_set *set;
    size_t sets, set_at;
};

/* What all try next. */
struct attempt {
    int64_t kind; /* NONE … */
    int64_t rank; /* that has the manifest */
    uint64_t number;
};
enum { NONE, DISK, MEMORY };

/* Of equal numbers, which there are only where one has failed, that on the disk. */
static struct attempt next_attempt(const struct tr_checkpoints *c, struct candidates *all,
                                   struct tr_manifest *m)
{
    uint64_t in_memory = all->set_at < all->sets ? all->set[all->set_at].number : 0;
    size_t newer = all->at;
    while (newer < all->numbers && all->number[newer] >= in_memory) newer++;
    if (next_manifest(c, all->number, newer, &all->at, &all->run, m))
        return (struct attempt){DISK, 0, m->number};
    if (all->set_at == all->sets) return (struct attempt){NONE, 0, 0};
    const struct tr_memory_set *set = &all->set[all->set_at++];
    return (struct attempt){MEMORY, set->rank, set->number};
}

static int try_memory(struct tr_checkpoints *c, const struct attempt *a)
{
    tr_context *tr = c->tr;
    char why[512] = "";
    int status = tr->rank == a->rank ? tr_memory_manifest(c->memory, a->number, &c->found) : TR_OK;
    if (tr_checkpoints_hear(tr, status, why, sizeof why) == TR_OK) {
        TR_TRY(share_manifest(tr, (int)a->rank, &c->found));
        if (tr_memory_verify(c->memory, &c->found, why, sizeof why) == TR_OK) return TR_OK;
        tr_manifest_free(&c->found);
    }
    tr_warn(tr, "warning:       checkpoint %" PRIu64 " in memory is left out: %s", a->number, why);
    return TR_ERR_DATA;
}

static int try_disk(struct tr_checkpoints *c)
{
    TR_TRY(share_manifest(c->tr, 0, &c->found));
    int status = verify(c, &c->found);
    if (status != TR_OK) tr_manifest_free(&c->found);
    return status;
}

static int look(struct tr_checkpoints *c, struct candidates *all)
{
    tr_context *tr = c->tr;
    for (;;) {
        struct attempt a = {.kind = NONE};
        if (tr->rank == 0) a = next_attempt(c, all, &c->found);
        TR_TRY(send_all(tr, &a, sizeof a));
        if (a.kind == NONE) return TR_OK;
        c->found_in_memory = a.kind == MEMORY;
        if ((a.kind == MEMORY ? try_memory(c, &a) : try_disk(c)) == TR_OK) break;
    }
    c->continues = true;
    c->run = c->found.run;
    if (c->found_in_memory) c->memory->committed = c->found.number;
    return tr_agree(tr, tr->rank == 0 ? check_job(c) : TR_OK);
}

/* What memory has of the run that `to` names, unless that has ended; and numbers that are taken there. */
static int look_into_memory(struct tr_checkpoints *c, bool fresh, struct candidates *all)
{
    tr_context *tr = c->tr;
    uint64_t run = 0, most = 0;
    if (tr->rank == 0) {
        uint64_t ended = 0;
        run = tr_memory_run(c->to);
        if (fresh || (read_ended(c->to, &ended) && ended == run)) {
            tr_memory_unname(c->to);
            run = 0;
        }
    }
    TR_TRY(send_all(tr, &run, sizeof run));
    if (c->memory->host_rank == 0) tr_memory_clean(run);
    if (run == 0) return TR_OK;
    TR_TRY(tr_memory_look(c->memory, run, &all->set, &all->sets, &most));
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

int tr_checkpoints_find(struct tr_checkpoints *c, bool fresh)
{
    tr_context *tr = c->tr;
    struct candidates all = {.number = NULL};
    if (getrandom(&c->run, sizeof c->run, 0) < 0) c->run = tr_mix((uint64_t)(tr_now() * 1e9));
    TR_TRY(send_all(tr, &c->run, sizeof c->run));
    int status = tr_agree(tr, tr->rank == 0 ? tr_checkpoints_list(c->to, &all.number, &all.numbers) : TR_OK);
    if (status != TR_OK) return status;
    c->number = all.numbers > 0 ? all.number[0] : 0;
    status = send_all(tr, &c->number, sizeof c->number);
    if (status == TR_OK) status = look_into_memory(c, fresh, &all);
    if (status == TR_OK && !fresh) status = look(c, &all);
    if (status == TR_OK && fresh && *tr->job->checkpoint.to)
        status = tr_agree(tr, tr->rank == 0 ? retire(c, all.number, all.numbers) : TR_OK);
    if (status == TR_OK) forget_memory(c);
    free(all.number);
    free(all.set);
    return status;
}
