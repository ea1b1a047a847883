/* Server functions: what servers do with updates that arrive, and small answers they compute where the
 * parameters lie (PS: user-defined functions on the server; DynSGD, algorithm 2).
 *
 * A table without a function adds updates up, by the fastest way there is. A table with one hands every whole
 * update of a worker (of a group, where groups push together) to it, one at a time, in the order of arrival,
 * or, under BSP, in the order of workers when all of a clock are there. Built in, by name:
 *
 *   add, assign, max   value += u, value = u, value = max(value, u)
 *   scale              value += rate u; the rate is tr_table_use()'s argument (double; 1/pushers without)
 *   dyn, dyn-stable    DynSGD's weights by staleness; read at one version from all servers
 *   agree              weights by how much the updates of a version agree
 *   sgd, momentum, nesterov, adagrad, adadelta, rmsprop, adam, ftrl
 *                      updates are gradients; the argument is a tr_optimizer (trireme/optimizer.h)
 *
 * Functions of one's own are registered by name, on all ranks, before a table uses them.
 */
#ifndef TRIREME_FUNCTION_H
#define TRIREME_FUNCTION_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TR_STATE_ARRAYS = 4 }; /* that a function can have, at most */

/* One server's part of a table, as its functions see it. Units are keys, or pieces of wide rows; they are
 * numbered by their place in the share. With hash storage (tr_table_options) those are the keys that have been
 * updated, in the order in which they came: the next update may bring more, and value and state may move. */
typedef struct tr_share {
    const char *table;
    enum tr_dtype dtype;
    size_t width;                 /* elements of a unit */
    size_t units;                 /* … of which this share has so many */
    bool growing;                 /* … so far: hash storage */
    void *value;                  /* units × width */
    void *state[TR_STATE_ARRAYS]; /* … and so is each of the function's arrays; zeros at first */
    void *own;                    /* what open() made */
    const void *argument;         /* a copy of what tr_table_use() was given */
    int server;                   /* which of the table's servers this is */
    int pushers;                  /* M: workers, or groups, that push to the table in this stage */
    int64_t stable;               /* the lowest version that all servers of the table have reached */
    const struct tr_table *place; /* for the functions below */
} tr_share;

/* The key that a unit belongs to (rows wider than 16 KiB are several units: pieces); UINT64_MAX for padding. */
tr_key tr_share_key(const tr_share *share, size_t unit);

/* Pieces of a key, and whether one of them lies in this share, and where. A key that has never been updated lies
 * nowhere in a table with hash storage; it has its share all the same, and is zeros. */
uint32_t tr_share_pieces(const tr_share *share);
bool tr_share_find(const tr_share *share, tr_key key, uint32_t piece, size_t *unit);
bool tr_share_has_place(const tr_share *share, tr_key key, uint32_t piece);

/* One update of one pusher, whole. */
typedef struct tr_update {
    int pusher;           /* 0 .. pushers-1; -1 for the sum of all under BSP, where the function wants that */
    int64_t clock;        /* of the pusher; a run that goes on from a checkpoint counts on */
    int64_t seen;         /* version of this share that the pusher read last, plus its updates since */
    int64_t version;      /* what map() made of it; the pusher's clock without one */
    size_t n;             /* units */
    const uint32_t *unit; /* n of them, ascending; NULL: 0 .. n-1 */
    const void *value;    /* n × width */
} tr_update;

/* What a server does with updates. All functions but update may be NULL. They run on servers only, must not
 * call back into tables or stages, and return a status: an error ends the job in order, and names function,
 * table and server. */
typedef struct tr_function {
    const char *name;
    size_t state_arrays; /* arrays of the share's size that are kept beside it: at most TR_STATE_ARRAYS */
    bool merged;         /* under BSP: called once a clock with the sum of all updates */
    bool sparse;         /* an update's units of zeros do nothing: they need not travel, and may be left out.
                            Without it or gradients, an update makes all its keys present in hash storage */
    bool gradients;  /* updates are gradients, not steps: units of zeros are left out of them, and a worker's
                            copy is not moved by its own */
    size_t argument; /* bytes of tr_table_use()'s argument */

    int (*open)(tr_share *share);   /* makes share->own … */
    void (*close)(tr_share *share); /* … which, if it is not NULL, this frees */
    /* Which version of the share an update belongs to. */
    int (*map)(const tr_share *share, const tr_update *update, int64_t *version);
    /* Changes value with the update. */
    int (*update)(tr_share *share, const tr_update *update);
    /* Called after updates: what only versions below `version` need can go; all pushers are past it. */
    int (*expire)(tr_share *share, int64_t version);
    /* Reads n units as of `version` into packed values; NULL: what is in value is what is read. Tables with it
     * are read by asking their servers, wherever they lie. */
    int (*read)(const tr_share *share, int64_t version, size_t n, const uint32_t *unit, void *packed);
    /* Bytes that own takes, for reports. */
    size_t (*memory)(const tr_share *share);

    /* Checkpoints keep value, or where there is read(), what it reads at version INT64_MAX, and the arrays of state; the
     * versions of a run that goes on are not below those that were. What else of own is needed then, save() copies into
     * memory from malloc() (NULL: nothing), between two clocks, changing nothing. load() puts it in the place of what own
     * has, when value and state are filled again: what this server has saved, if the table has the same keys in the same
     * places as then (same: units have their numbers, too); otherwise, one after the other, what each of its servers has
     * saved. */
    int (*save)(const tr_share *share, void **data, size_t *bytes);
    int (*load)(tr_share *share, bool same, int server, int servers, const void *data, size_t bytes);
} tr_function;

/* Makes a function known by its name: all ranks, before tr_table_use(). The struct is copied; its name
 * must stay where it is. */
int tr_function_register(tr_context *tr, const tr_function *function);

/* Lets the servers of a table use a function from the next stage on: all ranks, outside tr_run(), before
 * views of the table are open. argument: as many bytes as the function says, copied. TR_ERR_CONFIG for an
 * unknown name. */
int tr_table_use(tr_table *table, const char *function, const void *argument);

/* The function goes on with another argument, as it is, and keeps what it has: all ranks, while no updates are on their
 * way, as in snapshot functions that restore. */
int tr_table_set_argument(tr_table *table, const void *argument);

/* A small answer computed by each server on its share, and put together by who asked. */
typedef struct tr_answer {
    const char *name;
    bool values_only; /* get() looks at nothing but values: whoever can read them directly may call it */
    /* Computes one share's part; *bytes comes with the room of the result and leaves with what was used. */
    int (*get)(const tr_share *share, const void *question, size_t question_bytes, void *result,
               size_t *bytes);
    /* Adds another share's part to the result so far. */
    int (*combine)(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes);
} tr_answer;

int tr_answer_register(tr_context *tr, const tr_answer *answer); /* all ranks */

/* A combine() for results that are doubles: adds them up, one by one. They may lie in any alignment; parts that differ
 * in size are TR_ERR_INTERNAL. */
int tr_answer_add_doubles(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes);

/* Asks all servers of the table: called by one worker inside a stage. *bytes comes with the room of result and
 * leaves with the bytes used. Under BSP, between a worker's pull and its push, it is of the clock pulled. */
int tr_table_ask(tr_table *table, const char *answer, const void *question, size_t question_bytes,
                 void *result, size_t *bytes);

/* Answers that are built in. Questions and results hold the types below, in any alignment. Too little room, or a
 * question of the wrong size, is TR_ERR_INTERNAL.
 *
 *   squares   nothing → double     sum of the squares of all elements
 *   sum1      nothing → double     sum of their absolute values
 *   nonzeros  nothing → uint64_t   how many are not 0
 *   dot       tr_key a, b → struct tr_dot
 *   top       uint32_t k → struct tr_top with room for k pairs; tables of one row
 *   present   struct tr_range → uint64_t: how many of its keys lie in the shares; with hash storage, those that were updated
 *   soft      struct tr_soft → n × columns doubles (one row: n): the keys from `first` on, every element v as
 *             sign(v) max(|v| - threshold, 0): the proximal step of l1
 */

/* The product of two rows, as far as their pieces lie together. */
struct tr_dot {
    double sum;
    uint64_t pieces; /* that are in the sum: all if it is as many as a key of the table has */
};

/* Largest magnitude first, of equal ones the lower key; zeros are left out. */
struct tr_top {
    uint32_t k, n; /* as asked for, and how many there are */
    struct tr_top_pair {
        tr_key key;
        double value;
    } pair[];
};

/* Keys first .. first + n - 1. */
struct tr_range {
    tr_key first, n;
};

struct tr_soft {
    tr_key first, n;
    double threshold;
};

#ifdef __cplusplus
}
#endif
#endif
