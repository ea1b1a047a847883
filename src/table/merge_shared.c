/* Shared-memory merge, on one node: no update travels at all. The deltas of the workers lie in memory that the node
 * shares; once every worker is done with its clock, each server adds to its share what is for it, worker by worker in
 * the order of their ranks, straight from there. One pass over the deltas is all it takes: a collective copies them
 * twice before the server sees them.
 *
 * A rank's part of the memory: a line with its progress; of a worker then, for each server, where the lists of its
 * keys are; these lists; its delta. */
#include <stdlib.h>
#include <string.h>

#include "table/merge.h"
#include "table/view.h"

struct line {
    _Atomic int64_t
        ready; /* worker: its deltas of clocks < ready are complete, and it has read for these clocks */
    _Atomic int64_t added; /* server: it has added everybody's deltas of clocks < added */
    int64_t updates;       /* worker: lists and a delta follow */
    char pad[40];
};

/* A worker's keys for one server, in its part at these offsets. */
struct entry {
    uint32_t n, runs;
    uint64_t local, position, run, delta;
};

/* A worker of the node, as a server sees it. */
struct source {
    const struct line *line;
    const char *delta;
    struct tr_segment segment; /* in that worker's memory */
};

struct tr_shared_merge {
    struct tr_table *table;
    struct tr_shm memory; /* by rank: on one node all communicators count alike */
    struct line *mine;
    size_t workers, servers;
    struct source *source;      /* by worker, in the order of ranks */
    const struct line **server; /* by server */
    tr_view *view;              /* whose delta lies in this rank's part */
    size_t next;                /* server: the worker to be added next in the running merge */
};

/* Takes the next so many bytes of a part, and fills them if there is a part: its offset. */
static uint64_t put(struct line *part, size_t *at, const void *from, size_t bytes)
{
    uint64_t offset = *at;
    if (part && from) memcpy((char *)part + offset, from, bytes);
    *at += (bytes + 63) & ~(size_t)63;
    return offset;
}

/* Fills this rank's part; without memory it just says how long that is. */
static size_t lay_out(const struct tr_shared_merge *m, struct line *part)
{
    size_t at = sizeof *part;
    if (part) *part = (struct line){.updates = m->view != NULL};
    if (!m->view) return at;
    const struct tr_keyset *keys = &m->view->state->keys;
    uint64_t directory = put(part, &at, NULL, m->servers * sizeof(struct entry));
    struct entry *entry = part ? (struct entry *)(void *)((char *)part + directory) : NULL;
    for (uint32_t s = 0; s < keys->servers; s++) {
        const struct tr_segment *segment = &keys->segment[s];
        struct entry e = {.n = segment->n, .runs = segment->runs};
        if (e.runs) {
            e.run = put(part, &at, segment->run, e.runs * sizeof *segment->run);
        } else {
            e.local = put(part, &at, segment->local, e.n * sizeof *segment->local);
            e.position = put(part, &at, segment->position, e.n * sizeof *segment->position);
        }
        if (entry) entry[s] = e;
    }
    uint64_t delta = put(part, &at, NULL, tr_view_bytes(m->view));
    for (uint32_t s = 0; entry && s < keys->servers; s++) entry[s].delta = delta;
    if (part) {
        free(m->view->delta);
        m->view->delta = (char *)part + delta;
        memset(m->view->delta, 0, tr_view_bytes(m->view));
        m->view->state->lent = true;
    }
    return at;
}

/* What a worker's part says of this rank's share. */
static struct source find_source(const struct tr_shared_merge *m, const struct tr_shm_part *part)
{
    struct source source = {.line = (const struct line *)(void *)part->at};
    int server = m->table->server;
    if (server < 0 || !source.line->updates) return source;
    const struct entry *e = (const struct entry *)(void *)(part->at + sizeof(struct line)) + server;
    source.delta = part->at + e->delta;
    source.segment = (struct tr_segment){.n = e->n,
                                         .runs = e->runs,
                                         .run = (struct tr_run *)(void *)(part->at + e->run),
                                         .local = (uint32_t *)(void *)(part->at + e->local),
                                         .position = (uint32_t *)(void *)(part->at + e->position)};
    return source;
}

int tr_shared_merge_open(struct tr_table *t, struct tr_shared_merge **merge)
{
    tr_context *tr = t->tr;
    struct tr_view_state *view = tr_merged_view(t);
    struct tr_shared_merge *m;
    TR_TRY(TR_NEW(&m, 1));
    *m = (struct tr_shared_merge){.table = t, .servers = t->partition.servers, .memory = TR_SHM_CLOSED};
    *merge = m;
    m->view = view ? &view->view : NULL;
    TR_TRY(TR_NEW(&m->source, (size_t)tr->size));
    TR_TRY(TR_NEW(&m->server, m->servers));
    TR_TRY(tr_agree(tr, tr_shm_open(tr, tr->node, lay_out(m, NULL), false, &m->memory)));
    m->mine = (struct line *)(void *)m->memory.part[tr->rank].at;
    lay_out(m, m->mine);
    tr_meet(tr, tr->node, "the ranks of this node to open a merge");
    for (int rank = 0; rank < tr->size; rank++) {
        const struct tr_shm_part *part = &m->memory.part[rank];
        int server = tr_table_server_of(t, rank);
        if (tr_worker_set_has(tr, tr->active, rank)) m->source[m->workers++] = find_source(m, part);
        if (server >= 0) m->server[server] = (const struct line *)(void *)part->at;
    }
    return TR_OK;
}

void tr_shared_merge_close(struct tr_shared_merge *m)
{
    struct tr_view_state *v = tr_merged_view(m->table);
    if (v && &v->view == m->view && v->lent) { /* it may be used again: by the next stage, say */
        v->view.delta = NULL;
        (void)TR_NEW((char **)&v->view.delta, tr_view_bytes(&v->view));
        v->lent = false;
    }
    tr_shm_close(&m->memory);
    free(m->source);
    free(m->server);
    free(m);
}

void tr_shared_merge_begin(struct tr_shared_merge *m)
{
    atomic_store_explicit(&m->mine->ready, 0, memory_order_relaxed);
    atomic_store_explicit(&m->mine->added, 0, memory_order_relaxed);
}

void tr_shared_merge_start(struct tr_shared_merge *m, int64_t clock)
{
    m->next = 0;
    if (m->view) m->table->tr->tables->traffic.bytes_pushed += tr_view_bytes(m->view);
    atomic_store_explicit(&m->mine->ready, clock + 1, memory_order_release);
}

static bool all_ready(const struct tr_shared_merge *m, int64_t clock)
{
    for (size_t w = 0; w < m->workers; w++)
        if (atomic_load_explicit(&m->source[w].line->ready, memory_order_acquire) <= clock) return false;
    return true;
}

static bool all_added(const struct tr_shared_merge *m, int64_t clock)
{
    for (size_t s = 0; s < m->servers; s++)
        if (atomic_load_explicit(&m->server[s]->added, memory_order_acquire) <= clock) return false;
    return true;
}

bool tr_shared_merge_poll(struct tr_shared_merge *m, int64_t clock, int *did)
{
    struct tr_table *t = m->table;
    if (t->server >= 0 && m->mine->added <= clock) {
        if (m->next == 0 && !all_ready(m, clock)) return false;
        const struct source *source = &m->source[m->next];
        if (source->delta)
            tr_add_segment_to_share(t->dtype, &source->segment, t->unit_width, source->delta,
                                    t->share[t->server]);
        ++*did;
        if (++m->next < m->workers) return false; /* the other roles of this rank come in between */
        atomic_store_explicit(&m->mine->added, clock + 1, memory_order_release);
    }
    return !tr_works(t->tr) || all_added(m, clock);
}
