/* What a stage has to keep so that a run can go on from a checkpoint.
 *
 * A stage (or a task) that has a snapshot function is one that checkpoints are taken of. The function lists the state that is
 * not in tables: the engine keeps those, with what their server functions keep beside them, the clocks, and where the
 * stage stood. It is called
 *   when a checkpoint is taken: all workers stand between two clocks, every update has arrived; what it lists is copied;
 *   when a run goes on: after the stage is prepared and the tables are filled, before the first clock; what it lists is
 *   filled.
 * It lists the same names in the same order both times, on all ranks that take part in the stage, and communicates by
 * nothing else than these calls. What follows from the seed and the clock need not be kept. The job may go on with other
 * ranks, groups and members than before: rows find their workers by their numbers.
 *
 * Names are of letters, digits and _; they are what h5dump shows.
 */
#ifndef TRIREME_SNAPSHOT_H
#define TRIREME_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_snapshot tr_snapshot;

/* Whether state is being filled; otherwise it is being copied. */
bool tr_snapshot_restores(const tr_snapshot *snapshot);

/* n elements that are the same on all ranks, or that rank 0 alone needs: copied from rank 0, filled on all. */
int tr_snapshot_common(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, size_t n, void *values);

/* Rows of a matrix of total_rows × columns elements that is spread over the workers: n of them here, whose numbers ascend
 * (row NULL: first, first + 1, …). Each row is at one worker, or at several: a rank then finds what the rank of its own
 * number has kept of it; where that one has not, what any of the others has. Those that nobody has kept are TR_ERR_DATA.
 * Ranks without rows give n = 0. */
int tr_snapshot_rows(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                     size_t columns, const uint64_t *row, uint64_t first, size_t n, void *values);

/* The same for rows of different lengths: row i has the elements begin[i] - begin[0] .. begin[i + 1] - begin[0] - 1 of
 * values (n + 1 of begin). To be filled they must be as long as they were: TR_ERR_DATA. */
int tr_snapshot_lists(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                      const uint64_t *row, uint64_t first, size_t n, const uint64_t *begin, void *values);

/* Bytes of this rank alone that mean nothing to any other: they are filled (*found) if the run goes on with the same
 * number of ranks in the same roles and they are as many as they were; otherwise left alone. */
int tr_snapshot_own(tr_snapshot *snapshot, const char *name, void *data, size_t bytes, bool *found);

/* A table whose values stay as they are until the stage ends, or which can be made again: checkpoints do without it. All
 * ranks, before tr_run(). */
void tr_table_leave_out(tr_table *table);

#ifdef __cplusplus
}
#endif
#endif
