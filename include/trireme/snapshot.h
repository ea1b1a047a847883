/* State of a stage in checkpoints.
 *
 * Checkpoints are taken of stages (and tasks) that have a snapshot function. The engine stores tables, the state of
 * server functions, the clocks and the position in the job. The snapshot function lists all other state. It is called
 *   when a checkpoint is taken: all workers are between two clocks, every update has arrived; listed state is copied;
 *   when a run resumes: after prepare() and after the tables are restored, before the first clock; listed state is
 *   overwritten with the stored values.
 * It must list the same names in the same order both times, on all ranks that take part in the stage, and must not
 * communicate except through these calls. State that follows from the seed and the clock need not be listed. A run may
 * resume on other numbers of ranks, groups and members: rows are assigned to workers by their numbers.
 *
 * Names consist of letters, digits and _; they are the names that h5dump shows.
 *
 * Example:
 *
 *     static int snapshot(tr_worker *me, void *state, tr_snapshot *s)
 *     {
 *         struct sampler *l = state;
 *         TR_TRY(tr_snapshot_common(s, "alpha", TR_F64, 1, &l->alpha));
 *         return tr_data_keep(l->data, s, "topic", TR_I32, l->topic);
 *     }
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

/* Returns true if state is being restored, false if it is being copied. */
bool tr_snapshot_restores(const tr_snapshot *snapshot);

/* Lists n elements that are equal on all ranks, or that only rank 0 needs.
 *
 * @param [in,out] values  copied from rank 0; restored on all ranks
 */
int tr_snapshot_common(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, size_t n, void *values);

/* Lists rows of a matrix of total_rows × columns elements that is distributed over the workers.
 *
 * @param [in]     row     numbers of the n rows of this rank in ascending order; NULL: first, first + 1, ...
 * @param [in]     n       number of rows of this rank; 0 on ranks without rows
 * @param [in,out] values  n × columns elements
 * @return TR_ERR_DATA if a row to restore is not in the checkpoint
 *
 * A row may be on several workers. It is restored from the copy that the rank of the same number stored, and if there is
 * none, from the copy of any other rank.
 */
int tr_snapshot_rows(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                     size_t columns, const uint64_t *row, uint64_t first, size_t n, void *values);

/* Lists rows of different lengths.
 *
 * @param [in]     begin   n + 1 offsets: row i has the elements begin[i] - begin[0] .. begin[i + 1] - begin[0] - 1
 * @param [in,out] values  the elements
 * @return TR_ERR_DATA if a row to restore is missing or has another length
 */
int tr_snapshot_lists(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                      const uint64_t *row, uint64_t first, size_t n, const uint64_t *begin, void *values);

/* Lists bytes that have a meaning for this rank only. They are restored if the run resumes with the same number of ranks
 * in the same roles and the size is equal; otherwise data is unchanged.
 *
 * @param [out] found  whether data was restored
 */
int tr_snapshot_own(tr_snapshot *snapshot, const char *name, void *data, size_t bytes, bool *found);

/* Excludes a table from checkpoints, because its values do not change during the stage or can be computed again. All
 * ranks, before tr_run(). */
void tr_table_leave_out(tr_table *table);

#ifdef __cplusplus
}
#endif
#endif
