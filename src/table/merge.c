#include "table/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

/* ======== the plan of rounds ======== */

/* The plan of a merge between nodes: which units each rank sends to which rank, round by round.
 *
 * Participants are the ranks of the merge, numbered 0 .. n-1; some of them are servers. The first round runs among all
 * participants. A round divides its participants into `degree` parts of consecutive numbers. A rank sends its partial sums for the
 * servers of another part to one member of that part, and adds up the partial sums that it receives for its own part. The next
 * round runs among the members of this part. After the last round each server has the sum of all updates of its share. So a rank
 * sends (degree - 1) log n messages instead of n - 1, but values travel more than once. With degree n there is one round, and each
 * rank sends to each server directly.
 *
 * The units that a rank holds are those for which it has partial sums: before the first round, the units of its own keys. Keys do
 * not change from clock to clock: they travel once, when the plan is made, and then values travel without keys (H. Zhao and J.
 * Canny 2014, "Kylix: a sparse allreduce for commodity clusters"). The rounds in reverse bring the new values back.
 *
 * Shares are divided into chunks, which are merged independently. A chunk is a range of positions that is equal in all shares. */

/* The units that this rank sends to one peer in a round, or receives from it. For units that it keeps, a rank is its own peer. */
struct flow {
    int peer;
    int first, end;  /* to a peer: the units belong to shares of participants first .. end - 1 */
    uint32_t *units; /* units[c]: number of units of the flow in chunk c */
    /* at[c], for chunk c. In a flow to a peer: index of the first unit among the held units. In a flow from a peer: index of the
     * first unit in `place`. */
    uint32_t *at;
    /* place[i]: index of the held unit to which received unit i is added. NULL: received units are added to contiguous held units
     * from index `at[c]` on. */
    uint32_t *place;
};

struct round {
    int first, end; /* the next round runs among participants first .. end - 1 */
    size_t outs, ins;
    struct flow *out, *in; /* outs flows to peers, ins flows from peers, ascending by peer */
    /* held[c]: number of units of chunk c held after the round; 0 after the last round, because the sums are in the share then */
    uint32_t *held;
};

struct rounds {
    int me, size, degree; /* number of this rank, number of participants, parts of a round */
    int *server;          /* server[i]: number of participant i among the servers, or -1 */
    /* keys[s]: the units at server s that this rank holds before the first round; NULL: it holds no units */
    const struct tr_segment *keys;
    uint32_t chunk, chunks; /* positions per chunk; number of chunks of the longest share */
    size_t n;
    struct round *round;
};

/* Units of this rank's keys in a chunk of a participant's share: entries first .. first + n - 1 of the segment. */
struct own_keys {
    const struct tr_segment *segment;
    uint32_t first, n;
};

/* ---- own keys ---- */

static struct own_keys rounds_own(const struct rounds *r, int participant, uint32_t chunk)
{
    int server = r->server[participant];
    if (!r->keys || server < 0) return (struct own_keys){0};
    const struct tr_segment *s = &r->keys[server];
    uint64_t from = (uint64_t)chunk * r->chunk, to = from + r->chunk;
    uint32_t first = from > UINT32_MAX ? s->n : (uint32_t)tr_place_u32(s->position, s->n, (uint32_t)from);
    uint32_t end = to > UINT32_MAX ? s->n : (uint32_t)tr_place_u32(s->position, s->n, (uint32_t)to);
    return (struct own_keys){s, first, end - first};
}

/* ---- units that a rank holds, while the plan is made ---- */

/* A list of ascending unit numbers. Units are numbered by chunk, then by participant, then by position in its share. */
struct units {
    uint64_t *number;
    uint64_t n;
};

static uint64_t unit_number(const struct rounds *r, int participant, uint32_t position)
{
    uint64_t cell = (uint64_t)(position / r->chunk) * (uint64_t)r->size + (uint64_t)participant;
    return cell * r->chunk + position % r->chunk;
}

static uint32_t unit_chunk(const struct rounds *r, uint64_t number)
{
    return (uint32_t)(number / r->chunk / (uint64_t)r->size);
}

/* Replaces the list `all` by its union with `more`. */
static int units_unite(struct units *all, const struct units *more)
{
    uint64_t *both, n = 0;
    TR_TRY(TR_NEW(&both, all->n + more->n));
    for (uint64_t a = 0, b = 0; a < all->n || b < more->n;) {
        bool first = b == more->n || (a < all->n && all->number[a] < more->number[b]);
        uint64_t next = first ? all->number[a] : more->number[b];
        a += a < all->n && all->number[a] == next;
        b += b < more->n && more->number[b] == next;
        both[n++] = next;
    }
    free(all->number);
    *all = (struct units){both, n};
    return TR_OK;
}

/* ---- rounds ---- */

static int flow_open(const struct rounds *r, struct flow *f, int peer, int first, int end)
{
    *f = (struct flow){.peer = peer, .first = first, .end = end};
    TR_TRY(TR_NEW(&f->units, r->chunks));
    return TR_NEW(&f->at, r->chunks);
}

/* Fills `place` of a flow from a peer that sends the units `part`: finds their indices among the units `held` after the round or,
 * if held is NULL, in the share. */
static int flow_find_places(const struct rounds *r, struct flow *f, const struct units *part,
                            const struct units *held)
{
    uint64_t k = 0, begin = 0; /* index in `held`: current unit, first unit of its chunk */
    TR_TRY(TR_NEW(&f->place, part->n));
    for (uint64_t i = 0; i < part->n; i++) {
        uint64_t number = part->number[i];
        uint32_t c = unit_chunk(r, number);
        if (f->units[c]++ == 0) {
            f->at[c] = (uint32_t)i;
            while (held && held->number[k] < unit_number(r, 0, c * r->chunk)) k++;
            begin = k;
        }
        while (held && held->number[k] != number) k++;
        f->place[i] = held ? (uint32_t)(k - begin) : c * r->chunk + (uint32_t)(number % r->chunk);
    }
    /* `place` is not needed if the units of each chunk are contiguous: frees it */
    const uint32_t *place = f->place;
    for (uint32_t c = 0; c < r->chunks; place += f->units[c++])
        if (f->units[c] > 0 && place[f->units[c] - 1] - place[0] + 1 != f->units[c]) return TR_OK;
    place = f->place;
    for (uint32_t c = 0; c < r->chunks; place += f->units[c++]) f->at[c] = f->units[c] > 0 ? place[0] : 0;
    free(f->place);
    f->place = NULL;
    return TR_OK;
}

/* Returns the first participant of part k when participants first .. end-1 are divided into `parts` parts. Sizes of parts differ by
 * at most one. */
static int rounds_part_start(int first, int end, int parts, int k)
{
    return first + (int)((int64_t)(end - first) * k / parts);
}

/* Lists of the units that this rank sends to each peer, followed by lists of the units that it receives from each peer. */
struct round_lists {
    struct units *list;
    size_t n;
};

static void round_lists_free(struct round_lists *lists)
{
    for (size_t i = 0; i < lists->n; i++) free(lists->list[i].number);
    free(lists->list);
}

/* Plans a round among the participants first .. end-1. *held has the units held before the round, and is replaced by the units held
 * after it. */
static int round_plan(tr_context *tr, MPI_Comm comm, struct rounds *r, int first, int end, struct units *held)
{
    struct round *round = &r->round[r->n++];
    /* Finds the peers. Member i of a part sends to member i of each other part, modulo the size of that part. */
    int parts = r->degree < end - first ? r->degree : end - first, mine = 0;
    while (rounds_part_start(first, end, parts, mine + 1) <= r->me) mine++;
    round->first = rounds_part_start(first, end, parts, mine);
    round->end = rounds_part_start(first, end, parts, mine + 1);
    int number = r->me - round->first, members = round->end - round->first;
    TR_TRY(TR_NEW(&round->out, (size_t)parts));
    TR_TRY(TR_NEW(&round->in, 2 * (size_t)parts));
    TR_TRY(TR_NEW(&round->held, r->chunks));
    for (int k = 0; k < parts; k++) {
        int begin = rounds_part_start(first, end, parts, k),
            size = rounds_part_start(first, end, parts, k + 1) - begin;
        TR_TRY(flow_open(r, &round->out[round->outs++], begin + number % size, begin, begin + size));
        for (int i = number; i < size; i += members)
            TR_TRY(flow_open(r, &round->in[round->ins++], begin + i, round->first, round->end));
    }
    struct round_lists lists TR_CLOSED_BY(round_lists_free) = {.n = round->outs + round->ins};
    TR_TRY(TR_NEW(&lists.list, lists.n));
    struct units *out = lists.list, *in = out + round->outs;
    /* in turn 0, counts the units that each peer gets; in turn 1, lists them, and sets `units` and `at` of the flows */
    for (int turn = 0; turn < 2; turn++) {
        uint32_t chunk = UINT32_MAX, index = 0;
        size_t k = 0;
        for (uint64_t i = 0; i < held->n; i++, index++) {
            int participant = (int)(held->number[i] / r->chunk % (uint64_t)r->size);
            if (unit_chunk(r, held->number[i]) != chunk) index = 0, k = 0;
            chunk = unit_chunk(r, held->number[i]);
            while (participant >= round->out[k].end) k++;
            if (turn == 1 && round->out[k].units[chunk]++ == 0) round->out[k].at[chunk] = index;
            if (turn == 1) out[k].number[out[k].n] = held->number[i];
            out[k].n++;
        }
        for (k = 0; k < round->outs && turn == 0; k++) {
            TR_TRY(TR_NEW(&out[k].number, out[k].n));
            out[k].n = 0;
        }
    }
    /* exchanges the lists with the peers: in turn 0 the lengths of the lists, in turn 1 the unit numbers */
    struct tr_messages all TR_CLOSED_BY(tr_messages_free) = {0};
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < lists.n; i++) {
            bool sends = i < round->outs;
            int peer = sends ? round->out[i].peer : round->in[i - round->outs].peer;
            struct units *list = &lists.list[i];
            if (peer == r->me) continue;
            if (turn == 1 && !sends) TR_TRY(TR_NEW(&list->number, list->n));
            TR_TRY(tr_messages_start(&all, turn == 0 ? &list->n : list->number,
                                     turn == 0 ? sizeof list->n : list->n * sizeof *list->number, peer, sends,
                                     comm));
        }
        for (size_t i = 0; i < all.n; i++)
            tr_wait_alone(tr, &all.request[i], "other ranks to send the keys that they merge");
        all.n = 0;
    }
    /* moves the list of units that this rank keeps from its sent to its received lists */
    size_t from = 0, to = 0;
    while (round->out[from].peer != r->me) from++;
    while (round->in[to].peer != r->me) to++;
    in[to] = out[from];
    out[from] = (struct units){0};
    free(held->number);
    *held = (struct units){0};
    bool last = members == 1;
    for (size_t i = 0; i < round->ins && !last; i++) TR_TRY(units_unite(held, &in[i]));
    for (size_t i = 0; i < round->ins; i++)
        TR_TRY(flow_find_places(r, &round->in[i], &in[i], last ? NULL : held));
    for (uint64_t i = 0; i < held->n; i++) round->held[unit_chunk(r, held->number[i])]++;
    return TR_OK;
}

static int merge_rounds_open(tr_context *tr, MPI_Comm comm, int server, const struct tr_segment *keys,
                             uint64_t longest, uint32_t chunk, int degree, struct rounds *r)
{
    enum { MOST = 32 }; /* maximum number of rounds, since each divides the participants by at least 2 */
    *r = (struct rounds){.degree = degree, .keys = keys, .chunk = chunk};
    r->chunks = (uint32_t)((longest + chunk - 1) / chunk);
    MPI_Comm_rank(comm, &r->me);
    MPI_Comm_size(comm, &r->size);
    TR_TRY(TR_NEW(&r->server, (size_t)r->size));
    TR_TRY(TR_NEW(&r->round, MOST));
    MPI_Request request;
    MPI_Iallgather(&server, 1, MPI_INT, r->server, 1, MPI_INT, comm, &request);
    tr_wait_alone(tr, &request, "all ranks to open the merge of a table");
    /* before the first round: the units of this rank's keys. TR_FREED frees the first member */
    TR_FREED struct units held = {0};
    for (uint32_t c = 0; c < r->chunks; c++)
        for (int p = 0; p < r->size; p++) held.n += rounds_own(r, p, c).n;
    TR_TRY(TR_NEW(&held.number, held.n));
    held.n = 0;
    for (uint32_t c = 0; c < r->chunks; c++)
        for (int p = 0; p < r->size; p++) {
            struct own_keys own = rounds_own(r, p, c);
            for (uint32_t i = 0; i < own.n; i++)
                held.number[held.n++] = unit_number(r, p, own.segment->position[own.first + i]);
        }
    int first = 0, end = r->size;
    do {
        TR_TRY(round_plan(tr, comm, r, first, end, &held));
        first = r->round[r->n - 1].first;
        end = r->round[r->n - 1].end;
    } while (end - first > 1);
    return TR_OK;
}

static void merge_rounds_close(struct rounds *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct round *round = &r->round[i];
        for (size_t k = 0; k < round->outs + round->ins; k++) {
            struct flow *f = k < round->outs ? &round->out[k] : &round->in[k - round->outs];
            TR_FREE_ALL(f->units, f->at, f->place);
        }
        TR_FREE_ALL(round->out, round->in, round->held);
    }
    TR_FREE_ALL(r->round, r->server);
    *r = (struct rounds){0};
}

/* ---- the degree ---- */

int tr_merge_choose_degree(int n, double held, double units, size_t unit_bytes)
{
    /* Estimates the seconds of all rounds. Keys of different ranks are assumed independent, which overestimates their union if all
     * ranks have the frequent keys. The constants are seconds and bytes per second of a common cluster. */
    const double round = 2e-5, message = 3e-6, bandwidth = 1e9;
    const int degrees[] = {n, 2, 4, 8}; /* of equal estimates, the first is chosen */
    int best = n;
    double density = fmin(1, held / (units * n)), least = INFINITY;
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        double seconds = 0, parts;
        for (double among = n; among > 1; among /= parts) {
            parts = fmin(degrees[i], among);
            double bytes = units * (double)unit_bytes * among / n * (1 - pow(1 - density, n / among));
            seconds += round + (parts - 1) * message + bytes * (parts - 1) / parts / bandwidth;
        }
        if (degrees[i] > n || seconds >= least) continue;
        best = degrees[i];
        least = seconds;
    }
    return best < 2 ? 2 : best;
}

/* Finds the view whose delta this rank contributes to the table's merges; NULL: it contributes nothing. */
static struct tr_view_state *merged_view(const struct tr_table *t)
{
    const struct tr_tables *tables = t->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (v->view.table == t && v->merged && v->channel) return v;
    }
    return NULL;
}

/* ======== merging in shared memory ======== */

/* On one node no messages are needed. The deltas of the workers lie in memory that the node shares. When all workers have ended the
 * clock, each server adds their deltas to its share, worker by worker in the order of ranks. That takes one pass over the deltas; a
 * collective operation would copy them twice before.
 *
 * The shared memory has a part for each rank. It begins with a struct line. For a worker that pushes, an array of struct entry by
 * server follows, then the lists to which the entries refer, and its delta. */

struct line {
    /* worker: its deltas of clocks < ready are complete, and it has read all values for these clocks */
    _Atomic int64_t ready;
    _Atomic int64_t added; /* server: it has added all deltas of clocks < added to its share */
    uint64_t delta;        /* worker: offset of its delta in its part; 0: it has none */
    char pad[40];
};

/* A worker's segment at one server: offsets of its arrays in the part of the worker. */
struct entry {
    uint32_t n, runs;
    uint64_t local, position, run;
};

/* A server's access to the part of a worker. */
struct source {
    const struct line *line;
    const char *delta; /* delta of this worker; NULL: the worker pushes nothing */
    struct tr_segment
        segment; /* the worker's units at this server; its arrays lie in the worker's part of the shared memory */
};

struct shared_merge {
    struct tr_table *table;
    struct tr_shm memory; /* the parts of all ranks */
    struct line *mine;
    size_t workers, servers;
    struct source *source;      /* on a server: access to the part of each worker, in the order of ranks */
    const struct line **server; /* server[s]: the line of server s */
    tr_view *view;              /* the view of this rank whose delta lies in its part, or NULL */
    size_t next;                /* server: index of the worker whose delta is added next */
};

/* Reserves `bytes` bytes at offset *at of a part, and returns their offset. Copies `from` there, unless part or from is NULL. */
static uint64_t shared_put(struct line *part, size_t *at, const void *from, size_t bytes)
{
    uint64_t offset = *at;
    if (part && from) memcpy((char *)part + offset, from, bytes);
    *at += (bytes + 63) & ~(size_t)63;
    return offset;
}

/* Fills the part of this rank, and returns its size. If part is NULL, only computes the size. */
static size_t shared_lay_out(const struct shared_merge *m, struct line *part)
{
    size_t at = sizeof *part;
    if (part) *part = (struct line){.delta = 0};
    if (!m->view) return at;
    const struct tr_plan *keys = &m->view->state->keys;
    uint64_t directory = shared_put(part, &at, NULL, m->servers * sizeof(struct entry));
    struct entry *entry = part ? (struct entry *)(void *)((char *)part + directory) : NULL;
    for (uint32_t s = 0; s < keys->servers; s++) {
        const struct tr_segment *segment = &keys->segment[s];
        struct entry e = {.n = segment->n, .runs = segment->runs};
        if (e.runs) {
            e.run = shared_put(part, &at, segment->run, e.runs * sizeof *segment->run);
        } else {
            e.local = shared_put(part, &at, segment->local, e.n * sizeof *segment->local);
            e.position = shared_put(part, &at, segment->position, e.n * sizeof *segment->position);
        }
        if (entry) entry[s] = e;
    }
    uint64_t delta = shared_put(part, &at, NULL, tr_view_bytes(m->view));
    if (part) {
        part->delta = delta;
        free(m->view->delta);
        m->view->delta = (char *)part + delta;
        memset(m->view->delta, 0, tr_view_bytes(m->view));
        m->view->state->lent = true;
    }
    return at;
}

static int shared_merge_open(struct tr_table *t, struct shared_merge **merge)
{
    tr_context *tr = t->tr;
    struct tr_view_state *view = merged_view(t);
    struct shared_merge *m;
    TR_TRY(TR_NEW(&m, 1));
    *m = (struct shared_merge){.table = t, .servers = t->partition.servers, .memory = TR_SHM_CLOSED};
    *merge = m;
    m->view = view ? &view->view : NULL;
    TR_TRY(TR_NEW(&m->source, (size_t)tr->size));
    TR_TRY(TR_NEW(&m->server, m->servers));
    TR_TRY(tr_agree(tr, tr_shm_open(tr, tr->node, shared_lay_out(m, NULL), false, &m->memory)));
    m->mine = (struct line *)(void *)m->memory.part[tr->rank].at;
    shared_lay_out(m, m->mine);
    tr_meet(tr, tr->node, "the ranks of this node to open a merge");
    for (int rank = 0; rank < tr->size; rank++) {
        const struct tr_shm_part *part = &m->memory.part[rank];
        int server = tr_table_server_of(t, rank);
        const struct line *line = (const struct line *)(void *)part->at;
        if (server >= 0) m->server[server] = line;
        if (!tr_worker_set_has(tr, tr->active, rank)) continue;
        struct source *source = &m->source[m->workers++];
        source->line = line;
        if (t->server < 0 || line->delta == 0) continue;
        const struct entry *e = (const struct entry *)(const void *)(line + 1) + t->server;
        source->delta = part->at + line->delta;
        source->segment = (struct tr_segment){.n = e->n,
                                              .runs = e->runs,
                                              .run = (struct tr_run *)(void *)(part->at + e->run),
                                              .local = (uint32_t *)(void *)(part->at + e->local),
                                              .position = (uint32_t *)(void *)(part->at + e->position)};
    }
    return TR_OK;
}

static bool shared_merge_poll(struct shared_merge *m, int64_t clock, int *did)
{
    struct tr_table *t = m->table;
    if (t->server >= 0 && m->mine->added <= clock) {
        for (size_t w = 0; w < m->workers && m->next == 0; w++)
            if (atomic_load_explicit(&m->source[w].line->ready, memory_order_acquire) <= clock) return false;
        const struct source *source = &m->source[m->next];
        const struct tr_segment *segment = &source->segment;
        char *share = t->share[t->server];
        if (source->delta && !segment->runs)
            tr_add_units(t->dtype, segment->local, segment->position, segment->n, t->unit_width,
                         source->delta, share);
        for (uint32_t r = 0; source->delta && r < segment->runs; r++)
            tr_add_elements(t->dtype, segment->run[r].length * t->unit_width,
                            source->delta + segment->run[r].local * t->unit_bytes,
                            share + segment->run[r].position * t->unit_bytes);
        ++*did;
        if (++m->next < m->workers) return false; /* so that other poll functions run between two workers */
        atomic_store_explicit(&m->mine->added, clock + 1, memory_order_release);
    }
    for (size_t s = 0; s < m->servers && tr_works(t->tr); s++)
        if (atomic_load_explicit(&m->server[s]->added, memory_order_acquire) <= clock) return false;
    return true;
}

/* ======== merging in rounds ======== */

/* Between nodes, updates of a clock are summed by struct rounds, in chunks of the servers' shares. Two chunks are in flight: while
 * messages of one chunk travel, the other chunk is packed or added.
 *
 * A chunk first goes up, from the workers to the servers: in each round a rank sends messages to its peers, receives theirs, and
 * adds them up. In the last round the servers add the sums to their shares. If all workers have read the keys that they push, they
 * will probably read these keys again in the next clock. Only in this case the chunk also goes down: the rounds run in reverse and
 * bring each rank the new values of its keys. Therefore the number of messages does not grow with the number of servers. If workers
 * subscribe to rows (view.h), the chunk goes down by separate rounds for the subscribed rows instead.
 *
 * Sums are taken in the order of ranks, so that results are bit-identical from run to run. Under BSP no update may be added before
 * all workers have read for this clock. Therefore in the first chunk all ranks send messages, even empty ones: a server that has
 * received all messages of the first chunk knows that all workers have read. */

enum { IN_FLIGHT = 2, CHUNK_BYTES = 1 << 20 };

/* Head of each message: flags about the workers that have contributed to it. */
struct readers {
    uint32_t some;    /* 1: a worker will read its pushed keys, some of them on another node */
    uint32_t not_all; /* 1: a worker will not read the keys that it pushes, or the job sets the route */
};

/* State of one of the chunks in flight. */
struct lane {
    const struct rounds *rounds; /* the plan by which the chunk travels */
    uint32_t chunk;
    size_t round;
    bool busy;   /* the lane has a chunk */
    bool down;   /* the chunk travels from servers to workers; false: to servers */
    bool posted; /* the sends and receives of the round have been started */
    MPI_Request *request;
    int requests;
    char *out, *in;    /* messages to peers and from peers */
    char *held, *next; /* values of the units held before the round, and after it */
    size_t out_room, in_room, held_room, next_room;
};

struct tr_merge {
    struct tr_table *table;
    struct shared_merge *shared; /* merge in shared memory: members for rounds are unused; NULL: rounds */
    MPI_Comm comm;
    struct rounds rounds;
    struct rounds spread; /* plan for subscribed rows, used down only; spread.n = 0: no subscribed rows */
    struct tr_view_state *view; /* its delta is merged; NULL: this rank contributes nothing */
    bool busy;
    int64_t clock;     /* clock of the running merge */
    int64_t done;      /* clock of the next merge: updates of clocks < done are in the share */
    uint32_t begun;    /* number of chunks of the running merge that have been started */
    uint32_t added;    /* number of its chunks whose sums are in the shares */
    uint32_t finished; /* number of its chunks that are complete */
    struct readers readers;
    bool heard_all; /* the first chunk has gone up, so all workers have read */
    struct lane lane[IN_FLIGHT];
};

/* ---- messages of a round ---- */

/* Returns whether a message is sent: if it has values, or if it belongs to the first chunk, in which all ranks send. */
static bool lane_sends(const struct tr_merge *m, const struct lane *l, const struct flow *f)
{
    return f->peer != m->rounds.me && (f->units[l->chunk] > 0 || (l->chunk == 0 && !l->down));
}

static size_t lane_message_bytes(const struct tr_merge *m, const struct lane *l, const struct flow *f)
{
    return sizeof(struct readers) + f->units[l->chunk] * m->table->unit_bytes;
}

/* Packs the values of a flow into a message. own: `from` has the values of this rank's keys; otherwise it has those of a share or
 * of held units. */
static void lane_pack(const struct tr_merge *m, const struct lane *l, const struct flow *f, bool own,
                      const char *from, char *to)
{
    size_t bytes = m->table->unit_bytes;
    uint32_t at = f->at[l->chunk], n = f->units[l->chunk];
    if (n == 0) return;
    for (int p = f->first; own && p < f->end; p++) {
        struct own_keys keys = rounds_own(&m->rounds, p, l->chunk);
        if (keys.n > 0) tr_gather(keys.segment->local + keys.first, keys.n, bytes, from, to);
        to += keys.n * bytes;
    }
    if (own) return;
    if (f->place) tr_gather(f->place + at, n, bytes, from, to);
    else memcpy(to, from + at * bytes, n * bytes);
}

/* Writes values that were received while the chunk goes down: in the last step to the view of this rank, in earlier steps to the
 * held units. */
static void lane_unpack(const struct tr_merge *m, const struct lane *l, const struct flow *f,
                        const char *from)
{
    size_t bytes = m->table->unit_bytes;
    if (l->round > 0) {
        memcpy(l->next + f->at[l->chunk] * bytes, from, f->units[l->chunk] * bytes);
        return;
    }
    char *to = l->rounds == &m->spread ? m->table->subscription->slice_value : m->view->merged_value;
    for (int p = f->first; p < f->end; p++) {
        struct own_keys own = rounds_own(l->rounds, p, l->chunk);
        if (own.n > 0) tr_scatter(own.segment->local + own.first, own.n, bytes, from, to);
        from += own.n * bytes;
    }
}

static bool lane_is_last(const struct lane *l)
{
    return l->round + 1 == l->rounds->n;
}

/* The flows of the current round. If the chunk goes down, `to` and `from` are exchanged, because the round runs in reverse. */
struct lane_flows {
    const struct round *round;
    const struct flow *to, *from;
    size_t tos, froms;
};

static struct lane_flows lane_flows(const struct lane *l)
{
    const struct round *r = &l->rounds->round[l->round];
    return l->down ? (struct lane_flows){r, r->in, r->out, r->ins, r->outs}
                   : (struct lane_flows){r, r->out, r->in, r->outs, r->ins};
}

/* Starts a round: packs updates (up) or new values (down), and starts to send them and to receive messages of the peers. */
static int lane_post(struct tr_merge *m, struct lane *l)
{
    const struct lane_flows f = lane_flows(l);
    enum {
        CHUNKS = 8192
    }; /* more than ever in flight, and twice that is below the lowest limit of MPI tags */
    const int tag = (int)(2 * (l->chunk % CHUNKS) + l->down);
    const bool own = !l->down && l->round == 0;
    const char *values = l->held;
    uint64_t bytes = 0;
    size_t out = 0, in = 0;
    if (own && m->view) values = m->view->view.delta;
    if (l->down && lane_is_last(l)) values = m->table->server >= 0 ? m->table->share[m->table->server] : NULL;
    for (size_t i = 0; i < f.tos; i++) out += lane_message_bytes(m, l, &f.to[i]);
    for (size_t i = 0; i < f.froms; i++) in += lane_message_bytes(m, l, &f.from[i]);
    TR_TRY(TR_GROW(&l->out, &l->out_room, out));
    TR_TRY(TR_GROW(&l->in, &l->in_room, in));
    l->requests = 0;
    char *at = l->in;
    for (size_t i = 0; i < f.froms; at += lane_message_bytes(m, l, &f.from[i++]))
        if (lane_sends(m, l, &f.from[i]))
            MPI_Irecv(at, (int)lane_message_bytes(m, l, &f.from[i]), MPI_BYTE, f.from[i].peer, tag, m->comm,
                      &l->request[l->requests++]);
    at = l->out;
    for (size_t i = 0; i < f.tos; at += lane_message_bytes(m, l, &f.to[i++])) {
        memcpy(at, &m->readers, sizeof m->readers);
        lane_pack(m, l, &f.to[i], own, values, at + sizeof(struct readers));
        if (lane_sends(m, l, &f.to[i]))
            MPI_Isend(at, (int)lane_message_bytes(m, l, &f.to[i]), MPI_BYTE, f.to[i].peer, tag, m->comm,
                      &l->request[l->requests++]);
    }
    for (size_t i = 0; i < f.round->outs; i++)
        if (lane_sends(m, l, &f.round->out[i]))
            bytes += f.round->out[i].units[l->chunk] * m->table->unit_bytes;
    struct tr_traffic *traffic = &m->table->tr->tables->traffic;
    *(l->down ? &traffic->bytes_pulled : &traffic->bytes_pushed) += bytes;
    return TR_OK;
}

/* Ends a round whose messages have arrived: adds the updates in them to the sums or the share (up), or unpacks new values
 * (down). */
static int lane_finish(struct tr_merge *m, struct lane *l)
{
    const struct tr_table *t = m->table;
    const struct lane_flows f = lane_flows(l);
    char *sum = t->server >= 0 ? t->share[t->server] : NULL;
    if (l->down ? l->round > 0 : !lane_is_last(l)) {
        /* allocates values of the units that are held after the round */
        const struct round *held = &l->rounds->round[l->down ? l->round - 1 : l->round];
        size_t bytes = held->held[l->chunk] * t->unit_bytes;
        TR_TRY(TR_GROW(&l->next, &l->next_room, bytes));
        if (bytes > 0 && !l->down) memset(l->next, 0, bytes);
        sum = l->next;
    }
    /* the message of this rank to itself is not sent: it is read from the sent messages */
    const char *kept = l->out, *at = l->in;
    for (const struct flow *to = f.to; to->peer != m->rounds.me; to++) kept += lane_message_bytes(m, l, to);
    for (size_t i = 0; i < f.froms; at += lane_message_bytes(m, l, &f.from[i++])) {
        const struct flow *from = &f.from[i];
        const char *message = from->peer == m->rounds.me ? kept : at,
                   *values = message + sizeof(struct readers);
        uint32_t first = from->at[l->chunk], n = from->units[l->chunk];
        if (!l->down && l->chunk == 0) {
            struct readers heard;
            memcpy(&heard, message, sizeof heard);
            m->readers.some |= heard.some;
            m->readers.not_all |= heard.not_all;
        }
        if (n == 0) continue;
        if (l->down) lane_unpack(m, l, from, values);
        else if (from->place)
            tr_add_units(t->dtype, NULL, from->place + first, n, t->unit_width, values, sum);
        else tr_add_elements(t->dtype, n * t->unit_width, values, sum + first * t->unit_bytes);
    }
    if (l->down && l->round == 0 && m->spread.n > 0) tr_subscription_put(t->subscription, l->chunk);
    return TR_OK;
}

/* ---- a merge ---- */

/* Returns whether the new values of this merge go down to the views that push. */
static bool merge_returns_to_views(const struct tr_merge *m)
{
    return m->spread.n == 0 && m->readers.some && !m->readers.not_all;
}

/* After the end of a round: selects the next round, turns the chunk down, or ends it. Then the units held after the round become
 * those held before the next round. */
static int lane_next(struct tr_merge *m, struct lane *l)
{
    l->posted = false;
    if (!l->down && !lane_is_last(l)) {
        l->round++;
    } else if (!l->down) {
        m->heard_all = true;
        m->added++;
        l->down = m->spread.n > 0 || merge_returns_to_views(m);
        l->busy = l->down;
        if (merge_returns_to_views(m) && m->view && !m->view->merged_value)
            TR_TRY(TR_NEW(&m->view->merged_value, tr_view_bytes(&m->view->view)));
        if (m->spread.n > 0) {
            l->rounds = &m->spread;
            l->round = m->spread.n - 1;
        }
        if (l->down) return TR_OK; /* rounds run in reverse: the last one starts, with values of the share */
    } else if (l->round > 0) {
        l->round--;
    } else {
        l->busy = false;
    }
    char *held = l->held;
    size_t room = l->held_room;
    l->held = l->next;
    l->held_room = l->next_room;
    l->next = held;
    l->next_room = room;
    return TR_OK;
}

/* Advances the chunk of a lane, or starts the next chunk in it. Sets *moved to true if there was progress. */
static int lane_advance(struct tr_merge *m, struct lane *l, bool *moved)
{
    if (!l->busy) {
        if (m->begun == m->rounds.chunks) return TR_OK;
        l->chunk = m->begun++;
        l->rounds = &m->rounds;
        l->round = 0;
        l->busy = true;
        l->down = l->posted = false;
    }
    if (!l->posted) {
        TR_TRY(lane_post(m, l));
        l->posted = *moved = true;
    }
    int done;
    MPI_Testall(l->requests, l->request, &done, MPI_STATUSES_IGNORE);
    if (!done || (!l->down && lane_is_last(l) && l->chunk > 0 && !m->heard_all)) return TR_OK;
    TR_TRY(lane_finish(m, l));
    *moved = true;
    TR_TRY(lane_next(m, l));
    m->finished += !l->busy;
    return TR_OK;
}

int tr_merge_poll(void *what, int *did)
{
    const struct tr_tables *tables = what;
    for (size_t i = 0; i < tables->count; i++) {
        struct tr_merge *m = tables->table[i]->merge;
        if (!m || !m->busy) continue;
        if (m->shared && !shared_merge_poll(m->shared, m->clock, did)) continue;
        for (bool moved = true; moved && m->finished < m->rounds.chunks;) {
            moved = false;
            for (int k = 0; k < IN_FLIGHT; k++) TR_TRY(lane_advance(m, &m->lane[k], &moved));
            *did += moved;
        }
        if (m->added == m->rounds.chunks && m->done == m->clock) {
            atomic_thread_fence(memory_order_release); /* sums must be visible to others before m->done */
            m->done = tr_table_next_update(tables->table[i], m->clock + 1);
            ++*did;
        }
        if (m->finished < m->rounds.chunks) continue;
        if (m->view) memset(m->view->view.delta, 0, tr_view_bytes(&m->view->view));
        ++*did;
        m->busy = false;
        if (m->view && !m->shared && merge_returns_to_views(m)) m->view->merged_for = m->clock + 1;
    }
    return TR_OK;
}

int tr_merge_start(struct tr_table *t, tr_view *view)
{
    struct tr_merge *m = t->merge;
    (void)TR_FAULT("merge");
    m->view = view ? view->state : NULL;
    m->busy = true;
    m->clock = m->done;
    m->begun = m->added = m->finished = 0;
    m->heard_all = false;
    m->readers = (struct readers){0};
    if (m->view) {
        /* new values should go down to the view if it was read since the last merge, and the job does not set the route */
        const struct tr_view_state *v = m->view;
        bool reads = v->view.clock >= 0 && v->view.clock > v->push_clock - t->every &&
                     t->route == TR_ROUTE_AUTO && !v->node_pull;
        m->readers.some = reads && !(v->channel && tr_view_reads_near(v));
        m->readers.not_all = !reads;
    }
    if (t->subscription) t->subscription->wanted = ++t->subscription->merge;
    if (m->shared) {
        m->shared->next = 0;
        if (m->shared->view) t->tr->tables->traffic.bytes_pushed += tr_view_bytes(m->shared->view);
        atomic_store_explicit(&m->shared->mine->ready, m->clock + 1, memory_order_release);
    }
    return TR_OK;
}

void tr_merge_begin(struct tr_table *t)
{
    if (!t->merge) return;
    t->merge->done = tr_table_next_update(t, 0);
    if (t->subscription) t->subscription->wanted = 0;
    if (t->merge->shared) {
        atomic_store_explicit(&t->merge->shared->mine->ready, 0, memory_order_relaxed);
        atomic_store_explicit(&t->merge->shared->mine->added, 0, memory_order_relaxed);
    }
}

bool tr_merge_busy(const struct tr_table *t)
{
    return t->merge && t->merge->busy;
}

int64_t tr_merge_done(const struct tr_table *t)
{
    return t->merge ? t->merge->done : INT64_MAX;
}

/* ---- opening and closing ---- */

static const char merge_opening[] = "all ranks to open the merge of a table";

/* Chooses the degree of rounds. held: number of units that all ranks together hold before the first round. */
static int merge_degree(const struct tr_merge *m, double held)
{
    const struct tr_table *t = m->table;
    int wish = t->tr->job ? t->tr->job->table.merge : TR_MERGE_AUTO, size;
    MPI_Comm_size(m->comm, &size);
    if (wish == TR_MERGE_DIRECT) return size;
    if (wish == TR_MERGE_ROUNDS) return 2;
    return tr_merge_choose_degree(size, held, (double)t->partition.units, t->unit_bytes);
}

int tr_merge_open(struct tr_table *t)
{
    tr_context *tr = t->tr;
    tr_merge_close(t);
    const struct tr_view_state *view = merged_view(t);
    double sum[3] = {view ? (double)view->keys.units : 0, t->updating_views > 0, t->subscribing != NULL};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, sum, 3, MPI_DOUBLE, MPI_SUM, tr->world, &request);
    tr_wait_alone(tr, &request, merge_opening);
    const uint32_t chunk =
        (uint32_t)tr_max_size(CHUNK_BYTES / t->unit_bytes / t->partition.servers, 1024); /* positions */
    const uint64_t longest = tr_partition_longest(&t->partition);
    /* subscribed rows arrive with merges only if the job does not set the route, and if each row is one unit */
    if (sum[1] > 0 && sum[2] > 0 && !t->merges_shared && t->route == TR_ROUTE_AUTO && t->pieces == 1) {
        TR_TRY(tr_subscription_open(t, chunk, (uint32_t)((longest + chunk - 1) / chunk)));
    } else {
        tr_subscription_discard(t);
    }
    if (sum[1] == 0) return TR_OK; /* no rank has a merged view of the table */
    MPI_Comm comm = MPI_COMM_NULL;
    if (!t->merges_shared)
        tr_comm_split(tr, tr->world, t->server >= 0 || tr_works(tr) ? 0 : MPI_UNDEFINED, tr->rank,
                      merge_opening, &comm);
    if (!t->merges_shared && comm == MPI_COMM_NULL) return TR_OK;
    struct tr_merge *m;
    TR_TRY(TR_NEW(&m, 1));
    t->merge = m;
    m->table = t;
    m->comm = comm;
    m->done = tr_table_next_update(t, 0);
    if (t->merges_shared) return shared_merge_open(t, &m->shared);
    const struct tr_subscription *s = t->subscription;
    double comes = s ? (double)s->slice.units : 0;
    MPI_Iallreduce(MPI_IN_PLACE, &comes, 1, MPI_DOUBLE, MPI_SUM, comm, &request);
    tr_wait_alone(tr, &request, merge_opening);
    TR_TRY(merge_rounds_open(tr, comm, t->server, view ? view->keys.segment : NULL, longest, chunk,
                             merge_degree(m, sum[0]), &m->rounds));
    if (comes > 0)
        TR_TRY(merge_rounds_open(tr, comm, t->server, s->slice.segment, longest, chunk,
                                 merge_degree(m, comes), &m->spread));
    size_t most = 0;
    for (size_t i = 0; i < m->rounds.n; i++)
        most = tr_max_size(most, m->rounds.round[i].ins + m->rounds.round[i].outs);
    for (size_t i = 0; i < m->spread.n; i++)
        most = tr_max_size(most, m->spread.round[i].ins + m->spread.round[i].outs);
    for (int i = 0; i < IN_FLIGHT; i++) TR_TRY(TR_NEW(&m->lane[i].request, most));
    return TR_OK;
}

void tr_merge_close(struct tr_table *t)
{
    struct tr_merge *m = t->merge;
    tr_subscription_close(t);
    if (!m) return;
    t->merge = NULL;
    if (m->shared) {
        struct tr_view_state *v = merged_view(m->shared->table);
        /* the delta of the view lies in the shared memory, which is freed: allocates another delta */
        if (v && &v->view == m->shared->view && v->lent) {
            v->view.delta = NULL;
            (void)TR_NEW((char **)&v->view.delta, tr_view_bytes(&v->view));
            v->lent = false;
        }
        tr_shm_close(&m->shared->memory);
        TR_FREE_ALL(m->shared->source, m->shared->server, m->shared);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct lane *l = &m->lane[i];
        TR_FREE_ALL(l->request, l->out, l->in, l->held, l->next);
    }
    merge_rounds_close(&m->rounds);
    merge_rounds_close(&m->spread);
    if (m->comm != MPI_COMM_NULL) MPI_Comm_free(&m->comm);
    free(m);
}

void tr_merge_describe(const struct tr_table *t, char *text, size_t size)
{
    const struct tr_merge *m = t->merge;
    if (!m) snprintf(text, size, "not merged");
    if (m && m->shared) snprintf(text, size, "merged near, in memory that the node shares");
    if (!m || m->shared) return;
    char how[2][32] = {"direct", "direct"}; /* how chunks go up to servers, and down to subscribers */
    const struct rounds *rounds[] = {&m->rounds, &m->spread};
    for (int i = 0; i < 2; i++)
        if (rounds[i]->degree < rounds[i]->size)
            snprintf(how[i], sizeof how[i], "in rounds of degree %d", rounds[i]->degree);
    int n = snprintf(text, size, "merged %s, in %u chunks a clock", how[0], m->rounds.chunks);
    if (m->spread.n > 0) snprintf(text + n, size - (size_t)n, "; rows come behind that %s", how[1]);
}
