/* table/: parameter tables, and the consistency of their values. From the bottom up:
 *
 *   plan       the server of each unit (partition); the keys of a view or a list of rows, split by server
 *   codec      element loops; encodings and filters of values in messages
 *   storage    the memory of a server's share: dense (shared by the node, open to RMA), hash maps, sparse rows
 *   server     messages between workers and servers; key sets, pulls, pushes, rows; server functions and answers
 *   functions  the server functions, answers and optimizers that are built in
 *   node       reads that the workers of a node share: caches, node pulls, subscriptions
 *   merge      one sum of all updates of a clock (BSP), in shared memory or in rounds between nodes
 *   view       channels: access to one server by load, get or request, pushes by add, accumulate or message; views: a worker's
 *              copies of some keys
 *   rows       rows in any order, pulled as a stream; updates of sparse rows
 *   replica    a node's own copy of a table
 *   table      creation, resizing and the life of all tables from stage to stage
 *   sync       the clock window (progress of all ranks); when a worker may read, and when updates become visible
 *
 * All files except sync move values when they are called; sync decides when. Terms of this folder:
 *
 *   unit      the values that are stored contiguously on one server: an element of a vector, a row of a matrix, or, if rows are
 *             cut (2-D blocks), a piece of a row
 *   share     the units of a table that one server stores (in include/trireme: shard); position: the index of a unit in its share
 *   segment   the units of a list of keys that lie on one server (plan.h)
 *   route     how a worker reads a share: load, get or request; way: how it pushes: add, accumulate or message (view.h)
 *   lockstep  BSP: all updates of a clock become visible together
 *     merge     the sum of all workers' updates of a clock, which is added to the shares under BSP (merge.c) */
#ifndef TR_TABLE_TABLE_H
#define TR_TABLE_TABLE_H

#include <sched.h>
#include <stdatomic.h>

#include "ranks/ranks.h"
#include "table/codec.h"
#include "table/storage.h"
#include "table/plan.h"
#include "trireme/function.h"

/* Traffic that this rank has caused as a worker; bytes include message headers. */
struct tr_traffic {
    uint64_t bytes_pulled, bytes_pushed;
    uint64_t pulls, pushes, messages;
    struct tr_filter_counts filtered; /* numbers of units that a filter has seen, held back and dropped */
    double wait_seconds, pull_seconds, push_seconds;
    double way_seconds;    /* time with at least one pull or push of this rank in flight */
    double hidden_seconds; /* the part of way_seconds during which this rank computed without waiting */
};

/* Costs of the server role on this rank. */
struct tr_service {
    double seconds;   /* time spent handling messages */
    double at_seams;  /* number of polls during computation (at seams, tr_seam()) that made progress */
    double under_way; /* number of own updates that were in flight when this rank pulled for the next clock */
    double share_bytes; /* size of all shares of this rank at the start of the stage */
    /* maximum so far of the memory that server functions use in addition to the values */
    double version_bytes;
};

/* A cache line that follows each dense share in shared memory. */
struct tr_share_line {
    _Atomic int64_t version; /* 1 + the highest clock with an update; 0 without a server function */
    char pad[56];
};

struct tr_table {
    tr_context *tr;
    char *name;
    uint32_t index; /* index of the table in tr_tables.table, equal on all ranks */
    enum tr_dtype dtype;
    uint64_t keys;
    size_t width;                  /* elements per key: pieces × unit_width */
    uint32_t pieces;               /* units per key */
    size_t unit_width, unit_bytes; /* elements and bytes per unit */
    struct tr_partition partition;
    uint32_t first_server; /* server i of the table is server (first_server + i) % servers of the layout */
    int server;            /* number of this rank among the table's servers, or -1 */

    /* ---- settings of the job and of the model ---- */
    int route;               /* how views read, from TR_ROUTE_AUTO to TR_ROUTE_REQUEST (job/job.h) */
    int push;                /* how views push, from TR_PUSH_AUTO to TR_PUSH_MESSAGE (job/job.h) */
    bool lockstep;           /* the job runs under BSP */
    struct tr_wire wire;     /* encoding and precision of values in messages */
    struct tr_filter filter; /* holds back parts of updates that are sent as messages */
    int64_t every, first;    /* updated in every `every`-th clock, from clock `first` on */
    bool rests;              /* the table is resting: declared as unused by tr_table_rest() */
    bool merges_shared;      /* updates are merged in shared memory, not in rounds (merge.c) */
    bool left_out;           /* checkpoints do not contain the table (tr_table_leave_out()) */
    const char *fallback;    /* name of the table to read from checkpoints that lack this table, or NULL */

    /* ---- storage (storage.h) ---- */
    /* kind of storage; both false: dense. Only the server itself can read a hash or sparse share */
    bool hash, sparse;
    struct tr_hashmap *map; /* this rank's share with hash storage: array 0 holds the values; or NULL */
    struct tr_sparse *sparse_share; /* this rank's share of sparse rows, or NULL */
    uint64_t share_units;           /* number of units of this rank's dense share, or 0 */
    void **share;                   /* share[s]: dense share of server s; NULL: not readable directly */
    struct tr_share_line **line;    /* line[s]: the line behind share s; NULL: on another node */
    struct tr_shm memory;           /* contains the dense shares of this node */
    MPI_Win window;                 /* RMA window over all dense shares; MPI_WIN_NULL: not needed */

    /* ---- each of these is private to the file that is named ---- */
    struct tr_use *use;                   /* server.c: the server function; NULL: updates are added */
    struct tr_serving *serving;           /* server.c: registered key sets, and updates that are held back */
    struct tr_merge *merge;               /* merge.c; NULL: updates are not merged in this stage */
    struct tr_rows *rows;                 /* rows.c: pulls and pushes of rows */
    struct tr_node_pull *node_pulls;      /* node.c: linked list of the node pulls of this table */
    struct tr_subscription *subscription; /* node.c: the subscription of this stage, or NULL */
    struct tr_subscription *subscribing;  /* node.c: the subscription of the stage being opened, or NULL */
    uint32_t next_tag;       /* view.c, node.c: tag of the next key set that this rank registers */
    uint32_t updating_views; /* view.c: number of this worker's views whose updates are merged */
};

/* Returns the size of this rank's share in bytes; 0 with hash storage. */
static inline uint64_t tr_table_bytes(const struct tr_table *t)
{
    if (t->sparse_share) return tr_sparse_bytes(t->sparse_share);
    return t->share_units * t->unit_bytes;
}

/* All tables of a context. */
struct tr_tables {
    tr_context *tr;
    struct tr_table **table;
    size_t count, capacity;
    struct tr_traffic traffic;
    struct tr_service service;
    struct tr_way_now {     /* state from which way_seconds and hidden_seconds are counted */
        unsigned under_way; /* number of pulls and pushes in flight */
        bool computes;
        unsigned waits; /* nesting depth of waits */
        double since;   /* tr_now() when one of the members above changed last */
    } way;
    struct tr_view_state **views; /* open views of this rank */
    size_t view_count, view_capacity;
    struct tr_functions { /* server functions and answers by name */
        tr_function *function;
        size_t functions, function_capacity;
        tr_answer *answer;
        size_t answers, answer_capacity;
    } functions;
    /* status and text of the first server function that failed on this rank; updates after that are ignored */
    int status;
    char why[512];
    struct tr_sending *sending; /* list of messages in flight */
    struct tr_sending *spare;   /* list of buffers for later messages */
    char *inbox;                /* buffer of the message that was received last */
    size_t inbox_size;
    char *packed;   /* scratch: values of a message before encoding or after decoding */
    uint32_t *unit; /* scratch: the numbers of the units of a message */
    size_t packed_size, unit_size;
    bool exact; /* during an evaluation: views are read without rounding, regardless of table.precision */
    uint32_t next_request;
    uint32_t next_server; /* first_server of the next table that does not use all servers */
    int64_t written;      /* all updates of clocks < written are in the tables, as this rank knew last */
    /* Number of clocks of this stage that ended before it was resumed (from a checkpoint or a barrier). Server functions and
     * filters include them in clock numbers, all other code counts from 0. */
    int64_t before;
    bool flushes; /* residuals of filters and rounding are being sent, unfiltered and in full precision */
};

/* Returns the rank of a server of the table. Consecutive servers lie on different nodes, as in the layout. */
static inline int tr_table_server_rank(const struct tr_table *t, uint32_t server)
{
    const struct tr_layout *layout = &t->tr->layout;
    return layout->server_rank[(t->first_server + server) % (uint32_t)layout->servers];
}

/* Returns the number of a rank among the servers of the table, or -1 if the rank is no server of it. */
static inline int tr_table_server_of(const struct tr_table *t, int rank)
{
    const struct tr_layout *layout = &t->tr->layout;
    int server = layout->place[rank].server - (int)t->first_server;
    if (layout->place[rank].server < 0) return -1;
    if (server < 0) server += layout->servers;
    return server < (int)t->partition.servers ? server : -1;
}

/* Spin locks in memory that the ranks of a node share. A lock is held for a few microseconds. */
static inline void tr_spin_lock(atomic_uint *lock)
{
    while (atomic_exchange_explicit(lock, 1, memory_order_acquire)) sched_yield();
}

static inline void tr_spin_unlock(atomic_uint *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* Returns whether updates of the table travel as messages, and so are not merged. Under BSP servers hold these messages until all
 * messages of the clock have arrived. */
static inline bool tr_table_by_message(const struct tr_table *t)
{
    return t->use || t->hash || t->sparse || t->push == TR_PUSH_MESSAGE || t->filter.kind != TR_FILTER_NONE ||
           t->wire.precision != TR_PRECISION_FULL;
}

/* Returns whether a table rounds the values that views read (unless tables->exact is set). */
static inline bool tr_tables_round(const struct tr_tables *tables)
{
    for (size_t i = 0; i < tables->count; i++)
        if (tables->table[i]->wire.precision != TR_PRECISION_FULL) return true;
    return false;
}

/* Returns the first clock ≥ `clock` of this stage in which the table is updated (tr_table_update_every()). */
static inline int64_t tr_table_next_update(const struct tr_table *t, int64_t clock)
{
    int64_t over = (t->tr->tables->before + clock - t->first) % t->every;
    return over == 0 ? clock : clock + (over > 0 ? t->every : 0) - over;
}

/* ======== all tables of a context, from stage to stage ========
 *
 * When a stage has opened its views, tr_tables_ready() opens merges and node pulls for them. While another stage runs, the views
 * and merges of a stage are suspended, not closed: opening them again would take all ranks, and far longer than a short stage. */

/* Makes tr->tables; tr_tables_close() frees it. Local. TR_ERR_CONFIG: there are fewer servers than table.servers, or hash storage
 * does not fit to table.route or table.push. */
int tr_tables_open(tr_context *tr);
void tr_tables_close(tr_context *tr); /* collective over all ranks */

/* Closes node pulls, and waits until no message of a closed view is in flight. Collective over all ranks, between stages. */
int tr_tables_forget_views(tr_context *tr);

/* Opens node pulls and merges, after all views of a stage are open. Collective over all ranks. */
int tr_tables_ready(tr_context *tr);

/* Resumes the stage that was made ready last after `clocks` clocks that have ended: sets tables->before, and marks the values of
 * views as outdated. On all ranks, before the first clock; local. */
void tr_tables_count_from(tr_context *tr, int64_t clocks);

/* The open views and merges of a suspended stage. */
struct tr_suspended {
    struct tr_view_state **views;
    size_t view_count, view_capacity;
    struct tr_suspended_table {
        struct tr_merge *merge;
        struct tr_subscription *subscription;
        uint32_t updating_views;
    } * table; /* entry i belongs to table i of the context */
    size_t tables;
};

/* Call it for the stage that was made ready last. *needed: whether other ranks need this rank as a server. *can_suspend, equal on
 * all ranks: whether the stage can be suspended. It cannot with server functions, hash storage, sparse rows or updates as messages,
 * because a server waits for all registered pushing views, even suspended ones. Collective over all ranks. */
int tr_tables_needs(tr_context *tr, bool *needed, bool *can_suspend);

/* tr_tables_suspend() suspends the open views and merges; resumes = false: the stage will not run again, only tr_tables_end()
 * follows. tr_tables_resume() resumes the views and merges as they were before the first clock. Both are local; each participant
 * must call them. */
int tr_tables_suspend(tr_context *tr, bool resumes, struct tr_suspended *suspended);
int tr_tables_resume(tr_context *tr, struct tr_suspended *suspended);

/* Ends a suspended stage, after which its views can only be closed. `suspended` may be a struct of zeros. Collective over all
 * ranks. */
void tr_tables_end(tr_context *tr, struct tr_suspended *suspended);

#endif
