/* 2. A table.
 *
 *   mpirun -n 4 ./2-table course.yaml
 *
 * Parameters are stored in tables, which are distributed over the servers. A worker opens a view: its own copy of the keys that it
 * needs. A push adds view->delta to the table. A pull copies the values of the table to view->value. Workers compute in stages: a
 * stage calls compute() on every worker once per clock (iteration). In this program every worker throws dice for one clock, and
 * the table counts how often each number was thrown.
 */
#include <stdio.h>
#include <trireme/trireme.h>

enum { SIDES = 6, THROWS = 60000 };

struct dice {
    tr_table *table;
    tr_view *counts;
};

/* Called on every worker before the first clock. */
static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct dice *dice = state;
    tr_key keys[SIDES];
    for (tr_key side = 0; side < SIDES; side++) keys[side] = side;
    return tr_view_open(dice->table, keys, SIDES, TR_VIEW_UPDATE, &dice->counts);
}

/* Called on every worker once per clock. */
static int compute(tr_worker *me, void *state)
{
    struct dice *dice = state;
    double *delta = dice->counts->delta;
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, (uint64_t)me->worker, (uint64_t)me->clock); /* the same numbers in every run */
    for (int i = 0; i < THROWS / me->workers; i++) delta[tr_rng_below(&rng, SIDES)]++;
    return tr_view_push(dice->counts);
}

/* Called on every worker when the stage is evaluated. The scheduler receives the sums of report->sum over all workers. */
static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct dice *dice = state;
    if (me->worker != 0) return TR_OK; /* one worker is enough: all workers would read the same table */
    TR_TRY(tr_view_pull(dice->counts));
    const double *value = dice->counts->value;
    for (int side = 0; side < SIDES; side++) report->sum[side] = value[side];
    return TR_OK;
}

/* Called on the scheduler with the sums of all workers. */
static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    (void)state;
    evaluation->objective = 0; /* this program minimises nothing */
    for (int side = 0; side < SIDES; side++) printf("%d came up %.0f times\n", side + 1, sums->sum[side]);
    return TR_OK;
}

int main(int argc, char **argv)
{
    struct dice dice = {0};
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    tr_stage stage = {.name = "throw",
                      .state = &dice,
                      .clocks = 1,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize};
    int status = tr_table_create(tr, "counts", TR_F64, 1, SIDES, &dice.table);
    if (status == TR_OK) status = tr_run(tr, &stage);
    tr_view_close(&dice.counts);
    return tr_close(tr);
}
