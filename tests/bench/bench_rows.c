/* Times pulling rows that are computed on as they arrive, as alternating least squares does:
 *
 *   mpirun -n 3 bench_rows ROWS RANK RATINGS CLOCKS [section.key=value ...]
 *
 * Every worker pulls all ROWS rows of RANK f32 in every clock, and for RATINGS users adds y yᵀ of each row to a matrix of
 * the user's (the lower half). Before that it computes on the same rows in its own memory, so that both are measured in
 * turn. Prints a line of figures from rank 0, medians over the clocks of the slowest worker, then the least:
 *   clock_ms compute_ms pull_ms alone_ms ... kilobytes messages
 * clock is all of a clock with pulling, and pull what of it is not spent in the function that computes; alone is the
 * time of computing without pulling, so that clock - alone also has what pulling slows the computation down. Kilobytes
 * and messages are a worker's, of one clock. */
#include <inttypes.h>

#include "bench.h"

enum { CLOCK, COMPUTE, PULL, ALONE, FIGURES };
enum { USERS = 16 };

struct bench {
    tr_table *table;
    tr_view *view;
    tr_key *keys;
    size_t rows, rank, ratings, clocks, next;
    float *sums; /* of USERS users, in turn */
    float *own;  /* the rows, on workers */
    double computed;
    double *seconds[FIGURES];
};

static int add_row(void *state, const tr_row *row)
{
    struct bench *b = state;
    double begin = tr_now();
    const float *y = row->value;
    for (size_t i = 0; i < b->ratings; i++) {
        float *sums = b->sums + b->next++ % USERS * b->rank * b->rank;
        for (size_t r = 0; r < b->rank; r++) {
            float *to = sums + r * b->rank, factor = y[r];
            for (size_t c = 0; c <= r; c++) to[c] += factor * y[c];
        }
    }
    b->computed += tr_now() - begin;
    return TR_OK;
}

static double compute_alone(struct bench *b)
{
    double begin = tr_now();
    for (size_t i = 0; i < b->rows; i++)
        (void)add_row(b, &(tr_row){.key = i, .place = i, .n = b->rank, .value = b->own + i * b->rank});
    return tr_now() - begin;
}

static int compute(tr_worker *me, void *state)
{
    struct bench *b = state;
    size_t i = (size_t)me->clock;
    b->seconds[ALONE][i] = compute_alone(b);
    const struct tr_traffic *traffic = &me->tr->tables->traffic;
    double begin = tr_now(), pulled = traffic->pull_seconds, waited = traffic->wait_seconds;
    b->computed = 0;
    TR_TRY(tr_rows_pull(b->table, b->keys, b->rows, add_row, b));
    b->seconds[CLOCK][i] = tr_now() - begin - (traffic->wait_seconds - waited);
    b->seconds[COMPUTE][i] = b->computed;
    b->seconds[PULL][i] = traffic->pull_seconds - pulled;
    return TR_OK;
}

static float value_of(size_t i)
{
    return (float)(tr_mix(i) % 1000) / 1000;
}

/* Rows that are not zeros, which would travel in no bytes: the first worker writes them. */
static int open_view(tr_worker *me, void *state)
{
    struct bench *b = state;
    return tr_view_open(b->table, b->keys, me->worker == 0 ? b->rows : 0, TR_VIEW_UPDATE, &b->view);
}

static int fill(tr_worker *me, void *state)
{
    struct bench *b = state;
    float *delta = b->view->delta;
    (void)me;
    for (size_t i = 0; i < b->view->n * b->rank; i++) delta[i] = value_of(i);
    return tr_view_push(b->view);
}

static int prepare(struct bench *b, tr_context *tr)
{
    TR_TRY(TR_NEW(&b->keys, b->rows));
    for (size_t k = 0; k < b->rows; k++) b->keys[k] = k;
    TR_TRY(TR_NEW(&b->sums, USERS * b->rank * b->rank));
    if (tr_roles(tr) & TR_SLAVE) {
        TR_TRY(TR_NEW(&b->own, b->rows * b->rank));
        for (size_t i = 0; i < b->rows * b->rank; i++) b->own[i] = value_of(i);
    }
    for (int f = 0; f < FIGURES; f++) TR_TRY(TR_NEW(&b->seconds[f], b->clocks));
    return tr_table_create(tr, "bench", TR_F32, b->rows, b->rank, &b->table);
}

static int run(tr_context *tr, struct bench *b)
{
    TR_TRY(prepare(b, tr));
    tr_stage first = {.name = "fill", .state = b, .clocks = 1, .prepare = open_view, .compute = fill};
    TR_TRY(tr_run(tr, &first));
    tr_view_close(&b->view);
    tr_stage stage = {.name = "bench", .state = b, .clocks = (int64_t)b->clocks, .compute = compute};
    TR_TRY(tr_run(tr, &stage));
    bool works = (tr_roles(tr) & TR_SLAVE) != 0;
    double figure[2 * FIGURES] = {0}, slowest[2 * FIGURES];
    for (int f = 0; f < FIGURES && works; f++) {
        bench_sort(b->seconds[f], b->clocks);
        figure[f] = 1e3 * b->seconds[f][b->clocks / 2];
        figure[FIGURES + f] = 1e3 * b->seconds[f][0];
    }
    MPI_Reduce(figure, slowest, 2 * FIGURES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    uint64_t moved[] = {tr->tables->traffic.bytes_pulled, tr->tables->traffic.messages}, sums[2];
    MPI_Reduce(moved, sums, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    uint64_t each = (uint64_t)tr_workers(tr) * b->clocks;
    for (int f = 0; f < 2 * FIGURES && tr->rank == 0; f++) printf("%.4f ", slowest[f]);
    if (tr->rank == 0) printf("%.1f %" PRIu64 "\n", (double)sums[0] / (double)each / 1e3, sums[1] / each);
    for (int f = 0; f < FIGURES; f++) free(b->seconds[f]);
    TR_FREE_ALL(b->keys, b->sums, b->own);
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: %s ROWS RANK RATINGS CLOCKS [section.key=value ...]\n", argv[0]);
        return TR_ERR_USAGE;
    }
    struct bench bench = {.rows = strtoull(argv[1], NULL, 10),
                          .rank = strtoull(argv[2], NULL, 10),
                          .ratings = strtoull(argv[3], NULL, 10),
                          .clocks = strtoull(argv[4], NULL, 10)};
    tr_context *tr = NULL;
    int status = bench_open(argc, argv, 5, &tr);
    if (status == TR_OK) status = run(tr, &bench);
    return bench_close(tr, status);
}
