/* The scheduler in simulation:  bench_schedule WORKERS TASKS
 *
 * Tasks want from 1 to a quarter of the workers, drawn at random, on one of ten data sets each, and take from 1 to 10
 * seconds. Prints how many decisions there were, how long one took in the mean, in microseconds, and which part of the
 * workers' time was used until the last task had begun. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "stage/scheduler.h"
#include "trireme/trireme.h"

static struct tr_schedule *make(int workers, int tasks, struct tr_rng *rng)
{
    struct tr_schedule *s;
    int *node_of;
    if (TR_NEW(&node_of, (size_t)workers) != TR_OK) exit(71);
    for (int w = 0; w < workers; w++) node_of[w] = w / 64;
    if (tr_schedule_open(workers, node_of, (size_t)tasks, &s) != TR_OK) exit(71);
    for (int t = 0; t < tasks; t++) {
        s->task[t].wanted = 1 + (int)tr_rng_below(rng, (uint64_t)tr_max_int(1, workers / 4));
        s->task[t].data = (int)tr_rng_below(rng, 10) % tasks;
    }
    free(node_of);
    return s;
}

/* The running task that ends first, or -1. */
static int first_end(const struct tr_schedule *s, const double *end)
{
    int first = -1;
    for (int t = 0; t < (int)s->tasks; t++)
        if (s->task[t].state == TR_TASK_RUNNING && (first < 0 || end[t] < end[first])) first = t;
    return first;
}

int main(int argc, char **argv)
{
    int workers = argc > 1 ? atoi(argv[1]) : 64, tasks = argc > 2 ? atoi(argv[2]) : 100, task, begun = 0;
    struct tr_rng rng;
    double now = 0, took = 0, used = 0, until = 0, *end;
    long decisions = 0;
    tr_rng_seed(&rng, 1, 1, 1);
    struct tr_schedule *s = make(workers, tasks, &rng);
    if (TR_NEW(&end, (size_t)tasks) != TR_OK) return 71;
    while (!tr_schedule_over(s)) {
        bool more = true;
        while (more) {
            double begin = tr_now();
            more = tr_schedule_next(s, now, &task);
            took += tr_now() - begin;
            decisions++;
            if (!more) break;
            end[task] = now + 1 + 9 * (double)tr_rng_below(&rng, 1000) / 1000;
            if (++begun == tasks) until = now;
        }
        task = first_end(s, end);
        now = end[task];
        tr_schedule_ended(s, task, false, now);
    }
    for (int t = 0; t < tasks; t++)
        if (s->task[t].begin < until)
            used += s->task[t].ranks * ((end[t] < until ? end[t] : until) - s->task[t].begin);
    printf("%ld %.2f %.3f\n", decisions, 1e6 * took / (double)decisions, used / (until * workers));
    tr_schedule_close(s);
    free(end);
    return 0;
}
