/* What linear.c and the methods of its training share. */
#ifndef TR_LINEAR_PARTS_H
#define TR_LINEAR_PARTS_H

#include "model/linear/linear.h"

/* Members of the group hold features of the same rows. */
bool tr_linear_is_vertical(const tr_worker *me, const struct tr_linear *m);

/* Opens a view of w, or of a table like it, by the keys of these data. */
int tr_linear_open_view(struct tr_linear *m, tr_worker *me, const tr_data *data, tr_table *table,
                        enum tr_view_use use, tr_view **view);

/* The same of a range of keys. */
int tr_linear_open_range(tr_table *table, tr_key first, size_t n, enum tr_view_use use, tr_view **view);

/* A worker as a stage of all workers would see it, for work outside of stages: the set of its group. */
tr_worker tr_linear_self(tr_context *tr);

/* Which rows its mini-batches are of: before the next two. */
void tr_linear_take_part(const tr_worker *me, struct tr_linear *m);

/* The rows of this worker that belong to mini-batch i of an epoch: from here to where i + 1 begins. */
size_t tr_linear_batch_begin(const struct tr_linear *m, int64_t i);

/* Mini-batches first .. last - 1 of the epoch that clock c belongs to. */
void tr_linear_batches(const struct tr_linear *m, int64_t clock, int64_t *first, int64_t *last);

/* delta is used as the worker's own copy of w while it computes, one array fewer to keep in cache; afterwards it is
 * made (delta - value) / divisor. */
void tr_copy_to_delta(tr_view *view, enum tr_dtype dtype);
void tr_keep_difference(tr_view *view, enum tr_dtype dtype, double divisor);

/* Rows whose margins are computed at once: room of m->margin. */
enum { TR_LINEAR_MARGINS = 4096 };

/* Fills what passes over these rows have to know; target (to be freed) is what it points to. */
int tr_linear_set_problem(const struct tr_linear *m, bool bias, const tr_data *data,
                          struct tr_problem *problem, float **target);

/* What summarize() needs of an evaluation: the loss of this worker's rows, the size of the weights (worker 0 alone; w: its
 * view of them), and how its part of the test data comes off. */
void tr_linear_report_loss(tr_report *report, double loss);
int tr_linear_report_size(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report);
int tr_linear_report_test(tr_worker *me, struct tr_linear *m, tr_view *view, tr_report *report);
int tr_linear_evaluate(tr_worker *me, void *linear, tr_report *report); /* at m->view and m->test_view */
int tr_linear_summarize(void *linear, const tr_report *report, tr_evaluation *evaluation);
int tr_linear_keep_judged(struct tr_linear *m,
                          tr_snapshot *snapshot); /* what judging remembers: in snapshot functions */

/* What the test data show, or NULL. */
const char *tr_linear_metric(const struct tr_linear *m);

/* ---- variance.c ---- */

bool tr_linear_reduces_variance(const tr_job *job);
int tr_linear_variance_check(const tr_job *job);
int tr_linear_variance_open(struct tr_linear *m); /* all ranks, after the table w is made */
int tr_linear_variance_train(struct tr_linear *m);
void tr_linear_variance_close(struct tr_linear *m); /* all ranks */

/* ---- stages.c: what the job says of a stage ---- */

int tr_linear_stage_workers(const struct tr_linear *m, const char *stage, int usual); /* as in tr_next */
int tr_linear_stage_servers(const struct tr_linear *m, const char *stage);

/* All ranks: a note where more workers are wished for than there are (one_group: in a group); more servers than there
 * are cannot be. */
int tr_linear_check_stage(const struct tr_linear *m, const char *stage, bool one_group);

/* ---- growing.c ---- */

/* So many phases at most: batches of the tenth are as large as data get. */
enum { TR_GROWING_PHASES = 64 };

bool tr_linear_grows(const tr_job *job);
int tr_linear_growing_check(const tr_job *job);
int tr_linear_growing_open(struct tr_linear *m); /* all ranks */
int tr_linear_growing_train(struct tr_linear *m);
void tr_linear_growing_close(struct tr_linear *m);

/* One clock of a worker, by method. */
int tr_linear_dual_clock(tr_worker *me, void *linear);
int tr_linear_sgd_clock(tr_worker *me, void *linear);

/* Whether the numbers of solve.optimizer are possible ones. */
int tr_linear_check_optimizer(const tr_job *job);

/* Plain gradient descent in parts. Which mini-batch comes as the i-th of an epoch goes into m->batch. Files are often
 * sorted, and a worker's rows are in their order: so its mini-batches come in another order every epoch, the same for all
 * members of a group. A step: rate times the mean gradient of the turn's mini-batch is subtracted from the view's delta. */
int tr_linear_shuffle_batches(const tr_worker *me, struct tr_linear *m, int64_t epoch);
int tr_linear_plain_step(tr_worker *me, struct tr_linear *m, int64_t turn, double rate);

/* sgd: memory of the optimizer where the worker keeps it. */
int tr_linear_sgd_prepare(struct tr_linear *m);
int tr_linear_sgd_keep(struct tr_linear *m, tr_snapshot *snapshot);

/* Servers for w; 0 for as many as the job says. */
uint32_t tr_linear_servers(const struct tr_linear *m);

/* What the servers do with updates of w, as the job says: all ranks. */
int tr_linear_use_function(struct tr_linear *m);

#endif
