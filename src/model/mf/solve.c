/* Least squares for one row. mf.h explains the equations; als_kernel.h defines panel. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mf.h"

enum {
    BLOCK = 16,    /* sizes of matrices are multiples of BLOCK */
    DEPTH = 128,   /* number of ratings per panel: three vectors of its columns stay in the L1 cache */
    DESCENTS = 100 /* maximum number of sweeps of coordinate descent */
};

/* Kernels of one instruction level; als_kernel.h explains each of them. */
struct kernel {
    void (*gram)(const float *panel, size_t stride, size_t depth, float *c, size_t ld, size_t n);
    void (*pack)(const float *const *row, const float *scale, size_t count, size_t rank, float *panel,
                 size_t stride, size_t n);
    void (*turn)(const float *const *row, size_t count, size_t rank, float *panel, size_t stride,
                 size_t width);
    void (*combine)(const float *panel, size_t stride, size_t depth, const float *weight, float *out,
                    size_t n);
    void (*dots)(const float *panel, size_t stride, size_t count, const float *x, size_t n, float *out);
    bool (*factor)(float *a, size_t ld, size_t n, float least, float *inverse, float *const *rhs, int sides);
    void (*back)(const float *u, size_t ld, size_t n, const float *inverse, float *y);
    float (*descend)(const float *a, size_t ld, size_t n, size_t rank, float *x, float *slope);
};

#define TR_KERNEL "mf/als_kernel.h"
#include "../levels.h"

/* A factorization in f32 is accepted if each pivot keeps the fraction LEAST_PIVOT of its value before the elimination. This is
 * certain if λ' is at least the fraction SAFE_PART of the trace. */
static const float LEAST_PIVOT = 1e-5f, SAFE_PART = 1e-4f;
/* A difference of sums has an error of about 1e-6 of the sums. A difference below this fraction of the sums is too inaccurate. */
static const double CANCELS = 1e-2;

struct tr_solver {
    struct tr_solve_problem problem;
    const struct kernel *kernel;
    size_t n, ld;  /* size of matrices: rank, rounded up; leading dimension in floats */
    float *memory; /* memory of the following arrays */
    float *sums;   /* sums of tr_solve() */
    float *panel;  /* a panel, DEPTH × ld, or a transposed panel, (rank + 1) × ld */
    float *copy;   /* copy of a matrix before its factorization */
    float *gram;   /* implicit: Σ v vᵀ over all rows of the other side, n × ld */
    float *inverse, *right[2], *weight, *scale;
    float *careful; /* memory of solve_carefully(): doubles, a matrix followed by its right side */
    struct tr_solve_count count;
    struct tr_solve_fit fit; /* fit of the row that was solved last */
};

static size_t round_up(size_t n)
{
    return (n + BLOCK - 1) / BLOCK * BLOCK;
}

/* Returns the leading dimension, an odd number of cache lines, so that columns do not map to few cache sets. */
static size_t solve_leading(size_t n)
{
    return n % (2 * BLOCK) == 0 ? n + BLOCK : n;
}

/* Assigns aligned parts of `memory` to the arrays (memory NULL: does not), and returns the total size in floats. */
static size_t lay_out(struct tr_solver *s, float *memory)
{
    size_t n = s->n, matrix = n * s->ld, order = s->problem.rank + 2;
    struct {
        float **array;
        size_t n;
    } parts[] = {{&s->sums, tr_solver_sums(s)},
                 {&s->panel, tr_max_size(DEPTH, s->problem.rank + 1) * s->ld},
                 {&s->copy, matrix},
                 {&s->gram, matrix},
                 {&s->inverse, n},
                 {&s->right[0], n + BLOCK},
                 {&s->right[1], n + BLOCK},
                 {&s->weight, DEPTH},
                 {&s->scale, DEPTH},
                 {&s->careful, 2 * (order * order + order)}};
    size_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (memory) *parts[i].array = memory + at;
        at += round_up(parts[i].n);
    }
    return at;
}

int tr_solver_new(const struct tr_solve_problem *problem, enum tr_cpu level, struct tr_solver **solver)
{
    struct tr_solver *s = NULL;
    TR_TRY(TR_NEW(&s, 1));
    *solver = s;
    s->problem = *problem;
    s->kernel = TR_BY_LEVEL(level, kernel);
    s->n = round_up(problem->rank);
    s->ld = solve_leading(s->n);
    TR_TRY(TR_NEW_ALIGNED(&s->memory, lay_out(s, NULL), true));
    lay_out(s, s->memory);
    return TR_OK;
}

void tr_solver_free(struct tr_solver **solver)
{
    if (*solver) free((*solver)->memory);
    free(*solver);
    *solver = NULL;
}

struct tr_solve_count tr_solver_count(const struct tr_solver *s)
{
    return s->count;
}

struct tr_solve_fit tr_solver_fit(const struct tr_solver *s)
{
    return s->fit;
}

/* ---- sums of the normal equations ---- */

/* Pointers into the sums of a row. */
struct parts {
    float *matrix, *right; /* matrix and right side of the normal equations */
    float *rows;           /* Σ v, for the bias */
    double *targets;       /* Σ t, for the bias */
    double *squares;       /* Σ t²; implicit: Σ (1 + a |t|) p */
};

static struct parts parts_of(const struct tr_solver *s, float *sums)
{
    float *right = sums + s->n * s->ld;
    double *numbers = (double *)(right + 2 * s->n);
    return (struct parts){sums, right, right + s->n, numbers, numbers + 1};
}

size_t tr_solver_sums(const struct tr_solver *s)
{
    return s->n * s->ld + 2 * s->n + BLOCK;
}

static double solve_square(size_t n)
{
    return (double)n * (double)n;
}

static double squares_of(const struct tr_solver *s, size_t n, const float *target)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double t = (double)target[i];
        sum += !s->problem.implicit ? t * t : t > 0 ? 1 + s->problem.confidence * t : 0;
    }
    return sum;
}

void tr_solve_add(struct tr_solver *s, size_t n, const float *const *other, const float *target, float *sums)
{
    const struct kernel *k = s->kernel;
    struct parts p = parts_of(s, sums);
    bool implicit = s->problem.implicit;
    for (size_t done = 0, now; done < n; done += now) {
        now = tr_min_size(n - done, DEPTH);
        for (size_t i = 0; i < now && implicit; i++) {
            /* The division below needs a weight above 0, also for a rating of 0. */
            float t = target[done + i], w = fmaxf((float)s->problem.confidence * fabsf(t), 1e-12f);
            s->scale[i] = sqrtf(w);
            s->weight[i] = t > 0 ? (1 + w) / s->scale[i] : 0;
        }
        k->pack(other + done, implicit ? s->scale : NULL, now, s->problem.rank, s->panel, s->ld, s->n);
        k->combine(s->panel, s->ld, now, implicit ? s->weight : target + done, p.right, s->n);
        k->gram(s->panel, s->ld, now, p.matrix, s->ld, s->n);
        if (!s->problem.bias) continue;
        k->combine(s->panel, s->ld, now, NULL, p.rows, s->n);
        for (size_t i = 0; i < now; i++) *p.targets += (double)target[done + i];
    }
    *p.squares += squares_of(s, n, target);
    s->count.flops += (double)n * (solve_square(s->problem.rank) + 3 * (double)s->problem.rank);
}

size_t tr_solver_gram(const struct tr_solver *s)
{
    return s->problem.rank * s->problem.rank;
}

void tr_gram_add(struct tr_solver *s, size_t n, const float *rows, size_t stride, double *gram)
{
    enum { BATCH = 4096 };
    size_t rank = s->problem.rank;
    float *sum = s->sums;
    for (size_t done = 0, now; done < n; done += now) {
        now = tr_min_size(n - done, BATCH);
        cblas_ssyrk(CblasRowMajor, CblasUpper, CblasTrans, (int)rank, (int)now, 1, rows + done * stride,
                    (int)stride, 0, sum, (int)rank);
        for (size_t i = 0; i < rank; i++)
            for (size_t j = i; j < rank; j++) gram[i * rank + j] += (double)sum[i * rank + j];
    }
    s->count.flops += (double)n * solve_square(rank);
}

void tr_gram_set(struct tr_solver *s, const double *gram)
{
    size_t rank = s->problem.rank;
    for (size_t i = 0; i < rank; i++)
        for (size_t j = i; j < rank; j++) s->gram[i * s->ld + j] = (float)gram[i * rank + j];
}

/* ---- solving ---- */

/* A symmetric system of equations with `order` unknowns, and, if `rows` is set, one more unknown, the bias. */
struct equations {
    float *matrix;
    size_t order, n, ld;     /* n: size of the matrix, `order` rounded up */
    const float *rows;       /* Σ v; NULL: no bias */
    double ratings, targets; /* for the bias: number of ratings plus its λ'; Σ t */
    bool risky;              /* f32 may not be accurate enough, so s->copy has a copy of the matrix */
};

/* Adds λ' to the diagonal, and sets the diagonal of the padding to 1. */
static void add_ridge(const struct equations *e, float ridge)
{
    for (size_t i = 0; i < e->n; i++) {
        float *d = &e->matrix[i * e->ld + i];
        *d = i < e->order ? *d + ridge : 1;
    }
}

/* Solves a x = y in f64 by Cholesky; y becomes x. Returns false if a pivot is not above `least`. */
static bool factor_carefully(double *a, double *y, size_t n, double least)
{
    for (size_t i = 0; i < n; i++) {
        double pivot = a[i * n + i];
        if (!(pivot > least)) return false;
        double root = sqrt(pivot);
        for (size_t j = i; j < n; j++) a[i * n + j] /= root;
        y[i] /= root;
        for (size_t l = i + 1; l < n; l++) {
            double by = a[i * n + l];
            if (by == 0) continue;
            for (size_t j = l; j < n; j++) a[l * n + j] -= by * a[i * n + j];
            y[l] -= by * y[i];
        }
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t j = i + 1; j < n; j++) y[i] -= a[i * n + j] * y[j];
        y[i] /= a[i * n + i];
    }
    return true;
}

/* Solves the equations in f64 from s->copy. If they have no unique solution, adds the smallest multiple of the unit matrix with
 * which they have one. */
static int solve_carefully(struct tr_solver *s, const struct equations *e, const float *right, float *x,
                           float *bias)
{
    size_t n = e->order + (e->rows != NULL);
    double *a = (double *)s->careful, *y = a + n * n, trace = e->rows ? e->ratings : 0;
    for (size_t i = 0; i < e->order; i++) trace += (double)s->copy[i * e->ld + i];
    s->count.careful++;
    for (double ridge = 0; isfinite(trace) && ridge<1; ridge = ridge> 0 ? 10 * ridge : 1e-7) {
        for (size_t i = 0; i < e->order; i++) {
            for (size_t j = i; j < e->order; j++) a[i * n + j] = (double)s->copy[i * e->ld + j];
            if (e->rows) a[i * n + n - 1] = (double)e->rows[i];
            y[i] = (double)right[i];
        }
        if (e->rows) {
            a[n * n - 1] = e->ratings;
            y[n - 1] = e->targets;
        }
        for (size_t i = 0; i < n; i++) a[i * n + i] += ridge * trace / (double)n;
        if (!factor_carefully(a, y, n, 1e-9 * trace / (double)n)) continue;
        for (size_t i = 0; i < e->order; i++) x[i] = (float)y[i];
        if (e->rows) *bias = (float)y[n - 1];
        return TR_OK;
    }
    return tr_fail(TR_ERR_DIVERGED, "least squares: the equations of a row are not finite");
}

/* Solves A x + b rows = right, rows · x + ratings b = targets: x by Cholesky, and the bias b by the Schur complement. */
static int solve_equations(struct tr_solver *s, const struct equations *e, const float *right, float *x,
                           float *bias)
{
    const struct kernel *k = s->kernel;
    float *y[2] = {s->right[0], s->right[1]};
    double left = e->ratings, rest = e->targets, b = 0;
    memcpy(y[0], right, e->n * sizeof **y);
    if (e->rows) memcpy(y[1], e->rows, e->n * sizeof **y);
    bool sound = k->factor(e->matrix, e->ld, e->n, LEAST_PIVOT, s->inverse, y, e->rows ? 2 : 1);
    for (size_t i = 0; e->rows && sound && i < e->n; i++) {
        left -= (double)y[1][i] * (double)y[1][i];
        rest -= (double)y[1][i] * (double)y[0][i];
    }
    if (e->rows) {
        sound = sound && left > (double)LEAST_PIVOT * e->ratings;
        b = rest / left;
    }
    if (!sound && e->risky) return solve_carefully(s, e, right, x, bias);
    if (!sound) return tr_fail(TR_ERR_DIVERGED, "least squares: the equations of a row are not finite");
    for (size_t i = 0; e->rows && i < e->n; i++) y[0][i] -= (float)b * y[1][i];
    k->back(e->matrix, e->ld, e->n, s->inverse, y[0]);
    memcpy(x, y[0], e->order * sizeof *x);
    if (e->rows) *bias = (float)b;
    return TR_OK;
}

/* Copies the matrix to s->copy if its factorization in f32 may be too inaccurate, and sets e->risky. */
static void keep_if_risky(struct tr_solver *s, struct equations *e, double ridge)
{
    double trace = 0;
    for (size_t i = 0; i < e->order; i++) trace += (double)e->matrix[i * e->ld + i];
    e->risky = !(ridge >= (double)SAFE_PART * (trace + (e->rows ? e->ratings : 0)));
    if (e->risky) memcpy(s->copy, e->matrix, e->n * e->ld * sizeof *e->matrix);
}

/* Returns λ' of a row with n ratings. */
static double ridge_of(const struct tr_solver *s, size_t n)
{
    return s->problem.weighted ? s->problem.l2 * (double)n : s->problem.l2;
}

static double solve_dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Solves by coordinate descent, with factors of 0 or above. The bias is an additional coordinate, which may be negative. Returns
 * the reduction of the objective from x = 0: 2 c · x - xᵀAx, where x includes the bias. */
static double solve_descend(struct tr_solver *s, const struct equations *e, const float *right, float *x,
                            float *bias)
{
    const struct kernel *k = s->kernel;
    float *slope = s->right[0], *at = s->right[1], *a = e->matrix;
    size_t n = e->n, rank = e->order;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) a[i * e->ld + j] = a[j * e->ld + i];
    for (size_t i = 0; i < n; i++) at[i] = i < rank && x[i] > 0 ? x[i] : 0;
    k->dots(a, e->ld, n, at, n, slope);
    for (size_t i = 0; i < n; i++) slope[i] -= right[i] - (e->rows ? *bias * e->rows[i] : 0);
    float change = 1, largest = 0;
    for (int sweep = 0; sweep < DESCENTS && change > 1e-6f * largest; sweep++) {
        change = k->descend(a, e->ld, n, rank, at, slope);
        largest = 1e-30f;
        double sum = e->targets;
        for (size_t i = 0; i < rank; i++) {
            largest = fmaxf(largest, at[i]);
            if (e->rows) sum -= (double)(at[i] * e->rows[i]);
        }
        if (!e->rows) continue;
        float best = (float)(sum / e->ratings), step = best - *bias;
        for (size_t i = 0; i < n; i++) slope[i] += step * e->rows[i];
        change = fmaxf(change, fabsf(step));
        largest = fmaxf(largest, fabsf(best));
        *bias = best;
    }
    memcpy(x, at, rank * sizeof *x);
    s->count.descents++;
    double gain = solve_dot(right, x, rank) - solve_dot(slope, x, rank); /* slope is Ax - c */
    if (!e->rows) return gain;
    double b = (double)*bias;
    return gain + b * (2 * e->targets - solve_dot(e->rows, x, rank) - b * e->ratings);
}

/* Stores the fit. The objective with x is `gain` less than with 0, which is `squares`. Fails if a value is not finite. */
static int solve_finish(struct tr_solver *s, const float *x, double squares, double gain, double ridge)
{
    size_t rank = s->problem.rank;
    double bias = s->problem.bias ? (double)x[rank] : 0;
    double penalty = ridge * (solve_dot(x, x, rank) + s->problem.bias_part * bias * bias),
           loss = squares - gain - penalty;
    if (!isfinite(loss)) return tr_fail(TR_ERR_DIVERGED, "least squares: a row's solution is not finite");
    s->fit = (struct tr_solve_fit){.loss = fmax(0, loss),
                                   .penalty = penalty,
                                   .cancels = !s->problem.implicit && loss < CANCELS * squares};
    return TR_OK;
}

int tr_solve_sums(struct tr_solver *s, size_t n, float *sums, float *x)
{
    size_t rank = s->problem.rank;
    double ridge = ridge_of(s, n);
    struct parts p = parts_of(s, sums);
    if (n == 0) {
        memset(x, 0, (rank + s->problem.bias) * sizeof *x);
        return solve_finish(s, x, 0, 0, 0);
    }
    struct equations e = {.matrix = p.matrix, .order = rank, .n = s->n, .ld = s->ld};
    if (s->problem.bias) {
        e.rows = p.rows;
        e.ratings = (double)n + ridge * s->problem.bias_part;
        e.targets = *p.targets;
    }
    if (s->problem.implicit) {
        for (size_t i = 0; i < s->n; i++)
            for (size_t j = i; j < s->n; j++) p.matrix[i * s->ld + j] += s->gram[i * s->ld + j];
    }
    add_ridge(&e, (float)ridge);
    if (s->problem.nonnegative)
        return solve_finish(s, x, *p.squares, solve_descend(s, &e, p.right, x, x + rank), ridge);
    keep_if_risky(s, &e, ridge);
    TR_TRY(solve_equations(s, &e, p.right, x, x + rank));
    s->count.direct++;
    s->count.flops += solve_square(rank) * ((double)rank / 3 + 2);
    /* The gain is 2 c · x - xᵀAx, and at the minimum xᵀAx = c · x. */
    double gain = solve_dot(p.right, x, rank) + (e.rows ? e.targets * (double)x[rank] : 0);
    return solve_finish(s, x, *p.squares, gain, ridge);
}

/* Solves a row with few ratings by the dual equations, which have one unknown per rating. The bias is treated as `one` times an
 * additional factor with the λ' of the others; in the rows of the other side this factor is `one`. */
static int solve_few(struct tr_solver *s, size_t n, const float *const *other, const float *target, float *x)
{
    const struct kernel *k = s->kernel;
    size_t rank = s->problem.rank, depth = rank + s->problem.bias, order = round_up(n);
    double ridge = ridge_of(s, n);
    float one = s->problem.bias ? (float)(1 / sqrt(s->problem.bias_part)) : 0;
    struct equations e = {.matrix = s->sums, .order = n, .n = order, .ld = solve_leading(order)};
    k->turn(other, n, rank, s->panel, e.ld, order);
    for (size_t i = 0; s->problem.bias && i < order; i++) s->panel[rank * e.ld + i] = i < n ? one : 0;
    memset(s->sums, 0, order * e.ld * sizeof *s->sums);
    for (size_t done = 0, now; done < depth; done += now) {
        now = tr_min_size(depth - done, DEPTH);
        k->gram(s->panel + done * e.ld, e.ld, now, s->sums, e.ld, order);
    }
    add_ridge(&e, (float)ridge);
    keep_if_risky(s, &e, ridge);
    float *right = parts_of(s, s->sums).right, *a = parts_of(s, s->sums).rows;
    memset(right, 0, order * sizeof *right);
    memset(a, 0, order * sizeof *a);
    memcpy(right, target, n * sizeof *right);
    TR_TRY(solve_equations(s, &e, right, a, NULL));
    k->dots(s->panel, e.ld, depth, a, order, x);
    if (s->problem.bias) x[rank] *= one;
    s->count.few++;
    s->count.flops +=
        (double)depth * (solve_square(n) + 3 * (double)n) + solve_square(n) * ((double)n / 3 + 2);
    double gain = 0; /* the residual of target t_i is λ' a_i */
    for (size_t i = 0; i < n; i++) gain += (double)target[i] * ((double)target[i] - ridge * (double)a[i]);
    return solve_finish(s, x, squares_of(s, n, target), gain, ridge);
}

double tr_solve_loss(struct tr_solver *s, size_t n, const float *const *other, const float *target,
                     const float *x)
{
    const struct kernel *k = s->kernel;
    size_t rank = s->problem.rank;
    float *row = s->right[0], *product = s->weight, bias = s->problem.bias ? x[rank] : 0;
    double sum = 0;
    memset(row, 0, s->n * sizeof *row);
    memcpy(row, x, rank * sizeof *row);
    for (size_t done = 0, now; done < n; done += now) {
        now = tr_min_size(n - done, DEPTH);
        k->pack(other + done, NULL, now, rank, s->panel, s->ld, s->n);
        k->dots(s->panel, s->ld, now, row, s->n, product);
        for (size_t i = 0; i < now; i++) {
            double error = (double)target[done + i] - (double)bias - (double)product[i];
            sum += error * error;
        }
    }
    return sum;
}

int tr_solve(struct tr_solver *s, size_t n, const float *const *other, const float *target, float *x)
{
    bool few = !s->problem.nonnegative && !s->problem.implicit && round_up(n) < s->n;
    if (few && n > 0) return solve_few(s, n, other, target, x);
    memset(s->sums, 0, tr_solver_sums(s) * sizeof *s->sums);
    tr_solve_add(s, n, other, target, s->sums);
    return tr_solve_sums(s, n, s->sums, x);
}
