/* table/ — parameters: blocks in memory of their servers, views of workers, and the routes between them.
 *
 *   partition  which server holds which unit
 *   keyset     the keys of a view, split by server
 *   elements   inner loops that move and add
 *   table      shares in node-shared memory and RMA windows
 *   hashmap    a share with hash storage: just the keys that have been updated
 *   sparse     a share whose rows are sparse
 *   function   server functions: what a table's servers do with updates, and the answers they compute
 *   server     answers registered key sets, pulls and pushes that come as messages
 *   view       pulls by load, get or request; pushes by direct adding, accumulate or message
 *   channel    what a view has with one server
 *   together   pulls of several workers of a node as one
 *   rows       rows in any order, and what is added to sparse ones
 *   rows_ask   … asked of servers, and their answers
 *   shelf      … shared by the workers of a node
 *   merge      pushes of all workers of a clock at once, by nonblocking collectives (BSP)
 *   near       … by plain adding, in memory that a node shares
 *   local      memory that a node shares, for models that its ranks work on together; a node's own copy of a table
 *   transfer   … handed from node to node
 *   resize     more or fewer servers
 *   park       what a stage has opened, put aside while another one runs
 *
 * This room moves values when it is told to; when that is allowed is decided by consistency/.
 *
 * A unit is what lies in one piece at one place: an element of a vector, a row of a matrix, or, where rows
 * are cut (2-D blocks), a piece of a row.
 */
#ifndef TR_TABLE_H
#define TR_TABLE_H

#include <stdatomic.h>

#include "ranks/ranks.h"
#include "table/elements.h"
#include "table/filter.h"
#include "table/hashmap.h"
#include "table/keyset.h"
#include "table/partition.h"
#include "table/sparse.h"
#include "trireme/function.h"
#include "trireme/table.h"

/* What has moved, as counted by the worker that asked for it; bytes of values, with headers of messages. */
struct tr_traffic {
    uint64_t bytes_pulled, bytes_pushed;
    uint64_t pulls, pushes, messages;
    struct tr_filter_counts filtered; /* units of updates */
    double wait_seconds, pull_seconds, push_seconds;
};

/* What serving has taken on one rank. */
struct tr_service {
    double seconds;       /* of handling messages */
    double share_bytes;   /* values of all tables here */
    double version_bytes; /* kept beside them by functions, at most so far */
};

/* How one worker's updates reach one server where they are not merged, once the job's wish and the nodes are
 * known. */
enum tr_way { TR_WAY_ADD, TR_WAY_ACCUMULATE, TR_WAY_MESSAGE };

/* Units under one lock of direct adding. */
enum { TR_LOCK_UNITS = 1024 };
/* Values of one message of a request or a push. */
enum { TR_MESSAGE_BYTES = 1 << 18 };

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

    bool left_out; /* of checkpoints */

    bool sparse;                    /* rows are lists that their servers alone can read … */
    struct tr_sparse *sparse_share; /* … on servers */

    uint64_t share_units; /* of this rank; 0 where it does not serve, with hash storage, and of sparse rows */
    void **share;         /* by server: its memory where this rank can read it directly, else NULL */
    atomic_uint **locks;  /* by server: beside the share */
    struct tr_share_line **line; /* by server, too */
    MPI_Win shared;              /* owns the memory of the shares */
    MPI_Win window;              /* all shares for all ranks; MPI_WIN_NULL where nobody needs it */

    int route; /* TR_ROUTE_… and TR_PUSH_…, as the job wishes */
    int push;
    bool lockstep;           /* BSP: an update shows only when all of its clock are there */
    struct tr_wire wire;     /* how values are written in messages */
    struct tr_filter filter; /* what stays behind of updates sent as messages */
    struct tr_use *use;      /* the function that takes updates; NULL: they are added */

    struct tr_client **client; /* key sets registered with this server */
    size_t clients, client_capacity;
    size_t pushing_clients;
    int64_t served;       /* clocks of this stage of which all pushed messages have been applied (lockstep) */
    struct tr_held *held; /* messages of the clock served next, and of later ones */
    size_t held_last;     /* clients of which all of the clock served next is here */

    uint32_t next_tag;
    uint32_t updating_views; /* of this worker */
    bool near;               /* merges in node-shared memory */
    struct tr_merge *merge;
    struct tr_together *together;   /* what this rank's node pulls as one: a list */
    struct tr_rows *rows;           /* what this rank pulls row by row */
    struct tr_additions *additions; /* … and pushes; NULL before the first time */
};

/* A key set as its server knows it. */
struct tr_client {
    int rank;
    uint32_t tag;
    bool pushes;
    int pusher; /* its number among those who push in this stage */
    uint32_t n;
    uint32_t *position;           /* NULL: 0..n-1, or hash storage … */
    struct tr_hash_list keys;     /* … where this says which */
    struct tr_arriving *arriving; /* an update for a function, of which not all messages are here */
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
    struct tr_view_state **views; /* open ones, for the poll */
    size_t view_count, view_capacity;
    struct tr_functions *functions; /* known by name */
    int status;               /* of the first server function that failed here; what follows is ignored … */
    char why[512];            /* … and what it said */
    struct tr_reply *replies; /* sends on their way: answers, and what is to be forgotten */
    char *inbox;              /* a message just received */
    size_t inbox_size;
    char *packed; /* a message's values before or after encoding, and its units */
    uint32_t *unit;
    size_t packed_size, unit_size;
    uint32_t next_request;
    uint32_t next_server; /* of the layout, where the next table on some servers begins */
    int64_t written;      /* updates of clocks < written are in the tables, as far as consistency/ has said */
    /* Clocks of this stage that an earlier part of the run has ended: they count on for server functions and filters,
     * though the stage's own begin at 0. */
    int64_t before;
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

/* Whether all ranks of this node together can have so many bytes each of memory that the node shares; all ranks. */
int tr_room_in_shared_memory(tr_context *tr, uint64_t bytes);

/* tr_table_create_with(), with servers counted from the same one on as those of another table (NULL: as usual). */
int tr_table_make(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                  const tr_table_options *options, const struct tr_table *like, struct tr_table **table);

int tr_tables_open(tr_context *tr);
void tr_tables_close(tr_context *tr); /* all ranks */

/* What table.filter kkt has to know of the table: the factor of |w|₁ beside what one pusher pushes, and how many times
 * the gradient that is. */
static inline void tr_table_filter_l1(struct tr_table *t, double alpha, double scale)
{
    t->filter.alpha = alpha;
    t->filter.scale = scale;
}

/* Makes ready to receive by all ways what views push: all ranks, after all views of a stage are open. */
int tr_tables_ready(tr_context *tr);

/* What a stage has opened, put aside while others run. */
struct tr_parked {
    struct tr_view_state **views;
    size_t view_count, view_capacity;
    struct tr_parked_table {
        struct tr_merge *merge;
        uint32_t updating_views;
    } * table; /* of the first `tables` tables of the context */
    size_t tables;
};

/* The stage that has just been made ready goes on where an earlier part of the run stood: so many clocks are over. Called
 * on all ranks before its first clock. What views hold is to be read again. */
void tr_tables_count_from(tr_context *tr, int64_t clocks);

/* What this rank has to do with the stage that has just been made ready: whether others need it as a server, and (the same
 * on all ranks) whether the stage can be put aside and taken up again: not with server functions, hash storage, sparse
 * rows or updates as messages, whose servers count who pushes. All ranks. */
int tr_tables_needs(tr_context *tr, bool *needed, bool *parks);

/* Puts aside what is open, and takes it up again as it was before the first clock. Each participant for itself. What is
 * not to be kept is put aside only until it can be ended. */
int tr_tables_park(tr_context *tr, bool snapshot, struct tr_parked *parked);
int tr_tables_take_up(tr_context *tr, struct tr_parked *parked);

/* Ends what was put aside: its views can only be closed. All ranks. */
void tr_tables_part(tr_context *tr, struct tr_parked *parked);

/* The stage's last update has arrived everywhere: what functions keep apart becomes part of the values. All ranks. */
int tr_tables_settle(tr_context *tr);

/* ---- server ---- */

enum tr_message_kind {
    TR_MESSAGE_REGISTER,
    TR_MESSAGE_FORGET,
    TR_MESSAGE_PULL,
    TR_MESSAGE_PUSH,
    TR_MESSAGE_ASK,
    TR_MESSAGE_ROWS
};

struct tr_message {
    uint32_t kind, table, tag;
    uint32_t reply; /* number of the answer's tag; 0: no answer wanted */
    /* slice of the client's segment; ask: which answer, and bytes of the question; rows: n of them, listed behind this;
     * push of sparse rows: number of the message in its clock */
    uint32_t first, n;
    uint32_t flags;
    int32_t owner; /* pull: the rank that has registered the tag, any of the asker's node */
    /* push: of the pusher; pull: the version to be read; ask, and rows that are sparse: bytes of room for the answer */
    int64_t clock;
    int64_t seen; /* push: version of the share that the pusher knows */
};

/* In front of every answer that carries something. */
struct tr_reply_head {
    int64_t version; /* of the share */
    uint32_t bytes;  /* that follow */
    uint32_t failed; /* they are the text of an error */
};
enum { TR_FLAG_PUSHES = 1, TR_FLAG_IDENTITY = 2, TR_FLAG_LAST = 4, TR_FLAG_EXACT = 8 };

int tr_server_poll(void *tables, int *did);
void tr_server_forget_all(struct tr_table *table);
void tr_server_forget_slots(
    struct tr_table *table); /* the map has been emptied: keys are to be looked up again */
const struct tr_client *tr_server_client(const struct tr_table *table, int rank, uint32_t tag); /* or NULL */

/* Lets a server forget a key set: leaves without waiting, and has been received when tables->replies is empty. */
int tr_server_tell_forget(struct tr_table *table, int rank, uint32_t tag);
uint32_t tr_request_number(struct tr_tables *tables); /* for message.reply: different for all under way */

/* In lockstep, updates that came as messages are held back: whether all of the clock served next are here, and
 * adding them, for whoever knows that everybody has read for that clock. */
bool tr_server_holds_clock(const struct tr_table *table);
int tr_server_apply_held(struct tr_table *table);

/* Adds a view's slice to a share that this rank reaches directly, under the locks of direct adding: the
 * workers of its node and its server may add at the same time. */
void tr_locked_add(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                   const void *view);

/* Copies a unit of such a share, under its lock. */
void tr_locked_copy(struct tr_table *table, uint32_t server, uint32_t position, void *to);

/* Does as if a message with a push had come, from this rank itself. */
int tr_server_push_here(struct tr_table *table, const struct tr_message *message, const void *data,
                        size_t bytes);

/* An answer to be filled and sent to whoever asked. */
int tr_server_reply(struct tr_table *table, int rank, uint32_t number, const struct tr_reply_head *head,
                    const void *data);

/* ---- functions ---- */

/* A table's function at work. */
struct tr_use {
    tr_function function;
    tr_share share;    /* of this rank, if it serves */
    int64_t *passed;   /* by pusher: it has pushed for all versions below */
    int64_t expired;   /* versions below are not needed any more */
    bool sums;         /* merged under BSP … */
    char *sum;         /* … all updates of a clock … */
    uint64_t *touched; /* … and which units they touch: a bit each */
    size_t touched_words;
    uint64_t *sorted; /* units that did not ascend */
    size_t sorted_room;
    uint32_t *unit; /* an update without its zeros */
    char *value;
    size_t unit_room, value_room;
};

int tr_functions_open(struct tr_tables *tables);
void tr_functions_close(struct tr_tables *tables);

/* tr_function_register() and tr_answer_register() without agreement: for what all ranks have. */
int tr_function_add(struct tr_tables *tables, const tr_function *function);
int tr_answer_add(struct tr_tables *tables, const tr_answer *answer);

/* All pushing views are registered: a stage may begin, with all versions at 0. */
int tr_use_begin(struct tr_table *table);

/* All updates of a stage have arrived: nothing is kept apart from the values any more. */
void tr_use_end(struct tr_table *table);
void tr_use_free(struct tr_table *table);

/* One whole update. A function that fails is described in tables->status, and the job ends when it can. */
void tr_use_update(struct tr_table *table, int pusher, const struct tr_message *message, size_t n,
                   const uint32_t *unit, const void *value);

/* Hash storage has grown, and may have moved. */
void tr_use_follow(struct tr_table *table);

/* Under BSP, when all updates of a clock have been handed over. */
void tr_use_clock(struct tr_table *table, int64_t clock);

/* n units into packed memory, as of a version. */
int tr_use_read(struct tr_table *table, int64_t version, size_t n, const uint32_t *unit, void *packed);

/* Bytes that functions keep besides values and state, on this rank. */
size_t tr_use_memory(const struct tr_table *table);

/* The server's end of tr_table_ask(). */
int tr_use_answer(struct tr_table *table, int rank, const struct tr_message *message, const void *question);

/* Updates are not merged: they come as messages and are held back by servers under BSP. */
static inline bool tr_table_by_message(const struct tr_table *t)
{
    return t->use || t->hash || t->sparse || t->push == TR_PUSH_MESSAGE || t->filter.kind != TR_FILTER_NONE ||
           t->wire.precision != TR_PRECISION_FULL;
}

/* n units as they travel in messages: an update, or (exact: never rounded) what is read. */
static inline struct tr_slice tr_slice_of(const struct tr_table *t, uint32_t n)
{
    return (struct tr_slice){.dtype = t->dtype, .n = n, .width = t->unit_width};
}
static inline struct tr_wire tr_push_wire(const struct tr_table *t)
{
    bool all = t->use && !t->use->function.sparse;
    return (struct tr_wire){all ? TR_ENCODING_DENSE : t->wire.encoding, t->wire.precision};
}
static inline struct tr_wire tr_pull_wire(const struct tr_table *t, bool exact)
{
    int rounded = t->wire.precision == TR_PRECISION_F8 ? TR_PRECISION_F16 : t->wire.precision;
    return (struct tr_wire){t->wire.encoding, exact ? TR_PRECISION_FULL : rounded};
}

/* ---- views ---- */

int tr_views_poll(void *tables, int *did);

/* Ends what a view has with servers and others of its node: it can only be closed then. */
void tr_view_part(struct tr_view_state *view);

/* The members of a group join hands over the views they have opened: all ranks, after all of them have opened all. */
int tr_views_ready(tr_context *tr);

/* All its values are read directly from memory of this node. */
bool tr_view_is_near(const tr_view *view);

/* Starts to fill `into` (n × width elements) with what the servers have now, or had at a version, where they keep
 * versions (-1: now). In a group, the leader reads and spreads what it has read. */
int tr_pull_start(tr_view *view, void *into, int64_t version);

/* The same, but what the node pulls as one may be what it has pulled already, if all updates of clocks < least are
 * in it and it is not too old for this view: see together.h. Tables that keep versions are not read so. */
int tr_pull_start_together(tr_view *view, void *into, int64_t least);
bool tr_pull_busy(const tr_view *view);

/* Starts to add delta to the table as part of this clock, and leaves a delta of zeros to be written. In a group,
 * the members' deltas are summed first, and only the leader goes on. */
int tr_push_start(tr_view *view, int64_t clock);
bool tr_push_busy(const tr_view *view);

/* One view's parts that its user need not see. */
struct tr_view_state {
    tr_view view; /* what the user holds */
    enum tr_view_use use;
    bool merged; /* its updates go by merge */
    uint32_t tag;
    struct tr_keyset keys;
    struct tr_channel *channel; /* by server; NULL for a member that its leader serves */
    enum { PULL_IDLE, PULL_READING, PULL_SPREADING } pull;
    enum { PUSH_IDLE, PUSH_GATHERING, PUSH_WAITING, PUSH_SENDING } push;
    int64_t push_clock;
    int64_t version;              /* that is being read, or -1 */
    int64_t least;                /* all updates of clocks < least have to be in what is being read */
    int64_t holds;                /* all updates of clocks < holds are in value */
    bool joins;                   /* what is being read may be what the node reads as one … */
    struct tr_together *together; /* … from some of the servers; NULL: from none */
    bool parted;                  /* of a stage that will not run again: it can only be closed */
    bool lent;                    /* delta lies in memory of the merge */
    void *into;
    void *ahead; /* second buffer of tr_view_prefetch() */
    int64_t ahead_clock;
    bool ahead_wanted, ahead_started;
    struct tr_group_share *group; /* TR_VIEW_GROUP with more than one member */
};

/* One line for --explain: the routes and ways to its servers, and what is registered there. Says nothing of the
 * number of keys, so that views of different workers compare. */
void tr_view_describe(const tr_view *view, char *text, size_t size);

static inline size_t tr_view_bytes(const tr_view *view)
{
    return view->n * view->width * tr_dtype_size(view->table->dtype);
}

MPI_Datatype tr_dtype_mpi(enum tr_dtype dtype);

/* ---- merge ---- */

/* Merging in memory that the node shares, where there is one node: see near.c. tr_near_open() and
 * tr_near_close() are for all ranks; tr_near_poll() says when a merge is complete for this rank. */
struct tr_near;
int tr_near_open(struct tr_table *table, struct tr_near **near);
void tr_near_close(struct tr_near **near);
void tr_near_begin(struct tr_near *near); /* this rank's next clock is 0 again */
void tr_near_start(struct tr_near *near, int64_t clock);
bool tr_near_poll(struct tr_near *near, int64_t clock, int *did);

/* Whether the view that the merge knows still exists. */
bool tr_merged_view_is_open(const struct tr_table *table, const tr_view *view);

/* All ranks, after the views of a stage are open; does nothing where no view is merged. */
int tr_merge_open(struct tr_table *table);
void tr_merge_close(struct tr_table *table);

/* Takes part in the merge of the next clock with this view's delta, or with nothing (NULL). Every rank that
 * serves or updates the table does so once a clock. */
int tr_merge_start(struct tr_table *table, tr_view *view);
bool tr_merge_busy(const struct tr_table *table);
void tr_merge_begin(
    struct tr_table *table); /* the next clock is 0 again; before the participants begins a stage */
/* clocks merged and applied here; INT64_MAX: no merge here */
int64_t tr_merge_done(const struct tr_table *table);
int tr_merge_poll(struct tr_table *table, int *did);

/* How updates are merged, for --explain; right on ranks that serve. */
void tr_merge_describe(const struct tr_table *table, char *text, size_t size);

#endif
