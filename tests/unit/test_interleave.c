/* What ranks of a node do in memory that they share, in every order: the clock window, node caches, chunks of replicas and
 * the barrier of those who use them. */
#include "interleave.h"

#include <sys/mman.h>

#include "table/sync.h"

/* ---- the clock window ---- */

#include "table/sync.c"

enum { RANKS = 3, CLOCKS = 2 };

static struct {
    _Alignas(64) char memory[sizeof(struct clock_board) + 2 * RANKS * sizeof(struct clock_line)];
    int node_of[RANKS];
    tr_context tr[RANKS];
    struct tr_clock clock[RANKS];
    bool written[RANKS][CLOCKS + 1];
} window;

static void open_clocks(void)
{
    memset(&window, 0, sizeof window);
    struct clock_board *board = (struct clock_board *)(void *)window.memory;
    for (int r = 0; r < RANKS; r++) {
        window.tr[r] = (tr_context){.rank = r,
                                    .size = RANKS,
                                    .node_rank = r,
                                    .node_size = RANKS,
                                    .node_of = window.node_of,
                                    .layout = {.nodes = 1}};
        window.clock[r] = (struct tr_clock){
            .tr = &window.tr[r], .board = board, .mine = &board->rank[r], .doing = &board->rank[RANKS + r]};
    }
}

/* A thread that sees a clock sees all values written in it. One rank advances all clocks together. */
static void raise_clocks(int self)
{
    struct tr_clock *c = &window.clock[self];
    for (int64_t clock = self == 0 ? CLOCKS : 1; clock <= CLOCKS; clock++) {
        ck_assert(tr_clock_get(c, TR_CLOCK_WRITTEN) < (self == 0 ? 1 : clock));
        for (int64_t now = self == 0 ? 1 : clock; now <= clock; now++) window.written[self][now] = true;
        tr_clock_raise(c, TR_CLOCK_WRITTEN, clock);
        int64_t all = tr_clock_get(c, TR_CLOCK_WRITTEN);
        for (int r = 0; r < RANKS; r++)
            for (int64_t before = 1; before <= all; before++) ck_assert(window.written[r][before]);
    }
}

static void check_clocks(void)
{
    for (int r = 0; r < RANKS; r++) ck_assert(tr_clock_get(&window.clock[r], TR_CLOCK_WRITTEN) == CLOCKS);
}

UNIT_CASE(the_clock_is_that_of_the_slowest)
{
    interleave((struct interleaving){RANKS, 3, open_clocks, raise_clocks, check_clocks});
}

/* ---- node caches ---- */

#include "table/node.c"

enum { WORKERS = 2 };

static struct {
    _Alignas(64) char memory[1024];
    struct tr_node_cache cache[WORKERS];
    _Atomic int64_t table;                              /* updates that have arrived there */
    _Atomic int64_t has_read[WORKERS], pushed[WORKERS]; /* clocks, by worker */
    int64_t staleness;
} cached;

static void open_cache(void)
{
    int64_t staleness = cached.staleness;
    memset(&cached, 0, sizeof cached);
    cached.staleness = staleness;
    ck_assert(tr_cache_bytes(1, 2 * sizeof(int64_t)) <= sizeof cached.memory);
    for (int w = 0; w < WORKERS; w++) cached.cache[w] = tr_cache_at(cached.memory, 1, 2 * sizeof(int64_t));
}

static int64_t least_clock(_Atomic int64_t *clock)
{
    int64_t least = INT64_MAX;
    for (int w = 0; w < WORKERS; w++) {
        int64_t its = atomic_load(&clock[w]);
        if (its < least) least = its;
    }
    return least;
}

/* Two numbers that are the same, unless somebody writes while they are read. */
static int64_t copy_value(const int64_t *value)
{
    int64_t first = value[0];
    interleave_step();
    ck_assert(value[1] == first);
    return first;
}

/* As table/node.c does it: what the table has, from the cache or as the one who fetches. */
static int64_t read_through(struct tr_node_cache *c, const struct tr_cache_terms *terms, uint64_t *number)
{
    int64_t *value = tr_cache_value(c, 0), seen;
    struct tr_cache_fetch fetch;
    for (;; interleave_wait()) {
        enum tr_cache_state state = tr_cache_take(c, 0, terms, &fetch);
        if (state == TR_CACHE_HERE) {
            seen = copy_value(value);
            tr_cache_give_back(c, 0);
            break;
        }
        if (state != TR_CACHE_NONE) continue;
        if (tr_cache_claim(c, 0, terms, least_clock(cached.pushed)) != TR_CACHE_CLAIMED) continue;
        value[0] = atomic_load(&cached.table);
        interleave_step();
        value[1] = value[0];
        fetch = tr_cache_fetched(c, 0, 0);
        seen = copy_value(value);
        tr_cache_put(c, 0, true);
        break;
    }
    *number = fetch.number;
    ck_assert(fetch.holds >= terms->least);
    return seen;
}

static void use_cache(int self)
{
    struct tr_node_cache *c = &cached.cache[self];
    bool lockstep = cached.staleness == 0;
    struct tr_cache_terms terms = {.lockstep = lockstep};
    for (int64_t clock = 0; clock < CLOCKS; clock++) {
        uint64_t number;
        terms.least = clock - cached.staleness;
        while (least_clock(cached.pushed) < terms.least) interleave_wait();
        int64_t seen = read_through(c, &terms, &number);
        if (lockstep) ck_assert(seen == WORKERS * clock);
        ck_assert(seen >= WORKERS * terms.least);
        ck_assert(seen >= clock); /* its own */
        atomic_store(&cached.has_read[self], clock + 1);
        while (lockstep && least_clock(cached.has_read) <= clock) interleave_wait();
        atomic_fetch_add(&cached.table, 1);
        if (!lockstep) terms.after = tr_cache_number(c);
        atomic_store(&cached.pushed[self], clock + 1);
    }
}

static void check_cache(void)
{
    ck_assert(atomic_load(&cached.table) == WORKERS * CLOCKS);
}

UNIT_CASE(a_fetch_has_what_it_says)
{
    for (cached.staleness = 0; cached.staleness <= 1; cached.staleness++)
        interleave((struct interleaving){WORKERS, 3, open_cache, use_cache, check_cache});
}

/* ---- chunks of replicas ---- */

#include "table/replica.c"

/* A chunk's values are one number, and which chunk they are of. */
struct values {
    size_t chunk;
    _Atomic int64_t number;
};

enum { CHUNKS = 2, VISITS = 2 };

static struct {
    struct replica_head head;
    struct chunk chunk[CHUNKS];
    struct replica_line line[WORKERS];
    uint32_t heap[CHUNKS], owner[CHUNKS], slot[WORKERS][CHUNKS];
    uint64_t stamp[CHUNKS];
    struct values frame[CHUNKS];
    struct tr_table table;
    tr_context tr[WORKERS];
    struct tr_replica replica[WORKERS];
    int file;
    /* parameters of the run */
    enum tr_update_mode mode;
    size_t frames;
} node_replica;

static void note_chunk(void *state, tr_key first, size_t n, size_t place)
{
    node_replica.frame[place].chunk = first;
}

static void open_chunks(void)
{
    enum tr_update_mode mode = node_replica.mode;
    size_t frames = node_replica.frames;
    int file = node_replica.file;
    memset(&node_replica, 0, sizeof node_replica);
    node_replica.mode = mode;
    node_replica.frames = frames;
    node_replica.file = file;
    node_replica.table = (struct tr_table){.name = "w", .pieces = 1, .keys = CHUNKS};
    for (int w = 0; w < WORKERS; w++) {
        node_replica.tr[w] = (tr_context){.rank = w, .node_rank = w, .node_size = WORKERS};
        node_replica.replica[w] = (struct tr_replica){.tr = &node_replica.tr[w],
                                                      .table = &node_replica.table,
                                                      .column[0] = {.key_bytes = sizeof(struct values),
                                                                    .chunk_bytes = sizeof(struct values),
                                                                    .values = (char *)node_replica.frame},
                                                      .columns = 1,
                                                      .frame_bytes = sizeof(struct values),
                                                      .fetched = note_chunk,
                                                      .slot = node_replica.slot[w],
                                                      .file = file,
                                                      .model = TR_LOCAL_DEMAND,
                                                      .mode = mode,
                                                      .limited = frames < CHUNKS,
                                                      .chunks = CHUNKS,
                                                      .frames = frames,
                                                      .batch = CHUNKS,
                                                      .head = &node_replica.head,
                                                      .line = node_replica.line,
                                                      .chunk = node_replica.chunk,
                                                      .heap = node_replica.heap,
                                                      .owner = node_replica.owner,
                                                      .heap_stamp = node_replica.stamp};
    }
    chunks_clear(&node_replica.replica[0], 0, 1, false);
}

/* Adds one to each chunk. */
static void visit_chunks(int self)
{
    static const tr_key visited[WORKERS][VISITS] = {{0, 1}, {1, 0}};
    struct tr_replica *l = &node_replica.replica[self];
    ck_assert(chunks_bring_ahead(l, visited[self], VISITS) == TR_OK);
    for (int i = 0; i < VISITS; i++) {
        size_t c = visited[self][i];
        ck_assert(chunk_get(l, c) == TR_OK);
        struct values *v = &node_replica.frame[node_replica.chunk[c].frame];
        ck_assert(v->chunk == c);
        int64_t number = atomic_load(&v->number);
        if (l->mode == TR_UPDATE_LOCKED) atomic_store(&v->number, number + 1);
        else atomic_fetch_add(&v->number, 1);
        atomic_store_explicit(&l->chunk[c].changed, 1, memory_order_relaxed);
        chunk_release(l, c);
    }
}

/* No visit is lost, for every position of the chunk. */
static void check_chunks(void)
{
    uint32_t absent = 0;
    for (size_t c = 0; c < CHUNKS; c++) {
        const struct chunk *chunk = &node_replica.chunk[c];
        struct values stored;
        const struct values *v = &stored;
        if (chunk->here) v = &node_replica.frame[chunk->frame];
        else
            ck_assert(pread(node_replica.file, &stored, sizeof stored, (off_t)(c * sizeof stored)) ==
                      sizeof stored);
        ck_assert(v->chunk == c);
        ck_assert(v->number == WORKERS);
        ck_assert(chunk->lock == 0);
        absent += !chunk->here;
    }
    ck_assert(node_replica.head.absent == absent);
}

UNIT_CASE(no_visit_of_a_chunk_is_lost)
{
    node_replica.file = memfd_create("chunks", MFD_CLOEXEC);
    ck_assert_int_ge(node_replica.file, 0);
    for (int mode = TR_UPDATE_LOCKED; mode <= TR_UPDATE_ATOMIC; mode++)
        for (size_t frames = 1; frames <= CHUNKS; frames++) {
            node_replica.mode = (enum tr_update_mode)mode;
            node_replica.frames = frames;
            interleave((struct interleaving){WORKERS, 2, open_chunks, visit_chunks, check_chunks});
        }
    close(node_replica.file);
}

/* ---- the barrier of those who use a replica ---- */

static struct {
    struct replica_head head;
    struct tr_table table;
    struct tr_worker_set set;
    tr_context tr[RANKS];
    struct tr_poll poll[RANKS];
    struct tr_sync sync[RANKS];
    struct tr_replica replica[RANKS];
    bool came[RANKS][CLOCKS];
    int fails; /* this rank does not come to the last barrier; -1: all do */
} meeting;

static void open_meeting(void)
{
    int fails = meeting.fails;
    memset(&meeting, 0, sizeof meeting);
    meeting.fails = fails;
    meeting.table = (struct tr_table){.name = "w"};
    for (int r = 0; r < RANKS; r++) {
        struct tr_replica *l = &meeting.replica[r];
        meeting.poll[r] = (struct tr_poll){replica_watch, l};
        meeting.sync[r] = (struct tr_sync){.tr = &meeting.tr[r], .running = true};
        meeting.tr[r] = (tr_context){.rank = r,
                                     .active = &meeting.set,
                                     .sync = &meeting.sync[r],
                                     .polls = &meeting.poll[r],
                                     .poll_count = 1};
        *l = (struct tr_replica){.tr = &meeting.tr[r], .table = &meeting.table, .head = &meeting.head};
    }
}

/* A failed thread continues with its next clock; the test looks for it there. */
static void come(int self)
{
    struct tr_replica *l = &meeting.replica[self];
    const tr_worker me = {.worker = self, .workers = RANKS};
    for (int clock = 0; clock < CLOCKS; clock++, l->tr->sync->now++) {
        bool last = clock == CLOCKS - 1;
        int did = 0;
        ck_assert(replica_watch(l, &did) == TR_OK);
        if (last && self == meeting.fails) continue;
        meeting.came[self][clock] = true;
        int status = replica_barrier(l, &me);
        if (meeting.fails >= 0 && status != TR_OK) { /* of a barrier before, it may be told as well */
            ck_assert(replica_is_left(l));
            continue;
        }
        ck_assert(!last || meeting.fails < 0);
        ck_assert(status == TR_OK);
        for (int r = 0; r < RANKS; r++) ck_assert(meeting.came[r][clock]);
    }
    while (self == meeting.fails && atomic_load(&l->head->failed) == TR_OK)
        ck_assert(interleave_turn(l->tr) == TR_OK);
}

static void check_meeting(void)
{
    ck_assert(atomic_load(&meeting.head.failed) == (meeting.fails < 0 ? TR_OK : TR_ERR_PEER));
}

UNIT_CASE(nobody_leaves_before_all_have_come)
{
    for (meeting.fails = -1; meeting.fails <= 0; meeting.fails++)
        interleave((struct interleaving){RANKS, 2, open_meeting, come, check_meeting});
}
