#include "unit.h"

#include "model/loss.h"
#include "model/linear/newton/newton.h"

enum { ROWS = 90, KEYS = 11, ALL = KEYS + 1, MOST_OUTPUTS = 3, MOST = ALL * MOST_OUTPUTS };

static uint64_t begin[ROWS + 1];
static uint32_t column[ROWS * KEYS];
static float value[ROWS * KEYS], dense[ROWS * KEYS], target[ROWS], weight[ROWS];
static tr_key keys[KEYS];
static struct tr_problem problem;

/* Columns of very different sizes; the last key is in two rows only. */
static void make(const struct tr_loss *model, size_t outputs, bool softmax, bool is_dense, bool free_bias)
{
    struct tr_rng rng;
    uint64_t n = 0;
    tr_rng_seed(&rng, 11, 0, 0);
    memset(dense, 0, sizeof dense);
    for (int i = 0; i < ROWS; i++) {
        begin[i] = n;
        for (uint32_t k = 0; k < KEYS; k++) {
            if (k == KEYS - 1 ? i % 50 != 3 : tr_rng_uniform(&rng) > 0.6) continue;
            float x = (float)(tr_rng_normal(&rng) * pow(10, (double)(k % 4) - 2));
            column[n] = k;
            value[n++] = dense[i * KEYS + (int)k] = x;
        }
        target[i] = outputs > 1                  ? (float)tr_rng_below(&rng, outputs)
                    : !tr_loss_classifies(model) ? (float)(5 + tr_rng_normal(&rng))
                    : tr_rng_next(&rng) & 1      ? 1.0f
                                                 : -1.0f;
        weight[i] = i % 3 == 0 ? 2.0f : 0.5f;
    }
    begin[ROWS] = n;
    for (uint64_t k = 0; k < KEYS; k++) keys[k] = k;
    problem = (struct tr_problem){.loss = model,
                                  .dtype = TR_F64,
                                  .rows = {ROWS, begin, column, value, target, NULL},
                                  .target = target,
                                  .weight = free_bias ? NULL : weight,
                                  .shape = 0.8,
                                  .outputs = outputs,
                                  .softmax = softmax,
                                  .bias = true,
                                  .keys = KEYS,
                                  .l2 = 1e-3,
                                  .n = ROWS};
    if (is_dense) problem.rows = (tr_batch){.n = ROWS, .label = target, .dense = dense};
}

static struct tr_newton *open_solver(enum tr_preconditioner preconditioner, bool bias_l2)
{
    struct tr_newton *t;
    struct tr_newton_options o = {.problem = &problem,
                                  .n = ROWS,
                                  .keys = keys,
                                  .columns = KEYS,
                                  .bias_l2 = bias_l2,
                                  .nonzeros = (double)begin[ROWS],
                                  .preconditioner = preconditioner};
    ck_ok(tr_newton_open(&o, &t));
    return t;
}

/* ---- every kind of problem ---- */

static const struct {
    const struct tr_loss *model;
    size_t outputs;
    bool softmax;
} kinds[] = {{&tr_loss_logistic, 1, false}, {&tr_loss_linear, 1, false},  {&tr_loss_l2svm, 1, false},
             {&tr_loss_huber, 1, false},    {&tr_loss_poisson, 1, false}, {&tr_loss_logistic, 3, true},
             {&tr_loss_l2svm, 3, false},    {&tr_loss_svm, 1, false},     {&tr_loss_svm, 3, false},
             {&tr_loss_quantile, 1, false}};
enum { KINDS = COUNT(kinds) };

static double at(struct tr_newton *t, const double *w, double *gradient)
{
    struct tr_newton_state state;
    struct tr_newton_weights weights = tr_newton_weights(t);
    memcpy(weights.value, w, weights.n * problem.outputs * sizeof *w);
    ck_ok(tr_newton_moved(t));
    ck_ok(tr_newton_look(t, &state));
    memcpy(gradient, weights.gradient, weights.n * problem.outputs * sizeof *gradient);
    return state.objective;
}

/* The squared hinge has a corner in its slope: a small step across one is wrong by little. */
static void agree_with_differences(void)
{
    enum tr_preconditioner none = TR_PRECONDITION_DIAGONAL;
    struct tr_newton *t = open_solver(none, true);
    size_t n = ALL * problem.outputs;
    const double step = 1e-6;
    double w[MOST], moved[MOST], g[MOST], more[MOST], less[MOST], product[MOST], direction[MOST];
    for (size_t j = 0; j < n; j++) w[j] = 0.2 * sin((double)j), direction[j] = cos(3 * (double)j);
    for (size_t j = 0; j < n; j++) {
        memcpy(moved, w, sizeof w);
        moved[j] += step;
        double up = at(t, moved, more);
        moved[j] -= 2 * step;
        double down = at(t, moved, less);
        (void)at(t, w, g);
        ck_assert_double_eq_tol(g[j], (up - down) / (2 * step), 1e-6);
    }
    for (size_t j = 0; j < n; j++) moved[j] = w[j] + step * direction[j];
    (void)at(t, moved, more);
    for (size_t j = 0; j < n; j++) moved[j] = w[j] - step * direction[j];
    (void)at(t, moved, less);
    (void)at(t, w, g);
    ck_ok(tr_newton_product(t, direction, product));
    for (size_t j = 0; j < n; j++)
        ck_assert_double_eq_tol(product[j], (more[j] - less[j]) / (2 * step), 1e-4 * (1 + fabs(product[j])));
    tr_newton_close(&t);
}

UNIT_CASE(gradient_and_products_agree_with_differences)
{
    for (int kind = 0; kind < KINDS && !kinds[kind].model->corner; kind++)
        for (int is_dense = 0; is_dense < 2; is_dense++) {
            make(kinds[kind].model, kinds[kind].outputs, kinds[kind].softmax, is_dense, false);
            agree_with_differences();
        }
}

static double optimum(enum tr_preconditioner preconditioner, bool bias_l2, double *w)
{
    struct tr_newton *t = open_solver(preconditioner, bias_l2);
    struct tr_newton_state state;
    ck_ok(tr_newton_look(t, &state));
    for (int turn = 0; turn < 200 && state.gap > 1e-12 * state.objective && !state.stuck; turn++)
        ck_ok(tr_newton_step(t, &state));
    ck_assert_double_lt(state.gap, 1e-8 * state.objective);
    memcpy(w, tr_newton_weights(t).value, ALL * problem.outputs * sizeof *w);
    tr_newton_close(&t);
    return state.objective;
}

UNIT_CASE(both_preconditioners_reach_the_same_optimum)
{
    double one[MOST], other[MOST];
    for (int kind = 0; kind < KINDS; kind++)
        for (int free_bias = 0; free_bias < 2; free_bias++) {
            make(kinds[kind].model, kinds[kind].outputs, kinds[kind].softmax, false, free_bias);
            double a = optimum(TR_PRECONDITION_DENSE, !free_bias, one),
                   b = optimum(TR_PRECONDITION_DIAGONAL, !free_bias, other);
            ck_assert_double_eq_tol(a, b, 1e-8 * a);
            /* of softmax a shift of all free biases means nothing, of the hinge one may not; which is near to less */
            bool hinge = problem.loss->corner != NULL, all = !free_bias || !(problem.softmax || hinge);
            size_t n = (all ? ALL : KEYS) * problem.outputs;
            for (size_t j = 0; j < n; j++)
                ck_assert_double_eq_tol(one[j], other[j], (hinge ? 1e-2 : 1e-4) * (1 + fabs(one[j])));
        }
}

UNIT_CASE(least_squares_take_one_step)
{
    struct tr_newton_state state;
    make(&tr_loss_linear, 1, false, true, true);
    struct tr_newton *t = open_solver(TR_PRECONDITION_DENSE, false);
    ck_ok(tr_newton_step(t, &state));
    ck_assert_double_lt(state.gap, 1e-12 * state.objective);
    tr_newton_close(&t);
}

/* ---- Cholesky ---- */

UNIT_CASE(a_factor_solves_and_lost_columns_are_let_be)
{
    enum { N = 150 };
    static double h[N * N], copy[N * N], b[N];
    struct tr_rng rng;
    tr_rng_seed(&rng, 5, 0, 0);
    for (int turn = 0; turn < 2 * N; turn++) {
        double x[N];
        for (size_t j = 0; j < N; j++) x[j] = tr_rng_normal(&rng);
        for (size_t j = 0; j < N * N; j++) h[j] += x[j / N] * x[j % N];
    }
    memcpy(copy, h, sizeof h);
    tr_cholesky(N, h);
    for (size_t j = 0; j < N; j++) b[j] = (double)j;
    tr_cholesky_solve(N, h, 1, b);
    for (size_t i = 0; i < N; i++) {
        double sum = 0;
        for (size_t j = 0; j < N; j++) sum += copy[i * N + j] * b[j];
        ck_assert_double_eq_tol(sum, (double)i, 1e-8);
    }
    double equal[] = {1, 1, 0, 1, 1, 0, 0, 0, 0}, c[] = {1, 2, 3};
    tr_cholesky(3, equal);
    tr_cholesky_solve(3, equal, 1, c);
    for (size_t j = 0; j < 3; j++) ck_assert(isfinite(c[j]));
}

/* Few rows of many columns are added one by one, full ones in tiles: both are the sums that they should be. */
UNIT_CASE(outer_products_are_summed_either_way)
{
    make(&tr_loss_linear, 1, false, false, true);
    for (int turn = 0; turn < 2; turn++) {
        tr_key place[ALL];
        enum { WIDE = 100 };
        static double h[WIDE * WIDE];
        size_t columns = turn == 0 ? ALL : WIDE;
        double c[ROWS], expected[ALL * ALL] = {0};
        for (size_t k = 0; k < ALL; k++) place[k] = turn == 0 ? k : 3 * k + 2;
        for (size_t i = 0; i < ROWS; i++) c[i] = 0.5 + sin((double)i) / 3;
        memset(h, 0, sizeof h);
        ck_ok(tr_newton_add_outer(&problem, 0, ROWS, c, place, columns, h));
        for (size_t i = 0; i < ROWS; i++)
            for (size_t a = 0; a < ALL; a++)
                for (size_t b = 0; b <= a; b++)
                    expected[a * ALL + b] += c[i] * (a == KEYS ? 1 : (double)dense[i * KEYS + a]) *
                                             (b == KEYS ? 1 : (double)dense[i * KEYS + b]);
        for (size_t a = 0; a < ALL; a++)
            for (size_t b = 0; b <= a; b++)
                ck_assert_double_eq_tol(h[place[a] * columns + place[b]], expected[a * ALL + b], 1e-9);
    }
}

/* ---- passes ---- */

/* Rows that the solver reads: the linker (--wrap) leads its calls here. A pass for a gradient or a product adds up rows once, and
 * so does one for a factor. */
static size_t rows_read;

void __real_tr_newton_add(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w);
void __wrap_tr_newton_add(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w);
int __real_tr_newton_add_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                               const tr_key *place, size_t columns, double *h);
int __wrap_tr_newton_add_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                               const tr_key *place, size_t columns, double *h);

void __wrap_tr_newton_add(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    rows_read += n;
    __real_tr_newton_add(p, first, n, c, w);
}

int __wrap_tr_newton_add_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                               const tr_key *place, size_t columns, double *h)
{
    rows_read += n;
    return __real_tr_newton_add_outer(p, first, n, c, place, columns, h);
}

UNIT_CASE(no_more_passes_are_made_than_allowed)
{
    static const struct tr_loss *const models[] = {&tr_loss_logistic, &tr_loss_linear, &tr_loss_l2svm,
                                                   &tr_loss_svm};
    static const double limits[] = {1, 3, 7, 45};
    for (size_t kind = 0; kind < 4; kind++)
        for (size_t limit = 0; limit < 4; limit++)
            for (int factor = 0; factor < 2; factor++) {
                struct tr_newton_state state;
                make(models[kind], 1, false, false, true);
                struct tr_newton_options o = {.problem = &problem,
                                              .n = ROWS,
                                              .keys = keys,
                                              .columns = KEYS,
                                              .nonzeros = (double)begin[ROWS],
                                              .preconditioner =
                                                  factor ? TR_PRECONDITION_DENSE : TR_PRECONDITION_DIAGONAL,
                                              .passes = limits[limit]};
                struct tr_newton *t;
                ck_ok(tr_newton_open(&o, &t));
                rows_read = 0;
                ck_ok(tr_newton_look(t, &state));
                bool steps = state.next <= limits[limit];
                ck_assert(steps || limits[limit] < tr_newton_least_passes(&o) + 1);
                for (int step = 0; step < 60 && !state.stuck && state.passes + state.next <= limits[limit];
                     step++)
                    ck_ok(tr_newton_step(t, &state));
                ck_ok(tr_newton_step(t, &state)); /* for which nothing is left */
                ck_assert(steps == (state.passes > 0));
                ck_assert_msg(state.passes <= limits[limit], "%g passes of %g", state.passes, limits[limit]);
                /* all passes are counted except the last gradient, which only proves the gap */
                double read = (double)rows_read / ROWS;
                if (!state.stuck)
                    ck_assert_msg(read == state.passes + 1, "%g passes, %g counted", read, state.passes);
                tr_newton_close(&t);
            }
}
