/* The server functions and answers that are built in. They know shares, but not how these are spread or how updates
 * reach them; every context registers them when it opens. */
#ifndef TR_CONSISTENCY_FUNCTIONS_H
#define TR_CONSISTENCY_FUNCTIONS_H

#include "base/base.h"
#include "table/elements.h"
#include "trireme/function.h"
#include "trireme/optimizer.h"

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
