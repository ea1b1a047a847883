/* Channels: the access of a view, or of a node pull, to one server. A channel reads the units of a segment by one of three
 * routes (load from shared memory, RMA get, request by message), and pushes them in one of three ways. All operations are
 * started without waiting and progressed by polls. */
#ifndef TR_TABLE_ROUTE_H
#define TR_TABLE_ROUTE_H

#include "table/plan.h"
#include "table/server.h"

/* How updates that are not merged reach a server: added in shared memory of the node, by RMA, or in messages. */
enum tr_way { TR_WAY_ADD, TR_WAY_ACCUMULATE, TR_WAY_MESSAGE };

/* Seconds for reading a part of a segment by each route; zeros: not measured. */
struct tr_measured {
    double get, request;
};

struct tr_channel {
    struct tr_table *table;
    uint32_t server;
    const struct tr_segment
        *segment; /* local NULL: values are read side by side, in the order of the segment */
    int rank;     /* of the server */
    int owner;    /* the rank that has registered the segment under `tag` */
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
    struct tr_stretches *stretches; /* get of scattered units; NULL: the segment consists of runs */
    bool measures;                  /* tr_channel_measure() will choose between get and request */
    struct tr_measured measured;
    struct tr_slot *slot; /* request: answers in flight */
    uint32_t asked, got;  /* request: units of the segment */

    uint32_t sending; /* messages in flight */
    char *packed;     /* values that are being accumulated */
    char *residual;   /* packed: residuals of filters and rounding */
};

/* A channel to a server of the table that is not open yet. The segment must live as long. */
struct tr_channel tr_channel_of(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                                uint32_t tag);

/* Chooses the route; accumulates: makes datatypes for TR_WAY_ACCUMULATE. TR_ERR_CONFIG: table.route=load, but the server is on
 * another node. Local. */
int tr_channel_open(struct tr_channel *channel, bool accumulates);

/* An MPI datatype of n blocks of units, for the caller to free: block i begins at unit position[i] and has length[i] units
 * (length NULL: one). */
MPI_Datatype tr_type_of_units(const struct tr_table *table, size_t n, const int *length, const int *position);

/* Makes the datatypes of get and accumulate, for a caller that sets the route itself. */
int tr_channel_open_types(struct tr_channel *channel);

/* Reads a part of the segment by get and by request, and uses the faster route from then on. Preconditions: the segment is
 * registered, and its server polls. Waits. */
int tr_channel_measure(struct tr_channel *channel);

/* Registers the segment at the server and waits for the acknowledgement. flags: TR_FLAG_PUSHES or 0. */
int tr_channel_register(struct tr_channel *channel, uint32_t flags);

/* First half of closing, without waiting: unregisters the segment if this rank has registered it. Memory of answers in flight
 * is kept in tables->sending until they arrive. */
void tr_channel_forget(struct tr_channel *channel);

/* Waits for RMA in flight, unregisters the segment, and frees the memory of the channel. */
void tr_channel_close(struct tr_channel *channel);

/* Starts to read the segment into `into`; and progresses that. *done: all values are there. */
int tr_channel_read(struct tr_channel *channel, void *into, int64_t version);
int tr_channel_poll(struct tr_channel *channel, bool *done, int *did);

/* Starts to push the segment's part of view->delta as part of `clock`; on return, delta may be changed. tr_channel_has_pushed():
 * all messages and accumulates are complete. */
int tr_channel_push(struct tr_channel *channel, const tr_view *view, int64_t clock);
bool tr_channel_has_pushed(struct tr_channel *channel);

#endif
