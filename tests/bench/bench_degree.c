/* Times stages whose computing is a sleep, so that few cores can show how many workers are best:
 *
 *   mpirun -n 16 bench_degree TURNS NEAR FAR EACH NAME,CLOCKS,WORK,PLACE,DEGREE... [section.key=value ...]
 *
 * The stages run in turns, TURNS times. Each clock of a stage with p workers takes WORK / p and a time that represents
 * communication: NEAR · p where all are of one group, otherwise FAR + EACH · p; all in milliseconds. Then it pulls and
 * pushes a small table in truth. PLACE: one (group) or all; DEGREE: a number, all or auto. Prints, on rank 0,
 *   NAME seconds worker_seconds clocks median degrees tried
 * for each stage, the median being that of the seconds from clock to clock of a run, if rank 0 was its first worker and
 * it had two clocks (nan otherwise); and then, with all that lies between the stages,
 *   wall seconds */
#include <math.h>
#include <string.h>

#include "bench.h"

enum { STAGES = 32 };

struct bench;

struct stage {
    struct bench *bench;
    char name[32];
    int64_t clocks;
    double work;
    int degree;
    double *began; /* rank 0, worker 0: clocks of the last run */
    int64_t ran;
    bool one_group;
};

struct bench {
    tr_context *tr;
    tr_table *table;
    int turns, done;
    double near, far, each;
    struct stage stage[STAGES];
    size_t n;
};

static int prepare(tr_worker *me, void *state)
{
    return bench_open_view(me, ((const struct stage *)state)->bench->table);
}

static int compute(tr_worker *me, void *state)
{
    struct stage *s = state;
    const struct bench *b = s->bench;
    double begin = tr_now(), p = me->workers;
    double wanted = 1e-3 * (s->work / p + (me->groups == 1 ? b->near * p : b->far + b->each * p));
    tr_view *view = me->kept;
    if (me->worker == 0) {
        s->began[me->clock] = begin;
        s->ran = me->clock + 1;
    }
    TR_TRY(bench_pull(view));
    double left = begin + wanted - tr_now();
    if (left > 0) tr_sleep(left);
    return tr_view_push(view);
}

static int next(void *state, const tr_ran *ran, tr_next *next)
{
    struct bench *b = state;
    (void)ran;
    int at = b->done++, stage = at % (int)b->n;
    *next = (tr_next){.stage = at < b->turns * (int)b->n ? stage : -1,
                      .clocks = b->stage[stage].clocks,
                      .workers = b->stage[stage].degree};
    return TR_OK;
}

static double median_clock(struct stage *s)
{
    if (s->ran < 2) return NAN;
    size_t n = (size_t)s->ran - 1;
    for (size_t i = 0; i < n; i++) s->began[i] = s->began[i + 1] - s->began[i];
    bench_sort(s->began, n);
    return s->began[n / 2];
}

static int show(void *who, const struct tr_stage_sum *sums, size_t n)
{
    struct bench *b = who;
    for (size_t i = 0; i < n; i++)
        printf("%s %.6f %.6f %lld %.6f %s\n", sums[i].name, sums[i].seconds, sums[i].worker_seconds,
               (long long)sums[i].clocks, median_clock(&b->stage[i]), sums[i].degree);
    return TR_OK;
}

static int run(struct bench *b)
{
    tr_stage stages[STAGES];
    *tr_observers(b->tr) = (struct tr_observers){.who = b, .sums = show};
    for (size_t i = 0; i < b->n; i++) TR_TRY(TR_NEW(&b->stage[i].began, (size_t)b->stage[i].clocks));
    TR_TRY(tr_table_create(b->tr, "w", TR_F32, 1, BENCH_KEYS, &b->table));
    for (size_t i = 0; i < b->n; i++)
        stages[i] = (tr_stage){.name = b->stage[i].name,
                               .state = &b->stage[i],
                               .one_group = b->stage[i].one_group,
                               .prepare = prepare,
                               .compute = compute,
                               .release = bench_release};
    const tr_task task = {.name = "turns", .stage = stages, .n = b->n, .state = b, .next = next};
    double begin = tr_now();
    TR_TRY(tr_run_task(b->tr, &task));
    if (b->tr->rank == 0) printf("wall %.6f\n", tr_now() - begin);
    return TR_OK;
}

static bool read_stage(struct bench *b, const char *text)
{
    struct stage *s = &b->stage[b->n];
    char place[8], degree[8];
    long long clocks;
    if (b->n == STAGES ||
        sscanf(text, "%31[^,],%lld,%lf,%7[^,],%7s", s->name, &clocks, &s->work, place, degree) != 5)
        return false;
    s->bench = b;
    s->clocks = clocks;
    s->degree = !strcmp(degree, "all")    ? TR_ALL_WORKERS
                : !strcmp(degree, "auto") ? TR_AUTO_WORKERS
                                          : atoi(degree);
    s->one_group = !strcmp(place, "one");
    b->n++;
    return true;
}

int main(int argc, char **argv)
{
    struct bench b = {.n = 0};
    int at = 5;
    while (at < argc && strchr(argv[at], ',') && read_stage(&b, argv[at])) at++;
    if (b.n == 0) {
        fprintf(stderr,
                "usage: %s TURNS NEAR FAR EACH NAME,CLOCKS,WORK,PLACE,DEGREE... [section.key=value ...]\n",
                argv[0]);
        return TR_ERR_USAGE;
    }
    b.turns = atoi(argv[1]);
    b.near = atof(argv[2]);
    b.far = atof(argv[3]);
    b.each = atof(argv[4]);
    int status = bench_open(argc, argv, at, &b.tr);
    if (status == TR_OK) status = run(&b);
    status = bench_close(b.tr, status);
    for (size_t i = 0; i < b.n; i++) free(b.stage[i].began);
    return status;
}
