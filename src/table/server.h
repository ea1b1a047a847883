/* The server role: whatever comes with TR_TAG_SERVER is handled in the order of its arrival, and nothing here waits. Key
 * sets are kept by (rank, tag), so that pulls and pushes carry no keys. */
#ifndef TR_TABLE_SERVER_H
#define TR_TABLE_SERVER_H

#include "table/hashmap.h"
#include "table/message.h"

/* A key set as its server knows it. */
struct tr_client {
    int rank;
    uint32_t tag;
    bool pushes;
    int pusher; /* its number among those who push in this stage */
    uint32_t n;
    uint32_t *position;       /* NULL: 0..n-1, or hash storage … */
    struct tr_hash_list keys; /* … where this says which */
    char *told;               /* what it has, where it is told differences (tr_pull_differs); NULL: zeros */
    struct tr_arriving {      /* an update for a function, of which not all messages are here */
        uint32_t *unit;
        char *value;
        size_t n, unit_room, value_room;
    } arriving;
};

/* Handles what has come. */
int tr_server_poll(struct tr_tables *tables, int *did);

void tr_server_forget_all(struct tr_table *table);
void tr_server_forget_slots(struct tr_table *table); /* the map was emptied: keys are to be looked up again */
const struct tr_client *tr_server_client(const struct tr_table *table, int rank, uint32_t tag); /* or NULL */

/* In lockstep, updates that come as messages are held back: whether there may be some; whether all of the clock served
 * next are here, of rows as far as whoever asks knows that everybody's have come; and adding them, for whoever knows that
 * everybody has read for that clock. */
bool tr_server_holds(const struct tr_table *table);
bool tr_server_holds_clock(const struct tr_table *table);
int tr_server_apply_held(struct tr_table *table);

/* Does as if a message with a push had come, from this rank itself. */
int tr_server_push_here(struct tr_table *table, const struct tr_message *message, const void *data,
                        size_t bytes);

/* Answers with a head and what it says follows. */
int tr_server_reply(struct tr_table *table, int rank, uint32_t number, const struct tr_reply_head *head,
                    const void *data);

#endif
