/* What linear.c and the methods of its training share. */
#ifndef TR_LINEAR_PARTS_H
#define TR_LINEAR_PARTS_H

#include "model/linear/linear.h"

/* Members of the group hold features of the same rows. */
bool tr_linear_is_vertical(const tr_worker *me, const struct tr_linear *m);

/* The rows of this worker that belong to mini-batch i of an epoch: from here to where i + 1 begins. */
size_t tr_linear_batch_begin(const struct tr_linear *m, int64_t i);

/* Mini-batches first .. last - 1 of the epoch that clock c belongs to. */
void tr_linear_batches(const struct tr_linear *m, int64_t clock, int64_t *first, int64_t *last);

/* delta is used as the worker's own copy of w while it computes, one array fewer to keep in cache; afterwards it is
 * made (delta - value) / divisor. */
void tr_copy_to_delta(tr_view *view, enum tr_dtype dtype);
void tr_keep_difference(tr_view *view, enum tr_dtype dtype, double divisor);

/* One clock of a worker, by method. */
int tr_linear_dual_clock(tr_worker *me, void *linear);
int tr_linear_sgd_clock(tr_worker *me, void *linear);

/* Whether the numbers of solve.optimizer are possible ones. */
int tr_linear_check_optimizer(const tr_job *job);

/* sgd: memory of the optimizer where the worker keeps it. */
int tr_linear_sgd_prepare(struct tr_linear *m);

/* Servers for w; 0 for as many as the job says. */
uint32_t tr_linear_servers(const struct tr_linear *m);

/* What the servers do with updates of w, as the job says: all ranks. */
int tr_linear_use_function(struct tr_linear *m);

#endif
