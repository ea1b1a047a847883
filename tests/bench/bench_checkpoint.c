/* Times checkpoints of a table on all servers, without other work:
 *
 *   mpirun -n 4 bench_checkpoint MB TIMES FOLDER [section.key=value ...]
 *
 * The table has MB megabytes of f32; checkpoints are written to FOLDER, which keeps the last three. Rank 0 prints a line for
 * each except the first, which warms up:
 *   copy_ms whole_ms
 * copy is what training would wait for, whole the time until the manifest is on the disk. */
#include "bench.h"
#include "store/checkpoint.h"

struct bench {
    tr_table *table;
    tr_view *view;
    uint64_t keys;
    int times;
};

/* Each worker a stretch of the keys. */
static int open_view(tr_worker *me, void *state)
{
    struct bench *b = state;
    uint64_t first = b->keys * (uint64_t)me->worker / (uint64_t)me->workers;
    uint64_t end = b->keys * (uint64_t)(me->worker + 1) / (uint64_t)me->workers;
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, end - first));
    for (uint64_t k = first; k < end; k++) keys[k - first] = k;
    int status = tr_view_open(b->table, keys, end - first, TR_VIEW_UPDATE, &b->view);
    free(keys);
    return status;
}

/* What a disk cannot make smaller. */
static int fill(tr_worker *me, void *state)
{
    struct bench *b = state;
    float *delta = b->view->delta;
    for (size_t i = 0; i < b->view->n; i++)
        delta[i] = (float)(tr_mix(i * 4096 + (uint64_t)me->worker) >> 40) + 1;
    return tr_view_push(b->view);
}

static int take(tr_context *tr, bool shown)
{
    const struct tr_facts facts = {.stage = "bench", .clock = 1};
    TR_TRY(tr_barrier(tr, tr->world, "all ranks to begin"));
    double begin = tr_now();
    TR_TRY(tr_checkpoint_take(tr, &facts, false, NULL, NULL));
    double copied = tr_now() - begin;
    TR_TRY(tr_checkpoint_settle(tr));
    TR_TRY(tr_barrier(tr, tr->world, "the checkpoint to be whole"));
    double whole = tr_now() - begin;
    struct tr_checkpoint_counts counts;
    tr_checkpoint_count(tr, &counts);
    if (tr->rank == 0 && counts.failed > 0) return tr_fail(TR_ERR_IO, "the checkpoint is not written");
    if (tr->rank == 0 && shown) printf("%.3f %.3f\n", 1e3 * copied, 1e3 * whole);
    return TR_OK;
}

static int run(tr_context *tr, struct bench *b)
{
    const tr_stage stage = {.name = "fill", .state = b, .clocks = 1, .prepare = open_view, .compute = fill};
    TR_TRY(tr_table_create(tr, "bench", TR_F32, 1, b->keys, &b->table));
    TR_TRY(tr_run(tr, &stage));
    for (int i = 0; i <= b->times; i++) TR_TRY(take(tr, i > 0));
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s MB TIMES FOLDER [section.key=value ...]\n", argv[0]);
        return TR_ERR_USAGE;
    }
    struct bench bench = {.keys = strtoull(argv[1], NULL, 10) * 250000, .times = atoi(argv[2])};
    const char *folder = argv[3];
    tr_context *tr = NULL;
    int status = bench_open(argc, argv, 4, &tr);
    if (status == TR_OK) status = tr_copy_string(folder, &tr->job->checkpoint.to);
    if (status == TR_OK) status = tr_checkpoints_open(tr, true);
    if (status == TR_OK) status = run(tr, &bench);
    if (tr) tr_view_close(&bench.view);
    if (tr) status = tr_checkpoints_close(tr, false, status);
    return bench_close(tr, status);
}
