/* Messages between workers and the servers of tables, the server role, and server functions (trireme/function.h).
 *
 * A worker that cannot access a share in memory sends its server a message with TR_TAG_SERVER, which starts with a struct
 * tr_message. If the message has a reply number, the server replies with TR_TAG_REPLY + that number: a struct tr_reply_head and
 * values, or an empty message as an acknowledgement. Messages are sent without waiting; their buffers are reused after completion.
 * A key set is a segment that a client (the rank of a worker) has registered, so that pulls and pushes need not contain keys.
 */
#ifndef TR_TABLE_SERVER_H
#define TR_TABLE_SERVER_H

#include "table/codec.h"
#include "table/storage.h"
#include "table/table.h"
#include "trireme/function.h"

/* Maximum size of the values in one message of a pull or push, in bytes. */
enum { TR_MESSAGE_BYTES = 1 << 18 };

enum tr_message_kind {
    TR_MESSAGE_REGISTER,
    TR_MESSAGE_FORGET,
    TR_MESSAGE_PULL,
    TR_MESSAGE_PUSH,
    TR_MESSAGE_ASK,
    TR_MESSAGE_ROWS
};

/* PUSHES: updates of the key set will be pushed. IDENTITY: the key set has all units of the share, so no list follows. LAST: the
 * last message of an update. EXACT: values are not rounded. */
enum { TR_FLAG_PUSHES = 1, TR_FLAG_IDENTITY = 2, TR_FLAG_LAST = 4, TR_FLAG_EXACT = 8 };

struct tr_message {
    uint32_t kind, table, tag;
    uint32_t reply; /* reply number; 0: no reply wanted */
    /* In pulls and pushes by a key set: entries first .. first + n - 1. In TR_MESSAGE_ASK: `first` is the index of the tr_answer, n
     * the bytes of the question. In TR_MESSAGE_ROWS: n rows are listed behind the header. In a push of sparse rows: `first` is the
     * number of the message in its clock. */
    uint32_t first, n;
    uint32_t flags;
    int32_t owner; /* pull: rank that has registered the key set; it is on the node of the sender */
    /* In a push: clock of the update. In a pull: version to be read, or -1. In a question or a request of sparse rows: maximum
     * bytes of the answer. */
    int64_t clock;
    int64_t seen; /* push: version of the share that the pusher last read, plus its own updates since */
};

/* Start of every reply that is not empty. */
struct tr_reply_head {
    int64_t version; /* version of the share */
    uint32_t bytes;  /* number of bytes that follow */
    uint32_t failed; /* 1: the text of an error follows; 0: an answer */
};

/* A message being written or in flight: header and body to a server, or a body alone as a reply. */
struct tr_sending {
    struct tr_sending *next;
    MPI_Request sent, acknowledged;
    uint32_t *pending; /* counter of messages in flight; may be NULL */
    size_t room;       /* size of the body's buffer in bytes */
    _Alignas(16) struct tr_message header;
    unsigned char body[];
};

/* Allocates a message with a body of at most `room` bytes. Pass it to a send function, which takes ownership, or free it with
 * tr_message_release(). TR_ERR_SYSTEM: out of memory. */
int tr_message_new(struct tr_tables *tables, size_t room, struct tr_sending **message);

/* Sends the header and `bytes` bytes of the body to a server. *pending, a counter of messages in flight, is incremented now, and
 * decremented when the message has been sent and, for registrations and pushes with a reply number, acknowledged. pending may be
 * NULL. */
void tr_message_send(struct tr_tables *tables, struct tr_sending *message, size_t bytes, int rank,
                     uint32_t *pending);

/* Sends a message, and starts to receive its reply of at most `room` bytes into `answer`. */
void tr_message_ask(struct tr_tables *tables, struct tr_sending *message, size_t bytes, int rank,
                    void *answer, size_t room, MPI_Request *received);

/* For a message whose body receives an answer that is not needed any more: frees the message when `received` completes. */
void tr_message_await(struct tr_tables *tables, struct tr_sending *message, MPI_Request received);

/* Frees a message that was not sent. */
void tr_message_release(struct tr_tables *tables, struct tr_sending *message);

/* Detaches messages in flight from their counter *pending, whose memory will be freed. */
void tr_message_orphan(struct tr_tables *tables, const uint32_t *pending);

/* Returns a reply number that no message in flight has. */
uint32_t tr_request_number(struct tr_tables *tables);

/* Returns the description of n units of the table, an argument of the functions in codec.h. */
static inline struct tr_slice tr_slice_of(const struct tr_table *t, uint32_t n)
{
    return (struct tr_slice){.dtype = t->dtype, .n = n, .width = t->unit_width};
}
/* Returns the encoding and precision of updates. */
struct tr_wire tr_push_wire(const struct tr_table *table);

/* Returns the encoding and precision of values that are read: in full if `exact`, otherwise rounded to at least 16 bits. */
struct tr_wire tr_pull_wire(const struct tr_table *table, bool exact);

/* ======== the server role ======== */

/* A server handles messages in the order of arrival, without waiting. Key sets are identified by rank and tag. All functions are
 * local. */

/* Poll function: completes sends, then handles messages to this rank as a server. what: the tr_tables. */
int tr_server_poll(void *what, int *did);

/* tr_server_open() allocates the server state of a table, tr_server_close() frees it. */
int tr_server_open(struct tr_table *table);
void tr_server_close(struct tr_table *table);

/* Prepares the server state of a table for a stage, which begins at clock 0. */
void tr_server_begin(struct tr_table *table);

/* Returns whether any key set is registered for the table. */
bool tr_server_has_clients(const struct tr_table *table);

/* Call it after the hash map has been cleared: marks the slots of all key sets as unknown. */
void tr_server_forget_slots(struct tr_table *table);

/* Under BSP, a server holds updates that come as messages until they may become visible. Returns the number of clocks whose updates
 * it has added to its share; INT64_MAX: it holds no updates in this stage. */
int64_t tr_server_settled(const struct tr_table *table);

/* Adds the held updates of the next clock c, if all of them have arrived and c < visible, and then increments *did. */
int tr_server_serve(struct tr_table *table, int64_t visible, int *did);

/* Handles a message with an update from a rank, possibly this rank: holds or adds the update, and acknowledges it. */
int tr_server_push(struct tr_table *table, int rank, const struct tr_message *message, const void *data,
                   size_t bytes);

/* ======== server functions ======== */

/* The server function of a table, on this rank. */
struct tr_use {
    tr_function function;
    tr_share share;    /* share of this rank, if it is a server of the table */
    int64_t *passed;   /* passed[i]: pusher i does not need versions below this one any more */
    int64_t expired;   /* versions < expired are not needed any more */
    bool sums;         /* under BSP, the function gets one sum of all updates of a clock */
    char *sum;         /* sum of the updates of the current clock so far, units as in the share */
    uint64_t *touched; /* bit i: unit i has been added to the sum */
    size_t touched_words;
    uint64_t *sorted; /* scratch memory in which the units of an update are sorted */
    size_t sorted_room;
    uint32_t *unit; /* scratch memory: units and values of an update, without zeros or sorted */
    char *value;
    size_t unit_room, value_room;
};

/* Whether the server function keeps versions, and computes the values of a version when they are read. */
static inline bool tr_table_keeps_versions(const struct tr_table *t)
{
    return t->use && t->use->function.read;
}

/* Registers the built-in server functions and answers. */
int tr_functions_open(struct tr_tables *tables);

/* Starts a stage with all versions at 0, after all pushing views are registered. Local, as all functions below. */
int tr_use_begin(struct tr_table *table);

/* At the end of a stage, after all updates have arrived: adds the separately stored versions to the values. */
void tr_use_end(struct tr_table *table);
void tr_use_free(struct tr_table *table);

/* Call it after a hash map may have grown: updates the addresses of values, state and sum, which may have moved. */
void tr_use_follow(struct tr_table *table);

/* The functions and answers that are built in (trireme/function.h describes them).
 *
 * add and scale are linear, so under BSP they get the sum of a clock's updates, as optimizers do. assign and max get the updates
 * one by one in the order of workers, so the last assignment wins. scale multiplies integers as doubles and rounds the product. max
 * ignores NaN; as tables begin with zeros, it never stores a negative number. Optimizers need reals and a tr_optimizer. */
extern const tr_function tr_builtin_functions[];
extern const size_t tr_builtin_function_count;
extern const tr_answer tr_builtin_answers[];
extern const size_t tr_builtin_answer_count;

/* ======== time that values are in flight ======== */

/* Call tr_way_begin() when a pull or push of this rank starts, and tr_way_end() when it ends. way_seconds is the time with at least
 * one pull or push in flight. */
void tr_way_begin(struct tr_tables *tables);
void tr_way_end(struct tr_tables *tables);

/* Call tr_way_compute() when this rank starts and stops computing. Call tr_wait_begin() when the rank starts to wait or to move
 * values, and tr_wait_end() when it stops; calls can be nested. way_seconds during which the rank computes and does not wait are
 * also hidden_seconds. */
void tr_way_compute(struct tr_tables *tables, bool computes);
void tr_wait_begin(struct tr_tables *tables);
void tr_wait_end(struct tr_tables *tables);

#endif
