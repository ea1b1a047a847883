/* Rows of hinge losses that rest: their dual variables are at a bound, and by the margin of the model they stay there. Steps
 * leave them out until the next evaluation, which looks at all rows anyway, and the gap that it proves is of all rows. What
 * that saves goes into more steps for the others, as many as there are rows. (LIBLINEAR shrinks by the slopes that steps meet;
 * those of the mean of w, which swings less, tell more: simulated, to a gap of 1e-3, passes and steps for each row: a9a, svm 111
 * and 111 without, 29 and 20 with it; w8a, svm 41 and 7, steps 41 and 2; l2svm 149 and 40, steps 149 and 9; 20 newsgroups, svm
 * 14 and 8, steps 14 and 5.) */
#include "dual.h"

/* Rows that are nearer to the hinge than this do not rest; sweeps over the others in an epoch. */
static const double distance = 0.1;
enum { MOST_SWEEPS = 8 };

bool tr_linear_dual_rests(const struct tr_linear *m)
{
    return m->dual->table && (m->loss == &tr_loss_svm || m->loss == &tr_loss_l2svm);
}

void tr_linear_dual_see(struct tr_linear *m, size_t row, double margin)
{
    struct tr_linear_dual *d = m->dual;
    double a = (double)d->a[row], z = margin * (double)m->problem.target[row];
    d->rests[row] = (a <= 0 && z > 1 + distance) || (m->loss == &tr_loss_svm && a >= 1 && z < 1 - distance);
}

uint64_t tr_linear_dual_resting(const struct tr_linear_dual *d)
{
    uint64_t n = 0;
    for (size_t i = d->first; d->rests && i < d->end; i++) n += d->rests[i] != 0;
    return n;
}

uint64_t tr_linear_dual_sweeps(const struct tr_linear *m, uint64_t resting)
{
    uint64_t rows = m->problem.rows.n, left = rows - resting;
    if (m->dual->turns > 1 || left == 0) return 1;
    return rows / left < MOST_SWEEPS ? rows / left : MOST_SWEEPS;
}

size_t tr_linear_dual_leave_out(const struct tr_linear_dual *d, uint32_t *rows, size_t n)
{
    if (!d->rests) return n;
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        rows[left] = rows[i];
        left += !d->rests[rows[i]];
    }
    return left;
}
