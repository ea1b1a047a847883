/* Messages between workers and the servers of tables.
 *
 * What a worker cannot do in memory itself it asks a server for: a message with TR_TAG_SERVER, struct tr_message in
 * front. The server answers with TR_TAG_REPLY + the number that the message brought, where it brought one: with
 * values behind a struct tr_reply_head, or with nothing, as an acknowledgement. Messages leave without waiting, and
 * their memory is kept here until they have.
 */
#ifndef TR_TABLE_SERVER_H
#define TR_TABLE_SERVER_H

#include "table/codec.h"
#include "table/storage.h"
#include "table/table.h"

/* Bytes of values in one message of a pull or a push. */
enum { TR_MESSAGE_BYTES = 1 << 18 };

enum tr_message_kind {
    TR_MESSAGE_REGISTER,
    TR_MESSAGE_FORGET,
    TR_MESSAGE_PULL,
    TR_MESSAGE_PUSH,
    TR_MESSAGE_ASK,
    TR_MESSAGE_ROWS
};

/* TR_FLAG_EXACT: what is read is not to be rounded; with TR_FLAG_ONCE, of a view that is told differences otherwise. */
enum { TR_FLAG_PUSHES = 1, TR_FLAG_IDENTITY = 2, TR_FLAG_LAST = 4, TR_FLAG_EXACT = 8, TR_FLAG_ONCE = 16 };

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

/* A message being written or on its way: a header and a body to a server, or a body alone as an answer. */
struct tr_sending {
    struct tr_sending *next;
    MPI_Request sent, acknowledged;
    uint32_t *pending;
    size_t room; /* of the body */
    _Alignas(16) struct tr_message header;
    unsigned char body[];
};

/* Memory for a message of up to `room` bytes in its body. One of the next two functions takes it over. */
int tr_message_new(struct tr_tables *tables, size_t room, struct tr_sending **message);

/* Sends header and body, of so many bytes, to a server. *pending (NULL: none) is one more from now on until the message
 * has left and, where a registration or push wants that, has been acknowledged; it must live that long. */
void tr_message_send(struct tr_tables *tables, struct tr_sending *message, size_t bytes, int rank,
                     uint32_t *pending);

/* Sends a message that wants an answer of up to `room` bytes: *received is complete when it is there. */
void tr_message_ask(struct tr_tables *tables, struct tr_sending *message, size_t bytes, int rank,
                    void *answer, size_t room, MPI_Request *received);

/* Sends the body as an answer. */
void tr_message_reply(struct tr_tables *tables, struct tr_sending *message, size_t bytes, int rank,
                      uint32_t number);

/* Nobody wants any more what is being received into the body: its memory stays among the messages on their way until that
 * has come. */
void tr_message_await(struct tr_tables *tables, struct tr_sending *message, MPI_Request received);

/* Takes back one that is not sent. */
void tr_message_release(struct tr_tables *tables, struct tr_sending *message);

/* What counted in *pending does so no more: its memory goes. */
void tr_message_orphan(struct tr_tables *tables, const uint32_t *pending);

/* Lets a server forget a key set: leaves without waiting, and has been received when tables->sending is empty. */
int tr_message_forget(struct tr_table *table, int rank, uint32_t tag);

/* For header.reply: different for all under way. */
uint32_t tr_request_number(struct tr_tables *tables);

/* Frees the memory of messages that have left. */
void tr_messages_free(struct tr_tables *tables);

/* Units of one message of a pull or push. */
uint32_t tr_message_units(const struct tr_table *table);

/* n units as they travel, and in which form: those of an update, or those that are read (exact: never rounded). */
static inline struct tr_slice tr_slice_of(const struct tr_table *t, uint32_t n)
{
    return (struct tr_slice){.dtype = t->dtype, .n = n, .width = t->unit_width};
}
struct tr_wire tr_push_wire(const struct tr_table *table);
struct tr_wire tr_pull_wire(const struct tr_table *table, bool exact);

/* Whether a view is told by how much its values differ from those that it was told last, with table.precision f8: both
 * ends keep these, and whatever rounding takes from a difference is part of the next. */
static inline bool tr_pull_differs(const struct tr_table *t, bool exact)
{
    return !exact && t->wire.precision == TR_PRECISION_F8 && (t->dtype == TR_F32 || t->dtype == TR_F64);
}

/* ======== the server role ======== */

/* The server role: whatever comes with TR_TAG_SERVER is handled in the order of its arrival, and nothing here waits. Key
 * sets are kept by (rank, tag), so that pulls and pushes carry no keys. */

/* Polls: sends and acknowledgements that have completed, then messages to this rank as a server. what: the tr_tables. */
int tr_server_poll(void *what, int *did);

/* A table is being made; it is closed. */
int tr_server_open(struct tr_table *table);
void tr_server_close(struct tr_table *table);

/* A stage begins at clock 0. */
void tr_server_begin(struct tr_table *table);

bool tr_server_has_clients(const struct tr_table *table);

/* Numbers the key sets whose views push, from 0 on, and returns how many there are. */
int tr_server_number_pushers(struct tr_table *table);

/* Hash storage was emptied: keys are to be looked up again. */
void tr_server_forget_slots(struct tr_table *table);

/* In lockstep, updates that come as messages are held until they may become visible. All of clocks < this have been added;
 * INT64_MAX: none are held in this stage. */
int64_t tr_server_settled(const struct tr_table *table);

/* Adds the updates of the next clock if all of them are here and they may become visible: that clock < `visible`. */
int tr_server_serve(struct tr_table *table, int64_t visible, int *did);

/* Does as if a message with a push had come, from this rank itself. */
int tr_server_push_here(struct tr_table *table, const struct tr_message *message, const void *data,
                        size_t bytes);

/* Answers with a head and what it says follows. */
int tr_server_reply(struct tr_table *table, int rank, uint32_t number, const struct tr_reply_head *head,
                    const void *data);

/* ---- time that values are on their way ---- */

/* A pull or push of this rank begins, and is over: its time counts as way_seconds, that of several at once but once. */
void tr_way_begin(struct tr_tables *tables);
void tr_way_end(struct tr_tables *tables);

/* This rank begins to compute, and stops; and while it computes it begins to wait, or to move something, and goes on. What
 * is on its way while it computes and does not wait counts as hidden_seconds. */
void tr_way_compute(struct tr_tables *tables, bool computes);
void tr_wait_begin(struct tr_tables *tables);
void tr_wait_end(struct tr_tables *tables);

#endif
