/* 5. A group with a schedule function, and checkpoints.
 *
 *   mpirun -n 4 ./5-group ridge.yaml
 *   trireme run -n 4 -- ./5-group ridge.yaml          restarted when a rank dies
 *
 * Ridge regression, F(w) = 1/2 mean (x·w - y)² + l2/2 |w|², by coordinate descent. The work is divided by coordinates instead of
 * rows (model parallelism): all members of the group store all rows (data.partition: replicated). In each round the leader assigns
 * one coordinate to each member. A clock consists of rounds until each coordinate was assigned once. The members of a round do not
 * see each other's steps. Therefore each step is divided by the number of members, which guarantees that their sum decreases F.
 *
 * snapshot() lists the state that a checkpoint must contain in addition to the tables. With a checkpoint the same command resumes
 * the run after a failure. On the same number of ranks the result is the same bit by bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

struct ridge {
    tr_data *data;
    tr_table *table;
    tr_view *w;
    double l2;
    double *residual; /* x·w - y of each row */
    double *step;     /* change of each member's coordinate in this round */
    uint32_t *order;  /* on the leader: random order of the coordinates in this clock */
    uint64_t *
        begin; /* the non-zeros by column: those of column j are row[k] and value[k], begin[j] <= k < begin[j + 1] */
    uint32_t *row;
    float *value;
};

/* ---- before the first clock ---- */

static float value_of(const tr_batch *rows, uint64_t k)
{
    return rows->value ? rows->value[k] : 1;
}

/* Sorts the non-zeros of the rows by column. */
static int transpose(struct ridge *r)
{
    const tr_batch *rows = &r->data->rows;
    uint64_t nonzeros = rows->n > 0 ? rows->begin[rows->n] : 0;
    TR_TRY(TR_NEW(&r->begin, r->data->n_keys + 2));
    TR_TRY(TR_NEW(&r->row, nonzeros));
    TR_TRY(TR_NEW(&r->value, nonzeros));
    for (uint64_t k = 0; k < nonzeros; k++) r->begin[rows->column[k] + 2]++;
    for (size_t j = 0; j < r->data->n_keys; j++) r->begin[j + 2] += r->begin[j + 1];
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint64_t to = r->begin[rows->column[k] + 1]++;
            r->row[to] = (uint32_t)i;
            r->value[to] = value_of(rows, k);
        }
    return TR_OK;
}

static int prepare(tr_worker *me, void *state)
{
    struct ridge *r = state;
    const tr_batch *rows = &r->data->rows;
    TR_TRY(transpose(r));
    TR_TRY(TR_NEW(&r->step, (size_t)me->group_size));
    TR_TRY(TR_NEW(&r->order, r->data->n_keys));
    TR_TRY(TR_NEW(&r->residual, rows->n));
    for (size_t i = 0; i < rows->n; i++) r->residual[i] = -(double)rows->label[i]; /* w is 0 */
    return tr_view_open(r->table, r->data->keys, r->data->n_keys, TR_VIEW_UPDATE, &r->w);
}

/* ---- a clock ---- */

/* Called on the leader before each round: assigns the next coordinate in the order to each member, or -1 if none is left. */
static int schedule(tr_worker *me, void *state, tr_command *commands, bool *again)
{
    struct ridge *r = state;
    size_t keys = r->data->n_keys, next = (size_t)me->round * (size_t)me->group_size;
    if (me->round == 0) {
        struct tr_rng rng;
        tr_rng_seed(&rng, 5, (uint64_t)me->group, (uint64_t)me->clock);
        tr_rng_permutation(&rng, r->order, keys);
    }
    *again = next < keys;
    for (int member = 0; member < me->group_size; member++, next++)
        for (int i = 0; i < me->group_size; i++) /* each member needs the coordinates of all members */
            commands[i].word[member] = next < keys ? (int64_t)r->order[next] : -1;
    return TR_OK;
}

static double step_of(const struct ridge *r, size_t j, double w)
{
    double slope = 0, curvature = 0, n = (double)r->data->total_rows;
    for (uint64_t k = r->begin[j]; k < r->begin[j + 1]; k++) {
        slope += r->residual[r->row[k]] * (double)r->value[k];
        curvature += (double)r->value[k] * (double)r->value[k];
    }
    return -(slope / n + r->l2 * w) / (curvature / n + r->l2);
}

/* Called on every member in every round. */
static int compute(tr_worker *me, void *state)
{
    struct ridge *r = state;
    if (me->round == 0) TR_TRY(tr_view_pull(r->w));
    double *w = r->w->value, *delta = r->w->delta;
    int64_t mine = me->command.word[me->member];
    memset(r->step, 0, (size_t)me->group_size * sizeof *r->step);
    if (mine >= 0) {
        r->step[me->member] = step_of(r, (size_t)mine, w[mine]) / me->group_size;
        delta[mine] += r->step[me->member];
    }
    TR_TRY(tr_group_sum(me, r->step,
                        (size_t)me->group_size)); /* r->step now contains the steps of all members */
    for (int member = 0; member < me->group_size; member++) {
        int64_t j = me->command.word[member];
        if (j < 0) continue;
        w[j] += r->step[member];
        for (uint64_t k = r->begin[j]; k < r->begin[j + 1]; k++)
            r->residual[r->row[k]] += r->step[member] * (double)r->value[k];
    }
    size_t rounds = (r->data->n_keys + (size_t)me->group_size - 1) / (size_t)me->group_size;
    return (size_t)me->round + 1 == rounds ? tr_view_push(r->w) : TR_OK;
}

/* ---- evaluation and checkpoints ---- */

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct ridge *r = state;
    if (me->member != 0) return TR_OK; /* one member is enough: all members have the same rows */
    for (size_t i = 0; i < r->data->rows.n; i++) report->sum[0] += r->residual[i] * r->residual[i];
    TR_TRY(tr_view_pull(r->w));
    const double *w = r->w->value;
    for (size_t j = 0; j < r->w->n; j++) report->sum[1] += w[j] * w[j];
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    const struct ridge *r = state;
    evaluation->objective = 0.5 * sums->sum[0] / (double)r->data->total_rows + 0.5 * r->l2 * sums->sum[1];
    return TR_OK;
}

/* Called when a checkpoint is written, and when a run resumes, to restore r->residual. Tables need no such call. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *s)
{
    (void)me;
    struct ridge *r = state;
    return tr_data_keep(r->data, s, "residual", TR_F64, r->residual);
}

int main(int argc, char **argv)
{
    struct ridge r = {.l2 = 0.01};
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    uint64_t epochs = 0;
    int status = tr_groups(tr) == 1 && tr_group_size(tr) <= 8
                     ? TR_OK
                     : tr_fail(TR_ERR_CONFIG, "this program needs one group, of 8 members at most");
    status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_job_integer(tr_context_job(tr), "solve.epochs", &epochs);
    if (status == TR_OK) status = tr_data_open(tr, TR_DATA_TRAIN, NULL, &r.data);
    if (status == TR_OK) status = tr_table_create(tr, "w", TR_F64, 1, r.data->columns, &r.table);
    tr_stage stage = {.name = "descend",
                      .state = &r,
                      .clocks = (int64_t)epochs,
                      .evaluate_every = 1,
                      .epochs_per_clock = 1,
                      .prepare = prepare,
                      .schedule = schedule,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize,
                      .snapshot = snapshot};
    if (status == TR_OK) status = tr_run(tr, &stage);
    tr_view_close(&r.w);
    tr_data_close(&r.data);
    void *arrays[] = {r.residual, r.step, r.order, r.begin, r.row, r.value};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return tr_close(tr);
}
