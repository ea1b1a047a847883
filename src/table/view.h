/* Views: a worker's copies of some keys of a table, and the state of their pulls and pushes. A view has a channel to each
 * server (route.h). Under BSP its updates are merged with those of all workers instead (merge.h), and keys that several
 * workers of a node read from another node may be fetched once (node.h). sync.c decides when a view is pulled or pushed. */
#ifndef TR_TABLE_VIEW_H
#define TR_TABLE_VIEW_H

#include "table/route.h"
#include "table/table.h"

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
    int64_t version;                /* the running pull: the version to be read, or -1 */
    int64_t least;                  /* the running pull: must contain all updates of clocks < least */
    void *into;                     /* the running pull: destination */
    bool joins;                     /* the running pull: by the node pull where there is one */
    bool takes_merged;              /* the running pull: from merged_value */
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

/* All values are read directly from memory of this node; tr_view_reads_near(): before a group broadcasts them. */
bool tr_view_is_near(const tr_view *view);
static inline bool tr_view_reads_near(const struct tr_view_state *v)
{
    for (uint32_t server = 0; server < v->keys.servers; server++)
        if (v->channel[server].route != TR_ROUTE_LOAD && v->channel[server].segment->n > 0) return false;
    return true;
}

/* Another worker of the node has fetched, or is fetching, the keys of this view, with all updates of clocks < least. */
bool tr_view_has_news(const struct tr_view_state *view, int64_t least);

/* Starts to fill `into` (n × width elements) with the current values or, from a table that keeps versions, those of `version`
 * (-1: current). In a group, the leader reads and broadcasts. At most one pull of a view runs at a time. */
int tr_pull_start(tr_view *view, void *into, int64_t version);

/* The same, but values that the node has fetched already may be used, if they contain all updates of clocks < least and are
 * newer than this view's last use of them. Not for tables that keep versions. */
int tr_pull_start_shared(tr_view *view, void *into, int64_t least);

/* The same, with the values that the last merge has brought to this rank for clock merged_for. */
int tr_pull_start_merged(tr_view *view, void *into);
bool tr_pull_busy(const tr_view *view);

/* Gives up waiting for the group's broadcast, which may still write into the view until the stage ends. */
void tr_pull_leave(tr_view *view);

/* Starts to add view->delta to the table as part of `clock`; delta is zero once the push is complete. In a group, deltas of the
 * members are summed first, and the leader pushes the sum. */
int tr_push_start(tr_view *view, int64_t clock);
bool tr_push_busy(const tr_view *view);

/* One line for --explain: routes, ways of pushing, and whether keys are registered. Without the number of keys, so that lines of
 * different workers can be compared. */
void tr_view_describe(const tr_view *view, char *text, size_t size);

/* Measures which route to servers of other nodes is faster for the views of this rank, after all views are open and all key sets
 * are registered. Collective over all ranks. */
int tr_views_measure(tr_context *tr);

/* Result of tr_views_measure() for a view; zeros: nothing was measured. */
struct tr_measured tr_view_measured(const tr_view *view);

static inline size_t tr_view_bytes(const tr_view *view)
{
    return view->n * view->width * tr_dtype_size(view->table->dtype);
}

#endif
