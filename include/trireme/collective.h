/* Collective calls: small exchanges among sets of ranks.
 *
 * All ranks of the set make the same call, in the same order. While a rank waits in one it looks after its other roles (a
 * server answers, the scheduler publishes clocks), so that these calls may stand wherever a model likes: before the stages,
 * and inside compute functions, as long as all members of the set get there. Parameters belong in tables, not here.
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

/* Sets of ranks. A rank may call only for a set that it belongs to. Members are numbered from 0: all ranks and the servers
 * by rank, workers by group and member, members of a group from its leader on, leaders by group, ranks of a node by rank. */
enum tr_set { TR_SET_ALL, TR_SET_SERVERS, TR_SET_WORKERS, TR_SET_GROUP, TR_SET_LEADERS, TR_SET_NODE };

enum tr_operation { TR_SUM, TR_MIN, TR_MAX };

/* This rank's number in the set (-1: it is not in it), and how many it has (0 then). */
int tr_set_rank(const tr_context *tr, enum tr_set set);
int tr_set_size(const tr_context *tr, enum tr_set set);

/* Combines n numbers of every member, in place; all get the result, which is the same to the last bit. Sums of 64 kB and more go in
 * parts, so that a member sends them twice however many there are. */
int tr_all_reduce(tr_context *tr, enum tr_set set, enum tr_operation operation, enum tr_dtype dtype,
                  void *values, size_t n);

/* Sums numbers over all members, each of whom gets a part of the sums: of the numbers that lie one after the other in
 * `values`, counts[0] are member 0's, counts[1] member 1's, and so on, as all know. `values` is used for working; where sum is
 * NULL the member's own numbers stay at their place of it. Each member sends log2(size) messages, and all numbers but its own
 * once (recursive halving). */
int tr_reduce_scatter(tr_context *tr, enum tr_set set, enum tr_dtype dtype, void *values,
                      const size_t *counts, void *sum);

/* The sum of a number over all members before this one; 0 at the first. */
int tr_sum_before(tr_context *tr, enum tr_set set, uint64_t value, uint64_t *before);

/* The root's bytes, at all. */
int tr_broadcast(tr_context *tr, enum tr_set set, int root, void *data, size_t bytes);

/* Every member's bytes, one after the other, at all: size × bytes of them; and the same of different lengths:
 * counts[i] bytes of member i, which all know; any amount. In log2(size) rounds. `mine` may lie where it comes to lie in `all`. */
int tr_all_gather(tr_context *tr, enum tr_set set, const void *mine, size_t bytes, void *all);
int tr_all_gather_lists(tr_context *tr, enum tr_set set, const void *mine, const size_t *counts, void *all);

/* To each member its own bytes: to_each[i] bytes for member i, one after the other in `sent`; from_each[i] bytes of member i
 * come to lie one after the other in `received`. The second finds out how many come: from_each has room for as many counts
 * as there are members. Any amount. */
int tr_exchange(tr_context *tr, enum tr_set set, const void *sent, const size_t *to_each, void *received,
                const size_t *from_each);
int tr_exchange_counts(tr_context *tr, enum tr_set set, const size_t *to_each, size_t *from_each);

/* Waits until all members are here. */
int tr_barrier_of(tr_context *tr, enum tr_set set);

/* Memory that all members share, zeros at first, which each of them sees at an address of its own: all members with the same
 * number of bytes, outside tr_run() or where no member can wait for another one's roles. TR_ERR_CONFIG: they are not of one
 * node; TR_ERR_SYSTEM: no room. All members close it; NULL inside is fine. */
typedef struct tr_set_memory tr_set_memory;
int tr_set_memory_open(tr_context *tr, enum tr_set set, size_t bytes, tr_set_memory **memory);
void *tr_set_memory_at(const tr_set_memory *memory);

/* Waits until all members are here: as tr_barrier_of(), without a message. What each has written there before, all see now. */
int tr_set_memory_meet(tr_set_memory *memory);
void tr_set_memory_close(tr_set_memory **memory);

#ifdef __cplusplus
}
#endif
#endif
