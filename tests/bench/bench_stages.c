/* Times how long it takes to go from one stage to the next:
 *
 *   mpirun -n 8 bench_stages RUNS [section.key=value ...]
 *
 * Two stages take turns RUNS times each: `wide` on W workers, `narrow` on one of one group, each of one clock that pulls
 * and pushes a small table. Prints a line for each W, 1, 2, 4 ... all:
 *   W wide_ms narrow_ms
 * the medians, on rank 0, from the end of the one (when all who took part agree that it went well) to the first clock
 * of the other. */
#include "bench.h"

enum { WIDE, NARROW, STAGES };

struct bench {
    tr_context *tr;
    tr_table *table;
    int runs, done, workers;
};

static int prepare(tr_worker *me, void *state)
{
    return bench_open_view(me, ((struct bench *)state)->table);
}

static int compute(tr_worker *me, void *state)
{
    (void)state;
    TR_TRY(bench_pull(me->kept));
    return tr_view_push(me->kept);
}

static int next(void *state, const tr_ran *ran, tr_next *next)
{
    struct bench *b = state;
    (void)ran;
    int stage = b->done % STAGES;
    *next = (tr_next){.stage = b->done++ < STAGES * b->runs ? stage : -1,
                      .clocks = 1,
                      .workers = stage == WIDE ? b->workers : 1};
    return TR_OK;
}

static int show(void *who, const struct tr_stage_sum *sums, size_t n)
{
    const struct bench *b = who;
    (void)n;
    printf("%d %.4f %.4f\n", b->workers, 1e3 * sums[WIDE].transition, 1e3 * sums[NARROW].transition);
    return TR_OK;
}

static int measure(struct bench *b, int workers)
{
    const tr_stage wide = {
        .name = "wide", .state = b, .prepare = prepare, .compute = compute, .release = bench_release};
    tr_stage stages[STAGES] = {wide, wide};
    stages[NARROW].name = "narrow";
    stages[NARROW].one_group = true;
    const tr_task task = {.name = "turns", .stage = stages, .n = STAGES, .state = b, .next = next};
    b->workers = workers;
    b->done = 0;
    return tr_run_task(b->tr, &task);
}

static int run(tr_context *tr, int runs)
{
    struct bench b = {.tr = tr, .runs = runs};
    *tr_observers(tr) = (struct tr_observers){.who = &b, .sums = show};
    TR_TRY(tr_table_create(tr, "w", TR_F32, 1, BENCH_KEYS, &b.table));
    int all = tr_workers(tr);
    for (int workers = tr->layout.groups; workers < all; workers *= 2) TR_TRY(measure(&b, workers));
    return measure(&b, all);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s RUNS [section.key=value ...]\n", argv[0]);
        return TR_ERR_USAGE;
    }
    tr_context *tr = NULL;
    int status = bench_open(argc, argv, 2, &tr);
    if (status == TR_OK) status = run(tr, atoi(argv[1]));
    return bench_close(tr, status);
}
