#include "unit.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "data/reader.h"
#include "model/loss.h"
#include "model/linear/sgd/steps.h"

/* ---- a problem ---- */

/* Key 20 occurs in one row only, the last two in none. */
enum { ROWS = 40, KEYS = 23, RARE = 20, ALL = KEYS + 1 };

static uint64_t begin[ROWS + 1];
static uint32_t column[ROWS * KEYS];
static float value[ROWS * KEYS], label[ROWS];
static struct tr_problem problem;

static void make(const struct tr_loss *model, enum tr_dtype dtype, bool binary, double l2)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 7, 0, 0);
    uint64_t n = 0;
    for (int i = 0; i < ROWS; i++) {
        begin[i] = n;
        for (uint32_t k = 0; k <= RARE; k++) {
            if (k == RARE ? i != 5 : tr_rng_uniform(&rng) > 0.3) continue;
            column[n] = k;
            value[n++] = binary ? 1.0f : (float)tr_rng_normal(&rng);
        }
        label[i] = model == &tr_loss_linear ? (float)tr_rng_normal(&rng)
                   : tr_rng_next(&rng) & 1  ? 1.0f
                                            : -1.0f;
    }
    begin[ROWS] = n;
    problem = (struct tr_problem){.outputs = 1,
                                  .loss = model,
                                  .dtype = dtype,
                                  .rows = {ROWS, begin, column, binary ? NULL : value, label},
                                  .target = label,
                                  .bias = true,
                                  .keys = KEYS,
                                  .l2 = l2,
                                  .n = ROWS};
}

static double margin(size_t i, const double *w)
{
    double sum = w[KEYS];
    for (uint64_t k = begin[i]; k < begin[i + 1]; k++)
        sum += (problem.rows.value ? (double)value[k] : 1) * w[column[k]];
    return sum;
}

static double slope_at(size_t i, const double *w)
{
    return problem.loss->slope(margin(i, w), (double)label[i], 0);
}

/* into += by x_i */
static void add(size_t i, double by, double *into)
{
    for (uint64_t k = begin[i]; k < begin[i + 1]; k++)
        into[column[k]] += by * (problem.rows.value ? (double)value[k] : 1);
    into[KEYS] += by;
}

static double total_loss(size_t first, size_t n, const double *w)
{
    double sum = 0;
    for (size_t i = first; i < first + n; i++) sum += problem.loss->value(margin(i, w), (double)label[i], 0);
    return sum;
}

/* ---- the model, in memory that other processes would share ---- */

struct memory {
    double w[ALL], z[ALL], snapshot[ALL], mu[ALL], slope[ROWS], sum[ALL]; /* of floats for f32, but sum */
    uint32_t last[ALL];
    _Atomic uint64_t step;
    uint32_t lock[ALL * TR_LOCK_STRIDE];
};

static double get(const double *array, size_t j)
{
    return problem.dtype == TR_F32 ? (double)((const float *)(const void *)array)[j] : array[j];
}

static void set(double *array, size_t j, double x)
{
    if (problem.dtype == TR_F32) ((float *)(void *)array)[j] = (float)x;
    else array[j] = x;
}

static struct tr_variance_model model_of(struct memory *m)
{
    return (struct tr_variance_model){.n = ALL,
                                      .w = m->w,
                                      .z = m->z,
                                      .sum = m->sum,
                                      .snapshot = m->snapshot,
                                      .mu = m->mu,
                                      .last = m->last,
                                      .step = &m->step};
}

/* The full stage at a snapshot that is not the iterate. */
static void full(struct memory *m)
{
    double gradient[ALL] = {0};
    tr_variance_gradient(&problem, 0, ROWS, m->snapshot, NULL, m->slope, gradient);
    for (size_t j = 0; j < ALL; j++) set(m->mu, j, gradient[j] / ROWS);
}

static void prepare(struct memory *m)
{
    memset(m, 0, sizeof *m);
    for (size_t j = 0; j < ALL; j++) {
        set(m->snapshot, j, 0.3 * sin((double)j));
        set(m->w, j, 0.3 * sin((double)j) + 0.1 * cos(3 * (double)j));
        set(m->z, j, 0.2 * sin((double)j) - 0.1 * cos(5 * (double)j));
    }
    full(m);
}

/* One inner stage in two calls. */
static void inner(struct memory *m, const struct tr_variance_options *options, bool slopes,
                  const tr_updates *race)
{
    struct tr_variance *v;
    struct tr_rng rng;
    struct tr_variance_model model = model_of(m);
    const void *slope = slopes ? m->slope : NULL;
    tr_rng_seed(&rng, 3, 1, 4);
    ck_ok(tr_variance_open(&problem, options, &v));
    memset(m->last, 0, sizeof m->last);
    memset(m->sum, 0, sizeof m->sum);
    tr_variance_steps(v, 2, ROWS - 3, slope, options->steps / 3, &rng, &model, race);
    tr_variance_steps(v, 2, ROWS - 3, slope, options->steps - options->steps / 3, &rng, &model, race);
    tr_variance_settle(v, &model, 0, 9, 0);
    tr_variance_settle(v, &model, 9, ALL, 9);
    tr_variance_snapshot(v, &model, 0, ALL, m->snapshot);
    tr_variance_close(&v);
}

/* ---- the same, step by step and with all coordinates in every step ---- */

struct dense {
    double w[ALL], z[ALL], snapshot[ALL], mu[ALL], sum[ALL], weight;
};

static double l2_of(const struct tr_variance_options *o, size_t j)
{
    return j < KEYS || o->bias_l2 ? problem.l2 : 0;
}

static void dense_step(struct dense *d, const struct tr_variance_options *o, const size_t *row)
{
    double g[ALL] = {0}, x[ALL];
    double tau1 = fmin(sqrt((double)o->steps * problem.l2 * o->rate), 0.5), a;
    if (problem.l2 == 0) tau1 = 2 / ((double)o->epoch + 4);
    a = o->rate / tau1;
    bool katyusha = o->method == TR_METHOD_KATYUSHA;
    for (size_t j = 0; j < ALL; j++)
        x[j] = katyusha ? tau1 * d->z[j] + 0.5 * d->snapshot[j] + (0.5 - tau1) * d->w[j] : d->w[j];
    for (size_t r = 0; r < o->batch; r++)
        add(row[r], (slope_at(row[r], x) - slope_at(row[r], d->snapshot)) / (double)o->batch, g);
    double weight = katyusha ? pow(1 + a * problem.l2, d->weight) : 1;
    for (size_t j = 0; j < ALL; j++) {
        double l2 = l2_of(o, j);
        g[j] += d->mu[j];
        if (katyusha) {
            d->z[j] = (d->z[j] - a * g[j]) / (1 + a * l2);
            d->w[j] = (x[j] - o->rate * g[j]) / (1 + o->rate * l2);
        } else d->w[j] -= o->rate * (g[j] + l2 * d->w[j]);
        d->sum[j] += weight * d->w[j];
    }
    d->weight++;
}

static void dense_inner(struct dense *d, const struct tr_variance_options *o)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 3, 1, 4);
    for (size_t i = 0; i < ROWS; i++) add(i, slope_at(i, d->snapshot) / ROWS, d->mu);
    for (uint64_t s = 0; s < o->steps; s++) {
        size_t row[8];
        for (size_t r = 0; r < o->batch; r++) row[r] = 2 + (size_t)tr_rng_below(&rng, ROWS - 3);
        dense_step(d, o, row);
    }
    double tau1 = problem.l2 > 0 ? fmin(sqrt((double)o->steps * problem.l2 * o->rate), 0.5) : 1, total = 0;
    double growth = o->method == TR_METHOD_KATYUSHA ? 1 + o->rate / tau1 * problem.l2 : 1;
    for (uint64_t s = 0; s < o->steps; s++) total += pow(growth, (double)s);
    for (size_t j = 0; j < ALL; j++)
        d->snapshot[j] =
            o->method == TR_METHOD_KATYUSHA || o->method == TR_METHOD_SVRGPP ? d->sum[j] / total : d->w[j];
}

static void compare(const struct tr_variance_options *o, double tolerance)
{
    static struct memory m;
    for (int slopes = 0; slopes < 2; slopes++) {
        struct dense d = {.weight = 0};
        prepare(&m);
        for (size_t j = 0; j < ALL; j++) {
            d.w[j] = get(m.w, j);
            d.z[j] = get(m.z, j);
            d.snapshot[j] = get(m.snapshot, j);
        }
        inner(&m, o, slopes, NULL);
        dense_inner(&d, o);
        ck_assert_uint_eq(m.step, o->steps);
        for (size_t j = 0; j < ALL; j++) {
            ck_assert_uint_eq(m.last[j], o->steps);
            ck_assert_double_eq_tol(get(m.w, j), d.w[j], tolerance * fmax(1, fabs(d.w[j])));
            ck_assert_double_eq_tol(get(m.snapshot, j), d.snapshot[j],
                                    tolerance * fmax(1, fabs(d.snapshot[j])));
            if (o->method == TR_METHOD_KATYUSHA)
                ck_assert_double_eq_tol(get(m.z, j), d.z[j], tolerance * fmax(1, fabs(d.z[j])));
        }
    }
}

static const int methods[] = {TR_METHOD_SVRG, TR_METHOD_SVRGPP, TR_METHOD_KATYUSHA};
enum { METHODS = 3 };
static const struct tr_loss *const smooth[] = {&tr_loss_logistic, &tr_loss_linear, &tr_loss_l2svm};

static struct tr_variance_options usual(int method, uint64_t steps, size_t batch)
{
    return (struct tr_variance_options){
        .method = method, .rate = 0.02, .bias_l2 = batch == 3, .steps = steps, .epoch = 2, .batch = batch};
}

UNIT_CASE(lazy_steps_are_dense_steps)
{
    for (int form = 0; form < METHODS * 3 * 2 * 2; form++) {
        int method = methods[form % METHODS];
        const struct tr_loss *model = smooth[form / METHODS % 3];
        struct tr_variance_options o = usual(method, 400, form / METHODS / 3 % 2 ? 3 : 1);
        make(model, TR_F64, form & 1, form / METHODS / 6 ? 0.05 : 0);
        compare(&o, 1e-12);
    }
}

/* Keys without rows miss all the steps: the third level of the tables. */
UNIT_CASE(long_gaps_are_closed_exactly)
{
    for (int k = 0; k < METHODS; k++)
        for (int l2 = 0; l2 < 2; l2++) {
            struct tr_variance_options o = usual(methods[k], 40001, 1);
            make(&tr_loss_logistic, TR_F64, false, l2 ? 1e-3 : 0);
            compare(&o, 1e-11);
        }
}

UNIT_CASE(floats_follow_doubles)
{
    for (int k = 0; k < METHODS; k++) {
        struct tr_variance_options o = usual(methods[k], 400, 1);
        make(&tr_loss_logistic, TR_F32, k & 1, 0.05);
        compare(&o, 2e-5);
    }
}

/* ---- gradients ---- */

UNIT_CASE(gradients_agree_with_finite_differences)
{
    static const struct tr_loss *const all[] = {&tr_loss_logistic, &tr_loss_linear, &tr_loss_l2svm,
                                                &tr_loss_svm};
    for (int k = 0; k < 4; k++)
        for (int binary = 0; binary < 2; binary++) {
            make(all[k], TR_F64, binary, 0.05);
            double w[ALL], gradient[ALL], slope[ROWS] = {0}, loss = 1;
            for (size_t j = 0; j < ALL; j++) w[j] = 0.3 * sin(1 + (double)j), gradient[j] = 2;
            tr_variance_gradient(&problem, 3, ROWS - 4, w, &loss, slope, gradient);
            ck_assert_double_eq_tol(loss, 1 + total_loss(3, ROWS - 4, w), 1e-12);
            ck_assert(slope[2] == 0 && slope[ROWS - 1] == 0);
            for (size_t i = 3; i < ROWS - 1; i++) ck_assert_double_eq_tol(slope[i], slope_at(i, w), 1e-12);
            for (size_t j = 0; j < ALL; j++) {
                double at = w[j], h = 1e-6;
                w[j] = at + h;
                double above = total_loss(3, ROWS - 4, w);
                w[j] = at - h;
                double below = total_loss(3, ROWS - 4, w);
                w[j] = at;
                ck_assert_double_eq_tol(gradient[j] - 2, (above - below) / (2 * h), 1e-6);
            }
        }
}

/* Slopes are rounded to floats, and the gradient is computed from the rounded slopes: so at the snapshot itself steps see
 * only μ. */
UNIT_CASE(slopes_kept_and_gradient_agree)
{
    static struct memory m;
    for (int dtype = TR_F32; dtype <= TR_F64; dtype++) {
        make(&tr_loss_logistic, (enum tr_dtype)dtype, false, 0);
        prepare(&m);
        double gradient[ALL] = {0}, expected[ALL] = {0};
        tr_variance_gradient(&problem, 0, ROWS, m.snapshot, NULL, m.slope, gradient);
        for (size_t i = 0; i < ROWS; i++) add(i, get(m.slope, i), expected);
        for (size_t j = 0; j < ALL; j++) ck_assert_double_eq_tol(gradient[j], expected[j], 1e-13);
    }
}

UNIT_CASE(smoothness_bounds_the_curvature)
{
    make(&tr_loss_logistic, TR_F64, false, 0.05);
    double largest = 0, w[ALL] = {0}, other[ALL];
    for (size_t i = 0; i < ROWS; i++) {
        double x[ALL] = {0}, norm = 0;
        add(i, 1, x);
        for (size_t j = 0; j < ALL; j++) norm += x[j] * x[j];
        largest = fmax(largest, norm);
    }
    ck_assert_double_eq_tol(tr_variance_largest_norm(&problem, 0, ROWS), largest, 1e-9);
    for (int k = 0; k < 3; k++) {
        problem.loss = smooth[k];
        double L = tr_variance_smoothness(&problem, largest);
        for (size_t i = 0; i < ROWS; i++) {
            memcpy(other, w, sizeof w);
            add(i, 0.01, other);
            double moved = (margin(i, other) - margin(i, w)) / 0.01; /* |x_i|² */
            ck_assert_double_le(fabs(slope_at(i, other) - slope_at(i, w)),
                                (L - problem.l2) * 0.01 * (1 + 1e-9));
            ck_assert_double_le(moved, largest * (1 + 1e-9));
        }
    }
}

/* ---- settings ---- */

UNIT_CASE(what_cannot_be_is_refused)
{
    struct tr_variance *v;
    struct tr_variance_options o = usual(TR_METHOD_SVRG, 10, 1);
    make(&tr_loss_svm, TR_F64, false, 0.05);
    ck_fails(tr_variance_open(&problem, &o, &v), TR_ERR_CONFIG, "smooth");
    ck_assert_ptr_null(v);
    problem.loss = &tr_loss_logistic;
    o.rate = -1;
    ck_fails(tr_variance_open(&problem, &o, &v), TR_ERR_CONFIG, "positive");
    o.rate = NAN;
    ck_fails(tr_variance_open(&problem, &o, &v), TR_ERR_CONFIG, "positive");
    o.rate = 20;
    ck_fails(tr_variance_open(&problem, &o, &v), TR_ERR_CONFIG, "less than 20");
    o.rate = 1;
    o.steps = TR_VARIANCE_STEPS + 1ull;
    ck_fails(tr_variance_open(&problem, &o, &v), TR_ERR_CONFIG, "2^31");
}

UNIT_CASE(epochs_are_as_long_as_the_method_says)
{
    ck_assert_uint_eq(tr_variance_epoch_steps(TR_METHOD_SVRG, 1000, 2, 1, 7), 2000);
    ck_assert_uint_eq(tr_variance_epoch_steps(TR_METHOD_SVRG, 1001, 0.5, 10, 0), 51);
    ck_assert_uint_eq(tr_variance_epoch_steps(TR_METHOD_SVRGPP, 1000, 2, 1, 3), 16000);
    ck_assert_uint_eq(tr_variance_epoch_steps(TR_METHOD_SVRGPP, 1000, 2, 1, 3000), TR_VARIANCE_STEPS);
    ck_assert_uint_eq(tr_variance_epoch_steps(TR_METHOD_KATYUSHA, 3, 0.1, 10, 0), 1);
}

/* ---- races ---- */

UNIT_CASE(one_worker_computes_the_same_bits_under_any_control)
{
    static struct memory alone, raced;
    for (int form = 0; form < METHODS * 2 * 2; form++) {
        struct tr_variance_options o = usual(methods[form % METHODS], 500, form / METHODS % 2 ? 3 : 1);
        make(&tr_loss_logistic, form / METHODS / 2 ? TR_F32 : TR_F64, form & 1, 0.01);
        prepare(&alone);
        inner(&alone, &o, true, NULL);
        for (int kind = TR_UPDATE_LOCKED; kind <= TR_UPDATE_HOGWILD; kind++)
            for (unsigned shift = 0; shift < 6; shift += 2) {
                tr_updates race = {.mode = (enum tr_update_mode)kind, .lock = raced.lock, .shift = shift};
                prepare(&raced);
                inner(&raced, &o, true, &race);
                ck_assert_mem_eq(&raced, &alone, sizeof alone);
            }
    }
}

static struct memory *share(void)
{
    void *m = mmap(NULL, sizeof(struct memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(m, MAP_FAILED);
    return m;
}

enum { WORKERS = 3 };

/* Each takes steps on rows drawn from all. */
static void together(struct memory *m, struct tr_variance *v, bool slopes, uint64_t steps, int epoch,
                     const tr_updates *race)
{
    struct tr_variance_model model = model_of(m);
    pid_t child[WORKERS];
    memset(m->last, 0, sizeof m->last);
    memset(m->sum, 0, sizeof m->sum);
    m->step = 0;
    for (size_t k = 0; k < WORKERS; k++) {
        ck_assert_int_ge(child[k] = fork(), 0);
        if (child[k]) continue;
        struct tr_rng rng;
        tr_rng_seed(&rng, 3, k, (uint64_t)epoch);
        tr_variance_steps(v, 0, ROWS, slopes ? m->slope : NULL, steps, &rng, &model, race);
        _exit(0);
    }
    for (size_t k = 0; k < WORKERS; k++) {
        int status;
        ck_assert_int_eq(waitpid(child[k], &status, 0), child[k]);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    ck_assert_uint_eq(m->step, WORKERS * steps);
    tr_variance_settle(v, &model, 0, ALL, 0);
    tr_variance_snapshot(v, &model, 0, ALL, m->snapshot);
}

/* The slope is -y/2 as long as the weights are small, and the snapshot has none: the sum of all changes does not depend on their
 * order. */
UNIT_CASE(no_change_of_a_row_is_lost)
{
    enum { STEPS = 20000 };
    make(&tr_loss_huber, TR_F64, false, 0);
    problem.shape = 0.5;
    struct tr_variance_options o = {
        .method = TR_METHOD_SVRG, .rate = 1e-7, .steps = WORKERS * STEPS, .batch = 1};
    for (int kind = TR_UPDATE_LOCKED; kind <= TR_UPDATE_ATOMIC; kind++) {
        struct memory *m = share();
        tr_updates race = {.mode = (enum tr_update_mode)kind, .lock = m->lock, .shift = 3};
        struct tr_variance *v;
        double expected[ALL] = {0};
        ck_ok(tr_variance_open(&problem, &o, &v));
        together(m, v, true, STEPS, 0, &race);
        for (size_t k = 0; k < WORKERS; k++) {
            struct tr_rng rng;
            tr_rng_seed(&rng, 3, k, 0);
            for (int s = 0; s < STEPS; s++) {
                size_t i = (size_t)tr_rng_below(&rng, ROWS);
                add(i, o.rate / 2 * (double)label[i], expected);
            }
        }
        for (size_t j = 0; j < ALL; j++) ck_assert_double_eq_tol(m->w[j], expected[j], 1e-13);
        tr_variance_close(&v);
        munmap(m, sizeof *m);
    }
}

/* All values are 0, so that steps touch the coordinates of their rows without moving them: what remains is the dense part
 * of all the steps, once each. */
UNIT_CASE(no_missed_step_is_lost_or_taken_twice)
{
    enum { STEPS = 20000 };
    make(&tr_loss_logistic, TR_F64, false, 0);
    memset(value, 0, sizeof value);
    problem.bias = false;
    struct tr_variance_options o = {
        .method = TR_METHOD_SVRG, .rate = 1e-3, .steps = WORKERS * STEPS, .batch = 1};
    for (int kind = TR_UPDATE_LOCKED; kind <= TR_UPDATE_ATOMIC; kind++) {
        struct memory *m = share();
        tr_updates race = {.mode = (enum tr_update_mode)kind, .lock = m->lock, .shift = 3};
        struct tr_variance *v;
        for (size_t j = 0; j < ALL; j++) m->mu[j] = 1 + (double)j;
        for (size_t i = 0; i < ROWS; i++) m->slope[i] = 7;
        ck_ok(tr_variance_open(&problem, &o, &v));
        together(m, v, true, STEPS, 0, &race);
        for (size_t j = 0; j < ALL; j++)
            ck_assert_double_eq_tol(m->w[j] / (-o.rate * (double)o.steps * m->mu[j]), 1, 1e-10);
        tr_variance_close(&v);
        munmap(m, sizeof *m);
    }
}

static double objective(const struct memory *m, double *largest_gradient)
{
    double gradient[ALL] = {0}, sum = 0;
    tr_variance_gradient(&problem, 0, ROWS, m->snapshot, &sum, NULL, gradient);
    *largest_gradient = 0;
    for (size_t j = 0; j < ALL; j++) {
        double w = m->snapshot[j], l2 = j < KEYS ? problem.l2 : 0;
        sum += ROWS * l2 / 2 * w * w;
        *largest_gradient = fmax(*largest_gradient, fabs(gradient[j] / ROWS + l2 * w));
    }
    return sum / ROWS;
}

UNIT_CASE(workers_together_reach_the_optimum)
{
    for (int k = 0; k < 3; k++)
        for (int kind = TR_UPDATE_LOCKED; kind <= TR_UPDATE_HOGWILD; kind++) {
            make(&tr_loss_logistic, TR_F64, false, 0.05);
            struct memory *m = share();
            tr_updates race = {.mode = (enum tr_update_mode)kind, .lock = m->lock, .shift = 2};
            struct tr_variance *v;
            struct tr_variance_options o = {.method = methods[k], .steps = WORKERS * 200, .batch = 1};
            double L = tr_variance_smoothness(&problem, tr_variance_largest_norm(&problem, 0, ROWS)),
                   gradient, before, lowest = INFINITY;
            objective(m, &before);
            o.rate = tr_variance_rate(o.method, problem.loss, L) / 2;
            for (int epoch = 0; epoch < 40; epoch++) {
                full(m);
                ck_ok(tr_variance_open(&problem, &o, &v));
                together(m, v, true, 200, epoch, &race);
                tr_variance_close(&v);
                objective(m, &gradient);
                lowest = fmin(lowest, gradient);
            }
            /* concurrent steps overwrite each other, and a late one may undo many of an epoch: the best epoch counts */
            ck_assert_msg(kind == TR_UPDATE_HOGWILD ? lowest <= 1e-2 * before : gradient <= 1e-7,
                          "method %d, race %d: gradient %g, at first %g", k, kind, gradient, before);
            munmap(m, sizeof *m);
        }
}

/* ---- convergence ---- */

struct run {
    const struct tr_problem *problem;
    struct tr_variance_model model;
    _Atomic uint64_t step;
    double *w, *z, *snapshot, *mu, *slope, *gradient, f, passes;
    struct tr_rng rng;
};

static void open_run(const struct tr_problem *p, struct run *r)
{
    size_t n = p->keys + p->bias;
    *r = (struct run){.problem = p};
    ck_ok(TR_NEW(&r->w, n));
    ck_ok(TR_NEW(&r->z, n));
    ck_ok(TR_NEW(&r->snapshot, n));
    ck_ok(TR_NEW(&r->mu, n));
    ck_ok(TR_NEW(&r->slope, p->rows.n));
    ck_ok(TR_NEW(&r->gradient, n));
    r->model = (struct tr_variance_model){
        .n = n, .w = r->w, .z = r->z, .snapshot = r->snapshot, .mu = r->mu, .step = &r->step};
    ck_ok(TR_NEW(&r->model.sum, n));
    ck_ok(TR_NEW(&r->model.last, n));
    tr_rng_seed(&r->rng, 1, 2, 3);
}

static void close_run(struct run *r)
{
    TR_FREE_ALL(r->w, r->z, r->snapshot, r->mu, r->slope, r->gradient, r->model.sum, r->model.last);
}

static void full_stage(struct run *r)
{
    const struct tr_problem *p = r->problem;
    memset(r->gradient, 0, r->model.n * sizeof *r->gradient);
    r->f = 0;
    tr_variance_gradient(p, 0, p->rows.n, r->snapshot, &r->f, r->slope, r->gradient);
    r->f /= p->n;
    for (size_t j = 0; j < r->model.n; j++) {
        r->mu[j] = r->gradient[j] / p->n;
        r->f += j < p->keys ? p->l2 / 2 * r->snapshot[j] * r->snapshot[j] : 0;
    }
}

static void epoch(struct run *r, int method, uint64_t number)
{
    const struct tr_problem *p = r->problem;
    struct tr_variance *v;
    double L = tr_variance_smoothness(p, tr_variance_largest_norm(p, 0, p->rows.n));
    struct tr_variance_options o = {.method = method, .smoothness = L, .epoch = number, .batch = 1};
    o.steps = tr_variance_epoch_steps(method, p->n, 2, 1, number);
    ck_ok(tr_variance_open(p, &o, &v));
    memset(r->model.last, 0, r->model.n * sizeof *r->model.last);
    memset(r->model.sum, 0, r->model.n * sizeof *r->model.sum);
    r->step = 0;
    tr_variance_steps(v, 0, p->rows.n, r->slope, o.steps, &r->rng, &r->model, NULL);
    tr_variance_settle(v, &r->model, 0, r->model.n, 0);
    tr_variance_snapshot(v, &r->model, 0, r->model.n, r->snapshot);
    tr_variance_close(&v);
    r->passes += (double)o.steps / p->n + 1;
}

/* The lowest F at a snapshot within `passes` passes; steps and full gradients count. */
static double lowest(const struct tr_problem *p, int method, double passes)
{
    struct run r;
    double best = INFINITY;
    open_run(p, &r);
    for (uint64_t e = 0; r.passes < passes; e++) {
        full_stage(&r);
        best = fmin(best, r.f);
        epoch(&r, method, e);
    }
    full_stage(&r);
    best = fmin(best, r.f);
    close_run(&r);
    return best;
}

/* passes: enough for each of SVRG, SVRG++ and Katyusha to come within 1e-8 of the optimum. */
static void converge(const struct tr_problem *p, const double *passes)
{
    double best = lowest(p, TR_METHOD_KATYUSHA, 2.5 * passes[2]);
    for (int k = 0; k < 3; k++) ck_assert_double_le(lowest(p, methods[k], passes[k]), best + 1e-8);
}

UNIT_CASE(variance_reduction_converges)
{
    for (int k = 0; k < 3; k++) {
        make(smooth[k], TR_F64, false, 0.1);
        for (uint64_t z = 0; z < begin[ROWS]; z++) value[z] /= 2;
        converge(&problem, (double[]){250, 260, 120});
    }
}

UNIT_CASE(a9a_is_solved_to_eight_digits)
{
    const char *data = getenv("TRIREME_DATA");
    char *path;
    struct tr_files files;
    struct tr_matrix csr;
    struct tr_read_report report;
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1};
    ck_ok(tr_format(&path, "%s/a9a/a9a.gz", data ? data : "datasets"));
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "skipped: no %s\n", path);
        free(path);
        return;
    }
    ck_ok(tr_files_open((char *[]){path}, 1, &files));
    ck_ok(tr_read_matrix(&files, 0, 1, &options, &csr, &report));
    struct tr_problem p = {.outputs = 1,
                           .loss = &tr_loss_logistic,
                           .dtype = TR_F64,
                           .rows = {csr.rows, csr.begin, csr.column, csr.value, csr.label},
                           .target = csr.label,
                           .bias = true,
                           .keys = 124,
                           .l2 = 1 / (double)csr.rows,
                           .n = (double)csr.rows};
    converge(&p, (double[]){115, 130, 50});
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    tr_files_close(&files);
    free(path);
}
