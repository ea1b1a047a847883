#define _GNU_SOURCE
#include "store/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lasting.h"
#include "store/folder.h"

/* ---- who copies to whom ---- */

/* The rank of that number on a node, counted round where it has fewer. */
static int rank_on(const tr_context *tr, int node, int number)
{
    int size = 0;
    for (int r = 0; r < tr->size; r++) size += tr->node_of[r] == node;
    number %= size;
    for (int r = 0; r < tr->size; r++)
        if (tr->node_of[r] == node && number-- == 0) return r;
    return -1;
}

/* Numbers of the ranks on their nodes, to be freed, and of nodes. */
static int number_ranks(const tr_context *tr, int **number, int *nodes)
{
    int *count;
    *nodes = 0;
    for (int r = 0; r < tr->size; r++) *nodes = tr_max_int(*nodes, tr->node_of[r] + 1);
    TR_TRY(TR_NEW(number, (size_t)tr->size));
    int status = TR_NEW(&count, (size_t)*nodes);
    if (status != TR_OK) {
        free(*number);
        return status;
    }
    for (int r = 0; r < tr->size; r++) (*number)[r] = count[tr->node_of[r]]++;
    free(count);
    return TR_OK;
}

static int find_peers(struct tr_memory *m)
{
    const tr_context *tr = m->tr;
    int *number, nodes, own = tr->node_of[tr->rank];
    size_t room = 0;
    TR_TRY(number_ranks(tr, &number, &nodes));
    m->copies = tr_min_int((int)tr->job->checkpoint.copies, nodes - 1);
    int status = TR_NEW(&m->peer, (size_t)m->copies);
    for (int k = 0; k < m->copies && status == TR_OK; k++) {
        m->peer[k] = rank_on(tr, (own + k + 1) % nodes, number[tr->rank]);
        int from = (own - k - 1 + nodes) % nodes;
        for (int r = 0; r < tr->size && status == TR_OK; r++) {
            if (tr->node_of[r] != from || number[r] % tr->node_size != tr->node_rank) continue;
            status = TR_GROW(&m->source, &room, m->sources + 1);
            if (status != TR_OK) break;
            m->source[m->sources++] = r;
            m->manifests = m->manifests || r == 0;
        }
    }
    free(number);
    return status;
}

/* ---- opening and closing ---- */

int tr_memory_open(tr_context *tr, const char *to, struct tr_memory **out)
{
    struct tr_memory *m;
    TR_TRY(TR_NEW(&m, 1));
    *out = m;
    m->tr = tr;
    m->to = to;
    m->asking = MPI_REQUEST_NULL;
    MPI_Comm_split_type(tr->world, MPI_COMM_TYPE_SHARED, tr->rank, MPI_INFO_NULL, &m->host);
    MPI_Comm_rank(m->host, &m->host_rank);
    MPI_Comm_size(m->host, &m->host_size);
    int first = tr->node_of[tr->rank];
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, m->host);
    m->node = tr->node_of[tr->rank] - first;
    return find_peers(m);
}

void tr_memory_end(struct tr_memory *m)
{
    for (size_t i = 0; i < m->outs; i++) tr_stream_close(&m->out[i]);
    for (size_t i = 0; i < m->ins; i++) tr_stream_close(&m->in[i]);
    for (int i = 0; m->manifest && i < tr_max_int(1, m->copies); i++) tr_stream_close(&m->manifest[i]);
    free(m->out);
    free(m->in);
    free(m->manifest);
    m->out = m->in = m->manifest = NULL;
    m->outs = m->ins = 0;
}

void tr_memory_close(struct tr_memory **out, uint64_t run, bool removes)
{
    struct tr_memory *m = *out;
    if (!m) return;
    tr_memory_end(m);
    tr_memory_found_end(m);
    /* rank 0's word, who knows whether the disk has everything; then nobody writes there any more */
    int word = removes;
    MPI_Request request;
    MPI_Ibcast(&word, 1, MPI_INT, 0, m->tr->world, &request);
    removes = tr_wait_request(m->tr, &request, "rank 0 to close its checkpoints") == TR_OK && word &&
              tr_barrier(m->tr, m->host, "all ranks of a host to close their checkpoints") == TR_OK;
    if (removes && m->tr->rank == 0) tr_memory_unname(m->to);
    if (removes && m->host_rank == 0) tr_memory_remove(run, 0, 0);
    MPI_Comm_free(&m->host);
    tr_memory_files_free(m->file, m->files);
    free(m->here);
    free(m->holder);
    free(m->fetched);
    free(m->folder);
    free(m->source);
    free(m->peer);
    free(m);
    *out = NULL;
}

/* ---- taking ---- */

static int add_all(struct tr_memory *m, uint64_t *bytes)
{
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, bytes, 1, MPI_UINT64_T, MPI_SUM, m->tr->node, &request);
    return tr_wait_request(m->tr, &request, "the ranks of a node to say how much they copy");
}

/* The folder for so many bytes more on this node: in the first base that has room for them. */
static int make_folder(struct tr_memory *m, uint64_t run, uint64_t number, uint64_t bytes)
{
    struct tr_lasting_bases bases;
    tr_lasting_bases(&bases);
    int status = TR_OK;
    for (size_t i = 0; i < bases.n; i++) {
        const char *base = bases.base[i];
        uint64_t room = tr_lasting_room(base) + (i == 0 ? m->before[1] : 0); /* which is removed now */
        if (room < bytes) continue;
        status = tr_memory_make(base, run, m->node, m->to, number, &m->folder);
        if (status != TR_OK) continue;
        if (i > 0)
            snprintf(m->note, sizeof m->note,
                     "%.60s has no room for %" PRIu64 " MB; they are in %.60s instead", bases.base[0],
                     (bytes >> 20) + 1, base);
        return TR_OK;
    }
    if (status != TR_OK) return status;
    return tr_fail(TR_ERR_NO_OUTPUT, "neither %s nor what else there is has room for %" PRIu64 " MB",
                   bases.n > 0 ? bases.base[0] : "memory", (bytes >> 20) + 1);
}

static int begin_receiving(struct tr_memory *m)
{
    m->ins = 0;
    TR_TRY(TR_NEW(&m->in, m->sources));
    for (size_t i = 0; i < m->sources; i++) {
        char *path = NULL;
        int status = m->folder ? tr_shard_path(m->folder, m->number, (uint32_t)m->source[i], &path)
                               : tr_copy_string("", &path); /* which cannot be opened */
        TR_TRY(status);
        tr_stream_receive(&m->in[m->ins++], m->tr, m->source[i], m->number, path);
        free(path);
    }
    return TR_OK;
}

int tr_memory_begin(struct tr_memory *m, uint64_t run, uint64_t number, uint64_t kept, uint64_t bytes)
{
    tr_memory_end(m);
    free(m->folder);
    m->folder = NULL;
    *m->note = '\0';
    m->run = run;
    m->number = number;
    m->kept = kept;
    TR_TRY(add_all(m, &bytes));
    bytes *= 1 + (uint64_t)m->copies; /* what the nodes before send is about as much */
    int status = make_folder(m, run, number, bytes);
    m->before[1] = m->before[0];
    m->before[0] = bytes;
    char error[512];
    snprintf(error, sizeof error, "%s", status == TR_OK ? "" : tr_error_text());
    int receiving = begin_receiving(m);
    return status == TR_OK ? receiving : tr_fail(status, "%s", error);
}

void tr_memory_tidy(void *memory)
{
    struct tr_memory *m = memory;
    if (m->host_rank == 0) tr_memory_remove(m->run, m->number, m->kept);
}

void tr_memory_send(struct tr_memory *m, int status, const char *error)
{
    char *path = NULL;
    char text[200];
    snprintf(text, sizeof text, "%s", error);
    if (status == TR_OK && tr_shard_path(m->folder, m->number, (uint32_t)m->tr->rank, &path) != TR_OK)
        status = TR_ERR_SYSTEM;
    if (TR_NEW(&m->out, (size_t)m->copies) != TR_OK) return;
    for (; m->outs < (size_t)m->copies; m->outs++)
        tr_stream_send(&m->out[m->outs], m->tr, m->peer[m->outs], m->number, path ? path : "", status, text);
    free(path);
}

static bool turn(struct tr_stream *s, size_t n, bool *over, int *status, const char **error)
{
    bool did = false;
    for (size_t i = 0; i < n; i++) {
        did |= tr_stream_turn(&s[i]);
        *over = *over && s[i].over;
        if (*status != TR_OK || s[i].status == TR_OK) continue;
        *status = s[i].status;
        *error = s[i].error;
    }
    return did;
}

bool tr_memory_turn(struct tr_memory *m, bool *arrived, int *status, const char **error)
{
    *arrived = m->out != NULL;
    *status = TR_OK;
    bool did = turn(m->in, m->ins, arrived, status, error);
    return turn(m->out, m->outs, arrived, status, error) || did;
}

/* ---- the manifest ---- */

static int manifest_path(const struct tr_memory *m, const char *end, char **path)
{
    return tr_format(path, "%s/%08" PRIu64 "/manifest.h5%s", m->folder ? m->folder : "", m->number, end);
}

void tr_memory_send_manifest(struct tr_memory *m, int status)
{
    char *path = NULL;
    if (m->copies == 0 || TR_NEW(&m->manifest, (size_t)m->copies) != TR_OK) return;
    if (status == TR_OK) status = manifest_path(m, "", &path);
    for (int i = 0; i < m->copies; i++)
        tr_stream_send(&m->manifest[i], m->tr, m->peer[i], m->number, path ? path : "", status,
                       "there is no manifest");
    free(path);
}

int tr_memory_receive_manifest(struct tr_memory *m)
{
    char *path;
    TR_TRY(TR_NEW(&m->manifest, (size_t)tr_max_int(1, m->copies)));
    TR_TRY(manifest_path(m, ".part", &path));
    tr_stream_receive(&m->manifest[0], m->tr, 0, m->number, path);
    free(path);
    return TR_OK;
}

bool tr_memory_turn_manifest(struct tr_memory *m, bool *over)
{
    *over = true;
    if (!m->manifest) return false;
    const char *error;
    bool sends = m->manifest[0].sends;
    int status = TR_OK;
    bool did = turn(m->manifest, sends ? (size_t)m->copies : 1, over, &status, &error);
    if (!*over || sends || status != TR_OK) return did;
    char *path = NULL;
    if (manifest_path(m, "", &path) == TR_OK && rename(m->manifest[0].path, path) < 0)
        (void)unlink(m->manifest[0].path); /* one fewer */
    free(path);
    return did;
}
