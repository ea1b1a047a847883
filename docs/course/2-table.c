/* 2. A table.
 *
 *   mpirun -n 4 ./2-table course.yaml
 *
 * Parameters live in tables, which are spread over the servers. A worker opens a view of the keys that it needs: a copy of
 * its own. What it writes to view->delta is added to the table by a push; what the table holds comes into view->value by
 * a pull. Work is done in stages: all workers compute, clock by clock. Here every worker throws dice for one clock, and the
 * table counts what came up.
 */
#include <stdio.h>
#include <trireme/trireme.h>

enum { SIDES = 6, THROWS = 60000 };

struct dice {
    tr_table *table;
    tr_view *counts;
};

/* Every worker, before the first clock. */
static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct dice *dice = state;
    tr_key keys[SIDES];
    for (tr_key side = 0; side < SIDES; side++) keys[side] = side;
    return tr_view_open(dice->table, keys, SIDES, TR_VIEW_UPDATE, &dice->counts);
}

/* Every worker, once a clock. */
static int compute(tr_worker *me, void *state)
{
    struct dice *dice = state;
    double *delta = dice->counts->delta;
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, (uint64_t)me->worker, (uint64_t)me->clock); /* the same numbers in every run */
    for (int i = 0; i < THROWS / me->workers; i++) delta[tr_rng_below(&rng, SIDES)]++;
    return tr_view_push(dice->counts);
}

/* Every worker, when the stage is evaluated: adds its part to sums that the scheduler gets. */
static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct dice *dice = state;
    if (me->worker != 0) return TR_OK; /* the table is the same for all */
    TR_TRY(tr_view_pull(dice->counts));
    const double *value = dice->counts->value;
    for (int side = 0; side < SIDES; side++) report->sum[side] = value[side];
    return TR_OK;
}

/* The scheduler, with the sums of all. */
static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    (void)state;
    evaluation->objective = 0; /* nothing is minimised */
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
