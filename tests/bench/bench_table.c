/* Times pulls and pushes of one view beside memcpy and a plain gather loop on the same memory:
 *
 *   mpirun -n 2 bench_table KEYS FRACTION REPEATS [section.key=value ...]
 *
 * Every worker opens a view of a random FRACTION of the KEYS f32 keys of a table, and pulls and pushes it once a
 * clock. Prints a line of figures from rank 0, medians over the clocks of the slowest worker:
 *   pull_ms push_ms clock_ms copy_ms gather_ms scatter_ms keys link_ms
 * copy, gather and scatter are the times of one loop over private memory for the same keys, with all workers together; keys
 * is the size of the largest view. link is the time of bare MPI for the values from other ranks: each worker sends each
 * server an empty message, and gets the values as one message. */
#include <inttypes.h>
#include <string.h>

#include "bench.h"

enum { PULL, PUSH, CLOCK, COPY, GATHER, SCATTER, LINK, FIGURES };

struct bench {
    tr_table *table;
    tr_view *view;
    tr_key *keys;
    size_t n, repeats;
    double *seconds[FIGURES];
};

static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct bench *b = state;
    return tr_view_open(b->table, b->keys, b->n, TR_VIEW_UPDATE, &b->view);
}

static int compute(tr_worker *me, void *state)
{
    struct bench *b = state;
    size_t i = (size_t)me->clock;
    const struct tr_traffic *traffic = &me->tr->tables->traffic;
    double begin = tr_now(),
           before = traffic->pull_seconds; /* which leaves out the wait for slower workers */
    TR_TRY(tr_view_pull(b->view));
    b->seconds[PULL][i] = traffic->pull_seconds - before;
    float *delta = b->view->delta;
    for (size_t k = 0; k < b->n; k++) delta[k] = 1;
    double set = tr_now();
    TR_TRY(tr_view_push(b->view));
    TR_WAIT_UNTIL(me->tr, !tr_push_busy(b->view), "the push");
    double pushed = tr_now();
    b->seconds[PUSH][i] = pushed - set;
    b->seconds[CLOCK][i] = pushed - begin;
    return TR_OK;
}

/* The same work on private memory: the limit. */
static int measure_limits(struct bench *b, uint64_t table_keys)
{
    float *table, *view;
    uint32_t *place;
    TR_TRY(TR_NEW(&table, table_keys));
    TR_TRY(TR_NEW(&view, b->n));
    TR_TRY(TR_NEW(&place, b->n));
    for (uint64_t k = 0; k < table_keys; k++) table[k] = (float)k;
    for (size_t k = 0; k < b->n; k++) {
        place[k] = (uint32_t)b->keys[k];
        view[k] = 1;
    }
    for (size_t i = 0; i < b->repeats; i++) {
        double t0 = tr_now();
        memcpy(view, table, b->n * sizeof *view);
        __asm__ volatile("" ::"r"(view) : "memory");
        double t1 = tr_now();
        for (size_t k = 0; k < b->n; k++) view[k] = table[place[k]];
        __asm__ volatile("" ::"r"(view) : "memory");
        double t2 = tr_now();
        for (size_t k = 0; k < b->n; k++) table[place[k]] += view[k];
        __asm__ volatile("" ::"r"(table) : "memory");
        double t3 = tr_now();
        b->seconds[COPY][i] = t1 - t0;
        b->seconds[GATHER][i] = t2 - t1;
        b->seconds[SCATTER][i] = t3 - t2;
    }
    TR_FREE_ALL(table, view, place);
    return TR_OK;
}

/* What this rank, as a server, sends to worker w, in bytes: an even part of its view. */
static int bare_bytes(const struct bench *b, const uint64_t *viewed, int w)
{
    return (int)(viewed[w] * sizeof(float) / b->table->partition.servers);
}

/* The same pull by bare MPI, all workers together: the limit of the network. */
static int measure_link(struct bench *b, tr_context *tr, const uint64_t *viewed)
{
    MPI_Request *request;
    char *space;
    int n = 0, me = tr->rank, size = tr->size, most = 0;
    bool serves = b->table->server >= 0;
    for (int w = 0; w < size; w++) most = bare_bytes(b, viewed, w) > most ? bare_bytes(b, viewed, w) : most;
    TR_TRY(TR_NEW(&request, 2 * (size_t)size));
    TR_TRY(TR_NEW(&space, (b->table->partition.servers + 1) * (size_t)most));
    memset(space, 1, (b->table->partition.servers + 1) * (size_t)most);
    for (size_t i = 0; i < b->repeats; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = tr_now();
        n = 0;
        for (uint32_t s = 0; s < b->table->partition.servers && viewed[me] > 0; s++) {
            int server = tr_table_server_rank(b->table, s);
            if (server == me) continue;
            MPI_Irecv(space + (s + 1) * (size_t)most, bare_bytes(b, viewed, me), MPI_BYTE, server, 1,
                      MPI_COMM_WORLD, &request[n++]);
            MPI_Send(NULL, 0, MPI_BYTE, server, 0, MPI_COMM_WORLD);
        }
        for (int w = 0; w < size && serves; w++) {
            if (w == me || viewed[w] == 0) continue;
            MPI_Recv(NULL, 0, MPI_BYTE, w, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Isend(space, bare_bytes(b, viewed, w), MPI_BYTE, w, 1, MPI_COMM_WORLD, &request[n++]);
        }
        MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
        b->seconds[LINK][i] = tr_now() - begin;
    }
    TR_FREE_ALL(request, space);
    return TR_OK;
}

static int run(tr_context *tr, uint64_t table_keys, double fraction, size_t repeats)
{
    struct bench b = {.repeats = repeats};
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, (uint64_t)tr->rank, 0);
    TR_TRY(TR_NEW(&b.keys, table_keys));
    for (uint64_t k = 0; k < table_keys; k++)
        if (tr_rng_uniform(&rng) < fraction) b.keys[b.n++] = k;
    for (int f = 0; f < FIGURES; f++) TR_TRY(TR_NEW(&b.seconds[f], repeats));
    TR_TRY(tr_table_create(tr, "bench", TR_F32, 1, table_keys, &b.table));
    tr_stage stage = {
        .name = "bench", .state = &b, .clocks = (int64_t)repeats, .prepare = prepare, .compute = compute};
    TR_TRY(tr_run(tr, &stage));
    bool works = (tr_roles(tr) & TR_SLAVE) != 0;
    uint64_t viewed = works ? b.n : 0, *all, largest = 0;
    TR_TRY(TR_NEW(&all, (size_t)tr->size));
    MPI_Allgather(&viewed, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int r = 0; r < tr->size; r++) largest = all[r] > largest ? all[r] : largest;
    TR_TRY(measure_link(&b, tr, all));
    free(all);
    if (works) TR_TRY(measure_limits(&b, table_keys));
    double median[FIGURES] = {0}, slowest[FIGURES];
    for (int f = 0; f < FIGURES && works; f++) {
        bench_sort(b.seconds[f], repeats);
        median[f] = 1e3 * b.seconds[f][repeats / 2];
    }
    MPI_Reduce(median, slowest, FIGURES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (tr->rank == 0) {
        printf("%.4f %.4f %.4f %.4f %.4f %.4f %" PRIu64 " %.4f\n", slowest[PULL], slowest[PUSH],
               slowest[CLOCK], slowest[COPY], slowest[GATHER], slowest[SCATTER], largest, slowest[LINK]);
    }
    tr_view_close(&b.view);
    for (int f = 0; f < FIGURES; f++) free(b.seconds[f]);
    free(b.keys);
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s KEYS FRACTION REPEATS [section.key=value ...]\n", argv[0]);
        return TR_ERR_USAGE;
    }
    tr_context *tr = NULL;
    int status = bench_open(argc, argv, 4, &tr);
    if (status == TR_OK)
        status = run(tr, strtoull(argv[1], NULL, 10), strtod(argv[2], NULL), strtoull(argv[3], NULL, 10));
    return bench_close(tr, status);
}
