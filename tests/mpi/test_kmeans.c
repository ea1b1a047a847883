/* K-means on any number of ranks, in any layout: what a serial loop comes to, label by label. */
#include "mpi_unit.h"

#include "model/kmeans/kmeans.h"

enum { ROUNDS = 64 };

/* Rows that all ranks make alike, and rank 0 writes into a file. */
struct problem {
    size_t n, k, columns;
    float *x;
    const char *path;
};

static void write_rows(const struct problem *p, bool sparse)
{
    FILE *f = fopen(p->path, "w");
    for (size_t i = 0; f && i < p->n; i++) {
        if (sparse) fputs("0", f);
        for (size_t c = 0; c < p->columns; c++) {
            double v = (double)p->x[i * p->columns + c];
            if (!sparse) fprintf(f, "%s%.9g", c ? "," : "", v);
            else if (v != 0 || c + 1 == p->columns) fprintf(f, " %zu:%.9g", c + 1, v);
        }
        fputc('\n', f);
    }
    mpi_check(f && fclose(f) == 0, "%s cannot be written", p->path);
}

/* Around `hills` centres; tails: numbers have their third power, so that some rows are far from all others. */
static void make_rows(struct problem *p, size_t n, size_t k, size_t columns, size_t hills, double density,
                      bool tails, uint64_t seed)
{
    struct tr_rng rng, hill;
    *p = (struct problem){.n = n, .k = k, .columns = columns};
    mpi_ok(TR_NEW(&p->x, n * columns));
    tr_rng_seed(&rng, seed, n, columns);
    for (size_t i = 0; i < n; i++) {
        tr_rng_seed(&hill, seed, tr_rng_below(&rng, hills), 1);
        for (size_t c = 0; c < columns; c++) {
            double v = tr_rng_normal(&rng), centre = 2 * tr_rng_normal(&hill);
            bool is = tr_rng_uniform(&rng) < density;
            if (is) p->x[i * columns + c] = (float)(tails ? v * v * v : v + centre);
        }
    }
    p->path = mpi_path("rows");
    if (mpi_test.rank == 0) write_rows(p, density < 1);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void drop_rows(struct problem *p)
{
    MPI_Barrier(MPI_COMM_WORLD);
    free(p->x);
}

/* ---- the serial reference ---- */

struct reference {
    float *centre;
    uint32_t *label;
    double *distance; /* squared */
    double inertia;
    size_t seeded; /* rows that empty centres were given */
};

static double distance(const float *x, const float *c, size_t columns)
{
    double sum = 0;
    for (size_t q = 0; q < columns; q++) sum += ((double)x[q] - (double)c[q]) * ((double)x[q] - (double)c[q]);
    return sum;
}

static uint32_t nearest(const struct problem *p, const float *centre, const float *x, double *least)
{
    uint32_t best = 0;
    *least = INFINITY;
    for (size_t j = 0; j < p->k; j++) {
        double d = distance(x, centre + j * p->columns, p->columns);
        if (d < *least) {
            *least = d;
            best = (uint32_t)j;
        }
    }
    return best;
}

static void label_all(const struct problem *p, struct reference *r)
{
    r->inertia = 0;
    for (size_t i = 0; i < p->n; i++) {
        r->label[i] = nearest(p, r->centre, p->x + i * p->columns, &r->distance[i]);
        r->inertia += r->distance[i];
    }
}

/* Centres that had no rows get the farthest ones, the lowest centre first. */
static void seed_empty(const struct problem *p, struct reference *r, const double *count)
{
    for (size_t j = 0; j < p->k; j++) {
        size_t far = 0;
        if (count[j] > 0) continue;
        for (size_t i = 1; i < p->n; i++)
            if (r->distance[i] > r->distance[far]) far = i;
        r->label[far] = (uint32_t)j;
        r->distance[far] = -1;
        r->seeded++;
    }
}

static void move_centres(const struct problem *p, struct reference *r, double *count)
{
    double *sum;
    mpi_ok(TR_NEW(&sum, p->k * p->columns));
    memset(count, 0, p->k * sizeof *count);
    for (size_t i = 0; i < p->n; i++) {
        count[r->label[i]]++;
        for (size_t q = 0; q < p->columns; q++)
            sum[r->label[i] * p->columns + q] += (double)p->x[i * p->columns + q];
    }
    for (size_t j = 0; j < p->k; j++)
        for (size_t q = 0; q < p->columns && count[j] > 0; q++)
            r->centre[j * p->columns + q] = (float)(sum[j * p->columns + q] / count[j]);
    free(sum);
}

/* Starts with the first rows, which are distinct. */
static void refer(const struct problem *p, int clocks, struct reference *r)
{
    double *count;
    *r = (struct reference){0};
    mpi_ok(TR_NEW(&r->centre, p->k * p->columns));
    mpi_ok(TR_NEW(&r->label, p->n));
    mpi_ok(TR_NEW(&r->distance, p->n));
    mpi_ok(TR_NEW(&count, p->k));
    memcpy(r->centre, p->x, p->k * p->columns * sizeof *r->centre);
    for (int clock = 0; clock < clocks; clock++) {
        label_all(p, r);
        if (clock > 0) seed_empty(p, r, count);
        move_centres(p, r, count);
    }
    label_all(p, r);
    free(count);
}

static void drop_reference(struct reference *r)
{
    TR_FREE_ALL(r->centre, r->label, r->distance);
}

/* ---- training ---- */

struct trial {
    tr_context *tr;
    struct tr_kmeans *m;
    double objective[ROUNDS]; /* rank 0's */
    int rounds;
};

static int observe(void *who, const tr_stage *stage, const struct tr_progress_row *row)
{
    struct trial *t = who;
    if (t->rounds < ROUNDS) t->objective[t->rounds++] = row->evaluation.objective;
    return TR_OK;
}

static void begin_trial(struct trial *t, const struct problem *p, const char *settings)
{
    char text[MPI_NOTE];
    snprintf(text, sizeof text,
             "model.type=kmeans model.clusters=%zu data.train=%s data.format=%s solve.start=first "
             "solve.tolerance=0 report.progress=no %s",
             p->k, p->path, strstr(settings, "sparse") ? "libsvm" : "csv", settings);
    char *mark = strstr(text, " sparse");
    if (mark) memset(mark, ' ', strlen(" sparse"));
    *t = (struct trial){.tr = mpi_context(text)};
    tr_observers(t->tr)->who = t;
    if (t->tr->rank == 0) tr_observers(t->tr)->progress = observe;
    const tr_job *job = tr_context_job(t->tr);
    mpi_ok(TR_NEW(&t->m, 1));
    mpi_ok(tr_kmeans_class.check(job, job->options));
    mpi_ok(tr_kmeans_class.open(t->tr, job->options, t->m));
    mpi_ok(tr_kmeans_class.train(t->m));
    mpi_equal(t->m->total_rows, p->n);
}

static void end_trial(struct trial *t)
{
    tr_kmeans_class.close(t->m);
    free(t->m);
    mpi_ok(tr_close(t->tr));
}

/* A worker's row, dense. */
static void row_of(const struct tr_kmeans *m, size_t i, float *x)
{
    const tr_batch *rows = &m->train.rows;
    memset(x, 0, (size_t)m->columns * sizeof *x);
    if (rows->dense) memcpy(x, rows->dense + i * m->columns, (size_t)m->columns * sizeof *x);
    else
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            x[m->train.keys[rows->column[k]]] = rows->value[k];
}

static void check_against(const struct trial *t, const struct problem *p, const struct reference *r)
{
    float *x;
    double least;
    mpi_ok(TR_NEW(&x, p->columns));
    for (size_t i = 0; tr_roles(t->tr) & TR_SLAVE && i < t->m->train.rows.n; i++) {
        row_of(t->m, i, x);
        uint32_t expected = nearest(p, r->centre, x, &least);
        mpi_check(t->m->train.label[i] == expected, "row %zu has label %u, expected %u", i,
                  t->m->train.label[i], expected);
    }
    free(x);
    double inertia = t->rounds > 0 ? t->objective[t->rounds - 1] : 0;
    if (t->tr->rank == 0)
        mpi_check(fabs(inertia - r->inertia) <= 1e-9 * r->inertia, "inertia %.17g, expected %.17g", inertia,
                  r->inertia);
    for (int i = 1; i < t->rounds; i++)
        mpi_check(t->objective[i] <= t->objective[i - 1] * (1 + 1e-12), "inertia rose from %.17g to %.17g",
                  t->objective[i - 1], t->objective[i]);
}

/* In every layout, with rows shared out and with all rows everywhere. */
static void check_layouts(const struct problem *p, const struct reference *r, const char *settings)
{
    static const char *const partitions[] = {"data.partition=horizontal", "data.partition=replicated"};
    for (int i = 0; mpi_layout(i); i++)
        for (int partition = 0; partition < 2; partition++) {
            if (partition == 1 && !strstr(mpi_layout(i), "group_size")) continue;
            struct trial t;
            begin_trial(&t, p, mpi_text("%s %s %s", mpi_layout(i), partitions[partition], settings));
            check_against(&t, p, r);
            end_trial(&t);
        }
}

MPI_CASE(dense_rows_get_the_labels_of_a_serial_loop)
{
    struct problem p;
    struct reference r;
    make_rows(&p, 1500, 13, 10, 9, 1, false, 1);
    refer(&p, 8, &r);
    check_layouts(&p, &r, "solve.epochs=8");
    check_layouts(&p, &r, "solve.epochs=8 solve.bounds=no data.order=file");
    drop_reference(&r);
    drop_rows(&p);
}

MPI_CASE(sparse_rows_get_the_labels_of_a_serial_loop)
{
    struct problem p;
    struct reference r;
    make_rows(&p, 900, 5, 80, 4, 0.1, false, 2);
    refer(&p, 8, &r);
    check_layouts(&p, &r, "solve.epochs=8 sparse");
    drop_reference(&r);
    struct trial t;
    begin_trial(&t, &p, "sparse solve.epochs=2");
    mpi_check(t.m->sparse, "sparse rows were made dense");
    end_trial(&t);
    drop_rows(&p);
}

/* LIBSVM text with most numbers there is trained as dense rows, and means the same. */
MPI_CASE(almost_dense_rows_get_the_labels_of_a_serial_loop)
{
    struct problem p;
    struct reference r;
    struct trial t;
    make_rows(&p, 500, 6, 12, 4, 0.7, false, 3);
    refer(&p, 5, &r);
    begin_trial(&t, &p, "sparse solve.epochs=5");
    mpi_check(!t.m->sparse, "dense rows were taken as sparse");
    check_against(&t, &p, &r);
    end_trial(&t);
    drop_reference(&r);
    drop_rows(&p);
}

/* Rows of which some are far from all others, and many centres: some lose all their rows. */
MPI_CASE(empty_centres_get_the_farthest_rows)
{
    struct problem p;
    struct reference r;
    uint64_t seed = 1;
    for (;; seed++) {
        make_rows(&p, 240, 60, 3, 1, 1, true, seed);
        refer(&p, 12, &r);
        if (r.seeded > 0 || seed == 50) break;
        drop_reference(&r);
        drop_rows(&p);
    }
    mpi_check(r.seeded > 0, "no centre lost its rows");
    check_layouts(&p, &r, "solve.epochs=12");
    drop_reference(&r);
    drop_rows(&p);
}

/* ---- starts ---- */

static const char *const starts[] = {"first", "random", "kmeans++", "kmeans||"};
enum { STARTS = COUNT(starts) };

static bool is_row(const struct problem *p, const float *x)
{
    for (size_t i = 0; i < p->n; i++)
        if (memcmp(p->x + i * p->columns, x, p->columns * sizeof *x) == 0) return true;
    return false;
}

static void check_start(const struct problem *p, const struct tr_start *s)
{
    size_t columns = p->columns;
    mpi_equal(s->n, p->k);
    for (size_t j = 0; j < s->n; j++) {
        mpi_check(is_row(p, s->dense + j * columns), "centre %zu is no row", j);
        for (size_t i = 0; i < j; i++)
            mpi_check(memcmp(s->dense + i * columns, s->dense + j * columns, columns * sizeof(float)) != 0,
                      "centres %zu and %zu are equal", i, j);
    }
}

/* What the first centres cost, on any rank. */
static double cost_of(const struct problem *p, const float *centre)
{
    double sum = 0, least;
    for (size_t i = 0; i < p->n; i++) {
        nearest(p, centre, p->x + i * p->columns, &least);
        sum += least;
    }
    return sum;
}

MPI_CASE(starts_do_not_depend_on_the_layout)
{
    struct problem p;
    make_rows(&p, 800, 12, 6, 12, 1, false, 4);
    float *first[STARTS] = {0};
    for (int s = 0; s < STARTS; s++) {
        for (int i = 0; mpi_layout(i); i++) {
            if (!mpi_chosen(i, s, 2)) continue;
            struct trial t;
            begin_trial(&t, &p, mpi_text("%s solve.epochs=1 solve.start=%s", mpi_layout(i), starts[s]));
            const struct tr_start *start = &t.m->start;
            check_start(&p, start);
            if (!first[s]) {
                mpi_ok(TR_NEW(&first[s], p.k * p.columns));
                memcpy(first[s], start->dense, p.k * p.columns * sizeof(float));
            }
            mpi_check(memcmp(first[s], start->dense, p.k * p.columns * sizeof(float)) == 0,
                      "%s: other centres than in the first layout", starts[s]);
            end_trial(&t);
        }
        for (int other = 0; other < s; other++)
            mpi_check(memcmp(first[s], first[other], p.k * p.columns * sizeof(float)) != 0, "%s is %s",
                      starts[s], starts[other]);
    }
    mpi_check(cost_of(&p, first[2]) < cost_of(&p, first[1]), "kmeans++ is not better than random");
    mpi_check(cost_of(&p, first[3]) < cost_of(&p, first[1]), "kmeans|| is not better than random");
    for (int s = 0; s < STARTS; s++) free(first[s]);
    drop_rows(&p);
}

MPI_CASE(a_seed_changes_what_is_drawn)
{
    struct problem p;
    make_rows(&p, 300, 5, 4, 5, 1, false, 5);
    for (int s = 1; s < STARTS; s++) {
        float *drawn[2];
        for (int seed = 0; seed < 2; seed++) {
            struct trial t;
            begin_trial(&t, &p, mpi_text("seed=%d solve.epochs=1 solve.start=%s", seed + 1, starts[s]));
            mpi_ok(TR_NEW(&drawn[seed], p.k * p.columns));
            memcpy(drawn[seed], t.m->start.dense, p.k * p.columns * sizeof(float));
            end_trial(&t);
        }
        mpi_check(memcmp(drawn[0], drawn[1], p.k * p.columns * sizeof(float)) != 0, "%s: the same",
                  starts[s]);
        TR_FREE_ALL(drawn[0], drawn[1]);
    }
    drop_rows(&p);
}

/* ---- other ways ---- */

/* Labels need not be those of the serial loop, but the inertia comes to about the same. */
MPI_CASE(other_ways_get_about_as_far)
{
    static const char *const ways[] = {"sync.mode=ssp", "sync.mode=asp", "solve.method=minibatch",
                                       "solve.method=minibatch sync.mode=asp"};
    struct problem p;
    struct reference r;
    make_rows(&p, 2500, 4, 5, 4, 1, false, 6);
    refer(&p, 20, &r);
    for (size_t way = 0; way < COUNT(ways); way++)
        for (int i = 0; mpi_layout(i) && i < 4; i++) {
            struct trial t;
            begin_trial(&t, &p, mpi_text("%s %s solve.epochs=20", mpi_layout(i), ways[way]));
            double last = t.rounds > 0 ? t.objective[t.rounds - 1] : 0;
            if (t.tr->rank == 0) {
                mpi_check(last >= 0.3 * r.inertia && last <= 1.3 * r.inertia,
                          "inertia %g, in a serial loop %g", last, r.inertia);
                mpi_check(t.objective[0] >= last, "inertia rose from %g to %g", t.objective[0], last);
            }
            end_trial(&t);
        }
    drop_reference(&r);
    drop_rows(&p);
}

/* Sparse mini-batches, and mini-batches in a group that shares its rows. */
MPI_CASE(mini_batches_lower_the_inertia)
{
    struct problem p;
    make_rows(&p, 1200, 4, 60, 4, 0.15, false, 7);
    for (int i = 0; mpi_layout(i); i++) {
        struct trial t;
        const char *partition = strstr(mpi_layout(i), "group_size") ? "data.partition=replicated" : "";
        begin_trial(&t, &p,
                    mpi_text("%s %s sparse solve.method=minibatch solve.batch=100 solve.epochs=4",
                             mpi_layout(i), partition));
        if (t.tr->rank == 0)
            mpi_check(t.rounds > 1 && t.objective[t.rounds - 1] < t.objective[0], "inertia from %g to %g",
                      t.objective[0], t.objective[t.rounds - 1]);
        end_trial(&t);
    }
    drop_rows(&p);
}
