#define _GNU_SOURCE
#include "store/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/persistent.h"
#include "store/folder.h"
#include "trireme/collective.h"

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

/* A rank's shard goes to the ranks with its number on the next nodes. Where a node has more ranks than the one before, some
 * get nothing. */
static int find_peers(struct tr_memory *m)
{
    const tr_context *tr = m->tr;
    int nodes = 0, own = tr->node_of[tr->rank], *seen;
    for (int r = 0; r < tr->size; r++) nodes = tr_max_int(nodes, tr->node_of[r] + 1);
    m->copies = tr_min_int((int)tr->job->checkpoint.copies, nodes - 1);
    TR_TRY(TR_NEW(&m->peer, (size_t)m->copies));
    TR_TRY(TR_NEW(&m->source, (size_t)tr->size * (size_t)m->copies));
    for (int k = 0; k < m->copies; k++) m->peer[k] = rank_on(tr, (own + k + 1) % nodes, tr->node_rank);
    TR_TRY(TR_NEW(&seen, (size_t)nodes)); /* ranks so far, by node */
    for (int r = 0; r < tr->size; r++) {
        int number = seen[tr->node_of[r]]++, after = (own - tr->node_of[r] + nodes) % nodes;
        if (after >= 1 && after <= m->copies && number % tr->node_size == tr->node_rank)
            m->source[m->sources++] = r;
    }
    free(seen);
    return TR_OK;
}

/* ---- opening and closing ---- */

int tr_memory_open(tr_context *tr, const char *to, struct tr_memory **out)
{
    static const char waiting_for[] = "all ranks to open checkpoints in memory";
    struct tr_memory *m;
    TR_TRY(TR_NEW(&m, 1));
    *out = m;
    m->tr = tr;
    m->to = to;
    m->asking = MPI_REQUEST_NULL;
    m->host = tr->host;
    MPI_Comm_rank(m->host, &m->host_rank);
    MPI_Comm_size(m->host, &m->host_size);
    int first = tr->node_of[tr->rank];
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, m->host, &request);
    TR_TRY(tr_wait_request(tr, &request, waiting_for));
    m->node = tr->node_of[tr->rank] - first;
    return find_peers(m);
}

void tr_memory_end(struct tr_memory *m)
{
    for (int i = 0; m->out && i < m->copies; i++) tr_stream_close(&m->out[i]);
    for (size_t i = 0; m->in && i < m->sources; i++) tr_stream_close(&m->in[i]);
    free(m->out);
    free(m->in);
    m->out = m->in = NULL;
}

void tr_memory_close(struct tr_memory **out, uint64_t run, bool removes)
{
    struct tr_memory *m = *out;
    if (!m) return;
    tr_memory_end(m);
    tr_memory_found_end(m);
    /* rank 0's word, who knows whether the disk has everything; then nobody writes there any more */
    int word = removes;
    removes = tr_broadcast(m->tr, TR_SET_ALL, 0, &word, sizeof word) == TR_OK && word &&
              tr_barrier(m->tr, m->host, "all ranks of a host to close their checkpoints") == TR_OK;
    if (removes && m->tr->rank == 0) tr_memory_unname(m->to);
    if (removes && m->host_rank == 0) tr_memory_remove(run, 0, 0);
    tr_memory_files_free(m->file, m->files);
    void *memory[] = {m->here, m->holder, m->fetched, m->folder, m->source, m->peer, m};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
    *out = NULL;
}

/* ---- taking ---- */

/* The folder for so many bytes more on this node: in the first base that has room for them. */
static int make_folder(struct tr_memory *m, uint64_t bytes)
{
    struct tr_persistent_bases bases;
    tr_persistent_bases(&bases);
    int status = tr_fail(TR_ERR_NO_OUTPUT, "neither %s nor what else there is has room for %" PRIu64 " MB",
                         bases.n > 0 ? bases.base[0] : "memory", (bytes >> 20) + 1);
    for (size_t i = 0; i < bases.n; i++) {
        uint64_t all = tr_persistent_free(bases.base[i]) + (i == 0 ? m->before[1] : 0); /* removed now */
        if (all < bytes) continue;
        status = tr_memory_make(bases.base[i], m->run, m->node, m->to, m->number, &m->folder);
        if (status != TR_OK) continue;
        if (i > 0)
            snprintf(m->note, sizeof m->note,
                     "%.60s has no room for %" PRIu64 " MB; they are in %.60s instead", bases.base[0],
                     (bytes >> 20) + 1, bases.base[i]);
        return TR_OK;
    }
    return status;
}

static int begin_receiving(struct tr_memory *m)
{
    TR_TRY(TR_NEW(&m->in, m->sources));
    for (size_t i = 0; i < m->sources; i++) {
        char *path = NULL;
        if (m->folder) TR_TRY(tr_shard_path(m->folder, m->number, (uint32_t)m->source[i], &path));
        tr_stream_receive(&m->in[i], m->tr, m->source[i], m->number, path ? path : ""); /* "" fails */
        free(path);
    }
    return TR_OK;
}

int tr_memory_begin(struct tr_memory *m, uint64_t run, uint64_t number, uint64_t bytes)
{
    char error[512];
    tr_memory_end(m);
    free(m->folder);
    m->folder = NULL;
    *m->note = '\0';
    m->run = run;
    m->number = number;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_NODE, TR_SUM, TR_I64, &bytes, 1));
    bytes *= 1 + (uint64_t)m->copies; /* what the nodes before send is about as much */
    int status = make_folder(m, bytes);
    m->before[1] = m->before[0];
    m->before[0] = bytes;
    snprintf(error, sizeof error, "%s", status == TR_OK ? "" : tr_error_text());
    TR_TRY(begin_receiving(m));
    return status == TR_OK ? TR_OK : tr_fail(status, "%s", error);
}

void tr_memory_tidy(struct tr_memory *m)
{
    if (m->host_rank == 0) tr_memory_remove(m->run, m->number, m->committed);
}

void tr_memory_send(struct tr_memory *m, int status, const char *error)
{
    char *path = NULL, text[200];
    snprintf(text, sizeof text, "%s", error);
    if (status == TR_OK && tr_shard_path(m->folder, m->number, (uint32_t)m->tr->rank, &path) != TR_OK)
        status = TR_ERR_SYSTEM;
    if (TR_NEW(&m->out, (size_t)m->copies) != TR_OK) return;
    for (int i = 0; i < m->copies; i++)
        tr_stream_send(&m->out[i], m->tr, m->peer[i], m->number, path ? path : "", status, text);
    free(path);
}

static bool turn(struct tr_stream *s, size_t n, bool *over, int *status, const char **error)
{
    bool did = false;
    for (size_t i = 0; s && i < n; i++) {
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
    bool did = turn(m->in, m->sources, arrived, status, error);
    return turn(m->out, (size_t)m->copies, arrived, status, error) || did;
}
