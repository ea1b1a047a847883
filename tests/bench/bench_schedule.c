/* Times the scheduler on a simulated cluster: bench_schedule NODES WORKERS TASKS STAGES RESERVATIONS [PAUSE [SEED]] prints,
 * for so many nodes of so many workers each, and tasks that run so many stages each of mixed degrees (a pause of so many
 * seconds in the mean between them, 60 if none is said; a stage lasts 0.5 to 4.5): stages run, microseconds of scheduling
 * a stage, share of the workers that was busy, share that was kept idle for starved stages, and in simulated seconds the
 * mean wait of a stage, the longest, the longest of a stage on half of all workers or more, and how long all took. */
#include "../simulated_schedule.h"

static int bench(int n, char **words)
{
    struct simulated about = {.nodes = atoi(words[1]),
                              .workers_each = atoi(words[2]),
                              .tasks = atoi(words[3]),
                              .stages_each = atoi(words[4]),
                              .sets = 8,
                              .pause = n > 6 ? atof(words[6]) : 60,
                              .options = {.growth = 1, .threshold = 60, .reservations = atoi(words[5])},
                              .seed = n > 7 ? strtoull(words[7], NULL, 10) : 1,
                              .time_it = true};
    if (about.nodes < 1 || about.workers_each < 1 || about.tasks < 1 || about.stages_each < 1)
        return tr_fail(TR_ERR_USAGE, "bench_schedule: nodes, workers, tasks and stages are 1 or more");
    TR_TRY(simulate_schedule(&about));
    if (about.wrong) return tr_fail(TR_ERR_INTERNAL, "bench_schedule: %s", about.wrong);
    printf("%lld %.3f %.4f %.4f %.2f %.2f %.2f %.0f\n", (long long)about.stages,
           1e6 * about.scheduler_seconds / (double)about.stages, about.utilisation, about.idle_kept,
           about.mean_wait, about.longest_wait, about.fat_wait, about.seconds);
    return TR_OK;
}

int main(int n, char **words)
{
    int status =
        n < 6 ? tr_fail(TR_ERR_USAGE, "bench_schedule NODES WORKERS TASKS STAGES RESERVATIONS [PAUSE [SEED]]")
              : bench(n, words);
    if (status) fprintf(stderr, "%s\n", tr_error_text());
    return status;
}
