/* Channels and views.
 *
 * A channel is the access of a worker to one server. It reads the units of a segment by one of three routes (load from
 * shared memory, RMA get, request by message), and pushes them in one of three ways (add in shared memory, RMA accumulate,
 * message). All operations are started without waiting and progressed by polls.
 *
 * A view is a worker's copy of some keys of a table. It has a channel to each server. Under BSP its updates are merged with
 * those of all workers instead (merge.c), and keys that several workers of a node read from another node may be fetched
 * once (node.h). sync.c decides when a view is pulled or pushed. */
#ifndef TR_TABLE_VIEW_H
#define TR_TABLE_VIEW_H

#include "table/plan.h"
#include "table/server.h"
#include "table/table.h"

/* ======== channels ======== */

enum tr_way { TR_WAY_ADD, TR_WAY_ACCUMULATE, TR_WAY_MESSAGE };

struct tr_channel {
    struct tr_table *table;
    uint32_t server;
    /* local NULL: values are read contiguously, in the order of the segment */
    const struct tr_segment *segment;
    int rank;  /* of the server */
    int owner; /* the rank that has registered the segment under `tag` */
    uint32_t tag;
    int route; /* TR_ROUTE_LOAD, GET or REQUEST */
    enum tr_way way;
    bool exact;      /* values are never rounded */
    bool registered; /* by this rank */
    void *into;      /* the running read: destination */
    int64_t version; /* the running read: version, or -1 */
    int64_t seen;    /* version of the share at the last read, plus own updates since */

    MPI_Datatype here, there; /* get and accumulate: the segment in the view (or packed) and in the window */
    MPI_Request get, accumulate;
    struct tr_slot *slot; /* request: answers in flight */
    uint32_t asked, got;  /* request: units of the segment */

    uint32_t sending; /* messages in flight */
    char *packed;     /* values that are being accumulated */
    char *residual;   /* packed: residuals of filters and rounding */
};

/* A channel to a server of the table, with all of its resources still unallocated. The segment must live as long. */
struct tr_channel tr_channel_of(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                                uint32_t tag);

/* Chooses the route: loads within the node, gets of ranges, requests otherwise, unless table.route fixes it. TR_ERR_CONFIG:
 * table.route=load, but the server is on another node. */
int tr_channel_choose_route(struct tr_channel *channel);

/* An MPI datatype of n blocks of units, for the caller to free: block i begins at unit position[i] and has length[i] units
 * (length NULL: one). */
MPI_Datatype tr_type_of_units(const struct tr_table *table, size_t n, const int *length, const int *position);

/* Makes the datatypes of get and accumulate. */
int tr_channel_open_types(struct tr_channel *channel);

/* Registers the segment at the server and waits for the acknowledgement. flags: TR_FLAG_PUSHES or 0. */
int tr_channel_register(struct tr_channel *channel, uint32_t flags);

/* First half of closing, without waiting: unregisters the segment if this rank has registered it. Memory of answers in flight
 * is kept in tables->sending until they arrive. */
void tr_channel_forget(struct tr_channel *channel);

/* Waits for RMA in flight, unregisters the segment, and frees the memory of the channel. */
void tr_channel_close(struct tr_channel *channel);

/* Starts to read the segment into `into`; and progresses that. *done: all values have arrived. */
int tr_channel_read(struct tr_channel *channel, void *into, int64_t version);
int tr_channel_poll(struct tr_channel *channel, bool *done, int *did);

/* ======== views ======== */

/* The source of a pull. */
enum tr_pull_from {
    TR_PULL_SERVERS, /* from a table that keeps versions: the values of a version, -1: the current ones */
    TR_PULL_NODE, /* values that the node has fetched may be used if they contain all updates of clocks < least and are
                        newer than this view's last use of them. Not for tables that keep versions */
    TR_PULL_MERGE /* the values that the last merge has brought to this rank for clock merged_for */
};

struct tr_view_state {
    tr_view view; /* the public part */
    enum tr_view_use use;
    bool merged; /* updates are merged */
    uint32_t tag;
    struct tr_plan keys;
    struct tr_channel *channel; /* by server; NULL for a member that its leader serves */
    enum { PULL_IDLE, PULL_READING, PULL_SPREADING } pull;
    enum { PUSH_IDLE, PUSH_GATHERING, PUSH_WAITING, PUSH_SENDING } push;
    int64_t push_clock;
    enum tr_pull_from from;         /* the running pull */
    int64_t version, least;         /* the running pull */
    void *into;                     /* the running pull: destination */
    int64_t holds;                  /* all updates of clocks < holds are in view.value */
    struct tr_node_pull *node_pull; /* for some of the servers; NULL: for none */
    bool ended;                     /* its stage will not run again: it can only be closed */
    bool lent;                      /* view.delta lies in memory of the merge */
    char *merged_value;             /* the values after the last merge, or NULL */
    int64_t merged_for;             /* the clock at which merged_value is read next; -1: none */
    void *ahead;                    /* second buffer, of tr_view_prefetch() and its clock: */
    int64_t ahead_clock;
    bool ahead_wanted, ahead_started; /* it waits until it may be read; it is being read, or complete */
    struct tr_group_share *group;     /* TR_VIEW_GROUP with more than one member */
};

/* Poll function: progresses pulls and pushes of all open views. what: the tr_tables. */
int tr_view_poll(void *what, int *did);

/* Makes the communicators of views of groups, after all ranks have opened all views. Collective over all ranks. */
int tr_views_ready(tr_context *tr);

/* Closes the channels and node pulls of a view, which can only be closed after that. Local. */
void tr_view_end(struct tr_view_state *view);

/* All values of a view that has channels are read directly from memory of this node. */
static inline bool tr_view_reads_near(const struct tr_view_state *v)
{
    for (uint32_t server = 0; server < v->keys.servers; server++)
        if (v->channel[server].route != TR_ROUTE_LOAD && v->channel[server].segment->n > 0) return false;
    return true;
}

/* Starts to fill `into` (n × width elements). number: the version or the least clock (enum tr_pull_from). In a group, the
 * leader reads and broadcasts. At most one pull of a view runs at a time. */
int tr_pull_start(tr_view *view, void *into, enum tr_pull_from from, int64_t number);

static inline bool tr_pull_busy(const tr_view *view)
{
    return view->state->pull != PULL_IDLE;
}

/* Gives up waiting for the group's broadcast, which may still write into the view until the stage ends. */
void tr_pull_leave(tr_view *view);

/* Starts to add view->delta to the table as part of `clock`; delta is zero once the push is complete. In a group, deltas of the
 * members are summed first, and the leader pushes the sum. */
int tr_push_start(tr_view *view, int64_t clock);

static inline bool tr_push_busy(const tr_view *view)
{
    return view->state->push != PUSH_IDLE;
}

/* One line for --explain: routes, ways of pushing, and whether keys are registered. Without the number of keys, so that lines of
 * different workers can be compared. */
void tr_view_describe(const tr_view *view, char *text, size_t size);

static inline size_t tr_view_bytes(const tr_view *view)
{
    return view->n * view->width * tr_dtype_size(view->table->dtype);
}

/* ======== merges ========
 *
 * Under BSP all updates of a clock are added as one sum. On one node, servers read the updates in shared memory; between nodes,
 * updates travel in rounds. See merge.c. */

/* Opens the merge of a table if some view of the stage is merged. Collective over all ranks, after all views are open. */
int tr_merge_open(struct tr_table *table);
void tr_merge_close(struct tr_table *table);

/* Starts the next merge, with view->delta or, view NULL, without a contribution. Each rank that serves the table or works calls
 * it once for each clock in which the table is updated. Precondition: !tr_merge_busy(). */
int tr_merge_start(struct tr_table *table, tr_view *view);
bool tr_merge_busy(const struct tr_table *table);
/* The next merge is that of the first clock again. On all participants, before the stage starts. */
void tr_merge_begin(struct tr_table *table);
/* The clock of the next merge: updates of earlier ones are in this rank's share. INT64_MAX: this rank takes part in none. */
int64_t tr_merge_done(const struct tr_table *table);
int tr_merge_poll(void *what, int *did); /* poll function; what: the tr_tables */

/* One line for --explain, on ranks that serve. */
void tr_merge_describe(const struct tr_table *table, char *text, size_t size);

/* The degree of rounds that should be fastest for n participants that together hold `held` units of a table of `units`,
 * each of unit_bytes. */
int tr_merge_choose_degree(int n, double held, double units, size_t unit_bytes);

#endif
