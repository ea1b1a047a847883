/* A server function and an answer of a user's own, built against the installed library and run by test_install.sh,
 * which reads the line it prints. The function adds updates up, and knows for each key how many there were and of
 * which clock the last was; the answer puts that together over all servers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

enum { KEYS = 1000, CLOCKS = 5 };

struct tally {
    double updates, first, last; /* of single keys; first and last: clocks */
};

/* Each server notes when its first update came. */
static int open_count(tr_share *share)
{
    double *first = malloc(sizeof *first);
    if (!first) return tr_fail(TR_ERR_SYSTEM, "table %s: out of memory", share->table);
    *first = CLOCKS;
    share->own = first;
    return TR_OK;
}

static void close_count(tr_share *share)
{
    free(share->own);
}

static size_t count_memory(const tr_share *share)
{
    return share->own ? sizeof(double) : 0;
}

static int count(tr_share *share, const tr_update *u)
{
    double *value = share->value, *times = share->state[0], *last = share->state[1], *first = share->own;
    const double *update = u->value;
    for (size_t i = 0; i < u->n; i++) {
        size_t unit = u->unit ? u->unit[i] : i;
        value[unit] += update[i];
        times[unit]++;
        last[unit] = (double)u->clock;
    }
    if ((double)u->clock < *first) *first = (double)u->clock;
    return TR_OK;
}

static int tell(const tr_share *share, const void *question, size_t question_bytes, void *result,
                size_t *bytes)
{
    struct tally tally = {0, *(double *)share->own, 0};
    double *times = share->state[0], *last = share->state[1];
    if (question_bytes > 0 || *bytes < sizeof tally) return tr_fail(TR_ERR_INTERNAL, "room for a tally?");
    for (size_t unit = 0; unit < share->units; unit++) {
        tally.updates += times[unit];
        if (last[unit] > tally.last) tally.last = last[unit];
    }
    memcpy(result, &tally, *bytes = sizeof tally);
    return TR_OK;
}

static int put_together(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    struct tally tally, more;
    if (*bytes != sizeof tally || part_bytes != sizeof more || room < sizeof tally)
        return tr_fail(TR_ERR_INTERNAL, "these are no tallies");
    memcpy(&tally, result, sizeof tally);
    memcpy(&more, part, sizeof more);
    tally.updates += more.updates;
    if (more.first < tally.first) tally.first = more.first;
    if (more.last > tally.last) tally.last = more.last;
    memcpy(result, &tally, sizeof tally);
    return TR_OK;
}

struct counting {
    tr_table *table;
    tr_view *view;
};

static int prepare(tr_worker *me, void *state)
{
    struct counting *c = state;
    tr_key keys[KEYS];
    size_t n = 0;
    for (tr_key key = 0; key < KEYS; key++)
        if (key % 2 == 0 || me->worker == 0) keys[n++] = key;
    return tr_view_open(c->table, keys, n, TR_VIEW_UPDATE, &c->view);
}

static int compute(tr_worker *me, void *state)
{
    struct counting *c = state;
    TR_TRY(tr_view_pull(c->view));
    for (size_t i = 0; i < c->view->n; i++) ((double *)c->view->delta)[i] = me->worker + 1;
    return tr_view_push(c->view);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct counting *c = state;
    struct tally tally;
    size_t bytes = sizeof tally, double_bytes = sizeof(double);
    if (me->worker != 0) return TR_OK;
    TR_TRY(tr_table_ask(c->table, "tally", NULL, 0, &tally, &bytes));
    TR_TRY(tr_table_ask(c->table, "sum1", NULL, 0, &report->sum[3], &double_bytes));
    report->sum[0] = tally.updates;
    report->sum[1] = tally.first;
    report->sum[2] = tally.last;
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    (void)state;
    evaluation->objective = sums->sum[0];
    return printf("updates %g clocks %g to %g sum %g\n", sums->sum[0], sums->sum[1], sums->sum[2],
                  sums->sum[3]) > 0
               ? TR_OK
               : TR_ERR_IO;
}

int main(int argc, char **argv)
{
    static const tr_function function = {.name = "count",
                                         .state_arrays = 2,
                                         .open = open_count,
                                         .close = close_count,
                                         .update = count,
                                         .memory = count_memory};
    static const tr_answer answer = {.name = "tally", .get = tell, .combine = put_together};
    struct counting c = {0};
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    int status = tr_function_register(tr, &function);
    if (status == TR_OK) status = tr_answer_register(tr, &answer);
    if (status == TR_OK) status = tr_table_create(tr, "counts", TR_F64, 1, KEYS, &c.table);
    if (status == TR_OK) status = tr_table_use(c.table, "count", NULL);
    tr_stage stage = {.name = "count",
                      .state = &c,
                      .clocks = CLOCKS,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize};
    if (status == TR_OK) status = tr_run(tr, &stage);
    tr_view_close(&c.view);
    return tr_close(tr); /* the status that all ranks have agreed on */
}
