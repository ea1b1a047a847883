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
 * A unit is stored contiguously on one server: an element of a vector, a row of a matrix, or, if rows are cut (2-D blocks), a piece
 * of a row. All files except sync move values when they are called; sync decides when. */
#ifndef TR_TABLE_TABLE_H
#define TR_TABLE_TABLE_H

#include <sched.h>
#include <stdatomic.h>

#include "ranks/ranks.h"
#include "table/codec.h"
#include "table/storage.h"
#include "table/plan.h"
#include "trireme/function.h"

/* Values that have moved, as counted by the worker that asked for them; bytes include message headers. */
struct tr_traffic {
    uint64_t bytes_pulled, bytes_pushed;
    uint64_t pulls, pushes, messages;
    struct tr_filter_counts filtered; /* units of updates */
    double wait_seconds, pull_seconds, push_seconds;
    double way_seconds;    /* during which a pull, push or merge of this rank was in flight */
    double hidden_seconds; /* the part of way_seconds during which this rank computed without waiting */
};

/* The cost of serving on one rank. */
struct tr_service {
    double seconds;     /* of handling messages */
    double at_seams;    /* poll points during computation at which something progressed */
    double under_way;   /* own updates that had not arrived when this rank pulled for the next clock */
    double share_bytes; /* values of all shares of this rank at the start of the stage */
    double
        version_bytes; /* maximum so far of the memory that server functions use in addition to the values */
};

/* Behind each share in memory that the node shares. */
struct tr_share_line {
    _Atomic int64_t
        version; /* 1 + the highest clock with an update; only for tables with a server function */
    char pad[56];
};

struct tr_table {
    tr_context *tr;
    char *name;
    uint32_t index; /* number of the table in the context, the same on all ranks */
    enum tr_dtype dtype;
    uint64_t keys;
    size_t width;                  /* elements of a key: pieces × unit_width */
    uint32_t pieces;               /* units of a key */
    size_t unit_width, unit_bytes; /* elements and bytes of a unit */
    struct tr_partition partition;
    uint32_t
        first_server; /* the server of the layout that is server 0 of the table; the next ones follow, modulo */
    int server;       /* number of this rank among the table's servers, or -1 */

    /* ---- wishes of the job and of the model ---- */
    int route;               /* one of TR_ROUTE_AUTO to TR_ROUTE_REQUEST (job/job.h) */
    int push;                /* one of TR_PUSH_AUTO to TR_PUSH_MESSAGE */
    bool lockstep;           /* BSP: an update becomes visible only with all updates of its clock */
    struct tr_wire wire;     /* encoding and precision of values in messages */
    struct tr_filter filter; /* holds back parts of updates that are sent as messages */
    int64_t every, first;    /* tr_table_update_every() */
    bool rests;              /* tr_table_rest() */
    bool merges_shared;      /* updates are merged in memory that the node shares */
    bool left_out;           /* tr_table_leave_out() */
    const char *fallback;    /* read instead, from a checkpoint that has no table of this name */

    /* ---- storage (storage.h) ---- */
    bool hash, sparse;              /* hash storage, sparse rows: only their server can read them */
    struct tr_hashmap *map;         /* on servers, with hash storage; array 0: the values */
    struct tr_sparse *sparse_share; /* on servers, with sparse rows */
    uint64_t share_units;           /* of this rank's dense share; 0: it has none */
    void **share; /* by server: its dense share, if this rank can read it directly, else NULL */
    struct tr_share_line **line; /* by server: behind the share, or NULL */
    struct tr_shm memory;        /* of the shares of this node */
    MPI_Win window;              /* of all dense shares; MPI_WIN_NULL: not needed */

    /* ---- private to the file that is named ---- */
    struct tr_use *use;              /* server.c: the server function; NULL: updates are added */
    struct tr_serving *serving;      /* server.c: key sets of clients, and updates that are held */
    struct tr_merge *merge;          /* merge.c */
    struct tr_rows *rows;            /* rows.c */
    struct tr_node_pull *node_pulls; /* node.c: a list */
    struct tr_subscription *subscription, *subscribing; /* node.c: of this stage; of the next one, or NULL */
    uint32_t next_tag;       /* view.c, node.c: for the next key set of this rank */
    uint32_t updating_views; /* view.c: merged views of this worker */
};

/* Bytes of this rank's share. */
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
    struct tr_way_now {
        unsigned under_way; /* pulls and pushes in flight */
        bool computes;
        unsigned waits; /* nesting depth of waits */
        double since;   /* time of the last change of the above */
    } way;
    struct tr_view_state **views; /* open views of this rank */
    size_t view_count, view_capacity;
    struct tr_functions { /* server functions and answers by name */
        tr_function *function;
        size_t functions, function_capacity;
        tr_answer *answer;
        size_t answers, answer_capacity;
    } functions;
    int status;    /* of the first server function that failed on this rank; later updates are ignored */
    char why[512]; /* its error text */
    struct tr_sending *sending, *spare; /* messages in flight; memory for more */
    char *inbox;                        /* the message that was received last */
    size_t inbox_size;
    char *packed;   /* scratch: values of a message before encoding or after decoding */
    uint32_t *unit; /* scratch: the units of a message */
    size_t packed_size, unit_size;
    bool exact; /* views read without rounding now, whichever table.precision is set */
    uint32_t next_request;
    uint32_t next_server; /* of the layout, for server 0 of the next table that does not use all servers */
    int64_t written;      /* updates of clocks < written are in the tables, as far as sync.c knows */
    /* Clocks of this stage that earlier parts of the run have ended. Server functions and filters count clocks from the start
     * of the run, the rest of the room from the start of this part. */
    int64_t before;
    bool flushes; /* residuals of filters and of rounding are sent in full */
};

/* The rank of a table's server; and the server of a rank, -1 if it serves none of the table. Servers that follow each other
 * lie on different nodes, as those of the layout do. */
static inline int tr_table_server_rank(const struct tr_table *t, uint32_t server)
{
    const struct tr_layout *layout = &t->tr->layout;
    return layout->server_rank[(t->first_server + server) % (uint32_t)layout->servers];
}

static inline int tr_table_server_of(const struct tr_table *t, int rank)
{
    const struct tr_layout *layout = &t->tr->layout;
    int server = layout->place[rank].server - (int)t->first_server;
    if (layout->place[rank].server < 0) return -1;
    if (server < 0) server += layout->servers;
    return server < (int)t->partition.servers ? server : -1;
}

/* Locks in memory that the ranks of a node share; they are held for a few microseconds. */
static inline void tr_spin_lock(atomic_uint *lock)
{
    while (atomic_exchange_explicit(lock, 1, memory_order_acquire)) sched_yield();
}

static inline void tr_spin_unlock(atomic_uint *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* Updates are not merged: they travel as messages, which servers hold under BSP until all of a clock have arrived. */
static inline bool tr_table_by_message(const struct tr_table *t)
{
    return t->use || t->hash || t->sparse || t->push == TR_PUSH_MESSAGE || t->filter.kind != TR_FILTER_NONE ||
           t->wire.precision != TR_PRECISION_FULL;
}

/* Some table rounds the values that views read (unless tables->exact). */
static inline bool tr_tables_round(const struct tr_tables *tables)
{
    for (size_t i = 0; i < tables->count; i++)
        if (tables->table[i]->wire.precision != TR_PRECISION_FULL) return true;
    return false;
}

/* The first clock ≥ `clock` of this stage in which the table is updated. */
static inline int64_t tr_table_next_update(const struct tr_table *t, int64_t clock)
{
    int64_t over = (t->tr->tables->before + clock - t->first) % t->every;
    return over == 0 ? clock : clock + (over > 0 ? t->every : 0) - over;
}

/* ======== all tables of a context, from stage to stage ========
 *
 * Tables are made ready for the views that a stage has opened, settled when the stage ends, and suspended while another stage
 * runs: stages that take turns find their views and merges as they left them. To open these again takes all ranks, and far
 * longer than a short stage. */

int tr_tables_open(tr_context *tr); /* local. TR_ERR_CONFIG: table.servers or hash storage ask for too much */
void tr_tables_close(tr_context *tr); /* collective over all ranks */

/* Closes node pulls, and waits until no message of a closed view is in flight. Collective over all ranks, between stages. */
int tr_tables_forget_views(tr_context *tr);

/* Opens node pulls and merges, after all views of a stage are open. Collective over all ranks. */
int tr_tables_ready(tr_context *tr);

/* The stage that has just been made ready resumes after `clocks` clocks of an earlier part of the run: values of views are
 * outdated. On all ranks, before the first clock; local. */
void tr_tables_count_from(tr_context *tr, int64_t clocks);

/* The open views and merges of a suspended stage. */
struct tr_suspended {
    struct tr_view_state **views;
    size_t view_count, view_capacity;
    struct tr_suspended_table {
        struct tr_merge *merge;
        struct tr_subscription *subscription;
        uint32_t updating_views;
    } * table; /* of the first `tables` tables of the context */
    size_t tables;
};

/* *needed: other ranks need this one as a server in the stage that has just been made ready. *can_suspend, the same on all
 * ranks: false with server functions, hash storage, sparse rows or updates as messages, because servers count pushing views.
 * Collective over all ranks. */
int tr_tables_needs(tr_context *tr, bool *needed, bool *can_suspend);

/* Suspends the open views and merges, and resumes them as they were before the first clock. Local, on each participant.
 * resumes = false: they will only be ended. */
int tr_tables_suspend(tr_context *tr, bool resumes, struct tr_suspended *suspended);
int tr_tables_resume(tr_context *tr, struct tr_suspended *suspended);

/* Ends a suspended stage (zeros: none): its views can only be closed. Collective over all ranks. */
void tr_tables_end(tr_context *tr, struct tr_suspended *suspended);

#endif
