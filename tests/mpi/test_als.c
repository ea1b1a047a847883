/* Alternating least squares on tables: sweeps of all workers against sweeps of one loop in f64, in every layout. */
#include "mpi_unit.h"

#include "model/mf/mf.h"

enum { USERS = 61, ITEMS = 37, RANK = 5, WIDTH = RANK + 1 };
enum kind { STARS, ONES, REALS }; /* of ratings */

/* A rating, or 0: every third pair; user 7 has rated nothing, user 11 all, item 3 only by user 11. */
static double rating(uint32_t user, uint32_t item, enum kind kind)
{
    uint64_t h = tr_mix((uint64_t)user * 1000 + item);
    bool rated = user == 11 || (user != 7 && item != 3 && h % 3 == 0);
    if (!rated) return 0;
    if (kind == ONES) return 1;
    return kind == STARS ? (double)(1 + (h >> 20) % 5) : (double)(1000 + (h >> 20) % 4000) / 1000;
}

static const char *write_ratings(enum kind kind)
{
    const char *path = mpi_path("ratings");
    FILE *file = mpi_test.rank == 0 ? fopen(path, "w") : NULL;
    for (uint32_t u = 0; file && u < USERS; u++)
        for (uint32_t i = 0; i < ITEMS; i++)
            if (rating(u, i, kind) > 0) fprintf(file, "%u\t%u\t%g\n", u + 100, 7 * i, rating(u, i, kind));
    if (file) fclose(file);
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
}

/* Users are numbered by those who have rated something. */
static uint32_t user_of(uint64_t number)
{
    return (uint32_t)number + (number >= 7);
}

struct reference {
    const struct tr_mf *m;
    enum kind kind;
    double row[2][USERS][WIDTH]; /* by side and number */
};

static double rated(const struct reference *r, int side, uint64_t own, uint64_t other)
{
    uint64_t user = side == TR_MF_USER ? own : other, item = side == TR_MF_USER ? other : own;
    return rating(user_of(user), (uint32_t)item, r->kind);
}

/* One row by Gauss and Jordan on its normal equations, or, non-negative, by many rounds over its coordinates. */
static void solve_row(struct reference *r, int side, uint64_t own)
{
    const struct tr_mf_options *job = r->m->o;
    double a[WIDTH][WIDTH + 1] = {{0}}, *x = r->row[side][own];
    size_t n = r->m->width, others = side == TR_MF_USER ? r->m->items : r->m->users, ratings = 0;
    for (uint64_t o = 0; o < others; o++) {
        double v[WIDTH], t = rated(r, side, own, o), weight = t > 0, wanted = 0;
        memcpy(v, r->row[!side][o], sizeof v);
        if (t > 0) wanted = t - r->m->mean - (r->m->bias ? v[RANK] : 0);
        if (r->m->bias) v[RANK] = 1;
        if (job->implicit) {
            weight = 1 + job->confidence * t;
            wanted = t > 0;
        }
        ratings += t > 0;
        for (size_t i = 0; i < n; i++) {
            a[i][n] += weight * wanted * v[i];
            for (size_t j = 0; j < n; j++) a[i][j] += weight * v[i] * v[j];
        }
    }
    double ridge = job->l2_weighted ? r->m->l2 * (double)ratings : r->m->l2;
    for (size_t i = 0; i < n; i++) a[i][i] += i < RANK ? ridge : ridge / r->m->spread;
    if (job->nonnegative) {
        for (int round = 0; round < 5000; round++)
            for (size_t i = 0; i < n; i++) {
                double slope = -a[i][n];
                for (size_t j = 0; j < n; j++) slope += a[i][j] * x[j];
                x[i] -= slope / a[i][i];
                if (i < RANK) x[i] = fmax(x[i], 0);
            }
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < n; l++) {
            double by = a[l][i] / a[i][i];
            for (size_t j = i; l != i && j <= n; j++) a[l][j] -= by * a[i][j];
        }
    for (size_t i = 0; i < n; i++) x[i] = a[i][n] / a[i][i];
}

/* The loss over all ratings (implicit: over all pairs). */
static double loss_of(const struct reference *r)
{
    const struct tr_mf_options *job = r->m->o;
    double loss = 0;
    for (uint64_t u = 0; u < r->m->users; u++)
        for (uint64_t i = 0; i < r->m->items; i++) {
            const double *p = r->row[TR_MF_USER][u], *q = r->row[TR_MF_ITEM][i];
            double t = rated(r, TR_MF_USER, u, i), guess = r->m->mean + (r->m->bias ? p[RANK] + q[RANK] : 0);
            for (int k = 0; k < RANK; k++) guess += p[k] * q[k];
            if (job->implicit) loss += (1 + job->confidence * t) * ((t > 0) - guess) * ((t > 0) - guess);
            else if (t > 0) loss += (t - guess) * (t - guess);
        }
    return loss;
}

static void sweep(struct reference *r)
{
    for (uint64_t u = 0; u < r->m->users; u++) solve_row(r, TR_MF_USER, u);
    for (uint64_t i = 0; i < r->m->items; i++) solve_row(r, TR_MF_ITEM, i);
}

static void first_rows(struct reference *r, const struct tr_mf *m, enum kind kind)
{
    *r = (struct reference){.m = m, .kind = kind};
    for (uint64_t i = 0; i < m->items; i++) {
        float row[WIDTH];
        tr_mf_first_row(m, TR_MF_ITEM, i, row);
        for (size_t k = 0; k < m->width; k++) r->row[TR_MF_ITEM][i][k] = (double)row[k];
    }
}

/* What a worker's rows have become. */
static void compare(const struct reference *r, const struct tr_als_side *side, double tolerance)
{
    double largest = 0;
    for (int u = 0; u < USERS; u++)
        for (int k = 0; k < WIDTH; k++) largest = fmax(largest, fabs(r->row[side->which][u][k]));
    for (size_t i = 0; i < side->n; i++)
        for (size_t k = 0; k < r->m->width; k++) {
            double value = (double)((float *)side->view->value)[i * r->m->width + k];
            double wanted = r->row[side->which][side->number[i]][k];
            mpi_check(fabs(value - wanted) <= tolerance * largest, "%s %lu: element %zu is %g, not %g",
                      side->which == TR_MF_USER ? "user" : "item", side->number[i], k, value, wanted);
        }
}

/* Objectives as the progress shows them. */
struct watch {
    struct reference reference;
    double tolerance, last;
};

static int watch(void *who, const tr_stage *stage, const struct tr_progress_row *row)
{
    struct watch *w = who;
    mpi_check(row->evaluation.objective <= w->last * (1 + 1e-6),
              "the objective rises from %g to %g at clock %ld", w->last, row->evaluation.objective,
              row->clock);
    w->last = row->evaluation.objective;
    return TR_OK;
}

/* Trains as the settings say, and compares with the reference after the last sweep. */
static void try(const char *settings, const struct tr_als_limits *limits, enum kind kind, double tolerance)
{
    enum { SWEEPS = 2 };
    const char *path = write_ratings(kind);
    static struct watch w;
    struct tr_mf *m = NULL;
    tr_context *tr = mpi_context(mpi_text(
        "model.bias=yes report.progress=no %s model.type=mf solve.method=als data.train=%s data.test=%s "
        "model.rank=%d solve.epochs=%d",
        settings, path, path, RANK, SWEEPS));
    const tr_job *job = tr_context_job(tr);
    mpi_ok(TR_NEW(&m, 1));
    mpi_ok(tr_mf_class.check(job, job->options));
    mpi_ok(tr_mf_class.open(tr, job->options, m));
    if (mpi_test.failed) return;
    first_rows(&w.reference, m, kind);
    w.tolerance = tolerance;
    w.last = INFINITY;
    tr_observers(tr)->who = &w;
    tr_observers(tr)->progress = watch;
    mpi_ok(tr_mf_als_train(m, limits));
    for (int s = 0; s < SWEEPS; s++) sweep(&w.reference);
    if (tr_is(tr, TR_SLAVE))
        for (int s = 0; s < 2; s++) compare(&w.reference, &m->als->side[s], tolerance);
    if (mpi_test.rank == 0) {
        double ratings = (double)m->train->total_nonzeros, rmse = sqrt(loss_of(&w.reference) / ratings);
        mpi_check(fabs(m->last.objective - rmse) < 10 * tolerance * rmse, "training error %g, not %g",
                  m->last.objective, rmse);
        if (!m->implicit)
            mpi_check(fabs(m->last.metric[0] - rmse) < 10 * tolerance * rmse, "test error %g, not %g",
                      m->last.metric[0], rmse);
    }
    tr_mf_class.close(m);
    free(m);
    mpi_ok(tr_close(tr));
}

MPI_CASE(every_layout_solves_the_same_equations)
{
    for (int i = 0; mpi_layout(i); i++) try(mpi_layout(i), NULL, STARS, 1e-3);
}

MPI_CASE(every_kind_of_equations)
{
    try("model.bias=no", NULL, STARS, 1e-3);
    try("model.bias=yes", NULL, REALS, 1e-3);
    try("model.l2_weighted=no model.l2=0.5", NULL, STARS, 1e-3);
    try("model.nonnegative=yes model.l2=0.1", NULL, STARS, 3e-3);
    try("model.implicit=yes model.confidence=2 model.l2_weighted=no model.l2=0.5", NULL, STARS, 1e-3);
    try("model.implicit=yes model.confidence=40 model.l2=0.1", NULL, ONES, 1e-3);
    try("model.implicit=yes model.nonnegative=yes model.confidence=2", NULL, STARS, 3e-3);
}

/* Arenas of a few rows: several batches, and little or no memory for equations that are started while rows arrive. */
MPI_CASE(little_memory)
{
    for (size_t rows = 1; rows <= 67; rows += 22)
        for (size_t begun = 0; begun < 3; begun++) {
            struct tr_als_limits limits = {
                .arena_bytes = rows * 64, .sums_bytes = begun * 8192, .quantum = begun == 2 ? 1 : 5e-6};
            try(mpi_test.size > 1 ? "ranks.node_size=1 table.row_bytes=64" : "table.row_bytes=64", &limits,
                false, 1e-3);
        }
}

/* What is published: test error of a good model 0.92 to 0.94, of means and biases alone 0.96. */
MPI_CASE(movielens)
{
    const char *folder = getenv("TRIREME_DATA");
    struct tr_mf *m = NULL;
    const char *settings = mpi_text(
        "data.folders=%s data.train=ml-100k/u1.base.gz data.test=ml-100k/u1.test.gz model.type=mf "
        "solve.method=als model.rank=16 model.bias=yes model.l2=0.12 solve.epochs=8 report.progress=no",
        folder ? folder : "");
    if (!folder || !*folder) return;
    tr_context *tr = mpi_context(settings);
    mpi_ok(TR_NEW(&m, 1));
    mpi_ok(tr_mf_class.open(tr, tr_context_job(tr)->options, m));
    if (mpi_test.failed) return;
    mpi_ok(tr_mf_class.train(m));
    mpi_check(mpi_test.rank > 0 || m->last.metric[0] < 0.945, "held-out RMSE %.4f", m->last.metric[0]);
    mpi_check(mpi_test.rank > 0 || m->last.objective < m->last.metric[0], "train RMSE %.4f",
              m->last.objective);
    tr_mf_class.close(m);
    free(m);
    mpi_ok(tr_close(tr));
}
