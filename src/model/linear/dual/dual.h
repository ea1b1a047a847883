/* Dual coordinate descent: what its two ways have in common. Each worker has a copy of w, and merges its changes with those
 * of others (dual.c); or the workers of a group, who have the same rows, all work on one w (dual_shared.c). */
#ifndef TR_LINEAR_DUAL_H
#define TR_LINEAR_DUAL_H

#include <stdatomic.h>

#include "../linear.h"
#include "trireme/collective.h"

/* What the workers of a group share. */
struct tr_linear_dual_group {
    _Atomic uint64_t next;    /* place in the epoch's order that nobody has taken yet */
    double anchor, moved;     /* where the bias is held; what it moved by while the workers took steps */
    _Atomic uint64_t resting; /* rows that steps leave out in this clock */
    double since, rate;       /* when the others joined member 0, and rows a second that it took alone */
    bool judged;              /* whether that is a gain … */
    _Atomic bool alone;       /* … which it is not */
};

/* Of the mean that is being made. */
struct tr_linear_dual_added {
    atomic_flag busy; /* somebody adds */
    size_t n;
};

struct tr_linear_dual {
    int64_t turns, every; /* parts of an epoch's rows, and how many of them a clock takes */
    float *a, *norm;      /* of each row of the problem: its dual variable, and |x|² */
    uint32_t *order;      /* rows in this epoch's order … */
    int64_t ordered;      /* … which is number ordered - 1 */
    size_t first, end;    /* rows of the problem that are this worker's part */
    int32_t *rests;       /* whether a row of the problem rests; NULL: none does */
    double mean; /* of the targets: where the bias of a regression begins, if it is not regularised */
    double anchor, moved; /* worker 0's: where the bias is held, and what it moved by in this clock */

    tr_table *table; /* of w, where the model is its mean; NULL: the model is w */
    tr_view *view;   /* of w */
    size_t adds;     /* so often in a clock w is added to … */
    void *average;   /* … this */
    struct tr_linear_dual_added *added;

    /* the group's; a, norm and order too, where its members have the same rows */
    tr_set_memory *memory;
    struct tr_linear_dual_group *group; /* NULL: each worker has a copy of w */
    void *w;
    size_t key, keys; /* this member's slice of w, which its view has */
    int working;      /* members that take steps */
    int untried;      /* clocks that pass until it is known whether they are faster than one */
};

/* ---- a bias that is not regularised ----
 *
 * It is learnt as anchor + b', where b' = c² Σ α / (λ n) is regularised as if it were one more weight, of a feature that is c in
 * all rows, and the anchor follows the bias: the proximal point method, whose dual is the method of multipliers (Rockafellar
 * 1976). In the end b' is nearly 0 and costs nothing. The anchor moves in many small steps: the rows behind a large one would
 * have to make up for it.
 *
 * c is small beside the rows, or else it is what they have most in common, and steps on it undo each other. (Passes to a gap
 * of 1e-3 where c² is |x|² = 1, and where it is 0.03 of that: 20 newsgroups svm 17 and 8, l2svm 9 and 5; clicks 10 and 7, 14 and 8.
 * Simulated, svm on four groups: 20 newsgroups more than 40, 11; clicks 18, 9.) Where λ n is large beside it, the bias would
 * lag behind the rows: by logistic loss 4000 clicks take 4 passes with 400 λ, and 8 with 120 λ. */

enum { TR_ANCHOR_STEPS = 64 }; /* of an epoch, where it has as many rows */

static inline bool tr_linear_has_free_bias(const struct tr_linear *m)
{
    return m->problem.bias && !m->o->bias_l2;
}

static inline double tr_linear_bias_of(const struct tr_linear *m, const void *w)
{
    size_t at = m->problem.keys;
    return m->problem.dtype == TR_F32 ? (double)((const float *)w)[at] : ((const double *)w)[at];
}

/* A worker: |x|² of these rows, and c², for all workers the same, with it. */
int tr_linear_dual_norms(struct tr_linear *m, size_t first, size_t n, float *norm);

/* What the dual value lacks for a bias that is not quite right, as part of the conjugate; own: its b'. */
double tr_linear_cost_of_bias(const struct tr_linear *m, double bias, double own);

/* Turns in an epoch of so many workers that each have a w of their own. */
int64_t tr_linear_dual_usual_turns(const struct tr_linear *m, int workers);

/* Into how many turns an epoch's rows are parted, as solve.batch says or the usual number; *every: how many of them a clock
 * takes. Sets m->clocks_per_epoch. */
int64_t tr_linear_dual_turns(struct tr_linear *m, int64_t usual, int64_t *every);

/* ---- mean.c ---- */

int tr_linear_dual_open_mean(struct tr_linear *m);

/* A worker: begins its keys of a clock's mean; adds w to it, if that is due between these rows of the clock's; and in the end
 * finishes and pushes its keys. The last two do nothing where the model is w. */
void tr_linear_dual_begin_mean(struct tr_linear *m, size_t first, size_t n);
void tr_linear_dual_add_to_mean(struct tr_linear *m, const void *w, double from, double to, double rows);
int tr_linear_dual_push_mean(struct tr_linear *m, const void *w, size_t first, size_t n);

/* Where additions are not to be missed, steps are taken for no more rows at once. */
size_t tr_linear_dual_rows_between_additions(const struct tr_linear_dual *d, size_t rows);

/* ---- rest.c ---- */

/* Whether rows may rest. An evaluation tells each row's margin. */
bool tr_linear_dual_rests(const struct tr_linear *m);
void tr_linear_dual_see(struct tr_linear *m, size_t row, double margin);

/* How many of this worker's part do; how often steps go over the others where so many of all do; and n rows without those
 * that rest. */
uint64_t tr_linear_dual_resting(const struct tr_linear_dual *d);
uint64_t tr_linear_dual_sweeps(const struct tr_linear *m, uint64_t resting);
size_t tr_linear_dual_leave_out(const struct tr_linear_dual *d, uint32_t *rows, size_t n);

/* ---- workers that share w ---- */

int tr_linear_dual_prepare_shared(tr_worker *me, struct tr_linear *m);
int tr_linear_dual_compute_shared(tr_worker *me, struct tr_linear *m);
int tr_linear_dual_evaluate_shared(tr_worker *me, struct tr_linear *m, tr_report *report);

#endif
