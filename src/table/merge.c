/* Merging: under BSP all updates of a clock travel together, by nonblocking collectives over the ranks that
 * serve or work, in chunks of the servers' shares, two chunks at once: while one travels, the next is packed and
 * the last one added (M5).
 *
 *   sparse  each worker sends each server just the values of its registered keys (all-to-all); the server adds
 *           them worker by worker. Bytes: the sum of the views.
 *   shared  on one node: nothing travels, see merge_shared.c
 *   dense   each chunk of a share is reduced onto its server in a tree. Bytes into a server: log2(P) shares,
 *           however many workers there are.
 *
 * Either adds in an order that depends on nothing but the ranks, so that runs repeat to the bit. And either
 * makes BSP exact: a server adds nothing before it has heard from every worker that it is done with this
 * clock's reading; in the sparse way a marker in the first chunk says so even for workers without keys. */
#include "table/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "table/server.h"
#include "table/view.h"

enum { IN_FLIGHT = 2, CHUNK_BYTES = 1 << 20 };

struct step {
    MPI_Request request;
    uint32_t index;
    int *send_count, *send_at, *receive_count,
        *receive_at; /* by participant, in units: one block of memory */
    char *send, *receive;
    size_t send_room, receive_room;
};

struct participant {
    int server; /* which one it is, or -1 */
    bool works;
    struct tr_segment keys; /* that it has registered at this server: positions alone, NULL: 0..n-1 */
};

struct tr_merge {
    struct tr_table *table;
    struct tr_shared_merge
        *shared; /* merges in shared memory instead: nothing below but busy and done is used */
    MPI_Comm comm;
    MPI_Datatype unit;
    int me, size;
    struct participant *rank;
    bool dense, busy;
    uint32_t chunk, chunks; /* units of a share in one step; steps of the longest share */
    uint32_t steps;
    int64_t done;
    tr_view *view; /* contributes to the running merge */
    uint32_t posted, finished;
    struct step step[IN_FLIGHT];
};

/* ---- slices of key sets that fall into a chunk ---- */

struct slice {
    uint32_t first, n;
};

static struct slice slice_of(const struct tr_merge *m, const struct tr_segment *keys, uint32_t chunk)
{
    uint64_t from = (uint64_t)chunk * m->chunk, to = from + m->chunk;
    uint32_t n = keys->n, first = (uint32_t)tr_min_size(from, n), end = (uint32_t)tr_min_size(to, n);
    if (keys->position) {
        first = from > UINT32_MAX ? n : tr_segment_find(keys, (uint32_t)from);
        end = to > UINT32_MAX ? n : tr_segment_find(keys, (uint32_t)to);
    }
    return (struct slice){first, end - first};
}

static struct tr_segment *own_segment(const struct tr_merge *m, int server)
{
    return m->view ? &m->view->state->keys.segment[server] : NULL;
}

/* ---- sparse: all-to-all ---- */

static int post_sparse(struct tr_merge *m, struct step *step)
{
    const struct participant *me = &m->rank[m->me];
    size_t unit = m->table->unit_bytes, out = 0, in = 0;
    bool marks = step->index == 0;
    for (int p = 0; p < m->size; p++) {
        const struct participant *other = &m->rank[p];
        uint32_t to = 0, from = 0;
        if (p != m->me && other->server >= 0 && me->works)
            to = marks + (m->view ? slice_of(m, own_segment(m, other->server), step->index).n : 0);
        if (p != m->me && me->server >= 0 && other->works)
            from = marks + slice_of(m, &other->keys, step->index).n;
        step->send_at[p] = (int)out;
        step->receive_at[p] = (int)in;
        step->send_count[p] = (int)to;
        step->receive_count[p] = (int)from;
        out += to;
        in += from;
    }
    TR_TRY(TR_GROW(&step->send, &step->send_room, out * unit));
    TR_TRY(TR_GROW(&step->receive, &step->receive_room, in * unit));
    for (int p = 0; p < m->size; p++) {
        if (step->send_count[p] == 0) continue;
        char *to = step->send + (size_t)step->send_at[p] * unit;
        if (marks) memset(to, 0, unit);
        if (!m->view) continue;
        struct tr_segment *s = own_segment(m, m->rank[p].server);
        struct slice slice = slice_of(m, s, step->index);
        tr_gather(s->local + slice.first, slice.n, unit, m->view->delta, to + (marks ? unit : 0));
    }
    m->table->tr->tables->traffic.bytes_pushed += out * unit;
    MPI_Ialltoallv(step->send, step->send_count, step->send_at, m->unit, step->receive, step->receive_count,
                   step->receive_at, m->unit, m->comm, &step->request);
    return TR_OK;
}

/* Adds what came, worker by worker; the own update goes straight from the view. */
static void finish_sparse(struct tr_merge *m, struct step *step)
{
    struct tr_table *t = m->table;
    int server = m->rank[m->me].server;
    if (server < 0) return;
    char *share = t->share[server];
    for (int p = 0; p < m->size; p++) {
        const struct tr_segment *s = p == m->me ? own_segment(m, server) : &m->rank[p].keys;
        if (!s || s->n == 0) continue;
        struct slice slice = slice_of(m, s, step->index);
        const char *from = step->receive + ((size_t)step->receive_at[p] + (step->index == 0)) * t->unit_bytes;
        if (p == m->me)
            tr_add_view_to_share(t->dtype, s, slice.first, slice.n, t->unit_width, m->view->delta, share);
        else if (s->position)
            tr_add_packed_to_share(t->dtype, s->position + slice.first, slice.n, t->unit_width, from, share);
        else
            tr_add_packed_to_share(t->dtype, NULL, slice.n, t->unit_width, from,
                                   share + slice.first * t->unit_bytes);
    }
}

/* ---- dense: reductions ---- */

static struct slice dense_range(const struct tr_merge *m, uint32_t step, int *server)
{
    *server = (int)(step / m->chunks);
    uint64_t share = tr_partition_share(&m->table->partition, (uint32_t)*server);
    uint64_t first = (uint64_t)(step % m->chunks) * m->chunk;
    uint64_t n = first >= share ? 0 : share - first < m->chunk ? share - first : m->chunk;
    return (struct slice){(uint32_t)first, (uint32_t)n};
}

static int participant_of_server(const struct tr_merge *m, int server)
{
    for (int p = 0; p < m->size; p++)
        if (m->rank[p].server == server) return p;
    return 0;
}

static int post_dense(struct tr_merge *m, struct step *step)
{
    struct tr_table *t = m->table;
    int server;
    struct slice range = dense_range(m, step->index, &server);
    size_t bytes = range.n * t->unit_bytes;
    TR_TRY(TR_GROW(&step->send, &step->send_room, bytes));
    if (bytes > 0) memset(step->send, 0, bytes);
    if (m->view) {
        const struct tr_segment *s = own_segment(m, server);
        struct slice slice = slice_of(m, s, step->index % m->chunks);
        for (uint32_t i = slice.first; i < slice.first + slice.n; i++)
            memcpy(step->send + (s->position[i] - range.first) * t->unit_bytes,
                   (char *)m->view->delta + s->local[i] * t->unit_bytes, t->unit_bytes);
    }
    int root = participant_of_server(m, server);
    if (root != m->me) t->tr->tables->traffic.bytes_pushed += bytes;
    MPI_Ireduce(root == m->me ? MPI_IN_PLACE : step->send, root == m->me ? step->send : NULL,
                (int)(range.n * t->unit_width), tr_dtype_mpi(t->dtype), MPI_SUM, root, m->comm,
                &step->request);
    return TR_OK;
}

static void finish_dense(struct tr_merge *m, struct step *step)
{
    struct tr_table *t = m->table;
    int server;
    struct slice range = dense_range(m, step->index, &server);
    if (m->rank[m->me].server != server) return;
    tr_add_elements(t->dtype, range.n * t->unit_width, step->send,
                    (char *)t->share[server] + range.first * t->unit_bytes);
}

/* ---- both ---- */

int tr_merge_poll(struct tr_table *t, int *did)
{
    struct tr_merge *m = t->merge;
    if (!m || !m->busy) return TR_OK;
    if (m->shared && !tr_shared_merge_poll(m->shared, m->done, did)) return TR_OK;
    while (m->finished < m->steps) {
        while (m->posted < m->steps && m->posted < m->finished + IN_FLIGHT) {
            struct step *step = &m->step[m->posted % IN_FLIGHT];
            step->index = m->posted++;
            TR_TRY(m->dense ? post_dense(m, step) : post_sparse(m, step));
            ++*did;
        }
        struct step *step = &m->step[m->finished % IN_FLIGHT];
        if (!tr_request_done(&step->request)) return TR_OK;
        if (m->dense) finish_dense(m, step);
        else finish_sparse(m, step);
        m->finished++;
        ++*did;
    }
    if (m->view) memset(m->view->delta, 0, tr_view_bytes(m->view));
    atomic_thread_fence(memory_order_release); /* what was added shows before the clock that says so */
    ++*did;
    m->busy = false;
    m->done++;
    return TR_OK;
}

int tr_merge_start(struct tr_table *t, tr_view *view)
{
    struct tr_merge *m = t->merge;
    (void)TR_FAULT("merge");
    m->view = view;
    m->busy = true;
    m->posted = m->finished = 0;
    if (m->shared) tr_shared_merge_start(m->shared, m->done);
    return TR_OK;
}

void tr_merge_begin(struct tr_table *t)
{
    if (!t->merge) return;
    t->merge->done = 0;
    if (t->merge->shared) tr_shared_merge_begin(t->merge->shared);
}

bool tr_merge_busy(const struct tr_table *t)
{
    return t->merge && t->merge->busy;
}

int64_t tr_merge_done(const struct tr_table *t)
{
    return t->merge ? t->merge->done : INT64_MAX;
}

/* Sparse moves the sum of the views, dense a share per level of the tree and worker; the factor is measured
 * (reductions run at a third of the bandwidth of plain messages). */
static bool dense_is_cheaper(const struct tr_table *t, double view_units, int ranks)
{
    double levels = 0;
    for (int p = 1; p < ranks; p *= 2) levels++;
    return view_units > 3.0 * levels * (double)t->partition.units;
}

struct tr_view_state *tr_merged_view(const struct tr_table *t)
{
    const struct tr_tables *tables = t->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (v->view.table == t && v->merged && v->channel) return v;
    }
    return NULL;
}

static const char opening[] = "all ranks to open the merge of a table";

/* Which servers and workers take part, and with which keys. */
static int find_participants(struct tr_merge *m)
{
    tr_context *tr = m->table->tr;
    const struct tr_view_state *view = tr_merged_view(m->table);
    struct {
        int rank;
        uint32_t tag;
    } mine = {tr->rank, view ? view->tag : 0}, *all;
    TR_TRY(TR_NEW(&all, (size_t)m->size));
    TR_TRY(TR_NEW(&m->rank, (size_t)m->size));
    MPI_Request request;
    MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, m->comm, &request);
    tr_wait_alone(tr, &request, opening);
    for (int p = 0; p < m->size; p++) {
        int rank = all[p].rank;
        const struct tr_client *c = all[p].tag ? tr_server_client(m->table, rank, all[p].tag) : NULL;
        m->rank[p].server = tr_table_server_of(m->table, rank);
        m->rank[p].works = tr_worker_set_has(tr, tr->active, rank);
        if (c) m->rank[p].keys = (struct tr_segment){.n = c->n, .position = c->position};
    }
    free(all);
    return TR_OK;
}

/* A step's buffers hold one chunk of every share (sparse) or of one share (dense). */
static int cut_into_steps(struct tr_merge *m)
{
    const struct tr_partition *partition = &m->table->partition;
    uint64_t at_once = m->dense ? 1 : partition->servers;
    m->chunk = (uint32_t)tr_max_size(CHUNK_BYTES / m->table->unit_bytes / at_once, 1024);
    m->chunks = (uint32_t)((tr_partition_longest(partition) + m->chunk - 1) / m->chunk);
    m->steps = m->dense ? m->chunks * partition->servers : m->chunks;
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct step *step = &m->step[i];
        step->request = MPI_REQUEST_NULL;
        TR_TRY(TR_NEW(&step->send_count, 4 * (size_t)m->size));
        step->send_at = step->send_count + m->size;
        step->receive_count = step->send_at + m->size;
        step->receive_at = step->receive_count + m->size;
    }
    return TR_OK;
}

int tr_merge_open(struct tr_table *t)
{
    tr_context *tr = t->tr;
    tr_merge_close(t);
    const struct tr_view_state *view = tr_merged_view(t);
    double sum[2] = {view ? (double)view->keys.units : 0, t->updating_views > 0};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, sum, 2, MPI_DOUBLE, MPI_SUM, tr->world, &request);
    tr_wait_alone(tr, &request, opening);
    if (sum[1] == 0) return TR_OK; /* nobody updates it */
    MPI_Comm comm = MPI_COMM_NULL;
    if (!t->merges_shared)
        tr_comm_split(tr, tr->world, t->server >= 0 || tr_works(tr) ? 0 : MPI_UNDEFINED, tr->rank, opening,
                      &comm);
    if (!t->merges_shared && comm == MPI_COMM_NULL) return TR_OK;
    struct tr_merge *m;
    TR_TRY(TR_NEW(&m, 1));
    t->merge = m;
    m->table = t;
    m->comm = comm;
    if (t->merges_shared) return tr_shared_merge_open(t, &m->shared);
    MPI_Comm_rank(comm, &m->me);
    MPI_Comm_size(comm, &m->size);
    MPI_Type_contiguous((int)t->unit_bytes, MPI_BYTE, &m->unit);
    MPI_Type_commit(&m->unit);
    TR_TRY(find_participants(m));
    int wish = tr->job ? tr->job->table.merge : TR_MERGE_AUTO;
    m->dense = wish == TR_MERGE_AUTO ? dense_is_cheaper(t, sum[0], m->size) : wish == TR_MERGE_DENSE;
    return cut_into_steps(m);
}

void tr_merge_close(struct tr_table *t)
{
    struct tr_merge *m = t->merge;
    if (!m) return;
    t->merge = NULL;
    if (m->shared) tr_shared_merge_close(m->shared);
    for (int i = 0; i < IN_FLIGHT; i++) {
        free(m->step[i].send_count);
        free(m->step[i].send);
        free(m->step[i].receive);
    }
    if (m->comm != MPI_COMM_NULL) {
        MPI_Type_free(&m->unit);
        MPI_Comm_free(&m->comm);
    }
    free(m->rank);
    free(m);
}

void tr_merge_describe(const struct tr_table *t, char *text, size_t size)
{
    const struct tr_merge *m = t->merge;
    if (!m) snprintf(text, size, "not merged");
    else if (m->shared) snprintf(text, size, "merged near, in memory that the node shares");
    else if (m->dense)
        snprintf(text, size, "merged dense, by %u reductions a clock of at most %u keys each", m->steps,
                 m->chunk);
    else
        snprintf(text, size, "merged sparse, by %u all-to-alls a clock of at most %u keys of each share",
                 m->steps, m->chunk);
}
