/* Stochastic steps with variance reduction, in one process or some on one machine, without MPI:
 *
 *   bench_variance curves FILE MODEL PASSES [INNER [L2 [FACTOR]]]
 *       log10 of F - F* by passes over the rows, of SVRG, SVRG++ and Katyusha in f64; F* is the
 *       lowest that any of them, or SVRG with many more passes, finds. INNER: passes of steps in an epoch. L2: 0 for
 *       1/n. FACTOR of the usual rates.
 *   bench_variance speed FILE MODEL
 *       nanoseconds per non-zero of the stages, against those of a pass of plain gradient steps
 *   bench_variance race FILE MODEL WORKERS EPOCHS SHIFT
 *       SVRG by processes on one model under each kind of race control: seconds of steps, and log10 of F - F*
 *
 * FILE is LIBSVM text, plain or gzip; MODEL is logistic, linear or l2svm.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/reader.h"
#include "model/loss.h"
#include "model/linear/sgd/steps.h"

/* ---- the problem ---- */

static int read_problem(const char *path, const struct tr_loss *model, struct tr_problem *p)
{
    struct tr_files files;
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 0};
    struct tr_read_report report;
    struct tr_matrix csr = {0};
    char *name = (char *)(uintptr_t)path;
    TR_TRY(tr_files_open(&name, 1, &files));
    TR_TRY(tr_read_matrix(&files, 0, 1, &options, &csr, &report));
    tr_files_close(&files);
    uint32_t most = 0;
    for (uint64_t k = 0; k < csr.begin[csr.rows]; k++) most = csr.column[k] > most ? csr.column[k] : most;
    *p = (struct tr_problem){
        .outputs = 1,
        .loss = model,
        .dtype = TR_F64,
        .rows = {.n = csr.rows, .begin = csr.begin, .column = csr.column, .value = csr.value},
        .target = csr.label,
        .bias = true,
        .keys = (size_t)most + 1,
        .n = (double)csr.rows};
    p->l2 = 1 / p->n;
    for (size_t i = 0; model != &tr_loss_linear && i < csr.rows; i++)
        csr.label[i] = csr.label[i] > 0 ? 1 : -1;
    return TR_OK;
}

/* ---- a run in one process ---- */

struct run {
    const struct tr_problem *problem;
    struct tr_variance_model model;
    _Atomic uint64_t step;
    void *snapshot, *mu, *slope;
    double *gradient;
    struct tr_rng rng;
    uint64_t epoch;
    double passes;
};

static size_t bytes_of(const struct tr_problem *p)
{
    return p->dtype == TR_F32 ? sizeof(float) : sizeof(double);
}

static int open_run(const struct tr_problem *p, struct run *r)
{
    size_t n = p->keys + p->bias, bytes = n * bytes_of(p);
    *r = (struct run){.problem = p, .model = {.n = n}};
    TR_TRY(TR_NEW((char **)&r->snapshot, bytes));
    TR_TRY(TR_NEW((char **)&r->mu, bytes));
    TR_TRY(TR_NEW((char **)&r->model.w, bytes));
    TR_TRY(TR_NEW((char **)&r->model.z, bytes));
    TR_TRY(TR_NEW(&r->model.sum, n));
    TR_TRY(TR_NEW(&r->model.last, n));
    TR_TRY(TR_NEW((char **)&r->slope, p->rows.n * bytes_of(p)));
    TR_TRY(TR_NEW(&r->gradient, n));
    r->model.snapshot = r->snapshot;
    r->model.mu = r->mu;
    r->model.step = &r->step;
    tr_rng_seed(&r->rng, 1, 0, 0);
    return TR_OK;
}

static void close_run(struct run *r)
{
    free(r->snapshot);
    free(r->mu);
    free(r->model.w);
    free(r->model.z);
    free(r->model.sum);
    free(r->model.last);
    free(r->slope);
    free(r->gradient);
}

static double element(const struct tr_problem *p, const void *w, size_t j)
{
    return p->dtype == TR_F32 ? (double)((const float *)w)[j] : ((const double *)w)[j];
}

/* F at the snapshot, and its μ. */
static double full_stage(struct run *r)
{
    const struct tr_problem *p = r->problem;
    double loss = 0, squares = 0;
    memset(r->gradient, 0, r->model.n * sizeof *r->gradient);
    tr_variance_gradient(p, 0, p->rows.n, r->snapshot, &loss, r->slope, r->gradient);
    for (size_t j = 0; j < r->model.n; j++) {
        if (p->dtype == TR_F32) ((float *)r->mu)[j] = (float)(r->gradient[j] / p->n);
        else ((double *)r->mu)[j] = r->gradient[j] / p->n;
        double w = element(p, r->snapshot, j);
        if (j < p->keys) squares += w * w;
    }
    return loss / p->n + p->l2 / 2 * squares;
}

static void start_epoch(struct run *r)
{
    memset(r->model.last, 0, r->model.n * sizeof *r->model.last);
    memset(r->model.sum, 0, r->model.n * sizeof *r->model.sum);
    *r->model.step = 0;
}

static int inner_stage(struct run *r, struct tr_variance_options *o, double inner)
{
    const struct tr_problem *p = r->problem;
    struct tr_variance *v;
    o->epoch = r->epoch++;
    o->steps = tr_variance_epoch_steps(o->method, p->n, inner, o->batch, o->epoch);
    TR_TRY(tr_variance_open(p, o, &v));
    start_epoch(r);
    tr_variance_steps(v, 0, p->rows.n, r->slope, o->steps, &r->rng, &r->model, NULL);
    tr_variance_settle(v, &r->model, 0, r->model.n, 0);
    tr_variance_snapshot(v, &r->model, 0, r->model.n, r->snapshot);
    tr_variance_close(&v);
    r->passes += (double)o->steps * (double)o->batch / p->n;
    return TR_OK;
}

/* ---- curves ---- */

enum { METHODS = 3 };
static const int methods[METHODS] = {TR_METHOD_SVRG, TR_METHOD_SVRGPP, TR_METHOD_KATYUSHA};

/* F after every epoch: at most `most` points of passes and F. */
static int follow(const struct tr_problem *p, int method, double L, double factor, double inner,
                  double passes, double *point, size_t most, size_t *n)
{
    struct run r;
    TR_TRY(open_run(p, &r));
    double rate = tr_variance_rate(method, p->loss, L) * factor;
    struct tr_variance_options o = {.method = method, .rate = rate, .batch = 1};
    for (*n = 0; *n < most && r.passes < passes;) {
        double f = full_stage(&r);
        point[2 * *n] = r.passes;
        point[2 * (*n)++ + 1] = f;
        if (!isfinite(f) || f > 1e9) break;
        r.passes += 1;
        TR_TRY(inner_stage(&r, &o, inner));
    }
    close_run(&r);
    return TR_OK;
}

static int curves(const struct tr_problem *p, double passes, double inner, double factor)
{
    enum { MOST = 1000 };
    static double point[METHODS + 1][2 * MOST];
    size_t n[METHODS + 1], rows = 25;
    double best = INFINITY, L = tr_variance_smoothness(p, tr_variance_largest_norm(p, 0, p->rows.n));
    for (int k = 0; k < METHODS; k++)
        TR_TRY(follow(p, methods[k], L, factor, inner, passes, point[k], MOST, &n[k]));
    TR_TRY(follow(p, TR_METHOD_SVRG, L, 1, 2, 10 * passes, point[METHODS], MOST, &n[METHODS]));
    for (int k = 0; k <= METHODS; k++)
        for (size_t i = 0; i < n[k]; i++) best = fmin(best, point[k][2 * i + 1]);
    printf("%zu rows, %zu keys, L %g, l2 %g, F* %.15g\n%7s%9s%9s%9s\n", p->rows.n, p->keys, L, p->l2, best,
           "passes", "svrg", "svrg++", "katyusha");
    for (size_t row = 0; row <= rows; row++) {
        double at = passes * (double)row / (double)rows;
        printf("%7.1f", at);
        for (int k = 0; k < METHODS; k++) {
            size_t i = 0;
            while (i + 1 < n[k] && point[k][2 * (i + 1)] <= at) i++;
            printf("%9.2f", log10(fmax(point[k][2 * i + 1] - best, 1e-17)));
        }
        printf("\n");
    }
    return TR_OK;
}

/* ---- speed ---- */

static size_t lock_words(size_t n, unsigned shift)
{
    return (((n - 1) >> shift) + 1) * TR_LOCK_STRIDE;
}

static double time_plain(const struct tr_problem *p, struct run *r)
{
    double begin = tr_now();
    for (size_t i = 0; i < p->rows.n; i++) {
        size_t row = (size_t)tr_rng_below(&r->rng, p->rows.n);
        double slope;
        tr_margins(p, row, 1, r->model.w, &slope);
        slope = p->loss->slope(slope, (double)p->target[row], 0);
        tr_add_rows(p, row, 1, &slope, 1e-3, NULL, NULL, r->model.w);
    }
    return tr_now() - begin;
}

static int time_steps(struct run *r, int method, const tr_updates *race, double L, double *seconds)
{
    const struct tr_problem *p = r->problem;
    struct tr_variance *v;
    struct tr_variance_options o = {
        .method = method, .smoothness = L, .rate = 1e-3 / L, .steps = p->rows.n, .batch = 1};
    TR_TRY(tr_variance_open(p, &o, &v));
    start_epoch(r);
    double begin = tr_now();
    tr_variance_steps(v, 0, p->rows.n, r->slope, o.steps, &r->rng, &r->model, race);
    *seconds = tr_now() - begin;
    tr_variance_close(&v);
    return TR_OK;
}

static int speed(struct tr_problem *p)
{
    enum { REPEATS = 15, COLUMNS = 6, SHIFT = 10 };
    static const char *const names[COLUMNS] = {"plain sgd", "full", "svrg", "svrg++", "katyusha", "full+F"};
    static const char *const races[] = {"chunk", "atomic", "none"};
    double L = tr_variance_smoothness(p, tr_variance_largest_norm(p, 0, p->rows.n));
    double per = 1e9 / (double)p->rows.begin[p->rows.n];
    printf("%.1f non-zeros a row; nanoseconds per non-zero\n%12s", (double)p->rows.begin[p->rows.n] / p->n,
           "");
    for (int c = 0; c < COLUMNS; c++) printf("%10s", names[c]);
    printf("\n");
    for (int dtype = TR_F32; dtype <= TR_F64; dtype++)
        for (int kind = TR_UPDATE_LOCKED; kind <= TR_UPDATE_HOGWILD; kind++) {
            struct run r;
            tr_updates race = {.mode = (enum tr_update_mode)kind, .shift = SHIFT};
            double best[COLUMNS], t, loss;
            p->dtype = (enum tr_dtype)dtype;
            TR_TRY(open_run(p, &r));
            TR_TRY(TR_NEW(&race.lock, lock_words(r.model.n, SHIFT)));
            for (int c = 0; c < COLUMNS; c++) best[c] = INFINITY;
            for (int repeat = 0; repeat < REPEATS; repeat++) {
                best[0] = fmin(best[0], time_plain(p, &r));
                t = tr_now();
                tr_variance_gradient(p, 0, p->rows.n, r.snapshot, NULL, r.slope, r.gradient);
                best[1] = fmin(best[1], tr_now() - t);
                t = tr_now();
                tr_variance_gradient(p, 0, p->rows.n, r.snapshot, &loss, r.slope, r.gradient);
                best[5] = fmin(best[5], tr_now() - t);
                for (int k = 0; k < METHODS; k++) {
                    TR_TRY(time_steps(&r, methods[k], &race, L, &t));
                    best[2 + k] = fmin(best[2 + k], t);
                }
            }
            printf("%4s %7s", dtype == TR_F32 ? "f32" : "f64", races[kind]);
            for (int c = 0; c < COLUMNS; c++) printf("%10.2f", best[c] * per);
            printf("\n");
            free(race.lock);
            close_run(&r);
        }
    return TR_OK;
}

/* ---- several processes ---- */

static void *share(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int race(const struct tr_problem *p, int workers, int epochs, unsigned shift)
{
    static const char *const races[] = {"chunk", "atomic", "none"};
    double L = tr_variance_smoothness(p, tr_variance_largest_norm(p, 0, p->rows.n)), best = INFINITY;
    double f[3][100] = {{0}}, seconds[3] = {0};
    for (int kind = -1; kind < 3; kind++) {
        struct run r;
        tr_updates control = {.mode = (enum tr_update_mode)kind, .shift = shift};
        TR_TRY(open_run(p, &r));
        free(r.model.w);
        free(r.model.last);
        r.model.w = share(r.model.n * bytes_of(p));
        r.model.last = share(r.model.n * sizeof *r.model.last);
        r.model.step = share(sizeof *r.model.step);
        control.lock = share(lock_words(r.model.n, shift) * sizeof(uint32_t));
        struct tr_variance_options o = {.method = TR_METHOD_SVRG, .smoothness = L, .batch = 1};
        o.steps = tr_variance_epoch_steps(o.method, p->n, 2, 1, 0);
        int mine = kind < 0 ? 1 : workers;
        for (int e = 0; e < (kind < 0 ? 3 * epochs : epochs); e++) {
            double now = full_stage(&r);
            best = fmin(best, now);
            if (kind >= 0) f[kind][e] = now;
            struct tr_variance *v;
            TR_TRY(tr_variance_open(p, &o, &v));
            start_epoch(&r);
            double begin = tr_now();
            for (int w = 0; w < mine; w++) {
                if (fork()) continue;
                tr_rng_seed(&r.rng, 1, (uint64_t)w, (uint64_t)e);
                tr_variance_steps(v, 0, p->rows.n, r.slope, o.steps / (uint64_t)mine, &r.rng, &r.model,
                                  kind < 0 ? NULL : &control);
                _exit(0);
            }
            for (int w = 0; w < mine; w++) wait(NULL);
            if (kind >= 0) seconds[kind] += tr_now() - begin;
            tr_variance_settle(v, &r.model, 0, r.model.n, 0);
            tr_variance_snapshot(v, &r.model, 0, r.model.n, r.snapshot);
            tr_variance_close(&v);
        }
    }
    printf("%d workers, chunks of %u; seconds an epoch, log10 F - F* by epoch\n", workers, 1u << shift);
    for (int kind = 0; kind < 3; kind++) {
        printf("%7s %8.4f", races[kind], seconds[kind] / epochs);
        for (int e = 0; e < epochs; e++) printf("%7.2f", log10(fmax(f[kind][e] - best, 1e-17)));
        printf("\n");
    }
    return TR_OK;
}

int main(int argc, char **argv)
{
    struct tr_problem p;
    int status = TR_ERR_USAGE;
    if (argc < 4 || (!strcmp(argv[1], "race") && argc < 7)) {
        fprintf(stderr, "usage: %s curves|speed|race FILE logistic|linear|l2svm ...\n", argv[0]);
        return status;
    }
#define NUMBER(i, other) (argc > (i) ? atof(argv[i]) : (other))
    const struct tr_loss *model = !strcmp(argv[3], "linear")  ? &tr_loss_linear
                                  : !strcmp(argv[3], "l2svm") ? &tr_loss_l2svm
                                                              : &tr_loss_logistic;
    status = read_problem(argv[2], model, &p);
    if (status == TR_OK && NUMBER(6, 0) > 0 && !strcmp(argv[1], "curves")) p.l2 = NUMBER(6, 0);
    if (status != TR_OK) fprintf(stderr, "%s\n", tr_error_text());
    else if (!strcmp(argv[1], "curves")) status = curves(&p, NUMBER(4, 60), NUMBER(5, 2), NUMBER(7, 1));
    else if (!strcmp(argv[1], "speed")) status = speed(&p);
    else status = race(&p, atoi(argv[4]), atoi(argv[5]) < 100 ? atoi(argv[5]) : 100, (unsigned)atoi(argv[6]));
    return status;
}
