/* The server function of a table, on this rank's share (trireme/function.h). */
#ifndef TR_TABLE_FUNCTION_H
#define TR_TABLE_FUNCTION_H

#include "base/base.h"
#include "table/codec.h"
#include "table/server.h"
#include "trireme/function.h"
#include "trireme/optimizer.h"

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
void tr_functions_close(struct tr_tables *tables);

/* Starts a stage with all versions at 0, after all pushing views are registered. Local, as all functions below. */
int tr_use_begin(struct tr_table *table);

/* All updates of a stage have arrived: adds the versions that are kept apart to the values. */
void tr_use_end(struct tr_table *table);
void tr_use_free(struct tr_table *table);

/* Applies one whole update. If the function fails, tables->status and ->why describe it, and the job ends as soon as all ranks
 * can. */
void tr_use_update(struct tr_table *table, int pusher, const struct tr_message *message, size_t n,
                   const uint32_t *unit, const void *value);

/* Hash storage has grown and may have moved: finds the arrays again. */
void tr_use_follow(struct tr_table *table);

/* Under BSP, after all updates of a clock: applies their sum. */
void tr_use_clock(struct tr_table *table, int64_t clock);

/* Reads n units as of a version into packed memory. unit NULL: 0 .. n-1. */
int tr_use_read(struct tr_table *table, int64_t version, size_t n, const uint32_t *unit, void *packed);

/* Bytes that the function keeps on this rank besides values and state. */
size_t tr_use_memory(const struct tr_table *table);

/* Answers a tr_table_ask() of another rank. */
int tr_use_answer(struct tr_table *table, int rank, const struct tr_message *message, const void *question);

/* ======== functions that are built in ======== */

/* The server functions and answers that are built in. They know shares, but not how these are spread or how updates
 * reach them; every context registers them when it opens. */

/* The built-in ones, by name; trireme/function.h describes them.
 *
 * add and scale are linear, so under BSP they get the sum of a clock's updates, as optimizers do; assign and max
 * get the updates one by one, and of assignments the last in the order of workers wins. Details that matter to few: i32
 * and i64 are scaled in double and rounded to whole numbers; max leaves a value alone that is compared with NaN, and
 * tables begin with zeros, which no negative number exceeds. Optimizers want TR_F32 or TR_F64 and their tr_optimizer. */
extern const tr_function *const tr_builtin_functions[];
extern const size_t tr_builtin_function_count;
extern const tr_function tr_dyn_function, tr_dyn_stable_function, tr_agree_function;

extern const tr_answer *const tr_builtin_answers[];
extern const size_t tr_builtin_answer_count;

#endif
