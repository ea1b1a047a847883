/* Views: a worker's copies of some keys of a table, and how their pulls and pushes go on. A view has a channel to
 * each server; under BSP what it pushes is merged with the updates of all others instead (merge.h), and what several
 * workers of a node pull from another node may travel once (node.h). sync.c decides when a pull or
 * push is allowed. */
#ifndef TR_TABLE_VIEW_H
#define TR_TABLE_VIEW_H

#include "table/route.h"
#include "table/table.h"

struct tr_view_state {
    tr_view view; /* what the user holds */
    enum tr_view_use use;
    bool merged; /* its updates go by merge */
    uint32_t tag;
    struct tr_plan keys;
    struct tr_channel *channel; /* by server; NULL for a member that its leader serves */
    enum { PULL_IDLE, PULL_READING, PULL_SPREADING } pull;
    enum { PUSH_IDLE, PUSH_GATHERING, PUSH_WAITING, PUSH_SENDING } push;
    int64_t push_clock;
    int64_t version;                /* that is being read, or -1 */
    int64_t least;                  /* all updates of clocks < least have to be in what is being read */
    int64_t holds;                  /* all updates of clocks < holds are in value */
    bool joins;                     /* what is being read may be what the node reads as one … */
    struct tr_node_pull *node_pull; /* … from some of the servers; NULL: from none */
    bool ended;                     /* of a stage that will not run again: it can only be closed */
    bool lent;                      /* delta lies in memory of the merge */
    char *merged_value;             /* the values after a merge, which has brought them … */
    int64_t merged_for;             /* … to be read at this clock; -1: none */
    bool takes_merged;              /* … and that is what is being read */
    void *into;
    void *ahead; /* second buffer of tr_view_prefetch() */
    int64_t ahead_clock;
    bool ahead_wanted, ahead_started;
    struct tr_group_share *group; /* TR_VIEW_GROUP with more than one member */
};

/* Polls: carries on what open views pull and push. what: the tr_tables. */
int tr_view_poll(void *what, int *did);

/* The members of a group join hands over the views they have opened: all ranks, after all of them have opened all. */
int tr_views_ready(tr_context *tr);

/* Ends what a view has with servers and others of its node: it can only be closed then. */
void tr_view_end(struct tr_view_state *view);

/* All its values are read directly from memory of this node; what is read so, is, though a group may have to spread it. */
bool tr_view_is_near(const tr_view *view);
static inline bool tr_view_reads_near(const struct tr_view_state *v)
{
    for (uint32_t server = 0; server < v->keys.servers; server++)
        if (v->channel[server].route != TR_ROUTE_LOAD && v->channel[server].segment->n > 0) return false;
    return true;
}

/* The node has fetched, or is fetching, what this view reads, all with the updates of clocks < least. */
bool tr_view_has_news(const struct tr_view_state *view, int64_t least);

/* Starts to fill `into` (n × width elements) with what the servers have now, or had at a version, where they keep
 * versions (-1: now). In a group, the leader reads and spreads what it has read. */
int tr_pull_start(tr_view *view, void *into, int64_t version);

/* The same, but what the node pulls as one may be what it has pulled already, if all updates of clocks < least are
 * in it and it is not too old for this view. Tables that keep versions are not read so. */
int tr_pull_start_shared(tr_view *view, void *into, int64_t least);

/* The same, with the values that the last merge has brought (merge.h) to its own rank, for the clock merged_for. */
int tr_pull_start_merged(tr_view *view, void *into);
bool tr_pull_busy(const tr_view *view);

/* What others of a group give is waited for no more: it may still come into the view's memory while the stage lasts. */
void tr_pull_leave(tr_view *view);

/* Starts to add delta to the table as part of this clock, and leaves a delta of zeros to be written. In a group,
 * the members' deltas are summed first, and only the leader goes on. */
int tr_push_start(tr_view *view, int64_t clock);
bool tr_push_busy(const tr_view *view);

/* One line for --explain: the routes and ways to its servers, and what is registered there. Says nothing of the
 * number of keys, so that views of different workers compare. */
void tr_view_describe(const tr_view *view, char *text, size_t size);

/* Views of this rank find out how servers of other nodes are read fastest: all ranks, when all views are open and all
 * that servers have to know is registered. */
int tr_views_measure(tr_context *tr);

/* What was measured for a view of this rank; zeros: nothing. */
struct tr_measured tr_view_measured(const tr_view *view);

static inline size_t tr_view_bytes(const tr_view *view)
{
    return view->n * view->width * tr_dtype_size(view->table->dtype);
}

#endif
