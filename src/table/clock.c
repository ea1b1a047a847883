#include "table/sync.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "ranks/ranks.h"

/* A rank's words, or a node's copy of the minima and maxima, in cache lines of their own. */
struct line {
    _Alignas(64) _Atomic int64_t word[TR_CLOCK_WORDS];
};

/* Shared by a node: words over all ranks, words over the ranks of the node, a line of words per rank, and behind these a line with
 * the activity of each rank. */
struct board {
    struct line world, node;
    struct line rank[];
};
enum { DOES, REACHED, COMPUTED, SERVED, HELD }; /* words of these; times are in microseconds */

struct tr_clock {
    tr_context *tr;
    struct tr_shm memory;      /* of the board */
    struct board *board;       /* this node's */
    struct line *mine, *doing; /* this rank's two lines */
    /* several nodes: windows over a line per node at the scheduler, and over the world line of each node */
    MPI_Win nodes, worlds;
    int64_t *node_line;         /* scheduler's memory behind `nodes` */
    int *head;                  /* by node: the rank that holds its board */
    struct tr_rank_seen *heard; /* at rank 0: of ranks of other nodes */
    int64_t sent[TR_CLOCK_WORDS];
    bool resetting; /* nothing is published meanwhile */
};

static int64_t load(const _Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

int64_t tr_clock_get(const struct tr_clock *c, enum tr_clock_word word)
{
    return load(&c->board->world.word[word]);
}

/* Raises a word to at least `value`; true: it was lower. */
static bool raise(_Atomic int64_t *word, int64_t value)
{
    int64_t old = load(word);
    while (old < value)
        if (atomic_compare_exchange_weak(word, &old, value)) return true;
    return false;
}

/* ---- opening ---- */

static int poll_nodes(void *what, int *did);

static int open_window(tr_context *tr, void *memory, size_t words, MPI_Win *window)
{
    return tr_window_open(tr, memory, words * sizeof(int64_t), sizeof(int64_t),
                          "all ranks to open their clocks", window);
}

int tr_clock_open(tr_context *tr, struct tr_clock **clock)
{
    struct tr_clock *c;
    TR_TRY(TR_NEW(&c, 1));
    *clock = c;
    c->tr = tr;
    c->memory = TR_SHM_CLOSED;
    c->nodes = c->worlds = MPI_WIN_NULL;
    bool holds_board = tr->node_rank == 0;
    size_t bytes = sizeof(struct board) + 2 * (size_t)tr->node_size * sizeof(struct line);
    TR_TRY(tr_shm_open(tr, tr->node, holds_board ? bytes : 0, true, &c->memory));
    c->board = (struct board *)(void *)c->memory.part[0].at;
    c->mine = &c->board->rank[tr->node_rank];
    c->doing = c->mine + tr->node_size;
    tr_clock_count(c, (struct tr_rank_seen){.clock = -1});
    for (int word = 0; word < TR_CLOCK_MINIMA; word++) atomic_store(&c->mine->word[word], INT64_MAX);
    if (tr->layout.nodes > 1) {
        size_t nodes = (size_t)tr->layout.nodes;
        TR_TRY(TR_NEW(&c->head, nodes));
        for (int rank = tr->size - 1; rank >= 0; rank--) c->head[tr->node_of[rank]] = rank;
        if (tr->rank == 0) TR_TRY(TR_NEW(&c->node_line, nodes * TR_CLOCK_WORDS));
        if (tr->rank == 0) TR_TRY(TR_NEW(&c->heard, (size_t)tr->size));
        for (int rank = 0; c->heard && rank < tr->size; rank++)
            c->heard[rank] = (struct tr_rank_seen){.state = TR_RANK_STATES, .clock = -1};
        TR_TRY(open_window(tr, c->node_line, tr->rank == 0 ? nodes * TR_CLOCK_WORDS : 0, &c->nodes));
        TR_TRY(open_window(tr, &c->board->world, holds_board ? TR_CLOCK_WORDS : 0, &c->worlds));
    }
    return tr_poll_add(tr, poll_nodes, c);
}

void tr_clock_close(struct tr_clock **clock)
{
    struct tr_clock *c = *clock;
    if (!c) return;
    tr_poll_remove(c->tr, poll_nodes, c);
    MPI_Win *window[] = {&c->nodes, &c->worlds};
    for (int i = 0; i < 2; i++)
        tr_window_close(c->tr, c->tr->world, "all ranks to close their clocks", window[i]);
    tr_shm_close(&c->memory);
    free(c->node_line);
    free(c->head);
    free(c->heard);
    free(c);
    *clock = NULL;
}

/* ---- raising ---- */

/* Sends a growing number to another rank's window. With MPI_MAX the order of arrival does not matter. */
static void send_word(MPI_Win window, int rank, int at, const int64_t *value)
{
    MPI_Accumulate(value, 1, MPI_INT64_T, rank, at, 1, MPI_INT64_T, MPI_MAX, window);
    MPI_Win_flush_local(rank, window);
}

/* Publishes a word on this node and, from the scheduler, on all nodes. */
static void publish(struct tr_clock *c, int word, int64_t value)
{
    raise(&c->board->world.word[word], value);
    if (c->tr->layout.nodes == 1 || c->sent[word] >= value) return;
    c->sent[word] = value;
    for (int node = 0; node < c->tr->layout.nodes; node++)
        if (c->head[node] != 0) send_word(c->worlds, c->head[node], word, &c->sent[word]);
}

/* Publishes the word of this node: to all ranks if there is one node, else to the scheduler. */
static void tell(struct tr_clock *c, int word, int64_t value)
{
    tr_context *tr = c->tr;
    if (tr->layout.nodes == 1) raise(&c->board->world.word[word], value);
    else send_word(c->nodes, 0, tr->node_of[tr->rank] * TR_CLOCK_WORDS + word, &value);
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

/* Raises the node's minimum of a word, if this rank's raise may have changed it. Checks again after each success: a rank that
 * raises its own word meanwhile relies on that. */
static void raise_node(struct tr_clock *c, int word)
{
    int64_t least = least_of_node(c, word), next;
    if (!raise(&c->board->node.word[word], least)) return;
    for (; (next = least_of_node(c, word)) > least; least = next)
        if (!raise(&c->board->node.word[word], next)) break;
    tell(c, word, least);
}

void tr_clock_raise(struct tr_clock *c, enum tr_clock_word word, int64_t value)
{
    if (word >= TR_CLOCK_MAXIMA) {
        publish(c, (int)word, value);
    } else if (word >= TR_CLOCK_MINIMA) {
        if (raise(&c->board->node.word[word], value)) tell(c, (int)word, value);
    } else {
        int64_t old = load(&c->mine->word[word]);
        if (value <= old) return;
        atomic_store(&c->mine->word[word],
                     value); /* sequentially consistent: two that raise see one another */
        if (old <= atomic_load(&c->board->node.word[word])) raise_node(c, (int)word);
    }
}

/* The scheduler publishes the minimum or maximum of the words of all nodes. */
static int poll_nodes(void *what, int *did)
{
    struct tr_clock *c = what;
    if (c->tr->rank != 0 || c->tr->layout.nodes == 1 || c->resetting) return TR_OK;
    MPI_Win_sync(c->nodes);
    for (int word = 0; word < TR_CLOCK_MAXIMA; word++) {
        int64_t least = INT64_MAX, most = 0;
        for (int node = 0; node < c->tr->layout.nodes; node++) {
            int64_t value = *(volatile int64_t *)&c->node_line[node * TR_CLOCK_WORDS + word];
            if (value < least) least = value;
            if (value > most) most = value;
        }
        int64_t value = word < TR_CLOCK_MINIMA ? least : most;
        if (value <= c->sent[word]) continue;
        publish(c, word, value);
        ++*did;
    }
    return TR_OK;
}

/* ---- activity, for the monitor ---- */

enum tr_rank_state tr_clock_say(struct tr_clock *c, enum tr_rank_state state)
{
    int64_t before = atomic_load_explicit(&c->doing->word[DOES], memory_order_relaxed);
    atomic_store_explicit(&c->doing->word[DOES], state, memory_order_relaxed);
    return (enum tr_rank_state)before;
}

void tr_clock_count(struct tr_clock *c, struct tr_rank_seen seen)
{
    tr_clock_say(c, seen.state);
    atomic_store_explicit(&c->doing->word[REACHED], seen.clock, memory_order_relaxed);
    atomic_store_explicit(&c->doing->word[COMPUTED], (int64_t)(seen.seconds * 1e6), memory_order_relaxed);
}

void tr_clock_serve(struct tr_clock *c, double serving, double held)
{
    atomic_store_explicit(&c->doing->word[SERVED], (int64_t)(serving * 1e6), memory_order_relaxed);
    atomic_store_explicit(&c->doing->word[HELD], (int64_t)held, memory_order_relaxed);
}

void tr_clock_hear(struct tr_clock *c, int rank, struct tr_rank_seen seen)
{
    if (c->heard) c->heard[rank] = seen;
}

void tr_clock_see(const struct tr_clock *c, struct tr_rank_seen seen[])
{
    const struct line *doing = &c->board->rank[c->tr->node_size];
    for (int rank = 0; rank < c->tr->size; rank++) {
        bool here = tr_same_node(c->tr, rank);
        if (!here) seen[rank] = c->heard[rank];
        else
            seen[rank] = (struct tr_rank_seen){
                (enum tr_rank_state)load(&doing->word[DOES]), load(&doing->word[REACHED]),
                1e-6 * (double)load(&doing->word[COMPUTED]), 1e-6 * (double)load(&doing->word[SERVED]),
                (double)load(&doing->word[HELD])};
        doing += here;
    }
}

/* ---- stages ---- */

/* Words of this rank arrive before a stage starts without it. */
static void flush(const struct tr_clock *c)
{
    if (c->tr->layout.nodes == 1) return;
    MPI_Win_flush_all(c->nodes);
    MPI_Win_flush_all(c->worlds);
}

void tr_clock_leave(struct tr_clock *c)
{
    flush(c);
    for (int word = 0; word < TR_CLOCK_MINIMA; word++) atomic_store(&c->mine->word[word], INT64_MAX);
}

/* This is the lowest rank of the node that takes part in the stage. */
static bool is_first_of_node(const tr_context *tr)
{
    for (int rank = 0; rank < tr->rank; rank++)
        if (tr_same_node(tr, rank) && tr_participates(tr->active, rank)) return false;
    return true;
}

/* A node without participants does not count for minima. */
static void reset_node_lines(struct tr_clock *c)
{
    const tr_context *tr = c->tr;
    for (int i = 0; i < tr->layout.nodes * TR_CLOCK_WORDS; i++)
        c->node_line[i] = i % TR_CLOCK_WORDS < TR_CLOCK_MINIMA ? INT64_MAX : 0;
    for (int rank = 0; rank < tr->size; rank++)
        for (int word = 0; tr_participates(tr->active, rank) && word < TR_CLOCK_MINIMA; word++)
            c->node_line[tr->node_of[rank] * TR_CLOCK_WORDS + word] = 0;
}

int tr_clock_reset(struct tr_clock *c, const bool counts[TR_CLOCK_MINIMA])
{
    tr_context *tr = c->tr;
    bool first = is_first_of_node(tr);
    c->resetting = true;
    flush(c);
    for (int word = 0; word < TR_CLOCK_MINIMA; word++)
        atomic_store(&c->mine->word[word], counts[word] ? 0 : INT64_MAX);
    for (int word = 0; word < TR_CLOCK_WORDS; word++) {
        if (first) atomic_store(&c->board->world.word[word], 0);
        if (first) atomic_store(&c->board->node.word[word], 0);
        c->sent[word] = 0;
    }
    if (c->node_line) reset_node_lines(c);
    TR_TRY(tr_barrier(tr, tr->active->participants, "all ranks to set their clocks back"));
    c->resetting = false;
    for (int word = 0; word < TR_CLOCK_MINIMA;
         word++) /* a node without participants must not hold up the others */
        if (!counts[word]) raise_node(c, word);
    return TR_OK;
}
