/* table/: parameter tables, and the consistency of what workers read. From the bottom up:
 *
 *   plan       which server holds which unit (partition); the keys of a view or a list of rows, split by server
 *   codec      element loops; encodings, Huffman codes and filters of values in messages
 *   storage    the memory of a server's share: dense (shared by the node, open to RMA) and sparse rows; hashmap: hash storage
 *   server     messages between workers and servers, and the server role: key sets, pulls, pushes, rows
 *   function   server functions and answers: the registry, and their calls; functions: those that are built in
 *   route      a channel: a worker's access to one server by load, get or request, and its pushes by add, accumulate, message
 *   node       reads that the workers of a node share: caches, node pulls, subscriptions
 *   merge      one sum of all updates of a clock (BSP), in shared memory or in rounds between nodes
 *   view       a worker's copy of some keys: pulls and pushes through its channels
 *   rows       rows in any order, pulled as a stream; updates of sparse rows
 *   replica    a node's own copy of a table
 *   table      creation, resizing and the life of all tables from stage to stage
 *   clock      the clock window: how far each rank has come
 *   sync       consistency: when a worker may read, when its clock ends, when updates become visible
 *
 * A unit is what lies in one piece at one place: an element of a vector, a row of a matrix, or, where rows are cut (2-D
 * blocks), a piece of a row. All files but clock and sync move values when they are told to; sync decides when. */
#ifndef TR_TABLE_TABLE_H
#define TR_TABLE_TABLE_H

#include <stdatomic.h>

#include "ranks/ranks.h"
#include "ranks/shm.h"
#include "table/codec.h"
#include "table/storage.h"
#include "table/plan.h"
#include "trireme/table.h"

/* What has moved, as counted by the worker that asked for it; bytes of values, with headers of messages. */
struct tr_traffic {
    uint64_t bytes_pulled, bytes_pushed;
    uint64_t pulls, pushes, messages;
    struct tr_filter_counts filtered; /* units of updates */
    double wait_seconds, pull_seconds, push_seconds;
    double
        way_seconds; /* during which something was on its way to or from this rank: pulled, pushed or being merged … */
    double hidden_seconds; /* … while it computed, and waited for none of that */
};

/* What serving has taken on one rank. */
struct tr_service {
    double seconds;   /* of handling messages */
    double at_seams;  /* times that something was done for others, or moved on, while this rank computed */
    double under_way; /* updates of this rank that had not arrived when it began to compute the next clock */
    double share_bytes;   /* values of all tables here, as the stage began */
    double version_bytes; /* kept beside them by functions, at most so far */
};

/* Beside each share in memory that the node shares. */
struct tr_share_line {
    _Atomic int64_t version; /* clocks of which an update has come; for tables with a function */
    char pad[56];
};

struct tr_table {
    tr_context *tr;
    char *name;
    uint32_t index; /* its number in the context, the same on all ranks */
    enum tr_dtype dtype;
    uint64_t keys;
    size_t width;                  /* elements of a key … */
    uint32_t pieces;               /* … in so many units … */
    size_t unit_width, unit_bytes; /* … of this many elements */
    struct tr_partition partition;
    uint32_t first_server; /* its server 0 among those of the layout; the others follow, around */
    int server;            /* which of its servers this rank is, or -1 */

    bool hash;              /* hash storage: in maps that their servers alone can read */
    struct tr_hashmap *map; /* … on servers; its first array: the values */

    bool left_out;        /* of checkpoints */
    const char *fallback; /* in a checkpoint that has no table of this name */

    bool sparse;                    /* rows are lists that their servers alone can read … */
    struct tr_sparse *sparse_share; /* … on servers */

    uint64_t share_units; /* of this rank; 0 where it does not serve, with hash storage, and of sparse rows */
    void **share;         /* by server: its memory where this rank can read it directly, else NULL */
    struct tr_share_line **line; /* by server, too: behind the share */
    struct tr_shm memory;        /* of the shares of this node */
    MPI_Win window;              /* all shares for all ranks; MPI_WIN_NULL where nobody needs it */

    int route; /* TR_ROUTE_… and TR_PUSH_…, as the job wishes */
    int push;
    bool lockstep;           /* BSP: an update shows only when all of its clock are there */
    struct tr_wire wire;     /* how values are written in messages */
    struct tr_filter filter; /* what stays behind of updates sent as messages */
    struct tr_use *use;      /* the function that takes updates; NULL: they are added */

    struct tr_serving *serving; /* what clients have registered and pushed: see server.c */
    bool rests;                 /* as tr_table_rest() says */

    uint32_t next_tag;
    uint32_t updating_views; /* of this worker */
    int64_t every, first;    /* as tr_table_update_every() says */
    bool merges_shared;      /* in memory that the node shares */
    struct tr_merge *merge;
    struct tr_subscription
        *subscribing; /* rows that this worker has subscribed to since merges were opened … */
    struct tr_subscription *subscription; /* … and before */
    struct tr_node_pull *node_pulls;      /* what this rank's node pulls as one: a list */
    struct tr_rows *rows;                 /* what this rank pulls and pushes row by row */
};

/* Bytes of the values that this rank serves. */
static inline uint64_t tr_table_bytes(const struct tr_table *t)
{
    if (t->sparse_share) return tr_sparse_bytes(t->sparse_share);
    return t->share_units * t->unit_bytes;
}

/* All tables of a context, and the server role for all of them. */
struct tr_tables {
    tr_context *tr;
    struct tr_table **table;
    size_t count, capacity;
    struct tr_traffic traffic;
    struct tr_service service;
    struct tr_way_now {
        unsigned under_way; /* pulls and pushes */
        bool computes;
        unsigned waits; /* within each other */
        double since;   /* when one of these changed */
    } way;
    struct tr_view_state **views; /* open ones, for the poll */
    size_t view_count, view_capacity;
    struct tr_functions *functions; /* known by name */
    int status;    /* of the first server function that failed here; what follows is ignored … */
    char why[512]; /* … and what it said */
    struct tr_sending *sending, *spare; /* messages on their way; memory for more */
    char *inbox;                        /* a message just received */
    size_t inbox_size;
    char *packed; /* a message's values before or after encoding, and its units */
    uint32_t *unit;
    size_t packed_size, unit_size;
    struct tr_squeezer *squeezer; /* of messages of 8-bit values */
    bool exact;                   /* what views read now is not rounded, whatever table.precision is */
    uint32_t next_request;
    uint32_t next_server; /* of the layout, where the next table on some servers begins */
    int64_t written;      /* updates of clocks < written are in the tables, as far as sync.c has said */
    /* Clocks of this stage that an earlier part of the run has ended: they count on for server functions and filters,
     * though the stage's own begin at 0. */
    int64_t before;
    bool flushes; /* filters hold nothing back, and nothing is rounded: what was is sent, too */
};

/* The rank of a table's server, and the other way round: -1 where a rank is none of them. The servers of the
 * layout take the nodes in turn, and so do any that follow each other. */
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

/* The number on this node of one of its ranks: they are numbered as in the world. */
static inline int tr_node_rank(const tr_context *tr, int rank)
{
    int number = 0;
    for (int r = 0; r < rank; r++) number += tr_same_node(tr, r);
    return number;
}

static inline MPI_Datatype tr_dtype_mpi(enum tr_dtype dtype)
{
    switch (dtype) {
    case TR_F32: return MPI_FLOAT;
    case TR_F64: return MPI_DOUBLE;
    case TR_I32: return MPI_INT32_T;
    case TR_I64: return MPI_INT64_T;
    }
    return MPI_BYTE;
}

/* Updates are not merged: they come as messages and are held back by servers under BSP. */
static inline bool tr_table_by_message(const struct tr_table *t)
{
    return t->use || t->hash || t->sparse || t->push == TR_PUSH_MESSAGE || t->filter.kind != TR_FILTER_NONE ||
           t->wire.precision != TR_PRECISION_FULL;
}

/* Whether table.precision rounds what views read, unless tables->exact. */
static inline bool tr_tables_round(const struct tr_tables *tables)
{
    for (size_t i = 0; i < tables->count; i++)
        if (tables->table[i]->wire.precision != TR_PRECISION_FULL) return true;
    return false;
}

/* tr_table_create_with(), with servers counted from the same one on as those of another table (NULL: as usual). */
int tr_table_make(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                  const tr_table_options *options, const struct tr_table *like, struct tr_table **table);

/* The first clock of this stage, from `clock` on, in which the table is updated. */
static inline int64_t tr_table_next_update(const struct tr_table *t, int64_t clock)
{
    int64_t over = (t->tr->tables->before + clock - t->first) % t->every;
    return over == 0 ? clock : clock + (over > 0 ? t->every : 0) - over;
}

/* Frees a table, once nothing but its own memory is left of it. All ranks. */
void tr_table_free(struct tr_table *table);

/* TR_ERR_CONFIG where the job wishes for what hash storage cannot do. */
int tr_table_check_hash(const tr_context *tr);

/* ======== all tables of a context ======== */

/* All tables of a context from stage to stage: they are made ready for the views that a stage has opened, settled
 * when it ends, and suspended while another one runs: a stage that runs again and again, in turns with others, finds
 * its views and merges as it left them, instead of opening them anew, which takes all ranks and far longer than a
 * short stage. */

int tr_tables_open(tr_context *tr);
void tr_tables_close(tr_context *tr); /* all ranks */

/* Ends what views of a node pull as one, and waits until no message of a closed view is under way any more: all ranks,
 * outside of stages. */
int tr_tables_forget_views(tr_context *tr);

/* Makes ready to receive by all ways what views push: all ranks, after all views of a stage are open. */
int tr_tables_ready(tr_context *tr);

/* The stage that has just been made ready goes on where an earlier part of the run stood: so many clocks are over.
 * Called on all ranks before its first clock. What views hold is to be read again. */
void tr_tables_count_from(tr_context *tr, int64_t clocks);

/* The stage's last update has arrived everywhere: what functions keep apart becomes part of the values. All ranks. */
int tr_tables_settle(tr_context *tr);

/* What a suspended stage has opened. */
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

/* What this rank has to do with the stage that has just been made ready: whether others need it as a server, and (the
 * same on all ranks) whether the stage can be suspended: not with server functions, hash storage, sparse rows or
 * updates as messages, whose servers count who pushes. All ranks. */
int tr_tables_needs(tr_context *tr, bool *needed, bool *can_suspend);

/* Suspends what is open, and resumes it as it was before the first clock. Each participant for itself. With resumes
 * false it waits only to be ended. */
int tr_tables_suspend(tr_context *tr, bool resumes, struct tr_suspended *suspended);
int tr_tables_resume(tr_context *tr, struct tr_suspended *suspended);

/* Ends what was suspended (zeros: nothing): its views can only be closed. All ranks. */
void tr_tables_end(tr_context *tr, struct tr_suspended *suspended);

/* ---- for consistency (sync.c), which knows clocks: rank by rank, without waiting ---- */

/* What the clock window says. */
struct tr_table_clocks {
    bool works;     /* this rank computes, and so starts merges itself */
    int64_t limit;  /* clocks below it will be run */
    int64_t read;   /* all workers have read for clocks < read */
    int64_t pushed; /* all rows that were pushed in clocks < pushed have reached their servers */
};

/* Takes part in the next merge if it is sure to come and this rank only serves; and adds updates of the next clock that the
 * server holds, once `clocks` says that they may become visible. */
int tr_table_serve(struct tr_table *table, const struct tr_table_clocks *clocks, int *did);

/* All updates of clocks < this that this rank owes the table, as a worker that merges or pushes rows or as a server, have
 * arrived; INT64_MAX: it owes none. (Pushes of views that are not merged: tr_push_busy().) */
int64_t tr_table_settled(const struct tr_table *table);

/* The version of this rank's share; INT64_MAX: it serves none that keeps versions. */
int64_t tr_table_version(const struct tr_table *table);

/* A worker ends its clock: rows that it has added leave, and merges start in which it updates nothing. */
int tr_tables_end_clock(tr_context *tr, int64_t clock);

/* Some merge of this rank is running. */
bool tr_tables_merge(const struct tr_tables *tables);

/* All servers are known to have this version: no function needs to keep earlier ones for readers. */
void tr_tables_set_stable(struct tr_tables *tables, int64_t version);

/* Filters or rounding hold back parts of updates, which a flush at the end of the stage can send. What rounding has taken is
 * lost where some table has a server function, which would take it, or the zeros of another table, for one more gradient. */
bool tr_tables_hold_back(const struct tr_tables *tables);

#endif
