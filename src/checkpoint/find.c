/* The checkpoint to go on from: the newest that is whole, of a run that has not ended. Rank 0 looks, all ranks verify the
 * shards, each some of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "checkpoint/folder.h"
#include "checkpoint/state.h"

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

/* Where there is no checkpoint of the run, nobody will go on with it. */
int tr_checkpoints_end(const struct tr_checkpoints *c)
{
    char *path;
    if (c->counts.last == 0 && !c->continues) return TR_OK;
    TR_TRY(tr_format(&path, "%s/" ENDED, c->to));
    FILE *file = fopen(path, "w");
    bool written = file && fprintf(file, "%016" PRIx64 "\n", c->run) > 0;
    if (file && fclose(file) != 0) written = false;
    int status =
        written ? TR_OK
                : tr_fail(TR_ERR_IO, "%s: cannot be written: %s; started again, the job would train again",
                          path, strerror(errno));
    free(path);
    return status;
}

/* ---- manifests to all ranks ---- */

static int send_all(tr_context *tr, void *data, size_t bytes)
{
    MPI_Request request;
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, tr->world, &request);
    return tr_wait_request(tr, &request, "rank 0 to tell of a checkpoint");
}

/* Rank 0 has it; the others get it. */
static int share_manifest(tr_context *tr, struct tr_manifest *m)
{
    struct tr_manifest copy = *m;
    uint64_t length = tr->rank == 0 ? strlen(m->job) + 1 : 0;
    TR_TRY(send_all(tr, &copy, sizeof copy));
    TR_TRY(send_all(tr, &length, sizeof length));
    if (tr->rank != 0) {
        *m = copy;
        m->job = NULL;
        m->seal = NULL;
    }
    int status = tr->rank == 0 ? TR_OK : TR_NEW(&m->job, length);
    if (status == TR_OK && tr->rank != 0) status = TR_NEW(&m->seal, m->shards);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(send_all(tr, m->job, length));
    return send_all(tr, m->seal, m->shards * sizeof *m->seal);
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

/* The outcome of the lowest rank that found something wrong, with its text on rank 0: nothing that ends the job. */
static int hear_outcome(tr_context *tr, int status, char *why, size_t room)
{
    struct {
        int rank, status;
    } first = {status == TR_OK ? tr->size : tr->rank, status};
    int lowest;
    MPI_Request request;
    MPI_Iallreduce(&first.rank, &lowest, 1, MPI_INT, MPI_MIN, tr->world, &request);
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
    char why[512];
    status = hear_outcome(tr, status, why, sizeof why);
    if (status != TR_OK) tr_say(tr, "warning:       checkpoint %" PRIu64 " is left out: %s", m->number, why);
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
            tr_say(c->tr, "warning:       checkpoint %" PRIu64 " is left out: %s", number[*at - 1],
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

static int look(struct tr_checkpoints *c, const uint64_t *number, size_t n)
{
    tr_context *tr = c->tr;
    size_t at = 0;
    uint64_t run = 0;
    for (;;) {
        int64_t some = tr->rank == 0 && next_manifest(c, number, n, &at, &run, &c->found);
        TR_TRY(send_all(tr, &some, sizeof some));
        if (!some) return TR_OK;
        TR_TRY(share_manifest(tr, &c->found));
        if (verify(c, &c->found) == TR_OK) break;
        tr_manifest_free(&c->found);
    }
    c->continues = true;
    c->run = c->found.run;
    return tr_agree(tr, tr->rank == 0 ? check_job(c) : TR_OK);
}

int tr_checkpoints_find(struct tr_checkpoints *c, bool fresh)
{
    tr_context *tr = c->tr;
    uint64_t *number = NULL;
    size_t n = 0;
    if (getrandom(&c->run, sizeof c->run, 0) < 0) c->run = tr_mix((uint64_t)(tr_now() * 1e9));
    TR_TRY(send_all(tr, &c->run, sizeof c->run));
    int status = tr_agree(tr, tr->rank == 0 ? tr_checkpoints_list(c->to, &number, &n) : TR_OK);
    if (status != TR_OK) return status;
    c->number = n > 0 ? number[0] : 0;
    status = send_all(tr, &c->number, sizeof c->number);
    if (status == TR_OK && !fresh) status = look(c, number, n);
    free(number);
    return status;
}
