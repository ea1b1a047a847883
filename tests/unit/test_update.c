#include "unit.h"

#include "table/server.h"
#include "../elements.h"

/* ---- optimizers ---- */

static const enum tr_optimizer_kind kinds[] = {TR_SGD,      TR_MOMENTUM, TR_NESTEROV, TR_ADAGRAD,
                                               TR_ADADELTA, TR_RMSPROP,  TR_ADAM,     TR_FTRL};
enum { KINDS = 8, UNITS = 40, WIDEST = 3, SIZE = UNITS * WIDEST, CLOCKS = 80 };

/* The formulas as they are printed, one element at a time, in double. nesterov in its first form, with the gradient
 * of the point ahead: b is θ. */
static void reference(const tr_optimizer *o, int clock, double g, double *w, double *a, double *b)
{
    double r = o->rate / sqrt(o->decay * clock + 1), before = *a, n = *b + g * g, t = clock + 1;
    switch (o->kind) {
    case TR_SGD: *w -= r * g; break;
    case TR_MOMENTUM: *w -= *a = o->momentum * *a + r * g; break;
    case TR_NESTEROV:
        *b -= *a = o->momentum * before + r * g;
        *w = *b - o->momentum * *a;
        break;
    case TR_ADAGRAD: *w -= r * g / (sqrt(*a += g * g) + o->epsilon); break;
    case TR_ADADELTA:
        *a = o->memory * *a + (1 - o->memory) * g * g;
        before = sqrt(*b + o->epsilon) / sqrt(*a + o->epsilon) * g;
        *b = o->memory * *b + (1 - o->memory) * before * before;
        *w -= r * before;
        break;
    case TR_RMSPROP:
        *a = o->memory * *a + (1 - o->memory) * g * g;
        *w -= r * g / (sqrt(*a) + o->epsilon);
        break;
    case TR_ADAM:
        *a = o->momentum * *a + (1 - o->momentum) * g;
        *b = o->memory * *b + (1 - o->memory) * g * g;
        *w -= r * (*a / (1 - pow(o->momentum, t))) / (sqrt(*b / (1 - pow(o->memory, t))) + o->epsilon);
        break;
    case TR_FTRL:
        *a += g - (sqrt(n) - sqrt(*b)) / o->rate * *w;
        *b = n;
        *w = fabs(*a) <= o->l1 ? 0 : -(*a - copysign(o->l1, *a)) / ((o->epsilon + sqrt(n)) / o->rate + o->l2);
        break;
    }
}

static tr_optimizer optimizer_of(enum tr_optimizer_kind kind)
{
    tr_optimizer o = {.kind = kind, .rate = 0.05, .decay = 0.1, .momentum = 0.8, .memory = -1, .epsilon = -1};
    o.l1 = 0.7;
    o.l2 = 0.2;
    ck_ok(tr_optimizer_resolve(&o, &o));
    return o;
}

/* Memory for any type of element. */
typedef struct block {
    double of[SIZE];
} block;

/* Some units in ascending order: scattered, a run of them, now and then all. */
static size_t choose(struct tr_rng *rng, uint32_t *unit)
{
    uint64_t one_in = 1 + tr_rng_below(rng, 5), from = 0, to = UNITS;
    if (one_in == 2) one_in = 1, from = tr_rng_below(rng, UNITS), to = from + tr_rng_below(rng, UNITS - from);
    size_t n = 0;
    for (uint32_t i = (uint32_t)from; i < to; i++)
        if (tr_rng_below(rng, one_in) == 0) unit[n++] = i;
    return n;
}

/* Changes the order. */
static void mix(struct tr_rng *rng, uint32_t *unit, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = tr_rng_below(rng, i);
        uint32_t last = unit[i - 1];
        unit[i - 1] = unit[k];
        unit[k] = last;
    }
}

/* The parts of units that are not named, of values or one array of the state. */
static size_t count_changes(enum tr_dtype dtype, size_t width, const uint32_t *unit, size_t n,
                            const void *before, const void *after)
{
    size_t bytes = width * (dtype == TR_F32 ? 4 : 8), changes = 0;
    bool named[UNITS] = {false};
    for (size_t k = 0; k < n; k++) named[unit[k]] = true;
    for (size_t i = 0; i < UNITS; i++)
        changes += !named[i] &&
                   memcmp((const char *)before + i * bytes, (const char *)after + i * bytes, bytes) != 0;
    return changes;
}

struct run {
    block value, state[2];
    double w[SIZE], a[SIZE], b[SIZE];
    size_t touched_others;
};

static void run(struct run *r, const tr_optimizer *o, enum tr_dtype dtype, size_t width, bool sparse)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 11, (uint64_t)o->kind, width);
    memset(r, 0, sizeof *r);
    size_t size = UNITS * width;
    for (size_t i = 0; i < size && o->kind != TR_FTRL; i++) {
        set_element(dtype, &r->value, i, r->w[i] = (double)(float)tr_rng_normal(&rng));
        if (o->kind == TR_NESTEROV) r->b[i] = r->w[i];
    }
    for (int clock = 0; clock < CLOCKS; clock++) {
        uint32_t unit[UNITS];
        block gradient, value = r->value;
        block state[2] = {r->state[0], r->state[1]};
        size_t n = sparse ? choose(&rng, unit) : UNITS;
        for (uint32_t k = 0; k < UNITS && !sparse; k++) unit[k] = k;
        mix(&rng, unit, sparse ? n : 0);
        for (size_t i = 0; i < n * width; i++) {
            double g = tr_rng_below(&rng, 8) == 0 ? 0 : (double)(float)(0.3 + tr_rng_normal(&rng));
            size_t at = unit[i / width] * width + i % width;
            set_element(dtype, &gradient, i, g);
            if (o->kind != TR_FTRL) g += o->l2 * r->w[at]; /* weight decay */
            reference(o, clock, g, &r->w[at], &r->a[at], &r->b[at]);
        }
        tr_optimizer_step(o, dtype, clock, n, width, sparse ? unit : NULL, &gradient, &r->value,
                          (void *[]){&r->state[0], &r->state[1]});
        r->touched_others += count_changes(dtype, width, unit, n, &value, &r->value);
        for (size_t a = 0; a < 2; a++)
            r->touched_others += count_changes(dtype, width, unit, n, &state[a], &r->state[a]);
    }
}

static double distance(const struct run *r, enum tr_dtype dtype, size_t width)
{
    double most = 0;
    for (size_t i = 0; i < UNITS * width; i++)
        most = fmax(most, fabs(element(dtype, &r->value, i) - r->w[i]) / (1 + fabs(r->w[i])));
    return most;
}

UNIT_CASE(optimizers_follow_their_formulas)
{
    static struct run r;
    for (int k = 0; k < KINDS; k++)
        for (int form = 0; form < 8; form++) {
            tr_optimizer o = optimizer_of(kinds[k]);
            enum tr_dtype dtype = form & 1 ? TR_F64 : TR_F32;
            size_t width = form & 2 ? WIDEST : 1;
            run(&r, &o, dtype, width, form & 4);
            double far = distance(&r, dtype, width);
            ck_assert_msg(far <= (dtype == TR_F64 ? 1e-12 : 2e-5), "%s, form %d: %g from the reference",
                          tr_optimizer_name(kinds[k]), form, far);
            ck_assert_uint_eq(r.touched_others, 0);
            bool moved = false;
            for (size_t i = 0; i < UNITS * width; i++) moved |= r.w[i] != 0;
            ck_assert(moved);
        }
}

UNIT_CASE(optimizers_have_as_many_arrays_as_they_use)
{
    static const size_t arrays[] = {0, 1, 1, 1, 2, 1, 2, 2};
    static struct run r;
    for (int k = 0; k < KINDS; k++) {
        tr_optimizer o = optimizer_of(kinds[k]);
        ck_assert_uint_eq(tr_optimizer_arrays(kinds[k]), arrays[k]);
        run(&r, &o, TR_F64, 2, true);
        for (size_t a = 0; a < 2; a++) {
            size_t used = 0;
            for (size_t i = 0; i < UNITS * 2; i++) used += r.state[a].of[i] != 0;
            ck_assert_uint_eq(used, a < arrays[k] ? UNITS * 2 : 0);
        }
    }
    ck_assert_uint_eq(tr_optimizer_arrays((enum tr_optimizer_kind)99), 0);
    ck_assert_ptr_null(tr_optimizer_name((enum tr_optimizer_kind)99));
}

/* For these, without weight decay, a key that is not named might as well have had a gradient of 0. */
UNIT_CASE(zero_gradients_are_no_steps_where_that_is_promised)
{
    static const enum tr_optimizer_kind exact[] = {TR_SGD, TR_ADAGRAD, TR_FTRL};
    for (int k = 0; k < 3; k++) {
        tr_optimizer o = optimizer_of(exact[k]);
        if (o.kind != TR_FTRL) o.l2 = 0;
        struct tr_rng rng;
        tr_rng_seed(&rng, 5, 0, 0);
        float sparse[UNITS] = {0}, dense[UNITS] = {0}, state[4][UNITS] = {{0}};
        for (int clock = 0; clock < CLOCKS; clock++) {
            uint32_t unit[UNITS];
            float packed[UNITS], spread[UNITS] = {0};
            size_t n = choose(&rng, unit);
            for (size_t i = 0; i < n; i++) spread[unit[i]] = packed[i] = (float)tr_rng_normal(&rng);
            tr_optimizer_step(&o, TR_F32, clock, n, 1, unit, packed, sparse, (void *[]){state[0], state[1]});
            tr_optimizer_step(&o, TR_F32, clock, UNITS, 1, NULL, spread, dense,
                              (void *[]){state[2], state[3]});
        }
        for (int i = 0; i < UNITS; i++) ck_assert_float_eq(sparse[i], dense[i]);
    }
}

/* Also from a start that no gradient has led to, and where others change the value. */
UNIT_CASE(ftrl_without_penalties_is_adagrad)
{
    tr_optimizer ftrl = {.kind = TR_FTRL, .rate = 0.3, .epsilon = 0.5}, adagrad = ftrl;
    adagrad.kind = TR_ADAGRAD;
    struct tr_rng rng;
    tr_rng_seed(&rng, 3, 0, 0);
    double w[UNITS], v[UNITS], g[UNITS], z[2 * UNITS] = {0}, s[UNITS] = {0}, far = 0;
    for (int i = 0; i < UNITS; i++) w[i] = v[i] = i % 3 * tr_rng_normal(&rng);
    for (int clock = 0; clock < CLOCKS; clock++) {
        for (int i = 0; i < UNITS; i++) g[i] = tr_rng_normal(&rng);
        tr_optimizer_step(&ftrl, TR_F64, clock, UNITS, 1, NULL, g, w, (void *[]){z, z + UNITS});
        tr_optimizer_step(&adagrad, TR_F64, clock, UNITS, 1, NULL, g, v, (void *[]){s});
        for (int i = 0; i < UNITS; i++) far = fmax(far, fabs(w[i] - v[i]));
        for (int i = 0; i < 5; i++) w[i] = v[i] = v[i] + 0.5;
    }
    ck_assert_double_le(far, 1e-12);
}

UNIT_CASE(ftrl_leaves_exact_zeros)
{
    tr_optimizer o = {.kind = TR_FTRL, .rate = 0.1, .l1 = 3};
    float w[3] = {0}, state[6] = {0}, g[3] = {1, -1, 0};
    for (int clock = 0; clock < 5; clock++) {
        tr_optimizer_step(&o, TR_F32, clock, 3, 1, NULL, g, w, (void *[]){state, state + 3});
        for (int i = 0; i < 3; i++) ck_assert(!signbit(w[2]) && (clock >= 3 && i < 2) == (w[i] != 0));
    }
    ck_assert(w[0] < 0 && w[1] > 0);
}

/* Rates are set so that all get there: f(w) = Σ k w_k² / 2 from w = 1. */
UNIT_CASE(optimizers_find_a_minimum)
{
    static const double rates[] = {0.1, 0.02, 0.02, 0.5, 1, 0.02, 0.05, 0.5};
    enum { N = 9 };
    for (int k = 0; k < KINDS; k++) {
        tr_optimizer o = {.kind = kinds[k], .rate = rates[k], .momentum = 0.9};
        if (o.kind == TR_RMSPROP || o.kind == TR_ADAM) o.decay = 0.2;
        float w[N], g[N], state[2 * N] = {0};
        for (int i = 0; i < N; i++) w[i] = 1;
        for (int clock = 0; clock < 1500; clock++) {
            for (int i = 0; i < N; i++) g[i] = (float)(i + 1) * w[i];
            tr_optimizer_step(&o, TR_F32, clock, N, 1, NULL, g, w, (void *[]){state, state + N});
        }
        for (int i = 0; i < N; i++)
            ck_assert_msg(fabsf(w[i]) < 0.02f, "%s: w[%d] is %g", tr_optimizer_name(kinds[k]), i,
                          (double)w[i]);
    }
}

UNIT_CASE(settings_are_filled_in_and_checked)
{
    tr_optimizer o = {.kind = TR_ADAM, .rate = 1, .momentum = 0.9, .memory = -1, .epsilon = -1}, full;
    ck_ok(tr_optimizer_resolve(&o, &full));
    ck_assert(full.memory == 0.999 && full.epsilon == 1e-8 && full.rate == 1 && full.momentum == 0.9);
    o.kind = TR_ADADELTA;
    ck_ok(tr_optimizer_resolve(&o, &full));
    ck_assert(full.memory == 0.99 && full.epsilon == 1e-6);
    o.kind = TR_RMSPROP;
    ck_ok(tr_optimizer_resolve(&o, &full));
    ck_assert(full.memory == 0.99 && full.epsilon == 1e-8);
    o.memory = 0.5, o.epsilon = 0.25;
    ck_ok(tr_optimizer_resolve(&o, &full));
    ck_assert(full.memory == 0.5 && full.epsilon == 0.25);

    tr_optimizer bad[8];
    for (int i = 0; i < 8; i++) bad[i] = o;
    bad[0].rate = 0, bad[1].rate = NAN, bad[2].decay = -1, bad[3].momentum = 1, bad[4].memory = 1;
    bad[5].epsilon = INFINITY, bad[6].l1 = -1, bad[7].kind = (enum tr_optimizer_kind)8;
    static const char *const words[] = {"rate is 0",   "rate",    "decay is -1", "momentum is 1",
                                        "memory is 1", "epsilon", "l1",          "kind 8"};
    for (int i = 0; i < 8; i++) ck_fails(tr_optimizer_resolve(&bad[i], &full), TR_ERR_CONFIG, words[i]);
}

/* ---- server functions ---- */

static const tr_function *function_named(const char *name)
{
    for (size_t i = 0; i < tr_builtin_function_count; i++)
        if (!strcmp(tr_builtin_functions[i].name, name)) return &tr_builtin_functions[i];
    ck_abort_msg("no function %s", name);
    return NULL;
}

UNIT_CASE(functions_have_names_of_their_own)
{
    static const char *const expected[] = {"add",      "assign",  "max",      "scale",   "sgd",  "momentum",
                                           "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "ftrl"};
    for (size_t i = 0; i < COUNT(expected); i++) ck_assert(function_named(expected[i])->update);
    for (size_t i = 0; i < tr_builtin_function_count; i++)
        ck_assert_ptr_eq(function_named(tr_builtin_functions[i].name), &tr_builtin_functions[i]);
}

UNIT_CASE(an_optimizer_at_a_server_is_an_optimizer)
{
    for (int k = 0; k < KINDS; k++)
        for (int form = 0; form < 4; form++) {
            const tr_function *f = function_named(tr_optimizer_name(kinds[k]));
            tr_optimizer o = optimizer_of(kinds[k]);
            enum tr_dtype dtype = form & 1 ? TR_F64 : TR_F32;
            size_t width = form & 2 ? WIDEST : 1;
            ck_assert_uint_eq(f->state_arrays, tr_optimizer_arrays(kinds[k]));
            ck_assert_uint_eq(f->argument, sizeof o);
            ck_assert(f->merged);
            static block here[4], there[4];
            memset(here, 0, sizeof here);
            memset(there, 0, sizeof there);
            tr_share share = {.table = "t",
                              .dtype = dtype,
                              .width = width,
                              .units = UNITS,
                              .value = &there[0],
                              .state = {&there[1], &there[2]},
                              .argument = &o,
                              .pushers = 3};
            ck_ok(f->open(&share));
            struct tr_rng rng;
            tr_rng_seed(&rng, 2, 0, 0);
            for (int clock = 0; clock < 10; clock++) {
                uint32_t unit[UNITS];
                block gradient;
                size_t n = choose(&rng, unit);
                for (size_t i = 0; i < n * width; i++) set_element(dtype, &gradient, i, tr_rng_normal(&rng));
                tr_update u = {
                    .pusher = -1, .clock = clock, .version = clock, .n = n, .unit = unit, .value = &gradient};
                ck_ok(f->update(&share, &u));
                tr_optimizer_step(&o, dtype, clock, n, width, unit, &gradient, &here[0],
                                  (void *[]){&here[1], &here[2]});
            }
            ck_assert_mem_eq(here, there, sizeof here);
            if (f->close) f->close(&share);
        }
}

UNIT_CASE(functions_refuse_what_they_cannot_do)
{
    tr_optimizer o = optimizer_of(TR_ADAM);
    const tr_function *adam = function_named("adam"), *sgd = function_named("sgd");
    tr_share share = {.table = "w", .dtype = TR_I32, .width = 1, .argument = &o};
    ck_fails(adam->open(&share), TR_ERR_CONFIG, "table w: adam");
    share.dtype = TR_I64;
    ck_fails(adam->open(&share), TR_ERR_CONFIG, "TR_F32 or TR_F64");
    share.dtype = TR_F64;
    ck_ok(adam->open(&share));
    ck_fails(sgd->open(&share), TR_ERR_CONFIG, "optimizer adam, the function is sgd");
    o.rate = -1;
    ck_fails(adam->open(&share), TR_ERR_CONFIG, "table w: optimizer adam: rate is -1");
    share.argument = NULL;
    ck_fails(adam->open(&share), TR_ERR_CONFIG, "argument");
    double rate = NAN;
    const tr_function *scale = function_named("scale");
    ck_ok(scale->open(&share));
    share.argument = &rate;
    ck_fails(scale->open(&share), TR_ERR_CONFIG, "rate is nan");
}

static double expected_result(const char *name, double v, double u, double rate, bool whole)
{
    if (!strcmp(name, "add")) return v + u;
    if (!strcmp(name, "assign")) return u;
    if (!strcmp(name, "max")) return v > u ? v : u;
    return v + (whole ? nearbyint(rate * u) : rate * u);
}

/* scale: with a rate, and with 1/pushers. */
static void check_arithmetic(const char *name, enum tr_dtype dtype, int form, const double *rate)
{
    const tr_function *f = function_named(name);
    size_t width = form & 1 ? WIDEST : 1;
    bool sparse = form & 2;
    struct tr_rng rng;
    tr_rng_seed(&rng, 9, (uint64_t)form, 0);
    block value, change;
    double expected[SIZE];
    uint32_t unit[UNITS];
    size_t n = UNITS, wrong = 0;
    while (sparse && (n == 0 || n == UNITS)) n = choose(&rng, unit);
    bool whole = dtype == TR_I32 || dtype == TR_I64;
    for (uint32_t k = 0; k < UNITS && !sparse; k++) unit[k] = k;
    for (size_t i = 0; i < UNITS * width; i++)
        set_element(dtype, &value, i, expected[i] = (double)tr_rng_below(&rng, 201) - 100);
    for (size_t i = 0; i < n * width; i++) {
        size_t at = unit[i / width] * width + i % width;
        double u = (double)tr_rng_below(&rng, 201) - 100;
        set_element(dtype, &change, i, u);
        expected[at] = expected_result(name, expected[at], u, rate ? *rate : 0.25, whole);
    }
    tr_share share = {.table = "t", .dtype = dtype, .width = width, .units = UNITS, .value = &value};
    share.pushers = 4;
    share.argument = rate;
    if (f->open) ck_ok(f->open(&share));
    ck_ok(f->update(&share, &(tr_update){.n = n, .unit = sparse ? unit : NULL, .value = &change}));
    for (size_t i = 0; i < UNITS * width; i++) wrong += element(dtype, &value, i) != expected[i];
    ck_assert_msg(wrong == 0, "%s of type %d, form %d: %zu wrong", name, (int)dtype, form, wrong);
}

UNIT_CASE(arithmetic_is_right_for_all_types)
{
    static const char *const names[] = {"add", "assign", "max", "scale"};
    static const double rate = -1.5;
    for (enum tr_dtype dtype = TR_F32; dtype <= TR_I64; dtype++)
        for (int form = 0; form < 32; form++) {
            for (int k = 0; k < 4; k++) check_arithmetic(names[k], dtype, form, NULL);
            check_arithmetic("scale", dtype, form, &rate);
        }
    ck_assert(function_named("add")->merged && function_named("scale")->merged);
    ck_assert(!function_named("assign")->merged && !function_named("max")->merged);
}

/* Whole numbers that a double does not hold are added and compared as they are. */
UNIT_CASE(large_whole_numbers_stay_exact)
{
    int64_t value[2] = {INT64_C(1) << 60, INT64_C(1) << 60}, change[2] = {1, (INT64_C(1) << 60) + 1};
    tr_share share = {.table = "t", .dtype = TR_I64, .width = 1, .units = 2, .value = value, .pushers = 1};
    ck_ok(function_named("max")->update(&share, &(tr_update){.n = 2, .value = change}));
    ck_assert_int_eq(value[0], INT64_C(1) << 60);
    ck_assert_int_eq(value[1], (INT64_C(1) << 60) + 1);
    ck_ok(function_named("add")->update(&share, &(tr_update){.n = 2, .value = (int64_t[]){3, -2}}));
    ck_assert_int_eq(value[0], (INT64_C(1) << 60) + 3);
    ck_assert_int_eq(value[1], (INT64_C(1) << 60) - 1);
    share.argument = (double[]){1e30};
    value[0] = value[1] = 0;
    ck_ok(function_named("scale")->update(&share, &(tr_update){.n = 2, .value = (int64_t[]){1, -1}}));
    ck_assert(value[0] > INT64_C(1) << 62 && value[1] < -(INT64_C(1) << 62));
}

/* ---- answers: three shares of a table of KEYS keys in PIECES pieces ---- */

enum { KEYS = 30, SHARES = 3 };

/* A share and which unit is what, the first of them padding. This test's stand-in for a table. */
struct part {
    tr_share share;
    uint32_t pieces;
    size_t n;
    tr_key key[4 * KEYS];
    uint32_t piece[4 * KEYS];
    block value;
};

static const struct part *part_of(const tr_share *share)
{
    return (const struct part *)(const void *)share->place;
}

tr_key tr_share_key(const tr_share *share, size_t unit)
{
    return part_of(share)->key[unit];
}

uint32_t tr_share_pieces(const tr_share *share)
{
    return part_of(share)->pieces;
}

bool tr_share_find(const tr_share *share, tr_key key, uint32_t piece, size_t *unit)
{
    const struct part *p = part_of(share);
    for (size_t i = 0; i < p->n; i++)
        if (p->key[i] == key && p->piece[i] == piece) {
            *unit = i;
            return true;
        }
    return false;
}

bool tr_share_has_place(const tr_share *share, tr_key key, uint32_t piece)
{
    size_t unit;
    return tr_share_find(share, key, piece, &unit);
}

/* What the element of a key is: whole, with zeros, and with equal magnitudes. */
static double element_of(tr_key key, size_t column)
{
    double x = (double)((key * 7 + column * 5) % 12);
    return (key + column) % 2 ? -x : x;
}

/* Pieces of equal number lie together, keys of one piece apart: as it comes with ranges of pieces. */
static void make_parts(struct part part[SHARES], enum tr_dtype dtype, uint32_t pieces, size_t width)
{
    memset(part, 0, SHARES * sizeof *part);
    for (int s = 0; s < SHARES; s++) {
        struct part *p = &part[s];
        p->pieces = pieces;
        p->key[p->n++] = UINT64_MAX;
        p->share = (tr_share){.table = "t", .dtype = dtype, .width = width, .value = &p->value, .server = s};
        p->share.place = (const struct tr_table *)(const void *)p;
    }
    for (uint32_t piece = 0; piece < pieces; piece++)
        for (tr_key k = 0; k < KEYS; k++) {
            struct part *p = &part[pieces > 1 ? piece % SHARES : k * k % SHARES];
            p->key[p->n] = k;
            p->piece[p->n] = piece;
            for (size_t i = 0; i < width; i++)
                set_element(dtype, &p->value, p->n * width + i, element_of(k, piece * width + i));
            p->n++;
        }
    for (int s = 0; s < SHARES; s++) part[s].share.units = part[s].n;
}

static const tr_answer *answer_named(const char *name)
{
    for (size_t i = 0; i < tr_builtin_answer_count; i++)
        if (!strcmp(tr_builtin_answers[i].name, name)) return &tr_builtin_answers[i];
    ck_abort_msg("no answer %s", name);
    return NULL;
}

static const int orders[6][SHARES] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* Asks the three shares and joins them in an order; part and question lie at odd addresses, as in a message. */
static size_t ask(const struct part *part, const int *order, const char *name, const void *question,
                  size_t question_bytes, void *result, size_t room)
{
    const tr_answer *answer = answer_named(name);
    char odd[64] = {0}, more[4096];
    if (question_bytes) memcpy(odd + 1, question, question_bytes);
    size_t total = room;
    ck_ok(answer->get(&part[order[0]].share, odd + 1, question_bytes, result, &total));
    for (int i = 1; i < SHARES; i++) {
        size_t bytes = room;
        ck_ok(answer->get(&part[order[i]].share, odd + 1, question_bytes, more + 1, &bytes));
        ck_ok(answer->combine(result, &total, room, more + 1, bytes));
    }
    return total;
}

static struct part part[SHARES];

UNIT_CASE(sums_and_counts_are_of_all_shares)
{
    for (enum tr_dtype dtype = TR_F32; dtype <= TR_I64; dtype++)
        for (uint32_t pieces = 1; pieces <= 3; pieces += 2) {
            size_t width = pieces == 1 ? 1 : 2 - (size_t)(dtype % 2);
            double squares = 0, sum1 = 0;
            uint64_t nonzeros = 0;
            make_parts(part, dtype, pieces, width);
            for (tr_key k = 0; k < KEYS; k++)
                for (size_t i = 0; i < pieces * width; i++) {
                    double x = element_of(k, i);
                    squares += x * x;
                    sum1 += fabs(x);
                    nonzeros += x != 0;
                }
            for (int o = 0; o < 6; o++) {
                double real;
                uint64_t count;
                ck_assert_uint_eq(ask(part, orders[o], "squares", NULL, 0, &real, 8), 8);
                ck_assert_double_eq(real, squares);
                ck_assert_uint_eq(ask(part, orders[o], "sum1", NULL, 0, &real, 8), 8);
                ck_assert_double_eq(real, sum1);
                ck_assert_uint_eq(ask(part, orders[o], "nonzeros", NULL, 0, &count, 8), 8);
                ck_assert_uint_eq(count, nonzeros);
            }
        }
}

UNIT_CASE(dot_says_how_much_of_the_rows_it_saw)
{
    for (enum tr_dtype dtype = TR_F32; dtype <= TR_I64; dtype++)
        for (int o = 0; o < 6; o++) {
            make_parts(part, dtype, 3, 1 + (size_t)dtype % 2);
            tr_key rows[2] = {4, 11};
            double sum = 0;
            struct tr_dot dot;
            for (size_t i = 0; i < 3 * part->share.width; i++) sum += element_of(4, i) * element_of(11, i);
            ck_assert_uint_eq(ask(part, orders[o], "dot", rows, sizeof rows, &dot, sizeof dot), sizeof dot);
            ck_assert_double_eq(dot.sum, sum);
            ck_assert_uint_eq(dot.pieces, 3);
        }
    /* of a table of one row, 3 and 4 are in different shares, 3 and 6 in one */
    make_parts(part, TR_F64, 1, 1);
    struct tr_dot dot;
    ask(part, orders[0], "dot", (tr_key[]){3, 4}, 16, &dot, sizeof dot);
    ck_assert(dot.sum == 0 && dot.pieces == 0);
    ask(part, orders[0], "dot", (tr_key[]){3, 6}, 16, &dot, sizeof dot);
    ck_assert_double_eq(dot.sum, element_of(3, 0) * element_of(6, 0));
    ck_assert_uint_eq(dot.pieces, 1);
}

/* The k-th by sorting everything: how many come before a pair. */
static size_t rank_of(tr_key key)
{
    double x = fabs(element_of(key, 0));
    size_t before = 0;
    for (tr_key k = 0; k < KEYS; k++) {
        double y = fabs(element_of(k, 0));
        before += y > x || (y == x && k < key);
    }
    return before;
}

UNIT_CASE(top_is_the_same_in_any_order)
{
    union {
        struct tr_top top;
        char room[sizeof(struct tr_top) + KEYS * 2 * sizeof(struct tr_top_pair)];
    } u;
    size_t nonzeros = 0;
    for (tr_key k = 0; k < KEYS; k++) nonzeros += element_of(k, 0) != 0;
    for (enum tr_dtype dtype = TR_F32; dtype <= TR_I64; dtype++)
        for (uint32_t k = 0; k <= 2 * KEYS; k += k < 4 ? 1 : 7)
            for (int o = 0; o < 6; o++) {
                make_parts(part, dtype, 1, 1);
                size_t bytes = ask(part, orders[o], "top", &k, sizeof k, &u, sizeof u);
                ck_assert_uint_eq(u.top.n, tr_min_size(k, nonzeros));
                ck_assert_uint_eq(u.top.k, k);
                ck_assert_uint_eq(bytes, sizeof u.top + u.top.n * sizeof *u.top.pair);
                for (size_t i = 0; i < u.top.n; i++)
                    ck_assert(rank_of(u.top.pair[i].key) == i &&
                              u.top.pair[i].value == element_of(u.top.pair[i].key, 0));
            }
}

UNIT_CASE(soft_thresholds_a_slice)
{
    for (enum tr_dtype dtype = TR_F32; dtype <= TR_I64; dtype++)
        for (int o = 0; o < 6; o++)
            for (uint32_t pieces = 1; pieces <= 3; pieces += 2) {
                enum { FIRST = 5, N = 17 };
                size_t width = pieces == 1 ? 1 : 2, columns = pieces * width;
                make_parts(part, dtype, pieces, width);
                struct tr_soft soft = {FIRST, N, 2.5};
                double result[N * 6];
                size_t bytes = ask(part, orders[o], "soft", &soft, sizeof soft, result, sizeof result);
                ck_assert_uint_eq(bytes, N * columns * sizeof(double));
                for (size_t i = 0; i < N * columns; i++) {
                    double x = element_of(FIRST + i / columns, i % columns);
                    double expected = x > 2.5 ? x - 2.5 : x < -2.5 ? x + 2.5 : 0;
                    ck_assert(result[i] == expected);
                }
            }
}

UNIT_CASE(answers_refuse_wrong_questions_and_little_room)
{
    make_parts(part, TR_F32, 1, 1);
    const tr_share *share = &part[0].share;
    double result[8];
    size_t room = 4;
    uint32_t k = 3;
    struct tr_soft soft = {0, 9, 1};
    ck_fails(answer_named("squares")->get(share, NULL, 0, result, &room), TR_ERR_INTERNAL, "room");
    ck_fails(answer_named("squares")->get(share, &k, 4, result, &room), TR_ERR_INTERNAL,
             "question of 4 bytes");
    ck_fails(answer_named("nonzeros")->get(share, NULL, 0, result, &room), TR_ERR_INTERNAL, "room");
    ck_fails(answer_named("dot")->get(share, &k, 4, result, &room), TR_ERR_INTERNAL, "expected 16");
    room = 8 + 2 * 16;
    ck_fails(answer_named("top")->get(share, &k, 4, result, &room), TR_ERR_INTERNAL, "expected 56");
    room = 8 * 8;
    ck_fails(answer_named("soft")->get(share, &soft, sizeof soft, result, &room), TR_ERR_INTERNAL, "room");
    soft.n = (UINT64_C(1) << 61) + 1; /* 8 bytes each: 8 modulo 2^64 */
    ck_fails(answer_named("soft")->get(share, &soft, sizeof soft, result, &room), TR_ERR_INTERNAL, "room");
    room = 8;
    ck_fails(answer_named("squares")->combine(result, &room, 8, result, 16), TR_ERR_INTERNAL, "differ");
    make_parts(part, TR_F32, 1, 2);
    room = sizeof result;
    ck_fails(answer_named("top")->get(share, &k, 4, result, &room), TR_ERR_INTERNAL, "expected one row");
}
