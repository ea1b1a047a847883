/* Inside rows in any order: a pull under way. rows.c splits the list, hands rows over and decides what comes next;
 * rows_ask.c asks servers and takes answers.
 */
#ifndef TR_TABLE_ROWS_PARTS_H
#define TR_TABLE_ROWS_PARTS_H

#include "table/message.h"
#include "table/node_cache.h"
#include "table/rows.h"

/* A unit of the list, by server in the order of the list. */
struct tr_pull_want {
    uint32_t position; /* at its server */
    uint32_t unit;     /* number of its row in the list × pieces + piece */
};

/* One unit that is asked for. */
struct tr_pull_ask {
    uint32_t want; /* number in the list of wants */
    uint32_t from; /* sparse: a part of the row has come, the rest begins at this column */
    bool claimed;  /* its entry of the node cache */
};

/* A request, and its answer. */
struct tr_pull_request {
    struct tr_pull_request *next;
    uint32_t server, n;
    bool got; /* by an RMA get: the answer is values alone, behind where their head would be */
    struct tr_pull_ask *ask;
    char *answer;
    size_t ask_room, answer_room;
    struct tr_sparse_head head;
};

/* What is wanted from one server. */
struct tr_pull_source {
    bool near;                 /* this rank reads it directly */
    uint32_t next, end;        /* wants that have not been looked at */
    struct tr_pull_ask *again; /* to be asked for before them */
    size_t agains, room;
    size_t asked;                 /* for so many units it was asked */
    uint64_t under_way, requests; /* of all requests, those without an answer */
};

/* A sparse row, or the first part of one. */
struct tr_pull_part {
    struct tr_pull_part *next;
    uint32_t want, n;
    uint32_t *column, *value;
    size_t column_room, value_room;
};

struct tr_pull {
    struct tr_table *table;
    const struct tr_rows_terms *terms;
    struct tr_node_cache *cache; /* NULL: this pull shares nothing */
    struct tr_cache_terms cache_terms;
    const tr_key *keys;
    tr_row_fn *row;
    void *state;
    size_t n, left; /* rows */
    struct tr_pull_want *want;
    struct tr_pull_source *source; /* by server */
    uint32_t *elsewhere; /* wants that other workers of the node fetch or have fetched: a ring of all wants */
    size_t wants, elsewhere_first, elsewhere_n;
    struct tr_pull_request *here, **here_end; /* answered */
    struct tr_pull_request **flying;          /* not answered … */
    MPI_Request *received;                    /* … and what would tell */
    int *arrived;                             /* numbers among them */
    size_t flying_n;
    uint64_t ahead, row_bytes;
    struct tr_pull_part *parts; /* of sparse rows that were cut */
    bool subscribed;            /* rows of other nodes come behind the last merge */

    double computed, computing_since; /* seconds: by row() before it was called in turn, as it is now */
    double looked;                    /* when messages were last looked after */

    /* rows of several pieces */
    size_t base, window; /* rows below base are complete; those from base + window on are not begun */
    uint32_t *missing;   /* by row % window: pieces */
    char *whole;         /* … and their values */
    char *scratch;       /* one row */
};

/* What a table keeps on this rank from one pull to the next. */
struct tr_rows {
    struct tr_pull *pull; /* NULL: none */
    struct tr_pull_request *spare;
    double row_bytes;         /* sparse: in messages, lately */
    struct tr_pull_part part; /* sparse: one row */
    char *decoded, *cached;   /* dense: one answer that is handed over, and one that goes to the cache */
    size_t decoded_room, cached_room;

    struct tr_node_cache cache; /* an item a unit; none: nothing is shared */
    struct tr_shm cache_memory;
    bool looked_for_cache;
    uint64_t after, pulled; /* fetches before lack own updates; the latest when the last pull began */
};

/* The row of a want: its number in the list; and its unit, as the table numbers them. */
static inline size_t tr_rows_place_of(const struct tr_pull *p, uint32_t want)
{
    return p->want[want].unit / p->table->pieces;
}
static inline uint64_t tr_rows_unit_of(const struct tr_pull *p, uint32_t want)
{
    const struct tr_table *t = p->table;
    return p->want[want].unit % t->pieces * t->keys + p->keys[tr_rows_place_of(p, want)];
}

/* Whether the next want of a source may be begun. */
static inline bool tr_rows_may_begin(const struct tr_pull *p, const struct tr_pull_source *s)
{
    return s->next < s->end && (p->table->pieces == 1 || tr_rows_place_of(p, s->next) < p->base + p->window);
}

/* ---- rows.c ---- */

/* Calls row() for a row of the list, and looks after messages if it is time. */
int tr_rows_hand_over(struct tr_pull *p, size_t place, size_t n, const uint32_t *column, const void *value);

/* A server that this rank reads directly and that has wants left which may begin; the number of servers: none. */
uint32_t tr_rows_next_near(const struct tr_pull *p);

/* Makes room in a part for n more entries. */
int tr_rows_grow(struct tr_pull_part *part, size_t n);

/* ---- rows_ask.c ---- */

/* Sends as many requests as may be under way, to the servers in turn; this rank's neighbours begin with others. */
int tr_rows_ask_more(struct tr_pull *p);

/* Puts a unit before those of the server that have not been asked for. */
int tr_rows_ask_again(struct tr_pull_source *s, struct tr_pull_ask ask);

/* Puts what has arrived behind p->here. *did is set if there was something. */
int tr_rows_take_answers(struct tr_pull *p, bool *did);

/* The values of an answer, packed: where they lie, or decoded into memory for one answer. */
int tr_rows_decode(const struct tr_pull *p, const struct tr_pull_request *r, char **memory, size_t *room,
                   const char **value);

/* Hands over what an answer has of sparse rows; the first part of one that was cut is kept. */
int tr_rows_hand_over_lists(struct tr_pull *p, const struct tr_pull_request *r);

/* Of the list p->parts. */
void tr_rows_free_part(struct tr_pull_part **link);

#endif
