/* Nearest centres: the fast ways against a serial one, label by label. */
#include "unit.h"

#include "model/kmeans/kmeans.h"

enum { ROWS = 700 };

/* Numbers of several kinds: real ones, far from zero, and small whole ones, of which many are as far from one centre as
 * from another. */
enum kind { REAL, FAR, WHOLE, KINDS };

static float draw(struct tr_rng *rng, enum kind kind)
{
    if (kind == WHOLE) return (float)tr_rng_below(rng, 3);
    return (float)(tr_rng_normal(rng) + (kind == FAR ? 1000 : 0));
}

/* Rows, dense and sparse, and where centres are. */
struct problem {
    size_t n, k, columns;
    float *dense, *value, *centre;
    uint64_t *begin;
    uint32_t *column;
    struct tr_rng rng;
    enum kind kind;
};

static void make_problem(struct problem *p, size_t k, size_t columns, enum kind kind, double density)
{
    *p = (struct problem){.n = ROWS, .k = k, .columns = columns, .kind = kind};
    tr_rng_seed(&p->rng, k, columns, kind);
    ck_ok(TR_NEW(&p->dense, p->n * columns));
    ck_ok(TR_NEW(&p->value, p->n * columns));
    ck_ok(TR_NEW(&p->column, p->n * columns));
    ck_ok(TR_NEW(&p->begin, p->n + 1));
    ck_ok(TR_NEW(&p->centre, k * columns));
    uint64_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        for (size_t c = 0; c < columns; c++) {
            if (tr_rng_uniform(&p->rng) >= density) continue;
            p->dense[i * columns + c] = p->value[at] = draw(&p->rng, kind);
            p->column[at++] = (uint32_t)c;
        }
        p->begin[i + 1] = at;
    }
    for (size_t j = 0; j < k; j++) /* some centres are rows, and the last is the first again */
        for (size_t c = 0; c < columns; c++)
            p->centre[j * columns + c] =
                j % 3 == 2 ? draw(&p->rng, kind) : p->dense[(j * 7 % p->n) * columns + c];
    if (k > 1) memcpy(p->centre + (k - 1) * columns, p->centre, columns * sizeof *p->centre);
}

static void free_problem(struct problem *p)
{
    TR_FREE_ALL(p->dense, p->value, p->column, p->begin, p->centre);
}

static tr_batch rows_of(const struct problem *p, bool sparse)
{
    if (!sparse) return (tr_batch){.n = p->n, .dense = p->dense};
    return (tr_batch){.n = p->n, .begin = p->begin, .column = p->column, .value = p->value};
}

static void place(const struct problem *p, struct tr_centres *c)
{
    for (size_t j = 0; j < p->k; j++) {
        c->norm[j] = 0;
        for (size_t q = 0; q < p->columns; q++) {
            float v = p->centre[j * p->columns + q];
            c->value[c->sparse ? q * c->width + j : j * p->columns + q] = v;
            c->norm[j] += (double)v * (double)v;
        }
    }
    ck_ok(tr_centres_ready(c));
}

/* ---- the serial reference ---- */

static double plain_distance(const float *x, const float *c, size_t columns)
{
    double sum = 0;
    for (size_t q = 0; q < columns; q++) sum += ((double)x[q] - (double)c[q]) * ((double)x[q] - (double)c[q]);
    return sum;
}

static uint32_t plain_nearest(const struct problem *p, size_t row)
{
    uint32_t best = 0;
    double least = INFINITY;
    for (size_t j = 0; j < p->k; j++) {
        double d = plain_distance(p->dense + row * p->columns, p->centre + j * p->columns, p->columns);
        if (d < least) {
            least = d;
            best = (uint32_t)j;
        }
    }
    return best;
}

/* ---- cases ---- */

struct changes {
    const struct tr_assigned *assigned;
    size_t n;
};

static void note_change(void *who, size_t row, uint32_t from, uint32_t to)
{
    struct changes *c = who;
    ck_assert_uint_ne(from, to);
    ck_assert_uint_eq(c->assigned->label[row], to);
    c->n++;
}

static void check_labels(const struct problem *p, const struct tr_centres *c, const struct tr_assigned *a,
                         const char *what)
{
    for (size_t i = 0; i < p->n; i++)
        ck_assert_msg(a->label[i] == plain_nearest(p, i),
                      "%s: %s, k %zu, columns %zu, kind %d: row %zu is %u, expected %u", what,
                      tr_cpu_name(c->level), p->k, p->columns, p->kind, i, a->label[i], plain_nearest(p, i));
}

/* One pass at every level this processor has. */
static void check_levels(const struct problem *p, bool sparse)
{
    tr_batch rows = rows_of(p, sparse);
    for (int level = TR_CPU_PLAIN; level <= (int)tr_cpu(); level++) {
        struct tr_centres c;
        struct tr_assigned a;
        ck_ok(tr_centres_open(p->k, p->columns, sparse, &c));
        ck_ok(tr_assigned_open(&c, &rows, false, &a));
        c.level = (enum tr_cpu)level;
        place(p, &c);
        struct changes changes = {&a, 0};
        tr_assign(&c, &rows, 0, p->n, &a, note_change, &changes);
        ck_assert_uint_eq(changes.n, p->n);
        check_labels(p, &c, &a, sparse ? "sparse" : "dense");
        tr_centres_close(&c);
        tr_assigned_close(&a);
    }
}

UNIT_CASE(dense_labels_are_those_of_a_serial_search)
{
    static const size_t shapes[][2] = {{1, 1},   {2, 3},    {7, 4},   {8, 16},  {9, 17},
                                       {33, 64}, {50, 129}, {5, 200}, {24, 333}};
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int kind = REAL; kind < KINDS; kind++) {
            struct problem p;
            make_problem(&p, shapes[s][0], shapes[s][1], (enum kind)kind, 1);
            check_levels(&p, false);
            free_problem(&p);
        }
}

/* Whole numbers, so that sums of products and of squared differences are the same number. */
UNIT_CASE(sparse_labels_are_those_of_a_serial_search)
{
    static const size_t shapes[][2] = {{1, 5}, {3, 40}, {16, 100}, {17, 100}, {130, 60}, {40, 500}};
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int kind = REAL; kind < KINDS; kind += WHOLE) {
            struct problem p;
            make_problem(&p, shapes[s][0], shapes[s][1], (enum kind)kind, 0.1);
            if (kind == REAL && p.k > 1) /* equal centres are equally far only in whole numbers */
                for (size_t q = 0; q < p.columns; q++) p.centre[(p.k - 1) * p.columns + q] += 1;
            check_levels(&p, true);
            free_problem(&p);
        }
}

/* Centres drift, less and less, in turn one of them farther than the others: with bounds and without, rows keep the same
 * labels, and bounds spare some of the work. On a line they are as tight as can be. */
static void check_bounds(size_t k, size_t columns, bool sparse)
{
    enum { PASSES = 60 };
    struct problem p;
    make_problem(&p, k, columns, REAL, sparse ? 0.3 : 1);
    tr_batch rows = rows_of(&p, sparse);
    struct tr_centres c;
    struct tr_assigned with, without;
    ck_ok(tr_centres_open(p.k, p.columns, sparse, &c));
    ck_ok(tr_assigned_open(&c, &rows, true, &with));
    ck_ok(tr_assigned_open(&c, &rows, false, &without));
    for (int pass = 0; pass < PASSES; pass++) {
        for (size_t q = 0; q < p.k * p.columns; q++) {
            double by = pow(0.9, pass) * (q / p.columns == (size_t)pass % p.k ? 1 : 0.1);
            p.centre[q] += (float)(tr_rng_normal(&p.rng) * by);
        }
        place(&p, &c);
        struct changes changes = {&with, 0};
        tr_assign(&c, &rows, 0, p.n, &with, note_change, &changes);
        check_labels(&p, &c, &with, sparse ? "sparse, bounds" : "dense, bounds");
        changes.assigned = &without;
        tr_assign(&c, &rows, 0, p.n, &without, note_change, &changes);
        ck_assert_mem_eq(with.label, without.label, p.n * sizeof *with.label);
        tr_assigned_set(&with, (size_t)pass, (uint32_t)(p.k - 1)); /* as an empty centre gets a row */
    }
    ck_assert_uint_eq(without.computed, PASSES * p.n);
    ck_assert_uint_lt(with.computed, without.computed * 3 / 4);
    tr_assigned_close(&with);
    tr_assigned_close(&without);
    tr_centres_close(&c);
    free_problem(&p);
}

UNIT_CASE(bounds_do_not_change_labels)
{
    check_bounds(4, 1, false);
    check_bounds(7, 2, false);
    check_bounds(20, 30, false);
    check_bounds(3, 2, true);
    check_bounds(20, 30, true);
}

/* Among small whole numbers there are ties. */
UNIT_CASE(near_ties_are_decided_in_f64)
{
    struct problem p;
    make_problem(&p, 9, 5, WHOLE, 1);
    tr_batch rows = rows_of(&p, false);
    struct tr_centres c;
    struct tr_assigned a;
    ck_ok(tr_centres_open(p.k, p.columns, false, &c));
    ck_ok(tr_assigned_open(&c, &rows, false, &a));
    place(&p, &c);
    struct changes changes = {&a, 0};
    tr_assign(&c, &rows, 0, p.n, &a, note_change, &changes);
    ck_assert_uint_gt(a.doubtful, 0);
    ck_assert_uint_lt(a.doubtful, p.n);
    tr_assigned_close(&a);
    tr_centres_close(&c);
    free_problem(&p);
}

/* Numbers that f32 cannot square. */
UNIT_CASE(huge_numbers_have_labels)
{
    struct problem p;
    make_problem(&p, 4, 3, REAL, 1);
    for (size_t i = 0; i < p.n * p.columns; i++) p.dense[i] *= 1e25f;
    for (size_t i = 0; i < p.k * p.columns; i++) p.centre[i] *= 1e25f;
    check_levels(&p, false);
    free_problem(&p);
}

UNIT_CASE(inertia_is_the_sum_of_distances)
{
    for (int sparse = 0; sparse < 2; sparse++) {
        struct problem p;
        make_problem(&p, 6, 50, REAL, sparse ? 0.2 : 1);
        tr_batch rows = rows_of(&p, sparse);
        struct tr_centres c;
        struct tr_assigned a;
        ck_ok(tr_centres_open(p.k, p.columns, sparse, &c));
        ck_ok(tr_assigned_open(&c, &rows, false, &a));
        place(&p, &c);
        struct changes changes = {&a, 0};
        tr_assign(&c, &rows, 0, p.n, &a, note_change, &changes);
        double sum = 0;
        for (size_t i = 0; i < p.n; i++) {
            double d = plain_distance(p.dense + i * p.columns, p.centre + a.label[i] * p.columns, p.columns);
            ck_assert_double_eq_tol(tr_distance(&c, &rows, i, a.label[i]), d, 1e-10 * (1 + d));
            sum += d;
        }
        ck_assert_double_eq_tol(tr_inertia(&c, &rows, 0, rows.n, &a), sum, 1e-6 * sum);
        tr_assigned_close(&a);
        tr_centres_close(&c);
        free_problem(&p);
    }
}

/* The random choice depends on the values of a row, not on their notation. */
UNIT_CASE(equal_rows_have_equal_hashes)
{
    float dense[] = {0, 1.5f, 0, -2, 0, 1.5f, 0, -2, 1.5f, 0, 0, -2};
    uint64_t begin[] = {0, 2, 5};
    uint32_t column[] = {0, 1, 0, 1, 2};
    float value[] = {1.5f, -2, 1.5f, -2, 0};
    tr_key keys[] = {1, 3, 7};
    struct tr_kmeans_side a = {.rows = {.n = 3, .dense = dense}};
    struct tr_kmeans_side b = {.rows = {.n = 2, .begin = begin, .column = column, .value = value},
                               .keys = keys};
    uint64_t hash = tr_kmeans_hash(&a, 4, 0);
    ck_assert_uint_eq(hash, tr_kmeans_hash(&a, 4, 1));
    ck_assert_uint_ne(hash, tr_kmeans_hash(&a, 4, 2));
    ck_assert_uint_eq(hash, tr_kmeans_hash(&b, 8, 0));
    ck_assert_uint_eq(hash, tr_kmeans_hash(&b, 8, 1));
}
