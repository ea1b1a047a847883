/* update/ — what becomes of an update: the server functions and answers that are built in.
 *
 *   optimizer  steps of the gradient optimizers, for servers and workers
 *   builtin    server functions: arithmetic, and one for each optimizer
 *   dyn        DynSGD's weights by staleness
 *   answers    what servers compute where the values lie
 *
 * This room knows shares, but not how they are spread or how updates reach them: it stands below table/, which
 * registers what is listed here.
 */
#ifndef TR_UPDATE_H
#define TR_UPDATE_H

#include "base/base.h"
#include "trireme/function.h"
#include "trireme/optimizer.h"

/* All that are built in, by name; their meaning is in trireme/function.h.
 *
 * add and scale are linear, so under BSP they get the sum of a clock's updates, as optimizers do; assign and max
 * get the updates one by one, and of assignments the last in the order of workers wins. Details that matter to few: i32 and i64
 * are scaled in double and rounded to whole numbers; max leaves a value alone that is compared with NaN, and tables
 * begin with zeros, which no negative number exceeds. Optimizers want TR_F32 or TR_F64 and their tr_optimizer. */
extern const tr_function *const tr_builtin_functions[];
extern const size_t tr_builtin_function_count;
extern const tr_function tr_dyn_function, tr_dyn_stable_function, tr_agree_function;

/* ---- answers ----
 *
 * Questions and results hold the types below, in any alignment. Too little room, or a question of the wrong size,
 * is TR_ERR_INTERNAL. Parts of servers may be combined in any order: counts, top and soft come out the same to the
 * bit; sums of doubles do if the order is the same.
 *
 *   squares   -        → double     sum of the squares of all elements
 *   sum1      -        → double     sum of their absolute values
 *   nonzeros  -        → uint64_t   how many are not 0
 *   dot       tr_key a, b → struct tr_dot
 *   top       uint32_t k → struct tr_top with room for k pairs; tables of one row
 *   soft      struct tr_soft → n × columns doubles (one row: n): the keys from `first` on, every element v as
 *             sign(v) max(|v| - threshold, 0): the proximal step of l1
 */
extern const tr_answer *const tr_builtin_answers[];
extern const size_t tr_builtin_answer_count;

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

struct tr_soft {
    tr_key first, n;
    double threshold;
};

/* Whether ascending units (NULL: 0 .. n-1) follow each other without a gap, as they mostly do where whole shares are
 * touched, and which is the first: loops over memory in a row are several times as fast. */
static inline bool tr_units_in_a_row(const uint32_t *unit, size_t n, size_t *first)
{
    *first = unit && n > 0 ? unit[0] : 0;
    return !unit || n == 0 || unit[n - 1] - unit[0] == n - 1;
}

#endif
