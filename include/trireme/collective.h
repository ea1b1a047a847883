/* Collective calls: small exchanges among sets of ranks. Parameters belong in tables.
 *
 * All ranks of the set must make the same calls in the same order. A rank that waits in a call continues to serve its
 * other roles (a server answers requests, the scheduler publishes clocks). Therefore these calls may be used before the
 * stages and inside compute functions, provided that all ranks of the set reach them. Every function returns TR_OK or
 * TR_ERR_PEER unless stated otherwise.
 *
 * Example: the mean of a value over all workers.
 *
 *     double sum[2] = {value, 1};
 *     TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_F64, sum, 2));
 *     double mean = sum[0] / sum[1];
 */
#ifndef TRIREME_COLLECTIVE_H
#define TRIREME_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/context.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets of ranks. A rank may call only for a set that it belongs to. Members are numbered from 0: TR_SET_ALL,
 * TR_SET_SERVERS and TR_SET_NODE by rank, TR_SET_WORKERS by group and member, TR_SET_GROUP by member with the leader
 * first, TR_SET_LEADERS by group. */
enum tr_set { TR_SET_ALL, TR_SET_SERVERS, TR_SET_WORKERS, TR_SET_GROUP, TR_SET_LEADERS, TR_SET_NODE };

enum tr_operation { TR_SUM, TR_MIN, TR_MAX };

/* Return this rank's number in the set, and the number of members of the set: -1 and 0 if this rank does not belong to it. */
int tr_set_rank(const tr_context *tr, enum tr_set set);
int tr_set_size(const tr_context *tr, enum tr_set set);

/* Combines n numbers of every member element by element. The result has the same bits on all members.
 *
 * @param [in,out] values  n numbers of type dtype; receives the result
 *
 * From 64 kB on, each member computes a part of the result. Each member then sends its data twice, however many members there are.
 */
int tr_all_reduce(tr_context *tr, enum tr_set set, enum tr_operation operation, enum tr_dtype dtype,
                  void *values, size_t n);

/* Sums numbers over all members; each member receives one part of the sums (recursive halving). Each member sends log2(size)
 * messages. It sends each number once, except those of its own part.
 *
 * @param [in,out] values  counts[0] + counts[1] + ... numbers: the part of member 0, of member 1, ...; overwritten
 * @param [in]     counts  number of elements of each member's part; the same on all members
 * @param [out]    sum     counts[own number] sums; NULL: the sums replace this member's part of values
 */
int tr_reduce_scatter(tr_context *tr, enum tr_set set, enum tr_dtype dtype, void *values,
                      const size_t *counts, void *sum);

/* Exclusive prefix sum.
 *
 * @param [out] before  sum of value over the members with lower numbers; 0 at member 0
 */
int tr_sum_before(tr_context *tr, enum tr_set set, uint64_t value, uint64_t *before);

/* Copies the root's bytes to all members.
 *
 * @param [in,out] data  bytes to send at member `root`, bytes received at the others
 */
int tr_broadcast(tr_context *tr, enum tr_set set, int root, void *data, size_t bytes);

/* Concatenate the bytes of all members, in member order, on all members, in log2(size) rounds. There may be more than 2 GB.
 * tr_all_gather(): each member has `bytes` bytes; tr_all_gather_lists(): member i has counts[i] bytes.
 *
 * @param [in]  mine    bytes of this member; may point to its final position in `all`
 * @param [in]  counts  number of bytes of each member; the same on all members
 * @param [out] all     bytes of all members
 */
int tr_all_gather(tr_context *tr, enum tr_set set, const void *mine, size_t bytes, void *all);
int tr_all_gather_lists(tr_context *tr, enum tr_set set, const void *mine, const size_t *counts, void *all);

/* tr_exchange() sends different bytes to each member (all-to-all). tr_exchange_counts() sends the numbers of these bytes before.
 *
 * @param [in]  sent       bytes for member 0, for member 1, ...
 * @param [in]  to_each    number of bytes for each member
 * @param [out] received   bytes from member 0, from member 1, ...
 * @param [in]  from_each  number of bytes from each member, as tr_exchange_counts() returns them
 */
int tr_exchange(tr_context *tr, enum tr_set set, const void *sent, const size_t *to_each, void *received,
                const size_t *from_each);
int tr_exchange_counts(tr_context *tr, enum tr_set set, const size_t *to_each, size_t *from_each);

/* Waits until all members have called it. */
int tr_barrier_of(tr_context *tr, enum tr_set set);

/* ---- memory that the members share ---- */

typedef struct tr_set_memory tr_set_memory;

/* Allocates shared memory; its address differs between members. All members must call it with the same size, outside tr_run(),
 * or at a point where no member waits for the server or the scheduler of another rank.
 *
 * @param [in]  bytes   size; the memory is zero at first
 * @param [out] memory  free it with tr_set_memory_close(), on all members
 * @return TR_OK, TR_ERR_CONFIG if the members are on several nodes, TR_ERR_SYSTEM if shared memory is exhausted
 */
int tr_set_memory_open(tr_context *tr, enum tr_set set, size_t bytes, tr_set_memory **memory);

/* Returns this member's address of the memory. */
void *tr_set_memory_at(const tr_set_memory *memory);

/* Barrier through the shared memory, without messages. Afterwards every member sees all earlier writes. */
int tr_set_memory_meet(tr_set_memory *memory);

/* Frees the memory and sets *memory to NULL. *memory may be NULL. */
void tr_set_memory_close(tr_set_memory **memory);

#ifdef __cplusplus
}
#endif
#endif
