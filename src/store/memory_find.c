/* The newest checkpoint in memory that is whole: every node may have lost some of it, and what one lacks others have. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lasting.h"
#include "store/folder.h"
#include "store/memory.h"
#include "store/state.h"

/* ---- what there is ---- */

/* Sends the files of the host's first rank to the others, as text: all ranks of a host are to see the same. */
static int write_files(const struct tr_memory *m, char **text, size_t *length)
{
    FILE *out = open_memstream(text, length);
    if (!out) return tr_fail(TR_ERR_SYSTEM, "no memory for a list of files");
    for (size_t i = 0; i < m->files; i++)
        fprintf(out, "%" PRIu64 " %" PRId64 " %s\n", m->file[i].number, m->file[i].shard, m->file[i].path);
    return fclose(out) == 0 ? TR_OK : tr_fail(TR_ERR_SYSTEM, "no memory for a list of files");
}

static int read_files(struct tr_memory *m, char *text)
{
    size_t room = 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        struct tr_memory_file f = {.path = NULL};
        int at = 0;
        if (sscanf(line, "%" SCNu64 " %" SCNd64 " %n", &f.number, &f.shard, &at) < 2 || at == 0) continue;
        TR_TRY(tr_copy_string(line + at, &f.path));
        int status = TR_GROW(&m->file, &room, m->files + 1);
        if (status != TR_OK) free(f.path);
        TR_TRY(status);
        m->file[m->files++] = f;
    }
    return TR_OK;
}

static int to_host(struct tr_memory *m, void *data, size_t bytes)
{
    MPI_Request request;
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, m->host, &request);
    return tr_wait_request(m->tr, &request, "the first rank of a host to list its memory");
}

static int share_files(struct tr_memory *m)
{
    char *text = NULL;
    size_t written = 0;
    uint64_t length = 0;
    int status = TR_OK;
    if (m->host_rank == 0) {
        status = write_files(m, &text, &written);
        if (status == TR_OK) length = written + 1;
    }
    int outcome = to_host(m, &length, sizeof length);
    if (outcome == TR_OK && m->host_rank != 0) status = TR_NEW(&text, length);
    if (outcome == TR_OK) outcome = tr_agree(m->tr, status);
    if (outcome == TR_OK && length > 0) outcome = to_host(m, text, length);
    if (outcome == TR_OK && m->host_rank != 0 && length > 0) outcome = read_files(m, text);
    free(text);
    return tr_agree(m->tr, outcome);
}

/* The numbers of which this host has a manifest. */
static int own_sets(const struct tr_memory *m, uint64_t **number, int *n)
{
    *n = 0;
    TR_TRY(TR_NEW(number, m->files));
    for (size_t i = 0; i < m->files && m->host_rank == 0; i++)
        if (m->file[i].shard == TR_MEMORY_MANIFEST && (*n == 0 || (*number)[*n - 1] != m->file[i].number))
            (*number)[(*n)++] = m->file[i].number;
    return TR_OK;
}

static int newest_first(const void *a, const void *b)
{
    const struct tr_memory_set *x = a, *y = b;
    if (x->number != y->number) return x->number > y->number ? -1 : 1;
    return x->rank - y->rank;
}

/* Numbers of all hosts to rank 0. */
static int gather(const struct tr_memory *m, const uint64_t *own, int n, struct tr_memory_set **sets,
                  size_t *count)
{
    tr_context *tr = m->tr;
    MPI_Request request;
    int *counts, *first, total = 0;
    uint64_t *all = NULL;
    TR_TRY(TR_NEW(&counts, 2 * (size_t)tr->size));
    first = counts + tr->size;
    MPI_Igather(&n, 1, MPI_INT, counts, 1, MPI_INT, 0, tr->world, &request);
    int status = tr_wait_request(tr, &request, "all hosts to list their memory");
    for (int r = 0; r < tr->size; r++) {
        first[r] = total;
        total += counts[r];
    }
    if (status == TR_OK) status = TR_NEW(&all, (size_t)total);
    if (status == TR_OK && tr->rank == 0) status = TR_NEW(sets, (size_t)total);
    status = tr_agree(tr, status);
    if (status == TR_OK) {
        MPI_Igatherv(own, n, MPI_UINT64_T, all, counts, first, MPI_UINT64_T, 0, tr->world, &request);
        status = tr_wait_request(tr, &request, "all hosts to list their memory");
    }
    if (status == TR_OK && tr->rank == 0) {
        for (int r = 0; r < tr->size; r++)
            for (int i = 0; i < counts[r]; i++)
                (*sets)[(*count)++] = (struct tr_memory_set){all[first[r] + i], r};
        qsort(*sets, *count, sizeof **sets, newest_first);
    }
    free(all);
    free(counts);
    return status;
}

int tr_memory_look(struct tr_memory *m, uint64_t run, struct tr_memory_set **sets, size_t *n, uint64_t *most)
{
    tr_context *tr = m->tr;
    MPI_Request request;
    uint64_t *own = NULL;
    int owns = 0;
    *sets = NULL;
    *n = 0;
    m->run = run;
    TR_TRY(tr_agree(tr, m->host_rank == 0 ? tr_memory_list(run, &m->file, &m->files) : TR_OK));
    TR_TRY(share_files(m));
    *most = m->files > 0 ? m->file[0].number : 0;
    MPI_Iallreduce(MPI_IN_PLACE, most, 1, MPI_UINT64_T, MPI_MAX, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all hosts to list their memory"));
    if (*most == 0) return TR_OK;
    int status = tr_agree(tr, own_sets(m, &own, &owns));
    if (status == TR_OK) status = gather(m, own, owns, sets, n);
    free(own);
    return status;
}

int tr_memory_manifest(const struct tr_memory *m, uint64_t number, struct tr_manifest *manifest)
{
    int status = tr_fail(TR_ERR_NO_INPUT, "checkpoint %" PRIu64 " has no manifest here", number);
    for (size_t i = 0; i < m->files && status != TR_OK; i++) {
        if (m->file[i].number != number || m->file[i].shard != TR_MEMORY_MANIFEST) continue;
        char *folder;
        TR_TRY(tr_copy_string(m->file[i].path, &folder));
        *strrchr(folder, '/') = '\0';
        status = tr_manifest_read(folder, manifest);
        free(folder);
        if (status == TR_OK && (manifest->run != m->run || manifest->number != number)) {
            tr_manifest_free(manifest);
            status = tr_fail(TR_ERR_DATA, "%s: not of run %016" PRIx64, m->file[i].path, m->run);
        }
    }
    return status;
}

/* ---- whether all of it is whole ---- */

static int verify_here(struct tr_memory *m, const struct tr_manifest *manifest, unsigned char *good,
                       char *why, size_t room)
{
    int turn = 0;
    *why = '\0';
    for (size_t i = 0; i < m->files; i++) {
        const struct tr_memory_file *f = &m->file[i];
        if (f->number != manifest->number || f->shard < 0 || f->shard >= manifest->shards) continue;
        if (turn++ % m->host_size != m->host_rank) continue;
        uint32_t shard = (uint32_t)f->shard;
        struct tr_shard_head head = {manifest->run, manifest->number, shard, manifest->shards};
        good[i] = tr_shard_verify(f->path, &head, &manifest->seal[shard]) == TR_OK;
        if (!good[i] && !*why) snprintf(why, room, "%s", tr_error_text());
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, good, (int)m->files, MPI_UNSIGNED_CHAR, MPI_MAX, m->host, &request);
    return tr_wait_request(m->tr, &request, "the ranks of a host to verify a checkpoint");
}

/* Where each shard is whole: on this host, and a rank of another that has it; all hosts, one rank of each after the other. */
static int find_holders(struct tr_memory *m, const unsigned char *good, uint64_t number)
{
    tr_context *tr = m->tr;
    for (uint32_t s = 0; s < m->shards; s++) {
        m->here[s] = NULL;
        m->holder[s] = INT_MAX;
    }
    for (size_t i = 0; i < m->files; i++) {
        const struct tr_memory_file *f = &m->file[i];
        if (f->number != number || f->shard < 0 || f->shard >= m->shards || !good[i]) continue;
        if (!m->here[f->shard]) m->here[f->shard] = f->path;
        if (f->shard % m->host_size == m->host_rank) m->holder[f->shard] = tr->rank;
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, m->holder, (int)m->shards, MPI_INT, MPI_MIN, tr->world, &request);
    return tr_wait_request(tr, &request, "all hosts to verify a checkpoint");
}

int tr_memory_verify(struct tr_memory *m, const struct tr_manifest *manifest, char *why, size_t room)
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
    if (status == TR_OK) status = verify_here(m, manifest, good, why, room);
    if (status == TR_OK) status = find_holders(m, good, manifest->number);
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
    snprintf(why, room, "no node has shard %" PRIu32, lacking);
    char text[512] = "";
    if (tr_checkpoints_hear(m->tr, mine, text, sizeof text) != TR_OK) snprintf(why, room, "%s", text);
    return TR_ERR_DATA;
}

/* ---- asking for shards ---- */

bool tr_memory_has(const struct tr_memory *m, uint32_t shard)
{
    return m->here[shard] != NULL;
}

static int make_fetched(struct tr_memory *m, uint64_t bytes)
{
    struct tr_lasting_bases bases;
    tr_lasting_bases(&bases);
    int status = tr_fail(TR_ERR_NO_OUTPUT, "no room for %" PRIu64 " bytes of a checkpoint", bytes);
    for (size_t i = 0; i < bases.n && status != TR_OK; i++)
        if (tr_lasting_room(bases.base[i]) >= bytes)
            status = tr_memory_make(bases.base[i], m->run, m->node, m->to, m->found, &m->fetched);
    return status;
}

/* Under a name of its own until it is whole: ranks of one node may ask for the same. */
static int ask(struct tr_memory *m, uint32_t shard, const char *path)
{
    tr_context *tr = m->tr;
    char *part;
    TR_TRY(tr_format(&part, "%s.%d", path, tr->rank));
    m->wish[0] = m->found;
    m->wish[1] = shard;
    MPI_Isend(m->wish, 2, MPI_UINT64_T, m->holder[shard], TR_TAG_FETCH, tr->wire, &m->asking);
    tr_stream_receive(&m->asked, tr, m->holder[shard], m->found, part);
    struct tr_waiting waiting = tr_waiting_begin();
    int status = TR_OK;
    while (status == TR_OK && !(m->asked.over && tr_request_done(&m->asking))) {
        if (tr_stream_turn(&m->asked)) waiting = tr_waiting_begin();
        status = tr_waiting_turn(tr, &waiting, "shard %" PRIu32 " of a checkpoint from rank %d", shard,
                                 m->holder[shard]);
    }
    if (status == TR_OK && m->asked.status != TR_OK)
        status = tr_fail(m->asked.status, "shard %" PRIu32 " does not come from rank %d: %s", shard,
                         m->holder[shard], m->asked.error);
    tr_stream_close(&m->asked);
    if (status == TR_OK && rename(part, path) < 0)
        status = tr_fail(TR_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    free(part);
    return status;
}

int tr_memory_shard(struct tr_memory *m, uint64_t bytes, uint32_t shard, char **path)
{
    if (m->here[shard]) return tr_copy_string(m->here[shard], path);
    if (!m->fetched) TR_TRY(make_fetched(m, bytes));
    TR_TRY(tr_format(path, "%s/%08" PRIu64 "/fetched-%04" PRIu32 ".h5", m->fetched, m->found, shard));
    int status = access(*path, R_OK) == 0 ? TR_OK : ask(m, shard, *path);
    if (status != TR_OK) free(*path);
    return status;
}

/* ---- giving ---- */

static void begin_serving(struct tr_memory *m, struct tr_stream *s, int to, const uint64_t wish[2])
{
    bool known = wish[0] == m->found && wish[1] < m->shards && m->here[wish[1]];
    tr_stream_send(s, m->tr, to, wish[0], known ? m->here[wish[1]] : "", known ? TR_OK : TR_ERR_INTERNAL,
                   "it is not here");
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
    int here = 0;
    MPI_Status from;
    if (unused) MPI_Iprobe(MPI_ANY_SOURCE, TR_TAG_FETCH, m->tr->wire, &here, &from);
    if (!here) return;
    uint64_t wish[2];
    MPI_Recv(wish, 2, MPI_UINT64_T, from.MPI_SOURCE, TR_TAG_FETCH, m->tr->wire, MPI_STATUS_IGNORE);
    ++*did;
    begin_serving(m, unused, from.MPI_SOURCE, wish);
}

void tr_memory_found_end(struct tr_memory *m)
{
    for (size_t i = 0; i < TR_MEMORY_SERVED; i++) tr_stream_close(&m->served[i]);
    m->serves = false;
}
