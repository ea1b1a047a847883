/* Alternating least squares, one row: against the normal equations solved plainly in f64. */
#include "unit.h"

#include "model/mf/mf.h"

enum { RANK = 100, RATINGS = 300, WIDTH = RANK + 1 };

static const size_t ranks[] = {1, 5, 16, 17, 33, 64, RANK};
static const size_t counts[] = {1, 3, 15, 16, 17, 40, 130, RATINGS};
enum { RANKS = COUNT(ranks), COUNTS = COUNT(counts) };

struct row {
    struct tr_solve_problem problem;
    size_t n;
    float memory[RATINGS][RANK], target[RATINGS];
    const float *other[RATINGS];
    double gram[RANK * RANK];
    /* reference */
    double matrix[WIDTH][WIDTH], right[WIDTH], squares;
    size_t order;
    double ridge;
};

static struct row r; /* too large for the stack */

static void make(struct tr_solve_problem problem, size_t n)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 11, problem.rank, n);
    r.problem = problem;
    r.n = n;
    for (size_t i = 0; i < n; i++) {
        r.other[i] = r.memory[i];
        for (size_t k = 0; k < problem.rank; k++) r.memory[i][k] = (float)(0.3 * tr_rng_normal(&rng) + 0.1);
        r.target[i] = (float)(problem.implicit ? (double)tr_rng_below(&rng, 5) : tr_rng_normal(&rng) + 0.5);
    }
}

/* What all rows of the other side add up to: those of this row and their mirror images. */
static void make_gram(void)
{
    size_t rank = r.problem.rank;
    for (size_t a = 0; a < rank; a++)
        for (size_t b = 0; b < rank; b++) {
            double sum = 0;
            for (size_t i = 0; i < r.n; i++)
                sum += (double)r.memory[i][a] * (double)r.memory[i][b] * (a == b ? 2 : 1);
            r.gram[a * rank + b] = sum;
        }
}

static double factor(size_t rating, size_t k)
{
    return k < r.problem.rank ? (double)r.memory[rating][k] : 1;
}

static void make_reference(void)
{
    const struct tr_solve_problem *p = &r.problem;
    r.order = p->rank + p->bias;
    r.ridge = p->weighted ? p->l2 * (double)r.n : p->l2;
    r.squares = 0;
    memset(r.matrix, 0, sizeof r.matrix);
    memset(r.right, 0, sizeof r.right);
    for (size_t i = 0; i < r.n; i++) {
        double t = (double)r.target[i], extra = p->confidence * fabs(t);
        double weight = p->implicit ? extra : 1, wanted = p->implicit ? (t > 0 ? 1 + extra : 0) : t;
        r.squares += p->implicit ? wanted : t * t;
        for (size_t a = 0; a < r.order; a++) {
            r.right[a] += wanted * factor(i, a);
            for (size_t b = 0; b < r.order; b++) r.matrix[a][b] += weight * factor(i, a) * factor(i, b);
        }
    }
    for (size_t a = 0; a < r.order; a++) {
        for (size_t b = 0; p->implicit && b < p->rank; b++) r.matrix[a][b] += r.gram[a * p->rank + b];
        r.matrix[a][a] += r.ridge * (a < p->rank ? 1 : p->bias_part);
    }
}

/* Gauss with pivots. */
static void solve_reference(double *x)
{
    static double a[WIDTH][WIDTH + 1];
    size_t n = r.order;
    for (size_t i = 0; i < n; i++) {
        memcpy(a[i], r.matrix[i], n * sizeof(double));
        a[i][n] = r.right[i];
    }
    for (size_t i = 0; i < n; i++) {
        size_t best = i;
        for (size_t l = i; l < n; l++)
            if (fabs(a[l][i]) > fabs(a[best][i])) best = l;
        for (size_t j = i; j <= n; j++) {
            double old = a[i][j];
            a[i][j] = a[best][j];
            a[best][j] = old;
        }
        for (size_t l = i + 1; l < n; l++)
            for (size_t j = n + 1; j-- > i;) a[l][j] -= a[l][i] / a[i][i] * a[i][j];
    }
    for (size_t i = n; i-- > 0;) {
        x[i] = a[i][n];
        for (size_t j = i + 1; j < n; j++) x[i] -= a[i][j] * x[j];
        x[i] /= a[i][i];
    }
}

/* xᵀAx - 2 c · x + squares, and half its slope. */
static double objective(const float *x, double *slope)
{
    double sum = r.squares;
    for (size_t a = 0; a < r.order; a++) {
        slope[a] = -r.right[a];
        for (size_t b = 0; b < r.order; b++) slope[a] += r.matrix[a][b] * (double)x[b];
        sum += (double)x[a] * (slope[a] - r.right[a]);
    }
    return sum;
}

static void check_fit(struct tr_solver *solver, const float *x)
{
    double slope[WIDTH], norm = 0, value = objective(x, slope);
    for (size_t a = 0; a < r.order; a++)
        norm += (a < r.problem.rank ? 1 : r.problem.bias_part) * (double)x[a] * (double)x[a];
    struct tr_solve_fit fit = tr_solver_fit(solver);
    ck_assert_double_eq_tol(fit.penalty, r.ridge * norm, 1e-5 * (1 + r.ridge * norm));
    ck_assert_double_eq_tol(fit.loss + fit.penalty, value, 1e-4 * (1 + r.squares));
    if (r.problem.implicit) return;
    double loss = 0;
    for (size_t i = 0; i < r.n; i++) {
        double error = (double)r.target[i];
        for (size_t a = 0; a < r.order; a++) error -= (double)x[a] * factor(i, a);
        loss += error * error;
    }
    ck_assert_double_eq_tol(tr_solve_loss(solver, r.n, r.other, r.target, x), loss,
                            1e-4 * loss + 1e-10 * r.squares);
    ck_assert(fit.cancels || fabs(fit.loss - loss) < 1e-3 * loss);
    ck_assert(!fit.cancels || loss < 0.02 * r.squares);
}

static void check_solved(enum tr_cpu level, const float *x, const char *how)
{
    double best[WIDTH], largest = 0;
    solve_reference(best);
    for (size_t a = 0; a < r.order; a++) largest = fmax(largest, fabs(best[a]));
    for (size_t a = 0; a < r.order; a++)
        ck_assert_msg(
            fabs((double)x[a] - best[a]) < 2e-4 * largest,
            "%s, %s, rank %zu, %zu ratings, bias %d, implicit %d, weighted %d: x[%zu] is %g, not %g", how,
            tr_cpu_name(level), r.problem.rank, r.n, r.problem.bias, r.problem.implicit, r.problem.weighted,
            a, (double)x[a], best[a]);
}

/* Nothing could be gained by moving what may move. */
static void check_nonnegative(const float *x)
{
    double slope[WIDTH], largest = 0;
    objective(x, slope);
    for (size_t a = 0; a < r.order; a++) largest = fmax(largest, fabs(r.right[a]));
    for (size_t a = 0; a < r.order; a++) {
        bool bias = a == r.problem.rank;
        ck_assert(bias || x[a] >= 0);
        ck_assert_msg(slope[a] > -1e-2 * largest,
                      "slope %g of %g at x[%zu] = %g, rank %zu, %zu ratings, implicit %d", slope[a], largest,
                      a, (double)x[a], r.problem.rank, r.n, r.problem.implicit);
        if (x[a] > 0 || bias)
            ck_assert_msg(fabs(slope[a]) < 1e-2 * largest, "slope %g at %zu of %g", slope[a], a,
                          (double)x[a]);
    }
}

/* The same in two parts. */
static void solve_in_parts(struct tr_solver *solver, float *x)
{
    float *sums = aligned_alloc(64, (tr_solver_sums(solver) * sizeof *sums + 63) / 64 * 64);
    memset(sums, 0, tr_solver_sums(solver) * sizeof *sums);
    size_t first = r.n / 3;
    tr_solve_add(solver, first, r.other, r.target, sums);
    tr_solve_add(solver, r.n - first, r.other + first, r.target + first, sums);
    ck_ok(tr_solve_sums(solver, r.n, sums, x));
    free(sums);
}

static void try(struct tr_solve_problem problem, size_t n, enum tr_cpu level)
{
    float x[WIDTH] = {0};
    struct tr_solver *solver = NULL;
    make(problem, n);
    ck_ok(tr_solver_new(&problem, level, &solver));
    if (problem.implicit) {
        make_gram();
        tr_gram_set(solver, r.gram);
    }
    make_reference();
    ck_ok(tr_solve(solver, n, r.other, r.target, x));
    if (problem.nonnegative) check_nonnegative(x);
    else check_solved(level, x, "in one part");
    check_fit(solver, x);
    memset(x, 0, sizeof x);
    solve_in_parts(solver, x);
    if (problem.nonnegative) check_nonnegative(x);
    else check_solved(level, x, "in parts");
    check_fit(solver, x);
    ck_assert_uint_eq(tr_solver_count(solver).careful, 0);
    tr_solver_free(&solver);
}

static void try_levels(bool nonnegative, bool implicit, bool bias)
{
    for (int level = TR_CPU_PLAIN; level <= (int)tr_cpu(); level++)
        for (int weighted = 0; weighted < 2; weighted++)
            for (size_t k = 0; k < RANKS; k++)
                for (size_t n = 0; n < COUNTS; n++)
                    try((struct tr_solve_problem){.rank = ranks[k],
                                                  .bias = bias,
                                                  .nonnegative = nonnegative,
                                                  .implicit = implicit,
                                                  .weighted = weighted,
                                                  .l2 = (weighted ? 0.05 : 0.8) * (nonnegative ? 10 : 1),
                                                  .bias_part = 0.7,
                                                  .confidence = 3},
                        counts[n], (enum tr_cpu)level);
}

UNIT_LOOP(a_row_solves_the_normal_equations, 2)
{
    try_levels(false, false, _i);
}

UNIT_CASE(implicit_ratings_count_by_their_confidence)
{
    try_levels(false, true, false);
}

UNIT_LOOP(nonnegative_rows_have_no_way_down, 2)
{
    try_levels(true, false, _i);
    if (_i == 0) try_levels(true, true, false);
}

UNIT_CASE(gram_sums_all_rows)
{
    for (int level = TR_CPU_PLAIN; level <= (int)tr_cpu(); level++) {
        struct tr_solve_problem problem = {.rank = 33, .implicit = true};
        struct tr_solver *solver = NULL;
        ck_ok(tr_solver_new(&problem, (enum tr_cpu)level, &solver));
        make(problem, RATINGS);
        double gram[33 * 33] = {0};
        ck_assert_uint_eq(tr_solver_gram(solver), 33 * 33);
        tr_gram_add(solver, r.n, r.memory[0], RANK, gram);
        for (size_t a = 0; a < 33; a++)
            for (size_t b = a; b < 33; b++) {
                double sum = 0;
                for (size_t i = 0; i < r.n; i++) sum += (double)r.memory[i][a] * (double)r.memory[i][b];
                ck_assert_double_eq_tol(gram[a * 33 + b], sum, 1e-4);
            }
        tr_solver_free(&solver);
    }
}

UNIT_CASE(a_row_without_ratings_is_zero)
{
    float x[WIDTH];
    for (int kind = 0; kind < 4; kind++) {
        struct tr_solve_problem problem = {
            .rank = 20, .bias = kind == 1, .implicit = kind == 2, .nonnegative = kind == 3, .weighted = true};
        struct tr_solver *solver = NULL;
        ck_ok(tr_solver_new(&problem, tr_cpu(), &solver));
        for (size_t k = 0; k < WIDTH; k++) x[k] = 7;
        ck_ok(tr_solve(solver, 0, NULL, NULL, x));
        for (size_t k = 0; k < WIDTH; k++) ck_assert_float_eq(x[k], k < problem.rank + problem.bias ? 0 : 7);
        ck_assert(tr_solver_fit(solver).loss == 0 && tr_solver_fit(solver).penalty == 0);
        tr_solver_free(&solver);
    }
}

/* Without λ, and with rows that say the same, there are many solutions: one that fits is found in f64. */
UNIT_CASE(equations_without_one_solution_are_solved_carefully)
{
    for (int kind = 0; kind < 4; kind++)
        for (int level = TR_CPU_PLAIN; level <= (int)tr_cpu(); level++) {
            bool bias = kind & 1;
            struct tr_solve_problem problem = {
                .rank = kind < 2 ? 33 : 80, .bias = bias, .bias_part = 1, .weighted = true};
            struct tr_solver *solver = NULL;
            float x[WIDTH] = {0};
            make(problem, 20);
            for (size_t i = 10; i < 20; i++) {
                memcpy(r.memory[i], r.memory[i - 10], sizeof *r.memory);
                r.target[i] = r.target[i - 10];
            }
            make_reference();
            ck_ok(tr_solver_new(&problem, (enum tr_cpu)level, &solver));
            if (kind < 2) solve_in_parts(solver, x);
            else ck_ok(tr_solve(solver, 20, r.other, r.target, x));
            double slope[WIDTH];
            ck_assert_double_lt(objective(x, slope), 1e-3 * r.squares);
            ck_assert_uint_eq(tr_solver_count(solver).careful, 1);
            tr_solver_free(&solver);
        }
}

UNIT_CASE(what_is_not_finite_is_said)
{
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 5; n <= 50; n += 45) {
            struct tr_solve_problem problem = {.rank = 20,
                                               .bias = kind == 1,
                                               .bias_part = 1,
                                               .nonnegative = kind == 3,
                                               .weighted = true,
                                               .l2 = kind == 2 ? 0 : 0.1};
            struct tr_solver *solver = NULL;
            float x[WIDTH] = {0};
            make(problem, n);
            r.memory[3][4] = kind == 1 ? INFINITY : NAN;
            ck_ok(tr_solver_new(&problem, tr_cpu(), &solver));
            ck_fails(tr_solve(solver, n, r.other, r.target, x), TR_ERR_DIVERGED, "not finite");
            tr_solver_free(&solver);
        }
}
