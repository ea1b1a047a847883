/* A channel: what a view, or the views of a node as one, have with one server: how they read there and how they push.
 * Everything is started without waiting and carried on by polls. */
#ifndef TR_TABLE_CHANNEL_H
#define TR_TABLE_CHANNEL_H

#include "table/plan.h"
#include "table/server.h"

/* How updates reach a server where they are not merged: added in memory that the node shares, added by RMA, or sent. */
enum tr_way { TR_WAY_ADD, TR_WAY_ACCUMULATE, TR_WAY_MESSAGE };

/* What reading a part of a segment took by each route, in seconds; zeros: not measured. */
struct tr_measured {
    double get, request;
};

struct tr_channel {
    struct tr_table *table;
    uint32_t server;
    const struct tr_segment *segment; /* without `local`: what is read lies side by side, in its order */
    int rank;                         /* of the server */
    int owner;                        /* the rank that has registered the segment there … */
    uint32_t tag;                     /* … under this tag */
    int route;                        /* TR_ROUTE_LOAD, GET or REQUEST */
    enum tr_way way;
    bool exact;      /* what is read is never rounded */
    bool registered; /* by this rank */
    void *into;      /* where what is being read goes */
    int64_t version; /* that is being read, or -1 */
    int64_t seen;    /* version of the share when it was read last, plus own updates since */

    MPI_Datatype here, there; /* get and accumulate: the segment in the view (or packed) and in the window */
    MPI_Request get, accumulate;
    struct tr_stretches *stretches; /* get: NULL where the segment is fetched as it is */
    bool measures;                  /* get or request, whichever turns out to be faster … */
    struct tr_measured measured;
    struct tr_slot *slot; /* request: answers that are awaited, some at once */
    uint32_t asked, got;

    uint32_t sending; /* messages that have not arrived */
    char *packed;     /* what is being accumulated */
    char *residual;   /* packed: what filters hold back and rounding takes */
    char *told; /* packed: what has been read, where the server tells differences and `local` scatters it */
};

/* A channel to a table's server, with nothing opened yet. */
struct tr_channel tr_channel_of(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                                uint32_t tag);

/* Chooses how the channel reads, and makes what that takes. TR_ERR_CONFIG where the job wishes for what cannot be. */
int tr_channel_open(struct tr_channel *channel, bool accumulates);

/* An MPI datatype of n blocks of units, for the caller to free: block i begins at unit position[i] and has length[i] units
 * (length NULL: one). */
MPI_Datatype tr_type_of_units(const struct tr_table *table, size_t n, const int *length, const int *position);

/* Makes the datatypes of get and accumulate alone, for a channel whose route is known. */
int tr_channel_open_types(struct tr_channel *channel);

/* Reads a part of the segment by get and by request, and takes what is faster from then on: the segment is registered
 * and its server polls. */
int tr_channel_measure(struct tr_channel *channel);

/* Tells the server the segment's positions and waits until it knows them; flags TR_FLAG_PUSHES or 0. */
int tr_channel_register(struct tr_channel *channel, uint32_t flags);

/* The first half of closing: the server forgets the segment if this rank has registered it, and answers that are still to
 * come do so in memory that is kept until then (in tables->sending). */
void tr_channel_forget(struct tr_channel *channel);

/* Frees what the channel has, and lets the server forget the segment if this rank has registered it. */
void tr_channel_close(struct tr_channel *channel);

/* Starts to read the segment, and carries that on: done when all of it is there. */
int tr_channel_read(struct tr_channel *channel, void *into, int64_t version);
int tr_channel_poll(struct tr_channel *channel, bool *done, int *did);

/* Starts to push the segment of a view's delta as part of a clock; the delta may be changed at once. Whether all has left
 * and arrived. */
int tr_channel_push(struct tr_channel *channel, const tr_view *view, int64_t clock);
bool tr_channel_has_pushed(struct tr_channel *channel);

#endif
