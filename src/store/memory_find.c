/* The newest checkpoint in memory that is whole: every node may have lost some of it, and what one lacks others have. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "store/persistent.h"
#include "store/folder.h"
#include "store/memory.h"
#include "store/state.h"
#include "trireme/collective.h"

/* ---- what there is ---- */

/* All ranks of a host are to see the same files: they divide the work on them. */
static int check_same(struct tr_memory *m)
{
    uint64_t print = m->files, bounds[2];
    MPI_Request request;
    for (size_t i = 0; i < m->files; i++)
        print = tr_mix(print ^ XXH3_64bits(m->file[i].path, strlen(m->file[i].path)));
    bounds[0] = print;
    bounds[1] = ~print;
    MPI_Iallreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MAX, m->host, &request);
    TR_TRY(tr_wait_request(m->tr, &request, "the ranks of a host to list its memory"));
    if (bounds[0] == ~bounds[1]) return TR_OK;
    return tr_fail(TR_ERR_NO_INPUT, "checkpoints in memory change while they are listed");
}

int tr_memory_look(struct tr_memory *m, uint64_t run, uint64_t *most)
{
    m->run = run;
    TR_TRY(tr_agree(m->tr, tr_memory_list(run, &m->file, &m->files)));
    TR_TRY(tr_agree(m->tr, check_same(m)));
    *most = m->files > 0 ? m->file[0].number : 0;
    return tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_I64, most, 1);
}

int tr_memory_next(struct tr_memory *m, uint64_t below, uint64_t *number, int *rank)
{
    struct {
        long number;
        int rank;
    } newest = {0, m->tr->rank};
    MPI_Request request;
    for (size_t i = 0; i < m->files && newest.number == 0; i++)
        if (m->file[i].shard == 0 && m->file[i].number < below) newest.number = (long)m->file[i].number;
    MPI_Iallreduce(MPI_IN_PLACE, &newest, 1, MPI_LONG_INT, MPI_MAXLOC, m->tr->world, &request);
    TR_TRY(tr_wait_request(m->tr, &request, "all hosts to list their memory"));
    *number = (uint64_t)newest.number;
    *rank = newest.rank;
    return TR_OK;
}

static int read_manifest(const struct tr_memory_file *file, uint64_t run, struct tr_manifest *manifest)
{
    struct tr_shard *shard;
    char *packed = NULL;
    TR_TRY(tr_shard_open(file->path, NULL, NULL, &shard));
    ptrdiff_t part = tr_shard_find(shard, TR_MANIFEST_PART, 0);
    uint64_t bytes = part < 0 ? 0 : shard->part[part].rows;
    int status = TR_NEW(&packed, bytes);
    if (status == TR_OK && part >= 0) status = tr_shard_read(shard, (size_t)part, 0, bytes, packed);
    if (status == TR_OK) status = tr_manifest_unpack(packed, bytes, file->path, manifest);
    if (status == TR_OK && (manifest->run != run || manifest->number != file->number)) {
        tr_manifest_free(manifest);
        status = tr_fail(TR_ERR_DATA, "%s: not of run %016" PRIx64, file->path, run);
    }
    free(packed);
    tr_shard_close(&shard);
    return status;
}

int tr_memory_manifest(const struct tr_memory *m, uint64_t number, struct tr_manifest *manifest)
{
    int status = tr_fail(TR_ERR_NO_INPUT, "shard 0 of checkpoint %" PRIu64 " is not here", number);
    for (size_t i = 0; i < m->files && status != TR_OK; i++)
        if (m->file[i].number == number && m->file[i].shard == 0)
            status = read_manifest(&m->file[i], m->run, manifest);
    return status;
}

/* ---- whether all of it is whole ---- */

static bool is_of(const struct tr_memory_file *f, const struct tr_manifest *m)
{
    return f->number == m->number && f->shard < m->shards;
}

/* The ranks of a host share the work: good[i] on all of them. */
static int verify_here(struct tr_memory *m, const struct tr_manifest *manifest, unsigned char *good,
                       char *why, size_t size)
{
    int turn = 0;
    *why = '\0';
    for (size_t i = 0; i < m->files; i++) {
        const struct tr_memory_file *f = &m->file[i];
        if (!is_of(f, manifest) || turn++ % m->host_size != m->host_rank) continue;
        struct tr_shard_head head = tr_manifest_head(manifest, (uint32_t)f->shard);
        good[i] = tr_shard_verify(f->path, &head, NULL) == TR_OK;
        if (!good[i] && !*why) snprintf(why, size, "%s", tr_error_text());
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, good, (int)m->files, MPI_UNSIGNED_CHAR, MPI_MAX, m->host, &request);
    return tr_wait_request(m->tr, &request, "the ranks of a host to verify a checkpoint");
}

/* Where each shard is whole: on this host, and a rank of another that has it; all hosts, one rank of each after the other. */
static int find_holders(struct tr_memory *m, const unsigned char *good, const struct tr_manifest *manifest)
{
    struct stat about;
    m->largest = 0;
    for (uint32_t s = 0; s < m->shards; s++) m->holder[s] = INT_MAX;
    for (size_t i = 0; i < m->files; i++) {
        const struct tr_memory_file *f = &m->file[i];
        if (!is_of(f, manifest) || !good[i]) continue;
        if (!m->here[f->shard]) m->here[f->shard] = f->path;
        if (f->shard % m->host_size == m->host_rank) m->holder[f->shard] = m->tr->rank;
        if (stat(f->path, &about) == 0) m->largest = tr_max_size(m->largest, (uint64_t)about.st_size);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_I64, &m->largest, 1));
    return tr_all_reduce(m->tr, TR_SET_ALL, TR_MIN, TR_I32, m->holder, m->shards);
}

int tr_memory_verify(struct tr_memory *m, const struct tr_manifest *manifest, char *why, size_t size)
{
    unsigned char *good = NULL;
    free(m->here);
    free(m->holder);
    m->here = NULL;
    m->holder = NULL;
    m->shards = manifest->shards;
    int status = TR_NEW(&good, m->files);
    if (status == TR_OK) status = TR_NEW(&m->here, m->shards);
    if (status == TR_OK) status = TR_NEW(&m->holder, m->shards);
    status = tr_agree(m->tr, status);
    if (status == TR_OK) status = verify_here(m, manifest, good, why, size);
    if (status == TR_OK) status = find_holders(m, good, manifest);
    free(good);
    TR_TRY(status);
    uint32_t lacking = 0;
    while (lacking < m->shards && m->holder[lacking] < INT_MAX) lacking++;
    if (lacking == m->shards) {
        m->found = manifest->number;
        m->serves = true;
        return TR_OK;
    }
    int mine = *why ? tr_fail(TR_ERR_DATA, "%s", why) : TR_OK;
    snprintf(why, size, "no node has shard %" PRIu32, lacking);
    char text[512] = "";
    (void)tr_checkpoints_agree(m->tr, mine, text, sizeof text);
    if (*text) snprintf(why, size, "%s", text);
    return TR_ERR_DATA;
}

/* ---- asking for shards ---- */

bool tr_memory_has(const struct tr_memory *m, uint32_t shard)
{
    return m->here[shard] != NULL;
}

/* The folder for what is fetched: where there is room for it. */
static int make_fetched(struct tr_memory *m)
{
    struct tr_persistent_bases bases;
    tr_persistent_bases(&bases);
    int status = tr_fail(TR_ERR_NO_OUTPUT, "no room for %" PRIu64 " bytes of a checkpoint", m->largest);
    for (size_t i = 0; i < bases.n && status != TR_OK; i++)
        if (tr_persistent_free(bases.base[i]) >= m->largest)
            status = tr_memory_make(bases.base[i], m->run, m->node, m->to, m->found, &m->fetched);
    return status;
}

/* Under a name of its own until it is whole: ranks of one node may ask for the same. */
static int fetch(struct tr_memory *m, uint32_t shard, const char *path)
{
    tr_context *tr = m->tr;
    int holder = m->holder[shard], status = TR_OK;
    char *part;
    TR_TRY(tr_format(&part, "%s.%d", path, tr->rank));
    m->wanted[0] = m->found;
    m->wanted[1] = shard;
    MPI_Isend(m->wanted, 2, MPI_UINT64_T, holder, TR_TAG_FETCH, tr->wire, &m->asking);
    tr_stream_receive(&m->asked, tr, holder, m->found, part);
    struct tr_waiting waiting = tr_waiting_begin();
    while (status == TR_OK && !(m->asked.over && tr_request_done(&m->asking))) {
        if (tr_stream_turn(&m->asked)) waiting = tr_waiting_begin();
        status =
            tr_waiting_turn(tr, &waiting, "shard %" PRIu32 " of a checkpoint from rank %d", shard, holder);
    }
    if (status == TR_OK && m->asked.status != TR_OK)
        status = tr_fail(m->asked.status, "shard %" PRIu32 " does not come from rank %d: %s", shard, holder,
                         m->asked.error);
    tr_stream_close(&m->asked);
    if (status == TR_OK && rename(part, path) < 0)
        status = tr_fail(TR_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    free(part);
    return status;
}

int tr_memory_shard(struct tr_memory *m, uint32_t shard, char **path)
{
    if (m->here[shard]) return tr_copy_string(m->here[shard], path);
    if (!m->fetched) TR_TRY(make_fetched(m));
    TR_TRY(tr_format(path, "%s/%08" PRIu64 "/fetched-%04" PRIu32 ".h5", m->fetched, m->found, shard));
    int status = access(*path, R_OK) == 0 ? TR_OK : fetch(m, shard, *path);
    if (status != TR_OK) free(*path);
    return status;
}

void tr_memory_serve(struct tr_memory *m, int *did)
{
    struct tr_stream *unused = NULL;
    if (!m->serves) return;
    for (size_t i = 0; i < TR_MEMORY_SERVED; i++) {
        struct tr_stream *s = &m->served[i];
        if (s->tr && tr_stream_turn(s)) ++*did;
        if (s->tr && s->over) tr_stream_close(s);
        if (!s->tr) unused = s;
    }
    int from;
    uint64_t wanted[2];
    if (!unused || !tr_receive_here(m->tr, TR_TAG_FETCH, wanted, sizeof wanted, &from)) return;
    ++*did;
    bool known = wanted[0] == m->found && wanted[1] < m->shards && m->here[wanted[1]];
    tr_stream_send(unused, m->tr, from, wanted[0], known ? m->here[wanted[1]] : "",
                   known ? TR_OK : TR_ERR_INTERNAL, "it is not here");
}

void tr_memory_found_end(struct tr_memory *m)
{
    for (size_t i = 0; i < TR_MEMORY_SERVED; i++) tr_stream_close(&m->served[i]);
    m->serves = false;
}
