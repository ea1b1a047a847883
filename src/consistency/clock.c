#include "consistency/clock.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Three minima over the ranks, two maxima, and three words of the scheduler's. */
enum {
    WRITTEN,
    READ,
    VERSION,
    MINIMA,
    ASKED = MINIMA,
    FAILED,
    MAXIMA,
    GRANTED = MAXIMA,
    STOP,
    CALLED,
    WORDS
};

/* One line in shared memory: a rank's counters, or a node's view of all (its head's line 0). */
struct line {
    _Atomic int64_t word[8];
};

/* Shared by a node: what all its ranks know of the world, its own minima, and a line per rank. */
struct board {
    struct line world, node;
    struct line rank[];
};

struct tr_clock {
    tr_context *tr;
    MPI_Win memory;      /* owns the boards */
    struct board *board; /* this node's */
    struct line *mine;
    /* several nodes: at the scheduler a line per node, at each node's head its board's world line */
    MPI_Win nodes, worlds;
    int64_t *node_line; /* scheduler's memory behind `nodes` */
    int *head;          /* by node: the rank that holds its board */
    int64_t sent[WORDS];
    bool resetting; /* nothing is published meanwhile */
};

static int64_t load(const _Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/* Raises a word to at least this value; true if that changed it. */
static bool raise(_Atomic int64_t *word, int64_t value)
{
    int64_t old = load(word);
    while (old < value)
        if (atomic_compare_exchange_weak(word, &old, value)) return true;
    return false;
}

static int poll_nodes(void *what, int *did);

int tr_clock_open(tr_context *tr, struct tr_clock **clock)
{
    struct tr_clock *c;
    TR_TRY(TR_NEW(&c, 1));
    c->tr = tr;
    c->memory = c->nodes = c->worlds = MPI_WIN_NULL;
    MPI_Aint bytes = tr->node_rank == 0
                         ? (MPI_Aint)(sizeof(struct board) + (size_t)tr->node_size * sizeof(struct line))
                         : 0;
    void *own;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, tr->node, &own, &c->memory);
    MPI_Aint size;
    int unit;
    MPI_Win_shared_query(c->memory, 0, &size, &unit, &c->board);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, c->memory);
    c->mine = &c->board->rank[tr->node_rank];
    for (int word = 0; word < MINIMA; word++) atomic_store(&c->mine->word[word], INT64_MAX);
    if (tr->layout.nodes > 1) {
        size_t nodes = (size_t)tr->layout.nodes;
        TR_TRY(TR_NEW(&c->head, nodes));
        for (int rank = tr->size - 1; rank >= 0; rank--) c->head[tr->node_of[rank]] = rank;
        if (tr->rank == 0) TR_TRY(TR_NEW(&c->node_line, nodes * WORDS));
        MPI_Win_create(c->node_line, tr->rank == 0 ? (MPI_Aint)(nodes * WORDS * sizeof(int64_t)) : 0,
                       sizeof(int64_t), MPI_INFO_NULL, tr->world, &c->nodes);
        MPI_Win_create(&c->board->world, tr->node_rank == 0 ? (MPI_Aint)sizeof(struct line) : 0,
                       sizeof(int64_t), MPI_INFO_NULL, tr->world, &c->worlds);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, c->nodes);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, c->worlds);
    }
    TR_TRY(tr_poll_add(tr, poll_nodes, c));
    *clock = c;
    return TR_OK;
}

static void free_window(MPI_Win *window)
{
    if (*window == MPI_WIN_NULL) return;
    MPI_Win_unlock_all(*window);
    MPI_Win_free(window);
}

void tr_clock_close(struct tr_clock **clock)
{
    struct tr_clock *c = *clock;
    if (!c) return;
    tr_poll_remove(c->tr, poll_nodes, c);
    free_window(&c->nodes);
    free_window(&c->worlds);
    free_window(&c->memory);
    free(c->node_line);
    free(c->head);
    free(c);
    *clock = NULL;
}

/* Sends a growing number to another rank's window. MAX makes late and early arrivals harmless. */
static void send_word(MPI_Win window, int rank, int at, const int64_t *value)
{
    MPI_Accumulate(value, 1, MPI_INT64_T, rank, at, 1, MPI_INT64_T, MPI_MAX, window);
    MPI_Win_flush_local(rank, window);
}

static int64_t least_of_node(const struct tr_clock *c, int word)
{
    int64_t least = INT64_MAX;
    for (int rank = 0; rank < c->tr->node_size; rank++) {
        int64_t value = atomic_load(&c->board->rank[rank].word[word]);
        if (value < least) least = value;
    }
    return least;
}

/* The node's minimum of a word, if this rank's raise may have moved it. Looks again after each success: a rank
 * that raises its line meanwhile trusts whoever raises the minimum to see that. */
static void raise_node(struct tr_clock *c, int word)
{
    tr_context *tr = c->tr;
    int64_t least = least_of_node(c, word), next;
    if (!raise(&c->board->node.word[word], least)) return;
    for (; (next = least_of_node(c, word)) > least; least = next)
        if (!raise(&c->board->node.word[word], next)) break;
    if (tr->layout.nodes == 1) {
        raise(&c->board->world.word[word], least);
        return;
    }
    int node = tr->node_of[tr->rank];
    send_word(c->nodes, 0, node * WORDS + word, &least);
}

/* Of the ranks of this node that take part in the stage, this is the lowest. */
static bool is_first_of_node(const tr_context *tr)
{
    for (int rank = 0; rank < tr->rank; rank++)
        if (tr_same_node(tr, rank) && tr_participates(tr->active, rank)) return false;
    return true;
}

/* A node of which nobody takes part in the stage counts for no minimum. */
static void reset_node_lines(struct tr_clock *c)
{
    const tr_context *tr = c->tr;
    for (int i = 0; i < tr->layout.nodes * WORDS; i++) c->node_line[i] = i % WORDS < MINIMA ? INT64_MAX : 0;
    for (int rank = 0; rank < tr->size; rank++)
        for (int word = 0; tr_participates(tr->active, rank) && word < MINIMA; word++)
            c->node_line[tr->node_of[rank] * WORDS + word] = 0;
}

void tr_clock_leave(struct tr_clock *c)
{
    if (c->tr->layout.nodes >
        1) { /* what this rank has told arrives before the next stage begins without it */
        MPI_Win_flush_all(c->nodes);
        MPI_Win_flush_all(c->worlds);
    }
    for (int word = 0; word < MINIMA; word++) atomic_store(&c->mine->word[word], INT64_MAX);
}

int tr_clock_reset(struct tr_clock *c, bool keeps_written, bool keeps_read, bool keeps_version)
{
    tr_context *tr = c->tr;
    c->resetting = true;
    if (tr->layout.nodes > 1) {
        MPI_Win_flush_all(c->nodes);
        MPI_Win_flush_all(c->worlds);
    }
    atomic_store(&c->mine->word[WRITTEN], keeps_written ? 0 : INT64_MAX);
    atomic_store(&c->mine->word[READ], keeps_read ? 0 : INT64_MAX);
    atomic_store(&c->mine->word[VERSION], keeps_version ? 0 : INT64_MAX);
    if (is_first_of_node(tr))
        for (int i = 0; i < WORDS; i++) {
            atomic_store(&c->board->world.word[i], 0);
            atomic_store(&c->board->node.word[i], 0);
        }
    for (int i = 0; i < WORDS; i++) c->sent[i] = 0;
    if (c->node_line) reset_node_lines(c);
    TR_TRY(tr_barrier(tr, tr->active->participants, "all ranks to set their clocks back"));
    c->resetting = false;
    for (int word = 0; word < MINIMA; word++) /* a node without participants must not hold up the others */
        if (load(&c->mine->word[word]) == INT64_MAX) raise_node(c, word);
    return TR_OK;
}

static int raise_mine(struct tr_clock *c, int word, int64_t clocks)
{
    int64_t old = load(&c->mine->word[word]);
    if (clocks <= old) return TR_OK;
    atomic_store(&c->mine->word[word], clocks); /* sequentially consistent: two that raise see one another */
    if (old <= atomic_load(&c->board->node.word[word])) raise_node(c, word);
    return TR_OK;
}

int tr_clock_written(struct tr_clock *c, int64_t clocks)
{
    return raise_mine(c, WRITTEN, clocks);
}

int tr_clock_read(struct tr_clock *c, int64_t clocks)
{
    return raise_mine(c, READ, clocks);
}

int tr_clock_version(struct tr_clock *c, int64_t clocks)
{
    return raise_mine(c, VERSION, clocks);
}

int64_t tr_clock_min_version(const struct tr_clock *c)
{
    return load(&c->board->world.word[VERSION]);
}

static void raise_most(struct tr_clock *c, int word, int64_t value)
{
    tr_context *tr = c->tr;
    if (tr->layout.nodes == 1) raise(&c->board->world.word[word], value);
    else if (raise(&c->board->node.word[word], value))
        send_word(c->nodes, 0, tr->node_of[tr->rank] * WORDS + word, &value);
}

int tr_clock_ask(struct tr_clock *c, int64_t evaluation)
{
    raise_most(c, ASKED, evaluation);
    return TR_OK;
}

void tr_clock_fail(struct tr_clock *c)
{
    raise_most(c, FAILED, 1);
}

bool tr_clock_failed(const struct tr_clock *c)
{
    return load(&c->board->world.word[FAILED]) != 0;
}

int64_t tr_clock_asked(const struct tr_clock *c)
{
    return load(&c->board->world.word[ASKED]);
}

int64_t tr_clock_min_written(const struct tr_clock *c)
{
    return load(&c->board->world.word[WRITTEN]);
}

int64_t tr_clock_min_read(const struct tr_clock *c)
{
    return load(&c->board->world.word[READ]);
}

int64_t tr_clock_granted(const struct tr_clock *c)
{
    return load(&c->board->world.word[GRANTED]);
}

bool tr_clock_stopped(const struct tr_clock *c)
{
    return load(&c->board->world.word[STOP]) != 0;
}

/* The scheduler tells every node a word. */
static void publish(struct tr_clock *c, int word, int64_t value)
{
    raise(&c->board->world.word[word], value);
    if (c->tr->layout.nodes == 1 || c->sent[word] >= value) return;
    c->sent[word] = value;
    for (int node = 0; node < c->tr->layout.nodes; node++)
        if (c->head[node] != 0) send_word(c->worlds, c->head[node], word, &c->sent[word]);
}

int tr_clock_grant(struct tr_clock *c, int64_t clocks, bool stop)
{
    publish(c, GRANTED, clocks);
    publish(c, STOP, stop);
    return TR_OK;
}

int tr_clock_call(struct tr_clock *c, int64_t number)
{
    publish(c, CALLED, number);
    return TR_OK;
}

int64_t tr_clock_called(const struct tr_clock *c)
{
    return load(&c->board->world.word[CALLED]);
}

/* A word as the nodes have told it: the least or the most of them. */
static int64_t over_nodes(const struct tr_clock *c, int word)
{
    int64_t least = INT64_MAX, most = 0;
    for (int node = 0; node < c->tr->layout.nodes; node++) {
        int64_t value = *(volatile int64_t *)&c->node_line[node * WORDS + word];
        if (value < least) least = value;
        if (value > most) most = value;
    }
    return word < MINIMA ? least : most;
}

static int poll_nodes(void *what, int *did)
{
    struct tr_clock *c = what;
    if (c->tr->rank != 0 || c->tr->layout.nodes == 1 || c->resetting) return TR_OK;
    MPI_Win_sync(c->nodes);
    for (int word = 0; word < MAXIMA; word++) {
        int64_t value = over_nodes(c, word);
        if (value <= c->sent[word]) continue;
        publish(c, word, value);
        ++*did;
    }
    return TR_OK;
}
