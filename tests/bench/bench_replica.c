/* Times stochastic gradient descent for logistic regression by the workers of one node, on a table that lies on all nodes:
 *
 *   mpirun -n 4 bench_replica servers|local KEYS ROWS NONZEROS ITERATIONS [section.key=value ...]
 *
 * Each worker has ROWS made-up rows of NONZEROS ones, some keys far more often than others, and goes through them once in
 * every clock, a step a row. `servers`: as on any parameter server, it pulls the keys that its rows need at the beginning
 * of a clock, and pushes its updates at the end. `local`: the node takes the table over before the first clock, as
 * local.model says, and gives it back after the last. Prints a line of figures of worker 0:
 *   take_ms first_ms iteration_ms give_ms kilobytes loss
 * iteration is the median without the first; give includes the wait for the slower worker. Kilobytes are the bytes that
 * all workers have moved from and to the table, with message headers; loss is the mean over the worker's rows in the last
 * clock, each at its step. */
#include <math.h>
#include <string.h>

#include "bench.h"

enum { SKEW = 6 };
enum { TAKE, FIRST, ITERATION, GIVE, KILOBYTES, LOSS, FIGURES };

struct bench {
    tr_context *tr;
    tr_table *table;
    tr_replica *local; /* NULL: through the servers */
    size_t keys, rows, nonzeros;
    int64_t iterations;
    bool run;
    tr_key *key;     /* rows × nonzeros, those of a row ascending */
    float *label;    /* 1 or -1 */
    uint32_t *place; /* servers: of each key in the view */
    tr_view *view;
    float *weight, *delta; /* of a row */
    double *seconds;       /* by iteration */
    double figure[FIGURES];
};

/* ---- rows ---- */

static int by_key(const void *a, const void *b)
{
    tr_key x = *(const tr_key *)a, y = *(const tr_key *)b;
    return (x > y) - (x < y);
}

/* The label goes with a hidden weight of each key. */
static int make_rows(struct bench *b, int worker)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, (uint64_t)worker, 0);
    TR_TRY(TR_NEW(&b->key, b->rows * b->nonzeros));
    TR_TRY(TR_NEW(&b->label, b->rows));
    for (size_t r = 0; r < b->rows; r++) {
        tr_key *key = b->key + r * b->nonzeros;
        double margin = 0;
        for (size_t i = 0; i < b->nonzeros; i++) {
            key[i] = (tr_key)((double)b->keys * pow(tr_rng_uniform(&rng), SKEW));
            margin += (double)(tr_mix(key[i]) % 2000) - 999.5;
        }
        qsort(key, b->nonzeros, sizeof *key, by_key);
        b->label[r] = margin > 0 ? 1 : -1;
    }
    return TR_OK;
}

static int open_view(struct bench *b)
{
    size_t n = b->rows * b->nonzeros, distinct = 0;
    tr_key *sorted;
    TR_TRY(TR_NEW(&sorted, n));
    TR_TRY(TR_NEW(&b->place, n));
    memcpy(sorted, b->key, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_key);
    for (size_t i = 0; i < n; i++)
        if (distinct == 0 || sorted[i] != sorted[distinct - 1]) sorted[distinct++] = sorted[i];
    for (size_t i = 0; i < n; i++) {
        const tr_key *found = bsearch(&b->key[i], sorted, distinct, sizeof *sorted, by_key);
        b->place[i] = (uint32_t)(found - sorted);
    }
    int status = tr_view_open(b->table, sorted, distinct, TR_VIEW_UPDATE, &b->view);
    free(sorted);
    return status;
}

static int prepare(tr_worker *me, void *state)
{
    struct bench *b = state;
    TR_TRY(make_rows(b, me->worker));
    TR_TRY(TR_NEW(&b->weight, b->nonzeros));
    TR_TRY(TR_NEW(&b->delta, b->nonzeros));
    TR_TRY(TR_NEW(&b->seconds, (size_t)b->iterations));
    me->kept = b;
    return b->local ? TR_OK : open_view(b);
}

static void release(void *kept)
{
    struct bench *b = kept;
    tr_view_close(&b->view);
    TR_FREE_ALL(b->key, b->label, b->place, b->weight, b->delta, b->seconds);
}

/* ---- steps ---- */

/* What one row adds to each of its weights, whose sum the margin is. */
static float step_of(struct bench *b, size_t row, double margin)
{
    static const double rate = 0.05;
    double y = (double)b->label[row];
    b->figure[LOSS] += log1p(exp(-y * margin));
    return (float)(rate * y / (1 + exp(y * margin)));
}

static int step_locally(struct bench *b, size_t row)
{
    const tr_key *key = b->key + row * b->nonzeros;
    double margin = 0;
    TR_TRY(tr_replica_read(b->local, key, b->nonzeros, b->weight));
    for (size_t i = 0; i < b->nonzeros; i++) margin += (double)b->weight[i];
    float step = step_of(b, row, margin);
    for (size_t i = 0; i < b->nonzeros; i++) b->delta[i] = step;
    return tr_replica_add(b->local, key, b->nonzeros, b->delta);
}

static void step_in_view(struct bench *b, size_t row)
{
    const uint32_t *place = b->place + row * b->nonzeros;
    float *value = b->view->value, *delta = b->view->delta;
    double margin = 0;
    for (size_t i = 0; i < b->nonzeros; i++) margin += (double)value[place[i]];
    float step = step_of(b, row, margin);
    for (size_t i = 0; i < b->nonzeros; i++) {
        value[place[i]] += step;
        delta[place[i]] += step;
    }
}

static int iterate(struct bench *b)
{
    b->figure[LOSS] = 0;
    if (!b->local) TR_TRY(tr_view_pull(b->view));
    for (size_t r = 0; r < b->rows; r++) {
        if (b->local) TR_TRY(step_locally(b, r));
        else step_in_view(b, r);
    }
    return b->local ? TR_OK : tr_view_push(b->view);
}

/* An iteration lasts until the next one starts, which waits for the push of this one. */
static void summarize(struct bench *b)
{
    size_t n = (size_t)b->iterations;
    b->figure[FIRST] = 1e3 * b->seconds[0];
    bench_sort(b->seconds + 1, n - 1);
    b->figure[ITERATION] = 1e3 * b->seconds[1 + (n - 1) / 2];
    b->figure[LOSS] /= (double)b->rows;
}

static int compute(tr_worker *me, void *state)
{
    struct bench *b = state;
    double begin = tr_now();
    size_t i = (size_t)me->clock;
    if (i == 0 && b->local) {
        TR_TRY(tr_replica_take(b->local, me));
        b->figure[TAKE] = 1e3 * (tr_now() - begin);
    }
    double taken = tr_now();
    if (i > 0) b->seconds[i - 1] = begin - b->seconds[i - 1];
    b->seconds[i] = taken;
    TR_TRY(iterate(b));
    if (me->clock < me->clocks - 1) return TR_OK;
    double done = tr_now();
    b->seconds[i] = done - b->seconds[i];
    if (b->local) TR_TRY(tr_replica_give(b->local, me));
    b->figure[GIVE] = 1e3 * (tr_now() - done);
    summarize(b);
    return TR_OK;
}

/* ---- the task ---- */

static int next(void *state, const tr_ran *ran, tr_next *next)
{
    struct bench *b = state;
    (void)ran;
    *next = (tr_next){.stage = b->run ? -1 : 0, .clocks = b->iterations, .workers = TR_ALL_WORKERS};
    b->run = true;
    return TR_OK;
}

static int run(tr_context *tr, struct bench *b, bool locally)
{
    b->tr = tr;
    TR_TRY(tr_table_create(tr, "w", TR_F32, 1, b->keys, &b->table));
    if (locally) TR_TRY(tr_replica_open(b->table, &b->local));
    const tr_stage stage = {.name = "sgd",
                            .state = b,
                            .one_group = true,
                            .prepare = prepare,
                            .compute = compute,
                            .release = release};
    const tr_task task = {.name = "bench", .stage = &stage, .n = 1, .state = b, .next = next};
    TR_TRY(tr_run_task(tr, &task));
    const struct tr_traffic *traffic = &tr->tables->traffic;
    b->figure[KILOBYTES] = (double)(traffic->bytes_pulled + traffic->bytes_pushed) / 1e3;
    double moved;
    MPI_Reduce(&b->figure[KILOBYTES], &moved, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    b->figure[KILOBYTES] = moved;
    for (int f = 0; f < FIGURES && tr->rank == 0; f++)
        printf("%.4f%c", b->figure[f], f + 1 < FIGURES ? ' ' : '\n');
    tr_replica_close(&b->local);
    return TR_OK;
}

int main(int argc, char **argv)
{
    bool locally = argc > 1 && strcmp(argv[1], "local") == 0;
    if (argc < 6 || (!locally && strcmp(argv[1], "servers") != 0) || atoi(argv[5]) < 2) {
        fprintf(stderr, "usage: %s servers|local KEYS ROWS NONZEROS ITERATIONS [section.key=value ...]\n",
                argv[0]);
        return TR_ERR_USAGE;
    }
    struct bench b = {.keys = strtoull(argv[2], NULL, 10),
                      .rows = strtoull(argv[3], NULL, 10),
                      .nonzeros = strtoull(argv[4], NULL, 10),
                      .iterations = atoi(argv[5])};
    tr_context *tr = NULL;
    int status = bench_open(argc, argv, 6, &tr);
    if (status == TR_OK) status = run(tr, &b, locally);
    return bench_close(tr, status);
}
