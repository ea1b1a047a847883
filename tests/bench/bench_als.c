/* Times sweeps of alternating least squares in one process, without tables, beside BLIS's matrix product:
 *
 *   bench_als RANK [USERS ITEMS RATINGS SWEEPS]        (100000 20000 10000000 1)
 *
 * Ratings are of random pairs, items by a skewed popularity. Prints a line for each side and sweep:
 *   side seconds gflops peak_share direct few
 * seconds are of this process's own time on the core; gflops are those that the equations need (sums of upper halves,
 * n³/3 a factorization); peak_share is beside the matrix product of 1536 × 1536 by BLIS, measured before and after;
 * direct and few say how many rows were solved in how many unknowns (model/mf/mf.h). The second-last lines compare
 * one rank-k update of RATINGS / USERS rows, and of RATINGS / ITEMS, with BLIS's ssyrk. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "blis.h"
#include "model/mf/mf.h"

struct side {
    size_t n;
    uint64_t *begin;
    uint32_t *other;
    float *value, *row;
};

struct bench {
    struct side side[2]; /* users, items */
    size_t rank, stride, ratings;
    struct tr_solver *solver;
};

static int new_side(struct side *s, size_t n, const struct bench *b)
{
    s->n = n;
    TR_TRY(TR_NEW(&s->begin, n + 2));
    TR_TRY(TR_NEW(&s->other, b->ratings));
    TR_TRY(TR_NEW(&s->value, b->ratings));
    s->row = aligned_alloc(64, n * b->stride * sizeof(float));
    if (!s->row) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    fill(s->row, n * b->stride);
    return TR_OK;
}

/* The k-th rating of all: users take turns, items with popularity ~ 1 / sqrt(number). */
static void draw(const struct bench *b, uint64_t k, uint32_t *pair, float *value)
{
    double u = (double)(tr_mix(k) >> 11) * 0x1p-53;
    pair[0] = (uint32_t)(k % b->side[0].n);
    pair[1] = (uint32_t)(u * u * (double)b->side[1].n);
    *value = (float)(1 + tr_mix(k + b->ratings) % 5) - 3;
}

static void make_ratings(struct bench *b)
{
    uint32_t pair[2];
    float value;
    for (int s = 0; s < 2; s++) {
        struct side *side = &b->side[s];
        uint64_t *next = side->begin + 1;
        for (uint64_t k = 0; k < b->ratings; k++) {
            draw(b, k, pair, &value);
            next[pair[s] + 1]++;
        }
        for (size_t i = 0; i < side->n; i++) next[i + 1] += next[i];
        for (uint64_t k = 0; k < b->ratings; k++) {
            draw(b, k, pair, &value);
            side->other[next[pair[s]]] = pair[!s];
            side->value[next[pair[s]]++] = value;
        }
    }
}

/* Rows of the other side that row i needs. */
static size_t look_up(const struct bench *b, int which, size_t i, const float **other)
{
    const struct side *own = &b->side[which];
    uint64_t begin = own->begin[i];
    size_t n = (size_t)(own->begin[i + 1] - begin);
    for (size_t k = 0; k < n; k++) other[k] = b->side[!which].row + b->stride * own->other[begin + k];
    return n;
}

static int solve_side(struct bench *b, int which, const float **other)
{
    struct side *own = &b->side[which];
    for (size_t i = 0; i < own->n; i++) {
        size_t n = look_up(b, which, i, other);
        TR_TRY(tr_solve(b->solver, n, other, own->value + own->begin[i], own->row + i * b->stride));
    }
    return TR_OK;
}

static int run_sweeps(struct bench *b, int sweeps)
{
    const float **other;
    TR_TRY(TR_NEW(&other, b->ratings));
    for (int sweep = 0; sweep < sweeps; sweep++)
        for (int s = 0; s < 2; s++) {
            double before, after;
            TR_TRY(blis_gflops(3, &before));
            struct tr_solve_count old = tr_solver_count(b->solver), now;
            double begin = core_seconds();
            TR_TRY(solve_side(b, s, other));
            double seconds = core_seconds() - begin;
            TR_TRY(blis_gflops(3, &after));
            now = tr_solver_count(b->solver);
            double gflops = 1e-9 * (now.flops - old.flops) / seconds;
            printf("%s %.3f %.1f %.2f %llu %llu\n", s == 0 ? "users" : "items", seconds, gflops,
                   2 * gflops / (before + after), (unsigned long long)(now.direct - old.direct),
                   (unsigned long long)(now.few - old.few));
        }
    free(other);
    return TR_OK;
}

/* One rank-k update of `rows` rows: ours, which gathers them, and BLIS's on contiguous rows. */
static int compare_updates(struct bench *b, size_t depth)
{
    enum { REPEATS = 200 };
    const float **other;
    float *sums = aligned_alloc(64, (tr_solver_sums(b->solver) * sizeof(float) + 63) / 64 * 64), *target,
          *square;
    TR_TRY(TR_NEW(&other, depth));
    TR_TRY(TR_NEW(&target, depth));
    TR_TRY(TR_NEW(&square, b->rank * b->rank));
    if (!sums) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    depth = tr_min_size(depth, b->side[1].n);
    for (size_t i = 0; i < depth; i++) other[i] = b->side[1].row + i * b->stride;
    memset(sums, 0, tr_solver_sums(b->solver) * sizeof *sums);
    double ours = INFINITY, blis = INFINITY;
    int rank = (int)b->rank, stride = (int)b->stride;
    for (int i = 0; i < REPEATS; i++) {
        double t0 = core_seconds();
        tr_solve_add(b->solver, depth, other, target, sums);
        double t1 = core_seconds();
        cblas_ssyrk(CblasRowMajor, CblasUpper, CblasTrans, rank, (int)depth, 1, b->side[1].row, stride, 1,
                    square, rank);
        blis = fmin(blis, core_seconds() - t1);
        ours = fmin(ours, t1 - t0);
    }
    double flops = (double)depth * (double)b->rank * (double)(b->rank + 1);
    printf("update of %zu rows: %.1f us %.1f gflops, ssyrk %.1f us %.1f gflops\n", depth, 1e6 * ours,
           1e-9 * flops / ours, 1e6 * blis, 1e-9 * flops / blis);
    TR_FREE_ALL(sums, other, target, square);
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s RANK [USERS ITEMS RATINGS SWEEPS]\n", argv[0]);
        return TR_ERR_USAGE;
    }
    size_t number[] = {0, 100000, 20000, 10000000, 1};
    for (int i = 1; i < argc && i <= 5; i++) number[i - 1] = (size_t)strtod(argv[i], NULL);
    tr_blis_environment();
    struct bench b = {.rank = number[0], .stride = (number[0] + 15) / 16 * 16, .ratings = number[3]};
    struct tr_solve_problem problem = {.rank = b.rank, .weighted = true, .l2 = 0.1};
    TR_TRY(tr_solver_new(&problem, tr_cpu(), &b.solver));
    for (int s = 0; s < 2; s++) TR_TRY(new_side(&b.side[s], number[1 + s], &b));
    make_ratings(&b);
    int status = run_sweeps(&b, (int)number[4]);
    if (status == TR_OK) status = compare_updates(&b, number[3] / number[1] + 1);
    if (status == TR_OK) status = compare_updates(&b, number[3] / number[2] + 1);
    if (status != TR_OK) fprintf(stderr, "%s\n", tr_error_text());
    tr_solver_free(&b.solver);
    return status;
}
