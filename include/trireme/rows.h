/* Rows of a table in any order, as they arrive: for models whose parameters are matrices of many rows.
 *
 * A worker that needs each row for one piece of work (solving for a user, sampling a word) says which rows it needs
 * and what to do with one. Requests for later rows are under way while it computes, rows that lie in memory of its
 * node are handed over where they lie, and what the workers of a node need at about the same time travels to the node
 * once (Angel, section "Pipelining pulling", algorithm 2). Nothing is registered beforehand: lists may be others in
 * every clock, and others on every worker.
 *
 * It is the only way to read and change tables whose rows are sparse (tr_table_options.sparse): counts of words and
 * topics, say, of which most are zero.
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
    size_t place;           /* where it stands in the list that was asked for; of no meaning in a push */
    size_t n;               /* values: the table's width, or, of a sparse table, the row's entries */
    const uint32_t *column; /* sparse: the n columns, ascending; NULL otherwise */
    const void *value;      /* n elements of the table's type; sparse: none of those pulled is zero */
} tr_row;

/* What is done with a row. Its memory is valid, and its values stay the same, until the function returns; it is not to
 * be written. Anything but TR_OK ends the pull, which returns it. The function may push (tr_rows_push()) and may pull
 * rows of other tables, but not of the same. */
typedef int tr_row_fn(void *state, const tr_row *row);

/* Hands over the rows with the n given keys, each once for every time that it is listed, in any order.
 *   keys   below the table's number of keys, in any order; not used any more once the call returns. Lists that ascend,
 *          or that are alike on the workers of a node, cost least
 *   row    called n times on success, in this thread and never inside itself
 *
 * Called by a worker inside compute() or evaluate(); workers need not call it equally often, nor with the same lists.
 * At clock c it waits until the consistency of the job allows to read, as tr_view_pull() does: all updates of clocks
 * < c - s are in every row. Under BSP rows are exactly those of clock c, whenever in the clock they are pulled, as long
 * as no view has been pushed before (tr_rows_push() does no harm). Under SSP and ASP rows that are handed over one after
 * the other may be of different times. Own updates are always seen; those of the other members of a group, which
 * share a view, when they have arrived.
 *
 * Outside of tr_run() any ranks may call it, one or several, while all others wait in tr_agree(): so models are saved.
 *
 * Memory in flight is at most (table.ahead + 1) × table.row_bytes for each server that holds some of the rows, one row
 * at least, and two such requests besides that are being decoded. With table.ahead = 0 there is never more than one
 * request under way, and no row is computed meanwhile. Rows wider than 16 KiB lie in pieces on several servers, and are
 * put together here.
 *
 * The time that it takes, without that spent in row(), counts as time of pulling. A row() that computes for long keeps
 * other ranks waiting for what this one serves: tr_rows_meanwhile() lets it answer.
 *
 * TR_ERR_INTERNAL: a key that the table does not have; a call inside row() for the same table; under BSP, after a view
 * has been pushed in the same clock. */
int tr_rows_pull(tr_table *table, const tr_key *keys, size_t n, tr_row_fn *row, void *state);

/* Says that after each update of a table this worker pulls rows by this very list. Under BSP, where they are merged, these then come
 * of themselves behind each update, by as many messages as merging takes and not one to each server and one back, and once to a
 * node for all of its workers; as long as table.route is auto, rows have no more than 16 KiB, and what a node subscribes to fits
 * into 256 MiB, which its workers share. Elsewhere this changes nothing, nor for pulls by other lists. Inside a stage's prepare
 * function, once for a table; keys ascend, and are copied.
 * TR_ERR_INTERNAL: keys that do not, or that the table does not have; the second list for a table. */
int tr_rows_subscribe(tr_table *table, const tr_key *keys, size_t n);

/* Answers whom this rank serves, and takes what has arrived for it: for functions that compute long. Costs about a
 * microsecond where there is nothing to do. */
int tr_rows_meanwhile(tr_table *table);

/* Adds n sparse rows to a sparse table: the values of each to the elements at its columns, which ascend. Elements that
 * become zero are not kept. Rows may be listed in any order, and more than once; they are copied, and travel while the
 * worker goes on. Called by a worker inside compute(), as often in a clock as it likes: what has been pushed in a clock
 * is part of that clock's update. Under BSP it shows when all updates of the clock are there; otherwise as it arrives.
 * Where more is pushed than the servers take, it waits for them, so that a few messages for each server are kept at
 * most.
 *
 * Without BSP, whoever reads meanwhile sees all that one push adds to a row or nothing of it, as long as that is less
 * than 256 KiB as it travels (26000 entries at least); and reads a row as it is at one time, as long as that is less
 * than table.row_bytes.
 *
 * TR_ERR_INTERNAL: the table is not sparse; a key or column that it does not have; columns that do not ascend. */
int tr_rows_push(tr_table *table, const tr_row *rows, size_t n);

/* Waits until all that this worker has pushed has arrived: without BSP, before somebody else is to read it. */
int tr_rows_settle(tr_table *table);

/* Sparse rows: whether nobody pulls them or pushes to them in the stages to come. Under BSP all ranks wait in every clock to
 * hear that what was pushed to such tables has arrived, which tables that rest spare them. All ranks, before tr_run();
 * pulling from one that rests and pushing to it are TR_ERR_INTERNAL. */
void tr_table_rest(tr_table *table, bool rests);

#ifdef __cplusplus
}
#endif
#endif
