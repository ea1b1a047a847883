#include "unit.h"

#include "table/server.h"
#include "../elements.h"

enum {
    MOST = 300,
    WIDEST = 3,
    VERSIONS = 200,
    WORKERS = 4,
    WINDOW = 4,
    LIST = 4096 /* bytes of an empty list */
};

/* A share as a server has it, and who has read and pushed how much, as Algorithm 2 keeps it. */
struct server {
    tr_share share;
    const tr_function *function;
    double memory[MOST * WIDEST]; /* for values of either type */
    int64_t next[WORKERS];        /* V(m): the version of a worker's next update */
    int64_t newest;               /* c_max */
};

static const tr_function *builtin(const char *name)
{
    size_t i = 0;
    while (strcmp(tr_builtin_functions[i].name, name) != 0) i++;
    return &tr_builtin_functions[i];
}

static void open_server(struct server *s, const tr_function *function, enum tr_dtype dtype, size_t units,
                        size_t width)
{
    *s = (struct server){
        .function = function,
        .share = {.table = "t", .dtype = dtype, .width = width, .units = units, .pushers = WORKERS}};
    s->share.value = s->memory;
    ck_ok(function->open(&s->share));
}

static void close_server(struct server *s)
{
    s->function->close(&s->share);
}

static void hand_over(struct server *s, tr_update *u)
{
    ck_ok(s->function->map(&s->share, u, &u->version));
    ck_ok(s->function->update(&s->share, u));
}

/* ---- the example of appendix C: four workers, updates a to g of two units ---- */

static void push(struct server *s, int worker, int64_t clock, double first, double second)
{
    double value[2] = {first, second};
    tr_update u = {.pusher = worker, .clock = clock, .seen = s->next[worker]++, .n = 2, .value = value};
    hand_over(s, &u);
    ck_assert_int_eq(u.version, u.seen);
    if (clock + 1 > s->newest) s->newest = clock + 1;
}

static void pull(struct server *s, int worker)
{
    s->next[worker] = s->newest;
}

static void expect(const struct server *s, double first, double second)
{
    ck_assert_double_eq_tol(s->memory[0], first, 1e-12);
    ck_assert_double_eq_tol(s->memory[1], second, 1e-12);
}

UNIT_CASE(the_example_of_the_paper)
{
    struct server s;
    open_server(&s, builtin("dyn"), TR_F64, 2, 1);
    push(&s, 0, 0, 12, 8); /* a */
    expect(&s, 12, 8);
    push(&s, 0, 1, 5, 0); /* b */
    expect(&s, 17, 8);
    push(&s, 1, 0, 24, 0); /* c: (12 + 24) / 2 + 5, 8 / 2 */
    expect(&s, 23, 4);
    push(&s, 2, 0, 60, -5); /* d: (12 + 24 + 60) / 3 + 5, (8 - 5) / 3 */
    expect(&s, 37, 1);
    push(&s, 0, 2, 7, 3); /* e */
    expect(&s, 44, 4);
    pull(&s, 1); /* there are three versions by now */
    ck_assert_int_eq(s.next[1], 3);
    push(&s, 3, 0, -24, 5); /* f: (12 + 24 + 60 - 24) / 4 + 5 + 7, (8 - 5 + 5) / 4 + 3 */
    expect(&s, 30, 5);
    ck_ok(s.function->expire(&s.share, 1));
    expect(&s, 30, 5);
    push(&s, 1, 1, 100, 10); /* g is the first of version 3 */
    expect(&s, 130, 15);
    ck_assert_int_eq(s.next[0], 3);
    ck_assert_int_eq(s.next[1], 4);
    ck_assert_int_eq(s.newest, 3);
    close_server(&s);
}

static void expect_read(const struct server *s, int64_t version, double first, double second)
{
    double read[2];
    ck_ok(s->function->read(&s->share, version, 2, NULL, read));
    ck_assert_double_eq_tol(read[0], first, 1e-12);
    ck_assert_double_eq_tol(read[1], second, 1e-12);
}

UNIT_CASE(the_example_read_at_its_versions)
{
    struct server s;
    open_server(&s, builtin("dyn-stable"), TR_F64, 2, 1);
    push(&s, 0, 0, 12, 8);
    push(&s, 0, 1, 5, 0);
    push(&s, 1, 0, 24, 0);
    push(&s, 2, 0, 60, -5);
    push(&s, 0, 2, 7, 3);
    expect(&s, 0, 0); /* nothing that somebody may still revise is in the value */
    expect_read(&s, 0, 0, 0);
    expect_read(&s, 1, 32, 1);
    expect_read(&s, 2, 37, 1);
    expect_read(&s, 3, 44, 4);
    push(&s, 3, 0, -24, 5);
    expect_read(&s, 3, 30, 5);
    ck_ok(s.function->expire(&s.share, 1)); /* all four have pushed for version 0 */
    expect(&s, 18, 2);
    pull(&s, 1);
    push(&s, 1, 1, 100, 10);
    expect_read(&s, 1, 18, 2);
    expect_read(&s, 3, 30, 5);
    expect_read(&s, 4, 130, 15);
    ck_ok(s.function->expire(&s.share, INT64_MAX));
    expect(&s, 130, 15);
    close_server(&s);
}

/* ---- random updates against a dense reference ---- */

struct reference {
    double sum[VERSIONS][MOST * WIDEST], count[VERSIONS];
};

/* What versions below `version` come to. */
static double total(const struct reference *r, int64_t version, size_t at)
{
    double sum = 0;
    for (int64_t v = 0; v < version; v++)
        if (r->count[v] > 0) sum += r->sum[v][at] / r->count[v];
    return sum;
}

struct made {
    tr_update update;
    uint32_t unit[MOST];
    double value[MOST * WIDEST];
};

/* An update of no units, few, the first ones, many or all; now and then of zeros. */
static void make_update(struct made *m, struct tr_rng *rng, const tr_share *share)
{
    static const uint64_t one_in[] = {1, 2, 3, 10, 40};
    uint64_t kind = tr_rng_below(rng, 8), rare = one_in[kind % 5];
    size_t n = 0;
    m->update = (tr_update){.unit = kind < 5 ? m->unit : NULL, .value = m->value};
    for (uint32_t i = 0; i < share->units; i++)
        if (tr_rng_below(rng, rare) == 0) m->unit[n++] = i;
    if (kind == 5) n = 0;
    if (kind == 6) n = tr_rng_below(rng, share->units);
    if (kind == 7) n = share->units;
    m->update.n = n;
    bool zeros = tr_rng_below(rng, 10) == 0;
    for (size_t i = 0; i < n * share->width; i++)
        set_element(share->dtype, m->value, i, zeros ? 0 : tr_rng_normal(rng));
}

static void add_to_reference(struct reference *r, const tr_share *share, const tr_update *u)
{
    for (size_t i = 0; i < u->n * share->width; i++) {
        size_t unit = u->unit ? u->unit[i / share->width] : i / share->width;
        r->sum[u->version][unit * share->width + i % share->width] += element(share->dtype, u->value, i);
    }
    r->count[u->version]++;
}

static void check_values(const struct server *s, const struct reference *r, int64_t version)
{
    double tolerance = s->share.dtype == TR_F32 ? 1e-4 : 1e-11;
    for (size_t i = 0; i < s->share.units * s->share.width; i++)
        ck_assert_double_eq_tol(element(s->share.dtype, s->memory, i), total(r, version, i), tolerance);
}

/* Some units, or the first ones, as of a version. */
static void check_read(const struct server *s, const struct reference *r, struct tr_rng *rng, int64_t version)
{
    struct made which;
    make_update(&which, rng, &s->share);
    const tr_update *u = &which.update;
    size_t width = s->share.width;
    double packed[MOST * WIDEST], tolerance = s->share.dtype == TR_F32 ? 1e-4 : 1e-11;
    ck_ok(s->function->read(&s->share, version, u->n, u->unit, packed));
    for (size_t i = 0; i < u->n * width; i++) {
        size_t unit = u->unit ? u->unit[i / width] : i / width;
        ck_assert_double_eq_tol(element(s->share.dtype, packed, i),
                                total(r, version, unit * width + i % width), tolerance);
    }
}

static void compare(const tr_function *function, enum tr_dtype dtype, size_t units, size_t width)
{
    struct server s;
    struct reference *r;
    struct tr_rng rng;
    ck_ok(TR_NEW(&r, 1));
    tr_rng_seed(&rng, 5, units, width + 10 * (uint64_t)dtype);
    open_server(&s, function, dtype, units, width);
    int64_t first = 0; /* active versions */
    for (int step = 0; step < 6 * (VERSIONS - WINDOW); step++) {
        struct made m;
        make_update(&m, &rng, &s.share);
        m.update.seen = first + (int64_t)tr_rng_below(&rng, WINDOW);
        hand_over(&s, &m.update);
        add_to_reference(r, &s.share, &m.update);
        if (function->read) check_read(&s, r, &rng, first + (int64_t)tr_rng_below(&rng, WINDOW + 1));
        if (!function->read) check_values(&s, r, first + WINDOW);
        if (tr_rng_below(&rng, 6) == 0 && first + WINDOW + 2 < VERSIONS) {
            first += 1 + (int64_t)tr_rng_below(&rng, 2);
            ck_ok(function->expire(&s.share, first));
            check_values(&s, r, function->read ? first : first + WINDOW);
        }
        ck_assert_uint_le(function->memory(&s.share), WINDOW * units * width * sizeof(double) + LIST);
    }
    ck_assert_int_gt(first, 50);
    close_server(&s); /* with versions in it, which the leak checker would miss */
    free(r);
}

UNIT_CASE(versions_are_means)
{
    static const size_t units[] = {1, 7, 64, MOST};
    for (size_t k = 0; k < 4; k++)
        for (size_t width = 1; width <= WIDEST; width += 2) {
            compare(builtin("dyn"), TR_F32, units[k], width);
            compare(builtin("dyn"), TR_F64, units[k], width);
            compare(builtin("dyn-stable"), TR_F32, units[k], width);
            compare(builtin("dyn-stable"), TR_F64, units[k], width);
        }
}

/* ---- memory ---- */

/* Memory of the versions in units of the share's size, without their list. */
static double copies(const struct server *s)
{
    size_t own = s->function->memory(&s->share);
    if (own < LIST) return 0;
    return (double)(own - LIST) / (double)(s->share.units * s->share.width * sizeof(double));
}

static void push_units(struct server *s, int64_t version, uint32_t first, size_t n)
{
    struct made m = {.update = {.seen = version, .n = n, .unit = m.unit, .value = m.value}};
    for (uint32_t i = 0; i < n; i++) m.unit[i] = first + i;
    for (size_t i = 0; i < n * s->share.width; i++) m.value[i] = 1;
    hand_over(s, &m.update);
}

UNIT_CASE(memory_is_what_active_versions_need)
{
    struct server s;
    open_server(&s, builtin("dyn"), TR_F64, MOST, WIDEST);
    ck_assert_double_le(copies(&s), 0.01);
    for (int64_t v = 0; v < WINDOW; v++) push_units(&s, v, 0, MOST / 10);
    ck_assert_double_ge(copies(&s), WINDOW * 0.1); /* lists: the values, and which they are */
    ck_assert_double_le(copies(&s), WINDOW * 0.13);
    push_units(&s, 0, 0, MOST / 10); /* the same units once more */
    ck_assert_double_le(copies(&s), WINDOW * 0.13);
    push_units(&s, 0, MOST / 2, MOST / 3); /* dense by now, but not more than an array */
    ck_assert_double_ge(copies(&s), (WINDOW - 1) * 0.1 + 0.4);
    ck_assert_double_le(copies(&s), (WINDOW - 1) * 0.13 + 1.01);
    for (int64_t v = 0; v < WINDOW; v++) push_units(&s, v, 0, MOST);
    ck_assert_double_ge(copies(&s), WINDOW);
    ck_assert_double_le(copies(&s), WINDOW + 0.1);
    ck_ok(s.function->expire(&s.share, WINDOW - 1));
    ck_assert_double_le(copies(&s), 1.1);
    ck_ok(s.function->expire(&s.share, INT64_MAX));
    ck_assert_double_le(copies(&s), 0.1);
    close_server(&s);
}

UNIT_CASE(whole_numbers_have_no_means)
{
    static const enum tr_dtype whole[] = {TR_I32, TR_I64};
    for (int i = 0; i < 4; i++) {
        const tr_function *function = i < 2 ? builtin("dyn") : builtin("dyn-stable");
        tr_share share = {.table = "counts", .dtype = whole[i % 2], .width = 1, .units = 3};
        ck_fails(function->open(&share), TR_ERR_CONFIG, "table counts");
        ck_assert_ptr_null(share.own);
    }
}

/* ---- agree ---- */

/* t(v) = Σ|u|² / 2|U|² between 1/S and 1, by hand. */
UNIT_CASE(updates_count_by_how_they_agree)
{
    struct server s;
    open_server(&s, builtin("agree"), TR_F64, 2, 1);
    push(&s, 0, 0, 6, 8); /* the first counts fully */
    expect(&s, 6, 8);
    push(&s, 1, 0, 6, 8); /* the same again: 200 / (2 · 400) is below 1/2, and the mean is unchanged */
    expect(&s, 6, 8);
    push(&s, 2, 0, 6, 8);
    expect(&s, 6, 8);
    push(&s, 0, 1, 3, 4); /* a version of its own */
    expect(&s, 9, 12);
    push(&s, 1, 1, 4, -3); /* at right angles: 50 / (2 · 50) = 1/2 of (7, 1) */
    expect(&s, 9.5, 8.5);
    push(&s, 2, 1, -7, 0); /* against both: 99 / (2 · 1), cut to 1: (0, 1) */
    expect(&s, 6, 9);
    close_server(&s);
}

/* Lists, arrays and both types come to what the formula says of dense vectors. */
UNIT_CASE(agreement_is_that_of_the_formula)
{
    enum { UNITS = 40, PUSHES = 60 };
    struct tr_rng rng;
    for (int round = 0; round < 4; round++) {
        enum tr_dtype dtype = round % 2 ? TR_F32 : TR_F64;
        struct server s;
        open_server(&s, builtin("agree"), dtype, UNITS, 1);
        tr_rng_seed(&rng, 5, (uint64_t)round, 0);
        double sum[VERSIONS][UNITS] = {{0}}, squares[VERSIONS] = {0}, count[VERSIONS] = {0},
               weight[VERSIONS] = {0};
        for (int p = 0; p < PUSHES; p++) {
            int worker = (int)tr_rng_below(&rng, WORKERS);
            int64_t v = s.next[worker]++;
            uint32_t unit[UNITS], n = 0;
            char value[UNITS * sizeof(double)];
            for (uint32_t k = 0; k < UNITS; k++) {
                if (tr_rng_uniform(&rng) > (round < 2 ? 0.1 : 0.7)) continue;
                set_element(dtype, value, n, tr_rng_normal(&rng));
                unit[n++] = k;
            }
            tr_update u = {.pusher = worker, .seen = v, .n = n, .unit = unit, .value = value};
            hand_over(&s, &u);
            double norm = 0;
            for (uint32_t i = 0; i < n; i++) {
                double x = element(dtype, value, i);
                sum[v][unit[i]] += x;
                squares[v] += x * x;
            }
            for (int k = 0; k < UNITS; k++) norm += sum[v][k] * sum[v][k];
            count[v]++;
            weight[v] = norm > 0 ? fmin(1, fmax(1 / count[v], squares[v] / (2 * norm))) : 1;
        }
        for (size_t k = 0; k < UNITS; k++) {
            double wanted = 0;
            for (int v = 0; v < VERSIONS; v++) wanted += weight[v] * sum[v][k];
            ck_assert_double_eq_tol(element(dtype, s.memory, k), wanted, dtype == TR_F32 ? 1e-4 : 1e-10);
        }
        close_server(&s);
    }
}
