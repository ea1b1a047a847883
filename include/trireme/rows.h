/* Pipelined access to rows of a table, for models whose parameters are matrices of many rows (Angel, section
 * «Pipelining pulling», algorithm 2).
 *
 * A worker that needs each row for one piece of work (solving for a user, sampling a word) passes the list of rows and
 * a function that processes one row. Requests for later rows are in flight while it computes. Rows in memory of the
 * node are passed without a copy, and a row that several workers of a node need at the same time is sent to the node
 * once. Nothing is registered in advance: lists may differ between clocks and workers.
 *
 * Tables with sparse rows (tr_table_options.sparse) are read and changed through this interface only.
 *
 * Example:
 *
 *     static int solve_user(void *state, const tr_row *row)
 *     {
 *         struct als *als = state;
 *         return update_factors(als, row->place, row->value);
 *     }
 *     ...
 *     TR_TRY(tr_rows_pull(items, needed, n, solve_user, als));
 */
#ifndef TRIREME_ROWS_H
#define TRIREME_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row. */
typedef struct tr_row {
    tr_key key;
    size_t place; /* index in the list of keys that was passed; unused in a push */
    size_t n;     /* number of values: the table's width, or the number of entries of a sparse row */
    const uint32_t *column; /* sparse: n columns in ascending order; NULL otherwise */
    const void *value;      /* n elements of the table's type; pulled sparse rows contain no zeros */
} tr_row;

/* Processes one row. The row is read-only and valid until the function returns. The function may call tr_rows_push(),
 * and tr_rows_pull() for other tables, but not for the same table.
 *
 * @return TR_OK; any other status ends the pull, which returns it
 */
typedef int tr_row_fn(void *state, const tr_row *row);

/* Pulls rows and calls a function for each, in any order.
 *
 * @param [in] keys  n keys below tr_table_keys(), in any order, repetitions allowed; may be freed after the call.
 *                   Ascending lists, and equal lists on the workers of a node, cost least
 * @param [in] row   called n times on success, in this thread, never recursively
 * @return TR_ERR_INTERNAL for a key that does not exist, for a call inside row() for the same table, and under BSP
 *         after a view was pushed in the same clock
 *
 * Called by a worker inside compute() or evaluate(); workers may call it different numbers of times. At clock c it waits
 * as tr_view_pull() does: every row includes all updates of clocks below c - staleness. Under BSP the rows are exactly
 * those of clock c (tr_rows_push() does not affect them). Under SSP and ASP consecutive rows may be of different times.
 * Own updates are always included; updates of other members of a group when they have arrived. Outside tr_run() any
 * ranks may call it while all others wait in tr_agree(): models are saved in this way.
 *
 * Memory in flight is at most (table.ahead + 1) × table.row_bytes per server that stores some of the rows, at least one
 * row each, plus two requests that are being decoded. table.ahead = 0 disables the overlap. Rows above 16 KiB are stored in pieces on several servers and assembled here. The time of the
 * call without row() counts as pull time. A row() that computes for long should call tr_rows_meanwhile().
 */
int tr_rows_pull(tr_table *table, const tr_key *keys, size_t n, tr_row_fn *row, void *state);

/* Declares that this worker pulls the same rows after each update of the table. Under BSP with merged updates, the rows
 * are then sent with each update, once per node, instead of being requested. This applies if table.route is auto, rows
 * have at most 16 KiB, and the subscriptions of a node fit into 256 MiB, which its workers share; otherwise the call has
 * no effect. Called in a stage's prepare function, once per table.
 *
 * @param [in] keys  n keys in ascending order; copied
 * @return TR_ERR_INTERNAL if keys do not ascend or do not exist, or on a second list for a table
 */
int tr_rows_subscribe(tr_table *table, const tr_key *keys, size_t n);

/* Serves other ranks and receives arrived messages, for functions that compute long. About 1 µs if there is nothing to
 * do. */
int tr_rows_meanwhile(tr_table *table);

/* Adds n sparse rows to a sparse table. Elements that become zero are not stored.
 *
 * @param [in] rows  n rows in any order, repetitions allowed, columns ascending; copied
 * @return TR_ERR_INTERNAL if the table is not sparse, a key or column does not exist, or columns do not ascend
 *
 * Called by a worker inside compute(), any number of times per clock. The rows are part of the clock's update: under BSP
 * they become visible when all updates of the clock have arrived, otherwise on arrival. The transfer proceeds in the
 * background; at most a few messages per server are in flight. Without BSP a reader sees either all or nothing of one
 * push to a row if the push is less than 256 KiB in encoded form (at least 26000 entries), and a consistent row if
 * the row is smaller than table.row_bytes.
 */
int tr_rows_push(tr_table *table, const tr_row *rows, size_t n);

/* Waits until all rows that this worker has pushed have arrived. Needed without BSP before another worker reads them. */
int tr_rows_settle(tr_table *table);

/* Declares whether a sparse table is unused in the next stages. Under BSP all ranks otherwise wait in every clock for the
 * confirmation that its updates have arrived. Pulls from and pushes to an unused table are TR_ERR_INTERNAL. All ranks,
 * before tr_run(). */
void tr_table_rest(tr_table *table, bool rests);

#ifdef __cplusplus
}
#endif
#endif
