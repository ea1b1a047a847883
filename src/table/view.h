/* The workers' access to tables: channels, views, merges, node pulls, subscriptions and rows.
 *
 * A channel gives a worker access to the units of a segment on one server. It reads them by one of three routes (load from shared
 * memory, RMA get, request by message), and pushes updates of them in one of three ways (add in shared memory, RMA accumulate,
 * message). All operations are started without waiting, and progress when they are polled.
 *
 * A view is a worker's copy of some keys of a table. It reads and pushes by a channel to each server, with two exceptions: under
 * BSP updates may be merged with those of all workers (merge.c), and values from another node may be fetched once for all workers
 * of a node (node.c). Rows in any order are pulled without a view (rows.c). sync.c decides when values are pulled or pushed. */
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
    /* the units that this channel reads and pushes. If segment->local is NULL, values are read contiguously, in the order of the
     * segment */
    const struct tr_segment *segment;
    int rank;     /* rank of the server */
    int owner;    /* rank that has registered the segment at the server under `tag` */
    uint32_t tag; /* identifies the segment at the server, together with `owner` */
    int route;    /* TR_ROUTE_LOAD, GET or REQUEST */
    enum tr_way way;
    bool exact;      /* values are never rounded */
    bool registered; /* this rank has registered the segment, and must unregister it */
    void *into;      /* destination of the running read */
    int64_t version; /* version that the running read requests; -1: the current values */
    /* version of the share at the last read, plus number of this worker's updates since then */
    int64_t seen;

    /* get and accumulate: datatypes of the segment in the destination of a read, and in the server's window */
    MPI_Datatype here, there;
    char *fetched; /* get of scattered units: buffer for units 0 .. span-1 of the share */
    uint32_t span; /* number of units of a get into `fetched`; 0: gets write to `into` directly */
    bool fetching; /* a get into `fetched` is running */
    MPI_Request get, accumulate;
    struct tr_slot *slot; /* request: SLOTS buffers for answers in flight */
    uint32_t asked, got;  /* request: number of units of the segment that were requested, and received */

    uint32_t sending; /* number of messages in flight */
    char *packed;     /* accumulate: buffer of the values in flight */
    char *residual;   /* message: residuals of filters and rounding, in the order of the segment; or NULL */
};

/* Returns a channel without memory, which is allocated at first use. The segment must outlive it. */
struct tr_channel tr_channel_of(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                                uint32_t tag);

/* Chooses the route of a channel. Unless the job sets table.route, it is load within the node, get for contiguous units, and
 * request for scattered ones. TR_ERR_CONFIG: table.route=load, but the server is on another node. */
int tr_channel_choose_route(struct tr_channel *channel);

/* Returns an MPI datatype of n blocks of units, which the caller frees. Block i begins at unit position[i] and has length[i] units,
 * or one unit if length is NULL. */
MPI_Datatype tr_type_of_units(const struct tr_table *table, size_t n, const int *length, const int *position);

/* Registers the segment at the server and waits for the acknowledgement. flags: TR_FLAG_PUSHES if updates will be pushed, or 0. */
int tr_channel_register(struct tr_channel *channel, uint32_t flags);

/* Unregisters the segment if this rank has registered it, without waiting. Buffers of answers in flight move to tables->sending,
 * where they are kept until the answers arrive. */
void tr_channel_forget(struct tr_channel *channel);

/* Waits for RMA operations in flight, unregisters the segment, and frees the memory of the channel. */
void tr_channel_close(struct tr_channel *channel);

/* Starts to read the segment into `into`. version: see tr_channel.version. */
int tr_channel_read(struct tr_channel *channel, void *into, int64_t version);

/* Progresses the read. Sets *done to true when all values have arrived. */
int tr_channel_poll(struct tr_channel *channel, bool *done, int *did);

/* Starts to push the segment's units of `delta` as part of the update of `clock`. `value` has the values of these units as last
 * pulled, which filters need. The caller may change delta after return. The push is complete when channel->sending is 0 and
 * channel->accumulate is done; only MPI_Win_flush() ensures that accumulated values have arrived. */
int tr_channel_push(struct tr_channel *channel, const void *delta, const void *value, int64_t clock);

/* ======== views ======== */

/* Source of a pull. */
enum tr_pull_from {
    TR_PULL_SERVERS, /* each server, by its channel */
    TR_PULL_NODE,    /* the node pull for the servers that it reads from, channels for all others */
    TR_PULL_MERGE    /* tr_view_state.merged_value, which the last merge has brought to this rank */
};

struct tr_view_state {
    tr_view view; /* the part of the view that models use */
    enum tr_view_use use;
    bool merged;  /* updates are merged (merge.c) */
    uint32_t tag; /* tag of its channels; ascends in the order in which this rank opens views */
    struct tr_plan keys;
    struct tr_channel *channel; /* channel to each server; NULL on a group member that is not the leader */
    enum { PULL_IDLE, PULL_READING, PULL_SPREADING } pull;
    enum { PUSH_IDLE, PUSH_GATHERING, PUSH_WAITING, PUSH_SENDING } push;
    int64_t push_clock;     /* clock of the last push, or -1 */
    enum tr_pull_from from; /* source of the running pull; version, least and into belong to this pull, too */
    int64_t version;        /* version to be read from servers that keep versions; -1: the current values */
    int64_t least;          /* TR_PULL_NODE: a fetch must contain all updates of clocks < least */
    void *into;
    int64_t holds;                  /* view.value contains all updates of clocks < holds */
    struct tr_node_pull *node_pull; /* reads from some of the servers; NULL: from none */
    bool ended;                     /* its stage will not run again, so the view can only be closed */
    bool lent;                      /* view.delta lies in memory of the merge */
    char *merged_value;             /* values that the last merge has brought, or NULL */
    int64_t merged_for;             /* first clock for which merged_value is valid; -1: none */
    void *ahead;                    /* buffer of a prefetch (tr_view_prefetch()), or NULL */
    int64_t ahead_clock;            /* clock that the prefetch is for */
    bool ahead_wanted;              /* the prefetch was called, but may not read yet */
    bool ahead_started;             /* the prefetch is running or complete */
    struct tr_group_share *group;   /* NULL unless use is TR_VIEW_GROUP and the group has several members */
};

/* Poll function: progresses pulls and pushes of all open views. what: the tr_tables. */
int tr_view_poll(void *what, int *did);

/* Makes the communicators of group views, after all ranks have opened all views. Collective over all ranks. */
int tr_views_ready(tr_context *tr);

/* Closes the channels of a view and leaves its node pull. After that the view can only be closed. Local. */
void tr_view_end(struct tr_view_state *view);

/* Returns whether all values of a view (with channels) are read directly from memory of this node. */
static inline bool tr_view_reads_near(const struct tr_view_state *v)
{
    for (uint32_t server = 0; server < v->keys.servers; server++)
        if (v->channel[server].route != TR_ROUTE_LOAD && v->channel[server].segment->n > 0) return false;
    return true;
}

/* Starts to fill `into` (n × width elements). number: value of tr_view_state.version for TR_PULL_SERVERS, of tr_view_state.least
 * for TR_PULL_NODE. In a group, the leader reads and broadcasts. At most one pull of a view runs at a time. */
int tr_pull_start(tr_view *view, void *into, enum tr_pull_from from, int64_t number);

static inline bool tr_pull_busy(const tr_view *view)
{
    return view->state->pull != PULL_IDLE;
}

/* Ends the running pull without waiting for the group's broadcast, which may still write into the view until the stage ends. */
void tr_pull_leave(tr_view *view);

/* Starts to add view->delta to the table as part of the update of `clock`. When the push is complete, delta is zero. In a group,
 * the members' deltas are summed first, and the leader pushes the sum. */
int tr_push_start(tr_view *view, int64_t clock);

static inline bool tr_push_busy(const tr_view *view)
{
    return view->state->push != PUSH_IDLE;
}

/* Writes one line for --explain: routes, ways, and whether keys are registered. The line has no number of keys, so that lines of
 * different workers can be compared. */
void tr_view_describe(const tr_view *view, char *text, size_t size);

static inline size_t tr_view_bytes(const tr_view *view)
{
    return view->n * view->width * tr_dtype_size(view->table->dtype);
}

/* ======== merges ========
 *
 * Under BSP all updates of a clock are added as one sum. On one node, servers read the updates in shared memory. Between nodes,
 * participants exchange partial sums in rounds of messages (merge.c). */

/* Opens the merge of a table if some view of the stage is merged. Collective over all ranks, after all views are open. */
int tr_merge_open(struct tr_table *table);
void tr_merge_close(struct tr_table *table);

/* Starts the next merge, to which this rank contributes view->delta, or nothing if view is NULL. Each server and each worker calls
 * it once for each clock in which the table is updated. Precondition: !tr_merge_busy(). */
int tr_merge_start(struct tr_table *table, tr_view *view);
bool tr_merge_busy(const struct tr_table *table);

/* Sets the clock of the next merge back to the first clock with updates. On all participants, before the stage starts. */
void tr_merge_begin(struct tr_table *table);

/* Returns the clock of the next merge: updates of earlier clocks are in this rank's share. INT64_MAX: this rank takes part in no
 * merges. */
int64_t tr_merge_done(const struct tr_table *table);
int tr_merge_poll(void *what, int *did); /* poll function; what: the tr_tables */

/* Writes one line for --explain, on servers of the table. */
void tr_merge_describe(const struct tr_table *table, char *text, size_t size);

/* Estimates the fastest degree of rounds (merge.c) for n participants. held: sum over the participants of the number of units that
 * each updates; units, unit_bytes: number and size of the units of the table. */
int tr_merge_choose_degree(int n, double held, double units, size_t unit_bytes);

/* ======== caches of a node ========
 *
 * A node cache contains values that one worker of a node has fetched from a server of another node, for all workers of the node. It
 * is direct-mapped, in shared memory: item i can only be in entry i modulo the number of entries. A worker that needs an item which
 * is not cached claims its entry and fetches the item. Another worker that needs the item meanwhile does other work and looks again
 * later, so the workers divide the fetching. A claim fails while the entry has another item that is being fetched or read: then the
 * worker fetches for itself. So workers wait only for running fetches.
 *
 * Fetches are numbered. A fetch contains all updates of clocks < holds, because these were in the tables before it started. A
 * worker at clock c with staleness s may use a fetch
 *   under BSP         if holds = c (the fetch has no updates of clock c: they become visible after all workers have read for c)
 *   under SSP, ASP    if holds ≥ c - s and its number is above `after`: the fetch started after the worker's own last update had
 *                     arrived or, for a worker that only reads, after the fetch that this worker used last */
struct tr_cache_head;

struct tr_node_cache {
    struct tr_cache_head *head; /* NULL: there is no cache */
    char *value;                /* memory for the value of each entry */
    uint64_t entries;
    size_t stride; /* bytes from one value to the next */
};

/* Which fetches a worker may use: those that satisfy both conditions. */
struct tr_cache_terms {
    bool lockstep;
    int64_t least;  /* the fetch has all updates of clocks < least and, in lockstep, no others */
    uint64_t after; /* the number of the fetch is above this */
};

enum tr_cache_state {
    TR_CACHE_HERE,    /* the item is cached */
    TR_CACHE_COMING,  /* another worker is fetching the item */
    TR_CACHE_CLAIMED, /* the caller has claimed the entry, and must fetch the item */
    TR_CACHE_NONE     /* the item is not available, and its entry was not claimed */
};

struct tr_cache_fetch {
    uint64_t number;
    int64_t holds;
    int64_t version; /* version of the share when it was read */
};

/* Returns the bytes of memory that a cache needs. */
size_t tr_cache_bytes(uint64_t entries, size_t value_bytes);

/* Returns the cache in memory of tr_cache_bytes() bytes that the ranks of the node share, aligned to a cache line. Memory of zeros
 * is an empty cache. */
struct tr_node_cache tr_cache_at(void *memory, uint64_t entries, size_t value_bytes);

/* Returns the number of the fetch that started last. */
uint64_t tr_cache_number(const struct tr_node_cache *cache);

/* Looks up an item. If it is not cached and no worker is fetching it, claims the item's entry, unless another item in the entry is
 * being fetched or read. holds: the fetch that the caller will start contains all updates of clocks < holds. */
enum tr_cache_state tr_cache_claim(struct tr_node_cache *cache, uint64_t item,
                                   const struct tr_cache_terms *terms, int64_t holds);

/* Returns the address of an item's value. Call it in order to read after tr_cache_take(), or in order to write after a claim. */
void *tr_cache_value(const struct tr_node_cache *cache, uint64_t item);

/* Stores the version of a value that the caller has claimed and written. Returns the fetch; other workers see it after
 * tr_cache_put(). */
struct tr_cache_fetch tr_cache_fetched(struct tr_node_cache *cache, uint64_t item, int64_t version);

/* Ends the fetch of a claimed item; fetched = false: it has failed, and the entry becomes empty. */
void tr_cache_put(struct tr_node_cache *cache, uint64_t item, bool fetched);

/* Looks up an item in order to read it. If it returns TR_CACHE_HERE, the value does not change until tr_cache_give_back(), and
 * *fetch describes the value (fetch may be NULL). If it returns TR_CACHE_NONE, the item is not cached. */
enum tr_cache_state tr_cache_take(struct tr_node_cache *cache, uint64_t item,
                                  const struct tr_cache_terms *terms, struct tr_cache_fetch *fetch);
void tr_cache_give_back(struct tr_node_cache *cache, uint64_t item);

/* ======== node pulls ========
 *
 * By a node pull, workers of a node that read the same keys of a server on another node fetch them once.
 *
 * A node pull combines one view of each worker of the node: the i-th views that they have opened of a table for the same use (read,
 * update, group). So rounded values are never mixed with exact ones. If several of these views read from a server on another node,
 * and sharing saves at least a fifth of the bytes, one rank of the node registers the union of their keys. A node cache with one
 * entry contains the values of the union. Any of the workers may fetch them; then each copies the values of its own keys. Each
 * worker starts with other servers than the other workers, so that workers at the same clock divide the fetching.
 *
 * Under SSP, a worker cannot use a fetch that started before its own last update had arrived. If two workers run at the same speed,
 * the update of the second arrives during the fetch of the first, so each would fetch for itself. Therefore, if updates are simply
 * added (the condition of tr_view_prefetch()), a worker looks at the latest fetch just before it pushes. If this fetch started
 * after the worker's previous update had arrived, it lacks only the delta that is about to be pushed. The worker adds the delta to
 * a copy of the values and uses the copy for the next clock, like a prefetch. So there is about one fetch per clock of the faster
 * workers. The values may be one clock old, as prefetched ones; the staleness bound holds. Such views are not prefetched. */

struct tr_node_pull;

/* Opens the node pulls of all tables, after all views of the stage are open. Collective over all ranks. On a node without enough
 * memory for a node pull, each worker fetches for itself. */
int tr_node_pull_open(tr_context *tr);

/* Returns the route by which the node pull reads from a server, TR_ROUTE_GET or TR_ROUTE_REQUEST; -1: the view reads by its
 * channel. */
int tr_node_pull_route(const struct tr_node_pull *pull, uint32_t server);

/* Unregisters the node pulls of a table. */
void tr_node_pull_forget(struct tr_table *table);

/* Frees the node pulls, after the messages of tr_node_pull_forget() have arrived. Collective over the ranks of the node. */
void tr_node_pull_free(struct tr_table *table);

/* Detaches this rank's view, which is being closed, from the node pull. */
void tr_node_pull_leave(struct tr_node_pull *pull);

/* Starts to read the keys of this rank's view that are stored at a server, as part of the running pull of the view. */
void tr_node_pull_read(struct tr_node_pull *pull, uint32_t server);

/* Progresses the read. Sets *done to true when the values have been copied into the view. */
int tr_node_pull_poll(struct tr_node_pull *pull, uint32_t server, bool *done, int *did);

/* Records that an update of the view has arrived, so that fetches which started before are not used. */
void tr_node_pull_pushed(struct tr_node_pull *pull);

/* Returns whether, for each server, there is a fetch that this view may use, with all updates of clocks < least. */
bool tr_node_pull_has_news(const struct tr_node_pull *pull, int64_t least);

/* ======== subscriptions ========
 *
 * A worker subscribes to the rows that it reads after each update of a table (tr_rows_subscribe()). Under BSP these rows arrive
 * with each merge, without requests, except rows of servers on the node itself, which are read directly. A node receives the union
 * of the rows to which its workers subscribe, so each row travels to the node once. Each worker receives a slice of the union into
 * shared memory, by rounds from the servers to the workers, in the chunks of the merge (merge.c). A part is a chunk of a slice. For
 * each part, shared memory has the number of the merge with which the rows of the part have arrived. No rank overwrites rows before
 * all workers have read them, because all workers must take part in the next merge first. */

struct tr_subscription {
    struct tr_table *table;
    tr_key *key; /* the n keys to which this worker subscribes */
    size_t n;
    int members, member;    /* number of workers of this node; index of this rank among them, or -1 */
    uint32_t chunk, chunks; /* positions per chunk of a share; number of chunks */

    size_t units;             /* number of rows in the node's union; row i of the union is in slot i */
    struct tr_plan slice;     /* plan of the rows that this rank receives for the node */
    char *slice_value;        /* values of this slice: part of `value` */
    struct tr_shm memory;     /* contains `arrived` and `value` */
    _Atomic int64_t *arrived; /* arrived[p]: merge that brought the rows of part p; NULL: none arrive */
    char *value;              /* values of the row in each slot */
    int64_t merge;            /* number of merges in which this rank has taken part */
    int64_t wanted;           /* number of the latest merge; 0: no merge in this stage yet */

    /* rows of this worker, sorted by part: rows begin[p] .. begin[p+1]-1 arrive with part p. Row i of these is key[place[i]] */
    uint32_t *begin, *place, *slot;
    uint32_t *left; /* the parts whose rows this pull has not delivered yet, ascending */
    size_t lefts;   /* number of parts in `left` */
};

/* Rows that have arrived: the values of key place[i] of the subscribed list are in slot slot[i]. */
struct tr_subscribed {
    size_t n;
    const uint32_t *place, *slot;
    const char *value; /* address of slot 0 */
};

/* Opens the subscription of rows that workers have subscribed to since the last call. chunk: positions per chunk. Collective over
 * all ranks. If a node has too little memory for its union, its workers request rows as without subscription. */
int tr_subscription_open(struct tr_table *table, uint32_t chunk, uint32_t chunks);
void tr_subscription_close(struct tr_table *table);

/* Cancels the subscriptions of this worker since the last call of tr_subscription_open(). */
void tr_subscription_discard(struct tr_table *table);

/* Publishes to the node that a chunk of this rank's slice has arrived with the current merge. */
void tr_subscription_put(struct tr_subscription *subscription, uint32_t chunk);

/* Returns whether the rows of this list arrive with the last merge, except those of servers on this node. */
bool tr_subscription_has(const struct tr_table *table, const tr_key *keys, size_t n);

/* Starts a pull of the subscribed rows. */
void tr_subscription_begin(struct tr_subscription *subscription);

/* Returns some rows of the pull that have arrived, with all updates of earlier clocks and none of later ones; false: no further
 * rows have arrived yet. Each row is returned once. */
bool tr_subscription_take(struct tr_subscription *subscription, struct tr_subscribed *rows);

/* ======== rows ========
 *
 * Pulling. To deliver a row is to call the caller's function row() for it. The list is split by server. Rows that this rank reads
 * directly are delivered while no answer has arrived. For all other rows, up to table.ahead requests to each server are in flight,
 * each for the number of rows that fit into table.row_bytes, while the rows of an answer are delivered. Between two rows, but at
 * most every 0.5 ms, the rank polls: it receives answers, sends further requests, and serves other ranks. Rows that another worker
 * of the node fetches or has fetched come from a node cache. The length of a sparse row is not known before the answer: the server
 * fills table.row_bytes, and rows that do not fit, or the rest of a row, are requested again.
 *
 * Pushing. Entries that are added to sparse rows are written into one open message for each server. The message is sent when it is
 * full, before this worker pulls from the table, and at the end of the clock. Under BSP servers hold these messages until all
 * messages of a clock have arrived. Servers cannot count them, because a worker without entries for a server sends it no message.
 * Therefore the last message of a worker in a clock is acknowledged, and the clock word TR_CLOCK_PUSHED tells servers when the last
 * messages of all workers have been acknowledged. */

/* Conditions of a pull, set by sync.c. */
struct tr_rows_terms {
    bool still;    /* no value changes during the pull, so rows are delivered without a copy */
    bool exact;    /* values are not rounded */
    bool shared;   /* rows may be taken from the node cache, and put into it */
    int64_t least; /* rows must contain all updates of clocks < least and, in lockstep, no others */
    int64_t holds; /* all updates of clocks < holds are in the tables now */
    /* Rows of other nodes arrive by subscription, so the pull may start before the last merge is complete. Rows of this node
     * are delivered once all updates of clocks < least are in the tables. */
    bool subscribed;
};

/* Performs tr_rows_pull() without waiting for clocks. *computed: seconds spent in row(). TR_ERR_INTERNAL: a key does not exist, the
 * table is resting or keeps versions, or another pull of the table is running. */
int tr_rows_move(struct tr_table *table, const tr_key *keys, size_t n, tr_row_fn *row, void *state,
                 const struct tr_rows_terms *terms, double *computed);

/* Performs tr_rows_push() as part of the update of `clock`. TR_ERR_INTERNAL: the table has no sparse rows or is resting, a key does
 * not exist, or columns do not ascend or are not below the width. */
int tr_rows_add(struct tr_table *table, const tr_row *rows, size_t n, int64_t clock);

/* At the end of the worker's clock: sends the open messages, the last ones of the clock, which servers acknowledge. */
int tr_rows_end_clock(struct tr_table *table, int64_t clock);

/* Returns whether servers hold the pushed rows of a clock until the rows of all workers have arrived. */
static inline bool tr_rows_wait(const struct tr_table *t)
{
    return t->sparse && t->lockstep && !t->rests;
}

/* Returns the lowest clock with pushed rows of this rank in flight; INT64_MAX: no rows are in flight. */
int64_t tr_rows_sending(const struct tr_table *table);

/* Returns the bytes of memory for answers that this rank keeps between pulls. */
size_t tr_rows_memory(const struct tr_table *table);

/* Allocates the state of a new table. */
int tr_rows_open(struct tr_table *table);

/* At the start of a stage, after all its views are open: opens the node cache of rows. Collective over all ranks. */
int tr_rows_begin(struct tr_table *table);

/* Records that an update of a view of this worker has arrived, so that rows which the node fetched before are not used. */
void tr_rows_pushed(struct tr_table *table);

int tr_rows_poll(void *what, int *did); /* poll function; what: the tr_tables */

/* Frees the state of a table. Collective over the ranks of the node. */
void tr_rows_free(struct tr_table *table);

#endif
