/* Merging on one node: no update travels at all. The deltas of the workers lie in memory that the node shares;
 * once every worker is done with its clock, each server adds to its share what is for it, worker by worker
 * in the order of their ranks, straight from there. One pass over the deltas is all it takes: a collective
 * copies them twice before the server sees them. */
#include <stdlib.h>
#include <string.h>

#include "shm/shm.h"
#include "table/merge.h"
#include "table/view.h"

/* A rank's part of the shared memory: its progress first. */
struct line {
    _Atomic int64_t
        ready; /* worker: its deltas of clocks < ready are complete, and it has read for these clocks */
    _Atomic int64_t added; /* server: it has added everybody's deltas of clocks < added */
    char pad[48];
};

/* Where a worker's keys for one server lie in its part, as offsets from its line. */
struct entry {
    uint32_t n, runs;
    uint64_t local, position, run;
};

/* Another worker of the node, as a server sees it. */
struct source {
    const struct line *line;
    const char *delta;
    struct tr_segment segment; /* in that worker's memory */
};

struct tr_near {
    struct tr_table *table;
    struct tr_shm memory;
    struct line *mine;
    size_t workers, servers;
    struct source *source;      /* by worker, in the order of ranks */
    const struct line **server; /* by server */
    tr_view *view;              /* whose delta lies in this rank's part */
    size_t next;                /* server: the worker to be added next in the running merge */
};

static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* ---- laying out a worker's part: line, directory, key lists, delta ---- */

static size_t lists_bytes(const struct tr_segment *s)
{
    return s->runs ? padded(s->runs * sizeof *s->run) : 2 * padded(s->n * sizeof *s->local);
}

static size_t directory_bytes(const struct tr_near *near)
{
    return sizeof(struct line) + padded(near->servers * sizeof(struct entry));
}

static size_t part_bytes(const struct tr_near *near)
{
    if (!near->view) return sizeof(struct line);
    size_t bytes = directory_bytes(near);
    const struct tr_keyset *keys = &near->view->state->keys;
    for (uint32_t s = 0; s < keys->servers; s++) bytes += lists_bytes(&keys->segment[s]);
    return bytes + padded(tr_view_bytes(near->view)) + 64;
}

static uint64_t put(struct line *line, size_t *at, const void *list, size_t bytes)
{
    uint64_t offset = *at;
    memcpy((char *)line + offset, list, bytes);
    *at += padded(bytes);
    return offset;
}

/* Fills this worker's part. Its delta moves there. */
static void lay_out(struct tr_near *near)
{
    struct tr_view_state *v = near->view->state;
    struct entry *directory = (struct entry *)(void *)(near->mine + 1);
    size_t at = directory_bytes(near);
    for (uint32_t s = 0; s < v->keys.servers; s++) {
        const struct tr_segment *segment = &v->keys.segment[s];
        struct entry *e = &directory[s];
        *e = (struct entry){.n = segment->n, .runs = segment->runs};
        if (segment->runs) {
            e->run = put(near->mine, &at, segment->run, segment->runs * sizeof *segment->run);
        } else {
            e->local = put(near->mine, &at, segment->local, segment->n * sizeof *segment->local);
            e->position = put(near->mine, &at, segment->position, segment->n * sizeof *segment->position);
        }
    }
    free(v->view.delta);
    v->view.delta = (char *)near->mine + at;
    memset(v->view.delta, 0, tr_view_bytes(&v->view));
    v->lent = true;
}

/* What the lists of a worker say of this rank's share. */
static void look_up(const struct tr_near *near, char *part, uint64_t delta, struct source *source)
{
    source->line = (const struct line *)(void *)part;
    int server = near->table->server;
    if (server < 0 || delta == 0) return;
    const struct entry *e = (const struct entry *)(void *)(part + sizeof(struct line)) + server;
    source->delta = part + delta;
    source->segment = (struct tr_segment){.n = e->n, .runs = e->runs};
    if (e->runs) {
        source->segment.run = (struct tr_run *)(void *)(part + e->run);
    } else {
        source->segment.local = (uint32_t *)(void *)(part + e->local);
        source->segment.position = (uint32_t *)(void *)(part + e->position);
    }
}

static int find_parts(struct tr_near *near)
{
    tr_context *tr = near->table->tr;
    uint64_t mine = near->view ? (uint64_t)((char *)near->view->delta - (char *)near->mine) : 0, *delta;
    TR_TRY(TR_NEW(&delta, (size_t)tr->size));
    MPI_Allgather(&mine, 1, MPI_UINT64_T, delta, 1, MPI_UINT64_T, tr->node);
    for (int rank = 0; rank < tr->size; rank++) { /* on one node both communicators count alike */
        char *part = near->memory.part[rank].at;
        if (tr_worker_set_has(tr, tr->active, rank))
            look_up(near, part, delta[rank], &near->source[near->workers++]);
        int server = tr_table_server_of(near->table, rank);
        if (server >= 0) near->server[server] = (const struct line *)(void *)part;
    }
    free(delta);
    return TR_OK;
}

int tr_near_open(struct tr_table *t, struct tr_near **out)
{
    tr_context *tr = t->tr;
    struct tr_near *near;
    TR_TRY(TR_NEW(&near, 1));
    near->table = t;
    near->servers = t->partition.servers;
    struct tr_view_state *view = tr_merged_view(t);
    near->view = view ? &view->view : NULL;
    TR_TRY(TR_NEW(&near->source, (size_t)tr->size));
    TR_TRY(TR_NEW(&near->server, near->servers));
    TR_TRY(tr_agree(tr, tr_shm_open(tr->node, part_bytes(near), false, &near->memory)));
    near->mine = (struct line *)(void *)near->memory.part[tr->node_rank].at;
    memset(near->mine, 0, sizeof *near->mine);
    if (near->view) lay_out(near);
    MPI_Barrier(tr->node);
    *out = near;
    return find_parts(near);
}

void tr_near_close(struct tr_near **near)
{
    struct tr_near *n = *near;
    if (!n) return;
    struct tr_view_state *v = tr_merged_view(n->table);
    if (v && &v->view == n->view && v->lent) { /* it may be used again: by the next stage, say */
        v->view.delta = NULL;
        (void)TR_NEW((char **)&v->view.delta, tr_view_bytes(&v->view));
        v->lent = false;
    }
    tr_shm_close(&n->memory);
    free(n->source);
    free(n->server);
    free(n);
    *near = NULL;
}

void tr_near_begin(struct tr_near *near)
{
    atomic_store_explicit(&near->mine->ready, 0, memory_order_relaxed);
    atomic_store_explicit(&near->mine->added, 0, memory_order_relaxed);
}

void tr_near_start(struct tr_near *near, int64_t clock)
{
    near->next = 0;
    if (near->view) near->table->tr->tables->traffic.bytes_pushed += tr_view_bytes(near->view);
    atomic_store_explicit(&near->mine->ready, clock + 1, memory_order_release);
}

static bool all_ready(const struct tr_near *near, int64_t clock)
{
    for (size_t w = 0; w < near->workers; w++)
        if (atomic_load_explicit(&near->source[w].line->ready, memory_order_acquire) <= clock) return false;
    return true;
}

static bool all_added(const struct tr_near *near, int64_t clock)
{
    for (size_t s = 0; s < near->servers; s++)
        if (atomic_load_explicit(&near->server[s]->added, memory_order_acquire) <= clock) return false;
    return true;
}

bool tr_near_poll(struct tr_near *near, int64_t clock, int *did)
{
    struct tr_table *t = near->table;
    int server = t->server;
    if (server >= 0 && near->mine->added <= clock) {
        if (near->next == 0 && !all_ready(near, clock)) return false;
        const struct source *source = &near->source[near->next];
        if (source->delta)
            tr_add_segment_to_share(t->dtype, &source->segment, t->unit_width, source->delta,
                                    t->share[server]);
        ++*did;
        if (++near->next < near->workers) return false; /* the other roles of this rank come in between */
        atomic_store_explicit(&near->mine->added, clock + 1, memory_order_release);
    }
    if (!tr_works(t->tr)) return true;
    if (!all_added(near, clock)) return false;
    if (near->view) memset(near->view->delta, 0, tr_view_bytes(near->view));
    return true;
}
