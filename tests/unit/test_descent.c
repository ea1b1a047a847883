/* The quadratic with an l1 penalty: optimality, also where columns resemble each other; blocks of columns against sums. */
#include "unit.h"

#include "model/linear/descent/descent.h"

enum { N = 40, ROWS = 25 }; /* fewer rows than columns: the Gram matrix is singular */

static double x[N], gradient[N], start[N], work[5 * N];
static float gram[N * N], columns[ROWS][N];

static void make(uint64_t seed, double alike)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, seed, 0, 0);
    for (size_t i = 0; i < ROWS; i++) {
        double common = tr_rng_normal(&rng);
        for (size_t j = 0; j < N; j++) columns[i][j] = (float)(alike * common + tr_rng_normal(&rng));
    }
    for (size_t a = 0; a < N; a++)
        for (size_t b = 0; b < N; b++) {
            double sum = 0;
            for (size_t i = 0; i < ROWS; i++) sum += (double)columns[i][a] * (double)columns[i][b];
            gram[a * N + b] = (float)sum;
        }
    memset(x, 0, sizeof x);
    memset(start, 0, sizeof start);
    for (size_t i = 0; i < ROWS; i++) {
        double target = 10 * tr_rng_normal(&rng);
        for (size_t j = 0; j < N; j++) start[j] += target * (double)columns[i][j];
    }
    memcpy(gradient, start, sizeof start);
}

/* The conditions that hold only at a minimum, with a newly computed gradient. */
static void check_minimum(const struct tr_quadratic *q, double tolerance)
{
    for (size_t j = 0; j < N; j++) {
        double g = start[j];
        for (size_t k = 0; k < N; k++) g += (double)gram[j * N + k] * x[k];
        ck_assert(fabs(g - gradient[j]) < 1e-6 * (1 + fabs(start[j])));
        if (j >= q->penalised) ck_assert(fabs(g) < tolerance);
        else if (x[j] != 0) ck_assert(fabs(g + (x[j] > 0 ? q->alpha : -q->alpha)) < tolerance);
        else ck_assert(fabs(g) < q->alpha + tolerance);
    }
}

/* Of columns that are as good as the same, too; and with a last coordinate that has no penalty. */
UNIT_CASE(minimum)
{
    const double alikes[] = {0, 0.5, 1};
    for (size_t a = 0; a < 6; a++) {
        struct tr_quadratic q = {.n = N,
                                 .penalised = N - a / 3,
                                 .gram = gram,
                                 .alpha = 3,
                                 .x = x,
                                 .gradient = gradient,
                                 .work = work};
        make(7 + a, alikes[a % 3]);
        for (size_t j = 0; j < N; j++) gram[j * N + j] += 1e-3F;
        double first = tr_quadratic_minimise(&q, 1e-7, 2000);
        ck_assert(first > 1);
        check_minimum(&q, 1e-5);
        ck_assert(tr_quadratic_minimise(&q, 1e-7, 2000) < 1e-5); /* there is nothing more to do */
    }
}

UNIT_CASE(threshold)
{
    ck_assert(tr_soft_threshold(3, 1) == 2);
    ck_assert(tr_soft_threshold(-3, 1) == -2);
    ck_assert(tr_soft_threshold(0.5, 1) == 0);
    ck_assert(tr_soft_threshold(-1, 1) == 0);
}

/* Rows of 600 columns of which 300 are asked for: two blocks, one of them cut short. */
enum { MANY = 600, ASKED = 300, EACH = 9 };
static uint64_t begin[ROWS + 1];
static uint32_t column[ROWS * EACH], entries[MANY], asked[ASKED];
static float value[ROWS * EACH], dense[ROWS][ASKED];
static struct tr_row_model model[ROWS];
static float triangle[(TR_BLOCK_COLUMNS + 1) * (TR_BLOCK_COLUMNS + 2) / 2];

static struct tr_descent_rows make_rows(void)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 5, 0, 0);
    memset(dense, 0, sizeof dense);
    for (size_t k = 0; k < ASKED; k++) asked[k] = (uint32_t)((MANY - 1 - 2 * k) % MANY);
    asked[17] = UINT32_MAX; /* no row here has it */
    for (size_t i = 0; i < ROWS; i++) {
        model[i] = (struct tr_row_model){tr_rng_normal(&rng), (float)tr_rng_uniform(&rng), 0};
        for (size_t e = 0; e < EACH; e++) {
            size_t k = i * EACH + e;
            column[k] = (uint32_t)(e * 66 + tr_rng_below(&rng, 66));
            entries[column[k]]++;
            value[k] = (float)tr_rng_normal(&rng);
            for (size_t a = 0; a < ASKED; a++)
                if (asked[a] == column[k]) dense[i][a] = value[k];
        }
        begin[i + 1] = (i + 1) * EACH;
    }
    return (struct tr_descent_rows){
        .n = ROWS, .columns = MANY, .begin = begin, .column = column, .value = value, .entries = entries};
}

static void check_block(struct tr_column_block *block, size_t first)
{
    double sums[TR_BLOCK_COLUMNS], change[TR_BLOCK_COLUMNS];
    size_t width = block->n + 1;
    tr_block_products(block, model, triangle);
    tr_block_set_gram(block, triangle, 12, 0.5);
    tr_block_gradient(block, model, sums);
    for (size_t a = 0; a < block->n; a++) {
        double g = 0, bias = 0, square = 0.5, other = 0;
        for (size_t i = 0; i < ROWS; i++) {
            double xa = (double)dense[i][first + a], xb = (double)dense[i][first + (a + 5) % block->n];
            g += model[i].slope * xa;
            bias += (double)model[i].curve * xa;
            square += (double)model[i].curve * xa * xa;
            other += (double)model[i].curve * xa * xb;
        }
        ck_assert(fabs(sums[a] - g) < 1e-6);
        ck_assert(fabs((double)block->gram[block->n * width + a] - bias) < 1e-5);
        ck_assert(fabs((double)block->gram[a * width + a] - square) < 1e-5);
        ck_assert(fabs((double)block->gram[a * width + (a + 5) % block->n] - other) < 1e-5);
        change[a] = (double)(a % 3) - 1;
    }
    ck_assert(block->gram[width * width - 1] == 12);
    tr_block_move(block, change, model);
    for (size_t i = 0; i < ROWS; i++) {
        double moved = 0;
        for (size_t a = 0; a < block->n; a++) moved += (double)dense[i][first + a] * change[a];
        ck_assert(fabs((double)model[i].move - moved) < 1e-5);
        model[i].move = 0;
    }
}

UNIT_CASE(blocks)
{
    struct tr_descent_rows rows = make_rows();
    struct tr_column_block block[2];
    ck_ok(tr_blocks_make(&rows, asked, ASKED, block));
    ck_assert_uint_eq(block[0].n, TR_BLOCK_COLUMNS);
    ck_assert_uint_eq(block[1].n, ASKED - TR_BLOCK_COLUMNS);
    for (size_t b = 0; b < 2; b++) {
        check_block(&block[b], b * TR_BLOCK_COLUMNS);
        tr_block_free(&block[b]);
    }
}
