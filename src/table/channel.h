/* A channel: what a view, or the views of a node together, have with one server. Here it is opened and read
 * through; pushing is up to view.c. Everything is started without waiting and carried on by polls. */
#ifndef TR_TABLE_CHANNEL_H
#define TR_TABLE_CHANNEL_H

#include "table/table.h"

enum { TR_SLOTS = 4 }; /* chunks of one request under way at once: one is copied while others travel */

struct tr_slot {
    MPI_Request sent, received;
    struct tr_message message;
    char *answer; /* tr_reply_head, then values */
};

struct tr_channel {
    struct tr_table *table;
    uint32_t server;
    const struct tr_segment *segment; /* without `local`: what is read lies side by side, in its order */
    int rank;                         /* of the server */
    int owner;                        /* the rank that has registered the segment there … */
    uint32_t tag;                     /* … under this tag */
    int route;
    enum tr_way way;
    bool exact;      /* what is read is never rounded */
    bool registered; /* by this rank */
    void *into;      /* where what is being read goes */
    int64_t version; /* that is being read, or -1 */
    int64_t seen;    /* version of the share when it was read last, plus own updates since */

    MPI_Datatype here, there; /* get and accumulate: the segment in the view (or packed) and in the window */
    MPI_Request get;
    struct tr_slot *slot; /* request: TR_SLOTS of them */
    uint32_t asked, got;

    char *outgoing; /* message and accumulate: packed values, with a header before each chunk of a message */
    MPI_Request *sends;
    uint32_t sends_count;
    MPI_Request acknowledged;
    char *kept; /* packed: what filters hold back and rounding takes */
};

/* A channel to a table's server, with nothing opened yet. */
struct tr_channel tr_channel_of(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                                uint32_t tag);

/* Chooses how the channel reads. TR_ERR_CONFIG where the job wishes for what cannot be. */
int tr_channel_choose_route(struct tr_channel *channel);

/* Makes the datatypes of get and accumulate, and the slots of requests. */
int tr_channel_open_types(struct tr_channel *channel);
int tr_channel_open_slots(struct tr_channel *channel);

/* Tells the server the segment's positions and waits until it knows them; flags TR_FLAG_PUSHES or 0. */
int tr_channel_register(struct tr_channel *channel, uint32_t flags);

/* Frees what the channel has, and lets the server forget the segment if this rank has registered it. */
void tr_channel_close(struct tr_channel *channel);

/* Units of one message. */
uint32_t tr_channel_chunk(const struct tr_table *table);

/* Starts to read the segment, and carries that on: done when all of it is there. */
void tr_channel_read(struct tr_channel *channel, void *into, int64_t version);
int tr_channel_poll(struct tr_channel *channel, bool *done, int *did);

#endif
