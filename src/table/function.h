/* A server function at work on this rank's share of a table: trireme/function.h says what such functions are. */
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
    int64_t *passed;   /* by pusher: it has pushed for all versions below */
    int64_t expired;   /* versions below are not needed any more */
    bool sums;         /* merged under BSP … */
    char *sum;         /* … all updates of a clock … */
    uint64_t *touched; /* … and which units they touch: a bit each */
    size_t touched_words;
    uint64_t *sorted; /* units that did not ascend */
    size_t sorted_room;
    uint32_t *unit; /* an update without its zeros */
    char *value;
    size_t unit_room, value_room;
};

/* A server function makes up what is read, by version. */
static inline bool tr_table_keeps_versions(const struct tr_table *t)
{
    return t->use && t->use->function.read;
}

/* tr_function_register() and tr_answer_register() without agreement: for what all ranks have. */
int tr_function_add(struct tr_tables *tables, const tr_function *function);
int tr_answer_add(struct tr_tables *tables, const tr_answer *answer);

int tr_functions_open(struct tr_tables *tables);
void tr_functions_close(struct tr_tables *tables);

/* All pushing views are registered: a stage may begin, with all versions at 0. */
int tr_use_begin(struct tr_table *table);

/* All updates of a stage have arrived: nothing is kept apart from the values any more. */
void tr_use_end(struct tr_table *table);
void tr_use_free(struct tr_table *table);

/* One whole update. A function that fails is described in tables->status, and the job ends when it can. */
void tr_use_update(struct tr_table *table, int pusher, const struct tr_message *message, size_t n,
                   const uint32_t *unit, const void *value);

/* Hash storage has grown, and may have moved. */
void tr_use_follow(struct tr_table *table);

/* Under BSP, when all updates of a clock have been handed over. */
void tr_use_clock(struct tr_table *table, int64_t clock);

/* n units into packed memory, as of a version. */
int tr_use_read(struct tr_table *table, int64_t version, size_t n, const uint32_t *unit, void *packed);

/* Bytes that functions keep besides values and state, on this rank. */
size_t tr_use_memory(const struct tr_table *table);

/* The server's end of tr_table_ask(). */
int tr_use_answer(struct tr_table *table, int rank, const struct tr_message *message, const void *question);

/* ======== functions that are built in ======== */

/* The server functions and answers that are built in. They know shares, but not how these are spread or how updates
 * reach them; every context registers them when it opens. */

/* All that are built in, by name; their meaning is in trireme/function.h.
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

/* Whether ascending units (NULL: 0 .. n-1) follow each other without a gap, as they mostly do where whole shares are
 * touched, and which is the first: loops over memory in a row are several times as fast. */
static inline bool tr_units_in_a_row(const uint32_t *unit, size_t n, size_t *first)
{
    *first = unit && n > 0 ? unit[0] : 0;
    return !unit || n == 0 || unit[n - 1] - unit[0] == n - 1;
}

#endif
