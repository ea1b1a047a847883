/* Messages between workers and the servers of tables, the server role, and server functions (trireme/function.h).
 *
 * A worker that cannot access a share in memory sends its server a message with TR_TAG_SERVER, which starts with a struct
 * tr_message. If the message has a reply number, the server answers with TR_TAG_REPLY + that number: values behind a struct
 * tr_reply_head, or nothing, as an acknowledgement. Messages are sent without waiting, and their memory is kept until they have
 * left; then it is kept for later messages.
 */
#ifndef TR_TABLE_SERVER_H
#define TR_TABLE_SERVER_H

#include "table/codec.h"
#include "table/storage.h"
#include "table/table.h"
#include "trireme/function.h"

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

/* TR_FLAG_EXACT: values are not rounded. */
enum { TR_FLAG_PUSHES = 1, TR_FLAG_IDENTITY = 2, TR_FLAG_LAST = 4, TR_FLAG_EXACT = 8 };

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

/* A message being written or in flight: header and body to a server, or a body alone as an answer. */
struct tr_sending {
    struct tr_sending *next;
    MPI_Request sent, acknowledged;
    uint32_t *pending;
    size_t room; /* of the body */
    _Alignas(16) struct tr_message header;
    unsigned char body[];
};

/* Memory for a message with a body of at most `room` bytes. A send function or tr_message_release() takes it over. TR_ERR_SYSTEM
 * without memory. */
int tr_message_new(struct tr_tables *tables, size_t room, struct tr_sending **message);

/* Sends the header and `bytes` bytes of the body to a server. *pending (may be NULL) counts the message until it has left and, for
 * registrations and pushes with a reply number, has been acknowledged; it must live that long. */
void tr_message_send(struct tr_tables *tables, struct tr_sending *message, size_t bytes, int rank,
                     uint32_t *pending);

/* Sends a message with an answer of at most `room` bytes: *received completes when that has arrived. */
void tr_message_ask(struct tr_tables *tables, struct tr_sending *message, size_t bytes, int rank,
                    void *answer, size_t room, MPI_Request *received);

/* The answer that is being received into the body is not needed any more: its memory is kept until `received` completes. */
void tr_message_await(struct tr_tables *tables, struct tr_sending *message, MPI_Request received);

/* Frees a message that is not sent. */
void tr_message_release(struct tr_tables *tables, struct tr_sending *message);

/* Messages in flight do not count in *pending any more, because its memory will be freed. */
void tr_message_orphan(struct tr_tables *tables, const uint32_t *pending);

/* A number for header.reply, different from all in flight. */
uint32_t tr_request_number(struct tr_tables *tables);

/* Returns the description of n units of the table, which codecs take. */
static inline struct tr_slice tr_slice_of(const struct tr_table *t, uint32_t n)
{
    return (struct tr_slice){.dtype = t->dtype, .n = n, .width = t->unit_width};
}
/* Return the encoding and precision of updates, and of values that are read (exact: not rounded; otherwise to at least 16 bits). */
struct tr_wire tr_push_wire(const struct tr_table *table);
struct tr_wire tr_pull_wire(const struct tr_table *table, bool exact);

/* ======== the server role ======== */

/* Messages are handled in the order of their arrival, and handling does not wait. Key sets are registered by (rank, tag), so that
 * pulls and pushes carry no keys. All functions are local. */

/* Poll function: completes sends, then handles messages to this rank as a server. what: the tr_tables. */
int tr_server_poll(void *what, int *did);

/* For a new table; and for one that is freed. */
int tr_server_open(struct tr_table *table);
void tr_server_close(struct tr_table *table);

/* A stage starts at clock 0. */
void tr_server_begin(struct tr_table *table);

/* Some key set is registered. */
bool tr_server_has_clients(const struct tr_table *table);

/* Hash storage was cleared: keys of key sets must be looked up again. */
void tr_server_forget_slots(struct tr_table *table);

/* Under BSP, updates that come as messages are held until they may become visible. The number of clocks whose updates have been
 * added; INT64_MAX: no updates are held in this stage. */
int64_t tr_server_settled(const struct tr_table *table);

/* Adds the updates of the next clock c if all of them have arrived and c < visible; then ++*did. */
int tr_server_serve(struct tr_table *table, int64_t visible, int *did);

/* Handles an update of a rank, which may be this one: holds or adds it, and acknowledges it. */
int tr_server_push(struct tr_table *table, int rank, const struct tr_message *message, const void *data,
                   size_t bytes);

/* ======== server functions ======== */

/* The server function of a table, on this rank. */
struct tr_use {
    tr_function function;
    tr_share share;    /* of this rank, if it serves */
    int64_t *passed;   /* by pusher: it has pushed for all versions < passed */
    int64_t expired;   /* versions < expired are not needed any more */
    bool sums;         /* under BSP it gets the sum of all updates of a clock */
    char *sum;         /* the sum so far */
    uint64_t *touched; /* a bit for each unit that the sum contains */
    size_t touched_words;
    uint64_t *sorted; /* units that did not ascend */
    size_t sorted_room;
    uint32_t *unit; /* an update without its zeros */
    char *value;
    size_t unit_room, value_room;
};

/* The server function computes the values of a version when they are read. */
static inline bool tr_table_keeps_versions(const struct tr_table *t)
{
    return t->use && t->use->function.read;
}

/* Registers the built-in functions and answers. */
int tr_functions_open(struct tr_tables *tables);

/* Starts a stage with all versions at 0, after all pushing views are registered. Local, as all functions below. */
int tr_use_begin(struct tr_table *table);

/* All updates of a stage have arrived: adds the versions that are kept apart to the values. */
void tr_use_end(struct tr_table *table);
void tr_use_free(struct tr_table *table);

/* Hash storage has grown and may have moved: finds the arrays again. */
void tr_use_follow(struct tr_table *table);

/* The functions and answers that are built in (trireme/function.h describes them).
 *
 * add and scale are linear, so under BSP they get the sum of a clock's updates, as optimizers do; assign and max get the updates
 * one by one: of assignments, the last in the order of workers counts. i32 and i64 are scaled in double and rounded; max keeps a
 * value that is compared with NaN, and tables begin with zeros, so negative numbers never replace the initial value. Optimizers
 * need TR_F32 or TR_F64 and a tr_optimizer. */
extern const tr_function tr_builtin_functions[];
extern const size_t tr_builtin_function_count;
extern const tr_answer tr_builtin_answers[];
extern const size_t tr_builtin_answer_count;

/* ======== time that values are in flight ======== */

/* A pull or push of this rank starts and ends: time with at least one in flight counts as way_seconds. */
void tr_way_begin(struct tr_tables *tables);
void tr_way_end(struct tr_tables *tables);

/* This rank starts and stops computing; and, nested in that, starts and stops waiting or moving values. way_seconds while it
 * computes and does not wait count as hidden_seconds, too. */
void tr_way_compute(struct tr_tables *tables, bool computes);
void tr_wait_begin(struct tr_tables *tables);
void tr_wait_end(struct tr_tables *tables);

#endif
