/* The workers' access to tables: channels, views, merges, node pulls, subscriptions and rows.
 *
 * A channel is the access of a worker to one server. It reads the units of a segment by one of three routes (load from
 * shared memory, RMA get, request by message), and pushes them in one of three ways (add in shared memory, RMA accumulate,
 * message). All operations are started without waiting and progressed by polls.
 *
 * A view is a worker's copy of some keys of a table. It has a channel to each server. Under BSP its updates are merged with
 * those of all workers instead (merge.c), and keys that several workers of a node read from another node may be fetched
 * once (node.c). Rows in any order are pulled without a view (rows.c). sync.c decides when values are pulled or pushed. */
#ifndef TR_TABLE_VIEW_H
#define TR_TABLE_VIEW_H

#include "table/plan.h"
#include "table/server.h"
#include "table/table.h"
#include "trireme/table.h"

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
    char *
        fetched; /* get of scattered units: units 0 .. span-1 of the share; NULL: the get writes to its destination */
    uint32_t span;
    bool fetching; /* a get into `fetched` is running */
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

/* Chooses the route: loads within the node, gets of ranges, requests otherwise, unless the job sets table.route. TR_ERR_CONFIG:
 * table.route=load, but the server is on another node. */
int tr_channel_choose_route(struct tr_channel *channel);

/* An MPI datatype of n blocks of units, for the caller to free: block i begins at unit position[i] and has length[i] units
 * (length NULL: one). */
MPI_Datatype tr_type_of_units(const struct tr_table *table, size_t n, const int *length, const int *position);

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

/* Starts to push the segment's part of `delta` as part of `clock`; on return, delta may be changed. value: of the same units, for
 * filters. It is complete when `sending` is 0 and `accumulate` is done; accumulated values have arrived after MPI_Win_flush(). */
int tr_channel_push(struct tr_channel *channel, const void *delta, const void *value, int64_t clock);

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

/* Starts the next merge with view->delta, or without a contribution (view NULL). Each server and each worker calls it once for each
 * clock in which the table is updated. Precondition: !tr_merge_busy(). */
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

/* ======== caches of a node ========
 *
 * A node cache has values that one worker of a node has fetched from a server of another node, for the other workers. It lies
 * in memory that the node shares and has a fixed number of entries of one size; item i can only be in entry i modulo their
 * number. A worker that needs an item that is not cached claims its entry and fetches it. A worker that finds the entry claimed
 * does other work and returns later, so workers that run in step divide the fetching. The claim fails if the entry is in use
 * for another item or is being read: workers wait only for items that are being fetched, and each fetch ends.
 *
 * Fetches are numbered. A fetch contains all updates of clocks < holds, because these were in the tables before it started. A
 * worker at clock c may use a fetch
 *   under BSP         if holds = c (it has no newer update: none of clock c is visible before all workers have read for c)
 *   under SSP, ASP    if holds ≥ c - s and its number is above `after`: it started after the worker's own last update had arrived
 *                     or, for a worker that only reads, after the fetch that this worker used last */
struct tr_cache_head;

struct tr_node_cache {
    struct tr_cache_head *head; /* NULL: there is none */
    char *value;                /* by entry */
    uint64_t entries;
    size_t stride; /* of a value */
};

/* Which fetches a worker may use. */
struct tr_cache_terms {
    bool lockstep;
    int64_t least;  /* those with all updates of clocks < least and, in lockstep, no others */
    uint64_t after; /* those with higher numbers */
};

enum tr_cache_state {
    TR_CACHE_HERE,    /* cached */
    TR_CACHE_COMING,  /* another worker fetches it */
    TR_CACHE_CLAIMED, /* the caller has claimed it now */
    TR_CACHE_NONE     /* none of these */
};

/* A fetch. */
struct tr_cache_fetch {
    uint64_t number;
    int64_t holds;
    int64_t version; /* of the share */
};

/* Bytes of memory for a cache; and a cache in such memory, which starts on a cache line and is the same for all ranks of the
 * node. It is empty if the memory is zero. */
size_t tr_cache_bytes(uint64_t entries, size_t value_bytes);
struct tr_node_cache tr_cache_at(void *memory, uint64_t entries, size_t value_bytes);

/* Number of the latest fetch. */
uint64_t tr_cache_number(const struct tr_node_cache *cache);

/* Looks up an item. If it is not cached and no worker fetches it, claims its entry unless that is in use. holds: the fetch that
 * the caller will start contains all updates of clocks < holds. */
enum tr_cache_state tr_cache_claim(struct tr_node_cache *cache, uint64_t item,
                                   const struct tr_cache_terms *terms, int64_t holds);

/* The value of an item, for a caller that has taken it (to read) or claimed it (to write). */
void *tr_cache_value(const struct tr_node_cache *cache, uint64_t item);

/* The caller has written the value of an item that it claimed; others may use it after tr_cache_put(). Returns the fetch. */
struct tr_cache_fetch tr_cache_fetched(struct tr_node_cache *cache, uint64_t item, int64_t version);

/* Ends a fetch; fetched = false: it has failed. */
void tr_cache_put(struct tr_node_cache *cache, uint64_t item, bool fetched);

/* Takes an item. TR_CACHE_HERE: its value does not change until tr_cache_give_back(), and *fetch describes it (fetch may be NULL).
 * TR_CACHE_NONE: it is not cached (any more). */
enum tr_cache_state tr_cache_take(struct tr_node_cache *cache, uint64_t item,
                                  const struct tr_cache_terms *terms, struct tr_cache_fetch *fetch);
void tr_cache_give_back(struct tr_node_cache *cache, uint64_t item);

/* ======== node pulls ========
 *
 * Workers of a node that read the same keys of a server on another node fetch them once.
 *
 * The i-th views that the workers of a node have opened of a table for the same use (read, update, group) form a node pull. So
 * workers that open their views in the same order share them, and rounded values are never mixed with exact ones. If several of
 * these views read from a server on another node, and sharing saves at least a fifth, one rank of the node registers the union of
 * their keys, and a node cache with one entry holds its values. Any of the workers may fetch them; then each copies its own keys.
 * Each worker starts with other servers than its neighbours, so that workers in step divide the fetching.
 *
 * Under SSP, a worker cannot use a fetch that started before its own last update had arrived. Of two workers in step, the
 * update of the second arrives during the fetch of the first, so each would fetch for itself. Therefore, if updates are simply
 * added (the condition of tr_view_prefetch()), a worker looks at the latest fetch just before it pushes. If that started after
 * its previous update had arrived, it lacks only the delta that is about to be sent: the worker adds the delta to a copy and
 * uses it for the next clock, like a prefetched one. So there is about one fetch per clock of the faster workers. The values
 * may be one clock of the worker old, as prefetched ones are; the staleness bound holds. Such views are not prefetched. */

struct tr_node_pull;

/* Opens the node pulls of all tables, after all views of the stage are open. Collective over all ranks. On a node without memory
 * for one, each worker fetches for itself. */
int tr_node_pull_open(tr_context *tr);

/* The route by which the node pull reads from a server, TR_ROUTE_GET or TR_ROUTE_REQUEST; -1: the view reads for itself. */
int tr_node_pull_route(const struct tr_node_pull *pull, uint32_t server);

/* Unregisters the node pulls of a table; and frees them, after all these messages have arrived, collectively over the ranks of
 * the node. */
void tr_node_pull_forget(struct tr_table *table);
void tr_node_pull_free(struct tr_table *table);

/* This rank's view is being closed. */
void tr_node_pull_leave(struct tr_node_pull *pull);

/* Starts to read the view's keys of a server as its running pull says; and progresses that. */
void tr_node_pull_read(struct tr_node_pull *pull, uint32_t server);
int tr_node_pull_poll(struct tr_node_pull *pull, uint32_t server, bool *done, int *did);

/* An update of the view has arrived: fetches that started before may lack it. */
void tr_node_pull_pushed(struct tr_node_pull *pull);

/* For each server there is a fetch that this view may use, with all updates of clocks < least. */
bool tr_node_pull_has_news(const struct tr_node_pull *pull, int64_t least);

/* ======== subscriptions ========
 *
 * Rows that a worker reads after each update of a table (tr_rows_subscribe()). Under BSP they arrive with each merge, without
 * requests. The rows to which the workers of a node subscribe are united. Each worker receives a slice of the union, by rounds
 * (merge.c) that run from the servers down, into memory that the node shares: a row travels to a node once, in the chunks of the
 * merge. For each slice and chunk, a number says with which merge its rows have arrived. No rank overwrites them before all workers
 * take part in the next merge, and so have read them. Rows of servers on the node itself are read directly. */

struct tr_subscription {
    struct tr_table *table;
    tr_key *key; /* the subscribed list of this worker */
    size_t n;
    int members, member; /* number of workers of this node, and which one this is; -1: none */
    uint32_t chunk, chunks;

    size_t units;         /* slots: units of the node's union */
    struct tr_plan slice; /* the rows that this rank receives */
    char *slice_value;    /* memory in which `local` of the slice counts */
    struct tr_shm memory; /* the first rank's: */
    _Atomic int64_t *
        arrived; /* by chunk and member: the number of the merge with which the rows have arrived; NULL: none do */
    char *value;    /* by slot */
    int64_t merge;  /* number of merges in which this rank has taken part */
    int64_t wanted; /* number of the last merge of this stage, or 0 */

    /* own rows that arrive, by chunk and member: a part begins at each of these */
    uint32_t *begin, *place, *slot;
    uint32_t *left; /* parts that have not been taken, ascending */
    size_t lefts;
};

/* Rows that have arrived: row place[i] of the subscribed list has its values in slot slot[i]. */
struct tr_subscribed {
    size_t n;
    const uint32_t *place, *slot;
    const char *value; /* of slot 0 */
};

/* Opens the subscription of rows that workers have subscribed to since the last call; a chunk has `chunk` positions of each share.
 * Collective over all ranks. A node without memory for its union receives nothing. */
int tr_subscription_open(struct tr_table *table, uint32_t chunk, uint32_t chunks);
void tr_subscription_close(struct tr_table *table);

/* Forgets rows that this worker has subscribed to since the last call of tr_subscription_open(). */
void tr_subscription_discard(struct tr_table *table);

/* A chunk of this rank's slice has arrived with the current merge. */
void tr_subscription_put(struct tr_subscription *subscription, uint32_t chunk);

/* tr_subscription_has(): the rows of this list arrive with the last merge, except those of this node. Then begin, and take until
 * all have been delivered: *rows are some that have arrived, with all updates of earlier clocks and none of later ones. False:
 * none at the moment. */
bool tr_subscription_has(const struct tr_table *table, const tr_key *keys, size_t n);
void tr_subscription_begin(struct tr_subscription *subscription);
bool tr_subscription_take(struct tr_subscription *subscription, struct tr_subscribed *rows);

/* ======== rows ========
 *
 * Pulling. The list is split by server. Rows that this rank reads directly are delivered while no answer has arrived. For the
 * others, up to table.ahead requests to each server are in flight, each for the number of rows that fit into table.row_bytes,
 * while the rows of an answer are delivered. Between two rows, but at most every 0.5 ms, the rank polls: it receives answers,
 * sends further requests, and serves other ranks. Rows that other workers of the node fetch or have fetched come from a node
 * cache. The length of a sparse row is known only from the answer: the server fills table.row_bytes, and rows that do not fit,
 * or the rest of a row, are requested again.
 *
 * Pushing. Entries that are added to sparse rows are written into one message for each server. It is sent when it is full, before
 * this worker pulls from the table, and at the end of the clock. Under BSP servers hold such messages, as they do those of views.
 * The last message to each server in a clock is acknowledged, and TR_CLOCK_PUSHED says when those of all workers are: a worker
 * without entries for a server sends it nothing. */

/* Terms of a pull, set by sync.c. */
struct tr_rows_terms {
    bool still;    /* no value changes during the pull: rows are delivered without a copy */
    bool exact;    /* values are not rounded */
    bool shared;   /* rows that other workers of the node have fetched may be used; see `least` */
    int64_t least; /* rows must contain all updates of clocks < least and, in lockstep, no others */
    int64_t holds; /* all updates of clocks < holds are in the tables now */
    /* Rows of other nodes arrive with the last merge (subscriptions), so the pull starts before that is complete. Rows of
     * this node are delivered once all updates of clocks < least are known to be in the tables. */
    bool subscribed;
};

/* tr_rows_pull() without waiting for clocks. *computed: seconds spent in row(). TR_ERR_INTERNAL: a key does not exist, the table
 * rests or keeps versions, or another pull of the table is running. */
int tr_rows_move(struct tr_table *table, const tr_key *keys, size_t n, tr_row_fn *row, void *state,
                 const struct tr_rows_terms *terms, double *computed);

/* tr_rows_push() as part of `clock`. TR_ERR_INTERNAL: the table has no sparse rows or rests, a key does not exist, or columns do
 * not ascend below the width. */
int tr_rows_add(struct tr_table *table, const tr_row *rows, size_t n, int64_t clock);

/* The worker's clock ends: sends the entries that it added; each server acknowledges the last message. */
int tr_rows_end_clock(struct tr_table *table, int64_t clock);

/* Servers hold pushed rows of a clock until those of all workers have arrived. */
static inline bool tr_rows_wait(const struct tr_table *t)
{
    return t->sparse && t->lockstep && !t->rests;
}

/* The lowest clock with pushed rows in flight; INT64_MAX: none. */
int64_t tr_rows_sending(const struct tr_table *table);

/* Bytes of memory for answers that this rank keeps between pulls. */
size_t tr_rows_memory(const struct tr_table *table);

/* For a new table. */
int tr_rows_open(struct tr_table *table);

/* Starts a stage, after all its views are open. Collective over all ranks. */
int tr_rows_begin(struct tr_table *table);

/* An update of a view of this worker has arrived: rows that the node fetched before may lack it. */
void tr_rows_pushed(struct tr_table *table);

int tr_rows_poll(void *what, int *did); /* poll function; what: the tr_tables */

/* Collective over the ranks of the node. */
void tr_rows_free(struct tr_table *table);

#endif
