/* Rows times vectors over their keys, and back, in doubles: the passes of Newton's method. A key has K = outputs numbers, a
 * row has K.
 */
#ifndef TR_LINEAR_NEWTON_ROWS_H
#define TR_LINEAR_NEWTON_ROWS_H

#include "../pass.h"

/* z = X w, for the rows first .. first + n - 1. */
void tr_newton_times(const struct tr_problem *problem, size_t first, size_t n, const double *w, double *z);

/* w += X' c; and the same with the squares of the elements of X. */
void tr_newton_add(const struct tr_problem *problem, size_t first, size_t n, const double *c, double *w);
void tr_newton_add_squares(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                           double *w);

/* H += X' C X, its lower triangle, row by row in a matrix of `columns` columns: C is diagonal, c[i] ≥ 0 for row i, and key j
 * of the rows is column place[j]. Rows with few non-zeros are added one by one, others by BLIS in tiles. TR_ERR_SYSTEM. */
int tr_newton_add_outer(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                        const tr_key *place, size_t columns, double *h);

/* H -= Σ (x ⊗ c) (x ⊗ c)' over the rows: c has K numbers for each row, and so has H columns for each key. */
int tr_newton_subtract_outer(const struct tr_problem *problem, size_t first, size_t n, const double *c,
                             const tr_key *place, size_t columns, double *h);

/* How long the first takes beside a product with H, X' C X v, for rows with so many non-zeros. */
double tr_newton_outer_cost(double nonzeros, double columns);

/* Cholesky's factor of a symmetric matrix of which the lower triangle is given, in its place. Where what is left of a
 * diagonal element is lost in rounding, its column is taken as if it were orthogonal to those before. */
void tr_cholesky(size_t n, double *h);

/* Solves L L' x = b for `width` vectors b, element by element beside each other, in place. */
void tr_cholesky_solve(size_t n, const double *factor, size_t width, double *b);

#endif
