#include "mpi_unit.h"

#include "class/class.h"
#include "model/mf/mf.h"

/* Ratings of 300 users and 120 items by factors of rank 3 and some noise: a third of all pairs, every tenth of these
 * for testing; ids are 7 and 11 times the numbers, so that they are none themselves. */
enum { USERS = 300, ITEMS = 120, RANK = 3 };
static const double noise = 0.1;

static const char *folder;

static void write_ratings(void)
{
    struct tr_rng rng;
    double user[USERS][RANK], item[ITEMS][RANK];
    FILE *file[2];
    tr_rng_seed(&rng, 5, 0, 0);
    for (int i = 0; i < 2; i++) file[i] = fopen(mpi_text("%s/%s", folder, i ? "test" : "train"), "w");
    for (int u = 0; u < USERS; u++)
        for (int k = 0; k < RANK; k++) user[u][k] = tr_rng_normal(&rng);
    for (int i = 0; i < ITEMS; i++)
        for (int k = 0; k < RANK; k++) item[i][k] = tr_rng_normal(&rng);
    for (int u = 0; u < USERS; u++)
        for (int i = 0; i < ITEMS; i++) {
            double r = 3 + 0.3 * (u % 5) - 0.2 * (i % 4) + noise * tr_rng_normal(&rng);
            if (tr_rng_below(&rng, 3) > 0) continue;
            for (int k = 0; k < RANK; k++) r += user[u][k] * item[i][k] / sqrt(RANK);
            fprintf(file[tr_rng_below(&rng, 10) == 0], "%d %d %.5f\n", 7 * u, 11 * i, r);
        }
    fprintf(file[1], "9999 11 3.4\n7 9998 3.2\n9999 9998 3.3\n"); /* a cold user, a cold item, both */
    for (int i = 0; i < 2; i++) fclose(file[i]);
}

static void make_files(void)
{
    if (folder) return;
    folder = mpi_path("");
    if (mpi_test.rank == 0) write_ratings();
    MPI_Barrier(MPI_COMM_WORLD);
}

struct outcome {
    double train, test; /* RMSE; known on rank 0, as is the next */
    double ratings;     /* trained on in the last epoch, over all workers */
    uint64_t total;
    struct tr_model file;
    const struct tr_mf *saved; /* rank 0: of the file */
};

static struct outcome train(const char *settings)
{
    struct outcome o = {.train = NAN};
    make_files();
    const char *all =
        mpi_text("model.type=mf data.train=%s/train data.test=%s/test model.rank=%d model.bias=yes "
                 "solve.epochs=40 solve.rate=0.2 model.l2=0.01 report.progress=no %s",
                 folder, folder, RANK, settings);
    tr_context *tr = mpi_context(all);
    const tr_job *job = tr_context_job(tr);
    struct tr_mf *m = NULL;
    mpi_ok(TR_NEW(&m, 1));
    int status = tr_mf_class.check(job, job->options); /* the same on all ranks, as what follows */
    if (status == TR_OK) status = tr_mf_class.open(tr, job->options, m);
    if (status == TR_OK) status = tr_mf_class.train(m);
    if (status == TR_OK) status = tr_model_write(tr, &tr_mf_class, m, folder);
    mpi_ok(status);
    if (status == TR_OK) {
        o.ratings = m->trained;
        o.train = m->last.objective;
        o.test = m->last.metric[0];
        o.total = m->train->total_nonzeros;
        if (mpi_test.rank == 0) {
            mpi_ok(tr_model_open(folder, NULL, &o.file));
            mpi_ok(tr_model_read(&o.file));
            o.saved = o.file.model;
        }
    }
    tr_mf_class.close(m);
    free(m);
    tr_close(tr);
    return o;
}

/* RMSE of the saved model on the test file, cold ones included. Rank 0. */
static double rmse_of_saved(const struct tr_mf *m)
{
    unsigned long long user, item;
    double value, squares = 0, n = 0;
    FILE *file = fopen(mpi_text("%s/test", folder), "r");
    for (; fscanf(file, "%llu %llu %lf", &user, &item, &value) == 3; n++) {
        char id[32];
        uint64_t u = UINT64_MAX, i = UINT64_MAX;
        snprintf(id, sizeof id, "%llu", user);
        if (!tr_name_find(&m->saved[TR_MF_USER].names, id, strlen(id), &u)) u = UINT64_MAX;
        snprintf(id, sizeof id, "%llu", item);
        if (!tr_name_find(&m->saved[TR_MF_ITEM].names, id, strlen(id), &i)) i = UINT64_MAX;
        double error = (double)(float)value - tr_mf_predict_saved(m, u, i);
        squares += error * error;
    }
    fclose(file);
    return sqrt(squares / n);
}

static void check_outcome(const struct outcome *o, const char *settings, double most)
{
    if (!o->saved) return;
    mpi_check(o->ratings == (double)o->total, "%s: %g of %lu ratings trained on", settings, o->ratings,
              o->total);
    double saved = rmse_of_saved(o->saved);
    mpi_check(o->test < most, "%s: test rmse %g", settings, o->test);
    mpi_check(fabs(saved - o->test) < 1e-4, "%s: test rmse %g, of the saved model %g", settings, o->test,
              saved);
    mpi_check(o->saved->users == USERS && o->saved->items == ITEMS, "%s: %d users", settings,
              (int)o->saved->users);
}

static void check_equal(const struct outcome *a, const struct outcome *b)
{
    static const size_t rows[] = {[TR_MF_USER] = USERS, [TR_MF_ITEM] = ITEMS};
    for (int side = 0; a->saved && b->saved && side < 2; side++)
        mpi_check(memcmp(a->saved->saved[side].row, b->saved->saved[side].row,
                         rows[side] * (RANK + 1) * sizeof(float)) == 0,
                  "factors of side %d differ", side);
}

/* Every layout, and every way that blocks travel, comes to about the same error. */
MPI_CASE(layouts_agree)
{
    const char *settings;
    double first = NAN;
    for (int i = 0; (settings = mpi_layout(i)); i += mpi_test.size > 4 ? 4 : mpi_test.size > 2 ? 2 : 1) {
        struct outcome o = train(mpi_text("solve.epochs=30 %s", settings));
        check_outcome(&o, settings, 0.25);
        if (isnan(first)) first = o.test;
        if (o.saved)
            mpi_check(fabs(o.test - first) < 0.12, "%s: test rmse %g, at first %g", settings, o.test, first);
        tr_model_close(&o.file);
    }
}

/* The whole world as one group, in memory that it shares and otherwise, gives bit by bit the same. */
MPI_CASE(ways_of_rotation_agree)
{
    static const char *const ways[] = {"auto", "travel"};
    struct outcome o[2];
    for (int i = 0; i < 2; i++) {
        const char *settings = mpi_text("ranks.layout=%s ranks.group_size=%d table.rotate=%s",
                                        mpi_test.size == 1 ? "alone" : "colocated", mpi_test.size, ways[i]);
        o[i] = train(settings);
        check_outcome(&o[i], settings, 0.16);
    }
    check_equal(&o[0], &o[1]);
    for (int i = 0; i < 2; i++) tr_model_close(&o[i].file);
}

/* Several groups under BSP: twice the same. */
MPI_CASE(runs_repeat)
{
    const char *settings =
        mpi_test.size >= 4 ? "ranks.layout=colocated ranks.group_size=2" : "ranks.layout=auto";
    struct outcome o[2];
    for (int i = 0; i < 2; i++) o[i] = train(settings);
    check_equal(&o[0], &o[1]);
    for (int i = 0; i < 2; i++) tr_model_close(&o[i].file);
}

MPI_CASE(settings_do_what_they_say)
{
    static const struct {
        const char *settings;
        double most; /* test RMSE */
    } cases[] = {{"model.bias=no model.rank=8", 0.4},         {"model.nonnegative=yes model.rank=8", 1},
                 {"model.l2_weighted=no model.l2=0.3", 0.16}, {"solve.optimizer=sgd solve.rate=0.05", 0.2},
                 {"sync.mode=ssp sync.staleness=2", 0.2},     {"sync.mode=asp", 0.2},
                 {"sync.weight=con solve.epochs=60", 0.3},    {"solve.decay=0.5", 0.2}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct outcome o = train(cases[i].settings);
        check_outcome(&o, cases[i].settings, cases[i].most);
        for (int side = 0; o.saved && i == 1 && side < 2; side++)
            for (size_t j = 0; j < (size_t)(side ? ITEMS : USERS) * 9; j++)
                mpi_check(o.saved->saved[side].row[j] >= 0 || j % 9 == 8, "a factor of %g",
                          (double)o.saved->saved[side].row[j]);
        tr_model_close(&o.file);
    }
}

/* Without a step, predictions are those of the first biases: shrunk means, in whichever block an item is, and the same
 * in every layout; without biases, of the mean alone. */
MPI_CASE(biases_begin_at_means)
{
    struct outcome with = train("solve.epochs=1 solve.rate=1e-6");
    struct outcome without = train("solve.epochs=1 solve.rate=1e-6 model.bias=no");
    mpi_check(mpi_test.rank != 0 || with.train < 0.94 * without.train, "train rmse %g, without biases %g",
              with.train, without.train);
    tr_model_close(&with.file);
    tr_model_close(&without.file);
}
